//! How the server's arithmetic is spread over processors, by whoever has them: this crate has no threads.

/// One piece of work.
pub type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Does pieces of work that do not depend on each other.
pub trait Parallel {
    /// How many pieces are worth making.
    fn width(&self) -> usize;

    /// Does all of them, and returns when all are done.
    fn run(&self, jobs: Vec<Job<'_>>);
}

/// One after the other.
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
    parallel.run(jobs.map(|both| Box::new(move || piece(both)) as Job<'_>).collect());
    // A driver that leaves work undone leaves results out, and the round fails for want of them.
    results.into_iter().flatten().collect()
}
