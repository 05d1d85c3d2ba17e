//! `keyhush privacy`: what a run costs, and what a target needs.

mod answer;
mod assumptions;
mod epsilon;
mod plot;
mod query;
mod solve;
mod table;

use clap::Subcommand;

/// The subcommands of `keyhush privacy`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// What a run costs: epsilon at a given delta.
    #[command(allow_negative_numbers = true)]
    Epsilon(epsilon::EpsilonArgs),
    /// The least noise with which a run costs at most a given epsilon.
    #[command(allow_negative_numbers = true)]
    Noise(solve::TargetArgs),
    /// The most rounds that cost at most a given epsilon.
    #[command(allow_negative_numbers = true)]
    Rounds(solve::TargetArgs),
    /// The cohort with which a run costs at most a given epsilon.
    #[command(allow_negative_numbers = true)]
    Cohort(solve::CohortArgs),
    /// The zCDP parameter of a run, and the sensitivity of its correlated noise.
    #[command(allow_negative_numbers = true)]
    Rho(epsilon::RhoArgs),
    /// The tables of the papers, as printed and as judged today.
    Table(table::TableArgs),
    /// Draw epsilon over rounds as SVG.
    #[command(allow_negative_numbers = true)]
    Plot(plot::PlotArgs),
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Epsilon(args) => epsilon::epsilon(&args),
        Command::Noise(args) => solve::noise(&args),
        Command::Rounds(args) => solve::rounds(&args),
        Command::Cohort(args) => solve::cohort(&args),
        Command::Rho(args) => epsilon::rho(&args),
        Command::Table(args) => table::table(&args),
        Command::Plot(args) => plot::plot(args),
    }
}
