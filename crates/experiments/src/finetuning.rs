//! Experiments about forgetting (Popov et al. 2018, Tables 1 and 2, Figure 2): the last model of each variant is measured on two test sets,
//! standard English and users' text, by perplexity and keystrokes saved.
//!
//! Variants are runs of `keyhush train`, or one of the baselines that are none (`baselines`): n-grams, the user's on-line n-gram beside the
//! general model, transfer learning from an ensemble, and distilling from released models. Test sets are of people of the synthetic crowd whom
//! no run trains on, the same for all variants, also for those that train on crowds of their own; where a store is trained on, they are given
//! ([`crate::texts`]).
//!
//! With several seeds everything synthetic is drawn again for each of them: the crowd with its test people, the general model, the node and
//! what it does. What is given, such as a store and its texts, stays. Variants of one seed are compared with each other, pair by pair.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use corpus::synth::{Crowd, Dialect, SynthPlan};
use federated::{
    config::{Config, Data},
    finetune::{
        self,
        ensemble::{self, Distilling, On, Trained},
    },
    home::MODEL_FOLDER,
    model_folder,
    plan::Plan,
    released::Teachers,
    run::{After, Opened},
    sweep::{self, estimate::Estimate},
    test_sets::{self, Measured},
};
use lm::{
    folder::Folder,
    kernels::KernelPath,
    language_model::LanguageModel,
    metrics::{Counts, Metrics},
    mixture::Mixture,
    model::fast::Network,
    ngram::KneserNey,
    predict::Keyboard,
    stream::{self, Line},
    tokenizer::{Rules, Tokenizer},
    vocabulary::Vocabulary,
};
use report::chart::{Chart, Series};
use serde::Serialize;

use crate::{
    baselines::{self, COLUMNS, Instead, OnText, label, shown},
    error::ExperimentError,
    format::{Expect, Experiment, Plot, Variant},
    runs::{OneRun, Runner},
    texts::Texts,
    training::Job,
    verdict::{self, Verdict},
};

/// As many sentences as the paper measures keystrokes on.
const SENTENCES: usize = 200;
/// People of each test set.
const PEOPLE: u64 = 40;
/// The number of the first of them: beyond any population that is trained on.
const FIRST: u64 = 1 << 39;

/// What a variant came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Compared {
    pub(crate) name: String,
    pub(crate) set: Vec<String>,
    /// Shares are from 0 to 1; means over the seeds.
    pub(crate) values: BTreeMap<&'static str, f64>,
    /// The values of each seed, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) seeds: Vec<BTreeMap<&'static str, f64>>,
    /// Rounds, where it is a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rounds: Option<u64>,
    #[serde(skip)]
    pub(crate) line: Option<String>,
}

impl Compared {
    fn value(&self, column: &str) -> f64 {
        self.values.get(column).copied().unwrap_or(f64::NAN)
    }
}

/// Judges one expectation.
pub(crate) fn judge(expect: &Expect, compared: &[Compared]) -> Verdict {
    let column = expect.column.as_deref().unwrap_or_default();
    let value = |name: &str| compared.iter().find(|one| one.name == name).map_or(f64::NAN, |one| one.value(column));
    verdict::weigh(expect, label(column), value, |value| shown(column, value))
}

/// A picture: the columns that it names over the rounds of the variants, by their lines. What is no run, or has no line, is not drawn.
pub(crate) fn draw(experiment: &Experiment, plot: &Plot, compared: &[Compared]) -> Chart {
    let mut lines: Vec<&String> = compared.iter().filter_map(|one| one.line.as_ref()).collect();
    lines.dedup();
    let mut series = Vec::new();
    for column in &plot.columns {
        for line in &lines {
            let of_line = compared.iter().filter(|one| one.line.as_ref() == Some(line));
            let mut points: Vec<(f64, f64)> =
                of_line.filter_map(|one| Some((one.rounds? as f64, one.value(column)))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            series.push(Series::new(format!("{}, {line}", label(column)), points));
        }
    }
    Chart {
        title: plot.title.clone().unwrap_or_else(|| experiment.title.clone()),
        x_label: "rounds".to_owned(),
        y_label: "perplexity".to_owned(),
        log_x: plot.log_x,
        log_y: plot.log_y,
        series,
        ..Chart::default()
    }
}

/// Runs everything, and says what should be known of it.
pub(crate) fn run(job: &Job<'_>, runner: &mut Runner<'_>) -> Result<(Vec<Compared>, Vec<String>), ExperimentError> {
    let left_out = |variant: &&Variant| job.store.is_some() && variant.crowd_only;
    let variants: Vec<&Variant> = job.experiment.variant.iter().filter(|variant| !left_out(variant)).collect();
    let texts = job.texts.map(Texts::open).transpose()?;
    let work = Work { job, variants, texts: texts.as_ref() };
    let crowd = work.check()?;
    let mut notes = Vec::new();
    let mut compared = work.of_seed(0, crowd, runner, &mut notes)?;
    if job.seeds > 1 {
        let mut all = vec![compared.clone()];
        for seed in 1..job.seeds {
            // What should be known of the first should be known of all.
            all.push(work.of_seed(seed, crowd, runner, &mut Vec::new())?);
        }
        for (number, one) in compared.iter_mut().enumerate() {
            one.seeds = all.iter().map(|of_seed| of_seed[number].values.clone()).collect();
            let mean = |column| one.seeds.iter().map(|values| values[column]).sum::<f64>() / one.seeds.len() as f64;
            one.values = one.values.keys().map(|column| (*column, mean(column))).collect();
        }
    }
    notes.dedup();
    Ok((compared, notes))
}

/// By how much the seeds of two synthetic crowds differ; experiments name some near 1 themselves.
const CROWDS: u64 = 1000;

/// The settings of the so many-th seed: with a synthetic crowd of its own.
fn with_seed(config: &Config, number: u64) -> Config {
    let mut config = sweep::with_seed(config, number);
    let first = seed_of(&config);
    if let (Data::Synthetic(crowd), 1..) = (&mut config.data, number) {
        crowd.seed = Some(first.wrapping_add(CROWDS * number));
    }
    config
}

/// What is done for each seed.
struct Work<'a> {
    job: &'a Job<'a>,
    variants: Vec<&'a Variant>,
    texts: Option<&'a Texts>,
}

impl Work<'_> {
    /// Says all that can be known to be wrong before any work; and the seed of the first variant's crowd.
    fn check(&self) -> Result<u64, ExperimentError> {
        let mut crowd = None;
        for variant in self.variants.iter().filter(|variant| self.given(variant).is_none()) {
            let config = self.job.config(variant, None, &mut Vec::new())?;
            crowd.get_or_insert_with(|| seed_of(&config));
            if let Some(Instead::Transfer { .. }) = variant.instead {
                ensemble::check(&config)?;
            }
        }
        Ok(crowd.unwrap_or(1))
    }

    /// The texts whose general model a variant is.
    fn given(&self, variant: &Variant) -> Option<&Texts> {
        self.texts.filter(|_| variant.given_with_store)
    }

    /// All variants with one seed.
    fn of_seed(
        &self,
        seed: u64,
        crowd: u64,
        runner: &mut Runner<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Compared>, ExperimentError> {
        let job = self.job;
        let people = People { texts: self.texts, crowd: crowd.wrapping_add(CROWDS * seed) };
        let (mut folders, mut compared) = (Vec::new(), Vec::new());
        for variant in self.variants.iter().copied() {
            let (name, set, line) = (variant.name.clone(), variant.set.clone(), variant.line.clone());
            let of = |values, rounds| Compared { name: name.clone(), set, values, seeds: Vec::new(), rounds, line };
            if let Some(texts) = self.given(variant) {
                let tests = |rules, words: &Vocabulary| Tests::of_texts(texts, rules, words);
                compared.push(of(measured(&texts.model(), &tests, runner)?.values(), None));
                continue;
            }
            let from = job.start(variant, 0, &folders)?;
            let config = with_seed(&job.config(variant, from.as_deref(), notes)?, seed);
            let of_variant = |problem: String| ExperimentError::Variant { name: variant.name.clone(), problem };
            let (counts, rounds) = match &variant.instead {
                None => {
                    let label = if job.seeds > 1 { format!("{name}, seed {seed}") } else { name.clone() };
                    let folder = job.place(variant, &config, seed, runner.means.kernels)?;
                    runner.run(OneRun { label: &label, config: &config, folder: &folder, after: After::Close })?;
                    folders.push((name.clone(), vec![folder.clone()]));
                    let tests = |rules, words: &Vocabulary| Tests::new(people, rules, words);
                    (measured(&folder.join(MODEL_FOLDER), &tests, runner)?, Some(config.rounds))
                }
                Some(instead) => {
                    let baseline = Baseline::new(&config, people, &folders, runner)?;
                    let (counts, note) = baseline.counts(instead).map_err(of_variant)?;
                    notes.extend(note.map(|note| format!("{name}: {note}")));
                    (counts, None)
                }
            };
            compared.push(of(counts.values(), rounds));
        }
        Ok(compared)
    }
}

/// Two variants that an expectation compares, seed by seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Paired {
    pub(crate) column: String,
    pub(crate) higher: String,
    pub(crate) lower: String,
    /// Of perplexities, by which share the first is above the second; of keystrokes, the difference.
    pub(crate) difference: Estimate,
}

/// The differences that expectations are about, where there are several seeds.
pub(crate) fn pairs(experiment: &Experiment, compared: &[Compared]) -> Vec<Paired> {
    let found = |name: &Option<String>| compared.iter().find(|one| Some(&one.name) == name.as_ref());
    let pair = |expect: &Expect| {
        let (column, higher, lower) = (expect.column.as_ref()?, found(&expect.higher)?, found(&expect.lower)?);
        let of = |(high, low): (&BTreeMap<&str, f64>, &BTreeMap<&str, f64>)| {
            let (high, low) = (*high.get(column.as_str())?, *low.get(column.as_str())?);
            Some(if column.starts_with("keystrokes") { high - low } else { high / low - 1.0 })
        };
        let differences: Vec<f64> = higher.seeds.iter().zip(&lower.seeds).filter_map(of).collect();
        let (higher, lower) = (higher.name.clone(), lower.name.clone());
        let difference = Estimate::of_differences(&differences);
        (differences.len() > 1).then(|| Paired { column: column.clone(), higher, lower, difference })
    };
    experiment.expect.iter().filter_map(pair).collect()
}

/// What was counted on both test sets, and on the first sentences of each.
struct Both {
    standard: [Counts; 2],
    users: [Counts; 2],
}

impl Both {
    fn values(&self) -> BTreeMap<&'static str, f64> {
        let [standard, users] = [&self.standard, &self.users].map(|[all, _]| Metrics::from(all));
        let few = |[_, few]: &[Counts; 2]| few.keystroke_saving();
        // As the paper does, without words that are not in the vocabulary.
        let values = [
            standard.perplexity_without_unk,
            standard.keystroke_saving,
            few(&self.standard),
            users.perplexity_without_unk,
            users.keystroke_saving,
            few(&self.users),
            test_sets::average(&[&standard, &users], true),
        ];
        let named = COLUMNS.iter().zip(values).map(|((name, _), value)| (*name, value.unwrap_or(f64::NAN)));
        named.collect()
    }
}

/// Whose language the test sets contain.
#[derive(Clone, Copy)]
struct People<'a> {
    /// The texts that were given.
    texts: Option<&'a Texts>,
    /// Otherwise the seed of the synthetic crowd: that of the first variant.
    crowd: u64,
}

fn seed_of(config: &Config) -> u64 {
    match &config.data {
        Data::Synthetic(crowd) => crowd.seed.unwrap_or(1),
        Data::Store(_) | Data::Devices(_) => 1,
    }
}

/// The lines of both test sets, by person.
struct Tests {
    standard: Vec<Vec<Line>>,
    users: Vec<Vec<Line>>,
}

impl Tests {
    /// Of the texts that were given, or else of people of the synthetic crowd.
    fn new(people: People<'_>, rules: Rules, vocabulary: &Vocabulary) -> Result<Self, ExperimentError> {
        match people.texts {
            Some(texts) => Self::of_texts(texts, rules, vocabulary),
            None => Self::of_crowd(people.crowd, rules, vocabulary),
        }
    }

    fn of_texts(texts: &Texts, rules: Rules, vocabulary: &Vocabulary) -> Result<Self, ExperimentError> {
        let [standard, users] = texts.lines(Tokenizer::new(rules), vocabulary);
        Ok(Self { standard, users })
    }

    fn of_crowd(seed: u64, rules: Rules, vocabulary: &Vocabulary) -> Result<Self, ExperimentError> {
        let tokenizer = Tokenizer::new(rules);
        let of = |dialect| -> Result<Vec<Vec<Line>>, ExperimentError> {
            let crowd = Crowd::new(SynthPlan::new(seed, FIRST + PEOPLE, dialect)).map_err(|e| wrong(&e))?;
            let person = |number| stream::lines(&crowd.posts(number).join("\n"), tokenizer, vocabulary);
            Ok((FIRST..FIRST + PEOPLE).map(person).collect())
        };
        Ok(Self { standard: of(Dialect::General)?, users: of(Dialect::Informal)? })
    }

    /// Counts on both with what counts over some lines of one person after the other.
    fn count(
        &self,
        mut count: impl FnMut(&[Line]) -> Result<Counts, ExperimentError>,
    ) -> Result<Both, ExperimentError> {
        let mut of = |people: &[Vec<Line>]| -> Result<[Counts; 2], ExperimentError> {
            let (mut all, mut few, mut left) = (Counts::default(), Counts::default(), SENTENCES);
            for lines in people {
                let (first, rest) = lines.split_at(left.min(lines.len()));
                let first_counts = count(first)?;
                few.merge(&first_counts);
                all.merge(&first_counts);
                if !rest.is_empty() {
                    all.merge(&count(rest)?);
                }
                left -= first.len();
            }
            Ok([all, few])
        };
        Ok(Both { standard: of(&self.standard)?, users: of(&self.users)? })
    }
}

/// A model of a run, or one that was given, measured.
fn measured(
    folder: &Path,
    tests: &dyn Fn(Rules, &Vocabulary) -> Result<Tests, ExperimentError>,
    runner: &Runner<'_>,
) -> Result<Both, ExperimentError> {
    let Folder { vocabulary, rules, weights, .. } = model_folder::read(folder)?;
    let not_trained = || ExperimentError::NotTrained { folder: folder.to_owned() };
    let model = weights.into_model(runner.means.kernels).map_err(|_| not_trained())?;
    let keyboard = Keyboard::new(vocabulary.words());
    let measured = Measured::new(model.as_ref(), rules, &keyboard, runner.means.threads);
    tests(rules, &vocabulary)?.count(|lines| measured.lines(lines, |_| {}).map_err(|e| wrong(&e)))
}

fn wrong(problem: &dyn std::fmt::Display) -> ExperimentError {
    ExperimentError::Variant { name: "a test set".to_owned(), problem: problem.to_string() }
}

/// What stands beside runs, and what it is made from.
struct Baseline<'a> {
    config: Config,
    people: People<'a>,
    /// The runs so far, by their variants.
    runs: &'a [(String, Vec<PathBuf>)],
    opened: Opened,
    kernels: KernelPath,
    threads: usize,
}

impl<'a> Baseline<'a> {
    fn new(
        config: &Config,
        people: People<'a>,
        runs: &'a [(String, Vec<PathBuf>)],
        runner: &Runner<'_>,
    ) -> Result<Self, ExperimentError> {
        let opened = Opened::new(config)?;
        let (kernels, threads) = (runner.means.kernels, runner.means.threads);
        Ok(Self { config: config.clone(), people, runs, opened, kernels, threads })
    }

    /// What it predicts, and what should be known of it.
    fn counts(&self, instead: &Instead) -> Result<(Both, Option<String>), String> {
        match *instead {
            Instead::Ngram { order } => Ok((self.measure(&self.ngram(order, &self.general()?)?)?, None)),
            Instead::OnlineNgram { order, weight } => Ok((self.online(order, weight)?, None)),
            Instead::Transfer { on, cycles, epochs, learning_rate } => {
                let how = self.distilling(on, cycles, epochs, learning_rate)?;
                Ok((self.measure(&self.network(self.transferred(how)?)?)?, None))
            }
            Instead::Released { ref models, on, cycles, epochs, learning_rate } => {
                let how = self.distilling(on, cycles, epochs, learning_rate)?;
                let runs = self.runs.iter().filter(|(name, _)| models.contains(name));
                let runs: Vec<PathBuf> = runs.flat_map(|(_, folders)| folders.clone()).collect();
                let teachers = Teachers::read(&runs, None).map_err(|e| e.to_string())?;
                let taught = teachers.teach(how, self.kernels).map_err(|e| e.to_string())?;
                let model = taught.weights.into_model(self.kernels).map_err(|e| e.to_string())?;
                let note = teachers.cost().sentence().trim_end_matches('.').to_owned();
                Ok((self.measure(model.as_ref())?, Some(note)))
            }
        }
    }

    /// What n-grams are counted in: all of the text that was given, or what devices rehearse.
    fn general(&self) -> Result<Vec<Vec<u32>>, String> {
        let Some(texts) = self.people.texts else { return baselines::general_posts(&self.opened) };
        let (words, rules) = (self.opened.vocabulary(), self.opened.rules());
        Ok(baselines::sequences(&finetune::public_text(&texts.general(), words, rules, usize::MAX)?))
    }

    fn distilling(&self, on: OnText, cycles: u32, epochs: u32, learning_rate: f32) -> Result<Distilling<'_>, String> {
        let general =
            self.opened.general().ok_or("transfer learning needs general text: finetune.kind = \"rehearsal\"")?;
        let on = match on {
            OnText::Real => On::Real(general),
            OnText::Generated => On::Generated { tokens: general.tokens(), cycles, seed: self.config.seed },
        };
        let plan = Plan::new(self.config.clone(), &self.opened.setting()).map_err(|e| e.to_string())?;
        Ok(Distilling { on, epochs, batch: plan.local.batch, unroll: plan.local.unroll, learning_rate })
    }

    fn network(&self, parameters: Vec<f32>) -> Result<Network, String> {
        let model = self.opened.learner().recurrent().ok_or("the model has no recurrent network")?;
        Network::new(model, parameters, self.kernels).map_err(|e| e.to_string())
    }

    fn ngram(&self, order: usize, posts: &[Vec<u32>]) -> Result<KneserNey, String> {
        let words = self.opened.vocabulary().len();
        KneserNey::train(order, words, posts.iter().map(Vec::as_slice)).map_err(|e| e.to_string())
    }

    fn tests(&self) -> Result<Tests, String> {
        Tests::new(self.people, self.opened.rules(), self.opened.vocabulary()).map_err(|e| e.to_string())
    }

    fn measure(&self, model: &dyn LanguageModel) -> Result<Both, String> {
        let keyboard = Keyboard::new(self.opened.vocabulary().words());
        let measured = Measured::new(model, self.opened.rules(), &keyboard, self.threads);
        let counted = self.tests()?.count(|lines| measured.lines(lines, |_| {}).map_err(|e| wrong(&e)));
        counted.map_err(|e| e.to_string())
    }

    /// Each person's n-grams are of what the person has typed before, and begin with nothing.
    fn online(&self, order: usize, weight: f64) -> Result<Both, String> {
        let general = self.network(self.opened.first_parameters().to_vec())?;
        let keyboard = Keyboard::new(self.opened.vocabulary().words());
        let by_person = |lines: &[Line]| -> Result<Counts, ExperimentError> {
            let (mut typed, mut counts) = (Vec::new(), Counts::default());
            for line in lines {
                let own = if typed.is_empty() { None } else { Some(self.ngram(order, &typed).map_err(|e| wrong(&e))?) };
                let mixture = own.as_ref().map(|own| Mixture::new(&general, own, weight));
                let model: &dyn LanguageModel = mixture.as_ref().map_or(&general, |mixture| mixture);
                let measured = Measured::new(model, self.opened.rules(), &keyboard, 1);
                counts.merge(&measured.lines(std::slice::from_ref(line), |_| {}).map_err(|e| wrong(&e))?);
                typed.push(line.ids.clone());
            }
            Ok(counts)
        };
        self.tests()?.count(by_person).map_err(|e| e.to_string())
    }

    /// What a new model has learned from the models of as many users as a cohort has.
    fn transferred(&self, how: Distilling<'_>) -> Result<Vec<f32>, String> {
        let (config, opened) = (&self.config, &self.opened);
        let plan = Plan::new(config.clone(), &opened.setting()).map_err(|e| e.to_string())?;
        let population = opened.population(config.unit).map_err(|e| e.to_string())?;
        let (learner, model) = (opened.learner(), opened.first_parameters());
        let trained = Trained { config, learner, local: &plan.local, model, population: population.as_ref() };
        let users: Vec<u64> = (0..population.users().min(config.participation.cohort)).collect();
        let teachers = ensemble::user_models(&trained, &users, self.kernels).map_err(|e| e.to_string())?;
        ensemble::distil(learner, model, &teachers, how, self.kernels).map_err(|e| e.to_string())
    }
}
