//! `cargo xtask test --portable`: the crates that phones and browsers run, tested with the vectors of those machines.
//!
//! | target                      | vectors | runs under                           |
//! |-----------------------------|---------|--------------------------------------|
//! | `aarch64-unknown-linux-gnu` | NEON    | `qemu-aarch64`                       |
//! | `wasm32-wasip1`             | simd128 | Node, by `wasi.mjs` beside this file |
//!
//! The builds have the profile `ci` and lie in `target` beside this machine's, with which they share what runs while building.
//! What is short of it, [`Part::short`], is a step of every `cargo xtask test`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::packages::{self, Needed};
use crate::root;
use crate::step::{Step, Work, cargo};

/// A browser, where there is no operating system.
const BARE: &str = "wasm32-unknown-unknown";

/// The crates that are tested: those that `docs/ARCHITECTURE.md` says build for wasm.
const CRATES: [&str; 5] = ["device", "ledger", "lm", "privacy", "secagg"];

/// A machine that is not this one.
struct Target {
    triple: &'static str,
    /// What its vectors are called; the name of a step.
    vectors: &'static str,
    rustflags: &'static str,
    /// What compiles for it and stands in for it.
    needed: &'static [Needed],
    /// What a test binary is given to, in the folder of its crate.
    runner: &'static [&'static str],
    /// Files of tests, modules of a binary each, that take a minute or more there, or that cannot run there.
    left_out: &'static [&'static str],
}

/// The emulator is slow, so the longest tests of the accountants and of secure aggregation are left out, which use no vectors
/// of ours: a golden transcript has whole rounds. `guard_crash` and `guard_file` start this very test as another process, which
/// an emulator of one process cannot.
const NEON: Target = Target {
    triple: "aarch64-unknown-linux-gnu",
    vectors: "neon",
    rustflags: "-C linker=aarch64-linux-gnu-gcc",
    needed: &[
        Needed::command("aarch64-linux-gnu-gcc", &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]),
        Needed::command("qemu-aarch64", &["qemu-user"]),
    ],
    runner: &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
    left_out: &[
        "collusion",
        "contract",
        "decoders",
        "factorization",
        "guard_crash",
        "guard_file",
        "properties",
        "scale",
        "sum",
        "tight",
        "traffic",
    ],
};

/// `collusion` takes minutes, and `scale` is many threads, of which there are none. Node warns that its WASI is experimental;
/// its fast calls into WASI crash it (nodejs/node#46777).
const SIMD128: Target = Target {
    triple: "wasm32-wasip1",
    vectors: "simd128",
    rustflags: "-C target-feature=+simd128",
    needed: &[Needed::command("node", &["nodejs"])],
    runner: &["node", "--no-warnings", "--no-turbo-fast-api-calls", "../../xtask/src/wasi.mjs"],
    left_out: &["collusion", "scale"],
};

/// Unit tests that try every lie of a server, and every arc of a ring: minutes there, and none of it is arithmetic.
const SKIPPED: [&str; 2] = ["client::lies", "client::splits"];

/// What is not optimised for the tests that run every time: accountants, transforms, ledgers, and the arithmetic of a few small sums.
const PLAIN: [&str; 5] = ["keyhush-fourier", "keyhush-ledger", "keyhush-privacy", "keyhush-secagg", "rustfft"];

/// Which tests; all of them are built and run by one call of cargo.
struct Part {
    crates: &'static [&'static str],
    /// `--lib`, and the binaries of `tests/`.
    targets: Vec<String>,
    /// What stands in the names of those that do not run.
    skipped: Vec<String>,
    /// Packages that are not optimised: these tests have them compute little, and compiling them well takes most of the time.
    plain: &'static [&'static str],
}

impl Part {
    fn unit_tests() -> Self {
        Self {
            crates: &CRATES,
            targets: vec!["--lib".to_owned()],
            skipped: SKIPPED.map(str::to_owned).into(),
            plain: &[],
        }
    }

    /// All files of tests that run on a target.
    fn files(target: &Target) -> Self {
        let skipped = target.left_out.iter().map(|file| format!("{file}::")).collect();
        Self { crates: &CRATES, targets: vec!["--test=*".to_owned()], skipped, plain: &[] }
    }

    /// What fits into every `cargo xtask test`, its build included: the kernels against the slow model and against PyTorch on
    /// both; in WebAssembly also local training, one user's part of a round, and whole rounds of secure aggregation. Each is
    /// a binary of its own, so that nothing else is built for it.
    fn short(target: &Target) -> Self {
        let (crates, binaries): (&[&str], &[&str]) = match target.triple == NEON.triple {
            true => (&["lm"], &["kernels"]),
            false => (&["device", "lm", "secagg"], &["kernels", "training", "transcript"]),
        };
        let targets = binaries.iter().map(|name| format!("--test={name}")).collect();
        Self { crates, targets, skipped: Vec::new(), plain: &PLAIN }
    }
}

pub(crate) fn steps() -> Vec<Step> {
    vec![
        Step { name: "packages", work: Work::Call(install_packages) },
        Step { name: "targets", work: Work::Call(add_targets) },
        Step { name: "browser", work: Work::Call(|| for_browsers("build")) },
        Step { name: NEON.vectors, work: Work::Call(|| test_all_on(&NEON)) },
        Step { name: SIMD128.vectors, work: Work::Call(|| test_all_on(&SIMD128)) },
    ]
}

/// `cc` links what runs while building; the rest is the targets' own.
fn install_packages() -> Result<()> {
    packages::install_missing(&[Needed::command("cc", &["gcc", "libc6-dev"])])?;
    [NEON, SIMD128].iter().try_for_each(|target| packages::install_missing(target.needed))
}

/// The short part, on each target whose tools and standard library are there or can be brought. Where they cannot, that is
/// said, and is no failure; where they are there, a test that fails is one.
pub(crate) fn test_short() -> Result<()> {
    for target in [NEON, SIMD128] {
        if let Err(missing) = packages::install_missing(target.needed) {
            println!("not tested for {}: {missing:#}", target.triple);
        } else if !has_or_gets(target.triple) {
            println!("not tested: the toolchain lacks {}, and rustup did not bring it", target.triple);
        } else {
            test_on(&target, &Part::short(&target))?;
        }
    }
    Ok(())
}

/// Makes sure that the toolchain has the standard library of every target.
fn add_targets() -> Result<()> {
    for triple in [NEON.triple, SIMD128.triple, BARE] {
        if !has_or_gets(triple) {
            bail!(
                "the toolchain lacks the target {triple}, and `rustup target add {triple}` did not bring it: \
                 it needs rustup and the network, or a mirror named in RUSTUP_DIST_SERVER"
            );
        }
    }
    Ok(())
}

pub(crate) fn has_or_gets(triple: &str) -> bool {
    if has_target(triple) {
        println!("all there: {triple}");
        return true;
    }
    println!("missing: {triple}; running rustup target add {triple}");
    Command::new("rustup").args(["target", "add", triple]).status().is_ok_and(|s| s.success())
}

/// What a browser runs must build without an operating system, and so without what draws randomness from one. With every test
/// it is checked, which is everything but making code; `--portable` builds it. Where there is no rustup to bring the target,
/// that is said, and is no failure.
pub(crate) fn check_for_browsers() -> Result<()> {
    if !has_or_gets(BARE) {
        println!("not checked: the toolchain lacks {BARE}, and rustup did not bring it");
        return Ok(());
    }
    for_browsers("check")
}

/// `cargo check` or `cargo build` of the crates, as libraries and without features.
fn for_browsers(verb: &'static str) -> Result<()> {
    let mut arguments: Vec<String> =
        [verb, "--locked", "--profile", "ci", "--lib", "--no-default-features", "--target", BARE]
            .map(str::to_owned)
            .into();
    arguments.extend(packages_of(&CRATES));
    let status = cargo().args(&arguments).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo {}: {status}", arguments.join(" "));
    }
    Ok(())
}

fn packages_of(crates: &[&str]) -> impl Iterator<Item = String> {
    crates.iter().map(|member| format!("--package=keyhush-{member}"))
}

fn has_target(triple: &str) -> bool {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let out = rustc.args(["--print", "target-libdir", "--target", triple]).current_dir(root()).output();
    out.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
}

fn test_all_on(target: &Target) -> Result<()> {
    test_on(target, &Part::unit_tests())?;
    test_on(target, &Part::files(target))
}

fn test_on(target: &Target, part: &Part) -> Result<()> {
    let mut command = cargo();
    command.args(arguments(target, part));
    // Flags of the person's own would take the place of these, and the vectors with them.
    command.env("RUSTFLAGS", target.rustflags).env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = command.status().context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo test --target {}: {status}", target.triple);
    }
    Ok(())
}

/// What cargo is told.
fn arguments(target: &Target, part: &Part) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["test", "--profile", "ci", "--locked", "--no-fail-fast", "--target", target.triple].map(str::to_owned).into();
    arguments.extend(["--config".to_owned(), format!("target.{}.runner={:?}", target.triple, target.runner)]);
    for package in part.plain {
        arguments.extend(["--config".to_owned(), format!("profile.ci.package.{package}.opt-level=0")]);
    }
    arguments.extend(packages_of(part.crates));
    arguments.extend(part.targets.iter().cloned());
    arguments.push("--".to_owned());
    arguments.extend(part.skipped.iter().map(|name| format!("--skip={name}")));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of tests of the crates that are called so.
    fn files_called(name: &str) -> usize {
        let folders = CRATES.map(|member| root().join("crates").join(member).join("tests"));
        folders.iter().filter(|folder| folder.join(format!("{name}.rs")).is_file()).count()
    }

    #[test]
    fn what_is_left_out_is_there() {
        for name in [NEON, SIMD128].iter().flat_map(|target| target.left_out) {
            assert!(files_called(name) > 0, "{name} is left out and no longer exists");
        }
    }

    #[test]
    fn what_runs_with_every_test_is_there_and_of_crates_that_are_tested() {
        for target in [NEON, SIMD128] {
            let short = Part::short(&target);
            assert!(short.crates.iter().all(|member| CRATES.contains(member)));
            let names = short.targets.iter().map(|target| target.strip_prefix("--test=").unwrap());
            names.for_each(|name| assert_eq!(files_called(name), 1, "{name}"));
        }
    }

    #[test]
    fn unit_tests_and_files_leave_out_what_takes_minutes() {
        let line = |part| arguments(&SIMD128, &part).join(" ");
        assert!(line(Part::unit_tests()).ends_with(" --lib -- --skip=client::lies --skip=client::splits"));
        assert!(line(Part::files(&SIMD128)).ends_with(" --test=* -- --skip=collusion:: --skip=scale::"));
    }

    #[test]
    fn cargo_is_told_target_runner_and_tests() {
        let targets = vec!["--lib".to_owned(), "--test=kernels".to_owned()];
        let part =
            Part { crates: &["lm", "secagg"], targets, skipped: vec!["client::lies".to_owned()], plain: &["rustfft"] };
        let line = |target| arguments(target, &part).join(" ");
        assert_eq!(
            line(&SIMD128),
            "test --profile ci --locked --no-fail-fast --target wasm32-wasip1 --config \
             target.wasm32-wasip1.runner=[\"node\", \"--no-warnings\", \"--no-turbo-fast-api-calls\", \
             \"../../xtask/src/wasi.mjs\"] --config profile.ci.package.rustfft.opt-level=0 --package=keyhush-lm --package=keyhush-secagg --lib --test=kernels -- \
             --skip=client::lies"
        );
        assert!(line(&NEON).contains("runner=[\"qemu-aarch64\", \"-L\", \"/usr/aarch64-linux-gnu\"]"));
    }

    #[test]
    fn a_target_that_nobody_has_is_missing() {
        assert!(!has_target("no-such-machine"));
    }
}
