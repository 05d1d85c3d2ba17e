//! Whole training steps against PyTorch: `testdata/pytorch-2.15.0`, whose `generate.py` says what is in it.
//!
//! Every cell, layer and output that a configuration can have takes three steps of truncated backpropagation with
//! carried state. In `f64` the reference must agree to rounding, in `f32` to what that float can hold, and so must the fast
//! path on every set of kernels that this machine has.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use keyhush_lm::{
    kernels::KernelPath,
    model::{
        batch::Batch,
        config::ModelConfig,
        dropout::Masks,
        fast::Trainer,
        parameters::{ParameterLayout, Role},
        reference::{Real, Reference, State},
    },
};
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    model: ModelConfig,
    seed: u64,
    parameters: usize,
    learning_rate: f64,
    context: Vec<f32>,
    rows: usize,
    batches: Vec<Recorded>,
    trained: Described,
    next_inputs: Vec<u32>,
    next_probabilities: Vec<Vec<f64>>,
}

/// A batch and what PyTorch made of it.
#[derive(Deserialize)]
struct Recorded {
    inputs: Vec<Vec<u32>>,
    targets: Vec<Vec<i64>>,
    #[serde(default)]
    masks: Option<Vec<Vec<Vec<Vec<f32>>>>>,
    loss: f64,
    gradient: Described,
}

/// What is kept of a vector as long as the parameters.
#[derive(Deserialize)]
struct Described {
    norm: f64,
    weighted_sum: f64,
    picked: Vec<(usize, f64)>,
}

impl Described {
    /// Refuses a vector that is not this one. Entries near 0 are compared on the scale of the vector's typical entry.
    fn check<T: Real>(&self, vector: &[T], tolerance: f64, what: &str) -> Result<(), String> {
        let vector: Vec<f64> = vector.iter().map(|v| v.to_f64()).collect();
        let typical = self.norm / (vector.len() as f64).sqrt();
        let norm = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
        close(norm, self.norm, 0.0, tolerance, &format!("{what}: norm"))?;
        let weighted = vector.iter().enumerate().map(|(i, v)| (1 + i % 7) as f64 * v);
        close(weighted.sum(), self.weighted_sum, self.norm, tolerance, &format!("{what}: weighted sum"))?;
        for (i, want) in &self.picked {
            close(vector[*i], *want, typical, tolerance, &format!("{what}: entry {i}"))?;
        }
        Ok(())
    }
}

fn close(got: f64, want: f64, scale: f64, tolerance: f64, what: &str) -> Result<(), String> {
    let near = (got - want).abs() <= tolerance * want.abs().max(scale);
    if near { Ok(()) } else { Err(format!("{what}: {got:e}, PyTorch says {want:e}")) }
}

/// The upper 31 bits of a linear congruential generator's numbers, to [-0.5, 0.5).
fn values(count: usize, seed: u64) -> Vec<f64> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as f64 / f64::from(1u32 << 31) - 0.5
    };
    (0..count).map(|_| next()).collect()
}

fn cases() -> Vec<Case> {
    let text = include_str!("../testdata/pytorch-2.15.0/training_steps.json");
    serde_json::from_str::<File>(text).unwrap().cases
}

impl Recorded {
    /// Inputs, targets and masks, flat.
    fn flat(&self) -> (Vec<u32>, Vec<u32>, Option<Masks>) {
        let targets = self.targets.iter().flatten().map(|t| u32::try_from(*t).unwrap_or(Batch::NONE)).collect();
        let masks = self.masks.as_ref().map(|places| places.iter().map(|p| flat(p)).collect());
        (self.inputs.concat(), targets, masks)
    }
}

/// Takes a case's steps with the reference; says what is not as recorded.
fn check<T: Real>(case: &Case, tolerance: f64) -> Result<(), String> {
    let layout = ParameterLayout::new(&case.model).unwrap();
    assert_eq!(layout.len(), case.parameters, "{}", case.name);
    let start = values(layout.len(), case.seed).into_iter().map(T::of).collect();
    let mut model = Reference::new(case.model.clone(), layout.clone(), start);
    let mut state = State::zero(&case.model, case.rows);
    for (b, recorded) in case.batches.iter().enumerate() {
        let what = format!("{}, batch {b}", case.name);
        let (inputs, targets, masks) = recorded.flat();
        let batch = Batch { rows: case.rows, inputs: &inputs, targets: &targets, context: &case.context };
        let mut gradient = vec![T::of(0.0); case.parameters];
        let loss = model.loss_and_gradient(&batch, &mut state, masks.as_ref(), &mut gradient);
        close(loss.to_f64(), recorded.loss, 0.0, tolerance, &format!("{what}: loss"))?;
        recorded.gradient.check(&gradient, tolerance, &format!("{what}: gradient"))?;
        let rate = T::of(case.learning_rate);
        model.values.iter_mut().zip(gradient).for_each(|(v, g)| *v = *v - rate * g);
        if case.model.unit_norm {
            renormalise(&layout, &mut model.values);
        }
    }
    case.trained.check(&model.values, tolerance, &format!("{}: trained parameters", case.name))?;
    let nothing = vec![Batch::NONE; case.rows];
    let next = Batch { rows: case.rows, inputs: &case.next_inputs, targets: &nothing, context: &case.context };
    let probabilities = model.probabilities(&next, &mut state);
    for (got, want) in probabilities.iter().zip(case.next_probabilities.concat()) {
        close(got.to_f64(), want, 0.0, tolerance, &format!("{}: probabilities after the last state", case.name))?;
    }
    Ok(())
}

/// Every embedding to norm 1, in any float.
fn renormalise<T: Real>(layout: &ParameterLayout, values: &mut [T]) {
    for table in layout.parameters().iter().filter(|p| matches!(p.role, Role::Embedding | Role::OutputEmbedding)) {
        for row in values[table.range()].chunks_exact_mut(table.columns) {
            let norm = row.iter().map(|v| v.to_f64() * v.to_f64()).sum::<f64>().sqrt();
            row.iter_mut().for_each(|v| *v = T::of(v.to_f64() / norm));
        }
    }
}

/// Takes a case's steps with the fast path; says what is not as recorded.
fn check_fast(case: &Case, path: KernelPath, tolerance: f64) -> Result<(), String> {
    let name = format!("{} on {}", case.name, path.name());
    let start: Vec<f32> = values(case.parameters, case.seed).into_iter().map(|v| v as f32).collect();
    let mut trainer = Trainer::new(&case.model, case.rows, case.batches[0].inputs.len(), path).unwrap();
    trainer.load(&start);
    for (b, recorded) in case.batches.iter().enumerate() {
        let (inputs, targets, masks) = recorded.flat();
        let batch = Batch { rows: case.rows, inputs: &inputs, targets: &targets, context: &case.context };
        let loss = trainer.step_without(&batch, case.learning_rate as f32, masks.as_ref());
        close(f64::from(loss), recorded.loss, 0.0, tolerance, &format!("{name}, batch {b}: loss"))?;
    }
    let mut trained = vec![0.0; case.parameters];
    trainer.store(&mut trained);
    case.trained.check(&trained, tolerance, &format!("{name}: trained parameters"))?;
    // How far they moved tells more than where they are.
    let moves: Vec<(usize, f64)> =
        case.trained.picked.iter().map(|(i, end)| (*i, end - f64::from(start[*i]))).collect();
    let typical = (moves.iter().map(|(_, m)| m * m).sum::<f64>() / moves.len() as f64).sqrt();
    for (i, want) in moves {
        close(f64::from(trained[i] - start[i]), want, typical, tolerance, &format!("{name}: move of entry {i}"))?;
    }
    // Each entry in turn as what comes next, in every row: the carried state, and the probabilities of all entries.
    let state = trainer.state();
    for entry in 0..case.model.vocabulary {
        let targets = vec![entry as u32; case.rows];
        let next = Batch { rows: case.rows, inputs: &case.next_inputs, targets: &targets, context: &case.context };
        trainer.set_state(&state);
        let want: f64 = case.next_probabilities.iter().map(|row| -row[entry].ln()).sum();
        close(f64::from(trainer.loss(&next)), want, 0.0, tolerance, &format!("{name}: loss of entry {entry} next"))?;
    }
    Ok(())
}

fn paths() -> impl Iterator<Item = KernelPath> {
    KernelPath::ALL.into_iter().filter(|path| path.is_available())
}

/// `[step][row][unit]` as one vector.
fn flat(steps: &[Vec<Vec<f32>>]) -> Vec<f32> {
    steps.concat().concat()
}

#[test]
fn training_steps_in_f64_are_those_of_pytorch() {
    let cases = cases();
    assert_eq!(cases.len(), 12);
    cases.iter().for_each(|case| check::<f64>(case, 1e-10).unwrap());
}

#[test]
fn training_steps_in_f32_are_those_of_pytorch() {
    cases().iter().for_each(|case| check::<f32>(case, 1e-4).unwrap());
}

#[test]
fn fast_training_steps_are_those_of_pytorch_on_every_path() {
    for path in paths() {
        cases().iter().for_each(|case| check_fast(case, path, 2e-4).unwrap());
    }
}

/// What would make the comparison worthless: something wrong that passes.
#[test]
fn a_small_mistake_is_seen() {
    type Mistake = (&'static str, fn(&mut Case));
    let mistakes: [Mistake; 5] = [
        ("other tokens in the last batch", |c| c.batches[2].inputs[0].iter_mut().for_each(|t| *t = (*t + 1) % 11)),
        ("another target", |c| c.batches[2].targets[3][1] = (c.batches[2].targets[3][1] + 1) % 11),
        ("another token after the last state", |c| c.next_inputs[0] = (c.next_inputs[0] + 1) % 11),
        ("another learning rate", |c| c.learning_rate *= 1.0 + 1e-6),
        ("other parameters", |c| c.seed += 1),
    ];
    for (what, make) in mistakes {
        for mut case in cases() {
            make(&mut case);
            assert!(check::<f64>(&case, 1e-10).is_err(), "{}: {what}", case.name);
        }
    }
    for mut case in cases() {
        let path = KernelPath::best();
        let rate = std::mem::replace(&mut case.learning_rate, 0.501);
        assert!(check_fast(&case, path, 2e-4).is_err(), "{}: another learning rate", case.name);
        case.learning_rate = rate;
        case.next_inputs[0] = (case.next_inputs[0] + 1) % 11;
        assert!(check_fast(&case, path, 2e-4).is_err(), "{}: another token after the last state", case.name);
    }
    for mut case in with(|c| c.model.unit_norm) {
        case.model.unit_norm = false;
        assert!(check_fast(&case, KernelPath::best(), 2e-4).is_err(), "{}: without unit norm", case.name);
    }
    let (masked, with_context) = (with(|c| c.model.dropout.is_some()), with(|c| !c.context.is_empty()));
    assert!(masked.len() >= 5 && with_context.len() >= 3);
    for mut case in masked {
        case.batches[1].masks = None;
        assert!(check::<f32>(&case, 1e-4).is_err(), "{}: without its masks", case.name);
    }
    for mut case in with_context {
        case.context[0] += 0.01;
        assert!(check::<f32>(&case, 1e-4).is_err(), "{}: another context", case.name);
    }
}

fn with(wanted: impl Fn(&Case) -> bool) -> Vec<Case> {
    cases().into_iter().filter(wanted).collect()
}
