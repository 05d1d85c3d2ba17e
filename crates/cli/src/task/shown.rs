//! A task as it is shown: from the server's own machine, or from another one, where a viewer is told less.

use console::tasks::{ForOperators, Task};
use federated::{numbers::counted, protocol::order::Order};
use ledger::{Basis, statement::rounded_up};
use serde::Serialize;
use server::listing::{Listed, Spent, Stands};

/// A task, with what who asks may see of it.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    pub(super) task: String,
    pub(super) digest: Option<String>,
    pub(super) state: Stands,
    pub(super) wanted: Order,
    pub(super) obeyed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// None where only operators are told.
    pub(super) enrolled: Option<u64>,
    pub(super) asked: Option<u64>,
    pub(super) ledger: Option<Spent>,
}

impl From<Listed> for Shown {
    fn from(listed: Listed) -> Self {
        Task::of(listed, true).into()
    }
}

impl From<Task> for Shown {
    fn from(told: Task) -> Self {
        let Task { task, digest, state, wanted, obeyed, why, ledger, operators } = told;
        let (enrolled, asked, broken) = match operators {
            Some(ForOperators { enrolled, asked, broken }) => (Some(enrolled), asked, broken),
            None => (None, None, None),
        };
        Self { task, digest, state, wanted, obeyed, why: why.or(broken), enrolled, asked, ledger }
    }
}

/// How a task stands, in words.
pub(super) fn state(task: &Shown) -> String {
    let why = task.why.as_deref().unwrap_or("the reason is shown to operators only");
    match (task.state, task.wanted) {
        (Stands::Running, _) => "running".into(),
        (Stands::Pausing, _) => "pausing: the current round is completed, and no other is started".into(),
        (Stands::Paused, _) => "paused: no device is asked until it is resumed".into(),
        (Stands::Stopping, _) => "stopping: the ledger is being closed".into(),
        (Stands::Over, _) => format!("finished: {why}"),
        (Stands::Broken, Order::Stop) => {
            format!("cannot continue: {why}. It will be closed when the server is started again")
        }
        (Stands::Broken, _) => format!("cannot continue: {why}"),
        (Stands::NotServed, Order::Run) => "not running: no server is serving it".into(),
        (Stands::NotServed, Order::Pause) => "paused; no server is serving it".into(),
        (Stands::NotServed, Order::Stop) => "will be stopped when a server is started with it".into(),
        (Stands::Refused, _) => format!("refused, and never begun: {why}"),
    }
}

/// What else is known of a task.
pub(super) fn facts(task: &Shown) -> Vec<(&'static str, String)> {
    let mut facts = vec![("digest", task.digest.clone().unwrap_or_else(|| "none yet".into()))];
    facts.extend(task.enrolled.map(|enrolled| {
        let words =
            format!("{enrolled} enrolled on this server (exact; for operators only, not covered by the guarantee)");
        ("devices", words)
    }));
    match &task.ledger {
        None => facts.push(("rounds", "not started".into())),
        Some(spent) => {
            if let Some(asked) = task.asked {
                facts.push((
                    "devices asked",
                    format!("{asked} so far, of a declared population of {}", spent.population),
                ));
            }
            facts.push(("rounds", format!("{} of {} released", spent.rounds, spent.planned_rounds)));
            if let (Some(released), Some(planned)) = (spent.evaluations, spent.planned_evaluations) {
                facts.push(("evaluations", format!("{released} of {planned} by devices released")));
            }
            facts.extend(costs(spent));
        }
    }
    facts
}

/// What a task costs in privacy, each number with what it means (rule P23).
fn costs(spent: &Spent) -> Vec<(&'static str, String)> {
    let of = match spent.basis {
        Basis::Spent => "everything released",
        Basis::Plan => "the whole plan, which is the guarantee even if the task is stopped early",
        Basis::Budget => "the whole budget, which is the guarantee even if less is spent",
    };
    let mut costs = vec![("epsilon", format!("{} at delta {:e}, for {of}", spent.holds.words(), spent.delta.get()))];
    if let Some(so_far) = &spent.so_far {
        let rounds = spent.rounds;
        let number = if so_far.epsilon.is_finite() { rounded_up(so_far.epsilon.get()) } else { "infinite".into() };
        let only = "the cost of these releases alone, not a guarantee";
        costs.push(("so far", format!("{number} at the same delta, after {}: {only}", counted(rounds, "round"))));
    }
    costs
}
