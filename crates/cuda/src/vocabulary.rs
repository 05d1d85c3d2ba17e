//! Our kernels for the output over the whole vocabulary, with half-precision operands: logits are never stored.
//!
//! One pass over the table for the softmax and the gradient of the output, one that moves it: see `kernels/vocabulary.cu`. For tables
//! and batches whose tiles fit a block; others take products of cuBLAS.

use crate::{
    card::{Address, Arg, Card, Grid, Memory},
    error::CudaError,
    held::Held,
    shape::{Shape, padded},
    source::{VOCABULARY, kernels},
};

/// The widest output and the most tokens of a batch that a block has room for.
const MOST: usize = 128;
/// Into how many runs the table of each user is cut.
const RUNS: usize = 5;

kernels! {
    /// The kernels of both passes.
    pub(crate) struct Kernels:
        read_table, merge_runs, move_rows, move_table, move_target_bias
}

/// They, and the memory in between.
pub(crate) struct Vocabulary {
    kernels: Kernels,
    /// `[user][run][wide]`.
    most: Memory<f32>,
    sums: Memory<f32>,
    /// `[user][run][wide][output]`.
    products: Memory<f32>,
    /// `[user][wide]`.
    logs: Memory<f32>,
    /// `[user][entries]`.
    slots: Memory<u32>,
    /// `[user][2 * tokens][output]`.
    moves: Memory<f32>,
}

/// Where a step finds what it works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) step: Address,
    pub(crate) flags: Address,
    pub(crate) targets: Address,
    pub(crate) touched: Address,
    pub(crate) shares: Address,
    /// The rate over all tokens.
    pub(crate) rate: Address,
    pub(crate) table: Address,
    pub(crate) bias: Address,
    pub(crate) out: Address,
    /// How far the outputs of two users are apart.
    pub(crate) out_user: usize,
    pub(crate) d_out: Address,
    pub(crate) losses: Address,
    /// The gradient of what entered the first layer, and how wide it is.
    pub(crate) d_x: Address,
    pub(crate) enter: usize,
}

const fn wide(shape: &Shape) -> usize {
    padded(shape.tokens(), 16)
}

impl Vocabulary {
    /// Whether the kernels are for this shape.
    pub(crate) const fn is_for(shape: &Shape) -> bool {
        shape.output <= MOST && wide(shape) <= MOST
    }

    pub(crate) fn new(
        card: &Card,
        shape: &Shape,
        defines: &[(&'static str, usize)],
        architecture: &str,
    ) -> Result<Self, CudaError> {
        let runs = shape.users * RUNS * wide(shape);
        Ok(Self {
            kernels: Kernels::load(card, VOCABULARY, defines, architecture)?,
            most: card.zeros(runs)?,
            sums: card.zeros(runs)?,
            products: card.zeros(runs * shape.output)?,
            logs: card.zeros(shape.users * wide(shape))?,
            slots: card.zeros(shape.users * shape.entries)?,
            moves: card.zeros(shape.users * 2 * shape.tokens() * shape.output)?,
        })
    }

    /// Bytes of a user, beside the weights.
    pub(crate) const fn bytes(shape: &Shape) -> usize {
        4 * (RUNS * wide(shape) * (shape.output + 2) + shape.entries + 2 * shape.tokens() * shape.output)
    }

    /// What it holds of people.
    pub(crate) fn held(&mut self) -> Vec<Held<'_>> {
        let Self { most, sums, products, logs, slots, moves, kernels: _ } = self;
        let mut all: Vec<Held<'_>> = [most, sums, products, logs, moves].map(Held::F32).into();
        all.push(Held::U32(slots));
        all
    }

    /// A chunk begins: no row has a move yet.
    pub(crate) fn begin(&mut self, card: &Card) -> Result<(), CudaError> {
        card.clear(&mut self.slots)
    }

    /// Softmax, loss, and the gradient of the output.
    pub(crate) fn learn(&self, card: &Card, shape: &Shape, at: &Places) -> Result<(), CudaError> {
        let (table, bias, out) = (Arg::At(at.table), Arg::At(at.bias), Arg::At(at.out));
        let out_user = Arg::Long(at.out_user as u64);
        let [most, sums, products] = [&self.most, &self.sums, &self.products].map(|memory| Arg::At(memory.address()));
        let grid = Grid::blocks(RUNS, shape.users, 2 * wide(shape));
        card.launch(&self.kernels.read_table, grid, &[table, bias, out, out_user, most, sums, products])?;
        let args = [
            Arg::At(at.step),
            Arg::At(at.targets),
            Arg::At(at.shares),
            table,
            bias,
            out,
            out_user,
            Arg::Int(RUNS as i32),
            most,
            sums,
            products,
            Arg::At(self.logs.address()),
            Arg::At(at.d_out),
            Arg::At(at.losses),
        ];
        card.launch(&self.kernels.merge_runs, Grid::each(32 * shape.users * wide(shape)), &args)
    }

    /// Moves the table, once the gradient of what entered the first layer is known.
    pub(crate) fn descend(&self, card: &Card, shape: &Shape, at: &Places) -> Result<(), CudaError> {
        let touched = 2 * shape.users * shape.tokens();
        let (step, shares, rate) = (Arg::At(at.step), Arg::At(at.shares), Arg::At(at.rate));
        let (out, out_user) = (Arg::At(at.out), Arg::Long(at.out_user as u64));
        let (slots, moves) = (Arg::At(self.slots.address()), Arg::At(self.moves.address()));
        let (touches, d_x, enter) = (Arg::At(at.touched), Arg::At(at.d_x), Arg::Int(at.enter as i32));
        let args = [step, touches, shares, rate, out, out_user, d_x, enter, slots, moves];
        card.launch(&self.kernels.move_rows, Grid::each(32 * touched), &args)?;
        let (table, bias, logs) = (Arg::At(at.table), Arg::At(at.bias), Arg::At(self.logs.address()));
        let args = [step, Arg::At(at.flags), table, bias, out, out_user, logs, shares, rate, slots, moves];
        card.launch(&self.kernels.move_table, Grid::blocks(RUNS, shape.users, 256), &args)?;
        if shape.output_bias {
            card.launch(&self.kernels.move_target_bias, Grid::each(touched), &[step, touches, shares, rate, bias])?;
        }
        Ok(())
    }
}
