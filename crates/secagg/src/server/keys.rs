//! Advertised keys: who takes part.

use std::collections::{BTreeMap, HashSet};

use super::{CollectShares, Refusal, Round, RoundFailure};
use crate::{
    ClientId,
    directory::{Admission, Directory, Member, statement},
    entropy::Entropy,
    graph::Graph,
    message::AdvertiseKeys,
    parameters::{ParameterError, Parameters},
    session::{Coin, Offer, OfferHash, Terms, session},
};

/// How clients are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connect {
    /// As the offer's assumptions need it for as many clients as come.
    Found,
    /// With a degree and threshold that somebody chose, whatever they protect: for measurements. No device with a floor of
    /// its own takes part.
    Insecure {
        /// Neighbours of each.
        degree: u32,
        /// Shares that open a secret.
        threshold: u32,
    },
}

impl Connect {
    fn parameters(self, clients: u32, terms: &Terms) -> Result<Parameters, ParameterError> {
        match self {
            Self::Found => Parameters::find(clients, &terms.assumptions),
            Self::Insecure { degree, threshold } => Parameters::insecure(clients, degree, threshold),
        }
    }
}

/// A round that collects keys.
#[derive(Debug)]
pub struct CollectKeys {
    offer: Offer,
    hash: OfferHash,
    coin: Coin,
    members: BTreeMap<ClientId, Member>,
    keys: HashSet<[u8; 32]>,
}

impl CollectKeys {
    /// Opens a round. Its coin is drawn here, before any key is known, and committed to in the offer.
    ///
    /// # Errors
    /// When the terms have no meaning.
    pub fn open(terms: Terms, entropy: &mut dyn Entropy) -> Result<Self, RoundFailure> {
        terms.check()?;
        let (mut coin, mut nonce) = (Coin([0; 32]), [0; 32]);
        entropy.fill(&mut coin.0)?;
        entropy.fill(&mut nonce)?;
        let offer = Offer { terms, nonce, coin: coin.commitment() };
        Ok(Self { hash: offer.hash(), offer, coin, members: BTreeMap::new(), keys: HashSet::new() })
    }

    /// What devices are offered: with the coin's commitment and a nonce of this attempt.
    #[must_use]
    pub const fn offer(&self) -> &Offer {
        &self.offer
    }

    /// How many have come.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.members.len()
    }

    /// Takes a client's [`AdvertiseKeys`].
    ///
    /// # Errors
    /// When it is not one, or not one that can take part.
    pub fn receive(&mut self, from: ClientId, bytes: &[u8], admission: &dyn Admission) -> Result<(), Refusal> {
        let AdvertiseKeys { offer, keys, evidence } = AdvertiseKeys::decode(bytes)?;
        if offer != self.hash {
            return Err(Refusal::OtherSession);
        }
        if self.members.contains_key(&from) {
            return Err(Refusal::Repeated(from));
        }
        if self.members.len() >= self.offer.terms.most_clients as usize {
            return Err(Refusal::Full { most: self.offer.terms.most_clients });
        }
        let used = self.keys.contains(&keys.sealing) || self.keys.contains(&keys.masking);
        if used || keys.check().is_err() {
            return Err(Refusal::Key(from));
        }
        if !admission.admits(from, &statement(&self.hash, from, &keys), &evidence) {
            return Err(Refusal::Evidence(from));
        }
        self.keys.extend([keys.sealing, keys.masking]);
        self.members.insert(from, Member { client: from, keys, evidence });
        Ok(())
    }

    /// Closes the directory.
    ///
    /// # Errors
    /// When too few have come, or no graph of them withstands what the offer says.
    pub fn close(self, connect: Connect) -> Result<CollectShares, RoundFailure> {
        let Self { offer, hash, coin, members, .. } = self;
        let needed = offer.terms.least_survivors as usize;
        if members.len() < needed {
            return Err(RoundFailure::TooFew { got: members.len(), needed });
        }
        let parameters = connect.parameters(members.len() as u32, &offer.terms)?;
        let positions = members.keys().copied().zip(0..).collect();
        let directory = Directory::new(members.into_values().collect());
        let root = directory.root();
        let graph = Graph::new(&parameters, &coin.permutation(&root));
        let session = session(&hash, &root, &parameters, &coin);
        Ok(CollectShares::new(Round {
            terms: offer.terms,
            session,
            parameters,
            coin,
            root,
            directory,
            graph,
            positions,
        }))
    }
}
