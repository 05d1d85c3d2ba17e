//! A downloaded task and model: decoded, checked, and ready for training. Shared by all devices of a process.
//!
//! A server can write anything into its terms. Nothing is built before it is known how large it will be: words are counted
//! before they are read, parameters before there is a place for them, and the room for training before it is taken.

use std::fmt;

use lm::{
    kernels::KernelPath,
    model::config::{Cell, ModelConfig, Token},
    tokenizer::{Rules, Tokenizer},
    vocabulary::{Vocabulary, VocabularyError},
};
use privacy::{rng::StreamKey, stages::Encoded};
use secagg::entropy::{Entropy, NoRandomness};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use zeroize::Zeroizing;

use super::terms::{StepTerms, TaskTerms};
use crate::{
    evaluation::Counting,
    finetune::FineTune,
    guard::{Asked, ModelDigest, TaskDigest},
    learner::{
        Learner, LearnerError, Post, examples::Examples, language::LanguageLearner, tags::TagLearner,
        told::LearnerTerms,
    },
    local::{Algorithm, LocalError, LocalPlanError},
    round::{self, Drawn, PartError, Worker},
    unsent::Keep,
    upload::{Keeping, NO_RESTS, Partial, Rest, Sends, Upload, UploadTerms, mask},
};

/// The largest size of a layer that is built.
const MOST_UNITS: usize = 1 << 14;

/// Limits on the size of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bounds {
    /// Bytes of its terms, vocabulary included.
    pub task_bytes: u64,
    /// Bytes of its model.
    pub model_bytes: u64,
    /// Words of its vocabulary.
    pub words: usize,
    /// How often the text is read in one round.
    pub epochs: u32,
    /// Sequences in a batch.
    pub batch: usize,
    /// Tokens of a sequence in a batch.
    pub unroll: usize,
    /// Bytes of memory while it is trained, and of the part of an update that is sent.
    pub training_bytes: u64,
    /// Bytes of what is kept of its updates between rounds; what is kept of all tasks together is to have no more ([`crate::unsent`]).
    pub unsent_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            task_bytes: 16 << 20,
            model_bytes: 256 << 20,
            words: 1 << 18,
            epochs: 10,
            batch: 1024,
            unroll: 256,
            training_bytes: 1 << 30,
            unsent_bytes: Keep::default().bytes,
        }
    }
}

/// Why a task is not taken.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TaskError {
    /// Its terms cannot be read.
    #[error("the terms cannot be read: {0}")]
    Terms(String),
    /// More than the device's bounds.
    #[error("{what} is {got}, but this device accepts at most {most}")]
    TooMuch {
        /// What is wrong.
        what: &'static str,
        /// The requested value.
        got: u64,
        /// The largest value accepted.
        most: u64,
    },
    /// Parts that do not fit each other.
    #[error("{what} is {got}, expected {expected}")]
    Mismatch {
        /// What is wrong.
        what: &'static str,
        /// The refused value.
        got: String,
        /// The value expected.
        expected: String,
    },
    /// The words cannot be read.
    #[error("the vocabulary: {0}")]
    Vocabulary(#[from] VocabularyError),
    /// The plan of local training has no meaning.
    #[error("the local plan: {0}")]
    Local(#[from] LocalPlanError),
    /// The model cannot be built.
    #[error("the model: {0}")]
    Learner(#[from] LearnerError),
}

/// A task, read and checked.
pub struct Task {
    terms: TaskTerms,
    digest: TaskDigest,
    learner: Box<dyn Learner>,
    vocabulary: Vocabulary,
    tokenizer: Tokenizer,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({:?})", self.terms.name)
    }
}

/// A user's text, as a device keeps it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Text {
    /// The posts, the oldest first.
    pub posts: Vec<TextPost>,
    /// What is known of the person, for models that read it.
    pub features: Vec<f32>,
}

/// A post with its labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextPost {
    /// The text.
    pub text: String,
    /// Its labels, by name.
    pub labels: Vec<String>,
}

impl Text {
    /// Posts without labels.
    #[must_use]
    pub fn of<T: Into<String>>(posts: impl IntoIterator<Item = T>) -> Self {
        let post = |text: T| TextPost { text: text.into(), labels: Vec::new() };
        Self { posts: posts.into_iter().map(post).collect(), features: Vec::new() }
    }
}

impl Task {
    /// Reads the terms of a task, and makes its learner.
    ///
    /// # Errors
    /// When they have no meaning, or ask for more than the bounds.
    pub fn read(bytes: &[u8], bounds: &Bounds) -> Result<Self, TaskError> {
        at_most("the size of the task", bytes.len() as u64, bounds.task_bytes)?;
        let terms: TaskTerms = serde_json::from_slice(bytes).map_err(|e| TaskError::Terms(e.to_string()))?;
        let words = terms.vocabulary.bytes().filter(|b| *b == b'\n').count() + 1;
        at_most("the number of words", words as u64, bounds.words as u64)?;
        check_local(&terms, bounds)?;
        let vocabulary = Vocabulary::parse(&terms.vocabulary)?;
        check_general(&terms, &vocabulary)?;
        let learner: Box<dyn Learner> = match &terms.learner {
            LearnerTerms::Language { model } => {
                check_language(model, &vocabulary, terms.rules, bounds)?;
                let learner = LanguageLearner::new(model, terms.local.batch, terms.local.unroll);
                Box::new(learner.map_err(LearnerError::from)?)
            }
            LearnerTerms::Tags { labels } => {
                let parameters = (vocabulary.len() as u64 + 1) * labels.len() as u64;
                at_most("the size of the model", 4 * parameters, bounds.model_bytes)?;
                Box::new(TagLearner::new(vocabulary.len(), labels.clone(), terms.local.batch))
            }
        };
        let parameters = learner.layout().len() as u64;
        check_upload(&terms, parameters, bounds)?;
        let memory = learner.memory();
        match terms.evaluation {
            None => {
                let trainers = terms.local.finetune.as_ref().map_or(1, FineTune::trainers);
                let part = terms.upload.map_or(0, |upload| upload.memory(parameters, bounds.unsent_bytes));
                let got = memory.trainer.saturating_mul(trainers).saturating_add(part);
                at_most("the memory for training", got, bounds.training_bytes)?;
                if terms.local.finetune.is_some() && !learner.finetunes() {
                    return Err(LearnerError::NotFineTuned { learner: learner.name() }.into());
                }
            }
            Some(plan) => {
                at_most("the memory for measuring", memory.predictor + memory.piece, bounds.training_bytes)?;
                Counting::new(&*learner, plan).ok_or_else(|| TaskError::Mismatch {
                    what: "what is to be counted",
                    got: format!("{} examples of {:?}", plan.most_examples, learner.measures()),
                    expected: "something that devices count".to_owned(),
                })?;
            }
        }
        let (digest, tokenizer) = (TaskDigest(Sha256::digest(bytes).into()), Tokenizer::new(terms.rules));
        Ok(Self { terms, digest, learner, vocabulary, tokenizer })
    }

    /// Its terms.
    #[must_use]
    pub const fn terms(&self) -> &TaskTerms {
        &self.terms
    }

    /// The SHA-256 of its bytes.
    #[must_use]
    pub const fn digest(&self) -> TaskDigest {
        self.digest
    }

    /// The learner.
    #[must_use]
    pub fn learner(&self) -> &dyn Learner {
        &*self.learner
    }

    /// Coordinates of what is asked for: of the model, or of the counts that measure it.
    #[must_use]
    pub fn dimension(&self) -> u64 {
        let counting = self.terms.evaluation.and_then(|plan| Counting::new(&*self.learner, plan));
        match (counting, self.terms.upload) {
            (Some(counting), _) => counting.len() as u64,
            (None, Some(UploadTerms::Mask { coordinates, .. })) => coordinates,
            _ => self.learner.layout().len() as u64,
        }
    }

    /// Whether a device keeps what it does not send, for later rounds.
    #[must_use]
    pub fn keeps_rest(&self) -> bool {
        self.terms.upload.is_some_and(|upload| upload.keeps_rest())
    }

    /// A person's text as examples, cut as the plan says. What is newest is not preferred: the order is the text's.
    ///
    /// # Errors
    /// When the model reads numbers of a person that are not there.
    pub fn examples(&self, text: &Text) -> Result<Examples, TaskError> {
        Ok(self.read_text(text)?.0)
    }

    /// How many posts of a person's text are read, from the oldest on, before the plan has enough.
    ///
    /// # Errors
    /// As for [`Self::examples`].
    pub fn posts_read(&self, text: &Text) -> Result<usize, TaskError> {
        Ok(self.read_text(text)?.1)
    }

    fn read_text(&self, text: &Text) -> Result<(Examples, usize), TaskError> {
        let schema = self.learner.schema();
        if schema.features > 0 && text.features.len() != schema.features {
            let (got, expected) = (text.features.len().to_string(), schema.features.to_string());
            return Err(TaskError::Mismatch {
                what: "the number of features that are known of a person",
                got,
                expected,
            });
        }
        let labels = self.terms.learner.labels();
        let mut examples = Examples::new(schema);
        let most = match self.terms.evaluation {
            None => self.terms.local.most_tokens.unwrap_or(usize::MAX),
            Some(plan) => usize::try_from(plan.most_examples).unwrap_or(usize::MAX),
        };
        let (mut ids, mut posts_read) = (Vec::new(), 0);
        for post in &text.posts {
            if examples.len() >= most {
                break;
            }
            posts_read += 1;
            ids.clear();
            self.vocabulary.encode(self.tokenizer, &post.text, &mut ids);
            let known = |label: &String| labels.iter().position(|l| l == label).map(|id| id as u32);
            let labels: Vec<u32> = post.labels.iter().filter_map(known).collect();
            self.learner.read(Post { ids: &ids, labels: &labels }, &mut examples);
        }
        examples.truncate(most);
        examples.set_features(&text.features);
        Ok((examples, posts_read))
    }

    /// A worker that trains for this task, one user after the other.
    ///
    /// # Errors
    /// When the model cannot be trained here.
    pub fn worker(&self, kernels: KernelPath) -> Result<Worker, LocalError> {
        Worker::new(self.learner(), self.terms.local.clone(), kernels)
    }
}

fn at_most(what: &'static str, got: u64, most: u64) -> Result<(), TaskError> {
    if got <= most { Ok(()) } else { Err(TaskError::TooMuch { what, got, most }) }
}

fn check_local(terms: &TaskTerms, bounds: &Bounds) -> Result<(), TaskError> {
    let local = &terms.local;
    local.check()?;
    let epochs = if let Algorithm::FedAvg { epochs } = local.algorithm { epochs } else { 1 };
    at_most("the number of epochs", epochs.into(), bounds.epochs.into())?;
    at_most("the size of a batch", local.batch as u64, bounds.batch as u64)?;
    at_most("the length of a sequence", local.unroll as u64, bounds.unroll as u64)?;
    match terms.full_weight_tokens {
        Some(full) if !(full.is_finite() && full > 0.0) => Err(TaskError::Mismatch {
            what: "full_weight_tokens",
            got: full.to_string(),
            expected: "finite and above 0".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// What is kept must have room; and what the plan of an honest server would not ask for is not begun.
fn check_upload(terms: &TaskTerms, parameters: u64, bounds: &Bounds) -> Result<(), TaskError> {
    let Some(upload) = terms.upload else { return Ok(()) };
    let part = |expected: &str| {
        let (what, got) = ("the part of an update that is sent", format!("{upload:?}"));
        Err(TaskError::Mismatch { what, got, expected: expected.to_owned() })
    };
    if terms.evaluation.is_some() {
        return part("left out in an evaluation");
    }
    if terms.local.greedy {
        return part("left out with greedy clipping, whose clip bit says nothing of it");
    }
    if terms.secure && upload.keeps_rest() {
        return part("all of it, or a mask that keeps nothing, in a secure sum");
    }
    match upload {
        UploadTerms::Largest { momentum, .. } if !(0.0..1.0).contains(&momentum) => {
            part("with a momentum of at least 0 and below 1")
        }
        UploadTerms::Largest { local_clip: Some(clip), .. } if !(clip.is_finite() && clip > 0.0) => {
            part("with a local clip that is finite and above 0")
        }
        UploadTerms::Mask { coordinates, .. } if !(1..parameters).contains(&coordinates) => {
            part("a mask of at least one coordinate and not all")
        }
        _ => at_most("the size of what is kept of updates", upload.kept_bytes(parameters), bounds.unsent_bytes),
    }
}

/// General text must be in the words of the task.
fn check_general(terms: &TaskTerms, vocabulary: &Vocabulary) -> Result<(), TaskError> {
    let Some(FineTune::Rehearsal { general, .. }) = &terms.local.finetune else { return Ok(()) };
    match general.largest_id() {
        Some(id) if id as usize >= vocabulary.len() => Err(TaskError::Mismatch {
            what: "an id of the general text",
            got: id.to_string(),
            expected: format!("below {}, as many words as there are", vocabulary.len()),
        }),
        _ => Ok(()),
    }
}

fn check_language(
    model: &ModelConfig,
    vocabulary: &Vocabulary,
    rules: Rules,
    bounds: &Bounds,
) -> Result<(), TaskError> {
    model.check().map_err(LearnerError::from)?;
    let mismatch = |what, got: &dyn fmt::Display, expected: &dyn fmt::Display| {
        Err(TaskError::Mismatch { what, got: got.to_string(), expected: expected.to_string() })
    };
    if model.vocabulary != vocabulary.len() {
        return mismatch("the model's vocabulary", &model.vocabulary, &vocabulary.len());
    }
    let expected = match model.token {
        Token::Word => Rules::Words1,
        Token::Character => Rules::Characters1,
    };
    if rules != expected {
        return mismatch("how text becomes tokens", &rules, &expected);
    }
    let sizes = [model.embedding, model.hidden, model.shown(), model.output(), model.user_context.unwrap_or(0)];
    let largest = sizes.into_iter().max().unwrap_or(0);
    at_most("the size of a layer", largest as u64, MOST_UNITS as u64)?;
    at_most("the size of the model", 4 * parameters(model), bounds.model_bytes)
}

/// Parameters of a model at least, in 64 bits on any machine: its matrices.
fn parameters(model: &ModelConfig) -> u64 {
    let product = |a: usize, b: usize| a as u64 * b as u64;
    let gates = model.cell.gates().len() as u64;
    let layer = |layer: usize| gates * product(model.layer_input(layer) + model.shown(), model.hidden);
    let projection = if model.cell == Cell::Gru { 0 } else { model.recurrent_projection.unwrap_or(0) };
    let layers: u64 = (0..model.layers).map(|l| layer(l) + product(projection, model.hidden)).sum();
    let output = if model.tied { 0 } else { product(model.vocabulary, model.output()) };
    product(model.vocabulary, model.embedding) + layers + product(model.shown(), model.dense.unwrap_or(0)) + output
}

/// A model, read.
pub struct Model {
    parameters: Vec<f32>,
    digest: ModelDigest,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({} parameters)", self.parameters.len())
    }
}

impl Model {
    /// Reads parameters, little-endian.
    ///
    /// # Errors
    /// When there are not four bytes for each.
    pub fn read(bytes: &[u8]) -> Result<Self, TaskError> {
        let (words, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            let (got, expected) = (bytes.len().to_string(), "a multiple of 4".to_owned());
            return Err(TaskError::Mismatch { what: "the number of bytes of the model", got, expected });
        }
        let parameters: Vec<f32> = words.iter().map(|w| f32::from_le_bytes(*w)).collect();
        let digest = ModelDigest::of(&parameters);
        Ok(Self { parameters, digest })
    }

    /// Its parameters.
    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// The SHA-256 of its bytes.
    #[must_use]
    pub const fn digest(&self) -> ModelDigest {
        self.digest
    }
}

/// Everything needed for training except the text.
#[derive(Debug, Clone)]
pub struct Work {
    /// The task.
    pub task: std::sync::Arc<Task>,
    /// The model.
    pub model: std::sync::Arc<Model>,
    /// What holds in this step.
    pub step: StepTerms,
    /// The task, step and model of the input.
    pub asked: Asked,
    /// Whether the plan has no later input of this device: what it keeps for one is of no use.
    pub is_last: bool,
}

/// Why there is no input.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum WorkError {
    /// The text cannot be read for this task.
    #[error(transparent)]
    Text(#[from] TaskError),
    /// Training, clipping or encoding failed.
    #[error(transparent)]
    Part(#[from] PartError),
}

impl Work {
    /// Trains on a person's text, after what was kept of earlier rounds: what would leave, and what is kept if it does. `worker` is one of this
    /// task ([`Task::worker`]).
    ///
    /// # Errors
    /// When text, task and step do not fit together.
    pub fn train(
        &self,
        worker: &mut Worker,
        text: &Text,
        drawn: Drawn,
        before: Option<&Rest>,
    ) -> Result<(Encoded, Option<Rest>), WorkError> {
        let examples = self.task.examples(text)?;
        let places = self.mask();
        let part = worker.part_after(self.of_round(self.upload(places.as_deref())), &examples, drawn, before)?;
        Ok((part.encoded, part.rest))
    }

    /// Measures the model on a person's text, where that is what is asked for: what would leave.
    ///
    /// # Errors
    /// When text, task and step do not fit together.
    pub fn measure(&self, text: &Text, kernels: KernelPath, drawn: Drawn) -> Result<Encoded, WorkError> {
        let (task, learner) = (self.of_round(Upload::Whole), self.task.learner());
        let plan = task.evaluation.ok_or(PartError::NotCounted { learner: learner.name() })?;
        let examples = self.task.examples(text)?;
        Ok(round::measured(task, plan, learner, &examples, kernels, drawn)?.encoded)
    }

    /// The coordinates that everybody sends in this step, where they share them.
    fn mask(&self) -> Option<Vec<u32>> {
        let Some(UploadTerms::Mask { coordinates, seed, .. }) = self.task.terms.upload else { return None };
        Some(mask(seed, self.asked.step, coordinates as usize, self.model.parameters.len()))
    }

    /// What of an update leaves.
    fn upload<'a>(&self, mask: Option<&'a [u32]>) -> Upload<'a> {
        let keep = |momentum, local_clip| Keeping { momentum, local_clip, rests: &NO_RESTS };
        match (self.task.terms.upload, mask, self.step.encoding.few()) {
            (Some(UploadTerms::Largest { momentum, local_clip }), _, Some(count)) => {
                Upload::Part(Partial { sends: Sends::Largest(count), keeps: Some(keep(momentum, local_clip)) })
            }
            (Some(UploadTerms::Mask { keep_rest, .. }), Some(mask), _) => {
                Upload::Part(Partial { sends: Sends::Mask(mask), keeps: keep_rest.then(|| keep(0.0, None)) })
            }
            _ => Upload::Whole,
        }
    }

    fn of_round<'a>(&'a self, upload: Upload<'a>) -> round::Task<'a> {
        round::Task {
            model: self.model.parameters(),
            clipping: &self.step.clipping,
            encoding: &self.step.encoding,
            full_weight_tokens: self.task.terms.full_weight_tokens,
            learning_rate: self.step.learning_rate,
            epochs: None,
            upload,
            evaluation: self.task.terms.evaluation,
        }
    }
}

/// Draws the randomness of one input: fresh, and known to the device only.
///
/// # Errors
/// When there is no randomness.
pub fn fresh(entropy: &mut dyn Entropy) -> Result<Drawn, NoRandomness> {
    let mut key = Zeroizing::new([0; 32]);
    entropy.fill(&mut *key)?;
    let mut words = StreamKey::from_secret_bytes(key).chunk(0);
    let batch = words.next_word();
    Ok(Drawn { rounding: words, batch })
}
