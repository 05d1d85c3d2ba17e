//! Enforces how often a device may take part (rules P6, P18 and P24).

use privacy::Participation;
use thiserror::Error;

use super::store::Standing;

/// A plan whose participation nobody can enforce on devices that come by themselves.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "devices check in by themselves and cannot be sampled; use participation.kind = \"arrival\" or \"once\", whose limits a server can enforce (rule P18)"
)]
pub struct NotEnforceable;

/// Limits on how often and how close together a device takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParticipationLimits {
    /// b: the least difference between two rounds of a device.
    distance: u64,
    /// MaxP.
    most: u64,
}

impl TryFrom<&Participation> for ParticipationLimits {
    type Error = NotEnforceable;

    fn try_from(participation: &Participation) -> Result<Self, NotEnforceable> {
        match participation {
            Participation::MinSeparation { separation, max_participations } => {
                Ok(Self { distance: separation.as_distance(), most: *max_participations })
            }
            Participation::Once => Ok(Self { distance: 1, most: 1 }),
            Participation::Poisson { .. } | Participation::FixedSize { .. } => Err(NotEnforceable),
        }
    }
}

impl ParticipationLimits {
    /// Whether a device may be given a round.
    #[must_use]
    pub fn allow(&self, standing: &Standing, round: u64) -> bool {
        standing.participations < self.most && round >= self.from(standing)
    }

    /// How many devices make sure that some are left for every round: those who took part in the last b rounds wait.
    #[must_use]
    pub const fn all_waiting(&self, of_a_round: u64) -> u64 {
        of_a_round.saturating_mul(self.distance)
    }

    /// The first round for which a device that takes part in one is eligible again.
    #[must_use]
    pub const fn after(&self, round: u64) -> u64 {
        round.saturating_add(self.distance)
    }

    /// The first round that it may be given, as far as the separation goes: a key that was enrolled during a task waits as if it
    /// had taken part when it came, for its device may have, under another key.
    #[must_use]
    pub fn from(&self, standing: &Standing) -> u64 {
        let joined = standing.joined.map(|(round, _)| round);
        joined.into_iter().chain(standing.since).map(|round| self.after(round)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use privacy::MinSeparation;

    fn limits(between: u64, most: u64) -> ParticipationLimits {
        let separation = MinSeparation::rounds_between(between).unwrap();
        (&Participation::MinSeparation { separation, max_participations: most }).try_into().unwrap()
    }

    #[test]
    fn p18_sampling_cannot_be_enforced_on_devices_that_come() {
        let fixed = Participation::FixedSize { population: 10, cohort: 2 };
        assert_eq!(ParticipationLimits::try_from(&fixed), Err(NotEnforceable));
    }

    #[test]
    fn p6_separation_is_the_number_of_rounds_between() {
        let joined = Standing { joined: Some((10, 0)), participations: 1, ..Standing::default() };
        assert!(!limits(3, 9).allow(&joined, 13));
        assert!(limits(3, 9).allow(&joined, 14));
        assert!(!limits(0, 9).allow(&joined, 10), "never the same round again");
        assert!(limits(0, 9).allow(&joined, 11));
    }

    #[test]
    fn p18_a_later_key_waits_and_everybody_is_counted() {
        let late = Standing { since: Some(4), ..Standing::default() };
        assert!(!limits(2, 9).allow(&late, 6) && limits(2, 9).allow(&late, 7));
        assert!(limits(2, 9).allow(&Standing::default(), 0), "who was there before may come at once");
        let often = Standing { participations: 2, ..Standing::default() };
        assert!(!limits(0, 2).allow(&often, 50) && limits(0, 3).allow(&often, 50));
    }
}
