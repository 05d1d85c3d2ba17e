//! Runs one device: carries out what its state machine asks for (requests, training, waiting) and reports the results back to it.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use device::{
    guard::Store,
    protocol::{
        participant::{Do, Event, Note, Now, Participant, What},
        terms::Purpose,
    },
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::watch,
    task::block_in_place,
    time::sleep,
};

use crate::{
    content::Content,
    eligibility::Eligibility,
    http::{HttpError, Server},
    text::TextSource,
    training::Trainers,
    unsent::UnsentFile,
};

/// How often it is looked whether a device may take part, and whether it has something that is too old, while it waits.
const LOOK: Duration = Duration::from_secs(10);

/// The clocks of this machine, or what a device takes for them.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    began: Instant,
    /// How wrong the time of day is, in seconds.
    off_by_s: i64,
}

impl Clocks {
    /// Correct clocks, starting now.
    #[must_use]
    pub fn now_on() -> Self {
        Self { began: Instant::now(), off_by_s: 0 }
    }

    /// The same, with a time of day that is wrong by so many seconds.
    #[must_use]
    pub const fn off_by(self, seconds: i64) -> Self {
        Self { off_by_s: seconds, ..self }
    }

    /// The current time by the device's clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        let up_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let clock_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Now { up_ms, clock_s: clock_s.saturating_add_signed(self.off_by_s) }
    }
}

/// The environment of a device: its server, text, clock and trainers.
#[derive(Clone)]
pub struct Surroundings {
    /// The server.
    pub server: Arc<Server>,
    /// The trainer threads.
    pub trainers: Arc<Trainers>,
    /// What was fetched for others already, where there are others.
    pub content: Option<Arc<Content>>,
    /// What there is to learn from.
    pub text: Arc<dyn TextSource>,
    /// What it learned and has not sent.
    pub unsent: UnsentFile,
    /// Whether it may take part now.
    pub eligibility: Arc<dyn Eligibility>,
    /// How long it lets the server think.
    pub patience: Duration,
}

impl Surroundings {
    /// Deletes text and what was learned and not sent, where it is older than it may be. If that cannot be written now, it is tried again.
    pub(crate) fn let_go_of_old(&self) {
        _ = self.text.let_go_of_old();
        _ = self.unsent.let_go_of_old();
    }
}

/// Runs a device until it is told to stop. What happens is told to `heard`.
pub async fn run<S: Store>(
    device: &mut Participant<S>,
    around: &Surroundings,
    clocks: Clocks,
    mut stop: watch::Receiver<bool>,
    mut heard: impl FnMut(&Note),
) {
    let mut looked = None::<Instant>;
    loop {
        let going = async {
            if looked.is_none_or(|at| at.elapsed() >= LOOK) {
                // Before it is asked whether the device may take part: one that never may keeps nothing longer either.
                around.let_go_of_old();
                if !may(around).await {
                    device.leave(clocks.now());
                    return sleep(LOOK).await;
                }
                looked = Some(Instant::now());
            }
            match next(device, around, clocks, &mut heard) {
                Do::Sleep { until_ms } => {
                    let left = Duration::from_millis(until_ms.saturating_sub(clocks.now().up_ms));
                    sleep(left.min(LOOK)).await;
                }
                next => act(device, next, around, clocks).await,
            }
        };
        // Who was told to stop says nothing more: a check-in whose answer nobody hears would use up a place.
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            () = going => {}
        }
        device.notes().iter().for_each(&mut heard);
    }
}

/// What a device does next. Before the first byte of an update leaves, at a tick after that, the text that it was learned from is used up, and then what is
/// kept of it for later rounds is saved, both durably; where one of them cannot be, the update does not leave either. In this order no text is learned
/// from twice after a crash. Text that a model was measured on stays.
pub(crate) fn next<S: Store>(
    device: &mut Participant<S>,
    around: &Surroundings,
    clocks: Clocks,
    heard: impl FnMut(&Note),
) -> Do {
    let next = device.next(clocks.now());
    let notes = device.notes();
    notes.iter().for_each(heard);
    let leaves = notes.iter().find_map(|note| match note {
        Note::Gave { step, purpose: Purpose::Training } => Some(*step),
        _ => None,
    });
    match leaves.map(|step| keep_what_is_to_be_kept(around, step)) {
        Some(Err(why)) => {
            device.got(Event::Withheld(why), clocks.now());
            device.next(clocks.now())
        }
        _ => next,
    }
}

fn keep_what_is_to_be_kept(around: &Surroundings, step: u64) -> Result<(), String> {
    around.text.used().map_err(|why| format!("the text it was computed from cannot be marked as used: {why}"))?;
    let kept = around.unsent.left(step);
    kept.map_err(|why| format!("the part of the update that is not sent cannot be stored: {why}"))
}

/// Whether the device may take part now; the host may take a moment to say so.
async fn may(around: &Surroundings) -> bool {
    let eligibility = around.eligibility.clone();
    tokio::task::spawn_blocking(move || eligibility.eligible()).await.unwrap_or(false)
}

/// Does one thing that the machine asks for.
pub async fn act<S: Store>(device: &mut Participant<S>, what: Do, around: &Surroundings, clocks: Clocks) {
    match what {
        Do::Sleep { .. } => {}
        Do::Hello => answered(device, around.server.hello().await, clocks),
        Do::Say(bytes) => answered(device, around.server.say(bytes, around.patience).await, clocks),
        Do::Send { ticket, offset, chunk } => {
            answered(device, around.server.send(&ticket, offset, chunk).await, clocks);
        }
        Do::Train(work) => {
            let trained = around.trainers.train(work, around.text.clone(), around.unsent.clone()).await;
            aside(|| device.got(Event::Trained(trained), clocks.now()));
        }
        Do::Fetch { what, wanted, offset } => {
            if offset == 0
                && let Some(content) = &around.content
            {
                let found = match what {
                    What::Task => content.task(wanted).await.map(Event::Task),
                    What::Model => content.model(wanted).await.map(Event::Model),
                };
                if let Some(event) = found {
                    return device.got(event, clocks.now());
                }
            }
            let mut pieces = |piece: &[u8]| {
                device.got(Event::Piece(piece), clocks.now());
                device.is_busy()
            };
            let ended = around.server.blob(&wanted.digest, offset, &mut pieces).await;
            device.got(ended.map_or_else(|error| lost(&error), |()| Event::Whole), clocks.now());
        }
    }
}

/// Does what takes a while, such as masking an input of millions of numbers, so that other devices of the process continue meanwhile.
fn aside<R>(act: impl FnOnce() -> R) -> R {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(act),
        _ => act(),
    }
}

fn answered<S: Store>(device: &mut Participant<S>, answer: Result<bytes::Bytes, HttpError>, clocks: Clocks) {
    match answer {
        Ok(bytes) => device.got(Event::Answer(&bytes), clocks.now()),
        Err(error) => device.got(lost(&error), clocks.now()),
    }
}

/// Whether the server was lost, or was not there to begin with.
const fn lost(error: &HttpError) -> Event<'static> {
    match error {
        HttpError::Connect(_) | HttpError::Status(_) => Event::Unreached,
        HttpError::TimedOut | HttpError::Broken(_) => Event::Broken,
    }
}
