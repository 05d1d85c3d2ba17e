//! Evaluates a model on the card: many posts side by side through one model.
//!
//! Posts are put into rows by their lengths alone, the longest first, and read a few tokens at a time with carried state; a step of
//! all rows is one graph, always of the same size, so what is said of a token depends neither on its place nor on its neighbours. Of
//! each token the card finds out what `lm::metrics` asks for, and the host counts it, person by person. Products are in float32,
//! whatever users are trained in: evaluations are to tell models apart, and take little time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use device::learner::{Learner, LearnerError, examples::Examples, language::for_each_post};
use federated::engine::{EngineError, Precision, measure::Measurer};
use lm::{
    metrics::{Counts, HeadWords, LISTED, Measure, Predicted, Sequence},
    model::{config::ModelConfig, fast::NetworkError, parameters::ParameterLayout},
};

use crate::{
    card::{Arg, Card, Graph, Grid, Memory},
    central::one_reading,
    error::{CudaError, failed, unavailable},
    held::{self, Held},
    network::Network,
    placement::Placement,
    schedule::{Lists, RESETS, Schedule},
    shape::Shape,
    source::{JUDGE, kernels},
};

/// Tokens of a post that are read at a time. People's posts may be few and long, as blogs are, or many and short: a step costs what
/// its rows and tokens cost, whether anybody is there or not, and the longest post says how many steps there are.
const UNROLL: usize = 32;
/// Posts side by side, where the logits of their tokens are not too many.
const ROWS: usize = 64;
/// Logits of a step at most.
const LOGITS: usize = 1 << 27;
/// Steps that go up at a time.
const STEPS: usize = 32;
/// Numbers that the card says of a token.
const SAID: usize = 2 + LISTED;

kernels! {
    /// What says of each token what is counted.
    pub(crate) struct Kernels:
        judge
}

/// A card that measures models.
pub struct CardMeasurer {
    config: ModelConfig,
    parameters: usize,
    measure: Measure<'static>,
    network: Network,
    kernels: Kernels,
    judged: Memory<u32>,
    step: Option<Graph>,
    schedule: Schedule,
    weights: Vec<f32>,
    said: Vec<u32>,
    card: Card,
}

/// A post: whose it is, and where it lies among all ids.
#[derive(Debug, Clone, Copy)]
struct Post {
    person: usize,
    start: usize,
    end: usize,
}

impl Post {
    /// Tokens that are to be predicted.
    const fn targets(&self) -> usize {
        (self.end - self.start).saturating_sub(1)
    }
}

/// Everybody's posts, the longest first.
struct Posts {
    ids: Vec<u32>,
    posts: Vec<Post>,
}

impl Posts {
    fn new(people: &[Examples], vocabulary: usize) -> Result<Self, LearnerError> {
        let (mut ids, mut posts, mut checked) = (Vec::new(), Vec::new(), Ok(()));
        for (person, examples) in people.iter().enumerate() {
            for_each_post(examples, |post| {
                let sequence = Sequence { ids: post, letters: &[] };
                checked = std::mem::replace(&mut checked, Ok(())).and(sequence.check(posts.len(), vocabulary));
                let start = ids.len();
                ids.extend_from_slice(post);
                posts.push(Post { person, start, end: ids.len() });
            });
        }
        checked?;
        posts.retain(|post: &Post| post.targets() > 0);
        posts.sort_by_key(|post| std::cmp::Reverse(post.targets()));
        Ok(Self { ids, posts })
    }
}

/// One step: some posts, from one of their tokens on.
#[derive(Debug, Clone, Copy)]
struct Turn<'a> {
    posts: &'a [Post],
    from: usize,
}

impl<'a> Turn<'a> {
    /// All steps that it takes to read posts, so many at a time.
    fn all(posts: &'a [Post], rows: usize) -> Vec<Self> {
        let of = |posts: &'a [Post]| {
            let longest = posts.first().map_or(0, Post::targets);
            (0..longest).step_by(UNROLL).map(move |from| Self { posts, from })
        };
        posts.chunks(rows).flat_map(of).collect()
    }

    /// Calls back with every token of the step that is read: its number in the batch, its post, and where its input lies.
    fn for_each_token(self, rows: usize, mut visit: impl FnMut(usize, Post, usize)) {
        for (row, post) in self.posts.iter().enumerate() {
            for t in 0..post.targets().saturating_sub(self.from).min(UNROLL) {
                visit(t * rows + row, *post, post.start + self.from + t);
            }
        }
    }
}

impl CardMeasurer {
    /// Nothing of whom it measured a model on stays on the card.
    fn forget(&mut self) -> Result<(), CudaError> {
        // A call is not made where something failed unnoticed before it, and says so: the next one is.
        self.forget_once().or_else(|_| self.forget_once())
    }

    fn forget_once(&mut self) -> Result<(), CudaError> {
        let cleared = self.card.clear_workspace().and(self.card.clear(&mut self.judged));
        cleared.and(held::clear_all(self.network.held(false), &self.card))
    }

    /// Whether nothing of anybody is left: for tests.
    pub(crate) fn has_forgotten(&mut self) -> Result<bool, CudaError> {
        let held = self.network.held(false).into_iter().chain([Held::U32(&mut self.judged)]);
        let mut all = held.map(|held| held.reads_zero(&self.card));
        Ok(all.try_fold(true, |zero, held| held.map(|held| zero && held))? && self.card.workspace_is_clear()?)
    }

    /// The measurer of a learner's models.
    ///
    /// # Errors
    /// When there is no card, or the models are none that it can read.
    pub fn new(learner: &dyn Learner) -> Result<Self, EngineError> {
        let none = || {
            let problem = format!("only recurrent language models are supported, not {:?}", learner.name());
            unavailable(CudaError::Refused(problem))
        };
        Self::of_model(learner.recurrent().ok_or_else(none)?).map_err(unavailable)
    }

    fn of_model(config: &ModelConfig) -> Result<Self, CudaError> {
        let layout = ParameterLayout::new(config).map_err(|e| CudaError::Refused(e.to_string()))?;
        let rows = (LOGITS / UNROLL / config.vocabulary).clamp(1, ROWS);
        let local = one_reading(rows, UNROLL);
        let shape = Shape { many_people: true, ..Shape::new(config, &local, 1)? };
        let placement = Placement::new(config, &layout, &shape);
        let defines = shape.defines(placement.length, layout.len());
        let card = Card::of_this_process()?;
        let architecture = card.architecture()?;
        let weights = vec![0.0; placement.length];
        Ok(Self {
            config: config.clone(),
            parameters: layout.len(),
            // The words of a vocabulary stand in the order of their frequency.
            measure: Measure::new(HeadWords::in_order(config.vocabulary)),
            network: Network::new(&card, shape, placement, &local, Precision::F32, &architecture)?,
            kernels: Kernels::load(&card, JUDGE, &defines, &architecture)?,
            judged: card.zeros(STEPS * shape.tokens() * SAID)?,
            step: None,
            schedule: Schedule::default(),
            weights,
            said: Vec::new(),
            card,
        })
    }

    /// What a model predicts of each of these people's examples.
    ///
    /// # Errors
    /// When the parameters are not those of the model, the examples are not for it, or the card broke down.
    pub fn each(&mut self, model: &[f32], people: &[Examples]) -> Result<Vec<Counts>, EngineError> {
        if model.len() != self.parameters {
            let wrong = NetworkError::Length { want: self.parameters, got: model.len() };
            return Err(LearnerError::Network(wrong).into());
        }
        let posts = Posts::new(people, self.config.vocabulary)?;
        let counts = catch_unwind(AssertUnwindSafe(|| self.count_each(model, people, &posts)));
        let forgotten = self.forget();
        let counts = counts.unwrap_or_else(|panic| resume_unwind(panic)).map_err(failed)?;
        forgotten.map_err(failed)?;
        Ok(counts)
    }

    fn count_each(&mut self, model: &[f32], people: &[Examples], posts: &Posts) -> Result<Vec<Counts>, CudaError> {
        let mut counts = vec![Counts::default(); people.len()];
        self.load(model)?;
        for turns in Turn::all(&posts.posts, self.network.shape().rows).chunks(STEPS) {
            self.judge(turns, posts, people)?;
            self.add_up(turns, posts, &mut counts);
        }
        Ok(counts)
    }

    fn load(&mut self, model: &[f32]) -> Result<(), CudaError> {
        let Self { card, network, weights, .. } = self;
        network.placement().put(model, weights);
        card.upload(weights, &mut network.weights)
    }

    /// Has the card read some steps, and brings down what it says.
    fn judge(&mut self, turns: &[Turn<'_>], posts: &Posts, people: &[Examples]) -> Result<(), CudaError> {
        self.fill(turns, posts, people);
        let Self { card, network, kernels, judged, step, schedule, said, .. } = self;
        let stale = network.read(card, schedule);
        if !matches!(stale, Ok(false)) {
            *step = None;
        }
        stale?;
        if step.is_none() {
            *step = Some(card.record(|| {
                let [logits, bias] = network.predict(card)?;
                let [at, targets] = [network.reading.step.address(), network.targets()];
                let args = [at, targets, bias, logits, judged.address()].map(Arg::At);
                card.launch(&kernels.judge, Grid::blocks(network.shape().tokens(), 1, 256), &args)?;
                network.advance(card)
            })?);
        }
        for _ in turns {
            if let Some(step) = step {
                card.replay(step)?;
            }
        }
        said.clear();
        said.resize(turns.len() * network.shape().tokens() * SAID, 0);
        card.download(judged, said)
    }

    /// What is read in each step.
    fn fill(&mut self, turns: &[Turn<'_>], posts: &Posts, people: &[Examples]) {
        let (shape, schedule) = (*self.network.shape(), &mut self.schedule);
        schedule.renew(&shape, turns.len(), 0.0, Lists { order: false, touched: false });
        for (number, turn) in turns.iter().enumerate() {
            let place = number * shape.tokens();
            turn.for_each_token(shape.rows, |token, _, at| {
                schedule.inputs[place + token] = posts.ids[at] as i32;
                schedule.targets[place + token] = posts.ids[at + 1] as i32;
            });
            schedule.flags[number] = if turn.from == 0 { RESETS } else { 0 };
            for (row, post) in turn.posts.iter().enumerate() {
                // Somebody of whom nothing is known has zeros.
                let known = people[post.person].features();
                let to = &mut schedule.features[(number * shape.rows + row) * shape.context..][..shape.context];
                to.iter_mut().zip(known).for_each(|(to, known)| *to = *known);
            }
        }
    }

    /// Counts what was said, for the person whose post it is.
    fn add_up(&self, turns: &[Turn<'_>], posts: &Posts, counts: &mut [Counts]) {
        let (rows, tokens) = (self.network.shape().rows, self.network.shape().tokens());
        for (number, turn) in turns.iter().enumerate() {
            turn.for_each_token(rows, |token, post, at| {
                let said = &self.said[(number * tokens + token) * SAID..][..SAID];
                let words = &said[2..];
                let listed = words.iter().position(|word| *word == u32::MAX).unwrap_or(LISTED);
                let predicted = Predicted {
                    target: posts.ids[at + 1],
                    rank: (said[1] != u32::MAX).then_some(said[1] as usize),
                    log_probability: f32::from_bits(said[0]),
                    words: &words[..listed],
                };
                self.measure.add(&mut counts[post.person], predicted);
            });
        }
    }
}

impl Drop for CardMeasurer {
    fn drop(&mut self) {
        drop(self.forget());
    }
}

impl Measurer for CardMeasurer {
    fn count(&mut self, model: &[f32], people: &[Examples]) -> Result<Counts, EngineError> {
        let mut all = Counts::default();
        self.each(model, people)?.iter().for_each(|counts| all.merge(counts));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use device::learner::language::LanguageLearner;

    use super::*;

    fn person(posts: &[usize]) -> Examples {
        let mut examples = Examples::new(&LanguageLearner::schema_with(0));
        posts.iter().for_each(|len| LanguageLearner::push(&vec![7; *len], &mut examples));
        examples
    }

    /// Every target is predicted once, in the order of its post, and rows of a step never mix.
    #[test]
    fn every_token_is_read_once_in_its_order() {
        let people = [person(&[3, 20, 1]), person(&[]), person(&[8, 7, 40, 2])];
        let posts = Posts::new(&people, 10).unwrap();
        let lengths: Vec<usize> = posts.posts.iter().map(Post::targets).collect();
        assert_eq!(lengths, [41, 21, 9, 8, 4, 3, 2]);
        for rows in [1, 2, 3, 100] {
            let mut seen = vec![0; posts.ids.len()];
            let mut targets = [0; 3];
            for turn in Turn::all(&posts.posts, rows) {
                let mut tokens = Vec::new();
                turn.for_each_token(rows, |token, post, at| {
                    tokens.push(token);
                    assert_eq!((token / rows) + turn.from, at - post.start);
                    seen[at] += 1;
                    targets[post.person] += 1;
                });
                let all = tokens.len();
                tokens.sort_unstable();
                tokens.dedup();
                assert!(tokens.len() == all && tokens.last().is_none_or(|last| *last < rows * UNROLL));
            }
            assert_eq!(targets, [27, 0, 61], "{rows} rows");
            assert_eq!(seen.iter().sum::<usize>(), 88);
            assert!(seen.iter().all(|times| *times <= 1));
        }
    }

    #[test]
    fn ids_that_the_model_does_not_have_are_refused() {
        assert!(matches!(Posts::new(&[person(&[2])], 7), Err(LearnerError::Examples(_))));
    }
}
