//! The one-run audit on many noised sums: is it wrong no more often than it says?
//!
//! Each repetition is a [`GaussianSum`] with coins and noise of its own. The sum is correct, so a bound above its epsilon is an error of
//! the audit, which is allowed with probability 1 - confidence.

use super::{
    AtDelta, AuditError, Verdict, bench,
    binomial::Binomial,
    deltas,
    gaussian_sum::GaussianSum,
    one_run::{OneRun, Scored},
    one_shot::OneShot,
    trade_off::mu_of,
};
use crate::{AccountantKind, Adjacency, Delta, Epsilon, NoiseMultiplier, PrivacyEvent};

/// The sums to be audited.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Repeated {
    /// Canaries of each sum.
    pub canaries: u64,
    /// Epsilon of each sum, at [`Self::delta`].
    pub epsilon: f64,
    /// The delta of the epsilons.
    pub delta: Delta,
    /// The probability that a bound is right.
    pub confidence: f64,
    /// How many sums there are.
    pub repetitions: u64,
    /// The seed of the first one's coins and noise; each of the others has the next one.
    pub seed: u64,
}

/// What the audits of all sums show.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The epsilon of each sum, as an accountant computes it.
    pub epsilon_formal: Epsilon,
    /// The audit with the largest bound.
    pub largest: OneRun,
    /// The estimate from the same scores.
    pub epsilon_estimate: f64,
    /// In how many repetitions a bound was above the true epsilon.
    pub exceeded: u64,
    /// Whether that is too often.
    pub verdict: Verdict,
    /// The bounds of the same scores at other deltas.
    pub at_deltas: Vec<AtDelta>,
}

/// The audit of one sum.
#[derive(Debug, Clone)]
struct Audited {
    epsilon_formal: Epsilon,
    scored: Vec<Scored>,
    shown: OneRun,
}

impl Audited {
    fn is_above(&self) -> bool {
        self.shown.epsilon_lower_gaussian.max(self.shown.epsilon_lower_any) > self.epsilon_formal.get()
    }
}

impl Repeated {
    /// Audits all sums.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn run(&self) -> Result<Found, AuditError> {
        let mut largest: Option<Audited> = None;
        let mut exceeded = 0;
        for repetition in 0..self.repetitions {
            let next = self.audit(repetition)?;
            exceeded += u64::from(next.is_above());
            let is_larger = |most: &Audited| next.shown.epsilon_lower_gaussian > most.shown.epsilon_lower_gaussian;
            if largest.as_ref().is_none_or(is_larger) {
                largest = Some(next);
            }
        }
        let Audited { epsilon_formal, scored, shown } =
            largest.ok_or(AuditError::TooFew { what: "repetitions", least: 1, got: 0 })?;
        Ok(Found {
            epsilon_formal,
            epsilon_estimate: OneShot::of(&scored, self.delta)?.epsilon_estimate,
            at_deltas: self.at_deltas(&scored)?,
            largest: shown,
            exceeded,
            verdict: self.verdict(exceeded),
        })
    }

    fn audit(&self, repetition: u64) -> Result<Audited, AuditError> {
        let seed = self.seed.wrapping_add(repetition);
        let sum = GaussianSum::new(self.canaries, self.epsilon, self.delta, seed)?;
        let scored = sum.scores()?;
        let shown = OneRun::of(&scored, self.delta, self.confidence)?;
        Ok(Audited { epsilon_formal: sum.epsilon(), scored, shown })
    }

    /// A violation where so many repetitions are wrong that the audit is wrong more often than it says.
    fn verdict(&self, exceeded: u64) -> Verdict {
        let wrong = 1.0 - self.confidence;
        let odds = libm::log(wrong / self.confidence);
        let chance = Binomial::new(self.repetitions, odds).upper_tail(exceeded);
        // A single repetition is wrong with exactly this probability, computed with a rounding of its own.
        if exceeded > 0 && chance <= wrong * (1.0 + 1e-5) { Verdict::Violated } else { Verdict::Consistent }
    }

    fn at_deltas(&self, scored: &[Scored]) -> Result<Vec<AtDelta>, AuditError> {
        let noise = NoiseMultiplier::new(1.0 / mu_of(self.epsilon, self.delta)?).map_err(bench)?;
        let event = PrivacyEvent::gaussian(Adjacency::ZeroOut, noise);
        let at = |delta: Delta| {
            let shown = OneRun::of(scored, delta, self.confidence)?;
            Ok(AtDelta {
                delta: delta.get(),
                epsilon_formal: AccountantKind::Best.judge(&event, delta).map_err(bench)?.epsilon,
                epsilon_lower: shown.epsilon_lower_gaussian,
                epsilon_lower_any: shown.epsilon_lower_any,
            })
        };
        deltas().map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Delta, Repeated, Verdict};

    fn repeated(repetitions: u64) -> Repeated {
        let delta = Delta::new(1e-5).expect("a delta");
        Repeated { canaries: 200, epsilon: 2.0, delta, confidence: 0.999, repetitions, seed: 3 }
    }

    #[test]
    fn one_wrong_repetition_of_many_is_chance_and_ten_are_not() {
        let many = repeated(200);
        assert_eq!([0, 1, 10].map(|n| many.verdict(n)), [Verdict::Consistent, Verdict::Consistent, Verdict::Violated]);
        assert_eq!(repeated(1).verdict(1), Verdict::Violated, "a single one has a probability of one in a thousand");
    }

    #[test]
    fn the_largest_bound_of_all_repetitions_is_shown() {
        let found = repeated(5).run().expect("five sums");
        let bounds: Vec<f64> = (0..5)
            .map(|seed| Repeated { seed: 3 + seed, ..repeated(1) }.run().expect("one").largest.epsilon_lower_gaussian)
            .collect();
        assert_eq!(found.largest.epsilon_lower_gaussian, bounds.iter().copied().fold(0.0, f64::max));
        assert!(
            bounds.iter().any(|bound| *bound != bounds[0]),
            "each repetition has coins and noise of its own: {bounds:?}"
        );
        assert_eq!((found.exceeded, found.verdict), (0, Verdict::Consistent));
    }

    #[test]
    fn at_the_delta_of_the_sums_the_picture_has_the_numbers_of_the_answer() {
        let found = repeated(1).run().expect("one sum");
        let here = found.at_deltas.iter().find(|at| at.delta == 1e-5).expect("this delta is in the picture");
        assert_eq!(here.epsilon_lower, found.largest.epsilon_lower_gaussian);
        assert!((here.epsilon_formal.get() / found.epsilon_formal.get() - 1.0).abs() < 0.01, "{here:?}");
    }

    #[test]
    fn no_repetition_is_refused() {
        repeated(0).run().expect_err("nothing was audited");
    }
}
