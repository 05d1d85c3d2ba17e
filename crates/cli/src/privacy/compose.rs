//! `keyhush privacy compose`: what several ledgers cost whoever is in all of them.

use std::{io::Write, path::PathBuf};

use clap::Args;
use ledger::{
    statement::{rounded_down, rounded_up},
    together,
};
use privacy::Delta;

use super::ledger::read;
use crate::failure::BadInput;

/// Arguments of `keyhush privacy compose`.
#[derive(Args)]
pub(crate) struct ComposeArgs {
    /// The folders of runs, or what `keyhush serve` left of tasks, or the files of ledgers
    #[arg(required = true, num_args = 2.., value_name = "LEDGER")]
    ledgers: Vec<PathBuf>,
    /// The delta of the answer; the smallest of the ledgers' unless given
    #[arg(long)]
    delta: Option<f64>,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ComposeArgs) -> anyhow::Result<()> {
    let delta = args.delta.map(Delta::new).transpose().map_err(|error| BadInput::illegal("delta", &error))?;
    let ledgers = args.ledgers.iter().map(|place| read(place)).collect::<anyhow::Result<Vec<_>>>()?;
    let all = together(&ledgers, delta)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&all)?)?;
        return Ok(());
    }
    let judgement = all.judgement;
    let lower = judgement.epsilon_lower.map_or(String::new(), |l| format!("  (at least {})", rounded_down(l.get())));
    let mut lines = vec![
        ("ledgers", all.ledgers.to_string()),
        ("epsilon", format!("{}{lower}", rounded_up(judgement.epsilon.get()))),
        ("delta", format!("{:e}", all.delta.get())),
        ("accountant", judgement.accountant.to_string()),
    ];
    lines.extend(judgement.adjacency.map(|adjacency| ("adjacency", adjacency.to_string())));
    lines.push(("holds for", "whoever takes part in all of these, and in nothing else".into()));
    for (name, value) in lines {
        writeln!(out, "{name:<17} {value}")?;
    }
    Ok(())
}
