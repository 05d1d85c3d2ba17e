//! The kernels of a layer's gates, moved by their gradients in one pass over them: see `kernels/gates.cu`. For batches whose tokens
//! fit a block, with operands of 10 bits; others take products of cuBLAS.

use crate::{
    card::{Address, Arg, Card, Grid, Matrix},
    error::CudaError,
    placement::LayerPlace,
    shape::{Shape, padded},
    source::{GATES, kernels},
};

/// Rows and columns of a tile, and how far rows of its operands are apart, as the kernel's source has them.
const SIDE: usize = 128;
const PITCH: usize = SIDE + 8;
/// Tokens of a batch that two blocks of a multiprocessor have room for.
const MOST_TOKENS: usize = 96;

kernels! {
    /// The kernel that moves them.
    pub(crate) struct Kernels:
        move_gates
}

/// It, and the shared memory that it takes.
pub(crate) struct Gates {
    kernels: Kernels,
    shared: usize,
}

impl Gates {
    /// Whether the kernel is for this shape, and the card has room for a block of it.
    pub(crate) fn is_for(card: &Card, shape: &Shape) -> Result<bool, CudaError> {
        Ok(shape.tokens() <= MOST_TOKENS && card.has_shared(shared(shape))?)
    }

    pub(crate) fn new(
        card: &Card,
        shape: &Shape,
        defines: &[(&'static str, usize)],
        architecture: &str,
    ) -> Result<Self, CudaError> {
        let kernels = Kernels::load(card, GATES, defines, architecture)?;
        let shared = shared(shape);
        card.allow_shared(&kernels.move_gates, shared)?;
        Ok(Self { kernels, shared })
    }

    /// Moves the kernels of a layer: what entered it from below, what it showed before each token, the gradients of its gates.
    #[allow(clippy::too_many_arguments, reason = "all that a kernel is launched with")]
    pub(crate) fn descend(
        &self,
        card: &Card,
        shape: &Shape,
        step: [Arg; 2],
        (layer, place): (usize, LayerPlace),
        [entered, states, gates]: [Matrix; 3],
        weights: Address,
        rate: Address,
    ) -> Result<(), CudaError> {
        let (enter, wide) = (shape.enter(layer), shape.wide());
        // The rows of the state follow those of the input: both are moved as one matrix.
        if place.state != place.input + enter * wide {
            return Err(CudaError::Refused("the kernels of a layer lie apart".to_owned()));
        }
        let tiles = (enter + shape.shown).div_ceil(SIDE) * wide.div_ceil(SIDE);
        let grid = Grid { shared: self.shared, ..Grid::blocks(tiles, shape.users, 256) };
        let [step, flags] = step;
        let args = [
            step,
            flags,
            Arg::At(entered.at),
            Arg::Long(entered.user as u64),
            Arg::Int(entered.row as i32),
            Arg::Int(enter as i32),
            Arg::At(states.at),
            Arg::At(gates.at),
            Arg::At(rate),
            Arg::At(weights.plus(place.input)),
        ];
        card.launch(&self.kernels.move_gates, grid, &args)
    }
}

/// Bytes of shared memory of a block.
const fn shared(shape: &Shape) -> usize {
    4 * 2 * padded(shape.tokens(), 8) * PITCH
}
