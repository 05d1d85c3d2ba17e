//! `keyhush privacy statement`: what a ledger guarantees, derived from the ledger alone.

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use clap::Args;
use ledger::statement::Statement;

use super::ledger::LedgerArgs;

/// Arguments of `keyhush privacy statement`.
#[derive(Args)]
pub(crate) struct StatementArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write JSON with full precision instead of Markdown
    #[arg(long)]
    json: bool,
}

pub(crate) fn statement(args: &StatementArgs) -> anyhow::Result<()> {
    let ledger = args.ledger.read()?;
    let statement = Statement::of(&ledger)?;
    let text = if args.json { serde_json::to_string_pretty(&statement)? + "\n" } else { statement.to_markdown() };
    match &args.out {
        Some(path) => std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display())),
        None => Ok(std::io::stdout().lock().write_all(text.as_bytes())?),
    }
}
