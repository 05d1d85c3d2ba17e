//! Canary users in a simulation, and the lower bound on epsilon they give: `keyhush train --audit`.
//!
//! Some of the declared users are synthetic: each has a secret direction, and a fair coin says whether they take part or stay away (Andrew
//! et al. 2023; Steinke et al. 2023). One who takes part sends an update in their direction, which is clipped, weighed, encoded and
//! added up by the same code as everybody's; every second one says a hundred times the allowed update and weight. At the end the auditor
//! looks at the released model alone: whose direction did it move in? [`privacy::audit::one_run`] turns the answers into a lower bound on
//! epsilon.
//!
//! Two things can be taken for granted, and each gives a bound ([`Shown`]): that the run is what its ledger says but for the scale of its
//! noise, or nothing at all.
//!
//! The guarantee of the run is not touched. Canaries are users of the declared population, drawn and limited as all others are, and the
//! guarantee for a user does not depend on who the others are. What is written down follows from the released model and from the coins and
//! directions, which are nobody's data (rule P12): it is post-processing. Only the model learns a little less from a population of which
//! some say nothing sensible.

use std::ops::Range;

use corpus::store::StoreError;
use device::{
    learner::examples::Examples,
    round::{PartError, Task},
    upload::{Partial, Rest, Sends, Upload},
};
use ledger::{Ledger, LedgerStore};
use privacy::{
    AccountantKind, Delta, Epsilon, PrivacyEvent,
    audit::{
        AtDelta, AuditError, Verdict, deltas,
        one_run::{OneRun, Scored, canaries_needed, largest_delta, most_any, most_canaries},
        one_shot::OneShot,
        trade_off::TradeOff,
    },
    rng::{NoiseSource, Purpose, RandomWords, SimulationKey},
    stages::{Contribution, Encoded, Update},
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        Around, Engine, EngineError, Summed, Users, drawn,
        secure::{SecureTask, Secured},
    },
    numbers::grouped,
    plan::{CanaryPlan, Plan},
    population::Population,
};

/// By how much every second canary exaggerates its update and its weight.
const EXAGGERATION: f64 = 100.0;
/// So many times the median a coordinate counts at most; of a normal distribution that leaves out one in twenty.
const OUTLIER: f64 = 3.0;
/// Slacks for which the needed canaries are said where nobody asks for others.
pub const SLACKS: [f64; 3] = [0.75, 0.5, 0.25];

/// The canaries of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Canaries(CanaryPlan);

impl Canaries {
    /// The canaries of a plan, if it has any: the last of its declared users.
    #[must_use]
    pub fn of(plan: &Plan) -> Option<Self> {
        plan.canaries.map(Self)
    }

    /// Their numbers among the users.
    #[must_use]
    pub const fn numbers(&self) -> Range<u64> {
        self.0.first..self.0.end
    }

    fn words(&self, position: &[u64]) -> RandomWords {
        NoiseSource::from(SimulationKey::new(self.0.seed)).stream(Purpose::Canaries, position).chunk(0)
    }

    /// The coin of a canary: whether it takes part.
    #[must_use]
    pub fn is_present(&self, number: u64) -> bool {
        self.words(&[number, 0]).next_word() & 1 == 1
    }

    /// The signs of a canary's direction, in so many coordinates.
    fn for_each_sign(&self, number: u64, coordinates: usize, mut visit: impl FnMut(usize, bool)) {
        let mut words = self.words(&[number, 1]);
        for start in (0..coordinates).step_by(64) {
            let word = words.next_word();
            for bit in 0..64.min(coordinates - start) {
                visit(start + bit, word >> bit & 1 == 1);
            }
        }
    }

    /// Scores how far a model has moved in the direction of each canary.
    ///
    /// # Panics
    /// When the two models are not of one length.
    #[must_use]
    pub fn scores(&self, before: &[f32], after: &[f32]) -> Vec<Scored> {
        assert_eq!(before.len(), after.len(), "models of one run");
        let moved: Vec<f64> = after.iter().zip(before).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect();
        let moved = without_outliers(moved);
        let score = |number: u64| {
            let mut sum = 0.0;
            self.for_each_sign(number, moved.len(), |at, plus| sum += if plus { moved[at] } else { -moved[at] });
            Scored { score: sum / libm::sqrt(moved.len() as f64), present: self.is_present(number) }
        };
        self.numbers().into_par_iter().map(score).collect()
    }

    /// What a canary sends, and what it keeps for later rounds.
    fn sent(
        &self,
        number: u64,
        task: &Task<'_>,
        key: &privacy::rng::StreamKey,
    ) -> Result<(Encoded, Option<Rest>), EngineError> {
        let exaggerated = if number.is_multiple_of(2) { EXAGGERATION } else { 1.0 };
        // What leaves has this norm, however many coordinates that are.
        let norm = task.clipping.rule().bound().get() * exaggerated;
        let each = (norm / libm::sqrt(leaving(&task.upload, task.model.len()) as f64)) as f32;
        let mut update = vec![0.0; task.model.len()];
        self.for_each_sign(number, update.len(), |at, plus| update[at] = if plus { each } else { -each });
        let (sent, rest) = task.upload.divide(update, task.upload.kept_by(number));
        let said = Contribution { weight: exaggerated, projected: true, counts: Vec::new() };
        let part = || -> Result<Encoded, PartError> {
            let clipped = Update::new(sent).clip(task.clipping, said)?;
            Ok(clipped.encode(task.encoding, &mut drawn(key, number).rounding)?)
        };
        Ok((part().map_err(|problem| EngineError::Part { user: number, problem })?, rest))
    }
}

/// How many coordinates leave that are not 0.
fn leaving(upload: &Upload<'_>, parameters: usize) -> usize {
    match upload {
        Upload::Part(Partial { sends: Sends::Largest(count), .. }) => (*count).clamp(1, parameters.max(1)),
        Upload::Whole | Upload::Part(_) => upload.length(parameters).max(1),
    }
}

/// What people learn lies in few coordinates, such as those of frequent words, and moves them far; noise and canaries are in all of them
/// alike. So no coordinate counts for more than a few typical ones: any score is allowed, and this one is not drowned by what people say.
fn without_outliers(mut moved: Vec<f64>) -> Vec<f64> {
    let mut sizes: Vec<f64> = moved.iter().map(|m| m.abs()).collect();
    let middle = sizes.len() / 2;
    if middle < sizes.len() {
        let (_, median, _) = sizes.select_nth_unstable_by(middle, f64::total_cmp);
        let most = OUTLIER * *median;
        if most > 0.0 && most.is_finite() {
            moved.iter_mut().for_each(|m| *m = m.clamp(-most, most));
        }
    }
    moved
}

/// The declared population with its canaries, who have no text.
pub struct WithCanaries<P> {
    people: P,
    first: u64,
    end: u64,
}

impl<P: Population> WithCanaries<P> {
    /// The last of `declared` users are canaries.
    pub fn new(people: P, declared: u64, canaries: u64) -> Self {
        Self { people, first: declared.saturating_sub(canaries), end: declared }
    }
}

impl<P: Population> Population for WithCanaries<P> {
    fn users(&self) -> u64 {
        self.end
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        if user < self.first.min(self.people.users()) {
            return self.people.read(user, examples);
        }
        examples.clear();
        Ok(())
    }
}

/// An engine that trains people, and lets canaries say what they say.
pub struct Planted<'a> {
    engine: Box<dyn Engine + 'a>,
    canaries: Canaries,
}

impl<'a> Planted<'a> {
    /// Adds these canaries to an engine.
    #[must_use]
    pub fn new(engine: Box<dyn Engine + 'a>, canaries: Canaries) -> Self {
        Self { engine, canaries }
    }
}

impl<'a> Around for Planted<'a> {
    type Inner = dyn Engine + 'a;

    fn inner(&self) -> &(dyn Engine + 'a) {
        &*self.engine
    }

    fn inner_mut(&mut self) -> &mut (dyn Engine + 'a) {
        &mut *self.engine
    }

    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        let planted = self.canaries.numbers();
        let (canaries, people): (Vec<u64>, Vec<u64>) =
            users.numbers.iter().copied().partition(|number| planted.contains(number));
        let mut summed = self.engine.sum(task, &Users { numbers: &people, ..*users })?;
        // They have no text, so they measure no model.
        if task.evaluation.is_none() {
            for number in canaries.into_iter().filter(|number| self.canaries.is_present(*number)) {
                let (sent, rest) = self.canaries.sent(number, task, users.key)?;
                summed.sum.add(&sent)?;
                summed.rests.extend(rest.map(|rest| (number, rest)));
            }
        }
        Ok(summed)
    }

    fn foresee(&mut self, numbers: &[u64]) {
        let people: Vec<u64> = numbers.iter().copied().filter(|n| !self.canaries.numbers().contains(n)).collect();
        self.engine.foresee(&people);
    }

    /// Canaries send no masked vectors: they are planted in sums in the clear, and [`Engine::each`] gives nobody's part by itself.
    fn sum_securely(&mut self, _: &Task<'_>, _: &Users<'_>, _: &SecureTask<'_>) -> Result<Secured, EngineError> {
        let problem = "canaries are planted in sums in the clear; use aggregation = \"plain\", or remove [audit]";
        Err(EngineError::Unavailable { engine: "with canaries", problem: problem.into() })
    }
}

/// The audit result of a run, as its file and its report have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// How many canaries there are.
    pub canaries: u64,
    /// What the run guarantees, or would with secret noise.
    pub epsilon_formal: Epsilon,
    /// If the run is what its ledger says but for the scale of its noise, that noise costs at least this, as the ledger's accountant
    /// computes it. Where the ledger has no noise: if the run is one Gaussian release, its epsilon is at least this.
    pub epsilon_lower: f64,
    /// Whether that is a lower bound on epsilon too. Otherwise the accountant knows only an upper bound on what that noise costs, such as for
    /// samples of a fixed size; the true epsilon can be smaller.
    #[serde(default = "yes")]
    pub epsilon_lower_is_attained: bool,
    /// Epsilon is at least this, whatever the run did.
    pub epsilon_lower_any: f64,
    /// Where that could only be 0, at this delta and with so many canaries: what would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub any_would_need: Option<WouldDo>,
    /// The noise of the run is below so many times what its ledger says; none where nothing is shown, or there is no noise.
    pub noise_below: Option<f64>,
    /// An estimate of what the canaries show, without proof.
    pub epsilon_estimate: f64,
    /// The 95 % interval of the estimate, if scores are normal with one deviation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon_estimate_range: Option<[f64; 2]>,
    /// The delta of these.
    pub delta: f64,
    /// The probability that a bound is right.
    pub confidence: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// The guesses: on which sides, how many, how many of them right.
    pub guesses: Vec<Guessed>,
    /// The same bounds at other deltas, for the picture.
    pub at_deltas: Vec<AtDelta>,
    /// How many ideal canaries of one Gaussian release a bound needs that misses so much of the formal epsilon at most; none for more than
    /// 10^8.
    pub canaries_needed: Vec<Needed>,
}

const fn yes() -> bool {
    true
}

/// An epsilon that is worth showing of an unknown mechanism.
const WORTH: f64 = 1.0;

/// Where nothing can be shown of an unknown mechanism: with which delta an epsilon of 1 could be, or with which number of canaries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WouldDo {
    /// With this number of canaries, the largest delta.
    pub delta: Option<f64>,
    /// At this delta, the most canaries; none where no number would do.
    pub canaries: Option<u64>,
}

impl WouldDo {
    /// None where something can be shown.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn of(canaries: u64, delta: Delta, confidence: f64) -> Result<Option<Self>, AuditError> {
        if most_any(canaries, delta, confidence)? > 0.0 {
            return Ok(None);
        }
        let smaller = largest_delta(canaries, confidence, WORTH)?.map(Delta::get);
        Ok(Some(Self { delta: smaller, canaries: most_canaries(delta, confidence, WORTH)? }))
    }

    /// In a sentence, for an audit with so many canaries at a delta.
    #[must_use]
    pub fn words(&self, canaries: u64, delta: f64) -> String {
        let smaller = self.delta.map(|delta| format!("at a delta of at most {delta:e}"));
        let fewer = self.canaries.map(|canaries| format!("with {} canaries", grouped(canaries)));
        let would: Vec<String> = smaller.into_iter().chain(fewer).collect();
        let would = match would.is_empty() {
            true => String::new(),
            false => format!(" It could show an epsilon of {WORTH} {}.", would.join(", or ")),
        };
        format!(
            "The bound without that assumption is 0 whatever the run did: a delta of {delta:e} explains even guesses about {} canaries that are all right \
             (docs/AUDITS.md, \"A large delta\").{would}",
            grouped(canaries)
        )
    }
}

/// Guesses of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guessed {
    /// Whether only "took part" was guessed.
    pub only_present: bool,
    /// The number of guesses.
    pub made: u64,
    /// The number of correct guesses.
    pub correct: u64,
}

/// The number of canaries needed for a slack.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Needed {
    /// The share of the formal epsilon that the bound may miss.
    pub slack: f64,
    /// Canaries; none for more than 10^8.
    pub canaries: Option<u64>,
}

/// The numbers of canaries needed for several slacks.
///
/// # Errors
/// When a number is out of range.
pub fn needed(epsilon: Epsilon, delta: Delta, confidence: f64, slacks: &[f64]) -> Result<Vec<Needed>, AuditError> {
    if !(epsilon.is_finite() && epsilon.get() > 0.0 && epsilon.get() <= 1000.0) {
        return Ok(Vec::new());
    }
    let canaries = canaries_needed(epsilon.get(), delta, confidence, slacks)?;
    Ok(slacks.iter().zip(canaries).map(|(slack, canaries)| Needed { slack: *slack, canaries }).collect())
}

/// What a run releases as its ledger has it, and the same with other noise.
struct Recorded {
    event: PrivacyEvent,
    accountant: AccountantKind,
    group: u32,
}

impl Recorded {
    fn of<S: LedgerStore>(ledger: &Ledger<S>) -> Self {
        let plan = ledger.plan();
        Self { event: ledger.event(), accountant: plan.accountant, group: plan.group }
    }

    fn with_noise_times(&self, scale: f64) -> Option<PrivacyEvent> {
        // As it is recorded, discrete noise included.
        if scale == 1.0 { Some(self.event.clone()) } else { self.event.with_noise_times(scale).ok() }
    }

    fn curve(&self, scale: f64) -> Option<TradeOff> {
        TradeOff::of_event(&self.with_noise_times(scale)?, self.accountant, self.group).ok()
    }

    fn epsilon(&self, scale: f64, delta: Delta) -> Epsilon {
        let judged = self.with_noise_times(scale).map(|event| self.accountant.judge_group(&event, delta, self.group));
        judged.and_then(Result::ok).map_or(Epsilon::INFINITE, |judged| judged.epsilon)
    }

    /// Whether the accountant knows that noise of this scale costs no less than it says.
    fn is_attained(&self, scale: f64, delta: Delta) -> bool {
        let judged = self.with_noise_times(scale).map(|event| self.accountant.judge_group(&event, delta, self.group));
        judged.and_then(Result::ok).is_none_or(|judged| judged.epsilon_lower.is_some())
    }

    /// The epsilon that is refuted: with a smallest scale that is, or as one Gaussian release where nothing can be scaled.
    fn lower(&self, noise_below: Option<f64>, shown: &OneRun, delta: Delta) -> f64 {
        match (noise_below, self.epsilon(1.0, delta).is_finite()) {
            (_, false) => shown.epsilon_lower_gaussian,
            (None, true) => 0.0,
            (Some(scale), true) => {
                let epsilon = self.epsilon(scale, delta);
                if epsilon.is_finite() { epsilon.get() } else { 0.0 }
            }
        }
    }
}

impl Shown {
    /// The audit result from the scores of canaries, compared with a ledger.
    ///
    /// # Errors
    /// When there is too little to say anything, or scores are no numbers.
    pub fn of<S: LedgerStore>(
        canaries: &Canaries,
        scored: &[Scored],
        formal: Epsilon,
        ledger: &Ledger<S>,
    ) -> Result<Self, AuditError> {
        let recorded = Recorded::of(ledger);
        let (delta, confidence) = (ledger.plan().delta, canaries.0.confidence);
        let at = |delta: Delta| OneRun::of(scored, delta, confidence);
        let shown = at(delta)?;
        let is_noised = recorded.epsilon(1.0, delta).is_finite();
        let noise_below = if is_noised { shown.refuted_noise(|scale| recorded.curve(scale))? } else { None };
        let epsilon_lower = recorded.lower(noise_below, &shown, delta);
        // What is guaranteed can be more than what was spent: then only what exceeds it counts.
        let is_refuted = noise_below.is_some_and(|scale| scale <= 1.0) && epsilon_lower >= formal.get();
        let verdict = match formal.is_finite() {
            false => Verdict::NoGuarantee,
            true if is_refuted || shown.epsilon_lower_any > formal.get() => Verdict::Violated,
            true => Verdict::Consistent,
        };
        let mut at_deltas = Vec::new();
        for delta in deltas() {
            let here = at(delta)?;
            at_deltas.push(AtDelta {
                delta: delta.get(),
                epsilon_formal: recorded.epsilon(1.0, delta),
                epsilon_lower: recorded.lower(noise_below, &here, delta),
                epsilon_lower_any: here.epsilon_lower_any,
            });
        }
        let guessed = |g: &privacy::audit::one_run::Guesses| Guessed {
            only_present: g.sides == privacy::audit::one_run::Sides::Top,
            made: g.made,
            correct: g.correct,
        };
        let estimate = OneShot::of(scored, delta)?;
        let canaries = scored.len() as u64;
        Ok(Self {
            canaries,
            epsilon_formal: formal,
            epsilon_lower,
            epsilon_lower_is_attained: noise_below.is_none_or(|scale| recorded.is_attained(scale, delta)),
            epsilon_lower_any: shown.epsilon_lower_any,
            any_would_need: WouldDo::of(canaries, delta, confidence)?,
            noise_below,
            epsilon_estimate: estimate.epsilon_estimate,
            epsilon_estimate_range: Some(estimate.range()),
            delta: delta.get(),
            confidence,
            verdict,
            guesses: shown.guesses.iter().map(guessed).collect(),
            at_deltas,
            canaries_needed: needed(formal, delta, confidence, &SLACKS)?,
        })
    }

    /// What the bounds are, and under which assumption each.
    #[must_use]
    pub fn bounds(&self) -> String {
        let Self { epsilon_lower, epsilon_lower_any, delta, confidence, .. } = self;
        let confidence = 100.0 * confidence;
        let assumption = match self.epsilon_formal.is_finite() {
            true => "the run differs from its ledger in the scale of the noise at most",
            false => "the run is a single Gaussian release",
        };
        let what = match self.epsilon_lower_is_attained {
            true => "epsilon",
            false => "the accountant's upper bound on epsilon",
        };
        let without = match self.epsilon_lower_is_attained {
            true => format!("and at least {epsilon_lower_any:.2} without that assumption"),
            false => format!("and epsilon is at least {epsilon_lower_any:.2} without that assumption"),
        };
        let mut text = format!(
            "With {confidence} % confidence, {what} at delta {delta:e} is at least {epsilon_lower:.2} if {assumption}, {without}."
        );
        if !self.epsilon_lower_is_attained {
            text += " Of this kind of run the accountant knows no more than an upper bound, so the first number is not a lower bound on epsilon: the true one can be smaller.";
        }
        if epsilon_lower.max(*epsilon_lower_any) <= 0.0 {
            text += " A bound of 0 shows nothing in either direction.";
        }
        if *epsilon_lower <= 0.0 {
            text += " With more canaries the first would show more.";
        }
        if let Some(would) = &self.any_would_need {
            text = format!("{text} {}", would.words(self.canaries, *delta));
        }
        text
    }

    /// The estimate, with its interval.
    #[must_use]
    pub fn estimate(&self) -> String {
        estimated(self.epsilon_estimate, self.epsilon_estimate_range)
    }

    /// In a few sentences.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { canaries, .. } = self;
        format!("Audit with {canaries} canaries. {} {} {}", self.bounds(), self.estimate(), self.verdict.words())
    }
}

/// An estimate that proves nothing, in a sentence.
#[must_use]
pub fn estimated(epsilon: f64, range: Option<[f64; 2]>) -> String {
    let range = range.map_or_else(String::new, |[low, high]| {
        format!(" (between {low:.2} and {high:.2} in 95 % of cases, if scores are normally distributed)")
    });
    format!("The estimate, which proves nothing, is {epsilon:.2}{range}.")
}
