//! One model that learns public text on the card, where there is one: what a thread learns, with the same units left out; stopped and
//! gone on with to the bit. Where there is none, each of these says so and passes.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]
#![allow(clippy::print_stdout, reason = "what is skipped and what was found is said")]

use crate::card::has_card;
use cuda::{CUDA, CardTrainer};
use federated::engine::{
    EngineOptions, Means, Precision,
    central::{Central, CentralTrainer, Clipped, OnThread},
};
use lm::{
    kernels::KernelPath,
    model::{
        batch::Batch,
        config::{Cell, Dropout, DropoutKind, ModelConfig},
        initial::initial_parameters,
        parameters::{ParameterLayout, Role},
    },
};

const ROWS: usize = 6;
const UNROLL: usize = 9;
const RATE: f32 = 0.5;

/// Batches of words by Zipf's law, the last of them shorter.
struct Text(Vec<(Vec<u32>, Vec<u32>)>);

impl Text {
    fn new(vocabulary: usize, batches: usize) -> Self {
        let mut word = 77_u64;
        let mut next = || {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            let uniform = (word >> 40) as f64 / (1u64 << 24) as f64;
            (((vocabulary as f64).powf(uniform) - 1.0) as u32).min(vocabulary as u32 - 1)
        };
        let mut batch = |steps: usize| (0..ROWS * steps).map(|_| (next(), next())).unzip();
        let lengths = std::iter::repeat_n(UNROLL, batches - 1).chain([UNROLL - 4]);
        Self(lengths.map(&mut batch).collect())
    }

    fn batches(&self) -> Vec<Batch<'_>> {
        self.0.iter().map(|(inputs, targets)| Batch { rows: ROWS, inputs, targets, context: &[] }).collect()
    }
}

fn card(config: &ModelConfig, precision: Precision) -> Option<CardTrainer> {
    let options = EngineOptions { precision, ..EngineOptions::default() };
    let means = Means { engine: CUDA, options, ..Means::threads(KernelPath::best(), 1) };
    has_card().then(|| CardTrainer::new(central(config), means).unwrap_or_else(|e| panic!("{e}")))
}

const fn central(config: &ModelConfig) -> Central<'_> {
    Central { config, rows: ROWS, unroll: UNROLL, seed: 3 }
}

fn thread(config: &ModelConfig) -> OnThread {
    OnThread::new(central(config), Means::threads(KernelPath::best(), 1)).unwrap()
}

/// What a trainer makes of a text, in a reading of it and another of its first batches: parameters, losses, and what it measures.
fn learned(trainer: &mut dyn CentralTrainer, first: &[f32], batches: &[Batch<'_>]) -> (Vec<f32>, [f64; 3], Vec<f32>) {
    trainer.load(first).unwrap();
    let one = trainer.learn(batches, RATE, 0).unwrap();
    trainer.forget();
    let two = trainer.learn(&batches[..3], RATE, batches.len() as u64).unwrap();
    let carried = trainer.state().unwrap();
    assert_eq!(carried.len(), trainer.state_len());
    trainer.forget();
    let measured = trainer.measure(batches).unwrap();
    let mut parameters = vec![0.0; first.len()];
    trainer.store(&mut parameters).unwrap();
    (parameters, [one, two, measured], carried)
}

fn relative(want: &[f32], got: &[f32], from: &[f32]) -> f64 {
    let square = |a: f32, b: f32| (f64::from(a) - f64::from(b)).powi(2);
    let moved: f64 = want.iter().zip(from).map(|(w, f)| square(*w, *f)).sum();
    let off: f64 = want.iter().zip(got).map(|(w, g)| square(*w, *g)).sum();
    (off / moved).sqrt()
}

fn models() -> Vec<(&'static str, ModelConfig)> {
    let preset = |name: &str, vocabulary| ModelConfig::preset(name).unwrap().with_vocabulary(vocabulary);
    let tiny = preset("tiny", 300);
    let left_out = |kind| Some(Dropout { rate: 0.4, kind });
    let layers = ModelConfig { layers: 2, output_bias: true, dense: None, tied: false, ..tiny.clone() };
    vec![
        ("tiny", tiny.clone()),
        ("mcmahan2018", preset("mcmahan2018", 500)),
        ("gboard", preset("gboard", 300)),
        ("two layers of GRU", ModelConfig { cell: Cell::Gru, layers: 2, ..tiny.clone() }),
        ("a draw a token", ModelConfig { dropout: left_out(DropoutKind::PerStep), ..layers.clone() }),
        ("a draw a sequence", ModelConfig { dropout: left_out(DropoutKind::Variational), ..layers }),
        ("tied, a draw a token", ModelConfig { dropout: left_out(DropoutKind::PerStep), ..tiny.clone() }),
        ("GRU, a draw a token", ModelConfig { cell: Cell::Gru, dropout: left_out(DropoutKind::PerStep), ..tiny }),
    ]
}

#[test]
fn public_text_is_learned_as_on_a_thread() {
    for (name, config) in models() {
        let (text, first) = (Text::new(config.vocabulary, 12), initial_parameters(&config, 2).unwrap());
        let batches = text.batches();
        let want = learned(&mut thread(&config), &first, &batches);
        for (precision, most) in [(Precision::F32, 1e-4), (Precision::Tf32, 2e-3), (Precision::F16, 2e-3)] {
            let Some(mut card) = card(&config, precision) else { return };
            let got = learned(&mut card, &first, &batches);
            let off = relative(&want.0, &got.0, &first);
            println!("{name} {}: {off:.1e}", precision.name());
            assert!(off <= most, "{name} {}: {off:e}", precision.name());
            for (got, want) in got.1.iter().zip(&want.1) {
                assert!((got / want - 1.0).abs() < most, "{name} {}: a loss of {got}, not {want}", precision.name());
            }
            let zeros = vec![0.0; want.2.len()];
            let carried = relative(&want.2, &got.2, &zeros);
            assert!(carried <= 2.0 * most, "{name} {}: what is carried is {carried:e} off", precision.name());
        }
    }
}

/// Twice the same; in pieces the same; and taken up by another trainer, from what a checkpoint has, to the bit.
#[test]
fn what_was_stopped_goes_on_to_the_same_bits() {
    for (name, config) in models() {
        for precision in Precision::ALL {
            let (text, first) = (Text::new(config.vocabulary, 12), initial_parameters(&config, 2).unwrap());
            let batches = text.batches();
            let Some(mut one) = card(&config, precision) else { return };
            let mut whole = vec![0.0; first.len()];
            one.load(&first).unwrap();
            one.learn(&batches, RATE, 40).unwrap();
            one.store(&mut whole).unwrap();
            let mut stopped = vec![0.0; first.len()];
            one.load(&first).unwrap();
            one.learn(&batches[..2], RATE, 40).unwrap();
            one.learn(&batches[2..5], RATE, 42).unwrap();
            one.store(&mut stopped).unwrap();
            let carried = one.state().unwrap();
            let mut other = card(&config, precision).unwrap();
            other.load(&stopped).unwrap();
            other.set_state(&carried).unwrap();
            other.learn(&batches[5..], RATE, 45).unwrap();
            other.store(&mut stopped).unwrap();
            assert!(stopped == whole, "{name} {}: other bits", precision.name());
            assert!(whole.iter().all(|v| v.is_finite()) && whole != first);
        }
    }
}

/// A trainer of a thread whose gradients count for so much at most.
fn clipped_thread(config: &ModelConfig, most: f32, parameters: usize) -> Clipped {
    Clipped::new(Box::new(thread(config)), most, parameters)
}

/// Most steps are cut; the card cuts them as threads do, whether it is asked for all batches at once or for some at a time.
#[test]
fn steps_are_brought_within_a_bound_as_on_a_thread() {
    for (name, config) in models() {
        let (text, first) = (Text::new(config.vocabulary, 12), initial_parameters(&config, 2).unwrap());
        let batches = text.batches();
        let want = learned(&mut clipped_thread(&config, 0.05, first.len()), &first, &batches);
        let free = learned(&mut thread(&config), &first, &batches);
        assert!(relative(&free.0, &want.0, &first) > 0.1, "{name}: the bound does something");
        for (precision, most) in [(Precision::F32, 1e-4), (Precision::Tf32, 2e-3), (Precision::F16, 2e-3)] {
            let Some(mut card) = card(&config, precision) else { return };
            assert!(card.clip(0.05).unwrap());
            let got = learned(&mut card, &first, &batches);
            let off = relative(&want.0, &got.0, &first);
            println!("{name} {}: {off:.1e}", precision.name());
            assert!(off <= most, "{name} {}: {off:e}", precision.name());
            let mut pieces = vec![0.0; first.len()];
            card.load(&first).unwrap();
            for (number, one) in batches.chunks(1).enumerate() {
                card.learn(one, RATE, number as u64).unwrap();
            }
            card.forget();
            card.learn(&batches[..3], RATE, batches.len() as u64).unwrap();
            card.store(&mut pieces).unwrap();
            assert!(pieces == got.0, "{name} {}: other bits in pieces", precision.name());
        }
    }
}

/// A word whose vector no gradient survives: the step that reads it is taken back, here as on a thread, and the others are learned.
///
/// The word is huge in some places, where all other words are nothing and where no gate listens. So predictions are as ever, and no sum
/// mixes it with anything that another order of additions could change; but the step of those gates is infinite.
#[test]
fn a_step_that_is_no_number_is_taken_back() {
    const WORD: u32 = 299;
    const BROKEN: usize = 4;
    const HUGE_RATE: f32 = 1e6;
    const BOUND: f32 = 5e-8;
    let tiny = ModelConfig::preset("tiny").unwrap().with_vocabulary(WORD as usize + 1);
    let config = ModelConfig { dense: None, tied: false, ..tiny };
    let mut text = Text::new(config.vocabulary, 12);
    text.0.iter_mut().for_each(|(inputs, _)| inputs.iter_mut().for_each(|id| *id = (*id).min(WORD - 1)));
    text.0[BROKEN].0[7] = WORD;
    let mut first = initial_parameters(&config, 2).unwrap();
    let layout = ParameterLayout::new(&config).unwrap();
    let places = 0..8;
    for (word, vector) in first[layout.range(Role::Embedding)].chunks_mut(config.embedding).enumerate() {
        vector[places.clone()].fill(if word == WORD as usize { 1e38 } else { 0.0 });
    }
    for kernel in layout.parameters().iter().filter(|p| matches!(p.role, Role::GateKernel { .. })) {
        first[kernel.range()][places.start * kernel.columns..places.end * kernel.columns].fill(0.0);
    }
    let batches = text.batches();
    // A reading goes on when the step comes: what it carries is kept too. And which units a step leaves out depends on its number.
    let whole = |trainer: &mut dyn CentralTrainer| {
        let mut parameters = vec![0.0; first.len()];
        trainer.load(&first).unwrap();
        trainer.learn(&batches[..2], HUGE_RATE, 0).unwrap();
        trainer.learn(&batches[2..], HUGE_RATE, 2).unwrap();
        trainer.store(&mut parameters).unwrap();
        parameters
    };
    let dropout = Some(Dropout { rate: 0.4, kind: DropoutKind::PerStep });
    for config in [ModelConfig { dropout, ..config.clone() }, config] {
        let clipped = || clipped_thread(&config, BOUND, first.len());
        assert_eq!(steps_taken_back(&mut clipped(), &first, &batches, HUGE_RATE), [BROKEN]);
        let want = whole(&mut clipped());
        let Some(mut card) = card(&config, Precision::F32) else { continue };
        assert!(card.clip(BOUND).unwrap());
        let off = relative(&want, &whole(&mut card), &first);
        println!("a step taken back: {off:.1e}");
        assert!(off <= 1e-3, "{off:e}");
    }
}

/// The steps that change nothing.
fn steps_taken_back(trainer: &mut Clipped, first: &[f32], batches: &[Batch<'_>], rate: f32) -> Vec<usize> {
    let (mut before, mut after) = (first.to_vec(), first.to_vec());
    trainer.load(first).unwrap();
    let mut is_taken_back = |number: usize| {
        trainer.learn(&batches[number..=number], rate, number as u64).unwrap();
        trainer.store(&mut after).unwrap();
        assert!(after.iter().all(|v| v.is_finite()));
        std::mem::replace(&mut before, after.clone()) == after
    };
    (0..batches.len()).filter(|number| is_taken_back(*number)).collect()
}

/// A reading that is over, a batch that is too large, and words that the model does not have are refused, and nothing is learned.
#[test]
fn what_cannot_be_meant_is_refused() {
    let config = ModelConfig::preset("tiny").unwrap();
    let Some(mut card) = card(&config, Precision::F32) else { return };
    let first = initial_parameters(&config, 2).unwrap();
    card.load(&first).unwrap();
    let (text, wrong) = (Text::new(config.vocabulary, 3), vec![5000; ROWS * UNROLL]);
    let batches = text.batches();
    let unknown = Batch { rows: ROWS, inputs: &wrong, targets: &wrong, context: &[] };
    assert!(card.learn(&[unknown], RATE, 0).unwrap_err().to_string().contains("does not have"));
    let (some, none) = (vec![7; ROWS * UNROLL], vec![Batch::NONE; ROWS * UNROLL]);
    let before = Batch { rows: ROWS, inputs: &none, targets: &some, context: &[] };
    assert!(card.learn(&[before], RATE, 0).unwrap_err().to_string().contains("does not have"), "before the table");
    let features = Batch { rows: ROWS, inputs: &some, targets: &some, context: &[1.0; ROWS] };
    assert!(card.learn(&[features], RATE, 0).unwrap_err().to_string().contains("features"));
    let long = Batch { rows: 1, inputs: &wrong, targets: &wrong, context: &[] };
    assert!(card.measure(&[long]).unwrap_err().to_string().contains("larger than the trainer"));
    let mut parameters = vec![0.0; first.len()];
    card.store(&mut parameters).unwrap();
    assert!(parameters == first);
    card.learn(&batches, RATE, 0).unwrap();
    assert!(card.learn(&batches, RATE, 3).unwrap_err().to_string().contains("ends a reading"));
    assert!(card.state().is_err());
    card.forget();
    card.learn(&batches, RATE, 3).unwrap();
}
