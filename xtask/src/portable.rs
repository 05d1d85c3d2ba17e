//! `cargo xtask test --portable`: the crates that phones and browsers run, tested with the vectors of those machines.
//!
//! | target                      | vectors | runs under                           |
//! |-----------------------------|---------|--------------------------------------|
//! | `aarch64-unknown-linux-gnu` | NEON    | `qemu-aarch64`                       |
//! | `wasm32-wasip1`             | simd128 | Node, by `wasi.mjs` beside this file |
//!
//! The builds have their own folder, `target/portable`, and the profile `ci`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::packages::{self, Needed};
use crate::root;
use crate::test::{Step, Work, cargo};

/// The crates that are tested.
const CRATES: [&str; 4] = ["ledger", "lm", "privacy", "secagg"];

/// `cc` links what runs while building; the rest compiles for the other machines and stands in for them.
const NEEDED: &[Needed] = &[
    Needed::command("cc", &["gcc", "libc6-dev"]),
    Needed::command("aarch64-linux-gnu-gcc", &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]),
    Needed::command("qemu-aarch64", &["qemu-user"]),
    Needed::command("node", &["nodejs"]),
];

/// A machine that is not this one.
struct Target {
    triple: &'static str,
    rustflags: &'static str,
    /// What a test binary is given to, in the folder of its crate.
    runner: &'static [&'static str],
    /// Files of tests that take a minute or more there.
    left_out: &'static [&'static str],
}

/// The emulator is slow, so tests of the accountants, which use no vectors of ours, are left out, and so are most whole rounds
/// of secure aggregation: a golden transcript has them all.
const NEON: Target = Target {
    triple: "aarch64-unknown-linux-gnu",
    rustflags: "-C linker=aarch64-linux-gnu-gcc",
    runner: &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
    left_out: &[
        "client",
        "collusion",
        "contract",
        "decoders",
        "factorization",
        "fuzz",
        "network",
        "properties",
        "scale",
        "server",
        "shares",
        "signing",
        "sum",
        "tight",
    ],
};

/// Node warns that its WASI is experimental; its fast calls into WASI crash it (nodejs/node#46777).
const SIMD128: Target = Target {
    triple: "wasm32-wasip1",
    rustflags: "-C target-feature=+simd128",
    runner: &["node", "--no-warnings", "--no-turbo-fast-api-calls", "../../xtask/src/wasi.mjs"],
    left_out: &["client", "collusion", "decoders", "fuzz", "network", "scale", "server", "shares", "signing", "sum"],
};

pub(crate) fn steps() -> Vec<Step> {
    vec![
        Step { name: "packages", work: Work::Call(|| packages::install_missing(NEEDED)) },
        Step { name: "targets", work: Work::Call(add_targets) },
        Step { name: "neon", work: Work::Call(|| test_on(&NEON)) },
        Step { name: "simd128", work: Work::Call(|| test_on(&SIMD128)) },
    ]
}

/// Makes sure that the toolchain has the standard library of both targets.
fn add_targets() -> Result<()> {
    for Target { triple, .. } in [NEON, SIMD128] {
        if has_target(triple) {
            println!("all there: {triple}");
            continue;
        }
        println!("missing: {triple}; running rustup target add {triple}");
        let added = Command::new("rustup").args(["target", "add", triple]).status().is_ok_and(|s| s.success());
        if !added {
            bail!(
                "the toolchain lacks the target {triple}, and `rustup target add {triple}` did not bring it: \
                 it needs rustup and the network, or a mirror named in RUSTUP_DIST_SERVER"
            );
        }
    }
    Ok(())
}

/// What a browser runs must build without an operating system, and so without what draws randomness from one. Where there is
/// no rustup to bring the target, that is said, and is no failure.
pub(crate) fn check_for_browsers() -> Result<()> {
    const BARE: &str = "wasm32-unknown-unknown";
    let add = || Command::new("rustup").args(["target", "add", BARE]).status().is_ok_and(|s| s.success());
    if !has_target(BARE) && !add() {
        println!("not checked: the toolchain lacks {BARE}, and `rustup target add {BARE}` did not bring it");
        return Ok(());
    }
    let args =
        ["check", "--locked", "--profile", "ci", "-p", "keyhush-secagg", "--no-default-features", "--target", BARE];
    let status = cargo().args(args).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo {}: {status}", args.join(" "));
    }
    Ok(())
}

fn has_target(triple: &str) -> bool {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let out = rustc.args(["--print", "target-libdir", "--target", triple]).current_dir(root()).output();
    out.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
}

fn test_on(target: &Target) -> Result<()> {
    let tests = test_files(&root(), target.left_out)?;
    let mut command = cargo();
    command.args(arguments(target, &tests, &folder()));
    // Flags of the person's own would take the place of these, and the vectors with them.
    command.env("RUSTFLAGS", target.rustflags).env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = command.status().context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo test --target {}: {status}", target.triple);
    }
    Ok(())
}

/// Where the builds go.
fn folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join("portable")
}

/// The names of the crates' files of tests, but for some.
fn test_files(root: &Path, left_out: &[&str]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for member in CRATES {
        let folder = root.join("crates").join(member).join("tests");
        let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let paths =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "rs"));
        names.extend(paths.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())));
    }
    names.retain(|name| !left_out.contains(&name.as_str()));
    names.sort();
    names.dedup();
    Ok(names)
}

/// What cargo is told.
fn arguments(target: &Target, tests: &[String], folder: &Path) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["test", "--profile", "ci", "--locked", "--no-fail-fast", "--target", target.triple].map(str::to_owned).into();
    arguments.extend(["--target-dir".to_owned(), folder.display().to_string()]);
    arguments.extend(["--config".to_owned(), format!("target.{}.runner={:?}", target.triple, target.runner)]);
    arguments.extend(CRATES.map(|member| format!("--package=keyhush-{member}")));
    arguments.push("--lib".to_owned());
    arguments.extend(tests.iter().map(|name| format!("--test={name}")));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_tests_is_there_but_for_those_left_out() {
        let all = test_files(&root(), &[]).unwrap();
        assert!(
            ["fast", "pytorch", "rotation", "transcript"].iter().all(|name| all.iter().any(|a| a == name)),
            "{all:?}"
        );
        for target in [NEON, SIMD128] {
            let some = test_files(&root(), target.left_out).unwrap();
            assert_eq!(all.len(), some.len() + target.left_out.len(), "a file that is left out no longer exists");
        }
    }

    #[test]
    fn cargo_is_told_target_runner_and_tests() {
        let tests = ["fast".to_owned()];
        let line = |target| arguments(target, &tests, Path::new("out")).join(" ");
        assert_eq!(
            line(&SIMD128),
            "test --profile ci --locked --no-fail-fast --target wasm32-wasip1 --target-dir out --config \
             target.wasm32-wasip1.runner=[\"node\", \"--no-warnings\", \"--no-turbo-fast-api-calls\", \
             \"../../xtask/src/wasi.mjs\"] --package=keyhush-ledger --package=keyhush-lm \
             --package=keyhush-privacy --package=keyhush-secagg --lib --test=fast"
        );
        assert!(line(&NEON).contains("runner=[\"qemu-aarch64\", \"-L\", \"/usr/aarch64-linux-gnu\"]"));
    }

    #[test]
    fn a_target_that_nobody_has_is_missing() {
        assert!(!has_target("no-such-machine"));
    }
}
