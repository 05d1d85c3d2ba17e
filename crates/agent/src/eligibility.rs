//! Whether a device may take part now: idle, charging, and on an unmetered network. Only the host system knows.

use std::{fmt, fs, path::PathBuf, process::Command};

/// Says whether a device may take part now.
pub trait Eligibility: Send + Sync + fmt::Debug {
    /// Whether it may. It is asked before a device checks in, and now and then while it takes part; it may block for a moment.
    fn eligible(&self) -> bool;
}

/// It always may: a machine that does nothing else.
#[derive(Debug, Clone, Copy, Default)]
pub struct Always;

impl Eligibility for Always {
    fn eligible(&self) -> bool {
        true
    }
}

/// It may while a file exists and says `yes`: a phone's own service writes it.
#[derive(Debug, Clone)]
pub struct FileSays(pub PathBuf);

impl Eligibility for FileSays {
    fn eligible(&self) -> bool {
        fs::read_to_string(&self.0).is_ok_and(|said| said.trim() == "yes")
    }
}

/// It may while a command ends well.
#[derive(Debug, Clone)]
pub struct CommandSays {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Eligibility for CommandSays {
    fn eligible(&self) -> bool {
        Command::new(&self.program).args(&self.arguments).output().is_ok_and(|out| out.status.success())
    }
}
