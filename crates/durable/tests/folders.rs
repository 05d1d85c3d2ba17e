//! That folders are there after any loss of power once they were made, with what was put into them.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::path::Path;

use keyhush_durable::{
    disk::Disk,
    files::{FileError, Replacement, make_folder, make_folder_on, replace},
    power_loss::{Adversary, LossyDisk},
};

const FOLDER: &str = "/runs/today/checkpoints";

/// Makes folders and a file in the innermost; or as much of it as the power allows.
fn story(disk: &LossyDisk) -> Result<(), FileError> {
    let file = Path::new(FOLDER).join("state");
    make_folder_on(disk, Path::new(FOLDER))?;
    make_folder_on(disk, Path::new(FOLDER))?;
    let by = Replacement { new: &file.with_extension("new"), private: false, time: None };
    replace(disk, &file, by, |out| out.write_all(b"a state"))
}

/// What is lost, though it was acknowledged.
fn losses(lie: Option<&'static str>) -> usize {
    let mut lost = 0;
    for crash_at in 1..20 {
        let random = (0..40).map(|seed| Adversary::Random(crash_at * 1000 + seed));
        for mut adversary in [Adversary::LosesAll, Adversary::KeepsAll].into_iter().chain(random) {
            let disk = LossyDisk::cut_at(crash_at).lying(lie);
            let acknowledged = story(&disk).is_ok();
            assert!(disk.operations() < 19, "the cuts do not go through all of it");
            disk.restart(&mut adversary, None);
            let found = disk.read(&Path::new(FOLDER).join("state")).unwrap();
            lost += usize::from(acknowledged && found.as_deref() != Some(b"a state"));
            // What a crash left is in nobody's way.
            story(&disk).unwrap();
        }
    }
    lost
}

#[test]
fn what_is_in_a_new_folder_is_there_after_any_loss_of_power() {
    assert_eq!(losses(None), 0);
}

#[test]
fn every_folder_above_a_new_one_must_be_synced() {
    for lie in ["/", "/runs", "/runs/today", FOLDER] {
        // Every path ends with what its folder ends with; what is looked for is a loss.
        assert!(losses(Some(lie)) > 0, "no loss without syncing {lie}: why is it synced?");
    }
}

#[test]
fn folders_are_made_as_people_write_them() {
    let folder = tempfile::tempdir().unwrap();
    for path in ["a/b/c", "a/b/c", "d/../e", "a/./f", "g/"] {
        make_folder(&folder.path().join(path)).unwrap();
        assert!(folder.path().join(path).is_dir(), "{path}");
    }
    make_folder(Path::new("")).unwrap();
    make_folder(Path::new(".")).unwrap();
    make_folder(Path::new("/")).unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    make_folder(&folder.path().join("file")).unwrap_err();
    make_folder(&folder.path().join("file/below")).unwrap_err();
}
