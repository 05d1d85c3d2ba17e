//! The charts that reports and comparisons share.

use federated::{
    metrics::{
        Measures, Metric, Metrics,
        curve::{SMOOTHED_OVER, smoothed},
        training::{CLIP_NORM, EPSILON, FRACTION_BELOW_CLIP, PROJECTED_EPSILON},
    },
    price::Meaning,
};

use crate::{
    chart::{Chart, Series},
    page::{all_measures, distinct},
};

/// A run and what it measured.
pub(crate) type Run<'a> = (&'a str, &'a [Metrics]);

/// The values of a number; shares are in percent.
fn points(metrics: &[Metrics], metric: &Metric) -> Vec<(f64, f64)> {
    let value = |line| metric.of(line).map_or(f64::NAN, |value| metric.scale() * value);
    metrics.iter().map(|line| (line.round as f64, value(line))).collect()
}

/// One line per run.
fn over_rounds(runs: &[Run<'_>], metric: &Metric) -> Chart {
    let series = runs.iter().map(|(name, metrics)| Series::new(*name, points(metrics, metric)));
    Chart {
        title: metric.title(),
        x_label: "rounds".into(),
        y_label: metric.axis().into(),
        log_y: metric.log,
        unit: metric.unit,
        series: series.collect(),
        ..Chart::default()
    }
}

/// Whether a small cohort stands for a large one in any of them: what it costs itself is vacuous (rule P16) and may be a million times what
/// the large one would, so that on a straight axis the second is a line at zero.
fn stands_for_another(runs: &[Run<'_>]) -> bool {
    runs.iter().flat_map(|run| run.1).any(|line| line.projected_epsilon.is_some())
}

/// With a second line a run, where there is anything for it to show.
fn also(mut chart: Chart, what: &str, second: Vec<Series>) -> Chart {
    let second = Chart { series: second, ..Chart::default() };
    if !second.is_empty() {
        chart.series.extend(second.series.into_iter().map(|series| {
            let name = if series.name.is_empty() { what.into() } else { format!("{}, {what}", series.name) };
            Series { name, ..series }
        }));
    }
    chart
}

/// The headlines of the runs and what is shown beside them.
pub(crate) fn measured(runs: &[Run<'_>]) -> Vec<Chart> {
    let all = all_measures(runs.iter().map(|run| run.1));
    let metrics = distinct(all.iter().flat_map(|measures| measures.shown_first()));
    metrics
        .into_iter()
        .map(|metric| if metric.smoothed { with_mean(runs, metric) } else { over_rounds(runs, metric) })
        .collect()
}

/// What was measured, and where there is one run only its mean over a few evaluations as a thin second line.
fn with_mean(runs: &[Run<'_>], metric: &Metric) -> Chart {
    let mut chart = over_rounds(runs, metric);
    if chart.constants().is_some() {
        return chart;
    }
    if let [series] = &mut chart.series[..] {
        let (rounds, values): (Vec<f64>, Vec<f64>) = series.points.iter().copied().unzip();
        series.faint = Some(rounds.into_iter().zip(smoothed(&values)).collect());
        chart.title = format!("{} (thin: mean of {SMOOTHED_OVER} evaluations)", chart.title);
    }
    chart
}

pub(crate) fn clip_norm(runs: &[Run<'_>]) -> Chart {
    let chart = Chart { y_label: "norm of an update".into(), ..over_rounds(runs, &CLIP_NORM) };
    // Where what is tracked is what clips, one line shows both.
    let tracked = |m: &Metrics| m.tracked_clip_norm.filter(|t| Some(*t) != m.clip_norm).unwrap_or(f64::NAN);
    let line = |metrics: &[Metrics]| metrics.iter().map(|m| (m.round as f64, tracked(m))).collect();
    let second = runs.iter().map(|(name, metrics)| Series::new(*name, line(metrics))).collect();
    also(chart, "follows the quantile", second)
}

pub(crate) fn fraction_below_clip(runs: &[Run<'_>]) -> Chart {
    over_rounds(runs, &FRACTION_BELOW_CLIP)
}

/// What an epsilon of an evaluation is, on axes and above columns.
pub(crate) const fn epsilon_label(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::Guaranteed => "epsilon",
        Meaning::SoFar => "epsilon so far, this run alone",
        Meaning::IfSecret => "epsilon if the noise were secret",
    }
}

/// What the epsilons of runs are; where they are not the same, the names of the lines say it.
fn meaning(runs: &[Run<'_>]) -> Option<Meaning> {
    let mut meanings = runs.iter().filter_map(|(_, metrics)| metrics.first()).map(|line| line.price.meaning);
    let first = meanings.next()?;
    meanings.all(|other| other == first).then_some(first)
}

/// The runs with what their epsilons are in their names, where that is not the same for all.
fn named<'a>(runs: &[Run<'a>]) -> Vec<(String, &'a [Metrics])> {
    let all = meaning(runs);
    let name = |(name, metrics): &Run<'a>| match metrics.first() {
        Some(line) if all.is_none() => format!("{name}: {}", epsilon_label(line.price.meaning)),
        _ => (*name).to_owned(),
    };
    runs.iter().map(|run| (name(run), run.1)).collect()
}

pub(crate) fn epsilon(runs: &[Run<'_>]) -> Chart {
    let label = meaning(runs).map_or("epsilon", epsilon_label);
    let named = named(runs);
    let runs: Vec<Run<'_>> = named.iter().map(|(name, metrics)| (name.as_str(), *metrics)).collect();
    let title = label[..1].to_uppercase() + &label[1..];
    let log_y = stands_for_another(&runs);
    let chart = Chart { title, y_label: label.into(), log_y, ..over_rounds(&runs, &EPSILON) };
    also(chart, "projected to the large cohort", over_rounds(&runs, &PROJECTED_EPSILON).series)
}

/// What was learned for which price; empty as long as nothing was paid, and where a filter's budget is the price throughout.
pub(crate) fn headline_over_epsilon(runs: &[Run<'_>]) -> Chart {
    let is_price = |m: &Metrics| m.price.epsilon.is_finite() && m.price.epsilon.get() > 0.0;
    let grows = |metrics: &[Metrics]| metrics.windows(2).any(|pair| pair[0].price.epsilon != pair[1].price.epsilon);
    if !runs.iter().any(|(_, metrics)| metrics.iter().any(is_price) && grows(metrics)) {
        return Chart::default();
    }
    let label = meaning(runs).map_or("epsilon", epsilon_label);
    let headline = Measures::of(runs.iter().flat_map(|run| run.1)).headline;
    let series = named(runs).into_iter().map(|(name, metrics)| {
        let values = points(metrics, headline).into_iter().map(|point| point.1);
        Series::new(name, metrics.iter().map(|m| m.price.epsilon.get()).zip(values).collect())
    });
    Chart {
        title: format!("{} for its {label}", headline.title()),
        x_label: label.into(),
        y_label: headline.axis().into(),
        log_x: stands_for_another(runs),
        unit: headline.unit,
        series: series.collect(),
        ..Chart::default()
    }
}

#[cfg(test)]
mod tests {
    use privacy::Epsilon;

    use super::*;
    use crate::scalars::tests::evaluation;

    /// The epsilon of a small cohort that stands for a large one is vacuous: 1e6 beside 2 made a line at zero of the second.
    #[test]
    fn what_a_large_cohort_would_cost_is_drawn_on_logarithmic_axes() {
        let of = |projected: bool| -> Vec<Metrics> {
            let line = |round: u64| {
                let mut line = evaluation(round);
                line.price.epsilon = Epsilon::new(1e5 * round as f64).unwrap();
                line.projected_epsilon = projected.then(|| Epsilon::new(0.1 * round as f64).unwrap());
                line
            };
            (0..4).map(line).collect()
        };
        for projected in [true, false] {
            let metrics = of(projected);
            let run = [("", &metrics[..])];
            assert_eq!((epsilon(&run).log_y, headline_over_epsilon(&run).log_x), (projected, projected));
            assert_eq!(epsilon(&run).series.len(), 1 + usize::from(projected));
        }
    }
}
