//! Draws Figures 1 and 2 of Andrew et al. 2021 into `experiments/`: `cargo run --release -p keyhush-privacy --example
//! andrew2021_figures`. The quantiles of Figure 2 are followed through the real stages and mechanism.

#[path = "../tests/quantile/mod.rs"]
mod quantile;

use std::{error::Error, fs, path::Path};

use keyhush_privacy::clip::ClipStep;
use plotters::{coord::Shift, prelude::*};
use quantile::{FIGURE_1_QUANTILES, FIGURE_1_VALUES, LogNormal, QUANTILES, Tracking, average_loss};

/// Colours that most people can tell apart.
const COLOURS: [RGBColor; 5] =
    [RGBColor(0, 90, 160), RGBColor(213, 94, 0), RGBColor(0, 140, 100), RGBColor(150, 80, 150), RGBColor(90, 90, 90)];

type Point = (f64, f64);
type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn main() -> Result<(), Box<dyn Error>> {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    figure_1(&experiments.join("andrew2021-figure1"))?;
    figure_2(&experiments.join("andrew2021-figure2"))
}

fn figure_1(folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let grid: Vec<f64> = (100..=550).map(|c| f64::from(c) / 10.0).collect();
    let mut table = "clip,quantile,average_loss\n".to_owned();
    let plot = folder.join("figure1.svg");
    let area = SVGBackend::new(&plot, (760, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(18)
        .caption("Loss whose minimum is a quantile of {15, 25, 28, 40, 45, 48}", ("sans-serif", 17))
        .x_label_area_size(44)
        .y_label_area_size(52)
        .build_cartesian_2d(10.0..55.0, 0.0..25.0)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE).bold_line_style(BLACK.mix(0.1)).x_desc("C").y_desc("average loss");
    mesh.x_label_formatter(&|x| short(*x)).y_label_formatter(&|y| short(*y)).draw()?;
    for (gamma, colour) in FIGURE_1_QUANTILES.into_iter().zip(COLOURS) {
        let curve: Vec<Point> = grid.iter().map(|c| (*c, average_loss(gamma, *c, &FIGURE_1_VALUES))).collect();
        curve.iter().for_each(|(c, loss)| table += &format!("{c},{gamma},{loss:.4}\n"));
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(curve, style))?
            .label(format!("quantile {gamma}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart.draw_series(FIGURE_1_VALUES.map(|x| PathElement::new([(x, 0.0), (x, 25.0)], BLACK.mix(0.2))))?;
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperMiddle).background_style(WHITE.mix(0.85));
    labels.border_style(BLACK.mix(0.2)).draw()?;
    area.present()?;
    fs::write(folder.join("figure1.csv"), table)?;
    Ok(())
}

fn figure_2(folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let titles = ["exp N(0, 1)", "exp N(0, 0.1)", "exp N(log 10, 1)"];
    let mut table = "distribution,step,quantile,true_value,round,clip\n".to_owned();
    for (name, step) in [("figure2", ClipStep::Geometric), ("linear", ClipStep::Linear)] {
        let plot = folder.join(format!("{name}.svg"));
        let area = SVGBackend::new(&plot, (1260, 440)).into_drawing_area();
        area.fill(&WHITE)?;
        for ((panel, data), title) in area.split_evenly((1, 3)).iter().zip(LogNormal::of_figure_2()).zip(titles) {
            let runs: Vec<(f64, Vec<f64>)> = QUANTILES
                .into_iter()
                .map(|gamma| {
                    let mut tracking = Tracking::figure_2(data, gamma);
                    tracking.clip.step = step;
                    (gamma, tracking.run().tracked)
                })
                .collect();
            for (gamma, clips) in &runs {
                for (round, clip) in clips.iter().enumerate() {
                    let exact = data.quantile(*gamma);
                    table += &format!("{title:?},{step:?},{gamma},{exact:.6},{round},{clip:.6}\n");
                }
            }
            draw_quantiles(panel, title, data, &runs)?;
        }
        area.present()?;
    }
    fs::write(folder.join("figure2.csv"), table)?;
    Ok(())
}

fn draw_quantiles(
    panel: &Panel<'_>,
    title: &str,
    data: LogNormal,
    runs: &[(f64, Vec<f64>)],
) -> Result<(), Box<dyn Error>> {
    let highest = data.quantile(0.9).max(runs.iter().flat_map(|r| &r.1).copied().fold(0.0, f64::max));
    let mut chart = ChartBuilder::on(panel)
        .margin(14)
        .caption(title, ("sans-serif", 17))
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..200.0, (0.05..highest * 1.3).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.1))
        .x_desc("round")
        .x_label_formatter(&|x| short(*x))
        .y_desc("clip norm")
        .y_label_formatter(&|y| short(*y))
        .draw()?;
    for ((gamma, clips), colour) in runs.iter().zip(COLOURS) {
        let style = colour.stroke_width(2);
        let exact = data.quantile(*gamma);
        chart.draw_series(DashedLineSeries::new([(0.0, exact), (200.0, exact)], 5, 4, colour.mix(0.6).into()))?;
        let points = clips.iter().enumerate().map(|(round, clip)| (round as f64, *clip));
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(format!("{gamma}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    Ok(())
}

fn short(x: f64) -> String {
    format!("{x:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}
