//! Devices over real connections: one over TLS, many in one process, steady ones and realistic ones.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::serving::Serving;
use corpus::synth::{Crowd, Dialect, SynthPlan};
use device::{
    guard::{Asked, Limits, MemoryStore, ModelDigest, TaskDigest, Timer, Window},
    protocol::{
        participant::{Note, Participant, Settings},
        policy::Policy,
        task::{Text, TextPost},
    },
    unsent::{self, Unsent},
    upload::Rest,
};
use keyhush_agent::{
    AgentError,
    eligibility::{Always, FileSays},
    http::{Server, Trust},
    identity::Identity,
    many::{self, Behaviour, Plan, Tally},
    one::{self, Clocks, Surroundings},
    text::{Keep, Synthetic, TextFolder, TextSource, TextStore, today},
    training::{Learning, Trainers},
    unsent::UnsentFile,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use secagg::entropy::OsEntropy;
use tokio::{sync::watch, time::timeout};
use tokio_rustls::TlsAcceptor;

const LIMITS: Limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };

/// A certificate for this machine, and what accepts connections with it.
fn certificate(folder: &Path, name: &str) -> (PathBuf, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(made.cert.der().to_vec())], key)
        .unwrap();
    (path, TlsAcceptor::from(Arc::new(config)))
}

fn around(server: Server, text: Arc<dyn TextSource>) -> Surroundings {
    Surroundings {
        server: Arc::new(server),
        trainers: Arc::new(Trainers::new(1, Learning::Train)),
        content: None,
        text,
        unsent: UnsentFile::open(MemoryStore::default(), unsent::Keep::default(), today()).unwrap(),
        eligibility: Arc::new(Always),
        patience: Duration::from_secs(1),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_device_over_tls_gives_for_a_step_once_and_remembers_through_its_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("typed.txt"), "w1 w2 w3\nw4 w5\n").unwrap();
    let (certificate, tls) = certificate(folder.path(), "server.pem");
    let serving = Serving::new(2, 5);
    let address = serving.listen(Some(tls)).await;
    let url = format!("https://localhost:{}", address.port());
    for (steps, trust) in [Trust::Pinned(certificate.clone()), Trust::Roots(certificate)].into_iter().enumerate() {
        let identity = Identity::open_or_make(folder.path()).unwrap();
        let settings = Settings::new(identity.key, b"let me in".to_vec(), Policy::for_made_up_people(), LIMITS);
        let mut device = Participant::new(settings, identity.guard, identity.diary, Box::new(OsEntropy));
        assert_eq!(device.guard().inputs(), steps);
        let around = around(Server::new(&url, &trust, 4).unwrap(), Arc::new(TextFolder::new(folder.path())));
        let (stop, stopped) = watch::channel(false);
        let mut notes = Vec::new();
        let heard = |note: &Note| {
            notes.push(note.clone());
            if matches!(note, Note::Thanked { .. }) {
                stop.send(true).unwrap();
            }
        };
        let running = one::run(&mut device, &around, Clocks::now_on(), stopped, heard);
        timeout(Duration::from_secs(60), running).await.unwrap();
        assert_eq!(notes.iter().filter(|n| matches!(n, Note::Gave { .. })).count(), 1, "{notes:?}");
        assert_eq!(serving.reports(steps as u64), 1);
        assert!(device.page(Clocks::now_on().now()).contains("it counts"));
        serving.next_step();
    }
    assert_eq!(serving.wrong(), Vec::<String>::new());
}

/// A device that is in use, or pays for its network, says nothing to anybody.
#[tokio::test]
async fn a_device_that_may_not_take_part_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::new(&format!("http://{}", listener.local_addr().unwrap()), &Trust::Loopback, 4).unwrap();
    let says = folder.path().join("eligible");
    let Identity { key, guard, diary } = Identity::open_or_make(&folder.path().join("device")).unwrap();
    let settings = Settings::new(key, Vec::new(), Policy::for_made_up_people(), LIMITS);
    let mut device = Participant::new(settings, guard, diary, Box::new(OsEntropy));
    let text: Arc<dyn TextSource> = Arc::new(TextFolder::new(folder.path()));
    let around = Surroundings { eligibility: Arc::new(FileSays(says.clone())), ..around(server, text) };
    for (word, speaks) in [(None, false), (Some("no"), false), (Some("yes\n"), true)] {
        if let Some(word) = word {
            std::fs::write(&says, word).unwrap();
        }
        let (_stop, stopped) = watch::channel(false);
        let running = one::run(&mut device, &around, Clocks::now_on(), stopped, |_| {});
        let spoke = tokio::select! {
            _ = listener.accept() => true,
            () = running => false,
            () = tokio::time::sleep(Duration::from_secs(if speaks { 30 } else { 1 })) => false,
        };
        assert_eq!(spoke, speaks, "{word:?}");
    }
}

/// What a device learned more than 30 days ago and did not send, in a store that was opened on that day.
fn old_unsent() -> UnsentFile {
    let long_ago = today() - 40;
    let mut kept = Unsent::open(MemoryStore::default(), unsent::Keep::default(), long_ago).unwrap();
    let asked = Asked { task: TaskDigest([1; 32]), step: 0, model: ModelDigest::of(&[1.0]) };
    kept.learned(asked, Some(Rest::new(vec![1.0], vec![2.0])));
    kept.left(0, long_ago).unwrap();
    UnsentFile::open(kept.into_store(), unsent::Keep::default(), long_ago).unwrap()
}

/// A device that was never idle and charging kept its owner's text for as long as it was not.
#[tokio::test]
async fn what_is_too_old_goes_from_a_device_that_never_may_take_part() {
    let folder = tempfile::tempdir().unwrap();
    let says = folder.path().join("eligible");
    std::fs::write(&says, "no").unwrap();
    let store = TextStore::open(MemoryStore::default(), Keep::default(), today() - 40).unwrap();
    store.add(TextPost { text: "old".to_owned(), labels: vec![] }, today() - 40).unwrap();
    let (text, unsent) = (Arc::new(store), old_unsent());
    assert!(text.bytes() == 3 && unsent.page().is_some());
    let server = Server::new("http://127.0.0.1:9", &Trust::Loopback, 1).unwrap();
    let around =
        Surroundings { eligibility: Arc::new(FileSays(says)), unsent: unsent.clone(), ..around(server, text.clone()) };
    let Identity { key, guard, diary } = Identity::open_or_make(&folder.path().join("device")).unwrap();
    let settings = Settings::new(key, Vec::new(), Policy::for_made_up_people(), LIMITS);
    let mut device = Participant::new(settings, guard, diary, Box::new(OsEntropy));
    let (_stop, stopped) = watch::channel(false);
    let running = one::run(&mut device, &around, Clocks::now_on(), stopped, |_| {});
    assert!(timeout(Duration::from_secs(1), running).await.is_err(), "it waits until it may");
    assert_eq!((text.bytes(), unsent.page()), (0, None));
}

/// Text on which training panics.
struct Bug;

impl TextSource for Bug {
    fn text(&self) -> Result<Text, AgentError> {
        panic!("a bug that was put here for a test")
    }
}

/// All devices of a process share a thread that trains. It ended by a bug once, and then all of them refused every task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bug_in_training_costs_one_part_and_not_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("typed.txt"), "w1 w2 w3\n").unwrap();
    let serving = Serving::new(2, 5);
    let url = format!("http://{}", serving.listen(None).await);
    let buggy = around(Server::new(&url, &Trust::Loopback, 4).unwrap(), Arc::new(Bug));
    let fine = Surroundings { text: Arc::new(TextFolder::new(folder.path())), ..buggy.clone() };
    for (around, name) in [(buggy, "buggy"), (fine, "fine")] {
        let Identity { key, guard, diary } = Identity::open_or_make(&folder.path().join(name)).unwrap();
        let settings = Settings::new(key, b"let me in".to_vec(), Policy::for_made_up_people(), LIMITS);
        let mut device = Participant::new(settings, guard, diary, Box::new(OsEntropy));
        let (stop, stopped) = watch::channel(false);
        let mut told = Vec::new();
        let heard = |note: &Note| {
            if matches!(note, Note::Thanked { .. } | Note::Refused(_)) {
                told.push(note.to_string());
                stop.send(true).unwrap();
            }
        };
        timeout(Duration::from_secs(60), one::run(&mut device, &around, Clocks::now_on(), stopped, heard))
            .await
            .unwrap();
        let is_told = if name == "fine" { "was counted" } else { "training panicked because of a bug" };
        assert!(told.len() == 1 && told[0].contains(is_told), "{name}: {told:?}");
    }
    assert_eq!(serving.wrong(), Vec::<String>::new());
}

/// A store of text that notes how many reports had arrived when its text was used, and fails at that if it is to.
struct Watched {
    store: TextStore<MemoryStore>,
    serving: Arc<Serving>,
    fails: bool,
    had_arrived: Mutex<Vec<usize>>,
}

impl TextSource for Watched {
    fn text(&self) -> Result<Text, AgentError> {
        self.store.text()
    }

    fn read(&self, posts: usize) {
        self.store.read(posts);
    }

    fn used(&self) -> Result<(), AgentError> {
        self.had_arrived.lock().unwrap().push(self.serving.reports(0));
        if self.fails {
            return Err(AgentError::NoRandomness("it fails on purpose".to_owned()));
        }
        // Somebody types while the report is about to leave.
        self.store.add(TextPost { text: "w9".to_owned(), labels: vec![] }, 1)?;
        self.store.used()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_is_used_up_before_a_report_leaves_and_no_report_leaves_where_it_cannot_be() {
    tokio::join!(text_is_used_up(false), text_is_used_up(true));
}

async fn text_is_used_up(fails: bool) {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::new(2, 0);
    let store = TextStore::open(MemoryStore::default(), Keep::default(), 1).unwrap();
    store.add(TextPost { text: "w1 w2 w3".to_owned(), labels: vec![] }, 1).unwrap();
    let watched = Arc::new(Watched { store, serving: serving.clone(), fails, had_arrived: Mutex::default() });
    let address = serving.listen(None).await;
    let server = Server::new(&format!("http://{address}"), &Trust::Loopback, 4).unwrap();
    let Identity { key, guard, diary } = Identity::open_or_make(folder.path()).unwrap();
    let settings = Settings::new(key, b"let me in".to_vec(), Policy::for_made_up_people(), LIMITS);
    let mut device = Participant::new(settings, guard, diary, Box::new(OsEntropy));
    let (stop, stopped) = watch::channel(false);
    let mut kept_back = 0;
    let heard = |note: &Note| {
        let is_kept_back =
            matches!(note, Note::Refused(why) if why.contains("was not sent") && why.contains("on purpose"));
        kept_back += usize::from(is_kept_back);
        if is_kept_back || matches!(note, Note::Thanked { .. }) {
            stop.send(true).unwrap();
        }
    };
    let around = around(server, watched.clone());
    let running = one::run(&mut device, &around, Clocks::now_on(), stopped, heard);
    timeout(Duration::from_secs(60), running).await.unwrap();
    assert_eq!(*watched.had_arrived.lock().unwrap(), [0], "before the first byte, once");
    assert_eq!((kept_back, serving.reports(0)), if fails { (1, 0) } else { (0, 1) });
    assert_eq!(device.guard().inputs(), 1, "it counts either way");
    let left: Vec<String> = watched.store.text().unwrap().posts.into_iter().map(|post| post.text).collect();
    assert_eq!(left, [if fails { "w1 w2 w3" } else { "w9" }]);
}

/// A model that is measured learns nothing from the text: it stays until it is learned from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_that_a_model_is_measured_on_is_not_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::of_evaluations(2);
    let store = TextStore::open(MemoryStore::default(), Keep::default(), 1).unwrap();
    store.add(TextPost { text: "w1 w2 w3".to_owned(), labels: vec!["t1".to_owned()] }, 1).unwrap();
    let watched = Arc::new(Watched { store, serving: serving.clone(), fails: false, had_arrived: Mutex::default() });
    let address = serving.listen(None).await;
    let server = Server::new(&format!("http://{address}"), &Trust::Loopback, 4).unwrap();
    let Identity { key, guard, diary } = Identity::open_or_make(folder.path()).unwrap();
    let settings = Settings::new(key, b"let me in".to_vec(), Policy::for_made_up_people(), LIMITS);
    let mut device = Participant::new(settings, guard, diary, Box::new(OsEntropy));
    let (stop, stopped) = watch::channel(false);
    let heard = |note: &Note| {
        if matches!(note, Note::Thanked { .. }) {
            stop.send(true).unwrap();
        }
    };
    let around = around(server, watched.clone());
    let running = one::run(&mut device, &around, Clocks::now_on(), stopped, heard);
    timeout(Duration::from_secs(60), running).await.unwrap();
    assert_eq!((serving.reports(0), serving.wrong()), (1, Vec::new()), "four numbers arrived, within their bounds");
    assert!(watched.had_arrived.lock().unwrap().is_empty(), "nothing was used up");
    assert_eq!(watched.store.text().unwrap().posts.len(), 1);
    assert!(
        device.page(Clocks::now_on().now()).contains("evaluation 0: counts of how well"),
        "{}",
        device.page(Clocks::now_on().now())
    );
}

#[tokio::test]
async fn a_server_with_another_certificate_is_not_spoken_to() {
    let folder = tempfile::tempdir().unwrap();
    let (_, tls) = certificate(folder.path(), "theirs.pem");
    let (ours, _) = certificate(folder.path(), "ours.pem");
    let address = Serving::new(1, 0).listen(Some(tls)).await;
    for trust in [Trust::Pinned(ours.clone()), Trust::Roots(ours)] {
        let server = Server::new(&format!("https://localhost:{}", address.port()), &trust, 1).unwrap();
        let said = server.hello().await.unwrap_err().to_string();
        assert!(said.contains("cannot connect") && said.contains("ertificate"), "{said}");
    }
}

#[test]
fn addresses_without_tls_are_for_this_machine_only() {
    let nowhere = Trust::Roots(PathBuf::from("/there/is/none.pem"));
    for (address, trust) in [
        ("http://example.org", &Trust::Loopback),
        ("http://10.0.0.1:80", &Trust::Loopback),
        ("http://127.0.0.1:80", &nowhere),
        ("https://127.0.0.1:80", &Trust::Loopback),
        ("https://localhost", &nowhere),
        ("ftp://localhost", &Trust::Loopback),
        ("localhost", &Trust::Loopback),
        ("http://localhost/path", &Trust::Loopback),
    ] {
        assert!(Server::new(address, trust, 1).is_err(), "{address}");
    }
    for address in ["http://127.0.0.1:8080", "http://localhost", "http://[::1]:80/"] {
        Server::new(address, &Trust::Loopback, 1).unwrap();
    }
}

fn plan(count: u64, behaviour: Behaviour) -> Plan {
    let mut people = SynthPlan::new(1, count, Dialect::Informal);
    people.posts_per_user = 3;
    let crowd = Arc::new(Crowd::new(people).unwrap());
    Plan {
        count,
        behaviour,
        seed: 9,
        day_s: 4.0,
        spread_s: 0.2,
        inputs: 8,
        token: b"let me in".to_vec(),
        attestation: Vec::new(),
        policy: Policy::for_made_up_people(),
        limits: LIMITS,
        patience_ms: 100,
        keep_until_thanked: false,
        text: Arc::new(move |user| Arc::new(Synthetic { crowd: crowd.clone(), user })),
    }
}

async fn served(serving: &Arc<Serving>) -> Arc<Server> {
    let address = serving.listen(None).await;
    Arc::new(Server::new(&format!("http://{address}"), &Trust::Loopback, 16).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_steady_devices_send_what_is_ready_and_share_one_download() {
    let serving = Serving::new(3000, 0);
    let server = served(&serving).await;
    let (stop, stopped) = watch::channel(false);
    let tally = Arc::new(Tally::default());
    let trainers = Arc::new(Trainers::new(1, Learning::Ready));
    let running = tokio::spawn(many::run(plan(60, Behaviour::Steady), server, trainers, tally.clone(), stopped));
    for step in 0..2 {
        timeout(Duration::from_secs(60), async {
            while serving.reports(step) < 60 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{} of 60 in step {step}: {:?}", serving.reports(step), tally.counted()));
        serving.next_step();
    }
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(serving.wrong(), Vec::<String>::new());
    let counted = tally.counted();
    assert_eq!((counted.enrolled, counted.crashed, counted.refused), (60, 0, 0));
    assert!(counted.gave >= 120);
    assert!(serving.fetched.load(Ordering::Relaxed) <= 3, "one download a model, for all of them");
}

/// Text that notes how often it was told to let go of what is too old.
#[derive(Default)]
struct Ages(AtomicU64);

impl TextSource for Ages {
    fn text(&self) -> Result<Text, AgentError> {
        Ok(Text { posts: vec![], features: vec![] })
    }

    fn let_go_of_old(&self) -> Result<(), AgentError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Where many devices share a process, each lets go of what is too old too, also one that is asleep and one whose server is away.
#[tokio::test]
async fn each_of_many_devices_lets_go_of_what_is_too_old() {
    for behaviour in [Behaviour::Steady, Behaviour::Realistic] {
        let texts: Vec<Arc<Ages>> = (0..12).map(|_| Arc::default()).collect();
        let theirs = texts.clone();
        let text = Arc::new(move |user: u64| -> Arc<dyn TextSource> { theirs[user as usize].clone() });
        let plan = Plan { text, day_s: 86_400.0, spread_s: 0.0, ..plan(12, behaviour) };
        let server = Arc::new(Server::new("http://127.0.0.1:9", &Trust::Loopback, 1).unwrap());
        let (_stop, stopped) = watch::channel(false);
        let trainers = Arc::new(Trainers::new(1, Learning::Train));
        let running = many::run(plan, server, trainers, Arc::default(), stopped);
        assert!(timeout(Duration::from_millis(500), running).await.is_err(), "they go on");
        let told: Vec<u64> = texts.iter().map(|text| text.0.load(Ordering::Relaxed)).collect();
        assert_eq!(told, [1; 12], "each once, and not at every thing it does");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_made_reports_are_for_simulations_alone() {
    let serving = Serving::with(3, 0, false);
    let server = served(&serving).await;
    let (stop, stopped) = watch::channel(false);
    let tally = Arc::new(Tally::default());
    let trainers = Arc::new(Trainers::new(1, Learning::Ready));
    let running = tokio::spawn(many::run(plan(5, Behaviour::Steady), server, trainers, tally.clone(), stopped));
    timeout(Duration::from_secs(60), async {
        while tally.counted().refused < 5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{:?}", tally.counted()));
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(
        (serving.reports(0), tally.counted().gave),
        (0, 0),
        "nothing leaves a device for a task that protects people"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_realistic_devices_come_and_go_and_none_gives_twice() {
    let serving = Serving::new(3, 23);
    let server = served(&serving).await;
    let (stop, stopped) = watch::channel(false);
    let tally = Arc::new(Tally::default());
    let trainers = Arc::new(Trainers::new(1, Learning::Train));
    let running = tokio::spawn(many::run(plan(80, Behaviour::Realistic), server, trainers, tally.clone(), stopped));
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        serving.next_step();
    }
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
    let (counted, reports) = (tally.counted(), (0..6).map(|step| serving.reports(step) as u64).sum::<u64>());
    assert_eq!(serving.wrong(), Vec::<String>::new());
    assert!(reports > 10 && counted.gave >= reports && counted.crashed > 0, "{reports}: {counted:?}");
}
