//! The engine on the threads of this process, one user per thread at a time.
//!
//! A thread has a worker and a sum of its own, so memory is the model times the threads, whatever the cohort. Users are
//! taken one by one; who trains whom changes nothing.

use std::{
    ops::ControlFlow,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use device::{
    learner::{Learner, examples::Examples},
    local::{LocalError, LocalPlan},
    round::{Exact, Part, Task, Worker, measured},
    upload::Rests,
};
use lm::kernels::KernelPath;
use privacy::stages::Sum;

use super::{Engine, EngineError, PerUser, Summed, Take, Users, drawn};

/// Threads that train.
pub struct Threads<'a> {
    learner: &'a dyn Learner,
    kernels: KernelPath,
    workers: Vec<Worker>,
    most_examples: Option<usize>,
}

impl<'a> Threads<'a> {
    /// So many threads.
    ///
    /// # Errors
    /// When model or plan cannot be carried out.
    pub fn new(
        learner: &'a dyn Learner,
        local: &LocalPlan,
        kernels: KernelPath,
        threads: usize,
    ) -> Result<Self, LocalError> {
        let workers =
            (0..threads.max(1)).map(|_| Worker::new(learner, local.clone(), kernels)).collect::<Result<_, _>>()?;
        Ok(Self { learner, kernels, workers, most_examples: local.most_tokens })
    }
}

/// What one thread came to.
struct Share {
    sum: Sum,
    exact: Vec<(u64, Exact)>,
    rests: Rests,
}

impl Engine for Threads<'_> {
    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        let fresh = || Share { sum: Sum::zero(task.encoding), exact: Vec::new(), rests: Rests::new() };
        let add = |share: &mut Share, user: u64, part: Part| {
            share.sum.add(&part.encoded)?;
            share.exact.push((user, part.exact));
            share.rests.extend(part.rest.map(|rest| (user, rest)));
            Ok(ControlFlow::Continue(()))
        };
        let (shares, busy_s) = self.train(task, users, fresh, add)?;
        let mut all = Summed { sum: Sum::zero(task.encoding), exact: Vec::new(), rests: Rests::new(), busy_s };
        for Share { sum, exact, rests } in shares {
            all.sum.merge(sum)?;
            all.exact.extend(exact);
            all.rests.extend(rests);
        }
        all.exact.sort_unstable_by_key(|(user, _)| *user);
        Ok(all)
    }

    fn each(&mut self) -> Option<&mut dyn PerUser> {
        Some(self)
    }
}

impl PerUser for Threads<'_> {
    fn threads(&self) -> usize {
        self.workers.len()
    }

    fn each(&mut self, task: &Task<'_>, users: &Users<'_>, take: Take<'_>) -> Result<f64, EngineError> {
        let (_, busy_s) = self.train(task, users, || (), |(), user, part| Ok(take(user, part)))?;
        Ok(busy_s)
    }
}

impl Threads<'_> {
    /// Trains users until none is left; each thread puts their parts into something of its own. Who fails or breaks takes the
    /// rest off the list, so that the other threads stop too.
    fn train<T: Send>(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        fresh: impl Fn() -> T + Sync,
        put: impl Fn(&mut T, u64, Part) -> Result<ControlFlow<()>, EngineError> + Sync,
    ) -> Result<(Vec<T>, f64), EngineError> {
        let next = AtomicUsize::new(0);
        let (learner, kernels) = (self.learner, self.kernels);
        let most_examples = match task.evaluation {
            None => self.most_examples.unwrap_or(usize::MAX),
            Some(plan) => usize::try_from(plan.most_examples).unwrap_or(usize::MAX),
        };
        let busy_s = Mutex::new(0.0);
        let work = |worker: &mut Worker| -> Result<T, EngineError> {
            let began = Instant::now();
            let (mut own, mut examples) = (fresh(), Examples::new(learner.schema()));
            while let Some(user) = users.numbers.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                let part = users.population.read(user, &mut examples);
                let part = part.map_err(|problem| EngineError::Data { user, problem }).and_then(|()| {
                    examples.truncate(most_examples);
                    let drawn = drawn(users.key, user);
                    let part = match task.evaluation {
                        None => worker.part_after(*task, &examples, drawn, task.upload.kept_by(user)),
                        Some(plan) => measured(*task, plan, learner, &examples, kernels, drawn),
                    };
                    part.map_err(|problem| EngineError::Part { user, problem })
                });
                let put = part.and_then(|part| put(&mut own, user, part));
                if !matches!(put, Ok(ControlFlow::Continue(()))) {
                    next.store(users.numbers.len(), Ordering::Relaxed);
                }
                if put?.is_break() {
                    break;
                }
            }
            *busy_s.lock().unwrap_or_else(PoisonError::into_inner) += began.elapsed().as_secs_f64();
            Ok(own)
        };
        let shares: Result<Vec<T>, EngineError> = std::thread::scope(|scope| {
            let threads: Vec<_> = self.workers.iter_mut().map(|worker| scope.spawn(|| work(worker))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(Err(EngineError::Died))).collect()
        });
        Ok((shares?, busy_s.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }
}
