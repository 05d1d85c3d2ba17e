//! The one-run audit on many noised sums: is it wrong no more often than it says?
//!
//! Each repetition is a [`GaussianSum`] with coins and noise of its own. The sum is correct, so a bound above its epsilon is an error of
//! the audit, which is allowed with probability 1 - confidence. The verdict is of the audit: it is violated where an audit that errs no more
//! often than it says would err so often in at most one of twenty such series (or, at a confidence below 95 %, no more often than that allows).

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

/// The share of series in which a correct audit is accused by chance, at most.
const SERIES: f64 = 0.05;

/// What the audits of all sums show.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The epsilon of each sum, as an accountant computes it.
    pub epsilon_formal: Epsilon,
    /// The audit with the largest bound.
    pub largest: OneRun,
    /// The estimate from the same scores.
    pub estimate: OneShot,
    /// The estimates of all repetitions, sorted.
    pub estimates: Vec<f64>,
    /// In how many repetitions a bound was above the true epsilon.
    pub exceeded: u64,
    /// How probable so many or more are, if the audit errs as often as it may.
    pub chance: f64,
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
        let (mut exceeded, mut estimates) = (0, Vec::new());
        for repetition in 0..self.repetitions {
            let next = self.audit(repetition)?;
            exceeded += u64::from(next.is_above());
            estimates.push(OneShot::of(&next.scored, self.delta)?.epsilon_estimate);
            let is_larger = |most: &Audited| next.shown.epsilon_lower_gaussian > most.shown.epsilon_lower_gaussian;
            if largest.as_ref().is_none_or(is_larger) {
                largest = Some(next);
            }
        }
        let Audited { epsilon_formal, scored, shown } =
            largest.ok_or(AuditError::TooFew { what: "repetitions", least: 1, got: 0 })?;
        estimates.sort_by(f64::total_cmp);
        Ok(Found {
            epsilon_formal,
            estimate: OneShot::of(&scored, self.delta)?,
            estimates,
            at_deltas: self.at_deltas(&scored)?,
            largest: shown,
            exceeded,
            chance: self.chance(exceeded),
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

    /// The probability of so many bounds above the truth, or more, for an audit that errs exactly as often as its confidence allows.
    fn chance(&self, exceeded: u64) -> f64 {
        let odds = libm::log((1.0 - self.confidence) / self.confidence);
        if exceeded == 0 { 1.0 } else { Binomial::new(self.repetitions, odds).upper_tail(exceeded) }
    }

    fn verdict(&self, exceeded: u64) -> Verdict {
        // A single repetition is wrong with exactly 1 - confidence, computed with a rounding of its own.
        let rare = SERIES.max((1.0 - self.confidence) * (1.0 + 1e-5));
        if self.chance(exceeded) <= rare { Verdict::Violated } else { Verdict::Consistent }
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

    /// At 99.9 % one of 200 is expected in one of five series, two in one of sixty.
    #[test]
    fn one_wrong_repetition_of_200_is_chance_and_two_are_not() {
        use Verdict::{Consistent, Violated};
        let many = repeated(200);
        assert_eq!([0, 1, 2, 3].map(|n| many.verdict(n)), [Consistent, Consistent, Violated, Violated]);
        assert!((many.chance(1) - 0.181).abs() < 1e-3 && (many.chance(3) - 1.13e-3).abs() < 1e-5);
        assert_eq!((many.chance(0), repeated(1).verdict(0)), (1.0, Consistent));
        assert_eq!(repeated(1).verdict(1), Violated, "a single one has a probability of one in a thousand");
        // At 51 % up to about half of all may be wrong; the verdict itself is as unsure as it says.
        let unsure = |repetitions| Repeated { confidence: 0.51, ..repeated(repetitions) };
        assert_eq!([112, 480, 520].map(|n| unsure(1000).verdict(n)), [Consistent, Consistent, Violated]);
        assert_eq!(unsure(1).verdict(1), Violated);
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
        assert!(found.estimates.len() == 5 && found.estimates.contains(&found.estimate.epsilon_estimate), "{found:?}");
        assert!(found.estimates.is_sorted() && found.estimates[0] < found.estimates[4]);
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
