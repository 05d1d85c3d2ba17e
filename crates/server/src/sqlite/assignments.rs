//! The count of assignments stored with the secrets: shows that a database was rolled back, also between two releases.
//!
//! Limits on participation are kept by what the database remembers of who was given a task. An old copy of it has forgotten some of
//! that, and between two releases it has the same head of the ledger. So the database counts the batches in which devices are given a
//! task, and the last count stands in `--secrets DIR/assignments` too, with the realm. The database is first: a crash in between leaves
//! the file one behind, which is nothing wrong; and no device is told of its task before both are durable. A count in the file that is
//! above the database's shows that the database was rolled back, and no task continues (rules P17 and P18).
//!
//! Other writes are not counted. Set back to before one of them nothing is forgotten that limits need: an enrolment that is
//! forgotten is made again and waits, a sum has fewer reports in it, an attempt that is not settled counts for everybody in it.

use std::path::{Path, PathBuf};

use durable::{
    disk::{Disk, OsDisk},
    files::{self, Replacement, beside, failed},
};
use federated::secrets::FileVault;
use rusqlite::Connection;

use super::{DatabaseError, database::Database};

/// The file in the folder of secrets.
pub(super) const ASSIGNMENTS: &str = "assignments";

/// What stands beside the secrets.
#[derive(Debug)]
pub(super) struct Witness {
    path: PathBuf,
    realm: String,
    /// The count that is in the file.
    last: u64,
}

impl Database {
    /// Has the count of assignments kept in the folder of secrets from now on, which is for its owner alone.
    ///
    /// # Errors
    /// When the count there says that this database was set back or is another, or is gone; or the disk fails.
    pub fn with_witness(self, secrets: &Path) -> Result<Self, DatabaseError> {
        FileVault::in_folder(secrets)?;
        let (realm, count) = self.look(realm_and_count)?;
        let mut witness = Witness::of(secrets, &realm);
        witness.last = witness.check(count)?;
        // What a crash left unsaid counts from here on.
        witness.keep(count)?;
        Ok(self.witnessed_by(witness))
    }
}

/// The realm, and the count of assignments.
pub(super) fn realm_and_count(t: &Connection) -> Result<([u8; 32], u64), DatabaseError> {
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(t.query_row("SELECT realm, assignments FROM server", [], row)?)
}

/// Devices are given a task in this transaction. Gives the count that includes it.
pub(super) fn count(t: &Connection) -> Result<u64, DatabaseError> {
    let mut add = t.prepare_cached("UPDATE server SET assignments = assignments + 1 RETURNING assignments")?;
    Ok(add.query_row([], |row| row.get(0))?)
}

impl Witness {
    /// That of a server in its folder of secrets, which is not looked at yet.
    pub(super) fn of(secrets: &Path, realm: &[u8; 32]) -> Self {
        Self { path: secrets.join(ASSIGNMENTS), realm: ledger::hex(realm), last: 0 }
    }

    /// The count in the file; 0 where there is none yet.
    ///
    /// # Errors
    /// When it says that the database was set back or is another, or is gone.
    pub(super) fn check(&self, count: u64) -> Result<u64, DatabaseError> {
        let place = || self.path.clone();
        match self.shown()? {
            // The first may be in the database, and the program ended before the file was there.
            None if count <= 1 => Ok(0),
            None => Err(DatabaseError::NoWitness { place: place(), count }),
            Some(shown) if shown > count => Err(DatabaseError::SetBack { place: place(), shown, have: count }),
            Some(shown) => Ok(shown),
        }
    }

    /// The count in the file of this server; none where there is no file.
    pub(super) fn shown(&self) -> Result<Option<u64>, DatabaseError> {
        let Some(bytes) = OsDisk.read(&self.path).map_err(failed("read", &self.path))? else { return Ok(None) };
        let text = String::from_utf8(bytes).ok();
        let said = text.as_deref().and_then(|text| text.strip_suffix('\n')).and_then(|line| line.split_once(' '));
        match said.and_then(|(count, realm)| Some((count.parse::<u64>().ok()?, realm))) {
            None => Err(DatabaseError::WitnessDamaged { place: self.path.clone() }),
            Some((_, realm)) if realm != self.realm => Err(DatabaseError::OtherRealm { place: self.path.clone() }),
            Some((shown, _)) => Ok(Some(shown)),
        }
    }

    /// Makes the count durable, where it is not.
    pub(super) fn keep(&mut self, count: u64) -> Result<(), DatabaseError> {
        if count <= self.last {
            return Ok(());
        }
        let by = Replacement { new: &beside(&self.path, ".new"), private: true, time: None };
        files::replace(&OsDisk, &self.path, by, |out| writeln!(out, "{count} {}", self.realm))?;
        self.last = count;
        Ok(())
    }
}
