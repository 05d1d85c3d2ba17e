//! `keyhush bench round`: the overhead of a round over the users' training, and what a second thread costs.

use bench::round::{Rounds, RoundsTook, Threads};
use clap::Args;

use crate::{kernels, threads};

#[derive(Args)]
pub(crate) struct RoundArgs {
    /// Model preset, such as mcmahan2018 or gboard
    #[arg(long, default_value = "mcmahan2018")]
    model: String,
    /// Users per round
    #[arg(long, default_value_t = 100)]
    users: u64,
    /// Number of rounds to measure
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// Number of threads to compare with one
    #[arg(long, default_value_t = 2, value_parser = threads::number)]
    threads: usize,
    /// Override a setting, such as privacy.mechanism=none
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &RoundArgs) -> anyhow::Result<()> {
    let RoundArgs { model, users, rounds, threads, set, .. } = args;
    let rounds = Rounds { model: model.clone(), users: *users, rounds: *rounds, threads: *threads, set: set.clone() };
    let answer = rounds.run(kernels::chosen()?)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&answer)?);
        return Ok(());
    }
    let RoundsTook { training_s, share_beside_training, parts, threads, .. } = &answer;
    println!("{} users of {}, {} kernels; seconds per round", args.users, args.model, answer.kernels.name());
    println!("local training     {training_s:10.4}");
    println!("reading text       {:10.4}", parts.read_s);
    println!("clip, encode, sum  {:10.4}", parts.clip_encode_sum_s);
    println!("drawing users      {:10.4}", parts.sample_s);
    println!("noise              {:10.4}", parts.noise_s);
    println!("ledger             {:10.4}", parts.ledger_s);
    println!("optimizer          {:10.4}", parts.optimizer_s);
    println!("overhead           {:10.2} %", 100.0 * share_beside_training);
    let Threads { threads, cpu_ratio, busy } = threads;
    println!(
        "{threads} threads together take {cpu_ratio:.3} times the CPU time of one, and are busy {:.1} % of training",
        100.0 * busy
    );
    Ok(())
}
