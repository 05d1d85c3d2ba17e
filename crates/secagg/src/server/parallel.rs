//! Parallel server arithmetic on the caller's threads: this crate has none of its own.

use std::sync::atomic::{AtomicUsize, Ordering};

/// One piece of work.
pub type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Does pieces of work that do not depend on each other.
pub trait Parallel {
    /// How many pieces are worth making.
    fn width(&self) -> usize;

    /// Does all of them, and returns when all are done.
    fn run(&self, jobs: Vec<Job<'_>>);
}

/// Runs jobs one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Serial;

impl Parallel for Serial {
    fn width(&self) -> usize {
        1
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        jobs.into_iter().for_each(|job| job());
    }
}

/// Applies a function to every item, in as many pieces as there are processors; results in the order of the items.
pub(super) fn map<T: Sync, R: Send>(parallel: &dyn Parallel, items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let size = items.len().div_ceil(parallel.width().max(1)).max(1);
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let f = &f;
    let piece = |(items, results): (&'_ [T], &'_ mut [Option<R>])| {
        items.iter().zip(results).for_each(|(item, result)| *result = Some(f(item)));
    };
    let piece = &piece;
    let jobs = items.chunks(size).zip(results.chunks_mut(size));
    run_all(parallel, jobs.map(|both| Box::new(move || piece(both)) as Job<'_>).collect());
    // What a driver left undone is done here.
    items.iter().zip(results).map(|(item, result)| result.unwrap_or_else(|| f(item))).collect()
}

/// Does all pieces; says whether all were done.
pub(super) fn run_all(parallel: &dyn Parallel, jobs: Vec<Job<'_>>) -> bool {
    let (all, done) = (jobs.len(), AtomicUsize::new(0));
    let done = &done;
    let counted = jobs.into_iter().map(|job| {
        Box::new(move || {
            job();
            done.fetch_add(1, Ordering::Relaxed);
        }) as Job<'_>
    });
    parallel.run(counted.collect());
    done.load(Ordering::Relaxed) == all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does every other piece.
    struct Lazy;

    impl Parallel for Lazy {
        fn width(&self) -> usize {
            5
        }

        fn run(&self, jobs: Vec<Job<'_>>) {
            jobs.into_iter().step_by(2).for_each(|job| job());
        }
    }

    #[test]
    fn what_is_left_undone_is_noticed() {
        let items: Vec<u32> = (0..17).collect();
        let squares: Vec<u32> = items.iter().map(|i| i * i).collect();
        assert_eq!(map(&Serial, &items, |i| i * i), squares);
        assert_eq!(map(&Lazy, &items, |i| i * i), squares);
        let jobs = || (0..4).map(|_| Box::new(|| ()) as Job<'_>).collect();
        assert!(run_all(&Serial, jobs()));
        assert!(!run_all(&Lazy, jobs()));
    }
}
