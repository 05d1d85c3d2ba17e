//! The terms of a task ([`TaskTerms`], a blob that never changes) and of a step ([`StepTerms`], with each assignment).
//!
//! Both are JSON, checked by the types that they are read into. What a device must hold a server to stands here: the limits on
//! participation, the goal, the noise, who adds up. A device refuses what is weaker than its own policy (`policy`).

use lm::tokenizer::Rules;
use privacy::{Participation, encoding::Encoding, stages::Clipping};
use serde::{Deserialize, Serialize};

use crate::{evaluation::EvaluationPlan, learner::told::LearnerTerms, local::LocalPlan, upload::UploadTerms};

/// The terms of a task. Their digest identifies the task, so any change makes a different task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskTerms {
    /// The display name.
    pub name: String,
    /// Whose it is: the realm of the server, in hexadecimal digits, so that no other server can speak for it.
    pub realm: String,
    /// The learner.
    pub learner: LearnerTerms,
    /// The words that text is read with, one per line, in the order of their ids.
    pub vocabulary: String,
    /// How text becomes words.
    pub rules: Rules,
    /// What a device does with the model.
    pub local: LocalPlan,
    /// A device with so many tokens has weight 1; all have it by default.
    pub full_weight_tokens: Option<f64>,
    /// The rounds that are planned.
    pub rounds: u64,
    /// How many reports a sum is of.
    pub goal: u64,
    /// How often a device takes part, and how far apart.
    pub participation: Participation,
    /// What is added to sums before anybody sees them.
    pub privacy: PrivacyTerms,
    /// Whether sums are made securely.
    pub secure: bool,
    /// How long a device rests after an input for this task has left, before it gives another one, in seconds: the timer of Xu et al. 2023. A
    /// device that does not know of timers cannot read terms with one, and takes no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_s: Option<u64>,
    /// Where devices measure models instead of training them: how much of their text they predict. Such a task has steps, limits on
    /// participation and noise of its own; its models are those of another task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<EvaluationPlan>,
    /// Which part of an update devices send, and whether they keep the rest; all of it by default. A device that does not know of it cannot
    /// read such terms, and takes no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadTerms>,
}

impl TaskTerms {
    /// Whether devices train or evaluate in it.
    #[must_use]
    pub const fn purpose(&self) -> Purpose {
        if self.evaluation.is_some() { Purpose::Evaluation } else { Purpose::Training }
    }
}

/// Training or evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A change to a model, learned from text.
    #[default]
    Training,
    /// Counts of how well a model predicts text.
    Evaluation,
}

/// The privacy promised to users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyTerms {
    /// The mechanism in words.
    pub mechanism: String,
    /// The standard deviation of the noise over the sensitivity; none where no noise is added.
    pub noise_multiplier: Option<f64>,
    /// What the whole plan costs at most; none where there is no bound.
    pub epsilon: Option<f64>,
    /// The delta of the epsilon.
    pub delta: Option<f64>,
    /// Whether somebody can draw the noise again: then there is no promise.
    pub simulated: bool,
}

/// The terms of one step.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTerms {
    /// How updates are bounded.
    pub clipping: Clipping,
    /// How they become integers.
    pub encoding: Encoding,
    /// The step of local training. It means nothing in an evaluation.
    pub learning_rate: f32,
}
