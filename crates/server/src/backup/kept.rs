//! How many backups are kept: the one that was just made, and the newest of those before it, by the time in their description.
//!
//! Times are those of a clock that may have been wrong, in files that others may have written. So no time decides on the backup that was just
//! made, and what says that it is later than that is neither counted nor removed: somebody has to look at it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use durable::files::{failed, folder, sync_folder};

use super::{BackupError, MANIFEST, Manifest};

/// What became of the backups of a server in a folder.
#[derive(Debug, Default)]
pub struct Kept {
    /// Backups that were removed.
    pub removed: Vec<PathBuf>,
    /// Backups that say they are later than the one that was just made. They are left, and are not among those that are kept.
    pub later: Vec<PathBuf>,
}

/// Removes all backups of a server but the one that was just made, `new`, and the newest ones before it beside it: `keep` in all. What is no
/// backup, or of another server, stays.
///
/// # Errors
/// When the disk fails.
pub fn remove_older(new: &Path, made: &Manifest, keep: usize) -> Result<Kept, BackupError> {
    let within = folder(new);
    let (mut older, mut kept) = (Vec::new(), Kept::default());
    for entry in fs::read_dir(within).map_err(failed("read", within))? {
        let path = entry.map_err(failed("read", within))?.path();
        let Ok(text) = fs::read_to_string(path.join(MANIFEST)) else { continue };
        let Ok(manifest) = serde_json::from_str::<Manifest>(&text) else { continue };
        let is_new = path.file_name() == new.file_name();
        if is_new || manifest.realm != made.realm {
            continue;
        }
        if manifest.made > made.made {
            kept.later.push(path);
        } else {
            older.push((manifest.made, path));
        }
    }
    older.sort();
    kept.later.sort();
    let surplus = (older.len() + 1).saturating_sub(keep.max(1));
    for (_, path) in older.into_iter().take(surplus) {
        fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
        kept.removed.push(path);
    }
    sync_folder(within)?;
    Ok(kept)
}
