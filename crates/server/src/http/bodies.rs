//! Bodies of a bounded length, rate and memory. They are taken as they are: nothing here inflates anything.
//!
//! A body gets its room before any of it is read, so that ten thousand devices that send at once wait in their sockets and not in
//! our memory; a device that waits too long is told to come back. Short bodies need no room, and are not kept waiting by long ones.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    http::{
        HeaderMap, HeaderValue,
        header::{CONTENT_ENCODING, CONTENT_TYPE},
    },
};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{
    answers::Refusal,
    limits::{Limits, Pace},
};

/// A permit is for so many bytes.
const PIECE: usize = 1 << 10;
/// Bodies up to this length are bounded by the number of connections.
const SHORT: usize = 16 << 10;

/// The room that there is for bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    room: Arc<Semaphore>,
    limits: Limits,
}

/// Bytes and the room that they take.
struct Kept {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    /// There is room for one body at least.
    pub(super) fn new(limits: Limits, longest: usize) -> Self {
        let pieces = (limits.room.max(longest) / PIECE).min(Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(pieces)), limits }
    }

    /// The whole body, if it is of this type and length and comes fast enough.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        of: &HeaderValue,
        mut body: Body,
        most: usize,
    ) -> Result<Bytes, Refusal> {
        if headers.contains_key(CONTENT_ENCODING) {
            return Err(Refusal::Packed);
        }
        if headers.get(CONTENT_TYPE) != Some(of) {
            return Err(Refusal::WrongType);
        }
        // A length that was said is kept to by hyper; the others are counted as they come.
        let length = match body.size_hint().exact() {
            Some(0) => return Err(Refusal::Empty),
            Some(exact) => usize::try_from(exact).ok().filter(|l| *l <= most).ok_or(Refusal::TooLong)?,
            None => most,
        };
        let room = self.room(length).await?;
        let mut pace = Pace::new(self.limits.rate, self.limits.grace, self.limits.grace * 2);
        let deadline = Instant::now() + self.limits.body;
        let mut bytes = Vec::new();
        loop {
            let asked = Instant::now();
            let by = deadline.min(asked + pace.patience());
            let data = match timeout_at(by, body.frame()).await {
                Err(_) => return Err(Refusal::Slow),
                Ok(None) => break,
                Ok(Some(Err(_))) => return Err(Refusal::Broken),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            };
            pace.flowed(data.len(), asked.elapsed());
            if data.len() > most - bytes.len() {
                return Err(Refusal::TooLong);
            }
            if bytes.is_empty() {
                bytes.reserve_exact(length);
            }
            bytes.extend_from_slice(&data);
        }
        if bytes.is_empty() {
            return Err(Refusal::Empty);
        }
        Ok(with_room(bytes, room))
    }

    async fn room(&self, length: usize) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        if length <= SHORT {
            return Ok(None);
        }
        let pieces = u32::try_from(length.div_ceil(PIECE)).map_err(|_| Refusal::TooLong)?;
        let wait: Duration = self.limits.room_wait;
        match timeout(wait, Arc::clone(&self.room).acquire_many_owned(pieces)).await {
            Ok(Ok(room)) => Ok(Some(room)),
            Ok(Err(_)) | Err(_) => Err(Refusal::NoRoom),
        }
    }
}

fn with_room(bytes: Vec<u8>, room: Option<OwnedSemaphorePermit>) -> Bytes {
    if room.is_none() { Bytes::from(bytes) } else { Bytes::from_owner(Kept { bytes, _room: room }) }
}
