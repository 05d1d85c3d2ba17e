//! `keyhush experiment`: reproduces the papers' tables and figures, next to the printed numbers.

use std::{io::Write, path::PathBuf};

use clap::{Args, Subcommand};
use experiments::{
    Findings, Found, Job, Library, Place, Results,
    format::{Experiment, Kind},
    runs::Runner,
};
use serde_json::json;

use crate::{
    columns,
    failure::BadInput,
    interrupt,
    sweep::{Progress, stopped},
    train::MachineArgs,
};

/// The subcommands of `keyhush experiment`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the experiments.
    List(ListArgs),
    /// Run an experiment and compare its results with the paper.
    Run(Box<RunArgs>),
}

/// Arguments of `keyhush experiment list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Where experiments are.
#[derive(Args)]
struct PlaceArgs {
    /// Folder with the experiments [default: experiments in a checkout of the repository, otherwise the built-in ones]
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,
}

impl PlaceArgs {
    fn library(&self) -> Library {
        Library::here(self.experiments.as_deref())
    }
}

const AFTER: &str = "\
Results (numbers, pictures) are written to experiments/NAME/results and into the marked part of experiments/NAME/README.md; \
outside a checkout, to runs/experiments/NAME/results. Finished runs are not repeated; interrupted runs are resumed. The exit code is 1 if an expectation of the experiment does not hold.";

/// Arguments of `keyhush experiment run`.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct RunArgs {
    /// Name of the experiment (its folder)
    name: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// Train on the users of this store instead of synthetic users; results go to results-store
    #[arg(long, value_name = "STORE")]
    store: Option<PathBuf>,
    /// With --store, for experiments about forgetting: folder with general (a public model), general.txt (what it was trained on),
    /// standard.test.txt and users.test.jsonl
    #[arg(long, value_name = "DIR", requires = "store")]
    texts: Option<PathBuf>,
    /// Number of runs for each variant [default: set by the experiment]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Override a setting in all variants
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder for the results; the experiment's README is then not updated [default: experiments/NAME/results; outside a checkout runs/experiments/NAME/results]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Folder for the runs
    #[arg(long, value_name = "DIR", default_value = "runs/experiments")]
    runs: PathBuf,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Runs a subcommand.
pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list(args),
        Command::Run(args) => carry_out(args),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    let mut objects = Vec::new();
    for found in args.place.library().all()? {
        let (experiment, name) = (found.experiment()?, found.name);
        let (kind, paper, title) = (experiment.kind.name(), &experiment.paper, &experiment.title);
        let (says, state) = (&experiment.says, experiment.judged());
        objects
            .push(json!({ "name": name, "kind": kind, "paper": paper, "title": title, "says": says, "state": state }));
        let mut entry = vec![format!("{name} ({kind})"), columns::folded("  ", &format!("{paper}: {title}"))];
        entry.extend(state.map(|state| columns::folded("  ", &state)));
        lines.push(entry.join("\n"));
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&objects)?)?;
        return Ok(());
    }
    writeln!(out, "{}", lines.join("\n"))?;
    Ok(())
}

fn carry_out(args: &RunArgs) -> anyhow::Result<()> {
    let found = args.place.library().find(&args.name)?;
    let experiment = found.experiment()?;
    if experiment.kind == Kind::Accounting && (args.store.is_some() || args.seeds.is_some() || !args.set.is_empty()) {
        let why = "only computes and does not train, so --store, --seeds and --set cannot be used with it";
        return Err(BadInput::Refused(format!("{} {why}", args.name)).into());
    }
    if experiment.kind == Kind::FineTuning && args.store.is_some() && args.texts.is_none() {
        let why = "needs two test sets of your own with --store: give their folder with --texts";
        return Err(BadInput::Refused(format!("{} {why}", args.name)).into());
    }
    if experiment.kind != Kind::FineTuning && args.texts.is_some() {
        return Err(BadInput::Refused(format!("{} does not use --texts: it is not about forgetting", args.name)).into());
    }
    let findings = match experiment.kind {
        Kind::Training | Kind::FineTuning => train(args, &found, &experiment)?,
        Kind::Accounting => experiments::compute(&experiment)?,
    };
    let runs = args.runs.join(&args.name);
    let place = Place::new(&found, &runs, args.store.is_some(), args.out.as_deref());
    place.write(&experiment, &findings, &command(args))?;
    if !args.json {
        println!("Results: {} and {}", place.out.display(), place.page.display());
    }
    print(&findings.results, &experiment, args.json)?;
    let failed = findings.results.failed();
    if failed.is_empty() { Ok(()) } else { anyhow::bail!("does not hold: {}", failed.join("; ")) }
}

fn train(args: &RunArgs, found: &Found, experiment: &Experiment) -> anyhow::Result<Findings> {
    let seeds = args.seeds.unwrap_or(experiment.seeds);
    if seeds == 0 {
        return Err(BadInput::wrong("seeds", "must be at least 1").into());
    }
    let means = args.machine.means()?;
    let job = Job {
        experiment,
        found,
        runs: &args.runs.join(&args.name),
        store: args.store.as_deref(),
        texts: args.texts.as_deref(),
        set: &args.set,
        seeds,
    };
    let mut progress = Progress::new(experiment.variants() as u64 * seeds, args.machine.quiet);
    let mut runner = Runner { means, stop: interrupt::watch()?, told: &mut progress };
    let carried_out = match experiment.kind {
        Kind::FineTuning => experiments::finetune(&job, &mut runner),
        Kind::Training | Kind::Accounting => experiments::train(&job, &mut runner),
    };
    carried_out.map_err(|error| stopped(error, "run the same command again to resume"))
}

/// The command as somebody else would type it.
fn command(args: &RunArgs) -> String {
    let mut command = format!("keyhush experiment run {}", args.name);
    if let Some(store) = &args.store {
        command.push_str(&format!(" --store {}", store.file_name().unwrap_or_default().to_string_lossy()));
    }
    if let Some(texts) = &args.texts {
        command.push_str(&format!(" --texts {}", texts.file_name().unwrap_or_default().to_string_lossy()));
    }
    command.push_str(&args.seeds.map_or_else(String::new, |seeds| format!(" --seeds {seeds}")));
    args.set.iter().for_each(|pair| command.push_str(&format!(" --set {pair}")));
    command
}

fn print(results: &Results, experiment: &Experiment, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(results)?)?;
        return Ok(());
    }
    writeln!(out, "{} ({})", results.title, results.paper)?;
    columns::write(&mut out, &results.table(experiment), columns::Align::Numbers)?;
    for note in &results.notes {
        writeln!(out, "note: {note}")?;
    }
    for verdict in &results.expectations {
        writeln!(out, "{}: {}", if verdict.holds { "holds" } else { "does not hold" }, verdict.text)?;
    }
    Ok(())
}
