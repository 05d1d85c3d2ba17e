//! What every page has: one file without scripts, with its style inside, for light and dark screens and for paper.

use crate::{
    chart::{Chart, ChartError},
    markup::escaped,
};

const STYLE: &str = include_str!("page.css");

/// A whole page.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// A legend of many lines must not take the room of the lines.
fn height(chart: &Chart) -> u32 {
    let pairs = (chart.series.len() as u32).min(100) / 2;
    320 + 18 * pairs.saturating_sub(1)
}

/// Charts beside one another; those without a point are left out.
pub(crate) fn figures(charts: &[Chart]) -> Result<String, ChartError> {
    let drawn = charts.iter().filter(|chart| !chart.is_empty());
    let figures = drawn.map(|chart| Ok(format!("<figure>\n{}</figure>\n", chart.svg(520, height(chart))?)));
    let figures = figures.collect::<Result<String, ChartError>>()?;
    Ok(if figures.is_empty() {
        "<p>There is nothing to draw yet.</p>\n".into()
    } else {
        format!("<div class=\"figures\">\n{figures}</div>\n")
    })
}

/// A table with a head and a first column that names the rows. Everything is escaped here.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: String = head.iter().map(|cell| format!("<th scope=\"col\">{}</th>", escaped(cell))).collect();
    let row = |cells: &Vec<String>| {
        let cell = |(i, cell): (usize, &String)| match i {
            0 => format!("<th scope=\"row\">{}</th>", escaped(cell)),
            _ => format!("<td>{}</td>", escaped(cell)),
        };
        format!("<tr>{}</tr>\n", cells.iter().enumerate().map(cell).collect::<String>())
    };
    let rows: String = rows.iter().map(row).collect();
    format!("<div class=\"wide\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n")
}

/// A share, in percent.
pub(super) fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { "none".into() }
}

/// An accuracy in percent, as the papers give it.
pub(crate) fn accuracy(value: f64) -> String {
    if value.is_finite() { format!("{:.2} %", value * 100.0) } else { "none".into() }
}

/// A whole number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Four digits of a number.
#[must_use]
pub fn four_digits(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "infinite".into(),
        0.0 => "0".into(),
        _ if !(1e-3..1e7).contains(&size) => format!("{value:.3e}"),
        _ if size >= 1000.0 => format!("{value:.0}"),
        _ => format!("{value:.*}", (3 - libm::floor(libm::log10(size)) as i32).clamp(0, 6) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let written = [0.0, 0.012_345, 0.3, 12.3456, 1234.5, 1e9, 1e-9, f64::INFINITY].map(four_digits);
        assert_eq!(written, ["0", "0.01235", "0.3000", "12.35", "1234", "1.000e9", "1.000e-9", "infinite"]);
        assert_eq!([accuracy(0.123_456), percent(0.5), accuracy(f64::NAN)], ["12.35 %", "50.0 %", "none"]);
    }

    #[test]
    fn cells_are_escaped() {
        let table = table(&["<a>"], &[vec!["<b>".into(), "c & d".into()]]);
        assert!(table.contains("&lt;a&gt;") && table.contains("&lt;b&gt;") && table.contains("c &amp; d"), "{table}");
    }
}
