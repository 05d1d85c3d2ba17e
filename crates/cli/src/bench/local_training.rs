//! `keyhush bench local-training`: local training, the inner loop of every simulation, on synthetic tokens.

use bench::local_training::LocalTraining;
use clap::Args;
use federated::numbers::counted;

use super::UserArgs;
use crate::{kernels, threads};

#[derive(Args)]
pub(crate) struct LocalTrainingArgs {
    #[command(flatten)]
    of: UserArgs,
    /// Users per thread
    #[arg(long, default_value_t = 10)]
    users: u32,
    /// Number of threads, each with its own users
    #[arg(long, default_value_t = 1, value_parser = threads::number)]
    threads: usize,
    /// Factor for the initial weights: with 30 every gate saturates, and training should take as long as with 1
    #[arg(long, default_value_t = 1.0)]
    scale: f32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &LocalTrainingArgs) -> anyhow::Result<()> {
    let training = LocalTraining {
        model: args.of.model.clone(),
        vocabulary: args.of.vocabulary,
        users: args.users,
        threads: args.threads,
        tokens: args.of.tokens,
        batch: args.of.batch,
        unroll: args.of.unroll,
        learning_rate: args.of.learning_rate,
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
