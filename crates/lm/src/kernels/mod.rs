//! Portable vector code: matrix products, exponentials, the elementwise parts of cells, comparisons.
//!
//! Every kernel is generic over [`pulp::Simd`] and runs on the path that [`KernelPath`] names. A path gives the same bits
//! every time; different paths differ in the last digits, since their vectors are summed in another order.

pub(crate) mod activation;
pub(crate) mod cell;
pub(crate) mod compare;
pub(crate) mod gru;
pub(crate) mod matrix;
pub mod peak;
mod prefetch;
pub(crate) mod rows;
pub(crate) mod softmax;
pub(crate) mod transpose;

use pulp::{Simd, WithSimd};
use serde::{Deserialize, Serialize};

/// Which instructions the kernels use. Recorded with a run: results repeat on the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelPath {
    /// One number at a time; runs everywhere.
    Scalar,
    /// 256-bit vectors of x86-64.
    Avx2,
    /// 512-bit vectors of x86-64.
    Avx512,
    /// 128-bit vectors of aarch64.
    Neon,
    /// 128-bit vectors of WebAssembly.
    Simd128,
}

impl KernelPath {
    /// Every path, best first.
    pub const ALL: [Self; 5] = [Self::Avx512, Self::Avx2, Self::Neon, Self::Simd128, Self::Scalar];

    /// The best path of this machine.
    #[must_use]
    pub fn best() -> Self {
        Self::ALL.into_iter().find(|path| path.is_available()).unwrap_or(Self::Scalar)
    }

    /// Whether this machine has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        self.run(Nothing).is_some()
    }

    /// The name in flags and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
            Self::Simd128 => "simd128",
        }
    }

    /// Runs an operation that gives nothing back, on a path that is known to be there.
    pub(crate) fn compute<W: WithSimd<Output = ()>>(self, op: W) {
        let done = self.run(op);
        debug_assert!(done.is_some(), "whoever holds a model has checked its path");
    }

    /// Runs an operation on this path; none if the machine does not have it.
    pub(crate) fn run<W: WithSimd>(self, op: W) -> Option<W::Output> {
        match self {
            Self::Scalar => Some(Simd::vectorize(pulp::Scalar::new(), op)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => pulp::x86::V3::try_new().map(|simd| Simd::vectorize(simd, op)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => pulp::x86::V4::try_new().map(|simd| Simd::vectorize(simd, op)),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => pulp::aarch64::Neon::try_new().map(|simd| Simd::vectorize(simd, op)),
            #[cfg(target_family = "wasm")]
            Self::Simd128 => pulp::wasm::Simd128::try_new().map(|simd| Simd::vectorize(simd, op)),
            #[allow(unreachable_patterns, reason = "which paths are left over depends on the target")]
            _ => None,
        }
    }
}

struct Nothing;

impl WithSimd for Nothing {
    type Output = ();
    fn with_simd<S: Simd>(self, _: S) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On WebAssembly vectors are chosen when compiling: this fails if the tests were built without them.
    #[test]
    fn phones_and_browsers_have_their_vectors() {
        let best = KernelPath::best();
        assert!(best.is_available() && KernelPath::Scalar.is_available());
        if cfg!(target_arch = "aarch64") {
            assert_eq!(best, KernelPath::Neon);
        }
        if cfg!(target_family = "wasm") {
            assert_eq!(best, KernelPath::Simd128, "build with RUSTFLAGS=\"-C target-feature=+simd128\"");
        }
    }
}
