//! The guarantee in words, from a ledger and nothing else.
//!
//! The sections are those that Ponomareva et al. 2023 ("How to DP-fy ML", section 5.3) ask of whoever states a guarantee:
//! the setting, the data accesses covered, the final output, the unit of privacy, the adjacency, the accountant and what
//! it assumes, the formal statement; and what is not covered. For programs it serialises to JSON with all digits, for
//! people it is Markdown with epsilon rounded up.

pub mod assumptions;
mod markdown;
mod rounding;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    accountant::{AccountantKind, Judgement},
    event::{Adjacency, PrivacyEvent},
    ledger::{
        Aggregation, Budget, Digest, Head, Import, ImportKind, Ledger, LedgerError, LedgerStore, Plan, PublicData,
        Start, Unit, VerifyingKey,
    },
    rng::Randomness,
    units::{Delta, Epsilon, Rho},
};

pub use rounding::{rounded_down, rounded_up};

/// What a ledger guarantees.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    /// Who is trusted with what before noise is added.
    pub setting: Aggregation,
    /// Which uses of users' data the guarantee covers.
    pub data_accesses: DataAccesses,
    /// What may be published under it.
    pub output: String,
    /// What is protected as one.
    pub unit: Unit,
    /// How many of these are protected together.
    pub group: u32,
    /// How many there are, as declared before the data was opened.
    pub population: u64,
    /// What makes two datasets neighbours.
    pub adjacency: Adjacency,
    /// How the cost was computed.
    pub accounting: Accounting,
    /// The formal statement.
    pub guarantee: Guarantee,
    /// What all of this says nothing about.
    pub not_covered: Vec<String>,
    /// The ledger from which all of it comes.
    pub ledger: Source,
}

/// Which uses of users' data the guarantee covers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DataAccesses {
    /// What was released, stream by stream.
    pub streams: Vec<StreamAccess>,
    /// Attempts in which users took part and of which nothing was released.
    pub failed_attempts: u64,
    /// The model from which the run started, and the other runs of a sweep.
    pub imports: Vec<Import>,
    /// What was released without privacy.
    pub non_private: Vec<String>,
    /// What the model was before the first round.
    pub start: Start,
    /// Other data that was taken to be public.
    pub public_data: Vec<PublicData>,
}

/// The releases of one stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamAccess {
    /// Its name.
    pub stream: String,
    /// The mechanism in words.
    pub mechanism: Option<String>,
    /// The mechanism's public constants.
    pub parameters: BTreeMap<String, String>,
    /// Who takes part, in words.
    pub participation: Option<String>,
    /// Steps released.
    pub released: u64,
    /// Steps planned.
    pub planned: Option<u64>,
}

/// How the cost was computed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Accounting {
    /// The accountant of the plan.
    pub accountant: AccountantKind,
    /// The one that answered.
    pub answered_by: AccountantKind,
    /// Where the noise came from.
    pub randomness: Randomness,
    /// Without which the epsilon is not true.
    pub assumes: Vec<String>,
    /// The event that was judged.
    pub event: PrivacyEvent,
}

/// The formal statement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Guarantee {
    /// Whether there is one at all: not if anything was simulated or released without privacy.
    pub holds: bool,
    /// The epsilon of this run, what it started from included; infinity where there is no guarantee.
    pub epsilon: Epsilon,
    /// The delta of the plan.
    pub delta: Delta,
    /// The zCDP parameter, where there is one.
    pub rho: Option<Rho>,
    /// Whether epsilon is what was spent or the budget of a filter.
    pub basis: Basis,
    /// The plan's limit.
    pub max_epsilon: Option<Epsilon>,
    /// What the whole plan would cost.
    pub planned_epsilon: Option<Epsilon>,
    /// What the same would cost with secret noise, where the noise was simulated.
    pub epsilon_if_secret: Option<Epsilon>,
    /// All runs of the sweep composed, where this run is one of several.
    pub sweep_epsilon: Option<Epsilon>,
    /// How many other runs that counts.
    pub sweep_runs: u64,
}

/// What the epsilon of a statement is (rule P14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// What was released; the plan was fixed in advance.
    Spent,
    /// The budget of a filter, however little of it was spent: what happened could depend on released values.
    Budget,
}

/// The ledger behind a statement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Source {
    /// Its head.
    pub head: Head,
    /// The key that signs it.
    pub key: VerifyingKey,
    /// Drawn when it was created.
    pub id: Digest,
    /// The program that wrote the plan.
    pub software: String,
    /// Whether it was closed.
    pub closed: bool,
    /// Whether the key of the participants' pseudonyms was destroyed.
    pub pseudonym_key_destroyed: bool,
    /// What was noticed when it was read.
    pub warnings: Vec<String>,
}

impl Statement {
    /// States what a ledger guarantees.
    ///
    /// # Errors
    /// When the plan's accountant cannot judge what was released.
    pub fn of<S: LedgerStore>(ledger: &Ledger<S>) -> Result<Self, LedgerError> {
        let plan = ledger.plan();
        let event = ledger.guaranteed_event();
        let judgement = ledger.judge(&event, plan.delta)?;
        Ok(Self {
            setting: plan.aggregation.clone(),
            data_accesses: DataAccesses::of(ledger),
            output: OUTPUT.into(),
            unit: plan.unit,
            group: plan.group,
            population: plan.population,
            adjacency: plan.adjacency,
            guarantee: Guarantee::of(ledger, &judgement)?,
            accounting: Accounting {
                accountant: plan.accountant,
                answered_by: judgement.accountant,
                randomness: ledger.randomness(),
                assumes: assumes(ledger),
                event,
            },
            not_covered: not_covered(plan),
            ledger: Source {
                head: ledger.head(),
                key: ledger.key(),
                id: ledger.opening().id,
                software: plan.software.clone(),
                closed: ledger.is_closed(),
                pseudonym_key_destroyed: ledger.pseudonym_key_destroyed(),
                warnings: ledger.warnings().to_vec(),
            },
        })
    }

    /// For people.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        markdown::write(self)
    }
}

const OUTPUT: &str = "every released vector and whatever is computed from them: all intermediate models and the last one, and anything printed of them. Looking at all of them is already counted.";

impl DataAccesses {
    fn of<S: LedgerStore>(ledger: &Ledger<S>) -> Self {
        let plan = ledger.plan();
        let mut released = ledger.releases();
        let mut streams: Vec<StreamAccess> = Vec::new();
        for phase in &plan.phases {
            streams.push(StreamAccess {
                stream: phase.stream.clone(),
                mechanism: Some(phase.mechanism.clone()),
                parameters: phase.parameters.clone(),
                participation: Some(assumptions::participation_words(&phase.participation)),
                released: released.remove(&phase.stream).unwrap_or_default(),
                planned: Some(phase.rounds),
            });
        }
        // Streams outside the plan hold what was released without privacy.
        streams.extend(released.into_iter().map(|(stream, released)| StreamAccess {
            stream,
            mechanism: None,
            parameters: BTreeMap::new(),
            participation: None,
            released,
            planned: None,
        }));
        Self {
            streams,
            failed_attempts: ledger.failed_attempts(),
            imports: ledger.imports().to_vec(),
            non_private: non_private(&ledger.event()),
            start: plan.start.clone(),
            public_data: plan.public_data.clone(),
        }
    }
}

impl Guarantee {
    fn of<S: LedgerStore>(ledger: &Ledger<S>, judgement: &Judgement) -> Result<Self, LedgerError> {
        let plan = ledger.plan();
        let secret = ledger.randomness() == Randomness::Secret;
        let honest = |epsilon: Epsilon| if secret { epsilon } else { Epsilon::INFINITE };
        let sweep = ledger.guaranteed_sweep_event().map(|event| ledger.judge(&event, plan.delta)).transpose()?;
        let sweep_runs = ledger.imports().iter().filter(|import| import.kind == ImportKind::SweepRun).count();
        Ok(Self {
            holds: secret && judgement.epsilon.is_finite(),
            epsilon: honest(judgement.epsilon),
            delta: plan.delta,
            rho: judgement.rho.filter(|_| secret),
            basis: if plan.budget.is_some_and(Budget::is_filter) { Basis::Budget } else { Basis::Spent },
            max_epsilon: plan.budget.map(Budget::max_epsilon),
            planned_epsilon: ledger.judge(&plan.event(), plan.delta).ok().map(|planned| planned.epsilon),
            epsilon_if_secret: (!secret).then_some(judgement.epsilon),
            sweep_epsilon: sweep.map(|sweep| honest(sweep.epsilon)),
            sweep_runs: sweep_runs as u64,
        })
    }
}

/// What must be true: of each event, of the plan, and of the runs that were imported.
fn assumes<S: LedgerStore>(ledger: &Ledger<S>) -> Vec<String> {
    let mut words = assumptions::of(&ledger.event());
    let plan = ledger.plan();
    words.push("every update was clipped and encoded as the plan says before it was summed".into());
    words.push("everything that was computed from these users' data and seen by anyone is in the ledger".into());
    if plan.budget.is_some_and(Budget::is_filter) {
        words.push("the budget was fixed in advance; what happened within it could depend on released values".into());
    } else {
        words.push(
            "the plan was fixed in advance: nothing in it, not even when to stop, depended on released values".into(),
        );
    }
    let unverified = ledger.imports().iter().filter(|import| !import.verified);
    words.extend(unverified.map(|import| format!("the ledger of {}, which was not verified, is true", import.what)));
    words
}

fn not_covered(plan: &Plan) -> Vec<String> {
    let mut words = vec![
        "Users in a held-out evaluation set are not protected: accuracy measured on their text depends on it, and no noise is added.".to_owned(),
        "Any other use of the same users' data that is not in this ledger, such as tuning runs that were not imported.".into(),
    ];
    words.push(match &plan.aggregation {
        Aggregation::Plain { sees_updates } => {
            format!("What is seen before noise is added: single updates are in the clear to {sees_updates}.")
        }
        Aggregation::Secure { sees_sum: Some(who), .. } => {
            format!("What is seen before noise is added: the sum of a round is in the clear to {who}.")
        }
        Aggregation::Secure { sees_sum: None, .. } => {
            "What more corrupted devices than were planned for know: the noise that they added is not noise to them."
                .into()
        }
    });
    let why = "What was taken to be public is not protected";
    let start = match &plan.start {
        Start::Public(public) => Some(public),
        Start::Random | Start::Ledger { .. } => None,
    };
    words.extend(start.into_iter().chain(&plan.public_data).map(|p| format!("{why}: {} ({}).", p.what, p.why)));
    match plan.unit {
        Unit::User => {}
        Unit::Device if plan.group > 1 => {}
        Unit::Device => {
            words.push("A person with several devices is protected less than one with a single device.".into())
        }
        Unit::Example => words.push("A person with several examples is protected less than the number says.".into()),
    }
    words.push("Who took part, and that somebody did, is not hidden from whoever runs the system.".into());
    words
}

/// Everything that was released without privacy.
fn non_private(event: &PrivacyEvent) -> Vec<String> {
    fn collect(event: &PrivacyEvent, found: &mut Vec<String>) {
        match event {
            PrivacyEvent::NonPrivate { what } if !found.contains(what) => found.push(what.clone()),
            PrivacyEvent::Repeat { times: often, event } | PrivacyEvent::LimitedRounds { rounds: often, event, .. }
                if *often > 0 =>
            {
                collect(event, found)
            }
            PrivacyEvent::Compose { events } => events.iter().for_each(|event| collect(event, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(event, &mut found);
    found
}
