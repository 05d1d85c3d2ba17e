//! Tests of the memory for reports at the hub: how long each holds it, and what waiting devices are told.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, HttpBody};
use device::protocol::message::{Blob, CheckIn, DeviceKey, Enrol, Request};
use ed25519_dalek::SigningKey;
use federated::protocol::{
    admission::Anybody,
    coordinator::Asking,
    desk::{Aggregation, Opening},
    limits::ParticipationLimits,
    pace::Pace,
    store::{AttemptAt, MemoryStore, Write},
    ticket::RoundKey,
    windows::Windows,
};
use hyper::body::Frame;
use privacy::{
    Adjacency, ClipNorm, Participation,
    encoding::{Encoding, VectorPlan},
};
use prost::Message;
use zeroize::Zeroizing;

use super::*;

const AT: AttemptAt = AttemptAt { task: TaskDigest([1; 32]), round: 0, attempt: 0 };
/// Coordinates of an update: a report is a chunk and a bit.
const DIMENSION: usize = CHUNK * 8 / 14 + 3;

fn encoding() -> Encoding {
    let clip = ClipNorm::new(1.0).unwrap();
    Encoding::new(VectorPlan::of_update(DIMENSION, 12), clip, None, Adjacency::ZeroOut).unwrap()
}

/// A hub that wants so many reports, with room for one; the tickets of two devices that were given the task; the bytes of a report.
#[allow(clippy::needless_update, reason = "a check-in may say more than how long it waits")]
fn with_room_for_one(goal: u64) -> (Hub, [Ticket; 2], Vec<u8>) {
    let limits = ParticipationLimits::try_from(&Participation::Once).unwrap();
    let opening = Opening {
        at: AT,
        step: 0,
        goal,
        limits,
        windows: Windows { select_ms: 0, report_ms: 60_000, answer_ms: 60_000, tick_ms: 1 },
        task: Blob { digest: AT.task.0.to_vec(), bytes: 1 },
        model: Blob { digest: vec![9; 32], bytes: 4 },
        terms: Vec::new(),
        key: RoundKey::new(Zeroizing::new([3; 32])),
        aggregation: Aggregation::Plain(encoding()),
    };
    let devices = [1, 2].map(|byte| DeviceKey([byte; 32]));
    let tickets = devices.map(|device| opening.key.ticket(&AT, &[9; 32], &device));
    let store = Arc::new(MemoryStore::new([7; 32]));
    store.commit(&devices.map(|device| Write::Enrol { device, day: 1 })).unwrap();
    let mut coordinator = Coordinator::new(store.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
    coordinator.add_task(AT.task, Asking { limits, goal, begin_with: 1, population: 9 }, None).unwrap();
    coordinator.open(opening, now_ms()).unwrap();
    for (request, device) in (1..).zip(devices) {
        let check_in = CheckIn { patience_ms: 30_000, ..CheckIn::default() };
        coordinator.said(request, device, &Wants::CheckIn(check_in), now_ms()).unwrap();
    }
    coordinator.tick(now_ms()).unwrap();
    assert_eq!(coordinator.flush().unwrap().len(), 2, "both are given it");
    let (hub, _thread) = Hub::start(coordinator, store, 1, Arc::default()).unwrap();
    (hub, tickets, vec![0; encoding().packing().bytes()])
}

/// Puts a chunk, as a device does that stays until it is answered.
fn puts(hub: &Hub, ticket: Ticket, offset: usize, chunk: &[u8]) -> tokio::task::JoinHandle<(Answer, Chunk)> {
    let (hub, mut chunk) = (hub.clone(), Chunk::from(Bytes::copy_from_slice(chunk)));
    tokio::spawn(async move { (hub.chunk(ticket, offset as u64, &mut chunk).await, chunk) })
}

/// Waits until something is so, for a few seconds at most.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}: not after ten seconds");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn received(answer: &Answer) -> Option<u64> {
    match &answer.says {
        Some(Says::Received(received)) => Some(received.offset),
        _ => None,
    }
}

/// A device hangs up when the last byte is sent. Its report lies in the inbox until the coordinator comes to it, and takes memory until then.
#[tokio::test]
#[allow(clippy::await_holding_lock, reason = "the coordinator is to be kept busy")]
async fn the_room_of_a_report_is_taken_for_as_long_as_it_lies_in_the_inbox() {
    let (hub, [mine, _], report) = with_room_for_one(2);
    let (first, rest) = report.split_at(CHUNK);
    assert_eq!(received(&puts(&hub, mine, 0, first).await.unwrap().0), Some(CHUNK as u64));
    let busy = hub.shared.core();
    let hangs_up = puts(&hub, mine, CHUNK, rest);
    tokio::time::sleep(Duration::from_millis(200)).await;
    hangs_up.abort();
    assert!(hangs_up.await.is_err(), "it is gone, and nobody has looked at its report");
    assert!(hub.uploads().used() > 0, "its memory was given to another");
    drop(busy);
    until("there is room when it was added", || hub.uploads().used() == 0).await;
    let again = puts(&hub, mine, 0, first).await.unwrap().0;
    assert_eq!(received(&again), Some(report.len() as u64), "it was added all the same");
    hub.stop();
}

/// Bytes of which it can be seen whether somebody still has them.
struct Taken(Vec<u8>, #[allow(dead_code, reason = "counted")] Arc<()>);

impl AsRef<[u8]> for Taken {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Attests nobody.
struct Nobody;

impl Attestation for Nobody {
    fn attests(&self, _: &DeviceKey, _: &[u8]) -> bool {
        false
    }
}

/// While a store hangs nothing is decided. What devices say lies in memory then, also of those who hang up: its room was given to the next one,
/// and so on without end.
#[tokio::test]
#[allow(clippy::await_holding_lock, reason = "the coordinator is to be kept busy")]
async fn the_room_of_what_is_said_is_taken_until_it_is_decided() {
    let (hub, ..) = with_room_for_one(2);
    for hub in [hub.clone(), hub.asking(Some(Arc::new(Nobody)))] {
        let request = Request { time_s: hub.time_s(), number: 1, wants: Some(Wants::Enrol(Enrol::default())) };
        let signed = request.sign(&SigningKey::from_bytes(&[9; 32]), &Realm([7; 32])).encode_to_vec();
        let taken = Arc::new(());
        let body = Bytes::from_owner(Taken(signed, Arc::clone(&taken)));
        let busy = hub.shared.core();
        let hangs_up = {
            let hub = hub.clone();
            tokio::spawn(async move { hub.say(body, None).await })
        };
        tokio::time::sleep(Duration::from_millis(100)).await;
        hangs_up.abort();
        assert!(hangs_up.await.is_err(), "it is gone, and nobody has decided anything");
        assert_eq!(Arc::strong_count(&taken), 2, "its memory was given to another");
        drop(busy);
        until("there is room when it was decided", || Arc::strong_count(&taken) == 1).await;
    }
}

/// A thread that panics during a decision leaves a coordinator of which nobody knows what it holds: it decides no more.
#[tokio::test]
async fn a_coordinator_in_which_somebody_panicked_decides_nothing_more() {
    let (hub, ..) = with_room_for_one(2);
    let mut driver = hub.driver();
    let panics = std::thread::spawn(move || {
        let bug =
            |_: &mut Coordinator, _| -> Result<(), CoordinatorError> { panic!("a bug that was put here for a test") };
        driver.with(bug)
    });
    assert!(panics.join().is_err());
    assert!(matches!(hub.driver().with(|_, _| Ok(())), Err(FleetError::Stopped)));
    assert!(hub.is_down() && !hub.is_well());
}

/// A device that waits for room while the attempt gets all that it needs is told so, and need not send for nothing.
#[tokio::test]
async fn who_waited_for_room_hears_that_it_is_late_before_any_of_it_is_read() {
    let (hub, [mine, theirs], report) = with_room_for_one(1);
    let (first, rest) = report.split_at(CHUNK);
    assert_eq!(received(&puts(&hub, mine, 0, first).await.unwrap().0), Some(CHUNK as u64));
    let waits = puts(&hub, theirs, 0, first);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(received(&puts(&hub, mine, CHUNK, rest).await.unwrap().0), Some(report.len() as u64));
    let (answer, chunk) = waits.await.unwrap();
    let late = matches!(&answer.says, Some(Says::Refused(refused)) if refused.reason == i32::from(Reason::Late));
    assert!(late, "{answer:?}");
    assert_eq!(format!("{chunk:?}"), "Chunk(0 bytes so far)");
    assert_eq!(hub.uploads().used(), 0);
    hub.stop();
}

/// What one device has sent is not kept when nobody will add it.
#[tokio::test]
async fn what_came_of_a_report_goes_when_its_attempt_is_over() {
    let (hub, [mine, theirs], report) = with_room_for_one(1);
    let (first, rest) = report.split_at(CHUNK);
    hub.uploads().widen(1 << 30);
    for ticket in [mine, theirs] {
        assert_eq!(received(&puts(&hub, ticket, 0, first).await.unwrap().0), Some(CHUNK as u64));
    }
    assert_eq!(received(&puts(&hub, mine, CHUNK, rest).await.unwrap().0), Some(report.len() as u64));
    until("half of a report is forgotten", || hub.uploads().used() == 0).await;
    hub.stop();
}

/// Half of a chunk, and nothing more.
struct Stalls(Option<Bytes>);

impl HttpBody for Stalls {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }
}

/// A chunk stalls, and meanwhile nobody wants its report any more: it is let go of then, and not when its device was slow for long enough.
#[tokio::test]
async fn a_report_that_nobody_wants_is_let_go_of_in_the_midst_of_a_chunk() {
    let (hub, [mine, theirs], report) = with_room_for_one(1);
    let (first, rest) = report.split_at(CHUNK);
    hub.uploads().widen(1 << 30);
    let stalls = {
        let (hub, half) = (hub.clone(), Bytes::copy_from_slice(&first[..CHUNK / 2]));
        tokio::spawn(async move { hub.chunk(theirs, 0, &mut Chunk::of(Body::new(Stalls(Some(half))))).await })
    };
    assert_eq!(received(&puts(&hub, mine, 0, first).await.unwrap().0), Some(CHUNK as u64));
    assert_eq!(received(&puts(&hub, mine, CHUNK, rest).await.unwrap().0), Some(report.len() as u64));
    let began = Instant::now();
    until("its room is free", || {
        // The coordinator looks around now and then, and here it has something to do.
        _ = hub.inbox.send(Job::Wake);
        hub.uploads().used() == 0
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(4), "after {:?}", began.elapsed());
    let answer = stalls.await.unwrap();
    assert!(matches!(answer.says, Some(Says::Wait(_))), "{answer:?}");
    hub.stop();
}

/// Somebody has room and sends nothing; a waiting request evicts it by itself.
#[tokio::test]
async fn who_waits_for_room_looks_whether_others_make_way() {
    let (hub, [mine, _], report) = with_room_for_one(2);
    let now = hub.now_ms();
    // It has had its room for nearly as long as it may be slow.
    let expected = Expected { device: DeviceKey([5; 32]), bytes: 1 << 20, encoding: None };
    assert!(hub.uploads().begin(Ticket([5; 32]), expected, now - 9_800).is_none());
    let began = Instant::now();
    assert_eq!(received(&puts(&hub, mine, 0, &report[..CHUNK]).await.unwrap().0), Some(CHUNK as u64));
    assert!(began.elapsed() < Duration::from_secs(2), "after {:?}", began.elapsed());
    hub.stop();
}
