//! Tasks and models by digest: downloaded and decoded once for all devices of a process, even if many ask at the same time.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use device::protocol::{
    blob::{BlobError, Download, Wanted},
    task::{Bounds, Model, Task},
};
use tokio::sync::OnceCell;

use crate::http::Server;

/// Things of a kind that are kept, the newest ones: a round has one model, and late devices the one before.
const MOST_KEPT: usize = 4;
/// Times that a download is taken up again.
const TRIES: usize = 5;

/// A cache of tasks and models by digest.
pub struct Content {
    server: Arc<Server>,
    bounds: Bounds,
    tasks: Shelf<Task>,
    models: Shelf<Model>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({:?})", self.server)
    }
}

/// Something that is there, or on its way.
type Place<T> = Arc<OnceCell<Arc<T>>>;

struct Shelf<T>(Mutex<Vec<(Wanted, Place<T>)>>);

impl<T> Shelf<T> {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn place(&self, wanted: Wanted) -> Place<T> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = kept.iter().find(|(known, _)| *known == wanted) {
            return place.clone();
        }
        if kept.len() >= MOST_KEPT {
            kept.remove(0);
        }
        let place = Place::default();
        kept.push((wanted, place.clone()));
        place
    }
}

impl Content {
    /// Nothing yet, of this server, for devices with these bounds.
    #[must_use]
    pub const fn new(server: Arc<Server>, bounds: Bounds) -> Self {
        Self { server, bounds, tasks: Shelf::new(), models: Shelf::new() }
    }

    /// A task; none where it cannot be had or is not one. Then a device that fetches it by itself will say why.
    pub async fn task(&self, wanted: Wanted) -> Option<Arc<Task>> {
        let read = async || {
            let bytes = self.fetch(wanted).await.ok_or(())?;
            Task::read(&bytes, &self.bounds).map(Arc::new).map_err(|_| ())
        };
        self.tasks.place(wanted).get_or_try_init(read).await.ok().cloned()
    }

    /// A model; none where it cannot be had.
    pub async fn model(&self, wanted: Wanted) -> Option<Arc<Model>> {
        let read = async || {
            let bytes = self.fetch(wanted).await.ok_or(())?;
            Model::read(&bytes).map(Arc::new).map_err(|_| ())
        };
        self.models.place(wanted).get_or_try_init(read).await.ok().cloned()
    }

    async fn fetch(&self, wanted: Wanted) -> Option<Vec<u8>> {
        let mut download = Download::new(wanted);
        for _ in 0..TRIES {
            let mut refused = false;
            let (digest, offset) = (wanted.digest, download.offset());
            let take = |piece: &[u8]| {
                refused |= download.take(piece).is_err();
                !refused
            };
            let ended = self.server.blob(&digest, offset, take).await;
            if refused {
                return None;
            }
            match download.finish() {
                Ok(bytes) => return Some(bytes),
                Err(BlobError::Short { .. }) if ended.is_err() => {}
                Err(_) => return None,
            }
        }
        None
    }
}
