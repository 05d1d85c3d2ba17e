//! `keyhush ngram`: counts an n-gram model in public text.

use std::path::PathBuf;

use clap::Args;
use lm::{
    folder::{Folder, Guarantee, Weights},
    ngram::{KneserNey, NgramError},
    tokenizer::Tokenizer,
    vocabulary::{Counts, Vocabulary},
};

use crate::{failure::BadInput, model_folder};

/// Arguments of `keyhush ngram`.
#[derive(Args)]
pub(crate) struct NgramArgs {
    /// Public text, one sequence a line; several files may be given
    #[arg(long = "text", value_name = "FILE", required = true)]
    texts: Vec<PathBuf>,
    /// Where the model goes
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How many words an n-gram has at most, from 2 to 5
    #[arg(long, value_name = "N", default_value_t = 3)]
    order: usize,
    /// Entries of the vocabulary: the most frequent words of the text, and BOS, EOS and UNK
    #[arg(long, value_name = "ENTRIES", default_value_t = 10_000, conflicts_with = "vocabulary")]
    size: usize,
    /// A vocabulary to be taken instead, as in `vocab.txt` of a model
    #[arg(long, value_name = "FILE")]
    vocabulary: Option<PathBuf>,
}

pub(crate) fn ngram(args: &NgramArgs) -> anyhow::Result<()> {
    let tokenizer = Tokenizer::words();
    let texts = args.texts.iter().map(|path| model_folder::read_text("text", path)).collect::<Result<Vec<_>, _>>()?;
    let vocabulary = args.vocabulary(&texts, tokenizer)?;
    let lines: Vec<_> = texts.iter().flat_map(|text| model_folder::lines(text, tokenizer, &vocabulary)).collect();
    let sequences = lines.iter().map(|line| line.ids.as_slice());
    let model = KneserNey::train(args.order, vocabulary.len(), sequences).map_err(|error| match error {
        NgramError::Order { .. } => BadInput::wrong("order", error),
        _ => BadInput::wrong("text", error),
    })?;
    let ngrams: Vec<String> = (1..=model.order()).map(|n| format!("{} {n}-grams", model.ngrams(n))).collect();
    let folder = Folder {
        name: format!("Kneser-Ney {}-grams", model.order()),
        rules: tokenizer.rules(),
        vocabulary,
        weights: Weights::Ngrams(model),
        guarantee: Guarantee::public_text(),
    };
    model_folder::write(&folder, &args.out)?;
    println!("{} sequences, {} entries, {}", lines.len(), folder.vocabulary.len(), ngrams.join(", "));
    Ok(())
}

impl NgramArgs {
    fn vocabulary(&self, texts: &[String], tokenizer: Tokenizer) -> Result<Vocabulary, BadInput> {
        if let Some(path) = &self.vocabulary {
            let text = model_folder::read_text("vocabulary", path)?;
            return Vocabulary::parse(&text)
                .map_err(|e| BadInput::wrong("vocabulary", format!("{}: {e}", path.display())));
        }
        let mut counts = Counts::new();
        texts.iter().for_each(|text| counts.add(tokenizer, text));
        counts.vocabulary(self.size).map_err(|error| BadInput::wrong("size", error))
    }
}
