//! What a run of tests is made of: steps, each a function or a call of cargo.

use std::process::Command;

use anyhow::Result;

use crate::{nvrtc, root};

/// One thing to do, under one heading.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
}

pub(crate) enum Work {
    /// A function of this program.
    Call(fn() -> Result<()>),
    /// `cargo` with these arguments.
    Cargo { args: Vec<&'static str> },
    /// `cargo nextest` with these arguments; the slowest tests are shown at the end.
    Nextest { args: Vec<&'static str> },
}

/// The cargo that started this program. What it runs finds the libraries that were brought for tests.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).envs(nvrtc::search_path().map(|path| (nvrtc::VARIABLE, path)));
    command
}
