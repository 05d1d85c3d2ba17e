//! `keyhush init` and `keyhush plan`: what they write is accepted, and what they say comes true.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn keyhush(folder: &Path, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_keyhush")).current_dir(folder).args(flags).output().unwrap()
}

fn done(folder: &Path, flags: &[&str]) -> Output {
    let output = keyhush(folder, flags);
    assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(folder: &Path, flags: &[&str]) -> Value {
    serde_json::from_slice(&done(folder, &[flags, &["--json", "-q"]].concat()).stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The epsilon of a plan after its last round.
fn last_epsilon(plan: &Value) -> f64 {
    number(&plan["epsilon"].as_array().unwrap().last().unwrap()["epsilon"])
}

/// Little enough to be trained in a test.
const SMALL: [&str; 6] =
    ["--set", "participation.cohort=6", "--set", "evaluation.most_tokens=200", "--set", "noise_seed=1"];

#[test]
fn what_init_writes_plans_and_trains() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for kind in ["gaussian", "tree", "banded", "blt"] {
        let file = format!("{kind}.toml");
        done(folder, &["init", "--kind", kind, "--out", &file]);
        let whole = json(folder, &["plan", &file]);
        let epsilon = last_epsilon(&whole);
        assert!((0.1..8.0).contains(&epsilon), "{kind}: {epsilon}");
        let mut short = [&[file.as_str(), "--set", "rounds=2"], &SMALL[..]].concat();
        if kind == "banded" {
            short.extend(["--set", "privacy.bands=2"]);
        }
        let plan = json(folder, &[&["plan"], &short[..]].concat());
        let ending = json(folder, &[&["train"], &short[..], &["--out", kind]].concat());
        let (foretold, paid) = (last_epsilon(&plan), number(&ending["metrics"]["epsilon_if_secret"]));
        assert!((foretold - paid).abs() < 1e-9, "{kind}: {foretold} was foretold, and it was {paid}");
    }
    // What is there is not overwritten.
    assert_eq!(keyhush(folder, &["init", "--out", "tree.toml"]).status.code(), Some(2));
}

#[test]
fn a_budget_ends_the_run_where_the_plan_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["init", "--out", "run.toml"]);
    let flags = [&["run.toml", "--set", "rounds=5"], &SMALL[..]].concat();
    let plan = json(folder, &[&["plan"], &flags[..]].concat());
    assert!(plan["budget"].is_null());
    let at = |round: usize| number(&plan["epsilon"][round - 1]["epsilon"]);
    let budget = format!("privacy.max_epsilon={}", f64::midpoint(at(3), at(4)));
    let flags = [&flags[..], &["--set", &budget]].concat();
    let plan = json(folder, &[&["plan"], &flags[..]].concat());
    assert_eq!(plan["budget"]["rounds"], 3);
    assert_eq!((&plan["rounds"], &plan["participations"]), (&Value::from(3), &Value::from(18)));
    let ending = json(folder, &[&["train"], &flags[..], &["--out", "run"]].concat());
    assert_eq!(ending["rounds"], 3);
}

#[test]
fn costs_are_those_of_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["init", "--kind", "tree", "--out", "run.toml"]);
    let plan = json(folder, &["plan", "run.toml", "--threads", "1"]);
    let one = &plan["traffic_bytes"];
    let parameters = number(&one["down_per_user"]) / 4.0;
    // 22 bits an integer on the grid of 20.
    assert_eq!(number(&one["up_per_user"]), parameters * 22.0 / 8.0);
    assert_eq!(number(&one["per_round"]), 500.0 * (4.0 + 22.0 / 8.0) * parameters);
    assert_eq!(number(&one["total"]), 150.0 * number(&one["per_round"]));
    // A tree of 150 rounds has 8 levels.
    assert_eq!(number(&plan["memory_bytes"]["mechanism"]), 8.0 * 4.0 * parameters);
    let two = json(folder, &["plan", "run.toml", "--threads", "2", "--out", "epsilon.svg"]);
    let training = |plan: &Value| number(&plan["memory_bytes"]["training"]);
    assert_eq!(training(&two), 2.0 * training(&plan));
    let time = &plan["time"];
    let parts = 150.0 * number(&time["seconds_per_round"])
        + number(&time["evaluations"]) * number(&time["measured"]["seconds_per_evaluation"]);
    assert!((number(&time["estimated_seconds"]) / parts - 1.0).abs() < 1e-9, "{time}");
    assert!(number(&time["measured"]["users"]) >= 1.0 && number(&time["measured"]["tokens_per_user"]) <= 400.0);
    let svg = std::fs::read_to_string(folder.join("epsilon.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("epsilon"), "{svg}");
}

#[test]
fn a_store_is_planned_without_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["init", "--out", "run.toml"]);
    done(folder, &["data", "synth", "--users", "60", "--vocab-size", "500", "--out", "users.store", "-q"]);
    let sets = ["data.kind=store", "data.path=users.store", "participation.population=60", "privacy.delta=1e-3"];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let flags = [&["plan", "run.toml"], &SMALL[..], &sets[..]].concat();
    let plan = json(folder, &flags);
    assert!(number(&plan["time"]["estimated_seconds"]) > 0.0);
    let said = done(folder, &[&flags[..], &["-q"]].concat()).stdout;
    let said = String::from_utf8(said).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("synthetic users (users of the store are not read"), "{said}");
}

#[test]
fn what_train_refuses_is_refused_with_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["init", "--kind", "tree", "--out", "run.toml"]);
    let text = std::fs::read_to_string(folder.join("run.toml")).unwrap();
    let line = text.lines().position(|line| line.starts_with("max_participations")).unwrap() + 1;
    let limit = format!("line {line}: participation.max_participations");
    for (set, problem) in [
        ("clip.nrom=1", "nrom"),
        ("clip.norm=", "clip.norm: is missing"),
        ("participation.kind=poisson", "participation.min_separation"),
        ("participation.min_separation=200", "at least 75000 users are needed"),
        ("rounds=201", limit.as_str()),
        ("data.path=nowhere.store", ": data.path"),
    ] {
        let said = |command: &str| {
            let output = keyhush(folder, &[command, "run.toml", "--set", set, "-q"]);
            assert_eq!(output.status.code(), Some(2), "{command} --set {set}");
            assert!(output.stdout.is_empty());
            String::from_utf8(output.stderr).unwrap()
        };
        let refusal = said("plan");
        assert_eq!(refusal, said("train"));
        assert!(refusal.contains(problem), "{set}: {refusal}");
    }
}

#[test]
fn proposals_meet_their_target() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (number_of, flags) in [
        ["--epsilon", "8", "--population", "4000000", "--rounds", "600"].as_slice(),
        &["--epsilon", "2", "--population", "1000000", "--rounds", "300", "--mechanism", "gaussian"],
        &["--epsilon", "6", "--population", "300000", "--rounds", "200", "--mechanism", "tree", "--cohort", "1000"],
        &["--epsilon", "9", "--population", "300000", "--rounds", "200", "--mechanism", "banded"],
    ]
    .into_iter()
    .enumerate()
    {
        let (file, picture) = (format!("{number_of}.toml"), format!("{number_of}.svg"));
        let flags = [&["plan"], flags, &["--out", &file, "--out", &picture]].concat();
        let proposal = json(folder, &flags);
        let target: f64 = flags[2].parse().unwrap();
        let stated = number(&proposal["epsilon"]);
        let planned = last_epsilon(&json(folder, &["plan", &file]));
        assert!((stated - planned).abs() < 1e-9, "{stated} was stated, and {planned} is planned");
        assert!(planned <= target && planned >= 0.9 * target, "{flags:?}: {planned}");
        assert!(std::fs::read_to_string(folder.join(&picture)).unwrap().contains("target"));
        assert!(std::fs::read_to_string(folder.join(&file)).unwrap().starts_with("# Proposed for epsilon"));
    }
    // A file is not overwritten.
    let quick = ["plan", "--epsilon", "6", "--population", "300000", "--rounds", "200", "--mechanism", "tree"];
    assert_eq!(
        keyhush(folder, &[&quick[..], &["--cohort", "1000", "--out", "2.toml"]].concat()).status.code(),
        Some(2)
    );
    // It trains.
    let short = ["--set", "rounds=2", "--set", "participation.cohort=6", "--set", "evaluation.most_tokens=200", "-q"];
    done(folder, &[&["train", "0.toml", "--out", "run"], &short[..]].concat());
}

/// `keyhush plan` says what evaluations by devices cost beside the rounds, and training pays exactly that for both.
#[test]
fn evaluations_by_devices_are_foreseen_and_paid_for() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["init", "--kind", "tree", "--out", "run.toml"]);
    let keys =
        ["every=1", "cohort=6", "min_separation=0", "max_participations=2", "noise_multiplier=3.0", "most_tokens=50"];
    let keys: Vec<String> = keys.iter().map(|key| format!("evaluation.devices.{key}")).collect();
    let measured: Vec<&str> = keys.iter().flat_map(|key| ["--set", key.as_str()]).collect();
    let short = [&["run.toml", "--set", "rounds=2"], &SMALL[..]].concat();
    let both = [&short[..], &measured].concat();
    let (alone, plan) =
        (json(folder, &[&["plan"], &short[..]].concat()), json(folder, &[&["plan"], &both[..]].concat()));
    assert!(alone["device_evaluations"].is_null());
    let cost = &plan["device_evaluations"];
    assert_eq!((number(&cost["evaluations"]), number(&cost["most_participations"])), (2.0, 2.0));
    assert_eq!(number(&cost["epsilon_of_rounds_alone"]), last_epsilon(&alone));
    assert_eq!(number(&cost["epsilon"]), last_epsilon(&plan));
    assert!(last_epsilon(&plan) > last_epsilon(&alone), "{cost}");
    let said = String::from_utf8(done(folder, &[&["plan", "-q"], &both[..]].concat()).stdout).unwrap();
    assert!(said.contains("Epsilon counts training rounds and evaluations by devices"), "{said}");
    let ending = json(folder, &[&["train"], &both[..], &["--out", "run"]].concat());
    assert!((number(&ending["metrics"]["epsilon_if_secret"]) - last_epsilon(&plan)).abs() < 1e-9, "{ending}");
    assert_eq!(number(&ending["metrics"]["by_devices"]["evaluation"]), 1.0, "{ending}");
    // A plan that cannot pay for both is refused.
    let budget = format!("privacy.max_epsilon={}", f64::midpoint(last_epsilon(&alone), last_epsilon(&plan)));
    let refused = keyhush(folder, &[&["plan", "--set", &budget], &both[..]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("evaluation.devices: rounds and evaluations together"));
}

/// What a run foretells of its bytes is what it counts.
#[test]
fn what_is_sent_comes_true_by_kind() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let usual = json(folder, &[&["plan", "--set", "rounds=2"], &SMALL[..]].concat());
    let before = number(&usual["traffic_bytes"]["up_total"]);
    for (kind, set, least, most) in [
        ("grid", "upload={ kind = \"grid\" }", 1.0, 1.0),
        ("dense", "upload={ kind = \"dense\" }", 1.4, 1.5),
        ("sparse", "upload={ kind = \"sparse\", share = 0.01 }", 0.01, 0.02),
        ("mask", "upload={ kind = \"mask\", share = 0.01 }", 0.0099, 0.0101),
    ] {
        let flags = [&["--set", set, "--set", "rounds=2"], &SMALL[..]].concat();
        let traffic = json(folder, &[&["plan"], &flags[..]].concat())["traffic_bytes"].clone();
        assert_eq!(number(&traffic["uploads"]), 12.0, "{kind}");
        let up = number(&traffic["up_total"]);
        assert!((least..=most).contains(&(up / before)), "{kind}: {up} of {before}");
        assert_eq!(number(&traffic["total"]), up + number(&traffic["down_total"]));
        let ending = json(folder, &[&["train", "--out", kind], &flags[..]].concat());
        let sent = &ending["metrics"]["sent"];
        assert_eq!(
            [&sent["uploads"], &sent["up_bytes"], &sent["down_bytes"]].map(number),
            [12.0, up, number(&traffic["down_total"])]
        );
    }
}

/// What devices do against forgetting, and what it takes to send it.
#[test]
fn a_plan_says_what_devices_rehearse() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plain.toml"), done(folder.path(), &["init"]).stdout).unwrap();
    let said = |set: &str| {
        let output = done(folder.path(), &[&["plan", "plain.toml", "--set", set][..], &SMALL].concat());
        String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let rehearsal = said("finetune={ kind = \"rehearsal\", lambda = 0.25 }");
    let words = "25 % of what a device trains on is its user's text, and the rest is general text. The task brings 20,000 tokens";
    assert!(rehearsal.contains(words) && rehearsal.contains("starts from random parameters"), "{rehearsal}");
    let soft = said("finetune={ kind = \"without-forgetting\", lambda = 0.5 }");
    assert!(soft.contains("Labels are soft: 50 % of each is the word that the user typed"), "{soft}");
    let plain = said("rounds=20");
    assert!(!plain.contains("rehearse") && !plain.contains("soft"), "plain training has nothing to say: {plain}");
}
