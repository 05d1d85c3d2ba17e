//! Removes obsolete vectors in the background: a checkpoint makes a hundred of them obsolete at a time, and a round need not wait for the
//! disk. Nothing depends on when they are removed. Failures are reported at the next removal, and retried then.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
};

use durable::disk::Disk;
use ledger::LedgerError;

use crate::secrets::file::failed;

/// Vectors being removed in the background.
#[derive(Debug, Default)]
pub(super) struct Discarded {
    /// Vectors of entries below this one read as removed.
    below: u64,
    removing: Option<JoinHandle<Result<(), (PathBuf, io::Error)>>>,
}

impl Discarded {
    /// Whether the vector of an entry is gone, or about to be.
    pub(super) const fn has(&self, index: u64) -> bool {
        index < self.below
    }

    /// Removes what belongs to entries below this one; what was to be removed before is gone ([`Self::finish`]).
    pub(super) fn take(&mut self, disk: &Arc<dyn Disk>, below: u64, paths: Vec<PathBuf>) -> Result<(), LedgerError> {
        self.below = self.below.max(below);
        if paths.is_empty() {
            return Ok(());
        }
        let own = Arc::clone(disk);
        let remove = move || paths.into_iter().try_for_each(|path| own.remove(&path).map_err(|error| (path, error)));
        if disk.works_beside() {
            self.removing = Some(thread::spawn(remove));
            return Ok(());
        }
        remove().map_err(not_removed)
    }

    /// Waits until everything is gone.
    pub(super) fn finish(&mut self) -> Result<(), LedgerError> {
        let removed = self.removing.take().map_or(Ok(Ok(())), JoinHandle::join);
        removed.unwrap_or_else(|died| std::panic::resume_unwind(died)).map_err(not_removed)
    }
}

impl Drop for Discarded {
    /// Waits for removals to finish, so that the next reader finds a settled folder. What could not be removed does no harm, and is
    /// removed another time.
    fn drop(&mut self) {
        if let Some(removing) = self.removing.take() {
            drop(removing.join());
        }
    }
}

fn not_removed((path, error): (PathBuf, io::Error)) -> LedgerError {
    failed("remove", Path::new(&path))(error)
}
