//! The coordinator's durable state, in tables.
//!
//! Each write says what it expects, and the statement that does it counts what it changed: what is not as expected is refused,
//! and the transaction with it.

use device::{guard::TaskDigest, protocol::message::DeviceKey};
use federated::protocol::store::{AttemptAt, EnrolledInHour, OpenAttempt, Place, Standing, Store, StoreError, Write};
use rusqlite::{Connection, OptionalExtension};

use super::{Database, DatabaseError, assignments, schema};

/// What became of a device in an attempt.
const MERGED: i64 = 1;
const ABSENT: i64 = 2;

impl Store for Database {
    fn realm(&self) -> Result<[u8; 32], StoreError> {
        Ok(self.look(|t| Ok(t.prepare_cached("SELECT realm FROM server")?.query_row([], |row| row.get(0))?))?)
    }

    fn is_enrolled(&self, device: &DeviceKey) -> Result<bool, StoreError> {
        Ok(self.look(|t| Ok(number_of(t, device)?.is_some()))?)
    }

    fn enrolled(&self) -> Result<u64, StoreError> {
        Ok(self.look(|t| Ok(t.prepare_cached("SELECT enrolled FROM server")?.query_row([], |row| row.get(0))?))?)
    }

    fn enrolled_in(&self, hour: u64) -> Result<EnrolledInHour, StoreError> {
        Ok(self.look(|t| {
            let mut query = t.prepare_cached("SELECT place, count FROM enrolments WHERE hour = ?1 ORDER BY place")?;
            let mut rows = query.query([hour])?;
            let mut enrolled = EnrolledInHour::default();
            while let Some(row) = rows.next()? {
                let count = row.get(1)?;
                match row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?.try_into() {
                    Ok(place) => enrolled.by_place.push((Place(place), count)),
                    Err(_) => enrolled.all = count,
                }
            }
            Ok(enrolled)
        })?)
    }

    fn asked(&self, task: &TaskDigest) -> Result<u64, StoreError> {
        Ok(self.look(|t| {
            let mut query = t.prepare_cached(
                "SELECT count(*) FROM standings JOIN tasks ON tasks.id = task WHERE digest = ?1 AND round IS NOT NULL",
            )?;
            Ok(query.query_row([task.0], |row| row.get(0))?)
        })?)
    }

    fn standing(&self, task: &TaskDigest, device: &DeviceKey) -> Result<Standing, StoreError> {
        let standing = self.look(|t| {
            let mut query = t.prepare_cached(
                "SELECT since, round, attempt, participations, spoiled FROM standings
                 JOIN tasks ON tasks.id = task JOIN devices ON devices.id = device
                 WHERE tasks.digest = ?1 AND devices.key = ?2",
            )?;
            let found = query.query_row((task.0, device.0), |row| {
                let (round, attempt): (Option<u64>, Option<u32>) = (row.get(1)?, row.get(2)?);
                let joined = round.zip(attempt);
                Ok(Standing { since: row.get(0)?, joined, participations: row.get(3)?, spoiled: row.get(4)? })
            });
            Ok(found.optional()?)
        })?;
        Ok(standing.unwrap_or_default())
    }

    fn spoiled(&self, task: &TaskDigest, least: u64) -> Result<Vec<(DeviceKey, u64)>, StoreError> {
        Ok(self.look(|t| {
            let mut query = t.prepare_cached(
                "SELECT key, spoiled FROM standings JOIN tasks ON tasks.id = task JOIN devices ON devices.id = device
                 WHERE digest = ?1 AND spoiled >= ?2",
            )?;
            let found = query.query_map((task.0, least), |row| Ok((DeviceKey(row.get(0)?), row.get(1)?)))?;
            Ok(found.collect::<Result<_, _>>()?)
        })?)
    }

    fn open_attempt(&self, task: &TaskDigest) -> Result<Option<OpenAttempt>, StoreError> {
        Ok(self.look_at_once(|t| {
            let mut query = t.prepare_cached(
                "SELECT id, round, attempt, sealed FROM tasks JOIN attempts ON attempts.task = id
                 LEFT JOIN sums ON sums.task = id WHERE digest = ?1",
            )?;
            let open = query.query_row([task.0], |row| {
                let at = AttemptAt { task: *task, round: row.get(1)?, attempt: row.get(2)? };
                let (assigned, merged) = (Vec::new(), Vec::new());
                Ok((row.get::<_, i64>(0)?, OpenAttempt { at, assigned, merged, sealed: row.get(3)? }))
            });
            let Some((task, mut open)) = open.optional()? else { return Ok(None) };
            let mut query = t.prepare_cached(
                "SELECT key, state FROM assigned JOIN devices ON devices.id = device WHERE task = ?1 ORDER BY key",
            )?;
            let mut devices = query.query([task])?;
            while let Some(row) = devices.next()? {
                let (device, state) = (DeviceKey(row.get(0)?), row.get::<_, i64>(1)?);
                open.assigned.push(device);
                if state == MERGED {
                    open.merged.push(device);
                }
            }
            Ok(Some(open))
        })?)
    }

    fn blob(&self, digest: &[u8; 32]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.look(|t| {
            let mut query = t.prepare_cached("SELECT packed FROM blobs WHERE digest = ?1")?;
            Ok(query.query_row([digest], |row| row.get(0)).optional()?)
        })?)
    }

    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let assigns = |write: &Write| matches!(write, Write::Assign { devices, .. } if !devices.is_empty());
        let counted = self.change(|t| {
            batch.iter().try_for_each(|write| apply(t, write))?;
            batch.iter().any(assigns).then(|| assignments::count(t)).transpose()
        })?;
        counted.map_or(Ok(()), |count| Ok(self.witness_assignments(count)?))
    }
}

fn refuse<T>(why: &str) -> Result<T, DatabaseError> {
    Err(DatabaseError::Refused(why.to_owned()))
}

fn apply(t: &Connection, write: &Write) -> Result<(), DatabaseError> {
    match write {
        Write::Enrol { device, day } => enrol(t, device, *day),
        Write::CountEnrolment { hour, place } => count_enrolment(t, *hour, *place),
        Write::Open(at) => open(t, at),
        Write::Assign { at, devices } => assign(t, at, devices),
        Write::Merge { at, sealed, reports } => merge(t, at, sealed, reports),
        Write::Settle { at, absent } => settle(t, at, absent),
        Write::KeepBlob { digest, packed } => keep_blob(t, digest, packed),
        Write::KeepModel { task, digest, packed } => keep_model(t, task, digest, packed),
        Write::Spoiled(at) => {
            let task = expect_open(t, at)?;
            let mut count = t.prepare_cached(
                "UPDATE standings SET spoiled = spoiled + 1
                 WHERE task = ?1 AND device IN (SELECT device FROM assigned WHERE task = ?1)",
            )?;
            count.execute([task])?;
            Ok(())
        }
        Write::Forget { task } => forget(t, task),
    }
}

fn keep_blob(t: &Connection, digest: &[u8; 32], packed: &[u8]) -> Result<(), DatabaseError> {
    let mut keep = t.prepare_cached(
        "INSERT INTO blobs (digest, packed) VALUES (?1, ?2) ON CONFLICT (digest) DO UPDATE SET packed = excluded.packed",
    )?;
    keep.execute((digest, packed))?;
    Ok(())
}

fn keep_model(t: &Connection, task: &TaskDigest, digest: &[u8; 32], packed: &[u8]) -> Result<(), DatabaseError> {
    keep_blob(t, digest, packed)?;
    let task = number_of_task(t, task)?;
    let before = model_of(t, task)?;
    t.prepare_cached("UPDATE tasks SET model = ?2 WHERE id = ?1")?.execute((task, digest))?;
    drop_model(t, before)
}

fn model_of(t: &Connection, task: i64) -> Result<Option<[u8; 32]>, DatabaseError> {
    Ok(t.prepare_cached("SELECT model FROM tasks WHERE id = ?1")?.query_row([task], |row| row.get(0))?)
}

/// Nobody asks for a model any more, unless another task gives it.
fn drop_model(t: &Connection, before: Option<[u8; 32]>) -> Result<(), DatabaseError> {
    let Some(before) = before else { return Ok(()) };
    let mut remove =
        t.prepare_cached("DELETE FROM blobs WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM tasks WHERE model = ?1)")?;
    schema::delete_public(t, || Ok(remove.execute([before])?))?;
    Ok(())
}

/// What is known of devices in a task goes, with the task. Attempts take with them who was given them, and the sum.
///
/// What is deleted is overwritten, but rows that were moved about when pages were split have left copies. So what is left of the table is
/// rewritten, and all of its old pages are removed.
fn forget(t: &Connection, task: &TaskDigest) -> Result<(), DatabaseError> {
    let known = t.query_row("SELECT id FROM tasks WHERE digest = ?1", [task.0], |row| row.get::<_, i64>(0));
    let Some(number) = known.optional()? else { return Ok(()) };
    let model = model_of(t, number)?;
    t.execute("DELETE FROM attempts WHERE task = ?1", [number])?;
    t.execute_batch("ALTER TABLE standings RENAME TO old_standings")?;
    t.execute_batch(schema::STANDINGS)?;
    t.execute(
        "INSERT INTO standings (task, device, since, round, attempt, participations, spoiled)
         SELECT task, device, since, round, attempt, participations, spoiled FROM old_standings WHERE task <> ?1",
        [number],
    )?;
    t.execute_batch("DROP TABLE old_standings")?;
    t.execute("DELETE FROM tasks WHERE id = ?1", [number])?;
    t.execute("DELETE FROM blobs WHERE digest = ?1", [task.0])?;
    drop_model(t, model)
}

/// The number of a device that is enrolled.
fn number_of(t: &Connection, device: &DeviceKey) -> Result<Option<i64>, DatabaseError> {
    let mut query = t.prepare_cached("SELECT id FROM devices WHERE key = ?1")?;
    Ok(query.query_row([device.0], |row| row.get(0)).optional()?)
}

/// The number of a task, from now on.
fn number_of_task(t: &Connection, task: &TaskDigest) -> Result<i64, DatabaseError> {
    let mut query = t.prepare_cached("SELECT id FROM tasks WHERE digest = ?1")?;
    match query.query_row([task.0], |row| row.get(0)).optional()? {
        Some(number) => Ok(number),
        None => {
            t.prepare_cached("INSERT INTO tasks (digest) VALUES (?1)")?.execute([task.0])?;
            Ok(t.last_insert_rowid())
        }
    }
}

fn enrol(t: &Connection, device: &DeviceKey, day: u64) -> Result<(), DatabaseError> {
    let mut insert = t.prepare_cached("INSERT INTO devices (key, day) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING")?;
    if insert.execute((device.0, day))? == 0 {
        return Ok(());
    }
    let number = t.last_insert_rowid();
    t.prepare_cached("UPDATE server SET enrolled = enrolled + 1")?.execute([])?;
    let mut wait = t.prepare_cached(
        "INSERT INTO standings (task, device, since) SELECT id, ?1, last_round FROM tasks WHERE last_round IS NOT NULL",
    )?;
    wait.execute([number])?;
    Ok(())
}

fn count_enrolment(t: &Connection, hour: u64, place: Option<Place>) -> Result<(), DatabaseError> {
    t.prepare_cached("DELETE FROM enrolments WHERE hour <> ?1")?.execute([hour])?;
    let mut count = t.prepare_cached(
        "INSERT INTO enrolments (hour, place, count) VALUES (?1, ?2, 1)
         ON CONFLICT (hour, place) DO UPDATE SET count = count + 1",
    )?;
    count.execute((hour, &[][..] as &[u8]))?;
    if let Some(Place(place)) = place {
        count.execute((hour, &place[..]))?;
    }
    Ok(())
}

fn open(t: &Connection, at: &AttemptAt) -> Result<(), DatabaseError> {
    let task = number_of_task(t, &at.task)?;
    let mut insert = t.prepare_cached(
        "INSERT INTO attempts (task, round, attempt) VALUES (?1, ?2, ?3) ON CONFLICT (task) DO NOTHING",
    )?;
    if insert.execute((task, at.round, at.attempt))? == 1 || opened(t, at)?.is_some() {
        return Ok(());
    }
    refuse("another attempt of the task is open")
}

/// The number of the task, where it is this attempt of it that is open.
fn opened(t: &Connection, at: &AttemptAt) -> Result<Option<i64>, DatabaseError> {
    let mut query = t.prepare_cached(
        "SELECT task FROM attempts JOIN tasks ON tasks.id = task WHERE digest = ?1 AND round = ?2 AND attempt = ?3",
    )?;
    Ok(query.query_row((at.task.0, at.round, at.attempt), |row| row.get(0)).optional()?)
}

fn expect_open(t: &Connection, at: &AttemptAt) -> Result<i64, DatabaseError> {
    opened(t, at)?.map_or_else(|| refuse("the attempt is not open"), Ok)
}

fn assign(t: &Connection, at: &AttemptAt, devices: &[DeviceKey]) -> Result<(), DatabaseError> {
    let task = expect_open(t, at)?;
    if !devices.is_empty() {
        t.prepare_cached("UPDATE tasks SET last_round = ?2 WHERE id = ?1")?.execute((task, at.round))?;
    }
    let mut join = t.prepare_cached(
        "INSERT INTO standings (task, device, round, attempt, participations) VALUES (?1, ?2, ?3, ?4, 1)
         ON CONFLICT (task, device) DO UPDATE
         SET round = excluded.round, attempt = excluded.attempt, participations = participations + 1
         WHERE round IS NULL OR round < excluded.round",
    )?;
    let mut insert = t.prepare_cached("INSERT INTO assigned (task, device) VALUES (?1, ?2)")?;
    for device in devices {
        let Some(device) = number_of(t, device)? else {
            return refuse("a device that is not enrolled was given a task");
        };
        if join.execute((task, device, at.round, at.attempt))? == 0 {
            return refuse("a device was given a round that it had joined before");
        }
        insert.execute((task, device))?;
    }
    Ok(())
}

/// Says of somebody who was given the task, and of whom nothing was said yet, what became of them; whether that was so.
fn mark(t: &Connection, task: i64, device: &DeviceKey, state: i64) -> Result<bool, DatabaseError> {
    let mut update = t.prepare_cached(
        "UPDATE assigned SET state = ?3
         WHERE task = ?1 AND device = (SELECT id FROM devices WHERE key = ?2) AND state = 0",
    )?;
    Ok(update.execute((task, device.0, state))? == 1)
}

/// What is said of a device in an attempt; none where it was not given the task.
fn state(t: &Connection, task: i64, device: &DeviceKey) -> Result<Option<i64>, DatabaseError> {
    let mut query = t.prepare_cached(
        "SELECT state FROM assigned WHERE task = ?1 AND device = (SELECT id FROM devices WHERE key = ?2)",
    )?;
    Ok(query.query_row((task, device.0), |row| row.get(0)).optional()?)
}

fn merge(t: &Connection, at: &AttemptAt, sealed: &[u8], reports: &[DeviceKey]) -> Result<(), DatabaseError> {
    let task = expect_open(t, at)?;
    for device in reports {
        if !mark(t, task, device, MERGED)? {
            return match state(t, task, device)? {
                None => refuse("a report of somebody who was not given the task"),
                Some(_) => refuse("a report that is in the sum already"),
            };
        }
    }
    let mut replace = t.prepare_cached(
        "INSERT INTO sums (task, sealed) VALUES (?1, ?2) ON CONFLICT (task) DO UPDATE SET sealed = excluded.sealed",
    )?;
    replace.execute((task, sealed))?;
    Ok(())
}

fn settle(t: &Connection, at: &AttemptAt, absent: &[DeviceKey]) -> Result<(), DatabaseError> {
    let task = expect_open(t, at)?;
    let mut take_back = t.prepare_cached(
        "UPDATE standings SET participations = participations - 1
         WHERE task = ?1 AND device = (SELECT id FROM devices WHERE key = ?2)",
    )?;
    for device in absent {
        if mark(t, task, device, ABSENT)? {
            take_back.execute((task, device.0))?;
        } else if state(t, task, device)? != Some(ABSENT) {
            return refuse("somebody who was not given the task, or whose report is in the sum, is said to be absent");
        }
    }
    // Who was given the task, and the sum, go with it.
    t.prepare_cached("DELETE FROM attempts WHERE task = ?1")?.execute([task])?;
    Ok(())
}
