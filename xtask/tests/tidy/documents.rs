//! Rules about all text: links lead somewhere, and no file names a machine's paths or a registry's hosts.

use super::tree::{File, Violation, root};

/// A link to a file of the project must find it. Links to the web are not followed.
pub(crate) fn links(file: &File) -> Vec<Violation> {
    let here = root().join(&file.path);
    let folder = here.parent().expect("a file lies in a folder");
    let missing = targets(&file.text).into_iter().filter(|(_, target)| !folder.join(target).exists());
    missing.map(|(line, target)| file.violation(line, format!("the link to `{target}` leads nowhere"))).collect()
}

/// The files that links point to, as `[text](target)` or `[name]: target`, outside code.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
            let inline = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let defined = prose.strip_prefix('[').and_then(|rest| rest.split_once("]:")).map(|(_, target)| target);
            found.extend(inline.chain(defined).filter_map(path).map(|target| (i + 1, target)));
        }
    }
    found
}

/// The path of a link, without title and fragment; none for the web and for places on the same page.
fn path(link: &str) -> Option<String> {
    let link = link.split_whitespace().next()?.trim_matches(['<', '>']);
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    link.split('#').next().filter(|path| !path.is_empty()).map(str::to_owned)
}

/// A page that names a test as `file.rs`: `name` has it in that file of `crates/`; a file without a folder lies beside the one before it in the line. A
/// name that looks like that of a test has a file before it.
pub(crate) fn tests_named(page: &File, files: &[File]) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for (i, line) in page.text.lines().enumerate() {
        for (path, name) in named_in(line) {
            let defines = |file: &File| file.text.contains(&format!("fn {name}("));
            let problem = match files.iter().find(|file| path.as_ref().is_some_and(|path| file.path == *path)) {
                Some(file) if defines(file) => continue,
                Some(file) => format!("`{}` has no test `{name}`: name the one that shows it now", file.path),
                None => format!("`{name}` is in no file that is named before it: say which, below crates/"),
            };
            wrong.push(page.violation(i + 1, problem));
        }
    }
    wrong
}

/// The tests that a line names, with the file of each, if it has one.
fn named_in(line: &str) -> Vec<(Option<String>, String)> {
    let parts: Vec<&str> = line.split('`').collect();
    let (mut file, mut follows, mut found) = (None::<String>, false, Vec::new());
    // Every second part is code; between two of them stands what joins them.
    for (at, code) in parts.iter().enumerate().skip(1).step_by(2) {
        let (before, after) = (parts[at - 1], parts.get(at + 1).copied().unwrap_or_default());
        if code.ends_with(".rs") && !code.contains(' ') {
            let folder = file.as_ref().and_then(|file| file.rsplit_once('/')).map(|(folder, _)| folder.to_owned());
            file = match folder {
                _ if code.contains('/') => Some(format!("crates/{code}")),
                Some(folder) => Some(format!("{folder}/{code}")),
                None => None,
            };
            follows = after == ": ";
        } else if follows && (before == ": " || before == ", ") {
            found.push((file.clone(), (*code).to_owned()));
        } else {
            follows = false;
            if is_long_name(code) {
                found.push((None, (*code).to_owned()));
            }
        }
    }
    found
}

/// Names of tests are sentences.
fn is_long_name(code: &str) -> bool {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    code.chars().all(letters) && code.matches('_').count() >= 4
}

/// A path or host that is true on one machine only does not belong in a file of the project.
pub(crate) fn places(file: &File) -> Vec<Violation> {
    let lines = file.text.lines().enumerate();
    let found = lines.filter_map(|(i, line)| place(line).map(|place| (i + 1, place)));
    found
        .map(|(line, place)| file.violation(line, format!("`{place}` is true on some machine only: leave it out")))
        .collect()
}

/// The first path or host in the line that belongs to a machine. Joined here, so that this file has none of them.
fn place(line: &str) -> Option<String> {
    let hosts = [
        ["index.cra", "tes.io"],
        ["static.cra", "tes.io"],
        ["sparse+", "http"],
        ["pypi", ".org"],
        ["npm", "js.org"],
        ["files.python", "hosted.org"],
    ];
    let folders = [["/ro", "ot/"], ["/ho", "me/"], ["/Us", "ers/"], ["/wo", "rk/"], ["../sha", "red"]];
    let starts = |folder: &str| {
        let before = |at: usize| line[..at].chars().next_back();
        line.match_indices(folder)
            .any(|(at, _)| !before(at).is_some_and(|c| c.is_alphanumeric() || "_-.)}*]".contains(c)))
    };
    let host = hosts.iter().map(|parts| parts.concat()).find(|host| line.contains(host));
    host.or_else(|| folders.iter().map(|parts| parts.concat()).find(|folder| starts(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_flagged() {
        let count = |text: &str| links(&File { path: "docs/X.md".to_owned(), text: text.to_owned() }).len();
        for evil in [
            "[a](nothing.md)",
            "see [a](../Cargo.toml) and [b](nothing.md#part)",
            "[a]: nothing.md",
            "[a](<no.md> \"t\")",
        ] {
            assert_eq!(count(evil), 1, "{evil}");
        }
        for good in [
            "[a](../Cargo.toml#L3)",
            "[a](#here)",
            "[a](https://example.org/x)",
            "`[a](nothing.md)`",
            "```text\n[a](nothing.md)\n```",
        ] {
            assert_eq!(count(good), 0, "{good}");
        }
    }

    #[test]
    fn a_test_that_is_not_there_is_flagged() {
        let file =
            |path: &str, name: &str| File { path: path.to_owned(), text: format!("#[test]\nfn {name}() {{}}\n") };
        let files = [file("crates/a/tests/b.rs", "it_holds"), file("crates/a/tests/c.rs", "it_holds_too")];
        let count =
            |text: &str| tests_named(&File { path: "docs/X.md".to_owned(), text: text.to_owned() }, &files).len();
        for good in [
            "| x | `a/tests/b.rs`: `it_holds`; `c.rs`: `it_holds_too` |",
            "`a/tests/c.rs`: `it_holds_too` (`secagg.leave_out_after`)",
            "see `a/tests/b.rs` and `it_holds`",
            "`verify_strict`, `Admission`, `--long`",
        ] {
            assert_eq!(count(good), 0, "{good}");
        }
        for evil in [
            "`a/tests/b.rs`: `it_held`",
            "`a/tests/b.rs`: `it_holds`, `it_held`",
            "`a/tests/b.rs`: `it_holds`; `c.rs`: `it_holds`",
            "`a/tests/none.rs`: `it_holds`",
            "`c.rs`: `it_holds_too`",
            "shown by `a_test_of_some_name`",
        ] {
            assert_eq!(count(evil), 1, "{evil}");
        }
    }

    #[test]
    fn a_machine_or_a_registry_is_flagged() {
        for parts in [
            ["url = \"https://index.cra", "tes.io/\""],
            ["pip install -i https://pypi", ".org/simple x"],
            ["cd /ro", "ot/keyhush"],
            ["see `/wo", "rk/main`"],
            ["read ../sha", "red/notes.md"],
        ] {
            assert!(place(&parts.concat()).is_some(), "{parts:?}");
        }
        for good in ["cargo install keyhush", "crates/home/", "the root/of", "a/work/b", "https://example.org/home/x"] {
            assert!(place(good).is_none(), "{good}");
        }
    }
}
