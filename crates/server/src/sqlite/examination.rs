//! Looks at a server's database and at what stands beside its secrets, and changes nothing: also while a server runs.
//!
//! What is shown beside the secrets is read before what it must lie on, or read again: a server that writes meanwhile is then not taken for one
//! whose database was set back.

use std::{path::Path, sync::Arc};

use federated::home::{Records, heads::HeadsError};
use ledger::{Ledger, LedgerError};
use thiserror::Error;

use super::{
    DATABASE, DatabaseError, TaskHome,
    assignments::{Witness, realm_and_count},
    database::Database,
};

/// How often the count of assignments is read again while a server changes it.
const TRIES: usize = 5;

/// What is found of a database.
#[derive(Debug)]
pub struct Examined {
    /// Whether a server runs on it.
    pub is_served: bool,
    /// What SQLite says is damaged; nothing where all is well.
    pub damaged: Vec<String>,
    /// Devices that are enrolled.
    pub enrolled: u64,
    /// How often devices were assigned a task, if the count beside the secrets agrees.
    pub assignments: Result<u64, DatabaseError>,
    /// Bytes of the file with its log.
    pub bytes: u64,
    /// Its tasks, by name.
    pub tasks: Vec<(String, Result<TaskExamined, ExaminedError>)>,
}

/// What is found of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskExamined {
    /// Entries of its ledger, each chained to the one before it and signed; none where it is not begun.
    pub entries: u64,
    /// Heads that were shown, and lie on the ledger: that beside the secrets, and that of the model that devices are given.
    pub heads: usize,
    /// Releases of all streams.
    pub released: u64,
    /// Rounds, evaluations and everything else that is planned.
    pub planned: u64,
}

/// Why a task is not as it should be.
#[derive(Debug, Error)]
pub enum ExaminedError {
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The ledger.
    #[error(transparent)]
    Ledger(Box<LedgerError>),
    /// What was shown of the ledger.
    #[error(transparent)]
    Heads(Box<HeadsError>),
}

impl From<LedgerError> for ExaminedError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(Box::new(error))
    }
}

impl From<HeadsError> for ExaminedError {
    fn from(error: HeadsError) -> Self {
        Self::Heads(Box::new(error))
    }
}

/// Looks at the database in a folder of data, and at what stands of it beside the secrets.
///
/// # Errors
/// When there is none, it is of another program or version, or cannot be read at all.
pub fn examine(data: &Path, secrets: &Path) -> Result<Examined, DatabaseError> {
    let path = data.join(DATABASE);
    let is_served = path.is_file() && Database::is_served(&path).unwrap_or_default();
    let database = Arc::new(Database::read(&path)?);
    let damaged = database.look(|t| {
        let mut check = t.prepare("PRAGMA quick_check(20)")?;
        let lines: Vec<String> = check.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(lines.into_iter().filter(|line| line != "ok").collect())
    })?;
    let size = |suffix: &str| std::fs::metadata(data.join(format!("{DATABASE}{suffix}"))).map_or(0, |file| file.len());
    let tasks = TaskHome::names(&database)?.into_iter().map(|name| {
        let found = examine_task(&database, &name, secrets);
        (name, found)
    });
    Ok(Examined {
        is_served,
        damaged,
        enrolled: database.look(|t| Ok(t.query_row("SELECT enrolled FROM server", [], |row| row.get(0))?))?,
        assignments: assignments(&database, secrets),
        bytes: size("") + size("-wal"),
        tasks: tasks.collect(),
    })
}

fn assignments(database: &Database, secrets: &Path) -> Result<u64, DatabaseError> {
    let mut tries = 0;
    loop {
        let (realm, count) = database.look(realm_and_count)?;
        tries += 1;
        match Witness::of(secrets, &realm).check(count) {
            Err(DatabaseError::SetBack { .. }) if tries < TRIES => {}
            checked => return checked.map(|_| count),
        }
    }
}

fn examine_task(database: &Arc<Database>, name: &str, secrets: &Path) -> Result<TaskExamined, ExaminedError> {
    let home = TaskHome::read_with_witness(Arc::clone(database), name, secrets)?;
    if !home.is_begun()? {
        return Ok(TaskExamined { entries: 0, heads: 0, released: 0, planned: 0 });
    }
    let heads = home.shown_heads()?;
    let ledger = Ledger::open(home.read_store()?, None, &heads)?;
    let verified = ledger.verify(&heads, None)?;
    let released = ledger.releases().values().sum();
    let planned = ledger.plan().phases.iter().map(|phase| phase.rounds).sum();
    Ok(TaskExamined { entries: verified.entries, heads: heads.len(), released, planned })
}
