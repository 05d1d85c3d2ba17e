//! The noise of a release, in the units that accountants use.

use serde::{Deserialize, Serialize};

use crate::units::{NoiseMultiplier, UnitError};

/// The noise of a release, relative to its sensitivity under the event's adjacency (rule P1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Noise {
    /// Real-valued Gaussian noise with this standard deviation per unit of sensitivity.
    Gaussian(NoiseMultiplier),
    /// Discrete Gaussian noise on the integers added to an integer vector.
    DiscreteGaussian(DiscreteGaussian),
    /// Discrete Gaussian noise on an integer vector of several segments, each with its own parameter and sensitivity.
    JointDiscreteGaussian(JointDiscreteGaussian),
}

impl Noise {
    /// The multiplier of the Gaussian that an accountant uses: itself, or what rule P3 grants a discrete one.
    #[must_use]
    pub fn multiplier(&self) -> NoiseMultiplier {
        match self {
            Self::Gaussian(z) => *z,
            Self::DiscreteGaussian(d) => d.multiplier(),
            Self::JointDiscreteGaussian(j) => j.multiplier(),
        }
    }
}

impl From<NoiseMultiplier> for Noise {
    fn from(z: NoiseMultiplier) -> Self {
        Self::Gaussian(z)
    }
}

/// Discrete Gaussian noise of parameter `sigma` on a release of integer L2 sensitivity at most `sensitivity`.
///
/// Rule P3: up to a factor 1 +- 1e-76 a coordinate it is the rounding, by a discrete Gaussian of parameter 3, of
/// N(f, sigma^2 - 9), and rounding is post-processing. So every accountant, also under sampling, takes it for the
/// Gaussian with multiplier `sqrt(sigma^2 - 9) / sensitivity`. Below [`DiscreteGaussian::MIN_SIGMA`] that does not
/// hold well enough, and such noise is refused.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "DiscreteGaussianForm", into = "DiscreteGaussianForm")]
pub struct DiscreteGaussian {
    sigma: f64,
    sensitivity: f64,
}

/// How a [`DiscreteGaussian`] is written.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DiscreteGaussianForm {
    sigma: f64,
    sensitivity: f64,
}

impl DiscreteGaussian {
    /// The smallest parameter for which the reduction to a Gaussian is used.
    pub const MIN_SIGMA: f64 = 32.0;
    /// The square of the parameter of the rounding that the reduction gives away.
    const ROUNDING_VARIANCE: f64 = 9.0;

    /// Noise of parameter `sigma`, in grid steps, on a release that one user moves by at most `sensitivity` steps.
    ///
    /// # Errors
    /// When `sigma` is below 32 or not finite, or `sensitivity` is not finite and above 0.
    pub fn new(sigma: f64, sensitivity: f64) -> Result<Self, UnitError> {
        if !(sigma.is_finite() && sigma >= Self::MIN_SIGMA) {
            return Err(UnitError::OutOfRange {
                unit: "sigma",
                range: "finite and at least 32 grid steps",
                got: sigma,
            });
        }
        if !(sensitivity.is_finite() && sensitivity > 0.0) {
            return Err(UnitError::OutOfRange { unit: "sensitivity", range: "finite and above 0", got: sensitivity });
        }
        let noise = Self { sigma, sensitivity };
        NoiseMultiplier::new(noise.effective_multiplier())?;
        Ok(noise)
    }

    /// The parameter of the discrete Gaussian, in grid steps.
    #[must_use]
    pub const fn sigma(&self) -> f64 {
        self.sigma
    }

    /// The L2 sensitivity, in grid steps.
    #[must_use]
    pub const fn sensitivity(&self) -> f64 {
        self.sensitivity
    }

    /// The multiplier of the Gaussian that stands for it.
    #[must_use]
    pub fn multiplier(&self) -> NoiseMultiplier {
        NoiseMultiplier::new(self.effective_multiplier()).expect("checked by the constructor")
    }

    fn effective_multiplier(&self) -> f64 {
        libm::sqrt(self.sigma * self.sigma - Self::ROUNDING_VARIANCE) / self.sensitivity
    }
}

impl TryFrom<DiscreteGaussianForm> for DiscreteGaussian {
    type Error = UnitError;
    fn try_from(w: DiscreteGaussianForm) -> Result<Self, UnitError> {
        Self::new(w.sigma, w.sensitivity)
    }
}

impl From<DiscreteGaussian> for DiscreteGaussianForm {
    fn from(d: DiscreteGaussian) -> Self {
        Self { sigma: d.sigma, sensitivity: d.sensitivity }
    }
}

/// Discrete Gaussian noise on the segments of one integer vector, each segment with its own parameter and sensitivity.
///
/// One user moves segment i by at most `sensitivity_i`, all segments at once, and the segments' noise is independent.
/// Scaling each segment by its noise makes it one Gaussian release of sensitivity `sqrt(sum_i 1 / z_i^2)` with unit
/// noise (Andrew et al. 2021, Theorem 1, for two segments), so its multiplier is `(sum_i z_i^-2)^(-1/2)` with `z_i` the
/// multiplier of segment i alone (rule P3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<DiscreteGaussian>", into = "Vec<DiscreteGaussian>")]
pub struct JointDiscreteGaussian(Vec<DiscreteGaussian>);

impl JointDiscreteGaussian {
    /// The noise of a vector with these segments.
    ///
    /// # Errors
    /// When there is no segment, or so little noise that the multiplier is not a number above 0.
    pub fn new(segments: Vec<DiscreteGaussian>) -> Result<Self, UnitError> {
        if segments.is_empty() {
            return Err(UnitError::Zero { unit: "segments with noise", got: 0 });
        }
        let joint = Self(segments);
        NoiseMultiplier::new(joint.joint_multiplier())?;
        Ok(joint)
    }

    /// The segments.
    #[must_use]
    pub fn segments(&self) -> &[DiscreteGaussian] {
        &self.0
    }

    /// The multiplier of the one Gaussian that stands for all of them.
    #[must_use]
    pub fn multiplier(&self) -> NoiseMultiplier {
        NoiseMultiplier::new(self.joint_multiplier()).expect("checked by the constructor")
    }

    fn joint_multiplier(&self) -> f64 {
        let precision: f64 = self.0.iter().map(|d| d.effective_multiplier()).map(|z| 1.0 / (z * z)).sum();
        // Rounded down by more than the sum can be off.
        let rounding = 1.0 - (self.0.len() as f64 + 4.0) * f64::EPSILON;
        rounding / libm::sqrt(precision)
    }
}

impl TryFrom<Vec<DiscreteGaussian>> for JointDiscreteGaussian {
    type Error = UnitError;
    fn try_from(segments: Vec<DiscreteGaussian>) -> Result<Self, UnitError> {
        Self::new(segments)
    }
}

impl From<JointDiscreteGaussian> for Vec<DiscreteGaussian> {
    fn from(joint: JointDiscreteGaussian) -> Self {
        joint.0
    }
}
