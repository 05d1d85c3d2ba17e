//! Users' contributions to an evaluation: counted on the card, clipped and encoded by the code that devices run.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use device::{
    evaluation::EvaluationPlan,
    learner::{Learner, examples::Examples},
    round::{Task, counted},
    upload::Rests,
};
use federated::engine::{EngineError, Summed, Users, drawn};
use privacy::stages::Sum;

use crate::measuring::CardMeasurer;

/// Users whose text is in memory at a time.
const AT_A_TIME: usize = 4096;

/// The sum over these users.
pub(crate) fn sum(
    measurer: &mut CardMeasurer,
    learner: &dyn Learner,
    task: &Task<'_>,
    plan: EvaluationPlan,
    users: &Users<'_>,
    threads: usize,
) -> Result<Summed, EngineError> {
    let began = Instant::now();
    let mut all = Summed { sum: Sum::zero(task.encoding), exact: Vec::new(), rests: Rests::new(), busy_s: 0.0 };
    for numbers in users.numbers.chunks(AT_A_TIME) {
        let people = read(&Users { numbers, ..*users }, learner, plan, threads)?;
        let counts = measurer.each(task.model, &people)?;
        for ((user, examples), counts) in numbers.iter().zip(&people).zip(&counts) {
            let part = counted(*task, plan, learner, examples.len(), counts, drawn(users.key, *user));
            let part = part.map_err(|problem| EngineError::Part { user: *user, problem })?;
            all.sum.add(&part.encoded)?;
            all.exact.push((*user, part.exact));
        }
    }
    all.exact.sort_unstable_by_key(|(user, _)| *user);
    all.busy_s = began.elapsed().as_secs_f64();
    Ok(all)
}

/// What each of them is measured on, in their order, read on so many threads.
fn read(
    users: &Users<'_>,
    learner: &dyn Learner,
    plan: EvaluationPlan,
    threads: usize,
) -> Result<Vec<Examples>, EngineError> {
    let next = AtomicUsize::new(0);
    let people = Mutex::new(vec![Examples::new(learner.schema()); users.numbers.len()]);
    let work = || -> Result<(), EngineError> {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(user) = users.numbers.get(place).copied() else { return Ok(()) };
            let mut examples = Examples::new(learner.schema());
            let read = users.population.read(user, &mut examples);
            read.map_err(|problem| EngineError::Data { user, problem })?;
            examples.truncate(usize::try_from(plan.most_examples).unwrap_or(usize::MAX));
            people.lock().unwrap_or_else(PoisonError::into_inner)[place] = examples;
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.clamp(1, users.numbers.len().max(1))).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(EngineError::Died)))
    })?;
    Ok(people.into_inner().unwrap_or_else(PoisonError::into_inner))
}
