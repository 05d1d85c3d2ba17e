//! A coordinator store in memory, for tests, and as the reference for other stores.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use device::{guard::TaskDigest, protocol::message::DeviceKey};

use super::{AttemptAt, EnrolledInHour, OpenAttempt, Place, Standing, Store, StoreError, Write};

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    realm: [u8; 32],
    kept: Mutex<Kept>,
}

/// The stored state.
#[derive(Debug, Clone, Default)]
struct Kept {
    devices: BTreeSet<DeviceKey>,
    standings: BTreeMap<(TaskDigest, DeviceKey), Standing>,
    /// The last round of each task that devices were given.
    begun: BTreeMap<TaskDigest, u64>,
    open: BTreeMap<TaskDigest, Open>,
    blobs: BTreeMap<[u8; 32], Vec<u8>>,
    /// The model that devices of each task are given.
    models: BTreeMap<TaskDigest, [u8; 32]>,
    /// The hour in which devices enrolled last, how many did in all, and from where.
    enrolments: (u64, u64, BTreeMap<Place, u64>),
}

#[derive(Debug, Clone)]
struct Open {
    at: AttemptAt,
    assigned: BTreeSet<DeviceKey>,
    merged: BTreeSet<DeviceKey>,
    sealed: Option<Vec<u8>>,
}

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new(realm: [u8; 32]) -> Self {
        Self { realm, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn realm(&self) -> Result<[u8; 32], StoreError> {
        Ok(self.realm)
    }

    fn is_enrolled(&self, device: &DeviceKey) -> Result<bool, StoreError> {
        Ok(self.kept().devices.contains(device))
    }

    fn enrolled(&self) -> Result<u64, StoreError> {
        Ok(self.kept().devices.len() as u64)
    }

    fn enrolled_in(&self, hour: u64) -> Result<EnrolledInHour, StoreError> {
        let kept = self.kept();
        let (last, all, by_place) = &kept.enrolments;
        if *last != hour {
            return Ok(EnrolledInHour::default());
        }
        Ok(EnrolledInHour { all: *all, by_place: by_place.iter().map(|(place, count)| (*place, *count)).collect() })
    }

    fn asked(&self, task: &TaskDigest) -> Result<u64, StoreError> {
        let kept = self.kept();
        let asked =
            |((of, _), standing): &(&(TaskDigest, DeviceKey), &Standing)| of == task && standing.joined.is_some();
        Ok(kept.standings.iter().filter(asked).count() as u64)
    }

    fn standing(&self, task: &TaskDigest, device: &DeviceKey) -> Result<Standing, StoreError> {
        Ok(self.kept().standings.get(&(*task, *device)).copied().unwrap_or_default())
    }

    fn spoiled(&self, task: &TaskDigest, least: u64) -> Result<Vec<(DeviceKey, u64)>, StoreError> {
        let kept = self.kept();
        let of_task = kept.standings.iter().filter(|((of, _), standing)| of == task && standing.spoiled >= least);
        Ok(of_task.map(|((_, device), standing)| (*device, standing.spoiled)).collect())
    }

    fn open_attempt(&self, task: &TaskDigest) -> Result<Option<OpenAttempt>, StoreError> {
        Ok(self.kept().open.get(task).map(|open| OpenAttempt {
            at: open.at,
            assigned: open.assigned.iter().copied().collect(),
            merged: open.merged.iter().copied().collect(),
            sealed: open.sealed.clone(),
        }))
    }

    fn blob(&self, digest: &[u8; 32]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.kept().blobs.get(digest).cloned())
    }

    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let mut kept = self.kept();
        let mut after = kept.clone();
        batch.iter().try_for_each(|write| after.apply(write))?;
        *kept = after;
        Ok(())
    }
}

fn refuse<T>(why: &str) -> Result<T, StoreError> {
    Err(StoreError::Refused(why.to_owned()))
}

impl Kept {
    fn apply(&mut self, write: &Write) -> Result<(), StoreError> {
        match write {
            Write::Enrol { device, day: _ } => {
                if self.devices.insert(*device) {
                    for (task, round) in &self.begun {
                        self.standings.entry((*task, *device)).or_default().since = Some(*round);
                    }
                }
                Ok(())
            }
            Write::CountEnrolment { hour, place } => {
                if self.enrolments.0 != *hour {
                    self.enrolments = (*hour, 0, BTreeMap::new());
                }
                self.enrolments.1 += 1;
                if let Some(place) = place {
                    *self.enrolments.2.entry(*place).or_default() += 1;
                }
                Ok(())
            }
            Write::Open(at) => self.begin(at),
            Write::Assign { at, devices } => {
                self.opened(at)?;
                devices.iter().try_for_each(|device| self.assign(at, device))
            }
            Write::Merge { at, sealed, reports } => self.merge(at, sealed, reports),
            Write::Settle { at, absent } => self.settle(at, absent),
            Write::KeepBlob { digest, packed } => {
                self.blobs.insert(*digest, packed.clone());
                Ok(())
            }
            Write::KeepModel { task, digest, packed } => {
                self.blobs.insert(*digest, packed.clone());
                let before = self.models.insert(*task, *digest);
                self.drop_model(before);
                Ok(())
            }
            Write::Spoiled(at) => {
                let assigned = self.opened(at)?.assigned.clone();
                for device in assigned {
                    self.standings.entry((at.task, device)).or_default().spoiled += 1;
                }
                Ok(())
            }
            Write::Forget { task } => {
                self.standings.retain(|(of, _), _| of != task);
                self.begun.remove(task);
                self.open.remove(task);
                self.blobs.remove(&task.0);
                let before = self.models.remove(task);
                self.drop_model(before);
                Ok(())
            }
        }
    }

    /// Nobody asks for a model any more, unless another task gives it.
    fn drop_model(&mut self, before: Option<[u8; 32]>) {
        if let Some(digest) = before.filter(|before| !self.models.values().any(|model| model == before)) {
            self.blobs.remove(&digest);
        }
    }

    fn begin(&mut self, at: &AttemptAt) -> Result<(), StoreError> {
        match self.open.get(&at.task) {
            Some(open) if open.at == *at => Ok(()),
            Some(_) => refuse("another attempt of the task is open"),
            None => {
                let (assigned, merged) = (BTreeSet::new(), BTreeSet::new());
                self.open.insert(at.task, Open { at: *at, assigned, merged, sealed: None });
                Ok(())
            }
        }
    }

    fn opened(&mut self, at: &AttemptAt) -> Result<&mut Open, StoreError> {
        match self.open.get_mut(&at.task) {
            Some(open) if open.at == *at => Ok(open),
            _ => refuse("the attempt is not open"),
        }
    }

    fn assign(&mut self, at: &AttemptAt, device: &DeviceKey) -> Result<(), StoreError> {
        if !self.devices.contains(device) {
            return refuse("a device that is not enrolled was given a task");
        }
        let standing = self.standings.entry((at.task, *device)).or_default();
        if standing.joined.is_some_and(|(round, _)| round >= at.round) {
            return refuse("a device was given a round that it had joined before");
        }
        standing.joined = Some((at.round, at.attempt));
        standing.participations += 1;
        self.begun.insert(at.task, at.round);
        self.opened(at)?.assigned.insert(*device);
        Ok(())
    }

    fn merge(&mut self, at: &AttemptAt, sealed: &[u8], reports: &[DeviceKey]) -> Result<(), StoreError> {
        let open = self.opened(at)?;
        for device in reports {
            if !open.assigned.contains(device) {
                return refuse("a report of somebody who was not given the task");
            }
            if !open.merged.insert(*device) {
                return refuse("a report that is in the sum already");
            }
        }
        open.sealed = Some(sealed.to_vec());
        Ok(())
    }

    fn settle(&mut self, at: &AttemptAt, absent: &[DeviceKey]) -> Result<(), StoreError> {
        let open = self.opened(at)?;
        if absent.iter().any(|device| !open.assigned.contains(device) || open.merged.contains(device)) {
            return refuse("somebody who was not given the task, or whose report is in the sum, is said to be absent");
        }
        self.open.remove(&at.task);
        for device in absent.iter().collect::<BTreeSet<_>>() {
            let standing = self.standings.entry((at.task, *device)).or_default();
            standing.participations = standing.participations.saturating_sub(1);
        }
        Ok(())
    }
}
