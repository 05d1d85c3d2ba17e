//! Whole commands: what is typed, what comes out, how it exits.

use std::process::Stdio;

use crate::toy::Toy;

#[test]
fn commands_answer_as_written_down() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}

/// `keyhush init --json | head -3` ended with a panic: `println!` does so when nobody reads any more.
#[test]
fn output_that_nobody_reads_ends_the_program_quietly() {
    let toy = Toy::new();
    let mut child =
        toy.command(&["init", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// Separate runs on the same users cost more than either and less than both epsilons together.
#[test]
fn ledgers_of_separate_runs_are_composed() {
    let toy = Toy::new();
    for name in ["a", "b"] {
        toy.ok(&["train", "run.toml", "--set", "noise_seed=", "--set", "rounds=4", "--out", name, "--quiet"]);
    }
    let number = |line: &[&str], pointer: &str| {
        let answer: serde_json::Value = serde_json::from_str(&toy.ok(line)).unwrap();
        answer.pointer(pointer).and_then(serde_json::Value::as_f64).unwrap_or_else(|| panic!("{answer:#}"))
    };
    let one = number(&["privacy", "statement", "a", "--json"], "/guarantee/epsilon");
    let both = ["privacy", "compose", "a", "b", "--json"];
    let epsilon = number(&both, "/epsilon");
    assert!(epsilon > 1.05 * one && epsilon <= 2.0 * one, "{epsilon} of {one} each");
    assert_eq!(number(&both, "/ledgers"), 2.0);
    let words = toy.ok(&both[..4]);
    let lines: Vec<&str> = words.lines().collect();
    assert!(lines[0] == "ledgers           2" && lines[1].starts_with("epsilon           "), "{words}");
    assert!(words.contains("a user who is in all of these runs"), "{words}");
    let looser = number(&[&both[..], &["--delta", "1e-3"]].concat(), "/epsilon");
    assert!(looser < epsilon, "{looser}");
}

/// Help had lines as long as they were written.
#[test]
fn help_fits_the_width_of_the_terminal() {
    let toy = Toy::new();
    for (columns, at_most) in [("60", 60), ("90", 90), ("400", 110)] {
        let mut command = toy.command(&["train", "--help"]);
        let output = command.env("COLUMNS", columns).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let longest = help.lines().max_by_key(|line| line.chars().count()).unwrap();
        let length = longest.chars().count();
        assert!(length <= at_most && length > at_most - 30, "{columns} columns, {length}: {longest}");
    }
}
