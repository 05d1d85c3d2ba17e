//! A model as a Hugging Face folder, file by file in bytes.
//!
//! | file                | what it holds                                                                          |
//! |---------------------|----------------------------------------------------------------------------------------|
//! | `model.safetensors` | the parameters, named and shaped as [`ParameterLayout`] says; an n-gram model is one tensor of bytes. Its metadata repeat the guarantee and the ledger's head, and name the other files by their SHA-256 |
//! | `config.json`       | the format's version, the tokenizer's rules, and the model                              |
//! | `vocab.txt`         | the vocabulary, one entry per line in the order of ids                                     |
//! | `README.md`         | the model card: what it is and what it guarantees                                        |
//!
//! Nothing is read from or written to disk here. Reading checks everything and fails with the first thing that is wrong; a
//! model that was read has finite parameters of the right shapes and the vocabulary it was trained with.

mod card;
mod config_file;

use std::{collections::BTreeMap, io::Read};

use sha2::{Digest, Sha256};
use thiserror::Error;

use self::config_file::{Architecture, ConfigFile};
pub use self::{
    card::Guarantee,
    config_file::{LearnedConfig, LearnedPart},
};
use crate::{
    kernels::KernelPath,
    language_model::LanguageModel,
    model::{
        config::{ConfigError, ModelConfig},
        fast::{Network, NetworkError},
        parameters::{Parameter, ParameterLayout, Role},
    },
    ngram::{KneserNey, NgramError},
    tensors::{self, Tensor, TensorsError, Values},
    tokenizer::Rules,
    vocabulary::{Vocabulary, VocabularyError},
};

/// The name of the file of parameters.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// The name of the configuration.
pub const CONFIG_FILE: &str = "config.json";
/// The name of the vocabulary.
pub const VOCABULARY_FILE: &str = "vocab.txt";
/// The name of the model card.
pub const CARD_FILE: &str = "README.md";

/// What stands in the metadata under `format`.
const FORMAT: &str = "keyhush-model-1";
/// The one tensor of an n-gram model.
const NGRAMS: &str = "ngrams";

/// The content of a folder's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The contents of [`WEIGHTS_FILE`].
    pub weights: Vec<u8>,
    /// The contents of [`CONFIG_FILE`].
    pub config: String,
    /// The contents of [`VOCABULARY_FILE`].
    pub vocabulary: String,
    /// The contents of [`CARD_FILE`].
    pub card: String,
}

/// The files of a folder that is to be read.
pub struct Source<'a> {
    /// Of [`WEIGHTS_FILE`]: read as a stream, once, so that it is in memory once.
    pub weights: &'a mut dyn Read,
    /// The contents of [`CONFIG_FILE`].
    pub config: &'a str,
    /// The contents of [`VOCABULARY_FILE`].
    pub vocabulary: &'a str,
    /// The contents of [`CARD_FILE`].
    pub card: &'a str,
}

/// The model's weights.
#[derive(Debug, Clone)]
pub enum Weights {
    /// A recurrent network with its flat vector of parameters.
    Recurrent {
        /// The model configuration.
        config: ModelConfig,
        /// Its parameters, in the order of [`ParameterLayout`].
        values: Vec<f32>,
    },
    /// An n-gram model.
    Ngrams(KneserNey),
    /// What another learner made, which predicts no words.
    Learned(Learned),
}

/// A model of a learner that is not a language model: its parts, named and shaped, and what the learner says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// The model configuration.
    pub config: LearnedConfig,
    /// Its parameters, part after part.
    pub values: Vec<f32>,
}

/// A model with all that belongs to it.
#[derive(Debug, Clone)]
pub struct Folder {
    /// Its name.
    pub name: String,
    /// How text becomes tokens.
    pub rules: Rules,
    /// The words.
    pub vocabulary: Vocabulary,
    /// The model's weights.
    pub weights: Weights,
    /// What is guaranteed to the people whose text it was trained with.
    pub guarantee: Guarantee,
}

/// A folder that cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FolderError {
    /// A configuration that is no JSON of the form that is written.
    #[error("config.json: {0}")]
    Json(String),
    /// A configuration of something else, or of another version.
    #[error("config.json: has format {got:?}, but this version reads {FORMAT:?}")]
    Version {
        /// The version in the file.
        got: String,
    },
    /// A model that cannot be built.
    #[error("config.json: {0}")]
    Config(ConfigError),
    /// A file that is no vocabulary.
    #[error("vocab.txt: {0}")]
    Vocabulary(VocabularyError),
    /// A vocabulary of another size.
    #[error("vocab.txt has {words} entries, but the model expects {model}")]
    VocabularySize {
        /// Entries of the file.
        words: usize,
        /// Entries that the model has.
        model: usize,
    },
    /// A vocabulary of the right size with other words.
    #[error("vocab.txt is not the model's vocabulary: its SHA-256 is {got}, expected {want}")]
    OtherVocabulary {
        /// The digest of the file.
        got: String,
        /// The digest in the metadata.
        want: String,
    },
    /// A configuration that was changed.
    #[error("config.json does not belong to this model: its SHA-256 is {got}, expected {want}")]
    OtherConfig {
        /// The digest of the file.
        got: String,
        /// The digest in the metadata.
        want: String,
    },
    /// A card that says something else than the metadata.
    #[error("README.md does not belong to this model: it does not contain {missing:?} from the model's metadata")]
    OtherCard {
        /// The text that is missing.
        missing: String,
    },
    /// Parameters that are not those of the model.
    #[error("model.safetensors {0}")]
    Tensors(TensorsError),
    /// Metadata that are needed.
    #[error("model.safetensors has no {key:?} in its metadata; it was not written by keyhush")]
    Metadata {
        /// The key.
        key: &'static str,
    },
    /// A parameter that is infinite or no number.
    #[error("tensor {name:?} has a value that is not finite, at index {at}")]
    NotFinite {
        /// Its name.
        name: String,
        /// The index of the value.
        at: usize,
    },
    /// Another number of parameters than the model has.
    #[error("expected {want} parameters, got {got}")]
    Length {
        /// What the configuration asks for.
        want: usize,
        /// The value given.
        got: usize,
    },
    /// N-grams that cannot be read.
    #[error(transparent)]
    Ngrams(#[from] NgramError),
}

// Not `#[from]`: that would make them sources too, and who prints the chain of errors would print them twice.
impl From<ConfigError> for FolderError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<TensorsError> for FolderError {
    fn from(error: TensorsError) -> Self {
        Self::Tensors(error)
    }
}

impl From<VocabularyError> for FolderError {
    fn from(error: VocabularyError) -> Self {
        Self::Vocabulary(error)
    }
}

impl Weights {
    /// Entries of the vocabulary.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        match self {
            Self::Recurrent { config, .. } => config.vocabulary,
            Self::Ngrams(model) => model.vocabulary(),
            Self::Learned(Learned { config, .. }) => config.vocabulary,
        }
    }

    /// The model, ready to predict with the kernels of a path.
    ///
    /// # Errors
    /// When this machine does not have the path, or the parameters are not those of the configuration; the latter never for
    /// a folder that was read.
    pub fn into_model(self, path: KernelPath) -> Result<Box<dyn LanguageModel>, NetworkError> {
        match self {
            Self::Ngrams(model) => Ok(Box::new(model)),
            Self::Learned(Learned { config, .. }) => Err(NetworkError::NoLanguageModel { learner: config.learner }),
            Self::Recurrent { config, values } => Ok(Box::new(Network::new(&config, values, path)?)),
        }
    }

    fn architecture(&self) -> Architecture {
        match self {
            Self::Recurrent { config, .. } => Architecture::Recurrent(config.clone()),
            Self::Ngrams(model) => Architecture::kneser_ney(model),
            Self::Learned(Learned { config, .. }) => Architecture::Learned(config.clone()),
        }
    }
}

impl Folder {
    /// The files of this model.
    ///
    /// # Errors
    /// When parts do not fit together: parameters that are too many, too few or not finite, a vocabulary of another size.
    pub fn write(&self) -> Result<Files, FolderError> {
        check_size(&self.vocabulary, self.weights.vocabulary())?;
        let config = ConfigFile::new(self.rules, self.weights.architecture()).to_json();
        let vocabulary = self.vocabulary.to_text();
        let mut metadata = BTreeMap::from([
            ("format".to_owned(), FORMAT.to_owned()),
            ("name".to_owned(), self.name.clone()),
            ("config_sha256".to_owned(), sha256(&config)),
            ("vocabulary_sha256".to_owned(), sha256(&vocabulary)),
        ]);
        self.guarantee.describe(&mut metadata);
        let weights = match &self.weights {
            Weights::Recurrent { config, values } => write_parameters(config, values, &metadata)?,
            Weights::Ngrams(model) => {
                let bytes = model.to_bytes();
                let tensor = Tensor { name: NGRAMS, shape: vec![bytes.len()], values: Values::Bytes(&bytes) };
                tensors::write(&metadata, &[tensor])
            }
            Weights::Learned(learned) => write_parts(learned, &metadata)?,
        };
        Ok(Files { weights, config, vocabulary, card: card::render(self) })
    }

    /// Reads the files of a model, with everything checked.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn read(source: Source<'_>) -> Result<Self, FolderError> {
        let config = ConfigFile::from_json(source.config)?;
        let vocabulary = Vocabulary::parse(source.vocabulary)?;
        check_size(&vocabulary, config.model.vocabulary())?;
        let tensors = tensors::Reader::new(source.weights)?;
        config.model.expect(&tensors)?;
        let (name, guarantee) = check_metadata(&tensors, source.config, source.vocabulary)?;
        let weights = match config.model {
            Architecture::Recurrent(model) => read_parameters(model, tensors)?,
            Architecture::KneserNey(header) => {
                let model = KneserNey::from_bytes(&tensors.bytes()?)?;
                header.check(&model)?;
                Weights::Ngrams(model)
            }
            Architecture::Learned(config) => read_parts(config, tensors)?,
        };
        let folder = Self { name, rules: config.tokenizer, vocabulary, weights, guarantee };
        card::check(source.card, &folder)?;
        Ok(folder)
    }
}

fn check_size(vocabulary: &Vocabulary, model: usize) -> Result<(), FolderError> {
    let words = vocabulary.len();
    if words == model { Ok(()) } else { Err(FolderError::VocabularySize { words, model }) }
}

fn check_length(layout: &ParameterLayout, values: &[f32]) -> Result<(), FolderError> {
    let (want, got) = (layout.len(), values.len());
    if want == got { Ok(()) } else { Err(FolderError::Length { want, got }) }
}

fn check_finite(name: &str, values: &[f32]) -> Result<(), FolderError> {
    match values.iter().position(|v| !v.is_finite()) {
        Some(at) => Err(FolderError::NotFinite { name: name.to_owned(), at }),
        None => Ok(()),
    }
}

/// A bias is a vector, everything else a matrix.
fn shape(parameter: &Parameter) -> Vec<usize> {
    match parameter.role {
        Role::GateBias { .. } | Role::DenseBias | Role::OutputBias => vec![parameter.columns],
        _ => vec![parameter.rows, parameter.columns],
    }
}

fn write_parameters(
    config: &ModelConfig,
    values: &[f32],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, FolderError> {
    let layout = ParameterLayout::new(config)?;
    check_length(&layout, values)?;
    let mut tensors = Vec::new();
    for parameter in layout.parameters() {
        let values = &values[parameter.range()];
        check_finite(&parameter.name, values)?;
        tensors.push(Tensor { name: &parameter.name, shape: shape(parameter), values: Values::Floats(values) });
    }
    Ok(tensors::write(metadata, &tensors))
}

fn read_parameters(config: ModelConfig, tensors: tensors::Reader<'_>) -> Result<Weights, FolderError> {
    let layout = ParameterLayout::new(&config)?;
    let names: Vec<&str> = layout.parameters().iter().map(|parameter| parameter.name.as_str()).collect();
    let values = tensors.floats(&names)?;
    for parameter in layout.parameters() {
        check_finite(&parameter.name, &values[parameter.range()])?;
    }
    Ok(Weights::Recurrent { config, values })
}

fn write_parts(learned: &Learned, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, FolderError> {
    let Learned { config, values } = learned;
    if config.len() != Some(values.len()) {
        return Err(FolderError::Length { want: config.len().unwrap_or(usize::MAX), got: values.len() });
    }
    let (mut tensors, mut rest) = (Vec::new(), &values[..]);
    for part in &config.parts {
        let (values, others) = rest.split_at(part.rows * part.columns);
        check_finite(&part.name, values)?;
        tensors.push(Tensor { name: &part.name, shape: part.shape(), values: Values::Floats(values) });
        rest = others;
    }
    Ok(tensors::write(metadata, &tensors))
}

fn read_parts(config: LearnedConfig, tensors: tensors::Reader<'_>) -> Result<Weights, FolderError> {
    let names: Vec<&str> = config.parts.iter().map(|part| part.name.as_str()).collect();
    let values = tensors.floats(&names)?;
    let mut rest = &values[..];
    for part in &config.parts {
        let (of_part, others) = rest.split_at(part.rows * part.columns);
        check_finite(&part.name, of_part)?;
        rest = others;
    }
    Ok(Weights::Learned(Learned { config, values }))
}

/// Checks that the parameters were written with the other files; gives the model's name and its guarantee.
fn check_metadata(
    tensors: &tensors::Reader<'_>,
    config: &str,
    vocabulary: &str,
) -> Result<(String, Guarantee), FolderError> {
    let said = |key| tensors.metadata(key).ok_or(FolderError::Metadata { key });
    if said("format")? != FORMAT {
        return Err(FolderError::Version { got: said("format")?.to_owned() });
    }
    let (got, want) = (sha256(config), said("config_sha256")?.to_owned());
    if got != want {
        return Err(FolderError::OtherConfig { got, want });
    }
    let (got, want) = (sha256(vocabulary), said("vocabulary_sha256")?.to_owned());
    if got != want {
        return Err(FolderError::OtherVocabulary { got, want });
    }
    Ok((said("name")?.to_owned(), Guarantee::from_metadata(said)?))
}

fn sha256(text: &str) -> String {
    use std::fmt::Write;
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}"); // writing to a string does not fail
        hex
    })
}
