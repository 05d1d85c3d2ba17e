//! What the files in the folder of a run are called.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use durable::files::{self, FileError};

/// The resolved settings.
pub const CONFIG_FILE: &str = "config.toml";
/// The ledger.
pub const LEDGER_FILE: &str = "ledger.jsonl";
/// The model.
pub const MODEL_FOLDER: &str = "model";
/// The guarantee in words.
pub const STATEMENT_FILE: &str = "statement.md";
/// The guarantee for programs.
pub const STATEMENT_JSON: &str = "statement.json";
/// The newest states.
pub(super) const CHECKPOINTS: &str = "checkpoints";
/// What the name of a state ends with.
pub(super) const STATE: &str = ".safetensors";
/// Says that the run is one of a sweep.
pub(super) const UNDECIDED: &str = "part-of-a-sweep";
/// The file with the audit result of a run.
pub const AUDIT_FILE: &str = "audit.json";

/// The entries of a folder; none if it does not exist.
pub(super) fn list(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let all = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>();
    match all() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(files::failed("read", folder)),
    }
}
