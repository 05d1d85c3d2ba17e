//! `keyhush predict`: shows suggestions while you type.

mod terminal;

use std::{
    io::{BufRead, IsTerminal, Write},
    path::PathBuf,
};

use clap::Args;
use lm::{
    folder::Folder,
    predict::{Predictor, SHOWN, Suggestion},
};
use serde::Serialize;

use crate::{failure::BadInput, kernels, model_folder};

/// Arguments of `keyhush predict`.
#[derive(Args)]
pub(crate) struct PredictArgs {
    /// Folder of the model, or of a finished run
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Number of suggestions to show
    #[arg(long, value_name = "N", default_value_t = SHOWN)]
    suggestions: usize,
    /// Answer each line of input as JSON, with probabilities
    #[arg(long)]
    json: bool,
}

pub(crate) fn predict(args: &PredictArgs) -> anyhow::Result<()> {
    if !(1..=9).contains(&args.suggestions) {
        return Err(BadInput::wrong("suggestions", format!("must be from 1 to 9, got {}", args.suggestions)).into());
    }
    let Folder { vocabulary, rules, weights, .. } = model_folder::read(&args.model)?;
    let model = weights.into_model(kernels::chosen()?)?;
    let mut predictor = Predictor::new(model.as_ref(), &vocabulary, rules);
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !args.json {
        return terminal::run(&mut predictor, args.suggestions);
    }
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let suggestions = predictor.suggest(&line, args.suggestions);
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
