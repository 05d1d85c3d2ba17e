//! `keyhush pretrain`: training on public text, without federation.

mod watch;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use corpus::origin;
use federated::engine::{self, EngineOptions, Means};
use lm::{
    tokenizer::Tokenizer,
    vocabulary::{Counts, Vocabulary},
};
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

Ctrl-C writes a checkpoint and stops; a process that was killed left its last one. In either case the same command
with --resume goes on to the same model, to the bit, as if nothing had happened. Gradients of a batch that are longer than
--clip-gradients are made so long, so that one bad batch does not destroy the model.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PretrainArgs {
    /// Public text, one sequence a line; may be repeated.
    #[arg(long, required = true, value_name = "TEXT")]
    data: Vec<PathBuf>,
    /// Text to measure on after every epoch.
    #[arg(long, value_name = "TEXT")]
    valid: Option<PathBuf>,
    /// The model: a preset such as tiny, mcmahan2018, gboard or zaremba650.
    #[arg(long, value_name = "PRESET", default_value = "tiny")]
    model: String,
    /// Units of each layer, instead of the preset's.
    #[arg(long, value_name = "N")]
    hidden: Option<usize>,
    /// Size of the embedding, instead of the preset's.
    #[arg(long, value_name = "N")]
    embedding: Option<usize>,
    /// The chance of a unit to be left out of a step, instead of the preset's; 0 for none. Where the preset has no dropout,
    /// units are drawn at every token.
    #[arg(long, value_name = "RATE")]
    dropout: Option<f32>,
    /// A vocabulary of `keyhush data vocab`, or the `vocab.txt` of a model; otherwise it is made of the most frequent words
    /// of the text, which is public.
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Entries of a vocabulary that is made, instead of the preset's.
    #[arg(long, value_name = "N", conflicts_with = "vocab")]
    vocabulary_size: Option<usize>,
    /// The folder of the model; the checkpoint of the run goes into it too.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Go on from the last checkpoint in that folder; everything but --epochs must be as it was.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    schedule: ScheduleArgs,
    /// Minutes between the checkpoints inside an epoch; there is one after every epoch too.
    #[arg(long, value_name = "N", default_value_t = 10)]
    checkpoint_minutes: u64,
    /// Who trains: threads, which is one thread, or cuda [default: threads]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// What the products of --engine cuda are computed in: f32, tf32 or f16 [default: f32]
    #[arg(long, value_name = "PRECISION", requires = "engine")]
    precision: Option<String>,
    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
    /// Print a line of JSON for every epoch.
    #[arg(long)]
    json: bool,
}

/// How the text is walked.
#[derive(Args)]
struct ScheduleArgs {
    /// Times to read the text; 0 writes the model as training would begin with it.
    #[arg(long, value_name = "N", default_value_t = 5)]
    epochs: u32,
    /// Sequences in a batch.
    #[arg(long, value_name = "N", default_value_t = 20)]
    batch: usize,
    /// Tokens of a sequence in a batch.
    #[arg(long, value_name = "N", default_value_t = 35)]
    unroll: usize,
    /// Learning rate of plain SGD on the mean loss of a batch's tokens.
    #[arg(long, value_name = "RATE", default_value_t = 1.0)]
    learning_rate: f32,
    /// Epochs before the learning rate begins to fall.
    #[arg(long, value_name = "N", default_value_t = 4)]
    decay_after: u32,
    /// What the learning rate is multiplied with before each later epoch.
    #[arg(long, value_name = "FACTOR", default_value_t = 0.5)]
    decay: f32,
    /// Seed of the first parameters and of dropout.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The longest gradient of a batch's mean loss; a longer one is made so long. 0 follows all as they are. With --engine cuda every step
    /// takes longer for it [default: 1; with --engine cuda 0]
    #[arg(long, value_name = "NORM")]
    clip_gradients: Option<f32>,
}

/// Gradients of models that learn are mostly shorter.
const CLIP_GRADIENTS: f32 = 1.0;

impl ScheduleArgs {
    fn schedule(&self, on_threads: bool) -> Schedule {
        let Self { epochs, batch, unroll, learning_rate, decay_after, decay, seed, clip_gradients } = *self;
        let usual = if on_threads { CLIP_GRADIENTS } else { 0.0 };
        let clip_gradients = Some(clip_gradients.unwrap_or(usual)).filter(|clip| *clip != 0.0);
        Schedule { epochs, batch, unroll, learning_rate, decay_after, decay, seed, clip_gradients }
    }
}

pub(crate) fn run(args: &PretrainArgs) -> anyhow::Result<()> {
    let means = means(args)?;
    let schedule = args.schedule.schedule(means.engine.name == engine::THREADS.name);
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
        eprintln!("{model}: {parameters} parameters, {tokens} tokens an epoch, {arithmetic} kernels");
    }
    interrupt::watch()?;
    let mut watch = Watch::new(args.quiet)?;
    while run.epochs() < schedule.epochs {
        match run.epoch(&mut watch)? {
            Ended::Whole(epoch) => announce(&epoch, args, task.vocabulary())?,
            Ended::Stopped => {
                let said = "interrupted; nothing is lost: go on with the same command and --resume";
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

/// With what is trained.
fn means(args: &PretrainArgs) -> anyhow::Result<Means> {
    let engine = engines::named(args.engine.as_deref())?;
    let precision = engines::precision(engine, args.precision.as_deref())?;
    let options = EngineOptions { precision, ..EngineOptions::default() };
    Ok(Means { engine, options, ..Means::threads(kernels::chosen()?, 1) })
}

/// What is trained on what.
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
        let text = model_folder::read_text("vocab", path)?;
        return origin::public_vocabulary(&text, tokenizer)
            .map_err(|e| BadInput::wrong("vocab", format!("{}: {e}", path.display())));
    }
    let mut counts = Counts::new();
    data.iter().flat_map(|text| text.lines()).for_each(|line| counts.add(tokenizer, line));
    counts.vocabulary(size).map_err(|e| BadInput::wrong("data", e.to_string()))
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
        eprintln!("note: that is worse than guessing among {vocabulary} entries; a smaller --learning-rate may help");
    }
    Ok(())
}

fn shown(perplexity: f64) -> String {
    if perplexity < 1e6 { format!("{perplexity:.2}") } else { format!("{perplexity:.2e}") }
}
