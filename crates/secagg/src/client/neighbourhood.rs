//! From an offer to shares for every neighbour: the client checks everything that the server says of the others.

use std::collections::HashSet;

use zeroize::Zeroizing;

use super::{AwaitDelivery, ClientError, Drawn, Neighbour};
use crate::{
    ClientId,
    directory::{Admission, Member, holds, statement},
    entropy::Entropy,
    keys::{PublicKeys, SecretKey, SelfSeed},
    message::{AdvertiseKeys, Listing, Neighbourhood, SEALED, ShareKeys},
    parameters::Floor,
    session::{Offer, OfferHash, Terms, session},
    shamir::{Share, deal},
};

/// A client that has advertised its keys, until it is told who its neighbours are.
#[derive(Debug)]
pub struct AwaitNeighbourhood {
    offer: Offer,
    hash: OfferHash,
    floor: Floor,
    own: Member,
    seal_key: SecretKey,
    mask_key: SecretKey,
}

impl AwaitNeighbourhood {
    /// Takes up an offer with fresh keys.
    ///
    /// # Errors
    /// When the offer has no meaning or promises less than the floor, or there is no randomness.
    pub fn begin(
        offer: Offer,
        id: ClientId,
        floor: Floor,
        admission: &dyn Admission,
        entropy: &mut dyn Entropy,
    ) -> Result<(Self, AdvertiseKeys), ClientError> {
        offer.terms.check()?;
        check_floor(&offer.terms, &floor)?;
        let (seal_key, mask_key) = (SecretKey::draw(entropy)?, SecretKey::draw(entropy)?);
        let keys = PublicKeys { sealing: seal_key.public(), masking: mask_key.public() };
        let hash = offer.hash();
        let evidence = admission.attest(&statement(&hash, id, &keys));
        let message = AdvertiseKeys { offer: hash, keys, evidence: evidence.clone() };
        let own = Member { client: id, keys, evidence };
        Ok((Self { offer, hash, floor, own, seal_key, mask_key }, message))
    }

    /// Checks the neighbourhood and shares the keys among it.
    ///
    /// # Errors
    /// When anything in it is not as it must be.
    pub fn share(
        self,
        message: &Neighbourhood,
        admission: &dyn Admission,
        entropy: &mut dyn Entropy,
    ) -> Result<(AwaitDelivery, ShareKeys), ClientError> {
        let permutation_seed = message.coin.permutation(&message.root);
        let drawn = Drawn { parameters: message.parameters, permutation_seed };
        let positions = self.check(message, &drawn, admission)?;
        let session = session(&self.hash, &message.root, &message.parameters, &message.coin);
        let mut neighbours = Vec::with_capacity(positions.len());
        for (slot, (position, listing)) in positions.iter().zip(&message.neighbours).enumerate() {
            let keys = &listing.member.keys;
            let sealing = self.seal_key.agree(&keys.sealing).map_err(|_| ClientError::Key { slot })?;
            neighbours.push(Neighbour { position: *position, masking: keys.masking, sealing });
        }
        let Self { offer, mask_key, .. } = self;
        let self_seed = SelfSeed::draw(entropy)?;
        let threshold = message.parameters.threshold() as usize;
        let client = AwaitDelivery {
            terms: offer.terms,
            session,
            drawn,
            position: message.position,
            threshold,
            neighbours,
            mask_key,
            self_seed,
        };
        let answer = client.shares(entropy)?;
        Ok((client, answer))
    }

    /// Everything that a client can check of a directory that it does not see whole. Gives its neighbours'
    /// positions.
    fn check(
        &self,
        message: &Neighbourhood,
        drawn: &Drawn,
        admission: &dyn Admission,
    ) -> Result<Vec<u32>, ClientError> {
        let parameters = &message.parameters;
        let clients = parameters.clients();
        if clients > self.offer.terms.most_clients {
            return Err(ClientError::TooManyClients { got: clients, most: self.offer.terms.most_clients });
        }
        parameters.check_floor(&self.floor)?;
        if message.coin.commitment() != self.offer.coin {
            return Err(ClientError::Coin);
        }
        if !holds(&message.root, clients, message.position, &self.own, &message.own_proof) {
            return Err(ClientError::NotListed);
        }
        let positions = drawn.graph().neighbours(message.position);
        if message.neighbours.len() != positions.len() {
            return Err(ClientError::Count { expected: positions.len(), got: message.neighbours.len() });
        }
        let mut seen = HashSet::from([self.own.keys.sealing, self.own.keys.masking]);
        let mut ids = HashSet::from([self.own.client]);
        for (slot, (position, listing)) in positions.iter().zip(&message.neighbours).enumerate() {
            let Listing { member, proof } = listing;
            if !holds(&message.root, clients, *position, member, proof) || !ids.insert(member.client) {
                return Err(ClientError::Neighbour { slot });
            }
            if !seen.insert(member.keys.sealing) || !seen.insert(member.keys.masking) {
                return Err(ClientError::Key { slot });
            }
            if !admission.admits(member.client, &statement(&self.hash, member.client, &member.keys), &member.evidence) {
                return Err(ClientError::Evidence { slot });
            }
        }
        Ok(positions)
    }
}

/// What the offer promises must be what the device asks for, or more; the graph itself is checked when it is known.
fn check_floor(terms: &Terms, floor: &Floor) -> Result<(), ClientError> {
    let promised = &terms.assumptions;
    for (what, below) in [
        ("adversary", promised.adversary < floor.adversary),
        ("corrupted", promised.corrupted < floor.corrupted),
        ("security_bits", promised.security_bits < floor.security_bits),
        ("most_clients", terms.most_clients < floor.clients),
        ("least_survivors", terms.least_survivors < floor.survivors),
    ] {
        if below {
            return Err(ClientError::BelowFloor(what));
        }
    }
    Ok(())
}

impl AwaitDelivery {
    /// Two shares for each neighbour, sealed.
    fn shares(&self, entropy: &mut dyn Entropy) -> Result<ShareKeys, ClientError> {
        let holders = self.neighbours.len();
        let of_key = deal(&self.mask_key.to_bytes(), self.threshold, holders, entropy)?;
        let of_seed = deal(self.self_seed.bytes(), self.threshold, holders, entropy)?;
        let mut sealed = Vec::with_capacity(holders);
        for (neighbour, (key, seed)) in self.neighbours.iter().zip(of_key.iter().zip(&of_seed)) {
            let mut plain = Zeroizing::new([0; 2 * Share::SIZE]);
            plain[..Share::SIZE].copy_from_slice(&*key.to_bytes());
            plain[Share::SIZE..].copy_from_slice(&*seed.to_bytes());
            let (from, to) = (self.position, neighbour.position);
            let bytes = neighbour.sealing.seal(&self.session, from, to, &*plain, entropy)?;
            sealed.push(<[u8; SEALED]>::try_from(bytes).expect("two shares and what sealing adds"));
        }
        let commitment = self.self_seed.commitment(&self.session, self.position);
        Ok(ShareKeys { session: self.session, commitment, sealed })
    }
}
