//! Runs several training runs one after the other, each in its folder: started, resumed, or reused if finished. Sweeps and experiments are
//! built on it; progress goes to [`Follows`].

use std::{
    path::Path,
    time::{Duration, Instant},
};

use federated::{
    config::Config,
    engine::Means,
    fleet::Stop,
    home::{CONFIG_FILE, RunFolder},
    metrics::Metrics,
    plan::Plan,
    run::{self, After, Course, Driven, Observer, Opened, Run, Way},
    sweep,
};
use report::{following::Pages, run::REPORT_FILE};

use crate::error::ExperimentError;

/// One run of a sweep or experiment.
#[derive(Debug, Clone, Copy)]
pub struct OneRun<'a> {
    /// For people: its variant and seed.
    pub label: &'a str,
    /// Its settings.
    pub config: &'a Config,
    /// Its folder.
    pub folder: &'a Path,
    /// What becomes of its ledger.
    pub after: After,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Came<'a> {
    /// Its label.
    pub label: &'a str,
    /// Its evaluations.
    pub metrics: &'a [Metrics],
    /// How long it took; none where it was done before.
    pub took: Option<Duration>,
}

/// Receives the progress of several runs.
pub trait Follows {
    /// A run is done.
    fn done(&mut self, came: &Came<'_>);

    /// Something in a run did not go as planned.
    fn warns(&mut self, words: &str);
}

/// Executes runs one after the other.
pub struct Runner<'a> {
    /// Kernels, threads and engine.
    pub means: Means,
    /// Asked when somebody wants to stop.
    pub stop: &'a Stop,
    /// Receives progress.
    pub told: &'a mut dyn Follows,
}

impl Runner<'_> {
    /// The evaluations of a run.
    ///
    /// # Errors
    /// When its folder holds another run, it cannot be planned, started or resumed, or it was stopped.
    pub fn run(&mut self, run: OneRun<'_>) -> Result<Vec<Metrics>, ExperimentError> {
        let OneRun { label, config, folder, .. } = run;
        let is_begun = folder.join(CONFIG_FILE).is_file();
        if is_begun && run::settings(&RunFolder::at(folder))? != *config {
            return Err(ExperimentError::OtherRun { folder: folder.to_owned() });
        }
        let watch = Instant::now();
        let was_done = sweep::is_finished(folder);
        if !was_done {
            self.drive(run, if is_begun { Way::Resume } else { Way::Begin })?;
        } else if !folder.join(REPORT_FILE).is_file() {
            // It was killed after its model was written.
            report::run::write(folder)?;
        }
        let metrics = sweep::metrics(folder)?;
        let took = (!was_done).then(|| watch.elapsed());
        self.told.done(&Came { label, metrics: &metrics, took });
        Ok(metrics)
    }

    /// Trains a run to its end.
    fn drive(&mut self, run: OneRun<'_>, way: Way<'_>) -> Result<(), ExperimentError> {
        let OneRun { label, config, folder, after } = run;
        let of_run = |error| ExperimentError::OfRun { label: label.to_owned(), error: Box::new(error) };
        let opened = Opened::new(config).map_err(of_run)?;
        let plan = Plan::new(config.clone(), &opened.setting()).map_err(|error| of_run(error.into()))?;
        let course = Course { plan: &plan, opened: &opened, folder, way, after };
        match course.drive_alone(self.means, self.stop, &mut Pages::new(folder, Warnings(&mut *self.told)))? {
            Driven::Over(_) => Ok(()),
            Driven::Stopped { .. } => Err(ExperimentError::Stopped { label: label.to_owned() }),
        }
    }
}

/// Of one among many runs only what did not go as planned is reported while it runs.
struct Warnings<'a>(&'a mut dyn Follows);

impl Observer for Warnings<'_> {
    type Error = ExperimentError;

    fn begins(&mut self, _run: &Run<'_>, _way: Way<'_>) -> Result<(), ExperimentError> {
        Ok(())
    }

    fn warns(&mut self, words: &str) {
        self.0.warns(words);
    }

    fn stepped(&mut self, _run: &Run<'_>, _metrics: Option<&Metrics>) -> Result<(), ExperimentError> {
        Ok(())
    }

    fn rests(&mut self) -> Result<(), ExperimentError> {
        Ok(())
    }
}
