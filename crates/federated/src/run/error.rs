//! Why a run cannot begin, go on or end: what is wrong, and what to do.

use ledger::LedgerError;
use thiserror::Error;

use crate::{
    config::ConfigError,
    engine::EngineError,
    home::{HomeError, heads::HeadsError},
    model_folder::ModelFolderError,
    population::EachPostError,
    round::RoundError,
};
use durable::files::FileError;

/// Why a run cannot go on.
#[derive(Debug, Error)]
pub enum RunError {
    /// The text is not here.
    #[error(
        "data.kind = \"devices\": the text is on devices, which take part through keyhush serve; to simulate, take \"synthetic\" or \"store\""
    )]
    OnDevices,
    /// The settings are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A model's folder.
    #[error(transparent)]
    Model(#[from] ModelFolderError),
    /// The text.
    #[error(transparent)]
    Text(#[from] corpus::store::StoreError),
    /// Posts as units.
    #[error(transparent)]
    Posts(#[from] EachPostError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Whatever else the run lives in.
    #[error(transparent)]
    Home(HomeError),
    /// A head beside the ledger that is not its own.
    #[error(transparent)]
    Heads(Box<HeadsError>),
    /// A round.
    #[error(transparent)]
    Round(Box<RoundError>),
    /// An evaluation.
    #[error(transparent)]
    Evaluate(#[from] EngineError),
    /// A learner whose numbers have no place in the files of a run.
    #[error("the numbers that the learner {learner:?} is measured by are not in the registry of metrics")]
    NotMeasured {
        /// As settings name it.
        learner: &'static str,
    },
    /// There is a run already.
    #[error("{run} holds a run already: go on with --resume {run}, or choose another folder")]
    Taken {
        /// Where.
        run: String,
    },
    /// There is no run.
    #[error("there is no run to go on with in {run}")]
    NoRun {
        /// Where.
        run: String,
    },
    /// What came of releases is there, and their ledger is not (rule P17).
    #[error(
        "the ledger of {run} is gone, and what it had released is there (checkpoints, a statement, a model): put the whole ledger back, or begin in another folder"
    )]
    LedgerGone {
        /// Where.
        run: String,
    },
    /// No checkpoint can be used.
    #[error(
        "no checkpoint can be used: {problems}. Put one back that is whole, or end the run with keyhush train --end DIR --without-model"
    )]
    NoCheckpoint {
        /// What is wrong with each.
        problems: String,
    },
    /// The engine, its precision or its size are not those of the beginning.
    #[error(
        "the run was computed with {theirs}, and this would be {ours}: a run goes on with what it began with. Take the same --engine and --precision, and kernels (KEYHUSH_KERNELS), and a card with room for as many users at a time"
    )]
    OtherArithmetic {
        /// With what it was computed.
        theirs: String,
        /// With what it would be.
        ours: String,
    },
    /// The settings of the folder are not those of its ledger.
    #[error(
        "the settings of {run} (config.toml) are not what its ledger was begun with; a plan is fixed before its first round"
    )]
    OtherPlan {
        /// Where.
        run: String,
    },
    /// The settings are not those that the run began with.
    #[error(
        "the settings are not those that the run began with: {}. Put them back as they were (config.toml of a run, TASK.toml of a server), or begin another",
        changes.join("; ")
    )]
    SettingsChanged {
        /// What changed.
        changes: Vec<String>,
    },
    /// The key by which a run recognises its data is gone, and the run is not closed.
    #[error(
        "secret/ledger.jsonl.pseudonym-key is missing or damaged, so it cannot be told whether data and settings are those that the run began with: put it back, or end the run with keyhush train --end DIR --without-model"
    )]
    RecognitionKeyMissing,
    /// The noise key is another.
    #[error(
        "the noise key in secret/ is not the one that the run began with: put back the one that belongs to this ledger"
    )]
    NoiseKeyChanged,
    /// The model that the run started from is another.
    #[error("the model that the run started from is not what it was: put it back, or begin another run")]
    StartChanged,
    /// The store is not what it was.
    #[error(
        "the store is not the one that the run began with: put it back, or, if it had to change (somebody asked to be erased), say why with --data-changed \"...\", which the ledger and the statement will repeat"
    )]
    DataChanged,
    /// Other users, where who took part and how often is counted by them.
    #[error(
        "the users of the store are not those that the run began with, so it cannot be told how often each of them took part, and the limits of this plan cannot be kept: leave erased users in the store without any text, or begin another run"
    )]
    UsersChanged,
    /// A run of a sweep that was chosen and closed, and does not count a later one.
    #[error(
        "{run} was closed without counting {other}, and its statement cannot count it any more: choose another run, or make the sweep in another folder"
    )]
    ChosenBefore {
        /// The run.
        run: String,
        /// The one that it does not count.
        other: String,
    },
    /// A run of a sweep cannot be taken by itself: its price is that of all of them (rule P22).
    #[error(
        "{run} is a run of a sweep that is not decided, and what it costs is not known before: run the same keyhush sweep again, which ends all of its runs"
    )]
    Undecided {
        /// The run.
        run: String,
    },
    /// What the run began with is not kept.
    #[error(
        "secret/ does not say what the run began with, so it cannot be told whether data and settings are the same: put back {place}"
    )]
    BeginningMissing {
        /// The file.
        place: &'static str,
    },
}

impl From<HomeError> for RunError {
    fn from(error: HomeError) -> Self {
        match error {
            HomeError::File(error) => Self::File(error),
            HomeError::Model(error) => Self::Model(error),
            other @ HomeError::Other { .. } => Self::Home(other),
        }
    }
}

impl From<RoundError> for RunError {
    fn from(error: RoundError) -> Self {
        Self::Round(Box::new(error))
    }
}

impl From<HeadsError> for RunError {
    fn from(error: HeadsError) -> Self {
        match error {
            HeadsError::Ledger(error) => Self::Ledger(error),
            other => Self::Heads(Box::new(other)),
        }
    }
}
