//! Backups: what is in one, and that only the newest state is ever restored (rules P17, P18 and P20). The drill with a real server and its devices is
//! `cli/tests/restore.rs`.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use device::{guard::TaskDigest, protocol::message::DeviceKey};
use federated::{
    home::Records,
    protocol::{
        order::Order,
        store::{AttemptAt, Store, Write},
    },
};
use keyhush_server::{
    backup::{Backup, BackupError, back_up, keys, remove_older},
    orders::Orders,
    sqlite::{DATABASE, Database, DatabaseError, SqliteState},
    state::State,
};

use crate::{
    ledger_story::model_step,
    sqlite::{Place, begun},
};

fn data(place: &Place) -> PathBuf {
    place.path().parent().unwrap().to_owned()
}

/// Devices are given a task.
fn give(place: &Place, number: u8) {
    let database = Database::open(place.path()).unwrap().with_witness(&place.secrets()).unwrap();
    let at = AttemptAt { task: TaskDigest([number; 32]), round: 0, attempt: 0 };
    let device = DeviceKey([number; 32]);
    let writes = [Write::Open(at), Write::Enrol { device, day: 1 }, Write::Assign { at, devices: vec![device] }];
    database.commit(&writes).unwrap();
}

/// A server with a task that has two releases, and a backup of it.
fn backed_up() -> (Place, PathBuf) {
    let place = Place::new();
    give(&place, 1);
    let database = place.open();
    let home = place.home(&database);
    drop(begun(&home, 2));
    // While it is open.
    let folder = place.0.path().join("backups/a");
    let manifest = back_up(&data(&place), &folder, "a").unwrap();
    assert_eq!((manifest.assignments, manifest.tasks.len()), (1, 1));
    (place, folder)
}

fn lose(place: &Place) {
    fs::rename(data(place), place.0.path().join("gone")).unwrap();
}

#[test]
fn p17_the_newest_state_is_restored_with_what_was_wanted_of_its_tasks() {
    let (place, _) = backed_up();
    Orders::in_data(&data(&place)).give("en-GB", Order::Pause).unwrap();
    fs::create_dir(data(&place).join("tasks")).unwrap();
    fs::write(data(&place).join("tasks/en-US.toml"), "rounds = 3\n").unwrap();
    let folder = place.0.path().join("backups/b");
    let manifest = back_up(&data(&place), &folder, "b").unwrap();
    let taken = back_up(&data(&place), &folder, "b").unwrap_err();
    assert!(matches!(taken, BackupError::Folders { .. }), "{taken}");
    let backup = Backup::open(&folder).unwrap();
    let there = backup.restore(&data(&place), &place.secrets()).unwrap_err();
    assert!(there.to_string().contains("is there already"), "{there}");
    lose(&place);
    assert!(matches!(backup.salvage(Some(&place.secrets()), &place.0.path().join("s")), Err(BackupError::Newest)));
    assert!(matches!(backup.destroy_keys(&place.secrets()), Err(BackupError::Newest)));
    assert!(backup.restore(&data(&place), &place.secrets()).unwrap().is_newest());
    assert_eq!(Orders::in_data(&data(&place)).of("en-GB"), Order::Pause);
    assert_eq!(fs::read_to_string(data(&place).join("tasks/en-US.toml")).unwrap(), "rounds = 3\n");
    let database = place.open();
    let store = place.home(&database).open_store().unwrap();
    assert_eq!(ledger::LedgerStore::head(&store).unwrap(), manifest.tasks[0].head);
    give_refused_while_open(&place);
    drop((store, database));
    give(&place, 2);
}

/// One server writes a database, also one that was restored.
fn give_refused_while_open(place: &Place) {
    assert!(matches!(Database::open(place.path()), Err(DatabaseError::Locked { .. })));
}

#[test]
fn p17_what_lacks_an_entry_or_an_assignment_is_not_restored() {
    // A release after the backup; and somebody who was given a task after it, between two releases.
    let release = |place: &Place| {
        let database = place.open();
        let home = place.home(&database);
        let (mut ledger, _) = home.secrets().open_ledger(home.open_store().unwrap(), &[]).unwrap();
        let _receipt = model_step(&mut ledger, 2).unwrap();
    };
    let assignment = |place: &Place| give(place, 2);
    let created = |place: &Place| {
        let database = place.open();
        let other = keyhush_server::sqlite::TaskHome::open(database, "later", &place.secrets()).unwrap();
        drop(begun(&other, 1));
    };
    let later: [(&dyn Fn(&Place), &str); 3] = [
        (&release, "the ledger of en-GB has 3 of 4 entries"),
        (&assignment, "devices were assigned tasks 2 times, and it knows of 1"),
        (&created, "later: it was begun later"),
    ];
    for (happens, words) in later {
        let (place, folder) = backed_up();
        happens(&place);
        lose(&place);
        let refused = Backup::open(&folder).unwrap().restore(&data(&place), &place.secrets()).unwrap_err();
        assert!(matches!(refused, BackupError::Older(_)) && refused.is_refusal(), "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
        assert!(!data(&place).exists(), "nothing is left of what was refused");
    }
    // The secrets of another server, and none.
    let ((place, folder), (other, _)) = (backed_up(), backed_up());
    lose(&place);
    let backup = Backup::open(&folder).unwrap();
    let wrong = backup.restore(&data(&place), &other.secrets()).unwrap_err();
    assert!(matches!(wrong, BackupError::Database(DatabaseError::OtherRealm { .. })), "{wrong}");
    fs::remove_file(place.secrets().join("en-GB/ledger.head")).unwrap();
    assert!(
        matches!(backup.restore(&data(&place), &place.secrets()), Err(BackupError::Older(_))),
        "no witness, no word"
    );
}

#[test]
fn p20_keys_that_are_retired_are_gone_and_those_that_devices_know_stay() {
    let (place, folder) = backed_up();
    give(&place, 2);
    lose(&place);
    fs::write(place.secrets().join("token"), "0123456789abcdef\n").unwrap();
    let backup = Backup::open(&folder).unwrap();
    assert_eq!(backup.destroy_keys(&place.secrets()).unwrap().into_iter().collect::<Vec<_>>(), ["en-GB"]);
    let left: Vec<_> = fs::read_dir(place.secrets().join("en-GB")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["ledger.head"], "the witness stays: nothing goes on from here");
    let to = place.0.path().join("safe");
    assert_eq!(keys::copy(&place.secrets(), &to, &place.0.path().join("backups")).unwrap(), ["token"]);
    for wrong in [place.secrets().join("safe"), folder.join("safe")] {
        let refused = keys::copy(&place.secrets(), &wrong, &place.0.path().join("backups")).unwrap_err();
        assert!(matches!(refused, BackupError::Folders { .. }), "{refused}");
    }
}

#[test]
fn the_newest_backups_of_a_server_are_kept_and_those_of_others() {
    let (place, _) = backed_up();
    let within = place.0.path().join("backups");
    let of = |name: &str| back_up(&data(&place), &within.join(name), name).unwrap();
    of("c");
    let last = of("b");
    let (other, _) = backed_up();
    back_up(&data(&other), &within.join("0"), "0").unwrap();
    fs::create_dir(within.join("something")).unwrap();
    assert_eq!(remove_older(&last, &within, 2).unwrap(), [within.join("a")]);
    let mut left: Vec<String> =
        fs::read_dir(&within).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["0", "b", "c", "something"]);
}

#[test]
fn a_backup_that_is_not_what_was_written_is_refused() {
    let (place, folder) = backed_up();
    let none = Backup::open(&place.0.path().join("backups")).unwrap_err();
    assert!(matches!(none, BackupError::NoBackup { .. }), "{none}");
    let (database, manifest) = (folder.join(DATABASE), folder.join("backup.json"));
    let (bytes, text) = (fs::read(&database).unwrap(), fs::read_to_string(&manifest).unwrap());
    let mut other = bytes.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    fs::write(&database, &other).unwrap();
    assert!(matches!(Backup::open(&folder), Err(BackupError::Damaged { .. })));
    fs::write(&database, &bytes).unwrap();
    for (from, to) in [("\"en-GB\"", "\"en-XX\""), ("\"format\": 1", "\"format\": 9"), ("{", "")] {
        fs::write(&manifest, text.replacen(from, to, 1)).unwrap();
        let refused = Backup::open(&folder).unwrap_err();
        assert!(matches!(refused, BackupError::Damaged { .. } | BackupError::NoBackup { .. }), "{from}: {refused}");
    }
    fs::write(&manifest, text).unwrap();
    Backup::open(&folder).unwrap();
}

/// A backup of a large database reads for longer than anything else. A task that ends meanwhile is erased afterwards, and does not fail.
#[test]
fn what_is_to_be_erased_waits_for_who_reads() {
    let (place, _) = backed_up();
    let state = SqliteState::open(&data(&place), &place.secrets()).unwrap();
    let reader = rusqlite::Connection::open(place.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM devices").unwrap();
    state.coordinator().commit(&[Write::Enrol { device: DeviceKey([7; 32]), day: 1 }]).unwrap();
    let (began, reads) = (Instant::now(), Duration::from_millis(1500));
    let reading = std::thread::spawn(move || {
        std::thread::sleep(reads);
        drop(reader);
    });
    state.erase().unwrap();
    assert!(began.elapsed() >= reads, "it was erased while somebody could still read it");
    reading.join().unwrap();
}
