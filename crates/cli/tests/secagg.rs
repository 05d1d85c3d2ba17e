//! `keyhush bench secagg`: what it prints and what it refuses, with vectors that take no time.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::process::{Command, Output};

use serde_json::Value;

fn secagg(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_keyhush")).args(["bench", "secagg"]).args(flags).output().unwrap()
}

fn answer(flags: &[&str]) -> Value {
    let output = secagg(&[flags, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(answer: &Value, path: &str) -> f64 {
    answer.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {answer}"))
}

const SMALL: [&str; 6] = ["--clients", "40", "--dimension", "3000", "--corrupted", "0.2"];

#[test]
fn a_round_is_exact_and_its_numbers_are_of_one_piece() {
    let answer = answer(&[&SMALL[..], &["--dropout", "0.1", "--threads", "2"]].concat());
    assert_eq!(answer["exact"], true);
    assert_eq!(answer["insecure"], false);
    assert_eq!((number(&answer, "/survivors"), number(&answer, "/dropped")), (36.0, 4.0));
    // The survivors' own masks, and one for each of the four who vanished and each neighbour that did not.
    let of_pairs = number(&answer, "/masks") - 36.0;
    let degree = number(&answer, "/degree");
    assert!((4.0 * (degree - 3.0)..=4.0 * degree).contains(&of_pairs), "{of_pairs} with {degree} neighbours");
    let steps = ["keys", "shares", "deliver", "mask", "unmask"];
    let means: f64 = steps.iter().map(|step| number(&answer, &format!("/client/{step}/mean_s"))).sum();
    assert!((means / number(&answer, "/client/total_s") - 1.0).abs() < 1e-9);
    assert!(steps.iter().all(|step| number(&answer, &format!("/client/{step}/max_s")) > 0.0));
    let steps = ["keys", "directory", "route", "add", "answers", "unmask"];
    let parts: f64 = steps.iter().map(|step| number(&answer, &format!("/server/{step}_s"))).sum();
    assert!((parts / number(&answer, "/server/total_s") - 1.0).abs() < 1e-9);
    let both = number(&answer, "/server/reconstruct_s") + number(&answer, "/server/expand_s");
    assert!(both > 0.0 && both < number(&answer, "/server/unmask_s"));
    // 40 inputs up to 2 * 81 are sums of 13 bits; 3000 coordinates and the padding are three blocks of 1024.
    assert_eq!((number(&answer, "/largest"), number(&answer, "/bits")), (162.0, 13.0));
    let up = number(&answer, "/bytes/input/up");
    assert!((0.0..100.0).contains(&(up - f64::from(3 * 1024 * 13 / 8))), "{up}");
}

#[test]
fn the_sum_is_exact_wherever_clients_vanish() {
    let masks_and_survivors = |vanish_at| {
        let flags = [&SMALL[..], &["--dropout", "0.1", "--vanish-at", vanish_at]].concat();
        let answer = answer(&flags);
        assert_eq!(answer["exact"], true);
        (number(&answer, "/masks"), number(&answer, "/survivors"))
    };
    assert_eq!(masks_and_survivors("shares"), (36.0, 36.0));
    assert_eq!(masks_and_survivors("unmask"), (40.0, 40.0));
}

#[test]
fn clients_agree_where_the_server_is_not_taken_at_its_word() {
    let answer = answer(&[&SMALL[..], &["--dropout", "0.05", "--adversary", "semi-malicious"]].concat());
    assert_eq!(answer["exact"], true);
    assert!(number(&answer, "/client/agree/mean_s") > 0.0);
    assert_eq!((number(&answer, "/committee"), number(&answer, "/quorum")), (40.0, 25.0), "all sign");
    assert_eq!(number(&answer, "/bytes/agree/up"), 35.0 + 64.0, "a signature");
    assert!(number(&answer, "/bytes/unmask/down") > 25.0 * 64.0, "those of a quorum");
}

#[cfg(feature = "insecure")]
#[test]
fn a_degree_of_ones_own_is_marked_insecure() {
    let flags = [&SMALL[..4], &["--degree", "8", "--threshold", "5", "--dropout", "0.05"]].concat();
    let whole = answer(&flags);
    assert_eq!((number(&whole, "/degree"), number(&whole, "/threshold")), (8.0, 5.0));
    assert_eq!(whole["insecure"], true);
    let printed = String::from_utf8(secagg(&flags).stdout).unwrap();
    assert!(printed.contains("INSECURE"), "{printed}");
    for (flags, problem) in
        [(&["--degree", "8"][..], "--threshold"), (&["--clients", "40", "--degree", "7", "--threshold", "5"], "7")]
    {
        let output = secagg(flags);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(problem), "{flags:?}");
    }
}

/// What people install has no way to choose a graph that protects nothing.
#[cfg(not(feature = "insecure"))]
#[test]
fn no_degree_of_ones_own_can_be_chosen() {
    let output = secagg(&["--degree", "8", "--threshold", "5"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("unexpected argument '--degree'"));
}

#[test]
fn a_sample_of_the_masks_says_that_it_is_one() {
    let flags = ["--clients", "1000", "--dimension", "5000", "--streams-sample", "100"];
    let sample = answer(&flags);
    // 950 survivors; 50 vanished with 78 neighbours, of whom 950 in 999 are alive.
    assert_eq!((number(&sample, "/streams"), number(&sample, "/streams_measured")), (4659.0, 100.0));
    let pace = number(&sample, "/measured_cpu_s") * 46.59;
    assert!((number(&sample, "/extrapolated_cpu_s") / pace - 1.0).abs() < 1e-9);
    assert!(sample.get("exact").is_none(), "nothing was summed");
    let printed = String::from_utf8(secagg(&flags).stdout).unwrap();
    assert!(printed.contains("extrapolated"), "{printed}");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let refusals: [(&[&str], &str); 10] = [
        (&["--clients", "2"], "3"),
        (&["--dimension", "0"], "--dimension must be at least 1"),
        (&["--dimension", "4294967295"], "dimension"),
        (&["--threads", "0"], "must be from 1 to 1024, got 0"),
        (&["--dropout", "1.5"], "drop"),
        (&["--corrupted", "-0.1"], ""),
        (&["--dropout", "0.4", "--adversary", "semi-malicious"], ""),
        (&["--adversary", "benign"], "benign"),
        (&["--bits", "3"], "--bits: "),
        (&["--streams-sample", "0"], "--streams-sample: must be from 1 to"),
    ];
    for (flags, problem) in refusals {
        let output = secagg(flags);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(problem), "{flags:?}: {said}");
    }
}
