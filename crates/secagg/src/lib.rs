//! Secure aggregation: a server learns the sum of many clients' vectors and nothing else, although clients drop out.
//!
//! SecAgg+ (Bell et al., CCS 2020; Bonawitz et al., CCS 2017) on a sparse random graph. Each client masks its vector with one
//! mask of its own and one for each neighbour, which the neighbour's input cancels; the neighbours hold shares of the masks'
//! secrets, so that the masks of clients that drop out can be removed. `docs/SECAGG.md` says what it protects against.
//!
//! Vectors are residues mod 2^b. Their meaning, bounds and noise are defined elsewhere.
//! Nothing here sends, waits, reads a clock or starts a thread: messages go in, messages come out.
//!
//! | module       | what it is                                                       |
//! |--------------|------------------------------------------------------------------|
//! | `session`    | what a round is for, and the hash that binds everything to it    |
//! | `client`     | the client's side, one type for each state                        |
//! | `server`     | the server's side, one type for each state                        |
//! | `message`    | the messages and their encoding; `wire` reads and writes bytes    |
//! | `parameters` | degree, threshold and committee for the adversary to withstand; a device's floor      |
//! | `graph`, `directory`, `merkle` | neighbours; the keys of all clients             |
//! | `keys`, `shamir`, `masks`, `modulus`, `entropy` | the arithmetic                     |
//!
//! A whole round of forty:
//!
//! ```
//! use keyhush_secagg::{
//!     ClientId,
//!     client::{Client, Reply},
//!     directory::Everybody,
//!     entropy::OsEntropy,
//!     parameters::{Adversary, Assumptions, Floor},
//!     server::{CollectKeys, Connect, Serial},
//!     session::{Inputs, Terms},
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let assumptions = Assumptions::new(0.1, 0.2, Adversary::Curious); // a tenth may vanish, a fifth may be corrupted
//! let terms = Terms {
//!     task: [1; 32],
//!     model: [2; 32],
//!     round: 7,
//!     assumptions,
//!     most_clients: 40,
//!     least_survivors: 36,
//!     dimension: 3,
//!     bits: 16,
//!     inputs: Inputs::Bounded { largest: 1000 },
//!     most_evidence: 0, // everybody is admitted
//! };
//! let mut server = CollectKeys::open(terms, &mut OsEntropy)?;
//!
//! // Devices are offered the round. Each has a floor of its own, and answers with fresh keys.
//! let floor = Floor { clients: 30, survivors: 30, corrupted: 0.2, ..Floor::default() };
//! let mut clients = Vec::new();
//! for id in (0..40).map(ClientId) {
//!     let (client, keys) = Client::begin(*server.offer(), floor, &Everybody, &mut OsEntropy)?;
//!     server.receive(id, &keys, &Everybody)?;
//!     clients.push((id, client));
//! }
//!
//! // The directory closes. Each learns its neighbours, checks them, and seals shares for them.
//! let mut server = server.close(Connect::Found)?;
//! for (id, client) in &mut clients {
//!     let neighbourhood = server.neighbourhood(*id).ok_or("not in the directory")?;
//!     let reply = client.receive(&neighbourhood, &Everybody, &mut OsEntropy)?;
//!     let Reply::Send(shares) = reply else { return Err("no answer".into()) };
//!     server.receive(*id, &shares)?;
//! }
//!
//! // The shares are delivered, inputs are masked and added up. Client 7 vanishes.
//! let mut server = server.close()?;
//! clients.retain(|(id, _)| id.0 != 7);
//! for (id, client) in &mut clients {
//!     client.receive(&server.delivery(*id).ok_or("not shared")?, &Everybody, &mut OsEntropy)?;
//!     let masked = client.mask(&[id.0 as u32, 1, 1000])?;
//!     server.receive(*id, &masked)?;
//! }
//!
//! // A curious server is taken at its word on who dropped out: there is nothing to agree on. Survivors open one share of
//! // each neighbour, and the masks come off.
//! let mut server = server.close()?.close()?;
//! for (id, client) in &mut clients {
//!     let request = server.request(*id).ok_or("no input")?;
//!     let reply = client.receive(&request, &Everybody, &mut OsEntropy)?;
//!     let Reply::Send(shares) = reply else { return Err("no answer".into()) };
//!     server.receive(*id, &shares)?;
//! }
//! let outcome = server.close(&Serial)?;
//! assert_eq!(outcome.survivors.len(), 39);
//! assert_eq!(*outcome.sum, [780 - 7, 39, 39_000]);
//! # Ok(())
//! # }
//! ```

pub mod client;
pub mod directory;
pub mod entropy;
pub mod graph;
mod keys;
pub mod masks;
mod merkle;
pub mod message;
pub mod modulus;
pub mod parameters;
pub mod server;
pub mod session;
pub mod shamir;
pub mod wire;

pub use self::keys::{PublicKeys, Signature};

/// A client's name in one round, for everybody but the server: drawn for the round, and useless in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pseudonym(pub [u8; 16]);

/// The server's number for a client, which the transport authenticates. It stays with the server, which takes one
/// pseudonym from it in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl std::fmt::Display for ClientId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "client {}", self.0)
    }
}
