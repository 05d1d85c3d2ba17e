//! What a coordinator says, request by request, where what comes in one batch could get around what is not durable yet.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::sync::Arc;

use device::{
    guard::TaskDigest,
    protocol::message::{Answer, Blob, CheckIn, DeviceKey, Enrol, Reason, Says, Ticket, Wants},
};
use keyhush_federated::protocol::{
    admission::{Anybody, ByToken},
    coordinator::Coordinator,
    desk::{Aggregation, Closed, Opening, Windows},
    left_out::LeaveOut,
    limits::ParticipationLimits,
    order::Order,
    pace::Pace,
    store::{AttemptAt, MemoryStore, Store, Write},
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

/// A coordinator of one task with a goal of one, and devices 1 to 4 enrolled before it begins.
fn with_devices() -> Coordinator {
    let store = MemoryStore::new([7; 32]);
    let enrol = |device| Write::Enrol { device: key(device), day: 1 };
    store.commit(&[enrol(1), enrol(2), enrol(3), enrol(4)]).unwrap();
    let mut coordinator = Coordinator::new(Arc::new(store), Box::new(Anybody), Pace::default(), 1).unwrap();
    coordinator.add_task(TASK, limits(), 1, 1, None);
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
    coordinator.add_task(TASK, limits, 1, 1, Some(2));
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
    coordinator.add_task(TASK, once, 1, 1, Some(1));
    coordinator.add_task(TaskDigest([2; 32]), once, 100, 1, None);
    for device in 1..=39 {
        coordinator.said(device.into(), key(device), &CHECK_IN, 0).unwrap();
    }
    coordinator.open(Opening { limits: once, ..opening(1) }, 0).unwrap();
    assert_eq!(told(&mut coordinator), [], "39 wait for the other task");
    coordinator.said(40, key(40), &CHECK_IN, 1).unwrap();
    coordinator.tick(200).unwrap();
    assert_eq!(told(&mut coordinator), [(40, '+')]);
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
    coordinator.add_task(EVALUATIONS, once(), 2, 2, None);
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
