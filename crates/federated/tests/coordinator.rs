//! What a coordinator says, request by request, where what comes in one batch could get around what is not durable yet.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::sync::Arc;

use device::{
    guard::TaskDigest,
    protocol::message::{Answer, Blob, CheckIn, DeviceKey, Enrol, Reason, Says, Wants},
};
use keyhush_federated::protocol::{
    admission::{Anybody, ByToken, EnrolmentLimits, PlaceKey},
    coordinator::{Asking, Coordinator},
    desk::{Aggregation, Closed, Opening, Windows},
    left_out::LeaveOut,
    limits::ParticipationLimits,
    order::Order,
    pace::Pace,
    store::{AttemptAt, EnrolledInHour, MemoryStore, Store, Write},
    ticket::RoundKey,
};
use ledger::FailureReason;
use privacy::{
    Adjacency, ClipNorm, MinSeparation, Participation,
    encoding::{Encoding, VectorPlan},
};
use zeroize::Zeroizing;

const TASK: TaskDigest = TaskDigest([1; 32]);

fn key(byte: u8) -> DeviceKey {
    DeviceKey([byte; 32])
}

fn limits() -> ParticipationLimits {
    let separation = MinSeparation::rounds_between(5).unwrap();
    (&Participation::MinSeparation { separation, max_participations: 9 }).try_into().unwrap()
}

fn asking(limits: ParticipationLimits, goal: u64) -> Asking {
    Asking { limits, goal, begin_with: 1, population: 100 }
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
    coordinator.add_task(TASK, asking(limits(), 1), Some(4)).unwrap();
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
    coordinator.add_task(TASK, asking(limits(), 1), Some(4)).unwrap();
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

/// A coordinator of one task with a goal of one, and devices 1 to 4 enrolled before it begins.
fn with_devices() -> Coordinator {
    let store = MemoryStore::new([7; 32]);
    let enrol = |device| Write::Enrol { device: key(device), day: 1 };
    store.commit(&[enrol(1), enrol(2), enrol(3), enrol(4)]).unwrap();
    let mut coordinator = Coordinator::new(Arc::new(store), Box::new(Anybody), Pace::default(), 1).unwrap();
    coordinator.add_task(TASK, asking(limits(), 1), None).unwrap();
    coordinator
}

fn opening(round: u64) -> Opening {
    let clip = ClipNorm::new(1.0).unwrap();
    let encoding = Encoding::new(VectorPlan::of_update(1, 12), clip, None, Adjacency::ZeroOut).unwrap();
    Opening {
        at: AttemptAt { task: TASK, round, attempt: 0 },
        step: round,
        goal: 1,
        limits: limits(),
        windows: Windows { select_ms: 100, report_ms: 1_000, answer_ms: 1_000, tick_ms: 1 },
        task: Blob { digest: TASK.0.to_vec(), bytes: 1 },
        model: Blob { digest: vec![9; 32], bytes: 4 },
        terms: Vec::new(),
        key: RoundKey::new(Zeroizing::new([3; 32])),
        aggregation: Aggregation::Plain(encoding),
    }
}

const CHECK_IN: Wants = Wants::CheckIn(CheckIn { patience_ms: 30_000 });

/// Who is told what in a flush: of each request whether it is given the task (`+`) or told to come back (`-`).
fn told(coordinator: &mut Coordinator) -> Vec<(u64, char)> {
    let answers = coordinator.flush().unwrap();
    let sign = |answer: &Answer| match &answer.says {
        Some(Says::Assignment(_)) => '+',
        Some(Says::Later(_)) => '-',
        other => panic!("{other:?}"),
    };
    answers.iter().map(|(request, answer)| (*request, sign(answer))).collect()
}

#[test]
fn in_a_pause_nobody_is_asked_and_who_waits_is_told_to_come_back() {
    let mut coordinator = with_devices();
    coordinator.said(1, key(1), &CHECK_IN, 0).unwrap();
    assert_eq!(told(&mut coordinator), [], "it waits for the attempt");
    coordinator.order(&TASK, Order::Pause, 1).unwrap();
    assert_eq!(told(&mut coordinator), [(1, '-')]);
    coordinator.open(opening(0), 2).unwrap();
    coordinator.said(2, key(2), &CHECK_IN, 3).unwrap();
    coordinator.tick(10_000).unwrap();
    assert_eq!(told(&mut coordinator), [(2, '-')]);
    assert!(coordinator.take_closed(&TASK).is_none(), "an attempt that nobody has waits, and does not fail");
    coordinator.order(&TASK, Order::Run, 11_000).unwrap();
    for (request, device) in [(3, 3), (4, 4)] {
        coordinator.said(request, key(device), &CHECK_IN, 11_000).unwrap();
    }
    assert_eq!(told(&mut coordinator), [(3, '+'), (4, '+')], "as if nothing had been");
}

#[test]
fn p24_in_a_pause_an_attempt_that_devices_have_goes_on_to_its_end() {
    let mut coordinator = with_devices();
    coordinator.open(opening(0), 0).unwrap();
    for (request, device) in [(1, 1), (2, 2)] {
        coordinator.said(request, key(device), &CHECK_IN, 0).unwrap();
    }
    assert_eq!(told(&mut coordinator), [(1, '+'), (2, '+')]);
    coordinator.order(&TASK, Order::Pause, 1).unwrap();
    // Both vanish: others are asked instead, so that the participations of the first are not for nothing.
    coordinator.tick(1_500).unwrap();
    for (request, device) in [(3, 3), (4, 4)] {
        coordinator.said(request, key(device), &CHECK_IN, 1_600).unwrap();
    }
    assert_eq!(told(&mut coordinator), [(3, '+'), (4, '+')]);
}

#[test]
fn p24_a_stop_gives_up_the_attempt_that_devices_have_and_counts_them() {
    let mut coordinator = with_devices();
    coordinator.open(opening(0), 0).unwrap();
    for (request, device) in [(1, 1), (2, 2)] {
        coordinator.said(request, key(device), &CHECK_IN, 0).unwrap();
    }
    coordinator.flush().unwrap();
    coordinator.order(&TASK, Order::Stop, 1).unwrap();
    let Some(Closed::Failed(FailureReason::Cancelled, devices)) = coordinator.take_closed(&TASK) else {
        panic!("it goes on")
    };
    assert_eq!(devices, [key(1), key(2)], "who has it took part");
    coordinator.said(3, key(3), &CHECK_IN, 2).unwrap();
    assert_eq!(told(&mut coordinator), [(3, '-')]);
    // After a restart it is the same.
    coordinator.open(opening(0), 3).unwrap();
    assert!(matches!(coordinator.take_closed(&TASK), Some(Closed::Failed(FailureReason::Cancelled, _))));
}

#[test]
fn whoever_was_in_too_many_spoiled_attempts_is_not_asked() {
    let store = MemoryStore::new([7; 32]);
    let enrol = |device| Write::Enrol { device: key(device), day: 1 };
    store.commit(&[enrol(1), enrol(2), enrol(3)]).unwrap();
    let between = MinSeparation::rounds_between(0).unwrap();
    let often = Participation::MinSeparation { separation: between, max_participations: 9 };
    let limits = ParticipationLimits::try_from(&often).unwrap();
    // Devices 1 and 2 were in a spoiled attempt, and 1 in another.
    for (round, devices) in [(0, vec![key(1), key(2)]), (1, vec![key(1)])] {
        let at = AttemptAt { task: TASK, round, attempt: 0 };
        store.commit(&[Write::Open(at), Write::Assign { at, devices }]).unwrap();
        store.commit(&[Write::Spoiled(at), Write::Settle { at, absent: vec![] }]).unwrap();
    }
    let mut coordinator = Coordinator::new(Arc::new(store), Box::new(Anybody), Pace::default(), 1).unwrap();
    coordinator.add_task(TASK, asking(limits, 1), Some(2)).unwrap();
    let leave_out = LeaveOut { after: 2, population: 30, between_equals: [0; 32] };
    coordinator.leave_out(&TASK, leave_out).unwrap();
    coordinator.open(Opening { limits, ..opening(2) }, 0).unwrap();
    for device in [1, 2, 3] {
        coordinator.said(device.into(), key(device), &CHECK_IN, 0).unwrap();
    }
    assert_eq!(told(&mut coordinator), [(1, '-'), (2, '+'), (3, '+')]);
    // The others spoil this one too: 2 has two now, and is left out with 1.
    let at = AttemptAt { task: TASK, round: 2, attempt: 0 };
    coordinator.spoiled(&at);
    coordinator.settle(&at, &std::collections::BTreeSet::new(), 1).unwrap();
    coordinator.flush().unwrap();
    coordinator.open(Opening { limits, ..opening(3) }, 2).unwrap();
    for device in [1, 2, 3] {
        coordinator.said(10 + u64::from(device), key(device), &CHECK_IN, 2).unwrap();
    }
    coordinator.tick(1_000).unwrap();
    assert_eq!(told(&mut coordinator), [(11, '-'), (12, '-'), (13, '+')]);
}

#[test]
fn devices_that_wait_for_one_task_take_no_place_in_the_lobby_of_another() {
    let store = MemoryStore::new([7; 32]);
    let first = AttemptAt { task: TASK, round: 0, attempt: 0 };
    let devices = || (1..=40).map(key);
    store.commit(&devices().map(|device| Write::Enrol { device, day: 1 }).collect::<Vec<_>>()).unwrap();
    // All but the last may not come for the first task any more.
    store.commit(&[Write::Open(first), Write::Assign { at: first, devices: devices().take(39).collect() }]).unwrap();
    store.commit(&[Write::Settle { at: first, absent: vec![] }]).unwrap();
    let mut coordinator = Coordinator::new(Arc::new(store), Box::new(Anybody), Pace::default(), 1).unwrap();
    let once = ParticipationLimits::try_from(&Participation::Once).unwrap();
    coordinator.add_task(TASK, asking(once, 1), Some(1)).unwrap();
    coordinator.add_task(TaskDigest([2; 32]), asking(once, 100), None).unwrap();
    for device in 1..=39 {
        coordinator.said(device.into(), key(device), &CHECK_IN, 0).unwrap();
    }
    coordinator.open(Opening { limits: once, ..opening(1) }, 0).unwrap();
    assert_eq!(told(&mut coordinator), [], "39 wait for the other task");
    coordinator.said(40, key(40), &CHECK_IN, 1).unwrap();
    coordinator.tick(200).unwrap();
    assert_eq!(told(&mut coordinator), [(40, '+')]);
}

/// Rule P11: a population is declared, delta is below one over it, and so no more keys are ever asked, however many enrol.
#[test]
fn p11_no_more_keys_are_ever_asked_than_were_declared() {
    let store = Arc::new(MemoryStore::new([7; 32]));
    store.commit(&(1..=9).map(|device| Write::Enrol { device: key(device), day: 1 }).collect::<Vec<_>>()).unwrap();
    let between = MinSeparation::rounds_between(0).unwrap();
    let often = Participation::MinSeparation { separation: between, max_participations: 9 };
    let limits = ParticipationLimits::try_from(&often).unwrap();
    let start = |round| {
        let mut coordinator = Coordinator::new(store.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
        coordinator.add_task(TASK, Asking { population: 3, ..asking(limits, 1) }, round).unwrap();
        coordinator
    };
    let mut coordinator = start(None);
    coordinator.open(Opening { limits, ..opening(0) }, 0).unwrap();
    for device in [1, 2] {
        coordinator.said(device.into(), key(device), &CHECK_IN, 0).unwrap();
    }
    assert_eq!(told(&mut coordinator), [(1, '+'), (2, '+')]);
    // Two of three have been asked, whatever they did; of those who come now one fits, and whoever comes later is not kept waiting.
    let settled = AttemptAt { task: TASK, round: 0, attempt: 0 };
    coordinator.settle(&settled, &std::collections::BTreeSet::new(), 1).unwrap();
    coordinator.flush().unwrap();
    assert_eq!(store.asked(&TASK).unwrap(), 2, "who sent nothing was asked too");
    coordinator.open(Opening { limits, ..opening(1) }, 2).unwrap();
    for device in [3, 4, 5] {
        coordinator.said(device.into(), key(device), &CHECK_IN, 2).unwrap();
    }
    coordinator.tick(1_000).unwrap();
    assert_eq!(told(&mut coordinator), [(3, '+')]);
    coordinator.said(6, key(6), &CHECK_IN, 1_001).unwrap();
    assert_eq!(told(&mut coordinator), [(6, '-')]);
    // Nor after a restart, nor with a key that enrols then; those who were asked before may come.
    coordinator.settle(&AttemptAt { round: 1, ..settled }, &[key(3)].into(), 1_002).unwrap();
    coordinator.flush().unwrap();
    let mut coordinator = start(Some(2));
    coordinator.open(Opening { limits, ..opening(2) }, 2_000).unwrap();
    for device in [7, 8, 1] {
        coordinator.said(device.into(), key(device), &CHECK_IN, 2_000).unwrap();
    }
    coordinator.tick(3_000).unwrap();
    assert_eq!(told(&mut coordinator), [(7, '-'), (8, '-'), (1, '+')]);
    assert_eq!(store.asked(&TASK).unwrap(), 3);
}

/// How many enrol in an hour is known after a restart, by address too, and addresses are not.
#[test]
fn who_enrolled_in_this_hour_counts_after_a_restart() {
    let store = Arc::new(MemoryStore::new([7; 32]));
    let start = |now, key: u8| {
        let mut coordinator = Coordinator::new(store.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
        let limits = EnrolmentLimits { an_hour: 3, an_hour_by_address: 1 };
        coordinator.limit_enrolments(limits, PlaceKey::new(Zeroizing::new([key; 32])), now).unwrap();
        coordinator
    };
    let enrols = |coordinator: &mut Coordinator, device: u8, last: u8, now| {
        let from = std::net::IpAddr::from([192, 0, 2, last]);
        coordinator.said_from(Some(from), 1, key(device), &Wants::Enrol(Enrol::default()), now).unwrap();
        refused(&coordinator.flush().unwrap(), 1).is_none()
    };
    const HOUR: u64 = 3_600_000;
    let now = 100 * HOUR;
    let mut coordinator = start(now, 4);
    assert!(enrols(&mut coordinator, 1, 1, now) && !enrols(&mut coordinator, 2, 1, now));
    let mut coordinator = start(now + 1, 4);
    assert!(!enrols(&mut coordinator, 2, 1, now + 1), "from the same address");
    assert!(enrols(&mut coordinator, 2, 2, now + 1) && enrols(&mut coordinator, 3, 3, now + 1));
    let mut coordinator = start(now + 2, 5);
    assert!(!enrols(&mut coordinator, 4, 4, now + 2), "three in all, also where addresses are not known any more");
    let places: Vec<_> = store.enrolled_in(100).unwrap().by_place.into_iter().map(|(place, _)| place).collect();
    assert!(places.len() == 3 && !places.iter().any(|place| place.0.starts_with(&[192, 0, 2])), "{places:?}");
    let mut coordinator = start(now + HOUR, 4);
    assert!(enrols(&mut coordinator, 4, 1, now + HOUR), "in another hour");
    assert_eq!(store.enrolled_in(100).unwrap(), EnrolledInHour::default(), "which the store has forgotten");
}

/// A server that is killed when it has noted whom it gives a round, and before it has told them, tells them when they come again: they would
/// wait for the next round otherwise, and this one for them.
#[test]
fn who_was_given_a_round_and_not_told_is_told_after_a_restart() {
    let store = Arc::new(MemoryStore::new([7; 32]));
    let (at, devices) = (AttemptAt { task: TASK, round: 0, attempt: 0 }, vec![key(1), key(2)]);
    store.commit(&devices.iter().map(|device| Write::Enrol { device: *device, day: 1 }).collect::<Vec<_>>()).unwrap();
    store.commit(&[Write::Open(at), Write::Assign { at, devices }]).unwrap();
    let mut coordinator = Coordinator::new(store.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
    coordinator.add_task(TASK, asking(limits(), 2), Some(0)).unwrap();
    coordinator.open(Opening { goal: 2, ..opening(0) }, 0).unwrap();
    coordinator.said(1, key(1), &CHECK_IN, 0).unwrap();
    let answers = coordinator.flush().unwrap();
    let [(1, Answer { says: Some(Says::Assignment(given)) })] = &answers[..] else { panic!("{answers:?}") };
    // Once something of its report has arrived it knows.
    let ticket = device::protocol::message::Ticket(given.ticket.clone().try_into().unwrap());
    coordinator.begins(&ticket, 1).unwrap();
    coordinator.said(2, key(1), &CHECK_IN, 1).unwrap();
    assert_eq!(told(&mut coordinator), [(2, '-')]);
    assert_eq!(store.standing(&TASK, &key(1)).unwrap().participations, 1, "it is one participation");
}
