//! The storage of a task's run: documents, states, logs and models in the tables, secrets in their own folder.

use std::{
    fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use federated::{
    home::{Home, HomeError, Log, LogWriter, Paper, WriteState},
    secrets::{FileVault, Vault},
};
use ledger::{Head, LedgerError};
use lm::folder::{Files, Folder};
use rusqlite::{Connection, OptionalExtension};

use super::{
    Database, DatabaseError,
    assignments::ASSIGNMENTS,
    schema::delete_public,
    task_ledger::{ClosedVault, check_head_is, head_of},
};
use crate::state::{AfterRound, Note, PublishedModel, StateError, TaskState, is_task_name};

/// The home of one task's run. Clones are the same home.
#[derive(Clone)]
pub struct TaskHome {
    pub(super) database: Arc<Database>,
    pub(super) run: i64,
    pub(super) vault: Arc<dyn Vault>,
    /// Where the head is kept that was acknowledged last; none where it was opened without its secrets.
    pub(super) witness: Option<PathBuf>,
    pub(super) name: String,
}

impl fmt::Debug for TaskHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskHome").field(&self.name()).finish()
    }
}

/// The file of a task's secrets with the head that was acknowledged last.
pub(super) const HEAD: &str = "ledger.head";
/// The paper that a note is.
const NOTE: &str = "note";

impl TaskHome {
    /// The home of a task, begun where there is none. Its secrets are in a folder of its name in `secrets`, both for their owner
    /// alone.
    ///
    /// # Errors
    /// A name that is none, folders that others can reach, or a database that was opened for reading or fails.
    pub fn open(database: Arc<Database>, name: &str, secrets: &Path) -> Result<Self, DatabaseError> {
        check_name(name)?;
        if database.is_read_only() {
            return Err(DatabaseError::ReadOnly);
        }
        // The folder above is as private as what is in it.
        FileVault::in_folder(secrets)?;
        let folder = secrets.join(name);
        let vault = Arc::new(FileVault::in_folder(&folder)?);
        let run = database.change(|t| {
            if let Some(run) = number_of(t, name)? {
                return Ok(run);
            }
            refuse_other_case(t, name)?;
            t.execute("INSERT INTO runs (name, head) VALUES (?1, ?2)", (name, Head::EMPTY.to_string()))?;
            Ok(t.last_insert_rowid())
        })?;
        Ok(Self { database, run, vault, witness: Some(folder.join(HEAD)), name: name.to_owned() })
    }

    /// Whether the secrets of a server, or of a task of one, are in a folder.
    #[must_use]
    pub fn has_secrets(folder: &Path) -> bool {
        let tasks = fs::read_dir(folder).into_iter().flatten().flatten();
        folder.join(ASSIGNMENTS).exists() || tasks.into_iter().any(|task| task.path().join(HEAD).exists())
    }

    /// The home of an existing task without its secrets, for readers.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn read(database: Arc<Database>, name: &str) -> Result<Self, DatabaseError> {
        let run = database.look(|t| number_of(t, name))?;
        let run = run.ok_or_else(|| DatabaseError::NoTask { name: name.to_owned() })?;
        Ok(Self { database, run, vault: Arc::new(ClosedVault), witness: None, name: name.to_owned() })
    }

    /// The same, where what stands beside the secrets is looked at too: the head of its ledger that was acknowledged last.
    ///
    /// # Errors
    /// When there is no such task.
    pub(super) fn read_with_witness(
        database: Arc<Database>,
        name: &str,
        secrets: &Path,
    ) -> Result<Self, DatabaseError> {
        let witness = Some(secrets.join(name).join(HEAD));
        Ok(Self { witness, ..Self::read(database, name)? })
    }

    /// The names of all tasks, in order.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn names(database: &Database) -> Result<Vec<String>, DatabaseError> {
        database.look(|t| {
            let mut query = t.prepare("SELECT name FROM runs ORDER BY name")?;
            Ok(query.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    fn text_of(&self, t: &Connection, name: &str) -> Result<Option<String>, DatabaseError> {
        let mut query = t.prepare_cached("SELECT text FROM papers WHERE run = ?1 AND name = ?2")?;
        Ok(query.query_row((self.run, name), |row| row.get(0)).optional()?)
    }

    fn put_text(&self, t: &Connection, name: &str, text: &str) -> Result<(), DatabaseError> {
        let mut write = t.prepare_cached(
            "INSERT INTO papers (run, name, text) VALUES (?1, ?2, ?3)
             ON CONFLICT (run, name) DO UPDATE SET text = excluded.text",
        )?;
        write.execute((self.run, name, text))?;
        Ok(())
    }

    fn entry_of(&self, t: &Connection, stream: &str, step: u64) -> Result<u64, DatabaseError> {
        let mut query = t.prepare_cached("SELECT number FROM entries WHERE run = ?1 AND stream = ?2 AND step = ?3")?;
        let entry = query.query_row((self.run, stream, step), |row| row.get(0)).optional()?;
        entry.ok_or_else(|| {
            DatabaseError::Refused(format!("the ledger has no release of step {step} of {stream:?}: the model stays"))
        })
    }

    /// Something of this run, read; words for what goes wrong.
    fn get<T>(&self, what: &str, read: impl FnOnce(&Connection) -> Result<T, DatabaseError>) -> Result<T, HomeError> {
        self.database.look(read).map_err(|e| e.in_home(&format!("read {what} of {}", self.name())))
    }

    /// Something of this run, written.
    fn put(&self, what: &str, write: impl FnOnce(&Connection) -> Result<(), DatabaseError>) -> Result<(), HomeError> {
        self.database.change(write).map_err(|e| e.in_home(&format!("write {what} of {}", self.name())))
    }
}

/// Names are those of folders too.
fn check_name(name: &str) -> Result<(), DatabaseError> {
    if is_task_name(name) { Ok(()) } else { Err(DatabaseError::Name { name: name.to_owned() }) }
}

fn number_of(t: &Connection, name: &str) -> Result<Option<i64>, DatabaseError> {
    let mut query = t.prepare("SELECT id FROM runs WHERE name = ?1 COLLATE BINARY")?;
    Ok(query.query_row([name], |row| row.get(0)).optional()?)
}

/// Two names that differ by their case alone would be one folder on some systems.
fn refuse_other_case(t: &Connection, name: &str) -> Result<(), DatabaseError> {
    let mut query = t.prepare("SELECT name FROM runs WHERE name = ?1 COLLATE NOCASE")?;
    match query.query_row([name], |row| row.get(0)).optional()? {
        Some(other) => Err(DatabaseError::OtherCase { name: name.to_owned(), other }),
        None => Ok(()),
    }
}

pub(super) fn published(t: &Connection, run: i64) -> Result<Option<PublishedModel>, DatabaseError> {
    let mut query = t.prepare_cached("SELECT rounds, entry, digest, head FROM published WHERE run = ?1")?;
    let found = query.query_row([run], |row| {
        let head: String = row.get(3)?;
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, head))
    });
    let Some((rounds, entry, digest, head)) = found.optional()? else { return Ok(None) };
    let damaged = |e: ledger::HeadError| LedgerError::storage("the head of the published model is damaged", e);
    Ok(Some(PublishedModel { rounds, entry, digest, head: head.parse().map_err(damaged)? }))
}

impl TaskState for TaskHome {
    type Home = Self;

    fn home(&self) -> &Self {
        self
    }

    fn publish_model(&self, head: &Head, after: AfterRound<'_>, digest: [u8; 32]) -> Result<(), StateError> {
        let publish = |t: &Connection| {
            check_head_is(head, &head_of(t, self.run)?)?;
            let entry = match after.release {
                None => None,
                Some((stream, step)) => Some(self.entry_of(t, stream, step)?),
            };
            let new = PublishedModel { rounds: after.rounds, entry, digest, head: *head };
            new.follows(published(t, self.run)?.as_ref()).map_err(|why| DatabaseError::Refused(why.to_string()))?;
            t.execute(
                "INSERT INTO published (run, entry, rounds, digest, head) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (run) DO UPDATE SET entry = excluded.entry, rounds = excluded.rounds,
                 digest = excluded.digest, head = excluded.head",
                (self.run, new.entry, new.rounds, new.digest, head.to_string()),
            )?;
            Ok(())
        };
        Ok(self.database.change(publish)?)
    }

    fn published_model(&self) -> Result<Option<PublishedModel>, StateError> {
        Ok(self.database.look(|t| published(t, self.run))?)
    }

    fn model(&self) -> Result<Option<Files>, StateError> {
        let files = |t: &Connection| {
            let mut query = t.prepare("SELECT weights, config, vocabulary, card FROM models WHERE run = ?1")?;
            let files = query.query_row([self.run], |row| {
                Ok(Files { weights: row.get(0)?, config: row.get(1)?, vocabulary: row.get(2)?, card: row.get(3)? })
            });
            Ok(files.optional()?)
        };
        Ok(self.database.look(files)?)
    }

    fn note(&self) -> Result<Option<Note>, StateError> {
        let text = self.database.look(|t| self.text_of(t, NOTE))?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    fn write_note(&self, note: &Note) -> Result<(), StateError> {
        let text = serde_json::to_string(note).map_err(|e| StateError::Refused(e.to_string()))?;
        Ok(self.database.change(|t| self.put_text(t, NOTE, &text))?)
    }
}

const fn word(paper: Paper) -> &'static str {
    match paper {
        Paper::Settings => "settings",
        Paper::Statement => "statement",
        Paper::StatementJson => "statement-json",
        Paper::PartOfASweep => "part-of-a-sweep",
        Paper::Audit => "audit",
    }
}

impl Home for TaskHome {
    fn name(&self) -> String {
        self.database.path().join(&self.name).display().to_string()
    }

    fn paper(&self, which: Paper) -> Result<Option<String>, HomeError> {
        self.get(word(which), |t| self.text_of(t, word(which)))
    }

    fn write_paper(&self, which: Paper, text: &str) -> Result<(), HomeError> {
        self.put(word(which), |t| self.put_text(t, word(which), text))
    }

    fn remove_paper(&self, which: Paper) -> Result<(), HomeError> {
        self.put(word(which), |t| {
            t.execute("DELETE FROM papers WHERE run = ?1 AND name = ?2", (self.run, word(which)))?;
            Ok(())
        })
    }

    fn states(&self) -> Result<Vec<u64>, HomeError> {
        self.get("the states", |t| {
            let mut query = t.prepare_cached("SELECT round FROM states WHERE run = ?1 ORDER BY round DESC")?;
            Ok(query.query_map([self.run], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    fn read_state(&self, round: u64) -> Result<Box<dyn Read + '_>, HomeError> {
        let bytes: Vec<u8> = self.get(&format!("the state after {round} rounds"), |t| {
            let mut query = t.prepare_cached("SELECT bytes FROM states WHERE run = ?1 AND round = ?2")?;
            Ok(query.query_row((self.run, round), |row| row.get(0))?)
        })?;
        Ok(Box::new(io::Cursor::new(bytes)))
    }

    /// No time is kept, so none is shown.
    fn write_state(&self, round: u64, _time: Option<u64>, write: WriteState<'_>) -> Result<(), HomeError> {
        let what = format!("the state after {round} rounds");
        let mut bytes = Vec::new();
        write(&mut bytes).map_err(|e| HomeError::Other { what: format!("cannot make {what}"), source: e.into() })?;
        self.put(&what, |t| {
            let mut write = t.prepare_cached(
                "INSERT INTO states (run, round, bytes) VALUES (?1, ?2, ?3)
                 ON CONFLICT (run, round) DO UPDATE SET bytes = excluded.bytes",
            )?;
            write.execute((self.run, round, bytes))?;
            Ok(())
        })
    }

    fn remove_state(&self, round: u64) -> Result<(), HomeError> {
        self.put(&format!("the state after {round} rounds"), |t| {
            let remove = || Ok(t.execute("DELETE FROM states WHERE run = ?1 AND round = ?2", (self.run, round))?);
            delete_public(t, remove).map(|_| ())
        })
    }

    fn state_name(&self, round: u64) -> String {
        format!("{}, the state after {round} rounds", self.name())
    }

    fn lines(&self, log: Log) -> Result<Vec<String>, HomeError> {
        self.get(log.word(), |t| {
            let mut query = t.prepare_cached("SELECT line FROM logs WHERE run = ?1 AND log = ?2 ORDER BY id")?;
            Ok(query.query_map((self.run, log.word()), |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    fn open_log(&self, log: Log, keep: &dyn Fn(&str) -> bool) -> Result<Box<dyn LogWriter>, HomeError> {
        self.put(log.word(), |t| {
            let mut query = t.prepare("SELECT id, line FROM logs WHERE run = ?1 AND log = ?2")?;
            let mut lines = query.query((self.run, log.word()))?;
            let mut unwanted: Vec<i64> = Vec::new();
            while let Some(row) = lines.next()? {
                if !keep(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?) {
                    unwanted.push(row.get(0)?);
                }
            }
            let mut remove = t.prepare("DELETE FROM logs WHERE id = ?1")?;
            for id in unwanted {
                remove.execute([id])?;
            }
            Ok(())
        })?;
        Ok(Box::new(TaskLog { home: self.clone(), log }))
    }

    fn has_model(&self) -> Result<bool, HomeError> {
        self.get("the model", |t| {
            Ok(t.query_row("SELECT EXISTS (SELECT 1 FROM models WHERE run = ?1)", [self.run], |row| row.get(0))?)
        })
    }

    fn write_model(&self, model: &Folder) -> Result<(), HomeError> {
        let unwritable = |e| HomeError::Other { what: format!("cannot make the model of {}", self.name()), source: e };
        let Files { weights, config, vocabulary, card } = model.write().map_err(|e| unwritable(e.into()))?;
        self.put("the model", |t| {
            t.execute(
                "INSERT INTO models (run, weights, config, vocabulary, card) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (run) DO UPDATE SET weights = excluded.weights, config = excluded.config,
                 vocabulary = excluded.vocabulary, card = excluded.card",
                (self.run, weights, config, vocabulary, card),
            )?;
            Ok(())
        })
    }
}

/// A log of a task. Its lines are few: each is durable when it is appended.
struct TaskLog {
    home: TaskHome,
    log: Log,
}

impl LogWriter for TaskLog {
    fn append(&mut self, line: &str) -> Result<(), HomeError> {
        self.home.put(self.log.word(), |t| {
            let mut insert = t.prepare_cached("INSERT INTO logs (run, log, line) VALUES (?1, ?2, ?3)")?;
            insert.execute((self.home.run, self.log.word(), line))?;
            Ok(())
        })
    }

    fn sync(&mut self) -> Result<(), HomeError> {
        Ok(())
    }
}
