//! `keyhush distil`: one model from the released models of several runs.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use federated::{
    finetune::{
        self,
        ensemble::{Distilling, On},
    },
    home::LEDGER_FILE,
    released::Teachers,
};
use privacy::Delta;

use crate::{failure::BadInput, kernels, model_folder};

const AFTER: &str = "\
The new model learns the average prediction of the runs' models (Popov et al. 2018, equation 4). No text of users is read again. Its \
privacy cost is that of all the runs together, even if nobody took part in two of them, because ledgers cannot show that. A training run cannot \
start from it, because it could not account for the cost of all of them.

Examples:
  keyhush distil runs/cohort-a runs/cohort-b --text public.txt --out distilled
  keyhush distil runs/cohort-a runs/cohort-b --tokens 50000 --cycles 5 --out distilled
  keyhush distil runs/cohort-a runs/cohort-b --epochs 0 --out averaged";

/// Arguments of `keyhush distil`.
#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct DistilArgs {
    /// Folders of finished runs
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Folder for the model
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Public text to learn on, one post per line [default: text that the models write]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Tokens of text to learn on
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    tokens: usize,
    /// Number of times that the models write new text, and the new model trains on it
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "text")]
    cycles: u32,
    /// Number of epochs; 0 only averages the models
    #[arg(long, value_name = "N", default_value_t = 6)]
    epochs: u32,
    /// Sequences per batch
    #[arg(long, value_name = "N", default_value_t = 10)]
    batch: usize,
    /// Tokens per sequence in a batch
    #[arg(long, value_name = "N", default_value_t = 20)]
    unroll: usize,
    /// Learning rate
    #[arg(long, value_name = "RATE", default_value_t = 0.75)]
    learning_rate: f32,
    /// Seed of the text that the models write
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Delta of the guarantee [default: the smallest delta of the runs]
    #[arg(long)]
    delta: Option<f64>,
    /// Print the cost as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DistilArgs) -> anyhow::Result<()> {
    args.check()?;
    let delta = args.delta.map(Delta::new).transpose().map_err(|error| BadInput::illegal("delta", &error))?;
    let teachers = Teachers::read(&args.runs, delta)?;
    let read = |path: &Path| finetune::public_text(path, teachers.vocabulary(), teachers.rules(), args.tokens);
    let text = args.text.as_deref().map(read).transpose().map_err(|problem| BadInput::wrong("text", problem))?;
    let on = match &text {
        Some(text) => On::Real(text),
        None => On::Generated { tokens: args.tokens, cycles: args.cycles, seed: args.seed },
    };
    let DistilArgs { epochs, batch, unroll, learning_rate, .. } = *args;
    let how = Distilling { on, epochs, batch, unroll, learning_rate };
    let model = teachers.teach(how, kernels::chosen()?)?;
    model_folder::write(&model, &args.out)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(teachers.cost())?)?;
        return Ok(());
    }
    writeln!(out, "{}\nModel: {}", teachers.cost().sentence(), args.out.display())?;
    Ok(())
}

impl DistilArgs {
    fn check(&self) -> Result<(), BadInput> {
        if self.batch == 0 || self.unroll == 0 {
            let field = if self.batch == 0 { "batch" } else { "unroll" };
            return Err(BadInput::wrong(field, "must be at least 1"));
        }
        if self.tokens == 0 {
            return Err(BadInput::wrong("tokens", "must be at least 1"));
        }
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return Err(BadInput::wrong("learning_rate", "must be above 0"));
        }
        // Beside the ledger of a run, the model would be taken for that run's.
        let of_run = self.out.ancestors().take(2).any(|folder| folder.join(LEDGER_FILE).is_file());
        if of_run {
            return Err(BadInput::wrong("out", "is in the folder of a run; choose a folder outside it"));
        }
        Ok(())
    }
}
