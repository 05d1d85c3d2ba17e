//! What the operators of a server may see while it runs (rule P26): counts and times of check-ins and reports, in memory.
//!
//! Under zero-out adjacency the guarantee does not hide who came, and all of this is outside the guarantee: what shows it says so
//! ([`OUTSIDE`]). Nothing here is about what somebody typed, and nothing tells one device from another: keys, tickets and addresses never get here. The
//! coordinator counts how the parts of devices went (`federated::protocol::seen`, with what the shapes mean and which of their signs a server only
//! infers), and forgets the devices itself.
//!
//! All is bounded: counters, six hours in bins of ten seconds, and the last attempts of each task. It is fed by the threads of the runtime (atomics and a
//! short lock) and by the coordinator's thread, which has nothing else to do for it than to look four times a second.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use device::{
    guard::TaskDigest,
    protocol::message::{Answer, Reason, Says},
};
use federated::protocol::{
    coordinator::Coordinator,
    seen::{Progress, Seen, Shape, Shapes},
    store::AttemptAt,
};
use serde::Serialize;
use tokio::sync::watch;

/// What is to be said wherever any of this is shown.
pub const OUTSIDE: &str = "exact; for operators only, not covered by the guarantee";

/// The width of a bin, and how many are kept: six hours.
pub const BIN_S: u64 = 10;
const BINS: usize = 6 * 360;
/// Attempts that are kept of each stream of a task.
const MOST_ATTEMPTS: usize = 50;
/// How often it is looked at the coordinator, and who watches is told, at most.
const LOOK_MS: u64 = 250;

/// What is counted since the server was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Check-ins that came, whatever they were answered.
    CheckIns,
    /// Check-ins that were given an attempt.
    CheckInsAssigned,
    /// Check-ins that were told to come back later.
    CheckInsLater,
    /// Check-ins of devices that are not enrolled.
    CheckInsStranger,
    /// Check-ins that were refused for another reason.
    CheckInsRefused,
    /// Enrolments that were accepted. One that enrols again counts again.
    EnrolmentsAccepted,
    /// Enrolments by devices without the token, or that were not attested.
    EnrolmentsNotAdmitted,
    /// Enrolments beyond the limits.
    EnrolmentsTooMany,
    /// Enrolments that were refused for another reason.
    EnrolmentsRefused,
    /// Whole reports that were accepted.
    ReportsAccepted,
    /// Reports that came late, or when the attempt needed no more.
    ReportsLate,
    /// Reports of attempts that are no more.
    ReportsClosed,
    /// What came as a report was none, or broke its bounds.
    ReportsWrong,
    /// Reports that were refused for another reason.
    ReportsRefused,
    /// Chunks of reports that were told to wait: there was no room, or the server had just been started.
    ReportsToldToWait,
    /// Messages of secure aggregation that were answered.
    SecureMessages,
    /// Messages that were no request: malformed, with a signature or a clock that is wrong, or of another version.
    Unreadable,
    /// Answers of the server that say that it cannot continue.
    Internal,
    /// Bytes of reports that came.
    ReportBytes,
    /// Bytes of tasks and models that were sent, packed.
    BlobBytes,
    /// Tasks and models that were asked for.
    Blobs,
}

impl Count {
    /// All counters.
    pub const ALL: [Self; 21] = [
        Self::CheckIns,
        Self::CheckInsAssigned,
        Self::CheckInsLater,
        Self::CheckInsStranger,
        Self::CheckInsRefused,
        Self::EnrolmentsAccepted,
        Self::EnrolmentsNotAdmitted,
        Self::EnrolmentsTooMany,
        Self::EnrolmentsRefused,
        Self::ReportsAccepted,
        Self::ReportsLate,
        Self::ReportsClosed,
        Self::ReportsWrong,
        Self::ReportsRefused,
        Self::ReportsToldToWait,
        Self::SecureMessages,
        Self::Unreadable,
        Self::Internal,
        Self::ReportBytes,
        Self::BlobBytes,
        Self::Blobs,
    ];
}

/// What a device asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// To enrol.
    Enrol,
    /// To take part.
    CheckIn,
    /// How its part stands.
    Next,
    /// A message of secure aggregation.
    Secure,
    /// Nothing that could be read.
    Unreadable,
}

/// Check-ins and reports of ten seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Bin {
    /// Check-ins that came.
    pub check_ins: u32,
    /// Reports that were accepted.
    pub reports: u32,
    /// Reports that were refused.
    pub refused: u32,
}

/// Check-ins and reports over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Series {
    /// When the first bin begins, in milliseconds since 1970.
    pub from_ms: u64,
    /// The width of a bin, in seconds.
    pub bin_s: u64,
    /// The bins, the latest last. The last one is not over.
    pub bins: Vec<Bin>,
}

/// How an attempt stands, or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Devices may still be given it, or report.
    Open,
    /// Its sum was released.
    Released,
    /// There is no sum, and the ledger says so.
    Failed,
    /// The task was ended, or cannot continue, while it was open.
    GivenUp,
}

/// An attempt at a round, or at an evaluation by devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttemptSeen {
    /// Which round or evaluation, from 1.
    pub number: u64,
    /// Which attempt at it, from 1.
    pub attempt: u32,
    /// How many reports the sum is of.
    pub goal: u64,
    /// Whether the sum is made by secure aggregation.
    pub secure: bool,
    /// When it was opened, in milliseconds since 1970; after a restart, when it was opened again.
    pub opened_ms: u64,
    /// When it was first given to devices.
    pub assigned_ms: Option<u64>,
    /// When it was settled, or given up.
    pub ended_ms: Option<u64>,
    /// How it stands, or ended.
    pub ended: Ended,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// Devices that were given it.
    pub asked: u64,
    /// Reports in its sum; with secure aggregation, masked inputs that were taken.
    pub reported: u64,
    /// Devices that dropped out while it was open.
    pub dropped: u64,
    /// How many devices' parts had which session shape, once it is over. Devices still at work then are added when their time is over.
    pub shapes: BTreeMap<&'static str, u64>,
}

impl AttemptSeen {
    fn far(&mut self, progress: Progress) {
        let Progress { asked, reported, dropped, since_ms } = progress;
        (self.asked, self.reported, self.dropped, self.assigned_ms) = (asked, reported, dropped, since_ms);
    }

    fn add(&mut self, shapes: &Shapes) {
        for shape in Shape::ALL.into_iter().filter(|shape| shapes.of(*shape) > 0) {
            *self.shapes.entry(shape.signs()).or_default() += shapes.of(shape);
        }
    }
}

/// Either the rounds of a task or its evaluations by devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct StreamSeen {
    /// Devices that wait to be asked. One may wait for several tasks.
    pub waiting: u64,
    /// Its latest attempts, the last one last.
    pub attempts: VecDeque<AttemptSeen>,
    /// Attempts that were released since the server was started.
    pub released: u64,
    /// Attempts that failed since the server was started.
    pub failed: u64,
    /// Devices that dropped out of attempts that are over, since the server was started.
    pub dropped: u64,
    /// How long attempts took that are over, from when devices were given them: all together, in milliseconds.
    pub took_ms: u64,
    /// When the last attempt was released, in milliseconds since 1970.
    pub released_ms: Option<u64>,
    /// The session shapes of all attempts since the server was started.
    pub shapes: BTreeMap<&'static str, u64>,
}

impl StreamSeen {
    fn of(&mut self, at: &AttemptAt) -> Option<&mut AttemptSeen> {
        self.attempts.iter_mut().rev().find(|seen| (seen.number, seen.attempt) == (at.round + 1, at.attempt + 1))
    }

    fn opens(&mut self, at: &AttemptAt, goal: u64, secure: bool, now_ms: u64) {
        if self.of(at).is_some() {
            return;
        }
        if self.attempts.len() == MOST_ATTEMPTS {
            self.attempts.pop_front();
        }
        self.attempts.push_back(AttemptSeen {
            number: at.round + 1,
            attempt: at.attempt + 1,
            goal,
            secure,
            opened_ms: now_ms,
            assigned_ms: None,
            ended_ms: None,
            ended: Ended::Open,
            why: None,
            asked: 0,
            reported: 0,
            dropped: 0,
            shapes: BTreeMap::new(),
        });
    }

    fn ends(&mut self, at: &AttemptAt, ended: Ended, progress: Progress, now_ms: u64) {
        match ended {
            Ended::Released => (self.released, self.released_ms) = (self.released + 1, Some(now_ms)),
            _ => self.failed += 1,
        }
        self.dropped += progress.dropped;
        self.took_ms += progress.since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        if let Some(attempt) = self.of(at) {
            attempt.far(progress);
            (attempt.ended, attempt.ended_ms) = (ended, Some(now_ms));
        }
    }

    fn had(&mut self, at: &AttemptAt, shapes: &Shapes) {
        for shape in Shape::ALL.into_iter().filter(|shape| shapes.of(*shape) > 0) {
            *self.shapes.entry(shape.signs()).or_default() += shapes.of(shape);
        }
        if let Some(attempt) = self.of(at) {
            attempt.add(shapes);
        }
    }

    fn is_given_up(&mut self, now_ms: u64) {
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.ended == Ended::Open) {
            (attempt.ended, attempt.ended_ms) = (Ended::GivenUp, Some(now_ms));
        }
    }
}

/// What is seen of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TaskSeen {
    /// The task's name.
    pub task: String,
    /// Whether it cannot continue until the server is restarted.
    pub broken: bool,
    /// Its rounds.
    pub rounds: StreamSeen,
    /// Its evaluations by devices, where there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluations: Option<StreamSeen>,
}

/// All that is seen of a server at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// What this is worth.
    pub note: &'static str,
    /// When it was taken, in milliseconds since 1970.
    pub at_ms: u64,
    /// When the server was started.
    pub started_ms: u64,
    /// What was counted since then.
    pub counts: BTreeMap<Count, u64>,
    /// Devices that are enrolled.
    pub enrolled: u64,
    /// Devices that wait for an answer to their check-in.
    pub waiting: u64,
    /// Memory that incoming reports take, of how much, in bytes.
    pub report_memory: (u64, u64),
    /// Its tasks, by name.
    pub tasks: Vec<TaskSeen>,
}

/// What depends on more than one number.
#[derive(Debug, Default)]
struct Kept {
    started_ms: u64,
    /// The latest moment that was told.
    now_ms: u64,
    /// The number of the last bin, in bins since 1970.
    last_bin: u64,
    bins: VecDeque<Bin>,
    enrolled: u64,
    waiting: u64,
    report_memory: (u64, u64),
    /// Whose task a digest is, and whether it is that of its evaluations.
    streams: BTreeMap<TaskDigest, (String, bool)>,
    tasks: BTreeMap<String, TaskSeen>,
    looked_ms: u64,
}

impl Kept {
    fn stream(&mut self, digest: &TaskDigest) -> Option<&mut StreamSeen> {
        let (name, is_evaluation) = self.streams.get(digest)?;
        let task = self.tasks.get_mut(name)?;
        if *is_evaluation { task.evaluations.as_mut() } else { Some(&mut task.rounds) }
    }

    /// The bin of this moment. A moment before the last one counts in the last one.
    fn bin(&mut self, now_ms: u64) -> Option<&mut Bin> {
        self.passes(now_ms);
        self.bins.back_mut()
    }

    fn passes(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        let number = now_ms / (BIN_S * 1000);
        if self.bins.is_empty() || number > self.last_bin + BINS as u64 {
            self.bins.clear();
            self.bins.push_back(Bin::default());
            self.last_bin = number;
        }
        while self.last_bin < number {
            self.last_bin += 1;
            self.bins.push_back(Bin::default());
            if self.bins.len() > BINS {
                self.bins.pop_front();
            }
        }
    }
}

/// What the operators of a server may see. Shared by all who feed and show it.
#[derive(Debug)]
pub struct Observed {
    counts: [AtomicU64; Count::ALL.len()],
    kept: Mutex<Kept>,
    /// Whether there is something new since who watches was told.
    changed: AtomicBool,
    ticks: watch::Sender<u64>,
}

impl Default for Observed {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; Count::ALL.len()],
            kept: Mutex::default(),
            changed: AtomicBool::new(false),
            ticks: watch::Sender::new(0),
        }
    }
}

impl Observed {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, count: Count, many: u64) {
        self.counts[count as usize].fetch_add(many, Ordering::Relaxed);
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Ticks when something has changed, four times a second at most. The number says nothing.
    #[must_use]
    pub fn ticks(&self) -> watch::Receiver<u64> {
        self.ticks.subscribe()
    }

    /// A counter.
    #[must_use]
    pub fn count(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// All but the time series.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let counts = Count::ALL.into_iter().map(|count| (count, self.count(count))).collect();
        let kept = self.kept();
        Snapshot {
            note: OUTSIDE,
            at_ms: kept.now_ms,
            started_ms: kept.started_ms,
            counts,
            enrolled: kept.enrolled,
            waiting: kept.waiting,
            report_memory: kept.report_memory,
            tasks: kept.tasks.values().cloned().collect(),
        }
    }

    /// Check-ins and reports over the last hours.
    #[must_use]
    pub fn series(&self) -> Series {
        let kept = self.kept();
        let first = (kept.last_bin + 1).saturating_sub(kept.bins.len() as u64);
        Series { from_ms: first * BIN_S * 1000, bin_s: BIN_S, bins: kept.bins.iter().copied().collect() }
    }

    /// What is seen of one task.
    #[must_use]
    pub fn task(&self, name: &str) -> Option<TaskSeen> {
        self.kept().tasks.get(name).cloned()
    }

    /// The server has begun.
    pub(crate) fn starts(&self, now_ms: u64) {
        let mut kept = self.kept();
        (kept.started_ms, kept.looked_ms) = (now_ms, now_ms);
        kept.passes(now_ms);
    }

    /// A task is served, and these are the digests of its rounds and its evaluations.
    pub(crate) fn serves(&self, name: &str, digest: TaskDigest, is_evaluation: bool) {
        let mut kept = self.kept();
        kept.streams.insert(digest, (name.to_owned(), is_evaluation));
        let task = kept.tasks.entry(name.to_owned()).or_default();
        name.clone_into(&mut task.task);
        if is_evaluation {
            task.evaluations.get_or_insert_default();
        }
        self.changed.store(true, Ordering::Relaxed);
    }

    /// A device asks for something.
    pub(crate) fn asks(&self, asked: Asked, now_ms: u64) {
        if asked == Asked::CheckIn {
            self.add(Count::CheckIns, 1);
            if let Some(bin) = self.kept().bin(now_ms) {
                bin.check_ins += 1;
            }
        }
    }

    /// What a device was answered.
    pub(crate) fn answers(&self, asked: Asked, answer: &Answer) {
        let reason = match &answer.says {
            Some(Says::Refused(refused)) => Some(Reason::try_from(refused.reason).unwrap_or(Reason::Internal)),
            _ => None,
        };
        if reason == Some(Reason::Internal) {
            return self.add(Count::Internal, 1);
        }
        let count = match (asked, &answer.says, reason) {
            (Asked::Unreadable, ..) => Count::Unreadable,
            (Asked::CheckIn, Some(Says::Assignment(_)), _) => Count::CheckInsAssigned,
            (Asked::CheckIn, Some(Says::Later(_) | Says::Wait(_)), _) => Count::CheckInsLater,
            (Asked::CheckIn, _, Some(Reason::Stranger)) => Count::CheckInsStranger,
            (Asked::CheckIn, ..) => Count::CheckInsRefused,
            (Asked::Enrol, Some(Says::Enrolled(_)), _) => Count::EnrolmentsAccepted,
            (Asked::Enrol, _, Some(Reason::NotAdmitted)) => Count::EnrolmentsNotAdmitted,
            (Asked::Enrol, _, Some(Reason::TooMuch)) => Count::EnrolmentsTooMany,
            (Asked::Enrol, ..) => Count::EnrolmentsRefused,
            (Asked::Secure, ..) => Count::SecureMessages,
            (Asked::Next, ..) => return,
        };
        self.add(count, 1);
    }

    /// A report was decided on: what its device was answered.
    pub(crate) fn reported(&self, answer: &Answer, is_whole: bool, now_ms: u64) {
        let count = match &answer.says {
            Some(Says::Received(_)) if is_whole => Count::ReportsAccepted,
            Some(Says::Received(_)) => return,
            Some(Says::Wait(_)) => Count::ReportsToldToWait,
            Some(Says::Refused(refused)) => match Reason::try_from(refused.reason) {
                Ok(Reason::Late) => Count::ReportsLate,
                Ok(Reason::Closed) => Count::ReportsClosed,
                Ok(Reason::OutOfBounds | Reason::Malformed | Reason::TooLong) => Count::ReportsWrong,
                Ok(Reason::Internal) => Count::Internal,
                _ => Count::ReportsRefused,
            },
            _ => Count::ReportsRefused,
        };
        self.add(count, 1);
        let (accepted, refused) = match count {
            Count::ReportsAccepted => (1, 0),
            Count::ReportsToldToWait | Count::Internal => (0, 0),
            _ => (0, 1),
        };
        if let Some(bin) = self.kept().bin(now_ms) {
            (bin.reports, bin.refused) = (bin.reports + accepted, bin.refused + refused);
        }
    }

    /// Bytes of a report came.
    pub(crate) fn report_bytes(&self, bytes: u64) {
        self.add(Count::ReportBytes, bytes);
    }

    /// A task or a model was asked for, and so many bytes are sent.
    pub(crate) fn blob(&self, bytes: u64) {
        self.add(Count::Blobs, 1);
        self.add(Count::BlobBytes, bytes);
    }

    /// Takes what happened to attempts. Called with each batch of the coordinator.
    pub(crate) fn takes(&self, coordinator: &mut Coordinator, now_ms: u64) {
        let happened = coordinator.take_seen();
        if happened.is_empty() {
            return;
        }
        let mut kept = self.kept();
        for seen in happened {
            match seen {
                Seen::Opened { at, goal, secure } => {
                    if let Some(stream) = kept.stream(&at.task) {
                        stream.opens(&at, goal, secure, now_ms);
                    }
                }
                Seen::Settled { at, released, progress, shapes } => {
                    if let Some(stream) = kept.stream(&at.task) {
                        let ended = if released { Ended::Released } else { Ended::Failed };
                        stream.ends(&at, ended, progress, now_ms);
                        stream.had(&at, &shapes);
                    }
                }
                Seen::Ended { at, shapes } => {
                    if let Some(stream) = kept.stream(&at.task) {
                        stream.had(&at, &shapes);
                    }
                }
            }
        }
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Looks how far attempts are, and tells who watches, where it is time for that.
    pub(crate) fn looks(&self, coordinator: &Coordinator, report_memory: impl FnOnce() -> (u64, u64), now_ms: u64) {
        let mut kept = self.kept();
        if now_ms < kept.looked_ms + LOOK_MS {
            return;
        }
        kept.looked_ms = now_ms;
        kept.passes(now_ms);
        let (devices, memory) = (coordinator.devices_now(), report_memory());
        let mut has_news = self.changed.swap(false, Ordering::Relaxed);
        has_news |= (kept.enrolled, kept.waiting) != devices || kept.report_memory != memory;
        ((kept.enrolled, kept.waiting), kept.report_memory) = (devices, memory);
        for (digest, now) in coordinator.now() {
            let Some(stream) = kept.stream(&digest) else { continue };
            has_news |= std::mem::replace(&mut stream.waiting, now.waiting) != now.waiting;
            if let Some((at, progress)) = now.open
                && let Some(attempt) = stream.of(&at).filter(|attempt| attempt.ended == Ended::Open)
            {
                let before = (attempt.asked, attempt.reported, attempt.dropped);
                attempt.far(progress);
                has_news |= before != (attempt.asked, attempt.reported, attempt.dropped);
            }
        }
        drop(kept);
        if has_news {
            self.ticks.send_modify(|tick| *tick += 1);
        }
    }

    /// Why the last attempt of a task failed that did: at a round, or at an evaluation.
    pub(crate) fn failed(&self, task: &str, is_evaluation: bool, why: &'static str) {
        let mut kept = self.kept();
        let Some(task) = kept.tasks.get_mut(task) else { return };
        let stream = if is_evaluation { task.evaluations.as_mut() } else { Some(&mut task.rounds) };
        let failed = |attempt: &&mut AttemptSeen| attempt.ended == Ended::Failed;
        if let Some(attempt) = stream.and_then(|stream| stream.attempts.iter_mut().rev().find(failed)) {
            attempt.why.get_or_insert(why);
        }
        self.changed.store(true, Ordering::Relaxed);
    }

    /// How long ago the coordinator was looked at, by a clock that is given. While it works it is looked at four times a second.
    pub(crate) fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.kept().looked_ms)
    }

    /// How many tasks there are, and how many of them cannot continue.
    pub(crate) fn broken(&self) -> (usize, usize) {
        let kept = self.kept();
        (kept.tasks.len(), kept.tasks.values().filter(|task| task.broken).count())
    }

    /// A task is over, or cannot continue: its attempt is not waited for any more.
    pub(crate) fn gives_up(&self, task: &str, is_broken: bool) {
        let mut kept = self.kept();
        let now_ms = kept.now_ms;
        if let Some(task) = kept.tasks.get_mut(task) {
            task.broken = is_broken;
            task.rounds.is_given_up(now_ms);
            task.evaluations.iter_mut().for_each(|stream| stream.is_given_up(now_ms));
        }
        self.changed.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use device::protocol::message::{Later, Received, Wait};

    use super::*;

    const TASK: TaskDigest = TaskDigest([1; 32]);

    fn at(round: u64) -> AttemptAt {
        AttemptAt { task: TASK, round, attempt: 0 }
    }

    #[test]
    fn six_hours_are_kept_in_bins_of_ten_seconds() {
        let observed = Observed::default();
        let began = 1_000_000_000_000;
        observed.starts(began);
        for second in 0..7 * 3600 {
            observed.asks(Asked::CheckIn, began + second * 1000);
        }
        let series = observed.series();
        assert_eq!((series.bins.len(), series.bin_s), (BINS, 10));
        assert_eq!(series.from_ms, began + 3_600_000);
        assert!(series.bins.iter().all(|bin| *bin == Bin { check_ins: 10, ..Bin::default() }));
        // Where nothing came there are bins too, and a day without anybody leaves nothing of the day before.
        let received = |offset| Answer::new(Says::Received(Received { offset }));
        observed.reported(&received(5), true, began + 7 * 3_600_000 + 25_000);
        let series = observed.series();
        let last: Vec<(u32, u32)> = series.bins[BINS - 4..].iter().map(|bin| (bin.check_ins, bin.reports)).collect();
        assert_eq!(last, [(10, 0), (0, 0), (0, 0), (0, 1)]);
        observed.asks(Asked::CheckIn, began + 48 * 3_600_000);
        assert_eq!(observed.series().bins, [Bin { check_ins: 1, ..Bin::default() }]);
        // A moment of before counts in the last bin.
        observed.asks(Asked::CheckIn, began);
        assert_eq!(observed.series().bins, [Bin { check_ins: 2, ..Bin::default() }]);
    }

    #[test]
    fn each_answer_is_counted_where_it_belongs() {
        let refused = |reason| Answer::refused(reason, "no", 1, 0);
        let later = Answer::new(Says::Later(Later { after_s: 1 }));
        let wait = Answer::new(Says::Wait(Wait { after_ms: 1 }));
        let received = Answer::new(Says::Received(Received { offset: 5 }));
        let of = |asked, answer: &Answer| {
            let observed = Observed::default();
            observed.answers(asked, answer);
            Count::ALL.into_iter().filter(|count| observed.count(*count) == 1).collect::<Vec<_>>()
        };
        assert_eq!(of(Asked::CheckIn, &later), [Count::CheckInsLater]);
        assert_eq!(of(Asked::CheckIn, &refused(Reason::Stranger)), [Count::CheckInsStranger]);
        assert_eq!(of(Asked::CheckIn, &refused(Reason::TooMuch)), [Count::CheckInsRefused]);
        assert_eq!(of(Asked::Enrol, &refused(Reason::NotAdmitted)), [Count::EnrolmentsNotAdmitted]);
        assert_eq!(of(Asked::Enrol, &refused(Reason::TooMuch)), [Count::EnrolmentsTooMany]);
        assert_eq!(of(Asked::Unreadable, &refused(Reason::Clock)), [Count::Unreadable]);
        assert_eq!(of(Asked::Next, &refused(Reason::Internal)), [Count::Internal]);
        assert_eq!(of(Asked::Next, &wait), []);
        let of = |answer: &Answer, is_whole| {
            let observed = Observed::default();
            observed.reported(answer, is_whole, 1);
            let counts = Count::ALL.into_iter().filter(|count| observed.count(*count) == 1).collect::<Vec<_>>();
            let bin = observed.series().bins.last().copied().unwrap_or_default();
            (counts, bin.reports, bin.refused)
        };
        assert_eq!(of(&received, false), (vec![], 0, 0), "more of it is to come");
        assert_eq!(of(&received, true), (vec![Count::ReportsAccepted], 1, 0));
        assert_eq!(of(&wait, false), (vec![Count::ReportsToldToWait], 0, 0));
        assert_eq!(of(&refused(Reason::Late), false), (vec![Count::ReportsLate], 0, 1));
        assert_eq!(of(&refused(Reason::Closed), true), (vec![Count::ReportsClosed], 0, 1));
        assert_eq!(of(&refused(Reason::OutOfBounds), false), (vec![Count::ReportsWrong], 0, 1));
        assert_eq!(of(&refused(Reason::Unexpected), true), (vec![Count::ReportsRefused], 0, 1));
    }

    #[test]
    fn the_latest_attempts_are_kept_and_what_came_of_all_is_counted() {
        let observed = Observed::default();
        observed.serves("words", TASK, false);
        let mut shapes = Shapes::default();
        shapes.count(Shape::Silent);
        {
            let mut kept = observed.kept();
            let stream = kept.stream(&TASK).unwrap();
            for round in 0..60 {
                stream.opens(&at(round), 5, false, round);
                let progress = Progress { asked: 6, reported: 5, dropped: 1, since_ms: Some(round) };
                let ended = if round == 59 { Ended::Failed } else { Ended::Released };
                stream.ends(&at(round), ended, progress, round + 1);
                stream.had(&at(round), &shapes);
            }
            // Of an attempt that is not kept any more, what is heard late still counts.
            stream.had(&at(0), &shapes);
        }
        observed.failed("words", false, "too few devices were left");
        observed.failed("nobody", true, "no such task");
        let rounds = observed.task("words").unwrap().rounds;
        assert_eq!((rounds.attempts.len(), rounds.attempts[0].number), (MOST_ATTEMPTS, 11));
        assert_eq!((rounds.released, rounds.failed, rounds.dropped), (59, 1, 60));
        assert_eq!(rounds.shapes, BTreeMap::from([("-!", 61)]));
        let last = rounds.attempts.back().unwrap();
        assert_eq!((last.ended, last.why), (Ended::Failed, Some("too few devices were left")));
        assert!(rounds.attempts.iter().rev().skip(1).all(|attempt| attempt.why.is_none()));
    }

    #[test]
    fn what_a_task_leaves_open_is_given_up_with_it() {
        let observed = Observed::default();
        observed.serves("words", TASK, false);
        observed.kept().stream(&TASK).unwrap().opens(&at(0), 5, true, 1);
        observed.gives_up("words", true);
        assert_eq!(observed.broken(), (1, 1));
        assert_eq!(observed.task("words").unwrap().rounds.attempts[0].ended, Ended::GivenUp);
    }
}
