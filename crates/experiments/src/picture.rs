//! Charts of experiments that train: curves over rounds, or final values over a setting.

use federated::metrics::{Metric, registry::Goal};
use report::{
    chart::{Chart, Series},
    sweep,
};

use crate::{error::ExperimentError, format::Plot, training::Outcome};

/// Width and height, in pixels.
pub(crate) const SIZE: (u32, u32) = (720, 440);

/// Draws one chart.
pub(crate) fn draw(title: &str, plot: &Plot, outcomes: &[Outcome<'_>]) -> Result<Chart, ExperimentError> {
    let drawn = |outcome: &&Outcome<'_>| plot.only.as_ref().is_none_or(|only| only.contains(&outcome.variant.name));
    let outcomes: Vec<&Outcome<'_>> = outcomes.iter().filter(drawn).collect();
    let smooth = plot.smoothed.unwrap_or(plot.y.smoothed);
    let unit = if plot.y.is_share() { " in percent" } else { "" };
    let chart = Chart {
        title: plot.title.clone().unwrap_or_else(|| title.to_owned()),
        x_label: if plot.x == "round" { "rounds".to_owned() } else { plot.x.replace('_', " ") },
        y_label: format!("{}{unit}", plot.y.label),
        log_x: plot.log_x,
        log_y: plot.log_y,
        unit: plot.y.unit,
        ..Chart::default()
    };
    if plot.x == "round" {
        return Ok(over_rounds(chart, plot.y, smooth, &outcomes));
    }
    over_setting(chart, plot, &outcomes)
}

/// A line a variant; one that was measured at its end alone is a dashed line.
fn over_rounds(chart: Chart, what: &Metric, smooth: bool, outcomes: &[&Outcome<'_>]) -> Chart {
    let (mut series, mut reference) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        if what.is_in_lines() && outcome.variant.evaluate_on.is_empty() && outcome.variant.instead.is_none() {
            series.push(sweep::series(&outcome.runs, what, smooth));
        } else {
            reference.push((outcome.variant.name.clone(), what.scale() * outcome.estimate(what, None).mean));
        }
    }
    Chart { series, reference, ..chart }
}

/// A point of a line: x, the value and its interval.
type Point = (f64, f64, f64, f64);

/// A point a variant; one without a number there is a dashed line.
fn over_setting(chart: Chart, plot: &Plot, outcomes: &[&Outcome<'_>]) -> Result<Chart, ExperimentError> {
    let (mut lines, mut reference): (Vec<(String, Vec<Point>)>, _) = (Vec::new(), Vec::new());
    let scale = plot.y.scale();
    for outcome in outcomes {
        let estimate = outcome.estimate(plot.y, None);
        let Some(x) = place(outcome, &plot.x) else {
            reference.push((outcome.variant.name.clone(), scale * estimate.mean));
            continue;
        };
        let line = line_of(outcome, plot);
        let point = (x, scale * estimate.mean, scale * estimate.low, scale * estimate.high);
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, points)) => points.push(point),
            None => lines.push((line, vec![point])),
        }
    }
    if lines.is_empty() {
        return Err(ExperimentError::Plot { x: plot.x.clone() });
    }
    let series = lines.into_iter().map(|(name, mut points)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if plot.best {
            points = best(points, plot.y.goal);
        }
        let line = Series::new(name, points.iter().map(|p| (p.0, p.1)).collect());
        let has_band = points.iter().any(|p| p.2 < p.3);
        if has_band { line.with_band(points.iter().map(|p| (p.0, p.2, p.3)).collect()) } else { line }
    });
    Ok(Chart { series: series.collect(), reference, ..chart })
}

/// The best of the points with the same x.
fn best(points: Vec<Point>, goal: Goal) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    for point in points {
        match kept.last_mut().filter(|last| last.0 == point.0) {
            Some(last) if (point.1 > last.1) == (goal == Goal::Higher) => *last = point,
            Some(_) => {}
            None => kept.push(point),
        }
    }
    kept
}

/// The x of a variant: a number of its settings, or one that was measured.
fn place(outcome: &Outcome<'_>, x: &str) -> Option<f64> {
    if let Some(what) = Metric::find(x) {
        return Some(outcome.estimate(what, None).mean).filter(|x| x.is_finite());
    }
    match setting(outcome, x)? {
        toml::Value::Integer(number) => Some(number as f64),
        toml::Value::Float(number) => Some(number),
        _ => None,
    }
}

/// A setting of a variant.
fn setting(outcome: &Outcome<'_>, key: &str) -> Option<toml::Value> {
    let settings: toml::Table = toml::from_str(&outcome.config.to_toml().ok()?).ok()?;
    key.split('.').try_fold(toml::Value::Table(settings), |value, part| value.get(part).cloned())
}

fn line_of(outcome: &Outcome<'_>, plot: &Plot) -> String {
    match (&outcome.variant.line, &plot.lines) {
        (Some(line), _) => line.clone(),
        (None, Some(key)) => {
            let value = setting(outcome, key).map_or_else(|| "none".to_owned(), |value| value.to_string());
            format!("{key} = {}", value.trim_matches('"'))
        }
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_equal_x_is_kept() {
        let points = vec![(1.0, 2.0, 2.0, 2.0), (1.0, 3.0, 3.0, 3.0), (2.0, 1.0, 1.0, 1.0), (2.0, 0.5, 0.5, 0.5)];
        let values = |goal| best(points.clone(), goal).iter().map(|p| p.1).collect::<Vec<f64>>();
        assert_eq!(values(Goal::Higher), [3.0, 1.0]);
        assert_eq!(values(Goal::Lower), [2.0, 0.5]);
    }
}
