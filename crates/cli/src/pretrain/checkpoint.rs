//! Where a run stands, on disk: a folder that holds the model as it is, and `training.json`, which names it.
//!
//! A checkpoint is written beside the one before. Only when it is whole does `training.json` name it, which is replaced in
//! one step, and only then does the old one go. So a process can be killed at any time, and what it left can be resumed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use federated::files;
use lm::{
    folder::{CONFIG_FILE, Folder},
    kernels::KernelPath,
};
use serde::{Deserialize, Serialize};

use super::{schedule::Schedule, stream::Fingerprint};
use crate::{failure::BadInput, model_folder};

const PROGRESS_FILE: &str = "training.json";
const FOLDER: &str = "checkpoints";
/// What the layers carry from one batch to the next, little-endian floats: only inside an epoch.
const STATE_FILE: &str = "state.f32";
const FORMAT: &str = "keyhush-training-1";

/// What an epoch came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Epoch {
    pub(super) epoch: u32,
    pub(super) learning_rate: f32,
    pub(super) train_perplexity: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) valid_perplexity: Option<f64>,
    pub(super) tokens: u64,
    pub(super) seconds: f64,
    pub(super) tokens_per_s: f64,
}

/// How far an epoch is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) batches: usize,
    pub(super) loss: f64,
    pub(super) tokens: u64,
    pub(super) seconds: f64,
}

/// Where a run stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) format: String,
    pub(super) schedule: Schedule,
    pub(super) text: Fingerprint,
    /// The name of the kernels' path: another gives other bits.
    pub(super) kernels: String,
    /// The folder of the model, inside of the run's.
    pub(super) checkpoint: PathBuf,
    pub(super) epochs: Vec<Epoch>,
    pub(super) part: Part,
}

/// A run that goes on: where it stood, its model, and what its layers carried.
pub(super) struct Resumed {
    pub(super) progress: Progress,
    pub(super) model: Folder,
    pub(super) state: Option<Vec<f32>>,
}

impl Progress {
    /// A run that begins.
    pub(super) fn new(schedule: Schedule, text: Fingerprint, kernels: KernelPath) -> Self {
        let (format, kernels) = (FORMAT.to_owned(), kernels.name().to_owned());
        let (checkpoint, epochs) = (PathBuf::new(), Vec::new());
        Self { format, schedule, text, kernels, checkpoint, epochs, part: Part::default() }
    }

    /// Writes the model and makes it the checkpoint.
    pub(super) fn save(&mut self, out: &Path, model: &Folder, state: &[f32]) -> anyhow::Result<()> {
        let name = format!("epoch-{:04}-batch-{:08}", self.epochs.len(), self.part.batches);
        self.checkpoint = Path::new(FOLDER).join(name);
        let folder = out.join(&self.checkpoint);
        model_folder::write(model, &folder)?;
        if self.part.batches > 0 {
            let bytes: Vec<u8> = state.iter().flat_map(|value| value.to_le_bytes()).collect();
            files::write(&folder.join(STATE_FILE), &bytes)?;
        }
        self.write(out)?;
        self.remove_others(out)
    }

    /// Writes the model of a run that is done to where it belongs; from there it can be trained further.
    pub(super) fn finish(&mut self, out: &Path, model: &Folder) -> anyhow::Result<()> {
        model_folder::write(model, out)?;
        self.checkpoint = PathBuf::from(".");
        self.write(out)?;
        self.remove_others(out)
    }

    fn write(&self, out: &Path) -> anyhow::Result<()> {
        Ok(files::write(&out.join(PROGRESS_FILE), &serde_json::to_vec_pretty(self)?)?)
    }

    /// Removes the checkpoints that are not named, those of a process that was killed too.
    fn remove_others(&self, out: &Path) -> anyhow::Result<()> {
        let folder = out.join(FOLDER);
        let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
        for entry in entries {
            let path = entry?.path();
            if path != out.join(&self.checkpoint) {
                fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        if self.checkpoint == Path::new(".") {
            fs::remove_dir(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        Ok(())
    }
}

/// Refuses a folder that a new run would write over.
pub(super) fn refuse_taken(out: &Path) -> Result<(), BadInput> {
    let held = if out.join(PROGRESS_FILE).exists() {
        "a run already: go on with --resume, or choose another folder"
    } else if out.join(CONFIG_FILE).exists() {
        "a model already: choose another folder"
    } else {
        return Ok(());
    };
    Err(BadInput::wrong("out", format!("{} holds {held}", out.display())))
}

/// Reads what a run left.
pub(super) fn resume(out: &Path) -> anyhow::Result<Resumed> {
    let path = out.join(PROGRESS_FILE);
    let text = fs::read(&path)
        .map_err(|e| BadInput::wrong("resume", format!("there is no run to go on with: {}: {e}", path.display())))?;
    let damaged = || format!("{} is damaged", path.display());
    let progress: Progress = serde_json::from_slice(&text).with_context(damaged)?;
    ensure!(progress.format == FORMAT, "{}: {:?} is not {FORMAT:?}", path.display(), progress.format);
    let folder = out.join(&progress.checkpoint);
    let model = model_folder::read(&folder).context("the checkpoint cannot be read")?;
    let state = if progress.part.batches > 0 { Some(read_state(&folder.join(STATE_FILE))?) } else { None };
    Ok(Resumed { progress, model, state })
}

fn read_state(path: &Path) -> anyhow::Result<Vec<f32>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (values, rest) = bytes.as_chunks::<4>();
    ensure!(rest.is_empty(), "{} is damaged", path.display());
    Ok(values.iter().map(|value| f32::from_le_bytes(*value)).collect())
}
