//! Why a measurement is impossible.

use federated::{config::ConfigError, model_folder::ModelFolderError, run::RunError};
use thiserror::Error;

/// What is measured is work of every kind: its errors are passed on as they are.
pub type WorkError = Box<dyn std::error::Error + Send + Sync>;

/// Why a measurement failed.
#[derive(Debug, Error)]
pub enum BenchError {
    /// Something of which at least one is needed.
    #[error("{field} must be at least 1")]
    Zero {
        /// The field's name.
        field: &'static str,
    },
    /// Something that cannot be meant.
    #[error("{field}: {problem}")]
    Wrong {
        /// The field's name.
        field: &'static str,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// What is asked for contradicts itself.
    #[error(transparent)]
    Refused(WorkError),
    /// Settings of a run that are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A run that cannot begin or go on.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The folder of a model.
    #[error(transparent)]
    Model(#[from] ModelFolderError),
    /// The work that is measured failed, whatever it is.
    #[error(transparent)]
    Work(#[from] WorkError),
}

impl BenchError {
    pub(crate) fn wrong(field: &'static str, problem: impl std::fmt::Display) -> Self {
        Self::Wrong { field, problem: problem.to_string() }
    }

    pub(crate) fn refused(error: impl Into<WorkError>) -> Self {
        Self::Refused(error.into())
    }

    pub(crate) fn failed(error: impl Into<WorkError>) -> Self {
        Self::Work(error.into())
    }
}
