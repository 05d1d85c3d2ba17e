//! The kernels' sources, compiled by NVRTC when an engine is created, with the shape of its chunks as constants.
//! `compiled` compiles all of them where there is no card.

use cudarc::nvrtc::Ptx;

use crate::{card, error::CudaError};

/// Units of the LSTMs whose recurrence has kernels of our own.
pub(crate) const UNITS: usize = 256;

const SHARED: &str = include_str!("kernels/shared.cu");
const TENSOR: &str = include_str!("kernels/tensor.cu");

/// A source file: its name and its text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
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

impl Source {
    /// Compiles it for an architecture, such as `compute_90`.
    pub(crate) fn compile(self, defines: &[(&'static str, usize)], architecture: &str) -> Result<Ptx, CudaError> {
        let [forward, backward] = self.shared;
        let defines = [defines, &[("SHARED_FORWARD", forward), ("SHARED_BACKWARD", backward)]].concat();
        card::compile(self.name, &format!("{SHARED}{}{}", self.before, self.text), &defines, architecture)
    }
}

/// The kernels of a source, by name: a struct with a field for each, what loads them, and their names for who only compiles them.
macro_rules! kernels {
    ($(#[$doc:meta])* $vis:vis struct $name:ident: $($kernel:ident),+) => {
        $(#[$doc])*
        $vis struct $name {
            $($kernel: $crate::card::Kernel,)+
        }

        impl $name {
            $vis const NAMES: &'static [&'static str] = &[$(stringify!($kernel)),+];

            $vis fn load(
                card: &$crate::card::Card,
                source: $crate::source::Source,
                defines: &[(&'static str, usize)],
                architecture: &str,
            ) -> Result<Self, $crate::error::CudaError> {
                let missing = || $crate::error::CudaError::Refused(format!("a kernel of {} is missing", source.name));
                let mut loaded = card.load(source.compile(defines, architecture)?, Self::NAMES)?.into_iter();
                Ok(Self { $($kernel: loaded.next().ok_or_else(missing)?,)+ })
            }
        }
    };
}
pub(crate) use kernels;
