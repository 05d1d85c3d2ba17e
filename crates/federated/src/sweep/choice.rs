//! The run of a sweep that is kept, and the price of having looked at all of them (rule P15).
//!
//! Whoever chooses the best of several runs over the same users has used all of them. So the ledger of every run imports those
//! of the others before it is closed, and its statement gives the epsilon of all runs together.

use std::{
    fs,
    path::{Path, PathBuf},
};

use privacy::{
    Epsilon, PrivacyEvent,
    ledger::{Head, Import, ImportKind, file::Place},
};

use crate::{
    config::ConfigError,
    files,
    plan::Plan,
    run::{self, Ending, LEDGER_FILE, Means, Opened, Run, RunError, STATEMENT_JSON},
};

/// Counts in each run of a sweep what all the others cost, closes all of them, and writes their statements, reports and models
/// anew: whichever of them is taken later carries the price of all. Done again, it records nothing twice. Returns where the
/// chosen run ended, and what all runs cost together, as its statement has it or would have it if the noise were secret.
///
/// # Errors
/// When a ledger is damaged, protects something else, or the disk fails; and when the chosen run was closed before another of
/// them was made, so that it cannot count it.
pub fn record(chosen: &Path, others: &[PathBuf], means: Means) -> Result<(Ending, Option<Epsilon>), RunError> {
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

/// Counts all the others in a run, and ends it for good.
fn count(folder: &Path, imports: &[(&Path, Import)], means: Means) -> Result<(Ending, Option<Epsilon>), RunError> {
    let config = run::settings(folder)?;
    let opened = Opened::new(&config)?;
    let plan = Plan::new(config, &opened.setting())?;
    let mut run = Run::resume(folder, &plan, &opened, means)?;
    for (_, other) in imports.iter().filter(|(other, _)| *other != folder) {
        run.count_sweep_run(other.clone())?;
    }
    let ending = run.finish()?;
    let asked = &plan.ledger;
    let judge = |event: PrivacyEvent| asked.accountant.judge_group(&event, asked.delta, asked.group);
    let together = run.ledger().guaranteed_sweep_event().map(judge).transpose();
    let together = together.map_err(|e| ConfigError::new("privacy.accountant", e))?;
    Ok((ending, together.map(|judged| judged.epsilon)))
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
    let head = stated_head(run);
    let heads: Vec<Head> = head.into_iter().collect();
    let ledger = Place::new(run.join(LEDGER_FILE)).read(&heads)?;
    let name = |path: Option<&Path>| path.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let what = format!("the run {}/{}", name(run.parent()), name(Some(run)));
    let import = ledger.as_import(ImportKind::SweepRun, what, !heads.is_empty());
    Ok(Import { event: ledger.guaranteed_event(), ..import })
}

/// The head that the statement of a run names, where there is one.
fn stated_head(run: &Path) -> Option<Head> {
    let text = files::read_text(&run.join(STATEMENT_JSON)).ok()?;
    let statement: serde_json::Value = serde_json::from_str(&text).ok()?;
    serde_json::from_value(statement.get("ledger")?.get("head")?.clone()).ok()
}
