//! Polls the files of runs, and reads those that changed.
//!
//! Checking costs a few system calls per run. Reading verifies the whole ledger, so a run is only read when one of its logs has changed, and
//! for at most a tenth of the time. The logs of a run with secret noise only grow with evaluations, so its rounds are not shown as they
//! come (rule P23). A run that is being written is read as it is; what cannot be read is tried again.
//!
//! Folders of runs may come from others: what is not a regular file, such as a named pipe, is not opened, for it could block for ever.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use federated::{
    home::{CONFIG_FILE, LEDGER_FILE, RunFolder, STATEMENT_JSON},
    metrics::{DIAGNOSTICS_FILE, METRICS_FILE, SAMPLES_FILE, TIMING_FILE},
    run::Kept,
};
use report::board::{Run, Summary};

use crate::{
    folders::{self, Found},
    listing::{Board, Entry, Listed, State},
};

/// How often files are checked.
const PAUSE: Duration = Duration::from_millis(700);
/// Folders are searched for new runs at every third check.
const LOOKS_A_SEARCH: u32 = 3;
/// After reading a run, the time that it took, this many times, passes before it is read again.
const READING: u32 = 10;
/// A run that did not change for this long, and that no process on this machine holds, has stopped.
const QUIET: Duration = Duration::from_secs(120);
/// How often pages are updated while many runs are read.
const TOLD: Duration = Duration::from_millis(300);
/// A run that cannot be read this many times in a row is shown as unreadable. One that is just starting may be incomplete.
const PATIENCE: u32 = 3;
/// The files whose change means that a run has changed.
const FILES: [&str; 5] = [METRICS_FILE, DIAGNOSTICS_FILE, SAMPLES_FILE, CONFIG_FILE, STATEMENT_JSON];

/// The largest log that is read, in bytes: that of a million rounds is a third of it.
const LARGEST: u64 = 1 << 30;

/// Length and modification time of each file, if it exists.
type Print = [Option<(u64, SystemTime)>; FILES.len()];

/// What is known about a run.
#[derive(Debug, Default)]
struct Known {
    print: Print,
    /// When it was read, and how long it is not read again.
    read: Option<(SystemTime, Duration)>,
    failures: u32,
    shown: Option<(Summary, Bytes)>,
    state: Option<State>,
    problem: Option<String>,
}

/// Watches runs.
#[derive(Debug)]
pub struct Watcher {
    roots: Vec<PathBuf>,
    board: Board,
    looks: u32,
    found: Vec<Found>,
    known: BTreeMap<PathBuf, Known>,
}

impl Watcher {
    /// Watches the runs in these folders.
    #[must_use]
    pub fn new(roots: Vec<PathBuf>, board: Board) -> Self {
        Self { roots, board, looks: 0, found: Vec::new(), known: BTreeMap::new() }
    }

    /// Checks all runs once, as if at this time.
    pub fn look(&mut self, now: SystemTime) {
        if self.looks.is_multiple_of(LOOKS_A_SEARCH) {
            self.found = folders::find(&self.roots);
            self.known.retain(|folder, _| self.found.iter().any(|found| found.folder == *folder));
        }
        self.looks = self.looks.wrapping_add(1);
        let (mut changed, mut told) = (Vec::new(), Instant::now());
        let held = Held::now();
        for found in &self.found {
            let known = self.known.entry(found.folder.clone()).or_default();
            changed.extend(known.look(found, now, &held));
            if told.elapsed() > TOLD {
                told = Instant::now();
                self.board.update(std::mem::take(&mut changed), &|id| is_there(&self.found, id));
            }
        }
        self.board.update(changed, &|id| is_there(&self.found, id));
    }

    /// Watches on its own thread until the guard is dropped.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(mut self) -> io::Result<Watching> {
        let over = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&over);
        let work = move || {
            while !asked.load(Ordering::Relaxed) {
                self.look(SystemTime::now());
                std::thread::park_timeout(PAUSE);
            }
        };
        let thread = std::thread::Builder::new().name("board".into()).spawn(work)?;
        Ok(Watching { over, thread: Some(thread) })
    }
}

fn is_there(found: &[Found], id: &str) -> bool {
    found.iter().any(|found| found.id == id)
}

/// Runs are watched until this is dropped.
#[derive(Debug)]
pub struct Watching {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // If it panicked, it has said so.
            let _ = thread.join();
        }
    }
}

impl Known {
    /// Checks a run, and reads it if it has changed. Returns it if what is shown differs.
    fn look(&mut self, found: &Found, now: SystemTime, held: &Held) -> Option<Entry> {
        let print = fingerprint(&found.folder);
        // A clock that was set back does no harm.
        let rests = |(at, pause): (SystemTime, Duration)| now.duration_since(at).is_ok_and(|since| since < pause);
        let is_due = !self.read.is_some_and(rests);
        let read = is_due && (print != self.print || self.failures > 0);
        if read {
            let start = Instant::now();
            match read_run(&found.folder) {
                Ok(shown) => (self.shown, self.failures, self.problem) = (Some(shown), 0, None),
                Err(problem) => {
                    self.failures += 1;
                    self.problem = Some(problem).filter(|_| self.failures >= PATIENCE);
                }
            }
            self.print = print;
            self.read = Some((now, READING * start.elapsed()));
        }
        let state = self.state_at(now, held.has(&found.folder))?;
        let is_new = self.state.replace(state) != Some(state);
        let worth = is_new || (read && (self.failures == 0 || self.failures == PATIENCE));
        worth.then(|| self.entry(found, state))
    }

    /// None if it was not read yet, and it is too early to call it unreadable.
    fn state_at(&self, now: SystemTime, is_held: bool) -> Option<State> {
        let Some((summary, _)) = &self.shown else { return self.problem.as_ref().map(|_| State::Unreadable) };
        let newest = self.print.iter().flatten().map(|(_, time)| *time).max();
        let quiet = newest.and_then(|newest| now.duration_since(newest).ok()).unwrap_or_default();
        Some(match summary.ended {
            _ if self.problem.is_some() => State::Unreadable,
            Some(_) => State::Finished,
            None if is_held || quiet < QUIET => State::Running,
            None => State::Stopped,
        })
    }

    fn entry(&self, found: &Found, state: State) -> Entry {
        let (summary, detail) = self.shown.clone().unzip();
        let problem = self.problem.clone();
        Entry { listed: Listed { id: found.id.clone(), version: 0, state, problem, summary }, detail }
    }
}

fn fingerprint(folder: &Path) -> Print {
    FILES.map(|file| {
        let meta = fs::metadata(folder.join(file)).ok()?;
        Some((meta.len(), meta.modified().ok()?))
    })
}

/// The locks of files that processes on this machine hold. A run that trains holds that of its ledger, however long its rounds take. Locks are
/// listed, not tried: a lock that is tried, even for a moment, could be in the way of a run that starts.
struct Held {
    /// As `/proc/locks` names files; empty where there is no such list.
    inodes: BTreeSet<u64>,
}

impl Held {
    fn now() -> Self {
        let list = fs::read_to_string("/proc/locks").unwrap_or_default();
        Self { inodes: list.lines().filter_map(locked_file).collect() }
    }

    fn has(&self, run: &Path) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let meta = fs::metadata(run.join(format!("{LEDGER_FILE}.lock")));
            !self.inodes.is_empty() && meta.is_ok_and(|meta| self.inodes.contains(&meta.ino()))
        }
        #[cfg(not(unix))]
        {
            let _ = run;
            false
        }
    }
}

/// The inode of a line such as `1: FLOCK  ADVISORY  WRITE 708 08:01:3409 0 EOF`.
fn locked_file(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", _, place, ..] = words[..] else { return None };
    place.rsplit(':').next()?.parse().ok()
}

/// Refuses what could block for ever, or fill the memory.
fn check_files(folder: &Path) -> Result<(), String> {
    for file in FILES.into_iter().chain([LEDGER_FILE, TIMING_FILE]) {
        let Ok(meta) = fs::metadata(folder.join(file)) else { continue };
        if !meta.is_file() {
            return Err(format!("{file} is not a regular file"));
        }
        if file != LEDGER_FILE && meta.len() > LARGEST {
            return Err(format!("{file} has {} bytes, and the board reads at most {LARGEST}", meta.len()));
        }
    }
    Ok(())
}

/// Everything that the page shows of a run, or why it cannot be read; without the path of its folder.
fn read_run(folder: &Path) -> Result<(Summary, Bytes), String> {
    check_files(folder)?;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let here = folder.display().to_string();
    let without_place = |problem: String| problem.replace(&here, &name);
    let kept = Kept::read(&RunFolder::at(folder)).map_err(|error| without_place(error.to_string()))?;
    let detail = serde_json::to_vec(&Run::of(&kept)).map_err(|error| error.to_string())?;
    Ok((Summary::of(&kept), detail.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_read_from_their_list() {
        assert_eq!(locked_file("1: FLOCK  ADVISORY  WRITE 708 08:01:3409 0 EOF"), Some(3409));
        assert_eq!(locked_file("2: POSIX  ADVISORY  READ  708 08:01:3409 128 128"), None);
        assert_eq!(locked_file("1: -> FLOCK  ADVISORY  WRITE 9 08:01:3409 0 EOF"), None, "it only waits");
        assert_eq!(locked_file(""), None);
    }
}
