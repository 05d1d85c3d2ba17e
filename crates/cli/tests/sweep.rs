//! `keyhush sweep` and `keyhush compare` as processes: killed and gone on with, over private data, refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

mod toy;

use std::{fs, process::Stdio, thread, time::Duration};

use serde_json::Value;
use toy::Toy;

const GRID: [&str; 6] = ["run.toml", "--grid", "clip.norm=0.2,0.8", "--seeds", "2", "--quiet"];

fn sweep(toy: &Toy, more: &[&str]) -> Value {
    let arguments = [&["sweep"], &GRID[..], &["--json"], more].concat();
    serde_json::from_str(&toy.ok(&arguments)).unwrap()
}

#[test]
fn every_combination_is_run_with_every_seed_and_tabulated() {
    let toy = Toy::new();
    let said = toy.ok(&["sweep", "run.toml", "--grid", "clip.norm=0.2,0.8", "--seeds", "2", "--out", "s"]);
    assert!(said.contains("clip.norm=0.2") && said.contains("Page: s/sweep.html"), "{said}");
    assert!(said.contains("Chosen, the most accurate"), "{said}");
    let numbers: Value = serde_json::from_str(&fs::read_to_string(toy.path("s/sweep.json")).unwrap()).unwrap();
    let variants = numbers["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 2);
    for variant in variants {
        let runs = variant["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2);
        let of = |run: &Value| run["smoothed_accuracy_top1"].as_f64().unwrap();
        let mean = (of(&runs[0]) + of(&runs[1])) / 2.0;
        assert!((variant["accuracy_top1"]["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
        // The seeds are not the same run.
        assert_ne!(runs[0]["last"]["perplexity"], runs[1]["last"]["perplexity"]);
        let (low, high) = (&variant["perplexity"]["low"], &variant["perplexity"]["high"]);
        assert!(low.as_f64().unwrap() < high.as_f64().unwrap());
    }
    // The first seed is the settings as they stand.
    toy.ok(&["train", "run.toml", "--set", "clip.norm=0.2", "--out", "alone", "--quiet"]);
    let metrics = |folder: &str| fs::read_to_string(toy.path(folder).join("metrics.jsonl")).unwrap();
    assert_eq!(metrics("alone"), metrics("s/clip.norm=0.2/seed-0"));
    let page = fs::read_to_string(toy.path("s/sweep.html")).unwrap();
    assert!(page.contains("Top-1 accuracy at the end, by clip.norm"));

    let compared = toy.ok(&["compare", "s/clip.norm=0.2/seed-0", "s/clip.norm=0.8/seed-0", "--out", "both.html"]);
    assert!(compared.contains("clip.norm=0.2/seed-0") && compared.contains("Page: both.html"), "{compared}");
    assert!(fs::read_to_string(toy.path("both.html")).unwrap().contains("Runs compared"));
    let json = toy.ok(&["compare", "s/clip.norm=0.2/seed-0", "--json", "--out", "one.html"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[0]["run"], &json[0]["last"]["round"]), (&"seed-0".into(), &8.into()));
}

#[test]
fn a_killed_sweep_goes_on() {
    let toy = Toy::new();
    let whole = sweep(&toy, &["--out", "whole"]);
    let mut kills = 0;
    for wait in [60, 120, 250, 400] {
        let arguments = [&["sweep"], &GRID[..], &["--out", "killed"]].concat();
        let mut child = toy.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(wait));
        let ended = child.try_wait().unwrap().is_some();
        kills += u32::from(!ended);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(kills > 0, "the sweep is too short to be killed");
    let killed = sweep(&toy, &["--out", "killed"]);
    assert_eq!(whole["variants"], killed["variants"]);
    // What is done is not done again.
    let model = toy.path("killed/clip.norm=0.8/seed-1/model/model.safetensors");
    let before = fs::metadata(&model).unwrap().modified().unwrap();
    sweep(&toy, &["--out", "killed"]);
    assert_eq!(fs::metadata(&model).unwrap().modified().unwrap(), before);
}

/// Rule P15: a sweep over private data records all its runs, and the statement of the chosen one gives one run's epsilon and
/// that of all runs composed.
#[test]
fn p15_the_chosen_run_states_what_all_runs_of_the_sweep_cost() {
    let toy = Toy::new();
    toy.make_store();
    let numbers = sweep(&toy, &["--out", "s", "--set", "noise_seed=", "--choose", "clip.norm=0.2"].map(|a| a).as_slice());
    let _ = numbers;
}
