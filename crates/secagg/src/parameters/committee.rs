//! The size and quorum of the committee that signs the view, so that a lying server has one story for all.
//!
//! Of a committee of m clients q must sign. Two stories with q signatures each have 2 q - m signers in common, and an honest
//! client signs one. So there are not two while fewer than 2 q - m of the committee are corrupted.
//!
//! Up to [`EVERYBODY`] clients all of them are the committee, with q = floor((n + c) / 2) + 1 for c corrupted ones: the check
//! of Bonawitz et al. (CCS 2017, section 6.2), with nothing left to chance. Above that a committee is drawn from the session,
//! after the directory is closed: the smallest for which P[Hyp(n, c, m) >= 2 q - m] is within half the chance that secrecy may
//! fail with, what a server can grind included, and in which fewer than q remain with a chance of at most 2^-eta.

use super::{Adversary, Adversity, Hypergeometric, ParameterError, TO_SPARE, ln_power_of_half};

/// The most clients of whom all sign.
pub const EVERYBODY: u32 = 300;

/// The size of the committee, and its quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Committee {
    /// m: its members.
    pub size: u32,
    /// q: signatures that decide.
    pub quorum: u32,
}

impl Committee {
    /// The smallest that withstands, if the server has to be withstood.
    pub(super) fn find(adversity: &Adversity, failure_bits: u32) -> Result<Option<Self>, ParameterError> {
        if adversity.adversary == Adversary::Curious {
            return Ok(None);
        }
        let clients = adversity.clients;
        let mut corrupted = 0;
        for size in if clients <= EVERYBODY { clients..=clients } else { 1..=clients } {
            // A larger committee has as many corrupted members, or more.
            while !adversity.committee_has_at_most(size, corrupted) {
                corrupted += 1;
            }
            let committee = Self { size, quorum: (size + corrupted) / 2 + 1 };
            if adversity.leaves_quorum(committee, failure_bits) {
                return Ok(Some(committee));
            }
        }
        let Adversity { corrupted, dropped, .. } = *adversity;
        let (quorum, alive) = ((clients + corrupted) / 2 + 1, clients - dropped.min(clients));
        Err(ParameterError::NoQuorum { clients, corrupted, dropped, quorum, alive })
    }

    /// Refuses what has no meaning.
    pub(super) fn check(self, clients: u32) -> Result<(), ParameterError> {
        let Self { size, quorum } = self;
        let meant = size <= clients && quorum <= size && quorum > size / 2;
        if meant { Ok(()) } else { Err(ParameterError::Committee { clients, size, quorum }) }
    }

    /// Refuses one that could sign two stories.
    pub(super) fn check_floor(self, adversity: &Adversity) -> Result<(), ParameterError> {
        let Self { size, quorum } = self;
        let withstood = (2 * quorum).checked_sub(size + 1);
        if withstood.is_some_and(|corrupted| adversity.committee_has_at_most(size, corrupted)) {
            return Ok(());
        }
        let Adversity { clients, corrupted, security_bits: bits, .. } = *adversity;
        Err(ParameterError::TwoViews { clients, corrupted, size, quorum, bits })
    }
}

impl Adversity {
    /// Whether so many of a committee are corrupted at most, except with half the chance that secrecy may fail with.
    fn committee_has_at_most(&self, size: u32, corrupted: u32) -> bool {
        if size == self.clients {
            return self.corrupted <= corrupted;
        }
        let more = Hypergeometric::new(self.clients, self.corrupted, size).ln_above(corrupted);
        more + TO_SPARE <= self.ln_half_security()
    }

    /// Whether a quorum of the committee remains, except with a chance of 2^-bits.
    fn leaves_quorum(&self, Committee { size, quorum }: Committee, bits: u32) -> bool {
        if size == self.clients {
            return self.dropped + quorum <= size;
        }
        let fewer = Hypergeometric::new(self.clients, self.clients - self.dropped, size).ln_below(quorum);
        fewer + TO_SPARE <= ln_power_of_half(bits)
    }
}
