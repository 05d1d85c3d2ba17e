//! Controls the server's process: starts it, reads its output, kills and restarts it.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

use federated::secrets::{FileVault, Secrets};
use ledger::PseudonymKey;

use super::{NetworkRun, TASK, Used, processes::Process};
use crate::BenchError;

/// How long a server may take to begin.
const BEGINS: Duration = Duration::from_secs(60);
/// Lines of the log that are kept.
const MOST_WORDS: usize = 20;

/// The server.
pub(super) struct ServerProcess {
    process: Process,
    lines: Receiver<String>,
    address: String,
    tls: bool,
    words: VecDeque<String>,
    rounds: u64,
    attempts: u64,
    /// What earlier lives used.
    before: Used,
    /// When this life began, where it is not the first, and what it took; earlier ones.
    began: Option<(Instant, Restart)>,
    restarts: Vec<Restart>,
    /// The first line in which it says that it panicked.
    panicked: Option<String>,
}

/// What a server that was started again took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Restart {
    /// Rounds that were over before.
    pub(super) rounds: u64,
    /// Until it listened, in seconds.
    pub(super) listening_s: Option<f64>,
    /// Until the first round was released, in seconds.
    pub(super) release_s: Option<f64>,
}

impl ServerProcess {
    /// Starts it, over plain HTTP or with a certificate of its own, and waits until its task runs.
    pub(super) fn start(run: &NetworkRun, folder: &Path, set: &[String], tls: bool) -> Result<Self, BenchError> {
        let (process, lines) = spawn(run, folder, set, "127.0.0.1:0", tls)?;
        let mut server = Self {
            process,
            lines,
            address: String::new(),
            tls,
            words: VecDeque::new(),
            rounds: 0,
            attempts: 0,
            before: Used::default(),
            began: None,
            restarts: Vec::new(),
            panicked: None,
        };
        server.wait_until_it_runs()?;
        Ok(server)
    }

    /// Kills it, and starts another one on the same data and the same address.
    pub(super) fn kill_and_start_again(
        &mut self,
        run: &NetworkRun,
        folder: &Path,
        set: &[String],
    ) -> Result<(), BenchError> {
        self.process.kill()?;
        self.before += self.process.used();
        // What it said before it was killed is not of its next life.
        self.hear(Duration::ZERO);
        self.restarts.extend(self.began.take().map(|(_, restart)| restart));
        self.began = Some((Instant::now(), Restart { rounds: self.rounds, ..Restart::default() }));
        (self.process, self.lines) = spawn(run, folder, set, &self.address, self.tls)?;
        self.wait_until_it_runs()
    }

    fn wait_until_it_runs(&mut self) -> Result<(), BenchError> {
        let until = Instant::now() + BEGINS;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let runs = line.contains(&format!("{TASK}: running, "));
                    self.take(line);
                    if runs {
                        return Ok(());
                    }
                }
                Err(_) => return Err(BenchError::failed(format!("the server does not begin:\n{}", self.words()))),
            }
        }
    }

    /// What it says next, if it says something soon: the rounds that were released.
    pub(super) fn hear(&mut self, within: Duration) -> Vec<u64> {
        let mut released = Vec::new();
        let mut next = match self.lines.recv_timeout(within) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(within);
                None
            }
        };
        while let Some(line) = next {
            released.extend(self.take(line));
            next = self.lines.try_recv().ok();
        }
        released
    }

    /// Takes a line of its log; gives the round that it says was released.
    fn take(&mut self, line: String) -> Option<u64> {
        if let Some((_, address)) = line.split_once("listening on ") {
            address.clone_into(&mut self.address);
            if let Some((began, restart)) = &mut self.began {
                restart.listening_s.get_or_insert(began.elapsed().as_secs_f64());
            }
        }
        if line.contains("panicked at ") {
            self.panicked.get_or_insert_with(|| line.clone());
        }
        let said = line.split_once(&format!("{TASK}: ")).map(|(_, said)| said.to_owned());
        if self.words.len() >= MOST_WORDS {
            self.words.pop_front();
        }
        self.words.push_back(line);
        let said = said?;
        let round = said.strip_prefix("round ").and_then(|rest| {
            let (round, rest) = rest.split_once(' ')?;
            rest.starts_with("released").then(|| round.parse::<u64>().ok())?
        });
        let begun = said.strip_prefix("running, ").and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        if begun.is_none() {
            self.attempts += 1;
        }
        if let (Some(_), Some((began, restart))) = (round, &mut self.began) {
            restart.release_s.get_or_insert(began.elapsed().as_secs_f64());
        }
        self.rounds = round.or(begun).unwrap_or(self.rounds);
        round
    }

    /// What each life but the first took to begin.
    pub(super) fn restarts(&self) -> Vec<Restart> {
        self.restarts.iter().copied().chain(self.began.map(|(_, restart)| restart)).collect()
    }

    /// Rounds that are over.
    pub(super) const fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Attempts that ended while it was listened to, and other things that it said.
    pub(super) const fn attempts(&self) -> u64 {
        self.attempts
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The last lines of its log.
    pub(super) fn words(&self) -> String {
        self.words.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn used(&self) -> Used {
        let mut used = self.before;
        used += self.process.used();
        used
    }

    /// Whether all its work is done.
    pub(super) fn is_over(&mut self) -> Result<bool, BenchError> {
        if let Some(line) = &self.panicked {
            return Err(BenchError::failed(format!("the server panicked, which is a bug:\n{line}\n{}", self.words())));
        }
        match self.process.look()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => {
                self.hear(Duration::from_millis(200));
                Err(BenchError::failed(format!("the server ended by itself ({status}):\n{}", self.words())))
            }
        }
    }

    /// The key of the participants' pseudonyms. It is destroyed when the task is over, so it is read before the first device comes.
    pub(super) fn pseudonyms(&self, folder: &Path) -> Result<PseudonymKey, BenchError> {
        let vault = FileVault::in_folder(folder.join("secrets").join(TASK)).map_err(BenchError::failed)?;
        let key = Secrets::new(Arc::new(vault)).pseudonym_key().map_err(BenchError::failed)?;
        key.ok_or_else(|| BenchError::failed("the server has no key of its participants"))
    }
}

fn spawn(
    run: &NetworkRun,
    folder: &Path,
    set: &[String],
    listen: &str,
    tls: bool,
) -> Result<(Process, Receiver<String>), BenchError> {
    let mut command = Command::new(&run.program);
    command.current_dir(folder).arg("serve").arg(format!("{TASK}.toml"));
    command.args(["--listen", listen, "--data", "data", "--secrets", "secrets", "--threads", &run.threads.to_string()]);
    command.args(["--anybody", "--until-done", "--least-pause", "0"]);
    if !tls {
        command.arg("--plain-http");
    }
    command.args(set.iter().flat_map(|set| ["--set", set]));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = Process::start(&mut command)?;
    let stderr = process.child().stderr.take();
    let (sender, lines) = channel();
    if let Some(stderr) = stderr {
        // It ends with the process, or when nobody listens any more.
        drop(std::thread::spawn(move || {
            let lines = BufReader::new(stderr).lines();
            lines.map_while(Result::ok).all(|line| sender.send(line).is_ok())
        }));
    }
    Ok((process, lines))
}
