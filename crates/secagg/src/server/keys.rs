//! Collects the advertised keys: who takes part.

use std::collections::{BTreeMap, HashSet};

use super::{CollectShares, Refusal, Round, RoundFailure};
use crate::{
    ClientId, Pseudonym,
    directory::{Admission, Member, statement},
    entropy::Entropy,
    message::AdvertiseKeys,
    parameters::{ParameterError, Parameters},
    session::{Coin, Offer, OfferHash, Terms},
};

/// The graph that connects clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connect {
    /// As the offer's assumptions need it for as many clients as come.
    Found,
    /// With a degree and threshold that somebody chose, whatever they protect: for measurements. No device with a floor of
    /// its own takes part.
    #[cfg(any(test, feature = "insecure"))]
    Insecure {
        /// Neighbours of each.
        degree: u32,
        /// Shares that open a secret.
        threshold: u32,
    },
}

impl Connect {
    fn parameters(self, clients: u32, terms: &Terms) -> Result<Parameters, ParameterError> {
        let found = || Parameters::find(clients, &terms.assumptions);
        match self {
            Self::Found => found(),
            #[cfg(any(test, feature = "insecure"))]
            Self::Insecure { degree, threshold } => match terms.assumptions.adversary {
                crate::parameters::Adversary::Curious => Parameters::insecure(clients, degree, threshold),
                // If signatures are required they are used, whatever the graph.
                crate::parameters::Adversary::SemiMalicious => {
                    Parameters::from_parts(clients, degree, threshold, found()?.committee())
                }
            },
        }
    }
}

/// A round that collects keys.
#[derive(Debug)]
pub struct CollectKeys {
    pub(super) offer: Offer,
    hash: OfferHash,
    pub(super) coin: Coin,
    /// In the order of their positions.
    pub(super) members: BTreeMap<Pseudonym, (ClientId, Member)>,
    clients: HashSet<ClientId>,
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
        Ok(Self::new(Offer { terms, nonce, coin: coin.commitment() }, coin))
    }

    pub(super) fn new(offer: Offer, coin: Coin) -> Self {
        let (members, clients, keys) = (BTreeMap::new(), HashSet::new(), HashSet::new());
        Self { hash: offer.hash(), offer, coin, members, clients, keys }
    }

    /// The offer to devices, with the coin's commitment and a nonce of this attempt.
    #[must_use]
    pub const fn offer(&self) -> &Offer {
        &self.offer
    }

    /// The number of clients that have advertised keys.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.members.len()
    }

    /// Takes a client's [`AdvertiseKeys`]: one pseudonym from each.
    ///
    /// # Errors
    /// When it is not one, or not one that can take part.
    pub fn receive(&mut self, from: ClientId, bytes: &[u8], admission: &dyn Admission) -> Result<(), Refusal> {
        let AdvertiseKeys { offer, member } = AdvertiseKeys::decode(bytes)?;
        if offer != self.hash {
            return Err(Refusal::OtherSession);
        }
        if self.clients.contains(&from) {
            return Err(Refusal::Repeated(from));
        }
        let Terms { most_clients, most_evidence, .. } = self.offer.terms;
        if self.members.len() >= most_clients as usize {
            return Err(Refusal::Full { most: most_clients });
        }
        let Member { pseudonym, keys, evidence } = &member;
        let used = keys.all().iter().any(|key| self.keys.contains(key)) || self.members.contains_key(pseudonym);
        if used || keys.check().is_err() {
            return Err(Refusal::Key(from));
        }
        let is_short = evidence.len() <= most_evidence as usize;
        if !is_short || !admission.admits(&statement(&self.hash, pseudonym, keys), evidence) {
            return Err(Refusal::Evidence(from));
        }
        self.insert(from, member);
        Ok(())
    }

    pub(super) fn insert(&mut self, from: ClientId, member: Member) {
        self.keys.extend(member.keys.all());
        self.clients.insert(from);
        self.members.insert(member.pseudonym, (from, member));
    }

    /// Whether the directory can be closed.
    ///
    /// # Errors
    /// When too few have come, or no graph of them withstands what the offer says.
    pub fn can_close(&self) -> Result<(), RoundFailure> {
        self.parameters(Connect::Found).map(drop)
    }

    fn parameters(&self, connect: Connect) -> Result<Parameters, RoundFailure> {
        let (got, needed) = (self.members.len(), self.offer.terms.least_survivors as usize);
        if got < needed {
            return Err(RoundFailure::TooFew { got, needed });
        }
        Ok(connect.parameters(got as u32, &self.offer.terms)?)
    }

    /// Closes the directory.
    ///
    /// # Errors
    /// When too few have come, or no graph of them withstands what the offer says.
    pub fn close(self, connect: Connect) -> Result<CollectShares, RoundFailure> {
        let parameters = self.parameters(connect)?;
        let Self { offer, coin, members, .. } = self;
        Ok(CollectShares::new(Round::new(offer, coin, parameters, members.into_values())))
    }
}
