//! Several tasks of one server, with one fleet of devices: each has its plan, its ledger, its budget and its operator's orders.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use corpus::synth::{Crowd, Dialect, SynthPlan};
use federated::{
    config::Document,
    engine::Means,
    home::Records,
    model_folder,
    plan::Plan,
    population::SyntheticPopulation,
    replay::{Cohorts, replay},
    run::Opened,
    secrets::{FileVault, Secrets},
};
use ledger::{Body, LedgerStore, PseudonymKey};
use lm::{folder::Weights, kernels::KernelPath, tokenizer::Tokenizer};
use server::sqlite::{DATABASE, Database, TaskHome};

use crate::serve::{Killed, PLAIN, keyhush, serve_tasks};
use crate::small_runs::{TASK, with};

const DEVICES: u64 = 40;
/// What made-up people and their keys follow from: that of `keyhush device`.
const SEED: u64 = 1;
const PATIENCE: Duration = Duration::from_secs(120);

/// Noise follows from a seed, so that the model can be computed again.
fn task(more: &[&str]) -> String {
    let changes = [
        "participation.population=40",
        "participation.max_participations=3",
        "participation.cohort=4",
        "evaluation.every=1000",
        "evaluation.users=2",
        "evaluation.most_tokens=50",
        "devices.report_seconds=30",
        "devices.tick_seconds=0.05",
        "devices.begin_with=40",
    ];
    with(TASK, &[&changes[..], more].concat())
}

fn planned(set: &[&str]) -> (Plan, Opened) {
    let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
    let config = Document::new(&task(&[]), &set).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    (Plan::new(config, &opened.setting()).unwrap(), opened)
}

/// What `keyhush task list` says of a task.
fn stands(folder: &Path, name: &str) -> serde_json::Value {
    let out = keyhush().current_dir(folder).args(["task", "list", "--data", "data", "--json"]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let all: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let of = all.as_array().unwrap().iter().find(|task| task["task"] == name);
    of.unwrap_or_else(|| panic!("there is no {name}: {all}")).clone()
}

fn wait_for(folder: &Path, name: &str, is: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let began = Instant::now();
    loop {
        let now = stands(folder, name);
        if is(&now) {
            return now;
        }
        assert!(began.elapsed() < PATIENCE, "it does not come to that: {now}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn rounds(task: &serde_json::Value) -> u64 {
    task["ledger"]["rounds"].as_u64().unwrap_or(0)
}

fn order(folder: &Path, order: &str, name: &str) {
    let out = keyhush().current_dir(folder).args(["task", order, name, "--data", "data"]).output().unwrap();
    assert!(out.status.success(), "{order}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The key of the pseudonyms of a task, which is destroyed when the task is over.
fn pseudonyms(folder: &Path, name: &str) -> PseudonymKey {
    let began = Instant::now();
    loop {
        let vault = FileVault::in_folder(folder.join("secrets").join(name)).unwrap();
        if let Some(key) = Secrets::new(Arc::new(vault)).pseudonym_key().unwrap() {
            return key;
        }
        assert!(began.elapsed() < PATIENCE, "{name} does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Who is in the sum of each round of a task that is over, by the numbers of the devices.
fn cohorts(folder: &Path, name: &str, key: &PseudonymKey) -> Cohorts {
    let database = Arc::new(Database::read(folder.join("data").join(DATABASE)).unwrap());
    let store = TaskHome::read(database, name).unwrap().read_store().unwrap();
    let records = store.participations().unwrap().unwrap().map(|record| record.unwrap());
    let records: BTreeMap<_, _> = records.map(|record| (record.digest(), record)).collect();
    let devices: Vec<[u8; 32]> =
        (0..DEVICES).map(|number| agent::many::key(SEED, number).verifying_key().to_bytes()).collect();
    let mut rounds = Vec::new();
    for entry in store.read(0).unwrap() {
        let entry = entry.unwrap();
        let Body::Release(release) = entry.body() else { continue };
        let record = &records[&release.participations.digest.unwrap()];
        let who = key.recognise(record, devices.iter().map(|key| &key[..])).unwrap().expect("no strangers");
        rounds.push(who.into_iter().map(|number| number as u64).collect());
    }
    Cohorts { rounds, ..Cohorts::default() }
}

/// The ledger verifies, and the model is that of threads over the same people.
fn is_that_of_threads(folder: &Path, name: &str, key: &PseudonymKey, set: &[&str]) {
    let done = folder.join("data/models").join(name);
    let verified = keyhush().args(["privacy", "verify", "--json"]).arg(&done).output().unwrap();
    assert!(verified.status.success(), "{name}: {}", String::from_utf8_lossy(&verified.stderr));
    let (plan, opened) = planned(set);
    let crowd = Crowd::new(SynthPlan::new(SEED, DEVICES, Dialect::Informal)).unwrap();
    let people = SyntheticPopulation::new(crowd, Tokenizer::new(opened.rules()), opened.vocabulary(), opened.learner());
    let cohorts = cohorts(folder, name, key);
    let means = Means::threads(KernelPath::best(), 1);
    let Weights::Recurrent { values, .. } = model_folder::read(&done).unwrap().weights else { panic!("no network") };
    let played = replay(&plan, &opened, &people, &cohorts, means).unwrap();
    assert!(values == played.model, "{name}: another model than that of threads over the same people");
}

#[test]
fn two_tasks_share_a_fleet_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // The one ends by its budget after two of its six rounds; the other has another seed and no budget.
    let (plan, _) = planned(&[]);
    let epsilon = |rounds| plan.epsilon(rounds).unwrap().get();
    let budget = f64::midpoint(epsilon(2), epsilon(3));
    assert!(epsilon(2) < budget && budget < epsilon(3), "{budget}");
    let limited = task(&[&format!("privacy.max_epsilon={budget}")]);
    fs::write(folder.join("limited.toml"), limited).unwrap();
    fs::write(folder.join("rests.toml"), task(&["noise_seed=4"])).unwrap();
    let (mut server, address) = serve_tasks(folder, &["limited.toml", "rests.toml"], "127.0.0.1:0", &PLAIN);
    let keys = ["limited", "rests"].map(|name| pseudonyms(folder, name));
    order(folder, "pause", "rests");
    let mut devices = keyhush();
    devices.args(["device", "--server", &format!("http://{address}"), "--synthetic", "--count", &DEVICES.to_string()]);
    let _devices = Killed::of(devices.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());

    // While the one rests the other comes to its end.
    let over = wait_for(folder, "limited", |task| task["state"] == "over");
    assert_eq!(rounds(&over), 2, "{over}");
    let rests = stands(folder, "rests");
    assert_eq!((rests["state"].as_str(), rounds(&rests)), (Some("paused"), 0), "{rests}");
    order(folder, "resume", "rests");
    wait_for(folder, "rests", |task| rounds(task) >= 2);
    order(folder, "pause", "rests");
    let at = rounds(&wait_for(folder, "rests", |task| task["state"] == "paused" || task["state"] == "over"));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(rounds(&stands(folder, "rests")), at);
    order(folder, "resume", "rests");
    assert!(server.0.wait().unwrap().success(), "with its last task over the server ends");

    let statement = fs::read_to_string(folder.join("data/models/limited/statement.json")).unwrap();
    assert!(statement.contains("budget"), "{statement}");
    is_that_of_threads(folder, "limited", &keys[0], &["rounds=2"]);
    is_that_of_threads(folder, "rests", &keys[1], &["noise_seed=4"]);
}
