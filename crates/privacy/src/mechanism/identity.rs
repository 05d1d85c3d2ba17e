//! Independent noise: the identity as strategy matrix.

use super::{
    INDEPENDENT, MechanismError, StreamingMatrix,
    draws::{CHUNK, Draw, Draws},
};
use crate::{encoding::layout::Layout, rng::NoiseSource};

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
    fn next(&mut self, source: &NoiseSource, position: [u64; 3], values: &mut [i64]) -> Result<(), MechanismError> {
        let [stream, segment, round] = position;
        let draw = Draw::at(source, &[INDEPENDENT, stream, segment, round]);
        let mut noise = [0; CHUNK];
        for (number, chunk) in self.draws.chunks.iter().enumerate() {
            let noise = &mut noise[..chunk.coordinates.len()];
            self.draws.fill(&draw, number, noise);
            values[chunk.coordinates.clone()].iter_mut().zip(noise).for_each(|(v, n)| *v += *n);
        }
        Ok(())
    }

    fn restart(&mut self) {}
}
