//! Sends runs to a tracking server: a thread follows the folder of a run and sends what its files hold to MLflow.
//!
//! The thread reads files; the training loop hands it nothing. So nothing is sent that the folder of a run does not hold (rule P12); the
//! run never waits for the server; nothing is kept in memory while the server is away; and tracking resumes where it stopped.
//!
//! A run with secret noise is sent when it has finished, all at once: sending the numbers of each round as they come would show how long
//! rounds take, which is an exact value (rule P23).
//!
//! | module      | what it is                                                    |
//! |-------------|---------------------------------------------------------------|
//! | [`address`] | `mlflow:URL`, and the account on that server                  |
//! | `http`      | HTTP/1.1, one request after the other                         |
//! | `tls`       | TLS, behind the feature `tls`                                 |
//! | `mlflow`    | the requests of MLflow's REST API                             |
//! | `record`    | what the server has so far, in the folder of the run          |
//! | `follow`    | reads the folder and sends what is new                        |

pub mod address;
mod follow;
mod http;
mod mlflow;
mod record;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;

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
    #[error("{address} {problem}")]
    Address {
        /// What was given; not repeated if it may hold a secret.
        address: String,
        /// What is wrong with it, and what would be right.
        problem: &'static str,
    },
    /// An environment variable cannot be used.
    #[error("the environment variable {name} {problem}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// A description of the problem.
        problem: &'static str,
    },
    /// Certificates cannot be used.
    #[cfg(feature = "tls")]
    #[error("cannot use the certificates in {}: {problem}", path.display())]
    Certificates {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// This machine has no root certificates.
    #[cfg(feature = "tls")]
    #[error(
        "this machine has no root certificates to check the server's; set MLFLOW_TRACKING_SERVER_CERT_PATH to a PEM file"
    )]
    NoCertificates,
    /// TLS cannot be set up.
    #[cfg(feature = "tls")]
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The program was built without TLS.
    #[error(
        "this keyhush was built without the network, and so without TLS, which https:// needs: build it with `cargo build --release --features full`"
    )]
    NoTls,
    /// The thread cannot be started.
    #[error("the tracking thread cannot be started: {0}")]
    Thread(std::io::Error),
    /// The server cannot be reached.
    #[error("{0}")]
    Away(String),
    /// The server refuses.
    #[error("the server answers {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The error message.
        message: String,
    },
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] Box<RunError>),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The settings of the run cannot be read.
    #[error("the settings of the run cannot be parsed: {0}")]
    Settings(#[from] toml::de::Error),
}

impl TrackError {
    /// Whether trying again may help. A run that is being written, or a full disk, is only a problem for now.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Away(_) | Self::Run(_) | Self::File(_) => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..),
            _ => false,
        }
    }
}
