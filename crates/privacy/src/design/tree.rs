//! Noise on the nodes of a binary tree (Kairouz et al. 2021; Xu et al. 2023): no coefficients, and memory that grows with the
//! logarithm of the rounds.

use super::Design;
use crate::{
    event::NoiseMatrix,
    factorization::{Factorization, evaluate},
};

/// The tree.
pub(super) static TREE: Design = Design {
    name: "tree",
    title: "DP-FTRL with tree-aggregated noise",
    short: "tree noise",
    about: "tree-aggregated noise (Kairouz et al. 2021, Xu et al. 2023)",
    size: None,
    completes: true,
    proposed: true,
    fixed: Some(NoiseMatrix::Tree),
    make: |setting, _, _| {
        let matrix = NoiseMatrix::Tree;
        let errors = evaluate(&matrix, setting)?;
        Ok(Factorization { matrix, errors })
    },
};
