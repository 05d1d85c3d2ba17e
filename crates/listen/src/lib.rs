//! An accept loop that slow and hostile clients cannot fill, in front of any routes.
//!
//! | module      | what it is                                                                                       |
//! |-------------|--------------------------------------------------------------------------------------------------|
//! | [`server`]  | the accept loop                                                                                  |
//! | [`limits`]  | how many, how long, how slowly                                                                   |
//! | [`transport`] | how it speaks, and where it may speak without TLS; certificates are the caller's              |
//! | `census`    | who is connected, from where, and who has waited longest                                          |
//! | [`origins`] | which pages of the web may speak to it                                                           |
//! | [`proxies`] | from where a request comes, where a proxy stands in between                                       |
//! | `watched`   | a stream that ends itself when nothing comes or nothing is taken                                  |
//!
//! `axum::serve` has no limit on the time that a header takes, so a few thousand clients that never finish theirs keep a server
//! busy for as long as they like; it counts no connections either. So the loop is ours, over hyper, and the routes are axum's.
//!
//! The tests of the loop are those of `server`, against its routes.

mod census;
pub mod limits;
pub mod origins;
pub mod proxies;
pub mod server;
pub mod transport;
mod watched;

use std::{io, net::SocketAddr};

use thiserror::Error;

pub use limits::{Limits, Pace};
pub use origins::{Origin, Origins};
pub use proxies::{Network, Proxies};
pub use server::{Ending, Peer, Served, Server};
pub use transport::{Handshake, Shaking, Stream, Transport};

/// Why there is no server.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Its address cannot be had.
    #[error("cannot listen on {address}: {error}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// It would speak without TLS to other machines.
    #[error(
        "plain HTTP is only allowed on loopback addresses, but {address} can be reached from other machines; use --certificate and --key, or listen on 127.0.0.1"
    )]
    PlainElsewhere {
        /// Where it would listen.
        address: SocketAddr,
    },
}
