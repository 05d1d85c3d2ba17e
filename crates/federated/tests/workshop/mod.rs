//! Small runs that tests can look into: settings that take no time, an engine that writes down what it is told, stores of
//! anybody.
#![allow(dead_code, reason = "not every test uses all of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::path::{Path, PathBuf};

use crate::small_runs::{self, RUN};
use corpus::{
    origin::Origin,
    store::{Meta, StoreWriter, UserRecord, UserTag},
};
use device::{round::Task, upload::Rests};
use keyhush_federated::{
    config::{Config, Document},
    engine::{
        self, Engine, EngineError, Means, Summed, Users,
        secure::{SecureTask, Secured},
    },
    fleet::{self, Fleet, Stop},
    home::{LEDGER_FILE, Records, RunFolder},
    ledger_file::{FileStore, Place},
    plan::Plan,
    population::Population,
    run::{self, Ending, Opened, Run, RunError, Step},
    secrets::Secrets,
};
use ledger::{Body, Entry, Ledger};
use lm::{kernels::KernelPath, tokenizer::Rules, vocabulary::Vocabulary};
use privacy::{
    ClipNorm, PrivacyEvent,
    encoding::Encoding,
    stages::{ClipRule, Clipping, Sum},
};
use serde_json::Value;

/// A run of six rounds that anybody can repeat.
const CHANGES: [&str; 13] = [
    "rounds=6",
    "model.vocabulary=100",
    "model.hidden=6",
    "model.embedding=6",
    "local.most_tokens=40",
    "participation.kind=fixed-size",
    "participation.population=1000",
    "participation.cohort=20",
    "privacy.noise_multiplier=2.0",
    "server.optimizer=sgd",
    "server.momentum=",
    "evaluation.every=6",
    "checkpoint.every=2",
];

/// Its settings.
pub(crate) fn text() -> String {
    small_runs::with(RUN, &CHANGES)
}

/// Devices that come by themselves.
pub(crate) const ARRIVAL: [&str; 3] =
    ["participation.kind=arrival", "participation.min_separation=3", "participation.max_participations=4"];

/// A clip that follows the median, and moves fast.
pub(crate) const ADAPTIVE: [&str; 4] =
    ["clip.kind=adaptive", "clip.norm=0.1", "clip.quantile=0.5", "clip.count_stddev=5.0"];

pub(crate) fn config(set: &[&str]) -> Config {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    Document::new(&text(), &set).unwrap().config().unwrap()
}

pub(crate) fn plan(set: &[&str]) -> (Plan, Opened) {
    let config = config(set);
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    (plan, opened)
}

/// All of them together.
pub(crate) fn with<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

pub(crate) fn means() -> Means {
    Means::threads(KernelPath::best(), 1)
}

/// The engine that users have.
pub(crate) fn threads<'a>(plan: &Plan, opened: &'a Opened) -> Box<dyn Engine + 'a> {
    engine::of(&plan.local, opened.learner(), means()).unwrap()
}

/// The simulated fleet of a run, whoever trains.
pub(crate) fn fleet<'a>(
    plan: &'a Plan,
    population: &'a dyn Population,
    engine: &'a mut dyn Engine,
    folder: &Path,
) -> Box<dyn Fleet + 'a> {
    fleet_of(plan, population, engine, RunFolder::at(folder).secrets())
}

/// The same of a run in any home.
pub(crate) fn fleet_of<'a>(
    plan: &'a Plan,
    population: &'a dyn Population,
    engine: &'a mut dyn Engine,
    secrets: Secrets,
) -> Box<dyn Fleet + 'a> {
    fleet::of(plan, population, Box::new(engine), secrets)
}

/// One step of a run, by a fleet that remembers nothing of the steps before.
pub(crate) fn step(
    run: &mut Run<'_>,
    plan: &Plan,
    opened: &Opened,
    folder: &Path,
    engine: &mut dyn Engine,
) -> Result<Step, RunError> {
    let population = opened.population(plan.ledger.unit).unwrap();
    run.step(&mut fleet(plan, population.as_ref(), engine, folder), &Stop::new())
}

/// Steps of a run to its end.
fn to_the_end(run: &mut Run<'_>, plan: &Plan, opened: &Opened, folder: &Path, engine: &mut dyn Engine) {
    let population = opened.population(plan.ledger.unit).unwrap();
    let mut fleet = fleet(plan, population.as_ref(), engine, folder);
    while run.step(&mut fleet, &Stop::new()).unwrap().over.is_none() {}
}

/// A whole run, whoever does its rounds.
pub(crate) fn whole(folder: &Path, set: &[&str], engine: &mut dyn Engine) -> Ending {
    let (plan, opened) = plan(set);
    let mut run = Run::begin(RunFolder::at(folder), &plan, &opened, means()).unwrap();
    to_the_end(&mut run, &plan, &opened, folder, engine);
    run.finish().unwrap()
}

/// The same of a run of a sweep, before the choice.
pub(crate) fn undecided(folder: &Path, set: &[&str], engine: &mut dyn Engine) -> Ending {
    let (plan, opened) = plan(set);
    std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
    run::belongs_to_a_sweep(&RunFolder::at(folder)).unwrap();
    let mut run = Run::begin(RunFolder::at(folder), &plan, &opened, means()).unwrap();
    to_the_end(&mut run, &plan, &opened, folder, engine);
    run.finish_undecided().unwrap()
}

/// So many steps of a run, begun or gone on with, and then not another word from it.
pub(crate) fn some(folder: &Path, set: &[&str], steps: usize, engine: &mut dyn Engine) {
    let (plan, opened) = plan(set);
    let begin = if folder.exists() { Run::resume } else { Run::begin };
    let mut run = begin(RunFolder::at(folder), &plan, &opened, means()).unwrap();
    let population = opened.population(plan.ledger.unit).unwrap();
    let mut fleet = fleet(&plan, population.as_ref(), engine, folder);
    for _ in 0..steps {
        run.step(&mut fleet, &Stop::new()).unwrap();
    }
}

/// The rest of a run that was begun.
pub(crate) fn rest(folder: &Path, set: &[&str], engine: &mut dyn Engine) -> Ending {
    let (plan, opened) = plan(set);
    let mut run = Run::resume(RunFolder::at(folder), &plan, &opened, means()).unwrap();
    to_the_end(&mut run, &plan, &opened, folder, engine);
    run.finish().unwrap()
}

/// The settings of a run that starts from the model of another.
pub(crate) fn started_from(folder: &Path) -> Vec<String> {
    let from = format!("model.from={}", folder.display());
    [from.as_str(), "model.preset=", "model.vocabulary=", "model.hidden=", "model.embedding="].map(str::to_owned).into()
}

/// What a run released itself, by independent noise, without what it started from.
pub(crate) fn own_event(folder: &Path) -> PrivacyEvent {
    let event = |entry: Entry| match entry.body() {
        Body::Release(release) => Some(release.event.clone()),
        _ => None,
    };
    PrivacyEvent::Compose {
        events: ledger(folder).entries().unwrap().filter_map(|entry| event(entry.unwrap())).collect(),
    }
}

pub(crate) fn ledger(folder: &Path) -> Ledger<FileStore> {
    Place::new(folder.join(LEDGER_FILE)).read(&[]).unwrap()
}

/// What an engine was told of a round.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) round: u64,
    pub(crate) cohort: Vec<u64>,
    pub(crate) clipping: Clipping,
    pub(crate) encoding: Encoding,
    pub(crate) full_weight_tokens: Option<f64>,
    pub(crate) learning_rate: f32,
    pub(crate) model: Vec<f32>,
}

impl Told {
    /// Of the round with this number.
    pub(crate) fn of(round: usize, task: &Task<'_>, users: &Users<'_>) -> Self {
        Self {
            round: round as u64,
            cohort: users.numbers.to_vec(),
            clipping: task.clipping.clone(),
            encoding: task.encoding.clone(),
            full_weight_tokens: task.full_weight_tokens,
            learning_rate: task.learning_rate,
            model: task.model.to_vec(),
        }
    }

    /// The norm that updates are clipped to.
    pub(crate) fn active(&self) -> ClipNorm {
        let ClipRule::Flat(norm) = self.clipping.rule() else { panic!("clipped by layer") };
        *norm
    }

    /// The norm that the clip bit compares with.
    pub(crate) fn tracked(&self) -> f64 {
        let said: Value = serde_json::to_value(&self.clipping).unwrap();
        said["bit"]["norm_at_most"].as_f64().unwrap_or_else(|| panic!("{said}"))
    }
}

/// An engine that trains nobody and writes down what it is told: what is released is the noise.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    pub(crate) told: Vec<Told>,
}

impl Engine for Idle {
    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        self.told.push(Told::of(self.told.len(), task, users));
        Ok(Summed { sum: Sum::zero(task.encoding), exact: Vec::new(), rests: Rests::new(), busy_s: 0.0 })
    }
}

/// An engine that adds up securely, as a function says, and in no other way.
pub(crate) struct Securely<F>(F);

/// The engine of a function.
pub(crate) const fn securely<F>(sum: F) -> Securely<F>
where
    F: FnMut(&Task<'_>, &Users<'_>, &SecureTask<'_>) -> Result<Secured, EngineError>,
{
    Securely(sum)
}

impl<F> Engine for Securely<F>
where
    F: FnMut(&Task<'_>, &Users<'_>, &SecureTask<'_>) -> Result<Secured, EngineError>,
{
    fn sum(&mut self, _: &Task<'_>, _: &Users<'_>) -> Result<Summed, EngineError> {
        Err(EngineError::NotSecure)
    }

    fn sum_securely(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        (self.0)(task, users, secure)
    }
}

/// The secure sum of so many users of whom nobody says anything.
pub(crate) fn nothing_of(secure: &SecureTask<'_>, survivors: u64) -> Secured {
    Secured { sum: vec![0; secure.residues.len()].into(), survivors, exact: Vec::new(), busy_s: 0.0 }
}

/// A store of so many users, each with what `typed` says of its key: one post of tokens of a vocabulary of 60.
pub(crate) fn store(folder: &Path, vocabulary: Origin, users: u64, typed: impl Fn(UserTag) -> Vec<u32>) -> PathBuf {
    let words = Vocabulary::new((3..60).map(|i| format!("w{i}"))).unwrap();
    let non_private = vocabulary.non_private_event().into_iter().collect();
    let (rules, tokens_per_user, sources, crowd) = (Rules::Words1, None, Vec::new(), None);
    let (labels, features) = (None, Vec::new());
    let meta = Meta { rules, vocabulary, non_private, tokens_per_user, sources, crowd, labels, features };
    let path = folder.join("users.khs");
    let mut writer = StoreWriter::create(&path, false, false, &meta, &words).unwrap();
    let mut tags: Vec<UserTag> = (0..users).map(|n| UserTag::of(&n.to_string())).collect();
    tags.sort_unstable();
    for tag in tags {
        let tokens = typed(tag);
        let (tokens, ends) = (&tokens, &[tokens.len() as u32]);
        let user = UserRecord { tag, key: "", tokens, ends, labels: &[], label_ends: &[], features: &[] };
        writer.user(&user).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// Settings that read a store, which may have fewer users than are declared.
pub(crate) fn reads(store: &Path) -> Vec<String> {
    let path = format!("data.path={}", store.display());
    let absent = "participation.allow_absent=true";
    ["data.kind=store", &path, absent, "data.posts_per_user=", "model.vocabulary="].map(str::to_owned).into()
}

/// Settings of which some were made by a function.
pub(crate) fn all<'a>(made: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    made.iter().map(String::as_str).chain(more.iter().copied()).collect()
}
