//! A whole training over the network, with real devices of made-up people: the model is the one that the threads of one process come
//! to over the same people, to the byte, plainly and by secure aggregation.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

mod settings;

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
    guard::{Limits, Window},
    protocol::policy::Policy,
};
use federated::{
    config::{Config, Document},
    fleet::Stop,
    model_folder,
    plan::Plan,
    population::SyntheticPopulation,
    protocol::store::Store,
    replay::replay,
    run::Opened,
};
use keyhush_server::{
    sqlite::{DATABASE, Database, DatabaseError, TaskHome},
    tasks::{Happened, ServeError, Written, serve},
};
use ledger::hex;
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
        Happened::Over { folder, .. } => *model.lock().unwrap() = Some(model_folder::read(folder).unwrap()),
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
    // What devices were given in the last round was published: the model of all releases before it.
    let database = Arc::new(Database::read(folder.path().join("data").join(DATABASE)).unwrap());
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
