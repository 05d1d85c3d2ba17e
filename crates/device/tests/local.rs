//! Local training against the reference model, step by step as Algorithm 1 of McMahan et al. 2018 says it.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use keyhush_device::{
    finetune::{FineTune, GeneralText},
    learner::{LearnerError, examples::Examples, language::LanguageLearner, tags::TagLearner},
    local::{Algorithm, LocalError, LocalPlan, LocalTrainer},
};
use lm::{
    kernels::KernelPath,
    model::{
        batch::Batch,
        config::ModelConfig,
        initial::initial_parameters,
        parameters::ParameterLayout,
        reference::{Reference, Soft, State},
    },
};
use privacy::{ClipNorm, stages::ClipRule};

fn config() -> ModelConfig {
    ModelConfig { hidden: 12, ..ModelConfig::preset("tiny").unwrap().with_vocabulary(60) }
}

fn plan(algorithm: Algorithm) -> LocalPlan {
    LocalPlan { algorithm, batch: 3, unroll: 4, most_tokens: None, greedy: false, update_penalty: 0.0, finetune: None }
}

fn learner(config: &ModelConfig) -> LanguageLearner {
    LanguageLearner::new(config, 3, 4).unwrap()
}

/// Five posts of somebody of whom these features are known.
fn examples(features: &[f32]) -> Examples {
    let mut examples = Examples::new(&LanguageLearner::schema_with(features.len()));
    for post in 0..5u32 {
        let ids: Vec<u32> = (0..4 + post).map(|i| 3 + (i * 7 + post * 11) % 57).collect();
        LanguageLearner::push(&ids, &mut examples);
    }
    examples.set_features(features);
    examples
}

/// What is read and predicted in each batch of three sequences and four tokens, the obvious way.
fn batches(examples: &Examples) -> Vec<(Vec<u32>, Vec<u32>)> {
    let (rows, unroll, len) = (3, 4, examples.len());
    let length = len.div_ceil(rows);
    let batch = |first: usize| {
        let places = (first..length.min(first + unroll)).flat_map(|t| (0..rows).map(move |row| row * length + t));
        let of =
            |column, none| places.clone().map(|at| examples.ids(column).get(at).copied().unwrap_or(none)).collect();
        (of(0, 1), of(1, Batch::NONE))
    };
    (0..length).step_by(unroll).map(batch).collect()
}

fn flat(bound: f64) -> ClipRule {
    ClipRule::Flat(ClipNorm::new(bound).unwrap())
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

/// The obvious way: gradients of the reference in f64; `each` moves the parameters after every batch.
fn by_the_book(epochs: u32, each: impl FnMut(&mut Vec<f64>, &[f64], usize)) -> Vec<f64> {
    by_the_book_of(&config(), &examples(&[]), epochs, each)
}

fn by_the_book_of(
    config: &ModelConfig,
    examples: &Examples,
    epochs: u32,
    mut each: impl FnMut(&mut Vec<f64>, &[f64], usize),
) -> Vec<f64> {
    let layout = ParameterLayout::new(config).unwrap();
    let start: Vec<f64> = initial_parameters(config, 1).unwrap().iter().map(|v| f64::from(*v)).collect();
    let mut model = Reference::new(config.clone(), layout.clone(), start.clone());
    for _ in 0..epochs {
        let mut state = State::zero(config, 3);
        for (inputs, targets) in batches(examples) {
            let batch = Batch { rows: 3, inputs: &inputs, targets: &targets, context: examples.features() };
            let mut gradient = vec![0.0; layout.len()];
            model.loss_and_gradient(&batch, &mut state, None, &mut gradient);
            each(&mut model.values, &gradient, batch.counted());
        }
    }
    model.values.iter().zip(&start).map(|(v, s)| v - s).collect()
}

fn assert_close(got: &[f32], want: &[f64]) {
    let off: f64 = got.iter().zip(want).map(|(g, w)| (f64::from(*g) - w).powi(2)).sum();
    let size: f64 = want.iter().map(|w| w * w).sum();
    assert!(size > 0.0 && (off / size).sqrt() < 1e-4, "{}", (off / size).sqrt());
}

fn train(plan: LocalPlan, clip: &ClipRule, drawn: u64) -> (Vec<f32>, bool) {
    let start = initial_parameters(&config(), 1).unwrap();
    let mut trainer = LocalTrainer::new(&learner(&config()), plan, KernelPath::best()).unwrap();
    let learned = trainer.train(&start, &examples(&[]), clip, 0.3, drawn).unwrap();
    let again = trainer.train(&start, &examples(&[]), clip, 0.3, drawn).unwrap();
    assert_eq!(learned, again, "a user leaves nothing behind");
    assert!(learned.loss > 0.0 && learned.examples == examples(&[]).len());
    (learned.difference, learned.projected)
}

#[test]
fn fedavg_takes_a_step_for_every_batch() {
    let want = by_the_book(2, |values, gradient, _| values.iter_mut().zip(gradient).for_each(|(v, g)| *v -= 0.3 * g));
    let (got, projected) = train(plan(Algorithm::FedAvg { epochs: 2 }), &flat(1e9), 0);
    assert_close(&got, &want);
    assert!(!projected);
}

#[test]
fn fedsgd_on_all_text_is_one_step_of_the_mean_gradient() {
    let mut sum = Vec::new();
    let mut count = 0;
    by_the_book(1, |_, gradient, counted| {
        sum.resize(gradient.len(), 0.0);
        sum.iter_mut().zip(gradient).for_each(|(s, g)| *s += g * counted as f64);
        count += counted;
    });
    let want: Vec<f64> = sum.iter().map(|s| -0.3 * s / f64::from(u32::try_from(count).unwrap())).collect();
    assert_close(&train(plan(Algorithm::FedSgdAll), &flat(1e9), 0).0, &want);
}

#[test]
fn fedsgd_on_a_batch_takes_the_one_that_is_drawn() {
    let mut first = Vec::new();
    by_the_book(1, |_, gradient, _| {
        if first.is_empty() {
            first = gradient.iter().map(|g| -0.3 * g).collect();
        }
    });
    let batches = batches(&examples(&[])).len() as u64;
    let (zeroth, around) =
        (train(plan(Algorithm::FedSgdBatch), &flat(1e9), 0), train(plan(Algorithm::FedSgdBatch), &flat(1e9), batches));
    assert_close(&zeroth.0, &first);
    assert_eq!(zeroth, around);
    assert_ne!(zeroth, train(plan(Algorithm::FedSgdBatch), &flat(1e9), 1));
}

#[test]
fn greedy_clipping_stays_within_the_bound_after_every_step() {
    let bound = 0.05;
    let want = {
        let start: Vec<f64> = initial_parameters(&config(), 1).unwrap().iter().map(|v| f64::from(*v)).collect();
        by_the_book(1, |values, gradient, _| {
            values.iter_mut().zip(gradient).for_each(|(v, g)| *v -= 0.3 * g);
            let size: f64 = values.iter().zip(&start).map(|(v, s)| (v - s).powi(2)).sum::<f64>().sqrt();
            let factor = (bound / size).min(1.0);
            values.iter_mut().zip(&start).for_each(|(v, s)| *v = s + factor * (*v - s));
        })
    };
    let (got, projected) = train(LocalPlan { greedy: true, ..plan(Algorithm::FedAvg { epochs: 1 }) }, &flat(bound), 0);
    assert!(projected && norm(&got) < bound * 1.000_1);
    assert_close(&got, &want);
}

#[test]
fn the_penalty_pulls_the_difference_towards_zero() {
    let penalty = 0.4;
    let start: Vec<f64> = initial_parameters(&config(), 1).unwrap().iter().map(|v| f64::from(*v)).collect();
    let want = by_the_book(1, |values, gradient, _| {
        for ((v, g), s) in values.iter_mut().zip(gradient).zip(&start) {
            *v -= 0.3 * (g + 2.0 * f64::from(penalty) * (*v - s));
        }
    });
    let (got, _) = train(LocalPlan { update_penalty: penalty, ..plan(Algorithm::FedAvg { epochs: 1 }) }, &flat(1e9), 0);
    assert_close(&got, &want);
    assert!(norm(&got) < norm(&train(plan(Algorithm::FedAvg { epochs: 1 }), &flat(1e9), 0).0));
}

#[test]
fn somebody_who_typed_nothing_changes_nothing() {
    let start = initial_parameters(&config(), 1).unwrap();
    for algorithm in [Algorithm::FedAvg { epochs: 1 }, Algorithm::FedSgdBatch, Algorithm::FedSgdAll] {
        let mut trainer = LocalTrainer::new(&learner(&config()), plan(algorithm), KernelPath::best()).unwrap();
        let nothing = Examples::new(&LanguageLearner::schema_with(0));
        let learned = trainer.train(&start, &nothing, &flat(1.0), 0.3, 5).unwrap();
        assert!(learned.difference.iter().all(|d| *d == 0.0) && learned.examples == 0);
    }
}

#[test]
fn what_is_known_of_a_person_reaches_the_training() {
    let config = ModelConfig { user_context: Some(2), ..config() };
    let start = initial_parameters(&config, 1).unwrap();
    let learn = |features: &[f32]| {
        let mut trainer =
            LocalTrainer::new(&learner(&config), plan(Algorithm::FedAvg { epochs: 1 }), KernelPath::best()).unwrap();
        trainer.train(&start, &examples(features), &flat(1e9), 0.3, 0).unwrap().difference
    };
    let features = [0.7, -0.4];
    let want = by_the_book_of(&config, &examples(&features), 1, |values, gradient, _| {
        values.iter_mut().zip(gradient).for_each(|(v, g)| *v -= 0.3 * g);
    });
    assert_close(&learn(&features), &want);
    assert_ne!(learn(&features), learn(&[0.0, 0.0]));
}

/// What one step has no use for is refused, also by a device that is told so: an engine that did it would say another clip bit.
#[test]
fn one_step_is_neither_greedy_nor_penalised() {
    for algorithm in [Algorithm::FedSgdBatch, Algorithm::FedSgdAll] {
        let greedy = LocalPlan { greedy: true, ..plan(algorithm) };
        assert_eq!(greedy.check().unwrap_err().field, "greedy");
        let penalised = LocalPlan { update_penalty: 0.5, ..plan(algorithm) };
        assert_eq!(penalised.check().unwrap_err().field, "update_penalty");
        assert_eq!(plan(algorithm).check(), Ok(()));
    }
}

fn finetuned(how: FineTune) -> LocalPlan {
    LocalPlan { finetune: Some(how), ..plan(Algorithm::FedAvg { epochs: 2 }) }
}

fn general() -> GeneralText {
    GeneralText::new((0..6u32).map(|n| vec![50 + n, 51 + n, 52 + n]))
}

/// Learning without forgetting (Popov et al. 2018, equations 1 and 2): the labels are those of the model as it came, which reads along.
#[test]
fn soft_labels_are_those_of_the_incoming_model() {
    let (config, lambda) = (config(), 0.25);
    let layout = ParameterLayout::new(&config).unwrap();
    let start: Vec<f64> = initial_parameters(&config, 1).unwrap().iter().map(|v| f64::from(*v)).collect();
    let general = Reference::new(config.clone(), layout.clone(), start.clone());
    let mut model = general.clone();
    for _ in 0..2 {
        let (mut state, mut state_of_general) = (State::zero(&config, 3), State::zero(&config, 3));
        for (inputs, targets) in batches(&examples(&[])) {
            let batch = Batch { rows: 3, inputs: &inputs, targets: &targets, context: &[] };
            let labels = general.probabilities(&batch, &mut state_of_general);
            let labels: Vec<f64> = labels.into_iter().map(|p| (1.0 - lambda) * p).collect();
            let mut gradient = vec![0.0; layout.len()];
            let soft = Soft { truth: lambda, labels: &labels };
            model.loss_and_gradient_towards(&batch, &mut state, soft, &mut gradient);
            model.values.iter_mut().zip(&gradient).for_each(|(v, g)| *v -= 0.3 * g);
        }
    }
    let want: Vec<f64> = model.values.iter().zip(&start).map(|(v, s)| v - s).collect();
    let (got, _) = train(finetuned(FineTune::SoftLabels { lambda: lambda as f32 }), &flat(1e9), 0);
    assert_close(&got, &want);
    assert!(norm(&got) < norm(&train(plan(Algorithm::FedAvg { epochs: 2 }), &flat(1e9), 0).0));
}

/// Greedy clipping moves the model that learns, and never the one that teaches.
#[test]
fn clipping_between_steps_leaves_the_soft_labels_alone() {
    let soft = || finetuned(FineTune::SoftLabels { lambda: 0.5 });
    let greedy = LocalPlan { greedy: true, ..soft() };
    let (got, projected) = train(greedy.clone(), &flat(0.05), 0);
    assert!(projected && norm(&got) < 0.05 * 1.000_1);
    assert_eq!(train(greedy, &flat(1e9), 0).0, train(soft(), &flat(1e9), 0).0);
}

/// Random rehearsal is plain training on what is typed with general text between it, and the weight is that of what was typed.
#[test]
fn rehearsal_reads_general_text_beside_the_users() {
    let rehearsal = |lambda| finetuned(FineTune::Rehearsal { lambda, general: general() });
    let plain = train(plan(Algorithm::FedAvg { epochs: 2 }), &flat(1e9), 0).0;
    let half = train(rehearsal(0.5), &flat(1e9), 0).0;
    assert_ne!(half, plain);
    assert_ne!(half, train(rehearsal(0.5), &flat(1e9), 1).0, "which general text, is drawn");
    assert_ne!(half, train(rehearsal(0.25), &flat(1e9), 0).0);
    // The words that nobody typed move with rehearsal alone: those of the general text get likelier.
    let layout = ParameterLayout::new(&config()).unwrap();
    let table = layout.range(lm::model::parameters::Role::Embedding);
    let moved = |difference: &[f32], id: usize| {
        let width = config().embedding;
        norm(&difference[table.start + id * width..table.start + (id + 1) * width])
    };
    let typed = examples(&[]);
    let unread = (50..58).find(|id| !typed.ids(0).contains(id) && !typed.ids(1).contains(id)).unwrap() as usize;
    assert!(moved(&half, unread) > 2.0 * moved(&plain, unread), "{} {}", moved(&half, unread), moved(&plain, unread));
}

#[test]
fn somebody_who_typed_nothing_rehearses_nothing() {
    let start = initial_parameters(&config(), 1).unwrap();
    for how in [FineTune::Rehearsal { lambda: 0.5, general: general() }, FineTune::SoftLabels { lambda: 0.5 }] {
        let mut trainer = LocalTrainer::new(&learner(&config()), finetuned(how), KernelPath::best()).unwrap();
        let nothing = Examples::new(&LanguageLearner::schema_with(0));
        let learned = trainer.train(&start, &nothing, &flat(1.0), 0.3, 5).unwrap();
        assert!(learned.difference.iter().all(|d| *d == 0.0) && learned.examples == 0 && learned.loss == 0.0);
    }
}

#[test]
fn what_cannot_be_fine_tuned_is_refused() {
    for lambda in [0.0, 0.009, 1.0, 2.0, -1.0, f32::NAN] {
        let wrong = finetuned(FineTune::SoftLabels { lambda });
        assert_eq!(wrong.check().unwrap_err().field, "lambda", "{lambda}");
    }
    let nothing = FineTune::Rehearsal { lambda: 0.5, general: GeneralText::new([vec![]]) };
    assert_eq!(finetuned(nothing).check().unwrap_err().field, "general_tokens");
    for algorithm in [Algorithm::FedSgdBatch, Algorithm::FedSgdAll] {
        let one_step = LocalPlan { algorithm, ..finetuned(FineTune::SoftLabels { lambda: 0.5 }) };
        assert_eq!(one_step.check().unwrap_err().field, "finetune");
    }
    let tags = TagLearner::new(60, vec!["one".into(), "two".into()], 3);
    for how in [FineTune::Rehearsal { lambda: 0.5, general: general() }, FineTune::SoftLabels { lambda: 0.5 }] {
        let refused = LocalTrainer::new(&tags, finetuned(how), KernelPath::best()).err();
        assert_eq!(refused, Some(LocalError::Learner(LearnerError::NotFineTuned { learner: "tags" })));
    }
}
