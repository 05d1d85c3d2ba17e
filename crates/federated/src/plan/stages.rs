//! The schedule by round: clip, cohort and learning rates.

use privacy::ClipNorm;

use super::{
    Draft, clip_norm,
    phases::{Phase, Span},
};
use crate::config::{Change, Config, ConfigError, EstimatorKind, LocalAlgorithm};

/// Clip, cohort and learning rates from a round on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Its first round.
    pub from: u64,
    /// The bound on an update, where it does not follow a quantile.
    pub clip: ClipNorm,
    /// Users of a round.
    pub cohort: u64,
    /// The users' step.
    pub local_learning_rate: f32,
    /// E: how often users read their text, where that changes in the run.
    pub local_epochs: Option<u32>,
    /// The server's step.
    pub server_learning_rate: f32,
    /// What the released sum is divided by; none where the release says its weight.
    pub denominator: Option<f64>,
    /// The phase to which its releases belong.
    pub phase: usize,
}

/// The stages of a run, and the phases to which they belong.
pub(super) fn split(draft: &Draft<'_>) -> Result<(Vec<Phase>, Vec<Stage>), ConfigError> {
    let config = draft.config;
    let mut stages = vec![first(config)?];
    let mut noise = vec![config.privacy.noise().map(|noise| noise.multiplier)];
    for (number, change) in config.schedule.iter().enumerate() {
        let (stage, z) = after(stages[number], noise[number], change, number)?;
        stages.push(stage);
        noise.push(z);
    }
    let (mut phases, mut spans): (Vec<Phase>, Vec<Span>) = (Vec::new(), Vec::new());
    for number in 0..stages.len() {
        let (stage, z) = (stages[number], noise[number]);
        let end = stages.get(number + 1).map_or(config.rounds, |s| s.from);
        let rounds = end - stage.from;
        match spans.last_mut() {
            Some(span) if span.cohort == stage.cohort && span.noise_multiplier == z => span.rounds += rounds,
            _ => {
                let (first, cohort, clip) = (stage.from, stage.cohort, stage.clip);
                spans.push(Span { first, rounds, cohort, noise_multiplier: z, clip, alone: true });
            }
        }
        stages[number].phase = spans.len() - 1;
        stages[number].denominator = denominator(config, stage.cohort)?;
    }
    let alone = spans.len() == 1;
    for (number, span) in spans.into_iter().enumerate() {
        phases.push(Phase::new(draft, number, Span { alone, ..span })?);
    }
    Ok((phases, stages))
}

fn first(config: &Config) -> Result<Stage, ConfigError> {
    Ok(Stage {
        from: 0,
        clip: clip_norm("clip.norm", config.clip.norm)?,
        cohort: config.participation.cohort,
        local_learning_rate: config.local.learning_rate,
        local_epochs: first_epochs(config),
        server_learning_rate: config.server.learning_rate,
        denominator: None,
        phase: 0,
    })
}

/// Those of the first rounds, where later ones have others.
fn first_epochs(config: &Config) -> Option<u32> {
    let LocalAlgorithm::Fedavg { epochs, .. } = config.local.algorithm else { return None };
    let changes = config.schedule.iter().any(|change| change.local_epochs.is_some());
    changes.then(|| epochs.unwrap_or(1))
}

fn after(before: Stage, z: Option<f64>, change: &Change, number: usize) -> Result<(Stage, Option<f64>), ConfigError> {
    let key = |field: &str| format!("schedule.{number}.{field}");
    let stage = Stage {
        from: change.from,
        clip: change.clip_norm.map(|norm| clip_norm(&key("clip_norm"), norm)).transpose()?.unwrap_or(before.clip),
        cohort: change.cohort.unwrap_or(before.cohort),
        local_learning_rate: change.local_learning_rate.unwrap_or(before.local_learning_rate),
        local_epochs: change.local_epochs.or(before.local_epochs),
        server_learning_rate: change.server_learning_rate.unwrap_or(before.server_learning_rate),
        ..before
    };
    super::check_learning_rate(stage.local_learning_rate)
        .map_err(|e| ConfigError::new(key("local_learning_rate"), e))?;
    super::checks::server_rate(&key("server_learning_rate"), stage.server_learning_rate)?;
    Ok((stage, change.noise_multiplier.or(z)))
}

/// What a sum is divided by: q W, or under DP-FTRL the report goal (rules P10 and P11).
fn denominator(config: &Config, cohort: u64) -> Result<Option<f64>, ConfigError> {
    let (estimator, population) = (&config.estimator, config.participation.population as f64);
    match estimator.kind {
        EstimatorKind::Average => Ok(None),
        EstimatorKind::Clipped { .. } => Ok(Some(1.0)),
        EstimatorKind::Fixed { .. } if !config.participation.kind.is_sampled() => Ok(Some(cohort as f64)),
        EstimatorKind::Fixed { total_weight } => {
            let total = match (total_weight, estimator.full_weight_tokens) {
                (Some(total), _) => total,
                (None, None) => population,
                (None, Some(_)) => {
                    let why =
                        "is missing: with weights, their total over all users must be declared; it is not measured";
                    return Err(ConfigError::new("estimator.total_weight", why));
                }
            };
            Ok(Some(total * cohort as f64 / population))
        }
    }
}
