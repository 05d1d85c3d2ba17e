//! `cargo xtask mutants`: plants known bugs one at a time and says which of them no test notices.
//!
//! A test that cannot fail is no test, and nobody sees it by reading. Each bug of the catalogue was missed once, or lies where
//! such bugs were missed. The source of the project knows nothing of them: a copy of the tree under `target/mutants` gets
//! all of them at once, each behind a switch that is asked at run time, so that one build serves for all. First the tests
//! must pass with all switches off; then each bug is switched on, and its tests must fail.

mod catalogue;
mod tree;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::{Command, Output},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use self::catalogue::Bug;
use crate::{root, step::cargo, test::has_subcommand};

/// The variable that switches a bug on: its name.
const SWITCH: &str = "KEYHUSH_MUTANT";
/// What nextest exits with when tests ran and one of them failed; all else is no verdict.
const TESTS_FAILED: i32 = 100;
/// A bug may make a test wait for ever: after two minutes it is ended, and has failed.
const PATIENCE: &str = "[profile.default]\nslow-timeout = { period = \"60s\", terminate-after = 2 }\n";

/// What the words after `mutants` ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// These bugs, or all.
    names: Vec<String>,
    list: bool,
    json: bool,
}

impl Asked {
    /// Nothing where the words have no meaning.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let mut asked = Self::default();
        for word in words {
            match *word {
                "--list" => asked.list = true,
                "--json" => asked.json = true,
                name if !name.starts_with('-') => asked.names.push(name.to_owned()),
                _ => return None,
            }
        }
        Some(asked)
    }
}

/// What became of a bug.
#[derive(Debug, Serialize)]
struct Verdict<'a> {
    name: &'a str,
    breaks: &'a str,
    file: &'a str,
    /// The first test that failed; none where all passed.
    noticed_by: Option<String>,
    seconds: f64,
}

/// Plants the bugs that are asked for, and fails if one of them survives.
pub(crate) fn run(asked: &Asked) -> Result<()> {
    let all = catalogue::read(&root().join("xtask").join("mutants"))?;
    let chosen = choose(&all, &asked.names)?;
    if asked.list {
        return list(&chosen, asked.json);
    }
    let nursery = Nursery::new(&all, &chosen)?;
    nursery.build()?;
    nursery.check_health(&chosen)?;
    let mut verdicts = Vec::new();
    for bug in chosen {
        let verdict = nursery.judge(bug)?;
        if !asked.json {
            println!("{}", line(&verdict));
        }
        verdicts.push(verdict);
    }
    let survivors = verdicts.iter().filter(|v| v.noticed_by.is_none()).count();
    if asked.json {
        println!("{}", serde_json::to_string_pretty(&verdicts)?);
    } else {
        println!("\n{} planted, {} noticed, {survivors} survived", verdicts.len(), verdicts.len() - survivors);
    }
    if survivors > 0 {
        bail!("{survivors} of {} bugs passed the tests: each needs a test that fails", verdicts.len());
    }
    Ok(())
}

fn choose<'a>(all: &'a [Bug], names: &[String]) -> Result<Vec<&'a Bug>> {
    if let Some(name) = names.iter().find(|name| !all.iter().any(|bug| bug.name == **name)) {
        bail!("there is no bug {name}; `cargo xtask mutants --list` has their names");
    }
    Ok(all.iter().filter(|bug| names.is_empty() || names.contains(&bug.name)).collect())
}

fn list(bugs: &[&Bug], json: bool) -> Result<()> {
    if json {
        let facts = |bug: &&Bug| serde_json::json!({"name": bug.name, "breaks": bug.breaks, "file": bug.file});
        println!("{}", serde_json::to_string_pretty(&bugs.iter().map(facts).collect::<Vec<_>>())?);
    } else {
        bugs.iter().for_each(|bug| println!("{}\n    {}\n    {}", bug.name, bug.breaks, bug.file));
    }
    Ok(())
}

fn line(verdict: &Verdict<'_>) -> String {
    let Verdict { name, breaks, file, noticed_by, seconds } = verdict;
    match noticed_by {
        Some(test) => format!("noticed   {name:<36} {seconds:>5.1} s  {test}"),
        None => format!("SURVIVED  {name:<36} {seconds:>5.1} s  {breaks} ({file})"),
    }
}

/// Where bugs grow: the copy of the tree and what was built of it.
struct Nursery {
    folder: PathBuf,
    /// What is built: the packages whose tests are to notice what is asked for.
    built: BTreeSet<String>,
}

impl Nursery {
    /// A copy with all bugs in it, so that it changes only with the tree; the tests of those that are chosen.
    fn new(all: &[Bug], chosen: &[&Bug]) -> Result<Self> {
        if !has_subcommand("nextest") {
            bail!(
                "cargo-nextest is needed, which tells a test that failed from one that was not built: cargo install cargo-nextest"
            );
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let nursery =
            Self { folder: target.join("mutants"), built: chosen.iter().flat_map(|bug| built(bug)).collect() };
        std::fs::create_dir_all(nursery.tree()).with_context(|| format!("cannot make {}", nursery.tree().display()))?;
        tree::prepare(&root(), &nursery.tree(), all)?;
        let path = nursery.patience();
        std::fs::write(&path, PATIENCE).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(nursery)
    }

    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    fn patience(&self) -> PathBuf {
        self.folder.join("nextest.toml")
    }

    /// nextest in the copy, with no bug on.
    fn nextest(&self) -> Command {
        let mut command = cargo();
        command.current_dir(self.tree()).env_remove(SWITCH).env("CARGO_TARGET_DIR", self.folder.join("target"));
        command.args(["nextest", "run", "--cargo-profile", "ci", "--locked", "--color", "never"]);
        command.arg("--config-file").arg(self.patience());
        command.args(&self.built);
        command
    }

    fn build(&self) -> Result<()> {
        eprintln!("building the tests that are to notice ...");
        let status = self.nextest().arg("--no-run").status().context("cannot start cargo")?;
        if !status.success() {
            bail!("the tree with its bugs does not build: {status}");
        }
        Ok(())
    }

    /// With no bug on all tests that are to notice one must pass.
    fn check_health(&self, bugs: &[&Bug]) -> Result<()> {
        let filters: BTreeSet<String> = bugs.iter().map(|bug| bug.filter(&root())).collect::<Result<_>>()?;
        let any = filters.iter().map(|f| format!("({f})")).collect::<Vec<_>>().join(" | ");
        let output = self.nextest().args(["--no-fail-fast", "-E", &any]).output().context("cannot start cargo")?;
        if !output.status.success() {
            bail!("with no bug on, the tests must pass:\n{}", words(&output));
        }
        Ok(())
    }

    fn judge<'a>(&self, bug: &'a Bug) -> Result<Verdict<'a>> {
        let watch = Instant::now();
        let mut command = self.nextest();
        command.env(SWITCH, &bug.name).args(["-E", &bug.filter(&root())?]);
        let output = command.output().context("cannot start cargo")?;
        let noticed_by = match output.status.code() {
            Some(0) => None,
            Some(TESTS_FAILED) => {
                Some(first_failure(&words(&output)).unwrap_or_else(|| "a test that has no name".into()))
            }
            _ => bail!("{}: its tests did not run:\n{}", bug.name, words(&output)),
        };
        let seconds = watch.elapsed().as_secs_f64();
        Ok(Verdict { name: &bug.name, breaks: &bug.breaks, file: &bug.file, noticed_by, seconds })
    }
}

/// What cargo is told to build for a bug: all tests of a package. Those of the program need all of it.
fn built(bug: &Bug) -> Vec<String> {
    let package = format!("--package={}", bug.package);
    if bug.package == "keyhush" { vec![package, "--features=keyhush/full".into()] } else { vec![package] }
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The name of the first test that failed, was killed or took too long.
fn first_failure(said: &str) -> Option<String> {
    let failed =
        |line: &&str| ["FAIL", "TIMEOUT", "SIG", "ABORT"].iter().any(|word| line.trim_start().starts_with(word));
    let line = said.lines().find(failed)?;
    let (_, after) = line.split_once(']')?;
    // Newer versions count the tests between the time and the name: `(3/7)`.
    let name: Vec<&str> =
        after.split_whitespace().filter(|word| !word.starts_with('(') && !word.ends_with(')')).collect();
    Some(name.join(" ")).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_refused() {
        let asked = Asked::parse(&["a", "--json", "b"]).unwrap();
        assert_eq!(asked, Asked { names: vec!["a".into(), "b".into()], list: false, json: true });
        assert!(Asked::parse(&["--list"]).unwrap().list);
        assert_eq!(Asked::parse(&["--lits"]), None);
    }

    #[test]
    fn names_choose_and_unknown_ones_are_refused() {
        let all = catalogue::read(&root().join("xtask/mutants")).unwrap();
        assert_eq!(choose(&all, &[]).unwrap().len(), all.len());
        let name = all[0].name.clone();
        assert_eq!(choose(&all, std::slice::from_ref(&name)).unwrap().len(), 1);
        assert!(choose(&all, &["nothing".into()]).unwrap_err().to_string().contains("--list"));
    }

    #[test]
    fn the_test_that_noticed_is_named() {
        let said = "        PASS [   0.1s] (1/3) a::b c\n        FAIL [   0.012s] (2/3) keyhush-federated::held_out who::is\n\
                    \x20    TIMEOUT [ 120.0s] (3/3) a::b d\n";
        assert_eq!(first_failure(said).unwrap(), "keyhush-federated::held_out who::is");
        assert_eq!(first_failure("     TIMEOUT [ 120.0s] a::b d").unwrap(), "a::b d");
        assert_eq!(first_failure("PASS [ 1 s] a"), None);
    }

    #[test]
    fn a_survivor_says_what_it_breaks() {
        let (name, breaks, file) = ("a", "Much.", "b.rs");
        let verdict = Verdict { name, breaks, file, noticed_by: None, seconds: 1.0 };
        assert!(line(&verdict).starts_with("SURVIVED  a ") && line(&verdict).ends_with("Much. (b.rs)"));
        let noticed = Verdict { noticed_by: Some("c d".into()), ..verdict };
        assert!(line(&noticed).starts_with("noticed   a ") && line(&noticed).ends_with("c d"));
    }
}
