//! What a device learned and has not sent: kept in its file, saved before a report leaves and after the text is used up, and gone when it should be.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use device::{
    guard::{Limits, MemoryStore, Store, StoreError, Timer, Window, file::FileStore},
    protocol::{
        participant::{Note, Participant, Settings},
        policy::Policy,
        task::{Text, TextPost},
    },
    unsent::{self, Unsent},
};
use keyhush_agent::{
    AgentError,
    eligibility::Always,
    http::{Server, Trust},
    identity::Identity,
    one::{self, Clocks, Surroundings},
    text::{Keep, TextSource, TextStore, today},
    training::{Learning, Trainers},
    unsent::UnsentFile,
};
use privacy::stages::Encoded;
use secagg::entropy::OsEntropy;
use tokio::{sync::watch, time::timeout};

use crate::serving::Serving;

const KEEP: unsent::Keep = unsent::Keep { days: 30, bytes: 1 << 20 };

const LIMITS: Limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };

/// What was done, in this order, and how many reports had arrived then.
type Log = Arc<Mutex<Vec<(&'static str, usize)>>>;

/// The text of a device, which notes when it is used up, and can be what a disk was full with from then on.
struct Typed {
    store: TextStore<MemoryStore>,
    serving: Arc<Serving>,
    log: Log,
    fills: Arc<AtomicBool>,
}

impl TextSource for Typed {
    fn text(&self) -> Result<Text, AgentError> {
        self.store.text()
    }

    fn read(&self, posts: usize) {
        self.store.read(posts);
    }

    fn used(&self) -> Result<(), AgentError> {
        self.log.lock().unwrap().push(("text", self.serving.reports(0)));
        self.fills.store(true, Ordering::Relaxed);
        self.store.used()
    }
}

/// A disk that notes when something is saved on it, and that can be full.
#[derive(Clone)]
struct Noted {
    disk: Arc<Mutex<MemoryStore>>,
    is_full: Arc<AtomicBool>,
    serving: Arc<Serving>,
    log: Log,
}

impl Store for Noted {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        self.disk.lock().unwrap().load()
    }

    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.log.lock().unwrap().push(("unsent", self.serving.reports(0)));
        self.is_there_room()?;
        self.disk.lock().unwrap().save(bytes)
    }

    fn has_room(&mut self, _: u64) -> Result<(), StoreError> {
        self.is_there_room()
    }
}

impl Noted {
    fn is_there_room(&self) -> Result<(), StoreError> {
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(StoreError::Failed { doing: "write", place: "it".into(), problem: "the disk is full".into() }),
            false => Ok(()),
        }
    }
}

/// A device takes part once: what it says at the end.
async fn takes_part(folder: &Path, serving: &Arc<Serving>, text: Arc<dyn TextSource>, unsent: UnsentFile) -> Note {
    let Identity { key, guard, diary } = Identity::open_or_make(folder).unwrap();
    let settings = Settings::new(key, b"let me in".to_vec(), Policy::for_made_up_people(), LIMITS);
    let mut device = Participant::new(settings, guard, diary, Box::new(OsEntropy));
    let address = serving.listen(None).await;
    let around = Surroundings {
        server: Arc::new(Server::new(&format!("http://{address}"), &Trust::Loopback, 4).unwrap()),
        trainers: Arc::new(Trainers::new(1, Learning::Train)),
        content: None,
        text,
        unsent,
        eligibility: Arc::new(Always),
        patience: Duration::from_secs(1),
    };
    let (stop, stopped) = watch::channel(false);
    let mut last = None;
    let heard = |note: &Note| {
        if matches!(note, Note::Thanked { .. } | Note::Refused(_)) {
            last = Some(note.clone());
            stop.send(true).unwrap();
        }
    };
    timeout(Duration::from_secs(60), one::run(&mut device, &around, Clocks::now_on(), stopped, heard)).await.unwrap();
    last.unwrap()
}

fn typed(serving: &Arc<Serving>, log: &Log) -> Arc<Typed> {
    let store = TextStore::open(MemoryStore::default(), Keep::default(), today()).unwrap();
    let text = "w1 w2 w3 w4 w5 w6".to_owned();
    store.add(TextPost { text, labels: vec!["t1".to_owned()] }, today()).unwrap();
    Arc::new(Typed { store, serving: serving.clone(), log: log.clone(), fills: Arc::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_sent_is_kept_in_a_file_of_the_owner_and_goes_with_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::of_few(3, 5);
    let path = folder.path().join("unsent");
    let mut sizes = Vec::new();
    for step in 0..2 {
        // A new life of the device: what it keeps is in its file.
        let unsent = UnsentFile::open(FileStore::lock(path.clone()).unwrap(), KEEP, today()).unwrap();
        assert_eq!(unsent.page().is_some(), step > 0);
        let said = takes_part(folder.path(), &serving, typed(&serving, &Log::default()), unsent).await;
        assert!(matches!(said, Note::Thanked { .. }), "{said}");
        assert_eq!((serving.reports(step), serving.wrong()), (1, Vec::new()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        sizes.push(fs::metadata(&path).unwrap().len());
        serving.next_step();
    }
    // Both vectors of a model of 101 by 3 parameters, whatever was typed.
    assert!(sizes[0] == sizes[1] && sizes[0] > 2 * 4 * 101 * 3, "{sizes:?}");
    let before = fs::read(&path).unwrap();
    Unsent::forget(&mut FileStore::lock(path.clone()).unwrap()).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 100);
    assert_eq!(UnsentFile::open(FileStore::lock(path.clone()).unwrap(), KEEP, today()).unwrap().page(), None);
    // After the last report that the plan allows there is no use for it.
    fs::write(&path, before).unwrap();
    let unsent = UnsentFile::open(FileStore::lock(path.clone()).unwrap(), KEEP, today()).unwrap();
    assert!(unsent.page().is_some());
    takes_part(folder.path(), &serving, typed(&serving, &Log::default()), unsent.clone()).await;
    assert_eq!((serving.reports(2), unsent.page()), (1, None));
    assert!(fs::metadata(&path).unwrap().len() < 100);
}

/// In this order no text is learned from twice after a crash, and what has left is owed no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_text_is_used_up_then_the_rest_is_saved_and_then_the_report_leaves() {
    for fills in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (serving, log) = (Serving::of_few(3, 5), Log::default());
        let disk = Arc::new(Mutex::new(MemoryStore::default()));
        let text = typed(&serving, &log);
        // There was room when training began.
        let is_full = if fills { text.fills.clone() } else { Arc::default() };
        let noted = Noted { disk: disk.clone(), is_full, serving: serving.clone(), log: log.clone() };
        let unsent = UnsentFile::open(noted, KEEP, today()).unwrap();
        let said = takes_part(folder.path(), &serving, text.clone(), unsent).await;
        assert_eq!(*log.lock().unwrap(), [("text", 0), ("unsent", 0)], "before the first byte, in this order");
        assert!(text.store.text().unwrap().posts.is_empty(), "the text is used up either way");
        match fills {
            false => assert!(matches!(said, Note::Thanked { .. }), "{said}"),
            true => {
                assert!(
                    said.to_string().contains("that is not sent cannot be stored: cannot write it: the disk is full"),
                    "{said}"
                );
                assert_eq!(disk.lock().unwrap().bytes, None);
            }
        }
        assert_eq!(serving.reports(0), usize::from(!fills));
    }
}

/// Each round learned from text, deleted it, could not keep the rest, and sent nothing; and every input counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_costs_no_text_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (serving, log) = (Serving::of_few(3, 5), Log::default());
    let (disk, is_full) = (Arc::new(Mutex::new(MemoryStore::default())), Arc::new(AtomicBool::new(true)));
    let text = typed(&serving, &log);
    for life in 0..3 {
        is_full.store(life < 2, Ordering::Relaxed);
        let noted = Noted { disk: disk.clone(), is_full: is_full.clone(), serving: serving.clone(), log: log.clone() };
        let unsent = UnsentFile::open(noted, KEEP, today()).unwrap();
        let said = takes_part(folder.path(), &serving, text.clone(), unsent).await;
        if life < 2 {
            let said = said.to_string();
            assert!(said.contains("training failed: what it would not send cannot be kept for later rounds"), "{said}");
            assert_eq!((text.store.text().unwrap().posts.len(), log.lock().unwrap().as_slice()), (1, &[][..]));
            assert_eq!(Identity::open_or_make(folder.path()).unwrap().guard.inputs(), 0, "it does not count either");
        } else {
            assert!(matches!(said, Note::Thanked { .. }), "{said}");
            assert!(text.store.text().unwrap().posts.is_empty());
        }
        serving.next_step();
    }
}

/// In a warm-up each round sends less than the one before, and a report of that one has the wrong length.
#[tokio::test]
async fn a_ready_made_report_has_as_many_coordinates_as_its_round() {
    let serving = Serving::of_few(3, 9);
    let (trainers, text) = (Trainers::new(1, Learning::Ready), typed(&serving, &Log::default()));
    let unsent = UnsentFile::open(MemoryStore::default(), KEEP, today()).unwrap();
    for count in [9, 4, 4, 9] {
        let work = serving.work(count);
        let made = trainers.train(Box::new(work.clone()), text.clone(), unsent.clone()).await.unwrap();
        Encoded::check(&made.to_bytes(), &work.step.encoding).unwrap();
    }
}

/// Who keeps nothing takes part all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_no_days_nothing_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::of_few(3, 5);
    let disk = Arc::new(Mutex::new(MemoryStore::default()));
    let noted =
        Noted { disk: disk.clone(), is_full: Arc::new(true.into()), serving: serving.clone(), log: Log::default() };
    let unsent = UnsentFile::open(noted, unsent::Keep { days: 0, ..KEEP }, today()).unwrap();
    let said = takes_part(folder.path(), &serving, typed(&serving, &Log::default()), unsent).await;
    assert!(matches!(said, Note::Thanked { .. }) && disk.lock().unwrap().bytes.is_none(), "{said}");
}
