//! `keyhush sweep` and `keyhush compare` as processes: killed and gone on with, over private data, refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{fs, process::Stdio, thread, time::Duration};

use crate::toy::Toy;
use ledger::statement::rounded_up;
use serde_json::Value;

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
        let of = |run: &Value| run["last"]["accuracy_top1"].as_f64().unwrap();
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
    // The noise can be repeated, and no epsilon is given as if it could not (rule P23).
    let variant = &numbers["variants"][0];
    assert!(variant.get("epsilon").is_none() && variant["epsilon_if_secret"]["mean"].as_f64().unwrap() > 0.0);
    assert!(variant["runs"][0]["last"].get("epsilon").is_none());
    assert!(page.contains("epsilon of one run, if secret") && said.contains("epsilon of one run, if secret"), "{said}");

    let compared = toy.ok(&["compare", "s/clip.norm=0.2/seed-0", "s/clip.norm=0.8/seed-0", "--out", "both.html"]);
    assert!(compared.contains("clip.norm=0.2/seed-0") && compared.contains("Page: both.html"), "{compared}");
    assert!(fs::read_to_string(toy.path("both.html")).unwrap().contains("Runs compared"));
    let json = toy.ok(&["compare", "s/clip.norm=0.2/seed-0", "--json", "--out", "one.html"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[0]["run"], &json[0]["last"]["round"]), (&"seed-0".into(), &8.into()));
    assert!(json[0]["stated"]["epsilon_if_secret"].is_number() && compared.contains("if the noise were secret"));
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

/// Rule P22: a model that was picked among several runs carries the cost of all of them wherever an epsilon stands. It carried
/// that of one: 4.85 in the card, the report and the sentence, where the choice among four cost 9.34.
#[test]
fn p22_the_chosen_run_carries_what_all_runs_of_the_sweep_cost() {
    let toy = Toy::new();
    toy.make_store();
    let sweep = |more: &[&str]| -> Value {
        let arguments = ["sweep", "store.toml", "--grid", "clip.norm=0.2,0.8", "--out", "s", "--json", "--quiet"];
        serde_json::from_str(&toy.ok(&[&arguments, more].concat())).unwrap()
    };
    let guarantee = |chosen: &Value| -> Value {
        let statement = toy.read(&format!("s/{}/statement.json", chosen["folder"].as_str().unwrap()));
        serde_json::from_str::<Value>(&statement).unwrap()["guarantee"].clone()
    };
    let first = sweep(&["--seeds", "2", "--choose", "clip.norm=0.2"]);
    let of_first = guarantee(&first["chosen"]);
    let number = |value: &Value| value.as_f64().unwrap();
    let (one, all) = (number(&of_first["epsilon_of_this_run_alone"]), number(&of_first["epsilon"]));
    assert_eq!((of_first["sweep_runs"].as_u64(), &of_first["holds"]), (Some(3), &true.into()));
    assert!(0.0 < one && 1.5 * one < all, "{one} {all}");
    assert_eq!(number(&first["chosen"]["ending"]["epsilon"]), all);
    // Of one run there is only what is called so.
    assert!((number(&first["variants"][0]["epsilon_of_one_run"]["mean"]) / one - 1.0).abs() < 1e-6);
    assert!(first["variants"][0].get("epsilon").is_none());
    let folder = first["chosen"]["folder"].as_str().unwrap();
    assert!(folder.starts_with("clip.norm=0.2/"), "{folder}");
    let (one, together) = (rounded_up(one), rounded_up(all));
    let pair = format!("({together}, 1e-3)");
    let counted = "all 4 runs of its sweep counted";
    let note = first["chosen"]["note"].as_str().unwrap();
    let sentence = first["chosen"]["ending"]["sentence"].as_str().unwrap();
    let read = |name: &str| toy.read(&format!("s/{folder}/{name}"));
    let (card, statement) = (read("model/README.md"), read("statement.md"));
    for (place, text) in [("note", note), ("sentence", sentence), ("card", &card), ("statement", &statement)] {
        assert!(text.contains(&pair) && text.contains(counted), "{place}: {text}");
        assert!(!text.contains(&format!("({one}, ")), "{place}: {text}");
    }
    let report = read("report.html");
    assert!(report.contains(&format!("<dt>Epsilon</dt><dd class=\"value\">{together}</dd>")), "{report}");
    assert!(report.contains(counted) && toy.read("s/sweep.html").contains(&pair));
    let weights = fs::read(toy.path(&format!("s/{folder}/model/model.safetensors"))).unwrap();
    let metadata = String::from_utf8_lossy(&weights[..weights.len().min(16_384)]).into_owned();
    assert!(metadata.contains(&format!("\"epsilon\":\"{together}\"")), "{metadata}");
    let compared = toy.ok(&["compare", &format!("s/{folder}"), "--out", "c.html"]);
    assert!(compared.contains(&together) && !compared.contains(&one), "{compared}");
    // The model names the ledger as it is now, and the ledger is as it says.
    let ledger = format!("s/{folder}/ledger.jsonl");
    let head = first["chosen"]["ending"]["ledger_head"].as_str().unwrap().to_owned();
    assert!(card.contains(&head));
    toy.ok(&["privacy", "verify", "--ledger", &ledger, "--head", &head]);
    // Done again nothing is counted twice, and who is chosen instead has all of it too.
    assert_eq!(guarantee(&sweep(&["--seeds", "2", "--choose", "clip.norm=0.2"])["chosen"]), of_first);
    let other = guarantee(&sweep(&["--seeds", "2", "--choose", "clip.norm=0.8"])["chosen"]);
    assert_eq!(other["sweep_runs"].as_u64(), Some(3));
    assert!((number(&other["epsilon"]) - all).abs() < 1e-6);
    assert_eq!(
        guarantee(&sweep(&["--seeds", "2", "--choose", "clip.norm=0.2"])["chosen"])["epsilon"],
        of_first["epsilon"]
    );
    // Runs of an earlier grid have looked at the same users.
    let more = toy.ok(&["sweep", "store.toml", "--grid", "clip.norm=3", "--out", "s", "--quiet"]);
    assert!(more.contains("all 5 runs of its sweep counted"), "{more}");
}

#[test]
fn p15_runs_that_do_not_compose_are_refused_before_any_work() {
    let toy = Toy::new();
    toy.make_store();
    let said = toy.refused(&["sweep", "store.toml", "--grid", "participation.kind=poisson,fixed-size", "--out", "s"]);
    assert!(said.contains("participation.kind=fixed-size") && said.contains("do not compose"), "{said}");
    assert!(!toy.path("s").exists());
}

#[test]
fn what_cannot_be_meant_is_refused_before_any_work() {
    let toy = Toy::new();
    for (arguments, want) in [
        (&["--grid", "clip.nrom=1,2"][..], "clip.nrom=1: clip.nrom: there is no such key (did you mean norm?)"),
        (&["--grid", "clip.norm=1,-2"], "clip.norm=-2: clip.norm: "),
        (&["--grid", "clip.norm=1,1"], "1 is given twice"),
        (&["--grid", "clip.norm"], "KEY=V1,V2"),
        (&["--seeds", "0"], "--seeds: must be at least 1"),
        (&["--grid", "clip.norm=1,2", "--choose", "clip.norm=3"], "--choose: no combination is called \"clip.norm=3\""),
    ] {
        let said = toy.refused(&[&["sweep", "run.toml", "--out", "s", "--quiet"], arguments].concat());
        assert!(said.contains(want), "{said}");
        assert!(!toy.path("s").exists(), "{arguments:?}");
    }
    toy.ok(&["sweep", "run.toml", "--set", "rounds=2", "--out", "s", "--quiet"]);
    let other = toy.refused(&["sweep", "run.toml", "--set", "rounds=3", "--out", "s", "--quiet"]);
    assert!(other.contains("s/as_given/seed-0 holds a run with different settings"), "{other}");
    let none = toy.refused(&["compare", "s"]);
    assert!(none.contains("s is not the folder of a run"), "{none}");
}
