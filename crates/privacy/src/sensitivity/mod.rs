//! Sensitivity: how far one user can move `C x` over a whole run of correlated noise, for a unit clip.
//!
//! The accountants turn this into one Gaussian: `mu = sensitivity / noise_multiplier`, `rho = mu^2 / 2`. Participations
//! keep the minimum separation and the maximum count across all segments (rules P5 to P7).

mod toeplitz;
mod tree;

use crate::{
    event::{EventError, NoiseMatrix, Segment, check_correlated},
    participation::Participation,
};

/// The squared sensitivity of a strategy matrix under a participation limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatrixSensitivity {
    /// The square of the L2 sensitivity for a unit clip.
    pub squared: f64,
    /// Whether some pattern of participation attains it; otherwise it is an upper bound.
    pub attained: bool,
}

impl MatrixSensitivity {
    /// The L2 sensitivity.
    #[must_use]
    pub fn get(self) -> f64 {
        libm::sqrt(self.squared)
    }
}

/// Participations at least `distance` rounds apart and at most `count` of them.
#[derive(Debug, Clone, Copy)]
struct Limits {
    distance: u64,
    count: u64,
}

impl Limits {
    /// The most participations that fit into so many rounds.
    fn fitting(self, rounds: u64) -> u64 {
        rounds.div_ceil(self.distance).min(self.count)
    }
}

/// The sensitivity of a correlated-noise run.
///
/// # Errors
/// When matrix, segments or participation contradict themselves; see [`crate::PrivacyEvent::flatten`].
pub fn of_matrix(
    matrix: &NoiseMatrix,
    segments: &[Segment],
    participation: &Participation,
) -> Result<MatrixSensitivity, EventError> {
    check_correlated(matrix, segments, participation)?;
    let rounds: u64 = segments.iter().map(|s| s.rounds).sum();
    let limits = match *participation {
        Participation::MinSeparation { separation, max_participations } => {
            Limits { distance: separation.as_distance(), count: max_participations }
        }
        Participation::Once => Limits { distance: rounds.max(1), count: 1 },
        Participation::Poisson { .. } | Participation::FixedSize { .. } => unreachable!("refused above"),
    };
    let limits = Limits { count: limits.fitting(rounds), ..limits };
    match matrix {
        NoiseMatrix::Tree => Ok(tree::sensitivity(segments, limits)),
        NoiseMatrix::Banded { coefficients } => {
            let longest = longest_segment(segments).min(coefficients.len() as u64);
            toeplitz::sensitivity(&coefficients[..longest as usize], segments, limits)
        }
        NoiseMatrix::Blt { buffer_decay, output_scale } => {
            let column = toeplitz::blt_column(buffer_decay, output_scale, longest_segment(segments))?;
            toeplitz::sensitivity(&column, segments, limits)
        }
    }
}

fn longest_segment(segments: &[Segment]) -> u64 {
    segments.iter().map(|s| s.rounds).max().unwrap_or(0)
}
