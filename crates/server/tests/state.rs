//! The contract of a server's state: a database that keeps it, and those of its parts, can take the place of SQLite. Both that there are keep it.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    net::IpAddr,
    path::Path,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use device::protocol::message::DeviceKey;
use federated::{
    contract,
    fleet::Stop,
    home::{Home, Paper, Records},
    protocol::{order::Order, store::Write},
    secrets::Secrets,
};
use keyhush_server::{
    listing::list,
    orders::Orders,
    sqlite::SqliteState,
    state::{AfterRound, Note, State, StateError, TaskState},
    tasks::{Happened, serve},
};
use ledger::{Head, Ledger};
use lm::{
    folder::{Folder, Guarantee, Weights},
    model::{config::ModelConfig, parameters::ParameterLayout},
    tokenizer::Rules,
    vocabulary::Vocabulary,
};

use crate::{
    ledger_story::{model_step, plan as ledger_plan},
    memory_state::MemoryState,
    settings::{settings, state},
    whole_run::task,
};

#[test]
fn the_state_of_a_server_in_memory() {
    keeps_the_contract(MemoryState::new(), |state| state);
    contract::home(&{
        let state = MemoryState::new();
        move || state.task("words").unwrap().home().clone()
    });
}

#[test]
fn the_state_of_a_server_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    keeps_the_contract(state(folder.path()), |before| {
        drop(before);
        state(folder.path())
    });
}

/// Each of these begins with what the one before has left. `again` is what a server finds that is started again.
fn keeps_the_contract<S: State>(state: S, again: impl Fn(S) -> S) {
    names(&state);
    notes(&state);
    let state = again(state);
    p13_a_model_is_published_after_its_event_and_never_changed(&state.task("words").unwrap());
    models(&state);
    let key = state.place_key().unwrap();
    let device = DeviceKey([1; 32]);
    state.coordinator().commit(&[Write::Enrol { device, day: 1 }]).unwrap();
    let realm = state.coordinator().realm().unwrap();
    let published = state.task("words").unwrap().published_model().unwrap();
    state.erase().unwrap();
    assert!(state.is_served().unwrap());

    let state = again(state);
    let address: IpAddr = "203.0.113.9".parse().unwrap();
    assert_eq!(state.place_key().unwrap().place(address, 3), key.place(address, 3), "it is drawn once");
    assert_eq!((state.coordinator().realm().unwrap(), state.coordinator().enrolled().unwrap()), (realm, 1));
    assert_eq!(state.names().unwrap(), ["a", "words"]);
    for task in [state.task("words").unwrap(), state.read_task("words").unwrap()] {
        assert_eq!(task.published_model().unwrap(), published);
        assert!(published.is_some() && task.note().unwrap() == Some(note(true)) && task.model().unwrap().is_some());
    }
}

fn names<S: State>(state: &S) {
    let refused = |name: &str| matches!(state.read_task(name), Err(StateError::Refused(_)));
    assert!(state.names().unwrap().is_empty() && refused("words"));
    for name in ["words", "a", "words"] {
        state.task(name).unwrap();
    }
    assert_eq!(state.names().unwrap(), ["a", "words"], "in order, and each once");
    assert!(state.read_task("words").is_ok() && refused("Words") && refused("b"));
    for evil in ["", ".", "../words", "a/b", "Words", "mot dièse", "a\0"] {
        assert!(matches!(state.task(evil), Err(StateError::Name(_))), "{evil:?}");
    }
    assert_eq!(state.names().unwrap().len(), 2, "nothing was begun");
}

fn note(served: bool) -> Note {
    Note { digest: "01".repeat(32), evaluation: None, obeys: Order::Pause, served, broken: Some("why".to_owned()) }
}

fn notes<S: State>(state: &S) {
    let words = state.task("words").unwrap();
    assert_eq!(words.note().unwrap(), None);
    // Who has no secrets may say how it stands.
    for (task, served) in [(&words, false), (&state.read_task("words").unwrap(), true)] {
        task.write_note(&note(served)).unwrap();
        assert_eq!(state.task("words").unwrap().note().unwrap(), Some(note(served)));
    }
    assert_eq!(state.task("a").unwrap().note().unwrap(), None, "another task is another");
    words.home().write_paper(Paper::Settings, "of words").unwrap();
    assert_eq!(state.task("a").unwrap().home().paper(Paper::Settings).unwrap(), None);
    assert_eq!(state.read_task("words").unwrap().home().paper(Paper::Settings).unwrap().as_deref(), Some("of words"));
}

/// No model is given out before the event that pays for it is in the ledger; and none of a ledger that went on.
fn p13_a_model_is_published_after_its_event_and_never_changed(task: &impl TaskState) {
    let first = AfterRound { rounds: 0, release: None };
    let after = |step: u64| AfterRound { rounds: step + 1, release: Some(("model", step)) };
    let refused = |head: &Head, after: AfterRound<'_>, digest: u8| {
        let before = task.published_model().unwrap();
        let answer = task.publish_model(head, after, [digest; 32]);
        assert!(matches!(answer, Err(StateError::Refused(_))), "{answer:?}");
        assert_eq!(task.published_model().unwrap(), before, "refused, and it changed");
    };
    refused(&Head::EMPTY, first, 1);
    let secrets: Secrets = task.home().secrets();
    let (mut ledger, _) = secrets.begin_ledger(task.home().create_store().unwrap(), ledger_plan(), 1).unwrap();
    let plan = ledger.head();
    assert_eq!(task.published_model().unwrap(), None);
    refused(&plan, after(0), 1);
    task.publish_model(&plan, first, [1; 32]).unwrap();
    task.publish_model(&plan, first, [1; 32]).unwrap();
    refused(&plan, first, 2);
    refused(&plan, after(0), 2);
    for step in 0..3 {
        let before = ledger.head();
        let _receipt = model_step(&mut ledger, step).unwrap();
        refused(&before, after(step), 7);
        refused(&ledger.head(), after(step + 1), 7);
        task.publish_model(&ledger.head(), after(step), [step as u8 + 2; 32]).unwrap();
        refused(&ledger.head(), after(step), 7);
        refused(&ledger.head(), first, 1);
        let published = task.published_model().unwrap().unwrap();
        assert_eq!((published.rounds, published.entry), (step + 1, Some(step + 1)));
        assert_eq!((published.digest, published.head), ([step as u8 + 2; 32], ledger.head()));
    }
    refused(&ledger.head(), after(1), 3);
    // A round that comes to nothing leaves the model.
    task.publish_model(&ledger.head(), AfterRound { rounds: 4, ..after(2) }, [4; 32]).unwrap();
    refused(&ledger.head(), AfterRound { rounds: 5, ..after(2) }, 5);
    assert!(task.home().shown_heads().unwrap().contains(&ledger.head()));
}

fn models<S: State>(state: &S) {
    let words = state.task("words").unwrap();
    assert!(words.model().unwrap().is_none() && !words.home().has_model().unwrap());
    let config = ModelConfig { hidden: 4, embedding: 3, dense: Some(3), ..ModelConfig::preset("tiny").unwrap() };
    let config = config.with_vocabulary(7);
    let values = vec![0.5; ParameterLayout::new(&config).unwrap().len()];
    let folder = Folder {
        name: "A test".into(),
        rules: Rules::Words1,
        vocabulary: Vocabulary::new((0..4).map(|i| format!("word{i}"))).unwrap(),
        weights: Weights::Recurrent { config, values },
        guarantee: Guarantee::public_text(),
    };
    words.home().write_model(&folder).unwrap();
    assert!(state.read_task("words").unwrap().model().unwrap() == Some(folder.write().unwrap()), "another model");
    assert!(state.task("a").unwrap().model().unwrap().is_none());
}

/// A server asks for nothing else: it begins a task, publishes its first model, and lists it, on either.
#[test]
fn a_server_runs_on_any_state() {
    let folder = tempfile::tempdir().unwrap();
    begins_a_task(&MemoryState::new(), folder.path());
    let folder = tempfile::tempdir().unwrap();
    begins_a_task(&state(folder.path()), folder.path());
}

fn begins_a_task<S: State>(state: &S, folder: &Path) {
    let said = Mutex::new(Vec::new());
    for life in 1..=2 {
        let stop = Stop::new();
        let happens = |happened: &Happened<'_>| match happened {
            Happened::Running { round, .. } => said.lock().unwrap().push(*round),
            Happened::Broken { error, .. } => panic!("{error}"),
            _ => {}
        };
        let is_there = || {
            let published = || state.read_task("words").is_ok_and(|words| words.published_model().unwrap().is_some());
            said.lock().unwrap().len() == life && published()
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let began = Instant::now();
                while !is_there() && began.elapsed() < Duration::from_secs(60) {
                    thread::sleep(Duration::from_millis(5));
                }
                stop.ask();
            });
            serve(state, task(), settings(folder), &stop, &happens).unwrap();
        });
    }
    assert_eq!(*said.lock().unwrap(), [0, 0]);
    let words = state.read_task("words").unwrap();
    let ledger = Ledger::open(words.home().read_store().unwrap(), None, &[]).unwrap();
    assert_eq!(ledger.head().length, 1, "its plan");
    let published = words.published_model().unwrap();
    assert!(published.is_some_and(|model| model.rounds == 0 && model.head == ledger.head()), "{published:?}");
    let listed = list(state, &Orders::in_data(&folder.join("data"))).unwrap();
    assert!(matches!(&listed[..], [one] if one.task == "words" && one.ledger.is_some()), "{listed:?}");
}

/// What a reader opens is not written.
#[test]
fn state_that_was_opened_for_reading_has_no_secrets_and_begins_nothing() {
    let folder = tempfile::tempdir().unwrap();
    state(folder.path()).task("words").unwrap();
    let reader = SqliteState::read(&folder.path().join("data")).unwrap();
    assert_eq!(reader.names().unwrap(), ["words"]);
    assert!(reader.task("other").is_err() && reader.place_key().is_err() && reader.erase().is_err());
    assert!(!reader.is_served().unwrap() && reader.read_task("words").unwrap().write_note(&note(true)).is_err());
}
