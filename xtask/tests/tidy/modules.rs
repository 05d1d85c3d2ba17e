//! Modules of a crate know each other one way at most: of those that lie at its root, none knows itself through others. What two need
//! belongs to one of them, or to a third.
//!
//! The source is read, not compiled: paths that begin with `crate` or `super`, in the braces of a `use` too. A name that the
//! root takes from a module leads to that module. Tests are left out: they may know whom they like.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    source::{code, without_test_modules},
    tree::{File, Violation},
};

/// Whether it is source of a member of the workspace, its tests beside it left out.
pub(crate) fn is_source(file: &File) -> bool {
    file.is_rust() && Module::of(file).is_some()
}

/// Flags modules of a crate's root that know each other, or themselves through several others.
pub(crate) fn circles(files: &[File]) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Vec<Module<'_>>> = BTreeMap::new();
    files.iter().filter_map(Module::of).for_each(|m| crates.entry(m.of_crate).or_default().push(m));
    crates.values().flat_map(|modules| circles_in(modules)).collect()
}

/// A file of a crate, without its tests.
struct Module<'a> {
    /// The crate's folder.
    of_crate: &'a str,
    /// `a`, `b` for `src/a/b.rs` and for `src/a/b/mod.rs`; none for the root.
    path: Vec<&'a str>,
    file: &'a File,
    text: String,
}

impl<'a> Module<'a> {
    fn of(file: &'a File) -> Option<Self> {
        let (of_crate, inside) = file.path.strip_suffix(".rs")?.split_once("/src/")?;
        if of_crate != "xtask" && of_crate.strip_prefix("crates/").is_none_or(|name| name.contains('/')) {
            return None;
        }
        let mut path: Vec<&str> = inside.split('/').collect();
        path.pop_if(|last| ["mod", "lib", "main"].contains(last));
        // A line that is left out stays as an empty one, so that lines can be counted.
        let mut lines = vec![String::new(); file.text.lines().count()];
        without_test_modules(code(&file.text)).into_iter().for_each(|(number, line)| lines[number - 1] = line);
        Some(Self { of_crate, path, file, text: lines.join("\n") })
    }

    /// The modules of this one that only tests have.
    fn only_for_tests(&self) -> Vec<Vec<&str>> {
        let lines: Vec<&str> = self.text.lines().map(str::trim).collect();
        let declared = lines.windows(2).filter(|two| two[0] == "#[cfg(test)]");
        let names = declared.filter_map(|two| two[1].strip_prefix("mod ")?.strip_suffix(';'));
        names.map(|name| [&self.path[..], &[name]].concat()).collect()
    }

    /// The names at the crate's root that it uses, each with its line.
    fn uses(&self) -> Vec<(usize, &str)> {
        let paths = paths(&self.text).into_iter();
        paths.filter_map(|(line, path)| Some((line, name_at_root(&self.path, &path)?))).collect()
    }
}

fn circles_in(modules: &[Module<'_>]) -> Vec<Violation> {
    let for_tests: Vec<Vec<&str>> = modules.iter().flat_map(Module::only_for_tests).collect();
    let tops: BTreeSet<&str> = modules.iter().filter_map(|module| module.path.first().copied()).collect();
    let taken: BTreeMap<&str, &str> =
        modules.iter().filter(|m| m.path.is_empty()).flat_map(|root| taken_by_root(&root.text, &tops)).collect();
    let mut known = Known::new();
    for module in modules.iter().filter(|m| !for_tests.iter().any(|test| m.path.starts_with(test))) {
        let Some(from) = module.path.first() else { continue };
        for (line, name) in module.uses() {
            let to = tops.get(name).or_else(|| taken.get(name));
            if let Some(to) = to.filter(|to| *to != from) {
                known.entry((from, to)).or_insert((module.file, line));
            }
        }
    }
    // A circle is named by the first of its modules, and begins with what that one knows.
    let begins = known.iter().filter(|((from, to), _)| from < to);
    begins
        .filter_map(|((from, to), (file, line))| {
            let way = way_back(&known, to, from)?;
            let through: String =
                way.iter().map(|(by, file, at)| format!(", which knows `{by}` at {}:{at}", file.path)).collect();
            let what = format!("`{from}` knows `{to}`{through}: move what they need to one of them or to another");
            Some(file.violation(*line, what))
        })
        .collect()
}

/// Who knows whom, and where that is said first.
type Known<'a> = BTreeMap<(&'a str, &'a str), (&'a File, usize)>;

/// The modules on a way, each with where the one before says its name.
type Way<'a> = Vec<(&'a str, &'a File, usize)>;

/// The shortest way from a module to one that stands before all on it; none where there is none.
fn way_back<'a>(known: &Known<'a>, from: &'a str, to: &'a str) -> Option<Way<'a>> {
    let mut ways: Vec<(&str, Way<'_>)> = vec![(from, Vec::new())];
    let mut next = 0;
    while let Some((at, way)) = ways.get(next).cloned() {
        next += 1;
        for ((_, by), (file, line)) in known.iter().filter(|((knows, by), _)| *knows == at && *by >= to) {
            let longer = [&way[..], &[(*by, *file, *line)]].concat();
            if *by == to {
                return Some(longer);
            }
            if ways.iter().all(|(seen, _)| seen != by) {
                ways.push((*by, longer));
            }
        }
    }
    None
}

/// What the root takes from its modules, by name: `Counts` of `metrics`.
fn taken_by_root<'a>(root: &'a str, tops: &BTreeSet<&'a str>) -> Vec<(&'a str, &'a str)> {
    let uses = root.match_indices("use ").flat_map(|(at, word)| expand(&root[at + word.len()..]).0);
    let taken = uses.filter_map(|path| {
        let path: Vec<&str> = path.into_iter().skip_while(|part| ["crate", "self"].contains(part)).collect();
        let (first, last) = (*path.first()?, *path.last()?);
        (path.len() > 1 && tops.contains(first)).then_some((last, first))
    });
    taken.collect()
}

/// The name at the root of the crate that a path in a module goes through; none where it stays below.
fn name_at_root<'a>(module: &[&str], path: &[&'a str]) -> Option<&'a str> {
    let mut below = module.len();
    for part in path {
        match *part {
            "crate" => below = 0,
            "super" => below = below.saturating_sub(1),
            "self" => {}
            name => return (below == 0).then_some(name),
        }
    }
    None
}

/// Every path that begins with `crate` or `super`, with its line.
fn paths(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut paths = Vec::new();
    let mut at = 0;
    while let Some(next) = ["crate::", "super::"].iter().filter_map(|word| text[at..].find(word)).min() {
        let start = at + next;
        let line = text[..start].matches('\n').count() + 1;
        let (found, length) = expand(&text[start..]);
        paths.extend(found.into_iter().map(|path| (line, path)));
        at = start + length;
    }
    paths
}

/// The paths that the tree of a `use` stands for, or the one path of an expression; and where it ends.
fn expand(text: &str) -> (Vec<Vec<&str>>, usize) {
    let mut head = Vec::new();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        if let Some(inside) = text[at..].strip_prefix('{') {
            let (members, length) = group(inside);
            return (members.into_iter().map(|member| [&head[..], &member].concat()).collect(), at + 1 + length);
        }
        let rest = &text[at..];
        let name = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())];
        head.extend(Some(name).filter(|name| !name.is_empty()));
        at += name.len();
        if name.is_empty() || !text[at..].starts_with("::") {
            return (vec![head], at);
        }
        at += 2;
    }
}

/// The paths of a group that was opened, and where it ends.
fn group(text: &str) -> (Vec<Vec<&str>>, usize) {
    let mut members = Vec::new();
    let mut at = 0;
    loop {
        let (paths, length) = expand(&text[at..]);
        members.extend(paths);
        at += length;
        // What is between is `*` or another name for it.
        let Some(end) = text[at..].find([',', '}']) else { return (members, text.len()) };
        at += end + 1;
        if text[..at].ends_with('}') {
            return (members, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flagged(files: &[(&str, &str)]) -> usize {
        let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
        circles(&files.iter().map(file).collect::<Vec<_>>()).len()
    }

    #[test]
    fn modules_that_know_each_other_are_flagged_once() {
        let back = ("crates/x/src/b/mod.rs", "fn f(a: crate::a::A) {}\n");
        for evil in [
            "use crate::b::B;\n",
            "use crate::b;\nuse crate::{b::C};\n",
            "use crate::{\n    c::{D, E},\n    b::{self, B as A},\n};\n",
            "use super::b::B;\n",
            "fn f() -> super::b::B { crate::c::<u8>() }\n",
            "#[cfg(test)]\nmod tests {\n}\nuse crate::{c::*, b::B};\n",
            "use crate::B;\n",
            "use crate::{c, Other};\n",
        ] {
            let root = ("crates/x/src/lib.rs", "mod a;\nmod b;\nmod c;\npub use b::{B, inner::Other};\n");
            let c = ("crates/x/src/c.rs", "pub(crate) struct D;\n");
            assert_eq!(flagged(&[root, ("crates/x/src/a.rs", evil), back, c]), 1, "{evil}");
        }
        let deep =
            [("xtask/src/b/c/d.rs", "use super::{super::super::a::A, E};\n"), ("xtask/src/a.rs", "crate::b::c()")];
        assert_eq!(flagged(&deep), 1);
    }

    #[test]
    fn circles_of_several_modules_are_flagged_once() {
        let root = ("crates/x/src/lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n");
        let knows = |name: &str| format!("use crate::{name}::X;\n");
        for circle in [&["a", "b", "c"][..], &["a", "c", "b"], &["b", "d", "c"], &["d", "a", "c", "b"]] {
            let texts: Vec<(String, String)> = (0..circle.len())
                .map(|n| (format!("crates/x/src/{}.rs", circle[n]), knows(circle[(n + 1) % circle.len()])))
                .collect();
            let mut files = vec![root];
            files.extend(texts.iter().map(|(path, text)| (path.as_str(), text.as_str())));
            assert_eq!(flagged(&files), 1, "{circle:?}");
            files.pop();
            assert_eq!(flagged(&files), 0, "{circle:?}, open");
        }
    }

    #[test]
    fn one_way_tests_and_other_crates_are_not_flagged() {
        let back = ("crates/x/src/b/mod.rs", "#[cfg(test)]\nmod e;\nmod c;\nuse crate::a::A;\n");
        for good in [
            "use crate::c::C;\nuse other::b::B;\nuse b::B;\n",
            "// crate::b\n/// [`crate::b`]\nuse crate::bb;\n",
            "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n",
            "use crate::a::b::B;\nuse self::b::B;\n",
        ] {
            assert_eq!(flagged(&[("crates/x/src/a.rs", good), back]), 0, "{good}");
        }
        assert_eq!(flagged(&[("crates/x/src/b/c.rs", "use super::{D, a::F};\n"), back]), 0, "a child and its parent");
        assert_eq!(flagged(&[("crates/y/src/a.rs", "use crate::b::B;\n"), back]), 0, "another crate");
        let test = ("crates/x/src/a.rs", "#[cfg(test)]\nmod t;\n");
        assert_eq!(flagged(&[test, ("crates/x/src/a/t.rs", "use crate::b::B;\n"), back]), 0, "a file of tests");
        assert_eq!(flagged(&[("crates/x/tests/a.rs", "use crate::b::B;\n"), back]), 0, "tests beside the source");
    }
}
