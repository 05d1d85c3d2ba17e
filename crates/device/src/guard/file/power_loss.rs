//! Power loss, simulated: a disk that keeps, of what was not synced, whatever an adversary likes.
//!
//! Killing a process leaves the page cache alone, so it shows the order of writes but not that they are synced. Here a
//! crash may lose any unsynced write, in whole or in sectors, and any unsynced change of a name, each by itself. A story
//! (begin, then one permit after the other) is cut before every single operation; no permit that was given may be given
//! again after the restart, also when the recovery is cut too. And every sync is needed: where a disk only pretends to
//! do one kind of them, the same check finds a second permit, or a guard that does not open.

use std::{
    any::Any,
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use super::{
    FileStore,
    disk::{Disk, DiskFile},
};
use crate::guard::{Asked, Day, Guard, GuardError, Limits, ModelDigest, TaskDigest, Window};

const SECTOR: usize = 64;

#[derive(Debug, Clone, Default)]
struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
}

/// A change of names that was not synced yet: one that goes, and one that comes.
#[derive(Debug, Clone)]
struct NameChange {
    gone: Option<PathBuf>,
    come: Option<(PathBuf, usize)>,
}

#[derive(Debug, Default)]
struct State {
    contents: Vec<Content>,
    live: BTreeMap<PathBuf, usize>,
    durable: BTreeMap<PathBuf, usize>,
    pending: Vec<NameChange>,
    locked: bool,
    operations: u64,
    crash_at: Option<u64>,
    /// Syncs of paths that end like this do nothing.
    lie: Option<&'static str>,
}

#[derive(Debug, Clone, Default)]
struct SimDisk(Arc<Mutex<State>>);

struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    content: usize,
}

struct SimLock(SimDisk);

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

/// What an unsynced write becomes.
#[derive(Debug, Clone, Copy)]
enum Adversary {
    LosesAll,
    KeepsAll,
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

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        if let Some(gone) = &self.gone {
            names.remove(gone);
        }
        if let Some((path, content)) = &self.come {
            names.insert(path.clone(), *content);
        }
    }
}

impl State {
    fn change(&mut self, gone: Option<&Path>, come: Option<(&Path, usize)>) {
        let change = NameChange {
            gone: gone.map(Path::to_path_buf),
            come: come.map(|(path, content)| (path.to_path_buf(), content)),
        };
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    fn is_lie(&self, path: &Path) -> bool {
        self.lie.is_some_and(|suffix| path.to_string_lossy().ends_with(suffix))
    }
}

impl SimDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
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

    /// The power comes back. What was not synced is as the adversary likes.
    fn restart(&self, adversary: &mut Adversary, crash_at: Option<u64>) {
        let mut state = self.state();
        for change in std::mem::take(&mut state.pending) {
            if adversary.keeps() {
                change.apply(&mut state.durable);
            }
        }
        state.live = state.durable.clone();
        for content in &mut state.contents {
            content.live = adversary.tear(content);
            content.durable = content.live.clone();
        }
        (state.locked, state.operations, state.crash_at) = (false, 0, crash_at);
    }

    /// The process dies and the power stays: nothing is lost, and nothing is synced.
    fn killed(&self, crash_at: Option<u64>) {
        let mut state = self.state();
        (state.locked, state.operations, state.crash_at) = (false, 0, crash_at);
    }
}

impl Disk for SimDisk {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let state = self.state();
        Ok(state.live.get(path).map(|content| state.contents[*content].live.clone()))
    }

    fn create_private(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.operate()?;
        if state.live.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.contents.push(Content::default());
        let content = state.contents.len() - 1;
        state.change(None, Some((path, content)));
        Ok(Box::new(SimFile { disk: self.clone(), path: path.to_path_buf(), content }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        let content = *state.live.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.change(Some(from), Some((to, content)));
        Ok(())
    }

    fn remove_if_there(&self, path: &Path) -> io::Result<()> {
        self.operate()?.change(Some(path), None);
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        if !state.is_lie(folder) {
            state.pending.clear();
            state.durable = state.live.clone();
        }
        Ok(())
    }

    fn mode(&self, path: &Path) -> io::Result<Option<u32>> {
        Ok(self.state().live.get(path).map(|_| 0o600))
    }

    fn has_one_name(&self, _: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let mut state = self.operate()?;
        if std::mem::replace(&mut state.locked, true) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock(self.clone()))))
    }
}

impl DiskFile for SimFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.operate()?.contents[self.content].live.extend_from_slice(bytes);
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

const STEPS: u64 = 4;

const NO_LIMITS: Limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None };

/// What the story had before the power went.
#[derive(Debug, Default)]
struct Told {
    begun: bool,
    permits: Vec<u64>,
}

fn asked(step: u64) -> Asked {
    Asked { task: TaskDigest([1; 32]), step, model: ModelDigest::of(&[step as f32]) }
}

fn store(disk: &SimDisk) -> Result<FileStore, GuardError> {
    Ok(FileStore::on(Arc::new(disk.clone()), "/device/guard".into())?)
}

/// Opens the guard, or begins it where it never was, and asks for every step from the first on.
fn story(disk: &SimDisk, told: &mut Told) -> Result<(), String> {
    let said = |e: GuardError| e.to_string();
    let opened = match Guard::open(store(disk).map_err(said)?) {
        Err(GuardError::Missing) if !told.begun => Guard::begin(store(disk).map_err(said)?),
        opened => opened,
    };
    let mut guard = opened.map_err(said)?;
    told.begun = true;
    for step in 0..STEPS {
        if guard.allow(asked(step), &NO_LIMITS, Day(0)).is_ok() {
            told.permits.push(step);
        }
    }
    Ok(())
}

/// After the last restart: the guard opens, no step has left twice, and a new one may leave.
fn check(disk: &SimDisk, told: &mut Told) -> Result<(), String> {
    story(disk, told)?;
    let mut once = told.permits.clone();
    once.sort_unstable();
    once.dedup();
    if once.len() != told.permits.len() {
        return Err(format!("two inputs for one step: {:?}", told.permits));
    }
    let mut guard = store(disk).and_then(Guard::open).map_err(|e| e.to_string())?;
    guard.allow(asked(STEPS), &NO_LIMITS, Day(0)).map(drop).map_err(|e| e.to_string())
}

/// Cuts the story before each of its operations, against several adversaries; how many crashes, and what they broke.
fn violations(lie: Option<&'static str>) -> (u64, Vec<String>) {
    let (mut crashes, mut found) = (0, Vec::new());
    for crash_at in 1.. {
        let mut finished = false;
        for case in 0..24 {
            let mut adversary = match case {
                0 | 1 => Adversary::LosesAll,
                2 | 3 => Adversary::KeepsAll,
                _ => Adversary::Random(crash_at * 1000 + case),
            };
            let disk = SimDisk::default();
            (disk.state().crash_at, disk.state().lie) = (Some(crash_at), lie);
            let mut told = Told::default();
            let _ = story(&disk, &mut told);
            finished = disk.state().operations < crash_at;
            crashes += 1;
            // In every other case the process is killed first, and then the recovery is cut too.
            if case % 2 == 1 {
                disk.killed(Some(crash_at % 7 + 1));
                let _ = story(&disk, &mut told);
                disk.restart(&mut adversary, Some(crash_at % 11 + 1));
                let _ = story(&disk, &mut told);
                crashes += 2;
            }
            disk.restart(&mut adversary, None);
            found.extend(check(&disk, &mut told).err().map(|e| format!("cut at {crash_at}, {adversary:?}: {e}")));
        }
        if finished || (lie.is_some() && !found.is_empty()) {
            break;
        }
    }
    (crashes, found)
}

#[test]
fn p24_after_any_loss_of_power_no_step_leaves_twice() {
    let (crashes, found) = violations(None);
    assert!(found.is_empty(), "{} of {crashes}:\n{}", found.len(), found.join("\n"));
    assert!(crashes > 1000, "only {crashes} crashes: the story is too short to show anything");
}

#[test]
fn p24_every_sync_of_the_guard_is_needed() {
    for lie in [".new", "/device"] {
        let (crashes, found) = violations(Some(lie));
        assert!(!found.is_empty(), "{crashes} crashes and no loss without syncing {lie}: why is it synced?");
    }
}
