//! Forecasts the cost of a run: epsilon over the rounds, memory, traffic and time.
//!
//! Epsilon, memory and bytes follow from the plan. Time is measured: [`rehearsal`] trains a few users of a synthetic crowd with
//! the real loop, and `securely` does a small round of secure aggregation.

pub mod rehearsal;
mod securely;

use device::finetune::FineTune;
use ledger::{Budget, ImportKind, Ledger, LedgerStore};
use privacy::{AccountError, AccountantKind, Epsilon, PrivacyEvent, rng::Randomness};
use serde::Serialize;
use thiserror::Error;

use self::rehearsal::Rehearsal;
use crate::{
    burden::Burden,
    config::ConfigError,
    engine::Means,
    optimizer::OptimizerKind,
    plan::{Phase, Plan},
    run::{Opened, Presence, RunError},
};

/// A rehearsal is work of every kind: its errors are passed on as they are.
pub type WorkError = Box<dyn std::error::Error + Send + Sync>;

/// A run whose costs cannot be foreseen.
#[derive(Debug, Error)]
pub enum ForecastError {
    /// The settings are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What would be released is not judged.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The users of the data cannot be counted.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The rehearsal failed.
    #[error(transparent)]
    Rehearsal(#[from] WorkError),
}

/// The forecast cost of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Forecast {
    /// Epsilon over the rounds.
    pub epsilon: Vec<Point>,
    /// The delta of these epsilons.
    pub delta: f64,
    /// What would end the run, if anything: the rounds before it.
    pub budget: Option<BudgetEnd>,
    /// Rounds that would be done.
    pub rounds: u64,
    /// How often anybody takes part in them.
    pub participations: u64,
    /// Memory.
    pub memory_bytes: Memory,
    /// Bytes on the way.
    pub traffic_bytes: Traffic,
    /// Time.
    pub time: Time,
    /// What evaluations by devices would cost, where there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_evaluations: Option<DeviceEvaluationCost>,
    /// The noise against what a model bears; none without noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Burden>,
    /// How many of the declared users there are: an exact count, which only a simulation gives to programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<Presence>,
    /// What should be known before.
    pub warnings: Vec<String>,
}

/// The cost of evaluations by devices, and their precision.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceEvaluationCost {
    /// The number of evaluations.
    pub evaluations: u64,
    /// The report goal of each.
    pub cohort: u64,
    /// The most of one device.
    pub most_participations: u64,
    /// Epsilon of all of them without the rounds.
    pub epsilon_alone: Epsilon,
    /// Epsilon of the rounds without them.
    pub epsilon_of_rounds_alone: Epsilon,
    /// Epsilon of both and of everything that the run imports, which is what holds.
    pub epsilon: Epsilon,
    /// The standard deviation of the noise in an accuracy, where all devices have as much text as is counted; none without noise. With less
    /// text it is larger by as much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_noise: Option<f64>,
}

impl DeviceEvaluationCost {
    fn of(plan: &Plan, before: &[PrivacyEvent]) -> Result<Option<Self>, ForecastError> {
        let Some(evaluations) = &plan.device_evaluations else { return Ok(None) };
        let (phase, ledger) = (&evaluations.phase, &plan.ledger);
        let judge = |event: &PrivacyEvent| {
            Ok::<_, ForecastError>(ledger.accountant.judge_group(event, ledger.delta, ledger.group)?.epsilon)
        };
        let rounds = plan.phases().iter().map(|phase| phase.event(phase.rounds)).collect::<Result<_, _>>()?;
        Ok(Some(Self {
            evaluations: phase.rounds,
            cohort: phase.cohort,
            most_participations: phase.participation.most_participations(phase.rounds),
            epsilon_alone: judge(&phase.event(phase.rounds)?)?,
            epsilon_of_rounds_alone: judge(&PrivacyEvent::Compose { events: rounds })?,
            epsilon: epsilon(plan, before, plan.rounds)?,
            accuracy_noise: phase.noise.map(|z| z.get() * device::evaluation::NORM / phase.cohort as f64),
        }))
    }
}

/// The cost of the rounds up to one.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// The round.
    pub round: u64,
    /// Epsilon after it, with everything that the run imports.
    pub epsilon: Epsilon,
    /// That of the large cohort for which a small one stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projected_epsilon: Option<Epsilon>,
    /// How often anybody took part until then.
    pub participations: u64,
}

/// A budget, and the rounds it allows.
#[derive(Debug, Clone, Serialize)]
pub struct BudgetEnd {
    /// The budget.
    pub max_epsilon: Epsilon,
    /// Rounds that it pays for.
    pub rounds: u64,
}

/// The memory of a run, in bytes, by what uses it.
#[derive(Debug, Clone, Serialize)]
pub struct Memory {
    /// Training, all threads together.
    pub training: u64,
    /// Model, optimizer, and a sum on its way to a release.
    pub server: u64,
    /// What correlated noise remembers.
    pub mechanism: u64,
    /// What users keep between rounds; in the checkpoint too.
    #[serde(skip_serializing_if = "is_zero")]
    pub kept_by_users: u64,
    /// Evaluation, all threads together.
    pub evaluation: u64,
    /// The total.
    pub total: u64,
}

/// Models as 32-bit numbers, before any compression; updates as they leave.
#[derive(Debug, Clone, Serialize)]
pub struct Traffic {
    /// The model.
    pub down_per_user: u64,
    /// The update.
    pub up_per_user: u64,
    /// Of all users of a round.
    pub per_round: u64,
    /// Traffic of all rounds.
    pub total: u64,
    /// How often anybody sends an update.
    pub uploads: u64,
    /// Bytes from users, of all rounds.
    pub up_total: u64,
    /// Bytes to users, of all rounds.
    pub down_total: u64,
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An estimate, measured on a synthetic crowd.
#[derive(Debug, Clone, Serialize)]
pub struct Time {
    /// Estimated seconds for the whole run.
    pub estimated_seconds: f64,
    /// Estimated seconds per round.
    pub seconds_per_round: f64,
    /// How much of the rounds is training.
    pub training_share: f64,
    /// Evaluations.
    pub evaluations: u64,
    /// Threads.
    pub threads: usize,
    /// What it is estimated from.
    pub measured: Rehearsal,
}

impl Forecast {
    /// Forecasts the cost of a plan on this machine, with epsilon at about this many rounds. Measuring takes seconds: `measuring` is
    /// called before it.
    ///
    /// # Errors
    /// When the plan is refused, is not judged, or its rehearsal fails.
    pub fn new(
        plan: &Plan,
        opened: &Opened,
        means: Means,
        points: u64,
        measuring: impl FnOnce(),
    ) -> Result<Self, ForecastError> {
        let budget = budget(plan, opened)?;
        let rounds = budget.as_ref().map_or(plan.rounds, |end| end.rounds.min(plan.rounds));
        let epsilon = epsilons(plan, opened, points)?;
        measuring();
        let measured = rehearsal::rehearse(plan, opened, means)?;
        let not_private = plan.non_private.iter().map(|what| format!("epsilon is infinite for any noise: {what}"));
        Ok(Self {
            epsilon,
            delta: plan.ledger.delta.get(),
            budget,
            rounds,
            participations: plan.planned_participations(rounds),
            memory_bytes: memory(plan, opened, means),
            traffic_bytes: traffic(plan, rounds)?,
            time: time(plan, rounds, means, measured),
            device_evaluations: DeviceEvaluationCost::of(plan, &before(opened))?,
            noise: Burden::of(plan),
            users: if plan.randomness() == Randomness::Secret { None } else { opened.presence(&plan.config)? },
            warnings: not_private.chain(plan.warnings.iter().cloned()).collect(),
        })
    }
}

/// Epsilon over the rounds, at about so many even steps, the last round among them.
///
/// # Errors
/// When the plan is refused or not judged.
pub fn epsilons(plan: &Plan, opened: &Opened, count: u64) -> Result<Vec<Point>, ForecastError> {
    let before = before(opened);
    points(plan.rounds, count).map(|round| point(plan, &before, round)).collect()
}

/// The same of a run that has begun, from its plan and its ledger. None where they do not plan the same releases, or where the ledger lacks
/// what its plan imports: then the ledger's plan is what holds, and how it is spent on the way is not known.
///
/// # Errors
/// When the plan is refused or not judged.
pub fn epsilons_of_begun<S: LedgerStore>(
    plan: &Plan,
    ledger: &Ledger<S>,
    count: u64,
) -> Result<Option<Vec<Point>>, ForecastError> {
    let same =
        |(a, b): (&ledger::Phase, &ledger::Phase)| (&a.stream, a.rounds, &a.event) == (&b.stream, b.rounds, &b.event);
    let (ours, theirs) = (&plan.ledger, ledger.plan());
    let judged_alike = (ours.accountant, ours.delta, ours.group) == (theirs.accountant, theirs.delta, theirs.group);
    let whole = ledger.missing_imports().is_empty();
    if !whole
        || !judged_alike
        || ours.phases.len() != theirs.phases.len()
        || !ours.phases.iter().zip(&theirs.phases).all(same)
    {
        return Ok(None);
    }
    let imports = ledger.imports().iter().filter(|import| import.kind != ImportKind::SweepRun);
    let before: Vec<PrivacyEvent> = imports.map(|import| import.event.clone()).collect();
    points(plan.rounds, count).map(|round| point(plan, &before, round)).collect::<Result<_, _>>().map(Some)
}

/// What was released before the first round, and counts for the run: of the model that it starts from, and of earlier tasks over the same
/// devices.
fn before(opened: &Opened) -> Vec<PrivacyEvent> {
    opened.imports().map(|import| import.event.clone()).collect()
}

/// Rounds at about so many even steps, the last among them.
fn points(rounds: u64, count: u64) -> impl Iterator<Item = u64> {
    let count = count.min(rounds);
    (1..=count).map(move |i| (rounds * i).div_ceil(count))
}

/// What the releases before a round amount to, with what was released before the run.
fn event(plan: &Plan, before: &[PrivacyEvent], rounds: u64) -> Result<PrivacyEvent, ForecastError> {
    Ok(PrivacyEvent::Compose { events: before.iter().cloned().chain([plan.event(rounds)?]).collect() })
}

fn epsilon(plan: &Plan, before: &[PrivacyEvent], rounds: u64) -> Result<Epsilon, ForecastError> {
    let ledger = &plan.ledger;
    Ok(ledger.accountant.judge_group(&event(plan, before, rounds)?, ledger.delta, ledger.group)?.epsilon)
}

fn point(plan: &Plan, before: &[PrivacyEvent], round: u64) -> Result<Point, ForecastError> {
    Ok(Point {
        round,
        epsilon: epsilon(plan, before, round)?,
        projected_epsilon: plan.projected_epsilon(round)?,
        participations: plan.planned_participations(round),
    })
}

/// How many rounds the budget pays for (rule P14).
fn budget(plan: &Plan, opened: &Opened) -> Result<Option<BudgetEnd>, ForecastError> {
    let Some(budget) = plan.ledger.budget else { return Ok(None) };
    let before = &before(opened)[..];
    let fits = |rounds: u64| match budget {
        Budget::Fixed { max_epsilon } => Ok(epsilon(plan, before, rounds)? <= max_epsilon),
        Budget::ZcdpFilter { max_rho, .. } => {
            let judged = AccountantKind::Zcdp.judge(&event(plan, before, rounds)?, plan.ledger.delta)?;
            Ok::<bool, ForecastError>(judged.rho.is_some_and(|rho| rho <= max_rho))
        }
    };
    let (mut paid, mut beyond) = (0, plan.rounds + 1);
    if fits(plan.rounds)? {
        paid = plan.rounds;
    }
    while beyond > paid + 1 {
        let middle = paid.midpoint(beyond);
        if fits(middle)? { paid = middle } else { beyond = middle }
    }
    Ok(Some(BudgetEnd { max_epsilon: budget.max_epsilon(), rounds: paid }))
}

/// What is held at once, by the sizes of model and plan.
fn memory(plan: &Plan, opened: &Opened, means: Means) -> Memory {
    let (learner, threads) = (opened.learner().memory(), means.threads as u64);
    let parameters = plan.parameters.len() as u64;
    let coordinates = plan.phases().iter().map(|p| p.coordinates() as u64).max().unwrap_or(0);
    // Beside the trainer: the difference, the same as integers, and the thread's sum.
    let trainers = plan.local.finetune.as_ref().map_or(1, FineTune::trainers);
    let training = threads * (trainers * learner.trainer + 4 * (parameters + coordinates) + 8 * coordinates);
    let moments = match plan.optimizer {
        OptimizerKind::Sgd => 0,
        OptimizerKind::Momentum { .. } | OptimizerKind::Adagrad { .. } => 1,
        _ => 2,
    };
    // The model and its first parameters; the sum, its noise, and the release as bytes.
    let server = 4 * parameters * (2 + moments) + 3 * 8 * coordinates;
    let mechanism = plan.phases().iter().map(Phase::mechanism_memory).max().unwrap_or(0);
    let evaluation = learner.predictor + threads * learner.piece + 4 * plan.evaluation.most_tokens as u64;
    let kept_by_users = if plan.upload.keeps_rest() { kept_by_users(plan) } else { 0 };
    let total = training + server + mechanism + kept_by_users + evaluation;
    Memory { training, server, mechanism, kept_by_users, evaluation, total }
}

/// Users who took part keep what was not sent: at most all users, at most as often as anyone takes part.
fn kept_by_users(plan: &Plan) -> u64 {
    let users = plan.ledger.population.min(plan.planned_participations(plan.rounds));
    let vectors = 1 + u64::from(plan.upload.keeps_velocity());
    users.saturating_mul(4 * vectors * plan.parameters.len() as u64)
}

/// What a user sends and gets in the last round, after a warm-up where there is one.
fn traffic(plan: &Plan, rounds: u64) -> Result<Traffic, ConfigError> {
    let (up_per_user, down_per_user) = plan.upload_bytes(plan.rounds - 1)?;
    let sent = plan.sent(rounds)?;
    Ok(Traffic {
        down_per_user,
        up_per_user,
        per_round: (down_per_user + up_per_user) * plan.stage(plan.rounds - 1).cohort,
        total: sent.up_bytes.saturating_add(sent.down_bytes),
        uploads: sent.uploads,
        up_total: sent.up_bytes,
        down_total: sent.down_bytes,
    })
}

fn time(plan: &Plan, rounds: u64, means: Means, measured: Rehearsal) -> Time {
    let every = plan.evaluation.every;
    let evaluations = rounds / every + 1 + u64::from(!rounds.is_multiple_of(every));
    let training = plan.planned_participations(rounds) as f64 * measured.seconds_per_user;
    let rounds_s = training + rounds as f64 * measured.seconds_per_round;
    Time {
        estimated_seconds: rounds_s + evaluations as f64 * measured.seconds_per_evaluation,
        seconds_per_round: rounds_s / rounds.max(1) as f64,
        training_share: if rounds_s > 0.0 { training / rounds_s } else { 0.0 },
        evaluations,
        threads: means.threads,
        measured,
    }
}
