//! The description of a learner that is sent to devices, from which they rebuild it. A learner without one can be simulated, but a server
//! refuses it.
//!
//! It is a part of the device protocol: a new learner for devices needs a variant here, and the compiler names the one place
//! that makes it (`protocol::task`), where everything is held against the device's bounds before there is room for it.

use lm::model::config::ModelConfig;
use serde::{Deserialize, Serialize};

/// The learner and its model, as sent to devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LearnerTerms {
    /// A language model.
    Language {
        /// Its shape.
        model: ModelConfig,
    },
    /// Tags of posts.
    Tags {
        /// The names of the tags.
        labels: Vec<String>,
    },
}

impl LearnerTerms {
    /// The names of the labels that it learns, in the order of their ids.
    #[must_use]
    pub fn labels(&self) -> &[String] {
        match self {
            Self::Language { .. } => &[],
            Self::Tags { labels } => labels,
        }
    }
}
