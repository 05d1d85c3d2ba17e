//! Who learns public text: one model, batch after batch, without federation.
//!
//! The loop over a text, its epochs and its checkpoints are those of `pretraining`; here is what it asks for. What is carried from
//! batch to batch, and which units a step leaves out, is the same for every trainer: a run can be stopped with one and go on with
//! another, though not to the same bits.

use lm::model::{batch::Batch, config::ModelConfig, dropout::MaskDrawer, fast, reference::Masks};

use super::{EngineError, Means};

/// What is trained, in batches of which shape.
#[derive(Debug, Clone, Copy)]
pub struct Central<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// Sequences of a batch, at most.
    pub rows: usize,
    /// Tokens of a sequence in a batch, at most.
    pub unroll: usize,
    /// Seed of dropout.
    pub seed: u64,
}

/// Learns batch after batch.
pub trait CentralTrainer {
    /// How many batches are best given at a time.
    fn at_a_time(&self) -> usize;

    /// Takes these parameters, and forgets what was read.
    ///
    /// # Errors
    /// When it broke down.
    fn load(&mut self, parameters: &[f32]) -> Result<(), EngineError>;

    /// Writes the parameters as they are now.
    ///
    /// # Errors
    /// When it broke down.
    fn store(&mut self, parameters: &mut [f32]) -> Result<(), EngineError>;

    /// Forgets what was read: the next batch begins anew.
    fn forget(&mut self);

    /// How many numbers the state has.
    fn state_len(&self) -> usize;

    /// What the next batch would find: for each layer the cells and what was shown, `[row][unit]`.
    ///
    /// # Errors
    /// When it broke down.
    fn state(&mut self) -> Result<Vec<f32>, EngineError>;

    /// Takes what [`Self::state`] gave, as if what was read before had been read here.
    ///
    /// # Errors
    /// When it broke down.
    fn set_state(&mut self, state: &[f32]) -> Result<(), EngineError>;

    /// A step of SGD on each of these batches, one after the other; the first is step `number` of the run, by which it leaves out
    /// units. A batch with fewer tokens of its sequences than the others ends a reading: before the next one everything is
    /// forgotten. Returns the summed loss.
    ///
    /// # Errors
    /// When it broke down.
    fn learn(&mut self, batches: &[Batch<'_>], learning_rate: f32, number: u64) -> Result<f64, EngineError>;

    /// Reads batches and returns their summed loss; nothing is learned and no unit is left out.
    ///
    /// # Errors
    /// When it broke down.
    fn measure(&mut self, batches: &[Batch<'_>]) -> Result<f64, EngineError>;
}

/// Makes a trainer.
pub type MakeCentral = fn(Central<'_>, Means) -> Result<Box<dyn CentralTrainer>, EngineError>;

/// The trainer of a model, by the means that there are.
///
/// # Errors
/// When the model cannot be trained by these means.
pub fn trainer(central: Central<'_>, means: Means) -> Result<Box<dyn CentralTrainer>, EngineError> {
    (means.engine.central)(central, means)
}

/// A thread of this process.
pub struct OnThread {
    trainer: fast::Trainer,
    drawer: Option<MaskDrawer>,
    masks: Masks,
}

impl OnThread {
    /// A thread for a model.
    ///
    /// # Errors
    /// When this machine cannot train it.
    pub fn new(central: Central<'_>, means: Means) -> Result<Self, EngineError> {
        let Central { config, rows, unroll, seed } = central;
        let trainer = fast::Trainer::new(config, rows, unroll, means.kernels)?;
        Ok(Self { trainer, drawer: MaskDrawer::new(config, seed), masks: Masks::new() })
    }
}

impl CentralTrainer for OnThread {
    fn at_a_time(&self) -> usize {
        1
    }

    fn load(&mut self, parameters: &[f32]) -> Result<(), EngineError> {
        self.trainer.load(parameters);
        Ok(())
    }

    fn store(&mut self, parameters: &mut [f32]) -> Result<(), EngineError> {
        self.trainer.store(parameters);
        Ok(())
    }

    fn forget(&mut self) {
        self.trainer.forget();
    }

    fn state_len(&self) -> usize {
        self.trainer.state_len()
    }

    fn state(&mut self) -> Result<Vec<f32>, EngineError> {
        Ok(self.trainer.state())
    }

    fn set_state(&mut self, state: &[f32]) -> Result<(), EngineError> {
        self.trainer.set_state(state);
        Ok(())
    }

    fn learn(&mut self, batches: &[Batch<'_>], learning_rate: f32, number: u64) -> Result<f64, EngineError> {
        let Self { trainer, drawer, masks } = self;
        let step = |(batch, number): (&Batch<'_>, u64)| {
            if let Some(drawer) = drawer.as_mut() {
                drawer.go_to(number);
                drawer.draw(batch.rows, batch.steps(), masks);
            }
            f64::from(trainer.step_without(batch, learning_rate, drawer.is_some().then_some(&*masks)))
        };
        Ok(batches.iter().zip(number..).map(step).sum())
    }

    fn measure(&mut self, batches: &[Batch<'_>]) -> Result<f64, EngineError> {
        Ok(batches.iter().map(|batch| f64::from(self.trainer.loss(batch))).sum())
    }
}
