//! A thread that follows the folder of a run and sends what is new, until shortly after the run has ended.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use federated::{
    home::RunFolder,
    metrics::{METRICS_FILE, TIMING_FILE},
    run::Kept,
};
use report::{
    scalars::{Lines, Step},
    settings,
};
use tokio::runtime::{Builder, Runtime};

use crate::{
    TrackError,
    address::{Account, Address},
    http::Client,
    mlflow::{MOST_METRICS, MOST_PARAMS, Mlflow, Named, Status, Value},
    record::Record,
};

/// The tag by which a run is found again: the id of its ledger.
const LEDGER_TAG: &str = "keyhush.ledger";
/// After each failure the next attempt waits twice as long, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// If sending the rest takes longer than this, the user is told.
const SOON: Duration = Duration::from_secs(2);
/// The pause between two attempts when the run has ended.
const SHORT_PAUSE: Duration = Duration::from_millis(500);

/// How often the tracker checks the folder, and how long it retries.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How often the folder is checked.
    pub every: Duration,
    /// When the run has ended: how long a server that cannot be reached is tried again.
    pub farewell: Duration,
    /// When the run has ended: how long the program waits for a slow server in total.
    pub patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { every: Duration::from_secs(2), farewell: Duration::from_secs(10), patience: Duration::from_secs(30) }
    }
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The run has finished.
    Finished,
    /// The run was interrupted, and can be resumed.
    Interrupted,
    /// The run failed.
    Failed,
}

impl Outcome {
    const fn status(self) -> Status {
        match self {
            Self::Finished => Status::Finished,
            Self::Interrupted => Status::Killed,
            Self::Failed => Status::Failed,
        }
    }
}

/// Shows a message to the user.
pub type Say = Box<dyn Fn(&str) + Send + Sync>;

/// Sends a run to a server while it trains.
pub struct Tracker {
    shared: Arc<Shared>,
    say: Arc<dyn Fn(&str) + Send + Sync>,
    address: Address,
    folder: PathBuf,
    pace: Pace,
}

/// The state that the thread and the program share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How the run ended, when it has.
    outcome: Option<Outcome>,
    /// Whether the thread is done, and what went wrong.
    done: Option<Result<(), String>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the run has ended, or for `pause`.
    fn wait_for_outcome(&self, pause: Duration) -> Option<Outcome> {
        let state = self.changed.wait_timeout_while(self.lock(), pause, |state| state.outcome.is_none());
        state.unwrap_or_else(PoisonError::into_inner).0.outcome
    }

    /// Waits until the thread is done, or for `pause`.
    fn wait_until_done(&self, pause: Duration) -> Option<Result<(), String>> {
        let state = self.changed.wait_timeout_while(self.lock(), pause, |state| state.done.is_none());
        state.unwrap_or_else(PoisonError::into_inner).0.done.take()
    }

    fn end(&self, done: Result<(), String>) {
        self.lock().done = Some(done);
        self.changed.notify_all();
    }
}

impl Tracker {
    /// Starts to follow the run in a folder, which need not exist yet. `say` gets one warning at most while the run trains, if the server
    /// cannot be reached or refuses, and a note if the server is slow at the end.
    ///
    /// # Errors
    /// When tracking is impossible. A server that cannot be reached is no error.
    pub fn start(address: &Address, account: Account, folder: &Path, pace: Pace, say: Say) -> Result<Self, TrackError> {
        let client = Client::new(address.clone(), account)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(TrackError::Thread)?;
        let shared = Arc::new(Shared::default());
        let say: Arc<dyn Fn(&str) + Send + Sync> = Arc::from(say);
        let said = Arc::clone(&say);
        let follower =
            Follower { server: Mlflow { client }, folder: folder.to_owned(), record: None, seen: None, pace };
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("tracking".into())
            .spawn(move || of_thread.end(follower.follow(&runtime, &of_thread, &*said)))
            .map_err(TrackError::Thread)?;
        Ok(Self { shared, say, address: address.clone(), folder: folder.to_owned(), pace })
    }

    /// The run has ended: sends the rest, and waits for that at most as long as the pace allows. Returns a warning if not everything was sent.
    #[must_use]
    pub fn finish(self, outcome: Outcome) -> Option<String> {
        self.shared.lock().outcome = Some(outcome);
        self.shared.changed.notify_all();
        let soon = SOON.min(self.pace.patience);
        let done = self.shared.wait_until_done(soon).or_else(|| {
            (self.say)(&format!("sending the rest of the run to {}; Ctrl-C stops waiting", self.address));
            self.shared.wait_until_done(self.pace.patience - soon)
        });
        let late = || Err("it does not answer in time".to_owned());
        let problem = done.unwrap_or_else(late).err()?;
        let (address, folder) = (&self.address, self.folder.display());
        Some(format!(
            "the tracking server {address} did not get all of the run: {problem}. The run itself is complete, in {folder}; \
             keyhush train --resume {folder} --track mlflow:{address} sends the rest"
        ))
    }
}

/// The work of the thread.
struct Follower {
    server: Mlflow,
    folder: PathBuf,
    /// What the server has; none until this process has created or found the run there.
    record: Option<Record>,
    /// The sizes of the files when they were last read.
    seen: Option<[u64; 2]>,
    pace: Pace,
}

impl Follower {
    /// Follows the run until it has ended.
    fn follow(mut self, runtime: &Runtime, shared: &Shared, say: &dyn Fn(&str)) -> Result<(), String> {
        let (mut pause, mut said) = (self.pace.every, false);
        loop {
            if let Some(outcome) = shared.wait_for_outcome(pause) {
                return self.farewell(runtime, outcome);
            }
            let Err(error) = runtime.block_on(self.send(None)) else {
                pause = self.pace.every;
                continue;
            };
            let next = if error.may_pass() {
                "the run continues; this is tried again"
            } else {
                "the run continues, but is not tracked"
            };
            if !std::mem::replace(&mut said, true) {
                say(&format!("tracking to {}: {error}; {next}", self.server.client.address()));
            }
            if !error.may_pass() {
                return Err(error.to_string());
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Sends the rest, within a few seconds.
    fn farewell(&mut self, runtime: &Runtime, outcome: Outcome) -> Result<(), String> {
        let until = Instant::now() + self.pace.farewell;
        loop {
            match runtime.block_on(self.send(Some(outcome))) {
                Ok(()) => return Ok(()),
                Err(error) if error.may_pass() && Instant::now() + SHORT_PAUSE < until => thread::sleep(SHORT_PAUSE),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Sends what is new. A run with secret noise is only sent when it has finished: earlier, arrival times would show how long rounds take.
    async fn send(&mut self, outcome: Option<Outcome>) -> Result<(), TrackError> {
        let size = |name: &str| std::fs::metadata(self.folder.join(name)).map_or(0, |file| file.len());
        let sizes = [METRICS_FILE, TIMING_FILE].map(size);
        if outcome.is_none() && self.seen == Some(sizes) {
            return Ok(());
        }
        let lines = Lines::read(&self.folder)?;
        if lines.metrics.is_empty() || !(lines.is_simulation() || outcome.is_some()) {
            return Ok(());
        }
        let read = || Kept::read(&RunFolder::at(&self.folder)).map_err(Box::new);
        let kept = if self.record.is_none() || outcome.is_some() { Some(read()?) } else { None };
        // A run that had finished before did not fail because it cannot be resumed.
        let closed = kept.as_ref().is_some_and(|kept| kept.ended.is_some());
        let outcome =
            outcome.map(|outcome| if closed && outcome == Outcome::Failed { Outcome::Finished } else { outcome });
        if !lines.is_simulation() && outcome != Some(Outcome::Finished) {
            return Ok(());
        }
        if let Some(kept) = kept.as_ref().filter(|_| self.record.is_none()) {
            self.record = Some(self.run(kept).await?);
        }
        let Some(record) = &mut self.record else { return Ok(()) };
        send_steps(&mut self.server, &self.folder, record, &lines.steps()).await?;
        if let (Some(kept), Some(outcome)) = (&kept, outcome) {
            self.server.log(&record.run_id, &[], &[], &at_the_end(kept)).await?;
            self.server.update(&record.run_id, outcome.status(), Some(end_time(kept))).await?;
        }
        self.seen = Some(sizes);
        Ok(())
    }

    /// The run on the server: the one that the server has, or a new one with its settings. A run that was created, but whose answer was lost, is
    /// found by the id of its ledger.
    async fn run(&mut self, kept: &Kept) -> Result<Record, TrackError> {
        let server = self.server.client.address().to_string();
        let experiment = self.server.client.experiment().to_owned();
        let known = Record::read(&self.folder).filter(|r| r.server == server && r.experiment == experiment);
        let mut record = match known {
            Some(record) if self.server.has_run(&record.run_id).await? => record,
            _ => {
                let id = self.server.experiment().await?;
                let found = self.server.find_run(&id, LEDGER_TAG, &kept.statement.ledger.id.to_string()).await?;
                let run_id = match found {
                    Some(run_id) => run_id,
                    None => {
                        let start = milliseconds(kept.started as f64);
                        self.server.create_run(&id, &kept.name, start, &at_the_beginning(kept)).await?
                    }
                };
                let started = kept.started;
                Record { server, experiment, run_id, started, settings: false, evaluation: None, round: 0 }
            }
        };
        record.write(&self.folder)?;
        if !record.settings {
            let params: Vec<Named> =
                settings::flat(&kept.settings)?.iter().map(|(key, value)| Named::param(key, value)).collect();
            for params in params.chunks(MOST_PARAMS) {
                self.server.log(&record.run_id, &[], params, &[]).await?;
            }
            record.settings = true;
            record.write(&self.folder)?;
        }
        Ok(record)
    }
}

/// Sends the steps that the server lacks, as many at once as it accepts, and notes that it has them.
async fn send_steps(server: &mut Mlflow, folder: &Path, record: &mut Record, steps: &[Step]) -> Result<(), TrackError> {
    let lacking: Vec<&Step> = steps.iter().filter(|step| record.lacks(step)).collect();
    for steps in in_batches(&lacking) {
        let values: Vec<Value> = steps.iter().flat_map(|step| values(step, record.started)).collect();
        if !values.is_empty() {
            server.log(&record.run_id, &values, &[], &[]).await?;
        }
        steps.iter().for_each(|step| record.note(step));
        record.write(folder)?;
    }
    Ok(())
}

/// Batches of steps, each with no more numbers than a server accepts at once. One step has about twenty.
fn in_batches<'a, 's>(mut steps: &'a [&'s Step]) -> Vec<&'a [&'s Step]> {
    let mut batches = Vec::new();
    while !steps.is_empty() {
        let numbers = steps.iter().scan(0, |sum, step| {
            *sum += step.scalars.len();
            Some(*sum)
        });
        let fit = numbers.take_while(|sum| *sum <= MOST_METRICS).count().max(1);
        let (batch, rest) = steps.split_at(fit);
        batches.push(batch);
        steps = rest;
    }
    batches
}

/// The numbers of a step. Infinite ones are left out: charts cannot show them, and the tags of the run state its cost.
fn values(step: &Step, started: u64) -> impl Iterator<Item = Value> {
    let timestamp = milliseconds(started as f64 + step.seconds);
    let finite = step.scalars.iter().filter(|(_, value)| value.is_finite());
    finite.map(move |(key, value)| Value { key: key.clone(), value: *value, timestamp, step: step.round })
}

fn at_the_beginning(kept: &Kept) -> Vec<Named> {
    vec![
        Named::tag("mlflow.source.name", "keyhush train"),
        Named::tag("mlflow.source.type", "LOCAL"),
        Named::tag("keyhush.version", env!("CARGO_PKG_VERSION")),
        Named::tag("keyhush.simulation", if kept.is_simulation() { "true" } else { "false" }),
        Named::tag(LEDGER_TAG, &kept.statement.ledger.id.to_string()),
    ]
}

/// The sentence that may be quoted, and the head of the ledger that proves it.
fn at_the_end(kept: &Kept) -> Vec<Named> {
    vec![
        Named::tag("mlflow.note.content", &kept.sentence),
        Named::tag("keyhush.statement", &kept.sentence),
        Named::tag("keyhush.ledger_head", &kept.statement.ledger.head.to_string()),
    ]
}

/// Now; for a run with secret noise the day on which it started, as everywhere else.
fn end_time(kept: &Kept) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    milliseconds(if kept.is_simulation() { now } else { kept.started as f64 })
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

#[cfg(test)]
mod tests {
    use report::scalars::Of;

    use super::*;

    fn step(round: u64, numbers: usize) -> Step {
        Step {
            of: Of::Round,
            round,
            seconds: 1.5,
            scalars: (0..numbers).map(|n| (format!("n{n}"), n as f64)).collect(),
        }
    }

    #[test]
    fn no_batch_has_more_numbers_than_a_server_takes() {
        let steps: Vec<Step> =
            [400, 500, 100, 1, 0, 2000, 3].into_iter().enumerate().map(|(i, n)| step(i as u64, n)).collect();
        let all: Vec<&Step> = steps.iter().collect();
        let rounds: Vec<Vec<u64>> =
            in_batches(&all).iter().map(|batch| batch.iter().map(|s| s.round).collect()).collect();
        assert_eq!(rounds, [vec![0, 1, 2], vec![3, 4], vec![5], vec![6]]);
        assert!(in_batches(&[]).is_empty());
    }

    #[test]
    fn numbers_have_their_step_and_time_and_are_finite() {
        let mut step = step(7, 2);
        step.scalars.push(("privacy/epsilon_if_secret".into(), f64::INFINITY));
        let values: Vec<Value> = values(&step, 1000).collect();
        assert_eq!(values.len(), 2);
        assert_eq!(values[1], Value { key: "n1".into(), value: 1.0, timestamp: 1_001_500, step: 7 });
    }
}
