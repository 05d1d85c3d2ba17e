//! `cargo xtask fuzz`: the fuzzer of `fuzz/`, built and run on one target after the other.
//!
//! LLVM, which every Rust compiler has in it, adds the counters that libFuzzer looks at: no nightly compiler and no
//! `cargo-fuzz` is needed. They are asked for with flags of the target only, so that build scripts do without. What the
//! fuzzer finds worth keeping is kept in `target/fuzz`, and taken up again the next time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::packages::{self, Needed};
use crate::root;
use crate::step::cargo;

/// What `cargo fuzz` passes as well: counters at every edge, where they are, and what is compared with what.
const RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// libFuzzer is C++, and is compiled with it.
const NEEDED: &[Needed] = &[Needed::command("cc", &["gcc", "libc6-dev"]), Needed::command("c++", &["g++"])];

/// No input may take longer, in seconds, or the process more memory, in megabytes.
const LIMITS: [&str; 2] = ["-timeout=10", "-rss_limit_mb=512"];

/// Seconds for each target, unless somebody says otherwise.
const SECONDS: u32 = 60;

/// What the words after `fuzz` ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// One target, or all.
    target: Option<String>,
    seconds: u32,
}

impl Asked {
    /// Nothing where the words have no meaning.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let (target, rest) = match words {
            [target, rest @ ..] if !target.starts_with('-') => (Some((*target).to_owned()), rest),
            rest => (None, rest),
        };
        let seconds = match rest {
            [] => SECONDS,
            ["--seconds", seconds] => seconds.parse().ok().filter(|s| *s > 0)?,
            _ => return None,
        };
        Some(Self { target, seconds })
    }
}

/// Runs every target, or one, and fails at the first input that does harm.
pub(crate) fn run(asked: &Asked) -> Result<()> {
    let mut targets = targets(&root().join("fuzz").join("corpus"))?;
    if let Some(target) = &asked.target {
        if !targets.contains(target) {
            bail!("there is no target {target}; there are: {}", targets.join(", "));
        }
        targets.retain(|t| t == target);
    }
    packages::install_missing(NEEDED)?;
    let program = build()?;
    for (number, target) in (1..).zip(&targets) {
        println!("[{number}/{}] {target}: {} s ...", targets.len(), asked.seconds);
        println!("        {}", fuzz(&program, target, asked.seconds)?);
    }
    Ok(())
}

/// The names of all targets: each has a folder of seeds.
fn targets(corpus: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(corpus).with_context(|| format!("cannot read {}", corpus.display()))?;
    let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// Where the build goes, and what the fuzzer keeps.
fn folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join("fuzz")
}

/// Builds the fuzzer; gives its path.
fn build() -> Result<PathBuf> {
    let (host, folder) = (host()?, folder().join("build"));
    let mut command = cargo();
    command.args(["build", "--release", "--locked", "--manifest-path=fuzz/Cargo.toml", "--target", &host]);
    command.arg("--target-dir").arg(&folder);
    // Flags of the person's own would take the place of these.
    command.env("RUSTFLAGS", RUSTFLAGS).env_remove("CARGO_ENCODED_RUSTFLAGS");
    let status = command.status().context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo build --manifest-path=fuzz/Cargo.toml: {status}");
    }
    Ok(folder.join(host).join("release").join("keyhush-fuzz"))
}

/// The machine that the compiler runs on.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc).arg("-vV").current_dir(root()).output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` does not name its host")
}

/// Runs one target for so many seconds; says what came of it.
fn fuzz(program: &Path, target: &str, seconds: u32) -> Result<String> {
    let (kept, harmful) = (folder().join("kept").join(target), folder().join("harmful").join(target));
    for folder in [&kept, &harmful] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let path = folder().join(format!("{target}.log"));
    let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = Command::new(program);
    command.env("TARGET", target).args(LIMITS).arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/", harmful.display()));
    // What is new goes to the first folder; the seeds are only read.
    command.arg(&kept).arg(root().join("fuzz").join("corpus").join(target));
    let status = command.stderr(log).status().with_context(|| format!("cannot start {}", program.display()))?;
    let log = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let log = String::from_utf8_lossy(&log);
    if !status.success() {
        bail!("{}", failure(target, &log, &path));
    }
    summary(&log).with_context(|| format!("{} does not say how it ended", path.display()))
}

/// Which input did harm, and how to see it again.
fn failure(target: &str, log: &str, path: &Path) -> String {
    let mut lines = log.lines();
    let line = |part: &str| log.lines().find(|l| l.contains(part)).map(str::to_owned);
    let panic = lines.find(|l| l.contains("panicked at"));
    let panic = panic.map(|place| format!("{place} {}", lines.next().unwrap_or_default()));
    let why = panic.or_else(|| line("memory allocation of")).or_else(|| line("ERROR: libFuzzer"));
    let why = why.unwrap_or_else(|| "it did not start".to_owned());
    let input = log.lines().find_map(|l| l.split_once("Test unit written to ")).map(|(_, input)| input);
    let advice = input.map_or_else(String::new, |input| {
        format!(
            "\nto keep the input for good, and see it again:\n    cp {input} fuzz/corpus/{target}/\n    \
             cargo xtask fuzz {target} --seconds 1"
        )
    });
    format!("the target {target} failed: {why}\nthe whole log: {}{advice}", path.display())
}

/// Inputs tried, and edges reached with the inputs that were there before and at the end.
fn summary(log: &str) -> Option<String> {
    let word_after =
        |line: &str, word: &str| line.split_whitespace().skip_while(|w| *w != word).nth(1).map(str::to_owned);
    let line = |kind: &str| log.lines().find(|l| l.starts_with('#') && l.split_whitespace().nth(1) == Some(kind));
    let (before, end) = (line("INITED")?, line("DONE")?);
    let runs = end.trim_start_matches('#').split_whitespace().next()?;
    let [from, to] = [word_after(before, "cov:")?, word_after(end, "cov:")?];
    let [features, more] = [word_after(before, "ft:")?, word_after(end, "ft:")?];
    Some(format!("{runs} inputs, edges {from} -> {to}, features {features} -> {more}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_refused() {
        let asked = |target: Option<&str>, seconds| Some(Asked { target: target.map(str::to_owned), seconds });
        assert_eq!(Asked::parse(&[]), asked(None, SECONDS));
        assert_eq!(Asked::parse(&["offer"]), asked(Some("offer"), SECONDS));
        assert_eq!(Asked::parse(&["offer", "--seconds", "5"]), asked(Some("offer"), 5));
        assert_eq!(Asked::parse(&["--seconds", "5"]), asked(None, 5));
        for evil in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "x"], &["a", "b"], &["--minutes", "1"]] {
            assert_eq!(Asked::parse(evil), None, "{evil:?}");
        }
    }

    #[test]
    fn a_log_is_summed_up() {
        let log = "INFO: Seed: 1\n#4\tINITED cov: 12 ft: 13 corp: 3/8b exec/s: 0 rss: 27Mb\n\
                   #99\tNEW    cov: 14 ft: 15 corp: 4/9b\n#1234\tDONE   cov: 14 ft: 16 corp: 4/9b lim: 99 exec/s: 7 rss: 27Mb\n";
        assert_eq!(summary(log).unwrap(), "1234 inputs, edges 12 -> 14, features 13 -> 16");
        assert_eq!(summary("thread panicked"), None);
    }

    #[test]
    fn a_failure_says_why_and_how_to_see_it_again() {
        let log = "thread '<unnamed>' panicked at src/x.rs:3:4:\nindex out of bounds\n\
                   ==9== ERROR: libFuzzer: deadly signal\nartifact_prefix='h/'; Test unit written to h/crash-1\n";
        let text = failure("offer", log, Path::new("offer.log"));
        for part in [
            "src/x.rs:3:4: index out of bounds",
            "offer.log",
            "cp h/crash-1 fuzz/corpus/offer/",
            "fuzz offer --seconds 1",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(failure("offer", "", Path::new("offer.log")).contains("did not start"));
    }

    #[test]
    fn there_are_targets() {
        let targets = targets(&root().join("fuzz").join("corpus")).unwrap();
        assert!(targets.iter().any(|t| t == "offer"), "{targets:?}");
    }
}
