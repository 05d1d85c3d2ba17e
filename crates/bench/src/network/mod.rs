//! Measures a server and its devices as real processes on loopback: overhead per round, and whether anything is lost.
//!
//! ```text
//! this process --starts--> keyhush serve        (killed and started again, if asked)
//!              --starts--> keyhush device --synthetic --count N
//!              --reads---> the server's ledger and model, the devices' list of what they gave
//! ```
//!
//! | module      | what it is                                                            |
//! |-------------|-----------------------------------------------------------------------|
//! | `processes` | a process that is started, watched and ended; its CPU time and memory |
//! | `server`    | the server's process, and what it says                                |
//! | `fleet`     | the devices' process, and what they gave                              |
//! | `record`    | what the server has on record: rounds, failures, who took part        |
//! | `account`   | participations that were lost or doubled; times of rounds             |
//! | `floor`     | what reading, checking and adding the reports costs by itself         |
//! | `slow`      | connections that never finish, and what honest devices notice of them |
//!
//! The noise of the task follows from a seed, so the threads engine can play the recorded cohorts again ([`federated::replay`]) and must
//! come to the same model.

mod account;
mod fleet;
mod floor;
mod processes;
mod record;
mod server;
mod slow;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use ::device::{guard::ModelDigest, protocol::terms::Purpose};
use corpus::synth::{Crowd, Dialect, SynthPlan};
use federated::{
    config::Document,
    engine::Means,
    fleet::Stop,
    metrics::{ByDevices, METRICS_FILE, Metrics},
    model_folder,
    plan::Plan,
    population::SyntheticPopulation,
    replay::{self, Played, ReplayError},
    run::Opened,
};
use ledger::hex;
use lm::{folder::Weights, kernels::KernelPath, tokenizer::Tokenizer};
use serde::Serialize;

pub use self::{
    account::{Participations, RoundTimes, ServerSteps},
    floor::Floor,
    processes::Used,
    slow::{Answered, SlowRun, SlowTook},
};
use self::{fleet::DevicesProcess, record::Record, server::ServerProcess};
use crate::{BenchError, at_least_one};

const SETTINGS: &str = include_str!("task.toml");
/// What the task is called.
const TASK: &str = "network";
/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The seed of the synthetic users and their keys.
const SEED: u64 = 1;

/// The parameters of the benchmark.
#[derive(Debug, Clone)]
pub struct NetworkRun {
    /// The program: `keyhush`.
    pub program: PathBuf,
    /// Devices.
    pub devices: u64,
    /// Reports of a round.
    pub goal: u64,
    /// Rounds.
    pub rounds: u64,
    /// Whether sums are made securely.
    pub secagg: bool,
    /// The model: a preset.
    pub model: String,
    /// Rounds between two kills of the server, on average; none where it lives.
    pub kill_server_every: Option<u64>,
    /// Whether devices send ready-made reports instead of training.
    pub ready_made: bool,
    /// The length of the devices' day in seconds, where they behave as people's phones do; none where they are always there.
    pub realistic_day_s: Option<f64>,
    /// Threads of the server and of the devices' training, each.
    pub threads: usize,
    /// Other values for settings.
    pub set: Vec<String>,
    /// It is given up when no attempt ends for so long.
    pub patience: Duration,
}

/// Progress of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Rounds were released.
    Rounds {
        /// Rounds done so far.
        done: u64,
        /// The total number.
        of: u64,
    },
    /// The server was killed, and is started again.
    Killed {
        /// The number of kills so far.
        times: u64,
    },
    /// The threads engine plays the cohorts again.
    Replays,
    /// The floor is measured.
    Floor,
}

/// The results.
#[derive(Debug, Clone, Serialize)]
pub struct NetworkTook {
    /// Devices.
    pub devices: u64,
    /// Reports of a round.
    pub goal: u64,
    /// Rounds that were asked for.
    pub rounds: u64,
    /// Whether sums were made securely.
    pub secagg: bool,
    /// The model.
    pub model: String,
    /// Its parameters.
    pub parameters: u64,
    /// Whether reports were ready-made.
    pub ready_made: bool,
    /// Rounds that were released.
    pub rounds_closed: u64,
    /// Failed attempts at rounds.
    pub rounds_failed: u64,
    /// How often the server was killed.
    pub kills: u64,
    /// How long it took to be there again; none where it was not killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
    /// What became of what devices gave.
    pub participations: Participations,
    /// Evaluations by devices, where there were to be some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluations: Option<Evaluations>,
    /// The last model beside the replayed one.
    pub digests: Digests,
    /// The server's processes together.
    pub server: Used,
    /// What reading, checking and adding the reports costs by itself; none where sums are secure.
    pub floor: Option<Floor>,
    /// The devices' process.
    pub device_process: Used,
    /// Bytes from devices to the server, as TCP carries them.
    pub bytes_up: u64,
    /// Bytes from the server to devices.
    pub bytes_down: u64,
    /// Times that a device crashed and started again, and that one was taken up by its owner during a participation.
    pub devices_crashed: u64,
    /// See [`Self::devices_crashed`].
    pub devices_left: u64,
    /// Reports refused by the server, most of them because they came after the goal was reached.
    pub refused_by_server: u64,
    /// Connections that broke, and answers that were none, until the last round was released.
    pub broken: u64,
    /// The same afterwards: the server is done and ends, and devices that wait for the next round get no answer.
    pub broken_at_the_end: u64,
    /// What rounds took; none where there are not two releases one after the other without a kill in between.
    pub round: Option<RoundTimes>,
    /// What of the overhead is the server's own work after the sum is there, on average.
    pub server_steps: Option<ServerSteps>,
    /// Seconds from the start of the devices to the end of the server.
    pub wall_s: f64,
}

/// The last model of the server, and that of the threads engine over the recorded cohorts.
#[derive(Debug, Clone, Serialize)]
pub struct Digests {
    /// SHA-256 of the parameters of the server's last model.
    pub server: String,
    /// The same of the threads engine's; none where it cannot play them again.
    pub threads: Option<String>,
    /// Whether they are equal; none where it cannot.
    pub equal: Option<bool>,
    /// Why the run cannot be replayed.
    pub not_replayed: Option<String>,
    /// Whether what devices measured is what the threads engine measures over the same devices; none where it cannot tell, or devices
    /// were not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_devices_equal: Option<bool>,
}

/// The recovery times of a killed server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Restarts {
    /// From its start until it listened, in seconds: the longest.
    pub listening_s: f64,
    /// From its start until it released a round, in seconds: the longest. Correlated noise of earlier rounds is drawn again before that, and devices
    /// come back.
    pub first_release_s: Option<f64>,
    /// The most rounds that were over when it was started again.
    pub rounds_before: u64,
}

impl Restarts {
    /// Of all of them; none where there was none.
    fn of(all: &[server::Restart]) -> Option<Self> {
        let longest = |of: fn(&server::Restart) -> Option<f64>| all.iter().filter_map(of).reduce(f64::max);
        let rounds_before = all.iter().map(|restart| restart.rounds).max()?;
        let listening_s = longest(|restart| restart.listening_s)?;
        Some(Self { listening_s, first_release_s: longest(|restart| restart.release_s), rounds_before })
    }
}

/// Evaluations by devices.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Evaluations {
    /// How many were released.
    pub released: u64,
    /// What became of what devices gave.
    pub participations: Participations,
}

/// The task, as it was written and as it is.
struct Task {
    set: Vec<String>,
    plan: Plan,
    opened: Opened,
}

/// What was seen while it ran.
struct Seen {
    releases: Vec<account::Release>,
    kills: u64,
    restarts: Option<Restarts>,
    server: Used,
    record_key: ledger::PseudonymKey,
    devices: fleet::Came,
    wall_s: f64,
}

impl NetworkRun {
    /// Runs it.
    ///
    /// # Errors
    /// When the settings are refused, a process cannot be started or ends by itself, nothing happens for too long, or somebody asks to
    /// stop.
    pub fn run(&self, stop: &Stop, happens: &mut dyn FnMut(Step)) -> Result<NetworkTook, BenchError> {
        let counts = [("devices", self.devices), ("goal", self.goal), ("rounds", self.rounds)];
        at_least_one(counts.map(|(field, value)| (field, value as usize)))?;
        at_least_one([("threads", self.threads)])?;
        at_least_one([("kill_server_every", self.kill_server_every.unwrap_or(1) as usize)])?;
        if self.goal > self.devices {
            let problem = format!("{} reports per round are not possible with {} devices", self.goal, self.devices);
            return Err(BenchError::wrong("goal", problem));
        }
        let task = self.task()?;
        let folder = tempfile::tempdir().map_err(BenchError::failed)?;
        std::fs::write(folder.path().join(format!("{TASK}.toml")), SETTINGS).map_err(BenchError::failed)?;
        let seen = self.watch(folder.path(), &task, stop, happens)?;
        let keys: Vec<[u8; 32]> = (0..self.devices).map(agent_key).collect();
        let record = Record::read(folder.path(), &seen.record_key, &keys)?;
        happens(Step::Replays);
        let digests = self.digests(folder.path(), &task, &record)?;
        happens(Step::Floor);
        let floor = self.floor(&task, &record, seen.server.cpu_s)?;
        Ok(self.took(&task, &record, &seen, digests, floor))
    }

    fn floor(&self, task: &Task, record: &Record, server_cpu_s: f64) -> Result<Option<Floor>, BenchError> {
        if self.secagg {
            return Ok(None);
        }
        let clip = task.plan.rule(task.plan.stage(0).clip).map_err(BenchError::failed)?.bound();
        let coding = task.plan.phase(0).coding(clip).map_err(BenchError::failed)?;
        let reports = record.cohorts.rounds.iter().map(|cohort| cohort.len() as u64).sum();
        Floor::measure(&coding.encoding, reports, server_cpu_s).map(Some)
    }

    fn task(&self) -> Result<Task, BenchError> {
        let mut set = vec![
            format!("model.preset={}", self.model),
            format!("participation.population={}", self.devices),
            format!("participation.cohort={}", self.goal),
            format!("participation.max_participations={}", self.rounds),
            format!("devices.begin_with={}", self.devices),
            format!("rounds={}", self.rounds),
        ];
        if self.secagg {
            set.push("aggregation=secagg".to_owned());
            set.push("secagg.dropout=0.05".to_owned());
        }
        set.extend(self.set.iter().cloned());
        let config = Document::built_in(SETTINGS, &set)?.config()?;
        if config.noise_seed.is_none() {
            return Err(BenchError::wrong("set", "noise_seed is needed, since these devices are synthetic"));
        }
        let opened = Opened::new(&config)?;
        let plan = Plan::new(config, &opened.setting())?;
        Ok(Task { set, plan, opened })
    }

    /// Starts both processes, and watches them until the task is over.
    fn watch(
        &self,
        folder: &Path,
        task: &Task,
        stop: &Stop,
        happens: &mut dyn FnMut(Step),
    ) -> Result<Seen, BenchError> {
        let mut server = ServerProcess::start(self, folder, &task.set, false)?;
        let record_key = server.pseudonyms(folder)?;
        let began = Instant::now();
        let mut devices = DevicesProcess::start(self, folder, server.address())?;
        let mut kills = Kills::every(self.kill_server_every);
        let (mut releases, mut last, mut ended) = (Vec::new(), Instant::now(), 0);
        while !server.is_over()? {
            if stop.is_asked() {
                return Err(BenchError::failed("stopped"));
            }
            devices.check()?;
            for round in server.hear(LOOK) {
                releases.push(account::Release { round, at_s: unix_s(), kills: kills.times });
                happens(Step::Rounds { done: round, of: self.rounds });
            }
            if server.attempts() != ended {
                (ended, last) = (server.attempts(), Instant::now());
            }
            if last.elapsed() > self.patience {
                let problem = format!(
                    "no attempt ended within {} s; log of the server:\n{}",
                    self.patience.as_secs(),
                    server.words()
                );
                return Err(BenchError::failed(problem));
            }
            if kills.is_due(server.rounds()) {
                server.kill_and_start_again(self, folder, &task.set)?;
                happens(Step::Killed { times: kills.times });
            }
        }
        for round in server.hear(Duration::ZERO) {
            releases.push(account::Release { round, at_s: unix_s(), kills: kills.times });
        }
        let wall_s = began.elapsed().as_secs_f64();
        let devices = devices.stop(folder)?;
        let (kills, restarts, server) = (kills.times, Restarts::of(&server.restarts()), server.used());
        Ok(Seen { releases, kills, restarts, server, record_key, devices, wall_s })
    }

    fn digests(&self, folder: &Path, task: &Task, record: &Record) -> Result<Digests, BenchError> {
        let model = model_folder::read(&folder.join("data").join("models").join(TASK))?;
        let Weights::Recurrent { values, .. } = model.weights else {
            return Err(BenchError::wrong("model", "is not a recurrent one"));
        };
        let digest = |values: &[f32]| hex(ModelDigest::of(values).as_bytes());
        let server = digest(&values);
        Ok(match self.replayed(task, record)? {
            Ok(Played { model, by_devices }) => {
                let threads = digest(&model);
                let equal = Some(threads == server);
                let said = measured_by_devices(folder)?;
                let by_devices_equal = task.plan.device_evaluations.as_ref().map(|_| said == by_devices);
                Digests { server, threads: Some(threads), equal, not_replayed: None, by_devices_equal }
            }
            Err(why) => Digests { server, threads: None, equal: None, not_replayed: Some(why), by_devices_equal: None },
        })
    }

    /// What threads come to over the recorded cohorts, or why they cannot.
    fn replayed(&self, task: &Task, record: &Record) -> Result<Result<Played, String>, BenchError> {
        if self.ready_made {
            return Ok(Err("the reports were ready-made, so there is no training to repeat".to_owned()));
        }
        let Task { plan, opened, .. } = task;
        if plan.upload.told().is_some_and(|upload| upload.keeps_rest()) {
            return Ok(Err("devices keep what they do not send, also those whose report came too late".to_owned()));
        }
        let crowd = SynthPlan::new(SEED, self.devices, Dialect::Informal);
        let crowd = Crowd::new(crowd).map_err(BenchError::failed)?;
        let tokenizer = Tokenizer::new(opened.rules());
        let people = SyntheticPopulation::new(crowd, tokenizer, opened.vocabulary(), opened.learner());
        // Devices take the best kernels there are.
        let means = Means::threads(KernelPath::best(), self.threads);
        match replay::replay(plan, opened, &people, &record.cohorts, means) {
            Ok(played) => Ok(Ok(played)),
            Err(why @ (ReplayError::Secret | ReplayError::RandomRounding | ReplayError::RandomBatch)) => {
                Ok(Err(why.to_string()))
            }
            Err(other) => Err(BenchError::failed(other)),
        }
    }

    fn took(&self, task: &Task, record: &Record, seen: &Seen, digests: Digests, floor: Option<Floor>) -> NetworkTook {
        let fleet::Came { ended, lines, used } = &seen.devices;
        let [broken, broken_at_the_end] = account::unanswered(&seen.releases, lines);
        NetworkTook {
            devices: self.devices,
            goal: self.goal,
            rounds: self.rounds,
            secagg: self.secagg,
            model: self.model.clone(),
            parameters: task.opened.first_parameters().len() as u64,
            ready_made: self.ready_made,
            rounds_closed: record.cohorts.rounds.len() as u64,
            rounds_failed: record.failed,
            kills: seen.kills,
            restarts: seen.restarts,
            participations: Participations::of(Purpose::Training, &record.cohorts.rounds, &record.in_failed[0], lines),
            evaluations: task.plan.device_evaluations.as_ref().map(|_| {
                let cohorts: Vec<Vec<u64>> = record.cohorts.evaluations.values().cloned().collect();
                let participations = Participations::of(Purpose::Evaluation, &cohorts, &record.in_failed[1], lines);
                Evaluations { released: cohorts.len() as u64, participations }
            }),
            digests,
            server: seen.server,
            floor,
            device_process: *used,
            bytes_up: ended.bytes_up,
            bytes_down: ended.bytes_down,
            devices_crashed: ended.counted.crashed,
            devices_left: ended.counted.dropped,
            refused_by_server: ended.counted.refused_by_server,
            broken,
            broken_at_the_end,
            round: RoundTimes::of(&seen.releases, lines),
            server_steps: ServerSteps::of(&record.timings),
            wall_s: seen.wall_s,
        }
    }
}

/// What devices measured, after how many rounds, as the server left it.
fn measured_by_devices(folder: &Path) -> Result<BTreeMap<u64, ByDevices>, BenchError> {
    let path = folder.join("data").join("models").join(TASK).join(METRICS_FILE);
    let text = std::fs::read_to_string(path).map_err(BenchError::failed)?;
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let line: Metrics = serde_json::from_str(line).map_err(BenchError::failed)?;
        all.extend(line.by_devices.map(|by_devices| (line.round, by_devices)));
    }
    Ok(all)
}

/// The name of a device at the server.
fn agent_key(number: u64) -> [u8; 32] {
    agent::many::key(SEED, number).verifying_key().to_bytes()
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// When the server is killed: about every so many rounds, at a moment that has nothing to do with what it does.
struct Kills {
    every: Option<u64>,
    times: u64,
    /// The round that must be over, and then the moment.
    after: u64,
    at: Option<Instant>,
    /// When it was last seen how many rounds are over, and how many.
    round: (u64, Instant),
    /// How long the last round took.
    round_s: f64,
    draw: u64,
}

impl Kills {
    fn every(every: Option<u64>) -> Self {
        let draw = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
        let mut kills = Self { every, times: 0, after: 0, at: None, round: (0, Instant::now()), round_s: 0.2, draw };
        kills.after = kills.gap(0);
        kills
    }

    /// From half to one and a half times as many rounds later; the rest of it is a part of a round.
    fn gap(&mut self, from: u64) -> u64 {
        let every = self.every.unwrap_or(1) as f64;
        from + (every * (0.5 + self.uniform())) as u64
    }

    fn uniform(&mut self) -> f64 {
        self.draw = self.draw.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.draw;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn is_due(&mut self, rounds: u64) -> bool {
        if self.every.is_none() {
            return false;
        }
        let (seen, since) = self.round;
        if rounds > seen {
            self.round_s = since.elapsed().as_secs_f64() / (rounds - seen) as f64;
            self.round = (rounds, Instant::now());
        }
        if self.at.is_none() && rounds >= self.after {
            let later = self.uniform() * self.round_s.clamp(0.02, 60.0);
            self.at = Some(Instant::now() + Duration::from_secs_f64(later));
        }
        let due = self.at.is_some_and(|at| Instant::now() >= at);
        if due {
            (self.at, self.times) = (None, self.times + 1);
            self.after = self.gap(rounds).max(rounds + 1);
            self.round = (rounds, Instant::now());
        }
        due
    }
}
