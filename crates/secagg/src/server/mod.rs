//! The server's side of a round: one type for each thing that it can be collecting.
//!
//! ```text
//! CollectKeys --close--> CollectShares --close--> CollectMasked --close--> CollectAgreement --close--> CollectUnmask
//!                                                                                             --close--> Outcome
//! ```
//!
//! Where the server is taken at its word on drop-outs (curious), there is nothing to agree on: `CollectAgreement` has nobody
//! to ask and is closed at once.
//!
//! Each takes messages until whoever drives it closes it, when enough have come or it is late: there is no clock here. What
//! the server has to say next is asked of the next state, client by client, so that nothing is kept for those who are gone.
//! A message that is not as it must be is refused and changes nothing; its sender is as good as silent. A round that cannot
//! be finished fails, and has learned nothing.

mod agreement;
mod keys;
mod masked;
mod parallel;
mod shares;
mod unmask;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

pub use self::{
    agreement::CollectAgreement,
    keys::{CollectKeys, Connect},
    masked::CollectMasked,
    parallel::{Job, Parallel, Serial},
    shares::CollectShares,
    unmask::{CollectUnmask, Outcome, WrongShare},
};
use crate::{
    ClientId,
    directory::Directory,
    entropy::NoRandomness,
    graph::Graph,
    parameters::{ParameterError, Parameters},
    session::{Coin, SessionId, Terms, TermsError},
    wire::WireError,
};

/// Why a message changes nothing.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Refusal {
    /// Not the message it should be.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A message of another offer or session.
    #[error("the message is of another session")]
    OtherSession,
    /// Somebody who takes no part, or no longer.
    #[error("{0} takes no part in this step")]
    Stranger(ClientId),
    /// A second message: the first one counts.
    #[error("{0} has said this before")]
    Repeated(ClientId),
    /// As many as the modulus is for.
    #[error("the round is full: {most} clients")]
    Full {
        /// How many.
        most: u32,
    },
    /// A key that is weak, or somebody else's.
    #[error("{0} has a key that is weak or used twice")]
    Key(ClientId),
    /// Keys that nobody vouches for.
    #[error("the evidence of {0} does not hold")]
    Evidence(ClientId),
    /// A list that is not as long as the neighbourhood.
    #[error("expected {expected} neighbours, got {got}")]
    Count {
        /// How many there are.
        expected: usize,
        /// How many came.
        got: usize,
    },
    /// A complaint about somebody who sent nothing.
    #[error("a complaint about {0}, who shared nothing")]
    Complaint(ClientId),
    /// A vector of another length.
    #[error("expected a vector of {expected} bytes, got {got}")]
    Length {
        /// The offer's.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// A share that was not asked for, or none where one was.
    #[error("the share of {0}'s secret is not the one that was asked for")]
    Share(ClientId),
}

/// Why a round came to nothing. Nothing was learned from it.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RoundFailure {
    /// The terms have no meaning.
    #[error("the terms have no meaning: {0}")]
    Terms(#[from] TermsError),
    /// So few clients that no graph keeps their secrets.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// No coin can be drawn.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// Below what the offer says that a sum is opened for.
    #[error("{got} clients are left, and no sum of fewer than {needed} is opened: ask for more, or wait longer")]
    TooFew {
        /// How many are left.
        got: usize,
        /// How many it takes.
        needed: usize,
    },
    /// A mask that cannot be taken off: too few of those who hold shares of it are left.
    #[error(
        "{got} shares of {client}'s secret are left, {needed} are needed: more clients dropped out than was planned for"
    )]
    OutOfReach {
        /// Whose mask.
        client: ClientId,
        /// How many shares there are.
        got: usize,
        /// The threshold.
        needed: usize,
    },
    /// A mask that cannot be taken off: its owner dealt what is not a secret, or too many hold wrong shares.
    #[error(
        "{client}'s secret cannot be put together: it was dealt wrongly, or more shares are wrong than can be told"
    )]
    Dealt {
        /// Whose mask.
        client: ClientId,
    },
    /// Whoever was to do the arithmetic did not.
    #[error("some of the masks were not taken off: the driver left work undone")]
    Unfinished,
    /// The padding of the sum is not zero.
    #[error("the masks do not cancel: some client masked otherwise than it said")]
    NotCancelled,
}

/// Positions of who said that whose shares were no good.
type Complaints = BTreeSet<(u32, u32)>;

/// What is known of a round once its directory is closed.
#[derive(Debug)]
struct Round {
    terms: Terms,
    session: SessionId,
    parameters: Parameters,
    coin: Coin,
    root: [u8; 32],
    directory: Directory,
    graph: Graph,
    positions: BTreeMap<ClientId, u32>,
}

impl Round {
    fn position(&self, client: ClientId) -> Result<u32, Refusal> {
        self.positions.get(&client).copied().ok_or(Refusal::Stranger(client))
    }

    fn client(&self, position: u32) -> ClientId {
        self.directory.member(position).client
    }

    fn threshold(&self) -> usize {
        self.parameters.threshold() as usize
    }

    /// A round goes on with so many, or fails.
    fn enough(&self, got: usize) -> Result<(), RoundFailure> {
        let needed = self.terms.least_survivors as usize;
        if got < needed { Err(RoundFailure::TooFew { got, needed }) } else { Ok(()) }
    }
}

fn check_count(expected: usize, got: usize) -> Result<(), Refusal> {
    if expected == got { Ok(()) } else { Err(Refusal::Count { expected, got }) }
}
