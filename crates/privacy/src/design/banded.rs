//! The banded Toeplitz matrix with the least error (Choquette-Choo et al. 2023, BandMF; cited from memory).

use super::{Design, Size, SizeOf};
use crate::factorization::optimise_banded;

/// Bands that are proposed, at most: each costs the memory of a model.
const MOST_BANDS: u64 = 32;

/// As many bands as participations are apart, which is where more stop to help.
pub(super) fn as_far_apart(distance: u64) -> usize {
    usize::try_from(distance.min(MOST_BANDS)).unwrap_or(1)
}

/// Banded noise.
pub(super) static BANDED: Design = Design {
    name: "banded",
    title: "DP-FTRL with banded matrix noise",
    short: "banded noise",
    about: "noise correlated by a banded matrix",
    size: Some(Size {
        of: SizeOf::Bands,
        default: None,
        usual: 16,
        advice: "give the number of bands; usually the distance between two participations",
        proposed: as_far_apart,
    }),
    completes: false,
    proposed: true,
    fixed: None,
    make: optimise_banded,
};
