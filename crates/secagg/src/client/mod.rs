//! A client's side of a round: one type for each state.
//!
//! ```text
//! AwaitNeighbourhood --Neighbourhood--> AwaitDelivery --Delivery--> Ready --input--> AwaitUnmask --UnmaskRequest--> done
//!        | AdvertiseKeys                  | ShareKeys                         | MaskedInput       | UnmaskResponse
//! ```
//!
//! Against a semi-malicious server members of the committee are asked in between: `AwaitUnmask --View--> AwaitUnmask`, in
//! which they sign what became of everybody. Everybody else sees the signatures when it is asked to unmask.
//!
//! Each step consumes the state before it, so there is no way to say a second time what may be said once: a client that has
//! answered an [`UnmaskRequest`](crate::message::UnmaskRequest) no longer exists, and its secrets are zeroized. No state can
//! be written down or copied: a device that crashes has dropped out. A server that breaks the rules gets an error and no
//! client any more; [`Client`] holds whichever state there is, and outlives messages that belong to another one.

mod agree;
#[cfg(test)]
mod lies;
mod mask;
mod neighbourhood;
#[cfg(test)]
mod splits;
mod unmask;

use thiserror::Error;
use zeroize::Zeroizing;

pub(crate) use self::neighbourhood::Shown;
pub use self::{mask::Ready, neighbourhood::AwaitNeighbourhood, unmask::AwaitUnmask};
use crate::{
    directory::{Admission, NoEvidence},
    entropy::{Entropy, NoRandomness},
    graph::Graph,
    keys::{Agreed, SecretKey, SelfSeed, SigningKey},
    message::{self, Kind},
    parameters::{Floor, ParameterError, Parameters},
    session::{Offer, SessionId, Terms, TermsError},
    shamir::ShamirError,
    wire::WireError,
};

/// Why a client does not continue.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The terms have no meaning.
    #[error("the offer is refused: {0}")]
    Terms(#[from] TermsError),
    /// The parameters are below what this device asks for, whatever the server says.
    #[error("the parameters are refused: {0}")]
    Parameters(#[from] ParameterError),
    /// The offer promises less than this device asks for.
    #[error("the offer is refused: {0} is below this device's floor")]
    BelowFloor(&'static str),
    /// Not the message it should be.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A message of another session.
    #[error("the message belongs to another session")]
    OtherSession,
    /// More clients than the modulus is for.
    #[error("there are {got} clients, but the offer allows at most {most}")]
    TooManyClients {
        /// The number found.
        got: u32,
        /// The largest number allowed.
        most: u32,
    },
    /// The coin is not the one that the server committed to.
    #[error("the server's coin differs from its commitment")]
    Coin,
    /// Neighbours, committee or the client itself are not in the directory where the server says.
    #[error("the directory does not have our own keys, and the keys that we are shown, at their positions")]
    NotProved,
    /// Members are not in the order of their pseudonyms, or one has two positions.
    #[error("the directory is not sorted: positions were manipulated, or a client is listed twice")]
    Order,
    /// Evidence of our own that nobody would take.
    #[error("our evidence has {got} bytes, but the offer allows at most {most}")]
    LongEvidence {
        /// The actual length.
        got: usize,
        /// The largest length allowed.
        most: usize,
    },
    /// Nobody attests this device's keys.
    #[error(transparent)]
    NoEvidence(#[from] NoEvidence),
    /// A list that is not as long as it must be.
    #[error("expected a list of {expected} items, got {got}")]
    Count {
        /// The number expected.
        expected: usize,
        /// The number received.
        got: usize,
    },
    /// A neighbour that the directory does not have there.
    #[error("neighbour {slot} is not the client at its position in the directory")]
    Neighbour {
        /// Its slot in the list we are shown.
        slot: usize,
    },
    /// A member whose keys are weak, or used by two.
    #[error("member {slot} has a weak key, or one that is used twice")]
    Key {
        /// Its slot in the list we are shown.
        slot: usize,
    },
    /// A member that nobody certifies.
    #[error("the evidence of member {slot} is not valid")]
    Evidence {
        /// Its slot in the list we are shown.
        slot: usize,
    },
    /// A neighbour that is said to be alive and did not share.
    #[error("neighbour {slot} had dropped out before and is now listed as present")]
    Risen {
        /// Its slot in the list we are shown.
        slot: usize,
    },
    /// A view of the round that contradicts itself or what the client knows.
    #[error("the server's view is refused: {0}")]
    View(&'static str),
    /// A view in which neighbours shared who did not, or the other way about.
    #[error("the server's view of neighbour {slot} contradicts what it said before")]
    OtherView {
        /// Its slot in the list we are shown.
        slot: usize,
    },
    /// A view for somebody who does not sign any.
    #[error("we are not in the committee")]
    NotInCommittee,
    /// A view other than the one that we signed.
    #[error("the server shows a second view of the round, but we have already signed another")]
    SecondView,
    /// Too few of the committee have signed the view.
    #[error("{got} committee members have signed the server's view, but {needed} are needed")]
    NotAgreed {
        /// The number of valid signatures.
        got: usize,
        /// The quorum.
        needed: usize,
    },
    /// So few neighbours that a sum could be of too few.
    #[error("{got} neighbours are left, but {needed} are needed")]
    TooFew {
        /// The number of clients left.
        got: usize,
        /// The threshold.
        needed: usize,
    },
    /// An input of the wrong length.
    #[error("expected {expected} coordinates, got {got}")]
    Length {
        /// The offer's.
        expected: usize,
        /// The input's.
        got: usize,
    },
    /// A coordinate that the modulus has no room for.
    #[error("a coordinate is {got}, but at most {most} is allowed")]
    Range {
        /// The refused value.
        got: u32,
        /// The largest value allowed.
        most: u32,
    },
    /// No secrets can be drawn.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// Secrets cannot be shared.
    #[error(transparent)]
    Sharing(#[from] ShamirError),
    /// A message that this client is not waiting for.
    #[error("this client is not waiting for {}", .0.name())]
    NotNow(Kind),
    /// A message for a client that is over.
    #[error("this client is {0}")]
    Over(&'static str),
}

/// A neighbour, as far as its keys go.
#[derive(Debug)]
struct Neighbour {
    position: u32,
    masking: [u8; 32],
    /// What the sealing keys of both agreed on.
    sealing: Agreed,
}

/// What the graph follows from. The graph itself has a place for everybody: a machine that simulates all clients has no
/// room for one in each.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    parameters: Parameters,
    permutation_seed: [u8; 32],
}

impl Drawn {
    fn graph(&self) -> Graph {
        Graph::new(&self.parameters, &self.permutation_seed)
    }
}

/// A client that has shared its keys and waits for the delivery of its neighbours' shares.
#[derive(Debug)]
pub struct AwaitDelivery {
    terms: Terms,
    session: SessionId,
    drawn: Drawn,
    position: u32,
    threshold: usize,
    neighbours: Vec<Neighbour>,
    /// The committee's keys, in the order of their positions; none where the server is taken at its word.
    committee: Vec<[u8; 32]>,
    /// Of a member of the committee: its own.
    signing_key: Option<SigningKey>,
    mask_key: SecretKey,
    self_seed: SelfSeed,
}

/// A client in whichever state it is.
#[derive(Debug)]
pub enum Client {
    /// It has advertised its keys.
    AwaitNeighbourhood(AwaitNeighbourhood),
    /// It has shared its keys.
    AwaitDelivery(AwaitDelivery),
    /// It can mask its input.
    Ready(Ready),
    /// It has sent its masked input, and may be asked to sign, and for shares.
    AwaitUnmask(AwaitUnmask),
    /// The client has answered everything.
    Done,
    /// The client has aborted.
    Aborted,
}

/// A client's reaction to a message.
#[derive(Debug, PartialEq)]
pub enum Reply {
    /// The client sends this message.
    Send(Zeroizing<Vec<u8>>),
    /// It can mask its input now.
    Ready,
    /// Nothing: the message is late, early, repeated, of another offer or session, or of no protocol that the client speaks, and
    /// it waits for its own.
    Ignored(ClientError),
}

/// How a state takes a message.
type Taken = Result<(Client, Reply), ClientError>;

impl Client {
    /// A client that takes up an offer, and what it says first.
    ///
    /// # Errors
    /// When the offer is below the floor or has no meaning.
    pub fn begin(
        offer: Offer,
        floor: Floor,
        admission: &dyn Admission,
        entropy: &mut dyn Entropy,
    ) -> Result<(Self, Vec<u8>), ClientError> {
        let (client, message) = AwaitNeighbourhood::begin(offer, floor, admission, entropy)?;
        Ok((Self::AwaitNeighbourhood(client), message.encode()))
    }

    /// Takes a message of the server.
    ///
    /// # Errors
    /// When the server has broken the rules, or this client has: it is over, and holds no secrets any more. Also when it was
    /// over before.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        admission: &dyn Admission,
        entropy: &mut dyn Entropy,
    ) -> Result<Reply, ClientError> {
        if let Some(why) = self.ignored(bytes)? {
            return Ok(Reply::Ignored(why));
        }
        let (next, reply) = match std::mem::replace(self, Self::Aborted) {
            Self::AwaitNeighbourhood(client) => client.take(bytes, admission, entropy)?,
            Self::AwaitDelivery(client) => client.take(bytes)?,
            Self::AwaitUnmask(client) => client.take(bytes)?,
            Self::Ready(_) | Self::Done | Self::Aborted => return Err(ClientError::Over("not waiting for anything")),
        };
        *self = next;
        Ok(reply)
    }

    /// Why a message is none of this client's business, if so. A client that is over takes none at all.
    fn ignored(&self, bytes: &[u8]) -> Result<Option<ClientError>, ClientError> {
        let (kinds, ours): (&[Kind], &[u8; 32]) = match self {
            Self::AwaitNeighbourhood(client) => (&[Kind::Neighbourhood], &client.offer().0),
            Self::AwaitDelivery(client) => (&[Kind::Delivery], &client.session.0),
            Self::Ready(client) => (&[], &client.session().0),
            Self::AwaitUnmask(client) => (&[Kind::View, Kind::UnmaskRequest], &client.session.0),
            Self::Done => return Err(ClientError::Over("done")),
            Self::Aborted => return Err(ClientError::Over("aborted")),
        };
        let (kind, rest) = match message::kind(bytes) {
            Ok(known) => known,
            Err(unknown) => return Ok(Some(unknown.into())),
        };
        if !kinds.contains(&kind) {
            return Ok(Some(ClientError::NotNow(kind)));
        }
        // The offer's hash, or the session, follows the number of the message.
        Ok(rest.first_chunk().is_some_and(|of| of != ours).then_some(ClientError::OtherSession))
    }

    /// Masks the input; gives the message.
    ///
    /// # Errors
    /// When the client is not ready for it, which changes nothing; when the input does not fit the offer, which ends it.
    pub fn mask(&mut self, input: &[u32]) -> Result<Vec<u8>, ClientError> {
        match std::mem::replace(self, Self::Aborted) {
            Self::Ready(client) => {
                let (client, message) = client.mask(input)?;
                *self = Self::AwaitUnmask(client);
                Ok(message)
            }
            other => {
                *self = other;
                Err(ClientError::Over("not ready for its input"))
            }
        }
    }
}

impl AwaitNeighbourhood {
    fn take(self, bytes: &[u8], admission: &dyn Admission, entropy: &mut dyn Entropy) -> Taken {
        let (client, answer) = self.share(&message::Neighbourhood::decode(bytes)?, admission, entropy)?;
        Ok((Client::AwaitDelivery(client), Reply::Send(answer.encode().into())))
    }
}

impl AwaitDelivery {
    fn take(self, bytes: &[u8]) -> Taken {
        Ok((Client::Ready(self.deliver(&message::Delivery::decode(bytes)?)?), Reply::Ready))
    }
}

impl AwaitUnmask {
    fn take(self, bytes: &[u8]) -> Taken {
        if message::kind(bytes)?.0 == Kind::View {
            let (client, answer) = self.sign(&message::View::decode(bytes)?)?;
            return Ok((Client::AwaitUnmask(client), Reply::Send(answer.encode().into())));
        }
        let answer = self.unmask(&message::UnmaskRequest::decode(bytes)?)?;
        Ok((Client::Done, Reply::Send(answer.encode())))
    }
}
