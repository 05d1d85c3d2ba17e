//! The plan: derives participation, clip, denominator, noise and privacy event of a run from one place, and fails closed.
//!
//! [`Plan::new`] takes a [`Config`] and either gives everything that the loop, the fleets and the ledger need, or says which
//! key is wrong and why, before any work. What cannot be accounted for cannot be planned: rules P1, P6, P7, P9 to P11 and P14
//! to P16 are refusals here.
//!
//! | module    | what it is                                                             |
//! |-----------|------------------------------------------------------------------------|
//! | `phases`  | releases that are accounted for as one: encoding, noise, mechanism       |
//! | `secure`  | how sums are made securely: how many devices, whose noise                |
//! | `stages`  | what holds from a round on: clip, cohort, learning rates                 |
//! | `upload`  | what leaves a device, and how many bytes that is                         |
//! | `evaluation` | evaluation by devices: limits, bounds and noise of its own            |
//! | `checks`  | what has no meaning together, in terms of keys                           |

mod checks;
mod evaluation;
mod phases;
mod secure;
mod stages;
#[cfg(test)]
mod tests;
mod upload;

use device::{
    finetune::GeneralText,
    learner::Layout,
    local::{Algorithm, LocalPlan, check_learning_rate},
};
use ledger::{self, Aggregation, Budget, DataSource, Head, PublicData, Start};
use privacy::{
    Adjacency, ClipNorm, Delta, Epsilon, NoiseMultiplier, Participation, PrivacyEvent,
    clip::{AdaptiveClipPlan, ClipStep},
    rng::Randomness,
    stages::{ClipRule, ClipRuleError},
};

pub(crate) use self::phases::{GRID_BITS, no_noise};
pub use self::{
    evaluation::{DeviceEvaluations, EVALUATION},
    phases::{BEFORE, Coding, Phase},
    secure::Secure,
    stages::Stage,
    upload::{Sent, UploadPlan},
};
use crate::{
    config::{
        ClipKind, Config, ConfigError, EstimatorKind, Evaluation, LocalAlgorithm, Moments, ParticipationKind,
        ServerOptimizer, StandsFor,
    },
    finetune,
    optimizer::OptimizerKind,
    protocol::windows::Windows,
};

/// Facts that a plan needs about the opened data and models. None of them is measured on users.
#[derive(Debug, Clone)]
pub struct Setting {
    /// How the parameters of the model lie.
    pub parameters: Layout,
    /// The data source.
    pub data: DataSource,
    /// The starting model.
    pub start: Start,
    /// What was released of the users' text before the run, without privacy: a vocabulary that was counted from it.
    pub non_private: Option<String>,
    /// The ledgers of earlier tasks over the same devices, which count for this one.
    pub after: Vec<Head>,
    /// Other data that is taken to be public.
    pub public_data: Vec<PublicData>,
    /// How many numbers a device counts of a model when it measures one; none where devices cannot.
    pub counted: Option<usize>,
    /// What devices rehearse, where the settings say that they do.
    pub general: Option<GeneralText>,
}

/// All that was decided before the first round.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The settings as written: to recognize the run, and for display. The loop and the run only read what is derived from it.
    pub config: Config,
    /// The same as text, with everything resolved: what a run is bound to.
    pub settings: String,
    /// Rounds.
    pub rounds: u64,
    /// How the parameters of the model lie.
    pub parameters: Layout,
    /// What the model is called.
    pub model_name: String,
    /// How users train locally.
    pub local: LocalPlan,
    /// w_hat: a user with at least so many tokens has weight 1; none for weight 1 for all.
    pub full_weight_tokens: Option<f64>,
    /// What of their updates leaves them.
    pub upload: UploadPlan,
    /// What simulated devices do.
    pub devices: Devices,
    /// How long real devices have.
    pub windows: Windows,
    /// How many real devices are enrolled before the first round begins, if somebody said so.
    pub begin_with: Option<u64>,
    /// How long a real device rests after its report, in seconds, if somebody said so.
    pub timer_s: Option<u64>,
    /// The server optimizer.
    pub optimizer: OptimizerKind,
    /// How the clip follows a quantile, if it does.
    pub adaptive: Option<AdaptiveClipPlan>,
    /// What the ledger begins with.
    pub ledger: ledger::Plan,
    /// When and on how much the model is measured.
    pub evaluation: Evaluation,
    /// How devices measure it too, where they do.
    pub device_evaluations: Option<DeviceEvaluations>,
    /// The canaries that audit it, if it has any.
    pub canaries: Option<CanaryPlan>,
    /// Rounds between checkpoints.
    pub checkpoint_every: u64,
    /// What is not wrong, and should be known.
    pub warnings: Vec<String>,
    /// What was released before the run, without privacy.
    pub non_private: Option<String>,
    phases: Vec<Phase>,
    stages: Vec<Stage>,
    clip_rule: ClipKind,
    participation: ParticipationKind,
    stands_for: Option<StandsFor>,
}

/// The behaviour of simulated devices apart from training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Devices {
    /// The share of them that vanish during a round.
    pub vanish: f64,
    /// Those with lower numbers spoil every secure sum that they take part in.
    pub spoilers: u64,
    /// F: devices that were asked in this many failed attempts are no longer asked, if devices come by themselves.
    pub leave_out_after: u64,
}

impl Devices {
    fn new(config: &Config) -> Self {
        let secagg = config.aggregation.secagg().unwrap_or_default();
        let vanish = config.participation.vanish();
        Self { vanish, spoilers: secagg.spoilers, leave_out_after: secagg.leave_out_after }
    }
}

/// Synthetic users whose part in the model shows what it tells of users at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CanaryPlan {
    /// The number of the first of them.
    pub first: u64,
    /// The number after the last: they are the last of the declared users.
    pub end: u64,
    /// The seed of what is random in them.
    pub seed: u64,
    /// The confidence of the bound that they give.
    pub confidence: f64,
}

impl CanaryPlan {
    fn new(config: &Config) -> Option<Self> {
        let audit = config.audit.as_ref()?;
        let end = config.participation.population;
        let first = end.saturating_sub(audit.canaries);
        Some(Self { first, end, seed: config.seed, confidence: audit.confidence })
    }
}

/// Deadlines of devices.
fn windows(config: &Config) -> Windows {
    let devices = config.data.devices().cloned().unwrap_or_default();
    let ms = |seconds: f64| libm::round(seconds * 1000.0) as u64;
    Windows {
        select_ms: ms(devices.select_seconds),
        report_ms: ms(devices.report_seconds),
        answer_ms: ms(devices.answer_seconds),
        tick_ms: ms(devices.tick_seconds) as u32,
    }
}

/// What [`Phase`]s and [`Stage`]s are made from.
struct Draft<'a> {
    config: &'a Config,
    parameters: &'a Layout,
    adjacency: Adjacency,
}

impl Plan {
    /// The plan of a configuration.
    ///
    /// # Errors
    /// The first key that is wrong, or cannot be accounted for together with another.
    pub fn new(config: Config, setting: &Setting) -> Result<Self, ConfigError> {
        checks::check(&config)?;
        let settings = config.to_toml()?;
        let parameters = setting.parameters.clone();
        let local = local(&config, setting)?;
        let optimizer = optimizer(&config)?;
        let adaptive = adaptive(&config)?;
        let draft = Draft { config: &config, parameters: &parameters, adjacency: adjacency(config.participation.kind) };
        let (phases, stages) = stages::split(&draft)?;
        let device_evaluations = DeviceEvaluations::new(&draft, setting.counted)?;
        let ledger = ledger_plan(&draft, &phases, device_evaluations.as_ref(), setting)?;
        ledger.check().map_err(|e| of_ledger(&e))?;
        if device_evaluations.is_some() {
            check_both_are_paid_for(&ledger)?;
        }
        let warnings = checks::warnings(&config, &phases);
        Ok(Self {
            rounds: config.rounds,
            parameters,
            model_name: config.model.new_model().preset.unwrap_or_else(|| "keyhush".into()),
            local,
            full_weight_tokens: config.estimator.full_weight_tokens,
            upload: UploadPlan::new(&config, setting.parameters.len()),
            devices: Devices::new(&config),
            windows: windows(&config),
            begin_with: config.data.devices().and_then(|devices| devices.begin_with),
            // Never shorter than was said.
            timer_s: config.data.devices().and_then(|d| d.timer_hours).map(|hours| libm::ceil(hours * 3600.0) as u64),
            optimizer,
            adaptive,
            ledger,
            evaluation: config.evaluation.clone(),
            device_evaluations,
            canaries: CanaryPlan::new(&config),
            checkpoint_every: config.checkpoint.every,
            warnings,
            non_private: setting.non_private.clone(),
            phases,
            stages,
            clip_rule: config.clip.kind(),
            participation: config.participation.kind,
            stands_for: config.stands_for.clone(),
            settings,
            config,
        })
    }

    /// The adjacency.
    #[must_use]
    pub const fn adjacency(&self) -> Adjacency {
        self.ledger.adjacency
    }

    /// The stage that a round belongs to.
    #[must_use]
    pub fn stage(&self, round: u64) -> &Stage {
        let after = self.stages.partition_point(|s| s.from <= round);
        &self.stages[after.max(1) - 1]
    }

    /// The releases to which a round's belongs.
    #[must_use]
    pub fn phase(&self, round: u64) -> &Phase {
        &self.phases[self.stage(round).phase]
    }

    /// All phases, in the order of their rounds.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// The stages of the schedule.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The origin of the randomness.
    #[must_use]
    pub const fn randomness(&self) -> Randomness {
        self.ledger.randomness
    }

    /// Participations before a round, as planned.
    #[must_use]
    pub fn planned_participations(&self, round: u64) -> u64 {
        let ends = self.stages[1..].iter().map(|s| s.from).chain([self.rounds]);
        self.stages.iter().zip(ends).map(|(s, end)| s.cohort * end.min(round).saturating_sub(s.from)).sum()
    }

    /// How updates are bounded by a clip norm.
    ///
    /// # Errors
    /// When the model has no parameters.
    pub fn rule(&self, clip: ClipNorm) -> Result<ClipRule, ClipRuleError> {
        self.clip_rule.rule(clip, &self.parameters)
    }

    /// The event of all releases before a round, including evaluations by devices, without the starting model.
    ///
    /// # Errors
    /// Never for a plan that was made; the mechanism's check repeats.
    pub fn event(&self, rounds: u64) -> Result<PrivacyEvent, ConfigError> {
        let before = self.non_private.iter().map(|what| PrivacyEvent::NonPrivate { what: what.clone() });
        let mut events: Vec<PrivacyEvent> = before.collect();
        for phase in &self.phases {
            let done = rounds.saturating_sub(phase.first).min(phase.rounds);
            if done > 0 {
                events.push(phase.event(done)?);
            }
        }
        if let Some(evaluations) = &self.device_evaluations
            && let done @ 1.. = evaluations.until(rounds)
        {
            events.push(evaluations.phase.event(done)?);
        }
        Ok(PrivacyEvent::Compose { events })
    }

    /// Their epsilon, by the plan's accountant.
    ///
    /// # Errors
    /// When that accountant cannot judge them.
    pub fn epsilon(&self, rounds: u64) -> Result<Epsilon, ConfigError> {
        let (delta, group) = (self.ledger.delta, self.ledger.group);
        let judged = self.ledger.accountant.judge_group(&self.event(rounds)?, delta, group);
        judged.map(|j| j.epsilon).map_err(|e| ConfigError::new("privacy.accountant", e))
    }

    /// The epsilon of the releases before a round with the large cohort that the small one stands for (rule P16).
    ///
    /// # Errors
    /// When the plan's accountant cannot judge them.
    pub fn projected_epsilon(&self, rounds: u64) -> Result<Option<Epsilon>, ConfigError> {
        let Some(large) = self.projected_event(rounds)? else { return Ok(None) };
        let (delta, group) = (self.ledger.delta, self.ledger.group);
        let judged = self.ledger.accountant.judge_group(&large, delta, group);
        judged.map(|j| Some(j.epsilon)).map_err(|e| ConfigError::new("stands_for", e))
    }

    fn projected_event(&self, rounds: u64) -> Result<Option<PrivacyEvent>, ConfigError> {
        let Some(large) = &self.stands_for else { return Ok(None) };
        let mut events = Vec::new();
        for phase in &self.phases {
            let done = rounds.saturating_sub(phase.first).min(phase.rounds);
            if done == 0 {
                continue;
            }
            let z = phase
                .projected_noise
                .ok_or_else(|| ConfigError::new("stands_for", "needs noise to scale: privacy.mechanism is \"none\""))?;
            let adjacency = self.adjacency();
            let participation = sampled(self.participation, large.population, large.cohort, "stands_for")?;
            let one = PrivacyEvent::SampledGaussian { adjacency, participation, noise: z.into() };
            events.push(one.times(done));
        }
        Ok(Some(PrivacyEvent::Compose { events }))
    }
}

/// Adjacencies by how users come to take part (rule P1): no two of them mix.
const fn adjacency(kind: ParticipationKind) -> Adjacency {
    match kind {
        ParticipationKind::Poisson => Adjacency::AddOrRemove,
        ParticipationKind::FixedSize => Adjacency::ReplaceOne,
        ParticipationKind::Arrival { .. } | ParticipationKind::Once => Adjacency::ZeroOut,
    }
}

fn sampled(
    kind: ParticipationKind,
    population: u64,
    cohort: u64,
    key: &'static str,
) -> Result<Participation, ConfigError> {
    let cohort_key = || format!("{key}.cohort");
    let participation = match kind {
        ParticipationKind::FixedSize => Participation::FixedSize { population, cohort },
        _ => {
            let rate = privacy::SamplingRate::new(cohort as f64 / population as f64)
                .map_err(|e| ConfigError::new(cohort_key(), format!("the sampling rate {}", e.problem())))?;
            Participation::Poisson { rate }
        }
    };
    participation.check().map_err(|e| ConfigError::new(cohort_key(), e))?;
    Ok(participation)
}

fn local(config: &Config, setting: &Setting) -> Result<LocalPlan, ConfigError> {
    let from = &config.local;
    let (algorithm, update_penalty) = match from.algorithm {
        LocalAlgorithm::Fedavg { epochs, update_penalty } => {
            (Algorithm::FedAvg { epochs: epochs.unwrap_or(1) }, update_penalty)
        }
        LocalAlgorithm::FedsgdBatch => (Algorithm::FedSgdBatch, 0.0),
        LocalAlgorithm::FedsgdAll => (Algorithm::FedSgdAll, 0.0),
    };
    let plan = LocalPlan {
        algorithm,
        batch: from.batch,
        // A learner without sequences has batches of single examples.
        unroll: from.unroll.unwrap_or(1),
        most_tokens: from.most_tokens,
        greedy: config.clip.greedy,
        update_penalty,
        finetune: finetune::of(config, setting.general.clone()),
    };
    plan.check().map_err(|e| ConfigError::new(finetune::key(e.field), e))?;
    check_learning_rate(from.learning_rate).map_err(|e| ConfigError::new("local.learning_rate", e))?;
    Ok(plan)
}

fn optimizer(config: &Config) -> Result<OptimizerKind, ConfigError> {
    let from = &config.server;
    let tau = |said: Option<f32>| said.unwrap_or(1e-3);
    let moments = |said: Moments| (said.beta1.unwrap_or(0.9), said.beta2.unwrap_or(0.99), tau(said.tau));
    let kind = match from.optimizer {
        ServerOptimizer::Sgd => OptimizerKind::Sgd,
        ServerOptimizer::Momentum { momentum } => OptimizerKind::Momentum { momentum },
        ServerOptimizer::Adam(said) => {
            let (beta1, beta2, tau) = moments(said);
            OptimizerKind::Adam { beta1, beta2, tau }
        }
        ServerOptimizer::Adagrad { tau: said } => OptimizerKind::Adagrad { tau: tau(said) },
        ServerOptimizer::Yogi(said) => {
            let (beta1, beta2, tau) = moments(said);
            OptimizerKind::Yogi { beta1, beta2, tau }
        }
    };
    kind.check().map_err(|e| ConfigError::new("server", e))?;
    checks::server_rate("server.learning_rate", from.learning_rate)?;
    Ok(kind)
}

/// The clip norms that there can be: parameters are 32-bit numbers, and noise is many clip norms long.
const CLIP_NORMS: std::ops::RangeInclusive<f64> = 1e-9..=1e9;

fn clip_norm(key: &str, norm: f64) -> Result<ClipNorm, ConfigError> {
    if norm.is_finite() && norm > 0.0 && !CLIP_NORMS.contains(&norm) {
        let why = format!(
            "must be from {:e} to {:e}, got {norm:e}; it bounds how far one user moves the model, and is usually between 0.1 and 10",
            CLIP_NORMS.start(),
            CLIP_NORMS.end()
        );
        return Err(ConfigError::new(key, why));
    }
    ClipNorm::new(norm).map_err(|e| ConfigError::new(key, e.problem()))
}

fn noise_multiplier(key: &str, z: f64) -> Result<NoiseMultiplier, ConfigError> {
    NoiseMultiplier::new(z).map_err(|e| ConfigError::new(key, e.problem()))
}

/// How the clip follows a quantile, in the first stage; m follows the cohort.
fn adaptive(config: &Config) -> Result<Option<AdaptiveClipPlan>, ConfigError> {
    let Some(following) = config.clip.following() else { return Ok(None) };
    let plan = AdaptiveClipPlan {
        quantile: following.quantile,
        learning_rate: following.learning_rate.unwrap_or(0.2),
        initial: clip_norm("clip.norm", config.clip.norm)?,
        step: following.step.unwrap_or(ClipStep::Geometric),
        planned_users: config.participation.cohort as f64,
    };
    let key = |field: &str| if field == "initial" { "clip.norm".to_owned() } else { format!("clip.{field}") };
    plan.check().map_err(|e| ConfigError::new(key(e.field), e))?;
    Ok(Some(plan))
}

/// The first entry of the run's ledger (rules P11, P14, P15 and P17).
fn ledger_plan(
    draft: &Draft<'_>,
    phases: &[Phase],
    evaluations: Option<&DeviceEvaluations>,
    setting: &Setting,
) -> Result<ledger::Plan, ConfigError> {
    let Draft { config, adjacency, .. } = *draft;
    let population = config.participation.population;
    let delta = delta(config)?;
    let randomness = match (config.noise_seed, config.floating_point_noise) {
        (None, _) => Randomness::Secret,
        (Some(seed), false) => Randomness::Simulated { seed },
        (Some(seed), true) => Randomness::SimulatedFloatingPoint { seed },
    };
    let mut ledger_phases: Vec<ledger::Phase> = Vec::new();
    if let Some(what) = &setting.non_private {
        ledger_phases.push(phases::released_before(what));
    }
    for phase in phases {
        ledger_phases.push(phase.of_ledger(config)?);
    }
    if let Some(evaluations) = evaluations {
        ledger_phases.push(evaluations.of_ledger()?);
    }
    Ok(ledger::Plan {
        software: crate::SOFTWARE.to_owned(),
        data: setting.data.clone(),
        unit: config.unit,
        adjacency,
        population,
        delta,
        phases: ledger_phases,
        participation_kept_by: kept_by(config).to_owned(),
        accountant: config.privacy.accountant,
        group: config.privacy.group,
        budget: budget(config, delta)?,
        start: setting.start.clone(),
        after: setting.after.clone(),
        public_data: setting.public_data.clone(),
        randomness,
        aggregation: aggregation(config, phases),
    })
}

/// Who sees to it that nobody takes part too often.
fn kept_by(config: &Config) -> &'static str {
    match config.data.is_on_devices() {
        true => {
            "the server, by the key of each device, and each device for itself; a person with several devices, or one who enrols again, is counted for each key, and a later key waits the minimum separation"
        }
        false => "the program that simulates the devices, which draws every cohort itself",
    }
}

/// Who sees what. In a simulation one program sees everything; what is said of the sum is what the protocol makes of it.
fn aggregation(config: &Config, phases: &[Phase]) -> Aggregation {
    let devices = config.data.is_on_devices();
    let who = match (devices, UploadPlan::new(config, 1).shows_places()) {
        (true, false) => "the server, in memory, until each is added",
        (true, true) => {
            "the server, in memory, until each is added; it also sees in the clear which coordinates each device sends, which depends on the text on the device, so it must be trusted with them as with the updates themselves: only the noised sum of all coordinates is released"
        }
        (false, false) => "the program that simulates the devices",
        (false, true) => {
            "the program that simulates the devices; a server would also see in the clear which coordinates each device sends, which depends on its text, so it must be trusted as with the updates themselves: only the noised sum of all coordinates is released"
        }
    };
    match phases.iter().find_map(|p| p.secure.as_ref()) {
        None => Aggregation::Plain { sees_updates: who.to_owned() },
        Some(secure) => Aggregation::Secure {
            protocol: secure.words(devices),
            sees_updates: (!devices).then(|| who.to_owned()),
            sees_sum: secure.noise.is_none().then(|| sees_sum(secure.groups)),
        },
    }
}

/// Who sees a sum before noise is added, and which.
fn sees_sum(groups: u32) -> String {
    match groups {
        1 => "the server, which adds the noise".to_owned(),
        _ => {
            format!("the server, which adds the noise and sees the sum of each of its {groups} groups, not only of all")
        }
    }
}

fn delta(config: &Config) -> Result<Delta, ConfigError> {
    // With an infinite epsilon it means nothing, but a ledger has one, below 1/population.
    let said = config.privacy.delta().unwrap_or_else(|| 0.5 / config.participation.population as f64);
    Delta::new(said).map_err(|e| ConfigError::new("privacy.delta", e.problem()))
}

/// The budget: of a plan that is fixed in advance, or a filter where the run may end early by what was released (rule P14).
fn budget(config: &Config, delta: Delta) -> Result<Option<Budget>, ConfigError> {
    let Some(max) = config.privacy.max_epsilon() else { return Ok(None) };
    let wrong = |problem: String| ConfigError::new("privacy.max_epsilon", problem);
    let max_epsilon = Epsilon::new(max).map_err(|e| wrong(e.problem()))?;
    if config.evaluation.stop_at_accuracy.is_none() {
        return Ok(Some(Budget::Fixed { max_epsilon }));
    }
    Budget::zcdp_filter(max_epsilon, delta, config.privacy.group).map(Some).map_err(|e| wrong(e.to_string()))
}

/// A budget pays for rounds and evaluations alike. A plan of rounds may cost more than its budget, and then ends early; one with evaluations
/// may not, for it would end without the model that they are to measure.
fn check_both_are_paid_for(ledger: &ledger::Plan) -> Result<(), ConfigError> {
    let Some(budget) = ledger.budget else { return Ok(()) };
    let judged = ledger.accountant.judge_group(&ledger.event(), ledger.delta, ledger.group);
    let cost = judged.map_err(|e| ConfigError::new("privacy.accountant", e))?.epsilon;
    if cost <= budget.max_epsilon() {
        return Ok(());
    }
    let why = format!(
        "rounds and evaluations together would cost an epsilon of {cost}, above privacy.max_epsilon = {}: raise evaluation.devices.noise_multiplier or privacy.noise_multiplier, or evaluate less often",
        budget.max_epsilon()
    );
    Err(ConfigError::new("evaluation.devices", why))
}

/// What the ledger refuses, in terms of keys.
fn of_ledger(error: &ledger::LedgerError) -> ConfigError {
    let ledger::LedgerError::Plan { field, problem } = error else { return ConfigError::new("privacy", error) };
    let key = match *field {
        "population" => "participation.population",
        "delta" => "privacy.delta",
        "group" => "privacy.group",
        "max_epsilon" | "budget" | "max_rho" => "privacy.max_epsilon",
        "start" | "public_data" => "model.from",
        "participation" => "participation",
        _ => "privacy",
    };
    ConfigError::new(key, problem)
}

/// Whether what is divided by is known before the round.
const fn divides_by_weight(kind: EstimatorKind) -> bool {
    matches!(kind, EstimatorKind::Clipped { .. } | EstimatorKind::Average)
}
