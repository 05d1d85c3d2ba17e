//! `keyhush bench`: how fast this machine does the work.

mod device;
mod gpu;
mod local_training;
mod network;
mod predict;
mod round;
mod secagg;
mod slow;

use clap::Subcommand;

/// The subcommands of `keyhush bench`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Train on one user's 20 kB of text, as Popov et al. 2018 did on a phone: seconds, and memory.
    Device(device::DeviceArgs),
    /// Train users one after the other, as a device or a simulator does: milliseconds of CPU time a user.
    LocalTraining(local_training::LocalTrainingArgs),
    /// Train rounds of users on an NVIDIA card: milliseconds a round, the share of the card's peaks, the difference to the threads.
    Gpu(gpu::GpuArgs),
    /// Run whole rounds: what they cost beside the users' training, and what a second thread costs.
    Round(round::RoundArgs),
    /// Run a server and its devices as processes on this machine: what rounds cost, and whether anything is lost or counted twice.
    Network(network::NetworkArgs),
    /// Open connections that never finish what they begin: how soon a server closes them, and what honest devices notice.
    SlowConnections(slow::SlowArgs),
    /// Sum vectors by secure aggregation: what a round costs a client and the server, and whether the sum is exact.
    Secagg(secagg::SecaggArgs),
    /// Type with a model, as a keyboard does: milliseconds a prediction, and memory.
    Predict(predict::PredictArgs),
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Device(args) => device::run(&args),
        Command::LocalTraining(args) => local_training::run(&args),
        Command::Gpu(args) => gpu::run(&args),
        Command::Round(args) => round::run(&args),
        Command::Network(args) => network::run(&args),
        Command::SlowConnections(args) => slow::run(&args),
        Command::Secagg(args) => secagg::run(&args),
        Command::Predict(args) => predict::run(&args),
    }
}
