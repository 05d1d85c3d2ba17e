//! The keys that outlive a task, and that may have a copy: what devices and operators know a server by.
//!
//! | file                          | why it may have a copy                                              | what somebody can do who has it                    |
//! |-------------------------------|---------------------------------------------------------------------|----------------------------------------------------|
//! | `tls/cert.pem`, `tls/key.pem` | devices trust this certificate alone, and cannot be told of another  | be the server to its devices, until they trust another |
//! | `token`                       | devices that are installed with it could not enrol                   | enrol devices, until it is replaced                 |
//! | `access.json`                 | digests of access tokens: operators keep theirs                      | nothing: digests open nothing                       |
//!
//! All of them can be replaced (`keyhush rotate`), and none decides what anybody's noise was or who took part. The keys of tasks are never
//! copied: those of noise and of pseudonyms are there to be destroyed, and a copy would make that meaningless (rule P20); the one that signs a
//! ledger is of no use, since a task never goes on from an older state. The witnesses (`assignments`, `TASK/ledger.head`) are no secrets,
//! and a copy of them is as old as it is. A copy of these keys does not belong with a copy of the data: who has both knows the devices, and can be their server.

use std::{fs, path::Path};

use durable::{
    disk::{Disk, OsDisk},
    files::{self, Replacement, beside, failed, sync_folder},
};
use zeroize::Zeroizing;

use super::{BackupError, apart};

/// The files that may have a copy.
pub const SURVIVING: [&str; 4] = ["access.json", "tls/cert.pem", "tls/key.pem", "token"];

/// Copies them, as far as they are there, into a folder for its owner alone. Gives their names.
///
/// # Errors
/// When the folders are not apart, there are none, or the disk fails.
pub fn copy(secrets: &Path, to: &Path, backups: &Path) -> Result<Vec<&'static str>, BackupError> {
    apart(to, "--keys-to", secrets, "--secrets")?;
    apart(to, "--keys-to", backups, "--to")?;
    let there: Vec<&str> = SURVIVING.into_iter().filter(|name| secrets.join(name).is_file()).collect();
    if there.is_empty() {
        let problem = format!("--secrets {} has none of the keys that --keys-to copies", secrets.display());
        return Err(BackupError::Folders { problem });
    }
    files::make_folder(files::folder(to))?;
    for name in &there {
        let (from, into) = (secrets.join(name), to.join(name));
        let bytes = Zeroizing::new(fs::read(&from).map_err(failed("read", &from))?);
        for folder in [to, files::folder(&into)] {
            if OsDisk.create_folder(folder, true).map_err(failed("make", folder))? {
                sync_folder(files::folder(folder))?;
            }
        }
        let by = Replacement { new: &beside(&into, ".new"), private: true, time: None };
        files::replace(&OsDisk, &into, by, |out| out.write_all(&bytes))?;
    }
    Ok(there)
}
