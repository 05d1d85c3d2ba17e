//! Users who are held out are not trained on, and users who are trained on do not judge: in a store and in the crowd.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::collections::BTreeSet;

use crate::workshop::{all, config, plan, reads, store};
use corpus::{
    origin::Origin,
    store::{Part, Split},
    synth::{Crowd, Dialect, SynthPlan},
};
use device::learner::{Learner, examples::Examples, language::for_each_post};
use keyhush_federated::{
    population::{Population, SyntheticPopulation},
    run::Opened,
};
use lm::tokenizer::Tokenizer;

const SALT: u64 = 11;
/// What those who are trained on type, and how many words; those who are held out type something else, and fewer.
const TRAINED: (u32, usize) = (5, 9);
const HELD_OUT: (u32, usize) = (7, 4);

fn texts(population: &dyn Population, learner: &dyn Learner) -> Vec<Examples> {
    let read = |user| {
        let mut text = Examples::new(learner.schema());
        population.read(user, &mut text).unwrap();
        text
    };
    (0..population.users()).map(read).collect()
}

fn words(text: &Examples) -> BTreeSet<u32> {
    let mut words = BTreeSet::new();
    for_each_post(text, |post| words.extend(&post[1..post.len() - 1]));
    words
}

#[test]
fn users_of_a_store_train_or_judge_never_both() {
    let folder = tempfile::tempdir().unwrap();
    let split = Split::new(SALT, 300, 0).unwrap();
    let typed = |tag| if split.part(tag) == Part::Train { TRAINED } else { HELD_OUT };
    let path = store(folder.path(), Origin::BuiltIn, 200, |tag| {
        let (word, times) = typed(tag);
        vec![word; times]
    });
    let (salt, share) = (format!("data.salt={SALT}"), "data.held_out_per_mille=300");
    let everybody = ["evaluation.users=1000", "evaluation.most_tokens=100000"];
    for unit in ["unit=user", "unit=example"] {
        let made = reads(&path);
        let (plan, opened) = plan(&[&all(&made, &[&salt, share, unit]), &everybody[..]].concat());
        let population = opened.population(plan.ledger.unit).unwrap();
        let trained = texts(population.as_ref(), opened.learner());
        assert!(trained.iter().all(|text| words(text) == [TRAINED.0].into()), "{unit}: a held-out user is trained on");
        // Everybody else judges, and nobody of these: each predicts its words and the end of its post.
        let judges = 200 - trained.len();
        assert!((30..90).contains(&judges), "{judges}");
        assert_eq!(opened.held_out(&plan.evaluation).unwrap().examples(), judges * (HELD_OUT.1 + 1), "{unit}");
    }
}

/// The crowd is made on demand: those who judge are made after the last who can be trained on.
#[test]
fn people_of_the_crowd_train_or_judge_never_both() {
    let (plan, opened) = plan(&["participation.population=500", "evaluation.most_tokens=100000"]);
    let declared = plan.ledger.population;
    let population = opened.population(plan.ledger.unit).unwrap();
    assert_eq!(population.users(), declared);
    let larger = SynthPlan { posts_per_user: 6, ..SynthPlan::new(1, declared + 6, Dialect::Informal) };
    let (crowd, learner) = (Crowd::new(larger).unwrap(), opened.learner());
    let crowd = SyntheticPopulation::new(crowd, Tokenizer::words(), opened.vocabulary(), learner);
    let everybody = texts(&crowd, learner);
    assert_eq!(
        texts(population.as_ref(), opened.learner()),
        everybody[..declared as usize],
        "the same people, without those who judge"
    );
    let tokens = |texts: &[Examples]| texts.iter().map(Examples::len).sum::<usize>();
    let judges = tokens(&everybody[declared as usize..]);
    assert_eq!(opened.held_out(&plan.evaluation).unwrap().examples(), judges);
    for other in [0, declared as usize - 6] {
        assert_ne!(tokens(&everybody[other..other + 6]), judges, "or it could not be told");
    }
}

/// Rule P11: the population is declared. Somebody beyond it would be drawn by nobody's plan.
#[test]
fn p11_more_users_than_are_declared_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let made = reads(&store(folder.path(), Origin::BuiltIn, 200, |_| vec![5; 9]));
    let opened = |declared: &str| Opened::new(&config(&all(&made, &[declared]))).err();
    assert!(opened("participation.population=200").is_none());
    let error = opened("participation.population=100").unwrap().to_string();
    assert!(error.contains("participation.population"), "{error}");
}
