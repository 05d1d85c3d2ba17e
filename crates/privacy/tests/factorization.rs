//! Optimised strategy matrices against jax_privacy's, against simple ones, and against their own rules.
//!
//! The comparison is of squared errors, each side's own objective: ours as evaluated here, theirs as jax_privacy
//! evaluates its own result. Ours may be at most 0.5 % above. Every test here runs the real search; the whole grid
//! (n of 500, 2000, 4000) is for `cargo xtask test --long`.

use crate::shorthand::{assert_close, rows, separated};
use keyhush_privacy::{
    NoiseMatrix, Participation, Segment,
    factorization::{
        Errors, Factorization, FactorizationError, MAX_BUFFERS, MAX_ROUNDS, Objective, Setting, evaluate, independent,
        optimise_banded, optimise_blt, quantise,
    },
    sensitivity::of_matrix,
};
use proptest::prelude::*;
use serde::Deserialize;

/// How far above the peer's error ours may be.
const ALLOWED: f64 = 1.005;

/// A cell of the grid, with jax_privacy's answer.
#[derive(Debug, Deserialize)]
struct Cell {
    rounds: u64,
    distance: u64,
    max_participations: u64,
    objective: String,
    buffers: Option<usize>,
    bands: Option<usize>,
    #[serde(default)]
    buffer_decay: Vec<f64>,
    #[serde(default)]
    output_scale: Vec<f64>,
    squared_sensitivity: f64,
    max_squared_error: f64,
    mean_squared_error: f64,
}

impl Cell {
    fn setting(&self) -> Setting {
        Setting::new(self.rounds, separated(self.distance, self.max_participations)).expect("a legal setting")
    }

    fn ours(&self) -> Factorization {
        let objective = if self.objective == "max" { Objective::Max } else { Objective::Mean };
        match (self.buffers, self.bands) {
            (Some(buffers), None) => optimise_blt(&self.setting(), buffers, objective).expect("a search"),
            (None, Some(bands)) => optimise_banded(&self.setting(), bands, objective).expect("a search"),
            _ => panic!("{self:?} is neither a BLT nor banded"),
        }
    }

    /// Our squared error over theirs.
    fn ratio(&self) -> f64 {
        let errors = self.ours().errors;
        match self.objective.as_str() {
            "max" => errors.max_squared / self.max_squared_error,
            _ => errors.mean_squared / self.mean_squared_error,
        }
    }
}

fn grid() -> Vec<Cell> {
    let cells: Vec<Cell> = rows("jax_privacy-2.0.0/factorization.json");
    assert!(cells.len() >= 120);
    cells
}

fn setting(rounds: u64, distance: u64, max_participations: u64) -> Setting {
    Setting::new(rounds, separated(distance, max_participations)).expect("a legal setting")
}

fn of(errors: &Errors, objective: Objective) -> f64 {
    if objective == Objective::Max { errors.max_squared } else { errors.mean_squared }
}

/// Rule P5: what the sensitivity relies on. Rule P4: on the grid, starting with exactly 1.
fn assert_legal(found: &Factorization, setting: &Setting) {
    let grid = |bits: u32| (1u64 << bits) as f64;
    match &found.matrix {
        NoiseMatrix::Banded { coefficients } => {
            assert_eq!(coefficients[0], 1.0);
            assert!(coefficients.windows(2).all(|w| w[1] <= w[0] && w[1] >= 0.0), "{coefficients:?}");
            assert!(coefficients.iter().all(|c| libm::trunc(c * grid(24)) == c * grid(24)));
        }
        NoiseMatrix::Blt { buffer_decay, output_scale } => {
            assert!(buffer_decay.iter().all(|d| (0.0..1.0).contains(d)), "{buffer_decay:?}");
            assert!(buffer_decay.windows(2).all(|w| w[1] <= w[0]), "{buffer_decay:?}");
            assert!(output_scale.iter().all(|w| *w >= 0.0) && output_scale.iter().sum::<f64>() <= 1.0);
            assert!(buffer_decay.iter().chain(output_scale).all(|c| libm::trunc(c * grid(52)) == c * grid(52)));
        }
        NoiseMatrix::Tree => panic!("nobody asked for a tree"),
    }
    let segments = [Segment::of(setting.rounds())];
    let sensitivity = of_matrix(&found.matrix, &segments, &setting.participation()).expect("a legal matrix");
    assert!(sensitivity.attained, "the sensitivity is exact, not a bound");
    assert_eq!(found.errors.squared_sensitivity, sensitivity.squared);
    assert_eq!(evaluate(&found.matrix, setting).as_ref(), Ok(&found.errors));
}

#[test]
fn blt_evaluations_equal_jax_privacy() {
    let blts: Vec<Cell> = grid().into_iter().filter(|c| !c.buffer_decay.is_empty()).collect();
    assert!(blts.len() >= 90);
    for cell in blts {
        let (buffer_decay, output_scale) = (cell.buffer_decay.clone(), cell.output_scale.clone());
        let got = evaluate(&NoiseMatrix::Blt { buffer_decay, output_scale }, &cell.setting()).unwrap();
        let what = format!("{cell:?}");
        assert_close(got.squared_sensitivity, cell.squared_sensitivity, 1e-11, &what);
        assert_close(got.max_squared, cell.max_squared_error, 1e-11, &what);
        assert_close(got.mean_squared, cell.mean_squared_error, 1e-11, &what);
    }
}

#[test]
fn short_runs_are_as_good_as_jax_privacy() {
    for cell in grid().iter().filter(|c| c.rounds == 500) {
        let ratio = cell.ratio();
        assert!(ratio <= ALLOWED, "{ratio} for {cell:?}");
    }
}

#[test]
#[ignore = "half a minute"]
fn every_cell_is_as_good_as_jax_privacy() {
    for cell in grid() {
        let ratio = cell.ratio();
        assert!(ratio <= ALLOWED, "{ratio} for {cell:?}");
    }
}

#[test]
fn p5_what_is_found_is_legal_and_no_worse_than_simple_noise() {
    for (rounds, distance, count) in [(1, 1, 1), (2, 1, 2), (60, 60, 1), (60, 7, 3), (60, 7, 60), (60, 1, 60)] {
        let setting = setting(rounds, distance, count);
        for objective in [Objective::Max, Objective::Mean] {
            let simple = of(&independent(&setting), objective);
            for buffers in [1, 3] {
                let found = optimise_blt(&setting, buffers, objective).unwrap();
                assert_legal(&found, &setting);
                assert!(of(&found.errors, objective) <= simple * (1.0 + 1e-6), "{setting:?} {found:?} {simple}");
            }
            for bands in [1, 2, 7, 40] {
                if bands as u64 <= rounds {
                    let found = optimise_banded(&setting, bands, objective).unwrap();
                    assert_legal(&found, &setting);
                    assert!(of(&found.errors, objective) <= simple * (1.0 + 1e-6), "{setting:?} {found:?} {simple}");
                }
            }
        }
    }
}

#[test]
fn more_buffers_and_more_bands_are_never_worse() {
    for (distance, count) in [(200, 1), (20, 10), (20, 3)] {
        let setting = setting(200, distance, count);
        for objective in [Objective::Max, Objective::Mean] {
            let blt = |buffers| of(&optimise_blt(&setting, buffers, objective).unwrap().errors, objective);
            let banded = |bands| of(&optimise_banded(&setting, bands, objective).unwrap().errors, objective);
            for errors in [[1, 2, 3, 4].map(blt), [1, 4, 20, 60].map(banded)] {
                assert!(
                    errors.windows(2).all(|w| w[1] <= w[0] * (1.0 + 2e-5)),
                    "{setting:?} {objective:?}: {errors:?}"
                );
            }
        }
    }
}

#[test]
fn each_objective_is_served_best_by_its_own_search() {
    let setting = setting(300, 50, 6);
    let [max, mean] = [Objective::Max, Objective::Mean].map(|o| optimise_blt(&setting, 3, o).unwrap().errors);
    assert!(max.max_squared < mean.max_squared && mean.mean_squared < max.mean_squared);
}

/// For one participation and as many bands as rounds, the column of (1 - x)^(-1/2) is the best (Fichtenberger et al.
/// 2023; Dvijotham et al. 2024): its last squared error is the square of the sum of its squared coefficients.
#[test]
fn one_participation_reaches_the_known_optimum() {
    let rounds = 256;
    let mut c = 1.0;
    let mut squares = 1.0;
    for i in 1..rounds {
        c *= (2 * i - 1) as f64 / (2 * i) as f64;
        squares += c * c;
    }
    let setting = Setting::new(rounds, Participation::Once).unwrap();
    let full = optimise_banded(&setting, rounds as usize, Objective::Max).unwrap();
    assert_close(full.errors.max_squared, squares * squares, 1e-6, "all bands");
    let blt = optimise_blt(&setting, 5, Objective::Max).unwrap();
    assert!(blt.errors.max_squared >= squares * squares && blt.errors.max_squared < 1.0001 * squares * squares);
}

/// Everyone in every round: one user moves everything all the time, and nothing beats independent noise.
#[test]
fn without_separation_noise_is_independent() {
    let setting = setting(100, 1, 100);
    let want = independent(&setting).mean_squared;
    assert_close(optimise_blt(&setting, 2, Objective::Mean).unwrap().errors.mean_squared, want, 1e-6, "BLT");
    assert_close(optimise_banded(&setting, 9, Objective::Mean).unwrap().errors.mean_squared, want, 1e-6, "banded");
}

#[test]
fn correlated_noise_beats_the_tree() {
    let setting = setting(500, 100, 5);
    let tree = evaluate(&NoiseMatrix::Tree, &setting).unwrap();
    let blt = optimise_blt(&setting, 3, Objective::Max).unwrap().errors;
    let banded = optimise_banded(&setting, 100, Objective::Max).unwrap().errors;
    assert!(blt.max() < 0.9 * tree.max() && banded.max() < blt.max(), "{tree:?} {blt:?} {banded:?}");
}

#[test]
fn the_same_question_has_the_same_answer() {
    let setting = setting(150, 30, 5);
    let twice = || (optimise_blt(&setting, 3, Objective::Max), optimise_banded(&setting, 20, Objective::Mean));
    assert_eq!(twice(), twice());
}

#[test]
fn what_cannot_be_meant_is_refused() {
    assert_eq!(Setting::new(0, Participation::Once), Err(FactorizationError::Rounds { got: 0 }));
    let too_long = MAX_ROUNDS + 1;
    assert_eq!(Setting::new(too_long, Participation::Once), Err(FactorizationError::Rounds { got: too_long }));
    let sampled = Participation::FixedSize { population: 10, cohort: 2 };
    assert_eq!(Setting::new(10, sampled), Err(FactorizationError::ParticipationKind));
    assert!(matches!(Setting::new(10, separated(1, 0)), Err(FactorizationError::Participation(_))));

    let setting = Setting::new(10, Participation::Once).unwrap();
    for buffers in [0, MAX_BUFFERS + 1] {
        let refused = optimise_blt(&setting, buffers, Objective::Max);
        assert_eq!(refused, Err(FactorizationError::Buffers { got: buffers }));
    }
    for bands in [0, 11] {
        let refused = optimise_banded(&setting, bands, Objective::Max);
        assert_eq!(refused, Err(FactorizationError::Bands { got: bands, rounds: 10 }));
    }
    let long = Setting::new(MAX_ROUNDS, Participation::Once).unwrap();
    assert!(matches!(optimise_banded(&long, 4000, Objective::Max), Err(FactorizationError::Work { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_setting_gives_a_legal_matrix(
        rounds in 1u64..80,
        distance in 1u64..90,
        count in 1u64..20,
        buffers in 1usize..4,
        bands in 1usize..30,
        max in any::<bool>(),
    ) {
        let setting = setting(rounds, distance, count);
        let objective = if max { Objective::Max } else { Objective::Mean };
        assert_legal(&optimise_blt(&setting, buffers, objective).unwrap(), &setting);
        assert_legal(&optimise_banded(&setting, bands.min(rounds as usize), objective).unwrap(), &setting);
    }

    /// A coarser grid costs little, and what it costs is told.
    #[test]
    fn coarser_grids_cost_little(bits in 16u32..=52, distance in 5u64..60) {
        let setting = setting(120, distance, 4);
        let fine = optimise_banded(&setting, 5, Objective::Mean).unwrap();
        let coarse = evaluate(&quantise(&fine.matrix, bits), &setting).unwrap();
        prop_assert!((coarse.mean_squared / fine.errors.mean_squared - 1.0).abs() < 1e-3);
    }
}
