//! `keyhush experiment`: the papers' tables and figures, run here, beside what was printed.
//!
//! | module       | what it is                                            |
//! |--------------|-------------------------------------------------------|
//! | `format`     | `experiment.toml`                                     |
//! | `what`       | the numbers that can be asked for                     |
//! | `training`   | variants, each with several seeds                     |
//! | `accounting` | rows of a table that are computed                     |
//! | `verdict`    | whether what must hold holds                          |
//! | `picture`    | what is drawn                                         |
//! | `results`    | `results.json`                                        |
//! | `readme`     | the part of a README that is written by running it    |

mod accounting;
mod format;
mod picture;
mod readme;
mod results;
mod training;
mod verdict;
mod what;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use federated::{chart::Chart, files};
use serde_json::json;

use self::{
    format::{Experiment, FILE, Kind},
    results::{Beside, OfVariant, Results},
    training::{Job, Outcome},
};
use crate::{columns, failure::BadInput, train::MachineArgs};

/// The subcommands of `keyhush experiment`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// What there is.
    List(ListArgs),
    /// Run one, and write what came out beside what the paper says.
    Run(RunArgs),
}

/// Arguments of `keyhush experiment list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

/// Where experiments are.
#[derive(Args)]
struct PlaceArgs {
    /// The folder of the experiments
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    experiments: PathBuf,
}

const AFTER: &str = "\
What came out goes to experiments/NAME/results (numbers, pictures) and into the marked part of experiments/NAME/README.md. \
Runs that are done are not done again; those that were stopped go on. The exit code is 1 when something that is expected \
does not hold.";

/// Arguments of `keyhush experiment run`.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct RunArgs {
    /// Which: the name of its folder
    name: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// Train on the users of a store, instead of the made-up crowd; results go to results-store
    #[arg(long, value_name = "STORE")]
    store: Option<PathBuf>,
    /// Runs of each variant [default: as the experiment says]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Another value for a setting, in all variants
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Where the results go; the README of the experiment then stays as it is [default: experiments/NAME/results]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where the runs go
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

/// The experiments of a folder, by name.
fn all(folder: &Path) -> Result<Vec<(String, PathBuf)>, BadInput> {
    let wrong = |error: &dyn std::fmt::Display| {
        let hint = "go to the folder that holds the experiments of the repository, or name it";
        BadInput::wrong("experiments", format!("{}: {error}; {hint}", folder.display()))
    };
    let entries = fs::read_dir(folder).map_err(|error| wrong(&error))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| wrong(&error))?.path();
        if path.join(FILE).is_file() {
            found.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path));
        }
    }
    if found.is_empty() {
        return Err(wrong(&"there is no experiment in it"));
    }
    found.sort();
    Ok(found)
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let mut rows = vec![["name", "kind", "paper", "about", "state"].map(str::to_owned).to_vec()];
    let mut objects = Vec::new();
    for (name, folder) in all(&args.place.experiments)? {
        let experiment = Experiment::read(&folder)?;
        let (kind, paper, title) = (experiment.kind.name(), &experiment.paper, &experiment.title);
        let (says, state) = (&experiment.says, experiment.judged());
        objects
            .push(json!({ "name": name, "kind": kind, "paper": paper, "title": title, "says": says, "state": state }));
        rows.push(vec![name, kind.to_owned(), paper.clone(), title.clone(), state.unwrap_or_default()]);
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&objects)?)?;
        return Ok(());
    }
    columns::write(&mut out, &rows, columns::Align::Left)?;
    Ok(())
}

fn carry_out(args: &RunArgs) -> anyhow::Result<()> {
    let folder = find(args)?;
    let experiment = Experiment::read(&folder)?;
    if experiment.kind == Kind::Accounting && (args.store.is_some() || args.seeds.is_some() || !args.set.is_empty()) {
        let why = "computes and trains nothing: --store, --seeds and --set do not go with it";
        return Err(BadInput::Refused(format!("{} {why}", args.name)).into());
    }
    let (results, charts) = match experiment.kind {
        Kind::Training => train(args, &folder, &experiment)?,
        Kind::Accounting => compute(&experiment)?,
    };
    write(args, &folder, &experiment, &results, &charts)?;
    print(&results, &experiment, args.json)?;
    let failed = results.failed();
    if failed.is_empty() { Ok(()) } else { anyhow::bail!("does not hold: {}", failed.join("; ")) }
}

fn find(args: &RunArgs) -> Result<PathBuf, BadInput> {
    let all = all(&args.place.experiments)?;
    let found = all.iter().find(|(name, _)| *name == args.name);
    found.map(|(_, folder)| folder.clone()).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        BadInput::Refused(format!("there is no experiment {:?}; there are {}", args.name, names.join(", ")))
    })
}

fn train(args: &RunArgs, folder: &Path, experiment: &Experiment) -> anyhow::Result<(Results, Vec<Chart>)> {
    let seeds = args.seeds.unwrap_or(experiment.seeds);
    if seeds == 0 {
        return Err(BadInput::wrong("seeds", "at least one is needed").into());
    }
    let means = args.machine.means()?;
    let job = Job {
        experiment,
        folder,
        runs: &args.runs.join(&args.name),
        store: args.store.as_deref(),
        set: &args.set,
        seeds,
        means,
        quiet: args.machine.quiet,
    };
    let (outcomes, notes) = training::run(&job)?;
    let mut results = Results::new(experiment);
    results.kernels = Some(means.kernels.name().to_owned());
    results.store =
        args.store.as_ref().map(|store| store.file_name().unwrap_or_default().to_string_lossy().into_owned());
    results.set.clone_from(&args.set);
    results.notes = notes;
    results.variants = outcomes.iter().map(|outcome| OfVariant::new(outcome, &experiment.columns)).collect();
    results.paper_values = beside(experiment, &outcomes);
    results.expectations = experiment.expect.iter().map(|expect| verdict::judge(expect, &outcomes)).collect();
    let draw = |plot| picture::draw(&experiment.title, plot, &outcomes);
    let charts = experiment.plot.iter().map(draw).collect::<Result<Vec<Chart>, BadInput>>()?;
    Ok((results, charts))
}

fn beside(experiment: &Experiment, outcomes: &[Outcome<'_>]) -> Vec<Beside> {
    let value = |value: &format::PaperValue| {
        let of = |outcome: &&Outcome<'_>| Some(&outcome.variant.name) == value.variant.as_ref();
        Beside {
            name: value.name.clone(),
            paper: value.value,
            unit: value.unit.clone(),
            ours: outcomes.iter().find(of).map(|outcome| outcome.estimate(value.what, value.at)),
            what: value.what,
        }
    };
    experiment.paper_value.iter().map(value).collect()
}

fn compute(experiment: &Experiment) -> anyhow::Result<(Results, Vec<Chart>)> {
    let rows = accounting::run(experiment)?;
    let charts = experiment.plot.iter().map(|plot| accounting::draw(&experiment.title, plot, &rows)).collect();
    let expectations = experiment.expect.iter().map(|expect| verdict::judge_rows(expect, &rows)).collect();
    Ok((Results { rows, expectations, ..Results::new(experiment) }, charts))
}

/// Writes numbers, pictures and the marked part of the README.
fn write(
    args: &RunArgs,
    folder: &Path,
    experiment: &Experiment,
    results: &Results,
    charts: &[Chart],
) -> anyhow::Result<()> {
    let mark = if args.store.is_some() { "results-store" } else { "results" };
    let (out, page, beside) = match &args.out {
        Some(out) => (out.clone(), out.join("README.md"), String::new()),
        None => (folder.join(mark), folder.join("README.md"), format!("{mark}/")),
    };
    files::make_folder(&out)?;
    let mut json = serde_json::to_vec_pretty(results)?;
    json.push(b'\n');
    files::write(&out.join("results.json"), &json)?;
    let mut pictures = Vec::new();
    for (number, chart) in charts.iter().enumerate() {
        let name = if number == 0 { "plot.svg".to_owned() } else { format!("plot-{}.svg", number + 1) };
        let (width, height) = picture::SIZE;
        files::write(&out.join(&name), chart.svg(width, height)?.as_bytes())?;
        pictures.push(format!("{beside}{name}"));
    }
    let part = readme::part(results, experiment, &command(args), &pictures);
    let text = if page.is_file() { files::read_text(&page)? } else { readme::begun(experiment) };
    files::write(&page, readme::replaced(&text, mark, &part).as_bytes())?;
    if !args.json {
        println!("Results: {} and {}", out.display(), page.display());
    }
    Ok(())
}

/// The command as somebody else would type it.
fn command(args: &RunArgs) -> String {
    let mut command = format!("keyhush experiment run {}", args.name);
    if let Some(store) = &args.store {
        command.push_str(&format!(" --store {}", store.file_name().unwrap_or_default().to_string_lossy()));
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
    let rows = match experiment.kind {
        Kind::Training => readme::cells(results, &experiment.columns),
        Kind::Accounting => readme::computed(results),
    };
    columns::write(&mut out, &rows, columns::Align::Numbers)?;
    for note in &results.notes {
        writeln!(out, "note: {note}")?;
    }
    for verdict in &results.expectations {
        writeln!(out, "{}: {}", if verdict.holds { "holds" } else { "does not hold" }, verdict.text)?;
    }
    Ok(())
}
