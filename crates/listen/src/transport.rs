//! How a server speaks, and where it may speak without TLS.

use std::{fmt::Debug, future::Future, io, net::SocketAddr, pin::Pin, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::ListenError;

/// How a server speaks.
#[derive(Debug, Clone)]
pub enum Transport {
    /// TLS, and nothing else.
    Tls(Arc<dyn Handshake>),
    /// HTTP as it is, for trying things out and behind a proxy on the same machine: only where no other machine can connect.
    PlainOnLoopback,
}

/// What agrees on TLS with a client. A trait, so that who serves this machine alone need not compile any of TLS.
pub trait Handshake: Debug + Send + Sync {
    /// The stream within TLS.
    fn shake(&self, stream: TcpStream) -> Shaking;
}

/// A handshake under way.
pub type Shaking = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// A stream of bytes, both ways.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Transport {
    /// That this may be spoken at an address.
    pub(crate) fn check(&self, address: SocketAddr) -> Result<(), ListenError> {
        match self {
            Self::PlainOnLoopback if !address.ip().to_canonical().is_loopback() => {
                Err(ListenError::PlainElsewhere { address })
            }
            _ => Ok(()),
        }
    }
}
