//! `sweep.html`: final values of the combinations against their settings, and their curves; and the same as numbers.

mod summary;

use askama::Template;
use federated::{
    metrics::{Measures, Metric, training::EPSILON},
    sweep::{
        estimate::{Estimate, Spread, in_brackets},
        grid::{Axis, Variant},
        summary::Runs,
    },
};
use privacy::Epsilon;

pub use self::summary::{Summary, series};
use crate::{
    ReportError,
    chart::{Chart, Series},
    compare::epsilon,
    markup::Markup,
    page::{figures, table},
};

/// The name of the file in the folder of a sweep.
pub const PAGE_FILE: &str = "sweep.html";

#[derive(Template)]
#[template(path = "sweep.html")]
struct Page<'a> {
    title: &'static str,
    means: &'a str,
    note: &'a str,
    ends: Markup,
    curves: Markup,
}

/// The page. `note` says what was chosen.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn html(axes: &[Axis], variants: &[Variant], runs: &[Runs], note: &str) -> Result<String, ReportError> {
    let mut charts: Vec<Chart> = ends(axes, variants, runs).into_iter().collect();
    charts.extend(measures(runs).shown_first().map(|metric| curves(&metric.title(), metric, runs)));
    charts.push(curves("Epsilon of one run, with secret noise", &EPSILON, runs));
    let seeds = runs.iter().map(|runs| runs.seeds.len()).max().unwrap_or(0);
    let means = if seeds > 1 { format!("Means over {seeds} seeds, {}. ", in_brackets(seeds)) } else { String::new() };
    let page = Page { title: "Sweep", means: &means, note, ends: table(&cells(runs))?, curves: figures(&charts)? };
    Ok(page.render()?)
}

/// The table, its head first: for the page and for the terminal.
#[must_use]
pub fn cells(runs: &[Runs]) -> Vec<Vec<String>> {
    let simulated = runs.iter().any(Runs::is_simulation);
    let price = if simulated { "epsilon of one run, if secret" } else { "epsilon of one run" };
    let mut head = vec!["variant".to_owned(), "seeds".to_owned()];
    head.extend(measures(runs).shown_first().map(|metric| metric.column.to_owned()));
    head.push(price.to_owned());
    let mut rows = vec![head];
    rows.extend(runs.iter().map(|of_one| {
        let mut cells = vec![of_one.name.clone(), of_one.seeds.len().to_string()];
        let shown = |metric: &'static Metric| of_one.last(metric).written(|value| metric.shown(value));
        cells.extend(measures(runs).shown_first().map(shown));
        let price = |value| Epsilon::new(value).map_or_else(|_| "none".into(), epsilon);
        cells.push(of_one.last(&EPSILON).written(price));
        cells
    }));
    rows
}

fn measures(runs: &[Runs]) -> &'static Measures {
    Measures::of(runs.iter().flat_map(|runs| runs.seeds.iter().flatten()))
}

fn curves(title: &str, metric: &Metric, runs: &[Runs]) -> Chart {
    let stands_for_another =
        || runs.iter().flat_map(|runs| runs.seeds.iter().flatten()).any(|m| m.projected_epsilon.is_some());
    Chart {
        title: title.into(),
        x_label: "rounds".into(),
        y_label: metric.axis().into(),
        log_y: metric.log || (*metric == EPSILON && stands_for_another()),
        unit: metric.unit,
        series: runs.iter().map(|runs| series(runs, metric, false)).collect(),
        ..Chart::default()
    }
}

/// The final headline over the axis of numbers that has most of them; a line for each combination of the others.
fn ends(axes: &[Axis], variants: &[Variant], runs: &[Runs]) -> Option<Chart> {
    let numbers: Vec<(usize, Vec<f64>)> = axes
        .iter()
        .enumerate()
        .filter_map(|(i, axis)| Some((i, axis.numbers()?)))
        .filter(|(_, n)| n.len() > 1)
        .collect();
    let headline = measures(runs).headline;
    let (axis, values) = numbers.iter().rev().max_by_key(|(_, values)| values.len())?;
    let mut lines: Vec<(String, Vec<(f64, Estimate)>)> = Vec::new();
    for (variant, runs) in variants.iter().zip(runs) {
        let others = variant.set.iter().enumerate().filter(|(i, _)| i != axis).map(|(_, pair)| pair.as_str());
        let line = others.collect::<Vec<&str>>().join(", ");
        let point = (values[*variant.place.get(*axis)?], runs.last(headline));
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, points)) => points.push(point),
            None => lines.push((line, vec![point])),
        }
    }
    let series = lines.into_iter().map(|(name, mut points)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line = Series::new(name, points.iter().map(|(x, e)| (*x, headline.scale() * e.mean)).collect());
        let several = points.iter().any(|(_, e)| e.spread != Spread::Point);
        let band = || points.iter().map(|(x, e)| (*x, headline.scale() * e.low, headline.scale() * e.high)).collect();
        if several { line.with_band(band()) } else { line }
    });
    let (least, most) = values.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), v| (l.min(*v), m.max(*v)));
    Some(Chart {
        title: format!("{} at the end, by {}", headline.title(), axes[*axis].key),
        x_label: axes[*axis].key.clone(),
        y_label: headline.axis().into(),
        log_x: least > 0.0 && most / least >= 20.0,
        unit: headline.unit,
        series: series.collect(),
        ..Chart::default()
    })
}

#[cfg(test)]
mod tests {
    use federated::sweep::grid::combinations;

    use super::{summary::tests::run, *};

    fn sweep(texts: &[&str]) -> (Vec<Axis>, Vec<Variant>, Vec<Runs>) {
        let axes: Vec<Axis> = texts.iter().map(|text| Axis::parse(text).unwrap()).collect();
        let variants = combinations(&axes).unwrap();
        let runs = variants.iter().enumerate().map(|(i, variant)| Runs {
            name: variant.name.clone(),
            set: variant.set.clone(),
            seeds: vec![run(&[0.0, 0.1 * i as f64]), run(&[0.0, 0.2 * i as f64])],
        });
        let runs = runs.collect();
        (axes, variants, runs)
    }

    #[test]
    fn ends_are_drawn_over_the_numbers_with_a_line_for_the_rest() {
        let (axes, variants, runs) = sweep(&["server.optimizer=sgd,adam", "clip.norm=8,0.1,1"]);
        let chart = ends(&axes, &variants, &runs).unwrap();
        let names: Vec<&str> = chart.series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["server.optimizer=sgd", "server.optimizer=adam"]);
        assert_eq!(chart.series[0].points.iter().map(|p| p.0).collect::<Vec<_>>(), [0.1, 1.0, 8.0]);
        assert!(chart.log_x && chart.series[0].band.is_some());
        let (axes, variants, runs) = sweep(&["server.optimizer=sgd,adam"]);
        assert_eq!(ends(&axes, &variants, &runs), None);
    }

    #[test]
    fn the_page_has_a_row_for_each_combination() {
        let (axes, variants, runs) = sweep(&["clip.norm=1,2"]);
        let html = html(&axes, &variants, &runs, "The best <one>.").unwrap();
        assert!(html.contains("The best &lt;one&gt;.") && html.matches("<svg").count() == 3, "{html}");
        assert!(html.contains("the same in every evaluation"), "a perplexity that never changes is a number");
        assert!(html.contains("clip.norm=2") && html.contains("(range "));
        assert!(
            html.contains("too few for a confidence interval") && !html.contains("95 %"),
            "two seeds are no interval"
        );
    }
}
