//! `report.html`: a run on one self-contained page.
//!
//! A report shows what the other files of a run hold. Nothing in it is new, so it may be shown wherever they may, and it can be
//! made again at any time: of a run that is finished, in progress, or was killed.

mod markdown;
pub(crate) mod time;

use std::path::Path;

use askama::Template;
use durable::files;
use federated::{
    canaries::Shown,
    home::RunFolder,
    metrics::{
        Measures, Metric, Metrics, Timing,
        training::{CLIP_NORM, FRACTION_BELOW_CLIP},
    },
    numbers::{counted, four_digits, grouped, percent},
    price::{Meaning, Price},
    round::attempts::Failed,
    run::Kept,
};
use jiff::Timestamp;
use privacy::Delta;
use serde::Serialize;

use crate::{
    ReportError, audit,
    chart::Chart,
    compare::{epsilon, shown},
    curves,
    markup::Markup,
    page::{figures, row, table},
    settings,
};

/// The name of the file in the folder of a run.
pub const REPORT_FILE: &str = "report.html";

/// Writes the report of the run in a folder, from what the folder holds.
///
/// # Errors
/// When there is no run in it, a file of it is damaged, or the disk fails.
pub fn write(folder: &Path) -> Result<(), ReportError> {
    let kept = Kept::read(&RunFolder::at(folder)).map_err(Box::new)?;
    let html = Report::of(&kept).html()?;
    Ok(files::write(&folder.join(REPORT_FILE), html.as_bytes())?)
}

/// The contents of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Report<'a> {
    /// The name of the run.
    pub title: &'a str,
    /// When it was created.
    pub started: String,
    /// What a person can quote.
    pub sentence: &'a str,
    /// What should be known beside it, each in a sentence.
    pub notes: &'a [String],
    /// Whether its noise can be repeated, so that nothing is guaranteed.
    pub simulated: bool,
    /// What its statement guarantees, or would if the noise were secret.
    pub price: Price,
    /// What must be said beside that epsilon; it may be empty.
    pub remark: String,
    /// The delta of its epsilons.
    pub delta: Delta,
    /// Its settings, as TOML, without paths of this machine.
    pub settings: String,
    /// Its evaluations.
    pub metrics: &'a [Metrics],
    /// Its rounds.
    pub timing: &'a [Timing],
    /// Failed attempts at its rounds.
    pub failed: &'a [Failed],
    /// What its canaries show, where it has some and is over.
    pub audit: Option<&'a Shown>,
    /// The run's cost.
    pub cost: Cost,
    /// Its privacy statement, as Markdown.
    pub statement: String,
    /// The head of its ledger.
    pub ledger_head: String,
}

/// The cost of a run, in users and the examples of its learner: tokens, posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Users that the plan declares.
    pub population: u64,
    /// Participations so far, as planned.
    pub planned_participations: u64,
    /// The most examples that these may have read, where the plan limits them.
    pub most_examples: Option<u64>,
    /// Examples that were read, exactly; a simulation may say so.
    pub simulated_examples: Option<u64>,
    /// Users who took part, exactly, each counted for each of their rounds, and those of them whose training diverged; a simulation may
    /// say so.
    pub simulated_users: Option<(u64, u64)>,
}

#[derive(Template)]
#[template(path = "run.html")]
struct Page<'a> {
    title: &'a str,
    started: &'a str,
    sentence: &'a str,
    notes: &'a [String],
    simulated: bool,
    tiles: Vec<Tile>,
    curves: Markup,
    no_privacy: bool,
    evaluations: Markup,
    failed: Option<Markup>,
    audit: Option<Audited>,
    time: Markup,
    cost: Markup,
    settings: &'a str,
    statement: Markup,
    ledger_head: &'a str,
}

/// The result of the audit with canaries.
struct Audited {
    words: String,
    picture: Markup,
    guesses: Markup,
}

/// A number that people look for first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tile {
    /// The name of the number.
    pub name: String,
    /// The number, as people read it.
    pub value: String,
    /// What must be said beside it; it may be empty.
    pub note: String,
}

impl<'a> Report<'a> {
    /// From the stored files of a run.
    #[must_use]
    pub fn of(kept: &'a Kept) -> Self {
        let participations = kept.metrics.last().map_or(0, |last| last.planned_participations);
        Self {
            title: &kept.name,
            started: moment(kept.started),
            sentence: &kept.sentence,
            notes: &kept.notes,
            simulated: kept.is_simulation(),
            price: kept.price(),
            remark: kept.remark(),
            delta: kept.delta(),
            settings: settings::without_paths(&kept.settings),
            metrics: &kept.metrics,
            timing: &kept.timing,
            failed: &kept.failed,
            audit: kept.audit.as_ref(),
            cost: Cost {
                population: kept.statement.population,
                planned_participations: participations,
                most_examples: kept.config.local.most_tokens.map(|most| participations.saturating_mul(most as u64)),
                simulated_examples: kept.totals.map(|totals| totals.tokens),
                simulated_users: kept.totals.map(|totals| (totals.users, totals.not_finite)),
            },
            statement: kept.statement.to_markdown(),
            ledger_head: kept.statement.ledger.head.to_string(),
        }
    }

    /// The page.
    ///
    /// # Errors
    /// When a chart cannot be drawn.
    pub fn html(&self) -> Result<String, ReportError> {
        let failed = if self.failed.is_empty() { None } else { Some(table(&self.failed())?) };
        let page = Page {
            title: self.title,
            started: &self.started,
            sentence: self.sentence,
            notes: self.notes,
            simulated: self.simulated,
            tiles: self.metrics.last().map_or_else(Vec::new, |last| self.tiles(last)),
            curves: self.curves()?,
            no_privacy: self.metrics.last().is_some_and(|m| !m.price.epsilon.is_finite()),
            evaluations: table(&self.evaluations())?,
            failed,
            audit: self.audit.map(audited).transpose()?,
            time: time::html(self.timing)?,
            cost: table(&self.cost())?,
            settings: &self.settings,
            statement: markdown::html(&self.statement)?,
            ledger_head: &self.ledger_head,
        };
        Ok(page.render()?)
    }

    /// The numbers that people look for first.
    pub(crate) fn tiles(&self, last: &Metrics) -> Vec<Tile> {
        let measures = last.measured.measures();
        let headline = measures.headline;
        let from = match self.metrics {
            [_] => "only evaluated once".to_owned(),
            [first, ..] => format!("after round {}; {} before the first", grouped(last.round), shown(headline, first)),
            [] => String::new(),
        };
        let targets = format!("{} {}", grouped(last.targets), measures.targets);
        let beside =
            |metric: &&Metric| Tile { name: metric.title(), value: shown(metric, last), note: targets.clone() };
        let mut tiles = vec![Tile { name: headline.title(), value: shown(headline, last), note: from }];
        tiles.extend(measures.beside.iter().map(beside));
        tiles.push(self.price(last));
        let note = counted(last.planned_participations, "participation");
        tiles.push(Tile { name: "Rounds".into(), value: grouped(last.round), note });
        tiles
    }

    /// What is guaranteed (rule P23): never an epsilon of noise that somebody can recompute, but where it says so.
    fn price(&self, last: &Metrics) -> Tile {
        let (Price { epsilon: stated, meaning, .. }, delta) = (self.price, self.delta.get());
        let remark = &self.remark;
        let (name, value, mut note) = match (stated.is_finite(), meaning) {
            (true, Meaning::IfSecret) => {
                let would =
                    format!("with secret noise epsilon would be {} at delta {delta:e}{remark}", epsilon(stated));
                ("Guarantee", "none: simulated".to_owned(), would)
            }
            _ => ("Epsilon", epsilon(stated), format!("at delta {delta:e}{remark}")),
        };
        if let Some(projected) = last.projected_epsilon {
            note += &format!("; projected to the large cohort: {}", epsilon(projected));
        }
        Tile { name: name.into(), value, note }
    }

    fn curves(&self) -> Result<Markup, ReportError> {
        let run = [("", self.metrics)];
        let mut charts = curves::measured(&run);
        charts.push(named(curves::clip_norm(&run), "clips"));
        charts.push(curves::fraction_below_clip(&run));
        charts.push(named(curves::epsilon(&run), "of this run"));
        charts.push(curves::headline_over_epsilon(&run));
        figures(&charts)
    }

    /// The numbers behind the curves.
    fn evaluations(&self) -> Vec<Vec<String>> {
        let metrics = Measures::of(self.metrics).metrics;
        let price = match self.metrics.first().map(|m| m.price.meaning) {
            Some(meaning) => curves::epsilon_label(meaning),
            None => "epsilon",
        };
        let head = ["round"].into_iter().chain(metrics.iter().map(|metric| metric.column));
        let head = head.chain([CLIP_NORM.column, FRACTION_BELOW_CLIP.column, price]);
        let mut rows = vec![row(head)];
        rows.extend(self.metrics.iter().map(|line| {
            let mut cells = vec![line.round.to_string()];
            cells.extend(metrics.iter().chain(&[&CLIP_NORM]).map(|metric| shown(metric, line)));
            cells.push(line.fraction_below_clip.map_or_else(|| "none".into(), percent));
            cells.push(epsilon(line.price.epsilon));
            cells
        }));
        rows
    }

    /// Nothing was released of any of them.
    fn failed(&self) -> Vec<Vec<String>> {
        let mut rows = vec![row(["round", "attempt", "reason", "result"])];
        rows.extend(self.failed.iter().map(|failed| {
            let next = if failed.passed_over { "skipped" } else { "attempted again, with other devices" };
            let attempt = (failed.attempt + 1).to_string();
            row([&(failed.round + 1).to_string(), &attempt, failed.reason.words(), next])
        }));
        rows
    }

    fn cost(&self) -> Vec<Vec<String>> {
        let Cost { population, planned_participations, most_examples, simulated_examples, simulated_users } = self.cost;
        let examples = Measures::of(self.metrics).examples();
        let mut rows = vec![
            row(["quantity", "value"]),
            row(["users in the population, as declared", &grouped(population)]),
            row(["participations, as planned", &grouped(planned_participations)]),
        ];
        if population > 0 {
            let each = planned_participations as f64 / population as f64;
            rows.push(row(["participations of a user, on average", &four_digits(each)]));
        }
        rows.extend(most_examples.map(|n| row([format!("{examples} read on devices, at most").as_str(), &grouped(n)])));
        if let Some((users, not_finite)) = simulated_users {
            rows.push(row(["participations, as simulated", &grouped(users)]));
            rows.push(row(["of these, training diverged", &grouped(not_finite)]));
        }
        rows.extend(simulated_examples.map(|n| row([format!("{examples} read, as simulated").as_str(), &grouped(n)])));
        rows
    }
}

/// What canaries show, with its picture.
fn audited(shown: &Shown) -> Result<Audited, ReportError> {
    let mut rows = vec![row(["guesses", "made", "correct"])];
    rows.extend(shown.guesses.iter().map(|guessed| {
        let kind = if guessed.only_present { "took part" } else { "took part or not" };
        row([kind, &grouped(guessed.made), &grouped(guessed.correct)])
    }));
    let charts = [audit::bounds("Epsilon: formal and audited", &shown.at_deltas), audit::guesses(&shown.guesses)];
    let picture = figures(&charts)?;
    Ok(Audited { words: shown.words(), picture, guesses: table(&rows)? })
}

/// Lines are named where there are several.
fn named(mut chart: Chart, name: &str) -> Chart {
    chart.series.iter_mut().filter(|series| series.name.is_empty()).for_each(|series| series.name = name.into());
    chart
}

/// Seconds since 1970 as a date, in UTC.
fn moment(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    moment.map_or_else(|| "at an unknown time".into(), |moment| moment.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(moment(1_794_787_199), "2026-11-15 23:59 UTC");
        assert_eq!(moment(u64::MAX), "at an unknown time");
    }
}
