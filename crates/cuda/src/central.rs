//! Central training of one model on public text on the GPU: the network of a chunk with one user, whose weights stay on the card.
//!
//! Some batches go up at a time, and a step is one graph. What is carried from batch to batch stays on the card too; it is brought
//! down and put back as `lm::model::fast` has it, so that a checkpoint of one trainer is one of any. Steps can be kept within a bound.

use device::local::{Algorithm, LocalPlan};
use federated::engine::{
    EngineError, Hardware, Means,
    central::{Central, CentralTrainer},
};
use lm::model::{batch::Batch, config::ModelConfig, dropout::MaskDrawer, parameters::ParameterLayout};

use crate::{
    bound::Bound,
    card::{Card, Graph},
    dropout::LeftOut,
    error::{CudaError, failed, unavailable},
    network::Network,
    placement::Placement,
    schedule::Schedule,
    shape::Shape,
};

/// Batches that go up at a time.
const AT_A_TIME: usize = 32;

/// A card that trains one model.
pub struct CardTrainer {
    config: ModelConfig,
    network: Network,
    learning: Option<Graph>,
    measuring: Option<Graph>,
    schedule: Schedule,
    /// The weights as they lie on the card.
    weights: Vec<f32>,
    reading: Reading,
    bound: Option<Bound>,
    hardware: Hardware,
    card: Card,
}

/// Where a reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Nothing was read: what is carried is zero.
    Begins,
    /// Something is carried.
    GoesOn,
    /// The last batch was shorter than the others, and nothing can follow it.
    Over,
}

/// What is done with batches.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// They are learned, the first of them as this step of the run.
    Learn { rate: f32, number: u64 },
    /// Evaluates without training.
    Measure,
}

impl CardTrainer {
    /// The trainer of a model.
    ///
    /// # Errors
    /// When there is no card, or it cannot train this.
    pub fn new(central: Central<'_>, means: Means) -> Result<Self, EngineError> {
        Self::make(central, means).map_err(unavailable)
    }

    fn make(central: Central<'_>, means: Means) -> Result<Self, CudaError> {
        let Central { config, rows, unroll, seed } = central;
        let layout = ParameterLayout::new(config).map_err(|e| CudaError::Refused(e.to_string()))?;
        let local = one_reading(rows, unroll);
        let shape = Shape::new(config, &local, 1)?;
        let placement = Placement::new(config, &layout, &shape);
        let card = Card::of_this_process()?;
        let (needed, free) =
            (Network::bytes(&shape, &placement, &local, means.options.precision) as u64, card.free()? as u64);
        if needed > free {
            return Err(CudaError::Memory { usable_mib: free >> 20, needed_mib: needed >> 20 });
        }
        let weights = vec![0.0; placement.length];
        let architecture = card.architecture()?;
        let network = Network::new(&card, shape, placement, &local, means.options.precision, &architecture)?;
        let left_out = MaskDrawer::new(config, seed).map(|drawer| LeftOut::new(&card, drawer, &shape)).transpose()?;
        Ok(Self {
            config: config.clone(),
            network: network.leaving_out(left_out),
            learning: None,
            measuring: None,
            schedule: Schedule::default(),
            weights,
            reading: Reading::Begins,
            bound: None,
            hardware: card.hardware()?,
            card,
        })
    }

    /// Does something with batches; their summed loss.
    fn work(&mut self, batches: &[Batch<'_>], work: Work) -> Result<f64, CudaError> {
        let mut loss = 0.0;
        let mut done = 0;
        // The masks of a batch that is shorter lie elsewhere.
        for alike in batches.chunk_by(|a, b| a.steps() == b.steps()) {
            for some in alike.chunks(AT_A_TIME) {
                let work = match work {
                    Work::Learn { rate, number } => Work::Learn { rate, number: number + done },
                    Work::Measure => Work::Measure,
                };
                loss += self.some(some, work)?;
                done += some.len() as u64;
            }
        }
        Ok(loss)
    }

    /// The same with batches of one length that go up together. Where a step of a model whose steps have a bound was not finite, they are
    /// learned one by one, and the step is taken back: what it was to learn from is read by the model that stays.
    fn some(&mut self, batches: &[Batch<'_>], work: Work) -> Result<f64, CudaError> {
        let began = self.reading;
        let learns = matches!(work, Work::Learn { .. });
        if let Some(bound) = self.bound.as_mut().filter(|_| learns) {
            bound.keep(&self.card, &mut self.network)?;
        }
        let loss = self.at_once(batches, work)?;
        let Some(bound) = self.bound.as_ref().filter(|_| learns) else { return Ok(loss) };
        if !bound.is_broken(&self.card)? {
            return Ok(loss);
        }
        bound.put_back(&self.card, &mut self.network)?;
        self.reading = began;
        let Work::Learn { rate, number } = work else { return Ok(loss) };
        if batches.len() == 1 {
            self.reading = Reading::Begins;
            return self.at_once(batches, Work::Measure);
        }
        let each = batches.chunks(1).zip(number..);
        each.map(|(one, number)| self.some(one, Work::Learn { rate, number })).sum()
    }

    /// The same, whatever comes of it.
    fn at_once(&mut self, batches: &[Batch<'_>], work: Work) -> Result<f64, CudaError> {
        let Some(first) = batches.first() else { return Ok(0.0) };
        self.check(batches, work)?;
        let Self { card, network, bound, .. } = self;
        let (rate, number) = match work {
            Work::Learn { rate, number } => (rate, Some(number)),
            Work::Measure => (0.0, None),
        };
        let (shape, lists) = (*network.shape(), network.lists());
        let begins = self.reading == Reading::Begins;
        self.schedule = std::mem::take(&mut self.schedule).of_batches(&shape, rate, batches, lists, begins);
        let stale = network.read(card, &self.schedule);
        if !matches!(stale, Ok(false)) {
            (self.learning, self.measuring) = (None, None);
        }
        stale?;
        if let Some(left_out) = network.left_out() {
            left_out.go_to(card, number, first.steps())?;
        }
        let within = || bound.as_ref().map_or(Ok(()), |bound| bound.bring_within(card, network));
        let graph = match work {
            Work::Learn { .. } => graph(&mut self.learning, card, || network.step(card, within))?,
            Work::Measure => graph(&mut self.measuring, card, || network.measure(card))?,
        };
        (0..batches.len()).try_for_each(|_| card.replay(graph))?;
        self.reading = if first.steps() < shape.unroll { Reading::Over } else { Reading::GoesOn };
        let mut loss = [0.0];
        card.download(&network.loss, &mut loss)?;
        Ok(loss[0])
    }

    /// Refuses what would be read or left out otherwise than on threads, and ids that the model does not have.
    fn check(&self, batches: &[Batch<'_>], work: Work) -> Result<(), CudaError> {
        let Shape { rows, unroll, vocabulary, .. } = *self.network.shape();
        let refused = |problem: &str| Err(CudaError::Refused(problem.to_owned()));
        // Beyond the table lie other weights, and an input that is none would be read, and moved, before it.
        let known = |id: &u32| (*id as usize) < vocabulary;
        let targets = |batch: &Batch<'_>| batch.targets.iter().all(|id| *id == Batch::NONE || known(id));
        let learns = matches!(work, Work::Learn { .. });
        if self.reading == Reading::Over || batches.iter().skip(1).any(|_| batches[0].steps() < unroll) {
            return refused("a batch that is shorter than the others ends a reading, and nothing was forgotten since");
        }
        if batches.iter().any(|batch| batch.rows > rows || batch.steps() > unroll) {
            return refused("the batch is larger than the trainer");
        }
        if learns && batches.iter().any(|batch| batch.rows != rows) {
            return refused("a batch that is learned has all of its sequences");
        }
        if batches.iter().any(|batch| !batch.inputs.iter().all(known) || !targets(batch)) {
            return refused("the batch names an entry that the vocabulary does not have");
        }
        if batches.iter().any(|batch| !batch.context.is_empty()) {
            return refused("public text has no features of users");
        }
        Ok(())
    }

    /// Brings down what is carried, or puts it back: one row of units after the other.
    fn each_carried(&mut self, mut visit: impl FnMut(&mut [f32]), puts_back: bool) -> Result<(), CudaError> {
        let (rows, unroll) = (self.network.shape().rows, self.network.shape().unroll);
        let units = [self.config.hidden, self.config.shown()];
        let Self { card, network, .. } = self;
        for [cells, states] in network.carried() {
            for ((memory, width), units) in [cells, states].into_iter().zip(units) {
                // A GRU has no cells: they read as zero.
                let is_there = memory.len() > 1;
                let (start, mut block) = (unroll * rows * width, vec![0.0; rows * width]);
                if is_there {
                    card.download_from(memory, start, &mut block)?;
                }
                block.chunks_exact_mut(width).for_each(|row| visit(&mut row[..units]));
                if puts_back && is_there {
                    card.upload_to(&block, memory, start)?;
                }
            }
        }
        Ok(())
    }
}

/// The graph of some work, recorded when it is first asked for.
fn graph<'a>(
    kept: &'a mut Option<Graph>,
    card: &Card,
    work: impl FnOnce() -> Result<(), CudaError>,
) -> Result<&'a Graph, CudaError> {
    if kept.is_none() {
        *kept = Some(card.record(work)?);
    }
    kept.as_ref().ok_or_else(|| CudaError::Refused("nothing was recorded".to_owned()))
}

/// What a network is told of batches that follow each other.
pub(crate) const fn one_reading(rows: usize, unroll: usize) -> LocalPlan {
    LocalPlan {
        algorithm: Algorithm::FedAvg { epochs: 1 },
        batch: rows,
        unroll,
        most_tokens: None,
        greedy: false,
        update_penalty: 0.0,
        finetune: None,
    }
}

impl CentralTrainer for CardTrainer {
    fn clip(&mut self, most: f32) -> Result<bool, EngineError> {
        self.learning = None;
        self.bound = Some(Bound::new(&self.card, &mut self.network, most).map_err(failed)?);
        Ok(true)
    }

    fn at_a_time(&self) -> usize {
        AT_A_TIME
    }

    fn hardware(&self) -> Option<Hardware> {
        Some(self.hardware)
    }

    fn load(&mut self, parameters: &[f32]) -> Result<(), EngineError> {
        let Self { card, network, weights, .. } = self;
        network.placement().put(parameters, weights);
        card.upload(weights, &mut network.weights).map_err(failed)?;
        self.forget();
        Ok(())
    }

    fn store(&mut self, parameters: &mut [f32]) -> Result<(), EngineError> {
        let Self { card, network, weights, .. } = self;
        card.download(&network.weights, weights).map_err(failed)?;
        network.placement().take(weights, parameters);
        Ok(())
    }

    fn forget(&mut self) {
        self.reading = Reading::Begins;
    }

    fn state_len(&self) -> usize {
        self.config.layers * self.network.shape().rows * (self.config.hidden + self.config.shown())
    }

    fn state(&mut self) -> Result<Vec<f32>, EngineError> {
        match self.reading {
            Reading::Begins => return Ok(vec![0.0; self.state_len()]),
            Reading::GoesOn => {}
            Reading::Over => {
                return Err(failed(CudaError::Refused("after its last batch a reading carries nothing".to_owned())));
            }
        }
        let mut state = Vec::with_capacity(self.state_len());
        self.each_carried(|row| state.extend_from_slice(row), false).map_err(failed)?;
        Ok(state)
    }

    fn set_state(&mut self, state: &[f32]) -> Result<(), EngineError> {
        if state.len() != self.state_len() {
            return Err(failed(CudaError::Refused("the state is that of another model".to_owned())));
        }
        let mut rest = state;
        let put = |row: &mut [f32]| {
            let (now, later) = rest.split_at(row.len());
            row.copy_from_slice(now);
            rest = later;
        };
        self.each_carried(put, true).map_err(failed)?;
        self.reading = Reading::GoesOn;
        Ok(())
    }

    fn learn(&mut self, batches: &[Batch<'_>], learning_rate: f32, number: u64) -> Result<f64, EngineError> {
        self.work(batches, Work::Learn { rate: learning_rate, number }).map_err(failed)
    }

    fn measure(&mut self, batches: &[Batch<'_>]) -> Result<f64, EngineError> {
        self.work(batches, Work::Measure).map_err(failed)
    }
}
