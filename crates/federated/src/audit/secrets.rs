//! Plants random texts in users' data, and measures how much of them a model remembers: `keyhush audit canary`.
//!
//! Carlini et al. 2019 ("The Secret Sharer"), with users as in Ramaswamy et al. 2020 (arXiv:2009.10031): a canary is a sequence of words
//! drawn uniformly, which some users have several times among their posts. After training its exposure says how much more likely the model
//! finds it than sequences that nobody has; and a random search tries to extract it from the model: an attacker who knows its first two words
//! draws the others from the model again and again.

use std::collections::BTreeMap;

use lm::{
    language_model::LanguageModel,
    tokenizer::Tokenizer,
    vocabulary::{BOS, EOS, UNK},
};
use privacy::{
    Epsilon,
    audit::{
        exposure::{Exposure, References},
        membership::Roc,
    },
    rng::{NoiseSource, Purpose, RandomWords, SimulationKey},
};
use serde::Serialize;

use super::{Lab, StudyError, texts};
use crate::population::Changes;

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
    /// The largest exposure by estimate, in bits: private.
    pub exposure_private: f64,
    /// The same without privacy.
    pub exposure_non_private: f64,
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
            planted.push(Planted { words: some(plan.words), users: *users, repeats: *repeats });
        }
    }
    let references: Vec<Vec<u32>> = (0..plan.references).map(|_| some(plan.words)).collect();
    let changes = Changes { planted: holders(&planted, people, &mut random), ..Changes::default() };
    let private = lab.train("private", &lab.config, changes.clone())?;
    let non_private = lab.train("without-privacy", &lab.without_privacy(), changes)?;
    let bits = plan.words as f64 * libm::log2((vocabulary.len() - FIRST_WORD as usize) as f64);
    let (asked, open) = (lab.ask(&shape, &private)?, lab.ask(&shape, &non_private)?);
    let epsilon_estimate = epsilon(asked.as_ref(), &planted, &references, private.delta)?;
    let of_private = remembered(asked.as_ref(), &planted, &references, bits, plan)?;
    let of_open = remembered(open.as_ref(), &planted, &references, bits, plan)?;
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
    let largest =
        |of: fn(&Secret) -> &Remembered| canaries.iter().map(|c| of(c).exposure.by_estimate).fold(0.0, f64::max);
    let extracted = |of: fn(&Secret) -> &Remembered| canaries.iter().filter(|c| of(c).found > 0).count();
    Ok(Secrets {
        epsilon_formal: private.epsilon,
        delta: private.delta,
        epsilon_estimate,
        most_bits: bits,
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
    if entries < FIRST_WORD as usize + 10 {
        return wrong("model.vocabulary", "has too few words".to_owned());
    }
    Ok(())
}

fn word(random: &mut RandomWords, entries: usize) -> u32 {
    FIRST_WORD + (random.next_word() % (entries as u64 - u64::from(FIRST_WORD))) as u32
}

/// Who has which posts.
fn holders(planted: &[Planted], people: u64, random: &mut RandomWords) -> BTreeMap<u64, Vec<Vec<u32>>> {
    let mut holders: BTreeMap<u64, Vec<Vec<u32>>> = BTreeMap::new();
    for canary in planted {
        let mut chosen = Vec::new();
        while (chosen.len() as u64) < canary.users {
            let user = random.next_word() % people;
            if !chosen.contains(&user) {
                chosen.push(user);
            }
        }
        for user in chosen {
            let copies = (0..canary.repeats).map(|_| canary.words.clone());
            holders.entry(user).or_default().extend(copies);
        }
    }
    holders
}

/// The epsilon of telling canaries of single users from sequences that nobody has, by how likely a model finds them.
fn epsilon(
    model: &dyn LanguageModel,
    planted: &[Planted],
    references: &[Vec<u32>],
    delta: f64,
) -> Result<Option<f64>, StudyError> {
    let of_one: Vec<&[u32]> = planted.iter().filter(|c| c.users == 1).map(|c| c.words.as_slice()).collect();
    if of_one.len() < 10 {
        return Ok(None);
    }
    let others: Vec<&[u32]> = references.iter().map(Vec::as_slice).collect();
    let (members, others) = (texts::log_probabilities(model, &of_one), texts::log_probabilities(model, &others));
    Ok(Some(Roc::of(&members, &others, delta)?.epsilon_estimate))
}

/// What a model remembers of each canary.
fn remembered(
    model: &dyn LanguageModel,
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
    let of = |(own, start): (&f64, &f64)| {
        // Every draw of the search draws the missing words one after the other, and continues while they are right.
        let hit = libm::exp2(start - own).clamp(0.0, 1.0);
        let found = (0..plan.draws).filter(|_| (random.next_word() >> 11) as f64 / (1u64 << 53) as f64 <= hit).count();
        Remembered { exposure: others.exposure(*own), found: found as u32, draws_needed: 1.0 / hit.max(1e-300) }
    };
    Ok(own.iter().zip(&starts).map(of).collect())
}
