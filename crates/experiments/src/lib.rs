//! Experiments and sweeps: reproduces the papers' tables and figures next to the printed numbers.
//!
//! An experiment is a folder with an `experiment.toml`: what a paper did and says, and what must hold here. Those that train
//! run every variant with several seeds, each a run of `keyhush train`; those that compute ask the accountants. What came out
//! goes to `results.json`, to pictures and into the marked part of the experiment's `README.md`.
//!
//! | module       | what it is                                            |
//! |--------------|-------------------------------------------------------|
//! | [`runs`]     | training runs one after the other, each in its folder |
//! | [`sweep`]    | trains all combinations of some settings, chooses one |
//! | [`mod@format`] | `experiment.toml`                                     |
//! | [`library`]  | finds experiments: in a folder, or built in           |
//! | `training`   | variants, each with several seeds                     |
//! | `baselines`  | baselines that are not runs, and their numbers        |
//! | `finetuning` | variants and baselines, measured on two test sets     |
//! | `texts`      | real text for these: a general model and test sets    |
//! | `accounting` | rows of a table that are computed                     |
//! | `verdict`    | checks the assertions                                 |
//! | `picture`    | charts                                                |
//! | `results`    | `results.json`                                        |
//! | `readme`     | writes the generated part of a README                 |
//! | [`tables`]   | the papers' tables of privacy costs                   |

mod accounting;
mod baselines;
mod error;
mod finetuning;
pub mod format;
pub mod library;
mod picture;
mod readme;
mod results;
pub mod runs;
pub mod sweep;
pub mod tables;
mod texts;
mod training;
mod verdict;

use std::path::{Path, PathBuf};

use durable::files;
use report::chart::Chart;

pub use self::{
    error::ExperimentError,
    library::{Found, Library},
    results::Results,
    training::Job,
    verdict::Verdict,
};
use self::{
    format::{Expect, Experiment, PaperValue},
    results::{Beside, OfVariant},
    runs::Runner,
    training::Outcome,
};

/// The findings of an experiment: its numbers and charts.
#[derive(Debug)]
pub struct Findings {
    /// The numbers.
    pub results: Results,
    /// The pictures, in the order of the experiment.
    pub charts: Vec<Chart>,
}

/// Runs an experiment that trains.
///
/// # Errors
/// When the experiment cannot be run as it says, a run cannot continue, or somebody stopped it.
pub fn train(job: &Job<'_>, runner: &mut Runner<'_>) -> Result<Findings, ExperimentError> {
    let (outcomes, notes) = training::run(job, runner)?;
    let experiment = job.experiment;
    let mut results = trained_by(job, runner, notes);
    results.variants = outcomes.iter().map(|outcome| OfVariant::new(outcome, &experiment.columns)).collect();
    results.paper_values = beside(experiment, &outcomes);
    results.expectations = experiment.expect.iter().map(|expect| verdict::judge(expect, &outcomes)).collect();
    let draw = |plot| picture::draw(&experiment.title, plot, &outcomes);
    let charts = experiment.plot.iter().map(draw).collect::<Result<Vec<Chart>, ExperimentError>>()?;
    Ok(Findings { results, charts })
}

/// Runs an experiment about forgetting.
///
/// # Errors
/// As [`train`].
pub fn finetune(job: &Job<'_>, runner: &mut Runner<'_>) -> Result<Findings, ExperimentError> {
    let (compared, notes) = finetuning::run(job, runner)?;
    let experiment = job.experiment;
    let mut results = trained_by(job, runner, notes);
    let is_there = |expect: &&Expect| expect.names().all(|name| compared.iter().any(|one| one.name == *name));
    let expected = experiment.expect.iter().filter(is_there);
    results.expectations = expected.map(|expect| finetuning::judge(expect, &compared)).collect();
    let charts = experiment.plot.iter().map(|plot| finetuning::draw(experiment, plot, &compared)).collect();
    results.paired = finetuning::pairs(experiment, &compared);
    results.compared = compared;
    Ok(Findings { results, charts })
}

/// With what an experiment was trained, before what came of it.
fn trained_by(job: &Job<'_>, runner: &Runner<'_>, notes: Vec<String>) -> Results {
    let Job { experiment, store, set, .. } = job;
    let mut results = Results::new(experiment);
    results.kernels = Some(runner.means.kernels.name().to_owned());
    results.store = store.map(|store| store.file_name().unwrap_or_default().to_string_lossy().into_owned());
    results.set = set.to_vec();
    results.notes = notes;
    results
}

fn beside(experiment: &Experiment, outcomes: &[Outcome<'_>]) -> Vec<Beside> {
    let value = |value: &PaperValue| {
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

/// Computes an experiment that trains nothing.
///
/// # Errors
/// When a row cannot be meant or has no answer.
pub fn compute(experiment: &Experiment) -> Result<Findings, ExperimentError> {
    let rows = accounting::run(experiment)?;
    let charts = experiment.plot.iter().map(|plot| accounting::draw(&experiment.title, plot, &rows)).collect();
    let expectations = experiment.expect.iter().map(|expect| accounting::judge(expect, &rows)).collect();
    Ok(Findings { results: Results { rows, expectations, ..Results::new(experiment) }, charts })
}

/// Where results are written.
#[derive(Debug, Clone)]
pub struct Place {
    /// Folder for numbers and pictures.
    pub out: PathBuf,
    /// The page that has a marked part.
    pub page: PathBuf,
    /// The name of the mark.
    mark: &'static str,
    /// What stands before the names of pictures in the page.
    beside: String,
}

impl Place {
    /// In the given folder, with its own page; otherwise next to the experiment, if it has a folder; otherwise next to its runs.
    #[must_use]
    pub fn new(found: &Found, runs: &Path, store: bool, out: Option<&Path>) -> Self {
        let mark = if store { "results-store" } else { "results" };
        let own = |out: PathBuf| (out.clone(), out.join("README.md"), String::new());
        let (out, page, beside) = match (out, found.folder()) {
            (Some(out), _) => own(out.to_owned()),
            (None, Some(folder)) => (folder.join(mark), folder.join("README.md"), format!("{mark}/")),
            (None, None) => own(runs.join(mark)),
        };
        Self { out, page, mark, beside }
    }

    /// Writes numbers, pictures and the marked part of the page, which names the command.
    ///
    /// # Errors
    /// When something cannot be written or drawn.
    pub fn write(&self, experiment: &Experiment, found: &Findings, command: &str) -> Result<(), ExperimentError> {
        let Findings { results, charts } = found;
        files::make_folder(&self.out)?;
        let mut json = serde_json::to_vec_pretty(results)?;
        json.push(b'\n');
        files::write(&self.out.join("results.json"), &json)?;
        let mut pictures = Vec::new();
        for (number, chart) in charts.iter().enumerate() {
            let name = if number == 0 { "plot.svg".to_owned() } else { format!("plot-{}.svg", number + 1) };
            let (width, height) = picture::SIZE;
            files::write(&self.out.join(&name), chart.svg(width, height)?.as_bytes())?;
            pictures.push(format!("{}{name}", self.beside));
        }
        let part = readme::part(results, experiment, command, &pictures);
        let text = if self.page.is_file() { files::read_text(&self.page)? } else { readme::begun(experiment) };
        files::write(&self.page, readme::replaced(&text, self.mark, &part).as_bytes())?;
        Ok(())
    }
}
