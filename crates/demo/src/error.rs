//! Why there is no demo.

use std::{io, path::PathBuf};

use agent::AgentError;
use console::ConsoleError;
use federated::{config::ConfigError, run::RunError};
use server::{sqlite::DatabaseError, state::StateError, tasks::ServeError};
use thiserror::Error;

/// Why a demo cannot begin, or does not go on.
#[derive(Debug, Error)]
pub enum DemoError {
    /// A number that is out of range.
    #[error("must be from {least} to {most}, got {got}")]
    OutOfRange {
        /// The flag that it was given with.
        field: &'static str,
        /// The smallest number allowed.
        least: u64,
        /// The largest number allowed.
        most: u64,
        /// The number that was given.
        got: u64,
    },
    /// Each device has a connection, which is a file at both of its ends.
    #[error(
        "{devices} devices need up to {needed} open files, and this system lets a process have {possible}; use at most {most} devices, or allow more files (ulimit -n)"
    )]
    Files {
        /// The devices that were asked for.
        devices: u64,
        /// The files that they need.
        needed: u64,
        /// The files that there are for a process.
        possible: u64,
        /// The devices for which these are enough.
        most: u64,
    },
    /// The folder to keep has something in it.
    #[error("{} exists and is not an empty folder; choose another name, and it will be created", folder.display())]
    Taken {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder cannot be made, read or deleted.
    #[error("cannot {what} {}: {error}", path.display())]
    Folder {
        /// What was tried.
        what: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// Why that fails.
        error: io::Error,
    },
    /// Nothing happened for too long.
    #[error(
        "no round ended within {seconds} s, and the demo was stopped. Either this machine is too busy ({last}), or no device may take part again; try fewer devices (--devices 50), or run it when the machine is idle"
    )]
    Stuck {
        /// How long it was waited.
        seconds: u64,
        /// What was heard last.
        last: String,
    },
    /// It was stopped before there was anything to tell.
    #[error("the demo was stopped before its first round; all of its files are deleted")]
    StoppedEarly,
    /// The settings do not fit together, which is a bug.
    #[error("the settings of the demo are refused, which is a bug: {0}")]
    Settings(#[from] ConfigError),
    /// The vocabulary or the model cannot be made.
    #[error(transparent)]
    Run(Box<RunError>),
    /// The server.
    #[error(transparent)]
    Serve(Box<ServeError>),
    /// Its state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The page's tokens.
    #[error(transparent)]
    Console(Box<ConsoleError>),
    /// Its database.
    #[error(transparent)]
    Database(Box<DatabaseError>),
    /// The devices.
    #[error(transparent)]
    Devices(Box<AgentError>),
    /// The operating system gives no threads.
    #[error("the threads of the demo cannot be started: {0}")]
    Threads(io::Error),
    /// A thread ended by a panic, which is a bug.
    #[error("a part of the demo panicked because of a bug (see above); please report it")]
    Died,
    /// The operating system has no randomness to give.
    #[error("the operating system provided no randomness")]
    Randomness(#[source] getrandom::Error),
}

/// What goes wrong is boxed, so that what goes well is small.
macro_rules! boxed {
    ($($variant:ident($error:ty)),*) => {
        $(impl From<$error> for DemoError {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

boxed!(Run(RunError), Console(ConsoleError), Serve(ServeError), Database(DatabaseError), Devices(AgentError));
