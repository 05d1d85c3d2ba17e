//! Logs what simulated devices sent and had acknowledged, to compare with the server's ledger.
//!
//! A device of a person keeps no such list: its diary knows days and no times. These have nobody to protect.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use device::protocol::{participant::Note, terms::Purpose};
use serde::{Deserialize, Serialize};

/// A line: something that a device did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The number of the device.
    pub device: u64,
    /// In which step; none where it is of no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// What the device did.
    pub did: Did,
    /// Whether that was training or an evaluation; steps of each are counted by themselves.
    #[serde(default)]
    pub purpose: Purpose,
    /// When, in seconds since 1970.
    pub at_s: f64,
    /// Seconds until then in which at least one device of the process trained ([`crate::training::Trainers::busy_s`]).
    pub trained_s: f64,
}

/// An action of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Did {
    /// Its report is about to leave, and counts.
    Gave,
    /// It was told that its report counts.
    Thanked,
    /// It asked something, and there was no answer, or one that is none.
    Unanswered,
}

/// The list, while it is written.
pub struct Parts(Mutex<Box<dyn Write + Send>>);

impl Parts {
    /// A list that is written there, line by line.
    #[must_use]
    pub fn new(out: impl Write + Send + 'static) -> Self {
        Self(Mutex::new(Box::new(out)))
    }

    /// Writes what a device did, if it is something for this list.
    pub(crate) fn hear(&self, device: u64, note: &Note, trained_s: f64) -> io::Result<()> {
        let (step, purpose, did) = match note {
            Note::Gave { step, purpose } => (Some(*step), *purpose, Did::Gave),
            Note::Thanked { step, purpose, .. } => (Some(*step), *purpose, Did::Thanked),
            Note::Broken | Note::Strange(_) => (None, Purpose::default(), Did::Unanswered),
            _ => return Ok(()),
        };
        let at_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let mut line = serde_json::to_vec(&Line { device, step, did, purpose, at_s, trained_s })?;
        line.push(b'\n');
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }

    /// Everything is where it is written to.
    ///
    /// # Errors
    /// When it is not.
    pub fn flush(&self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parts")
    }
}
