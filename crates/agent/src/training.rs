//! A few threads that train for all devices of a process: a trainer needs memory of its own, and devices are many.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
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

use crate::text::TextSource;

/// Tasks that a thread is ready for.
const MOST_WORKERS: usize = 2;

/// What training came to, or why it failed.
pub type Trained = Result<Arc<Encoded>, String>;

/// How inputs are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learning {
    /// From text.
    Train,
    /// Ready-made, one for all: to measure a server. Each is a valid input, of somebody who typed nothing.
    Ready,
}

/// Threads that train.
#[derive(Debug)]
pub struct Trainers {
    jobs: mpsc::Sender<Job>,
    learning: Learning,
    ready: Mutex<Option<(EncodingId, Arc<Encoded>)>>,
}

struct Job {
    work: Box<Work>,
    text: Arc<dyn TextSource>,
    done: oneshot::Sender<Trained>,
}

impl Trainers {
    /// So many threads. They end when this is dropped.
    #[must_use]
    pub fn new(threads: usize, learning: Learning) -> Self {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..threads.max(1) {
            let waiting = waiting.clone();
            drop(thread::spawn(move || serve(&waiting)));
        }
        Self { jobs, learning, ready: Mutex::default() }
    }

    /// An input for a piece of work, when it is its turn.
    ///
    /// # Errors
    /// When text, task and step do not fit together.
    pub async fn train(&self, work: Box<Work>, text: Arc<dyn TextSource>) -> Trained {
        if self.learning == Learning::Ready {
            return self.ready_made(&work);
        }
        let (done, result) = oneshot::channel();
        let gone = || "the thread that trains is gone".to_owned();
        self.jobs.send(Job { work, text, done }).map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }

    /// The input of somebody who typed nothing, the same for everybody.
    fn ready_made(&self, work: &Work) -> Trained {
        let encoding = &work.step.encoding;
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((id, encoded)) = &*ready
            && *id == encoding.id()
        {
            return Ok(encoded.clone());
        }
        let nothing = Clipped::nothing(&work.step.clipping, encoding.dimension());
        let mut drawn = fresh(&mut OsEntropy).map_err(|e| e.to_string())?;
        let encoded = nothing.encode(encoding, &mut drawn.rounding).map_err(|e| e.to_string())?;
        let encoded = Arc::new(encoded);
        *ready = Some((encoding.id(), encoded.clone()));
        Ok(encoded)
    }
}

fn serve(waiting: &Mutex<mpsc::Receiver<Job>>) {
    let mut workers: BTreeMap<TaskDigest, Worker> = BTreeMap::new();
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { work, text, done }) = next else { return };
        // A device that is gone by now has no use for it.
        if !done.is_closed() {
            _ = done.send(train(&mut workers, &work, &*text));
        }
    }
}

fn train(workers: &mut BTreeMap<TaskDigest, Worker>, work: &Work, source: &dyn TextSource) -> Trained {
    let text = source.text().map_err(|e| e.to_string())?;
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
    work.train(worker, &text, drawn).map(Arc::new).map_err(|e| e.to_string())
}
