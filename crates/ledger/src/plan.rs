//! The plan in the first entry: everything that was decided before the data was opened (rules P11, P14, P15 and P17).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{error::LedgerError, head::Head, rho};
use privacy::{
    accountant::{AccountantKind, MAX_GROUP},
    event::{Adjacency, PrivacyEvent},
    participation::Participation,
    rng::Randomness,
    units::{Delta, Epsilon, Rho},
};

/// What is protected as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// All the text of one person.
    User,
    /// All the text on one device.
    Device,
    /// One example; says little about a person who contributed many.
    Example,
}

impl Unit {
    /// The name used in files and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Device => "device",
            Self::Example => "example",
        }
    }
}

/// A stream of releases that the plan foresees: the model's updates, a vocabulary, a tracked clip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Its name; a release says to which stream it belongs.
    pub stream: String,
    /// The mechanism in words.
    pub mechanism: String,
    /// The mechanism's public constants as they are called in the configuration: clip norm, grid step, modulus.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// How users take part.
    pub participation: Participation,
    /// How many steps are planned; more are refused.
    pub rounds: u64,
    /// What all of them together would be.
    pub event: PrivacyEvent,
}

/// Data that is taken to be public.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicData {
    /// The data, such as a model or a text.
    pub what: String,
    /// Why it may be taken for public.
    pub why: String,
}

/// Whose text the run is about. Without it an epsilon says nothing: a made-up crowd has nobody to protect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum DataSource {
    /// Text that a program made up. Nobody real is in it, and nobody real is protected, whatever the noise.
    MadeUp {
        /// The program that generated it.
        what: String,
    },
    /// Text of people.
    Users {
        /// Whose, and where it was kept.
        what: String,
    },
}

impl DataSource {
    /// The description, as recorded.
    #[must_use]
    pub fn what(&self) -> &str {
        match self {
            Self::MadeUp { what } | Self::Users { what } => what,
        }
    }

    /// Whether nobody real is in it.
    #[must_use]
    pub const fn is_made_up(&self) -> bool {
        matches!(self, Self::MadeUp { .. })
    }
}

/// What the model was before the first round (rule P15).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Start {
    /// Drawn at random.
    Random,
    /// Something that is taken to be public.
    Public(PublicData),
    /// A model with a ledger of its own, whose import is the second entry.
    Ledger {
        /// The head of the model's ledger.
        head: Head,
    },
}

/// Who sees what before noise is added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Aggregation {
    /// Updates are summed in the clear.
    Plain {
        /// Who sees single updates.
        sees_updates: String,
    },
    /// Updates are summed securely: the protocol shows single ones to nobody.
    Secure {
        /// The protocol, and whom it trusts for what.
        protocol: String,
        /// Who sees single updates all the same: whoever simulates the devices. Nobody where they are real.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sees_updates: Option<String>,
        /// Who sees the sum before noise is added; nobody where the devices add it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sees_sum: Option<String>,
    },
}

/// The most that a run may cost (rule P14).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Budget {
    /// The plan is fixed in advance, and nothing in it depends on released values.
    Fixed {
        /// The limit; the release that would exceed it is refused.
        max_epsilon: Epsilon,
    },
    /// What happens may depend on released values (when to stop, who is asked): a zCDP filter. The rho of all
    /// releases stays at most the one fixed here, and the guarantee is that rho's epsilon, however little was spent.
    ZcdpFilter {
        /// The limit, and what the guarantee says.
        max_epsilon: Epsilon,
        /// The rho of one unit, whose epsilon at the plan's delta and group is at most `max_epsilon`.
        max_rho: Rho,
    },
}

impl Budget {
    /// The zCDP filter with the largest rho whose epsilon is at most `max_epsilon`.
    ///
    /// # Errors
    /// When no rho has so small an epsilon, or the group is out of range.
    pub fn zcdp_filter(max_epsilon: Epsilon, delta: Delta, group: u32) -> Result<Self, LedgerError> {
        Ok(Self::ZcdpFilter { max_epsilon, max_rho: rho::largest_rho(max_epsilon, delta, group)? })
    }

    /// The limit.
    #[must_use]
    pub const fn max_epsilon(self) -> Epsilon {
        match self {
            Self::Fixed { max_epsilon } | Self::ZcdpFilter { max_epsilon, .. } => max_epsilon,
        }
    }

    /// Whether the guarantee is the limit rather than what was spent.
    #[must_use]
    pub const fn is_filter(self) -> bool {
        matches!(self, Self::ZcdpFilter { .. })
    }
}

/// The whole plan of a run. It is public: nothing in it is measured on users' data (rule P11).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The program that writes, its version, and the revision of the source that it was built from.
    pub software: String,
    /// The data source.
    pub data: DataSource,
    /// What is protected as one.
    pub unit: Unit,
    /// What makes two datasets neighbours.
    pub adjacency: Adjacency,
    /// How many units there are, as declared.
    pub population: u64,
    /// The delta of the guarantee.
    pub delta: Delta,
    /// The streams of releases.
    pub phases: Vec<Phase>,
    /// Who sees to it that users take part as the phases say, and no more often or closer together.
    pub participation_kept_by: String,
    /// The accountant.
    pub accountant: AccountantKind,
    /// How many units are protected together, such as one person's devices.
    pub group: u32,
    /// The most that the run may cost, if there is a limit.
    pub budget: Option<Budget>,
    /// What the model was before.
    pub start: Start,
    /// Other data that is taken to be public.
    pub public_data: Vec<PublicData>,
    /// Where the noise comes from.
    pub randomness: Randomness,
    /// Who sees what before noise is added.
    pub aggregation: Aggregation,
}

/// Words longer than this are not words.
const MAX_WORDS: usize = 4096;

impl Plan {
    /// Refuses a plan that says nothing or contradicts itself.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), LedgerError> {
        spoken("software", &self.software)?;
        spoken("data", self.data.what())?;
        spoken("participation_kept_by", &self.participation_kept_by)?;
        if self.population == 0 {
            return Err(LedgerError::plan("population", "must be at least 1"));
        }
        if self.delta.get() * self.population as f64 > 1.0 {
            return Err(LedgerError::plan(
                "delta",
                format!(
                    "{} is above 1/population = {}, which would permit publishing a user's data",
                    self.delta,
                    1.0 / self.population as f64
                ),
            ));
        }
        if !(1..=MAX_GROUP).contains(&self.group) {
            return Err(LedgerError::plan("group", format!("must be between 1 and {MAX_GROUP}, got {}", self.group)));
        }
        self.check_origin()?;
        self.check_phases()?;
        self.check_budget()
    }

    /// Whether a run with this plan may go on with the other: all but the program that wrote it is the same, so that a run
    /// survives an upgrade.
    #[must_use]
    pub fn is_same_run(&self, other: &Self) -> bool {
        *self == Self { software: self.software.clone(), ..other.clone() }
    }

    /// The phase of that name.
    #[must_use]
    pub fn phase(&self, stream: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.stream == stream)
    }

    /// What the whole run would be.
    #[must_use]
    pub fn event(&self) -> PrivacyEvent {
        PrivacyEvent::Compose { events: self.phases.iter().map(|phase| phase.event.clone()).collect() }
    }

    fn check_origin(&self) -> Result<(), LedgerError> {
        let public = match &self.start {
            Start::Public(public) => Some(public),
            Start::Random | Start::Ledger { .. } => None,
        };
        for public in public.into_iter().chain(&self.public_data) {
            spoken("public_data", &public.what)?;
            spoken("public_data", &public.why)?;
        }
        match &self.aggregation {
            Aggregation::Plain { sees_updates } => spoken("aggregation", sees_updates),
            Aggregation::Secure { protocol, sees_updates, sees_sum } => {
                let who = sees_updates.iter().chain(sees_sum);
                [protocol].into_iter().chain(who).try_for_each(|said| spoken("aggregation", said))
            }
        }
    }

    fn check_phases(&self) -> Result<(), LedgerError> {
        if self.phases.is_empty() {
            return Err(LedgerError::plan("phases", "there is nothing to release"));
        }
        for (i, phase) in self.phases.iter().enumerate() {
            spoken("phases", &phase.stream)?;
            spoken("phases", &phase.mechanism)?;
            if self.phases[..i].iter().any(|other| other.stream == phase.stream) {
                return Err(LedgerError::plan("phases", format!("{:?} appears twice", phase.stream)));
            }
            if phase.rounds == 0 {
                return Err(LedgerError::plan("phases", format!("{:?} has no rounds", phase.stream)));
            }
            phase.participation.check().map_err(|e| LedgerError::plan("participation", e))?;
        }
        let event = self.event();
        match event.flatten()?.adjacency {
            Some(got) if got != self.adjacency => Err(LedgerError::Adjacency { plan: self.adjacency, got }),
            _ => Ok(()),
        }
    }

    fn check_budget(&self) -> Result<(), LedgerError> {
        let Some(budget) = self.budget else { return Ok(()) };
        let max = budget.max_epsilon();
        if !(max.is_finite() && max > Epsilon::ZERO) {
            return Err(LedgerError::plan("max_epsilon", format!("must be finite and above 0, got {max}")));
        }
        let Budget::ZcdpFilter { max_rho, .. } = budget else { return Ok(()) };
        if rho::rho(&self.event())?.is_none() {
            let problem = "a zCDP filter needs releases that have a rho, which sampled and Skellam releases do not have; fix the plan in advance";
            return Err(LedgerError::plan("budget", problem));
        }
        let epsilon = rho::epsilon_of(max_rho, self.delta, self.group)?;
        if epsilon > max {
            return Err(LedgerError::plan(
                "max_rho",
                format!("{max_rho} has an epsilon of {epsilon}, above the max_epsilon of {max}"),
            ));
        }
        Ok(())
    }
}

/// Refuses words that say nothing, or that would break a line or a page.
pub(crate) fn spoken(field: &'static str, words: &str) -> Result<(), LedgerError> {
    if words.trim().is_empty() {
        return Err(LedgerError::plan(field, "must be described in words; it is empty"));
    }
    if words.len() > MAX_WORDS || words.chars().any(char::is_control) {
        return Err(LedgerError::plan(field, format!("must be one line of at most {MAX_WORDS} bytes")));
    }
    Ok(())
}
