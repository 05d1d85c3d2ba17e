//! Draws a chart: title and legend above the lines, then axes, intervals and lines.

use plotters::{
    coord::{Shift, ranged1d::Ranged},
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    Chart, ChartError, Series,
    axis::{Axis, place},
};

/// Units of a pixel: `plotters` knows whole numbers only.
pub(super) const FINE: u32 = 4;

/// Colours that the colour-blind can tell apart (Okabe and Ito 2008), without the yellow that is too pale for lines.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    BLACK,
];

/// A series with no more points than this shows each of them.
const FEW: usize = 12;

const MARGIN: i32 = 12;
const TITLE: i32 = 15;
const TEXT: i32 = 12;
/// From one line of text to the next.
const LINE: i32 = 18;
/// The piece of a line in the legend.
const SAMPLE: i32 = 20;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Context<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for ChartError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Drawing(error.to_string())
    }
}

pub(super) fn draw(chart: &Chart, width: u32, height: u32) -> Result<String, ChartError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width * FINE, height * FINE)).into_drawing_area();
        area.fill(&WHITE)?;
        let top = heading(chart, &area, width as i32)?;
        let (_, below) = area.split_vertically(fine(top));
        // No heading takes all the room.
        let room = (height as i32 - top).max(60);
        match chart.axes(f64::from(width) / 90.0, f64::from(room) / 45.0) {
            Some((x, y)) => lines(chart, &below, x, y)?,
            None => {
                let middle = (fine(width as i32) / 2, fine(room) / 2);
                below.draw_text("nothing to draw", &text(TEXT, HPos::Center, VPos::Center), middle)?;
            }
        }
        area.present()?;
    }
    Ok(svg)
}

fn fine(pixels: i32) -> i32 {
    pixels * FINE as i32
}

/// `plotters` makes letters smaller by 1.24.
fn text(size: i32, across: HPos, down: VPos) -> TextStyle<'static> {
    ("sans-serif", f64::from(fine(size)) * 1.24).into_font().color(&BLACK).pos(Pos::new(across, down))
}

/// About how wide a text is, in pixels: the reader's fonts are unknown.
fn text_width(text: &str, size: i32) -> i32 {
    (text.chars().count() as f64 * f64::from(size) * 0.58).ceil() as i32
}

fn line_style(series: usize) -> ShapeStyle {
    COLOURS[series % COLOURS.len()].stroke_width(2 * FINE)
}

/// From the second time on that a colour is used.
fn is_dashed(series: usize) -> bool {
    series / COLOURS.len() % 2 == 1
}

/// Places pieces of these widths in rows: the left end and the row of each.
fn rows(widths: impl Iterator<Item = i32>, gap: i32, room: i32) -> Vec<(i32, i32)> {
    let (mut x, mut row) = (0, 0);
    widths
        .map(|width| {
            if x > 0 && x + width > room {
                (x, row) = (0, row + 1);
            }
            let at = (x, row);
            x += width + gap;
            at
        })
        .collect()
}

/// Title and legend; returns where the axes may begin.
fn heading(chart: &Chart, area: &Area<'_>, width: i32) -> Result<i32, ChartError> {
    let room = width - 2 * MARGIN;
    let mut top = MARGIN;
    let words: Vec<&str> = chart.title.split_whitespace().collect();
    let places = rows(words.iter().map(|w| text_width(w, TITLE)), text_width(" ", TITLE), room);
    let style = text(TITLE, HPos::Left, VPos::Top);
    let style = TextStyle { font: style.font.style(FontStyle::Bold), ..style };
    for row in 0..places.last().map_or(0, |p| p.1 + 1) {
        let line: Vec<&str> = words.iter().zip(&places).filter(|(_, p)| p.1 == row).map(|(w, _)| *w).collect();
        area.draw_text(&line.join(" "), &style, (fine(MARGIN), fine(top)))?;
        top += LINE + 2;
    }
    let seen: Vec<_> = chart.series.iter().enumerate().filter(|(_, series)| chart.has_points(series)).collect();
    if seen.len() > 1 {
        top += legend(&seen, area, top + 2, room)? + 4;
    }
    Ok(top)
}

/// The names of the series beside a piece of their line; returns the height.
fn legend(series: &[(usize, &Series)], area: &Area<'_>, top: i32, room: i32) -> Result<i32, ChartError> {
    let mut widths: Vec<i32> = series.iter().map(|(_, s)| SAMPLE + 6 + text_width(&s.name, TEXT)).collect();
    let gap = 16;
    if widths.iter().map(|w| w + gap).sum::<i32>() - gap > room {
        // Several rows make columns.
        let widest = widths.iter().copied().max().unwrap_or(0);
        widths.fill(widest);
    }
    let places = rows(widths.into_iter(), gap, room);
    for (&(i, series), (x, row)) in series.iter().zip(&places) {
        let (x, middle) = (MARGIN + x, top + row * LINE + LINE / 2);
        let sample = |from: i32, to: i32| {
            PathElement::new([(fine(x + from), fine(middle)), (fine(x + to), fine(middle))], line_style(i))
        };
        if is_dashed(i) {
            area.draw(&sample(0, 8))?;
            area.draw(&sample(12, SAMPLE))?;
        } else {
            area.draw(&sample(0, SAMPLE))?;
        }
        area.draw_text(&series.name, &text(TEXT, HPos::Left, VPos::Center), (fine(x + SAMPLE + 6), fine(middle)))?;
    }
    Ok((places.last().map_or(0, |p| p.1) + 1) * LINE)
}

fn lines(chart: &Chart, area: &Area<'_>, x: Axis, y: Axis) -> Result<(), ChartError> {
    let widest = |axis: &Axis| axis.labels().map(|l| text_width(&l, TEXT)).max().unwrap_or(0);
    let ends = x.range();
    let mut context = ChartBuilder::on(area)
        .margin(fine(MARGIN))
        .margin_right(fine(MARGIN.max(widest(&x) / 2 + 4)))
        .x_label_area_size(fine(2 * LINE + 6))
        .y_label_area_size(fine(widest(&y) + LINE + 14))
        .build_cartesian_2d(x, y)?;
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12).stroke_width(FINE))
        .axis_style(BLACK.mix(0.6).stroke_width(FINE))
        .set_all_tick_mark_size(fine(4))
        .label_style(text(TEXT, HPos::Center, VPos::Center))
        .axis_desc_style(text(TEXT, HPos::Center, VPos::Center))
        .x_desc(&chart.x_label)
        .y_desc(&chart.y_label)
        .draw()?;
    references(chart, &mut context, ends.start, ends.end)?;
    for (i, series) in chart.series.iter().enumerate() {
        band(chart, &mut context, series, line_style(i))?;
    }
    for (i, series) in chart.series.iter().enumerate() {
        let faint = ShapeStyle { color: line_style(i).color.mix(0.45), ..line_style(i).stroke_width(FINE) };
        line(chart, &mut context, series.faint.as_deref().unwrap_or_default(), faint, false)?;
    }
    for (i, series) in chart.series.iter().enumerate() {
        line(chart, &mut context, &series.points, line_style(i), is_dashed(i))?;
    }
    Ok(())
}

/// Dashed lines across, with their names above their left ends, where curves that rise or fall towards them are not.
fn references(chart: &Chart, context: &mut Context<'_, '_>, left: f64, right: f64) -> Result<(), ChartError> {
    let style = BLACK.mix(0.6).stroke_width(FINE);
    let mut taken: Vec<i32> = Vec::new();
    let mut lines: Vec<(f64, &str)> =
        chart.reference.iter().filter_map(|(name, value)| Some((place(*value, chart.log_y)?, &name[..]))).collect();
    lines.sort_by(|a, b| b.0.total_cmp(&a.0)); // from above
    for (y, name) in lines {
        context.draw_series(DashedLineSeries::new([(left, y), (right, y)], fine(6) as u32, fine(4) as u32, style))?;
        let area = context.plotting_area().strip_coord_spec();
        let height = context.backend_coord(&(left, y)).1 - area.get_base_pixel().1;
        let is_free = |at: i32| taken.iter().all(|t| (t - at).abs() >= fine(TEXT));
        let (above, below) = (height - fine(3), height + fine(TEXT + 3));
        let at = if is_free(above) || !is_free(below) { above } else { below };
        taken.push(at);
        area.draw_text(name, &text(TEXT, HPos::Left, VPos::Bottom), (fine(6), at))?;
    }
    Ok(())
}

fn band(chart: &Chart, context: &mut Context<'_, '_>, series: &Series, style: ShapeStyle) -> Result<(), ChartError> {
    let whole = |&(x, low, high): &(f64, f64, f64)| Some((chart.place((x, low))?, chart.place((x, high))?));
    let intervals: Vec<_> = series.band.iter().flatten().map(whole).collect();
    for stretch in intervals.split(Option::is_none) {
        let stretch: Vec<_> = stretch.iter().copied().flatten().collect();
        match stretch[..] {
            [] => {}
            [(low, high)] => {
                context.draw_series([PathElement::new([low, high], style)])?;
            }
            _ => {
                let outline: Vec<_> = stretch.iter().map(|i| i.0).chain(stretch.iter().rev().map(|i| i.1)).collect();
                context.draw_series([Polygon::new(outline, style.color.mix(0.18).filled())])?;
            }
        }
    }
    Ok(())
}

fn line(
    chart: &Chart,
    context: &mut Context<'_, '_>,
    points: &[(f64, f64)],
    style: ShapeStyle,
    dashed: bool,
) -> Result<(), ChartError> {
    let stretches = chart.stretches(points);
    let few = stretches.iter().map(Vec::len).sum::<usize>() <= FEW;
    for stretch in stretches {
        if few || stretch.len() == 1 {
            let dot = |p: &(f64, f64)| Circle::new(*p, fine(3), style.color.filled());
            context.draw_series(stretch.iter().map(dot))?;
        }
        if stretch.len() == 1 {
            continue;
        }
        if dashed {
            context.draw_series(DashedLineSeries::new(stretch, fine(8) as u32, fine(4) as u32, style))?;
        } else {
            context.draw_series(LineSeries::new(stretch, style))?;
        }
    }
    Ok(())
}
