//! Attacks that train models: with and without a user, with secrets planted, on members and others.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::path::Path;

use keyhush_federated::{
    audit::{
        Lab, StudyError,
        membership::{self, MembershipPlan},
        secrets::{self, SecretPlan},
        tails::{self, TailPlan},
        texts,
    },
    config::{Config, Document},
    engine::Means,
    fleet::Stop,
    population::Changes,
};
use lm::kernels::KernelPath;

use super::small_runs::RUN;

static STOP: Stop = Stop::new();

/// Few users who all take part in every round, in a model that can learn them by heart.
fn config(set: &[&str]) -> Config {
    let few = [
        "rounds=10",
        "participation.population=40",
        "participation.cohort=40",
        "server.optimizer=sgd",
        "server.momentum=",
        "server.learning_rate=1.0",
        "local.learning_rate=2.0",
        "privacy.noise_multiplier=2.0",
        "privacy.delta=1e-3",
        "evaluation.every=100",
    ];
    let set: Vec<String> = few.iter().chain(set).map(|s| (*s).to_owned()).collect();
    Document::new(RUN, &set).unwrap().config().unwrap()
}

fn lab(folder: &Path, set: &[&str]) -> Lab<'static> {
    let means = Means::threads(KernelPath::best(), 2);
    Lab { config: config(set), means, stop: &STOP, folder: folder.to_owned(), says: &|_| () }
}

#[test]
fn probabilities_of_texts_are_those_they_were_drawn_with_and_add_up_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let lab = lab(folder.path(), &["rounds=2"]);
    let subject = lab.train("one", &lab.config, Changes::default()).unwrap();
    let opened = lab.open(&lab.config).unwrap();
    let model = lab.ask(opened.learner().recurrent().unwrap(), &subject).unwrap();
    let drawn = texts::draw(model.as_ref(), 130, 4, 9);
    assert_eq!(drawn, texts::draw(model.as_ref(), 130, 4, 9));
    assert_ne!(drawn, texts::draw(model.as_ref(), 130, 4, 10));
    assert!(drawn.iter().all(|text| text.words.len() == 4 && text.words.iter().all(|word| *word >= 2)));
    let words: Vec<&[u32]> = drawn.iter().map(|text| text.words.as_slice()).collect();
    for (text, under) in drawn.iter().zip(texts::log_probabilities(model.as_ref(), &words)) {
        assert!((text.log_probability - under).abs() < 1e-3, "{} {under}", text.log_probability);
    }
    let one_word: Vec<Vec<u32>> = (2..120).map(|word| vec![word]).collect();
    let one_word: Vec<&[u32]> = one_word.iter().map(Vec::as_slice).collect();
    let all: f64 = texts::log_probabilities(model.as_ref(), &one_word).into_iter().map(f64::exp).sum();
    assert!((all - 1.0).abs() < 1e-4, "{all}");
}

/// A user who is left out makes a difference, and more of one without noise and clip than with a large clip on few users.
#[test]
fn models_with_and_without_a_user_are_told_apart_in_both_directions() {
    let folder = tempfile::tempdir().unwrap();
    let lab = lab(folder.path(), &[]);
    let plan = TailPlan { pairs: 2, texts: 400, words: 5, delta: 1e-3, seed: 1 };
    let found = tails::compare(&lab, &plan).unwrap();
    assert_eq!(found.compared.len(), 4);
    assert_eq!(found.compared.iter().map(|c| c.from_larger).collect::<Vec<_>>(), [true, false, true, false]);
    assert_ne!(found.compared[0].user, found.compared[2].user);
    let largest = found.compared.iter().map(|c| c.epsilon).fold(0.0, f64::max);
    assert_eq!(found.epsilon_estimate, largest);
    assert!(largest > 0.0 && found.epsilon_formal.is_finite());
    assert!(found.compared.iter().all(|c| c.tail.is_some_and(|tail| tail.tail == 40 && tail.shape > 0.0)));
    assert_eq!(
        found.compared,
        tails::compare(&Lab { folder: folder.path().join("again"), ..lab }, &plan).unwrap().compared
    );
}

#[test]
fn plans_without_meaning_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lab = lab(folder.path(), &[]);
    for plan in [
        TailPlan { pairs: 0, ..TailPlan::default() },
        TailPlan { pairs: 41, ..TailPlan::default() },
        TailPlan { texts: 99, ..TailPlan::default() },
        TailPlan { words: 0, ..TailPlan::default() },
        TailPlan { delta: 0.0, ..TailPlan::default() },
    ] {
        assert!(matches!(tails::compare(&lab, &plan), Err(StudyError::Wrong { .. })), "{plan:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was trained");
}

/// Many copies are remembered without privacy; with noise and a clip far fewer bits are.
#[test]
fn secrets_that_many_have_are_exposed_without_privacy() {
    let folder = tempfile::tempdir().unwrap();
    let lab = lab(folder.path(), &["rounds=15"]);
    let plan = SecretPlan { groups: vec![(1, 1), (30, 8)], each: 2, words: 4, references: 1000, draws: 1000, seed: 4 };
    let found = secrets::plant(&lab, &plan).unwrap();
    assert_eq!(found.canaries.len(), 4);
    let many: Vec<_> = found.canaries.iter().filter(|c| c.users == 30).collect();
    let bits = |of: fn(&secrets::Secret) -> f64| many.iter().map(|c| of(c)).sum::<f64>() / 2.0;
    let (open, private) = (bits(|c| c.non_private.exposure.by_estimate), bits(|c| c.private.exposure.by_estimate));
    assert!(open > 6.0 && open > private + 2.0, "{open} {private}");
    assert!(many.iter().all(|c| c.non_private.draws_needed < c.private.draws_needed), "{many:?}");
    assert_eq!(found.epsilon_estimate, None, "two secrets of single users are too few");
    assert!(found.canaries.iter().all(|c| !c.text.is_empty()), "{found:?}");
    assert!(found.most_bits > 27.0 && found.most_bits < 28.0, "four of 117 words: {}", found.most_bits);
    let none = SecretPlan { groups: Vec::new(), ..plan };
    assert!(matches!(secrets::plant(&lab, &none), Err(StudyError::Wrong { what: "plant", .. })));
}

#[test]
fn members_are_told_from_others_better_without_privacy() {
    let folder = tempfile::tempdir().unwrap();
    let set = [
        "participation.population=12",
        "participation.cohort=12",
        "rounds=60",
        "local.epochs=5",
        "local.learning_rate=1.0",
        "model.hidden=32",
        "privacy.noise_multiplier=8.0",
    ];
    let found = membership::attack(&lab(folder.path(), &set), MembershipPlan { users: 40 }).unwrap();
    assert_eq!((found.members, found.others), (12, 40));
    let (private, open) = (found.private.area, found.non_private.area);
    assert!(open > 0.9 && open > private + 0.2, "{open} {private}");
}
