//! What leaves devices, through the whole loop: floats, integers, the largest coordinates, a mask; what is kept between rounds, and what
//! is counted.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, path::Path};

use device::{
    learner::examples::Examples,
    round::{Task, Worker},
    upload::{Keeping, Partial, Rest, Rests, Sends, Upload},
};
use keyhush_federated::{
    config::Document,
    engine::{self, Means, drawn, users_key},
    fleet::{self, Stop},
    home::{MODEL_FOLDER, Records, RunFolder},
    metrics::{METRICS_FILE, Metrics},
    model_folder,
    plan::{Plan, Sent},
    run::{Ending, Kept, Opened, Run},
};
use lm::{folder::Weights, kernels::KernelPath};
use privacy::{
    ClipNorm,
    rng::{NoiseSource, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping},
};

use crate::small_runs::RUN;

/// A crowd so small that everybody takes part again and again.
const FEW: [&str; 2] = ["participation.population=40", "rounds=5"];
/// What users learned shows in the model, and not the noise.
const QUIET: [&str; 4] =
    ["privacy.mechanism=none", "privacy.noise_multiplier=", "privacy.delta=", "server.learning_rate=1.0"];

fn with<'a>(set: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    set.iter().chain(more).copied().collect()
}

fn plan(set: &[&str]) -> (Plan, Opened) {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    let config = Document::new(RUN, &set).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    (plan, opened)
}

fn run(folder: &Path, set: &[&str]) -> Ending {
    let (plan, opened) = plan(set);
    let population = opened.population(plan.ledger.unit).unwrap();
    let means = Means::threads(KernelPath::best(), 2);
    let engine = engine::of(&plan.local, opened.learner(), means).unwrap();
    let mut fleet = fleet::of(&plan, population.as_ref(), engine, RunFolder::at(folder).secrets());
    let mut run = Run::begin(RunFolder::at(folder), &plan, &opened, means).unwrap();
    while run.step(&mut fleet, &Stop::new()).unwrap().over.is_none() {}
    run.finish().unwrap()
}

/// The model that settings come to.
fn model(set: &[&str]) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    run(&folder.path().join("run"), set);
    let read = model_folder::read(&folder.path().join("run").join(MODEL_FOLDER)).unwrap();
    let Weights::Recurrent { values, .. } = read.weights else { panic!("another model") };
    values
}

fn first(set: &[&str]) -> Vec<f32> {
    plan(set).1.first_parameters().to_vec()
}

/// What is sent is another thing, what is summed is not: floats are rounded by the server, with the same result.
#[test]
fn floats_come_to_the_same_model_as_integers() {
    let usual = model(&FEW);
    assert_eq!(model(&with(&FEW, &["upload.kind=grid"])), usual);
    assert_eq!(model(&with(&FEW, &["upload.kind=dense"])), usual);
}

/// All coordinates are the largest of all: then nothing is kept, and momentum and masks have nothing to change.
#[test]
fn the_largest_of_all_coordinates_are_the_update() {
    let usual = model(&FEW);
    let all = ["upload.kind=sparse", "upload.share=0.99999999", "upload.momentum=0.9"];
    assert_eq!(model(&with(&FEW, &all)), usual);
    let masked = ["upload.kind=mask", "upload.share=0.99999999", "upload.keep_rest=true"];
    assert_eq!(model(&with(&FEW, &masked)), usual);
    let some = ["upload.kind=sparse", "upload.share=0.05"];
    assert_ne!(model(&with(&FEW, &some)), usual);
}

/// One round of a mask moves the parameters of the mask and no others, noise included.
#[test]
fn a_mask_moves_and_noises_its_coordinates_alone() {
    let set = ["rounds=1", "server.optimizer=sgd", "server.momentum=", "upload.kind=mask", "upload.share=0.25"];
    for set in [set.to_vec(), with(&set, &["privacy.rotation=true", "privacy.grid_bits=14"])] {
        let mask = plan(&set).0.upload.mask(0).unwrap();
        let (before, after) = (first(&set), model(&set));
        let moved: Vec<u32> =
            (0..).zip(before.iter().zip(&after)).filter(|(_, (b, a))| b != a).map(|(at, _)| at).collect();
        assert!(moved.iter().all(|at| mask.contains(at)), "{set:?}: something else moved");
        // All but the few whose step is lost beside the parameter.
        assert!(moved.len() * 10 > mask.len() * 9, "{set:?}: {} of {}", moved.len(), mask.len());
    }
}

/// What is not sent in one round is sent in a later one: with a mask that keeps, parameters move on what was learned before.
#[test]
fn what_is_kept_is_sent_later() {
    // Everybody in every round; the mask of the second round is not that of the first, and nothing is learned in the second.
    let all = [
        "participation.kind=arrival",
        "participation.population=12",
        "participation.min_separation=0",
        "participation.max_participations=9",
    ];
    let set = with(
        &QUIET,
        &with(&all, &["rounds=2", "server.optimizer=sgd", "server.momentum=", "upload.kind=mask", "upload.share=0.5"]),
    );
    let still = "schedule=[{ from = 1, local_learning_rate = 1e-30 }]";
    let (forgets, keeps) = (with(&set, &[still]), with(&set, &[still, "upload.keep_rest=true"]));
    let masks = [0, 1].map(|round| plan(&set).0.upload.mask(round).unwrap());
    let moved = |set: &[&str]| -> Vec<u32> {
        let (before, after) = (first(set), model(set));
        (0..).zip(before.iter().zip(&after)).filter(|(_, (b, a))| b != a).map(|(at, _)| at).collect()
    };
    assert!(moved(&forgets).iter().all(|at| masks[0].contains(at)), "the second round has nothing to say");
    let late = moved(&keeps).into_iter().filter(|at| masks[1].contains(at) && !masks[0].contains(at)).count();
    assert!(late > 100, "{late} parameters moved by what was kept");
}

/// Rule P19 for masks: what a secure sum of them comes to is the plain sum.
#[test]
fn p19_a_mask_is_summed_securely() {
    let set = with(
        &["participation.kind=fixed-size", "participation.cohort=30", "rounds=2"],
        &["upload.kind=mask", "upload.share=0.1"],
    );
    assert_eq!(model(&with(&set, &["aggregation=secagg"])), model(&set));
}

/// Whatever was kept, what leaves is within the clip: the sensitivity of a round does not grow with the rounds before.
#[test]
fn p1_what_is_kept_is_clipped_with_the_rest() {
    let (plan, opened) = plan(&with(&FEW, &["upload.kind=sparse", "upload.share=0.05"]));
    let (learner, parameters) = (opened.learner(), opened.first_parameters());
    let population = opened.population(plan.ledger.unit).unwrap();
    let clip = ClipNorm::new(0.5).unwrap();
    let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::None).unwrap();
    let coding = plan.phases()[0].coding(clip).unwrap();
    let huge = Rest::new(vec![1e6; parameters.len()], vec![1e6; parameters.len()]);
    let rests = Rests::from([(0, huge)]);
    let keeping = Keeping { momentum: 0.9, local_clip: None, rests: &rests };
    let upload = Upload::Part(Partial { sends: Sends::Largest(40), keeps: Some(keeping) });
    let task = Task {
        model: parameters,
        clipping: &clipping,
        encoding: &coding.encoding,
        full_weight_tokens: None,
        learning_rate: 0.5,
        epochs: None,
        upload,
        evaluation: None,
    };
    let mut examples = Examples::new(learner.schema());
    population.read(0, &mut examples).unwrap();
    let mut worker = Worker::new(learner, plan.local.clone(), KernelPath::best()).unwrap();
    let key = users_key(&NoiseSource::from(SimulationKey::new(1)), &[0]);
    let part = worker.part_after(task, &examples, drawn(&key, 0), upload.kept_by(0)).unwrap();
    let values = part.encoded.values();
    let norm = values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
    let steps = f64::from(1 << 20);
    assert!(part.exact.norm > 1e6 && norm < 1.001 * steps && norm > 0.9 * steps, "{} {norm}", part.exact.norm);
    assert!(values.iter().filter(|v| **v != 0).count() <= 40);
    let [rest, velocity] = part.rest.as_ref().unwrap().vectors();
    assert_eq!(rest.iter().filter(|v| **v == 0.0).count(), 40, "what was sent is not owed any more, clipped or not");
    assert_eq!(velocity.iter().filter(|v| **v == 0.0).count(), 40);
    // Somebody who typed nothing sends nothing, and owes what they owed.
    let nothing = worker.part_after(task, &Examples::new(learner.schema()), drawn(&key, 0), upload.kept_by(0)).unwrap();
    assert!(nothing.encoded.values().iter().all(|v| *v == 0));
    assert_eq!(nothing.rest.as_ref(), upload.kept_by(0));
}

/// Epochs of the schedule are read: more of them go further.
#[test]
fn rounds_read_text_as_often_as_the_schedule_says() {
    let set = with(&QUIET, &["rounds=2", "clip.norm=100"]);
    let often = |first: u32, second: u32| -> Vec<f32> {
        let (epochs, change) =
            (format!("local.epochs={first}"), format!("schedule=[{{ from = 1, local_epochs = {second} }}]"));
        model(&with(&set, &[&epochs, &change]))
    };
    assert_eq!(often(3, 3), model(&with(&set, &["local.epochs=3"])));
    assert_ne!(often(3, 1), often(3, 3));
    assert_ne!(often(1, 3), often(3, 3));
}

#[test]
fn a_run_counts_what_it_sends_where_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (silent, counted) = (folder.path().join("silent"), folder.path().join("counted"));
    run(&silent, &FEW);
    let sparse = ["upload.kind=sparse", "upload.share=0.05", "upload.warm_up=2"];
    let ending = run(&counted, &with(&FEW, &sparse));
    let lines = |folder: &Path| -> Vec<Metrics> {
        let text = fs::read_to_string(folder.join(METRICS_FILE)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert!(lines(&silent).iter().all(|line| line.sent.is_none()));
    assert!(!fs::read_to_string(silent.join(METRICS_FILE)).unwrap().contains("sent"), "bytes of before");
    let (plan, _) = plan(&with(&FEW, &sparse));
    let sent: Vec<Sent> = lines(&counted).iter().map(|line| line.sent.unwrap()).collect();
    assert_eq!(sent, [0, 3, 5].map(|round| plan.sent(round).unwrap()));
    assert_eq!(sent[2].uploads, 5 * 12, "as planned: how many came is not told");
    assert!(sent[2].up_bytes - sent[1].up_bytes < sent[1].up_bytes / 2, "the warm-up sends more: {sent:?}");
    let note = "As planned, devices sent";
    assert!(ending.notes.iter().any(|words| words.starts_with(note)), "{:?}", ending.notes);
    assert!(Kept::read(&RunFolder::at(&counted)).unwrap().notes.iter().any(|words| words.starts_with(note)));
}
