//! Pages of real runs, from their folders alone: while they go on, when they are over, and when only files are left.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, path::Path};

use crate::small_runs::{RUN, with};
use federated::{
    config::Document,
    engine::{self, Means},
    fleet::{self, Stop},
    home::{MODEL_FOLDER, Records, RunFolder},
    metrics::{
        METRICS_FILE, TIMING_FILE,
        prediction::{ACCURACY_TOP1, PERPLEXITY},
        tags::{RECALL_TOP5, TAGS_FOUND},
    },
    plan::Plan,
    run::{Opened, Run},
};
use keyhush_report::{ReportError, run, tensorboard};
use lm::kernels::KernelPath;

const CHANGES: [&str; 10] = [
    "rounds=5",
    "clip.kind=adaptive",
    "clip.quantile=0.5",
    "clip.count_stddev=1.0",
    "server.optimizer=sgd",
    "server.momentum=",
    "evaluation.every=2",
    "evaluation.users=20",
    "evaluation.most_tokens=500",
    "checkpoint.every=",
];

/// Runs some rounds, or all of them, and shows the run as the command line does. Returns the page, and the events after each round.
fn shown(folder: &Path, set: &[&str], rounds: usize) -> (String, Vec<Vec<u8>>) {
    let set: Vec<String> = set.iter().map(ToString::to_string).collect();
    let config = Document::new(&with(RUN, &CHANGES), &set).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    let means = Means::threads(KernelPath::best(), 1);
    let population = opened.population(plan.ledger.unit).unwrap();
    let engine = engine::of(&plan.local, opened.learner(), means).unwrap();
    let mut fleet = fleet::of(&plan, population.as_ref(), engine, RunFolder::at(folder).secrets());
    let mut run = Run::begin(RunFolder::at(folder), &plan, &opened, means).unwrap();
    let (mut over, mut events) = (false, Vec::new());
    for _ in 0..rounds {
        over = run.step(&mut fleet, &Stop::new()).unwrap().over.is_some();
        tensorboard::write(folder, run.started()).unwrap();
        events.push(fs::read(folder.join(tensorboard::EVENTS_FILE)).unwrap());
    }
    if over {
        run.finish().unwrap();
    }
    run::write(folder).unwrap();
    (page(folder), events)
}

fn page(folder: &Path) -> String {
    fs::read_to_string(folder.join(run::REPORT_FILE)).unwrap()
}

#[test]
fn p23_a_simulation_is_called_one() {
    let folder = tempfile::tempdir().unwrap();
    let (html, _) = shown(folder.path(), &[], 5);
    assert!(html.contains("none: simulated") && !html.contains("<dt>Epsilon</dt>"));
    assert!(
        html.contains("In simulation, the model predicts") && html.contains("after 5 rounds of 12 of 2,000 synthetic")
    );
    assert!(html.contains("tokens read, as simulated") && html.contains("One thread, busy"));
}

/// What a page shows of a run with secret noise tells nothing of one user or of one round.
#[test]
fn p12_p23_a_page_of_secret_noise_has_no_exact_numbers_and_no_times() {
    let folder = tempfile::tempdir().unwrap();
    let (html, _) = shown(folder.path(), &["noise_seed="], 5);
    assert!(html.contains("No round was timed") && !html.contains("as simulated"));
    assert!(!html.contains("norm_quantiles") && !html.contains("clipped_share"));
    assert!(html.contains("<dt>Epsilon</dt>") && html.contains("nobody real is protected"));
}

/// The page of a model of tags speaks of tags, and of nothing that only language models have.
#[test]
fn a_page_shows_what_its_learner_is_measured_by() {
    let folder = tempfile::tempdir().unwrap();
    let tags = [
        "model.learner=tags",
        "model.preset=",
        "model.hidden=",
        "model.embedding=",
        "local.unroll=",
        "local.learning_rate=5.0",
    ];
    let (html, events) = shown(folder.path(), &tags, 5);
    assert!(
        html.contains("of the tags of held-out users&#39; posts")
            || html.contains("of the tags of held-out users' posts")
    );
    for metric in TAGS_FOUND.shown_first() {
        assert!(html.contains(metric.label) || html.contains(&metric.title()), "{}", metric.name);
    }
    for metric in [&PERPLEXITY, &ACCURACY_TOP1] {
        assert!(!html.contains(metric.label) && !html.contains(&metric.title()), "{}", metric.name);
    }
    assert!(html.contains("posts read, as simulated") && html.contains("posts read on devices, at most"));
    let events = String::from_utf8_lossy(events.last().unwrap()).into_owned();
    assert!(events.contains("train_not_private/posts"));
    // Only the names of settings are the same for all learners.
    let words = html.replace("most_tokens", "");
    assert_eq!(words.to_lowercase().find("token").map(|at| &words[at - 40..at + 40]), None);
    assert!(!events.to_lowercase().contains("token"));
    assert!(events.contains(RECALL_TOP5.tag.unwrap()) && !events.contains(ACCURACY_TOP1.tag.unwrap()));
}

/// Whoever has the files of a run that was killed can look at it: its data, model and keys are not asked for.
#[test]
fn a_page_is_made_again_from_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (html, _) = shown(folder.path(), &[], 3);
    assert!(!folder.path().join(MODEL_FOLDER).exists());
    assert!(html.contains("after 3 rounds") && html.contains("<dd class=\"value\">2</dd>"), "evaluated at round 2");
    fs::remove_dir_all(folder.path().join("secret")).unwrap();
    for name in [METRICS_FILE, TIMING_FILE] {
        let path = folder.path().join(name);
        let torn = fs::read_to_string(&path).unwrap() + "{\"round\":";
        fs::write(&path, torn).unwrap();
    }
    run::write(folder.path()).unwrap();
    assert_eq!(page(folder.path()), html);
    fs::remove_file(folder.path().join("ledger.jsonl")).unwrap();
    assert!(matches!(run::write(folder.path()), Err(ReportError::Run(_))), "nothing is promised without a ledger");
}

/// A TensorBoard that is watching goes on reading where it was: what was written stays.
#[test]
fn events_of_more_rounds_stand_behind_those_of_fewer() {
    let folder = tempfile::tempdir().unwrap();
    let (_, events) = shown(folder.path(), &[], 5);
    assert!(events.windows(2).all(|pair| pair[1].starts_with(&pair[0])));
    let evaluations = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).matches("accuracy/top1").count();
    assert_eq!(events.iter().map(evaluations).collect::<Vec<_>>(), [1, 2, 2, 3, 4]);
}
