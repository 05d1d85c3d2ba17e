//! Errors of the card and of CUDA.

use federated::engine::EngineError;
use privacy::workers::Undone;
use thiserror::Error;

/// The name of the engine, as people ask for it.
pub(crate) const NAME: &str = "cuda";

/// There is no card, or it cannot do this.
pub(crate) fn unavailable(problem: CudaError) -> EngineError {
    EngineError::Unavailable { engine: NAME, problem: problem.to_string() }
}

/// The card broke down.
pub(crate) fn failed(problem: CudaError) -> EngineError {
    EngineError::Failed { engine: NAME, problem: problem.to_string() }
}

/// Why the card did not do its part.
#[derive(Debug, Error)]
pub enum CudaError {
    /// No driver, no card, or a library that is missing.
    #[error("{0}")]
    Unavailable(String),
    /// A call failed.
    #[error("CUDA failed in {what}: {problem}")]
    Call {
        /// What was requested.
        what: &'static str,
        /// What the driver or the library said.
        problem: String,
    },
    /// A kernel does not compile.
    #[error("the kernels of {what} do not compile for this GPU: {log}")]
    Source {
        /// The source file.
        what: &'static str,
        /// What the compiler said.
        log: String,
    },
    /// Workers that left something out.
    #[error(transparent)]
    Undone(#[from] Undone),
    /// A model or a plan that the card cannot train.
    #[error("the GPU does not support this: {0}")]
    Refused(String),
    /// Not even the fewest users fit.
    #[error(
        "{usable_mib} MiB of the GPU's memory can be used now, but this model needs at least {needed_mib} MiB; {ADVICE}"
    )]
    Memory {
        /// Memory that may be used, in MiB.
        usable_mib: u64,
        /// Memory needed, in MiB.
        needed_mib: u64,
    },
    /// There was not as much memory as it seemed.
    #[error("the GPU has no memory left; {ADVICE}")]
    Full,
    /// A kernel compiler that is newer than the driver.
    #[error(
        "the CUDA compiler library (libnvrtc) is newer than the NVIDIA driver; update the driver, or install an older CUDA"
    )]
    Newer,
}

/// What helps where memory is short.
const ADVICE: &str = "end other programs on it (`nvidia-smi` lists them), use a smaller model, local.batch or local.unroll, or use --engine threads";

#[cfg(test)]
mod tests {
    use super::*;

    /// No message names a flag or a setting that does not exist.
    #[test]
    fn who_has_too_little_memory_is_told_what_helps() {
        for short in [CudaError::Memory { usable_mib: 10, needed_mib: 12 }, CudaError::Full] {
            let said = short.to_string();
            assert!(["nvidia-smi", "local.batch", "--engine threads"].iter().all(|help| said.contains(help)), "{said}");
        }
    }
}
