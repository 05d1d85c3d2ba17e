//! `keyhush privacy table`: the papers' tables, computed here, beside what was printed.

mod andrew;
mod mcmahan;
mod popov;
mod xu;

use std::io::Write;

use clap::{Args, ValueEnum};
use privacy::{AccountantKind, Delta, NoiseMultiplier, PrivacyEvent, SamplingRate};
use serde_json::{Value, json};

use crate::{columns, failure::BadInput};

/// Arguments of `keyhush privacy table`.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// Whose tables
    #[arg(value_enum)]
    paper: Paper,
    /// Answer as JSON, one object a cell
    #[arg(long)]
    json: bool,
}

/// The papers.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Paper {
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
struct Section {
    title: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
    /// The same for programs, an object a cell.
    cells: Vec<Value>,
}

pub(crate) fn table(args: &TableArgs) -> anyhow::Result<()> {
    let sections = match args.paper {
        Paper::Mcmahan2017 => mcmahan::tables(mcmahan::Version::First),
        Paper::Mcmahan2018 => mcmahan::tables(mcmahan::Version::Published),
        Paper::Andrew2021 => andrew::tables(),
        Paper::Xu2023 => xu::tables(),
        Paper::Popov2018 => Ok(popov::tables()),
    }?;
    let mut out = std::io::stdout().lock();
    if args.json {
        for cell in sections.iter().flat_map(|s| &s.cells) {
            writeln!(out, "{cell}")?;
        }
        return Ok(());
    }
    for (i, section) in sections.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        section.print(&mut out)?;
    }
    Ok(())
}

impl Section {
    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{}", self.title)?;
        let rows: Vec<Vec<String>> = std::iter::once(&self.header).chain(&self.rows).cloned().collect();
        columns::write(out, &rows, columns::Align::Right)?;
        for note in &self.notes {
            writeln!(out, "  {note}")?;
        }
        Ok(())
    }
}

/// A run with Poisson-sampled cohorts.
fn poisson(population: f64, cohort: f64, z: f64, rounds: u64) -> Result<PrivacyEvent, BadInput> {
    let rate = SamplingRate::new(cohort / population).map_err(refused)?;
    Ok(PrivacyEvent::poisson(rate, NoiseMultiplier::new(z).map_err(refused)?).times(rounds))
}

fn judge(accountant: AccountantKind, event: &PrivacyEvent, delta: f64) -> Result<f64, BadInput> {
    let delta = Delta::new(delta).map_err(refused)?;
    Ok(accountant.judge(event, delta).map_err(refused)?.epsilon.get())
}

fn refused(error: impl std::fmt::Display) -> BadInput {
    BadInput::Refused(error.to_string())
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
    super::answer::rounded_up(value)
}

fn cell(paper: &str, table: &str, fields: Value) -> Value {
    let mut cell = json!({ "paper": paper, "table": table });
    if let (Value::Object(cell), Value::Object(fields)) = (&mut cell, fields) {
        cell.extend(fields);
    }
    cell
}
