//! Tests of a guard's file under power loss: an adversarial disk keeps any part of what was not synced ([`durable::power_loss`]).
//!
//! A story (begin, then one permit after the other) is cut before every single operation; no permit that was given may be given
//! again after the restart, also when the recovery is cut too. And every sync is needed: where a disk only pretends to
//! do one kind of them, the same check finds a second permit, or a guard that does not open.
//!
//! What a device learned and has not sent lies in such a file too. There it is what stays that counts: whatever was being written when the power went, once
//! it was said to be deleted it is in no file.

use std::sync::Arc;

use durable::{
    disk::Disk,
    power_loss::{Adversary, LossyDisk},
};

use super::FileStore;
use crate::{
    guard::{Asked, Guard, GuardError, Limits, ModelDigest, Now, StoreError, TaskDigest, Timer, Window},
    unsent::{Keep, Unsent},
    upload::Rest,
};

const STEPS: u64 = 4;

const NO_LIMITS: Limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };

const KEEP: Keep = Keep { days: 30, bytes: 1000 };

/// What the story had before the power went.
#[derive(Debug, Default)]
struct Told {
    begun: bool,
    permits: Vec<u64>,
}

fn asked(step: u64) -> Asked {
    Asked { task: TaskDigest([1; 32]), step, model: ModelDigest::of(&[step as f32]) }
}

fn store(disk: &LossyDisk) -> Result<FileStore, GuardError> {
    Ok(file(disk, "/device/guard")?)
}

fn file(disk: &LossyDisk, path: &str) -> Result<FileStore, StoreError> {
    FileStore::on(Arc::new(disk.clone()), path.into())
}

/// Opens the guard, or begins it where it never was, and asks for every step from the first on.
fn story(disk: &LossyDisk, told: &mut Told) -> Result<(), String> {
    let said = |e: GuardError| e.to_string();
    let opened = match Guard::open(store(disk).map_err(said)?) {
        Err(GuardError::Missing) if !told.begun => Guard::begin(store(disk).map_err(said)?),
        opened => opened,
    };
    let mut guard = opened.map_err(said)?;
    told.begun = true;
    for step in 0..STEPS {
        if guard.allow(asked(step), &NO_LIMITS, Now { up_ms: 0, clock_s: 0 }).is_ok() {
            told.permits.push(step);
        }
    }
    Ok(())
}

/// After the last restart: the guard opens, no step has left twice, and a new one may leave.
fn check(disk: &LossyDisk, told: &mut Told) -> Result<(), String> {
    story(disk, told)?;
    let mut once = told.permits.clone();
    once.sort_unstable();
    once.dedup();
    if once.len() != told.permits.len() {
        return Err(format!("two inputs for one step: {:?}", told.permits));
    }
    let mut guard = store(disk).and_then(Guard::open).map_err(|e| e.to_string())?;
    guard.allow(asked(STEPS), &NO_LIMITS, Now { up_ms: 0, clock_s: 0 }).map(drop).map_err(|e| e.to_string())
}

/// Cuts the story before each of its operations, against several adversaries; how many crashes, and what they broke.
fn violations(lie: Option<&'static str>) -> (u64, Vec<String>) {
    let (mut crashes, mut found) = (0, Vec::new());
    for crash_at in 1.. {
        let mut finished = false;
        for case in 0..24 {
            let mut adversary = match case {
                0 | 1 => Adversary::LosesAll,
                2 | 3 => Adversary::KeepsAll,
                _ => Adversary::Random(crash_at * 1000 + case),
            };
            let disk = LossyDisk::cut_at(crash_at).lying(lie);
            let mut told = Told::default();
            let _ = story(&disk, &mut told);
            finished = disk.operations() < crash_at;
            crashes += 1;
            // In every other case the process is killed first, and then the recovery is cut too.
            if case % 2 == 1 {
                disk.killed(Some(crash_at % 7 + 1));
                let _ = story(&disk, &mut told);
                disk.restart(&mut adversary, Some(crash_at % 11 + 1));
                let _ = story(&disk, &mut told);
                crashes += 2;
            }
            disk.restart(&mut adversary, None);
            found.extend(check(&disk, &mut told).err().map(|e| format!("cut at {crash_at}, {adversary:?}: {e}")));
        }
        if finished || (lie.is_some() && !found.is_empty()) {
            break;
        }
    }
    (crashes, found)
}

#[test]
fn p24_after_any_loss_of_power_no_step_leaves_twice() {
    let (crashes, found) = violations(None);
    assert!(found.is_empty(), "{} of {crashes}:\n{}", found.len(), found.join("\n"));
    assert!(crashes > 1000, "only {crashes} crashes: the story is too short to show anything");
}

#[test]
fn p24_every_sync_of_the_guard_is_needed() {
    for lie in [".new", "/device"] {
        let (crashes, found) = violations(Some(lie));
        assert!(!found.is_empty(), "{crashes} crashes and no loss without syncing {lie}: why is it synced?");
    }
}

/// The power went while it was first saved: there was no `unsent` yet, so nothing seemed to be left to delete, and all of it stayed in `unsent.new`.
#[test]
fn what_is_said_to_be_deleted_is_in_no_file_whenever_the_power_went() {
    let learned = f32::from_le_bytes(*b"SAID");
    let story = |disk: &LossyDisk| -> Option<()> {
        let mut unsent = Unsent::open(file(disk, "/device/unsent").ok()?, KEEP, 100).ok()?;
        for step in 0..2 {
            unsent.before(asked(step).task, 20, false).ok()?;
            unsent.learned(asked(step), Some(Rest::new(vec![learned; 20], Vec::new())));
            unsent.left(step, 100).ok()?;
        }
        Some(())
    };
    let has_it = |disk: &LossyDisk| {
        let files = disk.names().into_iter().filter_map(|name| disk.read(&name).unwrap());
        files.into_iter().any(|bytes| bytes.windows(4).any(|four| four == b"SAID"))
    };
    let mut had = 0;
    for crash_at in 1.. {
        let mut finished = false;
        for case in 0..24 {
            let mut adversary = if case == 0 { Adversary::KeepsAll } else { Adversary::Random(crash_at * 1000 + case) };
            let disk = LossyDisk::cut_at(crash_at);
            finished = story(&disk).is_some();
            disk.restart(&mut adversary, None);
            had += u32::from(has_it(&disk));
            match case % 2 {
                0 => Unsent::forget(&mut file(&disk, "/device/unsent").unwrap()).unwrap(),
                // After so many days it goes by itself.
                _ => drop(Unsent::open(file(&disk, "/device/unsent").unwrap(), KEEP, 130).unwrap()),
            }
            disk.restart(&mut Adversary::LosesAll, None);
            assert!(!has_it(&disk), "cut at {crash_at}, {adversary:?}");
        }
        if finished {
            break;
        }
    }
    assert!(had > 50, "only {had} crashes left anything");
}

/// A device that looked whether there is room wrote over what was kept, and put it back afterwards: a loss of power in between lost it.
#[test]
fn who_looks_for_room_loses_nothing_whenever_the_power_goes() {
    let story = |disk: &LossyDisk, is_kept: &mut bool| -> Option<()> {
        let mut unsent = Unsent::open(file(disk, "/device/unsent").ok()?, KEEP, 100).ok()?;
        unsent.learned(asked(0), Some(Rest::new(vec![0.5; 20], Vec::new())));
        unsent.left(0, 100).ok()?;
        *is_kept = true;
        for task in [1, 2, 3] {
            unsent.before(TaskDigest([task; 32]), 20, true).ok()?;
        }
        Some(())
    };
    let mut crashes = 0;
    for crash_at in 1.. {
        let mut finished = false;
        for case in 0..24 {
            let mut adversary = if case == 0 { Adversary::KeepsAll } else { Adversary::Random(crash_at * 1000 + case) };
            let (disk, mut is_kept) = (LossyDisk::cut_at(crash_at), false);
            finished = story(&disk, &mut is_kept).is_some();
            crashes += u32::from(is_kept && !finished);
            disk.restart(&mut adversary, None);
            let unsent = Unsent::open(file(&disk, "/device/unsent").unwrap(), KEEP, 100).unwrap();
            let found = unsent.of(&asked(0).task, 20).map(|rest| rest.vectors()[0].to_vec());
            assert!(!is_kept || found == Some(vec![0.5; 20]), "cut at {crash_at}, {adversary:?}: {found:?}");
            assert!(disk.names().iter().all(|name| !name.to_string_lossy().ends_with(".new")));
        }
        if finished {
            break;
        }
    }
    assert!(crashes > 100, "only {crashes} crashes while it was looked");
}
