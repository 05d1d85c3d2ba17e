//! `keyhush audit one-run`: the lower bound on epsilon that canary users give for one run.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use federated::{
    canaries::Shown,
    config::{Audit, CONFIDENCE},
    home::RunFolder,
    population::Changes,
    run::Kept,
};
use privacy::Delta;
use report::audit::bounds;

use super::{Answer, LabArgs, SlackArgs, failed, needed_lines, shown};
use crate::failure::{BadInput, refused};

const EXAMPLES: &str = "\
Examples:
  keyhush audit one-run                       train on synthetic users with 1,000 canaries
  keyhush audit one-run --config run.toml --canaries 2000
  keyhush train run.toml --audit --out runs/mine && keyhush audit one-run runs/mine

A bound above the formal epsilon shows that the guarantee is false. A bound below it proves nothing: see docs/AUDITS.md for what one run \
cannot catch.";

/// Arguments of `keyhush audit one-run`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct OneRunArgs {
    /// Folder of a finished run of `keyhush train --audit`; nothing is trained then
    #[arg(value_name = "RUN", conflicts_with_all = ["config", "set", "canaries", "confidence"])]
    run: Option<PathBuf>,
    /// Number of canary users [default: 1000, or what the settings say]
    #[arg(long, value_name = "N")]
    canaries: Option<u64>,
    /// Confidence of the bound [default: 0.999, or what the settings say]
    #[arg(long, value_name = "P")]
    confidence: Option<f64>,
    #[command(flatten)]
    slack: SlackArgs,
    #[command(flatten)]
    lab: LabArgs,
}

/// Canaries by default.
const CANARIES: u64 = 1000;
/// Enough people beside a thousand canaries, and a delta at which these can show something whatever the run did.
const USUAL: [&str; 3] = ["participation.population=2000", "participation.cohort=500", "privacy.delta=1e-6"];

pub(crate) fn run(args: &OneRunArgs) -> anyhow::Result<()> {
    let output = &args.lab.output;
    let (mut found, folder) = match &args.run {
        Some(run) => (of_run(run)?, output.folder("one-run")?),
        None => trained(args)?,
    };
    if let Ok(delta) = Delta::new(found.delta) {
        found.canaries_needed = args.slack.needed(found.epsilon_formal, delta, found.confidence)?;
    }
    let answer = Answer {
        audit: "one-run",
        epsilon_formal: found.epsilon_formal,
        epsilon_lower: Some(found.epsilon_lower),
        epsilon_lower_any: Some(found.epsilon_lower_any),
        epsilon_estimate: Some(found.epsilon_estimate),
        epsilon_estimate_range: found.epsilon_estimate_range,
        confidence: Some(found.confidence),
        verdict: found.verdict,
        says: found.verdict.words(),
        plot: String::new(),
        details: &found,
    };
    let mut lines = vec![
        format!(
            "One run with {} canaries; its formal epsilon is {} at delta {:e}.",
            found.canaries,
            shown(found.epsilon_formal),
            found.delta
        ),
        found.bounds(),
    ];
    if let Some(scale) = found.noise_below {
        lines.push(format!("With the same confidence, the noise is less than {scale:.2} times what the ledger says."));
    }
    lines.push(found.estimate());
    lines.extend(needed_lines(&found.canaries_needed));
    answer.give(&bounds("Epsilon of a run: formal and audited", &found.at_deltas), &folder, output.json, &lines)
}

/// What a finished run has.
fn of_run(run: &std::path::Path) -> anyhow::Result<Shown> {
    let kept = Kept::read(&RunFolder::at(run)).map_err(refused)?;
    let problem = || {
        let why = if kept.config.audit.is_some() { "has not finished" } else { "has no canaries" };
        BadInput::Refused(format!("{} {why}: train with keyhush train --audit", run.display()))
    };
    kept.audit.clone().ok_or_else(problem).context("nothing to show")
}

/// What a new run shows.
fn trained(args: &OneRunArgs) -> anyhow::Result<(Shown, PathBuf)> {
    let mut config = args.lab.settings(&USUAL)?;
    let mut audit = config.audit.take().unwrap_or(Audit { canaries: CANARIES, confidence: CONFIDENCE });
    audit.canaries = args.canaries.unwrap_or(audit.canaries);
    audit.confidence = args.confidence.unwrap_or(audit.confidence);
    let canaries = audit.canaries;
    config.audit = Some(audit);
    let folder = args.lab.output.folder("one-run")?;
    let says = args.lab.says();
    let lab = args.lab.lab(config, &folder, &says)?;
    let subject = lab.train("run", &lab.config, Changes::default()).map_err(failed)?;
    let found =
        subject.audit.with_context(|| format!("{canaries} canaries were planted, but the run has no audit result"))?;
    Ok((found, folder))
}
