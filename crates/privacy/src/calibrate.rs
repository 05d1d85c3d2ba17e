//! Calibration: the noise, rounds or cohort that a target epsilon needs.
//!
//! Calibration only searches: it makes events, asks an accountant what they cost, and returns a value whose cost is at
//! most the target, with the judgement that says so. The search is a secant method (Illinois) on the logarithms of
//! both, for epsilon is close to a power of each quantity, safeguarded by bisection.
//!
//! ```
//! use keyhush_privacy::{AccountantKind, Delta, Epsilon, PrivacyEvent, SamplingRate, calibrate::Target};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let target = Target { epsilon: Epsilon::new(2.0)?, delta: Delta::new(1e-6)?, accountant: AccountantKind::Best, group: 1 };
//! let rate = SamplingRate::new(0.01)?;
//! let found = target.noise_multiplier(|z| PrivacyEvent::poisson(rate, z).times(1000))?;
//! assert!(found.judgement.epsilon.get() <= 2.0 && (1.02..1.04).contains(&found.value.get()));
//! # Ok(())
//! # }
//! ```

use thiserror::Error;

use crate::{
    accountant::{AccountError, AccountantKind, Judgement},
    event::PrivacyEvent,
    units::{Delta, Epsilon, NoiseMultiplier},
};

/// Noise multipliers are sought to within this part of themselves.
const NOISE_TOLERANCE: f64 = 1e-5;
/// The noise multipliers that are looked at.
const NOISE_RANGE: (f64, f64) = (1e-3, 1e8);
/// The most rounds that are looked at.
const MAX_ROUNDS: u64 = 1_000_000_000;

/// The target of a calibration: epsilon, delta and accountant.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The most that it may cost.
    pub epsilon: Epsilon,
    /// The delta of the target.
    pub delta: Delta,
    /// The accountant.
    pub accountant: AccountantKind,
    /// For a group of so many users.
    pub group: u32,
}

/// A value that meets the target, and what it costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibrated<T> {
    /// The value.
    pub value: T,
    /// The cost.
    pub judgement: Judgement,
}

/// A target that nothing meets, or that everything meets.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CalibrateError {
    /// The target is not above zero, or infinite.
    #[error("the target epsilon must be finite and above 0, got {got}")]
    Target {
        /// The requested value.
        got: Epsilon,
    },
    /// Even the best value costs more.
    #[error(
        "no {what} from {from} to {to} reaches epsilon {target} or less; the best one tried, {best}, has epsilon {costs}"
    )]
    OutOfReach {
        /// The quantity that was sought.
        what: &'static str,
        /// The smallest value that was allowed.
        from: f64,
        /// The largest value that was allowed.
        to: f64,
        /// The target.
        target: Epsilon,
        /// The best value that was tried.
        best: f64,
        /// The epsilon it costs.
        costs: Epsilon,
    },
    /// Even the worst value costs less.
    #[error("every {what} from {from} to {to} has epsilon {target} or less")]
    AnyWillDo {
        /// The quantity that was sought.
        what: &'static str,
        /// The smallest value that was allowed.
        from: f64,
        /// The largest value that was allowed.
        to: f64,
        /// The target.
        target: Epsilon,
    },
    /// The accountant refused.
    #[error(transparent)]
    Account(#[from] AccountError),
}

impl Target {
    /// The smallest noise multiplier with which the run meets the target, to about four digits: the search goes by quick
    /// bounds, and the answer is confirmed by the tight one.
    ///
    /// # Errors
    /// When the accountant refuses the run, or no noise will do.
    pub fn noise_multiplier(
        &self,
        event_of: impl Fn(NoiseMultiplier) -> PrivacyEvent,
    ) -> Result<Calibrated<NoiseMultiplier>, CalibrateError> {
        let unit = |x: f64| NoiseMultiplier::new(x).expect("the range holds legal multipliers only");
        let quantity = Quantity { what: "noise multiplier", range: NOISE_RANGE, more_is_cheaper: true, whole: false };
        let found = self.search(quantity, 1.0, |x| event_of(unit(x)))?;
        Ok(Calibrated { value: unit(found.value), judgement: found.judgement })
    }

    /// The largest number of rounds with which the run meets the target.
    ///
    /// # Errors
    /// When the accountant refuses the run, or a single round costs more.
    pub fn rounds(&self, event_of: impl Fn(u64) -> PrivacyEvent) -> Result<Calibrated<u64>, CalibrateError> {
        let quantity =
            Quantity { what: "number of rounds", range: (1.0, MAX_ROUNDS as f64), more_is_cheaper: false, whole: true };
        self.whole(quantity, 1000.0, event_of)
    }

    /// The smallest cohort with which the run meets the target, when the noise grows with the cohort.
    ///
    /// # Errors
    /// When the accountant refuses the run, or no cohort up to the population will do.
    pub fn smallest_cohort(
        &self,
        population: u64,
        event_of: impl Fn(u64) -> PrivacyEvent,
    ) -> Result<Calibrated<u64>, CalibrateError> {
        self.cohort(population, true, event_of)
    }

    /// The largest cohort with which the run meets the target, when the noise does not depend on it.
    ///
    /// # Errors
    /// When the accountant refuses the run, or a cohort of one costs more.
    pub fn largest_cohort(
        &self,
        population: u64,
        event_of: impl Fn(u64) -> PrivacyEvent,
    ) -> Result<Calibrated<u64>, CalibrateError> {
        self.cohort(population, false, event_of)
    }

    fn cohort(
        &self,
        population: u64,
        more_is_cheaper: bool,
        event_of: impl Fn(u64) -> PrivacyEvent,
    ) -> Result<Calibrated<u64>, CalibrateError> {
        let quantity = Quantity { what: "cohort", range: (1.0, population as f64), more_is_cheaper, whole: true };
        self.whole(quantity, libm::sqrt(population as f64), event_of)
    }

    fn whole(
        &self,
        quantity: Quantity,
        start: f64,
        event_of: impl Fn(u64) -> PrivacyEvent,
    ) -> Result<Calibrated<u64>, CalibrateError> {
        let found = self.search(quantity, start, |x| event_of(x as u64))?;
        Ok(Calibrated { value: found.value as u64, judgement: found.judgement })
    }

    fn search(
        &self,
        quantity: Quantity,
        start: f64,
        event_of: impl Fn(f64) -> PrivacyEvent,
    ) -> Result<Calibrated<f64>, CalibrateError> {
        if !(self.epsilon.is_finite() && self.epsilon.get() > 0.0) {
            return Err(CalibrateError::Target { got: self.epsilon });
        }
        let by = |accountant: AccountantKind, x: f64| self.try_value(accountant, &event_of(x), x);
        // Renyi bounds take next to no time, and lead close to what slower accountants will say.
        let start = match self.accountant {
            AccountantKind::Pld | AccountantKind::Best => self
                .between(&quantity, start, 4.0, |x| by(AccountantKind::Rdp, x))
                .map_or(start, |bracket| bracket.good.x),
            _ => start,
        };
        let bracket = self.between(&quantity, start, 1.15, |x| by(self.accountant, x))?;
        let judgement = self.accountant.judge_group(&event_of(bracket.good.x), self.delta, self.group)?;
        Ok(Calibrated { value: bracket.good.x, judgement })
    }

    /// What a value costs; an accountant that cannot follow losses that large is taken to say infinity.
    fn try_value(&self, accountant: AccountantKind, event: &PrivacyEvent, x: f64) -> Result<Trial, AccountError> {
        match accountant.upper_bound(event, self.delta, self.group) {
            Ok(judgement) => Ok(Trial { x, epsilon: judgement.epsilon }),
            Err(AccountError::NoLattice { .. }) => Ok(Trial { x, epsilon: Epsilon::INFINITE }),
            Err(other) => Err(other),
        }
    }

    /// Two values, one within the target and one not, as close as the quantity allows.
    fn between(
        &self,
        quantity: &Quantity,
        start: f64,
        stride: f64,
        mut judge: impl FnMut(f64) -> Result<Trial, AccountError>,
    ) -> Result<Bracket, CalibrateError> {
        let mut bracket = self.straddle(quantity, start, stride, &mut judge)?;
        let (mut weight_good, mut weight_bad) = (1.0, 1.0);
        for turn in 0.. {
            if bracket.is_tight(quantity) {
                break;
            }
            let height = |trial: &Trial| (libm::log(trial.epsilon.get() / self.epsilon.get())).clamp(-8.0, 8.0);
            let (good, bad) = (height(&bracket.good) * weight_good, height(&bracket.bad) * weight_bad);
            let part = if turn % 4 == 3 { 0.5 } else { (good / (good - bad)).clamp(0.02, 0.98) };
            let x = bracket.at(part, quantity);
            let trial = judge(x)?;
            if trial.epsilon <= self.epsilon {
                bracket.good = trial;
                (weight_good, weight_bad) = (1.0, weight_bad * 0.5);
            } else {
                bracket.bad = trial;
                (weight_good, weight_bad) = (weight_good * 0.5, 1.0);
            }
        }
        Ok(bracket)
    }

    /// Walks from `start` until the target lies between two values.
    fn straddle(
        &self,
        quantity: &Quantity,
        start: f64,
        mut stride: f64,
        judge: &mut impl FnMut(f64) -> Result<Trial, AccountError>,
    ) -> Result<Bracket, CalibrateError> {
        let mut here = judge(quantity.admit(start))?;
        loop {
            let within = here.epsilon <= self.epsilon;
            let larger = within != quantity.more_is_cheaper;
            let x =
                quantity.admit(if larger { (here.x * stride).max(here.x + quantity.grain()) } else { here.x / stride });
            if x == here.x {
                return Err(self.at_the_end(quantity, &here, within));
            }
            let next = judge(x)?;
            if (next.epsilon <= self.epsilon) != within {
                return Ok(if within { Bracket { good: here, bad: next } } else { Bracket { good: next, bad: here } });
            }
            here = next;
            stride *= stride.min(8.0);
        }
    }

    fn at_the_end(&self, quantity: &Quantity, last: &Trial, within: bool) -> CalibrateError {
        let ((from, to), what, target) = (quantity.range, quantity.what, self.epsilon);
        if within {
            CalibrateError::AnyWillDo { what, from, to, target }
        } else {
            CalibrateError::OutOfReach { what, from, to, target, best: last.x, costs: last.epsilon }
        }
    }
}

/// The quantity that is solved for.
struct Quantity {
    what: &'static str,
    range: (f64, f64),
    more_is_cheaper: bool,
    whole: bool,
}

impl Quantity {
    fn admit(&self, x: f64) -> f64 {
        let x = if self.whole { libm::round(x) } else { x };
        x.clamp(self.range.0, self.range.1)
    }

    fn grain(&self) -> f64 {
        if self.whole { 1.0 } else { 0.0 }
    }
}

/// A value and what it costs.
#[derive(Debug, Clone, Copy)]
struct Trial {
    x: f64,
    epsilon: Epsilon,
}

/// A value within the target and one not.
#[derive(Debug, Clone, Copy)]
struct Bracket {
    good: Trial,
    bad: Trial,
}

impl Bracket {
    fn is_tight(&self, quantity: &Quantity) -> bool {
        let gap = (self.good.x - self.bad.x).abs();
        if quantity.whole { gap <= 1.0 } else { gap <= NOISE_TOLERANCE * self.good.x }
    }

    /// The value a part of the way (in logarithms) from the good to the bad one, and strictly between them.
    fn at(&self, part: f64, quantity: &Quantity) -> f64 {
        let x = self.good.x * libm::pow(self.bad.x / self.good.x, part);
        let (lo, hi) = (self.good.x.min(self.bad.x), self.good.x.max(self.bad.x));
        if quantity.whole { libm::round(x).clamp(lo + 1.0, hi - 1.0) } else { x }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Adjacency, SamplingRate};

    fn target(epsilon: f64, accountant: AccountantKind) -> Target {
        Target { epsilon: Epsilon::new(epsilon).unwrap(), delta: Delta::new(1e-6).unwrap(), accountant, group: 1 }
    }

    fn poisson(q: f64, z: NoiseMultiplier, rounds: u64) -> PrivacyEvent {
        PrivacyEvent::poisson(SamplingRate::new(q).unwrap(), z).times(rounds)
    }

    #[test]
    fn noise_meets_the_target_and_a_little_less_does_not() {
        for accountant in [AccountantKind::Moments, AccountantKind::Rdp, AccountantKind::Pld, AccountantKind::Best] {
            for epsilon in [0.5, 2.0, 8.0] {
                let target = target(epsilon, accountant);
                let found = target.noise_multiplier(|z| poisson(0.01, z, 1000)).unwrap();
                assert!(found.judgement.epsilon.get() <= epsilon);
                let less = NoiseMultiplier::new(found.value.get() * 0.9995).unwrap();
                let costs = accountant.judge(&poisson(0.01, less, 1000), target.delta).unwrap().epsilon.get();
                assert!(costs > epsilon, "{accountant} {epsilon}: {} {costs}", found.value);
            }
        }
    }

    #[test]
    fn rounds_are_the_most_that_fit() {
        let z = NoiseMultiplier::new(1.0).unwrap();
        for accountant in [AccountantKind::Rdp, AccountantKind::Pld] {
            let target = target(2.0, accountant);
            let found = target.rounds(|rounds| poisson(0.01, z, rounds)).unwrap();
            let judge = |rounds| accountant.judge(&poisson(0.01, z, rounds), target.delta).unwrap().epsilon.get();
            assert!(judge(found.value) <= 2.0 && judge(found.value + 1) > 2.0, "{accountant}: {}", found.value);
        }
    }

    #[test]
    fn hopeless_and_boundless_targets_are_refused() {
        let gaussian =
            |rounds| PrivacyEvent::gaussian(Adjacency::AddOrRemove, NoiseMultiplier::new(0.1).unwrap()).times(rounds);
        let refused = target(0.1, AccountantKind::Best).rounds(gaussian).unwrap_err();
        assert!(matches!(refused, CalibrateError::OutOfReach { .. }), "{refused}");
        let free = target(0.1, AccountantKind::Best).rounds(|_| PrivacyEvent::Compose { events: vec![] }).unwrap_err();
        assert!(matches!(free, CalibrateError::AnyWillDo { .. }), "{free}");
        let zero = target(0.0, AccountantKind::Best).rounds(gaussian).unwrap_err();
        assert!(matches!(zero, CalibrateError::Target { .. }), "{zero}");
    }
}
