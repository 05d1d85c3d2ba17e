//! Greedy clipping on the card, against the book: gradients of the reference in float64, and a projection that is two lines.
//!
//! A difference within a tight bound is hardly longer than the rounding of the weights that it is the difference of. Threads are in
//! float32 as well, and add what each token says to a weight at once: their forget gate's bias, which is near 1, is off by a thousandth of
//! what it moved. So threads and card are each compared with the book, and the card may be off by as much.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]
#![allow(clippy::print_stdout, reason = "what is skipped and what was found is said")]

use std::ops::Range;

use device::{
    learner::{Learner, Part, examples::Examples},
    local::{Algorithm, LocalPlan},
};
use federated::{engine::Precision, population::Population};
use lm::model::{
    batch::Batch,
    parameters::{ParameterLayout, Role},
    reference::{Reference, State},
};
use privacy::{encoding::Rounding, stages::ClipRule};

use crate::card::{Trial, by_layer, local, small};

const USERS: [u64; 2] = [5, 17];
const CLIP: f64 = 0.05;

#[test]
fn greedy_steps_are_those_of_the_book() {
    let config = small("mcmahan2018", 300);
    let plan = local(Algorithm::FedAvg { epochs: 1 });
    let greedy = || {
        let plan = LocalPlan { greedy: true, most_tokens: Some(240), ..plan.clone() };
        Trial::new(&config, plan, Rounding::Nearest, CLIP)
    };
    let layers = by_layer(&greedy(), CLIP);
    for (name, trial) in [("flat", greedy()), ("by layers", greedy().clipped_by(layers, false))] {
        let found = trial
            .engine(Precision::F32, 8, false)
            .map(|mut engine| engine.differences(&trial.task(), &trial.users(&USERS)).unwrap());
        for (place, user) in USERS.into_iter().enumerate() {
            let want = by_the_book(&trial, user);
            let threads = trial.learned(user).difference;
            let of_threads = off(&want, &threads);
            println!("{name}, user {user}: threads {of_threads:.1e}{}", by_part(&trial, &want, &threads));
            assert!(of_threads <= 5e-4, "{name}: {of_threads:e}");
            let Some(found) = &found else { continue };
            let (found, got) = &found[place];
            let of_card = off(&want, got);
            println!("{name}, user {user}: card {of_card:.1e}{}", by_part(&trial, &want, got));
            assert!(*found == user && of_card <= f64::max(1e-4, of_threads), "{name}: {of_card:e}");
        }
    }
}

/// The difference that a user's greedy steps make, in float64.
fn by_the_book(trial: &Trial, user: u64) -> Vec<f64> {
    let mut examples = Examples::new(trial.learner.schema());
    trial.typists.read(user, &mut examples).unwrap();
    examples.truncate(trial.local.most_tokens.unwrap());
    let layout = ParameterLayout::new(&trial.config).unwrap();
    let start: Vec<f64> = trial.model.iter().map(|v| f64::from(*v)).collect();
    let mut model = Reference::new(trial.config.clone(), layout.clone(), start.clone());
    let mut state = State::zero(&trial.config, trial.local.batch);
    let rate = f64::from(trial.rate);
    for (inputs, targets) in batches(&examples, trial.local.batch, trial.local.unroll) {
        let batch = Batch { rows: trial.local.batch, inputs: &inputs, targets: &targets, context: &[] };
        let mut gradient = vec![0.0; start.len()];
        model.loss_and_gradient(&batch, &mut state, None, &mut gradient);
        model.values.iter_mut().zip(&gradient).for_each(|(v, g)| *v -= rate * g);
        // Words have vectors of norm 1, after each step.
        for word in model.values[layout.range(Role::Embedding)].chunks_mut(trial.config.embedding) {
            let norm = norm(word.iter().copied());
            word.iter_mut().for_each(|v| *v /= norm);
        }
        for (part, bound) in bounds(trial.clipping.rule(), start.len()) {
            let norm = norm(model.values[part.clone()].iter().zip(&start[part.clone()]).map(|(v, s)| v - s));
            let share = (bound / norm).min(1.0);
            let values = model.values[part.clone()].iter_mut().zip(&start[part]);
            values.for_each(|(v, s)| *v = s + share * (*v - s));
        }
    }
    model.values.iter().zip(&start).map(|(v, s)| v - s).collect()
}

/// What is read and predicted in each batch, the obvious way.
fn batches(examples: &Examples, rows: usize, unroll: usize) -> Vec<(Vec<u32>, Vec<u32>)> {
    let length = examples.len().div_ceil(rows);
    let batch = |first: usize| {
        let places = (first..length.min(first + unroll)).flat_map(|t| (0..rows).map(move |row| row * length + t));
        let of =
            |column, none| places.clone().map(|at| examples.ids(column).get(at).copied().unwrap_or(none)).collect();
        (of(0, 1), of(1, Batch::NONE))
    };
    (0..length).step_by(unroll).map(batch).collect()
}

/// The parts of a vector that have a bound of their own.
fn bounds(rule: &ClipRule, len: usize) -> Vec<(Range<usize>, f64)> {
    match rule {
        ClipRule::Flat(bound) => vec![(0..len, bound.get())],
        ClipRule::PerLayer(layers) => {
            let ends = layers.iter().scan(0, |end, layer| {
                *end += layer.len;
                Some(*end - layer.len..*end)
            });
            ends.zip(layers.iter().map(|layer| layer.bound.get())).collect()
        }
    }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

/// How far a difference is from the book's, as a share of its norm.
fn off(want: &[f64], got: &[f32]) -> f64 {
    norm(want.iter().zip(got).map(|(w, g)| w - f64::from(*g))) / norm(want.iter().copied())
}

/// The same for each part of the model, with the norm of the part.
fn by_part(trial: &Trial, want: &[f64], got: &[f32]) -> String {
    let mut start = 0;
    let mut said = String::new();
    for part in trial.learner.layout().parts() {
        let range = start..start + Part::len(part);
        start = range.end;
        let (want, got) = (&want[range.clone()], &got[range]);
        said += &format!("\n    {:<24} norm {:.1e} off {:.1e}", part.name, norm(want.iter().copied()), off(want, got));
    }
    said
}
