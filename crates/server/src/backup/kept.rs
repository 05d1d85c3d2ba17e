//! How many backups are kept: the newest ones of a server, by the time in their description.

use std::{
    fs,
    path::{Path, PathBuf},
};

use durable::files::{failed, sync_folder};

use super::{BackupError, MANIFEST, Manifest};

/// Removes all backups of a server in a folder but the newest ones. What is no backup, or of another server, stays. Gives those that are gone.
///
/// # Errors
/// When the disk fails.
pub fn remove_older(of: &Manifest, within: &Path, keep: usize) -> Result<Vec<PathBuf>, BackupError> {
    let mut all: Vec<(String, PathBuf)> = Vec::new();
    for entry in fs::read_dir(within).map_err(failed("read", within))? {
        let path = entry.map_err(failed("read", within))?.path();
        let Ok(text) = fs::read_to_string(path.join(MANIFEST)) else { continue };
        let Ok(manifest) = serde_json::from_str::<Manifest>(&text) else { continue };
        if manifest.realm == of.realm {
            all.push((manifest.made, path));
        }
    }
    all.sort();
    let older = all.len().saturating_sub(keep.max(1));
    let mut removed = Vec::new();
    for (_, path) in all.into_iter().take(older) {
        fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
        removed.push(path);
    }
    sync_folder(within)?;
    Ok(removed)
}
