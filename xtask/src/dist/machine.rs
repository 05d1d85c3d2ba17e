//! The machines that a release is for.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::packages::{self, Needed};

/// A kind of machine, and what stands in for it here.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    /// Its name in the names of files and on the command line.
    pub(crate) name: &'static str,
    /// What Rust calls it.
    pub(crate) triple: &'static str,
    /// What Debian calls it.
    pub(crate) debian: &'static str,
    /// What a program of it is given to; nothing where it runs by itself.
    pub(crate) runner: &'static [&'static str],
    /// What brings the runner and the libraries that it looks for.
    needed: &'static [Needed],
}

/// All of them.
pub(crate) const MACHINES: &[Machine] = &[
    Machine { name: "x86_64", triple: "x86_64-unknown-linux-gnu", debian: "amd64", runner: &[], needed: &[] },
    Machine {
        name: "aarch64",
        triple: "aarch64-unknown-linux-gnu",
        debian: "arm64",
        runner: &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
        needed: &[Needed::command("qemu-aarch64", &["qemu-user", "libc6-arm64-cross"])],
    },
];

impl Machine {
    /// The machine of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        MACHINES.iter().find(|machine| machine.name == name)
    }

    /// The same, where this program runs on it: nothing stands in for it.
    pub(crate) const fn itself(&self) -> Self {
        Self { runner: &[], needed: &[], ..*self }
    }

    /// Makes sure that its programs can be run.
    pub(crate) fn prepare(&self) -> Result<()> {
        if self.needed.is_empty() { Ok(()) } else { packages::install_missing(self.needed) }
    }

    /// A command that runs the program, here.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut words = self.runner.iter();
        let Some(runner) = words.next() else { return Command::new(program) };
        let mut command = Command::new(runner);
        command.args(words).arg(program);
        command
    }
}
