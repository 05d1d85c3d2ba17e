//! A store, a ledger and a vault that end with their server at any durable step: before it, or right after it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use device::{guard::TaskDigest, protocol::message::DeviceKey};
use keyhush_federated::{
    protocol::store::{MemoryStore, OpenAttempt, Standing, Store, StoreError, Write},
    secrets::{SecretName, Vault},
};
use ledger::{Attached, BegunAttempt, Entry, Head, LedgerError, LedgerStore, ParticipationRecord, Participations};
use zeroize::Zeroizing;

use super::Flaw;

/// How many durable steps a server has left.
#[derive(Debug, Default)]
pub(crate) struct Fuse {
    left: AtomicU64,
    blown: AtomicBool,
}

impl Fuse {
    pub(crate) fn light(&self, steps: u64) {
        self.left.store(steps, Ordering::Relaxed);
    }

    pub(crate) fn mend(&self) {
        self.left.store(u64::MAX, Ordering::Relaxed);
        self.blown.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_blown(&self) -> bool {
        self.blown.load(Ordering::Relaxed)
    }

    /// A durable step, at whose beginning or end the server may be gone.
    fn durably<T, E>(&self, act: impl FnOnce() -> Result<T, E>, gone: impl Fn() -> E) -> Result<T, E> {
        if self.is_blown() {
            return Err(gone());
        }
        let left = self.left.load(Ordering::Relaxed);
        if left == u64::MAX {
            return act();
        }
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        match left {
            0 => {
                self.blown.store(true, Ordering::Relaxed);
                Err(gone())
            }
            1 => {
                act()?;
                self.blown.store(true, Ordering::Relaxed);
                Err(gone())
            }
            _ => act(),
        }
    }
}

/// What was committed, and how much of it is safe.
struct Log {
    batches: Vec<Vec<Write>>,
    now: MemoryStore,
}

/// The store of a coordinator.
pub(crate) struct ForgetfulStore {
    fuse: Arc<Fuse>,
    flaw: Option<Flaw>,
    log: Mutex<Log>,
}

impl ForgetfulStore {
    pub(crate) fn new(fuse: Arc<Fuse>, flaw: Option<Flaw>) -> Self {
        Self { fuse, flaw, log: Mutex::new(Log { batches: Vec::new(), now: MemoryStore::new([9; 32]) }) }
    }

    /// What is there after a crash.
    pub(crate) fn restart(&self) {
        let mut log = self.log.lock().unwrap();
        let lost = match self.flaw {
            None => 0,
            Some(Flaw::AnswersBeforeWriting) => 2,
            Some(Flaw::ForgetsWrites) => 1 + log.batches.len() % 4,
        };
        let kept = log.batches.len().saturating_sub(lost);
        log.batches.truncate(kept);
        let now = MemoryStore::new([9; 32]);
        log.batches.iter().for_each(|batch| now.commit(batch).unwrap());
        log.now = now;
    }
}

impl Store for ForgetfulStore {
    fn realm(&self) -> Result<[u8; 32], StoreError> {
        self.log.lock().unwrap().now.realm()
    }

    fn is_enrolled(&self, device: &DeviceKey) -> Result<bool, StoreError> {
        self.log.lock().unwrap().now.is_enrolled(device)
    }

    fn enrolled(&self) -> Result<u64, StoreError> {
        self.log.lock().unwrap().now.enrolled()
    }

    fn standing(&self, task: &TaskDigest, device: &DeviceKey) -> Result<Standing, StoreError> {
        self.log.lock().unwrap().now.standing(task, device)
    }

    fn spoiled(&self, task: &TaskDigest, least: u64) -> Result<Vec<(DeviceKey, u64)>, StoreError> {
        self.log.lock().unwrap().now.spoiled(task, least)
    }

    fn open_attempt(&self, task: &TaskDigest) -> Result<Option<OpenAttempt>, StoreError> {
        self.log.lock().unwrap().now.open_attempt(task)
    }

    fn blob(&self, digest: &[u8; 32]) -> Result<Option<Vec<u8>>, StoreError> {
        self.log.lock().unwrap().now.blob(digest)
    }

    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        let mut log = self.log.lock().unwrap();
        let act = || {
            log.now.commit(batch)?;
            log.batches.push(batch.to_vec());
            Ok(())
        };
        self.fuse.durably(act, || StoreError::Failed("killed".into()))
    }
}

/// The store of a ledger. Clones are the same store.
#[derive(Clone)]
pub(crate) struct ForgetfulLedger {
    fuse: Arc<Fuse>,
    inner: Arc<Mutex<ledger::MemoryStore>>,
}

impl ForgetfulLedger {
    pub(crate) fn new(fuse: Arc<Fuse>) -> Self {
        fuse.mend();
        Self { fuse, inner: Arc::default() }
    }
}

fn killed() -> LedgerError {
    LedgerError::storage("the ledger", "killed")
}

impl LedgerStore for ForgetfulLedger {
    fn append(&mut self, after: &Head, entry: &Entry, attached: Attached<'_>) -> Result<Head, LedgerError> {
        self.fuse.durably(|| self.inner.lock().unwrap().append(after, entry, attached), killed)
    }

    fn read(&self, from: u64) -> Result<Box<dyn Iterator<Item = Result<Entry, LedgerError>> + '_>, LedgerError> {
        let all: Vec<Result<Entry, LedgerError>> = self.inner.lock().unwrap().read(from)?.collect();
        Ok(Box::new(all.into_iter()))
    }

    fn released(&self, index: u64) -> Result<Option<Vec<u8>>, LedgerError> {
        self.inner.lock().unwrap().released(index)
    }

    fn discard_released(&mut self, below: u64) -> Result<(), LedgerError> {
        self.inner.lock().unwrap().discard_released(below)
    }

    fn participations(&self) -> Result<Option<Participations<'_>>, LedgerError> {
        let inner = self.inner.lock().unwrap();
        let all: Option<Vec<Result<ParticipationRecord, LedgerError>>> = inner.participations()?.map(Iterator::collect);
        Ok(all.map(|all| -> Participations<'_> { Box::new(all.into_iter()) }))
    }

    fn begin_attempt(&mut self, begun: &BegunAttempt) -> Result<(), LedgerError> {
        self.fuse.durably(|| self.inner.lock().unwrap().begin_attempt(begun), killed)
    }

    fn begun_attempt(&self) -> Result<Option<BegunAttempt>, LedgerError> {
        self.inner.lock().unwrap().begun_attempt()
    }

    fn forget_attempt(&mut self) -> Result<(), LedgerError> {
        self.inner.lock().unwrap().forget_attempt()
    }

    fn head(&self) -> Result<Head, LedgerError> {
        self.inner.lock().unwrap().head()
    }
}

/// Secrets of a server.
pub(crate) struct ForgetfulVault {
    fuse: Arc<Fuse>,
    kept: Mutex<std::collections::BTreeMap<SecretName, Zeroizing<Vec<u8>>>>,
}

impl ForgetfulVault {
    pub(crate) fn new(fuse: Arc<Fuse>) -> Self {
        Self { fuse, kept: Mutex::default() }
    }
}

impl Vault for ForgetfulVault {
    fn read(&self, name: SecretName) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError> {
        Ok(self.kept.lock().unwrap().get(&name).cloned())
    }

    fn create(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError> {
        self.replace(name, bytes)
    }

    fn replace(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError> {
        let act = || {
            self.kept.lock().unwrap().insert(name, Zeroizing::new(bytes.to_vec()));
            Ok(())
        };
        self.fuse.durably(act, killed)
    }

    fn append(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError> {
        let act = || {
            self.kept.lock().unwrap().entry(name).or_default().extend_from_slice(bytes);
            Ok(())
        };
        self.fuse.durably(act, killed)
    }

    fn wipe_from(&self, name: SecretName, offset: usize) -> Result<(), LedgerError> {
        let act = || {
            if let Some(bytes) = self.kept.lock().unwrap().get_mut(&name) {
                bytes.truncate(offset);
            }
            Ok(())
        };
        self.fuse.durably(act, killed)
    }

    fn destroy(&self, name: SecretName) -> Result<(), LedgerError> {
        let act = || {
            self.kept.lock().unwrap().remove(&name);
            Ok(())
        };
        self.fuse.durably(act, killed)
    }

    fn exists(&self, name: SecretName) -> Result<bool, LedgerError> {
        Ok(self.kept.lock().unwrap().contains_key(&name))
    }

    fn place(&self, name: SecretName) -> String {
        name.word().to_owned()
    }
}
