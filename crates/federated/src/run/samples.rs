//! Samples of what a run's model suggests after a few public prompts, at evaluations: `samples.jsonl`.
//!
//! Asking a model of a million parameters takes as long as a round of it on a GPU, so a run with many evaluations asks at some of them.
//! The models of past rounds are not kept, so their suggestions are written while they are there. Prompts are public and models come of
//! releases alone, so this is post-processing (rule P12), with secret noise too. The log stands beside `metrics.jsonl`: nothing that is
//! measured depends on it.

use lm::{
    folder::Weights,
    kernels::KernelPath,
    predict::{Predictor, SHOWN},
};
use serde::{Deserialize, Serialize};

use super::{Opened, RunError, json, read_log};
use crate::{
    engine::Means,
    home::{Home, HomeError, Log, LogWriter},
    round::State,
};

/// The default prompts; the first is the beginning of a message.
pub const PROMPTS: [&str; 6] = ["", "see you", "i am", "what are you", "thanks for the", "on my"];

/// The most prompts of a run.
const MOST_PROMPTS: usize = 32;
/// The most bytes of one.
const MOST_BYTES: usize = 200;
/// The parts of a run in each of which the model is asked at most once.
const PARTS: u64 = 50;

/// Whether the model is asked at the evaluation after so many rounds: at the first and the last, and at the first of each part of the run.
pub(super) fn is_due(round: u64, every: u64, rounds: u64) -> bool {
    let part = |round: u64| u128::from(round) * u128::from(PARTS) / u128::from(rounds.max(1));
    round == 0 || round == rounds || part(round) != part((round - 1) / every.max(1) * every)
}

/// A line of `samples.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// Rounds that were done before.
    pub round: u64,
    /// Prompt by prompt.
    pub samples: Vec<Sample>,
}

/// A prompt and what follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// What was typed: whole words, without the space behind them.
    pub prompt: String,
    /// The suggestions, the likeliest first; none where the model has no numbers any more.
    pub words: Vec<String>,
}

/// The prompts of a text, one per line.
///
/// # Errors
/// What is wrong with them, and what to do.
pub fn prompts_of(text: &str) -> Result<Vec<String>, String> {
    let prompts: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let long = prompts.iter().find(|prompt| prompt.len() > MOST_BYTES);
    match (prompts.len(), long) {
        (0, _) => Err("contains no prompts; write one per line".into()),
        (count, _) if count > MOST_PROMPTS => Err(format!("has {count} prompts; at most {MOST_PROMPTS} are allowed")),
        (_, Some(long)) => {
            let beginning: String = long.chars().take(20).collect();
            Err(format!("the prompt that begins with {beginning:?} is longer than {MOST_BYTES} bytes; shorten it"))
        }
        _ => Ok(prompts),
    }
}

/// Asks the models of a run, and writes what they say.
pub(super) struct Sampler {
    prompts: Vec<String>,
    kernels: KernelPath,
    log: Box<dyn LogWriter>,
}

impl Sampler {
    /// Continues with the log of a run, or begins it; none where its models predict no words. A run that continues keeps its prompts.
    pub(super) fn open(
        home: &dyn Home,
        opened: &Opened,
        means: Means,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Option<Self>, RunError> {
        if opened.learner().recurrent().is_none() {
            return Ok(None);
        }
        let last = read_log::<Samples>(home, Log::Samples)?.pop();
        let before = last.map(|line| line.samples.into_iter().map(|sample| sample.prompt).collect());
        let asked = opened.prompts().map(<[String]>::to_vec);
        let prompts = asked.or(before).unwrap_or_else(|| PROMPTS.map(str::to_owned).to_vec());
        Ok(Some(Self { prompts, kernels: means.kernels, log: home.open_log(Log::Samples, keep)? }))
    }

    /// Writes what the model suggests now.
    pub(super) fn note(&mut self, opened: &Opened, state: &State) -> Result<(), RunError> {
        let Some(config) = opened.learner().recurrent() else { return Ok(()) };
        let weights = Weights::Recurrent { config: config.clone(), values: state.model.clone() };
        let model = weights.into_model(self.kernels).map_err(|error| {
            RunError::from(HomeError::Other { what: "the model cannot suggest words".into(), source: error.into() })
        })?;
        let mut predictor = Predictor::new(model.as_ref(), opened.vocabulary(), opened.rules());
        let sample = |prompt: &String| Sample {
            prompt: prompt.clone(),
            words: predictor
                .suggest(&format!("{prompt} "), SHOWN)
                .into_iter()
                .map(|suggestion| suggestion.word)
                .collect(),
        };
        let line = Samples { round: state.round, samples: self.prompts.iter().map(sample).collect() };
        Ok(self.log.append(&json(&line)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_evaluations_are_all_noted_and_many_evenly() {
        let noted = |every: u64, rounds: u64| -> Vec<u64> {
            (0..=rounds)
                .filter(|round| round.is_multiple_of(every) || *round == rounds)
                .filter(|r| is_due(*r, every, rounds))
                .collect()
        };
        assert_eq!(noted(2, 9), [0, 2, 4, 6, 8, 9]);
        let many = noted(20, 5_000);
        assert_eq!((many.len(), many[1], many[2], many[50]), (51, 100, 200, 5_000));
        assert_eq!(noted(1, 0), [0]);
    }

    #[test]
    fn prompts_are_lines_and_few_and_short() {
        assert_eq!(prompts_of("see you \n\n  \nhello").unwrap(), ["see you", "hello"]);
        for (text, says) in [
            ("\n \n".to_owned(), "one per line"),
            ("a\n".repeat(33), "at most 32 are allowed"),
            ("a".repeat(201), "longer than 200 bytes"),
        ] {
            assert!(prompts_of(&text).unwrap_err().contains(says), "{text:?}");
        }
        assert!(PROMPTS.iter().all(|prompt| prompt.len() <= MOST_BYTES) && PROMPTS.len() <= MOST_PROMPTS);
    }
}
