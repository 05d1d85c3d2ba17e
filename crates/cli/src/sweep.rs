//! `keyhush sweep`: trains every combination of some settings, each with several seeds.

use std::{io::Write, path::PathBuf, time::Duration};

use clap::Args;
use experiments::{
    ExperimentError,
    runs::{Came, Follows, Runner},
    sweep::Sweep,
};
use federated::{metrics::Measures, sweep::design::Design};
use report::sweep as page;

use crate::{
    columns,
    failure::{BadInput, Interrupted},
    interrupt, model_folder, remaining,
    train::{self, MachineArgs},
};

const EXAMPLES: &str = "\
Examples:
  keyhush sweep run.toml --grid clip.norm=0.1,0.3,1 --seeds 3 --out runs/clips
  keyhush sweep run.toml --grid clip.norm=0.3,1 --grid privacy.noise_multiplier=0.5,1 --out runs/both

Each run has its own folder, VARIANT/seed-N, as written by keyhush train. The first seed uses the settings as given; the others add \
1, 2, ... to seed and noise_seed. To resume a sweep, run the same command again; finished runs are not repeated.

On the users of a store, the chosen run states the privacy cost of all runs together, in its statement, report and model.";

/// Arguments of `keyhush sweep`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SweepArgs {
    /// Settings file in TOML
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// A key and its values; with several --grid, every combination is run
    #[arg(long, value_name = "KEY=V1,V2,...")]
    grid: Vec<String>,
    /// Number of runs for each combination
    #[arg(long, value_name = "N", default_value_t = 1)]
    seeds: u64,
    /// Override a setting in all runs
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The combination to keep, by its name in the table [default: the most accurate]
    #[arg(long, value_name = "VARIANT")]
    choose: Option<String>,
    /// Folder for the sweep [default: runs/sweep-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print the numbers as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn sweep(args: &SweepArgs) -> anyhow::Result<()> {
    let means = args.machine.means()?;
    let design = design(args)?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => train::new_folder(&format!("sweep-{}", train::stamp()))?,
    };
    let choose = args.choose.as_deref();
    let sweep = Sweep { design: &design, out: &out, seeds: args.seeds, set: &args.set, choose };
    let mut progress = Progress::new(sweep.runs(), args.machine.quiet);
    let mut runner = Runner { means, stop: interrupt::watch()?, told: &mut progress };
    let again = format!("run the same command again with --out {} to resume", out.display());
    let swept = sweep.run(&mut runner).map_err(|error| stopped(error, &again))?;
    let mut out = std::io::stdout().lock();
    if args.json {
        out.write_all(&swept.json)?;
        return Ok(());
    }
    columns::write(&mut out, &page::cells(&swept.runs), columns::Align::Numbers)?;
    writeln!(out, "{}", swept.note)?;
    writeln!(out, "Page: {}", swept.page.display())?;
    Ok(())
}

/// Everything that can be refused is refused here, before any work.
fn design(args: &SweepArgs) -> anyhow::Result<Design> {
    if args.seeds == 0 {
        return Err(BadInput::wrong("seeds", "must be at least 1").into());
    }
    let text = model_folder::read_settings(&args.config)?;
    let design = Design::new(&text, &args.set, &args.grid)?;
    if let Some(name) = &args.choose
        && !design.variants.iter().any(|variant| variant.name == *name)
    {
        let names: Vec<&str> = design.variants.iter().map(|variant| variant.name.as_str()).collect();
        return Err(
            BadInput::wrong("choose", format!("no combination is called {name:?}; choose one of {names:?}")).into()
        );
    }
    if !args.machine.quiet {
        design.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    }
    Ok(design)
}

/// An interrupted run of a sweep is resumed by resuming the sweep.
pub(crate) fn stopped(error: ExperimentError, again: &str) -> anyhow::Error {
    match error {
        ExperimentError::Stopped { .. } => Interrupted(format!("{error}; {again}")).into(),
        other => other.into(),
    }
}

/// How far many runs are: a line for each.
pub(crate) struct Progress {
    runs: u64,
    done: u64,
    /// Runs that this process did, and how long they took.
    own: u64,
    spent: Duration,
    quiet: bool,
}

impl Progress {
    pub(crate) const fn new(runs: u64, quiet: bool) -> Self {
        Self { runs, done: 0, own: 0, spent: Duration::ZERO, quiet }
    }
}

impl Follows for Progress {
    fn done(&mut self, came: &Came<'_>) {
        self.done += 1;
        self.own += u64::from(came.took.is_some());
        self.spent += came.took.unwrap_or_default();
        if self.quiet {
            return;
        }
        let headline = Measures::of(came.metrics).headline;
        let (name, value) = (headline.label, headline.shown(headline.last(came.metrics)));
        let epsilon = came.metrics.last().map_or_else(|| "unknown".into(), |last| last.price.words());
        let took = came.took.map_or_else(|| "already done".to_owned(), |took| format!("{:.0} s", took.as_secs_f64()));
        let left = match (self.own, self.runs - self.done) {
            (0, _) | (_, 0) => String::new(),
            (own, left) => format!(", about {}", remaining::words(self.spent.mul_f64(left as f64 / own as f64))),
        };
        let (done, runs, label) = (self.done, self.runs, came.label);
        eprintln!("[{done}/{runs}] {label}: {name} {value}, epsilon {epsilon} ({took}{left})");
    }

    fn warns(&mut self, words: &str) {
        eprintln!("warning: {words}");
    }
}
