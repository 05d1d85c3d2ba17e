//! `keyhush privacy verify`: chain, signatures, heads, stored vectors and participations checked, epsilon computed again.

use std::io::Write;

use clap::Args;
use privacy::{
    ledger::{LedgerError, Verification, VerifyingKey},
    rng::Randomness,
    statement::{rounded_down, rounded_up},
};
use serde::Serialize;
use serde_json::json;

use super::ledger::LedgerArgs;
use crate::failure::BadInput;

/// Arguments of `keyhush privacy verify`.
#[derive(Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    /// The public key that must have signed it
    #[arg(long, value_name = "HEX")]
    key: Option<String>,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Verified<'a> {
    verified: bool,
    #[serde(flatten)]
    found: &'a Verification,
}

pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<()> {
    args.ledger.refuse_missing()?;
    let pinned = args.pinned()?;
    let heads = args.ledger.heads()?;
    let mut out = std::io::stdout().lock();
    match args.ledger.open(&heads).and_then(|ledger| ledger.verify(&heads, pinned.as_ref())) {
        Ok(found) if args.json => {
            writeln!(out, "{}", serde_json::to_string(&Verified { verified: true, found: &found })?)?;
        }
        Ok(found) => {
            for (name, value) in lines(&found) {
                writeln!(out, "{name:<17} {value}")?;
            }
        }
        Err(error) => {
            if args.json {
                writeln!(out, "{}", json!({ "verified": false, "error": full(&error) }))?;
            }
            return Err(error.into());
        }
    }
    Ok(())
}

impl VerifyArgs {
    fn pinned(&self) -> Result<Option<VerifyingKey>, BadInput> {
        let parse = |text: &String| text.parse().map_err(|error| BadInput::wrong("key", error));
        self.key.as_ref().map(parse).transpose()
    }
}

fn full(error: &LedgerError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn lines(found: &Verification) -> Vec<(&'static str, String)> {
    let pinned = if found.key_pinned { "as pinned" } else { "not pinned" };
    let mut lines = vec![
        ("entries", format!("{}, each chained to the one before it and signed", found.entries)),
        ("head", found.head.to_string()),
        ("key", format!("{}, {pinned}", found.key)),
        ("heads", heads(found)),
        (
            "vectors",
            format!("{} stored and as recorded, {} not stored here", found.vectors_matching, found.vectors_absent),
        ),
        ("participations", participations(found)),
    ];
    lines.extend(found.observed.iter().map(|(stream, observed)| {
        let separation = observed.min_separation.map_or("no user came twice".to_owned(), |separation| {
            format!("at least {} rounds between two", separation.as_rounds_between())
        });
        let most = observed.max_participations;
        ("observed", format!("in {stream:?} at most {most} participations of a user, {separation}"))
    }));
    lines.extend(cost(found));
    lines.extend(found.warnings.iter().map(|warning| ("noticed", warning.clone())));
    let not_shown = found.not_shown.iter().enumerate();
    lines.extend(not_shown.map(|(i, words)| (if i == 0 { "does not show" } else { "" }, words.clone())));
    lines
}

fn heads(found: &Verification) -> String {
    match found.heads.entries_since {
        None => "none given".into(),
        Some(since) => format!("{} given, on the chain; {since} entries since", found.heads.given.len()),
    }
}

fn participations(found: &Verification) -> String {
    match (found.participations_matching, found.participations_unnamed) {
        (Some(matching), Some(0)) => format!("{matching} records as recorded"),
        (Some(matching), Some(unnamed)) => format!("{matching} records as recorded, {unnamed} that no entry names"),
        _ => "the side file is not here".into(),
    }
}

fn cost(found: &Verification) -> Vec<(&'static str, String)> {
    let judgement = &found.judgement;
    let lower = judgement.epsilon_lower.map_or(String::new(), |l| format!("  (at least {})", rounded_down(l.get())));
    let mut lines = vec![
        ("epsilon", format!("{}{lower}", rounded_up(judgement.epsilon.get()))),
        ("delta", format!("{:e}", found.delta.get())),
        ("accountant", judgement.accountant.to_string()),
    ];
    lines.extend(found.max_epsilon.map(|max| ("max epsilon", max.to_string())));
    if found.randomness != Randomness::Secret {
        lines.push(("guarantee", "none: the noise was simulated, and whoever knows the seed can recompute it".into()));
    }
    lines
}
