//! Rules about words that people read: in help, errors, documents and item docs.

use super::{
    source::{code, without_test_modules},
    tree::{File, Violation},
};

/// Phrases that readers had to read twice, and what to write instead.
const ODD: [(&str, &str); 30] = [
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
    ("users a round", "users per round"),
    ("nodes a round", "nodes per round"),
    ("bytes a second", "bytes per second"),
    ("run a point", "run per point"),
    ("run a line", "run per line"),
    ("run a row", "run per row"),
    ("entry a line", "entry per line"),
    ("<th>a round", "per round"),
    ("judged by best", "with accountant best"),
    ("is borne", "is tolerated"),
    ("thread(s)", "federated::numbers::counted"),
    ("for good\"", "permanently"),
    ("may be taken for {", "is rounded to"),
    ("where they ended", "final values"),
    ("is another run's", "belongs to another run"),
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

/// Docs of items that say nothing, although they have a noun. [`is_empty`] knows the rest.
const EMPTY: [&str; 16] = [
    "From bytes.",
    "To bytes.",
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
    "Whose text.",
    "As people ask for it.",
];

/// Words that say nothing of an item by themselves.
const FUNCTION_WORDS: &str = "a about after again all alone also an and another any anybody are as asked at be before been behind beside but by \
    called came can cannot could did do does else even everybody everything far for from given gone had has have here how if in into is it its \
    itself last late least less many may more most much must my needs never no nobody none nor not nothing now of off on once one ones or other \
    others our ours out over own rest said same says second several should so some somebody something still such taken than that the their \
    theirs them themselves then there these they this those to together too under until up upwards was we were what when where whether \
    which while who whom whose why will with without would yet you";

/// What can be one: `1 rounds` was printed.
const COUNTED: [&str; 14] = [
    "rounds",
    "runs",
    "posts",
    "days",
    "evaluations",
    "threads",
    "participations",
    "fields",
    "records",
    "users",
    "entries",
    "connections",
    "ends",
    "models",
];

/// Where a number is followed by one of these and cannot be one, by the words before it.
const NEVER_ONE: [&str; 12] = [
    ", all {}",
    "{rate}",
    "_ => format!(\"{}",
    "{SMOOTHED_OVER}",
    "{MOST_OF_A_NAME}",
    "{users} users, {posts}",
    "                format!(\"{users}", // in the description by which a run recognizes its data
    "(\"protects\", format!(\"{}",
    "vocabulary   {}", // it always has more than the special tokens
    "{} sequences, {}",
    "guessing among {vocabulary}",
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
    let (path, of) = (&file.path, |ends: &[&str]| ends.iter().any(|end| file.path.ends_with(end)));
    let page = path.starts_with("docs/") && of(&[".md"]) || path == "README.md";
    let experiment = path.starts_with("experiments/") && of(&[".md", ".toml"]);
    let shown = path.starts_with("web/") && of(&[".html", ".js"]) || path.contains("/templates/");
    let printed = of(&[".trycmd"]);
    page || experiment || shown || printed || file.is_rust() && path.starts_with("crates/") && path.contains("/src/")
}

/// Flags phrases of [`ODD`], and except in strings of the program also of [`STILTED`], and docs that say nothing.
pub(crate) fn odd(file: &File) -> Vec<Violation> {
    let lines = without_test_modules(file.text.lines().enumerate().map(|(i, line)| (i + 1, line.to_owned())).collect());
    let docs: Vec<Option<&str>> =
        file.text.lines().map(|line| line.trim().strip_prefix("///").map(str::trim)).collect();
    let is_doc = |number: usize| number.checked_sub(1).and_then(|at| docs.get(at)).is_some_and(Option::is_some);
    let flagged = lines.iter().filter_map(|(number, line)| {
        let lower = line.to_lowercase();
        let comment = !file.is_rust() || line.trim_start().starts_with("//");
        let mut phrases = ODD.iter().chain(STILTED.iter().filter(|_| comment));
        let phrase = phrases.find(|(phrase, _)| lower.contains(phrase));
        let alone = !is_doc(number - 1) && !is_doc(number + 1);
        let empty = docs[number - 1].is_some_and(|doc| EMPTY.contains(&doc) || alone && is_empty(doc));
        let instead = phrase.map(|(phrase, better)| format!("`{phrase}` is read twice: write `{better}`"));
        let instead = instead.or_else(|| empty.then(|| "this says nothing: say what it is".to_owned()))?;
        Some(file.violation(*number, instead))
    });
    flagged.collect()
}

/// Whether a doc of one line says nothing: none of its words means anything by itself, or it is `It` with one or two words.
fn is_empty(doc: &str) -> bool {
    let Some(sentence) = doc.strip_suffix('.') else { return false };
    let words: Vec<String> = sentence.split(' ').map(|word| word.trim_end_matches(',').to_lowercase()).collect();
    let says_something = |word: &String| !FUNCTION_WORDS.split_whitespace().any(|known| known == word);
    let it = ["it", "they"].contains(&words[0].as_str());
    !words.iter().any(says_something) || it && words.len() <= 3
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
        for good in
            ["/// The rate.\n", "/// It does\n/// what it says.\n", "/// Whether it is empty.\n", "// It does it.\n"]
        {
            assert!(odd(&file(good)).is_empty(), "{good:?}");
        }
        for evil in [
            "/// Who judges.\n",
            "/// It does it.\n",
            "/// It failed.\n",
            "/// Theirs.\n",
            "/// Before what.\n",
            "/// The same upwards.\n",
            "/// Which of them it was, if any.\n",
            "println!(\"{} thread(s)\", n);\n",
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
    fn experiments_templates_and_pages_are_read() {
        let of = |path: &str| File { path: path.to_owned(), text: "100 users a round, in the midst".to_owned() };
        for path in [
            "experiments/a/experiment.toml",
            "experiments/a/README.md",
            "crates/report/templates/time.html",
            "web/index.html",
        ] {
            assert!(is_read(&of(path)) && odd(&of(path)).len() == 1, "{path}");
        }
        assert!(!is_read(&of("CHANGELOG.md")) && !is_read(&of("experiments/a/results/results.json")));
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
