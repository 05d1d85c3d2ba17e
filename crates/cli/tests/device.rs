//! `keyhush bench device`: what it prints and what it refuses, with a model that takes no time.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::process::{Command, Output};

use serde_json::Value;

fn device(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_keyhush")).args(["bench", "device"]).args(flags).output().unwrap()
}

#[test]
fn numbers_are_those_of_the_work() {
    let answer = |flags: &[&str]| -> Value {
        let output = device(&[&["--model", "tiny", "--json"], flags].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let whole = answer(&[]);
    let number = |answer: &Value, field: &str| answer[field].as_f64().unwrap();
    let tokens = number(&whole, "tokens");
    assert!((3000.0..7000.0).contains(&tokens), "20 kB are some thousand tokens: {tokens}");
    assert_eq!(number(&whole, "bytes"), 20_000.0);
    assert_eq!(number(&whole, "steps"), (tokens / 10.0 / 20.0).ceil());
    assert!(number(&whole, "cpu_seconds") > 0.0 && number(&whole, "wall_seconds") > 0.0);
    assert!(number(&whole, "perplexity") < 1000.0, "it learns: the first guess is 1000");
    assert!(whole["paper_seconds"].is_null(), "the paper had another model");
    let half = answer(&["--bytes", "10000", "--batch", "5"]);
    assert!((0.35..0.65).contains(&(number(&half, "tokens") / tokens)));
    assert_eq!(number(&half, "steps"), (number(&half, "tokens") / 5.0 / 20.0).ceil());
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let refusals: [(&[&str], &str); 4] = [
        (&["--model", "shakespeare"], "--model: shakespeare is a character model"),
        (&["--model", "nobody"], "--model: no model is called"),
        (&["--model", "tiny", "--bytes", "10"], "--bytes: "),
        (&["--model", "tiny", "--unroll", "0"], "--unroll: must be from 1"),
    ];
    for (flags, problem) in refusals {
        let output = device(flags);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(problem), "{flags:?}: {said}");
    }
}
