//! Errors in settings.

use thiserror::Error;

/// An error in settings, with its key and line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{key}{}{problem}", place(*line), if key.is_empty() { "" } else { ": " })]
pub struct ConfigError {
    /// The key, with its section; empty where the text as a whole is wrong.
    pub key: String,
    /// The line, where it is known.
    pub line: Option<usize>,
    /// What is wrong, and what to do.
    pub problem: String,
}

fn place(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}

impl ConfigError {
    /// A key that is wrong.
    pub fn new(key: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self { key: key.into(), line: None, problem: problem.to_string() }
    }
}
