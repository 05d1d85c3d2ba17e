//! `keyhush generate`: man pages and completion scripts, from the same definitions as the help.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Command, Subcommand};
use clap_complete::Shell;

/// The subcommands of `keyhush generate`.
#[derive(Subcommand)]
pub(crate) enum What {
    /// Write the man pages, one for each command.
    Man {
        /// Folder to write to; created if it does not exist
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Print a completion script for a shell.
    Completions {
        /// Shell to complete for
        shell: Shell,
    },
}

/// Writes or prints it.
pub(crate) fn run(what: &What, command: Command) -> anyhow::Result<()> {
    match what {
        What::Man { folder } => man(folder, command),
        What::Completions { shell } => {
            let mut command = command;
            // What cannot be written is an error here, and a panic there.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "keyhush", &mut script);
            let mut out = std::io::stdout().lock();
            out.write_all(&script).and_then(|()| out.flush()).context("the script cannot be written")
        }
    }
}

fn man(folder: &Path, command: Command) -> anyhow::Result<()> {
    let wrong = || format!("{} cannot be written", folder.display());
    std::fs::create_dir_all(folder).with_context(wrong)?;
    clap_mangen::generate_to(command, folder).with_context(wrong)?;
    println!("man pages: {}; read one with: man {}", folder.display(), folder.join("keyhush.1").display());
    Ok(())
}
