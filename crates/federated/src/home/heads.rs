//! Finds the heads stored next to a ledger, and checks that the ledger is the one they were taken from (rule P17).
//!
//! A ledger that was cut at an entry boundary, its witness with it, is a valid shorter chain. But a run leaves its head in many
//! places, and an attacker who truncates the ledger must change all of them: the statement, the model, the checkpoints, other witnesses,
//! and the released vectors, whose names are the indices of their entries. A ledger that does not lie on all of these is
//! rewound or forked, and it is neither continued nor used for a statement.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::ledger_file::Place;
use ledger::{Head, LedgerError};
use lm::folder::WEIGHTS_FILE;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use super::names::{CHECKPOINTS, LEDGER_FILE, MODEL_FOLDER, STATE, STATEMENT_JSON, list};
use durable::files::{self, FileError};

/// A head, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The file.
    pub place: PathBuf,
    /// The head it contains.
    pub head: Head,
}

/// Why a head cannot be had, or contradicts the ledger.
#[derive(Debug, Error)]
pub enum HeadsError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The ledger itself.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A file without one.
    #[error("{} does not hold a ledger head: {problem}", place.display())]
    None {
        /// The path.
        place: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// The ledger is another, or a shorter one.
    #[error(
        "{} does not belong to this ledger, or the ledger was truncated: {error}; restore the whole ledger from a copy, and do not continue with this one",
        place.display()
    )]
    Contradicted {
        /// The file of the head.
        place: PathBuf,
        /// The contradiction.
        error: Box<LedgerError>,
    },
}

/// Checks a ledger against everything stored next to it, and returns the heads found there, all on the chain. Nothing
/// is written.
///
/// # Errors
/// When the ledger is damaged, rewound or forked.
pub fn check(ledger: &Path) -> Result<Vec<Shown>, HeadsError> {
    // A ledger that is being written only grows: what is to lie on it is read first.
    let (heads, vectors) = (beside(ledger)?, vectors(ledger)?);
    let opened = Place::new(ledger).read(&[])?;
    for Shown { place, head } in &heads {
        let contradicted = |error| HeadsError::Contradicted { place: place.clone(), error: Box::new(error) };
        opened.check_head(head).map_err(contradicted)?;
    }
    // A vector stands here when its entry is durable, and not before.
    let have = opened.head().length;
    match vectors.into_iter().find(|(entry, _)| *entry >= have) {
        Some((entry, place)) => Err(LedgerError::Orphan { place: place.display().to_string(), entry, have }.into()),
        None => Ok(heads),
    }
}

/// The heads in the folder of a run, beside its ledger; none beside a ledger of another name. What cannot be read is left to
/// the code that needs it.
///
/// # Errors
/// When a folder cannot be listed.
pub fn beside(ledger: &Path) -> Result<Vec<Shown>, FileError> {
    if ledger.file_name().is_none_or(|name| name != LEDGER_FILE) {
        return Ok(Vec::new());
    }
    let at = |name: &str| ledger.with_file_name(name);
    let mut places = vec![at(STATEMENT_JSON), at(MODEL_FOLDER)];
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let states = list(&at(CHECKPOINTS))?.into_iter();
    places.extend(
        states.filter(|path| name(path).is_some_and(|name| name.ends_with(STATE) || name.ends_with(STATE_BEFORE))),
    );
    let witnesses = list(files::folder(ledger))?.into_iter().filter_map(|path| name(&path));
    let is_witness = |name: &String| name.starts_with(LEDGER_FILE) && name.ends_with(".head");
    places.extend(witnesses.filter(is_witness).map(|name| at(&name)));
    places.sort();
    let shown = |place: PathBuf| in_file(&place).ok().map(|head| Shown { place, head });
    Ok(places.into_iter().filter_map(shown).collect())
}

/// The head that a file holds: a witness (`FILE.head`), a `statement.json`, a checkpoint, or the folder of a model.
///
/// # Errors
/// When there is none in it.
pub fn in_file(place: &Path) -> Result<Head, HeadsError> {
    let none = |problem: String| HeadsError::None { place: place.to_owned(), problem };
    if place.is_dir() {
        let said = of_tensors(&place.join(WEIGHTS_FILE)).map_err(|error| none(error.to_string()))?;
        let said = said.as_str().ok_or_else(|| none("the model has no guarantee and names no ledger".into()))?;
        return said.parse().map_err(|error| none(format!("{error}")));
    }
    let said = match place.extension().and_then(|e| e.to_str()) {
        Some("safetensors") => of_tensors(place).map_err(|error| none(error.to_string()))?,
        Some("state") => header(place).map_err(|error| none(error.to_string()))?["ledger_head"].clone(),
        Some("json") => {
            let text = files::read_text(place)?;
            serde_json::from_str::<Value>(&text).map_err(|error| none(error.to_string()))?["ledger"]["head"].clone()
        }
        _ => Value::from(files::read_text(place)?.trim_end()),
    };
    let said = said.as_str().ok_or_else(|| none("not a head file, statement, checkpoint or model".into()))?;
    said.parse().map_err(|error| none(format!("{error}")))
}

/// What the name of a state ended with in versions before this one.
const STATE_BEFORE: &str = ".state";

/// The head that safetensors name, a model or a checkpoint.
fn of_tensors(path: &Path) -> io::Result<Value> {
    Ok(header(path)?["__metadata__"]["ledger_head"].clone())
}

/// The header of safetensors, and of the states of versions before: its length, then JSON.
fn header(path: &Path) -> io::Result<Value> {
    /// No header of ours is longer.
    const LONGEST: u64 = 1 << 24;
    let mut file = fs::File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let mut header = Vec::new();
    file.take(u64::from_le_bytes(length).min(LONGEST)).read_to_end(&mut header)?;
    Ok(serde_json::from_slice(&header)?)
}

/// The released vectors that are stored beside a ledger, by the index of their entry.
fn vectors(ledger: &Path) -> Result<Vec<(u64, PathBuf)>, FileError> {
    let name = ledger.file_name().unwrap_or_default().to_string_lossy();
    let paths = list(&ledger.with_file_name(format!("{name}.released")))?;
    let index = |path: PathBuf| Some((path.file_name()?.to_str()?.strip_suffix(".bin")?.parse().ok()?, path));
    let mut vectors: Vec<(u64, PathBuf)> = paths.into_iter().filter_map(index).collect();
    vectors.sort_unstable();
    Ok(vectors)
}
