//! Server-sent events for pages: first all of it, then what changes, with a sign of life in between.
//!
//! A slow page gets fewer events, and misses no change: at most one waits for it, and each is made when it can be sent.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval_at},
};

/// So often an event stream says that it is there, so that what is between notices where it is not. At fixed times: they do not tell when
/// something changed that this page is not told.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// What a page is told.
pub trait Source: Send + 'static {
    /// The name of its events.
    const NAME: &'static str;

    /// Whether there is nothing more to tell this page. It is asked before each event and at each sign of life.
    fn is_over(&mut self) -> bool;

    /// What changed after a version, or all of it, as JSON in one line; and the version that this is.
    fn told(&mut self, since: Option<u64>) -> (u64, String);

    /// Waits until something may have changed; false where nothing will change any more.
    fn changed(&mut self) -> impl Future<Output = bool> + Send;
}

/// Events as they come: the body of an answer.
#[derive(Debug)]
pub struct Events {
    coming: mpsc::Receiver<Bytes>,
}

impl Events {
    /// The media type of such answers.
    pub const KIND: &'static str = "text/event-stream";

    /// The events of a source, told by a task of the runtime until they are over or nobody listens.
    pub fn of(source: impl Source) -> Self {
        let (sender, coming) = mpsc::channel(1);
        tokio::spawn(tell(source, sender));
        Self { coming }
    }
}

async fn tell<S: Source>(mut source: S, sender: mpsc::Sender<Bytes>) {
    let mut since = None;
    let mut signs = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    signs.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        // Waits for the page before it asks what to tell it.
        let Ok(place) = sender.reserve().await else { return };
        if source.is_over() {
            return;
        }
        let (version, told) = source.told(since);
        if since == Some(version) {
            drop(place);
        } else {
            place.send(event(S::NAME, version, &told));
        }
        since = Some(version);
        loop {
            tokio::select! {
                may_have = source.changed() => if may_have { break } else { return },
                () = sender.closed() => return,
                _ = signs.tick() => {}
            }
            if source.is_over() || sender.send(Bytes::from_static(b":\n\n")).await.is_err() {
                return;
            }
        }
    }
}

fn event(name: &str, version: u64, told: &str) -> Bytes {
    format!("event: {name}\nid: {version}\ndata: {told}\n\n").into()
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.coming.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}
