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
//! probability of being wrong.

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
    /// Whether it did.
    pub present: bool,
}

/// For whom guesses are made.
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

/// The result of auditing one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OneRun {
    /// The guesses.
    pub guesses: Vec<Guesses>,
    /// Epsilon is at least this at delta, whatever the mechanism is: the larger bound of the two papers.
    pub epsilon_lower: f64,
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
        // Half for what is shown of any mechanism, by two bounds each; half is left for `refutes`.
        let each = alpha / (4 * guesses.len()) as f64;
        let any = |g: &Guesses| steinke(g, delta, each).max(of_pair(g, delta, each));
        let epsilon_lower = guesses.iter().map(any).fold(0.0, f64::max);
        let mu_lower = mu_lower(&guesses, alpha);
        let epsilon_lower_gaussian = epsilon_of(mu_lower, delta);
        Ok(Self { guesses, epsilon_lower, epsilon_lower_gaussian, mu_lower, delta: delta.get(), confidence })
    }

    /// Whether the guesses refute a guarantee. Together with `epsilon_lower` that is wrong with a probability below 1 - confidence.
    ///
    /// # Errors
    /// When the confidence cannot be used.
    pub fn refutes(&self, guarantee: &TradeOff) -> Result<bool, AuditError> {
        let each = failure_probability(self.confidence)? / (2 * self.guesses.len()) as f64;
        Ok(self.guesses.iter().any(|guesses| is_refuted(guarantee, guesses, each)))
    }
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
fn mu_lower(guesses: &[Guesses], alpha: f64) -> f64 {
    let each = alpha / guesses.len() as f64;
    guesses.iter().map(|g| largest(20.0, |mu| is_refuted(&TradeOff::Gaussian(mu), g, each))).fold(0.0, f64::max)
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
        let lower = epsilon_of(mu_lower(&expected(mu, canaries), alpha), delta);
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

    fn all_right(canaries: u64, made: u64) -> Guesses {
        Guesses { canaries, sides: Sides::Both, made, correct: made }
    }

    /// Under pure epsilon and with all guesses right the bound of Mahloujifar et al. is that of randomized response, to which
    /// Steinke's is equal: (e^eps / (1 + e^eps))^r.
    #[test]
    fn both_bounds_are_that_of_randomized_response_without_delta() {
        for (made, correct) in [(10, 10), (40, 40), (40, 37), (200, 160), (1000, 520)] {
            let guesses = Guesses { correct, ..all_right(made, made) };
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
        let sure = all_right(10_000, 400);
        assert!(is_refuted(&TradeOff::Gaussian(1.0), &sure, 1e-3));
        assert!(steinke(&sure, Delta::new(1e-9).unwrap(), 1e-3) > 3.0);
        assert!(!is_refuted(&TradeOff::Pairs(Vec::new()), &sure, 1e-3), "without a guarantee nothing is refuted");
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
