//! `keyhush plan`: before any work, what settings would cost; and which settings a target asks for.
//!
//! | module      | what it is                                                     |
//! |-------------|----------------------------------------------------------------|
//! | `forecast`  | what a run would cost: epsilon, memory, bytes, time            |
//! | `proposal`  | which settings meet a target                                   |
//! | `words`     | bytes, seconds and long sentences, for people                  |

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
  keyhush plan run.toml                           what the run would cost: epsilon, memory, bytes, time
  keyhush plan run.toml --set rounds=1000 --out epsilon.svg
  keyhush plan --epsilon 8 --population 4000000 --rounds 1500 --out run.toml --out trade-off.svg

Nothing of the users' text is read: of a store its head alone, and what is trained to measure time is a made-up crowd.";

/// Arguments of `keyhush plan`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    /// The settings, in TOML (see `keyhush init`) [default: those of `keyhush train`]
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// Another value for a setting, such as privacy.noise_multiplier=0.5; without a value it is taken away
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Write a chart (FILE.svg), or settings that were proposed (FILE.toml); may be given twice
    #[arg(long, short, value_name = "FILE")]
    out: Vec<PathBuf>,
    /// Answer as JSON
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
            let with = "settings: a target asks for some, and settings are judged as they are";
            return Err(BadInput::out_of_place("epsilon", with).into());
        }
        if !args.machine.quiet {
            eprintln!("comparing report goals and mechanisms ...");
        }
        return proposal::show(&ask, &written, args.json);
    }
    if written.settings.is_some() {
        return Err(BadInput::wrong("out", "settings are written where they are proposed: give --epsilon").into());
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
            eprintln!("measuring how long a user takes here ...");
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
    forecast::print(&forecast, &plan, &expectations(&plan, &opened)?)
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
                return Err(BadInput::wrong("out", "one chart and one file of settings are written"));
            }
        }
        Ok(written)
    }
}

fn write_chart(path: &Path, chart: &Chart) -> anyhow::Result<()> {
    if chart.is_empty() {
        return Err(BadInput::Refused("there is nothing to draw: epsilon is infinite throughout".into()).into());
    }
    std::fs::write(path, chart.svg(860, 520)?)
        .map_err(|e| BadInput::wrong("out", format!("{}: {e}", path.display())))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

fn write_settings(path: &Path, text: &str) -> anyhow::Result<()> {
    Ok(init::write_new(path, text)?)
}
