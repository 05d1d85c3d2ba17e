//! Every engine, measurer, central trainer, fleet, home, vault and store of this crate keeps the contract of its kind.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use crate::memory_home::{MemoryHome, MemoryVault, Shows};
use crate::real_devices;
use crate::workshop::{self, ADAPTIVE, ARRIVAL, means, plan, with};
use device::{learner::examples::Examples, round::Task};
use keyhush_federated::{
    canaries::{Canaries, Planted},
    checkpoint::Checkpoints,
    contract::{self, Lives, Reference, Trial},
    engine::{
        self, Engine, EngineError, EngineKind, Means, Summed, THREADS, Users,
        central::{Central, CentralTrainer, clipped, trainer},
        measure::{Measurer, OnThreads},
        threads::Threads,
    },
    fleet::{self, At, Attempted, Fleet, FleetError, Observed, Outcome, RoundTask, Stop, WithEvaluations},
    home::{Home, Log, MODEL_FOLDER, Paper, Records, RunFolder},
    ledger_file::{FileStore, Place},
    plan::Plan,
    population::Population,
    protocol::store::MemoryStore,
    run::{Kept, Opened, Run, RunError},
    secrets::Vault,
};
use ledger::{Entry, FailureReason, Ledger, LedgerStore};
use lm::{
    kernels::KernelPath,
    metrics::Counts,
    model::{batch::Batch, parameters::ParameterLayout},
};
use privacy::stages::Sum;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Every plan with few and with many threads, and with both kinds of kernels; not with each of their combinations.
#[test]
fn engines() {
    for trial in &Trial::all() {
        for (number, plan) in Trial::plans().iter().enumerate() {
            let few = [1, 2, 5, 20];
            let ways = [(KernelPath::best(), few[number]), (KernelPath::Scalar, few[few.len() - 1 - number])];
            for (kernels, threads) in ways {
                let mut threads = Threads::new(trial.learner(), plan, kernels, threads).unwrap();
                contract::engine(trial, &mut threads, plan, Reference::SameBits(kernels));
            }
            let means = Means::threads(KernelPath::best(), 3);
            let reference = Reference::SameBits(means.kernels);
            contract::engine(trial, &mut *engine::of(plan, trial.learner(), means).unwrap(), plan, reference);
        }
    }
}

/// The same with what keeps users from forgetting; learners that have no such thing are refused by name.
#[test]
fn engines_that_fine_tune() {
    for trial in &Trial::all() {
        for plan in &Trial::finetuning() {
            for (kernels, threads) in [(KernelPath::best(), 5), (KernelPath::Scalar, 1)] {
                match Threads::new(trial.learner(), plan, kernels, threads) {
                    Ok(mut threads) => contract::engine(trial, &mut threads, plan, Reference::SameBits(kernels)),
                    Err(error) => {
                        assert!(!trial.learner().finetunes(), "{error}");
                        assert!(error.to_string().contains("leave out [finetune]"), "{error}");
                    }
                }
            }
        }
    }
}

/// An engine that computes with something else, which may give other last digits: it need not have the bits of these threads, and adds up
/// its own. `faster` learns at another rate; `forgets` leaves out the first of several users.
struct OfItsOwn<'a> {
    threads: Threads<'a>,
    faster: f32,
    forgets: bool,
}

impl<'a> engine::Around for OfItsOwn<'a> {
    type Inner = Threads<'a>;

    fn inner(&self) -> &Threads<'a> {
        &self.threads
    }

    fn inner_mut(&mut self) -> &mut Threads<'a> {
        &mut self.threads
    }

    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        let numbers = if self.forgets && users.numbers.len() > 1 { &users.numbers[1..] } else { users.numbers };
        let task = Task { learning_rate: task.learning_rate * self.faster, ..*task };
        self.threads.sum(&task, &Users { numbers, ..*users })
    }
}

/// An engine whose arithmetic is its own is near the others, and what it adds up is what each comes to with it, to the bit.
#[test]
fn engines_with_an_arithmetic_of_their_own() {
    for trial in Trial::all().into_iter().map(Trial::without_rotation) {
        let plan = &Trial::plans()[1];
        let passes = |kernels, faster, forgets, reference| {
            let threads = Threads::new(trial.learner(), plan, kernels, 2).unwrap();
            let mut engine = OfItsOwn { threads, faster, forgets };
            let suite = || contract::engine(&trial, &mut engine, plan, reference);
            catch_unwind(AssertUnwindSafe(suite)).is_ok()
        };
        let near = |tolerance| Reference::Own { kernels: KernelPath::Scalar, tolerance };
        assert!(passes(KernelPath::best(), 1.0, false, near(0.01)), "other last digits are allowed");
        assert!(passes(KernelPath::Scalar, 1.0, false, near(0.0)), "the same kernels come to the same");
        assert!(!passes(KernelPath::best(), 0.5, false, near(0.01)), "another rate is not another digit");
        assert!(!passes(KernelPath::best(), 1.0, true, near(0.01)), "somebody is missing");
        assert!(!passes(KernelPath::Scalar, 0.999, false, Reference::SameBits(KernelPath::Scalar)), "other bits");
    }
}

/// An audit is an engine around that of the run: where no canary was drawn it is that one, and it masks nobody's vector.
#[test]
fn engines_with_canaries() {
    let (plan, _) = plan(&["audit.canaries=200", "participation.population=300000", "privacy.delta=1e-6"]);
    let canaries = Canaries::of(&plan).unwrap();
    for trial in &Trial::all() {
        let local = &Trial::plans()[0];
        let engine = engine::of(local, trial.learner(), means()).unwrap();
        let mut planted = Planted::new(engine, canaries);
        contract::engine(trial, &mut planted, local, Reference::SameBits(means().kernels));
        assert!(planted.each().is_none(), "canaries have no parts of their own");
    }
    let secure = ["aggregation=secagg", "secagg.dropout=0.3", "secagg.corrupted=0.1", "participation.cohort=24"];
    let (secure, opened) = workshop::plan(&with(&[&ARRIVAL, &secure]));
    let population = opened.population(secure.ledger.unit).unwrap();
    let engine = Box::new(Planted::new(workshop::threads(&secure, &opened), canaries));
    let home = MemoryHome::default();
    let mut fleet = fleet::of(&secure, population.as_ref(), engine, home.secrets());
    let mut run = Run::begin(home, &secure, &opened, means()).unwrap();
    let error = run.step(&mut fleet, &Stop::new()).unwrap_err().to_string();
    assert!(error.contains("canaries") && error.contains("remove [audit]"), "{error}");
}

/// A measurer that leaves out the first of several people.
struct Forgetful<'a>(OnThreads<'a>);

impl Measurer for Forgetful<'_> {
    fn count(&mut self, model: &[f32], people: &[Examples]) -> Result<Counts, EngineError> {
        self.0.count(model, if people.len() > 1 { &people[1..] } else { people })
    }
}

#[test]
fn measurers() {
    for trial in &Trial::all() {
        for (kernels, threads) in [(KernelPath::best(), 5), (KernelPath::Scalar, 1)] {
            let on_threads = OnThreads::new(trial.learner(), kernels, threads);
            contract::measurer(trial, &mut { on_threads }, kernels, 0.0);
            let mut forgetful = Forgetful(on_threads);
            let suite = || contract::measurer(trial, &mut forgetful, kernels, 0.01);
            assert!(catch_unwind(AssertUnwindSafe(suite)).is_err(), "somebody is missing");
        }
        // Others' kernels have other last digits.
        let mut scalar = OnThreads::new(trial.learner(), KernelPath::Scalar, 2);
        contract::measurer(trial, &mut scalar, KernelPath::best(), 0.01);
    }
}

/// A trainer that learns where it should only measure.
struct Eager(Box<dyn CentralTrainer>);

impl CentralTrainer for Eager {
    fn at_a_time(&self) -> usize {
        self.0.at_a_time()
    }

    fn load(&mut self, parameters: &[f32]) -> Result<(), EngineError> {
        self.0.load(parameters)
    }

    fn store(&mut self, parameters: &mut [f32]) -> Result<(), EngineError> {
        self.0.store(parameters)
    }

    fn forget(&mut self) {
        self.0.forget();
    }

    fn state_len(&self) -> usize {
        self.0.state_len()
    }

    fn state(&mut self) -> Result<Vec<f32>, EngineError> {
        self.0.state()
    }

    fn set_state(&mut self, state: &[f32]) -> Result<(), EngineError> {
        self.0.set_state(state)
    }

    fn learn(&mut self, batches: &[Batch<'_>], rate: f32, number: u64) -> Result<f64, EngineError> {
        self.0.learn(batches, rate, number)
    }

    fn measure(&mut self, batches: &[Batch<'_>]) -> Result<f64, EngineError> {
        self.0.learn(batches, 0.1, 0)
    }
}

#[test]
fn central_trainers() {
    let thread = |kernels| move |of: Central<'_>| trainer(of, Means::threads(kernels, 1)).unwrap();
    contract::central_trainer(&thread(KernelPath::best()), 0.0);
    contract::central_trainer(&thread(KernelPath::Scalar), 1e-3);
    let parameters = |of: Central<'_>| ParameterLayout::new(of.config).unwrap().len();
    let best = thread(KernelPath::best());
    // A bound that nothing reaches.
    contract::central_trainer(&|of| clipped(best(of), 1e9, parameters(of)).unwrap(), 0.0);
    let eager = || contract::central_trainer(&|of| Box::new(Eager(best(of))), 0.0);
    assert!(catch_unwind(AssertUnwindSafe(eager)).is_err(), "measuring is learning");
}

/// An engine of another crate needs a kind of its own, and nothing of this one.
#[test]
fn engines_of_others_are_made_by_their_kind() {
    let of_others = EngineKind {
        name: "others",
        about: "an engine of another crate",
        make: |_, _, _| Ok(Box::new(workshop::Idle::default())),
        refuses: |_| None,
        arithmetic: |_| "none".to_owned(),
        ..THREADS
    };
    let nowhere = EngineKind {
        make: |_, _, _| Err(EngineError::Unavailable { engine: "others", problem: "there is no card".into() }),
        ..of_others
    };
    let (plan, opened) = plan(&[]);
    let with = |engine| engine::of(&plan.local, opened.learner(), Means { engine, ..means() });
    let folder = tempfile::tempdir().unwrap();
    workshop::whole(&folder.path().join("run"), &[], &mut *with(of_others).unwrap());
    let error = with(nowhere).map(drop).unwrap_err().to_string();
    assert_eq!(error, "the engine others cannot be used here: there is no card");
}

#[test]
fn simulated_fleets() {
    let secure = ["aggregation=secagg", "secagg.dropout=0.3", "secagg.corrupted=0.1", "participation.cohort=24"];
    let (sampled, arrival) = ([&[][..], &["participation.kind=poisson"]], [&ARRIVAL[..]]);
    let mut sets: Vec<Vec<&str>> = vec![with(&[&ARRIVAL, &secure, &["secagg.noise=distributed"]])];
    for kind in sampled.into_iter().chain(arrival) {
        sets.extend([with(&[kind]), with(&[kind, &ADAPTIVE])]);
    }
    // A Poisson cohort so small hides nobody, and is refused.
    sets.extend([with(&[&secure]), with(&[&ARRIVAL, &secure])]);
    for set in sets {
        let (plan, opened) = plan(&set);
        let population = opened.population(plan.ledger.unit).unwrap();
        let make = || -> Lives<'_> { Box::new(|| simulated(&plan, &opened, population.as_ref())) };
        contract::simulated_fleet(&plan, opened.first_parameters(), &make);
    }
}

/// Who is asked for rounds is asked for nothing else, and the other way round: with somebody beside it who adds up nobody, a fleet still
/// keeps the contract, and one beside which nothing is wrong does not make up for it.
#[test]
fn fleets_with_another_for_evaluations() {
    let (plan, opened) = plan(&ARRIVAL);
    let population = opened.population(plan.ledger.unit).unwrap();
    let whole = || simulated(&plan, &opened, population.as_ref());
    let broken = || -> Box<dyn Fleet + '_> { Box::new(Broken { fleet: whole(), wrong: Wrong::AddsNobody, made: 0 }) };
    let passes = |for_rounds: bool| {
        let life = || -> Box<dyn Fleet + '_> {
            match for_rounds {
                true => Box::new(WithEvaluations { rounds: whole(), evaluations: broken() }),
                false => Box::new(WithEvaluations { rounds: broken(), evaluations: whole() }),
            }
        };
        let make = || -> Lives<'_> { Box::new(life) };
        let suite = || contract::simulated_fleet(&plan, opened.first_parameters(), &make);
        catch_unwind(AssertUnwindSafe(suite)).is_ok()
    };
    assert!(passes(true) && !passes(false));
    let (plan, opened) = real_devices::plan(OF_DEVICES[0]);
    let lives = || -> Lives<'_> {
        let mut rounds = real_devices::lives(&plan, &opened);
        let mut evaluations = real_devices::lives(&plan, &opened);
        Box::new(move || Box::new(WithEvaluations { rounds: rounds(), evaluations: evaluations() }))
    };
    contract::fleet(&plan, opened.first_parameters(), &lives);
}

fn simulated<'a>(plan: &'a Plan, opened: &'a Opened, population: &'a dyn Population) -> Box<dyn Fleet + 'a> {
    let engine = engine::of(&plan.local, opened.learner(), means()).unwrap();
    fleet::of(plan, population, engine, RunFolder::at("nowhere").secrets())
}

/// Sums in the clear, and secure ones.
const OF_DEVICES: [&[&str]; 2] =
    [&[], &["aggregation=secagg", "secagg.adversary=curious", "secagg.dropout=0.3", "secagg.corrupted=0.0"]];

#[test]
fn the_fleet_of_real_devices() {
    for set in OF_DEVICES {
        let (plan, opened) = real_devices::plan(set);
        let make = || real_devices::lives(&plan, &opened);
        contract::fleet(&plan, opened.first_parameters(), &make);
    }
}

/// What a fleet does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// The first users of the population, in every round.
    AsksTheSame,
    /// After a restart it draws anew.
    DrawsAnew,
    /// It adds up nobody.
    AddsNobody,
    /// It takes a round in the clear for one that was interrupted.
    GivesUp,
    /// It does not say who took part.
    NamesNobody,
}

struct Broken<'a> {
    fleet: Box<dyn Fleet + 'a>,
    wrong: Wrong,
    made: u64,
}

impl Fleet for Broken<'_> {
    fn asks_devices(&self, task: &RoundTask<'_>) -> bool {
        self.fleet.asks_devices(task)
    }

    fn prepare(&mut self, task: &RoundTask<'_>) -> Result<(), FleetError> {
        self.fleet.prepare(&self.changed(task))
    }

    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError> {
        let mut attempted = self.fleet.attempt(&self.changed(task))?;
        match self.wrong {
            Wrong::AddsNobody => attempted.outcome = Outcome::Sum(Sum::zero(task.task.encoding)),
            Wrong::GivesUp if task.at.again => attempted.outcome = Outcome::Failed(FailureReason::Interrupted),
            Wrong::NamesNobody => attempted.observed = Observed::default(),
            _ => {}
        }
        Ok(attempted)
    }

    fn settled(&mut self, at: At<'_>, failed: Option<FailureReason>) -> Result<(), FleetError> {
        self.fleet.settled(at, failed)
    }
}

impl Broken<'_> {
    fn changed<'t>(&self, task: &RoundTask<'t>) -> RoundTask<'t> {
        let round = match self.wrong {
            Wrong::AsksTheSame => 0,
            Wrong::DrawsAnew => task.at.round + self.made % 2,
            _ => task.at.round,
        };
        RoundTask { at: At { round, ..task.at }, ..*task }
    }
}

#[test]
fn the_contract_notices_a_simulation_that_does_not_keep_it() {
    for wrong in [Wrong::AsksTheSame, Wrong::DrawsAnew, Wrong::AddsNobody, Wrong::GivesUp, Wrong::NamesNobody] {
        let (plan, opened) = plan(&ARRIVAL);
        let population = opened.population(plan.ledger.unit).unwrap();
        let made = Cell::new(0);
        let life = || -> Box<dyn Fleet + '_> {
            made.set(made.get() + 1);
            Box::new(Broken { fleet: simulated(&plan, &opened, population.as_ref()), wrong, made: made.get() })
        };
        let make = || -> Lives<'_> { Box::new(life) };
        let suite = || contract::simulated_fleet(&plan, opened.first_parameters(), &make);
        assert!(catch_unwind(AssertUnwindSafe(suite)).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_contract_notices_a_fleet_of_devices_that_does_not_keep_it() {
    type Make = for<'a> fn(&'a Plan, &'a Opened) -> Lives<'a>;
    // What the suite says, and what is wrong: it may add up nobody, and name nobody. One that forgets whom it asked passes: devices remember.
    let all: [(&str, Make); 2] = [
        ("nothing was learned", |plan, opened| broken(plan, opened, Wrong::AddsNobody)),
        ("a sum of nobody", |plan, opened| broken(plan, opened, Wrong::NamesNobody)),
    ];
    for (set, (words, lives)) in OF_DEVICES.into_iter().flat_map(|set| all.map(|wrong| (set, wrong))) {
        let (plan, opened) = real_devices::plan(set);
        let make = || lives(&plan, &opened);
        let suite = || contract::fleet(&plan, opened.first_parameters(), &make);
        let panic = catch_unwind(AssertUnwindSafe(suite)).unwrap_err();
        let said = panic.downcast_ref::<&str>().map(ToString::to_string);
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Real devices, and a fleet that does something wrong with them.
fn broken<'a>(plan: &'a Plan, opened: &'a Opened, wrong: Wrong) -> Lives<'a> {
    let mut lives = real_devices::lives(plan, opened);
    Box::new(move || Box::new(Broken { fleet: lives(), wrong, made: 0 }))
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

#[test]
fn coordinator_stores() {
    contract::coordinator_store(&|| Box::new(MemoryStore::new([7; 32])), &|store| store);
}

/// Steps of a run, by a fleet that remembers nothing of the steps before; how many of them are done then.
fn steps<H: Home + Records>(run: &mut Run<'_, H>, set: &[&str], secrets: &H, most: usize) -> bool {
    let (plan, opened) = plan(set);
    let population = opened.population(plan.ledger.unit).unwrap();
    for _ in 0..most {
        let engine = engine::of(&plan.local, opened.learner(), means()).unwrap();
        let mut fleet = fleet::of(&plan, population.as_ref(), engine, secrets.secrets());
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
    let secure = ["aggregation=secagg", "secagg.dropout=0.3", "secagg.corrupted=0.1", "participation.cohort=24"];
    for set in [with(&[&ADAPTIVE]), with(&[&ARRIVAL, &secure])] {
        let folder = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(folder.path().join("run"));
        to_the_end(&folder, &set, 100);
        for most in [100, 1] {
            let home = MemoryHome::default();
            to_the_end(&home, &set, most);
            assert!(home.model().unwrap().weights == model(folder.path()), "another model");
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
        assert!(home.lines(Log::Timing).unwrap().is_empty() && home.lines(Log::Diagnostics).unwrap().is_empty());
    }
}

/// Rule P17: a home whose ledger was set back, or is gone, does not go on; wherever the heads are that show it.
#[test]
fn p17_a_ledger_that_was_set_back_is_refused_in_every_home() {
    let (plan, opened) = plan(&[]);
    for shows in [Shows::Witness, Shows::States, Shows::Statement] {
        let home = MemoryHome::default();
        let mut run = Run::begin(home.clone(), &plan, &opened, means()).unwrap();
        let before = home.store();
        assert!(!steps(&mut run, &[], &home, 4));
        run.so_far().unwrap();
        drop(run);
        home.set_back(before, shows);
        let error = Run::resume(home.clone(), &plan, &opened, means()).err().unwrap().to_string();
        assert!(error.contains("rewound") || error.contains("shorter") || error.contains("head"), "{shows:?}: {error}");
        assert!(Kept::read(&home).is_err(), "{shows:?}: a page would promise too much");
    }
}

#[test]
fn p17_a_run_without_its_ledger_is_not_begun_anew() {
    let (plan, opened) = plan(&[]);
    let folder = tempfile::tempdir().unwrap();
    let nowhere = RunFolder::at(folder.path().join("nothing"));
    assert!(matches!(Run::resume(nowhere, &plan, &opened, means()), Err(RunError::NoRun { .. })));
    let home = MemoryHome::default();
    assert!(matches!(Run::resume(home.clone(), &plan, &opened, means()), Err(RunError::NoRun { .. })));
    let mut run = Run::begin(home.clone(), &plan, &opened, means()).unwrap();
    assert!(!steps(&mut run, &[], &home, 1));
    drop(run);
    home.lose_ledger();
    let error = Run::resume(home.clone(), &plan, &opened, means()).err().unwrap();
    assert!(matches!(error, RunError::LedgerGone { .. }), "{error}");
}

/// States of a version before are named, and nothing is changed.
#[test]
fn a_run_whose_states_cannot_be_read_keeps_its_metrics_and_says_what_to_do() {
    let (plan, opened) = plan(&["evaluation.every=1"]);
    let folder = tempfile::tempdir().unwrap();
    let home = RunFolder::at(folder.path().join("run"));
    let mut run = Run::begin(home.clone(), &plan, &opened, means()).unwrap();
    assert!(!steps(&mut run, &["evaluation.every=1"], &home, 5));
    drop(run);
    let checkpoints = home.path().join("checkpoints");
    for entry in fs::read_dir(&checkpoints).unwrap().map(Result::unwrap) {
        fs::rename(entry.path(), entry.path().with_extension("state")).unwrap();
    }
    let metrics = home.lines(Log::Metrics).unwrap();
    let error = Run::resume(home.clone(), &plan, &opened, means()).err().unwrap().to_string();
    assert!(error.contains("older versions") && error.contains("--without-model"), "{error}");
    assert_eq!(home.lines(Log::Metrics).unwrap(), metrics);
}

/// A state, taken apart.
struct TakenApart {
    metadata: BTreeMap<String, String>,
    header: Value,
    numbers: Vec<u8>,
}

impl TakenApart {
    fn new(bytes: &[u8]) -> Self {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        let metadata = serde_json::from_value(header["__metadata__"].clone()).unwrap();
        Self { metadata, header, numbers: bytes[8 + length..].to_vec() }
    }

    /// As somebody would forge it: with the digest that belongs to it.
    fn forged(&self, digest: bool) -> Vec<u8> {
        let mut metadata = self.metadata.clone();
        if digest {
            let mut hash = Sha256::new();
            for text in [&metadata["format"], &metadata["ledger_head"], &metadata["state"]] {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
            hash.update(&self.numbers);
            metadata.insert("sha256".into(), ledger::hex(&hash.finalize()));
        }
        let mut header = self.header.clone();
        header["__metadata__"] = serde_json::to_value(metadata).unwrap();
        let header = header.to_string();
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &self.numbers].concat()
    }
}

/// What is in a checkpoint is what was written, of this run, at this round; anything else is named and not used.
#[test]
fn a_checkpoint_that_was_changed_is_not_used() {
    let set = with(&[&ADAPTIVE, &ARRIVAL, &["privacy.mechanism=tree"]]);
    let (plan, opened) = plan(&set);
    let home = MemoryHome::default();
    let mut run = Run::begin(home.clone(), &plan, &opened, means()).unwrap();
    assert!(!steps(&mut run, &set, &home, 4));
    let checkpoints = Checkpoints::new(run.ledger().opening().id, means().kernels.name());
    drop(run);
    let whole = home.state(4).unwrap();
    let refused = |bytes: Vec<u8>| {
        home.write_state(4, None, &mut |out| out.write_all(&bytes)).unwrap();
        home.remove_state(2).unwrap();
        let (found, wrong) = checkpoints.newest(&home, &plan).unwrap();
        (found.is_none(), wrong.join("; "))
    };
    let apart = || TakenApart::new(&whole);
    assert!(!refused(whole.clone()).0 && !refused(apart().forged(true)).0, "it is a checkpoint");
    // Every text counts in the digest.
    for key in ["format", "ledger_head", "state", "sha256"] {
        let mut other = apart();
        other.metadata.get_mut(key).unwrap().push(' ');
        let (is_refused, why) = refused(other.forged(false));
        assert!(is_refused && why.contains("damaged"), "{key}: {why}");
        let mut without = apart();
        without.metadata.remove(key);
        if key != "sha256" {
            without.metadata.insert(format!("{key}2"), String::new());
        }
        assert!(refused(without.forged(false)).0, "without {key}");
    }
    // What is whole, and not of this run.
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 7] = [
        ("another ledger", |rest| rest["run"] = "00".repeat(32).into()),
        ("kernels", |rest| rest["kernels"] = "others".into()),
        ("its counters", |rest| rest["round"] = 5.into()),
        ("its kind of clipping", |rest| rest["clip"] = Value::Null),
        ("another round", |rest| rest["mechanism"]["rounds"] = 3.into()),
        ("it has no noise, but the plan has", |rest| rest["mechanism"] = Value::Null),
        ("unknown field", |rest| rest["more"] = 1.into()),
    ];
    for (says, change) in changes {
        let mut other = apart();
        let mut rest: Value = serde_json::from_str(&other.metadata["state"]).unwrap();
        change(&mut rest);
        other.metadata.insert("state".into(), rest.to_string());
        let (is_refused, why) = refused(other.forged(true));
        assert!(is_refused && why.contains(says), "{says}: {why}");
    }
    let mut other = apart();
    other.metadata.insert("format".into(), "keyhush-state-2".into());
    assert!(refused(other.forged(true)).1.contains("format"));
    // Any byte, anywhere.
    for at in (0..whole.len()).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        assert!(refused(bytes).0, "byte {at} of {}", whole.len());
    }
}
