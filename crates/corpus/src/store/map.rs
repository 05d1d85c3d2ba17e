//! Memory-maps a file. Contains the only unsafe line of this crate.

use std::{fs::File, io, path::Path};

use memmap2::Mmap;

/// Maps a whole file for reading.
#[allow(unsafe_code, reason = "mapping a file is unsafe in Rust; see SAFETY")]
pub(super) fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: the map is read-only and private to this process's view, and a store is immutable by contract: it is written
    // under another name and renamed when it is whole, and nothing here ever opens it for writing. Bytes are only read as
    // `&[u8]`, for which every value is valid, and every number that is read from them is checked. What remains is that
    // somebody else cuts the file while it is mapped, which ends the process by a signal, as it does for every program that
    // maps files.
    unsafe { Mmap::map(&file) }
}
