//! What the card counts of a model, where there is one: what the threads count, but for a rounding; ties, unknown words and what is no
//! number by the rules of `lm::metrics`; the same again and in any order. Where there is none, each of these says so and passes.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]
#![allow(clippy::print_stdout, reason = "what was found is said")]

use crate::card::has_card;
use corpus::store::StoreError;
use cuda::{CUDA, CardEngine, CardMeasurer};
use device::{
    evaluation::{Counting, EvaluationPlan, NORM, count},
    learner::{Learner, examples::Examples, language::LanguageLearner},
    local::{Algorithm, LocalPlan},
    round::Task,
    upload::Upload,
};
use federated::{
    engine::{Engine, EngineError, Means, Users, measure::Measurer, threads::Threads, users_key},
    population::Population,
};
use lm::{
    kernels::KernelPath,
    metrics::{Counts, Tally, Targets},
    model::{
        config::{Cell, ModelConfig},
        parameters::{ParameterLayout, Role},
    },
    vocabulary::UNK,
};
use privacy::{
    Adjacency, ClipNorm,
    encoding::{Encoding, VectorPlan},
    rng::{NoiseSource, Randomness, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping},
};

/// People who write posts of every length, the words by Zipf's law, some of them unknown; one in ten writes nothing.
struct Writers {
    vocabulary: u32,
    features: usize,
}

impl Population for Writers {
    fn users(&self) -> u64 {
        1 << 40
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        examples.clear();
        let mut word = user.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: u32| {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            let uniform = (word >> 40) as f64 / (1u64 << 24) as f64;
            ((f64::from(below).powf(uniform) - 1.0) as u32).min(below - 1)
        };
        if self.features > 0 {
            let known: Vec<f32> = (0..self.features).map(|i| 0.3 * (i as f32 + (user % 7) as f32)).collect();
            examples.set_features(&known);
        }
        let posts = if user % 10 == 3 { 0 } else { 1 + next(12) };
        for _ in 0..posts {
            let words = next(50) as usize;
            let post: Vec<u32> = (0..words).map(|_| UNK + next(self.vocabulary - UNK)).collect();
            LanguageLearner::push(&post, examples);
        }
        Ok(())
    }
}

fn people(config: &ModelConfig, users: impl IntoIterator<Item = u64>) -> Vec<Examples> {
    let features = config.user_context.unwrap_or(0);
    let writers = Writers { vocabulary: config.vocabulary as u32, features };
    let read = |user| {
        let mut examples = Examples::new(&LanguageLearner::schema_with(features));
        writers.read(user, &mut examples).unwrap();
        examples
    };
    users.into_iter().map(read).collect()
}

fn small(preset: &str, vocabulary: usize) -> ModelConfig {
    ModelConfig::preset(preset).unwrap().with_vocabulary(vocabulary)
}

fn learner(config: &ModelConfig) -> LanguageLearner {
    LanguageLearner::new(config, 8, 10).unwrap()
}

/// A model that has opinions: its tables are some times as large as they begin. The recurrence is as it begins: one that is larger
/// amplifies roundings from token to token, whoever computes it.
fn model(learner: &LanguageLearner) -> Vec<f32> {
    let (config, mut model) = (learner.recurrent().unwrap(), learner.initial(1).unwrap());
    let layout = ParameterLayout::new(config).unwrap();
    for role in [Role::Embedding, Role::OutputEmbedding] {
        model[layout.range(role)].iter_mut().for_each(|v| *v *= 4.0);
    }
    model
}

fn on_card<T>(made: Result<T, EngineError>) -> Option<T> {
    has_card().then(|| made.unwrap_or_else(|e| panic!("{e}")))
}

fn on_threads(learner: &LanguageLearner, model: &[f32], person: &Examples) -> Counts {
    count(learner, model, person, KernelPath::best()).unwrap()
}

/// What no rounding may change of counts.
fn exact(counts: &Counts) -> [(u64, u64); 3] {
    [&counts.words, &counts.ends, &counts.unknown].map(|tally: &Tally| (tally.targets, tally.loss.impossible()))
}

/// At how many targets two counts differ, in all lists together.
fn apart(one: &Counts, other: &Counts) -> u64 {
    let tallies = |counts: &Counts| [counts.words, counts.ends, counts.unknown];
    let hits = |counts: &Counts| tallies(counts).into_iter().flat_map(|tally| tally.hits).collect::<Vec<_>>();
    let heads = |counts: &Counts| counts.heads.iter().flatten().copied().collect::<Vec<_>>();
    let differences = |a: Vec<u64>, b: Vec<u64>| a.into_iter().zip(b).map(|(a, b)| a.abs_diff(b)).sum::<u64>();
    differences(hits(one), hits(other)) + differences(heads(one), heads(other)) / 2
}

fn loss(counts: &Counts) -> f64 {
    counts.words.loss.get() + counts.ends.loss.get() + counts.unknown.loss.get()
}

fn models() -> Vec<(&'static str, ModelConfig)> {
    let tiny = small("tiny", 300);
    vec![
        ("tiny", tiny.clone()),
        ("mcmahan2018", small("mcmahan2018", 1000)),
        ("mcmahan2018-gru", small("mcmahan2018-gru", 500)),
        ("gboard", small("gboard", 997)),
        ("so-nwp", small("so-nwp", 1004)),
        ("shakespeare", small("shakespeare", 90)),
        ("zaremba650", ModelConfig { hidden: 40, embedding: 24, ..small("zaremba650", 600) }),
        ("tiny with features", ModelConfig { user_context: Some(3), ..tiny.clone() }),
        ("two layers of GRU", ModelConfig { cell: Cell::Gru, layers: 2, ..tiny.clone() }),
        ("six words", ModelConfig { vocabulary: 9, ..tiny }),
    ]
}

/// Targets are the same; losses to 1e-5 of their sum; and where the truth stands, but for one target in a thousand that is as likely as
/// another entry to the last bits.
#[test]
fn counts_are_those_of_the_threads_person_by_person() {
    for (name, config) in models() {
        let learner = learner(&config);
        let Some(mut card) = on_card(CardMeasurer::new(&learner)) else { return };
        let (model, people) = (model(&learner), people(&config, 0..120));
        let each = card.each(&model, &people).unwrap();
        let (mut all, mut off) = (Counts::default(), 0);
        for (person, got) in people.iter().zip(&each) {
            let want = on_threads(&learner, &model, person);
            assert_eq!(exact(got), exact(&want), "{name}");
            let relative = (loss(got) - loss(&want)).abs() / loss(&want).max(1.0);
            assert!(relative < 1e-5, "{name}: losses are {relative:e} apart");
            off += apart(got, &want);
            all.merge(&want);
        }
        let targets = all.targets(Targets::ALL);
        let [top1, ..] = all.accuracy(Targets::ALL).unwrap();
        println!("{name}: {targets} targets, top-1 {top1:.3}, {off} counted elsewhere");
        assert!(targets > 1000, "{name}: {targets}");
        assert!(off <= targets / 1000, "{name}: {off} of {targets}");
    }
}

/// Nothing but the bias speaks, and it has few values: every list is decided by ties, among them those of entries that are impossible.
#[test]
fn ties_and_what_is_no_number_follow_the_rules() {
    let config = small("so-nwp", 700);
    let (learner, layout) = (learner(&config), ParameterLayout::new(&config).unwrap());
    let Some(mut card) = on_card(CardMeasurer::new(&learner)) else { return };
    let people = people(&config, 0..60);
    let with = |bias: &dyn Fn(usize) -> f32| {
        let mut model = vec![0.0; layout.len()];
        model[layout.range(Role::OutputBias)].iter_mut().enumerate().for_each(|(entry, b)| *b = bias(entry));
        model
    };
    let models = [
        ("all alike", with(&|_| 0.0)),
        ("few values", with(&|entry| ((entry * 7919) % 5) as f32)),
        ("some impossible", with(&|entry| if entry % 3 == 0 { f32::NEG_INFINITY } else { (entry % 4) as f32 })),
        ("all but eight impossible", with(&|entry| if (3..11).contains(&entry) { 1.0 } else { f32::NEG_INFINITY })),
        ("one is no number", with(&|entry| if entry == 50 { f32::NAN } else { 0.0 })),
        ("one is infinite", with(&|entry| if entry == 60 { f32::INFINITY } else { 0.0 })),
    ];
    for (name, model) in models {
        let each = card.each(&model, &people).unwrap();
        for (person, got) in people.iter().zip(&each) {
            let want = on_threads(&learner, &model, person);
            assert_eq!((exact(got), apart(got, &want)), (exact(&want), 0), "{name}: {got:?} is not {want:?}");
            assert_eq!(got.heads, want.heads, "{name}");
        }
    }
}

#[test]
fn counts_are_the_same_again_and_in_any_order() {
    let config = small("mcmahan2018", 2000);
    let learner = learner(&config);
    let Some(mut card) = on_card(CardMeasurer::new(&learner)) else { return };
    let (model, numbers) = (model(&learner), (0..300).collect::<Vec<u64>>());
    let forwards = people(&config, numbers.iter().copied());
    let backwards = people(&config, numbers.iter().rev().copied());
    let want = card.each(&model, &forwards).unwrap();
    assert!(card.each(&model, &forwards).unwrap() == want, "another count the second time");
    let mut turned = card.each(&model, &backwards).unwrap();
    turned.reverse();
    assert!(turned == want, "what is counted of somebody depends on their place");
    let alone: Vec<Counts> = forwards.chunks(1).map(|one| card.count(&model, one).unwrap()).collect();
    assert!(alone == want, "what is counted of somebody depends on the others");
    assert_eq!(card.each(&model, &[]).unwrap(), []);
}

#[test]
fn another_model_and_other_examples_are_refused() {
    let config = small("tiny", 300);
    let learner = learner(&config);
    let Some(mut card) = on_card(CardMeasurer::new(&learner)) else { return };
    let people = people(&small("tiny", 5000), 0..20);
    let refused = card.each(&model(&learner), &people).unwrap_err().to_string();
    assert!(refused.contains("not below the model's vocabulary of 300"), "{refused}");
    let refused = card.each(&[0.0; 7], &[]).unwrap_err().to_string();
    assert!(refused.contains("parameters, got 7"), "{refused}");
}

/// Devices that are asked how well a model does send, from the card, what they would send from threads, but for the last bits of a loss.
#[test]
fn evaluations_by_devices_are_those_of_the_threads() {
    let config = small("mcmahan2018", 500);
    let learner = learner(&config);
    let local = LocalPlan {
        algorithm: Algorithm::FedAvg { epochs: 1 },
        batch: 8,
        unroll: 10,
        most_tokens: Some(400),
        greedy: false,
        update_penalty: 0.0,
        finetune: None,
    };
    let means = Means { engine: CUDA, ..Means::threads(KernelPath::best(), 2) };
    let Some(mut card) = on_card(CardEngine::new(&local, &learner, means)) else { return };
    let mut threads = Threads::new(&learner, &local, KernelPath::best(), 2).unwrap();
    let plan = EvaluationPlan { most_examples: 100 };
    let counting = Counting::new(&learner, plan).unwrap();
    let clip = ClipNorm::new(NORM).unwrap();
    let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::None).unwrap();
    let vector = VectorPlan::of_update(counting.len(), 20);
    let encoding = Encoding::new(vector, clip, None, Adjacency::ZeroOut).unwrap();
    let model = model(&learner);
    let task = Task {
        model: &model,
        clipping: &clipping,
        encoding: &encoding,
        full_weight_tokens: None,
        learning_rate: 0.5,
        epochs: None,
        upload: Upload::Whole,
        evaluation: Some(plan),
    };
    let writers = Writers { vocabulary: 500, features: 0 };
    let key = users_key(&NoiseSource::from(SimulationKey::new(5)), &[3]);
    let mut numbers: Vec<u64> = (0..80).collect();
    let sum = |engine: &mut dyn Engine, numbers: &[u64]| {
        let summed = engine.sum(&task, &Users { population: &writers, numbers, key: &key }).unwrap();
        let tokens: Vec<(u64, usize)> = summed.exact.iter().map(|(user, exact)| (*user, exact.tokens)).collect();
        let values = summed.sum.release_without_privacy(0, "a test", Randomness::Simulated { seed: 5 });
        (values.values().to_vec(), tokens)
    };
    let (want, got) = (sum(&mut threads, &numbers), sum(&mut card, &numbers));
    assert!(card.has_forgotten().unwrap(), "something of whom a model was measured on stays on the card");
    assert_eq!(got.1, want.1);
    assert!(want.0.iter().any(|v| *v > 0));
    // Of each coordinate by itself: the last bits of a loss, a rounding for everybody, and one target that another entry is as likely at.
    let one = encoding.grid_scale(1.0) / plan.most_examples as f64;
    for (coordinate, (got, want)) in got.0.iter().zip(&want.0).enumerate() {
        let most = 1e-4 * (*want as f64).abs() + numbers.len() as f64 + one;
        assert!(((got - want) as f64).abs() <= most, "{coordinate}: {got} is not {want}, {one} for a target");
    }
    numbers.reverse();
    assert!(sum(&mut card, &numbers) == got, "another sum in another order");
}
