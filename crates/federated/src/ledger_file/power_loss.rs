//! Tests of a ledger file under power loss: an adversarial disk keeps any part of what was not synced ([`durable::power_loss`]).
//!
//! A story (make the folder of a run, create, draw keys, release, fail, destroy the keys, close) is cut before every single
//! operation; what was acknowledged must be there after the restart, also when the recovery is cut too. And every sync is
//! needed: where a disk only pretends to do one kind of them, the same check finds a loss.

use std::{borrow::Cow, path::Path, sync::Arc};

use durable::{
    disk::Disk,
    files,
    power_loss::{Adversary, LossyDisk, SECTOR},
};
use ledger::{
    Attempt, BegunAttempt, Digest, Ended, FailureReason, Ledger, LedgerError, Publication,
    contract::{Keeps, plan},
};
use privacy::{
    encoding::{Encoding, VectorPlan},
    event::{Adjacency, PrivacyEvent},
    rng::Randomness,
    step_keys::{AddedTo, LastStep, StepAt, StepKeyError, StepKeys},
    units::{ClipNorm, NoiseMultiplier},
    workers::Alone,
};

use super::{FileStore, Place};
use crate::secrets::{SecretName, file::not_replaced};

/// What the caller was told.
#[derive(Debug, Default)]
struct Told {
    entries: u64,
    releases: Vec<(u64, Digest)>,
    /// The round of the last cohort, and its seed.
    cohort: Option<(u64, [u8; 32])>,
    /// The attempt for which users may have been asked.
    begun: Option<BegunAttempt>,
    keys_destroyed: bool,
}

const STEPS: u64 = 3;

/// Steps 0 and 1 are a segment of correlated noise, step 2 is independent.
const fn at(step: u64) -> StepAt {
    StepAt { stream: 0, segment: step / 2, step }
}

/// What the noise of every step is added to.
fn added_to() -> AddedTo {
    let clip = ClipNorm::new(1.0).unwrap();
    let encoding = Encoding::new(VectorPlan::of_update(1, 12), clip, None, Adjacency::AddOrRemove).unwrap();
    AddedTo::of(encoding.id(), &[5], &Alone).unwrap()
}

/// The folder of a run, which is made with the one above it.
const FOLDER: &str = "/runs/run";

/// Makes the folder, creates a ledger and releases three steps, or as much of it as the power allows.
fn story(place: &Place, told: &mut Told) -> Result<(), LedgerError> {
    files::make_folder_on(&*place.disk, Path::new(FOLDER)).map_err(not_replaced)?;
    place.secrets().draw_noise_key()?;
    let (ledger, key) = place.create(plan(), 0)?;
    told.entries = ledger.head().length;
    drop(ledger);
    // Every other vector is kept before its entry is written.
    let signing = Some(place.secrets().signing_key()?);
    let mut ledger = Ledger::open(Keeps(FileStore::open(place)?), signing, &[])?;
    let mut steps = place.secrets().step_keys(None)?;
    let no_key = |e: StepKeyError| LedgerError::storage("a step's key", e);
    let event = PrivacyEvent::gaussian(Adjacency::AddOrRemove, NoiseMultiplier::new(5.0).unwrap());
    let added_to = added_to();
    for step in 0..STEPS {
        let attempt = |number| Attempt { stream: "model", number, declared: 2, participations: None, time: step };
        if step == 1 {
            let record = key.record("model", step, 0, [b"ada".as_slice()])?;
            let failed = Attempt { participations: Some(&record), ..attempt(0) };
            told.entries = ledger.record_failed(step, FailureReason::BelowGoal, failed)?.head.length;
        }
        let asked = ledger.begin_attempt("model", step, 10)?;
        told.begun = Some(BegunAttempt { stream: "model".into(), step, attempt: asked, declared: 10 });
        told.cohort = Some((step, *place.secrets().cohort_seed(step)?.secret_bytes()));
        let _noise = steps.draw(at(step), &added_to).map_err(no_key)?;
        let (ada, bob) = (format!("ada {step}"), format!("bob {step}"));
        let record = key.record("model", step, 1, [ada.as_bytes(), bob.as_bytes()])?;
        let bytes = vec![u8::try_from(step + 1).unwrap(); 3 * SECTOR];
        let published =
            Publication { event: &event, randomness: Randomness::Secret, step, bytes: Cow::Borrowed(&bytes) };
        let receipt = ledger.publish(&published, Attempt { participations: Some(&record), ..attempt(1) })?;
        told.entries = receipt.head.length;
        told.releases.push((step, Digest::of_released(&bytes)));
        (told.cohort, told.begun) = (None, None);
        place.secrets().erase_cohort_seed()?;
        steps.recorded(at(step), step == 0).map_err(no_key)?;
    }
    place.secrets().close_ledger(&mut ledger, Ended::PlanDone, 9)?;
    told.entries = ledger.head().length;
    told.keys_destroyed = true;
    Ok(())
}

/// What `secret/` must and must not hold after a restart.
fn check_secrets(place: &Place, disk: &LossyDisk, told: &Told, last: Option<u64>) -> Result<(), String> {
    if disk.names().iter().any(|path| path.to_string_lossy().ends_with(".pending")) {
        return Err("a vector is pending".into());
    }
    let last_step = last.map(|step| LastStep { at: at(step), needed_again: step == 0 });
    let steps = place.secrets().step_keys(last_step).map_err(|e| format!("keys: {e}"))?;
    let kept = disk
        .read(&Path::new(FOLDER).join("secret/ledger.jsonl.step-keys"))
        .map_err(|e| e.to_string())?
        .unwrap_or_default();
    if kept.iter().filter(|b| **b == b'\n').count() != usize::from(last == Some(0)) {
        return Err(format!("after step {last:?} the file of keys holds {:?}", String::from_utf8_lossy(&kept)));
    }
    if steps.again(at(0)).is_ok() != (last == Some(0)) {
        return Err(format!("after step {last:?} the key of step 0 is there or not"));
    }
    match told.cohort.filter(|(round, _)| last.is_none_or(|last| last < *round)) {
        Some((round, seed))
            if *place.secrets().cohort_seed(round).map_err(|e| e.to_string())?.secret_bytes() != seed =>
        {
            Err(format!("another cohort for round {round}"))
        }
        _ => Ok(()),
    }
}

/// Reopens and compares with what was told; then one more entry must go in, unless the ledger is closed.
fn check(place: &Place, disk: &LossyDisk, told: &Told) -> Result<(), String> {
    let (mut ledger, key) = match place.open(&[]) {
        Ok(opened) => opened,
        Err(_) if told.entries == 0 => {
            let made = files::make_folder_on(&*place.disk, Path::new(FOLDER)).map_err(not_replaced);
            return made.and_then(|()| place.create(plan(), 0)).map(drop).map_err(|e| format!("create: {e}"));
        }
        Err(e) => return Err(format!("does not open: {e}")),
    };
    let have = ledger.head().length;
    if have < told.entries {
        return Err(format!("{have} entries, {} were acknowledged", told.entries));
    }
    let last = (0..STEPS).rev().find(|step| ledger.released_in("model", *step).is_some());
    if place.secrets().closing_begun().map_err(|e| e.to_string())?.is_some() && !ledger.is_closed() {
        place
            .secrets()
            .close_ledger(&mut ledger, Ended::PlanDone, 9)
            .map_err(|e| format!("goes not on closing: {e}"))?;
    }
    if !ledger.is_closed() {
        check_secrets(place, disk, told, last)?;
        let begun = told.begun.as_ref().filter(|begun| ledger.released_in("model", begun.step).is_none());
        if begun.is_some() && begun != ledger.interrupted().map_err(|e| e.to_string())?.as_ref() {
            return Err(format!("it is forgotten that users were asked: {begun:?}"));
        }
    } else {
        for name in SecretName::ALL.into_iter().filter(|name| *name != SecretName::SigningKey) {
            if place.vault().exists(name).map_err(|e| e.to_string())? && told.keys_destroyed {
                return Err(format!("{} is back", name.word()));
            }
        }
    }
    if key.is_some() && told.keys_destroyed {
        return Err("the pseudonym key is back".into());
    }
    for (step, digest) in &told.releases {
        match ledger.released("model", *step) {
            Ok(Some(bytes)) if Digest::of_released(&bytes) == *digest => {}
            other => return Err(format!("step {step}: {other:?}")),
        }
    }
    let verification = ledger.verify(&[], None).map_err(|e| e.to_string())?;
    if verification.vectors_absent > 0 || (told.entries > 1 && verification.participations_matching.is_none()) {
        return Err("a vector or the participations of an entry are missing".into());
    }
    if ledger.is_closed() {
        return Ok(());
    }
    let number = ledger.failures("model", STEPS).last().map_or(7, |last| last.attempt + 1);
    let attempt = Attempt { stream: "model", number, declared: 2, participations: None, time: 10 };
    let more = ledger.record_failed(STEPS, FailureReason::Interrupted, attempt);
    more.map(drop).map_err(|e| format!("goes not on: {e}"))
}

/// Cuts the story before each operation under each adversary, and the recovery once more. With a lie one loss is enough.
fn violations(lie: Option<&'static str>) -> (u64, Vec<String>) {
    let (mut crashes, mut found) = (0, Vec::new());
    for crash_at in 1.. {
        let random = (0..6).map(|seed| Adversary::Random(crash_at * 1000 + seed));
        let mut finished = false;
        for (case, mut adversary) in [Adversary::LosesAll, Adversary::KeepsAll].into_iter().chain(random).enumerate() {
            let disk = LossyDisk::cut_at(crash_at).lying(lie);
            let place = Place::on(Arc::new(disk.clone()), Path::new(FOLDER).join("ledger.jsonl"));
            let mut told = Told::default();
            finished = story(&place, &mut told).is_ok();
            crashes += 1;
            // In every other case the recovery is cut too, and recovered from.
            if case % 2 == 1 {
                disk.restart(&mut adversary, Some(crash_at % 13 + 1));
                let _ = check(&place, &disk, &told);
                crashes += 1;
            }
            disk.restart(&mut adversary, None);
            found.extend(check(&place, &disk, &told).err().map(|e| format!("cut at {crash_at}, {adversary:?}: {e}")));
            if lie.is_some() && !found.is_empty() {
                return (crashes, found);
            }
        }
        if finished {
            break;
        }
    }
    (crashes, found)
}

#[test]
fn p13_what_was_acknowledged_survives_the_loss_of_everything_unsynced() {
    let (crashes, found) = violations(None);
    assert!(found.is_empty(), "{} of {crashes}:\n{}", found.len(), found.join("\n"));
    assert!(crashes > 1000, "only {crashes} crashes: the story is too short to show anything");
}

/// What is erased is overwritten before it is cut off or removed: freed blocks keep what was in them.
#[test]
fn p20_secrets_are_overwritten_before_they_go() {
    let secret = b"a secret of some length";
    for destroy in [false, true] {
        let mut overwritten = false;
        // The power goes at each operation in turn; whatever is on the disk is the secret or nothing of it.
        for crash_at in 1..8 {
            let disk = LossyDisk::default();
            files::make_folder_on(&disk, Path::new(FOLDER)).unwrap();
            let vault = Place::on(Arc::new(disk.clone()), Path::new(FOLDER).join("ledger.jsonl")).vault();
            let name = SecretName::NoiseKey;
            vault.create(name, secret).unwrap();
            assert_eq!(disk.platters(), [secret]);
            disk.killed(Some(crash_at));
            let _ = if destroy { vault.destroy(name) } else { vault.wipe_from(name, 0) };
            let seen = disk.platters().remove(0);
            overwritten |= seen == [b'\n'; 23];
            assert!(seen.len() == 23 || overwritten, "cut off with {seen:?} on the disk");
        }
        assert!(overwritten);
    }
}

#[test]
fn p13_every_sync_is_needed() {
    let syncs = [
        ".jsonl",
        ".head.new",
        ".pending",
        ".participations",
        ".signing-key",
        ".noise-key",
        ".step-keys",
        ".noise-link.new",
        ".cohort-seed",
        ".attempt.new",
        "/secret",
        "/run",
        "/runs",
        "/",
    ];
    for lie in syncs {
        let (crashes, found) = violations(Some(lie));
        assert!(!found.is_empty(), "{crashes} crashes and no loss without syncing {lie}: why is it synced?");
    }
}
