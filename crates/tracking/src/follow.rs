//! A thread that follows the folder of a run and sends what is new, as long as the run goes on and a little longer.

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
use report::scalars::{Lines, Step};
use tokio::runtime::{Builder, Runtime};

use crate::{
    TrackError,
    address::{Account, Address},
    http::Client,
    mlflow::{MOST_METRICS, MOST_PARAMS, Mlflow, Named, Status, Value},
    record::Record,
    settings,
};

/// After each failure the next attempt waits twice as long, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a pause between two attempts is when the run is over.
const SHORT_PAUSE: Duration = Duration::from_millis(500);

/// How patient a tracker is.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How often the folder is looked at.
    pub every: Duration,
    /// How long a server that is away is tried again when the run is over.
    pub farewell: Duration,
    /// How long the program waits for a slow one then, in all.
    pub patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { every: Duration::from_secs(2), farewell: Duration::from_secs(10), patience: Duration::from_secs(30) }
    }
}

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is over.
    Finished,
    /// It was interrupted, and can go on.
    Interrupted,
    /// Something went wrong.
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

/// Says to people what went wrong while a run goes on.
pub type Say = Box<dyn Fn(&str) + Send>;

/// Sends a run to a server while it goes on.
pub struct Tracker {
    shared: Arc<Shared>,
    address: Address,
    folder: PathBuf,
    pace: Pace,
}

/// What the thread and the program tell each other.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What became of the run, when it is over.
    outcome: Option<Outcome>,
    /// Whether the thread is done, and why something was not sent.
    done: Option<Result<(), String>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the run is over, at most so long.
    fn wait_for_outcome(&self, pause: Duration) -> Option<Outcome> {
        let state = self.changed.wait_timeout_while(self.lock(), pause, |state| state.outcome.is_none());
        state.unwrap_or_else(PoisonError::into_inner).0.outcome
    }

    fn end(&self, done: Result<(), String>) {
        self.lock().done = Some(done);
        self.changed.notify_all();
    }
}

impl Tracker {
    /// Begins to follow the run in a folder, which need not be there yet. `say` is called once at most: when the server cannot be reached,
    /// or refuses.
    ///
    /// # Errors
    /// When that cannot be done at all; a server that is away is none of these.
    pub fn start(address: &Address, account: Account, folder: &Path, pace: Pace, say: Say) -> Result<Self, TrackError> {
        let client = Client::new(address.clone(), account)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(TrackError::Thread)?;
        let shared = Arc::new(Shared::default());
        let follower =
            Follower { server: Mlflow { client }, folder: folder.to_owned(), record: None, seen: None, pace };
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("tracking".into())
            .spawn(move || of_thread.end(follower.follow(&runtime, &of_thread, &say)))
            .map_err(TrackError::Thread)?;
        Ok(Self { shared, address: address.clone(), folder: folder.to_owned(), pace })
    }

    /// The run is over: sends the rest, and waits for that a few seconds at most. What is to be said if not all was sent.
    #[must_use]
    pub fn finish(self, outcome: Outcome) -> Option<String> {
        self.shared.lock().outcome = Some(outcome);
        self.shared.changed.notify_all();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), self.pace.patience, |state| state.done.is_none());
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let late = || Err("it does not answer in time".to_owned());
        let problem = state.done.take().unwrap_or_else(late).err()?;
        let (address, folder) = (&self.address, self.folder.display());
        Some(format!(
            "the tracking server {address} did not get all of the run: {problem}. The run itself is whole, in {folder}"
        ))
    }
}

/// The work of the thread.
struct Follower {
    server: Mlflow,
    folder: PathBuf,
    /// What the server has; none until this process has made or found the run there.
    record: Option<Record>,
    /// The sizes of the files when they were read last.
    seen: Option<[u64; 2]>,
    pace: Pace,
}

impl Follower {
    /// Until the run is over.
    fn follow(mut self, runtime: &Runtime, shared: &Shared, say: &Say) -> Result<(), String> {
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
                "the run goes on, and what is missing is sent when the server answers"
            } else {
                "the run goes on, and is not tracked"
            };
            if !std::mem::replace(&mut said, true) {
                say(&format!("the tracking server {}: {error}; {next}", self.server.client.address()));
            }
            if !error.may_pass() {
                return Err(error.to_string());
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The rest, within a few seconds.
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

    /// Sends what is new. While a run goes on that is nothing where its noise is secret: when something arrives says how long rounds took.
    async fn send(&mut self, outcome: Option<Outcome>) -> Result<(), TrackError> {
        let size = |name: &str| std::fs::metadata(self.folder.join(name)).map_or(0, |file| file.len());
        let sizes = [METRICS_FILE, TIMING_FILE].map(size);
        if outcome.is_none() && self.seen == Some(sizes) {
            return Ok(());
        }
        let lines = Lines::read(&self.folder)?;
        let may_be_sent = lines.is_simulation() || outcome == Some(Outcome::Finished);
        if lines.metrics.is_empty() || !may_be_sent {
            return Ok(());
        }
        let read = || Kept::read(&RunFolder::at(&self.folder)).map_err(Box::new);
        let kept = if self.record.is_none() || outcome.is_some() { Some(read()?) } else { None };
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

    /// The run on the server: the one that it has, or a new one with its settings.
    async fn run(&mut self, kept: &Kept) -> Result<Record, TrackError> {
        let server = self.server.client.address().to_string();
        let experiment = self.server.client.experiment().to_owned();
        let known = Record::read(&self.folder).filter(|r| r.server == server && r.experiment == experiment);
        let mut record = match known {
            Some(record) if self.server.has_run(&record.run_id).await? => record,
            _ => {
                let id = self.server.experiment().await?;
                let start = milliseconds(kept.started as f64);
                let run_id = self.server.create_run(&id, &kept.name, start, &at_the_beginning(kept)).await?;
                let started = kept.started;
                Record { server, experiment, run_id, started, settings: false, evaluation: None, round: 0 }
            }
        };
        record.write(&self.folder)?;
        if !record.settings {
            for params in settings::params(&kept.settings)?.chunks(MOST_PARAMS) {
                self.server.log(&record.run_id, &[], params, &[]).await?;
            }
            record.settings = true;
            record.write(&self.folder)?;
        }
        Ok(record)
    }
}

/// Sends the steps that the server lacks, as many at once as it takes, and notes that it has them.
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

/// Steps by steps, with no more numbers together than a server takes at once. One step has some twenty.
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

/// The numbers of a step. One that is infinite is left out: charts cannot show it, and the tags of the run say what it costs.
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
    ]
}

/// What may be quoted of a run, and the head of the ledger that proves it.
fn at_the_end(kept: &Kept) -> Vec<Named> {
    vec![
        Named::tag("mlflow.note.content", &kept.sentence),
        Named::tag("keyhush.statement", &kept.sentence),
        Named::tag("keyhush.ledger_head", &kept.statement.ledger.head.to_string()),
    ]
}

/// Now; of a run with secret noise the day on which it began, as everywhere else.
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
