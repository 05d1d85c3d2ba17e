//! A server with its tasks: begun, gone on with after any crash, stopped.
//!
//! Each task has a thread with the loop of `federated` and a fleet of devices; all of them share one coordinator, one database and one
//! door. A task that is over is closed, and its model and statement are written where its operator finds them.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::Duration,
};

use device::guard::TaskDigest;
use durable::files::{self, FileError};
use federated::{
    config::{Config, ConfigError},
    engine::Means,
    fleet::{
        FleetError, Stop,
        network::{Network, NetworkTask, Reads},
    },
    home::{Home, LEDGER_FILE, Paper, Records, STATEMENT_FILE, STATEMENT_JSON},
    ledger_file::Place,
    metrics::Metrics,
    model_folder::{self, ModelFolderError},
    plan::Plan,
    protocol::{
        admission::Admission,
        coordinator::{Coordinator, CoordinatorError},
        pace::Pace,
        store::{Store, StoreError},
    },
    round::{RoundError, attempts::Failed},
    run::{Opened, Run, RunError},
};
use ledger::LedgerError;
use lm::folder::{Files, Folder, FolderError, Source};
use thiserror::Error;

use crate::{
    http::{self, HttpError, Limits, Server, Transport},
    hub::{Hub, now_ms},
    sqlite::{Database, DatabaseError, TaskHome},
};

/// The database in the folder of data.
const DATABASE: &str = "keyhush.sqlite";
/// Where the models and statements of tasks are put that are over.
const MODELS: &str = "models";
/// Bytes of memory for reports that arrive.
const ROOM: usize = 256 << 20;

/// How a server is run.
pub struct Settings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where it keeps what it must not forget.
    pub data: PathBuf,
    /// Where it keeps what nobody may see.
    pub secrets: PathBuf,
    /// How it speaks.
    pub transport: Transport,
    /// Who may enrol.
    pub admission: Box<dyn Admission>,
    /// By what means models are measured and masks taken off.
    pub means: Means,
    /// What it bears.
    pub limits: Limits,
    /// When devices are to come back.
    pub pace: Pace,
    /// Whether it ends when all its tasks are over.
    pub ends_with_tasks: bool,
}

/// A task, as a person wrote it.
pub struct Written {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub config: Config,
}

/// What happens on a server, for its log. Nothing here is exact but what operators may see (rule P26).
#[derive(Debug)]
pub enum Happened<'a> {
    /// It listens.
    Listening(SocketAddr),
    /// A task is run; after so many rounds.
    Running {
        /// Which.
        task: &'a str,
        /// Rounds that are done.
        round: u64,
    },
    /// A round was released and recorded.
    Round {
        /// Of which task.
        task: &'a str,
        /// Rounds that are done.
        round: u64,
        /// How well the model does, where it was measured.
        metrics: Option<&'a Metrics>,
    },
    /// An attempt came to nothing.
    Failed {
        /// Of which task.
        task: &'a str,
        /// What is known of it.
        failed: &'a Failed,
    },
    /// A task is over.
    Over {
        /// Which.
        task: &'a str,
        /// Where its model and statement are.
        folder: &'a Path,
    },
    /// A task cannot go on; the others do.
    Broken {
        /// Which.
        task: &'a str,
        /// Why.
        error: &'a ServeError,
    },
}

/// Why a server or a task of it cannot go on.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A run.
    #[error(transparent)]
    Run(Box<RunError>),
    /// The database.
    #[error(transparent)]
    Database(Box<DatabaseError>),
    /// The store of the coordinator.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The coordinator.
    #[error(transparent)]
    Coordinator(Box<CoordinatorError>),
    /// The door.
    #[error(transparent)]
    Http(Box<HttpError>),
    /// The ledger.
    #[error(transparent)]
    Ledger(Box<LedgerError>),
    /// A model cannot be written where its operator finds it.
    #[error("the model of a task cannot be written: {0}")]
    Model(#[from] FolderError),
    /// The same.
    #[error(transparent)]
    Folder(#[from] ModelFolderError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system gives no threads.
    #[error("the server cannot start its threads: {0}")]
    Threads(std::io::Error),
    /// Two tasks have one name, or are one.
    #[error("there are two tasks called {name:?}: each needs a name of its own")]
    SameTask {
        /// Which.
        name: String,
    },
    /// Nothing is to be done.
    #[error("there is no task to serve")]
    NoTask,
    /// The pseudonym key of a run that is not over is gone.
    #[error("the key of the participants of {name} is missing from its secrets: the run cannot go on")]
    NoPseudonyms {
        /// Of which task.
        name: String,
    },
    /// A thread ended by a panic, which is a bug.
    #[error("a thread of the server ended by a bug")]
    Died,
}

/// What goes wrong is boxed, so that what goes well is small.
macro_rules! boxed {
    ($($variant:ident($error:ty)),*) => {
        $(impl From<$error> for ServeError {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

boxed!(Run(RunError), Database(DatabaseError), Coordinator(CoordinatorError), Http(HttpError), Ledger(LedgerError));

/// A task that is ready to be run.
struct Ready {
    name: String,
    plan: Plan,
    opened: Opened,
    network: NetworkTask,
    home: TaskHome,
}

/// Runs a server until it is told to stop, or its tasks are over.
///
/// # Errors
/// When it cannot begin, or what it must not forget cannot be kept.
pub fn serve(
    tasks: Vec<Written>,
    settings: Settings,
    stop: &Stop,
    happens: &(dyn Fn(&Happened<'_>) + Sync),
) -> Result<(), ServeError> {
    let Settings { listen, data, secrets, transport, admission, means, limits, pace, ends_with_tasks } = settings;
    let database = Arc::new(Database::open(data.join(DATABASE))?.with_witness(&secrets)?);
    let realm = database.realm()?;
    let ready = ready(tasks, &realm, &database, &secrets)?;
    let mut coordinator = Coordinator::new(Arc::clone(&database) as Arc<dyn Store>, admission, pace, now_ms())?;
    for task in &ready {
        let NetworkTask { digest, limits, goal, begin_with, .. } = task.network;
        coordinator.add_task(digest, limits, goal, begin_with, begun(&task.home, &database, &digest)?);
    }
    let (hub, thread) = Hub::start(coordinator, Arc::clone(&database) as Arc<dyn Store>, ROOM)?;
    let runtime = runtime()?;
    let server = runtime.block_on(Server::bind(listen, transport, limits))?;
    happens(&Happened::Listening(server.address()));
    let (closing, closed) = tokio::sync::oneshot::channel::<()>();
    let app = http::app(Arc::new(hub.clone()), limits);
    let door = runtime.spawn(server.serve(app, async { _ = closed.await }));
    let run = run_all(&ready, &hub, means, &data, stop, happens, ends_with_tasks);
    let _ = closing.send(());
    let _served = runtime.block_on(door);
    hub.stop();
    thread.join().map_err(|_| ServeError::Died)?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    run
}

fn runtime() -> Result<tokio::runtime::Runtime, ServeError> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(16).build();
    built.map_err(ServeError::Threads)
}

fn ready(
    tasks: Vec<Written>,
    realm: &[u8; 32],
    database: &Arc<Database>,
    secrets: &Path,
) -> Result<Vec<Ready>, ServeError> {
    let mut ready: Vec<Ready> = Vec::new();
    for Written { name, config } in tasks {
        let opened = Opened::new(&config)?;
        let plan = Plan::new(config, &opened.setting())?;
        let reads = Reads { learner: opened.learner(), vocabulary: opened.vocabulary(), rules: opened.rules() };
        let network = NetworkTask::new(&name, realm, &plan, reads)?;
        if ready.iter().any(|other| other.name == name || other.network.digest == network.digest) {
            return Err(ServeError::SameTask { name });
        }
        let home = TaskHome::open(Arc::clone(database), &name, secrets)?;
        ready.push(Ready { name, plan, opened, network, home });
    }
    if ready.is_empty() { Err(ServeError::NoTask) } else { Ok(ready) }
}

/// Where a task stands, if it has begun: keys that enrol from now on wait in it.
fn begun(home: &TaskHome, database: &Database, task: &TaskDigest) -> Result<Option<u64>, ServeError> {
    let released = home.last_release()?.map(|(_, _, step)| step + 1);
    let open = database.open_attempt(task)?.filter(|open| !open.assigned.is_empty()).map(|open| open.at.round);
    Ok(released.max(open))
}

/// Runs all tasks, each on a thread of its own.
fn run_all(
    ready: &[Ready],
    hub: &Hub,
    means: Means,
    data: &Path,
    stop: &Stop,
    happens: &(dyn Fn(&Happened<'_>) + Sync),
    ends_with_tasks: bool,
) -> Result<(), ServeError> {
    std::thread::scope(|scope| {
        let (ended, ends) = mpsc::channel();
        for task in ready {
            let ended = ended.clone();
            scope.spawn(move || {
                let done = run_one(task, hub, means, data, stop, happens);
                if let Err(error) = &done {
                    happens(&Happened::Broken { task: &task.name, error });
                }
                let _ = ended.send(done);
            });
        }
        drop(ended);
        let mut first = Ok(());
        for done in &ends {
            first = first.and(done);
        }
        // Devices are told when to come back as long as the server is there.
        while first.is_ok() && !ends_with_tasks && !stop.is_asked() && hub.failure().is_none() {
            std::thread::sleep(Duration::from_millis(100));
        }
        first
    })
}

/// One task, until it is over or somebody wants to stop.
fn run_one(
    task: &Ready,
    hub: &Hub,
    means: Means,
    data: &Path,
    stop: &Stop,
    happens: &(dyn Fn(&Happened<'_>) + Sync),
) -> Result<(), ServeError> {
    let Ready { name, plan, opened, network, home } = task;
    let is_begun = home.is_begun()? || home.paper(Paper::Settings).map_err(RunError::from)?.is_some();
    let mut run = if is_begun {
        Run::resume(home.clone(), plan, opened, means)?
    } else {
        Run::begin(home.clone(), plan, opened, means)?
    };
    happens(&Happened::Running { task: name, round: run.state().round });
    if !run.ledger().is_closed() {
        let pseudonyms =
            home.secrets().pseudonym_key()?.ok_or_else(|| ServeError::NoPseudonyms { name: name.clone() })?;
        let mut fleet =
            Network::new(hub.driver(), network.clone(), plan.windows, home.secrets(), pseudonyms, means.threads);
        loop {
            let step = match run.step(&mut fleet, stop) {
                Err(RunError::Round(error)) if matches!(*error, RoundError::Fleet(FleetError::Stopped)) => {
                    run.checkpoint()?;
                    return Ok(());
                }
                other => other?,
            };
            if let Some(failed) = &step.failed {
                happens(&Happened::Failed { task: name, failed });
            }
            if step.done.is_some() {
                let round = run.state().round;
                happens(&Happened::Round { task: name, round, metrics: step.metrics.as_ref() });
            }
            if step.over.is_some() {
                break;
            }
            if stop.is_asked() {
                run.checkpoint()?;
                return Ok(());
            }
        }
    }
    let _ending = run.finish()?;
    let folder = data.join(MODELS).join(name);
    export(home, &folder)?;
    happens(&Happened::Over { task: name, folder: &folder });
    Ok(())
}

/// Puts the model, the statement, and the ledger with who took part, as pseudonyms whose key is gone, where people find them: what
/// `keyhush privacy verify` and `statement` read.
fn export(home: &TaskHome, folder: &Path) -> Result<(), ServeError> {
    if let Some(Files { weights, config, vocabulary, card }) = home.model()? {
        let source = Source { weights: &mut &weights[..], config: &config, vocabulary: &vocabulary, card: &card };
        model_folder::write(&Folder::read(source)?, folder)?;
    }
    files::make_folder(folder)?;
    for (paper, file) in [(Paper::Statement, STATEMENT_FILE), (Paper::StatementJson, STATEMENT_JSON)] {
        if let Some(text) = home.paper(paper).map_err(RunError::from)? {
            files::write(&folder.join(file), text.as_bytes())?;
        }
    }
    Ok(Place::new(folder.join(LEDGER_FILE)).copy(&home.read_store()?)?)
}
