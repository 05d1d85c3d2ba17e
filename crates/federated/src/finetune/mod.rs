//! Fine-tuning without forgetting: applies the section `[finetune]` to a run (Popov et al. 2018).
//!
//! A run starts from a general model (`model.from`) and trains it on people whose language is another one. What each device does is
//! [`device::finetune`]'s; who takes part, clipping, noise, secure aggregation and accounting are those of any run, so every kind works
//! with differential privacy and without.
//!
//! | the paper                                  | here                                                                         |
//! |--------------------------------------------|------------------------------------------------------------------------------|
//! | random rehearsal, lambda                   | `kind = "rehearsal"`: public text travels with the task                      |
//! | learning without forgetting, equations 1, 2 | `kind = "without-forgetting"`                                                |
//! | on-device re-training                      | `kind = "retraining"`, or no section                                         |
//! | a queue of models; every K are averaged    | `participation.kind = "once"` or `"arrival"` with `cohort = K`, `server.optimizer = "sgd"` and `learning_rate = 1.0`: users come in the order of a queue, each sends the difference of its model to the one that it was given, and the mean of K differences on top of that model is the mean of K models |
//! | transfer learning, equation 4              | [`ensemble`]: a baseline without privacy, outside of the loop; [`crate::released`]: from released models, which is private |
//!
//! General text is taken to be public. That is an assumption of the guarantee, so ledger and statement name it.

pub mod ensemble;

use std::path::Path;

use corpus::synth::{Crowd, Dialect, SynthPlan};
use device::{finetune::GeneralText, learner::Learner};
use ledger::{PublicData, hex};
use lm::{
    tokenizer::{Rules, Tokenizer},
    vocabulary::Vocabulary,
};
use sha2::{Digest as _, Sha256};

use crate::config::{Config, ConfigError, Data, FineTune};

/// Tokens of general text that travel with a task, by default.
const GENERAL_TOKENS: usize = 20_000;
/// The most that may: a device takes terms of 16 MiB by default, and a token is about five bytes of them.
const MOST_TOKENS: usize = 1_000_000;
/// Synthetic users of general text are not those of a crowd with the same seed.
const OTHERS: u64 = 0x6765_6E65_7261_6C21;

/// The general text that devices rehearse, and why it counts as public.
pub struct Rehearsed {
    /// The text.
    pub text: GeneralText,
    /// As ledger and statement have it.
    pub public: PublicData,
}

/// What devices do, as their plan has it. Plain re-training is nothing to be told.
pub(crate) fn of(config: &Config, general: Option<GeneralText>) -> Option<device::finetune::FineTune> {
    match config.finetune.as_ref()? {
        FineTune::Retraining => None,
        FineTune::Rehearsal { lambda, .. } => {
            let general = general.unwrap_or_else(|| GeneralText::new([]));
            Some(device::finetune::FineTune::Rehearsal { lambda: *lambda, general })
        }
        FineTune::WithoutForgetting { lambda } => Some(device::finetune::FineTune::SoftLabels { lambda: *lambda }),
    }
}

/// The key of a field of a plan of local training.
pub(crate) fn key(field: &str) -> String {
    match field {
        "finetune" => field.to_owned(),
        "lambda" | "general_tokens" => format!("finetune.{field}"),
        _ => format!("local.{field}"),
    }
}

/// By which general text is recognised.
pub(crate) fn digest(text: &GeneralText) -> [u8; 32] {
    let mut hash = Sha256::new();
    for post in text.posts() {
        hash.update((post.len() as u64).to_le_bytes());
        post.iter().for_each(|id| hash.update(id.to_le_bytes()));
    }
    hash.finalize().into()
}

/// Reads what devices rehearse, where the settings say that they do.
///
/// # Errors
/// When there is no such text, or the learner has no use for the section.
pub fn open(
    config: &Config,
    learner: &dyn Learner,
    vocabulary: &Vocabulary,
    rules: Rules,
) -> Result<Option<Rehearsed>, ConfigError> {
    let Some(finetune) = &config.finetune else { return Ok(None) };
    if *finetune != FineTune::Retraining && !learner.finetunes() {
        let why = format!(
            "{:?} cannot be used with model.learner = {:?}, which has no general text and no soft labels; use \"retraining\"",
            finetune.name(),
            learner.name()
        );
        return Err(ConfigError::new("finetune.kind", why));
    }
    let FineTune::Rehearsal { public_text, general_tokens, .. } = finetune else { return Ok(None) };
    let tokens = general_tokens.unwrap_or(GENERAL_TOKENS);
    if !(1..=MOST_TOKENS).contains(&tokens) {
        return Err(ConfigError::new(
            "finetune.general_tokens",
            format!("must be from 1 to {MOST_TOKENS}, got {tokens}"),
        ));
    }
    let mut reading = Reading { tokenizer: Tokenizer::new(rules), vocabulary, left: tokens, posts: Vec::new() };
    let origin = match public_text {
        Some(path) => {
            reading.file(path).map_err(|problem| ConfigError::new("finetune.public_text", problem))?;
            // Without its name: a file may be moved.
            "whoever started the run declared it public"
        }
        None if config.data.is_stored() => {
            let why = "is missing: with a store, name a public text file, one post per line";
            return Err(ConfigError::new("finetune.public_text", why));
        }
        None => {
            let seed = match &config.data {
                Data::Synthetic(crowd) => crowd.seed,
                Data::Devices(text) => text.seed,
                Data::Store(_) => None,
            };
            reading.made_up(seed.unwrap_or(1) ^ OTHERS).map_err(|e| ConfigError::new("finetune", e))?;
            "it is made up by the program"
        }
    };
    let text = GeneralText::new(reading.posts);
    let (posts, tokens) = (text.posts().len(), text.tokens());
    let why = format!("{origin} ({posts} posts, {tokens} tokens, SHA-256 {}...)", &hex(&digest(&text))[..16]);
    let public = PublicData { what: "the general text that devices rehearse".to_owned(), why };
    Ok(Some(Rehearsed { text, public }))
}

/// Public text of a file, one post per line, evenly from all of it: so many tokens, or all where there are fewer.
///
/// # Errors
/// When it cannot be read, or is empty.
pub fn public_text(path: &Path, vocabulary: &Vocabulary, rules: Rules, tokens: usize) -> Result<GeneralText, String> {
    let mut reading = Reading { tokenizer: Tokenizer::new(rules), vocabulary, left: tokens, posts: Vec::new() };
    reading.file(path)?;
    Ok(GeneralText::new(reading.posts))
}

/// Text that is being read, until there is enough.
struct Reading<'a> {
    tokenizer: Tokenizer,
    vocabulary: &'a Vocabulary,
    left: usize,
    posts: Vec<Vec<u32>>,
}

impl Reading<'_> {
    /// Takes a post, as much of it as is wanted. Whether there is enough.
    fn take(&mut self, text: &str) -> bool {
        let mut ids = Vec::new();
        self.vocabulary.encode(self.tokenizer, text, &mut ids);
        ids.truncate(self.left.saturating_sub(1).max(1));
        if !ids.is_empty() {
            self.left = self.left.saturating_sub(ids.len() + 1);
            self.posts.push(ids);
        }
        self.left == 0
    }

    /// Lines of a file, evenly from all of it: neighbours are often about one thing.
    fn file(&mut self, path: &Path) -> Result<(), String> {
        let text = corpus::text::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let words: usize = lines.iter().map(|line| line.split_whitespace().count() + 1).sum();
        let every = (words / self.left.max(1)).max(1);
        for line in lines.iter().step_by(every) {
            if self.take(line) {
                break;
            }
        }
        if self.posts.is_empty() { Err(format!("{} has no text in it", path.display())) } else { Ok(()) }
    }

    /// What synthetic users wrote in general English.
    fn made_up(&mut self, seed: u64) -> Result<(), corpus::synth::SynthError> {
        let people = self.left as u64;
        let crowd = Crowd::new(SynthPlan::new(seed, people, Dialect::General))?;
        for person in 0..people {
            if crowd.posts(person).iter().any(|post| self.take(post)) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: u32) -> Vocabulary {
        let words: Vec<String> = (0..count).map(|n| format!("w{n}")).collect();
        Vocabulary::new(words).unwrap()
    }

    #[test]
    fn lines_are_taken_from_all_of_a_file_and_no_more_than_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("general.txt");
        let lines: Vec<String> = (0..100).map(|n| format!("w{n} w{n} w{n}\n\n")).collect();
        std::fs::write(&path, lines.concat()).unwrap();
        let vocabulary = words(100);
        let read = |left: usize| {
            let mut reading =
                Reading { tokenizer: Tokenizer::new(Rules::Words1), vocabulary: &vocabulary, left, posts: Vec::new() };
            reading.file(&path).unwrap();
            GeneralText::new(reading.posts)
        };
        assert_eq!((read(1000).posts().len(), read(1000).tokens()), (100, 400));
        let some = read(40);
        assert_eq!(some.tokens(), 40);
        let first: Vec<u32> = some.posts().iter().map(|post| post[0]).collect();
        let apart: Vec<u32> = first.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(apart, [10; 9], "every tenth line");
        assert_eq!(read(3).tokens(), 3, "a post may be cut");
        assert_ne!(digest(&some), digest(&read(44)));
    }

    #[test]
    fn made_up_people_speak_general_english() {
        let vocabulary = words(10);
        let mut reading =
            Reading { tokenizer: Tokenizer::new(Rules::Words1), vocabulary: &vocabulary, left: 500, posts: Vec::new() };
        reading.made_up(1).unwrap();
        assert_eq!(GeneralText::new(reading.posts).tokens(), 500);
    }
}
