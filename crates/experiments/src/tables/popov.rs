//! Popov et al. 2018, Tables 5 and 6: an empirical estimate from the tails of likelihood ratios. Not a guarantee.

use serde_json::json;

use super::{Section, cell, strings};

/// Table 5: shape and scale of the Pareto tail in each of twenty experiments.
const TAILS: [(f64, f64); 20] = [
    (15.8, 3.25),
    (20.9, 5.64),
    (15.1, 2.02),
    (16.6, 2.48),
    (16.5, 2.70),
    (17.6, 4.19),
    (14.9, 1.47),
    (19.2, 3.31),
    (15.6, 1.65),
    (15.2, 1.83),
    (16.5, 3.00),
    (14.4, 1.53),
    (19.5, 3.67),
    (18.2, 2.20),
    (16.2, 3.42),
    (17.2, 2.66),
    (17.3, 1.68),
    (14.8, 2.18),
    (17.1, 2.87),
    (20.5, 4.60),
];

/// Table 6: delta and epsilon.
const TABLE_6: [(f64, f64); 3] = [(1e-4, 0.67), (1e-5, 0.83), (1e-6, 0.99)];

pub(super) fn tables() -> Vec<Section> {
    let mut section = Section {
        title: "Popov et al. 2018, Table 6: epsilon = max ln(C / delta) / alpha over the experiments of Table 5".into(),
        header: strings(["delta", "printed", "epsilon"]),
        rows: Vec::new(),
        notes: strings(["an empirical estimate of what was observed, not a bound on what can happen"]),
        cells: Vec::new(),
    };
    for (delta, printed) in TABLE_6 {
        let epsilon = TAILS.iter().map(|(alpha, c)| (c / delta).ln() / alpha).fold(0.0, f64::max);
        section.rows.push(vec![format!("{delta:e}"), format!("{printed:.2}"), format!("{epsilon:.4}")]);
        section.cells.push(cell(
            "popov2018",
            "6",
            json!({ "delta": delta, "published": printed, "empirical_epsilon": epsilon }),
        ));
    }
    vec![section]
}
