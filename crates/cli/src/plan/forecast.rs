//! Prints what a run would cost: epsilon over the rounds, memory, traffic, time.

use std::io::Write;

use ::device::finetune::FineTune;
use federated::{
    config::{Data, Upload},
    forecast::{self, DeviceEvaluationCost, Forecast, Memory, Point, rehearsal::Rehearsal},
    metrics::{Measures, prediction::NEXT_WORDS},
    numbers::{bytes, counted, grouped},
    plan::Plan,
    run::Opened,
};
use privacy::Epsilon;
use report::{chart::Chart, planned};

use super::words;
use crate::{
    columns::{self, Align},
    train::Expected,
};

/// Rows of the table of epsilons.
pub(super) const ROWS: u64 = 10;
/// Points of its chart.
const POINTS: u64 = 40;

fn memory(memory: &Memory, threads: usize) -> String {
    let kept = match memory.mechanism {
        0 => String::new(),
        mechanism => format!(", noise of earlier rounds {}", bytes(mechanism)),
    };
    let kept = match memory.kept_by_users {
        0 => kept,
        users => format!("{kept}, kept by users between rounds {}", bytes(users)),
    };
    format!(
        "about {}: training {} on {}, server {}{kept}, evaluation {}",
        bytes(memory.total),
        bytes(memory.training),
        counted(threads as u64, "thread"),
        bytes(memory.server),
        bytes(memory.evaluation),
    )
}

pub(super) fn print(
    forecast: &Forecast,
    plan: &Plan,
    opened: &Opened,
    expectations: &[Expected],
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", columns::folded("", &introduction(plan)))?;
    writeln!(out, "\nEpsilon over the rounds, at delta {:e}", forecast.delta)?;
    columns::write(&mut out, &table(forecast), Align::Right)?;
    if let Some(end) = &forecast.budget {
        let (max, rounds) = (end.max_epsilon.get(), end.rounds);
        let all = rounds >= plan.config.rounds;
        let when = if all { "allows all rounds".into() } else { format!("ends the run after round {rounds}") };
        writeln!(out, "  The budget of epsilon {max} {when}.")?;
    }
    if let Some(evaluations) = &forecast.device_evaluations {
        writeln!(out, "{}", columns::folded("  ", &by_devices(evaluations)))?;
    }
    writeln!(out)?;
    print_costs(forecast, &mut out, plan, opened)?;
    for Expected { warns, words } in expectations {
        writeln!(out, "\n{}", columns::folded(if *warns { "warning: " } else { "" }, words))?;
    }
    for warning in &forecast.warnings {
        writeln!(out, "\n{}", columns::folded("warning: ", warning))?;
    }
    Ok(())
}

/// What evaluations by devices cost, and how precise they are.
fn by_devices(cost: &DeviceEvaluationCost) -> String {
    let epsilon = |epsilon: Epsilon| words::epsilon(epsilon.get());
    let DeviceEvaluationCost { evaluations, cohort, most_participations, .. } = cost;
    let noise = cost.accuracy_noise.map_or_else(String::new, |noise| {
        format!(" The noise in an accuracy has a standard deviation of at least {:.2} %.", 100.0 * noise)
    });
    format!(
        "Epsilon counts training rounds and evaluations by devices: rounds alone {}, {} by {} alone {} (a device takes part in at most {most_participations}), together {}.{noise}",
        epsilon(cost.epsilon_of_rounds_alone),
        counted(*evaluations, "evaluation"),
        counted(*cohort, "device"),
        epsilon(cost.epsilon_alone),
        epsilon(cost.epsilon),
    )
}

fn table(forecast: &Forecast) -> Vec<Vec<String>> {
    let projects = forecast.epsilon.iter().any(|point| point.projected_epsilon.is_some());
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
    std::iter::once(head).chain(forecast.epsilon.iter().map(row)).collect()
}

fn print_costs(forecast: &Forecast, out: &mut impl Write, plan: &Plan, opened: &Opened) -> anyhow::Result<()> {
    let Forecast { memory_bytes: memory, traffic_bytes: traffic, time, .. } = forecast;
    let rows = [
        ("Memory", self::memory(memory, time.threads)),
        (
            "Traffic",
            format!(
                "{} down and {} up per user, {} per round, {} in total ({}); {}, {} in total",
                bytes(traffic.down_per_user),
                bytes(traffic.up_per_user),
                bytes(traffic.per_round),
                bytes(traffic.total),
                packing(plan),
                counted(traffic.uploads, "upload"),
                bytes(traffic.up_total),
            ),
        ),
        (
            "Time",
            format!(
                "about {}: {} of {}, {:.0} % of it training, and {} of {}",
                words::seconds(time.estimated_seconds),
                counted(forecast.rounds, "round"),
                words::seconds(time.seconds_per_round),
                100.0 * time.training_share,
                counted(time.evaluations, "evaluation"),
                words::seconds(time.measured.seconds_per_evaluation),
            ),
        ),
        ("", measured_on(plan, opened, &time.measured)),
    ];
    for (name, words) in rows {
        writeln!(out, "{}", columns::folded(&format!("{name:<8}"), &words))?;
    }
    Ok(())
}

fn introduction(plan: &Plan) -> String {
    let config = &plan.config;
    let short = config.privacy.kind().short();
    let noise = match config.privacy.noise() {
        None => short.to_owned(),
        Some(noise) => format!("{short}, z = {}", noise.multiplier),
    };
    let unit = if config.unit == ledger::Unit::Example { "post" } else { "user" };
    format!(
        "{} of {} of {}, {noise}, {} parameters.{}",
        counted(config.rounds, "round"),
        grouped(config.participation.cohort),
        counted(config.participation.population, unit),
        grouped(plan.parameters.len() as u64),
        plan.local.finetune.as_ref().map_or_else(String::new, |finetune| format!(" {}", finetuning(finetune)))
    )
}

/// What devices do against forgetting.
fn finetuning(finetune: &FineTune) -> String {
    let percent = 100.0 * finetune.lambda();
    match finetune {
        FineTune::Rehearsal { general, .. } => format!(
            "Devices rehearse: {percent:.0} % of what a device trains on is its user's text, and the rest is general text. The task brings {} tokens of it to each device, in addition to the traffic below.",
            grouped(general.tokens() as u64)
        ),
        FineTune::SoftLabels { .. } => format!(
            "Labels are soft: {percent:.0} % of each is the word that the user typed, and the rest is the prediction of the model that the device received."
        ),
    }
}

fn measured_on(plan: &Plan, opened: &Opened, measured: &Rehearsal) -> String {
    let examples = Measures::named(opened.learner().measures()).unwrap_or(&NEXT_WORDS).examples();
    let crowd = match plan.config.data {
        Data::Synthetic(_) => "synthetic users",
        Data::Store(_) => "synthetic users (users of the store are not read, and may have more or less text)",
        Data::Devices(_) => "synthetic users (devices train on their own hardware, and may have more or less text)",
    };
    format!(
        "Estimated by training {} {crowd} on this machine just now: {:.0} {examples} and {} each.",
        measured.users,
        measured.tokens_per_user,
        words::seconds(measured.seconds_per_user),
    )
}

/// The chart of `--out`.
pub(super) fn chart(plan: &Plan, opened: &Opened) -> anyhow::Result<Chart> {
    let points = forecast::epsilons(plan, opened, POINTS)?;
    Ok(planned::over_rounds(introduction(plan).trim_end_matches('.'), plan, &points))
}

/// How models and updates are encoded for transport.
fn packing(plan: &Plan) -> &'static str {
    match plan.config.upload {
        Some(Upload::Dense) => "32-bit models, 32-bit updates, no compression",
        Some(Upload::Sparse(_)) => "32-bit models; only the largest coordinates of an update, each with its position",
        Some(Upload::Mask(_)) => "32-bit models; only those coordinates of an update that are in the shared mask",
        Some(Upload::Grid) | None if plan.config.aggregation.is_secure() => {
            "bit-packed masked updates, including keys and shares"
        }
        Some(Upload::Grid) | None => "32-bit models, bit-packed integer updates, no compression",
    }
}
