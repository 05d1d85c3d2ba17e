//! One user's part of a round: what a weight does to it, and what leaves of somebody who typed nothing.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use keyhush_device::{
    learner::{examples::Examples, language::LanguageLearner},
    local::{Algorithm, LocalPlan},
    round::{Drawn, Task, Worker},
    upload::Upload,
};
use lm::{
    kernels::KernelPath,
    model::{config::ModelConfig, initial::initial_parameters},
};
use privacy::{
    Adjacency, ClipNorm,
    encoding::{Encoding, VectorPlan, layout::FULL_WEIGHT},
    rng::{NoiseSource, Purpose, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping},
};

const TOKENS: usize = 24;

fn config() -> ModelConfig {
    ModelConfig { hidden: 8, ..ModelConfig::preset("tiny").unwrap().with_vocabulary(60) }
}

/// Two posts, with the ends that are predicted too.
fn text() -> Examples {
    let mut text = nothing();
    for post in 0..2 {
        LanguageLearner::push(&(0..11).map(|i| 3 + (i * 7 + post * 11) % 57).collect::<Vec<u32>>(), &mut text);
    }
    assert_eq!(text.len(), TOKENS);
    text
}

fn nothing() -> Examples {
    Examples::new(&LanguageLearner::schema_with(0))
}

/// The integers that leave: of the update, the clip bit and the weight.
fn part(text: &Examples, full_weight_tokens: Option<f64>) -> (Vec<i32>, i32, i32) {
    let config = config();
    let model = initial_parameters(&config, 1).unwrap();
    let clip = ClipNorm::new(0.05).unwrap();
    let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::NormAtMost(clip)).unwrap();
    let plan = VectorPlan { clip_bit: true, weight: true, ..VectorPlan::of_update(model.len(), 20) };
    let encoding = Encoding::new(plan, clip, None, Adjacency::ZeroOut).unwrap();
    let task = Task {
        model: &model,
        clipping: &clipping,
        encoding: &encoding,
        full_weight_tokens,
        learning_rate: 0.5,
        epochs: None,
        upload: Upload::Whole,
        evaluation: None,
    };
    let algorithm = Algorithm::FedAvg { epochs: 1 };
    let plan = LocalPlan {
        algorithm,
        batch: 3,
        unroll: 4,
        most_tokens: None,
        greedy: false,
        update_penalty: 0.0,
        finetune: None,
    };
    let rounding = NoiseSource::from(SimulationKey::new(1)).stream(Purpose::Rounding, &[]).chunk(0);
    let learner = LanguageLearner::new(&config, 3, 4).unwrap();
    let mut worker = Worker::new(&learner, plan, KernelPath::best()).unwrap();
    let values = worker.part(task, text, Drawn { rounding, batch: 0 }).unwrap().encoded.values().to_vec();
    let [update @ .., bit, weight] = &values[..] else { panic!("too short") };
    (update.to_vec(), *bit, *weight)
}

fn norm(update: &[i32]) -> f64 {
    update.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

/// Rule P10: clipped first, then multiplied by the weight, which is the share of the tokens that a full weight has.
#[test]
fn p10_an_update_is_multiplied_by_its_users_weight() {
    let (full, _, weight) = part(&text(), None);
    assert_eq!(weight, FULL_WEIGHT as i32);
    assert!((norm(&full) / f64::from(1 << 20) - 1.0).abs() < 1e-3, "clipped to the bound");
    for (tokens, share) in [(1.0, 1.0), (TOKENS as f64, 1.0), (2.0 * TOKENS as f64, 0.5), (8.0 * TOKENS as f64, 0.125)]
    {
        let (update, _, weight) = part(&text(), Some(tokens));
        let most =
            update.iter().zip(&full).map(|(v, f)| (f64::from(*v) - share * f64::from(*f)).abs()).fold(0.0, f64::max);
        assert!(most <= 1.0, "{tokens}: not {share} of the update, off by {most} steps");
        assert_eq!(weight, (share * f64::from(FULL_WEIGHT)) as i32, "{tokens}");
    }
}

/// Rule P9: zero-out puts zeros in the place of a user. Somebody who typed nothing must look the same, or the clip bit of one
/// user would move the sum by a whole bit, where half a bit is paid for.
#[test]
fn p9_who_typed_nothing_sends_nothing_not_even_a_clip_bit() {
    for full in [None, Some(10.0)] {
        let (update, bit, weight) = part(&nothing(), full);
        assert!(update.iter().all(|v| *v == 0));
        assert_eq!((bit, weight), (0, 0));
    }
    assert_ne!(part(&text(), None).1, 0, "everybody else says it");
}
