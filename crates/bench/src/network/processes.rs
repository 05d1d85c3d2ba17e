//! Starts, watches and stops a process, and reads its resource usage from the operating system.

use std::{
    fs,
    ops::AddAssign,
    process::{Child, Command},
};

use serde::Serialize;

use crate::BenchError;

/// Resources used by processes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Used {
    /// CPU seconds of all threads.
    pub cpu_s: f64,
    /// The most memory of one of them, in units of 10^6 bytes, as it was seen last before its end.
    pub peak_mb: f64,
}

impl AddAssign for Used {
    /// One life after the other: seconds add up, memory does not.
    fn add_assign(&mut self, other: Self) {
        self.cpu_s += other.cpu_s;
        self.peak_mb = self.peak_mb.max(other.peak_mb);
    }
}

/// A process of ours. It does not outlive this.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    used: Used,
    is_reaped: bool,
}

impl Process {
    pub(super) fn start(command: &mut Command) -> Result<Self, BenchError> {
        let child = command.spawn().map_err(BenchError::failed)?;
        Ok(Self { child, used: Used::default(), is_reaped: false })
    }

    pub(super) const fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(super) const fn used(&self) -> Used {
        self.used
    }

    /// Looks at it: whether it has ended, and what it has used so far. What a process used can be read until it is waited for.
    pub(super) fn look(&mut self) -> Result<Option<std::process::ExitStatus>, BenchError> {
        if self.is_reaped {
            return self.child.try_wait().map_err(BenchError::failed);
        }
        let has_ended = has_ended(&self.child);
        self.read_used();
        if !has_ended {
            return Ok(None);
        }
        self.is_reaped = true;
        self.child.wait().map(Some).map_err(BenchError::failed)
    }

    /// Asks it to stop, as Ctrl-C does.
    pub(super) fn interrupt(&mut self) -> Result<(), BenchError> {
        interrupt(&mut self.child).map_err(BenchError::failed)
    }

    /// Ends it without a word (SIGKILL), and waits until it is gone.
    pub(super) fn kill(&mut self) -> Result<(), BenchError> {
        if !self.is_reaped {
            self.read_used();
            self.child.kill().map_err(BenchError::failed)?;
            while self.look()?.is_none() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        Ok(())
    }

    fn read_used(&mut self) {
        let pid = self.child.id();
        if let Some(cpu_s) = cpu_s(pid) {
            self.used.cpu_s = cpu_s;
        }
        if let Some(peak_mb) = crate::clock::peak_mb_of(&pid.to_string()) {
            self.used.peak_mb = self.used.peak_mb.max(peak_mb);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // There is nobody to tell what goes wrong here.
        _ = self.kill();
    }
}

/// CPU seconds of a process, by `/proc`.
#[cfg(unix)]
fn cpu_s(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses, and may have any characters.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(not(unix))]
fn cpu_s(_pid: u32) -> Option<f64> {
    None
}

/// Whether a child has ended. It is left to be waited for, so that what it used can still be read.
#[cfg(unix)]
fn has_ended(child: &Child) -> bool {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // A process that cannot be queried is gone.
    waitid(WaitId::Pid(Pid::from_child(child)), how).map_or(true, |status| status.is_some())
}

#[cfg(not(unix))]
fn has_ended(_child: &Child) -> bool {
    true
}

#[cfg(unix)]
fn interrupt(child: &mut Child) -> std::io::Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    Ok(kill_process(Pid::from_child(child), Signal::INT)?)
}

#[cfg(not(unix))]
fn interrupt(child: &mut Child) -> std::io::Result<()> {
    child.kill()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_killed_process_used_is_known() {
        let mut busy = Process::start(Command::new("sh").args(["-c", "while :; do :; done"])).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(busy.look().unwrap().is_none());
        busy.kill().unwrap();
        let Used { cpu_s, peak_mb } = busy.used();
        assert!(cpu_s > 0.02 && cpu_s < 60.0 && peak_mb > 0.1, "{cpu_s} s, {peak_mb} MB");
        assert!(!busy.look().unwrap().unwrap().success());
    }
}
