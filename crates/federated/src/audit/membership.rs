//! Membership inference from a model's loss on users' text: `keyhush audit membership`.
//!
//! A model that has learned a user's text by heart predicts it better than that of somebody like them who took no part. The attacker has
//! the released model and the texts, and takes users with a small loss for members; a private and a non-private model side by side.
//! Members are those who were trained in some round: where few of many users are ever sampled, the others are in no model.

use std::collections::BTreeSet;

use device::{
    evaluation::count,
    learner::{Learner, examples::Examples},
};
use lm::{kernels::KernelPath, metrics::Targets};
use privacy::{Epsilon, audit::membership::Roc};
use rayon::prelude::*;
use serde::Serialize;

use super::{Lab, StudyError, Subject};
use crate::{
    population::{Changes, Population},
    run::RunError,
};

/// The plan of the attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MembershipPlan {
    /// Members, and as many others.
    pub users: u64,
}

/// The result of the attack.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Membership {
    /// What the private run guarantees, or would with secret noise.
    pub epsilon_formal: Epsilon,
    /// The delta of that.
    pub delta: f64,
    /// Users of the run.
    pub population: u64,
    /// How many of them took part in any round of the private run.
    pub took_part: u64,
    /// Members that were looked at; all of them took part.
    pub members: usize,
    /// Number of users who took no part.
    pub others: usize,
    /// The attack on the private model.
    pub private: Roc,
    /// On the same without privacy.
    pub non_private: Roc,
}

/// Trains both models and attacks them.
///
/// # Errors
/// When a training fails, or there are too few users.
pub fn attack(lab: &Lab<'_>, plan: MembershipPlan) -> Result<Membership, StudyError> {
    let opened = lab.open(&lab.config)?;
    let (members, others) = (opened.population(lab.config.unit)?, opened.others(plan.users)?);
    let without = lab.without_privacy();
    lab.check(&lab.config)?;
    lab.check(&without)?;
    let private = lab.train("private", &lab.config, Changes::default())?;
    let open = lab.train("without-privacy", &without, Changes::default())?;
    let most = lab.config.local.most_tokens.unwrap_or(usize::MAX);
    let (kernels, learner) = (lab.means.kernels, opened.learner());
    let scores = |model: &[f32], users: &dyn Population, numbers: &[u64]| -> Result<Vec<f64>, StudyError> {
        let of = |user: &u64| score(kernels, learner, model, users, *user, most);
        let all: Result<Vec<Option<f64>>, StudyError> = numbers.par_iter().map(of).collect();
        Ok(all?.into_iter().flatten().collect())
    };
    let nobody: Vec<u64> = (0..others.users().min(plan.users)).collect();
    let roc = |subject: &Subject| -> Result<(Roc, usize, usize), StudyError> {
        let in_it = scores(&subject.model, members.as_ref(), &some_of(&subject.took_part, plan.users))?;
        let out = scores(&subject.model, others.as_ref(), &nobody)?;
        Ok((Roc::of(&in_it, &out, private.delta)?, in_it.len(), out.len()))
    };
    let (of_private, in_it, out) = roc(&private)?;
    let (of_open, ..) = roc(&open)?;
    Ok(Membership {
        epsilon_formal: private.epsilon,
        delta: private.delta,
        population: members.users(),
        took_part: private.took_part.len() as u64,
        members: in_it,
        others: out,
        private: of_private,
        non_private: of_open,
    })
}

/// At most so many, evenly from all of them.
fn some_of(all: &BTreeSet<u64>, most: u64) -> Vec<u64> {
    let all: Vec<u64> = all.iter().copied().collect();
    let count = all.len().min(usize::try_from(most).unwrap_or(usize::MAX));
    (0..count).map(|at| all[at * all.len() / count]).collect()
}

/// How well a model predicts somebody: the negative mean loss; none for somebody who typed nothing.
fn score(
    kernels: KernelPath,
    learner: &dyn Learner,
    model: &[f32],
    users: &dyn Population,
    user: u64,
    most: usize,
) -> Result<Option<f64>, StudyError> {
    let mut examples = Examples::new(learner.schema());
    users.read(user, &mut examples).map_err(RunError::from)?;
    examples.truncate(most);
    let counts = count(learner, model, &examples, kernels)?;
    Ok(counts.perplexity(Targets::ALL).map(|perplexity| -libm::log(perplexity)))
}
