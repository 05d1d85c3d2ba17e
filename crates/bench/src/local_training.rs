//! Measures local training, the inner loop of every simulation, on synthetic tokens.
//!
//! A user has 1,600 tokens: 20 steps of SGD on batches of 8 sequences unrolled over 10 tokens, state carried, then the
//! difference to the start is clipped (McMahan et al. 2018). Tokens follow Zipf's law, the same for every peer.

use std::{hint::black_box, thread};

use lm::{
    kernels::{KernelPath, peak::multiply_adds},
    model::{
        batch::Batch,
        config::{Cell, ModelConfig},
        fast::Trainer,
        initial::initial_parameters,
    },
};
use privacy::{
    ClipNorm,
    stages::{ClipRule, project},
};
use serde::Serialize;

use crate::{BenchError, at_least_one, clock::thread_seconds};

/// The parameters of the benchmark: model and number of users and threads.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalTraining {
    /// The model: a preset.
    pub model: String,
    /// Entries of the vocabulary, instead of the preset's.
    pub vocabulary: Option<usize>,
    /// Users that each thread trains.
    pub users: u32,
    /// Threads, each with users of its own.
    pub threads: usize,
    /// Tokens of a user.
    pub tokens: usize,
    /// Sequences in a batch.
    pub batch: usize,
    /// Tokens of a sequence in a batch.
    pub unroll: usize,
    /// Learning rate.
    pub learning_rate: f32,
    /// What the initial weights are multiplied by: large weights saturate every gate.
    pub scale: f32,
}

/// The measured results.
#[derive(Debug, Clone, Serialize)]
pub struct LocalTrainingTook {
    /// The model.
    pub model: String,
    /// The kernels.
    pub kernels: KernelPath,
    /// Threads.
    pub threads: usize,
    /// Users of all threads.
    pub users: u32,
    /// Steps of SGD of a user.
    pub steps_per_user: usize,
    /// CPU time of the fastest user.
    pub ms_per_user_best: f64,
    /// CPU time, the mean over all users.
    pub ms_per_user: f64,
    /// Of the matrices, on a thread.
    pub gflops: f64,
    /// What the core reached at best with multiply-adds alone, measured between the users.
    pub peak_gflops: f64,
    /// The fastest user's share of it.
    pub peak_share: f64,
    /// Tokens per second on one thread.
    pub tokens_per_s: f64,
    /// The loss of the last user.
    pub last_loss: f64,
}

impl LocalTraining {
    /// Trains all users.
    ///
    /// # Errors
    /// When it cannot be meant.
    pub fn run(&self, kernels: KernelPath) -> Result<LocalTrainingTook, BenchError> {
        let config = self.config()?;
        let mut start = initial_parameters(&config, 1).map_err(BenchError::failed)?;
        start.iter_mut().for_each(|weight| *weight *= self.scale);
        let results: Vec<Result<Vec<User>, BenchError>> = thread::scope(|scope| {
            let spawn = |n: usize| {
                let (config, start) = (&config, &start);
                scope.spawn(move || train_users(config, start, kernels, self, n as u32 * self.users))
            };
            let handles: Vec<_> = (0..self.threads).map(spawn).collect();
            let failed = |_| Err(BenchError::failed("a thread failed"));
            handles.into_iter().map(|handle| handle.join().unwrap_or_else(failed)).collect()
        });
        let users = results.into_iter().collect::<Result<Vec<_>, BenchError>>()?.concat();
        Ok(self.took(&config, kernels, &users))
    }

    /// The model, where all can be meant.
    fn config(&self) -> Result<ModelConfig, BenchError> {
        let mut config = ModelConfig::preset(&self.model).map_err(|e| BenchError::wrong("model", e))?;
        config.vocabulary = self.vocabulary.unwrap_or(config.vocabulary);
        config.check().map_err(BenchError::refused)?;
        at_least_one([
            ("users", self.users as usize),
            ("threads", self.threads),
            ("batch", self.batch),
            ("unroll", self.unroll),
        ])?;
        if self.tokens < self.batch {
            let problem = format!("{} is fewer than the {} sequences of a batch", self.tokens, self.batch);
            return Err(BenchError::wrong("tokens", problem));
        }
        Ok(config)
    }

    fn took(&self, config: &ModelConfig, kernels: KernelPath, users: &[User]) -> LocalTrainingTook {
        let mean = users.iter().map(|u| u.ms).sum::<f64>() / users.len() as f64;
        let best = users.iter().map(|u| u.ms).fold(f64::INFINITY, f64::min);
        let peak_gflops = users.iter().map(|u| u.peak_gflops).fold(0.0, f64::max);
        let tokens = (self.tokens / self.batch * self.batch) as f64;
        let operations = operations_per_token(config) * tokens;
        LocalTrainingTook {
            model: self.model.clone(),
            kernels,
            threads: self.threads,
            users: users.len() as u32,
            steps_per_user: (self.tokens / self.batch).div_ceil(self.unroll),
            ms_per_user_best: best,
            ms_per_user: mean,
            gflops: operations / mean * 1e-6,
            peak_gflops,
            peak_share: operations / best * 1e-6 / peak_gflops,
            tokens_per_s: tokens / mean * 1e3,
            last_loss: users.last().map_or(0.0, |u| f64::from(u.loss)),
        }
    }
}

/// What a user took.
#[derive(Debug, Clone, Copy)]
struct User {
    /// CPU time.
    ms: f64,
    /// Loss of the last step.
    loss: f32,
    /// What the core reached just after.
    peak_gflops: f64,
}

/// The most multiply-adds a second that this core makes now: the best of some moments of half a millisecond.
fn peak_gflops(path: KernelPath) -> f64 {
    let moment = |_| {
        let before = thread_seconds();
        let (operations, sum) = multiply_adds(path, 4_000, black_box(0.5));
        black_box(sum);
        operations * 1e-9 / (thread_seconds() - before)
    };
    (0..8).map(moment).fold(0.0, f64::max)
}

/// Trains the users of one thread.
fn train_users(
    config: &ModelConfig,
    start: &[f32],
    path: KernelPath,
    args: &LocalTraining,
    first: u32,
) -> Result<Vec<User>, BenchError> {
    let mut trainer = Trainer::new(config, args.batch, args.unroll, path).map_err(BenchError::failed)?;
    let mut update = vec![0.0; start.len()];
    let rule = ClipRule::Flat(ClipNorm::new(1.0).map_err(BenchError::failed)?);
    let mut users = Vec::new();
    for user in first..first + args.users {
        let tokens = user_tokens(config.vocabulary as u32, user, args.tokens + 1);
        let before = thread_seconds();
        trainer.load(start);
        let loss = train_user(&mut trainer, &tokens, args);
        trainer.store(&mut update);
        update.iter_mut().zip(start).for_each(|(u, s)| *u -= s);
        project(&mut update, &rule).map_err(BenchError::failed)?;
        let ms = (thread_seconds() - before) * 1e3;
        users.push(User { ms, loss, peak_gflops: peak_gflops(path) });
    }
    Ok(users)
}

/// One pass over a user's tokens, cut into `batch` sequences that are read side by side.
fn train_user(trainer: &mut Trainer, tokens: &[u32], args: &LocalTraining) -> f32 {
    let length = (tokens.len() - 1) / args.batch;
    let (mut inputs, mut targets) = (Vec::new(), Vec::new());
    let mut loss = 0.0;
    for at in (0..length).step_by(args.unroll) {
        inputs.clear();
        targets.clear();
        for t in at..(at + args.unroll).min(length) {
            inputs.extend((0..args.batch).map(|row| tokens[row * length + t]));
            targets.extend((0..args.batch).map(|row| tokens[row * length + t + 1]));
        }
        let batch = Batch { rows: args.batch, inputs: &inputs, targets: &targets, context: &[] };
        loss = trainer.step(&batch, args.learning_rate) / targets.len() as f32;
    }
    loss
}

/// Tokens by Zipf's law: `V^u` for u uniform, from a multiplicative hash of the place.
pub(crate) fn user_tokens(vocabulary: u32, user: u32, len: usize) -> Vec<u32> {
    (0..len as u32)
        .map(|i| {
            let hash = (i ^ user.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
            let hash = (hash ^ (hash >> 15)).wrapping_mul(0xc2b2_ae35);
            let uniform = f64::from(hash >> 8) / f64::from(1 << 24);
            (f64::from(vocabulary).powf(uniform) as u32 - 1).min(vocabulary - 1)
        })
        .collect()
}

/// Floating-point operations of one token of training: three passes over every matrix.
pub(crate) fn operations_per_token(config: &ModelConfig) -> f64 {
    let gates = match config.cell {
        Cell::Lstm => 4,
        Cell::Cifg | Cell::Gru => 3,
    };
    let layer = |l: usize| {
        let kernel = (config.layer_input(l) + config.shown()) * config.hidden * gates;
        kernel + config.recurrent_projection.map_or(0, |p| p * config.hidden)
    };
    let matrices: usize = (0..config.layers).map(layer).sum::<usize>()
        + config.dense.map_or(0, |d| d * config.shown())
        + config.vocabulary * config.output();
    6.0 * matrices as f64
}
