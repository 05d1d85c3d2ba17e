//! A device on this machine, or thousands of them in one process: HTTP and files around the device's side of the protocol
//! ([`device::protocol`]).
//!
//! | module          | what it is                                                                  |
//! |-----------------|-----------------------------------------------------------------------------|
//! | [`identity`]    | a device's key, guard and diary, in a folder                                |
//! | [`text`]        | what its owner typed: a store with a cap and an age limit, a folder, synthetic users |
//! | [`eligibility`] | whether it is idle, charging and on an unmetered network                    |
//! | [`http`]        | HTTP and TLS towards one server, with limits on time and size               |
//! | [`content`]     | tasks and models, fetched once for all devices of a process                 |
//! | [`training`]    | a few threads that train for all devices of a process                       |
//! | [`one`]         | runs one device                                                             |
//! | [`many`]        | runs thousands, which behave as people's phones do                          |
//! | [`parts`]       | what made-up devices gave and were thanked for, as lines of a file           |
//! | [`traffic`]     | bytes up and down                                                           |

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
        /// What was given.
        address: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A certificate cannot be used.
    #[error("the certificate {}: {problem}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The folder of a device cannot be made.
    #[error("cannot create the folder {}: {error}", path.display())]
    Folder {
        /// The file.
        path: PathBuf,
        /// What is wrong.
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
        /// What it has.
        got: usize,
    },
    /// There is no randomness.
    #[error("the operating system provided no randomness: {0}")]
    NoRandomness(String),
    /// Text cannot be read.
    #[error("cannot read {}: {problem}", path.display())]
    Text {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Text cannot be written.
    #[error("the text cannot be written: {0}")]
    Unwritten(serde_json::Error),
    /// The synthetic users cannot be generated.
    #[error(transparent)]
    Synthetic(#[from] corpus::synth::SynthError),
}
