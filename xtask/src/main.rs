//! The chores of the project: `cargo xtask test`, `cargo xtask mutants`, `cargo xtask fuzz`, `cargo xtask bench NAME` and `cargo xtask dist`.

// This program talks to a person at a terminal; printing is its job.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod compiler;
mod dist;
mod fuzz;
mod mutants;
mod nvrtc;
mod packages;
mod portable;
mod promtool;
mod slowest;
mod step;
mod test;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const HELP: &str = "\
cargo xtask test [--long]        everything that must hold before a change is merged
                                 --long also runs the tests marked #[ignore]
cargo xtask test --portable      instead: the tests of device, ledger, lm, privacy and secagg for aarch64 (NEON) under
                                 qemu and for WebAssembly (simd128) under Node, all but the longest; a short part of
                                 them runs with every test
cargo xtask mutants [NAME ...]   plants known bugs in a copy of the tree, all of them or these, one at a time, and says
                                 which no test notices; --list says what there is, --json prints for programs
cargo xtask fuzz [TARGET]        feeds made-up messages to every decoder of devices and their sums, or to one target,
                 [--seconds N]   for a minute each or for N seconds; fuzz/README.md says more
cargo xtask bench NAME [ARGS]    runs bench/NAME/run.sh with ARGS
cargo xtask dist [MACHINE ...]   the files of a release, for x86_64 and aarch64, into target/packages; docs/RELEASING.md says more
  --check-reproducible           makes them twice, in two folders, and says whether they are the same
  --pack                         packs the program that tests use, as every test does, and reads the files again
  --test                         installs and runs those that were made; as root, since it makes clean Debian systems
cargo xtask help                 this text
";

fn main() -> ExitCode {
    if compiler::is_this() {
        return compiler::run();
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["test"] => test::run(test::steps(false)),
        ["test", "--long"] => test::run(test::steps(true)),
        ["test", "--portable"] => test::run(portable::steps()),
        ["fuzz", rest @ ..] => match fuzz::Asked::parse(rest) {
            Some(asked) => fuzz::run(&asked),
            None => return unknown(&words),
        },
        ["mutants", rest @ ..] => match mutants::Asked::parse(rest) {
            Some(asked) => mutants::run(&asked),
            None => return unknown(&words),
        },
        ["dist", rest @ ..] => match dist::Asked::parse(rest) {
            Some(asked) => dist::run(&asked),
            None => return unknown(&words),
        },
        ["bench", name, rest @ ..] if !name.starts_with('-') => bench(name, rest),
        _ => return unknown(&words),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn unknown(words: &[&str]) -> ExitCode {
    eprint!("xtask does not know `{}`\n\n{HELP}", words.join(" "));
    ExitCode::from(2)
}

/// Runs `bench/NAME/run.sh`, which prepares what it compares with and measures.
fn bench(name: &str, args: &[&str]) -> Result<()> {
    let folder = root().join("bench");
    let script = folder.join(name).join("run.sh");
    if !script.is_file() {
        bail!("there is no bench/{name}/run.sh; there are: {}", benches(&folder).join(", "));
    }
    let status = Command::new("bash").arg(&script).args(args).current_dir(root()).status();
    let status = status.with_context(|| format!("cannot start {}", script.display()))?;
    if !status.success() {
        bail!("bench/{name}/run.sh: {status}");
    }
    Ok(())
}

/// The folders of `bench/` that have a `run.sh`.
fn benches(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let with_script = entries.filter(|e| e.path().join("run.sh").is_file());
    let mut names: Vec<String> = with_script.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The root of the workspace.
fn root() -> PathBuf {
    let manifest_dir =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest_dir.parent().map_or_else(PathBuf::new, PathBuf::from)
}
