//! What a run would cost: epsilon over the rounds, memory, bytes on the way, time.

use std::io::Write;

use federated::{
    chart::{Chart, Series},
    config::{AggregationKind, ConfigError, DataKind, MechanismKind},
    plan::Plan,
    run::{Means, Opened},
};
use ledger::Budget;
use lm::model::parameters::Role;
use privacy::{AccountantKind, Epsilon, PrivacyEvent};
use serde::Serialize;

use super::{
    rehearsal::{Rehearsal, rehearse},
    words,
};
use crate::{
    columns::{self, Align},
    train::of_config,
};

/// Rows of the table of epsilons.
const ROWS: u64 = 10;
/// Points of its chart.
const POINTS: u64 = 40;
/// Sequences that a thread evaluates at once.
const EVALUATED_ROWS: u64 = 64;

/// What a run would cost.
#[derive(Serialize)]
pub(super) struct Forecast {
    /// Epsilon over the rounds.
    epsilon: Vec<Point>,
    delta: f64,
    /// What would end the run, if anything: the rounds before it.
    budget: Option<BudgetEnd>,
    /// Rounds that would be done.
    rounds: u64,
    participations: u64,
    memory_bytes: Memory,
    traffic_bytes: Traffic,
    time: Time,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Point {
    round: u64,
    epsilon: Epsilon,
    #[serde(skip_serializing_if = "Option::is_none")]
    projected_epsilon: Option<Epsilon>,
    participations: u64,
}

#[derive(Serialize)]
struct BudgetEnd {
    max_epsilon: Epsilon,
    /// Rounds that it pays for.
    rounds: u64,
}

/// By what is kept.
#[derive(Serialize)]
struct Memory {
    /// Training, all threads together.
    training: u64,
    /// Model, optimizer, and a sum on its way to a release.
    server: u64,
    /// What correlated noise remembers.
    mechanism: u64,
    evaluation: u64,
    total: u64,
}

impl Memory {
    fn words(&self, threads: usize) -> String {
        let bytes = words::bytes;
        let plural = if threads == 1 { "" } else { "s" };
        let kept = match self.mechanism {
            0 => String::new(),
            mechanism => format!(", noise of earlier rounds {}", bytes(mechanism)),
        };
        format!(
            "about {}: training {} on {threads} thread{plural}, server {}{kept}, evaluation {}",
            bytes(self.total),
            bytes(self.training),
            bytes(self.server),
            bytes(self.evaluation),
        )
    }
}

/// Models and updates as 32-bit numbers, before any compression.
#[derive(Serialize)]
struct Traffic {
    down_per_user: u64,
    up_per_user: u64,
    per_round: u64,
    total: u64,
}

/// An estimate, measured on a made-up crowd.
#[derive(Serialize)]
struct Time {
    estimated_seconds: f64,
    seconds_per_round: f64,
    training_share: f64,
    evaluations: u64,
    threads: usize,
    measured: Rehearsal,
}

impl Forecast {
    pub(super) fn new(plan: &Plan, opened: &Opened, means: Means, quiet: bool) -> anyhow::Result<Self> {
        let budget = budget(plan, opened)?;
        let rounds = budget.as_ref().map_or(plan.config.rounds, |end| end.rounds.min(plan.config.rounds));
        let epsilon = points(plan.config.rounds, ROWS)
            .map(|round| point(plan, opened, round))
            .collect::<anyhow::Result<Vec<_>>>()?;
        if !quiet {
            eprintln!("measuring how long a user takes here ...");
        }
        let measured = rehearse(plan, opened, means)?;
        let before = plan.non_private.iter().map(|what| format!("epsilon is infinite, whatever the noise: {what}"));
        Ok(Self {
            epsilon,
            delta: plan.ledger.delta.get(),
            budget,
            rounds,
            participations: plan.planned_participations(rounds),
            memory_bytes: memory(plan, means),
            traffic_bytes: traffic(plan, rounds).map_err(|e| of_config(&e))?,
            time: time(plan, rounds, means, measured),
            warnings: before.chain(plan.warnings.iter().cloned()).collect(),
        })
    }

    pub(super) fn print(&self, plan: &Plan) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", words::folded("", &introduction(plan)))?;
        writeln!(out, "\nEpsilon over the rounds, at delta {:e}", self.delta)?;
        columns::write(&mut out, &self.table(), Align::Right)?;
        if let Some(end) = &self.budget {
            let (max, rounds) = (end.max_epsilon.get(), end.rounds);
            let all = rounds >= plan.config.rounds;
            let when = if all { "pays for all rounds".into() } else { format!("ends the run after round {rounds}") };
            writeln!(out, "  The budget of epsilon {max} {when}.")?;
        }
        writeln!(out)?;
        self.print_costs(&mut out, plan)?;
        for warning in &self.warnings {
            writeln!(out, "\n{}", words::folded("warning: ", warning))?;
        }
        Ok(())
    }

    fn table(&self) -> Vec<Vec<String>> {
        let projects = self.epsilon.iter().any(|point| point.projected_epsilon.is_some());
        let mut head = vec!["round".to_owned(), "epsilon".to_owned(), "participations".to_owned()];
        if projects {
            head.push("projected epsilon".to_owned());
        }
        let row = |point: &Point| {
            let mut row = vec![point.round.to_string(), words::epsilon(point.epsilon.get())];
            row.push(point.participations.to_string());
            row.extend(point.projected_epsilon.map(|e| words::epsilon(e.get())));
            row
        };
        std::iter::once(head).chain(self.epsilon.iter().map(row)).collect()
    }

    fn print_costs(&self, out: &mut impl Write, plan: &Plan) -> anyhow::Result<()> {
        let Self { memory_bytes: memory, traffic_bytes: traffic, time, .. } = self;
        let bytes = words::bytes;
        let rows = [
            ("Memory", memory.words(time.threads)),
            (
                "Bytes",
                format!(
                    "{} down and {} up for a user, {} a round, {} in all ({})",
                    bytes(traffic.down_per_user),
                    bytes(traffic.up_per_user),
                    bytes(traffic.per_round),
                    bytes(traffic.total),
                    packing(plan),
                ),
            ),
            (
                "Time",
                format!(
                    "about {}: {} rounds of {}, {:.0} % of it training, and {} evaluations of {}",
                    words::seconds(time.estimated_seconds),
                    self.rounds,
                    words::seconds(time.seconds_per_round),
                    100.0 * time.training_share,
                    time.evaluations,
                    words::seconds(time.measured.seconds_per_evaluation),
                ),
            ),
            ("", measured_on(plan, &time.measured)),
        ];
        for (name, words) in rows {
            writeln!(out, "{}", words::folded(&format!("{name:<8}"), &words))?;
        }
        Ok(())
    }
}

fn introduction(plan: &Plan) -> String {
    let config = &plan.config;
    let noise = match (config.privacy.mechanism, config.privacy.noise_multiplier) {
        (MechanismKind::None, _) | (_, None) => "no noise".to_owned(),
        (mechanism, Some(z)) => format!("{} noise, z = {z}", format!("{mechanism:?}").to_lowercase()),
    };
    let units = if config.unit == ledger::Unit::Example { "posts" } else { "users" };
    format!(
        "{} rounds of {} of {} {units}, {noise}, {} parameters.",
        config.rounds,
        config.participation.cohort,
        config.participation.population,
        plan.parameters.len()
    )
}

fn measured_on(plan: &Plan, measured: &Rehearsal) -> String {
    let crowd = match plan.config.data.kind {
        DataKind::Synthetic => "of the crowd",
        DataKind::Store => "of a made-up crowd (the store's users are not read, and may have more or less text)",
    };
    format!(
        "An estimate: {} users {crowd} were trained on this machine just now, with {:.0} tokens and {} each.",
        measured.users,
        measured.tokens_per_user,
        words::seconds(measured.seconds_per_user),
    )
}

/// Rounds at about so many even steps, the last among them.
fn points(rounds: u64, count: u64) -> impl Iterator<Item = u64> {
    let count = count.min(rounds);
    (1..=count).map(move |i| (rounds * i).div_ceil(count))
}

/// What the releases before a round amount to, the model that the run starts from included.
fn event(plan: &Plan, opened: &Opened, rounds: u64) -> anyhow::Result<PrivacyEvent> {
    let start = opened.import().map(|import| import.event.clone());
    let own = plan.event(rounds).map_err(|e| of_config(&e))?;
    Ok(PrivacyEvent::Compose { events: start.into_iter().chain([own]).collect() })
}

fn epsilon(plan: &Plan, opened: &Opened, rounds: u64) -> anyhow::Result<Epsilon> {
    let ledger = &plan.ledger;
    Ok(ledger.accountant.judge_group(&event(plan, opened, rounds)?, ledger.delta, ledger.group)?.epsilon)
}

fn point(plan: &Plan, opened: &Opened, round: u64) -> anyhow::Result<Point> {
    Ok(Point {
        round,
        epsilon: epsilon(plan, opened, round)?,
        projected_epsilon: plan.projected_epsilon(round).map_err(|e| of_config(&e))?,
        participations: plan.planned_participations(round),
    })
}

/// The chart of `--out`.
pub(super) fn chart(plan: &Plan, opened: &Opened) -> anyhow::Result<Chart> {
    let all: Vec<Point> =
        points(plan.config.rounds, POINTS).map(|round| point(plan, opened, round)).collect::<anyhow::Result<_>>()?;
    let mut series = vec![Series::new("this run", all.iter().map(|p| (p.round as f64, p.epsilon.get())).collect())];
    if plan.config.stands_for.is_some() {
        let of = |p: &Point| p.projected_epsilon.map_or(f64::NAN, Epsilon::get);
        series.push(Series::new("projected", all.iter().map(|p| (p.round as f64, of(p))).collect()));
    }
    let reference = plan.ledger.budget.map(|b| ("budget".to_owned(), b.max_epsilon().get())).into_iter().collect();
    Ok(Chart {
        title: introduction(plan).trim_end_matches('.').to_owned(),
        x_label: "rounds".into(),
        y_label: format!("epsilon at delta {:e}", plan.ledger.delta.get()),
        log_y: plan.config.stands_for.is_some(),
        series,
        reference,
        ..Chart::default()
    })
}

/// How many rounds the budget pays for (rule P14).
fn budget(plan: &Plan, opened: &Opened) -> anyhow::Result<Option<BudgetEnd>> {
    let Some(budget) = plan.ledger.budget else { return Ok(None) };
    let fits = |rounds: u64| match budget {
        Budget::Fixed { max_epsilon } => Ok(epsilon(plan, opened, rounds)? <= max_epsilon),
        Budget::ZcdpFilter { max_rho, .. } => {
            let judged = AccountantKind::Zcdp.judge(&event(plan, opened, rounds)?, plan.ledger.delta)?;
            anyhow::Ok(judged.rho.is_some_and(|rho| rho <= max_rho))
        }
    };
    let (mut paid, mut beyond) = (0, plan.config.rounds + 1);
    if fits(plan.config.rounds)? {
        paid = plan.config.rounds;
    }
    while beyond > paid + 1 {
        let middle = paid.midpoint(beyond);
        if fits(middle)? { paid = middle } else { beyond = middle }
    }
    Ok(Some(BudgetEnd { max_epsilon: budget.max_epsilon(), rounds: paid }))
}

/// What is held at once, by the sizes of model and plan.
fn memory(plan: &Plan, means: Means) -> Memory {
    let (model, threads) = (&plan.model, means.threads as u64);
    let parameters = plan.parameters.len() as u64;
    let coordinates = plan.phases().iter().map(|p| p.coordinates() as u64).max().unwrap_or(0);
    let tables = plan.parameters.range(Role::Embedding).len() + plan.parameters.range(Role::OutputEmbedding).len();
    // Matrices are kept twice, for the ways there and back; tables once.
    let weights = 2 * parameters - tables as u64;
    let tokens = (plan.local.batch * plan.local.unroll) as u64;
    let wide = (2 * model.cell.gates().len() + 5) * model.hidden + 2 * model.embedding;
    let activations = tokens * (model.vocabulary + model.layers * wide) as u64;
    // Beside the trainer: the difference, the same as integers, and the thread's sum.
    let training = threads * (4 * (weights + activations + parameters + coordinates) + 8 * coordinates);
    let moments = match plan.optimizer {
        federated::optimizer::OptimizerKind::Sgd => 0,
        federated::optimizer::OptimizerKind::Momentum { .. } | federated::optimizer::OptimizerKind::Adagrad { .. } => 1,
        _ => 2,
    };
    // The model and its first parameters; the sum, its noise, and the release as bytes.
    let server = 4 * parameters * (2 + moments) + 3 * 8 * coordinates;
    let mechanism = plan.phases().iter().map(federated::plan::Phase::mechanism_memory).max().unwrap_or(0);
    let lines = threads * EVALUATED_ROWS * (model.vocabulary + wide) as u64;
    let evaluation = 4 * (weights + lines + plan.config.evaluation.most_tokens as u64);
    Memory { training, server, mechanism, evaluation, total: training + server + mechanism + evaluation }
}

/// How vectors travel.
fn packing(plan: &Plan) -> &'static str {
    match plan.config.aggregation {
        AggregationKind::Plain => "32-bit numbers, not compressed",
        AggregationKind::Secagg => "masked numbers of as many bits as their sum needs, keys and shares included",
    }
}

fn traffic(plan: &Plan, rounds: u64) -> Result<Traffic, ConfigError> {
    let model = 4 * plan.parameters.len() as u64;
    let (down_per_user, up_per_user) = match plan.phase(0).secure_traffic()? {
        None => (model, 4 * plan.phase(0).coordinates() as u64),
        Some(secure) => (model + secure.down as u64, secure.up as u64),
    };
    let each = down_per_user + up_per_user;
    Ok(Traffic {
        down_per_user,
        up_per_user,
        per_round: each * plan.config.participation.cohort,
        total: each.saturating_mul(plan.planned_participations(rounds)),
    })
}

fn time(plan: &Plan, rounds: u64, means: Means, measured: Rehearsal) -> Time {
    let every = plan.config.evaluation.every;
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
