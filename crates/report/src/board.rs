//! A run as data for the page over all runs (`keyhush board`): status, curves, settings, sample suggestions.
//!
//! All of it comes from [`Kept`], which reads exact losses, norms, counts and times of simulations alone (rules P12 and P23). An
//! epsilon has a curve under the name of what it means, so none is taken for another.

use std::collections::BTreeMap;

use federated::{
    metrics::{
        Diagnostics, Measures, Metric, Metrics, Timing,
        registry::{Goal, MEASURES, METRICS, Unit},
        training::{
            CLIP_NORM, EPSILON, FRACTION_BELOW_CLIP, HEADLINE_BY_DEVICES, PROJECTED_EPSILON, TRACKED_CLIP_NORM,
        },
    },
    price::Meaning,
    run::{Kept, Over, Samples},
};
use serde::Serialize;

use crate::{
    curves::epsilon_label,
    page::distinct,
    run::{Report, Tile, time::seconds},
    settings,
};

/// The most points of a curve that has one for each round; longer ones are means of as many rounds as it takes.
const MOST_POINTS: usize = 1500;
/// Points of the small curve in the list.
const SMALL_POINTS: usize = 40;

/// The definition of a curve, for all runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chart {
    /// Its name in [`Run::curves`].
    pub key: String,
    /// The title.
    pub title: String,
    /// What belongs below the title; it may be empty.
    pub note: String,
    /// Where it stands on the page.
    pub group: Group,
    /// How its numbers are read: `share`, `epsilon`, `seconds` or `number`.
    pub unit: &'static str,
    /// Whether its axis is logarithmic.
    pub log: bool,
    /// Whether more is better, less is, or neither.
    pub better: Option<&'static str>,
    /// The curves below and above it, between which most users are.
    pub band: Option<[&'static str; 2]>,
}

/// The group of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Model quality.
    Quality,
    /// Privacy cost.
    Privacy,
    /// What users did, exactly: simulations only.
    Training,
}

/// A run in the list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// When it was begun, in seconds since 1970; the day, where the noise is secret.
    pub started: u64,
    /// Why the run ended, if it did.
    pub ended: Option<&'static str>,
    /// Rounds that are settled.
    pub rounds: u64,
    /// Rounds of its plan.
    pub planned: u64,
    /// Whether its noise can be repeated, so that nothing is guaranteed.
    pub simulated: bool,
    /// The number by which models are chosen, and what is shown beside it: their curves, and where they stand.
    pub numbers: Vec<Number>,
    /// The privacy cost.
    pub price: Cost,
    /// Its settings, key by key. Of a path only the last part.
    pub settings: BTreeMap<String, String>,
    /// The first of the numbers over time.
    pub small: Vec<Option<f64>>,
}

/// The latest value of a number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Number {
    /// The name of its curve.
    pub key: &'static str,
    /// Its last value.
    pub value: Option<f64>,
}

/// The privacy cost of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// The number and what it means.
    pub words: String,
    /// To sort by; none where it is infinite.
    pub epsilon: Option<f64>,
}

/// All that the page shows of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// What a person can quote.
    pub sentence: String,
    /// What should be known beside it.
    pub notes: Vec<String>,
    /// The numbers that people look for first.
    pub tiles: Vec<Tile>,
    /// Curves by chart name.
    pub curves: BTreeMap<String, Curve>,
    /// What its epsilons mean, as the axis says it.
    pub epsilon_means: &'static str,
    /// What its model suggested after public prompts, at each evaluation.
    pub samples: Vec<Samples>,
    /// Its privacy statement, as Markdown.
    pub statement: String,
}

/// Values over rounds.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Curve {
    /// Rounds that were done.
    pub rounds: Vec<u64>,
    /// What is infinite or not there is null.
    pub values: Vec<Option<f64>>,
}

/// The loss per example, whatever the learner calls that.
const LOSS: &str = "training_loss";
/// The curves that say what users did: name, words, what belongs below them, unit.
const TRAINING: [(&str, &str, &str, &str); 5] = [
    (LOSS, "Training loss", "of the users of each round before they train", "number"),
    ("update_norm", "Update norms", "before clipping: the median, and the range from 10 % to 90 % of users", "number"),
    ("clipped_share", "Clipped updates", "share of updates above the clip norm", "share"),
    ("users", "Users per round", "", "number"),
    ("round_seconds", "Time per round", "", "seconds"),
];
/// Below and above the norms of updates.
const BAND: [&str; 2] = ["update_norm_10", "update_norm_90"];

/// All charts that runs can have, in the order of the page.
#[must_use]
pub fn charts() -> Vec<Chart> {
    let measured = METRICS.iter().copied().filter(|metric| is_measured(metric)).chain([&HEADLINE_BY_DEVICES]);
    let mut charts: Vec<Chart> = measured.map(|metric| of_metric(metric, Group::Quality, true)).collect();
    charts.extend([Meaning::Guaranteed, Meaning::SoFar, Meaning::IfSecret].map(|meaning| {
        let label = epsilon_label(meaning);
        let title = label[..1].to_uppercase() + &label[1..];
        Chart { key: epsilon_key(meaning).into(), title, ..of_metric(&EPSILON, Group::Privacy, false) }
    }));
    let clips = [&PROJECTED_EPSILON, &CLIP_NORM, &TRACKED_CLIP_NORM, &FRACTION_BELOW_CLIP];
    charts.extend(clips.map(|metric| of_metric(metric, Group::Privacy, false)));
    let examples = distinct(MEASURES.iter().map(|measures| measures.example)).join(" or ");
    charts.extend(TRAINING.map(|(key, title, note, unit)| Chart {
        key: key.into(),
        title: title.into(),
        note: if key == LOSS { format!("per {examples}, {note}") } else { note.into() },
        group: Group::Training,
        unit,
        log: key == "update_norm",
        better: None,
        band: (key == "update_norm").then_some(BAND),
    }));
    charts
}

fn is_measured(metric: &Metric) -> bool {
    federated::metrics::registry::MEASURES.iter().any(|measures| measures.metrics.contains(&metric))
}

fn of_metric(metric: &Metric, group: Group, judged: bool) -> Chart {
    Chart {
        key: metric.name.into(),
        title: metric.title(),
        note: String::new(),
        group,
        unit: match metric.unit {
            Unit::Share => "share",
            Unit::Epsilon => "epsilon",
            Unit::Bytes | Unit::Number => "number",
        },
        log: metric.log,
        better: judged.then_some(match metric.goal {
            Goal::Higher => "higher",
            Goal::Lower => "lower",
        }),
        band: None,
    }
}

const fn epsilon_key(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::Guaranteed => "epsilon",
        Meaning::SoFar => "epsilon_so_far",
        Meaning::IfSecret => "epsilon_if_secret",
    }
}

impl Summary {
    /// From the stored files of a run.
    #[must_use]
    pub fn of(kept: &Kept) -> Self {
        let measures = Measures::of(&kept.metrics);
        let value = |metric: &'static Metric| Number { key: metric.name, value: finite(metric.last(&kept.metrics)) };
        let price = kept.price();
        let all: Vec<Option<f64>> = kept.metrics.iter().map(|line| finite(line.measured.headline())).collect();
        let step = all.len().div_ceil(SMALL_POINTS).max(1);
        Self {
            started: kept.started,
            ended: kept.ended.as_ref().map(because).or_else(|| waits(kept).then_some("its sweep has not finished")),
            rounds: kept.rounds,
            planned: kept.config.rounds,
            simulated: kept.is_simulation(),
            numbers: measures.shown_first().map(value).collect(),
            price: Cost { words: price.words() + kept.foreseen(), epsilon: finite(price.epsilon.get()) },
            settings: settings::flat(&kept.settings).unwrap_or_default(),
            // The last is always among them.
            small: all.iter().rev().step_by(step).rev().copied().collect(),
        }
    }
}

/// Whether all rounds are done and the ledger is open until the choice of its sweep is counted in it.
fn waits(kept: &Kept) -> bool {
    kept.undecided && kept.rounds >= kept.config.rounds
}

const fn because(over: &Over) -> &'static str {
    match over {
        Over::Done => "all rounds done",
        Over::Budget(_) => "budget spent",
        Over::Accurate => "accuracy reached",
        Over::ByHand => "ended by hand",
    }
}

impl Run {
    /// From the stored files of a run.
    #[must_use]
    pub fn of(kept: &Kept) -> Self {
        let report = Report::of(kept);
        let meaning = kept.metrics.first().map_or(kept.price().meaning, |line| line.price.meaning);
        let mut curves = of_evaluations(&kept.metrics, meaning);
        curves.extend(of_rounds(&kept.diagnostics));
        curves.insert("round_seconds".into(), of_times(&kept.timing));
        curves.retain(|_, curve| curve.values.iter().any(Option::is_some));
        Self {
            sentence: kept.sentence.clone(),
            notes: kept.notes.clone(),
            tiles: kept.metrics.last().map_or_else(Vec::new, |last| report.tiles(last)),
            curves,
            epsilon_means: epsilon_label(meaning),
            samples: kept.samples.clone(),
            statement: kept.statement.to_markdown(),
        }
    }
}

/// What evaluations say, by the names of the registry; the epsilon by what it means.
fn of_evaluations(lines: &[Metrics], meaning: Meaning) -> BTreeMap<String, Curve> {
    let shown = METRICS.iter().filter(|metric| metric.is_in_lines());
    let curve = |metric: &&'static Metric| {
        let key = if **metric == EPSILON { epsilon_key(meaning) } else { metric.name };
        let values = lines.iter().map(|line| metric.of(line).and_then(finite));
        (key.to_owned(), Curve { rounds: lines.iter().map(|line| line.round).collect(), values: values.collect() })
    };
    shown.map(curve).collect()
}

/// What users did, exactly. There is nothing of it where the noise is secret.
fn of_rounds(lines: &[Diagnostics]) -> BTreeMap<String, Curve> {
    type Of = fn(&Diagnostics) -> Option<f64>;
    let all: [(&str, Of); 6] = [
        (LOSS, |line| line.loss),
        ("update_norm", |line| line.norm_quantiles.map(|norms| norms[2])),
        (BAND[0], |line| line.norm_quantiles.map(|norms| norms[1])),
        (BAND[1], |line| line.norm_quantiles.map(|norms| norms[3])),
        ("clipped_share", |line| line.clipped_share),
        ("users", |line| Some(line.users as f64)),
    ];
    let values = |of: Of| lines.iter().map(|line| (line.round, of(line).and_then(finite))).collect::<Vec<_>>();
    all.map(|(key, of)| (key.to_owned(), thinned(&values(of)))).into_iter().collect()
}

fn of_times(lines: &[Timing]) -> Curve {
    thinned(&lines.iter().map(|line| (line.round, finite(seconds(line)))).collect::<Vec<_>>())
}

/// At most [`MOST_POINTS`]: means of as many rounds as it takes.
fn thinned(points: &[(u64, Option<f64>)]) -> Curve {
    let many = points.len().div_ceil(MOST_POINTS).max(1);
    let mean = |part: &[(u64, Option<f64>)]| {
        let known: Vec<f64> = part.iter().filter_map(|point| point.1).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let last = |part: &[(u64, Option<f64>)]| part.last().map_or(0, |point| point.0);
    let parts = points.chunks(many);
    Curve { rounds: parts.clone().map(last).collect(), values: parts.map(mean).collect() }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_curves_become_means_and_short_ones_stay() {
        let points: Vec<(u64, Option<f64>)> = (1..=3001).map(|round| (round, Some(round as f64))).collect();
        let curve = thinned(&points);
        assert_eq!(curve.rounds.len(), 1001);
        assert_eq!((curve.rounds[0], curve.values[0]), (3, Some(2.0)));
        assert_eq!((curve.rounds[1000], curve.values[1000]), (3001, Some(3001.0)));
        let gaps = thinned(&[(1, None), (2, Some(4.0))]);
        assert_eq!((gaps.rounds, gaps.values), (vec![1, 2], vec![None, Some(4.0)]));
    }

    #[test]
    fn every_chart_has_a_name_of_its_own() {
        let charts = charts();
        for (number, chart) in charts.iter().enumerate() {
            assert!(charts[..number].iter().all(|other| other.key != chart.key), "{}", chart.key);
            assert!(!chart.title.is_empty());
        }
    }
}
