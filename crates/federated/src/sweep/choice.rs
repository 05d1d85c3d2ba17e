//! Chooses the run of a sweep to keep, and accounts for having looked at all of them (rule P15).
//!
//! Choosing the best of several runs over the same users uses all of them. So the ledger of every run imports those
//! of the others before it is closed, and the epsilon of its statement, report, sentence and model is that of all runs together
//! (rule P22).

use std::{
    fs,
    path::{Path, PathBuf},
};

use ledger::{Import, ImportKind, Ledger};

use crate::{
    engine::Means,
    home::{LEDGER_FILE, Records, RunFolder},
    plan::Plan,
    run::{self, Ending, Opened, Run, RunError},
};
use durable::files;

/// Counts in each run of a sweep what all the others cost, closes all of them, and writes their statements, reports and models
/// again: whichever of them is taken later carries the price of all. Done again, it records nothing twice. Returns where the
/// chosen run ended.
///
/// # Errors
/// When a ledger is damaged, protects something else, or the disk fails; and when the chosen run was closed before another of
/// them was made, so that it cannot count it.
pub fn record(chosen: &Path, others: &[PathBuf], means: Means) -> Result<Ending, RunError> {
    let all: Vec<&Path> = others.iter().map(PathBuf::as_path).chain([chosen]).collect();
    let imports = all.iter().map(|run| Ok((*run, import(run)?))).collect::<Result<Vec<_>, RunError>>()?;
    for other in others {
        match count(other, &imports, means) {
            // Closed by an earlier choice: it can no longer be chosen, and that is said when somebody tries.
            Ok(_) | Err(RunError::ChosenBefore { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    count(chosen, &imports, means)
}

/// Counts all the others in a run, and ends it permanently.
fn count(folder: &Path, imports: &[(&Path, Import)], means: Means) -> Result<Ending, RunError> {
    let home = RunFolder::at(folder);
    let config = run::settings(&home)?;
    let opened = Opened::new(&config)?;
    let plan = Plan::new(config, &opened.setting())?;
    let mut run = Run::resume(home, &plan, &opened, means)?;
    for (_, other) in imports.iter().filter(|(other, _)| *other != folder) {
        run.count_sweep_run(other.clone())?;
    }
    run.finish()
}

/// The folders of all runs that were ever begun in the folder of a sweep: `VARIANT/seed-N`.
///
/// # Errors
/// When the folder cannot be read.
pub fn begun(folder: &Path) -> Result<Vec<PathBuf>, RunError> {
    let mut runs = Vec::new();
    for variant in subfolders(folder)? {
        runs.extend(subfolders(&variant)?.into_iter().filter(|run| run.join(LEDGER_FILE).is_file()));
    }
    Ok(runs)
}

fn subfolders(folder: &Path) -> Result<Vec<PathBuf>, RunError> {
    let entries = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>();
    let mut paths = entries().map_err(files::failed("read", folder))?;
    paths.retain(|path| path.is_dir());
    paths.sort();
    Ok(paths)
}

/// What a run cost itself; what it imported of its sweep is imported from there.
fn import(run: &Path) -> Result<Import, RunError> {
    let home = RunFolder::at(run);
    let heads = home.shown_heads()?;
    let ledger = Ledger::open(home.read_store()?, None, &heads)?;
    let name = |path: Option<&Path>| path.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let what = format!("the run {}/{}", name(run.parent()), name(Some(run)));
    let import = ledger.as_import(ImportKind::SweepRun, what, !heads.is_empty());
    Ok(Import { event: ledger.guaranteed_event(), ..import })
}
