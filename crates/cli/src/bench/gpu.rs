//! `keyhush bench gpu`: rounds on a GPU.

use bench::gpu::Gpu;
use clap::Args;

use super::UserArgs;
use crate::{engines, kernels, threads};

#[derive(Args)]
pub(crate) struct GpuArgs {
    #[command(flatten)]
    of: UserArgs,
    /// Users per round
    #[arg(long, default_value_t = 100)]
    users: usize,
    /// Number of rounds; the median is reported
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    #[arg(long, default_value = "f16", help = format!("Precision of matrix products: {}", engines::precisions(&cuda::CUDA)))]
    precision: String,
    /// Number of threads that prepare text [default: one per core]
    #[arg(long, value_parser = threads::number)]
    threads: Option<usize>,
    /// Number of users whose updates are compared with the CPU's
    #[arg(long, default_value_t = 4)]
    compared: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &GpuArgs) -> anyhow::Result<()> {
    let gpu = Gpu {
        model: args.of.model.clone(),
        vocabulary: args.of.vocabulary,
        users: args.users,
        rounds: args.rounds,
        precision: engines::precision(cuda::CUDA, Some(&args.precision))?,
        threads: threads::chosen(args.threads),
        tokens: args.of.tokens,
        batch: args.of.batch,
        unroll: args.of.unroll,
        learning_rate: args.of.learning_rate,
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
