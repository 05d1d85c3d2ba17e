//! Engines that read the next cohort while they train this one: what they are told, and that nothing else changes by it.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{fs, num::NonZeroUsize, path::Path};

use crate::workshop::{ADAPTIVE, ARRIVAL, Idle, means, plan, some, step, threads, whole, with};
use device::round::Task;
use keyhush_federated::{
    checkpoint,
    engine::{Around, Engine, EngineError, EngineKind, EngineOptions, Means, Summed, THREADS, Users},
    home::{MODEL_FOLDER, RunFolder},
    run::{Run, RunError},
};

/// Passes users on, and writes down whom it was told to expect and who came.
struct Curious<'a> {
    inner: Box<dyn Engine + 'a>,
    foreseen: Vec<Option<Vec<u64>>>,
    came: Vec<Vec<u64>>,
    told: Option<Vec<u64>>,
}

impl<'a> Curious<'a> {
    fn new(inner: Box<dyn Engine + 'a>) -> Self {
        Self { inner, foreseen: Vec::new(), came: Vec::new(), told: None }
    }

    /// Whoever was expected came: all of them, and nobody else.
    fn was_told_the_truth(&self) {
        for (foreseen, came) in self.foreseen.iter().zip(&self.came[1..]) {
            assert_eq!(foreseen.as_ref(), Some(came));
        }
    }
}

impl<'a> Around for Curious<'a> {
    type Inner = dyn Engine + 'a;

    fn inner(&self) -> &(dyn Engine + 'a) {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut (dyn Engine + 'a) {
        &mut *self.inner
    }

    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        self.came.push(users.numbers.to_vec());
        self.foreseen.push(self.told.take());
        self.inner.sum(task, users)
    }

    fn foresees(&self) -> bool {
        true
    }

    fn foresee(&mut self, numbers: &[u64]) {
        self.told = Some(numbers.to_vec());
    }
}

fn model(folder: &Path) -> Vec<u8> {
    fs::read(folder.join(MODEL_FOLDER).join("model.safetensors")).unwrap()
}

/// A simulation comes to the same model, and the engine knew of every cohort but the first, also of those who vanish.
#[test]
fn what_is_foreseen_comes_and_changes_nothing() {
    let vanish = ["participation.vanish=0.3"];
    let poisson = ["participation.kind=poisson"];
    let larger = ["schedule=[{ from = 3, cohort = 30 }]"];
    for kind in [&[][..], &vanish, &poisson, &larger, &ARRIVAL, &ADAPTIVE] {
        let folder = tempfile::tempdir().unwrap();
        let [blind, seeing] = ["blind", "seeing"].map(|name| folder.path().join(name));
        let (plan, opened) = plan(kind);
        whole(&blind, kind, &mut *threads(&plan, &opened));
        let mut engine = Curious::new(threads(&plan, &opened));
        whole(&seeing, kind, &mut engine);
        assert_eq!(engine.came.len(), 6);
        engine.was_told_the_truth();
        assert_eq!(engine.foreseen[5], None, "there is no round after the last");
        assert!(model(&blind) == model(&seeing), "{kind:?}");
    }
}

/// Rule P21: with secret noise nothing is drawn before its round: two copies of a run would share it.
#[test]
fn p21_with_secret_noise_nobody_is_foreseen() {
    let secret = ["noise_seed="];
    for kind in [&[][..], &["participation.kind=poisson"], &ARRIVAL] {
        let folder = tempfile::tempdir().unwrap();
        let mut engine = Curious::new(Box::new(Idle::default()));
        whole(&folder.path().join("run"), &with(&[&secret, kind]), &mut engine);
        assert!(engine.came.len() == 6 && engine.foreseen.iter().all(Option::is_none), "{kind:?}");
    }
}

/// An engine whose results depend on how many users it holds.
const CHUNKED: EngineKind = EngineKind {
    name: "chunked",
    arithmetic: |means| format!("chunks of {}", means.options.chunk.map_or(0, NonZeroUsize::get)),
    ..THREADS
};

struct Chunked(usize);

impl Engine for Chunked {
    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        Idle::default().sum(task, users)
    }

    fn chunk(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.0)
    }
}

/// What is kept is the size that an engine came to, not the one that it was asked for; a run goes on with that or not at all.
#[test]
fn a_run_goes_on_with_the_chunk_that_it_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let (plan, opened) = plan(&[]);
    let asked = Means { engine: CHUNKED, options: EngineOptions::default(), ..means() }.for_plan(&plan).unwrap();
    assert_eq!(asked.options.chunk, NonZeroUsize::new(20), "a whole cohort");
    let shared = Means { engine: CHUNKED, processes: 3, ..means() }.for_plan(&plan).unwrap();
    assert_eq!(
        shared.options.chunk,
        NonZeroUsize::new(7),
        "a third of one: ranks that held it all would take as long as one"
    );
    let fitted = asked.settled_by(&Chunked(7));
    let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, fitted).unwrap();
    _ = step(&mut run, &plan, &opened, &path, &mut Chunked(7)).unwrap();
    drop(run);
    assert_eq!(checkpoint::chunk(&RunFolder::at(&path)).unwrap(), NonZeroUsize::new(7));
    for other in [asked, asked.settled_by(&Chunked(6)), means()] {
        match Run::resume(RunFolder::at(&path), &plan, &opened, other).map(drop) {
            Err(RunError::OtherArithmetic { theirs, ours }) => {
                assert_eq!(theirs, "chunks of 7");
                assert_ne!(ours, theirs);
            }
            resumed => panic!("{resumed:?}"),
        }
    }
    Run::resume(RunFolder::at(&path), &plan, &opened, fitted).map(drop).unwrap();
    // To end it nothing is computed: who computed it may be gone.
    let mut run = Run::resume_to_end(RunFolder::at(&path), &plan, &opened, means()).unwrap();
    assert_eq!(run.state().round, 1);
    run.finish().unwrap();
    some(&folder.path().join("threads"), &[], 1, &mut *threads(&plan, &opened));
    assert_eq!(checkpoint::chunk(&RunFolder::at(folder.path().join("threads"))).unwrap(), None);
}

/// What an engine cannot carry out is refused before anything is made.
#[test]
fn a_plan_that_an_engine_refuses_does_not_begin() {
    let picky =
        EngineKind { refuses: |plan| (plan.rounds == 6).then(|| "six rounds are too many".to_owned()), ..THREADS };
    let (six, _) = plan(&[]);
    let (five, _) = plan(&["rounds=5"]);
    let means = Means { engine: picky, ..means() };
    let refused = means.for_plan(&six).unwrap_err().to_string();
    assert_eq!(refused, "the engine threads cannot be used here: six rounds are too many");
    assert!(means.for_plan(&five).is_ok());
}
