//! Independent, tree, banded and BLT noise, one step at a time.
//!
//! One contract for all of them, `StreamingMatrix`: `init` makes the state before the first step, `next` adds the
//! integer noise of the next step, its correlation with the steps before included; a restart begins a new segment (rule
//! P7). The dense matrix is the test of each. [`Mechanism`] is what runs use: it binds a plan and a layout, draws each step's
//! noise from that step's key, and [`Mechanism::release`] is the only way from a [`Sum`] to a private [`Released`]. Where the users add the noise
//! themselves ([`MechanismPlan::distributed`]) a mechanism adds none: it takes noised sums, counts the steps and says
//! what they amount to.
//!
//! A step is released once: the state moves on, and the ledger refuses a second release of a step (rule P13). What a run
//! keeps of a mechanism is its [`Position`]: a counter. The noise that correlated mechanisms remember is never written
//! anywhere, since together with what was released it would reveal the sums (rule P20); before the next release it is drawn
//! again from the keys of the segment's steps, and where the segment is over it is not needed at all.
//!
//! Coordinates are drawn in chunks, each from its own stream, on any [`Workers`]; the bits are the same.

mod banded;
mod blt;
mod distributed;
mod draws;
mod identity;
mod tree;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

pub use self::banded::FRACTIONAL_BITS as BANDED_FRACTIONAL_BITS;
use self::{banded::Banded, blt::Blt, identity::Identity, tree::Tree};
use crate::{
    encoding::{
        DistributedNoise, EncodingId,
        layout::{Layout, LayoutSegment, SegmentKind},
    },
    event::{Adjacency, EventError, Noise, NoiseMatrix, PrivacyEvent, Segment, check_segments},
    noise::discrete_gaussian::SigmaError,
    participation::Participation,
    rng::Randomness,
    stages::{Published, Released, Sum},
    step_keys::{AddedTo, LastStep, StepAt, StepKeyError, StepKeys, StepNoise},
    workers::{Alone, Undone, Workers},
};

/// First numbers of the positions in a run's streams, so that no two kinds of noise ever share one.
const INDEPENDENT: u64 = 0;
const TREE: u64 = 1;
const TOEPLITZ: u64 = 2;

/// The most noise that correlated mechanisms store, in grid steps: 16 times this still fits what they store it in.
const MOST_CORRELATED_SIGMA: u64 = 1 << 27;

/// Why a mechanism cannot be made or used.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum MechanismError {
    /// The event contradicts itself.
    #[error(transparent)]
    Event(#[from] EventError),
    /// A segment of the vector has no noise, or too little.
    #[error(transparent)]
    Sigma(#[from] SigmaError),
    /// More noise than a mechanism can store.
    #[error("the noise parameter {sigma} exceeds this mechanism's limit of {most}; use fewer grid_bits")]
    TooMuchNoise {
        /// The requested sigma.
        sigma: u64,
        /// The largest sigma supported.
        most: u64,
    },
    /// Coefficients that are not on the lattice (rule P4).
    #[error("the coefficients must be multiples of 2^-{bits} from 0 to 1; `factorization` rounds them so")]
    OffLattice {
        /// Fractional bits.
        bits: u32,
    },
    /// The first coefficient of C must be 1.
    #[error("the first coefficient must be 1: divide all by it")]
    FirstCoefficient,
    /// Coefficients that add up to more than the arithmetic holds.
    #[error("the coefficients add up to {sum}, more than {most}")]
    Coefficients {
        /// The sum of the coefficients.
        sum: f64,
        /// The largest sum supported.
        most: f64,
    },
    /// A tree is completed to a power of two.
    #[error("a tree can only be completed to a power of two, not to {size} rounds")]
    Completion {
        /// The requested size.
        size: u64,
    },
    /// Within a segment clip and rotation are constant (rule P7): what correlated noise adds now is to cancel what it
    /// added before, on the same grid.
    #[error(
        "the clip norm or the rotation changed within a segment; with correlated noise they may only change at restarts"
    )]
    EncodingMoved,
    /// The sum is not laid out as the mechanism expects.
    #[error("the layout of the sum differs from that of the mechanism")]
    Layout,
    /// Noise that users add cannot be correlated over rounds.
    #[error(
        "users can only add independent noise: correlated noise is partly removed again in later rounds, when the users who added it are gone; use independent noise, or let the server add it"
    )]
    DistributedCorrelated,
    /// Noise that users add is not amplified by sampling (rule P3).
    #[error(
        "noise added by users is accounted for without amplification by sampling; use minimum-separation or once participation"
    )]
    DistributedSampled,
    /// There is no fast noise for users to add.
    #[error("users always add exact noise; floating-point noise is only possible if the server adds it")]
    DistributedFloatingPoint,
    /// The noise that users add is not the plan's.
    #[error("the noise that the users added differs from the plan")]
    OtherNoise,
    /// A sum without noise, where users were to add it.
    #[error("with this mechanism the users add the noise, so it can only release sums that are noised already")]
    NotNoised,
    /// A release that is not the next step's.
    #[error("the release does not belong to step {step} of this mechanism")]
    NotNext {
        /// The next step.
        step: u64,
    },
    /// Only a step with an event of its own can be left out.
    #[error(
        "a step can only be skipped if users are sampled and the noise is independent; otherwise it is attempted again"
    )]
    PassedOver,
    /// Correlated noise hides sums over rounds, and quotients with different denominators do not add up (rule P10).
    #[error("the clipped denominator needs independent noise; with correlated noise, use a fixed denominator")]
    Quotient,
    /// All planned steps have been released.
    #[error("all {rounds} planned rounds have been released")]
    Finished {
        /// The number of rounds.
        rounds: u64,
    },
    /// Keys of other randomness than the plan's.
    #[error("these keys do not produce the noise that the ledger was begun with")]
    OtherRandomness,
    /// A step has no key.
    #[error(transparent)]
    Keys(#[from] StepKeyError),
    /// A position that the plan does not have.
    #[error("the plan has no round {rounds} of segment {segment}")]
    Position {
        /// The segment.
        segment: usize,
        /// The round in it.
        rounds: u64,
    },
    /// Noise beyond 16 sigma, which honest noise does not reach once in 10^57 draws; nothing was released.
    #[error("the noise overflowed; nothing was released")]
    Overflow,
    /// Some of the vector was left without its noise; nothing was released.
    #[error("the noise is incomplete, and nothing was released: {0}")]
    Undone(#[from] Undone),
    /// A step failed half-way; the state cannot be trusted.
    #[error("an earlier step failed; open the run again")]
    Broken,
}

/// The correlation of noise over steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Correlation {
    /// Independent noise.
    Independent,
    /// Noise correlated by a strategy matrix.
    Matrix(NoiseMatrix),
}

/// The plan of a mechanism over a whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanismPlan {
    /// Which of the run's mechanisms this is: two never share noise.
    pub stream: u64,
    /// The adjacency.
    pub adjacency: Adjacency,
    /// How users take part.
    pub participation: Participation,
    /// How noise is correlated.
    pub correlation: Correlation,
    /// The rounds between restarts; independent noise has one segment.
    pub segments: Vec<Segment>,
    /// The noise that the users add themselves; none where the mechanism adds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distributed: Option<DistributedNoise>,
}

impl MechanismPlan {
    /// The number of rounds.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.segments.iter().map(|s| s.rounds).sum()
    }

    /// A step as the keys of its noise name it, and whether later steps subtract noise that was added up to it; none where
    /// the mechanism adds no noise or has no such step.
    #[must_use]
    pub fn last_step(&self, step: u64) -> Option<LastStep> {
        let mut ends = 0;
        for (segment, rounds) in self.segments.iter().map(|s| s.rounds).enumerate() {
            ends += rounds;
            if step < ends {
                let at = StepAt { stream: self.stream, segment: segment as u64, step };
                let needed_again = self.correlation != Correlation::Independent && step + 1 < ends;
                return self.distributed.is_none().then_some(LastStep { at, needed_again });
            }
        }
        None
    }

    /// Bytes of memory that the mechanism keeps for this layout. Ask before `init`: 400 bands of 2.4 million coordinates
    /// are 3.8 GB.
    #[must_use]
    pub fn memory(&self, layout: &Layout) -> u64 {
        match &self.correlation {
            Correlation::Independent => 0,
            Correlation::Matrix(NoiseMatrix::Tree) => Tree::memory(layout, &self.segments),
            Correlation::Matrix(NoiseMatrix::Banded { coefficients }) => Banded::memory(layout, coefficients.len()),
            Correlation::Matrix(NoiseMatrix::Blt { buffer_decay, .. }) => Blt::memory(layout, buffer_decay.len()),
        }
    }

    /// Refuses what cannot be accounted for or carried out.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self, layout: &Layout) -> Result<(), MechanismError> {
        if self.adjacency == Adjacency::ReplaceOne && !matches!(self.participation, Participation::FixedSize { .. }) {
            let (event, needs) = ("this mechanism", "add-or-remove or zero-out");
            return Err(EventError::Adjacency { event, adjacency: self.adjacency, needs }.into());
        }
        let one_band = NoiseMatrix::Banded { coefficients: vec![1.0] };
        let matrix = match &self.correlation {
            Correlation::Independent => &one_band,
            Correlation::Matrix(matrix) => matrix,
        };
        check_segments(matrix, &self.segments)?;
        if let Some(noise) = &self.distributed {
            self.check_distributed(noise, layout)?;
        }
        self.event_at(self.segments.len() - 1, u64::MAX, layout)?.flatten()?;
        if self.correlation == Correlation::Independent {
            return Ok(());
        }
        if layout.find(SegmentKind::Quotient).is_some() {
            return Err(MechanismError::Quotient);
        }
        let most = MOST_CORRELATED_SIGMA;
        if let Some(s) = layout.segments().iter().find(|s| s.sigma > most) {
            return Err(MechanismError::TooMuchNoise { sigma: s.sigma, most });
        }
        let (sum, most) = match matrix {
            NoiseMatrix::Tree => return Ok(()),
            NoiseMatrix::Banded { coefficients } => (coefficients.iter().sum::<f64>(), 128.0),
            NoiseMatrix::Blt { output_scale, .. } => (output_scale.iter().sum::<f64>(), 1.0),
        };
        if sum <= most { Ok(()) } else { Err(MechanismError::Coefficients { sum, most }) }
    }

    /// The event of the first rounds of the run, all planned ones or fewer.
    ///
    /// # Errors
    /// When the plan cannot be accounted for.
    pub fn event(&self, rounds: u64, layout: &Layout) -> Result<PrivacyEvent, MechanismError> {
        let mut left = rounds.clamp(1, self.rounds().max(1));
        let mut segment = 0;
        while segment + 1 < self.segments.len() && left > self.segments[segment].rounds {
            left -= self.segments[segment].rounds;
            segment += 1;
        }
        let event = self.event_at(segment, left, layout)?;
        match event {
            PrivacyEvent::SampledGaussian { .. } => Ok(event.times(rounds)),
            _ => Ok(event),
        }
    }

    /// What all steps up to and with `rounds` rounds of a segment amount to; for independent noise on a sampled cohort,
    /// what the one step amounts to.
    fn event_at(&self, segment: usize, rounds: u64, layout: &Layout) -> Result<PrivacyEvent, MechanismError> {
        if let Some(noise) = &self.distributed {
            return Ok(self.distributed_event(noise, segment, rounds));
        }
        let noise = layout.noise(self.adjacency, |s| self.slack(s, layout)).ok_or(SigmaError { got: 0 })?;
        let sampled = self.participation.is_sampled();
        let matrix = match &self.correlation {
            Correlation::Independent if sampled => return Ok(self.sampled(noise)),
            Correlation::Independent => NoiseMatrix::Banded { coefficients: vec![1.0] },
            Correlation::Matrix(matrix) => matrix.clone(),
        };
        let mut segments = self.segments[..=segment].to_vec();
        if let Some(last) = segments.last_mut()
            && rounds < last.rounds
        {
            *last = Segment::of(rounds);
        }
        let (adjacency, participation) = (self.adjacency, self.participation);
        Ok(PrivacyEvent::CorrelatedGaussian { adjacency, matrix, segments, participation, noise })
    }

    fn sampled(&self, noise: Noise) -> PrivacyEvent {
        PrivacyEvent::SampledGaussian { adjacency: self.adjacency, participation: self.participation, noise }
    }

    /// What the arithmetic of the mechanism adds to a segment's sensitivity.
    fn slack(&self, segment: &LayoutSegment, layout: &Layout) -> f64 {
        match &self.correlation {
            Correlation::Matrix(NoiseMatrix::Blt { buffer_decay, output_scale }) => {
                Blt::slack(layout, buffer_decay, output_scale, self.rounds(), segment.len)
            }
            _ => 0.0,
        }
    }
}

/// Noise that comes step by step: `C^-1 Z` for a strategy matrix C, in exact arithmetic.
trait StreamingMatrix: Send {
    /// Adds the noise of the next step to the values, chunk by chunk; who does which changes nothing. The position is (stream,
    /// segment, round in the segment).
    fn next(
        &mut self,
        noise: &StepNoise,
        position: [u64; 3],
        values: &mut [i64],
        workers: &dyn Workers,
    ) -> Result<(), MechanismError>;

    /// Draws the noise of a position before there is anything to add it to, where that saves time; nothing follows from it.
    fn foresee(
        &mut self,
        _noise: &StepNoise,
        _position: [u64; 3],
        _workers: &dyn Workers,
    ) -> Result<(), MechanismError> {
        Ok(())
    }

    /// Forgets everything: a new segment begins.
    fn restart(&mut self);
}

/// The noise of a step that can be drawn before there is a sum ([`Mechanism::foreseen`]).
#[derive(Debug)]
pub struct Foreseen {
    noise: StepNoise,
    position: [u64; 3],
}

/// The state of each kind of matrix.
#[derive(Debug)]
enum Matrix {
    Identity(Identity),
    Tree(Tree),
    Banded(Banded),
    Blt(Blt),
}

impl Matrix {
    fn init(plan: &MechanismPlan, layout: &Layout) -> Result<Self, MechanismError> {
        match &plan.correlation {
            Correlation::Independent => Identity::init(layout).map(Self::Identity),
            Correlation::Matrix(NoiseMatrix::Tree) => Tree::init(layout, &plan.segments).map(Self::Tree),
            Correlation::Matrix(NoiseMatrix::Banded { coefficients }) => {
                Banded::init(layout, coefficients).map(Self::Banded)
            }
            Correlation::Matrix(NoiseMatrix::Blt { buffer_decay, output_scale }) => {
                Blt::init(layout, buffer_decay, output_scale).map(Self::Blt)
            }
        }
    }

    fn streaming(&mut self) -> &mut dyn StreamingMatrix {
        match self {
            Self::Identity(m) => m,
            Self::Tree(m) => m,
            Self::Banded(m) => m,
            Self::Blt(m) => m,
        }
    }
}

/// The position of a mechanism: all that is stored of it. It holds no noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    segment: usize,
    /// Rounds of the segment that were released.
    rounds: u64,
    /// The encoding of the segment's sums, once there was one.
    encoding: Option<EncodingId>,
}

impl Position {
    const START: Self = Self { segment: 0, rounds: 0, encoding: None };
}

/// A mechanism during its run.
#[derive(Debug)]
pub struct Mechanism {
    plan: MechanismPlan,
    layout: Layout,
    randomness: Randomness,
    /// What makes the noise; none where the users add it.
    matrix: Option<Matrix>,
    position: Position,
    /// Rounds of the segment whose noise the matrix remembers; the others are drawn again when the next is needed.
    drawn: u64,
    /// The noise of the next step, where the matrix has it already.
    early: Option<Foreseen>,
    broken: bool,
}

impl Mechanism {
    /// The state before the first step.
    ///
    /// # Errors
    /// When the plan cannot be accounted for or carried out.
    pub fn init(plan: MechanismPlan, layout: &Layout, randomness: Randomness) -> Result<Self, MechanismError> {
        plan.check(layout)?;
        let matrix = match plan.distributed {
            None => Some(Matrix::init(&plan, layout)?),
            Some(_) => {
                distributed::check_randomness(randomness)?;
                None
            }
        };
        let layout = layout.clone();
        Ok(Self { plan, layout, randomness, matrix, position: Position::START, drawn: 0, early: None, broken: false })
    }

    /// The state at a position, as [`Mechanism::position`] gave it.
    ///
    /// # Errors
    /// When the plan has no such position, or cannot be carried out.
    pub fn at(
        plan: MechanismPlan,
        layout: &Layout,
        randomness: Randomness,
        position: Position,
    ) -> Result<Self, MechanismError> {
        let mut mechanism = Self::init(plan, layout, randomness)?;
        let Position { segment, rounds, .. } = position;
        let ends = mechanism.plan.segments.get(segment).map_or(1, |s| s.rounds);
        if segment > mechanism.plan.segments.len() || rounds >= ends {
            return Err(MechanismError::Position { segment, rounds });
        }
        mechanism.position = position;
        Ok(mechanism)
    }

    /// The state of independent noise after so many releases. No other noise continues from their number alone.
    ///
    /// # Errors
    /// When noise is correlated, the plan has fewer steps, or it cannot be carried out.
    pub fn after(
        plan: MechanismPlan,
        layout: &Layout,
        randomness: Randomness,
        released: u64,
    ) -> Result<Self, MechanismError> {
        let alone = plan.correlation == Correlation::Independent && plan.segments.len() == 1;
        let position = match plan.rounds() {
            all if alone && released < all => Position { rounds: released, ..Position::START },
            all if alone && released == all => Position { segment: 1, ..Position::START },
            _ => return Err(MechanismError::Position { segment: 0, rounds: released }),
        };
        Self::at(plan, layout, randomness, position)
    }

    /// The position of the next step.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Steps released so far.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step_at(self.position.rounds).step
    }

    /// A round of this segment as a step of the run.
    fn step_at(&self, round: u64) -> StepAt {
        let segment = self.position.segment;
        let before: u64 = self.plan.segments[..segment].iter().map(|s| s.rounds).sum();
        StepAt { stream: self.plan.stream, segment: segment as u64, step: before + round }
    }

    /// Whether the next step is the first of a segment: the moment at which clip, noise and coefficients may change.
    #[must_use]
    pub const fn at_restart(&self) -> bool {
        self.position.rounds == 0
    }

    /// Whether later steps subtract noise that was added so far.
    #[must_use]
    pub fn needs_noise_again(&self) -> bool {
        let last = self.step().checked_sub(1).and_then(|step| self.plan.last_step(step));
        last.is_some_and(|last| last.needed_again)
    }

    /// The event of the next release, to check it with the ledger before the round.
    ///
    /// # Errors
    /// When all steps have been released.
    pub fn next_event(&self) -> Result<PrivacyEvent, MechanismError> {
        self.check_next()?;
        self.plan.event_at(self.position.segment, self.position.rounds + 1, &self.layout)
    }

    /// The plan over the whole run.
    #[must_use]
    pub const fn plan(&self) -> &MechanismPlan {
        &self.plan
    }

    /// Adds the noise of the next step to a sum. The only way to a private [`Released`], but for
    /// [`Mechanism::release_noised`].
    ///
    /// # Errors
    /// When the sum is laid out differently, the users were to add the noise, all steps have been released, the step's key
    /// cannot be kept, or the noise overflowed; nothing is released then, and the sum is gone.
    pub fn release(&mut self, sum: Sum, keys: &mut dyn StepKeys) -> Result<Released, MechanismError> {
        self.release_by(sum, keys, &Alone)
    }

    /// The same on the threads of the caller: chunks of the vector have streams of their own, so the release has the same bits
    /// whichever worker draws which.
    ///
    /// # Errors
    /// As [`Mechanism::release`]; and when the workers left something out.
    pub fn release_by(
        &mut self,
        sum: Sum,
        keys: &mut dyn StepKeys,
        workers: &dyn Workers,
    ) -> Result<Released, MechanismError> {
        if self.matrix.is_none() {
            return Err(MechanismError::NotNoised);
        }
        if keys.randomness() != self.randomness {
            return Err(MechanismError::OtherRandomness);
        }
        if *sum.layout() != self.layout {
            return Err(MechanismError::Layout);
        }
        let (values, layout, encoding) = sum.into_parts();
        // Until the noise is on them they are wiped wherever this fails.
        let mut values = Zeroizing::new(values);
        self.check_encoding(encoding)?;
        self.check_next()?;
        self.catch_up(keys, workers)?;
        match self.early.take().filter(|early| early.position == self.noise_position()) {
            // Drawn from the step alone, in a simulation: there is no key to be drawn for this sum.
            Some(early) => self.add_noise(&early.noise, &mut values, workers)?,
            None => {
                let added_to = AddedTo::of(encoding, &values, workers)?;
                let noise = keys.draw(self.step_at(self.position.rounds), &added_to)?;
                self.add_noise(&noise, &mut values, workers)?;
            }
        }
        self.count_step(encoding);
        let released = self.released(std::mem::take(&mut *values), layout, encoding);
        self.restart_if_due();
        Ok(released)
    }

    /// What the noise of the next step will be, where that is known before its sum is: in simulations with independent noise. With secret
    /// noise a step's key follows from its sum (rule P21).
    #[must_use]
    pub fn foreseen(&self, keys: &dyn StepKeys) -> Option<Foreseen> {
        let independent = self.matrix.is_some() && self.plan.correlation == Correlation::Independent;
        if !independent || keys.randomness() != self.randomness || self.check_next().is_err() {
            return None;
        }
        let noise = keys.foreseen(self.step_at(self.position.rounds))?;
        // Independent noise is that of the round, whatever was drawn before.
        Some(Foreseen { noise, position: [self.plan.stream, self.position.segment as u64, self.position.rounds] })
    }

    /// Draws it, so that the release has only to add it. The release is the same without.
    ///
    /// # Errors
    /// When the workers left something out; nothing is kept of it then.
    pub fn draw_early(&mut self, foreseen: Foreseen, workers: &dyn Workers) -> Result<(), MechanismError> {
        self.early = None;
        if let Some(matrix) = &mut self.matrix {
            matrix.streaming().foresee(&foreseen.noise, foreseen.position, workers)?;
            self.early = Some(foreseen);
        }
        Ok(())
    }

    /// Which noise the matrix adds next.
    fn noise_position(&self) -> [u64; 3] {
        [self.plan.stream, self.position.segment as u64, self.drawn]
    }

    /// Moves on past a step that was released and recorded before this state was kept again: after a crash the recorded
    /// release is used, and the step is never released again (rule P13).
    ///
    /// # Errors
    /// When the release is not that of the next step, or contradicts the segment; the state stays as it is.
    pub fn pass(&mut self, released: &Published) -> Result<(), MechanismError> {
        let (step, encoding) = (self.step(), released.encoding());
        if released.step() != step || *released.layout() != self.layout {
            return Err(MechanismError::NotNext { step });
        }
        self.check_encoding(encoding)?;
        self.check_next()?;
        self.count_step(encoding);
        self.restart_if_due();
        Ok(())
    }

    /// Moves on past a step of which nothing was released, nor will be: its users are sampled, and a sampled step is attempted
    /// once (rule P21). No key is drawn for it, so no noise is ever used for another sum; every later step keeps its number,
    /// and the noise of that number. The event of such a step is its own, and what is not released does not add to it.
    ///
    /// # Errors
    /// When noise is correlated, or one event stands for many steps; the state stays as it is.
    pub fn pass_over(&mut self) -> Result<(), MechanismError> {
        self.check_next()?;
        let alone = self.plan.correlation == Correlation::Independent && self.plan.participation.is_sampled();
        if !alone || self.plan.distributed.is_some() {
            return Err(MechanismError::PassedOver);
        }
        self.position.rounds += 1;
        self.restart_if_due();
        Ok(())
    }

    /// Rule P7.
    fn check_encoding(&self, encoding: EncodingId) -> Result<(), MechanismError> {
        let moved = self.position.encoding.is_some_and(|known| known != encoding);
        if moved && self.plan.correlation != Correlation::Independent {
            return Err(MechanismError::EncodingMoved);
        }
        Ok(())
    }

    fn check_next(&self) -> Result<(), MechanismError> {
        if self.broken {
            return Err(MechanismError::Broken);
        }
        if self.position.segment == self.plan.segments.len() {
            return Err(MechanismError::Finished { rounds: self.plan.rounds() });
        }
        Ok(())
    }

    /// Draws again the noise of this segment that the matrix does not remember.
    fn catch_up(&mut self, keys: &dyn StepKeys, workers: &dyn Workers) -> Result<(), MechanismError> {
        if !self.needs_noise_again() {
            self.drawn = self.position.rounds;
        }
        let mut nowhere = if self.drawn < self.position.rounds { vec![0; self.layout.len()] } else { Vec::new() };
        while self.drawn < self.position.rounds {
            let noise = keys.again(self.step_at(self.drawn))?;
            self.add_noise(&noise, &mut nowhere, workers)?;
        }
        Ok(())
    }

    /// Adds the noise of the first round that the matrix does not remember, and remembers it.
    fn add_noise(
        &mut self,
        noise: &StepNoise,
        values: &mut [i64],
        workers: &dyn Workers,
    ) -> Result<(), MechanismError> {
        let position = self.noise_position();
        let Some(matrix) = &mut self.matrix else { return Err(MechanismError::NotNoised) };
        self.broken = true;
        matrix.streaming().next(noise, position, values, workers)?;
        self.broken = false;
        self.drawn += 1;
        Ok(())
    }

    fn count_step(&mut self, encoding: EncodingId) {
        self.position.rounds += 1;
        self.position.encoding = Some(encoding);
    }

    /// What was released at the step that was just counted.
    fn released(&self, values: Vec<i64>, layout: Layout, encoding: EncodingId) -> Released {
        let event = match self.plan.event_at(self.position.segment, self.position.rounds, &self.layout) {
            Ok(event) => event,
            Err(e) => unreachable!("the event of the whole run was checked by init: {e}"),
        };
        Released::new(values, layout, encoding, event, self.randomness, self.step() - 1)
    }

    fn restart_if_due(&mut self) {
        if self.position.rounds == self.plan.segments[self.position.segment].rounds {
            self.matrix.iter_mut().for_each(|matrix| matrix.streaming().restart());
            self.position = Position { segment: self.position.segment + 1, ..Position::START };
            self.drawn = 0;
        }
    }
}

#[cfg(test)]
mod dense_tests;
