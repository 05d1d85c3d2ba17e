//! `keyhush bench round`: what a round costs beside the users' training, and what a second thread costs.
//!
//! The whole loop runs in a folder of its own, ledger and all, on users of the synthetic crowd; then the same users are
//! trained again by the trainer alone. What the first took more in CPU time is everything else: drawing the cohort, reading
//! the text, clipping, encoding, adding up, noise, ledger, optimizer.

use std::{fs, time::Instant};

use clap::Args;
use device::{local::LocalTrainer, text::UserText};
use federated::{
    cohort::Sampler,
    config::Document,
    fleet::threads::ThreadFleet,
    metrics::Timing,
    plan::Plan,
    population::Population,
    run::{Means, Opened, Run},
};
use lm::kernels::KernelPath;
use privacy::{
    ClipNorm,
    rng::{NoiseSource, SimulationKey},
    stages::ClipRule,
};
use serde::Serialize;

use crate::{failure::BadInput, kernels, train};

const SETTINGS: &str = include_str!("round.toml");
/// The seed of the simulation.
const SEED: u64 = 1;

#[derive(Args)]
pub(crate) struct RoundArgs {
    /// The model: a preset such as mcmahan2018 or gboard
    #[arg(long, default_value = "mcmahan2018")]
    model: String,
    /// Users of a round
    #[arg(long, default_value_t = 100)]
    users: u64,
    /// Rounds that are measured
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// Threads to be compared with one
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Another value for a setting, such as privacy.mechanism=none
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is printed.
#[derive(Serialize)]
struct Answer {
    model: String,
    kernels: KernelPath,
    users: u64,
    rounds: u64,
    /// CPU seconds of a round on one thread.
    round_s: f64,
    /// Those of its users' training alone.
    training_s: f64,
    /// What is not training, of a round's CPU time.
    share_beside_training: f64,
    /// Seconds of the parts of a round that are timed by themselves.
    parts: Parts,
    /// Several threads beside one.
    threads: Threads,
}

/// Seconds a round, by the wall; clipping, encoding and adding up are what users took beyond training.
#[derive(Serialize)]
struct Parts {
    sample_s: f64,
    read_clip_encode_sum_s: f64,
    noise_s: f64,
    ledger_s: f64,
    optimizer_s: f64,
}

#[derive(Serialize)]
struct Threads {
    threads: usize,
    /// CPU time a user, over that on one thread.
    cpu_ratio: f64,
    /// The share of the training phase in which the threads worked.
    busy: f64,
}

/// What some rounds took.
struct Took {
    cpu_s: f64,
    timings: Vec<Timing>,
}

pub(crate) fn run(args: &RoundArgs) -> anyhow::Result<()> {
    for (field, value) in [("users", args.users), ("rounds", args.rounds), ("threads", args.threads as u64)] {
        if value == 0 {
            return Err(BadInput::Refused(format!("--{field} must be at least 1")).into());
        }
    }
    let means = |threads| -> anyhow::Result<Means> { Ok(Means { kernels: kernels::chosen()?, threads }) };
    let set = [
        format!("model.preset={}", args.model),
        format!("participation.cohort={}", args.users),
        format!("rounds={}", args.rounds),
        format!("noise_seed={SEED}"),
    ];
    let set: Vec<String> = set.into_iter().chain(args.set.iter().cloned()).collect();
    let config = Document::new(SETTINGS, &set).and_then(|d| d.config()).map_err(|e| train::of_config(&e))?;
    let opened = Opened::new(&config).map_err(train::refused)?;
    let plan = Plan::new(config, &opened.setting()).map_err(|e| train::of_config(&e))?;
    let one = rounds(&plan, &opened, means(1)?)?;
    let several = rounds(&plan, &opened, means(args.threads)?)?;
    let training_s = training(&plan, &opened, means(1)?)?;
    report(args, &one, &several, training_s, means(1)?.kernels)
}

/// The loop, as `keyhush train` runs it, without the evaluations at both ends.
fn rounds(plan: &Plan, opened: &Opened, means: Means) -> anyhow::Result<Took> {
    let folder = tempfile::tempdir()?;
    let population = opened.population(plan.config.unit).map_err(train::refused)?;
    let mut fleet = ThreadFleet::new(population.as_ref(), &plan.model, &plan.local, means.kernels, means.threads)?;
    let mut run = Run::begin(&folder.path().join("run"), plan, opened, means)?;
    let clock = Instant::now();
    let (mut cpu_s, mut timings) = (0.0, Vec::new());
    loop {
        let before = process_cpu_seconds(clock);
        let step = run.step(&mut fleet)?;
        let took = process_cpu_seconds(clock) - before;
        if let Some(done) = step.done {
            // An evaluation or a checkpoint is not a part of every round.
            let beside = done.timing.evaluate_s * means.threads as f64 + done.timing.checkpoint_s;
            cpu_s += took - if step.metrics.is_some() { beside } else { done.timing.checkpoint_s };
            timings.push(done.timing);
        }
        if step.over.is_some() {
            return Ok(Took { cpu_s, timings });
        }
    }
}

/// CPU seconds of the same users' training by the trainer alone, their text being at hand.
fn training(plan: &Plan, opened: &Opened, means: Means) -> anyhow::Result<f64> {
    let population = opened.population(plan.config.unit).map_err(train::refused)?;
    let mut trainer = LocalTrainer::new(&plan.model, plan.local.clone(), means.kernels)?;
    let source = NoiseSource::from(SimulationKey::new(SEED));
    let rule = ClipRule::Flat(ClipNorm::new(1.0)?);
    let clock = Instant::now();
    let mut cpu_s = 0.0;
    for round in 0..plan.config.rounds {
        let texts = texts(plan, population.as_ref(), &source, round)?;
        let before = process_cpu_seconds(clock);
        for text in &texts {
            let _learned = trainer.train(opened.first_parameters(), text, &rule, plan.config.local.learning_rate, 0)?;
        }
        cpu_s += process_cpu_seconds(clock) - before;
    }
    Ok(cpu_s)
}

/// The text of a round's users.
fn texts(plan: &Plan, population: &dyn Population, source: &NoiseSource, round: u64) -> anyhow::Result<Vec<UserText>> {
    let phase = plan.phase(round);
    let sampler =
        Sampler::new(phase.participation, plan.config.participation.population, phase.cohort, plan.config.rounds)?;
    let mut texts = Vec::new();
    for user in sampler.cohort(source, round) {
        let mut text = UserText::new();
        population.read(user, &mut text)?;
        text.truncate(plan.local.most_tokens.unwrap_or(usize::MAX));
        texts.push(text);
    }
    Ok(texts)
}

fn report(args: &RoundArgs, one: &Took, several: &Took, training_s: f64, kernels: KernelPath) -> anyhow::Result<()> {
    let rounds = args.rounds as f64;
    let mean = |part: fn(&Timing) -> f64| one.timings.iter().map(part).sum::<f64>() / rounds;
    let busy: f64 = several.timings.iter().map(|t| t.train_busy_s).sum();
    let wall: f64 = several.timings.iter().map(|t| t.train_s * t.threads as f64).sum();
    let answer = Answer {
        model: args.model.clone(),
        kernels,
        users: args.users,
        rounds: args.rounds,
        round_s: one.cpu_s / rounds,
        training_s: training_s / rounds,
        share_beside_training: 1.0 - training_s / one.cpu_s,
        parts: Parts {
            sample_s: mean(|t| t.sample_s),
            read_clip_encode_sum_s: mean(|t| t.train_busy_s) - training_s / rounds,
            noise_s: mean(|t| t.release_s),
            ledger_s: mean(|t| t.ledger_s),
            optimizer_s: mean(|t| t.optimizer_s),
        },
        threads: Threads { threads: args.threads, cpu_ratio: several.cpu_s / one.cpu_s, busy: busy / wall },
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&answer)?);
        return Ok(());
    }
    let Answer { round_s, training_s, share_beside_training, parts, threads, .. } = &answer;
    println!("{} users of {}, {} kernels", args.users, args.model, kernels.name());
    println!("a round            {round_s:10.3} s of CPU time on one thread");
    println!("  its training     {training_s:10.3} s");
    println!("  everything else  {:10.2} % of the round", 100.0 * share_beside_training);
    println!("    drawing users  {:10.4} s", parts.sample_s);
    println!("    text, clip, encode, sum {:.4} s", parts.read_clip_encode_sum_s);
    println!("    noise          {:10.4} s", parts.noise_s);
    println!("    ledger         {:10.4} s", parts.ledger_s);
    println!("    optimizer      {:10.4} s", parts.optimizer_s);
    println!(
        "{} threads         {:10.3} times the CPU time of one, busy {:.1} % of training",
        threads.threads,
        threads.cpu_ratio,
        100.0 * threads.busy
    );
    Ok(())
}

/// CPU time of all threads of this process; where the system does not tell, the time that went by.
fn process_cpu_seconds(clock: Instant) -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields are counted after the name, which may hold blanks; user and system time are the 12th and 13th from there.
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .map_or(Vec::new(), |(_, rest)| rest.split_whitespace().map(|f| f.parse().unwrap_or(0)).collect());
    match fields.get(11..13) {
        Some([user, system]) => (user + system) as f64 / 100.0,
        _ => clock.elapsed().as_secs_f64(),
    }
}
