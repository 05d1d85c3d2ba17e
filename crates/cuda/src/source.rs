//! The kernels' sources, compiled by NVRTC when an engine is created, with the shape of its chunks as constants.

use cudarc::nvrtc::Ptx;
use device::local::{Algorithm, LocalPlan};
use lm::model::{
    config::{Cell, ModelConfig, PRESETS},
    parameters::ParameterLayout,
};

use crate::{card, error::CudaError, placement::Placement, shape::Shape};

/// Units of the LSTMs whose recurrence has kernels of our own.
pub(crate) const UNITS: usize = 256;

const SHARED: &str = include_str!("kernels/shared.cu");
const TENSOR: &str = include_str!("kernels/tensor.cu");

/// A source file: its name and its text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) name: &'static str,
    text: &'static str,
    /// What stands before it, after what all of them share.
    before: &'static str,
    /// Bytes of shared memory of a block that are asked for at a launch, forward and backward, where it has the two: the source computes
    /// them itself too, and does not compile where it comes to others.
    pub(crate) shared: [usize; 2],
}

/// One local step.
pub(crate) const LEARN: Source =
    Source { name: "learn", text: include_str!("kernels/learn.cu"), before: "", shared: [0; 2] };
/// From weights to integers.
pub(crate) const ENCODE: Source =
    Source { name: "encode", text: include_str!("kernels/encode.cu"), before: "", shared: [0; 2] };
/// The output over the whole vocabulary, with half-precision operands.
pub(crate) const VOCABULARY: Source =
    Source { name: "vocabulary", text: include_str!("kernels/vocabulary.cu"), before: TENSOR, shared: [0; 2] };
/// The recurrence over all tokens, its kernel on the chip.
pub(crate) const RECURRENCE: Source = Source {
    name: "recurrence",
    text: include_str!("kernels/recurrence.cu"),
    before: TENSOR,
    shared: [16 * 8 * 2 * 32 * 16 + 2 * 8 * 264 * 2, 16 * 16 * 32 * 16 + 8 * 520 * 2 + 3 * 128 * 8 * 4],
};

/// The same in float32.
pub(crate) const RECURRENCE_EXACT: Source = Source {
    name: "recurrence_exact",
    text: include_str!("kernels/recurrence_exact.cu"),
    before: "",
    shared: [4 * (2 * 8 * 256 + 8 * 8 * 128), 4 * (8 * 128 + 4 * 8 * 256 + 2 * 8 * 8 * 32)],
};
/// What a model says of each token.
pub(crate) const JUDGE: Source =
    Source { name: "judge", text: include_str!("kernels/judge.cu"), before: "", shared: [0; 2] };

/// The kernels of gates, moved.
pub(crate) const GATES: Source =
    Source { name: "gates", text: include_str!("kernels/gates.cu"), before: "", shared: [0; 2] };

/// Steps of one model, brought within a bound.
pub(crate) const BOUND: Source =
    Source { name: "bound", text: include_str!("kernels/bound.cu"), before: "", shared: [0; 2] };

const ALL: [Source; 8] = [LEARN, ENCODE, VOCABULARY, RECURRENCE, RECURRENCE_EXACT, GATES, JUDGE, BOUND];

impl Source {
    /// Compiles it for an architecture, such as `compute_90`.
    pub(crate) fn compile(self, defines: &[(&'static str, usize)], architecture: &str) -> Result<Ptx, CudaError> {
        let [forward, backward] = self.shared;
        let defines = [defines, &[("SHARED_FORWARD", forward), ("SHARED_BACKWARD", backward)]].concat();
        card::compile(self.name, &format!("{SHARED}{}{}", self.before, self.text), &defines, architecture)
    }
}

/// Compiles every kernel for an architecture, without a card: for every preset, or for the first that it fits. Gives how many sources were
/// compiled; none where there is no compiler here.
///
/// # Errors
/// What does not compile.
pub fn compile_all(architecture: &str, every_preset: bool) -> Option<Result<usize, CudaError>> {
    let presets = |source: Source| {
        let fitting = PRESETS.iter().map(|(_, make)| make()).filter(move |config| fits(config, &source));
        fitting.take(if every_preset { usize::MAX } else { 1 })
    };
    card::has_compiler().then(|| {
        let each = ALL.into_iter().flat_map(|source| presets(source).map(move |config| (config, source)));
        each.map(|(config, source)| compile_for(&config, source, architecture))
            .try_fold(0, |all, one| one.map(|()| all + 1))
    })
}

/// Whether a source must be compiled for a model: the passes over the vocabulary are for outputs that fit a block, recurrences on the chip
/// for LSTMs of one size, gates are moved at once where all of them see the same state, and what encodes or bounds knows of models only
/// how long they are.
fn fits(config: &ModelConfig, source: &Source) -> bool {
    match source.name {
        name if name == VOCABULARY.name => config.output() <= 128,
        name if name.starts_with(RECURRENCE.name) => config.cell == Cell::Lstm && config.hidden == UNITS,
        name if name == GATES.name => config.cell != Cell::Gru,
        name if name == ENCODE.name || name == BOUND.name => PRESETS.first().is_some_and(|(_, make)| make() == *config),
        _ => true,
    }
}

fn compile_for(config: &ModelConfig, source: Source, architecture: &str) -> Result<(), CudaError> {
    let local = LocalPlan {
        algorithm: Algorithm::FedAvg { epochs: 1 },
        batch: 8,
        unroll: 10,
        most_tokens: None,
        greedy: false,
        update_penalty: 0.0,
        finetune: None,
    };
    let refused = |problem: lm::model::config::ConfigError| CudaError::Refused(problem.to_string());
    let layout = ParameterLayout::new(config).map_err(refused)?;
    let shape = Shape::new(config, &local, 100)?;
    let placement = Placement::new(config, &layout, &shape);
    source.compile(&shape.defines(placement.length, layout.len()), architecture).map(drop)
}
