//! A release recorded in a ledger: the last of the stages `Update -> Clipped -> Encoded -> Sum -> Released -> Recorded`.
//!
//! The optimizer takes nothing else, so a release is durable before it is used, and is paid for. There are two ways to one:
//! [`Ledger::record`](crate::Ledger::record), which consumes what a mechanism released, and
//! [`Ledger::restore`](crate::Ledger::restore), which after a crash finds what was recorded, with the digest that its signed entry
//! has (rule P13). It cannot be forged, nor can a release be used that was recorded and kept:
//!
//! ```compile_fail,E0451
//! use keyhush_ledger::Recorded;
//! use privacy::stages::Published;
//! fn forged(published: Published) -> Recorded {
//!     Recorded { published }
//! }
//! ```
//!
//! ```compile_fail,E0624
//! use keyhush_ledger::Recorded;
//! use privacy::stages::Published;
//! fn made(published: Published) -> Recorded {
//!     Recorded::new(published)
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use keyhush_ledger::{Attempt, Ledger, MemoryStore, Recorded};
//! use privacy::stages::Published;
//! fn not_released(ledger: &mut Ledger<MemoryStore>, published: Published, attempt: Attempt<'_>) -> Recorded {
//!     ledger.record(published, attempt).unwrap()
//! }
//! ```
//!
//! ```compile_fail,E0382
//! use keyhush_ledger::{Attempt, Ledger, MemoryStore};
//! use privacy::stages::Released;
//! fn kept(ledger: &mut Ledger<MemoryStore>, released: Released, attempt: Attempt<'_>) -> Released {
//!     let _recorded = ledger.record(released, attempt);
//!     released
//! }
//! ```

use std::ops::Deref;

use privacy::stages::Published;

use crate::head::Head;

/// A receipt for a recorded entry. Its holder may continue: the entry is durable.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The entry.
    pub entry: u64,
    /// The head after it, for checkpoints, models and statements.
    pub head: Head,
    /// Whether it was there before: the same step with the same content.
    pub repeated: bool,
}

/// A release that is durable in a ledger: what may be used. It reads as the [`Published`] that it is.
#[must_use]
#[derive(Debug, PartialEq)]
pub struct Recorded {
    published: Published,
}

impl Recorded {
    /// For the ledger alone, once the entry is durable.
    pub(crate) const fn new(published: Published) -> Self {
        Self { published }
    }
}

impl Deref for Recorded {
    type Target = Published;

    fn deref(&self) -> &Published {
        &self.published
    }
}
