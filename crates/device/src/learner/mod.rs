//! Learners: a model, how it reads examples, and one step of SGD on it.
//!
//! Everything that the papers say of users (FedAvg, FedSGD, greedy clipping, penalties, weights, clipping) is written once, in
//! [`crate::local`] and [`crate::round`], over these traits; everything that the server does is written over the flat vector.
//! So a learner is one file: its shapes, how a post becomes examples, a step, and what is counted when it is measured. A virtual
//! call a batch costs nothing beside the batch.
//!
//! | module       | what it learns                                                                     |
//! |--------------|------------------------------------------------------------------------------------|
//! | [`language`] | the next word: the recurrent models of the papers                                  |
//! | [`tags`]     | the tags of a post from its words: logistic regression (Andrew et al. 2021, SO-LR) |
//! | [`examples`] | what somebody's data is to a learner                                               |
//! | [`told`]     | what devices are told of a learner                                                 |

pub mod examples;
pub mod language;
pub mod tags;
pub mod told;

use lm::{
    kernels::KernelPath,
    metrics::{Counts, MetricsError},
    model::{
        config::{ConfigError, ModelConfig},
        fast::{NetworkError, TrainerError},
    },
};
use privacy::workers::{Undone, Workers};
use thiserror::Error;

use self::{
    examples::{Examples, Schema},
    told::LearnerTerms,
};

/// One part of a model: a matrix, or a row, of the flat vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name, as in files.
    pub name: String,
    /// Rows; 1 for a bias.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
}

impl Part {
    /// How many numbers it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The layout of a model's parameters in its flat vector: named parts, in an order that never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout(Vec<Part>);

impl Layout {
    /// A layout of these parts, in this order.
    #[must_use]
    pub const fn new(parts: Vec<Part>) -> Self {
        Self(parts)
    }

    /// The parts.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The length of the flat vector.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Part::len).sum()
    }

    /// Whether there are no parameters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A post, as ids.
#[derive(Debug, Clone, Copy, Default)]
pub struct Post<'a> {
    /// Its words or characters, without BOS and EOS.
    pub ids: &'a [u32],
    /// Its labels; none where the data has none.
    pub labels: &'a [u32],
}

/// Why a learner cannot do what is asked.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum LearnerError {
    /// The model cannot be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The model cannot be trained here.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// The model cannot predict here.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The examples are not for this model.
    #[error(transparent)]
    Examples(#[from] MetricsError),
    /// A learner that cannot be fine-tuned without forgetting.
    #[error("models of {learner:?} cannot be trained with general text or soft labels; leave out [finetune]")]
    NotFineTuned {
        /// Its name.
        learner: &'static str,
    },
    /// Another vector than the model's.
    #[error("expected {wanted} parameters, got {got}")]
    Parameters {
        /// The number of parameters of the model.
        wanted: usize,
        /// The number of parameters given.
        got: usize,
    },
    /// Ids that the model does not know.
    #[error("example {example} has {what} {id}, but the model has only {known}")]
    Id {
        /// The index of the example, from 0.
        example: usize,
        /// The kind of id.
        what: &'static str,
        /// The id.
        id: u32,
        /// Ids below this are known.
        known: usize,
    },
}

/// A model and how it learns. Used as `&dyn Learner`, from many threads.
pub trait Learner: Send + Sync {
    /// Its name, as settings have it.
    fn name(&self) -> &'static str;

    /// How its parameters lie.
    fn layout(&self) -> &Layout;

    /// What its examples are made of.
    fn schema(&self) -> &Schema;

    /// What is measured of its models, by the name of the set in the registry of metrics (`federated::metrics::Measures`).
    fn measures(&self) -> &'static str;

    /// Whether it learns the labels of posts, so that their names become a part of the model.
    fn learns_labels(&self) -> bool {
        false
    }

    /// The parameters before anything is learned.
    ///
    /// # Errors
    /// When the model cannot be built.
    fn initial(&self, seed: u64) -> Result<Vec<f32>, LearnerError>;

    /// Adds what a post gives to learn from.
    fn read(&self, post: Post<'_>, into: &mut Examples);

    /// What a thread trains with; a learner without kernels of its own does not look at them.
    ///
    /// # Errors
    /// When the model cannot be trained here.
    fn trainer(&self, kernels: KernelPath) -> Result<Box<dyn Trainer>, LearnerError>;

    /// Whether it can be fine-tuned without forgetting ([`crate::finetune`]): posts need no labels, and there are soft ones.
    fn finetunes(&self) -> bool {
        false
    }

    /// What a thread trains with where what the model predicts as it was loaded counts too (learning without forgetting): a trainer whose
    /// steps are towards the targets, with the share `lambda`, and towards that.
    ///
    /// # Errors
    /// When there are no soft labels for it, or the model cannot be trained here.
    fn soft_trainer(&self, _kernels: KernelPath, _lambda: f32) -> Result<Box<dyn Trainer>, LearnerError> {
        Err(LearnerError::NotFineTuned { learner: self.name() })
    }

    /// What is measured: a model, on the examples of people who are held out.
    ///
    /// # Errors
    /// When the parameters are not those of the model, or the examples not for it.
    fn predictor<'a>(
        &'a self,
        model: &[f32],
        held_out: &'a [Examples],
        kernels: KernelPath,
    ) -> Result<Box<dyn Predictor + 'a>, LearnerError>;

    /// Applied after every change of the parameters, by the server after every round: restores unit norms, if the model has them.
    fn after_step(&self, _model: &mut [f32]) {}

    /// The same by workers, where it falls into pieces.
    ///
    /// # Errors
    /// When they left something out: the model is worthless.
    fn after_step_by(&self, model: &mut [f32], _workers: &dyn Workers) -> Result<(), Undone> {
        self.after_step(model);
        Ok(())
    }

    /// Among how many outcomes a prediction chooses: guessing one costs the logarithm of that, which scales losses that devices count.
    fn outcomes(&self) -> usize;

    /// The recurrent model that it is, where it is one: what a fleet of a GPU can batch over users.
    fn recurrent(&self) -> Option<&ModelConfig> {
        None
    }

    /// What devices are told of it, so that they can make it; none where it can only be simulated.
    fn told(&self) -> Option<LearnerTerms> {
        None
    }

    /// How much memory it needs.
    fn memory(&self) -> Memory;

    /// What its files must say of the model besides its parameters.
    fn settings(&self) -> serde_json::Value;
}

/// Bytes that a learner works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Of a trainer; there is one per thread.
    pub trainer: u64,
    /// Of a predictor, which all threads share.
    pub predictor: u64,
    /// Of one piece that a thread counts over.
    pub piece: u64,
}

/// The loss of a step of SGD, before its update.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Seen {
    /// The summed loss.
    pub loss: f64,
}

/// A model that learns, with the memory that it needs. One per thread.
pub trait Trainer: Send {
    /// Takes a model, and forgets what it carries from batch to batch.
    fn load(&mut self, model: &[f32]);

    /// Takes a model, and keeps what it carries: greedy clipping, penalties and gradients at a fixed model move the model
    /// between two batches of one reading.
    fn replace(&mut self, model: &[f32]);

    /// Writes the model as it is now.
    fn store(&mut self, to: &mut [f32]);

    /// Cuts somebody's examples into batches, and says into how many. The next calls are about these.
    fn cut(&mut self, user: &Examples) -> usize;

    /// Starts a new reading: the carried state is cleared.
    fn begin(&mut self) {}

    /// How many examples of a batch are learned from.
    fn counted(&mut self, batch: usize) -> usize;

    /// One step of SGD on a batch: the mean loss over its examples goes down.
    fn step(&mut self, batch: usize, rate: f32) -> Seen;
}

/// A model that is measured. It is packed once and shared by all threads, and examples of many people are read side by side:
/// that is why it is not a [`Trainer`].
pub trait Predictor: Sync {
    /// Into how many pieces the work is cut; that depends on the examples alone and never on threads.
    fn pieces(&self) -> usize;

    /// Counts over one piece. Counts add up to the same in any order.
    ///
    /// # Errors
    /// When the examples are not for this model.
    fn count(&self, piece: usize) -> Result<Counts, LearnerError>;
}
