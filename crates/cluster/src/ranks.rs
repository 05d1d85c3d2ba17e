//! The processes of an MPI job and their collective operations. All MPI calls are here.
//!
//! No rank waits for one that will not come. A rank that cannot continue says so where the others wait for it; one that leaves
//! early keeps answering until rank 0 has heard of it; rank 0 tells the others when it leaves; a panic ends the job.

use std::{cell::Cell, fmt::Display, time::Duration};

use federated::engine::EngineError;
use mpi::{
    Rank, Threading,
    collective::SystemOperation,
    environment::Universe,
    topology::SimpleCommunicator,
    traits::{Communicator, CommunicatorCollectives, Destination, Equivalence, Root, Source},
};
use thiserror::Error;
use zeroize::Zeroize;

use crate::{
    message::{Kind, Message, Share},
    started_by_mpi,
};

/// How long a rank sleeps before it looks again whether the others have come: MPI itself would burn a core meanwhile.
const NAP: Duration = Duration::from_millis(1);
/// Coordinates that one collective takes, so that their number fits what MPI counts with and the room for them is small.
const PIECE: usize = 1 << 24;
/// What a process ends with that panicked.
const PANICKED: i32 = 101;
const RANK_0: Rank = 0;

/// The processes that `mpirun` started. Dropping it on rank 0 ends the job for all; MPI is used on the thread that joined.
pub struct Ranks {
    world: SimpleCommunicator,
    ended: Cell<bool>,
    /// Dropped last: nothing can be said afterwards.
    _universe: Universe,
}

/// Why a process could not join the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JoinError {
    /// Joined before.
    #[error("this process has already joined the ranks of its job; it can do so only once")]
    Twice,
    /// A library without threads.
    #[error("this MPI library does not allow threads; use one that supports MPI_THREAD_FUNNELED")]
    Threads,
}

impl Ranks {
    /// Joins the other processes of this job; none if the process was started alone.
    ///
    /// # Errors
    /// When it was joined before, or MPI allows no threads.
    pub fn join() -> Result<Option<Self>, JoinError> {
        if !started_by_mpi() {
            return Ok(None);
        }
        let (universe, threads) = mpi::initialize_with_threading(Threading::Funneled).ok_or(JoinError::Twice)?;
        let ranks = Self { world: universe.world(), ended: Cell::new(false), _universe: universe };
        if threads < Threading::Funneled { Err(JoinError::Threads) } else { Ok(Some(ranks)) }
    }

    /// Which of the processes this is, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.world.size() as usize
    }

    /// Whether this process runs the loop.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.world.rank() == RANK_0
    }

    /// Which users are this rank's.
    pub(crate) fn share(&self) -> Share {
        Share { rank: self.rank(), ranks: self.size() }
    }

    /// Waits, asleep, until all ranks are here.
    fn meet(&self) {
        let mut request = self.world.immediate_barrier();
        while let Err(unfinished) = request.test() {
            request = unfinished;
            std::thread::sleep(NAP);
        }
    }

    /// Rank 0 tells all others.
    pub(crate) fn tell(&self, mut message: Message) {
        self.carry(&mut message);
    }

    /// Another rank hears what rank 0 tells.
    pub(crate) fn hear(&self) -> Message {
        let mut message = Message::end();
        self.carry(&mut message);
        if message.kind == Kind::End {
            self.ended.set(true);
        }
        message
    }

    fn carry(&self, message: &mut Message) {
        let Message { kind, text, key, users, model } = message;
        let mut sizes = [kind.number(), text.len() as u64, users.len() as u64, model.len() as u64];
        self.meet();
        self.broadcast(RANK_0, &mut sizes);
        let [number, texts, numbers, models] = sizes;
        *kind = Kind::of(number);
        text.resize(texts as usize, 0);
        users.resize(numbers as usize, 0);
        model.resize(models as usize, 0.0);
        self.broadcast(RANK_0, text);
        self.broadcast(RANK_0, key.as_mut_slice());
        self.broadcast(RANK_0, users);
        self.broadcast(RANK_0, model);
    }

    fn broadcast<T: Equivalence>(&self, from: Rank, values: &mut [T]) {
        for piece in values.chunks_mut(PIECE) {
            self.world.process_at_rank(from).broadcast_into(piece);
        }
    }

    /// Waits for all ranks and continues only if nothing failed on any; otherwise every rank learns what the first failure
    /// was.
    pub(crate) fn settle<T>(&self, outcome: Result<T, impl Display>) -> Result<T, EngineError> {
        let (done, problem) = match outcome {
            Ok(done) => (Some(done), String::new()),
            Err(problem) => (None, problem.to_string()),
        };
        // A failure without words is a failure too.
        let own = if done.is_some() { 0 } else { problem.len() as u64 + 1 };
        let mut lengths = vec![0u64; self.size()];
        self.meet();
        self.world.all_gather_into(&own, &mut lengths[..]);
        let first = lengths.iter().position(|length| *length > 0);
        match (first, done) {
            (None, Some(done)) => Ok(done),
            (first, _) => {
                let rank = first.unwrap_or_default();
                let mut text = problem.into_bytes();
                text.resize(lengths[rank].saturating_sub(1) as usize, 0);
                self.broadcast(rank as Rank, &mut text);
                Err(EngineError::Rank { rank, problem: String::from_utf8_lossy(&text).into_owned() })
            }
        }
    }

    /// Adds what all ranks have, in place, on rank 0; the others keep theirs.
    pub(crate) fn add_up(&self, values: &mut [i64], users: &mut u64) {
        let mut all = Vec::new();
        for piece in values.chunks_mut(PIECE) {
            all.clear();
            all.resize(piece.len(), 0);
            self.reduce(piece, &mut all);
        }
        all.zeroize();
        self.reduce(std::slice::from_mut(users), &mut [0]);
    }

    /// The seconds of all ranks, on rank 0.
    pub(crate) fn seconds(&self, mut own: f64) -> f64 {
        self.reduce(std::slice::from_mut(&mut own), &mut [0.0]);
        own
    }

    fn reduce<T: Equivalence + Copy>(&self, values: &mut [T], room: &mut [T]) {
        let root = self.world.process_at_rank(RANK_0);
        if self.leads() {
            root.reduce_into_root(&*values, &mut *room, SystemOperation::sum());
            values.copy_from_slice(room);
        } else {
            root.reduce_into(&*values, SystemOperation::sum());
        }
    }

    /// What each rank has, one after the other, on rank 0; nothing on the others.
    pub(crate) fn gather(&self, own: Vec<u64>) -> Vec<u64> {
        if !self.leads() {
            self.world.process_at_rank(RANK_0).send(&own[..]);
            return Vec::new();
        }
        let others = (1..self.world.size()).flat_map(|rank| self.world.process_at_rank(rank).receive_vec().0);
        own.into_iter().chain(others).collect()
    }

    /// Instead of serving: tells rank 0 what is wrong here, whatever it asks, until it ends the run.
    pub fn refuse(&self, problem: impl Display) {
        while self.hear().kind != Kind::End {
            // Rank 0 hears it; here nobody does.
            let _told = self.settle(Err::<(), _>(&problem));
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What it was has been printed. The others would wait for this rank for ever.
            self.world.abort(PANICKED);
        }
        if self.leads() {
            self.tell(Message::end());
        } else if !self.ended.get() {
            self.refuse("exited before the run ended; see its own messages");
        }
    }
}
