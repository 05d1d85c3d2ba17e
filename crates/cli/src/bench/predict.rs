//! `keyhush bench predict`: one next-word prediction, as a keyboard asks for it.
//!
//! Sentences of the model's own words are typed letter by letter. After a space the model reads the word that was finished
//! and all entries of the vocabulary are weighed; after a letter the words that still fit are looked through. Nothing else
//! happens in the process, so that its peak memory is what a keyboard needs: program, model and vocabulary.

use std::{path::Path, time::Instant};

use clap::Args;
use lm::{
    folder::Folder,
    kernels::KernelPath,
    language_model::LanguageModel,
    model::{
        config::{ModelConfig, Token},
        fast::Network,
        initial::initial_parameters,
    },
    predict::{Predictor, SHOWN},
    tokenizer::Rules,
    vocabulary::{SPECIAL, Vocabulary},
};
use serde::Serialize;

use super::{at_least_one, clock::peak_mb};
use crate::{failure::BadInput, kernels, model_folder};

/// Words of a sentence.
const SENTENCE: u32 = 12;

#[derive(Args)]
pub(crate) struct PredictArgs {
    /// A preset such as gboard, with its first parameters, or the folder of a trained model.
    #[arg(long, default_value = "gboard")]
    model: String,
    /// Words to predict.
    #[arg(long, default_value_t = 1000)]
    words: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is printed. Times are of the clock.
#[derive(Serialize)]
struct Answer {
    model: String,
    kernels: KernelPath,
    words: u32,
    letters: usize,
    /// The median, when a word was finished.
    ms_per_prediction: f64,
    ms_per_prediction_best: f64,
    /// The median, for every other letter.
    ms_per_letter: f64,
    /// The most memory that the process ever had, where the system says.
    peak_mb: Option<f64>,
}

pub(crate) fn run(args: &PredictArgs) -> anyhow::Result<()> {
    at_least_one([("words", args.words as usize)])?;
    let path = kernels::chosen()?;
    let (model, vocabulary, rules) = load(&args.model, path)?;
    let mut predictor = Predictor::new(model.as_ref(), &vocabulary, rules);
    let (mut finished, mut letters) = (Vec::new(), Vec::new());
    let mut text = String::new();
    for n in 0..args.words {
        if n % SENTENCE == 0 {
            text.clear();
        }
        let space = (rules == Rules::Words1).then_some(' ');
        for letter in word(&vocabulary, n).chars().chain(space) {
            text.push(letter);
            let clock = Instant::now();
            std::hint::black_box(predictor.suggest(&text, SHOWN));
            let ms = clock.elapsed().as_secs_f64() * 1e3;
            if space.is_none_or(|space| space == letter) { finished.push(ms) } else { letters.push(ms) }
        }
    }
    let answer = Answer {
        model: args.model.clone(),
        kernels: path,
        words: args.words,
        letters: letters.len(),
        ms_per_prediction: median(&mut finished),
        ms_per_prediction_best: finished[0],
        ms_per_letter: median(&mut letters),
        peak_mb: peak_mb(),
    };
    print(&answer, args.json)
}

/// A trained model where there is such a folder, else a preset.
fn load(model: &str, path: KernelPath) -> anyhow::Result<(Box<dyn LanguageModel>, Vocabulary, Rules)> {
    if Path::new(model).is_dir() {
        let Folder { vocabulary, rules, weights, .. } = model_folder::read(Path::new(model))?;
        return Ok((weights.into_model(path)?, vocabulary, rules));
    }
    let config = ModelConfig::preset(model).map_err(|error| BadInput::wrong("model", error))?;
    let (rules, first, letters) = match config.token {
        Token::Word => (Rules::Words1, 'a', 26),
        Token::Character => (Rules::Characters1, '!', u32::MAX),
    };
    let words = (0..).map(|n| spelled(n, first, letters)).take(config.vocabulary - SPECIAL.len());
    let vocabulary = Vocabulary::new(words)?;
    let network = Network::new(&config, initial_parameters(&config, 1)?, path)?;
    Ok((Box::new(network), vocabulary, rules))
}

/// A number in so many letters: a, b, ..., z, aa, ba, ...
fn spelled(number: u32, first: char, letters: u32) -> String {
    let mut word = String::new();
    let mut rest = Some(number);
    while let Some(number) = rest {
        word.extend(char::from_u32(first as u32 + number % letters));
        rest = (number / letters).checked_sub(1);
    }
    word
}

/// Words by Zipf's law.
fn word(vocabulary: &Vocabulary, n: u32) -> &str {
    let words = (vocabulary.len() - SPECIAL.len()) as f64;
    let uniform = f64::from(n.wrapping_mul(0x9e37_79b9)) / f64::from(u32::MAX);
    let id = SPECIAL.len() + (words.powf(uniform) as usize - 1).min(words as usize - 1);
    vocabulary.word(id as u32).unwrap_or_default()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn print(answer: &Answer, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(answer)?);
        return Ok(());
    }
    println!("model             {} ({} kernels, one thread)", answer.model, answer.kernels.name());
    println!("ms per prediction {:.3}  (best {:.3})", answer.ms_per_prediction, answer.ms_per_prediction_best);
    println!("ms per letter     {:.3}", answer.ms_per_letter);
    if let Some(peak) = answer.peak_mb {
        println!("peak memory       {peak:.1} MB, all of the process");
    }
    Ok(())
}
