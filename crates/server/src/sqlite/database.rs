//! The database file: written by one server, readable by other processes of its owner.
//!
//! A commit is on the disk when it returns (a write-ahead log, synchronous FULL). One that fails may be there or not, so after it
//! nothing is read or written until the file is opened again. Opening finds out: what is in the log is synced and moved into the
//! file before anything is read, for what a killed server had written and not synced is there to be read, and a power cut
//! after an answer that speaks of it would take it back.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use durable::{
    disk::{Disk, How, Lock, OsDisk},
    files::{beside, failed, folder, sync_folder},
};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::{assignments::Witness, error::DatabaseError, schema};

/// Connections that read beside the one that writes.
const READERS: usize = 4;
/// How long emptying the log waits for who reads, while nobody can write.
const BRIEFLY: Duration = Duration::from_millis(250);
/// How often a server that starts tries to be the one server.
const LOOKS: usize = 10;

/// Everything that a server keeps, in one SQLite file.
pub struct Database {
    path: PathBuf,
    readers: Vec<Mutex<Connection>>,
    /// None where it was opened for reading. It goes after the readers: the last connection that is closed moves what is in the
    /// log into the file and removes the log, and those cannot.
    writer: Option<Mutex<Connection>>,
    next: AtomicUsize,
    /// A write failed: what is durable is not known until the file is opened again.
    failed: AtomicBool,
    /// It failed for want of room.
    full: AtomicBool,
    /// The runs whose ledger somebody writes.
    ledgers: Mutex<BTreeSet<i64>>,
    /// The count of assignments beside the secrets, where it is kept.
    witness: Option<Mutex<Witness>>,
    /// The lock of the one server. It is the last to go, after the connections.
    _lock: Option<Lock>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.path).finish()
    }
}

impl Database {
    /// Opens the database of a server, for its owner alone; makes it, and its folder, where there is none.
    ///
    /// # Errors
    /// Another server, a version that this program does not know, files that others can reach, or a disk that fails.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DatabaseError> {
        let path = path.into();
        let lock = lock(&path)?;
        make_file(&path)?;
        let mut writer = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let is_new = schema::is_empty(&writer, &path, true)?;
        schema::for_writing(&writer)?;
        if is_new {
            schema::create(&mut writer)?;
        } else {
            schema::upgrade(&mut writer)?;
        }
        settle(&writer, &path)?;
        Ok(Self { writer: Some(Mutex::new(writer)), _lock: Some(lock), ..Self::reading(path)? })
    }

    /// Opens a database for reading, also while a server writes it. Nothing is written to it.
    ///
    /// # Errors
    /// When there is none, or of a version that this program does not know.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self, DatabaseError> {
        let path = path.into();
        if !path.is_file() {
            return Err(DatabaseError::Missing { place: path });
        }
        Self::reading(path)
    }

    fn reading(path: PathBuf) -> Result<Self, DatabaseError> {
        let reader = || -> Result<Mutex<Connection>, DatabaseError> {
            let reader = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            match schema::is_empty(&reader, &path, false)? {
                true => Err(DatabaseError::Missing { place: path.clone() }),
                false => Ok(Mutex::new(reader)),
            }
        };
        let readers = (0..READERS).map(|_| reader()).collect::<Result<_, _>>()?;
        let (next, ledgers) = (AtomicUsize::new(0), Mutex::default());
        let (failed, full) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { path, writer: None, readers, next, failed, full, ledgers, witness: None, _lock: None })
    }

    /// Whether a server has a database open.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn is_served(path: &Path) -> Result<bool, DatabaseError> {
        let place = beside(path, ".lock");
        let looked = || match std::fs::File::open(&place)?.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(std::fs::TryLockError::WouldBlock) => Ok(true),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        };
        Ok(looked().map_err(failed("look at", &place))?)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it was opened for reading.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.writer.is_none()
    }

    /// What is durable now, to be read with one statement.
    pub(super) fn look<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        if self.failed.load(Ordering::SeqCst) {
            return Err(self.failure());
        }
        read(&self.reader())
    }

    /// The same with several statements, all of which see the same state.
    pub(super) fn look_at_once<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        self.look(|reader| read(&*reader.unchecked_transaction()?))
    }

    /// One transaction: all of it or nothing, durable when this returns. After a refusal the database is as it was; after
    /// anything else that goes wrong it must be opened again.
    pub(super) fn change<T>(
        &self,
        write: impl FnOnce(&Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let writer = self.writer.as_ref().ok_or(DatabaseError::ReadOnly)?;
        // A panic during a change has left an unchecked state.
        let mut writer = writer.lock().map_err(|_| self.poison(DatabaseError::Poisoned))?;
        if self.failed.load(Ordering::SeqCst) {
            return Err(self.failure());
        }
        let begun = writer.transaction_with_behavior(TransactionBehavior::Immediate);
        let all = begun.map_err(|e| self.poison(e.into()))?;
        match write(&all) {
            Ok(done) => all.commit().map(|()| done).map_err(|e| self.poison(DatabaseError::failed(e))),
            Err(refused) if refused.is_refusal() => {
                all.rollback().map_err(|e| self.poison(DatabaseError::failed(e)))?;
                Err(refused)
            }
            Err(error) => Err(self.poison(error)),
        }
    }

    pub(super) fn witnessed_by(self, witness: Witness) -> Self {
        Self { witness: Some(Mutex::new(witness)), ..self }
    }

    /// Makes the count of assignments durable beside the secrets. The transaction that it is of is durable already: where this fails, what
    /// it did must not be told, and the database is opened again.
    pub(super) fn witness_assignments(&self, count: u64) -> Result<(), DatabaseError> {
        let Some(witness) = &self.witness else { return Ok(()) };
        let mut witness = witness.lock().map_err(|_| self.poison(DatabaseError::Poisoned))?;
        witness.keep(count).map_err(|e| self.poison(e))
    }

    /// Moves everything that is in the log into the file, and empties the log: what was deleted is in neither then.
    ///
    /// # Errors
    /// When somebody reads for so long that it cannot be done now; nothing is lost then, and it can be tried again.
    pub fn empty_log(&self) -> Result<(), DatabaseError> {
        let writer = self.writer.as_ref().ok_or(DatabaseError::ReadOnly)?;
        let writer = writer.lock().map_err(|_| self.poison(DatabaseError::Poisoned))?;
        // Others write meanwhile: it is better tried again than waited for.
        writer.busy_timeout(BRIEFLY)?;
        let busy = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        writer.busy_timeout(schema::PATIENCE)?;
        if busy? { Err(DatabaseError::Busy { place: self.path.clone() }) } else { Ok(()) }
    }

    /// Why nothing is read or written any more.
    fn failure(&self) -> DatabaseError {
        if self.full.load(Ordering::SeqCst) { DatabaseError::Full } else { DatabaseError::Poisoned }
    }

    fn poison(&self, error: DatabaseError) -> DatabaseError {
        self.full.fetch_or(matches!(error, DatabaseError::Full), Ordering::SeqCst);
        self.failed.store(true, Ordering::SeqCst);
        error
    }

    /// A connection that nobody uses, or the next one that gets free.
    fn reader(&self) -> MutexGuard<'_, Connection> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.readers.len();
        let (after, before) = self.readers.split_at(first);
        for reader in before.iter().chain(after) {
            match reader.try_lock() {
                Ok(free) => return free,
                Err(TryLockError::Poisoned(free)) => return free.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.readers[first].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the ledger of a run for writing; whether nobody had it.
    pub(super) fn take_ledger(&self, run: i64) -> bool {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner).insert(run)
    }

    /// Releases the lock on a ledger.
    pub(super) fn give_ledger_back(&self, run: i64) {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
    }
}

/// The lock of the one server, in a folder for its owner alone.
fn lock(path: &Path) -> Result<Lock, DatabaseError> {
    let within = folder(path);
    if OsDisk.create_folder(within, true).map_err(failed("make", within))? {
        sync_folder(folder(within))?;
    }
    refuse_loose(within, 0o700)?;
    let place = beside(path, ".lock");
    // A check whether a server runs holds the lock for a moment.
    for _ in 0..LOOKS {
        if let Some(lock) = OsDisk.lock(&place).map_err(failed("lock", &place))? {
            return Ok(lock);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(DatabaseError::Locked { place })
}

/// Makes the file where there is none: SQLite would make it for others to read. Its log gets the mode that it has.
fn make_file(path: &Path) -> Result<(), DatabaseError> {
    if !OsDisk.has_one_name(path).map_err(failed("look at", path))? {
        return Err(DatabaseError::Linked { place: path.to_owned() });
    }
    if !path.exists() {
        OsDisk.writer(path, How::New { private: true }).map_err(failed("make", path))?;
        sync_folder(folder(path))?;
    }
    refuse_loose(path, 0o600)
}

fn refuse_loose(path: &Path, wanted: u32) -> Result<(), DatabaseError> {
    match OsDisk.mode(path).map_err(failed("look at", path))? {
        Some(mode) if mode & 0o077 != 0 => Err(DatabaseError::Loose { place: path.to_owned(), mode, wanted }),
        _ => Ok(()),
    }
}

fn connect(path: &Path, how: OpenFlags) -> Result<Connection, DatabaseError> {
    // Each connection is used by one thread at a time: a mutex of ours sees to it.
    let connection = Connection::open_with_flags(path, how | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    schema::for_reading(&connection)?;
    Ok(connection)
}

/// Moves what is in the log into the file, both synced: what can be read from here on is durable.
fn settle(writer: &Connection, path: &Path) -> Result<(), DatabaseError> {
    let busy: bool = writer.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| row.get(0))?;
    if busy { Err(DatabaseError::Busy { place: path.to_owned() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_on_the_disk_and_what_is_deleted_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path().join("data").join("keyhush.sqlite")).unwrap();
        let pragma = |name: &str| {
            let value = database
                .change(|t| Ok(t.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0))?));
            format!("{:?}", value.unwrap())
        };
        assert_eq!(pragma("journal_mode"), r#"Text("wal")"#);
        for (name, value) in [("synchronous", 2), ("foreign_keys", 1), ("secure_delete", 1), ("busy_timeout", 5000)] {
            assert_eq!(pragma(name), format!("Integer({value})"), "{name}");
        }
    }

    #[test]
    fn after_a_failure_or_a_panic_nothing_is_read_or_written() {
        for panics in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("data").join("keyhush.sqlite");
            let database = Database::open(&path).unwrap();
            let change = |t: &Connection| -> Result<(), DatabaseError> {
                t.execute("DELETE FROM server", [])?;
                assert!(!panics, "in the midst of it");
                Ok(t.execute_batch("SELECT * FROM nothing")?)
            };
            let change = std::panic::AssertUnwindSafe(|| database.change(change));
            assert!(!matches!(std::panic::catch_unwind(change), Ok(Ok(()))));
            assert!(matches!(database.change(|_| Ok(())), Err(DatabaseError::Poisoned)));
            assert!(matches!(database.look(|_| Ok(())), Err(DatabaseError::Poisoned)));
            drop(database);
            let rows = |t: &Connection| Ok(t.query_row("SELECT count(*) FROM server", [], |row| row.get::<_, i64>(0))?);
            assert_eq!(Database::open(&path).unwrap().look(rows).unwrap(), 1, "nothing of it was kept");
        }
    }

    #[test]
    fn after_a_refusal_it_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path().join("data").join("keyhush.sqlite")).unwrap();
        for sql in ["INSERT INTO server (id, realm) VALUES (1, zeroblob(32))", "UPDATE server SET realm = zeroblob(31)"]
        {
            let refused = database.change(|t| Ok(t.execute(sql, [])?));
            assert!(matches!(refused, Err(DatabaseError::Refused(_))), "{sql}: {refused:?}");
            database.change(|_| Ok(())).unwrap();
        }
        let too_large = database.change(|t| Ok(t.execute("UPDATE server SET enrolled = ?1", [u64::MAX])?));
        assert!(matches!(too_large, Err(DatabaseError::Refused(_))), "{too_large:?}");
        database.change(|_| Ok(())).unwrap();
    }
}
