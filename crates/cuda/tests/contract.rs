//! The suites that every engine, measurer and central trainer must pass, on the card: with each way of training, at each precision, and with chunks that a cohort
//! does and does not fill.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::num::NonZeroUsize;

use crate::card::has_card;
use cuda::{CUDA, CardEngine, CardMeasurer};
use device::{finetune::FineTune, local::LocalPlan};
use federated::{
    contract::{self, Reference, Trial},
    engine::{
        EngineOptions, Means, Precision,
        central::{Central, trainer},
    },
};
use lm::kernels::KernelPath;

fn means(precision: Precision, chunk: Option<usize>, check_encodings: bool) -> Means {
    let options = EngineOptions { precision, chunk: chunk.and_then(NonZeroUsize::new), check_encodings };
    Means { engine: CUDA, options, ..Means::threads(KernelPath::best(), 2) }
}

#[test]
fn the_card_passes_the_suite_of_engines() {
    if !has_card() {
        return;
    }
    let trial = Trial::of("language").without_rotation();
    let plans = Trial::plans().into_iter().chain(Trial::finetuning());
    for plan in plans.filter(|plan| !matches!(plan.finetune, Some(FineTune::SoftLabels { .. }))) {
        for (precision, tolerance) in [(Precision::F32, 0.002), (Precision::Tf32, 0.01), (Precision::F16, 0.01)] {
            for (chunk, check) in [(Some(4), false), (None, false), (Some(9), true)] {
                let mut engine = CardEngine::new(&plan, trial.learner(), means(precision, chunk, check)).unwrap();
                let reference = Reference::Own { kernels: KernelPath::best(), tolerance };
                contract::engine(&trial, &mut engine, &plan, reference);
                assert!(engine.has_forgotten().unwrap(), "something of a user is left on the card");
            }
        }
    }
}

#[test]
fn the_card_passes_the_suite_of_measurers() {
    if !has_card() {
        return;
    }
    let trial = Trial::of("language");
    let mut card = CardMeasurer::new(trial.learner()).unwrap();
    contract::measurer(&trial, &mut card, KernelPath::best(), 0.01);
}

#[test]
fn the_card_passes_the_suite_of_central_trainers() {
    if !has_card() {
        return;
    }
    for (precision, tolerance) in [(Precision::F32, 1e-3), (Precision::Tf32, 1e-2), (Precision::F16, 1e-2)] {
        let make = |of: Central<'_>| trainer(of, means(precision, None, false)).unwrap();
        contract::central_trainer(&make, tolerance);
    }
}

/// What is left out above is refused, by name, and not trained as something else.
#[test]
fn what_the_card_does_not_learn_it_refuses() {
    if !has_card() {
        return;
    }
    let refused = |trial: &Trial, plan: &LocalPlan| {
        CardEngine::new(plan, trial.learner(), means(Precision::F32, None, false)).map(|_| ()).unwrap_err().to_string()
    };
    let language = Trial::of("language");
    let [_, soft] = Trial::finetuning();
    assert!(refused(&language, &soft).contains("soft labels"));
    let [plain, ..] = Trial::plans();
    assert!(refused(&Trial::of("tags"), &plain).contains("--engine threads"));
}
