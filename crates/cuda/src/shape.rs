//! The sizes that kernels are compiled for: model, batches, and users per chunk.

use device::local::LocalPlan;
use lm::{
    metrics::LISTED,
    model::config::{Cell, ModelConfig},
    predict::FIRST_WORD,
};

use crate::error::CudaError;

/// What widths are padded to: products by tensor cores read 16 bytes at a time, and tiles of our own are 16 wide.
const WIDTH: usize = 16;

/// A number rounded up to a multiple of another.
pub(crate) const fn padded(size: usize, to: usize) -> usize {
    size.div_ceil(to) * to
}

/// All sizes of a chunk. Padding is zero and stays zero: units that nothing enters show nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Users of a chunk.
    pub(crate) users: usize,
    /// B: sequences of a batch.
    pub(crate) rows: usize,
    /// T: tokens of each.
    pub(crate) unroll: usize,
    /// Entries of the vocabulary, and with padding.
    pub(crate) vocabulary: usize,
    pub(crate) entries: usize,
    /// Columns of the embedding, and with padding.
    pub(crate) embedding: usize,
    pub(crate) table: usize,
    /// Numbers that are known of a user.
    pub(crate) context: usize,
    pub(crate) cell: Cell,
    pub(crate) layers: usize,
    /// Units of a layer, padded.
    pub(crate) hidden: usize,
    /// What a layer shows, padded.
    pub(crate) shown: usize,
    /// Whether it is a projection of the units.
    pub(crate) projects: bool,
    pub(crate) dense: bool,
    /// What meets the vocabulary, padded.
    pub(crate) output: usize,
    pub(crate) tied: bool,
    pub(crate) output_bias: bool,
    pub(crate) unit_norm: bool,
    /// Whether the sequences of a batch are of different people, each with what is known of them.
    pub(crate) many_people: bool,
}

impl Shape {
    /// The shape of a model's chunk of so many users.
    ///
    /// # Errors
    /// What the card does not train.
    pub(crate) fn new(config: &ModelConfig, local: &LocalPlan, users: usize) -> Result<Self, CudaError> {
        let wide = |size| padded(size, WIDTH);
        let shape = Self {
            users,
            rows: local.batch,
            unroll: local.unroll,
            vocabulary: config.vocabulary,
            entries: wide(config.vocabulary),
            embedding: config.embedding,
            table: wide(config.embedding),
            context: config.user_context.unwrap_or(0),
            cell: config.cell,
            layers: config.layers,
            hidden: wide(config.hidden),
            shown: wide(config.shown()),
            projects: config.recurrent_projection.is_some(),
            dense: config.dense.is_some(),
            output: wide(config.output()),
            tied: config.tied,
            output_bias: config.output_bias,
            unit_norm: config.unit_norm,
            many_people: false,
        };
        let tokens = shape.rows.saturating_mul(shape.unroll);
        if tokens > 1 << 14 {
            return Err(CudaError::Refused(format!(
                "batches of {tokens} tokens are too large; local.batch times local.unroll must be at most 16,384"
            )));
        }
        Ok(shape)
    }

    /// N: tokens of a batch.
    pub(crate) const fn tokens(&self) -> usize {
        self.rows * self.unroll
    }

    /// Gates of a cell.
    pub(crate) const fn gates(&self) -> usize {
        self.cell.gates().len()
    }

    /// All gates of a layer, side by side.
    pub(crate) const fn wide(&self) -> usize {
        self.gates() * self.hidden
    }

    /// What enters a layer from below, padded.
    pub(crate) const fn enter(&self, layer: usize) -> usize {
        if layer == 0 { padded(self.embedding + self.context, WIDTH) } else { self.shown }
    }

    /// Numbers that are known of users in so many steps.
    pub(crate) const fn features(&self, steps: usize) -> usize {
        let people = if self.many_people { steps * self.rows } else { 1 };
        self.users * people * self.context
    }

    /// The numbers as the kernels know them; `length` is that of a user's weights, `parameters` that of the flat vector.
    pub(crate) fn defines(&self, length: usize, parameters: usize) -> Vec<(&'static str, usize)> {
        vec![
            ("USERS", self.users),
            ("ROWS", self.rows),
            ("UNROLL", self.unroll),
            ("TOKENS", self.tokens()),
            ("VOCABULARY", self.vocabulary),
            ("ENTRIES", self.entries),
            ("EMBEDDING", self.embedding),
            ("TABLE", self.table),
            ("CONTEXT", self.context),
            ("HIDDEN", self.hidden),
            ("GATES", self.gates()),
            ("SHOWN", self.shown),
            ("OUTPUT", self.output),
            ("UNIT_NORM", usize::from(self.unit_norm)),
            ("OUTPUT_BIAS", usize::from(self.output_bias)),
            ("TIED", usize::from(self.tied)),
            ("MANY_PEOPLE", usize::from(self.many_people)),
            ("FIRST_WORD", FIRST_WORD),
            ("LISTED", LISTED),
            ("LENGTH", length),
            ("PARAMETERS", parameters),
        ]
    }
}
