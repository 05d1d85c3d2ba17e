//! The interface between the routes and the coordinator.

use std::{future::Future, net::IpAddr};

use axum::http::HeaderValue;
use bytes::Bytes;
use device::protocol::message::{Answer, Hello, Ticket};
use sha2::{Digest, Sha256};

use super::chunk::Chunk;

/// The service behind the routes.
///
/// Its functions are called by the threads of the runtime, as many at a time as there are requests: what needs no coordinator, such
/// as looking at signatures, is best done there before anything is handed to its one thread. When a device hangs up, the future of
/// its answer is dropped where it waits. The bytes count against the room that there is for bodies until they are dropped.
pub trait Service: Send + Sync + 'static {
    /// What the server says of itself. Refusals take their clock from it, so it should be quick.
    fn hello(&self) -> Hello;

    /// Whether it can do what it is there for; a supervisor is told.
    fn is_well(&self) -> bool {
        true
    }

    /// Why it cannot take devices now; nothing where it can. In plain words, for a supervisor: nothing is in them that everybody may not know.
    fn not_ready(&self) -> impl Future<Output = Vec<String>> + Send {
        std::future::ready(if self.is_well() { Vec::new() } else { vec!["server: down".to_owned()] })
    }

    /// A signed request, as bytes, and from which address it came (an IPv6 /64 is one); the answer may take as long as the device's patience.
    fn say(&self, bytes: Bytes, from: Option<IpAddr>) -> impl Future<Output = Answer> + Send;

    /// The blob with this SHA-256, packed.
    fn blob(&self, digest: [u8; 32]) -> impl Future<Output = Option<Packed>> + Send;

    /// So many bytes of a blob are sent.
    fn sends(&self, _blob_bytes: u64) {}

    /// A chunk of a report, as it comes. Where it breaks off, the routes say so, and not this.
    fn chunk(&self, ticket: Ticket, offset: u64, chunk: &mut Chunk) -> impl Future<Output = Answer> + Send;
}

/// The gzip bytes of a blob, with a tag of their own.
///
/// The same blob may be packed into other bytes by another version of a library, and a device that has half of the one must not
/// get the second half of the other: ranges are of the packed bytes, so their tag is too. It is computed once, when they are packed.
#[derive(Debug, Clone)]
pub struct Packed {
    pub(super) bytes: Bytes,
    pub(super) tag: HeaderValue,
}

impl Packed {
    /// A blob of these gzip bytes.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        let digest = Sha256::digest(&bytes);
        let hex: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        // Hexadecimal digits are always the value of a header.
        let tag = HeaderValue::try_from(format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"\""));
        Self { bytes, tag }
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}
