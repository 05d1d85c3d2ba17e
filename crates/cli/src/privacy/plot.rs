//! `keyhush privacy plot`: epsilon over rounds, as SVG.

use std::{io::Write, path::PathBuf};

use clap::Args;
use privacy::{AccountantKind, query::Query};
use report::planned::{self, Curve};

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
    let chart = planned::of_query(&query, curves(args, &query)?, args.log);
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
fn curves(args: &PlotArgs, query: &Query) -> anyhow::Result<Vec<Curve>> {
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
    let rounds = planned::positions(longest, args.points, args.log);
    let curve = |accountant: AccountantKind| -> anyhow::Result<Curve> {
        Ok((accountant, query.over_rounds(accountant, &rounds)?))
    };
    accountants.into_iter().map(curve).collect()
}
