//! The note beside a ledger whose end was lost, such as one from a backup: what is known of the entries that are missing.
//!
//! A ledger that lost its end is never continued, and never closed either: an entry behind the ones that are left would fork the chain that
//! others have seen (rule P17). It still says what everything costs that can have been released: the plan is in its first entry, and a
//! ledger that is not closed is counted with its whole plan ([`ledger::Basis::Plan`]), or with the whole budget of a filter. So a new run
//! may start from it, and counts all of that, whether it was released or not. A ledger without this note belongs to a run that can go on,
//! and is not imported before it is over.

use std::path::{Path, PathBuf};

use durable::files::{self, FileError};
use ledger::Head;
use serde::{Deserialize, Serialize};

/// The file beside the ledger.
pub const LOST_FILE: &str = "lost.json";

/// What is known of a ledger whose end was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// The head of the entries that are left.
    pub have: Head,
    /// The head that was acknowledged last, where it is known: it stands beside the secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Head>,
    /// How it came to that, in words.
    pub why: String,
}

impl Lost {
    /// How many entries are known to be missing; none where the last head is not known.
    #[must_use]
    pub fn entries(&self) -> Option<u64> {
        self.acknowledged.map(|head| head.length.saturating_sub(self.have.length))
    }

    /// Writes the note beside a ledger.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn write(&self, ledger: &Path) -> Result<(), FileError> {
        let path = place(ledger);
        let mut text = serde_json::to_string_pretty(self).map_err(|e| failed(&path, e.into()))?;
        text.push('\n');
        files::write(&path, text.as_bytes())
    }

    /// The note beside a ledger with this head; none where there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is about another ledger.
    pub fn beside(ledger: &Path, head: &Head) -> Result<Option<Self>, FileError> {
        let path = place(ledger);
        if !path.try_exists().map_err(files::failed("look at", &path))? {
            return Ok(None);
        }
        let lost: Self = serde_json::from_str(&files::read_text(&path)?).map_err(|e| failed(&path, e.into()))?;
        if lost.have == *head {
            return Ok(Some(lost));
        }
        let other = format!("it is about a ledger with the head {}, and this one has {head}", lost.have);
        Err(failed(&path, std::io::Error::other(other)))
    }
}

fn place(ledger: &Path) -> PathBuf {
    ledger.with_file_name(LOST_FILE)
}

fn failed(path: &Path, error: std::io::Error) -> FileError {
    files::failed("use", path)(error)
}

#[cfg(test)]
mod tests {
    use ledger::Digest;

    use super::*;

    #[test]
    fn p17_a_note_is_about_one_ledger_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger.jsonl");
        let head = |length, text: &[u8]| Head { length, hash: Digest::of_released(text) };
        let (have, other) = (head(5, b"a"), head(5, b"b"));
        assert_eq!(Lost::beside(&ledger, &have).unwrap(), None);
        let lost = Lost { have, acknowledged: Some(head(7, b"c")), why: "the disk".into() };
        lost.write(&ledger).unwrap();
        assert_eq!(Lost::beside(&ledger, &have).unwrap(), Some(lost.clone()));
        assert_eq!((lost.entries(), Lost { acknowledged: None, ..lost }.entries()), (Some(2), None));
        let wrong = Lost::beside(&ledger, &other).unwrap_err().to_string();
        assert!(wrong.contains("about a ledger with the head"), "{wrong}");
    }
}
