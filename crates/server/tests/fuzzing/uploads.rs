//! Chunks of a report at the hub, held against a plain account of what should become of them.

use std::sync::{Arc, LazyLock};

use axum::body::Bytes;

use device::{
    guard::TaskDigest,
    protocol::message::{Answer, Blob, CHUNK, CheckIn, DeviceKey, Reason, Received, Says, Ticket, Wants},
};
use federated::{
    fleet::network::Driver,
    protocol::{
        admission::Anybody,
        coordinator::{Asking, Coordinator},
        desk::{Aggregation, Closed, Opening},
        limits::ParticipationLimits,
        pace::Pace,
        store::{AttemptAt, MemoryStore, Store, Write},
        ticket::RoundKey,
        windows::Windows,
    },
};
use keyhush_server::{
    http::Service,
    hub::{Hub, now_ms},
};
use privacy::{
    Adjacency, ClipNorm, Participation,
    encoding::{Encoding, VectorPlan},
    stages::{Arriving, Encoded},
};
use tokio::runtime::Runtime;
use zeroize::Zeroizing;

use super::Front;

pub(super) const TASK: TaskDigest = TaskDigest([1; 32]);
pub(super) const AT: AttemptAt = AttemptAt { task: TASK, round: 0, attempt: 0 };
const DEVICE: DeviceKey = DeviceKey([5; 32]);
/// A report is a chunk and a bit.
const DIMENSION: usize = CHUNK * 8 / 14 + 3;
/// The most chunks of an input: each is a megabyte.
const MOST_CHUNKS: usize = 6;

pub(super) fn encoding(dimension: usize) -> Encoding {
    let clip = ClipNorm::new(1.0).unwrap();
    Encoding::new(VectorPlan::of_update(dimension, 12), clip, None, Adjacency::ZeroOut).unwrap()
}

pub(super) fn round_key() -> RoundKey {
    RoundKey::new(Zeroizing::new([3; 32]))
}

pub(super) fn limits() -> ParticipationLimits {
    ParticipationLimits::try_from(&Participation::Once).unwrap()
}

pub(super) fn opening(goal: u64, aggregation: Aggregation) -> Opening {
    Opening {
        at: AT,
        step: 0,
        goal,
        limits: limits(),
        windows: Windows { select_ms: 0, report_ms: 60_000, answer_ms: 60_000, tick_ms: 1 },
        task: Blob { digest: TASK.0.to_vec(), bytes: 1 },
        model: Blob { digest: vec![9; 32], bytes: 4 },
        terms: Vec::new(),
        key: round_key(),
        aggregation,
    }
}

/// A coordinator of one task that wants so many reports, and the devices that it knows.
pub(super) fn coordinator(goal: u64, devices: &[DeviceKey]) -> (Coordinator, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new([7; 32]));
    store.commit(&devices.iter().map(|device| Write::Enrol { device: *device, day: 1 }).collect::<Vec<_>>()).unwrap();
    let mut coordinator = Coordinator::new(store.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
    let asking = Asking { limits: limits(), goal, begin_with: 0, population: 100 };
    coordinator.add_task(TASK, asking, None).unwrap();
    (coordinator, store)
}

/// A chunk of an input: which place, how long, filled with what.
struct Piece {
    offset: u64,
    chunk: Vec<u8>,
}

impl Piece {
    /// The next one, of somebody who has sent so many bytes of this honest report.
    fn read(front: &mut Front<'_>, have: usize, honest: &[u8]) -> Option<Self> {
        let [how, fill] = front.take()?;
        let left = honest.len() - have.min(honest.len());
        let length = match how & 7 {
            0 => CHUNK,
            1 => CHUNK + 1,
            2 => CHUNK - 1,
            3 => usize::from(u16::from_le_bytes(front.take()?)),
            _ => left.min(CHUNK),
        };
        let offset = match how >> 6 {
            0 => have as u64,
            1 => 0,
            2 => CHUNK as u64,
            _ => u64::from_le_bytes(front.take()?),
        };
        // Most of it is honest; a few words of it are the fuzzer's.
        let mut chunk = vec![if how & 32 == 0 { 0 } else { fill }; length];
        if how & 32 == 0 {
            let from = honest.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
            chunk.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
        let own = usize::from(how >> 3 & 3) * 4;
        for (to, from) in chunk.iter_mut().zip(front.0.iter().take(own)) {
            *to = *from;
        }
        front.0 = &front.0[own.min(front.0.len())..];
        Some(Self { offset, chunk })
    }
}

/// What has arrived, by a plain account.
#[derive(Default)]
struct Account {
    arrived: Vec<u8>,
    is_added: bool,
    /// It broke a bound once: nothing more is taken of it.
    is_refused: bool,
}

impl Account {
    /// What is to be said of a chunk.
    fn take(&mut self, Piece { offset, chunk }: &Piece, encoding: &Encoding) -> Result<u64, Reason> {
        let whole = encoding.packing().bytes();
        if chunk.len() > CHUNK {
            return Err(Reason::TooLong);
        }
        if self.is_added {
            return Ok(whole as u64);
        }
        if self.is_refused {
            return Err(Reason::Late);
        }
        if *offset != self.arrived.len() as u64 {
            return Ok(self.arrived.len() as u64);
        }
        if chunk.len() != (whole - self.arrived.len()).min(CHUNK) {
            (self.arrived, self.is_refused) = (Vec::new(), true);
            return Err(Reason::OutOfBounds);
        }
        self.arrived.extend_from_slice(chunk);
        // Places that are not in their order show at once; how long the vector is shows at its end.
        if Arriving::new(encoding).take(&self.arrived).is_err() {
            (self.arrived, self.is_refused) = (Vec::new(), true);
            return Err(Reason::OutOfBounds);
        }
        if self.arrived.len() == whole {
            let arrived = std::mem::take(&mut self.arrived);
            self.is_added = Encoded::check(&arrived, encoding).is_ok();
            self.is_refused = !self.is_added;
            return if self.is_added { Ok(whole as u64) } else { Err(Reason::OutOfBounds) };
        }
        Ok(self.arrived.len() as u64)
    }
}

/// The encoding that a byte stands for: of all coordinates, or of a few of them with their places, or of as many as fill up to three chunks.
fn of_kind(kind: u8) -> Encoding {
    let whole = encoding(DIMENSION);
    match usize::from(kind) {
        0 => whole,
        few @ ..128 => whole.with_few(few).unwrap(),
        many => whole.with_few((many - 127) * (DIMENSION / 128)).unwrap(),
    }
}

/// What kind of report is expected, and chunks of one, in any order and of any length. It is taken where a whole report is in the sum.
pub(super) fn upload(bytes: &[u8]) -> bool {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    let Some(([kind], bytes)) = bytes.split_first_chunk() else { return false };
    let (encoding, runtime) = (&of_kind(*kind), &*RUNTIME);
    let honest = Encoded::of(vec![0; DIMENSION], encoding).unwrap().to_bytes();
    let (mut coordinator, store) = coordinator(1, &[DEVICE]);
    let now = now_ms();
    coordinator.open(opening(1, Aggregation::Plain(encoding.clone())), now).unwrap();
    coordinator.said(1, DEVICE, &Wants::CheckIn(CheckIn { patience_ms: 1, resting: Vec::new() }), now).unwrap();
    let answers = coordinator.flush().unwrap();
    let [(1, Answer { says: Some(Says::Assignment(assignment)) })] = &answers[..] else { panic!("{answers:?}") };
    let ticket = Ticket(assignment.ticket.clone().try_into().unwrap());
    let (hub, thread) = Hub::start(coordinator, store, 1 << 22, Arc::default()).unwrap();
    let (mut front, mut account) = (Front(bytes), Account::default());
    for _ in 0..MOST_CHUNKS {
        let Some(piece) = Piece::read(&mut front, account.arrived.len(), &honest) else { break };
        let expected = account.take(&piece, encoding);
        let answer = runtime.block_on(hub.chunk(ticket, piece.offset, &mut Bytes::from(piece.chunk).into()));
        match (expected, answer.says) {
            (Ok(expected), Some(Says::Received(Received { offset }))) => assert_eq!(offset, expected),
            (Err(reason), Some(Says::Refused(refused))) => assert_eq!(refused.reason, i32::from(reason)),
            (expected, said) => panic!("{expected:?} and {said:?}"),
        }
    }
    let closed = hub.driver().with(|coordinator, _| Ok(coordinator.take_closed(&TASK))).unwrap();
    hub.stop();
    thread.join().unwrap();
    let is_in = matches!(closed, Some(Closed::Sum(_, devices)) if devices == [DEVICE]);
    assert_eq!(is_in, account.is_added, "what was told is what happened");
    is_in
}
