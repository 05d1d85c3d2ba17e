//! Transfer learning from an ensemble (Popov et al. 2018, section 2.3 and equation 4): a new model learns the average prediction of N
//! users' models. The paper's alternative to averaging models, and its Table 2.
//!
//! | the paper                                        | here                                                                   |
//! |--------------------------------------------------|------------------------------------------------------------------------|
//! | theta_u^k: the models of N users                 | [`user_models`], in the clear                                          |
//! | y* = 1/N sum_k p(w \| theta_u^k), equation 4      | [`distil`]: soft labels of all teachers, and no targets                |
//! | on real data                                     | [`On::Real`]: text that the server has                                 |
//! | on generated data, 1 or 5 cycles (Shin et al. 2016) | [`On::Generated`]: text drawn from the model, once or before each of the first epochs |
//!
//! **It is not private, and cannot be made so by noise on sums:** the server sees the model of every user, and a model remembers text. So it
//! is a baseline for experiments, outside of [`crate::fleet`]; [`check`] refuses settings that promise privacy, secure sums, and real
//! devices. Distilling from models that were *released* with differential privacy is post-processing of them: that is [`crate::released`],
//! which composes what they cost. [`distil`] itself does not ask where its teachers come from.

use device::{
    finetune::GeneralText,
    learner::{
        Learner, LearnerError, Post,
        examples::Examples,
        language::{Cut, Room},
    },
    local::{LocalError, LocalPlan, LocalTrainer},
};
use lm::{
    kernels::KernelPath,
    language_model::LanguageModel as _,
    model::{
        config::ModelConfig,
        fast::{Network, NetworkError, Trainer, TrainerError},
    },
    vocabulary::{BOS, EOS},
};
use privacy::{
    rng::{RandomWords, StreamKey},
    stages::ClipRule,
};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::{
    config::{Config, ConfigError},
    population::Population,
};

/// Tokens of a generated post at most.
const LONGEST: usize = 40;

/// Why nothing was learned from an ensemble.
#[derive(Debug, Error)]
pub enum EnsembleError {
    /// Settings that promise something that this baseline breaks.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A user cannot be trained.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// A user's text cannot be read.
    #[error("user {user}: {problem}")]
    Data {
        /// The user's number.
        user: u64,
        /// The cause.
        problem: corpus::store::StoreError,
    },
    /// The model cannot be trained here.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// The model cannot write text here.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A learner without soft labels.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// Nobody to learn from, or nothing to learn on.
    #[error("transfer learning needs {0}")]
    Nothing(&'static str),
}

/// Refuses settings that promise what this baseline breaks: it needs every user's model in the clear.
///
/// # Errors
/// The key that promises it.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    let refuse = |key: &str, instead: &str| {
        let why = format!(
            "transfer learning from an ensemble needs every user's model in the clear, so it is a baseline without privacy: {instead}, or average models"
        );
        Err(ConfigError::new(key, why))
    };
    if config.data.is_on_devices() {
        return refuse("data.kind", "use \"synthetic\" or \"store\"");
    }
    if config.aggregation.is_secure() {
        return refuse("aggregation", "take \"plain\"");
    }
    if !config.privacy.is_none() {
        return refuse("privacy.mechanism", "take \"none\"");
    }
    Ok(())
}

/// Users' models: how each user trains a copy.
pub struct Trained<'a> {
    /// The settings, which must promise nothing.
    pub config: &'a Config,
    /// The learner.
    pub learner: &'a dyn Learner,
    /// The plan of local training.
    pub local: &'a LocalPlan,
    /// The model that they are given.
    pub model: &'a [f32],
    /// The users' text.
    pub population: &'a dyn Population,
}

/// The models of some users, each in the clear. Nothing is clipped.
///
/// # Errors
/// When the settings promise privacy, or somebody cannot be trained.
pub fn user_models(trained: &Trained<'_>, users: &[u64], kernels: KernelPath) -> Result<Vec<Vec<f32>>, EnsembleError> {
    let Trained { config, learner, local, model, population } = trained;
    check(config)?;
    let mut trainer = LocalTrainer::new(*learner, LocalPlan { greedy: false, ..(*local).clone() }, kernels)?;
    let unbounded =
        ClipRule::Flat(privacy::ClipNorm::new(1e9).map_err(|e| ConfigError::new("clip.norm", e.problem()))?);
    let mut models = Vec::with_capacity(users.len());
    for user in users {
        let mut examples = Examples::new(learner.schema());
        population.read(*user, &mut examples).map_err(|problem| EnsembleError::Data { user: *user, problem })?;
        examples.truncate(local.most_tokens.unwrap_or(usize::MAX));
        let learned = trainer.train(model, &examples, &unbounded, config.local.learning_rate, *user)?;
        models.push(model.iter().zip(&learned.difference).map(|(m, d)| m + d).collect());
    }
    Ok(models)
}

/// The text on which teachers are listened to.
#[derive(Debug, Clone, Copy)]
pub enum On<'a> {
    /// Text that there is.
    Real(&'a GeneralText),
    /// Text that the model itself writes.
    Generated {
        /// How many tokens each time.
        tokens: usize,
        /// New text is generated before each of the first epochs, this many times.
        cycles: u32,
        /// The seed of the generated text.
        seed: u64,
    },
}

/// How a model is distilled from others.
#[derive(Debug, Clone, Copy)]
pub struct Distilling<'a> {
    /// The text to distill on.
    pub on: On<'a>,
    /// How often it is read; the paper: 6.
    pub epochs: u32,
    /// Sequences of a batch.
    pub batch: usize,
    /// Tokens of a sequence in a batch.
    pub unroll: usize,
    /// The step.
    pub learning_rate: f32,
}

/// A model that has learned what others predict on average (equation 4), from where it was.
///
/// # Errors
/// When there is nobody to learn from, nothing to learn on, or the model has no soft labels.
pub fn distil(
    learner: &dyn Learner,
    start: &[f32],
    teachers: &[Vec<f32>],
    how: Distilling<'_>,
    kernels: KernelPath,
) -> Result<Vec<f32>, EnsembleError> {
    let name = learner.name();
    let config = learner.recurrent().ok_or(LearnerError::NotFineTuned { learner: name })?;
    if teachers.is_empty() {
        return Err(EnsembleError::Nothing("at least one model to learn from"));
    }
    let mut student = Trainer::new(config, how.batch, how.unroll, kernels)?;
    student.load(start);
    let empty = student.clone();
    let mut teachers: Vec<Trainer> = teachers
        .iter()
        .map(|model| {
            let mut teacher = empty.clone();
            teacher.load(model);
            teacher
        })
        .collect();
    let (mut cut, mut room, mut labels) = (Cut::new(how.unroll), Room::default(), student.soft_labels());
    let mut text = match how.on {
        On::Real(text) => read(learner, text.posts()),
        On::Generated { .. } => Examples::new(learner.schema()),
    };
    let share = 1.0 / teachers.len() as f32;
    for epoch in 0..how.epochs {
        if let On::Generated { tokens, cycles, seed } = how.on
            && epoch < cycles.max(1)
        {
            let mut now = vec![0.0; start.len()];
            student.store(&mut now);
            text = read(learner, &generate(config, now, tokens, seed, epoch, kernels)?);
        }
        if text.is_empty() {
            return Err(EnsembleError::Nothing("text to learn on"));
        }
        cut.take(&text, how.batch);
        student.forget();
        teachers.iter_mut().for_each(Trainer::forget);
        for number in 0..cut.batches() {
            let batch = cut.batch(number, &mut room);
            labels.clear();
            teachers.iter_mut().for_each(|teacher| teacher.add_probabilities(&batch, share, &mut labels));
            student.step_towards(&batch, how.learning_rate, 0.0, &labels);
        }
    }
    let mut end = vec![0.0; start.len()];
    student.store(&mut end);
    learner.after_step(&mut end);
    Ok(end)
}

fn read(learner: &dyn Learner, posts: &[Vec<u32>]) -> Examples {
    let mut examples = Examples::new(learner.schema());
    posts.iter().for_each(|ids| learner.read(Post { ids, labels: &[] }, &mut examples));
    examples
}

/// Posts as a model writes them: each token is drawn from what it predicts.
///
/// # Errors
/// When the model cannot predict here.
pub fn generate(
    config: &ModelConfig,
    parameters: Vec<f32>,
    tokens: usize,
    seed: u64,
    cycle: u32,
    kernels: KernelPath,
) -> Result<Vec<Vec<u32>>, EnsembleError> {
    let network = Network::new(config, parameters, kernels)?;
    let mut reader = network.reader();
    let mut key = Zeroizing::new([0; 32]);
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut words = StreamKey::from_secret_bytes(key).chunk(cycle.into());
    let (mut posts, mut left) = (Vec::new(), tokens);
    while left > 0 {
        let mut sequence = vec![BOS];
        while sequence.len() <= LONGEST.min(left) {
            let next = draw(reader.after(&sequence), &mut words);
            if next == EOS {
                break;
            }
            sequence.push(next);
        }
        left = left.saturating_sub(sequence.len());
        if sequence.len() > 1 {
            posts.push(sequence.split_off(1));
        }
    }
    Ok(posts)
}

/// An entry, each with its probability; never BOS.
fn draw(log_probabilities: &[f32], words: &mut RandomWords) -> u32 {
    let weight = |id: usize| if id == BOS as usize { 0.0 } else { libm::exp(f64::from(log_probabilities[id])) };
    let total: f64 = (0..log_probabilities.len()).map(weight).sum();
    // 53 bits are a number from 0 to 1.
    let mut left = (words.next_word() >> 11) as f64 / (1u64 << 53) as f64 * total;
    for id in 0..log_probabilities.len() {
        left -= weight(id);
        if left < 0.0 {
            return id as u32;
        }
    }
    EOS
}
