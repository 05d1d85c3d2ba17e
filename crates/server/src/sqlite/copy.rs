//! Copies of the database, and how old one is by what stands beside the secrets.
//!
//! A copy is made while a server writes, with `VACUUM INTO`: one read transaction, in which the writer goes on. What was deleted is not in it,
//! also not in the space that is free. It has no key and no sum that is not sealed, as the database has none.
//!
//! An old copy is what rules P17 and P18 are about. So nothing here opens one for writing, or changes what stands beside the secrets: it only
//! asks the same questions as a server that starts.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use durable::{
    disk::{Disk, How, OsDisk},
    files::{failed, folder, sync_folder},
};
use ledger::{Head, LedgerError};

use super::{
    Database, DatabaseError, TaskHome,
    assignments::{ASSIGNMENTS, Witness, realm_and_count},
    task_home::HEAD,
};

/// How a database compares with the secrets of its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// How often devices were given tasks, by the database.
    pub assignments: u64,
    /// The same by the file beside the secrets; none where there is none, as before the first time.
    pub shown: Option<u64>,
    /// Its tasks, in order, and those that only the secrets know.
    pub tasks: Vec<ComparedTask>,
}

/// How the ledger of a task compares with the head beside its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedTask {
    /// The task's name.
    pub task: String,
    /// The head of its ledger in the database.
    pub have: Head,
    /// The head that was acknowledged last; none where there is none beside the secrets.
    pub acknowledged: Option<Head>,
    /// Why its ledger cannot go on with these secrets; none where it can.
    pub refused: Option<String>,
}

impl Compared {
    /// Whether a server would go on with all of its tasks: nobody who was given one is forgotten, and no release.
    #[must_use]
    pub fn is_newest(&self) -> bool {
        self.forgotten() == 0 && self.tasks.iter().all(|task| task.refused.is_none())
    }

    /// How many batches in which devices were given tasks the database has forgotten.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.shown.map_or(0, |shown| shown.saturating_sub(self.assignments))
    }
}

impl Database {
    /// Writes a copy of all that is durable now into a new file, for its owner alone; whole and on the disk when this returns.
    ///
    /// # Errors
    /// When there is such a file, or the disk or the database fails. A part of a copy may be left then.
    pub fn copy_into(&self, path: &Path) -> Result<(), DatabaseError> {
        // SQLite would make it for others to read.
        OsDisk.writer(path, How::New { private: true }).map_err(failed("make", path))?;
        let name = path.to_str().ok_or_else(|| DatabaseError::Refused("the path of a copy must be UTF-8".into()))?;
        self.look(|t| Ok(t.execute("VACUUM INTO ?1", [name])?))?;
        let synced = fs::File::open(path).and_then(|file| file.sync_all());
        synced.map_err(failed("sync", path))?;
        Ok(sync_folder(folder(path))?)
    }

    /// Refuses a database with a damaged page or a row that breaks its tables.
    ///
    /// # Errors
    /// What SQLite finds first.
    pub fn check_integrity(&self) -> Result<(), DatabaseError> {
        let found: String = self.look(|t| Ok(t.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?))?;
        let broken = self.look(|t| Ok(t.prepare("PRAGMA foreign_key_check")?.exists([])?))?;
        match (found.as_str(), broken) {
            ("ok", false) => Ok(()),
            ("ok", true) => Err(DatabaseError::Refused("a row refers to one that is missing".into())),
            (found, _) => Err(DatabaseError::Refused(found.to_owned())),
        }
    }

    /// The realm of the server, and how often devices were given tasks.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn realm_and_assignments(&self) -> Result<([u8; 32], u64), DatabaseError> {
        self.look(realm_and_count)
    }
}

/// Compares a database with the secrets of its server, as a server that starts does. Nothing is changed.
///
/// # Errors
/// When the secrets are of another server, damaged, or cannot be read.
pub fn compare(database: &Arc<Database>, secrets: &Path) -> Result<Compared, DatabaseError> {
    let (realm, assignments) = database.realm_and_assignments()?;
    let shown = Witness::of(secrets, &realm).shown()?;
    if shown.is_none() && assignments > 1 {
        return Err(DatabaseError::NoWitness { place: secrets.join(ASSIGNMENTS), count: assignments });
    }
    let mut names: BTreeSet<String> = TaskHome::names(database)?.into_iter().collect();
    names.extend(tasks_of(secrets)?);
    let tasks = names.into_iter().map(|name| compare_task(database, secrets, name)).collect::<Result<_, _>>()?;
    Ok(Compared { assignments, shown, tasks })
}

fn compare_task(database: &Arc<Database>, secrets: &Path, task: String) -> Result<ComparedTask, DatabaseError> {
    let witness = secrets.join(&task).join(HEAD);
    let home = match TaskHome::read(Arc::clone(database), &task) {
        Ok(home) => TaskHome { witness: Some(witness), ..home },
        // A task that was begun after the copy was made.
        Err(DatabaseError::NoTask { .. }) => {
            let refused = Some("it was begun later, and this copy does not have it".to_owned());
            return Ok(ComparedTask { task, have: Head::EMPTY, acknowledged: None, refused });
        }
        Err(error) => return Err(error),
    };
    let (have, acknowledged) = (home.head()?, home.witnessed()?);
    let refused = match home.refuse_rewound() {
        // One that nobody began, and that nobody knows to be more.
        Ok(()) | Err(LedgerError::Empty) => None,
        Err(error) => Some(error.to_string()),
    };
    Ok(ComparedTask { task, have, acknowledged, refused })
}

/// The tasks whose secrets have the head of a ledger.
fn tasks_of(secrets: &Path) -> Result<Vec<String>, DatabaseError> {
    let entries: Vec<PathBuf> = match fs::read_dir(secrets) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>(),
        Err(error) => Err(error),
    }
    .map_err(failed("read", secrets))?;
    let name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    Ok(entries.into_iter().filter(|path| path.join(HEAD).is_file()).filter_map(name).collect())
}
