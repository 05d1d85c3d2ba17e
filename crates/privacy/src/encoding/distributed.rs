//! Noise added by the users themselves, so that nobody ever holds a sum without noise.
//!
//! Each user adds Skellam noise to the own integers before they are masked (Agarwal, Kairouz and Liu 2021). Skellam
//! variables add up to a Skellam variable, so k users with the local variance v each make noise of variance k v exactly.
//! Users drop out, and corrupted ones may tell the server what they added: counted is the noise of the honest survivors
//! alone, as few as a round may close with. There is more noise than that in all other rounds; it is not counted.
//!
//! Neighbours are those of [`Adjacency::ZeroOut`]: the one user whose data is gone still takes part, with noise and zeros.
//! Segments have independent noise and one user moves all of them at once, so their Renyi divergences add up: one release
//! is the composition of its segments.

use serde::{Deserialize, Serialize};

use super::{
    Encoding, EncodingError, NoisePlan,
    layout::{Layout, LayoutSegment, SegmentKind, sqrt_up},
    parameters,
};
use crate::{
    event::{Adjacency, PrivacyEvent},
    noise::skellam::{LEAST_VARIANCE, MOST_VARIANCE, VarianceError, check_variance},
};

/// The survivors whose noise counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survivors {
    /// The fewest users of whom a sum is opened; the protocol must see to it.
    pub least: u64,
    /// The most of them who may tell others what they added.
    pub corrupted: u64,
}

impl Survivors {
    /// The fewest whose noise is in a sum and secret.
    #[must_use]
    pub const fn honest(self) -> u64 {
        self.least.saturating_sub(self.corrupted)
    }

    fn check(self) -> Result<(), EncodingError> {
        if self.honest() >= 1 {
            return Ok(());
        }
        let Self { least, corrupted } = self;
        let problem =
            format!("{corrupted} of at least {least} survivors may be corrupted, so no honest noise may be left");
        Err(EncodingError::Plan { field: "survivors", problem })
    }
}

/// The noise that each user adds to each segment. It does not depend on the clip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "DistributedNoiseForm", into = "DistributedNoiseForm")]
pub struct DistributedNoise {
    layout: Layout,
    local_variances: Vec<u64>,
    survivors: Survivors,
}

impl DistributedNoise {
    /// Noise of which the honest survivors have as much as the plan asks of a sum's noise, segment by segment. The
    /// encoding has none of its own.
    ///
    /// # Errors
    /// When the adjacency is not zero-out, the encoding has noise or is of a quotient, nobody's noise can be counted on,
    /// or plan and segments contradict each other.
    pub fn new(
        encoding: &Encoding,
        noise: &NoisePlan,
        adjacency: Adjacency,
        survivors: Survivors,
    ) -> Result<Self, EncodingError> {
        check_adjacency(adjacency)?;
        check_layout(encoding.layout())?;
        survivors.check()?;
        let honest = survivors.honest() as f64;
        let skellam = |wanted: f64| {
            let variance = local_variance(wanted, honest)?;
            Ok((variance, honest * variance as f64))
        };
        let layout = encoding.layout().clone();
        let local_variances = parameters(layout.segments(), noise, adjacency, skellam)?;
        Ok(Self { layout, local_variances, survivors })
    }

    /// The event of one release for a user who takes part.
    #[must_use]
    pub fn event(&self) -> PrivacyEvent {
        let one = |(segment, variance)| self.event_of(segment, variance);
        let mut events: Vec<PrivacyEvent> = self.segments().map(one).collect();
        if events.len() == 1 { events.remove(0) } else { PrivacyEvent::Compose { events } }
    }

    fn event_of(&self, segment: &LayoutSegment, local_variance: u64) -> PrivacyEvent {
        let l2_sensitivity = segment.sensitivity(Adjacency::ZeroOut);
        PrivacyEvent::DistributedSkellam {
            adjacency: Adjacency::ZeroOut,
            local_variance: local_variance as f64,
            honest_survivors: self.survivors.honest(),
            l1_sensitivity: l1_sensitivity(segment).max(l2_sensitivity),
            l2_sensitivity,
        }
    }

    /// The survivors whose noise counts.
    #[must_use]
    pub const fn survivors(&self) -> Survivors {
        self.survivors
    }

    /// The layout of the noised vector.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The variance of one user's noise in a coordinate of each segment, in squared grid steps.
    #[must_use]
    pub fn local_variances(&self) -> &[u64] {
        &self.local_variances
    }

    /// The segments, each with its local variance.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (&LayoutSegment, u64)> {
        self.layout.segments().iter().zip(self.local_variances.iter().copied())
    }

    /// A bound on the noise of `users` in a coordinate, of a local variance. It is exceeded with a probability below
    /// 2^-61.
    ///
    /// The sum X is Skellam of variance V, `ln E e^(tX) = V (cosh t - 1)`. Term by term `(2j)! >= 2 * 3^(2j-2)`, so for t
    /// from 0 to 3 `cosh t - 1 <= (t^2 / 2) / (1 - t/3)`: X is sub-gamma with variance factor V and scale 1/3, and
    /// `P[X >= sqrt(2 V x) + x/3] <= e^-x` (Boucheron, Lugosi and Massart 2013, section 2.4). X is symmetric, and with
    /// x = 43 both sides together have `2 e^-43 < 2^-61`.
    pub(crate) fn reach(local_variance: u64, users: u64) -> f64 {
        const X: f64 = 43.0;
        let variance = local_variance as f64 * users as f64;
        libm::ceil((libm::sqrt(2.0 * variance * X) + X / 3.0) * (1.0 + 8.0 * f64::EPSILON))
    }
}

fn check_adjacency(adjacency: Adjacency) -> Result<(), EncodingError> {
    let problem = match adjacency {
        Adjacency::ZeroOut => return Ok(()),
        Adjacency::AddOrRemove => {
            "under add-or-remove, the neighbouring dataset also lacks the removed user's noise, but distributed noise must be the same in both; use zero-out"
        }
        Adjacency::ReplaceOne => {
            "replace-one is for sampled cohorts, and sampling does not amplify distributed noise; use zero-out"
        }
    };
    Err(EncodingError::Plan { field: "adjacency", problem: problem.into() })
}

/// Refuses segments that have noise already, or that no user sends.
fn check_layout(layout: &Layout) -> Result<(), EncodingError> {
    let refuse = |field, problem: &str| Err(EncodingError::Plan { field, problem: problem.into() });
    match layout.segments() {
        [] => refuse("segments", "there is nothing to add noise to"),
        all if all.iter().any(|s| s.kind == SegmentKind::Quotient) => refuse(
            "estimator",
            "the clipped denominator has its noise on the quotient, where users cannot add it (rule P10); use a fixed denominator",
        ),
        all if all.iter().any(|s| s.sigma != 0) => {
            refuse("noise", "the users add the noise, so the encoding must have none")
        }
        _ => Ok(()),
    }
}

/// The smallest even variance of which the honest have at least this standard deviation together, exact as a float.
fn local_variance(wanted: f64, honest: f64) -> Result<u64, EncodingError> {
    let half = libm::ceil(wanted * wanted / honest / 2.0 * (1.0 + 8.0 * f64::EPSILON));
    if !(half.is_finite() && half <= (MOST_VARIANCE / 2) as f64) {
        return Err(EncodingError::TooMuchNoise { sigma: libm::sqrt(2.0 * half) });
    }
    Ok((2 * half as u64).max(LEAST_VARIANCE))
}

/// How far one user moves a segment in the L1 norm. With d coordinates of at most m each, integers x have
/// `|x|_1 <= sqrt(d) |x|_2`, `|x|_1 <= |x|_2^2` and `|x|_1 <= d m`.
fn l1_sensitivity(segment: &LayoutSegment) -> f64 {
    let (d, l2) = (segment.len as u64, segment.sensitivity(Adjacency::ZeroOut));
    let by_size = d as f64 * f64::from(segment.largest);
    let bounds = [sqrt_up(d) * l2, segment.norm_squared as f64, by_size];
    bounds.into_iter().fold(f64::INFINITY, f64::min) * (1.0 + 4.0 * f64::EPSILON)
}

/// How [`DistributedNoise`] is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DistributedNoiseForm {
    layout: Layout,
    local_variances: Vec<u64>,
    survivors: Survivors,
}

impl TryFrom<DistributedNoiseForm> for DistributedNoise {
    type Error = EncodingError;
    fn try_from(form: DistributedNoiseForm) -> Result<Self, EncodingError> {
        let DistributedNoiseForm { layout, local_variances, survivors } = form;
        check_layout(&layout)?;
        survivors.check()?;
        let (expected, got) = (layout.segments().len(), local_variances.len());
        if expected != got {
            return Err(EncodingError::Length { expected, got });
        }
        let refused = |e: VarianceError| EncodingError::Plan { field: "local_variances", problem: e.to_string() };
        local_variances.iter().try_for_each(|v| check_variance(*v)).map_err(refused)?;
        Ok(Self { layout, local_variances, survivors })
    }
}

impl From<DistributedNoise> for DistributedNoiseForm {
    fn from(noise: DistributedNoise) -> Self {
        let DistributedNoise { layout, local_variances, survivors } = noise;
        Self { layout, local_variances, survivors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `P[|X| >= r]` of a Skellam variable, as the convolution of two Poisson laws.
    fn tail(variance: f64, r: i64) -> f64 {
        let mean = variance / 2.0;
        let poisson = |k: i64| libm::exp(k as f64 * libm::log(mean) - mean - libm::lgamma(k as f64 + 1.0));
        let far = mean as i64 + 40 * libm::sqrt(mean) as i64;
        let law: Vec<f64> = (0..far).map(poisson).collect();
        let at = |n: i64| (n..far).map(|k| law[k as usize] * law[(k - n) as usize]).sum::<f64>();
        2.0 * (r..r + 400).map(at).sum::<f64>()
    }

    #[test]
    fn noise_reaches_farther_less_than_once_in_2_to_the_61() {
        for (local_variance, users) in [(1024, 1), (1024, 3), (4096, 2)] {
            let (variance, reach) = ((local_variance * users) as f64, DistributedNoise::reach(local_variance, users));
            let rare = 2.0f64.powi(-61);
            assert!(tail(variance, reach as i64) < rare, "{variance}: {}", tail(variance, reach as i64));
            assert!(tail(variance, (0.85 * reach) as i64) > rare, "{variance}: far too far");
        }
    }

    /// The bound that the derivation begins with, `exp(V (cosh t - 1) - t r)` at its best t, for variances that cannot be
    /// added up.
    #[test]
    fn the_reach_is_beyond_what_chernoff_asks_for() {
        for bits in 10..=90 {
            let (local, users) = if bits <= 60 { (1u64 << bits, 1) } else { (1 << 60, 1u64 << (bits - 60)) };
            let (v, r) = (2.0f64.powi(bits), DistributedNoise::reach(local, users));
            let t = libm::asinh(r / v);
            // cosh t - 1 = 2 sinh^2(t/2), without cancellation.
            let exponent = t * r - v * 2.0 * libm::sinh(t / 2.0).powi(2);
            assert!((43.0..48.0).contains(&exponent), "2^{bits}: {exponent}");
        }
    }

    #[test]
    fn local_variances_are_even_enough_and_no_more() {
        for wanted in [1.0, 500.0, 1234.5, 1e6, 1e9] {
            for honest in [1.0, 3.0, 4333.0] {
                let Ok(got) = local_variance(wanted, honest) else {
                    assert!(wanted * wanted / honest > 2.0f64.powi(59));
                    continue;
                };
                assert!(check_variance(got).is_ok() && got as f64 * honest >= wanted * wanted);
                assert!(got == LEAST_VARIANCE || (got as f64 - 2.0) * honest <= wanted * wanted * (1.0 + 1e-12));
            }
        }
    }
}
