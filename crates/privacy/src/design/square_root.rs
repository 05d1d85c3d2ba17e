//! The square root of the matrix of prefix sums, cut to so many bands (Fichtenberger et al. 2023; banded: Kalinin and Lampert 2024;
//! cited from memory).
//!
//! Its coefficients are known in closed form, `c_k = binom(2 k, k) / 4^k`: 1, 1/2, 3/8, ... They start with 1 and fall, so the
//! sensitivity is exact (rule P5), and nothing has to be searched for. It is the yardstick of the papers; `banded`, which is searched for,
//! has a little less noise.

use super::{Design, Size, SizeOf, banded::as_far_apart};
use crate::factorization::{Factorization, FactorizationError, Setting, of_column};

/// Square-root noise.
pub(super) static SQUARE_ROOT: Design = Design {
    name: "square-root",
    title: "DP-FTRL with banded square-root noise",
    short: "square-root noise",
    about: "noise correlated by the banded square root of the prefix sums",
    size: Some(Size {
        of: SizeOf::Bands,
        default: None,
        usual: 16,
        advice: "give the number of bands; usually the distance between two participations",
        proposed: as_far_apart,
    }),
    completes: false,
    proposed: false,
    fixed: None,
    make: |setting, bands, _| make(setting, bands),
};

fn make(setting: &Setting, bands: usize) -> Result<Factorization, FactorizationError> {
    of_column(setting, bands, |bands| {
        let next = |c: &mut f64, k: usize| {
            let this = *c;
            *c *= (2 * k + 1) as f64 / (2 * k + 2) as f64;
            Some(this)
        };
        (0..bands).scan(1.0, next).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::NoiseMatrix,
        factorization::{Objective, optimise_banded},
        participation::Participation,
        units::MinSeparation,
    };

    /// By definition: the column times itself is that of the prefix sums, all ones.
    #[test]
    fn it_is_the_square_root_of_the_prefix_sums() {
        let setting = Setting::new(40, Participation::Once).unwrap();
        let NoiseMatrix::Banded { coefficients: c } = make(&setting, 40).unwrap().matrix else { panic!("a column") };
        for n in 0..40 {
            let squared: f64 = (0..=n).map(|k| c[k] * c[n - k]).sum();
            assert!((squared - 1.0).abs() < 1e-6, "{n}: {squared}");
        }
    }

    /// Never better than the best of its form, and not much worse.
    #[test]
    fn the_best_banded_matrix_is_a_little_better() {
        for (rounds, distance, bands) in [(200, 20, 20), (500, 50, 10), (64, 64, 64)] {
            let separation = MinSeparation::distance(distance).unwrap();
            let limits = Participation::MinSeparation { separation, max_participations: 4 };
            let setting = Setting::new(rounds, limits).unwrap();
            let best = optimise_banded(&setting, bands, Objective::Mean).unwrap().errors.mean();
            let root = make(&setting, bands).unwrap().errors.mean();
            assert!(best <= root * 1.0001 && root < best * 1.3, "{rounds}: {best} and {root}");
        }
    }
}
