//! The next-word learner: the recurrent language models of the papers ([`lm::model`]).
//!
//! An example is a token that is read and the one that is to be predicted. Every post is read from BOS on and predicted to its
//! EOS; posts follow one another. A batch has several sequences side by side, each a part of that stream, read a few tokens at a
//! time with carried state: truncated backpropagation. A model that takes a user's context reads the person's features beside
//! every token.

use std::ops::Range;

use lm::{
    kernels::KernelPath,
    language_model::LanguageModel,
    metrics::{Counts, HeadWords, Measure, Sequence, batches},
    model::{
        batch::Batch,
        config::{ConfigError, ModelConfig},
        fast::{self, Network},
        initial::initial_parameters,
        parameters::{Parameter, ParameterLayout, Role},
        unit_norm,
    },
    vocabulary::{BOS, EOS},
};
use privacy::workers::{self, Undone, Workers};

use super::{
    Layout, Learner, LearnerError, Memory, Part, Post, Predictor, Seen, Trainer,
    examples::{Examples, Kind, Schema, Value},
    told::LearnerTerms,
};

/// Rows of a table that a worker scales at a time.
const PIECE: usize = 256;
/// The column of input tokens.
const INPUT: usize = 0;
/// What is to be predicted.
const TARGET: usize = 1;
/// Sequences that a thread measures on at a time.
const ROWS: usize = 64;

/// A recurrent language model, and the shape of the batches that it learns from.
#[derive(Debug, Clone)]
pub struct LanguageLearner {
    config: ModelConfig,
    parameters: ParameterLayout,
    layout: Layout,
    schema: Schema,
    batch: usize,
    unroll: usize,
}

impl LanguageLearner {
    /// A model, with batches of so many sequences and tokens of each.
    ///
    /// # Errors
    /// When the model cannot be built.
    pub fn new(config: &ModelConfig, batch: usize, unroll: usize) -> Result<Self, ConfigError> {
        let parameters = ParameterLayout::new(config)?;
        let part = |p: &Parameter| Part { name: p.name.clone(), rows: p.rows, columns: p.columns };
        Ok(Self {
            layout: Layout::new(parameters.parameters().iter().map(part).collect()),
            schema: Self::schema_with(config.user_context.unwrap_or(0)),
            config: config.clone(),
            parameters,
            batch,
            unroll,
        })
    }

    /// The columns of every language model's examples.
    #[must_use]
    pub fn schema_with(features: usize) -> Schema {
        Schema { columns: vec![("input", Kind::Id), ("target", Kind::Id)], features }
    }

    /// Adds a post, as ids without BOS and EOS; an empty one is nothing.
    pub fn push(post: &[u32], into: &mut Examples) {
        let (mut input, targets) = (BOS, post.iter().copied().chain((!post.is_empty()).then_some(EOS)));
        for target in targets {
            into.push(&[Value::Id(input), Value::Id(target)]);
            input = target;
        }
    }
}

impl Learner for LanguageLearner {
    fn name(&self) -> &'static str {
        "language"
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn measures(&self) -> &'static str {
        "next words"
    }

    fn outcomes(&self) -> usize {
        self.config.vocabulary
    }

    fn initial(&self, seed: u64) -> Result<Vec<f32>, LearnerError> {
        Ok(initial_parameters(&self.config, seed)?)
    }

    fn read(&self, post: Post<'_>, into: &mut Examples) {
        Self::push(post.ids, into);
    }

    fn trainer(&self, kernels: KernelPath) -> Result<Box<dyn Trainer>, LearnerError> {
        let trainer = fast::Trainer::new(&self.config, self.batch, self.unroll, kernels)?;
        let cut = Cut::new(self.unroll);
        Ok(Box::new(LanguageTrainer { trainer, teacher: None, batch: self.batch, cut, room: Room::default() }))
    }

    fn finetunes(&self) -> bool {
        true
    }

    fn soft_trainer(&self, kernels: KernelPath, lambda: f32) -> Result<Box<dyn Trainer>, LearnerError> {
        let trainer = fast::Trainer::new(&self.config, self.batch, self.unroll, kernels)?;
        let labels = trainer.soft_labels();
        let teacher = Some(Teacher { trainer: trainer.clone(), lambda, labels });
        Ok(Box::new(LanguageTrainer {
            trainer,
            teacher,
            batch: self.batch,
            cut: Cut::new(self.unroll),
            room: Room::default(),
        }))
    }

    fn predictor<'a>(
        &'a self,
        model: &[f32],
        held_out: &'a [Examples],
        kernels: KernelPath,
    ) -> Result<Box<dyn Predictor + 'a>, LearnerError> {
        let network = Network::new(&self.config, model.to_vec(), kernels)?;
        let (mut ids, mut ends, mut contexts) = (Vec::new(), Vec::new(), Vec::new());
        for user in held_out {
            for_each_post(user, |post| {
                ids.extend_from_slice(post);
                ends.push(ids.len());
                contexts.push(user.features());
            });
        }
        let starts = [0].into_iter().chain(ends.iter().copied());
        let lengths: Vec<usize> = starts.zip(&ends).map(|(start, end)| end - start).collect();
        // The words of a vocabulary stand in the order of their frequency.
        let measure = Measure::new(HeadWords::in_order(self.config.vocabulary));
        Ok(Box::new(LanguagePredictor { network, measure, batches: batches(&lengths, ROWS), ids, ends, contexts }))
    }

    fn after_step(&self, model: &mut [f32]) {
        unit_norm::renormalise(&self.config, &self.parameters, model);
    }

    fn after_step_by(&self, model: &mut [f32], workers: &dyn Workers) -> Result<(), Undone> {
        for table in unit_norm::tables(&self.config, &self.parameters) {
            let pieces = model[table.range()].chunks_mut(PIECE * table.columns);
            workers::all(workers, pieces, |_, rows| unit_norm::scale(rows, table.columns))?;
        }
        Ok(())
    }

    fn recurrent(&self) -> Option<&ModelConfig> {
        Some(&self.config)
    }

    fn told(&self) -> Option<LearnerTerms> {
        Some(LearnerTerms::Language { model: self.config.clone() })
    }

    fn memory(&self) -> Memory {
        let model = &self.config;
        let tables: usize =
            [Role::Embedding, Role::OutputEmbedding].map(|role| self.parameters.range(role).len()).iter().sum();
        // In 64 bits on any machine: what a task asks for may be more than a browser can address.
        let [all, tables, vocabulary, layers] =
            [self.parameters.len(), tables, model.vocabulary, model.layers].map(|count| count as u64);
        // Matrices are kept twice, for the ways there and back; tables once.
        let weights = 2 * all - tables;
        let wide = (2 * model.cell.gates().len() as u64 + 5) * model.hidden as u64 + 2 * model.embedding as u64;
        let tokens = (self.batch as u64).saturating_mul(self.unroll as u64);
        let activations = tokens.saturating_mul(vocabulary + layers * wide);
        let lines = ROWS as u64 * (vocabulary + wide);
        let floats = [weights.saturating_add(activations), weights, lines];
        let [trainer, predictor, piece] = floats.map(|floats| floats.saturating_mul(4));
        Memory { trainer, predictor, piece }
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::to_value(&self.config).unwrap_or_default()
    }
}

/// The posts of somebody's examples, each as `BOS w1 ... wn EOS`; one that was cut has no EOS. What is visited is valid for the
/// visit only.
pub fn for_each_post(user: &Examples, mut visit: impl FnMut(&[u32])) {
    let (inputs, targets) = (user.ids(INPUT), user.ids(TARGET));
    let mut post = Vec::new();
    for Range { start, end } in posts(user) {
        post.clear();
        post.extend_from_slice(&inputs[start..end]);
        post.push(targets[end - 1]);
        visit(&post);
    }
}

/// Where the posts of somebody's examples lie.
pub(crate) fn posts(user: &Examples) -> Vec<Range<usize>> {
    let inputs = user.ids(INPUT);
    let starts = (0..inputs.len()).filter(|i| inputs[*i] == BOS);
    let ends = starts.clone().skip(1).chain([inputs.len()]);
    starts.zip(ends).map(|(start, end)| start..end).collect()
}

/// A stream cut into sequences of one length that are read side by side; the last may end early.
#[derive(Debug, Clone, Default)]
pub struct Cut {
    inputs: Vec<u32>,
    targets: Vec<u32>,
    context: Vec<f32>,
    rows: usize,
    unroll: usize,
    length: usize,
}

/// Memory for one batch.
#[derive(Debug, Clone, Default)]
pub struct Room {
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

impl Cut {
    /// For batches of so many tokens of each sequence.
    #[must_use]
    pub fn new(unroll: usize) -> Self {
        Self { unroll, ..Self::default() }
    }

    /// Batches of so many tokens of each sequence from now on, in the memory that it has.
    pub const fn begin(&mut self, unroll: usize) {
        self.unroll = unroll;
    }

    /// How many batches one reading of somebody's stream has, in at most so many sequences and so many tokens of each.
    #[must_use]
    pub fn batches_of(user: &Examples, rows: usize, unroll: usize) -> usize {
        user.len().div_ceil(rows.clamp(1, user.len().max(1))).div_ceil(unroll.max(1))
    }

    /// Cuts somebody's stream into at most so many sequences.
    pub fn take(&mut self, user: &Examples, rows: usize) {
        for (own, column) in [(&mut self.inputs, INPUT), (&mut self.targets, TARGET)] {
            own.clear();
            own.extend_from_slice(user.ids(column));
        }
        self.context.clear();
        self.context.extend_from_slice(user.features());
        self.rows = rows.clamp(1, user.len().max(1));
        self.unroll = self.unroll.max(1);
        self.length = user.len().div_ceil(self.rows);
    }

    /// How many batches one reading has.
    #[must_use]
    pub const fn batches(&self) -> usize {
        self.length.div_ceil(self.unroll)
    }

    /// One of them. Where a sequence has ended, nothing is to be predicted.
    pub fn batch<'r>(&'r self, number: usize, room: &'r mut Room) -> Batch<'r> {
        room.inputs.clear();
        room.targets.clear();
        let start = number * self.unroll;
        for t in start..(start + self.unroll).min(self.length) {
            for row in 0..self.rows {
                let at = row * self.length + t;
                room.inputs.push(self.inputs.get(at).copied().unwrap_or(EOS));
                room.targets.push(self.targets.get(at).copied().unwrap_or(Batch::NONE));
            }
        }
        Batch { rows: self.rows, inputs: &room.inputs, targets: &room.targets, context: &self.context }
    }
}

/// Trains users, one after the other.
struct LanguageTrainer {
    trainer: fast::Trainer,
    teacher: Option<Teacher>,
    batch: usize,
    cut: Cut,
    room: Room,
}

/// The model as it was loaded, and what it predicts (Popov et al. 2018, equation 2).
struct Teacher {
    trainer: fast::Trainer,
    lambda: f32,
    labels: fast::SoftLabels,
}

impl Trainer for LanguageTrainer {
    fn load(&mut self, model: &[f32]) {
        self.trainer.load(model);
        if let Some(teacher) = &mut self.teacher {
            teacher.trainer.load(model);
        }
    }

    fn replace(&mut self, model: &[f32]) {
        let state = self.trainer.state();
        self.trainer.load(model);
        self.trainer.set_state(&state);
    }

    fn store(&mut self, to: &mut [f32]) {
        self.trainer.store(to);
    }

    fn cut(&mut self, user: &Examples) -> usize {
        self.cut.take(user, self.batch);
        self.cut.batches()
    }

    fn begin(&mut self) {
        self.trainer.forget();
        if let Some(teacher) = &mut self.teacher {
            teacher.trainer.forget();
        }
    }

    fn counted(&mut self, batch: usize) -> usize {
        self.cut.batch(batch, &mut self.room).counted()
    }

    fn step(&mut self, batch: usize, rate: f32) -> Seen {
        let Self { trainer, teacher, cut, room, .. } = self;
        let batch = cut.batch(batch, room);
        let loss = match teacher {
            None => trainer.step(&batch, rate),
            Some(Teacher { trainer: teacher, lambda, labels }) => {
                labels.clear();
                teacher.add_probabilities(&batch, 1.0 - *lambda, labels);
                trainer.step_towards(&batch, rate, *lambda, labels)
            }
        };
        Seen { loss: f64::from(loss) }
    }
}

/// Measures a model on posts, in batches of about the same length.
struct LanguagePredictor<'a> {
    network: Network,
    measure: Measure<'static>,
    batches: Vec<Vec<usize>>,
    /// Posts one after the other, each as `BOS w1 ... wn EOS`.
    ids: Vec<u32>,
    /// The end of each post.
    ends: Vec<usize>,
    /// What is known of who wrote each.
    contexts: Vec<&'a [f32]>,
}

/// A network that knows who wrote what it reads.
struct Knowing<'a> {
    network: &'a Network,
    contexts: Vec<&'a [f32]>,
}

impl LanguageModel for Knowing<'_> {
    fn vocabulary(&self) -> usize {
        self.network.vocabulary()
    }

    fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
        self.network.read_knowing(sequences, &self.contexts, visit);
    }
}

impl Predictor for LanguagePredictor<'_> {
    fn pieces(&self) -> usize {
        self.batches.len()
    }

    fn count(&self, piece: usize) -> Result<Counts, LearnerError> {
        let post = |number: &usize| {
            let start = if *number == 0 { 0 } else { self.ends[number - 1] };
            Sequence { ids: &self.ids[start..self.ends[*number]], letters: &[] }
        };
        let sequences: Vec<Sequence<'_>> = self.batches[piece].iter().map(post).collect();
        let contexts = self.batches[piece].iter().map(|post| self.contexts[*post]).collect();
        Ok(self.measure.count(&Knowing { network: &self.network, contexts }, &sequences)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples(posts: &[&[u32]]) -> Examples {
        let mut examples = Examples::new(&LanguageLearner::schema_with(0));
        posts.iter().for_each(|post| LanguageLearner::push(post, &mut examples));
        examples
    }

    /// What a browser cannot address is refused there, and not counted round to something small.
    #[test]
    fn memory_is_counted_in_64_bits_on_any_machine() {
        let model = ModelConfig::preset("tiny").unwrap().with_vocabulary(1 << 15);
        let memory = |batch, unroll| LanguageLearner::new(&model, batch, unroll).unwrap().memory();
        let (one, many) = (memory(1, 1), memory(1024, 256));
        assert!(many.trainer > 4 << 33, "{many:?}");
        // The weights once, and as much for each token.
        let of_a_token = memory(2, 1).trainer - one.trainer;
        assert_eq!(many.trainer, one.trainer + ((1 << 18) - 1) * of_a_token);
        assert_eq!((many.predictor, many.piece), (one.predictor, one.piece));
    }

    #[test]
    fn posts_are_read_from_their_beginning_and_predicted_to_their_end() {
        let examples = examples(&[&[7, 8], &[], &[9]]);
        assert_eq!(examples.ids(INPUT), [BOS, 7, 8, BOS, 9]);
        assert_eq!(examples.ids(TARGET), [7, 8, EOS, 9, EOS]);
    }

    #[test]
    fn posts_come_back_as_they_were_and_a_cut_one_has_no_end() {
        let mut examples = examples(&[&[7, 8], &[9]]);
        let posts = |examples: &Examples| {
            let mut posts = Vec::new();
            for_each_post(examples, |post| posts.push(post.to_vec()));
            posts
        };
        assert_eq!(posts(&examples), [vec![BOS, 7, 8, EOS], vec![BOS, 9, EOS]]);
        examples.truncate(4);
        assert_eq!(posts(&examples), [vec![BOS, 7, 8, EOS], vec![BOS, 9]]);
        examples.truncate(2);
        assert_eq!(posts(&examples), [vec![BOS, 7, 8]]);
        examples.clear();
        assert!(posts(&examples).is_empty());
    }

    /// Every token is predicted once, whatever the shape; what is padded is not.
    #[test]
    fn a_reading_predicts_every_token_once() {
        let posts: Vec<Vec<u32>> = (0..9).map(|n| (0..n).map(|i| 10 + i + n).collect()).collect();
        let examples = examples(&posts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for (rows, unroll) in [(1, 1), (3, 4), (8, 10), (100, 3), (0, 0), (7, 1000)] {
            let mut cut = Cut::new(unroll);
            cut.take(&examples, rows);
            let mut room = Room::default();
            let (mut read, mut predicted) = (Vec::new(), Vec::new());
            for number in 0..cut.batches() {
                let batch = cut.batch(number, &mut room);
                assert_eq!(batch.inputs.len(), batch.targets.len());
                let counted = batch.inputs.iter().zip(batch.targets).filter(|(_, t)| **t != Batch::NONE);
                counted.for_each(|(i, t)| {
                    read.push(*i);
                    predicted.push(*t);
                });
            }
            for (mut got, column) in [(read, INPUT), (predicted, TARGET)] {
                let mut want = examples.ids(column).to_vec();
                got.sort_unstable();
                want.sort_unstable();
                assert_eq!(got, want, "{rows} x {unroll}");
            }
        }
    }

    #[test]
    fn somebody_who_typed_nothing_has_no_batches() {
        let mut cut = Cut::new(10);
        cut.take(&examples(&[]), 8);
        assert_eq!(cut.batches(), 0);
    }
}
