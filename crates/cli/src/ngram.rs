//! `keyhush ngram`: counts an n-gram model in public text.

use std::path::PathBuf;

use clap::Args;
use corpus::origin;
use lm::{
    folder::{Folder, Guarantee, Weights},
    ngram::{KneserNey, NgramError},
    stream,
    tokenizer::Tokenizer,
    vocabulary::{Vocabulary, VocabularyError},
};
use serde::Serialize;

use crate::{failure::BadInput, model_folder};

/// Arguments of `keyhush ngram`.
#[derive(Args)]
pub(crate) struct NgramArgs {
    /// Public text, one sequence per line; may be repeated
    #[arg(long = "text", value_name = "FILE", required = true)]
    texts: Vec<PathBuf>,
    /// Folder for the model
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Longest n-grams to count, from 2 to 5 words
    #[arg(long, value_name = "N", default_value_t = 3)]
    order: usize,
    /// Vocabulary size: the most frequent words of the text, plus BOS, EOS and UNK
    #[arg(long, value_name = "N", default_value_t = 10_000, conflicts_with = "vocab")]
    vocabulary_size: usize,
    /// Use this vocabulary instead: a file from `keyhush data vocab`, or the `vocab.txt` of a model
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The JSON output.
#[derive(Serialize)]
struct Counted {
    sequences: usize,
    vocabulary: usize,
    /// Of one word, of two, and so on.
    ngrams: Vec<usize>,
}

pub(crate) fn ngram(args: &NgramArgs) -> anyhow::Result<()> {
    let tokenizer = Tokenizer::words();
    let texts = args.texts.iter().map(|path| model_folder::read_text("text", path)).collect::<Result<Vec<_>, _>>()?;
    let vocabulary = args.vocabulary(&texts, tokenizer)?;
    let lines: Vec<_> = texts.iter().flat_map(|text| stream::lines(text, tokenizer, &vocabulary)).collect();
    let sequences = lines.iter().map(|line| line.ids.as_slice());
    let model = KneserNey::train(args.order, vocabulary.len(), sequences).map_err(|error| match error {
        NgramError::Order { .. } => BadInput::wrong("order", error),
        _ => BadInput::wrong("text", error),
    })?;
    let ngrams: Vec<usize> = (1..=model.order()).map(|n| model.ngrams(n)).collect();
    let folder = Folder {
        name: format!("Kneser-Ney {}-grams", model.order()),
        rules: tokenizer.rules(),
        vocabulary,
        weights: Weights::Ngrams(model),
        guarantee: Guarantee::public_text(),
    };
    model_folder::write(&folder, &args.out)?;
    let counted = Counted { sequences: lines.len(), vocabulary: folder.vocabulary.len(), ngrams };
    if args.json {
        println!("{}", serde_json::to_string(&counted)?);
        return Ok(());
    }
    let ngrams: Vec<String> = (1..).zip(&counted.ngrams).map(|(n, count)| format!("{count} {n}-grams")).collect();
    println!("{} sequences, {} entries, {}", counted.sequences, counted.vocabulary, ngrams.join(", "));
    Ok(())
}

impl NgramArgs {
    fn vocabulary(&self, texts: &[String], tokenizer: Tokenizer) -> Result<Vocabulary, BadInput> {
        if let Some(path) = &self.vocab {
            return model_folder::read_vocabulary(path, tokenizer);
        }
        origin::counted_vocabulary(texts, tokenizer, self.vocabulary_size).map_err(|error| match error {
            VocabularyError::TooSmall { .. } => BadInput::wrong("vocabulary_size", error),
            _ => BadInput::wrong("text", error),
        })
    }
}
