//! Who does the local training of a round, and how the sum comes about.

pub mod secure;
pub mod threads;

use device::round::{Drawn, PartError, Task};
use privacy::{
    encoding::EncodingError,
    rng::{NoiseSource, Purpose, StreamKey},
    stages::Sum,
};
use thiserror::Error;

use self::secure::{SecureError, SecureTask, Secured};

/// What a fleet is asked to do.
#[derive(Debug, Clone, Copy)]
pub struct RoundTask<'a> {
    /// Which step of the run.
    pub round: u64,
    /// What every user is told.
    pub task: Task<'a>,
    /// Who takes part, where the fleet does not decide.
    pub cohort: &'a [u64],
    /// The key of the users' randomness in this attempt, in simulations: [`users_key`]. It opens nothing else of the run, so
    /// another process of the run may have it.
    pub users: &'a StreamKey,
}

/// The key of the users' randomness in an attempt at a round, by its position ([`crate::randomness::position`]).
#[must_use]
pub fn users_key(source: &NoiseSource, position: &[u64]) -> StreamKey {
    source.stream(Purpose::Rounding, position)
}

/// What is random in one user's part: the stream of their number, whose first word decides the batch.
#[must_use]
pub fn drawn(users: &StreamKey, user: u64) -> Drawn {
    let mut words = users.chunk(user);
    let batch = words.next_word();
    Drawn { rounding: words, batch }
}

/// What comes back.
#[derive(Debug)]
pub struct Collected {
    /// The sum over the users who took part.
    pub sum: Sum,
    /// What a simulation may look at; a real fleet has none.
    pub exact: Vec<(u64, device::round::Exact)>,
    /// Seconds that the threads worked, all together.
    pub busy_s: f64,
    /// Seconds from the first to the last.
    pub wall_s: f64,
}

/// Why a round came to nothing.
#[derive(Debug, Error)]
pub enum FleetError {
    /// A user's part failed.
    #[error("user {user}: {problem}")]
    Part {
        /// Who.
        user: u64,
        /// Why.
        problem: PartError,
    },
    /// A user's text cannot be read.
    #[error("user {user}: {problem}")]
    Text {
        /// Who.
        user: u64,
        /// Why.
        problem: corpus::store::StoreError,
    },
    /// Parts do not add up.
    #[error(transparent)]
    Sum(#[from] EncodingError),
    /// Secure aggregation failed; nobody learned anything. Where the protocol says so, the attempt failed and the run goes on.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// A fleet that adds up in the clear.
    #[error("these processes add up in the clear: run aggregation = \"secagg\" in one process, without mpirun")]
    NotSecure,
    /// A thread died.
    #[error("a thread of the fleet died; nothing was released")]
    Died,
    /// Another process of the fleet failed.
    #[error("rank {rank}: {problem}")]
    Rank {
        /// Which.
        rank: usize,
        /// What it said.
        problem: String,
    },
}

/// Trains the users of a round and adds up what they send. A fleet that fails has released nothing. One call is one attempt: a
/// fleet asks nobody a second time (rule P24).
pub trait Fleet {
    /// One round.
    ///
    /// # Errors
    /// When the sum is not whole.
    fn round(&mut self, task: &RoundTask<'_>) -> Result<Collected, FleetError>;

    /// One round by secure aggregation.
    ///
    /// # Errors
    /// When there is no sum, or this fleet has no secure aggregation.
    fn secure_round(&mut self, _task: &RoundTask<'_>, _secure: &SecureTask<'_>) -> Result<Secured, FleetError> {
        Err(FleetError::NotSecure)
    }
}
