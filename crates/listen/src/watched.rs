//! A stream that closes itself when nothing arrives or the peer stops reading.
//!
//! hyper's own limit on headers also counts the time between two requests, so it cannot tell a device that keeps its connection from
//! one that sends a byte of its header every second; nor has it a limit on how slowly an answer is taken. Here both are counted where
//! the bytes pass. Bodies are counted where they are read.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use crate::{
    census::Entry,
    limits::{Limits, Pace},
};

/// Where a connection stands. Its stream, its requests and its answers tell it.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) entry: Entry,
    phase: Mutex<Phase>,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// For the first byte of a request, until this time.
    Waiting(Instant),
    /// For the rest of its header, until this time.
    Header(Instant),
    /// For the service, a body, or the device to take its answer.
    Working,
    /// The answer is with hyper, which may not yet have written all of it.
    Answered,
}

impl Standing {
    pub(crate) fn new(entry: Entry, limits: &Limits) -> Arc<Self> {
        let phase = Mutex::new(Phase::Waiting(Instant::now() + limits.header));
        Arc::new(Self { entry, phase })
    }

    /// TLS has been agreed on: the time of the first header begins.
    pub(crate) fn restart(&self, limits: &Limits) {
        self.set(Phase::Waiting(Instant::now() + limits.header));
    }

    /// A request has its header.
    pub(crate) fn works(&self) {
        self.set(Phase::Working);
        self.entry.works();
    }

    fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }
}

/// The body of an answer, which tells when it has been handed over.
#[derive(Debug)]
pub(crate) struct Answering {
    pub(crate) body: Body,
    pub(crate) standing: Arc<Standing>,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.standing.set(Phase::Answered);
    }
}

/// A stream and its clocks.
#[derive(Debug)]
pub(crate) struct Watched<I> {
    stream: I,
    standing: Arc<Standing>,
    limits: Limits,
    /// Rings when nothing comes.
    quiet: Pin<Box<Sleep>>,
    /// Rings when nothing is taken; it is set while a write waits.
    stuck: Option<(Instant, Pin<Box<Sleep>>)>,
    pace: Pace,
}

impl<I> Watched<I> {
    pub(crate) fn new(stream: I, standing: Arc<Standing>, limits: Limits) -> Self {
        let quiet = Box::pin(sleep_until(Instant::now() + limits.header));
        let pace = Pace::new(limits.rate, limits.stall, limits.stall);
        Self { stream, standing, limits, quiet, stuck: None, pace }
    }

    /// Whether a write that could not continue has waited for too long.
    fn waited<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let patience = self.pace.patience();
        let (_, alarm) = self.stuck.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(sleep_until(now + patience)))
        });
        ready!(alarm.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the answer is read too slowly")))
    }

    /// Counts what a write did.
    fn written(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match done {
            Poll::Ready(Ok(bytes)) => {
                let waited = self.stuck.take().map(|(since, _)| since.elapsed());
                self.pace.flowed(bytes, waited.unwrap_or_default());
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.waited(cx),
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Watched<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        let until = match self.standing.phase() {
            Phase::Working | Phase::Answered => return read,
            Phase::Waiting(_) if into.filled().len() > before => {
                self.standing.set(Phase::Header(Instant::now() + self.limits.header));
                return read;
            }
            Phase::Waiting(until) | Phase::Header(until) => until,
        };
        // A byte now and then does not help: the time is that of the whole header.
        if read.is_ready() {
            return read;
        }
        if self.quiet.deadline() != until {
            self.quiet.as_mut().reset(until);
        }
        ready!(self.quiet.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no request came in time")))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.written(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => return self.waited(cx),
            Poll::Ready(flushed) => flushed?,
        }
        if let Some((since, _)) = self.stuck.take() {
            self.pace.flowed(0, since.elapsed());
        }
        if let Phase::Answered = self.standing.phase() {
            self.standing.set(Phase::Waiting(Instant::now() + self.limits.idle));
            self.standing.entry.waits();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(cx) {
            Poll::Pending => self.waited(cx),
            done => done,
        }
    }
}
