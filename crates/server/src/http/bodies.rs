//! Bodies of a bounded length, rate and memory. They are taken as they are: nothing here inflates anything.
//!
//! A body gets its room before any of it is read, so that ten thousand devices that send at once wait in their sockets and not in
//! our memory; a device that waits too long is told to come back. Short bodies need no room, and are not kept waiting by long ones.

use std::sync::Arc;

use axum::{
    body::{Body, HttpBody},
    http::{
        HeaderMap, HeaderValue,
        header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT},
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
        Self { room: Arc::new(Semaphore::new(pieces)), limits }
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
        // Its time begins now: until now it waited for us.
        let mut flow = Flow::new(body, &self.limits);
        let refusal = match admitted {
            Ok((length, room)) => return flow.collect(length, most, room).await,
            Err(refusal) => refusal,
        };
        // Whoever waits to be asked for the body need not send it.
        if said.is_some_and(|length| length <= most as u64) && !headers.contains_key(EXPECT) {
            while let Ok(Some(_)) = flow.next().await {}
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
    ) -> Result<(usize, Option<OwnedSemaphorePermit>), Refusal> {
        if headers.contains_key(CONTENT_ENCODING) {
            return Err(Refusal::Packed);
        }
        if headers.get(CONTENT_TYPE) != Some(of) {
            return Err(Refusal::WrongType);
        }
        // A length that was said is kept to by hyper; the others are counted as they come.
        let length = match said {
            Some(0) => return Err(Refusal::Empty),
            Some(exact) => usize::try_from(exact).ok().filter(|l| *l <= most).ok_or(Refusal::TooLong)?,
            None => most,
        };
        Ok((length, self.room(length).await?))
    }

    async fn room(&self, length: usize) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        if length <= SHORT {
            return Ok(None);
        }
        let pieces = u32::try_from(length.div_ceil(PIECE)).map_err(|_| Refusal::TooLong)?;
        match timeout(self.limits.room_wait, Arc::clone(&self.room).acquire_many_owned(pieces)).await {
            Ok(Ok(room)) => Ok(Some(room)),
            Ok(Err(_)) | Err(_) => Err(Refusal::NoRoom),
        }
    }
}

/// A body as it comes.
struct Flow {
    body: Body,
    pace: Pace,
    deadline: Instant,
}

impl Flow {
    fn new(body: Body, limits: &Limits) -> Self {
        let pace = Pace::new(limits.rate, limits.grace, limits.grace * 2);
        Self { body, pace, deadline: Instant::now() + limits.body }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        let asked = Instant::now();
        let by = self.deadline.min(asked + self.pace.patience());
        let data = match timeout_at(by, self.body.frame()).await {
            Err(_) => return Err(Refusal::Slow),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(Refusal::Broken),
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        };
        self.pace.flowed(data.len(), asked.elapsed());
        Ok(Some(data))
    }

    async fn collect(
        mut self,
        length: usize,
        most: usize,
        room: Option<OwnedSemaphorePermit>,
    ) -> Result<Bytes, Refusal> {
        let mut bytes = Vec::with_capacity(length);
        while let Some(data) = self.next().await? {
            if data.len() > most - bytes.len() {
                return Err(Refusal::TooLong);
            }
            bytes.extend_from_slice(&data);
        }
        match room {
            _ if bytes.is_empty() => Err(Refusal::Empty),
            None => Ok(Bytes::from(bytes)),
            Some(room) => Ok(Bytes::from_owner(Kept { bytes, _room: room })),
        }
    }
}
