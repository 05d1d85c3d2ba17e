//! Fleets: ask users for a round and return their sum. One call is one attempt.
//!
//! The loop ([`crate::round`]) asks for one attempt at a time and records what became of it at once, so that nothing of a failure
//! is lost in a crash. Who is asked, how many come, who vanishes and how updates are added up is the fleet's: in a simulation it is
//! drawn (`simulated`), on a network it is the devices that check in. A fleet asks nobody a second time for an attempt (rule P24).
//! [`of`] makes the fleet of a simulation, a server makes [`network::Network`], and nobody else names one.

pub mod network;
mod simulated;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
};

use device::{round::Task, upload::Rests};
use ledger::{Failure, FailureReason, LedgerError, ParticipationRecord};
use privacy::{
    encoding::EncodingError,
    participation::ParticipationError,
    stages::{NoisedSum, Sum},
};
use secagg::server::RoundFailure;
use thiserror::Error;

use crate::{
    canaries::{Canaries, Planted},
    cohort::queue::TooFewLeft,
    engine::{Engine, EngineError},
    plan::{Coding, EVALUATION, Phase, Plan},
    population::Population,
    protocol::coordinator::CoordinatorError,
    randomness::RandomnessError,
    secrets::Secrets,
};

/// The fleet of a run: users of a population whom an engine trains, drawn by the plan. `secrets` are those of the run: what is drawn
/// comes from them where its noise is secret.
#[must_use]
pub fn of<'a>(
    plan: &'a Plan,
    population: &'a dyn Population,
    engine: Box<dyn Engine + 'a>,
    secrets: Secrets,
) -> Box<dyn Fleet + 'a> {
    let engine = match Canaries::of(plan) {
        Some(canaries) => Box::new(Planted::new(engine, canaries)),
        None => engine,
    };
    Box::new(simulated::of(plan, population, engine, secrets))
}

/// A fleet for rounds, and one for evaluations by devices. They are asked one after the other, and know nothing of each other: limits on
/// participation are kept for each by itself.
pub struct WithEvaluations<R, E> {
    /// Who is asked for rounds.
    pub rounds: R,
    /// Who is asked for evaluations.
    pub evaluations: E,
}

impl<R: Fleet, E: Fleet> WithEvaluations<R, E> {
    fn of(&mut self, at: At<'_>) -> &mut dyn Fleet {
        if at.stream == EVALUATION { &mut self.evaluations } else { &mut self.rounds }
    }
}

impl<R: Fleet, E: Fleet> Fleet for WithEvaluations<R, E> {
    fn asks_devices(&self, task: &RoundTask<'_>) -> bool {
        if task.at.stream == EVALUATION { self.evaluations.asks_devices(task) } else { self.rounds.asks_devices(task) }
    }

    fn prepare(&mut self, task: &RoundTask<'_>) -> Result<(), FleetError> {
        self.of(task.at).prepare(task)
    }

    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError> {
        self.of(task.at).attempt(task)
    }

    fn works_elsewhere(&self) -> bool {
        self.rounds.works_elsewhere()
    }

    fn settled(&mut self, at: At<'_>, failed: Option<FailureReason>) -> Result<(), FleetError> {
        self.of(at).settled(at, failed)
    }
}

/// The attempt at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At<'a> {
    /// The ledger stream ([`Phase::stream`]).
    pub stream: &'a str,
    /// The step within its stream.
    pub step: u64,
    /// Which round of the run that is; of an evaluation by devices, its step.
    pub round: u64,
    /// Which attempt at it, from 0.
    pub attempt: u32,
    /// Whether it was asked for before, by a program that ended during it. Where inputs leave their users, a fleet either
    /// takes the attempt up where it stood or answers that it was interrupted; it does not ask anybody again.
    pub again: bool,
}

/// The task of an attempt at a round.
#[derive(Debug, Clone, Copy)]
pub struct RoundTask<'a> {
    /// The attempt.
    pub at: At<'a>,
    /// What every user is told.
    pub task: Task<'a>,
    /// Who takes part, and how sums are made.
    pub phase: &'a Phase,
    /// How vectors are encoded.
    pub coding: &'a Coding,
    /// The attempts before this one that failed, as the ledger has them, by round: after a restart a fleet that keeps nothing
    /// finds out from them whom it asked.
    pub failures: &'a BTreeMap<u64, Vec<Failure>>,
    /// Set when somebody wants to stop: a fleet that waits for devices stops waiting.
    pub stop: &'a Stop,
}

/// Whether somebody wants a run to stop after what it is doing now.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// No users train.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Asks it to stop.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The outcome of an attempt.
#[derive(Debug)]
pub struct Attempted {
    /// The sum, or why there is none.
    pub outcome: Outcome,
    /// What the fleet saw on the way.
    pub observed: Observed,
}

/// The sum of an attempt, or why there is none.
#[derive(Debug)]
pub enum Outcome {
    /// A sum without noise.
    Sum(Sum),
    /// A sum with the noise that users added.
    Noised(NoisedSum),
    /// It failed by the protocol: that is recorded, and the run continues.
    Failed(FailureReason),
}

/// Observations of an attempt. There are no counts: how many took part is not released (rules P11 and P23).
#[derive(Debug, Default)]
pub struct Observed {
    /// Who is in the sum; of a failed attempt, the devices that were assigned the task. None in simulations, where nobody real is. A fleet
    /// makes it with the key of the run's pseudonyms ([`Secrets::pseudonym_key`]).
    pub participants: Option<ParticipationRecord>,
    /// Why groups of the cohort failed, if there is a sum without them; not how many.
    pub failed_groups: BTreeSet<FailureReason>,
    /// What only a simulation can see.
    pub exact: Option<Exact>,
}

/// Exact observations of a simulated attempt. Not private.
#[derive(Debug, Default)]
pub struct Exact {
    /// What each user did, by their numbers in ascending order.
    pub users: Vec<(u64, device::round::Exact)>,
    /// What they keep for later rounds, where they do.
    pub rests: Rests,
    /// Seconds until it was known who takes part.
    pub sample_s: f64,
    /// Seconds from the first user to the sum.
    pub train_s: f64,
    /// Seconds that the threads worked meanwhile, all together.
    pub busy_s: f64,
}

/// Why a fleet cannot continue: something is wrong with the program, the machine or the plan. An attempt that fails by
/// itself is no error, but [`Outcome::Failed`].
#[derive(Debug, Error)]
pub enum FleetError {
    /// Training or adding up.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Sums that do not fit together.
    #[error(transparent)]
    Sum(#[from] EncodingError),
    /// The population cannot fill the round.
    #[error(transparent)]
    Participation(#[from] ParticipationError),
    /// The limits on participation leave too few users.
    #[error(transparent)]
    TooFewLeft(#[from] TooFewLeft),
    /// There is nothing to draw from.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
    /// Somebody wants to stop, during an attempt: it is asked for again when the run continues.
    #[error("stopped during an attempt, which continues when the run is resumed")]
    Stopped,
    /// The coordinator of devices cannot continue.
    #[error(transparent)]
    Coordinator(Box<CoordinatorError>),
    /// Who took part cannot be written down, or a secret of the attempt cannot be kept.
    #[error(transparent)]
    Ledger(Box<LedgerError>),
    /// The model cannot be packed for devices.
    #[error("the model cannot be packed for devices: {0}")]
    Packing(#[source] std::io::Error),
    /// What devices are told of a step cannot be written.
    #[error("the terms of a step cannot be written for devices: {0}")]
    Terms(#[source] serde_json::Error),
    /// Secure aggregation by a phase that was planned without it.
    #[error("devices sent masked vectors in a phase that adds up in the clear")]
    NotSecure,
    /// Masks cannot be taken off, and that is no failure of the protocol.
    #[error("the masks cannot be removed: {0}")]
    Unmasking(#[source] RoundFailure),
    /// The driver of the coordinator cannot go on.
    #[error("the server of the devices cannot continue: {0}")]
    Driver(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<CoordinatorError> for FleetError {
    fn from(error: CoordinatorError) -> Self {
        Self::Coordinator(Box::new(error))
    }
}

impl From<LedgerError> for FleetError {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(Box::new(error))
    }
}

/// Makes attempts at rounds.
pub trait Fleet {
    /// Whether inputs leave their users in this attempt: then it is noted, durably, before anybody is asked, and after a restart it
    /// is asked for again ([`At::again`]). Where nothing says otherwise, they do where sums are made securely; a fleet of real
    /// devices says so always.
    fn asks_devices(&self, task: &RoundTask<'_>) -> bool {
        task.phase.secure.is_some()
    }

    /// Gets ready for an attempt, as far as that can be done before anybody is asked: whatever can fail without an attempt having
    /// been made fails here. An attempt that is to be noted is noted between this and [`Self::attempt`].
    ///
    /// # Errors
    /// When there is no attempt to be made.
    fn prepare(&mut self, _task: &RoundTask<'_>) -> Result<(), FleetError> {
        Ok(())
    }

    /// One attempt. Nothing of it is released or recorded when this returns.
    ///
    /// # Errors
    /// When the fleet cannot continue; nothing was released.
    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError>;

    /// Whether the threads of this process have time for something else during an attempt ([`Engine::works_elsewhere`]).
    fn works_elsewhere(&self) -> bool {
        false
    }

    /// What became of the last attempt is durable: what was kept for the case that it is asked for again can go. `failed` is why
    /// it failed, where it did; that may be something that the fleet does not know of, such as a release that was refused.
    ///
    /// # Errors
    /// When something must be taken to be there still.
    fn settled(&mut self, _at: At<'_>, _failed: Option<FailureReason>) -> Result<(), FleetError> {
        Ok(())
    }
}

impl<F: Fleet + ?Sized> Fleet for Box<F> {
    fn asks_devices(&self, task: &RoundTask<'_>) -> bool {
        (**self).asks_devices(task)
    }

    fn prepare(&mut self, task: &RoundTask<'_>) -> Result<(), FleetError> {
        (**self).prepare(task)
    }

    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError> {
        (**self).attempt(task)
    }

    fn works_elsewhere(&self) -> bool {
        (**self).works_elsewhere()
    }

    fn settled(&mut self, at: At<'_>, failed: Option<FailureReason>) -> Result<(), FleetError> {
        (**self).settled(at, failed)
    }
}
