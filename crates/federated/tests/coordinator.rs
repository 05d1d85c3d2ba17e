//! What a coordinator says, request by request, where what comes in one batch could get around what is not durable yet.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::sync::Arc;

use device::{
    guard::TaskDigest,
    protocol::message::{Answer, CheckIn, DeviceKey, Enrol, Reason, Says, Wants},
};
use keyhush_federated::protocol::{
    admission::{Anybody, ByToken},
    coordinator::Coordinator,
    limits::ParticipationLimits,
    pace::Pace,
    store::{AttemptAt, MemoryStore, Store, Write},
};
use privacy::{MinSeparation, Participation};

const TASK: TaskDigest = TaskDigest([1; 32]);

fn key(byte: u8) -> DeviceKey {
    DeviceKey([byte; 32])
}

fn limits() -> ParticipationLimits {
    let separation = MinSeparation::rounds_between(5).unwrap();
    (&Participation::MinSeparation { separation, max_participations: 9 }).try_into().unwrap()
}

/// A task in whose round 3 a device has taken part.
fn begun() -> Arc<MemoryStore> {
    let store = MemoryStore::new([7; 32]);
    let at = AttemptAt { task: TASK, round: 3, attempt: 0 };
    let first = Write::Enrol { device: key(1), day: 1 };
    store.commit(&[first, Write::Open(at), Write::Assign { at, devices: vec![key(1)] }]).unwrap();
    store.commit(&[Write::Settle { at, absent: Vec::new() }]).unwrap();
    Arc::new(store)
}

fn refused(answers: &[(u64, Answer)], request: u64) -> Option<i32> {
    let (_, answer) = answers.iter().find(|(id, _)| *id == request)?;
    match &answer.says {
        Some(Says::Refused(refused)) => Some(refused.reason),
        _ => None,
    }
}

#[test]
fn p18_a_key_that_checks_in_before_its_enrolment_is_durable_gets_around_no_wait() {
    let store = begun();
    let mut coordinator = Coordinator::new(store.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
    coordinator.add_task(TASK, limits(), 1, 1, Some(4));
    let check_in = Wants::CheckIn(CheckIn { patience_ms: 1_000 });
    coordinator.said(1, key(2), &Wants::Enrol(Enrol::default()), 0).unwrap();
    coordinator.said(2, key(2), &check_in, 0).unwrap();
    let answers = coordinator.flush().unwrap();
    assert_eq!(refused(&answers, 2), Some(Reason::Stranger.into()), "{answers:?}");
    // Once it is durable it is known, and waits: it is told to come back, not kept for the next round.
    assert_eq!(store.standing(&TASK, &key(2)).unwrap().since, Some(3));
    coordinator.said(3, key(2), &check_in, 0).unwrap();
    let answers = coordinator.flush().unwrap();
    assert!(matches!(answers[..], [(3, Answer { says: Some(Says::Later(_)) })]), "{answers:?}");
}

#[test]
fn who_is_not_needed_is_not_called_back_at_once() {
    let pace = Pace { least_s: 0.0, ..Pace::default() };
    let mut coordinator = Coordinator::new(begun(), Box::new(Anybody), pace, 1).unwrap();
    coordinator.add_task(TASK, limits(), 1, 1, Some(4));
    coordinator.said(1, key(1), &Wants::CheckIn(CheckIn { patience_ms: 1_000 }), 0).unwrap();
    let answers = coordinator.flush().unwrap();
    let [(1, Answer { says: Some(Says::Later(later)) })] = &answers[..] else { panic!("{answers:?}") };
    assert!(later.after_s >= 1, "it would ask again and again, and keep the server busy");
}

#[test]
fn who_does_not_know_the_token_is_not_enrolled() {
    let store = begun();
    let admission = Box::new(ByToken::new(b"a long enough token".to_vec()));
    let mut coordinator = Coordinator::new(store.clone(), admission, Pace::default(), 1).unwrap();
    for (request, token, known) in
        [(1, &b""[..], false), (2, b"a long enough toke", false), (3, b"a long enough token", true)]
    {
        let enrol = Enrol { token: token.to_vec(), attestation: Vec::new() };
        coordinator.said(request, key(2), &Wants::Enrol(enrol), 0).unwrap();
        let answers = coordinator.flush().unwrap();
        assert_eq!(refused(&answers, request), (!known).then(|| Reason::NotAdmitted.into()), "{token:?}");
        assert_eq!(store.is_enrolled(&key(2)).unwrap(), known);
    }
}
