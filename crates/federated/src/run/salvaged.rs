//! What is left of a run whose end was lost: its ledger from a backup, the statement of it, and the newest model that was kept.
//!
//! Nothing is continued and nothing is closed ([`crate::home::lost`]). No secret is needed, so anyone who has the backup can do it, and
//! everything that is written was released, or follows from what was.

use std::path::Path;

use durable::files;
use ledger::{Ledger, LedgerStore, statement::Statement};

use super::{
    Opened, RunError,
    ending::{folder, guarantee},
    is_undecided, known_heads, parsed, written_settings,
};
use crate::{
    checkpoint::Checkpoints,
    home::{CONFIG_FILE, Home, LEDGER_FILE, Log, MODEL_FOLDER, Records, STATEMENT_FILE, STATEMENT_JSON, lost::Lost},
    ledger_file::Place,
    metrics::METRICS_FILE,
    model_folder,
    plan::Plan,
    randomness::RunRandomness,
    round::{Loop, Replayed, State},
};

/// What was left of a run.
#[derive(Debug)]
pub struct Salvaged {
    /// The statement of its ledger. Where that is not closed it counts the whole plan.
    pub statement: Statement,
    /// How many rounds are behind its model; none where no model could be had.
    pub model_after: Option<u64>,
    /// What is missing, and the reason.
    pub warnings: Vec<String>,
}

/// Writes what is left of a run into a folder: ledger, who took part (as pseudonyms, for its owner alone), statement, settings, metrics and
/// the newest model. `lost` says how its end was lost, where it was.
///
/// # Errors
/// When the ledger is damaged, the run is one of a sweep that is not decided, or the disk fails.
pub fn salvage(home: &(impl Home + Records), lost: Option<Lost>, into: &Path) -> Result<Salvaged, RunError> {
    if is_undecided(home)? {
        return Err(RunError::Undecided { run: home.name() });
    }
    let heads = known_heads(home)?;
    let ledger = Ledger::open(home.read_store()?, None, &heads)?;
    let statement = Statement::of(&ledger)?;
    let settings = written_settings(home)?;
    files::make_folder(into)?;
    let (mut warnings, is_closed) = (ledger.warnings().to_vec(), ledger.is_closed());
    let model_after = match model(home, ledger, &settings, &statement, into) {
        Ok((round, others)) => {
            warnings.extend(others);
            round
        }
        Err(error) => {
            warnings.push(format!("no model: {error}"));
            None
        }
    };
    files::write(&into.join(CONFIG_FILE), settings.as_bytes())?;
    let lines: String = home.lines(Log::Metrics)?.iter().map(|line| format!("{line}\n")).collect();
    files::write(&into.join(METRICS_FILE), lines.as_bytes())?;
    files::write(&into.join(STATEMENT_FILE), statement.to_markdown().as_bytes())?;
    let json =
        serde_json::to_string_pretty(&statement).map_err(|e| ledger::LedgerError::storage("the statement", e))?;
    files::write(&into.join(STATEMENT_JSON), json.as_bytes())?;
    let place = into.join(LEDGER_FILE);
    if let (Some(lost), false) = (lost, is_closed) {
        lost.write(&place)?;
    }
    Place::new(place).copy(&home.read_store()?)?;
    Ok(Salvaged { statement, model_after, warnings })
}

/// Writes the newest model, where there is one: that of the newest state, whose releases are all in the ledger.
fn model<S: LedgerStore>(
    home: &dyn Home,
    ledger: Ledger<S>,
    settings: &str,
    statement: &Statement,
    into: &Path,
) -> Result<(Option<u64>, Vec<String>), RunError> {
    let config = parsed(settings)?;
    let opened = Opened::new(&config)?;
    let plan = Plan::new(config, &opened.setting())?;
    let id = ledger.opening().id;
    let mut states = Checkpoints::new(id, "");
    if let Some(theirs) = states.other_arithmetic(home)? {
        states = Checkpoints::new(id, &theirs);
    }
    let (found, mut warnings) = states.newest(home, &plan)?;
    let Some(found) = found else { return Ok((None, warnings)) };
    ledger.check_head(&found.head)?;
    // What was released since is applied again; nothing is drawn, and nothing is recorded.
    let mut rounds = Loop::new(&plan, opened.learner(), RunRandomness::over(), ledger, found.state, 1);
    loop {
        match rounds.replay() {
            Ok(Replayed::Nothing) => break,
            Ok(_) => {}
            // A vector that is not stored any more: the model is that of the rounds before it.
            Err(error) => {
                warnings.push(format!("the model is that of earlier rounds: {error}"));
                break;
            }
        }
    }
    let State { round, model, .. } = rounds.state();
    let into = into.join(MODEL_FOLDER);
    model_folder::write(&folder(&plan, &opened, model.clone(), guarantee(statement)), &into)?;
    Ok((Some(*round), warnings))
}
