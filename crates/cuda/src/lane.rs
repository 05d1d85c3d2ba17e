//! A part of a chunk, with its own CUDA stream.
//!
//! A step is made of kernels of two kinds: those that stream weights through the card, and the recurrence, which waits for itself token
//! after token and leaves the memory idle. Two lanes, each with half of the users of a chunk, do the one while the other does the
//! other. They share nothing but the card, and each has as many places as the other, so what a user sends does not depend on the lane.

use device::local::LocalPlan;
use privacy::{encoding::GridRule, stages::ClipRule, workers::Workers};

use crate::{
    card::{Card, Graph, Pinned},
    encoding::{Drawing, Encoder, Found},
    error::CudaError,
    network::Network,
    schedule::Schedule,
};

/// What the users of a lane came to.
pub(crate) struct Came {
    pub(crate) found: Vec<Found>,
    pub(crate) losses: Vec<f64>,
}

/// Some of the users of a chunk, trained beside the others.
pub(crate) struct Lane {
    pub(crate) card: Card,
    network: Network,
    encoder: Encoder,
    greedy: bool,
    /// The graph of one step.
    step: Option<Graph>,
}

impl Lane {
    pub(crate) fn new(card: Card, network: Network, local: &LocalPlan) -> Result<Self, CudaError> {
        let encoder = Encoder::new(&card, &network, &card.architecture()?)?;
        Ok(Self { card, network, encoder, greedy: local.greedy, step: None })
    }

    pub(crate) const fn network(&self) -> &Network {
        &self.network
    }

    /// A round begins.
    pub(crate) fn begin(&mut self, model: &Pinned<f32>, rule: &ClipRule, key: &[u8; 32]) -> Result<(), CudaError> {
        let stale = self.encoder.begin(&self.card, &self.network, model, rule, key);
        // Also where it failed: memory may have moved before.
        if !matches!(stale, Ok(false)) {
            self.step = None;
        }
        stale.map(drop)
    }

    /// Sets the card to work on these users; it continues by itself.
    pub(crate) fn launch(
        &mut self,
        schedule: &Schedule,
        drawings: &[Drawing],
        rule: &GridRule,
    ) -> Result<(), CudaError> {
        let Self { card, network, encoder, greedy, step } = self;
        let stale = network.read(card, schedule);
        if !matches!(stale, Ok(false)) {
            *step = None;
        }
        stale?;
        encoder.begin_chunk(card, network, drawings)?;
        let between = || if *greedy { encoder.project(card, network) } else { Ok(()) };
        let step = match step {
            Some(step) => step,
            none => none.insert(card.record(|| network.step(card, between))?),
        };
        (0..schedule.steps).try_for_each(|_| card.replay(step))?;
        network.settle(card)?;
        encoder.encode(card, network, rule)
    }

    /// What the first so many users came to; waits for the card.
    pub(crate) fn came(&self, users: usize) -> Result<Came, CudaError> {
        let found = self.encoder.found(&self.card, users)?;
        let mut losses = vec![0.0; users];
        self.card.download(&self.network.loss, &mut losses)?;
        Ok(Came { found, losses })
    }

    /// One user's difference to the model of the round.
    pub(crate) fn difference(&self, user: usize) -> Result<Vec<f32>, CudaError> {
        self.encoder.difference(&self.card, &self.network, user)
    }

    /// One user's integers, with room for `rest` more: a copy that grows leaves another one behind.
    pub(crate) fn integers(&self, user: usize, rest: usize) -> Result<Vec<i32>, CudaError> {
        self.encoder.integers(&self.card, user, rest)
    }

    /// Adds the sum of another lane, whose work is done.
    pub(crate) fn join(&self, other: &Self) -> Result<(), CudaError> {
        self.encoder.join(&self.card, &other.encoder)
    }

    /// The sum of all chunks of the round, with room for `rest` numbers behind it.
    pub(crate) fn sum(&self, by: &mut Pinned<i64>, rest: usize, workers: &dyn Workers) -> Result<Vec<i64>, CudaError> {
        self.encoder.sum(&self.card, by, rest, workers)
    }

    /// Everybody is left to the host from now on: for tests.
    pub(crate) const fn leave_all_to_host(&mut self) {
        self.encoder.leave_all_to_host();
    }

    /// A round is over: nothing of anybody stays on the card.
    pub(crate) fn forget(&mut self) -> Result<(), CudaError> {
        // A call is not made where something failed unnoticed before it, and says so: the next one is.
        self.forget_once().or_else(|_| self.forget_once())
    }

    fn forget_once(&mut self) -> Result<(), CudaError> {
        let cleared = self.card.clear_workspace();
        cleared.and(self.encoder.forget(&self.card, &mut self.network))
    }

    /// Whether nothing of a round is left: for tests.
    pub(crate) fn is_forgotten(&mut self) -> Result<bool, CudaError> {
        Ok(self.card.workspace_is_clear()? && self.encoder.is_forgotten(&self.card, &mut self.network)?)
    }
}

impl Drop for Lane {
    /// Memory is given back without anything of anybody in it, and not while the card still works on it.
    fn drop(&mut self) {
        drop(self.forget());
    }
}
