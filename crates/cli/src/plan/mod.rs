//! `keyhush plan`: what settings would cost, before anything runs; and which settings meet a target.
//!
//! | module      | what it is                                                     |
//! |-------------|----------------------------------------------------------------|
//! | `forecast`  | what a run would cost: epsilon, memory, bytes, time            |
//! | `proposal`  | which settings meet a target                                   |
//! | `words`     | seconds, numbers and long sentences, for people                |

mod forecast;
mod proposal;
mod words;

use std::path::{Path, PathBuf};

use clap::Args;
use federated::{
    forecast::Forecast,
    plan::Plan,
    run::{Opened, RunError},
};
use report::chart::Chart;

use self::proposal::TargetArgs;
use crate::{
    failure::{BadInput, of_config, refused},
    init,
    train::{MachineArgs, expectations, settings},
};

const EXAMPLES: &str = "\
Examples:
  keyhush plan run.toml                           what the run would cost: epsilon, memory, traffic, time
  keyhush plan run.toml --set rounds=1000 --out epsilon.svg
  keyhush plan --epsilon 8 --population 4000000 --rounds 1500 --out run.toml --out trade-off.svg

Users' text is not read, only the header of a store. Time is measured by training a few synthetic users.";

/// Arguments of `keyhush plan`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// Settings file in TOML (see `keyhush init`) [default: the settings of `keyhush train`]
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// Override a setting, such as privacy.noise_multiplier=0.5; KEY= removes it
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write a chart (FILE.svg) or the proposed settings (FILE.toml); may be given twice
    #[arg(long, short, value_name = "FILE")]
    out: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    target: TargetArgs,
}

pub(crate) fn plan(args: &PlanArgs) -> anyhow::Result<()> {
    let written = Written::new(&args.out)?;
    if let Some(ask) = args.target.ask()? {
        if args.config.is_some() || !args.set.is_empty() {
            let with = "CONFIG or --set: with --epsilon, settings are proposed";
            return Err(BadInput::out_of_place("epsilon", with).into());
        }
        if !args.machine.quiet {
            eprintln!("comparing report goals and mechanisms ...");
        }
        return proposal::show(&ask, &written, args.json);
    }
    if written.settings.is_some() {
        return Err(BadInput::wrong("out", "settings are only written when they are proposed; add --epsilon").into());
    }
    foresee(args, &written)
}

/// What a run would cost, with the refusals of `keyhush train`.
fn foresee(args: &PlanArgs, written: &Written) -> anyhow::Result<()> {
    let means = args.machine.means()?;
    let document = settings(args.config.as_deref(), &args.set)?;
    let config = document.config().map_err(|e| of_config(&e))?;
    let located = |error: RunError| match error {
        RunError::Config(error) => refused(document.locate(error).into()),
        other => refused(other),
    };
    let opened = Opened::new(&config).map_err(located)?;
    opened.check_presence(&config).map_err(located)?;
    let plan = Plan::new(config, &opened.setting()).map_err(|e| located(e.into()))?;
    let measuring = || {
        if !args.machine.quiet {
            eprintln!("measuring how long it takes to train a user ...");
        }
    };
    let forecast = Forecast::new(&plan, &opened, means, forecast::ROWS, measuring)?;
    if let Some(path) = &written.chart {
        write_chart(path, &forecast::chart(&plan, &opened)?)?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&forecast)?);
        return Ok(());
    }
    forecast::print(&forecast, &plan, &opened, &expectations(&plan, &opened)?)
}

/// What is written, by the endings of the names.
struct Written {
    chart: Option<PathBuf>,
    settings: Option<PathBuf>,
}

impl Written {
    fn new(out: &[PathBuf]) -> Result<Self, BadInput> {
        let mut written = Self { chart: None, settings: None };
        for path in out {
            let place = match path.extension().and_then(|e| e.to_str()) {
                Some("svg") => &mut written.chart,
                Some("toml") => &mut written.settings,
                _ => {
                    let why = format!("{}: must end in .svg or .toml", path.display());
                    return Err(BadInput::wrong("out", why));
                }
            };
            if place.replace(path.clone()).is_some() {
                return Err(BadInput::wrong("out", "at most one chart and one settings file can be written"));
            }
        }
        Ok(written)
    }
}

fn write_chart(path: &Path, chart: &Chart) -> anyhow::Result<()> {
    if chart.is_empty() {
        return Err(BadInput::Refused("nothing to draw: epsilon is infinite in every round".into()).into());
    }
    std::fs::write(path, chart.svg(860, 520)?)
        .map_err(|e| BadInput::wrong("out", format!("{}: {e}", path.display())))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

fn write_settings(path: &Path, text: &str) -> anyhow::Result<()> {
    Ok(init::write_new(path, text)?)
}
