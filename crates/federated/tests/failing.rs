//! What must not happen when something is not as it should be: a release that was not recorded is not used, and a ledger that
//! was put back, another start or another text is not gone on with.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use keyhush_federated::home::{LEDGER_FILE, MODEL_FOLDER, RunFolder};
use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::workshop::{ADAPTIVE, Idle, all, ledger, means, plan, reads, some, started_from, step, store, whole, with};
use corpus::origin::Origin;
use keyhush_federated::run::{Run, RunError};

/// Where released vectors are kept.
const VECTORS: &str = "ledger.jsonl.released";

/// Makes every record of a release fail: where vectors are to go there is something else.
fn break_store(folder: &Path) {
    fs::remove_dir_all(folder.join(VECTORS)).unwrap();
    fs::write(folder.join(VECTORS), "in the way").unwrap();
}

/// Rule P13: the release is durable before anything sees it. If it cannot be made so, nothing has moved.
#[test]
fn p13_what_could_not_be_recorded_moves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let momentum = ["server.optimizer=momentum", "server.momentum=0.9"];
    for (name, set) in [("seeded", vec![]), ("secret", vec!["noise_seed="])] {
        let path = folder.path().join(name);
        let (plan, opened) = plan(&with(&[&ADAPTIVE, &momentum, &set]));
        let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
        for _ in 0..3 {
            step(&mut run, &plan, &opened, &path, &mut Idle::default()).unwrap();
        }
        let seen = |run: &Run<'_>| {
            let state = run.state();
            (state.round, state.model.clone(), state.optimizer.clone(), state.clip, state.fraction_below_clip)
        };
        let (before, head) = (seen(&run), run.ledger().head());
        break_store(&path);
        let error = step(&mut run, &plan, &opened, &path, &mut Idle::default()).unwrap_err();
        assert!(error.to_string().contains(".released"), "{name}: {error}");
        assert!(before == seen(&run), "{name}: what was not recorded has moved the state");
        assert_eq!(run.ledger().head(), head, "{name}");
    }
}

/// The ledger of a run with its `.head` and its vectors: by themselves they are whole.
fn copy_of_ledger(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let vectors = fs::read_dir(folder.join(VECTORS)).unwrap().map(|entry| entry.unwrap().path());
    let files = [LEDGER_FILE.to_owned(), format!("{LEDGER_FILE}.head")].map(|name| folder.join(name));
    files.into_iter().chain(vectors).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Rule P17: a checkpoint knows the head of the ledger. Put an old copy of the ledger back beside it, and the run would go on
/// from a model whose releases nobody counts any more.
#[test]
fn p17_a_ledger_older_than_the_checkpoint_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    some(&path, &[], 2, &mut Idle::default());
    let old = copy_of_ledger(&path);
    some(&path, &[], 2, &mut Idle::default());
    let (plan, opened) = plan(&[]);
    let refused = || Run::resume(RunFolder::at(&path), &plan, &opened, means()).err();
    assert!(refused().is_none());
    fs::remove_dir_all(path.join(VECTORS)).unwrap();
    fs::create_dir(path.join(VECTORS)).unwrap();
    old.into_iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    let error = refused().unwrap();
    assert!(error.to_string().contains("rewound: the ledger has 3 entries"), "{error}");
}

/// Rule P21: the model that the run started from is another one when it goes on.
#[test]
fn p21_a_run_does_not_go_on_from_another_start() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, run] = ["first", "second", "run"].map(|name| folder.path().join(name));
    whole(&first, &[], &mut Idle::default());
    whole(&second, &["noise_seed=4"], &mut Idle::default());
    let from = started_from(&first);
    let set = all(&from, &["noise_seed=5"]);
    some(&run, &set, 2, &mut Idle::default());
    let weights = |folder: &Path| folder.join(MODEL_FOLDER).join("model.safetensors");
    fs::copy(weights(&second), weights(&first)).unwrap();
    let (plan, opened) = plan(&set);
    let error = Run::resume(RunFolder::at(&run), &plan, &opened, means()).err().unwrap();
    assert!(matches!(error, RunError::StartChanged), "{error}");
}

/// Rule P21: the same users have typed something else when the run goes on.
#[test]
fn p21_a_run_does_not_go_on_with_another_text_unless_somebody_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let typed = |word: u32| {
        fs::remove_file(folder.path().join("users.khs")).ok();
        store(folder.path(), Origin::BuiltIn, 200, |_| vec![word; 9])
    };
    let made = reads(&typed(5));
    let set = all(&made, &["noise_seed="]);
    some(&run, &set, 2, &mut Idle::default());
    typed(6);
    let (plan, opened) = plan(&set);
    let error = Run::resume(RunFolder::at(&run), &plan, &opened, means()).err().unwrap();
    assert!(matches!(error, RunError::DataChanged), "{error}");
    drop(Run::resume_with_changed_data(RunFolder::at(&run), &plan, &opened, means(), "a correction").unwrap());
    assert_eq!(ledger(&run).data_changes().len(), 1);
}
