//! Request bodies of bounded length, rate and memory. Nothing is decompressed.
//!
//! A body gets its room before any of it is read, so that ten thousand devices that speak at once wait in their sockets and not in
//! our memory; a device that waits too long is told to come back. Short bodies have room of their own, and are not kept waiting by long ones. Chunks of
//! reports are no such bodies: nobody keeps them (`chunk`).

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    http::{
        HeaderMap, HeaderValue,
        header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT},
    },
};
use bytes::Bytes;
use listen::Limits;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    answers::Refusal,
    flow::{Came, Flow},
};

/// A permit is for so many bytes.
const PIECE: usize = 1 << 10;
/// Bodies up to this length have room of their own, of so many bytes.
const SHORT: usize = 16 << 10;
const ROOM_OF_SHORT: usize = 64 << 20;

/// The room that there is for bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    room: Arc<Semaphore>,
    short: Arc<Semaphore>,
    limits: Limits,
}

/// Bytes and the room that they take.
struct Kept {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
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
        let short = Arc::new(Semaphore::new(ROOM_OF_SHORT / PIECE));
        Self { room: Arc::new(Semaphore::new(pieces)), short, limits }
    }

    /// The whole body, if it is of this type and length and comes fast enough.
    ///
    /// One that is refused unread, and is short enough to be read, is read nevertheless and thrown away: a device that still sends
    /// when its connection is closed may never see the answer, and the next one would need another handshake.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        of: &HeaderValue,
        body: Body,
        most: usize,
    ) -> Result<Bytes, Refusal> {
        let said = body.size_hint().exact();
        let admitted = self.admit(headers, of, said, most).await;
        let mut flow = Flow::new(body, &self.limits);
        let refusal = match admitted {
            Ok((length, room)) => return collect(flow, length, most, room).await,
            Err(refusal) => refusal,
        };
        // A client that waits to be asked for the body need not send it.
        if said.is_some_and(|length| length <= most as u64) && !headers.contains_key(EXPECT) {
            flow.drain().await;
        }
        Err(refusal)
    }

    /// The most bytes that a body can have, and room for them.
    async fn admit(
        &self,
        headers: &HeaderMap,
        of: &HeaderValue,
        said: Option<u64>,
        most: usize,
    ) -> Result<(usize, OwnedSemaphorePermit), Refusal> {
        let length = check(headers, of, said, most)?;
        Ok((length, self.room(length).await?))
    }

    async fn room(&self, length: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let room = Arc::clone(if length <= SHORT { &self.short } else { &self.room });
        let pieces = u32::try_from(length.div_ceil(PIECE)).map_err(|_| Refusal::TooLong)?;
        match timeout(self.limits.room_wait, room.acquire_many_owned(pieces)).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => Err(Refusal::NoRoom),
        }
    }
}

/// The most bytes that a body can have, by its header.
pub(super) fn check(headers: &HeaderMap, of: &HeaderValue, said: Option<u64>, most: usize) -> Result<usize, Refusal> {
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(Refusal::Packed);
    }
    if headers.get(CONTENT_TYPE) != Some(of) {
        return Err(Refusal::WrongType);
    }
    // A length that was said is kept to by hyper; the others are counted as they come.
    match said {
        Some(0) => Err(Refusal::Empty),
        Some(exact) => usize::try_from(exact).ok().filter(|l| *l <= most).ok_or(Refusal::TooLong),
        None => Ok(most),
    }
}

async fn collect(mut flow: Flow, length: usize, most: usize, room: OwnedSemaphorePermit) -> Result<Bytes, Refusal> {
    let mut bytes = Vec::with_capacity(length);
    while let Came::Bytes(data) = flow.next(Duration::MAX).await? {
        if data.len() > most - bytes.len() {
            return Err(Refusal::TooLong);
        }
        bytes.extend_from_slice(&data);
    }
    if bytes.is_empty() {
        return Err(Refusal::Empty);
    }
    Ok(Bytes::from_owner(Kept { bytes, _room: room }))
}
