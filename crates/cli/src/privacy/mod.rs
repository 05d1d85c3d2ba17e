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
    /// Compute the epsilon of a run at a given delta.
    #[command(allow_negative_numbers = true)]
    Epsilon(epsilon::EpsilonArgs),
    /// Find the least noise for which epsilon is at most a given value.
    #[command(allow_negative_numbers = true)]
    Noise(solve::TargetArgs),
    /// Find the most rounds for which epsilon is at most a given value.
    #[command(allow_negative_numbers = true)]
    Rounds(solve::TargetArgs),
    /// Find the cohort for which epsilon is at most a given value.
    #[command(allow_negative_numbers = true)]
    Cohort(solve::CohortArgs),
    /// Compute the zCDP parameter rho of a run, and the sensitivity of its correlated noise.
    #[command(allow_negative_numbers = true)]
    Rho(epsilon::RhoArgs),
    /// Optimize the coefficients of correlated noise, and show their error.
    ///
    /// Errors are standard deviations of the noise in a prefix sum (the sum of all rounds so far), for a clip norm of 1 and a noise multiplier
    /// of 1. For comparison, tree noise uses Honaker's estimator from below (2015). Pass the coefficients to `keyhush privacy epsilon` as
    /// printed.
    Matrix(matrix::MatrixArgs),
    /// Show privacy tables of the papers, as printed and as computed here.
    Table(table::TableArgs),
    /// Plot epsilon over rounds as SVG.
    #[command(allow_negative_numbers = true)]
    Plot(plot::PlotArgs),
    /// State what a ledger guarantees, from the ledger alone.
    Statement(statement::StatementArgs),
    /// Compute what separate runs on the same users cost together, from their ledgers.
    ///
    /// A ledger only accounts for its own run or task; a user who is in several pays for all of them. All ledgers must protect the same unit
    /// under the same adjacency. Each counts as in its statement: as its whole plan, if that is what the statement covers.
    Compose(compose::ComposeArgs),
    /// Check a ledger and recompute its epsilon.
    ///
    /// Checks the hash chain, the signatures, the given heads, the stored vectors and the participation records. Without a head, a ledger that
    /// was truncated at an entry boundary cannot be detected. The holder of the signing key can write any ledger that passes.
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
