//! All state of a server in memory: what a second database has to do, and no more. It outlives the server that uses it.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use federated::{
    home::Records,
    protocol::{
        admission::PlaceKey,
        store::{MemoryStore, Store},
    },
};
use keyhush_server::state::{AfterRound, Note, PublishedModel, State, StateError, TaskState};
use ledger::{Body, Head, LedgerError, LedgerStore};
use lm::folder::Files;
use zeroize::Zeroizing;

use crate::memory_home::MemoryHome;

/// Clones are the same state, as two openings of one database are.
#[derive(Clone)]
pub(crate) struct MemoryState {
    store: Arc<MemoryStore>,
    tasks: Arc<Mutex<BTreeMap<String, MemoryTask>>>,
}

impl MemoryState {
    pub(crate) fn new() -> Self {
        Self { store: Arc::new(MemoryStore::new([7; 32])), tasks: Arc::default() }
    }
}

impl State for MemoryState {
    type Task = MemoryTask;

    fn coordinator(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn place_key(&self) -> Result<PlaceKey, StateError> {
        Ok(PlaceKey::new(Zeroizing::new([3; 32])))
    }

    fn names(&self) -> Result<Vec<String>, StateError> {
        Ok(self.tasks.lock().unwrap().keys().cloned().collect())
    }

    fn task(&self, name: &str) -> Result<MemoryTask, StateError> {
        let mut tasks = self.tasks.lock().unwrap();
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) && !name.starts_with('.');
        let is_another = |other: &String| other != name && other.eq_ignore_ascii_case(name);
        if !is_name || name.is_empty() || tasks.keys().any(is_another) {
            return Err(StateError::Name(format!("{name:?} is no name")));
        }
        Ok(tasks.entry(name.to_owned()).or_default().clone())
    }

    fn read_task(&self, name: &str) -> Result<MemoryTask, StateError> {
        let found = self.tasks.lock().unwrap().get(name).cloned();
        found.ok_or_else(|| StateError::Refused(format!("no task is called {name:?}")))
    }

    fn erase(&self) -> Result<(), StateError> {
        Ok(())
    }

    fn is_served(&self) -> Result<bool, StateError> {
        Ok(true)
    }
}

/// A task in memory. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct MemoryTask {
    home: MemoryHome,
    told: Arc<Mutex<Told>>,
}

/// What devices and readers are told of it.
#[derive(Default)]
struct Told {
    published: Option<PublishedModel>,
    note: Option<Note>,
}

impl MemoryTask {
    /// The head of its ledger, and the entry of a release.
    fn looked_up(&self, after: AfterRound<'_>) -> Result<(Head, Option<u64>), LedgerError> {
        if !self.home.is_begun()? {
            return Ok((Head::EMPTY, None));
        }
        let store = self.home.read_store()?;
        let mut entry = None;
        if let Some((stream, step)) = after.release {
            for (number, found) in (0..).zip(store.read(0)?) {
                if matches!(found?.body(), Body::Release(release) if release.stream == stream && release.step == step) {
                    entry = Some(number);
                }
            }
        }
        Ok((store.head()?, entry))
    }
}

impl TaskState for MemoryTask {
    type Home = MemoryHome;

    fn home(&self) -> &MemoryHome {
        &self.home
    }

    fn publish_model(&self, head: &Head, after: AfterRound<'_>, digest: [u8; 32]) -> Result<(), StateError> {
        let mut told = self.told.lock().unwrap();
        let (is, entry) = self.looked_up(after).map_err(|error| StateError::Failed(error.into()))?;
        if is != *head || entry.is_some() != after.release.is_some() {
            return Err(StateError::Refused("the ledger has another head, or no such release".to_owned()));
        }
        let new = PublishedModel { rounds: after.rounds, entry, digest, head: *head };
        new.follows(told.published.as_ref())?;
        told.published = Some(new);
        Ok(())
    }

    fn published_model(&self) -> Result<Option<PublishedModel>, StateError> {
        Ok(self.told.lock().unwrap().published)
    }

    fn model(&self) -> Result<Option<Files>, StateError> {
        Ok(self.home.model())
    }

    fn note(&self) -> Result<Option<Note>, StateError> {
        Ok(self.told.lock().unwrap().note.clone())
    }

    fn write_note(&self, note: &Note) -> Result<(), StateError> {
        self.told.lock().unwrap().note = Some(note.clone());
        Ok(())
    }
}
