//! The input of a step: tokens of several sequences, side by side.

/// Tokens to learn from: `steps` of `rows` sequences, time-major. A target of [`Batch::NONE`] does not count.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Sequences.
    pub rows: usize,
    /// What is read, `[step][row]`.
    pub inputs: &'a [u32],
    /// What is to be predicted, `[step][row]`.
    pub targets: &'a [u32],
    /// The user's context vector, for models that take one.
    pub context: &'a [f32],
}

impl Batch<'_> {
    /// A place where nothing is predicted: padding.
    pub const NONE: u32 = u32::MAX;

    /// Tokens of a sequence.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.inputs.len() / self.rows
    }

    /// Targets that count.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.targets.iter().filter(|t| **t != Self::NONE).count()
    }
}
