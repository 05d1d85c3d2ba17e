//! What has no meaning together, in terms of keys; and what is worth a warning.

use crate::protocol::limits::NotEnforceable;
use ledger::Unit;
use privacy::{Participation, design::SizeOf};

use super::phases::Phase;
use crate::config::{
    AggregationKind, Config, ConfigError, DataKind, EstimatorKind, LocalAlgorithm, MechanismKind, NoisePlace,
    ParticipationKind, ServerOptimizer,
};

/// Rounds of a run at most: what the accountants and factorisations are tested to.
const MOST_ROUNDS: u64 = 10_000_000;

/// Refuses keys that contradict each other.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    counts(config)?;
    data(config)?;
    local(config)?;
    participation(config)?;
    estimator(config)?;
    clip(config)?;
    mechanism(config)?;
    schedule(config)?;
    stands_for(config)?;
    aggregation(config)?;
    stops(config)
}

fn refuse(key: &str, problem: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::new(key, problem.into()))
}

/// Refuses what is there and has no meaning.
fn unused(there: bool, key: &str, with: &str) -> Result<(), ConfigError> {
    if there { refuse(key, format!("does not go with {with}")) } else { Ok(()) }
}

/// Refuses a server's step without meaning.
pub(super) fn server_rate(key: &str, rate: f32) -> Result<(), ConfigError> {
    if rate.is_finite() && rate > 0.0 {
        return Ok(());
    }
    refuse(key, format!("must be finite and above 0, got {rate}"))
}

fn counts(config: &Config) -> Result<(), ConfigError> {
    if !(1..=MOST_ROUNDS).contains(&config.rounds) {
        return refuse("rounds", format!("must be from 1 to {MOST_ROUNDS}, got {}", config.rounds));
    }
    for (key, got) in [("evaluation.every", config.evaluation.every), ("checkpoint.every", config.checkpoint.every)] {
        if got == 0 {
            return refuse(key, "must be at least 1");
        }
    }
    if config.evaluation.users == 0 || config.evaluation.most_tokens == 0 {
        return refuse("evaluation", "users and most_tokens must be at least 1");
    }
    if config.floating_point_noise && config.noise_seed.is_none() {
        return refuse("floating_point_noise", "is for simulations: give noise_seed too");
    }
    let devices = config.data.kind == DataKind::Devices;
    match config.unit {
        Unit::Device if !devices => refuse("unit", "must be \"user\" or \"example\" in a simulation"),
        Unit::User | Unit::Example if devices => refuse(
            "unit",
            "must be \"device\" with data.kind = \"devices\": a server knows keys of devices, not people. privacy.group protects a person with several",
        ),
        _ => Ok(()),
    }
}

fn data(config: &Config) -> Result<(), ConfigError> {
    let data = &config.data;
    match data.kind {
        DataKind::Devices => {
            let with = "kind = \"devices\"";
            unused(data.path.is_some(), "data.path", with)?;
            unused(data.held_out_per_mille.is_some(), "data.held_out_per_mille", with)?;
            unused(data.salt.is_some(), "data.salt", with)?;
            unused(data.users.is_some(), "data.users", with)?;
            unused(config.participation.vanish.is_some(), "participation.vanish", with)?;
            unused(config.participation.allow_absent, "participation.allow_absent", with)?;
            unused(config.stands_for.is_some(), "stands_for", with)?;
            device_windows(config)?;
            match config.participation.kind {
                ParticipationKind::Arrival | ParticipationKind::Once => Ok(()),
                _ => refuse("participation.kind", NotEnforceable.to_string()),
            }
        }
        DataKind::Synthetic => {
            let with = "kind = \"synthetic\"";
            unused(data.public_text.is_some(), "data.public_text", with)?;
            unused(config.devices.is_some(), "devices", with)?;
            unused(data.path.is_some(), "data.path", with)?;
            unused(data.held_out_per_mille.is_some(), "data.held_out_per_mille", with)?;
            unused(data.salt.is_some(), "data.salt", with)?;
            match (config.unit, data.users) {
                (Unit::Example, None) => {
                    refuse("data.users", "is missing: with unit = \"example\", how many people typed them")
                }
                (Unit::Example, Some(0)) => refuse("data.users", "must be at least 1"),
                (Unit::Example, Some(_)) => Ok(()),
                (_, users) => {
                    unused(users.is_some(), "data.users", "unit = \"user\": there are participation.population")?;
                    let all = "a made-up crowd, in which nobody is absent";
                    unused(config.participation.allow_absent, "participation.allow_absent", all)
                }
            }
        }
        DataKind::Store => {
            if data.path.is_none() {
                return refuse("data.path", "is missing: the store, as `keyhush data import` made it");
            }
            let with = "kind = \"store\"";
            unused(data.public_text.is_some(), "data.public_text", with)?;
            unused(config.devices.is_some(), "devices", with)?;
            unused(data.seed.is_some(), "data.seed", with)?;
            unused(data.dialect.is_some(), "data.dialect", with)?;
            unused(data.posts_per_user.is_some(), "data.posts_per_user", with)?;
            unused(data.users.is_some(), "data.users", with)?;
            unused(config.model.vocabulary.is_some(), "model.vocabulary", "a store, which has its own")
        }
    }
}

/// A week is longer than any round lasts, and a millisecond shorter than any message.
fn device_windows(config: &Config) -> Result<(), ConfigError> {
    let devices = config.devices.clone().unwrap_or_default();
    let all = [
        ("devices.select_seconds", devices.select_seconds),
        ("devices.report_seconds", devices.report_seconds),
        ("devices.answer_seconds", devices.answer_seconds),
        ("devices.tick_seconds", devices.tick_seconds),
    ];
    match all.into_iter().find(|(_, seconds)| !(0.001..=604_800.0).contains(seconds)) {
        Some((key, _)) => refuse(key, "must be from 0.001 seconds to a week"),
        None if devices.tick_seconds > devices.report_seconds => {
            refuse("devices.tick_seconds", "must be at most report_seconds: reports leave at ticks")
        }
        None if devices.timer_hours.is_some_and(|hours| !(hours > 0.0 && hours <= 8784.0)) => {
            refuse("devices.timer_hours", "must be above 0 and at most a year, 8784 hours: leave it out for no timer")
        }
        None => Ok(()),
    }
}

fn local(config: &Config) -> Result<(), ConfigError> {
    let (local, server) = (&config.local, &config.server);
    if local.algorithm != LocalAlgorithm::Fedavg {
        unused(local.epochs.is_some(), "local.epochs", "FedSGD, which takes one step")?;
        unused(local.update_penalty != 0.0, "local.update_penalty", "FedSGD, which starts where it is zero")?;
        unused(config.clip.greedy, "clip.greedy", "FedSGD, which takes one step")?;
    }
    let momentum = server.optimizer == ServerOptimizer::Momentum;
    let adaptive = matches!(server.optimizer, ServerOptimizer::Adam | ServerOptimizer::Adagrad | ServerOptimizer::Yogi);
    let moments = matches!(server.optimizer, ServerOptimizer::Adam | ServerOptimizer::Yogi);
    unused(!momentum && server.momentum.is_some(), "server.momentum", "another optimizer than \"momentum\"")?;
    unused(!moments && server.beta1.is_some(), "server.beta1", "another optimizer than \"adam\" and \"yogi\"")?;
    unused(!moments && server.beta2.is_some(), "server.beta2", "another optimizer than \"adam\" and \"yogi\"")?;
    unused(!adaptive && server.tau.is_some(), "server.tau", "an optimizer that is not adaptive")
}

fn participation(config: &Config) -> Result<(), ConfigError> {
    let from = &config.participation;
    if from.population == 0 || from.population > 1 << 53 {
        return refuse("participation.population", "must be from 1 to 2^53");
    }
    if from.vanish.is_some_and(|share| !(0.0..1.0).contains(&share)) {
        return refuse("participation.vanish", "must be at least 0 and below 1");
    }
    if from.kind != ParticipationKind::Arrival {
        let with = "another kind than \"arrival\"";
        unused(from.min_separation.is_some(), "participation.min_separation", with)?;
        unused(from.max_participations.is_some(), "participation.max_participations", with)?;
    }
    Ok(())
}

const fn is_sampled(kind: ParticipationKind) -> bool {
    matches!(kind, ParticipationKind::Poisson | ParticipationKind::FixedSize)
}

/// Rules P10 and P11.
fn estimator(config: &Config) -> Result<(), ConfigError> {
    let estimator = &config.estimator;
    let sampled = is_sampled(config.participation.kind);
    for (key, given) in [
        ("estimator.full_weight_tokens", estimator.full_weight_tokens),
        ("estimator.total_weight", estimator.total_weight),
        ("estimator.least_total_weight", estimator.least_total_weight),
    ] {
        if given.is_some_and(|w| !(w.is_finite() && w > 0.0)) {
            return refuse(key, "must be finite and above 0");
        }
    }
    let most = config.participation.population as f64;
    if estimator.total_weight.or(estimator.least_total_weight).is_some_and(|w| w > most) {
        return refuse("estimator", format!("weights are at most 1, so {most} users cannot have more than {most}"));
    }
    match estimator.kind {
        EstimatorKind::Fixed => {
            unused(estimator.least_total_weight.is_some(), "estimator.least_total_weight", "kind = \"fixed\"")?;
            let goal = "arrivals, whose denominator is the report goal";
            unused(!sampled && estimator.total_weight.is_some(), "estimator.total_weight", goal)
        }
        EstimatorKind::Clipped => {
            unused(estimator.total_weight.is_some(), "estimator.total_weight", "kind = \"clipped\"")?;
            if !sampled {
                return refuse("estimator.kind", "the clipped denominator needs poisson or fixed-size sampling");
            }
            if !matches!(config.privacy.mechanism, MechanismKind::Gaussian | MechanismKind::None) {
                let why = "the clipped denominator goes with mechanism = \"gaussian\" alone: correlated noise adds up sums, not quotients";
                return refuse("estimator.kind", why);
            }
            if estimator.full_weight_tokens.is_some() && estimator.least_total_weight.is_none() {
                return refuse("estimator.least_total_weight", "is missing: W_min is declared, not measured");
            }
            Ok(())
        }
        EstimatorKind::Average => {
            unused(estimator.total_weight.is_some(), "estimator.total_weight", "kind = \"average\"")?;
            unused(estimator.least_total_weight.is_some(), "estimator.least_total_weight", "kind = \"average\"")?;
            if config.privacy.mechanism != MechanismKind::None {
                let why = "the true average has no bounded sensitivity; it is for mechanism = \"none\"";
                return refuse("estimator.kind", why);
            }
            Ok(())
        }
    }
}

/// Rule P9.
fn clip(config: &Config) -> Result<(), ConfigError> {
    let clip = &config.clip;
    if !clip.kind.is_adaptive() {
        let with = "another kind than \"adaptive\"";
        unused(clip.quantile.is_some(), "clip.quantile", with)?;
        unused(clip.learning_rate.is_some(), "clip.learning_rate", with)?;
        unused(clip.count_stddev.is_some(), "clip.count_stddev", with)?;
        unused(clip.step.is_some(), "clip.step", with)?;
    }
    unused(
        clip.count_stddev.is_some() && config.privacy.mechanism == MechanismKind::None,
        "clip.count_stddev",
        "mechanism = \"none\"",
    )
}

/// Rules P5 to P7.
fn mechanism(config: &Config) -> Result<(), ConfigError> {
    let privacy = &config.privacy;
    let design = privacy.mechanism.design();
    let correlated = design.is_some();
    if correlated && is_sampled(config.participation.kind) {
        let why = "correlated noise is accounted for by how far apart a user's participations are, and sampling promises nothing about that: take participation.kind = \"arrival\" or \"once\"";
        return refuse("privacy.mechanism", why);
    }
    unused(
        privacy.tree_completion && !design.is_some_and(|design| design.completes),
        "privacy.tree_completion",
        "anything but a tree",
    )?;
    let counted = design.and_then(|design| design.size).map(|size| size.of);
    for of in SizeOf::ALL.into_iter().filter(|of| Some(*of) != counted) {
        let with = format!("mechanism = {:?}, which has none", privacy.mechanism.name());
        unused(privacy.size(of).is_some(), &format!("privacy.{}", of.name()), &with)?;
    }
    unused(
        !correlated && !privacy.restarts.is_empty(),
        "privacy.restarts",
        "independent noise, which has nothing to restart",
    )?;
    let mut before = 0;
    for restart in &privacy.restarts {
        if *restart <= before || *restart >= config.rounds {
            return refuse("privacy.restarts", "must rise, from above 0 to below rounds");
        }
        before = *restart;
    }
    unused(
        privacy.max_epsilon.is_some() && privacy.mechanism == MechanismKind::None,
        "privacy.max_epsilon",
        "mechanism = \"none\", which costs infinity",
    )
}

/// Rule P7: within a segment of correlated noise nothing changes.
fn schedule(config: &Config) -> Result<(), ConfigError> {
    let correlated = config.privacy.mechanism.design().is_some();
    let mut before = 0;
    for (number, change) in config.schedule.iter().enumerate() {
        let key = |field: &str| format!("schedule.{number}.{field}");
        if change.from <= before || change.from >= config.rounds {
            return refuse(&key("from"), "must rise, from above 0 to below rounds");
        }
        before = change.from;
        unused(
            change.clip_norm.is_some() && config.clip.kind.is_adaptive(),
            &key("clip_norm"),
            "an adaptive clip, which moves by itself",
        )?;
        unused(
            change.noise_multiplier.is_some() && config.privacy.mechanism == MechanismKind::None,
            &key("noise_multiplier"),
            "mechanism = \"none\"",
        )?;
        if !is_sampled(config.participation.kind) && change.cohort.is_some() {
            return refuse(&key("cohort"), "the report goal of arrivals is a constant of the plan");
        }
        if correlated && change.noise_multiplier.is_some() {
            return refuse(&key("noise_multiplier"), "correlated noise has one multiplier for the whole run");
        }
        if correlated && change.clip_norm.is_some() && !config.privacy.restarts.contains(&change.from) {
            let why = "with correlated noise the clip may change at restarts only: add the round to privacy.restarts";
            return refuse(&key("clip_norm"), why);
        }
    }
    Ok(())
}

/// Rule P16.
fn stands_for(config: &Config) -> Result<(), ConfigError> {
    let Some(large) = &config.stands_for else { return Ok(()) };
    if config.privacy.mechanism != MechanismKind::Gaussian || !is_sampled(config.participation.kind) {
        return refuse("stands_for", "needs mechanism = \"gaussian\" with poisson or fixed-size sampling");
    }
    if large.cohort < config.participation.cohort || large.cohort > large.population {
        return refuse("stands_for.cohort", "must be at least participation.cohort and at most stands_for.population");
    }
    Ok(())
}

/// Rules P3, P10 and P19.
fn aggregation(config: &Config) -> Result<(), ConfigError> {
    if config.aggregation == AggregationKind::Plain {
        return unused(config.secagg.is_some(), "secagg", "aggregation = \"plain\"");
    }
    if config.estimator.kind == EstimatorKind::Clipped {
        let why = "the clipped denominator needs every update to be covered by its weight, which nobody can check in a secure sum: take estimator.kind = \"fixed\"";
        return refuse("estimator.kind", why);
    }
    if config.secagg.as_ref().map(|s| s.noise) != Some(NoisePlace::Distributed) {
        return Ok(());
    }
    match config.privacy.mechanism {
        MechanismKind::Gaussian if !is_sampled(config.participation.kind) => Ok(()),
        MechanismKind::Gaussian => refuse(
            "secagg.noise",
            "noise that devices add is accounted for without amplification, so sampling brings nothing: take participation.kind = \"arrival\" or \"once\"",
        ),
        MechanismKind::None => refuse("secagg.noise", "there is none to add with mechanism = \"none\""),
        MechanismKind::Correlated(_) => refuse(
            "secagg.noise",
            "correlated noise takes off in later rounds what it added before, and the devices that added it are gone by then: take privacy.mechanism = \"gaussian\", or secagg.noise = \"central\"",
        ),
    }
}

/// Rule P14: a run that may end early by what was released needs a filter.
fn stops(config: &Config) -> Result<(), ConfigError> {
    let Some(accuracy) = config.evaluation.stop_at_accuracy else { return Ok(()) };
    if !(accuracy > 0.0 && accuracy <= 1.0) {
        return refuse("evaluation.stop_at_accuracy", format!("must be above 0 and at most 1, got {accuracy}"));
    }
    if config.privacy.mechanism != MechanismKind::None && config.privacy.max_epsilon.is_none() {
        let why = "a run that ends by what was released is accounted for by a filter: give privacy.max_epsilon";
        return refuse("evaluation.stop_at_accuracy", why);
    }
    Ok(())
}

/// What is not wrong, and should be known.
pub(super) fn warnings(config: &Config, phases: &[Phase]) -> Vec<String> {
    let mut warnings = Vec::new();
    for change in &config.schedule {
        let rate = change.local_learning_rate.is_some() || change.server_learning_rate.is_some();
        if rate && change.clip_norm.is_none() && !config.clip.kind.is_adaptive() {
            warnings.push(format!(
                "a learning rate changes at round {} and the clip does not: the norms of the updates may, and with them what is clipped (McMahan et al. 2018, footnote 4)",
                change.from
            ));
        }
    }
    if let Some(large) = &config.stands_for {
        warnings.push(format!(
            "{} users a round stand for {}: the epsilon of this run is that of the small cohort, and vacuous; projected_epsilon is the other",
            config.participation.cohort, large.cohort
        ));
    }
    let whole = phases.iter().any(|p| matches!(p.participation, Participation::Poisson { rate } if rate.get() > 0.5));
    if whole && config.privacy.mechanism != MechanismKind::None {
        warnings
            .push("more than half of the users take part in every round: sampling amplifies next to nothing".into());
    }
    if let Some(secure) = phases.iter().find_map(|phase| phase.secure.as_ref()).filter(|secure| secure.groups > 1) {
        warnings.push(format!(
            "the server sees the sum of each of {} groups of at most {} devices, not only of all",
            secure.groups, secure.most_clients
        ));
    }
    if config.unit == Unit::Example {
        warnings.push("the unit is an example: somebody who typed many posts is protected less".into());
    }
    warnings
}
