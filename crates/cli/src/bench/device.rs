//! `keyhush bench device`: what training on a device costs, beside the one figure that was published.
//!
//! Popov et al. 2018 (section 2.5) fine-tuned `zaremba650` on phones with a quad-core CPU of 2.31 GHz: one epoch over 20
//! kilobytes of text, half the user's and half rehearsal of the general language, with batches of 10 sequences, 20 steps of
//! backpropagation and a learning rate of 0.75, took approximately 140 seconds. Here the same is done with synthetic text
//! on one thread. What is timed is the epoch, not the start of the program.

use std::time::Instant;

use clap::Args;
use corpus::synth::{self, Crowd, Dialect, SynthPlan};
use lm::{
    kernels::KernelPath,
    model::{
        batch::Batch,
        config::{ModelConfig, Token},
        dropout::MaskDrawer,
        fast::Trainer,
        initial::initial_parameters,
        reference::Masks,
    },
    stream::Stream,
    tokenizer::Tokenizer,
};
use serde::Serialize;

use super::{
    clock::{peak_mb, thread_seconds},
    local_training::operations_per_token,
};
use crate::{failure::BadInput, kernels};

/// What the paper measured, and with what.
const PAPER_SECONDS: f64 = 140.0;
const PAPER: (&str, usize, usize, usize) = ("zaremba650", 20_000, 10, 20);

#[derive(Args)]
pub(crate) struct DeviceArgs {
    /// The model: a preset of words.
    #[arg(long, value_name = "PRESET", default_value = PAPER.0)]
    model: String,
    /// Bytes of text.
    #[arg(long, value_name = "N", default_value_t = PAPER.1)]
    bytes: usize,
    /// Sequences in a batch.
    #[arg(long, value_name = "N", default_value_t = PAPER.2)]
    batch: usize,
    /// Tokens of a sequence in a batch.
    #[arg(long, value_name = "N", default_value_t = PAPER.3)]
    unroll: usize,
    /// Learning rate.
    #[arg(long, value_name = "RATE", default_value_t = 0.75)]
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
    bytes: usize,
    tokens: usize,
    steps: usize,
    /// CPU time of the one thread that trains.
    cpu_seconds: f64,
    wall_seconds: f64,
    tokens_per_s: f64,
    gflops: f64,
    /// The most memory that the process ever had, where the system says.
    peak_mb: Option<f64>,
    /// Over the epoch, while it was learned.
    perplexity: f64,
    /// On the paper's phone, where model, bytes, batch and steps are the paper's.
    paper_seconds: Option<f64>,
}

pub(crate) fn run(args: &DeviceArgs) -> anyhow::Result<()> {
    let config = ModelConfig::preset(&args.model).map_err(|e| BadInput::wrong("model", e.to_string()))?;
    if config.token != Token::Word {
        return Err(
            BadInput::wrong("model", format!("{} reads characters, and this text is of words", args.model)).into()
        );
    }
    for (field, value, most) in
        [("batch", args.batch, 1 << 12), ("unroll", args.unroll, 1 << 12), ("bytes", args.bytes, 1 << 30)]
    {
        if !(1..=most).contains(&value) {
            return Err(BadInput::wrong(field, format!("must be from 1 to {most}, got {value}")).into());
        }
    }
    let path = kernels::chosen()?;
    let text = text(args.bytes)?;
    let vocabulary = synth::vocabulary(config.vocabulary)?;
    let stream = Stream::new([text.as_str()], Tokenizer::words(), &vocabulary);
    if stream.tokens() < args.batch {
        let problem =
            format!("{} bytes are {} tokens, and a batch has {} sequences", args.bytes, stream.tokens(), args.batch);
        return Err(BadInput::wrong("bytes", problem).into());
    }
    let mut trainer =
        Trainer::new(&config, args.batch, args.unroll, path).map_err(|e| BadInput::wrong("model", e.to_string()))?;
    trainer.load(&initial_parameters(&config, 1)?);
    let answer = train(args, &config, path, &mut trainer, &stream);
    print(&answer, args.json)
}

/// As much text as asked for: half of it a user's, half of the general language.
fn text(bytes: usize) -> anyhow::Result<String> {
    let mut text = String::with_capacity(bytes + 1);
    for (dialect, until) in [(Dialect::Informal, bytes / 2), (Dialect::General, bytes)] {
        let crowd = Crowd::new(SynthPlan::new(1, synth::MOST_USERS, dialect))?;
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

/// One epoch.
fn train(args: &DeviceArgs, config: &ModelConfig, path: KernelPath, trainer: &mut Trainer, stream: &Stream) -> Answer {
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
    Answer {
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

fn print(answer: &Answer, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(answer)?);
        return Ok(());
    }
    println!("model             {} ({} kernels, 1 thread)", answer.model, answer.kernels.name());
    println!("text              {} bytes, {} tokens, {} steps", answer.bytes, answer.tokens, answer.steps);
    println!("CPU seconds       {:.2}", answer.cpu_seconds);
    println!("wall seconds      {:.2}", answer.wall_seconds);
    if let Some(peak) = answer.peak_mb {
        println!("peak memory       {peak:.0} MB");
    }
    println!("GFLOP/s           {:.1}", answer.gflops);
    if let Some(paper) = answer.paper_seconds {
        println!("Popov et al. 2018 {paper:.0} seconds, on a phone with a quad-core CPU of 2.31 GHz");
    }
    Ok(())
}
