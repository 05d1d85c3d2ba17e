//! The messages between devices and servers, and their bytes (Protocol Buffers). `protocol/keyhush.proto` defines the same for programs in
//! other languages; a test compares the two.
//!
//! | from the device                | answer                                                                            |
//! |--------------------------------|-----------------------------------------------------------------------------------|
//! | `GET /v1/hello`                | [`Hello`]                                                                         |
//! | `POST /v1/say`, a [`Signed`] [`Request`] | an [`Answer`]                                                            |
//! | `GET /v1/blob/DIGEST`          | gzip of the bytes with that SHA-256; never changes; ranges are honoured            |
//! | `PUT /v1/report/TICKET/OFFSET`, a chunk | an [`Answer`]                                                             |
//!
//! A request is signed by the device's key, over the realm of the one server that it is for. What follows an assignment is bound to
//! device, task, step, attempt and model by its ticket, a MAC of the server over all of them that nobody else can make or guess.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use prost::{Message, Oneof};
use thiserror::Error;

/// The version of the protocol. A server says which ones it speaks, and refuses others by [`Unsupported`].
pub const VERSION: u32 = 1;
/// The most bytes of a message other than a chunk of a report.
pub const MOST_BYTES: usize = 1 << 20;
/// The bytes of every chunk of a report but the last.
pub const CHUNK: usize = 1 << 20;
/// The largest allowed difference between the clocks of device and server, in seconds.
pub const CLOCKS_APART_S: u64 = 300;

/// Signatures are over this, the realm, and the body.
const SIGNED: &[u8] = b"keyhush device request v1\0";

/// A server's public self-description.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Hello {
    /// The oldest version of the protocol that it speaks.
    #[prost(uint32, tag = "1")]
    pub oldest: u32,
    /// The newest.
    #[prost(uint32, tag = "2")]
    pub newest: u32,
    /// Which server it is: 32 bytes, the same as long as it exists.
    #[prost(bytes = "vec", tag = "3")]
    pub realm: Vec<u8>,
    /// Its clock, in seconds since 1970.
    #[prost(uint64, tag = "4")]
    pub time_s: u64,
}

/// A request with its signature.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Signed {
    /// [`VERSION`].
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The device's Ed25519 key.
    #[prost(bytes = "vec", tag = "2")]
    pub device: Vec<u8>,
    /// A [`Request`].
    #[prost(bytes = "vec", tag = "3")]
    pub body: Vec<u8>,
    /// Of the body, by the device's key, for one realm.
    #[prost(bytes = "vec", tag = "4")]
    pub signature: Vec<u8>,
}

/// A request of a device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Request {
    /// The server's clock as the device knows it, in seconds since 1970: old requests are refused.
    #[prost(uint64, tag = "1")]
    pub time_s: u64,
    /// Counts what the device has said since it was started, so that no two requests are alike: one that is played again is known.
    #[prost(uint64, tag = "6")]
    pub number: u64,
    /// The content of the request.
    #[prost(oneof = "Wants", tags = "2, 3, 4, 5")]
    pub wants: Option<Wants>,
}

/// The content of a request.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Wants {
    /// Enrolment request.
    #[prost(message, tag = "2")]
    Enrol(Enrol),
    /// To take part, if it is needed.
    #[prost(message, tag = "3")]
    CheckIn(CheckIn),
    /// To know how its part stands, and what comes next.
    #[prost(message, tag = "4")]
    Next(Next),
    /// To say something in secure aggregation.
    #[prost(message, tag = "5")]
    Secure(SecureMessage),
}

/// A device makes itself known. Again with the same key changes nothing.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Enrol {
    /// What lets it in: a token of the server's operator.
    #[prost(bytes = "vec", tag = "1")]
    pub token: Vec<u8>,
    /// What its maker says of it, for servers that ask for that.
    #[prost(bytes = "vec", tag = "2")]
    pub attestation: Vec<u8>,
}

/// A device is idle, charging and on an unmetered network, and could take part now.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CheckIn {
    /// How long it can wait for an answer, in milliseconds.
    #[prost(uint32, tag = "1")]
    pub patience_ms: u32,
    /// The digests of tasks of this server that it rests from: it would refuse them now, and may be given others. A server that does not know this
    /// field gives them all the same, and the device refuses.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub resting: Vec<Vec<u8>>,
}

/// A device asks how its part stands.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Next {
    /// The ticket of the assignment.
    #[prost(bytes = "vec", tag = "1")]
    pub ticket: Vec<u8>,
    /// How long it can wait for an answer, in milliseconds.
    #[prost(uint32, tag = "2")]
    pub patience_ms: u32,
}

/// A message of secure aggregation, as `docs/SECAGG.md` has them.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SecureMessage {
    /// The ticket of the assignment.
    #[prost(bytes = "vec", tag = "1")]
    pub ticket: Vec<u8>,
    /// Its bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub message: Vec<u8>,
}

/// A server's answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Answer {
    /// The answer.
    #[prost(oneof = "Says", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub says: Option<Says>,
}

/// The content of an answer.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Says {
    /// The device is known.
    #[prost(message, tag = "1")]
    Enrolled(Enrolled),
    /// Come back later.
    #[prost(message, tag = "2")]
    Later(Later),
    /// The device is assigned a task.
    #[prost(message, tag = "3")]
    Assignment(Assignment),
    /// So much of the report has arrived.
    #[prost(message, tag = "4")]
    Received(Received),
    /// There is nothing to say yet: ask again.
    #[prost(message, tag = "5")]
    Wait(Wait),
    /// The report counts.
    #[prost(message, tag = "6")]
    Thanks(Thanks),
    /// A message of secure aggregation.
    #[prost(message, tag = "7")]
    Secure(SecureMessage),
    /// The request is refused.
    #[prost(message, tag = "8")]
    Refused(Refused),
    /// The server does not speak this version.
    #[prost(message, tag = "9")]
    Unsupported(Unsupported),
}

/// The device is known.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Enrolled {
    /// Check in after so many seconds.
    #[prost(uint64, tag = "1")]
    pub after_s: u64,
}

/// When to come back.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Later {
    /// Come back in so many seconds.
    #[prost(uint64, tag = "1")]
    pub after_s: u64,
}

/// The assignment of a task to a device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Assignment {
    /// What everything that follows is said with: 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub ticket: Vec<u8>,
    /// The blob of the task ([`super::terms::TaskTerms`]); its digest is the task's.
    #[prost(message, optional, tag = "2")]
    pub task: Option<Blob>,
    /// The blob of the model: its parameters, little-endian.
    #[prost(message, optional, tag = "3")]
    pub model: Option<Blob>,
    /// The step of the task's releases.
    #[prost(uint64, tag = "4")]
    pub step: u64,
    /// The attempt at it.
    #[prost(uint32, tag = "5")]
    pub attempt: u32,
    /// What holds in this step ([`super::terms::StepTerms`]), in JSON.
    #[prost(bytes = "vec", tag = "6")]
    pub terms: Vec<u8>,
    /// Reports leave at whole multiples of this after the assignment, in milliseconds.
    #[prost(uint32, tag = "7")]
    pub tick_ms: u32,
    /// Reports are taken for so long after the assignment, in milliseconds.
    #[prost(uint64, tag = "8")]
    pub within_ms: u64,
    /// The offer of secure aggregation; empty where reports are sent as they are.
    #[prost(bytes = "vec", tag = "9")]
    pub offer: Vec<u8>,
}

/// Bytes that never change.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Blob {
    /// The SHA-256 of the bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub digest: Vec<u8>,
    /// The number of bytes.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

/// So much of a report has arrived.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Received {
    /// Where the next chunk begins.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
}

/// There is nothing to say yet, or no room.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Wait {
    /// Ask again after so many milliseconds.
    #[prost(uint32, tag = "1")]
    pub after_ms: u32,
}

/// A part counts.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Thanks {
    /// The device is not needed for this task before this step.
    #[prost(uint64, tag = "1")]
    pub eligible_from_step: u64,
    /// Check in after so many seconds.
    #[prost(uint64, tag = "2")]
    pub after_s: u64,
}

/// A refused request.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Refused {
    /// Why, as a number.
    #[prost(enumeration = "Reason", tag = "1")]
    pub reason: i32,
    /// Why, in words for a log.
    #[prost(string, tag = "2")]
    pub words: String,
    /// The server's clock, in seconds since 1970.
    #[prost(uint64, tag = "3")]
    pub time_s: u64,
    /// Come back in so many seconds.
    #[prost(uint64, tag = "4")]
    pub after_s: u64,
}

/// Why a server refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Reason {
    /// The message is not one of these, or says what has no meaning.
    Malformed = 0,
    /// The signature is not the device's, or for another server.
    Signature = 1,
    /// The clocks are too far apart: set the clock by the answer, and say it again.
    Clock = 2,
    /// The device is not enrolled.
    Stranger = 3,
    /// The token or the attestation does not let it in.
    NotAdmitted = 4,
    /// The ticket is of no attempt that is open.
    Closed = 5,
    /// The attempt has all the reports that it needs, or the time is over.
    Late = 6,
    /// The report breaks the bounds of its encoding.
    OutOfBounds = 7,
    /// The message is longer than it may be.
    TooLong = 8,
    /// What was said does not fit what was said before.
    Unexpected = 9,
    /// The server cannot continue; it is not the device's fault.
    Internal = 10,
    /// More requests than the server takes.
    TooMuch = 11,
}

/// The server does not speak this version.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Unsupported {
    /// The oldest that it speaks.
    #[prost(uint32, tag = "1")]
    pub oldest: u32,
    /// The newest.
    #[prost(uint32, tag = "2")]
    pub newest: u32,
}

/// The public key of a device: who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey(pub [u8; 32]);

/// Which server: signatures are for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Realm(pub [u8; 32]);

/// Identifies a participation in all messages after its assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub [u8; 32]);

/// Why a message is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Its bytes are not a message.
    #[error("not a message of this protocol: {0}")]
    Malformed(String),
    /// It is of another version.
    #[error("the message has protocol version {got}, but this program uses {VERSION}")]
    Version {
        /// The number found.
        got: u32,
    },
    /// It was signed by somebody else, or for another server.
    #[error("the signature is not valid for this device and server")]
    Signature,
}

impl Request {
    /// Signs the request for one server.
    #[must_use]
    pub fn sign(&self, key: &SigningKey, realm: &Realm) -> Signed {
        let body = self.encode_to_vec();
        let signature = key.sign(&signed(realm, &body)).to_bytes().to_vec();
        Signed { version: VERSION, device: key.verifying_key().to_bytes().to_vec(), body, signature }
    }
}

impl Signed {
    /// Verifies a signed request to this server, and returns its device and content.
    ///
    /// # Errors
    /// Another version, bytes that are no message, or a signature that is not theirs.
    pub fn open(bytes: &[u8], realm: &Realm) -> Result<(DeviceKey, Request), MessageError> {
        let malformed = |e: prost::DecodeError| MessageError::Malformed(e.to_string());
        let signed_request = Self::decode(bytes).map_err(malformed)?;
        let Self { version, device, body, signature } = signed_request;
        if version != VERSION {
            return Err(MessageError::Version { got: version });
        }
        let device: [u8; 32] = device.try_into().map_err(|_| MessageError::Signature)?;
        let key = VerifyingKey::from_bytes(&device).map_err(|_| MessageError::Signature)?;
        let signature = Signature::from_slice(&signature).map_err(|_| MessageError::Signature)?;
        key.verify_strict(&signed(realm, &body), &signature).map_err(|_| MessageError::Signature)?;
        Ok((DeviceKey(device), Request::decode(&body[..]).map_err(malformed)?))
    }
}

/// The bytes that a signature covers.
fn signed(realm: &Realm, body: &[u8]) -> Vec<u8> {
    [SIGNED, &realm.0, body].concat()
}

impl Answer {
    /// Wraps the content of an answer.
    #[must_use]
    pub const fn new(says: Says) -> Self {
        Self { says: Some(says) }
    }

    /// A refusal.
    #[must_use]
    pub fn refused(reason: Reason, words: impl Into<String>, time_s: u64, after_s: u64) -> Self {
        Self::new(Says::Refused(Refused { reason: reason.into(), words: words.into(), time_s, after_s }))
    }
}
