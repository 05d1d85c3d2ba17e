//! `keyhush privacy compose`: the joint cost of several ledgers for a user who is in all of them.

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
    /// Folders of runs, folders of finished tasks of `keyhush serve`, or ledger files
    #[arg(required = true, num_args = 2.., value_name = "LEDGER")]
    ledgers: Vec<PathBuf>,
    /// Delta of the guarantee [default: the smallest delta of the ledgers]
    #[arg(long)]
    delta: Option<f64>,
    /// Print JSON
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
    lines.push(("holds for", "a user who is in all of these runs and in no other".into()));
    for (name, value) in lines {
        writeln!(out, "{name:<17} {value}")?;
    }
    Ok(())
}
