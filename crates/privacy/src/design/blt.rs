//! The buffered linear Toeplitz matrix with the least error (McMahan et al. 2024; cited from memory): nearly the error of the best
//! matrix, with a few buffers of memory.

use super::{Design, Size, SizeOf};
use crate::factorization::optimise_blt;

/// Buffers by default: more gain next to nothing.
const BUFFERS: usize = 4;

/// BLT noise.
pub(super) static BLT: Design = Design {
    name: "blt",
    title: "DP-FTRL with buffered linear Toeplitz noise",
    short: "BLT noise",
    about: "noise correlated by a buffered linear Toeplitz matrix",
    size: Some(Size {
        of: SizeOf::Buffers,
        default: Some(BUFFERS),
        usual: BUFFERS,
        advice: "give the number of buffers; usually 3 to 5",
        proposed: |_| BUFFERS,
    }),
    completes: false,
    proposed: true,
    fixed: None,
    make: optimise_blt,
};
