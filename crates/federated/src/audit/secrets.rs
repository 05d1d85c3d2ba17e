//! Plants random texts in users' data, and measures how much of them a model remembers: `keyhush audit canary`.
//!
//! Carlini et al. 2019 ("The Secret Sharer"), with users as in Ramaswamy et al. 2020 (arXiv:2009.10031): a canary is a sequence of words
//! drawn uniformly, which some users have several times among their posts. After training its exposure says how much more likely the model
//! finds it than sequences that nobody has; and a random search tries to extract it from the model: an attacker who knows its first two words
//! draws the others from the model again and again.
//!
//! Users are sampled, so some canaries may be in nobody who took part. No model can remember these: they are told apart, and nothing is
//! concluded from them.

use std::collections::BTreeMap;

use lm::{
    language_model::LanguageModel,
    tokenizer::Tokenizer,
    vocabulary::{BOS, EOS, UNK},
};
use privacy::{
    Epsilon,
    audit::{
        exposure::{Exposure, References, largest_by_chance},
        membership::Roc,
    },
    rng::{NoiseSource, Purpose, RandomWords, SimulationKey},
};
use serde::Serialize;

use super::{Lab, StudyError, Subject, texts};
use crate::{config::ConfigError, population::Changes, run::RunError};

/// The secrets to plant.
#[derive(Debug, Clone, PartialEq)]
pub struct SecretPlan {
    /// How many users share a canary, and how often each of them has it.
    pub groups: Vec<(u64, u32)>,
    /// Canaries of each group.
    pub each: u32,
    /// Words of a canary.
    pub words: usize,
    /// Sequences that nobody has, to compare with.
    pub references: u32,
    /// Draws of the search for one canary.
    pub draws: u32,
    /// From which all of it follows.
    pub seed: u64,
}

/// Words that the search knows.
const KNOWN: usize = 2;

/// Words that a vocabulary needs for random texts.
const LEAST_WORDS: usize = 10;

/// A canary and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Secret {
    /// Its words.
    pub text: String,
    /// How many users have it.
    pub users: u64,
    /// How often each of them has it.
    pub repeats: u32,
    /// Its exposure in the private model.
    pub private: Remembered,
    /// The same without privacy.
    pub non_private: Remembered,
}

/// How much a model remembers of a canary.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Remembered {
    /// How many of its users took part in any round.
    pub took_part: u64,
    /// Bits.
    pub exposure: Exposure,
    /// How many draws of the search hit it.
    pub found: u32,
    /// How many draws it takes on average.
    pub draws_needed: f64,
}

/// The result of the attack over all canaries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Secrets {
    /// What the private run guarantees, or would with secret noise.
    pub epsilon_formal: Epsilon,
    /// The delta of that.
    pub delta: f64,
    /// The epsilon that secrets of single users show of the private run, as an attack by threshold: an estimate; none with fewer than 10
    /// of these.
    pub epsilon_estimate: Option<f64>,
    /// log2 of the number of possible canaries: the largest exposure.
    pub most_bits: f64,
    /// Canaries of which at least one user took part in the private run.
    pub trained_private: usize,
    /// The same without privacy.
    pub trained_non_private: usize,
    /// The largest exposure by estimate of these, in bits: private.
    pub exposure_private: f64,
    /// The same without privacy.
    pub exposure_non_private: f64,
    /// What the largest of so many is on average if nothing is remembered: private.
    pub chance_private: f64,
    /// The same without privacy.
    pub chance_non_private: f64,
    /// Canaries that the search found in the private model.
    pub extracted_private: usize,
    /// The same without privacy.
    pub extracted_non_private: usize,
    /// All planted secrets.
    pub canaries: Vec<Secret>,
}

/// A canary before training.
struct Planted {
    words: Vec<u32>,
    users: u64,
    repeats: u32,
    /// Users who hold the secret.
    holders: Vec<u64>,
}

impl Planted {
    fn took_part(&self, subject: &Subject) -> u64 {
        self.holders.iter().filter(|user| subject.took_part.contains(user)).count() as u64
    }
}

/// Plants, trains both models and asks them.
///
/// # Errors
/// When a training fails, or nothing can be compared.
pub fn plant(lab: &Lab<'_>, plan: &SecretPlan) -> Result<Secrets, StudyError> {
    let opened = lab.open(&lab.config)?;
    let shape = opened.learner().recurrent().cloned().ok_or(StudyError::NotALanguageModel)?;
    let people = opened.population(lab.config.unit)?.users();
    let vocabulary = opened.vocabulary();
    check(plan, people, vocabulary.len())?;
    let mut random =
        NoiseSource::from(SimulationKey::new(plan.seed)).stream(Purpose::Canaries, &[u64::MAX, 2]).chunk(0);
    let mut some = |words: usize| -> Vec<u32> { (0..words).map(|_| word(&mut random, vocabulary.len())).collect() };
    let mut planted = Vec::new();
    for (users, repeats) in &plan.groups {
        for _ in 0..plan.each {
            planted.push(Planted { words: some(plan.words), users: *users, repeats: *repeats, holders: Vec::new() });
        }
    }
    let references: Vec<Vec<u32>> = (0..plan.references).map(|_| some(plan.words)).collect();
    planted.iter_mut().for_each(|canary| canary.holders = some_users(canary.users, people, &mut random));
    let changes = Changes { planted: posts(&planted), ..Changes::default() };
    let without = lab.without_privacy();
    lab.check(&lab.config)?;
    lab.check(&without)?;
    let private = lab.train("private", &lab.config, changes.clone())?;
    let non_private = lab.train("without-privacy", &without, changes)?;
    let bits = plan.words as f64 * libm::log2((vocabulary.len() - FIRST_WORD as usize) as f64);
    let (asked, open) = (lab.ask(&shape, &private)?, lab.ask(&shape, &non_private)?);
    let epsilon_estimate = epsilon(asked.as_ref(), &private, &planted, &references)?;
    let of_private = remembered(asked.as_ref(), &private, &planted, &references, bits, plan)?;
    let of_open = remembered(open.as_ref(), &non_private, &planted, &references, bits, plan)?;
    let canaries: Vec<Secret> = planted
        .iter()
        .zip(of_private.into_iter().zip(of_open))
        .map(|(planted, (private, non_private))| Secret {
            text: vocabulary.decode(Tokenizer::new(opened.rules()), planted.words.iter().copied()),
            users: planted.users,
            repeats: planted.repeats,
            private,
            non_private,
        })
        .collect();
    let trained = |of: fn(&Secret) -> &Remembered| canaries.iter().map(of).filter(|r| r.took_part > 0);
    let largest = |of: fn(&Secret) -> &Remembered| trained(of).map(|r| r.exposure.by_estimate).fold(0.0, f64::max);
    let extracted = |of: fn(&Secret) -> &Remembered| trained(of).filter(|r| r.found > 0).count();
    let (trained_private, trained_non_private) = (trained(|c| &c.private).count(), trained(|c| &c.non_private).count());
    Ok(Secrets {
        epsilon_formal: private.epsilon,
        delta: private.delta,
        epsilon_estimate,
        most_bits: bits,
        trained_private,
        trained_non_private,
        chance_private: largest_by_chance(trained_private),
        chance_non_private: largest_by_chance(trained_non_private),
        exposure_private: largest(|c| &c.private),
        exposure_non_private: largest(|c| &c.non_private),
        extracted_private: extracted(|c| &c.private),
        extracted_non_private: extracted(|c| &c.non_private),
        canaries,
    })
}

/// Entries of a vocabulary before it are no words.
const FIRST_WORD: u32 = UNK + 1;
const _: () = assert!(BOS < FIRST_WORD && EOS < FIRST_WORD);

fn check(plan: &SecretPlan, people: u64, entries: usize) -> Result<(), StudyError> {
    let wrong = |what, problem: String| Err(StudyError::Wrong { what, problem });
    if plan.groups.is_empty()
        || plan.groups.iter().any(|(users, repeats)| *users == 0 || *users > people || *repeats == 0)
    {
        return wrong("plant", format!("must be USERSxREPEATS with 1 to {people} users and at least 1 repetition"));
    }
    if plan.each == 0 || plan.each > 1000 {
        return wrong("each", "must be from 1 to 1000".to_owned());
    }
    if !(KNOWN + 1..=100).contains(&plan.words) {
        return wrong("words", "must be from 3 to 100".to_owned());
    }
    if plan.references < 100 {
        return wrong("references", "must be at least 100".to_owned());
    }
    let least = FIRST_WORD as usize + LEAST_WORDS;
    if entries < least {
        let problem = format!("must be at least {least} for an audit whose secrets are random words, got {entries}");
        return Err(RunError::from(ConfigError::new("model.vocabulary", problem)).into());
    }
    Ok(())
}

fn word(random: &mut RandomWords, entries: usize) -> u32 {
    FIRST_WORD + (random.next_word() % (entries as u64 - u64::from(FIRST_WORD))) as u32
}

/// Different users, by chance.
fn some_users(count: u64, people: u64, random: &mut RandomWords) -> Vec<u64> {
    let mut chosen = Vec::new();
    while (chosen.len() as u64) < count {
        let user = random.next_word() % people;
        if !chosen.contains(&user) {
            chosen.push(user);
        }
    }
    chosen
}

/// Who has which posts.
fn posts(planted: &[Planted]) -> BTreeMap<u64, Vec<Vec<u32>>> {
    let mut posts: BTreeMap<u64, Vec<Vec<u32>>> = BTreeMap::new();
    for canary in planted {
        for user in &canary.holders {
            let copies = (0..canary.repeats).map(|_| canary.words.clone());
            posts.entry(*user).or_default().extend(copies);
        }
    }
    posts
}

/// The epsilon of telling canaries of single users, who took part, from sequences that nobody has, by how likely a model finds them.
fn epsilon(
    model: &dyn LanguageModel,
    subject: &Subject,
    planted: &[Planted],
    references: &[Vec<u32>],
) -> Result<Option<f64>, StudyError> {
    let of_one = planted.iter().filter(|c| c.users == 1 && c.took_part(subject) == 1);
    let of_one: Vec<&[u32]> = of_one.map(|c| c.words.as_slice()).collect();
    if of_one.len() < 10 {
        return Ok(None);
    }
    let others: Vec<&[u32]> = references.iter().map(Vec::as_slice).collect();
    let (members, others) = (texts::log_probabilities(model, &of_one), texts::log_probabilities(model, &others));
    Ok(Some(Roc::of(&members, &others, subject.delta)?.epsilon_estimate))
}

/// What a model remembers of each canary.
fn remembered(
    model: &dyn LanguageModel,
    subject: &Subject,
    planted: &[Planted],
    references: &[Vec<u32>],
    bits: f64,
    plan: &SecretPlan,
) -> Result<Vec<Remembered>, StudyError> {
    let perplexities = |texts: Vec<&[u32]>| -> Vec<f64> {
        texts::log_probabilities(model, &texts).into_iter().map(|ln| -ln / std::f64::consts::LN_2).collect()
    };
    let others = References::new(&perplexities(references.iter().map(Vec::as_slice).collect()), bits)?;
    let own = perplexities(planted.iter().map(|canary| canary.words.as_slice()).collect());
    let starts = perplexities(planted.iter().map(|canary| &canary.words[..KNOWN]).collect());
    let mut random =
        NoiseSource::from(SimulationKey::new(plan.seed)).stream(Purpose::Canaries, &[u64::MAX, 3]).chunk(0);
    let mut of = |((own, start), canary): ((&f64, &f64), &Planted)| {
        let (known, rest) = canary.words.split_at(KNOWN);
        let found = texts::completed(model, known, rest, plan.draws, &mut random);
        // How likely one draw is right, by the probabilities of the model.
        let hit = libm::exp2(start - own).clamp(0.0, 1.0);
        let (took_part, exposure) = (canary.took_part(subject), others.exposure(*own));
        Remembered { took_part, exposure, found, draws_needed: 1.0 / hit.max(1e-300) }
    };
    Ok(own.iter().zip(&starts).zip(planted).map(&mut of).collect())
}
