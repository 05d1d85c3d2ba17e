//! A run in its midst: steps, measuring, checkpoints.

use std::time::{Duration, Instant};

use lm::{
    folder::{Folder, Guarantee, Weights},
    kernels::KernelPath,
    model::{batch::Batch, dropout::MaskDrawer, fast::Trainer, initial::initial_parameters, reference::Masks},
};

use super::{
    PretrainArgs, Task,
    checkpoint::{self, Epoch, Part, Progress, Resumed},
    stream::Stream,
    watch::Watch,
};
use crate::{failure::BadInput, interrupt};

/// A run in its midst.
pub(super) struct Run<'a> {
    args: &'a PretrainArgs,
    task: &'a Task,
    trainer: Trainer,
    drawer: Option<MaskDrawer>,
    /// The model as it was written last.
    model: Folder,
    progress: Progress,
    /// What the layers carried when the run was stopped inside an epoch.
    state: Option<Vec<f32>>,
}

/// How an epoch ended.
pub(super) enum Ended {
    /// The text was read to its end.
    Whole(Epoch),
    /// Somebody pressed Ctrl-C, and there is a checkpoint.
    Interrupted,
}

impl<'a> Run<'a> {
    /// A new run, or one that goes on.
    pub(super) fn begin(args: &'a PretrainArgs, task: &'a Task, path: KernelPath) -> anyhow::Result<Self> {
        let schedule = &args.schedule;
        let mut trainer = Trainer::new(&task.config, schedule.batch, schedule.unroll, path)
            .map_err(|e| BadInput::wrong("model", e.to_string()))?;
        let resumed = if args.resume {
            resumed(args, task, path)?
        } else {
            checkpoint::refuse_taken(&args.out)?;
            begun(args, task, path)?
        };
        let Resumed { progress, model, state } = resumed;
        if let Weights::Recurrent { values, .. } = &model.weights {
            trainer.load(values);
        }
        anyhow::ensure!(
            state.as_ref().is_none_or(|state| state.len() == trainer.state_len()),
            "the checkpoint in {} is damaged: its state is that of another model",
            args.out.display()
        );
        let drawer = MaskDrawer::new(&task.config, schedule.seed);
        Ok(Self { args, task, trainer, drawer, model, progress, state })
    }

    /// Epochs that are done.
    pub(super) fn epochs(&self) -> u32 {
        self.progress.epochs.len() as u32
    }

    /// Reads the text once, or the rest of it.
    pub(super) fn epoch(&mut self) -> anyhow::Result<Ended> {
        let schedule = &self.args.schedule;
        let (epoch, rate) = (self.epochs() + 1, schedule.rate(self.epochs() + 1));
        let batches = self.task.train.batch_count(schedule.batch, schedule.unroll);
        self.trainer.forget();
        if let Some(state) = self.state.take() {
            self.trainer.set_state(&state);
        }
        let mut part = self.progress.part.clone();
        let mut watch = Watch::new(self.args.quiet, epoch, batches, part.batches)?;
        let (mut clock, mut saved) = (Instant::now(), Instant::now());
        let mut masks = Masks::new();
        for (inputs, targets) in self.task.train.batches(schedule.batch, schedule.unroll, part.batches) {
            let batch = Batch { rows: schedule.batch, inputs: &inputs, targets: &targets, context: &[] };
            if let Some(drawer) = &mut self.drawer {
                // The masks of a step are its own, whether or not the run was stopped before it.
                drawer.go_to(u64::from(epoch - 1) * batches as u64 + part.batches as u64);
                drawer.draw(schedule.batch, batch.steps(), &mut masks);
            }
            part.loss += f64::from(self.trainer.step_without(&batch, rate, self.drawer.is_some().then_some(&masks)));
            part.tokens += targets.len() as u64;
            part.batches += 1;
            if !part.loss.is_finite() {
                watch.finish();
                anyhow::bail!(
                    "the loss is no longer a number in epoch {epoch}: begin again with a smaller --learning-rate"
                );
            }
            watch.tick(&part);
            let interrupted = interrupt::requested();
            if part.batches < batches && (interrupted || saved.elapsed() >= self.checkpoint_every()) {
                part.seconds += clock.elapsed().as_secs_f64();
                self.progress.part = part.clone();
                self.save()?;
                (clock, saved) = (Instant::now(), Instant::now());
                if interrupted {
                    watch.finish();
                    return Ok(Ended::Interrupted);
                }
            }
        }
        watch.finish();
        part.seconds += clock.elapsed().as_secs_f64();
        let done = Epoch {
            epoch,
            learning_rate: rate,
            train_perplexity: (part.loss / part.tokens as f64).exp(),
            valid_perplexity: self.task.valid.as_ref().map(|valid| self.measure(valid)),
            tokens: part.tokens,
            seconds: part.seconds,
            tokens_per_s: part.tokens as f64 / part.seconds,
        };
        self.progress.epochs.push(done.clone());
        self.progress.part = Part::default();
        self.save()?;
        Ok(Ended::Whole(done))
    }

    fn checkpoint_every(&self) -> Duration {
        Duration::from_secs(60 * self.args.checkpoint_minutes)
    }

    /// The perplexity over a text, which is read as in training and not learned.
    fn measure(&mut self, stream: &Stream) -> f64 {
        let schedule = &self.args.schedule;
        let rows = schedule.batch.min(stream.tokens());
        let (mut loss, mut tokens) = (0.0, 0);
        self.trainer.forget();
        for (inputs, targets) in stream.batches(rows, schedule.unroll, 0) {
            loss += f64::from(self.trainer.loss(&Batch { rows, inputs: &inputs, targets: &targets, context: &[] }));
            tokens += targets.len();
        }
        (loss / tokens.max(1) as f64).exp()
    }

    fn save(&mut self) -> anyhow::Result<()> {
        if let Weights::Recurrent { values, .. } = &mut self.model.weights {
            self.trainer.store(values);
        }
        let state = self.trainer.state();
        self.progress.save(&self.args.out, &self.model, &state)
    }

    /// Writes the model of the run, which is done.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.progress.finish(&self.args.out, &self.model)
    }
}

/// Where a new run stands.
fn begun(args: &PretrainArgs, task: &Task, path: KernelPath) -> anyhow::Result<Resumed> {
    let model = Folder {
        name: args.model.clone(),
        rules: task.tokenizer.rules(),
        vocabulary: task.vocabulary.clone(),
        weights: Weights::Recurrent {
            config: task.config.clone(),
            values: initial_parameters(&task.config, args.schedule.seed)?,
        },
        guarantee: Guarantee::public_text(),
    };
    let progress = Progress::new(args.schedule.clone(), task.train.fingerprint(), path);
    Ok(Resumed { progress, model, state: None })
}

/// Where a run was stopped; refuses one that had something else to do.
fn resumed(args: &PretrainArgs, task: &Task, path: KernelPath) -> anyhow::Result<Resumed> {
    let mut resumed = checkpoint::resume(&args.out)?;
    let progress = &mut resumed.progress;
    let refuse = |problem: String| Err(BadInput::wrong("resume", problem).into());
    if let Some(difference) = args.schedule.difference(&progress.schedule) {
        return refuse(difference);
    }
    if args.schedule.epochs < progress.epochs.len() as u32 {
        return refuse(format!(
            "the run has had {} epochs, --epochs {} are fewer",
            progress.epochs.len(),
            args.schedule.epochs
        ));
    }
    match &resumed.model.weights {
        Weights::Recurrent { config, .. } if *config == task.config => {}
        _ => return refuse("the run in that folder trains another model".to_owned()),
    }
    if resumed.model.vocabulary != task.vocabulary {
        return refuse("the run in that folder has another vocabulary".to_owned());
    }
    if task.train.fingerprint() != progress.text {
        return refuse("the run in that folder reads another text".to_owned());
    }
    if progress.kernels != path.name() {
        eprintln!(
            "note: begun with {} kernels, goes on with {}: the model will not be the same to the bit",
            progress.kernels,
            path.name()
        );
        path.name().clone_into(&mut progress.kernels);
    }
    progress.schedule = args.schedule.clone();
    Ok(resumed)
}
