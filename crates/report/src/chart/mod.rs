//! Line charts as SVG, for reports of runs, comparisons, sweeps, experiments and plots of epsilon.
//!
//! The pictures stand alone as files and inside pages. They are drawn for light pages; black and white are the only colours
//! besides those of the series, so that a dark page can exchange the two.
//!
//! `plotters` draws; heading, legend, axes and ticks are laid out here, because it puts a legend over the lines, measures text with
//! the fonts of the drawing machine, and leaves a short logarithmic axis almost without ticks. The outermost tag is ours as well, for
//! a picture that scales and has a title for those who do not see it.

mod axis;
mod draw;

use federated::metrics::registry::Unit;

use self::axis::{Axis, place};
use crate::markup::{escaped, shown};

/// A line chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// What runs to the right.
    pub x_label: String,
    /// The label of the vertical axis.
    pub y_label: String,
    /// A logarithmic axis to the right; points that are not positive are left out.
    pub log_x: bool,
    /// Whether the y axis is logarithmic.
    pub log_y: bool,
    /// What the values are, where one is written out.
    pub unit: Unit,
    /// The lines.
    pub series: Vec<Series>,
    /// Dashed horizontal lines, such as what a paper reports: a name and a value.
    pub reference: Vec<(String, f64)>,
}

/// A line of a chart. A point that is infinite or not a number is left out, and the line is broken there. A line without
/// any point keeps its place among the colours, so that lines can have the same colours in several charts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// What the legend says; a chart with one line has none.
    pub name: String,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// A thin second line behind it, such as its mean over several points.
    pub faint: Option<Vec<(f64, f64)>>,
    /// Intervals: x, the lower end and the upper.
    pub band: Option<Vec<(f64, f64, f64)>>,
}

impl Series {
    /// A line and nothing else.
    #[must_use]
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, faint: None, band: None }
    }

    /// Adds intervals around the line.
    #[must_use]
    pub fn with_band(self, band: Vec<(f64, f64, f64)>) -> Self {
        Self { band: Some(band), ..self }
    }

    /// All points that it brings to the chart, drawn or not.
    fn all_points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let ends = self.band.iter().flatten().flat_map(|&(x, low, high)| [(x, low), (x, high)]);
        self.points.iter().chain(self.faint.iter().flatten()).copied().chain(ends)
    }
}

/// Why a chart could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// The chart is too small.
    #[error(
        "a chart of {width} by {height} pixels has no room for its labels; \
         give {LEAST_WIDTH} by {LEAST_HEIGHT} to {MOST} by {MOST}"
    )]
    Size {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The drawing itself failed.
    #[error("the chart could not be drawn: {0}")]
    Drawing(String),
}

const LEAST_WIDTH: u32 = 200;
const LEAST_HEIGHT: u32 = 120;
const MOST: u32 = 10_000;

impl Chart {
    /// Whether there is no point that could be drawn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places().next().is_none()
    }

    /// The name of each line and its one value, in words, where no line ever changes: then these say more than a picture. None for a
    /// chart that has something to show, and for one with a line of a single point, which may change yet.
    #[must_use]
    pub fn constants(&self) -> Option<Vec<(&str, String)>> {
        let constant = |series: &Series| {
            let values: Vec<f64> = series.all_points().filter(|p| self.place(*p).is_some()).map(|p| p.1).collect();
            let first = *values.first()?;
            (series.points.len() > 1 && values.iter().all(|value| *value == first)).then_some(first)
        };
        let seen = self.series.iter().filter(|series| self.has_points(series));
        let said = |series: &Series| Some(self.unit.shown(constant(series)? / self.unit.scale()));
        let lines: Option<Vec<(&str, String)>> =
            seen.map(|series| Some((series.name.as_str(), said(series)?))).collect();
        lines.filter(|lines| !lines.is_empty() && self.reference.is_empty())
    }

    /// The picture, in pixels. A chart without a point says so.
    ///
    /// # Errors
    /// When the size leaves no room.
    pub fn svg(&self, width: u32, height: u32) -> Result<String, ChartError> {
        if !(LEAST_WIDTH..=MOST).contains(&width) || !(LEAST_HEIGHT..=MOST).contains(&height) {
            return Err(ChartError::Size { width, height });
        }
        let drawn = draw::draw(self, width, height)?;
        // What is drawn begins with the tag `svg`, on a line of its own.
        let (_, content) = drawn.split_once('\n').unwrap_or_default();
        let content: String = content.chars().map(shown).collect();
        let (fine_width, fine_height) = (width * draw::FINE, height * draw::FINE);
        Ok(format!(
            "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {fine_width} {fine_height}\" role=\"img\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n<title>{}</title>\n{content}",
            escaped(&self.described())
        ))
    }

    /// For those who do not see the picture.
    fn described(&self) -> String {
        let axes = format!("{} over {}", self.y_label, self.x_label);
        if self.title.is_empty() { axes } else { format!("{}: {axes}", self.title) }
    }

    /// Where a point stands; none for one that cannot be drawn.
    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((place(x, self.log_x)?, place(y, self.log_y)?))
    }

    fn places(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.series.iter().flat_map(Series::all_points).filter_map(|p| self.place(p))
    }

    /// Whether there is anything of a series to see.
    fn has_points(&self, series: &Series) -> bool {
        series.all_points().any(|p| self.place(p).is_some())
    }

    /// Both axes, with about so many ticks; none without a point.
    fn axes(&self, x_ticks: f64, y_ticks: f64) -> Option<(Axis, Axis)> {
        // Where a line has no point is shown too.
        let across = self.series.iter().flat_map(Series::all_points).filter_map(|p| place(p.0, self.log_x));
        let x = Axis::around(across, self.log_x, 0.0, x_ticks)?;
        let reference = self.reference.iter().filter_map(|r| place(r.1, self.log_y));
        let y = Axis::around(self.places().map(|p| p.1).chain(reference), self.log_y, 0.06, y_ticks)?;
        Some((x, y))
    }

    /// The stretches of points without one that is left out.
    fn stretches(&self, points: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
        let places: Vec<_> = points.iter().map(|p| self.place(*p)).collect();
        places
            .split(Option::is_none)
            .map(|s| s.iter().copied().flatten().collect())
            .filter(|s: &Vec<_>| !s.is_empty())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(series: Vec<Series>) -> Chart {
        Chart { title: "T".into(), x_label: "x".into(), y_label: "y".into(), series, ..Chart::default() }
    }

    /// The pieces of lines in the first colour.
    fn lines(svg: &str) -> usize {
        svg.lines().filter(|l| l.starts_with("<polyline") && l.contains("opacity=\"1\" stroke=\"#0072B2\"")).count()
    }

    #[test]
    fn a_chart_without_points_says_so() {
        let nothing = [f64::NAN, f64::INFINITY].map(|y| Series::new("a", vec![(1.0, y)]));
        for chart in [chart(Vec::new()), chart(vec![Series::default()]), chart(nothing.to_vec())] {
            assert!(chart.is_empty());
            assert!(chart.svg(400, 300).unwrap().contains("nothing to draw"));
        }
        let negative = Chart { log_y: true, ..chart(vec![Series::new("a", vec![(1.0, 0.0), (2.0, -1.0)])]) };
        assert!(negative.is_empty());
        let reference = Chart { reference: vec![("paper".into(), 1.0)], ..chart(Vec::new()) };
        assert!(reference.svg(400, 300).unwrap().contains("nothing to draw"));
    }

    #[test]
    fn a_single_point_is_a_dot_and_equal_ones_are_a_line() {
        let one = chart(vec![Series::new("a", vec![(3.0, 7.0)])]).svg(400, 300).unwrap();
        assert_eq!(one.matches("<circle").count(), 1);
        let equal = chart(vec![Series::new("a", (0..20).map(|x| (f64::from(x), 2.0)).collect())]);
        let equal = equal.svg(400, 300).unwrap();
        assert_eq!((equal.matches("<circle").count(), lines(&equal)), (0, 1));
        assert!(!equal.contains("NaN") && !equal.contains("inf"));
    }

    #[test]
    fn a_line_is_broken_where_a_point_is_left_out() {
        let points = |gap: f64| (0..20).map(|x| (f64::from(x), if x == 8 { gap } else { 1.0 })).collect();
        for (gap, pieces) in [(1.0, 1), (f64::NAN, 2), (f64::INFINITY, 2)] {
            let svg = chart(vec![Series::new("a", points(gap))]).svg(400, 300).unwrap();
            assert_eq!(lines(&svg), pieces, "{gap}");
        }
    }

    #[test]
    fn several_lines_have_a_legend_and_keep_their_colours() {
        let line = |name: &str, y: f64| Series::new(name, vec![(0.0, y), (1.0, 2.0)]);
        let one = chart(vec![line("alone", 1.0)]).svg(400, 300).unwrap();
        assert!(!one.contains("alone"));
        let several = chart(vec![line("first", 1.0), Series::new("gone", Vec::new()), line("third", 3.0)]);
        let several = several.svg(400, 300).unwrap();
        assert!(several.contains("first") && several.contains("third") && !several.contains("gone"));
        assert!(several.contains("#0072B2") && !several.contains("#D55E00") && several.contains("#009E73"));
    }

    #[test]
    fn intervals_raw_points_and_references_are_drawn() {
        let points = vec![(1.0, 2.0), (2.0, 3.0), (3.0, 2.5)];
        let band = points.iter().map(|&(x, y)| (x, y - 0.5, y + 0.5)).collect();
        let series = Series { faint: Some(points.clone()), ..Series::new("a", points).with_band(band) };
        let reference = vec![("paper".to_owned(), 9.0), ("another".to_owned(), 9.01), ("none".to_owned(), f64::NAN)];
        let svg = Chart { reference, ..chart(vec![series]) }.svg(400, 300).unwrap();
        assert_eq!(svg.matches("<polygon").count(), 1);
        assert!(svg.contains("paper") && svg.contains("another") && !svg.contains("none</text>"));
        let single = Series::new("a", vec![(1.0, 2.0)]).with_band(vec![(1.0, 1.0, 3.0)]);
        assert_eq!(lines(&chart(vec![single]).svg(400, 300).unwrap()), 1);
    }

    #[test]
    fn a_chart_stands_alone_and_is_the_same_every_time() {
        let evil = Chart { title: "<b>\u{7}&".into(), ..chart(vec![Series::new("</svg>", vec![(1.0, 2.0)]); 2]) };
        let svg = evil.svg(400, 300).unwrap();
        assert_eq!(svg, evil.svg(400, 300).unwrap());
        assert!(svg.starts_with("<svg width=\"400\" height=\"300\" viewBox=\"0 0 1600 1200\" role=\"img\""));
        assert!(svg.contains("<title>&lt;b&gt;\u{fffd}&amp;: y over x</title>") && !svg.contains("<b>"));
        assert_eq!((svg.matches("</svg>").count(), svg.trim_end().ends_with("</svg>")), (1, true));
        assert!(!svg.chars().any(|c| c.is_control() && c != '\n'));
    }

    /// A fixed clip norm was drawn as a level line.
    #[test]
    fn lines_that_never_change_are_said_in_numbers() {
        let line = |name: &str, y: [f64; 3]| Series::new(name, (0..3).map(|x| (f64::from(x), y[x as usize])).collect());
        let (level, gap) = (line("level", [0.5; 3]), line("gap", [2.0, f64::NAN, 2.0]));
        let both = Chart { unit: Unit::Share, ..chart(vec![level.clone(), gap.clone(), Series::default()]) };
        assert_eq!(both.constants(), Some(vec![("level", "0.50 %".to_owned()), ("gap", "2.00 %".to_owned())]));
        let epsilon = Chart { unit: Unit::Epsilon, ..chart(vec![line("", [1.234_560_1; 3])]) };
        assert_eq!(epsilon.constants(), Some(vec![("", "1.2346".to_owned())]), "an epsilon is rounded up");
        let moves = line("moves", [0.5, 0.5, 0.25]);
        let banded = level.clone().with_band(vec![(0.0, 0.25, 0.75)]);
        let once = Series::new("once", vec![(1.0, 0.5)]);
        for shown in [vec![level.clone(), moves], vec![banded], vec![once], Vec::new()] {
            assert_eq!(chart(shown).constants(), None);
        }
        let reference = Chart { reference: vec![("paper".into(), 1.0)], ..chart(vec![level]) };
        assert_eq!(reference.constants(), None);
    }

    #[test]
    fn sizes_without_room_are_refused() {
        let chart = chart(vec![Series::new("a", vec![(1.0, 2.0)])]);
        for (width, height) in [(0, 0), (199, 300), (400, 119), (u32::MAX, 300)] {
            assert!(matches!(chart.svg(width, height), Err(ChartError::Size { .. })), "{width} {height}");
        }
        let names = (0..60).map(|i| Series::new(format!("a long name of the series {i}"), vec![(1.0, 2.0)])).collect();
        let crowded = Chart { series: names, title: "word ".repeat(300), ..chart };
        crowded.svg(200, 120).unwrap();
    }
}
