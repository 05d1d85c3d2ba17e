#![doc = include_str!("../README.md")]

pub mod client;
pub mod directory;
pub mod entropy;
pub mod graph;
mod keys;
pub mod masks;
pub mod message;
pub mod modulus;
pub mod parameters;
pub mod server;
pub mod session;
pub mod shamir;
pub mod wire;

pub use self::keys::PublicKeys;

/// Who a client is to the server: a number that the transport vouches for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl std::fmt::Display for ClientId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "client {}", self.0)
    }
}
