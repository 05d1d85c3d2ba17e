//! Why a database does not do what it should.

use std::path::PathBuf;

use durable::files::FileError;
use federated::{home::HomeError, protocol::store::StoreError};
use ledger::LedgerError;
use rusqlite::ErrorCode;
use thiserror::Error;

/// Why a database does not do what it should.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// Another server.
    #[error("{} is in use: another server writes this database, and there can be one only", place.display())]
    Locked {
        /// The lock.
        place: PathBuf,
    },
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Others can reach it.
    #[error("{} has the mode {mode:03o}, so others can reach it; it must be {wanted:03o}", place.display())]
    Loose {
        /// The file or folder.
        place: PathBuf,
        /// Its mode.
        mode: u32,
        /// What it must be.
        wanted: u32,
    },
    /// Under two names it would have two locks and two logs.
    #[error("{} is a link, or another link leads to it: a database has one name", place.display())]
    Linked {
        /// Which.
        place: PathBuf,
    },
    /// There is nothing to read.
    #[error("there is no database {}", place.display())]
    Missing {
        /// Where.
        place: PathBuf,
    },
    /// A database of another program.
    #[error("{} is a database, and none of keyhush", place.display())]
    Foreign {
        /// Which.
        place: PathBuf,
    },
    /// A database of another version.
    #[error("{} has version {found} of the tables, and this program knows {known}", place.display())]
    Version {
        /// Which.
        place: PathBuf,
        /// What it has.
        found: i64,
        /// What this program has.
        known: i64,
    },
    /// The file beside the secrets has seen more than this database.
    #[error(
        "the database was set back: {} says that devices were given tasks {shown} times, and it has {have}. It has forgotten who took part, so it cannot keep their limits: put the newest copy back",
        place.display()
    )]
    SetBack {
        /// The file.
        place: PathBuf,
        /// What it says.
        shown: u64,
        /// What the database has.
        have: u64,
    },
    /// The file beside the secrets is gone.
    #[error(
        "devices were given tasks {count} times, and {} is gone: whether the database was set back cannot be told. Put the secrets back that belong to it",
        place.display()
    )]
    NoWitness {
        /// The file.
        place: PathBuf,
        /// What the database has.
        count: u64,
    },
    /// The file beside the secrets is none.
    #[error("{} is damaged: it must hold a count and the realm of the server", place.display())]
    WitnessDamaged {
        /// The file.
        place: PathBuf,
    },
    /// The key of addresses is none.
    #[error("{} is damaged: it must hold 32 bytes. Remove it, and another is drawn: who enrolled from where in this hour is forgotten then", place.display())]
    PlacesDamaged {
        /// The file.
        place: PathBuf,
    },
    /// The secrets are those of another server.
    #[error("{} belongs to another database: these secrets are not those of this server", place.display())]
    OtherRealm {
        /// The file.
        place: PathBuf,
    },
    /// Somebody reads an old state of it.
    #[error("somebody reads an old state of {}: end that program, and start the server again", place.display())]
    Busy {
        /// Which.
        place: PathBuf,
    },
    /// No name of a task.
    #[error("{name:?} is no name of a task: letters, digits, '-', '_' and '.', not the first of them '.', at most 64")]
    Name {
        /// What was given.
        name: String,
    },
    /// The name of another task, but for its case.
    #[error(
        "{name:?} is the task {other:?} in another case: call its file {other}.toml to go on with it, or something else"
    )]
    OtherCase {
        /// What was given.
        name: String,
        /// What is there.
        other: String,
    },
    /// A task that nobody began.
    #[error("there is no task {name:?}")]
    NoTask {
        /// What was asked for.
        name: String,
    },
    /// The operating system has no randomness to give.
    #[error("the operating system gives no randomness")]
    Randomness(#[source] getrandom::Error),
    /// It would break an invariant; nothing of it was kept.
    #[error("refused, and nothing was kept: {0}")]
    Refused(String),
    /// The ledger would not be one any more, or is none; nothing was kept.
    #[error(transparent)]
    Ledger(Box<LedgerError>),
    /// It was opened for reading.
    #[error("this database was opened for reading")]
    ReadOnly,
    /// There is no room.
    #[error(
        "the disk is full: make room where the database lies, and start the server again. What was acknowledged is there"
    )]
    Full,
    /// SQLite failed.
    #[error("the database failed: {0}")]
    Sqlite(rusqlite::Error),
    /// An earlier write failed, so what is durable is not known.
    #[error("an earlier write to this database failed; open it again, which finds out what is durable")]
    Poisoned,
}

impl DatabaseError {
    /// Whether nothing was written, for sure: what was asked for was wrong, and the database is as it was.
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Ledger(_) | Self::OtherCase { .. })
    }

    /// SQLite failed: for want of room, of which it has two words, or otherwise.
    pub(super) fn failed(error: rusqlite::Error) -> Self {
        let is_full = |e: &rusqlite::ffi::Error| {
            e.code == ErrorCode::DiskFull || e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
        };
        if error.sqlite_error().is_some_and(is_full) { Self::Full } else { Self::Sqlite(error) }
    }

    /// Says in the words of a ledger what could not be done.
    pub(super) fn in_ledger(self, doing: &str) -> LedgerError {
        match self {
            Self::Ledger(error) => *error,
            Self::ReadOnly => LedgerError::ReadOnly,
            Self::Poisoned => LedgerError::Poisoned,
            other => LedgerError::storage(format!("cannot {doing}"), other),
        }
    }

    /// Says in the words of a home what could not be done.
    pub(super) fn in_home(self, doing: &str) -> HomeError {
        HomeError::Other { what: format!("cannot {doing}"), source: self.into() }
    }
}

/// A constraint that is not kept, or a number that SQLite has no room for, is a refusal. Anything else is a failure.
impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        match &error {
            rusqlite::Error::ToSqlConversionFailure(_) => Self::Refused(error.to_string()),
            _ if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => Self::Refused(error.to_string()),
            _ => Self::failed(error),
        }
    }
}

impl From<LedgerError> for DatabaseError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(Box::new(error))
    }
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Refused(why) => Self::Refused(why),
            DatabaseError::ReadOnly => Self::Refused(DatabaseError::ReadOnly.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
