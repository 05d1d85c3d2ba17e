//! Progress reports of work on many files or users: imports, and synthetic crowds that are written.

/// The progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Files are read.
    Reading {
        /// Bytes read from disk, or users made.
        done: u64,
        /// The total number.
        total: u64,
        /// Lines that could not be read, so far.
        bad: u64,
    },
    /// Users are grouped.
    Grouping {
        /// Spill files done.
        done: u64,
        /// The total number.
        total: u64,
    },
}
