//! The template of all pages: one file without scripts, with its style inside (`templates/page.html`), tables and charts.

use askama::{Template, filters::Safe};
use federated::metrics::{Measures, Metrics};

use crate::{
    ReportError,
    chart::Chart,
    markup::{Markup, rendered},
};

/// A legend of many lines must not take the room of the lines.
fn height(chart: &Chart) -> u32 {
    let pairs = (chart.series.len() as u32).min(100) / 2;
    320 + 18 * pairs.saturating_sub(1)
}

#[derive(Template)]
#[template(path = "figures.html")]
struct Figures<'a> {
    drawn: Vec<Markup>,
    constants: Vec<Constant<'a>>,
}

/// What never changed: a title, and each line with its one value.
struct Constant<'a> {
    title: &'a str,
    lines: Vec<(&'a str, String)>,
}

/// Charts beside one another; those without a point are left out, and what never changed is said in numbers below them.
pub(crate) fn figures(charts: &[Chart]) -> Result<Markup, ReportError> {
    let (mut drawn, mut constants) = (Vec::new(), Vec::new());
    for chart in charts.iter().filter(|chart| !chart.is_empty()) {
        match chart.constants() {
            Some(lines) => constants.push(Constant { title: &chart.title, lines }),
            None => drawn.push(Safe(chart.svg(520, height(chart))?)),
        }
    }
    Ok(rendered(&Figures { drawn, constants })?)
}

/// A table with a head and a first column that names the rows.
#[derive(Template)]
#[template(path = "table.html")]
struct Table<'a> {
    head: &'a [String],
    rows: &'a [Vec<String>],
}

/// A table; the first row is its head.
pub(crate) fn table(rows: &[Vec<String>]) -> askama::Result<Markup> {
    let (head, rows) = rows.split_first().map_or((&[][..], rows), |(head, rows)| (&head[..], rows));
    rendered(&Table { head, rows })
}

/// A row of texts.
pub(crate) fn row<'a>(cells: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    cells.into_iter().map(str::to_owned).collect()
}

/// What runs measure, each learner once.
pub(crate) fn all_measures<'a>(runs: impl IntoIterator<Item = &'a [Metrics]>) -> Vec<&'static Measures> {
    distinct(runs.into_iter().map(Measures::of))
}

/// Each of them once, in order.
pub(crate) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Series;

    #[test]
    fn cells_are_escaped() {
        let table = table(&[row(["<a>"]), row(["<b>", "c & d"])]).unwrap().0;
        assert!(table.contains("&lt;a&gt;") && table.contains("&lt;b&gt;") && table.contains("c &amp; d"), "{table}");
    }

    #[test]
    fn what_never_changes_is_a_number_with_a_name_where_there_are_several() {
        let level = |name: &str, y: f64| Series::new(name, vec![(0.0, y), (1.0, y)]);
        let chart = |series| Chart { title: "Clip & norm".into(), series, ..Chart::default() };
        let one = figures(&[chart(vec![level("a", 0.5)])]).unwrap().0;
        assert!(
            one.contains("<dt>Clip &amp; norm</dt><dd class=\"value\">0.5000</dd><dd class=\"note\">the same in every"),
            "{one}"
        );
        let two = figures(&[chart(vec![level("<a>", 0.5), level("b", 2.0)])]).unwrap().0;
        assert!(
            two.contains("<dd class=\"note\">&lt;a&gt;</dd><dd class=\"value\">2.000</dd>") && !two.contains("<svg"),
            "{two}"
        );
    }

    #[test]
    fn what_is_not_drawn_is_left_out() {
        assert_eq!(figures(&[Chart::default()]).unwrap().0, "<p>There is nothing to draw yet.</p>\n");
    }
}
