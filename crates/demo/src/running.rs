//! Server and devices of a demo, from their start to their end.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::Scope,
    time::{Duration, Instant},
};

use agent::{
    http::{Server as ServerOfDevices, Trust},
    many::{self, Behaviour, Tally},
    text::{Synthetic, TextSource},
    training::{Learning, Trainers},
};
use console::{
    Console,
    about::About,
    access::{Access, Role},
};
use corpus::synth::{Crowd, Dialect, SynthPlan};
use device::{
    guard::{Limits as DeviceLimits, Timer, Window},
    protocol::policy::Policy,
};
use federated::{
    engine::Means,
    fleet::Stop,
    home::{Home, Log},
    metrics::Metrics,
    numbers::counted,
    price::Price,
    protocol::{
        admission::{ByToken, EnrolmentLimits},
        order::Order,
        pace::Pace,
    },
};
use lm::kernels::KernelPath;
use serde::Serialize;
use server::{
    http::{Limits, Origins, Proxies, Transport},
    listing,
    observed::Observed,
    orders::Orders,
    sqlite::SqliteState,
    state::{State, TaskState},
    tasks::{self, Happened, ServeError, Written},
    token::token_in,
};
use tokio::{runtime::Runtime, sync::watch};

use crate::{Costs, DemoError, Place, Settings, about::strength};

/// What the task is called.
pub const TASK: &str = "demo";
/// The seed of the devices' people and keys.
const SEED: u64 = 1;
/// How often it is looked whether somebody wants the demo to end.
const LOOK: Duration = Duration::from_millis(50);
/// It is given up when no attempt at a round ends for so long.
const PATIENCE: Duration = Duration::from_secs(180);
/// So long a task that is kept may take to be closed.
const CLOSES: Duration = Duration::from_secs(15);
/// So long devices may take to stop.
const DEVICES_STOP: Duration = Duration::from_secs(2);
/// Files of a demo beside its connections: those of the database, of both runtimes, of the dashboard's readers.
const OTHER_FILES: u64 = 300;

/// A demo.
#[derive(Debug, Clone)]
pub struct Demo {
    /// The settings of its task.
    pub settings: Settings,
    /// What the page says of it.
    pub about: Arc<About>,
    /// The port on loopback; 0 for any.
    pub port: u16,
    /// Threads of the server, and of the devices' training, each.
    pub threads: usize,
    /// The kernels.
    pub kernels: KernelPath,
}

/// What happens in a demo.
#[derive(Debug)]
pub enum Step<'a> {
    /// The server listens, and the model was measured before its first round.
    Begins {
        /// The address of the page.
        page: &'a str,
        /// The accuracy of the model that nobody has trained yet.
        accuracy: f64,
    },
    /// A round was released.
    Round {
        /// Rounds that are done.
        round: u64,
        /// The accuracy of its model, where it was measured.
        accuracy: Option<f64>,
    },
    /// An attempt at a round failed, and will be repeated.
    Failed {
        /// The reason of the failure, for people.
        why: &'a str,
    },
    /// Somebody wants the demo to end, and it does.
    Ends,
}

/// Why a demo ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All of its rounds are done: the plan's participations are spent.
    PlanDone,
    /// Somebody stopped it.
    Stopped,
}

/// What came of a demo.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Why it ended.
    pub ended: Ended,
    /// Rounds that were released.
    pub rounds: u64,
    /// Rounds of the plan.
    pub planned_rounds: u64,
    /// Devices.
    pub devices: u64,
    /// From the start of the server to its end.
    pub seconds: f64,
    /// The share of next words that the first model predicted of people who have no device.
    pub accuracy_start: f64,
    /// That of the last model that was measured. In the first rounds it jumps, so the end of a short demo may be below its start.
    pub accuracy_end: f64,
    /// The best of all that were measured.
    pub accuracy_best: f64,
    /// Epsilon, under a name that says what it is: by the ledger, `epsilon` is guaranteed.
    #[serde(flatten)]
    pub price: Price,
    /// The delta of it.
    pub delta: f64,
    /// What it means, in words.
    pub epsilon_means: String,
    /// What the plan costs, and what the same plan would with a million devices.
    pub plan: Costs,
    /// The address of the page.
    pub address: String,
    /// The folder that was kept.
    pub kept: Option<PathBuf>,
}

/// What is heard of the server.
enum Heard {
    Listening(SocketAddr),
    Running,
    Round(u64, Option<f64>),
    Failed(String),
    Broken(String),
    Ended(Result<(), ServeError>),
}

impl Demo {
    /// Refuses a demo with more devices than this process can have files for. The server itself raises the limit as far as it may.
    ///
    /// # Errors
    /// When there are too few.
    pub fn check_files(&self) -> Result<(), DemoError> {
        enough_files(self.settings.devices, files())
    }

    /// Runs it in a folder, until its plan is done or somebody wants it to end.
    ///
    /// # Errors
    /// When something of it cannot begin, or fails.
    pub fn run(&self, place: &Place, stop: &Stop, happens: &mut dyn FnMut(Step<'_>)) -> Result<Summary, DemoError> {
        let costs = Costs::of(&self.settings)?;
        let folders = Folders::make(place.folder())?;
        folders.write_settings(&self.settings)?;
        let token = folders.token()?;
        let access = Access::in_secrets(&folders.secrets);
        let operator = access.create(TASK, Role::Operator)?;
        let state = SqliteState::open(&folders.data, &folders.secrets)?;
        let began = Instant::now();
        let halt = Stop::new();
        let (tell, heard) = channel();
        let watched = std::thread::scope(|scope| {
            // Whatever ends the demo ends the server with it: otherwise the scope would wait for it.
            let _halted = Halted(&halt);
            self.start_server(scope, &folders, &state, (&token, access), &halt, tell)?;
            let watch =
                Watch { demo: self, folders: &folders, state: &state, stop, halt: &halt, kept: place.is_kept() };
            watch.until_it_ends(&heard, [&token, operator.text()], happens)
        })?;
        let seconds = began.elapsed().as_secs_f64();
        self.summary(&state, &folders, place, costs, &watched, seconds)
    }

    fn start_server<'scope, 'env: 'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        folders: &Folders,
        state: &'env SqliteState,
        (token, access): (&str, Access),
        halt: &'env Stop,
        tell: Sender<Heard>,
    ) -> Result<(), DemoError> {
        let (limits, observed) = (Limits::default(), Arc::<Observed>::default());
        let console = Console {
            state: Arc::new(SqliteState::read(&folders.data)?),
            data: folders.data.clone(),
            access,
            officers: Vec::new(),
            limits,
            observed: Arc::clone(&observed),
            about: Some(Arc::clone(&self.about)),
        };
        let settings = tasks::Settings {
            listen: (Ipv4Addr::LOCALHOST, self.port).into(),
            data: folders.data.clone(),
            transport: Transport::PlainOnLoopback,
            admission: Box::new(ByToken::new(token.as_bytes().to_vec())),
            attestation: None,
            enrolments: EnrolmentLimits::default(),
            means: Means::threads(self.kernels, self.threads),
            limits,
            proxies: Proxies::default(),
            origins: Origins::default(),
            pace: Pace { least_s: 0.0, ..Pace::default() },
            observed,
            routes: console.router(),
            tells: server::http::Tells::default(),
            ends_with_tasks: true,
            officers: Vec::new(),
        };
        let written = Written { name: TASK.to_owned(), config: self.settings.config()?, approval: None };
        let serve = move || {
            let heard = tell.clone();
            let ended = tasks::serve(state, vec![written], settings, halt, &move |happened| {
                if let Some(said) = said(happened) {
                    _ = heard.send(said);
                }
            });
            _ = tell.send(Heard::Ended(ended));
        };
        std::thread::Builder::new().name("server".to_owned()).spawn_scoped(scope, serve).map_err(DemoError::Threads)?;
        Ok(())
    }

    fn summary(
        &self,
        state: &SqliteState,
        folders: &Folders,
        place: &Place,
        plan: Costs,
        watched: &Watched,
        seconds: f64,
    ) -> Result<Summary, DemoError> {
        let listed = listing::list(state, &Orders::in_data(&folders.data))?;
        let spent = listed.into_iter().find(|task| task.task == TASK).and_then(|task| task.ledger);
        let nothing = || if watched.ended == Ended::Stopped { DemoError::StoppedEarly } else { DemoError::Died };
        let spent = spent.ok_or_else(nothing)?;
        let accuracies = accuracies(state)?;
        let of = |accuracy: Option<&f64>| accuracy.copied().ok_or_else(nothing);
        Ok(Summary {
            ended: watched.ended,
            rounds: spent.rounds,
            planned_rounds: spent.planned_rounds,
            devices: self.settings.devices,
            seconds,
            accuracy_start: of(accuracies.first())?,
            accuracy_end: of(accuracies.last())?,
            accuracy_best: of(accuracies.iter().max_by(|a, b| a.total_cmp(b)))?,
            price: spent.holds,
            delta: spent.delta.get(),
            epsilon_means: means(&spent.holds, self.settings.devices),
            plan,
            address: watched.page.clone(),
            kept: place.is_kept().then(|| place.folder().to_owned()),
        })
    }
}

fn enough_files(devices: u64, possible: u64) -> Result<(), DemoError> {
    let needed = 2 * devices + OTHER_FILES;
    if needed <= possible {
        return Ok(());
    }
    Err(DemoError::Files { devices, needed, possible, most: possible.saturating_sub(OTHER_FILES) / 2 })
}

/// The most files that this process may have.
fn files() -> u64 {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    #[cfg(not(unix))]
    u64::MAX
}

/// An epsilon in words, as honest as it is large.
fn means(price: &Price, devices: u64) -> String {
    let (epsilon, strength) = (price.epsilon.get(), strength(price.epsilon.get()));
    let because = if epsilon > 1.0 {
        format!(": {} are too few for a small one", counted(devices, "device"))
    } else {
        String::new()
    };
    format!(
        "the guarantee of the whole plan, from the signed ledger. The noise was drawn from the operating system and was secret. Such an epsilon {strength}{because}"
    )
}

/// The accuracies that were measured, the first before training.
fn accuracies(state: &SqliteState) -> Result<Vec<f64>, DemoError> {
    let lines = state.read_task(TASK)?.home().lines(Log::Metrics).map_err(federated::run::RunError::from)?;
    let read = |line: &String| serde_json::from_str::<Metrics>(line).ok();
    Ok(lines.iter().filter_map(read).map(|metrics| metrics.measured.headline()).collect())
}

/// What the server says, as far as a demo needs it.
fn said(happened: &Happened<'_>) -> Option<Heard> {
    Some(match happened {
        Happened::Listening(address) => Heard::Listening(*address),
        Happened::Running { .. } => Heard::Running,
        Happened::Round { round, metrics, .. } => {
            Heard::Round(*round, metrics.map(|metrics| metrics.measured.headline()))
        }
        Happened::Failed { failed, .. } => Heard::Failed(failed.to_string()),
        Happened::Broken { error, .. } => Heard::Broken(error.to_string()),
        _ => return None,
    })
}

/// Ends the server, also where the demo fails.
struct Halted<'a>(&'a Stop);

impl Drop for Halted<'_> {
    fn drop(&mut self) {
        self.0.ask();
    }
}

/// Where the server keeps its files.
struct Folders {
    root: PathBuf,
    data: PathBuf,
    secrets: PathBuf,
}

impl Folders {
    fn make(root: &Path) -> Result<Self, DemoError> {
        let folders = Self { root: root.to_owned(), data: root.join("data"), secrets: root.join("secrets") };
        for folder in [&folders.data, &folders.secrets] {
            crate::place::make(folder)?;
        }
        Ok(folders)
    }

    fn write_settings(&self, settings: &Settings) -> Result<(), DemoError> {
        let path = self.root.join(format!("{TASK}.toml"));
        let failed = |error| DemoError::Folder { what: "write", path: path.clone(), error };
        std::fs::write(&path, settings.text()?).map_err(failed)
    }

    /// The token that devices enrol with: other programs on this machine do not have it.
    fn token(&self) -> Result<String, DemoError> {
        let path = token_in(&self.secrets)?;
        let failed = |error| DemoError::Folder { what: "read", path: path.clone(), error };
        Ok(std::fs::read_to_string(&path).map_err(failed)?.trim().to_owned())
    }
}

/// What is known of a demo that is over.
struct Watched {
    ended: Ended,
    page: String,
}

/// A demo that runs.
struct Watch<'a> {
    demo: &'a Demo,
    folders: &'a Folders,
    state: &'a SqliteState,
    stop: &'a Stop,
    halt: &'a Stop,
    kept: bool,
}

impl Watch<'_> {
    fn until_it_ends(
        &self,
        heard: &Receiver<Heard>,
        [token, operator]: [&str; 2],
        happens: &mut dyn FnMut(Step<'_>),
    ) -> Result<Watched, DemoError> {
        let (mut page, mut last, mut words) = (String::new(), Instant::now(), "no round has ended yet".to_owned());
        let mut devices = None;
        let mut ends: Option<Instant> = None;
        loop {
            let next = match heard.recv_timeout(LOOK) {
                Ok(next) => Some(next),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err(DemoError::Died),
            };
            match next {
                None => {}
                Some(Heard::Listening(address)) => {
                    page = format!("http://{address}/");
                    devices = Some(Devices::start(self.demo, address, token)?);
                }
                Some(Heard::Running) => {
                    let accuracy = accuracies(self.state)?.first().copied().unwrap_or(f64::NAN);
                    // The token is in the part of the address that browsers do not send.
                    happens(Step::Begins { page: &format!("{page}#token={operator}&task={TASK}"), accuracy });
                    last = Instant::now();
                }
                Some(Heard::Round(round, accuracy)) => {
                    happens(Step::Round { round, accuracy });
                    (last, words) = (Instant::now(), format!("the last was round {round}"));
                }
                Some(Heard::Failed(why)) => {
                    happens(Step::Failed { why: &why });
                    (last, words) = (Instant::now(), why);
                }
                Some(Heard::Broken(why)) => words = why,
                Some(Heard::Ended(ended)) => {
                    ended?;
                    drop(devices);
                    let ended = if ends.is_some() { Ended::Stopped } else { Ended::PlanDone };
                    return Ok(Watched { ended, page });
                }
            }
            match ends {
                None if self.stop.is_asked() => {
                    ends = Some(Instant::now());
                    happens(Step::Ends);
                    self.end()?;
                }
                Some(since) if since.elapsed() > CLOSES => self.halt.ask(),
                None if last.elapsed() > PATIENCE => {
                    return Err(DemoError::Stuck { seconds: PATIENCE.as_secs(), last: words });
                }
                _ => {}
            }
        }
    }

    /// A task that is kept is closed first, so that its ledger, statement and model can be looked at.
    fn end(&self) -> Result<(), DemoError> {
        if self.kept {
            let stopped = Orders::in_data(&self.folders.data).give(TASK, Order::Stop);
            return stopped.map_err(|error| ServeError::from(error).into());
        }
        self.halt.ask();
        Ok(())
    }
}

/// The devices, until this is dropped.
struct Devices {
    ask: watch::Sender<bool>,
    runtime: Option<Runtime>,
}

impl Devices {
    fn start(demo: &Demo, address: SocketAddr, token: &str) -> Result<Self, DemoError> {
        let Settings { devices, max_participations, .. } = demo.settings;
        // Each has one request open at a time.
        let connections = usize::try_from(devices).unwrap_or(usize::MAX);
        let server = ServerOfDevices::new(&format!("http://{address}"), &Trust::Loopback, connections)?;
        let trainers = Trainers::new(demo.threads, Learning::Train);
        let people = SynthPlan::new(SEED, devices, Dialect::Informal);
        let crowd = Arc::new(Crowd::new(people).map_err(|_| DemoError::Died)?);
        let plan = many::Plan {
            count: devices,
            behaviour: Behaviour::Steady,
            seed: SEED,
            day_s: 86_400.0,
            spread_s: 0.5,
            inputs: 64,
            token: token.as_bytes().to_vec(),
            attestation: Vec::new(),
            policy: Policy::for_made_up_people(),
            limits: DeviceLimits {
                most_inputs: u32::try_from(max_participations).unwrap_or(u32::MAX),
                window: Window::Ever,
                separation: None,
                timer: Timer::NONE,
            },
            patience_ms: 20_000,
            keep_until_thanked: true,
            text: Arc::new(move |user| Arc::new(Synthetic { crowd: Arc::clone(&crowd), user }) as Arc<dyn TextSource>),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
        let runtime = runtime.map_err(DemoError::Threads)?;
        let (ask, asked) = watch::channel(false);
        runtime.spawn(many::run(plan, Arc::new(server), Arc::new(trainers), Arc::new(Tally::default()), asked));
        Ok(Self { ask, runtime: Some(runtime) })
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        _ = self.ask.send(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(DEVICES_STOP);
        }
    }
}

#[cfg(test)]
mod tests {
    use federated::price::Meaning;
    use privacy::Epsilon;

    use super::*;

    #[test]
    fn more_devices_than_files_are_refused() {
        assert!(enough_files(200, 1024).is_ok() && enough_files(1000, 1 << 20).is_ok());
        let refused = enough_files(1000, 1024).unwrap_err();
        assert!(refused.to_string().contains("use at most 362 devices"), "{refused}");
        assert!(enough_files(362, 1024).is_ok() && enough_files(363, 1024).is_err() && enough_files(20, 0).is_err());
    }

    #[test]
    fn p23_a_large_epsilon_is_said_to_protect_nobody() {
        let price =
            |epsilon| Price { meaning: Meaning::Guaranteed, epsilon: Epsilon::new(epsilon).unwrap(), rho: None };
        assert!(means(&price(800.0), 200).contains("protects nobody in practice: 200 devices are too few"));
        assert!(means(&price(8.0), 1000).contains("weak guarantee: 1,000 devices are too few"));
        assert!(!means(&price(0.5), 1000).contains("too few"));
    }
}
