//! The curves of runs: the charts that a report and a comparison share.

use crate::{
    chart::{Chart, Series},
    metrics::Metrics,
    price::Meaning,
};

/// Evaluations that accuracy is smoothed over, as in the papers.
pub const SMOOTHED_OVER: usize = 5;

/// The mean of each value and the four before it, or as many as there are. What is not a number does not count, and has no
/// mean of its own.
#[must_use]
pub fn smoothed(values: &[f64]) -> Vec<f64> {
    let mean = |(i, value): (usize, &f64)| {
        let window = values[(i + 1).saturating_sub(SMOOTHED_OVER)..=i].iter().filter(|v| v.is_finite());
        if value.is_finite() { window.clone().sum::<f64>() / window.count() as f64 } else { f64::NAN }
    };
    values.iter().enumerate().map(mean).collect()
}

/// A run and what it measured.
pub(super) type Run<'a> = (&'a str, &'a [Metrics]);

fn points(metrics: &[Metrics], value: impl Fn(&Metrics) -> Option<f64>) -> Vec<(f64, f64)> {
    metrics.iter().map(|m| (m.round as f64, value(m).unwrap_or(f64::NAN))).collect()
}

/// A line a run.
fn over_rounds(title: &str, y_label: &str, runs: &[Run<'_>], value: impl Fn(&Metrics) -> Option<f64>) -> Chart {
    let series = runs.iter().map(|(name, metrics)| Series::new(*name, points(metrics, &value)));
    Chart {
        title: title.into(),
        x_label: "rounds".into(),
        y_label: y_label.into(),
        series: series.collect(),
        ..Chart::default()
    }
}

/// With a second line a run, where there is anything for it to show.
fn also(mut chart: Chart, runs: &[Run<'_>], what: &str, value: impl Fn(&Metrics) -> Option<f64>) -> Chart {
    let second = over_rounds("", "", runs, value);
    if !second.is_empty() {
        chart.series.extend(second.series.into_iter().map(|series| {
            let name = if series.name.is_empty() { what.into() } else { format!("{}, {what}", series.name) };
            Series { name, ..series }
        }));
    }
    chart
}

/// The smoothed top-1 accuracy in percent, over what was measured where there is one run only.
pub(super) fn accuracy(runs: &[Run<'_>]) -> Chart {
    let measured = over_rounds("", "percent", runs, |m| Some(m.accuracy_top1 * 100.0));
    let series = measured.series.iter().map(|series| {
        let (rounds, values): (Vec<f64>, Vec<f64>) = series.points.iter().copied().unzip();
        let line = Series::new(series.name.clone(), rounds.into_iter().zip(smoothed(&values)).collect());
        if runs.len() == 1 { line.with_faint(series.points.clone()) } else { line }
    });
    let faint = if runs.len() == 1 { " (faint: each)" } else { "" };
    let title = format!("Top-1 accuracy, mean of {SMOOTHED_OVER} evaluations{faint}");
    Chart { title, series: series.collect(), ..measured }
}

pub(super) fn perplexity(runs: &[Run<'_>]) -> Chart {
    let chart = over_rounds("Perplexity", "perplexity", runs, |m| m.perplexity);
    Chart { log_y: true, ..chart }
}

pub(super) fn clip_norm(runs: &[Run<'_>]) -> Chart {
    let chart = over_rounds("Clip norm", "norm of an update", runs, |m| m.clip_norm);
    // Where what is tracked is what clips, one line shows both.
    also(chart, runs, "follows the quantile", |m| m.tracked_clip_norm.filter(|t| Some(*t) != m.clip_norm))
}

pub(super) fn fraction_below_clip(runs: &[Run<'_>]) -> Chart {
    over_rounds("Users under the clip, noised", "percent", runs, |m| Some(m.fraction_below_clip? * 100.0))
}

/// What an epsilon of an evaluation is, on axes and above columns.
pub(super) const fn epsilon_label(meaning: Meaning) -> &'static str {
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

pub(super) fn epsilon(runs: &[Run<'_>]) -> Chart {
    let label = meaning(runs).map_or("epsilon", epsilon_label);
    let named = named(runs);
    let runs: Vec<Run<'_>> = named.iter().map(|(name, metrics)| (name.as_str(), *metrics)).collect();
    let title = label[..1].to_uppercase() + &label[1..];
    let chart = over_rounds(&title, label, &runs, |m| Some(m.price.epsilon.get()));
    also(chart, &runs, "projected to the large cohort", |m| Some(m.projected_epsilon?.get()))
}

/// What was learned for which price; empty as long as nothing was paid, and where a filter's budget is the price throughout.
pub(super) fn accuracy_over_epsilon(runs: &[Run<'_>]) -> Chart {
    let is_price = |m: &Metrics| m.price.epsilon.is_finite() && m.price.epsilon.get() > 0.0;
    let grows = |metrics: &[Metrics]| metrics.windows(2).any(|pair| pair[0].price.epsilon != pair[1].price.epsilon);
    if !runs.iter().any(|(_, metrics)| metrics.iter().any(is_price) && grows(metrics)) {
        return Chart::default();
    }
    let label = meaning(runs).map_or("epsilon", epsilon_label);
    let series = named(runs).into_iter().map(|(name, metrics)| {
        let values: Vec<f64> = metrics.iter().map(|m| m.accuracy_top1 * 100.0).collect();
        Series::new(name, metrics.iter().map(|m| m.price.epsilon.get()).zip(smoothed(&values)).collect())
    });
    Chart {
        title: format!("Top-1 accuracy for its {label}"),
        x_label: label.into(),
        y_label: "percent".into(),
        series: series.collect(),
        ..Chart::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_is_smoothed_over_the_last_five_evaluations() {
        assert_eq!(smoothed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 13.0]), [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 31.0 / 5.0]);
        assert_eq!(smoothed(&[]), [0.0; 0]);
        let gaps = smoothed(&[f64::NAN, 1.0, f64::INFINITY, 3.0]);
        assert!(gaps[0].is_nan() && gaps[2].is_nan());
        assert_eq!([gaps[1], gaps[3]], [1.0, 2.0]);
    }
}
