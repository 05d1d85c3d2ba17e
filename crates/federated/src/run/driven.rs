//! Drives a run to its end or until it is stopped: shared by `keyhush train`, sweeps and experiments, each with its own [`Observer`] for
//! progress.

use std::path::Path;

use super::{Ending, Opened, Run, RunError, belongs_to_a_sweep, runaway::RunAway};
use crate::{
    checkpoint,
    engine::{self, Means},
    fleet::{self, Fleet, Stop},
    home::{Records, RunFolder},
    metrics::Metrics,
    plan::Plan,
    round::Done,
};

/// How a run is started or resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way<'a> {
    /// Starts a new run.
    Begin,
    /// Resumes an existing run.
    Resume,
    /// After the store has changed, for this reason.
    ResumeWithChangedData(&'a str),
}

/// What happens to the ledger when all rounds are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The ledger is closed.
    Close,
    /// It stays open until the choice among the runs of a sweep is counted in it (rule P22).
    Choose,
}

/// Everything needed to drive a run.
#[derive(Clone, Copy)]
pub struct Course<'a> {
    /// Its plan.
    pub plan: &'a Plan,
    /// The opened data and models.
    pub opened: &'a Opened,
    /// The run's folder.
    pub folder: &'a Path,
    /// How the run is started or resumed.
    pub way: Way<'a>,
    /// What becomes of its ledger.
    pub after: After,
}

/// The state of a driven run.
#[derive(Debug)]
pub enum Driven {
    /// The run has ended.
    Over(Box<Ending>),
    /// Somebody wanted to stop: it can continue, and nothing is lost.
    Stopped {
        /// After so many rounds.
        round: u64,
    },
}

/// Watches a run as it is driven.
pub trait Observer {
    /// Why something cannot be shown, or the run not continue.
    type Error: From<RunError>;

    /// It is about to continue from where it stands.
    ///
    /// # Errors
    /// When it cannot be shown.
    fn begins(&mut self, run: &Run<'_>, way: Way<'_>) -> Result<(), Self::Error>;

    /// Something did not go as planned.
    fn warns(&mut self, words: &str);

    /// A step is done, with an evaluation or without.
    ///
    /// # Errors
    /// When it cannot be shown.
    fn stepped(&mut self, run: &Run<'_>, metrics: Option<&Metrics>) -> Result<(), Self::Error>;

    /// It rests, or is over: what its folder holds is whole.
    ///
    /// # Errors
    /// When it cannot be shown.
    fn rests(&mut self) -> Result<(), Self::Error>;
}

impl Course<'_> {
    /// The same machine, prepared for the plan; where the run continues, with as many users at a time as it had before: its results depend
    /// on it, and a card may have room for more.
    ///
    /// # Errors
    /// When the engine cannot carry out the plan, or the states of the run cannot be listed.
    pub fn means(&self, means: Means) -> Result<Means, RunError> {
        let mut means = means.for_plan(self.plan)?;
        if self.way != Way::Begin
            && let Some(chunk) = checkpoint::chunk(&RunFolder::at(self.folder))?
        {
            means.options.chunk = Some(chunk);
        }
        Ok(means)
    }

    /// Begins the run, or continues with it.
    ///
    /// # Errors
    /// As [`Run::begin`] and [`Run::resume`].
    fn run(&self, means: Means) -> Result<Run<'_>, RunError> {
        let Self { plan, opened, folder, .. } = *self;
        let home = || RunFolder::at(folder);
        if self.after == After::Choose {
            // Before anything of it is there: a run that was killed while it was begun is one of a sweep all the same.
            belongs_to_a_sweep(&home())?;
        }
        match self.way {
            Way::Begin => Run::begin(home(), plan, opened, means),
            Way::Resume => Run::resume(home(), plan, opened, means),
            Way::ResumeWithChangedData(why) => Run::resume_with_changed_data(home(), plan, opened, means, why),
        }
    }

    /// Drives the run with this fleet, on these means ([`Self::means`]).
    ///
    /// # Errors
    /// When it cannot be taken up or go on, or the observer cannot.
    pub fn drive<O: Observer>(
        &self,
        means: Means,
        fleet: &mut dyn Fleet,
        stop: &Stop,
        observer: &mut O,
    ) -> Result<Driven, O::Error> {
        let mut run = self.run(means)?;
        run.warnings().iter().for_each(|warning| observer.warns(warning));
        observer.begins(&run, self.way)?;
        let over = drive(&mut run, fleet, stop, observer)?;
        let driven = match (over, self.after) {
            (false, _) => {
                run.checkpoint()?;
                run.so_far()?;
                Driven::Stopped { round: run.state().round }
            }
            (true, After::Close) => Driven::Over(Box::new(run.finish()?)),
            (true, After::Choose) => Driven::Over(Box::new(run.finish_undecided()?)),
        };
        observer.rests()?;
        Ok(driven)
    }

    /// The same in this process alone, with the engine of the means.
    ///
    /// # Errors
    /// As [`Self::drive`].
    pub fn drive_alone<O: Observer>(&self, means: Means, stop: &Stop, observer: &mut O) -> Result<Driven, O::Error> {
        let Self { plan, opened, folder, .. } = *self;
        let population = opened.population(plan.ledger.unit)?;
        let means = self.means(means)?;
        let engine = engine::of(&plan.local, opened.learner(), means).map_err(RunError::from)?;
        let means = means.settled_by(&*engine);
        let mut fleet = fleet::of(plan, population.as_ref(), engine, RunFolder::at(folder).secrets());
        self.drive(means, &mut fleet, stop, observer)
    }
}

/// Step after step; whether the run is over then.
fn drive<O: Observer>(
    run: &mut Run<'_>,
    fleet: &mut dyn Fleet,
    stop: &Stop,
    observer: &mut O,
) -> Result<bool, O::Error> {
    let mut run_away = RunAway::default();
    let over = loop {
        let step = run.step(fleet, stop)?;
        let seen = step.done.as_ref().and_then(|done| done.diagnostics.as_ref());
        let by_devices = step.metrics.as_ref().and_then(|metrics| metrics.by_devices.as_ref());
        let words = [
            seen.and_then(|seen| run_away.note(seen)),
            step.failed.as_ref().map(ToString::to_string),
            step.failed_evaluation.as_ref().map(ToString::to_string),
            by_devices.map(|by_devices| format!("after round {}, {}", run.state().round, by_devices.words())),
            step.done.as_deref().and_then(without_groups),
        ];
        words.iter().flatten().for_each(|words| observer.warns(words));
        observer.stepped(run, step.metrics.as_ref())?;
        if step.over.is_some() {
            break true;
        }
        if stop.is_asked() {
            break false;
        }
    };
    run_away.in_all().iter().for_each(|words| observer.warns(words));
    Ok(over)
}

/// Why a round was done without some of its groups, if it was.
fn without_groups(done: &Done) -> Option<String> {
    let why: Vec<&str> = done.failed_groups.iter().map(|reason| reason.words()).collect();
    let words = || format!("round {} was completed without some of its groups: {}", done.timing.round, why.join("; "));
    (!why.is_empty()).then(words)
}
