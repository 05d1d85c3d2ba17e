//! Dropout masks drawn on the card, identical to those of `lm::model::dropout`, for central training.

use lm::model::dropout::{FactorRule, MaskDrawer, MaskPlace};

use crate::{
    card::{Arg, Card, Grid, Kernel, Matrix, Memory},
    error::CudaError,
    shape::Shape,
};

/// Nothing is left out, and what stays is as it was.
const NOTHING: FactorRule = FactorRule { least: 0, scale: 1.0 };

/// What is left out of each step, and what is left of what enters each layer and the output.
pub(crate) struct LeftOut {
    drawer: MaskDrawer,
    shape: Shape,
    /// Units of each place.
    widths: Vec<usize>,
    key: Memory<u32>,
    /// Which step of the run comes next.
    number: Memory<u64>,
    rule: Memory<u32>,
    /// Where the words of each place begin, and how many there are.
    places: Memory<u32>,
    /// What enters each layer, and the output: `[token][padded]`.
    entered: Vec<Memory<f32>>,
}

impl LeftOut {
    /// For a shape of one model.
    pub(crate) fn new(card: &Card, drawer: MaskDrawer, shape: &Shape) -> Result<Self, CudaError> {
        let key: Vec<u32> = drawer.key().as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let places = drawer.places(shape.rows, shape.unroll);
        let padded = |place: usize| if place == 0 { shape.enter(0) } else { shape.shown };
        let entered = (0..places.len()).map(|place| card.zeros(shape.tokens() * padded(place)));
        Ok(Self {
            shape: *shape,
            widths: places.iter().map(|place| place.width).collect(),
            key: card.copy_of(&key)?,
            number: card.zeros(1)?,
            rule: card.zeros(2)?,
            places: card.zeros(2 * places.len())?,
            entered: entered.collect::<Result<_, _>>()?,
            drawer,
        })
    }

    /// The next steps are those of the run from this number on, each of so many tokens of a sequence; none where everything stays.
    pub(crate) fn go_to(&mut self, card: &Card, number: Option<u64>, steps: usize) -> Result<(), CudaError> {
        let rule = if number.is_some() { self.drawer.rule() } else { NOTHING };
        let words = |place: MaskPlace| [place.first_block as u32, place.drawn as u32];
        let places: Vec<u32> = self.drawer.places(self.shape.rows, steps).into_iter().flat_map(words).collect();
        card.upload(&places, &mut self.places)?;
        card.upload(&[rule.least, rule.scale.to_bits()], &mut self.rule)?;
        card.upload(&[number.unwrap_or(0)], &mut self.number)
    }

    /// What enters a layer, or the output.
    pub(crate) fn entered(&self, place: usize) -> Matrix {
        let memory = &self.entered[place];
        let width = memory.len() / self.shape.tokens();
        Matrix::new(memory.address(), width, memory.len())
    }

    /// `to` is `from` without what is left out at a place.
    pub(crate) fn apply(
        &self,
        card: &Card,
        kernel: &Kernel,
        step: Arg,
        place: usize,
        from: Matrix,
        to: Matrix,
    ) -> Result<(), CudaError> {
        let width = self.widths[place];
        let [number, rule] = [Arg::At(self.number.address()), Arg::At(self.rule.address())];
        let [key, places] = [&self.key, &self.places].map(|memory| Arg::At(memory.address()));
        let sizes = [Arg::Int(width as i32), Arg::Int(from.row as i32)];
        let (place, from, to) = (Arg::Int(place as i32), Arg::At(from.at), Arg::At(to.at));
        let args = [step, number, rule, key, places, place, from, to, sizes[0], sizes[1]];
        card.launch(kernel, Grid::each((self.shape.tokens() * width).div_ceil(16)), &args)
    }
}
