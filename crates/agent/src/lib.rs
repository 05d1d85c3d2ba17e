//! Runs devices: one on this machine, or thousands of simulated ones in one process. HTTP and files around the device side of the protocol
//! ([`device::protocol`]).
//!
//! | module          | what it is                                                                  |
//! |-----------------|-----------------------------------------------------------------------------|
//! | [`identity`]    | a device's key, guard and diary, in a folder                                |
//! | [`text`]        | the text it learns from: a store limited in size and age, a folder, synthetic users  |
//! | [`unsent`]      | what it learned and has not sent                                            |
//! | [`eligibility`] | whether it is idle, charging and on an unmetered network                    |
//! | [`http`]        | an HTTP and TLS client for one server, with limits on time and size         |
//! | [`content`]     | tasks and models, downloaded once for all devices of a process              |
//! | [`training`]    | a few trainer threads for all devices of a process                          |
//! | [`one`]         | runs one device                                                             |
//! | [`many`]        | runs thousands of simulated devices that behave like phones                 |
//! | [`parts`]       | logs what simulated devices sent and had acknowledged                        |
//! | [`traffic`]     | counts bytes sent and received                                              |

pub mod content;
pub mod eligibility;
pub mod http;
pub mod identity;
pub mod many;
pub mod one;
pub mod parts;
pub mod text;
pub mod traffic;
pub mod training;
pub mod unsent;

use std::path::PathBuf;

use device::{
    guard::{GuardError, StoreError},
    protocol::diary::DiaryError,
};
use thiserror::Error;

/// Why a device cannot run here.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The address cannot be used.
    #[error("the server's address {address:?}: {problem}")]
    Address {
        /// The refused address.
        address: String,
        /// A description of the problem.
        problem: &'static str,
    },
    /// A certificate cannot be used.
    #[error("the certificate {}: {problem}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// The folder of a device cannot be made.
    #[error("cannot create the folder {}: {error}", path.display())]
    Folder {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        error: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The guard cannot be opened.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The diary cannot be opened.
    #[error(transparent)]
    Diary(#[from] DiaryError),
    /// A file of the device failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The key is not one.
    #[error("{} has {got} bytes, expected a key of 32", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The actual length.
        got: usize,
    },
    /// There is no randomness.
    #[error("the operating system provided no randomness: {0}")]
    NoRandomness(String),
    /// What was learned and not sent cannot be read.
    #[error(transparent)]
    Unsent(#[from] device::unsent::UnsentError),
    /// Text cannot be read.
    #[error("cannot read {}: {problem}", path.display())]
    Text {
        /// Its path.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// Text cannot be written.
    #[error("the text cannot be written: {0}")]
    Unwritten(serde_json::Error),
    /// The synthetic users cannot be generated.
    #[error(transparent)]
    Synthetic(#[from] corpus::synth::SynthError),
}
