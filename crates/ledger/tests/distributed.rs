//! What a ledger makes of noise that the users add themselves (rule P14).
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

extern crate keyhush_ledger as ledger;

mod ledger_story;

use ledger::{Budget, Charge, Ledger, LedgerError, MemoryStore, Phase, Plan, statement::Statement};
use ledger_story::{attempt, delta, key};
use privacy::{
    AccountantKind, Adjacency, ClipNorm, Epsilon, MinSeparation, NoiseMultiplier, Participation, PrivacyEvent, Segment,
    encoding::{Counts, DistributedNoise, Encoding, NoisePlan, Survivors, VectorPlan},
    mechanism::{Correlation, Mechanism, MechanismError, MechanismPlan},
    rng::{NoiseSource, Purpose, RandomWords, Randomness, SimulationKey},
    stages::{Encoded, NoisedSum, Residues},
};

const SURVIVORS: Survivors = Survivors { least: 8, corrupted: 3 };

fn z(multiplier: f64) -> NoiseMultiplier {
    NoiseMultiplier::new(multiplier).unwrap()
}

fn words(user: u64) -> RandomWords {
    NoiseSource::from(SimulationKey::new(9)).stream(Purpose::Noise, &[user]).chunk(0)
}

fn encoding_of(plan: VectorPlan) -> Encoding {
    Encoding::new(plan, ClipNorm::new(1.0).unwrap(), None, Adjacency::ZeroOut).unwrap()
}

/// An update, a clip bit, a weight and counts.
fn full() -> (Encoding, NoisePlan) {
    let counts = Some(Counts { len: 2, cap: 9 });
    let plan = VectorPlan { clip_bit: true, weight: true, counts, ..VectorPlan::of_update(50, 12) };
    let beside = Some(z(30.0));
    let noise = NoisePlan { multiplier: z(1.5), clip_count_stddev: Some(10.0), weight: beside, counts: beside };
    (encoding_of(plan), noise)
}

fn noise_of(encoding: &Encoding, noise: &NoisePlan) -> DistributedNoise {
    DistributedNoise::new(encoding, noise, Adjacency::ZeroOut, SURVIVORS).unwrap()
}

fn integers(encoding: &Encoding, values: &[i32]) -> Encoded {
    Encoded::check(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(), encoding).unwrap()
}

/// The noised sum of users who all send the same.
fn noised_sum(residues: &Residues, encoding: &Encoding, values: &[i32], users: u64) -> NoisedSum {
    let mask = u32::MAX >> (32 - residues.bits());
    let mut sum = vec![0u32; residues.len()];
    for user in 0..users {
        let one = residues.noised(integers(encoding, values), &mut words(user)).unwrap();
        assert!(one.iter().all(|r| *r <= residues.largest()));
        sum.iter_mut().zip(one.iter()).for_each(|(sum, r)| *sum = sum.wrapping_add(*r) & mask);
    }
    residues.noised_sum(&sum, users).unwrap()
}

fn plan(noise: &DistributedNoise, participation: Participation, rounds: u64) -> MechanismPlan {
    MechanismPlan {
        stream: 0,
        adjacency: Adjacency::ZeroOut,
        participation,
        correlation: Correlation::Independent,
        segments: vec![Segment::of(rounds)],
        distributed: Some(noise.clone()),
    }
}

const RANDOMNESS: Randomness = Randomness::Simulated { seed: 1 };

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
        assert_eq!(ledger.own_event(), PrivacyEvent::Compose { events: vec![next] });
        let spent = ledger.epsilon(delta()).unwrap().epsilon.get();
        assert_eq!(spent, epsilon_of(if step < 3 { 1 } else { 2 }), "step {step}");
    }
    let finished = noised_sum(&residues, &encoding, &[0; 54], 8);
    assert_eq!(mechanism.release_noised(finished).unwrap_err(), MechanismError::Finished { rounds: 8 });
    let words = Statement::of(&ledger).unwrap().accounting.assumes.join("\n");
    for said in ["fewer than 5 honest participants", "nor more than 2 times in all", "no amplification"] {
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
