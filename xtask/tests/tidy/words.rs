//! Rules about words that people read: in help, errors, documents and item docs.

use super::{
    source::{code, without_test_modules},
    tree::{File, Violation},
};

/// Phrases that readers had to read twice, and what to write instead.
const ODD: [(&str, &str); 15] = [
    ("stands behind", "comes after"),
    ("who judges", "the accountant"),
    ("over one another", "in the same chart"),
    ("no run to go on", "no run to resume"),
    ("does not go with", "only valid with, or cannot be used with"),
    ("checksum is another", "checksum mismatch"),
    ("a line a round", "one line per round"),
    ("a word to audit", "audit point"),
    ("if not said", "by default"),
    ("if nothing is said", "by default"),
    ("where nothing is said", "by default"),
    ("of before.", "earlier"),
    ("leave it away", "leave it out"),
    ("to take away", "to remove"),
    ("made-up people", "synthetic users"),
];

/// Phrases that are as stilted in documents and comments, and what to write instead. Stored strings keep what they say.
const STILTED: [(&str, &str); 12] = [
    ("whoever ", "a device that, anyone who"),
    (" anew", "again"),
    ("gone on with", "continued, resumed"),
    ("come to nothing", "fail"),
    ("comes to nothing", "fails"),
    ("came to nothing", "failed"),
    ("lies beside", "is next to"),
    ("lie beside", "are next to"),
    ("of theirs", "of the users"),
    ("in the midst", "during"),
    ("in whose midst", "during which"),
    ("made-up crowd", "synthetic users"),
];

/// Docs of items that say nothing.
const EMPTY: [&str; 48] = [
    "Which.",
    "Why.",
    "What.",
    "Who.",
    "Whose.",
    "How.",
    "When.",
    "Where.",
    "These.",
    "No.",
    "Ours.",
    "Not now.",
    "From bytes.",
    "To bytes.",
    "Of what.",
    "Of how many.",
    "Of which task.",
    "Of which step.",
    "Of which attempt.",
    "Of which assignment.",
    "Of the model.",
    "Of the store.",
    "Of the file.",
    "In a word.",
    "In one word.",
    "In words.",
    "In a sentence.",
    "On average.",
    "All of it.",
    "All of them.",
    "One of them.",
    "What it is.",
    "What it says.",
    "What it has.",
    "What it is called.",
    "What people call it.",
    "What there is.",
    "What is there.",
    "What arrived.",
    "What came.",
    "What came of it.",
    "What was given.",
    "What was asked for.",
    "What is asked for.",
    "How many there are.",
    "How far it is.",
    "Whose text.",
    "As people ask for it.",
];

/// What can be one: `1 rounds` was printed.
const COUNTED: [&str; 9] =
    ["rounds", "runs", "posts", "days", "evaluations", "threads", "participations", "fields", "records"];

/// Where a number is followed by one of these and cannot be one, by the words before it.
const NEVER_ONE: [&str; 7] = [
    ", all {}",
    "{rate}",
    "_ => format!(\"{}",
    "{SMOOTHED_OVER}",
    "{MOST_OF_A_NAME}",
    "{users} users, {posts}",
    "say(\"every\", format!(\"{}", // in ledgers of tasks that have begun
];

/// The crates and folders whose texts are printed.
const PRINTED: [&str; 8] = [
    "crates/cli/src/",
    "crates/report/src/",
    "crates/agent/src/",
    "crates/experiments/src/",
    "crates/federated/src/run/",
    "crates/federated/src/propose/",
    "crates/federated/src/plan/",
    "crates/corpus/src/import/",
];

/// Files whose words people read, other than history.
pub(crate) fn is_read(file: &File) -> bool {
    let page = file.path.ends_with(".md") && (file.path.starts_with("docs/") || file.path == "README.md");
    page || file.is_rust() && file.path.starts_with("crates/") && file.path.contains("/src/")
}

/// Flags phrases of [`ODD`], in documents and comments also of [`STILTED`], and docs that say nothing.
pub(crate) fn odd(file: &File) -> Vec<Violation> {
    let lines = without_test_modules(file.text.lines().enumerate().map(|(i, line)| (i + 1, line.to_owned())).collect());
    let flagged = lines.into_iter().filter_map(|(number, line)| {
        let lower = line.to_lowercase();
        let comment = !file.is_rust() || line.trim_start().starts_with("//");
        let mut phrases = ODD.iter().chain(STILTED.iter().filter(|_| comment));
        let phrase = phrases.find(|(phrase, _)| lower.contains(phrase));
        let empty = line.trim().strip_prefix("///").is_some_and(|doc| EMPTY.contains(&doc.trim()));
        let instead = phrase.map(|(phrase, better)| format!("`{phrase}` is read twice: write `{better}`"));
        let instead = instead.or_else(|| empty.then(|| "this says nothing: say what it is".to_owned()))?;
        Some(file.violation(number, instead))
    });
    flagged.collect()
}

pub(crate) fn is_printed(file: &File) -> bool {
    let bench = file.path.starts_with("crates/cli/src/bench/");
    file.is_rust() && !bench && PRINTED.iter().any(|folder| file.path.starts_with(folder))
}

/// Flags a number that is followed by several of something, where it can be one.
pub(crate) fn counts(file: &File) -> Vec<Violation> {
    let flagged = without_test_modules(code(&file.text)).into_iter().filter_map(|(number, line)| {
        let several = |thing: &&str| {
            line.match_indices(&format!("}} {thing}")).any(|(at, found)| {
                let whole = !line[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
                let before = &line[..=at];
                let known = NEVER_ONE.iter().any(|never| before.ends_with(never));
                whole && !known && !before.contains("== 1") && before.contains('"')
            })
        };
        let thing = COUNTED.iter().find(|thing| several(thing))?;
        Some(file.violation(number, format!("this may print `1 {thing}`: use federated::numbers::counted")))
    });
    flagged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> File {
        File { path: "crates/cli/src/x.rs".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn odd_phrases_and_empty_docs_are_flagged() {
        assert!(odd(&file("/// Which accountant.\nlet a = \"the accountant\";\n")).is_empty());
        assert!(odd(&file("let kept = \"whoever started the run\";\n")).is_empty(), "a stored string");
        for evil in [
            "/// Who judges.\n",
            "let a = \"20 if not said\";\n",
            "    /// Which.\n",
            "/// Why.\n",
            "/// Of which task.\n",
            "// Whoever knows it may go on.\n",
            "//! A round that came to nothing.\n",
        ] {
            assert_eq!(odd(&file(evil)).len(), 1, "{evil:?}");
        }
    }

    #[test]
    fn one_of_several_is_flagged() {
        for good in [
            "format!(\"{} of it\", counted(n, \"round\"))",
            "if n == 1 { \"1 day\".into() } else { format!(\"{n} days\") }",
            "format!(\"{a} rounds_per_day\")",
            "struct A {} runs",
        ] {
            assert!(counts(&file(good)).is_empty(), "{good}");
        }
        for evil in ["format!(\"after {n} rounds\")", "\"{} posts, {bytes} bytes\",", "println!(\"{:.0} threads.\", n)"]
        {
            assert_eq!(counts(&file(evil)).len(), 1, "{evil}");
        }
    }
}
