//! `keyhush predict` with lines instead of a terminal, and `keyhush bench predict`.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::model_story::Story;
use serde_json::Value;

#[test]
fn each_line_is_answered_by_suggestions() {
    let story = Story::new();
    story.out("ngram --text text.txt --out model");
    let lines = "\nThe cat sat on the \nThe cat sat on the L\nA dog ca\nA dog CAN’\nzzz\n";
    let answer = story.answer("predict --model model --suggestions 2", lines);
    let rows: Vec<Vec<&str>> = answer.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows[0], ["the", "a"], "how a line begins");
    assert_eq!(rows[1], ["log", "mat"]);
    assert_eq!(rows[2], ["log"], "capitals and letters narrow it down");
    assert_eq!(rows[3], ["can't", "cat"]);
    assert_eq!(rows[4], ["can't"], "an apostrophe is one however it is typed");
    assert_eq!(rows[5], [""], "nothing begins like this");
    assert_eq!(rows.len(), 6);
}

#[test]
fn probabilities_come_as_json() {
    let story = Story::new();
    story.out("ngram --text text.txt --out model");
    let answer = story.answer("predict --model model --json", "the dog sat\n");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["typed"], "the dog sat");
    assert_eq!(answer["suggestions"][0]["word"], "sat");
    let probability = answer["suggestions"][0]["probability"].as_f64().unwrap();
    assert!(probability > 0.2 && probability < 1.0, "{probability}");
}

#[test]
fn bad_input_is_named() {
    let story = Story::new();
    story.out("ngram --text text.txt --out model");
    let (code, message) = story.error("predict --model model --suggestions 10");
    assert_eq!((code, message.as_str()), (2, "error: --suggestions: must be from 1 to 9, got 10\n"));
    let (code, message) = story.error("predict --model text.txt");
    assert_eq!((code, message.as_str()), (2, "error: --model: folder text.txt does not exist\n"));
}

/// A keyboard's prediction takes little time and memory; the numbers themselves are measured by hand, on a quiet machine.
#[test]
fn the_bench_types_with_presets_and_folders() {
    let story = Story::new();
    let answer = story.json("bench predict --model gboard --words 30");
    assert!(answer["ms_per_prediction"].as_f64().unwrap() > 0.0);
    if let Some(peak) = answer["peak_mb"].as_f64() {
        assert!(peak > 9.0 && peak < 40.0, "gboard has 9.5 MB of parameters, in memory once: {peak}");
    }
    story.out("ngram --text text.txt --out model");
    for model in ["model", "shakespeare", "mcmahan2018-gru"] {
        assert_eq!(story.json(&format!("bench predict --model {model} --words 5"))["words"], 5);
    }
    let (code, message) = story.error("bench predict --model nothing");
    assert!(code == 2 && message.starts_with("error: --model: no model is called \"nothing\""), "{message}");
}
