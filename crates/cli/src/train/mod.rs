//! `keyhush train`: federated training with user-level differential privacy, simulated on this machine.

mod ranks;
mod track;
mod watch;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;
use federated::{
    burden::Burden,
    config::{Config, Document, FIRST_RUN},
    engine::{self, Engine, EngineError, EngineOptions, Means},
    fleet,
    home::{Records, RunFolder, STATEMENT_FILE},
    numbers::{counted, grouped},
    plan::Plan,
    run::{self, After, Course, Driven, Ending, Opened, Run, RunError, Way},
};
use jiff::Timestamp;
use report::{
    following::{Pages, write_all},
    run::REPORT_FILE,
};

use self::{ranks::Ranks, watch::Watch};
use crate::{
    engines,
    failure::{BadInput, Interrupted, of_config, refused},
    interrupt, kernels, model_folder, threads,
};

const EXAMPLES: &str = "\
Examples:
  keyhush train                                   train on synthetic users, in about a minute
  keyhush init > run.toml && keyhush train run.toml
  keyhush train run.toml --set privacy.noise_multiplier=0.5 --set rounds=500 --out runs/less-noise
  keyhush train run.toml --from pretrained --public \"Wikipedia\"
  keyhush train --secagg --set participation.vanish=0.02    secure aggregation, with 2 % drop-outs
  keyhush train run.toml --track mlflow:http://127.0.0.1:5000    also show the run on an MLflow server
  keyhush train run.toml --audit 2000             with 2,000 canary users that audit the run
  keyhush train --resume runs/less-noise
  keyhush train --end runs/less-noise

Ctrl-C stops after the current round and writes a checkpoint. Resume such a run, or one that was killed, with --resume. A \
simulation (noise_seed) then ends with the same model, metrics and ledger events as without the interruption. With secret noise, \
recorded rounds are kept and the unfinished round is run again with fresh noise.

A finished run is closed: nothing can be added to its ledger, and its noise keys are destroyed.

Set KEYHUSH_KERNELS to scalar, avx2, avx512 or neon to choose the vector instructions.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TrainArgs {
    /// Settings file in TOML (see `keyhush init`) [default: a small run on synthetic users]
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// Override a setting, such as privacy.noise_multiplier=0.5; KEY= removes it
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder for the run [default: runs/DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Resume the run in this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "set", "out", "from", "public", "secagg"])]
    resume: Option<PathBuf>,
    /// With --resume: accept that the store has changed since the run began, for this reason; the ledger records it
    #[arg(long, value_name = "WHY", requires = "resume")]
    data_changed: Option<String>,
    /// End the run in this folder at its current round: write model and statement, close the ledger, destroy the noise keys
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "set", "out", "from", "public", "secagg", "resume"])]
    end: Option<PathBuf>,
    /// With --end: write only the statement, for a run whose store, settings or checkpoints are lost
    #[arg(long, requires = "end")]
    without_model: bool,
    /// Start from the model in this folder, or from the model of the run in it
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Treat the model to start from as public, for this reason; needed if it has no ledger
    #[arg(long, value_name = "WHY", requires = "from")]
    public: Option<String>,
    /// Use secure aggregation; short for --set aggregation=secagg
    #[arg(long)]
    secagg: bool,
    /// Audit the run with this many canary users: at the end, print an empirical lower bound on epsilon; short for --set
    /// audit.canaries=N [default if no number is given: 1000]
    #[arg(long, value_name = "CANARIES", num_args = 0..=1, default_missing_value = "1000", conflicts_with_all = ["resume", "end"])]
    audit: Option<u64>,
    /// Also show the run on a tracking server: mlflow:URL, such as mlflow:http://127.0.0.1:5000. The run continues if the server cannot be
    /// reached
    #[arg(long, value_name = "mlflow:URL", conflicts_with = "end")]
    track: Option<String>,
    /// Public prompts, one per line: at each evaluation the run records which words the model suggests after them, and
    /// `keyhush board` shows them [default: six of everyday English]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["resume", "end"])]
    prompts: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// How this machine is used. Results do not depend on it, except for engines whose arithmetic is their own, and its precision.
#[derive(Args, Clone)]
pub(crate) struct MachineArgs {
    /// Number of threads; does not change the results [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads::number)]
    pub(crate) threads: Option<usize>,
    #[arg(long, value_name = "NAME", help = engines::help("the users", ""))]
    pub(crate) engine: Option<String>,
    #[arg(long, value_name = "PRECISION", requires = "engine", help = engines::precision_help(", which cannot change when a run is resumed"))]
    pub(crate) precision: Option<String>,
    /// Check every user's encoded update on the CPU too, after an engine elsewhere, such as a GPU, has checked it
    #[arg(long, requires = "engine")]
    pub(crate) check_encodings: bool,
    /// Do not show progress; warnings are shown
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl MachineArgs {
    /// Kernels, threads and engine.
    pub(crate) fn means(&self) -> anyhow::Result<Means> {
        let threads = threads::chosen(self.threads);
        let engine = engines::named(self.engine.as_deref())?;
        let precision = engines::precision(engine, self.precision.as_deref())?;
        let options = EngineOptions { precision, chunk: None, check_encodings: self.check_encodings };
        Ok(Means { engine, options, ..Means::threads(kernels::chosen()?, threads) })
    }
}

pub(crate) fn train(args: &TrainArgs) -> anyhow::Result<()> {
    if let Some(folder) = args.end.as_ref().filter(|_| args.without_model) {
        return end_without_model(folder, args.json);
    }
    let ranks = ranks::join()?;
    match ranks.as_ref().filter(|_| !ranks::leads(ranks.as_ref())) {
        Some(others) => {
            // What goes wrong here the first process hears, and says.
            follow(args, others).unwrap_or_else(|problem| ranks::refuse(others, &problem));
            Ok(())
        }
        None => lead(args, ranks.as_ref()),
    }
}

/// Folders that begin with the same second, at most.
const MOST_OF_A_NAME: u32 = 1000;
/// So many times the noise that a model bears is worth a warning.
const TOO_NOISY: f64 = 3.0;

/// What a run is about to do.
struct Task {
    folder: PathBuf,
    opened: Opened,
    plan: Plan,
    means: Means,
    /// Whether the run is only ended.
    ends: bool,
}

impl Task {
    fn new(args: &TrainArgs, ranks: Option<&Ranks>) -> anyhow::Result<Self> {
        let means = Means { processes: ranks::size(ranks), ..args.machine.means()? };
        let (config, document, folder) = match args.resume.as_ref().or(args.end.as_ref()) {
            Some(folder) => (run::settings(&RunFolder::at(folder)).map_err(refused)?, None, folder.clone()),
            None => {
                let document = document(args)?;
                let config = document.config().map_err(|e| of_config(&e))?;
                (from_anywhere(config), Some(document), out(args))
            }
        };
        let located = |error: RunError| match (error, &document) {
            (RunError::Config(error), Some(document)) => refused(document.locate(error).into()),
            (other, _) => refused(other),
        };
        let mut opened = Opened::new(&config).map_err(located)?;
        if let Some(path) = &args.prompts {
            let text = model_folder::read_text("prompts", path)?;
            let wrong = |problem| BadInput::wrong("prompts", format!("{}: {problem}", path.display()));
            opened = opened.with_prompts(run::prompts_of(&text).map_err(wrong)?);
        }
        if document.is_some() {
            opened.check_presence(&config).map_err(located)?;
        }
        let plan = Plan::new(config, &opened.setting()).map_err(|e| located(e.into()))?;
        let task = Self { folder, opened, plan, means, ends: args.end.is_some() };
        let means = task.course(args, After::Close).means(means).map_err(refused)?;
        Ok(Self { means, ..task })
    }

    /// How the run is driven.
    fn course<'a>(&'a self, args: &'a TrainArgs, after: After) -> Course<'a> {
        let way = match (args.resume.as_ref().or(args.end.as_ref()), &args.data_changed) {
            (Some(_), Some(why)) => Way::ResumeWithChangedData(why),
            (Some(_), None) => Way::Resume,
            (None, _) => Way::Begin,
        };
        Course { plan: &self.plan, opened: &self.opened, folder: &self.folder, way, after }
    }

    /// Refuses what several processes cannot do together; all of them do, so that none waits for another.
    fn check_together(&self) -> Result<(), BadInput> {
        if self.ends {
            return Err(BadInput::wrong("end", "nothing is left to compute; run it without mpirun"));
        }
        not_together(&self.plan)
    }

    fn engine(&self) -> anyhow::Result<Box<dyn Engine + '_>> {
        Ok(engine::of(&self.plan.local, self.opened.learner(), self.means)?)
    }
}

/// Refuses settings that need one process, before anything is made.
fn not_together(plan: &Plan) -> Result<(), BadInput> {
    let refused = |key: &str, why: EngineError| Err(BadInput::Refused(format!("{key}: {why}")));
    if plan.config.aggregation.is_secure() {
        return refused("aggregation", EngineError::NotSecure);
    }
    if plan.upload.is_partial() {
        return refused("upload.kind", EngineError::NotWhole);
    }
    Ok(())
}

/// The same settings with whole paths, so that the run can be resumed from another folder. What is not there is named as it
/// was written.
fn from_anywhere(mut config: Config) -> Config {
    for (_, path) in config.paths_mut() {
        if let Ok(whole) = path.canonicalize() {
            *path = whole;
        }
    }
    config
}

/// The process that runs the loop.
fn lead(args: &TrainArgs, ranks: Option<&Ranks>) -> anyhow::Result<()> {
    let track = track::address(args.track.as_deref())?;
    let mut task = Task::new(args, ranks)?;
    if ranks.is_some() {
        task.check_together()?;
    }
    if args.resume.is_none() && args.end.is_none() && args.out.is_none() {
        task.folder = new_folder(&stamp())?;
    }
    let Task { folder, opened, plan, means, .. } = &task;
    let population = opened.population(plan.ledger.unit).map_err(refused)?;
    plan.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    if !args.machine.quiet {
        eprintln!("{}", introduction(plan, folder, *means));
    }
    // Warnings also to who wants no progress.
    let told = |expected: &&Expected| expected.warns || !args.machine.quiet;
    expectations(plan, opened)?.iter().filter(told).for_each(|expected| eprintln!("{expected}"));
    let description = opened.description(plan);
    let after = match (run::is_undecided(&RunFolder::at(folder)).map_err(refused)?, task.ends) {
        (true, true) => return Err(part_of_a_sweep(folder).into()),
        (false, true) => return announce(&end_with_model(plan, opened, folder, *means)?, folder, args.json),
        (true, false) => After::Choose,
        (false, false) => After::Close,
    };
    let engine = ranks::lead(ranks, task.engine()?, *means, &description)?;
    let means = means.settled_by(&*engine);
    let mut fleet = fleet::of(plan, population.as_ref(), engine, RunFolder::at(folder).secrets());
    let tracker = track::begin(track.as_ref(), folder, plan, args.machine.quiet)?;
    let mut shown = Pages::new(folder, Watch::new(args.machine.quiet, plan.rounds)?);
    let driven = task.course(args, after).drive(means, &mut fleet, interrupt::watch()?, &mut shown);
    track::end(tracker, &driven);
    match driven? {
        Driven::Stopped { round } => Err(interrupted(round, folder).into()),
        Driven::Over(ending) => {
            announce(&ending, folder, args.json)?;
            say_who_was_missing(&ending, plan, opened)
        }
    }
}

fn interrupted(round: u64, folder: &Path) -> Interrupted {
    let go_on = format!("resume with: keyhush train --resume {}", folder.display());
    Interrupted(format!("interrupted after round {round}; nothing is lost\n{go_on}"))
}

/// Something to expect of a run.
pub(crate) struct Expected {
    /// Whether it is worth a warning.
    pub(crate) warns: bool,
    /// What to expect.
    pub(crate) words: String,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.warns { "warning: " } else { "" }, self.words)
    }
}

/// What to expect of a run, before its first round: who is there, and how much noise the model gets.
pub(crate) fn expectations(plan: &Plan, opened: &Opened) -> anyhow::Result<Vec<Expected>> {
    let there = opened.presence(&plan.config).map_err(refused)?;
    let there = there.map(|presence| Expected { warns: presence.is_sparse(), words: presence.words() });
    let noise = Burden::of(plan);
    let noise = noise.map(|burden| Expected { warns: burden.times_bearable > TOO_NOISY, words: burden.words() });
    Ok(there.into_iter().chain(noise).collect())
}

/// The sentence of a private run speaks of declared users, also where most of them are absent. Exact counts are for the terminal alone
/// (rule P12); that of a simulation has them in itself.
fn say_who_was_missing(ending: &Ending, plan: &Plan, opened: &Opened) -> anyhow::Result<()> {
    let there = opened.presence(&plan.config).map_err(refused)?;
    if let Some(presence) = there.filter(|presence| presence.is_sparse() && !ending.simulated) {
        eprintln!("warning: {}", presence.words());
    }
    Ok(())
}

/// Ends a run permanently as it stands. No round is computed, so no engine is made: the card that trained it may be gone.
fn end_with_model(plan: &Plan, opened: &Opened, folder: &Path, means: Means) -> anyhow::Result<Ending> {
    let means = Means::threads(means.kernels, means.threads);
    let mut run = Run::resume_to_end(RunFolder::at(folder), plan, opened, means).map_err(refused)?;
    run.warnings().iter().for_each(|warning| eprintln!("warning: {warning}"));
    let (started, ending) = (run.started(), run.finish()?);
    write_all(folder, started)?;
    Ok(ending)
}

/// Ends a run permanently with nothing but its ledger.
fn end_without_model(folder: &Path, json: bool) -> anyhow::Result<()> {
    let statement = run::end_without_model(&RunFolder::at(folder)).map_err(refused)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&statement)?);
    } else {
        println!("Ended: the ledger is closed and the noise keys are destroyed. No model was written.");
        println!("Statement: {}", folder.join(STATEMENT_FILE).display());
    }
    Ok(())
}

fn part_of_a_sweep(folder: &Path) -> BadInput {
    let why =
        "belongs to a sweep that has not finished; run the same keyhush sweep command again to end all of its runs";
    BadInput::Refused(format!("{} {why}", folder.display()))
}

/// The other processes, if there are any.
fn follow(args: &TrainArgs, ranks: &Ranks) -> anyhow::Result<()> {
    let task = Task::new(args, Some(ranks))?;
    task.check_together()?;
    let population = task.opened.population(task.plan.ledger.unit).map_err(refused)?;
    let mut own = task.engine()?;
    ranks::serve(ranks, own.as_mut(), population.as_ref(), task.means, &task.opened.description(&task.plan));
    Ok(())
}

/// The settings with what was said beside them.
fn document(args: &TrainArgs) -> Result<Document, BadInput> {
    let mut set = Vec::new();
    if let Some(from) = &args.from {
        set.extend(["model.preset=", "model.vocabulary="].map(str::to_owned));
        set.push(format!("model.from={}", quoted(&from.display().to_string())?));
    }
    if let Some(why) = &args.public {
        set.push(format!("model.public={}", quoted(why)?));
    }
    if args.secagg {
        set.push("aggregation=secagg".to_owned());
    }
    if let Some(canaries) = args.audit {
        set.push(format!("audit.canaries={canaries}"));
    }
    set.extend(args.set.iter().cloned());
    settings(args.config.as_deref(), &set)
}

/// The settings of a file, or those that come with the program, with other values for some.
pub(crate) fn settings(config: Option<&Path>, set: &[String]) -> Result<Document, BadInput> {
    let document = match config {
        Some(path) => Document::new(&model_folder::read_settings(path)?, set),
        None => Document::built_in(FIRST_RUN, set),
    };
    document.map_err(|e| of_config(&e))
}

/// A string as TOML has it: as JSON has it.
fn quoted(text: &str) -> Result<String, BadInput> {
    serde_json::to_string(text).map_err(|e| BadInput::wrong("from", e))
}

fn out(args: &TrainArgs) -> PathBuf {
    args.out.clone().unwrap_or_else(|| Path::new("runs").join(stamp()))
}

/// Makes a new folder of this name within `runs`, with a number appended if it exists: two runs started in the same second get
/// two folders.
pub(crate) fn new_folder(name: &str) -> anyhow::Result<PathBuf> {
    let runs = Path::new("runs");
    std::fs::create_dir_all(runs).with_context(|| format!("cannot create {}", runs.display()))?;
    for number in 1..=MOST_OF_A_NAME {
        let folder = runs.join(if number == 1 { name.to_owned() } else { format!("{name}-{number}") });
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot create {}", folder.display())),
        }
    }
    Err(BadInput::missing("out", format!("{MOST_OF_A_NAME} runs were already started in this second; name a folder"))
        .into())
}

/// Now, in UTC, for the name of a folder: `2026-11-16-093005`.
pub(crate) fn stamp() -> String {
    Timestamp::now().strftime("%Y-%m-%d-%H%M%S").to_string()
}

fn introduction(plan: &Plan, folder: &Path, means: Means) -> String {
    let Config { rounds, participation, .. } = &plan.config;
    let (parameters, cohort, population) = (plan.parameters.len(), participation.cohort, participation.population);
    let (kernels, threads, folder) = (means.kernels.name(), means.threads, folder.display());
    let secure = if plan.config.aggregation.is_secure() { " secure aggregation," } else { "" };
    format!(
        "{} parameters, {} of {} of {},{secure} {}, {kernels} kernels; output in {folder}",
        grouped(parameters as u64),
        counted(*rounds, "round"),
        grouped(cohort),
        counted(population, "user"),
        counted(threads as u64, "thread"),
    )
}

fn announce(ending: &Ending, folder: &Path, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(ending)?);
        return Ok(());
    }
    if let Some(why) = &ending.stopped {
        println!("Stopped after round {}: {why}.", ending.rounds);
    }
    println!("{}", ending.sentence);
    if let Some(projected) = ending.metrics.projected_epsilon {
        println!("Projected epsilon for the larger cohort of stands_for: {projected} (not a guarantee for this run).");
    }
    if let Some(sent) = ending.metrics.sent {
        println!("{}", sent.words());
    }
    if let Some(audit) = &ending.audit {
        println!("{}", audit.words());
    }
    println!("Report: {}", folder.join(REPORT_FILE).display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What only the engine of all processes refused once was refused after the run had begun.
    #[test]
    fn what_several_processes_cannot_do_is_refused_before_the_run_begins() {
        let said = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
            let config = settings(None, &set).unwrap().config().unwrap();
            let opened = Opened::new(&config).unwrap();
            let plan = Plan::new(config, &opened.setting()).unwrap();
            not_together(&plan).map_err(|refused| refused.to_string())
        };
        let few = ["model.vocabulary=100"];
        let with = |more: &[&'static str]| [&few[..], more].concat();
        for kind in ["grid", "dense"] {
            assert_eq!(said(&with(&[&*format!("upload.kind={kind}").leak()])), Ok(()));
        }
        for kind in ["sparse", "mask"] {
            let refused = said(&with(&[&*format!("upload.kind={kind}").leak(), "upload.share=0.05"])).unwrap_err();
            assert!(refused.contains("upload.kind: ") && refused.contains("without mpirun"), "{kind}: {refused}");
        }
        let refused = said(&with(&["aggregation=secagg", "participation.kind=fixed-size"])).unwrap_err();
        assert!(refused.contains("aggregation: ") && refused.contains("without mpirun"), "{refused}");
    }
}
