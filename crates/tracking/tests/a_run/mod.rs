//! The folder of a small run, with numbers that do not depend on the machine.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, path::Path};

use federated::{
    config::Document,
    engine::{self, Means},
    fleet::{self, Stop},
    home::{Records, RunFolder},
    metrics::{
        DIAGNOSTICS_FILE, Diagnostics, DiagnosticsHead, METRICS_FILE, Measured, Metrics, TIMING_FILE, Timing,
        prediction::NEXT_WORDS,
    },
    plan::Plan,
    run::{Opened, Run},
};
use lm::kernels::KernelPath;
use serde::{Deserialize, Serialize};

const TEXT: &str = r#"
rounds = 3
noise_seed = 3
data = { kind = "synthetic", posts_per_user = 6 }
model = { preset = "tiny", vocabulary = 60, hidden = 4, embedding = 4 }
local = { batch = 4, unroll = 5, learning_rate = 0.5, most_tokens = 60 }
participation = { kind = "poisson", population = 2000, cohort = 8 }
clip = { kind = "flat", norm = 0.5 }
privacy = { mechanism = "gaussian", noise_multiplier = 0.5, delta = 1e-5 }
server = { optimizer = "sgd", learning_rate = 0.5 }
evaluation = { every = 1, users = 4, most_tokens = 50 }
"#;

/// The lines of a run that is over, which [`Files::show`] gives back round by round.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Files {
    metrics: Vec<String>,
    timing: Vec<String>,
    diagnostics: Vec<String>,
}

impl Files {
    /// Runs to the end, with secret noise or not. What was measured, times and what users did are rewritten, so that they are the same on every
    /// machine; a run with secret noise gets such files too, as if somebody had put them there.
    pub(crate) fn of_a_run(folder: &Path, secret: bool) -> Self {
        let metrics = run(folder, secret);
        let files = Self {
            metrics: metrics.iter().map(|line| evaluation(line)).collect(),
            timing: (1..=3).map(|round| json(&timing(round))).collect(),
            diagnostics: (1..=3).map(|round| json(&diagnostics(round))).collect(),
        };
        files.show(folder, 3);
        files
    }

    /// Runs to the end, and takes the lines as they are.
    pub(crate) fn as_left(folder: &Path) -> Self {
        let metrics = run(folder, false);
        let with_round =
            |name: &str| lines(folder, name).into_iter().filter(|line| line.contains("\"round\"")).collect();
        Self { metrics, timing: with_round(TIMING_FILE), diagnostics: with_round(DIAGNOSTICS_FILE) }
    }

    /// As the folder looked after so many rounds.
    pub(crate) fn show(&self, folder: &Path, rounds: usize) {
        let write = |name: &str, lines: &[String]| {
            fs::write(folder.join(name), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        };
        write(METRICS_FILE, &self.metrics[..=rounds]);
        write(TIMING_FILE, &self.timing[..rounds]);
        let head = [json(&DiagnosticsHead::default())];
        write(DIAGNOSTICS_FILE, &[&head[..], &self.diagnostics[..rounds]].concat());
    }
}

/// Runs to the end; the lines of what was measured.
fn run(folder: &Path, secret: bool) -> Vec<String> {
    let set: Vec<String> = if secret { vec!["noise_seed=".into()] } else { Vec::new() };
    let config = Document::new(TEXT, &set).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    let means = Means::threads(KernelPath::best(), 1);
    let population = opened.population(plan.ledger.unit).unwrap();
    let engine = engine::of(&plan.local, opened.learner(), means).unwrap();
    let mut fleet = fleet::of(&plan, population.as_ref(), engine, RunFolder::at(folder).secrets());
    let mut run = Run::begin(RunFolder::at(folder), &plan, &opened, means).unwrap();
    while run.step(&mut fleet, &Stop::new()).unwrap().over.is_none() {}
    run.finish().unwrap();
    lines(folder, METRICS_FILE)
}

fn lines(folder: &Path, name: &str) -> Vec<String> {
    fs::read_to_string(folder.join(name)).unwrap().lines().map(str::to_owned).collect()
}

fn json(line: &impl Serialize) -> String {
    serde_json::to_string(line).unwrap()
}

/// An evaluation whose measurements are the same on every machine.
fn evaluation(line: &str) -> String {
    let mut line: Metrics = serde_json::from_str(line).unwrap();
    line.measured = Measured::new(&NEXT_WORDS, |_| Some(0.125 * (line.round + 1) as f64));
    json(&line)
}

fn timing(round: u64) -> Timing {
    Timing {
        round,
        sample_s: 0.25,
        train_s: 1.5,
        train_busy_s: 1.5,
        threads: 1,
        release_s: 0.125,
        ledger_s: 0.0,
        optimizer_s: 0.0,
        evaluate_s: 0.125,
        checkpoint_s: 0.0,
    }
}

fn diagnostics(round: u64) -> Diagnostics {
    Diagnostics {
        round,
        users: 8,
        tokens: 100,
        loss: Some(4.0 / round as f64),
        norm_quantiles: Some([0.25, 0.5, 1.0, 2.0, 4.0]),
        clipped_share: Some(0.75),
        not_finite: 0,
    }
}
