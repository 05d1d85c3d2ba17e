//! Attacks on what a run leaves behind (rules P20, P21 and P23): by somebody who has every file outside `secret/`, by somebody
//! who has a copy of everything, and by accidents. Each of them worked once.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::small_runs::{self, RUN};
use device::round::Task;
use keyhush_federated::{
    config::Document,
    engine::{self, Around, Engine, EngineError, Means, Summed, Users},
    fleet::{self, Stop},
    home::{LEDGER_FILE, Records, RunFolder},
    ledger_file::Place,
    plan::Plan,
    run::{self, Kept, Opened, Over, Run, RunError, Step},
};
use ledger::{Body, Ended, LedgerError};
use lm::kernels::KernelPath;

const CHANGES: [&str; 8] = [
    "rounds=9",
    "noise_seed=",
    "participation.kind=arrival",
    "participation.min_separation=3",
    "participation.max_participations=3",
    "privacy.mechanism=banded",
    "privacy.bands=3",
    "checkpoint.every=1",
];

/// Every kind of noise.
const KINDS: [&[&str]; 5] = [
    &[],
    &["privacy.mechanism=tree", "privacy.bands="],
    &["privacy.mechanism=tree", "privacy.bands=", "privacy.restarts=[2, 5]", "privacy.tree_completion=true"],
    &["privacy.mechanism=blt", "privacy.bands=", "privacy.buffers=2"],
    &[
        "privacy.mechanism=gaussian",
        "privacy.bands=",
        "participation.kind=poisson",
        "participation.min_separation=",
        "participation.max_participations=",
    ],
];

/// What a run is made of.
struct Story {
    plan: Plan,
    opened: Opened,
    folder: tempfile::TempDir,
}

/// An engine that remembers what it was told and what it added up.
struct Watching<'a> {
    inner: Box<dyn Engine + 'a>,
    cohorts: Vec<Vec<u64>>,
    keys: Vec<[u8; 32]>,
    sums: Vec<Vec<i64>>,
    fails: bool,
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
        self.cohorts.push(users.numbers.to_vec());
        self.keys.push(*users.key.secret_bytes());
        if self.fails {
            return Err(EngineError::Died);
        }
        let mut summed = self.inner.sum(task, users)?;
        let mut sum = Vec::new();
        summed.sum = summed.sum.across_processes(|values, _users| {
            sum = values.to_vec();
            Ok::<_, EngineError>(())
        })?;
        self.sums.push(sum);
        Ok(summed)
    }
}

impl Story {
    fn new(set: &[&str]) -> Self {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        let config = Document::new(&small_runs::with(RUN, &CHANGES), &set).unwrap().config().unwrap();
        let opened = Opened::new(&config).unwrap();
        let plan = Plan::new(config, &opened.setting()).unwrap();
        Self { plan, opened, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn begin(&self, name: &str) -> Run<'_> {
        Run::begin(RunFolder::at(self.path(name)), &self.plan, &self.opened, means()).unwrap()
    }

    fn resume(&self, name: &str) -> Result<Run<'_>, RunError> {
        Run::resume(RunFolder::at(self.path(name)), &self.plan, &self.opened, means())
    }

    /// Users who are trained, and a book of them.
    fn engine(&self) -> Watching<'_> {
        let inner = engine::of(&self.plan.local, self.opened.learner(), means()).unwrap();
        Watching { inner, cohorts: Vec::new(), keys: Vec::new(), sums: Vec::new(), fails: false }
    }

    /// One step of the run in a folder.
    fn step(&self, name: &str, run: &mut Run<'_>, engine: &mut Watching<'_>) -> Result<Step, RunError> {
        let population = self.opened.population(self.plan.ledger.unit).unwrap();
        let place = RunFolder::at(self.path(name)).secrets();
        run.step(&mut fleet::of(&self.plan, population.as_ref(), Box::new(engine), place), &Stop::new())
    }

    /// Steps of the run in the folder `run`.
    fn steps(&self, run: &mut Run<'_>, count: usize) {
        let mut engine = self.engine();
        (0..count).for_each(|_| _ = self.step("run", run, &mut engine).unwrap());
    }

    fn secret(&self, name: &str, suffix: &str) -> PathBuf {
        self.path(name).join("secret").join(format!("{LEDGER_FILE}{suffix}"))
    }
}

fn means() -> Means {
    Means::threads(KernelPath::best(), 1)
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(&entry, &target).unwrap();
        }
    }
}

fn released(run: &Run<'_>, step: u64) -> Vec<i64> {
    run.ledger().restore("model", step).unwrap().unwrap().values().to_vec()
}

/// Whether bytes hold eight of these numbers in a row, as integers of any width or fixed-point numbers.
fn holds(bytes: &[u8], noise: &[i64]) -> bool {
    let some = &noise[100..108];
    let mut patterns: Vec<Vec<u8>> = vec![some.iter().flat_map(|n| (*n as i32).to_le_bytes()).collect()];
    patterns.extend((0..40).map(|bits| some.iter().flat_map(|n| (n << bits).to_le_bytes()).collect::<Vec<u8>>()));
    patterns.iter().any(|pattern| bytes.windows(pattern.len()).any(|window| window == pattern))
}

/// Checkpoints once held the noise that correlated mechanisms remember: with the releases, the exact sums.
#[test]
fn p20_no_file_outside_secret_holds_noise_or_a_sum() {
    for kind in KINDS {
        let story = Story::new(kind);
        let mut run = story.begin("run");
        let mut engine = story.engine();
        for step in 0..4 {
            let _ = story.step("run", &mut run, &mut engine).unwrap();
            let sum = &engine.sums[step];
            let noise: Vec<i64> = released(&run, step as u64).iter().zip(sum).map(|(y, x)| y - x).collect();
            let outside = files(&story.path("run")).into_iter().filter(|p| !p.starts_with(story.path("run/secret")));
            for file in outside {
                // Vectors that a checkpoint has made superfluous go beside everything else.
                let is_vector = file.parent().is_some_and(|folder| folder.ends_with("ledger.jsonl.released"));
                let bytes = match fs::read(&file) {
                    Err(gone) if is_vector && gone.kind() == io::ErrorKind::NotFound => continue,
                    read => read.unwrap(),
                };
                assert!(!holds(&bytes, &noise), "{kind:?}: {} holds the noise of step {step}", file.display());
                assert!(!holds(&bytes, sum), "{kind:?}: {} holds the sum of step {step}", file.display());
            }
        }
        for file in files(&story.path("run/secret")) {
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
        }
    }
}

/// A copied run once drew the same noise: two releases of one step differed by what differed in the sums.
#[test]
fn p21_two_copies_of_a_run_share_no_noise() {
    for kind in KINDS {
        let story = Story::new(kind);
        let mut run = story.begin("run");
        story.steps(&mut run, 3);
        drop(run);
        copy(&story.path("run"), &story.path("copy"));
        let [(ours, our_keys, our_cohort), (theirs, their_keys, their_cohort)] = ["run", "copy"].map(|name| {
            let mut run = story.resume(name).unwrap();
            let mut engine = story.engine();
            let _ = story.step(name, &mut run, &mut engine).unwrap();
            let noise: Vec<i64> = released(&run, 3).iter().zip(&engine.sums[0]).map(|(y, x)| y - x).collect();
            (noise, engine.keys, engine.cohorts)
        });
        let equal = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
        assert!(equal < ours.len() / 100, "{kind:?}: {equal} of {} coordinates have the same noise", ours.len());
        assert_ne!(our_keys, their_keys, "{kind:?}: users draw alike");
        let sampled = kind.contains(&"participation.kind=poisson");
        assert_eq!(our_cohort != their_cohort, sampled, "{kind:?}: a sample is drawn afresh, arrivals go on in order");
    }
}

/// An attempt that came to nothing once drew its noise, and its users theirs, again; and a cohort that is drawn again after a
/// crash is not the one that was sampled.
#[test]
fn p21_after_a_crash_the_cohort_is_the_same_and_nothing_else() {
    let story = Story::new(KINDS[4]);
    let mut run = story.begin("run");
    story.steps(&mut run, 2);
    assert_eq!(fs::read(story.secret("run", ".cohort-seed")).unwrap(), b"", "erased with the record of its round");
    let mut engine = story.engine();
    engine.fails = true;
    story.step("run", &mut run, &mut engine).unwrap_err();
    drop(run);
    assert!(!fs::read(story.secret("run", ".cohort-seed")).unwrap().is_empty());
    let mut run = story.resume("run").unwrap();
    engine.fails = false;
    (0..2).for_each(|_| _ = story.step("run", &mut run, &mut engine).unwrap());
    assert_eq!(engine.cohorts[0], engine.cohorts[1], "a redraw would favour cohorts that do not crash");
    assert_ne!(engine.cohorts[1], engine.cohorts[2]);
    assert_ne!(engine.keys[0], engine.keys[1], "users draw afresh in every attempt");
}

/// What was drawn and not recorded is destroyed; ledgers and keys of different states of a run are refused.
#[test]
fn p21_keys_and_ledger_must_be_of_one_state() {
    for (kind, steps) in KINDS.into_iter().flat_map(|kind| [1, 2, 4].map(|steps| (kind, steps))) {
        let story = Story::new(kind);
        let mut run = story.begin("run");
        story.steps(&mut run, 4);
        drop(run);
        copy(&story.path("run"), &story.path("then"));
        let mut run = story.resume("run").unwrap();
        story.steps(&mut run, steps);
        drop(run);
        // An old copy of everything but the secrets.
        copy(&story.path("then"), &story.path("old ledger"));
        fs::remove_dir_all(story.path("old ledger/secret")).unwrap();
        copy(&story.path("run/secret"), &story.path("old ledger/secret"));
        let error = story.resume("old ledger").map(drop).unwrap_err();
        let ahead = matches!(error, RunError::Ledger(LedgerError::KeyAhead { .. }));
        assert!(ahead, "{kind:?}, {steps} steps: {error}");
        // An old copy of the secrets.
        copy(&story.path("run"), &story.path("old keys"));
        fs::remove_dir_all(story.path("old keys/secret")).unwrap();
        copy(&story.path("then/secret"), &story.path("old keys/secret"));
        let error = story.resume("old keys").map(drop).unwrap_err();
        assert!(matches!(error, RunError::Ledger(LedgerError::KeyBehind { .. })), "{kind:?}: {error}");
    }
}

/// Secrets that others can read are refused, the noise keys of the steps among them.
#[test]
fn p20_looser_modes_are_refused() {
    let story = Story::new(KINDS[0]);
    let mut run = story.begin("run");
    story.steps(&mut run, 2);
    drop(run);
    let files = [".step-keys", ".noise-key", ".beginning", ".signing-key"].map(|suffix| story.secret("run", suffix));
    for path in files.into_iter().chain([story.path("run/secret")]) {
        let (loose, tight) = if path.is_dir() { (0o755, 0o700) } else { (0o644, 0o600) };
        fs::set_permissions(&path, fs::Permissions::from_mode(loose)).unwrap();
        let error = story.resume("run").map(drop).unwrap_err();
        assert!(matches!(error, RunError::Ledger(LedgerError::LooseSecret { .. })), "{}: {error}", path.display());
        fs::set_permissions(&path, fs::Permissions::from_mode(tight)).unwrap();
    }
    assert!(story.resume("run").is_ok());
}

/// Keys once stayed after the last round, and the ledger open. Whoever finds the folder later finds nothing to draw from.
#[test]
fn p20_a_run_that_ended_cannot_be_gone_on_with_and_leaves_nothing_to_draw_from() {
    for kind in KINDS {
        let story = Story::new(kind);
        let mut run = story.begin("run");
        story.steps(&mut run, 9);
        let ending = run.finish().unwrap();
        assert_eq!(ending.stopped, None);
        drop(run);
        let left: Vec<String> = files(&story.path("run/secret"))
            .iter()
            .map(|p| p.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(left, [format!("{LEDGER_FILE}.signing-key")], "{kind:?}");
        let ledger = Place::new(story.path("run").join(LEDGER_FILE)).read(&[]).unwrap();
        let closing = *ledger.closing().unwrap();
        assert_eq!((closing.because, closing.noise_destroyed), (Ended::PlanDone, true));
        // It may be looked at again, and says the same; it releases nothing.
        let before = fs::read(story.path("run").join(LEDGER_FILE)).unwrap();
        let mut run = story.resume("run").unwrap();
        let mut engine = story.engine();
        assert_eq!(story.step("run", &mut run, &mut engine).unwrap().over, Some(Over::Done));
        assert!(engine.cohorts.is_empty());
        assert_eq!(run.finish().unwrap().sentence, ending.sentence);
        drop(run);
        assert_eq!(before, fs::read(story.path("run").join(LEDGER_FILE)).unwrap());
    }
}

#[test]
fn p20_a_run_that_is_ended_by_hand_says_so_and_is_closed() {
    let story = Story::new(KINDS[0]);
    let mut run = story.begin("run");
    story.steps(&mut run, 4);
    let ending = run.finish().unwrap();
    assert_eq!((ending.rounds, ending.stopped.as_deref()), (4, Some("it was ended by hand")));
    assert_eq!(run.ledger().closing().unwrap().because, Ended::ByHand);
    drop(run);
    let mut run = story.resume("run").unwrap();
    assert_eq!(story.step("run", &mut run, &mut story.engine()).unwrap().over, Some(Over::ByHand));
    assert_eq!(run.state().round, 4);
}

/// Killed while it was being closed, with any part of its secrets gone already, a run is closed when somebody looks at it.
#[test]
fn p20_a_closing_that_was_begun_is_brought_to_its_end() {
    for gone in 0..=5 {
        let story = Story::new(KINDS[0]);
        let mut run = story.begin("run");
        story.steps(&mut run, 4);
        drop(run);
        fs::write(story.secret("run", ".closing"), "\"by_hand\"").unwrap();
        fs::set_permissions(story.secret("run", ".closing"), fs::Permissions::from_mode(0o600)).unwrap();
        let order = [".noise-key", ".step-keys", ".cohort-seed", ".beginning", ".pseudonym-key"];
        order[..gone].iter().for_each(|suffix| fs::remove_file(story.secret("run", suffix)).unwrap());
        let mut run = story.resume("run").unwrap();
        assert_eq!(run.ledger().closing().unwrap().because, Ended::ByHand);
        assert_eq!(run.finish().unwrap().rounds, 4);
        assert_eq!(files(&story.path("run/secret")), [story.secret("run", ".signing-key")]);
    }
}

/// How long a round takes follows how many were drawn for it. No file of a run with secret noise tells: not by what it says,
/// and not by its time.
#[test]
fn p23_no_file_tells_how_long_a_round_took() {
    const DAY: i64 = 24 * 60 * 60;
    let story = Story::new(KINDS[4]);
    let mut run = story.begin("run");
    story.steps(&mut run, 5);
    let _ = run.so_far().unwrap();
    let folder = story.path("run");
    assert!(!folder.join("timing.jsonl").exists() && !folder.join("diagnostics.jsonl").exists());
    let ledger = Place::new(folder.join(LEDGER_FILE)).read(&[]).unwrap();
    for entry in ledger.entries().unwrap().map(Result::unwrap) {
        assert_eq!(entry.time() % DAY as u64, 0, "entry {}", entry.index());
    }
    let vectors = files(&folder.join(format!("{LEDGER_FILE}.released")));
    let checkpoints = files(&folder.join("checkpoints"));
    assert!(!vectors.is_empty() && !checkpoints.is_empty());
    for file in vectors.iter().chain(&checkpoints) {
        let meta = fs::metadata(file).unwrap();
        assert_eq!((meta.mtime() % DAY, meta.mtime_nsec()), (0, 0), "{}", file.display());
    }
    assert!(Kept::read(&RunFolder::at(&folder)).unwrap().timing.is_empty(), "pages would show where the time went");
}

/// An edited learning rate once was a warning, and with --quiet not even that.
#[test]
fn p21_a_run_goes_on_with_its_settings_or_not_at_all() {
    let story = Story::new(KINDS[0]);
    let mut run = story.begin("run");
    story.steps(&mut run, 2);
    drop(run);
    for (set, says) in [
        ("local.learning_rate=0.25", "local.learning_rate was 0.5 and is now 0.25"),
        ("evaluation.every=2", "evaluation.every was 3 and is now 2"),
        ("privacy.noise_multiplier=0.6", "privacy.noise_multiplier was 0.5 and is now 0.6"),
        ("server.learning_rate=0.1", "server.learning_rate was 0.5 and is now 0.1"),
    ] {
        let other = Story::new(&[set]);
        let error =
            Run::resume(RunFolder::at(story.path("run")), &other.plan, &other.opened, means()).map(drop).unwrap_err();
        assert!(matches!(error, RunError::SettingsChanged { .. }), "{set}: {error}");
        assert!(error.to_string().contains(says), "{set}: {error}");
    }
    // What was kept of them is keyed: changing both does not help.
    let kept = story.secret("run", ".beginning");
    let text = fs::read_to_string(&kept).unwrap().replace("learning_rate = 0.5", "learning_rate = 0.25");
    fs::write(&kept, text).unwrap();
    let error = story.resume("run").map(drop).unwrap_err();
    assert!(matches!(error, RunError::SettingsChanged { .. }), "{error}");
    fs::remove_file(&kept).unwrap();
    let error = story.resume("run").map(drop).unwrap_err();
    assert!(matches!(error, RunError::BeginningMissing { .. }), "{error}");
}

/// Without the key by which it recognises its data a run once went on with any data; with another noise key, in another order
/// of arrivals. A head that is missing made it draw new keys.
#[test]
fn p21_a_run_that_cannot_recognise_itself_does_not_go_on() {
    let story = Story::new(KINDS[0]);
    let mut run = story.begin("run");
    story.steps(&mut run, 2);
    drop(run);
    let without = |suffix: &str, other: &[u8]| {
        let path = story.secret("run", suffix);
        let kept = fs::read(&path).unwrap();
        fs::write(&path, other).unwrap();
        let error = story.resume("run").map(drop).unwrap_err();
        fs::write(&path, kept).unwrap();
        error
    };
    assert!(matches!(without(".pseudonym-key", b"nothing"), RunError::RecognitionKeyMissing));
    assert!(matches!(without(".noise-key", "ab".repeat(32).as_bytes()), RunError::NoiseKeyChanged));
    let head = story.path("run").join(format!("{LEDGER_FILE}.head"));
    let (kept, noise) = (fs::read(&head).unwrap(), fs::read(story.secret("run", ".noise-key")).unwrap());
    fs::remove_file(&head).unwrap();
    let error = story.resume("run").map(drop).unwrap_err();
    assert!(error.to_string().contains("no head file"), "{error}");
    assert_eq!(noise, fs::read(story.secret("run", ".noise-key")).unwrap());
    fs::write(&head, kept).unwrap();
    let run = story.resume("run").unwrap();
    assert_eq!(run.state().round, 2);
}

/// Killed between its first entry and its head, a run could neither be begun nor gone on with.
#[test]
fn a_run_that_was_killed_before_its_first_head_goes_on() {
    let story = Story::new(KINDS[0]);
    drop(story.begin("run"));
    let ledger = story.path("run").join(LEDGER_FILE);
    assert_eq!(fs::read_to_string(&ledger).unwrap().lines().count(), 1);
    fs::remove_file(story.path("run").join(format!("{LEDGER_FILE}.head"))).unwrap();
    fs::remove_dir_all(story.path("run/checkpoints")).unwrap();
    fs::remove_file(story.secret("run", ".beginning")).unwrap();
    let mut run = story.resume("run").unwrap();
    story.steps(&mut run, 9);
    assert_eq!(run.finish().unwrap().rounds, 9);
}

/// Where nothing but the ledger is left, a run can still be closed and its keys destroyed.
#[test]
fn p20_a_run_can_be_ended_with_its_ledger_alone() {
    let story = Story::new(KINDS[0]);
    let mut run = story.begin("run");
    story.steps(&mut run, 3);
    drop(run);
    fs::remove_dir_all(story.path("run/checkpoints")).unwrap();
    fs::remove_file(story.path("run/config.toml")).unwrap();
    let statement = run::end_without_model(&RunFolder::at(story.path("run"))).unwrap();
    assert_eq!(statement.ledger.closing.unwrap().because, Ended::ByHand);
    assert_eq!(files(&story.path("run/secret")), [story.secret("run", ".signing-key")]);
    assert!(story.path("run/statement.md").is_file());
}

/// The model that a run started from, changed in the midst of it.
#[test]
fn p21_a_run_goes_on_from_where_it_started_or_not_at_all() {
    let first = Story::new(&["noise_seed=4"]);
    let models = [("a", 9), ("b", 5)].map(|(name, steps)| {
        let mut run = first.begin(name);
        first.steps(&mut run, steps);
        run.finish().unwrap();
        first.path(name).join("model")
    });
    let public = first.folder.path().join("elsewhere/public");
    copy(&models[0], &public);
    let from = format!("model.from={}", public.display());
    let set = [
        from.as_str(),
        "model.public=a test",
        "model.preset=",
        "model.vocabulary=",
        "model.hidden=",
        "model.embedding=",
    ];
    let story = Story::new(&set);
    let mut run = story.begin("run");
    story.steps(&mut run, 2);
    drop(run);
    copy(&models[1], &public);
    let opened = Opened::new(&story.plan.config).unwrap();
    let error = Run::resume(RunFolder::at(story.path("run")), &story.plan, &opened, means()).map(drop).unwrap_err();
    assert!(matches!(error, RunError::StartChanged), "{error}");
    copy(&models[0], &public);
    let opened = Opened::new(&story.plan.config).unwrap();
    assert!(Run::resume(RunFolder::at(story.path("run")), &story.plan, &opened, means()).is_ok());
    // A run that is not over cannot be started from: what it costs is not known.
    let open = Story::new(&[]);
    drop(open.begin("run"));
    copy(&models[0], &open.path("run/model"));
    let from = format!("model.from={}", open.path("run").display());
    let set: Vec<String> = [&[from.as_str()][..], &set[2..]].concat().iter().map(|s| (*s).to_owned()).collect();
    let config = Document::new(&small_runs::with(RUN, &CHANGES), &set).unwrap().config().unwrap();
    let refused = Opened::new(&config).map(drop).unwrap_err().to_string();
    assert!(refused.contains("has not finished") || refused.contains("does not belong to this ledger"), "{refused}");
}

/// Every upgrade would have stranded every run.
#[test]
fn another_version_of_the_program_goes_on() {
    let mut story = Story::new(KINDS[0]);
    story.plan.ledger.software = "keyhush 0.0.1".into();
    let mut run = story.begin("run");
    story.steps(&mut run, 2);
    drop(run);
    story.plan.ledger.software = "keyhush 99".into();
    let run = story.resume("run").unwrap();
    assert_eq!(run.state().round, 2);
    drop(run);
    // And only that may differ.
    story.plan.ledger.population += 1;
    assert!(matches!(story.resume("run").map(drop), Err(RunError::OtherPlan { .. })));
}

/// Signed entries once held what Rust prints for debugging, which nobody promises to keep.
#[test]
fn signed_entries_hold_no_debug_output() {
    let story = Story::new(KINDS[0]);
    let run = story.begin("run");
    let Some(Ok(first)) = run.ledger().entries().unwrap().next() else { panic!("no entry") };
    let Body::Opening(opening) = first.body() else { panic!("another entry") };
    assert_eq!(opening.plan.phases[0].parameters["estimator"], "fixed");
}
