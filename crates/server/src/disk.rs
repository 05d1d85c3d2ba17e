//! How much room a folder has: the disk that it is on.

use std::{io, path::Path};

/// The room of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes that this program may still write.
    pub free: u64,
    /// All bytes of the disk.
    pub total: u64,
}

/// The room of the disk that has a folder.
///
/// # Errors
/// When the system cannot say.
pub fn room(folder: &Path) -> io::Result<Room> {
    let disk = rustix::fs::statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Ok(Room { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_folder_has_room_and_one_that_is_not_there_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let room = super::room(folder.path()).unwrap();
        assert!(room.free > 0 && room.free <= room.total, "{room:?}");
        assert!(super::room(&folder.path().join("nothing")).is_err());
    }
}
