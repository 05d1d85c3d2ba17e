//! Engines compute users' updates: on the threads of this process, on a GPU, or on MPI ranks around either.
//!
//! An engine trains users that somebody else chose and adds up what they send. It knows neither rounds nor privacy: what a user's
//! part is, is [`device::round`]'s, and who takes part is the fleet's. Sums are integer sums, and
//! what is random in a user's part is named by the attempt and the user, so every engine gives the same bits, in any order.
//! Engines can also evaluate models ([`measure`]) and train one on public text ([`central`]).

mod around;
pub mod central;
pub mod measure;
pub mod secure;
pub mod threads;
pub mod vanishing;

use std::{fmt, num::NonZeroUsize, ops::ControlFlow};

use device::{
    learner::{Learner, LearnerError},
    local::{LocalError, LocalPlan},
    round::{Drawn, Exact, Part, PartError, Task},
    upload::Rests,
};
use lm::{kernels::KernelPath, model::fast::TrainerError};
use privacy::{
    Participation,
    encoding::EncodingError,
    rng::{NoiseSource, Purpose, StreamKey},
    stages::Sum,
    workers::Undone,
};
use thiserror::Error;

pub use self::around::Around;
use self::{
    central::{MakeCentral, OnThread},
    measure::{MakeMeasurer, OnThreads},
    secure::{SecureError, SecureTask, Secured},
    threads::Threads,
};
use crate::{
    plan::{Phase, Plan},
    population::Population,
};

/// Whom an engine trains.
#[derive(Clone, Copy)]
pub struct Users<'a> {
    /// Everybody. An engine that reads ahead tells populations by where they lie and how many they are: one that it was given stays where
    /// it is as long as the engine is asked for sums, and no other takes its place.
    pub population: &'a dyn Population,
    /// Those who take part, by number; all of them are there.
    pub numbers: &'a [u64],
    /// The key of what is random in their parts. It opens nothing else of the run, so another process of it may have it.
    pub key: &'a StreamKey,
}

/// The key of what is random in users' parts of an attempt, by its position ([`crate::randomness::position`]).
#[must_use]
pub fn users_key(source: &NoiseSource, position: &[u64]) -> StreamKey {
    source.stream(Purpose::Rounding, position)
}

/// The randomness of one user's contribution: the stream of their number, whose first word decides the batch.
#[must_use]
pub fn drawn(key: &StreamKey, user: u64) -> Drawn {
    let mut words = key.chunk(user);
    let batch = words.next_word();
    Drawn { rounding: words, batch }
}

/// The sum of users' contributions.
#[derive(Debug)]
pub struct Summed {
    /// The sum of their updates.
    pub sum: Sum,
    /// What each did, exactly, by their numbers in ascending order: for simulations, which mark it as not private.
    pub exact: Vec<(u64, Exact)>,
    /// What each keeps for later rounds, where something is kept.
    pub rests: Rests,
    /// Seconds that were worked, on all threads together.
    pub busy_s: f64,
}

/// Why there is no sum.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The plan cannot be carried out.
    #[error(transparent)]
    Plan(#[from] LocalError),
    /// A model that cannot be measured, or not on these examples.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// A model that cannot be trained on its own.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// The engine has nothing to work with.
    #[error("the engine {engine} cannot be used here: {problem}")]
    Unavailable {
        /// Its name.
        engine: &'static str,
        /// The cause.
        problem: String,
    },
    /// The engine broke down.
    #[error("the engine {engine} failed, and nothing was released: {problem}")]
    Failed {
        /// Its name.
        engine: &'static str,
        /// The cause.
        problem: String,
    },
    /// A user's part failed.
    #[error("user {user}: {problem}")]
    Part {
        /// The user's number.
        user: u64,
        /// The cause.
        problem: PartError,
    },
    /// A user's data cannot be read.
    #[error("user {user}: {problem}")]
    Data {
        /// The user's number.
        user: u64,
        /// The cause.
        problem: corpus::store::StoreError,
    },
    /// Parts do not add up.
    #[error(transparent)]
    Sum(#[from] EncodingError),
    /// Secure aggregation failed; [`SecureError::failure`] says whether that is the protocol's.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// Secure aggregation by an engine that adds up in the clear.
    #[error(
        "several processes can only add up in the clear; run aggregation = \"secagg\" in a single process, without mpirun"
    )]
    NotSecure,
    /// Parts of updates, of which devices keep the rest, by an engine that keeps nothing for anybody.
    #[error(
        "several processes can only add up whole updates; use upload.kind = \"grid\" or \"dense\", or run in a single process, without mpirun"
    )]
    NotWhole,
    /// Workers that left something out.
    #[error("nothing was released: {0}")]
    Undone(#[from] Undone),
    /// A thread died.
    #[error("a training thread died; nothing was released")]
    Died,
    /// Another process failed.
    #[error("rank {rank}: {problem}")]
    Rank {
        /// The rank.
        rank: usize,
        /// The error it reported.
        problem: String,
    },
}

/// Trains users and adds up what they send. One that fails has given nothing.
pub trait Engine {
    /// The sum over these users.
    ///
    /// # Errors
    /// When it is not whole.
    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError>;

    /// Whether it would like to know early whom it will train next.
    fn foresees(&self) -> bool {
        false
    }

    /// Whom it will be asked to train next, as far as that is known: their text can be read while others train. A hint, and no
    /// more: they may be others when the time comes.
    fn foresee(&mut self, _numbers: &[u64]) {}

    /// Whether it trains elsewhere than on the threads of this process, which have time for something else meanwhile.
    fn works_elsewhere(&self) -> bool {
        false
    }

    /// How many users it holds at a time, where its results depend on that.
    fn chunk(&self) -> Option<NonZeroUsize> {
        None
    }

    /// What it computes on, where the last bits of its results depend on that.
    fn hardware(&self) -> Option<Hardware> {
        None
    }

    /// The engine as one that gives each user's part by itself, where it can: simulated secure aggregation needs that.
    fn each(&mut self) -> Option<&mut dyn PerUser> {
        None
    }

    /// The sum over these users by secure aggregation between them.
    ///
    /// # Errors
    /// When there is none, or the engine cannot.
    fn sum_securely(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        secure::aggregate(self.each().ok_or(EngineError::NotSecure)?, task, users, secure)
    }
}

/// Makes an engine of a plan's local training.
pub type Make = for<'a> fn(&LocalPlan, &'a dyn Learner, Means) -> Result<Box<dyn Engine + 'a>, EngineError>;

/// A kind of engine, by its name: of this crate, or of any other that the program lists.
#[derive(Clone, Copy)]
pub struct EngineKind {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description for help texts.
    pub about: &'static str,
    /// What its products can be computed in; the first is taken by default.
    pub precisions: &'static [Precision],
    /// Makes it.
    pub make: Make,
    /// Makes who measures models.
    pub measurer: MakeMeasurer,
    /// Makes who trains a model on public text.
    pub central: MakeCentral,
    /// Why it cannot carry out a plan, if it cannot, in words that say what to do: asked before a run begins.
    pub refuses: fn(&Plan) -> Option<String>,
    /// What decides the bits of its results, in a word that checkpoints keep: a run continues with the arithmetic that it began with.
    pub arithmetic: fn(Means) -> String,
}

impl fmt::Debug for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The threads of this process.
pub const THREADS: EngineKind = EngineKind {
    name: "threads",
    about: "the threads of this process",
    precisions: &[Precision::F32],
    make: |local, learner, means| Ok(Box::new(Threads::new(learner, local, means.kernels, means.threads)?)),
    measurer: |learner, means| Ok(Box::new(OnThreads::new(learner, means.kernels, means.threads))),
    central: |central, means| Ok(Box::new(OnThread::new(central, means)?)),
    refuses: |_| None,
    arithmetic: |means| means.kernels.name().to_owned(),
};

/// The precision of matrix products, for engines that can choose; sums are always in float32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Float32.
    #[default]
    F32,
    /// Operands with mantissas of 10 bits (NVIDIA's TF32).
    Tf32,
    /// Half-precision operands where that is faster, TF32 elsewhere.
    F16,
}

impl Precision {
    /// All values.
    pub const ALL: [Self; 3] = [Self::F32, Self::Tf32, Self::F16];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
        }
    }
}

/// Further options of an engine; engines ignore those that do not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineOptions {
    /// What its products are computed in.
    pub precision: Precision,
    /// How many users it holds at a time, where it trains several together; none leaves that to the engine.
    pub chunk: Option<NonZeroUsize>,
    /// Whether every user's integers pass through `Encoded::of` of this process, also where they were checked elsewhere.
    pub check_encodings: bool,
}

/// What an accelerator and its software are, as far as the last bits of results depend on it: cuBLAS promises the same bits for the same
/// architecture, number of multiprocessors and version, and compilers promise nothing from one version to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hardware {
    /// The architecture, such as 9.0.
    pub architecture: (u32, u32),
    /// How many multiprocessors there are.
    pub processors: u32,
    /// The version of the library that multiplies.
    pub library: u32,
    /// The version of the compiler of other kernels.
    pub compiler: (u32, u32),
    /// The version of the driver, which makes machine code of what was compiled.
    pub driver: u32,
}

/// With what a run is computed; nothing of it changes a bit of the result but what [`EngineKind::arithmetic`] names, which is recorded.
#[derive(Debug, Clone, Copy)]
pub struct Means {
    /// The kernels.
    pub kernels: KernelPath,
    /// Threads, for training and evaluation.
    pub threads: usize,
    /// Processes that share the users of a round.
    pub processes: usize,
    /// The engine.
    pub engine: EngineKind,
    /// How the engine computes.
    pub options: EngineOptions,
    /// On what, once the engine is made ([`Self::settled_by`]) and where that matters.
    pub hardware: Option<Hardware>,
}

impl Means {
    /// So many threads, which also train.
    #[must_use]
    pub fn threads(kernels: KernelPath, threads: usize) -> Self {
        Self { kernels, threads, processes: 1, engine: THREADS, options: EngineOptions::default(), hardware: None }
    }

    /// The same for a plan, as far as nothing else was said: an engine that trains users together holds a whole cohort if it can,
    /// or its share of it, and where a sum must be known to be made of checked vectors (the clipped denominator), every vector is checked here.
    ///
    /// # Errors
    /// When the engine cannot carry out the plan.
    pub fn for_plan(mut self, plan: &Plan) -> Result<Self, EngineError> {
        if let Some(problem) = (self.engine.refuses)(plan) {
            return Err(EngineError::Unavailable { engine: self.engine.name, problem });
        }
        let cohort = plan.phases().iter().map(foreseen_users).max().unwrap_or(0);
        self.options.chunk = self.options.chunk.or(NonZeroUsize::new(cohort.div_ceil(self.processes.max(1))));
        self.options.check_encodings |= plan.phases().iter().any(|phase| phase.divides_by_weight());
        Ok(self)
    }

    /// The same with what an engine that was made by them has come to: it may hold fewer users at a time than it was asked to, and
    /// knows what it computes on.
    #[must_use]
    pub fn settled_by(mut self, engine: &dyn Engine) -> Self {
        self.options.chunk = engine.chunk();
        self.hardware = engine.hardware();
        self
    }

    /// The name of what determines the bits of the results.
    #[must_use]
    pub fn arithmetic(self) -> String {
        (self.engine.arithmetic)(self)
    }
}

/// Users of a round: as many as there will hardly be more.
fn foreseen_users(phase: &Phase) -> usize {
    let cohort = phase.cohort as f64;
    let most = match phase.participation {
        Participation::Poisson { .. } => cohort + 3.0 * libm::sqrt(cohort),
        _ => cohort,
    };
    most.ceil() as usize
}

/// The engine of a plan's local training, by the means that there are.
///
/// # Errors
/// When model or plan cannot be carried out by these means.
pub fn of<'a>(local: &LocalPlan, learner: &'a dyn Learner, means: Means) -> Result<Box<dyn Engine + 'a>, EngineError> {
    (means.engine.make)(local, learner, means)
}

/// Takes a user's part, on the thread that trained it; breaks to end the training of all.
pub type Take<'a> = &'a (dyn Fn(u64, Part) -> ControlFlow<()> + Sync);

/// An engine that gives each user's part by itself.
pub trait PerUser {
    /// How many threads it has.
    fn threads(&self) -> usize;

    /// Trains users, in no order, and gives each part to `take`. Returns the seconds that were worked, on all threads together.
    ///
    /// # Errors
    /// When somebody's part failed.
    fn each(&mut self, task: &Task<'_>, users: &Users<'_>, take: Take<'_>) -> Result<f64, EngineError>;
}
