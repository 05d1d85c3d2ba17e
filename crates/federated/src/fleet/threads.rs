//! The fleet of simulations on one machine: all cores, one user a thread at a time.
//!
//! A thread has a worker and a sum of its own, so memory is the model times the threads, whatever the cohort. Users are
//! taken one by one; who trains whom changes nothing, since a user's randomness is named by round and user, and the sums are
//! integers.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use device::{
    local::{LocalError, LocalPlan},
    round::{Exact, Part, Worker},
    text::UserText,
};
use lm::{kernels::KernelPath, model::config::ModelConfig};
use privacy::stages::Sum;

use super::{
    Collected, Fleet, FleetError, RoundTask, drawn,
    secure::{self, SecureTask, Secured},
};
use crate::population::Population;

/// Threads over a population.
pub struct ThreadFleet<'a> {
    population: &'a dyn Population,
    workers: Vec<Worker>,
    most_tokens: Option<usize>,
}

impl<'a> ThreadFleet<'a> {
    /// So many threads.
    ///
    /// # Errors
    /// When model or plan cannot be carried out.
    pub fn new(
        population: &'a dyn Population,
        config: &ModelConfig,
        local: &LocalPlan,
        path: KernelPath,
        threads: usize,
    ) -> Result<Self, LocalError> {
        let workers =
            (0..threads.max(1)).map(|_| Worker::new(config, local.clone(), path)).collect::<Result<_, _>>()?;
        Ok(Self { population, workers, most_tokens: local.most_tokens })
    }
}

/// What one thread came to.
struct Share {
    sum: Sum,
    exact: Vec<(u64, Exact)>,
    busy_s: f64,
}

impl Fleet for ThreadFleet<'_> {
    fn round(&mut self, task: &RoundTask<'_>) -> Result<Collected, FleetError> {
        let began = Instant::now();
        let next = AtomicUsize::new(0);
        let (population, most_tokens) = (self.population, self.most_tokens);
        let shares: Vec<Result<Share, FleetError>> = std::thread::scope(|scope| {
            let train = |worker| scope.spawn(|| train_some(population, most_tokens, worker, task, &next));
            let threads: Vec<_> = self.workers.iter_mut().map(train).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(Err(FleetError::Died))).collect()
        });
        let mut all = Collected { sum: Sum::zero(task.task.encoding), exact: Vec::new(), busy_s: 0.0, wall_s: 0.0 };
        for share in shares {
            let Share { sum, exact, busy_s } = share?;
            all.sum.merge(sum)?;
            all.exact.extend(exact);
            all.busy_s += busy_s;
        }
        all.exact.sort_unstable_by_key(|(user, _)| *user);
        all.wall_s = began.elapsed().as_secs_f64();
        Ok(all)
    }

    fn secure_round(&mut self, task: &RoundTask<'_>, secure: &SecureTask<'_>) -> Result<Secured, FleetError> {
        secure::round(self.population, self.most_tokens, &mut self.workers, task, secure)
    }
}

/// Trains users until none is left. Who fails takes the rest off the list, so that the other threads stop too.
fn train_some(
    population: &dyn Population,
    most_tokens: Option<usize>,
    worker: &mut Worker,
    task: &RoundTask<'_>,
    next: &AtomicUsize,
) -> Result<Share, FleetError> {
    let began = Instant::now();
    let mut share = Share { sum: Sum::zero(task.task.encoding), exact: Vec::new(), busy_s: 0.0 };
    let mut text = UserText::new();
    while let Some(user) = task.cohort.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
        if user >= population.users() {
            continue; // declared, and not there: nothing comes of them, not even a clip bit (rule P9)
        }
        let trained = train_one(population, most_tokens, worker, &mut text, task, user);
        let part = trained.inspect_err(|_| next.store(task.cohort.len(), Ordering::Relaxed))?;
        share.sum.add(&part.encoded)?;
        share.exact.push((user, part.exact));
    }
    share.busy_s = began.elapsed().as_secs_f64();
    Ok(share)
}

/// One user's part.
pub(super) fn train_one(
    population: &dyn Population,
    most_tokens: Option<usize>,
    worker: &mut Worker,
    text: &mut UserText,
    task: &RoundTask<'_>,
    user: u64,
) -> Result<Part, FleetError> {
    read(population, user, most_tokens, text)?;
    let part = worker.part(task.task, text, drawn(task.users, user));
    part.map_err(|problem| FleetError::Part { user, problem })
}

fn read(
    population: &dyn Population,
    user: u64,
    most_tokens: Option<usize>,
    text: &mut UserText,
) -> Result<(), FleetError> {
    population.read(user, text).map_err(|problem| FleetError::Text { user, problem })?;
    text.truncate(most_tokens.unwrap_or(usize::MAX));
    Ok(())
}
