//! `keyhush privacy epsilon` and `keyhush privacy rho`.

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;
use privacy::query::Query;
use serde::Serialize;
use serde_json::json;

use super::{
    answer::{Answer, matrix_sensitivity, rounded_up},
    query::{QUERY, QueryArgs},
};
use crate::failure::BadInput;

/// Lines that could not be answered and are named, at most.
const SHOWN_LINES: usize = 10;

/// Arguments of `keyhush privacy epsilon`.
#[derive(Args)]
pub(crate) struct EpsilonArgs {
    #[command(flatten)]
    query: QueryArgs,
    /// Round rho to two decimals before converting it, as Xu et al. 2023 did; too optimistic where that rounds down
    #[arg(long)]
    as_published: bool,
    /// Print JSON (always on with --batch)
    #[arg(long)]
    json: bool,
    /// Answer each line of a file with one JSON object per line (- for standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "as_published", conflicts_with_all = QUERY)]
    batch: Option<PathBuf>,
    /// Exit with 0 even if lines of the batch could not be answered; their answers have an "error" either way
    #[arg(long, requires = "batch")]
    allow_errors: bool,
}

/// Arguments of `keyhush privacy rho`.
#[derive(Args)]
pub(crate) struct RhoArgs {
    #[command(flatten)]
    query: QueryArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn epsilon(args: &EpsilonArgs) -> anyhow::Result<()> {
    match &args.batch {
        Some(path) => batch(path, args.allow_errors),
        None if args.as_published => Answer::as_published(&args.query.query())?.print(args.json),
        None => Answer::to(&args.query.query())?.print(args.json),
    }
}

/// The answer of `keyhush privacy rho`.
#[derive(Serialize)]
struct RhoAnswer {
    rho: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sensitivity: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adjacency: Option<privacy::Adjacency>,
}

pub(crate) fn rho(args: &RhoArgs) -> anyhow::Result<()> {
    let query = args.query.query();
    let (rho, adjacency) = query.rho()?;
    let event = query.event()?;
    let answer = RhoAnswer { rho, sensitivity: matrix_sensitivity(&event), adjacency };
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        return Ok(());
    }
    writeln!(out, "{:<17} {}", "rho", rounded_up(rho))?;
    if let Some(sensitivity) = answer.sensitivity {
        writeln!(
            out,
            "{:<17} {sensitivity:.6} for a clip norm of 1 (its square is {:.6})",
            "sensitivity",
            sensitivity * sensitivity
        )?;
    }
    if let Some(adjacency) = adjacency {
        writeln!(out, "{:<17} {adjacency}", "adjacency")?;
    }
    Ok(())
}

/// One JSON object per line in and out, in the same order; a bad line answers with its error and its number, and the command fails at
/// the end.
fn batch(path: &Path, allow_errors: bool) -> anyhow::Result<()> {
    let input: Box<dyn BufRead> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(
            File::open(path).map_err(|e| BadInput::wrong("batch", format!("{}: {e}", path.display())))?,
        ))
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut failed = Vec::new();
    for (number, line) in (1u64..).zip(input.split(b'\n')) {
        let line = line.with_context(|| format!("reading {}", path.display()))?;
        let answer = match answer_line(&line) {
            Ok(answer) => serde_json::to_string(&answer)?,
            Err(error) => {
                failed.push(number);
                json!({ "line": number, "error": error }).to_string()
            }
        };
        writeln!(out, "{answer}")?;
    }
    out.flush()?;
    if failed.is_empty() || allow_errors { Ok(()) } else { Err(anyhow::anyhow!(unanswered(&failed))) }
}

/// Which lines could not be answered.
fn unanswered(lines: &[u64]) -> String {
    let shown: Vec<String> = lines.iter().take(SHOWN_LINES).map(u64::to_string).collect();
    let more = lines.len().saturating_sub(SHOWN_LINES);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let (what, verb) = if lines.len() == 1 { ("line", "its answer says") } else { ("lines", "their answers say") };
    format!("{what} {}{more} could not be answered; {verb} why (use --allow-errors to exit with 0)", shown.join(", "))
}

fn answer_line(line: &[u8]) -> Result<Answer, String> {
    let query: Query = serde_json::from_slice(line).map_err(|e| of_one_line(&e))?;
    Answer::to(&query).map_err(|e| e.to_string())
}

/// What is wrong with a line, without its number: serde counts lines of the text it is given, and so always says 1.
fn of_one_line(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match (said.strip_suffix(&place), error.column()) {
        (Some(problem), 0) => problem.to_owned(),
        (Some(problem), column) => format!("{problem} at column {column}"),
        (None, _) => said,
    }
}
