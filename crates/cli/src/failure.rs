//! Turns errors into messages at the terminal.

use std::process::ExitCode;

use bench::BenchError;
use experiments::ExperimentError;
use federated::{
    config::ConfigError, engine::EngineError, forecast::ForecastError, released::ReleasedError, run::RunError,
    sweep::design::DesignError,
};
use pretraining::PretrainError;
use privacy::{UnitError, query::QueryError};
use thiserror::Error;

use crate::interrupt;

/// Something the user typed that cannot be meant.
#[derive(Debug, Clone, PartialEq, Error)]
pub(crate) enum BadInput {
    /// A field that is missing, out of place or wrong, or a question without an answer.
    #[error(transparent)]
    Asked(#[from] QueryError),
    /// Anything else that is refused, in words.
    #[error("{0}")]
    Refused(String),
}

impl BadInput {
    /// A field that is needed and was not given.
    pub(crate) fn missing(field: &'static str, why: impl Into<String>) -> Self {
        Self::Asked(QueryError::Missing { field, why: why.into() })
    }

    /// A field that has no meaning here.
    pub(crate) fn out_of_place(field: &'static str, with: impl Into<String>) -> Self {
        Self::Asked(QueryError::OutOfPlace { field, with: with.into() })
    }

    /// A field that is wrong.
    pub(crate) fn wrong(field: &'static str, problem: impl std::fmt::Display) -> Self {
        Self::Asked(QueryError::Wrong { field, problem: problem.to_string() })
    }

    /// A field whose value its unit does not admit.
    pub(crate) fn illegal(field: &'static str, error: &UnitError) -> Self {
        Self::out_of_range(field, error.problem())
    }

    /// A field whose value must be another.
    pub(crate) fn out_of_range(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Asked(QueryError::Illegal { field, problem: problem.into() })
    }

    /// The message in terms of flags: `--noise-multiplier` for `noise_multiplier`.
    fn in_flags(&self) -> String {
        let flag = |field: &str| format!("--{}", field.replace('_', "-"));
        let Self::Asked(asked) = self else { return self.to_string() };
        match asked {
            QueryError::Missing { field, why } => format!("{} is missing: {why}", flag(field)),
            QueryError::OutOfPlace { field, with } => format!("{} cannot be used with {with}", flag(field)),
            QueryError::Wrong { field, problem } => format!("{}: {problem}", flag(field)),
            QueryError::Illegal { field, problem } => format!("{} {problem}", flag(field)),
            other => other.to_string(),
        }
    }
}

/// What the user typed wrong, also where a library found it out.
fn bad_input(error: &anyhow::Error) -> Option<BadInput> {
    let of_query = || error.downcast_ref::<QueryError>().cloned().map(BadInput::from);
    let of_experiment = || error.downcast_ref().and_then(wrong_experiment);
    let of_pretraining = || error.downcast_ref().and_then(wrong_pretraining);
    let of_bench = || error.downcast_ref().and_then(wrong_bench);
    let of_forecast = || match error.downcast_ref() {
        Some(ForecastError::Config(error)) => Some(BadInput::Refused(error.to_string())),
        _ => None,
    };
    let of_run = || error.downcast_ref().and_then(wrong_run);
    let of_sweep = || error.downcast_ref().and_then(wrong_sweep);
    let known = error.downcast_ref::<BadInput>().cloned().or_else(of_run).or_else(of_forecast).or_else(of_sweep);
    let of_released = || match error.downcast_ref() {
        Some(ReleasedError::None | ReleasedError::Run { .. }) => Some(BadInput::Refused(error.to_string())),
        _ => None,
    };
    known.or_else(of_query).or_else(of_experiment).or_else(of_pretraining).or_else(of_bench).or_else(of_released)
}

/// What is wrong with settings is bad input.
pub(crate) fn of_config(error: &ConfigError) -> BadInput {
    BadInput::Refused(error.to_string())
}

/// Settings, folders and files that a person named are bad input; the rest has failed.
pub(crate) fn refused(error: RunError) -> anyhow::Error {
    wrong_run(&error).map_or_else(|| error.into(), Into::into)
}

/// The same, where it is only looked at.
fn wrong_run(error: &RunError) -> Option<BadInput> {
    match error {
        RunError::Evaluate(engine @ EngineError::Unavailable { .. }) => Some(BadInput::wrong("engine", engine)),
        other => is_refused(other).then(|| BadInput::Refused(other.to_string())),
    }
}

/// Whether a person can put it right in what they named.
const fn is_refused(error: &RunError) -> bool {
    matches!(
        error,
        RunError::Config(_)
            | RunError::OnDevices
            | RunError::Taken { .. }
            | RunError::NoRun { .. }
            | RunError::LedgerGone { .. }
            | RunError::OtherPlan { .. }
            | RunError::OtherArithmetic { .. }
            | RunError::SettingsChanged { .. }
            | RunError::StartChanged
            | RunError::GeneralTextChanged
            | RunError::DataChanged
            | RunError::UsersChanged
            | RunError::NoiseKeyChanged
            | RunError::RecognitionKeyMissing
            | RunError::Undecided { .. }
    )
}

/// A sweep that cannot be run as it was asked for is bad input.
fn wrong_sweep(error: &DesignError) -> Option<BadInput> {
    match error {
        DesignError::SameFolder { .. } => Some(BadInput::wrong("grid", error)),
        DesignError::Run(run) => wrong_run(run),
        DesignError::Grid(_) | DesignError::Settings { .. } | DesignError::DoNotCompose { .. } => {
            Some(BadInput::Refused(error.to_string()))
        }
    }
}

/// What cannot be measured as it was asked for is bad input; the rest has failed.
fn wrong_bench(error: &BenchError) -> Option<BadInput> {
    match error {
        BenchError::Zero { field } => Some(BadInput::out_of_range(field, "must be at least 1")),
        BenchError::Wrong { field, problem } => Some(BadInput::wrong(field, problem)),
        BenchError::Refused(_) | BenchError::Config(_) => Some(BadInput::Refused(error.to_string())),
        BenchError::Run(run) => wrong_run(run),
        BenchError::Model(_) | BenchError::Work(_) => None,
    }
}

/// What cannot be trained as it was asked for is bad input; the rest has failed.
fn wrong_pretraining(error: &PretrainError) -> Option<BadInput> {
    match error {
        PretrainError::Wrong { field, problem } => Some(BadInput::wrong(field, problem)),
        PretrainError::Model(error) => Some(BadInput::Refused(error.to_string())),
        PretrainError::Engine(EngineError::Trainer(error)) => Some(BadInput::wrong("model", error)),
        _ => None,
    }
}

/// What is wrong with an experiment as it stands is bad input; the rest has failed.
fn wrong_experiment(error: &ExperimentError) -> Option<BadInput> {
    match error {
        ExperimentError::Folder { .. } => Some(BadInput::wrong("experiments", error)),
        ExperimentError::Run(run) => wrong_run(run),
        ExperimentError::OfRun { error: run, .. } => wrong_run(run).map(|_| BadInput::Refused(error.to_string())),
        ExperimentError::Unknown { .. }
        | ExperimentError::Format { .. }
        | ExperimentError::Row { .. }
        | ExperimentError::Variant { .. }
        | ExperimentError::NoStart { .. }
        | ExperimentError::Texts { .. }
        | ExperimentError::OtherRun { .. }
        | ExperimentError::Plot { .. }
        | ExperimentError::Config(_) => Some(BadInput::Refused(error.to_string())),
        _ => None,
    }
}

/// Work that stopped because somebody asked for it, and what they should know.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct Interrupted(pub(crate) String);

/// Ends the program without a word when `println!` finds that nobody reads its output any more, as in `keyhush init --json | head -3`, and with an
/// error where the output cannot be written, as on a full disk. Other panics are shown as usual.
pub(crate) fn end_quietly_when_nobody_reads() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        if let Some(why) = said.strip_prefix("failed printing to stdout: ") {
            if why.contains("Broken pipe") {
                std::process::exit(0);
            }
            eprintln!("error: the output cannot be written: {why}");
            std::process::exit(1);
        }
        usual(panic);
    }));
}

/// Prints the error and says how to exit.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(io) = error.downcast_ref::<std::io::Error>()
        && io.kind() == std::io::ErrorKind::BrokenPipe
    {
        return ExitCode::SUCCESS; // the reader has seen enough
    }
    if let Some(Interrupted(said)) = error.downcast_ref() {
        eprintln!("{said}");
        return ExitCode::from(interrupt::EXIT_CODE);
    }
    if let Some(Told(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    let (words, code) = in_words(error);
    eprintln!("error: {words}");
    ExitCode::from(code)
}

/// What is to be said of an error, and with what the program exits.
fn in_words(error: &anyhow::Error) -> (String, u8) {
    match bad_input(error) {
        Some(bad) => (bad.in_flags(), 2),
        None => (format!("{error:#}"), 1),
    }
}

/// What went wrong was told already, in its own way; the program exits with this.
#[derive(Debug, Error)]
#[error("see above")]
pub(crate) struct Told(pub(crate) u8);

impl Told {
    /// Says it in another way than at a terminal.
    #[cfg(feature = "network")]
    pub(crate) fn by(error: &anyhow::Error, say: impl FnOnce(&str)) -> Self {
        let (words, code) = match error.downcast_ref() {
            Some(Interrupted(said)) => (said.clone(), interrupt::EXIT_CODE),
            None => in_words(error),
        };
        say(&words);
        Self(code)
    }
}
