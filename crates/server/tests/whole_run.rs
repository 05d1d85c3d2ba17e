//! A whole training over the network, with real devices of made-up people: the model is the one that the threads of one process come
//! to over the same people, to the byte, plainly and by secure aggregation; and so is what devices measure of models on the way.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::settings::{means, settings, state};
use crate::small_runs::{TASK, with};
use agent::{
    http::{Server, Trust},
    many::{self, Behaviour, Tally},
    parts::{Did, Line, Parts},
    text::{Synthetic, TextSource},
    training::{Learning, Trainers},
};
use corpus::synth::{Crowd, Dialect, SynthPlan};
use device::{
    guard::{Limits, TaskDigest, Timer, Window},
    protocol::{
        message::{DeviceKey, Enrol},
        policy::Policy,
        terms::Purpose,
    },
};
use federated::{
    config::{Config, Document},
    fleet::Stop,
    ledger_file::Place,
    metrics::{ByDevices, Metrics},
    model_folder,
    plan::Plan,
    population::SyntheticPopulation,
    protocol::{
        admission::Admission,
        order::Order,
        store::{Standing, Store, Write},
    },
    replay::{Cohorts, Played, replay},
    run::Opened,
};
use keyhush_server::{
    orders::Orders,
    sqlite::{Database, DatabaseError, SqliteState, TaskHome},
    state::{Note, TaskState},
    tasks::{Happened, ServeError, Settings, Written, serve},
};
use ledger::{hex, unhex};
use lm::{folder::Weights, tokenizer::Tokenizer};

/// The crowd whose people the devices are of.
const CROWD: u64 = 5;

const CHANGES: [&str; 10] = [
    "rounds=3",
    "participation.population=100",
    "participation.min_separation=0",
    "participation.max_participations=3",
    "participation.cohort=12",
    "devices.select_seconds=0.3",
    "devices.report_seconds=60",
    "devices.answer_seconds=30",
    "devices.tick_seconds=0.05",
    "devices.begin_with=",
];

fn config(set: &[String]) -> Config {
    Document::new(&with(TASK, &CHANGES), set).unwrap().config().unwrap()
}

/// What is left of a task that is over.
struct Left {
    model: Vec<f32>,
    /// The lines of its metrics.
    metrics: Vec<Metrics>,
    /// Who was thanked for which evaluation.
    measured: BTreeMap<u64, Vec<u64>>,
    verified: ledger::Verification,
    /// Releases of each stream.
    releases: BTreeMap<String, u64>,
}

/// A task, served to so many devices until it is over.
fn over_the_network(set: &[String], devices: u64) -> Left {
    let folder = tempfile::tempdir().unwrap();
    let (stop, listening) = (Stop::new(), Mutex::new(None::<SocketAddr>));
    let left = Mutex::new(None);
    let settings = settings(folder.path());
    let happens = |happened: &Happened<'_>| match happened {
        Happened::Listening(address) => *listening.lock().unwrap() = Some(*address),
        Happened::Over { folder, .. } => {
            let model = model_folder::read(folder).unwrap();
            let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
            let metrics: Vec<Metrics> = metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let ledger = Place::new(folder.join("ledger.jsonl")).read(&[]).unwrap();
            let verified = ledger.verify(&[], None).unwrap();
            *left.lock().unwrap() = Some((model, metrics, verified, ledger.releases()));
        }
        Happened::Broken { error, .. } => panic!("{error}"),
        _ => {}
    };
    let parts = std::thread::scope(|scope| {
        let tasks = vec![Written { name: "words".into(), config: config(set), approval: None }];
        let served = scope.spawn(|| serve(&state(folder.path()), tasks, settings, &stop, &happens));
        let address = loop {
            if let Some(address) = *listening.lock().unwrap() {
                break address;
            }
            assert!(!served.is_finished(), "the server ended: {:?}", served.join());
            std::thread::sleep(Duration::from_millis(5));
        };
        let parts = run_devices(address, devices, || served.is_finished());
        served.join().unwrap().unwrap();
        parts
    });
    // What devices were given last is a model whose release the ledger has (rule P13): to train, that of the last but one; to measure, the last.
    let database = Arc::new(Database::read(folder.path().join("data/keyhush.sqlite")).unwrap());
    let published = TaskHome::read(database, "words").unwrap().published_model().unwrap().unwrap();
    let measures = set.iter().any(|key| key.starts_with("evaluation.devices"));
    assert!(published.rounds == if measures { 3 } else { 2 } && published.entry.is_some(), "{published:?}");
    let (model, metrics, verified, releases) = left.into_inner().unwrap().unwrap();
    let Weights::Recurrent { values, .. } = model.weights else { panic!("no network") };
    let mut measured: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in parts.iter().filter(|line| line.did == Did::Thanked && line.purpose == Purpose::Evaluation) {
        measured.entry(line.step.unwrap()).or_default().push(line.device);
    }
    Left { model: values, metrics, measured, verified, releases }
}

/// What is written where others read it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Devices of the people of a crowd, until something is over. Gives what they did.
fn run_devices(address: SocketAddr, count: u64, over: impl Fn() -> bool) -> Vec<Line> {
    let crowd = Arc::new(Crowd::new(SynthPlan::new(CROWD, count, Dialect::Informal)).unwrap());
    let plan = many::Plan {
        count,
        behaviour: Behaviour::Steady,
        seed: 1,
        day_s: 86_400.0,
        spread_s: 0.0,
        inputs: 64,
        token: Vec::new(),
        attestation: Vec::new(),
        policy: Policy::for_made_up_people(),
        limits: Limits { most_inputs: 100, window: Window::Ever, separation: None, timer: Timer::NONE },
        patience_ms: 5_000,
        keep_until_thanked: true,
        text: Arc::new(move |user| Arc::new(Synthetic { crowd: Arc::clone(&crowd), user }) as Arc<dyn TextSource>),
    };
    let server = Arc::new(Server::new(&format!("http://{address}"), &Trust::Loopback, count as usize).unwrap());
    let trainers = Arc::new(Trainers::new(1, Learning::Train));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (ask, stop) = tokio::sync::watch::channel(false);
    let written = Shared::default();
    let tally = Arc::new(Tally::with_parts(Parts::new(written.clone())));
    runtime.block_on(async {
        let running = tokio::spawn(many::run(plan, server, trainers, tally, stop));
        while !over() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ask.send(true).unwrap();
        running.await.unwrap().unwrap();
    });
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The same task on threads, with so many people, all of whom take part in every round, and those who measured in evaluations, after how
/// many rounds.
fn on_threads(set: &[String], people: u64, evaluations: BTreeMap<u64, Vec<u64>>) -> Played {
    let config = config(set);
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    let crowd = Crowd::new(SynthPlan::new(CROWD, people, Dialect::Informal)).unwrap();
    let tokenizer = Tokenizer::new(opened.rules());
    let population = SyntheticPopulation::new(crowd, tokenizer, opened.vocabulary(), opened.learner());
    let rounds = vec![(0..people).collect(); plan.rounds as usize];
    replay(&plan, &opened, &population, &Cohorts { rounds, evaluations }, means()).unwrap()
}

/// Evaluations after rounds 2 and 3, of so many devices.
fn by_devices(goal: u64) -> [String; 6] {
    let goal = format!("cohort={goal}");
    let keys = ["every=2", &goal, "min_separation=0", "max_participations=2", "noise_multiplier=0.1", "most_tokens=60"];
    keys.map(|key| format!("evaluation.devices.{key}"))
}

/// Rule P17: what `keyhush serve` calls refuses a database that was set back, before anybody is spoken to.
#[test]
fn p17_a_server_does_not_start_on_a_database_that_was_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("data/keyhush.sqlite")).unwrap();
    let realm = hex(&database.realm().unwrap());
    drop(database.with_witness(&folder.path().join("secrets")).unwrap());
    std::fs::write(folder.path().join("secrets/assignments"), format!("1 {realm}\n")).unwrap();
    let error = SqliteState::open(&folder.path().join("data"), &folder.path().join("secrets")).unwrap_err();
    assert!(matches!(error, DatabaseError::SetBack { shown: 1, have: 0, .. }), "{error}");
}

/// An admission with a bug.
struct Bug;

impl Admission for Bug {
    fn admits(&self, _: &DeviceKey, _: &Enrol) -> Result<(), String> {
        panic!("a bug that was put here for a test")
    }
}

/// A server until it ends by itself, with a device where it listens. One that does not end is told to, and that is an error.
fn serve_until_it_ends(
    settings: Settings,
    devices: u64,
    happens: impl Fn(&Happened<'_>) + Sync,
) -> Result<(), ServeError> {
    let (listening, stop) = (Mutex::new(None), Stop::new());
    let happens = |happened: &Happened<'_>| {
        if let Happened::Listening(address) = happened {
            *listening.lock().unwrap() = Some(*address);
        }
        happens(happened);
    };
    let state = state(settings.data.parent().unwrap());
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(&state, task(), settings, &stop, &happens));
        let began = std::time::Instant::now();
        let is_over = || served.is_finished() || began.elapsed() > Duration::from_secs(20);
        let address = loop {
            if let Some(address) = *listening.lock().unwrap() {
                break Some(address);
            }
            if is_over() {
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if let Some(address) = address.filter(|_| devices > 0) {
            run_devices(address, devices, is_over);
        }
        while !is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let has_ended = served.is_finished();
        stop.ask();
        let done = served.join().expect("a bug becomes an error");
        assert!(has_ended, "it does not end");
        done
    })
}

/// A server whose coordinator ends by a bug ends, and says so; it does not stay there and answer nobody.
#[test]
fn a_bug_of_the_coordinator_ends_the_server_which_says_so() {
    for ends_with_tasks in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { admission: Box::new(Bug), ends_with_tasks, ..settings(folder.path()) };
        let ended = serve_until_it_ends(settings, 1, |_| {});
        assert!(matches!(ended, Err(ServeError::Died)), "{ends_with_tasks}: {ended:?}");
    }
}

/// A task whose thread ends by a bug is one that cannot go on, as after any error: that is said, and kept where people look for it.
#[test]
fn a_bug_of_a_task_is_said_and_ends_the_server() {
    for ends_with_tasks in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let said = Mutex::new(Vec::new());
        let settings = Settings { ends_with_tasks, ..settings(folder.path()) };
        let ended = serve_until_it_ends(settings, 0, |happened| match happened {
            Happened::Running { .. } => panic!("a bug that was put here for a test"),
            Happened::Broken { error, .. } => said.lock().unwrap().push(error.to_string()),
            _ => {}
        });
        assert!(matches!(ended, Err(ServeError::Died)), "{ends_with_tasks}: {ended:?}");
        let said = said.into_inner().unwrap();
        assert_eq!(said.len(), 1);
        let database = Arc::new(Database::read(folder.path().join("data/keyhush.sqlite")).unwrap());
        let note = TaskHome::read(database, "words").unwrap().note().unwrap().unwrap();
        assert_eq!(note.broken.as_ref(), said.first());
    }
}

pub(crate) fn task() -> Vec<Written> {
    vec![Written { name: "words".into(), config: config(&[]), approval: None }]
}

/// A server in a folder until its task runs.
fn begun_in(folder: &Path) -> Result<(), ServeError> {
    let stop = Stop::new();
    let happens = |happened: &Happened<'_>| {
        if matches!(happened, Happened::Running { .. } | Happened::Broken { .. }) {
            stop.ask();
        }
    };
    serve(&state(folder), task(), settings(folder), &stop, &happens)
}

/// Rule P18: how often devices took part is known by the digest of the terms. Where those are others when a server is started again, all
/// of them would be new.
#[test]
fn p18_a_task_goes_on_under_the_terms_that_it_was_begun_with_alone() {
    let folder = tempfile::tempdir().unwrap();
    begun_in(folder.path()).unwrap();
    begun_in(folder.path()).expect("the same again");
    // As if it had been begun by a program that writes its terms in another way.
    {
        let database = Arc::new(Database::open(folder.path().join("data/keyhush.sqlite")).unwrap());
        let home = TaskHome::open(database, "words", &folder.path().join("secrets")).unwrap();
        let note = home.note().unwrap().unwrap();
        home.write_note(&Note { digest: hex(&[9; 32]), ..note }).unwrap();
    }
    for _ in 0..2 {
        let refused = begun_in(folder.path());
        assert!(matches!(refused, Err(ServeError::OtherTerms { .. })), "{refused:?}");
    }
    // It can be ended.
    Orders::in_data(&folder.path().join("data")).give("words", Order::Stop).unwrap();
    serve(&state(folder.path()), task(), settings(folder.path()), &Stop::new(), &|_| {}).unwrap();
    assert!(folder.path().join("data/models/words/ledger.jsonl").is_file());
}

/// Rule P24: a server ended in the midst of a round, and its operator stops the task before it is started again.
#[test]
fn p24_who_was_given_the_round_of_a_task_that_is_stopped_is_on_record() {
    let folder = tempfile::tempdir().unwrap();
    begun_in(folder.path()).unwrap();
    let (path, device) = (folder.path().join("data/keyhush.sqlite"), DeviceKey([5; 32]));
    let words = {
        let database = Arc::new(Database::open(&path).unwrap());
        let note = TaskHome::read(database.clone(), "words").unwrap().note().unwrap().unwrap();
        let task = TaskDigest(unhex(&note.digest).unwrap());
        let at = database.open_attempt(&task).unwrap().expect("the first round was begun").at;
        let given = [Write::Enrol { device, day: 1 }, Write::Assign { at, devices: vec![device] }];
        database.commit(&given).unwrap();
        task
    };
    Orders::in_data(&folder.path().join("data")).give("words", Order::Stop).unwrap();
    serve(&state(folder.path()), task(), settings(folder.path()), &Stop::new(), &|_| {}).unwrap();
    let side = std::fs::read_to_string(folder.path().join("data/models/words/ledger.jsonl.participations")).unwrap();
    let records: Vec<serde_json::Value> = side.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let pseudonyms: Vec<usize> = records.iter().map(|r| r["pseudonyms"].as_str().unwrap().len()).collect();
    assert_eq!(pseudonyms, [32], "one attempt, and one device in it: {side}");
    let standing = Database::read(&path).unwrap().standing(&words, &device).unwrap();
    assert_eq!(standing, Standing::default(), "whose it is, nobody knows any more");
}

/// What is backed up and what must not be lie in two folders, the same ones each time.
#[test]
fn p20_folders_of_data_and_of_secrets_are_not_mixed_up() {
    let folder = tempfile::tempdir().unwrap();
    begun_in(folder.path()).unwrap();
    let (data, secrets) = (folder.path().join("data"), folder.path().join("secrets"));
    std::os::unix::fs::symlink(&data, folder.path().join("link")).unwrap();
    let wrong = [
        (secrets.clone(), data.clone()),
        (secrets.clone(), folder.path().join("new")),
        (folder.path().join("new"), data.clone()),
        (data.clone(), data.join("secrets")),
        (data.clone(), folder.path().join("link/secrets")),
        (folder.path().join("new/below"), folder.path().join("new")),
        (data.clone(), data.clone()),
    ];
    for (data, secrets) in wrong {
        let words = format!("{} and {}", data.display(), secrets.display());
        let refused = SqliteState::open(&data, &secrets);
        assert!(matches!(refused, Err(DatabaseError::Folders { .. })), "{words}: {refused:?}");
    }
    assert!(!folder.path().join("new").exists(), "nothing is begun there");
}

#[test]
fn a_run_over_the_network_is_that_of_threads_to_the_byte_and_is_measured_on_public_text() {
    let public = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(public.path(), "hello there\n\nhow are you\n").unwrap();
    let set = ["devices.begin_with=12".to_owned(), format!("data.public_text={}", public.path().display())];
    let left = over_the_network(&set, 12);
    assert_eq!(left.model, on_threads(&set[..1], 12, BTreeMap::new()).model);
    // Five words and the ends of two posts, before the first round and after the last; no device was asked.
    let measured: Vec<(u64, u64)> = left.metrics.iter().map(|line| (line.round, line.targets)).collect();
    assert_eq!(measured, [(0, 7), (3, 7)]);
    assert!(left.metrics.iter().all(|line| line.by_devices.is_none()) && left.measured.is_empty());
}

/// What devices do not send they keep, over the network as in a simulation: the largest coordinates in four rounds with a warm-up, and a mask.
#[test]
fn compressed_runs_over_the_network_are_those_of_threads_to_the_byte() {
    let sparse = &["upload.kind=sparse", "upload.share=0.05", "upload.warm_up=1", "upload.local_clip=2"][..];
    let mask = &["upload.kind=mask", "upload.share=0.2", "upload.keep_rest=true", "privacy.mechanism=gaussian"];
    let whole = on_threads(&["devices.begin_with=12".to_owned()], 12, BTreeMap::new()).model;
    for set in [sparse, mask] {
        let set: Vec<String> = ["devices.begin_with=12"].iter().chain(set).map(|&set| set.to_owned()).collect();
        let model = over_the_network(&set, 12).model;
        assert!(model == on_threads(&set, 12, BTreeMap::new()).model && model != whole, "{set:?}");
    }
}

/// Text that is not there, empty, or without the labels that are learned is no text to measure on: made-up people are not taken instead.
#[test]
fn public_text_that_models_cannot_be_measured_on_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.txt");
    std::fs::write(&empty, "\n  \n").unwrap();
    let text = folder.path().join("text.txt");
    std::fs::write(&text, "hello\n").unwrap();
    let tags = ["model.learner=tags", "model.preset=", "model.hidden=", "model.embedding=", "local.unroll="];
    for (path, more, words) in [
        (&folder.path().join("none.txt"), &[][..], "No such file"),
        (&empty, &[], "has no text"),
        (&text, &tags, "has no labels"),
    ] {
        let set: Vec<String> = more.iter().map(|key| (*key).to_owned()).collect();
        let config = config(&[set, vec![format!("data.public_text={}", path.display())]].concat());
        let refused = Opened::new(&config).map(drop).unwrap_err().to_string();
        assert!(refused.contains("data.public_text") && refused.contains(words), "{refused}");
    }
}

/// Devices measure models between rounds, some of them, under limits of their own. Nothing of the model depends on it; what they say is what
/// threads come to over the very devices that were thanked for it.
#[test]
fn what_devices_measure_over_the_network_is_that_of_threads_to_the_bit() {
    let set = [vec!["devices.begin_with=12".to_owned()], by_devices(5).to_vec()].concat();
    let left = over_the_network(&set, 12);
    assert_eq!(left.model, on_threads(&set[..1], 12, BTreeMap::new()).model, "evaluations change no model");
    check_evaluations(&set, 12, &left, 5..=5);
}

fn check_evaluations(set: &[String], devices: u64, left: &Left, reports: std::ops::RangeInclusive<usize>) {
    assert_eq!(left.measured.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert!(left.measured.values().all(|who| reports.contains(&who.len())), "{:?}", left.measured);
    let evaluations = BTreeMap::from([(2, left.measured[&0].clone()), (3, left.measured[&1].clone())]);
    let played = on_threads(set, devices, evaluations);
    assert_eq!(left.model, played.model);
    let said = |line: &Metrics| line.by_devices.clone().map(|by_devices| (line.round, by_devices));
    let said: BTreeMap<u64, ByDevices> = left.metrics.iter().filter_map(said).collect();
    assert_eq!(said, played.by_devices);
    assert!(said[&3].noise_standard_deviation["accuracy_top1"].is_some_and(|noise| noise > 0.0 && noise < 1.0));
    // Both streams are on record, each with who took part in it.
    assert_eq!((left.releases["model"], left.releases["evaluation"]), (3, 2));
    let observed = &left.verified.observed;
    assert_eq!(observed["model"].released.max_participations, 3);
    assert!((1..=2).contains(&observed["evaluation"].released.max_participations), "{observed:?}");
}

/// The server sees masked counts, and learns their sum.
#[test]
fn what_devices_measure_by_secure_aggregation_is_that_of_threads_to_the_bit() {
    let secure = ["aggregation=secagg", "secagg.dropout=0.05", "secagg.corrupted=0", "devices.begin_with=14"];
    let set = [secure.map(str::to_owned).to_vec(), by_devices(8).to_vec()].concat();
    let left = over_the_network(&set, 14);
    check_evaluations(&set, 14, &left, 8..=14);
}

#[test]
fn a_secure_run_over_the_network_is_that_of_threads_to_the_byte() {
    // Of 14 devices all take part: so many are asked that the goal is reached if one vanishes, and none does.
    let set = ["aggregation=secagg", "secagg.dropout=0.05", "secagg.corrupted=0", "devices.begin_with=14"];
    let set = set.map(str::to_owned);
    assert_eq!(over_the_network(&set, 14).model, on_threads(&set, 14, BTreeMap::new()).model);
}
