//! `keyhush bench local-training`: local training, the inner loop of every simulation, on synthetic tokens.

use bench::local_training::LocalTraining;
use clap::Args;
use federated::numbers::counted;

use crate::{kernels, threads};

#[derive(Args)]
pub(crate) struct LocalTrainingArgs {
    /// Model preset, such as mcmahan2018, gboard or so-nwp
    #[arg(long, default_value = "mcmahan2018")]
    model: String,
    /// Vocabulary size, instead of the preset's
    #[arg(long)]
    vocabulary: Option<usize>,
    /// Users per thread
    #[arg(long, default_value_t = 10)]
    users: u32,
    /// Number of threads, each with its own users
    #[arg(long, default_value_t = 1, value_parser = threads::number)]
    threads: usize,
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
    /// Factor for the initial weights: 30 saturates every gate, which must not take longer
    #[arg(long, default_value_t = 1.0)]
    scale: f32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &LocalTrainingArgs) -> anyhow::Result<()> {
    let training = LocalTraining {
        model: args.model.clone(),
        vocabulary: args.vocabulary,
        users: args.users,
        threads: args.threads,
        tokens: args.tokens,
        batch: args.batch,
        unroll: args.unroll,
        learning_rate: args.learning_rate,
        scale: args.scale,
    };
    let answer = training.run(kernels::chosen()?)?;
    if args.json {
        println!("{}", serde_json::to_string(&answer)?);
        return Ok(());
    }
    println!(
        "model             {} ({} kernels, {})",
        answer.model,
        answer.kernels.name(),
        counted(answer.threads as u64, "thread")
    );
    println!("ms per user       {:.1} of CPU time  (best {:.1})", answer.ms_per_user, answer.ms_per_user_best);
    println!("GFLOP/s           {:.1}", answer.gflops);
    println!("share of the peak {:.0} % of {:.1} GFLOP/s", 100.0 * answer.peak_share, answer.peak_gflops);
    println!("tokens/s          {:.0}", answer.tokens_per_s);
    Ok(())
}
