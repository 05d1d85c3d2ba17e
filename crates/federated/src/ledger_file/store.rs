//! The ledger store on a file: appends durably, reads, and repairs on opening what a crash may have left.

use std::{
    io::BufRead,
    path::{Path, PathBuf},
    sync::Arc,
};

use durable::{
    disk::{Disk, How, Lock},
    files::{self, Replacement, beside, folder},
};
use ledger::{
    Attached, BegunAttempt, Body, Digest, Entry, Head, Keeping, LedgerError, LedgerStore, ParticipationRecord,
    Participations, check_follows,
};

use super::{
    Place,
    discarded::Discarded,
    scan::{Scan, scan},
};
use crate::secrets::file::{PrivateFile, failed, not_replaced};

/// The store over a file; [`Place`] opens it together with its keys.
#[derive(Debug)]
pub struct FileStore {
    disk: Arc<dyn Disk>,
    paths: Paths,
    head: Head,
    /// Dropped before the lock is released.
    discarded: Discarded,
    /// The lock of the one writer; none in a store that was opened for reading.
    lock: Option<Lock>,
    /// The entry whose vector was made durable before it, and which keeping that was.
    kept: Option<(u64, Keeping)>,
    /// A write failed: what is durable is not known until the ledger is opened again.
    poisoned: bool,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct Paths {
    ledger: PathBuf,
    folder: PathBuf,
    witnesses: Vec<PathBuf>,
    released: PathBuf,
    /// `secret/NAME`, to which suffixes are added.
    secret: PathBuf,
    participations: PathBuf,
    lock: PathBuf,
}

impl FileStore {
    /// An empty store, locked. What an unfinished creation left is cleared away: nothing was acknowledged in it.
    ///
    /// # Errors
    /// When there is a ledger already, or a vector of one that is gone, or the disk fails.
    pub fn create(place: &Place) -> Result<Self, LedgerError> {
        let mut store = Self::at(place);
        let path = store.paths.folder.clone();
        if store.disk.create_folder(&path, false).map_err(failed("make", &path))? {
            let above = folder(&path);
            store.disk.sync_folder(above).map_err(failed("sync", above))?;
        }
        store.take_lock()?;
        let exists = || LedgerError::Exists { place: store.paths.ledger.display().to_string() };
        if !store.acknowledged()?.is_empty() {
            return Err(exists());
        }
        store.refuse_orphans()?;
        if let Some(bytes) = store.read_ledger()? {
            let unfinished = scan(&bytes, &[]).is_ok_and(|scan| scan.head == Head::EMPTY);
            if !unfinished {
                return Err(exists());
            }
            store.disk.remove(&store.paths.ledger).map_err(failed("clear", &store.paths.ledger))?;
        }
        store.settle_pending()?;
        store.disk.sync_folder(&path).map_err(failed("sync", &path))?;
        Ok(store)
    }

    /// Opens for writing, and brings to an end what a crash interrupted.
    ///
    /// # Errors
    /// Another writer, damage, or a disk that fails.
    pub fn open(place: &Place) -> Result<Self, LedgerError> {
        let mut store = Self::at(place);
        store.refuse_missing()?;
        store.take_lock()?;
        let (scan, bytes, acknowledged) = store.scan()?;
        if acknowledged.is_empty() && scan.head.length > 1 {
            return Err(store.head_missing(scan.head.length));
        }
        if scan.head == Head::EMPTY {
            return Err(LedgerError::Empty);
        }
        store.head = scan.head;
        store.settle(&scan, &bytes, &acknowledged)?;
        store.settle_pending()?;
        store.refuse_orphans()?;
        store.mend_participations()?;
        Ok(store)
    }

    /// Opens for reading; a torn record behind the head is left out and left alone.
    ///
    /// # Errors
    /// Damage, or a file that cannot be read.
    pub fn read_only(place: &Place) -> Result<Self, LedgerError> {
        let mut store = Self::at(place);
        store.refuse_missing()?;
        let (scan, _, acknowledged) = store.scan()?;
        store.head = scan.head;
        if acknowledged.is_empty() {
            store.warnings.push("there is no head file next to the ledger".into());
        }
        if scan.torn > 0 {
            store.warnings.push(format!("{} bytes of a torn record after the last entry are left out", scan.torn));
        }
        Ok(store)
    }

    /// Whether there is a ledger with a whole entry in it.
    pub(super) fn has_entries(place: &Place) -> Result<bool, LedgerError> {
        let bytes = Self::at(place).read_ledger()?.unwrap_or_default();
        Ok(bytes
            .split(|b| *b == b'\n')
            .next()
            .is_some_and(|line| line.len() < bytes.len() && Entry::parse(line).is_ok()))
    }

    fn at(place: &Place) -> Self {
        let ledger = place.ledger.clone();
        let paths = Paths {
            folder: folder(&ledger).to_path_buf(),
            witnesses: place.witnesses.clone(),
            released: beside(&ledger, ".released"),
            secret: folder(&ledger).join("secret").join(ledger.file_name().unwrap_or_default()),
            participations: beside(&ledger, ".participations"),
            lock: beside(&ledger, ".lock"),
            ledger,
        };
        let disk = Arc::clone(&place.disk);
        let discarded = Discarded::default();
        Self {
            disk,
            paths,
            head: Head::EMPTY,
            discarded,
            lock: None,
            kept: None,
            poisoned: false,
            warnings: Vec::new(),
        }
    }

    fn refuse_missing(&self) -> Result<(), LedgerError> {
        let path = &self.paths.ledger;
        match self.disk.reader(path).map_err(failed("read", path))? {
            Some(_) => Ok(()),
            None => Err(failed("read", path)(std::io::ErrorKind::NotFound.into())),
        }
    }

    fn take_lock(&mut self) -> Result<(), LedgerError> {
        let path = &self.paths.lock;
        self.lock = self.disk.lock(path).map_err(failed("lock", path))?;
        match self.lock {
            Some(_) => Ok(()),
            None => Err(LedgerError::Locked { place: path.display().to_string() }),
        }
    }

    /// The heads in the witness files that are there. They are read before the ledger: it only grows.
    fn acknowledged(&self) -> Result<Vec<Head>, LedgerError> {
        let mut heads = Vec::new();
        for path in &self.paths.witnesses {
            let Some(bytes) = self.disk.read(path).map_err(failed("read", path))? else { continue };
            let damaged = |problem: String| LedgerError::HeadDamaged { place: path.display().to_string(), problem };
            let text = String::from_utf8(bytes).map_err(|_| damaged("it is not text".into()))?;
            let line = text.strip_suffix('\n').ok_or_else(|| damaged("the line does not end".into()))?;
            heads.push(line.parse().map_err(|e: ledger::HeadError| damaged(e.to_string()))?);
        }
        Ok(heads)
    }

    fn head_missing(&self, have: u64) -> LedgerError {
        LedgerError::HeadMissing { have, place: self.paths.witnesses[0].display().to_string() }
    }

    fn read_ledger(&self) -> Result<Option<Vec<u8>>, LedgerError> {
        self.disk.read(&self.paths.ledger).map_err(failed("read", &self.paths.ledger))
    }

    fn scan(&self) -> Result<(Scan, Vec<u8>, Vec<Head>), LedgerError> {
        let acknowledged = self.acknowledged()?;
        let bytes = self.read_ledger()?.unwrap_or_default();
        Ok((scan(&bytes, &acknowledged)?, bytes, acknowledged))
    }

    /// Cuts a torn record off; makes sure that a whole one behind the head is durable, and then the head.
    fn settle(&mut self, scan: &Scan, bytes: &[u8], acknowledged: &[Head]) -> Result<(), LedgerError> {
        let path = self.paths.ledger.clone();
        if scan.torn > 0 {
            let mut file = self.disk.writer(&path, How::At(scan.bytes as u64)).map_err(failed("mend", &path))?;
            file.set_length(scan.bytes as u64).and_then(|()| file.sync()).map_err(failed("mend", &path))?;
            self.warnings.push(format!(
                "{} bytes of a torn record after entry {} were dropped: it was never acknowledged",
                scan.torn,
                scan.head.length - 1
            ));
        }
        let settled = acknowledged.len() == self.paths.witnesses.len() && acknowledged.iter().all(|h| *h == scan.head);
        if settled {
            return Ok(());
        }
        // The last entry may never have reached the disk, even if it can be read: written again, it is synced for sure.
        let mut file = self.disk.writer(&path, How::At(scan.last as u64)).map_err(failed("mend", &path))?;
        let last = &bytes[scan.last..scan.bytes];
        file.write_all(last).and_then(|()| file.sync()).map_err(failed("mend", &path))?;
        self.disk.sync_folder(&self.paths.folder).map_err(failed("sync", &self.paths.folder))?;
        self.write_heads()
    }

    /// Brings to an end what a crash interrupted: a pending vector that an entry names is moved out, one without an entry is
    /// destroyed: nobody saw it, and it was not paid for.
    fn settle_pending(&self) -> Result<(), LedgerError> {
        let secret = folder(&self.paths.secret);
        for path in self.disk.list(secret).map_err(failed("list", secret))? {
            let Some(index) = self.pending_index(&path) else { continue };
            match self.release_of(index)? {
                Some((digest, time))
                    if self.pending(index).read()?.is_some_and(|v| Digest::of_released(&v) == digest) =>
                {
                    self.publish(index, time)?;
                }
                _ => PrivateFile::new(Arc::clone(&self.disk), path).destroy()?,
            }
        }
        Ok(())
    }

    /// What an entry says that it released, and when; none if there is no such entry, or it released nothing.
    fn release_of(&self, index: u64) -> Result<Option<(Digest, u64)>, LedgerError> {
        if index >= self.head.length {
            return Ok(None);
        }
        let entry = self.read(index)?.next().transpose()?;
        Ok(entry.and_then(|entry| match entry.body() {
            Body::Release(release) => Some((release.digest, entry.time())),
            _ => None,
        }))
    }

    /// `INDEX` of `secret/NAME.INDEX.pending`.
    fn pending_index(&self, path: &Path) -> Option<u64> {
        let name = path.file_name()?.to_str()?;
        let own = self.paths.secret.file_name()?.to_str()?;
        name.strip_prefix(own)?.strip_prefix('.')?.strip_suffix(".pending")?.parse().ok()
    }

    /// Where the attempt for which users are asked is noted. In `secret/`: when it was written says when a round began.
    fn begun(&self) -> PrivateFile {
        PrivateFile::new(Arc::clone(&self.disk), beside(&self.paths.secret, ".attempt"))
    }

    /// The vectors that are stored, each with the entry that it belongs to.
    fn vectors(&self) -> Result<Vec<(u64, PathBuf)>, LedgerError> {
        let released = &self.paths.released;
        let paths = self.disk.list(released).map_err(failed("list", released))?;
        let index = |path: &Path| path.file_name()?.to_str()?.strip_suffix(".bin")?.parse().ok();
        Ok(paths.into_iter().filter_map(|path| Some((index(&path)?, path))).collect())
    }

    /// A vector is moved out of `secret/` when its entry is durable, so one behind the last entry shows that entries are
    /// missing.
    fn refuse_orphans(&self) -> Result<(), LedgerError> {
        match self.vectors()?.into_iter().find(|(index, _)| *index >= self.head.length) {
            None => Ok(()),
            Some((entry, path)) => {
                Err(LedgerError::Orphan { place: path.display().to_string(), entry, have: self.head.length })
            }
        }
    }

    /// Cuts off a record of the side file that was being written: no entry names it yet.
    fn mend_participations(&mut self) -> Result<(), LedgerError> {
        let path = self.paths.participations.clone();
        let Some(mut reader) = self.disk.reader(&path).map_err(failed("read", &path))? else { return Ok(()) };
        let (mut whole, mut line) = (0u64, Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(failed("read", &path))?;
            if read == 0 {
                return Ok(());
            }
            let text = line.strip_suffix(b"\n").and_then(|line| str::from_utf8(line).ok());
            if text.is_none_or(|text| ParticipationRecord::parse(text).is_err()) {
                break;
            }
            whole += read as u64;
        }
        let torn = line.len();
        if reader.fill_buf().map_err(failed("read", &path))?.is_empty() {
            let mut file = self.disk.writer(&path, How::At(whole)).map_err(failed("mend", &path))?;
            file.set_length(whole).and_then(|()| file.sync()).map_err(failed("mend", &path))?;
            self.warnings.push(format!("{torn} bytes of a torn record of participations were dropped"));
            return Ok(());
        }
        let problem = format!("{} has a bad line after {whole} bytes", path.display());
        Err(LedgerError::ParticipationsDamaged { entry: self.head.length - 1, problem })
    }

    fn refuse_writing(&self) -> Result<(), LedgerError> {
        match (&self.lock, self.poisoned) {
            (None, _) => Err(LedgerError::ReadOnly),
            (Some(_), true) => Err(LedgerError::Poisoned),
            (Some(_), false) => Ok(()),
        }
    }

    /// Keeps a vector where nobody sees it, until its entry is durable.
    fn write_pending(&self, index: u64, bytes: &[u8]) -> Result<(), LedgerError> {
        self.pending(index).write(bytes)
    }

    fn pending(&self, index: u64) -> PrivateFile {
        PrivateFile::new(Arc::clone(&self.disk), beside(&self.paths.secret, &format!(".{index}.pending")))
    }

    /// Moves a vector out. After a crash it has the old name or the new one, and on opening the new one: the move need not be synced.
    fn publish(&self, index: u64, time: u64) -> Result<(), LedgerError> {
        let (released, path) = (&self.paths.released, self.vector_path(index));
        if self.disk.create_folder(released, false).map_err(failed("make", released))? {
            // What is moved into a folder that is not on the disk is gone with it.
            self.disk.sync_folder(&self.paths.folder).map_err(failed("sync", &self.paths.folder))?;
        }
        let pending = self.pending(index);
        // Its time tells nothing before anyone sees it.
        self.disk.set_time(pending.path(), time).map_err(failed("publish", &path))?;
        self.disk.rename(pending.path(), &path).map_err(failed("publish", &path))?;
        self.disk.open_to_all(&path).map_err(failed("publish", &path))
    }

    fn vector_path(&self, index: u64) -> PathBuf {
        self.paths.released.join(format!("{index}.bin"))
    }

    fn write_participations(&self, record: &ParticipationRecord) -> Result<(), LedgerError> {
        let path = &self.paths.participations;
        let is_new = self.disk.reader(path).map_err(failed("read", path))?.is_none();
        let how = if is_new { How::New { private: true } } else { How::Append };
        self.append_line(path, how, record.line())?;
        if is_new {
            self.disk.sync_folder(&self.paths.folder).map_err(failed("sync", &self.paths.folder))?;
        }
        Ok(())
    }

    fn write_entry(&self, entry: &Entry) -> Result<(), LedgerError> {
        if entry.index() > 0 {
            return self.append_line(&self.paths.ledger, How::Append, &entry.line());
        }
        self.append_line(&self.paths.ledger, How::New { private: false }, &entry.line())?;
        self.disk.sync_folder(&self.paths.folder).map_err(failed("sync", &self.paths.folder))
    }

    fn append_line(&self, path: &Path, how: How, line: &str) -> Result<(), LedgerError> {
        let mut file = self.disk.writer(path, how).map_err(failed("write", path))?;
        let line = [line, "\n"].concat();
        file.write_all(line.as_bytes()).and_then(|()| file.sync()).map_err(failed("write", path))
    }

    /// Replaces the head in every witness file, each at once: by a rename.
    fn write_heads(&self) -> Result<(), LedgerError> {
        let line = format!("{}\n", self.head);
        self.paths.witnesses.iter().try_for_each(|path| {
            let by = Replacement { new: &beside(path, ".new"), private: false, time: None };
            files::replace(&*self.disk, path, by, |out| out.write_all(line.as_bytes())).map_err(not_replaced)
        })
    }

    fn write(&mut self, entry: &Entry, attached: Attached<'_>) -> Result<(), LedgerError> {
        // What lies there may be another vector, that was kept later.
        let is_kept = attached.kept.is_some_and(|kept| self.kept == Some((entry.index(), kept)));
        if let Some(bytes) = attached.released.filter(|_| !is_kept) {
            self.write_pending(entry.index(), bytes)?;
        }
        self.kept = None;
        if let Some(record) = attached.participations {
            self.write_participations(record)?;
        }
        self.write_entry(entry)?;
        self.head = entry.head();
        self.write_heads()?;
        if attached.released.is_some() { self.publish(entry.index(), entry.time()) } else { Ok(()) }
    }
}

impl LedgerStore for FileStore {
    fn append(&mut self, after: &Head, entry: &Entry, attached: Attached<'_>) -> Result<Head, LedgerError> {
        self.refuse_writing()?;
        check_follows(after, &self.head)?;
        check_follows(&Head { length: entry.index(), hash: entry.previous() }, &self.head)?;
        self.poisoned = true;
        self.write(entry, attached)?;
        self.poisoned = false;
        Ok(self.head)
    }

    fn keep_vector(&mut self, index: u64, bytes: &[u8]) -> Result<Option<Keeping>, LedgerError> {
        self.refuse_writing()?;
        (self.kept, self.poisoned) = (None, true);
        self.write_pending(index, bytes)?;
        let keeping = Keeping::another();
        (self.kept, self.poisoned) = (Some((index, keeping)), false);
        Ok(Some(keeping))
    }

    fn read(&self, from: u64) -> Result<Box<dyn Iterator<Item = Result<Entry, LedgerError>> + '_>, LedgerError> {
        let path = &self.paths.ledger;
        let reader = self.disk.reader(path).map_err(failed("read", path))?;
        let reader = reader.ok_or_else(|| failed("read", path)(std::io::ErrorKind::NotFound.into()))?;
        let lines = Lines { reader, index: 0, length: self.head.length };
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let parse = move |(index, line): (u64, std::io::Result<Vec<u8>>)| {
            let line = line.map_err(failed("read", path))?;
            Entry::parse(&line).map_err(|problem| LedgerError::damaged(index, problem))
        };
        Ok(Box::new(lines.skip(from).map(parse)))
    }

    fn released(&self, index: u64) -> Result<Option<Vec<u8>>, LedgerError> {
        if self.discarded.has(index) {
            return Ok(None);
        }
        let path = self.vector_path(index);
        self.disk.read(&path).map_err(failed("read", &path))
    }

    fn discard_released(&mut self, below: u64) -> Result<(), LedgerError> {
        if self.lock.is_none() {
            return Err(LedgerError::ReadOnly);
        }
        self.discarded.finish()?;
        let superfluous = self.vectors()?.into_iter().filter(|(index, _)| *index < below);
        let paths = superfluous.map(|(_, path)| path).collect();
        self.discarded.take(&self.disk, below, paths)
    }

    fn participations(&self) -> Result<Option<Participations<'_>>, LedgerError> {
        let path = &self.paths.participations;
        let Some(reader) = self.disk.reader(path).map_err(failed("read", path))? else { return Ok(None) };
        let parse = |line: std::io::Result<String>| {
            let damaged = |problem: String| LedgerError::storage(format!("{} is damaged", path.display()), problem);
            ParticipationRecord::parse(&line.map_err(failed("read", path))?).map_err(damaged)
        };
        Ok(Some(Box::new(reader.lines().map(parse))))
    }

    fn begin_attempt(&mut self, begun: &BegunAttempt) -> Result<(), LedgerError> {
        if self.lock.is_none() {
            return Err(LedgerError::ReadOnly);
        }
        let line = serde_json::to_vec(begun).map_err(|e| LedgerError::storage("an attempt", e))?;
        self.begun().replace(&line)
    }

    fn begun_attempt(&self) -> Result<Option<BegunAttempt>, LedgerError> {
        let file = self.begun();
        let Some(bytes) = file.read()? else { return Ok(None) };
        let damaged = |problem: serde_json::Error| LedgerError::AttemptDamaged {
            place: file.path().display().to_string(),
            problem: problem.to_string(),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(damaged)
    }

    fn forget_attempt(&mut self) -> Result<(), LedgerError> {
        if self.lock.is_none() {
            return Err(LedgerError::ReadOnly);
        }
        self.begun().destroy()
    }

    fn head(&self) -> Result<Head, LedgerError> {
        Ok(self.head)
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The first lines of a file, as many as there are entries; a missing one is an empty line, which is no entry.
struct Lines {
    reader: Box<dyn BufRead>,
    index: u64,
    length: u64,
}

impl Iterator for Lines {
    type Item = (u64, std::io::Result<Vec<u8>>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.length {
            return None;
        }
        let index = self.index;
        self.index += 1;
        let mut line = Vec::new();
        let read = self.reader.read_until(b'\n', &mut line).map(|_| {
            line.pop_if(|last| *last == b'\n');
            line
        });
        Some((index, read))
    }
}
