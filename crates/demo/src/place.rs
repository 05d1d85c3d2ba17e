//! The folder of a demo: it is deleted when the demo ends, however it ends.
//!
//! | a demo that                        | its folder is deleted by                                          |
//! |------------------------------------|-------------------------------------------------------------------|
//! | is done, fails, or panics          | the [`Place`], when it is dropped                                 |
//! | is interrupted twice (Ctrl-C)      | [`remove`], which the handler of the signal calls                 |
//! | is killed, or loses its power      | the next demo of the same user, in [`sweep`]                      |
//!
//! [`sweep`] deletes only what it can prove to be left by a demo that is over: a folder (no link) in the same temporary folder with
//! the name of a demo, which belongs to this user alone and has the note that demos write, and whose lock nobody holds. The operating system
//! gives a lock back when its process ends, whatever ends it.

use std::{
    fs::{self, DirBuilder},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use durable::disk::{Disk, Lock, OsDisk};

use crate::DemoError;

/// What the names of folders begin with.
const PREFIX: &str = "keyhush-demo-";
/// The file whose lock says that a demo is running.
const LOCK: &str = "lock";
/// The file that says what the folder is.
const NOTE: &str = "README.txt";
const WORDS: &str = "The files of a running keyhush demo. They are deleted when it ends; if it was killed, the next demo deletes them.\n";
/// How often it is tried to delete a folder in which something may still be written.
const TRIES: u32 = 50;
const BETWEEN: Duration = Duration::from_millis(20);

/// The folder of a demo.
pub struct Place {
    folder: PathBuf,
    /// Held while the folder is temporary; none where it is kept.
    lock: Option<Lock>,
}

impl Place {
    /// A new folder among the temporary files, which is deleted with this value. What earlier demos left is deleted first.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn temporary(within: &Path) -> Result<Self, DemoError> {
        sweep(within);
        loop {
            let mut drawn = [0; 8];
            getrandom::fill(&mut drawn).map_err(DemoError::Randomness)?;
            let folder = within.join(format!("{PREFIX}{:016x}", u64::from_le_bytes(drawn)));
            make(&folder)?;
            // Another demo may look at it in this moment and hold the lock: then it is that one's to delete, if it is anybody's.
            if let Some(lock) = OsDisk.lock(&folder.join(LOCK)).map_err(failed("lock", &folder))? {
                // From here on it is deleted, also where the next line fails.
                let place = Self { folder, lock: Some(lock) };
                let note = place.folder.join(NOTE);
                fs::write(&note, WORDS).map_err(failed("write", &note))?;
                return Ok(place);
            }
            _ = fs::remove_dir_all(&folder);
        }
    }

    /// A folder that stays: a new one, or one that is empty.
    ///
    /// # Errors
    /// When there is something in it, or it cannot be made.
    pub fn kept(folder: &Path) -> Result<Self, DemoError> {
        let folder = std::path::absolute(folder).map_err(failed("find", folder))?;
        match fs::symlink_metadata(&folder) {
            Ok(found) => {
                let is_empty = || fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none());
                if !found.is_dir() || !is_empty() {
                    return Err(DemoError::Taken { folder });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(&folder)?,
            Err(error) => return Err(failed("open", &folder)(error)),
        }
        Ok(Self { folder, lock: None })
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it stays.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.lock.is_none()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.lock.is_some() {
            remove(&self.folder);
        }
    }
}

/// Deletes a folder. What is still being written to it may come after what was deleted, so it is tried for a second. Whether it is gone.
pub fn remove(folder: &Path) -> bool {
    for _ in 0..TRIES {
        match fs::remove_dir_all(folder) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(_) => std::thread::sleep(BETWEEN),
        }
    }
    false
}

/// Deletes the folders of demos that are over, and says how many.
pub fn sweep(within: &Path) -> usize {
    let entries = fs::read_dir(within).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    named.filter(|entry| is_left(&entry.path()).is_some_and(|_lock| remove(&entry.path()))).count()
}

/// The lock of a folder that a demo has left; none where that is not certain.
fn is_left(folder: &Path) -> Option<Lock> {
    let is_ours = is_own_folder(folder) && fs::read(folder.join(NOTE)).is_ok_and(|note| note == WORDS.as_bytes());
    // Looking for a lock would make the file.
    let has_lock = || fs::symlink_metadata(folder.join(LOCK)).is_ok_and(|lock| lock.is_file());
    if is_ours && has_lock() { OsDisk.lock(&folder.join(LOCK)).ok().flatten() } else { None }
}

#[cfg(unix)]
fn is_own_folder(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0)
}

#[cfg(not(unix))]
fn is_own_folder(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir())
}

/// Makes a folder for this user alone.
pub(crate) fn make(folder: &Path) -> Result<(), DemoError> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(failed("create", folder))
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DemoError {
    let path = path.to_owned();
    move |error| DemoError::Folder { what, path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(within: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(within)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_temporary_folder_goes_also_in_a_panic_and_a_kept_one_stays() {
        let temp = tempfile::tempdir().unwrap();
        let panicked = std::panic::catch_unwind(|| {
            let place = Place::temporary(temp.path()).unwrap();
            fs::create_dir(place.folder().join("data")).unwrap();
            fs::write(place.folder().join("data/file"), "x").unwrap();
            assert!(!place.is_kept() && left(temp.path()).len() == 1);
            panic!("a bug");
        });
        assert!(panicked.is_err() && left(temp.path()).is_empty(), "{:?}", left(temp.path()));
        let kept = temp.path().join("kept");
        drop(Place::kept(&kept).unwrap());
        drop(Place::kept(&kept).unwrap());
        assert_eq!(left(temp.path()), ["kept"]);
        fs::write(kept.join("something"), "").unwrap();
        for taken in [&kept, &kept.join("something")] {
            assert!(matches!(Place::kept(taken), Err(DemoError::Taken { .. })), "{}", taken.display());
        }
        assert!(matches!(Place::kept(&temp.path().join("no/where")), Err(DemoError::Folder { .. })));
    }

    #[test]
    fn what_a_killed_demo_left_is_deleted_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let within = temp.path();
        let running = Place::temporary(within).unwrap();
        // A demo that was killed: its folder is there, and nobody has its lock.
        let leave = |name: &str| {
            let place = Place::temporary(within).unwrap();
            let folder = within.join(name);
            make(&folder).unwrap();
            for file in [LOCK, NOTE] {
                fs::copy(place.folder().join(file), folder.join(file)).unwrap();
            }
            folder
        };
        // None of these can be proved to be a demo's: no note, another note, no lock, open to others, another name, a link.
        fs::remove_file(leave("keyhush-demo-without-note").join(NOTE)).unwrap();
        fs::write(leave("keyhush-demo-other-note").join(NOTE), "mine\n").unwrap();
        fs::remove_file(leave("keyhush-demo-without-lock").join(LOCK)).unwrap();
        leave("not-keyhush-demo-1");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let open = leave("keyhush-demo-open");
            fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::symlink(within.join("not-keyhush-demo-1"), within.join("keyhush-demo-link")).unwrap();
        }
        let strange = left(within);
        let killed = leave("keyhush-demo-0123456789abcdef");
        fs::create_dir(killed.join("data")).unwrap();
        assert_eq!(sweep(within), 1);
        assert_eq!(left(within), strange, "the killed one is gone, and nothing else");
        drop(running);
        assert_eq!(left(within).len(), strange.len() - 1, "the running one was left alone, and deletes its own");
        // A new demo does it by itself.
        let killed = leave("keyhush-demo-fedcba9876543210");
        drop(Place::temporary(within).unwrap());
        assert!(!killed.exists());
    }
}
