//! What the hub makes of requests: who speaks, when, and whether that was heard before.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use device::{
    guard::TaskDigest,
    protocol::message::{
        Answer, Assignment, Blob, CheckIn, DeviceKey, Enrol, Next, Realm, Reason, Request, Says, Ticket, Wants,
    },
};
use ed25519_dalek::SigningKey;
use federated::protocol::{
    admission::{Anybody, EnrolmentLimits, PlaceKey},
    coordinator::{Asking, Coordinator},
    desk::{Aggregation, Opening},
    limits::ParticipationLimits,
    pace::Pace,
    store::{AttemptAt, MemoryStore, Store, Write},
    ticket::RoundKey,
    windows::Windows,
};
use keyhush_server::{
    attestation::Attestation,
    http::Service,
    hub::{Hub, now_ms},
};
use privacy::{
    Adjacency, ClipNorm, Participation,
    encoding::{Encoding, VectorPlan},
};
use prost::Message;
use zeroize::Zeroizing;

const TASK: TaskDigest = TaskDigest([1; 32]);
const REALM: Realm = Realm([7; 32]);

fn key(byte: u8) -> SigningKey {
    SigningKey::from_bytes(&[byte; 32])
}

fn encoding() -> Encoding {
    let clip = ClipNorm::new(1.0).unwrap();
    Encoding::new(VectorPlan::of_update(1, 12), clip, None, Adjacency::ZeroOut).unwrap()
}

fn opening() -> Opening {
    Opening {
        at: AttemptAt { task: TASK, round: 0, attempt: 0 },
        step: 0,
        goal: 1,
        limits: ParticipationLimits::try_from(&Participation::Once).unwrap(),
        windows: Windows { select_ms: 0, report_ms: 60_000, answer_ms: 60_000, tick_ms: 1 },
        task: Blob { digest: TASK.0.to_vec(), bytes: 1 },
        model: Blob { digest: vec![9; 32], bytes: 4 },
        terms: Vec::new(),
        key: RoundKey::new(Zeroizing::new([3; 32])),
        aggregation: Aggregation::Plain(encoding()),
    }
}

/// A hub with a task whose attempt is open, and with devices 1 and 2.
fn hub(limits: EnrolmentLimits) -> Hub {
    let store = Arc::new(MemoryStore::new(REALM.0));
    let enrol = |byte| Write::Enrol { device: DeviceKey(key(byte).verifying_key().to_bytes()), day: 1 };
    store.commit(&[enrol(1), enrol(2)]).unwrap();
    let mut coordinator = Coordinator::new(store.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
    let places = PlaceKey::new(Zeroizing::new([4; 32]));
    coordinator.limit_enrolments(limits, places, now_ms()).unwrap();
    let once = ParticipationLimits::try_from(&Participation::Once).unwrap();
    coordinator.add_task(TASK, Asking { limits: once, goal: 1, begin_with: 1, population: 9 }, None).unwrap();
    coordinator.open(opening(), now_ms()).unwrap();
    Hub::start(coordinator, store, 1 << 20, Arc::default()).unwrap().0
}

fn signed(by: u8, time_s: u64, number: u64, wants: Wants) -> Vec<u8> {
    Request { time_s, number, wants: Some(wants) }.sign(&key(by), &REALM).encode_to_vec()
}

fn check_in(by: u8, time_s: u64, number: u64) -> Vec<u8> {
    signed(by, time_s, number, Wants::CheckIn(CheckIn { patience_ms: 10, resting: Vec::new() }))
}

fn say(hub: &Hub, bytes: &[u8], from: Option<IpAddr>) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(hub.say(bytes.to_vec().into(), from))
}

fn given(answer: &Answer) -> Option<&Assignment> {
    match &answer.says {
        Some(Says::Assignment(assignment)) => Some(assignment),
        _ => None,
    }
}

fn refused(answer: &Answer) -> Option<(i32, u64)> {
    match &answer.says {
        Some(Says::Refused(refused)) => Some((refused.reason, refused.after_s)),
        _ => None,
    }
}

#[test]
fn a_check_in_that_is_played_again_gets_no_ticket_and_one_that_is_signed_anew_does() {
    let hub = hub(EnrolmentLimits::default());
    let now = now_ms() / 1000 + 1;
    let first = check_in(1, now, 5);
    let answer = say(&hub, &first, None);
    let ticket = &given(&answer).unwrap().ticket;
    for _ in 0..2 {
        let again = say(&hub, &first, None);
        assert!(matches!(again.says, Some(Says::Later(_))), "{again:?}");
    }
    let older = say(&hub, &check_in(1, now, 4), None);
    assert!(matches!(older.says, Some(Says::Later(_))), "what was kept back and comes late: {older:?}");
    let anew = say(&hub, &check_in(1, now, 6), None);
    assert_eq!(&given(&anew).unwrap().ticket, ticket, "a device whose answer was lost signs anew");
    assert!(given(&say(&hub, &check_in(2, now - 1, 1), None)).is_some(), "others are others");
    hub.stop();
}

/// Somebody who has seen a request can play it again. A device that waits for its answer is not disturbed by that.
#[test]
fn what_is_played_again_does_not_end_the_wait_of_the_device_itself() {
    let hub = hub(EnrolmentLimits::default());
    let now = now_ms() / 1000 + 1;
    let answer = say(&hub, &check_in(1, now, 1), None);
    let ticket = given(&answer).unwrap().ticket.clone();
    let put = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Its report is in, and it waits to hear that it counts.
    let mut chunk = Bytes::from(vec![0; encoding().packing().bytes()]).into();
    let put_chunk = hub.chunk(Ticket(ticket.clone().try_into().unwrap()), 0, &mut chunk);
    assert!(matches!(put.block_on(put_chunk).says, Some(Says::Received(_))));
    let next = |number, patience_ms| signed(1, now, number, Wants::Next(Next { ticket: ticket.clone(), patience_ms }));
    let (first, began) = (next(2, 1_500), Instant::now());
    let waits = {
        let (hub, first) = (hub.clone(), first.clone());
        std::thread::spawn(move || (say(&hub, &first, None), began.elapsed()))
    };
    std::thread::sleep(Duration::from_millis(300));
    for again in [first, next(1, 1_500)] {
        let asked = Instant::now();
        let told = say(&hub, &again, None);
        assert!(matches!(told.says, Some(Says::Wait(_))), "{told:?}");
        assert!(asked.elapsed() < Duration::from_millis(700), "it does not wait in the place of the device");
    }
    let (told, after) = waits.join().unwrap();
    assert!(matches!(told.says, Some(Says::Wait(_))), "{told:?}");
    assert!(after >= Duration::from_millis(1_400), "it was sent away after {after:?}");
    hub.stop();
}

#[test]
fn what_was_said_before_the_server_was_started_gets_no_ticket() {
    let hub = hub(EnrolmentLimits::default());
    let before = say(&hub, &check_in(1, now_ms() / 1000 - 60, 9), None);
    assert!(matches!(before.says, Some(Says::Later(_))), "{before:?}");
    hub.stop();
}

#[test]
fn signatures_of_others_and_clocks_that_are_apart_are_refused() {
    let hub = hub(EnrolmentLimits::default());
    let now = now_ms() / 1000;
    let reason = |answer: &Answer| refused(answer).map(|(reason, _)| reason);
    for time in [now - 302, now + 302] {
        assert_eq!(reason(&say(&hub, &check_in(1, time, 1), None)), Some(Reason::Clock.into()), "{time}");
    }
    let wants = Wants::CheckIn(CheckIn { patience_ms: 10, resting: Vec::new() });
    let request = Request { time_s: now, number: 1, wants: Some(wants) };
    let elsewhere = request.sign(&key(1), &Realm([8; 32])).encode_to_vec();
    assert_eq!(reason(&say(&hub, &elsewhere, None)), Some(Reason::Signature.into()), "for another server");
    let mut stolen = request.sign(&key(2), &REALM);
    stolen.device = key(1).verifying_key().to_bytes().to_vec();
    assert_eq!(reason(&say(&hub, &stolen.encode_to_vec(), None)), Some(Reason::Signature.into()), "by another");
    assert_eq!(reason(&say(&hub, &check_in(9, now, 1), None)), Some(Reason::Stranger.into()));
    hub.stop();
}

#[test]
fn enrolments_are_limited_by_address_and_in_all_and_again_costs_nothing() {
    let hub = hub(EnrolmentLimits { an_hour: 4, an_hour_by_address: 2 });
    let enrol = |by, last| {
        let from = IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        say(&hub, &signed(by, now_ms() / 1000, 1, Wants::Enrol(Enrol::default())), Some(from))
    };
    let full = |answer: &Answer| refused(answer).filter(|(reason, _)| *reason == i32::from(Reason::TooMuch));
    for (by, from, taken) in [(10, 1, true), (11, 1, true), (12, 1, false), (11, 1, true), (1, 1, true), (12, 2, true)]
    {
        let answer = enrol(by, from);
        assert_eq!(full(&answer).is_none(), taken, "device {by} from {from}: {answer:?}");
    }
    let (_, after_s) = full(&enrol(13, 1)).unwrap();
    assert!((1..=3_600 + 60).contains(&after_s), "it is told when to come back: {after_s}");
    assert!(full(&enrol(13, 3)).is_none() && full(&enrol(14, 4)).is_some(), "four in all");
    hub.stop();
}

/// Asks about devices, slowly, and vouches for none or for all. What devices say of themselves is where they come from.
#[derive(Default)]
struct Asked {
    vouches: bool,
    slow: Duration,
    /// How often it was asked.
    asked: Mutex<u64>,
    /// How many of an address it is asked about at the moment, and were at most.
    now: Mutex<BTreeMap<u8, (u64, u64)>>,
}

impl Attestation for Asked {
    fn attests(&self, _: &DeviceKey, said: &[u8]) -> bool {
        *self.asked.lock().unwrap() += 1;
        {
            let mut now = self.now.lock().unwrap();
            let (here, most) = now.entry(said[0]).or_default();
            *here += 1;
            *most = (*here).max(*most);
        }
        std::thread::sleep(self.slow);
        self.now.lock().unwrap().get_mut(&said[0]).unwrap().0 -= 1;
        self.vouches
    }
}

/// What a device says that would enrol from an address.
fn enrols(by: u8, last: u8) -> (Bytes, Option<IpAddr>) {
    let enrol = Wants::Enrol(Enrol { token: Vec::new(), attestation: vec![last] });
    let from = IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
    (signed(by, now_ms() / 1000, 1, enrol).into(), Some(from))
}

/// A command of the operator's was run for each, ten seconds long, before it was looked whether there is room for anybody.
#[test]
fn nobody_is_asked_about_whom_there_is_no_room_for() {
    let asked = Arc::new(Asked { vouches: true, ..Asked::default() });
    let hub = hub(EnrolmentLimits { an_hour: 2, an_hour_by_address: 1 }).asking(Some(asked.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (by, last, taken, calls) in [(10, 1, true, 1), (11, 1, false, 1), (12, 2, true, 2), (13, 3, false, 2)] {
        let (bytes, from) = enrols(by, last);
        let answer = runtime.block_on(hub.say(bytes, from));
        assert_eq!(matches!(answer.says, Some(Says::Enrolled(_))), taken, "device {by}: {answer:?}");
        let full = refused(&answer).is_some_and(|(reason, _)| reason == i32::from(Reason::TooMuch));
        assert_eq!((full, *asked.asked.lock().unwrap()), (!taken, calls), "device {by}: {answer:?}");
    }
    hub.stop();
}

#[test]
fn devices_that_nobody_vouches_for_are_counted_by_their_address() {
    let asked = Arc::new(Asked::default());
    let hub = hub(EnrolmentLimits::default()).asking(Some(asked.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reason = |by, last| {
        let (bytes, from) = enrols(by, last);
        refused(&runtime.block_on(hub.say(bytes, from))).map(|(reason, _)| reason)
    };
    for by in 100..120 {
        assert_eq!(reason(by, 1), Some(Reason::NotAdmitted.into()), "device {by}");
    }
    for by in 120..125 {
        assert_eq!(reason(by, 1), Some(Reason::TooMuch.into()), "device {by}");
    }
    assert_eq!(*asked.asked.lock().unwrap(), 20, "nobody is asked about those");
    assert_eq!(reason(125, 2), Some(Reason::NotAdmitted.into()), "others have their own count");
    hub.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_address_one_device_is_asked_about_at_a_time_also_when_it_hangs_up() {
    let asked = Arc::new(Asked { slow: Duration::from_millis(150), ..Asked::default() });
    let hub = hub(EnrolmentLimits::default()).asking(Some(asked.clone()));
    let says = |by, last| {
        let (hub, (bytes, from)) = (hub.clone(), enrols(by, last));
        tokio::spawn(async move { hub.say(bytes, from).await })
    };
    let hang_up: Vec<_> = (10..16).map(|by| says(by, 1)).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    hang_up.iter().for_each(tokio::task::JoinHandle::abort);
    let began = Instant::now();
    let [one, other, elsewhere] = [says(20, 1), says(21, 1), says(22, 2)];
    elsewhere.await.unwrap();
    let waited = began.elapsed();
    for answer in [one.await.unwrap(), other.await.unwrap()] {
        assert_eq!(refused(&answer).map(|(reason, _)| reason), Some(Reason::NotAdmitted.into()));
    }
    assert!(waited < began.elapsed(), "the other address did not wait for them: {waited:?}");
    let most: Vec<u64> = asked.now.lock().unwrap().values().map(|(_, most)| *most).collect();
    assert_eq!(most, [1, 1]);
    // Of those who hung up one was asked about, and counted.
    assert_eq!(*asked.asked.lock().unwrap(), 4);
    hub.stop();
}
