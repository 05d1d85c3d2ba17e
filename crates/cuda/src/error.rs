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
    /// Not even one chunk fits.
    #[error(
        "the GPU has {free_mib} MiB free, but {users} users of this model need {needed_mib} MiB; use a smaller chunk or model"
    )]
    Memory {
        /// Free memory, in MiB.
        free_mib: u64,
        /// Memory needed, in MiB.
        needed_mib: u64,
        /// The number of users per chunk.
        users: usize,
    },
}
