//! `keyhush data vocab`.

use std::{io::Write, path::PathBuf};

use clap::Args;
use corpus::{
    origin::{KnownVocabulary, Origin},
    partial::Partial,
    words::{Texts, Words, WordsError},
};
use federated::{
    numbers::counted,
    vocabulary_ledger::{VocabularyLedger, VocabularyLedgerError},
};
use ledger::Head;
use lm::{tokenizer::Tokenizer, vocabulary::VocabularyError};
use serde::Serialize;

use super::{grouped, progress::Watch, sorted, taken};
use crate::failure::BadInput;

/// Arguments of `keyhush data vocab`.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("from").required(true)))]
pub(crate) struct VocabArgs {
    /// Public word list, one word per line, most frequent first; text after a tab is ignored
    #[arg(long, value_name = "FILE", group = "from")]
    from_list: Option<PathBuf>,
    /// With --from-list: do not add entries for punctuation, numbers and URLs that the list lacks
    #[arg(long, requires = "from_list")]
    no_punctuation: bool,
    /// Public text: plain, or posts as .jsonl, .csv, .tsv, .parquet or RC_*; also compressed (.gz, .zst)
    #[arg(long, value_name = "FILE", group = "from", num_args = 1..)]
    from_public_text: Vec<PathBuf>,
    /// Users' own posts. This reveals which words they use without any privacy: the epsilon of every run with this vocabulary is infinite.
    /// Needs --ledger, to record it
    #[arg(long, value_name = "FILE", group = "from", num_args = 1..)]
    from_users_non_privately: Vec<PathBuf>,
    /// Ledger that records that users' words were released without privacy; created if it does not exist
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from_list", "from_public_text"])]
    ledger: Option<PathBuf>,
    /// Declared number of users, for a new ledger
    #[arg(long, value_name = "N", requires = "ledger")]
    population: Option<u64>,
    /// Field or column with the user of a post [default: user; author for Reddit]
    #[arg(long, value_name = "K", conflicts_with = "from_list")]
    user_key: Option<String>,
    /// Field or column with the text [default: text; body for Reddit]
    #[arg(long, value_name = "T", conflicts_with = "from_list")]
    text_key: Option<String>,
    /// Number of entries, including BOS, EOS and UNK
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    size: usize,
    /// Tokenize into characters instead of words
    #[arg(long)]
    characters: bool,
    /// File to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    replace: bool,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Made<'a> {
    file: String,
    entries: usize,
    fingerprint: String,
    origin: &'a Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    non_private: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger_head: Option<String>,
}

/// Runs the command.
pub(super) fn vocab(args: &VocabArgs) -> anyhow::Result<()> {
    if args.out.exists() && !args.replace {
        return Err(taken(&args.out).into());
    }
    let tokenizer = if args.characters { Tokenizer::characters() } else { Tokenizer::words() };
    // The ledger is there before the users' text is opened, and has the event before anybody sees a word.
    let users = !args.from_users_non_privately.is_empty();
    let mut ledger = users.then(|| ledger(args)).transpose()?;
    let known = build(args, tokenizer)?;
    let text = known.to_file();
    let head = match (&mut ledger, known.origin.non_private_event()) {
        (Some(ledger), Some(event)) => Some(ledger.record(&event, text.as_bytes())?),
        _ => None,
    };
    write(args, &text)?;
    print(args, &known, head)
}

/// The ledger that says that the users' words were released.
fn ledger(args: &VocabArgs) -> anyhow::Result<VocabularyLedger> {
    let Some(path) = &args.ledger else {
        let why = "users' words are released without privacy, and a ledger must record it";
        return Err(BadInput::missing("ledger", why).into());
    };
    VocabularyLedger::open(path, args.population, args.size).map_err(|error| match error {
        VocabularyLedgerError::NoPopulation { .. } => BadInput::missing("population", error.to_string()).into(),
        VocabularyLedgerError::Nobody | VocabularyLedgerError::Population(_) => {
            BadInput::wrong("population", error).into()
        }
        other => other.into(),
    })
}

fn write(args: &VocabArgs, text: &str) -> anyhow::Result<()> {
    let write = || {
        let mut file = Partial::create(&args.out, args.replace)?;
        file.write_all(text.as_bytes())?;
        file.finish()
    };
    write().map_err(|error| BadInput::wrong("out", format!("{}: {error}", args.out.display())).into())
}

fn print(args: &VocabArgs, known: &KnownVocabulary, head: Option<Head>) -> anyhow::Result<()> {
    let non_private = known.origin.non_private_event();
    if let Some(event) = &non_private {
        eprintln!("warning: {event}; every run with this vocabulary records that and has infinite epsilon");
    }
    let mut out = std::io::stdout().lock();
    let (file, entries, fingerprint) = (args.out.display().to_string(), known.vocabulary.len(), known.fingerprint());
    let ledger_head = head.map(|head| head.to_string());
    if args.json {
        let made = Made { file, entries, fingerprint, origin: &known.origin, non_private, ledger_head };
        writeln!(out, "{}", serde_json::to_string(&made)?)?;
        return Ok(());
    }
    writeln!(out, "vocabulary   {file}")?;
    writeln!(out, "entries      {}, {}", grouped(entries as u64), known.rules)?;
    writeln!(out, "from         {}", known.origin)?;
    writeln!(out, "fingerprint  {fingerprint}")?;
    if let Some(head) = ledger_head {
        writeln!(out, "ledger head  {head}")?;
    }
    Ok(())
}

fn build(args: &VocabArgs, tokenizer: Tokenizer) -> anyhow::Result<KnownVocabulary> {
    let mut watch = Watch::new(args.quiet, "bytes")?;
    let texts = |paths: &[PathBuf]| Texts {
        paths: paths.to_vec(),
        user_key: args.user_key.clone(),
        text_key: args.text_key.clone(),
    };
    let (field, words) = match &args.from_list {
        Some(path) => ("from_list", Words::List { path: path.clone(), with_signs: !args.no_punctuation }),
        None if !args.from_public_text.is_empty() => ("from_public_text", Words::Public(texts(&args.from_public_text))),
        None => ("from_users_non_privately", Words::Users(texts(&args.from_users_non_privately))),
    };
    let made = words.vocabulary(tokenizer, args.size, &mut |progress| watch.tick(progress));
    let (known, noticed) = made.map_err(|error| of_words(field, error))?;
    watch.finish();
    if noticed.bad_lines > 0 {
        eprintln!("{} could not be read", counted(noticed.bad_lines, "line"));
        noticed.first_bad_lines.iter().for_each(|bad| eprintln!("  {bad}"));
    }
    if noticed.signs_added > 0 && !args.quiet {
        let added = noticed.signs_added;
        let entries = if added == 1 { "entry" } else { "entries" };
        eprintln!(
            "the list has only words; added {added} {entries} for punctuation, <num> and <url> (--no-punctuation leaves them out)"
        );
    }
    Ok(known)
}

/// What is wrong with words, in terms of the flag that named them.
fn of_words(field: &'static str, error: WordsError) -> anyhow::Error {
    match error {
        WordsError::Vocabulary(error @ VocabularyError::TooSmall { .. }) => BadInput::wrong("size", error).into(),
        WordsError::Vocabulary(error) => BadInput::wrong(field, error).into(),
        WordsError::List { .. } => BadInput::wrong(field, error).into(),
        WordsError::Import(error) => sorted(error),
        WordsError::File(error) => error.into(),
    }
}
