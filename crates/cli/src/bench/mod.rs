//! `keyhush bench`: how fast this machine does the work.

mod local_training;

use clap::Subcommand;

/// The subcommands of `keyhush bench`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Train users one after the other, as a device or a simulator does: milliseconds of CPU time a user.
    LocalTraining(local_training::LocalTrainingArgs),
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::LocalTraining(args) => local_training::run(&args),
    }
}
