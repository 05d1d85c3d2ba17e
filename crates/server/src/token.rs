//! The enrolment token, if the operator does not supply one: drawn once, and stored with the secrets.

use std::path::{Path, PathBuf};

use durable::{
    disk::{Disk, OsDisk},
    files::{self, Replacement, beside, failed},
};
use federated::secrets::FileVault;
use zeroize::Zeroizing;

use crate::sqlite::DatabaseError;

/// The file in the folder of secrets.
const FILE: &str = "token";

/// The path of the token in a folder of secrets, readable by its owner only; the token is created if there is none.
///
/// # Errors
/// When the disk fails, or there is no randomness.
pub fn token_in(secrets: &Path) -> Result<PathBuf, DatabaseError> {
    FileVault::in_folder(secrets)?;
    let path = secrets.join(FILE);
    if OsDisk.read(&path).map_err(failed("read", &path))?.is_none() { replace_token(secrets) } else { Ok(path) }
}

/// Draws another token in the place of the one in a folder of secrets. Gives its path. A server reads it when it starts; devices that are enrolled
/// need none.
///
/// # Errors
/// When the disk fails, or there is no randomness.
pub fn replace_token(secrets: &Path) -> Result<PathBuf, DatabaseError> {
    FileVault::in_folder(secrets)?;
    let path = secrets.join(FILE);
    let mut drawn = Zeroizing::new([0; 16]);
    getrandom::fill(&mut *drawn).map_err(DatabaseError::Randomness)?;
    let digits: Zeroizing<String> = Zeroizing::new(drawn.iter().map(|byte| format!("{byte:02x}")).collect());
    let by = Replacement { new: &beside(&path, ".new"), private: true, time: None };
    files::replace(&OsDisk, &path, by, |out| out.write_all(format!("{}\n", *digits).as_bytes()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_drawn_once_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("a"), folder.path().join("b"));
        let read = |secrets: &Path| std::fs::read_to_string(token_in(secrets).unwrap()).unwrap();
        let first = read(&here);
        assert!(first.trim().len() == 32 && first.trim().chars().all(|c| c.is_ascii_hexdigit()), "{first}");
        assert_eq!(read(&here), first);
        replace_token(&here).unwrap();
        assert_ne!(read(&here), first);
        assert_ne!(read(&there), first);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(here.join("token")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
