//! Noise added by the users: the mechanism adds nothing, it only accounts for it.

use super::{Correlation, Mechanism, MechanismError, MechanismPlan};
use crate::{
    encoding::{DistributedNoise, layout::Layout},
    event::{Adjacency, EventError, PrivacyEvent},
    rng::Randomness,
    stages::{NoisedSum, Released},
};

impl MechanismPlan {
    /// Refuses what users cannot add, and what nobody can account for.
    pub(super) fn check_distributed(&self, noise: &DistributedNoise, layout: &Layout) -> Result<(), MechanismError> {
        if self.correlation != Correlation::Independent {
            return Err(MechanismError::DistributedCorrelated);
        }
        if self.adjacency != Adjacency::ZeroOut {
            let (event, needs) = ("noise that users add", "zero-out");
            return Err(EventError::Adjacency { event, adjacency: self.adjacency, needs }.into());
        }
        if self.participation.is_sampled() {
            return Err(MechanismError::DistributedSampled);
        }
        if noise.layout() != layout { Err(MechanismError::OtherNoise) } else { Ok(()) }
    }

    /// What all steps up to and with `rounds` rounds of a segment amount to.
    pub(super) fn distributed_event(&self, noise: &DistributedNoise, segment: usize, rounds: u64) -> PrivacyEvent {
        let before: u64 = self.segments[..segment].iter().map(|s| s.rounds).sum();
        let rounds = before + rounds.min(self.segments[segment].rounds);
        PrivacyEvent::LimitedRounds { rounds, participation: self.participation, event: Box::new(noise.event()) }
    }
}

impl Mechanism {
    /// Releases the next step, whose noise the users added.
    ///
    /// # Errors
    /// When the mechanism is to add the noise, the noise in the sum is not the plan's, or all steps have been released;
    /// nothing is released then, and the sum is gone.
    pub fn release_noised(&mut self, sum: NoisedSum) -> Result<Released, MechanismError> {
        if self.plan.distributed.as_ref() != Some(sum.noise()) {
            return Err(MechanismError::OtherNoise);
        }
        let (values, encoding) = sum.into_parts();
        self.check_next()?;
        self.count_step(encoding);
        let released = self.released(values, self.layout.clone(), encoding);
        self.restart_if_due();
        Ok(released)
    }
}

/// Refuses a source whose releases would be marked as having noise that users do not draw.
pub(super) fn check_randomness(randomness: Randomness) -> Result<(), MechanismError> {
    match randomness {
        Randomness::SimulatedFloatingPoint { .. } => Err(MechanismError::DistributedFloatingPoint),
        Randomness::Secret | Randomness::Simulated { .. } => Ok(()),
    }
}
