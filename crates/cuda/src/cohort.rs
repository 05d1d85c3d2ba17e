//! The users a card trains: their text, read on all threads, and ahead of time while the card trains others.

use device::{
    finetune::Rehearsal,
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
pub(crate) const MOST_STEPS: usize = 1 << 20;

/// Somebody of the cohort, read.
pub(crate) struct User {
    pub(crate) number: u64,
    pub(crate) examples: Examples,
    /// Their text with general text between, where that is rehearsed.
    mixed: Option<Examples>,
    steps: usize,
}

impl User {
    /// Their text as a schedule takes it. Which batch FedSGD takes is drawn; nothing else of a schedule is.
    pub(crate) fn reader(&self, local: &LocalPlan, key: Option<&StreamKey>) -> Reader<'_> {
        let drawn = match (local.algorithm, key) {
            (Algorithm::FedSgdBatch, Some(key)) => drawn(key, self.number).batch,
            _ => 0,
        };
        Reader { examples: self.text(), drawn }
    }

    /// What is read.
    fn text(&self) -> &Examples {
        self.mixed.as_ref().unwrap_or(&self.examples)
    }

    /// The share of their own text in what is read.
    pub(crate) fn own_share(&self) -> f64 {
        if self.mixed.is_none() { 1.0 } else { self.examples.len() as f64 / self.text().len().max(1) as f64 }
    }
}

/// Reads users.
pub(crate) struct Reading<'a> {
    pub(crate) learner: &'a dyn Learner,
    pub(crate) local: LocalPlan,
    /// General text that is rehearsed.
    pub(crate) rehearsal: Option<Rehearsal>,
    /// The most steps of a user whose text has room on the card, and on the host before it.
    pub(crate) most_steps: usize,
}

impl Reading<'_> {
    /// Everybody's text, those with the most steps first, in the memory of others who are over, where there is such. Which general text
    /// goes with it is drawn with the key of an attempt; before there is one, only their own is read.
    pub(crate) fn read(
        &self,
        population: &dyn Population,
        numbers: &[u64],
        key: Option<&StreamKey>,
        spare: &mut Vec<Examples>,
        workers: &dyn Workers,
    ) -> Result<Vec<User>, EngineError> {
        let mut nobody = || spare.pop().unwrap_or_else(|| Examples::new(self.learner.schema()));
        let new = |number: &u64| User { number: *number, examples: nobody(), mixed: None, steps: 0 };
        let mut all: Vec<User> = numbers.iter().map(new).collect();
        workers::each(workers, &mut all, |_, user| {
            self.read_one(population, user)?;
            self.settle_one(user, key)
        })?;
        sort(&mut all);
        Ok(all)
    }

    fn read_one(&self, population: &dyn Population, user: &mut User) -> Result<(), EngineError> {
        let number = user.number;
        user.examples.clear();
        population.read(number, &mut user.examples).map_err(|problem| EngineError::Data { user: number, problem })?;
        user.examples.truncate(self.local.most_tokens.unwrap_or(usize::MAX));
        Ok(())
    }

    /// For those who were read before it was known how often their text is read, and what general text goes with it.
    pub(crate) fn settle(&self, users: &mut [User], key: &StreamKey, workers: &dyn Workers) -> Result<(), EngineError> {
        workers::each(workers, users.iter_mut(), |_, user| self.settle_one(user, Some(key)))?;
        sort(users);
        Ok(())
    }

    fn settle_one(&self, user: &mut User, key: Option<&StreamKey>) -> Result<(), EngineError> {
        let number = user.number;
        // A user who typed nothing rehearses nothing.
        let rehearsal = self.rehearsal.as_ref().filter(|_| !user.examples.is_empty());
        user.mixed = rehearsal.zip(key).map(|(all, key)| all.mix(&user.examples, drawn(key, number).batch));
        user.steps = steps(&self.local, user.text());
        self.check(user)
    }

    /// Whether nothing of a schedule is drawn with the key of an attempt.
    pub(crate) const fn is_known_early(&self) -> bool {
        self.rehearsal.is_none() && !matches!(self.local.algorithm, Algorithm::FedSgdBatch)
    }

    /// A card looks entries up without asking whether they are there, and beyond a user's table lies the next one's; and it numbers the
    /// steps of a round.
    fn check(&self, user: &User) -> Result<(), EngineError> {
        let refused = |problem: String| failed(CudaError::Refused(format!("user {}: {problem}", user.number)));
        let known = self.learner.recurrent().map_or(0, |model| model.vocabulary);
        let columns = 0..self.learner.schema().columns.len();
        let unknown = columns.flat_map(|column| user.text().ids(column)).find(|id| **id as usize >= known);
        // What they typed, and how much, is theirs: it is not said (rule P12).
        if unknown.is_some() {
            return Err(refused(format!("has a token outside the {known} entries of the model")));
        }
        let most = self.most_steps;
        if user.steps > most {
            let problem = format!("needs more local steps than the {most} whose text the GPU engine holds at a time");
            let what_to_do = "set local.most_tokens, or use fewer local.epochs";
            return Err(refused(format!("{problem}; {what_to_do}")));
        }
        Ok(())
    }
}

/// Those with the most steps come first.
fn sort(users: &mut [User]) {
    users.sort_unstable_by_key(|user| (std::cmp::Reverse(user.steps), user.number));
}

/// A cohort that was read before it was asked for.
pub(crate) struct Ahead {
    /// Whose text it is: where the population lies, and how many it has.
    population: (usize, u64),
    numbers: Vec<u64>,
    /// How often their text was to be read then.
    pub(crate) algorithm: Algorithm,
    pub(crate) users: Vec<User>,
    /// The schedules of their first chunk, a lane each, where nothing of them is drawn; their rate is that of another round.
    pub(crate) schedules: Vec<Schedule>,
}

impl Ahead {
    pub(crate) fn new(
        population: &dyn Population,
        numbers: Vec<u64>,
        algorithm: Algorithm,
        users: Vec<User>,
        schedules: Vec<Schedule>,
    ) -> Self {
        Self { population: identity(population), numbers, algorithm, users, schedules }
    }

    /// Whether these users are asked for.
    pub(crate) fn is_of(&self, users: &Users<'_>) -> bool {
        self.population == identity(users.population) && self.numbers == users.numbers
    }
}

/// A population is told from another by where it lies and how many it has: it stays there as long as the engine is used ([`Users`]).
fn identity(population: &dyn Population) -> (usize, u64) {
    (std::ptr::from_ref(population).cast::<()>().addr(), population.users())
}

#[cfg(test)]
mod tests {
    use corpus::store::StoreError;
    use device::{finetune::GeneralText, learner::language::LanguageLearner};
    use federated::{engine::users_key, workers::Pool};
    use lm::model::config::ModelConfig;
    use privacy::rng::{NoiseSource, SimulationKey};

    use super::*;
    use crate::central::one_reading;

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
        read_up_to(MOST_STEPS, epochs, numbers)
    }

    fn read_up_to(most_steps: usize, epochs: u32, numbers: &[u64]) -> Result<usize, String> {
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
        let reading = Reading { learner: &learner, local, rehearsal: None, most_steps };
        reading
            .read(&Typed, numbers, None, &mut Vec::new(), &Pool::new(2))
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

    /// General text goes with what somebody typed once it is drawn which; there is more to read, and none of it is theirs.
    #[test]
    fn general_text_is_mixed_in_once_the_key_is_there() {
        let model = ModelConfig::preset("tiny").unwrap().with_vocabulary(50);
        let learner = LanguageLearner::new(&model, 1, 1).unwrap();
        let local = LocalPlan { batch: 1, unroll: 1, ..one_reading(1, 1) };
        let general = GeneralText::new((10..40).map(|id| vec![id; 3]));
        let rehearsal = Some(Rehearsal::new(&learner, 0.25, &general));
        let mut reading = Reading { learner: &learner, local, rehearsal, most_steps: MOST_STEPS };
        let key = users_key(&NoiseSource::from(SimulationKey::new(5)), &[3]);
        let pool = Pool::new(2);
        let read = |reading: &Reading<'_>, key| reading.read(&Typed, &[7, 8], key, &mut Vec::new(), &pool).unwrap();
        let mut early = read(&reading, None);
        assert!(early.iter().all(|user| (user.steps, user.own_share()) == (2, 1.0)) && !reading.is_known_early());
        reading.settle(&mut early, &key, &pool).unwrap();
        for (early, late) in early.iter().zip(&read(&reading, Some(&key))) {
            assert_eq!((early.number, early.steps, early.own_share()), (late.number, 8, 0.25));
            let drawn = drawn(&key, early.number).batch;
            assert!(early.text() == late.text() && early.examples.len() == 2);
            assert!(*early.text() == reading.rehearsal.as_ref().unwrap().mix(&early.examples, drawn));
        }
        // What does not fit is found out then too.
        reading.most_steps = 7;
        assert!(reading.settle(&mut early, &key, &pool).is_err());
        reading.rehearsal = None;
        reading.local.algorithm = Algorithm::FedAvg { epochs: 3 };
        reading.settle(&mut early, &key, &pool).unwrap();
        assert!(early.iter().all(|user| (user.steps, user.own_share()) == (6, 1.0)) && reading.is_known_early());
    }

    /// Before any of it is laid out, on the host or on the card: the longest text says how much memory that of all others takes.
    #[test]
    fn who_has_more_text_than_there_is_room_for_is_refused() {
        assert_eq!(read_up_to(6, 3, &[3, 4]), Ok(2));
        let said = read_up_to(5, 3, &[3, 4]).unwrap_err();
        let parts = ["more local steps than the 5", "local.most_tokens", "local.epochs"];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
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
