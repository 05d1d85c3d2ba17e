//! The folders of a server: who can read them, where they are, and how much room there is.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use server::{disk, sqlite::check_folders};

use super::{Finding, bytes};
use crate::reach;

/// Files of secrets that are looked at, at most: one folder for each task.
const MOST_FILES: usize = 10_000;
/// Below this the server is not ready (`/readyz`).
const LEAST_FREE: u64 = 64 << 20;
/// Below this it is said.
const LITTLE_FREE: u64 = 1 << 30;

pub(super) fn look(data: &Path, secrets: &Path) -> Vec<Finding> {
    let mut findings = vec![separate(data, secrets)];
    findings.extend([private("secrets", secrets), private("data", data), room(data)]);
    findings.extend(same_disk(data, secrets));
    findings.extend(backed_up(secrets));
    findings
}

fn separate(data: &Path, secrets: &Path) -> Finding {
    match check_folders(data, secrets) {
        Ok(()) => Finding::ok("folders", "data and secrets are two folders"),
        Err(error) => Finding::failure(
            "folders",
            error.to_string(),
            "move the secrets to a folder of their own, for the server's user alone",
        ),
    }
}

/// Others must reach neither secrets nor data. Certificates are public, wherever they are.
fn private(check: &'static str, folder: &Path) -> Finding {
    let (mut loose, mut waiting, mut looked) = (Vec::new(), vec![folder.to_owned()], 0);
    while let Some(path) = waiting.pop() {
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) => return unreached(check, &path, &error),
        };
        looked += 1;
        let mode = found.permissions().mode() & 0o777;
        let is_public =
            path.extension().is_some_and(|end| end == "pem") && path.file_stem().is_some_and(|name| name != "key");
        // What is in a folder that only its owner can open cannot be reached either; of data, the folder and the database count.
        let counts = check == "secrets" || path == *folder || path.extension().is_some_and(|end| end == "sqlite");
        if mode & 0o077 != 0 && !found.is_symlink() && !is_public && counts {
            loose.push((path.clone(), mode, found.is_dir()));
        }
        if found.is_dir() && looked < MOST_FILES && check == "secrets" {
            let all =
                fs::read_dir(&path).and_then(|all| all.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>());
            match all {
                Ok(all) => waiting.extend(all),
                Err(error) => return unreached(check, &path, &error),
            }
        } else if path == *folder {
            let database = folder.join(server::sqlite::DATABASE);
            match database.try_exists() {
                Ok(true) => waiting.push(database),
                Ok(false) => {}
                Err(error) => return unreached(check, &database, &error),
            }
        }
    }
    let Some((path, mode, is_folder)) = loose.first() else {
        return Finding::ok(check, format!("{} is for its owner alone", folder.display()));
    };
    let more = if loose.len() > 1 { format!(", and so can {} more", loose.len() - 1) } else { String::new() };
    let wanted = if *is_folder { "700" } else { "600" };
    Finding::failure(
        check,
        format!("others can reach {} (mode {mode:03o}){more}", path.display()),
        format!(
            "chmod {wanted} {}; if others may have read secrets, see \"When a key leaks\" in docs/DEPLOY.md",
            path.display()
        ),
    )
}

/// Whose permissions are not known are not said to be right.
fn unreached(check: &'static str, path: &Path, error: &io::Error) -> Finding {
    Finding::failure(check, reach::unreached(path, error), super::AS_WHOM)
}

fn room(data: &Path) -> Finding {
    match disk::room(data) {
        Err(error) => Finding::failure(
            "disk",
            format!("the disk of {} cannot be asked: {error}", data.display()),
            "check that it is mounted",
        ),
        Ok(room) => {
            let found = format!("{} of {} free for {}", bytes(room.free), bytes(room.total), data.display());
            if room.free < LEAST_FREE {
                Finding::failure("disk", found, "free space: a server whose write fails stops")
            } else if room.free < LITTLE_FREE {
                Finding::hint("disk", found, "free some space, or watch it: keyhush_data_disk_free_bytes in /metrics")
            } else {
                Finding::ok("disk", found)
            }
        }
    }
}

fn same_disk(data: &Path, secrets: &Path) -> Option<Finding> {
    let device = |folder: &Path| fs::metadata(folder).map(|found| found.dev()).ok();
    let same = device(data)? == device(secrets)?;
    same.then(|| {
        Finding::hint(
            "same disk",
            "data and secrets are on the same disk: a copy of the whole disk has both",
            "back up the data folder alone (never an image of the disk with the secrets), or put the secrets on another volume",
        )
    })
}

/// A folder that is copied elsewhere by itself is no place for secrets.
fn backed_up(secrets: &Path) -> Option<Finding> {
    let path = secrets.canonicalize().unwrap_or_else(|_| secrets.to_owned());
    let is_copied = |part: &str| {
        let part = part.to_lowercase();
        ["backup", "dropbox", "onedrive", "nextcloud", "google drive", "icloud", "syncthing"]
            .iter()
            .any(|copies| part.contains(copies))
    };
    let named =
        path.components().find_map(|part| part.as_os_str().to_str().filter(|part| is_copied(part)).map(str::to_owned));
    let in_git = || path.ancestors().map(|above| above.join(".git")).find(|git| git.exists());
    let why = match (named, in_git()) {
        (Some(part), _) => format!("{} is below {part:?}, which sounds as if it were copied elsewhere", path.display()),
        (None, Some(git)) => format!(
            "{} is in the working tree of {}",
            path.display(),
            git.parent().map_or_else(PathBuf::new, Path::to_owned).display()
        ),
        (None, None) => return None,
    };
    let what =
        "move the secrets where nothing copies them: who has old keys can take the noise off, or name who took part";
    Some(Finding::hint("copies", why, what))
}
