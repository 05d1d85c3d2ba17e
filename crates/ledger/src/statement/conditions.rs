//! The conditions of a statement: what must hold for it to be true, and what it does not cover.

use crate::{Aggregation, Budget, Import, ImportKind, Ledger, LedgerStore, Plan, Start, Unit};
use privacy::assumptions;
use privacy::participation::Participation;

/// What must be true: of each event, of the plan, of who carried it out, and of the runs that were imported.
pub(super) fn assumes<S: LedgerStore>(ledger: &Ledger<S>) -> Vec<String> {
    let mut words = assumptions::of(&ledger.event());
    let plan = ledger.plan();
    words.push(kept_by(plan));
    words.push(devices(&plan.aggregation).into());
    words.push("every update was clipped and encoded as the plan says before it was summed".into());
    words.push("everything that was computed from these users' data and shown to anyone is in the ledger".into());
    words.push(fixed(plan).into());
    words.push(format!("every program that took part in the run behaves like {}", plan.software));
    let unverified = ledger.imports().iter().filter(|import| !import.verified);
    words.extend(unverified.map(|import| format!("the ledger of {}, which was not verified, is true", import.what)));
    words
}

/// Limits and cohorts are not facts of the noise: somebody must keep them.
fn kept_by(plan: &Plan) -> String {
    let who = &plan.participation_kept_by;
    match (samples(plan), limits(plan)) {
        (false, _) => {
            format!(
                "the limits on who takes part and how often, and the declared number of participants, were enforced by {who}; nobody else checks them"
            )
        }
        (true, false) => format!("the users of each round were sampled as stated, by {who}; nobody else checks it"),
        (true, true) => {
            format!(
                "the users of each round were sampled, and the limits enforced, as stated, by {who}; nobody else checks it"
            )
        }
    }
}

fn samples(plan: &Plan) -> bool {
    let sampled = |p: &Participation| matches!(p, Participation::Poisson { .. } | Participation::FixedSize { .. });
    plan.phases.iter().any(|phase| sampled(&phase.participation))
}

fn limits(plan: &Plan) -> bool {
    let limited = |p: &Participation| matches!(p, Participation::MinSeparation { .. } | Participation::Once);
    plan.phases.iter().any(|phase| limited(&phase.participation))
}

const fn devices(aggregation: &Aggregation) -> &'static str {
    match aggregation {
        Aggregation::Plain { .. } => {
            "devices follow the protocol: each sends at most one clipped update per round, computed from its own user's text; the aggregator checks its norm and nothing else"
        }
        Aggregation::Secure { sees_sum: Some(_), .. } => {
            "devices follow the protocol: each sends at most one clipped update per round, computed from its own user's text; under secure aggregation nobody can check that"
        }
        Aggregation::Secure { sees_sum: None, .. } => {
            "devices follow the protocol, except for the share counted as corrupted: each sends at most one clipped update per round, computed from its own user's text, with its own noise; under secure aggregation nobody can check that"
        }
    }
}

fn fixed(plan: &Plan) -> &'static str {
    if plan.budget.is_some_and(Budget::is_filter) {
        "the budget was fixed in advance; what happened within it could depend on released values"
    } else {
        "the plan was fixed in advance: nothing in it depended on released values"
    }
}

/// What the guarantee does not cover.
pub(super) fn not_covered<S: LedgerStore>(ledger: &Ledger<S>) -> Vec<String> {
    let plan = ledger.plan();
    let mut words = vec![
        "Users in a held-out evaluation set are not protected: accuracy measured on their text depends on it, and no noise is added.".to_owned(),
        "Any other use of the same users' data that is not in this ledger, such as tuning runs that were not imported.".into(),
        "A copy of the run's folder that is resumed elsewhere: it spends privacy again, this ledger does not know of it, and the costs of both add up.".into(),
    ];
    words.push(before_noise(&plan.aggregation));
    let start = match &plan.start {
        Start::Public(public) => Some(public),
        Start::Random | Start::Ledger { .. } => None,
    };
    let public = start.into_iter().chain(&plan.public_data);
    words.extend(public.map(|p| format!("Data treated as public is not protected: {} ({}).", p.what, p.why)));
    words.extend(unit(plan).map(str::to_owned));
    words.push("Who took part, and when, is not hidden from the operators of the system.".into());
    if ledger.failed_attempts() > 0 {
        words.push("The ledger records exactly, without noise, how many attempts failed and why.".into());
    }
    if samples(plan) {
        words.push("Amplification by sampling does not hold against anyone who sees who took part in a round, such as the operators of the system: the epsilon above assumes that the sample is secret; against them it is larger.".into());
    }
    words
}

/// What holds for a device that is in other tasks too. This ledger knows of those that it imports, and of no others.
pub(super) fn several_tasks(plan: &Plan, imports: &[Import]) -> Vec<String> {
    let earlier = imports.iter().filter(|import| import.kind == ImportKind::EarlierTask);
    let earlier: Vec<&str> = earlier.map(|import| import.what.as_str()).collect();
    let counted = match earlier[..] {
        [] => "this task alone".to_owned(),
        _ => format!("this task and {}, and for no other", earlier.join(", ")),
    };
    match plan.unit {
        Unit::User | Unit::Example => Vec::new(),
        Unit::Device => vec![
            format!("This ledger accounts for {counted}. A device that also takes part in other tasks, of this or another server, is protected less than stated above: the costs of its tasks add up."),
            "For such a device the sum of the epsilons holds at the sum of the deltas. With the ledgers of all tasks, `keyhush privacy compose` computes a tighter bound.".into(),
            "The number of tasks is not limited. What a device sends to all of them together is bounded only by its own limit on inputs, which no server can raise, and which this ledger does not know.".into(),
        ],
    }
}

fn before_noise(aggregation: &Aggregation) -> String {
    match aggregation {
        Aggregation::Plain { sees_updates } => {
            format!("What is visible before noise is added: single updates are visible to {sees_updates}.")
        }
        Aggregation::Secure { sees_updates: Some(who), .. } => {
            format!("What is visible before noise is added: in this simulation everything is visible to {who}.")
        }
        Aggregation::Secure { sees_sum: Some(who), .. } => {
            format!("What is visible before noise is added: the sum of a round is visible to {who}.")
        }
        Aggregation::Secure { sees_sum: None, .. } => {
            "What corrupted devices know, if there are more than planned: the noise that they added does not protect against them."
                .into()
        }
    }
}

const fn unit(plan: &Plan) -> Option<&'static str> {
    match plan.unit {
        Unit::Device if plan.group == 1 => Some(
            "A person with several devices, or whose device enrols again with a new key, is protected less than one with a single device.",
        ),
        Unit::Example => Some("A person with several examples is protected less than the number says."),
        Unit::User | Unit::Device => None,
    }
}
