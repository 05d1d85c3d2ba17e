//! That a file which takes the place of another is the old one or the new one after any loss of power, and that every sync of it is
//! needed.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::path::Path;

use keyhush_durable::{
    disk::Disk,
    files::{FileError, Replacement, replace},
    power_loss::{Adversary, LossyDisk, SECTOR},
};

const FILE: &str = "/folder/file";
const OLD: [u8; 3 * SECTOR] = [1; 3 * SECTOR];
const NEW: [u8; 4 * SECTOR] = [2; 4 * SECTOR];

fn put(disk: &LossyDisk, private: bool, bytes: &[u8]) -> Result<(), FileError> {
    let by = Replacement { new: Path::new("/folder/file.new"), private, time: Some(7) };
    replace(disk, Path::new(FILE), by, |out| out.write_all(bytes))
}

/// What is wrong after the power went at an operation, and how many operations there were.
fn cut(private: bool, crash_at: u64, lie: Option<&'static str>, mut adversary: Adversary) -> (Option<String>, u64) {
    let disk = LossyDisk::default();
    put(&disk, private, &OLD).unwrap();
    let disk = disk.lying(lie);
    disk.killed(Some(crash_at));
    let acknowledged = put(&disk, private, &NEW).is_ok();
    let operations = disk.operations();
    disk.restart(&mut adversary, None);
    let found = disk.read(Path::new(FILE)).unwrap().unwrap_or_default();
    let fine = found == NEW || (found == OLD && !acknowledged);
    let wrong =
        (!fine).then(|| format!("cut at {crash_at}, {adversary:?}: {} bytes of {:?}", found.len(), found.first()));
    // What a crash left is in nobody's way.
    put(&disk, private, &NEW).unwrap();
    (wrong, operations)
}

fn violations(lie: Option<&'static str>) -> Vec<String> {
    let mut found = Vec::new();
    for (private, crash_at) in [false, true].into_iter().flat_map(|private| (1..12).map(move |at| (private, at))) {
        let random = (0..40).map(|seed| Adversary::Random(crash_at * 1000 + seed));
        for adversary in [Adversary::LosesAll, Adversary::KeepsAll].into_iter().chain(random) {
            let (wrong, operations) = cut(private, crash_at, lie, adversary);
            assert!(operations < 11, "the cuts do not go through all of it");
            found.extend(wrong);
        }
    }
    found
}

#[test]
fn after_any_loss_of_power_there_is_the_old_file_or_the_new_one() {
    let found = violations(None);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_sync_of_a_replaced_file_is_needed() {
    for lie in [".new", "/folder"] {
        assert!(!violations(Some(lie)).is_empty(), "no loss without syncing {lie}: why is it synced?");
    }
}
