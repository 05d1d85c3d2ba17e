//! In the place of TLS in a program that was built without it: no address that needs it is accepted.

use tokio::net::TcpStream;

use crate::{
    TrackError,
    address::{Account, Address},
};

/// TLS, which this build does not have.
pub(crate) enum Tls {}

impl Tls {
    pub(crate) fn new(_: &Address, _: &Account) -> Result<Self, TrackError> {
        Err(TrackError::NoTls)
    }

    pub(crate) async fn over(&self, _: TcpStream) -> std::io::Result<TcpStream> {
        match *self {}
    }
}
