//! A real process that asks for step after step, killed at every sync and rename and at random points, and started again.
//!
//! The victim is this test binary run again. It opens the guard, or begins it the first time, asks for every step from the
//! first on, under two names of the task, and prints each input as it lets it go. Over all its lives no step and no model
//! may be printed twice. A kill leaves the page cache alone, so this shows order; that everything is synced is shown by
//! the simulated power losses in `guard::file`.
#![cfg(all(feature = "files", unix))]
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{collections::BTreeSet, io::Write, path::Path, process::Command, time::Duration};

use crate::killed::{Spread, Victim, strace_works, victim_alone};
use keyhush_device::guard::{
    Asked, Guard, GuardError, Limits, ModelDigest, Now, Store, StoreError, TaskDigest, Timer, Window, file::FileStore,
};

const PATH: &str = "KEYHUSH_TEST_VICTIM_GUARD";
const LATE: &str = "KEYHUSH_TEST_VICTIM_LATE";
const STEPS: &str = "KEYHUSH_TEST_VICTIM_STEPS";

/// Not a test by itself: what is run, and killed, by the others.
#[test]
fn victim() {
    let Ok(path) = std::env::var(PATH) else { return };
    let steps: u64 = std::env::var(STEPS).unwrap().parse().unwrap();
    let late = std::env::var(LATE).is_ok();
    let store = || SavesLate { store: FileStore::lock(&path).unwrap(), late, unsaved: None };
    let mut guard = match Guard::open(store()) {
        Err(GuardError::Missing) => Guard::begin(store()).unwrap(),
        opened => opened.unwrap(),
    };
    let limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };
    for step in 0..steps {
        for task in [1, 2] {
            let asked = Asked { task: TaskDigest([task; 32]), step, model: ModelDigest::of(&[step as f32]) };
            if let Ok(permit) = guard.allow(asked, &limits, Now { up_ms: 0, clock_s: 0 }) {
                let leaving = permit.let_go(step);
                let mut out = std::io::stdout().lock();
                writeln!(out, "let go {}", leaving.input()).and_then(|()| out.flush()).unwrap();
            }
        }
    }
}

/// A store that, where it is late, says that it has saved and saves the next time: what the check must catch.
struct SavesLate {
    store: FileStore,
    late: bool,
    unsaved: Option<Vec<u8>>,
}

impl Store for SavesLate {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.load()
    }

    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if !self.late {
            return self.store.save(bytes);
        }
        match self.unsaved.replace(bytes.to_vec()) {
            Some(before) => self.store.save(&before),
            None => Ok(()),
        }
    }
}

/// How to run the victim: as it is, or under strace with something injected.
fn command(path: &Path, steps: u64, inject: Option<&str>) -> Command {
    let mut command = victim_alone("guard_crash::victim", inject);
    command.env(PATH, path).env(STEPS, steps.to_string()).env_remove(LATE);
    command
}

/// The steps that a victim lets go of, once it is started.
fn start(command: &mut Command) -> Victim<u64> {
    Victim::start(command, "let go ")
}

/// Runs the victim once for every call of a system call, killed on entering it, until a run ends by itself; and each time once
/// more to its end. How many were killed.
fn kill_at_every(call: &str) -> u64 {
    for n in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard");
        let inject = format!("{call}:signal=SIGKILL:when={n}");
        let (first, ended) = start(&mut command(&path, 2, Some(&inject))).end();
        let (second, whole) = start(&mut command(&path, 3, None)).end();
        assert!(whole && second.contains(&2), "killed at {call} number {n} the guard is of no use: {second:?}");
        let twice: Vec<&u64> = first.iter().filter(|step| second.contains(step)).collect();
        assert!(twice.is_empty(), "killed at {call} number {n}: {twice:?} left twice");
        if ended {
            assert_eq!((first, second), (vec![0, 1], vec![2]));
            return n - 1;
        }
    }
    unreachable!("a run ends after finitely many calls")
}

#[test]
fn p24_killed_at_every_sync_and_rename_no_step_leaves_twice() {
    if !strace_works() {
        eprintln!("SKIPPED: strace is missing or may not trace here; the random kills are all there is");
        return;
    }
    // To look for a guard syncs its folder, to save one syncs it and its folder. A question mark: it need not exist here.
    for (call, exactly) in [("fsync", Some(1 + 1 + 3 * 2)), ("?rename,?renameat,?renameat2", Some(3)), ("write", None)]
    {
        let killed = kill_at_every(call);
        assert!(exactly.is_none_or(|n| n == killed), "{killed} kills at {call}: is it still how files are written?");
    }
}

/// Kills victims one after the other; how many died after they let go of something, and the steps that left twice.
fn kill_at_random(lives: u64, late: bool) -> (u64, Vec<u64>) {
    let mut spread = Spread(20_260_101);
    let (mut killed, mut twice) = (0, Vec::new());
    let mut folder = tempfile::tempdir().unwrap();
    let mut gone = BTreeSet::new();
    for number in 0..lives {
        // A guard lives through some deaths, and then a new one begins.
        if number % 8 == 0 {
            (folder, gone) = (tempfile::tempdir().unwrap(), BTreeSet::new());
        }
        // One half dies some time after it was born, the other some time after its first input.
        let after_first = number % 2 == 1;
        let micros = spread.below(if after_first { 10_000 } else { 30_000 });
        let mut command = command(&folder.path().join("guard"), 400, None);
        if late {
            command.env(LATE, "1");
        }
        let mut victim = start(&mut command);
        if !after_first || victim.says_something() {
            std::thread::sleep(Duration::from_micros(micros));
        }
        let (steps, ended) = victim.kill();
        killed += u64::from(!ended && !steps.is_empty());
        twice.extend(steps.into_iter().filter(|step| !gone.insert(*step)));
    }
    (killed, twice)
}

#[test]
fn p24_killed_at_random_no_step_and_no_model_leaves_twice() {
    let (killed, twice) = kill_at_random(200, false);
    assert!(twice.is_empty(), "{killed} kills; steps that left twice: {twice:?}");
    assert!(killed >= 60, "only {killed} victims died after an input: give them more time");
}

#[test]
fn p24_a_guard_that_is_saved_after_the_input_left_is_caught() {
    let (killed, twice) = kill_at_random(40, true);
    assert!(!twice.is_empty(), "{killed} kills, and the check has no teeth");
}
