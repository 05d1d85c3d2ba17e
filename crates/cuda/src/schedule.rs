//! Which user reads which tokens in which step: a chunk's text in the layout the card needs.
//!
//! A step is one batch of every user. Users have as many steps as they have batches, times the readings; who has fewer than others of
//! the chunk comes in later, with the model of the round and a state of zeros ([`ENTERS`]), and all end together. Before that a place
//! computes with the model of the round and learns nothing, and whatever comes of it is forgotten when the user comes in. Nobody is
//! left computing after their last step: a model that diverged can have infinite numbers in it, zero times infinity is not a number,
//! and then whether a user counts would depend on how long the others are at work. What is read when, with which state and at which rate, is what
//! [`device::local`] does with one user after the other.

use std::cell::RefCell;

use device::{
    learner::{
        examples::Examples,
        language::{Cut, Room},
    },
    local::{Algorithm, LocalPlan},
};
use lm::model::batch::Batch;
use privacy::workers::{self, Undone, Workers};

use crate::shape::Shape;

/// The state is zero before this step.
pub(crate) const RESETS: i32 = 1;
/// The loss of this step is of the first reading.
pub(crate) const COUNTS_LOSS: i32 = 2;
/// There is something to learn from.
pub(crate) const ACTIVE: i32 = 4;
/// The first step of a user who comes in later than others: the weights are those of the round.
pub(crate) const ENTERS: i32 = 8;

/// One user's text, and which batch FedSGD takes.
pub(crate) struct Reader<'a> {
    pub(crate) examples: &'a Examples,
    pub(crate) drawn: u64,
}

/// What a chunk reads, `[user][step]`, and of each token `[user][step][token]`.
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
    /// Rows of the table that a step touches beside the softmax, `[user][step][2 * tokens]`: pairs of a row and a token that predicts
    /// it, or, further by all tokens, one that reads it; sorted, then pairs of -1.
    pub(crate) touched: Vec<i32>,
}

/// How many steps a user has.
pub(crate) fn steps(local: &LocalPlan, examples: &Examples) -> usize {
    let batches = Cut::batches_of(examples, local.batch, local.unroll);
    match local.algorithm {
        Algorithm::FedAvg { epochs } => batches * epochs as usize,
        Algorithm::FedSgdAll => batches,
        Algorithm::FedSgdBatch => batches.min(1),
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

/// Which lists the kernels of a network read beside the tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lists {
    pub(crate) order: bool,
    pub(crate) touched: bool,
}

/// One user's part of a schedule.
struct Own<'a> {
    inputs: &'a mut [i32],
    targets: &'a mut [i32],
    order: &'a mut [i32],
    touched: &'a mut [i32],
    shares: &'a mut [f32],
    flags: &'a mut [i32],
}

impl Schedule {
    /// The schedule of a chunk's users, at most as many as the shape has, made by workers. It takes the place of another, whose
    /// memory it has: memory that was touched before is had for nothing.
    pub(crate) fn instead(
        mut self,
        shape: &Shape,
        local: &LocalPlan,
        rate: f32,
        readers: &[Reader<'_>],
        lists: Lists,
        workers: &dyn Workers,
    ) -> Result<Self, Undone> {
        let steps = readers.iter().map(|reader| steps(local, reader.examples)).max().unwrap_or(0);
        self.resize(shape, steps, rate, lists);
        for (user, reader) in readers.iter().enumerate() {
            let features = reader.examples.features();
            self.features[user * shape.context..][..features.len()].copy_from_slice(features);
        }
        let each: Vec<_> = readers.iter().zip(self.by_user(readers.len(), shape.tokens())).collect();
        workers::all(workers, each, |_, (reader, mut own)| own.fill(reader, shape, local))?;
        Ok(self)
    }

    /// The schedule of one model that learns these batches, or only reads them; the state is zero before the first of them where
    /// it `begins` a reading.
    pub(crate) fn of_batches(
        mut self,
        shape: &Shape,
        rate: f32,
        batches: &[Batch<'_>],
        lists: Lists,
        begins: bool,
    ) -> Self {
        self.renew(shape, batches.len(), rate, lists);
        let mut pairs = Vec::new();
        for own in &mut self.by_user(1, shape.tokens()) {
            for (step, batch) in batches.iter().enumerate() {
                let resets = if begins && step == 0 { RESETS } else { 0 };
                let turn = Turn { batch: step, share: 1.0, flags: ACTIVE | COUNTS_LOSS | resets };
                own.put(shape, step, batch, &turn, &mut pairs);
            }
        }
        self
    }

    /// So many steps in which nobody reads anything.
    pub(crate) fn renew(&mut self, shape: &Shape, steps: usize, rate: f32, lists: Lists) {
        self.resize(shape, steps, rate, lists);
        let Self { inputs, targets, order, touched, shares, flags, .. } = self;
        clear([inputs, order], [targets, touched], shares, flags);
    }

    /// Room for so many steps, with what was there before in it.
    fn resize(&mut self, shape: &Shape, steps: usize, rate: f32, lists: Lists) {
        let turns = steps * shape.users;
        let tokens = turns * shape.tokens();
        let listed = |wanted: bool, len: usize| if wanted { len } else { 0 };
        (self.steps, self.rate) = (steps, rate);
        self.inputs.resize(tokens, 0);
        self.targets.resize(tokens, NONE);
        self.order.resize(listed(lists.order, tokens), 0);
        self.shares.resize(turns, 0.0);
        self.flags.resize(turns, 0);
        self.touched.resize(listed(lists.touched, 4 * tokens), NONE);
        self.features.clear();
        self.features.resize(shape.features(steps), 0.0);
    }

    /// The parts of the first so many users.
    fn by_user(&mut self, users: usize, tokens: usize) -> Vec<Own<'_>> {
        let steps = self.steps;
        let [mut inputs, mut targets, mut order, mut touched] =
            [&mut self.inputs, &mut self.targets, &mut self.order, &mut self.touched].map(|all| all.as_mut_slice());
        let (mut shares, mut flags) = (self.shares.as_mut_slice(), self.flags.as_mut_slice());
        let take = |_| Own {
            inputs: part(&mut inputs, steps * tokens),
            targets: part(&mut targets, steps * tokens),
            order: part(&mut order, steps * tokens),
            touched: part(&mut touched, 4 * steps * tokens),
            shares: part(&mut shares, steps),
            flags: part(&mut flags, steps),
        };
        let each = (0..users).map(take).collect();
        // What is left is nobody's.
        clear([inputs, order], [targets, touched], shares, flags);
        flags.fill(RESETS);
        each
    }
}

/// No entry: nothing is to be predicted, no row is touched.
const NONE: i32 = -1;

/// Makes of some turns that nobody learns anything in them.
fn clear(zeros: [&mut [i32]; 2], nones: [&mut [i32]; 2], shares: &mut [f32], flags: &mut [i32]) {
    zeros.into_iter().for_each(|values| values.fill(0));
    nones.into_iter().for_each(|values| values.fill(NONE));
    shares.fill(0.0);
    flags.fill(0);
}

/// Takes so many off the front; all there are where there are fewer.
fn part<'a, T>(rest: &mut &'a mut [T], len: usize) -> &'a mut [T] {
    let all = std::mem::take(rest);
    let (front, back) = all.split_at_mut(len.min(all.len()));
    *rest = back;
    front
}

/// Memory that a worker needs for one user after the other. Allocating it for each user, or for each step, took most of the time: threads
/// that take and give back small pieces of memory keep each other waiting.
#[derive(Default)]
struct Scratch {
    cut: Cut,
    room: Room,
    pairs: Vec<u64>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Own<'_> {
    fn fill(&mut self, reader: &Reader<'_>, shape: &Shape, local: &LocalPlan) {
        SCRATCH.with_borrow_mut(|scratch| self.fill_with(scratch, reader, shape, local));
    }

    fn fill_with(&mut self, scratch: &mut Scratch, reader: &Reader<'_>, shape: &Shape, local: &LocalPlan) {
        let Self { inputs, targets, order, touched, shares, flags } = self;
        clear([inputs, order], [targets, touched], shares, flags);
        let Scratch { cut, room, pairs } = scratch;
        cut.begin(local.unroll);
        cut.take(reader.examples, local.batch);
        let turns = turns(local, cut, reader.drawn);
        let first = self.flags.len() - turns.len();
        self.flags[..first].fill(RESETS);
        for (step, turn) in (first..).zip(&turns) {
            self.put(shape, step, &cut.batch(turn.batch, room), turn, pairs);
        }
        if let Some(flags) = self.flags.get_mut(first).filter(|_| first > 0) {
            *flags |= ENTERS;
        }
    }

    /// Writes the batch of a step.
    fn put(&mut self, shape: &Shape, step: usize, batch: &Batch<'_>, turn: &Turn, pairs: &mut Vec<u64>) {
        let tokens = shape.tokens();
        let here = step * tokens..(step + 1) * tokens;
        let (inputs, targets) = (&mut self.inputs[here.clone()], &mut self.targets[here.clone()]);
        for (i, (input, target)) in batch.inputs.iter().zip(batch.targets).enumerate() {
            let token = i / batch.rows * shape.rows + i % batch.rows;
            inputs[token] = *input as i32;
            targets[token] = if *target == Batch::NONE { -1 } else { *target as i32 };
        }
        self.shares[step] = turn.share * tokens as f32 / batch.counted().max(1) as f32;
        self.flags[step] = turn.flags;
        if let Some(order) = self.order.get_mut(here) {
            order.iter_mut().zip(0..).for_each(|(token, number)| *token = number);
            order.sort_by_key(|token| self.inputs[step * tokens + *token as usize]);
        }
        self.touch(shape, step, pairs);
    }

    /// Which rows single tokens move, sorted by row and then by token.
    fn touch(&mut self, shape: &Shape, step: usize, pairs: &mut Vec<u64>) {
        let (tokens, place) = (shape.tokens(), step * shape.tokens());
        let Some(touched) = self.touched.get_mut(4 * place..4 * (place + tokens)) else { return };
        let predicted = self.targets[place..place + tokens].iter().zip(0..);
        let read = self.inputs[place..place + tokens].iter().zip(tokens as i32..);
        let read = read.take(if shape.tied { tokens } else { 0 });
        // A row and a token as one number, which sorts as the pair does.
        let pair = |(row, token): (&i32, i32)| (*row >= 0).then_some((*row as u64) << 32 | token as u64);
        pairs.clear();
        pairs.extend(predicted.chain(read).filter_map(pair));
        pairs.sort_unstable();
        for (to, pair) in touched.as_chunks_mut::<2>().0.iter_mut().zip(pairs.iter()) {
            *to = [(*pair >> 32) as i32, *pair as u32 as i32];
        }
    }
}

#[cfg(test)]
mod tests {
    use device::learner::language::LanguageLearner;
    use federated::workers::Pool;
    use lm::model::config::ModelConfig;

    use super::*;

    fn plan(algorithm: Algorithm) -> LocalPlan {
        LocalPlan {
            algorithm,
            batch: 2,
            unroll: 3,
            most_tokens: None,
            greedy: false,
            update_penalty: 0.0,
            finetune: None,
        }
    }

    fn text(words: u32) -> Examples {
        let mut examples = Examples::new(&LanguageLearner::schema_with(0));
        LanguageLearner::push(&(10..10 + words).collect::<Vec<_>>(), &mut examples);
        examples
    }

    fn schedule(algorithm: Algorithm, texts: &[Examples]) -> Schedule {
        let shape = Shape::new(&ModelConfig::preset("tiny").unwrap(), &plan(algorithm), 3).unwrap();
        let readers: Vec<Reader<'_>> = texts.iter().map(|examples| Reader { examples, drawn: 1 }).collect();
        let lists = Lists { order: true, touched: true };
        Schedule::default().instead(&shape, &plan(algorithm), 0.5, &readers, lists, &Pool::new(2)).unwrap()
    }

    /// Nine tokens in two rows are five a row: batches of three and of two.
    #[test]
    fn batches_are_those_of_the_threads_and_padding_predicts_nothing() {
        let schedule = schedule(Algorithm::FedAvg { epochs: 2 }, &[text(8), text(0)]);
        assert_eq!(schedule.steps, 4);
        let step = |s: usize, user: usize| &schedule.targets[(user * 4 + s) * 6..][..6];
        assert_eq!(step(0, 0), [10, 15, 11, 16, 12, 17]);
        assert_eq!(step(1, 0), [13, 1, 14, -1, -1, -1]);
        assert_eq!(step(2, 0), step(0, 0));
        assert!((0..4).all(|s| step(s, 1).iter().all(|t| *t == -1)));
        let flags = &schedule.flags[..4];
        assert_eq!(flags, [ACTIVE | RESETS | COUNTS_LOSS, ACTIVE | COUNTS_LOSS, ACTIVE | RESETS, ACTIVE]);
        assert_eq!(schedule.shares[..2], [1.0, 2.0]);
        assert!((4..8).all(|turn| schedule.shares[turn] == 0.0 && schedule.flags[turn] == RESETS));
    }

    /// Rule P1: what a user adds may not depend on others. Nothing is computed with a user's own model but their own steps: those
    /// before are of the public one, with a state of zeros, and there are none after.
    #[test]
    fn p1_who_has_fewer_steps_comes_in_later_and_all_end_together() {
        let (short, long, beside) = (text(2), text(40), Algorithm::FedAvg { epochs: 1 });
        let alone = schedule(beside, std::slice::from_ref(&short));
        let together = schedule(beside, &[long, short]);
        let (own, all) = (alone.steps, together.steps);
        assert!(own < all, "{own} {all}");
        let of = |values: &[i32]| values[2 * all - own..2 * all].to_vec();
        let mut flags = alone.flags[..own].to_vec();
        flags[0] |= ENTERS;
        assert_eq!(of(&together.flags), flags, "their steps are the last, and begin with the model of the round");
        let entering = together.flags.iter().filter(|flags| *flags & ENTERS != 0).count();
        assert!(entering == 1 && alone.flags.iter().all(|flags| flags & ENTERS == 0), "{entering}");
        assert_eq!(together.shares[2 * all - own..2 * all], alone.shares[..own]);
        assert_eq!(together.targets[(2 * all - own) * 6..2 * all * 6], alone.targets[..own * 6]);
        assert!(together.flags[all..2 * all - own].iter().all(|flags| *flags == RESETS), "zeros before");
        assert!(together.shares[all..2 * all - own].iter().all(|share| *share == 0.0), "and nothing is learned");
        assert!(together.flags[2 * all..].iter().all(|flags| *flags == RESETS), "nor by nobody");
    }

    /// A model that learns a text has its batches one after the other; one that is smaller than the shape is padded.
    #[test]
    fn batches_of_one_model_follow_each_other() {
        let shape = Shape::new(&ModelConfig::preset("tiny").unwrap(), &plan(Algorithm::FedSgdAll), 1).unwrap();
        let batch = |inputs, targets| Batch { rows: 2, inputs, targets, context: &[] };
        let batches = [batch(&[3, 4, 5, 6, 7, 8], &[4, 5, 6, 7, 8, 9]), batch(&[10, 11], &[11, 12])];
        let lists = Lists { order: true, touched: false };
        let schedule = Schedule::default().of_batches(&shape, 0.5, &batches, lists, true);
        assert_eq!((schedule.steps, schedule.rate), (2, 0.5));
        assert_eq!(schedule.inputs, [3, 4, 5, 6, 7, 8, 10, 11, 0, 0, 0, 0]);
        assert_eq!(schedule.targets, [4, 5, 6, 7, 8, 9, 11, 12, -1, -1, -1, -1]);
        assert_eq!(schedule.flags, [ACTIVE | COUNTS_LOSS | RESETS, ACTIVE | COUNTS_LOSS]);
        assert_eq!(schedule.shares, [1.0, 3.0]);
        let goes_on = schedule.of_batches(&shape, 0.5, &batches[..1], lists, false);
        assert_eq!(goes_on.flags, [ACTIVE | COUNTS_LOSS]);
    }

    /// In the memory of a schedule with more users, more steps and longer texts nothing is left of it.
    #[test]
    fn nothing_is_left_of_the_schedule_before() {
        let algorithm = Algorithm::FedAvg { epochs: 1 };
        let shape = Shape::new(&ModelConfig::preset("tiny").unwrap(), &plan(algorithm), 3).unwrap();
        let lists = Lists { order: true, touched: true };
        let texts = [text(8), text(40), text(3)];
        let made = |old: Schedule, texts: &[Examples]| {
            let readers: Vec<Reader<'_>> = texts.iter().map(|examples| Reader { examples, drawn: 1 }).collect();
            old.instead(&shape, &plan(algorithm), 0.5, &readers, lists, &Pool::new(2)).unwrap()
        };
        for few in [&texts[..1], &texts[2..], &texts[1..], &texts] {
            let (fresh, again) = (made(Schedule::default(), few), made(made(Schedule::default(), &texts), few));
            assert!(fresh == again, "{} users", few.len());
        }
    }

    #[test]
    fn fed_sgd_takes_the_batch_that_was_drawn_or_all_by_their_shares() {
        let one = schedule(Algorithm::FedSgdBatch, &[text(8)]);
        assert_eq!((one.steps, one.flags[0]), (1, ACTIVE | RESETS | COUNTS_LOSS));
        assert_eq!(one.targets[..4], [13, 1, 14, -1]);
        let all = schedule(Algorithm::FedSgdAll, &[text(8)]);
        assert_eq!(all.steps, 2);
        assert!((all.shares[0] - 6.0 / 9.0).abs() < 1e-6 && (all.shares[1] - 6.0 / 9.0).abs() < 1e-6);
        assert_eq!(all.flags[1] & RESETS, 0);
    }

    #[test]
    fn tokens_are_sorted_by_what_they_read_and_stay_in_their_order() {
        let mut examples = Examples::new(&LanguageLearner::schema_with(0));
        LanguageLearner::push(&[30, 20, 30, 20, 30], &mut examples);
        let schedule = schedule(Algorithm::FedAvg { epochs: 1 }, &[examples]);
        let sorted: Vec<i32> = schedule.order[..6].iter().map(|t| schedule.inputs[*t as usize]).collect();
        assert!(sorted.is_sorted());
        let twice = schedule.order[..6]
            .windows(2)
            .filter(|w| schedule.inputs[w[0] as usize] == schedule.inputs[w[1] as usize] && w[0] > w[1]);
        assert_eq!(twice.count(), 0);
        // Tokens that predict come first, then those that read; what is left is -1.
        let pairs: Vec<[i32; 2]> = schedule.touched[..24].as_chunks().0.to_vec();
        let there: Vec<[i32; 2]> = pairs.iter().copied().filter(|pair| pair[0] >= 0).collect();
        assert!(there.is_sorted() && pairs[there.len()..].iter().all(|pair| *pair == [-1, -1]));
        assert_eq!(there.iter().filter(|pair| pair[1] < 6).count(), 6);
    }
}
