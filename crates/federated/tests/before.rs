//! What was paid for before the first round: a vocabulary that was counted, the model that a run starts from, the one that
//! that one started from.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::fs;

use crate::workshop::{ARRIVAL, Idle, all, config, ledger, own_event, reads, rest, some, started_from, store, whole};
use corpus::origin::Origin;
use keyhush_federated::{
    home::{LEDGER_FILE, MODEL_FOLDER, STATEMENT_JSON},
    plan::BEFORE,
    run::{Opened, RunError},
};
use ledger::{LedgerError, statement::Statement};
use privacy::PrivacyEvent;

const SECRET: [&str; 2] = ["noise_seed=", "rounds=2"];

/// Rule P11. Words that were counted from the users' own text are a release without noise, and no noise that comes later
/// makes that good.
#[test]
fn p11_a_vocabulary_that_was_counted_is_an_entry_and_epsilon_infinite() {
    for (origin, counted) in [
        (Origin::UsersNonPrivately { name: "diaries".into() }, true),
        (Origin::PublicList { name: "a dictionary".into() }, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let store = reads(&store(folder.path(), origin, 200, |_| vec![7; 12]));
        whole(&run, &all(&store, &SECRET), &mut Idle::default());
        let ledger = ledger(&run);
        assert_eq!(ledger.releases().get(BEFORE).copied(), counted.then_some(1));
        assert_eq!(ledger.epsilon(ledger.plan().delta).unwrap().epsilon.is_finite(), !counted);
        let guarantee = Statement::of(&ledger).unwrap().guarantee;
        assert_eq!((guarantee.holds, guarantee.epsilon.is_finite()), (!counted, !counted));
    }
}

/// The same, where the process died between the plan and the first entry after it.
#[test]
fn p11_a_counted_vocabulary_is_recorded_once_however_often_the_run_begins() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let origin = Origin::UsersNonPrivately { name: "diaries".into() };
    let store = reads(&store(folder.path(), origin, 200, |_| vec![7; 12]));
    let set = all(&store, &SECRET);
    for steps in [0, 1, 0] {
        some(&run, &set, steps, &mut Idle::default());
    }
    assert_eq!(ledger(&run).releases()[BEFORE], 1);
}

/// Rules P15 and P17. A model names the head of its ledger. Whoever puts an old copy of a run's ledger and its `.head` back, and
/// takes away all else that knows better, must not have the rounds since then for nothing.
#[test]
fn p17_a_starting_model_whose_ledger_was_rolled_back_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first");
    let secret = ["noise_seed="];
    some(&first, &secret, 3, &mut Idle::default());
    let files = [LEDGER_FILE.to_owned(), format!("{LEDGER_FILE}.head")].map(|name| first.join(name));
    let old = files.clone().map(|path| fs::read(path).unwrap());
    rest(&first, &secret, &mut Idle::default());
    // Under another name nobody but who starts from it looks at the model.
    let model = first.join("kept");
    fs::rename(first.join(MODEL_FOLDER), &model).unwrap();
    let from = started_from(&model);
    let refused = || Opened::new(&config(&all(&from, &secret))).err();
    assert!(refused().is_none());
    ["checkpoints", "ledger.jsonl.released"].iter().for_each(|name| fs::remove_dir_all(first.join(name)).unwrap());
    fs::remove_file(first.join(STATEMENT_JSON)).unwrap();
    for (path, bytes) in files.iter().zip(old) {
        fs::write(path, bytes).unwrap();
    }
    let error = refused().unwrap();
    assert!(matches!(error, RunError::Ledger(LedgerError::Rewound { .. })), "{error}");
}

/// Rule P15. The third run of a chain pays for all three.
#[test]
fn p15_a_chain_of_three_runs_costs_what_the_three_cost() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two, three] = ["one", "two", "three"].map(|name| folder.path().join(name));
    let seed = ["noise_seed=4"];
    whole(&one, &seed, &mut Idle::default());
    whole(&two, &all(&started_from(&one), &seed), &mut Idle::default());
    whole(&three, &all(&started_from(&two), &seed), &mut Idle::default());
    let (delta, accountant) = (ledger(&one).plan().delta, ledger(&one).plan().accountant);
    let events = [&one, &two, &three].map(|run| own_event(run)).to_vec();
    let all_three = accountant.judge(&PrivacyEvent::Compose { events }, delta).unwrap().epsilon.get();
    let stated = ledger(&three).epsilon(delta).unwrap().epsilon.get();
    assert!((stated / all_three - 1.0).abs() < 1e-9, "{stated} instead of {all_three}");
    let [alone, both] = [&one, &two].map(|run| ledger(run).epsilon(delta).unwrap().epsilon.get());
    assert!(alone < both && both < stated, "{alone} {both} {stated}");
}

/// Rule P2: a group pays what the group pays, in the metrics as in the ledger.
#[test]
fn p2_the_metrics_of_a_run_are_of_the_plans_group() {
    let folder = tempfile::tempdir().unwrap();
    let arrival = [&ARRIVAL[..], &["privacy.mechanism=tree"]].concat();
    let epsilon = |name: &str, group: &str| {
        let run = folder.path().join(name);
        let ending = whole(&run, &[&arrival[..], &[group]].concat(), &mut Idle::default());
        let (said, ledger) = (ending.metrics.price.epsilon.get(), ledger(&run));
        let stated = ledger.epsilon(ledger.plan().delta).unwrap().epsilon.get();
        assert!((said / stated - 1.0).abs() < 1e-9, "{group}: the metrics say {said}, the ledger {stated}");
        said
    };
    assert!(epsilon("three", "privacy.group=3") > 1.5 * epsilon("one", "privacy.group=1"));
}
