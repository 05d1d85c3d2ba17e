//! A client's side of a round: one type for each thing that it can be waiting for.
//!
//! ```text
//! AwaitNeighbourhood --Neighbourhood--> AwaitDelivery --Delivery--> Ready --input--> AwaitUnmask --UnmaskRequest--> done
//!        | AdvertiseKeys                  | ShareKeys                         | MaskedInput       | UnmaskResponse
//! ```
//!
//! Against a semi-malicious server there is a step between input and unmasking: `AwaitView --View--> AwaitUnmask`, in which
//! neighbours vouch to each other that they were shown the same drop-outs.
//!
//! Each step consumes the state before it, so there is no way to say a second time what may be said once: a client that has
//! answered an [`UnmaskRequest`](crate::message::UnmaskRequest) no longer exists, and its secrets are zeroized. No state can
//! be written down or copied: a device that crashes has dropped out. A server that breaks the rules gets an error and no
//! client any more; [`Client`] holds whichever state there is, and outlives messages that belong to another one.

mod agree;
mod mask;
mod neighbourhood;
mod unmask;

use thiserror::Error;

pub use self::{
    agree::AwaitView,
    mask::{Ready, Sent},
    neighbourhood::AwaitNeighbourhood,
    unmask::AwaitUnmask,
};
use crate::{
    ClientId,
    directory::Admission,
    entropy::{Entropy, NoRandomness},
    graph::Graph,
    keys::{Agreed, SecretKey, SelfSeed},
    parameters::{Floor, ParameterError, Parameters},
    session::{Offer, SessionId, Terms, TermsError},
    shamir::ShamirError,
    wire::WireError,
};

/// Why a client does not go on.
#[derive(Debug, Clone, PartialEq, Error)]
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
    #[error("the message is of another session")]
    OtherSession,
    /// More clients than the modulus is for.
    #[error("{got} clients, and the offer is for at most {most}")]
    TooManyClients {
        /// How many there are.
        got: u32,
        /// How many there may be.
        most: u32,
    },
    /// The coin is not the one that the server committed to.
    #[error("the server's coin is not the one that it committed to")]
    Coin,
    /// The client's own keys are not in the directory where it is told that they are.
    #[error("our own keys are not in the directory")]
    NotListed,
    /// A list that is not as long as the neighbourhood.
    #[error("expected {expected} neighbours, got {got}")]
    Count {
        /// How many there are.
        expected: usize,
        /// How many came.
        got: usize,
    },
    /// A neighbour that the directory does not have there.
    #[error("neighbour {slot} is not the one that the directory has at its position")]
    Neighbour {
        /// Which.
        slot: usize,
    },
    /// A neighbour whose keys are weak, or used by two.
    #[error("neighbour {slot} has a key that is weak or used twice")]
    Key {
        /// Which.
        slot: usize,
    },
    /// A neighbour that nobody vouches for.
    #[error("the evidence of neighbour {slot} does not hold")]
    Evidence {
        /// Which.
        slot: usize,
    },
    /// A neighbour that is said to be alive and did not share.
    #[error("neighbour {slot} was not there before and is now")]
    Risen {
        /// Which.
        slot: usize,
    },
    /// A view of the round that contradicts itself or what the client knows.
    #[error("the server's view is refused: {0}")]
    View(&'static str),
    /// Drop-outs other than those of the view.
    #[error("neighbour {slot} is not what the server's view said")]
    OtherView {
        /// Which.
        slot: usize,
    },
    /// Too few neighbours were shown the same view.
    #[error("{got} neighbours vouch for the server's view, {needed} are needed")]
    NotAgreed {
        /// How many do.
        got: usize,
        /// The threshold.
        needed: usize,
    },
    /// So few neighbours that a sum could be of too few.
    #[error("{got} neighbours are left, {needed} are needed")]
    TooFew {
        /// How many are left.
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
    #[error("a coordinate is {got}, at most {most} is allowed")]
    Range {
        /// What it is.
        got: u32,
        /// What it may be.
        most: u32,
    },
    /// No secrets can be drawn.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// Secrets cannot be shared.
    #[error(transparent)]
    Sharing(#[from] ShamirError),
    /// A message that no state is waiting for.
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

/// What a client knows once it has shared its keys, until what neighbours sealed for it is delivered.
#[derive(Debug)]
pub struct AwaitDelivery {
    terms: Terms,
    session: SessionId,
    drawn: Drawn,
    position: u32,
    threshold: usize,
    neighbours: Vec<Neighbour>,
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
    /// It has sent its masked input, and does not take the server's word on drop-outs.
    AwaitView(AwaitView),
    /// It has sent its masked input, and may be asked for shares.
    AwaitUnmask(AwaitUnmask),
    /// It has answered everything.
    Done,
    /// It has given up.
    Aborted,
}

impl Client {
    /// A client that takes up an offer, and what it says first.
    ///
    /// # Errors
    /// When the offer is below the floor or has no meaning.
    pub fn begin(
        offer: Offer,
        id: ClientId,
        floor: Floor,
        admission: &dyn Admission,
        entropy: &mut dyn Entropy,
    ) -> Result<(Self, Vec<u8>), ClientError> {
        let (client, message) = AwaitNeighbourhood::begin(offer, id, floor, admission, entropy)?;
        Ok((Self::AwaitNeighbourhood(client), message.encode()))
    }

    /// Takes a message of the server; gives the answer, if there is one. A message that belongs to another state changes
    /// nothing. Any other error ends the client.
    ///
    /// # Errors
    /// When the message is not one that the client goes on with.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        admission: &dyn Admission,
        entropy: &mut dyn Entropy,
    ) -> Result<Option<Vec<u8>>, ClientError> {
        let (next, answer) = match std::mem::replace(self, Self::Aborted) {
            Self::AwaitNeighbourhood(client) => match crate::message::Neighbourhood::decode(bytes) {
                Ok(message) => {
                    let (client, answer) = client.share(&message, admission, entropy)?;
                    (Self::AwaitDelivery(client), Some(answer.encode()))
                }
                Err(e) => return self.stay_if_elsewhere(Self::AwaitNeighbourhood(client), e),
            },
            Self::AwaitDelivery(client) => match crate::message::Delivery::decode(bytes) {
                Ok(message) => (Self::Ready(client.deliver(&message)?), None),
                Err(e) => return self.stay_if_elsewhere(Self::AwaitDelivery(client), e),
            },
            Self::AwaitView(client) => match crate::message::View::decode(bytes) {
                Ok(message) => {
                    let (client, answer) = client.agree(&message)?;
                    (Self::AwaitUnmask(client), Some(answer.encode()))
                }
                Err(e) => return self.stay_if_elsewhere(Self::AwaitView(client), e),
            },
            Self::AwaitUnmask(client) => match crate::message::UnmaskRequest::decode(bytes) {
                Ok(message) => (Self::Done, Some(client.unmask(&message)?.encode())),
                Err(e) => return self.stay_if_elsewhere(Self::AwaitUnmask(client), e),
            },
            Self::Ready(client) => {
                *self = Self::Ready(client);
                return Err(ClientError::Over("waiting for its input"));
            }
            Self::Done => {
                *self = Self::Done;
                return Err(ClientError::Over("done"));
            }
            Self::Aborted => return Err(ClientError::Over("aborted")),
        };
        *self = next;
        Ok(answer)
    }

    /// Masks the input; gives the message.
    ///
    /// # Errors
    /// When the client is not ready for it, which changes nothing; when the input does not fit the offer, which ends it.
    pub fn mask(&mut self, input: &[u32]) -> Result<Vec<u8>, ClientError> {
        match std::mem::replace(self, Self::Aborted) {
            Self::Ready(client) => {
                let (sent, message) = client.mask(input)?;
                *self = match sent {
                    Sent::View(client) => Self::AwaitView(client),
                    Sent::Unmask(client) => Self::AwaitUnmask(client),
                };
                Ok(message)
            }
            other => {
                *self = other;
                Err(ClientError::Over("not ready for its input"))
            }
        }
    }

    /// A message of another kind is late, early or repeated, and no reason to leave.
    fn stay_if_elsewhere(&mut self, state: Self, error: WireError) -> Result<Option<Vec<u8>>, ClientError> {
        if matches!(error, WireError::Kind { .. }) {
            *self = state;
        }
        Err(error.into())
    }
}
