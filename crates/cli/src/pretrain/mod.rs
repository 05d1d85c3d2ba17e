//! `keyhush pretrain`: training on public text, without federation.
//!
//! The text is one long stream, cut into as many sequences as a batch has, read side by side with carried state (Zaremba
//! et al. 2014). Every line begins with BOS, which is read and never predicted, and ends with EOS. A run that was stopped
//! goes on from its last checkpoint with `--resume`, to the same model.

mod checkpoint;
mod schedule;
pub(crate) mod stream;
mod training;
mod watch;

use std::path::PathBuf;

use clap::Args;
use corpus::origin::{KnownVocabulary, VocabularyFileError};
use lm::{
    model::{
        config::{Dropout, DropoutKind, ModelConfig, Token},
        parameters::ParameterLayout,
    },
    tokenizer::Tokenizer,
    vocabulary::{Counts, Vocabulary},
};

use self::{
    checkpoint::Epoch,
    schedule::Schedule,
    stream::Stream,
    training::{Ended, Run},
};
use crate::{
    failure::{BadInput, Interrupted},
    interrupt, kernels, model_folder,
};

const EXAMPLES: &str = "\
Examples:
  keyhush pretrain --data wiki.txt --valid wiki-valid.txt --model mcmahan2018 --out pretrained
  keyhush pretrain --data wiki.txt --valid wiki-valid.txt --model mcmahan2018 --out pretrained --resume
  keyhush pretrain --data wiki.txt --model zaremba650 --hidden 200 --embedding 200 --dropout 0.2 --out small

Ctrl-C writes a checkpoint and stops; a process that was killed left its last one. In either case the same command
with --resume goes on to the same model, to the bit, as if nothing had happened. Gradients are not clipped: when the
loss is no longer a number, begin again with a smaller learning rate.";

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
    /// The folder of the model; checkpoints, which are models too, go into it while the run lasts.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Go on from the last checkpoint in that folder; everything but --epochs must be as it was.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    schedule: Schedule,
    /// Minutes between the checkpoints inside an epoch; there is one after every epoch too.
    #[arg(long, value_name = "N", default_value_t = 10)]
    checkpoint_minutes: u64,
    /// Show no progress.
    #[arg(long, short)]
    quiet: bool,
    /// Print a line of JSON for every epoch.
    #[arg(long)]
    json: bool,
}

/// What is trained on what.
struct Task {
    config: ModelConfig,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    train: Stream,
    valid: Option<Stream>,
}

pub(crate) fn run(args: &PretrainArgs) -> anyhow::Result<()> {
    args.schedule.check()?;
    let path = kernels::chosen()?;
    let task = Task::new(args)?;
    let mut run = Run::begin(args, &task, path)?;
    if !args.quiet {
        let parameters = ParameterLayout::new(&task.config)?.len();
        let tokens = task.train.tokens();
        let model = &args.model;
        eprintln!("{model}: {parameters} parameters, {tokens} tokens an epoch, {} kernels", path.name());
    }
    interrupt::watch()?;
    while run.epochs() < args.schedule.epochs {
        match run.epoch()? {
            Ended::Whole(epoch) => announce(&epoch, args, task.config.vocabulary)?,
            Ended::Interrupted => {
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

impl Task {
    fn new(args: &PretrainArgs) -> anyhow::Result<Self> {
        let config = config(args)?;
        let tokenizer = match config.token {
            Token::Word => Tokenizer::words(),
            Token::Character => Tokenizer::characters(),
        };
        let vocabulary = vocabulary(args, tokenizer, config.vocabulary)?;
        let config = config.with_vocabulary(vocabulary.len());
        config.check().map_err(|e| BadInput::Refused(e.to_string()))?;
        let read = |paths: &[PathBuf], field, least| Stream::read(paths, field, tokenizer, &vocabulary, least);
        let train = read(&args.data, "data", args.schedule.batch)?;
        let valid = args.valid.as_ref().map(|valid| read(std::slice::from_ref(valid), "valid", 1)).transpose()?;
        Ok(Self { config, tokenizer, vocabulary, train, valid })
    }
}

/// The preset, with what was said to be otherwise. Where the output must have the size of the embedding, it follows.
fn config(args: &PretrainArgs) -> Result<ModelConfig, BadInput> {
    let mut config = ModelConfig::preset(&args.model).map_err(|e| BadInput::wrong("model", e.to_string()))?;
    config.vocabulary = args.vocabulary_size.unwrap_or(config.vocabulary);
    config.hidden = args.hidden.unwrap_or(config.hidden);
    if let Some(size) = args.embedding {
        config = config.with_embedding(size);
    }
    match (args.dropout, &mut config.dropout) {
        (Some(0.0), dropout) => *dropout = None,
        (Some(rate), Some(dropout)) => dropout.rate = rate,
        (Some(rate), none) => *none = Some(Dropout { rate, kind: DropoutKind::PerStep }),
        (None, _) => {}
    }
    Ok(config)
}

fn vocabulary(args: &PretrainArgs, tokenizer: Tokenizer, size: usize) -> Result<Vocabulary, BadInput> {
    if let Some(path) = &args.vocab {
        let text = model_folder::read_text("vocab", path)?;
        return given_vocabulary(&text, tokenizer)
            .map_err(|e| BadInput::wrong("vocab", format!("{}: {e}", path.display())));
    }
    let mut counts = Counts::new();
    for path in &args.data {
        model_folder::read_text("data", path)?.lines().for_each(|line| counts.add(tokenizer, line));
    }
    counts.vocabulary(size).map_err(|e| BadInput::wrong("data", e.to_string()))
}

/// A vocabulary file that says where it came from, or one of a model folder, which does not.
pub(crate) fn given_vocabulary(text: &str, tokenizer: Tokenizer) -> Result<Vocabulary, String> {
    let known = match KnownVocabulary::parse(text) {
        Ok(known) => known,
        Err(VocabularyFileError::NoOrigin) => return Vocabulary::parse(text).map_err(|e| e.to_string()),
        Err(error) => return Err(error.to_string()),
    };
    if known.rules != tokenizer.rules() {
        return Err(format!("its words follow the rules {}, and this model reads {}", known.rules, tokenizer.rules()));
    }
    match known.origin.non_private_event() {
        Some(_) => Err(format!("it comes from {}, and this model is to be of public text alone", known.origin)),
        None => Ok(known.vocabulary),
    }
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
