//! Copies a ledger from elsewhere into a file: what a server keeps of a finished task.

use std::io::{self, BufWriter, Write};

use durable::files::{self, Replacement, beside};
use ledger::{LedgerError, LedgerStore};

use super::Place;

impl Place {
    /// Writes the ledger of another store here, in the place of what is here: who took part (for its owner alone), the head, and
    /// then the entries. Nothing can be appended to it: its keys stay where they are.
    ///
    /// # Errors
    /// When the store cannot be read or the disk fails.
    pub fn copy(&self, store: &impl LedgerStore) -> Result<(), LedgerError> {
        if let Some(records) = store.participations()? {
            self.copy_lines(".participations", true, records.map(|record| Ok(record?.line().to_owned())))?;
        }
        let head = store.head()?;
        let entries = store.read(0)?.take(usize::try_from(head.length).unwrap_or(usize::MAX));
        self.copy_lines(".head", false, std::iter::once(Ok(head.to_string())))?;
        self.copy_lines("", false, entries.map(|entry| Ok(entry?.line())))
    }

    fn copy_lines(
        &self,
        suffix: &str,
        private: bool,
        mut lines: impl Iterator<Item = Result<String, LedgerError>>,
    ) -> Result<(), LedgerError> {
        let path = beside(&self.ledger, suffix);
        let mut unread = None;
        let by = Replacement { new: &beside(&path, ".new"), private, time: None };
        let written = files::replace(&*self.disk, &path, by, |out| {
            let mut out = BufWriter::with_capacity(1 << 20, out);
            for line in &mut lines {
                match line {
                    Ok(line) => writeln!(out, "{line}")?,
                    Err(error) => {
                        unread = Some(error);
                        return Err(io::Error::other("the ledger cannot be read"));
                    }
                }
            }
            out.flush()
        });
        match unread {
            Some(error) => Err(error),
            None => written.map_err(|e| LedgerError::storage("cannot copy a ledger", e)),
        }
    }
}
