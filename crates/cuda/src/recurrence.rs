//! The recurrence of a layer over all tokens of a batch in one kernel each way, the layer's kernel on the chip: see
//! `kernels/recurrence.cu`. For LSTMs of 256 units on cards with clusters; others take a product for each token.

use lm::model::config::Cell;

use crate::{
    card::{Address, Arg, Card, Grid, Kernel},
    error::CudaError,
    shape::Shape,
    source::RECURRENCE,
};

const UNITS: usize = 256;
/// Shared memory of a block, as the kernels' source counts it.
const FORWARD: usize = 16 * 8 * 2 * 32 * 16 + 2 * 8 * 264 * 2;
const BACKWARD: usize = 16 * 16 * 32 * 16 + 8 * 520 * 2 + 3 * 128 * 8 * 4;

/// The kernels of both ways.
pub(crate) struct Recurrence {
    forward: Kernel,
    backward: Kernel,
}

impl Recurrence {
    /// Whether the kernels are for this shape, on a card of this compute capability.
    pub(crate) fn is_for(shape: &Shape, capability: (i32, i32)) -> bool {
        let units = shape.hidden == UNITS && shape.shown == UNITS && !shape.projects;
        capability.0 >= 9 && shape.cell == Cell::Lstm && units && shape.rows <= 8
    }

    pub(crate) fn new(card: &Card, defines: &[(&'static str, usize)], architecture: &str) -> Result<Self, CudaError> {
        let mut loaded =
            card.load(RECURRENCE.compile(defines, architecture)?, &["recur_forward", "recur_backward"])?.into_iter();
        let mut next = || loaded.next().ok_or_else(|| CudaError::Refused("a kernel is missing".to_owned()));
        let (forward, backward) = (next()?, next()?);
        card.allow_shared(&forward, FORWARD)?;
        card.allow_shared(&backward, BACKWARD)?;
        Ok(Self { forward, backward })
    }

    /// From what comes from below, which lies in the gates, to gates, cells and states of all tokens; the state is carried on.
    pub(crate) fn forward(
        &self,
        card: &Card,
        shape: &Shape,
        step: [Arg; 2],
        [kernel, bias, gates, states, cells]: [Address; 5],
    ) -> Result<(), CudaError> {
        let [step, flags] = step;
        let args = [step, flags, Arg::At(kernel), Arg::At(bias), Arg::At(gates), Arg::At(states), Arg::At(cells)];
        let grid = Grid { blocks: [2 * shape.users, 1], threads: 512, shared: FORWARD };
        card.launch(&self.forward, grid, &args)
    }

    /// From gates to their gradients; the bias moves.
    pub(crate) fn backward(&self, card: &Card, shape: &Shape, places: [Address; 6]) -> Result<(), CudaError> {
        let grid = Grid { blocks: [2 * shape.users, 1], threads: 512, shared: BACKWARD };
        card.launch(&self.backward, grid, &places.map(Arg::At))
    }
}
