//! What is left of a run, by a crash, by an old copy or by somebody else, is brought to its end or refused, and never cleared away
//! in silence.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{fs, path::Path};

use crate::memory_home::{MemoryHome, Shows};
use crate::workshop::{self, Idle, all, ledger, means, plan, rest, some, started_from, undecided, whole};
use keyhush_federated::{
    fleet::Stop,
    home::{
        Home, LEDGER_FILE, Log, MODEL_FOLDER, Paper, Records, RunFolder, STATEMENT_JSON,
        lost::{LOST_FILE, Lost},
    },
    metrics::{DIAGNOSTICS_FILE, METRICS_FILE, TIMING_FILE},
    run::{self, Kept, Opened, Run, RunError},
};
use ledger::LedgerError;

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn refused(folder: &Path, set: &[&str], begin: bool) -> RunError {
    let (plan, opened) = plan(set);
    let way = if begin { Run::begin } else { Run::resume };
    way(RunFolder::at(folder), &plan, &opened, means()).map(drop).unwrap_err()
}

/// An old copy of the ledger was closed, and its small epsilon took the place of the statement of the whole one.
#[test]
fn p17_a_ledger_that_was_set_back_is_not_ended() {
    for shows in [Shows::Witness, Shows::States, Shows::Statement] {
        let (plan, opened) = plan(&[]);
        let home = MemoryHome::default();
        let mut run = Run::begin(home.clone(), &plan, &opened, means()).unwrap();
        let before = home.store();
        let (population, mut idle) = (opened.population(plan.ledger.unit).unwrap(), Idle::default());
        let mut fleet = workshop::fleet_of(&plan, population.as_ref(), &mut idle, home.secrets());
        for _ in 0..4 {
            run.step(&mut fleet, &Stop::new()).unwrap();
        }
        run.so_far().unwrap();
        drop(run);
        let secrets = home.kept_secrets();
        home.set_back(before, shows);
        let statement = home.paper(Paper::StatementJson).unwrap();
        let error = run::end_without_model(&home).unwrap_err().to_string();
        assert!(error.contains("rewound") || error.contains("shorter") || error.contains("head"), "{shows:?}: {error}");
        assert_eq!(home.paper(Paper::StatementJson).unwrap(), statement, "{shows:?}");
        assert_eq!(home.kept_secrets(), secrets, "{shows:?}: nothing is destroyed");
    }
}

/// A line of metrics that was spoilt was left out when the file was written anew.
#[test]
fn a_line_that_cannot_be_understood_stops_a_run_and_stays() {
    let set = ["evaluation.every=1"];
    for file in [METRICS_FILE, TIMING_FILE, DIAGNOSTICS_FILE] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        some(&run, &set, 4, &mut Idle::default());
        let path = run.join(file);
        let text = fs::read_to_string(&path).unwrap();
        let spoilt = text.replacen("\"round\":2,", "\"rou", 1);
        assert_ne!(text, spoilt, "{file}");
        fs::write(&path, &spoilt).unwrap();
        let error = refused(&run, &set, false).to_string();
        assert!(error.contains("cannot be parsed"), "{file}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), spoilt, "{file}");
        // A line that was being written goes.
        fs::write(&path, format!("{text}{{\"rou")).unwrap();
        rest(&run, &set, &mut Idle::default());
        assert!(!fs::read_to_string(&path).unwrap().contains("{\"rou{"), "{file}");
    }
}

/// Whoever went on with a run that another program was about to begin took its settings away.
#[test]
fn settings_of_a_run_that_is_being_begun_stay() {
    let folder = tempfile::tempdir().unwrap();
    let home = RunFolder::at(folder.path().join("run"));
    let (plan, opened) = plan(&[]);
    let store = home.create_store().unwrap();
    home.write_paper(Paper::Settings, &plan.settings).unwrap();
    let error = Run::resume(home.clone(), &plan, &opened, means()).map(drop).unwrap_err();
    assert!(matches!(error, RunError::Ledger(LedgerError::Locked { .. })), "{error}");
    assert_eq!(home.paper(Paper::Settings).unwrap().as_deref(), Some(plan.settings.as_str()));
    drop(store);
    drop(Run::resume(home, &plan, &opened, means()).unwrap());
}

/// What came of an old run, without its ledger, lay beside the ledger of a new one.
#[test]
fn p17_nothing_is_begun_beside_what_an_old_run_released() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    whole(&old, &[], &mut Idle::default());
    let vectors = format!("{LEDGER_FILE}.released");
    for left in ["checkpoints", STATEMENT_JSON, "statement.md", MODEL_FOLDER, &vectors] {
        fs::create_dir_all(&new).unwrap();
        fs::rename(old.join(left), new.join(left)).unwrap();
        for begin in [true, false] {
            if !begin {
                fs::copy(old.join("config.toml"), new.join("config.toml")).unwrap();
            }
            let error = refused(&new, &[], begin);
            let gone = matches!(error, RunError::LedgerGone { .. } | RunError::Ledger(LedgerError::Orphan { .. }));
            assert!(gone, "{left}: {error}");
        }
        assert!(!new.join(LEDGER_FILE).exists(), "{left}");
        fs::rename(new.join(left), old.join(left)).unwrap();
        fs::remove_dir_all(&new).unwrap();
    }
}

/// Killed between the last entry and the note that it is one of a sweep, a run was closed and undecided for ever.
#[test]
fn p22_a_run_that_is_closed_is_decided() {
    let folder = tempfile::tempdir().unwrap();
    for way in ["looked at", "gone on with", "ended", "swept again"] {
        let run = folder.path().join(way.replace(' ', "-"));
        undecided(&run, &[], &mut Idle::default());
        let home = RunFolder::at(&run);
        let note = home.paper(Paper::PartOfASweep).unwrap().unwrap();
        rest(&run, &[], &mut Idle::default());
        home.write_paper(Paper::PartOfASweep, &note).unwrap();
        assert!(ledger(&run).is_closed() && !run::is_undecided(&home).unwrap(), "{way}");
        assert!(run::stated(&home).is_some(), "{way}");
        let kept = Kept::read(&home).unwrap();
        assert!(!kept.undecided && !kept.sentence.contains("alone"), "{way}: {}", kept.sentence);
        Opened::new(&workshop::config(&all(&started_from(&run), &[]))).map(drop).unwrap();
        match way {
            "looked at" => continue,
            "gone on with" => {
                let (plan, opened) = plan(&[]);
                drop(Run::resume(home.clone(), &plan, &opened, means()).unwrap());
            }
            "ended" => drop(run::end_without_model(&home).unwrap()),
            _ => run::belongs_to_a_sweep(&home).unwrap(),
        }
        assert_eq!(home.paper(Paper::PartOfASweep).unwrap(), None, "{way}");
    }
}

fn damage(folder: &Path, round: u64) {
    let path = folder.join(format!("checkpoints/round-{round:08}.safetensors"));
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
}

/// A checkpoint that was damaged was kept as one of two, and the whole one before it removed.
#[test]
fn of_checkpoints_two_are_kept_that_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    some(&run, &[], 4, &mut Idle::default());
    damage(&run, 4);
    some(&run, &[], 2, &mut Idle::default());
    assert_eq!(files(&run.join("checkpoints")), ["round-00000002.safetensors", "round-00000006.safetensors"]);
    damage(&run, 6);
    assert_eq!(rest(&run, &[], &mut Idle::default()).rounds, 6);
    let lines = RunFolder::at(&run).lines(Log::Metrics).unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

/// What a crash left of the note of the last attempt outlived the run.
#[cfg(unix)]
#[test]
fn p20_what_was_being_written_of_an_attempt_goes_with_the_run() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    some(&run, &["noise_seed="], 2, &mut Idle::default());
    let unfinished = run.join("secret").join(format!("{LEDGER_FILE}.attempt.new"));
    fs::write(&unfinished, "{\"stream\"").unwrap();
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o600)).unwrap();
    rest(&run, &["noise_seed="], &mut Idle::default());
    assert_eq!(files(&run.join("secret")), [format!("{LEDGER_FILE}.signing-key")]);
}

/// A note beside a closed ledger would say of a run that is over that its end was lost.
#[test]
fn p17_only_a_ledger_that_is_not_closed_is_salvaged_as_one_that_lost_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let [open, closed] = ["open", "closed"].map(|name| folder.path().join(name));
    some(&open, &[], 2, &mut Idle::default());
    whole(&closed, &[], &mut Idle::default());
    for (run, is_lost) in [(&open, true), (&closed, false)] {
        let into = run.with_extension("salvaged");
        let lost = Lost { have: ledger(run).head(), acknowledged: None, why: "a test".into() };
        run::salvage(&RunFolder::at(run), Some(lost), &into).unwrap();
        assert_eq!(ledger(&into).is_closed(), !is_lost);
        assert_eq!(into.join(LOST_FILE).exists(), is_lost, "{}", run.display());
    }
}
