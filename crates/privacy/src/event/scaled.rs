//! The same event with more noise, or less.

use super::{Noise, PrivacyEvent};
use crate::units::{NoiseMultiplier, Rho, UnitError};

impl PrivacyEvent {
    /// The same with all its noise `scale` times as large, each standard deviation; who takes part and how often stays as it was.
    /// Discrete noise becomes the real-valued one that stands for it (rule P3). What was released without noise has none to scale.
    ///
    /// # Errors
    /// When the scale is not positive, or so far from 1 that the noise is no number above 0.
    pub fn with_noise_times(&self, scale: f64) -> Result<Self, UnitError> {
        let scaled = |noise: &Noise| -> Result<Noise, UnitError> {
            Ok(NoiseMultiplier::new(noise.multiplier().get() * scale)?.into())
        };
        let mut event = self.clone();
        match &mut event {
            Self::Gaussian { noise, .. }
            | Self::SampledGaussian { noise, .. }
            | Self::CorrelatedGaussian { noise, .. } => *noise = scaled(noise)?,
            Self::Skellam { variance, .. } | Self::DistributedSkellam { local_variance: variance, .. } => {
                NoiseMultiplier::new(scale)?;
                *variance *= scale * scale;
            }
            Self::Zcdp { rho, .. } => {
                NoiseMultiplier::new(scale)?;
                *rho = Rho::new(rho.get() / (scale * scale))?;
            }
            Self::LimitedRounds { event, .. } | Self::Repeat { event, .. } => {
                **event = event.with_noise_times(scale)?;
            }
            Self::Compose { events } => {
                for event in events {
                    *event = event.with_noise_times(scale)?;
                }
            }
            Self::NonPrivate { .. } => {}
        }
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccountantKind, Adjacency, Delta, SamplingRate};

    /// Every kind of event costs less with more noise, and what is known exactly costs what it should.
    #[test]
    fn noise_is_scaled_wherever_there_is_some() {
        let z = |z: f64| NoiseMultiplier::new(z).unwrap();
        let gaussian = |of: f64| PrivacyEvent::gaussian(Adjacency::ZeroOut, z(of));
        let sampled = |of: f64| PrivacyEvent::poisson(SamplingRate::new(0.1).unwrap(), z(of)).times(20);
        let skellam = PrivacyEvent::Skellam {
            adjacency: Adjacency::ZeroOut,
            variance: 1e6,
            l1_sensitivity: 1000.0,
            l2_sensitivity: 500.0,
        };
        let bare = |rho: f64| PrivacyEvent::Zcdp { adjacency: Adjacency::ZeroOut, rho: Rho::new(rho).unwrap() };
        for (event, doubled) in [(gaussian(1.5), gaussian(3.0)), (sampled(1.0), sampled(2.0)), (bare(0.4), bare(0.1))] {
            let composed = PrivacyEvent::Compose { events: vec![event.clone(), event] };
            let want = PrivacyEvent::Compose { events: vec![doubled.clone(), doubled] };
            assert_eq!(composed.with_noise_times(2.0).unwrap(), want);
        }
        let delta = Delta::new(1e-5).unwrap();
        let cost = |event: &PrivacyEvent| AccountantKind::Best.judge(event, delta).unwrap().epsilon.get();
        assert!(cost(&skellam.with_noise_times(2.0).unwrap()) < 0.6 * cost(&skellam));
        let none = PrivacyEvent::NonPrivate { what: "all".into() };
        assert_eq!(none.with_noise_times(3.0).unwrap(), none);
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!([gaussian(1.0), skellam.clone(), bare(0.4)].iter().all(|e| e.with_noise_times(scale).is_err()));
        }
    }
}
