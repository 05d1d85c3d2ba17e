//! One local step of a chunk: its memory, products and kernels.
//!
//! The models are those of `lm::model::reference`, which has the equations; the order of the calls is its order. Every user has weights
//! of their own, so every product is one of many, `[user][row][column]`. States have one block more than there are tokens of a
//! sequence: block t is what was shown before token t, block t + 1 what is shown after it, so nothing is copied from step to step.
//! Gradients are those of single tokens times the user's share; the rate over all tokens is taken where weights move.

mod output;
mod reading;

use device::local::{Algorithm, LocalPlan};
use federated::engine::Precision;
use lm::model::config::Cell;

use self::reading::{Reading, USUAL_STEPS};
use crate::{
    card::{Address, Arg, Card, Grid, Matrix, Memory, Operands, Product},
    dropout::LeftOut,
    error::CudaError,
    gates::Gates,
    held::Held,
    placement::Placement,
    recurrence::Recurrence,
    schedule::{Lists, Schedule},
    shape::Shape,
    source::{LEARN, kernels},
    vocabulary::Vocabulary,
};

/// Blocks that copy the model of the round to a user who comes in.
const ENTRANCE: usize = 32;
/// Batches below are computed in float32, whatever precision is asked for.
const FEW_TOKENS: usize = 32;

kernels! {
    /// The kernels of a step.
    pub(crate) struct Kernels:
        advance, come_in, carry, gather, lstm_forward, lstm_backward, gru_gates, gru_state, gru_candidate_back,
        gru_reset_back, fill_rows, softmax, add_losses, move_bias, scatter, normalise, fold, unfold, remember, pull,
        leave_out
}

/// Numbers on the card that products and moves are multiplied with: graphs outlive rates.
#[derive(Debug, Clone, Copy)]
enum Factor {
    Zero,
    One,
    /// Less the rate over all tokens of a batch.
    Down,
    /// The rate over all tokens of a batch.
    Each,
    /// The rate.
    Rate,
}

impl Factor {
    const COUNT: usize = 5;
}

/// What becomes of what stands where a product goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Into {
    /// The result overwrites the output.
    Set,
    /// The product is added.
    Add,
    /// The product is a gradient, and is taken off at the rate.
    Descend,
}

/// What a layer remembers of a step.
struct LayerMemory {
    /// `[T + 1][B][shown]`.
    states: Memory<f32>,
    /// `[T + 1][B][hidden]`; of a GRU nothing.
    cells: Memory<f32>,
    /// Gates, then their gradients: `[token][wide]`.
    gates: Memory<f32>,
    /// `[token][hidden]`: units before the projection; of a GRU the state that the candidate sees.
    units: Memory<f32>,
    /// The gradient of what is shown: `[token][shown]`.
    d_states: Memory<f32>,
}

/// A chunk of users on the card.
pub(crate) struct Network {
    shape: Shape,
    placement: Placement,
    kernels: Kernels,
    local: LocalPlan,
    precision: Precision,
    /// Kernels of our own, where there are such; those of the vocabulary have half-precision operands.
    vocabulary: Option<Vocabulary>,
    recurrence: Option<Recurrence>,
    gates: Option<Gates>,
    /// Units that are left out, of one model that learns with dropout.
    left_out: Option<LeftOut>,
    pub(crate) reading: Reading,
    /// The model of the round, as it lies on the card.
    pub(crate) start: Memory<f32>,
    /// `[user][length]`.
    pub(crate) weights: Memory<f32>,
    /// What FedSGD has moved so far, or where the difference stood before a step with a penalty.
    aside: Memory<f32>,
    x: Memory<f32>,
    layers: Vec<LayerMemory>,
    /// Scratch of a step of time: `[B][hidden]`.
    d_cells: Memory<f32>,
    d_units: Memory<f32>,
    d_x: Memory<f32>,
    output: Memory<f32>,
    d_output: Memory<f32>,
    logits: Memory<f32>,
    losses: Memory<f32>,
    /// Summed over the first reading.
    pub(crate) loss: Memory<f64>,
}

impl Network {
    /// How many bytes a chunk takes on the card.
    pub(crate) fn bytes(shape: &Shape, placement: &Placement, local: &LocalPlan, precision: Precision) -> usize {
        let (tokens, blocks) = (shape.tokens(), (shape.unroll + 1) * shape.rows);
        let aside = if keeps_aside(local) { placement.length } else { 0 };
        let layer = blocks * (shape.shown + shape.hidden) + tokens * (shape.wide() + shape.hidden + shape.shown);
        let own = computes_in(precision, shape) == Precision::F16 && Vocabulary::is_for(shape);
        let logits = if own { Vocabulary::bytes(shape) / 4 } else { tokens * shape.entries };
        let output = tokens * (2 * shape.enter(0) + 2 * shape.output + 1 + 2 * shape.hidden) + logits;
        let integers = placement.place.len();
        let text = USUAL_STEPS * Reading::bytes_of_step(shape, lists(shape, own));
        4 * shape.users * (placement.length + aside + integers + shape.layers * layer + output) + text
    }

    pub(crate) fn new(
        card: &Card,
        shape: Shape,
        placement: Placement,
        local: &LocalPlan,
        precision: Precision,
        architecture: &str,
    ) -> Result<Self, CudaError> {
        let Shape { users, rows, unroll, hidden, shown, .. } = shape;
        let (tokens, blocks) = (users * shape.tokens(), users * (unroll + 1) * rows);
        let defines = shape.defines(placement.length, placement.place.len());
        let kernels = Kernels::load(card, LEARN, &defines, architecture)?;
        let precision = computes_in(precision, &shape);
        let gru = shape.cell == Cell::Gru;
        let layer = || -> Result<LayerMemory, CudaError> {
            Ok(LayerMemory {
                states: card.zeros(blocks * shown)?,
                cells: card.zeros(if gru { 0 } else { blocks * hidden })?,
                gates: card.zeros(tokens * shape.wide())?,
                units: card.zeros(if gru || shape.projects { tokens * hidden } else { 0 })?,
                d_states: card.zeros(tokens * shown)?,
            })
        };
        let aside = if keeps_aside(local) { users * placement.length } else { 0 };
        let halves = precision == Precision::F16;
        let vocabulary =
            (halves && Vocabulary::is_for(&shape)).then(|| Vocabulary::new(card, &shape, &defines, architecture));
        let recurrence = Recurrence::new(card, &shape, precision, &defines, architecture)?;
        let own_gates = halves && !gru && Gates::is_for(card, &shape)?;
        let gates = own_gates.then(|| Gates::new(card, &shape, &defines, architecture));
        let logits = if vocabulary.is_some() { 0 } else { tokens * shape.entries };
        let lists = lists(&shape, vocabulary.is_some());
        Ok(Self {
            vocabulary: vocabulary.transpose()?,
            recurrence,
            gates: gates.transpose()?,
            left_out: None,
            reading: Reading::new(card, &shape, 1, lists)?,
            start: card.zeros(placement.length)?,
            weights: card.zeros(users * placement.length)?,
            aside: card.zeros(aside)?,
            x: card.zeros(tokens * shape.enter(0))?,
            layers: (0..shape.layers).map(|_| layer()).collect::<Result<_, _>>()?,
            d_cells: card.zeros(users * rows * hidden)?,
            d_units: card.zeros(tokens * hidden)?,
            d_x: card.zeros(tokens * shape.enter(0))?,
            output: card.zeros(tokens * shape.output)?,
            d_output: card.zeros(tokens * shape.output)?,
            logits: card.zeros(logits)?,
            losses: card.zeros(tokens)?,
            loss: card.zeros(users)?,
            shape,
            placement,
            kernels,
            local: local.clone(),
            precision,
        })
    }

    pub(crate) const fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Which lists a schedule has for this network.
    pub(crate) const fn lists(&self) -> Lists {
        lists(&self.shape, self.vocabulary.is_some())
    }

    /// The most steps of a user that there is room for.
    pub(crate) fn most_steps(&self) -> usize {
        Reading::most_steps(&self.shape, self.lists())
    }

    /// The same network, which learns with units left out.
    pub(crate) fn leaving_out(self, left_out: Option<LeftOut>) -> Self {
        Self { left_out, ..self }
    }

    /// What is left out, to be told which step comes next.
    pub(crate) const fn left_out(&mut self) -> Option<&mut LeftOut> {
        self.left_out.as_mut()
    }

    /// What each layer carries: cells and states with their widths, each `[T + 1][B][width]`, of which the last block is carried on.
    pub(crate) fn carried(&mut self) -> impl Iterator<Item = [(&mut Memory<f32>, usize); 2]> {
        let Shape { hidden, shown, .. } = self.shape;
        self.layers.iter_mut().map(move |layer| [(&mut layer.cells, hidden), (&mut layer.states, shown)])
    }

    /// Takes what a chunk reads. Whether there was no room, so that memory moved and graphs that name it are worthless.
    pub(crate) fn read(&mut self, card: &Card, schedule: &Schedule) -> Result<bool, CudaError> {
        let (shape, lists) = (self.shape, self.lists());
        let grows = self.reading.make_room(card, &shape, schedule.steps, lists)?;
        self.reading.upload(card, &self.shape, schedule)?;
        card.clear(&mut self.loss)?;
        if let Some(vocabulary) = &mut self.vocabulary {
            vocabulary.begin(card)?;
        }
        if keeps_aside(&self.local) {
            card.clear(&mut self.aside)?;
        }
        Ok(grows)
    }

    /// What it holds of people: what they typed and everything that was computed from it, and, where each trains a model of their own,
    /// their weights.
    pub(crate) fn held(&mut self, own_weights: bool) -> Vec<Held<'_>> {
        let Self {
            reading,
            layers,
            vocabulary,
            weights,
            aside,
            loss,
            losses,
            logits,
            x,
            d_cells,
            d_units,
            d_x,
            output,
            d_output,
            // The model of the round is public, and so is what one model that learns public text leaves out. The rest holds no numbers.
            start: _,
            left_out: _,
            shape: _,
            placement: _,
            kernels: _,
            local: _,
            precision: _,
            recurrence: _,
            gates: _,
        } = self;
        let mut all = reading.held();
        all.extend([x, d_cells, d_units, d_x, output, d_output, logits, losses].map(Held::F32));
        all.push(Held::F64(loss));
        for LayerMemory { states, cells, gates, units, d_states } in layers {
            all.extend([states, cells, gates, units, d_states].map(Held::F32));
        }
        all.extend(vocabulary.iter_mut().flat_map(Vocabulary::held));
        if own_weights {
            all.extend([weights, aside].map(Held::F32));
        }
        all
    }

    /// A weight matrix of every user.
    fn weight(&self, at: usize, row: usize) -> Matrix {
        Matrix::new(self.weights.address().plus(at), row, self.placement.length)
    }

    /// A matrix with a row for each token.
    fn by_token(&self, memory: &Memory<f32>, width: usize) -> Matrix {
        Matrix::new(memory.address(), width, self.shape.tokens() * width)
    }

    /// What a layer showed before each token; from row B on, after each.
    fn states(&self, layer: usize) -> Matrix {
        let Shape { rows, unroll, shown, .. } = self.shape;
        Matrix::new(self.layers[layer].states.address(), shown, (unroll + 1) * rows * shown)
    }

    fn multiply(
        &self,
        card: &Card,
        [m, n, k]: [usize; 3],
        a: Matrix,
        b: Matrix,
        c: Matrix,
        into: Into,
    ) -> Result<(), CudaError> {
        let (alpha, beta) = match into {
            Into::Set => (Factor::One, Factor::Zero),
            Into::Add => (Factor::One, Factor::One),
            Into::Descend => (Factor::Down, Factor::One),
        };
        let (alpha, beta) = (self.factor(alpha), self.factor(beta));
        let operands = if self.precision == Precision::F32 { Operands::F32 } else { Operands::Tf32 };
        card.product(self.shape.users, &Product { m, n, k, a, b, c, alpha, beta }, operands)
    }

    /// The rate of the steps.
    pub(crate) fn rate(&self) -> Address {
        self.factor(Factor::Rate)
    }

    fn factor(&self, which: Factor) -> Address {
        self.reading.factors.address().plus(which as usize)
    }

    fn at_step(&self) -> [Arg; 2] {
        [Arg::At(self.reading.step.address()), Arg::At(self.reading.flags.address())]
    }

    /// One step of SGD of every user. `between` is what comes after the weights have moved and before the step is over.
    pub(crate) fn step(&self, card: &Card, between: impl FnOnce() -> Result<(), CudaError>) -> Result<(), CudaError> {
        let Self { kernels, shape, .. } = self;
        let all = Grid::each(shape.users * self.placement.length);
        let (start, weights, aside) = (self.start.address(), self.weights.address(), self.aside.address());
        let [step, flags] = self.at_step();
        let kept = if keeps_aside(&self.local) { aside } else { Address::NONE };
        let args = [step, flags, Arg::At(start), Arg::At(weights), Arg::At(kept)];
        card.launch(&kernels.come_in, Grid::blocks(ENTRANCE, shape.users, 256), &args)?;
        if self.local.update_penalty > 0.0 {
            card.launch(&kernels.remember, all, &[Arg::At(start), Arg::At(weights), Arg::At(aside)])?;
        }
        self.forward(card)?;
        self.learn_output(card)?;
        for layer in (0..shape.layers).rev() {
            self.backward(card, layer)?;
        }
        self.move_tables(card)?;
        if self.local.update_penalty > 0.0 {
            let (rate, penalty) = (self.factor(Factor::Rate), Arg::Float(self.local.update_penalty));
            let args = [step, flags, Arg::At(start), Arg::At(weights), Arg::At(aside), Arg::At(rate), penalty];
            card.launch(&kernels.pull, all, &args)?;
        }
        if self.local.algorithm == Algorithm::FedSgdAll {
            card.launch(&kernels.fold, all, &[Arg::At(start), Arg::At(weights), Arg::At(aside)])?;
        }
        between()?;
        self.advance(card)
    }

    /// The next step comes.
    pub(crate) fn advance(&self, card: &Card) -> Result<(), CudaError> {
        let one = Grid { blocks: [1, 1], threads: 1, shared: 0 };
        card.launch(&self.kernels.advance, one, &[Arg::At(self.reading.step.address())])
    }

    /// Reads the batch of a step and adds up its loss; nothing is learned.
    pub(crate) fn measure(&self, card: &Card) -> Result<(), CudaError> {
        self.forward(card)?;
        self.meet(card)?;
        match &self.vocabulary {
            Some(vocabulary) => vocabulary.learn(card, &self.shape, &self.places())?,
            None => {
                let logits = self.predict_vocabulary(card)?;
                self.compare(card, logits)?;
            }
        }
        self.add_losses(card)?;
        self.advance(card)
    }

    /// Reads the batch of a step: the logits of all tokens without the bias, `[token][entries]`, and the bias.
    pub(crate) fn predict(&self, card: &Card) -> Result<[Address; 2], CudaError> {
        self.forward(card)?;
        self.meet(card)?;
        Ok([self.predict_vocabulary(card)?.at, self.output_bias()])
    }

    /// The entries that are to be predicted.
    pub(crate) const fn targets(&self) -> Address {
        self.reading.targets.address()
    }

    /// After the last step: FedSGD's model is the start and all that was moved.
    pub(crate) fn settle(&self, card: &Card) -> Result<(), CudaError> {
        if self.local.algorithm != Algorithm::FedSgdAll {
            return Ok(());
        }
        let (start, weights, aside) = (self.start.address(), self.weights.address(), self.aside.address());
        let all = Grid::each(self.shape.users * self.placement.length);
        card.launch(&self.kernels.unfold, all, &[Arg::At(start), Arg::At(weights), Arg::At(aside)])
    }

    fn forward(&self, card: &Card) -> Result<(), CudaError> {
        let Self { kernels, shape, reading, .. } = self;
        let [step, flags] = self.at_step();
        for layer in self.layers.iter().filter(|_| self.recurrence.is_none()) {
            for (memory, width) in [(&layer.states, shape.shown), (&layer.cells, shape.hidden)] {
                if memory.len() > 1 {
                    let args = [step, flags, Arg::At(memory.address()), Arg::Int(width as i32)];
                    card.launch(&kernels.carry, Grid::each(shape.users * shape.rows * width), &args)?;
                }
            }
        }
        let table = self.weights.address().plus(self.placement.embedding);
        let args = [
            step,
            Arg::At(reading.inputs.address()),
            Arg::At(table),
            Arg::At(reading.features.address()),
            Arg::At(self.x.address()),
            Arg::Int(shape.enter(0) as i32),
        ];
        card.launch(&kernels.gather, Grid::each(32 * shape.users * shape.tokens()), &args)?;
        for layer in 0..shape.layers {
            self.leave_out_below(card, layer)?;
            match shape.cell {
                Cell::Gru => self.gru_forward(card, layer)?,
                Cell::Lstm | Cell::Cifg => self.lstm_forward(card, layer)?,
            }
        }
        self.leave_out_below(card, shape.layers)
    }

    /// What is below a layer, or below the output: what was read, or what the layer below shows.
    fn below(&self, layer: usize) -> Matrix {
        match layer.checked_sub(1) {
            None => self.by_token(&self.x, self.shape.enter(0)),
            Some(below) => self.states(below).down(self.shape.rows),
        }
    }

    /// What enters a layer, or the output, from below: the same, but for units that are left out.
    fn entered(&self, layer: usize) -> Matrix {
        match &self.left_out {
            Some(left_out) => left_out.entered(layer),
            None => self.below(layer),
        }
    }

    fn leave_out_below(&self, card: &Card, layer: usize) -> Result<(), CudaError> {
        self.leave_out(card, layer, self.below(layer), self.entered(layer))
    }

    /// Units of what enters a layer, or of its gradient, are left out, where this step leaves out any.
    fn leave_out(&self, card: &Card, layer: usize, from: Matrix, to: Matrix) -> Result<(), CudaError> {
        match &self.left_out {
            Some(left_out) => left_out.apply(card, &self.kernels.leave_out, self.at_step()[0], layer, from, to),
            None => Ok(()),
        }
    }

    /// The part of all gates that comes from below.
    fn enter(&self, card: &Card, layer: usize) -> Result<(), CudaError> {
        let (shape, place) = (&self.shape, self.placement.layers[layer]);
        let gates = self.by_token(&self.layers[layer].gates, shape.wide());
        let sizes = [shape.tokens(), shape.wide(), shape.enter(layer)];
        self.multiply(card, sizes, self.entered(layer), self.weight(place.input, shape.wide()), gates, Into::Set)
    }

    fn lstm_forward(&self, card: &Card, layer: usize) -> Result<(), CudaError> {
        self.enter(card, layer)?;
        let (shape, place, memory) = (&self.shape, self.placement.layers[layer], &self.layers[layer]);
        let Shape { rows, hidden, shown, .. } = *shape;
        let gates = self.by_token(&memory.gates, shape.wide());
        let (states, own) = (self.states(layer), self.by_token(&memory.units, hidden));
        let units = if shape.projects { own } else { states.down(rows) };
        let bias = self.weights.address().plus(place.bias);
        if let Some(recurrence) = &self.recurrence {
            let kernel = self.weights.address().plus(place.state);
            let places = [kernel, bias, gates.at, states.at, memory.cells.address()];
            return recurrence.forward(card, shape, self.at_step(), places);
        }
        for t in 0..shape.unroll {
            let sizes = [rows, shape.wide(), shown];
            let state_kernel = self.weight(place.state, shape.wide());
            self.multiply(card, sizes, states.down(t * rows), state_kernel, gates.down(t * rows), Into::Add)?;
            let args = [
                Arg::At(gates.at),
                Arg::At(bias),
                Arg::At(memory.cells.address()),
                Arg::At(units.at),
                Arg::Long(units.user as u64),
                Arg::Int(t as i32),
            ];
            card.launch(&self.kernels.lstm_forward, Grid::each(shape.users * rows * hidden), &args)?;
            if shape.projects {
                let projection = self.weight(place.projection, shown);
                let to = states.down((t + 1) * rows);
                self.multiply(card, [rows, shown, hidden], own.down(t * rows), projection, to, Into::Set)?;
            }
        }
        Ok(())
    }

    fn gru_forward(&self, card: &Card, layer: usize) -> Result<(), CudaError> {
        self.enter(card, layer)?;
        let (shape, place, memory) = (&self.shape, self.placement.layers[layer], &self.layers[layer]);
        let Shape { rows, hidden, .. } = *shape;
        let gates = self.by_token(&memory.gates, shape.wide());
        let (states, seen) = (self.states(layer), self.by_token(&memory.units, hidden));
        let kernel = self.weight(place.state, shape.wide());
        let bias = Arg::At(self.weights.address().plus(place.bias));
        let each = Grid::each(shape.users * rows * hidden);
        for t in 0..shape.unroll {
            let (now, before) = (gates.down(t * rows), states.down(t * rows));
            self.multiply(card, [rows, 2 * hidden, hidden], before, kernel, now, Into::Add)?;
            let args = [Arg::At(gates.at), bias, Arg::At(states.at), Arg::At(seen.at), Arg::Int(t as i32)];
            card.launch(&self.kernels.gru_gates, each, &args)?;
            let (kernel, now) = (kernel.right(2 * hidden), now.right(2 * hidden));
            self.multiply(card, [rows, hidden, hidden], seen.down(t * rows), kernel, now, Into::Add)?;
            let args = [Arg::At(gates.at), bias, Arg::At(states.at), Arg::Int(t as i32)];
            card.launch(&self.kernels.gru_state, each, &args)?;
        }
        Ok(())
    }

    fn backward(&self, card: &Card, layer: usize) -> Result<(), CudaError> {
        match self.shape.cell {
            Cell::Gru => self.gru_backward(card, layer)?,
            Cell::Lstm | Cell::Cifg => self.lstm_backward(card, layer)?,
        }
        let (shape, place) = (&self.shape, self.placement.layers[layer]);
        let gates = self.by_token(&self.layers[layer].gates, shape.wide());
        let kernel = self.weight(place.input, shape.wide());
        let below = match layer.checked_sub(1) {
            None => &self.d_x,
            Some(below) => &self.layers[below].d_states,
        };
        let (enter, tokens) = (shape.enter(layer), shape.tokens());
        let d_entered = self.by_token(below, enter);
        self.multiply(card, [tokens, enter, shape.wide()], gates, kernel.transposed(), d_entered, Into::Set)?;
        self.leave_out(card, layer, d_entered, d_entered)?;
        let entered = self.entered(layer);
        match &self.gates {
            Some(own) => {
                let (all, weights) = ([entered, self.states(layer), gates], self.weights.address());
                own.descend(card, shape, self.at_step(), (layer, place), all, weights, self.factor(Factor::Each))?;
            }
            None => {
                let sizes = [enter, shape.wide(), tokens];
                self.multiply(card, sizes, entered.transposed(), gates, kernel, Into::Descend)?;
            }
        }
        if self.recurrence.as_ref().is_some_and(Recurrence::moves_bias) {
            return Ok(());
        }
        self.move_bias(card, place.bias, gates, shape.wide())
    }

    fn lstm_backward(&self, card: &Card, layer: usize) -> Result<(), CudaError> {
        let (shape, place, memory) = (&self.shape, self.placement.layers[layer], &self.layers[layer]);
        let Shape { rows, hidden, shown, unroll, .. } = *shape;
        let gates = self.by_token(&memory.gates, shape.wide());
        let d_states = self.by_token(&memory.d_states, shown);
        let kernel = self.weight(place.state, shape.wide());
        let projection = self.weight(place.projection, shown);
        let d_units = if shape.projects { self.by_token(&self.d_units, hidden) } else { d_states };
        if let Some(recurrence) = &self.recurrence {
            let bias = self.weights.address().plus(place.bias);
            let (cells, rate) = (memory.cells.address(), self.factor(Factor::Each));
            let turn = [self.reading.step.address(), self.reading.shares.address()];
            recurrence.backward(card, shape, turn, [kernel.at, bias, gates.at, cells, d_states.at, rate])?;
        }
        let by_token = if self.recurrence.is_some() { 0 } else { unroll };
        for t in (0..by_token).rev() {
            let now = d_states.down(t * rows);
            if t + 1 < unroll {
                let after = gates.down((t + 1) * rows);
                self.multiply(card, [rows, shown, shape.wide()], after, kernel.transposed(), now, Into::Add)?;
            }
            if shape.projects {
                let to = d_units.down(t * rows);
                self.multiply(card, [rows, hidden, shown], now, projection.transposed(), to, Into::Set)?;
            }
            let args = [
                Arg::At(gates.at),
                Arg::At(memory.cells.address()),
                Arg::At(d_units.at),
                Arg::Long(d_units.user as u64),
                Arg::At(self.d_cells.address()),
                Arg::Int(t as i32),
            ];
            card.launch(&self.kernels.lstm_backward, Grid::each(shape.users * rows * hidden), &args)?;
        }
        let tokens = shape.tokens();
        if shape.projects {
            let units = self.by_token(&memory.units, hidden);
            self.multiply(card, [hidden, shown, tokens], units.transposed(), d_states, projection, Into::Descend)?;
        }
        // What is below is needed before the kernels move; where both move at once, they do after it.
        if self.gates.is_some() {
            return Ok(());
        }
        let states = self.states(layer);
        self.multiply(card, [shown, shape.wide(), tokens], states.transposed(), gates, kernel, Into::Descend)
    }

    fn gru_backward(&self, card: &Card, layer: usize) -> Result<(), CudaError> {
        let (shape, place, memory) = (&self.shape, self.placement.layers[layer], &self.layers[layer]);
        let Shape { rows, hidden, unroll, .. } = *shape;
        let gates = self.by_token(&memory.gates, shape.wide());
        let d_states = self.by_token(&memory.d_states, hidden);
        let (states, seen) = (self.states(layer), self.by_token(&memory.units, hidden));
        let kernel = self.weight(place.state, shape.wide());
        let candidate = kernel.right(2 * hidden);
        let d_seen = Matrix::new(self.d_units.address(), hidden, rows * hidden);
        let d_before = Arg::At(self.d_cells.address());
        let each = Grid::each(shape.users * rows * hidden);
        for t in (0..unroll).rev() {
            if t + 1 < unroll {
                let (after, now) = (gates.down((t + 1) * rows), d_states.down(t * rows));
                self.multiply(card, [rows, hidden, 2 * hidden], after, kernel.transposed(), now, Into::Add)?;
            }
            let (gates_at, states_at, d_at) = (Arg::At(gates.at), Arg::At(states.at), Arg::At(d_states.at));
            let args = [gates_at, states_at, d_at, d_before, Arg::Int(t as i32)];
            card.launch(&self.kernels.gru_candidate_back, each, &args)?;
            let d_candidate = gates.down(t * rows).right(2 * hidden);
            self.multiply(card, [rows, hidden, hidden], d_candidate, candidate.transposed(), d_seen, Into::Set)?;
            let args = [gates_at, states_at, Arg::At(d_seen.at), d_before, d_at, Arg::Int(t as i32)];
            card.launch(&self.kernels.gru_reset_back, each, &args)?;
        }
        let tokens = shape.tokens();
        self.multiply(card, [hidden, 2 * hidden, tokens], states.transposed(), gates, kernel, Into::Descend)?;
        let d_candidate = gates.right(2 * hidden);
        self.multiply(card, [hidden, hidden, tokens], seen.transposed(), d_candidate, candidate, Into::Descend)
    }

    /// Rows of the input's table, and norms of 1 where the model has them.
    fn move_tables(&self, card: &Card) -> Result<(), CudaError> {
        let Self { kernels, shape, reading, placement, .. } = self;
        let [step, flags] = self.at_step();
        let table = self.weights.address().plus(placement.embedding);
        if let Some(vocabulary) = &self.vocabulary {
            vocabulary.descend(card, shape, &self.places())?;
            if shape.tied {
                return Ok(());
            }
        }
        let args = [
            step,
            Arg::At(reading.inputs.address()),
            Arg::At(reading.order.address()),
            Arg::At(self.d_x.address()),
            Arg::Int(shape.enter(0) as i32),
            Arg::At(table),
            Arg::At(self.factor(Factor::Each)),
        ];
        card.launch(&kernels.scatter, Grid::each(32 * shape.users * shape.tokens()), &args)?;
        if !shape.unit_norm {
            return Ok(());
        }
        let output = self.weights.address().plus(placement.output);
        let tables = [(table, shape.table), (output, shape.output)];
        let both = !shape.tied && self.vocabulary.is_none();
        tables.iter().take(if both { 2 } else { 1 }).try_for_each(|(at, width)| {
            let args = [step, flags, Arg::At(*at), Arg::Int(*width as i32)];
            card.launch(&kernels.normalise, Grid::each(8 * shape.users * shape.vocabulary), &args)
        })
    }
}

/// What products are computed in. A batch of few tokens has few to even out what operands of halves are off by, and float32 takes
/// little longer for it.
fn computes_in(asked: Precision, shape: &Shape) -> Precision {
    if asked == Precision::F16 && shape.tokens() < FEW_TOKENS { Precision::F32 } else { asked }
}

/// Which lists a schedule has, for a network with kernels of our own for the vocabulary or without.
const fn lists(shape: &Shape, own: bool) -> Lists {
    Lists { order: !(own && shape.tied), touched: own }
}

/// Whether something as large as the weights is kept beside them.
pub(crate) fn keeps_aside(local: &LocalPlan) -> bool {
    local.update_penalty > 0.0 || local.algorithm == Algorithm::FedSgdAll
}
