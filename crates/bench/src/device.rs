//! Measures training on one user's text, next to the one published figure for a phone.
//!
//! Popov et al. 2018 (section 2.5) fine-tuned `zaremba650` on phones with a quad-core CPU of 2.31 GHz: one epoch over 20
//! kilobytes of text, half the user's and half rehearsal of the general language, with batches of 10 sequences, 20 steps of
//! backpropagation and a learning rate of 0.75, took approximately 140 seconds. Here the same is done with synthetic text
//! on one thread. What is timed is the epoch, not the start of the program.

use std::time::Instant;

use corpus::synth::{self, Crowd, Dialect, SynthPlan};
use lm::{
    kernels::KernelPath,
    model::{
        batch::Batch,
        config::{ModelConfig, Token},
        dropout::{MaskDrawer, Masks},
        fast::Trainer,
        initial::initial_parameters,
    },
    stream::Stream,
    tokenizer::Tokenizer,
};
use serde::Serialize;

use crate::{
    BenchError,
    clock::{peak_mb, thread_seconds},
    local_training::operations_per_token,
};

/// What the paper measured, and with what.
const PAPER_SECONDS: f64 = 140.0;
const PAPER: (&str, usize, usize, usize) = ("zaremba650", 20_000, 10, 20);

/// The parameters of the benchmark: model and amount of text.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// The model: a preset of words.
    pub model: String,
    /// Bytes of text.
    pub bytes: usize,
    /// Sequences in a batch.
    pub batch: usize,
    /// Tokens of a sequence in a batch.
    pub unroll: usize,
    /// Learning rate.
    pub learning_rate: f32,
}

impl Default for Device {
    /// The paper's measurement.
    fn default() -> Self {
        let (model, bytes, batch, unroll) = PAPER;
        Self { model: model.to_owned(), bytes, batch, unroll, learning_rate: 0.75 }
    }
}

/// The measured results.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceTook {
    /// The model.
    pub model: String,
    /// The kernels.
    pub kernels: KernelPath,
    /// Bytes of text.
    pub bytes: usize,
    /// Its tokens.
    pub tokens: usize,
    /// Steps of SGD.
    pub steps: usize,
    /// CPU time of the one thread that trains.
    pub cpu_seconds: f64,
    /// Wall-clock time, in seconds.
    pub wall_seconds: f64,
    /// Tokens per second of CPU time.
    pub tokens_per_s: f64,
    /// Floating-point rate of the matrix products.
    pub gflops: f64,
    /// The most memory that the process ever had, where the system says.
    pub peak_mb: Option<f64>,
    /// Over the epoch, while it was learned.
    pub perplexity: f64,
    /// On the paper's phone, where model, bytes, batch and steps are the paper's.
    pub paper_seconds: Option<f64>,
}

impl Device {
    /// Trains an epoch.
    ///
    /// # Errors
    /// When it cannot be meant.
    pub fn run(&self, kernels: KernelPath) -> Result<DeviceTook, BenchError> {
        let config = self.config()?;
        let text = text(self.bytes)?;
        let vocabulary = synth::vocabulary(config.vocabulary).map_err(BenchError::failed)?;
        let stream = Stream::new([text.as_str()], Tokenizer::words(), &vocabulary);
        if stream.tokens() < self.batch {
            let (bytes, tokens, batch) = (self.bytes, stream.tokens(), self.batch);
            let problem =
                format!("{bytes} bytes are only {tokens} tokens, fewer than the {batch} sequences of a batch");
            return Err(BenchError::wrong("bytes", problem));
        }
        let mut trainer =
            Trainer::new(&config, self.batch, self.unroll, kernels).map_err(|e| BenchError::wrong("model", e))?;
        trainer.load(&initial_parameters(&config, 1).map_err(BenchError::failed)?);
        Ok(train(self, &config, kernels, &mut trainer, &stream))
    }

    /// The model, where all can be meant.
    fn config(&self) -> Result<ModelConfig, BenchError> {
        let config = ModelConfig::preset(&self.model).map_err(|e| BenchError::wrong("model", e))?;
        if config.token != Token::Word {
            let problem = format!("{} is a character model, but this benchmark uses words", self.model);
            return Err(BenchError::wrong("model", problem));
        }
        for (field, value, most) in
            [("batch", self.batch, 1 << 12), ("unroll", self.unroll, 1 << 12), ("bytes", self.bytes, 1 << 30)]
        {
            if !(1..=most).contains(&value) {
                return Err(BenchError::wrong(field, format!("must be from 1 to {most}, got {value}")));
            }
        }
        Ok(config)
    }
}

/// As much text as asked for: half of it a user's, half of the general language.
fn text(bytes: usize) -> Result<String, BenchError> {
    let mut text = String::with_capacity(bytes + 1);
    for (dialect, until) in [(Dialect::Informal, bytes / 2), (Dialect::General, bytes)] {
        let crowd = Crowd::new(SynthPlan::new(1, synth::MOST_USERS, dialect)).map_err(BenchError::failed)?;
        let mut posts = (0..).flat_map(|user| crowd.posts(user));
        while text.len() < until {
            text.extend(posts.next());
            text.push('\n');
        }
        let end = (0..=until).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
    Ok(text)
}

/// Trains one epoch.
fn train(args: &Device, config: &ModelConfig, path: KernelPath, trainer: &mut Trainer, stream: &Stream) -> DeviceTook {
    let mut drawer = MaskDrawer::new(config, 1);
    let mut masks = Masks::new();
    let (mut loss, mut tokens) = (0.0, 0);
    let clock = Instant::now();
    let before = thread_seconds();
    for (inputs, targets) in stream.batches(args.batch, args.unroll, 0) {
        let batch = Batch { rows: args.batch, inputs: &inputs, targets: &targets, context: &[] };
        if let Some(drawer) = &mut drawer {
            drawer.draw(args.batch, batch.steps(), &mut masks);
        }
        loss += f64::from(trainer.step_without(&batch, args.learning_rate, drawer.is_some().then_some(&masks)));
        tokens += targets.len();
    }
    let (cpu_seconds, wall_seconds) = (thread_seconds() - before, clock.elapsed().as_secs_f64());
    let as_in_the_paper = (args.model.as_str(), args.bytes, args.batch, args.unroll) == PAPER;
    DeviceTook {
        model: args.model.clone(),
        kernels: path,
        bytes: args.bytes,
        tokens,
        steps: stream.batch_count(args.batch, args.unroll),
        cpu_seconds,
        wall_seconds,
        tokens_per_s: tokens as f64 / cpu_seconds,
        gflops: operations_per_token(config) * tokens as f64 / cpu_seconds * 1e-9,
        peak_mb: peak_mb(),
        perplexity: (loss / tokens as f64).exp(),
        paper_seconds: as_in_the_paper.then_some(PAPER_SECONDS),
    }
}
