//! Asks the operator's attestation command about each device before it is enrolled.
//!
//! Makers of devices each have a way of their own to say so, and a service that knows. What a device says of itself goes to a command of the
//! operator's, with the key that is to be enrolled: a statement that names another key is not this device's. A device that does not know the
//! token, or is enrolled already, is not asked about. A command that takes too long has said no.

use std::{
    collections::HashMap,
    io::Write,
    net::IpAddr,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use device::protocol::message::DeviceKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a command may take.
const WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// How many devices are asked about at a time.
const AT_A_TIME: usize = 4;
/// Addresses that are remembered before it is looked which of them nobody waits at any more.
const ADDRESSES: usize = 1024;

/// Says whether a device is one that may enrol. It may take a while: several are asked about at a time, on threads of their own.
pub trait Attestation: Send + Sync {
    /// Whether what is said of a device is true, and of this key.
    fn attests(&self, device: &DeviceKey, said: &[u8]) -> bool;
}

/// Whose turn it is to be asked about: a few devices at a time, and of one address one, so that nobody who lets the asking hang keeps all
/// others out. Those of this machine are not told apart.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    by_address: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(#[allow(dead_code, reason = "held, not read")] [Option<OwnedSemaphorePermit>; 2]);

impl Default for Turns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_A_TIME)), by_address: Mutex::default() }
    }
}

impl Turns {
    /// Waits for the turn of a device of an address.
    pub(crate) async fn of(&self, from: Option<IpAddr>) -> Turn {
        let of_address = match from.filter(|address| !address.is_loopback()) {
            // These are never closed.
            Some(address) => self.at(address).acquire_owned().await.ok(),
            None => None,
        };
        Turn([of_address, Arc::clone(&self.all).acquire_owned().await.ok()])
    }

    fn at(&self, address: IpAddr) -> Arc<Semaphore> {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if by_address.len() >= ADDRESSES {
            by_address.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        Arc::clone(by_address.entry(address).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }
}

/// A command of the operator's, run by `sh`. On its standard input it gets the key in 64 hexadecimal digits, the end of a line, and what the device
/// says, byte for byte. It lets the device in by ending with 0.
#[derive(Debug, Clone)]
pub struct ByCommand {
    command: String,
    within: Duration,
}

impl ByCommand {
    /// An attestation that runs this command.
    #[must_use]
    pub const fn new(command: String) -> Self {
        Self { command, within: WITHIN }
    }
}

impl Attestation for ByCommand {
    fn attests(&self, device: &DeviceKey, said: &[u8]) -> bool {
        let mut command = Command::new("sh");
        command.args(["-c", &self.command]).stdin(Stdio::piped()).stdout(Stdio::null());
        // So that what it starts ends with it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let Ok(mut child) = command.spawn() else { return false };
        if let Some(mut input) = child.stdin.take() {
            let digits: String = device.0.iter().map(|byte| format!("{byte:02x}")).collect();
            let bytes = [digits.as_bytes(), b"\n", said].concat();
            // A command that does not read to the end is not waited for here. It may know enough.
            drop(std::thread::spawn(move || input.write_all(&bytes)));
        }
        let until = Instant::now() + self.within;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
                Ok(None) | Err(_) => {
                    end(&mut child);
                    return false;
                }
            }
        }
    }
}

/// Ends a command and what it started.
fn end(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const KEY: DeviceKey = DeviceKey([0xab; 32]);

    fn asked(command: &str, said: &[u8]) -> bool {
        ByCommand { command: command.to_owned(), within: Duration::from_secs(5) }.attests(&KEY, said)
    }

    #[test]
    fn a_command_hears_the_key_and_what_is_said_and_decides() {
        let abs = "ab".repeat(32);
        let both = format!("read -r key && [ \"$key\" = {abs} ] && [ \"$(cat)\" = genuine ]");
        assert!(asked(&both, b"genuine"));
        assert!(!asked(&both, b"forged"));
        assert!(!asked(&both, b""));
        assert!(!asked("exit 3", b"genuine"));
        assert!(!asked("no-such-command-anywhere", b"genuine"));
    }

    #[test]
    fn a_command_need_not_read_and_may_not_hang() {
        assert!(asked("true", &vec![7; 1 << 19]), "more than fits a pipe");
        let hangs = ByCommand { command: "sleep 60; true".to_owned(), within: Duration::from_millis(100) };
        let began = Instant::now();
        assert!(!hangs.attests(&KEY, &vec![7; 1 << 19]));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
