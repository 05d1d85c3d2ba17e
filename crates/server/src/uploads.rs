//! Reports on their way in: each in memory until it is whole, all of them together within a bound.
//!
//! Chunks are unpacked as they come, each while nobody else can touch its report and everybody can touch the others. Nothing of a report is
//! written anywhere. One that stands still is forgotten, and its device begins anew.

use std::collections::HashMap;

use device::protocol::message::{Answer, CHUNK, Reason, Received, Says, Ticket, Wait};
use federated::protocol::coordinator::{Expected, Report};
use privacy::stages::Arriving;
use zeroize::Zeroizing;

/// A report that does not go on for so long is forgotten, in milliseconds.
const STANDS_STILL_MS: u64 = 30_000;
/// When a device for whose report there is no room is to try again, in milliseconds.
const NO_ROOM_MS: u32 = 500;

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

/// A report that a chunk is for. Whoever has it is the only one.
pub(crate) struct Open {
    arrived: Arrived,
    expected: usize,
}

impl Open {
    /// Takes the chunk; whether its bytes can be those of a report.
    pub(crate) fn take(&mut self, chunk: &[u8]) -> bool {
        match &mut self.arrived {
            Arrived::Plain(arriving) => arriving.take(chunk).is_ok(),
            Arrived::Masked(bytes) => {
                bytes.extend_from_slice(chunk);
                true
            }
        }
    }

    /// Whether all of it is there.
    pub(crate) fn is_whole(&self) -> bool {
        self.arrived.bytes() == self.expected
    }

    /// The report, if it keeps its bounds.
    pub(crate) fn finish(self) -> Option<Report> {
        match self.arrived {
            Arrived::Plain(arriving) => arriving.finish().ok().map(Report::Plain),
            Arrived::Masked(mut bytes) => Some(Report::Masked(std::mem::take(&mut bytes))),
        }
    }
}

struct Upload {
    /// None while a chunk of it is taken, or the whole is checked and added.
    open: Option<Open>,
    /// The memory that it takes.
    room: usize,
    touched: u64,
}

/// All reports that are on their way.
pub(crate) struct Uploads {
    room: usize,
    under_way: HashMap<Ticket, Upload>,
}

impl Uploads {
    /// With so many bytes of memory.
    pub(crate) fn new(room: usize) -> Self {
        Self { room, under_way: HashMap::new() }
    }

    pub(crate) fn is_under_way(&self, ticket: &Ticket) -> bool {
        self.under_way.contains_key(ticket)
    }

    /// A report begins.
    ///
    /// # Errors
    /// The answer, where there is no room.
    pub(crate) fn begin(&mut self, ticket: Ticket, expected: &Expected, now: u64) -> Result<(), Box<Answer>> {
        self.under_way.retain(|_, upload| now <= upload.touched + STANDS_STILL_MS);
        if self.under_way.contains_key(&ticket) {
            return Ok(());
        }
        let used: usize = self.under_way.values().map(|upload| upload.room).sum();
        let room = match &expected.encoding {
            Some(encoding) => encoding.layout().len() * size_of::<i32>(),
            None => expected.bytes,
        };
        // One is always taken, however large it is.
        if used > 0 && used + room > self.room {
            return Err(Box::new(Answer::new(Says::Wait(Wait { after_ms: NO_ROOM_MS }))));
        }
        let arrived = match &expected.encoding {
            Some(encoding) => Arrived::Plain(Box::new(Arriving::new(encoding))),
            None => Arrived::Masked(Zeroizing::new(Vec::with_capacity(expected.bytes))),
        };
        let open = Some(Open { arrived, expected: expected.bytes });
        self.under_way.insert(ticket, Upload { open, room, touched: now });
        Ok(())
    }

    /// The report that a chunk of so many bytes is for. It is to be given back.
    ///
    /// # Errors
    /// What the device is to hear where the chunk is not taken: where its report stands, or what is wrong.
    pub(crate) fn open(&mut self, ticket: &Ticket, offset: u64, length: usize, now: u64) -> Result<Open, Box<Answer>> {
        let wait = || Box::new(Answer::new(Says::Wait(Wait { after_ms: NO_ROOM_MS })));
        let upload = self.under_way.get_mut(ticket).ok_or_else(wait)?;
        let open = upload.open.as_ref().ok_or_else(wait)?;
        let arrived = open.arrived.bytes();
        if offset != arrived as u64 {
            return Err(Box::new(received(arrived)));
        }
        if length != (open.expected - arrived).min(CHUNK) {
            self.under_way.remove(ticket);
            let words = "the chunk has another length than its place asks for";
            return Err(Box::new(Answer::refused(Reason::OutOfBounds, words, now / 1000, 0)));
        }
        upload.touched = now;
        upload.open.take().ok_or_else(wait)
    }

    /// A report that goes on: what its device is to hear.
    pub(crate) fn give_back(&mut self, ticket: &Ticket, open: Open) -> Answer {
        let answer = received(open.arrived.bytes());
        if let Some(upload) = self.under_way.get_mut(ticket) {
            upload.open = Some(open);
        }
        answer
    }

    /// A whole report was added, or refused.
    pub(crate) fn done(&mut self, ticket: &Ticket) {
        self.under_way.remove(ticket);
    }
}

fn received(offset: usize) -> Answer {
    Answer::new(Says::Received(Received { offset: offset as u64 }))
}

#[cfg(test)]
mod tests {
    use device::protocol::message::DeviceKey;

    use super::*;

    const TICKET: Ticket = Ticket([1; 32]);

    fn expected(bytes: usize) -> Expected {
        Expected { device: DeviceKey([0; 32]), bytes, encoding: None }
    }

    /// What a device hears of a chunk; nothing where its report is whole.
    fn chunk(uploads: &mut Uploads, offset: u64, chunk: &[u8]) -> Option<Says> {
        match uploads.open(&TICKET, offset, chunk.len(), 0) {
            Err(answer) => answer.says,
            Ok(mut open) => {
                assert!(open.take(chunk));
                if open.is_whole() { None } else { uploads.give_back(&TICKET, open).says }
            }
        }
    }

    fn at(offset: usize) -> Option<Says> {
        received(offset).says
    }

    #[test]
    fn a_report_goes_on_where_it_stood_and_is_whole_once() {
        let mut uploads = Uploads::new(1 << 24);
        uploads.begin(TICKET, &expected(CHUNK + 3), 0).unwrap();
        assert_eq!(chunk(&mut uploads, 5, &[0; 3]), at(0), "a chunk of another place");
        assert_eq!(chunk(&mut uploads, 0, &[7; CHUNK]), at(CHUNK));
        assert_eq!(chunk(&mut uploads, 0, &[7; CHUNK]), at(CHUNK), "said again");
        let open = uploads.open(&TICKET, CHUNK as u64, 3, 0).unwrap();
        assert!(matches!(chunk(&mut uploads, CHUNK as u64, &[8; 3]), Some(Says::Wait(_))), "the same at once");
        _ = uploads.give_back(&TICKET, open);
        assert_eq!(chunk(&mut uploads, CHUNK as u64, &[8; 3]), None, "whole");
        let again = chunk(&mut uploads, 0, &[7; CHUNK]);
        assert!(matches!(again, Some(Says::Wait(_))), "while it is checked, nothing is taken: {again:?}");
    }

    #[test]
    fn chunks_have_fixed_widths() {
        let mut uploads = Uploads::new(1 << 24);
        for wrong in [0, 1, CHUNK - 1] {
            uploads.begin(TICKET, &expected(CHUNK + 3), 0).unwrap();
            let said = chunk(&mut uploads, 0, &vec![0; wrong]);
            assert!(matches!(said, Some(Says::Refused(_))), "{wrong}: {said:?}");
            assert!(!uploads.is_under_way(&TICKET));
        }
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let mut uploads = Uploads::new(100);
        uploads.begin(TICKET, &expected(80), 0).unwrap();
        let other = Ticket([2; 32]);
        assert!(uploads.begin(other, &expected(30), 1_000).is_err(), "no room");
        assert!(uploads.begin(other, &expected(20), 1_000).is_ok());
        // One that stands still is forgotten, whatever it waits for; a chunk of a wrong place does not keep it.
        assert!(uploads.open(&TICKET, 9, 1, 20_000).is_err());
        assert!(uploads.begin(Ticket([3; 32]), &expected(80), STANDS_STILL_MS + 500).is_ok());
        assert!(!uploads.is_under_way(&TICKET));
    }
}
