//! `keyhush data stats`.

use std::{io::Write, path::PathBuf};

use clap::Args;
use corpus::store::{Meta, Part, Split, Store, StoreError};
use lm::vocabulary::UNK;
use serde::Serialize;

use super::{grouped, open, percent, read_vocabulary};
use crate::failure::BadInput;

/// Which store.
#[derive(Args)]
pub(crate) struct StatsArgs {
    /// The store
    store: PathBuf,
    /// How many of the most frequent entries to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Split the users: so many of a thousand for validation and for testing
    #[arg(long, value_name = "VALIDATION:TEST")]
    split: Option<String>,
    /// The salt of the split
    #[arg(long, value_name = "N", default_value_t = 0, requires = "split")]
    salt: u64,
    /// Refuse the store if it was made with another vocabulary than this
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Check every byte of the store
    #[arg(long)]
    verify: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Stats<'a> {
    users: u64,
    posts: u64,
    tokens: u64,
    id_bits: u32,
    vocabulary: usize,
    fingerprint: String,
    entries_used: usize,
    unknown: u64,
    coverage: f64,
    tokens_per_user: Quantiles,
    histogram: Vec<Bin>,
    top: Vec<Top<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    split: Option<Parts>,
    meta: &'a Meta,
}

#[derive(Serialize, Default)]
struct Quantiles {
    least: u64,
    quarter: u64,
    median: u64,
    three_quarters: u64,
    most: u64,
    mean: f64,
}

/// Users with at least `from` and less than `to` tokens.
#[derive(Serialize)]
struct Bin {
    from: u64,
    to: u64,
    users: u64,
}

#[derive(Serialize)]
struct Top<'a> {
    entry: &'a str,
    count: u64,
}

#[derive(Serialize, Default)]
struct Parts {
    train: u64,
    validation: u64,
    test: u64,
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
        stats.print(&mut out)?;
    }
    Ok(())
}

/// A split as it is typed: so many of a thousand for validation and for testing.
pub(crate) fn split(text: &str, salt: u64) -> Result<Split, BadInput> {
    let numbers = text.split_once(':').and_then(|(v, t)| Some((v.parse().ok()?, t.parse().ok()?)));
    let (validation, test) = numbers
        .ok_or_else(|| BadInput::wrong("split", format!("{text:?} is not two numbers per thousand, such as 50:100")))?;
    Split::new(salt, validation, test).map_err(|error| BadInput::wrong("split", error))
}

impl<'a> Stats<'a> {
    fn of(store: &'a Store, split: Option<Split>, top: usize) -> anyhow::Result<Self> {
        let mut counts = vec![0_u64; store.vocabulary().len()];
        let mut lengths = Vec::new();
        let mut parts = split.map(|_| Parts::default());
        for index in 0..store.users() {
            let user = store.user(index)?;
            lengths.push(user.tokens().len() as u64);
            user.tokens().iter().for_each(|id| counts[id as usize] += 1);
            if let (Some(split), Some(parts)) = (&split, &mut parts) {
                match split.part(user.tag()) {
                    Part::Train => parts.train += 1,
                    Part::Validation => parts.validation += 1,
                    Part::Test => parts.test += 1,
                }
            }
        }
        lengths.sort_unstable();
        let unknown = counts[UNK as usize];
        let mut ranked: Vec<(u32, u64)> = (0..).zip(counts.iter().copied()).filter(|(_, count)| *count > 0).collect();
        ranked.sort_by_key(|(id, count)| (std::cmp::Reverse(*count), *id));
        let shown = ranked
            .iter()
            .take(top)
            .map(|(id, count)| Top { entry: store.vocabulary().word(*id).unwrap_or_default(), count: *count });
        Ok(Self {
            users: store.users(),
            posts: store.posts(),
            tokens: store.tokens(),
            id_bits: store.id_bits(),
            vocabulary: store.vocabulary().len(),
            fingerprint: store.fingerprint(),
            entries_used: ranked.iter().filter(|(id, _)| *id != UNK).count(),
            unknown,
            coverage: 1.0 - unknown as f64 / store.tokens().max(1) as f64,
            tokens_per_user: Quantiles::of(&lengths),
            histogram: histogram(&lengths),
            top: shown.collect(),
            split: parts,
            meta: store.meta(),
        })
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "users        {}", grouped(self.users))?;
        writeln!(out, "posts        {}", grouped(self.posts))?;
        writeln!(out, "tokens       {}, {} bits each, {}", grouped(self.tokens), self.id_bits, self.meta.rules)?;
        let origin = &self.meta.vocabulary;
        let used = grouped(self.entries_used as u64);
        writeln!(out, "vocabulary   {} entries, {used} of them used; {origin}", grouped(self.vocabulary as u64))?;
        writeln!(out, "fingerprint  {}", self.fingerprint)?;
        writeln!(out, "covered      {}", percent(self.tokens - self.unknown, self.tokens))?;
        let q = &self.tokens_per_user;
        writeln!(
            out,
            "per user     {} to {} tokens, half of them {} to {}, median {}, mean {:.1}",
            q.least, q.most, q.quarter, q.three_quarters, q.median, q.mean
        )?;
        let largest = self.histogram.iter().map(|bin| bin.users).max().unwrap_or(1).max(1);
        for bin in &self.histogram {
            let bar = "#".repeat((bin.users * 40).div_ceil(largest) as usize);
            writeln!(out, "{:>12}+ {:>11} {bar}", grouped(bin.from), grouped(bin.users))?;
        }
        if !self.top.is_empty() {
            let top: Vec<String> =
                self.top.iter().map(|top| format!("{:?} {}", top.entry, grouped(top.count))).collect();
            writeln!(out, "most often   {}", top.join(", "))?;
        }
        if let Some(parts) = &self.split {
            let (train, validation, test) = (grouped(parts.train), grouped(parts.validation), grouped(parts.test));
            writeln!(out, "split        {train} train, {validation} validation, {test} test")?;
        }
        for event in &self.meta.non_private {
            writeln!(out, "not private  {event}")?;
        }
        Ok(())
    }
}

impl Quantiles {
    fn of(sorted: &[u64]) -> Self {
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let at = |quarter: usize| sorted[(sorted.len() - 1) * quarter / 4];
        let mean = sorted.iter().sum::<u64>() as f64 / sorted.len() as f64;
        Self { least: *first, quarter: at(1), median: at(2), three_quarters: at(3), most: *last, mean }
    }
}

/// Bins that double.
fn histogram(sorted: &[u64]) -> Vec<Bin> {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let (low, high) = (first.max(&1).ilog2(), last.max(&1).ilog2());
    let bin = |power: u32| {
        let (from, to) = (1_u64 << power, 1_u64 << (power + 1));
        let from = if power == 0 { 0 } else { from };
        let users = sorted.partition_point(|n| *n < to) - sorted.partition_point(|n| *n < from);
        Bin { from, to, users: users as u64 }
    };
    (low..=high).map(bin).collect()
}
