//! `keyhush pretrain`: trains a model on public text, without federation.

mod watch;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use corpus::origin;
use federated::engine::{EngineKind, EngineOptions, Means};
use lm::{tokenizer::Tokenizer, vocabulary::Vocabulary};
use pretraining::{Ended, ModelChoice, Run, Task, checkpoint::Epoch, schedule::Schedule, tokenizer};

use self::watch::Watch;
use crate::{
    engines,
    failure::{BadInput, Interrupted},
    interrupt, kernels, model_folder,
};

const EXAMPLES: &str = "\
Examples:
  keyhush pretrain --data wiki.txt --valid wiki-valid.txt --model mcmahan2018 --out pretrained
  keyhush pretrain --data wiki.txt --valid wiki-valid.txt --model mcmahan2018 --out pretrained --resume
  keyhush pretrain --data wiki.txt --valid wiki-valid.txt --model zaremba650 --out large --engine cuda --precision tf32
  keyhush pretrain --data wiki.txt --model zaremba650 --hidden 200 --embedding 200 --dropout 0.2 --out small

Ctrl-C writes a checkpoint and stops. To continue after that, or after the process was killed, run the same command with --resume; \
the model ends bit-identical to that of an uninterrupted run.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PretrainArgs {
    /// Public text, one sequence per line; may be repeated
    #[arg(long, required = true, value_name = "TEXT")]
    data: Vec<PathBuf>,
    /// Validation text, evaluated after every epoch
    #[arg(long, value_name = "TEXT")]
    valid: Option<PathBuf>,
    /// Model preset, such as tiny, mcmahan2018, gboard or zaremba650
    #[arg(long, value_name = "PRESET", default_value = "tiny")]
    model: String,
    /// Units per layer, instead of the preset's
    #[arg(long, value_name = "N")]
    hidden: Option<usize>,
    /// Embedding size, instead of the preset's
    #[arg(long, value_name = "N")]
    embedding: Option<usize>,
    /// Dropout rate, instead of the preset's; 0 for none. If the preset has no dropout, masks are drawn for every token
    #[arg(long, value_name = "RATE")]
    dropout: Option<f32>,
    /// Vocabulary from `keyhush data vocab`, or the `vocab.txt` of a model [default: the most frequent words of the text]
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Vocabulary size, instead of the preset's
    #[arg(long, value_name = "N", conflicts_with = "vocab")]
    vocabulary_size: Option<usize>,
    /// Folder for the model and the checkpoints
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Resume from the last checkpoint in --out; all options except --epochs must be the same as before
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    schedule: ScheduleArgs,
    /// Minutes between checkpoints within an epoch; there is also one after every epoch
    #[arg(long, value_name = "N", default_value_t = 10)]
    checkpoint_minutes: u64,
    #[arg(long, value_name = "NAME", help = engines::help("the model", "; pretraining on threads uses a single one"))]
    engine: Option<String>,
    #[arg(long, value_name = "PRECISION", requires = "engine", help = engines::precision_help(""))]
    precision: Option<String>,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
    /// Print one line of JSON per epoch
    #[arg(long)]
    json: bool,
}

/// How the text is walked.
#[derive(Args)]
struct ScheduleArgs {
    /// Number of epochs; 0 writes the untrained model
    #[arg(long, value_name = "N", default_value_t = 5)]
    epochs: u32,
    /// Sequences per batch
    #[arg(long, value_name = "N", default_value_t = 20)]
    batch: usize,
    /// Tokens per sequence in a batch
    #[arg(long, value_name = "N", default_value_t = 35)]
    unroll: usize,
    /// Learning rate of plain SGD on the mean token loss of a batch
    #[arg(long, value_name = "RATE", default_value_t = 1.0)]
    learning_rate: f32,
    /// Epochs before the learning rate starts to decay
    #[arg(long, value_name = "N", default_value_t = 4)]
    decay_after: u32,
    /// Factor applied to the learning rate before each later epoch
    #[arg(long, value_name = "FACTOR", default_value_t = 0.5)]
    decay: f32,
    /// Seed of the initial parameters and of dropout
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Clip the gradient of each batch to this L2 norm, so that one bad batch does not destroy the model; 0 turns clipping off. Gradients of
    /// models that learn are mostly shorter than 1
    #[arg(long, value_name = "NORM", default_value_t = 1.0)]
    clip_gradients: f32,
}

impl ScheduleArgs {
    fn schedule(&self) -> Schedule {
        let Self { epochs, batch, unroll, learning_rate, decay_after, decay, seed, clip_gradients } = *self;
        let clip_gradients = Some(clip_gradients).filter(|clip| *clip != 0.0);
        Schedule { epochs, batch, unroll, learning_rate, decay_after, decay, seed, clip_gradients }
    }
}

pub(crate) fn run(args: &PretrainArgs) -> anyhow::Result<()> {
    let engine = engines::named(args.engine.as_deref())?;
    let (means, schedule) = (means(args, engine)?, args.schedule.schedule());
    schedule.check()?;
    let task = task(args)?;
    let begin = if args.resume { Run::resume } else { Run::begin };
    let run = begin(&task, &schedule, &args.out, means)?;
    let mut run = run.with_checkpoint_every(Duration::from_secs(60 * args.checkpoint_minutes));
    if let Some(note) = run.note() {
        eprintln!("note: {note}");
    }
    if !args.quiet {
        let (parameters, tokens, model) = (task.parameters()?, task.tokens(), &args.model);
        let arithmetic = means.arithmetic();
        eprintln!("{model}: {parameters} parameters, {tokens} tokens per epoch, {arithmetic} kernels");
    }
    interrupt::watch()?;
    let mut watch = Watch::new(args.quiet)?;
    while run.epochs() < schedule.epochs {
        match run.epoch(&mut watch)? {
            Ended::Whole(epoch) => announce(&epoch, args, task.vocabulary())?,
            Ended::Stopped => {
                let said = "interrupted; nothing is lost\nresume with the same command and --resume";
                return Err(Interrupted(said.into()).into());
            }
        }
    }
    run.finish()?;
    if !args.quiet {
        eprintln!("the model is in {}", args.out.display());
    }
    Ok(())
}

/// Kernels, engine and precision.
fn means(args: &PretrainArgs, engine: EngineKind) -> anyhow::Result<Means> {
    let precision = engines::precision(engine, args.precision.as_deref())?;
    let options = EngineOptions { precision, ..EngineOptions::default() };
    Ok(Means { engine, options, ..Means::threads(kernels::chosen()?, 1) })
}

/// The model and the text to train.
fn task(args: &PretrainArgs) -> anyhow::Result<Task> {
    let model = ModelChoice {
        preset: args.model.clone(),
        hidden: args.hidden,
        embedding: args.embedding,
        dropout: args.dropout,
        vocabulary: args.vocabulary_size,
    };
    let config = model.config()?;
    let data = args.data.iter().map(|path| model_folder::read_text("data", path)).collect::<Result<Vec<_>, _>>()?;
    let vocabulary = vocabulary(args, &data, tokenizer(&config), config.vocabulary)?;
    let valid = args.valid.as_ref().map(|path| model_folder::read_text("valid", path)).transpose()?;
    Ok(Task::new(&model, vocabulary, &data, valid.as_deref(), args.schedule.batch)?)
}

fn vocabulary(args: &PretrainArgs, data: &[String], tokenizer: Tokenizer, size: usize) -> Result<Vocabulary, BadInput> {
    if let Some(path) = &args.vocab {
        return model_folder::read_vocabulary(path, tokenizer);
    }
    origin::counted_vocabulary(data, tokenizer, size).map_err(|e| BadInput::wrong("data", e.to_string()))
}

fn announce(epoch: &Epoch, args: &PretrainArgs, vocabulary: usize) -> anyhow::Result<()> {
    if args.json {
        println!("{}", serde_json::to_string(epoch)?);
    } else {
        let valid = epoch.valid_perplexity.map_or(String::new(), |p| format!(", valid {}", shown(p)));
        let train = shown(epoch.train_perplexity);
        let Epoch { epoch, learning_rate, tokens_per_s, .. } = epoch;
        println!(
            "epoch {epoch:3}  perplexity {train}{valid}  ({tokens_per_s:.0} tokens/s, learning rate {learning_rate})"
        );
    }
    if !args.quiet && epoch.train_perplexity > vocabulary as f64 {
        eprintln!("note: that is worse than guessing among {vocabulary} entries; try a smaller --learning-rate");
    }
    Ok(())
}

fn shown(perplexity: f64) -> String {
    if perplexity < 1e6 { format!("{perplexity:.2}") } else { format!("{perplexity:.2e}") }
}
