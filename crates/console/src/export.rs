//! What people take home of a task: its ledger, its statement, how well its models did, and, once it is over, its model.
//!
//! Every file is what is released, except the table of who took part. It is there once the task is over, has pseudonyms whose key is gone, and is for
//! operators: how many took part in a round is nobody else's business (rules P11 and P26).

use federated::{
    home::{Home, LEDGER_FILE, Log, Records, STATEMENT_FILE, STATEMENT_JSON},
    metrics::METRICS_FILE,
    run::RunError,
};
use ledger::{Ledger, LedgerStore, statement::Statement};
use lm::folder::{CARD_FILE, CONFIG_FILE, VOCABULARY_FILE, WEIGHTS_FILE};
use server::{
    state::{State, TaskState},
    tasks::ServeError,
};

/// A file that can be exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Its name, which is that in the folder of a finished task.
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// What it is, for people.
    pub about: &'static str,
    /// Whether it is for operators alone.
    pub for_operators: bool,
    /// Whether it is there only when the task is over.
    when_over: bool,
    /// Whether it is a part of the model, which a task that was ended without one lacks.
    of_model: bool,
}

const LINES: &str = "application/x-ndjson";
const MARKDOWN: &str = "text/markdown; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
const PARTICIPATIONS: &str = "ledger.jsonl.participations";
/// The file with the head of the ledger.
pub(crate) const HEAD: &str = "ledger.jsonl.head";

const fn file(name: &'static str, kind: &'static str, about: &'static str) -> File {
    File { name, kind, about, for_operators: false, when_over: false, of_model: false }
}

const fn of_model(name: &'static str, kind: &'static str, about: &'static str) -> File {
    File { when_over: true, of_model: true, ..file(name, kind, about) }
}

/// All files of a task that is over.
const FILES: [File; 10] = [
    file(LEDGER_FILE, LINES, "the ledger"),
    file(HEAD, TEXT, "the ledger's head"),
    file(STATEMENT_FILE, MARKDOWN, "the privacy statement"),
    file(STATEMENT_JSON, JSON, "the privacy statement, for programs"),
    file(METRICS_FILE, LINES, "the metrics"),
    of_model(WEIGHTS_FILE, BYTES, "the model"),
    of_model(CONFIG_FILE, JSON, "the model's shape"),
    of_model(VOCABULARY_FILE, TEXT, "the model's vocabulary"),
    of_model(CARD_FILE, MARKDOWN, "the model card"),
    File {
        for_operators: true,
        when_over: true,
        ..file(PARTICIPATIONS, LINES, "who took part, as pseudonyms whose key is destroyed; outside the guarantee")
    },
];

/// The files that there are of a task; none where it is not begun.
///
/// # Errors
/// When its state cannot be read.
pub fn files<S: State>(state: &S, task: &str) -> Result<Vec<File>, ServeError> {
    let task = state.read_task(task)?;
    let home = task.home();
    if !home.is_begun()? {
        return Ok(Vec::new());
    }
    let is_over = Ledger::open(home.read_store()?, None, &[])?.is_closed();
    let has_model = is_over && home.has_model().map_err(RunError::from)?;
    let there = |file: &File| (is_over || !file.when_over) && (has_model || !file.of_model);
    Ok(FILES.into_iter().filter(there).collect())
}

/// The bytes of one of them.
///
/// # Errors
/// When its state cannot be read.
pub fn bytes<S: State>(state: &S, task: &str, file: File) -> Result<Vec<u8>, ServeError> {
    let task = state.read_task(task)?;
    let home = task.home();
    let opened = || Ok::<_, ServeError>(Ledger::open(home.read_store()?, None, &[])?);
    Ok(match file.name {
        LEDGER_FILE => {
            let store = home.read_store()?;
            let length = usize::try_from(store.head()?.length).unwrap_or(usize::MAX);
            let mut lines = String::new();
            for entry in store.read(0)?.take(length) {
                lines.push_str(&entry?.line());
                lines.push('\n');
            }
            lines.into_bytes()
        }
        HEAD => format!("{}\n", opened()?.head()).into_bytes(),
        STATEMENT_FILE => Statement::of(&opened()?)?.to_markdown().into_bytes(),
        STATEMENT_JSON => serde_json::to_vec_pretty(&Statement::of(&opened()?)?).unwrap_or_default(),
        METRICS_FILE => {
            let lines = home.lines(Log::Metrics).map_err(RunError::from)?;
            lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes()
        }
        PARTICIPATIONS => {
            let mut lines = String::new();
            for record in home.read_store()?.participations()?.into_iter().flatten() {
                lines.push_str(record?.line());
                lines.push('\n');
            }
            lines.into_bytes()
        }
        part => {
            let model = task.model()?;
            let part = model.map(|files| match part {
                WEIGHTS_FILE => files.weights,
                CONFIG_FILE => files.config.into_bytes(),
                VOCABULARY_FILE => files.vocabulary.into_bytes(),
                _ => files.card.into_bytes(),
            });
            part.unwrap_or_default()
        }
    })
}
