//! The real coordinator behind the real routes: who may speak, about what and when, and what is refused, each time with a reason.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use device::{
    guard::TaskDigest,
    protocol::message::{
        Assignment, Blob, CHUNK, CLOCKS_APART_S, CheckIn, Enrol, Next, Realm, Reason, Received, Request, Says,
        SecureMessage, Signed, Unsupported, Wants,
    },
};
use ed25519_dalek::SigningKey;
use federated::{
    fleet::network::Driver,
    protocol::{
        admission::ByToken,
        coordinator::{Asking, Coordinator},
        desk::{Aggregation, Closed, Opening},
        limits::ParticipationLimits,
        pace::Pace,
        store::{AttemptAt, MemoryStore},
        ticket::RoundKey,
        windows::Windows,
    },
};
use keyhush_server::{
    http::{Limits, Transport},
    hub::{Hub, now_ms},
};
use privacy::{
    Adjacency, ClipNorm, MinSeparation, Participation,
    encoding::{Encoding, VectorPlan},
};
use prost::Message;
use tokio::io::AsyncWriteExt;
use zeroize::Zeroizing;

use crate::peers::{Reply, Running, head};

const REALM: Realm = Realm([9; 32]);
const TASK: TaskDigest = TaskDigest([1; 32]);
const TOKEN: &[u8] = b"a token that nobody guesses";
/// The bits of a coordinate, as the encoding has it.
const BITS: usize = 14;
/// Coordinates of an update: a report is a chunk and a bit.
const DIMENSION: usize = CHUNK * 8 / BITS + 3;

/// A server with an attempt that wants the reports of two devices.
struct Serving {
    hub: Hub,
    running: Running<Hub>,
    thread: std::thread::JoinHandle<()>,
}

impl Serving {
    async fn new() -> Self {
        Self::with_room(1 << 30).await
    }

    /// With so many bytes of memory for reports.
    async fn with_room(room: usize) -> Self {
        let store = Arc::new(MemoryStore::new(REALM.0));
        let pace = Pace { least_s: 0.0, ..Pace::default() };
        let admission = Box::new(ByToken::new(TOKEN.to_vec()));
        let mut coordinator = Coordinator::new(store.clone(), admission, pace, 1).unwrap();
        coordinator.add_task(TASK, Asking { limits: limits(), goal: 2, begin_with: 0, population: 100 }, None).unwrap();
        let (hub, thread) = Hub::start(coordinator, store, room, Arc::default()).unwrap();
        hub.driver().with(|coordinator, now| coordinator.open(opening(), now)).unwrap();
        let running = Running::of(hub.clone(), Transport::PlainOnLoopback, Limits::default()).await;
        Self { hub, running, thread }
    }

    /// What is said in bytes of anybody's making.
    async fn hears(&self, bytes: &[u8]) -> Reply {
        self.running.client().await.body("POST", "/v1/say", bytes).await
    }

    async fn says(&self, device: &SigningKey, wants: Wants) -> Reply {
        self.hears(&request(wants).sign(device, &REALM).encode_to_vec()).await
    }

    async fn puts(&self, ticket: &[u8], offset: usize, chunk: &[u8]) -> Reply {
        self.running.client().await.body("PUT", &path(ticket, offset), chunk).await
    }

    /// Two devices that were given the task.
    async fn assigned(&self) -> [(SigningKey, Assignment); 2] {
        let keys = [1, 2].map(|number| SigningKey::from_bytes(&[number; 32]));
        for key in &keys {
            let enrol = Wants::Enrol(Enrol { token: TOKEN.to_vec(), ..Enrol::default() });
            assert!(matches!(self.says(key, enrol).await.says(), Says::Enrolled(_)));
        }
        let check_in = || Wants::CheckIn(CheckIn { patience_ms: 10_000, resting: Vec::new() });
        let (one, two) = tokio::join!(self.says(&keys[0], check_in()), self.says(&keys[1], check_in()));
        let assignment = |reply: Reply| match reply.says() {
            Says::Assignment(assignment) => assignment,
            other => panic!("no assignment: {other:?}"),
        };
        let [first, second] = keys;
        [(first, assignment(one)), (second, assignment(two))]
    }

    /// A key that is known before anybody is given the task: one that came later would wait for the next round.
    async fn enrolled(&self, number: u8) -> SigningKey {
        let key = SigningKey::from_bytes(&[number; 32]);
        let enrol = Wants::Enrol(Enrol { token: TOKEN.to_vec(), ..Enrol::default() });
        assert!(matches!(self.says(&key, enrol).await.says(), Says::Enrolled(_)));
        key
    }

    /// A device that comes when one more is wanted.
    async fn one_more(&self, key: SigningKey) -> (SigningKey, Assignment) {
        match self.hears(&check_in_for(10_000).sign(&key, &REALM).encode_to_vec()).await.says() {
            Says::Assignment(assignment) => (key, assignment),
            other => panic!("no assignment: {other:?}"),
        }
    }

    /// What became of the attempt, and the server is stopped: nothing in it panicked.
    async fn stop(self) -> Option<Closed> {
        let closed = self.hub.driver().with(|coordinator, _| Ok(coordinator.take_closed(&TASK))).unwrap();
        assert_eq!(self.hub.failure(), None);
        self.running.stop().await;
        self.hub.stop();
        self.thread.join().expect("the coordinator does not panic");
        closed
    }
}

fn path(ticket: &[u8], offset: usize) -> String {
    format!("/v1/report/{}/{offset}", ledger::hex(ticket))
}

fn limits() -> ParticipationLimits {
    let separation = MinSeparation::rounds_between(0).unwrap();
    (&Participation::MinSeparation { separation, max_participations: 9 }).try_into().unwrap()
}

fn encoding() -> Encoding {
    let clip = ClipNorm::new(0.5).unwrap();
    Encoding::new(VectorPlan::of_update(DIMENSION, 12), clip, None, Adjacency::ZeroOut).unwrap()
}

fn opening() -> Opening {
    Opening {
        at: AttemptAt { task: TASK, round: 0, attempt: 0 },
        step: 0,
        goal: 2,
        limits: limits(),
        windows: Windows { select_ms: 300, report_ms: 60_000, answer_ms: 60_000, tick_ms: 1 },
        task: Blob { digest: TASK.0.to_vec(), bytes: 1 },
        model: Blob { digest: vec![2; 32], bytes: 4 },
        terms: Vec::new(),
        key: RoundKey::new(Zeroizing::new([3; 32])),
        aggregation: Aggregation::Plain(encoding()),
    }
}

/// A request like none before it: what is said again does not count.
fn request(wants: Wants) -> Request {
    static LAST: AtomicU64 = AtomicU64::new(0);
    Request { time_s: now_ms() / 1000, number: LAST.fetch_add(1, Ordering::Relaxed), wants: Some(wants) }
}

#[allow(clippy::needless_update, reason = "a check-in may say more than how long it waits")]
fn check_in_for(patience_ms: u32) -> Request {
    request(Wants::CheckIn(CheckIn { patience_ms, ..CheckIn::default() }))
}

fn check_in() -> Request {
    request(Wants::CheckIn(CheckIn { patience_ms: 0, resting: Vec::new() }))
}

#[track_caller]
fn refused(reply: &Reply, status: u16, reason: Reason, words: &str) {
    assert_eq!((reply.status, reply.refused()), (status, (reason, words.to_owned())));
}

#[tokio::test]
async fn a_signature_is_one_devices_for_one_message_and_one_server() {
    let server = Serving::new().await;
    let [key, other] = [1, 2].map(|number| SigningKey::from_bytes(&[number; 32]));
    let right = check_in().sign(&key, &REALM);
    let stranger = server.hears(&right.encode_to_vec()).await;
    refused(&stranger, 403, Reason::Stranger, "the device is not enrolled here; enrol it");
    let flipped = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    let next = |ticket: u8| request(Wants::Next(Next { ticket: vec![ticket; 32], patience_ms: 0 })).sign(&key, &REALM);
    let enrol = request(Wants::Enrol(Enrol { token: TOKEN.to_vec(), ..Enrol::default() })).sign(&key, &REALM);
    let forged = [
        ("another server's", check_in().sign(&key, &Realm([8; 32]))),
        ("nobody's", Signed { signature: flipped(&right.signature, 0), ..right.clone() }),
        ("with another half", Signed { signature: flipped(&right.signature, 63), ..right.clone() }),
        ("in another's name", Signed { device: other.verifying_key().to_bytes().to_vec(), ..right.clone() }),
        ("under what is said to be another's", Signed { device: flipped(&right.device, 5), ..right.clone() }),
        ("of another message", Signed { body: enrol.body.clone(), ..right.clone() }),
        ("of another part", Signed { body: next(2).body, ..next(1) }),
        ("of another time", Signed { body: Request { time_s: 1, ..check_in() }.encode_to_vec(), ..right.clone() }),
        ("too short", Signed { signature: right.signature[..63].to_vec(), ..right.clone() }),
        ("none", Signed { signature: Vec::new(), ..right.clone() }),
        ("of nobody", Signed { device: Vec::new(), ..right.clone() }),
        // A key of small order, under which one signature is good for many messages.
        ("of the key of everybody", Signed { device: [vec![1], vec![0; 31]].concat(), ..right.clone() }),
    ];
    for (what, forged) in forged {
        let reply = server.hears(&forged.encode_to_vec()).await;
        assert_eq!((reply.status, reply.refused().0), (401, Reason::Signature), "a signature {what}");
        assert_eq!(reply.refused().1, "the signature is not valid for this device and server", "{what}");
    }
    assert_eq!(server.hears(&enrol.encode_to_vec()).await.status, 200);
    assert!(server.stop().await.is_none());
}

#[tokio::test]
async fn a_clock_that_is_off_is_told_the_time() {
    let server = Serving::new().await;
    let key = SigningKey::from_bytes(&[1; 32]);
    let now = now_ms() / 1000;
    // A few seconds may pass while this runs.
    let slack = 20;
    let at = |time_s: u64| Request { time_s, ..check_in() }.sign(&key, &REALM).encode_to_vec();
    for time_s in [0, now - CLOCKS_APART_S - slack, now + CLOCKS_APART_S + slack, u64::MAX] {
        let reply = server.hears(&at(time_s)).await;
        refused(&reply, 401, Reason::Clock, "the clocks of device and server differ too much");
        let Says::Refused(said) = reply.says() else { unreachable!() };
        assert!(said.time_s.abs_diff(now) < slack, "the time to set it by: {said:?}");
    }
    for time_s in [now - CLOCKS_APART_S + slack, now, now + CLOCKS_APART_S - slack] {
        assert_eq!(server.hears(&at(time_s)).await.refused().0, Reason::Stranger, "{time_s} is near enough to {now}");
    }
    assert!(server.stop().await.is_none());
}

#[tokio::test]
async fn other_versions_and_what_is_no_message_are_refused() {
    let server = Serving::new().await;
    let key = SigningKey::from_bytes(&[1; 32]);
    let right = check_in().sign(&key, &REALM);
    for version in [0, 2, u32::MAX] {
        let reply = server.hears(&Signed { version, ..right.clone() }.encode_to_vec()).await;
        let spoken = Says::Unsupported(Unsupported { oldest: 1, newest: 1 });
        assert_eq!((reply.status, reply.says()), (400, spoken), "version {version}");
    }
    let wants_nothing = Request { wants: None, ..check_in() }.sign(&key, &REALM).encode_to_vec();
    refused(&server.hears(&wants_nothing).await, 400, Reason::Malformed, "the request is empty");
    let bombs = [
        // Groups in groups, as deep as a body goes: who reads them by calls runs out of stack.
        vec![0x0b; 1 << 20],
        // A field that says it has nearly 2^64 bytes.
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f".to_vec(),
        // A number without an end.
        vec![0xff; 1 << 20],
        // The same field again and again.
        [0x12, 0x00].repeat(1 << 19),
        right.encode_to_vec()[..40].to_vec(),
    ];
    for bomb in bombs {
        let reply = server.hears(&bomb).await;
        // A field that is there often is read, and has no version.
        let is_refused = match reply.says() {
            Says::Refused(said) => said.reason == i32::from(Reason::Malformed) && said.words == "not a valid request",
            says => says == Says::Unsupported(Unsupported { oldest: 1, newest: 1 }),
        };
        assert!(is_refused && reply.status == 400, "{:x?}: {reply:?}", &bomb[..10]);
    }
    // Signed properly, and no request inside.
    let mut nonsense = right;
    nonsense.body = vec![0x0b; 1000];
    let signature =
        ed25519_dalek::Signer::sign(&key, &[b"keyhush device request v1\0", &REALM.0[..], &nonsense.body].concat());
    nonsense.signature = signature.to_bytes().to_vec();
    refused(&server.hears(&nonsense.encode_to_vec()).await, 400, Reason::Malformed, "not a valid request");
    let wrong_token = Wants::Enrol(Enrol { token: vec![7; 1 << 19], ..Enrol::default() });
    assert_eq!(server.says(&key, wrong_token).await.refused().0, Reason::NotAdmitted);
    assert!(server.stop().await.is_none());
}

#[tokio::test]
async fn a_report_is_taken_once_whole_and_within_its_bounds() {
    let server = Serving::new().await;
    let mut others = Vec::new();
    for number in 3..9 {
        others.push(server.enrolled(number).await);
    }
    let [(one, mine), (two, theirs)] = server.assigned().await;
    let report = vec![0; encoding().packing().bytes()];
    assert_eq!(report.len(), (DIMENSION * BITS).div_ceil(8));
    let (first, rest) = report.split_at(CHUNK);

    // What is no ticket, and whose ticket it is.
    let reply = server.puts(&[5; 32], 0, first).await;
    refused(&reply, 410, Reason::Closed, "the attempt no longer exists");
    let next = |ticket: &[u8]| Wants::Next(Next { ticket: ticket.to_vec(), patience_ms: 0 });
    for ticket in [&theirs.ticket[..], &[5; 32], &[], &[5; 1000]] {
        assert_eq!(server.says(&one, next(ticket)).await.refused().0, Reason::Closed);
        let secure = Wants::Secure(SecureMessage { ticket: ticket.to_vec(), message: vec![1; 100] });
        assert_eq!(server.says(&one, secure).await.refused().0, Reason::Closed);
    }
    // A message of secure aggregation, where there is none.
    let secure = Wants::Secure(SecureMessage { ticket: mine.ticket.clone(), message: vec![1; 100] });
    assert_eq!(server.says(&one, secure).await.refused().0, Reason::Closed);

    // Chunks of other places than theirs.
    let received = |offset: usize| Says::Received(Received { offset: offset as u64 });
    for offset in [1, CHUNK, report.len(), usize::MAX] {
        assert_eq!(server.puts(&mine.ticket, offset, first).await.says(), received(0), "from {offset} on");
    }

    // Chunks of other lengths than their places have, and what is whole and beyond the norm that its encoding allows, somewhere or everywhere. Whoever
    // sends that is asked for nothing more, however often it tries, and another one is asked in its place.
    let beyond = |evil: &[u8]| [evil, &first[evil.len()..]].concat();
    let (length, bounds) =
        ("the chunk has the wrong length for its position", "the report exceeds the bounds of its encoding");
    let wrong = [
        (first[1..].to_vec(), None, length),
        (first[..1].to_vec(), None, length),
        (first.to_vec(), Some(first), length),
        (beyond(&[0xff, 0x1f]), Some(rest), bounds),
        (beyond(&[0, 0x20]), Some(rest), bounds),
        (beyond(&[0x7f; CHUNK]), Some(rest), bounds),
    ];
    for (key, (begins, ends, words)) in others.into_iter().zip(wrong) {
        let (key, given) = server.one_more(key).await;
        let mut reply = server.puts(&given.ticket, 0, &begins).await;
        if let Some(ends) = ends {
            assert_eq!(reply.says(), received(CHUNK));
            reply = server.puts(&given.ticket, CHUNK, ends).await;
        }
        refused(&reply, 422, Reason::OutOfBounds, words);
        assert_eq!(server.puts(&given.ticket, 0, first).await.refused().0, Reason::Late, "once is enough: {words}");
        assert_eq!(server.says(&key, next(&given.ticket)).await.refused().0, Reason::Late);
    }

    // What is right is taken, and known when it comes again.
    for _ in 0..2 {
        assert_eq!(server.puts(&mine.ticket, 0, first).await.status, 200);
        let reply = server.puts(&mine.ticket, CHUNK, rest).await;
        assert_eq!(reply.says(), received(report.len()));
    }
    assert!(matches!(server.says(&one, next(&mine.ticket)).await.says(), Says::Wait(_)), "one of two is there");
    assert_eq!(server.puts(&theirs.ticket, 0, first).await.says(), received(CHUNK));
    assert_eq!(server.puts(&theirs.ticket, CHUNK, rest).await.says(), received(report.len()));
    let mut keys = [one, two].map(|key| device::protocol::message::DeviceKey(key.verifying_key().to_bytes()));
    keys.sort_unstable();
    match server.stop().await {
        Some(Closed::Sum(_, devices)) => assert_eq!(devices, keys.to_vec()),
        other => panic!("there is no sum of two: {other:?}"),
    }
}

/// Whoever looks after a server was told that it is well while nobody answered devices any more.
#[tokio::test]
async fn a_server_without_its_coordinator_is_not_well() {
    let server = Serving::new().await;
    let health = async || {
        let reply = server.running.client().await.get("/healthz", "").await;
        (reply.status, String::from_utf8(reply.body.to_vec()).unwrap())
    };
    assert_eq!(health().await, (200, "ok\n".to_owned()));
    server.hub.stop();
    assert_eq!(health().await, (503, "down\n".to_owned()));
    server.running.stop().await;
    server.thread.join().unwrap();
}

/// There was room for 26 reports of a large model, and 64 devices sent: chunks of all of them were read, and most were sent away.
#[tokio::test]
async fn a_report_waits_for_room_in_its_socket_and_is_not_sent_away() {
    let report = vec![0; encoding().packing().bytes()];
    let (first, rest) = report.split_at(CHUNK);
    let received = |offset: usize| Says::Received(Received { offset: offset as u64 });
    let server = Serving::with_room(DIMENSION * 5).await;
    let [(_, mine), (_, theirs)] = server.assigned().await;
    assert_eq!(server.puts(&mine.ticket, 0, first).await.says(), received(CHUNK));
    // Half of a chunk, and the connection breaks.
    let mut client = server.running.client().await;
    let head = head("PUT", &path(&mine.ticket, CHUNK), "application/octet-stream", rest.len());
    client.stream.write_all(&[head.as_bytes(), &rest[1..]].concat()).await.unwrap();
    drop(client);
    let finishes = async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        server.puts(&mine.ticket, CHUNK, rest).await
    };
    let (waited, finished) = tokio::join!(server.puts(&theirs.ticket, 0, first), finishes);
    assert_eq!((waited.says(), finished.says()), (received(CHUNK), received(report.len())));
    assert_eq!(server.puts(&theirs.ticket, CHUNK, rest).await.says(), received(report.len()));
    assert!(matches!(server.stop().await, Some(Closed::Sum(_, devices)) if devices.len() == 2));
}
