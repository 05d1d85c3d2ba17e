//! `keyhush privacy verify`: checks chain, signatures, heads, stored vectors and participations, and recomputes epsilon.

use std::io::Write;

use clap::Args;
use federated::{
    home::heads::{HeadsError, Shown},
    numbers::counted,
};
use ledger::{
    Basis, Ended, Frequency, Verification, VerifyingKey,
    statement::{rounded_down, rounded_up},
};
use serde::Serialize;
use serde_json::json;

use super::ledger::LedgerArgs;
use crate::{failure::BadInput, officer::public_key};

/// Arguments of `keyhush privacy verify`.
#[derive(Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Public key that must have signed the ledger
    #[arg(long, value_name = "HEX")]
    key: Option<String>,
    /// Public key of the privacy officer who must have approved the plan: 64 hexadecimal digits, or a file with them
    #[arg(long, value_name = "KEY")]
    officer: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Verified<'a> {
    verified: bool,
    #[serde(flatten)]
    found: &'a Verification,
    /// The heads stored next to the ledger, all on the chain.
    heads_beside: &'a [Shown],
}

pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<()> {
    args.ledger.refuse_missing()?;
    let pinned = args.pinned()?;
    let officer = args.officer.as_deref().map(public_key).transpose()?;
    let heads = args.ledger.heads()?;
    let mut out = std::io::stdout().lock();
    let checked = || {
        let ledger = args.ledger.open(&heads)?;
        let found = ledger.verify(&heads, pinned.as_ref())?;
        officer.iter().try_for_each(|officer| ledger.check_approved_by(officer))?;
        Ok::<_, HeadsError>((found, args.ledger.beside()?))
    };
    match checked() {
        Ok((found, beside)) if args.json => {
            let verified = Verified { verified: true, found: &found, heads_beside: &beside };
            writeln!(out, "{}", serde_json::to_string(&verified)?)?;
        }
        Ok((found, beside)) => {
            for (name, value) in lines(&found, &beside, officer.is_some()) {
                writeln!(out, "{name:<17} {value}")?;
            }
            writeln!(out, "\n{}", verdict(&found, &beside))?;
        }
        Err(error) => {
            if args.json {
                writeln!(out, "{}", json!({ "verified": false, "error": full(&error) }))?;
            }
            return Err(anyhow::Error::from(error).context("not verified"));
        }
    }
    Ok(())
}

/// In one line, as the last one. It claims no more than was checked.
fn verdict(found: &Verification, beside: &[Shown]) -> String {
    let checked = match (found.judgement_if_secret.is_some(), found.closing.is_some()) {
        (true, _) => "Verified: every entry is valid. It guarantees nothing, because the noise was simulated.",
        (false, true) => "Verified: every entry is valid, and epsilon was recomputed with the same result.",
        (false, false) => {
            "Verified so far: every entry is valid, and epsilon was recomputed with the same result. The ledger is not closed."
        }
    };
    let headless = found.heads.entries_since.is_none() && beside.is_empty();
    let cut = if headless { " Without a head, missing entries at its end cannot be detected." } else { "" };
    format!("{checked}{cut}")
}

impl VerifyArgs {
    fn pinned(&self) -> Result<Option<VerifyingKey>, BadInput> {
        let parse = |text: &String| text.parse().map_err(|error| BadInput::wrong("key", error));
        self.key.as_ref().map(parse).transpose()
    }
}

fn full(error: &HeadsError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn lines(found: &Verification, beside: &[Shown], officer_pinned: bool) -> Vec<(&'static str, String)> {
    let pinned = if found.key_pinned { "as pinned" } else { "not pinned" };
    let mut lines = vec![
        ("entries", format!("{}, each signed and chained to the one before", found.entries)),
        ("head", found.head.to_string()),
        ("key", format!("{}, {pinned}", found.key)),
        ("approved by", approved(found, officer_pinned)),
        ("heads", heads(found)),
        ("heads found", heads_beside(beside)),
        (
            "vectors",
            format!("{} stored and matching, {} not stored here", found.vectors_matching, found.vectors_absent),
        ),
        ("participations", participations(found)),
    ];
    lines.extend(observed(found));
    lines.extend(cost(found));
    lines.extend(closing(found));
    lines.extend(found.data_changes.iter().map(|changed| ("data changed", changed.why.clone())));
    lines.extend(found.warnings.iter().map(|warning| ("warning", warning.clone())));
    let not_shown = found.not_shown.iter().enumerate();
    lines.extend(not_shown.map(|(i, words)| (if i == 0 { "does not show" } else { "" }, words.clone())));
    lines
}

/// Which privacy officer approved the plan.
fn approved(found: &Verification, pinned: bool) -> String {
    match &found.approval {
        None => "nobody".into(),
        Some(approval) => {
            let pinned = if pinned { "as pinned" } else { "not pinned" };
            format!("{}, for the task {:?}, {pinned}", approval.officer, approval.task)
        }
    }
}

/// How often users took part, as the side file has it.
fn observed(found: &Verification) -> Vec<(&'static str, String)> {
    let words = |frequency: Frequency| {
        let separation = frequency.min_separation.map_or("no user took part more than once".to_owned(), |separation| {
            format!("at least {} between two", counted(separation.as_rounds_between(), "round"))
        });
        format!("at most {} of a user, {separation}", counted(frequency.max_participations, "participation"))
    };
    let mut lines = Vec::new();
    for (stream, observed) in &found.observed {
        lines.push(("observed", format!("in releases of {stream:?}: {}", words(observed.released))));
        lines.push(("with failures", format!("including failed attempts: {}", words(observed.with_failed))));
    }
    lines
}

fn heads(found: &Verification) -> String {
    match found.heads.entries_since {
        None => "none given".into(),
        Some(since) => {
            let entries = if since == 1 { "entry" } else { "entries" };
            format!("{} given, on the chain; {since} later {entries}", found.heads.given.len())
        }
    }
}

fn heads_beside(beside: &[Shown]) -> String {
    let names: Vec<String> = beside.iter().map(|shown| shown.place.display().to_string()).collect();
    if names.is_empty() { "none found".into() } else { format!("on the chain: {}", names.join(", ")) }
}

fn closing(found: &Verification) -> Vec<(&'static str, String)> {
    let Some(closing) = &found.closing else {
        return vec![(
            "closed",
            "no: more may be released, and nothing shows that the noise and pseudonym keys were destroyed".into(),
        )];
    };
    let why = match closing.because {
        Ended::PlanDone => "the plan was completed",
        Ended::BudgetSpent => "the next release would have exceeded the budget",
        Ended::TargetReached => "the target accuracy was reached",
        Ended::ByHand => "the run was ended by hand",
    };
    let gone = |gone: bool| if gone { "destroyed" } else { "not destroyed" };
    let simulated = found.judgement_if_secret.is_some();
    let noise = if simulated { "simulated; known to anyone who has the seed" } else { gone(closing.noise_destroyed) };
    let pseudonyms = gone(closing.pseudonym_key_destroyed);
    vec![("closed", format!("yes: {why}")), ("keys", format!("noise: {noise}; pseudonyms: {pseudonyms}"))]
}

fn participations(found: &Verification) -> String {
    match (found.participations_matching, found.participations_unnamed) {
        (Some(matching), Some(unnamed)) => matching_records(matching, unnamed),
        _ => "the participation file is missing".into(),
    }
}

fn matching_records(matching: u64, unnamed: u64) -> String {
    let records = if matching == 1 { "1 record matches".to_owned() } else { format!("{matching} records match") };
    match unnamed {
        0 => records,
        1 => format!("{records}, 1 belongs to no entry"),
        more => format!("{records}, {more} belong to no entry"),
    }
}

fn cost(found: &Verification) -> Vec<(&'static str, String)> {
    let simulated = found.judgement_if_secret;
    let Some(judgement) = found.judgement.or(simulated) else { return Vec::new() };
    let lower = judgement.epsilon_lower.map_or(String::new(), |l| format!("  (at least {})", rounded_down(l.get())));
    let epsilon = format!("{}{lower}", rounded_up(judgement.epsilon.get()));
    let mut lines = vec![
        (if simulated.is_some() { "epsilon if secret" } else { "epsilon" }, epsilon),
        ("covers", basis(found.basis).into()),
        ("delta", format!("{:e}", found.delta.get())),
        ("accountant", judgement.accountant.to_string()),
    ];
    lines.extend(observed_cost(found));
    lines.extend(found.max_epsilon.map(|max| ("max epsilon", max.to_string())));
    if simulated.is_some() {
        lines.push(("guarantee", "none: the noise was simulated, and anyone who has the seed can recompute it".into()));
    }
    lines
}

/// What the participations that were observed would cost, which is not the guarantee (rule P18).
fn observed_cost(found: &Verification) -> Option<(&'static str, String)> {
    let judged = found.observed_judgement.map(|judgement| {
        let epsilon = rounded_up(judgement.epsilon.get());
        format!("{epsilon}, if participation did not depend on what people typed; this is not the guarantee")
    });
    let none = found.no_observed_judgement.map(|why| format!("none: {}", why.words()));
    judged.or(none).filter(|_| !found.observed.is_empty()).map(|words| ("observed epsilon", words))
}

const fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Spent => "everything released",
        Basis::Plan => "the whole plan, even if less was released",
        Basis::Budget => "the whole budget, even if less was spent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted() {
        assert_eq!(matching_records(1, 0), "1 record matches");
        assert_eq!(matching_records(2, 1), "2 records match, 1 belongs to no entry");
        assert_eq!(matching_records(0, 2), "0 records match, 2 belong to no entry");
    }
}
