//! Steps of one model that learns public text, brought within a bound on the card, as [`federated::engine::central::Clipped`] does it
//! from outside: that would bring all weights down and put them back after every step.
//!
//! Steps go on one after the other, and a step that is not finite is only seen when the batches of a graph's launches are over. So the
//! model and what it carries are kept from before them, and batches are learned again one by one where something broke.

use crate::{
    card::{Arg, Card, Grid, Memory},
    error::CudaError,
    network::Network,
    source::{BOUND, kernels},
};

/// Blocks that add up a step's squares, and that cut it.
const BLOCKS: usize = 256;

kernels! {
    /// The kernels of a bound.
    pub(crate) struct Kernels:
        step_norms, bring_within
}

/// A bound on the length of gradients.
pub(crate) struct Bound {
    kernels: Kernels,
    most: f32,
    /// The weights before a step.
    before: Memory<f32>,
    /// A part of a step's squared norm for each block.
    parts: Memory<f64>,
    /// Whether a step was not finite.
    broken: Memory<i32>,
    /// The weights before some batches, and what each layer carried.
    weights: Memory<f32>,
    carried: Vec<[Memory<f32>; 2]>,
}

impl Bound {
    /// For a network of one model.
    pub(crate) fn new(card: &Card, network: &mut Network, most: f32) -> Result<Self, CudaError> {
        let (length, parameters) = (network.placement().length, network.placement().place.len());
        let defines = network.shape().defines(length, parameters);
        let like = |[(cells, _), (states, _)]: [(&mut Memory<f32>, usize); 2]| {
            Ok([card.zeros(cells.len())?, card.zeros(states.len())?])
        };
        Ok(Self {
            kernels: Kernels::load(card, BOUND, &defines, &card.architecture()?)?,
            most,
            before: card.zeros(length)?,
            parts: card.zeros(BLOCKS)?,
            broken: card.zeros(1)?,
            weights: card.zeros(length)?,
            carried: network.carried().map(like).collect::<Result<_, CudaError>>()?,
        })
    }

    /// Some batches begin: what there is now is kept.
    pub(crate) fn keep(&mut self, card: &Card, network: &mut Network) -> Result<(), CudaError> {
        card.copy(&network.weights, &mut self.weights)?;
        card.copy(&network.weights, &mut self.before)?;
        card.clear(&mut self.broken)?;
        for ([cells, states], now) in self.carried.iter_mut().zip(network.carried()) {
            let [(cells_now, _), (states_now, _)] = now;
            card.copy(cells_now, cells)?;
            card.copy(states_now, states)?;
        }
        Ok(())
    }

    /// Puts back what was kept.
    pub(crate) fn put_back(&self, card: &Card, network: &mut Network) -> Result<(), CudaError> {
        card.copy(&self.weights, &mut network.weights)?;
        for ([cells, states], now) in self.carried.iter().zip(network.carried()) {
            let [(cells_now, _), (states_now, _)] = now;
            card.copy(cells, cells_now)?;
            card.copy(states, states_now)?;
        }
        Ok(())
    }

    /// Cuts a step that was made, where it is too long.
    pub(crate) fn bring_within(&self, card: &Card, network: &Network) -> Result<(), CudaError> {
        let [weights, before, parts] =
            [network.weights.address(), self.before.address(), self.parts.address()].map(Arg::At);
        let grid = Grid::blocks(BLOCKS, 1, 256);
        card.launch(&self.kernels.step_norms, grid, &[weights, before, parts])?;
        let (count, rate, broken) = (Arg::Int(BLOCKS as i32), Arg::At(network.rate()), Arg::At(self.broken.address()));
        card.launch(
            &self.kernels.bring_within,
            grid,
            &[parts, count, rate, Arg::Float(self.most), weights, before, broken],
        )
    }

    /// Whether a step since [`Self::keep`] was not finite; waits for the card.
    pub(crate) fn is_broken(&self, card: &Card) -> Result<bool, CudaError> {
        let mut broken = [0];
        card.download(&self.broken, &mut broken)?;
        Ok(broken != [0])
    }
}
