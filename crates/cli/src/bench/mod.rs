//! `keyhush bench`: how fast this machine does the work.

mod local_training;
mod predict;

use clap::Subcommand;

/// The subcommands of `keyhush bench`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Train users one after the other, as a device or a simulator does: milliseconds of CPU time a user.
    LocalTraining(local_training::LocalTrainingArgs),
    /// Type with a model, as a keyboard does: milliseconds a prediction, and memory.
    Predict(predict::PredictArgs),
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::LocalTraining(args) => local_training::run(&args),
        Command::Predict(args) => predict::run(&args),
    }
}
