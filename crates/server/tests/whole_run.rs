//! A whole training over the network, with real devices of made-up people: the model is the one that the threads of one process come
//! to over the same people, to the byte, plainly and by secure aggregation.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use crate::settings;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent::{
    http::{Server, Trust},
    many::{self, Behaviour, Tally},
    text::{Synthetic, TextSource},
    training::{Learning, Trainers},
};
use corpus::synth::{Crowd, Dialect, SynthPlan};
use device::{
    guard::{Limits, TaskDigest, Window},
    protocol::{message::DeviceKey, policy::Policy},
};
use federated::{
    config::{Config, Document},
    fleet::Stop,
    model_folder,
    plan::Plan,
    population::SyntheticPopulation,
    protocol::{
        order::Order,
        store::{Standing, Store, Write},
    },
    replay::replay,
    run::Opened,
};
use keyhush_server::{
    orders::Orders,
    sqlite::{Database, DatabaseError, Note, TaskHome},
    tasks::{Happened, ServeError, Written, serve},
};
use ledger::{hex, unhex};
use lm::{folder::Weights, tokenizer::Tokenizer};
use settings::{means, settings};

/// The crowd whose people the devices are of.
const CROWD: u64 = 5;

const TASK: &str = r#"
rounds = 3
unit = "device"
noise_seed = 3

[data]
kind = "devices"

[model]
preset = "tiny"
vocabulary = 100
hidden = 6
embedding = 6

[local]
batch = 4
unroll = 5
learning_rate = 0.5
most_tokens = 40

[participation]
kind = "arrival"
population = 100
min_separation = 0
max_participations = 3
cohort = 12

[clip]
kind = "flat"
norm = 0.5

[privacy]
mechanism = "tree"
noise_multiplier = 2.0
delta = 1e-5

[server]
optimizer = "sgd"
learning_rate = 0.5

[evaluation]
every = 3
users = 6
most_tokens = 300

[devices]
select_seconds = 0.3
report_seconds = 60
answer_seconds = 30
tick_seconds = 0.05
"#;

fn config(set: &[String]) -> Config {
    Document::new(TASK, set).unwrap().config().unwrap()
}

/// A task, served to so many devices until it is over. Gives the parameters of its model.
fn over_the_network(set: &[String], devices: u64) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let (stop, listening) = (Stop::new(), Mutex::new(None::<SocketAddr>));
    let model = Mutex::new(None);
    let settings = settings(folder.path());
    let happens = |happened: &Happened<'_>| match happened {
        Happened::Listening(address) => *listening.lock().unwrap() = Some(*address),
        Happened::Over { folder: written, .. } => {
            *model.lock().unwrap() = Some(model_folder::read(written).unwrap());
        }
        Happened::Broken { error, .. } => panic!("{error}"),
        _ => {}
    };
    std::thread::scope(|scope| {
        let tasks = vec![Written { name: "words".into(), config: config(set) }];
        let served = scope.spawn(|| serve(tasks, settings, &stop, &happens));
        let address = loop {
            if let Some(address) = *listening.lock().unwrap() {
                break address;
            }
            assert!(!served.is_finished(), "the server ended: {:?}", served.join());
            std::thread::sleep(Duration::from_millis(5));
        };
        run_devices(address, devices, || served.is_finished());
        served.join().unwrap().unwrap();
    });
    // What devices were given last is the model of the last release but one, and the ledger has that release (rule P13).
    let database = Arc::new(Database::read(folder.path().join("data/keyhush.sqlite")).unwrap());
    let published = TaskHome::read(database, "words").unwrap().published_model().unwrap().unwrap();
    assert!(published.rounds == 2 && published.entry.is_some(), "{published:?}");
    let Weights::Recurrent { values, .. } = model.into_inner().unwrap().unwrap().weights else { panic!("no network") };
    values
}

/// Devices of the people of a crowd, until something is over.
fn run_devices(address: SocketAddr, count: u64, over: impl Fn() -> bool) {
    let crowd = Arc::new(Crowd::new(SynthPlan::new(CROWD, count, Dialect::Informal)).unwrap());
    let plan = many::Plan {
        count,
        behaviour: Behaviour::Steady,
        seed: 1,
        day_s: 86_400.0,
        spread_s: 0.0,
        inputs: 64,
        token: Vec::new(),
        policy: Policy::for_made_up_people(),
        limits: Limits { most_inputs: 100, window: Window::Ever, separation: None },
        patience_ms: 5_000,
        keep_until_thanked: true,
        text: Arc::new(move |user| Arc::new(Synthetic { crowd: Arc::clone(&crowd), user }) as Arc<dyn TextSource>),
    };
    let server = Arc::new(Server::new(&format!("http://{address}"), &Trust::Loopback, count as usize).unwrap());
    let trainers = Arc::new(Trainers::new(1, Learning::Train));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (ask, stop) = tokio::sync::watch::channel(false);
    runtime.block_on(async {
        let running = tokio::spawn(many::run(plan, server, trainers, Arc::new(Tally::default()), stop));
        while !over() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ask.send(true).unwrap();
        running.await.unwrap().unwrap();
    });
}

/// The same task on threads, with so many people, all of whom take part in every round.
fn on_threads(set: &[String], people: u64) -> Vec<f32> {
    let config = config(set);
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    let crowd = Crowd::new(SynthPlan::new(CROWD, people, Dialect::Informal)).unwrap();
    let tokenizer = Tokenizer::new(opened.rules());
    let population = SyntheticPopulation::new(crowd, tokenizer, opened.vocabulary(), opened.learner());
    let cohorts = vec![(0..people).collect(); plan.rounds as usize];
    replay(&plan, &opened, &population, &cohorts, means()).unwrap()
}

/// Rule P17: what `keyhush serve` calls refuses a database that was set back, before anybody is spoken to.
#[test]
fn p17_a_server_does_not_start_on_a_database_that_was_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path().join("data/keyhush.sqlite")).unwrap();
    let realm = hex(&database.realm().unwrap());
    drop(database.with_witness(&folder.path().join("secrets")).unwrap());
    std::fs::write(folder.path().join("secrets/assignments"), format!("1 {realm}\n")).unwrap();
    let tasks = vec![Written { name: "words".into(), config: config(&[]) }];
    let settings = settings(folder.path());
    let refused = serve(tasks, settings, &Stop::new(), &|happened| panic!("{happened:?}"));
    let Err(ServeError::Database(error)) = refused else { panic!("{refused:?}") };
    assert!(matches!(*error, DatabaseError::SetBack { shown: 1, have: 0, .. }), "{error}");
}

fn task() -> Vec<Written> {
    vec![Written { name: "words".into(), config: config(&[]) }]
}

/// A server in a folder until its task runs.
fn begun_in(folder: &Path) -> Result<(), ServeError> {
    let stop = Stop::new();
    let happens = |happened: &Happened<'_>| {
        if matches!(happened, Happened::Running { .. } | Happened::Broken { .. }) {
            stop.ask();
        }
    };
    serve(task(), settings(folder), &stop, &happens)
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
    serve(task(), settings(folder.path()), &Stop::new(), &|_| {}).unwrap();
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
    serve(task(), settings(folder.path()), &Stop::new(), &|_| {}).unwrap();
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
        let settings = Settings { data, secrets, ..settings(folder.path()) };
        let words = format!("{} and {}", settings.data.display(), settings.secrets.display());
        let refused = serve(task(), settings, &Stop::new(), &|happened| panic!("{words}: {happened:?}"));
        assert!(matches!(refused, Err(ServeError::Folders { .. })), "{words}: {refused:?}");
    }
    assert!(!folder.path().join("new").exists(), "nothing is begun there");
}

#[test]
fn a_run_over_the_network_is_that_of_threads_to_the_byte() {
    let set = ["devices.begin_with=12".to_owned()];
    assert_eq!(over_the_network(&set, 12), on_threads(&set, 12));
}

#[test]
fn a_secure_run_over_the_network_is_that_of_threads_to_the_byte() {
    // Of 14 devices all take part: so many are asked that the goal is reached if one vanishes, and none does.
    let set = ["aggregation=secagg", "secagg.dropout=0.05", "secagg.corrupted=0", "devices.begin_with=14"];
    let set = set.map(str::to_owned);
    assert_eq!(over_the_network(&set, 14), on_threads(&set, 14));
}
