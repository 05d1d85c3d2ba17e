//! Rule P15 for sweeps: who chooses among runs pays for all of them, also for one that never ended and for one that went on.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    path::{Path, PathBuf},
    slice,
};

use crate::workshop::{self, Idle, all, ledger, means, own_event, plan, rest, some, started_from, undecided, whole};
use keyhush_federated::{
    home::{RunFolder, STATEMENT_FILE, STATEMENT_JSON},
    run::{self, Kept, Opened, Run, RunError},
    sweep::choice,
};
use ledger::ImportKind;
use privacy::PrivacyEvent;

/// The folder of a sweep over two clips: one run is done, the other one began and did two of its six rounds.
fn sweep(folder: &Path) -> [PathBuf; 2] {
    let [done, begun] = ["clip.norm=0.5/seed-0", "clip.norm=0.8/seed-0"].map(|run| folder.join(run));
    undecided(&done, &[], &mut Idle::default());
    std::fs::create_dir_all(begun.parent().unwrap()).unwrap();
    some(&begun, &OTHER, 2, &mut Idle::default());
    [done, begun]
}

const OTHER: [&str; 2] = ["clip.norm=0.8", "noise_seed=9"];

/// What runs cost together, from what each of them released itself, or, if it did not end, from its whole plan: who stops a
/// run may have looked at what it released.
fn together(runs: &[&Path]) -> f64 {
    let plan = ledger(runs[0]).plan().clone();
    let is_done = |run: &Path| ledger(run).releases().values().sum::<u64>() == 6;
    let event = |run: &Path| if is_done(run) { own_event(run) } else { ledger(run).plan().event() };
    let events = runs.iter().map(|run| event(run)).collect();
    plan.accountant.judge(&PrivacyEvent::Compose { events }, plan.delta).unwrap().epsilon.get()
}

#[test]
fn p15_a_run_that_did_not_end_has_looked_at_the_users_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let [done, begun] = sweep(folder.path());
    let found = choice::begun(folder.path()).unwrap();
    assert_eq!(found, [done.clone(), begun.clone()]);
    let stated = choice::record(&done, slice::from_ref(&begun), means()).unwrap().price.epsilon.get();
    let both = together(&[&done, &begun]);
    assert!((stated / both - 1.0).abs() < 1e-9, "{stated} instead of {both}");
    assert!(stated > 1.01 * together(&[&done]));
}

/// The run was counted when it had done two rounds, and has done six since: all six were counted, once.
#[test]
fn p15_a_run_that_went_on_after_it_was_counted_is_counted_whole_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let [done, other] = sweep(folder.path());
    let (plan, opened) = plan(&[]);
    let mut run = Run::resume(RunFolder::at(&done), &plan, &opened, means()).unwrap();
    let cost = |run: &Run<'_>| {
        let event = run.ledger().guaranteed_sweep_event().unwrap();
        plan.ledger.accountant.judge(&event, plan.ledger.delta).unwrap().epsilon.get()
    };
    let mut count = || {
        run.count_sweep_run(ledger(&other).as_import(ImportKind::SweepRun, "the other", true)).unwrap();
        cost(&run)
    };
    let early = count();
    assert_eq!(count(), early, "nothing new has happened");
    rest(&other, &OTHER, &mut Idle::default());
    let (late, both) = (count(), together(&[&done, &other]));
    assert!((early / both - 1.0).abs() < 1e-9, "{early} before it went on, and both cost {both}");
    assert!((late / both - 1.0).abs() < 1e-9, "{late} after it went on, and both cost {both}");
}

/// A run of a sweep that started from a model has looked at that model's users too.
#[test]
fn p15_a_run_of_a_sweep_is_counted_with_the_model_that_it_started_from() {
    let folder = tempfile::tempdir().unwrap();
    let (first, sweep) = (folder.path().join("first"), folder.path().join("sweep"));
    whole(&first, &["noise_seed=5"], &mut Idle::default());
    let [alone, started] = ["a/seed-0", "b/seed-0"].map(|run| sweep.join(run));
    undecided(&alone, &[], &mut Idle::default());
    undecided(&started, &all(&started_from(&first), &["noise_seed=7"]), &mut Idle::default());
    let stated = choice::record(&alone, slice::from_ref(&started), means()).unwrap().price.epsilon.get();
    let three = together(&[&alone, &started, &first]);
    assert!((stated / three - 1.0).abs() < 1e-9, "{stated} instead of {three}");
}

/// Rule P22: until the choice is counted, a run of a sweep has no price, is not ended by itself and is no start for another; also
/// where it was killed while it was begun.
#[test]
fn p22_a_run_of_a_sweep_cannot_be_taken_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other, begun] = ["one", "other", "begun"].map(|name| folder.path().join(name));
    undecided(&one, &[], &mut Idle::default());
    undecided(&other, &OTHER, &mut Idle::default());
    run::belongs_to_a_sweep(&RunFolder::at(&begun)).unwrap();
    let (plan, opened) = plan(&["noise_seed=9"]);
    drop(Run::begin(RunFolder::at(&begun), &plan, &opened, means()).unwrap());
    for path in [&one, &other, &begun] {
        assert!(run::is_undecided(&RunFolder::at(path)).unwrap() && run::stated(&RunFolder::at(path)).is_none());
        let error = run::end_without_model(&RunFolder::at(path)).err().unwrap();
        assert!(matches!(error, RunError::Undecided { .. }), "{error}");
        assert!(!ledger(path).is_closed(), "it is left as it was");
    }
    for path in [&one, &other] {
        assert!(!path.join(STATEMENT_FILE).exists() && !path.join(STATEMENT_JSON).exists());
        let kept = Kept::read(&RunFolder::at(path)).unwrap();
        assert!(
            kept.remark().contains("this run alone") && kept.sentence.contains("has not finished"),
            "{}",
            kept.sentence
        );
    }
    let card = std::fs::read_to_string(one.join("model/README.md")).unwrap();
    assert!(card.contains("not counted yet"), "{card}");
    let from = started_from(&one);
    let error = Opened::new(&workshop::config(&all(&from, &[]))).err().unwrap();
    assert!(matches!(error, RunError::Undecided { .. }), "{error}");
    choice::record(&one, slice::from_ref(&other), means()).unwrap();
    for path in [&one, &other] {
        assert!(
            !run::is_undecided(&RunFolder::at(path)).unwrap()
                && run::stated(&RunFolder::at(path)).is_some()
                && ledger(path).is_closed()
        );
        let kept = Kept::read(&RunFolder::at(path)).unwrap();
        assert!(!kept.remark().contains("alone") && !kept.sentence.contains("alone"), "{}", kept.sentence);
        run::belongs_to_a_sweep(&RunFolder::at(path)).unwrap();
        assert!(!run::is_undecided(&RunFolder::at(path)).unwrap(), "what is decided stays decided");
    }
}
