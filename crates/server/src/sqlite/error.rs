//! Database errors, and what to do about them.

use std::path::PathBuf;

use durable::files::FileError;
use federated::{home::HomeError, protocol::store::StoreError};
use ledger::LedgerError;
use rusqlite::ErrorCode;
use thiserror::Error;

use crate::state::StateError;

/// Why a database does not do what it should.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// Another server holds the database.
    #[error("{} is in use by another server; only one may write a database", place.display())]
    Locked {
        /// The lock.
        place: PathBuf,
    },
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Other users can access the file.
    #[error("{} has mode {mode:03o}, so other users can access it; it must be {wanted:03o}", place.display())]
    Loose {
        /// The file or folder.
        place: PathBuf,
        /// Its mode.
        mode: u32,
        /// The required mode.
        wanted: u32,
    },
    /// Under two names it would have two locks and two logs.
    #[error("{} is a link or has more than one name; a database must have a single name", place.display())]
    Linked {
        /// The path.
        place: PathBuf,
    },
    /// There is nothing to read.
    #[error("database {} does not exist", place.display())]
    Missing {
        /// The path.
        place: PathBuf,
    },
    /// A database of another program.
    #[error("{} is a database, but not one of keyhush", place.display())]
    Foreign {
        /// The path.
        place: PathBuf,
    },
    /// A database of another version.
    #[error("{} has schema version {found}, but this program supports {known}", place.display())]
    Version {
        /// The path.
        place: PathBuf,
        /// The version of the database.
        found: i64,
        /// The version this program supports.
        known: i64,
    },
    /// Keys would lie where back-ups are made.
    #[error(
        "{problem}; --data and --secrets must be two folders, neither inside the other, and the same ones each time"
    )]
    Folders {
        /// A description of the problem.
        problem: String,
    },
    /// The file beside the secrets has seen more than this database.
    #[error(
        "the database was rolled back: according to {}, devices were assigned tasks {shown} times, but the database has {have}. It no longer knows who took part, so it cannot enforce their limits. Restore the newest copy with keyhush restore; if there is no newer one, end its tasks with keyhush restore --salvage",
        place.display()
    )]
    SetBack {
        /// The file.
        place: PathBuf,
        /// The count stored with the secrets.
        shown: u64,
        /// The count in the database.
        have: u64,
    },
    /// The file beside the secrets is gone.
    #[error(
        "devices were assigned tasks {count} times, but {} is missing, so a rollback of the database could not be detected. Restore the secrets that belong to this database",
        place.display()
    )]
    NoWitness {
        /// The file.
        place: PathBuf,
        /// The count in the database.
        count: u64,
    },
    /// The file beside the secrets is none.
    #[error("{} is damaged: expected a count and the realm of the server", place.display())]
    WitnessDamaged {
        /// The file.
        place: PathBuf,
    },
    /// The key of addresses is none.
    #[error("{} is damaged: expected 32 bytes. Remove it, and a new one will be created; the record of enrolments per address in this hour is then lost", place.display())]
    PlacesDamaged {
        /// The file.
        place: PathBuf,
    },
    /// A server runs on the secrets.
    #[error(
        "a server runs on the secrets in {}; stop it first. Each server needs secrets of its own, and the keys of one that runs are not destroyed",
        place.display()
    )]
    SecretsInUse {
        /// The folder.
        place: PathBuf,
    },
    /// The secrets are those of another server.
    #[error("{} belongs to another database; these are not the secrets of this server", place.display())]
    OtherRealm {
        /// The file.
        place: PathBuf,
    },
    /// Somebody reads an old state of it.
    #[error("another program is reading an old state of {}; stop it, and start the server again", place.display())]
    Busy {
        /// The path.
        place: PathBuf,
    },
    /// Not a valid task name.
    #[error(
        "{name:?} is not a valid task name: use at most 64 letters, digits, '-', '_' and '.', and do not start with '.'"
    )]
    Name {
        /// The refused name.
        name: String,
    },
    /// The name of another task, but for its case.
    #[error(
        "{name:?} differs from the existing task {other:?} only in case; name its file {other}.toml to resume that task, or choose another name"
    )]
    OtherCase {
        /// The refused name.
        name: String,
        /// The existing task.
        other: String,
    },
    /// A task that nobody began.
    #[error("no task is called {name:?}")]
    NoTask {
        /// The requested name.
        name: String,
    },
    /// The operating system has no randomness to give.
    #[error("the operating system provided no randomness")]
    Randomness(#[source] getrandom::Error),
    /// It would break an invariant; nothing of it was kept.
    #[error("refused, and nothing was stored: {0}")]
    Refused(String),
    /// The ledger would not be one any more, or is none; nothing was kept.
    #[error(transparent)]
    Ledger(Box<LedgerError>),
    /// It was opened for reading.
    #[error("this database was opened for reading")]
    ReadOnly,
    /// There is no room.
    #[error("the disk is full: free space where the database is and restart; acknowledged data is safe")]
    Full,
    /// SQLite failed.
    #[error("the database failed: {0}")]
    Sqlite(rusqlite::Error),
    /// An earlier write failed, so what is durable is not known.
    #[error("an earlier write to this database failed; open it again to find out what was written")]
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

impl From<DatabaseError> for StateError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Name { .. } | DatabaseError::OtherCase { .. } => Self::Name(error.to_string()),
            DatabaseError::Refused(_) | DatabaseError::ReadOnly | DatabaseError::NoTask { .. } => {
                Self::Refused(error.to_string())
            }
            DatabaseError::Ledger(error) if matches!(*error, LedgerError::NotTheHead { .. }) => {
                Self::Refused(error.to_string())
            }
            other => Self::Failed(other.into()),
        }
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
