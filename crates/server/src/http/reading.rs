//! Bodies for routes beside the protocol's, under the same limits.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode},
};
use bytes::Bytes;
use listen::Limits;

use super::{answers::Refusal, bodies::Bodies};

/// Reads bodies of bounded length, rate and memory.
#[derive(Debug)]
pub struct Reading(Bodies);

/// Why a body was not read.
#[derive(Debug, Clone, Copy)]
pub struct Unread {
    /// The status of the answer.
    pub status: StatusCode,
    /// The reason.
    pub words: &'static str,
    /// Seconds after which it may be otherwise; 0 where the same request is refused again.
    pub after_s: u64,
}

impl Reading {
    /// With [`Limits::room`] bytes for all bodies that arrive.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self(Bodies::new(limits, 0))
    }

    /// The whole body, if it is of this type, has at most so many bytes and comes fast enough. `most` is at most [`Limits::room`].
    ///
    /// # Errors
    /// Why not.
    pub async fn read(&self, headers: &HeaderMap, of: &HeaderValue, body: Body, most: usize) -> Result<Bytes, Unread> {
        self.0.read(headers, of, body, most).await.map_err(Unread::from)
    }
}

impl From<Refusal> for Unread {
    fn from(refusal: Refusal) -> Self {
        let (status, words, after_s) = refusal.told();
        Self { status, words, after_s }
    }
}
