//! Local training on a user's text: the updates of DP-FedAvg and DP-FedSGD (McMahan et al. 2018, Algorithm 1).
//!
//! FedAvg takes a step of SGD for every batch, for some epochs. FedSGD takes one step along the gradient of one batch, or of
//! all batches, at the model as it came. Greedy clipping brings the difference to the start back within the bound after
//! every step; the penalty pulls it towards zero, which the paper found not to help. A model that is fine-tuned can be kept from
//! forgetting ([`crate::finetune`]).

use lm::kernels::KernelPath;
use privacy::stages::{ClipRule, ClipRuleError, project};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    finetune::{FineTune, LEAST_LAMBDA, Rehearsal},
    learner::{Learner, LearnerError, Trainer, examples::Examples},
};

/// The local algorithm: how many steps a user takes before the update is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Algorithm {
    /// A step for every batch.
    FedAvg {
        /// E: how often all batches are read.
        epochs: u32,
    },
    /// One step along the gradient of one batch, which is drawn.
    FedSgdBatch,
    /// One step along the gradient of all the user's text.
    FedSgdAll,
}

/// The plan of local training, the same for all users. Public.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalPlan {
    /// How much is learned from.
    pub algorithm: Algorithm,
    /// B: sequences in a batch.
    pub batch: usize,
    /// Tokens of a sequence in a batch.
    pub unroll: usize,
    /// Tokens, or other examples, of a user that are read; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_tokens: Option<usize>,
    /// Whether the difference is brought within the clip after every step.
    #[serde(default)]
    pub greedy: bool,
    /// The weight of the squared norm of the difference in the loss.
    #[serde(default)]
    pub update_penalty: f32,
    /// How the device keeps from forgetting; plain training by default. A device that does not know of it cannot read such a
    /// plan, and takes no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finetune: Option<FineTune>,
}

/// A number without meaning.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{field} must be {range}, got {got}")]
pub struct LocalPlanError {
    /// The field's name.
    pub field: &'static str,
    /// The allowed range.
    pub range: &'static str,
    /// The refused value.
    pub got: f64,
}

impl LocalPlan {
    /// Refuses numbers without meaning.
    ///
    /// # Errors
    /// The first of them.
    pub fn check(&self) -> Result<(), LocalPlanError> {
        let epochs = if let Algorithm::FedAvg { epochs } = self.algorithm { epochs as usize } else { 1 };
        let counts = [("batch", self.batch), ("unroll", self.unroll), ("epochs", epochs)];
        for (field, got) in counts.into_iter().chain(self.most_tokens.map(|n| ("most_tokens", n))) {
            if got == 0 || got > 1 << 24 {
                return Err(LocalPlanError { field, range: "from 1 to 2^24", got: got as f64 });
            }
        }
        if !(self.update_penalty.is_finite() && self.update_penalty >= 0.0) {
            let got = f64::from(self.update_penalty);
            return Err(LocalPlanError { field: "update_penalty", range: "finite and at least 0", got });
        }
        // One step from the model has nothing to bring back between steps, and starts where the penalty is zero: what would be ignored
        // here and done elsewhere is refused, or a clip bit would say different things of one user.
        if !matches!(self.algorithm, Algorithm::FedAvg { .. }) {
            let both = [("greedy", f64::from(u8::from(self.greedy))), ("update_penalty", self.update_penalty.into())];
            if let Some((field, got)) = both.into_iter().find(|(_, got)| *got != 0.0) {
                return Err(LocalPlanError { field, range: "left out with FedSGD, which takes one step", got });
            }
        }
        self.finetune.as_ref().map_or(Ok(()), |finetune| self.check_finetune(finetune))
    }

    fn check_finetune(&self, finetune: &FineTune) -> Result<(), LocalPlanError> {
        let lambda = finetune.lambda();
        if !(LEAST_LAMBDA..1.0).contains(&lambda) {
            return Err(LocalPlanError { field: "lambda", range: "at least 0.01 and below 1", got: lambda.into() });
        }
        if !matches!(self.algorithm, Algorithm::FedAvg { .. }) {
            let range = "left out with FedSGD, which takes a single step";
            return Err(LocalPlanError { field: "finetune", range, got: lambda.into() });
        }
        match finetune {
            FineTune::Rehearsal { general, .. } if general.posts().is_empty() => Err(LocalPlanError {
                field: "general_tokens",
                range: "at least 1: there is nothing to rehearse",
                got: 0.0,
            }),
            FineTune::Rehearsal { .. } | FineTune::SoftLabels { .. } => Ok(()),
        }
    }
}

/// Refuses a step without meaning.
///
/// # Errors
/// When it is not a number above 0.
pub fn check_learning_rate(rate: f32) -> Result<(), LocalPlanError> {
    if rate.is_finite() && rate > 0.0 {
        return Ok(());
    }
    Err(LocalPlanError { field: "learning_rate", range: "finite and above 0", got: f64::from(rate) })
}

/// Why a user could not be trained.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum LocalError {
    /// The model cannot be trained here.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// The plan has no meaning.
    #[error(transparent)]
    Plan(#[from] LocalPlanError),
    /// The clip is not one of this model.
    #[error(transparent)]
    Clip(#[from] ClipRuleError),
}

/// The result of local training. Its numbers stay on the device, except in simulations, which print them as not private.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// What changed; not finite where training diverged, which clipping makes zero.
    pub difference: Vec<f32>,
    /// Whether greedy clipping had to move anything.
    pub projected: bool,
    /// The user's examples that were learned from; general text does not count.
    pub examples: usize,
    /// Their summed loss in the first reading. With rehearsal, as many times the mean loss over all that was read.
    pub loss: f64,
}

/// Trains one user after another, in memory that is made once.
pub struct LocalTrainer {
    plan: LocalPlan,
    trainer: Box<dyn Trainer>,
    rehearsal: Option<Rehearsal>,
}

impl LocalTrainer {
    /// A trainer for users of this plan.
    ///
    /// # Errors
    /// When plan or model cannot be carried out.
    pub fn new(learner: &dyn Learner, plan: LocalPlan, kernels: KernelPath) -> Result<Self, LocalError> {
        plan.check()?;
        if plan.finetune.is_some() && !learner.finetunes() {
            return Err(LearnerError::NotFineTuned { learner: learner.name() }.into());
        }
        let (trainer, rehearsal) = match &plan.finetune {
            None => (learner.trainer(kernels)?, None),
            Some(FineTune::Rehearsal { lambda, general }) => {
                (learner.trainer(kernels)?, Some(Rehearsal::new(learner, *lambda, general)))
            }
            Some(FineTune::SoftLabels { lambda }) => (learner.soft_trainer(kernels, *lambda)?, None),
        };
        Ok(Self { plan, trainer, rehearsal })
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &LocalPlan {
        &self.plan
    }

    /// Reads text so often from now on, where the plan takes a step for every batch; what takes one step in all reads it once.
    ///
    /// # Errors
    /// When that number has no meaning.
    pub fn read_times(&mut self, times: u32) -> Result<(), LocalPlanError> {
        if let Algorithm::FedAvg { epochs } = &mut self.plan.algorithm {
            *epochs = times;
        }
        self.plan.check()
    }

    /// Trains a model on the user's examples. `drawn` decides which batch FedSGD takes, and which general text is rehearsed.
    ///
    /// # Errors
    /// When the clip is not one of this model, or the learning rate no number above 0.
    ///
    /// # Panics
    /// When the parameters are not those of the model.
    pub fn train(
        &mut self,
        model: &[f32],
        examples: &Examples,
        clip: &ClipRule,
        rate: f32,
        drawn: u64,
    ) -> Result<Learned, LocalError> {
        check_learning_rate(rate)?;
        let Self { plan, trainer, rehearsal } = self;
        // A user who typed nothing rehearses nothing: their update is zero.
        let mixed = rehearsal.as_ref().filter(|_| !examples.is_empty()).map(|r| r.mix(examples, drawn));
        let read = mixed.as_ref().unwrap_or(examples);
        let batches = trainer.cut(read);
        let mut user = User { plan, rate, trainer: trainer.as_mut(), model, clip, batches, projected: false };
        let mut difference = vec![0.0; model.len()];
        let mut loss = 0.0;
        match plan.algorithm {
            Algorithm::FedAvg { epochs } => {
                user.trainer.load(model);
                for epoch in 0..epochs {
                    let read = user.epoch(&mut difference)?;
                    loss = if epoch == 0 { read } else { loss };
                }
                user.difference(&mut difference);
            }
            Algorithm::FedSgdAll => loss = user.gradient(0..batches, &mut difference),
            Algorithm::FedSgdBatch if batches == 0 => {}
            Algorithm::FedSgdBatch => {
                let one = (drawn % batches as u64) as usize;
                loss = user.gradient(one..one + 1, &mut difference);
            }
        }
        let projected = user.projected;
        if mixed.is_some() {
            loss *= examples.len() as f64 / read.len() as f64;
        }
        Ok(Learned { difference, projected, examples: examples.len(), loss })
    }
}

/// One user's training.
struct User<'a> {
    plan: &'a LocalPlan,
    rate: f32,
    trainer: &'a mut dyn Trainer,
    model: &'a [f32],
    clip: &'a ClipRule,
    batches: usize,
    projected: bool,
}

impl User<'_> {
    /// One reading, with a step for every batch.
    fn epoch(&mut self, spare: &mut [f32]) -> Result<f64, LocalError> {
        let mut loss = 0.0;
        let mut before = vec![0.0; if self.plan.update_penalty > 0.0 { self.model.len() } else { 0 }];
        self.trainer.begin();
        for batch in 0..self.batches {
            if self.plan.update_penalty > 0.0 {
                self.difference(&mut before);
            }
            loss += self.trainer.step(batch, self.rate).loss;
            if self.plan.update_penalty > 0.0 {
                let pull = 2.0 * self.rate * self.plan.update_penalty;
                self.difference(spare);
                spare.iter_mut().zip(&before).for_each(|(d, b)| *d -= pull * b);
                self.put_back(spare);
            }
            if self.plan.greedy {
                self.difference(spare);
                if project(spare, self.clip)? {
                    self.projected = true;
                    self.put_back(spare);
                }
            }
        }
        Ok(loss)
    }

    /// One step along the mean gradient of some batches at the model as it came, what is carried taken through them.
    fn gradient(&mut self, batches: std::ops::Range<usize>, difference: &mut [f32]) -> f64 {
        let counted: usize = batches.clone().map(|batch| self.trainer.counted(batch)).sum();
        let mut now = vec![0.0; self.model.len()];
        let mut loss = 0.0;
        self.trainer.load(self.model);
        for batch in batches {
            let share = self.trainer.counted(batch) as f32 / counted.max(1) as f32;
            loss += self.trainer.step(batch, self.rate * share).loss;
            self.trainer.store(&mut now);
            let moved = now.iter().zip(self.model).map(|(n, m)| n - m);
            difference.iter_mut().zip(moved).for_each(|(d, moved)| *d += moved);
            self.trainer.replace(self.model);
        }
        loss
    }

    fn difference(&mut self, to: &mut [f32]) {
        self.trainer.store(to);
        to.iter_mut().zip(self.model).for_each(|(t, m)| *t -= m);
    }

    /// The model is the start plus this; what is carried stays.
    fn put_back(&mut self, difference: &mut [f32]) {
        difference.iter_mut().zip(self.model).for_each(|(d, m)| *d += m);
        self.trainer.replace(difference);
    }
}
