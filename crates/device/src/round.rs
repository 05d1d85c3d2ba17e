//! One user's contribution to a round (train, weight, clip, encode: steps 2 to 4 of the data flow) or to an evaluation (predict, count,
//! clip, encode).

use lm::{kernels::KernelPath, metrics::Counts};
use privacy::{
    encoding::{Encoding, EncodingError},
    rng::RandomWords,
    stages::{ClipRuleError, Clipped, Clipping, Contribution, Encoded, Update},
};
use thiserror::Error;

use crate::{
    evaluation::{Counting, EvaluationPlan, count},
    learner::{Learner, LearnerError, examples::Examples},
    local::{LocalError, LocalPlan, LocalTrainer},
    upload::{Rest, Upload},
};

/// The task of a round, the same for every user.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    /// The model as it is.
    pub model: &'a [f32],
    /// How updates are bounded, and what the clip bit compares with.
    pub clipping: &'a Clipping,
    /// How they become integers.
    pub encoding: &'a Encoding,
    /// w_hat: a user with at least so many examples has weight 1, one with fewer a share of it; none for weight 1 for all.
    pub full_weight_tokens: Option<f64>,
    /// The step of local training, which may change from round to round.
    pub learning_rate: f32,
    /// How often the text is read, where that changes from round to round.
    pub epochs: Option<u32>,
    /// What of an update leaves.
    pub upload: Upload<'a>,
    /// Where the model is measured instead of trained: how much of each user's text.
    pub evaluation: Option<EvaluationPlan>,
}

/// The randomness of a user's contribution, derived from the run's key by round and user.
pub struct Drawn {
    /// Random words for rounding.
    pub rounding: RandomWords,
    /// Which batch FedSGD takes.
    pub batch: u64,
}

/// A user's contribution: what is sent, and what only a simulation may see.
#[derive(Debug)]
pub struct Part {
    /// The encoded update, which is sent.
    pub encoded: Encoded,
    /// Exact values, which must not leave the device.
    pub exact: Exact,
    /// What the user keeps for later rounds, where something is kept.
    pub rest: Option<Rest>,
}

/// Numbers that depend on one user's text alone: for diagnostics of simulations, which say that they are not private.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exact {
    /// Tokens, or other examples, that were learned from.
    pub tokens: usize,
    /// Their summed loss before learning from them.
    pub loss: f64,
    /// The norm of the update before clipping; not a number where training diverged.
    pub norm: f64,
}

/// Why a user has no part.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PartError {
    /// Training failed.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The clip does not fit.
    #[error(transparent)]
    Clip(#[from] ClipRuleError),
    /// The update does not fit the encoding.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// The model cannot predict the text.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// The learner has no set of counts for devices.
    #[error("devices cannot evaluate a model of {learner:?}, or not on this much text")]
    NotCounted {
        /// The learner.
        learner: &'static str,
    },
}

/// One user's part of an evaluation. A user who typed nothing has a part that is zero.
///
/// # Errors
/// When task, plan and model do not fit together.
pub fn measured(
    task: Task<'_>,
    plan: EvaluationPlan,
    learner: &dyn Learner,
    examples: &Examples,
    kernels: KernelPath,
    drawn: Drawn,
) -> Result<Part, PartError> {
    let counts = count(learner, task.model, examples, kernels)?;
    counted(task, plan, learner, examples.len(), &counts, drawn)
}

/// The same of what was counted elsewhere, over so many examples of the user.
///
/// # Errors
/// When task and plan do not fit together.
pub fn counted(
    task: Task<'_>,
    plan: EvaluationPlan,
    learner: &dyn Learner,
    examples: usize,
    counts: &Counts,
    mut drawn: Drawn,
) -> Result<Part, PartError> {
    let counting = Counting::new(learner, plan).ok_or(PartError::NotCounted { learner: learner.name() })?;
    let vector = counting.vector(counts);
    let clipped = match examples {
        0 => Clipped::nothing(task.clipping, vector.len()),
        _ => Update::new(vector).clip(task.clipping, Contribution::default())?,
    };
    let exact = Exact { tokens: examples, loss: f64::NAN, norm: clipped.norm_before() };
    Ok(Part { encoded: clipped.encode(task.encoding, &mut drawn.rounding)?, exact, rest: None })
}

/// Does users' parts of rounds, one after the other.
pub struct Worker {
    trainer: LocalTrainer,
}

impl Worker {
    /// A worker for users of a plan.
    ///
    /// # Errors
    /// When plan or model cannot be carried out.
    pub fn new(learner: &dyn Learner, plan: LocalPlan, kernels: KernelPath) -> Result<Self, LocalError> {
        Ok(Self { trainer: LocalTrainer::new(learner, plan, kernels)? })
    }

    /// One user's part. A user who typed nothing, or whose training diverged, has a part that is zero, clip bit included.
    ///
    /// # Errors
    /// When task, plan and model do not fit together.
    pub fn part(&mut self, task: Task<'_>, examples: &Examples, drawn: Drawn) -> Result<Part, PartError> {
        self.part_after(task, examples, drawn, None)
    }

    /// The same of a user who has kept something of earlier rounds. What leaves is chosen first, then clipped, then encoded.
    ///
    /// # Errors
    /// When task, plan and model do not fit together.
    pub fn part_after(
        &mut self,
        task: Task<'_>,
        examples: &Examples,
        mut drawn: Drawn,
        before: Option<&Rest>,
    ) -> Result<Part, PartError> {
        if let Some(epochs) = task.epochs {
            self.trainer.read_times(epochs).map_err(LocalError::from)?;
        }
        let learned =
            self.trainer.train(task.model, examples, task.clipping.rule(), task.learning_rate, drawn.batch)?;
        let weight = task.full_weight_tokens.map_or(1.0, |full| (learned.examples as f64 / full).min(1.0));
        let said = Contribution { weight, projected: learned.projected, counts: Vec::new() };
        let (clipped, rest) = match learned.examples {
            0 => {
                let length = task.upload.length(learned.difference.len());
                (Clipped::nothing(task.clipping, length), before.cloned())
            }
            _ => {
                let (sent, rest) = task.upload.divide(learned.difference, before);
                (Update::new(sent).clip(task.clipping, said)?, rest)
            }
        };
        let exact = Exact { tokens: learned.examples, loss: learned.loss, norm: clipped.norm_before() };
        Ok(Part { encoded: clipped.encode(task.encoding, &mut drawn.rounding)?, exact, rest })
    }
}
