//! A home that is no folder: everything of a run in memory, which outlives the run as a server's database does.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::BTreeMap,
    io::{self, Read},
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use keyhush_federated::{
    home::{Home, HomeError, Log, LogWriter, Paper, Records, WriteState, heads::HeadsError},
    secrets::{SecretName, Secrets, Vault},
};
use ledger::{
    Attached, BegunAttempt, Entry, Head, LedgerError, LedgerStore, MemoryStore, ParticipationRecord, Participations,
};
use lm::folder::{Files, Folder};
use zeroize::Zeroizing;

#[derive(Debug, Default)]
struct Kept {
    papers: BTreeMap<Paper, String>,
    states: BTreeMap<u64, Vec<u8>>,
    logs: BTreeMap<Log, Vec<String>>,
    model: Option<Files>,
    store: MemoryStore,
    /// The head that was acknowledged last, which a server keeps elsewhere than the store (rule P17).
    witness: Option<Head>,
    /// Whether somebody writes to the store.
    locked: bool,
}

/// What shows that a store was set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    Witness,
    States,
    Statement,
}

/// A home in memory. Clones are the same home.
#[derive(Clone, Default)]
pub(crate) struct MemoryHome {
    kept: Arc<Mutex<Kept>>,
    vault: Arc<MemoryVault>,
}

impl MemoryHome {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    pub(crate) fn model(&self) -> Option<Files> {
        self.kept().model.clone()
    }

    pub(crate) fn state(&self, round: u64) -> Option<Vec<u8>> {
        self.kept().states.get(&round).cloned()
    }

    /// A copy of the store, as a backup has it.
    pub(crate) fn store(&self) -> MemoryStore {
        self.kept().store.clone()
    }

    /// Restores an old copy of the store; of what shows that there was more, one thing is left.
    pub(crate) fn set_back(&self, store: MemoryStore, shows: Shows) {
        let mut kept = self.kept();
        kept.store = store;
        if shows != Shows::Witness {
            kept.witness = None;
        }
        if shows != Shows::States {
            kept.states.clear();
        }
        if shows != Shows::Statement {
            kept.papers.remove(&Paper::StatementJson);
        }
    }

    pub(crate) fn lose_ledger(&self) {
        let mut kept = self.kept();
        (kept.store, kept.witness) = (MemoryStore::new(), None);
    }

    pub(crate) fn kept_secrets(&self) -> Vec<&'static str> {
        self.vault.0.lock().unwrap().keys().map(|name| name.word()).collect()
    }
}

fn other(what: &str) -> HomeError {
    HomeError::Other { what: what.to_owned(), source: "it is not there".into() }
}

impl Home for MemoryHome {
    fn name(&self) -> String {
        "memory".into()
    }

    fn paper(&self, which: Paper) -> Result<Option<String>, HomeError> {
        Ok(self.kept().papers.get(&which).cloned())
    }

    fn write_paper(&self, which: Paper, text: &str) -> Result<(), HomeError> {
        self.kept().papers.insert(which, text.to_owned());
        Ok(())
    }

    fn remove_paper(&self, which: Paper) -> Result<(), HomeError> {
        self.kept().papers.remove(&which);
        Ok(())
    }

    fn states(&self) -> Result<Vec<u64>, HomeError> {
        Ok(self.kept().states.keys().rev().copied().collect())
    }

    fn read_state(&self, round: u64) -> Result<Box<dyn Read + '_>, HomeError> {
        let bytes = self.kept().states.get(&round).cloned().ok_or_else(|| other("a state"))?;
        Ok(Box::new(io::Cursor::new(bytes)))
    }

    fn write_state(&self, round: u64, _time: Option<u64>, write: WriteState<'_>) -> Result<(), HomeError> {
        let mut bytes = Vec::new();
        write(&mut bytes).map_err(|e| HomeError::Other { what: "a state".into(), source: e.into() })?;
        self.kept().states.insert(round, bytes);
        Ok(())
    }

    fn remove_state(&self, round: u64) -> Result<(), HomeError> {
        self.kept().states.remove(&round);
        Ok(())
    }

    fn state_name(&self, round: u64) -> String {
        format!("the state after {round} rounds")
    }

    fn lines(&self, log: Log) -> Result<Vec<String>, HomeError> {
        Ok(self.kept().logs.get(&log).cloned().unwrap_or_default())
    }

    fn open_log(&self, log: Log, keep: &dyn Fn(&str) -> bool) -> Result<Box<dyn LogWriter>, HomeError> {
        self.kept().logs.entry(log).or_default().retain(|line| keep(line));
        Ok(Box::new(MemoryLog { home: self.clone(), log }))
    }

    fn write_model(&self, model: &Folder) -> Result<(), HomeError> {
        self.kept().model = Some(model.write().unwrap());
        Ok(())
    }

    fn has_model(&self) -> Result<bool, HomeError> {
        Ok(self.kept().model.is_some())
    }
}

struct MemoryLog {
    home: MemoryHome,
    log: Log,
}

impl LogWriter for MemoryLog {
    fn append(&mut self, line: &str) -> Result<(), HomeError> {
        self.home.kept().logs.entry(self.log).or_default().push(line.to_owned());
        Ok(())
    }

    fn sync(&mut self) -> Result<(), HomeError> {
        Ok(())
    }
}

impl Records for MemoryHome {
    type Store = SharedStore;

    fn secrets(&self) -> Secrets {
        Secrets::new(self.vault.clone())
    }

    fn is_begun(&self) -> Result<bool, LedgerError> {
        Ok(self.kept().store.head()? != Head::EMPTY)
    }

    fn create_store(&self) -> Result<SharedStore, LedgerError> {
        if self.is_begun()? {
            return Err(LedgerError::Exists { place: self.name() });
        }
        self.writer()
    }

    fn open_store(&self) -> Result<SharedStore, LedgerError> {
        if self.is_begun()? { self.writer() } else { Err(LedgerError::Empty) }
    }

    fn read_store(&self) -> Result<SharedStore, LedgerError> {
        let copy = SharedStore { home: self.clone(), writes: false };
        if self.is_begun()? { Ok(copy) } else { Err(LedgerError::Empty) }
    }

    fn shown_heads(&self) -> Result<Vec<Head>, HeadsError> {
        Ok(self.kept().witness.into_iter().collect())
    }
}

impl MemoryHome {
    fn writer(&self) -> Result<SharedStore, LedgerError> {
        if mem::replace(&mut self.kept().locked, true) {
            return Err(LedgerError::Locked { place: self.name() });
        }
        Ok(SharedStore { home: self.clone(), writes: true })
    }
}

/// The store of a home in memory, which stays there when this goes.
pub(crate) struct SharedStore {
    home: MemoryHome,
    writes: bool,
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        if self.writes {
            self.home.kept().locked = false;
        }
    }
}

impl SharedStore {
    fn writing(&self) -> Result<MutexGuard<'_, Kept>, LedgerError> {
        if self.writes { Ok(self.home.kept()) } else { Err(LedgerError::ReadOnly) }
    }
}

impl LedgerStore for SharedStore {
    fn append(&mut self, after: &Head, entry: &Entry, attached: Attached<'_>) -> Result<Head, LedgerError> {
        let mut kept = self.writing()?;
        let head = kept.store.append(after, entry, attached)?;
        kept.witness = Some(head);
        Ok(head)
    }

    fn read(&self, from: u64) -> Result<Box<dyn Iterator<Item = Result<Entry, LedgerError>> + '_>, LedgerError> {
        let all: Vec<Result<Entry, LedgerError>> = self.home.kept().store.read(from)?.collect();
        Ok(Box::new(all.into_iter()))
    }

    fn released(&self, index: u64) -> Result<Option<Vec<u8>>, LedgerError> {
        self.home.kept().store.released(index)
    }

    fn discard_released(&mut self, below: u64) -> Result<(), LedgerError> {
        self.writing()?.store.discard_released(below)
    }

    fn participations(&self) -> Result<Option<Participations<'_>>, LedgerError> {
        let kept = self.home.kept();
        let all: Option<Vec<Result<ParticipationRecord, LedgerError>>> =
            kept.store.participations()?.map(Iterator::collect);
        Ok(all.map(|all| -> Participations<'_> { Box::new(all.into_iter()) }))
    }

    fn begin_attempt(&mut self, begun: &BegunAttempt) -> Result<(), LedgerError> {
        self.writing()?.store.begin_attempt(begun)
    }

    fn begun_attempt(&self) -> Result<Option<BegunAttempt>, LedgerError> {
        self.home.kept().store.begun_attempt()
    }

    fn forget_attempt(&mut self) -> Result<(), LedgerError> {
        self.writing()?.store.forget_attempt()
    }

    fn head(&self) -> Result<Head, LedgerError> {
        self.home.kept().store.head()
    }
}

/// Secrets in memory, which are overwritten when they go and which nothing prints.
#[derive(Default)]
pub(crate) struct MemoryVault(Mutex<BTreeMap<SecretName, Zeroizing<Vec<u8>>>>);

impl Vault for MemoryVault {
    fn read(&self, name: SecretName) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError> {
        Ok(self.0.lock().unwrap().get(&name).cloned())
    }

    fn create(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError> {
        self.replace(name, bytes)
    }

    fn replace(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError> {
        self.0.lock().unwrap().insert(name, Zeroizing::new(bytes.to_vec()));
        Ok(())
    }

    fn append(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError> {
        self.0.lock().unwrap().entry(name).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn wipe_from(&self, name: SecretName, offset: usize) -> Result<(), LedgerError> {
        if let Some(bytes) = self.0.lock().unwrap().get_mut(&name) {
            let kept = bytes[..offset.min(bytes.len())].to_vec();
            *bytes = Zeroizing::new(kept);
        }
        Ok(())
    }

    fn destroy(&self, name: SecretName) -> Result<(), LedgerError> {
        self.0.lock().unwrap().remove(&name);
        Ok(())
    }

    fn exists(&self, name: SecretName) -> Result<bool, LedgerError> {
        Ok(self.0.lock().unwrap().contains_key(&name))
    }

    fn place(&self, name: SecretName) -> String {
        name.word().to_owned()
    }
}
