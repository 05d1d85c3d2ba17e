//! Rules about Rust source: headers, length, names, what cannot run in wasm, tests that name a rule.

use std::collections::BTreeSet;

use super::tree::{File, Violation};

/// Past this a file holds more than one thing.
const MOST_LINES: usize = 800;

const EMPTY_NAMES: [&str; 9] = ["common", "core", "helper", "helpers", "misc", "shared", "stuff", "util", "utils"];

/// What a browser cannot give: threads, files, sockets, processes, an environment, a clock.
const NOT_IN_WASM: [&str; 8] =
    ["std::thread", "std::fs", "std::net", "std::process", "std::env", "Instant", "SystemTime", DURABLE];

/// Our own crate of files.
const DURABLE: &str = "durable::";

/// The place in a wasm crate that may reach files, through our own crate of them: the file store of the guard. It is compiled only
/// with the feature `files`, which is off unless a program for an operating system asks for it.
const FILE_STORE: &str = "crates/device/src/guard/file/";

/// What stands above every mention of a file store in the code around it.
const ONLY_WITH_FILES: &str = "#[cfg(feature = \"files\")]";

/// A module opens with `//!` and its purpose.
pub(crate) fn header(file: &File) -> Vec<Violation> {
    let first = file.text.lines().next().unwrap_or_default();
    match first.strip_prefix("//!") {
        Some(purpose) if !purpose.trim().is_empty() => Vec::new(),
        _ => vec![file.violation(1, "open the file with a `//!` line that says what it is for")],
    }
}

pub(crate) fn length(file: &File) -> Vec<Violation> {
    let lines = file.text.lines().count();
    let split = || file.violation(MOST_LINES + 1, format!("{lines} lines; split it at {MOST_LINES} or before"));
    if lines > MOST_LINES { vec![split()] } else { Vec::new() }
}

/// A name such as `utils` says where code was put, not what it does.
pub(crate) fn empty_names(file: &File) -> Vec<Violation> {
    let parts = file.path.split('/').map(|part| part.trim_end_matches(".rs")).map(|name| (1, name.to_owned()));
    let inline = code(&file.text).into_iter().filter_map(|(line, text)| {
        let text = text.trim_start();
        let after = text.split_once("mod ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"))?.1;
        Some((line, after.trim_end_matches([' ', ';', '{', '}']).to_owned()))
    });
    let empty = parts.chain(inline).filter(|(_, name)| EMPTY_NAMES.contains(&name.as_str()));
    empty.map(|(line, name)| file.violation(line, format!("`{name}` says nothing: name it for what it does"))).collect()
}

/// Flags what cannot run in wasm, outside comments and `#[cfg(test)]` modules; and the file store, which may reach files,
/// wherever it is named without its feature.
pub(crate) fn not_for_wasm(file: &File) -> Vec<Violation> {
    let code = without_test_modules(code(&file.text));
    let mut violations = file_store_without_feature(file, &code);
    let groups = std_groups(&code);
    let admitted = |word: &str| word == DURABLE && in_file_store(file);
    let words = |text: String| {
        NOT_IN_WASM.into_iter().filter(move |word| !admitted(word)).filter(move |word| has_word(&text, word))
    };
    let all = code.into_iter().chain(groups).flat_map(|(line, text)| words(text).map(move |word| (line, word)));
    let found: BTreeSet<(usize, &str)> = all.collect();
    let ask =
        |(line, word)| file.violation(line, format!("`{word}` does not exist in wasm: let the caller pass it in"));
    violations.extend(found.into_iter().map(ask));
    violations
}

fn in_file_store(file: &File) -> bool {
    file.path.starts_with(FILE_STORE)
}

/// Flags each line around the file store that names it without the attribute above it.
fn file_store_without_feature(file: &File, code: &[(usize, String)]) -> Vec<Violation> {
    let around = file.path.starts_with("crates/device/src/") && !in_file_store(file);
    let ways = ["mod file", "use file", "self::file", "super::file", "guard::file"];
    let names = |text: &str| ways.iter().any(|way| has_word(text, way));
    let lines: Vec<&(usize, String)> = code.iter().filter(|(_, text)| !text.trim().is_empty()).collect();
    let bare = (0..lines.len()).filter(|i| around && names(&lines[*i].1));
    let bare = bare.filter(|i| i.checked_sub(1).is_none_or(|above| lines[above].1.trim() != ONLY_WITH_FILES));
    bare.map(|i| file.violation(lines[i].0, format!("write `{ONLY_WITH_FILES}` above what names the file store")))
        .collect()
}

/// The numbers of the rules that tests of this file carry in their names (`p3_...` or `..._p3_...`).
pub(crate) fn rules_tested(file: &File) -> Vec<u32> {
    let mut in_test = false;
    let mut rules = Vec::new();
    for (_, text) in code(&file.text) {
        let text = text.trim();
        if let Some(signature) = text.strip_prefix("fn ") {
            let name = signature.split('(').next().unwrap_or_default();
            if in_test {
                let numbers =
                    name.split('_').filter_map(|part| part.strip_prefix('p')).filter_map(|n| n.parse::<u32>().ok());
                rules.extend(numbers);
            }
        }
        in_test = text.starts_with("#[") && (in_test || text == "#[test]") || in_test && text.is_empty();
    }
    rules
}

/// The lines with their numbers, cut at `//`. A `//` within a string cuts too; what follows it on that line is not seen.
pub(crate) fn code(text: &str) -> Vec<(usize, String)> {
    let cut = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().enumerate().map(|(i, line)| (i + 1, cut(line))).collect()
}

/// Leaves out each `#[cfg(test)] mod`, which rustfmt closes with a brace in the column where it began.
pub(crate) fn without_test_modules(code: Vec<(usize, String)>) -> Vec<(usize, String)> {
    let mut kept = Vec::new();
    let mut lines = code.into_iter().peekable();
    while let Some((number, line)) = lines.next() {
        let opens =
            |next: &(usize, String)| next.1.trim_start().starts_with("mod ") && next.1.trim_end().ends_with('{');
        if line.trim() == "#[cfg(test)]" && lines.peek().is_some_and(opens) {
            let indent = &line[..line.len() - line.trim_start().len()];
            let end = format!("{indent}}}");
            lines.by_ref().find(|(_, inside)| inside.trim_end() == end);
        } else {
            kept.push((number, line));
        }
    }
    kept
}

/// The members of each `std::{...}`, written out as `std::member`, with the line on which the group opens.
fn std_groups(code: &[(usize, String)]) -> Vec<(usize, String)> {
    let mut groups = Vec::new();
    for (i, (number, line)) in code.iter().enumerate() {
        let Some((_, start)) = line.split_once("std::{") else { continue };
        let rest: String = std::iter::once(start).chain(code[i + 1..].iter().map(|(_, l)| l.as_str())).collect();
        let mut depth = 0;
        let mut member = String::new();
        for c in rest.chars() {
            match c {
                '}' if depth == 0 => break,
                ',' if depth == 0 => groups.push((*number, format!("std::{}", std::mem::take(&mut member).trim()))),
                _ => {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    member.push(c);
                }
            }
        }
        groups.push((*number, format!("std::{}", member.trim())));
    }
    groups
}

/// Whether the text has the word, not merely as a part of a longer one; after `::` anything may follow.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(part) && (word.ends_with("::") || !after.is_some_and(part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File { path: "crates/privacy/src/x.rs".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_file_without_a_purpose_is_flagged() {
        assert!(header(&file("//! Counts words.\n")).is_empty());
        for evil in ["", "use std::fmt;\n", "//!\n", "// Counts words.\n", "\n//! Counts words.\n"] {
            assert_eq!(header(&file(evil)).len(), 1, "{evil:?}");
        }
    }

    #[test]
    fn a_long_file_is_flagged() {
        assert!(length(&file(&"x\n".repeat(MOST_LINES))).is_empty());
        assert_eq!(length(&file(&"x\n".repeat(MOST_LINES + 1))).len(), 1);
    }

    #[test]
    fn a_name_that_says_nothing_is_flagged() {
        assert!(empty_names(&file("mod accountant;\nfn modulus() {} // mod utils\n")).is_empty());
        assert_eq!(empty_names(&file("mod utils;\npub mod helpers {\n    pub(crate) mod misc;\n}\n")).len(), 3);
        let at = |path: &str| File { path: path.to_owned(), text: String::new() };
        for evil in ["crates/core/src/lib.rs", "crates/privacy/src/utils.rs", "crates/privacy/src/common/mod.rs"] {
            assert_eq!(empty_names(&at(evil)).len(), 1, "{evil}");
        }
    }

    #[test]
    fn what_cannot_run_in_wasm_is_flagged() {
        for evil in [
            "use std::fs;",
            "let t = std::time::Instant::now();",
            "use std::time::{Duration, SystemTime};",
            "use std::{fmt, thread};",
            "use std::{\n    fmt,\n    net::{IpAddr, TcpStream},\n};",
            "#[cfg(test)]\nmod tests {\n}\nuse std::env;",
        ] {
            assert_eq!(not_for_wasm(&file(evil)).len(), 1, "{evil}");
        }
    }

    #[test]
    fn comments_tests_and_longer_words_are_not_flagged() {
        for good in [
            "// std::fs is not for us",
            "//! no `Instant`",
            "use std::{fmt, time::Duration};",
            "let x = Instantaneous::new();",
            "use std::fs_like;",
            "#[cfg(test)]\nmod tests {\n    use std::fs;\n    fn f() {\n    }\n}\n",
        ] {
            assert!(not_for_wasm(&file(good)).is_empty(), "{good}");
        }
    }

    #[test]
    fn only_the_file_store_may_reach_files_and_only_through_the_crate_of_files() {
        let at = |path: &str, text: &str| not_for_wasm(&File { path: path.to_owned(), text: text.to_owned() }).len();
        for path in ["mod.rs", "disk.rs", "store.rs"].map(|inside| format!("{FILE_STORE}{inside}")) {
            assert_eq!(at(&path, "use std::io;\nuse durable::{disk::Disk, files};"), 0, "{path}");
            assert_eq!(at(&path, "use std::{\n    fs::File,\n    thread,\n};\nstd::env::var(\"X\");"), 3, "{path}");
        }
        for outside in [
            "crates/ledger/src/store.rs",
            "crates/ledger/src/file/mod.rs",
            "crates/device/src/guard/files.rs",
            "crates/device/src/file/mod.rs",
            "crates/device/src/guard/store.rs",
            "crates/privacy/src/guard/file/mod.rs",
        ] {
            assert_eq!(at(outside, "use std::fs;"), 1, "{outside}");
            assert_eq!(at(outside, "use durable::files;"), 1, "{outside}");
            assert_eq!(at(outside, "let durable = store.head();\nnot_durable::f();"), 0, "{outside}");
        }
    }

    #[test]
    fn the_file_store_is_named_only_with_its_feature() {
        let at = |path: &str, text: &str| not_for_wasm(&File { path: path.to_owned(), text: text.to_owned() }).len();
        let guard = "crates/device/src/guard/mod.rs";
        assert_eq!(at(guard, &format!("mod error;\n{ONLY_WITH_FILES}\npub mod file;\n")), 0);
        assert_eq!(at(guard, "mod error;\npub mod file;\n"), 1);
        assert_eq!(at(guard, "#[cfg(test)]\nmod file;\n"), 1);
        for evil in ["use self::file::Place;\n", "pub use file::Place;\n", "fn f(place: &super::file::Place) {}\n"] {
            assert_eq!(at(guard, evil), 1, "{evil}");
        }
        assert_eq!(at("crates/device/src/lib.rs", "pub use guard::file;\n"), 1);
        assert_eq!(at("crates/device/src/round.rs", "use crate::guard::file::FileStore;\n"), 1);
        assert_eq!(at("crates/device/src/lib.rs", "pub mod file_like; // guard::file\n"), 0);
        // And the crate's own tests turn the feature on, so that the workspace's tests are built with it.
        let manifest = std::fs::read_to_string(crate::tree::root().join("crates/device/Cargo.toml")).unwrap();
        assert!(manifest.contains("device = { workspace = true, features = [\"contract\", \"files\"] }"), "{manifest}");
    }

    #[test]
    fn only_tests_count_for_a_rule() {
        let text = "#[test]\nfn p1_noise() {}\n\n#[test]\n#[ignore]\n/// Why.\nfn tree_p7_() {}\nfn p2_helper() {}\nfn p12() {}\n";
        assert_eq!(rules_tested(&file(text)), [1, 7]);
    }
}
