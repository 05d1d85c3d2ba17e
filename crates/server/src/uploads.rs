//! Incoming reports: each in memory until it is complete, all together within a limit.
//!
//! A report has its room before the first byte of it is read. Where there is none its device waits in its socket, in the order in which they came,
//! and is told to come back after a while. Bytes are unpacked and measured as they come, while nobody else can touch their report and everybody
//! can touch the others. Nothing of a report is written anywhere. One that stalls is dropped, and its device starts over.
//!
//! A device that has memory and sends slowly keeps others out, and a few that do so on purpose would keep out all. So while others wait a report must
//! come at [`LEAST_RATE`] after a grace of [`GRACE_MS`]; one that does not is forgotten, and gets room again when nobody else wants it.
//! Where nobody waits, a slow network is no fault.

use std::collections::{HashMap, HashSet, VecDeque};

use device::protocol::message::{Answer, CHUNK, Reason, Received, Says, Ticket, Wait};
use federated::protocol::coordinator::{Expected, Report};
use privacy::stages::{Arriving, SoFar, Spare};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

/// A report that does not continue for so long is forgotten, in milliseconds.
const STANDS_STILL_MS: u64 = 30_000;
/// Bytes per second at which a report comes at least, while others wait for room.
const LEAST_RATE: u64 = 64 << 10;
/// For how long it may come more slowly, in milliseconds.
const GRACE_MS: u64 = 10_000;
/// When a device for whose report there is no room is to try again, in milliseconds.
const NO_ROOM_MS: u32 = 500;
/// How often it is looked who makes way, in milliseconds.
const LOOK_MS: u64 = 250;
/// Slow devices that are remembered. Those of attempts that are over are among them, so one day all are forgotten.
const MOST_SLOW: usize = 1 << 16;

/// What has arrived of a report.
enum Arrived {
    /// Integers, unpacked.
    Plain(Box<Arriving>),
    /// A masked vector, as it is.
    Masked(Zeroizing<Vec<u8>>),
}

impl Arrived {
    fn bytes(&self) -> usize {
        match self {
            Self::Plain(arriving) => arriving.taken(),
            Self::Masked(bytes) => bytes.len(),
        }
    }
}

/// Where a chunk began.
enum Began {
    Plain(SoFar),
    Masked(usize),
}

/// A report that a chunk is for. Its holder is the only one.
pub(crate) struct Open {
    /// The report whose memory it uses.
    number: u64,
    arrived: Arrived,
    expected: usize,
    /// Where its chunk began in the report.
    began: Began,
    /// The bytes of its chunk that are to come.
    left: usize,
}

impl Open {
    /// Takes bytes of the chunk.
    ///
    /// # Errors
    /// When there are more of them than the chunk has, or they cannot be those of a report.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(Wrong::Length)?;
        match &mut self.arrived {
            Arrived::Plain(arriving) => arriving.take(bytes).map_err(|_| Wrong::Bounds),
            Arrived::Masked(so_far) => {
                so_far.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Whether all bytes of the chunk are there.
    pub(crate) const fn has_chunk(&self) -> bool {
        self.left == 0
    }

    /// Whether all of the report is there.
    pub(crate) fn is_whole(&self) -> bool {
        self.arrived.bytes() == self.expected
    }

    /// How many bytes of the report are there.
    pub(crate) fn bytes(&self) -> usize {
        self.arrived.bytes()
    }

    /// The number of its room.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The report, if it keeps its bounds.
    pub(crate) fn finish(self) -> Option<Report> {
        match self.arrived {
            Arrived::Plain(arriving) => arriving.finish().ok().map(Report::Plain),
            Arrived::Masked(mut bytes) => Some(Report::Masked(std::mem::take(&mut bytes))),
        }
    }

    /// A chunk that is not whole has not come; nor has the last one, where nobody made a report of it: its device is to send it again.
    fn settle(mut self) -> Arrived {
        if self.left > 0 || self.is_whole() {
            match (&mut self.arrived, &self.began) {
                (Arrived::Plain(arriving), Began::Plain(so_far)) => arriving.back_to(so_far),
                (Arrived::Masked(bytes), Began::Masked(length)) => bytes.truncate(*length),
                _ => {}
            }
        }
        self.arrived
    }
}

/// What is wrong with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It has another length than its place asks for.
    Length,
    /// Its bytes cannot be those of a report.
    Bounds,
}

impl Wrong {
    /// What the device is to hear.
    pub(crate) fn answer(self, now: u64) -> Box<Answer> {
        let words = match self {
            Self::Length => "the chunk has the wrong length for its position",
            Self::Bounds => "the report exceeds the bounds of its encoding",
        };
        Box::new(Answer::refused(Reason::OutOfBounds, words, now / 1000, 0))
    }
}

/// Why a chunk is not taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// This is what its device is to hear: where its report stands, or that it is to wait.
    Answer(Box<Answer>),
    /// It is none of a report in the room of this number.
    Wrong(Wrong, u64),
}

struct Upload {
    /// Of all that were ever given room: a ticket may be given room again while somebody still has what came before.
    number: u64,
    /// None while a chunk of it is taken, or the whole is checked and added.
    arrived: Option<Arrived>,
    expected: usize,
    /// The memory that it takes.
    room: usize,
    /// When it was given its room, and when it last made progress.
    began: u64,
    touched: u64,
    /// Bytes that are there, as far as was said.
    bytes: usize,
    /// Whether to drop it as soon as the current chunk is done.
    goes: bool,
}

impl Upload {
    /// Whether it comes too slowly for others to wait for it.
    fn is_slow(&self, now: u64) -> bool {
        let waited = now.saturating_sub(self.began + GRACE_MS);
        let least = waited.saturating_mul(LEAST_RATE) / 1000;
        (self.bytes as u64) < least.min(self.expected as u64)
    }
}

/// Somebody who waits for room. A device that hangs up meanwhile is not noticed: nothing is read of its connection. It keeps its place until the wait
/// is over, and is then given no room; or it is given room, and stands still in it.
struct Waits {
    ticket: Ticket,
    expected: Expected,
    /// Is told the number of the room.
    told: oneshot::Sender<u64>,
}

/// All reports that are on their way.
pub(crate) struct Uploads {
    room: usize,
    used: usize,
    under_way: HashMap<Ticket, Upload>,
    queue: VecDeque<Waits>,
    /// Who was too slow while others waited.
    slow: HashSet<Ticket>,
    /// Memory of reports that are over, for the next ones, within what is left of the room.
    spares: Vec<Spare>,
    /// When it was last looked who makes way.
    looked: u64,
    /// How many were given room.
    given: u64,
}

impl Uploads {
    /// With so many bytes of memory.
    pub(crate) fn new(room: usize) -> Self {
        let (under_way, queue, slow) = (HashMap::new(), VecDeque::new(), HashSet::new());
        Self { room, used: 0, under_way, queue, slow, spares: Vec::new(), looked: 0, given: 0 }
    }

    pub(crate) fn is_under_way(&self, ticket: &Ticket) -> bool {
        self.under_way.contains_key(ticket)
    }

    /// A report is to begin: nothing where it has its room, otherwise what says when it has.
    pub(crate) fn begin(&mut self, ticket: Ticket, expected: Expected, now: u64) -> Option<oneshot::Receiver<u64>> {
        if self.is_under_way(&ticket) {
            return None;
        }
        let (told, room) = oneshot::channel();
        // On however many connections a report comes, it has one place, and the latest request gets the answer.
        match self.queue.iter_mut().find(|waits| waits.ticket == ticket) {
            Some(waits) => waits.told = told,
            None => self.queue.push_back(Waits { ticket, expected, told }),
        }
        self.make_room(now);
        self.seat(now);
        if self.is_under_way(&ticket) { None } else { Some(room) }
    }

    /// Reports that stall are dropped, and those that are too slow while others wait; the next in the queue gets memory. Waiting requests call this now and
    /// then, and so does the coordinator: what one person sent lies here no longer than it must, whether or not anybody lacks the room.
    pub(crate) fn make_room(&mut self, now: u64) {
        if now < self.looked + LOOK_MS {
            return;
        }
        self.looked = now;
        self.queue.retain(|waits| !waits.told.is_closed());
        let still = |upload: &Upload| upload.arrived.is_some() && now > upload.touched + STANDS_STILL_MS;
        self.forget_those(|_, upload| still(upload));
        self.seat(now);
        if self.queue.iter().any(|waits| !self.slow.contains(&waits.ticket)) {
            let slow = self.forget_those(|_, upload| upload.is_slow(now));
            if self.slow.len() > MOST_SLOW {
                self.slow.clear();
            }
            self.slow.extend(slow);
            self.seat(now);
        }
        self.trim_spares();
    }

    /// Reports that nobody wants any more are forgotten: those of attempts that are over, and of devices whose time is.
    pub(crate) fn forget_unwanted(&mut self, is_wanted: impl Fn(&Ticket) -> bool, now: u64) {
        self.forget_those(|ticket, _| !is_wanted(ticket));
        self.seat(now);
        self.trim_spares();
    }

    /// Forgets reports; one that somebody takes a chunk of, when that is over.
    fn forget_those(&mut self, which: impl Fn(&Ticket, &Upload) -> bool) -> Vec<Ticket> {
        let all: Vec<Ticket> = self.under_way.iter().filter(|(t, u)| which(t, u)).map(|(t, _)| *t).collect();
        for ticket in &all {
            match self.under_way.get_mut(ticket) {
                Some(upload) if upload.arrived.is_none() => upload.goes = true,
                _ => self.remove(ticket),
            }
        }
        all
    }

    /// Gives memory to the next in the queue, as far as there is some: evicted slow reports come last.
    fn seat(&mut self, now: u64) {
        loop {
            let quick = self.queue.iter().position(|waits| !self.slow.contains(&waits.ticket));
            let Some(next) = quick.or_else(|| (!self.queue.is_empty()).then_some(0)) else { return };
            let room = room_of(&self.queue[next].expected);
            // One is always taken, however large it is.
            if self.used > 0 && self.used + room > self.room {
                return;
            }
            let Some(Waits { ticket, expected, told }) = self.queue.remove(next) else { return };
            // A client that asked in vain may be gone.
            if !told.is_closed() {
                // The requester checks by itself.
                _ = told.send(self.give_room(ticket, &expected, room, now));
            }
        }
    }

    fn give_room(&mut self, ticket: Ticket, expected: &Expected, room: usize, now: u64) -> u64 {
        self.used += room;
        self.given += 1;
        let number = self.given;
        let arrived = match &expected.encoding {
            Some(encoding) => Arrived::Plain(Box::new(match self.spares.pop().filter(|spare| spare.bytes() >= room) {
                Some(spare) => Arriving::within(encoding, spare),
                None => Arriving::new(encoding),
            })),
            None => Arrived::Masked(Zeroizing::new(Vec::with_capacity(expected.bytes))),
        };
        self.trim_spares();
        let expected = expected.bytes;
        let (began, touched, arrived) = (now, now, Some(arrived));
        let upload = Upload { number, arrived, expected, room, began, touched, bytes: 0, goes: false };
        self.under_way.insert(ticket, upload);
        number
    }

    /// Spare memory is kept while reports come, and within the room.
    fn trim_spares(&mut self) {
        let most = if self.under_way.is_empty() { 0 } else { self.room.saturating_sub(self.used) };
        let mut kept = 0;
        self.spares.retain(|spare| {
            kept += spare.bytes();
            kept <= most
        });
    }

    /// The report that a chunk is for, whose length may have been said. It is to be given back.
    ///
    /// # Errors
    /// What the device is to hear where the chunk is not taken, or what is wrong with it.
    pub(crate) fn open(
        &mut self,
        ticket: &Ticket,
        offset: u64,
        length: Option<usize>,
        now: u64,
    ) -> Result<Open, NotTaken> {
        let wait = || NotTaken::Answer(no_room());
        let upload = self.under_way.get_mut(ticket).ok_or_else(wait)?;
        let arrived = upload.arrived.as_ref().ok_or_else(wait)?;
        let (bytes, number) = (arrived.bytes(), upload.number);
        if offset != bytes as u64 {
            return Err(NotTaken::Answer(Box::new(received(bytes))));
        }
        let left = (upload.expected - bytes).min(CHUNK);
        if length.is_some_and(|length| length != left) {
            return Err(NotTaken::Wrong(Wrong::Length, number));
        }
        upload.touched = now;
        let began = match arrived {
            Arrived::Plain(arriving) => Began::Plain(arriving.so_far()),
            Arrived::Masked(bytes) => Began::Masked(bytes.len()),
        };
        let (arrived, expected) = (upload.arrived.take().ok_or_else(wait)?, upload.expected);
        Ok(Open { number, arrived, expected, began, left })
    }

    /// A chunk continues; whether its report is to continue.
    pub(crate) fn goes_on(&mut self, ticket: &Ticket, open: &Open, now: u64) -> bool {
        let Some(upload) = self.in_room(ticket, open.number) else { return false };
        if open.bytes() > upload.bytes {
            (upload.bytes, upload.touched) = (open.bytes(), now);
        }
        !upload.goes
    }

    /// A report of which a chunk has come, or has broken off: what its device is to hear.
    pub(crate) fn give_back(&mut self, ticket: &Ticket, open: Open, now: u64) -> Answer {
        let number = open.number;
        let arrived = open.settle();
        let bytes = arrived.bytes();
        match self.in_room(ticket, number) {
            Some(upload) if !upload.goes => {
                (upload.arrived, upload.bytes, upload.touched) = (Some(arrived), bytes, now);
                received(bytes)
            }
            _ => {
                drop(arrived);
                self.done(ticket, number, now);
                *no_room()
            }
        }
    }

    /// The report that has the room of this number, if it still has.
    fn in_room(&mut self, ticket: &Ticket, number: u64) -> Option<&mut Upload> {
        self.under_way.get_mut(ticket).filter(|upload| upload.number == number)
    }

    /// A report was refused, or is forgotten: there is room for another.
    pub(crate) fn done(&mut self, ticket: &Ticket, number: u64, now: u64) {
        if self.in_room(ticket, number).is_some() {
            self.remove(ticket);
        }
        self.seat(now);
        self.trim_spares();
    }

    /// A report was added, and its memory is there for the next one.
    pub(crate) fn added(&mut self, ticket: &Ticket, number: u64, spare: Option<Spare>, now: u64) {
        self.spares.extend(spare);
        self.done(ticket, number, now);
    }

    /// The memory that reports take, of how much.
    pub(crate) const fn memory(&self) -> (u64, u64) {
        (self.used as u64, self.room as u64)
    }

    /// The memory that reports take.
    #[cfg(test)]
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// From now on it has so many bytes of memory.
    #[cfg(test)]
    pub(crate) const fn widen(&mut self, room: usize) {
        self.room = room;
    }

    fn remove(&mut self, ticket: &Ticket) {
        if let Some(upload) = self.under_way.remove(ticket) {
            self.used -= upload.room;
        }
    }
}

/// The memory that a report takes.
fn room_of(expected: &Expected) -> usize {
    match &expected.encoding {
        // The last of them are unpacked as eight.
        Some(encoding) => (encoding.layout().len() + 8) * size_of::<i32>(),
        None => expected.bytes,
    }
}

/// There is no room.
pub(crate) fn no_room() -> Box<Answer> {
    Box::new(Answer::new(Says::Wait(Wait { after_ms: NO_ROOM_MS })))
}

fn received(offset: usize) -> Answer {
    Answer::new(Says::Received(Received { offset: offset as u64 }))
}

#[cfg(test)]
mod tests {
    use device::protocol::message::DeviceKey;
    use privacy::{
        Adjacency, ClipNorm,
        encoding::{Encoding, VectorPlan},
        stages::Encoded,
    };

    use super::*;

    const TICKET: Ticket = Ticket([1; 32]);

    fn expected(bytes: usize) -> Expected {
        Expected { device: DeviceKey([0; 32]), bytes, encoding: None }
    }

    fn ticket(number: u8) -> Ticket {
        Ticket([number; 32])
    }

    /// Whether a report has its room at once.
    fn begins(uploads: &mut Uploads, ticket: Ticket, bytes: usize, now: u64) -> bool {
        uploads.begin(ticket, expected(bytes), now).is_none()
    }

    /// The number of a report's room.
    fn number(uploads: &Uploads, ticket: &Ticket) -> u64 {
        uploads.under_way[ticket].number
    }

    /// What a device hears of a chunk; nothing where its report is whole.
    fn chunk(uploads: &mut Uploads, ticket: &Ticket, offset: u64, chunk: &[u8], now: u64) -> Option<Says> {
        match uploads.open(ticket, offset, Some(chunk.len()), now) {
            Err(NotTaken::Answer(answer)) => answer.says,
            Err(NotTaken::Wrong(wrong, number)) => {
                uploads.done(ticket, number, now);
                wrong.answer(now).says
            }
            Ok(mut open) => {
                open.take(chunk).unwrap();
                assert!(open.has_chunk());
                if open.is_whole() { None } else { uploads.give_back(ticket, open, now).says }
            }
        }
    }

    fn at(offset: usize) -> Option<Says> {
        received(offset).says
    }

    #[test]
    fn a_report_goes_on_where_it_stood_and_is_whole_once() {
        let mut uploads = Uploads::new(1 << 24);
        assert!(begins(&mut uploads, TICKET, CHUNK + 3, 0));
        let mut put = |offset: usize, bytes: &[u8]| chunk(&mut uploads, &TICKET, offset as u64, bytes, 0);
        assert_eq!(put(5, &[0; 3]), at(0), "a chunk of another place");
        assert_eq!(put(0, &[7; CHUNK]), at(CHUNK));
        assert_eq!(put(0, &[7; CHUNK]), at(CHUNK), "said again");
        let open = uploads.open(&TICKET, CHUNK as u64, Some(3), 0).unwrap();
        let mut put = |offset: usize, bytes: &[u8]| chunk(&mut uploads, &TICKET, offset as u64, bytes, 0);
        assert!(matches!(put(CHUNK, &[8; 3]), Some(Says::Wait(_))), "the same at once");
        assert_eq!(uploads.give_back(&TICKET, open, 0).says, at(CHUNK), "nothing of it came");
        let mut put = |offset: usize, bytes: &[u8]| chunk(&mut uploads, &TICKET, offset as u64, bytes, 0);
        assert_eq!(put(CHUNK, &[8; 3]), None, "whole");
        let again = put(0, &[7; CHUNK]);
        assert!(matches!(again, Some(Says::Wait(_))), "while it is checked, nothing is taken: {again:?}");
    }

    #[test]
    fn chunks_have_fixed_widths() {
        let mut uploads = Uploads::new(1 << 24);
        for wrong in [0, 1, CHUNK - 1] {
            assert!(begins(&mut uploads, TICKET, CHUNK + 3, 0));
            let said = chunk(&mut uploads, &TICKET, 0, &vec![0; wrong], 0);
            assert!(matches!(said, Some(Says::Refused(_))), "{wrong}: {said:?}");
            assert!(!uploads.is_under_way(&TICKET));
        }
        // Where it is not said how long a chunk is, no more of it is taken than its place has.
        assert!(begins(&mut uploads, TICKET, CHUNK + 3, 0));
        let mut open = uploads.open(&TICKET, 0, None, 0).unwrap();
        assert_eq!(open.take(&[0; CHUNK - 1]), Ok(()));
        assert!(!open.has_chunk());
        assert_eq!((open.take(&[0; 2]), open.bytes()), (Err(Wrong::Length), CHUNK - 1));
    }

    #[test]
    fn a_chunk_that_breaks_off_has_not_come() {
        let clip = ClipNorm::new(1.0).unwrap();
        let plan = VectorPlan::of_update(CHUNK, 12);
        let encoding = Encoding::new(plan, clip, None, Adjacency::ZeroOut).unwrap();
        let values: Vec<i32> = (0..CHUNK as i32).map(|v| v % 3 - 1).collect();
        let bytes = Encoded::of(values.clone(), &encoding).unwrap().to_bytes();
        let plain = || Expected { device: DeviceKey([0; 32]), bytes: bytes.len(), encoding: Some(encoding.clone()) };
        for expected in [plain(), expected(bytes.len())] {
            let mut uploads = Uploads::new(1 << 24);
            assert!(uploads.begin(TICKET, expected, 0).is_none());
            let mut offset = 0;
            while offset < bytes.len() {
                let chunk = &bytes[offset..(offset + CHUNK).min(bytes.len())];
                // Other bytes come first, and are cut.
                let mut open = uploads.open(&TICKET, offset as u64, None, 0).unwrap();
                open.take(&vec![0x55; chunk.len() / 2]).unwrap();
                assert_eq!(uploads.give_back(&TICKET, open, 0).says, at(offset));
                let mut open = uploads.open(&TICKET, offset as u64, Some(chunk.len()), 0).unwrap();
                chunk.chunks(7_001).for_each(|piece| open.take(piece).unwrap());
                offset += chunk.len();
                if open.is_whole() {
                    match open.finish().unwrap() {
                        Report::Plain(encoded) => assert_eq!(encoded.values(), values),
                        Report::Masked(masked) => assert!(masked == bytes, "the bytes as they came"),
                    }
                } else {
                    assert_eq!(uploads.give_back(&TICKET, open, 0).says, at(offset));
                }
            }
        }
    }

    /// The last chunk was there, and its device was gone before it ended: the report was taken for whole, and nobody made one of it.
    #[test]
    fn a_whole_report_that_nobody_took_lacks_its_last_chunk() {
        let clip = ClipNorm::new(1.0).unwrap();
        let encoding = Encoding::new(VectorPlan::of_update(CHUNK, 12), clip, None, Adjacency::ZeroOut).unwrap();
        let bytes = vec![0; encoding.packing().bytes()];
        let plain = Expected { device: DeviceKey([0; 32]), bytes: bytes.len(), encoding: Some(encoding) };
        for expected in [plain, expected(bytes.len())] {
            let mut uploads = Uploads::new(1 << 24);
            assert!(uploads.begin(TICKET, expected, 0).is_none());
            assert_eq!(chunk(&mut uploads, &TICKET, 0, &bytes[..CHUNK], 0), at(CHUNK));
            for _ in 0..2 {
                let mut open = uploads.open(&TICKET, CHUNK as u64, None, 0).unwrap();
                open.take(&bytes[CHUNK..]).unwrap();
                assert!(open.is_whole() && open.has_chunk());
                assert_eq!(uploads.give_back(&TICKET, open, 0).says, at(CHUNK), "it is to come again");
            }
            assert_eq!(chunk(&mut uploads, &TICKET, CHUNK as u64, &bytes[CHUNK..], 0), None, "and is whole then");
        }
    }

    /// A small chunk is measured and cut off; a large one in its place must not have the small one's size.
    #[test]
    fn what_comes_in_the_place_of_a_chunk_is_measured_by_itself() {
        let clip = ClipNorm::new(1.0).unwrap();
        let encoding = Encoding::new(VectorPlan::of_update(CHUNK, 12), clip, None, Adjacency::ZeroOut).unwrap();
        let bytes = encoding.packing().bytes();
        let plain = Expected { device: DeviceKey([0; 32]), bytes, encoding: Some(encoding) };
        let mut uploads = Uploads::new(1 << 24);
        assert!(uploads.begin(TICKET, plain, 0).is_none());
        let mut open = uploads.open(&TICKET, 0, None, 0).unwrap();
        open.take(&vec![0; CHUNK - 1]).unwrap();
        uploads.give_back(&TICKET, open, 0);
        // What was not there the first time is small: if the rest of it counts as it was measured then, all of it is within the norm.
        let mut large = [0x11; CHUNK];
        large[CHUNK - 16..].fill(0);
        assert_eq!(chunk(&mut uploads, &TICKET, 0, &large, 0), at(CHUNK));
        let mut open = uploads.open(&TICKET, CHUNK as u64, None, 0).unwrap();
        open.take(&vec![0; bytes - CHUNK]).unwrap();
        assert!(open.is_whole() && open.finish().is_none(), "it is beyond every norm");
    }

    #[test]
    fn a_report_has_one_place_on_however_many_connections_it_comes() {
        let mut uploads = Uploads::new(100);
        assert!(begins(&mut uploads, TICKET, 80, 0));
        let mut all: Vec<_> =
            (0..10).map(|_| uploads.begin(ticket(2), expected(80), 0).expect("there is no room")).collect();
        let mut behind = uploads.begin(ticket(3), expected(80), 0).expect("there is no room");
        assert_eq!(uploads.queue.len(), 2);
        uploads.done(&TICKET, number(&uploads, &TICKET), 1);
        let told = all.iter_mut().map(|room| usize::from(room.try_recv().is_ok())).sum::<usize>();
        assert!((told, uploads.used) == (1, 80) && behind.try_recv().is_err());
        uploads.done(&ticket(2), number(&uploads, &ticket(2)), 2);
        assert!(behind.try_recv().is_ok(), "who came after it is next");
    }

    /// What one person sent lies in memory no longer than it must, also where there is room for all.
    #[test]
    fn what_stands_still_or_is_not_wanted_is_forgotten_in_ample_room() {
        let mut uploads = Uploads::new(1 << 20);
        for number in 1..=3 {
            assert!(begins(&mut uploads, ticket(number), 1_000, 0));
        }
        let open = uploads.open(&ticket(2), 0, None, 0).unwrap();
        uploads.forget_unwanted(|ticket| *ticket == TICKET, 1_000);
        assert!(uploads.is_under_way(&TICKET) && !uploads.is_under_way(&ticket(3)));
        assert!(!uploads.goes_on(&ticket(2), &open, 1_000), "who is in the midst of it is told");
        uploads.give_back(&ticket(2), open, 1_000);
        assert_eq!(uploads.used, 1_000);
        assert!(begins(&mut uploads, ticket(4), 1_000, STANDS_STILL_MS + 1_000));
        assert!(!uploads.is_under_way(&TICKET), "it stood still, and nobody lacked room");
    }

    /// A ticket that was given room again, while somebody still has what came in the room before.
    #[test]
    fn a_report_gives_back_its_own_room_and_no_other() {
        let mut uploads = Uploads::new(1 << 20);
        assert!(begins(&mut uploads, TICKET, 1_000, 0));
        let before = uploads.open(&TICKET, 0, None, 0).unwrap();
        let old = before.number();
        uploads.done(&TICKET, old, 0);
        assert!(begins(&mut uploads, TICKET, 1_000, 0) && number(&uploads, &TICKET) != old);
        assert!(!uploads.goes_on(&TICKET, &before, 0));
        assert!(matches!(uploads.give_back(&TICKET, before, 0).says, Some(Says::Wait(_))));
        uploads.done(&TICKET, old, 0);
        uploads.added(&TICKET, old, None, 0);
        assert_eq!((uploads.used, chunk(&mut uploads, &TICKET, 5, &[0; 3], 0)), (1_000, at(0)), "it is as it was");
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let mut uploads = Uploads::new(100);
        assert!(begins(&mut uploads, TICKET, 80, 0));
        let mut waits = uploads.begin(ticket(2), expected(30), 1_000).expect("there is no room");
        assert!(uploads.begin(ticket(3), expected(20), 1_000).is_some(), "who comes later waits behind it");
        assert!(waits.try_recv().is_err());
        // One that stands still is forgotten, whatever it waits for; a chunk of a wrong place does not keep it.
        assert!(uploads.open(&TICKET, 9, Some(1), 9_000).is_err());
        uploads.make_room(STANDS_STILL_MS + 500);
        assert!(!uploads.is_under_way(&TICKET) && uploads.is_under_way(&ticket(2)));
        assert_eq!(waits.try_recv(), Ok(number(&uploads, &ticket(2))));
        // A client that disconnected gets none.
        assert!(!uploads.is_under_way(&ticket(3)));
        uploads.done(&ticket(2), number(&uploads, &ticket(2)), STANDS_STILL_MS + 600);
        assert!((uploads.used, uploads.queue.len()) == (0, 0) && uploads.under_way.is_empty());
        assert!(begins(&mut uploads, ticket(4), 1_000, 40_000), "one is always taken, however large");
    }

    #[test]
    fn nobody_who_sends_slowly_keeps_others_out() {
        let report = 7 * CHUNK;
        let mut uploads = Uploads::new(3 * report);
        // All room is taken by three that send a chunk every 29 seconds: none of them ever stands still.
        for number in 1..=3 {
            assert!(begins(&mut uploads, ticket(number), report, 0));
            assert_eq!(chunk(&mut uploads, &ticket(number), 0, &[0; CHUNK], 0), at(CHUNK));
        }
        uploads.make_room(28_000);
        assert!((1..=3).all(|number| uploads.is_under_way(&ticket(number))), "while nobody waits, slow is good enough");
        assert_eq!(chunk(&mut uploads, &ticket(1), CHUNK as u64, &[0; CHUNK], 28_500), at(2 * CHUNK));
        // One of them has a chunk on its way when somebody comes.
        let open = uploads.open(&ticket(3), CHUNK as u64, Some(CHUNK), 28_500).unwrap();
        assert!(begins(&mut uploads, ticket(9), report, 29_000), "who comes need not wait for them");
        assert!(!uploads.is_under_way(&ticket(2)), "the room was that of one of the slow");
        assert!(uploads.is_under_way(&ticket(1)), "this one keeps the least rate");
        assert!(!uploads.goes_on(&ticket(3), &open, 29_100), "and this one is told when it goes on");
        let said = uploads.give_back(&ticket(3), open, 29_100).says;
        assert!(matches!(said, Some(Says::Wait(_))) && !uploads.is_under_way(&ticket(3)), "{said:?}");
        // Those who were slow get room when nobody else wants it.
        assert!(begins(&mut uploads, ticket(10), report, 29_200));
        let mut slow = uploads.begin(ticket(2), expected(report), 29_300).expect("no room");
        let mut quick = uploads.begin(ticket(11), expected(report), 29_400).expect("no room");
        uploads.added(&ticket(9), number(&uploads, &ticket(9)), None, 29_500);
        assert!((quick.try_recv().is_ok(), slow.try_recv().is_err()) == (true, true), "the quick one first");
        uploads.added(&ticket(10), number(&uploads, &ticket(10)), None, 29_600);
        assert!(slow.try_recv().is_ok());
    }

    #[test]
    fn memory_is_used_again_while_reports_come_and_given_back_after() {
        let clip = ClipNorm::new(1.0).unwrap();
        let encoding = Encoding::new(VectorPlan::of_update(1_000, 12), clip, None, Adjacency::ZeroOut).unwrap();
        let bytes = encoding.packing().bytes();
        let expected = || Expected { device: DeviceKey([0; 32]), bytes, encoding: Some(encoding.clone()) };
        let mut uploads = Uploads::new(2 * room_of(&expected()));
        let [one, other, third] = [1, 2, 3].map(ticket);
        assert!(uploads.begin(one, expected(), 0).is_none() && uploads.begin(other, expected(), 0).is_none());
        let mut waits = uploads.begin(third, expected(), 0).expect("no room");
        let mut open = uploads.open(&one, 0, None, 0).unwrap();
        open.take(&vec![0; bytes]).unwrap();
        let Some(Report::Plain(encoded)) = open.finish() else { panic!("it is whole") };
        let at = encoded.values().as_ptr();
        uploads.added(&one, number(&uploads, &one), Some(encoded.wiped()), 0);
        assert!(waits.try_recv().is_ok());
        let mut open = uploads.open(&third, 0, None, 0).unwrap();
        open.take(&vec![0; bytes]).unwrap();
        let Some(Report::Plain(encoded)) = open.finish() else { panic!("it is whole") };
        assert_eq!(encoded.values().as_ptr(), at, "the same memory");
        uploads.added(&third, number(&uploads, &third), Some(encoded.wiped()), 0);
        assert_eq!(uploads.spares.len(), 1);
        uploads.done(&other, number(&uploads, &other), 0);
        assert!(uploads.spares.is_empty(), "nothing is under way");
    }
}
