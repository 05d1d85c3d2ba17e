//! Every vector under `testdata/` says where it comes from.

use serde_json::Value;

use super::tree::{File, Violation};

pub(crate) fn is_testdata(path: &str) -> bool {
    path.split('/').rev().skip(1).any(|folder| folder == "testdata")
}

/// JSON carries a top-level `"source"`, anything written in lines begins with `# source:`, a script has the line in its
/// opening comment; a README needs none.
pub(crate) fn source(file: &File) -> Vec<Violation> {
    let (_, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let (_, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let (named, ask) = match extension {
        _ if name == "README.md" => (true, ""),
        "json" => (json_source(&file.text), "give the top level a \"source\" that says where the numbers come from"),
        "jsonl" => (
            json_source(file.text.lines().next().unwrap_or_default()),
            "make the first line an object with a \"source\" that says where the numbers come from",
        ),
        "tsv" | "csv" | "txt" | "md" | "toml" => {
            (first_line_source(&file.text), "begin with a line `# source: ...` that says where this comes from")
        }
        "py" | "sh" => (
            script_source(&file.text),
            "say near the top, on a line `source: ...`, what the script takes its numbers from",
        ),
        _ => (
            false,
            "this kind of file cannot name its source; use JSON, TSV, CSV, TOML, text or the script that makes them",
        ),
    };
    if named { Vec::new() } else { vec![file.violation(1, ask)] }
}

fn json_source(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    value.get("source").and_then(Value::as_str).is_some_and(|source| !source.trim().is_empty())
}

fn first_line_source(text: &str) -> bool {
    let source = text.lines().next().and_then(|line| line.strip_prefix("# source:"));
    source.is_some_and(|source| !source.trim().is_empty())
}

/// A script that makes vectors names what it runs in its opening comment.
fn script_source(text: &str) -> bool {
    let sources = text.lines().take(10).filter_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix("source:"));
    sources.into_iter().any(|source| !source.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_testdata_is_judged() {
        assert!(is_testdata("crates/privacy/testdata/a/b.json"));
        assert!(!is_testdata("crates/privacy/src/testdata.rs"));
        assert!(!is_testdata("xtask/tests/testdata"));
    }

    #[test]
    fn data_without_a_source_is_flagged() {
        let violations = |name: &str, text: &str| {
            source(&File { path: format!("crates/x/testdata/{name}"), text: text.to_owned() }).len()
        };
        for (name, good, evil) in [
            ("a.json", r#"{"source": "a paper"}"#, r#"{"rows": [{"source": "too deep"}]}"#),
            ("a.json", r#"{"source": "a paper"}"#, r#"{"source": " "}"#),
            ("a.json", r#"{"source": "a paper"}"#, r#"{"source": "broken"#),
            ("a.jsonl", "{\"source\": \"a paper\"}\n{}", "{}\n{\"source\": \"too late\"}"),
            ("a.tsv", "# source: a paper\na\tb\n", "a\tb\n# source: too late\n"),
            ("a.csv", "# source: a paper\n", "# source:\n"),
            ("a.py", "\"\"\"Makes a.json.\n\nsource: a paper\n\"\"\"\n", "print('source: a paper')\n"),
            ("README.md", "anything", ""),
        ] {
            assert_eq!(violations(name, good), 0, "{name}: {good}");
            assert_eq!(violations(name, evil), usize::from(name != "README.md"), "{name}: {evil}");
        }
        assert_eq!(violations("notes.md", "# Notes\n"), 1);
        assert_eq!(violations("a.bin", "# source: a paper\n"), 1);
    }
}
