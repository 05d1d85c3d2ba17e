//! The bugs that `cargo xtask mutants` plants: `xtask/mutants/*.toml`, checked as they are read.
//!
//! ```toml
//! [[bug]]
//! name = "cohorts-start-again"                  # what KEYHUSH_MUTANT is set to
//! breaks = "Who comes next is forgotten ..."    # what a person loses by it, as a sentence
//! file = "crates/federated/src/cohort.rs"
//! find = "let first = round * self.goal;"       # occurs once in the file
//! plant = "let first = if PLANTED { 0 } else { round * self.goal };"
//! package = "keyhush-federated"                 # whose tests are to notice
//! tests = "told::p6_devices"                    # tests/told.rs or tests/told/main.rs, those with this in their names; or "lib::..."
//! ```
//!
//! Where the bug is to be, `PLANTED` is an expression that is true when the bug is on. It cannot stand in a `const fn`. A bug
//! against which two lines of defence stand is planted in both: `also = [{ file = ..., find = ..., plant = ... }]`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The word that stands for the switch.
pub(super) const MARKER: &str = "PLANTED";

/// A bug that can be planted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bug {
    /// What people and the switch call it.
    pub(super) name: String,
    /// What it breaks.
    pub(super) breaks: String,
    /// Where it goes.
    pub(super) file: String,
    /// What stands there; once in the file.
    pub(super) find: String,
    /// What is put there instead.
    pub(super) plant: String,
    /// Whose tests are to notice.
    pub(super) package: String,
    /// Which of them: the name of a file in `tests/` or `lib`, and after `::` a part of their names.
    pub(super) tests: String,
    /// Where else it goes.
    #[serde(default)]
    pub(super) also: Vec<Edit>,
}

/// One place of a bug.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    pub(super) file: String,
    pub(super) find: String,
    pub(super) plant: String,
}

/// What cargo builds tests into.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The library's own tests.
    Lib,
    /// A file in `tests/` that is a binary by itself.
    Binary(String),
    /// A file in `tests/` that is a module of a binary, as most are.
    Module(String),
}

impl Bug {
    /// All its places.
    pub(super) fn edits(&self) -> Vec<Edit> {
        let first = Edit { file: self.file.clone(), find: self.find.clone(), plant: self.plant.clone() };
        std::iter::once(first).chain(self.also.iter().cloned()).collect()
    }

    /// Where its tests are; the names of its package's binaries tell.
    fn target(&self, binaries: &[String]) -> Target {
        match self.tests.split_once("::").map_or(self.tests.as_str(), |(target, _)| target) {
            "lib" => Target::Lib,
            name if binaries.iter().any(|binary| binary == name) => Target::Binary(name.to_owned()),
            name => Target::Module(name.to_owned()),
        }
    }

    /// The tests that are to notice it, as nextest selects them; the tree is asked what is a binary.
    pub(super) fn filter(&self, root: &Path) -> Result<String> {
        Ok(self.filter_of(&self.target(&binaries(&self.crate_in(root))?)))
    }

    fn filter_of(&self, target: &Target) -> String {
        let part = self.tests.split_once("::").map(|(_, part)| part);
        let named = part.map_or_else(String::new, |part| format!(" & test({part})"));
        let tests = match target {
            Target::Lib => format!("kind(=lib){named}"),
            Target::Binary(name) => format!("binary(={name}){named}"),
            Target::Module(name) => format!("kind(=test) & test(/^{name}::.*{}/)", part.unwrap_or_default()),
        };
        format!("package(={}) & {tests}", self.package)
    }

    /// The folder of the package whose tests are to notice it.
    fn crate_in(&self, root: &Path) -> PathBuf {
        root.join("crates").join(self.package.strip_prefix("keyhush-").unwrap_or("cli"))
    }
}

/// What the manifest of a crate calls a `[[test]]`.
fn binaries(folder: &Path) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Manifest {
        #[serde(default)]
        test: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let path = folder.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest: Manifest = toml::from_str(&text).with_context(|| format!("{}", path.display()))?;
    Ok(manifest.test.into_iter().map(|test| test.name).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    bug: Vec<Bug>,
}

/// All bugs, file by file in the order of the files' names.
pub(super) fn read(folder: &Path) -> Result<Vec<Bug>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    let mut bugs = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let catalogue: Catalogue = toml::from_str(&text).with_context(|| format!("{}", path.display()))?;
        bugs.extend(catalogue.bug);
    }
    check(&bugs)?;
    Ok(bugs)
}

fn check(bugs: &[Bug]) -> Result<()> {
    ensure!(!bugs.is_empty(), "there is no bug to plant");
    let mut names = BTreeSet::new();
    for bug @ Bug { name, breaks, .. } in bugs {
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        ensure!(plain && !name.is_empty(), "the name {name:?} is not of small letters, digits and hyphens");
        ensure!(names.insert(name), "two bugs are called {name}");
        ensure!(breaks.ends_with('.'), "{name}: what it breaks is no sentence");
        for Edit { find, plant, .. } in bug.edits() {
            ensure!(!find.is_empty(), "{name}: there is nothing to find");
            ensure!(plant.contains(MARKER), "{name}: what is planted does not ask for {MARKER}");
        }
    }
    Ok(())
}

/// The places of all bugs, each with the bug's name, file by file.
pub(super) fn by_file(bugs: &[Bug]) -> BTreeMap<String, Vec<(String, Edit)>> {
    let mut files: BTreeMap<String, Vec<(String, Edit)>> = BTreeMap::new();
    for bug in bugs {
        bug.edits()
            .into_iter()
            .for_each(|edit| files.entry(edit.file.clone()).or_default().push((bug.name.clone(), edit)));
    }
    files
}

/// A file with bugs in it, each behind its switch.
pub(super) fn plant(text: &str, edits: &[(String, Edit)]) -> Result<String> {
    let mut places: Vec<(Range<usize>, &String, &Edit)> = Vec::new();
    for (name, edit) in edits {
        places.push((find(text, name, edit)?, name, edit));
    }
    places.sort_by_key(|(place, ..)| place.start);
    for pair in places.windows(2) {
        let [(one, a, _), (two, b, _)] = pair else { continue };
        ensure!(one.end <= two.start, "{a} and {b} are planted in the same place: find less of it");
    }
    let (mut planted, mut from) = (String::new(), 0);
    for (place, name, edit) in places {
        planted.push_str(&text[from..place.start]);
        planted.push_str(&edit.plant.replace(MARKER, &switch(name)));
        from = place.end;
    }
    planted.push_str(&text[from..]);
    Ok(planted)
}

fn find(text: &str, name: &str, Edit { file, find, .. }: &Edit) -> Result<Range<usize>> {
    let mut places = text.match_indices(find.as_str());
    let advice = "the code has moved on: write the bug anew in xtask/mutants, for it still needs a test";
    let (start, _) = places.next().with_context(|| format!("{name}: {file} no longer has {find:?}; {advice}"))?;
    ensure!(places.next().is_none(), "{name}: {file} has {find:?} more than once: find more of it");
    Ok(start..start + find.len())
}

/// Whether the bug is on: asked once in a process, so that it costs nothing where numbers are crunched.
fn switch(name: &str) -> String {
    format!(
        "{{ static ON: ::std::sync::LazyLock<bool> = ::std::sync::LazyLock::new(|| \
         ::std::env::var_os(\"{}\").is_some_and(|on| on == \"{name}\")); *ON }}",
        super::SWITCH
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    fn bug(name: &str, find: &str, plant: &str) -> Bug {
        let [breaks, file, package, tests] = ["All of it.", "a.rs", "p", "told::p6"].map(str::to_owned);
        let also = Vec::new();
        Bug { name: name.into(), breaks, file, find: find.into(), plant: plant.into(), package, tests, also }
    }

    fn planted(text: &str, bugs: &[Bug]) -> Result<String> {
        plant(text, &by_file(bugs)["a.rs"])
    }

    /// What keeps the catalogue true while the code moves on.
    #[test]
    fn every_bug_can_still_be_planted() {
        let bugs = read(&root().join("xtask/mutants")).unwrap();
        for (file, edits) in by_file(&bugs) {
            let text = fs::read_to_string(root().join(&file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            let planted = plant(&text, &edits).unwrap_or_else(|e| panic!("{e:#}"));
            let marks: usize = edits.iter().map(|(_, edit)| edit.plant.matches(MARKER).count()).sum();
            assert_eq!(planted.matches(super::super::SWITCH).count(), marks, "{file}");
        }
    }

    /// A bug whose tests are nowhere would never be noticed.
    #[test]
    fn every_bug_is_to_be_noticed_by_tests_that_are_there() {
        for bug in read(&root().join("xtask/mutants")).unwrap() {
            let folder = bug.crate_in(&root());
            let files = match bug.target(&binaries(&folder).unwrap()) {
                Target::Lib => vec![folder.join("src/lib.rs")],
                Target::Binary(name) | Target::Module(name) => {
                    ["{}.rs", "{}/main.rs"].map(|file| folder.join("tests").join(file.replace("{}", &name))).to_vec()
                }
            };
            assert!(files.iter().any(|file| file.is_file()), "{}: there is none of {files:?}", bug.name);
        }
    }

    #[test]
    fn binaries_are_those_of_the_manifest() {
        assert_eq!(binaries(&root().join("crates/server")).unwrap(), ["all", "fuzz", "http"]);
        assert!(binaries(&root().join("crates/nothing")).is_err());
    }

    #[test]
    fn tests_are_selected_by_file_and_by_a_part_of_their_names() {
        let of = |tests: &str| Bug { tests: tests.into(), ..bug("a", "x", "PLANTED") };
        let filter = |tests: &str| of(tests).filter_of(&of(tests).target(&["http".to_owned()]));
        assert_eq!(filter("told"), "package(=p) & kind(=test) & test(/^told::.*/)");
        assert_eq!(filter("told::p6_devices"), "package(=p) & kind(=test) & test(/^told::.*p6_devices/)");
        assert_eq!(filter("http"), "package(=p) & binary(=http)");
        assert_eq!(filter("http::hub::a_clock"), "package(=p) & binary(=http) & test(hub::a_clock)");
        assert_eq!(filter("lib::files::tests"), "package(=p) & kind(=lib) & test(files::tests)");
    }

    #[test]
    fn bugs_are_planted_side_by_side_each_behind_its_own_switch() {
        let (a, b) = (bug("a", "x + 1", "x + i32::from(!PLANTED)"), bug("b", "y", "if PLANTED { 0 } else { y }"));
        let planted = planted("f(y, x + 1)", &[a, b]).unwrap();
        assert!(planted.starts_with("f(if { static ON") && planted.ends_with("; *ON }))"), "{planted}");
        assert!(planted.contains("on == \"a\"") && planted.contains("on == \"b\"") && !planted.contains(MARKER));
    }

    #[test]
    fn what_is_not_there_once_is_refused() {
        let refused = |text: &str, bugs: &[Bug]| planted(text, bugs).unwrap_err().to_string();
        let a = || bug("a", "x", "PLANTED");
        assert!(refused("y", &[a()]).contains("a: a.rs no longer has \"x\""));
        assert!(refused("x x", &[a()]).contains("more than once"));
        assert!(refused("x y", &[a(), bug("b", "x y", "PLANTED")]).contains("in the same place"));
    }

    #[test]
    fn a_bug_can_go_to_several_places_of_several_files() {
        let also = |file: &str, find: &str| Edit { file: file.into(), find: find.into(), plant: "PLANTED".into() };
        let a = Bug { also: vec![also("a.rs", "y"), also("b.rs", "z")], ..bug("a", "x", "PLANTED") };
        let files = by_file(std::slice::from_ref(&a));
        assert_eq!(files.keys().collect::<Vec<_>>(), ["a.rs", "b.rs"]);
        assert_eq!(plant("x y", &files["a.rs"]).unwrap().matches("on == \"a\"").count(), 2);
        let evil = Bug { also: vec![Edit { plant: "y".into(), ..also("b.rs", "z") }], ..a };
        assert!(check(&[evil]).is_err(), "nothing to switch in the second place");
    }

    #[test]
    fn a_catalogue_without_meaning_is_refused() {
        let one = bug("a", "x", "PLANTED");
        assert!(check(&[]).is_err());
        assert!(check(&[one.clone(), one.clone()]).is_err(), "two of a name");
        assert!(check(&[bug("A b", "x", "PLANTED")]).is_err());
        assert!(check(&[bug("a", "", "PLANTED")]).is_err());
        assert!(check(&[bug("a", "x", "y")]).is_err(), "nothing to switch");
        assert!(check(&[Bug { breaks: "much".into(), ..one.clone() }]).is_err());
        assert!(check(&[one]).is_ok());
    }
}
