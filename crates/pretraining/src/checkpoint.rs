//! Checkpoints of a run, one safetensors file in the folder of its model.
//!
//! | part      | what it holds                                                                             |
//! |-----------|-------------------------------------------------------------------------------------------|
//! | tensors   | the parameters by their names in the model, and inside an epoch `carried`: what the layers carry from one batch to the next |
//! | metadata  | `format`; `progress`: schedule, text, kernels, epochs and how far the present one is; `model`: what is trained; `vocabulary`: its entries, one per line |
//!
//! The file is replaced in one step. So a process can be killed at any time, and what it left can be resumed. It stays when
//! the run is done: from there the model can be trained further.

use std::{
    fs,
    path::{Path, PathBuf},
};

use durable::files;
use lm::{
    folder::CONFIG_FILE,
    model::{
        config::ModelConfig,
        parameters::{Parameter, ParameterLayout},
    },
    stream::Fingerprint,
    tensors::{self, Dtype, Tensor, Values},
};
use serde::{Deserialize, Serialize};

use crate::{PretrainError, schedule::Schedule};

/// The name of the file.
pub const FILE: &str = "checkpoint.safetensors";
/// What versions before this one wrote.
const FILE_BEFORE: &str = "training.json";
const FORMAT: &str = "keyhush-pretraining-1";
/// The tensor of what the layers carry.
const CARRIED: &str = "carried";

/// The results of an epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// Its number, from 1.
    pub epoch: u32,
    /// The step.
    pub learning_rate: f32,
    /// Over the text, while it was learned.
    pub train_perplexity: f64,
    /// Over the text to measure on, after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_perplexity: Option<f64>,
    /// Tokens that were predicted.
    pub tokens: u64,
    /// Its duration in seconds.
    pub seconds: f64,
    /// Its tokens per second.
    pub tokens_per_s: f64,
}

/// The progress within an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Batches that are done.
    pub batches: usize,
    /// The sum of their losses.
    pub loss: f64,
    /// The number of tokens.
    pub tokens: u64,
    /// Their duration in seconds.
    pub seconds: f64,
}

impl Part {
    /// The perplexity so far.
    #[must_use]
    pub fn perplexity(&self) -> f64 {
        (self.loss / self.tokens.max(1) as f64).exp()
    }
}

/// The progress of a run, and what a resumed run must have in common with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// How the text is walked.
    pub schedule: Schedule,
    /// The fingerprint of the text.
    pub text: Fingerprint,
    /// What decides the bits: the kernels' path, or the engine and its precision.
    pub kernels: String,
    /// The epochs that are done.
    pub epochs: Vec<Epoch>,
    /// How far the present one is.
    pub part: Part,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The progress of the run.
    pub progress: Progress,
    /// The model configuration.
    pub config: ModelConfig,
    /// The vocabulary, one entry per line in the order of ids.
    pub vocabulary: String,
    /// The parameters, in the order of [`ParameterLayout`].
    pub values: Vec<f32>,
    /// What the layers carry, inside an epoch.
    pub carried: Option<Vec<f32>>,
}

impl Checkpoint {
    /// Makes this the checkpoint of a folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, out: &Path) -> Result<(), PretrainError> {
        files::make_folder(out)?;
        let bytes = self.to_bytes().map_err(|problem| damaged(&out.join(FILE), problem))?;
        Ok(files::write(&out.join(FILE), &bytes)?)
    }

    /// Reads the checkpoint of a folder.
    ///
    /// # Errors
    /// When there is none, it is of another version, or it is damaged.
    pub fn read(out: &Path) -> Result<Self, PretrainError> {
        let path = out.join(FILE);
        let bytes = fs::read(&path).map_err(|error| PretrainError::wrong("resume", no_run(out, &path, &error)))?;
        Self::from_bytes(&bytes).map_err(|problem| damaged(&path, problem))
    }

    fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let layout = ParameterLayout::new(&self.config).map_err(|e| e.to_string())?;
        let mut tensors: Vec<Tensor<'_>> = Vec::new();
        for parameter in layout.parameters() {
            let Parameter { name, rows, columns, .. } = parameter;
            let values = Values::Floats(&self.values[parameter.range()]);
            tensors.push(Tensor { name, shape: vec![*rows, *columns], values });
        }
        let carried = self.carried.iter();
        tensors.extend(carried.map(|c| Tensor { name: CARRIED, shape: vec![c.len()], values: Values::Floats(c) }));
        let metadata = [
            ("format", Ok(FORMAT.to_owned())),
            ("progress", serde_json::to_string(&self.progress)),
            ("model", serde_json::to_string(&self.config)),
            ("vocabulary", Ok(self.vocabulary.clone())),
        ];
        let metadata = metadata.into_iter().map(|(key, value)| Ok((key.to_owned(), value.map_err(|e| e.to_string())?)));
        Ok(tensors::write(&metadata.collect::<Result<_, String>>()?, &tensors))
    }

    fn from_bytes(mut bytes: &[u8]) -> Result<Self, String> {
        let tensors = tensors::Reader::new(&mut bytes).map_err(|e| e.to_string())?;
        let said = |key: &str| {
            let found = tensors.metadata(key).map(str::to_owned);
            found.ok_or_else(|| format!("its metadata has no {key}"))
        };
        let format = said("format")?;
        if format != FORMAT {
            return Err(format!("{format:?} is not {FORMAT:?}"));
        }
        let progress: Progress = serde_json::from_str(&said("progress")?).map_err(|e| e.to_string())?;
        let config: ModelConfig = serde_json::from_str(&said("model")?).map_err(|e| e.to_string())?;
        let vocabulary = said("vocabulary")?;
        let layout = ParameterLayout::new(&config).map_err(|e| e.to_string())?;
        let parameters = layout.parameters().iter();
        let mut wanted: Vec<(&str, Vec<usize>, Dtype)> =
            parameters.map(|p| (p.name.as_str(), vec![p.rows, p.columns], Dtype::F32)).collect();
        let is_inside = progress.part.batches > 0;
        if is_inside {
            wanted.push((CARRIED, tensors.length(CARRIED), Dtype::F32));
        }
        tensors.expect(&wanted).map_err(|e| format!("it {e}"))?;
        let names: Vec<&str> = wanted.iter().map(|(name, ..)| *name).collect();
        let mut values = tensors.floats(&names).map_err(|e| format!("it {e}"))?;
        if values.iter().any(|value| !value.is_finite()) {
            return Err("it has numbers that are not finite".into());
        }
        let carried = values.split_off(layout.len());
        Ok(Self { progress, config, vocabulary, values, carried: is_inside.then_some(carried) })
    }
}

fn damaged(path: &Path, problem: String) -> PretrainError {
    PretrainError::Damaged { path: path.to_owned(), problem }
}

fn no_run(out: &Path, path: &Path, error: &std::io::Error) -> String {
    let before: PathBuf = out.join(FILE_BEFORE);
    if before.exists() {
        let why = "holds a run of an older keyhush, which this version cannot resume; start again in another folder";
        return format!("{} {why}", out.display());
    }
    format!("no run to resume: {}: {error}", path.display())
}

/// Refuses a folder that a new run would write over.
pub(crate) fn refuse_taken(out: &Path) -> Result<(), PretrainError> {
    let held = if out.join(FILE).exists() {
        "a run already; resume it with --resume, or choose another folder"
    } else if out.join(FILE_BEFORE).exists() {
        "a run of an older keyhush; choose another folder"
    } else if out.join(CONFIG_FILE).exists() {
        "a model already; choose another folder"
    } else {
        return Ok(());
    };
    Err(PretrainError::wrong("out", format!("{} holds {held}", out.display())))
}

#[cfg(test)]
mod tests {
    use lm::{model::initial::initial_parameters, stream::Stream, tokenizer::Tokenizer, vocabulary::Vocabulary};

    use super::*;

    fn checkpoint(batches: usize) -> Checkpoint {
        let vocabulary = Vocabulary::new(["the", "to"]).unwrap();
        let config = ModelConfig::preset("tiny").unwrap().with_vocabulary(vocabulary.len());
        let schedule = Schedule {
            epochs: 6,
            batch: 20,
            unroll: 35,
            learning_rate: 2.0,
            decay_after: 3,
            decay: 0.1,
            seed: 1,
            clip_gradients: Some(0.5),
        };
        let text = Stream::new(["the to"], Tokenizer::words(), &vocabulary).fingerprint();
        let part = Part { batches, loss: 0.1 + 0.2, tokens: 7, seconds: 1.5 };
        Checkpoint {
            progress: Progress { schedule, text, kernels: "scalar".into(), epochs: Vec::new(), part },
            values: initial_parameters(&config, 1).unwrap(),
            config,
            vocabulary: vocabulary.to_text(),
            carried: (batches > 0).then(|| vec![0.5, -0.25]),
        }
    }

    #[test]
    fn what_is_written_is_read_to_the_bit() {
        let folder = tempfile::tempdir().unwrap();
        for batches in [0, 3] {
            let written = checkpoint(batches);
            written.write(folder.path()).unwrap();
            assert_eq!(Checkpoint::read(folder.path()).unwrap(), written);
        }
    }

    #[test]
    fn what_is_damaged_or_of_before_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let said = || Checkpoint::read(folder.path()).unwrap_err().to_string();
        assert!(said().contains("no run to resume"), "{}", said());
        fs::write(folder.path().join(FILE_BEFORE), "{}").unwrap();
        assert!(said().contains("older keyhush"), "{}", said());
        let bytes = checkpoint(3).to_bytes().unwrap();
        for cut in [4, 100, bytes.len() - 1] {
            fs::write(folder.path().join(FILE), &bytes[..cut]).unwrap();
            assert!(said().contains("is damaged"), "{cut}: {}", said());
        }
        let mut exploded = checkpoint(0);
        exploded.values[5] = f32::NAN;
        fs::write(folder.path().join(FILE), exploded.to_bytes().unwrap()).unwrap();
        assert!(said().contains("not finite"), "{}", said());
    }
}
