//! McMahan et al., Tables 1 and 2: Poisson-sampled cohorts, the moments accountant.

use privacy::AccountantKind;
use serde_json::json;

use super::{Section, TableError, as_printed, cell, judge, poisson, short, strings};

/// The two versions of the paper.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// arXiv 1710.06963v1.
    First,
    /// ICLR 2018.
    Published,
}

impl Version {
    fn name(self) -> &'static str {
        match self {
            Self::First => "mcmahan2017",
            Self::Published => "mcmahan2018",
        }
    }
}

/// A row of Table 1: users, cohort, noise, epsilon after 1, 10, ..., 10^6 rounds, whether the published version has it.
const TABLE_1: [(f64, f64, f64, [f64; 7], bool); 9] = [
    (1e5, 1e2, 1.0, [0.97, 0.98, 1.00, 1.07, 1.18, 2.21, 7.50], true),
    (1e6, 1e1, 1.0, [0.68, 0.69, 0.69, 0.69, 0.69, 0.72, 0.73], true),
    (1e6, 1e2, 1.0, [0.85, 0.85, 0.89, 0.89, 0.90, 0.93, 1.10], false),
    (1e6, 1e3, 1.0, [1.17, 1.17, 1.20, 1.28, 1.39, 2.44, 8.13], true),
    (1e6, 1e4, 1.0, [1.73, 1.92, 2.08, 3.06, 8.49, 32.38, 187.01], true),
    (1e6, 1e3, 3.0, [0.47, 0.47, 0.48, 0.48, 0.49, 0.67, 1.95], true),
    (1e7, 1e3, 1.0, [0.99, 1.00, 1.04, 1.04, 1.05, 1.08, 1.25], false),
    (1e8, 1e3, 1.0, [0.90, 0.92, 0.92, 0.92, 0.92, 0.96, 0.97], false),
    (1e9, 1e3, 1.0, [0.84, 0.84, 0.84, 0.85, 0.88, 0.88, 0.88], true),
];

/// A row of Table 2: users, cohort, epsilon after 5000 rounds at delta 1e-9, z = 1.
const TABLE_2: [(f64, f64, f64); 6] = [
    (763_430.0, 5000.0, 4.634),
    (763_430.0, 1667.0, 2.314),
    (763_430.0, 1250.0, 2.038),
    (1e8, 5000.0, 1.152),
    (1e8, 1667.0, 0.991),
    (1e8, 1250.0, 0.987),
];

/// A value in the text: users, cohort, rounds, delta, epsilon as printed.
const IN_TEXT: [(f64, f64, u64, f64, f64); 6] = [
    (763_430.0, 1250.0, 3000, 1e-9, 1.97),
    (763_430.0, 1250.0, 3000, 1e-6, 1.35),
    (763_430.0, 5000.0, 3000, 1e-9, 3.81),
    (763_430.0, 5000.0, 20_000, 1e-9, 8.92),
    (763_430.0, 5000.0, 4980, 1e-9, 4.6),
    (1e8, 5000.0, 4980, 1e-9, 1.2),
];

pub(super) fn tables(version: Version) -> Result<Vec<Section>, TableError> {
    let mut sections = table_1(version)?;
    sections.push(runs(version, "2", "epsilon after 5000 rounds at delta 1e-9, z = 1", 3, &table_2_runs())?);
    if version == Version::Published {
        sections.push(runs(version, "text", "values in the text", 2, &IN_TEXT)?);
    }
    Ok(sections)
}

fn table_2_runs() -> Vec<(f64, f64, u64, f64, f64)> {
    TABLE_2.iter().map(|(users, cohort, published)| (*users, *cohort, 5000, 1e-9, *published)).collect()
}

/// Table 1 as printed, and the same runs judged tightly.
fn table_1(version: Version) -> Result<Vec<Section>, TableError> {
    let mut header = strings(["users", "cohort", "noise"]);
    header.extend((0..7).map(|k| format!("10^{k}")));
    let section = |title: String, notes: &[&str]| Section {
        title,
        header: header.clone(),
        rows: Vec::new(),
        notes: notes.iter().map(|n| (*n).to_owned()).collect(),
        cells: Vec::new(),
    };
    let about = "epsilon after 1, 10, ... 10^6 rounds at delta = users^-1.1";
    let mut printed = section(
        format!("McMahan et al., Table 1: {about}, by the moments accountant as in the paper"),
        &["values that differ from the printed ones would be marked"],
    );
    let mut today = section("The same runs with accountant best (privacy-loss distributions)".into(), &[]);
    for (users, cohort, z, published, kept) in TABLE_1 {
        if version == Version::Published && !kept {
            continue;
        }
        let delta = users.powf(-1.1);
        let start = vec![format!("{users:e}"), format!("{cohort:e}"), format!("{z:.1}")];
        let (mut then_row, mut now_row) = (start.clone(), start);
        for (k, published) in published.into_iter().enumerate() {
            let rounds = 10u64.pow(k as u32);
            let event = poisson(users, cohort, z, rounds)?;
            let moments = judge(AccountantKind::Moments, &event, delta)?;
            let best = judge(AccountantKind::Best, &event, delta)?;
            then_row.push(as_printed(moments, published, 2));
            now_row.push(short(best));
            printed.cells.push(cell(
                version.name(),
                "1",
                json!({
                    "population": users, "cohort": cohort, "noise_multiplier": z, "rounds": rounds, "delta": delta,
                    "published": published, "moments": moments, "best": best,
                }),
            ));
        }
        printed.rows.push(then_row);
        today.rows.push(now_row);
    }
    Ok(vec![printed, today])
}

/// Runs a line each: as printed, and judged tightly.
fn runs(
    version: Version,
    table: &str,
    title: &str,
    decimals: usize,
    runs: &[(f64, f64, u64, f64, f64)],
) -> Result<Section, TableError> {
    let mut section = Section {
        title: format!(
            "McMahan et al., {}: {title}",
            if table == "text" { table.to_owned() } else { format!("Table {table}") }
        ),
        header: strings(["users", "cohort", "rounds", "delta", "printed", "moments", "rdp", "best"]),
        rows: Vec::new(),
        notes: Vec::new(),
        cells: Vec::new(),
    };
    for &(users, cohort, rounds, delta, published) in runs {
        let event = poisson(users, cohort, 1.0, rounds)?;
        let by = |accountant| judge(accountant, &event, delta);
        let (moments, rdp, best) = (by(AccountantKind::Moments)?, by(AccountantKind::Rdp)?, by(AccountantKind::Best)?);
        section.rows.push(vec![
            users.to_string(),
            cohort.to_string(),
            rounds.to_string(),
            format!("{delta:e}"),
            published.to_string(),
            format!("{moments:.decimals$}"),
            short(rdp),
            short(best),
        ]);
        section.cells.push(cell(
            version.name(),
            table,
            json!({
                "population": users, "cohort": cohort, "noise_multiplier": 1.0, "rounds": rounds, "delta": delta,
                "published": published, "moments": moments, "rdp": rdp, "best": best,
            }),
        ));
    }
    if table == "text" {
        section.notes = strings(["1.97 and 3.81 look truncated; 4.6 and 1.2 are printed with one decimal"]);
    }
    Ok(section)
}
