//! The carried state as numbers, so that training stopped between two batches resumes bit for bit.

use super::{Layer, Trainer};
use crate::kernels::matrix::padded;

impl Trainer {
    /// The state the next batch would start from: for each layer the cells and the outputs, `[row][unit]`.
    #[must_use]
    pub fn state(&mut self) -> Vec<f32> {
        let mut state = Vec::with_capacity(self.state_len());
        self.each_carried(|row| state.extend_from_slice(row));
        state
    }

    /// Takes what [`Self::state`] gave, as if what was read before had been read here.
    ///
    /// # Panics
    /// When it is not as long as the state of this model with as many rows.
    pub fn set_state(&mut self, state: &[f32]) {
        assert_eq!(state.len(), self.state_len(), "the state is that of another model");
        let mut rest = state;
        self.each_carried(|row| {
            let (now, later) = rest.split_at(row.len());
            row.copy_from_slice(now);
            rest = later;
        });
    }

    /// How many numbers the state has.
    #[must_use]
    pub fn state_len(&self) -> usize {
        self.config.layers * self.rows * (self.config.hidden + self.config.shown())
    }

    fn each_carried(&mut self, mut visit: impl FnMut(&mut [f32])) {
        let (rows, widths) = (self.rows, [self.config.hidden, self.config.shown()]);
        for part in self.layers.iter_mut().map(|layer: &mut Layer| layer.carried(rows)) {
            for (values, width) in part.into_iter().zip(widths) {
                values.chunks_exact_mut(padded(width)).for_each(|row| visit(&mut row[..width]));
            }
        }
    }
}
