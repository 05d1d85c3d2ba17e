//! Backups: what is in one, and that only the newest state is ever restored (rules P17, P18 and P20). The drill with a real server and its devices is
//! `cli/tests/restore.rs`.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use device::{guard::TaskDigest, protocol::message::DeviceKey};
use federated::{
    home::{Home, Paper, Records},
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
use ledger::Ended;

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
    let manifest = back_up(&data(&place), &folder, "a").unwrap().manifest;
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
    let files = [("en-GB.approval", "{}\n"), ("en-GB.toml", "rounds = 3\n"), ("en-US.toml", "rounds = 4\n")];
    files.iter().for_each(|(name, text)| fs::write(data(&place).join("tasks").join(name), text).unwrap());
    let folder = place.0.path().join("backups/b");
    let manifest = back_up(&data(&place), &folder, "b").unwrap().manifest;
    let taken = back_up(&data(&place), &folder, "b").unwrap_err();
    assert!(matches!(taken, BackupError::Folders { .. }), "{taken}");
    let backup = Backup::open(&folder, None).unwrap();
    let there = backup.restore(&data(&place), &place.secrets()).unwrap_err();
    assert!(there.to_string().contains("is there already"), "{there}");
    lose(&place);
    assert!(matches!(backup.salvage(Some(&place.secrets()), &place.0.path().join("s")), Err(BackupError::Newest)));
    assert!(matches!(backup.destroy_keys(&place.secrets()), Err(BackupError::Newest)));
    let restored = backup.restore(&data(&place), &place.secrets()).unwrap();
    assert!(restored.compared.is_newest());
    assert_eq!(restored.left_out, ["en-US.toml"], "it had not begun");
    assert_eq!(Orders::in_data(&data(&place)).of("en-GB"), Order::Pause);
    let text = |name: &str| fs::read_to_string(data(&place).join("tasks").join(name)).ok();
    assert!(files[..2].iter().all(|&(name, is)| text(name).as_deref() == Some(is)) && text("en-US.toml").is_none());
    let database = place.open();
    let store = place.home(&database).open_store().unwrap();
    assert_eq!(ledger::LedgerStore::head(&store).unwrap(), manifest.tasks[0].head);
    give_refused_while_open(&place);
    drop((store, database));
    give(&place, 2);
}

/// Rule P17: who can write the copy cannot have a server begin a task by it, and who noted its SHA-256 finds that it was written to.
#[test]
fn p17_what_somebody_put_into_a_backup_is_not_restored() {
    let (place, _) = backed_up();
    let folder = place.0.path().join("backups/b");
    let made = back_up(&data(&place), &folder, "b").unwrap();
    lose(&place);
    let path = folder.join("backup.json");
    let mut description: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert!(Backup::open(&folder, Some(&made.sha256.to_uppercase())).is_ok());
    let planted = ["../evil.toml", "evil.approval", "evil.toml", "orders/en-GB.toml"];
    description["created"] = planted.into_iter().map(|name| (name, "rounds = 9\n")).collect();
    fs::write(&path, serde_json::to_string_pretty(&description).unwrap()).unwrap();
    let changed = Backup::open(&folder, Some(&made.sha256)).unwrap_err();
    assert!(matches!(changed, BackupError::OtherDescription { .. }) && changed.is_refusal(), "{changed}");
    // Where nobody noted it, it passes for what was written.
    let restored = Backup::open(&folder, None).unwrap().restore(&data(&place), &place.secrets()).unwrap();
    assert_eq!(restored.left_out, planted);
    assert!(!data(&place).join("tasks").exists() && !data(&place).join("evil.toml").exists());
}

/// One server writes a database, also one that was restored.
fn give_refused_while_open(place: &Place) {
    assert!(matches!(Database::open(place.path()), Err(DatabaseError::Locked { .. })));
}

/// What happens after a backup.
type Happens<'a> = &'a dyn Fn(&Place);

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
    let later: [(Happens<'_>, &str); 3] = [
        (&release, "the ledger of en-GB has 3 of 4 entries"),
        (&assignment, "devices were assigned tasks 2 times, and it knows of 1"),
        (&created, "later: it was begun later"),
    ];
    for (happens, words) in later {
        let (place, folder) = backed_up();
        happens(&place);
        lose(&place);
        let refused = Backup::open(&folder, None).unwrap().restore(&data(&place), &place.secrets()).unwrap_err();
        assert!(matches!(refused, BackupError::Older(_)) && refused.is_refusal(), "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
        assert!(!data(&place).exists(), "nothing is left of what was refused");
    }
    // The secrets of another server, and none.
    let ((place, folder), (other, _)) = (backed_up(), backed_up());
    lose(&place);
    let backup = Backup::open(&folder, None).unwrap();
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
    let backup = Backup::open(&folder, None).unwrap();
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

/// The server may have any backup of before: all are older than it is.
#[test]
fn p20_keys_of_a_server_that_runs_are_not_destroyed() {
    let (place, folder) = backed_up();
    give(&place, 2);
    let keys = || names_in(&place.secrets().join("en-GB"));
    let (before, backup) = (keys(), Backup::open(&folder, None).unwrap());
    let server = SqliteState::open(&data(&place), &place.secrets()).unwrap();
    let refused = backup.destroy_keys(&place.secrets()).unwrap_err();
    assert!(matches!(refused, BackupError::Database(DatabaseError::SecretsInUse { .. })), "{refused}");
    assert!(refused.is_refusal() && refused.to_string().contains("a server runs on the secrets"), "{refused}");
    assert!(before.len() > 1 && keys() == before, "{before:?}");
    // Nor does a second server begin on them, with other data.
    let second = SqliteState::open(&place.0.path().join("other"), &place.secrets()).unwrap_err();
    assert!(matches!(second, DatabaseError::SecretsInUse { .. }), "{second}");
    // The lock ends with who has it; that its file is still there, as after a crash, says nothing.
    drop(server);
    assert!(place.secrets().join(".lock").exists());
    assert_eq!(backup.destroy_keys(&place.secrets()).unwrap().len(), 1);
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_newest_backups_of_a_server_are_kept_and_those_of_others() {
    let (place, _) = backed_up();
    let within = place.0.path().join("backups");
    let of = |name: &str| back_up(&data(&place), &within.join(name), name).unwrap().manifest;
    of("c");
    of("b");
    let last = of("d");
    let (other, _) = backed_up();
    back_up(&data(&other), &within.join("0"), "0").unwrap();
    fs::create_dir(within.join("something")).unwrap();
    let kept = remove_older(&within.join("d"), &last, 2).unwrap();
    assert_eq!((kept.removed, kept.later), (vec![within.join("a"), within.join("b")], vec![]));
    assert_eq!(names_in(&within), ["0", "c", "d", "something"]);
}

/// A clock was ahead when backups were made, or somebody put a folder there that says so.
#[test]
fn the_backup_that_was_just_made_is_kept_whatever_others_say() {
    let (place, folder) = backed_up();
    let within = place.0.path().join("backups");
    let of = |name: &str| back_up(&data(&place), &within.join(name), name).unwrap().manifest;
    of("m");
    of("n");
    let planted = within.join("planted");
    fs::create_dir(&planted).unwrap();
    let text = fs::read_to_string(folder.join("backup.json")).unwrap();
    fs::write(planted.join("backup.json"), text.replace("\"made\": \"a\"", "\"made\": \"z\"")).unwrap();
    let last = of("b");
    let kept = remove_older(&within.join("b"), &last, 1).unwrap();
    assert_eq!(kept.removed, [within.join("a")]);
    assert_eq!(kept.later, [within.join("m"), within.join("n"), planted]);
    assert_eq!(names_in(&within), ["b", "m", "n", "planted"]);
    // One of the same time is not newer than the one that was just made, whatever it is called.
    fs::create_dir(within.join("same")).unwrap();
    fs::copy(within.join("b/backup.json"), within.join("same/backup.json")).unwrap();
    assert_eq!(remove_older(&within.join("b"), &last, 1).unwrap().removed, [within.join("same")]);
}

/// Nothing is lost of a ledger that is closed, so nothing says so: it is imported as it is.
#[test]
fn p17_what_is_lost_is_noted_beside_a_ledger_that_is_not_closed_alone() {
    let place = Place::new();
    give(&place, 1);
    let database = place.open();
    let home = place.home(&database);
    home.write_paper(Paper::Settings, "rounds = 3\n").unwrap();
    let mut ledger = begun(&home, 2);
    let salvaged = |name: &str| {
        let folder = place.0.path().join("backups").join(name);
        back_up(&data(&place), &folder, name).unwrap();
        let mut tasks =
            Backup::open(&folder, None).unwrap().salvage(None, &place.0.path().join("left").join(name)).unwrap();
        let task = tasks.remove(0);
        assert!(tasks.is_empty() && task.folder.join("ledger.jsonl").is_file(), "{task:?}");
        (task.lost.is_some(), task.folder.join("lost.json").exists())
    };
    assert_eq!(salvaged("open"), (true, true));
    home.secrets().close_ledger(&mut ledger, Ended::ByHand, 9).unwrap();
    assert_eq!(salvaged("closed"), (false, false));
}

#[test]
fn a_backup_that_is_not_what_was_written_is_refused() {
    let (place, folder) = backed_up();
    let none = Backup::open(&place.0.path().join("backups"), None).unwrap_err();
    assert!(matches!(none, BackupError::NoBackup { .. }), "{none}");
    let (database, manifest) = (folder.join(DATABASE), folder.join("backup.json"));
    let (bytes, text) = (fs::read(&database).unwrap(), fs::read_to_string(&manifest).unwrap());
    let mut other = bytes.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    fs::write(&database, &other).unwrap();
    assert!(matches!(Backup::open(&folder, None), Err(BackupError::Damaged { .. })));
    fs::write(&database, &bytes).unwrap();
    for (from, to) in [("\"en-GB\"", "\"en-XX\""), ("\"format\": 1", "\"format\": 9"), ("{", "")] {
        fs::write(&manifest, text.replacen(from, to, 1)).unwrap();
        let refused = Backup::open(&folder, None).unwrap_err();
        assert!(matches!(refused, BackupError::Damaged { .. } | BackupError::NoBackup { .. }), "{from}: {refused}");
    }
    fs::write(&manifest, text).unwrap();
    Backup::open(&folder, None).unwrap();
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
