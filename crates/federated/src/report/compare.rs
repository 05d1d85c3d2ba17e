//! Several runs over one another.

use ledger::statement::rounded_up;
use privacy::Epsilon;

use super::{
    curves::{self, Run, smoothed},
    page::{accuracy, figures, four_digits, grouped, page, table},
};
use crate::{chart::ChartError, metrics::Metrics, price::Price};

/// A run among others.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// What people call it.
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

/// The page of a comparison: the curves of the runs over one another, and where each of them ended.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn overlay(compared: &[Compared<'_>]) -> Result<String, ChartError> {
    let runs: Vec<Run<'_>> = compared.iter().map(|run| (run.name, run.metrics)).collect();
    let runs = &runs[..];
    let charts = [
        curves::accuracy(runs),
        curves::perplexity(runs),
        curves::accuracy_over_epsilon(runs),
        curves::epsilon(runs),
        curves::clip_norm(runs),
        curves::fraction_below_clip(runs),
    ];
    let head = [
        "run",
        "rounds",
        "top 1, smoothed",
        "top 1",
        "top 3",
        "top 1, known words",
        "perplexity",
        "clip norm",
        "epsilon",
        "participations",
    ];
    let mut rows: Vec<Vec<String>> = compared.iter().map(row).collect();
    rows.iter_mut().for_each(|row| row.resize(head.len(), String::new()));
    let body = format!(
        "<p class=\"soft\">Accuracy is smoothed over {} evaluations. Each epsilon is at the delta of its run, whose report \
         says what it guarantees.</p>\n<h2>Where they ended</h2>\n{}<h2>Curves</h2>\n{}",
        curves::SMOOTHED_OVER,
        table(&head, &rows),
        figures(&charts)?
    );
    Ok(page("Runs compared", &body))
}

fn row(run: &Compared<'_>) -> Vec<String> {
    let Compared { name, metrics, .. } = *run;
    let Some(last) = metrics.last() else { return vec![name.to_owned(), "nothing yet".into()] };
    let values: Vec<f64> = metrics.iter().map(|m| m.accuracy_top1).collect();
    let none = || "none".to_owned();
    let projected = last.projected_epsilon.map_or_else(String::new, |e| format!(" (projected: {})", epsilon(e)));
    vec![
        name.to_owned(),
        grouped(last.round),
        accuracy(smoothed(&values).last().copied().unwrap_or(f64::NAN)),
        accuracy(last.accuracy_top1),
        accuracy(last.accuracy_top3),
        accuracy(last.accuracy_in_vocabulary),
        last.perplexity.map_or_else(|| "infinite".into(), four_digits),
        last.clip_norm.map_or_else(none, four_digits),
        run.price().unwrap_or(last.price).words() + &projected,
        grouped(last.planned_participations),
    ]
}

/// Never flattering, and plain where there is no privacy.
pub(crate) fn epsilon(epsilon: Epsilon) -> String {
    if epsilon.is_finite() { rounded_up(epsilon.get()) } else { "no privacy: infinite".into() }
}
