//! Threads that remove masks, and the CPU time they need.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use secagg::server::{Job, Parallel};

use crate::clock::thread_seconds;

/// Threads of its own for every batch of work, even where there is one, so that what they do is not counted twice.
pub(super) struct Workers {
    threads: usize,
    /// CPU seconds of each batch so far.
    batches: Mutex<Vec<f64>>,
}

impl Workers {
    pub(super) const fn new(threads: usize) -> Self {
        Self { threads, batches: Mutex::new(Vec::new()) }
    }

    /// CPU seconds of each batch.
    pub(super) fn batches(self) -> Vec<f64> {
        self.batches.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parallel for Workers {
    fn width(&self) -> usize {
        self.threads
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        let work = |job: Job<'_>| {
            let before = thread_seconds();
            job();
            thread_seconds() - before
        };
        let seconds = thread::scope(|scope| {
            let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(|| work(job))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
        });
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(seconds);
    }
}
