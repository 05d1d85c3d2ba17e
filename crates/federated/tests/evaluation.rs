//! Evaluations by devices: a stream of its own in the ledger, whose cost is composed with that of training; failed attempts, crashes.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{collections::BTreeSet, fs, path::Path};

use crate::memory_home::MemoryHome;
use crate::workshop::{ARRIVAL, Idle, config, ledger, means, plan, rest, some, threads, whole, with};
use device::{evaluation::count, learner::examples::Examples, round::Task};
use keyhush_federated::{
    config::ConfigError,
    engine::{Around, Engine, EngineError, Summed, Users},
    fleet::{Attempted, Fleet, FleetError, Observed, Outcome, RoundTask, Stop},
    home::{Records, RunFolder},
    metrics::{Measured, Measures, Metrics, prediction::PERPLEXITY},
    model_folder,
    plan::{EVALUATION, Plan},
    round::evaluation::MOST_ATTEMPTS,
    run::{Opened, Run},
};
use ledger::{Basis, Body, FailureReason, Ledger, LedgerStore, PseudonymKey, statement::Statement};
use lm::{
    folder::Weights,
    kernels::KernelPath,
    metrics::{Counts, Targets},
};
use privacy::stages::Sum;

/// Evaluations after rounds 2, 4 and 6, each device in at most two of them.
const BY_DEVICES: [&str; 6] = [
    "evaluation.devices.every=2",
    "evaluation.devices.cohort=50",
    "evaluation.devices.min_separation=0",
    "evaluation.devices.max_participations=2",
    "evaluation.devices.noise_multiplier=4.0",
    "evaluation.devices.most_tokens=30",
];
/// Noise that nobody can draw again.
const SECRET: [&str; 1] = ["noise_seed="];
const TREE: [&str; 1] = ["privacy.mechanism=tree"];

fn set<'a>(more: &[&'a str]) -> Vec<&'a str> {
    with(&[&ARRIVAL, &BY_DEVICES, more])
}

fn metrics(folder: &Path) -> Vec<Metrics> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The epsilon of a Gaussian release whose sensitivity is so many standard deviations, by its own formula (Balle and Wang 2018):
/// delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).
fn gaussian_epsilon(mu: f64, delta: f64) -> f64 {
    let phi = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let delta_of = |epsilon: f64| phi(mu / 2.0 - epsilon / mu) - libm::exp(epsilon) * phi(-mu / 2.0 - epsilon / mu);
    let (mut low, mut high) = (0.0, 100.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if delta_of(middle) > delta { low = middle } else { high = middle }
    }
    high
}

/// One person in as many rounds and as many evaluations as the limits of each allow: that is what the statement counts, by a formula that
/// is not the accountant's code.
#[test]
fn p18_the_statement_composes_both_streams_for_one_person() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    whole(&run, &set(&SECRET), &mut Idle::default());
    let statement = Statement::of(&ledger(&run)).unwrap();
    // Six rounds with three between two: at most two rounds of one person, z = 2; three evaluations, at most two of one, z = 4.
    let (rounds, evaluations) = (2.0f64.sqrt() / 2.0, 2.0f64.sqrt() / 4.0);
    let both = gaussian_epsilon(rounds.hypot(evaluations), 1e-5);
    let epsilon = statement.guarantee.epsilon.get();
    assert!((epsilon / both - 1.0).abs() < 1e-4, "{epsilon} and {both}");
    assert!(epsilon > 1.05 * gaussian_epsilon(rounds, 1e-5), "more than the rounds alone");
    assert_eq!((statement.guarantee.basis, statement.guarantee.holds), (Basis::Spent, true));
    let streams: Vec<(&str, u64)> =
        statement.data_accesses.streams.iter().map(|stream| (stream.stream.as_str(), stream.released)).collect();
    assert_eq!(streams, [("model", 6), (EVALUATION, 3)]);
    let page = statement.to_markdown();
    for words in ["`model`: ", "`evaluation`: independent Gaussian noise on counts", "3 of 3 planned steps released"] {
        assert!(page.contains(words), "{words} is not in\n{page}");
    }
    let verified = ledger(&run).verify(&[], None).unwrap();
    assert!((verified.judgement.unwrap().epsilon.get() / both - 1.0).abs() < 1e-4);
    // What the plan said beforehand, and what lines of metrics say on the way.
    let (plan, _) = plan(&set(&SECRET));
    assert_eq!(plan.epsilon(6).unwrap(), statement.guarantee.epsilon);
    assert!(plan.epsilon(1).unwrap() < plan.epsilon(2).unwrap());
}

/// Without noise, and with text that nobody has more of than is counted, what devices say is what is counted of all of them together.
#[test]
fn p12_what_devices_say_is_what_is_counted_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let bare = [
        "privacy.mechanism=none",
        "privacy.noise_multiplier=",
        "evaluation.devices.noise_multiplier=",
        "evaluation.devices.most_tokens=5000",
        // So that something is learned.
        "local.learning_rate=1.0",
        "server.learning_rate=1.0",
        "clip.norm=5.0",
    ];
    let set = set(&bare);
    let (plan, opened) = plan(&set);
    let mut engine = Watching { inner: threads(&plan, &opened), measured: Vec::new() };
    whole(&run, &set, &mut engine);
    let lines = metrics(&run);
    let there: Vec<(u64, bool)> = lines.iter().map(|line| (line.round, line.by_devices.is_some())).collect();
    assert_eq!(there, [(0, false), (2, true), (4, true), (6, true)]);
    let last = lines[3].by_devices.as_ref().unwrap();
    assert_eq!((last.evaluation, last.goal), (2, 50));
    let Weights::Recurrent { values, .. } = model_folder::read(&run.join("model")).unwrap().weights else {
        panic!("no network")
    };
    let (learner, population) = (opened.learner(), opened.population(plan.ledger.unit).unwrap());
    let mut counts = Counts::default();
    assert_eq!(engine.measured.iter().map(Vec::len).collect::<Vec<_>>(), [50, 50, 50]);
    for user in &engine.measured[2] {
        let mut examples = Examples::new(learner.schema());
        population.read(*user, &mut examples).unwrap();
        counts.merge(&count(learner, &values, &examples, KernelPath::best()).unwrap());
    }
    let expected = Measured::of(Measures::named(learner.measures()).unwrap(), &counts);
    for metric in expected.measures().metrics {
        let (got, want) = (last.measured.get(metric).unwrap(), expected.get(metric).unwrap());
        assert!((got - want).abs() <= 1e-3 * want.abs(), "{}: {got} and {want}", metric.name);
    }
    assert!(last.targets.abs_diff(counts.targets(Targets::ALL)) <= 1 && last.targets > 500, "{}", last.targets);
    let perplexity = |line: &Metrics| line.by_devices.as_ref().unwrap().measured.get(&PERPLEXITY).unwrap();
    assert!(perplexity(&lines[3]) < perplexity(&lines[1]), "nothing was learned: the test shows nothing");
    assert_eq!(last.noise_standard_deviation["accuracy_top1"], Some(0.0), "there was none");
}

/// An engine that notes whom it measures with.
struct Watching<'a> {
    inner: Box<dyn Engine + 'a>,
    measured: Vec<Vec<u64>>,
}

impl<'a> Around for Watching<'a> {
    type Inner = dyn Engine + 'a;

    fn inner(&self) -> &(dyn Engine + 'a) {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut (dyn Engine + 'a) {
        &mut *self.inner
    }

    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        if task.evaluation.is_some() {
            self.measured.push(users.numbers.to_vec());
        }
        self.inner.sum(task, users)
    }
}

/// What devices say has noise in it, as much as is told.
#[test]
fn p12_what_devices_say_is_noised_as_is_told() {
    let of = |seed: &str, z: &str| {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let more = [seed, z, "evaluation.devices.every=6", "rounds=1", "evaluation.every=1"];
        let set = set(&more);
        let (plan, opened) = plan(&set);
        whole(&run, &set, &mut *threads(&plan, &opened));
        metrics(&run).pop().unwrap().by_devices.unwrap()
    };
    let seeds = ["noise_seed=1", "noise_seed=2", "noise_seed=3", "noise_seed=4", "noise_seed=5"];
    let said: Vec<_> = seeds.iter().map(|seed| of(seed, "evaluation.devices.noise_multiplier=1.0")).collect();
    let values: BTreeSet<u64> = said.iter().map(|said| said.targets).collect();
    assert_eq!(values.len(), seeds.len(), "the same people with the same text, and other noise each time: {values:?}");
    let told = said[0].noise_standard_deviation["accuracy_top1"].unwrap();
    let more =
        of(seeds[0], "evaluation.devices.noise_multiplier=2.0").noise_standard_deviation["accuracy_top1"].unwrap();
    assert!(told > 0.0 && (1.5..3.0).contains(&(more / told)), "{told} {more}");
}

/// A run that is killed after every single step, before and after evaluations, comes to the same: model, metrics and entries.
#[test]
fn p13_killed_anywhere_evaluations_are_done_once_and_lines_are_the_same() {
    for more in [&[][..], &TREE] {
        let folder = tempfile::tempdir().unwrap();
        let (straight, killed) = (folder.path().join("straight"), folder.path().join("killed"));
        let set = set(more);
        let (plan, opened) = plan(&set);
        whole(&straight, &set, &mut *threads(&plan, &opened));
        // Six rounds and three evaluations.
        for _ in 0..8 {
            some(&killed, &set, 1, &mut *threads(&plan, &opened));
        }
        rest(&killed, &set, &mut *threads(&plan, &opened));
        let read = |run: &Path, file: &str| fs::read(run.join(file)).unwrap();
        assert_eq!(read(&straight, "metrics.jsonl"), read(&killed, "metrics.jsonl"));
        assert_eq!(read(&straight, "model/model.safetensors"), read(&killed, "model/model.safetensors"));
        let bodies = |run: &Path| -> Vec<(String, u64)> {
            let entries = ledger(run).entries().unwrap().map(Result::unwrap).collect::<Vec<_>>();
            let of = |body: &Body| match body {
                Body::Release(release) => Some((release.stream.clone(), release.step)),
                _ => None,
            };
            entries.iter().filter_map(|entry| of(entry.body())).collect()
        };
        assert_eq!(bodies(&straight), bodies(&killed));
        let order: Vec<String> =
            bodies(&killed).into_iter().map(|(stream, step)| format!("{} {step}", &stream[..1])).collect();
        assert_eq!(order, ["m 0", "m 1", "e 0", "m 2", "m 3", "e 1", "m 4", "m 5", "e 2"]);
    }
}

/// Recording an evaluation erases the keys of its own shelf, and none of those that correlated noise still needs.
#[test]
fn p20_an_evaluation_leaves_the_keys_of_correlated_noise_and_its_own_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let set = set(&[SECRET[0], TREE[0]]);
    let secret = |name: &str| fs::read_to_string(run.join(format!("secret/ledger.jsonl.{name}"))).unwrap_or_default();
    // Two rounds and the evaluation after them.
    some(&run, &set, 3, &mut Idle::default());
    assert_eq!(ledger(&run).releases()[EVALUATION], 1);
    assert_eq!(secret("step-keys").lines().count(), 2, "later rounds take off what these added");
    assert_eq!(secret("evaluation-keys").trim_matches('\0'), "", "no later evaluation needs it");
    assert!(secret("evaluation-link").contains("step"), "and the next key is chained to it");
    // A key that was drawn and of which nothing is recorded is destroyed on opening; the run goes on.
    let line = r#"{"at":{"stream":4294967296,"segment":0,"step":1},"key":"#;
    fs::write(run.join("secret/ledger.jsonl.evaluation-keys"), format!("{line}\"{}\"}}\n", "5a".repeat(32))).unwrap();
    rest(&run, &set, &mut Idle::default());
    assert_eq!((ledger(&run).releases()["model"], ledger(&run).releases()[EVALUATION]), (6, 3));
    for name in ["step-keys", "evaluation-keys", "evaluation-link", "noise-key", "noise-link"] {
        assert!(!run.join(format!("secret/ledger.jsonl.{name}")).exists(), "{name} is still there");
    }
}

/// Keys of an older copy of a run are refused, of evaluations as of rounds.
#[test]
fn p21_evaluation_keys_of_another_state_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let set = set(&SECRET);
    some(&run, &set, 3, &mut Idle::default());
    fs::remove_file(run.join("secret/ledger.jsonl.evaluation-link")).unwrap();
    let (plan, opened) = plan(&set);
    let refused = Run::resume(RunFolder::at(&run), &plan, &opened, means()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("step 0"), "{refused}");
}

/// What becomes of an attempt.
#[derive(Clone, Copy)]
enum Fate {
    Gives,
    Fails(FailureReason),
    /// The program ends in its midst.
    Dies,
}

/// Real devices, other ones in every attempt. Rounds always come to something.
struct Devices {
    key: PseudonymKey,
    evaluations: Fate,
    /// Which evaluations were asked for: step, attempt, whether again.
    asked: Vec<(u64, u32, bool)>,
}

impl Devices {
    fn of(home: &MemoryHome, evaluations: Fate) -> Self {
        Self { key: home.secrets().pseudonym_key().unwrap().unwrap(), evaluations, asked: Vec::new() }
    }
}

impl Fleet for Devices {
    fn asks_devices(&self, _task: &RoundTask<'_>) -> bool {
        true
    }

    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError> {
        let at = task.at;
        let mut outcome = Outcome::Sum(Sum::zero(task.task.encoding));
        if at.stream == EVALUATION {
            self.asked.push((at.step, at.attempt, at.again));
            match self.evaluations {
                Fate::Gives => {}
                Fate::Fails(reason) => outcome = Outcome::Failed(reason),
                Fate::Dies => return Err(EngineError::Died.into()),
            }
        }
        let devices: Vec<String> =
            (0..3).map(|n| format!("device {n} of {} {}, {}", at.stream, at.step, at.attempt)).collect();
        let users = devices.iter().map(String::as_bytes);
        let participants = Some(self.key.record(at.stream, at.step, at.attempt, users).unwrap());
        Ok(Attempted { outcome, observed: Observed { participants, ..Observed::default() } })
    }
}

fn begun<'a>(home: &MemoryHome, plan: &'a Plan, opened: &'a Opened) -> Run<'a, MemoryHome> {
    Run::begin(home.clone(), plan, opened, means()).unwrap()
}

#[test]
fn p24_failed_evaluations_are_recorded_and_left_out_and_the_whole_plan_is_counted() {
    let (plan, opened) = plan(&set(&SECRET));
    let home = MemoryHome::default();
    let mut run = begun(&home, &plan, &opened);
    let mut fleet = Devices::of(&home, Fate::Fails(FailureReason::BelowGoal));
    let stop = Stop::new();
    let mut said = Vec::new();
    while run.state().round < 3 {
        let step = run.step(&mut fleet, &stop).unwrap();
        said.extend(step.failed_evaluation.map(|failed| failed.to_string()));
    }
    assert_eq!(fleet.asked, [(0, 0, false), (0, 1, false), (0, 2, false)], "others each time, and then nobody");
    assert_eq!(said.len(), MOST_ATTEMPTS);
    assert!(said[0].contains("attempted again") && said[2].contains("skipped"), "{said:?}");
    // The next evaluation takes the step, with attempts that go on counting: whoever was asked for it is not asked again.
    fleet.evaluations = Fate::Gives;
    while run.step(&mut fleet, &stop).unwrap().over.is_none() {}
    assert_eq!(fleet.asked[3..], [(0, 3, false), (1, 0, false)]);
    run.finish().unwrap();
    let ledger = Ledger::open(home.read_store().unwrap(), None, &[]).unwrap();
    assert_eq!(ledger.failures(EVALUATION, 0).len(), 3);
    assert_eq!(ledger.failures(EVALUATION, 0)[0].reason, FailureReason::BelowGoal);
    let statement = Statement::of(&ledger).unwrap();
    assert_eq!(statement.guarantee.basis, Basis::Plan, "not all evaluations were released");
    assert_eq!(statement.guarantee.epsilon, plan.epsilon(plan.rounds).unwrap());
    // Everybody who was asked is on record: five attempts at evaluations and six rounds.
    assert_eq!(home.read_store().unwrap().participations().unwrap().unwrap().count(), 11);
    let lines: Vec<Metrics> = run_lines(&home);
    let measured: Vec<(u64, Option<u64>)> =
        lines.iter().map(|line| (line.round, line.by_devices.as_ref().map(|by| by.evaluation))).collect();
    assert_eq!(measured, [(0, None), (2, None), (4, Some(0)), (6, Some(1))]);
}

fn run_lines(home: &MemoryHome) -> Vec<Metrics> {
    use keyhush_federated::home::{Home, Log};
    home.lines(Log::Metrics).unwrap().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Killed in the midst of an evaluation: the same attempt is asked for again, and where it cannot go on it has failed, with its people on
/// record. The round that follows waits for that.
#[test]
fn p24_an_evaluation_in_whose_midst_the_program_ended_is_taken_up_or_has_failed() {
    let (plan, opened) = plan(&set(&SECRET));
    for (then, asked) in [
        (Fate::Gives, vec![(0, 0, false), (0, 0, true)]),
        (Fate::Fails(FailureReason::Interrupted), vec![(0, 0, false), (0, 0, true), (0, 1, false)]),
    ] {
        let home = MemoryHome::default();
        let mut run = begun(&home, &plan, &opened);
        let mut fleet = Devices::of(&home, Fate::Dies);
        let stop = Stop::new();
        run.step(&mut fleet, &stop).unwrap();
        run.step(&mut fleet, &stop).unwrap();
        run.step(&mut fleet, &stop).map(drop).unwrap_err();
        drop(run);
        let mut run = Run::resume(home.clone(), &plan, &opened, means()).unwrap();
        assert_eq!(run.state().round, 2);
        fleet.evaluations = then;
        run.step(&mut fleet, &stop).unwrap();
        fleet.evaluations = Fate::Gives;
        while run.step(&mut fleet, &stop).unwrap().over.is_none() {}
        assert_eq!(fleet.asked[..asked.len()], asked);
        assert_eq!(run.ledger().releases()[EVALUATION], 3);
    }
    // Ended instead of gone on with: whoever was asked may have sent counts, and that is on record.
    let home = MemoryHome::default();
    let mut run = begun(&home, &plan, &opened);
    let mut fleet = Devices::of(&home, Fate::Dies);
    run.step(&mut fleet, &Stop::new()).unwrap();
    run.step(&mut fleet, &Stop::new()).unwrap();
    run.step(&mut fleet, &Stop::new()).map(drop).unwrap_err();
    drop(run);
    Run::resume(home.clone(), &plan, &opened, means()).unwrap().finish().unwrap();
    let ledger = Ledger::open(home.read_store().unwrap(), None, &[]).unwrap();
    assert_eq!(ledger.failures(EVALUATION, 0)[0].reason, FailureReason::Interrupted);
    assert!(ledger.is_closed());
}

fn refused(more: &[&str]) -> ConfigError {
    let config = config(&set(more));
    let opened = Opened::new(&config).unwrap();
    Plan::new(config, &opened.setting()).map(drop).unwrap_err()
}

/// What cannot be stated, enforced or filled is refused before any work.
#[test]
fn p11_evaluations_that_cannot_be_stated_are_refused() {
    // Rounds alone are within this budget, and both together are not.
    let (alone, both) = (plan(&ARRIVAL).0.epsilon(6).unwrap().get(), plan(&set(&[])).0.epsilon(6).unwrap().get());
    assert!(alone < both, "{alone} {both}");
    let within = format!("privacy.max_epsilon={}", (alone + both) / 2.0);
    for (more, key, words) in [
        (&["evaluation.devices.noise_multiplier="][..], "evaluation.devices.noise_multiplier", "is missing"),
        (&["evaluation.devices.every=0"], "evaluation.devices.every", "at least 1"),
        (&["evaluation.devices.most_tokens=0"], "evaluation.devices.most_tokens", "bounds what one device counts"),
        (&["evaluation.devices.cohort=1001"], "evaluation.devices.cohort", "1001"),
        (
            &["evaluation.devices.cohort=700", "evaluation.devices.max_participations=1"],
            "evaluation.devices.max_participations",
            "cannot fill 3 rounds",
        ),
        (
            &["evaluation.devices.cohort=600", "evaluation.devices.min_separation=1"],
            "evaluation.devices.min_separation",
            "1",
        ),
        (&["evaluation.devices.max_participations=0"], "evaluation.devices.max_participations", ""),
        (&["evaluation.devices.noise_multiplier=-1.0"], "evaluation.devices.noise_multiplier", ""),
        (
            &["privacy.mechanism=none", "privacy.noise_multiplier="],
            "evaluation.devices.noise_multiplier",
            "only valid with noise",
        ),
        (
            &["participation.kind=poisson", "participation.min_separation=", "participation.max_participations="],
            "evaluation.devices",
            "adjacencies cannot be mixed",
        ),
        (&[within.as_str()], "evaluation.devices", "together would cost"),
    ] {
        let error = refused(more);
        assert_eq!(error.key, key, "{more:?}: {error}");
        assert!(error.problem.contains(words), "{more:?}: {error}");
    }
    // With evaluations that are noised more, both are within it.
    plan(&set(&[&within, "evaluation.devices.noise_multiplier=40.0"]));
    for missing in ["cohort", "min_separation", "max_participations", "most_tokens", "every"] {
        let text = crate::workshop::text() + "\n[evaluation.devices]\n";
        let all = BY_DEVICES.iter().map(|pair| pair.trim_start_matches("evaluation.devices."));
        let some: Vec<&str> = all.filter(|pair| !pair.starts_with(missing)).collect();
        let error =
            keyhush_federated::config::Document::new(&(text + &some.join("\n")), &[]).unwrap().config().unwrap_err();
        assert_eq!(error.key, format!("evaluation.devices.{missing}"));
        assert!(error.problem.contains("is missing"), "{error}");
    }
}
