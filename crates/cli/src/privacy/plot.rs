//! `keyhush privacy plot`: epsilon over rounds, as SVG.

use std::{io::Write, path::PathBuf};

use clap::Args;
use plotters::prelude::*;
use privacy::AccountantKind;

use super::query::{Accountant, Query};
use crate::failure::BadInput;

/// Arguments of `keyhush privacy plot`.
#[derive(Args)]
pub(crate) struct PlotArgs {
    #[command(flatten)]
    query: Query,
    /// Where to write the picture (- for standard output)
    #[arg(long, short, value_name = "FILE.svg")]
    out: PathBuf,
    /// Accountants to compare, such as best,rdp,moments [default: the one of --accountant]
    #[arg(long, value_enum, value_delimiter = ',')]
    compare: Vec<Accountant>,
    /// Points on each curve
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u64).range(2..=2000))]
    points: u64,
    /// Logarithmic axes
    #[arg(long)]
    log: bool,
}

/// A curve: the accountant and (rounds, epsilon) points.
type Curve = (AccountantKind, Vec<(f64, f64)>);

pub(crate) fn plot(args: PlotArgs) -> anyhow::Result<()> {
    let curves = curves(&args)?;
    let svg = draw(&curves, &args)?;
    if args.out.as_os_str() == "-" {
        std::io::stdout().write_all(svg.as_bytes())?;
    } else {
        std::fs::write(&args.out, svg).map_err(|e| BadInput::wrong("out", format!("{}: {e}", args.out.display())))?;
        eprintln!("wrote {}", args.out.display());
    }
    Ok(())
}

fn curves(args: &PlotArgs) -> Result<Vec<Curve>, BadInput> {
    let query = &args.query;
    if query.tree_sizes.is_some() {
        return Err(BadInput::OutOfPlace { field: "tree_sizes", with: "a plot over rounds; give rounds".into() });
    }
    let longest = query
        .rounds
        .filter(|r| *r >= 2)
        .ok_or_else(|| BadInput::Missing { field: "rounds", why: "the last round of the plot, at least 2".into() })?;
    let accountants: Vec<AccountantKind> = if args.compare.is_empty() {
        vec![query.accountant()]
    } else {
        args.compare.iter().map(|a| AccountantKind::from(*a)).collect()
    };
    let delta = query.delta()?;
    let rounds = positions(longest, args.points, args.log);
    accountants
        .into_iter()
        .map(|accountant| {
            let points = rounds
                .iter()
                .map(|&rounds| {
                    let event = Query { rounds: Some(rounds), ..query.clone() }.event()?;
                    let judgement = accountant
                        .judge_group(&event, delta, query.group())
                        .map_err(|e| BadInput::Refused(e.to_string()))?;
                    Ok((rounds as f64, judgement.epsilon.get()))
                })
                .collect::<Result<Vec<_>, BadInput>>()?;
            Ok((accountant, points))
        })
        .collect()
}

/// The rounds at which epsilon is computed: closer together at the start, where it rises fastest, or evenly in
/// logarithms.
fn positions(longest: u64, points: u64, log: bool) -> Vec<u64> {
    let last = longest as f64;
    let mut rounds: Vec<u64> = (0..points)
        .map(|i| {
            let part = i as f64 / (points - 1) as f64;
            let x = if log { last.powf(part) } else { 1.0 + (last - 1.0) * part * part };
            x.round() as u64
        })
        .collect();
    rounds.dedup();
    rounds
}

fn draw(curves: &[Curve], args: &PlotArgs) -> anyhow::Result<String> {
    let finite = || curves.iter().flat_map(|(_, points)| points).filter(|p| p.1.is_finite() && p.1 > 0.0);
    let (mut low, mut high) = (f64::INFINITY, 0f64);
    finite().for_each(|p| (low, high) = (low.min(p.1), high.max(p.1)));
    if high == 0.0 {
        return Err(BadInput::Refused("there is nothing to draw: epsilon is zero or infinite throughout".into()).into());
    }
    let last = args.query.rounds.unwrap_or(1) as f64;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (860, 520)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area);
        let chart = chart
            .margin(18)
            .caption(title(&args.query), ("sans-serif", 17))
            .x_label_area_size(44)
            .y_label_area_size(58);
        // The two kinds of axes are two types; the drawing is the same.
        macro_rules! onto {
            ($x:expr, $y:expr) => {{
                let mut chart = chart.build_cartesian_2d($x, $y)?;
                chart
                    .configure_mesh()
                    .light_line_style(WHITE)
                    .bold_line_style(BLACK.mix(0.12))
                    .x_desc("rounds")
                    .y_desc("epsilon")
                    .x_label_formatter(&|x| number(*x))
                    .y_label_formatter(&|y| number(*y))
                    .draw()?;
                for (i, (accountant, points)) in curves.iter().enumerate() {
                    let style = COLOURS[i % COLOURS.len()].stroke_width(2);
                    let shown = points.iter().copied().filter(|p| p.1.is_finite());
                    chart
                        .draw_series(LineSeries::new(shown, style))?
                        .label(accountant.name())
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
                }
                chart
                    .configure_series_labels()
                    .position(SeriesLabelPosition::UpperLeft)
                    .background_style(WHITE.mix(0.8))
                    .border_style(BLACK.mix(0.2))
                    .draw()?;
            }};
        }
        if args.log {
            onto!((1.0..last).log_scale(), (low * 0.8..high * 1.25).log_scale());
        } else {
            onto!(0.0..last, 0.0..high * 1.08);
        }
        area.present()?;
    }
    Ok(svg)
}

/// Colours that most people can tell apart.
const COLOURS: [RGBColor; 5] =
    [RGBColor(0, 90, 160), RGBColor(213, 94, 0), RGBColor(0, 140, 100), RGBColor(150, 80, 150), RGBColor(90, 90, 90)];

fn title(query: &Query) -> String {
    let mut parts = vec![query.mechanism.map_or(String::new(), |m| format!("{m:?}").to_lowercase())];
    parts.extend(query.population.map(|n| format!("{n} users")));
    parts.extend(query.cohort.map(|m| format!("{m} a round")));
    parts.extend(query.sampling_rate.map(|q| format!("sampling rate {q}")));
    parts.extend(query.noise_multiplier.map(|z| format!("noise {z}")));
    parts.extend(query.min_separation.map(|s| format!("MinS {s}")));
    parts.extend(query.max_participations.map(|p| format!("MaxP {p}")));
    parts.extend(query.delta.map(|d| format!("delta {d:e}")));
    parts.retain(|p| !p.is_empty());
    parts.join(", ")
}

fn number(x: f64) -> String {
    if x != 0.0 && x.abs() < 0.01 {
        return format!("{x:e}");
    }
    let text = format!("{x:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.len() > 6 { format!("{x:e}") } else { text.to_owned() }
}
