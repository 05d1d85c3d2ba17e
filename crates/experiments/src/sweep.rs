//! A sweep: trains every combination of some settings with several seeds, chooses one run, and summarizes all.

use std::path::{Path, PathBuf};

use durable::files;
use federated::{
    metrics::Metrics,
    run::{After, Ending},
    sweep::{
        choice,
        design::Design,
        summary::{Runs, best_runs},
        with_seed,
    },
};
use report::{
    run::REPORT_FILE,
    sweep::{self as page, Summary},
};
use serde::Serialize;

use crate::{
    error::ExperimentError,
    runs::{OneRun, Runner},
};

/// The file of the numbers in the folder of a sweep.
const NUMBERS_FILE: &str = "sweep.json";

/// A sweep that was planned.
#[derive(Debug)]
pub struct Sweep<'a> {
    /// Its runs.
    pub design: &'a Design,
    /// Its folder.
    pub out: &'a Path,
    /// Runs of each combination.
    pub seeds: u64,
    /// Other values for settings, in all runs.
    pub set: &'a [String],
    /// The combination to keep; the most accurate by default.
    pub choose: Option<&'a str>,
}

/// The outcome of a sweep.
#[derive(Debug)]
pub struct Swept {
    /// The runs of each combination.
    pub runs: Vec<Runs>,
    /// The run that is kept, in words.
    pub note: String,
    /// The numbers, as `sweep.json` has them.
    pub json: Vec<u8>,
    /// The page.
    pub page: PathBuf,
}

/// `sweep.json`.
#[derive(Serialize)]
struct Numbers<'a> {
    /// The version of keyhush.
    keyhush: &'static str,
    kernels: &'static str,
    set: &'a [String],
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
    /// The note, for people.
    note: String,
}

impl Sweep<'_> {
    /// How many runs it has.
    #[must_use]
    pub const fn runs(&self) -> u64 {
        self.design.variants.len() as u64 * self.seeds
    }

    /// Runs all of it, and writes the page and the numbers.
    ///
    /// # Errors
    /// When a run cannot continue, somebody stopped it, or something cannot be written.
    pub fn run(&self, runner: &mut Runner<'_>) -> Result<Swept, ExperimentError> {
        let Design { axes, variants, .. } = self.design;
        let mut runs = Vec::new();
        for (number, variant) in variants.iter().enumerate() {
            let of_seed = |seed| self.run_one(number, seed, runner);
            let seeds = (0..self.seeds).map(of_seed).collect::<Result<_, ExperimentError>>()?;
            runs.push(Runs { name: variant.name.clone(), set: variant.set.clone(), seeds });
        }
        let chosen = self.choose(&runs, runner)?;
        let note = chosen.note.clone();
        let page = self.out.join(page::PAGE_FILE);
        files::write(&page, page::html(axes, variants, &runs, &note)?.as_bytes())?;
        let mut json = serde_json::to_vec_pretty(&self.numbers(&runs, chosen, runner))?;
        json.push(b'\n');
        files::write(&self.out.join(NUMBERS_FILE), &json)?;
        Ok(Swept { runs, note, json, page })
    }

    fn run_one(&self, number: usize, seed: u64, runner: &mut Runner<'_>) -> Result<Vec<Metrics>, ExperimentError> {
        let config = with_seed(&self.design.configs[number], seed);
        let label = format!("{}, seed {seed}", self.design.variants[number].name);
        let folder = self.out.join(self.design.place(number, seed));
        // Over private data the ledger stays open until the choice is counted in it (rule P22).
        let after = if config.data.is_stored() { After::Choose } else { After::Close };
        runner.run(OneRun { label: &label, config: &config, folder: &folder, after })
    }

    /// The run that is kept; over private data it records what all cost (rule P15).
    fn choose(&self, runs: &[Runs], runner: &Runner<'_>) -> Result<Chosen, ExperimentError> {
        let best = match self.choose {
            Some(name) => runs.iter().position(|runs| runs.name == name),
            None => best_runs(runs),
        };
        let number = best.unwrap_or(0);
        let seed = runs[number].best_seed().unwrap_or(0) as u64;
        let (variant, place) = (runs[number].name.clone(), self.design.place(number, seed));
        let why = if self.choose.is_some() { "as asked" } else { "the most accurate" };
        let mut note = format!("Chosen, {why}: {variant}, seed {seed}.");
        let mut ending = None;
        if self.design.configs[number].data.is_stored() {
            let chosen = self.out.join(&place);
            let others = choice::begun(self.out)?;
            let others: Vec<PathBuf> = others.into_iter().filter(|run| *run != chosen).collect();
            let of_run = choice::record(&chosen, &others, runner.means)?;
            others.iter().chain([&chosen]).try_for_each(|run| report::run::write(run))?;
            note = format!("{note} {} Report: {}", of_run.sentence, chosen.join(REPORT_FILE).display());
            ending = Some(of_run);
        }
        Ok(Chosen { variant, folder: place.display().to_string(), ending, note })
    }

    fn numbers(&self, runs: &[Runs], chosen: Chosen, runner: &Runner<'_>) -> Numbers<'_> {
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
            kernels: runner.means.kernels.name(),
            set: self.set,
            variants: runs.iter().enumerate().map(variant).collect(),
            chosen,
        }
    }
}
