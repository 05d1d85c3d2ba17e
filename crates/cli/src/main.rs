//! The `keyhush` command: parses, wires, reports. What it computes lives in the libraries.
//!
//! Exit codes: 0 done, 1 failed, 2 bad input.
#![allow(clippy::print_stdout, clippy::print_stderr)] // printing is this crate's job

mod bench;
mod failure;
mod privacy;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Train keyboard language models on text that stays with the people who typed it.
#[derive(Parser)]
#[command(name = "keyhush", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What a training run costs in privacy, and what a target needs.
    #[command(subcommand)]
    Privacy(Box<privacy::Command>),
    /// How fast this machine does the work.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Privacy(command) => privacy::run(*command),
        Command::Bench(command) => bench::run(command),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "keyhush", &mut std::io::stdout());
            Ok(())
        }
    }
}
