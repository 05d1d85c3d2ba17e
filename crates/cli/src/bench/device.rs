//! `keyhush bench device`: the cost of training on one user's text, next to the one published figure for a phone.

use bench::device::{Device, DeviceTook};
use clap::Args;

use crate::kernels;

#[derive(Args)]
pub(crate) struct DeviceArgs {
    /// Model preset (words, not characters)
    #[arg(long, value_name = "PRESET", default_value = "zaremba650")]
    model: String,
    /// Size of the text in bytes
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    bytes: usize,
    /// Sequences per batch
    #[arg(long, value_name = "N", default_value_t = 10)]
    batch: usize,
    /// Tokens per sequence in a batch
    #[arg(long, value_name = "N", default_value_t = 20)]
    unroll: usize,
    /// Learning rate
    #[arg(long, value_name = "RATE", default_value_t = 0.75)]
    learning_rate: f32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DeviceArgs) -> anyhow::Result<()> {
    let DeviceArgs { model, bytes, batch, unroll, learning_rate, .. } = args;
    let device =
        Device { model: model.clone(), bytes: *bytes, batch: *batch, unroll: *unroll, learning_rate: *learning_rate };
    print(&device.run(kernels::chosen()?)?, args.json)
}

fn print(answer: &DeviceTook, json: bool) -> anyhow::Result<()> {
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
