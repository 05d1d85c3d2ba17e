//! Trains models with and without one user, and measures how distinguishable their texts are (Popov et al. 2018, section 3): `keyhush audit
//! hill`.
//!
//! For each pair a model is trained on everybody and one on everybody but one. Texts are drawn from one of them, and their likelihoods under
//! both are compared; then the same with the two exchanged, for Proposition 1 of the paper bounds one direction only. Everything that the
//! seed decides is the same in both trainings, so the removed user is the only difference. Users who were never sampled make none, so the
//! removed ones are chosen among those who took part.

use std::collections::BTreeSet;

use privacy::{
    Epsilon,
    audit::hill::{Tail, tail_of},
    rng::{NoiseSource, Purpose, SimulationKey},
};
use serde::Serialize;

use super::{Lab, StudyError, texts};
use crate::population::Changes;

/// The plan of the comparison. The defaults are those of the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TailPlan {
    /// Pairs of neighbouring sets of users.
    pub pairs: u32,
    /// n: texts drawn from a model.
    pub texts: u32,
    /// Words of a text.
    pub words: usize,
    /// Delta.
    pub delta: f64,
    /// From which users and texts follow.
    pub seed: u64,
}

impl Default for TailPlan {
    fn default() -> Self {
        Self { pairs: 20, texts: 30_000, words: 10, delta: 1e-4, seed: 1 }
    }
}

/// One direction of one pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// Which user the second model was trained without.
    pub user: u64,
    /// Whether the texts are those of the model with this user.
    pub from_larger: bool,
    /// The tail of the ratios; none where the two models are the same: the user had nothing to learn from.
    pub tail: Option<Tail>,
    /// The epsilon that it says; 0 where the models are the same.
    pub epsilon: f64,
    /// The largest ratios, as logarithms in descending order: for the picture.
    #[serde(skip)]
    pub largest: Vec<f64>,
}

/// The results of all pairs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tails {
    /// What the run guarantees, or would with secret noise.
    pub epsilon_formal: Epsilon,
    /// The largest epsilon of all pairs and directions: an estimate.
    pub epsilon_estimate: f64,
    /// The delta of the estimate.
    pub delta: f64,
    /// Users of the run.
    pub population: u64,
    /// How many of them took part in any round, among whom those who are removed were chosen.
    pub took_part: u64,
    /// Directions in which there is a tail: the two models differ.
    pub with_tail: usize,
    /// Of these, in how many the tail passes as that of a Pareto distribution.
    pub accepted: usize,
    /// The compared directions.
    pub compared: Vec<Compared>,
}

/// Trains and compares.
///
/// # Errors
/// When a training fails, or nothing can be compared.
pub fn compare(lab: &Lab<'_>, plan: &TailPlan) -> Result<Tails, StudyError> {
    let opened = lab.open(&lab.config)?;
    let shape = opened.learner().recurrent().cloned().ok_or(StudyError::NotALanguageModel)?;
    let people = opened.population(lab.config.unit)?.users();
    check(plan, people)?;
    let everybody = lab.train("everybody", &lab.config, Changes::default())?;
    let larger = lab.ask(&shape, &everybody)?;
    let mut compared = Vec::new();
    let chosen = users(plan, &everybody.took_part)?;
    for (pair, user) in (0..).zip(chosen) {
        let changes = Changes { without: Some(user), ..Changes::default() };
        let without = lab.train(&format!("without-{user}"), &lab.config, changes)?;
        let same = without.model == everybody.model;
        let smaller = lab.ask(&shape, &without)?;
        for from_larger in [true, false] {
            let (from, to) = if from_larger { (&larger, &smaller) } else { (&smaller, &larger) };
            let seed = plan.seed.wrapping_mul(1_000_003).wrapping_add(2 * pair + u64::from(from_larger));
            let drawn = texts::draw(from.as_ref(), plan.texts, plan.words, seed);
            let words: Vec<&[u32]> = drawn.iter().map(|text| text.words.as_slice()).collect();
            let under = texts::log_probabilities(to.as_ref(), &words);
            let mut ratios: Vec<f64> =
                drawn.iter().zip(under).map(|(text, under)| text.log_probability - under).collect();
            let tail = if same { None } else { Some(Tail::of(&ratios)?) };
            ratios.sort_by(|a, b| b.total_cmp(a));
            ratios.truncate(4 * plan.texts.isqrt() as usize);
            let epsilon = tail.map_or(Ok(0.0), |tail| tail.epsilon(plan.delta))?;
            compared.push(Compared { user, from_larger, tail, epsilon, largest: ratios });
        }
    }
    let tails = || compared.iter().filter_map(|c| c.tail);
    Ok(Tails {
        epsilon_formal: everybody.epsilon,
        epsilon_estimate: compared.iter().map(|c| c.epsilon).fold(0.0, f64::max),
        delta: plan.delta,
        population: people,
        took_part: everybody.took_part.len() as u64,
        with_tail: tails().count(),
        accepted: tails().filter(Tail::is_accepted).count(),
        compared,
    })
}

fn check(plan: &TailPlan, people: u64) -> Result<(), StudyError> {
    let wrong = |what, problem: String| Err(StudyError::Wrong { what, problem });
    if plan.pairs == 0 || u64::from(plan.pairs) > people {
        return wrong("pairs", format!("must be from 1 to the number of users, {people}"));
    }
    if !(100..=10_000_000).contains(&plan.texts) {
        return wrong("texts", "must be from 100 to 10,000,000".to_owned());
    }
    if !(1..=1000).contains(&plan.words) {
        return wrong("words", "must be from 1 to 1000".to_owned());
    }
    // Below the threshold of the tail nothing was fitted.
    let texts = plan.texts as usize;
    let share = tail_of(texts) as f64 / texts as f64;
    if !(plan.delta > 0.0 && plan.delta < share) {
        let problem = format!("must be above 0 and below {share:.4}, the share of {texts} texts that are in the tail");
        return wrong("delta", problem);
    }
    Ok(())
}

/// Different users, of those who took part.
fn users(plan: &TailPlan, took_part: &BTreeSet<u64>) -> Result<Vec<u64>, StudyError> {
    let mut left: Vec<u64> = took_part.iter().copied().collect();
    if left.len() < plan.pairs as usize {
        let problem = format!("must be at most the number of users who took part in any round, {}", left.len());
        return Err(StudyError::Wrong { what: "pairs", problem });
    }
    let mut words = NoiseSource::from(SimulationKey::new(plan.seed)).stream(Purpose::Canaries, &[u64::MAX, 1]).chunk(0);
    let mut draw = || left.swap_remove((words.next_word() % left.len() as u64) as usize);
    Ok((0..plan.pairs).map(|_| draw()).collect())
}
