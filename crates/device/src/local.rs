//! What a user does with the model: DP-FedAvg's and DP-FedSGD's local updates (McMahan et al. 2018, Algorithm 1).
//!
//! FedAvg takes a step of SGD for every batch, for some epochs. FedSGD takes one step along the gradient of one batch, or of
//! all batches, at the model as it came. Greedy clipping brings the difference to the start back within the bound after
//! every step; the penalty pulls it towards zero, which the paper found not to help.

use lm::{
    kernels::KernelPath,
    model::{
        batch::Batch,
        config::ModelConfig,
        fast::{Trainer, TrainerError},
    },
};
use privacy::stages::{ClipRule, ClipRuleError, project};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::{Cut, Room, UserText};

/// How much a user learns from before the update leaves.
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

/// What every user of a run does. Public.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalPlan {
    /// How much is learned from.
    pub algorithm: Algorithm,
    /// B: sequences in a batch.
    pub batch: usize,
    /// Tokens of a sequence in a batch.
    pub unroll: usize,
    /// Tokens of a user that are read; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_tokens: Option<usize>,
    /// Whether the difference is brought within the clip after every step.
    #[serde(default)]
    pub greedy: bool,
    /// The weight of the squared norm of the difference in the loss.
    #[serde(default)]
    pub update_penalty: f32,
}

/// A number without meaning.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{field} must be {range}, got {got}")]
pub struct LocalPlanError {
    /// Which.
    pub field: &'static str,
    /// What it may be.
    pub range: &'static str,
    /// What it is.
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
        Ok(())
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
    Trainer(#[from] TrainerError),
    /// The plan has no meaning.
    #[error(transparent)]
    Plan(#[from] LocalPlanError),
    /// The clip is not one of this model.
    #[error(transparent)]
    Clip(#[from] ClipRuleError),
}

/// What local training came to. The numbers stay where the text is, but for simulations that print them as not private.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// What changed; not finite where training ran away, which clipping makes zero.
    pub difference: Vec<f32>,
    /// Whether greedy clipping had to move anything.
    pub projected: bool,
    /// Tokens that were predicted in the first reading, and their summed loss.
    pub tokens: usize,
    /// The summed loss of that reading.
    pub loss: f64,
}

/// Trains one user after another, in memory that is made once.
#[derive(Debug)]
pub struct LocalTrainer {
    plan: LocalPlan,
    trainer: Trainer,
    room: Room,
}

impl LocalTrainer {
    /// A trainer for users of this plan.
    ///
    /// # Errors
    /// When plan or model cannot be carried out.
    pub fn new(config: &ModelConfig, plan: LocalPlan, path: KernelPath) -> Result<Self, LocalError> {
        plan.check()?;
        let trainer = Trainer::new(config, plan.batch, plan.unroll, path)?;
        Ok(Self { plan, trainer, room: Room::default() })
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &LocalPlan {
        &self.plan
    }

    /// What the user's text makes of a model. `drawn` decides which batch FedSGD takes.
    ///
    /// # Errors
    /// When the clip is not one of this model, or the learning rate no number above 0.
    ///
    /// # Panics
    /// When the parameters are not those of the model.
    pub fn train(
        &mut self,
        model: &[f32],
        text: &UserText,
        clip: &ClipRule,
        rate: f32,
        drawn: u64,
    ) -> Result<Learned, LocalError> {
        check_learning_rate(rate)?;
        let Self { plan, trainer, room } = self;
        let mut user =
            User { plan, rate, trainer, model, clip, cut: text.cut(plan.batch, plan.unroll), projected: false };
        let mut difference = vec![0.0; model.len()];
        let mut loss = 0.0;
        match plan.algorithm {
            Algorithm::FedAvg { epochs } => {
                user.trainer.load(model);
                for epoch in 0..epochs {
                    let read = user.epoch(room, &mut difference)?;
                    loss = if epoch == 0 { read } else { loss };
                }
                user.difference(&mut difference);
            }
            Algorithm::FedSgdAll => loss = user.gradient(0..user.cut.batches(), room, &mut difference),
            Algorithm::FedSgdBatch if user.cut.batches() == 0 => {}
            Algorithm::FedSgdBatch => {
                let one = (drawn % user.cut.batches() as u64) as usize;
                loss = user.gradient(one..one + 1, room, &mut difference);
            }
        }
        let projected = user.projected;
        Ok(Learned { difference, projected, tokens: text.tokens(), loss })
    }
}

/// One user's training.
struct User<'a> {
    plan: &'a LocalPlan,
    rate: f32,
    trainer: &'a mut Trainer,
    model: &'a [f32],
    clip: &'a ClipRule,
    cut: Cut<'a>,
    projected: bool,
}

impl User<'_> {
    /// One reading, with a step for every batch.
    fn epoch(&mut self, room: &mut Room, spare: &mut [f32]) -> Result<f64, LocalError> {
        let mut loss = 0.0;
        let mut before = vec![0.0; if self.plan.update_penalty > 0.0 { self.model.len() } else { 0 }];
        self.trainer.forget();
        for number in 0..self.cut.batches() {
            let batch = self.cut.batch(number, room);
            if self.plan.update_penalty > 0.0 {
                self.difference(&mut before);
            }
            loss += f64::from(self.trainer.step(&batch, self.rate));
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

    /// One step along the mean gradient of some batches at the model as it came, the state carried through them.
    fn gradient(&mut self, batches: std::ops::Range<usize>, room: &mut Room, difference: &mut [f32]) -> f64 {
        let counted: usize = batches.clone().map(|n| self.cut.batch(n, room).counted()).sum();
        let mut now = vec![0.0; self.model.len()];
        let mut loss = 0.0;
        self.trainer.load(self.model);
        for number in batches {
            let batch: Batch<'_> = self.cut.batch(number, room);
            let share = batch.counted() as f32 / counted.max(1) as f32;
            loss += f64::from(self.trainer.step(&batch, self.rate * share));
            self.trainer.store(&mut now);
            let moved = now.iter().zip(self.model).map(|(n, m)| n - m);
            difference.iter_mut().zip(moved).for_each(|(d, moved)| *d += moved);
            let state = self.trainer.state();
            self.trainer.load(self.model);
            self.trainer.set_state(&state);
        }
        loss
    }

    fn difference(&mut self, to: &mut [f32]) {
        self.trainer.store(to);
        to.iter_mut().zip(self.model).for_each(|(t, m)| *t -= m);
    }

    /// The model is the start plus this; the state stays.
    fn put_back(&mut self, difference: &mut [f32]) {
        difference.iter_mut().zip(self.model).for_each(|(d, m)| *d += m);
        let state = self.trainer.state();
        self.trainer.load(difference);
        self.trainer.set_state(&state);
    }
}
