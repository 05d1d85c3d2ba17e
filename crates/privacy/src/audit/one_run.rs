//! A lower bound on epsilon from one run with many canaries.
//!
//! Each of m canary users takes part or stays away by the toss of a fair coin. After the run the auditor gives every canary a score, and
//! guesses for some of them: "took part" for the highest scores, "stayed away" for the lowest. Privacy limits how many guesses can be
//! right.
//!
//! * Steinke, Nasr and Jagielski 2023 ("Privacy Auditing with One (1) Training Run", arXiv:2305.08846v1), Corollary 5.4 and
//!   appendix D: of r guesses under (eps, delta)-DP, `P(right >= v) <= P(W >= v) + 2 m delta max_i P(v - i <= W < v) / i`, W binomial with
//!   r trials of probability e^eps / (1 + e^eps). [`steinke_p_value`]
//! * Mahloujifar, Melis and Chaudhuri 2024 ("Auditing f-Differential Privacy in One Run", arXiv:2410.22235v1), Theorem 9 and
//!   Algorithm 3, for any trade-off function. [`is_refuted`]
//!
//! | here                | Mahloujifar et al. | what it is                                                     |
//! |---------------------|--------------------|----------------------------------------------------------------|
//! | `canaries`          | m                  | canaries                                                       |
//! | `made`              | c'                 | guesses, a number fixed in advance                             |
//! | `correct`           | c                  | right ones                                                     |
//! | `p_i`               | p_i                | the probability of exactly i right guesses                     |
//! | `right`, `wrong`    | `r[i]`, `h[i]`     | (1/m) sum_(j>=i) j p_j and (1/m) sum_(j>=i) (c' - j) p_j         |
//! | [`TradeOff::least`] | inverse of 1 - f   | how likely an event is under a neighbour, at least             |
//!
//! Why the second one holds: flip the coin of one canary that was guessed right, keep everything else, and it is guessed wrong, with one
//! right guess less in all. Averaged over canaries, f-DP gives `wrong_(i-1) >= least(right_i)`. If i or more right guesses had
//! probability tau, then going down from c the masses `right` and `wrong` would have to grow, and at 0 they must add up to c'/m, no
//! more. `r_i - a_i h_i` with `a_i = (i-1)/(c'-i+1)` is smallest when all of the tail lies at c, and every later step only adds with
//! positive factors, so the recursion gives the least masses that are possible; if even these are too large, the guarantee is refuted.
//!
//! A number of guesses cannot be chosen after seeing the scores. [`plans`] fixes several, and each is tested at its share of the
//! probability of being wrong ([`Shares`]).
//!
//! What the guesses show of epsilon depends on what is taken for granted. With nothing but one (epsilon, delta) a delta that many
//! canaries use up leaves nothing to show. A run that is what its record says, but for the scale of its noise, has a whole privacy curve
//! for every scale, of which only one is true: [`OneRun::refuted_noise`] finds the scales that are refuted.

use serde::Serialize;

use super::{
    AuditError,
    binomial::{Binomial, MOST_TRIALS},
    check_finite, failure_probability,
    trade_off::{TradeOff, epsilon_of, mu_of, quantile},
};
use crate::{Delta, accountant::gaussian::normal_sf};

/// A canary after the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// How much the run looks as if it took part.
    pub score: f64,
    /// Whether the canary took part.
    pub present: bool,
}

/// Which canaries are guessed: present ones only, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sides {
    /// "Took part" for the highest half of the guesses, "stayed away" for the lowest.
    Both,
    /// "Took part" for the highest scores. It finds few canaries that stand out by far.
    Top,
}

/// Guesses, and how many of them were right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Guesses {
    /// Canaries in all.
    pub canaries: u64,
    /// For whom they were made.
    pub sides: Sides,
    /// Guesses.
    pub made: u64,
    /// The number of correct guesses.
    pub correct: u64,
}

/// The fewest canaries of an audit.
pub const FEWEST_CANARIES: usize = 20;
/// The most guesses of one kind: more cost time and add nothing.
const MOST_GUESSES: u64 = 20_000;
/// The grid on which the bound of Steinke et al. is searched: its p-value need not grow with epsilon, so every value is tried.
const GRID: f64 = 0.01;
/// The largest epsilon that is looked for.
const MOST_EPSILON: f64 = 50.0;

/// The numbers of guesses, fixed by the number of canaries alone.
#[must_use]
pub fn plans(canaries: u64) -> Vec<(Sides, u64)> {
    let sized = |sides, share: u64, least: u64| (sides, (canaries / share).clamp(least, MOST_GUESSES).min(canaries));
    let all = [
        sized(Sides::Both, 100, 20),
        sized(Sides::Both, 25, 20),
        sized(Sides::Both, 6, 20),
        sized(Sides::Top, 400, 10),
        sized(Sides::Top, 200, 10),
        sized(Sides::Top, 50, 10),
    ];
    let mut plans: Vec<(Sides, u64)> = Vec::new();
    for (sides, made) in all {
        // An even number, so that both sides have as many.
        let plan = (sides, made - made % 2);
        if !plans.contains(&plan) {
            plans.push(plan);
        }
    }
    plans
}

/// Guesses for scored canaries, by all [`plans`].
///
/// # Errors
/// When there are too few or too many canaries, or a score is no number.
pub fn guess(scored: &[Scored]) -> Result<Vec<Guesses>, AuditError> {
    if scored.len() < FEWEST_CANARIES {
        return Err(AuditError::TooFew { what: "canaries", least: FEWEST_CANARIES, got: scored.len() });
    }
    let canaries = scored.len() as u64;
    if canaries > MOST_TRIALS {
        return Err(AuditError::OutOfRange { what: "canaries", range: "at most 100,000,000", got: canaries as f64 });
    }
    check_finite("the score of canary", &scored.iter().map(|s| s.score).collect::<Vec<_>>())?;
    let mut order: Vec<&Scored> = scored.iter().collect();
    order.sort_by(|a, b| b.score.total_cmp(&a.score));
    // Right guesses among the first and the last of them.
    let running = |right: Vec<bool>| {
        let mut sums = vec![0u64];
        right.iter().for_each(|right| sums.push(sums[sums.len() - 1] + u64::from(*right)));
        sums
    };
    let top = running(order.iter().map(|s| s.present).collect());
    let bottom = running(order.iter().rev().map(|s| !s.present).collect());
    let guesses = plans(canaries).into_iter().map(|(sides, made)| {
        let correct = match sides {
            Sides::Both => top[made as usize / 2] + bottom[made as usize / 2],
            Sides::Top => top[made as usize],
        };
        Guesses { canaries, sides, made, correct }
    });
    Ok(guesses.collect())
}

/// At least the probability of so many right guesses under (epsilon, delta)-DP.
#[must_use]
pub fn steinke_p_value(guesses: &Guesses, epsilon: f64, delta: f64) -> f64 {
    let Guesses { canaries, made, correct, .. } = *guesses;
    let right = Binomial::new(made, epsilon);
    let p = right.upper_tail(correct) + 2.0 * canaries as f64 * delta * right.largest_average_below(correct);
    p.min(1.0)
}

/// Whether so many right guesses have a probability below `tau` under a guarantee.
#[must_use]
pub fn is_refuted(guarantee: &TradeOff, guesses: &Guesses, tau: f64) -> bool {
    let (m, made, correct) = (guesses.canaries as f64, guesses.made as f64, guesses.correct as f64);
    if guesses.correct == 0 || tau <= 0.0 || tau.is_nan() {
        return false;
    }
    let (mut right, mut wrong) = (tau * correct / m, tau * (made - correct) / m);
    for i in (1..=guesses.correct).rev() {
        let least = guarantee.least(right);
        if least <= wrong {
            // Nothing forces more mass below: such a tail is possible.
            return false;
        }
        let factor = (i as f64 - 1.0) / (made - i as f64 + 1.0);
        // Rounded down by more than the additions can be off.
        right = (right + factor * (least - wrong)) * (1.0 - 1e-14);
        wrong = least;
        if right + wrong > made / m * (1.0 + 1e-9) {
            return true;
        }
    }
    false
}

/// The probability of being wrong, shared between all tests of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// Of each of two tests of each plan, of one (epsilon, delta) and any mechanism: half of the whole.
    pub any: f64,
    /// Of one test of each plan, of a whole privacy curve: the other half. Of a family of curves one is true, and only its test can be
    /// wrong, so however many are tested, they share this.
    pub curve: f64,
}

impl Shares {
    /// Of `alpha`, for so many numbers of guesses.
    #[must_use]
    pub fn new(alpha: f64, plans: usize) -> Self {
        let plans = plans.max(1) as f64;
        Self { any: alpha / (4.0 * plans), curve: alpha / (2.0 * plans) }
    }
}

/// The range of noise scales that are looked at, as powers of 2.
const SCALES: std::ops::RangeInclusive<f64> = -10.0..=10.0;
/// Halvings of a factor of 2: the scale is known to 0.1 %.
const HALVINGS: u32 = 9;

/// What one run shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OneRun {
    /// The guesses.
    pub guesses: Vec<Guesses>,
    /// Epsilon is at least this at delta, whatever the mechanism is: the larger bound of the two papers.
    pub epsilon_lower_any: f64,
    /// If the run is a Gaussian mechanism, its epsilon is at least this.
    pub epsilon_lower_gaussian: f64,
    /// If the run is a Gaussian mechanism, its mu is at least this.
    pub mu_lower: f64,
    /// The delta of these.
    pub delta: f64,
    /// The probability that each of these bounds is right is at least this, over the coins and the noise.
    pub confidence: f64,
}

impl OneRun {
    /// The bounds that scores show at a delta.
    ///
    /// # Errors
    /// When the scores or the confidence cannot be used.
    pub fn of(scored: &[Scored], delta: Delta, confidence: f64) -> Result<Self, AuditError> {
        let alpha = failure_probability(confidence)?;
        let guesses = guess(scored)?;
        let shares = Shares::new(alpha, guesses.len());
        let epsilon_lower_any = any(&guesses, delta, shares);
        let mu_lower = mu_lower(&guesses, shares);
        let epsilon_lower_gaussian = epsilon_of(mu_lower, delta);
        Ok(Self { guesses, epsilon_lower_any, epsilon_lower_gaussian, mu_lower, delta: delta.get(), confidence })
    }

    /// Whether the guesses refute a guarantee. Together with `epsilon_lower_any` that is wrong with a probability below 1 - confidence.
    ///
    /// # Errors
    /// When the confidence cannot be used.
    pub fn refutes(&self, guarantee: &TradeOff) -> Result<bool, AuditError> {
        let each = Shares::new(failure_probability(self.confidence)?, self.guesses.len()).curve;
        Ok(self.guesses.iter().any(|guesses| is_refuted(guarantee, guesses, each)))
    }

    /// The smallest scale that is refuted, rounded up: with so many times the noise, or more, the guesses are too good. None where no
    /// scale is. `curve` gives the guarantee at a scale, weaker for less noise, and none where it is not known.
    ///
    /// If the curve at the true scale is true, the true scale is below the returned one, and epsilon above that at the returned one, with the
    /// probability of [`Self::refutes`]: all other scales may be refuted rightly or wrongly.
    ///
    /// # Errors
    /// When the confidence cannot be used.
    pub fn refuted_noise(&self, curve: impl Fn(f64) -> Option<TradeOff>) -> Result<Option<f64>, AuditError> {
        let is_refuted = |power: f64| match curve(libm::exp2(power)) {
            Some(curve) => self.refutes(&curve),
            None => Ok(false),
        };
        // Whole powers of 2 first, from 1: where the guarantee itself is decided.
        let mut power = 0.0;
        if is_refuted(power)? {
            while SCALES.contains(&(power - 1.0)) && is_refuted(power - 1.0)? {
                power -= 1.0;
            }
        } else {
            while !is_refuted(power)? {
                power += 1.0;
                if !SCALES.contains(&power) {
                    return Ok(None);
                }
            }
        }
        let (mut low, mut high) = (power - 1.0, power);
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if is_refuted(middle)? {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(Some(libm::exp2(high)))
    }
}

/// What [`OneRun::epsilon_lower_any`] is at most: its value if every guess is right. At a large delta it is 0: then nothing can be shown of an
/// unknown mechanism, whatever the run did.
///
/// The test of a pair needs a share of the error times c/m above delta ([`is_refuted`] starts there, and with less mass a delta explains
/// everything). The p-value of Steinke et al. is at least `2 m delta max_i P(v - i <= W < v) / i`, about `4 m delta / v` at epsilon 0 and
/// more above.
///
/// # Errors
/// When the confidence cannot be used, or there are too few canaries.
pub fn most_any(canaries: u64, delta: Delta, confidence: f64) -> Result<f64, AuditError> {
    let alpha = failure_probability(confidence)?;
    if canaries < FEWEST_CANARIES as u64 {
        return Err(AuditError::TooFew { what: "canaries", least: FEWEST_CANARIES, got: canaries as usize });
    }
    Ok(any(&all_right(canaries), delta, Shares::new(alpha, plans(canaries).len())))
}

/// The largest delta at which this epsilon can be shown of an unknown mechanism, rounded down to two digits.
///
/// # Errors
/// As [`most_any`].
pub fn largest_delta(canaries: u64, confidence: f64, epsilon: f64) -> Result<Option<Delta>, AuditError> {
    // From 10^-1 downwards, by tenths of what comes first: 9.9e-2, 9.8e-2, ...
    for power in 2..=12 {
        let of = |digits: u32| Delta::new(f64::from(digits) * libm::pow(10.0, -f64::from(power) - 1.0)).ok();
        let shows =
            |digits: u32| of(digits).map_or(Ok(false), |delta| Ok(most_any(canaries, delta, confidence)? >= epsilon));
        if !shows(10)? {
            continue;
        }
        let (mut low, mut high) = (10, 100);
        while high - low > 1 {
            let middle = u32::midpoint(low, high);
            if shows(middle)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        return Ok(of(low));
    }
    Ok(None)
}

/// The most canaries of 20, 50, 100, 200, ... with which this epsilon can be shown of an unknown mechanism at a delta.
///
/// # Errors
/// When the confidence cannot be used.
pub fn most_canaries(delta: Delta, confidence: f64, epsilon: f64) -> Result<Option<u64>, AuditError> {
    let (mut most, mut canaries) = (None, FEWEST_CANARIES as u64);
    while canaries <= 1_000_000 {
        if most_any(canaries, delta, confidence)? >= epsilon {
            most = Some(canaries);
        }
        canaries = next(canaries);
    }
    Ok(most)
}

/// All guesses of all plans, right.
fn all_right(canaries: u64) -> Vec<Guesses> {
    plans(canaries).into_iter().map(|(sides, made)| Guesses { canaries, sides, made, correct: made }).collect()
}

/// The larger bound of the two papers, of all plans.
fn any(guesses: &[Guesses], delta: Delta, shares: Shares) -> f64 {
    let of = |g: &Guesses| steinke(g, delta, shares.any).max(of_pair(g, delta, shares.any));
    guesses.iter().map(of).fold(0.0, f64::max)
}

/// The largest epsilon of a grid up to which all are refuted.
fn steinke(guesses: &Guesses, delta: Delta, tau: f64) -> f64 {
    let mut lower = 0.0;
    for step in 0.. {
        let epsilon = f64::from(step) * GRID;
        if epsilon > MOST_EPSILON || steinke_p_value(guesses, epsilon, delta.get()) >= tau {
            break;
        }
        lower = epsilon;
    }
    lower
}

/// The same by the bound for trade-off functions.
fn of_pair(guesses: &Guesses, delta: Delta, tau: f64) -> f64 {
    largest(MOST_EPSILON, |epsilon| is_refuted(&TradeOff::pair(epsilon, delta.get()), guesses, tau))
}

/// The largest mu of a Gaussian that some guesses refute.
fn mu_lower(guesses: &[Guesses], shares: Shares) -> f64 {
    let of = |g: &Guesses| largest(20.0, |mu| is_refuted(&TradeOff::Gaussian(mu), g, shares.curve));
    guesses.iter().map(of).fold(0.0, f64::max)
}

/// The largest value, up to rounding downwards, that is refuted, where smaller ones are too.
fn largest(most: f64, is_refuted: impl Fn(f64) -> bool) -> f64 {
    if !is_refuted(0.0) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, most);
    for _ in 0..24 {
        let middle = 0.5 * (low + high);
        if is_refuted(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The most canaries that [`canaries_needed`] looks at.
pub const MOST_PLANNED: u64 = 100_000_000;

/// How many canaries one run needs so that its bound for a Gaussian mechanism is, in most runs, at least `(1 - slack)` of the true
/// epsilon, for each slack; none if [`MOST_PLANNED`] are not enough. The canaries are ideal: each moves the release by its whole
/// sensitivity in a direction of its own.
///
/// # Errors
/// When a number is out of range.
pub fn canaries_needed(
    epsilon: f64,
    delta: Delta,
    confidence: f64,
    slacks: &[f64],
) -> Result<Vec<Option<u64>>, AuditError> {
    if let Some(slack) = slacks.iter().find(|slack| !(**slack > 0.0 && **slack < 1.0)) {
        return Err(AuditError::OutOfRange { what: "slack", range: "above 0 and below 1", got: *slack });
    }
    let (alpha, mu) = (failure_probability(confidence)?, mu_of(epsilon, delta)?);
    let mut needed = vec![None; slacks.len()];
    let mut canaries = 100;
    while canaries <= MOST_PLANNED && needed.contains(&None) {
        let guesses = expected(mu, canaries);
        let lower = epsilon_of(mu_lower(&guesses, Shares::new(alpha, guesses.len())), delta);
        for (needed, slack) in needed.iter_mut().zip(slacks) {
            if needed.is_none() && lower >= (1.0 - slack) * epsilon {
                *needed = Some(canaries);
            }
        }
        canaries = next(canaries);
    }
    Ok(needed)
}

/// 100, 200, 500, 1000, ...
const fn next(canaries: u64) -> u64 {
    let mut power = canaries;
    while power >= 10 {
        power /= 10;
    }
    if power == 2 { canaries / 2 * 5 } else { canaries * 2 }
}

/// The guesses of most runs: the expected number of right ones, less two standard deviations.
fn expected(mu: f64, canaries: u64) -> Vec<Guesses> {
    let of_plan = |(sides, made): (Sides, u64)| {
        let one_side = if sides == Sides::Both { made / 2 } else { made };
        let share = one_side as f64 / canaries as f64;
        // Scores above t: half of N(0, 1) and half of N(mu, 1).
        let above = |t: f64| 0.5 * (normal_sf(t) + normal_sf(t - mu));
        let (mut low, mut high) = (-40.0, -quantile(share) + mu + 40.0);
        for _ in 0..80 {
            let middle = 0.5 * (low + high);
            if above(middle) > share {
                low = middle;
            } else {
                high = middle;
            }
        }
        let accuracy = (0.5 * normal_sf(high - mu) / above(high)).clamp(0.0, 1.0);
        let spread = libm::sqrt(made as f64 * accuracy * (1.0 - accuracy));
        let correct = libm::floor(made as f64 * accuracy - 2.0 * spread).max(0.0) as u64;
        Guesses { canaries, sides, made, correct }
    };
    plans(canaries).into_iter().map(of_plan).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(canaries: u64, made: u64) -> Guesses {
        Guesses { canaries, sides: Sides::Both, made, correct: made }
    }

    /// Under pure epsilon and with all guesses right the bound of Mahloujifar et al. is that of randomized response, to which
    /// Steinke's is equal: (e^eps / (1 + e^eps))^r.
    #[test]
    fn both_bounds_are_that_of_randomized_response_without_delta() {
        for (made, correct) in [(10, 10), (40, 40), (40, 37), (200, 160), (1000, 520)] {
            let guesses = Guesses { correct, ..right(made, made) };
            for epsilon in [0.0, 0.5, 1.0, 2.0] {
                let p = steinke_p_value(&guesses, epsilon, 0.0);
                if correct == made {
                    let power = libm::exp(-(made as f64) * libm::log1p(libm::exp(-epsilon)));
                    assert!((p / power - 1.0).abs() < 1e-5, "{p} {power}");
                }
                if p < 0.5 {
                    let pair = TradeOff::pair(epsilon, 0.0);
                    // The recursion bounds the same tail, and is never below it.
                    assert!(!is_refuted(&pair, &guesses, p * 0.9), "{made} {correct} {epsilon}: below {p}");
                    assert!(
                        is_refuted(&pair, &guesses, (p * 40.0).min(0.999)),
                        "{made} {correct} {epsilon}: far above {p}"
                    );
                }
            }
        }
    }

    /// Appendix D of Steinke et al. 2023, its function `p_value_DP_audit`, evaluated by hand for one guess: W is 1 with probability q,
    /// and below 1 with 1 - q.
    #[test]
    fn the_delta_of_steinke_is_counted() {
        let one = Guesses { canaries: 50, sides: Sides::Both, made: 1, correct: 1 };
        let q = 1.0 / (1.0 + libm::exp(-1.0));
        let p = steinke_p_value(&one, 1.0, 1e-3);
        assert!((p - (q + 2.0 * 50.0 * 1e-3 * (1.0 - q))).abs() < 1e-5, "{p}");
    }

    #[test]
    fn chance_refutes_nothing_and_certainty_refutes_much() {
        let coin = Guesses { canaries: 1000, sides: Sides::Both, made: 400, correct: 205 };
        assert!(!is_refuted(&TradeOff::Gaussian(0.0), &coin, 1e-3));
        assert_eq!(steinke(&coin, Delta::new(1e-9).unwrap(), 1e-3), 0.0);
        let sure = right(10_000, 400);
        assert!(is_refuted(&TradeOff::Gaussian(1.0), &sure, 1e-3));
        assert!(steinke(&sure, Delta::new(1e-9).unwrap(), 1e-3) > 3.0);
        assert!(!is_refuted(&TradeOff::Pairs(Vec::new()), &sure, 1e-3), "without a guarantee nothing is refuted");
    }

    /// One canary and one guess: the best guess about a Gaussian is right with probability Phi(mu / 2), and about (eps, delta)-DP with
    /// (e^eps + delta) / (1 + e^eps). The recursion refutes from there on, and not before.
    #[test]
    fn the_recursion_is_exact_for_one_canary() {
        let one = Guesses { canaries: 1, sides: Sides::Both, made: 1, correct: 1 };
        let exact = |guarantee: &TradeOff, p: f64| {
            assert!(!is_refuted(guarantee, &one, p - 1e-7), "{guarantee:?} below {p}");
            assert!(is_refuted(guarantee, &one, p + 1e-7), "{guarantee:?} above {p}");
        };
        for mu in [0.01, 0.3, 1.0, 2.5, 6.0] {
            exact(&TradeOff::Gaussian(mu), normal_sf(-0.5 * mu));
        }
        for (epsilon, delta) in [(0.0, 0.0), (1.0, 0.0), (1.0, 1e-3), (2.0, 1e-5), (0.5, 0.1)] {
            let odds = libm::exp(epsilon);
            exact(&TradeOff::pair(epsilon, delta), (odds + delta) / (1.0 + odds));
        }
    }

    /// All tests of a verdict together may be wrong as often as the audit says, and each must bear its share: the guesses that are just
    /// enough for a share are not enough for less of it.
    #[test]
    fn all_tests_share_the_probability_of_being_wrong() {
        let (delta, confidence) = (Delta::new(1e-9).unwrap(), 0.999);
        let alpha = failure_probability(confidence).unwrap();
        let scored: Vec<Scored> =
            (0..6000).map(|i| Scored { score: f64::from(i), present: i >= 3000 && i % 7 != 0 }).collect();
        let shown = OneRun::of(&scored, delta, confidence).unwrap();
        let plans = shown.guesses.len();
        assert_eq!(plans, 6);
        let shares = Shares::new(alpha, plans);
        assert!(plans as f64 * (2.0 * shares.any + shares.curve) <= 1e-3, "{shares:?}");
        assert_eq!((shares.any, shares.curve), (alpha / 24.0, alpha / 12.0));
        let most = |of: &dyn Fn(&Guesses) -> f64| shown.guesses.iter().map(of).fold(0.0, f64::max);
        let any = |tau| most(&|g| steinke(g, delta, tau).max(of_pair(g, delta, tau)));
        assert_eq!(shown.epsilon_lower_any, any(alpha / 24.0));
        assert!(shown.epsilon_lower_any < any(alpha / 12.0), "a larger share would show more");
        let gaussian = |tau| most(&|g| largest(20.0, |mu| is_refuted(&TradeOff::Gaussian(mu), g, tau)));
        assert_eq!(shown.mu_lower, gaussian(alpha / 12.0));
        assert!(shown.mu_lower < gaussian(alpha / 6.0) - 1e-3);
        // A curve that only a larger share would refute is not refuted; one that the share refutes is.
        let at = |mu: f64| shown.refutes(&TradeOff::Gaussian(mu)).unwrap();
        assert!(at(shown.mu_lower) && !at(gaussian(alpha / 6.0)));
        let noise = shown.refuted_noise(|scale| Some(TradeOff::Gaussian(1.0 / scale))).unwrap().unwrap();
        assert!(1.0 / noise <= shown.mu_lower && 1.0 / noise > 0.997 * shown.mu_lower, "{noise} {}", shown.mu_lower);
    }

    /// 1,000 canaries, 166 guesses of 166: at delta 1e-5 neither test refutes even an epsilon of 0. That of a pair needs a share times c/m
    /// above delta (5e-5 / 6 = 8.3e-6); the p-value of Steinke et al. is 2.05e-4, four times the share.
    #[test]
    fn a_large_delta_leaves_nothing_to_show_of_an_unknown_mechanism() {
        let at = |delta: f64| Delta::new(delta).unwrap();
        let scored: Vec<Scored> = (0..1000).map(|i| Scored { score: f64::from(i), present: i >= 500 }).collect();
        let shown = OneRun::of(&scored, at(1e-5), 0.999).unwrap();
        assert!(shown.guesses.iter().any(|g| (g.made, g.correct) == (166, 166)), "{shown:?}");
        assert_eq!((shown.epsilon_lower_any, shown.guesses.len()), (0.0, 5));
        assert!(shown.epsilon_lower_gaussian > 1.0, "{shown:?}");
        let all = right(1000, 166);
        let p = steinke_p_value(&all, 0.0, 1e-5);
        assert!((2.04e-4..2.06e-4).contains(&p), "{p}");
        let refutes = |delta: f64| is_refuted(&TradeOff::pair(0.0, delta), &all, 5e-5);
        assert!(refutes(8.2e-6) && !refutes(8.4e-6));
        // The same said beforehand, and what would do.
        let most = |canaries, delta: f64| most_any(canaries, at(delta), 0.999).unwrap();
        assert_eq!((most(1000, 1e-5), most(10_000, 1e-5), most(1000, 1e-4)), (0.0, 0.0, 0.0));
        assert!(most(1000, 1e-6) > 1.0 && most(200, 1e-5) > 0.0);
        assert_eq!(OneRun::of(&scored, at(1e-6), 0.999).unwrap().epsilon_lower_any, most(1000, 1e-6));
        let delta = largest_delta(1000, 0.999, 1.0).unwrap().unwrap();
        assert!(most(1000, delta.get()) >= 1.0 && most(1000, 1.1 * delta.get()) < 1.0, "{delta:?}");
        let canaries = most_canaries(at(1e-5), 0.999, 0.5).unwrap().unwrap();
        assert!(most(canaries, 1e-5) >= 0.5 && most(next(canaries), 1e-5) < 0.5, "{canaries}");
        assert_eq!(most_canaries(at(1e-2), 0.999, 0.1).unwrap(), None);
        assert!(most_any(19, at(1e-5), 0.999).is_err() && most_any(100, at(1e-5), 1.0).is_err());
        // The table of docs/AUDITS.md.
        for (canaries, delta, want) in [
            (20, 1e-4, 0.36),
            (100, 1e-5, 0.50),
            (200, 1e-5, 0.91),
            (500, 1e-5, 1.97),
            (1000, 1e-6, 2.78),
            (10_000, 1e-7, 5.10),
        ] {
            assert!((most(canaries, delta) - want).abs() < 0.01, "{canaries} at {delta}: {}", most(canaries, delta));
        }
        // What it says of 10,000 canaries and 400 right guesses.
        let share = Shares::new(1e-3, 6).any;
        let p = |delta: f64| steinke_p_value(&right(10_000, 400), 0.0, delta);
        assert!(p(4.6e-7) < share && p(4.8e-7) > share);
    }

    #[test]
    fn scales_are_found_on_both_sides_of_the_record_and_not_where_nothing_is_known() {
        let scored: Vec<Scored> = (0..2000).map(|i| Scored { score: f64::from(i), present: i >= 1000 }).collect();
        let shown = OneRun::of(&scored, Delta::new(1e-5).unwrap(), 0.999).unwrap();
        assert!(shown.mu_lower > 0.2, "{shown:?}");
        let scale = |mu: f64| shown.refuted_noise(|scale| Some(TradeOff::Gaussian(mu / scale))).unwrap();
        for claimed in [0.001, 0.1, 1.0, 50.0] {
            let found = claimed / scale(claimed).unwrap();
            assert!(found <= shown.mu_lower && found > 0.997 * shown.mu_lower, "{claimed}: {found}");
        }
        assert_eq!(scale(1e6), None, "so little noise that no scale in range is refuted");
        assert_eq!(shown.refuted_noise(|_| None).unwrap(), None);
        let chance: Vec<Scored> = (0..2000).map(|i| Scored { score: f64::from(i), present: i % 2 == 0 }).collect();
        let chance = OneRun::of(&chance, Delta::new(1e-5).unwrap(), 0.999).unwrap();
        assert_eq!(chance.refuted_noise(|scale| Some(TradeOff::Gaussian(1.0 / scale))).unwrap(), None);
    }

    #[test]
    fn guesses_are_those_of_the_highest_and_lowest_scores() {
        let scored: Vec<Scored> =
            (0..2000).map(|i| Scored { score: f64::from(i), present: i >= 1000 || i == 0 }).collect();
        for guesses in guess(&scored).unwrap() {
            let wrong = u64::from(guesses.sides == Sides::Both);
            assert_eq!(guesses.correct, guesses.made - wrong, "{guesses:?}");
            assert_eq!(guesses.made % 2, 0);
        }
        assert!(guess(&scored[..19]).is_err());
        let bad: Vec<Scored> = (0..20).map(|_| Scored { score: f64::NAN, present: true }).collect();
        assert!(matches!(guess(&bad), Err(AuditError::NotFinite { index: 0, .. })));
    }

    /// The order of canaries that look alike must not depend on their coins.
    #[test]
    fn equal_scores_tell_nothing() {
        let scored: Vec<Scored> = (0..2000).map(|i| Scored { score: 1.0, present: i % 2 == 0 }).collect();
        for guesses in guess(&scored).unwrap() {
            assert!(guesses.correct.abs_diff(guesses.made / 2) <= 1, "{guesses:?}");
        }
    }

    #[test]
    fn more_canaries_are_needed_for_less_slack() {
        let delta = Delta::new(1e-5).unwrap();
        let needed = canaries_needed(2.0, delta, 0.999, &[0.8, 0.6, 0.01]).unwrap();
        let (rough, fine) = (needed[0].unwrap(), needed[1].unwrap());
        assert!(rough < fine, "{rough} {fine}");
        assert_eq!(needed[2], None);
        assert!(
            canaries_needed(2.0, delta, 0.999, &[0.0]).is_err() && canaries_needed(2.0, delta, 1.0, &[0.5]).is_err()
        );
    }
}
