//! Reads a privacy officer's approval of a task, for `keyhush serve` and `keyhush task create`.

use std::path::Path;

use ledger::Approval;
use server::tasks::created::approval_of;

use crate::failure::BadInput;

/// The approval in a file, or in the file next to a task's settings where there is one.
pub(crate) fn read(given: Option<&Path>, settings: &Path) -> anyhow::Result<Option<Approval>> {
    let beside = settings.with_extension("approval");
    let Some(path) = given.map(Path::to_owned).or_else(|| beside.is_file().then_some(beside)) else { return Ok(None) };
    let bytes = std::fs::read(&path).map_err(|e| BadInput::wrong("approval", format!("{}: {e}", path.display())))?;
    let approval = approval_of(&bytes);
    Ok(Some(approval.map_err(|problem| BadInput::wrong("approval", format!("{}: {problem}", path.display())))?))
}
