//! Reconstructs and checks secrets, removes masks, and opens the sum.

use zeroize::Zeroizing;

use super::{
    Parallel, Refusal, RoundFailure,
    agreement::Summed,
    check_count,
    fates::Fate,
    parallel::{self, Job},
};
use crate::{
    ClientId,
    keys::{SecretKey, SelfSeed, Signature},
    masks::{self, BLOCK, MaskKey, Sign},
    message::{Opened, Survivors, UnmaskRequest, UnmaskResponse, View},
    shamir::{self, Share},
    wire::Bits,
};

/// A wrong share, and who sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongShare {
    /// The client that sent it.
    pub holder: ClientId,
    /// The client whose secret was shared.
    pub dealer: ClientId,
}

/// The outcome of a round.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The sum of the survivors' inputs, mod 2^b.
    pub sum: Zeroizing<Vec<u32>>,
    /// Whose inputs are in it.
    pub survivors: Vec<ClientId>,
    /// Shares that were wrong, and did no harm. That proves nothing of their senders: who dealt a wrong share to one neighbour
    /// makes that neighbour look wrong.
    pub wrong_shares: Vec<WrongShare>,
    /// Who said that whose shares were no good: (who, whose).
    pub complaints: Vec<(ClientId, ClientId)>,
    /// Masks that were taken off.
    pub masks: usize,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sum, survivors, wrong_shares, complaints, masks } = self;
        f.debug_struct("Outcome")
            .field("coordinates", &sum.len())
            .field("survivors", &survivors.len())
            .field("wrong_shares", wrong_shares)
            .field("complaints", complaints)
            .field("masks", masks)
            .finish()
    }
}

/// A view, and of each of the committee its signature, if it signed.
type Agreed = (View, Vec<Option<Signature>>);

/// A round that collects shares of the secrets that masks are made of.
pub struct CollectUnmask {
    summed: Summed,
    /// Where clients do not take the server's word.
    agreed: Option<Agreed>,
    answered: Vec<bool>,
    /// Of each client's secret: the shares that have come, each with the number of its holder.
    shares: Vec<Vec<(u32, Share)>>,
}

impl std::fmt::Debug for CollectUnmask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CollectUnmask({} answers)", self.arrived())
    }
}

impl CollectUnmask {
    pub(super) fn new(summed: Summed, agreed: Option<Agreed>) -> Self {
        let count = summed.commitments.len();
        Self { summed, agreed, answered: vec![false; count], shares: (0..count).map(|_| Vec::new()).collect() }
    }

    /// The clients whose inputs arrived, which are asked.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.summed.survivors()
    }

    /// The [`UnmaskRequest`] for a survivor.
    #[must_use]
    pub fn request(&self, client: ClientId) -> Option<Vec<u8>> {
        let position = self.summed.survivor(client).ok()?;
        let Summed { round, fates, .. } = &self.summed;
        let survivors = match &self.agreed {
            Some((view, signatures)) => Survivors::Agreed { view: view.clone(), signatures: signatures.clone() },
            None => {
                let neighbours = round.graph.neighbours(position);
                Survivors::Said(Bits::new(neighbours.into_iter().map(|at| fates.is_alive(at)).collect()))
            }
        };
        Some(UnmaskRequest { session: round.session, survivors }.encode())
    }

    /// Takes a survivor's [`UnmaskResponse`].
    ///
    /// # Errors
    /// When it is not one, or does not hold exactly what was asked for.
    pub fn receive(&mut self, from: ClientId, bytes: &[u8]) -> Result<(), Refusal> {
        let position = self.summed.survivor(from)?;
        let UnmaskResponse { session, opened } = UnmaskResponse::decode(bytes)?;
        self.summed.round.check_session(&session)?;
        if self.answered[position as usize] {
            return Err(Refusal::Repeated(from));
        }
        let neighbours = self.summed.round.graph.neighbours(position);
        check_count(neighbours.len(), opened.len())?;
        let mut shares = Vec::with_capacity(opened.len());
        for (dealer, opened) in neighbours.into_iter().zip(&opened) {
            if let Some(share) = self.expected_share(position, dealer, opened)? {
                // A holder's number is its place among the dealer's neighbours.
                let slot = self.summed.round.graph.slot(dealer, position).unwrap_or_default();
                shares.push((dealer, slot as u32 + 1, share));
            }
        }
        shares.into_iter().for_each(|(dealer, x, share)| self.shares[dealer as usize].push((x, share)));
        self.answered[position as usize] = true;
        Ok(())
    }

    /// The share that a survivor sent of a neighbour's secret, if it is of the kind that it was asked for.
    fn expected_share(&self, holder: u32, dealer: u32, opened: &Opened) -> Result<Option<Share>, Refusal> {
        let wrong = || Refusal::Share(self.summed.round.client(dealer));
        let bytes = match (self.summed.fates.of(dealer), opened) {
            _ if !self.summed.fates.asks(holder, dealer) => {
                return if matches!(opened, Opened::Nothing) { Ok(None) } else { Err(wrong()) };
            }
            (Fate::Alive, Opened::SelfSeed(bytes)) | (Fate::Dead, Opened::MaskKey(bytes)) => bytes,
            _ => return Err(wrong()),
        };
        Share::from_bytes(&**bytes).map(Some).map_err(|_| wrong())
    }

    /// How many have answered.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.answered.iter().filter(|a| **a).count()
    }

    /// Whether every secret that is needed has a threshold of shares: nobody else has to be waited for, unless one is wrong.
    ///
    /// # Errors
    /// Whose secret has too few.
    pub fn can_close(&self) -> Result<(), RoundFailure> {
        let Summed { round, fates, .. } = &self.summed;
        let (few, needed) = (|at: &u32| self.shares[*at as usize].len() < round.threshold(), round.threshold());
        match fates.needed(round).find(few) {
            None => Ok(()),
            Some(at) => {
                let got = self.shares[at as usize].len();
                Err(RoundFailure::OutOfReach { client: round.client(at), got, needed })
            }
        }
    }

    /// Reconstructs and checks the secrets, and leaves the round as it is: the caller can wait for more answers, of which more
    /// wrong ones can be told, asks this before it closes.
    ///
    /// # Errors
    /// Which secret cannot be reconstructed.
    pub fn check_secrets(&self, parallel: &dyn Parallel) -> Result<(), RoundFailure> {
        self.can_close()?;
        let needed: Vec<u32> = self.summed.fates.needed(&self.summed.round).collect();
        parallel::map(parallel, &needed, |at| self.secret(*at).map(drop)).into_iter().collect()
    }

    /// Puts the secrets together, takes the masks off and gives the sum.
    ///
    /// # Errors
    /// When a secret cannot be reconstructed, or the masks do not cancel. There is no sum then, and never a wrong one.
    pub fn close(mut self, parallel: &dyn Parallel) -> Result<Outcome, RoundFailure> {
        let needed: Vec<u32> = self.summed.fates.needed(&self.summed.round).collect();
        let found = parallel::map(parallel, &needed, |at| self.secret(*at));
        let (mut streams, mut wrong_shares) = (Vec::new(), Vec::new());
        for (at, found) in needed.iter().zip(found) {
            let Found { masks, wrong } = found?;
            streams.extend(masks);
            let dealer = self.summed.round.client(*at);
            wrong_shares.extend(wrong.into_iter().map(|x| WrongShare { holder: self.holder(*at, x), dealer }));
        }
        if !self.take_off(&streams, parallel) {
            return Err(RoundFailure::Unfinished);
        }
        let sum = self.sum()?;
        let (survivors, complaints) = (self.clients().collect(), self.complaints());
        Ok(Outcome { sum, survivors, wrong_shares, complaints, masks: streams.len() })
    }

    fn holder(&self, dealer: u32, x: u32) -> ClientId {
        let neighbours = self.summed.round.graph.neighbours(dealer);
        self.summed.round.client(neighbours[x as usize - 1])
    }

    fn complaints(&self) -> Vec<(ClientId, ClientId)> {
        self.summed
            .fates
            .complaints()
            .iter()
            .map(|(who, whose)| (self.summed.round.client(*who), self.summed.round.client(*whose)))
            .collect()
    }

    /// A client's secret, and the masks that it opens.
    fn secret(&self, at: u32) -> Result<Found, RoundFailure> {
        let client = self.summed.round.client(at);
        let shares: Vec<(u32, &Share)> = self.shares[at as usize].iter().map(|(x, share)| (*x, share)).collect();
        let (got, needed) = (shares.len(), self.summed.round.threshold());
        if got < needed {
            return Err(RoundFailure::OutOfReach { client, got, needed });
        }
        // Almost always the first shares are right; what they give is checked against what the client said before.
        if let Ok(secret) = shamir::reconstruct(&shares, needed)
            && let Some(masks) = self.masks_of(at, secret)
        {
            return Ok(Found { masks, wrong: Vec::new() });
        }
        let decoded = shamir::correct(&shares, needed).map_err(|_| RoundFailure::Dealt { client })?;
        let masks = self.masks_of(at, decoded.secret).ok_or(RoundFailure::Dealt { client })?;
        Ok(Found { masks, wrong: decoded.wrong })
    }

    /// What is to be added to the sum for a client, if the secret is the one that it said it would be.
    fn masks_of(&self, at: u32, secret: Zeroizing<[u8; 32]>) -> Option<Vec<(MaskKey, Sign)>> {
        let session = &self.summed.round.session;
        if self.summed.fates.is_alive(at) {
            let seed = SelfSeed::from_bytes(secret);
            let commitment = self.summed.commitments[at as usize].as_ref()?;
            return seed.opens(commitment, session, at).then(|| vec![(seed.mask(session, at), Sign::Minus)]);
        }
        let key = SecretKey::from_bytes(&secret);
        if key.public() != self.summed.round.directory.member(at).keys.masking {
            return None;
        }
        // A survivor above the dead one subtracted their mask, one below added it.
        let alive = |n: &u32| self.summed.fates.is_alive(*n);
        let of_pair = |n: u32| {
            let agreed = key.agree(&self.summed.round.directory.member(n).keys.masking).ok()?;
            Some((agreed.pair_mask(session, at, n), if n > at { Sign::Plus } else { Sign::Minus }))
        };
        self.summed.round.graph.neighbours(at).into_iter().filter(alive).map(of_pair).collect()
    }

    /// Takes masks off, slice by slice of the vector; says whether all of it was done.
    fn take_off(&mut self, streams: &[(MaskKey, Sign)], parallel: &dyn Parallel) -> bool {
        let bits = self.summed.shape.bits();
        let blocks = (self.summed.shape.padded() / BLOCK).div_ceil(parallel.width().max(1));
        let slices = self.summed.lanes.chunks_mut(blocks * BLOCK).enumerate();
        let job = |(number, lanes)| -> Job<'_> {
            Box::new(move || {
                masks::apply(lanes, (number * blocks) as u64, bits, streams).expect("slices are whole blocks");
            })
        };
        parallel::run_all(parallel, slices.map(job).collect())
    }

    /// The sum, if its padding is zero: no client put anything there, so what is there is a mask that was not taken off.
    fn sum(&mut self) -> Result<Zeroizing<Vec<u32>>, RoundFailure> {
        let mut lanes = std::mem::take(&mut self.summed.lanes);
        let shape = &self.summed.shape;
        masks::reduce(&mut lanes, shape.bits()).expect("a vector is whole blocks");
        if lanes[shape.dimension()..].iter().any(|v| *v != 0) {
            return Err(RoundFailure::NotCancelled);
        }
        lanes.truncate(shape.dimension());
        Ok(lanes)
    }
}

/// What a client's secret opens.
struct Found {
    masks: Vec<(MaskKey, Sign)>,
    /// Numbers of the holders whose shares were wrong.
    wrong: Vec<u32>,
}
