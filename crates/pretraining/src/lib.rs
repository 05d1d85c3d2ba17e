//! Pretraining: central training on public text, without federation.
//!
//! The text is one long stream, cut into as many sequences as a batch has, read side by side with carried state (Zaremba
//! et al. 2014). Every line begins with BOS, which is read and never predicted, and ends with EOS. A run that was stopped
//! resumes from its checkpoint and ends with the same model, bit for bit.
//!
//! | module         | what it is                                                  |
//! |----------------|-------------------------------------------------------------|
//! | [`schedule`]   | batches, epochs, the learning rate                           |
//! | `training`     | a running pretraining: steps, evaluations, checkpoints       |
//! | [`checkpoint`] | checkpoints of a run                                         |

pub mod checkpoint;
mod error;
pub mod schedule;
mod training;

use lm::{
    model::{
        config::{Dropout, DropoutKind, ModelConfig, Token},
        parameters::ParameterLayout,
    },
    stream::Stream,
    tokenizer::Tokenizer,
    vocabulary::Vocabulary,
};

pub use self::{
    error::PretrainError,
    training::{Ended, Run, Watch},
};

/// A model by name, and what of it is to be otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelChoice {
    /// The preset.
    pub preset: String,
    /// Units of each layer.
    pub hidden: Option<usize>,
    /// Size of the embedding.
    pub embedding: Option<usize>,
    /// The chance of a unit to be left out of a step; 0 for none.
    pub dropout: Option<f32>,
    /// Entries of the vocabulary, at most.
    pub vocabulary: Option<usize>,
}

impl ModelChoice {
    /// The preset, with what was said to be otherwise. Where the output must have the size of the embedding, it follows.
    ///
    /// # Errors
    /// When there is no such preset.
    pub fn config(&self) -> Result<ModelConfig, PretrainError> {
        let mut config = ModelConfig::preset(&self.preset).map_err(|e| PretrainError::wrong("model", e))?;
        config.vocabulary = self.vocabulary.unwrap_or(config.vocabulary);
        config.hidden = self.hidden.unwrap_or(config.hidden);
        if let Some(size) = self.embedding {
            config = config.with_embedding(size);
        }
        match (self.dropout, &mut config.dropout) {
            (Some(0.0), dropout) => *dropout = None,
            (Some(rate), Some(dropout)) => dropout.rate = rate,
            (Some(rate), none) => *none = Some(Dropout { rate, kind: DropoutKind::PerStep }),
            (None, _) => {}
        }
        Ok(config)
    }
}

/// The tokenizer of a model.
#[must_use]
pub const fn tokenizer(config: &ModelConfig) -> Tokenizer {
    match config.token {
        Token::Word => Tokenizer::words(),
        Token::Character => Tokenizer::characters(),
    }
}

/// A pretraining task: the model and the text.
#[derive(Debug, Clone)]
pub struct Task {
    /// What the model is called.
    pub(crate) name: String,
    pub(crate) config: ModelConfig,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) train: Stream,
    pub(crate) valid: Option<Stream>,
}

impl Task {
    /// A model with a vocabulary, public text, and text to measure on; batches have so many sequences.
    ///
    /// # Errors
    /// When there is no such model, or too little text.
    pub fn new(
        model: &ModelChoice,
        vocabulary: Vocabulary,
        train: &[String],
        valid: Option<&str>,
        batch: usize,
    ) -> Result<Self, PretrainError> {
        let config = model.config()?.with_vocabulary(vocabulary.len());
        config.check()?;
        let tokenizer = tokenizer(&config);
        let stream = Stream::new(train.iter().map(String::as_str), tokenizer, &vocabulary);
        let train = enough(stream, "data", batch)?;
        let valid = valid.map(|text| enough(Stream::new([text], tokenizer, &vocabulary), "valid", 1)).transpose()?;
        Ok(Self { name: model.preset.clone(), config, tokenizer, vocabulary, train, valid })
    }

    /// How many parameters the model has.
    ///
    /// # Errors
    /// Never for a task that was made.
    pub fn parameters(&self) -> Result<usize, PretrainError> {
        Ok(ParameterLayout::new(&self.config)?.len())
    }

    /// Tokens of an epoch.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.train.tokens()
    }

    /// Entries of the vocabulary.
    #[must_use]
    pub const fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }
}

/// Refuses a text with fewer tokens than a batch has sequences.
fn enough(stream: Stream, field: &'static str, least: usize) -> Result<Stream, PretrainError> {
    match stream.tokens() {
        tokens if tokens >= least => Ok(stream),
        0 => Err(PretrainError::wrong(field, "contains no tokens")),
        few => {
            let problem = format!("a batch has {least} sequences, but there are only {few} tokens");
            Err(PretrainError::wrong(field, problem))
        }
    }
}
