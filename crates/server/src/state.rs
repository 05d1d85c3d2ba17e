//! All durable state of a server, as a trait: what its coordinator must not forget, and the homes of its tasks.
//!
//! A server asks for no more than [`State`], so another database is a new file that implements it ([`crate::sqlite`] is the first). It is a bundle, and each
//! part has a contract of its own that tests hold it to:
//!
//! | part                                | what it is                                     | its contract                              |
//! |-------------------------------------|------------------------------------------------|-------------------------------------------|
//! | [`State::coordinator`]              | devices, attempts, sealed sums, downloads      | `federated::contract::coordinator_store`  |
//! | [`TaskState::home`], as a [`Home`]  | settings, states, logs, the model of a run     | `federated::contract::home`               |
//! | the same, as [`Records`]            | its ledger and its secrets                     | `ledger::contract::store`, `federated::contract::vault` |
//! | [`State`], [`TaskState`]            | which tasks there are, what devices are given  | `tests/state.rs`                          |
//!
//! **What belongs together.** A part may be kept where it fits best: models and states are large and never changed, so object storage can have them. Two
//! things must be of one transaction, wherever they are: the pointer to the model that devices are given moves only while the ledger's head is the one
//! that is shown ([`TaskState::publish_model`]); and a batch of the coordinator is there whole or not at all.
//!
//! **What else each of them owes**, beyond what a contract can ask of one that is open:
//!
//! - *One writer.* While a server has it open for writing, no other server does, also not one on another machine; who lost it writes nothing any more. Readers are no
//!   writers, and have no secrets.
//! - *An old copy is refused.* One that was set back has forgotten who was given a task, and limits on participation would not hold. Between two releases the head
//!   of the ledger is the same, so what is witnessed apart from the data is both the head and the count of batches in which devices are given a task
//!   (for SQLite the files `ledger.head` and `assignments` of the secrets; `tests/sqlite.rs`: `p17_...`). Data first, witness second, and both before a device hears of it.
//! - *Secrets are private, and apart from the data.* What is backed up and read by others is the data; keys of noise, of pseudonyms, of places and of sealed sums
//!   are never in it, nor in a copy of it, and are for the server alone. A key that is destroyed is nowhere any more.

use std::{error::Error, sync::Arc};

use federated::{
    home::{Home, Records},
    protocol::{admission::PlaceKey, order::Order, store::Store},
};
use ledger::Head;
use lm::folder::Files;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why state is not kept or given.
#[derive(Debug, Error)]
pub enum StateError {
    /// No task can have the name: it is none, or too like that of another.
    #[error("{0}")]
    Name(String),
    /// There is no such thing, or an invariant would be broken. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// What keeps it failed.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

/// All state of one server.
pub trait State: Send + Sync {
    /// The state of a task.
    type Task: TaskState;

    /// What the coordinator of devices must not forget.
    fn coordinator(&self) -> Arc<dyn Store>;

    /// The key under which addresses are counted from which devices enrol: a secret, drawn once.
    ///
    /// # Errors
    /// When it cannot be read, or not be kept.
    fn place_key(&self) -> Result<PlaceKey, StateError>;

    /// The names of all tasks, in order.
    ///
    /// # Errors
    /// When they cannot be read.
    fn names(&self) -> Result<Vec<String>, StateError>;

    /// The state of a task with its secrets, begun where there is none.
    ///
    /// # Errors
    /// A name that no task can have, or state that was opened for reading.
    fn task(&self, name: &str) -> Result<Self::Task, StateError>;

    /// The state of a task that is there, without its secrets.
    ///
    /// # Errors
    /// When there is none.
    fn read_task(&self, name: &str) -> Result<Self::Task, StateError>;

    /// What was deleted is nowhere any more when this returns: neither in a log of changes nor in space that is free.
    ///
    /// # Errors
    /// When that cannot be done now. Nothing is lost, and it can be tried again.
    fn erase(&self) -> Result<(), StateError>;

    /// Whether a server runs on it.
    ///
    /// # Errors
    /// When that cannot be told.
    fn is_served(&self) -> Result<bool, StateError>;
}

/// Whether a task can have a name: it is that of folders and files too.
#[must_use]
pub fn is_task_name(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(known) && !name.starts_with('.')
}

/// The state of one task. Clones are the same.
pub trait TaskState: Clone + Send + Sync {
    /// Where its run is kept.
    type Home: Home + Records + Clone;

    /// Where its run is kept.
    fn home(&self) -> &Self::Home;

    /// Makes a model the one that devices are given, if the ledger has the release that it comes from and `head` is its head, in one
    /// transaction: no model is published without its event. Models only go forward, and there is one for a release.
    ///
    /// # Errors
    /// When that is not so, and then nothing changes; or when it is not known to be durable.
    fn publish_model(&self, head: &Head, after: AfterRound<'_>, digest: [u8; 32]) -> Result<(), StateError>;

    /// The model that devices are given; none where none was published.
    ///
    /// # Errors
    /// When that cannot be read.
    fn published_model(&self) -> Result<Option<PublishedModel>, StateError>;

    /// The files of the run's model, once it has one ([`Home::write_model`]).
    ///
    /// # Errors
    /// When they cannot be read.
    fn model(&self) -> Result<Option<Files>, StateError>;

    /// The last note of the server that runs it, if any.
    ///
    /// # Errors
    /// When that cannot be read.
    fn note(&self) -> Result<Option<Note>, StateError>;

    /// Says how the task stands.
    ///
    /// # Errors
    /// When it is not known to be durable.
    fn write_note(&self, note: &Note) -> Result<(), StateError>;
}

/// The round of a model in its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AfterRound<'a> {
    /// How many rounds are behind it, released or skipped.
    pub rounds: u64,
    /// The last of them that released something: its stream, and its step in that. None before the first.
    pub release: Option<(&'a str, u64)>,
}

/// The model that devices are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedModel {
    /// How many rounds are behind it.
    pub rounds: u64,
    /// The entry of the last release that it comes from; none before the first.
    pub entry: Option<u64>,
    /// What it is called: a digest of its bytes.
    pub digest: [u8; 32],
    /// The head of the ledger when it was published.
    pub head: Head,
}

impl PublishedModel {
    /// Whether it may take the place of the one that is published: models only go forward, and there is one for a release.
    ///
    /// # Errors
    /// Why not.
    pub fn follows(&self, old: Option<&Self>) -> Result<(), StateError> {
        let refused = |why: String| Err(StateError::Refused(why));
        let Some(old) = old else {
            return if self.head == Head::EMPTY { refused("the ledger has no plan yet".into()) } else { Ok(()) };
        };
        if self.entry < old.entry || self.rounds < old.rounds {
            let (old, new) = (old.rounds, self.rounds);
            return refused(format!("the model after {old} rounds is published, and {new} is before it"));
        }
        if self.entry == old.entry && self.digest != old.digest {
            return refused("another model of the same release is published".into());
        }
        Ok(())
    }
}

/// The server's note about a running task, for readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The digest of its terms, by which devices know it, in hexadecimal digits.
    pub digest: String,
    /// That of its evaluations by devices, where it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<String>,
    /// What was wanted of it when the server looked last.
    pub obeys: Order,
    /// Whether the last server that was started runs it.
    pub served: bool,
    /// Why it cannot continue, where it cannot.
    pub broken: Option<String>,
}
