//! Measures one next-word prediction, as a keyboard requests it.
//!
//! Sentences of the model's own words are typed letter by letter. After a space the model reads the word that was finished
//! and all entries of the vocabulary are weighed; after a letter the words that still fit are looked through. Nothing else
//! happens in the process, so that its peak memory is what a keyboard needs: program, model and vocabulary.

use std::{path::Path, time::Instant};

use federated::model_folder;
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

use crate::{BenchError, at_least_one, clock::peak_mb};

/// Words of a sentence.
const SENTENCE: u32 = 12;

/// The parameters of the benchmark: model and number of predictions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prediction {
    /// A preset, with its first parameters, or the folder of a trained model.
    pub model: String,
    /// Words to predict.
    pub words: u32,
}

/// The measured results, in wall-clock time.
#[derive(Debug, Clone, Serialize)]
pub struct PredictionTook {
    /// The model.
    pub model: String,
    /// The kernels.
    pub kernels: KernelPath,
    /// Words that were predicted.
    pub words: u32,
    /// Letters between them.
    pub letters: usize,
    /// The median, when a word was finished.
    pub ms_per_prediction: f64,
    /// The fastest.
    pub ms_per_prediction_best: f64,
    /// The median, for every other letter.
    pub ms_per_letter: f64,
    /// The most memory that the process ever had, where the system says.
    pub peak_mb: Option<f64>,
}

impl Prediction {
    /// Types all words.
    ///
    /// # Errors
    /// When there is no such model, or nothing to predict.
    pub fn run(&self, kernels: KernelPath) -> Result<PredictionTook, BenchError> {
        at_least_one([("words", self.words as usize)])?;
        let (model, vocabulary, rules) = load(&self.model, kernels)?;
        let mut predictor = Predictor::new(model.as_ref(), &vocabulary, rules);
        let (mut finished, mut letters) = typed(&mut predictor, &vocabulary, rules, self.words);
        Ok(PredictionTook {
            model: self.model.clone(),
            kernels,
            words: self.words,
            letters: letters.len(),
            ms_per_prediction: median(&mut finished),
            ms_per_prediction_best: finished[0],
            ms_per_letter: median(&mut letters),
            peak_mb: peak_mb(),
        })
    }
}

/// Milliseconds of each prediction when a word was finished, and for every other letter.
fn typed(predictor: &mut Predictor<'_>, vocabulary: &Vocabulary, rules: Rules, words: u32) -> (Vec<f64>, Vec<f64>) {
    let (mut finished, mut letters) = (Vec::new(), Vec::new());
    let mut text = String::new();
    for n in 0..words {
        if n % SENTENCE == 0 {
            text.clear();
        }
        let space = (rules == Rules::Words1).then_some(' ');
        for letter in word(vocabulary, n).chars().chain(space) {
            text.push(letter);
            let clock = Instant::now();
            std::hint::black_box(predictor.suggest(&text, SHOWN));
            let ms = clock.elapsed().as_secs_f64() * 1e3;
            if space.is_none_or(|space| space == letter) { finished.push(ms) } else { letters.push(ms) }
        }
    }
    (finished, letters)
}

/// What predicts, its words, and how it reads text.
type Loaded = (Box<dyn LanguageModel>, Vocabulary, Rules);

/// A trained model where there is such a folder, else a preset.
fn load(model: &str, path: KernelPath) -> Result<Loaded, BenchError> {
    if Path::new(model).is_dir() {
        let Folder { vocabulary, rules, weights, .. } = model_folder::read(Path::new(model))?;
        return Ok((weights.into_model(path).map_err(BenchError::failed)?, vocabulary, rules));
    }
    let config = ModelConfig::preset(model).map_err(|error| BenchError::wrong("model", error))?;
    let (rules, first, letters) = match config.token {
        Token::Word => (Rules::Words1, 'a', 26),
        Token::Character => (Rules::Characters1, '!', u32::MAX),
    };
    let words = (0..).map(|n| spelled(n, first, letters)).take(config.vocabulary - SPECIAL.len());
    let vocabulary = Vocabulary::new(words).map_err(BenchError::failed)?;
    let first_parameters = initial_parameters(&config, 1).map_err(BenchError::failed)?;
    let network = Network::new(&config, first_parameters, path).map_err(BenchError::failed)?;
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
