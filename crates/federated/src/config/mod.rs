//! What a run is, as a person writes it: TOML, every key known, none of the privacy keys with a default.
//!
//! ```toml
//! rounds = 200
//!
//! [data]
//! kind = "synthetic"
//!
//! [model]
//! preset = "tiny"
//!
//! [local]
//! batch = 8
//! unroll = 10
//! learning_rate = 0.5
//!
//! [participation]
//! kind = "poisson"
//! population = 1_000_000
//! cohort = 500
//!
//! [clip]
//! kind = "flat"
//! norm = 0.8
//!
//! [privacy]
//! mechanism = "gaussian"
//! noise_multiplier = 1.0
//! delta = 1e-7
//!
//! [server]
//! optimizer = "momentum"
//! momentum = 0.9
//! learning_rate = 1.0
//! ```
//!
//! Sections are flat: what a `kind` needs and what has no meaning with it is said by [`crate::plan::Plan::new`], in terms of
//! keys, and [`Document`] knows the line of each key.

mod aggregation;
mod clip_rules;
mod document;
mod explained;
mod mechanism;

use std::path::PathBuf;

use corpus::synth::Dialect;
use ledger::Unit;
use privacy::{AccountantKind, clip::ClipStep};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::{
    aggregation::{AdversaryKind, AggregationKind, NoisePlace, SecAgg},
    clip_rules::{CLIP_RULES, ClipKind},
    document::Document,
    explained::{FIRST_RUN, explained, first_run},
    mechanism::MechanismKind,
};

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// T: rounds.
    pub rounds: u64,
    /// What is protected as one: `user`, or `example`, which is a single post.
    #[serde(default = "user")]
    pub unit: Unit,
    /// From which the first parameters follow; public.
    #[serde(default)]
    pub seed: u64,
    /// From which all other randomness follows, noise included: repeatable, and no guarantee. Without it the noise comes from
    /// a secret key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_seed: Option<u64>,
    /// Floating-point noise instead of exact: faster, for simulations alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub floating_point_noise: bool,
    /// How a round's updates are added up.
    #[serde(default, skip_serializing_if = "AggregationKind::is_plain")]
    pub aggregation: AggregationKind,
    /// Whose text.
    pub data: Data,
    /// Which model.
    pub model: Model,
    /// What users do.
    pub local: Local,
    /// Who takes part.
    pub participation: Participants,
    /// How long devices have, where there are some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Devices>,
    /// What secure aggregation is to withstand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secagg: Option<SecAgg>,
    /// What the sum is divided by.
    #[serde(default)]
    pub estimator: Estimator,
    /// How updates are bounded.
    pub clip: Clip,
    /// What is added to them.
    pub privacy: Privacy,
    /// What the server does with the average.
    pub server: Server,
    /// What changes in the midst of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<Change>,
    /// The large cohort for which a small one stands (rule P16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<StandsFor>,
    /// When accuracy is measured.
    #[serde(default)]
    pub evaluation: Evaluation,
    /// When the state is kept.
    #[serde(default)]
    pub checkpoint: Checkpoint,
}

const fn user() -> Unit {
    Unit::User
}

/// Whose text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// A crowd that is made up, or a store.
    pub kind: DataKind,
    /// Of a crowd: from which it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Of a crowd: how it speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// Of a crowd whose posts are the units: how many people there are; otherwise that is the population.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<u64>,
    /// Of a crowd: posts of a user, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posts_per_user: Option<u32>,
    /// Of devices: a file of public text, a post a line, that models are measured on; made-up people if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_text: Option<PathBuf>,
    /// Of a store: its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Of a store: so many users of a thousand are held out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out_per_mille: Option<u32>,
    /// Of a store: the salt of who is held out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<u64>,
}

/// Where users come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataKind {
    /// Made on demand.
    Synthetic,
    /// `keyhush data import`.
    Store,
    /// On the devices that enrol with `keyhush serve`; it never leaves them.
    Devices,
}

/// Which model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What is learned: one of [`crate::learners::LEARNERS`]; a language model if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learner: Option<String>,
    /// One of the presets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Entries of the vocabulary, instead of the preset's; a store has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocabulary: Option<usize>,
    /// Units of a layer, instead of the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<usize>,
    /// Size of the embedding, instead of the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<usize>,
    /// Whether the output shares the embedding, instead of the preset's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tied: Option<bool>,
    /// Whether the model reads what is known of a person, where the data has features of users.
    #[serde(default, skip_serializing_if = "is_false")]
    pub user_features: bool,
    /// The folder of a model or of a run to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
    /// Why that model may be taken for public, where it has no ledger (rule P15).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<String>,
}

/// What users do (McMahan et al. 2018, Algorithm 1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// FedAvg or FedSGD.
    #[serde(default)]
    pub algorithm: LocalAlgorithm,
    /// E: readings of the text, of FedAvg; 1 if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// B: sequences in a batch; posts, where tags are learned.
    pub batch: usize,
    /// Tokens of a sequence in a batch, of language models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unroll: Option<usize>,
    /// eta: the step.
    pub learning_rate: f32,
    /// Tokens of a user that are read; all if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_tokens: Option<usize>,
    /// The weight of the squared norm of the update in the loss.
    #[serde(default)]
    pub update_penalty: f32,
}

/// How much a user learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocalAlgorithm {
    /// A step for every batch.
    #[default]
    Fedavg,
    /// One step, along the gradient of one batch.
    FedsgdBatch,
    /// One step, along the gradient of all text.
    FedsgdAll,
}

/// Who takes part. All of it is declared, none of it measured (rule P11).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Participants {
    /// How users come to take part.
    pub kind: ParticipationKind,
    /// N: how many there are.
    pub population: u64,
    /// Users of a round: expected, exact, or the report goal.
    pub cohort: u64,
    /// MinS: rounds strictly between two participations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_separation: Option<u64>,
    /// MaxP: the most participations of one user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_participations: Option<u64>,
    /// The share of a round's users that vanish on the way, in the simulation; none if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vanish: Option<f64>,
    /// Whether more than twice as many users may be declared as the store has: without it such a run is refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_absent: bool,
}

/// How users come to take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParticipationKind {
    /// Each with the same probability, independently.
    Poisson,
    /// Exactly so many, at random.
    FixedSize,
    /// As devices come, never too close together or too often.
    Arrival,
    /// As devices come, each once.
    Once,
}

/// How long devices have (Xu et al. 2023, section 2.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Devices {
    /// A round waits so long for devices before it begins with fewer than it would like, in seconds.
    pub select_seconds: f64,
    /// A device has so long for its report, in seconds.
    pub report_seconds: f64,
    /// A device has so long for each other message of secure aggregation, in seconds.
    pub answer_seconds: f64,
    /// Reports leave devices at whole multiples of this after the assignment, in seconds, so that time does not tell how much was
    /// typed (rule P26).
    pub tick_seconds: f64,
    /// The first round waits until so many devices are enrolled; three times the goal times the minimum distance if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin_with: Option<u64>,
    /// A device rests for so long after its report has left, before it gives another one to the task, in hours; not at all if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_hours: Option<f64>,
}

impl Default for Devices {
    fn default() -> Self {
        Self {
            select_seconds: 60.0,
            report_seconds: 600.0,
            answer_seconds: 60.0,
            tick_seconds: 5.0,
            begin_with: None,
            timer_hours: None,
        }
    }
}

/// What the sum is divided by (McMahan et al. 2018, section 2; rule P10).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimator {
    /// Which.
    #[serde(default)]
    pub kind: EstimatorKind,
    /// w_hat: a user with so many tokens has weight 1, one with fewer a share of it; weight 1 for all if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_weight_tokens: Option<f64>,
    /// W: all weights together, declared; the population where all weights are 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_weight: Option<f64>,
    /// W_min: what all weights together are taken to be at least, for the clipped denominator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_total_weight: Option<f64>,
}

/// What the sum is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EstimatorKind {
    /// The expected weight of a round, q W; under DP-FTRL the report goal.
    #[default]
    Fixed,
    /// The weight of the round, at least q W_min.
    Clipped,
    /// The weight of the round: the baseline, without privacy.
    Average,
}

/// How updates are bounded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clip {
    /// Which rule.
    pub kind: ClipKind,
    /// S: the bound, of `flat` and `per-layer`; C^0 of `adaptive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<f64>,
    /// Whether every local step is brought within the bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub greedy: bool,
    /// gamma of `adaptive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<f64>,
    /// eta_C of `adaptive`; 0.2 if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// sigma_b of `adaptive`; a twentieth of the cohort if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_stddev: Option<f64>,
    /// How it moves; geometrically if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<ClipStep>,
}

/// What is added to the sum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Privacy {
    /// Which noise.
    pub mechanism: MechanismKind,
    /// z: the standard deviation over the sensitivity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// delta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// Who judges.
    #[serde(default = "best")]
    pub accountant: AccountantKind,
    /// How many units are protected together, such as one person's devices.
    #[serde(default = "one")]
    pub group: u32,
    /// The most that the run may cost (rule P14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_epsilon: Option<f64>,
    /// Rounds at which correlated noise begins anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<u64>,
    /// Whether trees are completed with empty rounds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tree_completion: bool,
    /// Bands, where the design counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bands: Option<usize>,
    /// Buffers, where the design counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffers: Option<usize>,
    /// k: the grid step is the clip over 2^k; 20 if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid_bits: Option<u32>,
    /// Whether updates are rotated before they are rounded (Xu et al. 2023, Algorithm 2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rotation: bool,
    /// How updates are rounded to the grid.
    #[serde(default, skip_serializing_if = "RoundingKind::is_nearest")]
    pub rounding: RoundingKind,
}

/// How updates are rounded to the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundingKind {
    /// To the nearest integer: for a fine grid.
    #[default]
    Nearest,
    /// Up or down at random, without bias, until the norm is within its bound: for a coarse grid (Xu et al. 2023,
    /// Algorithm 2).
    Conditional,
}

impl RoundingKind {
    fn is_nearest(&self) -> bool {
        *self == Self::Nearest
    }
}

const fn best() -> AccountantKind {
    AccountantKind::Best
}

const fn one() -> u32 {
    1
}

/// What the server does with the average.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Which optimizer.
    pub optimizer: ServerOptimizer,
    /// eta_s.
    pub learning_rate: f32,
    /// Of `momentum`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f32>,
    /// Of `adam` and `yogi`; 0.9 if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta1: Option<f32>,
    /// Of `adam` and `yogi`; 0.99 if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta2: Option<f32>,
    /// Of the adaptive ones; 0.001 if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau: Option<f32>,
}

/// Which optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerOptimizer {
    /// The average itself.
    Sgd,
    /// As in the papers.
    Momentum,
    /// Reddi et al. 2021.
    Adam,
    /// Reddi et al. 2021.
    Adagrad,
    /// Reddi et al. 2021.
    Yogi,
}

/// From a round on, some things are otherwise; what is not said stays.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The first round, from 0.
    pub from: u64,
    /// S.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// Users of a round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<u64>,
    /// The users' step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_learning_rate: Option<f32>,
    /// The server's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_learning_rate: Option<f32>,
}

/// The large cohort for which a small one stands (McMahan et al. 2018, section 3; rule P16).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandsFor {
    /// Its population.
    pub population: u64,
    /// Its users of a round.
    pub cohort: u64,
}

/// When accuracy is measured, and on how many held-out users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Evaluation {
    /// Rounds between evaluations; there is one before the first round and one after the last.
    pub every: u64,
    /// Held-out users, at most.
    pub users: u64,
    /// Tokens of all of them that are predicted, at most.
    pub most_tokens: usize,
    /// The run ends when this top-1 accuracy is reached; the budget must then be a filter (rule P14).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_at_accuracy: Option<f64>,
    /// Devices measure models too, on their own text, with limits on participation and noise of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceEvaluation>,
}

/// Evaluation by devices: releases of their own, paid for in the run's ledger beside those of training. All of it is declared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceEvaluation {
    /// Rounds between evaluations by devices; there is one after the last round.
    pub every: u64,
    /// The report goal.
    pub cohort: u64,
    /// MinS: evaluations strictly between two of one device.
    pub min_separation: u64,
    /// MaxP: the most evaluations of one device.
    pub max_participations: u64,
    /// z of each evaluation; none with `privacy.mechanism = "none"`, and never missing otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// Tokens of one device that are predicted at most; posts, where tags are learned. It bounds what a device counts.
    pub most_tokens: u64,
}

const fn is_false(said: &bool) -> bool {
    !*said
}

impl EstimatorKind {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Clipped => "clipped",
            Self::Average => "average",
        }
    }
}

impl Default for Evaluation {
    fn default() -> Self {
        Self { every: 10, users: 200, most_tokens: 20_000, stop_at_accuracy: None, devices: None }
    }
}

/// When the state is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoint {
    /// Rounds between checkpoints. A crash loses no release: what the ledger has is applied again.
    pub every: u64,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self { every: 10 }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{key}{}{problem}", place(*line), if key.is_empty() { "" } else { ": " })]
pub struct ConfigError {
    /// The key, with its section; empty where the text as a whole is wrong.
    pub key: String,
    /// The line, where it is known.
    pub line: Option<usize>,
    /// What is wrong, and what to do.
    pub problem: String,
}

fn place(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}

impl ConfigError {
    /// A key that is wrong.
    pub(crate) fn new(key: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self { key: key.into(), line: None, problem: problem.to_string() }
    }
}

impl Config {
    /// Users of a round, as the schedule says.
    #[must_use]
    pub fn cohort(&self, round: u64) -> u64 {
        let changes = self.schedule.iter().take_while(|change| change.from <= round);
        changes.filter_map(|change| change.cohort).last().unwrap_or(self.participation.cohort)
    }

    /// The configuration as TOML, with nothing left out that is not a default.
    ///
    /// # Errors
    /// When a path is not text.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        let paths = [("data.path", &self.data.path), ("model.from", &self.model.from)];
        if let Some((key, path)) = paths.iter().find(|(_, path)| path.as_ref().is_some_and(|p| p.to_str().is_none())) {
            let shown = path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            return Err(ConfigError::new(*key, format!("{shown} is not text (UTF-8): give it a name that is")));
        }
        toml::to_string(self).map_err(|e| ConfigError::new("", format!("the settings cannot be written: {e}")))
    }
}
