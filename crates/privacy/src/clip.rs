//! The adaptive clip norm: follows a quantile of the update norms, privately.
//!
//! Andrew et al. 2021, Algorithm 1: with the noised fraction `b` of users whose norm is at most C, the clip moves by
//! `C <- C exp(-eta (b - gamma))`, so that in the end a fraction gamma of the users is under it. Under DP-FTRL (Xu et al.
//! 2023, Algorithm 1) the clip within a segment must not move: a *tracked* clip follows the quantile at every step, and
//! becomes the *active* one, which updates are clipped to, at restarts only (rules P7 and P9). Their closed form,
//! `C0 exp(-eta (sum of private counts / m - (t + 1) gamma))`, is the product of these steps, carried over restarts.
//!
//! The fraction is [`crate::stages::Published::fraction_under_clip`], so the clip is post-processing of a release: it may
//! be printed (rule P12). The price of the bit is part of the release's event ([`crate::encoding::split`]).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::units::ClipNorm;

/// The tracked clip stays between these: an update is then never clipped to nothing, nor the grid step infinite.
const RANGE: std::ops::RangeInclusive<f64> = 1e-30..=1e30;

/// The rule by which the clip norm moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClipStep {
    /// `C <- C exp(-eta (b - gamma))`: as fast from a wrong order of magnitude as from nearby.
    Geometric,
    /// `C <- C - eta (b - gamma)`, for comparison: slow from far, coarse near 0.
    Linear,
}

/// The plan of adaptive clipping.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveClipPlan {
    /// gamma: the fraction of users to be under the clip.
    pub quantile: f64,
    /// eta: how fast it moves.
    pub learning_rate: f64,
    /// C^0.
    pub initial: ClipNorm,
    /// The rule by which the clip norm moves.
    pub step: ClipStep,
    /// m: the planned number of users of a round.
    pub planned_users: f64,
}

/// A plan or a fraction that has no meaning.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{field} must be {range}, got {got}")]
pub struct ClipError {
    /// The name of the number.
    pub field: &'static str,
    /// Its legal range in words.
    pub range: &'static str,
    /// The refused value.
    pub got: f64,
}

impl AdaptiveClipPlan {
    /// Refuses numbers without meaning.
    ///
    /// # Errors
    /// The first of them.
    pub fn check(&self) -> Result<(), ClipError> {
        let refuse = |field, range, got| Err(ClipError { field, range, got });
        if !(self.quantile > 0.0 && self.quantile < 1.0) {
            return refuse("quantile", "above 0 and below 1", self.quantile);
        }
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return refuse("learning_rate", "finite and above 0", self.learning_rate);
        }
        if !RANGE.contains(&self.initial.get()) {
            return refuse("initial", "from 1e-30 to 1e30", self.initial.get());
        }
        if !(self.planned_users.is_finite() && self.planned_users > 0.0) {
            return refuse("planned_users", "finite and above 0", self.planned_users);
        }
        Ok(())
    }
}

/// The clip of a run: the one that updates are clipped to, and the one that follows the quantile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveClip {
    plan: AdaptiveClipPlan,
    active: ClipNorm,
    tracked: ClipNorm,
}

impl AdaptiveClip {
    /// The clip before the first round.
    ///
    /// # Errors
    /// When the plan has no meaning.
    pub fn new(plan: AdaptiveClipPlan) -> Result<Self, ClipError> {
        plan.check()?;
        Ok(Self { plan, active: plan.initial, tracked: plan.initial })
    }

    /// The norm that updates are clipped to.
    #[must_use]
    pub const fn active(&self) -> ClipNorm {
        self.active
    }

    /// The norm that the clip bit compares with; devices get both.
    #[must_use]
    pub const fn tracked(&self) -> ClipNorm {
        self.tracked
    }

    /// Moves the tracked clip by one noised fraction, which may well be below 0 or above 1.
    ///
    /// # Errors
    /// When the fraction is not a number.
    pub fn follow(&mut self, noised_fraction: f64) -> Result<(), ClipError> {
        if !noised_fraction.is_finite() {
            return Err(ClipError { field: "noised fraction", range: "finite", got: noised_fraction });
        }
        let move_by = self.plan.learning_rate * (noised_fraction - self.plan.quantile);
        let tracked = self.tracked.get();
        let next = match self.plan.step {
            ClipStep::Geometric => tracked * libm::exp(-move_by),
            ClipStep::Linear => tracked - move_by,
        };
        self.tracked = ClipNorm::new(next.clamp(*RANGE.start(), *RANGE.end())).unwrap_or(self.tracked);
        Ok(())
    }

    /// The tracked clip becomes the active one: after every round of independent noise, at restarts of correlated noise.
    pub const fn activate(&mut self) {
        self.active = self.tracked;
    }
}
