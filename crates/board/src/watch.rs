//! Looks at the files of runs again and again, and reads those that changed.
//!
//! Looking costs a few calls of the system a run; reading checks the whole ledger, so a run is read when one of its logs changed and
//! at most a tenth of the time. Of a run with secret noise the logs grow with evaluations alone: its rounds are not told as they
//! come (rule P23). A run that is being written is read as it stands; what cannot be read is tried again.

use std::{
    collections::BTreeMap,
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
    home::{CONFIG_FILE, RunFolder, STATEMENT_JSON},
    metrics::{DIAGNOSTICS_FILE, METRICS_FILE, SAMPLES_FILE},
    run::Kept,
};
use report::board::{Run, Summary};

use crate::{
    folders::{self, Found},
    listing::{Board, Entry, Listed, State},
};

/// How often files are looked at.
const PAUSE: Duration = Duration::from_millis(700);
/// Folders are looked through for new runs so many times less often.
const LOOKS_A_SEARCH: u32 = 3;
/// A run may be read for this share of the time.
const READING: u32 = 10;
/// What did not change for so long does not run.
const QUIET: Duration = Duration::from_secs(120);
/// While many are read, the page is told so often.
const TOLD: Duration = Duration::from_millis(300);
/// A run that cannot be read so many times in a row is shown as such: one that is being begun is not whole yet.
const PATIENCE: u32 = 3;
/// What says that something of a run changed.
const FILES: [&str; 5] = [METRICS_FILE, DIAGNOSTICS_FILE, SAMPLES_FILE, CONFIG_FILE, STATEMENT_JSON];

/// How long a file is and when it was written; none where it is not there.
type Print = [Option<(u64, SystemTime)>; FILES.len()];

/// What is known of a run.
#[derive(Debug, Default)]
struct Known {
    print: Print,
    /// When it was read, and how long it is left alone.
    read: Option<(SystemTime, Duration)>,
    failures: u32,
    shown: Option<(Summary, Bytes)>,
    state: Option<State>,
    problem: Option<String>,
}

/// Looks at runs.
#[derive(Debug)]
pub struct Watcher {
    roots: Vec<PathBuf>,
    board: Board,
    looks: u32,
    found: Vec<Found>,
    known: BTreeMap<PathBuf, Known>,
}

impl Watcher {
    /// For the runs in these folders.
    #[must_use]
    pub fn new(roots: Vec<PathBuf>, board: Board) -> Self {
        Self { roots, board, looks: 0, found: Vec::new(), known: BTreeMap::new() }
    }

    /// Looks once, at this time.
    pub fn look(&mut self, now: SystemTime) {
        if self.looks.is_multiple_of(LOOKS_A_SEARCH) {
            self.found = folders::find(&self.roots);
            self.known.retain(|folder, _| self.found.iter().any(|found| found.folder == *folder));
        }
        self.looks = self.looks.wrapping_add(1);
        let (mut changed, mut told) = (Vec::new(), Instant::now());
        for found in &self.found {
            let known = self.known.entry(found.folder.clone()).or_default();
            changed.extend(known.look(found, now));
            if told.elapsed() > TOLD {
                told = Instant::now();
                self.board.update(std::mem::take(&mut changed), &|id| is_there(&self.found, id));
            }
        }
        self.board.update(changed, &|id| is_there(&self.found, id));
    }

    /// Goes on looking on a thread of its own until the guard is dropped.
    ///
    /// # Errors
    /// When there is no thread to be had.
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

/// Runs are looked at as long as this is there.
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
            // Whatever it died of was said by it.
            let _ = thread.join();
        }
    }
}

impl Known {
    /// Looks at a run, and reads it where that is worth it. Gives it where something is different.
    fn look(&mut self, found: &Found, now: SystemTime) -> Option<Entry> {
        let print = fingerprint(&found.folder);
        // A clock that was set back stops nothing.
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
        let state = self.state_at(now)?;
        let is_new = self.state.replace(state) != Some(state);
        let worth = is_new || (read && (self.failures == 0 || self.failures == PATIENCE));
        worth.then(|| self.entry(found, state))
    }

    /// None where it was not read yet, and it is too early to say that it cannot be.
    fn state_at(&self, now: SystemTime) -> Option<State> {
        let Some((summary, _)) = &self.shown else { return self.problem.as_ref().map(|_| State::Unreadable) };
        let newest = self.print.iter().flatten().map(|(_, time)| *time).max();
        let quiet = newest.and_then(|newest| now.duration_since(newest).ok()).unwrap_or_default();
        Some(match summary.ended {
            _ if self.problem.is_some() => State::Unreadable,
            Some(_) => State::Finished,
            None if quiet < QUIET => State::Running,
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

/// All that the page shows of a run, or why that cannot be had; without where it lies.
fn read_run(folder: &Path) -> Result<(Summary, Bytes), String> {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let here = folder.display().to_string();
    let without_place = |problem: String| problem.replace(&here, &name);
    let kept = Kept::read(&RunFolder::at(folder)).map_err(|error| without_place(error.to_string()))?;
    let detail = serde_json::to_vec(&Run::of(&kept)).map_err(|error| error.to_string())?;
    Ok((Summary::of(&kept), detail.into()))
}
