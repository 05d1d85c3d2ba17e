//! `config.json`: format version, tokenizer rules and model configuration.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FORMAT, FolderError, NGRAMS, shape};
use crate::{
    language_model::LanguageModel,
    model::{config::ModelConfig, parameters::ParameterLayout},
    ngram::KneserNey,
    tensors::{self, Dtype},
    tokenizer::Rules,
};

/// The contents of `config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigFile {
    format: String,
    pub(super) tokenizer: Rules,
    pub(super) model: Architecture,
}

/// What kind of model it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Architecture {
    Recurrent(ModelConfig),
    KneserNey(KneserNeyConfig),
    Learned(LearnedConfig),
}

/// The configuration of a model of another learner than language models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedConfig {
    /// The learner's name.
    pub learner: String,
    /// Entries of the vocabulary that its words are from.
    pub vocabulary: usize,
    /// What the learner says of it.
    pub settings: Value,
    /// The parts of its vector, in their order.
    pub parts: Vec<LearnedPart>,
}

/// A part of a model's vector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedPart {
    /// Its name.
    pub name: String,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
}

impl LearnedPart {
    pub(super) fn shape(&self) -> Vec<usize> {
        vec![self.rows, self.columns]
    }
}

impl LearnedConfig {
    /// The length of the vector; none if it is beyond all measure.
    pub(super) fn len(&self) -> Option<usize> {
        self.parts.iter().try_fold(0usize, |len, part| len.checked_add(part.rows.checked_mul(part.columns)?))
    }
}

/// What an n-gram model is made of; the same stands in its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KneserNeyConfig {
    order: usize,
    vocabulary: usize,
}

impl KneserNeyConfig {
    /// Refuses n-grams that are others than those announced.
    pub(super) fn check(&self, model: &KneserNey) -> Result<(), FolderError> {
        if Architecture::KneserNey(self.clone()) == Architecture::kneser_ney(model) {
            return Ok(());
        }
        let (order, vocabulary) = (model.order(), model.vocabulary());
        Err(FolderError::Json(format!(
            "the n-grams are of order {order} with {vocabulary} entries, and this says {self:?}"
        )))
    }
}

impl Architecture {
    pub(super) fn kneser_ney(model: &KneserNey) -> Self {
        Self::KneserNey(KneserNeyConfig { order: model.order(), vocabulary: model.vocabulary() })
    }

    pub(super) fn vocabulary(&self) -> usize {
        match self {
            Self::Recurrent(config) => config.vocabulary,
            Self::KneserNey(config) => config.vocabulary,
            Self::Learned(config) => config.vocabulary,
        }
    }

    /// Refuses tensors that are not those of this model.
    pub(super) fn expect(&self, tensors: &tensors::Reader<'_>) -> Result<(), FolderError> {
        let layout;
        let wanted: Vec<(&str, Vec<usize>, Dtype)> = match self {
            Self::Recurrent(config) => {
                layout = ParameterLayout::new(config)?;
                layout.parameters().iter().map(|p| (p.name.as_str(), shape(p), Dtype::F32)).collect()
            }
            Self::KneserNey(_) => vec![(NGRAMS, tensors.length(NGRAMS), Dtype::U8)],
            Self::Learned(config) => config.parts.iter().map(|p| (p.name.as_str(), p.shape(), Dtype::F32)).collect(),
        };
        Ok(tensors.expect(&wanted)?)
    }
}

impl ConfigFile {
    pub(super) fn new(tokenizer: Rules, model: Architecture) -> Self {
        Self { format: FORMAT.to_owned(), tokenizer, model }
    }

    pub(super) fn to_json(&self) -> String {
        // Serialising fails for maps with odd keys only, and there are none.
        serde_json::to_string_pretty(self).expect("numbers and names serialise") + "\n"
    }

    /// The version comes first: a later one may have any other form.
    pub(super) fn from_json(text: &str) -> Result<Self, FolderError> {
        let json = |error: serde_json::Error| FolderError::Json(error.to_string());
        let value: Value = serde_json::from_str(text).map_err(json)?;
        match value.get("format").and_then(Value::as_str) {
            Some(FORMAT) => {}
            other => return Err(FolderError::Version { got: other.unwrap_or_default().to_owned() }),
        }
        let config: Self = serde_json::from_str(text).map_err(json)?;
        if let Architecture::Recurrent(model) = &config.model {
            model.check()?;
        }
        Ok(config)
    }
}
