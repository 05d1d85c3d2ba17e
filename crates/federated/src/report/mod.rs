//! `report.html`: a run on one page, in one file that needs nothing else, and [`overlay`], the page that compares runs.
//!
//! A report shows what the other files of a run hold. Nothing in it is new, so it may be shown wherever they may.

mod compare;
mod curves;
mod markdown;
mod page;
pub(crate) mod time;

use std::fmt::Write;

use privacy::Delta;

pub(crate) use self::{
    compare::epsilon,
    page::{accuracy, figures, grouped, page, table},
};
pub use self::{
    compare::{Compared, overlay},
    curves::{SMOOTHED_OVER, smoothed},
    page::four_digits,
};
use crate::{
    chart::ChartError,
    markup::escaped,
    metrics::{Metrics, Timing},
    price::{Meaning, Price},
    round::attempts::Failed,
};

/// The name of the file in the folder of a run.
pub const REPORT_FILE: &str = "report.html";

/// What a report shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Report<'a> {
    /// The name of the run.
    pub title: &'a str,
    /// When it was created.
    pub started: &'a str,
    /// What a person can quote.
    pub sentence: &'a str,
    /// Whether its noise can be repeated, so that nothing is guaranteed.
    pub simulated: bool,
    /// What its statement guarantees, or would if the noise were secret.
    pub price: Price,
    /// What must be said beside that epsilon; it may be empty.
    pub remark: &'a str,
    /// The delta of its epsilons.
    pub delta: Delta,
    /// Its settings, as TOML.
    pub settings: &'a str,
    /// Its evaluations.
    pub metrics: &'a [Metrics],
    /// Its rounds.
    pub timing: &'a [Timing],
    /// Attempts at its rounds that came to nothing.
    pub failed: &'a [Failed],
    /// What it took.
    pub cost: Cost,
    /// Its privacy statement, as Markdown.
    pub statement: &'a str,
    /// The head of its ledger.
    pub ledger_head: &'a str,
}

/// What a run took, in users and tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Users that the plan declares.
    pub population: u64,
    /// Participations so far, as planned.
    pub planned_participations: u64,
    /// The most tokens that these may have read, where the plan limits them.
    pub most_tokens: Option<u64>,
    /// Tokens that were read, exactly; a simulation may say so.
    pub simulated_tokens: Option<u64>,
}

impl Report<'_> {
    /// The page.
    ///
    /// # Errors
    /// When a chart cannot be drawn.
    pub fn html(&self) -> Result<String, ChartError> {
        let mut body = format!("<p class=\"soft\">Started {}.</p>\n", escaped(self.started));
        if self.simulated {
            body.push_str("<p class=\"banner\">simulation: repeatable noise, no guarantee</p>\n");
        }
        let curves = self.curves()?;
        let mut sections = vec![
            ("Curves", curves),
            ("Where the time went", time::html(self.timing)),
            ("Cost", self.cost()),
            ("Settings", format!("<pre>{}</pre>\n", escaped(self.settings))),
        ];
        if !self.failed.is_empty() {
            sections.insert(1, ("Rounds that failed", self.failed()));
        }
        // Writing to a string does not fail.
        let _ = write!(body, "<blockquote>{}</blockquote>\n{}", escaped(self.sentence), self.headline());
        for (title, section) in sections {
            let _ = write!(body, "<h2>{title}</h2>\n{section}");
        }
        let statement = markdown::html(self.statement);
        let head = escaped(self.ledger_head);
        let _ = writeln!(body, "{statement}<p class=\"soft\">Head of the ledger: <code>{head}</code></p>");
        Ok(page(self.title, &body))
    }

    /// The numbers that people look for first.
    fn headline(&self) -> String {
        let Some(last) = self.metrics.last() else { return "<p>Nothing was measured yet.</p>\n".into() };
        let values: Vec<f64> = self.metrics.iter().map(|m| m.accuracy_top1).collect();
        let smooth = smoothed(&values).last().copied().unwrap_or(f64::NAN);
        let over = match values.len().min(SMOOTHED_OVER) {
            1 => "the only evaluation".to_owned(),
            n => format!("mean of the last {n} evaluations; the last alone {}", accuracy(last.accuracy_top1)),
        };
        let perplexity = last.perplexity.map_or_else(|| "infinite".into(), four_digits);
        let cards = [
            ("Top-1 accuracy", accuracy(smooth), over),
            ("Perplexity", perplexity, format!("{} predictions on held-out users", grouped(last.targets))),
            self.price(last),
            ("Rounds", grouped(last.round), format!("{} participations", grouped(last.planned_participations))),
        ];
        let card = |(name, value, note): &(&str, String, String)| {
            format!(
                "<div><dt>{name}</dt><dd class=\"value\">{}</dd><dd class=\"note\">{}</dd></div>\n",
                escaped(value),
                escaped(note)
            )
        };
        format!("<dl class=\"cards\">\n{}</dl>\n", cards.iter().map(card).collect::<String>())
    }

    /// What is guaranteed (rule P23): never an epsilon of noise that somebody can recompute, but where it says so.
    fn price<'b>(&self, last: &Metrics) -> (&'b str, String, String) {
        let (Price { epsilon: stated, meaning, .. }, delta) = (self.price, self.delta.get());
        let remark = self.remark;
        let (name, value, mut note) = match (stated.is_finite(), meaning) {
            (true, Meaning::IfSecret) => {
                let would =
                    format!("with secret noise epsilon would be {} at delta {delta:e}{remark}", epsilon(stated));
                ("Guarantee", "none: simulated".to_owned(), would)
            }
            _ => ("Epsilon", epsilon(stated), format!("at delta {delta:e}{remark}")),
        };
        if let Some(projected) = last.projected_epsilon {
            let _ = write!(note, "; projected to the large cohort: {}", epsilon(projected)); // does not fail
        }
        (name, value, note)
    }

    fn curves(&self) -> Result<String, ChartError> {
        let run = [("", self.metrics)];
        let mut charts = vec![
            curves::accuracy(&run),
            curves::perplexity(&run),
            curves::clip_norm(&run),
            curves::fraction_below_clip(&run),
            curves::epsilon(&run),
            curves::accuracy_over_epsilon(&run),
        ];
        // Lines are named where there are several.
        for (chart, name) in charts.iter_mut().zip(["", "", "clips", "", "of this run", ""]) {
            for series in chart.series.iter_mut().filter(|s| s.name.is_empty()) {
                series.name = name.into();
            }
        }
        let mut html = figures(&charts)?;
        if self.metrics.last().is_some_and(|m| !m.price.epsilon.is_finite()) {
            html.push_str("<p><strong>No privacy: epsilon is infinite.</strong></p>\n");
        }
        html.push_str(&self.evaluations());
        Ok(html)
    }

    /// The numbers behind the curves.
    fn evaluations(&self) -> String {
        let price = match self.metrics.first().map(|m| m.price.meaning) {
            Some(meaning) => curves::epsilon_label(meaning),
            None => "epsilon",
        };
        let head = [
            "round",
            "top 1",
            "top 3",
            "top 1, known words",
            "perplexity",
            "clip norm",
            "under the clip, noised",
            price,
        ];
        let none = || "none".to_owned();
        let row = |m: &Metrics| {
            vec![
                m.round.to_string(),
                accuracy(m.accuracy_top1),
                accuracy(m.accuracy_top3),
                accuracy(m.accuracy_in_vocabulary),
                m.perplexity.map_or_else(|| "infinite".into(), four_digits),
                m.clip_norm.map_or_else(none, four_digits),
                m.fraction_below_clip.map_or_else(none, page::percent),
                epsilon(m.price.epsilon),
            ]
        };
        let rows: Vec<Vec<String>> = self.metrics.iter().map(row).collect();
        format!("<details><summary>All evaluations</summary>\n{}</details>\n", table(&head, &rows))
    }

    /// Nothing was released of any of them.
    fn failed(&self) -> String {
        let row = |failed: &Failed| {
            let next = if failed.passed_over { "passed over" } else { "attempted again, with other devices" };
            let attempt = (failed.attempt + 1).to_string();
            vec![failed.round.to_string(), attempt, failed.reason.words().to_owned(), next.to_owned()]
        };
        let rows: Vec<Vec<String>> = self.failed.iter().map(row).collect();
        table(&["round", "attempt", "why", "what followed"], &rows)
    }

    fn cost(&self) -> String {
        let Cost { population, planned_participations, most_tokens, simulated_tokens } = self.cost;
        let mut rows = vec![
            vec!["users in the population, as declared".to_owned(), grouped(population)],
            vec!["participations, as planned".to_owned(), grouped(planned_participations)],
        ];
        if population > 0 {
            let each = planned_participations as f64 / population as f64;
            rows.push(vec!["participations of a user, on average".to_owned(), four_digits(each)]);
        }
        rows.extend(most_tokens.map(|n| vec!["tokens read on devices, at most".to_owned(), grouped(n)]));
        rows.extend(simulated_tokens.map(|n| vec!["tokens read, as simulated".to_owned(), grouped(n)]));
        table(&["what", "how many"], &rows)
    }
}
