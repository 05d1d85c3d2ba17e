//! A few trainer threads shared by all devices of a process, since each trainer needs its own memory.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use device::{
    guard::TaskDigest,
    protocol::task::{Work, fresh},
    round::Worker,
};
use lm::kernels::KernelPath;
use privacy::{
    encoding::EncodingId,
    stages::{Clipped, Encoded},
};
use secagg::entropy::OsEntropy;
use tokio::sync::oneshot;

use crate::{text::TextSource, unsent::UnsentFile};

/// Tasks that a thread is ready for.
const MOST_WORKERS: usize = 2;

/// The result of training, or why it failed.
pub type Trained = Result<Arc<Encoded>, String>;

/// How inputs are made: by training, or ready-made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learning {
    /// By training on text.
    Train,
    /// Ready-made, one for all: to measure a server. Each is a valid input, of somebody who typed nothing. Only for tasks whose noise is
    /// simulated: in a sum that protects people, somebody who is not there would be counted among them.
    Ready,
}

/// Threads that train.
#[derive(Debug)]
pub struct Trainers {
    jobs: mpsc::Sender<Job>,
    learning: Learning,
    ready: Mutex<Option<Ready>>,
    busy: Arc<Busy>,
}

/// An input that is ready-made: for which encoding, and for how many of its coordinates, which a warm-up changes from round to round.
#[derive(Debug)]
struct Ready {
    id: EncodingId,
    few: Option<usize>,
    encoded: Arc<Encoded>,
}

/// How long at least one thread trained.
#[derive(Debug, Default)]
struct Busy(Mutex<AtWork>);

#[derive(Debug, Default)]
struct AtWork {
    threads: usize,
    /// Since when there was always one, if there is one now.
    since: Option<Instant>,
    before: Duration,
}

impl Busy {
    fn lock(&self) -> MutexGuard<'_, AtWork> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begins(&self) {
        let mut at_work = self.lock();
        at_work.threads += 1;
        at_work.since.get_or_insert_with(Instant::now);
    }

    fn ends(&self) {
        let mut at_work = self.lock();
        at_work.threads -= 1;
        if at_work.threads == 0
            && let Some(since) = at_work.since.take()
        {
            at_work.before += since.elapsed();
        }
    }

    fn seconds(&self) -> f64 {
        let at_work = self.lock();
        (at_work.before + at_work.since.map_or(Duration::ZERO, |since| since.elapsed())).as_secs_f64()
    }
}

struct Job {
    work: Box<Work>,
    text: Arc<dyn TextSource>,
    unsent: UnsentFile,
    done: oneshot::Sender<Trained>,
}

impl Trainers {
    /// So many threads. They end when this is dropped.
    #[must_use]
    pub fn new(threads: usize, learning: Learning) -> Self {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let waiting = Arc::new(Mutex::new(waiting));
        let busy = Arc::new(Busy::default());
        for _ in 0..threads.max(1) {
            let (waiting, busy) = (waiting.clone(), busy.clone());
            drop(thread::spawn(move || serve(&waiting, &busy)));
        }
        Self { jobs, learning, ready: Mutex::default(), busy }
    }

    /// Seconds so far in which at least one of the threads trained.
    #[must_use]
    pub fn busy_s(&self) -> f64 {
        self.busy.seconds()
    }

    /// An input for a piece of work, when it is its turn.
    ///
    /// # Errors
    /// When text, task and step do not fit together.
    pub async fn train(&self, work: Box<Work>, text: Arc<dyn TextSource>, unsent: UnsentFile) -> Trained {
        if self.learning == Learning::Ready {
            return self.ready_made(&work);
        }
        let (done, result) = oneshot::channel();
        let gone = || "the training thread has ended".to_owned();
        self.jobs.send(Job { work, text, unsent, done }).map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }

    /// The input of somebody who typed nothing, the same for everybody.
    fn ready_made(&self, work: &Work) -> Trained {
        if !work.task.terms().privacy.simulated {
            return Err(
                "ready-made reports are only allowed for tasks with simulated noise; this one protects real people"
                    .to_owned(),
            );
        }
        let encoding = &work.step.encoding;
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ready { id, few, encoded }) = &*ready
            && (*id, *few) == (encoding.id(), encoding.few())
        {
            return Ok(encoded.clone());
        }
        let nothing = Clipped::nothing(&work.step.clipping, encoding.dimension());
        let mut drawn = fresh(&mut OsEntropy).map_err(|e| e.to_string())?;
        let encoded = nothing.encode(encoding, &mut drawn.rounding).map_err(|e| e.to_string())?;
        let encoded = Arc::new(encoded);
        *ready = Some(Ready { id: encoding.id(), few: encoding.few(), encoded: encoded.clone() });
        Ok(encoded)
    }
}

fn serve(waiting: &Mutex<mpsc::Receiver<Job>>, busy: &Busy) {
    let mut workers: BTreeMap<TaskDigest, Worker> = BTreeMap::new();
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { work, text, unsent, done }) = next else { return };
        // A device that is gone by now has no use for it.
        if !done.is_closed() {
            busy.begins();
            // A bug costs the device this part: the thread goes on for all others, and for this one's next part, with nothing of what was at hand.
            let trained = catch_unwind(AssertUnwindSafe(|| train(&mut workers, &work, &*text, &unsent)));
            busy.ends();
            let trained = trained.unwrap_or_else(|_| {
                workers.clear();
                Err("training panicked because of a bug; please report it".to_owned())
            });
            _ = done.send(trained);
        }
    }
}

fn train(
    workers: &mut BTreeMap<TaskDigest, Worker>,
    work: &Work,
    source: &dyn TextSource,
    unsent: &UnsentFile,
) -> Trained {
    let text = source.text().map_err(|e| e.to_string())?;
    if work.task.terms().evaluation.is_some() {
        let drawn = fresh(&mut OsEntropy).map_err(|e| e.to_string())?;
        return work.measure(&text, KernelPath::best(), drawn).map(Arc::new).map_err(|e| e.to_string());
    }
    let before =
        unsent.before(work).map_err(|why| format!("what it would not send cannot be kept for later rounds: {why}"))?;
    source.read(work.task.posts_read(&text).map_err(|e| e.to_string())?);
    let digest = work.task.digest();
    if !workers.contains_key(&digest) {
        if workers.len() >= MOST_WORKERS {
            workers.pop_first();
        }
        workers.insert(digest, work.task.worker(KernelPath::best()).map_err(|e| e.to_string())?);
    }
    let Some(worker) = workers.get_mut(&digest) else { return Err("there is nobody to train".to_owned()) };
    let drawn = fresh(&mut OsEntropy).map_err(|e| e.to_string())?;
    let (encoded, rest) = work.train(worker, &text, drawn, before.as_deref()).map_err(|e| e.to_string())?;
    unsent.learned(work, rest);
    Ok(Arc::new(encoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_at_once_are_busy_once() {
        let busy = Busy::default();
        busy.begins();
        busy.begins();
        thread::sleep(Duration::from_millis(30));
        busy.ends();
        assert!(busy.seconds() >= 0.03, "one is still at work");
        busy.ends();
        let seconds = busy.seconds();
        thread::sleep(Duration::from_millis(20));
        assert!(seconds >= 0.03 && (busy.seconds() - seconds).abs() < 1e-9, "nobody is at work any more");
    }
}
