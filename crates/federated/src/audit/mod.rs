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

use std::path::{Path, PathBuf};

use device::learner::LearnerError;
use lm::{
    folder::Weights,
    language_model::LanguageModel,
    model::{config::ModelConfig, fast::NetworkError},
};
use privacy::{Epsilon, audit::AuditError};
use thiserror::Error;

use crate::{
    canaries::Shown,
    config::{Config, Mechanism},
    engine::Means,
    fleet::Stop,
    home::model_in,
    metrics::Metrics,
    model_folder,
    plan::Plan,
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

/// Trains models for an attack.
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
}

impl Lab<'_> {
    /// The settings without privacy: no noise, and a bound that no update reaches.
    #[must_use]
    pub fn without_privacy(&self) -> Config {
        let mut config = self.config.clone();
        config.privacy.mechanism = Mechanism::None { delta: config.privacy.delta() };
        config.clip.norm *= 1000.0;
        config
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
        match course.drive_alone(self.means, self.stop, &mut Silent)? {
            Driven::Stopped { .. } => Err(StudyError::Stopped),
            Driven::Over(ending) => {
                let model = parameters(&folder)?;
                let Ending { price, delta, audit, .. } = *ending;
                Ok(Subject { model, epsilon: price.epsilon, delta, audit })
            }
        }
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
