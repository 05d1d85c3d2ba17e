//! `keyhush bench local-training`: the hot loop of everything, on synthetic tokens.
//!
//! A user has 1,600 tokens: 20 steps of SGD on batches of 8 sequences unrolled over 10 tokens, state carried, then the
//! difference to the start is clipped (McMahan et al. 2018). Tokens follow Zipf's law, the same for every peer.

use std::thread;

use clap::Args;
use lm::{
    kernels::KernelPath,
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

use super::{at_least_one, clock::thread_seconds};
use crate::{failure::BadInput, kernels};

#[derive(Args)]
pub(crate) struct LocalTrainingArgs {
    /// The model: a preset such as mcmahan2018, gboard or so-nwp.
    #[arg(long, default_value = "mcmahan2018")]
    model: String,
    /// Entries of the vocabulary, instead of the preset's.
    #[arg(long)]
    vocabulary: Option<usize>,
    /// Users that each thread trains.
    #[arg(long, default_value_t = 10)]
    users: u32,
    /// Threads, each with users of its own.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Tokens of a user.
    #[arg(long, default_value_t = 1600)]
    tokens: usize,
    /// Sequences in a batch.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Tokens of a sequence in a batch.
    #[arg(long, default_value_t = 10)]
    unroll: usize,
    /// Learning rate.
    #[arg(long, default_value_t = 0.5)]
    learning_rate: f32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is printed.
#[derive(Serialize)]
struct Answer {
    model: String,
    kernels: KernelPath,
    threads: usize,
    users: u32,
    steps_per_user: usize,
    /// CPU time of the fastest user.
    ms_per_user_best: f64,
    /// CPU time, the mean over all users.
    ms_per_user: f64,
    gflops: f64,
    tokens_per_s: f64,
    last_loss: f64,
}

pub(crate) fn run(args: &LocalTrainingArgs) -> anyhow::Result<()> {
    let mut config = ModelConfig::preset(&args.model).map_err(|e| BadInput::wrong("model", e.to_string()))?;
    config.vocabulary = args.vocabulary.unwrap_or(config.vocabulary);
    config.check().map_err(|e| BadInput::Refused(e.to_string()))?;
    at_least_one([
        ("users", args.users as usize),
        ("threads", args.threads),
        ("batch", args.batch),
        ("unroll", args.unroll),
    ])?;
    if args.tokens < args.batch {
        let problem = format!("{} are fewer than the {} sequences of a batch", args.tokens, args.batch);
        return Err(BadInput::wrong("tokens", problem).into());
    }
    let path = kernels::chosen()?;
    let start = initial_parameters(&config, 1)?;
    let results: Vec<anyhow::Result<Vec<(f64, f32)>>> = thread::scope(|scope| {
        let spawn = |n: usize| {
            let (config, start) = (&config, &start);
            scope.spawn(move || train_users(config, start, path, args, n as u32 * args.users))
        };
        let handles: Vec<_> = (0..args.threads).map(spawn).collect();
        handles.into_iter().map(|h| h.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread failed")))).collect()
    });
    let users: Vec<(f64, f32)> = results.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat();
    report(args, &config, path, &users)
}

/// CPU milliseconds and last loss of each user.
fn train_users(
    config: &ModelConfig,
    start: &[f32],
    path: KernelPath,
    args: &LocalTrainingArgs,
    first: u32,
) -> anyhow::Result<Vec<(f64, f32)>> {
    let mut trainer = Trainer::new(config, args.batch, args.unroll, path)?;
    let mut update = vec![0.0; start.len()];
    let rule = ClipRule::Flat(ClipNorm::new(1.0)?);
    let mut users = Vec::new();
    for user in first..first + args.users {
        let tokens = user_tokens(config.vocabulary as u32, user, args.tokens + 1);
        let before = thread_seconds();
        trainer.load(start);
        let loss = train_user(&mut trainer, &tokens, args);
        trainer.store(&mut update);
        update.iter_mut().zip(start).for_each(|(u, s)| *u -= s);
        project(&mut update, &rule)?;
        users.push(((thread_seconds() - before) * 1e3, loss));
    }
    Ok(users)
}

/// One pass over a user's tokens, cut into `batch` sequences that are read side by side.
fn train_user(trainer: &mut Trainer, tokens: &[u32], args: &LocalTrainingArgs) -> f32 {
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
fn user_tokens(vocabulary: u32, user: u32, len: usize) -> Vec<u32> {
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
pub(super) fn operations_per_token(config: &ModelConfig) -> f64 {
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

fn report(
    args: &LocalTrainingArgs,
    config: &ModelConfig,
    path: KernelPath,
    users: &[(f64, f32)],
) -> anyhow::Result<()> {
    let mean = users.iter().map(|u| u.0).sum::<f64>() / users.len() as f64;
    let tokens = (args.tokens / args.batch * args.batch) as f64;
    let answer = Answer {
        model: args.model.clone(),
        kernels: path,
        threads: args.threads,
        users: users.len() as u32,
        steps_per_user: (args.tokens / args.batch).div_ceil(args.unroll),
        ms_per_user_best: users.iter().map(|u| u.0).fold(f64::INFINITY, f64::min),
        ms_per_user: mean,
        gflops: operations_per_token(config) * tokens / mean * 1e-6,
        tokens_per_s: tokens / mean * 1e3,
        last_loss: users.last().map_or(0.0, |u| f64::from(u.1)),
    };
    if args.json {
        println!("{}", serde_json::to_string(&answer)?);
        return Ok(());
    }
    println!("model             {} ({} kernels, {} thread(s))", answer.model, path.name(), answer.threads);
    println!("ms per user       {:.1} of CPU time  (best {:.1})", answer.ms_per_user, answer.ms_per_user_best);
    println!("GFLOP/s           {:.1}", answer.gflops);
    println!("tokens/s          {:.0}", answer.tokens_per_s);
    Ok(())
}
