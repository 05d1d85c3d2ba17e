//! A store, a ledger and a vault that end with their server at any durable step: before it, or right after it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use device::{guard::TaskDigest, protocol::message::DeviceKey};
use keyhush_federated::{
    protocol::store::{EnrolledInHour, MemoryStore, OpenAttempt, Standing, Store, StoreError, Write},
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

    pub(crate) fn blow(&self) {
        self.blown.store(true, Ordering::Relaxed);
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
    /// Whose turn it is to write: servers are counted from 1.
    turn: u64,
}

/// The store of a coordinator.
pub(crate) struct ForgetfulStore {
    fuse: Arc<Fuse>,
    flaw: Option<Flaw>,
    list_emptied: bool,
    log: Mutex<Log>,
}

impl ForgetfulStore {
    pub(crate) fn new(fuse: Arc<Fuse>, flaw: Option<Flaw>, list_emptied: bool) -> Self {
        Self {
            fuse,
            flaw,
            list_emptied,
            log: Mutex::new(Log { batches: Vec::new(), now: MemoryStore::new([9; 32]), turn: 0 }),
        }
    }

    /// What is there after a crash.
    pub(crate) fn restart(&self) {
        let mut log = self.log.lock().unwrap();
        let lost = match self.flaw {
            Some(Flaw::AnswersBeforeWriting) => 2,
            Some(Flaw::ForgetsWrites) => 1 + log.batches.len() % 4,
            _ => 0,
        };
        if lost == 0 {
            return;
        }
        let kept = log.batches.len().saturating_sub(lost);
        log.batches.truncate(kept);
        let now = MemoryStore::new([9; 32]);
        log.batches.iter().for_each(|batch| now.commit(batch).unwrap());
        log.now = now;
    }

    /// The store in the hands of a server that takes over. On disk this is the lock of the database: while somebody holds it nobody else
    /// opens it, and who lost it has lost the file.
    pub(crate) fn take(self: &Arc<Self>) -> Leased {
        let mut log = self.log.lock().unwrap();
        log.turn += 1;
        Leased { store: Arc::clone(self), turn: log.turn }
    }

    fn commit(&self, turn: u64, batch: &[Write]) -> Result<(), StoreError> {
        let mut log = self.log.lock().unwrap();
        let is_stale = turn != log.turn;
        if is_stale && self.flaw != Some(Flaw::StaleLease) {
            return Err(StoreError::Failed("another server has taken over".into()));
        }
        // Two sealed sums that differ by few reports would show those to whoever has the key of both.
        let differs_by_few = |write: &Write| matches!(write, Write::Merge { reports, .. } if reports.len() < 16);
        if batch.iter().any(differs_by_few) {
            return Err(StoreError::Refused("two sums differ by fewer than 16 reports".into()));
        }
        let mut act = || {
            log.now.commit(batch)?;
            log.batches.push(batch.to_vec());
            Ok(())
        };
        // How long a server lives is counted in its own steps.
        if is_stale { act() } else { self.fuse.durably(act, || StoreError::Failed("killed".into())) }
    }

    /// In how many spoiled attempts devices were, all of them together.
    pub(crate) fn spoiled(&self) -> u64 {
        let log = self.log.lock().unwrap();
        let tasks: std::collections::BTreeSet<TaskDigest> = log.batches.iter().flatten().filter_map(task_of).collect();
        let of = |task: &TaskDigest| log.now.spoiled(task, 1).unwrap().iter().map(|(_, times)| *times).sum::<u64>();
        tasks.iter().map(of).sum()
    }

    /// Bytes that devices ask for.
    pub(crate) fn blob(&self, digest: &[u8; 32]) -> Option<Vec<u8>> {
        self.log.lock().unwrap().now.blob(digest).unwrap()
    }

    /// What is kept of the attempt that is open.
    pub(crate) fn kept(&self, task: &TaskDigest) -> Option<OpenAttempt> {
        self.log.lock().unwrap().now.open_attempt(task).unwrap()
    }
}

/// The task in which somebody spoiled an attempt.
fn task_of(write: &Write) -> Option<TaskDigest> {
    match write {
        Write::Spoiled(at) => Some(at.task),
        _ => None,
    }
}

/// The store of a coordinator, as one server has it.
pub(crate) struct Leased {
    store: Arc<ForgetfulStore>,
    turn: u64,
}

impl Store for Leased {
    fn realm(&self) -> Result<[u8; 32], StoreError> {
        self.store.log.lock().unwrap().now.realm()
    }

    fn is_enrolled(&self, device: &DeviceKey) -> Result<bool, StoreError> {
        self.store.log.lock().unwrap().now.is_enrolled(device)
    }

    fn enrolled(&self) -> Result<u64, StoreError> {
        self.store.log.lock().unwrap().now.enrolled()
    }

    fn enrolled_in(&self, hour: u64) -> Result<EnrolledInHour, StoreError> {
        self.store.log.lock().unwrap().now.enrolled_in(hour)
    }

    fn asked(&self, task: &TaskDigest) -> Result<u64, StoreError> {
        self.store.log.lock().unwrap().now.asked(task)
    }

    fn standing(&self, task: &TaskDigest, device: &DeviceKey) -> Result<Standing, StoreError> {
        self.store.log.lock().unwrap().now.standing(task, device)
    }

    fn spoiled(&self, task: &TaskDigest, least: u64) -> Result<Vec<(DeviceKey, u64)>, StoreError> {
        self.store.log.lock().unwrap().now.spoiled(task, least)
    }

    fn open_attempt(&self, task: &TaskDigest) -> Result<Option<OpenAttempt>, StoreError> {
        let kept = self.store.log.lock().unwrap().now.open_attempt(task)?;
        let emptied = |kept: OpenAttempt| OpenAttempt { merged: Vec::new(), ..kept };
        Ok(if self.store.list_emptied { kept.map(emptied) } else { kept })
    }

    fn blob(&self, digest: &[u8; 32]) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.log.lock().unwrap().now.blob(digest)
    }

    fn commit(&self, batch: &[Write]) -> Result<(), StoreError> {
        self.store.commit(self.turn, batch)
    }
}

/// The store of a ledger. Clones are the same store.
#[derive(Clone)]
pub(crate) struct ForgetfulLedger {
    fuse: Arc<Fuse>,
    flaw: Option<Flaw>,
    inner: Arc<Mutex<ledger::MemoryStore>>,
    /// What it was before the last entry.
    before: Arc<Mutex<Option<ledger::MemoryStore>>>,
}

impl ForgetfulLedger {
    pub(crate) fn new(fuse: Arc<Fuse>, flaw: Option<Flaw>) -> Self {
        fuse.mend();
        Self { fuse, flaw, inner: Arc::default(), before: Arc::default() }
    }

    /// What is there after a crash.
    pub(crate) fn restart(&self) {
        if self.flaw == Some(Flaw::ReleasesBeforeLedger)
            && let Some(before) = self.before.lock().unwrap().take()
        {
            *self.inner.lock().unwrap() = before;
        }
    }
}

fn killed() -> LedgerError {
    LedgerError::storage("the ledger", "killed")
}

impl LedgerStore for ForgetfulLedger {
    fn append(&mut self, after: &Head, entry: &Entry, attached: Attached<'_>) -> Result<Head, LedgerError> {
        let act = || {
            let mut inner = self.inner.lock().unwrap();
            // Whatever was there when the run was begun stays.
            if self.flaw == Some(Flaw::ReleasesBeforeLedger) && after.length > 0 {
                *self.before.lock().unwrap() = Some(inner.clone());
            }
            inner.append(after, entry, attached)
        };
        self.fuse.durably(act, killed)
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
