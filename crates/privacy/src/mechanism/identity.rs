//! Independent noise: the identity as strategy matrix.

use super::{
    INDEPENDENT, MechanismError, StreamingMatrix,
    draws::{CHUNK, Draw, Draws},
};
use crate::{
    encoding::layout::Layout,
    step_keys::StepNoise,
    workers::{self, Workers},
};

/// Fresh noise at every step; there is no state but noise that was drawn early, which is that of its position and no other.
#[derive(Debug)]
pub(super) struct Identity {
    draws: Draws,
    /// The noise of a position, drawn before there was anything to add it to.
    early: Option<[u64; 3]>,
    noise: Vec<i64>,
}

impl Identity {
    pub(super) fn init(layout: &Layout) -> Result<Self, MechanismError> {
        Ok(Self { draws: Draws::new(layout, 0)?, early: None, noise: Vec::new() })
    }

    fn draw(noise: &StepNoise, [stream, segment, round]: [u64; 3]) -> Draw {
        Draw::at(noise, &[INDEPENDENT, stream, segment, round])
    }
}

impl StreamingMatrix for Identity {
    fn next(
        &mut self,
        noise: &StepNoise,
        position: [u64; 3],
        values: &mut [i64],
        workers: &dyn Workers,
    ) -> Result<(), MechanismError> {
        if self.early.take() == Some(position) && self.noise.len() == values.len() {
            let pieces = values.chunks_mut(CHUNK).zip(self.noise.chunks(CHUNK));
            return workers::each(workers, pieces, |_, (values, noise)| {
                values.iter_mut().zip(noise).for_each(|(v, n)| *v += *n);
                Ok(())
            });
        }
        let draw = Self::draw(noise, position);
        workers::each(workers, self.draws.cut(values), |number, values| {
            let mut drawn = [0; CHUNK];
            let drawn = &mut drawn[..values.len()];
            self.draws.fill(&draw, number, drawn);
            values.iter_mut().zip(drawn).for_each(|(v, n)| *v += *n);
            Ok(())
        })
    }

    fn foresee(&mut self, noise: &StepNoise, position: [u64; 3], workers: &dyn Workers) -> Result<(), MechanismError> {
        self.early = None;
        let Self { draws, noise: drawn, .. } = self;
        drawn.resize(draws.len(), 0);
        let draw = Self::draw(noise, position);
        workers::all(workers, draws.cut(drawn), |number, out| draws.fill(&draw, number, out))?;
        self.early = Some(position);
        Ok(())
    }

    fn restart(&mut self) {}
}
