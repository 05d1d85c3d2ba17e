//! Storage of a run: its ledger ([`Records`]) and everything else that it keeps ([`Home`]).
//!
//! A run asks for no more than this, so it can live in a folder ([`RunFolder`]), or where a server keeps it: a database, object
//! storage. The promises of a run rest on those of its home; `contract` (a feature, for tests) has them as a suite that every home
//! passes.
//!
//! | module      | what it is                                                                   |
//! |-------------|------------------------------------------------------------------------------|
//! | `folder`    | a run as a folder                                                            |
//! | `names`     | what its files are called                                                    |
//! | [`heads`]   | finds and checks the heads stored next to a ledger                          |
//! | [`lost`]    | the note beside a ledger whose end was lost                                   |

mod folder;
pub mod heads;
pub mod lost;
mod names;

use std::{
    error::Error,
    io::{self, Read, Write},
};

use durable::files::FileError;
use ledger::{Head, LedgerError, LedgerStore};
use lm::folder::Folder;
use thiserror::Error;

use self::heads::HeadsError;
pub use self::{
    folder::{RunFolder, model_in},
    names::{AUDIT_FILE, CONFIG_FILE, LEDGER_FILE, MODEL_FOLDER, STATEMENT_FILE, STATEMENT_JSON},
};
use crate::{model_folder::ModelFolderError, secrets::Secrets};

/// Why a home does not keep or give what it should.
#[derive(Debug, Error)]
pub enum HomeError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A model's folder.
    #[error(transparent)]
    Model(#[from] ModelFolderError),
    /// Whatever else a home is made of.
    #[error("{what}")]
    Other {
        /// What could not be done.
        what: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Small texts that a run keeps, each replaced at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Paper {
    /// The settings, resolved.
    Settings,
    /// The guarantee in words.
    Statement,
    /// The guarantee for programs.
    StatementJson,
    /// That the run is one of a sweep, until the choice among them is counted in its ledger.
    PartOfASweep,
    /// What the canaries of a run show.
    Audit,
}

/// A log of a run: one JSON object per line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Log {
    /// One line per evaluation.
    Metrics,
    /// One line per round; simulations only: how long a round took tells how many took part.
    Timing,
    /// Exact losses and norms, one line per round; simulations only, not private.
    Diagnostics,
    /// What the model suggests after public prompts, one line per evaluation, if it predicts words.
    Samples,
}

impl Log {
    /// A one-word name for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Timing => "timing",
            Self::Diagnostics => "diagnostics",
            Self::Samples => "samples",
        }
    }
}

/// A log that is being written.
pub trait LogWriter: Send {
    /// Appends a line, which has no end of line in it.
    ///
    /// # Errors
    /// When it cannot be written.
    fn append(&mut self, line: &str) -> Result<(), HomeError>;

    /// Makes what was appended durable.
    ///
    /// # Errors
    /// When it is not known to be durable.
    fn sync(&mut self) -> Result<(), HomeError>;
}

/// Writes a state to where it is given.
pub type WriteState<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// Storage of a run: settings, checkpoints, logs and results.
///
/// The contract: papers, states and models are there whole or not at all, and durable when a call returns; what was replaced is
/// never seen again.
pub trait Home {
    /// The display name.
    fn name(&self) -> String;

    /// A paper; none where there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    fn paper(&self, which: Paper) -> Result<Option<String>, HomeError>;

    /// Writes a paper, in the place of what was there.
    ///
    /// # Errors
    /// When it is not known to be durable.
    fn write_paper(&self, which: Paper, text: &str) -> Result<(), HomeError>;

    /// Removes a paper; nothing happens where there is none.
    ///
    /// # Errors
    /// When it may be there still.
    fn remove_paper(&self, which: Paper) -> Result<(), HomeError>;

    /// The rounds of which a state is kept, the newest first.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn states(&self) -> Result<Vec<u64>, HomeError>;

    /// A state.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    fn read_state(&self, round: u64) -> Result<Box<dyn Read + '_>, HomeError>;

    /// Writes the state after so many rounds. Where a time is said, in seconds since 1970, nothing that is kept shows another.
    ///
    /// # Errors
    /// When it is not known to be durable.
    fn write_state(&self, round: u64, time: Option<u64>, write: WriteState<'_>) -> Result<(), HomeError>;

    /// Removes a state.
    ///
    /// # Errors
    /// When it may be there still.
    fn remove_state(&self, round: u64) -> Result<(), HomeError>;

    /// What a state is called, for words.
    fn state_name(&self, round: u64) -> String;

    /// The whole lines of a log; none where there is no log.
    ///
    /// # Errors
    /// When they cannot be read.
    fn lines(&self, log: Log) -> Result<Vec<String>, HomeError>;

    /// Continues with a log, or begins it. Only whole lines that `keep` wants stay: what was being written in a crash, and what
    /// will be written again, goes.
    ///
    /// # Errors
    /// When it cannot be written.
    fn open_log(&self, log: Log, keep: &dyn Fn(&str) -> bool) -> Result<Box<dyn LogWriter>, HomeError>;

    /// Makes this the run's model.
    ///
    /// # Errors
    /// When it is not known to be durable.
    fn write_model(&self, model: &Folder) -> Result<(), HomeError>;

    /// Whether there is a model, whole or not.
    ///
    /// # Errors
    /// When that cannot be told.
    fn has_model(&self) -> Result<bool, HomeError>;
}

/// Storage of a run's ledger and secrets.
pub trait Records {
    /// What keeps the entries.
    type Store: LedgerStore;

    /// The secrets of the run.
    fn secrets(&self) -> Secrets;

    /// Whether a ledger was begun: its first entry is there, acknowledged or not.
    ///
    /// # Errors
    /// When that cannot be told.
    fn is_begun(&self) -> Result<bool, LedgerError>;

    /// A new store, which has no entries. Nobody else writes to it as long as it is there.
    ///
    /// # Errors
    /// When there is one already, or vectors of one that is gone.
    fn create_store(&self) -> Result<Self::Store, LedgerError>;

    /// The store for writing, what a crash interrupted brought to its end. Nobody else writes to it as long as it is there.
    ///
    /// # Errors
    /// Another writer, or damage.
    fn open_store(&self) -> Result<Self::Store, LedgerError>;

    /// The store for reading. Nothing is written, and a writer is not disturbed.
    ///
    /// # Errors
    /// Damage, or what cannot be read.
    fn read_store(&self) -> Result<Self::Store, LedgerError>;

    /// Heads of the ledger that were shown to anybody and that the home knows of, all of which lie on it. Nothing is written.
    ///
    /// # Errors
    /// When the ledger is damaged, rewound or forked.
    fn shown_heads(&self) -> Result<Vec<Head>, HeadsError>;
}
