//! `[participation]`: who takes part in a round.

use super::keys::{ByKind, Section, Usual, Visit, key};

/// Participation. All of it is declared, none of it measured (rule P11).
#[derive(Debug, Clone, PartialEq)]
pub struct Participants {
    /// How users come to take part.
    pub kind: ParticipationKind,
    /// N: the number of users.
    pub population: u64,
    /// Users per round: expected, exact, or the report goal.
    pub cohort: u64,
    /// What simulated users do; nothing if devices are real.
    pub simulated: Option<SimulatedUsers>,
}

/// The kind of participation: sampled, or as users become available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParticipationKind {
    /// Each with the same probability, independently.
    Poisson,
    /// A fixed number, at random.
    FixedSize,
    /// As devices come, never too close together or too often.
    Arrival {
        /// MinS: rounds strictly between two participations.
        min_separation: u64,
        /// MaxP: the most participations of one user.
        max_participations: u64,
    },
    /// As devices come, each once.
    Once,
}

/// Settings of simulated users.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SimulatedUsers {
    /// The share of a round's users that drop out; none by default.
    pub vanish: Option<f64>,
    /// Accept a population of more than twice the users of the store; otherwise such a run is refused.
    pub allow_absent: bool,
}

const POISSON: &str = "poisson";
const FIXED_SIZE: &str = "fixed-size";
const ARRIVAL: &str = "arrival";
const ONCE: &str = "once";

impl ParticipationKind {
    /// Whether users are drawn at random.
    #[must_use]
    pub const fn is_sampled(self) -> bool {
        matches!(self, Self::Poisson | Self::FixedSize)
    }
}

impl Participants {
    /// The share of a round's users that drop out, in a simulation.
    #[must_use]
    pub fn vanish(&self) -> f64 {
        self.simulated.and_then(|simulated| simulated.vanish).unwrap_or(0.0)
    }

    /// Whether most of the declared users may be absent from the store.
    #[must_use]
    pub fn allows_absent(&self) -> bool {
        self.simulated.is_some_and(|simulated| simulated.allow_absent)
    }
}

impl Section for Participants {
    fn unsaid() -> Self {
        let kind = ParticipationKind::Poisson;
        Self { kind, population: 0, cohort: 0, simulated: Some(SimulatedUsers::default()) }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let kind = key("kind", "\"poisson\"", "");
        visit.choose(&kind, self, Usual::None);
        visit.need(&key("population", "1_000_000", "N: number of users"), &mut self.population);
        let cohort = key("cohort", "500", "users per round: expected, exact, or the report goal");
        visit.need(&cohort, &mut self.cohort);
        if let ParticipationKind::Arrival { min_separation, max_participations } = &mut self.kind {
            let between = key("min_separation", "99", "MinS: rounds between two participations of a user");
            visit.need(
                &between.because("how many rounds a device waits between two participations (MinS)"),
                min_separation,
            );
            let most = key("max_participations", "2", "MaxP: most participations of a user");
            visit.need(&most.because("how often a device takes part at most (MaxP)"), max_participations);
        }
        let vanish = key("vanish", "0.02", "simulations only: share of a round's users that drop out");
        let absent = key("allow_absent", "true", "allow a store with less than half of the declared population");
        match &mut self.simulated {
            Some(simulated) => {
                visit.may(&vanish, &mut simulated.vanish);
                visit.rare(&absent, &mut simulated.allow_absent, false);
            }
            None => {
                let with = "simulated users, data.kind = \"synthetic\" or \"store\"";
                visit.unavailable(&vanish, with);
                visit.unavailable(&absent, with);
            }
        }
    }
}

impl ByKind for Participants {
    fn kinds() -> Vec<&'static str> {
        vec![POISSON, FIXED_SIZE, ARRIVAL, ONCE]
    }

    fn kind_name(&self) -> &'static str {
        match self.kind {
            ParticipationKind::Poisson => POISSON,
            ParticipationKind::FixedSize => FIXED_SIZE,
            ParticipationKind::Arrival { .. } => ARRIVAL,
            ParticipationKind::Once => ONCE,
        }
    }

    fn turn(&mut self, kind: &str) -> bool {
        self.kind = match kind {
            POISSON => ParticipationKind::Poisson,
            FIXED_SIZE => ParticipationKind::FixedSize,
            ARRIVAL => ParticipationKind::Arrival { min_separation: 0, max_participations: 0 },
            ONCE => ParticipationKind::Once,
            _ => return false,
        };
        true
    }
}
