//! `keyhush bench`: measures the speed of this machine.

mod device;
#[cfg(feature = "cuda")]
mod gpu;
mod local_training;
#[cfg(feature = "network")]
mod network;
mod predict;
mod round;
mod secagg;
#[cfg(feature = "network")]
mod slow;

use clap::{Args, Subcommand};

#[cfg(not(feature = "cuda"))]
use crate::without::no_cuda::gpu;
#[cfg(not(feature = "network"))]
use crate::without::no_network::{network, slow};

/// The subcommands of `keyhush bench`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure training on one user's 20 kB of text, as Popov et al. 2018 did on a phone.
    Device(device::DeviceArgs),
    /// Measure local training: CPU time per user.
    LocalTraining(local_training::LocalTrainingArgs),
    /// Measure training rounds on an NVIDIA GPU, against its peak performance and against the CPU's results.
    Gpu(gpu::GpuArgs),
    /// Measure whole rounds: the overhead beyond local training, and the cost of more threads.
    Round(round::RoundArgs),
    /// Measure a server and its devices as real processes, and check that no report is lost or counted twice.
    Network(network::NetworkArgs),
    /// Open connections that never complete a request; measure how soon a server closes them and how honest devices are affected.
    SlowConnections(slow::SlowArgs),
    /// Measure a round of secure aggregation for clients and server, and check that the sum is exact.
    Secagg(secagg::SecaggArgs),
    /// Measure next-word prediction, as on a keyboard: time and memory.
    Predict(predict::PredictArgs),
}

/// What one user of a measurement trains, and how.
#[derive(Args)]
struct UserArgs {
    /// Model preset, such as mcmahan2018, gboard or so-nwp
    #[arg(long, default_value = "mcmahan2018")]
    model: String,
    /// Vocabulary size, instead of the preset's
    #[arg(long)]
    vocabulary: Option<usize>,
    /// Tokens per user
    #[arg(long, default_value_t = 1600)]
    tokens: usize,
    /// Sequences per batch
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Tokens per sequence in a batch
    #[arg(long, default_value_t = 10)]
    unroll: usize,
    /// Learning rate
    #[arg(long, default_value_t = 0.5)]
    learning_rate: f32,
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
