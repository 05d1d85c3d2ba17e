//! `keyhush privacy`: what a run costs, what a target needs, and what a ledger guarantees.

pub(crate) mod answer;
mod compose;
pub(crate) mod epsilon;
mod ledger;
mod matrix;
mod plot;
pub(crate) mod query;
pub(crate) mod solve;
mod statement;
mod table;
mod verify;

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
    /// The coefficients with which correlated noise is smallest, and how small it is.
    ///
    /// Errors are standard deviations of the noise in a prefix sum (the sum of all rounds so far), for a unit clip and a
    /// noise multiplier of 1. The tree beside them is estimated from below, as Honaker 2015 does. The coefficients go
    /// into `keyhush privacy epsilon` as they are printed.
    Matrix(matrix::MatrixArgs),
    /// The tables of the papers, as printed and as judged today.
    Table(table::TableArgs),
    /// Draw epsilon over rounds as SVG.
    #[command(allow_negative_numbers = true)]
    Plot(plot::PlotArgs),
    /// State what a ledger guarantees, from the ledger and nothing else.
    Statement(statement::StatementArgs),
    /// What separate runs over the same users cost together, from their ledgers.
    ///
    /// Each ledger pays for its own run or task, and knows of no other: whoever is in several pays for all of them. Given are the
    /// folders of runs, or the files of ledgers; all must protect the same unit under the same adjacency. Counted is of each what its
    /// statement counts: where that is the whole plan, the whole plan.
    Compose(compose::ComposeArgs),
    /// Check a ledger and compute its cost again.
    ///
    /// Checked are the chain, the signatures, the heads that are given, the stored vectors and the records of who took
    /// part. Without a head nobody can tell whether a ledger was cut at an entry boundary, and against the holder of
    /// the signing key nothing is proved.
    Verify(verify::VerifyArgs),
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Epsilon(args) => epsilon::epsilon(&args),
        Command::Noise(args) => solve::noise(&args),
        Command::Rounds(args) => solve::rounds(&args),
        Command::Cohort(args) => solve::cohort(&args),
        Command::Rho(args) => epsilon::rho(&args),
        Command::Matrix(args) => matrix::matrix(&args),
        Command::Table(args) => table::table(&args),
        Command::Plot(args) => plot::plot(&args),
        Command::Statement(args) => statement::statement(&args),
        Command::Compose(args) => compose::run(&args),
        Command::Verify(args) => verify::verify(&args),
    }
}
