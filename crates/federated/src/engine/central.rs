//! Central training on public text: one model, batch after batch, without federation.
//!
//! The loop over a text, its epochs and its checkpoints are those of `pretraining`; here is what it asks for. What is carried from
//! batch to batch, and which units a step leaves out, is the same for every trainer: a run can be stopped with one and go on with
//! another, though not to the same bits.

use lm::model::{
    batch::Batch,
    config::ModelConfig,
    dropout::{MaskDrawer, Masks},
    fast,
};

use super::{EngineError, Hardware, Means};

/// The task of central training: model and batch shape.
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

    /// What it computes on, where results depend on it.
    fn hardware(&self) -> Option<Hardware> {
        None
    }

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

    /// Forgets what was read: the next batch starts a new reading.
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
    /// units. A batch with fewer tokens of its sequences than the others ends a reading: the caller forgets before the next
    /// one, which trainers may insist on. Returns the summed loss.
    ///
    /// # Errors
    /// When it broke down.
    fn learn(&mut self, batches: &[Batch<'_>], learning_rate: f32, number: u64) -> Result<f64, EngineError>;

    /// Reads batches and returns their summed loss; nothing is learned and no unit is left out.
    ///
    /// # Errors
    /// When it broke down.
    fn measure(&mut self, batches: &[Batch<'_>]) -> Result<f64, EngineError>;

    /// Brings steps within a bound by itself from now on, as [`Clipped`] does from outside. Whether it does.
    ///
    /// # Errors
    /// When it broke down.
    fn clip(&mut self, _most: f32) -> Result<bool, EngineError> {
        Ok(false)
    }
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

/// The trainer, none of whose gradients counts for more than so long: by itself, or from outside.
///
/// # Errors
/// When it broke down.
pub fn clipped(
    mut trainer: Box<dyn CentralTrainer>,
    most: f32,
    parameters: usize,
) -> Result<Box<dyn CentralTrainer>, EngineError> {
    Ok(if trainer.clip(most)? { trainer } else { Box::new(Clipped::new(trainer, most, parameters)) })
}

/// A trainer whose steps are brought within a bound, so that a loss that explodes does not take the model with it.
///
/// A step of plain SGD is its gradient times the rate. So its length says that of the gradient, and a step that is cut to a share of itself
/// is that of a gradient that was: any trainer can be bounded from outside, at the cost of looking at all parameters after every step.
pub struct Clipped {
    trainer: Box<dyn CentralTrainer>,
    /// The longest gradient of a batch's mean loss.
    most: f32,
    before: Vec<f32>,
    after: Vec<f32>,
}

impl Clipped {
    /// A trainer of so many parameters, none of whose gradients counts for more than so long.
    #[must_use]
    pub fn new(trainer: Box<dyn CentralTrainer>, most: f32, parameters: usize) -> Self {
        Self { trainer, most, before: vec![0.0; parameters], after: vec![0.0; parameters] }
    }

    /// Looks at the step that was just made, and cuts it where it is too long. One that is not finite is taken back, and what was
    /// read before it is forgotten. Says whether it stayed, cut or not.
    fn bring_within(&mut self, rate: f32) -> Result<bool, EngineError> {
        self.trainer.store(&mut self.after)?;
        let squares = self.after.iter().zip(&self.before).map(|(after, before)| f64::from(after - before).powi(2));
        let (length, most) = (libm::sqrt(squares.sum::<f64>()), f64::from(self.most) * f64::from(rate));
        if length <= most {
            std::mem::swap(&mut self.before, &mut self.after);
            return Ok(true);
        }
        if !length.is_finite() {
            self.trainer.load(&self.before)?;
            return Ok(false);
        }
        let (share, state) = ((most / length) as f32, self.trainer.state()?);
        self.before.iter_mut().zip(&self.after).for_each(|(before, after)| *before += share * (after - *before));
        self.trainer.load(&self.before)?;
        self.trainer.set_state(&state)?;
        Ok(true)
    }
}

impl CentralTrainer for Clipped {
    fn at_a_time(&self) -> usize {
        1
    }

    fn hardware(&self) -> Option<Hardware> {
        self.trainer.hardware()
    }

    fn load(&mut self, parameters: &[f32]) -> Result<(), EngineError> {
        self.before.copy_from_slice(parameters);
        self.trainer.load(parameters)
    }

    fn store(&mut self, parameters: &mut [f32]) -> Result<(), EngineError> {
        self.trainer.store(parameters)
    }

    fn forget(&mut self) {
        self.trainer.forget();
    }

    fn state_len(&self) -> usize {
        self.trainer.state_len()
    }

    fn state(&mut self) -> Result<Vec<f32>, EngineError> {
        self.trainer.state()
    }

    fn set_state(&mut self, state: &[f32]) -> Result<(), EngineError> {
        self.trainer.set_state(state)
    }

    fn learn(&mut self, batches: &[Batch<'_>], learning_rate: f32, number: u64) -> Result<f64, EngineError> {
        let mut loss = 0.0;
        for (batch, number) in batches.iter().zip(number..) {
            let batch = std::slice::from_ref(batch);
            let of_batch = self.trainer.learn(batch, learning_rate, number)?;
            // What was not learned from counts as the model that stays predicts it.
            loss += if self.bring_within(learning_rate)? { of_batch } else { self.trainer.measure(batch)? };
        }
        Ok(loss)
    }

    fn measure(&mut self, batches: &[Batch<'_>]) -> Result<f64, EngineError> {
        self.trainer.measure(batches)
    }
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

#[cfg(test)]
mod tests {
    use lm::{kernels::KernelPath, model::initial::initial_parameters};

    use super::*;

    const ROWS: usize = 2;

    fn config() -> ModelConfig {
        ModelConfig { dropout: None, ..ModelConfig::preset("tiny").unwrap().with_vocabulary(12) }
    }

    /// The parameters after some steps at a rate, and the loss of all of them.
    fn learned(clip: Option<f32>, rate: f32) -> (Vec<f32>, f64) {
        let config = config();
        let central = Central { config: &config, rows: ROWS, unroll: 3, seed: 1 };
        let mut trainer = trainer(central, Means::threads(KernelPath::best(), 1)).unwrap();
        let mut values = initial_parameters(&config, 1).unwrap();
        if let Some(most) = clip {
            trainer = clipped(trainer, most, values.len()).unwrap();
        }
        trainer.load(&values).unwrap();
        let mut loss = 0.0;
        for number in 0..30 {
            let inputs: Vec<u32> = (0..6).map(|i| 3 + (i * 5 + number as u32) % 9).collect();
            let targets: Vec<u32> = inputs.iter().map(|id| 3 + (id + 1) % 9).collect();
            let batch = Batch { rows: ROWS, inputs: &inputs, targets: &targets, context: &[] };
            loss += trainer.learn(&[batch], rate, number).unwrap();
        }
        trainer.store(&mut values).unwrap();
        (values, loss)
    }

    #[test]
    fn a_bound_that_nothing_reaches_changes_nothing() {
        assert_eq!(learned(Some(1e9), 0.5), learned(None, 0.5));
    }

    /// Pretraining at the default rate ended in numbers that are none.
    #[test]
    fn what_would_explode_is_kept_within_the_bound() {
        let finite =
            |(values, loss): &(Vec<f32>, f64)| loss.is_finite() && values.iter().all(|value| value.is_finite());
        assert!(!finite(&learned(None, 1e12)), "this rate destroys the model");
        assert!(finite(&learned(Some(1e-12), 1e12)), "and a step of length 1 does not");
        let (first, (slow, _)) = (initial_parameters(&config(), 1).unwrap(), learned(Some(0.01), 0.5));
        let moved: f64 = first.iter().zip(&slow).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
        assert!(moved > 0.0 && moved <= 30.0 * 0.5 * 0.01 * 1.001, "30 steps of at most 0.005: {moved}");
    }
}
