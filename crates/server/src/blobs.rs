//! Tasks and models that devices download, each in memory once.
//!
//! When a round opens, thousands of devices ask for its model within seconds. One of them has it read, and all others wait for that: each would
//! otherwise hold a copy of its own for as long as its device takes to download it. A blob that somebody is still being sent is not let go of, for
//! that would free nothing, and the next request would read it again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use federated::protocol::store::Store;
use tokio::sync::OnceCell;

use crate::http::Packed;

/// Blobs in memory that nobody is being sent: a task and a model of each of a few tasks.
const IDLE: usize = 8;

/// A blob, once it is read.
type Cell = Arc<OnceCell<Packed>>;

/// What is in memory, by its digest, and when it was asked for last.
#[derive(Default)]
struct Kept {
    blobs: HashMap<[u8; 32], (Cell, u64)>,
    asked: u64,
}

pub(crate) struct Blobs {
    store: Arc<dyn Store>,
    kept: Arc<Mutex<Kept>>,
}

impl Blobs {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, kept: Arc::default() }
    }

    /// A blob, packed; none where there is none.
    pub(crate) async fn get(&self, digest: [u8; 32]) -> Option<Packed> {
        let (cell, store, kept) = (locked(&self.kept).cell(digest), Arc::clone(&self.store), Arc::clone(&self.kept));
        if let Some(packed) = cell.get() {
            return Some(packed.clone());
        }
        // A task of its own: where a device hangs up, what it had begun to read is there for the others.
        let reads = tokio::spawn(async move {
            let read = || async {
                let blob = tokio::task::spawn_blocking(move || store.blob(&digest)).await;
                blob.ok().and_then(Result::ok).flatten().map(|bytes| Packed::new(bytes.into())).ok_or(())
            };
            let packed = cell.get_or_try_init(read).await.ok().cloned();
            locked(&kept).tidy(&digest, &cell);
            packed
        });
        reads.await.ok()?
    }
}

fn locked(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// Where a blob is, or comes to be.
    fn cell(&mut self, digest: [u8; 32]) -> Cell {
        self.asked += 1;
        let (cell, asked) = self.blobs.entry(digest).or_default();
        *asked = self.asked;
        Arc::clone(cell)
    }

    /// One was read, or is not there.
    fn tidy(&mut self, digest: &[u8; 32], read: &Cell) {
        if read.get().is_none() && self.blobs.get(digest).is_some_and(|(cell, _)| Arc::ptr_eq(cell, read)) {
            self.blobs.remove(digest);
        }
        let idle = |(digest, (cell, asked)): (&[u8; 32], &(Cell, u64))| {
            cell.get().is_some_and(|packed| packed.bytes().is_unique()).then_some((*asked, *digest))
        };
        let mut idle: Vec<(u64, [u8; 32])> = self.blobs.iter().filter_map(idle).collect();
        idle.sort_unstable();
        for (_, digest) in idle.iter().rev().skip(IDLE) {
            self.blobs.remove(digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::Duration,
    };

    use device::{guard::TaskDigest, protocol::message::DeviceKey};
    use federated::protocol::store::{EnrolledInHour, OpenAttempt, Standing, StoreError, Write};

    use super::*;

    /// A store of nothing but blobs, each of the number that its digest begins with, which takes a while to read one.
    #[derive(Default)]
    struct Slow {
        reads: AtomicU64,
    }

    impl Store for Slow {
        fn realm(&self) -> Result<[u8; 32], StoreError> {
            Ok([7; 32])
        }
        fn is_enrolled(&self, _device: &DeviceKey) -> Result<bool, StoreError> {
            Ok(false)
        }
        fn enrolled(&self) -> Result<u64, StoreError> {
            Ok(0)
        }
        fn enrolled_in(&self, _hour: u64) -> Result<EnrolledInHour, StoreError> {
            Ok(EnrolledInHour::default())
        }
        fn asked(&self, _task: &TaskDigest) -> Result<u64, StoreError> {
            Ok(0)
        }
        fn standing(&self, _task: &TaskDigest, _device: &DeviceKey) -> Result<Standing, StoreError> {
            Ok(Standing::default())
        }
        fn spoiled(&self, _task: &TaskDigest, _least: u64) -> Result<Vec<(DeviceKey, u64)>, StoreError> {
            Ok(Vec::new())
        }
        fn open_attempt(&self, _task: &TaskDigest) -> Result<Option<OpenAttempt>, StoreError> {
            Ok(None)
        }
        fn blob(&self, digest: &[u8; 32]) -> Result<Option<Vec<u8>>, StoreError> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(50));
            Ok((digest[0] > 0).then(|| vec![digest[0]; 1000]))
        }
        fn commit(&self, _batch: &[Write]) -> Result<(), StoreError> {
            Ok(())
        }
    }

    fn slow() -> (Arc<Slow>, Arc<Blobs>) {
        let store = Arc::new(Slow::default());
        (Arc::clone(&store), Arc::new(Blobs::new(store)))
    }

    /// A round opened and every device that asked before the first had its answer read the model by itself, and kept its own copy.
    #[tokio::test]
    async fn who_asks_at_once_is_given_one_copy_that_was_read_once() {
        let (store, blobs) = slow();
        // Who asks first hangs up in the middle of it.
        assert!(tokio::time::timeout(Duration::from_millis(5), blobs.get([1; 32])).await.is_err());
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let blobs = Arc::clone(&blobs);
            all.spawn(async move { blobs.get([1; 32]).await.unwrap() });
        }
        let all = all.join_all().await;
        assert_eq!(store.reads.load(Ordering::Relaxed), 1);
        assert!(all.iter().all(|packed| packed.bytes().as_ptr() == all[0].bytes().as_ptr()));
        assert_eq!((all.len(), &all[0].bytes()[..]), (64, &[1; 1000][..]));
    }

    #[tokio::test]
    async fn what_somebody_is_sent_stays_and_of_the_rest_a_few() {
        let (store, blobs) = slow();
        let sent = blobs.get([1; 32]).await.unwrap();
        for digest in 2..30 {
            assert!(blobs.get([digest; 32]).await.is_some());
        }
        let reads = store.reads.load(Ordering::Relaxed);
        let again = blobs.get([1; 32]).await.unwrap();
        assert_eq!((reads, again.bytes().as_ptr()), (29, sent.bytes().as_ptr()), "it is not read again");
        assert_eq!(store.reads.load(Ordering::Relaxed), reads);
        assert!(locked(&blobs.kept).blobs.len() <= IDLE + 2, "{}", locked(&blobs.kept).blobs.len());
        assert!(blobs.get([29; 32]).await.is_some() && store.reads.load(Ordering::Relaxed) == reads, "the last stay");
    }

    #[tokio::test]
    async fn what_is_not_there_leaves_nothing() {
        let (store, blobs) = slow();
        for _ in 0..2 {
            assert!(blobs.get([0; 32]).await.is_none());
            assert!(locked(&blobs.kept).blobs.is_empty());
        }
        assert_eq!(store.reads.load(Ordering::Relaxed), 2);
    }
}
