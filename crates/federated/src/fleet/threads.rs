//! The fleet of simulations on one machine: all cores, one user a thread at a time.
//!
//! A thread has a worker and a sum of its own, so memory is the model times the threads, whatever the cohort. Users are
//! taken one by one; who trains whom changes nothing, since a user's randomness is named by round and user, and the sums are
//! integers.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use device::{
    local::{LocalError, LocalPlan},
    round::{Drawn, Exact, Worker},
    text::UserText,
};
use lm::{kernels::KernelPath, model::config::ModelConfig};
use privacy::{rng::Purpose, stages::Sum};

use super::{Collected, Fleet, FleetError, RoundTask};
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
        let shares = Mutex::new(Vec::new());
        let (population, most_tokens) = (self.population, self.most_tokens);
        std::thread::scope(|scope| {
            for worker in &mut self.workers {
                scope.spawn(|| {
                    let share = train_some(population, most_tokens, worker, task, &next);
                    shares.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(share);
                });
            }
        });
        let shares = shares.into_inner().map_err(|_| FleetError::Died)?;
        if shares.len() < self.workers.len() {
            return Err(FleetError::Died);
        }
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
}

/// Trains users until none is left.
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
        population.read(user, &mut text).map_err(|problem| FleetError::Text { user, problem })?;
        text.truncate(most_tokens.unwrap_or(usize::MAX));
        let stream = task.source.stream(Purpose::Rounding, &[task.round, user]);
        let drawn = Drawn { rounding: stream.chunk(0), batch: stream.chunk(1).next_word() };
        let part = worker.part(task.task, &text, drawn).map_err(|problem| FleetError::Part { user, problem })?;
        share.sum.add(&part.encoded)?;
        share.exact.push((user, part.exact));
    }
    share.busy_s = began.elapsed().as_secs_f64();
    Ok(share)
}
