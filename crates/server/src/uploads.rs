//! Reports on their way in: each in memory until it is whole, all of them together within a bound.
//!
//! Nothing of a report is written anywhere. One that stands still is forgotten, and its device begins anew.

use std::collections::HashMap;

use device::protocol::message::{Answer, CHUNK, Reason, Received, Says, Ticket, Wait};
use federated::protocol::coordinator::Expected;
use zeroize::Zeroize;

/// A report that does not go on for so long is forgotten, in milliseconds.
const STANDS_STILL_MS: u64 = 30_000;
/// When a device for whose report there is no room is to try again, in milliseconds.
const NO_ROOM_MS: u32 = 500;

/// A report that is whole.
pub(crate) struct Whole {
    pub(crate) expected: Expected,
    pub(crate) bytes: Vec<u8>,
}

/// What became of a chunk.
pub(crate) enum Taken {
    /// What the device is to hear: where it stands, or what is wrong.
    Part(Answer),
    /// The report is whole.
    Whole(Box<Whole>),
}

struct Upload {
    expected: Expected,
    /// None while what has arrived is being checked and added.
    bytes: Option<Vec<u8>>,
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
    pub(crate) fn begin(&mut self, ticket: Ticket, expected: Expected, now: u64) -> Result<(), Box<Answer>> {
        self.under_way.retain(|_, upload| now <= upload.touched + STANDS_STILL_MS);
        let used: usize = self.under_way.values().map(|upload| upload.expected.bytes).sum();
        // One is always taken, however large it is.
        if used > 0 && used + expected.bytes > self.room {
            return Err(Box::new(Answer::new(Says::Wait(Wait { after_ms: NO_ROOM_MS }))));
        }
        let bytes = Some(Vec::with_capacity(expected.bytes));
        self.under_way.insert(ticket, Upload { expected, bytes, touched: now });
        Ok(())
    }

    /// The next bytes of a report.
    pub(crate) fn take(&mut self, ticket: &Ticket, offset: u64, chunk: &[u8], now: u64) -> Taken {
        let wait = || Taken::Part(Answer::new(Says::Wait(Wait { after_ms: NO_ROOM_MS })));
        let Some(upload) = self.under_way.get_mut(ticket) else { return wait() };
        let Some(bytes) = &mut upload.bytes else { return wait() };
        let received = |offset: usize| Taken::Part(Answer::new(Says::Received(Received { offset: offset as u64 })));
        if offset != bytes.len() as u64 {
            return received(bytes.len());
        }
        let left = upload.expected.bytes - bytes.len();
        if chunk.len() != left.min(CHUNK) {
            self.under_way.remove(ticket);
            return Taken::Part(Answer::refused(
                Reason::OutOfBounds,
                "the chunk has another length than its place asks for",
                now / 1000,
                0,
            ));
        }
        bytes.extend_from_slice(chunk);
        upload.touched = now;
        if bytes.len() < upload.expected.bytes {
            return received(bytes.len());
        }
        let expected = upload.expected.clone();
        upload.bytes.take().map_or_else(wait, |bytes| Taken::Whole(Box::new(Whole { expected, bytes })))
    }

    /// A whole report was added, or refused.
    pub(crate) fn done(&mut self, ticket: &Ticket) {
        self.under_way.remove(ticket);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use device::protocol::message::DeviceKey;

    use super::*;

    const TICKET: Ticket = Ticket([1; 32]);

    fn expected(bytes: usize) -> Expected {
        Expected { device: DeviceKey([0; 32]), bytes, encoding: None }
    }

    fn offset(taken: Taken) -> Option<u64> {
        match taken {
            Taken::Part(Answer { says: Some(Says::Received(received)) }) => Some(received.offset),
            _ => None,
        }
    }

    #[test]
    fn a_report_goes_on_where_it_stood_and_is_whole_once() {
        let mut uploads = Uploads::new(1 << 24);
        uploads.begin(TICKET, expected(CHUNK + 3), 0).unwrap();
        assert_eq!(offset(uploads.take(&TICKET, 5, &[0; 3], 0)), Some(0), "a chunk of another place");
        assert_eq!(offset(uploads.take(&TICKET, 0, &[7; CHUNK], 0)), Some(CHUNK as u64));
        assert_eq!(offset(uploads.take(&TICKET, 0, &[7; CHUNK], 0)), Some(CHUNK as u64), "said again");
        let Taken::Whole(whole) = uploads.take(&TICKET, CHUNK as u64, &[8; 3], 0) else { panic!("not whole") };
        assert_eq!(whole.bytes.len(), CHUNK + 3);
        assert!(
            matches!(uploads.take(&TICKET, 0, &[7; CHUNK], 0), Taken::Part(_)),
            "while it is checked, nothing is taken"
        );
    }

    #[test]
    fn chunks_have_fixed_widths() {
        let mut uploads = Uploads::new(1 << 24);
        for wrong in [0, 1, CHUNK - 1] {
            uploads.begin(TICKET, expected(CHUNK + 3), 0).unwrap();
            let Taken::Part(answer) = uploads.take(&TICKET, 0, &vec![0; wrong], 0) else { panic!("taken") };
            assert!(matches!(answer.says, Some(Says::Refused(_))), "{wrong}");
            assert!(!uploads.is_under_way(&TICKET));
        }
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let mut uploads = Uploads::new(100);
        uploads.begin(TICKET, expected(80), 0).unwrap();
        let other = Ticket([2; 32]);
        assert!(uploads.begin(other, expected(30), 1_000).is_err(), "no room");
        assert!(uploads.begin(other, expected(20), 1_000).is_ok());
        // One that stands still is forgotten, whatever it waits for; a chunk of a wrong place does not keep it.
        _ = uploads.take(&TICKET, 9, &[1], 20_000);
        assert!(uploads.begin(Ticket([3; 32]), expected(80), STANDS_STILL_MS + 500).is_ok());
        assert!(!uploads.is_under_way(&TICKET));
    }
}
