//! `keyhush data import`.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use corpus::import::{self, Format, ImportPlan, Input, KnownLabels, OnBadLine, Summary};
use federated::numbers::counted;
use serde::Serialize;

use super::{
    MOST_BAD_LINES, check_share, grouped, labels::LabelArgs, percent, progress::Watch, sorted, taken, vocabulary,
};
use crate::{failure::BadInput, threads};

/// A vocabulary that covers less of a text leaves much of it unknown.
const WELL_COVERED: f64 = 0.95;

/// What to import, and how.
#[derive(Args)]
pub(crate) struct ImportArgs {
    /// Input files, in order of time: .jsonl, .csv, .tsv, .parquet, RC_* (Reddit), or LEAF with --format leaf; also compressed (.gz, .zst).
    /// Use - for standard input, with --format
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,
    /// Store to create
    #[arg(long, value_name = "STORE")]
    out: PathBuf,
    /// Field or column with the user of a post [default: user; author for Reddit]
    #[arg(long, value_name = "K")]
    user_key: Option<String>,
    /// Field or column with the text [default: text; body for Reddit]
    #[arg(long, value_name = "T")]
    text_key: Option<String>,
    /// Format of the files, if their names do not tell
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    #[command(flatten)]
    labels: LabelArgs,
    /// Columns with numeric features of a user; must be the same in every row of the user
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    features: Vec<String>,
    #[command(flatten)]
    making: MakingArgs,
    /// What to do with lines that cannot be read
    #[arg(long, value_enum, default_value_t = BadLineChoice::Skip)]
    on_bad_line: BadLineChoice,
    /// Largest share of bad lines to skip in a file; with more, no store is created
    #[arg(long, value_name = "SHARE", default_value_t = MOST_BAD_LINES)]
    most_bad_lines: f64,
}

/// What `import` and `synth` share: how a store is made.
#[derive(Args)]
pub(super) struct MakingArgs {
    /// Vocabulary from `keyhush data vocab` [default: the public word list of the synthetic language]
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Size of the default vocabulary, including BOS, EOS and UNK [default: 10000]
    #[arg(long, value_name = "N", conflicts_with = "vocab")]
    vocab_size: Option<usize>,
    /// Tokenize into characters instead of words; the default vocabulary is the printable characters
    #[arg(long, conflicts_with_all = ["vocab", "vocab_size"])]
    characters: bool,
    /// Truncate every user to exactly this many tokens, and drop users with fewer (McMahan et al.: 1600)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tokens_per_user: Option<u32>,
    /// Do not store the users' keys; users are then identified by number
    #[arg(long)]
    forget_keys: bool,
    /// Replace an existing store
    #[arg(long)]
    replace: bool,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads::number)]
    threads: Option<usize>,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The papers' size.
const VOCABULARY_SIZE: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatName {
    Jsonl,
    Reddit,
    Leaf,
    Csv,
    Tsv,
    Parquet,
}

impl FormatName {
    const fn format(self) -> Format {
        match self {
            Self::Jsonl => Format::Jsonl,
            Self::Reddit => Format::Reddit,
            Self::Leaf => Format::Leaf,
            Self::Csv => Format::Csv,
            Self::Tsv => Format::Tsv,
            Self::Parquet => Format::Parquet,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BadLineChoice {
    /// Skip and count them
    Skip,
    /// Stop at the first, and create no store
    Stop,
}

/// Runs the command.
pub(super) fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let on_bad_line = match args.on_bad_line {
        BadLineChoice::Skip => OnBadLine::Skip,
        BadLineChoice::Stop => OnBadLine::Stop,
    };
    let (user, text) = (args.user_key.as_deref(), args.text_key.as_deref());
    let mut input = Input::files(&args.inputs, args.format.map(FormatName::format), user, text);
    if let Input::Files { columns, .. } = &mut input {
        columns.labels = args.labels.column();
        columns.features.clone_from(&args.features);
    }
    args.making.taken(&args.out)?;
    check_share(args.most_bad_lines)?;
    if args.labels.counts() && args.inputs.iter().any(|path| corpus::text::is_standard_input(path)) {
        let why = "needs to read the input twice, to count labels first; standard input can only be read once, so name a file";
        return Err(BadInput::wrong("most_labels", why).into());
    }
    let labels = args.labels.known(&input, &args.inputs, args.making.quiet)?;
    args.making.make(input, labels, args.out.clone(), (on_bad_line, args.most_bad_lines), "bytes")
}

#[derive(Serialize)]
struct Report<'a> {
    store: String,
    #[serde(flatten)]
    summary: &'a Summary,
    vocabulary: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_names: Option<usize>,
    features: Vec<String>,
    seconds: f64,
}

impl MakingArgs {
    /// Whether progress is not wanted.
    pub(super) const fn quiet(&self) -> bool {
        self.quiet
    }

    /// Whether the result is wanted as JSON.
    pub(super) const fn json(&self) -> bool {
        self.json
    }

    /// The first option that was given and says something about a store only.
    pub(super) fn about_a_store(&self) -> Option<&'static str> {
        let given = [
            ("vocab", self.vocab.is_some()),
            ("vocab_size", self.vocab_size.is_some()),
            ("characters", self.characters),
            ("tokens_per_user", self.tokens_per_user.is_some()),
            ("forget_keys", self.forget_keys),
            ("threads", self.threads.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// Whether a file of the same name is replaced.
    pub(super) const fn replaces(&self) -> bool {
        self.replace
    }

    /// Refuses a name that is taken, before anything is counted.
    fn taken(&self, out: &Path) -> Result<(), BadInput> {
        if out.exists() && !self.replace { Err(taken(out)) } else { Ok(()) }
    }

    /// Makes a store and says what is in it.
    pub(super) fn make(
        &self,
        input: Input,
        labels: Option<KnownLabels>,
        out: PathBuf,
        (on_bad_line, most_bad_share): (OnBadLine, f64),
        unit: &'static str,
    ) -> anyhow::Result<()> {
        let plan = ImportPlan {
            input,
            out,
            replace: self.replace,
            vocabulary: vocabulary(self.vocab.as_deref(), self.vocab_size.unwrap_or(VOCABULARY_SIZE), self.characters)?,
            labels,
            tokens_per_user: self.tokens_per_user,
            keep_keys: !self.forget_keys,
            on_bad_line,
            most_bad_share,
            threads: threads::chosen(self.threads),
        };
        let mut watch = Watch::new(self.quiet, unit)?;
        let outcome = import::run(&plan, &mut |progress| watch.tick(progress));
        let seconds = watch.finish();
        let summary = outcome.map_err(sorted)?;
        self.print(&plan, &summary, seconds)
    }

    fn print(&self, plan: &ImportPlan, summary: &Summary, seconds: f64) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let entries = plan.vocabulary.vocabulary.len();
        if self.json {
            let store = plan.out.display().to_string();
            let label_names = plan.labels.as_ref().map(|known| known.labels.len());
            let features = plan.input.feature_names();
            let report = Report { store, summary, vocabulary: entries, label_names, features, seconds };
            writeln!(out, "{}", serde_json::to_string(&report)?)?;
            return Ok(());
        }
        let per_second = summary.text_bytes as f64 / 1e6 / seconds.max(1e-9);
        writeln!(out, "store        {}", plan.out.display())?;
        writeln!(out, "users        {}", grouped(summary.users))?;
        if summary.dropped_users > 0 {
            writeln!(out, "dropped      {} with too few tokens", counted(summary.dropped_users, "user"))?;
        }
        writeln!(out, "posts        {}", grouped(summary.posts))?;
        writeln!(out, "tokens       {}", grouped(summary.tokens))?;
        writeln!(out, "vocabulary   {} entries, {}", grouped(entries as u64), plan.vocabulary.origin)?;
        writeln!(out, "covered      {}", percent(summary.tokens - summary.unknown, summary.tokens))?;
        if let Some(known) = &plan.labels {
            let (labels, names) = (grouped(summary.labels), grouped(known.labels.len() as u64));
            writeln!(out, "labels       {labels} of {names} names, {}", known.origin)?;
            if summary.unknown_labels > 0 {
                writeln!(out, "             {} with other names left out", grouped(summary.unknown_labels))?;
            }
        }
        let features = plan.input.feature_names();
        if !features.is_empty() {
            writeln!(out, "features     {}", features.join(", "))?;
        }
        let megabytes = summary.text_bytes as f64 / 1e6;
        writeln!(out, "took         {seconds:.1} s for {megabytes:.1} MB of text ({per_second:.0} MB/s)")?;
        if summary.empty_posts > 0 {
            writeln!(out, "left out     {}", counted(summary.empty_posts, "empty or deleted post"))?;
        }
        if summary.bad_lines > 0 {
            writeln!(out, "bad lines    {}", grouped(summary.bad_lines))?;
            for bad in &summary.first_bad_lines {
                writeln!(out, "             {bad}")?;
            }
        }
        self.hint(summary, plan);
        Ok(())
    }

    /// Says what to do about text that the default vocabulary does not cover, and what a vocabulary costs.
    fn hint(&self, summary: &Summary, plan: &ImportPlan) {
        for event in plan.non_private_events() {
            eprintln!("warning: {event}; every run on this store records that and has infinite epsilon");
        }
        let covered = summary.tokens - summary.unknown;
        if (covered as f64) < WELL_COVERED * summary.tokens as f64 {
            let which = if self.vocab.is_some() { "this" } else { "the default" };
            eprintln!(
                "warning: {which} vocabulary covers only {} of the text; models will see the rest as unknown words. Make a better or larger one with `keyhush data vocab`",
                percent(covered, summary.tokens)
            );
        }
    }
}
