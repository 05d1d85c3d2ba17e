//! The privacy-loss accountant against the tight reference: never below it, and hardly above.

mod common;

use common::{delta, epsilon, poisson, rows};
use keyhush_privacy::AccountantKind;
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    table: String,
    population: u64,
    cohort: u64,
    noise_multiplier: f64,
    rounds: u64,
    sampling_rate: f64,
    delta: f64,
    tight: f64,
    refine_diff: f64,
    rdp_continuous: f64,
}

impl Reference {
    fn what(&self) -> String {
        let Self { table, population, cohort, noise_multiplier, rounds, delta, tight, .. } = self;
        format!("{table}: K {population} C {cohort} z {noise_multiplier} T {rounds} delta {delta:e} tight {tight}")
    }
}

fn cells() -> Vec<Reference> {
    let cells: Vec<Reference> = rows("tight-reference/poisson.json");
    assert_eq!(cells.len(), 75);
    cells
}

#[test]
fn pld_is_never_below_tight_and_within_a_thousandth_of_it() {
    for cell in cells() {
        let run = poisson(cell.cohort as f64 / cell.population as f64, cell.noise_multiplier, cell.rounds);
        let got = AccountantKind::Pld.judge(&run, delta(cell.delta)).unwrap();
        let epsilon = got.epsilon.get();
        let slack = cell.refine_diff + 1e-9 * cell.tight;
        assert!(epsilon >= cell.tight - slack, "{}: {epsilon} is below", cell.what());
        assert!(epsilon <= cell.tight + (1e-3 * cell.tight).max(1e-5), "{}: {epsilon} is far above", cell.what());
        let lower = got.epsilon_lower.expect("pld has a lower bound").get();
        assert!(lower <= cell.tight + slack, "{}: the lower bound {lower} is above", cell.what());
        assert!(lower <= epsilon, "{}: {lower} {epsilon}", cell.what());
    }
}

#[test]
fn best_is_pld_here_and_never_above_another() {
    for cell in cells() {
        let run = poisson(cell.sampling_rate, cell.noise_multiplier, cell.rounds);
        let best = AccountantKind::Best.judge(&run, delta(cell.delta)).unwrap();
        assert_eq!(best.accountant, AccountantKind::Pld, "{}", cell.what());
        assert!(best.epsilon.get() <= cell.rdp_continuous, "{}", cell.what());
    }
}

#[derive(Deserialize)]
struct DpAccounting {
    sampling_rate: f64,
    noise_multiplier: f64,
    rounds: u64,
    delta: f64,
    pld: f64,
}

/// Theirs is within a lattice step of the truth, and coarse where the sampling rate is tiny.
#[test]
fn pld_is_never_far_above_dp_accounting() {
    for c in rows::<DpAccounting>("dp_accounting-0.6.0/poisson.json") {
        let got = epsilon(AccountantKind::Pld, &poisson(c.sampling_rate, c.noise_multiplier, c.rounds), c.delta);
        assert!(got <= c.pld * (1.0 + 1e-4) + 1e-5, "q {} rounds {}: {got} {}", c.sampling_rate, c.rounds, c.pld);
    }
}
