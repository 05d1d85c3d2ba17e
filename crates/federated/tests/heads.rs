//! Heads that lie beside a ledger: what a run leaves behind shows that its ledger was cut, its witness with it.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use keyhush_federated::{
    config::Document,
    engine::{self, Means},
    fleet::{self, Stop},
    home::{
        LEDGER_FILE, Records, RunFolder,
        heads::{self, HeadsError},
    },
    ledger_file::Place,
    plan::Plan,
    run::{Opened, Run, RunError},
};
use ledger::{Head, LedgerError};
use lm::kernels::KernelPath;

const TEXT: &str = include_str!("../src/config/first-run.toml");
const SET: [&str; 9] = [
    "noise_seed=",
    "rounds=6",
    "participation.population=2000",
    "participation.cohort=10",
    "privacy.delta=1e-5",
    "model.vocabulary=120",
    "evaluation.users=4",
    "evaluation.every=6",
    "checkpoint.every=2",
];
const MEANS: fn() -> Means = || Means::threads(KernelPath::best(), 1);

fn plan() -> (Plan, Opened) {
    let config = Document::new(TEXT, &SET.map(str::to_owned)).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    (Plan::new(config, &opened.setting()).unwrap(), opened)
}

/// A run that was done, in a folder.
struct Done(tempfile::TempDir);

impl Done {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (plan, opened) = plan();
        let population = opened.population(plan.ledger.unit).unwrap();
        let engine = engine::of(&plan.local, opened.learner(), MEANS()).unwrap();
        let mut fleet = fleet::of(&plan, population.as_ref(), engine, RunFolder::at(folder.path()).secrets());
        let mut run = Run::begin(RunFolder::at(folder.path()), &plan, &opened, MEANS()).unwrap();
        while run.step(&mut fleet, &Stop::new()).unwrap().over.is_none() {}
        run.finish().unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn ledger(&self) -> PathBuf {
        self.path(LEDGER_FILE)
    }

    fn head(&self) -> Head {
        Place::new(self.ledger()).read(&[]).unwrap().head()
    }

    /// Keeps so many entries, and has the witness say so.
    fn cut(&self, entries: usize) {
        let text = fs::read_to_string(self.ledger()).unwrap();
        let kept: String = text.split_inclusive('\n').take(entries).collect();
        fs::write(self.ledger(), kept).unwrap();
        fs::remove_file(self.path("ledger.jsonl.head")).unwrap();
        let head = self.head();
        fs::write(self.path("ledger.jsonl.head"), format!("{head}\n")).unwrap();
    }

    fn resume(&self) -> Result<(), RunError> {
        let (plan, opened) = plan();
        Run::resume(RunFolder::at(self.0.path()), &plan, &opened, MEANS()).map(drop)
    }
}

fn rewound(error: &HeadsError) -> bool {
    matches!(error, HeadsError::Contradicted { error, .. } if matches!(**error, LedgerError::Rewound { .. }))
}

#[test]
fn p17_everything_that_a_run_leaves_behind_holds_its_head() {
    let run = Done::new();
    let found = heads::check(&run.ledger()).unwrap();
    let names: Vec<String> =
        found.iter().map(|shown| shown.place.strip_prefix(run.0.path()).unwrap().display().to_string()).collect();
    for name in ["statement.json", "model", "ledger.jsonl.head", "checkpoints/round-00000006.safetensors"] {
        assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
        // The last checkpoint is written before the ledger is closed.
        let behind = u64::from(name.starts_with("checkpoints"));
        assert_eq!(heads::in_file(&run.path(name)).unwrap().length + behind, run.head().length, "{name}");
    }
    for name in ["config.toml", "metrics.jsonl", "nothing", "checkpoints"] {
        assert!(heads::in_file(&run.path(name)).is_err(), "{name}");
    }
    run.resume().unwrap();
}

/// A ledger that was cut together with its witness passed, with the statement of the whole one beside it.
#[test]
fn p17_a_ledger_that_was_cut_with_its_witness_is_noticed_by_each_of_them() {
    let keep = |run: &Done, kept: &str| {
        for name in ["statement.json", "model", "checkpoints"].into_iter().filter(|name| *name != kept) {
            let path = run.path(name);
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
    };
    for kept in ["statement.json", "model", "checkpoints"] {
        let run = Done::new();
        run.cut(5);
        keep(&run, kept);
        let vectors = fs::read_dir(run.path("ledger.jsonl.released")).map_or(0, Iterator::count);
        let error = heads::check(&run.ledger()).unwrap_err();
        assert!(rewound(&error) && error.to_string().contains(kept), "{error}");
        assert!(matches!(run.resume(), Err(RunError::Heads(_))), "{kept}");
        let after = fs::read_dir(run.path("ledger.jsonl.released")).map_or(0, Iterator::count);
        assert_eq!(vectors, after, "what shows it is not cleared away");
    }
}

#[test]
fn p17_vectors_of_entries_that_are_gone_are_orphans() {
    let run = Done::new();
    for name in ["statement.json", "model", "checkpoints"] {
        let path = run.path(name);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    let length = run.head().length;
    fs::create_dir_all(run.path("ledger.jsonl.released")).unwrap();
    let vector = run.path("ledger.jsonl.released").join(format!("{length}.bin"));
    fs::write(&vector, "a vector is moved here when its entry is durable").unwrap();
    let error = heads::check(&run.ledger()).unwrap_err();
    assert!(matches!(&error, HeadsError::Ledger(LedgerError::Orphan { .. })), "{error}");
    assert!(error.to_string().starts_with("rewound"), "{error}");
    assert!(matches!(run.resume(), Err(RunError::Ledger(_))) && vector.exists());
}

#[test]
fn p17_a_ledger_that_another_run_left_is_forked() {
    let (run, other) = (Done::new(), Done::new());
    for name in ["ledger.jsonl", "ledger.jsonl.head"] {
        fs::copy(other.path(name), run.path(name)).unwrap();
    }
    let error = heads::check(&run.ledger()).unwrap_err();
    let forked =
        matches!(&error, HeadsError::Contradicted { error, .. } if matches!(**error, LedgerError::Forked { .. }));
    assert!(forked, "{error}");
    // A ledger of another name is not that of the run.
    let copy = run.path("copy.jsonl");
    fs::copy(other.path("ledger.jsonl"), &copy).unwrap();
    assert!(heads::check(Path::new(&copy)).unwrap().is_empty());
}
