//! Every engine, fleet, home, vault and store of this crate keeps the contract of its kind.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

mod memory_home;
mod workshop;

use std::{fs, path::Path, sync::Arc};

use keyhush_federated::{
    contract::{self, Trial},
    engine::{self, Means, threads::Threads},
    fleet::{Fleet, Stop, simulated},
    home::{Home, Log, MODEL_FOLDER, Paper, Records, RunFolder},
    ledger_file::{FileStore, Place},
    run::Run,
    secrets::Vault,
};
use ledger::{Entry, Ledger, LedgerStore};
use lm::kernels::KernelPath;
use memory_home::{MemoryHome, MemoryVault};
use workshop::{ADAPTIVE, ARRIVAL, means, plan, with};

#[test]
fn engines() {
    let trial = Trial::new();
    for kernels in [KernelPath::best(), KernelPath::Scalar] {
        for threads in [1, 2, 5, 20] {
            let mut threads = Threads::new(trial.learner(), &Trial::local(), kernels, threads).unwrap();
            contract::engine(&mut threads, kernels);
        }
        let chosen = engine::of(&Trial::local(), trial.learner(), Means { kernels, threads: 3 });
        contract::engine(&mut *chosen.unwrap(), kernels);
    }
}

#[test]
fn simulated_fleets() {
    let secure = ["aggregation=secagg", "secagg.dropout=0.3", "secagg.corrupted=0.1", "participation.cohort=40"];
    let (sampled, arrival) = ([&[][..], &["participation.kind=poisson"]], [&ARRIVAL[..]]);
    let mut sets: Vec<Vec<&str>> = vec![with(&[&ARRIVAL, &secure, &["secagg.noise=distributed"]])];
    for kind in sampled.into_iter().chain(arrival) {
        sets.extend([with(&[kind]), with(&[kind, &ADAPTIVE]), with(&[kind, &secure])]);
    }
    for set in sets {
        let (plan, opened) = plan(&set);
        let population = opened.population(plan.ledger.unit).unwrap();
        let secrets = RunFolder::at("nowhere").secrets();
        let make = || -> Box<dyn Fleet + '_> {
            let engine = engine::of(&plan.local, opened.learner(), means()).unwrap();
            Box::new(simulated::of(&plan, population.as_ref(), engine, secrets.clone()))
        };
        contract::fleet(&plan, opened.first_parameters(), &make);
    }
}

#[test]
fn homes() {
    let folder = tempfile::tempdir().unwrap();
    contract::home(&|| RunFolder::at(folder.path().join("run")));
    let home = MemoryHome::default();
    contract::home(&|| home.clone());
}

#[test]
fn vaults() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.jsonl");
    // The folder `secret/` is made with the first secret.
    let vault = || -> Arc<dyn Vault> { Place::new(&ledger).vault() };
    contract::vault(&vault);
    let memory: Arc<dyn Vault> = Arc::new(MemoryVault::default());
    contract::vault(&|| Arc::clone(&memory));
}

#[test]
fn stores() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::new(folder.path().join("ledger.jsonl")).with_witness(folder.path().join("elsewhere.head"));
    ledger::contract::store(FileStore::create(&place).unwrap(), |store| {
        drop(store);
        FileStore::open(&place).unwrap()
    });
    let home = MemoryHome::default();
    ledger::contract::store(home.create_store().unwrap(), |store| {
        drop(store);
        home.open_store().unwrap()
    });
}

/// Steps of a run, by a fleet that remembers nothing of the steps before; how many of them are done then.
fn steps<H: Home + Records>(run: &mut Run<'_, H>, set: &[&str], secrets: &H, most: usize) -> bool {
    let (plan, opened) = plan(set);
    let population = opened.population(plan.ledger.unit).unwrap();
    for _ in 0..most {
        let engine = engine::of(&plan.local, opened.learner(), means()).unwrap();
        let mut fleet = simulated::of(&plan, population.as_ref(), engine, secrets.secrets());
        if run.step(&mut fleet, &Stop::new()).unwrap().over.is_some() {
            return true;
        }
    }
    false
}

fn to_the_end<H: Home + Records + Clone>(home: &H, set: &[&str], most: usize) {
    let (plan, opened) = plan(set);
    let mut run = Run::begin(home.clone(), &plan, &opened, means()).unwrap();
    while !steps(&mut run, set, home, most) {
        drop(run);
        run = Run::resume(home.clone(), &plan, &opened, means()).unwrap();
    }
    run.finish().unwrap();
}

/// What releases and failures there were, without what is another in every run: ids, keys, times.
fn events<S: LedgerStore>(ledger: &Ledger<S>) -> Vec<String> {
    let content = |entry: Entry| format!("{:?}", entry.body());
    ledger.entries().unwrap().skip(1).map(|entry| content(entry.unwrap())).collect()
}

/// The home of a run changes nothing of it: the same model, metrics and events, also after restarts.
#[test]
fn a_run_is_the_same_in_every_home() {
    let secure = ["aggregation=secagg", "secagg.dropout=0.3", "secagg.corrupted=0.1", "participation.cohort=40"];
    for set in [with(&[&ADAPTIVE]), with(&[&ARRIVAL, &secure])] {
        let folder = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(folder.path().join("run"));
        to_the_end(&folder, &set, 100);
        for most in [100, 1] {
            let home = MemoryHome::default();
            to_the_end(&home, &set, most);
            assert!(home.model().unwrap() == model(folder.path()), "another model");
            assert_eq!(home.lines(Log::Metrics).unwrap(), folder.lines(Log::Metrics).unwrap());
            assert_eq!(home.lines(Log::Diagnostics).unwrap(), folder.lines(Log::Diagnostics).unwrap());
            let read = Ledger::open(home.read_store().unwrap(), None, &[]).unwrap();
            assert_eq!(events(&read), events(&folder.place().read(&[]).unwrap()));
            assert!(home.paper(Paper::Statement).unwrap().is_some() && read.is_closed());
        }
    }
}

fn model(folder: &Path) -> Vec<u8> {
    fs::read(folder.join(MODEL_FOLDER).join("model.safetensors")).unwrap()
}

/// With secret noise a run in another home leaves what one in a folder leaves: its signing key, and nothing to draw noise from.
#[test]
fn secrets_end_with_the_run_in_every_home() {
    for set in [with(&[&["noise_seed="]]), with(&[&ARRIVAL, &["noise_seed=", "privacy.mechanism=tree"]])] {
        let home = MemoryHome::default();
        to_the_end(&home, &set, 1);
        assert_eq!(home.kept_secrets(), ["signing-key"]);
        assert!(!home.secrets().has_noise().unwrap());
        assert!(home.lines(Log::Timing).unwrap().is_empty() && home.lines(Log::Diagnostics).unwrap().is_empty());
    }
}
