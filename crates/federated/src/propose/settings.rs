//! Settings of a proposal, and settings to begin with.

use privacy::{Delta, Epsilon};

use super::{Ask, Candidate, ProposeError, propose};
use crate::config::{
    Clip, ClipKind, Config, ConfigError, MechanismKind, Participants, ParticipationKind, Privacy, first_run,
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
    let config = settings(&ask, &propose(&ask)?.chosen)?;
    Ok(Config { privacy: Privacy { max_epsilon: None, ..config.privacy }, ..config })
}

/// The settings of a proposal; what it does not say is that of the first run.
///
/// # Errors
/// Never, but for a mistake in the settings of the first run.
pub fn settings(ask: &Ask, chosen: &Candidate) -> Result<Config, ConfigError> {
    let mut config = Config { rounds: ask.rounds, noise_seed: None, ..first_run()? };
    let sampled = chosen.mechanism == MechanismKind::Gaussian;
    config.participation = Participants {
        kind: if sampled { ParticipationKind::Poisson } else { ParticipationKind::Arrival },
        population: ask.population,
        cohort: chosen.cohort,
        min_separation: chosen.min_separation,
        max_participations: chosen.max_participations,
        vanish: None,
        allow_absent: false,
    };
    // Andrew et al. clip to the median; Xu et al. fix the clip for the final run, which correlated noise asks for.
    if sampled && chosen.noise_ratio <= ADAPTIVE_UNTIL {
        config.clip = Clip { kind: ClipKind::ADAPTIVE, norm: Some(0.1), quantile: Some(0.5), ..config.clip };
    }
    config.privacy.mechanism = chosen.mechanism;
    config.privacy.noise_multiplier = Some(chosen.noise_multiplier);
    config.privacy.delta = Some(ask.delta.get());
    config.privacy.max_epsilon = Some(ask.epsilon.get());
    if let Some((of, size)) = chosen.size() {
        config.privacy.set_size(of, Some(size));
    }
    Ok(config)
}
