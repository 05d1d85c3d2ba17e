//! Says which revision of the source this is, for the first entry of every ledger: `KEYHUSH_REVISION`.
//!
//! A statement is worth what the program did that made it, so it names the source. Where there is no repository, as in a
//! source archive, or no git, it is an "unknown revision", and the build goes on.

#![allow(clippy::print_stdout, reason = "it is how a build script speaks to cargo")]

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// What the program is made of, from the root of the workspace; tests, docs and experiments change nothing in it.
const SOURCE: [&str; 15] = [
    "Cargo.toml",
    "Cargo.lock",
    "crates/privacy/src",
    "crates/secagg/src",
    "crates/lm/src",
    "crates/device/src",
    "crates/corpus/src",
    "crates/federated/src",
    "crates/federated/build.rs",
    "crates/cluster/src",
    "crates/pretraining/src",
    "crates/experiments/src",
    "crates/bench/src",
    "crates/cli/src",
    "crates/cli/Cargo.toml",
];

fn main() {
    let root = root();
    for path in SOURCE.iter().map(|path| root.join(path)).filter(|path| path.exists()) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    println!("cargo:rustc-env=KEYHUSH_REVISION={}", revision(&root).unwrap_or_else(|| "unknown revision".into()));
}

fn root() -> PathBuf {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    here.ancestors().nth(2).unwrap_or(&here).to_path_buf()
}

/// The commit that is checked out, marked where the source was changed since.
fn revision(root: &Path) -> Option<String> {
    // A source archive within somebody else's repository has no revision of ours.
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // What a commit or a checkout writes to. A file that is not there would have this run in every build.
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]).unwrap_or_else(|| "HEAD".into());
    for name in ["HEAD", "logs/HEAD", &branch, "packed-refs"] {
        let path = root.join(git(root, &["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(root, &[&["status", "--porcelain", "--untracked-files=no", "--"], &SOURCE[..]].concat())?;
    Some(if changed.is_empty() { format!("revision {commit}") } else { format!("revision {commit}-dirty") })
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.current_dir(root).arg("--no-optional-locks").args(arguments);
    // Within a hook these name whatever repository the hook runs in.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
