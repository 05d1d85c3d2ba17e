//! The training loop: Algorithm 1 of McMahan et al. 2018, of Andrew et al. 2021 and of Xu et al. 2023, for every fleet.
//!
//! ```text
//! fleet (who takes part, train, clip, encode, sum) -> release -> record -> server optimizer -> next clip
//! ```
//!
//! A round is a function from [`State`] to [`State`], and its last half a function of what was recorded alone: the optimizer
//! takes a [`Recorded`] and nothing else, which only a ledger gives, once the release is durable. After a crash the rounds
//! that the ledger has are applied again from there ([`Loop::replay`]); none is released a second time (rule P13). A round can
//! fail, where updates are added up securely: [`attempts`] says what happens then. Between rounds devices may be asked to measure the
//! model: [`evaluation`].

pub mod attempts;
pub mod evaluation;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use device::{learner::Learner, round::Task, upload::Rests};
use ledger::{
    Attempt, Failure, FailureReason, Ledger, LedgerError, LedgerStore, ParticipationRecord, Recorded, Written,
};
use privacy::{
    ClipNorm,
    clip::{AdaptiveClip, ClipError},
    encoding::EncodingError,
    mechanism::{Correlation, Mechanism, MechanismError},
    stages::{ClipBit, ClipRuleError, Clipping, NoisedSum, Released, Sum},
};
use thiserror::Error;

use self::attempts::Failed;
use crate::{
    config::ConfigError,
    fleet::{At, Attempted, Exact, Fleet, FleetError, Observed, Outcome, RoundTask, Stop},
    metrics::{Diagnostics, Timing},
    optimizer::{Average, Optimizer, OptimizerError},
    plan::{Coding, Phase, Plan, no_noise},
    randomness::{NoiseOf, RandomnessError, RunRandomness},
    workers::Pool,
};

/// Why a round failed.
#[derive(Debug, Error)]
pub enum RoundError {
    /// The fleet cannot continue; nothing was released.
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
    /// A step failed again and again.
    #[error(
        "round {} failed in {attempts} attempts, each with other devices: too many devices send invalid inputs or drop out, and more attempts would only use up the others. End the run with keyhush train --end DIR, or with keyhush task stop on a server. What helps in a new run: more time for devices (devices.report_seconds), a higher secagg.dropout, or, in a simulation, several secagg.groups, because an invalid input only affects its group",
        .round + 1
    )]
    TooManyFailed {
        /// Rounds that are done.
        round: u64,
        /// How many attempts failed.
        attempts: usize,
    },
    /// The program ended during one attempt after the other.
    #[error(
        "round {} cannot start: the program was interrupted during {times} attempts in a row, each of which used up participations without a result. Find out why it is interrupted (memory, a time limit, the machine). This run cannot continue; end it with keyhush train --end DIR, or with keyhush task stop on a server, and start another when the cause is fixed",
        .round + 1
    )]
    TooManyInterrupted {
        /// Rounds that are done.
        round: u64,
        /// Number of interruptions in a row.
        times: usize,
    },
    /// There is nothing to draw from.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
    /// Devices are asked to measure, and nothing is due.
    #[error("no evaluation by devices is due after round {round}")]
    NoEvaluation {
        /// Rounds that are done.
        round: u64,
    },
    /// The plan contradicts itself.
    #[error(transparent)]
    Plan(#[from] ConfigError),
    /// A release that was recorded is no longer stored.
    #[error("round {} was released, but its vector is no longer stored; a newer checkpoint is needed", .round + 1)]
    Gone {
        /// Rounds that were done before it.
        round: u64,
    },
}

/// The state of a run: it follows from the plan and the releases, except for what users keep.
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
    /// What simulated users keep between rounds, where they do. It is not private.
    pub rests: Rests,
}

impl State {
    /// The state before the first round.
    ///
    /// # Errors
    /// When the plan's numbers have no meaning.
    pub fn new(plan: &Plan, model: Vec<f32>) -> Result<Self, RoundError> {
        let optimizer = Optimizer::new(plan.optimizer, model.len())?;
        let clip = plan.adaptive.map(AdaptiveClip::new).transpose()?;
        Ok(Self { round: 0, model, optimizer, clip, fraction_below_clip: None, mechanism: None, rests: Rests::new() })
    }
}

/// The outcome of a round.
#[derive(Debug)]
pub enum Round {
    /// It was released, recorded and applied.
    Done(Box<Done>),
    /// An attempt at it failed. That is recorded; nothing else has happened.
    Failed(Failed),
    /// It would have cost more than the budget, and did not begin (rule P14).
    OutOfBudget(LedgerError),
}

/// What the ledger has beyond a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    /// Nothing: the next round is to be attempted.
    Nothing,
    /// A round that was released and is applied now, or one that failed and is skipped.
    Round,
}

/// The results of a completed round.
#[derive(Debug)]
pub struct Done {
    /// The time of each step.
    pub timing: Timing,
    /// What its users did, exactly, where it was simulated. Not private.
    pub diagnostics: Option<Diagnostics>,
    /// Why groups of it failed, where it was done without them; not how many.
    pub failed_groups: BTreeSet<FailureReason>,
}

/// A run in its rounds.
pub struct Loop<'a, S> {
    plan: &'a Plan,
    learner: &'a dyn Learner,
    randomness: RunRandomness,
    ledger: Ledger<S>,
    state: State,
    /// All attempts that failed, by round, as the ledger has them.
    failures: BTreeMap<u64, Vec<Failure>>,
    pool: Pool,
    /// Some of the threads, for what is done while somebody else trains: it must not keep them waiting.
    beside: Pool,
}

impl<'a, S: LedgerStore> Loop<'a, S> {
    /// The loop of a plan, from a state on. So many threads draw the noise and move the model.
    pub fn new(
        plan: &'a Plan,
        learner: &'a dyn Learner,
        randomness: RunRandomness,
        ledger: Ledger<S>,
        state: State,
        threads: usize,
    ) -> Self {
        let (pool, beside) = (Pool::new(threads), Pool::new(threads.div_ceil(4)));
        let failures = attempts::all_failures(plan, &ledger);
        Self { plan, learner, randomness, ledger, state, failures, pool, beside }
    }

    /// The current state.
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
    pub fn round(&mut self, fleet: &mut dyn Fleet, stop: &Stop, time: u64) -> Result<Round, RoundError> {
        self.enter_phase()?;
        if let Some(refused) = self.beyond_budget()? {
            return Ok(Round::OutOfBudget(refused));
        }
        let (clip, coding) = (self.clip(), self.coding()?);
        let at = self.next_attempt()?;

        let watch = Instant::now();
        let Attempted { outcome, observed } = self.collect(fleet, at, &coding, stop)?;
        let collect_s = watch.elapsed().as_secs_f64();
        let Observed { participants, failed_groups, mut exact } = observed;

        let watch = Instant::now();
        let released = match outcome {
            Outcome::Sum(sum) => self.release(sum, &coding)?,
            Outcome::Noised(sum) => self.release_noised(sum)?,
            Outcome::Failed(reason) => {
                return self.fail(at, reason, participants.as_ref(), Some(fleet), time).map(Round::Failed);
            }
        };
        let release_s = watch.elapsed().as_secs_f64();

        let watch = Instant::now();
        let recorded = self.record(released, at, participants.as_ref(), time)?;
        fleet.settled(at, None)?;
        let ledger_s = watch.elapsed().as_secs_f64();

        let watch = Instant::now();
        self.apply(&recorded, &coding)?;
        self.state.rests.extend(exact.as_mut().map(|exact| std::mem::take(&mut exact.rests)).unwrap_or_default());
        let optimizer_s = watch.elapsed().as_secs_f64();

        let seen = exact.as_ref();
        let timing = Timing {
            round: self.state.round,
            sample_s: seen.map_or(0.0, |exact| exact.sample_s),
            train_s: seen.map_or(collect_s, |exact| exact.train_s),
            train_busy_s: seen.map_or(0.0, |exact| exact.busy_s),
            threads: self.pool.threads(),
            release_s,
            ledger_s,
            optimizer_s,
            evaluate_s: 0.0,
            checkpoint_s: 0.0,
        };
        let diagnostics = exact.map(|exact| diagnose(self.state.round, &exact, clip.get()));
        Ok(Round::Done(Box::new(Done { timing, diagnostics, failed_groups })))
    }

    /// Applies a round that the ledger has and this state has not, or passes over one that failed. Says whether there was one.
    ///
    /// # Errors
    /// When what was released is not stored, or does not fit.
    pub fn replay(&mut self) -> Result<Replayed, RoundError> {
        let round = self.state.round;
        if round == self.plan.rounds {
            return Ok(Replayed::Nothing);
        }
        let (phase, step) = self.place();
        if self.ledger.released_in(&phase.stream, step).is_none() {
            // A note of the last attempt that cannot be read stops a run before anybody is asked.
            self.interrupted()?;
            return Ok(if self.pass_over()? { Replayed::Round } else { Replayed::Nothing });
        }
        let recorded = self.ledger.restore(&phase.stream, step)?.ok_or(RoundError::Gone { round })?;
        self.enter_phase()?;
        if let Some(mechanism) = &mut self.state.mechanism {
            mechanism.pass(&recorded)?;
        }
        let coding = self.coding()?;
        self.apply(&recorded, &coding)?;
        Ok(Replayed::Round)
    }

    /// Whether the ledger has the next round already, so that it is not released again.
    #[must_use]
    pub fn has_next(&self) -> bool {
        let (phase, step) = self.place();
        self.state.round < self.plan.rounds && self.ledger.released_in(&phase.stream, step).is_some()
    }

    /// As [`Self::replay`], where users keep something: the users of the round train once more, for what they keep of it. Their sum is
    /// forgotten; what is applied is what was released. Only simulations do this, and their cohorts repeat.
    ///
    /// # Errors
    /// When nobody can train, or what was released is not stored.
    pub fn replay_with(&mut self, fleet: &mut dyn Fleet, stop: &Stop) -> Result<Replayed, RoundError> {
        if !self.has_next() {
            return Ok(Replayed::Nothing);
        }
        self.enter_phase()?;
        let (coding, at) = (self.coding()?, self.next_attempt()?);
        let Attempted { observed, .. } = self.collect(fleet, at, &coding, stop)?;
        fleet.settled(at, None)?;
        self.replay()?;
        self.state.rests.extend(observed.exact.map(|exact| exact.rests).unwrap_or_default());
        Ok(Replayed::Round)
    }

    /// To which releases the next round belongs, and which step of them it is.
    fn place(&self) -> (&'a Phase, u64) {
        let phase = self.plan.phase(self.state.round);
        (phase, self.state.round - phase.first)
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
        if self.state.round == self.plan.rounds {
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

    /// What the next round encodes with.
    fn coding(&self) -> Result<Coding, RoundError> {
        let clip = self.plan.rule(self.clip())?.bound();
        Ok(self.plan.phase(self.state.round).coding(clip)?)
    }

    /// What the fleet adds up. Where inputs leave their users, the attempt is noted once it is known that it can be made, before
    /// anybody is asked.
    fn collect(
        &mut self,
        fleet: &mut dyn Fleet,
        at: At<'_>,
        coding: &Coding,
        stop: &Stop,
    ) -> Result<Attempted, RoundError> {
        let clipping = Clipping::new(self.plan.rule(self.clip())?, self.clip_bit())?;
        let failures = &self.failures;
        debug_assert_eq!(*failures, attempts::all_failures(self.plan, &self.ledger), "somebody would be asked twice");
        let mask = self.plan.upload.mask(at.round);
        let State { model, mechanism, rests, .. } = &mut self.state;
        let task = Task {
            model,
            clipping: &clipping,
            encoding: &coding.encoding,
            full_weight_tokens: self.plan.full_weight_tokens,
            learning_rate: self.plan.stage(at.round).local_learning_rate,
            epochs: self.plan.stage(at.round).local_epochs,
            upload: self.plan.upload.task(at.round, mask.as_deref(), rests),
            evaluation: None,
        };
        let phase = self.plan.phase(at.round);
        let task = RoundTask { at, task, phase, coding, failures, stop };
        fleet.prepare(&task)?;
        if fleet.asks_devices(&task) && !at.again {
            self.ledger.begin_attempt(at.stream, at.step, phase.cohort)?;
        }
        let early = match mechanism.as_mut().filter(|_| fleet.works_elsewhere() && self.pool.threads() > 1) {
            Some(mechanism) => {
                mechanism.foreseen(self.randomness.steps(NoiseOf::Rounds)?).map(|noise| (noise, mechanism))
            }
            None => None,
        };
        let Some((foreseen, mechanism)) = early else { return Ok(fleet.attempt(&task)?) };
        // Engines that train elsewhere leave the threads of this process idle: some of them draw the noise meanwhile.
        std::thread::scope(|scope| {
            let drawn = scope.spawn(|| mechanism.draw_early(foreseen, &self.beside));
            let attempted = fleet.attempt(&task);
            drawn.join().unwrap_or_else(|died| std::panic::resume_unwind(died))?;
            Ok(attempted?)
        })
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
    fn release(&mut self, sum: Sum, coding: &Coding) -> Result<Released, RoundError> {
        let sum = match &coding.quotient {
            Some(quotient) => quotient.divide(sum)?,
            None => sum,
        };
        match &mut self.state.mechanism {
            Some(mechanism) => Ok(mechanism.release_by(sum, self.randomness.steps(NoiseOf::Rounds)?, &self.pool)?),
            None => Ok(sum.release_without_privacy(self.place().1, &no_noise(), self.plan.randomness())),
        }
    }

    /// The same of a sum to which users added the noise.
    fn release_noised(&mut self, sum: NoisedSum) -> Result<Released, RoundError> {
        let mechanism = self.state.mechanism.as_mut().ok_or(MechanismError::OtherNoise)?;
        Ok(mechanism.release_noised(sum)?)
    }

    fn record(
        &mut self,
        released: Released,
        at: At<'_>,
        participations: Option<&ParticipationRecord>,
        time: u64,
    ) -> Result<Recorded, RoundError> {
        let phase = self.plan.phase(at.round);
        let attempt = Attempt { stream: at.stream, number: at.attempt, declared: phase.cohort, participations, time };
        let recorded = self.make_durable(released, attempt)?;
        let noise = phase.mechanism.as_ref().and_then(|mechanism| mechanism.last_step(recorded.step()));
        self.randomness.recorded(NoiseOf::Rounds, noise)?;
        Ok(recorded)
    }

    /// Records a release. Its vector is made durable while its digest is computed; both are done before its entry is written.
    fn make_durable(&mut self, released: Released, attempt: Attempt<'_>) -> Result<Recorded, RoundError> {
        let written = Written::new(released, &self.pool).map_err(LedgerError::from)?;
        if self.pool.threads() > 1 {
            std::thread::scope(|scope| {
                scope.spawn(|| written.digest());
                self.ledger.keep(&written)
            })?;
        } else {
            self.ledger.keep(&written)?;
        }
        Ok(self.ledger.record_written(written, attempt)?)
    }

    /// What follows from a release: the server's step, the next clip.
    fn apply(&mut self, recorded: &Recorded, coding: &Coding) -> Result<(), RoundError> {
        let stage = *self.plan.stage(self.state.round);
        let mask = self.plan.upload.mask(self.state.round);
        let State { model, optimizer, clip, fraction_below_clip, mechanism, round, .. } = &mut self.state;
        // The true average divides by the weight of who came; nobody came where it is 0.
        let denominator = stage.denominator.or_else(|| recorded.weight().filter(|w| *w > 0.0)).unwrap_or(1.0);
        let rate = stage.server_learning_rate;
        let release = Average { recorded, encoding: coding.released(), denominator, mask: mask.as_deref() };
        optimizer.step(model, &release, rate, &self.pool)?;
        self.learner.after_step_by(model, &self.pool).map_err(OptimizerError::from)?;
        if let (Some(clip), Some(fraction)) = (clip, recorded.fraction_under_clip(stage.cohort as f64)) {
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

/// What the users of a round did, exactly.
fn diagnose(round: u64, exact: &Exact, clip: f64) -> Diagnostics {
    let exact = &exact.users;
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
