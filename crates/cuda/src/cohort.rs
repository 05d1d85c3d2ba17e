//! The users a card trains: their text, read on all threads, and ahead of time while the card trains others.

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

use crate::{
    error::{CudaError, failed},
    schedule::{Reader, Schedule, steps},
};

/// Steps of a user in a round: kernels count up to four times as many, and nobody types so much.
const MOST_STEPS: usize = 1 << 20;

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
    /// Everybody's text, those with the most steps first, in the memory of others who are over, where there is such.
    pub(crate) fn read(
        &self,
        population: &dyn Population,
        numbers: &[u64],
        spare: &mut Vec<Examples>,
        workers: &dyn Workers,
    ) -> Result<Vec<User>, EngineError> {
        let mut nobody = || spare.pop().unwrap_or_else(|| Examples::new(self.learner.schema()));
        let mut all: Vec<User> =
            numbers.iter().map(|number| User { number: *number, examples: nobody(), steps: 0 }).collect();
        workers::each(workers, &mut all, |_, user| self.read_one(population, user))?;
        all.sort_unstable_by_key(|user| (std::cmp::Reverse(user.steps), user.number));
        Ok(all)
    }

    fn read_one(&self, population: &dyn Population, user: &mut User) -> Result<(), EngineError> {
        let number = user.number;
        user.examples.clear();
        population.read(number, &mut user.examples).map_err(|problem| EngineError::Data { user: number, problem })?;
        user.examples.truncate(self.local.most_tokens.unwrap_or(usize::MAX));
        user.steps = steps(&self.local, &user.examples);
        self.check(user)
    }

    /// A card looks entries up without asking whether they are there, and beyond a user's table lies the next one's; and it numbers the
    /// steps of a round.
    fn check(&self, user: &User) -> Result<(), EngineError> {
        let refused = |problem: String| failed(CudaError::Refused(format!("user {}: {problem}", user.number)));
        let known = self.learner.recurrent().map_or(0, |model| model.vocabulary);
        let columns = 0..self.learner.schema().columns.len();
        let unknown = columns.flat_map(|column| user.examples.ids(column)).find(|id| **id as usize >= known);
        // What they typed, and how much, is theirs: it is not said (rule P12).
        if unknown.is_some() {
            return Err(refused(format!("has a token outside the {known} entries of the model")));
        }
        if user.steps > MOST_STEPS {
            let problem = format!("needs more local steps than the {MOST_STEPS} that the GPU engine supports");
            return Err(refused(format!("{problem}; set local.most_tokens, or use fewer local.epochs")));
        }
        Ok(())
    }
}

/// A cohort that was read before it was asked for.
pub(crate) struct Ahead {
    /// The population that the users are from.
    population: usize,
    numbers: Vec<u64>,
    pub(crate) users: Vec<User>,
    /// The schedules of their first chunk, a lane each, where nothing of them is drawn; their rate is that of another round.
    pub(crate) schedules: Vec<Schedule>,
}

impl Ahead {
    pub(crate) fn new(
        population: &dyn Population,
        numbers: Vec<u64>,
        users: Vec<User>,
        schedules: Vec<Schedule>,
    ) -> Self {
        Self { population: address(population), numbers, users, schedules }
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

#[cfg(test)]
mod tests {
    use corpus::store::StoreError;
    use device::learner::language::LanguageLearner;
    use federated::workers::Pool;
    use lm::model::config::ModelConfig;

    use super::*;

    /// Everybody has typed one entry, of their number.
    struct Typed;

    impl Population for Typed {
        fn users(&self) -> u64 {
            1 << 20
        }

        fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
            LanguageLearner::push(&[user as u32], examples);
            Ok(())
        }
    }

    fn read(epochs: u32, numbers: &[u64]) -> Result<usize, String> {
        let model = ModelConfig::preset("tiny").unwrap().with_vocabulary(50);
        let local = LocalPlan {
            algorithm: Algorithm::FedAvg { epochs },
            batch: 1,
            unroll: 1,
            most_tokens: None,
            greedy: false,
            update_penalty: 0.0,
            finetune: None,
        };
        let learner = LanguageLearner::new(&model, 1, 1).unwrap();
        let reading = Reading { learner: &learner, local };
        reading
            .read(&Typed, numbers, &mut Vec::new(), &Pool::new(2))
            .map(|users| users.len())
            .map_err(|problem| problem.to_string())
    }

    /// What no table has would be looked up, and written, in the table of the next user.
    #[test]
    fn entries_that_the_model_does_not_have_are_refused_by_name() {
        assert_eq!(read(1, &[3, 49]), Ok(2));
        let said = read(1, &[3, 50]).unwrap_err();
        assert!(said.contains("user 50") && said.contains("outside the 50"), "{said}");
    }

    #[test]
    fn more_steps_than_a_card_can_number_are_refused_and_what_to_set_is_said() {
        // A word and its end: two steps an epoch.
        assert_eq!(read(1 << 19, &[3]), Ok(1));
        let said = read((1 << 19) + 1, &[3]).unwrap_err();
        assert!(
            said.contains("user 3") && said.contains("local.most_tokens") && said.contains("local.epochs"),
            "{said}"
        );
    }
}
