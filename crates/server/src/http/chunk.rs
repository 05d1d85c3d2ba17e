//! A chunk of a report, read as it arrives: not before there is memory for its report, and without holding all of it.

use std::time::Duration;

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, HeaderValue, header::EXPECT},
};
use bytes::Bytes;
use device::protocol::message::CHUNK;
use listen::Limits;

use super::{
    answers::Refusal,
    bodies,
    flow::{Came, Flow},
};

/// Of chunks of reports, which are no messages.
const TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// After this long without bytes the reader is told so, and can do something else first.
const LOOK: Duration = Duration::from_secs(1);

/// A piece of a chunk.
#[derive(Debug)]
pub enum Piece {
    /// Bytes; never more, all together, than a chunk has.
    Bytes(Bytes),
    /// No bytes have arrived for a while.
    Nothing,
    /// The end of the chunk.
    End,
    /// It broke off: it came too slowly, or the sender is gone. The routes choose the answer.
    Broken,
}

/// A chunk of a report as it comes.
pub struct Chunk {
    flow: Flow,
    /// The announced length, if any.
    said: Option<usize>,
    taken: usize,
    has_ended: bool,
    refused: Option<Refusal>,
    /// Whether the sender waits to be asked for it.
    asks_first: bool,
}

impl std::fmt::Debug for Chunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chunk({} bytes so far)", self.taken)
    }
}

impl From<Bytes> for Chunk {
    /// A chunk of bytes in memory.
    fn from(bytes: Bytes) -> Self {
        let said = Some(bytes.len());
        let flow = Flow::new(Body::from(bytes), &Limits::default());
        Self { flow, said, taken: 0, has_ended: false, refused: None, asks_first: false }
    }
}

impl Chunk {
    pub(super) fn new(headers: &HeaderMap, body: Body, limits: &Limits) -> Self {
        let exact = body.size_hint().exact();
        let refused = bodies::check(headers, &TYPE, exact, CHUNK).err();
        let said = exact.map(|exact| usize::try_from(exact).unwrap_or(usize::MAX));
        let (flow, asks_first) = (Flow::new(body, limits), headers.contains_key(EXPECT));
        Self { flow, said, taken: 0, has_ended: false, refused, asks_first }
    }

    /// One that comes as this body does.
    #[cfg(test)]
    pub(crate) fn of(body: Body) -> Self {
        let flow = Flow::new(body, &Limits::default());
        Self { flow, said: None, taken: 0, has_ended: false, refused: None, asks_first: false }
    }

    /// How many bytes it has, where that was announced.
    #[must_use]
    pub const fn said(&self) -> Option<usize> {
        self.said
    }

    /// The next piece.
    pub async fn next(&mut self) -> Piece {
        if self.has_ended {
            return Piece::End;
        }
        let refused = match self.flow.next(LOOK).await {
            Ok(Came::Bytes(bytes)) if bytes.len() > CHUNK - self.taken => Refusal::TooLong,
            Ok(Came::Bytes(bytes)) => {
                self.taken += bytes.len();
                return Piece::Bytes(bytes);
            }
            Ok(Came::Nothing) => return Piece::Nothing,
            Ok(Came::End) if self.taken > 0 => {
                self.has_ended = true;
                return Piece::End;
            }
            Ok(Came::End) => Refusal::Empty,
            Err(refusal) => refusal,
        };
        self.refused = Some(refused);
        Piece::Broken
    }

    /// Why the routes refuse it.
    pub(super) const fn refused(&self) -> Option<Refusal> {
        self.refused
    }

    /// What was not taken of it is read nevertheless, if it is short enough to be, and thrown away: a device that still sends when its connection
    /// is closed may never see the answer, and the next one would need another handshake. A client that waits to be asked need not send it.
    pub(super) async fn let_go(mut self) {
        let broke = matches!(self.refused, Some(Refusal::Slow | Refusal::Broken));
        let is_short = self.said.is_some_and(|said| said <= CHUNK);
        let has_begun = !self.asks_first || self.taken > 0;
        if is_short && !broke && !self.has_ended && has_begun {
            self.flow.drain().await;
        }
    }
}
