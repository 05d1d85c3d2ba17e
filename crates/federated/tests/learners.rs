//! What every learner must give a run, whatever it learns: it learns; plain and secure sums, threads and restarts change nothing;
//! its model is read back as it was written and can be trained further; its metrics are in every line.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::workshop::{self, ARRIVAL, all, config, plan, reads, rest, some, threads, whole, with};
use corpus::{
    origin::Origin,
    store::{Labels, Meta, StoreWriter, UserRecord, UserTag},
    synth,
};
use device::{
    evaluation::{Counting, EvaluationPlan, coordinates},
    learner::{Learner, Post, examples::Examples},
};
use keyhush_federated::{
    home::{MODEL_FOLDER, STATEMENT_FILE},
    learners::{self, LEARNERS, LearnerKind},
    metrics::{
        METRICS_FILE, Measures, Metric,
        prediction::PERPLEXITY,
        registry::{Goal, MEASURES},
    },
    model_folder,
    run::Opened,
};
use lm::{
    folder::Weights, kernels::KernelPath, metrics::Counts, model::config::ModelConfig, tokenizer::Rules,
    vocabulary::Vocabulary,
};
use serde_json::Value;

/// What is another in the settings of the workshop for a learner.
fn of(learner: &str) -> &'static [&'static str] {
    learners::kind(learner).unwrap().small
}

/// So little noise that learning is seen.
const QUIET: [&str; 7] = [
    "privacy.noise_multiplier=0.001",
    "clip.norm=20.0",
    "server.learning_rate=1.0",
    "rounds=12",
    "evaluation.every=12",
    "evaluation.users=100",
    "evaluation.most_tokens=600",
];

fn trained(folder: &Path, set: &[&str]) -> Vec<u8> {
    let (plan, opened) = plan(set);
    whole(folder, set, threads(&plan, &opened).as_mut());
    fs::read(folder.join(MODEL_FOLDER).join("model.safetensors")).unwrap()
}

fn lines(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join(METRICS_FILE)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whether the last evaluation is plainly better than the first by a number that is shown first: not all of them move in so small a run.
fn has_learned(measures: &Measures, lines: &[Value]) -> bool {
    measures.shown_first().any(|Metric { name, goal, .. }| {
        let [before, after] = [&lines[0], lines.last().unwrap()].map(|line| line[name].as_f64().unwrap());
        match goal {
            Goal::Higher => after > (3.0 * before).max(0.05),
            Goal::Lower => after < before / 2.0,
        }
    })
}

/// What a learner is measured by.
fn measures(learner: &dyn Learner) -> &'static Measures {
    Measures::named(learner.measures()).expect("what is measured is registered")
}

#[test]
fn every_learner_keeps_the_contract() {
    for &LearnerKind { small, .. } in LEARNERS {
        let opened = Opened::new(&config(small)).unwrap();
        let learner = opened.learner();
        let labels = if learner.learns_labels() { synth::labels().len() } else { 0 };
        let words = |post: u32| (0..12).map(move |word| 3 + (7 * post + word * word) % 40);
        let posts: Vec<(Vec<u32>, Vec<u32>)> = (0..120)
            .map(|n| (words(n).collect(), (labels > 0).then(|| n % labels as u32).into_iter().collect()))
            .collect();
        let posts: Vec<Post<'_>> = posts.iter().map(|(ids, labels)| Post { ids, labels }).collect();
        device::contract::learner(learner, &posts, KernelPath::best());
    }
}

#[test]
fn every_learner_learns_and_says_by_its_own_metrics_how_well() {
    for &LearnerKind { name, small, .. } in LEARNERS {
        let set = with(&[small, &QUIET]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        trained(&path, &set);
        let opened = Opened::new(&config(&set)).unwrap();
        let measures = measures(opened.learner());
        let (lines, metrics) = (lines(&path), measures.metrics);
        assert!(lines.iter().all(|line| metrics.iter().all(|m| line.get(m.name).is_some())), "{name}: {lines:?}");
        assert!(has_learned(measures, &lines), "{name}: {lines:?}");
        assert!(path.join(STATEMENT_FILE).is_file());
    }
}

/// Which metrics are other ones once counts have been the vector of a device.
fn lost_on_the_way(counting: &Counting, metrics: &[&'static Metric]) -> Vec<&'static str> {
    let mut counts = Counts::default();
    for rank in 0..20 {
        counts.words.add((rank % 7 != 6).then_some(rank % 7), -1.0 - 0.1 * rank as f32);
        counts.words.add(Some(0), -0.5);
        counts.ends.add((rank % 5 != 4).then_some(rank % 5), -0.7);
        counts.unknown.add((rank % 3 == 0).then_some(rank % 2), -3.0);
    }
    let sum: Vec<f64> = counting.vector(&counts).into_iter().map(f64::from).collect();
    let read = counting.counts(&sum);
    let survives = |metric: &&'static Metric| match (metric.of_counts(&counts), metric.of_counts(&read)) {
        (Some(before), Some(after)) => (after / before - 1.0).abs() < 1e-4,
        (before, after) => before == after,
    };
    metrics.iter().copied().filter(|metric| !survives(metric)).map(|metric| metric.name).collect()
}

/// A metric whose counts are not in the set of its learner would be silently wrong where devices measure it.
#[test]
fn every_metric_survives_the_vector_of_a_device() {
    let learners: Vec<Opened> = LEARNERS.iter().map(|kind| Opened::new(&config(kind.small)).unwrap()).collect();
    for set in MEASURES.iter().filter(|set| coordinates(set.name).is_some()) {
        let learner = learners.iter().map(Opened::learner).find(|learner| learner.measures() == set.name);
        let learner = learner.unwrap_or_else(|| panic!("no learner is measured by {:?}", set.name));
        let counting = Counting::new(learner, EvaluationPlan { most_examples: 100 }).unwrap();
        let lost = lost_on_the_way(&counting, set.metrics);
        assert!(lost.is_empty(), "{lost:?}: count what they need in SETS of crates/device/src/evaluation.rs");
        // What is not counted does not survive: tags have no losses.
        if set.name == "tags" {
            assert_eq!(lost_on_the_way(&counting, &[&PERPLEXITY]), ["perplexity"]);
        }
    }
}

/// Rules P13 and P19: what comes out does not depend on the aggregation, on restarts, or on who is asked when.
#[test]
fn every_learner_gives_the_same_model_plain_secure_and_after_restarts() {
    for &LearnerKind { name, small, .. } in LEARNERS {
        for kind in [&ARRIVAL[..], &["participation.vanish=0.01"]] {
            let set = with(&[small, kind, &["participation.cohort=40", "rounds=4", "evaluation.every=2"]]);
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            let plain = trained(&path("plain"), &set);
            let secure = with(&[&set, &["aggregation=secagg", "secagg.dropout=0.3", "secagg.corrupted=0.1"]]);
            assert!(plain == trained(&path("secure"), &secure), "{name}: another model by secure aggregation");
            let (plan, opened) = plan(&set);
            for steps in [1, 2] {
                some(&path("broken"), &set, steps, threads(&plan, &opened).as_mut());
            }
            rest(&path("broken"), &set, threads(&plan, &opened).as_mut());
            let broken = fs::read(path("broken").join(MODEL_FOLDER).join("model.safetensors")).unwrap();
            assert!(plain == broken, "{name}: another model after restarts");
            assert_eq!(lines(&path("plain")), lines(&path("broken")), "{name}");
        }
    }
}

#[test]
fn every_learners_model_is_read_back_and_trained_further() {
    for &LearnerKind { name, small, .. } in LEARNERS {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        trained(&first, small);
        let read = model_folder::read(&first.join(MODEL_FOLDER)).unwrap();
        let values = match &read.weights {
            Weights::Recurrent { values, .. } => values,
            Weights::Learned(learned) => &learned.values,
            Weights::Ngrams(_) => panic!("{name} made n-grams"),
        };
        let from = format!("model.from={}", first.display());
        let made = [from, "model.vocabulary=".to_owned(), "model.preset=".to_owned()];
        let set = all(&made, &["model.hidden=", "model.embedding=", "noise_seed=5"]);
        let own: Vec<&str> = small.iter().copied().filter(|set| set.starts_with("local.")).collect();
        let set = with(&[&set, &own]);
        let opened = Opened::new(&config(&set)).unwrap();
        assert_eq!((opened.learner().name(), opened.first_parameters()), (name, &values[..]));
        trained(&second, &set);
        // Another learner's name beside it is refused.
        let other = LEARNERS.iter().find(|other| other.name != name).unwrap();
        let wrong = format!("model.learner={}", other.name);
        let error = Opened::new(&config(&with(&[&set, &[&wrong]]))).err().unwrap().to_string();
        assert!(error.contains("model.learner") && error.contains(name), "{error}");
    }
}

#[test]
fn settings_that_a_learner_cannot_use_are_refused() {
    let tags = of("tags");
    for (more, key) in [
        ("model.preset=tiny", "model.preset"),
        ("model.hidden=8", "model.hidden"),
        ("model.user_features=true", "model.user_features"),
        ("local.unroll=5", "local.unroll"),
    ] {
        let error = Opened::new(&config(&with(&[tags, &[more]]))).err().unwrap().to_string();
        assert!(error.contains(key) && error.contains("tags"), "{error}");
    }
    let error = learners::named("pictures", &config(&[]), None).err().unwrap().to_string();
    assert!(error.contains("model.learner") && error.contains("language, tags"), "{error}");
    let error = Opened::new(&config(&["local.unroll="])).err().unwrap().to_string();
    assert!(error.contains("local.unroll") && error.contains("is missing"), "{error}");
}

/// What is known of a person arrives where the model has room for it. (That it changes what is learned is tested in `device`, and what
/// is predicted in `lm`.)
#[test]
fn models_that_read_features_of_users_learn_from_them() {
    let folder = tempfile::tempdir().unwrap();
    let set = with(&[&QUIET, &["model.user_features=true"]]);
    let (plan, opened) = plan(&set);
    assert_eq!(opened.learner().recurrent().unwrap().user_context, Some(corpus::synth::FEATURES.len()));
    assert!(plan.parameters.len() > workshop::plan(&QUIET).0.parameters.len());
    let mut known = Examples::new(opened.learner().schema());
    opened.population(plan.ledger.unit).unwrap().read(0, &mut known).unwrap();
    assert!(known.features().iter().any(|feature| *feature != 0.0), "nothing is known of the first user");
    let path = folder.path().join("run");
    trained(&path, &set);
    assert!(has_learned(measures(opened.learner()), &lines(&path)), "{:?}", lines(&path));
}

/// A store of twenty users with a post each, whose label is one of two names from a public list.
fn labelled(folder: &Path) -> PathBuf {
    let words = Vocabulary::new((3..60).map(|i| format!("w{i}"))).unwrap();
    let meta = Meta {
        rules: Rules::Words1,
        vocabulary: Origin::BuiltIn,
        non_private: Vec::new(),
        tokens_per_user: None,
        sources: Vec::new(),
        crowd: None,
        labels: Some(Origin::PublicList { name: "names.txt".into() }),
        features: Vec::new(),
    };
    let names = Labels::new(vec!["rust".into(), "c".into()]).unwrap();
    let path = folder.join("labelled.khs");
    let mut writer = StoreWriter::create(&path, false, false, &meta, &words).unwrap().with_labels(&names);
    let mut tags: Vec<UserTag> = (0..20).map(|n| UserTag::of(&n.to_string())).collect();
    tags.sort_unstable();
    for (n, tag) in (0..20u32).zip(tags) {
        let (tokens, labels) = (&[3 + n, 4 + n], &[n % 2]);
        let user = UserRecord { tag, key: "", tokens, ends: &[2], labels, label_ends: &[1], features: &[] };
        writer.user(&user).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// Rule P15: names of labels that become a part of the model are public data that the statement names; a model that does not learn
/// them says nothing of them.
#[test]
fn p15_names_of_labels_are_public_data_where_they_are_learned() {
    let folder = tempfile::tempdir().unwrap();
    let made = reads(&labelled(folder.path()));
    for (learner, named) in [("tags", true), ("language", false)] {
        let own: Vec<&str> = of(learner).iter().copied().filter(|set| !set.starts_with("model.vocabulary")).collect();
        let opened = Opened::new(&config(&all(&made, &own))).unwrap();
        let said = opened.setting().public_data;
        let found = said.iter().any(|data| data.what == "the names of the labels" && data.why.contains("names.txt"));
        assert_eq!(found, named, "{learner}: {said:?}");
    }
}

/// A model whose parts stand in another order has as many numbers, and is another model.
#[test]
fn a_model_with_other_parts_is_not_taken_for_the_learners() {
    let folder = tempfile::tempdir().unwrap();
    let [run, other] = ["run", "other"].map(|name| folder.path().join(name));
    trained(&run, of("tags"));
    let mut model = model_folder::read(&run.join(MODEL_FOLDER)).unwrap();
    let from = |path: &Path| {
        let made = [format!("model.from={}", path.display()), "model.public=a test".to_owned()];
        let gone = ["model.preset=", "model.vocabulary=", "model.hidden=", "model.embedding=", "local.unroll="];
        Opened::new(&config(&all(&made, &gone))).map(drop)
    };
    model_folder::write(&model, &other).unwrap();
    from(&other).unwrap();
    let Weights::Learned(learned) = &mut model.weights else { panic!("tags made something else") };
    learned.config.parts.reverse();
    model_folder::write(&model, &folder.path().join("turned")).unwrap();
    let error = from(&folder.path().join("turned")).unwrap_err().to_string();
    assert!(error.contains("model.from") && error.contains("other data"), "{error}");
}

#[test]
fn a_model_that_reads_features_is_started_with_as_many() {
    let model = |features| ModelConfig { user_context: features, ..ModelConfig::preset("tiny").unwrap() };
    let crowd = corpus::synth::FEATURES.len();
    assert!([None, Some(crowd)].into_iter().all(|features| learners::check_features(&model(features), None).is_ok()));
    let error = learners::check_features(&model(Some(crowd + 1)), None).unwrap_err().to_string();
    assert!(error.contains("model.from") && error.contains("9 features") && error.contains("has 8"), "{error}");
}
