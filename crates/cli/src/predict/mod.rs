//! `keyhush predict`: type and see the suggestions change.

mod session;
mod terminal;

use std::{
    io::{BufRead, IsTerminal, Write},
    path::PathBuf,
};

use clap::Args;
use lm::{
    language_model::LanguageModel,
    predict::{Keyboard, SHOWN, Typed},
    tokenizer::Rules,
    vocabulary::Vocabulary,
};
use serde::Serialize;

use crate::{failure::BadInput, model_folder};

/// Arguments of `keyhush predict`.
#[derive(Args)]
pub(crate) struct PredictArgs {
    /// The model's folder
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// How many suggestions are shown
    #[arg(long, value_name = "N", default_value_t = SHOWN)]
    suggestions: usize,
    /// Answer each line of the input as JSON, with probabilities
    #[arg(long)]
    json: bool,
}

pub(crate) fn predict(args: &PredictArgs) -> anyhow::Result<()> {
    if !(1..=9).contains(&args.suggestions) {
        return Err(BadInput::wrong("suggestions", format!("from 1 to 9, got {}", args.suggestions)).into());
    }
    let folder = model_folder::read(&args.model)?;
    let (rules, vocabulary) = (folder.rules, folder.vocabulary.clone());
    let mut predictor = Predictor::new(folder.into_model()?, vocabulary, rules, args.suggestions);
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !args.json {
        return terminal::run(&mut predictor);
    }
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let suggestions = predictor.suggest(&line);
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&Answer { typed: &line, suggestions: &suggestions })?)?;
        } else {
            let words: Vec<&str> = suggestions.iter().map(|s| s.word.as_str()).collect();
            writeln!(out, "{}", words.join("\t"))?;
        }
        out.flush()?;
    }
    Ok(())
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Answer<'a> {
    typed: &'a str,
    suggestions: &'a [Suggestion],
}

/// A word and how likely it is after the words before it, whatever was typed of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Suggestion {
    word: String,
    probability: f64,
}

/// Suggests, and asks the model only when a word was finished or taken back.
struct Predictor {
    model: Box<dyn LanguageModel>,
    vocabulary: Vocabulary,
    keyboard: Keyboard,
    rules: Rules,
    count: usize,
    /// What the model read last, and what it said.
    last: (Vec<u32>, Vec<f32>),
}

impl Predictor {
    fn new(model: Box<dyn LanguageModel>, vocabulary: Vocabulary, rules: Rules, count: usize) -> Self {
        let keyboard = Keyboard::new(vocabulary.words());
        Self { model, vocabulary, keyboard, rules, count, last: (Vec::new(), Vec::new()) }
    }

    fn suggest(&mut self, text: &str) -> Vec<Suggestion> {
        let Typed { context, beginning, .. } = Typed::new(text, self.rules, &self.vocabulary);
        if self.last.0 != context {
            let log_probabilities = self.model.after(&context).unwrap_or_default();
            self.last = (context, log_probabilities);
        }
        let log_probabilities = &self.last.1;
        let ids = self.keyboard.suggest(log_probabilities, &beginning, self.count);
        let suggestion = |id: u32| Suggestion {
            word: self.keyboard.word(id).to_owned(),
            probability: f64::from(log_probabilities[id as usize]).exp(),
        };
        ids.into_iter().map(suggestion).collect()
    }

    /// The text after a suggestion was taken.
    fn accept(&self, text: &str, word: &str) -> String {
        let typed = Typed::new(text, self.rules, &self.vocabulary);
        let space = if self.rules == Rules::Words1 { " " } else { "" };
        format!("{}{word}{space}", typed.finished)
    }
}
