//! The run of a sweep that is kept, and the price of having looked at all of them (rule P15).
//!
//! Whoever chooses the best of several runs over the same users has used all of them. So the ledger of the chosen run imports
//! those of the others, and its statement gives its own epsilon and that of all runs together.

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

/// Records in the ledger of a run what the others cost, closes all of them, and writes its statement, report and model anew.
/// Done again, it records nothing twice. A run that was closed before the others were made cannot count them, and is refused. Returns where the run ended, and what all runs cost together, as the statement has it or would have
/// it if the noise were secret.
///
/// # Errors
/// When a ledger is damaged, protects something else, or the disk fails.
pub fn record(chosen: &Path, others: &[PathBuf], means: Means) -> Result<(Ending, Option<Epsilon>), RunError> {
    // What is closed costs what it cost: nobody goes on with another run after the choice.
    for other in others {
        with_run(other, means, |run, _| run.finish())?;
    }
    with_run(chosen, means, |run, plan| count(run, plan, others))
}

/// Goes on with the run of a folder.
fn with_run<T>(
    folder: &Path,
    means: Means,
    then: impl FnOnce(&mut Run<'_>, &Plan) -> Result<T, RunError>,
) -> Result<T, RunError> {
    let config = run::settings(folder)?;
    let opened = Opened::new(&config)?;
    let plan = Plan::new(config, &opened.setting())?;
    let mut run = Run::resume(folder, &plan, &opened, means)?;
    then(&mut run, &plan)
}

/// Counts the others in the chosen run, and ends it.
fn count(run: &mut Run<'_>, plan: &Plan, others: &[PathBuf]) -> Result<(Ending, Option<Epsilon>), RunError> {
    for other in others {
        run.count_sweep_run(import(other)?)?;
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
