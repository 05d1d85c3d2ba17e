//! Runs as folders: through every mechanism, killed anywhere and resumed, and what each leaves behind.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{fs, path::Path};

use crate::small_runs::RUN;
use keyhush_federated::{
    config::Document,
    engine::{self, Means},
    fleet::{self, Fleet, Stop},
    home::{LEDGER_FILE, MODEL_FOLDER, Records, RunFolder},
    ledger_file::Place,
    metrics::{DIAGNOSTICS_FILE, METRICS_FILE, Metrics, TIMING_FILE, prediction::PERPLEXITY},
    model_folder,
    plan::Plan,
    population::Population,
    price::Meaning,
    run::{self, Ending, Kept, Opened, Over, Run, RunError},
};
use ledger::{Body, ImportKind};
use lm::{folder::Weights, kernels::KernelPath};
use privacy::{PrivacyEvent, rng::Randomness};

const ARRIVAL: [&str; 3] =
    ["participation.kind=arrival", "participation.min_separation=4", "participation.max_participations=3"];

fn plan(set: &[&str]) -> (Plan, Opened) {
    let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
    let config = Document::new(RUN, &set).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    (plan, opened)
}

fn means(threads: usize) -> Means {
    Means::threads(KernelPath::best(), threads)
}

fn fleet<'a>(
    plan: &'a Plan,
    opened: &'a Opened,
    population: &'a dyn Population,
    folder: &Path,
    threads: usize,
) -> Box<dyn Fleet + 'a> {
    let engine = engine::of(&plan.local, opened.learner(), means(threads)).unwrap();
    fleet::of(plan, population, engine, RunFolder::at(folder).secrets())
}

/// A run that nothing happens to.
fn whole(folder: &Path, set: &[&str], threads: usize) -> Ending {
    let (plan, opened) = plan(set);
    let population = opened.population(plan.ledger.unit).unwrap();
    let mut fleet = fleet(&plan, &opened, population.as_ref(), folder, threads);
    let mut run = Run::begin(RunFolder::at(folder), &plan, &opened, means(threads)).unwrap();
    while run.step(&mut fleet, &Stop::new()).unwrap().over.is_none() {}
    run.finish().unwrap()
}

/// A run that ends without a word after every few rounds, and goes on with what is on disk.
fn broken(folder: &Path, set: &[&str], lives: &[u64]) -> Vec<String> {
    broken_on(folder, set, lives, 1)
}

/// The same on so many threads.
fn broken_on(folder: &Path, set: &[&str], lives: &[u64], threads: usize) -> Vec<String> {
    let (plan, opened) = plan(set);
    let population = opened.population(plan.ledger.unit).unwrap();
    let mut fleet = fleet(&plan, &opened, population.as_ref(), folder, threads);
    let mut warnings = Vec::new();
    for (number, steps) in lives.iter().chain([&u64::MAX]).enumerate() {
        let begin = if number == 0 { Run::begin } else { Run::resume };
        let mut run = begin(RunFolder::at(folder), &plan, &opened, means(threads)).unwrap();
        warnings.extend(run.warnings().iter().cloned());
        for _ in 0..*steps {
            if run.step(&mut fleet, &Stop::new()).unwrap().over.is_some() {
                run.finish().unwrap();
                return warnings;
            }
        }
    }
    warnings
}

/// The rounds of the lines of a file that have one.
fn rounds(folder: &Path, file: &str) -> Vec<u64> {
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter_map(|line| line["round"].as_u64()).collect()
}

/// `metrics.jsonl` counted the rounds that were done and the other two those before: what made the model of round 3 was called round 2.
#[test]
fn files_count_rounds_alike_also_after_a_run_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, lives) in [("whole", &[][..]), ("broken", &[2, 1, 3])] {
        let folder = folder.path().join(name);
        broken(&folder, &[], lives);
        assert_eq!(rounds(&folder, METRICS_FILE), [0, 3, 6, 9, 11]);
        for file in [TIMING_FILE, DIAGNOSTICS_FILE] {
            assert_eq!(rounds(&folder, file), (1..=11).collect::<Vec<u64>>(), "{name} {file}");
        }
    }
}

/// What must be the same: the model, the metrics, the events of the ledger with the digests of what was released.
fn left(folder: &Path) -> (Vec<f32>, String, Vec<String>) {
    let Weights::Recurrent { values, .. } = model_folder::read(&folder.join(MODEL_FOLDER)).unwrap().weights else {
        panic!("another model")
    };
    let ledger = Place::new(folder.join(LEDGER_FILE)).read(&[]).unwrap();
    let events = ledger
        .entries()
        .unwrap()
        .filter_map(|entry| match entry.unwrap().body() {
            Body::Release(release) => Some(serde_json::to_string(release).unwrap()),
            _ => None,
        })
        .collect();
    (values, fs::read_to_string(folder.join(METRICS_FILE)).unwrap(), events)
}

fn metrics(folder: &Path) -> Vec<Metrics> {
    let text = fs::read_to_string(folder.join(METRICS_FILE)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn all_kinds() -> Vec<(&'static str, Vec<&'static str>)> {
    let arrival = |more: &[&'static str]| [&ARRIVAL[..], more].concat();
    let adaptive = ["clip.kind=adaptive", "clip.quantile=0.5", "clip.norm=0.1", "clip.count_stddev=1.0"];
    vec![
        ("gaussian", vec![]),
        ("adaptive", adaptive.to_vec()),
        ("fixed size, by layer", vec!["participation.kind=fixed-size", "clip.kind=per-layer"]),
        ("greedy, adaptive", [&adaptive[..], &["clip.greedy=true"]].concat()),
        (
            "clipped",
            vec!["estimator.kind=clipped", "estimator.full_weight_tokens=40", "estimator.least_total_weight=1000"],
        ),
        ("tree", arrival(&["privacy.mechanism=tree"])),
        (
            "tree that restarts",
            arrival(&[&adaptive[..], &["privacy.mechanism=tree", "privacy.restarts=[3, 8]"]].concat()),
        ),
        (
            "banded",
            arrival(&["privacy.mechanism=banded", "privacy.bands=3", "server.optimizer=adam", "server.momentum="]),
        ),
        ("blt", arrival(&["privacy.mechanism=blt", "privacy.buffers=2", "privacy.rotation=true"])),
        ("independent arrivals", arrival(&["local.algorithm=fedsgd-all"])),
        ("once", vec!["participation.kind=once", "privacy.mechanism=tree"]),
        (
            "scheduled",
            vec![
                "schedule=[{ from = 2, clip_norm = 0.3 }, { from = 5, cohort = 20 }, { from = 8, noise_multiplier = 1.0, server_learning_rate = 0.2 }]",
            ],
        ),
        ("no noise", vec!["privacy.mechanism=none", "privacy.noise_multiplier=", "estimator.kind=average"]),
        (
            "sparse",
            vec![
                "participation.population=40",
                "upload.kind=sparse",
                "upload.share=0.05",
                "upload.warm_up=3",
                "upload.local_clip=0.4",
            ],
        ),
        (
            "mask that keeps",
            vec!["participation.population=40", "upload.kind=mask", "upload.share=0.1", "upload.keep_rest=true"],
        ),
        ("mask", vec!["upload.kind=mask", "upload.share=0.1", "privacy.rotation=true"]),
        ("epochs", vec!["local.epochs=3", "schedule=[{ from = 4, local_epochs = 1 }, { from = 7, local_epochs = 2 }]"]),
        ("examples", vec!["unit=example", "data.users=200", "local.algorithm=fedsgd-batch"]),
    ]
}

#[test]
fn a_run_that_was_killed_ends_as_one_that_was_not() {
    for (name, set) in all_kinds() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        whole(&a, &set, 1);
        let lines = metrics(&a);
        assert_eq!(lines.iter().map(|l| l.round).collect::<Vec<_>>(), [0, 3, 6, 9, 11], "{name}");
        broken_on(&b, &set, &[0, 1, 4, 2, 0, 3], 3);
        assert_eq!(left(&a), left(&b), "{name}: killed, and on three threads");
    }
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_it_used() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    whole(&a, &[], 1);
    broken(&b, &[], &[]); // to the end, and then once more from a damaged end
    let newest = b.join("checkpoints/round-00000011.safetensors");
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).unwrap();
    fs::remove_dir_all(b.join(MODEL_FOLDER)).unwrap();
    let (plan, opened) = plan(&[]);
    let mut run = Run::resume(RunFolder::at(&b), &plan, &opened, means(1)).unwrap();
    assert!(
        run.warnings().iter().any(|w| w.contains("round-00000011.safetensors") && w.contains("damaged")),
        "{:?}",
        run.warnings()
    );
    assert_eq!(run.state().round, 11, "what was released is applied again");
    run.finish().unwrap();
    assert_eq!(left(&a), left(&b));
}

#[test]
fn without_a_whole_checkpoint_it_says_what_is_wrong_with_each() {
    let folder = tempfile::tempdir().unwrap();
    let a = folder.path().join("a");
    whole(&a, &["checkpoint.every=2"], 1);
    for entry in fs::read_dir(a.join("checkpoints")).unwrap().map(Result::unwrap) {
        fs::write(entry.path(), "nothing").unwrap();
    }
    let (plan, opened) = plan(&["checkpoint.every=2"]);
    let error = Run::resume(RunFolder::at(&a), &plan, &opened, means(1)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("no usable checkpoint") && error.contains("round-00000010.safetensors"), "{error}");
}

#[test]
fn checkpoints_of_other_settings_and_a_shortened_ledger_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let a = folder.path().join("a");
    whole(&a, &[], 1);
    let (other, opened) = plan(&["privacy.noise_multiplier=0.4"]);
    assert!(matches!(Run::resume(RunFolder::at(&a), &other, &opened, means(1)), Err(RunError::OtherPlan { .. })));
    assert!(matches!(Run::begin(RunFolder::at(&a), &other, &opened, means(1)), Err(RunError::Taken { .. })));
    let nowhere = folder.path().join("nowhere");
    assert!(matches!(run::settings(&RunFolder::at(&nowhere)), Err(RunError::NoRun { .. })));
    let ledger = fs::read_to_string(a.join(LEDGER_FILE)).unwrap();
    let cut: String = ledger.split_inclusive('\n').take(6).collect();
    fs::write(a.join(LEDGER_FILE), cut).unwrap();
    let (same, opened) = plan(&[]);
    let error = Run::resume(RunFolder::at(&a), &same, &opened, means(1)).map(|_| ()).unwrap_err();
    assert!(matches!(error, RunError::Ledger(_)), "{error}");
}

#[test]
fn p12_only_what_was_released_is_printed_unless_it_is_a_simulation() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, simulated) = (folder.path().join("secret"), folder.path().join("simulated"));
    let adaptive = ["clip.kind=adaptive", "clip.quantile=0.5", "clip.norm=0.1", "clip.count_stddev=1.0"];
    whole(&secret, &[&adaptive[..], &["noise_seed="]].concat(), 1);
    whole(&simulated, &adaptive, 1);
    assert!(!secret.join(DIAGNOSTICS_FILE).exists());
    let text = fs::read_to_string(simulated.join(DIAGNOSTICS_FILE)).unwrap();
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["private"], false);
    assert!(first["note"].as_str().unwrap().starts_with("not private"));
    assert_eq!(text.lines().count(), 1 + 11);
    // The fraction that is printed is the noised one: with 12 users and this noise it is no twelfth of anything.
    let fractions: Vec<f64> = metrics(&secret).iter().filter_map(|m| m.fraction_below_clip).collect();
    assert!(fractions.len() == 4 && fractions.iter().all(|f| (f * 12.0).fract().abs() > 1e-9), "{fractions:?}");
    // No file but those of the ledger's vectors and the simulation's diagnostics is of one user or of a sum.
    for name in [METRICS_FILE, "statement.md"] {
        let text = fs::read_to_string(secret.join(name)).unwrap();
        assert!(!text.contains("norm_quantiles") && !text.contains("clipped_share"), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn p13_the_key_is_secret_and_in_no_other_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let (plan, opened) = plan(&["noise_seed="]);
    let population = opened.population(plan.ledger.unit).unwrap();
    let mut fleet = fleet(&plan, &opened, population.as_ref(), &a, 1);
    let mut run = Run::begin(RunFolder::at(&a), &plan, &opened, means(1)).unwrap();
    (0..5).for_each(|_| _ = run.step(&mut fleet, &Stop::new()).unwrap());
    let key = a.join("secret").join(format!("{LEDGER_FILE}.noise-key"));
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let key = fs::read_to_string(key).unwrap();
    for entry in fs::read_dir(&a).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_file()) {
        let bytes = fs::read(&entry).unwrap();
        assert!(!bytes.windows(key.len()).any(|w| w == key.as_bytes()), "{}", entry.display());
    }
    while run.step(&mut fleet, &Stop::new()).unwrap().over.is_none() {}
    run.finish().unwrap();
    whole(&b, &["noise_seed="], 1);
    assert_ne!(left(&a).0, left(&b).0, "two runs draw two keys");
    let ledger = Place::new(a.join(LEDGER_FILE)).read(&[]).unwrap();
    assert_eq!(ledger.plan().randomness, Randomness::Secret);
    let simulated = folder.path().join("c");
    whole(&simulated, &[], 1);
    let ledger = Place::new(simulated.join(LEDGER_FILE)).read(&[]).unwrap();
    assert_eq!(ledger.plan().randomness, Randomness::Simulated { seed: 3 });
    let statement = fs::read_to_string(simulated.join("statement.md")).unwrap();
    assert!(statement.contains("No guarantee: simulated"));
}

#[test]
fn p14_a_run_stops_before_the_round_that_would_cost_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    whole(&a, &[], 1);
    let limit = metrics(&a).iter().find(|m| m.round == 6).unwrap().price.epsilon.get();
    let set = format!("privacy.max_epsilon={limit}");
    let ending = whole(&b, &[&set], 1);
    assert!((6..9).contains(&ending.rounds), "{}", ending.rounds);
    assert!(ending.metrics.price.epsilon.get() <= limit && ending.metrics.round == ending.rounds);
    assert!(ending.stopped.unwrap().contains("budget"));
    // It stays over when it is resumed.
    let (plan, opened) = plan(&[&set]);
    let population = opened.population(plan.ledger.unit).unwrap();
    let mut run = Run::resume(RunFolder::at(&b), &plan, &opened, means(1)).unwrap();
    let step = run.step(&mut fleet(&plan, &opened, population.as_ref(), &b, 1), &Stop::new()).unwrap();
    assert!(matches!(step.over, Some(Over::Budget(_))));
}

#[test]
fn p15_a_run_that_starts_from_another_counts_its_cost() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let first = whole(&a, &[], 1);
    let from = format!("model.from={}", a.display());
    let start = [from.as_str(), "model.preset=", "model.vocabulary=", "model.hidden=", "model.embedding="];
    let second = whole(&b, &start, 1);
    let lines = metrics(&b);
    assert_eq!(lines[0].price, first.metrics.price, "before its first round it has cost what the other cost");
    assert!((lines[0].measured.headline() - first.metrics.measured.headline()).abs() < 1e-12);
    assert!(second.metrics.price.epsilon > first.metrics.price.epsilon);
    let ledger = Place::new(b.join(LEDGER_FILE)).read(&[]).unwrap();
    assert_eq!(ledger.imports().len(), 1);
    assert_eq!(ledger.imports()[0].kind, ImportKind::StartingModel);
    let composed = ledger.epsilon(ledger.plan().delta).unwrap().epsilon.get();
    assert!((composed / second.metrics.price.epsilon.get() - 1.0).abs() < 1e-6, "the statement and the metrics agree");
    // Under another adjacency it does not compose (rule P2).
    let (tree, opened) = plan(&[&start[..], &ARRIVAL[..], &["privacy.mechanism=tree"]].concat());
    let refused = Run::begin(RunFolder::at(folder.path().join("c")), &tree, &opened, means(1)).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("add-or-remove"), "{refused}");
    // A model without a ledger is public, and somebody says why.
    let alone = folder.path().join("alone");
    fs::create_dir(&alone).unwrap();
    let model = alone.join("inner");
    fs::create_dir(&model).unwrap();
    for entry in fs::read_dir(a.join(MODEL_FOLDER)).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), model.join(entry.file_name())).unwrap();
    }
    let from = format!("model.from={}", model.display());
    let set: Vec<String> = [from.as_str()].iter().chain(&start[1..]).map(|s| (*s).to_owned()).collect();
    let config = Document::new(RUN, &set).unwrap().config().unwrap();
    let refused = Opened::new(&config).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("model.public"), "{refused}");
}

#[test]
fn the_ledger_and_the_metrics_agree_on_the_price() {
    for (name, set) in all_kinds() {
        let folder = tempfile::tempdir().unwrap();
        let ending = whole(folder.path(), &set, 2);
        let ledger = Place::new(folder.path().join(LEDGER_FILE)).read(&[]).unwrap();
        let judged = ledger.epsilon(ledger.plan().delta).unwrap().epsilon.get();
        let said = ending.metrics.price.epsilon.get();
        assert!(judged == said || (judged / said - 1.0).abs() < 1e-6, "{name}: {judged} and {said}");
        let planned = privacy::AccountantKind::Best
            .judge(&PrivacyEvent::Compose { events: vec![ledger.plan().event()] }, ledger.plan().delta)
            .unwrap();
        assert!(planned.epsilon.get() >= judged * 0.999_999 || name == "no noise", "{name}");
    }
}

#[test]
fn without_noise_epsilon_is_infinite_and_the_model_learns() {
    let folder = tempfile::tempdir().unwrap();
    let set = ["privacy.mechanism=none", "privacy.noise_multiplier=", "rounds=30", "server.learning_rate=1.0"];
    let ending = whole(folder.path(), &set, 2);
    assert!(!ending.metrics.price.epsilon.is_finite());
    assert!(ending.sentence.contains("no privacy at all"), "{}", ending.sentence);
    let lines = metrics(folder.path());
    let perplexity = |line: &Metrics| line.measured.get(&PERPLEXITY).unwrap();
    let (first, last) = (perplexity(&lines[0]), perplexity(lines.last().unwrap()));
    assert!(last < 0.7 * first, "{first} to {last}");
}

/// "In simulation ... with user-level (0.55, 1e-7)-differential privacy" was quoted of noise that a seed repeats.
#[test]
fn p23_a_simulation_promises_nothing_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let ending = whole(folder.path(), &[], 1);
    let private = "differential privacy (add-or-remove)";
    let said = &ending.sentence;
    assert!(
        said.contains("No guarantee: the noise was simulated; with secret noise it would be user-level ("),
        "{said}"
    );
    assert!(!said.contains("with user-level") && said.contains(private), "{said}");
    for line in metrics(folder.path()) {
        assert_eq!(line.price.meaning, Meaning::IfSecret);
    }
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(!text(METRICS_FILE).contains("\"epsilon\"") && !text(METRICS_FILE).contains("\"rho\""));
    let json = serde_json::to_value(&ending).unwrap();
    assert!(json.get("epsilon").is_none() && json["epsilon_if_secret"].is_number(), "{json}");
    let kept = Kept::read(&RunFolder::at(folder.path())).unwrap();
    assert!(kept.is_simulation() && kept.price().meaning == Meaning::IfSecret);
    assert_eq!((kept.price(), kept.sentence), (ending.price, ending.sentence), "the folder says the same");
}

/// A secret run on sentences that a program made up was headlined "for each user".
#[test]
fn p23_secret_noise_on_a_made_up_crowd_protects_nobody_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let ending = whole(folder.path(), &["noise_seed="], 1);
    assert!(ending.sentence.contains("synthetic users") && ending.sentence.contains("nobody real is protected"));
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(Kept::read(&RunFolder::at(folder.path())).unwrap().remark().contains("nobody real is protected"));
    for name in ["statement.md", "model/README.md"] {
        assert!(text(name).contains("nobody real is protected"), "{name}");
    }
    let first = text(METRICS_FILE).lines().next().unwrap().to_owned();
    assert!(first.contains("\"epsilon_so_far\"") && !first.contains("\"epsilon\""), "{first}");
    let json = serde_json::to_value(&ending).unwrap();
    assert_eq!(json["epsilon"].as_f64(), Some(ending.price.epsilon.get()));
    assert!(text("statement.md").contains(keyhush_federated::SOFTWARE), "the revision of the source");
}

/// With a filter the guarantee is its budget, at the first round and at the last.
#[test]
fn p23_with_a_filter_the_budget_is_shown_and_not_what_was_spent() {
    let folder = tempfile::tempdir().unwrap();
    let filter =
        ["privacy.mechanism=tree", "noise_seed=", "privacy.max_epsilon=40", "evaluation.stop_at_accuracy=0.99"];
    let set = [&ARRIVAL[..], &filter].concat();
    let ending = whole(folder.path(), &set, 1);
    let budget = ending.price.epsilon.get();
    assert!((39.9..=40.0).contains(&budget), "{budget}");
    for line in metrics(folder.path()) {
        assert_eq!((line.price.meaning, line.price.epsilon.get()), (Meaning::Guaranteed, budget));
    }
    assert!(ending.sentence.contains("with user-level (40.000, 1e-5)"), "{}", ending.sentence);
}

/// Stopped by hand after two of eleven rounds, a run was stated with the epsilon of two.
#[test]
fn p23_a_run_that_is_not_over_states_its_whole_plan() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, opened) = plan(&["noise_seed="]);
    let population = opened.population(plan.ledger.unit).unwrap();
    let mut fleet = fleet(&plan, &opened, population.as_ref(), folder.path(), 1);
    let mut run = Run::begin(RunFolder::at(folder.path()), &plan, &opened, means(1)).unwrap();
    for _ in 0..2 {
        run.step(&mut fleet, &Stop::new()).unwrap();
    }
    let ending = run.so_far().unwrap();
    let whole = plan.epsilon(plan.rounds).unwrap().get();
    assert!((ending.price.epsilon.get() / whole - 1.0).abs() < 1e-6, "{} and {whole}", ending.price.epsilon);
    assert!(ending.price.epsilon > plan.epsilon(2).unwrap());
}

/// Another build goes on with a run; the ledger names the one that began it.
#[test]
fn a_run_goes_on_with_another_build_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let (mut older, opened) = plan(&[]);
    older.ledger.software = "keyhush 0.0.1, revision 0123456789ab".into();
    drop(Run::begin(RunFolder::at(folder.path()), &older, &opened, means(1)).unwrap());
    let (plan, opened) = plan(&[]);
    let run = Run::resume(RunFolder::at(folder.path()), &plan, &opened, means(1)).unwrap();
    assert!(run.warnings().is_empty(), "{:?}", run.warnings());
    assert_eq!(run.ledger().plan().software, older.ledger.software);
}
