//! The tables, their version, and connection settings.
//!
//! What must never be is refused by the tables too: they have types (`STRICT`), keys, checks, and references between them.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, TransactionBehavior};

use super::error::DatabaseError;

/// Says that a SQLite file is ours: `khsh`.
const APPLICATION: i64 = 0x6b68_7368;
/// The version of the tables.
const VERSION: i64 = 3;
/// What makes tables of the first version into those of the second.
const FROM_VERSION_1: &str = "
ALTER TABLE tasks ADD COLUMN model BLOB CHECK (length(model) = 32);
ALTER TABLE standings ADD COLUMN spoiled INTEGER NOT NULL DEFAULT 0 CHECK (spoiled >= 0);
ALTER TABLE server ADD COLUMN assignments INTEGER NOT NULL DEFAULT 0 CHECK (assignments >= 0);
";
/// Who enrolled in the hour in which somebody did last: in all, where there is no place, and from each place.
const ENROLMENTS: &str = "
CREATE TABLE enrolments (
    hour INTEGER NOT NULL CHECK (hour >= 0),
    -- A keyed digest of an address; empty for all of them together.
    place BLOB NOT NULL CHECK (length(place) IN (0, 16)),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (hour, place)
) STRICT, WITHOUT ROWID;
";
/// How long a connection waits for another.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The bytes of a page, in files that are made from now on. Models and releases are megabytes, and every page of them is written twice, by calls of
/// its own: in pages of 4 KiB a round of 2.4 million parameters made 30,000 of those.
const PAGE_BYTES: i64 = 32 << 10;
/// Pages of the write-ahead log after which they are moved into the file: 32 MiB.
const LOG_PAGES: i64 = (32 << 20) / PAGE_BYTES;
/// What is left of the write-ahead log then, in bytes.
const LOG_BYTES: i64 = 64 << 20;
/// What a connection keeps in memory, in KiB. Pages of rounds that are over stay in it until it is full, and look like a leak until then (bench/soak): a large
/// one for thousands of rounds. What is not in it is most likely in the cache of the operating system.
const CACHE_KIB: i64 = 512;

/// Where devices stand in tasks.
pub(super) const STANDINGS: &str = "
CREATE TABLE standings (
    task INTEGER NOT NULL REFERENCES tasks,
    device INTEGER NOT NULL REFERENCES devices,
    since INTEGER,
    round INTEGER,
    attempt INTEGER,
    participations INTEGER NOT NULL DEFAULT 0 CHECK (participations >= 0),
    -- Attempts that came to nothing by the doing of somebody who was given them.
    spoiled INTEGER NOT NULL DEFAULT 0 CHECK (spoiled >= 0),
    PRIMARY KEY (task, device),
    CHECK ((round IS NULL) = (attempt IS NULL))
) STRICT, WITHOUT ROWID;
";

/// Devices are numbered, so that what is kept of each in every task is small.
const TABLES: &str = "
CREATE TABLE server (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    realm BLOB NOT NULL CHECK (length(realm) = 32),
    enrolled INTEGER NOT NULL DEFAULT 0 CHECK (enrolled >= 0),
    -- How many batches gave devices a task; the last stands beside the secrets too.
    assignments INTEGER NOT NULL DEFAULT 0 CHECK (assignments >= 0)
) STRICT;

CREATE TABLE devices (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE CHECK (length(key) = 32),
    day INTEGER NOT NULL
) STRICT;

CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    -- The last round that devices were given: keys that enrol later wait.
    last_round INTEGER,
    -- The blob of the model that devices are given.
    model BLOB CHECK (length(model) = 32)
) STRICT;

CREATE TABLE attempts (
    task INTEGER PRIMARY KEY REFERENCES tasks,
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL
) STRICT;

-- state: 0 given the task, 1 its report is in the sum, 2 said to be absent while the attempt is settled.
CREATE TABLE assigned (
    task INTEGER NOT NULL REFERENCES attempts ON DELETE CASCADE,
    device INTEGER NOT NULL REFERENCES devices,
    state INTEGER NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)),
    PRIMARY KEY (task, device)
) STRICT, WITHOUT ROWID;

CREATE TABLE sums (
    task INTEGER PRIMARY KEY REFERENCES attempts ON DELETE CASCADE,
    sealed BLOB NOT NULL
) STRICT;

CREATE TABLE blobs (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    packed BLOB NOT NULL
) STRICT;

-- Names are those of folders too, and some systems do not tell case.
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE COLLATE NOCASE,
    head TEXT NOT NULL,
    released INTEGER,
    begun TEXT,
    FOREIGN KEY (id, released) REFERENCES entries (run, number)
) STRICT;

CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    number INTEGER NOT NULL,
    line TEXT NOT NULL,
    stream TEXT,
    step INTEGER,
    UNIQUE (run, number),
    UNIQUE (run, stream, step),
    CHECK ((stream IS NULL) = (step IS NULL))
) STRICT;

CREATE TABLE vectors (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    number INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    UNIQUE (run, number),
    FOREIGN KEY (run, number) REFERENCES entries (run, number)
) STRICT;

CREATE TABLE participations (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    number INTEGER NOT NULL,
    line TEXT NOT NULL,
    UNIQUE (run, number),
    FOREIGN KEY (run, number) REFERENCES entries (run, number)
) STRICT;

-- Which model devices are given. The entry is that of the last release that it comes from; none before the first.
CREATE TABLE published (
    run INTEGER PRIMARY KEY REFERENCES runs,
    entry INTEGER,
    rounds INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    head TEXT NOT NULL,
    FOREIGN KEY (run, entry) REFERENCES entries (run, number)
) STRICT;

CREATE TABLE papers (
    run INTEGER NOT NULL REFERENCES runs,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (run, name)
) STRICT;

CREATE TABLE states (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    round INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    UNIQUE (run, round)
) STRICT;

CREATE TABLE logs (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    log TEXT NOT NULL,
    line TEXT NOT NULL
) STRICT;
CREATE INDEX logs_in_order ON logs (run, log, id);

CREATE TABLE models (
    run INTEGER PRIMARY KEY REFERENCES runs,
    weights BLOB NOT NULL,
    config TEXT NOT NULL,
    vocabulary TEXT NOT NULL,
    card TEXT NOT NULL
) STRICT;
";

/// Sets up the connection that writes.
pub(super) fn for_writing(connection: &Connection) -> Result<(), DatabaseError> {
    let to =
        |pragma: &str, value: i64| -> Result<(), DatabaseError> { Ok(connection.pragma_update(None, pragma, value)?) };
    // It is heeded where the file has no page yet.
    to("page_size", PAGE_BYTES)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(DatabaseError::Refused(format!("the file system takes no write-ahead log: {mode:?}")));
    }
    // FULL: a commit is on the disk when it returns.
    connection.pragma_update(None, "synchronous", "FULL")?;
    for pragma in ["fullfsync", "checkpoint_fullfsync", "foreign_keys", "secure_delete"] {
        to(pragma, 1)?;
    }
    to("wal_autocheckpoint", LOG_PAGES)?;
    to("journal_size_limit", LOG_BYTES)?;
    // Once more: in a new file it was counted in pages of the usual size, an eighth of ours, and the cache would become eight times as large.
    to("cache_size", -CACHE_KIB)
}

/// Deletes what is public, as models, releases and what follows from them are, without overwriting it. Everything else that is deleted is
/// overwritten, which for these would write as many megabytes again in every round.
pub(super) fn delete_public<T>(
    connection: &Connection,
    delete: impl FnOnce() -> Result<T, DatabaseError>,
) -> Result<T, DatabaseError> {
    connection.pragma_update(None, "secure_delete", "FAST")?;
    let deleted = delete();
    connection.pragma_update(None, "secure_delete", 1)?;
    deleted
}

/// Sets up any connection.
pub(super) fn for_reading(connection: &Connection) -> Result<(), DatabaseError> {
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "trusted_schema", 0)?;
    connection.pragma_update(None, "cell_size_check", 1)?;
    // Nothing is put into files elsewhere.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(())
}

/// Whether there is nothing in the file yet; refuses what is not ours, or of another version. Upgrades start from those before.
pub(super) fn is_empty(connection: &Connection, place: &Path, upgrades: bool) -> Result<bool, DatabaseError> {
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (number("application_id")?, number("user_version")?) {
        (0, 0) if tables == 0 => Ok(true),
        (APPLICATION, VERSION) => Ok(false),
        (APPLICATION, 1..VERSION) if upgrades => Ok(false),
        (APPLICATION, found) => Err(DatabaseError::Version { place: place.to_owned(), found, known: VERSION }),
        _ => Err(DatabaseError::Foreign { place: place.to_owned() }),
    }
}

/// Makes tables of the versions before into those of this one, at once.
pub(super) fn upgrade(connection: &mut Connection) -> Result<(), DatabaseError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version < VERSION {
        let all = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if version < 2 {
            all.execute_batch(FROM_VERSION_1)?;
        }
        all.execute_batch(ENROLMENTS)?;
        all.pragma_update(None, "user_version", VERSION)?;
        all.commit()?;
    }
    Ok(())
}

/// Makes the tables, at once, and draws the realm.
pub(super) fn create(connection: &mut Connection) -> Result<(), DatabaseError> {
    let mut realm = [0; 32];
    getrandom::fill(&mut realm).map_err(DatabaseError::Randomness)?;
    let all = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    all.execute_batch(TABLES)?;
    all.execute_batch(STANDINGS)?;
    all.execute_batch(ENROLMENTS)?;
    all.execute("INSERT INTO server (id, realm) VALUES (1, ?1)", [realm])?;
    all.pragma_update(None, "application_id", APPLICATION)?;
    all.pragma_update(None, "user_version", VERSION)?;
    Ok(all.commit()?)
}
