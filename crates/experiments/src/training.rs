//! Experiments that train: every variant with every seed, each a `keyhush train` run that is resumed if it was interrupted.

use std::path::{Path, PathBuf};

use durable::files;
use federated::{
    config::{Config, Document, FineTune},
    engine::{Means, measure::measurer},
    home::MODEL_FOLDER,
    metrics::Metric,
    model_folder,
    run::{After, Opened},
    sweep::{self, estimate::Estimate, folder_name, summary::Runs},
};
use lm::{kernels::KernelPath, metrics::Counts, ngram::KneserNey};

use crate::{
    baselines::{self, Instead},
    error::ExperimentError,
    format::{Experiment, Kind, Variant},
    library::Found,
    runs::{OneRun, Runner},
    texts,
};

/// The parameters of running an experiment.
pub struct Job<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The experiment's files.
    pub found: &'a Found,
    /// The folder for its runs.
    pub runs: &'a Path,
    /// The store whose users are trained on, instead of the synthetic crowd.
    pub store: Option<&'a Path>,
    /// Of experiments about forgetting, with a store: the folder of the general model and the test sets.
    pub texts: Option<&'a Path>,
    /// Other values for settings, in all variants.
    pub set: &'a [String],
    /// Runs of each variant.
    pub seeds: u64,
}

/// What came of a variant.
pub(crate) struct Outcome<'a> {
    pub(crate) variant: &'a Variant,
    /// The settings of its first run.
    pub(crate) config: Config,
    pub(crate) runs: Runs,
    /// What the last models were asked, where anything was.
    pub(crate) ends: Vec<Counts>,
}

impl Outcome<'_> {
    /// A number, the mean over the seeds, at a round or at the end.
    pub(crate) fn estimate(&self, what: &Metric, at: Option<u64>) -> Estimate {
        let asked = !what.is_in_lines() || !self.variant.evaluate_on.is_empty() || self.variant.instead.is_some();
        let ends: Option<Vec<f64>> = self.ends.iter().map(|end| what.of_counts(end)).collect();
        match ends {
            Some(ends) if asked && at.is_none() && !ends.is_empty() => Estimate::of(&ends),
            _ if what.is_in_lines() => self.runs.smoothed_at(what, at.unwrap_or(u64::MAX)),
            _ => Estimate::of(&[]),
        }
    }
}

/// Runs everything.
pub(crate) fn run<'a>(
    job: &Job<'a>,
    runner: &mut Runner<'_>,
) -> Result<(Vec<Outcome<'a>>, Vec<String>), ExperimentError> {
    let variants = &job.experiment.variant;
    let mut notes = Vec::new();
    // All that can be known to be wrong is said before any work.
    for variant in variants {
        job.config(variant, None, &mut notes)?;
    }
    notes.clear();
    let asks_heads = job.asks_heads();
    let mut outcomes: Vec<Outcome<'a>> = Vec::new();
    let mut folders: Vec<(String, Vec<PathBuf>)> = Vec::new();
    for variant in variants {
        if let Some(instead) = &variant.instead {
            let config = job.config(variant, None, &mut notes)?;
            let end = ngrams(&config, instead, runner.means.threads)
                .map_err(|problem| ExperimentError::Variant { name: variant.name.clone(), problem })?;
            let runs = Runs { name: variant.name.clone(), set: variant.set.clone(), seeds: Vec::new() };
            outcomes.push(Outcome { variant, config, runs, ends: vec![end] });
            continue;
        }
        let (mut of_variant, mut runs, mut ends, mut first) = (Vec::new(), Vec::new(), Vec::new(), None);
        for seed in 0..job.seeds {
            let from = job.start(variant, seed, &folders)?;
            let config = sweep::with_seed(&job.config(variant, from.as_deref(), &mut notes)?, seed);
            let folder = job.place(variant, &config, seed, runner.means.kernels)?;
            let label = format!("{}, seed {seed}", variant.name);
            let one = OneRun { label: &label, config: &config, folder: &folder, after: After::Close };
            runs.push(runner.run(one)?);
            if asks_heads || !variant.evaluate_on.is_empty() {
                ends.push(job.end(variant, &folder, runner.means)?);
            }
            first.get_or_insert(config);
            of_variant.push(folder);
        }
        folders.push((variant.name.clone(), of_variant));
        let Some(config) = first else { continue };
        let runs = Runs { name: variant.name.clone(), set: variant.set.clone(), seeds: runs };
        outcomes.push(Outcome { variant, config, runs, ends });
    }
    notes.dedup();
    Ok((outcomes, notes))
}

/// What n-grams of the general text predict of who is held out.
fn ngrams(config: &Config, instead: &Instead, threads: usize) -> Result<Counts, String> {
    let Instead::Ngram { order } = instead else { return Err("only n-grams are counted here".into()) };
    let opened = Opened::new(config).map_err(|e| e.to_string())?;
    let posts = baselines::general_posts(&opened)?;
    let words = opened.vocabulary().len();
    let model = KneserNey::train(*order, words, posts.iter().map(Vec::as_slice)).map_err(|e| e.to_string())?;
    let held_out = opened.held_out(&config.evaluation).map_err(|e| e.to_string())?;
    held_out.predicted_by(&model, threads).map_err(|e| e.to_string())
}

impl Job<'_> {
    /// Whether anything is asked that needs the last models.
    fn asks_heads(&self) -> bool {
        let Experiment { columns, paper_value, expect, plot, .. } = self.experiment;
        let asked = columns
            .iter()
            .chain(paper_value.iter().map(|v| &v.what))
            .chain(expect.iter().filter_map(|e| e.what.as_ref()));
        asked.chain(plot.iter().map(|p| &p.y)).any(|what| !what.is_in_lines())
    }

    /// The settings of a variant, started from a model or not.
    pub(crate) fn config(
        &self,
        variant: &Variant,
        from: Option<&Path>,
        notes: &mut Vec<String>,
    ) -> Result<Config, ExperimentError> {
        let of_variant = |problem: String| ExperimentError::Variant { name: variant.name.clone(), problem };
        let file = variant.config.as_ref().or(self.experiment.config.as_ref());
        let file = file.cloned().unwrap_or_default();
        let text =
            self.found.text(&file).map_err(|e| of_variant(format!("{}: {e}", self.found.path(&file).display())))?;
        let mut set = Vec::new();
        let store = self.store.filter(|_| !variant.keeps_crowd);
        if let Some(store) = store {
            let with = &self.experiment.with_store;
            set.extend(self.to_store(&text, store, notes).map_err(|e| of_variant(e.to_string()))?);
            set.extend(with.iter().cloned());
        }
        // How many people there are, and how much they write, the store says.
        let of_crowd = |pair: &String| {
            store.is_some() && self.experiment.kind == Kind::FineTuning && CROWD.iter().any(|key| pair.starts_with(key))
        };
        set.extend(variant.set.iter().filter(|pair| !of_crowd(pair)).cloned());
        if store.is_some() {
            set.extend(variant.with_store.iter().cloned());
        }
        set.extend(self.set.iter().cloned());
        if let Some(from) = from {
            let given = self.texts.map(|_| "whoever ran the experiment declared it public");
            set.extend(start_from(from, variant.public.as_deref().map(|why| given.unwrap_or(why))));
        }
        let document = self.found.document(&text, &set).map_err(|e| of_variant(e.to_string()))?;
        let mut config = document.config().map_err(|e| of_variant(e.to_string()))?;
        if let (Some(folder), Some(FineTune::Rehearsal { public_text: text @ None, .. })) =
            (self.texts, &mut config.finetune)
        {
            *text = Some(folder.join(texts::GENERAL));
        }
        // Rule P22: an experiment compares, and none of its runs counts the others. Where the noise is simulated, nothing is promised.
        if config.data.is_stored() && config.noise_seed.is_none() {
            let why = "an experiment compares its runs, so on private data with secret noise each of them would cost what all cost together; set a noise_seed, or use keyhush sweep, which accounts for that";
            return Err(of_variant(why.to_owned()));
        }
        Ok(config)
    }

    /// Settings that train on the users of a store: as many as there are, at a delta that fits them.
    fn to_store(&self, text: &str, store: &Path, notes: &mut Vec<String>) -> Result<Vec<String>, ExperimentError> {
        let gone = ["data.seed", "data.dialect", "data.users", "data.posts_per_user", "model.vocabulary"];
        let mut set: Vec<String> = gone.iter().map(|key| format!("{key}=")).collect();
        set.push("data.kind=store".into());
        set.push(format!("data.path={}", quoted(&store.display().to_string())));
        let with_store = &self.experiment.with_store;
        let all = [&set[..], with_store, &[format!("participation.population={}", i64::MAX)]].concat();
        let document = self.found.document(text, &all)?;
        // What is rehearsed is looked for later, and has nothing to do with how many there are.
        let config = Config { finetune: None, ..document.config()? };
        let users = Opened::new(&config)?.population(config.unit)?.users();
        set.push(format!("participation.population={users}"));
        if let Some(delta) = config.privacy.delta()
            && delta >= 1.0 / users as f64
        {
            let smaller = format!("{:.0e}", 0.5 / users as f64);
            notes.push(format!(
                "delta is {smaller}, because {delta:e} is not below 1 over the number of users, {users}"
            ));
            set.push(format!("privacy.delta={smaller}"));
        }
        Ok(set)
    }

    /// The model that a variant starts from. One that is taken for public is put away from its ledger.
    pub(crate) fn start(
        &self,
        variant: &Variant,
        seed: u64,
        folders: &[(String, Vec<PathBuf>)],
    ) -> Result<Option<PathBuf>, ExperimentError> {
        let Some(name) = &variant.from else { return Ok(None) };
        let given = |other: &&Variant| other.name == *name && other.given_with_store;
        if let Some(texts) = self.texts.filter(|_| self.experiment.variant.iter().any(|other| given(&other))) {
            return Ok(Some(texts.join(texts::MODEL)));
        }
        let found = folders.iter().find(|(known, _)| known == name).and_then(|(_, runs)| runs.get(seed as usize));
        let run = found.ok_or_else(|| ExperimentError::NoStart { name: name.clone() })?;
        if variant.public.is_none() {
            return Ok(Some(run.clone()));
        }
        let stem = run.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let copy = self.runs.join("public").join(format!("{stem}-seed-{seed}"));
        model_folder::write(&model_folder::read(&run.join(MODEL_FOLDER))?, &copy)?;
        Ok(Some(copy))
    }

    /// Where a run goes: the same settings, the same place.
    pub(crate) fn place(
        &self,
        variant: &Variant,
        config: &Config,
        seed: u64,
        kernels: KernelPath,
    ) -> Result<PathBuf, ExperimentError> {
        let print = sweep::fingerprint(config, kernels)?;
        Ok(self.runs.join(format!("{}-{print}", folder_name(&variant.name))).join(format!("seed-{seed}")))
    }

    /// The predictions of a run's last model for the users it is measured on.
    fn end(&self, variant: &Variant, folder: &Path, means: Means) -> Result<Counts, ExperimentError> {
        let text = files::read_text(&folder.join(federated::home::CONFIG_FILE))?;
        let mut set = variant.evaluate_on.clone();
        set.extend(start_from(folder, None));
        let other = |e: &dyn std::fmt::Display| ExperimentError::Variant {
            name: variant.name.clone(),
            problem: format!("evaluate_on: {e}"),
        };
        let document = Document::new(&text, &set).map_err(|e| other(&e))?;
        let config = document.config().map_err(|e| other(&e))?;
        let opened = Opened::new(&config)?;
        let (learner, model) = (opened.learner(), opened.first_parameters());
        let held_out = opened.held_out(&config.evaluation)?;
        Ok(held_out.evaluate(&mut *measurer(learner, means)?, model)?)
    }
}

/// Settings that start from a model.
fn start_from(from: &Path, public: Option<&str>) -> Vec<String> {
    let gone = ["preset", "vocabulary", "hidden", "embedding", "tied", "public"];
    let mut set: Vec<String> = gone.iter().map(|key| format!("model.{key}=")).collect();
    set.push(format!("model.from={}", quoted(&from.display().to_string())));
    set.extend(public.map(|why| format!("model.public={}", quoted(why))));
    set
}

/// A string as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Settings that describe the synthetic crowd; of experiments about forgetting, whose variants are of several crowds.
const CROWD: [&str; 5] =
    ["data.seed=", "data.dialect=", "data.users=", "data.posts_per_user=", "participation.population="];
