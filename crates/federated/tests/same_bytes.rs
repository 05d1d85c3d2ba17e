//! A run with a seed leaves the bytes that it always left: its model, its metrics, and what its ledger says of every release.
//!
//! The digests are in `testdata/keyhush-0.1.0/same_bytes.json`. They are of scalar kernels, which every machine has: vectors of other lengths
//! add up in another order, so they give other last digits, but the same on every machine that has them. What a run draws at
//! random however it is started (the identity of its ledger, keys, times) is in none of them.
//!
//! A change that is to leave runs as they are and fails here is wrong. One that changes them on purpose says so in CHANGELOG.md, and writes
//! the digests anew:
//!
//! ```text
//! KEYHUSH_DIGESTS=write cargo test --profile ci -p keyhush-federated --test all same_bytes
//! ```
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{collections::BTreeMap, fs, path::Path};

use crate::workshop::{ADAPTIVE, ARRIVAL, ledger, plan, with};
use keyhush_federated::{
    engine::{self, Means},
    fleet::{self, Stop},
    home::{Home, Log, MODEL_FOLDER, Records, RunFolder},
    run::Run,
};
use ledger::hex;
use lm::kernels::KernelPath;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const DIGESTS: &str = "testdata/keyhush-0.1.0/same_bytes.json";
const SOURCE: &str =
    "keyhush 0.1.0 with scalar kernels: SHA-256 of what runs with a seed leave; tests/same_bytes.rs writes it";

/// Short, with two evaluations.
const SHORT: [&str; 3] = ["rounds=4", "evaluation.every=2", "evaluation.most_tokens=100"];
const TAGS: [&str; 6] = [
    "model.learner=tags",
    "model.preset=",
    "model.hidden=",
    "model.embedding=",
    "local.unroll=",
    "local.learning_rate=5.0",
];
const SECURE: [&str; 4] =
    ["aggregation=secagg", "secagg.dropout=0.3", "secagg.corrupted=0.1", "participation.cohort=24"];

/// The runs: all that changes numbers by itself.
fn runs() -> [(&'static str, Vec<&'static str>); 8] {
    [
        ("federated averaging", with(&[&["participation.kind=poisson", "server.optimizer=adam"]])),
        ("tree", with(&[&ARRIVAL, &["privacy.mechanism=tree", "server.optimizer=momentum", "server.momentum=0.9"]])),
        ("banded", with(&[&ARRIVAL, &["privacy.mechanism=banded", "privacy.bands=2"]])),
        ("adaptive clip", with(&[&ADAPTIVE])),
        ("coarse grid", with(&[&["privacy.rotation=true", "privacy.rounding=conditional", "privacy.grid_bits=12"]])),
        ("secure", with(&[&ARRIVAL, &SECURE, &["privacy.mechanism=tree"]])),
        ("noise of devices", with(&[&["participation.kind=once"], &SECURE, &["secagg.noise=distributed"]])),
        ("tags", with(&[&TAGS])),
    ]
}

#[test]
fn a_run_with_a_seed_leaves_the_bytes_that_it_always_left() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DIGESTS);
    let left: BTreeMap<&str, Value> =
        runs().into_iter().map(|(name, set)| (name, left_by(&with(&[&SHORT, &set])))).collect();
    if std::env::var("KEYHUSH_DIGESTS").is_ok_and(|what| what == "write") {
        let text = serde_json::to_string_pretty(&json!({ "source": SOURCE, "runs": left })).unwrap();
        fs::write(&path, text + "\n").unwrap();
    }
    let known: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(known["runs"].as_object().unwrap().len(), left.len());
    let other: Vec<String> =
        left.iter().flat_map(|(name, left)| differences(name, left, &known["runs"][name])).collect();
    assert!(other.is_empty(), "not what they always were: {}", other.join(", "));
}

/// Which digests are others, by name.
fn differences(run: &str, left: &Value, known: &Value) -> Vec<String> {
    let parts = left.as_object().unwrap().iter();
    parts.filter(|(part, digest)| known[part] != **digest).map(|(part, _)| format!("{part} of {run:?}")).collect()
}

/// The digests of a number more or less: the comparison notices a single bit, or a run that is missing.
#[test]
fn another_bit_is_noticed() {
    let one = json!({ "model": digest(&[0, 1]), "metrics": digest(&[2]) });
    let other = json!({ "model": digest(&[0, 0]), "metrics": digest(&[2]) });
    assert_eq!(differences("tags", &one, &one), [""; 0]);
    assert_eq!(differences("tags", &one, &other), [r#"model of "tags""#]);
    assert_eq!(differences("tags", &one, &Value::Null).len(), 2);
}

/// The digests of what a whole run leaves.
fn left_by(set: &[&str]) -> Value {
    let means = Means::threads(KernelPath::Scalar, 2);
    let (plan, opened) = plan(set);
    let folder = tempfile::tempdir().unwrap();
    let home = RunFolder::at(folder.path().join("run"));
    let population = opened.population(plan.ledger.unit).unwrap();
    let engine = engine::of(&plan.local, opened.learner(), means).unwrap();
    let mut fleet = fleet::of(&plan, population.as_ref(), engine, home.secrets());
    let mut run = Run::begin(home.clone(), &plan, &opened, means).unwrap();
    while run.step(&mut fleet, &Stop::new()).unwrap().over.is_none() {}
    run.finish().unwrap();
    let lines = |log| digest(home.lines(log).unwrap().join("\n").as_bytes());
    json!({
        "model": digest(&numbers(home.path())),
        "metrics": lines(Log::Metrics),
        "diagnostics": lines(Log::Diagnostics),
        "events": digest(events(home.path()).as_bytes()),
    })
}

/// The parameters, without the header, which names the ledger.
fn numbers(run: &Path) -> Vec<u8> {
    let bytes = fs::read(run.join(MODEL_FOLDER).join("model.safetensors")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header..].to_vec()
}

/// What the ledger says after its plan, one entry per line.
fn events(run: &Path) -> String {
    let ledger = ledger(run);
    let bodies = ledger.entries().unwrap().skip(1).map(|entry| serde_json::to_string(entry.unwrap().body()).unwrap());
    bodies.collect::<Vec<_>>().join("\n")
}

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
