//! Membership inference by a threshold on one number, such as the loss of a model on a user's text (Yeom, Giacomelli, Fredrikson and Jha
//! 2018, "Privacy Risk in Machine Learning", arXiv:1709.01604v5): the ROC curve, its area, and the limit that epsilon sets.
//!
//! (eps, delta)-DP limits every attack: `TPR <= e^eps FPR + delta`, and the same for the complements (Kairouz, Oh and Viswanath 2015).
//! The epsilon of the best threshold is an estimate: thresholds are chosen by looking, and all users share one model.

use serde::Serialize;

use super::{AuditError, check_finite};

/// An attack by threshold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Roc {
    /// False and true positive rates, from (0, 0) to (1, 1), one for every threshold that makes a difference.
    pub points: Vec<(f64, f64)>,
    /// The area below: 0.5 for guessing, 1 for certainty.
    pub area: f64,
    /// True positives where at most one in a hundred others is taken for a member.
    pub at_one_percent: f64,
    /// The epsilon of the best threshold, corrected for chance: an estimate.
    pub epsilon_estimate: f64,
}

/// The fewest of either kind.
const FEWEST: usize = 10;

impl Roc {
    /// The attack that takes those with the higher score for members.
    ///
    /// # Errors
    /// When there are too few of either, or a score is no number.
    pub fn of(members: &[f64], others: &[f64], delta: f64) -> Result<Self, AuditError> {
        for (what, scores) in [("members", members), ("others", others)] {
            check_finite(what, scores)?;
            if scores.len() < FEWEST {
                return Err(AuditError::TooFew { what, least: FEWEST, got: scores.len() });
            }
        }
        let mut all: Vec<(f64, bool)> = members.iter().map(|s| (*s, true)).collect();
        all.extend(others.iter().map(|s| (*s, false)));
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (n, m) = (members.len() as f64, others.len() as f64);
        let (mut hits, mut alarms) = (0.0, 0.0);
        let mut points = vec![(0.0, 0.0)];
        for (at, (score, member)) in all.iter().enumerate() {
            if *member {
                hits += 1.0;
            } else {
                alarms += 1.0;
            }
            // Equal scores pass a threshold together.
            if all.get(at + 1).is_none_or(|next| next.0 != *score) {
                points.push((alarms / m, hits / n));
            }
        }
        let area = points.windows(2).map(|w| (w[1].0 - w[0].0) * 0.5 * (w[0].1 + w[1].1)).sum();
        let at_one_percent = points.iter().filter(|p| p.0 <= 0.01).map(|p| p.1).fold(0.0, f64::max);
        let epsilon = |p: &(f64, f64)| {
            let one = cautious(p.1, n, p.0, m, delta);
            one.max(cautious(1.0 - p.0, m, 1.0 - p.1, n, delta))
        };
        let epsilon_estimate = points.iter().map(epsilon).fold(0.0, f64::max);
        Ok(Self { points, area, at_one_percent, epsilon_estimate })
    }
}

/// `ln((hit - delta) / alarm)` with both rates moved by three standard errors of Agresti and Coull 1998 to the side of caution, so that
/// the best of many thresholds is not mistaken for something that was learned.
fn cautious(hit: f64, of_hits: f64, alarm: f64, of_alarms: f64, delta: f64) -> f64 {
    const Z: f64 = 3.0;
    let centre = |rate: f64, n: f64| {
        let n_tilde = n + Z * Z;
        let p = (rate * n + 0.5 * Z * Z) / n_tilde;
        (p, Z * libm::sqrt(p * (1.0 - p) / n_tilde))
    };
    let ((hit, less), (alarm, more)) = (centre(hit, of_hits), centre(alarm, of_alarms));
    let (hit, alarm) = (hit - less - delta, (alarm + more).min(1.0));
    if hit > alarm { libm::log(hit / alarm) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_the_share_of_pairs_in_the_right_order() {
        let members = [3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.6, 5.3, 5.8, 9.7];
        let others = [2.7, 1.8, 2.8, 1.0, 8.2, 8.4, 5.9, 0.4, 5.2, 3.5];
        let roc = Roc::of(&members, &others, 1e-5).unwrap();
        let order = |a: f64, b: f64| {
            if a > b {
                1.0
            } else if a == b {
                0.5
            } else {
                0.0
            }
        };
        let pairs: f64 = members.iter().flat_map(|m| others.iter().map(move |o| order(*m, *o))).sum();
        assert!((roc.area - pairs / 100.0).abs() < 1e-12, "{}", roc.area);
        assert_eq!((roc.points.first(), roc.points.last()), (Some(&(0.0, 0.0)), Some(&(1.0, 1.0))));
        assert_eq!(roc.at_one_percent, 0.2);
        assert_eq!(roc.epsilon_estimate, 0.0, "ten of each say nothing");
    }

    #[test]
    fn equal_scores_say_nothing_and_certainty_says_much() {
        let same = Roc::of(&[1.0; 500], &[1.0; 500], 1e-5).unwrap();
        assert_eq!((same.area, same.points.len(), same.epsilon_estimate), (0.5, 2, 0.0));
        let sure = Roc::of(&[1.0; 500], &[0.0; 500], 1e-5).unwrap();
        assert_eq!((sure.area, sure.at_one_percent), (1.0, 1.0));
        assert!(sure.epsilon_estimate > 3.0, "{}", sure.epsilon_estimate);
        assert!(Roc::of(&[1.0; 9], &[1.0; 500], 1e-5).is_err() && Roc::of(&[f64::NAN; 20], &[1.0; 500], 1e-5).is_err());
    }
}
