//! The privacy statement: the guarantee in words, from a ledger alone.
//!
//! The sections are those that Ponomareva et al. 2023 ("How to DP-fy ML", section 5.3) require of a stated guarantee:
//! the setting, the data accesses covered, the final output, the unit of privacy, the adjacency, the accountant and what
//! it assumes, the formal statement; and what is not covered. Beside them stand whose data it is and how the model was
//! chosen, without which a number can be true and mislead; what was observed of who took part, which is not the guarantee; and what
//! holds for a device in several tasks. For programs it serialises to JSON with all digits, for
//! people it is Markdown with epsilon rounded up.

mod conditions;
mod markdown;
mod observed;
mod rounding;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    Aggregation, Approval, Budget, Closing, DataChanged, DataSource, Digest, Ended, Head, Import, ImportKind, Ledger,
    LedgerError, LedgerStore, PublicData, Start, Unit, VerifyingKey, Vouched,
};
use privacy::{
    accountant::{AccountantKind, Judgement},
    assumptions,
    event::{Adjacency, PrivacyEvent},
    rng::Randomness,
    units::{Delta, Epsilon, Rho},
};

pub use self::observed::ObservedParticipation;
pub use crate::Basis;
pub use rounding::{rounded_down, rounded_up};

/// The privacy statement of a ledger.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    /// Who is trusted with what before noise is added.
    pub setting: Aggregation,
    /// Whose text it is about; if it is synthetic, nobody real is protected.
    pub data: DataSource,
    /// Which uses of users' data the guarantee covers.
    pub data_accesses: DataAccesses,
    /// What may be published under it.
    pub output: String,
    /// How the model was chosen, and what that means for its epsilon.
    pub choice: String,
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
    /// What the side table of participations shows, beside the guarantee; none while the ledger is open, and where there are no
    /// limits or no side table, or who took part is protected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedParticipation>,
    /// What holds for a device that takes part in other tasks too; none where no devices are protected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub several_tasks: Vec<String>,
    /// Whether a privacy officer approved the plan; none where no devices are protected and nobody did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approved>,
    /// What the guarantee does not cover.
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
    /// Why the users' data changed during the run, each time.
    pub data_changes: Vec<DataChanged>,
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
    /// What is guaranteed: of this run, what it started from and every other run of its sweep (rule P22); infinity where
    /// there is no guarantee.
    pub epsilon: Epsilon,
    /// The delta of the plan.
    pub delta: Delta,
    /// The zCDP parameter, where there is one.
    pub rho: Option<Rho>,
    /// Whether epsilon is what was spent, the whole plan's, or the budget of a filter.
    pub basis: Basis,
    /// The plan's limit.
    pub max_epsilon: Option<Epsilon>,
    /// What the whole plan would cost, this run alone; none where the noise was simulated.
    pub planned_epsilon: Option<Epsilon>,
    /// What the same would cost with secret noise, where the noise was simulated.
    pub epsilon_if_secret: Option<Epsilon>,
    /// How many other runs of a sweep are counted.
    pub sweep_runs: u64,
    /// This run without those, where there are any. It is not the guarantee of a model that was picked among them.
    pub epsilon_of_this_run_alone: Option<Epsilon>,
}

/// Whether a privacy officer approved the plan, and which.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Approved {
    /// The officer's key; none where nobody approved it.
    pub by: Option<VerifyingKey>,
    /// The task that it was approved for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The server that it was approved for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realm: Option<Digest>,
    /// What the task reads, as the officer signed it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vouched: Vec<Vouched>,
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
    /// The program that wrote the plan, and the revision of the source that it was built from.
    pub software: String,
    /// How it was closed: why the run ended, and which keys were destroyed. None while it is open.
    pub closing: Option<Closing>,
    /// What was noticed when it was read.
    pub warnings: Vec<String>,
}

impl Statement {
    /// States what a ledger guarantees.
    ///
    /// # Errors
    /// When the plan's accountant cannot judge what was released, or the side table of a ledger that is closed is damaged or shows
    /// that limits were broken.
    pub fn of<S: LedgerStore>(ledger: &Ledger<S>) -> Result<Self, LedgerError> {
        let plan = ledger.plan();
        let event = ledger.guaranteed_sweep_event().unwrap_or_else(|| ledger.guaranteed_event());
        let judgement = ledger.guaranteed()?;
        Ok(Self {
            setting: plan.aggregation.clone(),
            data: plan.data.clone(),
            data_accesses: DataAccesses::of(ledger),
            output: OUTPUT.into(),
            choice: choice(ledger),
            unit: plan.unit,
            group: plan.group,
            population: plan.population,
            adjacency: plan.adjacency,
            guarantee: Guarantee::of(ledger, &judgement)?,
            observed: ObservedParticipation::of(ledger)?,
            several_tasks: conditions::several_tasks(plan, ledger.imports()),
            accounting: Accounting {
                accountant: plan.accountant,
                answered_by: judgement.accountant,
                randomness: ledger.randomness(),
                assumes: conditions::assumes(ledger),
                event,
            },
            approval: Approved::of(ledger),
            not_covered: conditions::not_covered(ledger),
            ledger: Source {
                head: ledger.head(),
                key: ledger.key(),
                id: ledger.opening().id,
                software: plan.software.clone(),
                closing: ledger.closing().copied(),
                warnings: ledger.warnings().to_vec(),
            },
        })
    }

    /// The statement as Markdown.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        markdown::write(self)
    }
}

const OUTPUT: &str = "every released vector and everything computed from them: all intermediate models and the last one, and anything printed about them. Their release is already included in the cost.";

impl Approved {
    fn of<S: LedgerStore>(ledger: &Ledger<S>) -> Option<Self> {
        match &ledger.opening().approval {
            Some(Approval { task, realm, officer, vouched, .. }) => Some(Self {
                by: Some(*officer),
                task: Some(task.clone()),
                realm: Some(*realm),
                vouched: vouched.clone(),
            }),
            None if ledger.plan().unit == Unit::Device => {
                Some(Self { by: None, task: None, realm: None, vouched: Vec::new() })
            }
            None => None,
        }
    }
}

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
            data_changes: ledger.data_changes().to_vec(),
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
        let sweep_runs = sweep_runs(ledger);
        let planned = ledger.judge(&plan.event(), plan.delta).ok().filter(|_| secret);
        let alone = if sweep_runs > 0 && secret { Some(ledger.guaranteed_alone()?.epsilon) } else { None };
        Ok(Self {
            holds: secret && judgement.epsilon.is_finite(),
            epsilon: if secret { judgement.epsilon } else { Epsilon::INFINITE },
            delta: plan.delta,
            rho: judgement.rho.filter(|_| secret),
            basis: ledger.basis(),
            max_epsilon: plan.budget.map(Budget::max_epsilon),
            planned_epsilon: planned.map(|planned| planned.epsilon),
            epsilon_if_secret: (!secret).then_some(judgement.epsilon),
            sweep_runs,
            epsilon_of_this_run_alone: alone,
        })
    }
}

fn sweep_runs<S: LedgerStore>(ledger: &Ledger<S>) -> u64 {
    ledger.imports().iter().filter(|import| import.kind == ImportKind::SweepRun).count() as u64
}

/// How the model was chosen: when its run ended, and whether it was picked among several.
fn choice<S: LedgerStore>(ledger: &Ledger<S>) -> String {
    let of_run = match (ledger.closing().map(|closing| closing.because), ledger.basis()) {
        (Some(Ended::PlanDone), Basis::Plan) => {
            "The model is the last of the run, as planned. Some steps failed; which ones may depend on what users did, so the whole plan is counted, as if they had been released."
        }
        (Some(Ended::PlanDone), _) | (None, Basis::Spent) => "The model is the last of the run, as planned.",
        (Some(Ended::BudgetSpent), _) => {
            "The model is the last of the run, which ended before the release that would have exceeded its budget."
        }
        (Some(Ended::TargetReached), Basis::Budget) => {
            "The model is the last of the run, which ended when it reached its target accuracy; the budget allows for that."
        }
        (Some(Ended::TargetReached), _) => {
            "The model is the last of the run, which ended when it reached its target accuracy. That depends on released values, so the whole plan is counted."
        }
        (Some(Ended::ByHand), Basis::Budget) => {
            "The model is the last of a run that was ended by hand, perhaps because of released values; the budget allows for that."
        }
        (Some(Ended::ByHand), _) => {
            "The model is the last of a run that was ended by hand, perhaps because of released values, so the cost is that of the whole plan."
        }
        (None, Basis::Budget) => {
            "The run has not finished. Taking a model now is a choice that may depend on released values; the budget allows for that."
        }
        (None, Basis::Plan) => {
            "The run has not finished. Taking a model now is a choice that may depend on released values, so the cost is that of the whole plan."
        }
    };
    match sweep_runs(ledger) {
        0 => format!("{of_run} No other run is counted: this does not hold for a model that was chosen among several."),
        others => format!("{of_run} The run was chosen among {}; all of them are counted.", others + 1),
    }
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
