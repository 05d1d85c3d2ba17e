//! How devices fine-tune a model without forgetting what it knew (Popov et al. 2018).

use std::path::PathBuf;

use super::keys::{ByKind, Section, Usual, Visit, key};

/// How devices fine-tune without forgetting general language.
#[derive(Debug, Clone, PartialEq)]
pub enum FineTune {
    /// They do not: plain training on what was typed, lambda = 1.
    Retraining,
    /// Random rehearsal: general text is mixed in.
    Rehearsal {
        /// The share of the user's text in all that is read.
        lambda: f32,
        /// A file of public text, one post per line; generated general English by default.
        public_text: Option<PathBuf>,
        /// How many tokens of it travel with the task; 20,000 by default.
        general_tokens: Option<usize>,
    },
    /// Learning without forgetting: what the incoming model predicts is a part of each label.
    WithoutForgetting {
        /// The share of what was typed in each label.
        lambda: f32,
    },
}

const RETRAINING: &str = "retraining";
const REHEARSAL: &str = "rehearsal";
const WITHOUT_FORGETTING: &str = "without-forgetting";

impl Section for FineTune {
    fn unsaid() -> Self {
        Self::Retraining
    }

    fn keys<V: Visit>(&mut self, visit: &mut V) {
        let kind = key("kind", "\"rehearsal\"", "how general language is kept");
        visit.choose(&kind, self, Usual::None);
        match self {
            Self::Retraining => {}
            Self::Rehearsal { lambda, public_text, general_tokens } => {
                let share = "share of the user's text in training; the rest is general text";
                visit.need(&key("lambda", "0.5", share), lambda);
                let text = "public text to rehearse, one post per line; generated text by default";
                visit.may(&key("public_text", "\"general.txt\"", text), public_text);
                let tokens = key("general_tokens", "20_000", "tokens of general text sent to every device");
                visit.may(&tokens, general_tokens);
            }
            Self::WithoutForgetting { lambda } => {
                let share = "weight of the typed word in a label; the rest is the incoming model's prediction";
                visit.need(&key("lambda", "0.5", share), lambda);
            }
        }
    }
}

impl ByKind for FineTune {
    fn kinds() -> Vec<&'static str> {
        vec![RETRAINING, REHEARSAL, WITHOUT_FORGETTING]
    }

    fn kind_name(&self) -> &'static str {
        match self {
            Self::Retraining => RETRAINING,
            Self::Rehearsal { .. } => REHEARSAL,
            Self::WithoutForgetting { .. } => WITHOUT_FORGETTING,
        }
    }

    fn turn(&mut self, kind: &str) -> bool {
        *self = match kind {
            RETRAINING => Self::Retraining,
            REHEARSAL => Self::Rehearsal { lambda: 0.0, public_text: None, general_tokens: None },
            WITHOUT_FORGETTING => Self::WithoutForgetting { lambda: 0.0 },
            _ => return false,
        };
        true
    }
}

impl FineTune {
    /// Its name in settings.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind_name()
    }

    /// The file of public text, where there is one.
    pub const fn public_text_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Rehearsal { public_text, .. } => public_text.as_mut(),
            Self::Retraining | Self::WithoutForgetting { .. } => None,
        }
    }
}
