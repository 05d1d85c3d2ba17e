//! Storage for a guard: the trait, and a store in memory.

use thiserror::Error;

/// Keeps one run of bytes. A browser, a phone's key store or a file can be one.
pub trait Store {
    /// What was saved last, and is safe; none where nothing ever was. What cannot be read is an error, never none.
    ///
    /// # Errors
    /// When the store fails.
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError>;

    /// Replaces what is kept, at once: after a crash there is the old or the new. Returns when the new is safe from the loss of
    /// power; not before.
    ///
    /// # Errors
    /// When that is not certain.
    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError>;

    /// Whether so many bytes could be saved now. What is kept is not touched, whatever happens meanwhile. A store that cannot tell says that they could.
    ///
    /// # Errors
    /// When they could not.
    fn has_room(&mut self, bytes: u64) -> Result<(), StoreError> {
        let _ = bytes;
        Ok(())
    }
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        (**self).load()
    }

    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        (**self).save(bytes)
    }

    fn has_room(&mut self, bytes: u64) -> Result<(), StoreError> {
        (**self).has_room(bytes)
    }
}

/// Why a store failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// What it is kept on failed.
    #[error("cannot {doing} {place}: {problem}")]
    Failed {
        /// The operation that failed.
        doing: &'static str,
        /// The place that could not be accessed.
        place: String,
        /// Description of the failure.
        problem: String,
    },
    /// Another process has it.
    #[error("{place} is locked: another process of this device is using the guard; only one is allowed")]
    Locked {
        /// The lock.
        place: String,
    },
    /// Others than its owner can reach it.
    #[error("{place} has mode {mode:03o}, so other users can access it; make it 600 if nobody has changed it")]
    Loose {
        /// The file.
        place: String,
        /// Its mode.
        mode: u32,
    },
    /// The file is a link or has a second name.
    #[error(
        "{place} is a link or has more than one name, which would allow two guards; give the file itself, with a single name"
    )]
    Linked {
        /// The file.
        place: String,
    },
    /// It is not what this process left there.
    #[error("{place} was changed by another process since it was read; open the guard again")]
    Changed {
        /// The file.
        place: String,
    },
}

/// A store in memory, for simulations and tests: it forgets when the program ends, so no real device may use it.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    /// The stored bytes, if any.
    pub bytes: Option<Vec<u8>>,
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.bytes.clone())
    }

    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.bytes = Some(bytes.to_vec());
        Ok(())
    }
}
