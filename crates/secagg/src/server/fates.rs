//! Which clients survived, and whose secrets must be reconstructed.

use std::collections::BTreeSet;

use super::{Round, RoundFailure};
use crate::{message::View, wire::Bits};

/// What became of a client of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It never shared: nobody has a mask with it.
    Absent,
    /// It shared, and its input did not arrive: its mask key is to be opened.
    Dead,
    /// Its input arrived: the seed of its own mask is to be opened.
    Alive,
}

/// Positions of who said that whose shares were no good.
pub(super) type Complaints = BTreeSet<(u32, u32)>;

/// What became of everybody.
#[derive(Debug)]
pub(super) struct Fates {
    of: Vec<Fate>,
    complaints: Complaints,
}

impl Fates {
    /// From who shared, whose input arrived, and who complained about whom.
    pub(super) fn new(
        shared: impl Iterator<Item = bool>,
        arrived: impl Fn(u32) -> bool,
        complaints: Complaints,
    ) -> Self {
        let fate = |(at, shared)| match (shared, arrived(at)) {
            (false, _) => Fate::Absent,
            (true, false) => Fate::Dead,
            (true, true) => Fate::Alive,
        };
        Self { of: (0..).zip(shared).map(fate).collect(), complaints }
    }

    pub(super) fn of(&self, at: u32) -> Fate {
        self.of[at as usize]
    }

    pub(super) fn is_alive(&self, at: u32) -> bool {
        self.of(at) == Fate::Alive
    }

    pub(super) const fn complaints(&self) -> &Complaints {
        &self.complaints
    }

    /// What survivors are told.
    pub(super) fn view(&self, round: &Round) -> View {
        let bits = |is: fn(&Fate) -> bool| Bits::new(self.of.iter().map(is).collect());
        let (present, alive) = (bits(|f| *f != Fate::Absent), bits(|f| *f == Fate::Alive));
        View { session: round.session, present, alive }
    }

    /// Whose secrets are needed: of survivors, and of the dead who share a mask with one.
    pub(super) fn needed<'a>(&'a self, round: &'a Round) -> impl Iterator<Item = u32> + 'a {
        (0..round.parameters.clients()).filter(|at| match self.of(*at) {
            Fate::Absent => false,
            Fate::Alive => true,
            Fate::Dead => round.graph.around(*at).any(|n| self.is_alive(n)),
        })
    }

    /// Whether a holder can be asked for a share of a dealer's secret.
    pub(super) fn asks(&self, holder: u32, dealer: u32) -> bool {
        self.is_alive(holder) && self.of(dealer) != Fate::Absent && !self.complaints.contains(&(holder, dealer))
    }

    /// Every secret that is needed has enough holders alive, and a quorum of the committee is. Otherwise the round fails
    /// here, before any share is opened.
    pub(super) fn check_within_reach(&self, round: &Round) -> Result<(), RoundFailure> {
        let needed = round.threshold();
        for at in self.needed(round) {
            let got = round.graph.around(at).filter(|holder| self.asks(*holder, at)).count();
            if got < needed {
                return Err(RoundFailure::OutOfReach { client: round.client(at), got, needed });
            }
        }
        let (got, needed) = (round.committee.iter().filter(|at| self.is_alive(**at)).count(), round.quorum());
        if got < needed { Err(RoundFailure::NotAgreed { got, needed }) } else { Ok(()) }
    }
}
