//! Whether who runs a command can reach the files of a server: to somebody else they look as if they were not there.

use std::{
    io::{self, ErrorKind},
    path::Path,
};

/// Whether there is something at a path; where that cannot be known, what to do.
pub(crate) fn is_there(path: &Path) -> Result<bool, String> {
    path.try_exists().map_err(|error| unreached(path, &error))
}

/// The same of a folder.
pub(crate) fn is_folder(path: &Path) -> Result<bool, String> {
    Ok(is_there(path)? && path.is_dir())
}

/// Why a path cannot be looked at, and what to do where who asks is the wrong user.
pub(crate) fn unreached(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    if error.kind() == ErrorKind::PermissionDenied {
        format!("{path}: permission denied; run this as the server's user (runuser -u keyhush -- keyhush ...)")
    } else {
        format!("{path} cannot be looked at: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_looked_at_is_not_said_to_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(is_there(&folder.path().join("none")), Ok(false));
        assert_eq!((is_there(&file), is_folder(&file), is_folder(folder.path())), (Ok(true), Ok(false), Ok(true)));
        // Also for root, whom no permission binds, this is neither there nor missing.
        assert!(is_there(&file.join("below")).unwrap_err().contains("cannot be looked at"));
        let denied = unreached(&file, &io::Error::from(ErrorKind::PermissionDenied));
        assert!(denied.contains("permission denied; run this as the server's user (runuser -u keyhush"), "{denied}");
    }
}
