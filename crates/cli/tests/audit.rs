//! `keyhush audit` and `keyhush train --audit`, as people and scripts call them.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, path::Path};

use assert_cmd::Command;
use serde_json::Value;

const SMALL: [&str; 8] =
    ["--set", "model.vocabulary=200", "--set", "model.hidden=8", "--set", "model.embedding=8", "--set", "rounds=3"];

fn keyhush(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("keyhush").unwrap();
    command.current_dir(folder).args(args);
    command
}

/// What an audit prints with `--json`; the plot is there.
fn answer(folder: &Path, args: &[&str]) -> Value {
    let output = keyhush(folder, args).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The names that scripts rely on, and no key that is there and empty.
    let bounds = matches!(args[1], "one-run" | "gaussian-sum");
    for key in ["epsilon_formal", "epsilon_estimate"] {
        assert!(answer[key].is_f64(), "{key}: {answer}");
    }
    for key in ["epsilon_lower", "epsilon_lower_any", "confidence"] {
        assert_eq!(answer[key].is_f64(), bounds, "{key}: {answer}");
    }
    assert!(answer.get("confidence").is_some(), "{answer}");
    assert_eq!(answer["verdict"], if bounds { "consistent" } else { "estimate" }, "{answer}");
    let plot = fs::read_to_string(folder.join(answer["plot"].as_str().unwrap())).unwrap();
    assert!(plot.starts_with("<svg") && plot.contains("polyline"), "nothing is drawn");
    answer
}

#[test]
fn the_test_bench_shows_a_bound_under_the_epsilon_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["audit", "gaussian-sum", "--canaries", "5000", "--epsilon", "4", "--repetitions", "3"];
    let shown = answer(folder.path(), &args);
    let (formal, lower) = (shown["epsilon_formal"].as_f64().unwrap(), shown["epsilon_lower"].as_f64().unwrap());
    assert!((formal - 4.0).abs() < 0.01 && lower > 0.5 && lower < formal, "{shown}");
    assert_eq!(shown["confidence"], 0.999);
    assert_eq!(shown["details"]["exceeded"], 0);
    assert_eq!(shown["details"]["canaries_needed"].as_array().unwrap().len(), 3);
    // Other slacks, and delta so small that the bound for any mechanism is not empty either.
    let args =
        ["audit", "gaussian-sum", "--canaries", "5000", "--epsilon", "16", "--delta", "1e-9", "--slack", "0.9,0.8"];
    let shown = answer(folder.path(), &args);
    let of = |key: &str| shown[key].as_f64().unwrap();
    assert!(0.5 < of("epsilon_lower_any") && of("epsilon_lower_any") < of("epsilon_lower"), "{shown}");
    assert!(of("epsilon_lower") < of("epsilon_formal"), "{shown}");
    let needed: Vec<&Value> = shown["details"]["canaries_needed"].as_array().unwrap().iter().collect();
    assert_eq!((&needed[0]["slack"], &needed[1]["slack"]), (&Value::from(0.9), &Value::from(0.8)));
    assert!(needed[0]["canaries"].as_u64() < needed[1]["canaries"].as_u64(), "{needed:?}");
    for wrong in
        [["--canaries", "3"], ["--epsilon", "0"], ["--delta", "2"], ["--confidence", "1"], ["--slack", "0.5,1"]]
    {
        keyhush(folder.path(), &["audit", "gaussian-sum"]).args(wrong).assert().code(2);
    }
}

#[test]
fn a_run_with_canaries_has_an_audit_in_its_folder_and_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let mut args = vec!["train", "--audit", "100", "--out", "run", "--quiet"];
    // Nearly everybody takes part in every round, with little noise: there is something to be seen.
    args.extend(["--set", "participation.population=400", "--set", "participation.cohort=360"]);
    args.extend(["--set", "privacy.delta=1e-4", "--set", "privacy.noise_multiplier=0.3"]);
    args.extend(["--set", "local.most_tokens=40"]);
    args.extend(SMALL);
    let output = keyhush(folder.path(), &args).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && printed.contains("Audit with 100 canaries"), "{printed}");
    let report = fs::read_to_string(folder.path().join("run/report.html")).unwrap();
    assert!(report.contains("<h2>Audit</h2>") && report.contains("without that assumption"));
    let shown = answer(folder.path(), &["audit", "one-run", "run", "--out", "shown"]);
    assert_eq!(shown["details"]["canaries"], 100);
    let (lower, formal) = (shown["epsilon_lower"].as_f64().unwrap(), shown["epsilon_formal"].as_f64().unwrap());
    assert!(0.1 < lower && lower <= formal && shown["details"]["noise_below"].as_f64().unwrap() > 1.0, "{shown}");
    keyhush(folder.path(), &["audit", "one-run", "run", "--out", "shown"]).assert().code(2);
}

/// Canaries come beside the users of a store, within what is declared; the ledger says so.
#[test]
fn a_store_must_leave_room_for_its_canaries() {
    let folder = tempfile::tempdir().unwrap();
    keyhush(folder.path(), &["data", "synth", "--users", "100", "--out", "crowd.store"]).assert().success();
    let train = |population: &str, out: &str| {
        let population = format!("participation.population={population}");
        let mut args = vec!["train", "--quiet", "--audit", "40", "--out", out, "--set", &population];
        for set in
            ["data.kind=store", "data.path=crowd.store", "rounds=1", "participation.cohort=20", "privacy.delta=1e-4"]
        {
            args.extend(["--set", set]);
        }
        args.extend(["--set", "model.hidden=8", "--set", "model.embedding=8"]);
        keyhush(folder.path(), &args).output().unwrap()
    };
    let refused = train("100", "full");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("participation.population") && said.contains("declare at least"), "{said}");
    assert!(train("150", "run").status.success());
    let statement = fs::read_to_string(folder.path().join("run/statement.md")).unwrap();
    assert!(statement.contains("and 40 canaries that audit the run"), "{statement}");
}

#[test]
fn a_server_takes_no_canaries() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("task.toml"), "rounds = 1\n[data]\nkind = \"devices\"\n[audit]\ncanaries = 100\n")
        .unwrap();
    let args = ["serve", "task.toml", "--listen", "127.0.0.1:0", "--data", "d", "--secrets", "s"];
    let output = keyhush(folder.path(), &args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
}

#[test]
fn each_attack_that_trains_prints_its_epsilons() {
    let folder = tempfile::tempdir().unwrap();
    let few = ["--set", "participation.population=60", "--set", "participation.cohort=30", "--quiet"];
    let of = |name: &str, args: &[&str]| {
        let all: Vec<&str> = ["audit", name].iter().chain(args).chain(&few).chain(&SMALL).copied().collect();
        answer(folder.path(), &all)
    };
    let hill = of("hill", &["--pairs", "1", "--texts", "200", "--words", "4"]);
    assert_eq!(hill["details"]["compared"].as_array().unwrap().len(), 2);
    let canary = of("canary", &["--plant", "1x1,5x4", "--each", "20", "--references", "200"]);
    assert!(canary["details"]["exposure_private"].is_f64() && canary["details"]["trained_private"].is_u64());
    let members = of("membership", &["--users", "50"]);
    assert!(members["details"]["private"]["area"].as_f64().is_some(), "{members}");
    let one = of("one-run", &["--canaries", "30"]);
    assert_eq!(one["confidence"], 0.999);
}
