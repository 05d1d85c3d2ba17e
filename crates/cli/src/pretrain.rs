//! `keyhush pretrain`: training on public text, without federation.
//!
//! The text is one long stream, cut into as many sequences as a batch has, read side by side with carried state (Zaremba
//! et al. 2014). Every line begins with BOS, which is read and never predicted, and ends with EOS. After each epoch a
//! checkpoint is written; a run that was stopped goes on from the last one with `--resume`, to the same model.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lm::{
    folder::{Folder, Guarantee, Weights},
    kernels::KernelPath,
    model::{
        config::{ModelConfig, Token},
        dropout::MaskDrawer,
        fast::Trainer,
        initial::initial_parameters,
        parameters::ParameterLayout,
        reference::{Batch, Masks},
    },
    tokenizer::Tokenizer,
    vocabulary::{Counts, Vocabulary},
};
use serde::{Deserialize, Serialize};

use crate::{failure::BadInput, model_folder};

#[derive(Args)]
pub(crate) struct PretrainArgs {
    /// Public text, one sequence a line.
    #[arg(long = "data", required = true, value_name = "TEXT")]
    data: Vec<PathBuf>,
    /// Text to measure on after every epoch.
    #[arg(long, value_name = "TEXT")]
    valid: Option<PathBuf>,
    /// The model: a preset such as tiny, mcmahan2018, gboard or zaremba650.
    #[arg(long, default_value = "tiny")]
    model: String,
    /// Units of each layer, instead of the preset's.
    #[arg(long)]
    hidden: Option<usize>,
    /// Size of the embedding, instead of the preset's.
    #[arg(long)]
    embedding: Option<usize>,
    /// Dropout, instead of the preset's.
    #[arg(long)]
    dropout: Option<f32>,
    /// A vocabulary, one word a line; otherwise it is made of the most frequent words of the text, which is public.
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Entries of a vocabulary that is made, instead of the preset's.
    #[arg(long)]
    vocabulary_size: Option<usize>,
    /// The folder of the model.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Go on from the last checkpoint in that folder.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    schedule: Schedule,
    /// Print a line of JSON for every epoch.
    #[arg(long)]
    json: bool,
}

/// How the text is walked. A run that is resumed must have the same.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Schedule {
    /// Times to read the text.
    #[arg(long, default_value_t = 5)]
    epochs: u32,
    /// Sequences in a batch.
    #[arg(long, default_value_t = 20)]
    batch: usize,
    /// Tokens of a sequence in a batch.
    #[arg(long, default_value_t = 35)]
    unroll: usize,
    /// Learning rate.
    #[arg(long, default_value_t = 1.0)]
    learning_rate: f32,
    /// Epochs before the learning rate begins to fall.
    #[arg(long, default_value_t = 4)]
    decay_after: u32,
    /// What the learning rate is multiplied with after each later epoch.
    #[arg(long, default_value_t = 0.5)]
    decay: f32,
    /// Seed of the first parameters and of dropout.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Schedule {
    fn check(&self) -> Result<(), BadInput> {
        let sizes = [("batch", self.batch), ("unroll", self.unroll), ("epochs", self.epochs as usize)];
        if let Some((field, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(BadInput::wrong(field, "must be at least 1"));
        }
        for (field, rate) in [("learning_rate", self.learning_rate), ("decay", self.decay)] {
            if !(rate.is_finite() && rate > 0.0) {
                return Err(BadInput::wrong(field, format!("must be finite and above 0, got {rate}")));
            }
        }
        Ok(())
    }

    fn rate(&self, epoch: u32) -> f32 {
        (self.decay_after..epoch).fold(self.learning_rate, |rate, _| rate * self.decay)
    }
}

/// What an epoch came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Epoch {
    epoch: u32,
    learning_rate: f32,
    train_perplexity: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_perplexity: Option<f64>,
    tokens_per_s: f64,
}

/// Where a run stands; written after its checkpoint, so that it never names one that is not whole.
#[derive(Serialize, Deserialize)]
struct Progress {
    schedule: Schedule,
    checkpoint: String,
    epochs: Vec<Epoch>,
}

/// Text as what is read and what is to be predicted.
struct Stream {
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

impl Stream {
    fn read(paths: &[PathBuf], field: &'static str, tokenizer: Tokenizer, vocabulary: &Vocabulary) -> anyhow::Result<Self> {
        let mut stream = Self { inputs: Vec::new(), targets: Vec::new() };
        for path in paths {
            for line in model_folder::lines(&model_folder::read_text(field, path)?, tokenizer, vocabulary) {
                stream.inputs.extend_from_slice(&line.ids[..line.ids.len() - 1]);
                stream.targets.extend_from_slice(&line.ids[1..]);
            }
        }
        Ok(stream)
    }

    /// The batches of one epoch: `rows` parts of the stream side by side.
    fn batches(&self, rows: usize, unroll: usize) -> impl ExactSizeIterator<Item = (Vec<u32>, Vec<u32>)> + '_ {
        let length = self.inputs.len() / rows;
        (0..length.div_ceil(unroll)).map(move |n| {
            let steps = n * unroll..((n + 1) * unroll).min(length);
            let gather = |from: &[u32]| steps.clone().flat_map(|t| (0..rows).map(move |r| r * length + t)).map(|i| from[i]).collect();
            (gather(&self.inputs), gather(&self.targets))
        })
    }
}

pub(crate) fn run(args: &PretrainArgs) -> anyhow::Result<()> {
    args.schedule.check()?;
    let config = config(args)?;
    let tokenizer = match config.token {
        Token::Word => Tokenizer::words(),
        Token::Character => Tokenizer::characters(),
    };
    let vocabulary = vocabulary(args, tokenizer, config.vocabulary)?;
    let config = config.with_vocabulary(vocabulary.len());
    config.check().map_err(|e| BadInput::Refused(e.to_string()))?;
    let train = Stream::read(&args.data, "data", tokenizer, &vocabulary)?;
    if train.inputs.len() < args.schedule.batch {
        let problem = format!("{} tokens are fewer than the batch has sequences", train.inputs.len());
        return Err(BadInput::wrong("data", problem).into());
    }
    let valid = args.valid.as_ref().map(|v| Stream::read(std::slice::from_ref(v), "valid", tokenizer, &vocabulary)).transpose()?;
    let mut run = Run::begin(args, config, tokenizer, vocabulary)?;
    while (run.progress.epochs.len() as u32) < args.schedule.epochs {
        let epoch = run.epoch(&train, valid.as_ref())?;
        run.checkpoint()?;
        announce(&epoch, args.json)?;
    }
    run.finish()
}

fn config(args: &PretrainArgs) -> Result<ModelConfig, BadInput> {
    let mut config = ModelConfig::preset(&args.model).map_err(|e| BadInput::wrong("model", e.to_string()))?;
    if let Some(size) = args.vocabulary_size {
        config.vocabulary = size;
    }
    if let Some(hidden) = args.hidden {
        config.hidden = hidden;
    }
    if let Some(embedding) = args.embedding {
        config.embedding = embedding;
    }
    match (args.dropout, &mut config.dropout) {
        (Some(0.0), dropout) => *dropout = None,
        (Some(rate), Some(dropout)) => dropout.rate = rate,
        (Some(_), None) => return Err(BadInput::wrong("dropout", "this model has none")),
        (None, _) => {}
    }
    Ok(config)
}

fn vocabulary(args: &PretrainArgs, tokenizer: Tokenizer, size: usize) -> anyhow::Result<Vocabulary> {
    if let Some(path) = &args.vocab {
        let text = model_folder::read_text("vocab", path)?;
        return Vocabulary::parse(&text).map_err(|e| BadInput::wrong("vocab", e.to_string()).into());
    }
    let mut counts = Counts::new();
    for path in &args.data {
        model_folder::read_text("data", path)?.lines().for_each(|line| counts.add(tokenizer, line));
    }
    counts.vocabulary(size).map_err(|e| BadInput::wrong("data", e.to_string()).into())
}

/// A run in its midst.
struct Run<'a> {
    args: &'a PretrainArgs,
    trainer: Trainer,
    parameters: Vec<f32>,
    folder: Folder,
    progress: Progress,
}

impl<'a> Run<'a> {
    fn begin(args: &'a PretrainArgs, config: ModelConfig, tokenizer: Tokenizer, vocabulary: Vocabulary) -> anyhow::Result<Self> {
        let schedule = args.schedule.clone();
        let mut trainer = Trainer::new(&config, schedule.batch, schedule.unroll, KernelPath::best())
            .map_err(|e| BadInput::wrong("model", e.to_string()))?;
        let (progress, parameters) = if args.resume {
            resumed(args, &config, &vocabulary)?
        } else {
            let progress = Progress { schedule, checkpoint: String::new(), epochs: Vec::new() };
            if args.out.join(PROGRESS_FILE).exists() {
                let problem = format!("{} holds a run already; go on with --resume, or choose another", args.out.display());
                return Err(BadInput::wrong("out", problem).into());
            }
            (progress, initial_parameters(&config, args.schedule.seed)?)
        };
        trainer.load(&parameters);
        let folder = Folder {
            name: args.model.clone(),
            rules: tokenizer.rules(),
            vocabulary,
            weights: Weights::Recurrent { config, values: parameters.clone() },
            guarantee: Guarantee::public_text(),
        };
        Ok(Self { args, trainer, parameters, folder, progress })
    }

    fn epoch(&mut self, train: &Stream, valid: Option<&Stream>) -> anyhow::Result<Epoch> {
        let schedule = &self.args.schedule;
        let epoch = self.progress.epochs.len() as u32 + 1;
        let rate = schedule.rate(epoch);
        let Weights::Recurrent { config, .. } = &self.folder.weights else { anyhow::bail!("not a recurrent model") };
        // Every epoch has masks of its own, whether or not the run was stopped before it.
        let mut drawer = MaskDrawer::new(config, schedule.seed.wrapping_add(u64::from(epoch) << 32));
        let mut masks = Masks::new();
        let batches = train.batches(schedule.batch, schedule.unroll);
        let bar = bar(batches.len() as u64, epoch);
        let (clock, mut loss, mut tokens) = (Instant::now(), 0.0, 0);
        self.trainer.forget();
        for (inputs, targets) in batches {
            let batch = Batch { rows: schedule.batch, inputs: &inputs, targets: &targets, context: &[] };
            if let Some(drawer) = &mut drawer {
                drawer.draw(schedule.batch, batch.steps(), &mut masks);
            }
            loss += f64::from(self.trainer.step_without(&batch, rate, drawer.is_some().then_some(&masks)));
            tokens += targets.len();
            if !loss.is_finite() {
                anyhow::bail!("the loss is no longer a number in epoch {epoch}; try a smaller --learning-rate");
            }
            bar.set_message(format!("perplexity {:.1}", (loss / tokens as f64).exp()));
            bar.inc(1);
        }
        bar.finish_and_clear();
        let tokens_per_s = tokens as f64 / clock.elapsed().as_secs_f64();
        let valid_perplexity = valid.map(|v| self.measure(v));
        let train_perplexity = (loss / tokens as f64).exp();
        let epoch = Epoch { epoch, learning_rate: rate, train_perplexity, valid_perplexity, tokens_per_s };
        self.progress.epochs.push(epoch.clone());
        Ok(epoch)
    }

    fn measure(&mut self, stream: &Stream) -> f64 {
        let schedule = &self.args.schedule;
        let rows = schedule.batch.min(stream.inputs.len().max(1));
        let (mut loss, mut tokens) = (0.0, 0);
        self.trainer.forget();
        for (inputs, targets) in stream.batches(rows, schedule.unroll) {
            loss += f64::from(self.trainer.loss(&Batch { rows, inputs: &inputs, targets: &targets, context: &[] }));
            tokens += targets.len();
        }
        (loss / tokens.max(1) as f64).exp()
    }

    /// Writes the model, then what names it.
    fn checkpoint(&mut self) -> anyhow::Result<()> {
        self.trainer.store(&mut self.parameters);
        if let Weights::Recurrent { values, .. } = &mut self.folder.weights {
            values.copy_from_slice(&self.parameters);
        }
        let before = std::mem::replace(
            &mut self.progress.checkpoint,
            format!("checkpoints/epoch-{:04}", self.progress.epochs.len()),
        );
        model_folder::write(&self.folder, &self.args.out.join(&self.progress.checkpoint))?;
        write_whole(&self.args.out.join(PROGRESS_FILE), &serde_json::to_vec_pretty(&self.progress)?)?;
        if !before.is_empty() && before != self.progress.checkpoint {
            // An old checkpoint that cannot be removed does no harm.
            let _ = fs::remove_dir_all(self.args.out.join(before));
        }
        Ok(())
    }

    fn finish(&self) -> anyhow::Result<()> {
        model_folder::write(&self.folder, &self.args.out)?;
        eprintln!("the model is in {}", self.args.out.display());
        Ok(())
    }
}

const PROGRESS_FILE: &str = "training.json";

fn resumed(args: &PretrainArgs, config: &ModelConfig, vocabulary: &Vocabulary) -> anyhow::Result<(Progress, Vec<f32>)> {
    let path = args.out.join(PROGRESS_FILE);
    let text = fs::read(&path).map_err(|e| BadInput::wrong("out", format!("there is nothing to resume: {}: {e}", path.display())))?;
    let progress: Progress = serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?;
    let same = Schedule { epochs: args.schedule.epochs, ..progress.schedule.clone() };
    if same != args.schedule {
        let problem = format!("the run was begun with {:?}; only --epochs may change", progress.schedule);
        return Err(BadInput::wrong("resume", problem).into());
    }
    let folder = model_folder::read(&args.out.join(&progress.checkpoint))?;
    match folder.weights {
        Weights::Recurrent { config: found, values }
            if found == *config && folder.vocabulary == *vocabulary && values.len() == ParameterLayout::new(config)?.len() =>
        {
            Ok((Progress { schedule: args.schedule.clone(), ..progress }, values))
        }
        _ => Err(BadInput::wrong("resume", "the run in that folder trains another model or has another vocabulary").into()),
    }
}

/// Writes a file so that it is there whole or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("cannot replace {}", path.display()))
}

fn bar(batches: u64, epoch: u32) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} [{bar:32}] {percent}% {msg}, {eta} left");
    let bar = ProgressBar::with_draw_target(Some(batches), ProgressDrawTarget::stderr());
    bar.set_prefix(format!("epoch {epoch}"));
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

fn announce(epoch: &Epoch, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(epoch)?);
        return Ok(());
    }
    let valid = epoch.valid_perplexity.map_or(String::new(), |p| format!(", valid {p:.2}"));
    println!(
        "epoch {:3}  perplexity {:.2}{valid}  ({:.0} tokens/s, learning rate {})",
        epoch.epoch, epoch.train_perplexity, epoch.tokens_per_s, epoch.learning_rate
    );
    Ok(())
}
