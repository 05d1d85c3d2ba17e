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
