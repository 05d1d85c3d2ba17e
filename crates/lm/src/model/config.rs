//! Model configurations, and the papers' models by name.
//!
//! All models are one chain: embedding, recurrent layers, an optional dense layer, output embedding. A preset is a
//! [`ModelConfig`] and nothing else; the parameter counts that the papers print come out of it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a model predicts: words or characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Token {
    /// Words of a vocabulary.
    Word,
    /// Characters.
    Character,
}

/// The recurrent cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// Long short-term memory (Hochreiter and Schmidhuber 1997, with forget gate).
    Lstm,
    /// LSTM whose forget gate is `1 - input gate` (Greff et al. 2015): three quarters of the parameters.
    Cifg,
    /// Gated recurrent unit (Cho et al. 2014).
    Gru,
}

impl Cell {
    /// The gates, in the order of their parameters.
    #[must_use]
    pub const fn gates(self) -> &'static [Gate] {
        match self {
            Self::Lstm => &[Gate::Input, Gate::Forget, Gate::Candidate, Gate::Output],
            Self::Cifg => &[Gate::Input, Gate::Candidate, Gate::Output],
            Self::Gru => &[Gate::Update, Gate::Reset, Gate::Candidate],
        }
    }
}

/// A gate of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// i: how much of the candidate enters the cell.
    Input,
    /// f: how much of the cell stays.
    Forget,
    /// g: what may enter.
    Candidate,
    /// o: how much of the cell is shown.
    Output,
    /// z of a GRU: how much of the state is replaced.
    Update,
    /// r of a GRU: how much of the state the candidate sees.
    Reset,
}

impl Gate {
    /// The name in parameter names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input_gate",
            Self::Forget => "forget_gate",
            Self::Candidate => "candidate",
            Self::Output => "output_gate",
            Self::Update => "update_gate",
            Self::Reset => "reset_gate",
        }
    }
}

/// Units that are left out at random while training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Dropout {
    /// The chance to be left out.
    pub rate: f32,
    /// Which units share a draw.
    pub kind: DropoutKind,
}

/// Which units share a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropoutKind {
    /// A fresh draw at every step, on what enters and leaves layers, not on the recurrence (Zaremba et al. 2014).
    PerStep,
    /// One draw for a whole sequence (Gal and Ghahramani 2016).
    Variational,
}

/// The configuration of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Words or characters.
    pub token: Token,
    /// Entries of the vocabulary, BOS, EOS and UNK among them.
    pub vocabulary: usize,
    /// Size of the embedding.
    pub embedding: usize,
    /// The recurrent cell.
    pub cell: Cell,
    /// Recurrent layers.
    pub layers: usize,
    /// Units of a layer.
    pub hidden: usize,
    /// Size of the recurrent projection (Sak et al. 2014), which is what a layer shows to itself and to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrent_projection: Option<usize>,
    /// Size of a dense layer with bias after the last recurrent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dense: Option<usize>,
    /// Whether the output embedding is the input's.
    pub tied: bool,
    /// Whether each entry of the vocabulary has a bias.
    pub output_bias: bool,
    /// Whether embeddings have norm 1, renormalised after every step.
    #[serde(default)]
    pub unit_norm: bool,
    /// Dropout while training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<Dropout>,
    /// Size of a vector of the user that stands beside every embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_context: Option<usize>,
}

/// A model that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A size of zero, or beyond what memory holds.
    #[error("{field} must be from 1 to {most}, got {got}")]
    Size {
        /// The name of the size.
        field: &'static str,
        /// The largest.
        most: usize,
        /// The refused value.
        got: usize,
    },
    /// Tied embeddings need the output to have the embedding's size.
    #[error("tied embeddings need an output of the same size as the embedding, {embedding}, got {output}")]
    Tied {
        /// The embedding.
        embedding: usize,
        /// What would be multiplied with it.
        output: usize,
    },
    /// A GRU shows its units as they are.
    #[error("a GRU has no recurrent_projection")]
    Projection,
    /// A rate that is no probability.
    #[error("dropout must be at least 0 and below 1")]
    Dropout,
    /// No such preset.
    #[error("no model is called {name:?}; choose one of {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
}

impl ModelConfig {
    /// The size of a layer's output, to itself and to the next layer.
    #[must_use]
    pub fn shown(&self) -> usize {
        self.recurrent_projection.unwrap_or(self.hidden)
    }

    /// The size of a layer's input from below.
    #[must_use]
    pub fn layer_input(&self, layer: usize) -> usize {
        if layer == 0 { self.embedding + self.user_context.unwrap_or(0) } else { self.shown() }
    }

    /// The size of the vector multiplied with the output embedding.
    #[must_use]
    pub fn output(&self) -> usize {
        self.dense.unwrap_or_else(|| self.shown())
    }

    /// Refuses what cannot be built.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("vocabulary", self.vocabulary, 1 << 24),
            ("embedding", self.embedding, 1 << 16),
            ("layers", self.layers, 64),
            ("hidden", self.hidden, 1 << 16),
            ("recurrent_projection", self.recurrent_projection.unwrap_or(1), 1 << 16),
            ("dense", self.dense.unwrap_or(1), 1 << 16),
            ("user_context", self.user_context.unwrap_or(1), 1 << 16),
        ];
        if let Some((field, got, most)) = sizes.into_iter().find(|(_, got, most)| !(1..=*most).contains(got)) {
            return Err(ConfigError::Size { field, most, got });
        }
        if self.tied && self.output() != self.embedding {
            return Err(ConfigError::Tied { embedding: self.embedding, output: self.output() });
        }
        if self.cell == Cell::Gru && self.recurrent_projection.is_some() {
            return Err(ConfigError::Projection);
        }
        match self.dropout {
            Some(d) if !(d.rate >= 0.0 && d.rate < 1.0) => Err(ConfigError::Dropout),
            _ => Ok(()),
        }
    }

    /// A model of the papers, by name.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn preset(name: &str) -> Result<Self, ConfigError> {
        let found = PRESETS.iter().find(|(known, _)| *known == name);
        found.map(|(_, make)| make()).ok_or_else(|| ConfigError::Unknown {
            name: name.to_owned(),
            known: PRESETS.map(|(known, _)| known).join(", "),
        })
    }

    /// The same model with an embedding of another size. Where the output shares the embedding, what comes before it has that
    /// size too.
    #[must_use]
    pub fn with_embedding(mut self, size: usize) -> Self {
        self.embedding = size;
        if self.tied {
            self.dense = self.dense.map(|_| size);
            self.recurrent_projection = self.recurrent_projection.map(|_| size);
        }
        self
    }

    /// The same model for another vocabulary.
    #[must_use]
    pub fn with_vocabulary(self, vocabulary: usize) -> Self {
        Self { vocabulary, ..self }
    }
}

/// A function that makes a preset.
pub type Preset = fn() -> ModelConfig;

/// Every preset: its name and how it is made.
pub const PRESETS: [(&str, Preset); 10] = [
    ("tiny", tiny),
    ("mcmahan2018", mcmahan2018),
    ("mcmahan2018-gru", mcmahan2018_gru),
    ("mcmahan2018-char", mcmahan2018_char),
    ("gboard", gboard),
    ("gboard-tied", gboard_tied),
    ("so-nwp", so_nwp),
    ("zaremba650", zaremba650),
    ("ptb1500", ptb1500),
    ("shakespeare", shakespeare),
];

/// An LSTM over words with nothing else.
fn plain(vocabulary: usize, embedding: usize, hidden: usize) -> ModelConfig {
    ModelConfig {
        token: Token::Word,
        vocabulary,
        embedding,
        cell: Cell::Lstm,
        layers: 1,
        hidden,
        recurrent_projection: None,
        dense: None,
        tied: false,
        output_bias: false,
        unit_norm: false,
        dropout: None,
        user_context: None,
    }
}

/// For the first run: some 30,000 parameters.
fn tiny() -> ModelConfig {
    ModelConfig { dense: Some(16), tied: true, ..plain(1000, 16, 48) }
}

/// McMahan et al. 2018, appendix B.
fn mcmahan2018() -> ModelConfig {
    ModelConfig { dense: Some(96), tied: true, unit_norm: true, ..plain(10_000, 96, 256) }
}

/// The same with a GRU.
fn mcmahan2018_gru() -> ModelConfig {
    ModelConfig { cell: Cell::Gru, ..mcmahan2018() }
}

/// The same over characters.
fn mcmahan2018_char() -> ModelConfig {
    ModelConfig { token: Token::Character, ..mcmahan2018() }.with_vocabulary(128)
}

/// Hard et al. 2018 and Xu et al. 2023.
fn gboard() -> ModelConfig {
    ModelConfig { cell: Cell::Cifg, recurrent_projection: Some(96), ..plain(10_000, 96, 670) }
}

/// The same with one embedding.
fn gboard_tied() -> ModelConfig {
    ModelConfig { tied: true, ..gboard() }
}

/// Reddi et al. 2021: next-word prediction on Stack Overflow.
fn so_nwp() -> ModelConfig {
    ModelConfig { dense: Some(96), output_bias: true, ..plain(10_004, 96, 670) }
}

/// Zaremba et al. 2014, medium, as Popov et al. 2018 use it.
fn zaremba650() -> ModelConfig {
    let dropout = Some(Dropout { rate: 0.5, kind: DropoutKind::PerStep });
    ModelConfig { layers: 2, output_bias: true, dropout, ..plain(30_000, 650, 650) }
}

/// A large tied LSTM for the Penn Treebank (Inan et al. 2017).
fn ptb1500() -> ModelConfig {
    let dropout = Some(Dropout { rate: 0.65, kind: DropoutKind::Variational });
    ModelConfig { layers: 2, tied: true, output_bias: true, dropout, ..plain(10_000, 1500, 1500) }
}

/// McMahan et al. 2017: the next character of Shakespeare.
fn shakespeare() -> ModelConfig {
    ModelConfig { token: Token::Character, layers: 2, output_bias: true, ..plain(90, 8, 256) }
}
