//! The ledger of a task: entries, the head, and what belongs to each, one transaction per entry.
//!
//! A file that was restored from an old copy is whole, and shorter than what was shown. So the head that was acknowledged last
//! stands beside the secrets too, in `--secrets DIR/TASK/ledger.head`, written after each entry: a ledger on which it does not lie is
//! rewound or forked, and the task does not continue (rule P17). A crash in between leaves it one entry behind, which lies on the
//! ledger.

use std::collections::VecDeque;

use durable::{
    disk::{Disk, OsDisk},
    files::{self, Replacement, beside},
};
use federated::{
    home::{Home, Records, heads::HeadsError},
    secrets::{SecretName, Secrets, Vault},
};
use ledger::{
    Attached, BegunAttempt, Body, Entry, Head, Ledger, LedgerError, LedgerStore, ParticipationRecord, Participations,
    check_follows,
};
use rusqlite::{Connection, OptionalExtension};
use zeroize::Zeroizing;

use super::{DatabaseError, TaskHome, schema::delete_public, task_home::published};

/// Entries that are read at once.
const ENTRIES: u64 = 256;
/// Records of participations that are read at once: each names everybody who took part.
const RECORDS: u64 = 8;

/// The head of a run's ledger.
pub(super) fn head_of(t: &Connection, run: i64) -> Result<Head, DatabaseError> {
    let head: String = t.prepare_cached("SELECT head FROM runs WHERE id = ?1")?.query_row([run], |row| row.get(0))?;
    let damaged = |e: ledger::HeadError| LedgerError::storage("the head of the ledger is damaged", e);
    Ok(head.parse().map_err(damaged)?)
}

/// Refuses what was made for another head.
pub(super) fn check_head_is(after: &Head, head: &Head) -> Result<(), DatabaseError> {
    Ok(check_follows(after, head)?)
}

impl Records for TaskHome {
    type Store = TaskLedger;

    fn secrets(&self) -> Secrets {
        Secrets::new(self.vault.clone())
    }

    fn is_begun(&self) -> Result<bool, LedgerError> {
        Ok(self.head()? != Head::EMPTY || self.witnessed()?.is_some())
    }

    fn create_store(&self) -> Result<TaskLedger, LedgerError> {
        let store = self.writer()?;
        if self.is_begun()? { Err(LedgerError::Exists { place: self.name() }) } else { Ok(store) }
    }

    fn open_store(&self) -> Result<TaskLedger, LedgerError> {
        let store = self.writer()?;
        self.refuse_rewound()?;
        // What a crash left unacknowledged counts from here on.
        let head = self.head()?;
        if self.witnessed()? != Some(head) {
            self.write_witness(&head)?;
        }
        Ok(store)
    }

    fn read_store(&self) -> Result<TaskLedger, LedgerError> {
        self.refuse_rewound()?;
        Ok(TaskLedger { home: self.clone(), writes: false, failed: false })
    }

    fn shown_heads(&self) -> Result<Vec<Head>, HeadsError> {
        // A ledger that is being written only grows: what is to lie on it is read first.
        let published = self.database.look(|t| published(t, self.run));
        let published = published.map_err(|e| e.in_ledger("read which model is published"))?;
        let mut heads: Vec<Head> = published.map(|model| model.head).into_iter().collect();
        heads.extend(self.witnessed()?);
        if self.is_begun()? {
            Ledger::open(self.read_store()?, None, &heads)?;
        }
        Ok(heads)
    }
}

impl TaskHome {
    pub(super) fn head(&self) -> Result<Head, LedgerError> {
        self.database.look(|t| head_of(t, self.run)).map_err(|e| e.in_ledger("read the head of a ledger"))
    }

    fn writer(&self) -> Result<TaskLedger, LedgerError> {
        if self.database.is_read_only() || self.witness.is_none() {
            return Err(LedgerError::ReadOnly);
        }
        if !self.database.take_ledger(self.run) {
            return Err(LedgerError::Locked { place: self.name() });
        }
        Ok(TaskLedger { home: self.clone(), writes: true, failed: false })
    }

    /// The head that was acknowledged last, as it stands beside the secrets.
    pub(super) fn witnessed(&self) -> Result<Option<Head>, LedgerError> {
        let Some(path) = &self.witness else { return Ok(None) };
        let place = || path.display().to_string();
        let unreadable = |e| LedgerError::storage(format!("cannot read {}", place()), e);
        let Some(bytes) = OsDisk.read(path).map_err(unreadable)? else { return Ok(None) };
        let damaged = |problem: String| LedgerError::HeadDamaged { place: place(), problem };
        let text = String::from_utf8(bytes).map_err(|e| damaged(e.to_string()))?;
        let line = text.strip_suffix('\n').ok_or_else(|| damaged("the line does not end".into()))?;
        line.parse().map(Some).map_err(|e: ledger::HeadError| damaged(e.to_string()))
    }

    fn write_witness(&self, head: &Head) -> Result<(), LedgerError> {
        let Some(path) = &self.witness else { return Err(LedgerError::ReadOnly) };
        let by = Replacement { new: &beside(path, ".new"), private: true, time: None };
        let done = files::replace(&OsDisk, path, by, |out| out.write_all(format!("{head}\n").as_bytes()));
        done.map_err(|e| LedgerError::storage("cannot keep the head of a ledger", e))
    }

    /// Refuses a ledger that is not there, or shorter or another than the one that was acknowledged.
    pub(super) fn refuse_rewound(&self) -> Result<(), LedgerError> {
        let (shown, head) = (self.witnessed()?, self.head()?);
        match shown {
            Some(shown) if head.length < shown.length => Err(LedgerError::Rewound { shown, have: head.length }),
            Some(shown) => self.refuse_forked(&shown),
            None if head == Head::EMPTY => Err(LedgerError::Empty),
            // The first entry may be there, and the program ended before the first head was.
            None if head.length > 1 && self.witness.is_some() => {
                let place = self.witness.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
                Err(LedgerError::HeadMissing { have: head.length, place })
            }
            None => Ok(()),
        }
    }

    fn refuse_forked(&self, shown: &Head) -> Result<(), LedgerError> {
        let Some(last) = shown.length.checked_sub(1) else { return Ok(()) };
        let entry = Entries::new(self, last, shown.length).next().transpose()?;
        match entry {
            Some(entry) if entry.hash() != shown.hash => Err(LedgerError::Forked { shown: *shown, have: entry.hash() }),
            _ => Ok(()),
        }
    }
}

/// The ledger of a task. Where it writes, nobody else does as long as it is there.
#[derive(Debug)]
pub struct TaskLedger {
    home: TaskHome,
    writes: bool,
    /// The head beside the secrets could not be written.
    failed: bool,
}

impl Drop for TaskLedger {
    fn drop(&mut self) {
        if self.writes {
            self.home.database.give_ledger_back(self.home.run);
        }
    }
}

impl TaskLedger {
    fn change(
        &self,
        doing: &str,
        write: impl FnOnce(&Connection) -> Result<(), DatabaseError>,
    ) -> Result<(), LedgerError> {
        if !self.writes {
            return Err(LedgerError::ReadOnly);
        }
        if self.failed {
            return Err(LedgerError::Poisoned);
        }
        self.home.database.change(write).map_err(|e| e.in_ledger(doing))
    }
}

/// Puts an entry into the tables with all that belongs to it, and moves the head, from the one that it follows.
fn insert(t: &Connection, run: i64, entry: &Entry, attached: Attached<'_>) -> Result<(), DatabaseError> {
    let number = entry.index();
    let release = match entry.body() {
        Body::Release(release) => Some((&release.stream, release.step)),
        _ => None,
    };
    let (stream, step) = release.unzip();
    t.prepare_cached("INSERT INTO entries (run, number, line, stream, step) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute((run, number, entry.line(), stream, step))?;
    if let Some(bytes) = attached.released {
        t.prepare_cached("INSERT INTO vectors (run, number, bytes) VALUES (?1, ?2, ?3)")?
            .execute((run, number, bytes))?;
    }
    if let Some(record) = attached.participations {
        t.prepare_cached("INSERT INTO participations (run, number, line) VALUES (?1, ?2, ?3)")?.execute((
            run,
            number,
            record.line(),
        ))?;
    }
    let follows = Head { length: number, hash: entry.previous() };
    let mut move_head =
        t.prepare_cached("UPDATE runs SET head = ?3, released = coalesce(?4, released) WHERE id = ?1 AND head = ?2")?;
    let released = step.map(|_| number);
    match move_head.execute((run, follows.to_string(), entry.head().to_string(), released))? {
        1 => Ok(()),
        _ => Err(DatabaseError::Refused("the head of the ledger is another".into())),
    }
}

impl LedgerStore for TaskLedger {
    fn append(&mut self, after: &Head, entry: &Entry, attached: Attached<'_>) -> Result<Head, LedgerError> {
        let run = self.home.run;
        self.change("append to a ledger", |t| {
            let head = head_of(t, run)?;
            check_head_is(after, &head)?;
            check_head_is(&Head { length: entry.index(), hash: entry.previous() }, &head)?;
            insert(t, run, entry, attached)
        })?;
        // The entry is durable. Without the head beside the secrets it is not acknowledged, and opening again finds it.
        self.failed = true;
        self.home.write_witness(&entry.head())?;
        self.failed = false;
        Ok(entry.head())
    }

    fn read(&self, from: u64) -> Result<Box<dyn Iterator<Item = Result<Entry, LedgerError>> + '_>, LedgerError> {
        Ok(Box::new(Entries::new(&self.home, from, self.home.head()?.length)))
    }

    fn released(&self, index: u64) -> Result<Option<Vec<u8>>, LedgerError> {
        let read = self.home.database.look(|t| {
            let mut query = t.prepare_cached("SELECT bytes FROM vectors WHERE run = ?1 AND number = ?2")?;
            Ok(query.query_row((self.home.run, index), |row| row.get(0)).optional()?)
        });
        read.map_err(|e| e.in_ledger("read a released vector"))
    }

    fn discard_released(&mut self, below: u64) -> Result<(), LedgerError> {
        self.change("let go of released vectors", |t| {
            let remove =
                || Ok(t.execute("DELETE FROM vectors WHERE run = ?1 AND number < ?2", (self.home.run, below))?);
            delete_public(t, remove)?;
            Ok(())
        })
    }

    fn participations(&self) -> Result<Option<Participations<'_>>, LedgerError> {
        let sql = "SELECT number, line FROM participations WHERE run = ?1 AND number >= ?2 AND number < ?3
                   ORDER BY number LIMIT ?4";
        let mut rows = Rows::new(&self.home, sql, RECORDS, 0, self.home.head()?.length);
        Ok(Some(Box::new(std::iter::from_fn(move || {
            let (entry, line) = match rows.next()? {
                Ok(row) => row,
                Err(error) => return Some(Err(error)),
            };
            let damaged = |problem| LedgerError::ParticipationsDamaged { entry, problem };
            Some(ParticipationRecord::parse(&line).map_err(damaged))
        }))))
    }

    fn begin_attempt(&mut self, begun: &BegunAttempt) -> Result<(), LedgerError> {
        let line = serde_json::to_string(begun).map_err(|e| LedgerError::storage("an attempt", e))?;
        self.change("note an attempt", |t| {
            t.prepare_cached("UPDATE runs SET begun = ?2 WHERE id = ?1")?.execute((self.home.run, line))?;
            Ok(())
        })
    }

    fn begun_attempt(&self) -> Result<Option<BegunAttempt>, LedgerError> {
        let line = self.home.database.look(|t| {
            let mut query = t.prepare_cached("SELECT begun FROM runs WHERE id = ?1")?;
            Ok(query.query_row([self.home.run], |row| row.get::<_, Option<String>>(0))?)
        });
        let Some(line) = line.map_err(|e| e.in_ledger("read which attempt was begun"))? else { return Ok(None) };
        let damaged =
            |e: serde_json::Error| LedgerError::AttemptDamaged { place: self.home.name(), problem: e.to_string() };
        serde_json::from_str(&line).map(Some).map_err(damaged)
    }

    fn forget_attempt(&mut self) -> Result<(), LedgerError> {
        self.change("forget an attempt", |t| {
            t.execute("UPDATE runs SET begun = NULL WHERE id = ?1", [self.home.run])?;
            Ok(())
        })
    }

    fn head(&self) -> Result<Head, LedgerError> {
        self.home.head()
    }
}

/// Numbered lines of a run, some at a time.
struct Rows<'a> {
    home: &'a TaskHome,
    sql: &'static str,
    at_once: u64,
    next: u64,
    below: u64,
    read: VecDeque<(u64, String)>,
}

impl<'a> Rows<'a> {
    const fn new(home: &'a TaskHome, sql: &'static str, at_once: u64, next: u64, below: u64) -> Self {
        Self { home, sql, at_once, next, below, read: VecDeque::new() }
    }

    fn fill(&mut self) -> Result<(), LedgerError> {
        let read = self.home.database.look(|t| {
            let mut query = t.prepare_cached(self.sql)?;
            let rows = query.query_map((self.home.run, self.next, self.below, self.at_once), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        });
        self.read = read.map_err(|e| e.in_ledger("read a ledger"))?;
        Ok(())
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<(u64, String), LedgerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.read.is_empty()
            && self.next < self.below
            && let Err(error) = self.fill()
        {
            self.next = self.below;
            return Some(Err(error));
        }
        let row = self.read.pop_front();
        self.next = row.as_ref().map_or(self.below, |(number, _)| number + 1);
        row.map(Ok)
    }
}

/// Entries of a ledger, each of which must be there.
struct Entries<'a> {
    rows: Rows<'a>,
    expected: u64,
    length: u64,
}

impl<'a> Entries<'a> {
    const fn new(home: &'a TaskHome, from: u64, length: u64) -> Self {
        let sql = "SELECT number, line FROM entries WHERE run = ?1 AND number >= ?2 AND number < ?3
                   ORDER BY number LIMIT ?4";
        Self { rows: Rows::new(home, sql, ENTRIES, from, length), expected: from, length }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, LedgerError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.expected >= self.length {
            return None;
        }
        let expected = self.expected;
        let entry = match self.rows.next() {
            Some(Ok((number, line))) if number == expected => {
                Entry::parse(line.as_bytes()).map_err(|problem| LedgerError::damaged(expected, problem))
            }
            Some(Err(error)) => Err(error),
            _ => Err(LedgerError::damaged(expected, "it is missing")),
        };
        self.expected = if entry.is_ok() { expected + 1 } else { self.length };
        Some(entry)
    }
}

/// The secrets of a run that was opened without them: nobody gets any.
pub(super) struct ClosedVault;

impl Vault for ClosedVault {
    fn read(&self, _name: SecretName) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError> {
        Err(LedgerError::ReadOnly)
    }

    fn create(&self, _name: SecretName, _bytes: &[u8]) -> Result<(), LedgerError> {
        Err(LedgerError::ReadOnly)
    }

    fn replace(&self, _name: SecretName, _bytes: &[u8]) -> Result<(), LedgerError> {
        Err(LedgerError::ReadOnly)
    }

    fn append(&self, _name: SecretName, _bytes: &[u8]) -> Result<(), LedgerError> {
        Err(LedgerError::ReadOnly)
    }

    fn wipe_from(&self, _name: SecretName, _offset: usize) -> Result<(), LedgerError> {
        Err(LedgerError::ReadOnly)
    }

    fn destroy(&self, _name: SecretName) -> Result<(), LedgerError> {
        Err(LedgerError::ReadOnly)
    }

    fn exists(&self, _name: SecretName) -> Result<bool, LedgerError> {
        Err(LedgerError::ReadOnly)
    }

    fn place(&self, name: SecretName) -> String {
        name.word().to_owned()
    }
}
