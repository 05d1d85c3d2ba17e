//! Whether what came of a schedule is what should have.

use std::collections::BTreeMap;

use keyhush_federated::{plan::Plan, round::Loop};
use ledger::{FailureReason, Ledger, LedgerStore, ParticipationRecord, PseudonymKey, SigningKey};
use privacy::stages::Published;

use super::{
    Of, PSEUDONYMS, Setting, Sums, Violation, World,
    forgetful::{ForgetfulLedger, ForgetfulStore},
};

/// What was applied once is what the ledger has, for ever.
pub(super) fn check_same(
    rounds: &Loop<'_, ForgetfulLedger>,
    plan: &Plan,
    round: u64,
    applied: &mut BTreeMap<u64, Vec<u8>>,
) -> Result<(), Violation> {
    let phase = plan.phase(round);
    let Ok(Some(bytes)) = rounds.ledger().released(&phase.stream, round - phase.first) else { return Ok(()) };
    match applied.insert(round, bytes.clone()) {
        Some(before) if before != bytes => Err(Violation(format!("round {round} was released again with another sum"))),
        _ => Ok(()),
    }
}

/// Whether what came of it is what should have.
pub(super) fn check(
    world: &World,
    setting: &Setting,
    ledger: &ForgetfulLedger,
    signing: SigningKey,
    applied: &BTreeMap<u64, Vec<u8>>,
) -> Result<(), Violation> {
    let plan = &setting.plan;
    let wrong = |why: String| Err(Violation(why));
    let records: Vec<_> = ledger.participations().unwrap().unwrap().map(Result::unwrap).collect();
    let ledger = Ledger::open(ledger.clone(), Some(signing), &[]).map_err(|e| Violation(e.to_string()))?;
    let mut took_part: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (round, bytes) in applied {
        let phase = plan.phase(*round);
        if ledger.released_in(&phase.stream, round - phase.first).is_none() {
            return wrong(format!("round {round} was used and is not in the ledger"));
        }
        let encoding = world.encoding.as_ref().unwrap();
        let update = Published::parse(bytes).unwrap().update(encoding).unwrap();
        let one = encoding.clip().get();
        let mut survivors = Vec::new();
        for (place, value) in update.iter().enumerate() {
            let times = f64::from(*value) / one;
            match times.round() as i64 {
                0 => {}
                1 if place < world.devices.len() => {
                    survivors.push(place);
                    took_part.entry(place).or_default().push(*round);
                }
                times => return wrong(format!("round {round}: device {place} is in the sum {times} times")),
            }
        }
        check_survivors(world, plan, *round, &survivors)?;
        check_on_record(world, plan, &records, *round, &survivors)?;
    }
    if applied.len() as u64 != plan.rounds && !world.story.gave_up {
        return wrong(format!("{} rounds of {}", applied.len(), plan.rounds));
    }
    for (device, rounds) in &took_part {
        let close = rounds.windows(2).any(|two| two[1] - two[0] <= world.faults.min_separation);
        if close || rounds.len() as u64 > world.faults.max_participations {
            return wrong(format!("device {device} took part in {rounds:?}"));
        }
    }
    for (number, device) in world.devices.iter().enumerate() {
        for (Of { step, .. }, attempt) in device.thanked.iter().filter(|(of, _)| !of.evaluation) {
            let failed = ledger.failures(&plan.phase(*step).stream, *step).iter().any(|f| f.attempt == *attempt);
            if !failed && !took_part.get(&number).is_some_and(|rounds| rounds.contains(step)) {
                return wrong(format!("device {number} was thanked for round {step} and is not in its sum"));
            }
        }
    }
    check_interrupted(world, plan, &ledger)
}

/// A plain sum is of the goal's reports; a secure one of those who were left, of whom there are enough.
fn check_survivors(world: &World, plan: &Plan, round: u64, survivors: &[usize]) -> Result<(), Violation> {
    let (count, goal) = (survivors.len() as u64, world.faults.goal);
    let allowed = match &plan.phase(round).secure {
        None => goal..=goal,
        Some(secure) => secure.least_survivors.into()..=secure.most_clients.into(),
    };
    if allowed.contains(&count) {
        return Ok(());
    }
    Err(Violation(format!("round {round}: the sum is of {count} reports, and {allowed:?} are allowed")))
}

/// Who is in a sum is who took part, by the record.
fn check_on_record(
    world: &World,
    plan: &Plan,
    records: &[ParticipationRecord],
    round: u64,
    survivors: &[usize],
) -> Result<(), Violation> {
    let pseudonyms = PseudonymKey::from_bytes(&PSEUDONYMS);
    let phase = plan.phase(round);
    let keys = || survivors.iter().map(|device| &world.devices[*device].key.0[..]);
    // Which attempt was released is not looked at: there is one for which it fits.
    let fits = |attempt: u32| {
        records.contains(&pseudonyms.record(&phase.stream, round - phase.first, attempt, keys()).unwrap())
    };
    if (0..100).any(fits) {
        return Ok(());
    }
    Err(Violation(format!("round {round}: who is in the sum is not who is on record")))
}

/// A secure attempt in whose midst the server ended came to nothing, and that is on record.
fn check_interrupted(world: &World, plan: &Plan, ledger: &Ledger<ForgetfulLedger>) -> Result<(), Violation> {
    for at in &world.interrupted {
        let failures = ledger.failures(&plan.phase(at.round).stream, at.round);
        let is_on_record = failures.iter().any(|f| f.attempt == at.attempt && f.reason == FailureReason::Interrupted);
        if !is_on_record {
            return Err(Violation(format!(
                "attempt {} at round {} was interrupted, and that is not on record",
                at.attempt, at.round
            )));
        }
    }
    Ok(())
}

/// Whoever was in an attempt that somebody spoiled has that on its account once, whenever the server ended.
pub(super) fn check_spoiled(
    world: &World,
    ledger: &ForgetfulLedger,
    signing: SigningKey,
    store: &ForgetfulStore,
) -> Result<(), Violation> {
    // A run that gives up is not gone on with, and its last attempt not settled.
    if world.faults.sums != Sums::Secure || world.story.gave_up {
        return Ok(());
    }
    let records: Vec<_> = ledger.participations().unwrap().unwrap().map(Result::unwrap).collect();
    let ledger = Ledger::open(ledger.clone(), Some(signing), &[]).map_err(|e| Violation(e.to_string()))?;
    let pseudonyms = PseudonymKey::from_bytes(&PSEUDONYMS);
    let mut expected = 0;
    for record in &records {
        let line: serde_json::Value = serde_json::from_str(record.line()).unwrap();
        let (stream, step) = (line["stream"].as_str().unwrap(), line["step"].as_u64().unwrap());
        let spoiled = |f: &&ledger::Failure| {
            Some(u64::from(f.attempt)) == line["attempt"].as_u64() && !f.reason.is_of_the_server()
        };
        if ledger.failures(stream, step).iter().any(|failure| spoiled(&failure)) {
            let keys = world.devices.iter().map(|device| &device.key.0[..]);
            expected += pseudonyms.recognise(record, keys).unwrap().unwrap().len() as u64;
        }
    }
    match store.spoiled() {
        counted if counted == expected => Ok(()),
        counted => {
            Err(Violation(format!("{expected} times somebody was in a spoiled attempt, and {counted} are counted")))
        }
    }
}
