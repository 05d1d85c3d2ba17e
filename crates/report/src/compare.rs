//! Compares runs: their curves in the same charts.

use askama::Template;
use federated::{
    metrics::{
        Metric, Metrics,
        training::{CLIP_NORM, EPSILON, PLANNED_PARTICIPATIONS},
    },
    numbers::grouped,
    price::Price,
};
use ledger::statement::rounded_up;
use privacy::Epsilon;

use crate::{
    ReportError,
    curves::{self, Run},
    markup::Markup,
    page::{all_measures, distinct, figures, table},
};

/// A run among others.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// The display name.
    pub name: &'a str,
    /// Its evaluations.
    pub metrics: &'a [Metrics],
    /// What its statement says, where it has one: its last evaluation knows only what it cost so far, alone.
    pub stated: Option<Price>,
}

impl Compared<'_> {
    /// The epsilon in words: what is stated, or what the last evaluation says.
    #[must_use]
    pub fn price(&self) -> Option<Price> {
        self.stated.or_else(|| self.metrics.last().map(|last| last.price))
    }
}

#[derive(Template)]
#[template(path = "compare.html")]
struct Page {
    title: &'static str,
    ends: Markup,
    curves: Markup,
}

/// The page of a comparison: the curves of the runs in the same charts, and where each of them ended.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn overlay(compared: &[Compared<'_>]) -> Result<String, ReportError> {
    let runs: Vec<Run<'_>> = compared.iter().map(|run| (run.name, run.metrics)).collect();
    let mut charts = curves::measured(&runs);
    charts.extend([
        curves::headline_over_epsilon(&runs),
        curves::epsilon(&runs),
        curves::clip_norm(&runs),
        curves::fraction_below_clip(&runs),
    ]);
    let page = Page { title: "Runs compared", ends: table(&cells(compared))?, curves: figures(&charts)? };
    Ok(page.render()?)
}

/// The last values of each run, the table's header first: for the page and for the terminal.
#[must_use]
pub fn cells(compared: &[Compared<'_>]) -> Vec<Vec<String>> {
    let all = all_measures(compared.iter().map(|run| run.metrics));
    let metrics = distinct(all.iter().flat_map(|measures| measures.metrics.iter().copied()));
    let mut head = vec!["run".to_owned(), "rounds".to_owned()];
    let of_run = [&CLIP_NORM, &EPSILON, &PLANNED_PARTICIPATIONS];
    head.extend(metrics.iter().chain(&of_run).map(|metric| metric.column.to_owned()));
    let mut rows = vec![head];
    rows.extend(compared.iter().map(|run| row(run, &metrics)));
    let width = rows[0].len();
    rows.iter_mut().for_each(|row| row.resize(width, String::new()));
    rows
}

fn row(run: &Compared<'_>, metrics: &[&'static Metric]) -> Vec<String> {
    let Some(last) = run.metrics.last() else { return vec![run.name.to_owned(), "nothing yet".into()] };
    let projected = last.projected_epsilon.map_or_else(String::new, |e| format!(" (projected: {})", epsilon(e)));
    let mut cells = vec![run.name.to_owned(), grouped(last.round)];
    cells.extend(metrics.iter().chain(&[&CLIP_NORM]).map(|metric| shown(metric, last)));
    cells.push(run.price().unwrap_or(last.price).words() + &projected);
    cells.push(grouped(last.planned_participations));
    cells
}

/// A number of an evaluation, as a table shows it.
pub(crate) fn shown(metric: &Metric, line: &Metrics) -> String {
    metric.shown(metric.of(line).unwrap_or(f64::NAN))
}

/// Never flattering, and plain where there is no privacy.
pub(crate) fn epsilon(epsilon: Epsilon) -> String {
    if epsilon.is_finite() { rounded_up(epsilon.get()) } else { "no privacy: infinite".into() }
}
