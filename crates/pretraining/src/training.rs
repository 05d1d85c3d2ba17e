//! A running pretraining: steps, evaluations, checkpoints.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use federated::{
    engine::{
        Means,
        central::{Central, CentralTrainer, clipped, trainer},
    },
    model_folder,
};
use lm::{
    folder::{Folder, Guarantee, Weights},
    model::{batch::Batch, initial::initial_parameters},
    stream::Stream,
};

use crate::{
    PretrainError, Task,
    checkpoint::{self, Checkpoint, Epoch, Part, Progress},
    schedule::Schedule,
};

/// Receives the progress of a run.
pub trait Watch {
    /// An epoch begins, or continues after so many of its batches.
    fn begins(&mut self, epoch: u32, batches: usize, done: usize);
    /// A batch is done; returns whether to continue. Who does not want to finds a checkpoint.
    fn batch(&mut self, part: &Part) -> bool;
    /// The epoch is over, or was left.
    fn ends(&mut self);
}

/// How an epoch ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// The text was read to its end.
    Whole(Epoch),
    /// The watch did not want to continue, and there is a checkpoint.
    Stopped,
}

/// A run in progress.
pub struct Run<'a> {
    task: &'a Task,
    out: PathBuf,
    checkpoint_every: Duration,
    trainer: Box<dyn CentralTrainer>,
    checkpoint: Checkpoint,
    note: Option<String>,
}

impl<'a> Run<'a> {
    /// A new run in a folder.
    ///
    /// # Errors
    /// When the folder holds something already, or this machine cannot train the model.
    pub fn begin(task: &'a Task, schedule: &Schedule, out: &Path, means: Means) -> Result<Self, PretrainError> {
        checkpoint::refuse_taken(out)?;
        let progress = Progress {
            schedule: schedule.clone(),
            text: task.train.fingerprint(),
            kernels: String::new(),
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
        Self::at(task, checkpoint, out, means)
    }

    /// The run of a folder, where it was stopped.
    ///
    /// # Errors
    /// When there is none, it had something else to do, or its checkpoint is damaged.
    pub fn resume(task: &'a Task, schedule: &Schedule, out: &Path, means: Means) -> Result<Self, PretrainError> {
        let mut checkpoint = Checkpoint::read(out)?;
        refuse_other(task, schedule, &checkpoint)?;
        let begun = checkpoint.progress.kernels.clone();
        checkpoint.progress.schedule = schedule.clone();
        let mut run = Self::at(task, checkpoint, out, means)?;
        let now = &run.checkpoint.progress.kernels;
        run.note = (begun != *now).then(|| {
            format!("the run was begun with {begun} arithmetic and continues with {now}; the model will not be bit-identical")
        });
        Ok(run)
    }

    /// The run of a checkpoint, by the arithmetic of these means.
    fn at(task: &'a Task, mut checkpoint: Checkpoint, out: &Path, means: Means) -> Result<Self, PretrainError> {
        let Schedule { batch, unroll, seed, clip_gradients, .. } = checkpoint.progress.schedule;
        let mut trainer = trainer(Central { config: &task.config, rows: batch, unroll, seed }, means)?;
        if let Some(most) = clip_gradients {
            trainer = clipped(trainer, most, checkpoint.values.len())?;
        }
        checkpoint.progress.kernels = Means { hardware: trainer.hardware(), ..means }.arithmetic();
        trainer.load(&checkpoint.values)?;
        match &checkpoint.carried {
            Some(carried) if carried.len() != trainer.state_len() => {
                let problem = "its state belongs to another model".to_owned();
                return Err(PretrainError::Damaged { path: out.join(checkpoint::FILE), problem });
            }
            Some(carried) => trainer.set_state(carried)?,
            None => {}
        }
        let (out, checkpoint_every) = (out.to_owned(), Duration::from_mins(10));
        Ok(Self { task, out, checkpoint_every, trainer, checkpoint, note: None })
    }

    /// The same with another time between the checkpoints inside an epoch.
    #[must_use]
    pub const fn with_checkpoint_every(mut self, time: Duration) -> Self {
        self.checkpoint_every = time;
        self
    }

    /// A note about a run that continues differently than it started.
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
        let done = self.done()?;
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
        let mut left = task.train.batches(batch, unroll, self.checkpoint.progress.part.batches);
        loop {
            let some: Vec<_> = left.by_ref().take(self.trainer.at_a_time()).collect();
            if some.is_empty() {
                break;
            }
            self.learn(&side_by_side(batch, &some))?;
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

    /// Learns some batches.
    fn learn(&mut self, some: &[Batch<'_>]) -> Result<(), PretrainError> {
        let (epoch, batches) = (self.epochs() + 1, self.batches());
        let rate = self.checkpoint.progress.schedule.rate(epoch);
        let part = &mut self.checkpoint.progress.part;
        // A step is the same, with the same units left out, whether or not the run was stopped before it.
        let number = u64::from(epoch - 1) * batches as u64 + part.batches as u64;
        part.loss += self.trainer.learn(some, rate, number)?;
        part.tokens += some.iter().map(|batch| batch.targets.len() as u64).sum::<u64>();
        part.batches += some.len();
        if part.loss.is_finite() { Ok(()) } else { Err(PretrainError::Exploded { epoch }) }
    }

    /// What the epoch came to that was read to its end.
    fn done(&mut self) -> Result<Epoch, PretrainError> {
        let epoch = self.epochs() + 1;
        let Part { loss, tokens, seconds, .. } = self.checkpoint.progress.part;
        let valid = self.task.valid.as_ref();
        Ok(Epoch {
            epoch,
            learning_rate: self.checkpoint.progress.schedule.rate(epoch),
            train_perplexity: (loss / tokens as f64).exp(),
            valid_perplexity: valid.map(|valid| self.measure(valid)).transpose()?,
            tokens,
            seconds,
            tokens_per_s: tokens as f64 / seconds,
        })
    }

    /// The perplexity over a text, which is read as in training and not learned.
    fn measure(&mut self, stream: &Stream) -> Result<f64, PretrainError> {
        let Schedule { batch, unroll, .. } = self.checkpoint.progress.schedule;
        let rows = batch.min(stream.tokens());
        let (mut loss, mut tokens) = (0.0, 0);
        self.trainer.forget();
        let mut left = stream.batches(rows, unroll, 0);
        loop {
            let some: Vec<_> = left.by_ref().take(self.trainer.at_a_time()).collect();
            if some.is_empty() {
                return Ok((loss / tokens.max(1) as f64).exp());
            }
            loss += self.trainer.measure(&side_by_side(rows, &some))?;
            tokens += some.iter().map(|(_, targets)| targets.len()).sum::<usize>();
        }
    }

    fn save(&mut self) -> Result<(), PretrainError> {
        self.trainer.store(&mut self.checkpoint.values)?;
        if !self.checkpoint.values.iter().all(|value| value.is_finite()) {
            return Err(PretrainError::Exploded { epoch: self.epochs().max(1) });
        }
        let is_inside = self.checkpoint.progress.part.batches > 0;
        self.checkpoint.carried = is_inside.then(|| self.trainer.state()).transpose()?;
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

/// Batches of so many sequences.
fn side_by_side(rows: usize, some: &[(Vec<u32>, Vec<u32>)]) -> Vec<Batch<'_>> {
    some.iter().map(|(inputs, targets)| Batch { rows, inputs, targets, context: &[] }).collect()
}

/// Refuses to resume a run that had other settings or data.
fn refuse_other(task: &Task, schedule: &Schedule, checkpoint: &Checkpoint) -> Result<(), PretrainError> {
    let Checkpoint { progress, config, vocabulary, .. } = checkpoint;
    let (done, asked) = (progress.epochs.len() as u32, schedule.epochs);
    let problem = match schedule.difference(&progress.schedule) {
        Some(difference) => difference,
        None if asked < done => format!("the run already has {done} epochs, more than --epochs {asked}"),
        None if *config != task.config => "the run in that folder trains a different model".to_owned(),
        None if *vocabulary != task.vocabulary.to_text() => {
            "the run in that folder has a different vocabulary".to_owned()
        }
        None if task.train.fingerprint() != progress.text => {
            "the run in that folder trains on a different text".to_owned()
        }
        None => return Ok(()),
    };
    Err(PretrainError::wrong("resume", problem))
}
