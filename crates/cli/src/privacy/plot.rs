//! `keyhush privacy plot`: epsilon over rounds, as SVG.

use std::{io::Write, path::PathBuf};

use clap::Args;
use federated::numbers::counted;
use privacy::{AccountantKind, query::Query};
use report::chart::{Chart, Series};

use super::query::{AccountantName, QueryArgs};
use crate::failure::BadInput;

/// Arguments of `keyhush privacy plot`.
#[derive(Args)]
pub(crate) struct PlotArgs {
    #[command(flatten)]
    query: QueryArgs,
    /// File for the plot (- for standard output)
    #[arg(long, short, value_name = "FILE.svg")]
    out: PathBuf,
    /// Accountants to compare, such as best,rdp,moments [default: the value of --accountant]
    #[arg(long, value_enum, value_delimiter = ',')]
    compare: Vec<AccountantName>,
    /// Number of points on each curve
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u64).range(2..=2000))]
    points: u64,
    /// Logarithmic axes
    #[arg(long)]
    log: bool,
}

pub(crate) fn plot(args: &PlotArgs) -> anyhow::Result<()> {
    let query = args.query.query();
    let chart = Chart {
        title: title(&query),
        x_label: "rounds".into(),
        y_label: "epsilon".into(),
        log_x: args.log,
        log_y: args.log,
        series: curves(args, &query)?,
        ..Chart::default()
    };
    if chart.series.iter().flat_map(|s| &s.points).all(|p| p.1 == 0.0 || p.1.is_infinite()) {
        return Err(BadInput::Refused("nothing to draw: epsilon is zero or infinite in every round".into()).into());
    }
    let svg = chart.svg(860, 520)?;
    if args.out.as_os_str() == "-" {
        std::io::stdout().write_all(svg.as_bytes())?;
    } else {
        std::fs::write(&args.out, svg).map_err(|e| BadInput::wrong("out", format!("{}: {e}", args.out.display())))?;
        eprintln!("wrote {}", args.out.display());
    }
    Ok(())
}

/// A curve for each accountant.
fn curves(args: &PlotArgs, query: &Query) -> anyhow::Result<Vec<Series>> {
    if query.tree_sizes.is_some() {
        return Err(BadInput::out_of_place("tree_sizes", "a plot over rounds; use --rounds").into());
    }
    let longest = query
        .rounds
        .filter(|r| *r >= 2)
        .ok_or_else(|| BadInput::missing("rounds", "give the last round of the plot, at least 2"))?;
    let accountants: Vec<AccountantKind> = if args.compare.is_empty() {
        vec![query.accountant()]
    } else {
        args.compare.iter().map(|a| AccountantKind::from(*a)).collect()
    };
    query.delta()?;
    let rounds = positions(longest, args.points, args.log);
    let curve = |accountant: AccountantKind| -> anyhow::Result<Series> {
        let points = query.over_rounds(accountant, &rounds)?;
        Ok(Series::new(accountant.name(), points.into_iter().map(|(round, epsilon)| (round as f64, epsilon)).collect()))
    };
    accountants.into_iter().map(curve).collect()
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

fn title(query: &Query) -> String {
    let mut parts = vec![query.mechanism.map_or(String::new(), |m| m.name().to_owned())];
    parts.extend(query.population.map(|n| counted(n, "user")));
    parts.extend(query.cohort.map(|m| format!("{m} per round")));
    parts.extend(query.sampling_rate.map(|q| format!("sampling rate {q}")));
    parts.extend(query.noise_multiplier.map(|z| format!("noise {z}")));
    parts.extend(query.min_separation.map(|s| format!("MinS {s}")));
    parts.extend(query.max_participations.map(|p| format!("MaxP {p}")));
    parts.extend(query.delta.map(|d| format!("delta {d:e}")));
    parts.retain(|p| !p.is_empty());
    parts.join(", ")
}
