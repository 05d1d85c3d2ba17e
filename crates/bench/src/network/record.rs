//! Reads what the server recorded: its ledger, and the side table of participations.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use ::server::sqlite::{Database, TaskHome};
use federated::{
    home::{Home, Log, Records},
    metrics::Timing,
    plan::EVALUATION,
    replay::Cohorts,
};
use ledger::{Body, LedgerStore, PseudonymKey};

use super::TASK;
use crate::{BenchError, WorkError};

/// What is on record.
pub(super) struct Record {
    /// Who is in the sum of each released step, and of each evaluation, by the numbers of the devices.
    pub(super) cohorts: Cohorts,
    /// Attempts that failed.
    pub(super) failed: u64,
    /// Who was in one of them, device and step: of rounds, and of evaluations.
    pub(super) in_failed: [BTreeSet<(u64, u64)>; 2],
    /// What the server says of the time of its rounds.
    pub(super) timings: Vec<Timing>,
}

impl Record {
    /// Reads it. Pseudonyms are recognised with their key, which was read before it was destroyed.
    pub(super) fn read(folder: &Path, key: &PseudonymKey, devices: &[[u8; 32]]) -> Result<Self, BenchError> {
        read(folder, key, devices).map_err(BenchError::Work)
    }
}

fn read(folder: &Path, key: &PseudonymKey, devices: &[[u8; 32]]) -> Result<Record, WorkError> {
    let database = Database::read(folder.join("data").join("keyhush.sqlite"))?;
    let home = TaskHome::read(Arc::new(database), TASK)?;
    let store = home.read_store()?;
    let mut participants = BTreeMap::new();
    for record in store.participations()?.ok_or("the ledger has no record of who took part")? {
        let record = record?;
        participants.insert(record.digest(), record);
    }
    let lines = home.lines(Log::Timing)?;
    let timings = lines.iter().map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?;
    let mut record = Record { cohorts: Cohorts::default(), failed: 0, in_failed: Default::default(), timings };
    let mut evaluations = 0;
    for entry in store.read(0)? {
        match entry?.body() {
            Body::Release(release) => {
                let is_evaluation = release.stream == EVALUATION;
                let rounds = record.cohorts.rounds.len() as u64;
                let expected = if is_evaluation { evaluations } else { rounds };
                if release.step != expected {
                    return Err(format!("step {} stands in the place of step {expected}", release.step).into());
                }
                let line = release.participations.digest.and_then(|digest| participants.get(&digest));
                let line = line.ok_or_else(|| format!("nobody is on record for step {}", release.step))?;
                let cohort = key.recognise(line, devices.iter().map(|key| &key[..]))?;
                let cohort = cohort.ok_or_else(|| format!("a stranger is on record for step {}", release.step))?;
                let cohort = cohort.into_iter().map(|number| number as u64).collect();
                if is_evaluation {
                    record.cohorts.evaluations.insert(rounds, cohort);
                    evaluations += 1;
                } else {
                    record.cohorts.rounds.push(cohort);
                }
            }
            Body::FailedAttempt(failed) => {
                record.failed += 1;
                let line = failed.participations.digest.and_then(|digest| participants.get(&digest));
                let devices = line.map(|line| key.recognise(line, devices.iter().map(|key| &key[..]))).transpose()?;
                let of = usize::from(failed.stream == EVALUATION);
                let devices = devices.flatten().unwrap_or_default().into_iter();
                record.in_failed[of].extend(devices.map(|number| (number as u64, failed.step)));
            }
            _ => {}
        }
    }
    Ok(record)
}
