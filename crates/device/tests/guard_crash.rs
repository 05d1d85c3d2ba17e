//! A real process that asks for step after step, killed at random points and started again.
//!
//! The victim is this test binary run again. It opens the guard, or begins it the first time, asks for every step from the
//! first on, under two names of the task, and prints each input as it lets it go. Over all its lives no step and no model
//! may be printed twice. A kill leaves the page cache alone, so this shows order; that everything is synced is shown by
//! the simulated power losses in `guard::file`.
#![cfg(all(feature = "files", unix))]
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use keyhush_device::guard::{
    Asked, Day, Guard, GuardError, Limits, ModelDigest, Store, StoreError, TaskDigest, Window, file::FileStore,
};

const PATH: &str = "KEYHUSH_TEST_VICTIM_GUARD";
const LATE: &str = "KEYHUSH_TEST_VICTIM_LATE";
const STEPS: u64 = 400;

/// Not a test by itself: what is run, and killed, by the others.
#[test]
fn victim() {
    let Ok(path) = std::env::var(PATH) else { return };
    let late = std::env::var(LATE).is_ok();
    let store = || SavesLate { store: FileStore::lock(&path).unwrap(), late, unsaved: None };
    let mut guard = match Guard::open(store()) {
        Err(GuardError::Missing) => Guard::begin(store()).unwrap(),
        opened => opened.unwrap(),
    };
    let limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None };
    for step in 0..STEPS {
        for task in [1, 2] {
            let asked = Asked { task: TaskDigest([task; 32]), step, model: ModelDigest::of(&[step as f32]) };
            if let Ok(permit) = guard.allow(asked, &limits, Day(0)) {
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

/// Numbers that repeat: a small generator is enough to spread kills over a few milliseconds.
struct Spread(u64);

impl Spread {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// One life of the victim: the steps that it let go of, and whether it was killed.
fn life(path: &Path, late: bool, after_first: bool, micros: u64) -> (Vec<u64>, bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "victim", "--nocapture", "--test-threads=1"]).env(PATH, path).env_remove(LATE);
    if late {
        command.env(LATE, "1");
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (mut steps, mut line) = (Vec::new(), String::new());
    let mut next = |steps: &mut Vec<u64>| {
        line.clear();
        let read = out.read_line(&mut line).unwrap_or_default();
        // What was cut by the kill did not leave.
        let step = line
            .strip_suffix('\n')
            .and_then(|l| l.rsplit_once("let go "))
            .and_then(|(_, step)| step.parse::<u64>().ok());
        steps.extend(step);
        read > 0
    };
    while after_first && steps.is_empty() && next(&mut steps) {}
    std::thread::sleep(Duration::from_micros(micros));
    child.kill().unwrap();
    while next(&mut steps) {}
    (steps, !child.wait().unwrap().success())
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
        let (steps, died) = life(&folder.path().join("guard"), late, after_first, micros);
        killed += u64::from(died && !steps.is_empty());
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
