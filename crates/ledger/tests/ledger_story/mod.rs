//! A plan, events and releases with which the tests of the ledger and of its stores tell their stories. They know the
//! crate as `ledger`.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses a part of it, and unwraps as tests do")]

use std::{borrow::Cow, collections::BTreeMap};

use ledger::{
    Aggregation, Attempt, DataSource, Ledger, LedgerError, LedgerStore, ParticipationRecord, Phase, Plan, Publication,
    Receipt, SigningKey, Start, Unit,
};
use privacy::{
    AccountantKind, Adjacency, Delta, MinSeparation, NoiseMatrix, NoiseMultiplier, Participation, PrivacyEvent,
    Segment, rng::Randomness,
};

pub(crate) fn delta() -> Delta {
    Delta::new(1e-6).unwrap()
}

/// A Gaussian release with this noise.
pub(crate) fn gaussian(z: f64) -> PrivacyEvent {
    PrivacyEvent::gaussian(Adjacency::ZeroOut, NoiseMultiplier::new(z).unwrap())
}

pub(crate) fn limits() -> Participation {
    Participation::MinSeparation { separation: MinSeparation::rounds_between(3).unwrap(), max_participations: 5 }
}

/// A run of tree noise over segments of so many rounds.
pub(crate) fn tree(segments: &[u64]) -> PrivacyEvent {
    PrivacyEvent::CorrelatedGaussian {
        adjacency: Adjacency::ZeroOut,
        matrix: NoiseMatrix::Tree,
        segments: segments.iter().map(|rounds| Segment::of(*rounds)).collect(),
        participation: limits(),
        noise: NoiseMultiplier::new(7.0).unwrap().into(),
    }
}

/// Two streams: a model trained with tree noise, and a tracked clip with Gaussian noise.
pub(crate) fn plan() -> Plan {
    let phase = |stream: &str, mechanism: &str, event: PrivacyEvent| Phase {
        stream: stream.into(),
        mechanism: mechanism.into(),
        parameters: BTreeMap::from([("clip_norm".into(), "0.5".into())]),
        participation: limits(),
        rounds: 64,
        event,
    };
    Plan {
        software: "keyhush 0.1.0".into(),
        data: DataSource::Users { what: "the keyboards of the story's users".into() },
        unit: Unit::User,
        adjacency: Adjacency::ZeroOut,
        population: 10_000,
        delta: delta(),
        phases: vec![
            phase("model", "sums with tree noise", tree(&[64])),
            phase("clip", "the share of updates under the clip, with Gaussian noise", gaussian(50.0).times(64)),
        ],
        participation_kept_by: "the server".into(),
        accountant: AccountantKind::Best,
        group: 1,
        budget: None,
        start: Start::Random,
        after: Vec::new(),
        public_data: Vec::new(),
        randomness: Randomness::Secret,
        aggregation: Aggregation::Plain { sees_updates: "the server".into() },
    }
}

/// The model alone, with so many steps: a run that can be done.
pub(crate) fn model_plan(rounds: u64) -> Plan {
    let mut plan = plan();
    plan.phases.truncate(1);
    (plan.phases[0].rounds, plan.phases[0].event) = (rounds, tree(&[rounds]));
    plan
}

pub(crate) fn key() -> SigningKey {
    SigningKey::from_seed(&[42; 32])
}

pub(crate) fn attempt(stream: &str) -> Attempt<'_> {
    Attempt { stream, number: 0, declared: 100, participations: None, time: 1_735_689_600 }
}

/// Publishes a step whose content is its number.
pub(crate) fn publish<S: LedgerStore>(
    ledger: &mut Ledger<S>,
    stream: &str,
    step: u64,
    event: &PrivacyEvent,
) -> Result<Receipt, LedgerError> {
    publish_with(ledger, stream, step, event, None)
}

pub(crate) fn publish_with<S: LedgerStore>(
    ledger: &mut Ledger<S>,
    stream: &str,
    step: u64,
    event: &PrivacyEvent,
    participations: Option<&ParticipationRecord>,
) -> Result<Receipt, LedgerError> {
    let randomness = ledger.plan().randomness;
    let publication = Publication { event, randomness, step, bytes: Cow::Owned(content(stream, step)) };
    ledger.publish(&publication, Attempt { participations, ..attempt(stream) })
}

/// What the stories release at a step.
pub(crate) fn content(stream: &str, step: u64) -> Vec<u8> {
    format!("{stream} {step} ").repeat(40).into_bytes()
}

/// A step of the model's stream: tree noise up to it.
pub(crate) fn model_step<S: LedgerStore>(ledger: &mut Ledger<S>, step: u64) -> Result<Receipt, LedgerError> {
    publish(ledger, "model", step, &tree(&[step + 1]))
}
