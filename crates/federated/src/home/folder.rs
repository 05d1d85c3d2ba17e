//! A run stored in a folder.

use std::{
    fs,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use durable::files::{self, FileError, Lines};
use ledger::{Head, LedgerError};
use lm::folder::Folder;

use super::{
    Home, HomeError, Log, LogWriter, Paper, Records, WriteState,
    heads::{self, HeadsError},
    names::{
        AUDIT_FILE, CHECKPOINTS, CONFIG_FILE, LEDGER_FILE, MODEL_FOLDER, STATE, STATEMENT_FILE, STATEMENT_JSON,
        UNDECIDED, list,
    },
};
use crate::{
    ledger_file::{FileStore, Place},
    metrics::{DIAGNOSTICS_FILE, METRICS_FILE, SAMPLES_FILE, TIMING_FILE},
    model_folder,
    secrets::{Secrets, file::not_replaced},
};

/// The folder of the model that somebody named: of a run that of its model, of anything else the folder itself.
#[must_use]
pub fn model_in(folder: &Path) -> PathBuf {
    if folder.join(LEDGER_FILE).is_file() { folder.join(MODEL_FOLDER) } else { folder.to_owned() }
}

/// The folder of a run.
#[derive(Debug, Clone)]
pub struct RunFolder {
    folder: PathBuf,
}

impl RunFolder {
    /// The run in this folder, which need not be there yet.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The place of its ledger and secrets.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::new(self.folder.join(LEDGER_FILE))
    }

    fn paper_path(&self, which: Paper) -> PathBuf {
        self.folder.join(match which {
            Paper::Settings => CONFIG_FILE,
            Paper::Statement => STATEMENT_FILE,
            Paper::StatementJson => STATEMENT_JSON,
            Paper::PartOfASweep => UNDECIDED,
            Paper::Audit => AUDIT_FILE,
        })
    }

    fn log_path(&self, log: Log) -> PathBuf {
        self.folder.join(match log {
            Log::Metrics => METRICS_FILE,
            Log::Timing => TIMING_FILE,
            Log::Diagnostics => DIAGNOSTICS_FILE,
            Log::Samples => SAMPLES_FILE,
        })
    }

    fn state_path(&self, round: u64) -> PathBuf {
        self.folder.join(CHECKPOINTS).join(state_name(round))
    }
}

impl Home for RunFolder {
    fn name(&self) -> String {
        self.folder.display().to_string()
    }

    fn paper(&self, which: Paper) -> Result<Option<String>, HomeError> {
        match files::read_text(&self.paper_path(which)) {
            Err(FileError { error, .. }) if is_absent(&error) => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    fn write_paper(&self, which: Paper, text: &str) -> Result<(), HomeError> {
        files::make_folder(&self.folder)?;
        Ok(files::write(&self.paper_path(which), text.as_bytes())?)
    }

    fn remove_paper(&self, which: Paper) -> Result<(), HomeError> {
        remove(&self.paper_path(which))
    }

    fn states(&self) -> Result<Vec<u64>, HomeError> {
        let names = list(&self.folder.join(CHECKPOINTS))?.into_iter().filter_map(|path| number(&path));
        let mut rounds: Vec<u64> = names.collect();
        rounds.sort_unstable_by(|a, b| b.cmp(a));
        Ok(rounds)
    }

    fn read_state(&self, round: u64) -> Result<Box<dyn Read + '_>, HomeError> {
        let path = self.state_path(round);
        let file = fs::File::open(&path).map_err(files::failed("read", &path))?;
        Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
    }

    fn write_state(&self, round: u64, time: Option<u64>, write: WriteState<'_>) -> Result<(), HomeError> {
        files::make_folder(&self.folder.join(CHECKPOINTS))?;
        Ok(files::write_at(&self.state_path(round), time, write)?)
    }

    fn remove_state(&self, round: u64) -> Result<(), HomeError> {
        remove(&self.state_path(round))
    }

    fn state_name(&self, round: u64) -> String {
        self.state_path(round).display().to_string()
    }

    fn lines(&self, log: Log) -> Result<Vec<String>, HomeError> {
        Ok(files::whole_lines(&self.log_path(log))?)
    }

    fn open_log(&self, log: Log, keep: &dyn Fn(&str) -> bool) -> Result<Box<dyn LogWriter>, HomeError> {
        files::make_folder(&self.folder)?;
        Ok(Box::new(Lines::open(&self.log_path(log), keep)?))
    }

    fn write_model(&self, model: &Folder) -> Result<(), HomeError> {
        Ok(model_folder::write(model, &self.folder.join(MODEL_FOLDER))?)
    }

    fn has_model(&self) -> Result<bool, HomeError> {
        Ok(!list(&self.folder.join(MODEL_FOLDER))?.is_empty())
    }
}

impl LogWriter for Lines {
    fn append(&mut self, line: &str) -> Result<(), HomeError> {
        Ok(Self::append(self, line)?)
    }

    fn sync(&mut self) -> Result<(), HomeError> {
        Ok(Self::sync(self)?)
    }
}

impl Records for RunFolder {
    type Store = FileStore;

    fn secrets(&self) -> Secrets {
        self.place().secrets()
    }

    fn is_begun(&self) -> Result<bool, LedgerError> {
        self.place().is_begun()
    }

    fn create_store(&self) -> Result<FileStore, LedgerError> {
        files::make_folder(&self.folder).map_err(not_replaced)?;
        FileStore::create(&self.place())
    }

    fn open_store(&self) -> Result<FileStore, LedgerError> {
        FileStore::open(&self.place())
    }

    fn read_store(&self) -> Result<FileStore, LedgerError> {
        FileStore::read_only(&self.place())
    }

    fn shown_heads(&self) -> Result<Vec<Head>, HeadsError> {
        Ok(heads::check(&self.folder.join(LEDGER_FILE))?.into_iter().map(|shown| shown.head).collect())
    }
}

fn state_name(round: u64) -> String {
    format!("round-{round:08}{STATE}")
}

/// The round of a state, by the name of its file.
fn number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let round = name.strip_prefix("round-")?.strip_suffix(STATE)?.parse().ok()?;
    (state_name(round) == name).then_some(round)
}

fn remove(path: &Path) -> Result<(), HomeError> {
    match fs::remove_file(path) {
        Err(error) if is_absent(&error) => Ok(()),
        other => {
            other.map_err(files::failed("remove", path))?;
            Ok(files::sync_folder(files::folder(path))?)
        }
    }
}

/// Whether there is no such file.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_rounds() {
        let number = |name: &str| number(Path::new(name));
        assert_eq!(number("a/round-00000012.safetensors"), Some(12));
        assert_eq!(number(".round-00000012.safetensors.new"), None);
        assert_eq!(number("round-x.safetensors"), None);
        assert_eq!(number("round-12.safetensors"), None, "it is not written so, and could not be removed");
        assert_eq!(number("round-123456789012.safetensors"), Some(123_456_789_012));
    }
}
