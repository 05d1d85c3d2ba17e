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
    config::{Config, ConfigError, Document},
    engine::Means,
    fleet::Stop,
    population::Changes,
    run::RunError,
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
    // Completing a text by chance succeeds as often as its probability says.
    let (known, rest) = (&[5u32, 6][..], &[7u32][..]);
    let log = |text: &[u32]| texts::log_probabilities(model.as_ref(), &[text])[0];
    let p = (log(&[5, 6, 7]) - log(known)).exp();
    let source = privacy::rng::NoiseSource::from(privacy::rng::SimulationKey::new(3));
    let mut random = source.stream(privacy::rng::Purpose::Canaries, &[9]).chunk(0);
    let found = f64::from(texts::completed(model.as_ref(), known, rest, 1_000_000, &mut random));
    assert!((found - 1e6 * p).abs() < 5.0 * (1e6 * p).sqrt() + 1.0, "{found} of a million at {p}");
    let two = texts::completed(model.as_ref(), known, &[7, 8], 1_000_000, &mut random);
    assert!(f64::from(two) < 0.5 * found && texts::completed(model.as_ref(), known, &[1], 1000, &mut random) == 0);
}

/// Whatever makes a run private is taken away, and both runs are planned before the first is trained.
#[test]
fn the_settings_without_privacy_have_none_of_it_and_can_be_planned() {
    let folder = tempfile::tempdir().unwrap();
    let arrival =
        ["participation.kind=arrival", "participation.min_separation=0", "participation.max_participations=10"];
    let secure = ["aggregation=secagg", "secagg.noise=distributed"];
    let devices =
        ["every=5", "cohort=10", "min_separation=0", "max_participations=2", "noise_multiplier=4", "most_tokens=60"]
            .map(|set| format!("evaluation.devices.{set}"));
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    for set in [
        vec!["clip.kind=adaptive", "clip.quantile=0.5", "clip.count_stddev=4.0"],
        vec!["schedule=[{ from = 2, noise_multiplier = 3.0, clip_norm = 0.1 }, { from = 4, clip_norm = 0.01 }]"],
        vec!["stands_for={ population = 1000000, cohort = 5000 }"],
        [&arrival[..], &secure].concat(),
        [&arrival[..], &devices].concat(),
        vec!["clip.greedy=true", "privacy.max_epsilon=100"],
    ] {
        let lab = lab(folder.path(), &set);
        lab.check(&lab.config).unwrap();
        let without = lab.without_privacy();
        lab.check(&without).unwrap_or_else(|error| panic!("{set:?}: {error}"));
        assert!(without.privacy.is_none() && !without.clip.is_adaptive() && !without.clip.greedy, "{set:?}");
        assert!(without.clip.norm >= 1000.0 * lab.config.clip.norm);
        assert!(without.schedule.iter().all(|change| change.clip_norm.is_none()));
    }
    // One that cannot be planned is refused before anything is trained.
    let bad = lab(folder.path(), &["estimator.kind=average"]);
    let refused = |error: StudyError| matches!(error, StudyError::Run(RunError::Config(ConfigError { .. })));
    assert!(refused(membership::attack(&bad, MembershipPlan { users: 20 }).unwrap_err()));
    let plan = SecretPlan { groups: vec![(1, 1)], each: 2, words: 4, references: 100, draws: 10, seed: 4 };
    assert!(refused(secrets::plant(&bad, &plan).unwrap_err()));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was trained");
}

/// Of a large population few are sampled: attacks look at these, and say how many there were.
#[test]
fn only_those_who_took_part_are_attacked() {
    let folder = tempfile::tempdir().unwrap();
    let set = ["participation.population=3000", "participation.cohort=6", "rounds=4", "privacy.delta=1e-4"];
    let trained = lab(folder.path(), &set);
    let subject = trained.train("one", &trained.config, Changes::default()).unwrap();
    let few = subject.took_part.len();
    assert!((8..=60).contains(&few) && subject.took_part.iter().all(|user| *user < 3000), "{few}");

    let plan = TailPlan { pairs: 3, texts: 200, words: 3, delta: 1e-3, seed: 1 };
    let found = tails::compare(&lab(&folder.path().join("tails"), &set), &plan).unwrap();
    assert_eq!((found.population, found.took_part), (3000, few as u64));
    assert!(found.compared.iter().all(|c| subject.took_part.contains(&c.user)));
    assert!(found.with_tail > 0 && found.accepted <= found.with_tail, "{found:?}");
    assert_eq!(found.with_tail, found.compared.iter().filter(|c| c.tail.is_some()).count());
    let more = TailPlan { pairs: few as u32 + 1, ..plan };
    let refused = tails::compare(&lab(&folder.path().join("more"), &set), &more).unwrap_err();
    assert!(matches!(refused, StudyError::Wrong { what: "pairs", .. }), "{refused}");

    let members =
        membership::attack(&lab(&folder.path().join("members"), &set), MembershipPlan { users: 500 }).unwrap();
    assert_eq!((members.members as u64, members.took_part, members.population), (few as u64, few as u64, 3000));

    let plan = SecretPlan { groups: vec![(1, 1), (2000, 1)], each: 10, words: 3, references: 100, draws: 10, seed: 4 };
    let planted = secrets::plant(&lab(&folder.path().join("secrets"), &set), &plan).unwrap();
    let trained = planted.canaries.iter().filter(|c| c.private.took_part > 0).count();
    assert_eq!((planted.trained_private, trained < 20), (trained, true));
    assert!(planted.canaries.iter().filter(|c| c.users == 2000).all(|c| c.private.took_part > 0));
    assert_eq!(planted.epsilon_estimate, None, "most secrets of single users were in nobody who took part");
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
        // 346 of 30,000 texts are in the tail.
        TailPlan { delta: 0.0116, ..TailPlan::default() },
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
