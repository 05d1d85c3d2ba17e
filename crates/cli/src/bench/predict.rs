//! `keyhush bench predict`: one next-word prediction, as a keyboard requests it.

use bench::predict::{Prediction, PredictionTook};
use clap::Args;

use crate::kernels;

#[derive(Args)]
pub(crate) struct PredictArgs {
    /// Model preset such as gboard (untrained), or the folder of a trained model
    #[arg(long, default_value = "gboard")]
    model: String,
    /// Number of words to predict
    #[arg(long, default_value_t = 1000)]
    words: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &PredictArgs) -> anyhow::Result<()> {
    let prediction = Prediction { model: args.model.clone(), words: args.words };
    print(&prediction.run(kernels::chosen()?)?, args.json)
}

fn print(answer: &PredictionTook, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(answer)?);
        return Ok(());
    }
    println!("model             {} ({} kernels, one thread)", answer.model, answer.kernels.name());
    println!("ms per prediction {:.3}  (best {:.3})", answer.ms_per_prediction, answer.ms_per_prediction_best);
    println!("ms per letter     {:.3}", answer.ms_per_letter);
    if let Some(peak) = answer.peak_mb {
        println!("peak memory       {peak:.1} MB, whole process");
    }
    Ok(())
}
