//! The `keyhush` command: parses, wires, reports. What it computes lives in the libraries.
//!
//! Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.
#![allow(clippy::print_stdout, clippy::print_stderr)] // printing is this crate's job

mod bench;
mod board;
mod choices;
mod columns;
mod compare;
mod data;
mod device;
mod engines;
mod eval;
mod experiment;
mod failure;
mod generate;
mod init;
mod interrupt;
mod kernels;
mod model_folder;
mod ngram;
mod plan;
mod predict;
mod pretrain;
mod privacy;
mod serve;
mod sweep;
mod task;
mod threads;
mod train;

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
    /// Train a model on users' text, with a proof of how little any one of them can have influenced it.
    Train(Box<train::TrainArgs>),
    /// Write settings to begin with, every key explained.
    Init(init::InitArgs),
    /// Before any work: what a run would cost, or which settings a target asks for.
    Plan(Box<plan::PlanArgs>),
    /// Text by user: import it, look at it, make it up.
    #[command(subcommand)]
    Data(Box<data::Command>),
    /// What a training run costs in privacy, and what a target needs.
    #[command(subcommand)]
    Privacy(Box<privacy::Command>),
    /// Train a model on public text.
    Pretrain(Box<pretrain::PretrainArgs>),
    /// Run every combination of some settings, each with several seeds.
    Sweep(Box<sweep::SweepArgs>),
    /// Lay runs over one another.
    Compare(compare::CompareArgs),
    /// One page over all runs, live while they train.
    Board(board::BoardArgs),
    /// The papers' tables and figures, run here.
    #[command(subcommand)]
    Experiment(Box<experiment::Command>),
    /// Serve tasks to devices that come by themselves, and train private models with them.
    Serve(Box<serve::ServeArgs>),
    /// The tasks of a server, from its own machine: list, pause, resume, stop.
    #[command(subcommand)]
    Task(task::Command),
    /// Take part as a device, or as many made-up ones.
    Device(Box<device::DeviceArgs>),
    /// How fast this machine does the work.
    #[command(subcommand)]
    Bench(bench::Command),
    /// How well a model predicts: accuracy, perplexity, keystrokes saved, head words.
    Eval(eval::EvalArgs),
    /// Type and see a model's suggestions change.
    ///
    /// In a terminal: Tab takes the first suggestion, Alt-1 to Alt-9 (or F1 to F9) take theirs, Enter begins anew, Esc leaves.
    /// Otherwise each line of the input is what was typed so far, and is answered by a line of suggestions, divided by tabs.
    Predict(predict::PredictArgs),
    /// Count an n-gram model in public text: the baseline of the papers.
    Ngram(ngram::NgramArgs),
    /// Man pages, and completion scripts for shells.
    #[command(subcommand)]
    Generate(generate::What),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Train(args) => train::train(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Task(command) => task::run(&command),
        Command::Device(args) => self::device::run(&args),
        Command::Init(args) => init::init(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Data(command) => data::run(*command),
        Command::Privacy(command) => privacy::run(*command),
        Command::Pretrain(args) => pretrain::run(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Board(args) => self::board::board(&args),
        Command::Experiment(command) => experiment::run(&command),
        Command::Bench(command) => bench::run(command),
        Command::Eval(args) => eval::eval(&args),
        Command::Predict(args) => predict::predict(&args),
        Command::Ngram(args) => ngram::ngram(&args),
        Command::Generate(what) => generate::run(&what, Cli::command()),
    }
}
