//! Storage of entries: the trait, and a store in memory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    chain::Chain,
    entry::{BegunAttempt, Entry},
    error::LedgerError,
    head::Head,
    participants::ParticipationRecord,
};

/// Data made durable together with an entry, before it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attached<'a> {
    /// The bytes of the released vector.
    pub released: Option<&'a [u8]>,
    /// When those very bytes were made durable before, if they were.
    pub kept: Option<Keeping>,
    /// Who took part, for the side file.
    pub participations: Option<&'a ParticipationRecord>,
}

/// One keeping of a vector ([`LedgerStore::keep_vector`]). No two of a process are the same: it says which bytes were kept, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping(pub(crate) u64);

impl Keeping {
    /// A new number, different from all earlier ones.
    #[must_use]
    pub fn another() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// Keeps the entries of one ledger.
///
/// The contract: what [`append`](Self::append) has acknowledged is there after any crash; damage is an error and never a
/// shorter list; after a crash there may be more than was acknowledged, and never less.
pub trait LedgerStore {
    /// Appends after `after`, and refuses if that is not the head. Returns when what is attached and then the entry are
    /// durable, and the new head after them; not before.
    ///
    /// # Errors
    /// When it is not known to be durable. After a failed write nothing is appended until the store is opened again.
    fn append(&mut self, after: &Head, entry: &Entry, attached: Attached<'_>) -> Result<Head, LedgerError>;

    /// Makes a vector durable, where nobody sees it, that the next entry, of this index, will be appended with: [`Self::append`]
    /// is given the same bytes with what this returns, and need not write them again where nothing else was kept since. A store that keeps both at
    /// once does nothing here.
    ///
    /// # Errors
    /// As [`Self::append`].
    fn keep_vector(&mut self, _index: u64, _bytes: &[u8]) -> Result<Option<Keeping>, LedgerError> {
        Ok(None)
    }

    /// The entries from an index on, in order. Damage is an error, never a shorter list.
    ///
    /// # Errors
    /// When they cannot be read at all.
    fn read(&self, from: u64) -> Result<Box<dyn Iterator<Item = Result<Entry, LedgerError>> + '_>, LedgerError>;

    /// The vector stored with an entry: what is used after a crash, instead of a second release. None if the entry has
    /// none, or if it was let go.
    ///
    /// # Errors
    /// When there is one and it cannot be read.
    fn released(&self, index: u64) -> Result<Option<Vec<u8>>, LedgerError>;

    /// Lets go of the vectors stored with entries below an index, once a checkpoint holds what came of them. The
    /// entries and their digests stay.
    ///
    /// # Errors
    /// When they cannot be removed.
    fn discard_released(&mut self, below: u64) -> Result<(), LedgerError>;

    /// The records of who took part, in order; none where the side file is not at hand.
    ///
    /// # Errors
    /// When they cannot be read at all.
    fn participations(&self) -> Result<Option<Participations<'_>>, LedgerError>;

    /// Notes that users are asked for an attempt, in the place of the one before. Durable when this returns.
    ///
    /// # Errors
    /// When it is not known to be durable; then nobody may be asked.
    fn begin_attempt(&mut self, begun: &BegunAttempt) -> Result<(), LedgerError>;

    /// The attempt that was begun last.
    ///
    /// # Errors
    /// When it cannot be read.
    fn begun_attempt(&self) -> Result<Option<BegunAttempt>, LedgerError>;

    /// Forgets the attempt that was begun last: the ledger is about to be closed.
    ///
    /// # Errors
    /// When it must be taken to be there still.
    fn forget_attempt(&mut self) -> Result<(), LedgerError>;

    /// The head that is durable now.
    ///
    /// # Errors
    /// When it cannot be read.
    fn head(&self) -> Result<Head, LedgerError>;

    /// What was noticed when it was opened and is no damage: a torn record that was dropped, a head that was missing.
    fn warnings(&self) -> &[String] {
        &[]
    }
}

/// The records of a side file, in order.
pub type Participations<'a> = Box<dyn Iterator<Item = Result<ParticipationRecord, LedgerError>> + 'a>;

/// A ledger that ends with the process; for tests, and for trying things out.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    entries: Vec<Entry>,
    released: Vec<Option<Vec<u8>>>,
    participations: Vec<ParticipationRecord>,
    begun: Option<BegunAttempt>,
    chain: Chain,
}

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl LedgerStore for MemoryStore {
    fn append(&mut self, after: &Head, entry: &Entry, attached: Attached<'_>) -> Result<Head, LedgerError> {
        check_follows(after, &self.chain.head())?;
        self.chain.accept(entry)?;
        self.entries.push(entry.clone());
        self.released.push(attached.released.map(<[u8]>::to_vec));
        self.participations.extend(attached.participations.cloned());
        Ok(self.chain.head())
    }

    fn read(&self, from: u64) -> Result<Box<dyn Iterator<Item = Result<Entry, LedgerError>> + '_>, LedgerError> {
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        Ok(Box::new(self.entries.iter().skip(skipped).cloned().map(Ok)))
    }

    fn released(&self, index: u64) -> Result<Option<Vec<u8>>, LedgerError> {
        Ok(usize::try_from(index).ok().and_then(|i| self.released.get(i)).cloned().flatten())
    }

    fn discard_released(&mut self, below: u64) -> Result<(), LedgerError> {
        let below = usize::try_from(below).unwrap_or(usize::MAX).min(self.released.len());
        self.released[..below].fill(None);
        Ok(())
    }

    fn participations(&self) -> Result<Option<Participations<'_>>, LedgerError> {
        Ok(Some(Box::new(self.participations.iter().cloned().map(Ok))))
    }

    fn begin_attempt(&mut self, begun: &BegunAttempt) -> Result<(), LedgerError> {
        self.begun = Some(begun.clone());
        Ok(())
    }

    fn begun_attempt(&self) -> Result<Option<BegunAttempt>, LedgerError> {
        Ok(self.begun.clone())
    }

    fn forget_attempt(&mut self) -> Result<(), LedgerError> {
        self.begun = None;
        Ok(())
    }

    fn head(&self) -> Result<Head, LedgerError> {
        Ok(self.chain.head())
    }
}

/// Refuses an entry that was made for another head: two writers, or a caller that did not reopen.
///
/// # Errors
/// Which head it was made for, and which there is.
pub fn check_follows(after: &Head, head: &Head) -> Result<(), LedgerError> {
    if after == head { Ok(()) } else { Err(LedgerError::NotTheHead { after: *after, head: *head }) }
}
