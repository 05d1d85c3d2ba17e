//! Errors of pretraining, and what to do about them.

use std::path::PathBuf;

use durable::files::FileError;
use federated::{engine::EngineError, model_folder::ModelFolderError};
use lm::model::config::ConfigError;
use thiserror::Error;

/// A run that cannot begin or go on.
#[derive(Debug, Error)]
pub enum PretrainError {
    /// Something that was asked for cannot be meant.
    #[error("{field}: {problem}")]
    Wrong {
        /// What: `data`, `valid`, `model`, `out`, `resume`, or a field of the schedule.
        field: &'static str,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A model that cannot be built.
    #[error(transparent)]
    Model(#[from] ConfigError),
    /// A checkpoint that cannot be used.
    #[error("{} is damaged: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// Parameters that are no numbers any more.
    #[error(
        "the loss became NaN in epoch {epoch}; start again with a smaller --learning-rate, or with --clip-gradients"
    )]
    Exploded {
        /// The epoch.
        epoch: u32,
    },
    /// The engine cannot train, or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder of the model.
    #[error(transparent)]
    Folder(#[from] ModelFolderError),
}

impl PretrainError {
    pub(crate) fn wrong(field: &'static str, problem: impl std::fmt::Display) -> Self {
        Self::Wrong { field, problem: problem.to_string() }
    }
}
