//! The papers' tables, as printed.

use crate::shorthand::{assert_close, correlated, delta, epsilon, fixed_size, gaussian, poisson, rows, vectors};
use keyhush_privacy::{AccountantKind, MinSeparation, NoiseMatrix, Participation, Segment};
use serde::Deserialize;

#[derive(Deserialize)]
struct McMahan {
    population: u64,
    cohort: u64,
    noise_multiplier: f64,
    rounds: u64,
    delta: f64,
    published: String,
    #[serde(default)]
    in_mcmahan2018: bool,
    moments: f64,
    lambda: u32,
}

impl McMahan {
    /// The moments accountant's answer, compared with the same sum in Python.
    fn judge(&self) -> f64 {
        let run = poisson(self.cohort as f64 / self.population as f64, self.noise_multiplier, self.rounds);
        let judgement = AccountantKind::Moments.judge(&run, delta(self.delta)).expect("moments knows Poisson sampling");
        assert_close(judgement.epsilon.get(), self.moments, 1e-9, &self.published);
        assert_eq!(judgement.order, Some(f64::from(self.lambda) + 1.0), "{}", self.published);
        judgement.epsilon.get()
    }

    fn decimals(&self) -> usize {
        self.published.split_once('.').map_or(0, |(_, decimals)| decimals.len())
    }
}

#[test]
fn moments_prints_mcmahan_table_1() {
    let cells: Vec<McMahan> = rows("papers/mcmahan2017_table1.json");
    assert_eq!(cells.len(), 63);
    assert_eq!(cells.iter().filter(|c| c.in_mcmahan2018).count(), 42);
    for cell in &cells {
        assert_close(cell.delta, (cell.population as f64).powf(-1.1), 1e-12, "delta");
        assert_eq!(format!("{:.2}", cell.judge()), cell.published, "{} {}", cell.population, cell.rounds);
    }
}

#[test]
fn moments_prints_mcmahan_table_2() {
    let cells: Vec<McMahan> = rows("papers/mcmahan2018_table2.json");
    assert_eq!(cells.len(), 6);
    for cell in &cells {
        assert_eq!(format!("{:.3}", cell.judge()), cell.published);
    }
}

#[test]
fn moments_is_within_a_hundredth_of_mcmahans_text() {
    let cells: Vec<McMahan> = rows("papers/mcmahan_intext.json");
    assert_eq!(cells.len(), 6);
    for cell in &cells {
        let (got, printed) = (cell.judge(), cell.published.parse::<f64>().unwrap());
        // Two of them are truncated in print rather than rounded, and two have one decimal only.
        match cell.decimals() {
            1 => assert_eq!(format!("{got:.1}"), cell.published),
            _ => assert!((got - printed).abs() < 0.01, "{got} {printed}"),
        }
    }
}

#[derive(Deserialize)]
struct AndrewTable {
    population: u64,
    delta: f64,
    target_epsilon: f64,
    rows: Vec<Andrew>,
}

#[derive(Deserialize)]
struct Andrew {
    task: String,
    rounds: u64,
    z_star: f64,
    cohort: u64,
    noise_multiplier_printed: f64,
}

/// They give the accountant sigma / C (rule P1 would have half of it); so does this test.
#[test]
fn fixed_size_finds_the_cohorts_of_andrew_table_1() {
    let table: AndrewTable = vectors("papers/andrew2021_table1.json");
    assert_eq!(table.rows.len(), 6);
    for row in &table.rows {
        let enough = |m: u64| {
            let run = fixed_size(table.population, m, m as f64 * row.z_star / 100.0, row.rounds);
            epsilon(AccountantKind::Rdp, &run, table.delta) <= table.target_epsilon
        };
        let (mut too_few, mut found) = (100, 100_000);
        assert!(!enough(too_few) && enough(found));
        while found - too_few > 1 {
            let mid = u64::midpoint(too_few, found);
            if enough(mid) { found = mid } else { too_few = mid }
        }
        assert_eq!(found, row.cohort, "{}", row.task);
        assert_eq!(
            format!("{:.3}", found as f64 * row.z_star / 100.0),
            format!("{:.3}", row.noise_multiplier_printed),
            "{}",
            row.task
        );
    }
}

#[derive(Deserialize)]
struct XuTables {
    noise_multiplier: f64,
    delta: f64,
    squared_secagg_inflation: [f64; 2],
    rows: Vec<Xu>,
}

#[derive(Deserialize)]
struct Xu {
    language: String,
    secagg: bool,
    rounds: u64,
    min_separation: u64,
    max_participations: u64,
    rho: String,
    epsilon: Option<String>,
}

impl Xu {
    /// The rho of one tree over all rounds.
    fn judged_rho(&self, tables: &XuTables) -> f64 {
        let separation = MinSeparation::rounds_between(self.min_separation).expect("a legal separation");
        let limits = Participation::MinSeparation { separation, max_participations: self.max_participations };
        let run = correlated(NoiseMatrix::Tree, &[Segment::of(self.rounds)], limits, tables.noise_multiplier);
        let judgement = AccountantKind::Zcdp.judge(&run, delta(tables.delta)).expect("zcdp knows trees");
        judgement.rho.expect("a tree has a rho").get()
    }
}

#[test]
fn the_tree_gives_the_rhos_of_xu() {
    let tables: XuTables = vectors("papers/xu2023.json");
    assert_eq!(tables.rows.len(), 20);
    let as_printed = |row: &&Xu| format!("{:.2}", row.judged_rho(&tables)) == row.rho;
    assert_eq!(tables.rows.iter().filter(as_printed).count(), 19);

    // With secure aggregation the clip is inflated; both rows come out for any squared inflation in this interval.
    let [lowest, highest] = tables.squared_secagg_inflation;
    let with_secagg: Vec<&Xu> = tables.rows.iter().filter(|r| r.secagg).collect();
    assert_eq!(with_secagg.len(), 2);
    for row in with_secagg {
        let inflated = |by: f64| format!("{:.2}", row.judged_rho(&tables) * by);
        assert_eq!(inflated(lowest), row.rho, "{}", row.language);
        assert_eq!(inflated(highest - 1e-6), row.rho, "{}", row.language);
        match row.language.as_str() {
            "en-US" => assert_ne!(inflated(lowest - 1e-6), row.rho),
            _ => assert_ne!(inflated(highest), row.rho),
        }
    }
}

#[test]
fn p8_the_epsilons_of_xu_are_those_of_a_rounded_rho() {
    let tables: XuTables = vectors("papers/xu2023.json");
    let mut printed = 0;
    let mut different_from_exact = 0;
    for row in &tables.rows {
        let Some(published) = &row.epsilon else { continue };
        let of_rho = |rho: f64| {
            let event = gaussian(1.0 / (2.0 * rho).sqrt());
            format!("{:.2}", epsilon(AccountantKind::Zcdp, &event, tables.delta))
        };
        assert_eq!(of_rho(row.rho.parse().unwrap()), *published, "{}", row.language);
        different_from_exact += u32::from(of_rho(row.judged_rho(&tables)) != *published);
        printed += 1;
    }
    assert_eq!(printed, 9);
    assert_eq!(different_from_exact, 8);
}

#[derive(Deserialize)]
struct Popov {
    delta: f64,
    published: String,
    epsilon: f64,
    experiment: usize,
}

#[derive(Deserialize)]
struct PopovTables {
    alpha: Vec<f64>,
    c: Vec<f64>,
    rows: Vec<Popov>,
}

/// No accountant is behind these: the vectors are kept for the empirical test, and this keeps them right.
#[test]
fn popov_table_6_follows_from_table_5() {
    let tables: PopovTables = vectors("papers/popov2018_table6.json");
    for row in &tables.rows {
        let quantiles = tables.alpha.iter().zip(&tables.c).map(|(alpha, c)| (c / row.delta).ln() / alpha);
        let (at, largest) = quantiles.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert_close(largest, row.epsilon, 1e-12, &row.published);
        assert_eq!((format!("{largest:.2}"), at + 1), (row.published.clone(), row.experiment));
    }
}
