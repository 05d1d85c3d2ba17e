//! Secure aggregation in a run: the same model, byte for byte, as the plain sum of the survivors; noise that devices add.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, path::Path};

use crate::small_runs::{self, RUN};
use keyhush_federated::{
    config::Document,
    engine::{self, Means},
    fleet::{self, Stop},
    home::{LEDGER_FILE, MODEL_FOLDER, Records, RunFolder},
    ledger_file::Place,
    metrics::METRICS_FILE,
    plan::Plan,
    run::{Ending, Opened, Run},
};
use ledger::{Aggregation, Body, FailureReason};
use lm::kernels::KernelPath;
use privacy::PrivacyEvent;

const CHANGES: [&str; 9] = [
    "rounds=4",
    "model.vocabulary=100",
    "model.hidden=6",
    "model.embedding=6",
    "local.most_tokens=40",
    "participation.kind=fixed-size",
    "participation.cohort=40",
    "evaluation.every=2",
    "checkpoint.every=",
];

const ARRIVAL: [&str; 3] =
    ["participation.kind=arrival", "participation.min_separation=2", "participation.max_participations=2"];

fn plan(set: &[&str]) -> (Plan, Opened) {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    let config = Document::new(&small_runs::with(RUN, &CHANGES), &set).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    (plan, opened)
}

fn run(folder: &Path, set: &[&str], threads: usize) -> Ending {
    let (plan, opened) = plan(set);
    let population = opened.population(plan.ledger.unit).unwrap();
    let path = KernelPath::best();
    let means = Means::threads(path, threads);
    let engine = engine::of(&plan.local, opened.learner(), means).unwrap();
    let mut fleet = fleet::of(&plan, population.as_ref(), engine, RunFolder::at(folder).secrets());
    let mut run = Run::begin(RunFolder::at(folder), &plan, &opened, means).unwrap();
    while run.step(&mut fleet, &Stop::new()).unwrap().over.is_none() {}
    run.finish().unwrap()
}

fn model(folder: &Path) -> Vec<u8> {
    fs::read(folder.join(MODEL_FOLDER).join("model.safetensors")).unwrap()
}

fn with<'a>(set: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    set.iter().chain(more).copied().collect()
}

/// Rule P19: rotated or not, with a clip bit or a weight beside the update, with drop-outs at all four points, on one thread
/// or on three, for every mechanism: what secure aggregation gives is the plain integer sum of the survivors.
#[test]
fn p19_the_model_is_that_of_the_plain_sum_of_the_survivors() {
    let vanish = ["participation.vanish=0.08", "participation.cohort=60", "rounds=2"];
    let secagg = ["aggregation=secagg", "secagg.dropout=0.35", "secagg.corrupted=0.2"];
    let adaptive = ["clip.kind=adaptive", "clip.quantile=0.5", "clip.norm=0.1"];
    let kinds: [(&str, Vec<&str>); 5] = [
        ("fixed size", vec![]),
        (
            "Algorithm 2, adaptive",
            with(&["privacy.rotation=true", "privacy.rounding=conditional", "privacy.grid_bits=10"], &adaptive),
        ),
        (
            "poisson",
            vec![
                "participation.kind=poisson",
                "participation.population=20000",
                "participation.cohort=100",
                "participation.vanish=0.02",
            ],
        ),
        ("tree", with(&["privacy.mechanism=tree"], &ARRIVAL)),
        (
            "average",
            vec!["privacy.mechanism=none", "privacy.noise_multiplier=", "privacy.delta=", "estimator.kind=average"],
        ),
    ];
    for (name, set) in kinds {
        let set = with(&vanish, &set);
        let folder = tempfile::tempdir().unwrap();
        let [plain, secure] = ["plain", "secure"].map(|f| folder.path().join(f));
        run(&plain, &set, 1);
        run(&secure, &with(&set, &secagg), if name == "tree" { 3 } else { 2 });
        assert!(model(&plain) == model(&secure), "{name}: another model");
        let metrics = |folder: &Path| fs::read_to_string(folder.join(METRICS_FILE)).unwrap();
        assert_eq!(metrics(&plain), metrics(&secure), "{name}");
    }
}

/// Who vanishes makes a difference, and the same users vanish in every run.
#[test]
fn vanishing_users_are_not_in_the_sum() {
    let folder = tempfile::tempdir().unwrap();
    let [all, some, again] = ["all", "some", "again"].map(|f| folder.path().join(f));
    run(&all, &[], 1);
    run(&some, &["participation.vanish=0.2"], 1);
    run(&again, &["participation.vanish=0.2"], 2);
    assert!(model(&all) != model(&some));
    assert!(model(&some) == model(&again));
}

/// How many releases the ledger of a run has.
fn releases(folder: &Path) -> usize {
    let ledger = Place::new(folder.join(LEDGER_FILE)).read(&[]).unwrap();
    ledger.entries().unwrap().filter(|e| matches!(e.as_ref().unwrap().body(), Body::Release(_))).count()
}

/// Rule P3: the devices' noise is accounted for by Skellam's own bound, for the honest survivors at the threshold.
#[test]
fn p3_noise_that_devices_add_is_in_the_ledger_and_in_the_model() {
    let set = with(&ARRIVAL, &["aggregation=secagg", "secagg.noise=distributed", "privacy.noise_multiplier=1.0"]);
    let folder = tempfile::tempdir().unwrap();
    let [one, two, central] = ["one", "two", "central"].map(|f| folder.path().join(f));
    run(&one, &set, 1);
    run(&two, &with(&set, &["participation.vanish=0"]), 2);
    assert!(model(&one) == model(&two), "the same on every number of threads");
    run(&central, &with(&set, &["secagg.noise=central"]), 2);
    assert!(model(&one) != model(&central));

    let (plan, _) = plan(&set);
    let secure = plan.phases()[0].secure.as_ref().unwrap();
    // Of 40 devices 4 may vanish and 13 may be corrupted.
    assert_eq!((secure.most_clients, secure.least_survivors), (40, 36));
    let honest =
        |event: &PrivacyEvent| serde_json::to_value(event).unwrap().to_string().contains("\"honest_survivors\":23");
    assert!(honest(&plan.event(4).unwrap()));
    assert!(matches!(&plan.ledger.aggregation, Aggregation::Secure { sees_sum: None, .. }));

    // Two participations of four rounds, each a little worse than a Gaussian of the same multiplier, never better.
    let epsilon = plan.epsilon(4).unwrap().get();
    let gaussian = self::plan(&with(&set, &["secagg.noise=central"])).0.epsilon(4).unwrap().get();
    assert!(epsilon >= gaussian && epsilon < 1.25 * gaussian, "{epsilon} against {gaussian}");
    assert_eq!(releases(&one), 4);
}

#[test]
fn a_round_below_the_least_number_fails_and_releases_nothing() {
    // A plan in which so many vanish is refused; here they do all the same.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let (mut plan, opened) = plan(&["aggregation=secagg", "secagg.least_survivors=36"]);
    plan.devices.vanish = 0.5;
    let population = opened.population(plan.ledger.unit).unwrap();
    let means = Means::threads(KernelPath::best(), 2);
    let engine = engine::of(&plan.local, opened.learner(), means).unwrap();
    let mut fleet = fleet::of(&plan, population.as_ref(), engine, RunFolder::at(&path).secrets());
    let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means).unwrap();
    let failed = run.step(&mut fleet, &Stop::new()).unwrap().failed.unwrap();
    assert_eq!((failed.round, failed.reason, failed.passed_over), (0, FailureReason::BelowGoal, true));
    assert_eq!(run.failed(), [failed]);
    drop(run);
    assert_eq!(releases(&path), 0);
}
