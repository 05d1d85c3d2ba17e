//! The files of the project, and how violations are reported.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file of the project.
pub(crate) struct File {
    /// Relative to the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs") && !super::testdata::is_testdata(&self.path)
    }

    pub(crate) fn violation(&self, line: usize, what: impl Into<String>) -> Violation {
        Violation::new(&self.path, line, what)
    }
}

/// What is wrong where, and what to do about it.
#[derive(Debug)]
pub(crate) struct Violation(String);

impl Violation {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self(format!("{path}:{line}: {}", what.into()))
    }
}

/// Fails with the list, if there is anything on it.
pub(crate) fn report(violations: Vec<Violation>) {
    let lines: Vec<String> = violations.into_iter().map(|v| v.0).collect();
    assert!(lines.is_empty(), "\n{} to tidy:\n{}\n", lines.len(), lines.join("\n"));
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace").to_path_buf()
}

/// Every text file of the project: what git tracks or would track; where there is no git, what is not a build output.
pub(crate) fn files() -> Vec<File> {
    let root = root();
    let paths = tracked(&root).unwrap_or_else(|| walk(&root));
    let read = |path: String| std::fs::read_to_string(root.join(&path)).ok().map(|text| File { path, text });
    paths.into_iter().filter_map(read).collect()
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let out = git.current_dir(root).output().ok().filter(|out| out.status.success())?;
    let text = String::from_utf8(out.stdout).ok()?;
    Some(text.split_terminator('\0').map(str::to_owned).collect())
}

fn walk(root: &Path) -> Vec<String> {
    const NOT_OURS: [&str; 5] = [".git", "target", "runs", ".venv", "__pycache__"];
    let mut paths = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the project can be read").flatten() {
            let path = entry.path();
            if path.is_file() {
                let relative = path.strip_prefix(root).expect("the walk stays under the root");
                paths.push(relative.to_string_lossy().replace('\\', "/"));
            } else if !NOT_OURS.contains(&&*entry.file_name().to_string_lossy()) {
                folders.push(path);
            }
        }
    }
    paths.sort();
    paths
}

#[test]
fn both_ways_of_listing_see_this_file() {
    let this = "xtask/tests/tidy/tree.rs";
    assert!(files().iter().any(|f| f.path == this && f.text.contains("both_ways_of_listing")));
    assert!(walk(&root()).iter().any(|p| p == this));
}

#[test]
#[should_panic(expected = "a.rs:3: too long")]
fn a_violation_fails_and_says_where() {
    report(vec![Violation::new("a.rs", 3, "too long")]);
}
