//! Which user reads what in which step: the text of a chunk as the card takes it.
//!
//! A step is one batch of every user. Users have as many steps as they have batches, times the readings; who has none left learns
//! nothing in a step: their share is zero, so is every gradient of theirs, and their weights keep their bits. What is read when, with
//! which state and at which rate, is what [`device::local`] does with one user after the other.

use device::{
    learner::{
        examples::Examples,
        language::{Cut, Room},
    },
    local::{Algorithm, LocalPlan},
};
use lm::model::batch::Batch;

use crate::shape::Shape;

/// The state is zero before this step.
pub(crate) const RESETS: i32 = 1;
/// The loss of this step is of the first reading.
pub(crate) const COUNTS_LOSS: i32 = 2;
/// There is something to learn from.
pub(crate) const ACTIVE: i32 = 4;

/// One user's text, and which batch FedSGD takes.
pub(crate) struct Reader<'a> {
    pub(crate) examples: &'a Examples,
    pub(crate) drawn: u64,
}

/// What a chunk reads, `[step][user]`, and of each token `[step][user][token]`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Schedule {
    pub(crate) steps: usize,
    /// Entries that are read.
    pub(crate) inputs: Vec<i32>,
    /// Entries that are to be predicted; -1 for none.
    pub(crate) targets: Vec<i32>,
    /// The tokens of a step, sorted by the entry that they read.
    pub(crate) order: Vec<i32>,
    /// The rate of the round.
    pub(crate) rate: f32,
    /// What the gradient of each token is multiplied with, `tokens / counted` in a batch that is learned from.
    pub(crate) shares: Vec<f32>,
    pub(crate) flags: Vec<i32>,
    /// What is known of users, `[user][context]`.
    pub(crate) features: Vec<f32>,
    /// Rows of the table that a step touches beside the softmax, `[step][user][2 * tokens]`: pairs of a row and a token that predicts
    /// it, or, further by all tokens, one that reads it; sorted, then pairs of -1.
    pub(crate) touched: Vec<i32>,
}

/// How many steps a user has.
pub(crate) fn steps(local: &LocalPlan, examples: &Examples) -> usize {
    let mut cut = Cut::new(local.unroll);
    cut.take(examples, local.batch);
    match local.algorithm {
        Algorithm::FedAvg { epochs } => cut.batches() * epochs as usize,
        Algorithm::FedSgdAll => cut.batches(),
        Algorithm::FedSgdBatch => cut.batches().min(1),
    }
}

/// One batch of a user: which, at which share of the rate, and what is special about it.
struct Turn {
    batch: usize,
    share: f32,
    flags: i32,
}

/// A user's batches in their order.
fn turns(local: &LocalPlan, cut: &Cut, drawn: u64) -> Vec<Turn> {
    let batches = cut.batches();
    let resets = |batch: usize| if batch == 0 { RESETS } else { 0 };
    match local.algorithm {
        Algorithm::FedAvg { epochs } => {
            let turn = |epoch: u32, batch: usize| Turn {
                batch,
                share: 1.0,
                flags: ACTIVE | resets(batch) | if epoch == 0 { COUNTS_LOSS } else { 0 },
            };
            (0..epochs).flat_map(|epoch| (0..batches).map(move |batch| turn(epoch, batch))).collect()
        }
        Algorithm::FedSgdBatch if batches == 0 => Vec::new(),
        Algorithm::FedSgdBatch => {
            let batch = (drawn % batches as u64) as usize;
            vec![Turn { batch, share: 1.0, flags: ACTIVE | RESETS | COUNTS_LOSS }]
        }
        Algorithm::FedSgdAll => {
            let mut room = Room::default();
            let counted: Vec<usize> = (0..batches).map(|batch| cut.batch(batch, &mut room).counted()).collect();
            let all = counted.iter().sum::<usize>().max(1) as f32;
            let turn = |(batch, counted): (usize, &usize)| Turn {
                batch,
                share: *counted as f32 / all,
                flags: ACTIVE | COUNTS_LOSS | resets(batch),
            };
            counted.iter().enumerate().map(turn).collect()
        }
    }
}

impl Schedule {
    /// The schedule of a chunk's users, at most as many as the shape has.
    pub(crate) fn new(shape: &Shape, local: &LocalPlan, rate: f32, readers: &[Reader<'_>]) -> Self {
        let (users, tokens) = (shape.users, shape.tokens());
        let mut cut = Cut::new(local.unroll);
        let mut room = Room::default();
        let steps = readers.iter().map(|reader| steps(local, reader.examples)).max().unwrap_or(0);
        let mut schedule = Self {
            steps,
            rate,
            inputs: vec![0; steps * users * tokens],
            targets: vec![-1; steps * users * tokens],
            order: (0..steps * users).flat_map(|_| 0..tokens as i32).collect(),
            shares: vec![0.0; steps * users],
            flags: vec![0; steps * users],
            features: vec![0.0; users * shape.context],
            touched: vec![-1; 4 * steps * users * tokens],
        };
        for (user, reader) in readers.iter().enumerate() {
            let features = reader.examples.features();
            schedule.features[user * shape.context..][..features.len()].copy_from_slice(features);
            cut.take(reader.examples, local.batch);
            for (step, turn) in turns(local, &cut, reader.drawn).iter().enumerate() {
                let batch = cut.batch(turn.batch, &mut room);
                schedule.put(shape, step * users + user, &batch, turn);
            }
        }
        schedule
    }

    /// Writes a user's batch of a step.
    fn put(&mut self, shape: &Shape, at: usize, batch: &Batch<'_>, turn: &Turn) {
        let place = at * shape.tokens();
        for (i, (input, target)) in batch.inputs.iter().zip(batch.targets).enumerate() {
            let token = place + i / batch.rows * shape.rows + i % batch.rows;
            self.inputs[token] = *input as i32;
            self.targets[token] = if *target == Batch::NONE { -1 } else { *target as i32 };
        }
        let inputs = &self.inputs[place..place + shape.tokens()];
        self.order[place..place + shape.tokens()].sort_by_key(|token| inputs[*token as usize]);
        self.shares[at] = turn.share * shape.tokens() as f32 / batch.counted().max(1) as f32;
        self.flags[at] = turn.flags;
        self.touch(shape, at);
    }

    /// Which rows single tokens move, sorted by row and then by token.
    fn touch(&mut self, shape: &Shape, at: usize) {
        let (tokens, place) = (shape.tokens(), at * shape.tokens());
        let predicted = self.targets[place..place + tokens].iter().zip(0..);
        let read = self.inputs[place..place + tokens].iter().zip(tokens as i32..);
        let read = read.take(if shape.tied { tokens } else { 0 });
        let mut pairs: Vec<[i32; 2]> = predicted.chain(read).map(|(row, token)| [*row, token]).collect();
        pairs.retain(|[row, _]| *row >= 0);
        pairs.sort_unstable();
        self.touched[4 * place..4 * place + 2 * pairs.len()].copy_from_slice(pairs.as_flattened());
    }
}

#[cfg(test)]
mod tests {
    use device::learner::language::LanguageLearner;
    use lm::model::config::ModelConfig;

    use super::*;

    fn plan(algorithm: Algorithm) -> LocalPlan {
        LocalPlan { algorithm, batch: 2, unroll: 3, most_tokens: None, greedy: false, update_penalty: 0.0 }
    }

    fn text(words: u32) -> Examples {
        let mut examples = Examples::new(&LanguageLearner::schema_with(0));
        LanguageLearner::push(&(10..10 + words).collect::<Vec<_>>(), &mut examples);
        examples
    }

    fn schedule(algorithm: Algorithm, texts: &[Examples]) -> Schedule {
        let shape = Shape::new(&ModelConfig::preset("tiny").unwrap(), &plan(algorithm), 3).unwrap();
        let readers: Vec<Reader<'_>> = texts.iter().map(|examples| Reader { examples, drawn: 1 }).collect();
        Schedule::new(&shape, &plan(algorithm), 0.5, &readers)
    }

    /// Nine tokens in two rows are five a row: batches of three and of two.
    #[test]
    fn batches_are_those_of_the_threads_and_padding_predicts_nothing() {
        let schedule = schedule(Algorithm::FedAvg { epochs: 2 }, &[text(8), text(0)]);
        assert_eq!(schedule.steps, 4);
        let step = |s: usize, user: usize| &schedule.targets[(s * 3 + user) * 6..][..6];
        assert_eq!(step(0, 0), [10, 15, 11, 16, 12, 17]);
        assert_eq!(step(1, 0), [13, 1, 14, -1, -1, -1]);
        assert_eq!(step(2, 0), step(0, 0));
        assert!((0..4).all(|s| step(s, 1).iter().all(|t| *t == -1)));
        let flags: Vec<i32> = (0..4).map(|s| schedule.flags[s * 3]).collect();
        assert_eq!(flags, [ACTIVE | RESETS | COUNTS_LOSS, ACTIVE | COUNTS_LOSS, ACTIVE | RESETS, ACTIVE]);
        assert_eq!([schedule.shares[0], schedule.shares[3]], [1.0, 2.0]);
        assert!((0..4).all(|s| schedule.shares[s * 3 + 1] == 0.0 && schedule.flags[s * 3 + 1] == 0));
    }

    #[test]
    fn fed_sgd_takes_the_batch_that_was_drawn_or_all_by_their_shares() {
        let one = schedule(Algorithm::FedSgdBatch, &[text(8)]);
        assert_eq!((one.steps, one.flags[0]), (1, ACTIVE | RESETS | COUNTS_LOSS));
        assert_eq!(one.targets[..4], [13, 1, 14, -1]);
        let all = schedule(Algorithm::FedSgdAll, &[text(8)]);
        assert_eq!(all.steps, 2);
        assert!((all.shares[0] - 6.0 / 9.0).abs() < 1e-6 && (all.shares[3] - 6.0 / 9.0).abs() < 1e-6);
        assert_eq!(all.flags[3] & RESETS, 0);
    }

    #[test]
    fn tokens_are_sorted_by_what_they_read_and_stay_in_their_order() {
        let mut examples = Examples::new(&LanguageLearner::schema_with(0));
        LanguageLearner::push(&[30, 20, 30, 20, 30], &mut examples);
        let schedule = schedule(Algorithm::FedAvg { epochs: 1 }, &[examples]);
        let sorted: Vec<i32> = schedule.order[..6].iter().map(|t| schedule.inputs[*t as usize]).collect();
        assert!(sorted.is_sorted());
        let twice = schedule.order[..6].windows(2).filter(|w| {
            schedule.inputs[w[0] as usize] == schedule.inputs[w[1] as usize] && w[0] > w[1]
        });
        assert_eq!(twice.count(), 0);
    }
}
