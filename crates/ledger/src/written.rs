//! A release as the bytes stored for it.
//!
//! The digest of a long vector and making it durable take about as long, and neither needs the other: a caller with threads asks for
//! [`Written::digest`] on one while another is in [`Ledger::keep`](crate::Ledger::keep), and then records. The digest is computed
//! here and nowhere else, once, at the first request.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use privacy::{
    stages::Released,
    workers::{Undone, Workers},
};

use crate::{digest::Digest, store::Keeping};

/// A release that is about to be recorded. There is one of each, as of what it was made of.
#[must_use]
#[derive(Debug)]
pub struct Written {
    pub(crate) released: Released,
    pub(crate) bytes: Vec<u8>,
    digest: OnceLock<Digest>,
    /// When a store made it durable; 0 where none has.
    kept: AtomicU64,
}

impl Written {
    /// A release as bytes, which workers write.
    ///
    /// # Errors
    /// When they left something out.
    pub fn new(released: Released, workers: &dyn Workers) -> Result<Self, Undone> {
        let bytes = released.to_bytes_by(workers)?;
        Ok(Self { released, bytes, digest: OnceLock::new(), kept: AtomicU64::new(0) })
    }

    /// A store has made it durable, or does so with its entry.
    pub(crate) fn keep(&self, keeping: Option<Keeping>) {
        self.kept.store(keeping.map_or(0, |keeping| keeping.0), Ordering::Relaxed);
    }

    /// When a store made it durable.
    pub(crate) fn kept(&self) -> Option<Keeping> {
        Some(self.kept.load(Ordering::Relaxed)).filter(|kept| *kept > 0).map(Keeping)
    }

    /// The digest that its entry will have.
    pub fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| Digest::of_released(&self.bytes))
    }
}
