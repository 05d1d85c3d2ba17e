//! A round key that is lost while no server runs costs one attempt and not the task.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::settings::{settings, state};
use crate::small_runs::{TASK, with};
use device::{guard::TaskDigest, protocol::message::DeviceKey};
use federated::{
    config::Document,
    fleet::Stop,
    home::Records,
    protocol::store::{OpenAttempt, Store, Write},
};
use keyhush_server::{
    sqlite::{DATABASE, Database, TaskHome},
    state::TaskState,
    tasks::{Happened, Written, serve},
};
use ledger::{FailureReason, Ledger, unhex};

fn task() -> String {
    let changes = [
        "rounds=3",
        "noise_seed=",
        "participation.min_separation=0",
        "participation.max_participations=3",
        "participation.cohort=100",
        "devices.select_seconds=",
        "devices.report_seconds=",
        "devices.tick_seconds=",
        "devices.begin_with=",
    ];
    with(TASK, &changes)
}

/// What is kept of the attempt that is open.
fn open(folder: &Path) -> Option<OpenAttempt> {
    let database = Arc::new(Database::read(folder.join("data").join(DATABASE)).ok()?);
    let note = TaskHome::read(Arc::clone(&database), "words").ok()?.note().unwrap()?;
    database.open_attempt(&TaskDigest(unhex(&note.digest).unwrap())).unwrap()
}

/// Serves until the attempt that is open is the one of this number, and stops. Gives why attempts failed.
fn served_until(folder: &Path, attempt: u32) -> Vec<FailureReason> {
    let (stop, failed) = (Stop::new(), Mutex::new(Vec::new()));
    let happens = |happened: &Happened<'_>| match happened {
        Happened::Failed { failed: why, .. } => failed.lock().unwrap().push(why.reason),
        Happened::Broken { error, .. } => panic!("{error}"),
        _ => {}
    };
    let config = Document::new(&task(), &[]).unwrap().config().unwrap();
    std::thread::scope(|scope| {
        let tasks = vec![Written { name: "words".into(), config, approval: None }];
        let serving = scope.spawn(|| serve(&state(folder), tasks, settings(folder), &stop, &happens));
        let until = Instant::now() + Duration::from_secs(60);
        while open(folder).is_none_or(|open| open.at.attempt != attempt) {
            assert!(!serving.is_finished() && Instant::now() < until, "it does not come to attempt {attempt}");
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.ask();
        serving.join().unwrap().unwrap();
    });
    failed.into_inner().unwrap()
}

#[test]
fn p24_a_lost_round_key_costs_its_attempt_and_the_task_goes_on() {
    for lose in [|key: &Path| fs::remove_file(key).unwrap(), |key: &Path| fs::write(key, "{\"rou\u{0}").unwrap()] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(served_until(folder, 0), []);
        assert_eq!(served_until(folder, 0), [], "one that nobody was given is taken up");
        // Devices are given the attempt, and a sum of theirs is kept; then the key is gone.
        let at = open(folder).unwrap().at;
        let devices: Vec<DeviceKey> = (0..20).map(|n| DeviceKey([n; 32])).collect();
        let database = Database::open(folder.join("data").join(DATABASE)).unwrap();
        database.commit(&devices.iter().map(|d| Write::Enrol { device: *d, day: 1 }).collect::<Vec<_>>()).unwrap();
        database.commit(&[Write::Assign { at, devices: devices.clone() }]).unwrap();
        database.commit(&[Write::Merge { at, sealed: vec![7; 64], reports: devices[..16].to_vec() }]).unwrap();
        drop(database);
        let keys = fs::read_dir(folder.join("secrets/words")).unwrap().map(|file| file.unwrap().path());
        let keys: Vec<_> = keys.filter(|path| path.to_string_lossy().contains("round")).collect();
        let [key] = &keys[..] else { panic!("{keys:?}") };
        lose(key);

        assert_eq!(served_until(folder, 1), [FailureReason::Interrupted]);
        let database = Arc::new(Database::read(folder.join("data").join(DATABASE)).unwrap());
        for device in &devices {
            assert_eq!(
                database.standing(&at.task, device).unwrap().participations,
                1,
                "whoever was given it took part"
            );
        }
        let home = TaskHome::read(database, "words").unwrap();
        let ledger = Ledger::open(home.read_store().unwrap(), None, &[]).unwrap();
        assert_eq!(ledger.failed_attempts(), 1);
    }
}
