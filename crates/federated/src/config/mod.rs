//! The settings of a run: TOML without unknown keys, and without defaults for keys that privacy depends on.
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
//! Each section is a file with a type that holds what its `kind` can use and nothing else, and describes each key once (`keys`).
//! [`crate::plan::Plan::new`] checks sections against each other. [`Document`] knows the line of each key.
//!
//! | module      | what it is                                                          |
//! |-------------|---------------------------------------------------------------------|
//! | `keys`      | how keys are described and visited                                  |
//! | `read`      | reads TOML; errors name the key                                     |
//! | `write`     | writes settings as TOML or JSON                                     |
//! | `explained` | writes settings with every key explained                            |
//! | `nearest`   | what was probably meant by an unknown word                          |
//! | `document`  | the text, the changes of `--set`, and the lines of keys             |
//! | the others  | the sections; `clip_rules`, `learners` and `mechanism` are registries |

mod aggregation;
mod audit;
mod clip;
mod clip_rules;
mod data;
mod devices;
mod document;
mod error;
mod estimator;
mod evaluation;
mod explained;
mod finetune;
mod keys;
pub mod learners;
mod local;
mod mechanism;
mod model;
pub(crate) mod nearest;
mod participation;
mod privacy;
mod read;
mod schedule;
mod server;
#[cfg(test)]
pub(crate) mod tests;
mod upload;
mod write;

use ledger::Unit;
use serde::{Serialize, Serializer};

use self::keys::{ByKind, Head, Section, Usual, Visit, head, key};
pub use self::{
    aggregation::{AdversaryKind, Aggregation, NoisePlace, SecAgg},
    audit::{Audit, CONFIDENCE},
    clip::{Adaptive, Clip},
    clip_rules::{CLIP_RULES, ClipKind},
    data::{Crowd, Data, DeviceText, StoredText},
    devices::Devices,
    document::Document,
    error::ConfigError,
    estimator::{Estimator, EstimatorKind},
    evaluation::{Checkpoint, DeviceEvaluation, Evaluation},
    explained::{FIRST_RUN, explained, first_run},
    finetune::FineTune,
    local::{Local, LocalAlgorithm},
    mechanism::MechanismKind,
    model::{EarlierModel, Model, ModelStart, NewModel},
    participation::{Participants, ParticipationKind, SimulatedUsers},
    privacy::{CorrelatedNoise, Mechanism, Noise, Privacy, RoundingKind},
    schedule::{Change, StandsFor},
    server::{Moments, Server, ServerOptimizer},
    upload::{Mask, Sparse, Upload},
};

/// The keys whose values are paths. Where files are on a machine is not for others: of these, pages and tracking servers get the last part.
pub const PATHS: [&str; 5] = ["data.path", "data.public_text", "devices.after", "finetune.public_text", "model.from"];

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// T: rounds.
    pub rounds: u64,
    /// The unit of privacy: a user, a device, or an example (a single post).
    pub unit: Unit,
    /// The seed of the initial parameters; public.
    pub seed: u64,
    /// The seed of all other randomness, noise included: the run can be repeated, and guarantees nothing. Without it the noise comes
    /// from a secret key.
    pub noise_seed: Option<u64>,
    /// Floating-point noise instead of exact noise: faster, for simulations only.
    pub floating_point_noise: bool,
    /// How a round's updates are added up.
    pub aggregation: Aggregation,
    /// The data source.
    pub data: Data,
    /// The model to train.
    pub model: Model,
    /// How users train locally.
    pub local: Local,
    /// What of their updates leaves them, where that was said.
    pub upload: Option<Upload>,
    /// How they keep the model from forgetting; plain training by default.
    pub finetune: Option<FineTune>,
    /// How users take part.
    pub participation: Participants,
    /// What the sum is divided by.
    pub estimator: Estimator,
    /// How updates are bounded.
    pub clip: Clip,
    /// The noise, and the guarantee.
    pub privacy: Privacy,
    /// What the server does with the average.
    pub server: Server,
    /// Changes during the run.
    pub schedule: Vec<Change>,
    /// The large run that this small one stands in for (rule P16).
    pub stands_for: Option<StandsFor>,
    /// When accuracy is measured.
    pub evaluation: Evaluation,
    /// When the state is saved.
    pub checkpoint: Checkpoint,
    /// Canary users, to audit the run.
    pub audit: Option<Audit>,
}

const PLAIN: &str = "plain";
const SECAGG: &str = "secagg";

const DATA: Head = head(
    "data",
    "Whose text: synthetic users, a store written by `keyhush data import`, or the devices of `keyhush serve`.",
);
const MODEL: Head = head("model", "Which model: a preset, or an earlier model to start from.");
const LOCAL: Head = head("local", "What each user does in a round (McMahan et al. 2018, Algorithm 1).");
const UPLOAD: Head = head(
    "upload",
    "\
Which part of an update a device sends (docs/TRAINING.md): without this section all of it, as integers on the grid.
With it, traffic is reported. \"dense\" is for simulations only; real devices can send the other kinds.",
);
const FINETUNE: Head = head(
    "finetune",
    "\
How a fine-tuned model keeps what it knew (Popov et al. 2018): devices mix in general text, or labels include the
incoming model's predictions. \"retraining\" does neither.",
);
const PARTICIPATION: Head = head(
    "participation",
    "\
Who takes part: declared before the data is opened, not measured. \"poisson\" and \"fixed-size\" sample users at random;
with \"arrival\" users take part as they become available, with limits on how often, and with \"once\" each at most once.",
);
const DEVICES: Head = head("devices", "With data.kind = \"devices\": the deadlines of devices (docs/TRAINING.md).");
const SECURE: Head =
    head("secagg", "With aggregation = \"secagg\": the threat model, and who adds the noise (docs/SECAGG.md).");
const ESTIMATOR: Head = head("estimator", "What the sum of a round is divided by (McMahan et al. 2018, section 2).");
const CLIP: Head = head(
    "clip",
    "\
How far one user can move the sum. Andrew et al. 2021 clip to the median norm of the updates: that is
kind = \"adaptive\", norm = 0.1, quantile = 0.5. With correlated noise the clip norm changes only at restarts.",
);
const PRIVACY: Head = head(
    "privacy",
    "\
The noise, and the guarantee. \"gaussian\" is independent noise, for users who are sampled at random; the others,
except \"none\", are correlated over rounds (DP-FTRL), for users who take part as they become available.",
);
const SERVER: Head = head("server", "What the server does with the average of a round.");
const SCHEDULE: Head = head("schedule", "A change during the run; repeat the section for more changes.");
const STANDS_FOR: Head = head(
    "stands_for",
    "Simulations only: a large run that this small one stands in for, with the noise of the large one.",
);
const EVALUATION: Head = head("evaluation", "When accuracy is measured, on held-out users.");
const AUDIT: Head =
    head("audit", "Canary users that audit the run: an empirical lower bound on epsilon (docs/AUDITS.md).");
const CHECKPOINT: Head = head("checkpoint", "When the state is saved. A crash never loses a release.");

impl Section for Config {
    fn unsaid() -> Self {
        Self {
            rounds: 0,
            unit: Unit::User,
            seed: 0,
            noise_seed: None,
            floating_point_noise: false,
            aggregation: Aggregation::Plain,
            data: Data::unsaid(),
            model: Model::unsaid(),
            local: Local::unsaid(),
            upload: None,
            finetune: None,
            participation: Participants::unsaid(),
            estimator: Estimator::unsaid(),
            clip: Clip::unsaid(),
            privacy: Privacy::unsaid(),
            server: Server::unsaid(),
            schedule: Vec::new(),
            stands_for: None,
            evaluation: Evaluation::unsaid(),
            checkpoint: Checkpoint::unsaid(),
            audit: None,
        }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.need(&key("rounds", "150", "T: number of rounds"), &mut self.rounds);
        let unit = key("unit", "\"user\"", "the unit of privacy: \"user\", \"device\" or \"example\" (a single post)");
        visit.or(&unit, &mut self.unit, Unit::User);
        visit.or(&key("seed", "0", "seed of the initial parameters; public"), &mut self.seed, 0);
        let noise = key("noise_seed", "1", "makes the run a simulation: repeatable noise, no guarantee");
        visit.may(&noise, &mut self.noise_seed);
        let fast = key("floating_point_noise", "true", "simulations only: faster noise that is not exact");
        visit.rare(&fast, &mut self.floating_point_noise, false);
        let aggregation = key("aggregation", "\"plain\"", "\"plain\", or \"secagg\": the server only sees sums");
        visit.choose(&aggregation, self, Usual::Unwritten(PLAIN));
        visit.section(&DATA, &mut self.data, true);
        visit.section(&MODEL, &mut self.model, true);
        visit.section(&LOCAL, &mut self.local, true);
        visit.maybe(&UPLOAD, Some(&mut self.upload), "any run");
        visit.maybe(&FINETUNE, Some(&mut self.finetune), "");
        self.who_takes_part(visit);
        let secagg = match &mut self.aggregation {
            Aggregation::Plain => None,
            Aggregation::Secagg(said) => Some(said),
        };
        visit.maybe(&SECURE, secagg, "aggregation = \"secagg\"");
        visit.section(&ESTIMATOR, &mut self.estimator, false);
        visit.section(&CLIP, &mut self.clip, true);
        visit.section(&PRIVACY, &mut self.privacy, true);
        visit.section(&SERVER, &mut self.server, true);
        visit.tables(&SCHEDULE, &mut self.schedule);
        let simulated = (!self.data.is_on_devices()).then_some(&mut self.stands_for);
        visit.maybe(&STANDS_FOR, simulated, "a simulation, data.kind = \"synthetic\" or \"store\"");
        visit.section(&EVALUATION, &mut self.evaluation, false);
        visit.section(&CHECKPOINT, &mut self.checkpoint, false);
        let simulated = (!self.data.is_on_devices()).then_some(&mut self.audit);
        visit.maybe(&AUDIT, simulated, "a simulation, data.kind = \"synthetic\" or \"store\"");
    }
}

impl ByKind for Config {
    fn kinds() -> Vec<&'static str> {
        vec![PLAIN, SECAGG]
    }

    fn kind_name(&self) -> &'static str {
        if self.aggregation.is_secure() { SECAGG } else { PLAIN }
    }

    fn turn(&mut self, kind: &str) -> bool {
        self.aggregation = match kind {
            PLAIN => Aggregation::Plain,
            SECAGG => Aggregation::Secagg(None),
            _ => return false,
        };
        true
    }
}

impl Config {
    /// Users per round at some round, according to the schedule.
    #[must_use]
    pub fn cohort(&self, round: u64) -> u64 {
        let changes = self.schedule.iter().take_while(|change| change.from <= round);
        changes.filter_map(|change| change.cohort).last().unwrap_or(self.participation.cohort)
    }

    /// What a run reads on this machine, by the keys that name it.
    #[must_use]
    pub fn paths_mut(&mut self) -> Vec<(&'static str, &mut std::path::PathBuf)> {
        let mut all = Vec::new();
        match &mut self.data {
            Data::Synthetic(_) => {}
            Data::Store(store) => all.push(("data.path", &mut store.path)),
            Data::Devices(text) => {
                all.extend(text.public_text.as_mut().map(|path| ("data.public_text", path)));
                let after = text.devices.iter_mut().flat_map(|devices| &mut devices.after);
                all.extend(after.map(|path| ("devices.after", path)));
            }
        }
        all.extend(self.model.from_mut().map(|path| ("model.from", path)));
        let public = self.finetune.as_mut().and_then(FineTune::public_text_mut);
        all.extend(public.map(|path| ("finetune.public_text", path)));
        all
    }

    /// The settings as TOML. Only defaults may be left out.
    ///
    /// # Errors
    /// When a path is not text.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        let mut copy = self.clone();
        for (key, path) in copy.paths_mut() {
            if path.to_str().is_none() {
                let shown = path.display();
                return Err(ConfigError::new(key, format!("{shown} is not text (UTF-8): give it a name that is")));
            }
        }
        toml::to_string(self).map_err(|e| ConfigError::new("", format!("the settings cannot be written: {e}")))
    }

    /// Real devices have deadlines and no settings of simulated users; simulated users have no deadlines.
    fn who_takes_part<V: Visit>(&mut self, visit: &mut V) {
        if self.data.is_on_devices() {
            self.participation.simulated = None;
        }
        visit.section(&PARTICIPATION, &mut self.participation, true);
        let devices = match &mut self.data {
            Data::Devices(text) => Some(&mut text.devices),
            Data::Synthetic(_) | Data::Store(_) => None,
        };
        visit.maybe(&DEVICES, devices, "data.kind = \"devices\"");
    }
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        write::Written(self).serialize(to)
    }
}
