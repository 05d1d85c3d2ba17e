//! Shares of secrets, put together and checked; masks taken off; the sum.

use zeroize::{Zeroize, Zeroizing};

use super::{
    Complaints, Parallel, Refusal, Round, RoundFailure, check_count,
    parallel::{self, Job},
};
use crate::{
    ClientId,
    keys::{SecretKey, SelfSeed},
    masks::{self, BLOCK, MaskKey, Shape, Sign},
    message::{Opened, UnmaskRequest, UnmaskResponse, View, Voucher},
    shamir::{self, Share},
    wire::Bits,
};

/// What became of a client of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It never shared: nobody has a mask with it.
    Absent,
    /// It shared, and its input did not arrive: its mask key is to be opened.
    Dead,
    /// Its input arrived: the seed of its own mask is to be opened.
    Alive,
}

/// A wrong share, and who sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongShare {
    /// Who sent it.
    pub holder: ClientId,
    /// Of whose secret.
    pub dealer: ClientId,
}

/// What a round came to.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The sum of the survivors' inputs, mod 2^b.
    pub sum: Vec<u32>,
    /// Whose inputs are in it.
    pub survivors: Vec<ClientId>,
    /// Shares that were wrong, and did no harm. Their senders are not to be trusted, or their dealers: who dealt a wrong
    /// share to one neighbour makes that neighbour look wrong.
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

/// A round that collects shares of the secrets that masks are made of.
pub struct CollectUnmask {
    pub(super) round: Round,
    shape: Shape,
    commitments: Vec<Option<[u8; 32]>>,
    fates: Vec<Fate>,
    complaints: Complaints,
    lanes: Vec<u32>,
    /// Of each survivor: its vouchers for its neighbours, where they had to agree.
    vouchers: Option<Vec<Option<Vec<Option<Voucher>>>>>,
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
    pub(super) fn new(
        round: Round,
        shape: Shape,
        commitments: Vec<Option<[u8; 32]>>,
        arrived: &[bool],
        complaints: Complaints,
        lanes: Vec<u32>,
    ) -> Result<Self, RoundFailure> {
        let fate = |(shared, arrived): (&Option<_>, &bool)| match (shared, arrived) {
            (None, _) => Fate::Absent,
            (Some(_), false) => Fate::Dead,
            (Some(_), true) => Fate::Alive,
        };
        let fates: Vec<Fate> = commitments.iter().zip(arrived).map(fate).collect();
        let count = fates.len();
        let (answered, shares) = (vec![false; count], (0..count).map(|_| Vec::new()).collect());
        let unmask = Self { round, shape, commitments, fates, complaints, lanes, vouchers: None, answered, shares };
        unmask.check_within_reach()?;
        Ok(unmask)
    }

    /// With the vouchers that came: whoever sent none is gone, and cannot be asked.
    pub(super) fn with_vouchers(mut self, vouchers: Vec<Option<Vec<Option<Voucher>>>>) -> Result<Self, RoundFailure> {
        self.vouchers = Some(vouchers);
        self.check_within_reach()?;
        Ok(self)
    }

    /// What became of everybody.
    pub(super) fn view(&self) -> View {
        let bits = |is: fn(&Fate) -> bool| Bits::new(self.fates.iter().map(is).collect());
        let (present, alive) = (bits(|f| *f != Fate::Absent), bits(|f| *f == Fate::Alive));
        View { session: self.round.session, present, alive }
    }

    /// Every secret that is needed has enough holders alive. Otherwise the round fails here, before any share is opened.
    fn check_within_reach(&self) -> Result<(), RoundFailure> {
        let needed = self.round.threshold();
        for at in self.needed() {
            let holds = |holder: &u32| self.asks(*holder, at);
            let got = self.round.graph.around(at).filter(holds).count();
            if got < needed {
                return Err(RoundFailure::OutOfReach { client: self.round.client(at), got, needed });
            }
        }
        Ok(())
    }

    /// Whose secrets are needed: of survivors, and of the dead who share a mask with one.
    fn needed(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.round.parameters.clients()).filter(|at| match self.fates[*at as usize] {
            Fate::Absent => false,
            Fate::Alive => true,
            Fate::Dead => self.round.graph.around(*at).any(|n| self.fates[n as usize] == Fate::Alive),
        })
    }

    /// Whether a holder can be asked for a share of a dealer's secret.
    fn asks(&self, holder: u32, dealer: u32) -> bool {
        let agreed = |vouchers: &Vec<Option<_>>| vouchers[holder as usize].is_some();
        self.fates[holder as usize] == Fate::Alive
            && self.fates[dealer as usize] != Fate::Absent
            && self.vouchers.as_ref().is_none_or(agreed)
            && !self.complaints.contains(&(holder, dealer))
    }

    /// Whose inputs arrived, and who are asked.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.round.positions.iter().filter(|(_, at)| self.fates[**at as usize] == Fate::Alive).map(|(id, _)| *id)
    }

    /// The [`UnmaskRequest`] for a survivor.
    #[must_use]
    pub fn request(&self, client: ClientId) -> Option<Vec<u8>> {
        let position = self.asked(client).ok()?;
        let alive = |at: u32| self.fates[at as usize] == Fate::Alive;
        let neighbours = self.round.graph.neighbours(position);
        let alive = Bits::new(neighbours.iter().copied().map(alive).collect());
        let vouchers = self.vouchers.as_ref().map(|all| neighbours.iter().map(|n| self.voucher(all, *n, position)));
        let vouchers = vouchers.into_iter().flatten().collect();
        Some(UnmaskRequest { session: self.round.session, alive, vouchers }.encode())
    }

    /// What one survivor said for another to check.
    fn voucher(&self, all: &[Option<Vec<Option<Voucher>>>], from: u32, to: u32) -> Option<Voucher> {
        let slot = self.round.graph.slot(from, to)?;
        all[from as usize].as_ref()?[slot]
    }

    pub(super) fn survivor(&self, client: ClientId) -> Result<u32, Refusal> {
        let position = self.round.position(client)?;
        if self.fates[position as usize] == Fate::Alive { Ok(position) } else { Err(Refusal::Stranger(client)) }
    }

    /// A survivor that can be asked for shares: one that agreed, where they had to.
    fn asked(&self, client: ClientId) -> Result<u32, Refusal> {
        let position = self.survivor(client)?;
        let agreed = |vouchers: &Vec<Option<_>>| vouchers[position as usize].is_some();
        if self.vouchers.as_ref().is_none_or(agreed) { Ok(position) } else { Err(Refusal::Stranger(client)) }
    }

    /// Takes a survivor's [`UnmaskResponse`].
    ///
    /// # Errors
    /// When it is not one, or does not hold exactly what was asked for.
    pub fn receive(&mut self, from: ClientId, bytes: &[u8]) -> Result<(), Refusal> {
        let position = self.asked(from)?;
        let UnmaskResponse { session, opened } = UnmaskResponse::decode(bytes)?;
        if session != self.round.session {
            return Err(Refusal::OtherSession);
        }
        if self.answered[position as usize] {
            return Err(Refusal::Repeated(from));
        }
        let neighbours = self.round.graph.neighbours(position);
        check_count(neighbours.len(), opened.len())?;
        let mut shares = Vec::with_capacity(opened.len());
        for (dealer, opened) in neighbours.into_iter().zip(&opened) {
            if let Some(share) = self.expected_share(position, dealer, opened)? {
                // A holder's number is its place among the dealer's neighbours.
                let slot = self.round.graph.slot(dealer, position).unwrap_or_default();
                shares.push((dealer, slot as u32 + 1, share));
            }
        }
        shares.into_iter().for_each(|(dealer, x, share)| self.shares[dealer as usize].push((x, share)));
        self.answered[position as usize] = true;
        Ok(())
    }

    /// The share that a survivor sent of a neighbour's secret, if it is of the kind that it was asked for.
    fn expected_share(&self, holder: u32, dealer: u32, opened: &Opened) -> Result<Option<Share>, Refusal> {
        let wrong = || Refusal::Share(self.round.client(dealer));
        let bytes = match (self.fates[dealer as usize], opened) {
            _ if !self.asks(holder, dealer) => {
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

    /// Whether every secret that is needed has a threshold of shares: nobody else has to be waited for.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.needed().all(|at| self.shares[at as usize].len() >= self.round.threshold())
    }

    /// Puts the secrets together, takes the masks off and gives the sum.
    ///
    /// # Errors
    /// When a secret cannot be put together, or the masks do not cancel. There is no sum then, and never a wrong one.
    pub fn close(mut self, parallel: &dyn Parallel) -> Result<Outcome, RoundFailure> {
        let needed: Vec<u32> = self.needed().collect();
        let found = parallel::map(parallel, &needed, |at| self.secret(*at));
        let (mut streams, mut wrong_shares) = (Vec::new(), Vec::new());
        for (at, found) in needed.iter().zip(found) {
            let Found { masks, wrong } = found?;
            streams.extend(masks);
            let dealer = self.round.client(*at);
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
        let neighbours = self.round.graph.neighbours(dealer);
        self.round.client(neighbours[x as usize - 1])
    }

    fn complaints(&self) -> Vec<(ClientId, ClientId)> {
        self.complaints.iter().map(|(who, whose)| (self.round.client(*who), self.round.client(*whose))).collect()
    }

    /// A client's secret, and the masks that it opens.
    fn secret(&self, at: u32) -> Result<Found, RoundFailure> {
        let client = self.round.client(at);
        let shares: Vec<(u32, &Share)> = self.shares[at as usize].iter().map(|(x, share)| (*x, share)).collect();
        let (got, needed) = (shares.len(), self.round.threshold());
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
        let session = &self.round.session;
        if self.fates[at as usize] == Fate::Alive {
            let seed = SelfSeed::from_bytes(secret);
            let commitment = self.commitments[at as usize].as_ref()?;
            return seed.opens(commitment, session, at).then(|| vec![(seed.mask(session, at), Sign::Minus)]);
        }
        let key = SecretKey::from_bytes(&secret);
        if key.public() != self.round.directory.member(at).keys.masking {
            return None;
        }
        // A survivor above the dead one subtracted their mask, one below added it.
        let alive = |n: &u32| self.fates[*n as usize] == Fate::Alive;
        let of_pair = |n: u32| {
            let agreed = key.agree(&self.round.directory.member(n).keys.masking).ok()?;
            Some((agreed.pair_mask(session, at, n), if n > at { Sign::Plus } else { Sign::Minus }))
        };
        self.round.graph.neighbours(at).into_iter().filter(alive).map(of_pair).collect()
    }

    /// Takes masks off, slice by slice of the vector; says whether all of it was done.
    fn take_off(&mut self, streams: &[(MaskKey, Sign)], parallel: &dyn Parallel) -> bool {
        let bits = self.shape.bits();
        let blocks = (self.shape.padded() / BLOCK).div_ceil(parallel.width().max(1));
        let slices = self.lanes.chunks_mut(blocks * BLOCK).enumerate();
        let job = |(number, lanes)| -> Job<'_> {
            Box::new(move || {
                masks::apply(lanes, (number * blocks) as u64, bits, streams).expect("slices are whole blocks");
            })
        };
        parallel::run_all(parallel, slices.map(job).collect())
    }

    /// The sum, if its padding is zero: no client put anything there, so what is there is a mask that was not taken off.
    fn sum(&mut self) -> Result<Vec<u32>, RoundFailure> {
        let mut lanes = std::mem::take(&mut self.lanes);
        masks::reduce(&mut lanes, self.shape.bits()).expect("a vector is whole blocks");
        let padding = &lanes[self.shape.dimension()..];
        if padding.iter().any(|v| *v != 0) {
            lanes.zeroize();
            return Err(RoundFailure::NotCancelled);
        }
        lanes.truncate(self.shape.dimension());
        Ok(lanes)
    }
}

/// What a client's secret opens.
struct Found {
    masks: Vec<(MaskKey, Sign)>,
    /// Numbers of the holders whose shares were wrong.
    wrong: Vec<u32>,
}
