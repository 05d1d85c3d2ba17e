//! The guard: remembers sent inputs permanently, so that a device sends at most one input per step (rule P24).
//!
//! A round fails, and the server asks again, with the same devices less one. The two sums differ by that one's input, and
//! secure aggregation has protected nothing. The server need not be evil for that: an honest retry does the same. So a
//! device sends one input for a step and for a model, and no second one, whatever it is told about the first.
//!
//! ```
//! use keyhush_device::guard::{Asked, Guard, Limits, MemoryStore, ModelDigest, Now, Refused, TaskDigest, Timer, Window};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut guard = Guard::begin(MemoryStore::default())?;
//! let limits = Limits { most_inputs: 4, window: Window::Ever, separation: None, timer: Timer::NONE };
//! let now = Now { up_ms: 0, clock_s: 1_790_000_000 };
//! let asked = Asked { task: TaskDigest([7; 32]), step: 3, model: ModelDigest::of(&[0.5, -1.0]) };
//! let permit = guard.allow(asked, &limits, now)?; // durable from here on
//! let leaving = permit.let_go(b"a masked input"); // what a sender takes
//! assert_eq!(leaving.asked(), &asked);
//!
//! let again = Asked { task: TaskDigest([8; 32]), step: 0, ..asked };
//! assert_eq!(guard.allow(again, &limits, now).unwrap_err(), Refused::Model);
//! # Ok(())
//! # }
//! ```
//!
//! [`Guard::allow`] makes durable that an input leaves, and only then gives a [`Permit`]. A crash after that costs the
//! device the step; it never gives the step back. Sending takes an [`Outgoing`], which only a permit makes:
//!
//! ```compile_fail,E0451
//! use keyhush_device::guard::{Asked, Permit};
//! fn forged(asked: Asked) -> Permit {
//!     Permit { asked }
//! }
//! ```
//!
//! ```compile_fail,E0382
//! use keyhush_device::guard::{Outgoing, Permit};
//! fn twice(permit: Permit) -> [Outgoing<u8>; 2] {
//!     [permit.let_go(1), permit.let_go(2)]
//! }
//! ```
//!
//! # What is refused
//!
//! | asked for                                                      | why                                            |
//! |----------------------------------------------------------------|------------------------------------------------|
//! | a step of a task at or below the last one that it gave for     | steps only go forward; a retry has the same step |
//! | a model that it gave an input for, under any task, step or name | a retry under another name                     |
//! | more inputs in the device's own window than its own MaxP       | over all tasks; a device trusts no server to count |
//! | a step too close to the last one of the task, where it asks for MinS | counted by the server's steps (rule P6)   |
//! | anything before the rest after the last input is over          | the timer: the task's between its own inputs, the device's own between any two |
//! | anything at all, after [`MOST_INPUTS`]                         | to remember more it would have to forget       |
//! | anything at all, after a save that failed, until it is opened again | what is durable is not known              |
//!
//! An input counts when it is let go. There is no way to say that an attempt failed, so a failed one counts.
//!
//! # When a model comes twice
//!
//! - **The step failed, and the model did not change.** The retry is for the same model, whatever step it is called. Refused:
//!   this is the very attack.
//! - **Two tasks begin with the same model**, a public one or one of zeros. A device that gave its input for the first model of
//!   one gives none for the first model of the other: the two sums are of the same update. It can take part from the
//!   second step on.
//! - **A task goes back to an older checkpoint**, or a released step changed nothing. The steps after it are paid for, but a
//!   device cannot tell that from a retry, so it stays away until there is a model that it has not seen.
//!
//! - **A model is trained, and measured.** Those are two inputs about one model: an update, and a few counts of how well the model
//!   predicts. Sums of the one say nothing about sums of the other, and each kind is paid for in the task's ledger. So one input of
//!   each kind may leave, in any order, under tasks of their own; a second of the same kind may not, whatever task, step or name it
//!   comes with. On record the model of an evaluation has a digest of its own ([`ModelDigest::measured`]). Both kinds count
//!   against the device's own MaxP.
//!
//! # What it keeps, and for how long
//!
//! Of each input the digests of task and model, the step and the day: nothing of what was typed, and no time of day. Nothing
//! is ever forgotten, because anything may be asked again; so the file has at most [`MOST_INPUTS`] records (1.2 MiB), and
//! then the device takes part no more. Only permits are recorded. A server that makes up tasks and models is refused by
//! MaxP without a trace, and so can neither flush the memory nor fill it faster than the device's own limit allows:
//! at one input a day it lasts 44 years.
//!
//! Days go forward only. A clock that is set back is taken to stand still at the last day on record.
//!
//! While a timer runs, the second at which the last input of the task left is kept as well, and goes with the first save after the rest is over. A
//! rest is over when the clock says so, or when the program has run for all of it: a clock that is set back does not end it early.
//!
//! # What it does not promise
//!
//! - **A model that differs in one bit is another model**, and its update is almost the same. A server that changes model and
//!   task a little with each attempt is stopped by MaxP and by nothing else here, so a device that does not trust
//!   its server sets it low, over a long window or for ever.
//! - **A clock that is set forward** ends windows and rests early, once for each jump. When it is right again, the device counts from the
//!   day on record, and may refuse until then. [`Window::Ever`] needs no clock.
//! - **Windows are of whole days** (UTC): one of seven days can be six days and a minute long.
//! - **MinS is in the server's numbers.** It can call its steps what it likes, only never smaller.
//! - **An old copy is a valid copy.** Where a backup is restored, what came after it is forgotten: keep the file out of
//!   backups. A device whose guard is lost begins as a new device, with a new key, which waits (rule P18).
//! - The checksum finds damage. Against somebody who may write the file it proves nothing.
//! - The file system knows when the file was written last, to the second: that is the time of the last input.
//! - Two guards know nothing of each other: a device has one.
//!
//! A refusal depends on other tasks of the device. It is for the device's own log; to the server a device that refuses is
//! one that does not come.

#[cfg(feature = "files")]
pub mod file;
mod history;
mod limits;
mod permit;
mod rests;
mod store;

use thiserror::Error;

use history::History;
pub use history::{Damage, MOST_INPUTS};
pub(crate) use limits::hours;
pub use limits::{Day, Limits, Now, Refused, Timer, Window};
pub use permit::{Asked, ModelDigest, Outgoing, Permit, TaskDigest};
pub use store::{MemoryStore, Store, StoreError};

/// What a device has sent, and what it may still send.
#[derive(Debug)]
pub struct Guard<S> {
    store: S,
    history: History,
    /// A save failed: what is durable is not known until the guard is opened again.
    unsure: bool,
}

/// Why there is no guard. Without one nothing leaves.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GuardError {
    /// The guard already exists.
    #[error("a guard already exists here; open it, since what it remembers must not be lost")]
    Exists,
    /// The guard is missing.
    #[error(
        "there is no guard here. Create one on a new device. On a device that took part before, its record is lost: enrol it again with a new key"
    )]
    Missing,
    /// What is there cannot be read.
    #[error(
        "the guard is damaged: {0}. What this device has sent is not known, so it no longer takes part; enrol it again with a new key and a new guard"
    )]
    Damaged(#[from] Damage),
    /// It is of another version of the program.
    #[error("the guard has format {got}, but this program reads {ours}; use the program that wrote it")]
    Version {
        /// Its format.
        got: u32,
        /// The version this program reads.
        ours: u32,
    },
    /// The place where it is kept failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<S: Store> Guard<S> {
    /// The guard of a device that has never taken part.
    ///
    /// # Errors
    /// When there is something in the store already, be it damaged, or the store fails.
    pub fn begin(mut store: S) -> Result<Self, GuardError> {
        if store.load()?.is_some() {
            return Err(GuardError::Exists);
        }
        let history = History::default();
        store.save(&history.encode())?;
        Ok(Self { store, history, unsure: false })
    }

    /// The guard of a device that may have taken part.
    ///
    /// # Errors
    /// When there is none, when it is not whole, or the store fails. Never is such a guard taken for an empty one.
    pub fn open(mut store: S) -> Result<Self, GuardError> {
        let bytes = store.load()?.ok_or(GuardError::Missing)?;
        Ok(Self { store, history: History::decode(&bytes)?, unsure: false })
    }

    /// Whether it would be allowed now: to be asked before a device joins a round or trains. It promises nothing.
    ///
    /// # Errors
    /// When the input could not leave.
    pub fn check(&self, asked: &Asked, limits: &Limits, now: Now) -> Result<(), Refused> {
        if self.unsure { Err(Refused::Unsure) } else { self.history.judge(asked, limits, now) }
    }

    /// Makes durable that the input leaves, and then gives the permit for it.
    ///
    /// The limits are the device's own, and may differ from call to call: they are held against everything on record. From here on the
    /// device rests, where they have a timer.
    ///
    /// # Errors
    /// When the input may not leave. Nothing is recorded then, unless the save itself failed: then it may be.
    pub fn allow(&mut self, asked: Asked, limits: &Limits, now: Now) -> Result<Permit, Refused> {
        self.check(&asked, limits, now)?;
        self.history.push(asked, limits, now);
        self.unsure = true;
        self.store.save(&self.history.encode())?;
        self.unsure = false;
        Ok(Permit::new(asked))
    }

    /// The program runs, and this is the time: rests of an earlier life of it end at the latest when it has run for all of them.
    pub fn see(&mut self, now: Now) {
        self.history.see(now);
    }

    /// For how many milliseconds the device rests from everything, by its own timer.
    #[must_use]
    pub fn rests_ms(&self, limits: &Limits, now: Now) -> u64 {
        self.history.rests().all_ms(limits.timer.own_s, now)
    }

    /// The tasks that it rests from, by the timers that held when their inputs left, and the day by its clock on which each is over.
    pub fn rests(&self, now: Now) -> impl Iterator<Item = (TaskDigest, Day)> + '_ {
        self.history.rests().under_way(now)
    }

    /// Gives the store back, for tests of restarts.
    #[cfg(any(test, feature = "contract"))]
    pub fn into_store(self) -> S {
        self.store
    }

    /// How many inputs it has let go.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.history.len()
    }

    /// How many of them were for this task.
    #[must_use]
    pub fn inputs_for(&self, task: &TaskDigest) -> usize {
        self.history.count(task)
    }
}
