//! Texts of a fixed number of words: samples them from a model, and computes their likelihood.
//!
//! A text of n words is drawn word by word, without an end: probabilities are those of the model, given that the next token is a word. So the
//! probabilities of all texts of n words add up to 1 (Popov et al. 2018, section 3.1).

use lm::{
    language_model::LanguageModel,
    vocabulary::{BOS, EOS},
};
use privacy::rng::{NoiseSource, Purpose, RandomWords, SimulationKey};
use rayon::prelude::*;

/// Texts that are read side by side.
const ROWS: usize = 64;

/// A text, as ids without BOS, and its log-probability under the model that drew it.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// The words.
    pub words: Vec<u32>,
    /// The natural logarithm of its probability.
    pub log_probability: f64,
}

/// The logarithm of the probability that the next token is a word.
fn log_of_words(log_probabilities: &[f32]) -> f64 {
    let not = [BOS, EOS].map(|id| libm::exp(f64::from(log_probabilities[id as usize]))).iter().sum::<f64>();
    libm::log1p(-not.min(1.0 - 1e-9))
}

/// Draws texts of so many words. Which ones follows from the seed alone, and not from threads.
#[must_use]
pub fn draw(model: &dyn LanguageModel, texts: u32, words: usize, seed: u64) -> Vec<Drawn> {
    let source = NoiseSource::from(SimulationKey::new(seed));
    let key = source.stream(Purpose::Canaries, &[u64::MAX]);
    let chunks: Vec<u32> = (0..texts.div_ceil(ROWS as u32)).collect();
    let of_chunk = |chunk: u32| {
        let mut reader = model.reader();
        let mut random = key.chunk(chunk.into());
        let last = texts.min((chunk + 1) * ROWS as u32);
        (chunk * ROWS as u32..last)
            .map(|_| {
                let mut ids = vec![BOS];
                let mut log_probability = 0.0;
                for _ in 0..words {
                    let next = reader.after(&ids);
                    let of_words = log_of_words(next);
                    let word = pick(next, &mut random);
                    log_probability += f64::from(next[word as usize]) - of_words;
                    ids.push(word);
                }
                ids.remove(0);
                Drawn { words: ids, log_probability }
            })
            .collect::<Vec<Drawn>>()
    };
    chunks.into_par_iter().flat_map_iter(of_chunk).collect()
}

/// A word, with its probability.
fn pick(log_probabilities: &[f32], random: &mut RandomWords) -> u32 {
    Words::new(log_probabilities).draw(random)
}

/// The next word by its probability, to be drawn often.
struct Words {
    /// The summed probabilities of all words up to each; 0 for what is no word.
    up_to: Vec<f64>,
}

impl Words {
    fn new(log_probabilities: &[f32]) -> Self {
        let mut sum = 0.0;
        let up_to = log_probabilities.iter().zip(0..).map(|(log, id)| {
            if !matches!(id, BOS | EOS) {
                sum += f64::from(libm::expf(*log));
            }
            sum
        });
        Self { up_to: up_to.collect() }
    }

    fn draw(&self, random: &mut RandomWords) -> u32 {
        let total = self.up_to.last().copied().unwrap_or(0.0);
        let at = (random.next_word() >> 11) as f64 / (1u64 << 53) as f64 * total;
        // The first whose sum is above; what is no word adds nothing, so it is none of these.
        self.up_to.partition_point(|sum| *sum <= at).min(self.up_to.len() - 1) as u32
    }
}

/// How many of so many texts that a model is made to continue after the same first words go on with the words of this one: all texts draw
/// their next word, those with another one are given up, and so on. A text given up can never be right, so nothing is lost by that.
#[must_use]
pub fn completed(model: &dyn LanguageModel, known: &[u32], rest: &[u32], draws: u32, random: &mut RandomWords) -> u32 {
    let mut reader = model.reader();
    let mut ids = [&[BOS], known].concat();
    let mut left = draws;
    for word in rest {
        if left == 0 {
            break;
        }
        // What is left is all the same so far, so the model is asked once.
        let next = Words::new(reader.after(&ids));
        left = (0..left).filter(|_| next.draw(random) == *word).count() as u32;
        ids.push(*word);
    }
    left
}

/// The logarithms of the probabilities that a model gives to texts, each a list of words; given that every token is a word.
#[must_use]
pub fn log_probabilities(model: &dyn LanguageModel, texts: &[&[u32]]) -> Vec<f64> {
    let of_chunk = |chunk: &[&[u32]]| {
        let read: Vec<Vec<u32>> = chunk.iter().map(|text| [&[BOS], *text].concat()).collect();
        let read: Vec<&[u32]> = read.iter().map(Vec::as_slice).collect();
        let mut sums = vec![0.0; chunk.len()];
        model.read(&read, &mut |text, position, next| {
            if let Some(word) = chunk[text].get(position) {
                sums[text] += f64::from(next[*word as usize]) - log_of_words(next);
            }
        });
        sums
    };
    texts.par_chunks(ROWS).flat_map_iter(of_chunk).collect()
}
