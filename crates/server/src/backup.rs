//! Copies of what a server keeps, made while it runs, and what can be done with them.
//!
//! A copy has the database: the ledgers, who took part as pseudonyms, the newest models, and what the server knows of its devices. It never has
//! a key. What it is good for follows from one rule: **a server goes on from the newest state of its database, or not at all** (rules P17 and
//! P18). An older one has forgotten who was given a task since, so that limits on participation would not hold, and which noise was drawn, so
//! that a step could be released twice. No copy can be known to be the newest by itself; the files beside the secrets know.
//!
//! | what was lost      | what the copy does                                                                                            |
//! |--------------------|---------------------------------------------------------------------------------------------------------------|
//! | data, not secrets  | if nothing happened since the copy was made, its tasks go on ([`Backup::restore`]). Otherwise see below             |
//! | data and secrets   | ledger, statement and model of every task are written out ([`Backup::salvage`]). The tasks never go on; a new task starts from such a model and counts the whole plan of the old ledger, so that whatever was released after the copy is paid for ([`federated::home::lost`]) |
//! | secrets, not data  | the same, from the data: a task without its keys cannot go on                                                  |
//!
//! Secrets have no copy, and need none: those of tasks must be destroyable, and a task never goes on from anything but its newest state. What
//! devices know a server by is another matter ([`keys`]).
//!
//! A copy lies where others may write. What its database says of a task that has begun is bound by what stands beside the secrets: the head
//! of its ledger, which has its plan, and the settings that it was begun with. Nothing binds the rest of the description, so of settings that
//! tasks were created with, those of begun tasks alone are restored; and who noted the description's SHA-256 elsewhere has all of it checked.

mod kept;
pub mod keys;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use durable::{
    disk::{Disk, Lock, OsDisk},
    files::{self, FileError, Replacement, beside, failed, sync_folder},
};
use federated::{
    home::{Records, lost::Lost},
    protocol::order::Order,
    run::{RunError, Salvaged},
    secrets::{FileVault, Secrets},
};
use ledger::{Head, Ledger, LedgerError, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

pub use self::kept::{Kept, remove_older};
use crate::{
    orders::Orders,
    sqlite::{Compared, DATABASE, Database, DatabaseError, TaskHome, check_folders, compare, lock_secrets, resolved},
    state::is_task_name,
};

/// The description of a copy, beside its database.
const MANIFEST: &str = "backup.json";
/// The folder of a server's data with the settings of tasks that were created on it.
const CREATED: &str = "tasks";
/// The version of the description.
const FORMAT: u32 = 1;

/// Why a copy was not made, or not used.
#[derive(Debug, Error)]
pub enum BackupError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A database: that of a server, or that of a copy.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A ledger.
    #[error("the ledger of {task}: {error}")]
    Ledger {
        /// The task's name.
        task: String,
        /// What is wrong with it.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What is left of a task cannot be written out.
    #[error("the task {task}: {error}")]
    Salvage {
        /// The task's name.
        task: String,
        /// The cause.
        error: Box<RunError>,
    },
    /// The folders do not fit each other.
    #[error("{problem}")]
    Folders {
        /// What is wrong, and what to do.
        problem: String,
    },
    /// No copy is there.
    #[error("{} is not a backup: {problem}; give a folder that keyhush backup made", place.display())]
    NoBackup {
        /// The folder.
        place: PathBuf,
        /// What is missing.
        problem: String,
    },
    /// It is not what was written.
    #[error("the backup {} is damaged: {problem}; use another one", place.display())]
    Damaged {
        /// The folder.
        place: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// It is not the one that was noted.
    #[error(
        "{} has the SHA-256 {found}, and not the one that was noted: somebody has changed it, or it is of another backup. Nothing of it was used; compare what you noted when it was made, or use another one",
        place.display()
    )]
    OtherDescription {
        /// The description.
        place: PathBuf,
        /// Its SHA-256, in hexadecimal digits.
        found: String,
    },
    /// Something happened after it was made.
    #[error(
        "this backup is older than the last state of its server, so its tasks cannot go on: {}. Devices would be asked more often than the plan allows, and noise could be drawn twice. Look for a newer backup. If there is none, write out what is left with keyhush restore BACKUP --salvage DIR --secrets SECRETS, and start new tasks from it, with new --data and --secrets folders",
        behind(.0)
    )]
    Older(Box<Compared>),
    /// Nothing happened after it was made.
    #[error(
        "nothing happened after this backup was made, so its tasks can go on: restore it with keyhush restore BACKUP --data DATA --secrets SECRETS"
    )]
    Newest,
}

impl BackupError {
    /// Whether a person can put it right in what they named.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Folders { .. }
                | Self::NoBackup { .. }
                | Self::Damaged { .. }
                | Self::OtherDescription { .. }
                | Self::Older(_)
                | Self::Newest
                | Self::Database(
                    DatabaseError::Folders { .. }
                        | DatabaseError::Missing { .. }
                        | DatabaseError::SecretsInUse { .. }
                        | DatabaseError::OtherRealm { .. }
                        | DatabaseError::NoWitness { .. }
                        | DatabaseError::WitnessDamaged { .. }
                        | DatabaseError::Foreign { .. }
                        | DatabaseError::Version { .. }
                )
        )
    }
}

/// What a copy is behind in, in words.
fn behind(compared: &Compared) -> String {
    let mut words = Vec::new();
    if compared.forgotten() > 0 {
        let (shown, have) = (compared.shown.unwrap_or_default(), compared.assignments);
        words.push(format!("devices were assigned tasks {shown} times, and it knows of {have}"));
    }
    for task in &compared.tasks {
        match (&task.refused, task.acknowledged) {
            (Some(_), Some(last)) if last.length > task.have.length => {
                words.push(format!("the ledger of {} has {} of {} entries", task.task, task.have.length, last.length));
            }
            (Some(refused), _) => words.push(format!("{}: {refused}", task.task)),
            (None, _) => {}
        }
    }
    words.join("; ")
}

/// The description of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: u32,
    /// The version of the program that made it.
    pub program: String,
    /// When it was made, in words that sort.
    pub made: String,
    /// The realm of the server, in hexadecimal digits.
    pub realm: String,
    /// How often devices had been given tasks.
    pub assignments: u64,
    /// The size of the database.
    pub bytes: u64,
    /// The SHA-256 of the database, in hexadecimal digits.
    pub sha256: String,
    /// The tasks in it, by name.
    pub tasks: Vec<CopiedTask>,
    /// The settings of tasks that were created on the server, and their approvals, by the names of their files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub created: BTreeMap<String, String>,
}

/// A task in a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopiedTask {
    /// The task's name.
    pub task: String,
    /// The head of its ledger.
    pub head: Head,
    /// Whether its ledger is closed.
    pub over: bool,
    /// What its operator wanted of it.
    pub wanted: Order,
}

/// A copy that was made.
#[derive(Debug)]
pub struct Made {
    /// Its description.
    pub manifest: Manifest,
    /// The SHA-256 of the file with the description, in hexadecimal digits. That has the SHA-256 of the database, so this one is of all of it.
    pub sha256: String,
}

/// A copy that was restored.
#[derive(Debug)]
pub struct Restored {
    /// How it compared with the secrets.
    pub compared: Compared,
    /// The files with settings and approvals that were not restored: of tasks that had not begun, for which nothing but the description speaks.
    pub left_out: Vec<String>,
}

/// A copy that was found whole.
#[derive(Debug)]
pub struct Backup {
    folder: PathBuf,
    manifest: Manifest,
    database: Arc<Database>,
}

/// A task that was written out.
#[derive(Debug)]
pub struct SalvagedTask {
    /// The task's name.
    pub task: String,
    /// The folder with its ledger, statement and model.
    pub folder: PathBuf,
    /// What was left of it.
    pub left: Salvaged,
    /// What is known of the end of its ledger; none where it is closed.
    pub lost: Option<Lost>,
}

/// Makes a copy in a new folder, also while a server runs, and checks it: the database, and every ledger in it from end to end. Where it
/// fails, no folder of that name is there.
///
/// # Errors
/// When there is such a folder, the data are none or damaged, or the disk fails.
pub fn back_up(data: &Path, to: &Path, made: &str) -> Result<Made, BackupError> {
    apart(to, "the folder of a backup", data, "--data")?;
    let database = Database::read(data.join(DATABASE))?;
    if to.exists() {
        return Err(BackupError::Folders {
            problem: format!("{} is there already; each backup gets a new folder", to.display()),
        });
    }
    let unfinished = beside(to, ".unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(failed("remove", &unfinished))?;
    }
    files::make_folder(files::folder(to))?;
    OsDisk.create_folder(&unfinished, true).map_err(failed("make", &unfinished))?;
    let copied = copy(&database, data, &unfinished, made);
    if copied.is_err() {
        // What could not be finished is of no use, and may be large.
        let _ = fs::remove_dir_all(&unfinished);
    }
    let made = copied?;
    fs::rename(&unfinished, to).map_err(failed("name", to))?;
    sync_folder(files::folder(to))?;
    Ok(made)
}

fn copy(database: &Database, data: &Path, into: &Path, made: &str) -> Result<Made, BackupError> {
    let path = into.join(DATABASE);
    database.copy_into(&path)?;
    // What counts is what the copy has: the server has gone on meanwhile.
    let copy = Arc::new(Database::read(&path)?);
    let (tasks, orders) = (checked(&copy, into)?, Orders::in_data(data));
    let tasks = tasks.into_iter().map(|(task, head, over)| CopiedTask { wanted: orders.of(&task), task, head, over });
    let (realm, assignments) = copy.realm_and_assignments()?;
    let (bytes, sha256) = digest(&path)?;
    let manifest = Manifest {
        format: FORMAT,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        made: made.to_owned(),
        realm: hex(&realm),
        assignments,
        bytes,
        sha256,
        tasks: tasks.collect(),
        created: created(&data.join(CREATED))?,
    };
    let place = into.join(MANIFEST);
    let mut text = serde_json::to_string_pretty(&manifest).map_err(|e| failed("write", &place)(e.into()))?;
    text.push('\n');
    let by = Replacement { new: &beside(&place, ".new"), private: true, time: None };
    files::replace(&OsDisk, &place, by, |out| out.write_all(text.as_bytes()))?;
    Ok(Made { manifest, sha256: hex(&Sha256::digest(text.as_bytes())) })
}

/// The texts of a folder of settings; none where there is no such folder.
fn created(folder: &Path) -> Result<BTreeMap<String, String>, FileError> {
    let mut texts = BTreeMap::new();
    for path in OsDisk.list(folder).map_err(failed("read", folder))? {
        let name = path.file_name().and_then(|name| name.to_str());
        let wanted = path.extension().is_some_and(|e| e == "toml" || e == "approval");
        if let (Some(name), true) = (name, wanted) {
            texts.insert(name.to_owned(), files::read_text(&path)?);
        }
    }
    Ok(texts)
}

/// The tasks of a copy, each with its head and whether it is over; refuses what is damaged.
fn checked(copy: &Arc<Database>, place: &Path) -> Result<Vec<(String, Head, bool)>, BackupError> {
    let damaged = |error: DatabaseError| BackupError::Damaged { place: place.to_owned(), problem: error.to_string() };
    copy.check_integrity().map_err(damaged)?;
    let one = |task: String| {
        // Folders and files are named by it.
        if !is_task_name(&task) {
            return Err(damaged(DatabaseError::Name { name: task }));
        }
        let home = TaskHome::read(Arc::clone(copy), &task)?;
        let wrong = |error: Box<dyn std::error::Error + Send + Sync>| BackupError::Ledger { task: task.clone(), error };
        let of_ledger = |error: LedgerError| wrong(error.into());
        if !home.is_begun().map_err(of_ledger)? {
            return Ok((task, Head::EMPTY, false));
        }
        let heads = home.shown_heads().map_err(|error| wrong(error.into()))?;
        let ledger = Ledger::open(home.read_store().map_err(of_ledger)?, None, &heads).map_err(of_ledger)?;
        Ok((task, ledger.head(), ledger.is_closed()))
    };
    TaskHome::names(copy)?.into_iter().map(one).collect()
}

impl Backup {
    /// Opens a copy, and checks it from end to end. Nothing is written. `noted` is the SHA-256 that [`Made`] has, which is checked first: without
    /// it, somebody who can write a copy can write one that is whole.
    ///
    /// # Errors
    /// When there is none, or it is not what was written.
    pub fn open(folder: &Path, noted: Option<&str>) -> Result<Self, BackupError> {
        let place = folder.join(MANIFEST);
        let none = |problem: String| BackupError::NoBackup { place: folder.to_owned(), problem };
        let damaged = |problem: String| BackupError::Damaged { place: folder.to_owned(), problem };
        let text = match fs::read_to_string(&place) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(none(format!("it has no {MANIFEST}")));
            }
            Err(error) => return Err(failed("read", &place)(error).into()),
        };
        let found = hex(&Sha256::digest(text.as_bytes()));
        if noted.is_some_and(|noted| !noted.eq_ignore_ascii_case(&found)) {
            return Err(BackupError::OtherDescription { place, found });
        }
        let manifest: Manifest =
            serde_json::from_str(&text).map_err(|error| damaged(format!("{MANIFEST}: {error}")))?;
        if manifest.format != FORMAT {
            let found = manifest.format;
            return Err(none(format!("it has format {found}, but this program supports {FORMAT}")));
        }
        let path = folder.join(DATABASE);
        let (bytes, sha256) = digest(&path)?;
        if (bytes, &sha256) != (manifest.bytes, &manifest.sha256) {
            return Err(damaged(format!("{DATABASE} has other bytes than {MANIFEST} says")));
        }
        let database = Arc::new(Database::read(&path)?);
        let found = checked(&database, folder)?;
        let said = manifest.tasks.iter().map(|task| (task.task.clone(), task.head, task.over));
        if !said.eq(found) {
            return Err(damaged(format!("its tasks are not those that {MANIFEST} says")));
        }
        Ok(Self { folder: folder.to_owned(), manifest, database })
    }

    /// Its description.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How it compares with the secrets of its server.
    ///
    /// # Errors
    /// When they are of another server, or cannot be read.
    pub fn compare(&self, secrets: &Path) -> Result<Compared, BackupError> {
        if !secrets.is_dir() {
            let problem = format!("--secrets {} is not a folder", secrets.display());
            return Err(BackupError::Folders { problem });
        }
        Ok(compare(&self.database, secrets)?)
    }

    /// Puts it where a server goes on from it, if nothing happened since it was made. Settings are restored for tasks that have begun: a server
    /// refuses others for them. What is left out is said.
    ///
    /// # Errors
    /// When something did happen ([`BackupError::Older`]), there is a database already, a server runs on the secrets, or the disk fails.
    pub fn restore(&self, data: &Path, secrets: &Path) -> Result<Restored, BackupError> {
        check_folders(data, secrets)?;
        apart(data, "--data", &self.folder, "the backup")?;
        let path = data.join(DATABASE);
        for there in [path.clone(), beside(&path, "-wal")] {
            if there.exists() {
                let problem = format!(
                    "{} is there already: if it can be read it is newer than any backup. Move the folder away to restore one",
                    there.display()
                );
                return Err(BackupError::Folders { problem });
            }
        }
        let (_unserved, compared) = self.compare_unserved(secrets)?;
        if !compared.is_newest() {
            return Err(BackupError::Older(Box::new(compared)));
        }
        if OsDisk.create_folder(data, true).map_err(failed("make", data))? {
            sync_folder(files::folder(data))?;
        }
        let orders = Orders::in_data(data);
        for task in self.manifest.tasks.iter().filter(|task| task.wanted != Order::Run) {
            orders.give(&task.task, task.wanted)?;
        }
        let mut left_out = Vec::new();
        for (name, text) in &self.manifest.created {
            if !self.has_begun(name) {
                left_out.push(name.clone());
                continue;
            }
            let folder = data.join(CREATED);
            OsDisk.create_folder(&folder, true).map_err(failed("make", &folder))?;
            files::write(&folder.join(name), text.as_bytes())?;
        }
        let by = Replacement { new: &beside(&path, ".new"), private: true, time: None };
        let mut from = fs::File::open(self.database.path()).map_err(failed("read", self.database.path()))?;
        files::replace(&OsDisk, &path, by, |out| io::copy(&mut from, out).map(|_| ()))?;
        Ok(Restored { compared, left_out })
    }

    /// The tasks that have begun.
    fn begun(&self) -> impl Iterator<Item = &CopiedTask> {
        self.manifest.tasks.iter().filter(|task| task.head != Head::EMPTY)
    }

    /// Whether a file of settings or an approval is that of a task that has begun.
    fn has_begun(&self, file: &str) -> bool {
        let task = file.strip_suffix(".toml").or_else(|| file.strip_suffix(".approval"));
        task.is_some_and(|task| self.begun().any(|begun| begun.task == task))
    }

    /// How it compares with secrets on which no server runs, and on which none is started until the lock is dropped.
    fn compare_unserved(&self, secrets: &Path) -> Result<(Lock, Compared), BackupError> {
        // A folder that is not there is refused before anything is put into it.
        self.compare(secrets)?;
        let unserved = lock_secrets(secrets)?;
        Ok((unserved, self.compare(secrets)?))
    }

    /// Writes out what is left of every task, each into a folder of its name: ledger, statement, model. With the secrets it is known how
    /// much is missing.
    ///
    /// # Errors
    /// When nothing is missing, and the tasks can go on; when a folder is there already, or the disk fails.
    pub fn salvage(&self, secrets: Option<&Path>, into: &Path) -> Result<Vec<SalvagedTask>, BackupError> {
        apart(into, "--salvage", &self.folder, "the backup")?;
        let compared = secrets.map(|secrets| self.compare(secrets)).transpose()?;
        if compared.as_ref().is_some_and(Compared::is_newest) {
            return Err(BackupError::Newest);
        }
        self.begun().map(|task| self.salvage_task(task, compared.as_ref(), &into.join(&task.task))).collect()
    }

    fn salvage_task(
        &self,
        CopiedTask { task, head, over, .. }: &CopiedTask,
        compared: Option<&Compared>,
        folder: &Path,
    ) -> Result<SalvagedTask, BackupError> {
        if folder.exists() {
            let problem = format!("{} is there already; give --salvage a new folder", folder.display());
            return Err(BackupError::Folders { problem });
        }
        let known = compared.and_then(|compared| compared.tasks.iter().find(|one| one.task == *task));
        let lost = (!over).then(|| Lost {
            have: *head,
            acknowledged: known.and_then(|known| known.acknowledged),
            why: format!("the data of the server were lost; this is its backup of {}", self.manifest.made),
        });
        let home = TaskHome::read(Arc::clone(&self.database), task)?;
        let wrong = |error| BackupError::Salvage { task: task.clone(), error: Box::new(error) };
        let left = federated::run::salvage(&home, lost.clone(), folder).map_err(wrong)?;
        Ok(SalvagedTask { task: task.clone(), folder: folder.to_owned(), left, lost })
    }

    /// Destroys the keys of all tasks of a server that cannot go on: of noise, of pseudonyms, of rounds and of ledgers. Nobody can draw the
    /// noise again, say who took part, or write a ledger that forks from those of the tasks. What devices know the server by stays. Gives
    /// the names of the tasks.
    ///
    /// # Errors
    /// When the tasks can go on, a server runs on the secrets, or a key cannot be destroyed.
    pub fn destroy_keys(&self, secrets: &Path) -> Result<BTreeSet<String>, BackupError> {
        // Any backup of a server that runs is older than it.
        let (_unserved, compared) = self.compare_unserved(secrets)?;
        if compared.is_newest() {
            return Err(BackupError::Newest);
        }
        let mut of = BTreeSet::new();
        for task in compared.tasks.into_iter().map(|task| task.task) {
            let folder = secrets.join(&task);
            if folder.is_dir() {
                let destroy = || Secrets::new(Arc::new(FileVault::in_folder(folder)?)).retire();
                destroy().map_err(|error| BackupError::Ledger { task: task.clone(), error: error.into() })?;
                of.insert(task);
            }
        }
        Ok(of)
    }
}

/// Refuses two folders of which one lies in the other.
fn apart(one: &Path, what: &str, other: &Path, what_other: &str) -> Result<(), BackupError> {
    let (real, real_other) = (resolved(one), resolved(other));
    if real.starts_with(&real_other) || real_other.starts_with(&real) {
        let problem = format!(
            "{what} {} and {what_other} {} must be two folders, neither inside the other",
            one.display(),
            other.display()
        );
        return Err(BackupError::Folders { problem });
    }
    Ok(())
}

/// The size of a file, and its SHA-256 in hexadecimal digits.
fn digest(path: &Path) -> Result<(u64, String), FileError> {
    let mut file = fs::File::open(path).map_err(failed("read", path))?;
    let (mut hasher, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).map_err(failed("read", path))? {
            0 => return Ok((bytes, hex(&hasher.finalize()))),
            read => {
                hasher.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
}
