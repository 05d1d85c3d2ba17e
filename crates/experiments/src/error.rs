//! Errors of experiments, and what to do about them.

use std::path::PathBuf;

use durable::files::FileError;
use federated::{config::ConfigError, engine::EngineError, model_folder::ModelFolderError, run::RunError};
use report::{ReportError, chart::ChartError};
use thiserror::Error;

/// An experiment cannot be read, or cannot continue.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// The folder of the experiments.
    #[error(
        "{}: {problem}; name the folder with the experiments, or leave it out for the built-in ones",
        folder.display()
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// There is no such experiment.
    #[error("no experiment is called {name:?}; choose one of {}", known.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: Vec<String>,
    },
    /// `experiment.toml` cannot be meant.
    #[error("{}: {problem}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// A row that cannot be computed.
    #[error("row {name}: {problem}")]
    Row {
        /// Its name, or its number.
        name: String,
        /// The cause.
        problem: String,
    },
    /// A variant that cannot be run.
    #[error("variant {name:?}: {problem}")]
    Variant {
        /// Its name.
        name: String,
        /// The cause.
        problem: String,
    },
    /// The folder with the texts of an experiment about forgetting.
    #[error("{}: {problem}", path.display())]
    Texts {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A variant starts from one that has no such run.
    #[error("variant {name:?} has no run to start from")]
    NoStart {
        /// The one to start from.
        name: String,
    },
    /// A picture without a point.
    #[error("plot: no variant has a number at x = {x:?}")]
    Plot {
        /// What was to be drawn over.
        x: String,
    },
    /// The settings are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A run's text cannot be opened.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run of many cannot be planned.
    #[error("{label}: {error}")]
    OfRun {
        /// Its variant and seed.
        label: String,
        /// The underlying error.
        error: Box<RunError>,
    },
    /// The folder of a run has another one.
    #[error("{} holds a run with different settings; choose another folder, or remove it", folder.display())]
    OtherRun {
        /// Its name.
        folder: PathBuf,
    },
    /// Somebody wanted to stop.
    #[error("interrupted in {label}; nothing is lost")]
    Stopped {
        /// The run that was in progress.
        label: String,
    },
    /// A run left no model that was trained.
    #[error("{} holds no trained model", folder.display())]
    NotTrained {
        /// Its folder.
        folder: PathBuf,
    },
    /// A last model cannot be measured.
    #[error(transparent)]
    Evaluate(#[from] EngineError),
    /// A picture cannot be drawn.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// A page cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A model's folder.
    #[error(transparent)]
    Model(#[from] ModelFolderError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// What came out cannot be written as JSON.
    #[error("results.json: {0}")]
    Json(#[from] serde_json::Error),
}
