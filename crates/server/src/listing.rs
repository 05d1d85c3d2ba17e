//! The state of each task of a server, read from outside: from its state, the operator's orders, and its ledgers.
//!
//! Nothing here is a secret's, and nothing is exact but what operators may see (rule P26): how many devices are enrolled. Epsilons
//! come with what they mean (rule P23): while a task runs, what holds is its whole plan's.

use std::path::Path;

use device::guard::TaskDigest;
use federated::{
    home::Records,
    plan::{BEFORE, EVALUATION},
    price::{Meaning, Price},
    protocol::order::Order,
};
use ledger::{Basis, Ended, Ledger, LedgerError, LedgerStore, unhex};
use privacy::{Delta, rng::Randomness};
use serde::{Deserialize, Serialize};

use crate::{
    orders::Orders,
    state::{Note, State, TaskState},
    tasks::{ServeError, created::Created},
};

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stands {
    /// A server runs it.
    Running,
    /// It is to rest, and the attempt that devices have continues to its end.
    Pausing,
    /// Paused: no device is asked.
    Paused,
    /// It is to end, and ends.
    Stopping,
    /// It is over: its ledger is closed.
    Over,
    /// The server runs, and this task cannot continue.
    Broken,
    /// No server runs it now.
    NotServed,
    /// It was created, and the server refused it before it began.
    Refused,
}

/// The state of a task, for display.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    /// The task's name.
    pub task: String,
    /// The digest of its terms, by which devices know it; none where no server has run it yet.
    pub digest: Option<String>,
    /// The task's state.
    pub state: Stands,
    /// What its operator wants of it.
    pub wanted: Order,
    /// Whether the server that runs it does what is wanted.
    pub obeyed: bool,
    /// Why it is over, or cannot continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Devices that are enrolled on the server, for all of its tasks. Outside the guarantee (rule P26).
    pub enrolled: u64,
    /// How many different devices were ever given it; none where no server has run it yet, or it is over and they are forgotten. Outside the
    /// guarantee (rule P26).
    pub asked: Option<u64>,
    /// What its ledger says; none before it is begun.
    pub ledger: Option<Spent>,
}

impl Listed {
    /// Why an order cannot be given: what is over stays over, and what is being stopped is stopped.
    #[must_use]
    pub fn refuses(&self, order: Order) -> Option<String> {
        refuses((&self.task, self.why.as_deref().unwrap_or_default()), self.state, self.wanted, order)
    }
}

/// The same of a task of this name that stands so for this reason, and of which this is wanted.
#[must_use]
pub fn refuses((name, why): (&str, &str), state: Stands, wanted: Order, order: Order) -> Option<String> {
    match state {
        Stands::Over => Some(format!("{name} has finished ({why}) and cannot be changed")),
        Stands::Refused => Some(format!("{name} was refused and never began: {why}")),
        _ if wanted == Order::Stop && order != Order::Stop => {
            Some(format!("{name} is being stopped, which cannot be undone"))
        }
        _ => None,
    }
}

/// The privacy cost of a task, from its ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Rounds that were released.
    pub rounds: u64,
    /// Rounds that are planned.
    pub planned_rounds: u64,
    /// The declared population: no more different devices are ever asked (rule P11).
    pub population: u64,
    /// Evaluations by devices that were released, where there are to be some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluations: Option<u64>,
    /// Evaluations by devices that are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_evaluations: Option<u64>,
    /// What is guaranteed: while it runs, and where it was stopped by hand, the whole plan's epsilon.
    pub holds: Price,
    /// The basis of `holds`.
    pub basis: Basis,
    /// What the releases so far cost, while it runs. It is not a guarantee: a decision to stop now may depend on released values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub so_far: Option<Price>,
    /// The delta of both.
    pub delta: Delta,
}

/// All tasks of a server by name, and what is wanted of them.
///
/// # Errors
/// When its state cannot be read, or a ledger is damaged.
pub fn list<S: State>(state: &S, orders: &Orders) -> Result<Vec<Listed>, ServeError> {
    let served = state.is_served()?;
    state.names()?.iter().map(|name| one(state, orders, served, name)).collect()
}

/// The same, with the tasks that were created in a data folder and that no server has begun yet, or that it refused. `state` is none where no
/// server was ever started on it.
///
/// # Errors
/// As [`list`]; or when the disk fails.
pub fn list_in<S: State>(state: Option<&S>, data: &Path) -> Result<Vec<Listed>, ServeError> {
    let (orders, created) = (Orders::in_data(data), Created::in_data(data));
    let mut all = state.map_or(Ok(Vec::new()), |state| list(state, &orders))?;
    let enrolled = state.map_or(Ok(0), |state| state.coordinator().enrolled())?;
    let waiting = created.names()?.into_iter().map(|name| (name, None));
    for (name, refused) in waiting.chain(created.refused()?.into_iter().map(|(name, why)| (name, Some(why)))) {
        if !all.iter().any(|listed| listed.task == name) {
            let state = if refused.is_some() { Stands::Refused } else { Stands::NotServed };
            let (wanted, digest, asked, ledger) = (orders.of(&name), None, None, None);
            all.push(Listed {
                task: name,
                digest,
                state,
                wanted,
                obeyed: false,
                why: refused,
                enrolled,
                asked,
                ledger,
            });
        }
    }
    all.sort_by(|a, b| a.task.cmp(&b.task));
    Ok(all)
}

/// One task, on state on which a server runs or not.
///
/// # Errors
/// When there is no such task, its state cannot be read, or its ledger is damaged.
pub fn one<S: State>(state: &S, orders: &Orders, served: bool, name: &str) -> Result<Listed, ServeError> {
    let (task, store) = (state.read_task(name)?, state.coordinator());
    let home = task.home();
    let (note, wanted) = (task.note()?, orders.of(name));
    let mut over = None;
    let mut ledger = None;
    if home.is_begun()? {
        let opened = Ledger::open(home.read_store()?, None, &[])?;
        over = opened.closing().map(|closing| words(closing.because));
        ledger = Some(spent(&opened)?);
    }
    let digest = note.as_ref().and_then(|note| unhex::<32>(&note.digest).ok()).map(TaskDigest);
    let asked = digest.filter(|_| over.is_none()).map(|digest| store.asked(&digest)).transpose()?;
    let with_devices = || -> Result<bool, ServeError> {
        let digests = note.iter().flat_map(|note| [Some(&note.digest), note.evaluation.as_ref()]).flatten();
        for digest in digests.filter_map(|digest| unhex::<32>(digest).ok()) {
            let open = store.open_attempt(&TaskDigest(digest))?;
            if open.is_some_and(|open| !open.assigned.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let state = match &note {
        _ if over.is_some() => Stands::Over,
        Some(note) if served && note.served => stands(note, wanted, &with_devices)?,
        _ => Stands::NotServed,
    };
    let why = match (&over, &note) {
        (Some(over), _) => Some((*over).to_owned()),
        (None, Some(note)) if state == Stands::Broken => note.broken.clone(),
        _ => None,
    };
    let (task, enrolled) = (name.to_owned(), store.enrolled()?);
    let obeyed = note.as_ref().is_some_and(|note| served && note.served && note.obeys == wanted);
    Ok(Listed { task, digest: note.map(|note| note.digest), state, wanted, obeyed, why, enrolled, asked, ledger })
}

impl Spent {
    /// What the guaranteed epsilon is for, in words that follow "for".
    #[must_use]
    pub const fn holds_for(&self) -> &'static str {
        match self.basis {
            Basis::Spent => "everything released",
            Basis::Plan => "the whole plan, which is the guarantee even if the task is stopped early",
            Basis::Budget => "the whole budget, which is the guarantee even if less is spent",
        }
    }
}

fn stands(
    note: &Note,
    wanted: Order,
    with_devices: &dyn Fn() -> Result<bool, ServeError>,
) -> Result<Stands, ServeError> {
    Ok(match wanted {
        _ if note.broken.is_some() => Stands::Broken,
        Order::Run => Stands::Running,
        Order::Stop => Stands::Stopping,
        Order::Pause if note.obeys == Order::Pause && !with_devices()? => Stands::Paused,
        Order::Pause => Stands::Pausing,
    })
}

/// Why a task is over.
const fn words(because: Ended) -> &'static str {
    match because {
        Ended::PlanDone => "all rounds were released",
        Ended::BudgetSpent => "the next round would have exceeded the budget",
        Ended::TargetReached => "the target accuracy was reached",
        Ended::ByHand => "it was stopped by hand",
    }
}

fn spent<S: LedgerStore>(ledger: &Ledger<S>) -> Result<Spent, LedgerError> {
    let (plan, released) = (ledger.plan(), ledger.releases());
    let rounds = plan.phases.iter().filter(|phase| ![BEFORE, EVALUATION].contains(&phase.stream.as_str()));
    let evaluations = plan.phase(EVALUATION);
    let simulated = ledger.randomness() != Randomness::Secret;
    let price = |judged: privacy::accountant::Judgement, meaning| {
        let meaning = if simulated { Meaning::IfSecret } else { meaning };
        Price { meaning, epsilon: judged.epsilon, rho: judged.rho }
    };
    let delta = plan.delta;
    // With a filter its budget holds at any moment, and what was spent is nobody's number (rule P14).
    let says_so_far = !ledger.is_closed() && ledger.basis() == Basis::Plan;
    let so_far = if says_so_far { Some(price(ledger.epsilon(delta)?, Meaning::SoFar)) } else { None };
    Ok(Spent {
        rounds: rounds.clone().filter_map(|phase| released.get(&phase.stream)).sum(),
        planned_rounds: rounds.map(|phase| phase.rounds).sum(),
        population: plan.population,
        evaluations: evaluations.map(|_| released.get(EVALUATION).copied().unwrap_or_default()),
        planned_evaluations: evaluations.map(|phase| phase.rounds),
        holds: price(ledger.guaranteed()?, Meaning::Guaranteed),
        basis: ledger.basis(),
        so_far,
        delta,
    })
}
