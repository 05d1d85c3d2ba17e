//! A device that is asked to measure models: under limits of its own, once for a model, and only as its policy allows.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::sync::Arc;

use crate::participating::{Host, NO_LIMITS, Offered, step_terms, text};
use keyhush_device::{
    evaluation::EvaluationPlan,
    protocol::{
        message::{Says, Wants},
        participant::{Do, Event, Note},
        policy::Policy,
        task::{Work, fresh},
        terms::{Purpose, TaskTerms},
    },
};
use lm::kernels::KernelPath;
use privacy::{Participation, units::MinSeparation};
use secagg::entropy::SimulatedEntropy;

/// Four numbers of tags of posts.
const COUNTED: usize = 4;

/// A task of evaluations, of the same models as the task of training.
fn evaluations(change: impl FnOnce(&mut TaskTerms)) -> Offered {
    let mut offered = Offered::new(3);
    let separation = MinSeparation::rounds_between(0).unwrap();
    offered.terms.participation = Participation::MinSeparation { separation, max_participations: 2 };
    offered.terms.evaluation = Some(EvaluationPlan { most_examples: 50 });
    change(&mut offered.terms);
    offered.step = step_terms(COUNTED);
    offered
}

/// The device measures, and gives what came of it.
fn measures(host: &mut Host, work: &Work) {
    let drawn = fresh(&mut SimulatedEntropy::from_seed(5)).unwrap();
    let encoded = Arc::new(work.measure(&text(), KernelPath::best(), drawn).unwrap());
    assert_eq!(encoded.values().len(), COUNTED);
    host.got(Event::Trained(Ok(encoded)));
}

/// A whole part, until it is thanked.
fn gives(host: &mut Host, offered: &Offered, model: u64, step: u64) {
    let mut assignment = offered.assignment(model);
    assignment.step = step;
    host.answer(Says::Assignment(assignment));
    let Do::Train(work) = host.fetched(offered, model) else { panic!("{:?}", host.device.notes()) };
    if offered.terms.evaluation.is_some() {
        measures(host, &work);
    } else {
        host.train(&work);
    }
    let (_, chunk) = host.sent();
    host.received(chunk.len() as u64);
    assert!(matches!(host.said().1, Wants::Next(_)));
    host.thank(step + 1);
    assert!(matches!(host.said().1, Wants::CheckIn(_)));
}

/// What a device says to an assignment that it does not take.
fn refuses(host: &mut Host, offered: &Offered, model: u64, step: u64) -> String {
    let mut assignment = offered.assignment(model);
    assignment.step = step;
    host.device.notes();
    host.answer(Says::Assignment(assignment));
    assert!(!matches!(host.fetched(offered, model), Do::Train(_)), "it is taken");
    host.refusals().remove(0)
}

/// An update and an evaluation are two inputs about one model: one of each leaves, in any order, and no second of either.
#[test]
fn p24_a_model_is_trained_once_and_measured_once_whatever_it_is_called() {
    let training = Offered::new(3);
    for training_first in [true, false] {
        let mut host = Host::new(Policy::default(), 1);
        host.idle();
        let mut both = [(&training, 7), (&evaluations(|_| {}), 0)];
        if !training_first {
            both.reverse();
        }
        for (offered, step) in both {
            gives(&mut host, offered, 7, step);
        }
        assert_eq!(host.device.guard().inputs(), 2);
        let notes = host.device.notes();
        let gave = |note: &Note| if let Note::Gave { purpose, .. } = note { Some(*purpose) } else { None };
        let purposes: Vec<Purpose> = notes.iter().filter_map(gave).collect();
        assert!(purposes.contains(&Purpose::Training) && purposes.contains(&Purpose::Evaluation), "{notes:?}");
        // The same model again, as an evaluation under another task, and as a step under another task.
        let renamed = evaluations(|terms| terms.name = "another".into());
        assert!(refuses(&mut host, &renamed, 7, 1).contains("this same model"));
        let mut renamed = Offered::new(3);
        renamed.terms.name = "another".into();
        assert!(refuses(&mut host, &renamed, 7, 9).contains("this same model"));
        // And after a crash.
        let mut host = host.restarted();
        assert!(refuses(host.idle(), &evaluations(|_| {}), 7, 1).contains("this same model"));
        let page = host.device.page(host.now);
        for words in ["step 7: a model update", "evaluation 0: counts of how well a model predicts your text"] {
            assert!(page.contains(words), "{words} is not in\n{page}");
        }
    }
}

#[test]
fn p18_evaluations_have_limits_of_their_own_and_count_against_the_devices() {
    let offered = evaluations(|_| {});
    let mut host = Host::new(Policy::default(), 1);
    host.idle();
    gives(&mut host, &offered, 3, 0);
    gives(&mut host, &offered, 4, 1);
    let third = refuses(&mut host, &offered, 5, 2);
    assert!(third.contains("2 inputs were sent for this task, but its plan allows 2"), "{third}");
    // Training is another task, with limits of its own.
    gives(&mut host, &Offered::new(3), 6, 6);
    assert_eq!(host.device.guard().inputs(), 3);

    let mut host = Host::new(Policy::default(), 2);
    host.settings.limits = keyhush_device::guard::Limits { most_inputs: 1, ..NO_LIMITS };
    let mut host = host.restarted();
    host.idle();
    gives(&mut host, &offered, 3, 0);
    assert!(refuses(&mut host, &Offered::new(3), 4, 4).contains("this device allows 1"));
}

#[test]
fn evaluations_are_held_against_the_policy() {
    for (change, policy, words) in [
        (
            (|terms: &mut TaskTerms| terms.privacy.noise_multiplier = None) as fn(&mut TaskTerms),
            Policy::default(),
            "no noise would be added",
        ),
        (|_| {}, Policy { evaluations: false, ..Policy::default() }, "takes part in training only"),
        (|terms| terms.goal = 5, Policy::default(), "the report goal would be 5"),
        (|terms| terms.privacy.simulated = true, Policy::default(), "would be simulated"),
        (|terms| terms.privacy.epsilon = Some(21.0), Policy::default(), "the epsilon of the plan would be 21"),
        (|_| {}, Policy { only_secure: true, ..Policy::default() }, "requires secure aggregation"),
        (
            |terms| terms.evaluation = Some(EvaluationPlan { most_examples: 0 }),
            Policy::default(),
            "what is to be counted",
        ),
    ] {
        let mut host = Host::new(policy, 1);
        host.idle();
        let why = refuses(&mut host, &evaluations(change), 3, 0);
        assert!(why.contains(words), "{why}");
        assert_eq!(host.device.guard().inputs(), 0);
    }
    // Training is taken all the same by a device that measures nothing.
    let mut host = Host::new(Policy { evaluations: false, ..Policy::default() }, 1);
    host.idle();
    gives(&mut host, &Offered::new(3), 3, 3);
}

/// A server that calls training an evaluation, or the other way round, gets neither: what is asked for has another length.
#[test]
fn an_evaluation_is_not_a_step_in_disguise() {
    let mut host = Host::new(Policy::default(), 1);
    host.idle();
    let mut disguised = evaluations(|_| {});
    disguised.step = step_terms(101 * 3);
    assert!(refuses(&mut host, &disguised, 3, 0).contains("303 numbers, but the task has 4"));
    let mut disguised = Offered::new(3);
    disguised.step = step_terms(COUNTED);
    assert!(refuses(&mut host, &disguised, 4, 4).contains("4 numbers, but the task has 303"));
}
