//! A ledger in a file: torn tails, damage, permissions, two writers, a key that is destroyed.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::ledger_story::{attempt, content, model_step, plan, publish_with, tree};
use keyhush_federated::{
    ledger_file::{FileStore, Place},
    secrets::SecretName,
};
use ledger::{Ended, FailureReason, Head, Ledger, LedgerError, NoiseDestroyed, Written};
use privacy::{
    Adjacency, ClipNorm,
    encoding::{Encoding, VectorPlan},
    rng::Randomness,
    stages::{Encoded, Sum},
    workers::Alone,
};
use proptest::prelude::*;

/// A folder with a ledger of a plan and some steps.
struct Run {
    folder: tempfile::TempDir,
    head: Head,
}

impl Run {
    fn of(steps: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path().join("ledger.jsonl"));
        let (mut ledger, key) = place.create(plan(), 0).unwrap();
        for step in 0..steps {
            // Everybody stays away for as long as the plan says.
            let (ada, bob) = (format!("ada {}", step % 4), format!("bob {step}"));
            let record = key.record("model", step, 0, [ada.as_bytes(), bob.as_bytes()]).unwrap();
            let _ = publish_with(&mut ledger, "model", step, &tree(&[step + 1]), Some(&record)).unwrap();
        }
        Self { head: ledger.head(), folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("ledger.jsonl")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        self.folder.path().join(format!("ledger.jsonl{suffix}"))
    }

    fn place(&self) -> Place {
        Place::new(self.path())
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    /// The line of the entry that would come next, written and taken back.
    fn next_line(&self) -> Vec<u8> {
        let [whole, head] = [self.path(), self.beside(".head")].map(|path| fs::read(path).unwrap());
        let (mut ledger, _) = self.place().open(&[]).unwrap();
        let _ = model_step(&mut ledger, self.head.length - 1).unwrap();
        drop(ledger);
        let line = self.bytes().split_off(whole.len());
        fs::write(self.path(), whole).unwrap();
        fs::write(self.beside(".head"), head).unwrap();
        fs::remove_file(self.beside(".released").join(format!("{}.bin", self.head.length))).unwrap();
        line
    }
}

fn append(path: &Path, bytes: &[u8]) {
    fs::write(path, [fs::read(path).unwrap(), bytes.to_vec()].concat()).unwrap();
}

#[test]
fn what_was_recorded_is_there_after_opening() {
    let run = Run::of(3);
    let (mut ledger, key) = run.place().open(&[run.head]).unwrap();
    assert!(key.is_some() && ledger.warnings().is_empty());
    assert_eq!(ledger.head(), run.head);
    assert_eq!(ledger.released("model", 2).unwrap().unwrap(), content("model", 2));
    assert!(model_step(&mut ledger, 2).unwrap().repeated);
    assert_eq!(model_step(&mut ledger, 3).unwrap().entry, 4);
    let found = ledger.verify(&[run.head], None).unwrap();
    assert_eq!((found.entries, found.vectors_matching, found.heads.entries_since), (5, 4, Some(1)));
}

#[test]
fn a_torn_record_after_the_last_acknowledged_one_is_dropped_with_a_word() {
    let run = Run::of(2);
    let whole = run.bytes();
    let next = run.next_line();
    for torn in [&b"{\"entry\":{\"ind"[..], b"\0\0\0\0\0\0\0", &next[..next.len() - 1], b"\0\0\0}\n", b"\n"] {
        append(&run.path(), torn);
        let read = run.place().read(&[]).unwrap();
        assert_eq!((read.head(), read.warnings().len()), (run.head, 1));
        assert_eq!(run.bytes().len(), whole.len() + torn.len(), "reading changes nothing");
        drop(read);
        let (ledger, _) = run.place().open(&[run.head]).unwrap();
        let warning = &ledger.warnings()[0];
        assert!(warning.starts_with(&format!("{} bytes of a torn record after entry 2", torn.len())), "{warning}");
        drop(ledger);
        assert_eq!(run.bytes(), whole);
    }
}

/// Whole lines behind the head were taken for torn records and dropped with a word, whatever they were.
#[test]
fn p17_a_whole_entry_that_does_not_follow_is_damage_and_not_a_torn_record() {
    let run = Run::of(3);
    let whole = run.bytes();
    let lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
    let without_its_break = &lines[3][..lines[3].len() - 1];
    for (what, line) in [("doubled", lines[3]), ("an earlier one", lines[1]), ("without its break", without_its_break)]
    {
        append(&run.path(), line);
        assert!(matches!(run.place().read(&[]), Err(LedgerError::Damaged { entry: 4, .. })), "{what}");
        assert!(matches!(run.place().open(&[]), Err(LedgerError::Damaged { entry: 4, .. })), "{what}");
        assert_eq!(run.bytes().len(), whole.len() + line.len(), "nothing is mended: {what}");
        fs::write(run.path(), &whole).unwrap();
    }
    assert!(run.place().open(&[]).is_ok());
}

#[test]
fn an_entry_that_was_written_but_not_acknowledged_counts() {
    let run = Run::of(2);
    let before = fs::read(run.beside(".head")).unwrap();
    let (mut ledger, _) = run.place().open(&[]).unwrap();
    let head = model_step(&mut ledger, 2).unwrap().head;
    drop(ledger);
    fs::write(run.beside(".head"), before).unwrap();
    let (ledger, _) = run.place().open(&[]).unwrap();
    assert_eq!(ledger.head(), head);
    assert_eq!(fs::read_to_string(run.beside(".head")).unwrap(), format!("{head}\n"));
}

#[test]
fn p17_the_witness_beside_it_notices_a_ledger_that_was_cut() {
    let run = Run::of(3);
    let whole = run.bytes();
    let mut ends: Vec<usize> = (0..whole.len()).filter(|i| whole[*i] == b'\n').map(|i| i + 1).collect();
    ends.pop();
    for end in ends {
        fs::write(run.path(), &whole[..end]).unwrap();
        for opened in [run.place().open(&[]).map(drop), run.place().read(&[]).map(drop)] {
            assert!(matches!(opened, Err(LedgerError::Rewound { shown, .. }) if shown == run.head), "{opened:?}");
        }
    }
}

#[test]
fn p17_a_witness_on_another_disk_notices_a_folder_that_was_rolled_back() {
    let run = Run::of(1);
    let elsewhere = tempfile::tempdir().unwrap();
    let place = run.place().with_witness(elsewhere.path().join("head"));
    let (mut ledger, _) = place.open(&[]).unwrap();
    let (old, old_head) = (run.bytes(), fs::read(run.beside(".head")).unwrap());
    let head = model_step(&mut ledger, 1).unwrap().head;
    drop(ledger);
    assert_eq!(fs::read_to_string(elsewhere.path().join("head")).unwrap(), format!("{head}\n"));
    fs::write(run.path(), old).unwrap();
    fs::write(run.beside(".head"), old_head).unwrap();
    assert!(run.place().read(&[]).is_ok(), "nobody can tell from the folder alone");
    assert!(matches!(place.open(&[]), Err(LedgerError::Rewound { .. })));
}

#[test]
fn a_ledger_without_its_head_is_read_and_not_written() {
    let run = Run::of(2);
    fs::remove_file(run.beside(".head")).unwrap();
    assert_eq!(run.place().read(&[]).unwrap().warnings(), ["there is no head file next to the ledger"]);
    assert!(matches!(run.place().open(&[]), Err(LedgerError::HeadMissing { have: 3, .. })));
    // What is torn and what is damaged cannot be told apart then.
    append(&run.path(), b"{\"entry\":");
    assert!(matches!(run.place().read(&[]), Err(LedgerError::Damaged { entry: 3, .. })));
    fs::write(run.beside(".head"), format!("{}\n", run.head)).unwrap();
    assert!(run.place().open(&[]).is_ok());
    fs::write(run.beside(".head"), "three").unwrap();
    assert!(matches!(run.place().open(&[]), Err(LedgerError::HeadDamaged { .. })));
}

#[test]
fn there_is_one_writer_and_any_number_of_readers() {
    let run = Run::of(1);
    let (mut ledger, _) = run.place().open(&[]).unwrap();
    let error = run.place().open(&[]).unwrap_err();
    assert!(matches!(error, LedgerError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("one writer"), "{error}");
    assert!(matches!(run.place().create(plan(), 0), Err(LedgerError::Locked { .. })));
    let mut reader = run.place().read(&[]).unwrap();
    assert!(matches!(model_step(&mut reader, 1), Err(LedgerError::ReadOnly)));
    let _ = model_step(&mut ledger, 1).unwrap();
    assert_eq!(reader.head().length, 2);
    assert_eq!(run.place().read(&[]).unwrap().head().length, 3);
    drop(ledger);
    assert!(matches!(run.place().create(plan(), 0), Err(LedgerError::Exists { .. })));
    assert!(run.place().open(&[]).is_ok());
}

#[test]
fn an_unfinished_creation_is_begun_again() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::new(folder.path().join("ledger.jsonl"));
    fs::write(folder.path().join("ledger.jsonl"), "{\"entry\":{\"index\":0,").unwrap();
    assert!(matches!(place.open(&[]), Err(LedgerError::Empty)));
    assert!(matches!(place.read(&[]), Err(LedgerError::Empty)));
    assert!(place.create(plan(), 0).is_ok());
    let missing = Place::new(folder.path().join("none.jsonl")).read(&[]).unwrap_err();
    assert!(missing.to_string().contains("none.jsonl"), "{missing}");
}

#[cfg(unix)]
#[test]
fn p13_secrets_that_others_can_read_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let run = Run::of(1);
    let secret = run.folder.path().join("secret");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let key = secret.join("ledger.jsonl.signing-key");
    assert_eq!((mode(&secret), mode(&key)), (0o700, 0o600));
    assert_eq!(mode(&secret.join("ledger.jsonl.pseudonym-key")), 0o600);
    assert_eq!(mode(&run.beside(".participations")), 0o600);
    for (path, loose, tight) in [(&key, 0o640, 0o600), (&secret, 0o701, 0o700)] {
        set(path, loose);
        let error = run.place().open(&[]).unwrap_err();
        assert!(matches!(error, LedgerError::LooseSecret { mode, .. } if mode == loose), "{error}");
        set(path, tight);
        assert!(run.place().open(&[]).is_ok());
    }
    assert!(!String::from_utf8(run.bytes()).unwrap().contains(fs::read_to_string(&key).unwrap().trim()));
}

#[test]
fn p17_closing_destroys_the_key_of_the_pseudonyms() {
    let run = Run::of(5);
    let (mut ledger, key) = run.place().open(&[]).unwrap();
    assert!(key.is_some());
    let destroyed = run.place().secrets().destroy_pseudonym_key().unwrap();
    assert!(!run.folder.path().join("secret/ledger.jsonl.pseudonym-key").exists());
    let _ = ledger.close(Ended::PlanDone, destroyed, NoiseDestroyed::assertion(), 5).unwrap();
    drop(ledger);
    let (ledger, key) = run.place().open(&[]).unwrap();
    assert!(key.is_none() && ledger.closing().unwrap().pseudonym_key_destroyed);
    // Who was the same person can still be told, and that is all.
    let observed = ledger.verify(&[], None).unwrap().observed["model"].released;
    assert_eq!((observed.max_participations, observed.min_separation.unwrap().as_rounds_between()), (2, 3));
    assert!(run.place().secrets().destroy_pseudonym_key().is_ok(), "again, after a crash");
}

#[test]
fn vectors_that_were_changed_or_let_go_are_noticed() {
    let run = Run::of(3);
    let (mut ledger, _) = run.place().open(&[]).unwrap();
    ledger.discard_released(2).unwrap();
    let found = ledger.verify(&[], None).unwrap();
    assert_eq!((found.vectors_matching, found.vectors_absent), (2, 1));
    assert_eq!(ledger.released("model", 0).unwrap(), None);
    append(&run.beside(".released").join("3.bin"), b"!");
    assert!(matches!(ledger.released("model", 2), Err(LedgerError::VectorDamaged { entry: 3, .. })));
    assert!(matches!(ledger.verify(&[], None), Err(LedgerError::VectorDamaged { entry: 3, .. })));
    fs::write(run.beside(".released").join("9.bin"), b"never recorded").unwrap();
    drop(ledger);
    let error = run.place().open(&[]).map(drop).unwrap_err();
    assert!(matches!(error, LedgerError::Orphan { entry: 9, have: 4, .. }), "{error}");
}

/// Nobody waits until vectors are removed, and they are gone when the ledger is opened again; what cannot be removed is said, and tried
/// again.
#[test]
fn vectors_go_beside_everything_else() {
    let run = Run::of(3);
    let (mut ledger, _) = run.place().open(&[]).unwrap();
    let stuck = run.beside(".released").join("1.bin");
    fs::remove_file(&stuck).unwrap();
    fs::create_dir(&stuck).unwrap();
    ledger.discard_released(2).unwrap();
    assert_eq!(ledger.released("model", 0).unwrap(), None, "it is gone for whoever asks");
    let said = ledger.discard_released(3).unwrap_err().to_string();
    assert!(said.contains("cannot remove") && said.contains("1.bin"), "{said}");
    fs::remove_dir(&stuck).unwrap();
    ledger.discard_released(3).unwrap();
    drop(ledger);
    let left: Vec<_> = fs::read_dir(run.beside(".released")).unwrap().map(|path| path.unwrap().file_name()).collect();
    assert_eq!(left, ["3.bin"]);
}

#[test]
fn p17_participations_that_were_changed_are_noticed() {
    let run = Run::of(3);
    let side = fs::read_to_string(run.beside(".participations")).unwrap();
    assert_eq!(side.lines().count(), 3);
    assert!(!side.contains("bob"), "hexadecimal digits cannot spell this");
    let digit = side.rfind(|c: char| c.is_ascii_digit()).unwrap();
    let other = if side.as_bytes()[digit] == b'0' { "1" } else { "0" };
    let changed = [&side[..digit], other, &side[digit + 1..]].concat();
    let without_first = side.split_once('\n').unwrap().1.to_owned();
    for (evil, entry) in [(changed, 3), (without_first, 1)] {
        fs::write(run.beside(".participations"), evil).unwrap();
        let error = run.place().read(&[]).unwrap().verify(&[], None).unwrap_err();
        assert!(matches!(error, LedgerError::ParticipationsDamaged { entry: e, .. } if e == entry), "{error}");
    }
    fs::write(run.beside(".participations"), format!("{side}{{\"stream\":")).unwrap();
    let (ledger, _) = run.place().open(&[]).unwrap();
    assert!(ledger.warnings()[0].contains("participations"), "{:?}", ledger.warnings());
    assert_eq!(fs::read_to_string(run.beside(".participations")).unwrap(), side);
}

/// Opens for reading and returns what is there.
fn entries(place: &Place) -> Result<Vec<String>, LedgerError> {
    let ledger: Ledger<FileStore> = place.read(&[])?;
    ledger.entries()?.map(|entry| entry.map(|e| e.line())).collect()
}

/// Damage to the acknowledged part: refused, or nothing is missing. Never a shorter list.
fn never_shorter(run: &Run, evil: &[u8]) -> Result<(), TestCaseError> {
    let whole = run.bytes();
    let before = entries(&run.place()).unwrap();
    fs::write(run.path(), evil).unwrap();
    let read = entries(&run.place());
    let opened = run.place().open(&[]).map(|(ledger, _)| ledger.head());
    fs::write(run.path(), &whole).unwrap();
    match read {
        Err(_) => {}
        Ok(found) => prop_assert_eq!(found, before),
    }
    match opened {
        Err(_) => {}
        Ok(head) => prop_assert_eq!(head, run.head),
    }
    Ok(())
}

#[test]
fn p17_every_single_flipped_bit_in_a_small_ledger_is_refused() {
    let run = Run::of(1);
    let whole = run.bytes();
    for at in 0..whole.len() {
        let mut evil = whole.clone();
        evil[at] ^= 1 << (at % 8);
        fs::write(run.path(), &evil).unwrap();
        let found = run.place().read(&[]);
        assert!(
            matches!(found, Err(LedgerError::Damaged { .. } | LedgerError::Rewound { .. })),
            "byte {at}: {found:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn p17_damage_is_never_a_shorter_list(
        at in 0.0..1.0f64, other in 0.0..1.0f64, byte in any::<u8>(), kind in 0..5
    ) {
        thread_local! { static RUN: Run = Run::of(5); }
        RUN.with(|run| {
            let whole = run.bytes();
            let place = |x: f64| (x * whole.len() as f64) as usize;
            let mut lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
            let line = |x: f64| (x * lines.len() as f64) as usize;
            let (a, b) = (line(at), line(other));
            let evil = match kind {
                0 => { let mut evil = whole.clone(); evil[place(at)] = byte; evil }
                1 => whole[..place(at)].to_vec(),
                2 => { lines.swap(a, b); lines.concat() }
                3 => { lines.insert(b, lines[a]); lines.concat() }
                _ => { lines.remove(a); lines.concat() }
            };
            never_shorter(run, &evil)
        })?;
    }
}

/// Rule P21: the seed of a round's cohort is the same until the round is recorded, then another; a ledger that goes back is
/// noticed.
#[test]
fn p21_a_cohort_has_one_seed() {
    let run = Run::of(1);
    let place = run.place();
    let seed = |round| place.secrets().cohort_seed(round).map(|key| *key.secret_bytes());
    let first = seed(5).unwrap();
    assert_eq!(seed(5).unwrap(), first);
    assert!(matches!(seed(4), Err(LedgerError::SecretAhead { kept: 5, asked: 4, .. })));
    place.secrets().settle_cohort_seed(5).unwrap();
    assert_eq!(seed(5).unwrap(), first, "round 5 is not recorded");
    place.secrets().settle_cohort_seed(6).unwrap();
    assert_ne!(seed(5).unwrap(), first, "it was recorded, and its seed is gone");
    assert_ne!(seed(6).unwrap(), first);
}

/// A vector that was pending when it was copied, and is not the one of its entry, is destroyed and seen by nobody.
#[cfg(unix)]
#[test]
fn p21_a_pending_vector_of_another_attempt_is_destroyed() {
    use std::os::unix::fs::PermissionsExt;
    let run = Run::of(3);
    let released = fs::read(run.beside(".released").join("2.bin")).unwrap();
    for (index, bytes) in [(2, &b"another noise"[..]), (2, &released), (9, b"no entry")] {
        let path = run
            .path()
            .with_file_name("secret")
            .join(format!("{}.{index}.pending", run.path().file_name().unwrap().to_string_lossy()));
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        drop(run.place().open(&[]).unwrap());
        assert!(!path.exists());
        assert_eq!(fs::read(run.beside(".released").join("2.bin")).unwrap(), released);
        assert!(!run.beside(".released").join("9.bin").exists());
    }
}

/// A secret that was being replaced in a crash is one too, until the run is over.
#[cfg(unix)]
#[test]
fn p20_what_a_crash_left_of_a_secret_is_destroyed_with_it() {
    use std::os::unix::fs::OpenOptionsExt;
    let run = Run::of(1);
    let secrets = run.place().secrets();
    let _gone = secrets.destroy_noise().unwrap();
    let left = run.path().with_file_name("secret").join("ledger.jsonl.noise-link.new");
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&left).unwrap();
    assert!(run.place().vault().exists(SecretName::NoiseLink).unwrap(), "noise could be drawn again from it");
    let _gone = secrets.destroy_noise().unwrap();
    assert!(!run.place().vault().exists(SecretName::NoiseLink).unwrap() && !left.exists());
}

/// A release of a sum of this number.
fn written(number: i32) -> Written {
    let clip = ClipNorm::new(1.0).unwrap();
    let encoding = Encoding::new(VectorPlan::of_update(1, 12), clip, None, Adjacency::ZeroOut).unwrap();
    let mut sum = Sum::zero(&encoding);
    sum.add(&Encoded::of(vec![number], &encoding).unwrap()).unwrap();
    Written::new(sum.release_without_privacy(0, "a test", Randomness::Secret), &Alone).unwrap()
}

/// A vector was kept, and another one after it; or an entry came in between. What lies there is not taken for the one that is recorded.
#[test]
fn p13_what_is_published_under_an_entry_is_what_was_recorded_whatever_was_kept() {
    for (others, fails_first) in [(0, false), (1, false), (0, true), (1, true)] {
        let folder = tempfile::tempdir().unwrap();
        let (mut ledger, _) = Place::new(folder.path().join("ledger.jsonl")).create(plan(), 0).unwrap();
        let right = written(1);
        ledger.keep(&right).unwrap();
        for number in 0..others {
            ledger.keep(&written(2 + number)).unwrap();
        }
        let mut number = 0;
        if fails_first {
            let _ = ledger.record_failed(0, FailureReason::Interrupted, attempt("model")).unwrap();
            number = 1;
        }
        let digest = right.digest();
        let recorded = ledger.record_written(right, ledger::Attempt { number, ..attempt("model") }).unwrap();
        assert_eq!(recorded.values(), [1]);
        let stored = ledger.released("model", 0).unwrap().expect("the vector is there");
        assert_eq!(ledger::Digest::of_released(&stored), digest, "{others} others, {fails_first}");
    }
}
