//! Evaluations by devices in a schedule, and whether what came of them is what should have.
//!
//! A report of an evaluation has a one in its first place: the sum is how many there are in it. Who that is says the record.

use std::{cell::RefCell, collections::BTreeMap};

use device::protocol::{message::Assignment, terms::StepTerms};
use keyhush_federated::{
    fleet::{Fleet, Stop},
    plan::{EVALUATION, Plan},
    round::{Loop, evaluation::Evaluated},
};
use ledger::{Body, Ledger, LedgerStore, PseudonymKey, SigningKey};
use privacy::{encoding::Encoding, stages::Published};

use super::{PSEUDONYMS, Violation, World, forgetful::ForgetfulLedger};

/// Places of an evaluation's reports.
pub(super) const COUNTED: usize = 4;

/// A step, of rounds or of evaluations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Of {
    pub(super) evaluation: bool,
    pub(super) step: u64,
}

impl Of {
    pub(super) fn assignment(assignment: &Assignment) -> Self {
        Self { evaluation: encoding_of(assignment).layout().len() == COUNTED, step: assignment.step }
    }
}

pub(super) fn encoding_of(assignment: &Assignment) -> Encoding {
    serde_json::from_slice::<StepTerms>(&assignment.terms).unwrap().encoding
}

/// One attempt at an evaluation. Says whether the server lives.
pub(super) fn attempted(
    rounds: &mut Loop<'_, ForgetfulLedger>,
    step: u64,
    fleet: &mut dyn Fleet,
    world: &RefCell<World>,
    applied: &mut Applied,
) -> Result<bool, Violation> {
    match rounds.evaluate(fleet, &Stop::new(), 0) {
        Ok(Evaluated::Done(_)) => applied.evaluation(rounds, step)?,
        Ok(Evaluated::Failed(_)) => world.borrow_mut().story.failed_evaluations += 1,
        Ok(Evaluated::OutOfBudget(_)) => return Err(Violation("out of budget".into())),
        Err(_) if world.borrow().fuse.is_blown() => return Ok(false),
        Err(error) => return Err(Violation(error.to_string())),
    }
    Ok(true)
}

/// What was used of what was released: rounds, and evaluations.
#[derive(Default)]
pub(super) struct Applied {
    pub(super) rounds: BTreeMap<u64, Vec<u8>>,
    pub(super) evaluations: BTreeMap<u64, Vec<u8>>,
}

impl Applied {
    /// An evaluation is used: it is what the ledger has, for ever.
    pub(super) fn evaluation(&mut self, rounds: &Loop<'_, ForgetfulLedger>, step: u64) -> Result<(), Violation> {
        let Ok(Some(bytes)) = rounds.ledger().released(EVALUATION, step) else { return Ok(()) };
        match self.evaluations.insert(step, bytes.clone()) {
            Some(before) if before != bytes => Err(Violation(format!("evaluation {step} was released again"))),
            _ => Ok(()),
        }
    }

    /// Each sum is of as many as it should be, they are on record, and nobody measured more often than it may.
    pub(super) fn check(
        &self,
        world: &World,
        plan: &Plan,
        ledger: &ForgetfulLedger,
        signing: SigningKey,
    ) -> Result<(), Violation> {
        let Some(evaluations) = &plan.device_evaluations else { return Ok(()) };
        let wrong = |why: String| Err(Violation(why));
        let took_part = on_record(world, ledger)?;
        let ledger = Ledger::open(ledger.clone(), Some(signing), &[]).map_err(|e| Violation(e.to_string()))?;
        let encoding = evaluations.phase.first_coding().unwrap().encoding;
        for step in self.evaluations.keys() {
            if !took_part.contains_key(step) {
                return wrong(format!("evaluation {step} was used and is not in the ledger"));
            }
        }
        let mut often: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (step, devices) in &took_part {
            let bytes = ledger.released(EVALUATION, *step).unwrap().unwrap();
            let sum = Published::parse(&bytes).unwrap().update(&encoding).unwrap()[0];
            let reports = (f64::from(sum) / encoding.clip().get()).round() as usize;
            if reports != devices.len() {
                return wrong(format!("evaluation {step}: {reports} reports, and {} on record", devices.len()));
            }
            let (goal, count) = (evaluations.phase.cohort, devices.len() as u64);
            let allowed = match &evaluations.phase.secure {
                None => goal..=goal,
                Some(secure) => secure.least_survivors.into()..=secure.most_clients.into(),
            };
            if !allowed.contains(&count) {
                return wrong(format!("evaluation {step} is of {count} reports"));
            }
            devices.iter().for_each(|device| often.entry(*device).or_default().push(*step));
        }
        if let Some((device, steps)) = often.iter().find(|(_, steps)| steps.len() as u64 > MOST) {
            return wrong(format!("device {device} measured in {steps:?}"));
        }
        for (number, device) in world.devices.iter().enumerate() {
            for (Of { step, .. }, attempt) in device.thanked.iter().filter(|(of, _)| of.evaluation) {
                let failed = ledger.failures(EVALUATION, *step).iter().any(|failure| failure.attempt == *attempt);
                if !failed && !took_part.get(step).is_some_and(|devices| devices.contains(&number)) {
                    return wrong(format!("device {number} was thanked for evaluation {step} and is not in it"));
                }
            }
        }
        Ok(())
    }
}

/// MaxP of evaluations.
pub(super) const MOST: u64 = 1;

/// Who is on record for each evaluation that was released.
fn on_record(world: &World, ledger: &ForgetfulLedger) -> Result<BTreeMap<u64, Vec<usize>>, Violation> {
    let pseudonyms = PseudonymKey::from_bytes(&PSEUDONYMS);
    let records: Vec<_> = ledger.participations().unwrap().unwrap().map(Result::unwrap).collect();
    let mut took_part = BTreeMap::new();
    for entry in ledger.read(0).unwrap() {
        let entry = entry.unwrap();
        let Body::Release(release) = entry.body() else { continue };
        if release.stream != EVALUATION {
            continue;
        }
        let record = records.iter().find(|record| Some(record.digest()) == release.participations.digest);
        let known = record.map(|record| pseudonyms.recognise(record, world.devices.iter().map(|d| &d.key.0[..])));
        let Some(Ok(Some(devices))) = known else {
            return Err(Violation(format!("nobody is on record for evaluation {}", release.step)));
        };
        took_part.insert(release.step, devices);
    }
    Ok(took_part)
}
