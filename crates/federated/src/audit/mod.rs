//! Attacks on the models of runs: a lower bound on what an adversary learns about users. The statistics are in [`privacy::audit`]; training
//! and querying are here.
//!
//! | module         | what it is                                                                         |
//! |----------------|------------------------------------------------------------------------------------|
//! | [`tails`]      | models with and without one user, and how far their texts tell them apart (Popov et al. 2018) |
//! | [`secrets`]    | random texts planted in users, and how much of them a model remembers (Carlini et al. 2019) |
//! | [`membership`] | telling members from others by the loss of a model                                  |
//! | [`texts`]      | texts drawn from a model, and how likely a model finds texts                        |
//!
//! All of them train models by the usual loop, each in a folder of its own ([`Lab`]). They look at the users they attack, so what they find
//! is for people who may see these users' data: it is not private, and belongs to no run.

pub mod membership;
pub mod secrets;
pub mod tails;
pub mod texts;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use device::{learner::LearnerError, round::Task};
use lm::{
    folder::Weights,
    language_model::LanguageModel,
    model::{config::ModelConfig, fast::NetworkError},
};
use privacy::{Epsilon, audit::AuditError, encoding::MOST_GRID_BITS};
use thiserror::Error;

use crate::{
    canaries::Shown,
    config::{Aggregation, Clip, Config, Mechanism, NoisePlace},
    engine::{
        self, Around, Engine, EngineError, Means, PerUser, Summed, Users,
        secure::{SecureTask, Secured},
    },
    fleet::{self, Stop},
    home::{Records, RunFolder, model_in},
    metrics::Metrics,
    model_folder,
    plan::{GRID_BITS, Plan},
    population::Changes,
    run::{After, Course, Driven, Ending, Observer, Opened, Run, RunError, Way},
};

/// Why an attack failed.
#[derive(Debug, Error)]
pub enum StudyError {
    /// A run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Its statistics.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The loss of a model.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// A model that cannot be asked.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Somebody wants to stop.
    #[error("stopped; nothing was written")]
    Stopped,
    /// The model predicts no words.
    #[error("this audit needs a language model; leave out model.learner")]
    NotALanguageModel,
    /// What was asked for has no meaning.
    #[error("{what}: {problem}")]
    Wrong {
        /// The name of the argument.
        what: &'static str,
        /// A description of the problem.
        problem: String,
    },
}

/// So many times the clip norm is reached by no update.
const UNBOUNDED: f64 = 1000.0;
/// The bits that this is.
const UNBOUNDED_BITS: u32 = 10;

/// Where models are trained for an attack.
pub struct Lab<'a> {
    /// The settings of all of them.
    pub config: Config,
    /// The machine.
    pub means: Means,
    /// Set when somebody wants to stop.
    pub stop: &'a Stop,
    /// The folder of their folders.
    pub folder: PathBuf,
    /// Told before each training what is trained.
    pub says: &'a dyn Fn(&str),
}

/// A trained model.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its parameters.
    pub model: Vec<f32>,
    /// What its run guarantees, or would with secret noise.
    pub epsilon: Epsilon,
    /// The delta of that.
    pub delta: f64,
    /// What its canaries show, where it has some.
    pub audit: Option<Shown>,
    /// Who was trained in any round. Nobody else can be in the model, so attacks look at these alone.
    pub took_part: BTreeSet<u64>,
}

impl Lab<'_> {
    /// The settings without privacy: no noise, and a bound that no update reaches, in any round; everything else as it is.
    #[must_use]
    pub fn without_privacy(&self) -> Config {
        let mut config = self.config.clone();
        config.privacy.mechanism = Mechanism::None { delta: config.privacy.delta() };
        let scheduled = config.schedule.iter().filter_map(|change| change.clip_norm);
        config.clip = Clip::flat(UNBOUNDED * scheduled.fold(config.clip.norm, f64::max));
        for change in &mut config.schedule {
            (change.clip_norm, change.noise_multiplier) = (None, None);
        }
        config.stands_for = None;
        if let Some(devices) = &mut config.evaluation.devices {
            devices.noise_multiplier = None;
        }
        match &mut config.aggregation {
            Aggregation::Secagg(Some(secagg)) => secagg.noise = NoisePlace::Central,
            // The grid is a part of the norm: it stays as fine as it was, as far as it can.
            Aggregation::Plain => {
                let bits = config.privacy.grid_bits.unwrap_or(GRID_BITS).saturating_add(UNBOUNDED_BITS);
                config.privacy.grid_bits = Some(bits.min(MOST_GRID_BITS));
            }
            Aggregation::Secagg(None) => {}
        }
        config
    }

    /// Refuses settings that cannot be trained, before anything is.
    ///
    /// # Errors
    /// The first key that is wrong.
    pub fn check(&self, config: &Config) -> Result<(), StudyError> {
        let opened = self.open(config)?;
        Plan::new(config.clone(), &opened.setting()).map_err(RunError::from)?;
        Ok(())
    }

    /// Opens what settings name.
    ///
    /// # Errors
    /// When something is missing, or no language model is trained.
    pub fn open(&self, config: &Config) -> Result<Opened, StudyError> {
        let opened = Opened::new(config)?;
        if opened.learner().recurrent().is_none() {
            return Err(StudyError::NotALanguageModel);
        }
        Ok(opened)
    }

    /// Trains a model in a folder of this name.
    ///
    /// # Errors
    /// When the run fails, or somebody wants to stop.
    pub fn train(&self, name: &str, config: &Config, changes: Changes) -> Result<Subject, StudyError> {
        (self.says)(name);
        let opened = self.open(config)?.with_changes(changes);
        let plan = Plan::new(config.clone(), &opened.setting()).map_err(RunError::from)?;
        let folder = self.folder.join(name);
        let course = Course { plan: &plan, opened: &opened, folder: &folder, way: Way::Begin, after: After::Close };
        let seen = Mutex::default();
        match self.drive(&course, &seen)? {
            Driven::Stopped { .. } => Err(StudyError::Stopped),
            Driven::Over(ending) => {
                let model = parameters(&folder)?;
                let Ending { price, delta, audit, .. } = *ending;
                let took_part = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
                Ok(Subject { model, epsilon: price.epsilon, delta, audit, took_part })
            }
        }
    }

    /// A run in this process, to its end; who is trained is noted.
    fn drive(&self, course: &Course<'_>, seen: &Mutex<BTreeSet<u64>>) -> Result<Driven, RunError> {
        let Course { plan, opened, folder, .. } = *course;
        let population = opened.population(plan.ledger.unit)?;
        let means = course.means(self.means)?;
        let engine = engine::of(&plan.local, opened.learner(), means).map_err(RunError::from)?;
        let means = means.settled_by(&*engine);
        let watched = Box::new(Watched { engine, seen });
        let mut fleet = fleet::of(plan, population.as_ref(), watched, RunFolder::at(folder).secrets());
        course.drive(means, &mut fleet, self.stop, &mut Silent)
    }

    /// A trained model as one that can be asked.
    ///
    /// # Errors
    /// When the parameters are not those of the model.
    pub fn ask(&self, shape: &ModelConfig, subject: &Subject) -> Result<Box<dyn LanguageModel>, StudyError> {
        let weights = Weights::Recurrent { config: shape.clone(), values: subject.model.clone() };
        Ok(weights.into_model(self.means.kernels)?)
    }
}

/// The parameters of a finished run.
fn parameters(folder: &Path) -> Result<Vec<f32>, StudyError> {
    match model_folder::read(&model_in(folder)).map_err(RunError::from)?.weights {
        Weights::Recurrent { values, .. } => Ok(values),
        Weights::Learned(_) | Weights::Ngrams(_) => Err(StudyError::NotALanguageModel),
    }
}

/// An engine, and whom it trains. All who are asked count, also where nothing comes of it: nobody who is in a model is left out.
struct Watched<'a> {
    engine: Box<dyn Engine + 'a>,
    seen: &'a Mutex<BTreeSet<u64>>,
}

impl Watched<'_> {
    fn note(&self, task: &Task<'_>, users: &Users<'_>) {
        // Who measures a model is not in it.
        if task.evaluation.is_none() {
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).extend(users.numbers);
        }
    }
}

impl<'a> Around for Watched<'a> {
    type Inner = dyn Engine + 'a;

    fn inner(&self) -> &(dyn Engine + 'a) {
        &*self.engine
    }

    fn inner_mut(&mut self) -> &mut (dyn Engine + 'a) {
        &mut *self.engine
    }

    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        self.note(task, users);
        self.engine.sum(task, users)
    }

    fn each(&mut self) -> Option<&mut dyn PerUser> {
        self.engine.each()
    }

    fn sum_securely(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        self.note(task, users);
        self.engine.sum_securely(task, users, secure)
    }
}

/// Shows nothing.
struct Silent;

impl Observer for Silent {
    type Error = RunError;

    fn begins(&mut self, _: &Run<'_>, _: Way<'_>) -> Result<(), RunError> {
        Ok(())
    }

    fn warns(&mut self, _: &str) {}

    fn stepped(&mut self, _: &Run<'_>, _: Option<&Metrics>) -> Result<(), RunError> {
        Ok(())
    }

    fn rests(&mut self) -> Result<(), RunError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lm::kernels::KernelPath;

    use super::*;
    use crate::contract::{self, Reference, Trial};

    /// Around the engine of a run it is that engine, and everybody who is asked is noted.
    #[test]
    fn engines_that_are_watched_keep_the_contract() {
        let means = Means::threads(KernelPath::best(), 3);
        for trial in &Trial::all() {
            let (plan, seen) = (&Trial::plans()[1], Mutex::default());
            let inner = engine::of(plan, trial.learner(), means).unwrap();
            let mut watched = Watched { engine: inner, seen: &seen };
            contract::engine(trial, &mut watched, plan, Reference::SameBits(means.kernels));
            assert!(
                Engine::each(&mut watched).is_some(),
                "parts are given by themselves where the engine inside gives them"
            );
            drop(watched);
            assert!(seen.into_inner().unwrap().len() >= 9, "the whole cohort was asked");
        }
    }
}
