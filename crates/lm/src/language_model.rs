//! What every model can do: say how likely each next token is.
//!
//! Metrics and suggestions are written against this, so that an LSTM and an n-gram model are measured by the same lines.

mod reference;

pub use reference::{ReferenceModel, ReferenceModelError};

/// Says how likely each token is to come next.
pub trait LanguageModel: Sync {
    /// Entries of the vocabulary.
    fn vocabulary(&self) -> usize;

    /// Reads sequences of ids side by side (each begins with BOS) and visits, for every sequence and every position, the
    /// natural logarithms of the probabilities of all entries to come next: `visit(sequence, position, log_probabilities)`.
    /// Positions of one sequence are visited in order; nothing is said of the order of sequences.
    ///
    /// Every id must be below [`Self::vocabulary`]: whoever takes ids from outside checks them first, as
    /// [`Measure`](crate::metrics::Measure) does.
    fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32]));

    /// The log-probabilities after all of a sequence, or nothing for an empty one.
    fn after(&self, sequence: &[u32]) -> Option<Vec<f32>> {
        let mut last = None;
        self.read(&[sequence], &mut |_, position, log_probabilities| {
            if position + 1 == sequence.len() {
                last = Some(log_probabilities.to_vec());
            }
        });
        last
    }
}
