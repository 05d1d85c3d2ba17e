//! The output layer of a step: from the last hidden layer to the loss, and back.

use super::{Factor, Into, Network};
use crate::{
    card::{Address, Arg, Card, Grid, Matrix, Memory},
    error::CudaError,
    shape::Shape,
    vocabulary::Places,
};

impl Network {
    /// What the last layer shows to the output.
    pub(super) fn top(&self) -> Matrix {
        self.entered(self.shape.layers)
    }

    /// What meets the vocabulary, for every token.
    pub(super) fn out(&self) -> Matrix {
        if self.shape.dense { self.by_token(&self.output, self.shape.output) } else { self.top() }
    }

    /// The gradient of what the last layer showed.
    pub(super) fn d_top(&self) -> Matrix {
        self.by_token(&self.layers[self.shape.layers - 1].d_states, self.shape.shown)
    }

    /// The gradient of what meets the vocabulary.
    pub(super) fn d_out(&self) -> Matrix {
        if self.shape.dense { self.by_token(&self.d_output, self.shape.output) } else { self.d_top() }
    }

    /// What meets the vocabulary.
    pub(super) fn meet(&self, card: &Card) -> Result<(), CudaError> {
        let (shape, placement) = (&self.shape, &self.placement);
        if !shape.dense {
            return Ok(());
        }
        self.fill_rows(card, &self.output, placement.dense_bias, shape.output)?;
        let dense = self.weight(placement.dense, shape.output);
        self.multiply(card, [shape.tokens(), shape.output, shape.shown], self.top(), dense, self.out(), Into::Add)
    }

    pub(super) fn add_losses(&self, card: &Card) -> Result<(), CudaError> {
        let [step, flags] = self.at_step();
        let args = [step, flags, Arg::At(self.losses.address()), Arg::At(self.loss.address())];
        card.launch(&self.kernels.add_losses, Grid::blocks(self.shape.users, 1, 32), &args)
    }

    /// Softmax and loss; the gradient of what the last layer showed is known after it.
    pub(super) fn learn_output(&self, card: &Card) -> Result<(), CudaError> {
        let Self { shape, placement, .. } = self;
        let Shape { shown, output, .. } = *shape;
        self.meet(card)?;
        match &self.vocabulary {
            Some(vocabulary) => vocabulary.learn(card, shape, &self.places())?,
            None => self.learn_vocabulary(card)?,
        }
        self.add_losses(card)?;
        if shape.dense {
            let (tokens, top, d_out) = (shape.tokens(), self.top(), self.d_out());
            let dense = self.weight(placement.dense, output);
            self.multiply(card, [tokens, shown, output], d_out, dense.transposed(), self.d_top(), Into::Set)?;
            self.multiply(card, [shown, output, tokens], top.transposed(), d_out, dense, Into::Descend)?;
            self.move_bias(card, placement.dense_bias, d_out, output)?;
        }
        self.leave_out(card, shape.layers, self.d_top(), self.d_top())
    }

    /// Where the kernels of the vocabulary find what they work on.
    pub(super) fn places(&self) -> Places {
        let Self { reading, placement, shape, .. } = self;
        let out = self.out();
        Places {
            step: reading.step.address(),
            flags: reading.flags.address(),
            targets: reading.targets.address(),
            touched: reading.touched.address(),
            shares: reading.shares.address(),
            rate: self.factor(Factor::Each),
            table: self.weights.address().plus(placement.output),
            bias: self.weights.address().plus(placement.output_bias),
            out: out.at,
            out_user: out.user,
            d_out: self.d_out().at,
            losses: self.losses.address(),
            d_x: self.d_x.address(),
            enter: shape.enter(0),
        }
    }

    /// The bias of the output, where there is one.
    pub(super) fn output_bias(&self) -> Address {
        if self.shape.output_bias { self.weights.address().plus(self.placement.output_bias) } else { Address::NONE }
    }

    /// The logits of every token, without the bias.
    pub(super) fn predict_vocabulary(&self, card: &Card) -> Result<Matrix, CudaError> {
        let Shape { output, entries, .. } = self.shape;
        let (table, logits) = (self.weight(self.placement.output, output), self.by_token(&self.logits, entries));
        let sizes = [self.shape.tokens(), entries, output];
        self.multiply(card, sizes, self.out(), table.transposed(), logits, Into::Set)?;
        Ok(logits)
    }

    /// Logits become their gradients; losses are known.
    pub(super) fn compare(&self, card: &Card, logits: Matrix) -> Result<(), CudaError> {
        let Self { kernels, shape, reading, .. } = self;
        let args = [
            Arg::At(reading.step.address()),
            Arg::At(reading.targets.address()),
            Arg::At(reading.shares.address()),
            Arg::At(self.output_bias()),
            Arg::At(logits.at),
            Arg::At(self.losses.address()),
        ];
        card.launch(&kernels.softmax, Grid::blocks(shape.users * shape.tokens(), 1, 256), &args)
    }

    /// The output over the whole vocabulary by products; its weights move.
    fn learn_vocabulary(&self, card: &Card) -> Result<(), CudaError> {
        let (shape, placement) = (&self.shape, &self.placement);
        let Shape { output, entries, vocabulary, .. } = *shape;
        let (tokens, table) = (shape.tokens(), self.weight(placement.output, output));
        let logits = self.predict_vocabulary(card)?;
        self.compare(card, logits)?;
        self.multiply(card, [tokens, output, entries], logits, table, self.d_out(), Into::Set)?;
        if shape.output_bias {
            self.move_bias(card, placement.output_bias, logits, vocabulary)?;
        }
        self.multiply(card, [entries, output, tokens], logits.transposed(), self.out(), table, Into::Descend)
    }

    fn fill_rows(&self, card: &Card, to: &Memory<f32>, bias: usize, width: usize) -> Result<(), CudaError> {
        let bias = self.weights.address().plus(bias);
        let grid = Grid::each(self.shape.users * self.shape.tokens() * width);
        card.launch(&self.kernels.fill_rows, grid, &[Arg::At(to.address()), Arg::At(bias), Arg::Int(width as i32)])
    }

    pub(super) fn move_bias(&self, card: &Card, bias: usize, gradients: Matrix, width: usize) -> Result<(), CudaError> {
        let bias = self.weights.address().plus(bias);
        let (width_arg, stride) = (Arg::Int(width as i32), Arg::Int(gradients.row as i32));
        let args = [Arg::At(bias), Arg::At(gradients.at), width_arg, stride, Arg::At(self.factor(Factor::Each))];
        card.launch(&self.kernels.move_bias, Grid::blocks(width.div_ceil(256), self.shape.users, 256), &args)
    }
}
