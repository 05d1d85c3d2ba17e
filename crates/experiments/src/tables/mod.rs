//! The papers' tables of privacy costs, computed here, next to the printed numbers.

mod andrew;
mod mcmahan;
mod popov;
mod xu;

use ledger::statement::rounded_up;
use privacy::{
    AccountError, AccountantKind, Delta, NoiseMultiplier, PrivacyEvent, SamplingRate, UnitError,
    calibrate::CalibrateError, event::EventError,
};
use serde_json::{Value, json};
use thiserror::Error;

/// The papers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// McMahan et al., first version: Tables 1 and 2.
    Mcmahan2017,
    /// McMahan et al.: Tables 1 and 2, and the values in the text.
    Mcmahan2018,
    /// Andrew et al.: Table 1.
    Andrew2021,
    /// Xu et al.: the participation, rho and epsilon of each model.
    Xu2023,
    /// Popov et al.: Table 6, an empirical estimate.
    Popov2018,
}

/// A table of a paper.
#[derive(Debug, Clone)]
pub struct Section {
    /// Which table, and by whom it is judged.
    pub title: String,
    /// The names of the columns.
    pub header: Vec<String>,
    /// The cells, for people.
    pub rows: Vec<Vec<String>>,
    /// Notes below the table.
    pub notes: Vec<String>,
    /// The same for programs, an object a cell.
    pub cells: Vec<Value>,
}

/// A table cannot be computed: a number of a paper is refused.
#[derive(Debug, Error)]
pub enum TableError {
    /// A number that its unit does not admit.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// An event that cannot be.
    #[error(transparent)]
    Event(#[from] EventError),
    /// An event that is not judged.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// A target that cannot be met.
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
}

/// The tables of a paper.
///
/// # Errors
/// When a number of the paper is refused.
pub fn of(paper: Paper) -> Result<Vec<Section>, TableError> {
    match paper {
        Paper::Mcmahan2017 => mcmahan::tables(mcmahan::Version::First),
        Paper::Mcmahan2018 => mcmahan::tables(mcmahan::Version::Published),
        Paper::Andrew2021 => andrew::tables(),
        Paper::Xu2023 => xu::tables(),
        Paper::Popov2018 => Ok(popov::tables()),
    }
}

/// A run with Poisson-sampled cohorts.
fn poisson(population: f64, cohort: f64, z: f64, rounds: u64) -> Result<PrivacyEvent, TableError> {
    let rate = SamplingRate::new(cohort / population)?;
    Ok(PrivacyEvent::poisson(rate, NoiseMultiplier::new(z)?).times(rounds))
}

fn judge(accountant: AccountantKind, event: &PrivacyEvent, delta: f64) -> Result<f64, TableError> {
    let delta = Delta::new(delta)?;
    Ok(accountant.judge(event, delta)?.epsilon.get())
}

/// A computed value as the paper would print it, marked when the paper printed something else.
fn as_printed(value: f64, published: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text == format!("{published:.decimals$}") { text } else { format!("{text} (paper: {published})") }
}

fn strings<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// A value with as many decimals as tell something.
fn short(value: f64) -> String {
    rounded_up(value)
}

fn cell(paper: &str, table: &str, fields: Value) -> Value {
    let mut cell = json!({ "paper": paper, "table": table });
    if let (Value::Object(cell), Value::Object(fields)) = (&mut cell, fields) {
        cell.extend(fields);
    }
    cell
}
