//! The tests that every trainer of one model on public text must pass.

use lm::{
    kernels::KernelPath,
    model::{
        batch::Batch,
        config::{Dropout, DropoutKind, ModelConfig},
        initial::initial_parameters,
    },
};

use crate::engine::{
    Means,
    central::{Central, CentralTrainer, OnThread},
};

const ROWS: usize = 3;
const UNROLL: usize = 6;
const RATE: f32 = 0.5;
const VOCABULARY: usize = 40;

/// The suite for trainers that `make` makes: what they learn is what a thread learns with the best kernels of this machine. How far their
/// parameters, losses and carried states may be from its own is the share `tolerance` of how far all that has moved; 0 asks for the same bits.
///
/// ```ignore
/// contract::central_trainer(&|central| trainer(central, means).unwrap(), 0.0);
/// ```
pub fn central_trainer(make: &dyn Fn(Central<'_>) -> Box<dyn CentralTrainer>, tolerance: f64) {
    let tiny = ModelConfig { dropout: None, ..ModelConfig::preset("tiny").unwrap().with_vocabulary(VOCABULARY) };
    let drops = ModelConfig { dropout: Some(Dropout { rate: 0.3, kind: DropoutKind::PerStep }), ..tiny.clone() };
    let text = Text::new(10);
    for config in [tiny, drops] {
        let central = Central { config: &config, rows: ROWS, unroll: UNROLL, seed: 3 };
        let trial = Trial { first: initial_parameters(&config, 2).unwrap(), batches: text.batches() };
        let mut trainer = make(central);
        assert!(trainer.at_a_time() > 0);
        trial.what_is_loaded_is_stored(&mut *trainer);
        trial.it_learns_what_a_thread_learns(&mut *trainer, central, tolerance);
        trial.measuring_changes_nothing(&mut *trainer);
        trial.it_goes_on_where_it_was_stopped(&mut *trainer, &mut *make(central));
        trial.what_is_forgotten_is_gone(&mut *trainer);
        trial.a_bound_is_kept(&mut *make(central));
    }
}

/// A text in which every word follows from the one before.
struct Text(Vec<(Vec<u32>, Vec<u32>)>);

impl Text {
    /// So many batches, the last of them shorter.
    fn new(batches: u32) -> Self {
        let batch = |number: u32| {
            let steps = if number + 1 == batches { UNROLL - 2 } else { UNROLL };
            let words = VOCABULARY as u32 - 3;
            let inputs: Vec<u32> = (0..(ROWS * steps) as u32).map(|i| 3 + (i * 5 + number * 7) % words).collect();
            let targets = inputs.iter().map(|id| 3 + (id + 1) % words).collect();
            (inputs, targets)
        };
        Self((0..batches).map(batch).collect())
    }

    fn batches(&self) -> Vec<Batch<'_>> {
        self.0.iter().map(|(inputs, targets)| Batch { rows: ROWS, inputs, targets, context: &[] }).collect()
    }
}

/// What a reading comes to: parameters, what is carried, losses.
type Read = (Vec<f32>, Vec<f32>, f64);

struct Trial<'a> {
    first: Vec<f32>,
    batches: Vec<Batch<'a>>,
}

impl Trial<'_> {
    fn parameters(&self, trainer: &mut dyn CentralTrainer) -> Vec<f32> {
        let mut parameters = vec![0.0; self.first.len()];
        trainer.store(&mut parameters).expect("it is not broken");
        parameters
    }

    /// Reads all but the last batch, which would end the reading, so many at a time.
    fn read(&self, trainer: &mut dyn CentralTrainer, at_a_time: usize) -> Read {
        trainer.load(&self.first).expect("these are the model's");
        let (mut loss, mut number) = (0.0, 0);
        for batches in self.batches[..self.batches.len() - 1].chunks(at_a_time) {
            loss += trainer.learn(batches, RATE, number).expect("it is not broken");
            number += batches.len() as u64;
        }
        let state = trainer.state().expect("it is not broken");
        assert_eq!(state.len(), trainer.state_len(), "a state of another size");
        (self.parameters(trainer), state, loss)
    }

    fn what_is_loaded_is_stored(&self, trainer: &mut dyn CentralTrainer) {
        trainer.load(&self.first).expect("these are the model's");
        assert!(self.parameters(trainer) == self.first, "other parameters than were loaded");
    }

    fn it_learns_what_a_thread_learns(&self, trainer: &mut dyn CentralTrainer, central: Central<'_>, tolerance: f64) {
        let mut thread = OnThread::new(central, Means::threads(KernelPath::best(), 1)).unwrap();
        let wanted = self.read(&mut thread, 1);
        let own = self.read(trainer, self.batches.len());
        assert!(own.0 != self.first && own.0.iter().all(|value| value.is_finite()), "nothing is learned");
        let nothing = vec![0.0; wanted.1.len()];
        for (what, off) in [
            ("parameters", apart(&own.0, &wanted.0, &self.first)),
            ("what is carried", apart(&own.1, &wanted.1, &nothing)),
            ("the loss", (own.2 / wanted.2 - 1.0).abs()),
        ] {
            assert!(off <= tolerance, "{what}: {off:e} off what a thread learns");
        }
        for at_a_time in [1, 4] {
            let pieces = self.read(trainer, at_a_time);
            assert!((&pieces.0, &pieces.1) == (&own.0, &own.1), "{at_a_time} at a time come to other bits");
        }
    }

    fn measuring_changes_nothing(&self, trainer: &mut dyn CentralTrainer) {
        let (learned, ..) = self.read(trainer, 1);
        trainer.forget();
        let after = trainer.measure(&self.batches).expect("it is not broken");
        assert!(self.parameters(trainer) == learned, "measuring is learning");
        trainer.load(&self.first).expect("these are the model's");
        let before = trainer.measure(&self.batches).expect("it is not broken");
        assert!(after < before, "it did not learn: {before} before, {after} after");
        trainer.forget();
        let again = trainer.measure(&self.batches).expect("it is not broken");
        assert!(again.to_bits() == before.to_bits(), "another loss the second time: {again}, {before}");
    }

    fn it_goes_on_where_it_was_stopped(&self, trainer: &mut dyn CentralTrainer, other: &mut dyn CentralTrainer) {
        let (whole, ..) = self.read(trainer, 1);
        trainer.load(&self.first).expect("these are the model's");
        trainer.learn(&self.batches[..4], RATE, 0).expect("it is not broken");
        let (stopped, state) = (self.parameters(trainer), trainer.state().expect("it is not broken"));
        assert!(state.iter().any(|value| *value != 0.0), "nothing is carried from batch to batch");
        other.load(&stopped).expect("these are the model's");
        other.set_state(&state).expect("it is of the same model");
        other.learn(&self.batches[4..self.batches.len() - 1], RATE, 4).expect("it is not broken");
        assert!(self.parameters(other) == whole, "other bits after a stop");
    }

    fn what_is_forgotten_is_gone(&self, trainer: &mut dyn CentralTrainer) {
        trainer.load(&self.first).expect("these are the model's");
        trainer.learn(&self.batches[..3], RATE, 0).expect("it is not broken");
        let stopped = self.parameters(trainer);
        let mut go_on = |forget: &dyn Fn(&mut dyn CentralTrainer)| {
            forget(trainer);
            trainer.learn(&self.batches[3..5], RATE, 3).expect("it is not broken");
            let came = self.parameters(trainer);
            trainer.load(&stopped).expect("these are the model's");
            came
        };
        let forgotten = go_on(&|trainer| trainer.forget());
        let loaded = go_on(&|_| {});
        assert!(forgotten == loaded, "something of what was read before is left");
        // After the last, shorter batch too.
        trainer.load(&self.first).expect("these are the model's");
        trainer.learn(&self.batches[self.batches.len() - 1..], RATE, 0).expect("it is not broken");
        let ended = self.parameters(trainer);
        trainer.forget();
        trainer.learn(&self.batches[..1], RATE, 1).expect("it is not broken");
        let forgotten = self.parameters(trainer);
        trainer.load(&ended).expect("these are the model's");
        trainer.learn(&self.batches[..1], RATE, 1).expect("it is not broken");
        assert!(self.parameters(trainer) == forgotten, "something of the last batch is left");
    }

    /// Where it says that it bounds its steps, it does.
    fn a_bound_is_kept(&self, trainer: &mut dyn CentralTrainer) {
        const MOST: f32 = 0.01;
        if !trainer.clip(MOST).expect("it is not broken") {
            return;
        }
        trainer.load(&self.first).expect("these are the model's");
        let mut before = self.first.clone();
        for (number, batch) in self.batches.iter().enumerate() {
            trainer.learn(&[*batch], RATE, number as u64).expect("it is not broken");
            let after = self.parameters(trainer);
            let moved = length(&after, &before);
            assert!(moved > 0.0 && moved <= f64::from(MOST * RATE) * 1.001, "a step of {moved}");
            before = after;
        }
    }
}

fn length(to: &[f32], from: &[f32]) -> f64 {
    libm::sqrt(to.iter().zip(from).map(|(to, from)| (f64::from(*to) - f64::from(*from)).powi(2)).sum::<f64>())
}

/// How far one is from what is wanted, as a share of how far that has moved.
fn apart(own: &[f32], wanted: &[f32], from: &[f32]) -> f64 {
    length(own, wanted) / length(wanted, from)
}
