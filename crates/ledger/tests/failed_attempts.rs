//! What a ledger knows of attempts that came to nothing: which were begun, which failed, and what may follow them.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use crate::ledger_story::{attempt, key, model_step, plan};
use ledger::{
    Attempt, Basis, BegunAttempt, Budget, Ended, Failure, FailureReason, KeyDestroyed, Ledger, LedgerError,
    MemoryStore, NoiseDestroyed, Phase, Plan, Publication, statement::Statement,
};
use privacy::{Adjacency, NoiseMultiplier, Participation, PrivacyEvent, SamplingRate};

fn ledger(plan: Plan) -> Ledger<MemoryStore> {
    Ledger::create(MemoryStore::new(), plan, key(), 0).unwrap()
}

fn event() -> PrivacyEvent {
    let participation = Participation::Poisson { rate: SamplingRate::new(0.01).unwrap() };
    let noise = NoiseMultiplier::new(1.0).unwrap().into();
    PrivacyEvent::SampledGaussian { adjacency: Adjacency::AddOrRemove, participation, noise }
}

/// Four steps of sampled users.
fn sampled() -> Plan {
    let participation = Participation::Poisson { rate: SamplingRate::new(0.01).unwrap() };
    let phase = Phase {
        stream: "model".into(),
        mechanism: "independent noise".into(),
        parameters: Default::default(),
        participation,
        rounds: 4,
        event: event().times(4),
    };
    Plan { adjacency: Adjacency::AddOrRemove, phases: vec![phase], ..plan() }
}

fn release(ledger: &mut Ledger<MemoryStore>, step: u64, number: u32) -> Result<(), LedgerError> {
    let (event, randomness) = (event(), ledger.plan().randomness);
    let publication = Publication { event: &event, randomness, step, bytes: vec![step as u8].into() };
    ledger.publish(&publication, Attempt { number, ..attempt("model") }).map(drop)
}

fn fail(ledger: &mut Ledger<MemoryStore>, step: u64, number: u32) -> Result<(), LedgerError> {
    ledger.record_failed(step, FailureReason::NotWhole, Attempt { number, ..attempt("model") }).map(drop)
}

/// Who is sampled for a step is asked once, whatever came of it.
#[test]
fn p21_a_sampled_step_that_failed_is_neither_released_nor_attempted_again() {
    let mut ledger = ledger(sampled());
    release(&mut ledger, 0, 0).unwrap();
    fail(&mut ledger, 1, 0).unwrap();
    for number in [0, 1] {
        assert!(release(&mut ledger, 1, number).is_err());
        assert!(fail(&mut ledger, 1, number).is_err());
    }
    assert!(matches!(release(&mut ledger, 1, 1), Err(LedgerError::SampledOnce { step: 1, .. })));
    release(&mut ledger, 2, 0).unwrap();
    assert_eq!(ledger.last_step("model"), Some(2));
    assert_eq!(ledger.failures("model", 1), [Failure { entry: 2, attempt: 0, reason: FailureReason::NotWhole }]);
    assert_eq!(ledger.failed_steps("model").count(), 1);
}

/// Devices that come by themselves are attempted again, and an attempt that failed gives nothing any more.
#[test]
fn p24_what_failed_is_not_released() {
    let mut ledger = ledger(plan());
    fail(&mut ledger, 0, 0).unwrap();
    assert!(matches!(fail(&mut ledger, 0, 0), Err(LedgerError::AttemptFailed { attempt: 0, .. })));
    assert!(matches!(model_step(&mut ledger, 0), Err(LedgerError::AttemptFailed { attempt: 0, .. })));
    fail(&mut ledger, 0, 2).unwrap();
    // Attempts only go on: neither the last nor one before it fails afterwards.
    for number in [0, 1, 2] {
        assert!(matches!(fail(&mut ledger, 0, number), Err(LedgerError::AttemptFailed { .. })));
    }
    assert_eq!(ledger.failed_attempts(), 2);
}

/// Nobody is asked for what cannot be released: their inputs would leave for nothing.
#[test]
fn p24_an_attempt_of_which_nothing_can_come_does_not_begin() {
    let mut ledger = ledger(sampled());
    release(&mut ledger, 0, 0).unwrap();
    fail(&mut ledger, 1, 0).unwrap();
    assert!(matches!(ledger.begin_attempt("model", 0, 10), Err(LedgerError::StepBackwards { step: 0, .. })));
    assert!(matches!(ledger.begin_attempt("model", 1, 10), Err(LedgerError::SampledOnce { step: 1, .. })));
    assert!(matches!(ledger.begin_attempt("model", 4, 10), Err(LedgerError::BeyondPlan { step: 4, .. })));
    assert!(matches!(ledger.begin_attempt("other", 2, 10), Err(LedgerError::UnknownStream { .. })));
    assert_eq!(ledger.interrupted().unwrap(), None, "what was refused is not noted");
    assert_eq!(ledger.begin_attempt("model", 2, 10).unwrap(), 0);
    let _ = ledger.close(Ended::ByHand, KeyDestroyed::assertion(), NoiseDestroyed::assertion(), 9).unwrap();
    assert!(matches!(ledger.begin_attempt("model", 3, 10), Err(LedgerError::Closed { .. })));
}

/// Rule P23: which steps fail may depend on what users did. So the whole plan is counted, and never less than was released.
#[test]
fn p23_steps_that_failed_are_counted_as_if_they_had_been_released() {
    let close = |ledger: &mut Ledger<MemoryStore>, because| {
        let (key, noise) = (KeyDestroyed::assertion(), NoiseDestroyed::assertion());
        let _ = ledger.close(because, key, noise, 9).unwrap();
    };
    let mut whole = ledger(sampled());
    (0..4).for_each(|step| release(&mut whole, step, 0).unwrap());
    close(&mut whole, Ended::PlanDone);
    let mut some = ledger(sampled());
    fail(&mut some, 1, 0).unwrap();
    [2, 3].into_iter().for_each(|step| release(&mut some, step, 0).unwrap());
    close(&mut some, Ended::PlanDone);
    let mut none = ledger(sampled());
    (0..4).for_each(|step| fail(&mut none, step, 0).unwrap());
    close(&mut none, Ended::PlanDone);
    let epsilon = |ledger: &Ledger<MemoryStore>| ledger.guaranteed().unwrap().epsilon;
    assert_eq!(whole.basis(), Basis::Spent);
    for ledger in [&some, &none] {
        assert_eq!((ledger.basis(), epsilon(ledger)), (Basis::Plan, epsilon(&whole)));
        assert!(epsilon(ledger) >= ledger.epsilon(ledger.plan().delta).unwrap().epsilon);
        let said = Statement::of(ledger).unwrap().to_markdown();
        assert!(said.contains("as if they had been released"), "{said}");
        assert!(said.contains("The ledger records exactly, without noise, how many attempts failed and why"), "{said}");
    }

    // A budget that was enough for other steps, because some failed: its limit is stated, not what was spent.
    let max_epsilon = epsilon(&whole);
    let mut limited = ledger(Plan { budget: Some(Budget::Fixed { max_epsilon }), ..sampled() });
    fail(&mut limited, 0, 0).unwrap();
    release(&mut limited, 1, 0).unwrap();
    close(&mut limited, Ended::BudgetSpent);
    assert_eq!((limited.basis(), epsilon(&limited)), (Basis::Plan, max_epsilon));
}

/// An attempt that was begun and of which nothing is recorded was interrupted; one that was recorded was not.
#[test]
fn p24_an_attempt_that_was_begun_is_known_until_it_is_recorded() {
    let mut ledger = ledger(sampled());
    assert_eq!(ledger.interrupted().unwrap(), None);
    assert_eq!(ledger.begin_attempt("model", 0, 10).unwrap(), 0);
    let begun = BegunAttempt { stream: "model".into(), step: 0, attempt: 0, declared: 10 };
    assert_eq!(ledger.interrupted().unwrap(), Some(begun));
    release(&mut ledger, 0, 0).unwrap();
    assert_eq!(ledger.interrupted().unwrap(), None);
    assert_eq!(ledger.begin_attempt("model", 1, 10).unwrap(), 0);
    fail(&mut ledger, 1, 0).unwrap();
    assert_eq!(ledger.interrupted().unwrap(), None);
}
