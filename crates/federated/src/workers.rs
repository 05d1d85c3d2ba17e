//! The thread pool for work other than training: noise, sums, vectors as bytes, the server's step.
//!
//! They wait for work from the first round to the last: a round has half a dozen such moments of a millisecond each, and starting
//! sixteen threads takes a good part of one. A hand-written pool over borrowed work would need unsafe code, so they are rayon's.
//! What is computed does not depend on how many there are.

use std::fmt;

use privacy::workers::{Alone, Workers};
use rayon::{
    ThreadPool, ThreadPoolBuilder,
    iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator},
};

/// Threads that wait for work.
pub struct Pool {
    /// None where one thread does it all.
    threads: Option<ThreadPool>,
}

impl Pool {
    /// So many threads; if the system provides none, the caller does the work.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let threads = (threads > 1).then(|| ThreadPoolBuilder::new().num_threads(threads).build().ok()).flatten();
        Self { threads }
    }

    /// How many work at the same time.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.as_ref().map_or(1, ThreadPool::current_num_threads)
    }
}

impl Workers for Pool {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        match &self.threads {
            Some(threads) if pieces > 1 => {
                threads.install(|| (0..pieces).into_par_iter().with_max_len(1).for_each(work));
            }
            _ => Alone.each(pieces, work),
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_piece_is_done_once_by_any_number_of_threads() {
        for threads in [0, 1, 2, 5] {
            let pool = Pool::new(threads);
            for pieces in [0, 1, 2, 1000] {
                let done: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                pool.each(pieces, &|piece| _ = done[piece].fetch_add(1, Ordering::Relaxed));
                assert!(done.iter().all(|times| times.load(Ordering::Relaxed) == 1), "{pieces} by {pool:?}");
            }
        }
    }
}
