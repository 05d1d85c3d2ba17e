//! The HTTP server: an accept loop that slow and hostile clients cannot exhaust, and the routes of the protocol.
//!
//! | module      | what it is                                                                                       |
//! |-------------|--------------------------------------------------------------------------------------------------|
//! | [`service`] | what the routes ask of the coordinator                                                           |
//! | [`routes`]  | the routes: from a request of HTTP to a message of the protocol, and back                         |
//! | [`limits`]  | how many, how long, how slowly                                                                   |
//! | [`tls`]     | certificates, and where a server may speak without them                                           |
//! | [`server`]  | the accept loop                                                                                  |
//! | `answers`   | the status of every answer, and refusals with their reasons                                       |
//! | `blobs`     | ranges and tags of what never changes                                                            |
//! | `bodies`    | bodies of a bounded length, rate and memory, never inflated                                       |
//! | `chunk`     | chunks of reports as they come, which nobody keeps                                               |
//! | `flow`      | a body that comes fast enough, or is cut                                                          |
//! | `census`    | who is connected, from where, and who has waited longest                                          |
//! | [`origins`] | which pages of the web may speak to it                                                           |
//! | [`proxies`] | from where a request comes, where a proxy stands in between                                       |
//! | `watched`   | a stream that ends itself when nothing comes or nothing is taken                                  |
//!
//! `axum::serve` has no limit on the time that a header takes, so a few thousand clients that never finish theirs keep a server
//! busy for as long as they like; it counts no connections either. So the loop is ours, over hyper, and the routes are axum's.
//!
//! Nothing that a client sends is logged, and no answer repeats any of it.

mod answers;
mod blobs;
mod bodies;
mod census;
mod chunk;
mod flow;
pub mod limits;
pub mod origins;
pub mod proxies;
pub mod routes;
pub mod server;
pub mod service;
pub mod tls;
mod watched;

use std::{io, net::SocketAddr, path::PathBuf};

use durable::files::FileError;
use thiserror::Error;

pub use chunk::{Chunk, Piece};
pub use limits::Limits;
pub use origins::{Origin, Origins};
pub use proxies::{Network, Proxies};
pub use routes::app;
pub use server::{Served, Server};
pub use service::{Packed, Service};
pub use tls::{Identity, Transport, fingerprint, self_signed};

/// Why there is no server.
#[derive(Debug, Error)]
pub enum HttpError {
    /// Its address cannot be had.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// It would speak without TLS to other machines.
    #[error(
        "plain HTTP is only allowed on loopback addresses, but {address} can be reached from other machines; use --certificate and --key, or listen on 127.0.0.1"
    )]
    PlainElsewhere {
        /// The refused address.
        address: SocketAddr,
    },
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
    /// A certificate that was made for trying things out is for other names.
    #[error("the certificate in {} is not for {name}; remove it, and a new one will be created", path.display())]
    OtherNames {
        /// The certificate's file.
        path: PathBuf,
        /// A name that was asked for.
        name: String,
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
