//! Refuses contradictory settings by key, and warns about unwise ones.
//!
//! Each section is checked by its type ([`crate::config`]). These checks are about several sections.

use ledger::Unit;
use privacy::{Participation, audit::one_run::FEWEST_CANARIES};

use super::phases::Phase;
use crate::{
    config::{
        CLIP_RULES, Config, ConfigError, Crowd, Data, EstimatorKind, FineTune, LocalAlgorithm, Mask, Mechanism,
        ModelStart, NoisePlace, ParticipationKind, Sparse, Upload,
    },
    numbers::counted,
    protocol::limits::NotEnforceable,
};

/// Rounds of a run at most: what the accountants and factorisations are tested to.
const MOST_ROUNDS: u64 = 10_000_000;

/// Refuses keys that contradict each other.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    counts(config)?;
    data(config)?;
    local(config)?;
    upload(config)?;
    participation(config)?;
    estimator(config)?;
    clip(config)?;
    mechanism(config)?;
    schedule(config)?;
    stands_for(config)?;
    aggregation(config)?;
    audit(config)?;
    stops(config)
}

fn refuse(key: &str, problem: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::new(key, problem.into()))
}

/// Refuses a key that is set but only has a meaning together with something else.
fn only_with(there: bool, key: &str, with: &str) -> Result<(), ConfigError> {
    if there { refuse(key, format!("only valid with {with}")) } else { Ok(()) }
}

/// Refuses a meaningless learning rate of the server.
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
        return refuse("floating_point_noise", "is only valid in simulations: set noise_seed too");
    }
    let devices = config.data.is_on_devices();
    match config.unit {
        Unit::Device if !devices => refuse("unit", "must be \"user\" or \"example\" in a simulation"),
        Unit::User | Unit::Example if devices => refuse(
            "unit",
            "must be \"device\" with data.kind = \"devices\": a server knows the keys of devices, not people. To protect a person with several devices, set privacy.group",
        ),
        _ => Ok(()),
    }
}

fn data(config: &Config) -> Result<(), ConfigError> {
    let absent = config.participation.allows_absent();
    match &config.data {
        Data::Devices(_) => {
            device_windows(config)?;
            if config.participation.kind.is_sampled() {
                return refuse("participation.kind", NotEnforceable.to_string());
            }
            Ok(())
        }
        Data::Synthetic(Crowd { users, .. }) => match (config.unit, users) {
            (Unit::Example, None) => refuse(
                "data.users",
                "is missing: with unit = \"example\", give the number of people who wrote the posts",
            ),
            (Unit::Example, Some(0)) => refuse("data.users", "must be at least 1"),
            (Unit::Example, Some(_)) => Ok(()),
            (_, users) => {
                let units = "unit = \"example\"; otherwise participation.population is the number of users";
                only_with(users.is_some(), "data.users", units)?;
                let store = "data.kind = \"store\": synthetic users are never absent";
                only_with(absent, "participation.allow_absent", store)
            }
        },
        Data::Store(_) => {
            let own = "synthetic users or devices: a store has its own vocabulary";
            only_with(config.model.new_model().vocabulary.is_some(), "model.vocabulary", own)
        }
    }
}

/// A week is longer than any round lasts, and a millisecond shorter than any message.
fn device_windows(config: &Config) -> Result<(), ConfigError> {
    let devices = config.data.devices().cloned().unwrap_or_default();
    let all = [
        ("devices.select_seconds", devices.select_seconds),
        ("devices.report_seconds", devices.report_seconds),
        ("devices.answer_seconds", devices.answer_seconds),
        ("devices.tick_seconds", devices.tick_seconds),
    ];
    match all.into_iter().find(|(_, seconds)| !(0.001..=604_800.0).contains(seconds)) {
        Some((key, _)) => refuse(key, "must be from 0.001 seconds to a week"),
        None if devices.tick_seconds > devices.report_seconds => {
            refuse("devices.tick_seconds", "must be at most report_seconds: reports are sent at ticks")
        }
        None if devices.timer_hours.is_some_and(|hours| !(hours > 0.0 && hours <= 8784.0)) => {
            refuse("devices.timer_hours", "must be above 0 and at most a year, 8784 hours; leave it out for no timer")
        }
        None => Ok(()),
    }
}

fn local(config: &Config) -> Result<(), ConfigError> {
    let one_step = matches!(config.local.algorithm, LocalAlgorithm::FedsgdBatch | LocalAlgorithm::FedsgdAll);
    let steps = "local.algorithm = \"fedavg\": FedSGD takes one step";
    only_with(config.clip.greedy && one_step, "clip.greedy", steps)
}

fn participation(config: &Config) -> Result<(), ConfigError> {
    let from = &config.participation;
    if from.population == 0 || from.population > 1 << 53 {
        return refuse("participation.population", "must be from 1 to 2^53");
    }
    if !(0.0..1.0).contains(&from.vanish()) {
        return refuse("participation.vanish", "must be at least 0 and below 1");
    }
    Ok(())
}

/// Rules P10 and P11.
fn estimator(config: &Config) -> Result<(), ConfigError> {
    let estimator = &config.estimator;
    let sampled = config.participation.kind.is_sampled();
    let (total_weight, least_total_weight) = match estimator.kind {
        EstimatorKind::Fixed { total_weight } => (total_weight, None),
        EstimatorKind::Clipped { least_total_weight } => (None, least_total_weight),
        EstimatorKind::Average => (None, None),
    };
    for (key, given) in [
        ("estimator.full_weight_tokens", estimator.full_weight_tokens),
        ("estimator.total_weight", total_weight),
        ("estimator.least_total_weight", least_total_weight),
    ] {
        if given.is_some_and(|w| !(w.is_finite() && w > 0.0)) {
            return refuse(key, "must be finite and above 0");
        }
    }
    let most = config.participation.population as f64;
    if total_weight.or(least_total_weight).is_some_and(|w| w > most) {
        return refuse(
            "estimator",
            format!(
                "weights are at most 1, so the total weight of {} is at most {most}",
                counted(config.participation.population, "user")
            ),
        );
    }
    match estimator.kind {
        EstimatorKind::Fixed { .. } => {
            let drawn = "participation.kind = \"poisson\" or \"fixed-size\": without sampling, sums are divided by the report goal";
            only_with(!sampled && total_weight.is_some(), "estimator.total_weight", drawn)
        }
        EstimatorKind::Clipped { .. } => {
            if !sampled {
                return refuse("estimator.kind", "\"clipped\" is only valid with poisson or fixed-size sampling");
            }
            if config.privacy.correlated().is_some() {
                let why = "\"clipped\" is only valid with mechanism = \"gaussian\": correlated noise adds up sums, not quotients";
                return refuse("estimator.kind", why);
            }
            if estimator.full_weight_tokens.is_some() && least_total_weight.is_none() {
                return refuse("estimator.least_total_weight", "is missing: W_min is declared, not measured");
            }
            Ok(())
        }
        EstimatorKind::Average if !config.privacy.is_none() => refuse(
            "estimator.kind",
            "\"average\" is only valid with mechanism = \"none\": its sensitivity has no bound",
        ),
        EstimatorKind::Average => Ok(()),
    }
}

/// Canaries are users of a population that is large enough for them, and their updates are added up in the clear.
fn audit(config: &Config) -> Result<(), ConfigError> {
    let Some(audit) = &config.audit else { return Ok(()) };
    let (least, population) = (FEWEST_CANARIES as u64, config.participation.population);
    if audit.canaries < least || audit.canaries > population / 2 {
        let most = population / 2;
        let got = audit.canaries;
        return refuse(
            "audit.canaries",
            format!("must be from {least} to half of participation.population ({most}), got {got}"),
        );
    }
    if !(audit.confidence > 0.5 && audit.confidence < 1.0) {
        return refuse("audit.confidence", format!("must be above 0.5 and below 1, got {}", audit.confidence));
    }
    if config.unit != Unit::User {
        return refuse("audit", "only valid with unit = \"user\": a canary is a user");
    }
    if config.aggregation.is_secure() {
        return refuse("audit", "only valid with aggregation = \"plain\"");
    }
    Ok(())
}

/// Rule P9.
fn clip(config: &Config) -> Result<(), ConfigError> {
    let counts = config.clip.following().is_some_and(|adaptive| adaptive.count_stddev.is_some());
    only_with(counts && config.privacy.is_none(), "clip.count_stddev", "noise: privacy.mechanism is \"none\"")
}

/// Rules P5 to P7.
fn mechanism(config: &Config) -> Result<(), ConfigError> {
    let Some(correlated) = config.privacy.correlated() else { return Ok(()) };
    if config.participation.kind.is_sampled() {
        let why = "correlated noise needs a minimum distance between a user's participations, which sampling does not give: use participation.kind = \"arrival\" or \"once\"";
        return refuse("privacy.mechanism", why);
    }
    let mut before = 0;
    for restart in &correlated.restarts {
        if *restart <= before || *restart >= config.rounds {
            return refuse("privacy.restarts", "must increase, above 0 and below rounds");
        }
        before = *restart;
    }
    Ok(())
}

/// How often text is read may change where a step is taken for every batch, and where somebody tells the devices.
fn epochs(config: &Config, said: Option<u32>, key: &str) -> Result<(), ConfigError> {
    let Some(epochs) = said else { return Ok(()) };
    if !matches!(config.local.algorithm, LocalAlgorithm::Fedavg { .. }) {
        return only_with(true, key, "local.algorithm = \"fedavg\": FedSGD takes one step");
    }
    if config.data.is_on_devices() {
        return refuse(
            key,
            "only valid in a simulation: real devices read their text local.epochs times in every round",
        );
    }
    if epochs == 0 || epochs > 1 << 24 { refuse(key, "must be from 1 to 2^24") } else { Ok(()) }
}

/// What leaves devices in parts, or as floats.
fn upload(config: &Config) -> Result<(), ConfigError> {
    let Some(said) = config.upload.filter(|said| *said != Upload::Grid) else { return Ok(()) };
    match said {
        Upload::Grid => Ok(()),
        Upload::Dense if config.data.is_on_devices() => {
            let why = "must be \"grid\", \"sparse\" or \"mask\" with data.kind = \"devices\": real devices send integers, never floats, which are simulated";
            refuse("upload.kind", why)
        }
        Upload::Dense => dense(config),
        Upload::Sparse(sparse) => sparse_upload(config, &sparse),
        Upload::Mask(mask) => mask_upload(config, &mask),
    }
}

fn dense(config: &Config) -> Result<(), ConfigError> {
    if config.aggregation.is_secure() {
        let why =
            "\"dense\" is only valid with aggregation = \"plain\": floats cannot be masked; use upload.kind = \"grid\"";
        return refuse("upload.kind", why);
    }
    only_with(config.privacy.rotation, "privacy.rotation", "integers: upload.kind is \"dense\"")
}

fn share(share: f64) -> Result<(), ConfigError> {
    if share > 0.0 && share < 1.0 {
        return Ok(());
    }
    refuse("upload.share", format!("must be above 0 and below 1, got {share}: 0.001 is a thousandth"))
}

fn sparse_upload(config: &Config, sparse: &Sparse) -> Result<(), ConfigError> {
    share(sparse.share)?;
    if !(0.0..1.0).contains(&sparse.momentum) {
        return refuse("upload.momentum", format!("must be at least 0 and below 1, got {}", sparse.momentum));
    }
    if sparse.local_clip.is_some_and(|clip| !(clip.is_finite() && clip > 0.0)) {
        return refuse("upload.local_clip", "must be finite and above 0: leave it out for none");
    }
    if sparse.warm_up > config.rounds {
        return refuse("upload.warm_up", format!("must be at most the number of rounds, {}", config.rounds));
    }
    if config.aggregation.is_secure() {
        let why = "\"sparse\" is only valid with aggregation = \"plain\": which coordinates a device sends depends on its text, and the server would see it; use upload.kind = \"mask\", which is the same for all devices";
        return refuse("upload.kind", why);
    }
    let rotation = "upload.kind = \"grid\" or \"mask\": a rotated update has no few large coordinates";
    only_with(config.privacy.rotation, "privacy.rotation", rotation)?;
    keeps_rest(config)
}

fn mask_upload(config: &Config, mask: &Mask) -> Result<(), ConfigError> {
    share(mask.share)?;
    if config.privacy.correlated().is_some() {
        let why = "\"mask\" is only valid with mechanism = \"gaussian\" or \"none\": correlated noise subtracts in later rounds the noise it added to the same coordinates, and each round has a different mask";
        return refuse("upload.kind", why);
    }
    if !config.clip.kind().is_of_the_whole() {
        let fit: Vec<String> = CLIP_RULES
            .into_iter()
            .filter(|kind| kind.is_of_the_whole())
            .map(|kind| format!("{:?}", kind.name()))
            .collect();
        let fit = fit.join(" or ");
        return refuse(
            "clip.kind",
            format!("must be {fit} with upload.kind = \"mask\": a part of an update has no layers"),
        );
    }
    if mask.keep_rest && config.aggregation.is_secure() {
        let why = "only valid with aggregation = \"plain\": a device of a secure sum does not learn whether its update was in it, so it cannot know what it still has to send";
        return refuse("upload.keep_rest", why);
    }
    if mask.keep_rest { keeps_rest(config) } else { greedy(config) }
}

/// The clip bit of greedy clipping says that no local step was shortened, and says nothing of what was kept or left out.
fn greedy(config: &Config) -> Result<(), ConfigError> {
    only_with(config.clip.greedy, "clip.greedy", "upload.kind = \"grid\" or \"dense\"")
}

/// Where a user's update depends on earlier rounds ([`device::upload`]).
fn keeps_rest(config: &Config) -> Result<(), ConfigError> {
    greedy(config)?;
    if config.noise_seed.is_none() && !config.data.is_on_devices() {
        let why = "is missing: what simulated users keep must be recomputed after a crash, so their noise must be repeatable, that of a simulation; set a noise_seed (rules P20 and P21 of docs/PRIVACY.md)";
        return refuse("noise_seed", why);
    }
    match config.participation.kind {
        ParticipationKind::FixedSize if !config.privacy.is_none() => refuse(
            "participation.kind",
            "must be \"poisson\" or \"arrival\" where devices keep what they do not send: with samples of a fixed size, what a user sends would depend on who else was drawn before, and no accountant covers that",
        ),
        ParticipationKind::Once => refuse(
            "participation.kind",
            "\"once\" leaves no later round for what devices keep: use upload.kind = \"mask\" without keep_rest",
        ),
        ParticipationKind::Arrival { max_participations: 1, .. } => refuse(
            "participation.max_participations",
            "of 1 leaves no later round for what devices keep: use upload.kind = \"mask\" without keep_rest",
        ),
        _ => Ok(()),
    }
}

/// Rule P7: within a segment of correlated noise nothing changes.
fn schedule(config: &Config) -> Result<(), ConfigError> {
    let correlated = config.privacy.correlated().is_some();
    let mut before = 0;
    for (number, change) in config.schedule.iter().enumerate() {
        let key = |field: &str| format!("schedule.{number}.{field}");
        if change.from <= before || change.from >= config.rounds {
            return refuse(&key("from"), "must increase, above 0 and below rounds");
        }
        before = change.from;
        only_with(
            change.clip_norm.is_some() && config.clip.is_adaptive(),
            &key("clip_norm"),
            "clip.kind = \"flat\" or \"per-layer\": an adaptive clip moves by itself",
        )?;
        only_with(
            change.noise_multiplier.is_some() && config.privacy.is_none(),
            &key("noise_multiplier"),
            "noise: privacy.mechanism is \"none\"",
        )?;
        if !config.participation.kind.is_sampled() && change.cohort.is_some() && !config.privacy.is_none() {
            return refuse(
                &key("cohort"),
                "only valid with poisson or fixed-size sampling, or without noise: otherwise the report goal is constant",
            );
        }
        epochs(config, change.local_epochs, &key("local_epochs"))?;
        if correlated && change.noise_multiplier.is_some() {
            return refuse(&key("noise_multiplier"), "correlated noise has one multiplier for the whole run");
        }
        if correlated && change.clip_norm.is_some() && !config.privacy.restarts().contains(&change.from) {
            let why =
                "with correlated noise the clip norm can only change at restarts: add the round to privacy.restarts";
            return refuse(&key("clip_norm"), why);
        }
    }
    Ok(())
}

/// Rule P16.
fn stands_for(config: &Config) -> Result<(), ConfigError> {
    let Some(large) = &config.stands_for else { return Ok(()) };
    let gaussian = matches!(config.privacy.mechanism, Mechanism::Gaussian(_));
    if !gaussian || !config.participation.kind.is_sampled() {
        return refuse("stands_for", "needs mechanism = \"gaussian\" with poisson or fixed-size sampling");
    }
    if large.cohort < config.participation.cohort || large.cohort > large.population {
        return refuse("stands_for.cohort", "must be at least participation.cohort and at most stands_for.population");
    }
    Ok(())
}

/// Rules P3, P10 and P19.
fn aggregation(config: &Config) -> Result<(), ConfigError> {
    let Some(secagg) = config.aggregation.secagg() else { return Ok(()) };
    if matches!(config.estimator.kind, EstimatorKind::Clipped { .. }) {
        let why = "\"clipped\" needs every update to be covered by its weight, which nobody can check in a secure sum: use estimator.kind = \"fixed\"";
        return refuse("estimator.kind", why);
    }
    if secagg.noise != NoisePlace::Distributed {
        return Ok(());
    }
    match config.privacy.mechanism {
        Mechanism::Gaussian(_) if !config.participation.kind.is_sampled() => Ok(()),
        Mechanism::Gaussian(_) => refuse(
            "secagg.noise",
            "noise added by devices is accounted for without amplification, so sampling does not help: use participation.kind = \"arrival\" or \"once\"",
        ),
        Mechanism::None { .. } => refuse("secagg.noise", "only valid with noise: privacy.mechanism is \"none\""),
        Mechanism::Correlated(_) => refuse(
            "secagg.noise",
            "correlated noise subtracts in later rounds what it added before, and the devices that added it are gone by then: use privacy.mechanism = \"gaussian\", or secagg.noise = \"central\"",
        ),
    }
}

/// Rule P14: a run that may end early by what was released needs a filter.
fn stops(config: &Config) -> Result<(), ConfigError> {
    let Some(accuracy) = config.evaluation.stop_at_accuracy else { return Ok(()) };
    if !(accuracy > 0.0 && accuracy <= 1.0) {
        return refuse("evaluation.stop_at_accuracy", format!("must be above 0 and at most 1, got {accuracy}"));
    }
    if config.privacy.noise().is_some_and(|noise| noise.max_epsilon.is_none()) {
        let why = "a run that can stop early because of its results needs a privacy filter: set privacy.max_epsilon";
        return refuse("evaluation.stop_at_accuracy", why);
    }
    Ok(())
}

/// What is allowed, but should be known.
pub(super) fn warnings(config: &Config, phases: &[Phase]) -> Vec<String> {
    let mut warnings = Vec::new();
    let keeps = config.finetune.as_ref().is_some_and(|finetune| *finetune != FineTune::Retraining);
    if keeps && matches!(config.model.start, ModelStart::New(_)) {
        warnings.push(
            "the model starts from random parameters, so there is nothing yet that [finetune] could keep it from forgetting: start from a general model (model.from or --from), such as one of keyhush pretrain"
                .into(),
        );
    }
    for change in &config.schedule {
        let rate = change.local_learning_rate.is_some() || change.server_learning_rate.is_some();
        if rate && change.clip_norm.is_none() && !config.clip.is_adaptive() {
            warnings.push(format!(
                "a learning rate changes at round {}, but the clip norm does not: update norms may change, and with them how much is clipped (McMahan et al. 2018, footnote 4)",
                change.from
            ));
        }
    }
    if let Some(large) = &config.stands_for {
        warnings.push(format!(
            "a cohort of {} stands in for one of {}: the epsilon of this run is that of the small cohort and means nothing; projected_epsilon is that of the large one",
            config.participation.cohort, large.cohort
        ));
    }
    let whole = phases.iter().any(|p| matches!(p.participation, Participation::Poisson { rate } if rate.get() > 0.5));
    if whole && !config.privacy.is_none() {
        warnings.push("more than half of the users take part in every round: sampling hardly amplifies privacy".into());
    }
    if let Some(secure) = phases.iter().find_map(|phase| phase.secure.as_ref()).filter(|secure| secure.groups > 1) {
        warnings.push(format!(
            "the server sees the sum of each of {} groups of at most {} devices, not only their total",
            secure.groups, secure.most_clients
        ));
    }
    if config.unit == Unit::Example {
        warnings.push("the unit of privacy is a single post: a person who wrote many posts is protected less".into());
    }
    warnings
}
