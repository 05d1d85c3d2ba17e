//! What the card must do, where there is one: the updates of the threads engine, the integers of `privacy`, the same sum in any order
//! and again. Where there is none, each of these says so and passes; `without_card.rs` is what needs none.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]
#![allow(clippy::print_stdout, reason = "what is skipped and what was found is said")]

use std::{num::NonZeroUsize, path::Path};

use crate::small_runs::{RUN, with};
use corpus::store::StoreError;
use cuda::{CUDA, CardEngine};
use device::{
    finetune::{FineTune, GeneralText},
    learner::{
        Learner, Part,
        examples::{Examples, Value},
        language::LanguageLearner,
    },
    local::{Algorithm, Learned, LocalPlan, LocalTrainer},
    round::Task,
    upload::Upload,
};
use federated::{
    config::Document,
    engine::{Engine, EngineOptions, Means, Precision, Users, drawn, users_key},
    fleet::{self, Stop},
    home::{Records, RunFolder},
    plan::Plan,
    population::Population,
    run::{Opened, Run},
};
use ledger::{Body, Entry};
use lm::{
    kernels::KernelPath,
    model::{
        config::{Cell, ModelConfig},
        parameters::{ParameterLayout, Role},
    },
};
use privacy::{
    Adjacency, ClipNorm,
    encoding::{Encoding, Rounding, VectorPlan, XU_ALPHA},
    rng::{NoiseSource, Randomness, SimulationKey, StreamKey},
    stages::{ClipBit, ClipRule, Clipping, Contribution, Sum, Update},
};

const BATCH: usize = 8;
const UNROLL: usize = 10;

/// Where there is no card its tests are skipped; where there is one, whatever keeps it from working is a failure. With
/// `KEYHUSH_CARD=required` it is a failure that there is none.
pub(crate) fn has_card() -> bool {
    let there = cuda::is_there();
    assert!(there || std::env::var_os("KEYHUSH_CARD").is_none_or(|card| card != "required"), "there is no card here");
    if !there {
        println!("skipped: there is no NVIDIA card here");
    }
    there
}

/// People who type words by Zipf's law; some little, one nothing.
pub(crate) struct Typists {
    vocabulary: u32,
    features: usize,
    /// Entries below are never typed.
    least: u32,
}

/// Somebody whose text cannot be read, and somebody at whose reading the program has a bug.
const UNREADABLE: u64 = 1 << 41;
const PANICS: u64 = 1 << 42;
/// Somebody with more text than all others.
const NEVER_ENDS: u64 = 1 << 43;
/// From here on everybody types the same.
const ALIKE: u64 = 1 << 50;

impl Population for Typists {
    fn users(&self) -> u64 {
        1 << 60
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        examples.clear();
        assert!(user != PANICS, "a bug that was planted");
        if user == UNREADABLE {
            return Err(StoreError::NoUser { index: user, users: self.users() });
        }
        let user = if user < ALIKE { user } else { ALIKE + 7 };
        let mut word = user.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            let uniform = (word >> 40) as f64 / (1u64 << 24) as f64;
            ((f64::from(self.vocabulary).powf(uniform) - 1.0) as u32).clamp(self.least, self.vocabulary - 1)
        };
        if self.features > 0 {
            examples
                .set_features(&(0..self.features).map(|i| 0.1 * (i as f32 + (user % 7) as f32)).collect::<Vec<_>>());
        }
        let tokens = match user % 10 {
            _ if user == NEVER_ENDS => 100_000,
            0 => 2,
            3 => 0,
            4 => 5,
            5 => 77,
            6 => 9,
            _ => 400,
        };
        let mut input = next();
        for _ in 0..tokens {
            let target = next();
            examples.push(&[Value::Id(input), Value::Id(target)]);
            input = target;
        }
        Ok(())
    }
}

/// A model, what its users do, and a round of it.
pub(crate) struct Trial {
    pub(crate) config: ModelConfig,
    pub(crate) learner: LanguageLearner,
    pub(crate) local: LocalPlan,
    pub(crate) model: Vec<f32>,
    pub(crate) clipping: Clipping,
    plan: VectorPlan,
    encoding: Encoding,
    pub(crate) typists: Typists,
    key: StreamKey,
    pub(crate) rate: f32,
    /// How often text is read in this round, where it is not as the plan says.
    epochs: Option<u32>,
}

pub(crate) fn local(algorithm: Algorithm) -> LocalPlan {
    LocalPlan {
        algorithm,
        batch: BATCH,
        unroll: UNROLL,
        most_tokens: Some(400),
        greedy: false,
        update_penalty: 0.0,
        finetune: None,
    }
}

pub(crate) fn small(preset: &str, vocabulary: usize) -> ModelConfig {
    ModelConfig::preset(preset).unwrap().with_vocabulary(vocabulary)
}

impl Trial {
    pub(crate) fn new(config: &ModelConfig, local: LocalPlan, rounding: Rounding, clip: f64) -> Self {
        let learner = LanguageLearner::new(config, local.batch, local.unroll).unwrap();
        let mut model = learner.initial(1).unwrap();
        learner.after_step(&mut model);
        let clip = ClipNorm::new(clip).unwrap();
        let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::NormAtMost(clip)).unwrap();
        let plan = VectorPlan { rounding, clip_bit: true, weight: true, ..VectorPlan::of_update(model.len(), 20) };
        let encoding = Encoding::new(plan.clone(), clip, None, Adjacency::AddOrRemove).unwrap();
        let typists =
            Typists { vocabulary: config.vocabulary as u32, features: config.user_context.unwrap_or(0), least: 0 };
        let key = users_key(&NoiseSource::from(SimulationKey::new(5)), &[3]);
        Self {
            config: config.clone(),
            learner,
            local,
            model,
            clipping,
            plan,
            encoding,
            typists,
            key,
            rate: 0.5,
            epochs: None,
        }
    }

    /// The same with another clip, and with or without its bit.
    pub(crate) fn clipped_by(self, clipping: Clipping, clip_bit: bool) -> Self {
        let plan = VectorPlan { clip_bit, ..self.plan.clone() };
        let bound = clipping.rule().bound();
        let encoding = Encoding::new(plan.clone(), bound, None, Adjacency::AddOrRemove).unwrap();
        Self { clipping, encoding, plan, ..self }
    }

    pub(crate) fn task(&self) -> Task<'_> {
        Task {
            model: &self.model,
            clipping: &self.clipping,
            encoding: &self.encoding,
            full_weight_tokens: Some(300.0),
            learning_rate: self.rate,
            epochs: self.epochs,
            upload: Upload::Whole,
            evaluation: None,
        }
    }

    pub(crate) fn users<'a>(&'a self, numbers: &'a [u64]) -> Users<'a> {
        Users { population: &self.typists, numbers, key: &self.key }
    }

    pub(crate) fn engine(&self, precision: Precision, chunk: usize, check_encodings: bool) -> Option<CardEngine<'_>> {
        let options = EngineOptions { precision, chunk: NonZeroUsize::new(chunk), check_encodings };
        let means = Means { engine: CUDA, options, ..Means::threads(KernelPath::best(), 2) };
        has_card().then(|| CardEngine::new(&self.local, &self.learner, means).unwrap_or_else(|e| panic!("{e}")))
    }

    /// What the threads' code makes of a user.
    pub(crate) fn learned(&self, user: u64) -> Learned {
        let mut examples = Examples::new(self.learner.schema());
        self.typists.read(user, &mut examples).unwrap();
        examples.truncate(self.local.most_tokens.unwrap_or(usize::MAX));
        let mut trainer = LocalTrainer::new(&self.learner, self.local.clone(), KernelPath::best()).unwrap();
        if let Some(epochs) = self.epochs {
            trainer.read_times(epochs).unwrap();
        }
        let drawn = drawn(&self.key, user).batch;
        trainer.train(&self.model, &examples, self.clipping.rule(), self.rate, drawn).unwrap()
    }
}

/// The largest relative difference of a user's update between card and threads.
fn worst(trial: &Trial, precision: Precision, numbers: &[u64]) -> Option<f64> {
    let mut engine = trial.engine(precision, 8, false)?;
    let found = engine.differences(&trial.task(), &trial.users(numbers)).unwrap();
    let relative = |(user, got): &(u64, Vec<f32>)| {
        let want = trial.learned(*user).difference;
        let square = |v: f64| v * v;
        let norm: f64 = want.iter().map(|v| square(f64::from(*v))).sum();
        let off: f64 = want.iter().zip(got).map(|(w, g)| square(f64::from(*w) - f64::from(*g))).sum();
        if norm == 0.0 { off.sqrt() } else { (off / norm).sqrt() }
    };
    let all: Vec<f64> = found.iter().map(relative).collect();
    assert!(all.iter().all(|v| !v.is_nan()), "{all:?}");
    Some(all.into_iter().fold(0.0, f64::max))
}

const COHORT: [u64; 11] = [5, 17, 400_003, 999_999, 12, 13, 14, 600_001, 77, 2, 8];

fn models() -> Vec<(&'static str, ModelConfig)> {
    let tiny = small("tiny", 300);
    vec![
        ("tiny", tiny.clone()),
        ("mcmahan2018", small("mcmahan2018", 1000)),
        ("mcmahan2018-gru", small("mcmahan2018-gru", 500)),
        ("mcmahan2018-char", small("mcmahan2018-char", 128)),
        ("gboard", small("gboard", 997)),
        ("gboard-tied", small("gboard-tied", 500)),
        ("so-nwp", small("so-nwp", 1004)),
        ("shakespeare", small("shakespeare", 90)),
        ("tiny with features", ModelConfig { user_context: Some(3), ..tiny.clone() }),
        ("tiny without dense", ModelConfig { dense: None, tied: false, unit_norm: true, ..tiny.clone() }),
        ("two layers of GRU", ModelConfig { cell: Cell::Gru, layers: 2, ..tiny }),
    ]
}

#[test]
fn updates_are_those_of_the_threads() {
    for (name, config) in models() {
        for (precision, most) in [(Precision::F32, 1e-4), (Precision::Tf32, 1e-3), (Precision::F16, 5e-4)] {
            let trial = Trial::new(&config, local(Algorithm::FedAvg { epochs: 1 }), Rounding::Nearest, 0.3);
            let Some(off) = worst(&trial, precision, &COHORT) else { return };
            println!("{name} {}: {off:.1e}", precision.name());
            assert!(off <= most, "{name} {}: {off:e}", precision.name());
        }
    }
}

#[test]
fn every_way_of_training_is_that_of_the_threads() {
    let config = small("mcmahan2018", 300);
    let once = || local(Algorithm::FedAvg { epochs: 1 });
    let plans = [
        ("two readings", local(Algorithm::FedAvg { epochs: 2 })),
        ("FedSGD on a batch", local(Algorithm::FedSgdBatch)),
        ("FedSGD on all", local(Algorithm::FedSgdAll)),
        ("greedy", LocalPlan { greedy: true, ..once() }),
        ("penalty", LocalPlan { update_penalty: 0.1, ..once() }),
        ("short", LocalPlan { batch: 3, unroll: 7, ..once() }),
        ("rehearsal", LocalPlan { finetune: Some(rehearsal()), ..once() }),
    ];
    for (name, plan) in plans {
        agrees(name, &Trial::new(&config, plan, Rounding::Nearest, 0.05));
    }
    // A schedule changes how often text is read.
    let trial = Trial::new(&config, once(), Rounding::Nearest, 0.05);
    agrees("three readings by a schedule", &Trial { epochs: Some(3), ..trial });
    // Within a tighter bound threads are off by more than this themselves (`greedy`).
    let greedy = || Trial::new(&config, LocalPlan { greedy: true, ..once() }, Rounding::Nearest, 0.3);
    let layers = by_layer(&greedy(), 0.3);
    agrees("greedy by layers", &greedy().clipped_by(layers, false));
}

/// The shapes of models that public text is learned with, at a smaller scale, without the units that they leave out.
#[test]
fn larger_models_at_a_smaller_scale_are_trained_as_by_the_threads() {
    for (preset, hidden, embedding) in [("zaremba650", 72, 40), ("ptb1500", 104, 104)] {
        let config = ModelConfig { hidden, embedding, dropout: None, ..small(preset, 600) };
        assert!(config.layers > 1, "{preset}");
        agrees(preset, &Trial::new(&config, local(Algorithm::FedAvg { epochs: 1 }), Rounding::Nearest, 0.3));
    }
}

/// Half of what is read is general text.
fn rehearsal() -> FineTune {
    let general = GeneralText::new((0..40).map(|n| (0..1 + n % 7).map(|i| 10 + (7 * n + i) % 200).collect()));
    FineTune::Rehearsal { lambda: 0.5, general }
}

/// Whether a trial's updates are those of the threads, in float32 and with halves; nothing where there is no card.
fn agrees(name: &str, trial: &Trial) {
    for (precision, most) in [(Precision::F32, 1e-4), (Precision::F16, 5e-4)] {
        let Some(off) = worst(trial, precision, &COHORT) else { return };
        println!("{name} {}: {off:.1e}", precision.name());
        assert!(off <= most, "{name} {}: {off:e}", precision.name());
    }
}

/// A clip of layers, which share the bound.
pub(crate) fn by_layer(trial: &Trial, clip: f64) -> Clipping {
    let lens: Vec<usize> = trial.learner.layout().parts().iter().map(Part::len).collect();
    let rule = ClipRule::even_layers(ClipNorm::new(clip).unwrap(), &lens).unwrap();
    Clipping::new(rule, ClipBit::None).unwrap()
}

fn values(sum: Sum) -> Vec<i64> {
    sum.release_without_privacy(0, "a test", Randomness::Simulated { seed: 5 }).values().to_vec()
}

const STOCHASTIC: Rounding = Rounding::ConditionalStochastic { alpha: XU_ALPHA };

/// What the card rounds is, integer for integer, what `privacy` makes of the same update with the same words.
#[test]
fn integers_are_those_of_the_host() {
    for rounding in [Rounding::Nearest, STOCHASTIC] {
        for clip in [0.01, 100.0] {
            let plain = || Trial::new(&small("tiny", 300), local(Algorithm::FedAvg { epochs: 1 }), rounding, clip);
            let layers = by_layer(&plain(), clip);
            for trial in [plain(), plain().clipped_by(layers, false)] {
                if !same_integers(&trial, &|_| false) {
                    return;
                }
            }
        }
    }
}

/// With greedy steps the clip bit says whether any of them was brought back (rule P9).
#[test]
fn p9_the_bit_of_greedy_steps_is_that_of_the_threads() {
    for clip in [0.05, 1e6] {
        let greedy = LocalPlan { greedy: true, ..local(Algorithm::FedAvg { epochs: 1 }) };
        let trial = Trial::new(&small("tiny", 300), greedy, Rounding::Nearest, clip);
        let flat = ClipRule::Flat(ClipNorm::new(clip).unwrap());
        let trial = trial.clipped_by(Clipping::new(flat, ClipBit::NeverProjected).unwrap(), true);
        let projected = |user: u64| trial.learned(user).projected;
        assert_eq!(COHORT.iter().any(|user| projected(*user)), clip < 1.0, "there is something to say");
        if !same_integers(&trial, &projected) {
            return;
        }
    }
}

/// Whether there is a card; on one, what it adds up is what the host makes of its differences.
fn same_integers(trial: &Trial, projected: &dyn Fn(u64) -> bool) -> bool {
    let Some(mut engine) = trial.engine(Precision::F32, 4, true) else { return false };
    let task = trial.task();
    let found = engine.differences(&task, &trial.users(&COHORT)).unwrap();
    assert!(engine.has_forgotten().unwrap(), "differences stay on the card");
    let mut want = Sum::zero(&trial.encoding);
    for (user, difference) in found {
        let mut examples = Examples::new(trial.learner.schema());
        trial.typists.read(user, &mut examples).unwrap();
        let weight = (examples.len() as f64 / 300.0).min(1.0);
        let said = Contribution { weight, projected: projected(user), ..Contribution::default() };
        let clipped = if examples.is_empty() {
            privacy::stages::Clipped::nothing(&trial.clipping, difference.len())
        } else {
            Update::new(difference).clip(&trial.clipping, said).unwrap()
        };
        want.add(&clipped.encode(&trial.encoding, &mut drawn(&trial.key, user).rounding).unwrap()).unwrap();
    }
    let want = values(want);
    let got = engine.sum(&task, &trial.users(&COHORT)).unwrap();
    assert!(values(got.sum) == want, "other integers, checked on the host");
    drop(engine);
    let mut engine = trial.engine(Precision::F32, 4, false).unwrap();
    let got = engine.sum(&task, &trial.users(&COHORT)).unwrap();
    assert!(values(got.sum) == want, "other integers, added up on the card");
    assert_eq!(engine.left_to_host(), 0, "the card encoded nobody");
    engine.leave_all_to_host();
    let got = engine.sum(&task, &trial.users(&COHORT)).unwrap();
    assert!(values(got.sum) == want, "other integers of those who are left to the host");
    assert_eq!(engine.left_to_host(), COHORT.iter().filter(|user| *user % 10 != 3).count() as u64);
    true
}

#[test]
fn sums_are_the_same_in_any_order_again_and_checked_on_the_host() {
    for precision in Precision::ALL {
        let trial = Trial::new(&small("mcmahan2018", 400), local(Algorithm::FedAvg { epochs: 1 }), STOCHASTIC, 0.3);
        let Some(mut engine) = trial.engine(precision, 4, false) else { return };
        let task = trial.task();
        let mut of = |numbers: &[u64]| {
            let summed = engine.sum(&task, &trial.users(numbers)).unwrap();
            (values(summed.sum), summed.exact)
        };
        let want = of(&COHORT);
        assert!(want.0.iter().any(|v| *v != 0));
        let (mut sorted, mut reversed) = (COHORT, COHORT);
        sorted.sort_unstable();
        reversed.reverse();
        for numbers in [COHORT, sorted, reversed] {
            assert!(of(&numbers) == want, "{numbers:?}: another sum");
        }
        let one_by_one = COHORT.iter().map(|user| of(&[*user]).0).reduce(|mut all, one| {
            all.iter_mut().zip(one).for_each(|(a, o)| *a += o);
            all
        });
        assert!(one_by_one.unwrap() == want.0, "what a user sends depends on the neighbours");
        drop(engine);
        let mut checked = trial.engine(precision, 4, true).unwrap();
        assert!(
            values(checked.sum(&task, &trial.users(&COHORT)).unwrap().sum) == want.0,
            "the host found other integers"
        );
    }
}

/// Whoever runs away is zero in every coordinate, clip bit and weight too; nobody else's part is touched by it.
#[test]
fn who_runs_away_or_has_nothing_adds_nothing_and_nobody_panics() {
    let mut trial = Trial::new(&small("tiny", 300), local(Algorithm::FedAvg { epochs: 1 }), Rounding::Nearest, 0.3);
    trial.rate = 1e30;
    let Some(mut engine) = trial.engine(Precision::F32, 4, false) else { return };
    let mut of = |numbers: &[u64]| {
        let summed = engine.sum(&trial.task(), &trial.users(numbers)).unwrap();
        (values(summed.sum), summed.exact)
    };
    let (everybody, exact) = of(&COHORT);
    // After one step of it weights are large and still numbers; after a second one they are none.
    let (away, there): (Vec<_>, Vec<_>) = exact.into_iter().partition(|(_, exact)| exact.norm.is_nan());
    let numbers = |some: Vec<(u64, device::round::Exact)>| some.into_iter().map(|(user, _)| user).collect::<Vec<_>>();
    let (away, there) = (numbers(away), numbers(there));
    assert_eq!(there, [5, 13, 14, 400_003], "who has one batch or none stays a number");
    assert_eq!(away.len(), COHORT.len() - there.len());
    assert!(of(&away).0.iter().all(|v| *v == 0), "somebody who ran away added something");
    let (rest, _) = of(&there);
    assert!(rest.iter().any(|v| *v != 0));
    assert!(everybody == rest, "what ran away changed what others send");
    assert!(of(&[]).0.iter().all(|v| *v == 0));
}

/// Rule P1: who has run away by their last step, and is a number still, counts or not whoever is trained beside them. Models whose states are
/// unbounded, and weights that no half can hold, made it depend on how long the others of the chunk were at work.
#[test]
fn p1_whether_somebody_counts_does_not_depend_on_the_others() {
    let models = [("tiny", Precision::F32), ("gboard", Precision::F32), ("mcmahan2018", Precision::F16)];
    for ((preset, precision), rate) in models.into_iter().flat_map(|model| [(model, 1e30), (model, 1e7)]) {
        let mut trial = Trial::new(&small(preset, 300), local(Algorithm::FedAvg { epochs: 1 }), Rounding::Nearest, 0.3);
        trial.rate = rate;
        let Some(mut engine) = trial.engine(precision, 14, false) else { return };
        let mut of = |numbers: &[u64]| values(engine.sum(&trial.task(), &trial.users(numbers)).unwrap().sum);
        let everybody = of(&COHORT);
        let mut alone = vec![0; everybody.len()];
        for user in COHORT {
            alone.iter_mut().zip(of(&[user])).for_each(|(sum, own)| *sum += own);
        }
        assert!(everybody.iter().any(|v| *v != 0), "{preset} {precision:?} at {rate}: nobody counts");
        assert!(everybody == alone, "{preset} {precision:?} at {rate}: a part depends on who is beside it");
    }
}

/// Rule P1: what a user changes does not depend on the place, of which a chunk has a hundred, in two lanes: whoever reads the same text comes
/// to the same bits, with models of full size.
#[test]
fn p1_an_update_does_not_depend_on_the_place() {
    let numbers: Vec<u64> = (0..100).map(|n| ALIKE + 11 * n).collect();
    for preset in ["mcmahan2018", "gboard", "so-nwp"] {
        let config = ModelConfig::preset(preset).unwrap();
        for precision in Precision::ALL {
            let mut trial = Trial::new(&config, local(Algorithm::FedAvg { epochs: 1 }), Rounding::Nearest, 0.3);
            trial.rate = 0.1;
            let Some(mut engine) = trial.engine(precision, 100, false) else { return };
            assert_eq!(engine.chunk(), 100);
            let found = engine.differences(&trial.task(), &trial.users(&numbers)).unwrap();
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            let first = bits(&found[0].1);
            assert!(found[0].1.iter().any(|v| *v != 0.0) && found[0].1.iter().all(|v| v.is_finite()));
            let others: Vec<u64> = found.iter().filter(|(_, own)| bits(own) != first).map(|(user, _)| *user).collect();
            assert!(others.is_empty(), "{preset} {}: {others:?}", precision.name());
        }
    }
}

/// Rule P1: in a batch with few tokens each of them has a large share, and gradients are large. As halves they were infinite, and took
/// away whom threads keep.
#[test]
fn p1_large_gradients_of_few_tokens_take_nobody_away() {
    let few = [6, 16, 10, 20, 4];
    let mut trial =
        Trial::new(&small("mcmahan2018", 300), local(Algorithm::FedAvg { epochs: 1 }), Rounding::Nearest, 0.3);
    let layout = ParameterLayout::new(trial.learner.recurrent().unwrap()).unwrap();
    let gradient = enlarge_dense(&mut trial, &layout, 6);
    println!("a gradient of {gradient} at a gate");
    for (precision, most) in [(Precision::F32, 1e-3), (Precision::F16, 5e-2)] {
        let Some(off) = worst(&trial, precision, &few) else { return };
        println!("few tokens, {}: {off:.1e}", precision.name());
        assert!(off <= most, "{}: {off:e}", precision.name());
    }
}

/// Makes the dense kernel larger until gradients of gates, times 256, are infinite as halves; not so large that anything else is.
fn enlarge_dense(trial: &mut Trial, layout: &ParameterLayout, user: u64) -> f32 {
    for _ in 0..16 {
        let gradient = largest_gate_gradient(trial, layout, user);
        if gradient > 1.5 * 65504.0 / 256.0 {
            return gradient;
        }
        trial.model[layout.range(Role::DenseKernel)].iter_mut().for_each(|v| *v *= 2.0);
    }
    panic!("there is nothing to overflow");
}

/// What a gate of some unit is moved by at most, as a gradient of one token with its share: of a user with one batch.
fn largest_gate_gradient(trial: &Trial, layout: &ParameterLayout, user: u64) -> f32 {
    let moved = trial.learned(user).difference;
    let biases = layout.parameters().iter().filter(|p| matches!(p.role, Role::GateBias { .. }));
    let largest = biases.flat_map(|p| moved[p.range()].to_vec()).fold(0.0, |most: f32, v| most.max(v.abs()));
    // The bias moves by the rate times the sum over nine tokens, each over 80.
    largest / trial.rate * (BATCH * UNROLL) as f32 / 9.0
}

/// Whoever types without end is trained beside others who do not, and memory is made for them: others' parts stay what they are.
#[test]
fn somebody_with_a_very_long_text_changes_nothing_for_others() {
    let plan = LocalPlan { most_tokens: None, ..local(Algorithm::FedAvg { epochs: 1 }) };
    let mut trial = Trial::new(&small("tiny", 300), plan, Rounding::Nearest, 0.3);
    trial.rate = 0.01;
    let Some(mut engine) = trial.engine(Precision::F32, 4, false) else { return };
    let mut of = |numbers: &[u64]| {
        let sum = values(engine.sum(&trial.task(), &trial.users(numbers)).unwrap().sum);
        assert!(engine.has_forgotten().unwrap(), "{numbers:?}");
        sum
    };
    let (few, alone) = (of(&COHORT), of(&[NEVER_ENDS]));
    assert!(alone.iter().any(|v| *v != 0));
    let together = of(&[&COHORT[..], &[NEVER_ENDS]].concat());
    assert!(together.iter().zip(few.iter().zip(&alone)).all(|(all, (few, one))| *all == few + one));
    assert!(of(&COHORT) == few);
}

/// Rule P1, where it is the model of the round that does not hold: an entry that nobody here types overflows in it. Places that wait for their
/// users read that entry; whoever comes in later than others counts all the same.
#[test]
fn p1_a_model_that_overflows_where_nobody_types_takes_nobody_away() {
    for cell in [Cell::Lstm, Cell::Gru] {
        for algorithm in [Algorithm::FedAvg { epochs: 1 }, Algorithm::FedSgdAll] {
            let config = ModelConfig { dense: None, tied: false, cell, ..small("tiny", 300) };
            let mut trial = Trial::new(&config, local(algorithm), Rounding::Nearest, 0.3);
            trial.typists.least = 1;
            let layout = ParameterLayout::new(&config).unwrap();
            let table = layout.range(Role::Embedding);
            trial.model[table.start..][..config.embedding].fill(3e38);
            for kernel in layout.parameters().iter().filter(|p| matches!(p.role, Role::GateKernel { .. })) {
                trial.model[kernel.range()].iter_mut().for_each(|v| *v *= 30.0);
            }
            let Some(mut engine) = trial.engine(Precision::F32, 14, false) else { return };
            let mut of = |numbers: &[u64]| values(engine.sum(&trial.task(), &trial.users(numbers)).unwrap().sum);
            let everybody = of(&COHORT);
            let mut alone = vec![0; everybody.len()];
            for user in COHORT {
                let own = of(&[user]);
                assert_eq!(own.iter().any(|v| *v != 0), user % 10 != 3, "{cell:?}: user {user} alone");
                alone.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            }
            assert!(everybody == alone, "{cell:?} {algorithm:?}: a part depends on who is beside it");
        }
    }
}

/// Whoever cannot be read fails the round that they come to, and nothing of the others stays on the card; foreseen and not asked for, they
/// fail none. The same for an engine in whose midst something panics.
#[test]
fn somebody_who_cannot_be_read_fails_their_own_round_and_nobody_stays_on_the_card() {
    let trial = Trial::new(&small("tiny", 300), local(Algorithm::FedAvg { epochs: 1 }), Rounding::Nearest, 0.3);
    let Some(mut engine) = trial.engine(Precision::F32, 4, false) else { return };
    let task = trial.task();
    let want = values(engine.sum(&task, &trial.users(&COHORT)).unwrap().sum);
    for hint in [UNREADABLE, PANICS] {
        engine.foresee(&[7, hint]);
        let again = engine.sum(&task, &trial.users(&COHORT)).expect("a hint fails nothing");
        assert!(values(again.sum) == want && engine.has_forgotten().unwrap());
    }
    let numbers = [&COHORT[..], &[UNREADABLE]].concat();
    assert!(engine.sum(&task, &trial.users(&numbers)).is_err());
    assert!(engine.has_forgotten().unwrap());
    let panics = std::panic::AssertUnwindSafe(|| engine.sum(&task, &trial.users(&[5, PANICS])).map(drop));
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(engine.has_forgotten().unwrap());
    assert!(values(engine.sum(&task, &trial.users(&COHORT)).unwrap().sum) == want);
}

/// Another rate in every round, as schedules have: what was read ahead has that of its own round.
#[test]
fn what_was_read_ahead_is_trained_at_the_rate_of_its_round() {
    let trial = Trial::new(&small("tiny", 300), local(Algorithm::FedAvg { epochs: 1 }), Rounding::Nearest, 0.3);
    let of = |foresees: bool| {
        let mut engine = trial.engine(Precision::F32, 4, false)?;
        let mut sum = |rate: f32| {
            if foresees {
                engine.foresee(&COHORT);
            }
            let task = Task { learning_rate: rate, ..trial.task() };
            values(engine.sum(&task, &trial.users(&COHORT)).unwrap().sum)
        };
        Some([0.5, 0.1, 0.3].map(&mut sum))
    };
    let Some(blind) = of(false) else { return };
    assert!(of(true).unwrap() == blind && blind[0] != blind[1]);
}

/// How often text is read is known when its round comes, and so is the general text that goes with it: what was read ahead is as if it had
/// not been, and losses are those of the threads.
#[test]
fn what_was_read_ahead_is_read_as_often_and_with_what_its_round_says() {
    for finetune in [None, Some(rehearsal())] {
        let plan = LocalPlan { finetune, ..local(Algorithm::FedAvg { epochs: 1 }) };
        let trial = |epochs| {
            let trial = Trial::new(&small("tiny", 300), plan.clone(), Rounding::Nearest, 0.3);
            Trial { epochs, ..trial }
        };
        let of = |foresees: bool| {
            let first = trial(None);
            let mut engine = first.engine(Precision::F32, 4, false)?;
            let mut sum = |epochs| {
                let trial = trial(epochs);
                if foresees {
                    engine.foresee(&COHORT);
                }
                let summed = engine.sum(&trial.task(), &first.users(&COHORT)).unwrap();
                (values(summed.sum), summed.exact)
            };
            Some([None, Some(2), Some(2), Some(1)].map(&mut sum))
        };
        let Some(blind) = of(false) else { return };
        assert!(of(true).unwrap() == blind);
        assert!(blind[0].0 == blind[3].0 && blind[1].0 == blind[2].0 && blind[0].0 != blind[1].0);
        for (user, exact) in &blind[0].1 {
            let want = trial(None).learned(*user).loss;
            assert!((exact.loss - want).abs() <= 1e-4 * want.max(1.0), "user {user}: {} and not {want}", exact.loss);
        }
    }
}

/// A cohort that was read ahead comes to the same sum, whether it was foreseen rightly or not; and when a round is over nothing of
/// its users is on the card.
#[test]
fn what_was_read_ahead_changes_nothing_and_nobody_stays_on_the_card() {
    let of = |algorithm, foresees: bool| {
        let trial = Trial::new(&small("mcmahan2018", 300), local(algorithm), STOCHASTIC, 0.3);
        let mut engine = trial.engine(Precision::F16, 4, false)?;
        let cohorts: [&[u64]; 4] = [&COHORT, &COHORT[..3], &COHORT[2..9], &COHORT];
        let mut sums = Vec::new();
        for (round, numbers) in cohorts.into_iter().enumerate() {
            if foresees {
                // The third is foreseen wrongly.
                engine.foresee(if round == 1 { &COHORT[..5] } else { cohorts[(round + 1) % 4] });
            }
            sums.push(values(engine.sum(&trial.task(), &trial.users(numbers)).unwrap().sum));
            assert!(engine.has_forgotten().unwrap(), "round {round}");
        }
        Some(sums)
    };
    for algorithm in [Algorithm::FedAvg { epochs: 1 }, Algorithm::FedSgdBatch, Algorithm::FedSgdAll] {
        let Some(blind) = of(algorithm, false) else { return };
        assert!(blind[0] == blind[3] && blind[0] != blind[1]);
        assert!(of(algorithm, true).unwrap() == blind, "{algorithm:?}");
    }
}

const CHANGES: [&str; 16] = [
    "rounds=7",
    "data.posts_per_user=",
    "model.vocabulary=300",
    "model.hidden=",
    "model.embedding=",
    "local.batch=8",
    "local.unroll=10",
    "local.most_tokens=300",
    "participation.population=1000",
    "participation.cohort=20",
    "clip.kind=adaptive",
    "clip.quantile=0.5",
    "privacy.noise_multiplier=1.0",
    "evaluation.users=20",
    "evaluation.most_tokens=1000",
    "checkpoint.every=3",
];

/// Does so many steps of a run on the card, or all that are left, and stops without a word; says what there is then.
fn steps(folder: &Path, chunk: usize, steps: usize) -> Option<(Vec<f32>, Vec<String>)> {
    let config = Document::new(&with(RUN, &CHANGES), &[]).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    let options = EngineOptions { precision: Precision::F16, chunk: NonZeroUsize::new(chunk), check_encodings: false };
    let means = Means { engine: CUDA, options, ..Means::threads(KernelPath::best(), 2) }.for_plan(&plan).unwrap();
    if !has_card() {
        return None;
    }
    let engine = CardEngine::new(&plan.local, opened.learner(), means).unwrap_or_else(|e| panic!("{e}"));
    let means = means.settled_by(&engine);
    let population = opened.population(plan.ledger.unit).unwrap();
    let begin = if folder.exists() { Run::resume } else { Run::begin };
    let mut run = begin(RunFolder::at(folder), &plan, &opened, means).unwrap();
    let mut fleet = fleet::of(&plan, population.as_ref(), Box::new(engine), RunFolder::at(folder).secrets());
    for _ in 0..steps {
        if run.step(&mut fleet, &Stop::new()).unwrap().over.is_some() {
            break;
        }
    }
    let digest = |entry: Entry| match entry.body() {
        Body::Release(release) => Some(release.digest.to_string()),
        _ => None,
    };
    let digests = run.ledger().entries().unwrap().filter_map(|entry| digest(entry.unwrap())).collect();
    Some((run.state().model.clone(), digests))
}

/// A run on the card that stops anywhere, between checkpoints too, goes on to the same bytes; with another chunk it does not go on.
#[test]
fn a_run_that_was_stopped_goes_on_to_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let Some((model, digests)) = steps(&folder.path().join("straight"), 6, 7) else { return };
    assert_eq!(digests.len(), 7);
    for stops in [vec![1, 1, 1, 1, 1, 1, 1], vec![4, 3], vec![3, 4], vec![5, 7]] {
        let path = folder.path().join(format!("{stops:?}"));
        let all: Vec<_> = stops.iter().map(|stop| steps(&path, 6, *stop).unwrap()).collect();
        let last = &all[all.len() - 1];
        assert!(last.0 == model && last.1 == digests, "{stops:?}: another model");
    }
    let path = folder.path().join("other");
    steps(&path, 6, 4).unwrap();
    let died = std::panic::catch_unwind(|| steps(&path, 4, 1));
    let said = died.unwrap_err().downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(said.contains("OtherArithmetic") && said.contains("chunk 6") && said.contains("chunk 4"), "{said}");
}
