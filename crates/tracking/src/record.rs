//! What a server has received of a run so far, in a file in the run's folder, so that tracking continues when the run is resumed.

use std::path::{Path, PathBuf};

use durable::files::{self, FileError};
use report::scalars::{Of, Step};
use serde::{Deserialize, Serialize};

/// The name of the file.
pub const RECORD_FILE: &str = "tracking.json";

/// A run on a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) server: String,
    pub(crate) experiment: String,
    pub(crate) run_id: String,
    /// When the run started, in seconds since 1970.
    pub(crate) started: u64,
    /// Whether the server has the settings.
    pub(crate) settings: bool,
    /// The round of the last evaluation that the server has.
    pub(crate) evaluation: Option<u64>,
    /// The last round whose training numbers the server has.
    pub(crate) round: u64,
}

impl Record {
    /// The record in a folder; none if there is none or it cannot be read. The run is then searched for on the server.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path(folder)).ok()?).ok()
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), FileError> {
        let failed = |error: serde_json::Error| files::failed("write", &path(folder))(error.into());
        let mut text = serde_json::to_vec_pretty(self).map_err(failed)?;
        text.push(b'\n');
        files::write(&path(folder), &text)
    }

    /// Whether the server does not have a step yet.
    pub(crate) fn lacks(&self, step: &Step) -> bool {
        match step.of {
            Of::Evaluation => self.evaluation.is_none_or(|last| step.round > last),
            Of::Round => step.round > self.round,
        }
    }

    /// Notes that the server has a step.
    pub(crate) fn note(&mut self, step: &Step) {
        match step.of {
            Of::Evaluation => self.evaluation = self.evaluation.max(Some(step.round)),
            Of::Round => self.round = self.round.max(step.round),
        }
    }
}

fn path(folder: &Path) -> PathBuf {
    folder.join(RECORD_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_lacks_what_comes_after_what_it_has() {
        let mut record = Record {
            server: "http://a".into(),
            experiment: "e".into(),
            run_id: "r".into(),
            started: 5,
            settings: true,
            evaluation: None,
            round: 0,
        };
        let step = |of, round| Step { of, round, seconds: 0.0, scalars: Vec::new() };
        assert!(record.lacks(&step(Of::Evaluation, 0)) && record.lacks(&step(Of::Round, 1)));
        record.note(&step(Of::Evaluation, 0));
        record.note(&step(Of::Round, 3));
        assert!(!record.lacks(&step(Of::Evaluation, 0)) && record.lacks(&step(Of::Evaluation, 3)));
        assert!(!record.lacks(&step(Of::Round, 3)) && record.lacks(&step(Of::Round, 4)));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(folder.path()), None);
        record.write(folder.path()).unwrap();
        assert_eq!(Record::read(folder.path()), Some(record));
        std::fs::write(path(folder.path()), "{").unwrap();
        assert_eq!(Record::read(folder.path()), None);
    }
}
