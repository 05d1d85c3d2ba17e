//! From an offer to shares for every neighbour: the client checks everything the server says about the others.

use std::collections::HashSet;

use zeroize::Zeroizing;

use super::{AwaitDelivery, ClientError, Drawn, Neighbour};
use crate::{
    Pseudonym,
    directory::{Admission, Member, Proof, statement},
    entropy::Entropy,
    graph::{self, Graph},
    keys::{PublicKeys, SecretKey, SelfSeed, SigningKey},
    message::{AdvertiseKeys, Neighbourhood, SEALED, ShareKeys},
    parameters::{Adversary, Floor},
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
    signing_key: SigningKey,
}

/// Who a client is shown: its neighbours and the committee, each once and itself left out, in ascending order.
pub(crate) struct Shown {
    pub(crate) neighbours: Vec<u32>,
    pub(crate) members: Vec<u32>,
}

impl Shown {
    pub(crate) fn new(graph: &Graph, committee: &[u32], position: u32) -> Self {
        let neighbours = graph.neighbours(position);
        let mut members = [&neighbours[..], committee].concat();
        members.sort_unstable();
        members.dedup();
        members.retain(|at| *at != position);
        Self { neighbours, members }
    }
}

impl AwaitNeighbourhood {
    pub(super) const fn offer(&self) -> &OfferHash {
        &self.hash
    }

    /// Takes up an offer with fresh keys and a fresh pseudonym.
    ///
    /// # Errors
    /// When the offer has no meaning or promises less than the floor, there is no randomness, or nobody attests the keys.
    pub fn begin(
        offer: Offer,
        floor: Floor,
        admission: &dyn Admission,
        entropy: &mut dyn Entropy,
    ) -> Result<(Self, AdvertiseKeys), ClientError> {
        floor.check()?;
        offer.terms.check()?;
        check_floor(&offer.terms, &floor)?;
        let floor = floor.raised_to(&offer.terms.assumptions);
        let (seal_key, mask_key) = (SecretKey::draw(entropy)?, SecretKey::draw(entropy)?);
        let (signing_key, pseudonym) = (SigningKey::draw(entropy)?, Pseudonym::draw(entropy)?);
        let keys = PublicKeys { sealing: seal_key.public(), masking: mask_key.public(), signing: signing_key.public() };
        let hash = offer.hash();
        let evidence = admission.attest(&statement(&hash, &pseudonym, &keys))?;
        let (got, most) = (evidence.len(), offer.terms.most_evidence as usize);
        if got > most {
            return Err(ClientError::LongEvidence { got, most });
        }
        let own = Member { pseudonym, keys, evidence };
        let message = AdvertiseKeys { offer: hash, member: own.clone() };
        Ok((Self { offer, hash, floor, own, seal_key, mask_key, signing_key }, message))
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
        self.check_parameters(message)?;
        let permutation_seed = message.coin.permutation(&message.root);
        let drawn = Drawn { parameters: message.parameters, permutation_seed };
        let session = session(&self.hash, &message.root, &message.parameters, &message.coin);
        let size = message.parameters.committee().map_or(0, |c| c.size);
        let committee = graph::committee(message.parameters.clients(), size, &session.committee_seed());
        let shown = Shown::new(&drawn.graph(), &committee, message.position);
        self.check_members(message, &shown, admission)?;
        let member = |at: &u32| shown.members.binary_search(at).ok().map(|slot| &message.members[slot].keys);

        let mut neighbours = Vec::with_capacity(shown.neighbours.len());
        for (slot, position) in shown.neighbours.iter().enumerate() {
            let keys = member(position).ok_or(ClientError::Neighbour { slot })?;
            let sealing = self.seal_key.agree(&keys.sealing).map_err(|_| ClientError::Key { slot })?;
            neighbours.push(Neighbour { position: *position, masking: keys.masking, sealing });
        }
        // The only one of the committee who is not among the members is this client itself.
        let own = self.own.keys.signing;
        let signs = committee.binary_search(&message.position).is_ok();
        let committee = committee.iter().map(|at| member(at).map_or(own, |keys| keys.signing)).collect();
        let Self { offer, mask_key, signing_key, .. } = self;
        let self_seed = SelfSeed::draw(entropy)?;
        let client = AwaitDelivery {
            terms: offer.terms,
            session,
            drawn,
            position: message.position,
            threshold: message.parameters.threshold() as usize,
            neighbours,
            committee,
            signing_key: signs.then_some(signing_key),
            mask_key,
            self_seed,
        };
        let answer = client.shares(entropy)?;
        Ok((client, answer))
    }

    /// The graph is one that this device takes part in, and its coin the one that was promised.
    fn check_parameters(&self, message: &Neighbourhood) -> Result<(), ClientError> {
        let clients = message.parameters.clients();
        if clients > self.offer.terms.most_clients {
            return Err(ClientError::TooManyClients { got: clients, most: self.offer.terms.most_clients });
        }
        message.parameters.check_floor(&self.floor)?;
        if message.offer != self.hash || message.coin.commitment() != self.offer.coin {
            return Err(ClientError::Coin);
        }
        Ok(())
    }

    /// Everything that a client can check of a directory that it does not see whole: the members are those at the positions
    /// that root and coin imply, and itself at its own; they ascend; no key is there twice; their evidence holds.
    fn check_members(
        &self,
        message: &Neighbourhood,
        shown: &Shown,
        admission: &dyn Admission,
    ) -> Result<(), ClientError> {
        let (expected, got) = (shown.members.len(), message.members.len());
        if expected != got {
            return Err(ClientError::Count { expected, got });
        }
        let mut known: Vec<(u32, &Member)> = shown.members.iter().copied().zip(&message.members).collect();
        let own_slot = known.partition_point(|(at, _)| *at < message.position);
        known.insert(own_slot, (message.position, &self.own));
        // Who does not take the server's word sees the names of all.
        let lies = self.offer.terms.assumptions.adversary == Adversary::SemiMalicious;
        let is_asked_for = matches!(message.proof, Proof::Whole(_)) == lies;
        if !is_asked_for || !message.proof.holds(&message.root, message.parameters.clients(), &known) {
            return Err(ClientError::NotProved);
        }
        if !known.is_sorted_by(|(_, a), (_, b)| a.pseudonym < b.pseudonym) {
            return Err(ClientError::Order);
        }
        let mut seen = HashSet::from(self.own.keys.all());
        for (slot, member) in message.members.iter().enumerate() {
            if member.keys.check().is_err() || !member.keys.all().into_iter().all(|key| seen.insert(key)) {
                return Err(ClientError::Key { slot });
            }
            let said = statement(&self.hash, &member.pseudonym, &member.keys);
            let is_short = member.evidence.len() <= self.offer.terms.most_evidence as usize;
            if !is_short || !admission.admits(&said, &member.evidence) {
                return Err(ClientError::Evidence { slot });
            }
        }
        Ok(())
    }
}

/// What the offer promises must be what the device asks for, or more; the graph itself is checked when it is known.
fn check_floor(terms: &Terms, floor: &Floor) -> Result<(), ClientError> {
    let promised = &terms.assumptions;
    for (what, below) in [
        ("adversary", promised.adversary < floor.adversary),
        ("corrupted", promised.corrupted < floor.corrupted),
        ("dropout", promised.dropout < floor.dropout),
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
