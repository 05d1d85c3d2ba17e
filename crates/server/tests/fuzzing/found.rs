//! What a server finds again of its own: the attempt that was open, its database, lines of its ledgers, files beside its secrets, and the
//! files that its operator wrote. Any of it may be damaged, or be somebody else's.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

use device::protocol::message::DeviceKey;
use federated::{
    config::Document,
    home::{Home, Log, Paper, Records},
    protocol::{
        desk::{Aggregation, Desk, bound_to, opens},
        over_selection::OverSelection,
        store::{AttemptAt, OpenAttempt, Place, Store, Write},
    },
};
use keyhush_server::{
    listing::list,
    orders::Orders,
    sqlite::{DATABASE, Database, SqliteState, TaskHome, place_key},
    state::{AfterRound, Note, TaskState},
};
use ledger::{BegunAttempt, Entry, Head, Ledger, LedgerStore, ParticipationRecord};
use privacy::stages::{Encoded, Sum};

use super::{
    Front,
    ledger_story::{model_plan, model_step},
    uploads::{AT, TASK, encoding, opening, round_key},
};

const GOAL: u64 = 4;
const DIMENSION: usize = 8;

fn device(number: u8) -> DeviceKey {
    DeviceKey([number; 32])
}

/// A sum of these, who typed nothing, sealed as the coordinator seals it.
fn sealed(merged: &BTreeSet<DeviceKey>) -> Vec<u8> {
    let encoding = encoding(DIMENSION);
    let mut sum = Sum::zero(&encoding);
    merged.iter().for_each(|_| sum.add(&Encoded::of(vec![0; DIMENSION], &encoding).unwrap()).unwrap());
    sum.seal(&round_key().seal(&AT), &bound_to(&AT, merged)).unwrap()
}

/// An attempt as a database has it: whether its sum is the one that was kept, or one of others, or these bytes, or none; who was given it; whose
/// reports are in. It is taken where it goes on.
pub(super) fn attempt(bytes: &[u8]) -> bool {
    let mut front = Front(bytes);
    let Some([how, assigned, merged]) = front.take() else { return false };
    let mut some = |count: u8| -> Vec<DeviceKey> {
        let taken = usize::from(count & 15).min(front.0.len());
        let (these, rest) = front.0.split_at(taken);
        front.0 = rest;
        these.iter().map(|number| device(number % 16)).collect()
    };
    let (assigned, merged) = (some(assigned), some(merged));
    let list: BTreeSet<DeviceKey> = merged.iter().copied().collect();
    // Of those on the list, or of others.
    let of = if how & 4 == 0 { list.clone() } else { &list ^ &BTreeSet::from([device(15)]) };
    let ours = sealed(&of);
    let kept = match how & 3 {
        0 => None,
        1 => Some(ours.clone()),
        2 => Some(front.0.to_vec()),
        _ => Some(ours.iter().zip(front.0.iter().chain(std::iter::repeat(&0))).map(|(a, b)| a ^ b).collect()),
    };
    let encoding = encoding(DIMENSION);
    let is_of_the_list = kept.as_ref().map_or(list.is_empty(), |kept| *kept == ours && of == list);
    let is_ours = is_of_the_list && list.iter().all(|device| assigned.contains(device));
    let open = OpenAttempt { at: AT, assigned: assigned.clone(), merged, sealed: kept };
    assert_eq!(opens(&open, &round_key(), &encoding), is_ours, "it opens where nothing was changed");
    let Ok(mut desk) = Desk::open(opening(GOAL, Aggregation::Plain(encoding)), Some(open), 0) else {
        assert!(!is_ours, "what was kept does not open");
        return false;
    };
    assert!(is_ours, "a sum that was changed is gone on with");
    let goes_on = !desk.is_over();
    let (_, _) = (desk.wanted(&OverSelection::default()), desk.selects(3, 3, 0));
    for device in &assigned {
        assert!(desk.of(device).is_some(), "somebody who was given the attempt is not known");
        _ = desk.begins(device, 1);
    }
    _ = (desk.absent(), desk.fates(), desk.fates_known_at(5));
    desk.tick(1 << 40);
    goes_on && desk.take_closed().is_some()
}

/// A folder that is in memory where there is one, so that nothing waits for a disk.
fn folder() -> tempfile::TempDir {
    let in_memory = Path::new("/dev/shm");
    if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() }.unwrap()
}

/// The bytes of a database with something of everything in it.
pub(super) fn image() -> &'static [u8] {
    static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let folder = folder();
        let path = folder.path().join("data").join(DATABASE);
        let database = Arc::new(Database::open(&path).unwrap().with_witness(&folder.path().join("secrets")).unwrap());
        let devices: Vec<DeviceKey> = (0..20).map(device).collect();
        let enrol = |device: &DeviceKey| Write::Enrol { device: *device, day: 1 };
        database.commit(&devices.iter().map(enrol).collect::<Vec<_>>()).unwrap();
        let at = AttemptAt { round: 3, ..AT };
        database
            .commit(&[
                Write::CountEnrolment { hour: 7, place: Some(Place([1; 16])) },
                Write::Open(at),
                Write::Assign { at, devices: devices[..18].to_vec() },
                Write::Merge { at, sealed: vec![7; 300], reports: devices[..16].to_vec() },
                Write::KeepModel { task: TASK, digest: [9; 32], packed: vec![1; 100] },
                Write::Spoiled(at),
            ])
            .unwrap();
        let home = TaskHome::open(Arc::clone(&database), "words", &folder.path().join("secrets")).unwrap();
        let note = Note {
            digest: ledger::hex(&TASK.0),
            evaluation: None,
            obeys: federated::protocol::order::Order::Run,
            served: true,
            broken: None,
        };
        home.write_note(&note).unwrap();
        home.write_state(2, None, &mut |out| out.write_all(&[5; 200])).unwrap();
        home.open_log(Log::Metrics, &|_| true).unwrap().append("{}").unwrap();
        let secrets = home.secrets();
        let mut book = secrets.begin_ledger(home.create_store().unwrap(), model_plan(8), 0).unwrap().0;
        let _receipt = model_step(&mut book, 0).unwrap();
        let after = AfterRound { rounds: 1, release: Some(("model", 0)) };
        home.publish_model(&book.head(), after, [9; 32]).unwrap();
        drop(book);
        let begun = BegunAttempt { stream: "model".into(), step: 1, attempt: 0, declared: 4 };
        home.open_store().unwrap().begin_attempt(&begun).unwrap();
        drop((home, database));
        fs::read(&path).unwrap()
    });
    &IMAGE
}

/// A database, changed: where, and the bytes that are put there, again and again. It is taken where nothing of it is missed.
pub(super) fn database(bytes: &[u8]) -> bool {
    let mut front = Front(bytes);
    let Some([how]) = front.take() else { return false };
    let mut damaged = image().to_vec();
    while let Some([a, b, c]) = front.take() {
        let place = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
        let Some(piece) = front.piece() else { break };
        let place = place % damaged.len();
        damaged.iter_mut().skip(place).zip(piece).for_each(|(to, from)| *to = *from);
    }
    if how & 2 == 2 {
        damaged.truncate(damaged.len() * 2 / 3);
    }
    let folder = folder();
    let path = placed(folder.path(), &damaged);
    if how & 1 == 1 {
        // Who may write tries to; what is there may be refused, and nothing more.
        if let Ok(database) = Database::open(&path) {
            _ = database
                .commit(&[Write::Enrol { device: device(77), day: 2 }, Write::Spoiled(AttemptAt { round: 3, ..AT })]);
            _ = TaskHome::open(Arc::new(database), "words", &folder.path().join("secrets"))
                .map(|home| (home.is_begun().is_ok(), home.open_store().is_ok()));
        }
    }
    let data = folder.path().join("data");
    let listed = SqliteState::read(&data).ok().and_then(|state| list(&state, &Orders::in_data(&data)).ok());
    looked_at(&path).is_some() && listed.is_some_and(|tasks| tasks.len() == 1 && tasks[0].ledger.is_some())
}

/// Puts a database where a server would have it.
fn placed(folder: &Path, bytes: &[u8]) -> PathBuf {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let data = folder.join("data");
    fs::DirBuilder::new().mode(0o700).create(&data).unwrap();
    let path = data.join(DATABASE);
    let mut file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
    fs::write(data.join(format!("{DATABASE}.lock")), "").unwrap();
    path
}

/// Everything that can be asked of it; none where something cannot be had.
fn looked_at(path: &Path) -> Option<()> {
    let database = Arc::new(Database::read(path).ok()?);
    _ = database.realm().ok()?;
    assert!(database.enrolled().ok()? < u64::MAX);
    for number in 0..20 {
        _ = (database.is_enrolled(&device(number)).ok()?, database.standing(&TASK, &device(number)).ok()?);
    }
    _ = (database.spoiled(&TASK, 1).ok()?, database.asked(&TASK).ok()?, database.enrolled_in(7).ok()?);
    _ = (database.open_attempt(&TASK).ok()?, database.blob(&[9; 32]).ok()?);
    let home = TaskHome::read(Arc::clone(&database), "words").ok()?;
    let (note, published) = (home.note().ok()?, home.published_model().ok()?);
    _ = (home.model().ok()?, home.paper(Paper::Settings).ok()?, home.lines(Log::Metrics).ok()?);
    for round in home.states().ok()? {
        std::io::copy(&mut home.read_state(round).ok()?, &mut std::io::sink()).ok()?;
    }
    let store = home.read_store().ok()?;
    _ = (store.released(1).ok()?, store.begun_attempt().ok()?);
    for record in store.participations().ok()?? {
        record.ok()?;
    }
    let book = Ledger::open(store, None, &home.shown_heads().ok()?).ok()?;
    book.verify(&[], None).ok()?;
    (note.is_some() && published.is_some()).then_some(())
}

/// A line of a ledger, of its side table, or of what a database notes.
pub(super) fn line(bytes: &[u8]) -> bool {
    let entry = Entry::parse(bytes);
    if let Ok(entry) = &entry {
        assert_eq!(entry.line().as_bytes(), bytes, "an entry is its line");
    }
    let Ok(text) = str::from_utf8(bytes) else { return entry.is_ok() };
    let record = ParticipationRecord::parse(text);
    if let Ok(record) = &record {
        assert_eq!(record.line(), text);
        _ = ledger::PseudonymKey::from_bytes(&[1; 32]).recognise(record, [&b"ada"[..]]);
    }
    let head = text.parse::<Head>();
    if let Ok(head) = &head {
        assert_eq!(head.to_string().parse::<Head>().unwrap(), *head);
    }
    let noted = serde_json::from_str::<Note>(text).is_ok() || serde_json::from_str::<BegunAttempt>(text).is_ok();
    entry.is_ok() || record.is_ok() || head.is_ok() || noted
}

/// A file beside the secrets: the count of assignments, the key of addresses, or the head of a ledger. `REALM` and `HEAD` stand for what is
/// right. It is taken where the server goes on.
pub(super) fn secrets(bytes: &[u8]) -> bool {
    let mut front = Front(bytes);
    let Some([which]) = front.take() else { return false };
    let (folder, image) = (folder(), image());
    let path = placed(folder.path(), image);
    let secrets = folder.path().join("secrets");
    let Ok(database) = Database::open(&path) else { panic!("the database is whole") };
    let home = TaskHome::open(Arc::new(database), "words", &secrets).unwrap();
    let filled = |name: &[u8], by: &str| {
        let at = front.0.windows(name.len()).position(|window| window == name);
        at.map_or(front.0.to_vec(), |at| [&front.0[..at], by.as_bytes(), &front.0[at + name.len()..]].concat())
    };
    let put = |file: &str, bytes: Vec<u8>| fs::write(secrets.join(file), bytes).unwrap();
    match which % 3 {
        0 => {
            let realm = ledger::hex(&home_database(&path).realm().unwrap());
            put("assignments", filled(b"REALM", &realm));
            drop(home);
            // One batch gave devices a task: nothing above one is gone on with.
            let opened = Database::open(&path).unwrap().with_witness(&secrets);
            let now = fs::read_to_string(secrets.join("assignments"));
            assert!(
                opened.is_err() || now.is_ok_and(|now| now == format!("1 {realm}\n")),
                "another count is gone on with"
            );
            opened.is_ok()
        }
        1 => {
            put("places", front.0.to_vec());
            let key = place_key(&secrets);
            assert_eq!(key.is_ok(), front.0.len() == 32);
            key.is_ok()
        }
        _ => {
            let without = TaskHome::read(Arc::new(home_database(&path)), "words").unwrap();
            let head = without.read_store().unwrap().head().unwrap();
            put("words/ledger.head", filled(b"HEAD", &head.to_string()));
            home.open_store().is_ok()
        }
    }
}

fn home_database(path: &Path) -> Database {
    Database::read(path).unwrap()
}

/// What an operator wrote: the settings of a task.
pub(super) fn task(bytes: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(bytes) else { return false };
    let Ok(document) = Document::new(text, &["rounds=3".to_owned()]) else { return false };
    match document.config() {
        Ok(_) => true,
        Err(error) => {
            _ = document.locate(error).to_string();
            false
        }
    }
}
