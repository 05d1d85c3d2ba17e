//! The reference implementation, simple and slow: forward and backward in plain loops, over `f32` or `f64`.
//!
//! It is the test of every fast path: gradients are checked here in `f64` against finite differences, and the fast
//! kernels are checked against this. Truncated backpropagation with carried state: a batch is `steps` tokens of `rows`
//! sequences, the state of the last step is handed on without its gradient.
//!
//! ```text
//! LSTM  i = s(a_i)  f = s(a_f)      g = tanh(a_g)  o = s(a_o)   c = f c' + i g   m = o tanh(c)   a = [x, h'] K + b
//! CIFG  i = s(a_i)  f = 1 - i       g, o, c, m as above
//! GRU   z = s(a_z)  r = s(a_r)      n = tanh([x, r h'] K_n + b_n)                m = (1 - z) h' + z n
//! shown h = m P with a recurrent projection P, else m
//! ```

use super::{
    batch::Batch,
    config::{Cell, Gate, ModelConfig},
    dropout::Masks,
    parameters::{ParameterLayout, Role},
};

/// A float that the reference computes with.
pub trait Real:
    Copy
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
    + std::iter::Sum
{
    /// The nearest float.
    fn of(value: f64) -> Self;
    /// Converts to a 64-bit float.
    fn to_f64(self) -> f64;
    /// The exponential.
    fn exp(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
}

macro_rules! real {
    ($float:ty, $exp:path, $ln:path, $tanh:path) => {
        impl Real for $float {
            fn of(value: f64) -> Self {
                value as $float
            }
            fn to_f64(self) -> f64 {
                self.into()
            }
            fn exp(self) -> Self {
                $exp(self)
            }
            fn ln(self) -> Self {
                $ln(self)
            }
            fn tanh(self) -> Self {
                $tanh(self)
            }
        }
    };
}
real!(f32, libm::expf, libm::logf, libm::tanhf);
real!(f64, libm::exp, libm::log, libm::tanh);

/// The state carried from one batch to the next: for each layer the cells and the outputs, `[row][unit]`.
#[derive(Debug, Clone, PartialEq)]
pub struct State<T> {
    cells: Vec<Vec<T>>,
    shown: Vec<Vec<T>>,
}

impl<T: Real> State<T> {
    /// The state before anything was read.
    #[must_use]
    pub fn zero(config: &ModelConfig, rows: usize) -> Self {
        let zeros = |size: usize| vec![vec![T::of(0.0); rows * size]; config.layers];
        Self { cells: zeros(config.hidden), shown: zeros(config.shown()) }
    }
}

/// The model over one float.
#[derive(Debug, Clone)]
pub struct Reference<T> {
    config: ModelConfig,
    layout: ParameterLayout,
    /// The flat vector of parameters.
    pub values: Vec<T>,
}

/// Soft labels: what is to be predicted as a distribution, `truth` for the target and the rest as `labels` say (Popov et al. 2018,
/// equation 2, where the rest is `(1 - lambda) p(w | theta_g)`). Together they add up to 1.
#[derive(Debug, Clone, Copy)]
pub struct Soft<'a, T> {
    /// lambda: the share of the target.
    pub truth: T,
    /// The shares of all entries, `[step][row][entry]`.
    pub labels: &'a [T],
}

/// What one step of one layer computed, for the way back.
struct LayerStep<T> {
    /// `[x, h']` of each row.
    entered: Vec<T>,
    /// Each gate after its activation.
    gates: Vec<Vec<T>>,
    cell_before: Vec<T>,
    cell: Vec<T>,
    units: Vec<T>,
    shown: Vec<T>,
}

/// What one step computed.
struct Step<T> {
    layers: Vec<LayerStep<T>>,
    output_in: Vec<T>,
    output: Vec<T>,
    /// Probabilities, `[row][entry]`.
    probabilities: Vec<T>,
    /// The logarithm of each row's sum of exponentials.
    log_sums: Vec<T>,
}

fn sigmoid<T: Real>(x: T) -> T {
    T::of(1.0) / (T::of(1.0) + (-x).exp())
}

/// `out[row] += in[row] * matrix` for a matrix `[rows_in][columns]`.
fn multiply_add<T: Real>(out: &mut [T], input: &[T], matrix: &[T], rows_in: usize, columns: usize) {
    for (out, input) in out.chunks_exact_mut(columns).zip(input.chunks_exact(rows_in)) {
        for (x, row) in input.iter().zip(matrix.chunks_exact(columns)) {
            out.iter_mut().zip(row).for_each(|(o, w)| *o += *x * *w);
        }
    }
}

/// `out[row] += in[row] * matrix^T`.
fn multiply_transposed_add<T: Real>(out: &mut [T], input: &[T], matrix: &[T], rows_out: usize, columns: usize) {
    for (out, input) in out.chunks_exact_mut(rows_out).zip(input.chunks_exact(columns)) {
        for (o, row) in out.iter_mut().zip(matrix.chunks_exact(columns)) {
            *o += row.iter().zip(input).map(|(w, x)| *w * *x).sum();
        }
    }
}

/// `gradient += in^T * out` over all rows.
fn outer_add<T: Real>(gradient: &mut [T], input: &[T], out: &[T], rows_in: usize, columns: usize) {
    for (input, out) in input.chunks_exact(rows_in).zip(out.chunks_exact(columns)) {
        for (x, row) in input.iter().zip(gradient.chunks_exact_mut(columns)) {
            row.iter_mut().zip(out).for_each(|(g, o)| *g += *x * *o);
        }
    }
}

fn add_rows<T: Real>(sum: &mut [T], rows: &[T]) {
    for row in rows.chunks_exact(sum.len()) {
        sum.iter_mut().zip(row).for_each(|(s, r)| *s += *r);
    }
}

impl<T: Real> Reference<T> {
    /// A model with these parameters.
    ///
    /// # Panics
    /// When there are not as many as the model has.
    #[must_use]
    pub fn new(config: ModelConfig, layout: ParameterLayout, values: Vec<T>) -> Self {
        assert_eq!(layout.len(), values.len(), "the parameters are not those of the model");
        Self { config, layout, values }
    }

    fn get(&self, role: Role) -> &[T] {
        &self.values[self.layout.range(role)]
    }

    /// The summed loss (natural logarithm) of a batch; the state moves on.
    pub fn loss(&self, batch: &Batch<'_>, state: &mut State<T>, masks: Option<&Masks>) -> T {
        let steps = self.forward(batch, state, masks);
        self.summed_loss(batch, &steps, None)
    }

    /// The summed loss against soft labels (Popov et al. 2018, equation 1); the state moves on.
    pub fn loss_towards(&self, batch: &Batch<'_>, state: &mut State<T>, soft: Soft<'_, T>) -> T {
        let steps = self.forward(batch, state, None);
        self.summed_loss(batch, &steps, Some(soft))
    }

    /// The same, and the gradient of its mean over the targets that count, added to `gradient`.
    pub fn loss_and_gradient_towards(
        &self,
        batch: &Batch<'_>,
        state: &mut State<T>,
        soft: Soft<'_, T>,
        gradient: &mut [T],
    ) -> T {
        let steps = self.forward(batch, state, None);
        self.backward(batch, &steps, None, Some(soft), gradient);
        self.summed_loss(batch, &steps, Some(soft))
    }

    /// The summed loss, and the gradient of the mean loss over the targets that count, added to `gradient`.
    pub fn loss_and_gradient(
        &self,
        batch: &Batch<'_>,
        state: &mut State<T>,
        masks: Option<&Masks>,
        gradient: &mut [T],
    ) -> T {
        let steps = self.forward(batch, state, masks);
        self.backward(batch, &steps, masks, None, gradient);
        self.summed_loss(batch, &steps, None)
    }

    /// The probabilities of every entry after each step, `[step][row][entry]`.
    pub fn probabilities(&self, batch: &Batch<'_>, state: &mut State<T>) -> Vec<T> {
        self.forward(batch, state, None).into_iter().flat_map(|s| s.probabilities).collect()
    }

    fn summed_loss(&self, batch: &Batch<'_>, steps: &[Step<T>], soft: Option<Soft<'_, T>>) -> T {
        let size = self.config.output();
        let table = &self.values[self.layout.output_embedding()];
        let bias = self.get(Role::OutputBias);
        let logit = |target: usize, output: &[T]| -> T {
            let row = &table[target * size..(target + 1) * size];
            let product: T = row.iter().zip(output).map(|(w, o)| *w * *o).sum();
            product + bias.get(target).copied().unwrap_or(T::of(0.0))
        };
        let wanted = |place: usize, target: u32, output: &[T]| match soft {
            None => logit(target as usize, output),
            Some(Soft { truth, labels }) => {
                let labels = labels.chunks_exact(self.config.vocabulary).nth(place).unwrap_or_default();
                let rest: T = labels.iter().enumerate().map(|(entry, share)| *share * logit(entry, output)).sum();
                truth * logit(target as usize, output) + rest
            }
        };
        let of_step = |(t, (targets, step)): (usize, (&[u32], &Step<T>))| -> T {
            let rows = targets.iter().zip(step.output.chunks_exact(size)).zip(&step.log_sums).enumerate();
            let counted = rows.filter(|(_, ((target, _), _))| **target != Batch::NONE);
            counted.map(|(row, ((target, o), sum))| *sum - wanted(t * batch.rows + row, *target, o)).sum()
        };
        batch.targets.chunks_exact(batch.rows).zip(steps).enumerate().map(of_step).sum()
    }

    fn forward(&self, batch: &Batch<'_>, state: &mut State<T>, masks: Option<&Masks>) -> Vec<Step<T>> {
        let steps = batch.inputs.chunks_exact(batch.rows).enumerate();
        steps.map(|(t, inputs)| self.forward_step(inputs, batch, state, masks, t)).collect()
    }

    fn forward_step(
        &self,
        inputs: &[u32],
        batch: &Batch<'_>,
        state: &mut State<T>,
        masks: Option<&Masks>,
        t: usize,
    ) -> Step<T> {
        let (config, embedding) = (&self.config, self.get(Role::Embedding));
        let size = config.embedding;
        let mut x: Vec<T> = Vec::new();
        for id in inputs {
            x.extend_from_slice(&embedding[*id as usize * size..(*id as usize + 1) * size]);
            x.extend(batch.context.iter().map(|v| T::of(f64::from(*v))));
        }
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            apply_mask(&mut x, masks, layer, t);
            let step = self.forward_layer(layer, &x, state);
            x = step.shown.clone();
            layers.push(step);
        }
        apply_mask(&mut x, masks, config.layers, t);
        let (output, probabilities, log_sums) = self.forward_output(&x, inputs.len());
        Step { layers, output_in: x, output, probabilities, log_sums }
    }

    fn forward_layer(&self, layer: usize, x: &[T], state: &mut State<T>) -> LayerStep<T> {
        let config = &self.config;
        let (below, shown, hidden) = (config.layer_input(layer), config.shown(), config.hidden);
        let rows = x.len() / below;
        let before = state.shown[layer].clone();
        let cell_before = state.cells[layer].clone();
        let mut entered = Vec::with_capacity(rows * (below + shown));
        for (x, h) in x.chunks_exact(below).zip(before.chunks_exact(shown)) {
            entered.extend_from_slice(x);
            entered.extend_from_slice(h);
        }
        let gate = |gate: Gate, entered: &[T]| -> Vec<T> {
            let mut sums = self.get(Role::GateBias { layer, gate }).repeat(rows);
            multiply_add(&mut sums, entered, self.get(Role::GateKernel { layer, gate }), below + shown, hidden);
            let activate = if gate == Gate::Candidate { T::tanh } else { sigmoid };
            sums.into_iter().map(activate).collect()
        };
        let (gates, cell, units) = match config.cell {
            Cell::Gru => {
                let (update, reset) = (gate(Gate::Update, &entered), gate(Gate::Reset, &entered));
                let candidate = gate(Gate::Candidate, &reset_state(&entered, &reset, below, hidden));
                let one = T::of(1.0);
                let units: Vec<T> =
                    (0..update.len()).map(|j| (one - update[j]) * before[j] + update[j] * candidate[j]).collect();
                (vec![update, reset, candidate], cell_before.clone(), units)
            }
            Cell::Lstm | Cell::Cifg => {
                let gates: Vec<Vec<T>> = config.cell.gates().iter().map(|g| gate(*g, &entered)).collect();
                let [input, forget, candidate, output] = lstm_gates(config.cell, &gates);
                let cell: Vec<T> =
                    (0..cell_before.len()).map(|j| forget(j) * cell_before[j] + input(j) * candidate(j)).collect();
                let units = cell.iter().enumerate().map(|(j, c)| output(j) * c.tanh()).collect();
                drop((input, forget, candidate, output));
                (gates, cell, units)
            }
        };
        let shown_now = match config.recurrent_projection {
            None => units.clone(),
            Some(projection) => {
                let mut out = vec![T::of(0.0); rows * projection];
                multiply_add(&mut out, &units, self.get(Role::Projection { layer }), hidden, projection);
                out
            }
        };
        state.cells[layer].clone_from(&cell);
        state.shown[layer].clone_from(&shown_now);
        LayerStep { entered, gates, cell_before, cell, units, shown: shown_now }
    }

    fn forward_output(&self, x: &[T], rows: usize) -> (Vec<T>, Vec<T>, Vec<T>) {
        let config = &self.config;
        let output = match config.dense {
            None => x.to_vec(),
            Some(dense) => {
                let mut out = self.get(Role::DenseBias).repeat(rows);
                multiply_add(&mut out, x, self.get(Role::DenseKernel), config.shown(), dense);
                out
            }
        };
        let mut logits = if config.output_bias {
            self.get(Role::OutputBias).repeat(rows)
        } else {
            vec![T::of(0.0); rows * config.vocabulary]
        };
        let embedding = &self.values[self.layout.output_embedding()];
        multiply_transposed_add(&mut logits, &output, embedding, config.vocabulary, config.output());
        let log_sums = logits.chunks_exact_mut(config.vocabulary).map(softmax).collect();
        (output, logits, log_sums)
    }

    fn backward(
        &self,
        batch: &Batch<'_>,
        steps: &[Step<T>],
        masks: Option<&Masks>,
        soft: Option<Soft<'_, T>>,
        gradient: &mut [T],
    ) {
        let config = &self.config;
        let zeros = |size: usize| vec![vec![T::of(0.0); batch.rows * size]; config.layers];
        let (mut d_cells, mut d_shown) = (zeros(config.hidden), zeros(config.shown()));
        let scale = T::of(1.0 / batch.counted().max(1) as f64);
        for (t, step) in steps.iter().enumerate().rev() {
            let at = t * batch.rows..(t + 1) * batch.rows;
            let soft = soft.map(|soft| Soft {
                labels: &soft.labels[at.start * config.vocabulary..at.end * config.vocabulary],
                ..soft
            });
            let mut d_above = self.backward_output(step, &batch.targets[at.clone()], scale, soft, gradient);
            apply_mask(&mut d_above, masks, config.layers, t);
            for layer in (0..config.layers).rev() {
                d_shown[layer].iter_mut().zip(&d_above).for_each(|(d, a)| *d += *a);
                d_above =
                    self.backward_layer(layer, &step.layers[layer], &mut d_cells[layer], &mut d_shown[layer], gradient);
                apply_mask(&mut d_above, masks, layer, t);
            }
            let below = config.layer_input(0);
            let table = self.layout.range(Role::Embedding);
            for (id, d) in batch.inputs[at].iter().zip(d_above.chunks_exact(below)) {
                let row = table.start + *id as usize * config.embedding;
                gradient[row..row + config.embedding].iter_mut().zip(d).for_each(|(g, d)| *g += *d);
            }
        }
    }

    /// The gradient with respect to what enters the output.
    fn backward_output(
        &self,
        step: &Step<T>,
        targets: &[u32],
        scale: T,
        soft: Option<Soft<'_, T>>,
        gradient: &mut [T],
    ) -> Vec<T> {
        let config = &self.config;
        let mut d_logits = step.probabilities.clone();
        for (n, (row, target)) in d_logits.chunks_exact_mut(config.vocabulary).zip(targets).enumerate() {
            match *target {
                Batch::NONE => row.fill(T::of(0.0)),
                target => {
                    row[target as usize] += -soft.map_or(T::of(1.0), |soft| soft.truth);
                    if let Some(Soft { labels, .. }) = soft {
                        let labels = &labels[n * config.vocabulary..(n + 1) * config.vocabulary];
                        row.iter_mut().zip(labels).for_each(|(d, share)| *d = *d - *share);
                    }
                    row.iter_mut().for_each(|d| *d = *d * scale);
                }
            }
        }
        if config.output_bias {
            add_rows(&mut gradient[self.layout.range(Role::OutputBias)], &d_logits);
        }
        let table = self.layout.output_embedding();
        let size = config.output();
        let mut d_output = vec![T::of(0.0); step.output.len()];
        multiply_add(&mut d_output, &d_logits, &self.values[table.clone()], config.vocabulary, size);
        outer_add(&mut gradient[table], &d_logits, &step.output, config.vocabulary, size);
        let Some(dense) = config.dense else { return d_output };
        add_rows(&mut gradient[self.layout.range(Role::DenseBias)], &d_output);
        outer_add(
            &mut gradient[self.layout.range(Role::DenseKernel)],
            &step.output_in,
            &d_output,
            config.shown(),
            dense,
        );
        let mut d_in = vec![T::of(0.0); step.output_in.len()];
        multiply_transposed_add(&mut d_in, &d_output, self.get(Role::DenseKernel), config.shown(), dense);
        d_in
    }

    /// Takes the gradients with respect to a layer's cells and what it showed; leaves those of the step before in them, and
    /// returns the gradient with respect to what entered from below.
    fn backward_layer(
        &self,
        layer: usize,
        step: &LayerStep<T>,
        d_cell: &mut [T],
        d_shown: &mut [T],
        gradient: &mut [T],
    ) -> Vec<T> {
        let config = &self.config;
        let (below, shown, hidden) = (config.layer_input(layer), config.shown(), config.hidden);
        let d_units = match config.recurrent_projection {
            None => d_shown.to_vec(),
            Some(projection) => {
                let role = Role::Projection { layer };
                outer_add(&mut gradient[self.layout.range(role)], &step.units, d_shown, hidden, projection);
                let mut d = vec![T::of(0.0); step.units.len()];
                multiply_transposed_add(&mut d, d_shown, self.get(role), hidden, projection);
                d
            }
        };
        let mut d_entered = vec![T::of(0.0); step.entered.len()];
        let mut back = |gate: Gate, entered: &[T], d_sum: &[T], d_entered: &mut [T]| {
            let kernel = Role::GateKernel { layer, gate };
            add_rows(&mut gradient[self.layout.range(Role::GateBias { layer, gate })], d_sum);
            outer_add(&mut gradient[self.layout.range(kernel)], entered, d_sum, below + shown, hidden);
            multiply_transposed_add(d_entered, d_sum, self.get(kernel), below + shown, hidden);
        };
        let one = T::of(1.0);
        let mut d_before = vec![T::of(0.0); d_shown.len()];
        match config.cell {
            Cell::Gru => {
                let [update, reset, candidate] = [&step.gates[0], &step.gates[1], &step.gates[2]];
                let before = |j: usize| step.entered[(j / hidden) * (below + shown) + below + j % hidden];
                let d_candidate: Vec<T> =
                    (0..d_units.len()).map(|j| d_units[j] * update[j] * (one - candidate[j] * candidate[j])).collect();
                let d_update: Vec<T> = (0..d_units.len())
                    .map(|j| d_units[j] * (candidate[j] - before(j)) * update[j] * (one - update[j]))
                    .collect();
                let entered = reset_state(&step.entered, reset, below, hidden);
                let mut d_reset_entered = vec![T::of(0.0); step.entered.len()];
                back(Gate::Candidate, &entered, &d_candidate, &mut d_reset_entered);
                let d_reset_state = |j: usize| d_reset_entered[(j / hidden) * (below + shown) + below + j % hidden];
                let d_reset: Vec<T> =
                    (0..d_units.len()).map(|j| d_reset_state(j) * before(j) * reset[j] * (one - reset[j])).collect();
                back(Gate::Update, &step.entered, &d_update, &mut d_entered);
                back(Gate::Reset, &step.entered, &d_reset, &mut d_entered);
                for (d, from) in
                    d_entered.chunks_exact_mut(below + shown).zip(d_reset_entered.chunks_exact(below + shown))
                {
                    d[..below].iter_mut().zip(from).for_each(|(d, f)| *d += *f);
                }
                for (j, d) in d_before.iter_mut().enumerate() {
                    *d = d_units[j] * (one - update[j]) + d_reset_state(j) * reset[j];
                }
            }
            Cell::Lstm | Cell::Cifg => {
                let [input, forget, candidate, output] = lstm_gates(config.cell, &step.gates);
                let tanh: Vec<T> = step.cell.iter().map(|c| c.tanh()).collect();
                for (j, d) in d_cell.iter_mut().enumerate() {
                    *d += d_units[j] * output(j) * (one - tanh[j] * tanh[j]);
                }
                let slope = |s: T| s * (one - s);
                let d_sum = |gate: Gate| -> Vec<T> {
                    let of = |j: usize| match gate {
                        Gate::Input if config.cell == Cell::Cifg => {
                            d_cell[j] * (candidate(j) - step.cell_before[j]) * slope(input(j))
                        }
                        Gate::Input => d_cell[j] * candidate(j) * slope(input(j)),
                        Gate::Forget => d_cell[j] * step.cell_before[j] * slope(forget(j)),
                        Gate::Candidate => d_cell[j] * input(j) * (one - candidate(j) * candidate(j)),
                        _ => d_units[j] * tanh[j] * slope(output(j)),
                    };
                    (0..d_units.len()).map(of).collect()
                };
                for gate in config.cell.gates().iter().copied() {
                    back(gate, &step.entered, &d_sum(gate), &mut d_entered);
                }
                for (j, d) in d_cell.iter_mut().enumerate() {
                    *d = *d * forget(j);
                }
            }
        }
        let mut d_below = Vec::with_capacity(d_entered.len());
        for (d, before) in d_entered.chunks_exact(below + shown).zip(d_before.chunks_exact_mut(shown)) {
            d_below.extend_from_slice(&d[..below]);
            before.iter_mut().zip(&d[below..]).for_each(|(b, d)| *b += *d);
        }
        d_shown.copy_from_slice(&d_before);
        d_below
    }
}

/// `[x, r h']` from `[x, h']`.
fn reset_state<T: Real>(entered: &[T], reset: &[T], below: usize, hidden: usize) -> Vec<T> {
    let mut out = entered.to_vec();
    for (row, reset) in out.chunks_exact_mut(below + hidden).zip(reset.chunks_exact(hidden)) {
        row[below..].iter_mut().zip(reset).for_each(|(h, r)| *h = *h * *r);
    }
    out
}

type GateValue<'a, T> = Box<dyn Fn(usize) -> T + 'a>;

/// Input, forget, candidate and output gate of an LSTM, whose forget gate may be coupled.
fn lstm_gates<T: Real>(cell: Cell, gates: &[Vec<T>]) -> [GateValue<'_, T>; 4] {
    let at = |g: usize| -> GateValue<'_, T> { Box::new(move |j| gates[g][j]) };
    match cell {
        Cell::Cifg => [at(0), Box::new(move |j| T::of(1.0) - gates[0][j]), at(1), at(2)],
        _ => [at(0), at(1), at(2), at(3)],
    }
}

fn apply_mask<T: Real>(values: &mut [T], masks: Option<&Masks>, place: usize, step: usize) {
    if let Some(masks) = masks {
        let factors = &masks[place][step * values.len()..(step + 1) * values.len()];
        values.iter_mut().zip(factors).for_each(|(v, m)| *v = *v * T::of(f64::from(*m)));
    }
}

/// Replaces logits by probabilities; the logarithm of the sum of their exponentials.
fn softmax<T: Real>(logits: &mut [T]) -> T {
    let largest = logits.iter().copied().fold(logits[0], |a, b| if b > a { b } else { a });
    logits.iter_mut().for_each(|l| *l = (*l - largest).exp());
    let sum: T = logits.iter().copied().sum();
    logits.iter_mut().for_each(|l| *l = *l / sum);
    largest + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::{super::config::Token, *};

    fn config(cell: Cell) -> ModelConfig {
        ModelConfig {
            token: Token::Word,
            vocabulary: 7,
            embedding: 3,
            cell,
            layers: 2,
            hidden: 4,
            recurrent_projection: None,
            dense: None,
            tied: false,
            output_bias: true,
            unit_norm: false,
            dropout: None,
            user_context: None,
        }
    }

    /// Values that look random.
    fn values(len: usize, seed: u64) -> Vec<f64> {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) as f64 / (1u64 << 31) as f64 - 0.5
        };
        (0..len).map(|_| next()).collect()
    }

    /// What else a gradient depends on.
    #[derive(Clone, Copy, PartialEq)]
    enum With {
        Nothing,
        Masks,
        SoftLabels,
    }

    fn check_gradient(config: ModelConfig, with: With) {
        let layout = ParameterLayout::new(&config).unwrap();
        let mut model = Reference::new(config.clone(), layout.clone(), values(layout.len(), 1));
        let (rows, steps) = (2, 5);
        let inputs: Vec<u32> = (0..10).map(|i| (i * 3) % 7).collect();
        let mut targets: Vec<u32> = (0..10).map(|i| (i * 5 + 2) % 7).collect();
        targets[3] = Batch::NONE;
        let context = [0.3, -0.7];
        let context = &context[..config.user_context.unwrap_or(0)];
        let batch = Batch { rows, inputs: &inputs, targets: &targets, context };
        let mut start = State::zero(&config, rows);
        start.cells.iter_mut().chain(&mut start.shown).for_each(|v| {
            let len = v.len();
            v.copy_from_slice(&values(len, 9)[..len]);
        });
        let sizes = (0..=config.layers).map(|l| if l < config.layers { config.layer_input(l) } else { config.shown() });
        let masks: Masks = sizes.map(|s| (0..steps * rows * s).map(|i| [0.0, 2.0, 1.25][i % 3]).collect()).collect();
        let masks = (with == With::Masks).then_some(&masks);
        // Of another model, as the papers have it: three quarters for what it says, the rest for the target.
        let other = Reference::new(config.clone(), layout.clone(), values(layout.len(), 4));
        let labels: Vec<f64> =
            other.probabilities(&batch, &mut start.clone()).into_iter().map(|share| 0.75 * share).collect();
        let soft = (with == With::SoftLabels).then_some(Soft { truth: 0.25, labels: &labels });

        let mut gradient = vec![0.0; layout.len()];
        let here = match soft {
            None => model.loss_and_gradient(&batch, &mut start.clone(), masks, &mut gradient),
            Some(soft) => model.loss_and_gradient_towards(&batch, &mut start.clone(), soft, &mut gradient),
        };
        let loss = |model: &Reference<f64>| match soft {
            None => model.loss(&batch, &mut start.clone(), masks),
            Some(soft) => model.loss_towards(&batch, &mut start.clone(), soft),
        };
        assert!((here - loss(&model)).abs() < 1e-12);
        let step = 1e-5;
        for (i, (v, base)) in gradient.iter().zip(values(layout.len(), 1)).enumerate() {
            let mut at = |value: f64| {
                let kept = std::mem::replace(&mut model.values[i], value);
                let loss = loss(&model) / batch.counted() as f64;
                model.values[i] = kept;
                loss
            };
            let here = (at(base + step) - at(base - step)) / (2.0 * step);
            assert!((v - here).abs() < 1e-8 + 1e-6 * here.abs(), "{:?} parameter {i}: {v} against {here}", config.cell);
        }
    }

    /// With the whole share on the target, soft labels are none.
    #[test]
    fn soft_labels_of_the_target_alone_are_none() {
        let config = config(Cell::Lstm);
        let layout = ParameterLayout::new(&config).unwrap();
        let model = Reference::new(config.clone(), layout.clone(), values(layout.len(), 1));
        let batch = Batch { rows: 1, inputs: &[1, 2, 3], targets: &[2, Batch::NONE, 4], context: &[] };
        let (mut hard, mut soft) = (vec![0.0; layout.len()], vec![0.0; layout.len()]);
        let want = model.loss_and_gradient(&batch, &mut State::zero(&config, 1), None, &mut hard);
        let none = Soft { truth: 1.0, labels: &[0.0; 21] };
        let got = model.loss_and_gradient_towards(&batch, &mut State::zero(&config, 1), none, &mut soft);
        assert_eq!((got, soft), (want, hard));
    }

    #[test]
    fn gradients_equal_finite_differences() {
        for cell in [Cell::Lstm, Cell::Cifg, Cell::Gru] {
            check_gradient(config(cell), With::Nothing);
            check_gradient(config(cell), With::SoftLabels);
            check_gradient(config(cell), With::Masks);
        }
        for cell in [Cell::Lstm, Cell::Cifg] {
            check_gradient(ModelConfig { recurrent_projection: Some(3), ..config(cell) }, With::Masks);
            let tied =
                ModelConfig { dense: Some(3), tied: true, output_bias: false, user_context: Some(2), ..config(cell) };
            check_gradient(tied.clone(), With::Masks);
            check_gradient(tied, With::SoftLabels);
        }
    }
}
