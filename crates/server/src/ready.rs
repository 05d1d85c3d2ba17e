//! Whether the server can take devices now, and why not: for supervisors and load balancers, at `/readyz`.
//!
//! `/healthz` says whether it is worth restarting: it stays well while the disk fills. This says whether devices should be sent here. Everybody may ask, so the
//! words name no task and no file, and however often it is asked, the database is read once a second.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use federated::protocol::store::Store;
use tokio::time::timeout;

use crate::{disk, observed::Observed};

/// The least room on the disk: writes of a few rounds. A server whose write fails stops.
const LEAST_FREE: u64 = 64 << 20;
/// The coordinator decides within milliseconds; one that is silent for so long is stuck, in a disk that does not answer for example.
const SILENT_MS: u64 = 10_000;
/// How long the database has to answer.
const DATABASE: Duration = Duration::from_secs(2);
/// For how long what was found out is repeated.
const KEPT_MS: u64 = 1_000;

/// What is looked at.
pub(crate) struct Ready {
    store: Arc<dyn Store>,
    observed: Arc<Observed>,
    folder: Option<PathBuf>,
    found: Mutex<Option<(u64, Vec<String>)>>,
}

impl Ready {
    pub(crate) fn new(store: Arc<dyn Store>, observed: Arc<Observed>) -> Self {
        Self { store, observed, folder: None, found: Mutex::new(None) }
    }

    /// The disk of this folder is looked at too.
    pub(crate) fn on_disk(self, folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()), ..self }
    }

    /// Why the server is not ready; nothing where it is.
    pub(crate) async fn not_ready(&self, now_ms: u64) -> Vec<String> {
        let kept = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, found)) = kept.filter(|(at, _)| now_ms < at + KEPT_MS) {
            return found;
        }
        let found: Vec<String> = [self.coordinator(now_ms), self.tasks(), self.disk(), self.database().await]
            .into_iter()
            .flatten()
            .collect();
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some((now_ms, found.clone()));
        found
    }

    fn coordinator(&self, now_ms: u64) -> Option<String> {
        let silent_ms = self.observed.silent_ms(now_ms);
        let stuck = || {
            format!(
                "coordinator: nothing was decided for {} s; the disk may not answer, or the machine may be overloaded",
                silent_ms / 1000
            )
        };
        (silent_ms > SILENT_MS).then(stuck)
    }

    fn tasks(&self) -> Option<String> {
        match self.observed.broken() {
            (all, broken) if all > 0 && all == broken => {
                Some("tasks: none of them can continue; keyhush task list says why".to_owned())
            }
            _ => None,
        }
    }

    fn disk(&self) -> Option<String> {
        little_room(disk::room(self.folder.as_ref()?))
    }

    async fn database(&self) -> Option<String> {
        let store = Arc::clone(&self.store);
        match timeout(DATABASE, tokio::task::spawn_blocking(move || store.enrolled())).await {
            Ok(Ok(Ok(_))) => None,
            Ok(_) => Some("database: it cannot be read; keyhush doctor says more".to_owned()),
            Err(_) => Some(format!("database: no answer within {} s", DATABASE.as_secs())),
        }
    }
}

/// Why a disk has too little room.
fn little_room(room: io::Result<disk::Room>) -> Option<String> {
    let mib = |bytes: u64| bytes >> 20;
    match room {
        Ok(room) if room.free >= LEAST_FREE => None,
        Ok(room) => Some(format!(
            "disk: {} MiB free in the data folder; at least {} MiB are needed",
            mib(room.free),
            mib(LEAST_FREE)
        )),
        Err(error) => Some(format!("disk: the data folder cannot be reached: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use device::guard::TaskDigest;
    use federated::protocol::store::MemoryStore;

    use super::*;

    fn ready() -> (Ready, Arc<Observed>) {
        let observed = Arc::new(Observed::default());
        (Ready::new(Arc::new(MemoryStore::new([7; 32])), Arc::clone(&observed)), observed)
    }

    #[test]
    fn a_disk_with_little_room_is_told() {
        let total = 1 << 40;
        assert_eq!(little_room(Ok(disk::Room { free: LEAST_FREE, total })), None);
        let told = little_room(Ok(disk::Room { free: LEAST_FREE - 1, total })).unwrap();
        assert_eq!(told, "disk: 63 MiB free in the data folder; at least 64 MiB are needed");
    }

    #[tokio::test]
    async fn a_server_is_ready_with_a_task_a_coordinator_and_a_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (ready, observed) = ready();
        let ready = ready.on_disk(folder.path());
        observed.starts(1_000_000);
        assert!(ready.not_ready(1_000_000).await.is_empty(), "tasks can be created");
        observed.serves("words", TaskDigest([1; 32]), false);
        observed.serves("other", TaskDigest([2; 32]), false);
        observed.gives_up("words", true);
        assert!(ready.not_ready(1_002_000).await.is_empty(), "the others continue");
        observed.gives_up("other", true);
        assert!(ready.not_ready(1_002_999).await.is_empty(), "it is looked once a second");
        let found = ready.not_ready(1_003_000).await;
        assert!(matches!(&found[..], [why] if why.starts_with("tasks: none of them can continue")), "{found:?}");
        observed.gives_up("other", false);
        let found = ready.not_ready(1_011_001).await;
        assert!(
            matches!(&found[..], [why] if why.starts_with("coordinator: nothing was decided for 11 s")),
            "{found:?}"
        );
        drop(folder);
        let found = ready.not_ready(1_012_001).await;
        assert!(found.iter().any(|why| why.starts_with("disk: ")), "{found:?}");
    }
}
