//! A guard in a file: whose it is, that one process has it, and that what is not whole does not open.
#![cfg(all(feature = "files", unix))]
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use keyhush_device::{
    contract,
    guard::{
        Asked, Guard, GuardError, Limits, ModelDigest, Now, Refused, StoreError, TaskDigest, Timer, Window,
        file::FileStore,
    },
};

const PATH: &str = "KEYHUSH_TEST_OTHER_PROCESS";

const NO_LIMITS: Limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };

fn asked(step: u64) -> Asked {
    Asked { task: TaskDigest([1; 32]), step, model: ModelDigest::of(&[step as f32]) }
}

fn begin(path: &Path) -> Result<Guard<FileStore>, GuardError> {
    Guard::begin(FileStore::lock(path)?)
}

fn open(path: &Path) -> Result<Guard<FileStore>, GuardError> {
    Guard::open(FileStore::lock(path)?)
}

fn give(guard: &mut Guard<FileStore>, step: u64) -> Result<(), Refused> {
    guard.allow(asked(step), &NO_LIMITS, Now { up_ms: 0, clock_s: 1_728_000_000 }).map(drop)
}

#[test]
fn the_file_keeps_the_contract_of_stores() {
    let folder = tempfile::tempdir().unwrap();
    contract::store(&|| FileStore::lock(folder.path().join("guard")).unwrap());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A folder with a guard that gave inputs for steps 0 and 1.
fn used() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guard");
    let mut guard = begin(&path).unwrap();
    (0..2).for_each(|step| give(&mut guard, step).unwrap());
    (folder, path)
}

#[test]
fn p24_a_guard_remembers_through_its_file() {
    let (_folder, path) = used();
    assert_eq!(begin(&path).unwrap_err(), GuardError::Exists);
    let mut guard = open(&path).unwrap();
    assert_eq!(guard.inputs(), 2);
    assert_eq!(give(&mut guard, 1), Err(Refused::Step { step: 1, last: 1 }));
    give(&mut guard, 2).unwrap();
    drop(guard);
    assert_eq!(open(&path).unwrap().inputs(), 3);
}

#[test]
fn the_file_is_for_its_owner_alone() {
    let (_folder, path) = used();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_extension("lock")), 0o600);
    for loose in [0o640, 0o604, 0o660, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(loose)).unwrap();
        let place = path.display().to_string();
        assert_eq!(open(&path).unwrap_err(), StoreError::Loose { place, mode: loose }.into());
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(open(&path).is_ok());
}

#[test]
fn p24_a_file_that_is_gone_is_not_an_empty_guard() {
    let (_folder, path) = used();
    fs::remove_file(&path).unwrap();
    assert_eq!(open(&path).unwrap_err(), GuardError::Missing);
}

#[test]
fn p24_a_torn_file_of_any_length_does_not_open() {
    let (_folder, path) = used();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(open(&path), Err(GuardError::Damaged(_))), "{length} bytes");
        assert_eq!(begin(&path).unwrap_err(), GuardError::Exists, "{length} bytes");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(open(&path).unwrap().inputs(), 2);
}

#[test]
fn p24_a_file_with_any_bit_flipped_does_not_open() {
    let (_folder, path) = used();
    let whole = fs::read(&path).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &flipped).unwrap();
        assert!(matches!(open(&path), Err(GuardError::Damaged(_) | GuardError::Version { .. })), "bit {bit}");
    }
}

#[test]
fn what_a_crash_left_of_the_next_one_is_cleared_and_never_followed() {
    let (folder, path) = used();
    let (new, elsewhere) = (path.with_extension("new"), folder.path().join("elsewhere"));
    fs::write(&elsewhere, "mine").unwrap();
    symlink(&elsewhere, &new).unwrap();
    give(&mut open(&path).unwrap(), 2).unwrap();
    assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");
    fs::write(&new, "half a gua").unwrap();
    let mut guard = open(&path).unwrap();
    give(&mut guard, 3).unwrap();
    assert!(!new.exists());
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn p24_a_file_that_somebody_else_changed_is_not_written_over() {
    let (_folder, path) = used();
    let older = fs::read(&path).unwrap();
    let changes: [&dyn Fn(); 3] =
        [&|| fs::write(&path, &older[..9]).unwrap(), &|| fs::remove_file(&path).unwrap(), &|| {
            // Another process, to which somebody gave the lock by removing it.
            fs::remove_file(path.with_extension("lock")).unwrap();
            give(&mut open(&path).unwrap(), 8).unwrap();
        }];
    for change in changes {
        fs::write(&path, &older).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let mut guard = open(&path).unwrap();
        change();
        let place = path.display().to_string();
        assert_eq!(give(&mut guard, 7), Err(Refused::NotSaved(StoreError::Changed { place })));
        assert_eq!(give(&mut guard, 7), Err(Refused::Unsure));
    }
    assert_eq!(open(&path).unwrap().inputs(), 3);
}

/// Two names of one guard would be two guards: each has its own lock, and a new file takes the place of one of them.
#[test]
fn p24_a_guard_has_one_name() {
    let (folder, path) = used();
    let link = folder.path().join("link");
    let linked = |at: &Path| matches!(open(at), Err(GuardError::Store(StoreError::Linked { .. })));
    symlink(&path, &link).unwrap();
    assert!(linked(&link));
    assert!(open(&path).is_ok(), "what a link leads to is there as before");
    fs::remove_file(&link).unwrap();
    fs::hard_link(&path, &link).unwrap();
    assert!(linked(&link) && linked(&path));
    fs::remove_file(&link).unwrap();
    assert!(open(&path).is_ok());
    // A link to nothing is no place to begin either.
    symlink(folder.path().join("nowhere"), &link).unwrap();
    assert!(matches!(begin(&link), Err(GuardError::Store(StoreError::Linked { .. }))));
}

/// Every parameter counts, wherever it stands.
#[test]
fn p24_a_model_that_differs_anywhere_is_another_model() {
    let model = vec![0.5_f32; 5_000];
    let digest = ModelDigest::of(&model);
    for at in [0, 1023, 1024, 2048, 4_999] {
        let mut other = model.clone();
        other[at] = 0.25;
        assert_ne!(ModelDigest::of(&other), digest, "{at}");
    }
    assert_ne!(ModelDigest::of(&model[..4_999]), digest);
}

#[test]
fn p24_a_disk_that_fails_lets_nothing_go() {
    let (folder, path) = used();
    let mut guard = open(&path).unwrap();
    // A folder in the place of the next file: it cannot be made.
    fs::create_dir(path.with_extension("new")).unwrap();
    assert!(matches!(give(&mut guard, 2), Err(Refused::NotSaved(StoreError::Failed { .. }))));
    fs::remove_dir(path.with_extension("new")).unwrap();
    assert_eq!(give(&mut guard, 2), Err(Refused::Unsure));
    drop(guard);
    give(&mut open(&path).unwrap(), 2).unwrap();
    assert!(matches!(FileStore::lock(folder.path().join("no/guard")), Err(StoreError::Failed { .. })));
}

/// Not a test by itself: the other process of the next one.
#[test]
fn other_process() {
    let Ok(path) = std::env::var(PATH) else { return };
    match open(Path::new(&path)) {
        Ok(_) => println!("it is open"),
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn p24_two_processes_of_a_device_do_not_share_a_guard() {
    let (_folder, path) = used();
    let other = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "guard_file::other_process", "--nocapture", "--test-threads=1"]).env(PATH, &path);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let guard = open(&path).unwrap();
    assert!(other().contains("refused: ") && other().contains("is locked"), "{}", other());
    assert!(matches!(open(&path), Err(GuardError::Store(StoreError::Locked { .. }))));
    drop(guard);
    assert!(other().contains("it is open"), "{}", other());
}
