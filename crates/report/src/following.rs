//! Updates the pages of a run in progress: TensorBoard's file after every evaluation, the report whenever the run pauses.

use std::path::{Path, PathBuf};

use federated::{
    metrics::Metrics,
    run::{Observer, Run, Way},
};

use crate::{ReportError, run, tensorboard};

/// Writes the pages of a run in its folder, and tells another observer.
#[derive(Debug)]
pub struct Pages<O> {
    folder: PathBuf,
    /// When the run began, once that is known.
    started: Option<u64>,
    told: O,
}

impl<O> Pages<O> {
    /// Follows the run in this folder.
    pub fn new(folder: &Path, told: O) -> Self {
        Self { folder: folder.to_owned(), started: None, told }
    }
}

impl<O: Observer<Error: From<ReportError>>> Pages<O> {
    fn follow(&self) -> Result<(), O::Error> {
        let Some(started) = self.started else { return Ok(()) };
        Ok(tensorboard::write(&self.folder, started).map_err(ReportError::from)?)
    }
}

impl<O: Observer<Error: From<ReportError>>> Observer for Pages<O> {
    type Error = O::Error;

    fn begins(&mut self, run: &Run<'_>, way: Way<'_>) -> Result<(), O::Error> {
        self.started = Some(run.started());
        self.follow()?;
        self.told.begins(run, way)
    }

    fn warns(&mut self, words: &str) {
        self.told.warns(words);
    }

    fn stepped(&mut self, run: &Run<'_>, metrics: Option<&Metrics>) -> Result<(), O::Error> {
        self.told.stepped(run, metrics)?;
        if metrics.is_some() { self.follow() } else { Ok(()) }
    }

    fn rests(&mut self) -> Result<(), O::Error> {
        self.told.rests()?;
        self.follow()?;
        Ok(run::write(&self.folder)?)
    }
}

/// Writes all pages of the run in a folder, which began at this time, in seconds since 1970.
///
/// # Errors
/// When the run cannot be read, or a page not be written.
pub fn write_all(folder: &Path, started: u64) -> Result<(), ReportError> {
    tensorboard::write(folder, started)?;
    run::write(folder)
}
