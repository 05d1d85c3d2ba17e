//! Rounds that come to nothing: nobody's input leaves twice for a step, what failed is on record before anything else happens,
//! and a run goes on, or stops before it breaks a limit.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::Path,
    process::Command,
};

use crate::workshop::{self, ARRIVAL, ledger, means, nothing_of, plan, rest, some, step, whole, with};
use device::round::Task;
use keyhush_federated::{
    engine::{
        Engine, EngineError, Summed, Users,
        secure::{SecureError, SecureTask, Secured},
    },
    fleet::FleetError,
    home::{RunFolder, STATEMENT_FILE},
    metrics::{METRICS_FILE, TIMING_FILE},
    round::{
        RoundError,
        attempts::{MOST_FAILED_ATTEMPTS, MOST_INTERRUPTIONS},
    },
    run::{Kept, Run, RunError, end_without_model},
};
use ledger::{Basis, Failure, FailureReason};
use secagg::server::RoundFailure;
use serde_json::Value;

const SECURE: [&str; 3] = ["aggregation=secagg", "participation.cohort=40", "evaluation.every=2"];

/// What becomes of an attempt, after its users have sent their inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Gives,
    Fails,
    /// The machine fails in the midst of it.
    Breaks,
    /// The program is killed in the midst of it.
    Killed,
}

/// Devices whose attempts have the fates that a script says, by how many attempts there were, and a book of who sent what.
#[derive(Debug, Default)]
struct Scripted {
    fates: BTreeMap<usize, Fate>,
    /// The step of each attempt, and whose input left.
    sent: Vec<(u64, Vec<u64>)>,
    /// What one user would have drawn in each attempt, for rounding and for noise.
    drew: Vec<u64>,
    /// The digest of the model of each attempt.
    models: Vec<[u8; 32]>,
    /// Where the book is kept for another process.
    kept_in: Option<std::path::PathBuf>,
}

impl Scripted {
    fn new(fates: &[(usize, Fate)]) -> Self {
        Self { fates: fates.iter().copied().collect(), ..Self::default() }
    }

    /// Rules P6, P18 and P24, over all attempts whatever became of them.
    fn check(&self, between: u64, most: usize) {
        check(&self.sent, between, most);
    }
}

fn check(sent: &[(u64, Vec<u64>)], between: u64, most: usize) {
    let mut steps: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (step, users) in sent {
        users.iter().for_each(|user| steps.entry(*user).or_default().push(*step));
    }
    for (user, steps) in steps {
        assert!(steps.windows(2).all(|w| w[1] != w[0]), "the input of user {user} left twice for one step: {steps:?}");
        assert!(steps.windows(2).all(|w| w[1] > w[0] + between), "user {user} came back too early: {steps:?}");
        assert!(steps.len() <= most, "user {user} came too often: {steps:?}");
    }
}

impl Engine for Scripted {
    fn sum(&mut self, _: &Task<'_>, _: &Users<'_>) -> Result<Summed, EngineError> {
        Err(EngineError::NotSecure)
    }

    fn sum_securely(
        &mut self,
        _: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        let fate = self.fates.get(&self.sent.len()).copied().unwrap_or(Fate::Gives);
        self.sent.push((secure.terms.round, users.numbers.to_vec()));
        self.models.push(secure.terms.model);
        self.drew.extend([users.key, secure.noise].map(|key| key.chunk(7).next_word()));
        if let Some(path) = &self.kept_in {
            let mut book = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
            writeln!(book, "{}", serde_json::to_string(&(secure.terms.round, users.numbers)).unwrap()).unwrap();
            book.sync_all().unwrap();
        }
        match fate {
            Fate::Gives => Ok(nothing_of(secure, u64::from(secure.secure.least_survivors))),
            Fate::Fails => Err(SecureError::Failed(RoundFailure::NotCancelled).into()),
            Fate::Breaks => Err(EngineError::Died),
            Fate::Killed => std::process::abort(),
        }
    }
}

/// Goes on with a run, through any number of broken machines.
fn through(folder: &Path, set: &[&str], fleet: &mut Scripted) {
    let (plan, opened) = plan(set);
    loop {
        let begin = if folder.exists() { Run::resume } else { Run::begin };
        let mut run = begin(RunFolder::at(folder), &plan, &opened, means()).unwrap();
        for number in 0.. {
            assert!(number < 40, "it does not get on");
            match step(&mut run, &plan, &opened, folder, fleet) {
                Ok(step) if step.over.is_some() => {
                    run.finish().unwrap();
                    return;
                }
                Ok(_) => {}
                Err(RunError::Round(error))
                    if matches!(*error, RoundError::Fleet(FleetError::Engine(EngineError::Died))) =>
                {
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn failures(folder: &Path) -> Vec<(u64, u32, FailureReason)> {
    let ledger = ledger(folder);
    let of_step = |(step, all): (u64, &[ledger::Failure])| {
        all.iter().map(|one| (step, one.attempt, one.reason)).collect::<Vec<_>>()
    };
    ledger.failed_steps("model").flat_map(of_step).collect()
}

/// Rule P24: over failed attempts, machines that break and restarts of the program, for seeded and for secret noise, with
/// independent and with correlated noise.
#[test]
fn p24_nobodys_input_leaves_twice_for_a_step() {
    let script = [(1, Fate::Fails), (2, Fate::Breaks), (4, Fate::Fails), (5, Fate::Fails), (8, Fate::Breaks)];
    for set in
        [vec![], vec!["noise_seed="], vec!["privacy.mechanism=tree"], vec!["privacy.mechanism=tree", "noise_seed="]]
    {
        let set = with(&[&ARRIVAL, &SECURE, &set]);
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let mut fleet = Scripted::new(&script);
        through(&run, &set, &mut fleet);
        fleet.check(3, 4);
        assert_eq!(fleet.sent.len(), 6 + script.len(), "every step was released in the end");
        let drew: BTreeSet<u64> = fleet.drew.iter().copied().collect();
        assert_eq!(drew.len(), 2 * fleet.sent.len(), "what users draw is fresh in every attempt");
        let reasons = [FailureReason::NotWhole, FailureReason::Interrupted];
        let expected = [(1, 0, 0), (1, 1, 1), (2, 0, 0), (2, 1, 0), (4, 0, 1)].map(|(s, a, r)| (s, a, reasons[r]));
        assert_eq!(failures(&run), expected, "{set:?}");
        let ledger = ledger(&run);
        assert_eq!((ledger.releases()["model"], ledger.basis()), (6, Basis::Spent));
    }
}

/// A failed attempt is the one participation of everybody who was asked.
#[test]
fn p24_a_device_takes_part_once_where_each_may_come_once() {
    let set = with(&[&SECURE, &["participation.kind=once"]]);
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = Scripted::new(&[(0, Fate::Fails), (3, Fate::Breaks), (4, Fate::Fails)]);
    through(&folder.path().join("run"), &set, &mut fleet);
    fleet.check(1000, 1);
    assert_eq!(fleet.sent.len(), 9);
}

const VICTIM: &str = "KEYHUSH_TEST_VICTIM_ROUNDS";

/// Not a test by itself: what is killed by the next.
#[test]
fn victim() {
    let Ok(folder) = std::env::var(VICTIM) else { return };
    let folder = Path::new(&folder);
    let book = folder.join("book");
    let before = fs::read_to_string(&book).unwrap_or_default().lines().count();
    let set: String = fs::read_to_string(folder.join("set")).unwrap();
    let set: Vec<&str> = set.lines().collect();
    // Each process fails one attempt and is killed in the midst of the next but one.
    let mut fleet = Scripted::new(&[(0, Fate::Fails), (if before < 6 { 2 } else { 99 }, Fate::Killed)]);
    fleet.kept_in = Some(book);
    through(&folder.join("run"), &set, &mut fleet);
}

#[test]
fn p24_nor_where_the_program_is_killed_in_the_midst_of_an_attempt() {
    let sampled: &[&str] = &["participation.kind=fixed-size"];
    for (kind, noise) in [(&ARRIVAL[..], "noise_seed=3"), (&ARRIVAL, "noise_seed="), (sampled, "noise_seed=")] {
        let set = with(&[kind, &SECURE, &[noise]]);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("set"), set.join("\n")).unwrap();
        let mut deaths = 0;
        loop {
            let mut victim = Command::new(std::env::current_exe().unwrap());
            let output = victim.args(["--exact", "failed_rounds::victim"]).env(VICTIM, folder.path()).output().unwrap();
            if output.status.success() {
                break;
            }
            deaths += 1;
            assert!(deaths < 9, "{}", String::from_utf8_lossy(&output.stdout));
        }
        let book = fs::read_to_string(folder.path().join("book")).unwrap();
        let sent: Vec<(u64, Vec<u64>)> = book.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let failed = failures(&folder.path().join("run"));
        assert!(deaths >= 2 && failed.iter().filter(|f| f.2 == FailureReason::Interrupted).count() == deaths);
        if kind == sampled {
            assert!(sent.iter().map(|(step, _)| *step).eq(0..6), "a sampled step is attempted once");
        } else {
            check(&sent, 3, 4);
            assert_eq!(sent.len(), 6 + failed.len());
        }
    }
}

/// Rule P21: a sampled step is attempted once. The run goes on without it, the ledger has it, nothing cost less than was
/// released, and it ends as planned.
#[test]
fn p21_a_sampled_plan_goes_on_after_a_round_that_failed() {
    let settings =
        [vec![], vec!["noise_seed="], vec!["noise_seed=", "participation.kind=poisson", "participation.cohort=100"]];
    for set in settings {
        let set = with(&[&SECURE, &["secagg.corrupted=0.1"], &set]);
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let mut fleet = Scripted::new(&[(1, Fate::Fails), (3, Fate::Breaks)]);
        through(&run, &set, &mut fleet);
        assert!(fleet.sent.iter().map(|(step, _)| *step).eq(0..6), "each step was attempted once");
        assert_eq!(failures(&run), [(1, 0, FailureReason::NotWhole), (3, 0, FailureReason::Interrupted)]);
        let ledger = ledger(&run);
        assert_eq!((ledger.releases()["model"], ledger.last_step("model"), ledger.basis()), (4, Some(5), Basis::Plan));
        let delta = ledger.plan().delta;
        let (guaranteed, spent) = (ledger.guaranteed().unwrap().epsilon, ledger.epsilon(delta).unwrap().epsilon);
        assert!(guaranteed > spent, "{guaranteed} for what cost {spent}");

        let read = |name: &str| fs::read_to_string(run.join(name)).unwrap();
        assert!(read(METRICS_FILE).lines().last().unwrap().contains(r#""failed_attempts":2"#));
        let kept = Kept::read(&RunFolder::at(&run)).unwrap();
        assert!(kept.sentence.contains("2 of which failed"), "{}", kept.sentence);
        let failed = kept.failed.iter().map(|failed| (failed.round, failed.reason, failed.passed_over));
        assert!(failed.eq([(1, FailureReason::NotWhole, true), (3, FailureReason::Interrupted, true)]));
        assert!(read(STATEMENT_FILE).contains("as if they had been released"));
    }
}

/// A step that was passed over leaves the model as it is, and a device gives one input for a model: whoever was asked is not there
/// until something is released. Machines that break and restarts change nothing of it.
#[test]
fn p24_nobody_is_asked_twice_for_a_model() {
    let fates = [(1, Fate::Fails), (2, Fate::Breaks), (3, Fate::Fails), (6, Fate::Breaks)];
    for kind in ["fixed-size", "poisson"] {
        let kind = format!("participation.kind={kind}");
        let set = with(&[
            &SECURE,
            &["participation.population=600", "participation.cohort=100", "rounds=9", "secagg.corrupted=0.1", &kind],
        ]);
        let folder = tempfile::tempdir().unwrap();
        let mut fleet = Scripted::new(&fates);
        through(&folder.path().join("run"), &set, &mut fleet);
        let mut given = BTreeSet::new();
        let all =
            fleet.models.iter().zip(&fleet.sent).flat_map(|(model, (_, users))| users.iter().map(move |u| (model, u)));
        all.for_each(|(model, user)| assert!(given.insert((*model, *user)), "user {user} was asked twice for a model"));
        // Whoever was drawn and is not there is asked again once the model has changed.
        let asked = |step: usize| fleet.sent[step].1.iter().copied().collect::<BTreeSet<u64>>();
        assert!(asked(4).len() < 80 && asked(5).intersection(&asked(3)).count() > 0);

        let mut restarted = Scripted::new(&fates.map(|(n, _)| (n, Fate::Fails)));
        let path = folder.path().join("restarted");
        (0..9).for_each(|_| some(&path, &set, 1, &mut restarted));
        assert_eq!(fleet.sent, restarted.sent);
    }
}

/// Where everybody is drawn for every step, a step that failed leaves nobody for the next: the run ends with what it has.
#[test]
fn p24_a_run_in_which_nobody_is_left_ends_as_planned() {
    let set = with(&[&SECURE, &["participation.population=40"]]);
    let folder = tempfile::tempdir().unwrap();
    let (plan, opened) = plan(&set);
    let mut devices = workshop::threads(&plan, &opened);
    let path = folder.path().join("run");
    let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
    let mut next = |engine: &mut dyn Engine| step(&mut run, &plan, &opened, &path, engine).unwrap();
    assert!(next(devices.as_mut()).done.is_some());
    assert!(next(&mut Scripted::new(&[(0, Fate::Fails)])).failed.is_some());
    for _ in 2..6 {
        let failed = next(devices.as_mut()).failed.unwrap();
        assert!(failed.passed_over && failed.reason == FailureReason::BelowGoal);
    }
    assert_eq!(run.finish().unwrap().rounds, 6);
}

/// Who is drawn for the steps after a failure is who would have been drawn without it, but for those who were asked for this
/// model already; and the model is left alone by a round that failed.
#[test]
fn a_round_that_failed_changes_nothing_else() {
    let set = with(&[&SECURE, &["checkpoint.every=100"]]);
    let folder = tempfile::tempdir().unwrap();
    let (mut all, mut failing) = (Scripted::default(), Scripted::new(&[(2, Fate::Fails)]));
    whole(&folder.path().join("all"), &set, &mut all);
    let (plan, opened) = plan(&set);
    let path = folder.path().join("failing");
    let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
    let mut models = vec![run.state().model.clone()];
    loop {
        let step = step(&mut run, &plan, &opened, &path, &mut failing).unwrap();
        assert_eq!(step.failed.is_some(), models.len() == 3);
        models.push(run.state().model.clone());
        if step.over.is_some() {
            break;
        }
    }
    assert!(models[2] == models[3] && models[3] != models[4]);
    let failed = &failing.sent[2].1;
    for ((step, drawn), (_, asked)) in all.sent.iter().zip(&failing.sent) {
        assert!(drawn.iter().filter(|user| *step != 3 || !failed.contains(user)).eq(asked), "step {step}");
    }
}

#[test]
fn a_run_whose_every_round_failed_ends_as_planned() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut fleet = Scripted::new(&[0, 1, 2, 3, 4, 5].map(|n| (n, Fate::Fails)));
    let ending = whole(&run, &SECURE, &mut fleet);
    assert_eq!((ending.rounds, ending.stopped), (6, None));
    let ledger = ledger(&run);
    assert!(ledger.is_closed() && ledger.releases().is_empty());
    assert!(!run.join("secret/ledger.jsonl.attempt").exists(), "nothing says which attempt was the last");
    assert_eq!(ledger.failed_attempts(), 6);
    assert!(ledger.guaranteed().unwrap().epsilon.get() > 0.0);
}

/// The program ends between a failure and the next attempt: it lands where it would have, with the same users.
#[test]
fn p24_a_restart_between_a_failure_and_the_next_attempt_lands_in_the_same_place() {
    let fates = [(1, Fate::Fails), (2, Fate::Fails), (5, Fate::Fails)];
    let seldom = ["evaluation.every=1", "checkpoint.every=100"];
    for set in [with(&[&ARRIVAL, &SECURE]), with(&[&SECURE]), with(&[&ARRIVAL, &SECURE, &seldom])] {
        let folder = tempfile::tempdir().unwrap();
        let mut straight = Scripted::new(&fates);
        whole(&folder.path().join("straight"), &set, &mut straight);
        let mut restarted = Scripted::new(&fates);
        let path = folder.path().join("restarted");
        (0..7).for_each(|_| some(&path, &set, 1, &mut restarted));
        rest(&path, &set, &mut restarted);
        assert_eq!(straight.sent, restarted.sent);
        assert_eq!(failures(&folder.path().join("straight")), failures(&path));
        let model = |name: &str| fs::read(folder.path().join(name).join("model/model.safetensors")).unwrap();
        assert!(model("straight") == model("restarted"));
        let read = |name: &str, file: &str| fs::read_to_string(folder.path().join(name).join(file)).unwrap();
        assert_eq!(read("straight", METRICS_FILE), read("restarted", METRICS_FILE));
        let timed = |name: &str| -> Vec<u64> {
            let round = |line: &str| serde_json::from_str::<Value>(line).unwrap()["round"].as_u64().unwrap();
            read(name, TIMING_FILE).lines().map(round).collect()
        };
        assert_eq!(timed("straight"), timed("restarted"), "rounds that were done keep their lines");
    }
}

/// Rule P21: what the cohort of an attempt was drawn from is erased with its failure, and not later.
#[test]
fn p21_the_seed_of_a_cohort_that_failed_is_erased() {
    for kind in [&[][..], &ARRIVAL] {
        let set = with(&[&SECURE, kind, &["noise_seed="]]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let (plan, opened) = plan(&set);
        let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
        let seed = || fs::read_to_string(path.join("secret/ledger.jsonl.cohort-seed")).unwrap();
        let mut next = |fates: &[(usize, Fate)]| {
            step(&mut run, &plan, &opened, &path, &mut Scripted::new(fates)).map(|step| step.failed)
        };
        assert!(next(&[(0, Fate::Breaks)]).is_err());
        assert!(!seed().trim().is_empty(), "it is kept until the attempt is recorded");
        assert!(next(&[]).unwrap().is_some());
        assert!(seed().trim().is_empty(), "of one that was interrupted");
        assert!(next(&[(0, Fate::Fails)]).unwrap().is_some());
        assert!(seed().trim().is_empty(), "of one that failed");
    }
}

/// A round that is passed over is followed by the checkpoint that is due, as one that was done.
#[test]
fn a_round_that_is_passed_over_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    some(&path, &with(&[&SECURE, &["checkpoint.every=2"]]), 2, &mut Scripted::new(&[(1, Fate::Fails)]));
    let names = fs::read_dir(path.join("checkpoints")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = names.collect();
    assert!(names.contains("round-00000002.safetensors"), "{names:?}");
}

/// Attempts of a step are bounded, and a run that stopped for it stays stopped: nobody is asked any more.
#[test]
fn attempts_at_a_round_are_bounded() {
    let set = with(&[&ARRIVAL, &SECURE]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut fleet = Scripted::new(&(1..99).map(|n| (n, Fate::Fails)).collect::<Vec<_>>());
    let (plan, opened) = plan(&set);
    for _ in 0..2 {
        let begin = if path.exists() { Run::resume } else { Run::begin };
        let mut run = begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
        let error = loop {
            if let Err(error) = step(&mut run, &plan, &opened, &path, &mut fleet) {
                break error;
            }
        };
        assert!(error.to_string().starts_with("round 2 failed in 5 attempts") && error.to_string().contains("--end"));
        assert_eq!(fleet.sent.len(), 1 + MOST_FAILED_ATTEMPTS);
    }
    fleet.check(3, 4);
}

/// A run whose program ends in the midst of every attempt says so each time, and stops for good instead of using up everybody's
/// participations, or of passing over its whole plan as if all were well.
#[test]
fn interruptions_are_said_and_bounded() {
    let arrival = with(&[&ARRIVAL, &SECURE, &["participation.population=2000"]]);
    for (set, first, last) in [(arrival, 1, 1), (with(&[&SECURE, &["rounds=20"]]), 1, MOST_INTERRUPTIONS as u64)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let mut fleet = Scripted::new(&(1..99).map(|n| (n, Fate::Breaks)).collect::<Vec<_>>());
        let (plan, opened) = plan(&set);
        some(&path, &set, 1, &mut fleet);
        for times in 0..MOST_INTERRUPTIONS + 2 {
            let mut run = Run::resume(RunFolder::at(&path), &plan, &opened, means()).unwrap();
            let mut next = || step(&mut run, &plan, &opened, &path, &mut fleet);
            if (1..=MOST_INTERRUPTIONS).contains(&times) {
                let failed = next().unwrap().failed.unwrap().to_string();
                assert!(failed.contains("the program was interrupted"), "{times}: {failed}");
            }
            let error = next().unwrap_err().to_string();
            assert_eq!(error.contains("in a row") && error.contains("--end"), times >= MOST_INTERRUPTIONS, "{error}");
        }
        assert_eq!(fleet.sent.len(), 1 + MOST_INTERRUPTIONS, "nobody is asked any more");
        let failed = failures(&path);
        assert!(failed.iter().all(|f| f.2 == FailureReason::Interrupted));
        assert_eq!((failed[0].0, failed[failed.len() - 1].0), (first, last));
        // It can be ended with what it has.
        Run::resume(RunFolder::at(&path), &plan, &opened, means()).unwrap().finish().unwrap();
        assert!(ledger(&path).is_closed());
    }
}

/// Whoever was asked may have sent an input, also where the run is ended and nobody asks again.
#[test]
fn p24_an_attempt_that_nobody_asks_for_again_is_recorded_when_the_run_ends() {
    for kind in [&ARRIVAL[..], &[]] {
        let set = with(&[kind, &SECURE]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let (plan, opened) = plan(&set);
        let mut engine = Scripted::new(&[(1, Fate::Breaks)]);
        some(&path, &set, 1, &mut engine);
        let mut run = Run::resume(RunFolder::at(&path), &plan, &opened, means()).unwrap();
        step(&mut run, &plan, &opened, &path, &mut engine).unwrap_err();
        drop(run);
        assert!(failures(&path).is_empty());
        let mut run = Run::resume(RunFolder::at(&path), &plan, &opened, means()).unwrap();
        run.finish().unwrap();
        assert!(run.warnings().iter().any(|said| said.contains("the program was interrupted")));
        drop(run);
        assert_eq!(failures(&path), [(1, 0, FailureReason::Interrupted)]);
        assert!(ledger(&path).is_closed());
    }
}

/// Interruptions between which something comes to its end are no reason to stop.
#[test]
fn interruptions_that_are_not_in_a_row_do_not_stop_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = Scripted::new(&(0..15).map(|n| (2 * n, Fate::Breaks)).collect::<Vec<_>>());
    through(&folder.path().join("run"), &with(&[&SECURE, &["rounds=30"]]), &mut fleet);
    assert_eq!(failures(&folder.path().join("run")).len(), 15);
}

/// Without knowing who was asked last nobody is asked, and the error says what to do.
#[test]
fn p24_a_damaged_note_of_an_attempt_stops_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    some(&path, &SECURE, 2, &mut Scripted::default());
    fs::write(path.join("secret/ledger.jsonl.attempt"), "{").unwrap();
    let (plan, opened) = plan(&SECURE);
    let error = Run::resume(RunFolder::at(&path), &plan, &opened, means()).err().unwrap().to_string();
    assert!(error.contains("ledger.jsonl.attempt is damaged") && error.contains("--without-model"), "{error}");
    end_without_model(&RunFolder::at(&path)).unwrap();
    assert!(ledger(&path).is_closed() && !path.join("secret/ledger.jsonl.attempt").exists());
}

/// A run that is ended without its model has no fleet to ask: the attempt that was interrupted is recorded all the same.
#[test]
fn p24_an_interrupted_attempt_is_recorded_also_without_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    some(&path, &SECURE, 2, &mut Scripted::default());
    let (mut open, _) = RunFolder::at(&path).place().open(&[]).unwrap();
    assert_eq!(open.begin_attempt("model", 2, 40).unwrap(), 0);
    drop(open);
    end_without_model(&RunFolder::at(&path)).unwrap();
    let (ledger, failure) = (ledger(&path), Failure { entry: 3, attempt: 0, reason: FailureReason::Interrupted });
    assert_eq!(ledger.failures("model", 2), [failure]);
    assert!(ledger.is_closed() && ledger.failures("model", 1).is_empty());
}

/// Rule P6: where failed attempts have used up what users may give, the run stops before it breaks a limit.
#[test]
fn p6_a_run_stops_before_it_breaks_a_limit() {
    // 240 users for 6 rounds of 40, each once: there is nobody for a second attempt.
    let set = with(&[&SECURE, &["participation.kind=once", "participation.population=240"]]);
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = Scripted::new(&[(2, Fate::Fails)]);
    let (plan, opened) = plan(&set);
    let path = folder.path().join("run");
    let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
    let error = loop {
        if let Err(error) = step(&mut run, &plan, &opened, &path, &mut fleet) {
            break error.to_string();
        }
    };
    assert!(error.contains("only 0 users may still take part in round 6, which needs 40"), "{error}");
    fleet.check(1000, 1);
    assert_eq!(fleet.sent.len(), 6);
    let asked: BTreeSet<u64> = fleet.sent.iter().flat_map(|(_, users)| users.iter().copied()).collect();
    assert_eq!(asked.len(), 240);
    // Nobody was asked for what could not be attempted, so the ledger says nothing of it, however often it is tried.
    drop(run);
    let mut run = Run::resume(RunFolder::at(&path), &plan, &opened, means()).unwrap();
    assert!(step(&mut run, &plan, &opened, &path, &mut fleet).is_err());
    drop(run);
    Run::resume(RunFolder::at(&path), &plan, &opened, means()).unwrap().finish().unwrap();
    assert_eq!(failures(&path), [(2, 0, FailureReason::NotWhole)]);
}
