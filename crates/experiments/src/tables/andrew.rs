//! Andrew et al. 2021, Table 1: the cohorts that epsilon 5 needs.

use privacy::{
    AccountantKind, Adjacency, Delta, Epsilon, NoiseMultiplier, Participation, PrivacyEvent, calibrate::Target,
};
use serde_json::json;

use super::{Section, TableError, cell, strings};

const POPULATION: u64 = 1_000_000;
/// The cohort at which Figure 7 gives the noise that a task bears.
const REFERENCE_COHORT: f64 = 100.0;

/// Task, rounds, the noise that it bears at a cohort of 100 (Figure 7), and the printed m and z.
const ROWS: [(&str, u64, f64, u64, f64); 6] = [
    ("CIFAR-100", 4000, 0.03, 2231, 0.669),
    ("EMNIST-CR", 1500, 0.1, 513, 0.513),
    ("EMNIST-AE", 3000, 0.03, 2197, 0.659),
    ("SHAKESPEARE", 1200, 0.1, 510, 0.510),
    ("SO-NWP", 1500, 0.01, 13_958, 1.396),
    ("SO-LR", 1500, 0.01, 13_958, 1.396),
];

pub(super) fn tables() -> Result<Vec<Section>, TableError> {
    let mut section = Section {
        title: "Andrew et al. 2021, Table 1: the smallest cohort m with epsilon <= 5 at delta = 10^-6.6, 10^6 users"
            .into(),
        header: strings(["task", "rounds", "z at 100", "printed m", "m", "z", "epsilon"]),
        rows: Vec::new(),
        notes: strings([
            "fixed-size sampling by rdp, with z / m held fixed; z is given to the accountant as the paper does, relative",
            "to C. Under replace-one adjacency the sensitivity is 2C, and this z understates epsilon (rule P1 in docs/PRIVACY.md).",
        ]),
        cells: Vec::new(),
    };
    let target = Target {
        epsilon: Epsilon::new(5.0)?,
        delta: Delta::new(10f64.powf(-6.6))?,
        accountant: AccountantKind::Rdp,
        group: 1,
    };
    for (task, rounds, z_star, printed, printed_z) in ROWS {
        let noise = |m: u64| m as f64 * z_star / REFERENCE_COHORT;
        let event = |m: u64| match NoiseMultiplier::new(noise(m)) {
            Ok(z) => PrivacyEvent::SampledGaussian {
                adjacency: Adjacency::ReplaceOne,
                participation: Participation::FixedSize { population: POPULATION, cohort: m },
                noise: z.into(),
            }
            .times(rounds),
            Err(error) => PrivacyEvent::NonPrivate { what: error.to_string() },
        };
        let found = target.smallest_cohort(POPULATION, event)?;
        let (m, epsilon) = (found.value, found.judgement.epsilon.get());
        section.rows.push(vec![
            task.to_owned(),
            rounds.to_string(),
            z_star.to_string(),
            printed.to_string(),
            m.to_string(),
            format!("{:.4}", noise(m)),
            format!("{epsilon:.4}"),
        ]);
        section.cells.push(cell(
            "andrew2021",
            "1",
            json!({
                "task": task, "rounds": rounds, "population": POPULATION, "delta": target.delta.get(),
                "published_cohort": printed, "published_noise_multiplier": printed_z,
                "cohort": m, "noise_multiplier": noise(m), "epsilon": epsilon,
            }),
        ));
    }
    Ok(vec![section])
}
