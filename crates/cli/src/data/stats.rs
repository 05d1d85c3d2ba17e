//! `keyhush data stats`.

use std::{io::Write, path::PathBuf};

use clap::Args;
use corpus::store::{
    Meta, Split, StoreError,
    stats::{FeatureStats, LabelStats, Stats, Top},
};
use federated::numbers::counted;

use super::{grouped, open, percent, read_vocabulary};
use crate::failure::BadInput;

/// Arguments of `keyhush data stats`.
#[derive(Args)]
pub(crate) struct StatsArgs {
    /// Store to read
    store: PathBuf,
    /// Number of most frequent entries to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Split the users: users per thousand for validation and for testing
    #[arg(long, value_name = "VALIDATION:TEST")]
    split: Option<String>,
    /// Salt of the split
    #[arg(long, value_name = "N", default_value_t = 0, requires = "split")]
    salt: u64,
    /// Fail if the store was not made with this vocabulary
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Verify the checksums of the whole store
    #[arg(long)]
    verify: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn stats(args: &StatsArgs) -> anyhow::Result<()> {
    let split = args.split.as_deref().map(|text| split(text, args.salt)).transpose()?;
    let store = open(&args.store)?;
    if let Some(path) = &args.vocab {
        let known = read_vocabulary(path)?;
        let other = |error: StoreError| BadInput::wrong("vocab", error);
        store.require_vocabulary(known.rules, &known.vocabulary).map_err(other)?;
    }
    if args.verify {
        store.verify()?;
    }
    let stats = Stats::of(&store, split, args.top)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&stats)?)?;
    } else {
        print(&stats, &mut out)?;
    }
    Ok(())
}

/// A split as it is typed: so many of a thousand for validation and for testing.
pub(crate) fn split(text: &str, salt: u64) -> Result<Split, BadInput> {
    let numbers = text.split_once(':').and_then(|(v, t)| Some((v.parse().ok()?, t.parse().ok()?)));
    let (validation, test) = numbers.ok_or_else(|| {
        BadInput::wrong("split", format!("expected two numbers per thousand, such as 50:100, got {text:?}"))
    })?;
    Split::new(salt, validation, test).map_err(|error| BadInput::wrong("split", error))
}

fn print(stats: &Stats<'_>, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "users        {}", grouped(stats.users))?;
    writeln!(out, "posts        {}", grouped(stats.posts))?;
    writeln!(out, "tokens       {}, {} bits each, {}", grouped(stats.tokens), stats.id_bits, stats.meta.rules)?;
    let origin = &stats.meta.vocabulary;
    let used = grouped(stats.entries_used as u64);
    writeln!(out, "vocabulary   {} entries, {used} of them used; {origin}", grouped(stats.vocabulary as u64))?;
    writeln!(out, "fingerprint  {}", stats.fingerprint)?;
    writeln!(out, "covered      {}", percent(stats.tokens - stats.unknown, stats.tokens))?;
    let q = &stats.tokens_per_user;
    writeln!(
        out,
        "per user     {} to {} tokens, half of them {} to {}, median {}, mean {:.1}",
        q.least, q.most, q.quarter, q.three_quarters, q.median, q.mean
    )?;
    let largest = stats.histogram.iter().map(|bin| bin.users).max().unwrap_or(1).max(1);
    for bin in &stats.histogram {
        let bar = "#".repeat((bin.users * 40).div_ceil(largest) as usize);
        writeln!(out, "{:>12}+ {:>11} {bar}", grouped(bin.from), grouped(bin.users))?;
    }
    if !stats.top.is_empty() {
        writeln!(out, "most often   {}", listed(&stats.top))?;
    }
    if let Some(labels) = &stats.labels {
        print_labels(labels, stats.meta, out)?;
    }
    for FeatureStats { name, least, most, mean } in &stats.features {
        writeln!(out, "feature      {name}: {least} to {most}, mean {mean:.3}")?;
    }
    if let Some(parts) = &stats.split {
        let (train, validation, test) = (grouped(parts.train), grouped(parts.validation), grouped(parts.test));
        writeln!(out, "split        {train} train, {validation} validation, {test} test")?;
    }
    for event in &stats.meta.non_private {
        writeln!(out, "not private  {event}")?;
    }
    Ok(())
}

fn print_labels(labels: &LabelStats<'_>, meta: &Meta, out: &mut dyn Write) -> std::io::Result<()> {
    let (total, names) = (grouped(labels.total), grouped(labels.names as u64));
    let origin = meta.labels.as_ref().map(|origin| format!(", {origin}")).unwrap_or_default();
    writeln!(
        out,
        "labels       {total} of {names} names{origin}; {} without any",
        counted(labels.posts_without, "post")
    )?;
    if !labels.top.is_empty() {
        writeln!(out, "most labels  {}", listed(&labels.top))?;
    }
    Ok(())
}

fn listed(top: &[Top<'_>]) -> String {
    let top: Vec<String> = top.iter().map(|top| format!("{:?} {}", top.entry, grouped(top.count))).collect();
    top.join(", ")
}
