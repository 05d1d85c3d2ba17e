//! The loop: Algorithm 1 of McMahan et al. 2018, of Andrew et al. 2021 and of Xu et al. 2023, for every fleet.
//!
//! ```text
//! draw the cohort -> fleet (train, clip, encode, sum) -> release -> record -> server optimizer -> next clip
//! ```
//!
//! A round is a function from [`State`] to [`State`], and its last half a function of what was released alone: the optimizer
//! takes a `Released` and nothing else, and the ledger has it, durably, before the optimizer sees it. After a crash the rounds
//! that the ledger has are applied again from there ([`Loop::replay`]); none is released a second time (rule P13). A round can
//! fail, where updates are added up securely: [`attempts`] says what happens then.

mod asked;
pub mod attempts;

use std::time::Instant;

use device::{
    guard::ModelDigest,
    round::{Exact, Task},
};
use ledger::{Attempt, FailureReason, Ledger, LedgerError, LedgerStore};
use lm::model::unit_norm;
use privacy::{
    ClipNorm,
    clip::{AdaptiveClip, ClipError},
    encoding::EncodingError,
    mechanism::{Correlation, Mechanism, MechanismError},
    participation::ParticipationError,
    rng::Purpose,
    stages::{ClipBit, ClipRuleError, Clipping, NoisedSum, Released, Sum},
};
use sha2::{Digest, Sha256};
use thiserror::Error;

use self::attempts::Failed;
use crate::{
    cohort::queue::{Queue, TooFewLeft},
    config::ConfigError,
    fleet::{
        Collected, Fleet, FleetError, RoundTask,
        secure::{SecureTask, Secured},
        users_key,
    },
    groups::{self, Groups},
    metrics::{Diagnostics, Timing},
    optimizer::{Optimizer, OptimizerError},
    plan::{Coding, Plan, no_noise},
    randomness::{OfRound, RandomnessError, RunRandomness, position},
    vanishing::{Vanishes, Vanishing},
};

/// Why a round came to nothing.
#[derive(Debug, Error)]
pub enum RoundError {
    /// Local training or the sum failed; nothing was released.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The noise failed; nothing was released.
    #[error(transparent)]
    Mechanism(#[from] MechanismError),
    /// The release could not be recorded, and must not be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The release does not fit the model.
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    /// The sum does not fit its encoding.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// The noised fraction is no number.
    #[error(transparent)]
    Clip(#[from] ClipError),
    /// The rule of clipping does not fit the model.
    #[error(transparent)]
    Rule(#[from] ClipRuleError),
    /// The population cannot fill the round.
    #[error(transparent)]
    Participation(#[from] ParticipationError),
    /// The limits on participation leave too few users.
    #[error(transparent)]
    TooFewLeft(#[from] TooFewLeft),
    /// A step failed again and again.
    #[error(
        "round {round} failed in {attempts} attempts, each with other devices: so many devices spoil sums or vanish that more attempts would only use up the others. End the run with keyhush train --end DIR; in another one raise secagg.dropout, or cut the cohort into secagg.groups, so that who spoils a sum spoils a group's"
    )]
    TooManyFailed {
        /// The round.
        round: u64,
        /// How many attempts failed.
        attempts: usize,
    },
    /// The program ended in the midst of one attempt after the other.
    #[error(
        "round {round} does not begin: the program ended in the midst of {times} attempts in a row, and in each of them users were asked for nothing. Find out why it ends (memory, a time limit, the machine). The run cannot go on: end it with keyhush train --end DIR, and begin another once a round gets through"
    )]
    TooManyInterrupted {
        /// The round that does not begin.
        round: u64,
        /// How many.
        times: usize,
    },
    /// There is nothing to draw from.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
    /// The plan contradicts itself.
    #[error(transparent)]
    Plan(#[from] ConfigError),
    /// A release that was recorded is no longer stored.
    #[error("round {round} was released, and what was released is no longer stored; a newer checkpoint is needed")]
    Gone {
        /// Which.
        round: u64,
    },
}

/// Where a run stands: all of it follows from the plan and from what was released.
#[derive(Debug)]
pub struct State {
    /// Rounds that were done.
    pub round: u64,
    /// The model.
    pub model: Vec<f32>,
    /// What the server's optimizer remembers.
    pub optimizer: Optimizer,
    /// The clip, where it follows a quantile.
    pub clip: Option<AdaptiveClip>,
    /// The noised share of users under the tracked clip, of the last round.
    pub fraction_below_clip: Option<f64>,
    /// The mechanism of the phase of the next round; none before its first round and where there is no noise.
    pub mechanism: Option<Mechanism>,
}

impl State {
    /// The state before the first round.
    ///
    /// # Errors
    /// When the plan's numbers have no meaning.
    pub fn new(plan: &Plan, model: Vec<f32>) -> Result<Self, RoundError> {
        let optimizer = Optimizer::new(plan.optimizer, model.len())?;
        let clip = plan.adaptive.map(AdaptiveClip::new).transpose()?;
        Ok(Self { round: 0, model, optimizer, clip, fraction_below_clip: None, mechanism: None })
    }
}

/// What became of a round.
#[derive(Debug)]
pub enum Round {
    /// It was released, recorded and applied.
    Done(Box<Done>),
    /// An attempt at it failed. That is recorded; nothing else has happened.
    Failed(Failed),
    /// It would have cost more than the budget, and did not begin (rule P14).
    OutOfBudget(LedgerError),
}

/// What was found in the ledger beyond a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    /// Nothing: the next round is to be attempted.
    Nothing,
    /// A round that was released and is applied now, or one that failed and is passed over.
    Round,
    /// An attempt in whose midst the program ended; it is recorded as failed now.
    Interrupted(Failed),
}

/// What a round that was done leaves behind.
#[derive(Debug)]
pub struct Done {
    /// Where the time went.
    pub timing: Timing,
    /// What its users did, exactly. Not private: for simulations.
    pub diagnostics: Diagnostics,
    /// Why groups of it failed, where it was done without them.
    pub failed_groups: Vec<FailureReason>,
}

/// What a fleet added up.
pub(crate) struct Gathered {
    sum: Added,
    exact: Vec<(u64, Exact)>,
    busy_s: f64,
    wall_s: f64,
    pub(crate) failed_groups: Vec<FailureReason>,
}

impl Gathered {
    /// Adds what another group of the round came to.
    pub(crate) fn merge(&mut self, other: Self) -> Result<(), EncodingError> {
        match (&mut self.sum, other.sum) {
            (Added::Sum(sum), Added::Sum(more)) => sum.merge(more)?,
            (Added::Noised(sum), Added::Noised(more)) => sum.merge(more)?,
            _ => return Err(EncodingError::Mixed),
        }
        self.exact.extend(other.exact);
        self.exact.sort_unstable_by_key(|(user, _)| *user);
        self.busy_s += other.busy_s;
        self.wall_s += other.wall_s;
        Ok(())
    }
}

/// A sum, with or without the noise that users added.
enum Added {
    Sum(Sum),
    Noised(NoisedSum),
}

/// A run in its rounds.
pub struct Loop<'a, S> {
    plan: &'a Plan,
    randomness: RunRandomness,
    ledger: Ledger<S>,
    state: State,
    /// What the last round encoded with.
    coding: Option<(usize, ClipNorm, Coding)>,
    /// Who comes next, once an attempt has failed; none while nothing has, and where it must be found out again.
    queue: Option<Queue>,
    /// The digest of the settings, to which secure aggregation is bound.
    digest: [u8; 32],
    threads: usize,
}

impl<'a, S: LedgerStore> Loop<'a, S> {
    /// The loop of a plan, from a state on.
    pub fn new(plan: &'a Plan, randomness: RunRandomness, ledger: Ledger<S>, state: State, threads: usize) -> Self {
        let digest = Sha256::digest(&plan.settings).into();
        Self { plan, randomness, ledger, state, coding: None, queue: None, digest, threads }
    }

    /// Where it stands.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The ledger.
    pub const fn ledger(&self) -> &Ledger<S> {
        &self.ledger
    }

    /// The ledger, to let go of what a checkpoint holds.
    pub const fn ledger_mut(&mut self) -> &mut Ledger<S> {
        &mut self.ledger
    }

    /// Lets go of what the run draws from: nothing more is released.
    pub fn end(&mut self) {
        self.randomness = RunRandomness::over();
    }

    /// The norm that updates of the next round are clipped to.
    #[must_use]
    pub fn clip(&self) -> ClipNorm {
        let of_plan = self.plan.stage(self.state.round).clip;
        self.state.clip.map_or(of_plan, |clip| clip.active())
    }

    /// One attempt at a round. `time` is in seconds since 1970.
    ///
    /// # Errors
    /// When nothing was released and that is no failure of the protocol, or what happened could not be recorded.
    pub fn round(&mut self, fleet: &mut dyn Fleet, time: u64) -> Result<Round, RoundError> {
        let watch = Instant::now();
        if let Some(failed) = self.settle_interrupted(time)? {
            return Ok(Round::Failed(failed));
        }
        self.enter_phase()?;
        if let Some(refused) = self.beyond_budget()? {
            return Ok(Round::OutOfBudget(refused));
        }
        let attempt = self.next_attempt()?;
        let drawn = self.randomness.of_round(self.state.round, &self.plan.phase(self.state.round).participation)?;
        let (cohort, queue) = self.cohort(&drawn)?;
        let sample_s = watch.elapsed().as_secs_f64();

        let clip = self.clip();
        self.begin_attempt()?;
        let gathered = match self.collect(fleet, &cohort, &drawn, attempt)? {
            Ok(gathered) => gathered,
            Err(reason) => return self.fail(attempt, reason, time).map(Round::Failed),
        };
        let Gathered { sum, exact, busy_s, wall_s, failed_groups } = gathered;
        let diagnostics = diagnose(self.state.round, &exact, clip.get());

        let watch = Instant::now();
        let released = self.release(sum)?;
        let release_s = watch.elapsed().as_secs_f64();

        let watch = Instant::now();
        self.record(&released, attempt, time)?;
        self.queue = queue;
        let ledger_s = watch.elapsed().as_secs_f64();

        let watch = Instant::now();
        let round = self.state.round;
        self.apply(&released)?;
        let optimizer_s = watch.elapsed().as_secs_f64();

        let timing = Timing {
            round,
            sample_s,
            train_s: wall_s,
            train_busy_s: busy_s,
            threads: self.threads,
            release_s,
            ledger_s,
            optimizer_s,
            evaluate_s: 0.0,
            checkpoint_s: 0.0,
        };
        Ok(Round::Done(Box::new(Done { timing, diagnostics, failed_groups })))
    }

    /// Applies a round that the ledger has and this state has not, or passes over one that failed. An attempt in whose midst the
    /// program ended is recorded as failed. Says what there was.
    ///
    /// # Errors
    /// When what was released is not stored, or does not fit.
    pub fn replay(&mut self, time: u64) -> Result<Replayed, RoundError> {
        let round = self.state.round;
        if round == self.plan.config.rounds {
            return Ok(Replayed::Nothing);
        }
        let phase = self.plan.phase(round);
        let (stream, step) = (phase.stream.clone(), round - phase.first);
        if self.ledger.released_in(&stream, step).is_none() {
            return Ok(match self.settle_interrupted(time)? {
                Some(failed) => Replayed::Interrupted(failed),
                None if self.pass_over()? => Replayed::Round,
                None => Replayed::Nothing,
            });
        }
        let released = self.ledger.restore(&stream, step)?.ok_or(RoundError::Gone { round })?;
        self.enter_phase()?;
        if let Some(mechanism) = &mut self.state.mechanism {
            mechanism.pass(&released)?;
        }
        self.code()?;
        self.apply(&released)?;
        Ok(Replayed::Round)
    }

    /// At the first round of a phase its mechanism begins.
    fn enter_phase(&mut self) -> Result<(), RoundError> {
        let phase = self.plan.phase(self.state.round);
        if phase.first == self.state.round {
            self.state.mechanism = match &phase.mechanism {
                None => None,
                Some(plan) => Some(Mechanism::init(plan.clone(), &phase.released_layout()?, self.plan.randomness())?),
            };
        }
        Ok(())
    }

    /// Why there is no next round, if it is for its cost (rule P14).
    ///
    /// # Errors
    /// When the plan contradicts itself.
    pub fn out_of_budget(&mut self) -> Result<Option<LedgerError>, RoundError> {
        if self.state.round == self.plan.config.rounds {
            return Ok(None);
        }
        self.enter_phase()?;
        self.beyond_budget()
    }

    /// Why the next release would not be admitted, if it is for its cost.
    fn beyond_budget(&self) -> Result<Option<LedgerError>, RoundError> {
        let (Some(_), Some(mechanism)) = (self.ledger.budget(), &self.state.mechanism) else { return Ok(None) };
        let phase = self.plan.phase(self.state.round);
        match self.ledger.check(&phase.stream, mechanism.step(), &mechanism.next_event()?) {
            Ok(()) => Ok(None),
            Err(refused @ LedgerError::BudgetExceeded { .. }) => Ok(Some(refused)),
            Err(other) => Err(other.into()),
        }
    }

    /// Has the coding of the next round ready.
    fn code(&mut self) -> Result<(), RoundError> {
        let number = self.plan.stage(self.state.round).phase;
        let clip = self.plan.rule(self.clip())?.bound();
        if !matches!(&self.coding, Some((n, c, _)) if *n == number && *c == clip) {
            self.coding = Some((number, clip, self.plan.phases()[number].coding(clip)?));
        }
        Ok(())
    }

    /// What the fleet adds up of those who do not vanish on the way; or why the attempt failed.
    fn collect(
        &mut self,
        fleet: &mut dyn Fleet,
        cohort: &[u64],
        drawn: &OfRound,
        attempt: u32,
    ) -> Result<Result<Gathered, FailureReason>, RoundError> {
        self.code()?;
        let Some((_, _, coding)) = &self.coding else { return Err(FleetError::Died.into()) };
        let clipping = Clipping::new(self.plan.rule(self.clip())?, self.clip_bit())?;
        let round = self.state.round;
        let task = Task {
            model: &self.state.model,
            clipping: &clipping,
            encoding: &coding.encoding,
            full_weight_tokens: self.plan.config.estimator.full_weight_tokens,
            learning_rate: self.plan.stage(round).local_learning_rate,
        };
        let position = position(round, attempt);
        let users = users_key(&drawn.users, &position);
        let vanish = self.plan.config.participation.vanish.unwrap_or(0.0);
        let vanishing = Vanishing::new(&drawn.vanishing, &position, vanish);
        let (Some(secure), Some(residues)) = (&self.plan.phase(round).secure, &coding.residues) else {
            let sending: Vec<u64> = cohort.iter().copied().filter(|user| vanishing.of(*user).sends()).collect();
            let collected = fleet.round(&RoundTask { round, task, cohort: &sending, users: &users })?;
            let Collected { sum, exact, busy_s, wall_s } = collected;
            return Ok(Ok(Gathered { sum: Added::Sum(sum), exact, busy_s, wall_s, failed_groups: Vec::new() }));
        };
        let noise = drawn.users.stream(Purpose::UserNoise, &position);
        let spoilers = self.plan.config.secagg.as_ref().map_or(0, |said| said.spoilers);
        let terms = secure.terms(residues, round, self.digest, *ModelDigest::of(task.model).as_bytes());
        let mut groups = Groups::default();
        for group in groups::split(&drawn.cohort, &position, cohort, secure.groups) {
            let task = RoundTask { round, task, cohort: &group, users: &users };
            let vanishes: Vec<Vanishes> = group.iter().map(|user| vanishing.of(*user)).collect();
            let secure = SecureTask { secure, residues, terms, vanishes: &vanishes, noise: &noise, spoilers };
            match collect_securely(fleet, &task, &secure)? {
                Ok(sum) => groups.gave(sum)?,
                Err(reason) => groups.failed(reason),
            }
        }
        Ok(groups.end())
    }

    /// Rule P9.
    fn clip_bit(&self) -> ClipBit {
        match self.state.clip {
            None => ClipBit::None,
            Some(_) if self.plan.local.greedy => ClipBit::NeverProjected,
            Some(clip) => ClipBit::NormAtMost(clip.tracked()),
        }
    }

    /// From the sum to what anyone may see.
    fn release(&mut self, sum: Added) -> Result<Released, RoundError> {
        let sum = match (sum, &mut self.state.mechanism) {
            (Added::Sum(sum), _) => sum,
            (Added::Noised(sum), Some(mechanism)) => return Ok(mechanism.release_noised(sum)?),
            (Added::Noised(_), None) => return Err(MechanismError::OtherNoise.into()),
        };
        let quotient = self.coding.as_ref().and_then(|(_, _, coding)| coding.quotient.as_ref());
        let sum = match quotient {
            Some(quotient) => quotient.divide(sum)?,
            None => sum,
        };
        match &mut self.state.mechanism {
            Some(mechanism) => Ok(mechanism.release(sum, self.randomness.steps()?)?),
            None => {
                let step = self.state.round - self.plan.phase(self.state.round).first;
                Ok(sum.release_without_privacy(step, &no_noise(), self.plan.randomness()))
            }
        }
    }

    fn record(&mut self, released: &Released, number: u32, time: u64) -> Result<(), RoundError> {
        let phase = self.plan.phase(self.state.round);
        let attempt = Attempt { stream: &phase.stream, number, declared: phase.cohort, participations: None, time };
        let _receipt = self.ledger.record(released, attempt)?;
        let noise = phase.mechanism.as_ref().and_then(|mechanism| mechanism.last_step(released.step()));
        Ok(self.randomness.recorded(noise)?)
    }

    /// What follows from a release: the server's step, the next clip.
    fn apply(&mut self, released: &Released) -> Result<(), RoundError> {
        let stage = *self.plan.stage(self.state.round);
        let Some((_, _, coding)) = &self.coding else { return Err(FleetError::Died.into()) };
        let State { model, optimizer, clip, fraction_below_clip, mechanism, round } = &mut self.state;
        // The true average divides by the weight of who came; nobody came where it is 0.
        let denominator = stage.denominator.or_else(|| released.weight().filter(|w| *w > 0.0)).unwrap_or(1.0);
        optimizer.step(model, released, coding.released(), denominator, stage.server_learning_rate)?;
        unit_norm::renormalise(&self.plan.model, &self.plan.parameters, model);
        if let (Some(clip), Some(fraction)) = (clip, released.fraction_under_clip(stage.cohort as f64)) {
            *fraction_below_clip = Some(fraction);
            clip.follow(fraction)?;
            let may_move =
                mechanism.as_ref().is_none_or(|m| m.plan().correlation == Correlation::Independent || m.at_restart());
            if may_move {
                clip.activate();
            }
        }
        *round += 1;
        Ok(())
    }
}

/// What the fleet adds up by secure aggregation; or why there is no sum.
fn collect_securely(
    fleet: &mut dyn Fleet,
    task: &RoundTask<'_>,
    secure: &SecureTask<'_>,
) -> Result<Result<Gathered, FailureReason>, RoundError> {
    let Secured { sum, survivors, exact, busy_s, wall_s } = match fleet.secure_round(task, secure) {
        Ok(secured) => secured,
        Err(FleetError::Secure(error)) => match error.failure() {
            Some(reason) => return Ok(Err(reason)),
            None => return Err(FleetError::Secure(error).into()),
        },
        Err(other) => return Err(other.into()),
    };
    let sum = match secure.secure.noise {
        None => match secure.residues.sum(&sum, survivors) {
            Ok(sum) => Added::Sum(sum),
            // Honest users cannot add up to this: somebody's masked vector was no encoding of anything.
            Err(EncodingError::Bound { .. }) => return Ok(Err(FailureReason::NotWhole)),
            Err(other) => return Err(other.into()),
        },
        Some(_) => Added::Noised(secure.residues.noised_sum(&sum, survivors)?),
    };
    Ok(Ok(Gathered { sum, exact, busy_s, wall_s, failed_groups: Vec::new() }))
}

/// What the users of a round did, exactly.
fn diagnose(round: u64, exact: &[(u64, Exact)], clip: f64) -> Diagnostics {
    let tokens: usize = exact.iter().map(|(_, e)| e.tokens).sum();
    let loss: f64 = exact.iter().map(|(_, e)| e.loss).sum();
    let mut norms: Vec<f64> = exact.iter().map(|(_, e)| e.norm).filter(|n| n.is_finite()).collect();
    norms.sort_unstable_by(f64::total_cmp);
    let quantile = |share: f64| norms[((norms.len() - 1) as f64 * share).round() as usize];
    let longer = norms.iter().filter(|n| **n > clip).count();
    Diagnostics {
        round,
        users: exact.len() as u64,
        tokens: tokens as u64,
        loss: (tokens > 0).then(|| loss / tokens as f64).filter(|l| l.is_finite()),
        norm_quantiles: (!norms.is_empty()).then(|| [0.0, 0.1, 0.5, 0.9, 1.0].map(quantile)),
        clipped_share: (!norms.is_empty()).then(|| longer as f64 / norms.len() as f64),
        not_finite: (exact.len() - norms.len()) as u64,
    }
}
