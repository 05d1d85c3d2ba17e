//! What the models of a run suggest after public prompts: at each evaluation, whatever happens to the run, and beside what is measured.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, path::Path};

use keyhush_federated::{
    config::Document,
    engine::{self, Means},
    fleet::{self, Stop},
    home::{MODEL_FOLDER, Records, RunFolder},
    metrics::{METRICS_FILE, SAMPLES_FILE},
    model_folder,
    plan::Plan,
    run::{Opened, PROMPTS, Run, Samples},
};
use lm::{kernels::KernelPath, predict::Predictor};

use super::workshop::text;

fn opened(set: &[&str]) -> (Plan, Opened) {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    let config = Document::new(&text(), &set).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    (Plan::new(config, &opened.setting()).unwrap(), opened)
}

/// A run that ends without a word after so many rounds, again and again, and goes on with what is on disk; then to its end.
fn lives(folder: &Path, set: &[&str], prompts: Option<&[&str]>, lives: &[usize]) {
    for (number, steps) in lives.iter().chain([&usize::MAX]).enumerate() {
        // Prompts are said once, when it is begun.
        let (plan, mut opened) = opened(set);
        if let (0, Some(prompts)) = (number, prompts) {
            opened = opened.with_prompts(prompts.iter().map(|prompt| (*prompt).to_owned()).collect());
        }
        let means = Means::threads(KernelPath::best(), 1);
        let population = opened.population(plan.ledger.unit).unwrap();
        let engine = engine::of(&plan.local, opened.learner(), means).unwrap();
        let mut fleet = fleet::of(&plan, population.as_ref(), engine, RunFolder::at(folder).secrets());
        let begin = if number == 0 { Run::begin } else { Run::resume };
        let mut run = begin(RunFolder::at(folder), &plan, &opened, means).unwrap();
        for _ in 0..*steps {
            if run.step(&mut fleet, &Stop::new()).unwrap().over.is_some() {
                run.finish().unwrap();
                return;
            }
        }
    }
}

fn samples(folder: &Path) -> Vec<Samples> {
    let text = fs::read_to_string(folder.join(SAMPLES_FILE)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_evaluation_has_its_suggestions_and_the_last_are_those_of_the_model() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    lives(&folder, &["evaluation.every=2"], None, &[]);
    let lines = samples(&folder);
    assert_eq!(lines.iter().map(|line| line.round).collect::<Vec<_>>(), [0, 2, 4, 6]);
    assert_ne!(lines[0].samples, lines[3].samples, "it learned something");
    let model = model_folder::read(&folder.join(MODEL_FOLDER)).unwrap();
    let network = model.weights.into_model(KernelPath::best()).unwrap();
    let mut predictor = Predictor::new(network.as_ref(), &model.vocabulary, model.rules);
    for (sample, prompt) in lines[3].samples.iter().zip(PROMPTS) {
        let words: Vec<String> =
            predictor.suggest(&format!("{prompt} "), 3).into_iter().map(|suggestion| suggestion.word).collect();
        assert_eq!((sample.prompt.as_str(), &sample.words), (prompt, &words));
        assert_eq!(words.len(), 3);
    }
}

#[test]
fn a_run_that_was_killed_has_the_samples_of_one_that_was_not_and_its_own_prompts() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let set = ["evaluation.every=2", "checkpoint.every=3"];
    let prompts = ["hello", "good"];
    lives(&at("whole"), &set, Some(&prompts), &[]);
    lives(&at("broken"), &set, Some(&prompts), &[0, 1, 2, 0, 2]);
    lives(&at("usual"), &set, None, &[]);
    assert_eq!(samples(&at("whole")), samples(&at("broken")));
    let last = samples(&at("broken")).remove(3);
    assert_eq!(last.samples.iter().map(|sample| sample.prompt.as_str()).collect::<Vec<_>>(), prompts);
    let metrics = |name: &str| fs::read(at(name).join(METRICS_FILE)).unwrap();
    assert_eq!(metrics("whole"), metrics("usual"), "what is measured does not depend on prompts");
}

#[test]
fn a_model_that_predicts_no_words_has_no_samples() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    let tags =
        ["model.learner=tags", "model.preset=", "model.hidden=", "model.embedding=", "local.unroll=", "rounds=1"];
    lives(&folder, &tags, None, &[]);
    assert!(!folder.join(SAMPLES_FILE).exists());
}
