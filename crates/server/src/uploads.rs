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
    pub(crate) fn begin(&mut self, ticket: Ticket, expected: Expected, now: u64) -> Result<(), Answer> {
        let still = |upload: &Upload| upload.bytes.is_some() && now > upload.touched + STANDS_STILL_MS;
        self.under_way.retain(|_, upload| !still(upload));
        let used: usize = self.under_way.values().map(|upload| upload.expected.bytes).sum();
        // One is always taken, however large it is.
        if used > 0 && used + expected.bytes > self.room {
            return Err(Answer::new(Says::Wait(Wait { after_ms: NO_ROOM_MS })));
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
        upload.touched = now;
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
