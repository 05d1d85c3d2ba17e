//! Evaluates models: on the threads of this process, or on an engine's own hardware.
//!
//! Counts add up exactly, in any order, and what is read side by side depends on the examples alone. So the numbers of one measurer
//! do not depend on how many threads it has; those of another may differ where two entries are as likely but for a rounding.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use device::learner::{Learner, examples::Examples};
use lm::{kernels::KernelPath, metrics::Counts};

use super::{EngineError, Means};

/// Predicts people's examples with a model, and counts.
pub trait Measurer {
    /// What a model predicts of all of these people's examples.
    ///
    /// # Errors
    /// When the parameters are not those of the model, or the examples are not for it.
    fn count(&mut self, model: &[f32], people: &[Examples]) -> Result<Counts, EngineError>;
}

/// Makes the measurer of a learner's models.
pub type MakeMeasurer = for<'a> fn(&'a dyn Learner, Means) -> Result<Box<dyn Measurer + 'a>, EngineError>;

/// The measurer of a learner's models, by the means that there are.
///
/// # Errors
/// When the models cannot be measured by these means.
pub fn measurer<'a>(learner: &'a dyn Learner, means: Means) -> Result<Box<dyn Measurer + 'a>, EngineError> {
    (means.engine.measurer)(learner, means)
}

/// The threads of this process.
#[derive(Clone, Copy)]
pub struct OnThreads<'a> {
    learner: &'a dyn Learner,
    kernels: KernelPath,
    threads: usize,
}

impl<'a> OnThreads<'a> {
    /// Evaluates on this many threads.
    #[must_use]
    pub const fn new(learner: &'a dyn Learner, kernels: KernelPath, threads: usize) -> Self {
        Self { learner, kernels, threads }
    }
}

impl Measurer for OnThreads<'_> {
    fn count(&mut self, model: &[f32], people: &[Examples]) -> Result<Counts, EngineError> {
        let predictor = self.learner.predictor(model, people, self.kernels)?;
        Ok(count_pieces(predictor.pieces(), self.threads, |piece| predictor.count(piece))?)
    }
}

/// Counts over so many pieces, on so many threads.
pub(crate) fn count_pieces<E: Send>(
    pieces: usize,
    threads: usize,
    count: impl Fn(usize) -> Result<Counts, E> + Sync,
) -> Result<Counts, E> {
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Ok(Counts::default()));
    let work = || {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                break;
            }
            let counted = count(piece);
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            match (total.as_mut(), counted) {
                (Ok(sum), Ok(counts)) => sum.merge(&counts),
                (Ok(_), Err(error)) => *total = Err(error),
                (Err(_), _) => {}
            }
        }
    };
    std::thread::scope(|scope| (0..threads.clamp(1, pieces.max(1))).for_each(|_| drop(scope.spawn(work))));
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}
