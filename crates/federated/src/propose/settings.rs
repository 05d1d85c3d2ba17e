//! The settings of a proposal, and settings to start from.

use privacy::{Delta, Epsilon};

use super::{Ask, Candidate, ProposeError, propose};
use crate::config::{
    Clip, Config, ConfigError, CorrelatedNoise, Mechanism, MechanismKind, Noise, Participants, ParticipationKind,
    SimulatedUsers, first_run,
};

/// Noise that is this small a part of the cohort leaves room for the clip bit (Andrew et al. 2021, Theorem 1).
const ADAPTIVE_UNTIL: f64 = 0.03;

/// A small run that learns within minutes, with noise of a kind.
///
/// # Errors
/// When there is no proposal for it.
pub fn beginning(mechanism: MechanismKind) -> Result<Config, ProposeError> {
    let first = Config { noise_seed: None, ..first_run()? };
    if mechanism == MechanismKind::Gaussian {
        return Ok(first);
    }
    let epsilon = Epsilon::new(8.0).map_err(ProposeError::unit("epsilon"))?;
    let ask = Ask {
        delta: Delta::new(1e-6).map_err(ProposeError::unit("delta"))?,
        cohort: Some(first.participation.cohort),
        mechanism: Some(mechanism),
        ..Ask::new(epsilon, 50_000, first.rounds)?
    };
    let mut config = settings(&ask, &propose(&ask)?.chosen)?;
    if let Some(noise) = config.privacy.noise_mut() {
        noise.max_epsilon = None;
    }
    Ok(config)
}

/// The settings of a proposal; what it does not say is that of the first run.
///
/// # Errors
/// Never, but for a mistake in the settings of the first run.
pub fn settings(ask: &Ask, chosen: &Candidate) -> Result<Config, ConfigError> {
    let mut config = Config { rounds: ask.rounds, noise_seed: None, ..first_run()? };
    let noise =
        Noise { multiplier: chosen.noise_multiplier, delta: ask.delta.get(), max_epsilon: Some(ask.epsilon.get()) };
    let limits = (chosen.min_separation.unwrap_or(0), chosen.max_participations.unwrap_or(0));
    let arrival = ParticipationKind::Arrival { min_separation: limits.0, max_participations: limits.1 };
    let (kind, mechanism) = match chosen.mechanism {
        MechanismKind::None => (ParticipationKind::Poisson, Mechanism::None { delta: Some(noise.delta) }),
        MechanismKind::Gaussian => (ParticipationKind::Poisson, Mechanism::Gaussian(noise)),
        MechanismKind::Correlated(design) => {
            let size = chosen.size().map(|(_, size)| size);
            (arrival, Mechanism::Correlated(CorrelatedNoise::new(design, noise, size)))
        }
    };
    config.privacy.mechanism = mechanism;
    config.participation = Participants {
        kind,
        population: ask.population,
        cohort: chosen.cohort,
        simulated: Some(SimulatedUsers::default()),
    };
    // Andrew et al. clip to the median; Xu et al. fix the clip for the final run, which correlated noise asks for.
    if kind.is_sampled() && chosen.noise_ratio <= ADAPTIVE_UNTIL {
        config.clip = Clip::adaptive(0.1, 0.5);
    }
    Ok(config)
}
