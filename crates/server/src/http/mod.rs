//! The routes of the protocol, behind the accept loop of [`listen`], which slow and hostile clients cannot fill.
//!
//! | module      | what it is                                                                                       |
//! |-------------|--------------------------------------------------------------------------------------------------|
//! | [`service`] | what the routes ask of the coordinator                                                           |
//! | [`routes`]  | the routes: from a request of HTTP to a message of the protocol, and back                         |
//! | [`tls`]     | certificates                                                                                     |
//! | `answers`   | the status of every answer, and refusals with their reasons                                       |
//! | `blobs`     | ranges and tags of what never changes                                                            |
//! | `bodies`    | bodies of a bounded length, rate and memory, never inflated                                       |
//! | `chunk`     | chunks of reports as they come, which nobody keeps                                               |
//! | [`der`]     | what is read of certificates                                                                     |
//! | `flow`      | a body that comes fast enough, or is cut                                                          |
//! | `refusals`  | ids of requests that were refused, and who is told of them                                        |
//! | `reading`   | bodies for routes beside the protocol's, under the same limits                                    |
//!
//! Nothing that a client sends is logged, and no answer repeats any of it.

mod answers;
mod blobs;
mod bodies;
mod chunk;
pub mod der;
mod flow;
mod reading;
mod refusals;
pub mod routes;
pub mod service;
pub mod tls;

use std::{net::SocketAddr, path::PathBuf};

use durable::files::FileError;
use thiserror::Error;

pub use chunk::{Chunk, Piece};
pub use listen::{Limits, ListenError, Network, Origin, Origins, Proxies, Served, Server, Transport};
pub use reading::{Reading, Unread};
pub(crate) use refusals::told;
pub use refusals::{REQUEST_ID, Refused, Tells, request_id};
pub use routes::app;
pub use service::{Packed, Service};
pub use tls::{Identity, fingerprint, prepare_next, self_signed, switch_to_next};

/// Listens. Those for whom there is no place are told so in a message of the protocol.
///
/// # Errors
/// When the address cannot be had, or plain HTTP was asked for where other machines can connect.
pub async fn bind(address: SocketAddr, transport: Transport, limits: Limits) -> Result<Server, HttpError> {
    Ok(Server::bind(address, transport, limits).await?.when_full(routes::crowded))
}

/// Why there is no server.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The address cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A file of certificates or of a key cannot be used.
    #[error("cannot read {what} from {}: {error}", path.display())]
    Pem {
        /// The kind of PEM file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The underlying error.
        error: rustls::pki_types::pem::Error,
    },
    /// The key is not that of the certificate, or neither is one that can be used.
    #[error("the certificate in {} and its key cannot be used: {error}", path.display())]
    Identity {
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong with them.
        error: rustls::Error,
    },
    /// A certificate that was made for trying things out lacks its key.
    #[error("{} exists but {} does not; remove the first, and both will be created again", certificate.display(), key.display())]
    KeyMissing {
        /// The certificate's file.
        certificate: PathBuf,
        /// Where its key should be.
        key: PathBuf,
    },
    /// A certificate that the server made is for other names.
    #[error(
        "the certificate in {} is not for {name}, and devices that pin it trust no other. Start the server with its names ({}), or replace it by one with all names: keyhush rotate certificate --secrets SECRETS{} --name {name}, and the same with --switch when the devices have the next one. Where no device has it yet, its folder can be removed, and a new one will be created",
        path.display(), have.join(", "), flags(have)
    )]
    OtherNames {
        /// The certificate's file.
        path: PathBuf,
        /// A name that was asked for.
        name: String,
        /// The names that it has.
        have: Vec<String>,
    },
    /// The next certificate, which was made before, is for other names.
    #[error(
        "there is a next certificate already, in {}, and it is not for {name}. If devices pin it, use it first (--switch); otherwise remove {}, and run this again",
        path.display(), durable::files::folder(path).display()
    )]
    OtherNext {
        /// The certificate's file.
        path: PathBuf,
        /// A name that was asked for.
        name: String,
    },
    /// The next certificate lacks names of the one that it is to replace.
    #[error(
        "the next certificate would lack names that {} has: {}. Devices that call the server so could not connect, and a server started for them would not start. Make it for them too: add{}; if there is a next one already, remove the folder next beside that file first",
        path.display(), missing.join(", "), flags(missing)
    )]
    LacksNames {
        /// The file of the certificate in use.
        path: PathBuf,
        /// The names that would be missing.
        missing: Vec<String>,
    },
    /// No certificate can be made for these names.
    #[error("cannot create a certificate for {names:?}: {error}")]
    Certificate {
        /// The host names.
        names: Vec<String>,
        /// The cause.
        error: rcgen::Error,
    },
    /// The disk fails.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Names as flags of a command.
fn flags(names: &[String]) -> String {
    names.iter().map(|name| format!(" --name {name}")).collect()
}
