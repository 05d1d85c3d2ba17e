//! `keyhush data vocab`.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use corpus::{
    import,
    origin::{KnownVocabulary, Origin},
};
use lm::{
    tokenizer::Tokenizer,
    vocabulary::{Counts, Vocabulary, VocabularyError},
};
use serde::Serialize;

use super::{grouped, import::files, progress::Watch, sorted};
use crate::failure::BadInput;

/// From what, and how large.
#[derive(Args)]
#[command(group(clap::ArgGroup::new("from").required(true)))]
pub(crate) struct VocabArgs {
    /// A public list, one word a line with the most frequent first; what follows a tab is not read
    #[arg(long, value_name = "FILE", group = "from")]
    from_list: Option<PathBuf>,
    /// A public text, plain or as .gz or .zst
    #[arg(long, value_name = "FILE", group = "from")]
    from_public_text: Option<PathBuf>,
    /// The users' own posts. This releases which words they use without any privacy: every run with this vocabulary
    /// records that in its ledger, and its epsilon is infinite
    #[arg(long, value_name = "FILE", group = "from", num_args = 1..)]
    from_users_non_privately: Vec<PathBuf>,
    /// The field that says who wrote a post, in the users' posts
    #[arg(long, value_name = "K")]
    user_key: Option<String>,
    /// The field with the text, in the users' posts
    #[arg(long, value_name = "T")]
    text_key: Option<String>,
    /// Entries, <bos>, <eos> and <unk> among them
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    size: usize,
    /// Characters instead of words
    #[arg(long)]
    characters: bool,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Show no progress
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
    origin: &'a Origin,
    non_private: Option<String>,
}

/// Runs the command.
pub(super) fn vocab(args: &VocabArgs) -> anyhow::Result<()> {
    let tokenizer = if args.characters { Tokenizer::characters() } else { Tokenizer::words() };
    let (vocabulary, origin) = build(args, tokenizer)?;
    let known = KnownVocabulary { vocabulary, rules: tokenizer.rules(), origin };
    std::fs::write(&args.out, known.to_file())
        .map_err(|error| BadInput::wrong("out", format!("{}: {error}", args.out.display())))?;
    let non_private = known.origin.non_private_event();
    if let Some(event) = &non_private {
        eprintln!("warning: {event}; every run with this vocabulary records that, and its epsilon is infinite");
    }
    let mut out = std::io::stdout().lock();
    let (file, entries) = (args.out.display().to_string(), known.vocabulary.len());
    if args.json {
        let made = Made { file, entries, origin: &known.origin, non_private };
        writeln!(out, "{}", serde_json::to_string(&made)?)?;
    } else {
        writeln!(out, "{file}: {} entries from {}", grouped(entries as u64), known.origin)?;
    }
    Ok(())
}

fn build(args: &VocabArgs, tokenizer: Tokenizer) -> anyhow::Result<(Vocabulary, Origin)> {
    let wrong_size = |field: &'static str| {
        move |error: VocabularyError| match error {
            VocabularyError::TooSmall { .. } => BadInput::wrong("size", error),
            error => BadInput::wrong(field, error),
        }
    };
    if let Some(path) = &args.from_list {
        let list = String::from_utf8_lossy(&read(path, "from_list")?).into_owned();
        let vocabulary = Vocabulary::from_list(&list, tokenizer, args.size).map_err(wrong_size("from_list"))?;
        return Ok((vocabulary, Origin::PublicList { name: name(path) }));
    }
    if let Some(path) = &args.from_public_text {
        let mut counts = Counts::new();
        String::from_utf8_lossy(&read(path, "from_public_text")?).lines().for_each(|line| counts.add(tokenizer, line));
        let vocabulary = counts.vocabulary(args.size).map_err(wrong_size("from_public_text"))?;
        return Ok((vocabulary, Origin::PublicText { name: name(path) }));
    }
    let paths = &args.from_users_non_privately;
    let mut watch = Watch::new(args.quiet, "bytes")?;
    let input = files(paths, None, [&args.user_key, &args.text_key]);
    let counted = import::count_words(&input, tokenizer, &mut |progress| watch.tick(progress));
    watch.finish();
    let (counts, summary) = counted.map_err(sorted)?;
    if summary.bad_lines > 0 {
        eprintln!("{} lines could not be read", grouped(summary.bad_lines));
    }
    let vocabulary = counts.vocabulary(args.size).map_err(wrong_size("from_users_non_privately"))?;
    let names: Vec<String> = paths.iter().map(|path| name(path)).collect();
    Ok((vocabulary, Origin::UsersNonPrivately { name: names.join(", ") }))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path, field: &'static str) -> Result<Vec<u8>, BadInput> {
    corpus::import::read_whole(path).map_err(|error| BadInput::wrong(field, format!("{}: {error}", path.display())))
}
