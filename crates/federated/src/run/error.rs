//! Why a run cannot start, resume or end, and what to do.

use ledger::LedgerError;
use privacy::audit::AuditError;
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

/// Why a run cannot continue.
#[derive(Debug, Error)]
pub enum RunError {
    /// The text is not here.
    #[error(
        "data.kind = \"devices\" needs keyhush serve, since the text is on devices; to simulate, use \"synthetic\" or \"store\""
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
    /// The audit with canaries failed.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A round.
    #[error(transparent)]
    Round(Box<RoundError>),
    /// An evaluation failed.
    #[error(transparent)]
    Evaluate(#[from] EngineError),
    /// A learner whose numbers have no place in the files of a run.
    #[error("the metrics of the learner {learner:?} are not in the registry")]
    NotMeasured {
        /// The learner's name in settings.
        learner: &'static str,
    },
    /// There is a run already.
    #[error("{run} already holds a run; resume it with --resume {run}, or choose another folder")]
    Taken {
        /// The run's folder.
        run: String,
    },
    /// There is no run.
    #[error("no run to resume in {run}")]
    NoRun {
        /// The run's folder.
        run: String,
    },
    /// What came of releases is there, and their ledger is not (rule P17).
    #[error(
        "the ledger of {run} is missing, but checkpoints, a statement or a model from it exist; restore the whole ledger, or start in another folder"
    )]
    LedgerGone {
        /// The run's folder.
        run: String,
    },
    /// No checkpoint can be used.
    #[error(
        "no usable checkpoint: {problems}. Restore one, or end the run with keyhush train --end DIR --without-model"
    )]
    NoCheckpoint {
        /// What is wrong with each.
        problems: String,
    },
    /// The engine, its precision or its size are not those of the beginning.
    #[error(
        "the run was computed with {theirs}, but this would be {ours}; a run must be resumed with the same arithmetic. Use the same --engine, --precision and kernels (KEYHUSH_KERNELS), and a GPU with room for as many users at a time"
    )]
    OtherArithmetic {
        /// With what it was computed.
        theirs: String,
        /// The arithmetic of this program.
        ours: String,
    },
    /// The settings of the folder are not those of its ledger.
    #[error(
        "the settings of {run} (config.toml) differ from those its ledger was begun with; a plan cannot change after its start"
    )]
    OtherPlan {
        /// The run's folder.
        run: String,
    },
    /// The settings are not those that the run began with.
    #[error(
        "the settings differ from those the run began with: {}. Restore them (config.toml of a run, TASK.toml of a server), or start another run; a task with other settings or more budget is a new task that counts the ledger of this one (devices.after)",
        changes.join("; ")
    )]
    SettingsChanged {
        /// The changed keys.
        changes: Vec<String>,
    },
    /// The key by which a run recognises its data is gone, and the run is not closed.
    #[error(
        "secret/ledger.jsonl.pseudonym-key is missing or damaged, so data and settings cannot be compared with those the run began with; restore it, or end the run with keyhush train --end DIR --without-model"
    )]
    RecognitionKeyMissing,
    /// The noise key is another.
    #[error("the noise key in secret/ is not the one the run began with; restore the key that belongs to this ledger")]
    NoiseKeyChanged,
    /// The model that the run started from is another.
    #[error("the model that the run started from has changed; restore it, or start another run")]
    StartChanged,
    /// What devices rehearse is not what it was.
    #[error(
        "the general text (finetune.public_text) has changed since the run began; restore it, or start another run"
    )]
    GeneralTextChanged,
    /// The store is not what it was.
    #[error(
        "the store has changed since the run began; restore it, or, if it had to change (a user asked to be erased), give the reason with --data-changed \"...\", which ledger and statement will record"
    )]
    DataChanged,
    /// Other users, where who took part and how often is counted by them.
    #[error(
        "the users of the store differ from those the run began with, so the participation limits of this plan cannot be enforced; keep erased users in the store without text, or start another run"
    )]
    UsersChanged,
    /// A run of a sweep that was chosen and closed, and does not count a later one.
    #[error(
        "{run} was closed without counting {other}, and its statement cannot be changed; choose another run, or run the sweep in another folder"
    )]
    ChosenBefore {
        /// The run.
        run: String,
        /// The one that it does not count.
        other: String,
    },
    /// A run of a sweep cannot be taken by itself: its price is that of all of them (rule P22).
    #[error(
        "{run} belongs to a sweep that has not finished, so its cost is not known yet; run the same keyhush sweep command again to end all of its runs"
    )]
    Undecided {
        /// The run.
        run: String,
    },
    /// What the run began with is not kept.
    #[error(
        "secret/ does not record what the run began with, so data and settings cannot be compared; restore {place}"
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
