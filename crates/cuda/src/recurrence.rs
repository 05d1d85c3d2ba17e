//! The recurrence of a layer over all tokens of a batch in one kernel each way, the layer's kernel on the chip: see
//! `kernels/recurrence.cu`, with half-precision operands, and `kernels/recurrence_exact.cu`, in float32. For LSTMs of 256 units on cards
//! with clusters; others take a product for each token.

use federated::engine::Precision;
use lm::model::config::Cell;

use crate::{
    card::{Address, Arg, Card, Grid},
    error::CudaError,
    shape::Shape,
    source::{RECURRENCE, RECURRENCE_EXACT, Source, UNITS, kernels},
};

/// How many sequences a cluster has.
const SIDE: usize = 8;

/// One pair of kernels.
#[derive(Debug, Clone, Copy)]
struct Kind {
    source: Source,
    /// Blocks of a cluster, and threads of a block.
    blocks: usize,
    threads: usize,
    /// Whether the way back moves the bias.
    moves_bias: bool,
}

const HALVES: Kind = Kind { source: RECURRENCE, blocks: 2, threads: 512, moves_bias: true };

const EXACT: Kind = Kind { source: RECURRENCE_EXACT, blocks: 8, threads: 256, moves_bias: false };

kernels! {
    /// The kernels of both ways.
    pub(crate) struct Kernels:
        recur_forward, recur_backward
}

/// One pair of them.
pub(crate) struct Recurrence {
    kind: Kind,
    kernels: Kernels,
}

impl Recurrence {
    /// The kernels for a shape, where there are such for it and the card.
    pub(crate) fn new(
        card: &Card,
        shape: &Shape,
        precision: Precision,
        defines: &[(&'static str, usize)],
        architecture: &str,
    ) -> Result<Option<Self>, CudaError> {
        let units = shape.hidden == UNITS && shape.shown == UNITS && !shape.projects;
        if card.capability()?.0 < 9 || shape.cell != Cell::Lstm || !units {
            return Ok(None);
        }
        let kind = if precision == Precision::F16 && shape.rows <= SIDE { HALVES } else { EXACT };
        let shared = kind.source.shared;
        if !card.has_shared(shared[0].max(shared[1]))? {
            return Ok(None);
        }
        let kernels = Kernels::load(card, kind.source, defines, architecture)?;
        card.allow_shared(&kernels.recur_forward, shared[0])?;
        card.allow_shared(&kernels.recur_backward, shared[1])?;
        Ok(Some(Self { kind, kernels }))
    }

    /// Whether the way back moves the bias.
    pub(crate) const fn moves_bias(&self) -> bool {
        self.kind.moves_bias
    }

    const fn grid(&self, shape: &Shape, way: usize) -> Grid {
        let clusters = shape.users * shape.rows.div_ceil(SIDE);
        Grid {
            blocks: [self.kind.blocks * clusters, 1],
            threads: self.kind.threads,
            shared: self.kind.source.shared[way],
        }
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
        card.launch(&self.kernels.recur_forward, self.grid(shape, 0), &args)
    }

    /// From gates to their gradients. Halves are scaled by what a token's share leaves room for.
    pub(crate) fn backward(
        &self,
        card: &Card,
        shape: &Shape,
        [step, shares]: [Address; 2],
        [kernel, bias, gates, cells, d_states, rate]: [Address; 6],
    ) -> Result<(), CudaError> {
        let args = if self.kind.moves_bias {
            vec![step, shares, kernel, bias, gates, cells, d_states, rate]
        } else {
            vec![kernel, gates, cells, d_states]
        };
        let args: Vec<Arg> = args.into_iter().map(Arg::At).collect();
        card.launch(&self.kernels.recur_backward, self.grid(shape, 1), &args)
    }
}
