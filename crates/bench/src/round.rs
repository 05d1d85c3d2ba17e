//! Measures the overhead of a round over the users' training, and what a second thread costs.
//!
//! The whole loop runs in a folder of its own, ledger and all, on users of the synthetic crowd. Then each user of a round is
//! read, trained by the trainer alone, and does a whole part of the round, in turn, so that a machine that becomes slower
//! slows all of them: what the part takes more in CPU time than the training is clipping, encoding and adding up.

use device::{
    learner::examples::Examples,
    local::LocalTrainer,
    round::{Task, Worker},
    upload::Upload,
};
use federated::{
    cohort::Sampler,
    config::Document,
    engine::{self, Means, drawn, users_key},
    fleet::{self, Stop},
    home::{Records, RunFolder},
    metrics::Timing,
    plan::Plan,
    run::{Opened, Run},
};
use lm::kernels::KernelPath;
use privacy::{
    rng::{NoiseSource, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping, Sum},
};
use serde::Serialize;

use crate::{
    BenchError, WorkError, at_least_one,
    clock::{process_seconds, thread_seconds},
};

const SETTINGS: &str = include_str!("round.toml");
/// The seed of the simulation.
const SEED: u64 = 1;

/// The parameters of the benchmark: the rounds to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rounds {
    /// The model: a preset.
    pub model: String,
    /// Users of a round.
    pub users: u64,
    /// Rounds that are measured.
    pub rounds: u64,
    /// Threads to be compared with one.
    pub threads: usize,
    /// Other values for settings.
    pub set: Vec<String>,
}

/// The measured results.
#[derive(Debug, Clone, Serialize)]
pub struct RoundsTook {
    /// The model.
    pub model: String,
    /// The kernels.
    pub kernels: KernelPath,
    /// Users of a round.
    pub users: u64,
    /// Rounds.
    pub rounds: u64,
    /// CPU seconds of a round's training.
    pub training_s: f64,
    /// Seconds of everything else.
    pub beside_s: f64,
    /// Its share of the round.
    pub share_beside_training: f64,
    /// Its parts.
    pub parts: Parts,
    /// Several threads beside one.
    pub threads: Threads,
}

/// Seconds per round: CPU time of what users do, time by the wall of what one thread does alone, waiting for the disk included.
#[derive(Debug, Clone, Serialize)]
pub struct Parts {
    /// Drawing users.
    pub sample_s: f64,
    /// Reading their text.
    pub read_s: f64,
    /// What they do beside training.
    pub clip_encode_sum_s: f64,
    /// The release.
    pub noise_s: f64,
    /// The record of it.
    pub ledger_s: f64,
    /// The server's step.
    pub optimizer_s: f64,
}

impl Parts {
    fn all(&self) -> f64 {
        self.sample_s + self.read_s + self.clip_encode_sum_s + self.noise_s + self.ledger_s + self.optimizer_s
    }
}

/// Several threads beside one.
#[derive(Debug, Clone, Serialize)]
pub struct Threads {
    /// Number of threads.
    pub threads: usize,
    /// CPU time a user, over that on one thread.
    pub cpu_ratio: f64,
    /// The share of the training phase in which the threads worked.
    pub busy: f64,
}

/// What some rounds took.
struct Took {
    cpu_s: f64,
    timings: Vec<Timing>,
}

impl Rounds {
    /// Runs them.
    ///
    /// # Errors
    /// When the settings are refused, or a run fails.
    pub fn run(&self, kernels: KernelPath) -> Result<RoundsTook, BenchError> {
        at_least_one([("users", self.users as usize), ("rounds", self.rounds as usize), ("threads", self.threads)])?;
        let means = |threads| Means::threads(kernels, threads);
        let set = [
            format!("model.preset={}", self.model),
            format!("participation.cohort={}", self.users),
            format!("rounds={}", self.rounds),
            format!("noise_seed={SEED}"),
        ];
        let set: Vec<String> = set.into_iter().chain(self.set.iter().cloned()).collect();
        let config = Document::built_in(SETTINGS, &set)?.config()?;
        let opened = Opened::new(&config)?;
        let plan = Plan::new(config, &opened.setting())?;
        let one = rounds(&plan, &opened, means(1))?;
        let several = rounds(&plan, &opened, means(self.threads))?;
        Ok(took(self, &one, &several, &users(&plan, &opened, kernels)?, kernels))
    }
}

/// The loop, as `keyhush train` runs it, without the evaluations at both ends.
fn rounds(plan: &Plan, opened: &Opened, means: Means) -> Result<Took, WorkError> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path().join("run");
    let population = opened.population(plan.ledger.unit)?;
    let engine = engine::of(&plan.local, opened.learner(), means)?;
    let mut fleet = fleet::of(plan, population.as_ref(), engine, RunFolder::at(&folder).secrets());
    let mut run = Run::begin(RunFolder::at(&folder), plan, opened, means)?;
    let (mut cpu_s, mut timings) = (0.0, Vec::new());
    loop {
        let before = process_seconds();
        let step = run.step(&mut fleet, &Stop::new())?;
        let took = process_seconds() - before;
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

/// CPU seconds of users, all together.
#[derive(Default)]
struct OfUsers {
    read_s: f64,
    training_s: f64,
    /// Training again, clipping, encoding, adding up.
    part_s: f64,
}

/// The users of all rounds, one after the other, on this thread.
fn users(plan: &Plan, opened: &Opened, kernels: KernelPath) -> Result<OfUsers, WorkError> {
    let population = opened.population(plan.ledger.unit)?;
    let mut trainer = LocalTrainer::new(opened.learner(), plan.local.clone(), kernels)?;
    let mut worker = Worker::new(opened.learner(), plan.local.clone(), kernels)?;
    let source = NoiseSource::from(SimulationKey::new(SEED));
    let mut all = OfUsers::default();
    for round in 0..plan.rounds {
        let (phase, stage) = (plan.phase(round), plan.stage(round));
        let coding = phase.coding(stage.clip)?;
        let clipping = Clipping::new(ClipRule::Flat(stage.clip), ClipBit::None)?;
        let task = Task {
            model: opened.first_parameters(),
            clipping: &clipping,
            encoding: &coding.encoding,
            full_weight_tokens: None,
            learning_rate: stage.local_learning_rate,
            epochs: None,
            upload: Upload::Whole,
            evaluation: None,
        };
        let (mut sum, key) = (Sum::zero(&coding.encoding), users_key(&source, &[round]));
        let population_size = plan.ledger.population;
        let sampler = Sampler::new(phase.participation, population_size, phase.cohort, plan.rounds)?;
        for user in sampler.cohort(&source, round) {
            let mut text = Examples::new(opened.learner().schema());
            let began = thread_seconds();
            population.read(user, &mut text)?;
            text.truncate(plan.local.most_tokens.unwrap_or(usize::MAX));
            let read = thread_seconds();
            let _learned = trainer.train(task.model, &text, clipping.rule(), task.learning_rate, 0)?;
            let trained = thread_seconds();
            sum.add(&worker.part(task, &text, drawn(&key, user))?.encoded)?;
            let done = thread_seconds();
            all.read_s += read - began;
            all.training_s += trained - read;
            all.part_s += done - trained;
        }
    }
    Ok(all)
}

fn took(args: &Rounds, one: &Took, several: &Took, users: &OfUsers, kernels: KernelPath) -> RoundsTook {
    let rounds = args.rounds as f64;
    let mean = |part: fn(&Timing) -> f64| one.timings.iter().map(part).sum::<f64>() / rounds;
    let busy: f64 = several.timings.iter().map(|t| t.train_busy_s).sum();
    let wall: f64 = several.timings.iter().map(|t| t.train_s * t.threads as f64).sum();
    let parts = Parts {
        sample_s: mean(|t| t.sample_s),
        read_s: users.read_s / rounds,
        clip_encode_sum_s: (users.part_s - users.training_s) / rounds,
        noise_s: mean(|t| t.release_s),
        ledger_s: mean(|t| t.ledger_s),
        optimizer_s: mean(|t| t.optimizer_s),
    };
    let training_s = users.training_s / rounds;
    let beside_s = parts.all();
    RoundsTook {
        model: args.model.clone(),
        kernels,
        users: args.users,
        rounds: args.rounds,
        training_s,
        beside_s,
        share_beside_training: beside_s / (training_s + beside_s),
        parts,
        threads: Threads { threads: args.threads, cpu_ratio: several.cpu_s / one.cpu_s, busy: busy / wall },
    }
}
