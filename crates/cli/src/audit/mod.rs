//! `keyhush audit`: attacks on models, to test their guarantees.
//!
//! The attacks are in `federated::audit` and `privacy::audit`; here are arguments, output and pictures.

mod canary;
mod gaussian_sum;
mod hill;
mod membership;
mod one_run;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use federated::{
    audit::{Lab, StudyError},
    canaries::{Needed, SLACKS, needed},
    config::{Config, Document},
    numbers::{counted, grouped},
};
use privacy::{
    Delta, Epsilon,
    audit::{AuditError, Verdict},
};
use report::chart::Chart;
use serde::Serialize;

use crate::{
    failure::{BadInput, Interrupted, of_config, refused},
    interrupt, model_folder,
    train::{MachineArgs, new_folder, stamp},
};

/// The settings of audits that say nothing else.
const SETTINGS: &str = include_str!("audit.toml");
/// The file of the picture.
const PICTURE: &str = "audit.svg";
/// The file of the numbers.
const NUMBERS: &str = "audit.json";

/// The subcommands of `keyhush audit`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Lower bound on epsilon from one run with many canary users.
    OneRun(one_run::OneRunArgs),
    /// Plant secrets in users' text and see how much of them a model remembers.
    Canary(canary::CanaryArgs),
    /// Tell members from others by the loss of a model.
    Membership(membership::MembershipArgs),
    /// Compare models with and without one user by the texts they write (Popov et al. 2018).
    Hill(hill::HillArgs),
    /// Test the one-run audit itself on a noised sum whose epsilon is known.
    GaussianSum(gaussian_sum::GaussianSumArgs),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::OneRun(args) => one_run::run(args),
        Command::Canary(args) => canary::run(args),
        Command::Membership(args) => membership::run(args),
        Command::Hill(args) => hill::run(args),
        Command::GaussianSum(args) => gaussian_sum::run(args),
    }
}

/// What is trained and where.
#[derive(Args)]
pub(crate) struct LabArgs {
    /// Settings file in TOML (see `keyhush init`) [default: a small run on synthetic users]
    #[arg(long, value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// Override a setting, such as privacy.noise_multiplier=0.5; KEY= removes it
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    machine: MachineArgs,
}

/// Where the result goes.
#[derive(Args)]
pub(crate) struct OutputArgs {
    /// Folder for the picture, the numbers and the trained models [default: runs/audit-NAME-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl OutputArgs {
    /// The folder, made.
    fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let Some(folder) = &self.out else { return new_folder(&format!("audit-{name}-{}", stamp())) };
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        if folder.join(NUMBERS).exists() {
            let problem = format!("{} already has an audit; name another folder", folder.display());
            return Err(BadInput::wrong("out", problem).into());
        }
        Ok(folder.clone())
    }
}

impl LabArgs {
    /// The settings: those of a file, or those that come with the program and what this audit adds to them.
    fn settings(&self, usual: &[&str]) -> Result<Config, BadInput> {
        let document = match &self.config {
            Some(path) => Document::new(&model_folder::read_settings(path)?, &self.set),
            None => {
                let set: Vec<String> = usual.iter().map(|set| (*set).to_owned()).chain(self.set.clone()).collect();
                Document::built_in(SETTINGS, &set)
            }
        };
        document.and_then(|document| document.config()).map_err(|e| of_config(&e))
    }

    /// Where models are trained.
    fn lab<'a>(&self, config: Config, folder: &Path, says: &'a dyn Fn(&str)) -> anyhow::Result<Lab<'a>> {
        let (means, stop) = (self.machine.means()?, interrupt::watch()?);
        Ok(Lab { config, means, stop, folder: folder.to_owned(), says })
    }

    /// Says what is being trained.
    fn says(&self) -> impl Fn(&str) + use<> {
        let quiet = self.machine.quiet;
        move |name: &str| {
            if !quiet {
                eprintln!("training: {name}");
            }
        }
    }
}

/// What every audit prints, with its own numbers beside it.
#[derive(Serialize)]
struct Answer<'a, T> {
    audit: &'static str,
    epsilon_formal: Epsilon,
    /// If the run is what is recorded of it but for the scale of its noise, what that noise costs at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_lower: Option<f64>,
    /// The same whatever the run did.
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_lower_any: Option<f64>,
    /// Beside a lower bound, what would be estimated; without one it is always there, and null where nothing can be estimated.
    epsilon_estimate: Option<f64>,
    /// The 95 % interval of the estimate, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_estimate_range: Option<[f64; 2]>,
    /// Of the lower bound; an estimate has none.
    confidence: Option<f64>,
    verdict: Verdict,
    /// The verdict in a sentence.
    says: &'static str,
    plot: String,
    details: &'a T,
}

impl<'a, T: Serialize> Answer<'a, T> {
    /// An estimate, which proves nothing.
    fn estimate(audit: &'static str, formal: Epsilon, estimate: Option<f64>, details: &'a T) -> Self {
        let verdict = if formal.is_finite() { Verdict::Estimate } else { Verdict::NoGuarantee };
        Self {
            audit,
            epsilon_formal: formal,
            epsilon_lower: None,
            epsilon_lower_any: None,
            epsilon_estimate: estimate,
            epsilon_estimate_range: None,
            confidence: None,
            verdict,
            says: verdict.words(),
            plot: String::new(),
            details,
        }
    }

    /// Writes picture and numbers, and prints them: as JSON, or these lines.
    fn give(mut self, chart: &Chart, folder: &Path, json: bool, lines: &[String]) -> anyhow::Result<()> {
        let plot = folder.join(PICTURE);
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write(&plot, &chart.svg(860, 520)?)?;
        self.plot = plot.display().to_string();
        let numbers = serde_json::to_string_pretty(&self)?;
        write(&folder.join(NUMBERS), &numbers)?;
        if json {
            println!("{numbers}");
            return Ok(());
        }
        lines.iter().for_each(|line| println!("{line}"));
        println!("{}", self.says);
        println!("Plot: {}", self.plot);
        Ok(())
    }
}

/// An epsilon as people read it.
fn shown(epsilon: Epsilon) -> String {
    if epsilon.is_finite() { format!("{:.2}", epsilon.get()) } else { "infinite".to_owned() }
}

/// What went wrong, as bad input where it is.
fn failed(error: StudyError) -> anyhow::Error {
    match error {
        StudyError::Run(run) => refused(run),
        StudyError::Wrong { what, problem } => BadInput::wrong(what, problem).into(),
        StudyError::Audit(_) | StudyError::NotALanguageModel => BadInput::Refused(error.to_string()).into(),
        StudyError::Stopped => Interrupted("interrupted; the audit has no result".to_owned()).into(),
        other => other.into(),
    }
}

/// For which slacks the needed canaries are said.
#[derive(Args)]
struct SlackArgs {
    /// Print how many canaries are needed for a bound that is at most this fraction below the formal epsilon; separate several
    /// with commas [default: 0.75,0.5,0.25]
    #[arg(long, value_name = "SHARE", value_delimiter = ',')]
    slack: Vec<f64>,
}

impl SlackArgs {
    /// What is asked for; what is usual where nothing is.
    fn slacks(&self) -> &[f64] {
        if self.slack.is_empty() { &SLACKS } else { &self.slack }
    }

    /// How many canaries these need.
    fn needed(&self, epsilon: Epsilon, delta: Delta, confidence: f64) -> Result<Vec<Needed>, BadInput> {
        needed(epsilon, delta, confidence, self.slacks()).map_err(|error| match error {
            AuditError::OutOfRange { what: "slack", .. } => BadInput::wrong("slack", error.to_string()),
            other => BadInput::Refused(other.to_string()),
        })
    }
}

/// How many canaries a bound needs, line by line.
fn needed_lines(needed: &[Needed]) -> Vec<String> {
    if needed.is_empty() {
        return Vec::new();
    }
    let line = |needed: &Needed| {
        let share = 100.0 * (1.0 - needed.slack);
        let canaries = needed.canaries.map_or_else(|| "more than 100,000,000".to_owned(), grouped);
        format!("  a bound of {share:.0} % of the formal epsilon: {canaries}")
    };
    let head =
        "Canaries that are enough in most runs, for ideal canaries and a run of one Gaussian release:".to_owned();
    std::iter::once(head).chain(needed.iter().map(line)).collect()
}

/// What must be known of a run in which some users never took part.
fn took_part(took_part: u64, population: u64) -> Option<String> {
    (took_part < population).then(|| {
        let (some, all) = (grouped(took_part), counted(population, "user"));
        format!(
            "{some} of {all} took part in at least one round. Only these are attacked; the formal epsilon also covers the chance of not taking part."
        )
    })
}
