//! Reads a body as it arrives, and ends it if it is too slow.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use listen::{Limits, Pace};
use tokio::time::{Instant, timeout_at};

use super::answers::Refusal;

/// What came of a body.
pub(super) enum Came {
    /// Bytes.
    Bytes(Bytes),
    /// Nothing, for as long as was asked.
    Nothing,
    /// Its end.
    End,
}

/// A body as it comes. Its time begins when it is first asked for: until then it waited for us.
pub(super) struct Flow {
    body: Body,
    pace: Pace,
    within: Duration,
    deadline: Option<Instant>,
}

impl Flow {
    pub(super) fn new(body: Body, limits: &Limits) -> Self {
        let pace = Pace::new(limits.rate, limits.grace, limits.grace * 2);
        Self { body, pace, within: limits.body, deadline: None }
    }

    /// What comes next. After so long it is said that nothing did, which takes nothing back from its pace.
    pub(super) async fn next(&mut self, look: Duration) -> Result<Came, Refusal> {
        let asked = Instant::now();
        let deadline = *self.deadline.get_or_insert(asked + self.within);
        let by = deadline.min(asked + self.pace.patience());
        let looks = asked.checked_add(look).unwrap_or(by);
        let data = match timeout_at(by.min(looks), self.body.frame()).await {
            Err(_) if looks < by => {
                self.pace.flowed(0, asked.elapsed());
                return Ok(Came::Nothing);
            }
            Err(_) => return Err(Refusal::Slow),
            Ok(None) => return Ok(Came::End),
            Ok(Some(Err(_))) => return Err(Refusal::Broken),
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        };
        self.pace.flowed(data.len(), asked.elapsed());
        Ok(Came::Bytes(data))
    }

    /// Reads the rest, and throws it away.
    pub(super) async fn drain(&mut self) {
        while let Ok(Came::Bytes(_)) = self.next(Duration::MAX).await {}
    }
}
