//! What a coordinator says, request by request: where what comes in one batch, or another way than usual, could get around something.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{collections::BTreeSet, sync::Arc};

use device::{
    guard::TaskDigest,
    protocol::message::{
        Answer, Assignment, Blob, CheckIn, DeviceKey, Enrol, Next, Reason, Says, SecureMessage, Ticket, Wants,
    },
};
use keyhush_federated::protocol::{
    admission::{Anybody, ByToken, EnrolmentLimits, PlaceKey},
    coordinator::{Asking, Coordinator, Report},
    desk::{Aggregation, Closed, Opening},
    left_out::LeaveOut,
    limits::ParticipationLimits,
    order::Order,
    pace::Pace,
    secure::SecureDesk,
    store::{AttemptAt, EnrolledInHour, MemoryStore, Store, Write},
    ticket::RoundKey,
    windows::Windows,
};
use keyhush_federated::secrets::{FileVault, Secrets};
use ledger::FailureReason;
use privacy::{
    Adjacency, ClipNorm, MinSeparation, Participation,
    encoding::{Encoding, VectorPlan},
    stages::{Encoded, Residues},
};
use secagg::{
    client::{Client, Reply},
    directory::Everybody,
    entropy::OsEntropy,
    parameters::{Adversary, Assumptions, Floor},
    session::{Inputs, Offer, Terms},
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
    let check_in = Wants::CheckIn(CheckIn { patience_ms: 1_000, resting: Vec::new() });
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
    coordinator.said(1, key(1), &Wants::CheckIn(CheckIn { patience_ms: 1_000, resting: Vec::new() }), 0).unwrap();
    let answers = coordinator.flush().unwrap();
    let [(1, Answer { says: Some(Says::Later(later)) })] = &answers[..] else { panic!("{answers:?}") };
    assert!(later.after_s >= 1, "it would ask again and again, and keep the server busy");
}

/// Two thousand devices, of which a round wants half: they come often while it gathers them, and seldom once it has all it asked for.
#[test]
fn while_a_round_has_its_devices_the_others_are_not_called_near() {
    let store = MemoryStore::new([7; 32]);
    let numbered = |number: u16| {
        let mut key = [5; 32];
        key[..2].copy_from_slice(&number.to_le_bytes());
        DeviceKey(key)
    };
    store.commit(&(0..2_000).map(|n| Write::Enrol { device: numbered(n), day: 1 }).collect::<Vec<_>>()).unwrap();
    let mut coordinator = Coordinator::new(Arc::new(store), Box::new(Anybody), Pace::default(), 1).unwrap();
    let asking = Asking { population: 2_000, ..asking(limits(), 1_000) };
    coordinator.add_task(TASK, asking, None).unwrap();
    let impatient = Wants::CheckIn(CheckIn { patience_ms: 0, resting: Vec::new() });
    let comes_back_after = |coordinator: &mut Coordinator, number: u16, now: u64| {
        coordinator.said(number.into(), numbered(number), &impatient, now).unwrap();
        coordinator.tick(now + 1).unwrap();
        let answers = coordinator.flush().unwrap();
        let [(_, Answer { says: Some(Says::Later(later)) })] = &answers[..] else { panic!("{answers:?}") };
        later.after_s
    };
    let near: u64 = (100..140).map(|number| comes_back_after(&mut coordinator, number, 0)).sum();
    coordinator.open(opening(0), 10).unwrap();
    for request in 0..2 {
        coordinator.said(request, numbered(request as u16), &CHECK_IN, 10).unwrap();
    }
    assert_eq!(told(&mut coordinator), [(0, '+'), (1, '+')]);
    let far: u64 = (200..240).map(|number| comes_back_after(&mut coordinator, number, 20)).sum();
    assert!(far > 2 * near, "they come back after {near} s in all, and then after {far}");
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

fn encoding() -> Encoding {
    let clip = ClipNorm::new(1.0).unwrap();
    Encoding::new(VectorPlan::of_update(1, 12), clip, None, Adjacency::ZeroOut).unwrap()
}

fn opening(round: u64) -> Opening {
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
        aggregation: Aggregation::Plain(encoding()),
    }
}

const CHECK_IN: Wants = Wants::CheckIn(CheckIn { patience_ms: 30_000, resting: Vec::new() });

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
    coordinator.settle(&at, &BTreeSet::new(), 1).unwrap();
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

/// A device that rests from a task by its timer would refuse it: it is given others, and that one when it says so no more.
#[test]
fn a_device_is_not_given_a_task_that_it_rests_from() {
    let rests = |task: TaskDigest| {
        let resting = vec![task.0.to_vec(), vec![9; 32], Vec::new()];
        Wants::CheckIn(CheckIn { patience_ms: 30_000, resting })
    };
    let mut coordinator = with_evaluations();
    coordinator.open(opening(0), 0).unwrap();
    for device in [1, 2] {
        coordinator.said(device.into(), key(device), &rests(TASK), 0).unwrap();
    }
    coordinator.tick(150).unwrap();
    let both = told(&mut coordinator);
    assert_eq!(both, [(1, '-'), (2, '-')], "there is nothing else to be given");
    // Whoever waits for rounds and rests from evaluations is not invited to one.
    coordinator.settle(&opening(0).at, &BTreeSet::new(), 200).unwrap();
    for device in [1, 2] {
        coordinator.said(10 + u64::from(device), key(device), &rests(EVALUATIONS), 300).unwrap();
    }
    coordinator.open(evaluation(0, 0), 300).unwrap();
    coordinator.tick(500).unwrap();
    assert_eq!(told(&mut coordinator), []);
    for device in [3, 4] {
        coordinator.said(20 + u64::from(device), key(device), &rests(TASK), 500).unwrap();
    }
    coordinator.tick(700).unwrap();
    assert_eq!(told(&mut coordinator), [(23, '+'), (24, '+')]);
    coordinator.open(opening(1), 800).unwrap();
    coordinator.tick(1_000).unwrap();
    assert_eq!(told(&mut coordinator), [(11, '+'), (12, '+')]);
}

#[test]
fn before_a_server_stops_whoever_waits_is_told_and_nobody_is_given_anything() {
    let mut coordinator = with_devices();
    coordinator.open(Opening { goal: 2, ..opening(0) }, 0).unwrap();
    for device in [1, 2, 3, 4] {
        coordinator.said(device.into(), key(device), &CHECK_IN, 0).unwrap();
    }
    let given = coordinator.flush().unwrap();
    let ticket = |request: u64| {
        let (_, answer) = given.iter().find(|(id, _)| *id == request).unwrap();
        let Some(Says::Assignment(given)) = &answer.says else { panic!("{answer:?}") };
        given.ticket.clone()
    };
    assert_eq!(given.len(), 3, "two reports are wanted, three devices are asked, and one waits");
    let of_first = Ticket(ticket(1).try_into().unwrap());
    coordinator.begins(&of_first, 1).unwrap();
    let report = Report::Plain(Encoded::of(vec![1], &encoding()).unwrap());
    coordinator.report(10, &of_first, &report, 1).unwrap();
    let next = |ticket: Vec<u8>| Wants::Next(Next { ticket, patience_ms: 30_000 });
    coordinator.said(11, key(1), &next(ticket(1)), 1).unwrap();
    assert_eq!(coordinator.flush().unwrap().len(), 1, "its report has arrived, and is in no sum that survives a crash");

    coordinator.close();
    let says = |answers: Vec<(u64, Answer)>| answers.into_iter().map(|(id, answer)| (id, answer.says.unwrap()));
    let told: Vec<_> = says(coordinator.flush().unwrap()).collect();
    assert!(matches!(told[..], [(4, Says::Later(_)), (11, Says::Wait(_))]), "{told:?}");
    // Who comes now is told at once, and a report that is on its way is taken.
    coordinator.said(12, key(4), &CHECK_IN, 2).unwrap();
    coordinator.said(13, key(1), &next(ticket(1)), 2).unwrap();
    let of_second = Ticket(ticket(2).try_into().unwrap());
    coordinator.begins(&of_second, 2).unwrap();
    coordinator.report(14, &of_second, &report, 2).unwrap();
    coordinator.tick(5_000).unwrap();
    let told: Vec<_> = says(coordinator.flush().unwrap()).collect();
    assert!(matches!(told[..], [(12, Says::Later(_)), (13, Says::Wait(_)), (14, Says::Received(_))]), "{told:?}");
    assert!(coordinator.has_closed(&TASK));
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

/// The evaluations of the task.
const EVALUATIONS: TaskDigest = TaskDigest([2; 32]);

/// At most one evaluation of one device.
fn once() -> ParticipationLimits {
    ParticipationLimits::try_from(&Participation::Once).unwrap()
}

/// The coordinator of a task that rests between its rounds, with evaluations that are opened now and then.
fn with_evaluations() -> Coordinator {
    let mut coordinator = with_devices();
    coordinator.add_task(EVALUATIONS, Asking { begin_with: 2, ..asking(once(), 2) }, None).unwrap();
    coordinator.only_while_open(&EVALUATIONS).unwrap();
    coordinator
}

fn evaluation(step: u64, attempt: u32) -> Opening {
    let at = AttemptAt { task: EVALUATIONS, round: step, attempt };
    Opening { at, goal: 2, limits: once(), ..opening(step) }
}

/// Rules P6 and P18: limits are those of evaluations, and of nothing else. Who has measured as often as it may is not asked for that, and is
/// still asked for rounds.
#[test]
fn p18_over_its_limits_a_device_is_refused_for_an_evaluation_and_not_for_rounds() {
    let mut coordinator = with_evaluations();
    coordinator.open(evaluation(0, 0), 0).unwrap();
    for device in [1, 2] {
        coordinator.said(device.into(), key(device), &CHECK_IN, 0).unwrap();
    }
    // The goal is two, three are wanted, and so long nobody else comes. Both send something.
    coordinator.tick(150).unwrap();
    let answers = coordinator.flush().unwrap();
    assert_eq!(answers.len(), 2, "{answers:?}");
    for (_, answer) in &answers {
        let Some(Says::Assignment(given)) = &answer.says else { panic!("{answer:?}") };
        coordinator.begins(&Ticket(given.ticket.as_slice().try_into().unwrap()), 160).unwrap();
    }
    let at = evaluation(0, 0).at;
    coordinator.settle(&at, &[key(1), key(2)].into(), 200).unwrap();
    coordinator.flush().unwrap();
    // The next one is for those who have not measured yet; also in another attempt, and after a restart.
    coordinator.open(evaluation(1, 0), 300).unwrap();
    for device in [1, 2, 3, 4] {
        coordinator.said(10 + u64::from(device), key(device), &CHECK_IN, 300).unwrap();
    }
    coordinator.tick(500).unwrap();
    assert_eq!(told(&mut coordinator), [(13, '+'), (14, '+')], "1 and 2 wait for the next round");
    coordinator.open(opening(0), 600).unwrap();
    coordinator.tick(800).unwrap();
    assert_eq!(told(&mut coordinator), [(11, '+'), (12, '+')], "for which evaluations do not count");
}

/// A failed attempt is a participation of everybody who was given it, and none of them is given another attempt of the step.
#[test]
fn p24_nobody_is_given_two_attempts_of_an_evaluation() {
    let mut coordinator = with_evaluations();
    coordinator.open(evaluation(0, 0), 0).unwrap();
    for device in [1, 2] {
        coordinator.said(device.into(), key(device), &CHECK_IN, 0).unwrap();
    }
    coordinator.tick(150).unwrap();
    coordinator.flush().unwrap();
    // Both vanish.
    coordinator.tick(10_000).unwrap();
    assert!(
        matches!(coordinator.take_closed(&EVALUATIONS), Some(Closed::Failed(FailureReason::BelowGoal, who)) if who.len() == 2)
    );
    coordinator.settle(&evaluation(0, 0).at, &[].into(), 10_000).unwrap();
    coordinator.flush().unwrap();
    coordinator.open(evaluation(0, 1), 10_100).unwrap();
    for device in [1, 2, 3, 4] {
        coordinator.said(10 + u64::from(device), key(device), &CHECK_IN, 10_100).unwrap();
    }
    coordinator.tick(10_300).unwrap();
    assert_eq!(told(&mut coordinator), [(13, '+'), (14, '+')]);
}

#[test]
fn evaluations_take_who_waits_for_rounds_want_nobody_in_between_and_are_given_up_where_nobody_comes() {
    let mut coordinator = with_evaluations();
    // They came for rounds, before the evaluation was opened.
    for device in [1, 2, 3] {
        coordinator.said(device.into(), key(device), &CHECK_IN, 0).unwrap();
    }
    assert_eq!(told(&mut coordinator), []);
    coordinator.open(evaluation(0, 0), 10).unwrap();
    assert_eq!(told(&mut coordinator), [(1, '+'), (2, '+'), (3, '+')]);
    coordinator.settle(&evaluation(0, 0).at, &[key(1), key(2)].into(), 20).unwrap();
    coordinator.flush().unwrap();
    // Everybody but 4 has measured: the next one finds too few, and whoever waits for it is told after a while.
    coordinator.open(evaluation(1, 0), 30).unwrap();
    coordinator.order(&EVALUATIONS, Order::Pause, 40).unwrap();
    coordinator.tick(9_000).unwrap();
    assert!(coordinator.take_closed(&EVALUATIONS).is_none(), "in a pause nobody is waited for");
    coordinator.order(&EVALUATIONS, Order::Run, 9_000).unwrap();
    coordinator.said(4, key(4), &CHECK_IN, 9_000).unwrap();
    coordinator.tick(11_900).unwrap();
    assert!(coordinator.take_closed(&EVALUATIONS).is_none(), "three windows are not over");
    coordinator.tick(12_100).unwrap();
    let given_up = coordinator.take_closed(&EVALUATIONS);
    assert!(matches!(&given_up, Some(Closed::Failed(FailureReason::BelowGoal, who)) if who.is_empty()), "{given_up:?}");
    // Rounds wait for as long as it takes.
    coordinator.open(opening(0), 13_000).unwrap();
    coordinator.order(&TASK, Order::Run, 13_000).unwrap();
    coordinator.tick(13_000 + 86_400_000).unwrap();
}

/// What each request was given.
fn given(coordinator: &mut Coordinator) -> Vec<(u64, Assignment)> {
    let assignment = |(request, answer): (u64, Answer)| match answer.says {
        Some(Says::Assignment(assignment)) => Some((request, assignment)),
        _ => None,
    };
    coordinator.flush().unwrap().into_iter().filter_map(assignment).collect()
}

fn ticket(assignment: &Assignment) -> Ticket {
    Ticket(assignment.ticket.as_slice().try_into().unwrap())
}

/// The whole report of somebody who typed nothing.
fn reports(coordinator: &mut Coordinator, request: u64, ticket: &Ticket) {
    coordinator.begins(ticket, 10).unwrap();
    let nothing = Encoded::of(vec![0], &encoding()).unwrap();
    coordinator.report(request, ticket, &Report::Plain(nothing), 10).unwrap();
}

#[test]
fn a_device_in_attempts_of_two_tasks_hears_of_each_by_itself() {
    let mut coordinator = with_devices();
    let other = TaskDigest([2; 32]);
    coordinator.add_task(other, asking(limits(), 2), None).unwrap();
    coordinator.open(opening(0), 0).unwrap();
    for (request, device) in [(1, 1), (2, 2)] {
        coordinator.said(request, key(device), &CHECK_IN, 0).unwrap();
    }
    let first = ticket(&given(&mut coordinator)[0].1);
    reports(&mut coordinator, 3, &first);
    coordinator.flush().unwrap();
    // The goal of the first task is reached. While its sum is released the device is given the other one.
    let at = AttemptAt { task: other, round: 0, attempt: 0 };
    coordinator.open(Opening { at, goal: 2, ..opening(0) }, 20).unwrap();
    for (request, device) in [(4, 1), (5, 3), (6, 4)] {
        coordinator.said(request, key(device), &CHECK_IN, 20).unwrap();
    }
    let second = ticket(&given(&mut coordinator)[0].1);
    reports(&mut coordinator, 7, &second);
    let next = Next { ticket: second.0.to_vec(), patience_ms: 20_000 };
    coordinator.said(8, key(1), &Wants::Next(next), 30).unwrap();
    coordinator.flush().unwrap();
    let took_part = BTreeSet::from([key(1)]);
    coordinator.settle(&opening(0).at, &took_part, 40).unwrap();
    coordinator.tick(50).unwrap();
    let answers = coordinator.flush().unwrap();
    assert!(answers.is_empty(), "what it waits for has not happened: {answers:?}");
    coordinator.settle(&at, &took_part, 60).unwrap();
    let answers = coordinator.flush().unwrap();
    assert!(matches!(answers[..], [(8, Answer { says: Some(Says::Thanks(_)) })]), "{answers:?}");
}

#[test]
fn p18_a_masked_input_counts_whichever_way_it_came() {
    let store = Arc::new(MemoryStore::new([7; 32]));
    let devices: Vec<DeviceKey> = (1..=6).map(key).collect();
    store.commit(&devices.iter().map(|d| Write::Enrol { device: *d, day: 1 }).collect::<Vec<_>>()).unwrap();
    let mut coordinator = Coordinator::new(store.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
    coordinator.add_task(TASK, asking(limits(), 4), None).unwrap();
    let residues = Residues::new(&encoding(), 6).unwrap();
    let terms = Terms {
        task: TASK.0,
        model: [9; 32],
        round: 0,
        assumptions: Assumptions::new(0.3, 0.0, Adversary::Curious),
        most_clients: 6,
        least_survivors: 4,
        dimension: residues.len() as u32,
        bits: residues.bits(),
        inputs: Inputs::Bounded { largest: residues.largest() },
        most_evidence: 0,
    };
    let aggregation = Aggregation::Secure(Box::new(SecureDesk::new(terms, 6, Box::new(OsEntropy))));
    coordinator.open(Opening { goal: 4, aggregation, ..opening(0) }, 0).unwrap();
    for (request, device) in (0..).zip(&devices) {
        coordinator.said(request, *device, &CHECK_IN, 0).unwrap();
    }
    let floor = Floor { clients: 3, survivors: 2, corrupted: 0.0, dropout: 0.0, ..Floor::default() };
    let mut parts: Vec<(Ticket, Client, Vec<u8>)> = Vec::new();
    for (_, assignment) in given(&mut coordinator) {
        let offer = Offer::decode(&assignment.offer).unwrap();
        let (client, says) = Client::begin(offer, floor, &Everybody, &mut OsEntropy).unwrap();
        parts.push((ticket(&assignment), client, says));
    }
    assert_eq!(parts.len(), 6);
    // Each says all that it has to say as a message, its masked input too, which should come in chunks.
    let input = residues.of(&Encoded::of(vec![0], &encoding()).unwrap()).unwrap();
    for _ in 0..4 {
        for (request, (ticket, _, message)) in (0..).zip(&parts) {
            let said = SecureMessage { ticket: ticket.0.to_vec(), message: message.clone() };
            coordinator.said(request, devices[request as usize], &Wants::Secure(said), 1).unwrap();
        }
        for (request, answer) in coordinator.flush().unwrap() {
            let Some(Says::Secure(heard)) = answer.says else { panic!("{answer:?}") };
            let (_, client, says) = &mut parts[request as usize];
            *says = match client.receive(&heard.message, &Everybody, &mut OsEntropy).unwrap() {
                Reply::Send(answer) => answer.to_vec(),
                Reply::Ready => client.mask(&input).unwrap(),
                Reply::Ignored(why) => panic!("{why}"),
            };
        }
    }
    assert!(matches!(coordinator.take_closed(&TASK), Some(Closed::Masked(_))), "there is a sum");
    coordinator.settle(&opening(0).at, &devices.iter().copied().collect(), 2).unwrap();
    coordinator.flush().unwrap();
    for device in &devices {
        assert_eq!(store.standing(&TASK, device).unwrap().participations, 1, "it is in the sum");
    }
}

/// A store with devices 1 to 4, and a coordinator that has given the first round to 1 and 2: their tickets.
fn given_to_two() -> (Arc<MemoryStore>, Coordinator, Vec<Ticket>) {
    let store = Arc::new(MemoryStore::new([7; 32]));
    let enrol = |device| Write::Enrol { device: key(device), day: 1 };
    store.commit(&[enrol(1), enrol(2), enrol(3), enrol(4)]).unwrap();
    let mut coordinator = started(&store);
    coordinator.open(opening(0), 0).unwrap();
    for (request, device) in [(1, 1), (2, 2)] {
        coordinator.said(request, key(device), &CHECK_IN, 0).unwrap();
    }
    let tickets = given(&mut coordinator).iter().map(|(_, assignment)| ticket(assignment)).collect();
    (store, coordinator, tickets)
}

fn started(store: &Arc<MemoryStore>) -> Coordinator {
    let mut coordinator = Coordinator::new(store.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
    coordinator.add_task(TASK, asking(limits(), 1), None).unwrap();
    coordinator
}

fn participations(store: &MemoryStore) -> [u64; 2] {
    [1, 2].map(|device| store.standing(&TASK, &key(device)).unwrap().participations)
}

/// Of whom nothing can have arrived did not take part; everybody else did, whatever became of the attempt (rule P24).
#[test]
fn p24_who_sent_anything_took_part_and_after_a_crash_everybody_did() {
    let (at, nobody) = (opening(0).at, BTreeSet::new());
    let (store, mut coordinator, tickets) = given_to_two();
    coordinator.begins(&tickets[0], 10).unwrap();
    coordinator.settle(&at, &nobody, 20).unwrap();
    coordinator.flush().unwrap();
    assert_eq!(participations(&store), [1, 0], "a first chunk of one was on its way");

    // A server that is started again does not know what had arrived: it goes on with the attempt, ...
    let (store, before, _) = given_to_two();
    drop(before);
    let mut coordinator = started(&store);
    coordinator.open(opening(0), 30).unwrap();
    coordinator.settle(&at, &nobody, 40).unwrap();
    coordinator.flush().unwrap();
    assert_eq!(participations(&store), [1, 1]);

    // ... or finds it left over, with its end in the ledger.
    let (store, before, _) = given_to_two();
    drop(before);
    let mut coordinator = started(&store);
    coordinator.open(Opening { at: AttemptAt { attempt: 1, ..at }, ..opening(0) }, 30).unwrap();
    coordinator.flush().unwrap();
    assert_eq!(participations(&store), [1, 1]);
}

#[test]
fn what_comes_when_its_time_is_over_is_late() {
    let late = |answer: Option<Says>| matches!(answer, Some(Says::Refused(r)) if r.reason == i32::from(Reason::Late));
    let (_, mut coordinator, tickets) = given_to_two();
    coordinator.begins(&tickets[0], 10).unwrap();
    // The window is a second. Nobody has looked at the clock since: a report is held against it by itself.
    let refused = coordinator.begins(&tickets[1], 1_001).unwrap_err();
    assert!(late(refused.says), "nothing more is sent");
    let nothing = Encoded::of(vec![0], &encoding()).unwrap();
    coordinator.report(9, &tickets[0], &Report::Plain(nothing), 1_001).unwrap();
    let (_, answer) = coordinator.flush().unwrap().into_iter().find(|(request, _)| *request == 9).unwrap();
    assert!(late(answer.says), "what is whole too late is not added");
    assert!(!coordinator.has_closed(&TASK));
}

#[test]
fn a_ticket_is_bound_to_device_task_round_attempt_and_model() {
    let round_key = |byte| RoundKey::new(Zeroizing::new([byte; 32]));
    let at = AttemptAt { task: TASK, round: 3, attempt: 1 };
    let others = [
        round_key(1).ticket(&at, &[9; 32], &key(1)),
        round_key(2).ticket(&at, &[9; 32], &key(1)),
        round_key(1).ticket(&AttemptAt { task: TaskDigest([2; 32]), ..at }, &[9; 32], &key(1)),
        round_key(1).ticket(&AttemptAt { round: 4, ..at }, &[9; 32], &key(1)),
        round_key(1).ticket(&AttemptAt { attempt: 2, ..at }, &[9; 32], &key(1)),
        round_key(1).ticket(&at, &[8; 32], &key(1)),
        round_key(1).ticket(&at, &[9; 32], &key(2)),
    ];
    assert_eq!(others.iter().collect::<BTreeSet<_>>().len(), others.len());
    assert_eq!(others[0], round_key(1).ticket(&at, &[9; 32], &key(1)), "after a restart it is the same");
}

/// A key that a crash left behind is of no other attempt: what is sealed with the next one does not open with it.
#[test]
fn p20_each_attempt_has_a_key_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = Secrets::new(Arc::new(FileVault::in_folder(folder.path().join("secrets")).unwrap()));
    let ticket = |key: &RoundKey| key.ticket(&opening(0).at, &[9; 32], &self::key(1));
    let first = secrets.round_key("model", 0, 0).unwrap();
    assert_eq!(ticket(&secrets.round_key("model", 0, 0).unwrap()), ticket(&first), "again it is the same");
    for (round, attempt) in [(0, 1), (1, 1)] {
        assert!(secrets.kept_round_key("model", round, attempt).unwrap().is_none());
        assert_ne!(ticket(&secrets.round_key("model", round, attempt).unwrap()), ticket(&first));
        assert!(secrets.kept_round_key("model", 0, 0).unwrap().is_none(), "the one before is gone");
    }
}
