//! What a ledger makes of noise that the users add themselves (rule P14).
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use crate::ledger_story::{self, attempt, delta, key};
use crate::noised_users::{RANDOMNESS, full, noise_of, noised_sum, plan, z};
use ledger::{Budget, Charge, Ledger, LedgerError, MemoryStore, Phase, Plan, statement::Statement};
use privacy::{
    AccountantKind, Epsilon, MinSeparation, Participation, PrivacyEvent,
    encoding::NoisePlan,
    mechanism::{Mechanism, MechanismError},
    rng::Randomness,
    stages::Residues,
};

fn epsilon(accountant: AccountantKind, event: &PrivacyEvent) -> f64 {
    accountant.judge(event, delta()).unwrap().epsilon.get()
}

/// The ledger counts the last event of the stream and no other, step by step.
#[test]
fn p14_the_ledger_counts_a_user_as_often_as_the_limits_allow() {
    let (encoding, asked) = full();
    let noise = noise_of(&encoding, &asked);
    let residues = Residues::with_noise(&encoding, 12, &noise).unwrap();
    let separation = MinSeparation::distance(3).unwrap();
    let limits = Participation::MinSeparation { separation, max_participations: 2 };
    let planned = plan(&noise, limits, 8);
    let once = noise.event();
    let epsilon_of = |times| epsilon(AccountantKind::Best, &once.clone().times(times));
    let phase = Phase {
        stream: "model".into(),
        mechanism: "noise that devices add".into(),
        parameters: Default::default(),
        participation: limits,
        rounds: 8,
        event: planned.event(8, encoding.layout()).unwrap(),
    };
    let budget = Some(Budget::Fixed { max_epsilon: Epsilon::new(epsilon_of(2) * 1.001).unwrap() });
    let randomness = Randomness::Simulated { seed: 1 };
    let plan = Plan { phases: vec![phase], randomness, budget, ..ledger_story::plan() };
    let mut ledger = Ledger::create(MemoryStore::new(), plan, key(), 0).unwrap();
    let mut mechanism = Mechanism::init(planned, encoding.layout(), RANDOMNESS).unwrap();
    for step in 0..8 {
        let next = mechanism.next_event().unwrap();
        assert_eq!(Charge::of(&next), Charge::Cumulative);
        ledger.check("model", step, &next).unwrap();
        let sum = noised_sum(&residues, &encoding, &[0; 54], 8 + step % 5);
        let released = mechanism.release_noised(sum).unwrap();
        assert_eq!((released.event(), released.step(), released.randomness()), (&next, step, randomness));
        let recorded = ledger.record(released, attempt("model")).unwrap();
        assert_eq!(*ledger.restore("model", step).unwrap().unwrap(), *recorded);
        assert_eq!(ledger.run_event(), PrivacyEvent::Compose { events: vec![next] });
        let spent = ledger.epsilon(delta()).unwrap().epsilon.get();
        assert_eq!(spent, epsilon_of(if step < 3 { 1 } else { 2 }), "step {step}");
    }
    let finished = noised_sum(&residues, &encoding, &[0; 54], 8);
    assert_eq!(mechanism.release_noised(finished).unwrap_err(), MechanismError::Finished { rounds: 8 });
    let words = Statement::of(&ledger).unwrap().accounting.assumes.join("\n");
    for said in ["at least 5 honest participants", "at most 2 times", "no amplification"] {
        assert!(words.contains(said), "{words}");
    }
    assert!(!words.contains("every user may take part in every round"), "{words}");
}

#[test]
fn p14_an_event_that_does_not_go_on_is_refused() {
    let (encoding, asked) = full();
    let event = |noise: &NoisePlan, participation, rounds| {
        plan(&noise_of(&encoding, noise), participation, 8).event(rounds, encoding.layout()).unwrap()
    };
    let limits = ledger_story::limits();
    let phase = Phase { event: event(&asked, limits, 8), ..ledger_story::plan().phases[0].clone() };
    let plan = Plan { phases: vec![phase], ..ledger_story::plan() };
    let mut ledger = Ledger::create(MemoryStore::new(), plan, key(), 0).unwrap();
    let _ = ledger_story::publish(&mut ledger, "model", 0, &event(&asked, limits, 2)).unwrap();
    let quieter = NoisePlan { multiplier: z(1.0), ..asked };
    for (again, problem) in [
        (event(&asked, limits, 2), "no step more"),
        (event(&asked, limits, 1), "1 rounds after 2"),
        (event(&quieter, limits, 3), "another event of a round"),
        (ledger_story::tree(&[3]), "tree after limited rounds"),
    ] {
        match ledger.check("model", 1, &again) {
            Err(LedgerError::DoesNotExtend { problem: got, .. }) => assert!(got.contains(problem), "{got}"),
            other => panic!("{problem}: {other:?}"),
        }
    }
    let others = ledger.check("model", 1, &event(&asked, Participation::Once, 3)).unwrap_err();
    assert!(matches!(others, LedgerError::Participation { .. }), "{others}");
    ledger.check("model", 1, &event(&asked, limits, 3)).unwrap();
}
