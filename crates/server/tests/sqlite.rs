//! The database keeps the contracts of what it stands for, refuses what is not its own, and holds no secret.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::ledger_story::{model_step, plan as ledger_plan};
use crate::workshop::{ADAPTIVE, ARRIVAL, means, plan, with};
use device::{
    guard::TaskDigest,
    protocol::message::{Blob, CheckIn, DeviceKey, Says, Ticket, Wants},
};
use federated::{
    contract, engine,
    fleet::{self, Stop},
    home::{Home, Log, MODEL_FOLDER, Paper, Records, RunFolder},
    protocol::{
        admission::Anybody,
        coordinator::{Asking, Coordinator, Report},
        desk::{Aggregation, Opening},
        limits::ParticipationLimits,
        pace::Pace,
        store::{AttemptAt, Store, StoreError, Write},
        ticket::RoundKey,
        windows::Windows,
    },
    run::{Kept, Run},
    secrets::{FileVault, SecretName, Vault},
};
use keyhush_server::{
    sqlite::{Database, DatabaseError, TaskHome},
    state::TaskState,
};
use ledger::{Ledger, LedgerError};
use privacy::{
    Adjacency, ClipNorm, Participation,
    encoding::{Encoding, VectorPlan},
    stages::Encoded,
};
use rusqlite::Connection;
use tempfile::TempDir;
use zeroize::Zeroizing;

/// A folder for a database and for secrets.
pub(crate) struct Place(pub(crate) TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("data").join("keyhush.sqlite")
    }

    pub(crate) fn secrets(&self) -> PathBuf {
        self.0.path().join("secrets")
    }

    pub(crate) fn open(&self) -> Arc<Database> {
        Arc::new(Database::open(self.path()).unwrap())
    }

    pub(crate) fn home(&self, database: &Arc<Database>) -> TaskHome {
        TaskHome::open(Arc::clone(database), "en-GB", &self.secrets()).unwrap()
    }
}

#[test]
fn the_store_of_a_coordinator() {
    let places: RefCell<Vec<Place>> = RefCell::default();
    let make = || -> Box<dyn Store> {
        places.borrow_mut().push(Place::new());
        Box::new(Database::open(places.borrow().last().unwrap().path()).unwrap())
    };
    let again = |store: Box<dyn Store>| -> Box<dyn Store> {
        drop(store);
        Box::new(Database::open(places.borrow().last().unwrap().path()).unwrap())
    };
    contract::coordinator_store(&make, &again);
}

#[test]
fn the_home_of_a_run() {
    let place = Place::new();
    let database = place.open();
    // Another task is another home.
    let other = TaskHome::open(Arc::clone(&database), "other", &place.secrets()).unwrap();
    other.write_paper(Paper::Settings, "others").unwrap();
    other.write_state(3, None, &mut |out| out.write_all(b"others")).unwrap();
    other.open_log(Log::Metrics, &|_| true).unwrap().append("others").unwrap();
    contract::home(&|| place.home(&database));
    assert_eq!(other.paper(Paper::Settings).unwrap().as_deref(), Some("others"));
    assert_eq!((other.states().unwrap(), other.lines(Log::Metrics).unwrap()), (vec![3], vec!["others".to_owned()]));
    assert_eq!(TaskHome::names(&database).unwrap(), ["en-GB", "other"]);
}

#[test]
fn its_secrets() {
    let place = Place::new();
    let vault = || -> Arc<dyn Vault> {
        FileVault::in_folder(place.secrets()).unwrap();
        Arc::new(FileVault::in_folder(place.secrets().join("en-GB")).unwrap())
    };
    contract::vault(&vault);
    for (loose, tight) in [(place.secrets(), 0o700), (place.secrets().join("en-GB"), 0o700)] {
        fs::set_permissions(&loose, fs::Permissions::from_mode(0o750)).unwrap();
        let error = TaskHome::open(place.open(), "en-GB", &place.secrets()).unwrap_err().to_string();
        assert!(error.contains("750") && error.contains("other users can access it"), "{error}");
        fs::set_permissions(&loose, fs::Permissions::from_mode(tight)).unwrap();
    }
    TaskHome::open(place.open(), "en-GB", &place.secrets()).unwrap();
}

#[test]
fn its_ledger() {
    let place = Place::new();
    let database = RefCell::new(Some(place.open()));
    let home = || place.home(database.borrow().as_ref().unwrap());
    let empty = home().create_store().unwrap();
    ledger::contract::store(empty, |store| {
        drop(store);
        *database.borrow_mut() = None;
        *database.borrow_mut() = Some(place.open());
        home().open_store().unwrap()
    });
}

#[test]
fn there_is_one_server_and_any_number_of_readers() {
    let place = Place::new();
    assert!(matches!(Database::read(place.path()), Err(DatabaseError::Missing { .. })));
    let server = place.open();
    let error = Database::open(place.path()).unwrap_err();
    assert!(error.to_string().contains("another server"), "{error}");
    let reader = Database::read(place.path()).unwrap();
    assert_eq!(reader.realm().unwrap(), server.realm().unwrap());
    let device = DeviceKey([1; 32]);
    server.commit(&[Write::Enrol { device, day: 1 }]).unwrap();
    assert!(reader.is_enrolled(&device).unwrap(), "a reader sees what is written");
    let refused = reader.commit(&[Write::KeepBlob { digest: [0; 32], packed: Vec::new() }]);
    assert!(matches!(refused, Err(StoreError::Refused(_))), "a reader writes");
    let reader = Arc::new(reader);
    assert!(matches!(TaskHome::read(Arc::clone(&reader), "en-GB"), Err(DatabaseError::NoTask { .. })));
    let home = place.home(&server);
    home.write_paper(Paper::Settings, "rounds = 3").unwrap();
    let seen = TaskHome::read(Arc::clone(&reader), "en-GB").unwrap();
    assert_eq!(seen.paper(Paper::Settings).unwrap().as_deref(), Some("rounds = 3"));
    assert!(seen.write_paper(Paper::Settings, "rounds = 4").is_err() && seen.create_store().is_err());
    assert!(seen.secrets().noise_key().is_err(), "no secrets for whoever looks");
    drop((server, home));
    assert!(reader.is_enrolled(&device).unwrap(), "also after the server has ended");
    place.open();
}

#[test]
fn files_are_for_their_owner_and_of_one_name() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let place = Place::new();
    let database = place.open();
    let folder = place.path().parent().unwrap().to_owned();
    assert_eq!(mode(&folder), 0o700);
    let files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 3, "{files:?}");
    files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
    drop(database);
    for (path, loose, tight) in [(&folder, 0o755, 0o700), (&place.path(), 0o644, 0o600)] {
        fs::set_permissions(path, fs::Permissions::from_mode(loose)).unwrap();
        assert!(matches!(Database::open(place.path()), Err(DatabaseError::Loose { .. })), "{}", path.display());
        fs::set_permissions(path, fs::Permissions::from_mode(tight)).unwrap();
    }
    place.open();
    let link = folder.join("link.sqlite");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    assert!(matches!(Database::open(&link), Err(DatabaseError::Linked { .. })));
    fs::remove_file(&link).unwrap();
    fs::hard_link(place.path(), &link).unwrap();
    assert!(matches!(Database::open(place.path()), Err(DatabaseError::Linked { .. })));
}

#[test]
fn what_is_not_ours_or_newer_is_refused_and_left_alone() {
    let place = Place::new();
    drop(place.open());
    let change = |sql: &str| Connection::open(place.path()).unwrap().execute_batch(sql).unwrap();
    change("PRAGMA user_version = 4");
    for error in [Database::open(place.path()).unwrap_err(), Database::read(place.path()).unwrap_err()] {
        assert!(matches!(error, DatabaseError::Version { found: 4, known: 3, .. }), "{error}");
    }
    change("PRAGMA user_version = 3; PRAGMA application_id = 7");
    assert!(matches!(Database::open(place.path()), Err(DatabaseError::Foreign { .. })));
    fs::write(place.path(), "this is no database, and long enough to be looked at as one".repeat(99)).unwrap();
    let before = fs::read(place.path()).unwrap();
    assert!(matches!(Database::open(place.path()), Err(DatabaseError::Sqlite(_))));
    assert!(fs::read(place.path()).unwrap() == before);
}

#[test]
fn a_task_has_a_name_that_a_folder_can_have() {
    let place = Place::new();
    let database = place.open();
    let open = |name: &str| TaskHome::open(Arc::clone(&database), name, &place.secrets());
    for evil in ["", ".", "..", "../x", "a/b", ".hidden", "a b", "ü", &"x".repeat(65)] {
        assert!(matches!(open(evil), Err(DatabaseError::Name { .. })), "{evil:?}");
    }
    open("en-GB_2.1").unwrap();
    assert!(matches!(open("EN-gb_2.1"), Err(DatabaseError::OtherCase { .. })), "some systems have one folder for both");
    assert!(TaskHome::read(Arc::clone(&database), "EN-gb_2.1").is_err());
    open("en-GB_2.1").unwrap();
}

/// A ledger with its plan and some releases.
pub(crate) fn begun(home: &TaskHome, releases: u64) -> Ledger<<TaskHome as Records>::Store> {
    let (mut ledger, _) = home.secrets().begin_ledger(home.create_store().unwrap(), ledger_plan(), 1).unwrap();
    for step in 0..releases {
        let _receipt = model_step(&mut ledger, step).unwrap();
    }
    ledger
}

/// A database that was restored from an old copy is noticed, and so is one that is gone (rule P17).
#[test]
fn p17_a_database_that_was_set_back_is_refused() {
    let place = Place::new();
    let copy = place.0.path().join("copy");
    let database = place.open();
    let home = place.home(&database);
    let ledger = begun(&home, 2);
    drop((ledger, home, database));
    fs::copy(place.path(), &copy).unwrap();
    let database = place.open();
    let home = place.home(&database);
    let (mut ledger, _) = home.secrets().open_ledger(home.open_store().unwrap(), &[]).unwrap();
    let _receipt = model_step(&mut ledger, 2).unwrap();
    drop((ledger, home, database));

    fs::copy(&copy, place.path()).unwrap();
    let database = place.open();
    let home = place.home(&database);
    assert!(matches!(home.open_store(), Err(LedgerError::Rewound { have: 3, .. })));
    assert!(matches!(home.read_store(), Err(LedgerError::Rewound { .. })));
    assert!(home.shown_heads().is_err());
    // The head beside the secrets is gone too: then nothing can be told, and nothing is gone on with.
    let witness = place.secrets().join("en-GB").join("ledger.head");
    let head = fs::read(&witness).unwrap();
    fs::remove_file(&witness).unwrap();
    assert!(matches!(home.open_store(), Err(LedgerError::HeadMissing { .. })));
    fs::write(&witness, "nothing\n").unwrap();
    assert!(matches!(home.open_store(), Err(LedgerError::HeadDamaged { .. })));
    fs::write(&witness, head).unwrap();
    drop((home, database));

    fs::remove_file(place.path()).unwrap();
    let database = place.open();
    let home = place.home(&database);
    assert!(home.is_begun().unwrap(), "a ledger that is gone is not begun anew");
    assert!(matches!(home.open_store(), Err(LedgerError::Rewound { have: 0, .. })));
    assert!(matches!(home.create_store(), Err(LedgerError::Exists { .. })));
}

/// Rules P17 and P18: between two releases the head is the same, and an old copy has forgotten who was given a task since.
#[test]
fn p17_a_database_that_was_set_back_between_two_releases_is_refused() {
    let place = Place::new();
    let (witness, copy) = (place.secrets().join("assignments"), place.0.path().join("copy"));
    let open = || Database::open(place.path()).unwrap().with_witness(&place.secrets());
    let at = AttemptAt { task: TaskDigest([1; 32]), round: 0, attempt: 0 };
    let device = |number: u8| DeviceKey([number; 32]);
    let give = |database: &Database, number: u8| {
        let devices = vec![device(number)];
        database.commit(&[Write::Enrol { device: device(number), day: 1 }, Write::Assign { at, devices }]).unwrap();
    };
    let database = open().unwrap();
    assert!(!witness.exists(), "nobody was given a task");
    database.commit(&[Write::Open(at)]).unwrap();
    give(&database, 1);
    let first = fs::read_to_string(&witness).unwrap();
    assert!(first.starts_with("1 "), "{first}");
    drop(database);
    fs::copy(place.path(), &copy).unwrap();

    let database = open().unwrap();
    let (sealed, reports) = (vec![7; 40], vec![device(1)]);
    database.commit(&[Write::Merge { at, sealed, reports }, Write::Enrol { device: device(9), day: 1 }]).unwrap();
    assert_eq!(fs::read_to_string(&witness).unwrap(), first, "a report costs no second file");
    give(&database, 2);
    drop(database);
    let newest = fs::read(place.path()).unwrap();
    let second = fs::read_to_string(&witness).unwrap();

    fs::copy(&copy, place.path()).unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, DatabaseError::SetBack { shown: 2, have: 1, .. }), "{error}");
    assert_eq!(fs::read_to_string(&witness).unwrap(), second, "what was refused changes nothing");

    // A crash between the two writes leaves the file behind: that is no copy, and the server goes on.
    fs::write(place.path(), &newest).unwrap();
    fs::write(&witness, &first).unwrap();
    let database = open().unwrap();
    assert_eq!(fs::read_to_string(&witness).unwrap(), second, "from here on it counts");
    drop(database);
    fs::remove_file(&witness).unwrap();
    assert!(matches!(open(), Err(DatabaseError::NoWitness { count: 2, .. })));
    fs::write(&witness, "2").unwrap();
    assert!(matches!(open(), Err(DatabaseError::WitnessDamaged { .. })));
    let another = Place::new();
    drop(Database::open(another.path()).unwrap());
    fs::copy(another.path(), place.path()).unwrap();
    fs::write(&witness, &second).unwrap();
    assert!(matches!(open(), Err(DatabaseError::OtherRealm { .. })), "another database is not this one set back");
    fs::remove_file(&witness).unwrap();
    open().unwrap();
}

/// Before the first file there may be a crash too; and what cannot be kept beside the secrets is not acknowledged.
#[test]
fn p17_no_device_is_told_of_its_task_before_the_count_is_kept() {
    let place = Place::new();
    let database = Database::open(place.path()).unwrap().with_witness(&place.secrets()).unwrap();
    let at = AttemptAt { task: TaskDigest([1; 32]), round: 0, attempt: 0 };
    let device = DeviceKey([1; 32]);
    database.commit(&[Write::Enrol { device, day: 1 }, Write::Open(at)]).unwrap();
    fs::create_dir(place.secrets().join("assignments")).unwrap();
    let refused = database.commit(&[Write::Assign { at, devices: vec![device] }]);
    assert!(matches!(refused, Err(StoreError::Failed(_))), "{refused:?}");
    assert!(database.open_attempt(&at.task).is_err(), "nothing is said until it is opened again");
    drop(database);
    fs::remove_dir(place.secrets().join("assignments")).unwrap();
    let database = Database::open(place.path()).unwrap().with_witness(&place.secrets()).unwrap();
    assert_eq!(database.open_attempt(&at.task).unwrap().unwrap().assigned, [device], "it counts");
    assert!(fs::read_to_string(place.secrets().join("assignments")).unwrap().starts_with("1 "));
}

/// A ledger with entries of another history, or without some of its own, is no ledger.
#[test]
fn p17_a_ledger_that_was_changed_is_refused() {
    let change = |sql: &str| {
        let place = Place::new();
        let database = place.open();
        let home = place.home(&database);
        let head = begun(&home, 3).head();
        drop((home, database));
        let connection = Connection::open(place.path()).unwrap();
        connection.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        connection.execute_batch(sql).unwrap();
        drop(connection);
        let home = place.home(&place.open());
        home.open_store().and_then(|store| home.secrets().open_ledger(store, &[head]).map(drop))
    };
    change("").unwrap();
    for sql in [
        "DELETE FROM entries WHERE number = 1",
        "DELETE FROM entries WHERE number = 3",
        "UPDATE entries SET line = (SELECT line FROM entries WHERE number = 1) WHERE number = 2",
        "UPDATE entries SET line = replace(line, 'model', 'modem')",
        "UPDATE runs SET head = '0:' || substr(head, 3)",
    ] {
        assert!(change(sql).is_err(), "{sql}");
    }
    let another = Place::new();
    let other = begun(&another.home(&another.open()), 3).head();
    assert!(change(&format!("UPDATE runs SET head = '{other}'")).is_err(), "another head of the same length");
}

fn to_the_end<H: Home + Records + Clone>(home: impl Fn() -> H, set: &[&str], most: usize) {
    let (plan, opened) = plan(set);
    let population = opened.population(plan.ledger.unit).unwrap();
    let mut run = Run::begin(home(), &plan, &opened, means()).unwrap();
    loop {
        for _ in 0..most {
            let engine = engine::of(&plan.local, opened.learner(), means()).unwrap();
            let mut fleet = fleet::of(&plan, population.as_ref(), engine, home().secrets());
            if run.step(&mut fleet, &Stop::new()).unwrap().over.is_some() {
                run.finish().unwrap();
                return;
            }
        }
        drop(run);
        run = Run::resume(home(), &plan, &opened, means()).unwrap();
    }
}

/// The home of a run changes nothing of it: the same model, metrics and events, also after restarts.
#[test]
fn a_run_is_the_same_as_in_a_folder() {
    let set = with(&[&ADAPTIVE, &ARRIVAL]);
    let folder = tempfile::tempdir().unwrap();
    let folder = RunFolder::at(folder.path().join("run"));
    to_the_end(|| folder.clone(), &set, 100);
    let place = Place::new();
    to_the_end(|| place.home(&shared(&place)), &set, 1);
    let home = place.home(&shared(&place));
    let weights = fs::read(folder.path().join(MODEL_FOLDER).join("model.safetensors")).unwrap();
    assert!(home.model().unwrap().unwrap().weights == weights, "another model");
    assert_eq!(home.lines(Log::Metrics).unwrap(), folder.lines(Log::Metrics).unwrap());
    assert_eq!(home.lines(Log::Diagnostics).unwrap(), folder.lines(Log::Diagnostics).unwrap());
    assert_eq!(Kept::read(&home).unwrap().name, "en-GB");
    drop(home);
    let reader = TaskHome::read(Arc::new(Database::read(place.path()).unwrap()), "en-GB").unwrap();
    assert_eq!(Kept::read(&reader).unwrap().metrics.len(), folder.lines(Log::Metrics).unwrap().len());
}

/// The database of a place, opened anew when nobody has it any more.
fn shared(place: &Place) -> Arc<Database> {
    thread_local! { static OPEN: RefCell<std::sync::Weak<Database>> = RefCell::default(); }
    OPEN.with_borrow_mut(|open| {
        open.upgrade().unwrap_or_else(|| {
            let database = place.open();
            *open = Arc::downgrade(&database);
            database
        })
    })
}

fn holds(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// Whether any of many is among the bytes: they are gone through once for each length.
fn holds_any(bytes: &[u8], any: &[Vec<u8>]) -> bool {
    let mut by_length: BTreeMap<usize, BTreeSet<&[u8]>> = BTreeMap::new();
    any.iter().for_each(|one| _ = by_length.entry(one.len()).or_default().insert(one));
    by_length.iter().any(|(length, those)| {
        let mut begins = [false; 256];
        those.iter().for_each(|one| begins[usize::from(one[0])] = true);
        bytes.windows(*length).any(|window| begins[usize::from(window[0])] && those.contains(window))
    })
}

/// All bytes of all files of the database.
fn everything(place: &Place) -> Vec<u8> {
    let files = fs::read_dir(place.path().parent().unwrap()).unwrap();
    files.flat_map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

/// Rule P20: nothing from which noise or a pseudonym could be computed again is in the database, at any time.
#[test]
fn p20_no_secret_is_in_the_database() {
    let set = with(&[&ARRIVAL, &["noise_seed=", "privacy.mechanism=tree"]]);
    let (plan, opened) = plan(&set);
    let population = opened.population(plan.ledger.unit).unwrap();
    let place = Place::new();
    let database = place.open();
    let home = place.home(&database);
    let mut run = Run::begin(home.clone(), &plan, &opened, means()).unwrap();
    let vault = FileVault::in_folder(place.secrets().join("en-GB")).unwrap();
    let mut secrets: Vec<Vec<u8>> = Vec::new();
    for _ in 0..3 {
        let engine = engine::of(&plan.local, opened.learner(), means()).unwrap();
        let mut fleet = fleet::of(&plan, population.as_ref(), engine, home.secrets());
        assert!(run.step(&mut fleet, &Stop::new()).unwrap().over.is_none());
        for name in SecretName::ALL {
            let Some(secret) = vault.read(name).unwrap() else { continue };
            // Keys are written as digits: every run of them, as it is and as the bytes that it stands for.
            let digits = secret.split(|c| !c.is_ascii_hexdigit()).filter(|part| part.len() == 64);
            for digits in digits.map(<[u8]>::to_vec).collect::<Vec<_>>() {
                let bytes: [u8; 32] = ledger::unhex(str::from_utf8(&digits).unwrap()).unwrap();
                secrets.extend([digits, bytes.to_vec()]);
            }
        }
    }
    secrets.sort();
    secrets.dedup();
    assert!(secrets.len() >= 6, "signing key, pseudonym key and noise key at least: {}", secrets.len());
    let everything = everything(&place);
    assert!(holds(&everything, b"min_separation"), "the settings are there, so the search finds what is there");
    assert!(!holds_any(&everything, &secrets), "a secret is in the database");
}

/// Reports of forty devices are merged into a sum twice and released: neither a report nor a sum of any of them is in the database
/// or its log, at any time.
#[test]
fn p20_no_report_and_no_sum_of_reports_is_in_the_database() {
    let (place, task) = (Place::new(), TaskDigest([1; 32]));
    let database = place.open();
    let devices: Vec<DeviceKey> = (1..=40).map(|byte| DeviceKey([byte; 32])).collect();
    database.commit(&devices.iter().map(|d| Write::Enrol { device: *d, day: 1 }).collect::<Vec<_>>()).unwrap();
    let clip = ClipNorm::new(1.0).unwrap();
    let encoding = Encoding::new(VectorPlan::of_update(8, 12), clip, None, Adjacency::ZeroOut).unwrap();
    let limits = ParticipationLimits::try_from(&Participation::Once).unwrap();
    let mut coordinator = Coordinator::new(database.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
    let asking = Asking { limits, goal: 40, begin_with: 1, population: 1_000 };
    coordinator.add_task(task, asking, None).unwrap();
    let opening = Opening {
        at: AttemptAt { task, round: 0, attempt: 0 },
        step: 0,
        goal: 40,
        limits,
        windows: Windows { select_ms: 0, report_ms: 600_000, answer_ms: 1_000, tick_ms: 1 },
        task: Blob { digest: task.0.to_vec(), bytes: 1 },
        model: Blob { digest: vec![9; 32], bytes: 4 },
        terms: Vec::new(),
        key: RoundKey::new(Zeroizing::new([3; 32])),
        aggregation: Aggregation::Plain(encoding.clone()),
    };
    coordinator.open(opening, 0).unwrap();
    for (request, device) in (0..).zip(&devices) {
        coordinator
            .said(request, *device, &Wants::CheckIn(CheckIn { patience_ms: 1_000, resting: Vec::new() }), 0)
            .unwrap();
    }
    let (mut secret, mut sum, mut merges) = (Vec::new(), [0i64; 8], 0);
    for (n, (request, answer)) in (0u64..).zip(coordinator.flush().unwrap()) {
        let Some(Says::Assignment(assignment)) = answer.says else { panic!("{answer:?}") };
        let ticket = Ticket(assignment.ticket.try_into().unwrap());
        // Words of which each is somebody's alone.
        let words: [i32; 8] = std::array::from_fn(|i| 20 * n as i32 + i as i32 + 1);
        let encoded = Encoded::of(words.to_vec(), &encoding).unwrap();
        // As it was sent, and as it is in memory.
        secret.extend([encoded.to_bytes(), words.iter().flat_map(|word| word.to_le_bytes()).collect()]);
        coordinator.report(request, &ticket, &Report::Plain(encoded), 150 * n).unwrap();
        coordinator.flush().unwrap();
        sum.iter_mut().zip(words).for_each(|(sum, word)| *sum += i64::from(word));
        let narrow: Vec<u8> = sum.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect();
        secret.extend([sum.iter().flat_map(|v| v.to_le_bytes()).collect(), narrow]);
        merges = database.open_attempt(&task).unwrap().unwrap().merged.len();
    }
    assert!(merges >= 32 && coordinator.has_closed(&task), "{merges} reports were merged");
    let kept = everything(&place);
    assert!(holds_any(&kept, &[devices[0].0.to_vec()]), "the search finds what is there");
    assert!(!holds_any(&kept, &secret), "a report, or a sum of reports, is in the database");
}

/// What is kept of a sum goes with its attempt: it is overwritten, not only forgotten.
#[test]
fn a_sealed_sum_is_overwritten_when_its_attempt_is_settled() {
    let place = Place::new();
    let database = place.open();
    let (device, at) = (DeviceKey([1; 32]), AttemptAt { task: TaskDigest([1; 32]), round: 0, attempt: 0 });
    let begin = [Write::Enrol { device, day: 1 }, Write::Open(at)];
    database.commit(&begin).unwrap();
    database.commit(&[Write::Assign { at, devices: vec![device] }]).unwrap();
    let sealed = |what: &str| what.repeat(50_000).into_bytes();
    database.commit(&[Write::Merge { at, sealed: sealed("first sum "), reports: vec![device] }]).unwrap();
    database.commit(&[Write::Merge { at, sealed: sealed("second sum "), reports: vec![] }]).unwrap();
    drop(database);
    let kept = everything(&place);
    assert!(holds(&kept, b"second sum second sum ") && !holds(&kept, b"first sum first sum "));
    let database = place.open();
    database.commit(&[Write::Settle { at, absent: vec![] }]).unwrap();
    drop(database);
    assert!(!holds(&everything(&place), b"second sum second sum "));
}

/// Rounds are numbers that are in the file as six bytes, which nothing else has: where a standing is left, they are found.
#[test]
fn devices_of_a_task_that_is_over_are_forgotten_to_the_last_byte() {
    const OVER: u64 = 0x7a11_5e1f_c0de;
    const OTHER: u64 = 0x7a11_5e1f_beef;
    let place = Place::new();
    let database = place.open();
    let key = |n: u64| {
        let mut key = [7; 32];
        key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        DeviceKey(key)
    };
    let enrol = |n| Write::Enrol { device: key(n), day: 1 };
    database.commit(&(0..3_000).map(enrol).collect::<Vec<_>>()).unwrap();
    for (task, round) in [(1, OVER), (2, OTHER)] {
        let at = AttemptAt { task: TaskDigest([task; 32]), round, attempt: 0 };
        database.commit(&[Write::Open(at)]).unwrap();
        // In no order, so that pages are split and rows moved about.
        for part in 0..30 {
            let devices = (0..3_000).filter(|n| n * 7_919 % 30 == part).map(key).collect();
            database.commit(&[Write::Assign { at, devices }]).unwrap();
        }
        database.commit(&[Write::Spoiled(at), Write::Settle { at, absent: vec![] }, enrol(3_000 + round)]).unwrap();
    }
    let bytes = |round: u64| round.to_be_bytes()[2..].to_vec();
    assert!(holds(&everything(&place), &bytes(OVER)));
    database.commit(&[Write::Forget { task: TaskDigest([1; 32]) }]).unwrap();
    database.empty_log().unwrap();
    let kept = everything(&place);
    assert!(!holds(&kept, &bytes(OVER)), "while the server runs");
    assert!(holds(&kept, &bytes(OTHER)), "of other tasks all stays");
    assert!(holds(&kept, &key(5).0), "devices stay, for other tasks");
    drop(database);
    assert!(!holds(&everything(&place), &bytes(OVER)), "and after it");
    let standing = place.open().standing(&TaskDigest([2; 32]), &key(5)).unwrap();
    assert_eq!((standing.participations, standing.spoiled), (1, 1));
}

#[test]
fn tables_of_the_versions_before_are_made_into_those_of_this_one() {
    let first = "ALTER TABLE tasks DROP COLUMN model; ALTER TABLE standings DROP COLUMN spoiled;
                 ALTER TABLE server DROP COLUMN assignments; DROP TABLE enrolments; PRAGMA user_version = 1;";
    let second = "DROP TABLE enrolments; PRAGMA user_version = 2;";
    [first, second].into_iter().for_each(made_anew);
}

/// Tables that were made into those of an old version.
fn made_anew(older: &str) {
    let place = Place::new();
    let (device, at) = (DeviceKey([1; 32]), AttemptAt { task: TaskDigest([1; 32]), round: 4, attempt: 0 });
    let database = place.open();
    database.commit(&[Write::Enrol { device, day: 1 }, Write::Open(at)]).unwrap();
    database.commit(&[Write::Assign { at, devices: vec![device] }]).unwrap();
    drop(database);
    let old = Connection::open(place.path()).unwrap();
    old.execute_batch(older).unwrap();
    drop(old);
    assert!(
        matches!(Database::read(place.path()), Err(DatabaseError::Version { .. })),
        "who only looks changes nothing"
    );
    for _ in 0..2 {
        let database = place.open();
        assert_eq!(database.standing(&at.task, &device).unwrap().joined, Some((4, 0)));
    }
    place.open().commit(&[Write::Spoiled(at), Write::CountEnrolment { hour: 3, place: None }]).unwrap();
    let database = place.open();
    assert_eq!((database.enrolled_in(3).unwrap().all, database.asked(&at.task).unwrap()), (1, 1));
    assert_eq!(database.spoiled(&at.task, 1).unwrap(), [(device, 1)]);
}

/// Ten thousand devices in a batch take a moment, and a model of 20 MB is no trouble.
#[test]
fn it_is_fast_enough() {
    let place = Place::new();
    let database = place.open();
    let at = AttemptAt { task: TaskDigest([1; 32]), round: 0, attempt: 0 };
    let key = |n: u64| {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        DeviceKey(key)
    };
    let devices: Vec<DeviceKey> = (0..10_000).map(key).collect();
    let enrol = |device: &DeviceKey| Write::Enrol { device: *device, day: 1 };
    let took = |what: &str, batch: &[Write]| {
        let watch = Instant::now();
        database.commit(batch).unwrap();
        let took = watch.elapsed();
        eprintln!("{what}: {} ms", took.as_millis());
        assert!(took < Duration::from_secs(5), "{what} took {took:?}");
    };
    took("10,000 enrolments", &devices.iter().map(enrol).collect::<Vec<_>>());
    took("10,000 assignments", &[Write::Open(at), Write::Assign { at, devices: devices.clone() }]);
    for n in 0..4 {
        let (sealed, reports) = (vec![n; 20_000_000], devices[usize::from(n) * 64..][..64].to_vec());
        took("a merge of 20 MB", &[Write::Merge { at, sealed, reports }]);
    }
    took("settled, 9,744 absent", &[Write::Settle { at, absent: devices[256..].to_vec() }]);
    took("a blob of 20 MB", &[Write::KeepBlob { digest: [1; 32], packed: vec![1; 20_000_000] }]);
    let watch = Instant::now();
    assert_eq!(database.blob(&[1; 32]).unwrap().unwrap().len(), 20_000_000);
    eprintln!("read again: {} ms", watch.elapsed().as_millis());
    let watch = Instant::now();
    devices.iter().for_each(|device| assert_eq!(database.standing(&at.task, device).unwrap().joined, Some((0, 0))));
    eprintln!("10,000 standings: {} ms", watch.elapsed().as_millis());
}
