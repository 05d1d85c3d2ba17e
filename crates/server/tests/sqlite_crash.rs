//! A real process that writes a database, killed at every sync and at random points, and one whose disk is full.
//!
//! The victim is this test binary run again. It opens the database, finds out how far it is, and goes on: a batch of the
//! coordinator, a release in a ledger, the model after it, again and again, and it prints each number when all three are
//! acknowledged. After each death the database must open, hold all that was acknowledged and nothing half, and take more. A
//! kill leaves the page cache alone, so this shows order; that SQLite syncs what it says is shown by its own tests.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use crate::killed::{Spread, Victim, strace_works, victim_alone};
use crate::ledger_story::{content, model_plan, model_step};
use device::{guard::TaskDigest, protocol::message::DeviceKey};
use federated::{
    home::Records,
    protocol::store::{AttemptAt, MemoryStore, Store, StoreError, Write},
};
use keyhush_server::{
    sqlite::{Database, DatabaseError, TaskHome, TaskLedger},
    state::{AfterRound, TaskState},
};
use ledger::{Ledger, LedgerError};

const PATH: &str = "KEYHUSH_TEST_VICTIM_DATABASE";
const STEPS: &str = "KEYHUSH_TEST_VICTIM_STEPS";
const EARLY: &str = "KEYHUSH_TEST_VICTIM_EARLY";

const TASK: TaskDigest = TaskDigest([1; 32]);
/// The most steps of all lives of a database.
const MOST: u64 = 1000;

fn device(number: u64) -> DeviceKey {
    let mut key = [3; 32];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    DeviceKey(key)
}

/// What the coordinator writes in a step: a device comes, an attempt is opened, reported to, or settled, and a blob changes.
fn batch(step: u64) -> Vec<Write> {
    let at = AttemptAt { task: TASK, round: step / 3, attempt: 0 };
    let sealed = vec![step as u8; 60_000];
    let enrol = Write::Enrol { device: device(step), day: step };
    let blob = Write::KeepBlob { digest: [(step % 5) as u8; 32], packed: vec![step as u8; 30_000] };
    match step % 3 {
        0 => vec![enrol, Write::Open(at), Write::Assign { at, devices: assigned(step) }, blob],
        1 => vec![enrol, Write::Merge { at, sealed, reports: vec![device(step - 1)] }, blob],
        // All but the first have sent nothing.
        _ => {
            let absent = assigned(step - 2).split_off(1);
            vec![enrol, Write::Settle { at, absent }, blob]
        }
    }
}

/// Who is given the task of the attempt that begins with this step: the one who has just come, and one who was there.
fn assigned(step: u64) -> Vec<DeviceKey> {
    if step == 0 { vec![device(0)] } else { vec![device(step), device(step / 2)] }
}

fn path(folder: &Path) -> PathBuf {
    folder.join("data").join("keyhush.sqlite")
}

/// Where everything is, in a folder.
fn open(folder: &Path) -> (Arc<Database>, TaskHome) {
    let database = Arc::new(Database::open(path(folder)).unwrap().with_witness(&folder.join("secrets")).unwrap());
    let home = TaskHome::open(Arc::clone(&database), "model", &folder.join("secrets")).unwrap();
    (database, home)
}

fn ledger(home: &TaskHome) -> Ledger<TaskLedger> {
    let secrets = home.secrets();
    if home.is_begun().unwrap() {
        return secrets.open_ledger(home.open_store().unwrap(), &[]).unwrap().0;
    }
    secrets.begin_ledger(home.create_store().unwrap(), model_plan(MOST), 0).unwrap().0
}

/// The three things of a step. Those that are done already are not done again.
fn step(database: &Database, home: &TaskHome, ledger: &mut Ledger<TaskLedger>, step: u64) -> Result<(), String> {
    if database.enrolled().map_err(|e| e.to_string())? == step {
        database.commit(&batch(step)).map_err(|e| e.to_string())?;
    }
    if released(ledger) == step {
        let _receipt = model_step(ledger, step).map_err(|e| e.to_string())?;
    }
    let after = AfterRound { rounds: step + 1, release: Some(("model", step)) };
    home.publish_model(&ledger.head(), after, [step as u8; 32]).map_err(|e| e.to_string())
}

fn released(ledger: &Ledger<TaskLedger>) -> u64 {
    ledger.releases().get("model").copied().unwrap_or_default()
}

/// Not a test by itself: what is run, and killed, by the others.
#[test]
fn victim() {
    let Ok(folder) = std::env::var(PATH) else { return };
    let steps: u64 = std::env::var(STEPS).unwrap().parse().unwrap();
    let (database, home) = open(folder.as_ref());
    let mut ledger = ledger(&home);
    let first = published(&home);
    for number in first..first + steps {
        if std::env::var(EARLY).is_ok() {
            acknowledge(number);
        }
        if let Err(error) = step(&database, &home, &mut ledger, number) {
            is_poisoned(&database, &home, &mut ledger, &error);
            return;
        }
        acknowledge(number);
    }
}

/// After a write that failed nothing is read or written.
fn is_poisoned(database: &Database, home: &TaskHome, ledger: &mut Ledger<TaskLedger>, error: &str) {
    let store = database.commit(&[]);
    assert!(matches!(store, Err(StoreError::Failed(_))), "{error}, and then {store:?}");
    assert!(database.enrolled().is_err() && home.published_model().is_err());
    let next = released(ledger);
    assert!(matches!(model_step(ledger, next), Err(LedgerError::Poisoned)), "{error}");
    say(&format!("failed {error}"));
}

fn published(home: &TaskHome) -> u64 {
    home.published_model().unwrap().map_or(0, |model| model.rounds)
}

fn acknowledge(step: u64) {
    say(&format!("acknowledged {step}"));
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

/// How to run the victim: as it is, or under strace with something injected.
fn command(folder: &Path, steps: u64, inject: Option<&str>) -> Command {
    let mut command = victim_alone("sqlite_crash::victim", inject);
    command.env(PATH, folder).env(STEPS, steps.to_string()).env_remove(EARLY);
    command
}

fn start(command: &mut Command) -> Victim<u64> {
    Victim::start(command, "acknowledged ")
}

/// Opens what is left, and compares it with what was acknowledged: how many steps are whole. More must go in.
fn check(folder: &Path, acknowledged: Option<u64>) -> Result<u64, String> {
    // Whoever only looks sees the same, also where no server has opened it since.
    let before = Database::read(path(folder)).map(|reader| reader.enrolled().unwrap());
    let (database, home) = open(folder);
    let committed = database.enrolled().unwrap();
    if before.as_ref().is_ok_and(|before| *before != committed) {
        return Err(format!("a reader saw {before:?}, and the server has {committed}"));
    }
    all_is_in_the_file(folder, committed)?;
    let promised = acknowledged.map_or(0, |last| last + 1);
    let mut ledger = ledger(&home);
    let (released, published) = (released(&ledger), published(&home));
    if !(promised <= published && published <= released && released <= committed && committed <= published + 1) {
        return Err(format!(
            "{promised} acknowledged; {committed} committed, {released} released, {published} published"
        ));
    }
    same_as_plain(&database, committed)?;
    let found = ledger.verify(&[], None).map_err(|e| e.to_string())?;
    if found.vectors_absent > 0 || found.vectors_matching != released {
        return Err(format!("{} vectors for {released} releases", found.vectors_matching));
    }
    for step in 0..released {
        if ledger.released("model", step).map_err(|e| e.to_string())? != Some(content("model", step)) {
            return Err(format!("the vector of step {step} is another"));
        }
    }
    if let Some(model) = home.published_model().unwrap()
        && (model.digest != [(published - 1) as u8; 32] || model.entry != Some(published))
    {
        return Err(format!("another model: {model:?}"));
    }
    step(&database, &home, &mut ledger, published)?;
    Ok(published + 1)
}

/// Opening has moved everything out of the log and into the file itself, synced: what is read from then on is durable.
fn all_is_in_the_file(folder: &Path, committed: u64) -> Result<(), String> {
    let copied = folder.join("copied");
    fs::copy(path(folder), &copied).unwrap();
    let alone = Database::read(&copied).unwrap().enrolled().unwrap();
    if alone == committed { Ok(()) } else { Err(format!("{committed} committed, and {alone} of them in the file")) }
}

/// What the database has is what a store in memory has after so many batches.
fn same_as_plain(database: &Database, steps: u64) -> Result<(), String> {
    let plain = MemoryStore::new([0; 32]);
    (0..steps).for_each(|step| plain.commit(&batch(step)).unwrap());
    if database.open_attempt(&TASK).unwrap() != plain.open_attempt(&TASK).unwrap() {
        return Err(format!("another attempt after {steps} batches"));
    }
    for number in 0..=steps {
        if database.standing(&TASK, &device(number)).unwrap() != plain.standing(&TASK, &device(number)).unwrap() {
            return Err(format!("another standing of device {number} after {steps} batches"));
        }
    }
    let other = (0..5).find(|n| database.blob(&[*n; 32]).unwrap() != plain.blob(&[*n; 32]).unwrap());
    other.map_or(Ok(()), |n| Err(format!("another blob {n} after {steps} batches")))
}

/// Runs the victim once for every so-manieth call of a system call, killed on entering it, until a run ends by itself. How many
/// were killed.
fn kill_at_every(call: &str, nth: usize) -> u64 {
    let mut killed = 0;
    for n in (1..).step_by(nth) {
        let folder = tempfile::tempdir().unwrap();
        let inject = format!("{call}:signal=SIGKILL:when={n}");
        let (said, ended) = start(&mut command(folder.path(), 4, Some(&inject))).end();
        let checked = check(folder.path(), said.last().copied());
        assert!(checked.is_ok(), "killed at {call} number {n}: {}", checked.unwrap_err());
        if ended {
            assert_eq!(said, [0, 1, 2, 3]);
            return killed;
        }
        killed += 1;
    }
    killed
}

#[test]
fn p13_killed_at_every_sync_everything_acknowledged_is_there() {
    if !strace_works() {
        eprintln!("SKIPPED: strace is missing or may not trace here; the random kills are all there is");
        return;
    }
    for (call, nth, at_least) in
        [("?fsync,?fdatasync", 1, 20), ("pwrite64", 17, 5), ("?rename,?renameat,?renameat2", 1, 5)]
    {
        let killed = kill_at_every(call, nth);
        eprintln!("{killed} kills at {call}");
        assert!(killed >= at_least, "{killed} kills at {call}: is it still how it is written?");
    }
}

/// While a server writes, another is told so, and whoever only looks is not.
#[test]
fn two_processes_do_not_write_one_database() {
    let folder = tempfile::tempdir().unwrap();
    let mut victim = start(&mut command(folder.path(), MOST, None));
    assert!(victim.says_something());
    let second = Database::open(path(folder.path()));
    assert!(matches!(second, Err(DatabaseError::Locked { .. })), "{second:?}");
    let reader = Arc::new(Database::read(path(folder.path())).unwrap());
    let before = reader.enrolled().unwrap();
    assert!(before > 0 && TaskHome::read(Arc::clone(&reader), "model").unwrap().read_store().is_ok());
    while victim.says_something() && reader.enrolled().unwrap() < before + 5 {}
    let (said, _) = victim.kill();
    drop(reader);
    check(folder.path(), said.last().copied()).unwrap();
}

/// Kills victims one after the other at random moments; says how many died after an acknowledgement, and what was found wrong.
fn kill_at_random(victims: u64, early: bool) -> (u64, Vec<String>) {
    let mut spread = Spread(20_260_101);
    let (mut killed, mut wrong) = (0, Vec::new());
    let mut folder = tempfile::tempdir().unwrap();
    let mut whole: Option<u64> = None;
    for number in 0..victims {
        // A database lives through some deaths, and then a new one begins.
        if number % 8 == 0 {
            (folder, whole) = (tempfile::tempdir().unwrap(), None);
        }
        let mut command = command(folder.path(), 60, None);
        if early {
            command.env(EARLY, "1");
        }
        let mut victim = start(&mut command);
        // One half dies some time after it was born, the other some time after its first acknowledgement.
        if number % 2 == 0 {
            std::thread::sleep(Duration::from_micros(spread.below(60_000)));
        } else if victim.says_something() {
            std::thread::sleep(Duration::from_micros(spread.below(25_000)));
        }
        let (said, ended) = victim.kill();
        killed += u64::from(!ended && !said.is_empty());
        match check(folder.path(), said.last().copied().or(whole)) {
            Ok(steps) => whole = steps.checked_sub(1),
            Err(problem) => {
                wrong.push(format!("victim {number}: {problem}"));
                (folder, whole) = (tempfile::tempdir().unwrap(), None);
            }
        }
    }
    (killed, wrong)
}

#[test]
fn p13_killed_at_random_everything_acknowledged_is_there() {
    let (killed, wrong) = kill_at_random(80, false);
    assert!(wrong.is_empty(), "{} of {killed}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(killed >= 25, "only {killed} victims died after an acknowledgement: give them more time");
}

#[test]
fn p13_a_server_that_acknowledges_before_it_writes_is_caught() {
    let (killed, wrong) = kill_at_random(16, true);
    assert!(!wrong.is_empty(), "{killed} kills, and the check has no teeth");
}

/// A disk without room: here, files that may not grow. What failed is not there, all that was acknowledged is, and with room it
/// goes on.
#[test]
fn a_full_disk_fails_a_write_and_loses_nothing() {
    let mut failures = 0;
    for blocks in [4000, 6000, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        // 512 bytes each. The signal is ignored, so that the write itself fails.
        let limit = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &limit, "sh"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "sqlite_crash::victim", "--nocapture", "--test-threads=1"]);
        command.env(PATH, folder.path()).env(STEPS, "400").env_remove(EARLY);
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{said}\n{}", String::from_utf8_lossy(&out.stderr));
        let mut numbers = said.lines().filter_map(|line| line.rsplit_once("acknowledged ")?.1.parse::<u64>().ok());
        let last = numbers.next_back();
        failures += usize::from(said.contains("failed "));
        let steps = check(folder.path(), last).unwrap();
        assert!(last.is_some_and(|last| steps > last), "{last:?}, {steps}");
    }
    assert_eq!(failures, 3, "there was room for all of it");
}
