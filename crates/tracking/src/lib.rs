//! Runs as a tracking server shows them: a thread follows the folder of a run and sends what its files hold to MLflow.
//!
//! Files are followed, and nothing is handed over by the loop that trains. So nothing is sent that the folder of a run does not hold (rule
//! P12); the run never waits for the server; nothing is kept in memory while the server is away; and a run that is resumed goes on
//! where it was.
//!
//! Of a run with secret noise nothing is sent before its end, and then all at once: when the numbers of a round arrive says how long the
//! round took, which is an exact value (rule P23).
//!
//! | module      | what it is                                                    |
//! |-------------|---------------------------------------------------------------|
//! | [`address`] | `mlflow:URL`, and who we are to that server                   |
//! | `http`      | HTTP/1.1 and TLS towards it, one request after the other      |
//! | `mlflow`    | the requests of MLflow's REST API                             |
//! | `settings`  | settings as parameters of a run, without paths of this machine |
//! | `record`    | what the server has by now, in the folder of the run          |
//! | `follow`    | reads the folder and sends what is new                        |

pub mod address;
mod follow;
mod http;
mod mlflow;
mod record;
mod settings;

use std::path::PathBuf;

use durable::files::FileError;
use federated::run::RunError;
use thiserror::Error;

pub use self::{
    address::{Account, Address},
    follow::{Outcome, Pace, Say, Tracker},
    record::RECORD_FILE,
};

/// Why a run cannot be tracked.
#[derive(Debug, Error)]
pub enum TrackError {
    /// The address cannot be used.
    #[error("{address:?} {problem}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it, and what would be right.
        problem: &'static str,
    },
    /// An environment variable cannot be used.
    #[error("the environment variable {name} {problem}")]
    Variable {
        /// Which.
        name: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Certificates cannot be used.
    #[error("certificates of {}: {problem}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// This machine has no certificates to judge a server by.
    #[error(
        "this machine has no certificates to judge a server by; name a PEM file in MLFLOW_TRACKING_SERVER_CERT_PATH"
    )]
    NoCertificates,
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// There is no thread to be had.
    #[error("the thread that sends cannot be started: {0}")]
    Thread(std::io::Error),
    /// The server cannot be reached.
    #[error("{0}")]
    Away(String),
    /// The server refuses.
    #[error("the server answers {status}: {message}")]
    Refused {
        /// Its number.
        status: u16,
        /// Its words.
        message: String,
    },
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] Box<RunError>),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The settings of the run cannot be read.
    #[error("the settings of the run cannot be understood: {0}")]
    Settings(#[from] toml::de::Error),
}

impl TrackError {
    /// Whether it may be different the next time.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Away(_) => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..),
            _ => false,
        }
    }
}
