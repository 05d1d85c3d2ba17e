//! What is done with arbitrary bytes: one target for everything that a server reads of others, or finds again of its own.
//!
//! Two programs run the targets: the test `fuzz`, on every input that is kept in `fuzz/corpus`, and the fuzzer in `fuzz/`, which makes
//! inputs up. A target panics where the library does, or breaks its word. Otherwise it says whether the bytes were taken: seeds that
//! should be taken, and are not, fuzz nothing.
#![allow(dead_code, reason = "the fuzzer makes no seeds")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

mod conversation;
mod found;
#[path = "../../../ledger/tests/ledger_story/mod.rs"]
mod ledger_story;
mod requests;
pub(crate) mod seeds;
mod uploads;

/// Takes arbitrary bytes, or refuses them.
pub(crate) type Target = fn(&[u8]) -> bool;

/// Every target by its name, which is that of its folder in `fuzz/corpus`.
pub(crate) const TARGETS: [(&str, Target); 9] = [
    ("serve_request", requests::request),
    ("serve_forwarded", requests::forwarded),
    ("serve_upload", uploads::upload),
    ("serve_conversation", conversation::conversation),
    ("serve_attempt", found::attempt),
    ("serve_database", found::database),
    ("serve_line", found::line),
    ("serve_secrets", found::secrets),
    ("serve_task", found::task),
];

/// The target of a name.
pub(crate) fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(own, _)| *own == name).map(|(_, target)| *target)
}

/// Bytes that are read from the front, as far as there are any.
pub(crate) struct Front<'a>(pub(crate) &'a [u8]);

impl<'a> Front<'a> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// A length in two bytes, and as many bytes, or all that are left.
    pub(crate) fn piece(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(u16::from_le_bytes(self.take()?)).min(self.0.len());
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(piece)
    }
}
