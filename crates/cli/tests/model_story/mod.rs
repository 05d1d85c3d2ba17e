//! A folder with a public text and the models made of it, for the tests of commands that take a model.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{path::PathBuf, process::Output};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// Words that like each other, so that there is something to learn.
pub(crate) const TEXT: &str = "The cat sat on the mat.\nThe dog sat on the log!\nA cat and a dog ran to the mat.\n\
                               The mat is on the log.\nA dog can't sit on a cat.\n";

/// A folder of its own, gone with it.
pub(crate) struct Story(TempDir);

impl Story {
    /// With the text in `text.txt`.
    pub(crate) fn new() -> Self {
        let story = Self(tempfile::tempdir().unwrap());
        story.write("text.txt", TEXT);
        story
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn command(&self, line: &str, input: &str) -> Output {
        let mut command = Command::cargo_bin("keyhush").unwrap();
        command.args(line.split_whitespace()).current_dir(self.0.path()).write_stdin(input).output().unwrap()
    }

    /// What a command that succeeds prints.
    pub(crate) fn out(&self, line: &str) -> String {
        self.answer(line, "")
    }

    /// The same, after it was given something to read.
    pub(crate) fn answer(&self, line: &str, input: &str) -> String {
        let output = self.command(line, input);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.out(&format!("{line} --json"))).unwrap()
    }

    /// How a command that fails ends, and what it says.
    pub(crate) fn error(&self, line: &str) -> (i32, String) {
        let output = self.command(line, "");
        assert!(!output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stdout));
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}
