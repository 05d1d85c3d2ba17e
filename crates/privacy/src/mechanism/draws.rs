//! Independent draws for the coordinates of a vector, in chunks.
//!
//! Every chunk of every draw has a ChaCha20 stream of its own, named by the step's key, the position of the draw in the
//! mechanism and the chunk's number, so chunks can be drawn in any order, on any thread, and again after a crash.

use super::MechanismError;
use crate::{
    encoding::layout::Layout,
    noise::{DiscreteGaussianSampler, SimulatedGaussian},
    rng::StreamKey,
    step_keys::StepNoise,
};

/// Coordinates in a chunk: what is worked on at a time stays in the cache.
pub(super) const CHUNK: usize = 1 << 12;

/// A run of coordinates of one segment.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) coordinates: std::ops::Range<usize>,
    sampler: usize,
}

/// How the coordinates of a layout are drawn, `fractional_bits` finer than the grid.
#[derive(Debug, Clone)]
pub(super) struct Draws {
    pub(super) chunks: Vec<Chunk>,
    samplers: Vec<DiscreteGaussianSampler>,
}

/// One draw of the whole vector.
#[derive(Debug)]
pub(super) struct Draw {
    key: StreamKey,
    floating_point: bool,
}

impl Draw {
    /// The draw at a position of a mechanism.
    pub(super) fn at(noise: &StepNoise, position: &[u64]) -> Self {
        Self { key: noise.stream(position), floating_point: noise.is_floating_point() }
    }
}

impl Draws {
    pub(super) fn new(layout: &Layout, fractional_bits: u32) -> Result<Self, MechanismError> {
        let (mut chunks, mut samplers, mut start) = (Vec::new(), Vec::new(), 0);
        for segment in layout.segments() {
            let fine = segment.sigma.checked_mul(1 << fractional_bits);
            let fine =
                fine.ok_or(MechanismError::TooMuchNoise { sigma: segment.sigma, most: u64::MAX >> fractional_bits })?;
            samplers.push(DiscreteGaussianSampler::new(fine)?);
            let end = start + segment.len;
            let sampler = samplers.len() - 1;
            let starts = (start..end).step_by(CHUNK);
            chunks.extend(starts.map(|s| Chunk { coordinates: s..(s + CHUNK).min(end), sampler }));
            start = end;
        }
        Ok(Self { chunks, samplers })
    }

    /// Coordinates of the layout.
    pub(super) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |chunk| chunk.coordinates.end)
    }

    /// The chunks of a vector of the layout, one after the other.
    pub(super) fn cut<'a, T>(&self, mut values: &'a mut [T]) -> impl Iterator<Item = &'a mut [T]> {
        let lengths = self.chunks.iter().map(|chunk| chunk.coordinates.len());
        lengths.map(move |len| values.split_off_mut(..len).unwrap_or_default())
    }

    /// Draws one chunk; `out` has its length.
    pub(super) fn fill(&self, draw: &Draw, chunk: usize, out: &mut [i64]) {
        let sampler = &self.samplers[self.chunks[chunk].sampler];
        let mut words = draw.key.chunk(chunk as u64);
        if draw.floating_point {
            SimulatedGaussian::new(sampler.sigma()).fill(&mut words, out);
        } else {
            sampler.fill(&mut words, out);
        }
    }
}
