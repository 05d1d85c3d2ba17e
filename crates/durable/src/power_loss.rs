//! Simulated power loss: a disk that keeps any part of what was not synced, as an adversary chooses.
//!
//! Killing a process leaves the page cache alone, so it shows the order of writes but not that they are synced. Here a
//! crash may lose any unsynced write, in whole or in sectors, and any unsynced change of a folder, each by itself (the model
//! of Pillai et al. 2014). A test tells a story on it that is cut before every single operation, and compares what is there
//! after the restart with what was acknowledged. And every sync is needed: where a disk only pretends to do one kind of them,
//! the same check must find a loss.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Cursor, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    disk::{Disk, DiskFile, How, Lock},
    files::folder,
};

/// The size of an atomic write, in bytes: small, so that short files tear too.
pub const SECTOR: usize = 64;

#[derive(Debug, Clone, Default)]
struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
}

/// A change of names in a folder that was not synced yet: names that go, and one that comes.
#[derive(Debug, Clone)]
struct NameChange {
    folder: PathBuf,
    gone: Option<PathBuf>,
    come: Option<(PathBuf, Node)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Node {
    File(usize),
    Folder,
}

#[derive(Debug, Default)]
struct State {
    contents: Vec<Content>,
    live: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<NameChange>,
    locked: bool,
    operations: u64,
    crash_at: Option<u64>,
    /// Syncs of paths that end like this do nothing.
    lie: Option<&'static str>,
}

/// A disk that forgets. Its clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct LossyDisk(Arc<Mutex<State>>);

struct LossyFile {
    disk: LossyDisk,
    path: PathBuf,
    content: usize,
    offset: usize,
}

struct Held(LossyDisk);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

/// What happens to an unsynced write.
#[derive(Debug, Clone, Copy)]
pub enum Adversary {
    /// Everything that was not synced is lost.
    LosesAll,
    /// It was on the disk already.
    KeepsAll,
    /// Either, sector by sector and name by name, from a seed.
    Random(u64),
}

impl Adversary {
    fn keeps(&mut self) -> bool {
        match self {
            Self::LosesAll => false,
            Self::KeepsAll => true,
            Self::Random(state) => {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *state >> 62 & 1 == 1
            }
        }
    }

    fn tear(&mut self, content: &Content) -> Vec<u8> {
        let (old, new) = (&content.durable, &content.live);
        let length = if self.keeps() { new.len() } else { old.len() };
        let mut torn = Vec::with_capacity(length);
        while torn.len() < length {
            let source = if self.keeps() { new } else { old };
            let end = (torn.len() + SECTOR).min(length);
            torn.extend((torn.len()..end).map(|i| source.get(i).copied().unwrap_or_default()));
        }
        torn
    }
}

impl LossyDisk {
    /// A disk whose power goes at this operation, counted from 1.
    #[must_use]
    pub fn cut_at(operation: u64) -> Self {
        let disk = Self::default();
        disk.state().crash_at = Some(operation);
        disk
    }

    /// The same, which only pretends to sync paths that end like this.
    #[must_use]
    pub fn lying(self, about: Option<&'static str>) -> Self {
        self.state().lie = about;
        self
    }

    /// How many operations there were since the last restart.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// All names that files and folders have now.
    #[must_use]
    pub fn names(&self) -> Vec<PathBuf> {
        self.state().live.keys().cloned().collect()
    }

    /// The contents of the disk, including files that no longer have a name.
    #[must_use]
    pub fn platters(&self) -> Vec<Vec<u8>> {
        self.state().contents.iter().map(|content| content.durable.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation; the one at which the power goes does nothing, and neither does any after it.
    fn operate(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.operations += 1;
        match state.crash_at {
            Some(at) if state.operations >= at => Err(io::Error::other("the power is gone")),
            _ => Ok(state),
        }
    }

    /// The process dies, and the power stays: nothing is lost, and the lock is free.
    pub fn killed(&self, crash_at: Option<u64>) {
        let mut state = self.state();
        (state.locked, state.operations, state.crash_at) = (false, 0, crash_at);
    }

    /// The power comes back. What was not synced is as the adversary likes.
    pub fn restart(&self, adversary: &mut Adversary, crash_at: Option<u64>) {
        let mut state = self.state();
        for change in std::mem::take(&mut state.pending) {
            if adversary.keeps() {
                change.apply(&mut state.durable);
            }
        }
        // Whatever was in a folder that is gone is gone with it.
        let folders = state.live.iter().filter(|(_, node)| **node == Node::Folder).map(|(path, _)| path.clone());
        let gone: Vec<PathBuf> = folders.filter(|path| !state.durable.contains_key(path)).collect();
        state.durable.retain(|path, _| !gone.iter().any(|folder| path.starts_with(folder)));
        state.live = state.durable.clone();
        for content in &mut state.contents {
            content.live = adversary.tear(content);
            content.durable = content.live.clone();
        }
        drop(state);
        self.killed(crash_at);
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        if let Some(gone) = &self.gone {
            names.remove(gone);
        }
        if let Some((path, node)) = &self.come {
            names.insert(path.clone(), *node);
        }
    }
}

impl State {
    fn change(&mut self, path: &Path, gone: Option<&Path>, come: Option<Node>) {
        let change = NameChange {
            folder: folder(path).to_path_buf(),
            gone: gone.map(Path::to_path_buf),
            come: come.map(|node| (path.to_path_buf(), node)),
        };
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    fn is_lie(&self, path: &Path) -> bool {
        self.lie.is_some_and(|suffix| path.to_string_lossy().ends_with(suffix))
    }
}

/// Within memory.
fn position(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for LossyDisk {
    fn reader(&self, path: &Path) -> io::Result<Option<Box<dyn BufRead>>> {
        let state = self.state();
        match state.live.get(path) {
            Some(Node::File(content)) => Ok(Some(Box::new(Cursor::new(state.contents[*content].live.clone())))),
            _ => Ok(None),
        }
    }

    fn writer(&self, path: &Path, how: How) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.operate()?;
        let known = match state.live.get(path) {
            Some(Node::File(content)) => Some(*content),
            _ => None,
        };
        let content = match (known, how) {
            (Some(_), How::New { .. }) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, How::Append | How::At(_)) => return Err(missing()),
            (Some(content), _) => content,
            (None, _) => {
                state.contents.push(Content::default());
                let content = state.contents.len() - 1;
                state.change(path, None, Some(Node::File(content)));
                content
            }
        };
        let live = &mut state.contents[content].live;
        let offset = match how {
            How::Replace => {
                live.clear();
                0
            }
            How::At(offset) => position(offset),
            How::Append | How::New { .. } => live.len(),
        };
        drop(state);
        Ok(Box::new(LossyFile { disk: self.clone(), path: path.to_path_buf(), content, offset }))
    }

    fn create_folder(&self, path: &Path, _private: bool) -> io::Result<bool> {
        let mut state = self.operate()?;
        if state.live.contains_key(path) {
            return Ok(false);
        }
        let above = folder(path);
        if above != Path::new("/") && above != Path::new(".") && state.live.get(above) != Some(&Node::Folder) {
            return Err(missing());
        }
        state.change(path, None, Some(Node::Folder));
        Ok(true)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.state().live.keys().filter(|path| path.parent() == Some(folder)).cloned().collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        let node = *state.live.get(from).ok_or_else(missing)?;
        state.change(to, Some(from), Some(node));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.operate()?.change(path, Some(path), None);
        Ok(())
    }

    fn set_time(&self, _path: &Path, _time: u64) -> io::Result<()> {
        self.operate().map(drop)
    }

    fn open_to_all(&self, _path: &Path) -> io::Result<()> {
        self.operate().map(drop)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        if state.is_lie(folder) {
            return Ok(());
        }
        let (done, pending) =
            std::mem::take(&mut state.pending).into_iter().partition(|c: &NameChange| c.folder == folder);
        state.pending = pending;
        done.iter().for_each(|change: &NameChange| change.apply(&mut state.durable));
        Ok(())
    }

    fn mode(&self, path: &Path) -> io::Result<Option<u32>> {
        Ok(self.state().live.get(path).map(|node| if *node == Node::Folder { 0o700 } else { 0o600 }))
    }

    fn has_one_name(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Lock>> {
        let mut state = self.operate()?;
        if std::mem::replace(&mut state.locked, true) {
            return Ok(None);
        }
        Ok(Some(Box::new(Held(self.clone()))))
    }
}

impl Write for LossyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.operate()?;
        let live = &mut state.contents[self.content].live;
        let end = self.offset + bytes.len();
        live.resize(live.len().max(end), 0);
        live[self.offset..end].copy_from_slice(bytes);
        self.offset = end;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for LossyFile {
    fn set_length(&mut self, length: u64) -> io::Result<()> {
        let length = position(length);
        self.disk.operate()?.contents[self.content].live.resize(length, 0);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.operate()?;
        if !state.is_lie(&self.path) {
            let content = &mut state.contents[self.content];
            content.durable = content.live.clone();
        }
        Ok(())
    }
}
