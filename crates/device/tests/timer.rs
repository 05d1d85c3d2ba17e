//! The timer of a device (Xu et al. 2023, section 2.2): it rests after an input has left, whatever happens to it and to its clock.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use crate::participating::{Host, NO_LIMITS, Offered};
use keyhush_device::{
    guard::{Asked, Damage, Day, Guard, GuardError, Limits, MemoryStore, ModelDigest, Now, Refused, TaskDigest, Timer},
    protocol::{
        message::{Enrolled, Hello, Realm, Says, Signed, Wants},
        participant::{Do, Event},
        policy::Policy,
        task::Task,
    },
};

const HOUR: u64 = 3600;

fn asked(task: u8, number: u64) -> Asked {
    Asked { task: TaskDigest([task; 32]), step: number, model: ModelDigest::of(&[number as f32]) }
}

/// Limits with a timer, in hours.
const fn rests(own: u64, task: u64) -> Limits {
    Limits { timer: Timer { own_s: own * HOUR, task_s: task * HOUR }, ..NO_LIMITS }
}

/// So many hours after the beginning, by both clocks.
const fn after(hours: u64) -> Now {
    at(hours, 100_000 + hours)
}

/// So many hours since the program was started, and by the clock.
const fn at(up: u64, clock: u64) -> Now {
    Now { up_ms: up * HOUR * 1000, clock_s: clock * HOUR }
}

fn gave(guard: &mut Guard<MemoryStore>, asked: Asked, limits: &Limits, now: Now) -> Result<(), Refused> {
    guard.see(now);
    let checked = guard.check(&asked, limits, now);
    let told = guard.allow(asked, limits, now).map(drop);
    assert_eq!(checked, told);
    told
}

fn begun() -> Guard<MemoryStore> {
    Guard::begin(MemoryStore::default()).unwrap()
}

/// Another life of the program, with what was durable.
fn restarted(guard: Guard<MemoryStore>) -> Guard<MemoryStore> {
    Guard::open(guard.into_store()).unwrap()
}

const fn resting(hours: u64) -> Result<(), Refused> {
    Err(Refused::Resting { wait_s: hours * HOUR })
}

#[test]
fn the_longer_of_the_devices_own_timer_and_the_tasks_holds() {
    for (own, task) in [(24, 48), (48, 24), (0, 48), (48, 0)] {
        let (limits, mut guard) = (rests(own, task), begun());
        gave(&mut guard, asked(1, 0), &limits, after(0)).unwrap();
        for hours in [0, 1, 24, 47] {
            assert_eq!(gave(&mut guard, asked(1, 1), &limits, after(hours)), resting(48), "{own} {task} {hours}");
        }
        gave(&mut guard, asked(1, 1), &limits, after(48)).unwrap();
    }
}

#[test]
fn the_tasks_timer_is_for_its_own_inputs_and_the_devices_for_all() {
    let mut guard = begun();
    let limits = rests(2, 48);
    gave(&mut guard, asked(1, 0), &limits, after(0)).unwrap();
    assert_eq!(gave(&mut guard, asked(2, 1), &limits, after(1)), resting(2));
    gave(&mut guard, asked(2, 1), &limits, after(2)).unwrap();
    assert_eq!(gave(&mut guard, asked(1, 2), &limits, after(40)), resting(48), "it rests from the first still");
    assert_eq!(guard.rests_ms(&limits, after(3)), HOUR * 1000);
    assert_eq!(guard.rests_ms(&limits, after(4)), 0);
    let under_way: Vec<_> = guard.rests(after(40)).map(|(task, _)| task.0[0]).collect();
    assert_eq!(under_way, [1, 2]);
    // A device that becomes stricter holds what it knows against it; one that becomes laxer need not wait for itself.
    assert_eq!(gave(&mut guard, asked(3, 3), &rests(30, 0), after(20)), resting(30));
    gave(&mut guard, asked(3, 3), &rests(0, 0), after(20)).unwrap();
}

#[test]
fn p24_a_rest_is_durable_before_the_input_leaves_and_survives_restarts() {
    let mut guard = begun();
    let permit = guard.allow(asked(1, 0), &rests(0, 48), after(0)).unwrap();
    // The device dies here, with the permit in its hand, again and again.
    for hours in [0, 1, 30, 47] {
        guard = restarted(guard);
        let now = at(0, 100_000 + hours);
        assert_eq!(gave(&mut guard, asked(1, 1), &rests(0, 48), now), resting(48), "after {hours} h");
    }
    gave(&mut restarted(guard), asked(1, 1), &rests(0, 48), at(0, 100_048)).unwrap();
    drop(permit);
}

#[test]
fn a_clock_that_is_set_back_ends_no_rest_early_and_does_not_keep_a_device_away_for_years() {
    let limits = rests(0, 48);
    for back in [1, 10, 24 * 365 * 5] {
        let mut guard = begun();
        gave(&mut guard, asked(1, 0), &limits, after(0)).unwrap();
        // While the program runs: by the clock it would last longer, by the steady one it is over when it is over.
        for hours in [0, 20, 47] {
            let now = at(hours, 100_000 + hours - back);
            assert_eq!(gave(&mut guard, asked(1, 1), &limits, now), resting(48), "{back} {hours}");
        }
        // After a restart it is not known how long the program was away: the rest is as long as it ever is.
        let mut guard = restarted(guard);
        for hours in [0, 20, 47] {
            let now = at(hours, 100_000 + hours - back);
            let told = gave(&mut guard, asked(1, 1), &limits, now);
            assert_eq!(told, resting(48), "{back} {hours}");
        }
        gave(&mut guard, asked(1, 1), &limits, at(48, 100_048 - back)).unwrap();
        // What left while the clock was back does not count from before what left earlier: when the clock is right again, it rests.
        let mut guard = restarted(guard);
        assert_eq!(gave(&mut guard, asked(1, 2), &limits, at(0, 100_047)), resting(48), "{back}");
    }
}

#[test]
fn a_clock_that_is_put_right_after_a_start_counts() {
    let mut guard = begun();
    gave(&mut guard, asked(1, 0), &rests(0, 48), after(0)).unwrap();
    // A device without a battery for its clock begins in 1970, until the network tells it the time.
    let mut guard = restarted(guard);
    assert_eq!(gave(&mut guard, asked(1, 1), &rests(0, 48), at(0, 0)), resting(48));
    assert_eq!(gave(&mut guard, asked(1, 1), &rests(0, 48), at(0, 100_047)), resting(48));
    gave(&mut guard, asked(1, 1), &rests(0, 48), at(0, 100_048)).unwrap();
}

#[test]
fn no_number_is_too_large() {
    let forever = Limits { timer: Timer { own_s: u64::MAX, task_s: u64::MAX }, ..NO_LIMITS };
    let mut guard = begun();
    let last = Now { up_ms: u64::MAX, clock_s: u64::MAX };
    gave(&mut guard, asked(1, 0), &forever, after(1)).unwrap();
    assert!(matches!(gave(&mut guard, asked(1, 1), &forever, after(2)), Err(Refused::Resting { .. })));
    assert!(guard.rests_ms(&forever, after(2)) > 0);
    gave(&mut guard, asked(1, 1), &forever, last).unwrap();
    assert_eq!(guard.rests(after(0)).map(|(_, until)| until).collect::<Vec<_>>(), [Day::at(u64::MAX)]);
}

#[test]
fn without_a_timer_no_time_of_day_is_kept_and_with_one_it_goes_when_the_rest_is_over() {
    let bytes = |guard: Guard<MemoryStore>| guard.into_store().bytes.unwrap();
    let (mut plain, mut timed) = (begun(), begun());
    for (number, hours) in [(0, 0), (1, 50)] {
        gave(&mut plain, asked(1, number), &NO_LIMITS, after(hours)).unwrap();
        gave(&mut timed, asked(1, number), &rests(0, 48), after(hours)).unwrap();
    }
    gave(&mut plain, asked(2, 2), &NO_LIMITS, after(100)).unwrap();
    gave(&mut timed, asked(2, 2), &NO_LIMITS, after(100)).unwrap();
    let (plain, timed) = (bytes(plain), bytes(timed));
    assert_eq!(plain[13], 1, "a program that knows no timers can read it");
    assert_eq!(plain, timed);
}

#[test]
fn p24_a_guard_with_rests_that_is_torn_or_has_a_bit_flipped_is_no_guard() {
    let mut guard = begun();
    for task in 0..3 {
        gave(&mut guard, asked(task, task.into()), &rests(0, 48), after(task.into())).unwrap();
    }
    let whole = guard.into_store().bytes.unwrap();
    let opened = |bytes: Vec<u8>| Guard::open(MemoryStore { bytes: Some(bytes) });
    let again = opened(whole.clone()).unwrap();
    assert_eq!((again.inputs(), again.rests(after(10)).count(), whole[13]), (3, 3, 2));
    for length in 0..whole.len() {
        let error = opened(whole[..length].to_vec()).unwrap_err();
        assert!(matches!(error, GuardError::Damaged(Damage::Name | Damage::Length { .. })), "{length}: {error}");
    }
    for more in [1, 48, 76, 4096] {
        let long = [whole.clone(), vec![0; more]].concat();
        assert!(matches!(opened(long), Err(GuardError::Damaged(Damage::Length { .. }))));
    }
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = opened(flipped).unwrap_err();
        assert!(matches!(error, GuardError::Damaged(_) | GuardError::Version { .. }), "bit {bit}: {error}");
    }
}

/// A device whose timer is so many hours, which is about to check in.
fn host(own: u64) -> Host {
    let mut host = Host::new(Policy::default(), 1);
    host.settings.limits = rests(own, 0);
    let mut host = host.restarted();
    host.idle();
    host
}

/// A task whose timer is so many hours.
fn offered(hours: u64) -> Offered {
    let mut offered = Offered::new(3);
    offered.terms.timer_s = Some(hours * HOUR);
    offered
}

/// Takes part in a step, to the thanks.
fn part(host: &mut Host, offered: &Offered, step: u64) {
    let work = host.assigned(offered, step);
    host.train(&work);
    let (_, chunk) = host.sent();
    host.received(chunk.len() as u64);
    host.said();
    host.thank(0);
}

fn pass(host: &mut Host, hours: u64) {
    host.now.up_ms += hours * HOUR * 1000;
    host.now.clock_s += hours * HOUR;
}

#[test]
fn a_device_that_rests_by_its_own_timer_does_not_come_also_after_a_restart() {
    let mut host = host(48);
    part(&mut host, &Offered::new(3), 0);
    assert!(host.device.page(host.now).contains("After each it waits for 48 h"));
    pass(&mut host, 47);
    assert!(matches!(host.next(), Do::Sleep { .. }), "the server told it to come back in 10 s");
    let mut host = host.restarted();
    // It may say hello, and nothing else.
    let hello = host.hello();
    assert!(matches!(host.wake(), Do::Hello));
    host.got(Event::Answer(&hello));
    let Do::Sleep { until_ms } = host.next() else { panic!("it comes") };
    let left_s = until_ms.saturating_sub(host.now.up_ms) / 1000;
    assert!((HOUR - 10..=HOUR).contains(&left_s), "{left_s}");
    host.now.clock_s -= 40 * HOUR;
    assert!(matches!(host.next(), Do::Sleep { .. }), "the clock was set back");
    host.now.clock_s += 40 * HOUR;
    pass(&mut host, 1);
    assert!(matches!(host.said().1, Wants::CheckIn(_)));
}

#[test]
fn a_device_that_rests_from_a_task_says_so_and_refuses_it_until_then() {
    let offered = offered(48);
    let digest = Task::read(&offered.task(), &Policy::default().bounds).unwrap().digest().0.to_vec();
    let checks_in = |host: &mut Host| match host.said() {
        (_, Wants::CheckIn(check_in)) => check_in.resting,
        (_, other) => panic!("{other:?}"),
    };
    let mut host = host(0);
    part(&mut host, &offered, 0);
    assert_eq!(checks_in(&mut host), std::slice::from_ref(&digest));
    let page = host.device.page(host.now);
    assert!(page.contains("It does not take part in tags of posts ("), "{page}");
    let mut host = host.restarted();
    host.idle();
    // A server that does not know the word, or does not heed it, gets nothing.
    for _ in 0..3 {
        host.answer(Says::Assignment(offered.assignment(5)));
        assert!(!matches!(host.fetched(&offered, 5), Do::Train(_) | Do::Send { .. }));
        assert!(host.refusals()[0].contains("rests for 48 h"));
    }
    let refused = host.device.diary().refused();
    assert_eq!((refused.len(), refused[0].times), (1, 3), "one line says it: {refused:?}");
    // It can be given another task meanwhile, and this one again when the rest is over.
    let mut other = Offered::new(2);
    other.terms.name = "other tags".into();
    part(&mut host, &other, 0);
    assert_eq!(checks_in(&mut host), [digest]);
    pass(&mut host, 48);
    host.answer(crate::participating::later(1));
    assert_eq!(checks_in(&mut host), Vec::<Vec<u8>>::new());
    part(&mut host, &offered, 5);
    assert_eq!(host.device.guard().inputs(), 3);
}

#[test]
fn tasks_of_other_servers_are_not_named() {
    let offered = offered(48);
    let mut host = host(0);
    part(&mut host, &offered, 0);
    let mut host = host.restarted();
    let Do::Hello = host.wake() else { panic!("it does not say hello") };
    let hello = Hello { oldest: 1, newest: 1, realm: vec![3; 32], time_s: 2_000_000_000 };
    host.got(Event::Answer(&prost::Message::encode_to_vec(&hello)));
    let mut said = || {
        let Do::Say(bytes) = host.wake() else { panic!("it says nothing") };
        let realm = Realm([3; 32]);
        let wants = Signed::open(&bytes, &realm).unwrap().1.wants.unwrap();
        host.answer(Says::Enrolled(Enrolled { after_s: 1 }));
        wants
    };
    assert!(matches!(said(), Wants::Enrol(_)));
    assert!(matches!(said(), Wants::CheckIn(check_in) if check_in.resting.is_empty()));
}
