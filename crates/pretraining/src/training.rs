//! A run in its midst: steps, measuring, checkpoints.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use federated::model_folder;
use lm::{
    folder::{Folder, Guarantee, Weights},
    kernels::KernelPath,
    model::{batch::Batch, dropout::MaskDrawer, fast::Trainer, initial::initial_parameters, reference::Masks},
    stream::Stream,
};

use crate::{
    PretrainError, Task,
    checkpoint::{self, Checkpoint, Epoch, Part, Progress},
    schedule::Schedule,
};

/// Who hears how far a run is.
pub trait Watch {
    /// An epoch begins, or goes on after so many of its batches.
    fn begins(&mut self, epoch: u32, batches: usize, done: usize);
    /// A batch is done; says whether to go on. Who does not want to finds a checkpoint.
    fn batch(&mut self, part: &Part) -> bool;
    /// The epoch is over, or was left.
    fn ends(&mut self);
}

/// How an epoch ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// The text was read to its end.
    Whole(Epoch),
    /// The watch did not want to go on, and there is a checkpoint.
    Stopped,
}

/// A run in its midst.
pub struct Run<'a> {
    task: &'a Task,
    out: PathBuf,
    checkpoint_every: Duration,
    trainer: Trainer,
    drawer: Option<MaskDrawer>,
    checkpoint: Checkpoint,
    note: Option<String>,
}

impl<'a> Run<'a> {
    /// A new run in a folder.
    ///
    /// # Errors
    /// When the folder holds something already, or this machine cannot train the model.
    pub fn begin(task: &'a Task, schedule: &Schedule, out: &Path, kernels: KernelPath) -> Result<Self, PretrainError> {
        checkpoint::refuse_taken(out)?;
        let progress = Progress {
            schedule: schedule.clone(),
            text: task.train.fingerprint(),
            kernels: kernels.name().to_owned(),
            epochs: Vec::new(),
            part: Part::default(),
        };
        let checkpoint = Checkpoint {
            progress,
            config: task.config.clone(),
            vocabulary: task.vocabulary.to_text(),
            values: initial_parameters(&task.config, schedule.seed)?,
            carried: None,
        };
        Self::at(task, checkpoint, out, kernels)
    }

    /// The run of a folder, where it was stopped.
    ///
    /// # Errors
    /// When there is none, it had something else to do, or its checkpoint is damaged.
    pub fn resume(task: &'a Task, schedule: &Schedule, out: &Path, kernels: KernelPath) -> Result<Self, PretrainError> {
        let mut checkpoint = Checkpoint::read(out)?;
        refuse_other(task, schedule, &checkpoint)?;
        let begun = std::mem::replace(&mut checkpoint.progress.kernels, kernels.name().to_owned());
        checkpoint.progress.schedule = schedule.clone();
        let mut run = Self::at(task, checkpoint, out, kernels)?;
        let now = kernels.name();
        run.note = (begun != now).then(|| {
            format!("begun with {begun} kernels, goes on with {now}: the model will not be the same to the bit")
        });
        Ok(run)
    }

    fn at(task: &'a Task, checkpoint: Checkpoint, out: &Path, kernels: KernelPath) -> Result<Self, PretrainError> {
        let Schedule { batch, unroll, seed, .. } = checkpoint.progress.schedule;
        let mut trainer =
            Trainer::new(&task.config, batch, unroll, kernels).map_err(|e| PretrainError::wrong("model", e))?;
        trainer.load(&checkpoint.values);
        match &checkpoint.carried {
            Some(carried) if carried.len() != trainer.state_len() => {
                let problem = "what its layers carry is that of another model".to_owned();
                return Err(PretrainError::Damaged { path: out.join(checkpoint::FILE), problem });
            }
            Some(carried) => trainer.set_state(carried),
            None => {}
        }
        let drawer = MaskDrawer::new(&task.config, seed);
        let (out, checkpoint_every) = (out.to_owned(), Duration::from_mins(10));
        Ok(Self { task, out, checkpoint_every, trainer, drawer, checkpoint, note: None })
    }

    /// The same with another time between the checkpoints inside an epoch.
    #[must_use]
    pub const fn with_checkpoint_every(mut self, time: Duration) -> Self {
        self.checkpoint_every = time;
        self
    }

    /// What should be known of a run that goes on otherwise than it began.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Epochs that are done.
    #[must_use]
    pub const fn epochs(&self) -> u32 {
        self.checkpoint.progress.epochs.len() as u32
    }

    /// Reads the text once, or the rest of it.
    ///
    /// # Errors
    /// When the loss is no longer a number, or a checkpoint cannot be written.
    pub fn epoch(&mut self, watch: &mut dyn Watch) -> Result<Ended, PretrainError> {
        let done = self.checkpoint.progress.part.batches;
        if done == 0 {
            self.trainer.forget();
        }
        watch.begins(self.epochs() + 1, self.batches(), done);
        let read = self.read(watch);
        watch.ends();
        if !read? {
            return Ok(Ended::Stopped);
        }
        let done = self.done();
        self.checkpoint.progress.epochs.push(done.clone());
        self.checkpoint.progress.part = Part::default();
        self.save()?;
        Ok(Ended::Whole(done))
    }

    /// Batches of an epoch.
    fn batches(&self) -> usize {
        let Schedule { batch, unroll, .. } = self.checkpoint.progress.schedule;
        self.task.train.batch_count(batch, unroll)
    }

    /// Learns the rest of the text; says whether it came to its end.
    fn read(&mut self, watch: &mut dyn Watch) -> Result<bool, PretrainError> {
        let Schedule { batch, unroll, .. } = self.checkpoint.progress.schedule;
        let (task, batches) = (self.task, self.batches());
        let mut clock = Instant::now();
        let mut masks = Masks::new();
        for (inputs, targets) in task.train.batches(batch, unroll, self.checkpoint.progress.part.batches) {
            self.step(&Batch { rows: batch, inputs: &inputs, targets: &targets, context: &[] }, &mut masks)?;
            let go_on = watch.batch(&self.checkpoint.progress.part);
            let is_last = self.checkpoint.progress.part.batches == batches;
            if !is_last && (!go_on || clock.elapsed() >= self.checkpoint_every) {
                self.checkpoint.progress.part.seconds += clock.elapsed().as_secs_f64();
                self.save()?;
                clock = Instant::now();
                if !go_on {
                    return Ok(false);
                }
            }
        }
        self.checkpoint.progress.part.seconds += clock.elapsed().as_secs_f64();
        Ok(true)
    }

    /// Learns a batch.
    fn step(&mut self, batch: &Batch<'_>, masks: &mut Masks) -> Result<(), PretrainError> {
        let (epoch, batches) = (self.epochs() + 1, self.batches());
        let rate = self.checkpoint.progress.schedule.rate(epoch);
        let part = &mut self.checkpoint.progress.part;
        if let Some(drawer) = &mut self.drawer {
            // The masks of a step are its own, whether or not the run was stopped before it.
            drawer.go_to(u64::from(epoch - 1) * batches as u64 + part.batches as u64);
            drawer.draw(batch.rows, batch.steps(), masks);
        }
        part.loss += f64::from(self.trainer.step_without(batch, rate, self.drawer.is_some().then_some(&*masks)));
        part.tokens += batch.targets.len() as u64;
        part.batches += 1;
        if part.loss.is_finite() { Ok(()) } else { Err(PretrainError::Exploded { epoch }) }
    }

    /// What the epoch came to that was read to its end.
    fn done(&mut self) -> Epoch {
        let epoch = self.epochs() + 1;
        let Part { loss, tokens, seconds, .. } = self.checkpoint.progress.part;
        let valid = self.task.valid.as_ref();
        Epoch {
            epoch,
            learning_rate: self.checkpoint.progress.schedule.rate(epoch),
            train_perplexity: (loss / tokens as f64).exp(),
            valid_perplexity: valid.map(|valid| self.measure(valid)),
            tokens,
            seconds,
            tokens_per_s: tokens as f64 / seconds,
        }
    }

    /// The perplexity over a text, which is read as in training and not learned.
    fn measure(&mut self, stream: &Stream) -> f64 {
        let Schedule { batch, unroll, .. } = self.checkpoint.progress.schedule;
        let rows = batch.min(stream.tokens());
        let (mut loss, mut tokens) = (0.0, 0);
        self.trainer.forget();
        for (inputs, targets) in stream.batches(rows, unroll, 0) {
            loss += f64::from(self.trainer.loss(&Batch { rows, inputs: &inputs, targets: &targets, context: &[] }));
            tokens += targets.len();
        }
        (loss / tokens.max(1) as f64).exp()
    }

    fn save(&mut self) -> Result<(), PretrainError> {
        self.trainer.store(&mut self.checkpoint.values);
        if !self.checkpoint.values.iter().all(|value| value.is_finite()) {
            return Err(PretrainError::Exploded { epoch: self.epochs().max(1) });
        }
        let is_inside = self.checkpoint.progress.part.batches > 0;
        self.checkpoint.carried = is_inside.then(|| self.trainer.state());
        self.checkpoint.write(&self.out)
    }

    /// Writes the model of the run, which is done; from its checkpoint it can be trained further.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<(), PretrainError> {
        self.save()?;
        let Checkpoint { config, values, .. } = self.checkpoint;
        let model = Folder {
            name: self.task.name.clone(),
            rules: self.task.tokenizer.rules(),
            vocabulary: self.task.vocabulary.clone(),
            weights: Weights::Recurrent { config, values },
            guarantee: Guarantee::public_text(),
        };
        Ok(model_folder::write(&model, &self.out)?)
    }
}

/// Refuses to go on with a run that had something else to do.
fn refuse_other(task: &Task, schedule: &Schedule, checkpoint: &Checkpoint) -> Result<(), PretrainError> {
    let Checkpoint { progress, config, vocabulary, .. } = checkpoint;
    let (done, asked) = (progress.epochs.len() as u32, schedule.epochs);
    let problem = match schedule.difference(&progress.schedule) {
        Some(difference) => difference,
        None if asked < done => format!("the run has had {done} epochs, --epochs {asked} are fewer"),
        None if *config != task.config => "the run in that folder trains another model".to_owned(),
        None if *vocabulary != task.vocabulary.to_text() => "the run in that folder has another vocabulary".to_owned(),
        None if task.train.fingerprint() != progress.text => "the run in that folder reads another text".to_owned(),
        None => return Ok(()),
    };
    Err(PretrainError::wrong("resume", problem))
}
