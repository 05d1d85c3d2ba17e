//! The privacy-loss accountant against the tight reference: never below it, and hardly above.

use crate::shorthand::{delta, epsilon, gaussian, poisson, rows};
use keyhush_privacy::{AccountantKind, PrivacyEvent};
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

#[derive(Deserialize)]
struct Contour {
    sampling_rate: f64,
    noise_multiplier: f64,
    rounds: u64,
    delta: f64,
    epsilon: f64,
}

/// The true epsilon and how far it may be from that, by contour inversion where that converges.
fn truth(cell: &Reference, contours: &[Contour]) -> (f64, f64) {
    let same = |c: &&Contour| {
        (c.sampling_rate, c.noise_multiplier, c.rounds, c.delta)
            == (cell.sampling_rate, cell.noise_multiplier, cell.rounds, cell.delta)
    };
    contours
        .iter()
        .find(same)
        .map_or((cell.tight, cell.refine_diff + 1e-9 * cell.tight), |c| (c.epsilon, 1e-8 * c.epsilon))
}

#[test]
fn the_two_references_agree() {
    let contours: Vec<Contour> = rows("contour-inversion/poisson.json");
    assert!(contours.len() >= 30);
    for cell in cells() {
        let (truth, _) = truth(&cell, &contours);
        assert!((truth - cell.tight).abs() <= 3.0 * cell.refine_diff + 2e-6 * cell.tight, "{}: {truth}", cell.what());
    }
}

#[test]
fn pld_is_never_below_the_truth_and_within_a_thousandth_of_it() {
    let contours: Vec<Contour> = rows("contour-inversion/poisson.json");
    for cell in cells() {
        let run = poisson(cell.cohort as f64 / cell.population as f64, cell.noise_multiplier, cell.rounds);
        let got = AccountantKind::Pld.judge(&run, delta(cell.delta)).unwrap();
        let (epsilon, (truth, slack)) = (got.epsilon.get(), truth(&cell, &contours));
        assert!(epsilon >= truth - slack, "{}: {epsilon} is below {truth}", cell.what());
        for reference in [truth, cell.tight] {
            let far = (1e-3 * reference).max(1e-5);
            assert!((epsilon - reference).abs() <= far, "{}: {epsilon} is far from {reference}", cell.what());
        }
        let lower = got.epsilon_lower.expect("pld has a lower bound").get();
        assert!(lower <= truth + slack, "{}: the lower bound {lower} is above {truth}", cell.what());
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
        assert!(got <= c.pld * (1.0 + 5e-4) + 1e-5, "q {} rounds {}: {got} {}", c.sampling_rate, c.rounds, c.pld);
    }
}

#[derive(Deserialize)]
struct Composed {
    parts: Vec<Part>,
    mu: Option<f64>,
    group: u32,
    delta: f64,
    epsilon: f64,
}

#[derive(Deserialize)]
struct Part {
    sampling_rate: f64,
    noise_multiplier: f64,
    rounds: u64,
}

#[test]
fn unlike_rounds_and_groups_are_bounded_from_both_sides() {
    let runs: Vec<Composed> = rows("contour-inversion/composed.json");
    assert_eq!(runs.len(), 40);
    for run in &runs {
        let parts = run.parts.iter().map(|p| poisson(p.sampling_rate, p.noise_multiplier, p.rounds));
        let events = parts.chain(run.mu.map(|mu| gaussian(1.0 / mu))).collect();
        let event = PrivacyEvent::Compose { events };
        let got = AccountantKind::Pld.judge_group(&event, delta(run.delta), run.group).unwrap();
        let (epsilon, truth) = (got.epsilon.get(), run.epsilon);
        let what = format!("{event:?} for {}: {epsilon} {:?} {truth}", run.group, got.epsilon_lower);
        assert!(epsilon >= truth * (1.0 - 1e-9), "below the truth: {what}");
        assert!(epsilon <= truth * (1.0 + 1e-3) + 1e-5, "far above the truth: {what}");
        let lower = got.epsilon_lower.expect("pld has a lower bound").get();
        assert!(lower <= truth * (1.0 + 1e-9), "the lower bound is above the truth: {what}");
        if run.group == 1 {
            let renyi = AccountantKind::Rdp.judge(&event, delta(run.delta)).unwrap();
            assert!(renyi.epsilon.get() >= truth, "{what}");
        }
    }
}
