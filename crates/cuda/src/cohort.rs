//! Whom a card trains: their text, read by all threads, and read ahead while the card is busy with others.

use device::{
    learner::{Learner, examples::Examples},
    local::{Algorithm, LocalPlan},
};
use federated::{
    engine::{EngineError, Users, drawn},
    population::Population,
};
use privacy::{
    rng::StreamKey,
    workers::{self, Workers},
};

use crate::schedule::{Reader, Schedule, steps};

/// Somebody of the cohort, read.
pub(crate) struct User {
    pub(crate) number: u64,
    pub(crate) examples: Examples,
    steps: usize,
}

impl User {
    /// Their text as a schedule takes it. Which batch FedSGD takes is drawn; nothing else of a schedule is.
    pub(crate) fn reader(&self, local: &LocalPlan, key: Option<&StreamKey>) -> Reader<'_> {
        let drawn = match (local.algorithm, key) {
            (Algorithm::FedSgdBatch, Some(key)) => drawn(key, self.number).batch,
            _ => 0,
        };
        Reader { examples: &self.examples, drawn }
    }
}

/// Reads users.
pub(crate) struct Reading<'a> {
    pub(crate) learner: &'a dyn Learner,
    pub(crate) local: LocalPlan,
}

impl Reading<'_> {
    /// Everybody's text, those with the most steps first.
    pub(crate) fn read(
        &self,
        population: &dyn Population,
        numbers: &[u64],
        workers: &dyn Workers,
    ) -> Result<Vec<User>, EngineError> {
        let nobody = |number: &u64| User { number: *number, examples: Examples::new(self.learner.schema()), steps: 0 };
        let mut all: Vec<User> = numbers.iter().map(nobody).collect();
        workers::each(workers, &mut all, |_, user| self.read_one(population, user))?;
        all.sort_unstable_by_key(|user| (std::cmp::Reverse(user.steps), user.number));
        Ok(all)
    }

    fn read_one(&self, population: &dyn Population, user: &mut User) -> Result<(), EngineError> {
        let number = user.number;
        population.read(number, &mut user.examples).map_err(|problem| EngineError::Data { user: number, problem })?;
        user.examples.truncate(self.local.most_tokens.unwrap_or(usize::MAX));
        user.steps = steps(&self.local, &user.examples);
        Ok(())
    }
}

/// A cohort that was read before it was asked for.
pub(crate) struct Ahead {
    /// Whose text it is.
    population: usize,
    numbers: Vec<u64>,
    pub(crate) users: Vec<User>,
    /// The schedule of their first chunk, where nothing of it is drawn; its rate is that of another round.
    pub(crate) schedule: Option<Schedule>,
}

impl Ahead {
    pub(crate) fn new(
        population: &dyn Population,
        numbers: Vec<u64>,
        users: Vec<User>,
        schedule: Option<Schedule>,
    ) -> Self {
        Self { population: address(population), numbers, users, schedule }
    }

    /// Whether these users are asked for.
    pub(crate) fn is_of(&self, users: &Users<'_>) -> bool {
        self.population == address(users.population) && self.numbers == users.numbers
    }
}

/// A population is told from another by where it lies.
fn address(population: &dyn Population) -> usize {
    std::ptr::from_ref(population).cast::<()>().addr()
}
