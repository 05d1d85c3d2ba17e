//! The engine of threads: the same sum whoever trains whom, and the sum that the users' parts say.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use corpus::synth::{Crowd, Dialect, SynthPlan};
use device::{
    learner::{Learner, examples::Examples, language::LanguageLearner},
    local::{Algorithm, LocalPlan},
    round::{Drawn, Task, Worker},
};
use keyhush_federated::{
    engine::{Engine, Users, threads::Threads},
    fleet::simulated::users_key,
    population::{Population, SyntheticPopulation},
};
use lm::{
    kernels::KernelPath,
    model::{config::ModelConfig, initial::initial_parameters},
    tokenizer::Tokenizer,
};
use privacy::{
    Adjacency, ClipNorm,
    encoding::{Encoding, VectorPlan},
    rng::{NoiseSource, Purpose, Randomness, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping, Sum},
};

fn local() -> LocalPlan {
    LocalPlan {
        algorithm: Algorithm::FedAvg { epochs: 1 },
        batch: 4,
        unroll: 5,
        most_tokens: Some(100),
        greedy: false,
        update_penalty: 0.0,
    }
}

#[test]
fn the_sum_is_the_same_for_any_number_of_threads_and_is_that_of_the_parts() {
    let vocabulary = corpus::synth::vocabulary(200).unwrap();
    let config = ModelConfig::preset("tiny").unwrap().with_vocabulary(vocabulary.len());
    let model = initial_parameters(&config, 1).unwrap();
    let learner = LanguageLearner::new(&config, 4, 5).unwrap();
    let crowd = Crowd::new(SynthPlan::new(3, 1_000_000, Dialect::Informal)).unwrap();
    let population = SyntheticPopulation::new(crowd, Tokenizer::words(), &vocabulary, &learner);
    let clip = ClipNorm::new(0.2).unwrap();
    let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::None).unwrap();
    let plan = VectorPlan::of_update(model.len(), 16);
    let encoding = Encoding::new(plan, clip, None, Adjacency::AddOrRemove).unwrap();
    let task = Task {
        model: &model,
        clipping: &clipping,
        encoding: &encoding,
        full_weight_tokens: Some(80.0),
        learning_rate: 0.3,
    };
    let source = NoiseSource::from(SimulationKey::new(5));
    let cohort = [5, 17, 400_000, 999_999, 12, 13, 14];
    let sum = |threads: usize| {
        let mut engine = Threads::new(&learner, &local(), KernelPath::best(), threads).unwrap();
        let users = Users { population: &population, numbers: &cohort, key: &users_key(&source, &[9]) };
        let summed = engine.sum(&task, &users).unwrap();
        assert_eq!(summed.exact.len(), cohort.len());
        summed.sum.release_without_privacy(0, "a test", Randomness::Simulated { seed: 5 }).values().to_vec()
    };
    let one = sum(1);
    assert_eq!(one, sum(2));
    assert_eq!(one, sum(5));
    let mut worker = Worker::new(&learner, local(), KernelPath::best()).unwrap();
    let mut by_hand = Sum::zero(&encoding);
    for user in cohort {
        let mut text = Examples::new(learner.schema());
        population.read(user, &mut text).unwrap();
        text.truncate(100);
        let mut words = source.stream(Purpose::Rounding, &[9]).chunk(user);
        let drawn = Drawn { batch: words.next_word(), rounding: words };
        by_hand.add(&worker.part(task, &text, drawn).unwrap().encoded).unwrap();
    }
    let by_hand = by_hand.release_without_privacy(0, "a test", Randomness::Simulated { seed: 5 });
    assert_eq!(one, by_hand.values());
    assert!(one.iter().any(|v| *v != 0));
}
