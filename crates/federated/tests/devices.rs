//! Fleets that are no simulation: who they say took part is in the ledger, and an attempt for which devices were asked is never begun
//! a second time.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use crate::memory_home::MemoryHome;
use crate::workshop::{ARRIVAL, means, plan};
use keyhush_federated::{
    engine::EngineError,
    fleet::{Attempted, Fleet, FleetError, Observed, Outcome, RoundTask, Stop},
    home::Records,
    plan::Plan,
    run::{Opened, Run},
};
use ledger::{FailureReason, Ledger, LedgerStore, ParticipationRecord, PseudonymKey};
use privacy::stages::Sum;

/// What becomes of an attempt.
#[derive(Clone, Copy)]
enum Fate {
    Gives,
    Fails(FailureReason),
    /// The program ends in its midst.
    Dies,
}

/// Three devices that send what they have in the clear, other ones in every attempt.
struct Devices {
    key: PseudonymKey,
    /// Whether inputs leave them.
    send: Option<bool>,
    fate: Fate,
    /// Which attempts were asked for: step, attempt, whether again.
    asked: Vec<(u64, u32, bool)>,
}

impl Devices {
    fn of(home: &MemoryHome) -> Self {
        let key = home.secrets().pseudonym_key().unwrap().unwrap();
        Self { key, send: Some(true), fate: Fate::Gives, asked: Vec::new() }
    }

    fn took_part(&self, stream: &str, step: u64, attempt: u32) -> ParticipationRecord {
        let devices: Vec<String> = (0..3).map(|number| format!("device {number} of {step}, {attempt}")).collect();
        self.key.record(stream, step, attempt, devices.iter().map(String::as_bytes)).unwrap()
    }
}

impl Fleet for Devices {
    fn asks_devices(&self, task: &RoundTask<'_>) -> bool {
        self.send.unwrap_or(task.phase.secure.is_some())
    }

    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError> {
        let at = task.at;
        self.asked.push((at.step, at.attempt, at.again));
        let outcome = match self.fate {
            Fate::Gives => Outcome::Sum(Sum::zero(task.task.encoding)),
            Fate::Fails(reason) => Outcome::Failed(reason),
            Fate::Dies => return Err(EngineError::Died.into()),
        };
        let participants = Some(self.took_part(at.stream, at.step, at.attempt));
        Ok(Attempted { outcome, observed: Observed { participants, ..Observed::default() } })
    }
}

fn begun<'a>(home: &MemoryHome, plan: &'a Plan, opened: &'a Opened) -> Run<'a, MemoryHome> {
    Run::begin(home.clone(), plan, opened, means()).unwrap()
}

#[test]
fn p17_who_took_part_is_in_the_ledger_also_of_attempts_that_failed() {
    let (plan, opened) = plan(&ARRIVAL);
    let home = MemoryHome::default();
    let mut run = begun(&home, &plan, &opened);
    let mut fleet = Devices::of(&home);
    let fates = [Fate::Fails(FailureReason::BelowGoal), Fate::Gives, Fate::Gives];
    let stop = Stop::new();
    for fate in fates {
        fleet.fate = fate;
        run.step(&mut fleet, &stop).unwrap();
    }
    assert_eq!(fleet.asked, [(0, 0, false), (0, 1, false), (1, 0, false)]);
    let stream = plan.phase(0).stream.as_str();
    let want: Vec<String> = [(0, 0), (0, 1), (1, 0)]
        .map(|(step, attempt)| fleet.took_part(stream, step, attempt).digest().to_string())
        .to_vec();
    drop(run);
    let store = home.read_store().unwrap();
    let kept = store.participations().unwrap().unwrap().map(|record| record.unwrap().digest().to_string());
    assert_eq!(kept.collect::<Vec<_>>(), want);
    // The entries name these records, and what was observed is computed from those that were released.
    let verified = Ledger::open(home.read_store().unwrap(), None, &[]).unwrap().verify(&[], None).unwrap();
    assert_eq!(verified.observed[stream].released.max_participations, 1);
}

/// An attempt with devices that send in the clear was not noted: after a restart others were asked for the same step.
#[test]
fn p24_an_attempt_for_which_devices_were_asked_is_not_begun_again() {
    let (plan, opened) = plan(&ARRIVAL);
    for (send, again) in [(Some(true), true), (Some(false), false), (None, false)] {
        let home = MemoryHome::default();
        let mut run = begun(&home, &plan, &opened);
        let mut fleet = Devices { send, fate: Fate::Dies, ..Devices::of(&home) };
        run.step(&mut fleet, &Stop::new()).map(drop).unwrap_err();
        drop(run);
        let mut run = Run::resume(home.clone(), &plan, &opened, means()).unwrap();
        fleet.fate = Fate::Fails(FailureReason::Interrupted);
        let failed = run.step(&mut fleet, &Stop::new()).unwrap().failed.unwrap();
        assert_eq!((failed.attempt, failed.reason), (0, FailureReason::Interrupted));
        fleet.fate = Fate::Gives;
        assert!(run.step(&mut fleet, &Stop::new()).unwrap().done.is_some());
        assert_eq!(fleet.asked, [(0, 0, false), (0, 0, again), (0, 1, false)], "{send:?}");
    }
}
