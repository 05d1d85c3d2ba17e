//! `keyhush bench gpu`: rounds on a GPU.

use bench::gpu::Gpu;
use clap::Args;

use crate::{engines, kernels, threads};

#[derive(Args)]
pub(crate) struct GpuArgs {
    /// Model preset, such as mcmahan2018, gboard or so-nwp
    #[arg(long, default_value = "mcmahan2018")]
    model: String,
    /// Vocabulary size, instead of the preset's
    #[arg(long)]
    vocabulary: Option<usize>,
    /// Users per round
    #[arg(long, default_value_t = 100)]
    users: usize,
    /// Number of rounds; the median is reported
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Precision of matrix products: f32, tf32 or f16
    #[arg(long, default_value = "f16")]
    precision: String,
    /// Number of threads that prepare text [default: one per core]
    #[arg(long, value_parser = threads::number)]
    threads: Option<usize>,
    /// Tokens per user
    #[arg(long, default_value_t = 1600)]
    tokens: usize,
    /// Sequences per batch
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Tokens per sequence in a batch
    #[arg(long, default_value_t = 10)]
    unroll: usize,
    /// Learning rate
    #[arg(long, default_value_t = 0.5)]
    learning_rate: f32,
    /// Number of users whose updates are compared with the CPU's
    #[arg(long, default_value_t = 4)]
    compared: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &GpuArgs) -> anyhow::Result<()> {
    let gpu = Gpu {
        model: args.model.clone(),
        vocabulary: args.vocabulary,
        users: args.users,
        rounds: args.rounds,
        precision: engines::precision(cuda::CUDA, Some(&args.precision))?,
        threads: threads::chosen(args.threads),
        tokens: args.tokens,
        batch: args.batch,
        unroll: args.unroll,
        learning_rate: args.learning_rate,
        compared: args.compared,
    };
    let took = gpu.run(kernels::chosen()?)?;
    if args.json {
        println!("{}", serde_json::to_string(&took)?);
        return Ok(());
    }
    println!("card              {}", took.card);
    println!("model             {} ({}, {} users, {} at a time)", took.model, took.precision, took.users, took.chunk);
    println!("ms per round      {:.2}, of which on the GPU {:.2}", took.ms_per_round, took.ms_per_round_on_the_card);
    println!("ms per 100 users  {:.2}", took.ms_per_100_users);
    let evaluation = took.evaluation;
    println!(
        "ms per evaluation {:.2} of {} tokens, on threads {:.0}",
        evaluation.ms_per_evaluation, evaluation.evaluated_tokens, evaluation.ms_per_evaluation_on_threads
    );
    println!("memory bandwidth  {:.0} % of {:.2} TB/s", 100.0 * took.share_of_copy_peak, took.copy_peak_tb_per_s);
    println!(
        "compute           {:.0} % of {:.0} TFLOP/s",
        100.0 * took.share_of_multiply_peak,
        took.multiply_peak_tflops
    );
    if let Some(off) = took.largest_relative_difference {
        println!("differs from CPU  by {off:.1e} at most, relative to an update");
    }
    Ok(())
}
