//! `keyhush sweep`: every combination of some settings, each with several seeds.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use durable::files;
use federated::{
    config::Config,
    engine::Means,
    home::{CONFIG_FILE, RunFolder},
    metrics::{Measures, Metrics},
    plan::Plan,
    run::{self, Ending, Opened},
    sweep::{
        self, choice,
        design::Design,
        summary::{Runs, best_runs},
    },
};
use report::{
    run::REPORT_FILE,
    sweep::{self as page, Summary},
};
use serde::Serialize;

use crate::{
    columns,
    failure::{BadInput, Interrupted, refused},
    model_folder,
    train::{self, After, MachineArgs},
};

/// The file of the numbers in the folder of a sweep.
const NUMBERS_FILE: &str = "sweep.json";

const EXAMPLES: &str = "\
Examples:
  keyhush sweep run.toml --grid clip.norm=0.1,0.3,1 --seeds 3 --out runs/clips
  keyhush sweep run.toml --grid clip.norm=0.3,1 --grid privacy.noise_multiplier=0.5,1 --out runs/both

Each run is a folder, VARIANT/seed-N, as keyhush train makes them. The first seed is the settings as they stand; the others add 1, 2,
... to seed and noise_seed. A sweep that was stopped goes on with the same command: runs that are done are not done again. Over the
users of a store, the run that is chosen states what all runs of the folder cost together, in its statement, report and model.";

/// Arguments of `keyhush sweep`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SweepArgs {
    /// The settings, in TOML
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// A key and its values; with several keys every combination is run
    #[arg(long, value_name = "KEY=V1,V2,...")]
    grid: Vec<String>,
    /// Runs of each combination
    #[arg(long, value_name = "N", default_value_t = 1)]
    seeds: u64,
    /// Another value for a setting, in all runs
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The combination to choose, as the table names it [default: the most accurate]
    #[arg(long, value_name = "VARIANT")]
    choose: Option<String>,
    /// The folder of the sweep [default: runs/sweep-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print the numbers as JSON
    #[arg(long)]
    json: bool,
}

/// `sweep.json`.
#[derive(Serialize)]
struct Numbers {
    /// The version of keyhush.
    keyhush: &'static str,
    kernels: &'static str,
    set: Vec<String>,
    variants: Vec<OfVariant>,
    chosen: Chosen,
}

#[derive(Serialize)]
struct OfVariant {
    name: String,
    set: Vec<String>,
    #[serde(flatten)]
    summary: Summary,
    runs: Vec<OfRun>,
}

#[derive(Serialize)]
struct OfRun {
    /// Within the folder of the sweep.
    folder: String,
    /// The last evaluation.
    last: Option<Metrics>,
}

/// The run that is kept.
#[derive(Serialize)]
struct Chosen {
    variant: String,
    /// Within the folder of the sweep.
    folder: String,
    /// What it came to, over private data; its epsilon is that of all runs of the folder together (rule P22).
    #[serde(skip_serializing_if = "Option::is_none")]
    ending: Option<Ending>,
    /// In words.
    note: String,
}

/// A sweep that was planned.
struct Sweep {
    design: Design,
    out: PathBuf,
    seeds: u64,
    means: Means,
}

pub(crate) fn sweep(args: &SweepArgs) -> anyhow::Result<()> {
    let sweep = Sweep::plan(args)?;
    let mut progress =
        Progress::new(sweep.design.variants.len() as u64 * sweep.seeds, args.machine.quiet, sweep.again());
    let mut runs = Vec::new();
    for (number, variant) in sweep.design.variants.iter().enumerate() {
        let mut of_variant = Runs { name: variant.name.clone(), set: variant.set.clone(), seeds: Vec::new() };
        for seed in 0..sweep.seeds {
            let config = sweep::with_seed(&sweep.design.configs[number], seed);
            let label = format!("{}, seed {seed}", variant.name);
            let folder = sweep.out.join(sweep.design.place(number, seed));
            // Over private data the ledger stays open until the choice is counted in it (rule P22).
            let after = if config.data.is_stored() { After::Choose } else { After::Close };
            of_variant.seeds.push(progress.run(&label, &config, &folder, sweep.means, after)?);
        }
        runs.push(of_variant);
    }
    let chosen = sweep.choose(&runs, args.choose.as_deref())?;
    let html = page::html(&sweep.design.axes, &sweep.design.variants, &runs, &chosen.note)?;
    files::write(&sweep.out.join(page::PAGE_FILE), html.as_bytes())?;
    let numbers = sweep.numbers(args, &runs, chosen);
    let mut json = serde_json::to_vec_pretty(&numbers)?;
    json.push(b'\n');
    files::write(&sweep.out.join(NUMBERS_FILE), &json)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        out.write_all(&json)?;
        return Ok(());
    }
    columns::write(&mut out, &page::cells(&runs), columns::Align::Numbers)?;
    writeln!(out, "{}", numbers.chosen.note)?;
    writeln!(out, "Page: {}", sweep.out.join(page::PAGE_FILE).display())?;
    Ok(())
}

impl Sweep {
    /// Everything that can be refused is refused here, before any work.
    fn plan(args: &SweepArgs) -> anyhow::Result<Self> {
        let means = args.machine.means()?;
        if args.seeds == 0 {
            return Err(BadInput::wrong("seeds", "at least one is needed").into());
        }
        let text = model_folder::read_settings(&args.config)?;
        let design = Design::new(&text, &args.set, &args.grid)?;
        if let Some(name) = &args.choose
            && !design.variants.iter().any(|variant| variant.name == *name)
        {
            let names: Vec<&str> = design.variants.iter().map(|variant| variant.name.as_str()).collect();
            return Err(BadInput::wrong("choose", format!("there is no {name:?}; there are {names:?}")).into());
        }
        if !args.machine.quiet {
            design.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
        }
        let out = match &args.out {
            Some(out) => out.clone(),
            None => train::new_folder(&format!("sweep-{}", train::stamp()))?,
        };
        Ok(Self { design, out, seeds: args.seeds, means })
    }

    /// How to go on.
    fn again(&self) -> String {
        format!("the same command goes on, with --out {}", self.out.display())
    }

    /// The run that is kept; over private data it records what all cost (rule P15).
    fn choose(&self, runs: &[Runs], wanted: Option<&str>) -> anyhow::Result<Chosen> {
        let best = match wanted {
            Some(name) => runs.iter().position(|runs| runs.name == name),
            None => best_runs(runs),
        };
        let number = best.unwrap_or(0);
        let seed = runs[number].best_seed().unwrap_or(0) as u64;
        let (variant, place) = (runs[number].name.clone(), self.design.place(number, seed));
        let why = if wanted.is_some() { "as asked" } else { "the most accurate" };
        let mut note = format!("Chosen, {why}: {variant}, seed {seed}.");
        let private = self.design.configs[number].data.is_stored();
        let mut ending = None;
        if private {
            let chosen = self.out.join(&place);
            let others = choice::begun(&self.out).map_err(refused)?;
            let others: Vec<PathBuf> = others.into_iter().filter(|run| *run != chosen).collect();
            let of_run = choice::record(&chosen, &others, self.means).map_err(refused)?;
            others.iter().chain([&chosen]).try_for_each(|run| report::run::write(run))?;
            note = format!("{note} {} Report: {}", of_run.sentence, chosen.join(REPORT_FILE).display());
            ending = Some(of_run);
        }
        Ok(Chosen { variant, folder: place.display().to_string(), ending, note })
    }

    fn numbers(&self, args: &SweepArgs, runs: &[Runs], chosen: Chosen) -> Numbers {
        let of_run = |number: usize, (seed, run): (usize, &Vec<Metrics>)| OfRun {
            folder: self.design.place(number, seed as u64).display().to_string(),
            last: run.last().cloned(),
        };
        let variant = |(number, runs): (usize, &Runs)| OfVariant {
            name: runs.name.clone(),
            set: runs.set.clone(),
            summary: Summary::of(runs),
            runs: runs.seeds.iter().enumerate().map(|run| of_run(number, run)).collect(),
        };
        Numbers {
            keyhush: env!("CARGO_PKG_VERSION"),
            kernels: self.means.kernels.name(),
            set: args.set.clone(),
            variants: runs.iter().enumerate().map(variant).collect(),
            chosen,
        }
    }
}

/// Runs one after the other, with a line for each.
pub(crate) struct Progress {
    runs: u64,
    done: u64,
    /// Runs that this process did, and how long they took.
    own: u64,
    spent: Duration,
    quiet: bool,
    /// How to go on after Ctrl-C.
    again: String,
}

impl Progress {
    pub(crate) fn new(runs: u64, quiet: bool, again: impl Into<String>) -> Self {
        Self { runs, done: 0, own: 0, spent: Duration::ZERO, quiet, again: again.into() }
    }

    /// The evaluations of a run in its folder: begun, gone on with, or taken as it is where it is done.
    pub(crate) fn run(
        &mut self,
        label: &str,
        config: &Config,
        folder: &Path,
        means: Means,
        after: After,
    ) -> anyhow::Result<Vec<Metrics>> {
        let begun = folder.join(CONFIG_FILE).is_file();
        if begun && run::settings(&RunFolder::at(folder)).map_err(refused)? != *config {
            let why = "holds a run with other settings: choose another folder, or remove it";
            return Err(BadInput::Refused(format!("{} {why}", folder.display())).into());
        }
        let finished = sweep::is_finished(folder);
        let watch = Instant::now();
        if !finished {
            let of_run = |error: anyhow::Error| match error.downcast::<BadInput>() {
                Ok(bad) => BadInput::Refused(format!("{label}: {bad}")).into(),
                Err(other) => other,
            };
            let opened = Opened::new(config).map_err(|e| of_run(refused(e)))?;
            let plan = Plan::new(config.clone(), &opened.setting()).map_err(|e| of_run(refused(e.into())))?;
            train::alone(&plan, &opened, folder, means, begun, after)
                .map_err(|error| self.interrupted(label, error))?;
            self.own += 1;
            self.spent += watch.elapsed();
        } else if !folder.join(REPORT_FILE).is_file() {
            // It was killed after its model was written.
            report::run::write(folder)?;
        }
        let metrics = sweep::metrics(folder)?;
        self.done += 1;
        if !self.quiet {
            self.line(label, &metrics, finished, watch.elapsed());
        }
        Ok(metrics)
    }

    /// Who interrupts a run wants to go on with all of them.
    fn interrupted(&self, label: &str, error: anyhow::Error) -> anyhow::Error {
        match error.downcast::<Interrupted>() {
            Ok(_) => Interrupted(format!("interrupted in {label}; nothing is lost: {}", self.again)).into(),
            Err(other) => other,
        }
    }

    fn line(&self, label: &str, metrics: &[Metrics], finished: bool, took: Duration) {
        let headline = Measures::of(metrics).headline;
        let (name, value) = (headline.label, headline.shown(headline.last(metrics)));
        let epsilon = metrics.last().map_or_else(|| "unknown".into(), |last| last.price.words());
        let took = if finished { "done before".to_owned() } else { format!("{:.0} s", took.as_secs_f64()) };
        let left = match (self.own, self.runs - self.done) {
            (0, _) | (_, 0) => String::new(),
            (own, left) => format!(", about {:.0} s left", self.spent.as_secs_f64() / own as f64 * left as f64),
        };
        let (done, runs) = (self.done, self.runs);
        eprintln!("[{done}/{runs}] {label}: {name} {value}, epsilon {epsilon} ({took}{left})");
    }
}
