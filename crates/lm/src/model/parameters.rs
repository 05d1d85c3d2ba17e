//! The parameters of a model as one flat vector with named views.
//!
//! Federated training adds, clips and noises flat vectors; models read matrices. [`ParameterLayout`] says which part of
//! the vector is which matrix, in an order that never changes for a configuration. Clipping by layer and model files use
//! the same names.

use std::ops::Range;

use super::config::{ConfigError, Gate, ModelConfig};

/// The most parameters of a model: a GiB of them, which 32-bit machines can address too.
const MOST_PARAMETERS: usize = 1 << 28;

/// One parameter: a matrix (or a row) of the flat vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, as in model files.
    pub name: String,
    /// The role of the parameter.
    pub role: Role,
    /// Rows; 1 for a bias.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Where it starts in the flat vector.
    pub offset: usize,
}

impl Parameter {
    /// Its range in the flat vector, row by row.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.rows * self.columns
    }
}

/// The role of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A row for each entry of the vocabulary.
    Embedding,
    /// From what enters a layer and what it showed before (rows, in this order) to a gate.
    GateKernel {
        /// The layer.
        layer: usize,
        /// The gate.
        gate: Gate,
    },
    /// The bias of a gate.
    GateBias {
        /// The layer.
        layer: usize,
        /// The gate.
        gate: Gate,
    },
    /// From a layer's units to what it shows.
    Projection {
        /// The layer.
        layer: usize,
    },
    /// From what the last layer shows to the output.
    DenseKernel,
    /// The bias of the dense layer.
    DenseBias,
    /// A row for each entry of the vocabulary, where it is not the input's.
    OutputEmbedding,
    /// A bias for each entry of the vocabulary.
    OutputBias,
}

/// The positions of all parameters in the flat vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterLayout {
    parameters: Vec<Parameter>,
    len: usize,
}

impl ParameterLayout {
    /// The layout of a model.
    ///
    /// # Errors
    /// When the model cannot be built.
    pub fn new(config: &ModelConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let mut layout = Self { parameters: Vec::new(), len: 0 };
        layout.push("embedding".into(), Role::Embedding, config.vocabulary, config.embedding);
        for layer in 0..config.layers {
            layout.push_layer(config, layer);
        }
        if let Some(dense) = config.dense {
            layout.push("dense.kernel".into(), Role::DenseKernel, config.shown(), dense);
            layout.push("dense.bias".into(), Role::DenseBias, 1, dense);
        }
        if !config.tied {
            layout.push("output.embedding".into(), Role::OutputEmbedding, config.vocabulary, config.output());
        }
        if config.output_bias {
            layout.push("output.bias".into(), Role::OutputBias, 1, config.vocabulary);
        }
        if layout.len > MOST_PARAMETERS {
            return Err(ConfigError::Size { field: "parameters", most: MOST_PARAMETERS, got: layout.len });
        }
        Ok(layout)
    }

    fn push_layer(&mut self, config: &ModelConfig, layer: usize) {
        let rows = config.layer_input(layer) + config.shown();
        for gate in config.cell.gates().iter().copied() {
            let name = |part| format!("layers.{layer}.{}.{part}", gate.name());
            self.push(name("kernel"), Role::GateKernel { layer, gate }, rows, config.hidden);
            self.push(name("bias"), Role::GateBias { layer, gate }, 1, config.hidden);
        }
        if let Some(projection) = config.recurrent_projection {
            let name = format!("layers.{layer}.projection");
            self.push(name, Role::Projection { layer }, config.hidden, projection);
        }
    }

    fn push(&mut self, name: String, role: Role, rows: usize, columns: usize) {
        self.parameters.push(Parameter { name, role, rows, columns, offset: self.len });
        self.len = self.len.saturating_add(rows.saturating_mul(columns));
    }

    /// All parameters, in their order.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// The length of the flat vector.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The parameter with a role, where the model has one.
    #[must_use]
    pub fn find(&self, role: Role) -> Option<&Parameter> {
        self.parameters.iter().find(|p| p.role == role)
    }

    /// The range of the parameter with a role; empty if the model has none.
    #[must_use]
    pub fn range(&self, role: Role) -> Range<usize> {
        self.find(role).map_or(0..0, Parameter::range)
    }

    /// The embedding that the output is multiplied with: its own, or the input's where they are tied.
    #[must_use]
    pub fn output_embedding(&self) -> Range<usize> {
        match self.find(Role::OutputEmbedding) {
            Some(own) => own.range(),
            None => self.range(Role::Embedding),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts that the papers print, or that follow from what they say.
    #[test]
    fn presets_have_exactly_the_papers_sizes() {
        let sizes = [
            ("tiny", 29_264),
            ("mcmahan2018", 1_346_144),
            ("gboard", 2_372_250),
            ("gboard-tied", 1_412_250),
            ("so-nwp", 4_050_748),
            ("zaremba650", 45_795_200),
            ("ptb1500", 51_022_000),
            ("shakespeare", 820_522),
        ];
        let count = |config: &ModelConfig| ParameterLayout::new(config).unwrap().len();
        for (name, want) in sizes {
            assert_eq!(count(&ModelConfig::preset(name).unwrap()), want, "{name}");
        }
        let gboard = ModelConfig::preset("gboard").unwrap();
        assert_eq!(count(&gboard.clone().with_vocabulary(10_001)) - count(&gboard), 192);
        for (words, printed) in [(10_000, 2.4), (20_000, 4.4), (30_000, 6.4)] {
            let millions = count(&gboard.clone().with_vocabulary(words)) as f64 / 1e6;
            assert!((millions - printed).abs() < 0.2, "{millions} {printed}");
        }
        let mcmahan = ParameterLayout::new(&ModelConfig::preset("mcmahan2018").unwrap()).unwrap();
        assert_eq!(mcmahan.parameters().len(), 11, "McMahan et al. 2018: 11 parameter vectors");
    }

    /// On a 32-bit machine these sizes multiply to more than a number holds.
    #[test]
    fn a_model_that_no_memory_holds_is_refused() {
        let tiny = ModelConfig::preset("tiny").unwrap();
        let count = |embedding, vocabulary| {
            let config = ModelConfig { embedding, dense: Some(embedding), tied: true, ..tiny.clone() };
            ParameterLayout::new(&config.with_vocabulary(vocabulary)).map(|layout| layout.len())
        };
        assert!(count(96, 1 << 21).is_ok());
        for (embedding, vocabulary) in [(96, 1 << 22), (1 << 8, 1 << 24), (1 << 16, 1 << 24)] {
            let refused = count(embedding, vocabulary).unwrap_err();
            assert!(matches!(refused, ConfigError::Size { field: "parameters", .. }), "{refused}");
        }
    }

    #[test]
    fn views_cover_the_vector_without_gaps() {
        for (name, make) in super::super::config::PRESETS {
            let layout = ParameterLayout::new(&make()).unwrap();
            let mut next = 0;
            for parameter in layout.parameters() {
                assert_eq!(parameter.range().start, next, "{name}: {}", parameter.name);
                next = parameter.range().end;
            }
            assert_eq!(next, layout.len());
        }
    }
}
