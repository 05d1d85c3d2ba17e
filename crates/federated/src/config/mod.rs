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
//! Each section is a file with a type that holds what its `kind` can use and nothing else, and describes each key once (`keys`). What one
//! section says about another is for [`crate::plan::Plan::new`]. [`Document`] knows the line of each key.
//!
//! | module      | what it is                                                          |
//! |-------------|---------------------------------------------------------------------|
//! | `keys`      | how keys are described, and who goes through them                    |
//! | `read`      | TOML becomes settings, or an error by key                            |
//! | `write`     | settings become TOML or JSON                                         |
//! | `explained` | settings as text with every key explained                            |
//! | `nearest`   | what was probably meant by a word that is not known                  |
//! | `document`  | a text, what `--set` changes in it, and the lines of keys            |
//! | the others  | the sections, and `clip_rules` and `mechanism`, kinds by name        |

mod aggregation;
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
mod tests;
mod write;

use ledger::Unit;
use serde::{Serialize, Serializer};

use self::keys::{ByKind, Head, Section, Usual, Visit, head, key};
pub use self::{
    aggregation::{AdversaryKind, Aggregation, NoisePlace, SecAgg},
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
};

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// T: rounds.
    pub rounds: u64,
    /// What is protected as one: `user`, or `example`, which is a single post.
    pub unit: Unit,
    /// From which the first parameters follow; public.
    pub seed: u64,
    /// From which all other randomness follows, noise included: repeatable, and no guarantee. Without it the noise comes from
    /// a secret key.
    pub noise_seed: Option<u64>,
    /// Floating-point noise instead of exact: faster, for simulations alone.
    pub floating_point_noise: bool,
    /// How a round's updates are added up.
    pub aggregation: Aggregation,
    /// Whose text.
    pub data: Data,
    /// Which model.
    pub model: Model,
    /// What users do.
    pub local: Local,
    /// How they keep the model from forgetting; plain training if not said.
    pub finetune: Option<FineTune>,
    /// Who takes part.
    pub participation: Participants,
    /// What the sum is divided by.
    pub estimator: Estimator,
    /// How updates are bounded.
    pub clip: Clip,
    /// What is added to them.
    pub privacy: Privacy,
    /// What the server does with the average.
    pub server: Server,
    /// What changes in the midst of the run.
    pub schedule: Vec<Change>,
    /// The large cohort for which a small one stands (rule P16).
    pub stands_for: Option<StandsFor>,
    /// When accuracy is measured.
    pub evaluation: Evaluation,
    /// When the state is kept.
    pub checkpoint: Checkpoint,
}

const PLAIN: &str = "plain";
const SECAGG: &str = "secagg";

const DATA: Head = head(
    "data",
    "Whose text: a crowd that is made up, a store that `keyhush data import` made, or the devices of `keyhush serve`.",
);
const MODEL: Head = head("model", "Which model: a preset, or one to start from.");
const LOCAL: Head = head("local", "What users do (McMahan et al. 2018, Algorithm 1).");
const FINETUNE: Head = head(
    "finetune",
    "\
How a model that users fine-tune keeps what it knew (Popov et al. 2018): general text is mixed in, or what the model
predicted when it came counts too. \"retraining\" does neither.",
);
const PARTICIPATION: Head = head(
    "participation",
    "\
Who takes part: declared before the data is opened, not measured. Users are drawn at random, each with a probability
or exactly so many; or they come by themselves, with limits on how often, or once.",
);
const DEVICES: Head = head("devices", "With data.kind = \"devices\": how long devices have (docs/TRAINING.md).");
const SECURE: Head =
    head("secagg", "With aggregation = \"secagg\": what it withstands, and who adds the noise (docs/SECAGG.md).");
const ESTIMATOR: Head = head("estimator", "What the sum of a round is divided by (McMahan et al. 2018, section 2).");
const CLIP: Head = head(
    "clip",
    "\
How far one user may move the sum. Andrew et al. 2021 clip to the median of the updates' norms:
that is kind = \"adaptive\", norm = 0.1, quantile = 0.5; with correlated noise the clip moves at restarts only.",
);
const PRIVACY: Head = head(
    "privacy",
    "\
What is added to the sum, and what that is worth. \"gaussian\" is independent noise, for users who are drawn at random;
the others but \"none\" are correlated over rounds, for users who come as they come.",
);
const SERVER: Head = head("server", "What the server does with the average.");
const SCHEDULE: Head = head("schedule", "What changes in the midst of the run, as often as needed.");
const STANDS_FOR: Head =
    head("stands_for", "The large cohort for which a small one stands, with the noise it would have; a simulation.");
const EVALUATION: Head = head("evaluation", "When accuracy is measured, on users that are held out.");
const CHECKPOINT: Head = head("checkpoint", "When the state is kept; a crash loses no release in any case.");

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
        }
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        visit.need(&key("rounds", "150", "T: rounds"), &mut self.rounds);
        let unit =
            key("unit", "\"user\"", "what is protected as one: \"user\", \"device\", or \"example\", a single post");
        visit.or(&unit, &mut self.unit, Unit::User);
        visit.or(&key("seed", "0", "the first parameters follow from it; public"), &mut self.seed, 0);
        let noise = key("noise_seed", "1", "a simulation: repeatable noise, and so no guarantee");
        visit.may(&noise, &mut self.noise_seed);
        let fast = key("floating_point_noise", "true", "of a simulation: faster noise, not exact");
        visit.rare(&fast, &mut self.floating_point_noise, false);
        let aggregation = key("aggregation", "\"plain\"", "with \"secagg\" nobody sees a single update");
        visit.choose(&aggregation, self, Usual::Unwritten(PLAIN));
        visit.section(&DATA, &mut self.data, true);
        visit.section(&MODEL, &mut self.model, true);
        visit.section(&LOCAL, &mut self.local, true);
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
        let mut copy = self.clone();
        let paths = [
            ("data.path", copy.data.store_path_mut()),
            ("model.from", copy.model.from_mut()),
            ("finetune.public_text", copy.finetune.as_mut().and_then(FineTune::public_text_mut)),
        ];
        for (key, path) in paths {
            if let Some(path) = path.filter(|path| path.to_str().is_none()) {
                let shown = path.display();
                return Err(ConfigError::new(key, format!("{shown} is not text (UTF-8): give it a name that is")));
            }
        }
        toml::to_string(self).map_err(|e| ConfigError::new("", format!("the settings cannot be written: {e}")))
    }

    /// What simulated users do is not said of real devices, and how long devices have of them alone.
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
