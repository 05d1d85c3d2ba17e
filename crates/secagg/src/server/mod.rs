//! The server's side of a round: one type for each state.
//!
//! ```text
//! CollectKeys --close--> CollectShares --close--> CollectMasked --close--> CollectAgreement --close--> CollectUnmask
//!                                                                                             --close--> Outcome
//! ```
//!
//! Where the server is taken at its word on drop-outs (curious), there is nothing to agree on: `CollectAgreement` has nobody
//! to ask and is closed at once.
//!
//! Each takes messages until the caller closes it, when enough have come (`can_close`) or it is late: there is no clock
//! here. What the server has to say next is asked of the next state, client by client, so that nothing is kept for those who
//! are gone. A message that is not as it must be is refused and changes nothing; its sender is as good as silent. A round that
//! cannot be finished fails, and has learned nothing.
//!
//! All states before unmasking can be saved and restored (`save`, `restore`), so that a server that falls over continues with
//! its round. The last one cannot: it holds secrets of clients, which are never written down. A client's states cannot at all.

mod accumulator;
mod agreement;
mod fates;
mod keys;
mod masked;
mod parallel;
mod saved;
mod shares;
mod unmask;

use std::collections::BTreeMap;

use thiserror::Error;

pub use self::{
    accumulator::{Accumulator, Claim, NotAdded, Spool, SpoolError, Upload},
    agreement::CollectAgreement,
    keys::{CollectKeys, Connect},
    masked::CollectMasked,
    parallel::{Job, Parallel, Serial},
    shares::CollectShares,
    unmask::{CollectUnmask, Outcome, WrongShare},
};
use crate::{
    ClientId,
    client::Shown,
    directory::{Directory, Member, Proof},
    entropy::NoRandomness,
    graph::{self, Graph},
    parameters::{Adversary, ParameterError, Parameters},
    session::{Coin, Offer, SessionId, Terms, TermsError, session},
    wire::WireError,
};

/// Why a message changes nothing.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not the message it should be.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A message of another offer or session.
    #[error("the message belongs to another session")]
    OtherSession,
    /// Somebody who takes no part, or no longer.
    #[error("{0} does not take part in this step")]
    Stranger(ClientId),
    /// A second message: the first one counts.
    #[error("{0} has already sent this message")]
    Repeated(ClientId),
    /// As many as the modulus is for.
    #[error("the round is full: {most} clients")]
    Full {
        /// The limit.
        most: u32,
    },
    /// A key that is weak, or somebody else's.
    #[error("{0} has a weak key, or one that is used twice")]
    Key(ClientId),
    /// Keys that nobody certifies.
    #[error("the evidence of {0} is not valid")]
    Evidence(ClientId),
    /// A list that is not as long as the neighbourhood.
    #[error("expected {expected} neighbours, got {got}")]
    Count {
        /// The number expected.
        expected: usize,
        /// The number received.
        got: usize,
    },
    /// A complaint about somebody who sent nothing.
    #[error("a complaint about {0}, who sent no shares")]
    Complaint(ClientId),
    /// A vector of another length.
    #[error("expected a vector of {expected} bytes, got {got}")]
    Length {
        /// The offer's.
        expected: usize,
        /// The value received.
        got: usize,
    },
    /// A vector that cannot be spooled or read again.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// A partial sum with half a vector in it.
    #[error(
        "the partial sum contains a vector that could not be read to its end; discard it, and add its inputs again from their spools"
    )]
    Spoiled,
    /// A partial sum with an input that was not let in.
    #[error("the partial sum has an input, at position {position}, that this round did not accept")]
    Unclaimed {
        /// The client's position.
        position: u32,
    },
    /// A partial sum with an input that is in the sum already.
    #[error("the partial sum has an input, at position {position}, that is in the sum already")]
    Merged {
        /// The client's position.
        position: u32,
    },
    /// A signature that is not one of the view.
    #[error("{0} did not sign the view that it was shown")]
    Signature(ClientId),
    /// A share that was not asked for, or none where one was.
    #[error("the share of {0}'s secret is not the requested one")]
    Share(ClientId),
}

/// Why a round failed. Nothing was learned from it.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum RoundFailure {
    /// The terms have no meaning.
    #[error("the terms are not valid: {0}")]
    Terms(#[from] TermsError),
    /// So few clients that no graph keeps their secrets.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// The coin cannot be drawn.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// Below what the offer says that a sum is opened for.
    #[error("{got} clients are left, but no sum of fewer than {needed} is opened; select more clients, or wait longer")]
    TooFew {
        /// The number of clients left.
        got: usize,
        /// The number needed.
        needed: usize,
    },
    /// A mask that cannot be taken off: too few of those who hold shares of it are left.
    #[error(
        "{got} shares of {client}'s secret are left, but {needed} are needed; more clients dropped out than planned"
    )]
    OutOfReach {
        /// The client whose mask it is.
        client: ClientId,
        /// How many shares there are.
        got: usize,
        /// The threshold.
        needed: usize,
    },
    /// Too few of the committee are there, or have signed what became of everybody.
    #[error(
        "{got} committee members are left to sign who dropped out, but {needed} are needed; more clients dropped out than planned"
    )]
    NotAgreed {
        /// The number found.
        got: usize,
        /// The quorum.
        needed: usize,
    },
    /// A mask that cannot be taken off: its owner dealt what is not a secret, or too many sent wrong shares. It does not say
    /// which of them: nobody is to be banned for it.
    #[error(
        "{client}'s secret cannot be reconstructed: it was dealt incorrectly, or too many shares are wrong; this does not prove who lied"
    )]
    Dealt {
        /// The client whose mask it is.
        client: ClientId,
    },
    /// The caller's threads did not do the arithmetic.
    #[error("some masks were not removed: the driver left work undone")]
    Unfinished,
    /// The padding of the sum is not zero.
    #[error("the masks do not cancel: a client did not use the masks it agreed on")]
    NotCancelled,
}

/// What is known of a round once its directory is closed.
#[derive(Debug)]
struct Round {
    offer: Offer,
    session: SessionId,
    parameters: Parameters,
    coin: Coin,
    root: [u8; 32],
    directory: Directory,
    graph: Graph,
    /// Positions of the committee, in ascending order; nobody where the server is taken at its word.
    committee: Vec<u32>,
    /// Who is at each position.
    at: Vec<ClientId>,
    positions: BTreeMap<ClientId, u32>,
}

impl Round {
    /// Of clients in the order of their pseudonyms.
    fn new(
        offer: Offer,
        coin: Coin,
        parameters: Parameters,
        members: impl Iterator<Item = (ClientId, Member)>,
    ) -> Self {
        let (at, members): (Vec<ClientId>, Vec<Member>) = members.unzip();
        let positions = at.iter().copied().zip(0..).collect();
        let directory = Directory::new(members);
        let root = directory.root();
        let graph = Graph::new(&parameters, &coin.permutation(&root));
        let session = session(&offer.hash(), &root, &parameters, &coin);
        let size = parameters.committee().map_or(0, |c| c.size);
        let committee = graph::committee(parameters.clients(), size, &session.committee_seed());
        Self { offer, session, parameters, coin, root, directory, graph, committee, at, positions }
    }

    const fn terms(&self) -> &Terms {
        &self.offer.terms
    }

    fn position(&self, client: ClientId) -> Result<u32, Refusal> {
        self.positions.get(&client).copied().ok_or(Refusal::Stranger(client))
    }

    fn client(&self, position: u32) -> ClientId {
        self.at[position as usize]
    }

    /// All clients with their positions.
    fn clients(&self) -> impl Iterator<Item = (ClientId, u32)> + '_ {
        self.positions.iter().map(|(client, at)| (*client, *at))
    }

    fn check_session(&self, session: &SessionId) -> Result<(), Refusal> {
        if *session == self.session { Ok(()) } else { Err(Refusal::OtherSession) }
    }

    /// Signatures that decide; none where the server is taken at its word.
    fn quorum(&self) -> usize {
        self.parameters.committee().map_or(0, |c| c.quorum as usize)
    }

    /// That members, which ascend, and a client itself are where they are: the names of all, where the server is not taken at
    /// its word.
    fn proof(&self, members: &[u32], position: u32) -> Proof {
        if self.terms().assumptions.adversary == Adversary::SemiMalicious {
            return self.directory.names();
        }
        let mut proved = members.to_vec();
        proved.insert(proved.partition_point(|at| *at < position), position);
        self.directory.proof(&proved)
    }

    /// Who is shown to the client at a position.
    fn shown(&self, position: u32) -> Shown {
        Shown::new(&self.graph, &self.committee, position)
    }

    fn threshold(&self) -> usize {
        self.parameters.threshold() as usize
    }

    /// A round continues with so many, or fails.
    fn enough(&self, got: usize) -> Result<(), RoundFailure> {
        let needed = self.terms().least_survivors as usize;
        if got < needed { Err(RoundFailure::TooFew { got, needed }) } else { Ok(()) }
    }
}

fn check_count(expected: usize, got: usize) -> Result<(), Refusal> {
    if expected == got { Ok(()) } else { Err(Refusal::Count { expected, got }) }
}
