//! The trait of all language models: how likely is each next token?
//!
//! Metrics and suggestions are written against this, so that an LSTM and an n-gram model are measured by the same lines.

/// Says how likely each token is to come next.
///
/// Every id must be below [`Self::vocabulary`]: callers check ids from outside first, as
/// [`Measure`](crate::metrics::Measure) does.
pub trait LanguageModel: Sync {
    /// Entries of the vocabulary.
    fn vocabulary(&self) -> usize;

    /// Reads sequences of ids side by side (each begins with BOS) and visits, for every sequence and every position, the
    /// natural logarithms of the probabilities of all entries to come next: `visit(sequence, position, log_probabilities)`.
    /// Positions of one sequence are visited in order; nothing is said of the order of sequences.
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

    /// Somebody who reads one sequence as it grows.
    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(Rereader { model: self, read: Vec::new(), said: Vec::new() })
    }
}

/// Reads one sequence as it grows: what it has in common with the one before is not read again.
pub trait Reader {
    /// The log-probabilities after all of a sequence; nothing for an empty one.
    fn after(&mut self, sequence: &[u32]) -> &[f32];
}

/// Reads all of a sequence that is another than before, for models that carry no state.
struct Rereader<'a, M: ?Sized> {
    model: &'a M,
    read: Vec<u32>,
    said: Vec<f32>,
}

impl<M: LanguageModel + ?Sized> Reader for Rereader<'_, M> {
    fn after(&mut self, sequence: &[u32]) -> &[f32] {
        if self.read != sequence {
            self.said = self.model.after(sequence).unwrap_or_default();
            self.read = sequence.to_vec();
        }
        &self.said
    }
}
