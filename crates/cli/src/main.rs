//! The `keyhush` command: parses arguments, calls the libraries and prints the results.
//!
//! Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.
#![allow(clippy::print_stdout, clippy::print_stderr)] // printing is this crate's job

#[cfg(feature = "network")]
mod access;
#[cfg(feature = "network")]
mod approval;
mod audit;
#[cfg(feature = "network")]
mod backup;
mod bench;
mod board;
mod choices;
mod columns;
mod compare;
mod data;
#[cfg(feature = "network")]
mod demo;
#[cfg(feature = "network")]
mod device;
mod distil;
#[cfg(feature = "network")]
mod doctor;
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
mod officer;
mod plan;
mod predict;
mod pretrain;
mod privacy;
mod remaining;
#[cfg(feature = "network")]
mod restore;
#[cfg(feature = "network")]
mod rotate;
#[cfg(feature = "network")]
mod serve;
mod sweep;
#[cfg(feature = "network")]
mod task;
#[cfg(all(test, feature = "full"))]
mod tests;
mod threads;
mod train;
mod without;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[cfg(not(feature = "network"))]
use crate::without::no_network::{access, backup, demo, device, doctor, restore, rotate, serve, task};

/// Train keyboard language models on text that stays with the people who typed it.
#[derive(Parser)]
#[command(name = "keyhush", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a model on users' text with differential privacy.
    Train(Box<train::TrainArgs>),
    /// Write a settings file with every key explained.
    Init(init::InitArgs),
    /// Show what a run would cost before it starts, or find settings for a privacy target.
    Plan(Box<plan::PlanArgs>),
    /// Import, inspect or generate text by user.
    #[command(subcommand)]
    Data(Box<data::Command>),
    /// Compute privacy costs, calibrate noise, and check ledgers.
    #[command(subcommand)]
    Privacy(Box<privacy::Command>),
    /// Attack models to see whether their guarantee holds.
    #[command(subcommand)]
    Audit(Box<audit::Command>),
    /// Train a model on public text.
    Pretrain(Box<pretrain::PretrainArgs>),
    /// Train every combination of some settings, each with several seeds.
    Sweep(Box<sweep::SweepArgs>),
    /// Compare runs.
    Compare(compare::CompareArgs),
    /// Show all runs on one page, live while they train.
    Board(board::BoardArgs),
    /// Reproduce tables and figures of the papers.
    #[command(subcommand)]
    Experiment(Box<experiment::Command>),
    /// See all of it at once: a server, 200 devices of synthetic users, and its dashboard, on this machine.
    Demo(demo::DemoArgs),
    /// Run a server that trains private models with real devices.
    Serve(Box<serve::ServeArgs>),
    /// Create the key with which a privacy officer approves tasks.
    #[command(subcommand)]
    Officer(officer::Command),
    /// Create, list or revoke the tokens of those who may see and operate a server.
    #[command(subcommand)]
    Access(access::Command),
    /// Look for what is wrong with a server: its folders, database, machine and certificate.
    Doctor(Box<doctor::DoctorArgs>),
    /// List, pause, resume or stop the tasks of a server on this machine.
    #[command(subcommand)]
    Task(task::Command),
    /// Copy what a server keeps, while it runs: ledgers, models, devices, and no keys.
    Backup(backup::BackupArgs),
    /// Restore a backup where nothing happened since it was made; otherwise write out what is left of its tasks.
    Restore(restore::RestoreArgs),
    /// Replace a server's certificate or enrolment token.
    #[command(subcommand)]
    Rotate(rotate::What),
    /// Take part in training as one device, or simulate many.
    Device(Box<device::DeviceArgs>),
    /// Measure how fast this machine is.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Measure a model: accuracy, perplexity, keystrokes saved, head words.
    Eval(eval::EvalArgs),
    /// Type and see a model's suggestions.
    ///
    /// In a terminal, Tab accepts the first suggestion, Alt-1 to Alt-9 (or F1 to F9) accept the one with that number, Enter starts a new line, Esc
    /// quits. Without a terminal, each line of standard input is the text typed so far and is answered with one line of suggestions, separated
    /// by tabs.
    Predict(predict::PredictArgs),
    /// Train an n-gram model on public text, the baseline of the papers.
    Ngram(ngram::NgramArgs),
    /// Make one model from the released models of several runs.
    Distil(distil::DistilArgs),
    /// Write man pages or shell completion scripts.
    #[command(subcommand)]
    Generate(generate::What),
}

fn main() -> ExitCode {
    failure::end_quietly_when_nobody_reads();
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Train(args) => train::train(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Officer(command) => officer::run(&command),
        Command::Access(command) => access::run(&command),
        Command::Doctor(args) => doctor::run(&args),
        Command::Task(command) => task::run(&command),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Rotate(what) => rotate::run(&what),
        Command::Device(args) => self::device::run(&args),
        Command::Init(args) => init::init(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Data(command) => data::run(*command),
        Command::Privacy(command) => privacy::run(*command),
        Command::Audit(command) => audit::run(&command),
        Command::Pretrain(args) => pretrain::run(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Board(args) => self::board::board(&args),
        Command::Experiment(command) => experiment::run(&command),
        Command::Bench(command) => bench::run(command),
        Command::Eval(args) => eval::eval(&args),
        Command::Predict(args) => predict::predict(&args),
        Command::Ngram(args) => ngram::ngram(&args),
        Command::Distil(args) => distil::run(&args),
        Command::Generate(what) => generate::run(&what, Cli::command()),
    }
}
