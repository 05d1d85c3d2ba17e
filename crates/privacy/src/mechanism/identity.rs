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

/// Fresh noise at every step; there is no state.
#[derive(Debug)]
pub(super) struct Identity {
    draws: Draws,
}

impl Identity {
    pub(super) fn init(layout: &Layout) -> Result<Self, MechanismError> {
        Ok(Self { draws: Draws::new(layout, 0)? })
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
        let [stream, segment, round] = position;
        let draw = Draw::at(noise, &[INDEPENDENT, stream, segment, round]);
        workers::each(workers, self.draws.cut(values), |number, values| {
            let mut drawn = [0; CHUNK];
            let drawn = &mut drawn[..values.len()];
            self.draws.fill(&draw, number, drawn);
            values.iter_mut().zip(drawn).for_each(|(v, n)| *v += *n);
            Ok(())
        })
    }

    fn restart(&mut self) {}
}
