//! Starts the devices' process, and reads what its devices sent.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use agent::{many::Ended, parts::Line};

use super::{NetworkRun, SEED, Used, processes::Process};
use crate::{BenchError, WorkError};

const PARTS: &str = "parts.jsonl";
/// How long devices may take to stop.
const STOPS: Duration = Duration::from_secs(60);

/// The devices.
pub(super) struct DevicesProcess(Process);

/// The outcome of all devices.
pub(super) struct Came {
    pub(super) ended: Ended,
    /// What each gave, and was thanked for.
    pub(super) lines: Vec<Line>,
    pub(super) used: Used,
}

impl DevicesProcess {
    pub(super) fn start(run: &NetworkRun, folder: &Path, address: &str) -> Result<Self, BenchError> {
        let mut command = Command::new(&run.program);
        command.current_dir(folder).args(["device", "--synthetic", "--server", &format!("http://{address}")]);
        command.args(["--count", &run.devices.to_string(), "--seed", &SEED.to_string()]);
        command.args(["--most-inputs", &u32::MAX.to_string(), "--threads", &run.threads.to_string()]);
        command.args(["--json", "--parts", PARTS]);
        if let Some(day_s) = run.realistic_day_s {
            command.args(["--behaviour", "realistic", "--day-seconds", &day_s.to_string()]);
        }
        if run.ready_made {
            command.arg("--ready-made");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Process::start(&mut command).map(Self)
    }

    /// Refuses to continue without them.
    pub(super) fn check(&mut self) -> Result<(), BenchError> {
        match self.0.look()? {
            None => Ok(()),
            Some(status) => Err(BenchError::failed(format!("the devices ended by themselves: {status}"))),
        }
    }

    /// Stops them, and reads what they gave.
    pub(super) fn stop(mut self, folder: &Path) -> Result<Came, BenchError> {
        self.0.interrupt()?;
        let until = Instant::now() + STOPS;
        while self.0.look()?.is_none() {
            if Instant::now() > until {
                return Err(BenchError::failed("the devices do not stop"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut said = String::new();
        if let Some(stdout) = &mut self.0.child().stdout {
            stdout.read_to_string(&mut said).map_err(BenchError::failed)?;
        }
        let ended: Ended = serde_json::from_str(&said).map_err(BenchError::failed)?;
        if ended.counted.unwritten > 0 {
            return Err(BenchError::failed("the devices could not write down what they gave"));
        }
        Ok(Came { ended, lines: lines(&folder.join(PARTS))?, used: self.0.used() })
    }
}

fn lines(path: &Path) -> Result<Vec<Line>, WorkError> {
    let text = fs::read_to_string(path)?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}
