//! `keyhush distil` as a user calls it.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use serde_json::Value;

use crate::toy::Toy;

#[test]
fn one_model_is_made_of_released_ones_and_costs_what_they_cost() {
    let toy = Toy::new();
    for (run, seed) in [("a", "data.seed=1"), ("b", "data.seed=2")] {
        toy.ok(&["train", "run.toml", "--set", "noise_seed=", "--set", seed, "--out", run, "-q"]);
    }
    toy.ok(&["train", "run.toml", "--out", "simulated", "-q"]);
    let said = toy.ok(&["distil", "a", "b", "--tokens", "300", "--epochs", "2", "--out", "distilled"]);
    assert!(
        said.contains("even for a person who took part in all 2 runs") && said.contains("Model: distilled"),
        "{said}"
    );
    let composed: Value = serde_json::from_str(&toy.ok(&["privacy", "compose", "a", "b", "--json"])).unwrap();
    toy.write("public.txt", "the first post\nand a second one\n");
    let taught = ["distil", "a", "b", "--text", "public.txt", "--epochs", "1", "--out", "real", "--json"];
    let cost: Value = serde_json::from_str(&toy.ok(&taught)).unwrap();
    assert_eq!(cost["epsilon"], composed["epsilon"]);
    assert_eq!((&cost["delta"], &cost["models"]), (&composed["delta"], &Value::from(2)));
    for model in ["distilled", "real"] {
        toy.ok(&["eval", "--model", model, "--text", "public.txt"]);
    }
    let old = ["--set", "model.vocabulary=", "--set", "model.hidden=", "--set", "model.embedding="];
    let from = ["train", "run.toml", "--from", "distilled", "--public", "no", "--out", "c", "-q"];
    let again = toy.refused(&[&from[..], &old].concat());
    assert!(again.contains("distilled from several private models"), "{again}");

    let said = toy.ok(&["distil", "a", "simulated", "--epochs", "0", "--out", "nothing"]);
    assert!(said.starts_with("No guarantee: noise was simulated"), "{said}");
    for (arguments, want) in [
        (&["distil", "a", "--out", "a/distilled"][..], "--out: is in the folder of a run"),
        (&["distil", "a/model", "--out", "c"], "it has no ledger"),
        (&["distil", "a", "--text", "none.txt", "--out", "c"], "--text: none.txt"),
        (&["distil", "a", "--epochs", "1", "--batch", "0", "--out", "c"], "--batch"),
    ] {
        let said = toy.refused(arguments);
        assert!(said.contains(want), "{want}: {said}");
    }
}
