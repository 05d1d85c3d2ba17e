//! All state of a server in one SQLite file and a folder of secrets.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use durable::{
    disk::{Disk, Lock, OsDisk},
    files::failed,
};
use federated::{
    protocol::{admission::PlaceKey, store::Store},
    secrets::FileVault,
};

use super::{DATABASE, Database, DatabaseError, TaskHome, place_key};
use crate::state::{State, StateError};

/// How long somebody may read one state of the database while it is to be erased, and how long to wait between two tries.
const READS_FOR: Duration = Duration::from_secs(600);
const BETWEEN: Duration = Duration::from_millis(250);

/// It, for a server or for readers.
#[derive(Debug)]
pub struct SqliteState {
    database: Arc<Database>,
    /// Where the secrets are; none where it was opened for reading.
    secrets: Option<PathBuf>,
    /// The lock of the one server of these secrets; it is the last to go.
    _lock: Option<Lock>,
}

/// The lock in a folder of secrets. No task is called so.
const LOCK: &str = ".lock";

impl SqliteState {
    /// Opens the state of a server in its folders of data and of secrets, begun where there is none.
    ///
    /// # Errors
    /// Another server, a database that was set back, folders that are not two or that others can reach, or a disk that fails.
    pub fn open(data: &Path, secrets: &Path) -> Result<Self, DatabaseError> {
        check_folders(data, secrets)?;
        let database = Database::open(data.join(DATABASE))?;
        let lock = lock_secrets(secrets)?;
        let database = Arc::new(database.with_witness(secrets)?);
        Ok(Self { database, secrets: Some(secrets.to_owned()), _lock: Some(lock) })
    }

    /// Opens the state in a folder of data for reading, also while a server runs on it.
    ///
    /// # Errors
    /// When there is none, or of a version that this program does not know.
    pub fn read(data: &Path) -> Result<Self, DatabaseError> {
        Ok(Self { database: Arc::new(Database::read(data.join(DATABASE))?), secrets: None, _lock: None })
    }

    fn secrets(&self) -> Result<&Path, DatabaseError> {
        self.secrets.as_deref().ok_or(DatabaseError::ReadOnly)
    }
}

impl State for SqliteState {
    type Task = TaskHome;

    fn coordinator(&self) -> Arc<dyn Store> {
        Arc::clone(&self.database) as Arc<dyn Store>
    }

    fn place_key(&self) -> Result<PlaceKey, StateError> {
        Ok(place_key(self.secrets()?)?)
    }

    fn names(&self) -> Result<Vec<String>, StateError> {
        Ok(TaskHome::names(&self.database)?)
    }

    fn task(&self, name: &str) -> Result<TaskHome, StateError> {
        Ok(TaskHome::open(Arc::clone(&self.database), name, self.secrets()?)?)
    }

    fn read_task(&self, name: &str) -> Result<TaskHome, StateError> {
        Ok(TaskHome::read(Arc::clone(&self.database), name)?)
    }

    fn erase(&self) -> Result<(), StateError> {
        let until = Instant::now() + READS_FOR;
        loop {
            match self.database.empty_log() {
                // A backup reads for as long as it takes to copy everything.
                Err(DatabaseError::Busy { .. }) if Instant::now() < until => std::thread::sleep(BETWEEN),
                done => return Ok(done?),
            }
        }
    }

    fn is_served(&self) -> Result<bool, StateError> {
        Ok(Database::is_served(self.database.path())?)
    }
}

/// Takes the lock of a folder of secrets, made where there is none: a server holds it while it runs, and who destroys keys holds it too. The
/// system takes it back when a process ends, however it does. What is only read, and what lies in files of its own, needs no lock.
///
/// # Errors
/// When somebody has it, others can reach the folder, or the disk fails.
pub fn lock_secrets(secrets: &Path) -> Result<Lock, DatabaseError> {
    FileVault::in_folder(secrets)?;
    let place = secrets.join(LOCK);
    let lock = OsDisk.lock(&place).map_err(failed("lock", &place))?;
    lock.ok_or_else(|| DatabaseError::SecretsInUse { place: secrets.to_owned() })
}

/// Refuses folders in which what is backed up and what must not be would lie together: one for both, one within the other, or the two
/// in each other's place, where a new server would begin. To be asked before anything is put there.
///
/// # Errors
/// What is wrong with them.
pub fn check_folders(data: &Path, secrets: &Path) -> Result<(), DatabaseError> {
    let refuse = |problem: String| Err(DatabaseError::Folders { problem });
    let (within, secret) = (resolved(data), resolved(secrets));
    if within.starts_with(&secret) || secret.starts_with(&within) {
        return refuse(format!("{} and {} are not two folders", data.display(), secrets.display()));
    }
    if TaskHome::has_secrets(data) {
        return refuse(format!("--data {} holds the secrets of a server", data.display()));
    }
    if secrets.join(DATABASE).exists() {
        return refuse(format!("--secrets {} holds the database of a server", secrets.display()));
    }
    Ok(())
}

/// A path without links, as far as it is there already.
#[must_use]
pub fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let Some((above, real)) = there else { return path };
    path.strip_prefix(above).map_or(real.clone(), |rest| real.join(rest))
}
