//! Tasks that are created while a server runs, or before it is started: files in the folder `tasks` of its data.
//!
//! | file            | what it is                                                                                              |
//! |-----------------|---------------------------------------------------------------------------------------------------------|
//! | `NAME.toml`     | the settings; that it is there makes it a task, and it is never changed                                  |
//! | `NAME.approval` | the privacy officer's approval, durable before the settings are there; none where nobody approved it      |
//! | `NAME.refused`  | why a server refused a task that had not begun, whose settings it then removed                            |
//!
//! As with orders ([`crate::orders`]), a task is created by a file and not by a message: it is durable when the command says so, also while no
//! server runs, and a server that is killed at any moment finds it when it is started again.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use durable::{
    disk::{Disk, Lock, OsDisk},
    files::{self, FileError, failed},
};
use federated::config::{Config, ConfigError, Document};
use ledger::Approval;

use super::{ServeError, Written};
use crate::orders::Orders;

/// How often it is tried to take the lock, and how long to wait between.
const TRIES: usize = 300;
const BETWEEN: Duration = Duration::from_millis(10);

/// The tasks that were created in a data folder.
#[derive(Debug, Clone)]
pub struct Created {
    folder: PathBuf,
    orders: Orders,
}

impl Created {
    /// Those in a data folder.
    #[must_use]
    pub fn in_data(data: &Path) -> Self {
        Self { folder: data.join("tasks"), orders: Orders::in_data(data) }
    }

    /// Their names, in order.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn names(&self) -> Result<Vec<String>, FileError> {
        self.with_suffix("toml")
    }

    /// Tasks that a server refused, and why.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn refused(&self) -> Result<BTreeMap<String, String>, FileError> {
        let names = self.with_suffix("refused")?;
        let words = |name: String| Ok(self.why_refused(&name)?.map(|why| (name, why)));
        names.into_iter().filter_map(|name| words(name).transpose()).collect()
    }

    /// Why a server refused a task; none where it did not.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn why_refused(&self, name: &str) -> Result<Option<String>, FileError> {
        let path = self.place(name, "refused");
        let bytes = OsDisk.read(&path).map_err(failed("read", &path))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// Whether there is one of this name.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn has(&self, name: &str) -> Result<bool, FileError> {
        let path = self.place(name, "toml");
        path.try_exists().map_err(failed("look at", &path))
    }

    /// A task as it was created.
    ///
    /// # Errors
    /// When its files cannot be read or understood.
    pub fn read(&self, name: &str) -> Result<Written, ServeError> {
        let text = files::read_text(&self.place(name, "toml"))?;
        let path = self.place(name, "approval");
        let approval = match OsDisk.read(&path).map_err(failed("read", &path))? {
            Some(bytes) => Some(approval_of(&bytes).map_err(|problem| unusable(&path, &problem))?),
            None => None,
        };
        Ok(Written { name: name.to_owned(), config: config(&text)?, approval })
    }

    /// Creates a task; durable when this returns, and then the server that runs takes it up within moments. `check` is called while nobody else
    /// creates one: it refuses what must not be created.
    ///
    /// # Errors
    /// What `check` says, or a disk that fails. Then there is no such task.
    pub fn create(
        &self,
        name: &str,
        settings: &str,
        approval: Option<&Approval>,
        check: impl FnOnce() -> Result<(), ServeError>,
    ) -> Result<(), ServeError> {
        if OsDisk.create_folder(&self.folder, true).map_err(failed("make", &self.folder))? {
            files::sync_folder(files::folder(&self.folder))?;
        }
        let _lock = self.lock()?;
        check()?;
        if self.has(name)? {
            return Err(ServeError::SameTask { name: name.to_owned() });
        }
        let place = self.place(name, "approval");
        match approval {
            Some(approval) => files::write(&place, &written(approval))?,
            // A crash may have left that of another attempt.
            None => OsDisk.remove(&place).map_err(failed("remove", &place))?,
        }
        let refused = self.place(name, "refused");
        OsDisk.remove(&refused).map_err(failed("remove", &refused))?;
        // One of this name may have been refused, and told to stop: this is another.
        self.orders.forget(name)?;
        files::write(&self.place(name, "toml"), settings.as_bytes())?;
        Ok(())
    }

    /// Takes back a task that cannot be begun, and says why. It is not a task any more when this returns.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn refuse(&self, name: &str, why: &str) -> Result<(), FileError> {
        files::write(&self.place(name, "refused"), format!("{why}\n").as_bytes())?;
        for suffix in ["toml", "approval"] {
            let path = self.place(name, suffix);
            OsDisk.remove(&path).map_err(failed("remove", &path))?;
        }
        files::sync_folder(&self.folder)
    }

    fn place(&self, name: &str, suffix: &str) -> PathBuf {
        self.folder.join(format!("{name}.{suffix}"))
    }

    /// The names of the files that end so; what is being written is hidden.
    fn with_suffix(&self, suffix: &str) -> Result<Vec<String>, FileError> {
        let all = OsDisk.list(&self.folder).map_err(failed("list", &self.folder))?;
        let named = all.iter().filter(|path| path.extension().is_some_and(|extension| extension == suffix));
        let mut names: Vec<String> = named
            .filter_map(|path| path.file_stem()?.to_str().map(str::to_owned))
            .filter(|n| !n.starts_with('.'))
            .collect();
        names.sort();
        Ok(names)
    }

    fn lock(&self) -> Result<Lock, ServeError> {
        let place = self.folder.join("lock");
        for _ in 0..TRIES {
            if let Some(lock) = OsDisk.lock(&place).map_err(failed("lock", &place))? {
                return Ok(lock);
            }
            std::thread::sleep(BETWEEN);
        }
        Err(ServeError::Busy)
    }
}

/// The settings of a task in a text. Those of a created task name what they read by whole paths: who creates it and the server may be in
/// different folders.
///
/// # Errors
/// The key that is wrong, or names nothing.
pub fn config(text: &str) -> Result<Config, ConfigError> {
    let mut config = Document::new(text, &[]).and_then(|document| document.config())?;
    for (key, path) in config.paths_mut() {
        if !path.is_absolute() {
            let why = format!(
                "must be a whole path on the server's machine, from / on, not {:?}",
                path.display().to_string()
            );
            return Err(ConfigError::new(key, why));
        }
        if !path.exists() {
            let why = format!("{} is missing on the server's machine: put it there, or name another", path.display());
            return Err(ConfigError::new(key, why));
        }
    }
    Ok(config)
}

/// An approval as its file has it.
#[must_use]
pub fn written(approval: &Approval) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(approval).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Reads the same.
///
/// # Errors
/// What is wrong with it.
pub fn approval_of(bytes: &[u8]) -> Result<Approval, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("it is not an approval of keyhush task approve: {error}"))
}

fn unusable(path: &Path, problem: &str) -> ServeError {
    ServeError::Approval { name: path.display().to_string(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use federated::protocol::order::Order;

    use super::*;

    /// A stop of a task that was refused stopped the next one of the same name, for ever.
    #[test]
    fn a_new_task_does_not_obey_the_orders_of_one_that_was_refused() {
        let data = tempfile::tempdir().unwrap();
        let (created, orders) = (Created::in_data(data.path()), Orders::in_data(data.path()));
        created.create("words", "rounds = 1\n", None, || Ok(())).unwrap();
        created.refuse("words", "no such key").unwrap();
        assert_eq!(created.why_refused("words").unwrap().as_deref(), Some("no such key"));
        orders.give("words", Order::Stop).unwrap();
        orders.give("words", Order::Pause).unwrap();
        created.create("words", "rounds = 2\n", None, || Ok(())).unwrap();
        assert_eq!((orders.of("words"), created.why_refused("words").unwrap()), (Order::Run, None));
        orders.give("words", Order::Pause).unwrap();
        assert!(created.create("words", "rounds = 3\n", None, || Ok(())).is_err());
        assert_eq!(orders.of("words"), Order::Pause, "it is there already, and its orders stand");
    }
}
