//! A server with its tasks: started, resumed after any crash, stopped.
//!
//! Each task has a thread with the loop of `federated` and a fleet of devices; all of them share one coordinator, one database and one
//! door. A task that is over is closed, and its model and statement are written where its operator finds them.

use std::{
    cell::Cell,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use device::guard::{ModelDigest, TaskDigest};
use durable::files::{self, FileError};
use federated::{
    config::{Config, ConfigError},
    engine::Means,
    fleet::{
        Fleet, FleetError, Stop, WithEvaluations,
        network::{Driver, Network, NetworkTask, destroy_key_of_settled},
    },
    home::{Home, LEDGER_FILE, Log, Paper, Records, STATEMENT_FILE, STATEMENT_JSON},
    ledger_file::Place,
    metrics::{METRICS_FILE, Metrics},
    model_folder::{self, ModelFolderError},
    numbers::counted,
    plan::{EVALUATION, Plan},
    protocol::{
        admission::{Admission, EnrolmentLimits},
        coordinator::{Coordinator, CoordinatorError},
        order::Order,
        pace::Pace,
        store::{Store, StoreError, Write},
    },
    round::{RoundError, attempts::Failed, evaluation::FailedEvaluation},
    run::{Opened, Run, RunError},
};
use ledger::{Approval, Ledger, LedgerError, VerifyingKey, hex, unhex};
use lm::folder::{Files, Folder, FolderError, Source};
use secagg::entropy::Entropy;
use thiserror::Error;

use crate::{
    attestation::Attestation,
    http::{self, HttpError, Limits, Origins, Proxies, Served, Transport},
    hub::{Hub, HubDriver, now_ms},
    observed::Observed,
    orders::{self, Orders},
    state::{AfterRound, Note, State, StateError, TaskState},
};

pub mod created;
mod entering;
mod threads;

use self::{
    created::Created,
    entering::{Entering, Rules},
};
pub use entering::{Checked, check_new, planned};

/// Where the models and statements of tasks are put that are over.
const MODELS: &str = "models";
/// Bytes of memory for reports that arrive.
const ROOM: usize = 256 << 20;

/// The settings of a server.
pub struct Settings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Where the orders for tasks are, and where models and statements of tasks are put that are over.
    pub data: PathBuf,
    /// TLS or plain HTTP.
    pub transport: Transport,
    /// Who may enrol.
    pub admission: Box<dyn Admission>,
    /// Who is asked whether a device is what it says it is, before it enrols; nobody by default.
    pub attestation: Option<Arc<dyn Attestation>>,
    /// How many may, in an hour.
    pub enrolments: EnrolmentLimits,
    /// By what means models are measured and masks taken off.
    pub means: Means,
    /// Limits on connections.
    pub limits: Limits,
    /// Whose word on where requests come from is taken.
    pub proxies: Proxies,
    /// Whose pages of the web may speak to it.
    pub origins: Origins,
    /// When devices are to come back.
    pub pace: Pace,
    /// Is told of requests that were refused, or failed; nobody by default.
    pub tells: http::Tells,
    /// Is told what operators may see.
    pub observed: Arc<Observed>,
    /// Routes that are answered beside the protocol's, such as a console's; none by default. They must have no path below /v1, nor /healthz, /readyz,
    /// and no fallback.
    pub routes: axum::Router,
    /// Whether it ends when all its tasks are over.
    pub ends_with_tasks: bool,
    /// The privacy officers of whom one must have approved each task; where there is none, tasks need no approval.
    pub officers: Vec<VerifyingKey>,
}

/// A task, as a person wrote it.
pub struct Written {
    /// Its name.
    pub name: String,
    /// The task's settings.
    pub config: Config,
    /// The approval of its plan by a privacy officer.
    pub approval: Option<Approval>,
}

/// An event on a server, for its log. Only what operators may see is exact (rule P26).
#[derive(Debug)]
pub enum Happened<'a> {
    /// The server accepts connections.
    Listening(SocketAddr),
    /// A task is run; after so many rounds.
    Running {
        /// The task's name.
        task: &'a str,
        /// Rounds that are done.
        round: u64,
    },
    /// Its first round waits until so many devices are enrolled.
    Waits {
        /// The task's name.
        task: &'a str,
        /// The number of enrolled devices.
        enrolled: u64,
        /// The number needed to begin.
        begin_with: u64,
    },
    /// The operator wants something else of a task, and that is so from now on.
    Ordered {
        /// The task's name.
        task: &'a str,
        /// The new order.
        order: Order,
    },
    /// A round was released and recorded.
    Round {
        /// The task's name.
        task: &'a str,
        /// Rounds that are done.
        round: u64,
        /// How well the model does, where it was measured.
        metrics: Option<&'a Metrics>,
    },
    /// A model was measured after a round was reported: devices were asked.
    Evaluated {
        /// The task's name.
        task: &'a str,
        /// Rounds that are done.
        round: u64,
        /// How well the model does.
        metrics: &'a Metrics,
    },
    /// An attempt failed.
    Failed {
        /// The task's name.
        task: &'a str,
        /// Details of the failure.
        failed: &'a Failed,
    },
    /// An attempt at an evaluation by devices failed.
    FailedEvaluation {
        /// The task's name.
        task: &'a str,
        /// Details of the failure.
        failed: &'a FailedEvaluation,
    },
    /// A task is over.
    Over {
        /// The task's name.
        task: &'a str,
        /// Where its model and statement are.
        folder: &'a Path,
    },
    /// A task that was created was taken up.
    Created {
        /// The task's name.
        task: &'a str,
    },
    /// A task that was created cannot be begun, and is none any more.
    Refused {
        /// The task's name.
        task: &'a str,
        /// The reason.
        why: &'a str,
    },
    /// A task has begun and is not over, and this server was not given it.
    NotServed {
        /// The task's name.
        task: &'a str,
    },
    /// A task cannot continue; the others do.
    Broken {
        /// The task's name.
        task: &'a str,
        /// The cause.
        error: &'a ServeError,
    },
}

impl Happened<'_> {
    /// Operators see why attempts failed, and which ended with their task.
    fn told_to(&self, observed: &Observed) {
        match self {
            Self::Failed { task, failed } => observed.failed(task, false, failed.reason.words()),
            Self::FailedEvaluation { task, failed } => observed.failed(task, true, failed.reason.words()),
            Self::Over { task, .. } => observed.gives_up(task, false),
            Self::Broken { task, .. } => observed.gives_up(task, true),
            _ => {}
        }
    }
}

/// Why a server or a task of it cannot continue.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A run.
    #[error(transparent)]
    Run(Box<RunError>),
    /// What keeps its state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The store of the coordinator.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The coordinator.
    #[error(transparent)]
    Coordinator(Box<CoordinatorError>),
    /// Listening or TLS failed.
    #[error(transparent)]
    Http(Box<HttpError>),
    /// The ledger.
    #[error(transparent)]
    Ledger(Box<LedgerError>),
    /// A model cannot be written where its operator finds it.
    #[error("the model of a task cannot be written: {0}")]
    Model(#[from] FolderError),
    /// A model folder cannot be read or written.
    #[error(transparent)]
    Folder(#[from] ModelFolderError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The system gives no threads.
    #[error("the server cannot start its threads: {0}")]
    Threads(std::io::Error),
    /// Two tasks have one name, or are one.
    #[error("two tasks are called {name:?}; give each its own name")]
    SameTask {
        /// The name.
        name: String,
    },
    /// The terms of a task are not those that it was begun with.
    #[error(
        "the terms of {name} have changed since it was started: its vocabulary, its initial model or this program is different. The record of how often devices took part belongs to the old terms. Restore what it was started with, or end it with keyhush task stop {name} and start another task under another name"
    )]
    OtherTerms {
        /// The task's name.
        name: String,
    },
    /// The operating system has no randomness to give.
    #[error("the operating system provided no randomness")]
    Randomness(#[source] getrandom::Error),
    /// The server has no task.
    #[error("there is no task to serve: name a TASK.toml, or create a task with keyhush task create")]
    NoTask,
    /// Nobody who may approved a task.
    #[error("{name}: {problem}")]
    Approval {
        /// The task's name.
        name: String,
        /// What is missing or wrong, and what to do.
        problem: String,
    },
    /// A task of this name was begun, or was created.
    #[error("there is a task called {name:?} already: {problem}")]
    Taken {
        /// The task's name.
        name: String,
        /// How that one differs, and what to do.
        problem: String,
    },
    /// A task that was begun cannot be opened any more.
    #[error("the task {name} in the folder tasks of --data cannot be opened: {problem}")]
    Created {
        /// The task's name.
        name: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A name that no task can have.
    #[error(
        "{name:?} is not a valid task name: use 1 to 64 letters, digits, '-', '_' and '.', and no '.' at the start"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Another task is being created.
    #[error("another task is being created; try again")]
    Busy,
    /// The pseudonym key of a run that is not over is gone.
    #[error("the pseudonym key of {name} is missing from its secrets; the run cannot continue")]
    NoPseudonyms {
        /// The task's name.
        name: String,
    },
    /// The hub is down: what is durable is not known until the server begins again.
    #[error("the server cannot continue: {0}")]
    Down(String),
    /// A thread ended by a panic, which is a bug.
    #[error("a thread of the server panicked because of a bug (see above); nothing is lost, start it again")]
    Died,
    /// Connections ended by a panic, which is a bug.
    #[error(
        "{} ended because of a bug (see above). The tasks continued, and nothing is lost; please report it",
        counted(*connections, "connection")
    )]
    Panicked {
        /// Number of connections.
        connections: u64,
    },
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

boxed!(Run(RunError), Coordinator(CoordinatorError), Http(HttpError), Ledger(LedgerError));

impl ServeError {
    /// Whether a person can mend it in what they wrote of a task: then the others go on, and this one is refused.
    #[must_use]
    pub fn is_of_the_task(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::Folder(_)
            | Self::SameTask { .. }
            | Self::Approval { .. }
            | Self::Taken { .. }
            | Self::Name { .. }
            | Self::State(StateError::Name(_)) => true,
            Self::Run(error) => {
                matches!(**error, RunError::Config(_) | RunError::Model(_) | RunError::Undecided { .. })
            }
            Self::Ledger(error) => !matches!(**error, LedgerError::Storage { .. } | LedgerError::Poisoned),
            _ => false,
        }
    }

    /// The same with the name of the task that it is about, where its words do not have it.
    fn of(self, name: &str) -> Self {
        match self {
            Self::Config(error) => Self::Created { name: name.to_owned(), problem: error.to_string() },
            Self::Run(error) => Self::Created { name: name.to_owned(), problem: error.to_string() },
            other => other,
        }
    }
}

/// Where the runs of tasks are kept.
type HomeOf<S> = <<S as State>::Task as TaskState>::Home;

/// A task that is ready to be run.
struct Ready<T> {
    name: String,
    plan: Plan,
    opened: Opened,
    network: NetworkTask,
    /// The task of its evaluations by devices, where there are some.
    evaluation: Option<NetworkTask>,
    state: T,
    /// The digests of the terms that it was begun with, of rounds and of evaluations: who took part in it is known by those.
    known_as: (String, Option<String>),
}

impl<T> Ready<T> {
    /// A run continues under the terms that it was begun with. Under others nobody would have taken part yet (rule P18).
    fn refuse_other_terms(&self) -> Result<(), ServeError> {
        let now = (hex(&self.network.digest.0), self.evaluation.as_ref().map(|task| hex(&task.digest.0)));
        if self.known_as == now {
            return Ok(());
        }
        Err(ServeError::OtherTerms { name: self.name.clone() })
    }
}

impl<T> Ready<T> {
    /// What devices know it by: for training, and for evaluations.
    fn tasks(&self) -> impl Iterator<Item = (&NetworkTask, &str)> {
        let training = (&self.network, self.plan.phases()[0].stream.as_str());
        std::iter::once(training).chain(self.evaluation.as_ref().map(|task| (task, EVALUATION)))
    }
}

/// Runs a server on its state until it is told to stop, or its tasks are over.
///
/// # Errors
/// When it cannot begin, or what it must not forget cannot be kept.
pub fn serve<S: State>(
    state: &S,
    tasks: Vec<Written>,
    settings: Settings,
    stop: &Stop,
    happens: &(dyn Fn(&Happened<'_>) + Sync),
) -> Result<(), ServeError> {
    let Settings { listen, data, transport, admission, attestation, .. } = settings;
    let Settings { enrolments, means, limits, proxies, origins, pace, routes, officers, .. } = settings;
    let Settings { tells, observed, ends_with_tasks, .. } = settings;
    let happens = &|happened: &Happened<'_>| {
        happened.told_to(&observed);
        happens(happened);
    };
    let store = state.coordinator();
    let (orders, created) = (Orders::in_data(&data), Created::in_data(&data));
    let rules = Rules { realm: store.realm()?, officers };
    let ready = entering::ready(tasks, &created, (&rules, &data), state, happens)?;
    if ready.is_empty() && ends_with_tasks {
        return Err(ServeError::NoTask);
    }
    leave_others(&ready, state, happens)?;
    let mut coordinator = Coordinator::new(Arc::clone(&store), admission, pace, now_ms())?;
    for task in &ready {
        let entering = Entering::of(task, &*store, orders.of(&task.name))?;
        entering.iter().for_each(|e| e.seen_by(&observed, &task.name));
        entering.iter().try_for_each(|e| e.enter(&mut coordinator, now_ms()))?;
    }
    coordinator.limit_enrolments(enrolments, state.place_key()?, now_ms())?;
    let (hub, thread) = Hub::start(coordinator, Arc::clone(&store), ROOM, Arc::clone(&observed))?;
    let hub = hub.asking(attestation).on_disk(&data);
    let runtime = runtime()?;
    let server = runtime.block_on(http::bind(listen, transport, limits))?.behind(proxies).open_to(origins);
    happens(&Happened::Listening(server.address()));
    let (closing, closed) = tokio::sync::oneshot::channel();
    let app = http::told(http::app(Arc::new(hub.clone()), limits).merge(routes), tells);
    let door = runtime.spawn(server.serve(app, async { _ = closed.await }));
    let serving = Serving {
        hub: &hub,
        state,
        store: &*store,
        orders: &orders,
        created: &created,
        rules: &rules,
        observed: &observed,
        means,
        data: &data,
        stop,
        happens,
    };
    let run = serving.run_until_it_stops(ready, ends_with_tasks, closing);
    let served = runtime.block_on(door);
    hub.stop();
    thread.join().map_err(|_| ServeError::Died)?;
    runtime.shutdown_timeout(Duration::from_millis(500));
    judged(run, hub.failure(), &served.map_err(|_| ServeError::Died)?)
}

/// What became of a server. Connections that ended by a bug are told at the end.
fn judged(run: Result<(), ServeError>, failure: Option<String>, served: &Served) -> Result<(), ServeError> {
    run?;
    if let Some(why) = failure {
        return Err(ServeError::Down(why));
    }
    match served.panicked {
        0 => Ok(()),
        connections => Err(ServeError::Panicked { connections }),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, ServeError> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(16).build();
    built.map_err(ServeError::Threads)
}

/// Tasks that were served before and are not now are listed as not served, and it is said of those that are not over. Of those that are over devices are forgotten, where a crash was
/// quicker.
fn leave_others<S: State>(
    ready: &[Ready<S::Task>],
    state: &S,
    happens: &(dyn Fn(&Happened<'_>) + Sync),
) -> Result<(), ServeError> {
    for name in state.names()? {
        if ready.iter().any(|task| task.name == name) {
            continue;
        }
        let task = state.read_task(&name)?;
        let home = task.home();
        let Some(note) = task.note()? else { continue };
        let is_begun = home.is_begun()?;
        let is_closed = is_begun && Ledger::open(home.read_store()?, None, &[])?.is_closed();
        if is_begun && !is_closed {
            happens(&Happened::NotServed { task: &name });
        }
        if is_closed {
            let digests = [Some(&note.digest), note.evaluation.as_ref()].into_iter().flatten();
            let forget = digests.filter_map(|digest| unhex(digest).ok());
            state
                .coordinator()
                .commit(&forget.map(|digest| Write::Forget { task: TaskDigest(digest) }).collect::<Vec<_>>())?;
            state.erase()?;
        }
        task.write_note(&Note { served: false, ..note })?;
    }
    Ok(())
}

/// What all tasks of a server that runs share.
struct Serving<'a, S> {
    hub: &'a Hub,
    state: &'a S,
    store: &'a dyn Store,
    orders: &'a Orders,
    created: &'a Created,
    rules: &'a Rules,
    observed: &'a Observed,
    means: Means,
    data: &'a Path,
    stop: &'a Stop,
    happens: &'a (dyn Fn(&Happened<'_>) + Sync),
}

// Derived, these would ask for the same of the state.
impl<S> Clone for Serving<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Serving<'_, S> {}

impl<S: State> Serving<'_, S> {
    /// One task, until it is over or somebody wants the server to stop.
    fn run_one(self, task: &Ready<S::Task>) -> Result<(), ServeError> {
        let Ready { name, plan, opened, state, .. } = task;
        let home = state.home();
        let watched = Watched { serving: self, task, obeys: Cell::new(None), looked: Cell::new(Instant::now()) };
        watched.look_now()?;
        let is_begun = home.is_begun()? || home.paper(Paper::Settings).map_err(RunError::from)?.is_some();
        let mut run = if is_begun {
            Run::resume(home.clone(), plan, opened, self.means)?
        } else {
            Run::begin(home.clone(), plan, opened, self.means)?
        };
        if !run.ledger().is_closed() && watched.look_now()? != Order::Stop {
            task.refuse_other_terms()?;
        }
        (self.happens)(&Happened::Running { task: name, round: run.state().round });
        let (enrolled, begin_with) = (self.store.enrolled()?, task.network.asking.begin_with);
        if run.state().round == 0 && enrolled < begin_with {
            (self.happens)(&Happened::Waits { task: name, enrolled, begin_with });
        }
        if !run.ledger().is_closed() && !self.rounds(task, &mut run, &watched)? {
            // Where the store has failed nothing can be kept, and the server says why.
            return if self.hub.failure().is_some() { Ok(()) } else { Ok(run.checkpoint()?) };
        }
        let _ending = run.finish()?;
        // Nobody is asked any more; who took part in the last round still hears so. What is known of devices in it goes.
        watched.coordinator(|coordinator, task, now| coordinator.forget(task, now))?;
        self.state.erase()?;
        let folder = self.data.join(MODELS).join(name);
        export(state, &folder)?;
        (self.happens)(&Happened::Over { task: name, folder: &folder });
        Ok(())
    }

    /// The rounds of a task, as long as its operator wants them. Says whether it is over; if not, the server is to stop.
    fn rounds(
        self,
        task: &Ready<S::Task>,
        run: &mut Run<'_, HomeOf<S>>,
        watched: &Watched<'_, S>,
    ) -> Result<bool, ServeError> {
        let Ready { name, plan, network, evaluation, state, .. } = task;
        let home = state.home();
        let pseudonyms =
            home.secrets().pseudonym_key()?.ok_or_else(|| ServeError::NoPseudonyms { name: name.clone() })?;
        let driver = || TaskDriver { hub: self.hub.driver(), watched };
        let threads = self.means.threads;
        let network_fleet = |task: &NetworkTask| {
            let (secrets, pseudonyms) = (home.secrets(), pseudonyms.clone());
            Network::new(driver(), task.clone(), plan.windows, secrets, pseudonyms, threads)
        };
        let digests: Vec<TaskDigest> = task.tasks().map(|(network, _)| network.digest).collect();
        match destroy_key_of_settled(&mut driver(), &digests, &home.secrets()) {
            Err(FleetError::Stopped) => return Ok(false),
            done => done.map_err(RoundError::from).map_err(RunError::from)?,
        }
        let rounds = network_fleet(network);
        let mut fleet: Box<dyn Fleet + '_> = match evaluation {
            None => Box::new(rounds),
            Some(task) => Box::new(WithEvaluations { rounds, evaluations: network_fleet(task) }),
        };
        loop {
            // An attempt that devices have is brought to its end first, whatever is wanted: in a stop it fails, and has them on record.
            match watched.look_now()? {
                Order::Run => {}
                _ if self.is_with_devices(task)? => {}
                Order::Stop => return Ok(true),
                Order::Pause => match driver().wait(&network.digest, self.stop) {
                    Err(FleetError::Stopped) => return Ok(false),
                    waited => {
                        waited.map_err(RoundError::from).map_err(RunError::from)?;
                        continue;
                    }
                },
            }
            publish(state, plan, run)?;
            let step = match run.step(&mut fleet, self.stop) {
                Err(RunError::Round(error)) if matches!(*error, RoundError::Fleet(FleetError::Stopped)) => {
                    return Ok(false);
                }
                other => other?,
            };
            if let Some(failed) = &step.failed {
                (self.happens)(&Happened::Failed { task: name, failed });
            }
            if let Some(failed) = &step.failed_evaluation {
                (self.happens)(&Happened::FailedEvaluation { task: name, failed });
            }
            let round = run.state().round;
            if step.done.is_some() {
                (self.happens)(&Happened::Round { task: name, round, metrics: step.metrics.as_ref() });
            } else if let Some(metrics) = &step.metrics {
                (self.happens)(&Happened::Evaluated { task: name, round, metrics });
            }
            if step.over.is_some() {
                return Ok(true);
            }
            if self.stop.is_asked() {
                return Ok(false);
            }
        }
    }

    /// Whether devices were given an attempt of the task, at a round or at an evaluation, that is not settled.
    fn is_with_devices(self, task: &Ready<S::Task>) -> Result<bool, ServeError> {
        for (network, _) in task.tasks() {
            let open = self.store.open_attempt(&network.digest)?;
            if open.is_some_and(|open| !open.assigned.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The model that devices are given next is that of the last release: so says the ledger, whose head is compared in the transaction
/// that moves the pointer to it. Where that is not so, nobody is asked (rule P13).
fn publish<T: TaskState>(task: &T, plan: &Plan, run: &Run<'_, T::Home>) -> Result<(), ServeError> {
    let state = run.state();
    let release = |last: u64| (plan.phase(last).stream.as_str(), last - plan.phase(last).first);
    let after = AfterRound { rounds: state.round, release: state.round.checked_sub(1).map(release) };
    Ok(task.publish_model(&run.ledger().head(), after, *ModelDigest::of(&state.model).as_bytes())?)
}

/// What the server says of a task.
fn note<T>(task: &Ready<T>, obeys: Order) -> Note {
    let (digest, evaluation) = task.known_as.clone();
    Note { digest, evaluation, obeys, served: true, broken: None }
}

/// A task whose orders are looked at.
struct Watched<'a, S: State> {
    serving: Serving<'a, S>,
    task: &'a Ready<S::Task>,
    obeys: Cell<Option<Order>>,
    looked: Cell<Instant>,
}

impl<S: State> Watched<'_, S> {
    /// The operator's current order for the task. If it has changed, the coordinator knows it when this returns,
    /// and readers are told.
    fn look_now(&self) -> Result<Order, ServeError> {
        self.looked.set(Instant::now());
        let order = self.serving.orders.of(&self.task.name);
        let before = self.obeys.get();
        if before != Some(order) {
            self.tell(order)?;
            self.task.state.write_note(&note(self.task, order))?;
            if before.is_some() || order != Order::Run {
                (self.serving.happens)(&Happened::Ordered { task: &self.task.name, order });
            }
            self.obeys.set(Some(order));
        }
        Ok(order)
    }

    /// The coordinator does from now on what is wanted.
    fn tell(&self, order: Order) -> Result<(), ServeError> {
        self.coordinator(move |coordinator, task, now| coordinator.order(task, order, now))
    }

    fn coordinator(
        &self,
        act: impl Fn(&mut Coordinator, &TaskDigest, u64) -> Result<(), CoordinatorError> + Send,
    ) -> Result<(), ServeError> {
        let digests: Vec<TaskDigest> = self.task.tasks().map(|(network, _)| network.digest).collect();
        let all = move |coordinator: &mut Coordinator, now| {
            digests.iter().try_for_each(|digest| act(coordinator, digest, now))
        };
        match self.serving.hub.driver().with(all) {
            // The hub is down, and the server with it.
            Err(FleetError::Stopped) => Ok(()),
            other => Ok(other.map_err(RoundError::from).map_err(RunError::from)?),
        }
    }
}

/// How the fleet of a task reaches the coordinator; while it waits, orders are looked at.
struct TaskDriver<'a, S: State> {
    hub: HubDriver,
    watched: &'a Watched<'a, S>,
}

impl<S: State> Driver for TaskDriver<'_, S> {
    fn with<R: Send>(
        &mut self,
        act: impl FnOnce(&mut Coordinator, u64) -> Result<R, CoordinatorError> + Send,
    ) -> Result<R, FleetError> {
        self.hub.with(act)
    }

    fn wait(&mut self, task: &TaskDigest, stop: &Stop) -> Result<(), FleetError> {
        self.hub.wait(task, stop)?;
        if self.watched.looked.get().elapsed() >= orders::EVERY {
            self.watched.look_now().map_err(|error| FleetError::Driver(Box::new(error)))?;
        }
        Ok(())
    }

    fn coins(&mut self) -> Box<dyn Entropy + Send> {
        self.hub.coins()
    }
}

/// Puts the model, the statement, how well the models did, and the ledger with who took part, as pseudonyms whose key is gone, where people
/// find them: what `keyhush privacy verify` and `statement` read.
fn export(task: &impl TaskState, folder: &Path) -> Result<(), ServeError> {
    let home = task.home();
    if let Some(Files { weights, config, vocabulary, card }) = task.model()? {
        let source = Source { weights: &mut &weights[..], config: &config, vocabulary: &vocabulary, card: &card };
        model_folder::write(&Folder::read(source)?, folder)?;
    }
    files::make_folder(folder)?;
    for (paper, file) in [(Paper::Statement, STATEMENT_FILE), (Paper::StatementJson, STATEMENT_JSON)] {
        if let Some(text) = home.paper(paper).map_err(RunError::from)? {
            files::write(&folder.join(file), text.as_bytes())?;
        }
    }
    let lines = home.lines(Log::Metrics).map_err(RunError::from)?;
    files::write(
        &folder.join(METRICS_FILE),
        lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes(),
    )?;
    Ok(Place::new(folder.join(LEDGER_FILE)).copy(&home.read_store()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_ended_by_a_bug_are_told_at_the_end() {
        assert!(judged(Ok(()), None, &Served { connections: 9, cut: 2, ..Served::default() }).is_ok());
        let told = judged(Ok(()), None, &Served { panicked: 3, ..Served::default() }).unwrap_err();
        assert!(told.to_string().starts_with("3 connections ended because of a bug"), "{told}");
    }
}
