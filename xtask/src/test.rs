//! `cargo xtask test`: the steps that must pass before a change is merged, each with its seconds.
//!
//! Everything is compiled with the profile `ci` by [`crate::compiler`], which also lints and documents. The step "build" makes the
//! libraries, the binaries that tests run, tests, benches and examples in one go; the test steps after it name the same packages, the
//! same profile and the same features, so cargo finds all of it fresh and compiles nothing again. Benches are not run. The slowest
//! tests are named at the end.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::compiler;
use crate::dist;
use crate::nvrtc;
use crate::packages::{self, Needed, What};
use crate::portable;
use crate::promtool;
use crate::slowest;
use crate::step::{Step, Work, cargo};

/// `cc` links every binary; `c++` runs kernels for cards on the host; `git` lists the files that the tidy test reads; `strace` kills the process that writes a
/// ledger at each of its syncs; `chromium` opens the pages. `mpicc` and libclang build the MPI fleet, `mpirun` runs it.
const NEEDED: &[Needed] = &[
    Needed::command("cc", &["gcc", "libc6-dev"]),
    Needed::command("c++", &["g++"]),
    Needed::command("git", &["git"]),
    Needed::command("strace", &["strace"]),
    // Of deployments: what systemd says of the unit, a server as confined as in it, certificates of an authority.
    Needed::command("systemd-analyze", &["systemd"]),
    Needed::command("bwrap", &["bubblewrap"]),
    Needed::command("openssl", &["openssl"]),
    Needed::command("chromium", &["chromium"]),
    Needed::command("mpicc", &["libopenmpi-dev"]),
    Needed::command("mpirun", &["openmpi-bin"]),
    Needed { what: What::LibClang, packages: &["libclang-dev"] },
];

/// The features that are off by default: what is tested has them all.
const FEATURES: &str = "--features=keyhush/full,keyhush/mpi,keyhush/insecure,keyhush-device/files";

/// The program as the README's first command builds it: what is compiled already has the same features, so that it is compiled again as
/// little as possible, and without those of the program itself, of `bench` and of `tracking`.
const FIRST_COMMAND: [&str; 6] = [
    "--exclude=keyhush-agent",
    "--exclude=keyhush-tracking",
    "--bin=keyhush",
    // With a test that is built already: cargo leaves out what dev-dependencies turn on where no test is asked for.
    "--test=http",
    "--features=keyhush-cluster/mpi,keyhush-corpus/parquet,keyhush-device/files,keyhush-secagg/insecure",
    "--locked",
];

/// Runs all steps in order and stops at the first that fails; the table of seconds comes in either case.
pub(crate) fn run(steps: Vec<Step>) -> Result<()> {
    let mut seconds = Vec::new();
    let (mut failed, mut slowest) = (None, String::new());
    for step in steps {
        println!("\n=== {} ===", heading(&step));
        let start = Instant::now();
        let outcome = perform(&step.work, &mut slowest);
        seconds.push((step.name, start.elapsed()));
        if let Err(error) = outcome {
            failed = Some((step.name, error));
            break;
        }
    }
    print!("\n{slowest}\n{}", table(&seconds));
    match failed {
        None => Ok(()),
        Some((name, error)) => Err(error.context(format!("the step \"{name}\" failed"))),
    }
}

/// What there is to do. Without nextest, which a machine with only Rust on it lacks, cargo's own runner does.
pub(crate) fn steps(long: bool) -> Vec<Step> {
    steps_with(long, has_subcommand("nextest"))
}

fn steps_with(long: bool, nextest: bool) -> Vec<Step> {
    const CI: [&str; 5] = ["--workspace", "--profile", "ci", "--locked", FEATURES];
    const TARGETS: [&str; 3] = ["--lib", "--bins", "--tests"];
    const NEXTEST: [&str; 8] =
        ["nextest", "run", "--no-fail-fast", "--workspace", "--cargo-profile", "ci", "--locked", FEATURES];
    let cargo = |name, parts: &[&[&'static str]]| Step { name, work: Work::Cargo { args: parts.concat() } };

    let tests: Vec<&[&str]> = match (nextest, long) {
        (true, false) => vec![&NEXTEST, &TARGETS],
        (true, true) => vec![&NEXTEST, &TARGETS, &["--run-ignored", "all"]],
        (false, false) => vec![&["test", "--tests", "--no-fail-fast"], &CI],
        (false, true) => vec![&["test", "--tests", "--no-fail-fast"], &CI, &["--", "--include-ignored"]],
    };
    vec![
        Step { name: "packages", work: Work::Call(|| packages::install_missing(NEEDED)) },
        Step { name: "nvrtc", work: Work::Call(nvrtc::install) },
        Step { name: "promtool", work: Work::Call(promtool::install) },
        Step { name: "components", work: Work::Call(components) },
        cargo("format", &[&["fmt", "--all", "--check"]]),
        Step { name: "compiler", work: Work::Call(compiler::install) },
        cargo("build", &[&["build", "--all-targets"], &CI]),
        match nextest {
            true => Step { name: "tests", work: Work::Nextest { args: tests.concat() } },
            false => cargo("tests", &tests),
        },
        cargo("doctests", &[&["test", "--doc"], &CI]),
        cargo("first command", &[&["build", "--workspace", "--profile", "ci"], &FIRST_COMMAND]),
        Step { name: "dist", work: Work::Call(dist::try_out) },
        Step { name: "browser", work: Work::Call(portable::check_for_browsers) },
        Step { name: "portable", work: Work::Call(portable::test_short) },
    ]
}

fn perform(work: &Work, slowest: &mut String) -> Result<()> {
    match work {
        Work::Call(function) => function(),
        Work::Nextest { args } => {
            let mut running = with_compiler()
                .args(args)
                .env("NEXTEST_TEST_THREADS", at_a_time().to_string())
                .stderr(Stdio::piped())
                .spawn()
                .context("cannot start cargo")?;
            let printed = running.stderr.take().context("what cargo prints cannot be read")?;
            *slowest = slowest::table(slowest::read(printed, std::io::stderr())?);
            let status = running.wait()?;
            if !status.success() {
                bail!("cargo {}: {status}", args.join(" "));
            }
            Ok(())
        }
        Work::Cargo { args } => {
            let status = with_compiler().args(args).status().context("cannot start cargo")?;
            if !status.success() {
                bail!("cargo {}: {status}", args.join(" "));
            }
            Ok(())
        }
    }
}

/// How many tests run at a time: many of them wait, for disks, timers and each other's processes, and so two for each processor.
fn at_a_time() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from)
}

/// Cargo with the compiler that lints and documents; in every step, since what another one compiled is not fresh.
fn with_compiler() -> Command {
    let mut command = cargo();
    command.env(compiler::VARIABLE, compiler::path());
    command
}

/// The two components of the toolchain that a minimal installation leaves out.
fn components() -> Result<()> {
    let missing: Vec<&str> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(subcommand, _)| !has_subcommand(subcommand))
        .map(|(_, component)| component)
        .collect();
    if !missing.is_empty() {
        bail!("the toolchain lacks {0}; run\n    rustup component add {0}", missing.join(" "));
    }
    println!("all there: rustfmt, clippy");
    Ok(())
}

pub(crate) fn has_subcommand(name: &str) -> bool {
    cargo().args([name, "--version"]).output().is_ok_and(|out| out.status.success())
}

fn heading(step: &Step) -> String {
    match &step.work {
        Work::Call(_) => step.name.to_owned(),
        Work::Cargo { args } | Work::Nextest { args } => format!("{}: cargo {}", step.name, args.join(" ")),
    }
}

fn table(seconds: &[(&str, Duration)]) -> String {
    let total: Duration = seconds.iter().map(|(_, spent)| *spent).sum();
    let row = |name: &str, spent: Duration| format!("{name:<14}{:>9.1}\n", spent.as_secs_f64());
    let rows: String = seconds.iter().map(|(name, spent)| row(name, *spent)).collect();
    format!("step            seconds\n{rows}{}", row("total", total))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(steps: &[Step], name: &str) -> String {
        steps.iter().find(|s| s.name == name).map(heading).unwrap()
    }

    #[test]
    fn every_compiling_step_is_locked_and_uses_the_profile_ci_with_all_features() {
        for (long, nextest) in [(false, false), (false, true), (true, false), (true, true)] {
            for step in steps_with(long, nextest) {
                let (Work::Cargo { args } | Work::Nextest { args }) = &step.work else { continue };
                if !["format", "first command"].contains(&step.name) {
                    let all = ["--locked", "ci", FEATURES].iter().all(|word| args.contains(word));
                    assert!(all, "{}", heading(&step));
                }
            }
        }
    }

    #[test]
    fn long_runs_the_ignored_tests_too() {
        assert!(!line(&steps_with(false, true), "tests").contains("ignored"));
        assert!(line(&steps_with(true, true), "tests").ends_with("--run-ignored all"));
        assert!(line(&steps_with(true, false), "tests").ends_with("-- --include-ignored"));
    }

    #[test]
    fn benches_are_built_and_never_run() {
        let steps = steps_with(true, false);
        assert!(line(&steps, "build").contains("--all-targets"));
        assert!(!steps.iter().any(|s| heading(s).contains("cargo bench")));
        assert!(!line(&steps, "tests").contains("--all-targets"));
    }

    #[test]
    fn the_table_has_every_step_and_the_total() {
        let text = table(&[("format", Duration::from_millis(1500)), ("build", Duration::from_secs(60))]);
        assert_eq!(
            text,
            "step            seconds\nformat              1.5\nbuild              60.0\ntotal              61.5\n"
        );
    }
}
