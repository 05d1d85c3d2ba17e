//! The coordinator's thread, and the requests of the routes to it.
//!
//! Requests of thousands of devices come by many threads of the runtime; a coordinator is one thing that nobody else may touch. So
//! requests wait in an inbox, and one thread takes all that have come, lets the coordinator decide, makes what was decided
//! durable in one transaction, and only then answers. Signatures are checked and reports decoded before they get there.
//!
//! When the store fails, it is not known what is durable: the hub says no more, and the server ends. Another one begins from what is
//! there.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use device::{
    guard::TaskDigest,
    protocol::message::{
        Answer, CHUNK, CLOCKS_APART_S, DeviceKey, Hello, MessageError, Realm, Reason, Says, Signed, Ticket,
        Unsupported, VERSION, Wants,
    },
};
use federated::{
    fleet::{FleetError, Stop, network::Driver},
    protocol::{
        coordinator::{Coordinator, CoordinatorError, Expected, Report, RequestId},
        store::Store,
    },
};
use secagg::entropy::{Entropy, OsEntropy};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    attestation::{Attestation, Turns},
    blobs::Blobs,
    heard::{Heard, Spoken},
    http::{Chunk, Packed, Piece, Service},
    observed::{Asked, Observed},
    ready::Ready,
    uploads::{NotTaken, Open, Uploads, Wrong, no_room},
};

#[cfg(test)]
mod room_tests;

/// Requests that are decided together at most.
const BATCH: usize = 4096;
/// How long a device waits for room for its report before it is told to come back, and how often it is looked whether others make way.
const ROOM_WAIT: Duration = Duration::from_secs(30);
const ROOM_LOOK: Duration = Duration::from_millis(500);
/// How often a chunk that comes looks whether it is to go on, in milliseconds.
const CHUNK_LOOK_MS: u64 = 1_000;
/// How often the coordinator looks whether somebody has hung up.
const LOOK_AFTER: u64 = 16;

/// Milliseconds since 1970, as the clock of the machine says. Somebody may set it, so it is asked once, when a hub is started.
#[must_use]
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The clock of a hub, which requests and windows are held against: it says what the machine's says when it is started, and is never set.
/// A clock that went back would make every check-in one from before the server was started, and no round would begin.
#[derive(Debug, Clone, Copy)]
struct Steady {
    began_ms: u64,
    began: Instant,
}

impl Steady {
    fn start() -> Self {
        Self { began_ms: now_ms(), began: Instant::now() }
    }

    fn now_ms(&self) -> u64 {
        self.began_ms + self.began.elapsed().as_millis() as u64
    }
}

/// What the coordinator is asked.
enum Job {
    /// Whether somebody is to be asked about a device that would enrol; or what it hears at once.
    Admits {
        said: Arc<Said>,
        reply: oneshot::Sender<Result<bool, Box<Answer>>>,
    },
    NotAttested {
        from: Option<IpAddr>,
    },
    Say {
        said: Arc<Said>,
        reply: oneshot::Sender<Answer>,
    },
    Begins {
        ticket: Ticket,
        reply: oneshot::Sender<Result<Expected, Box<Answer>>>,
    },
    Report {
        ticket: Ticket,
        report: Report,
        room: Room,
        reply: oneshot::Sender<Answer>,
    },
    BrokeBounds {
        ticket: Ticket,
    },
    Wake,
}

/// What a device says, once its signature and its clock were looked at.
struct Said {
    device: DeviceKey,
    spoken: Spoken,
    from: Option<IpAddr>,
    wants: Wants,
    /// As it came. The room for bodies is taken until this is decided, also where the device hangs up before: it lies in memory until then.
    _body: Bytes,
}

/// The coordinator, and who waits for it.
struct Core {
    coordinator: Coordinator,
    store: Arc<dyn Store>,
    clock: Steady,
    heard: Heard,
    uploads: Arc<Mutex<Uploads>>,
    observed: Arc<Observed>,
    waiting: HashMap<RequestId, oneshot::Sender<Answer>>,
    next: RequestId,
    failed: Option<CoordinatorError>,
}

/// What all parts of a server share.
struct Shared {
    core: Mutex<Core>,
    changed: Condvar,
    down: AtomicBool,
    /// The server is about to stop.
    closing: AtomicBool,
    store: Arc<dyn Store>,
    realm: Realm,
    clock: Steady,
}

impl Shared {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|poisoned| {
            // Somebody panicked during a decision: nobody knows what the coordinator holds now.
            self.down.store(true, Ordering::Release);
            poisoned.into_inner()
        })
    }

    fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }
}

/// The coordinator of a server. Clones are the same one.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
    inbox: Sender<Job>,
    uploads: Arc<Mutex<Uploads>>,
    observed: Arc<Observed>,
    /// What devices asked for last: tasks and models, which never change.
    blobs: Arc<Blobs>,
    attestation: Option<Arc<dyn Attestation>>,
    attesting: Arc<Turns>,
    ready: Arc<Ready>,
}

impl Hub {
    /// Starts the thread of a coordinator; reports take so many bytes of memory at most while they arrive. What operators may see is told to
    /// `observed`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn start(
        coordinator: Coordinator,
        store: Arc<dyn Store>,
        room: usize,
        observed: Arc<Observed>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), CoordinatorError> {
        Self::start_by(Steady::start(), coordinator, store, room, observed)
    }

    fn start_by(
        clock: Steady,
        coordinator: Coordinator,
        store: Arc<dyn Store>,
        room: usize,
        observed: Arc<Observed>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), CoordinatorError> {
        let realm = Realm(store.realm()?);
        let (heard, waiting) = (Heard::new(clock.now_ms() / 1000), HashMap::new());
        let uploads = Arc::new(Mutex::new(Uploads::new(room)));
        observed.starts(clock.now_ms());
        let core = Core {
            coordinator,
            store: Arc::clone(&store),
            clock,
            heard,
            uploads: Arc::clone(&uploads),
            observed: Arc::clone(&observed),
            waiting,
            next: 0,
            failed: None,
        };
        let (core, changed, down) = (Mutex::new(core), Condvar::new(), AtomicBool::new(false));
        let closing = AtomicBool::new(false);
        let shared = Arc::new(Shared { core, changed, down, closing, store, realm, clock });
        let (inbox, jobs) = channel();
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || conduct(&shared, &jobs))
        };
        let blobs = Arc::new(Blobs::new(Arc::clone(&shared.store)));
        let attesting = Arc::new(Turns::default());
        let ready = Arc::new(Ready::new(Arc::clone(&shared.store), Arc::clone(&observed)));
        Ok((Self { shared, inbox, uploads, observed, blobs, attestation: None, attesting, ready }, thread))
    }

    /// Asks about every device that would enrol whether it may.
    #[must_use]
    pub fn asking(self, attestation: Option<Arc<dyn Attestation>>) -> Self {
        Self { attestation, ..self }
    }

    /// It is ready only while the disk of this folder has room.
    #[must_use]
    pub fn on_disk(self, folder: &Path) -> Self {
        let ready = Ready::new(Arc::clone(&self.shared.store), Arc::clone(&self.observed));
        Self { ready: Arc::new(ready.on_disk(folder)), ..self }
    }

    /// Whether a device that enrols is one that its manufacturer attests, where somebody is to be asked. Whom the server would not let in anyway, or
    /// knows already, nobody is asked about.
    async fn attested(&self, said: &Arc<Said>) -> Result<(), Box<Answer>> {
        let (Some(attestation), Wants::Enrol(_)) = (&self.attestation, &said.wants) else { return Ok(()) };
        if !self.ask(|reply| Job::Admits { said: Arc::clone(said), reply }).await?? {
            return Ok(());
        }
        let many = || self.refused(Reason::TooMuch, "too many devices are enrolling at the moment; try again later");
        let Ok(turn) = timeout(ROOM_WAIT, self.attesting.of(said.from)).await else { return Err(many()) };
        let (attestation, said, inbox) = (Arc::clone(attestation), Arc::clone(said), self.inbox.clone());
        // It goes on, has its turn and counts when the device hangs up, too.
        let asking = tokio::task::spawn_blocking(move || {
            let Wants::Enrol(enrol) = &said.wants else { return false };
            let attests = attestation.attests(&said.device, &enrol.attestation);
            if !attests {
                _ = inbox.send(Job::NotAttested { from: said.from });
            }
            drop(turn);
            attests
        });
        if asking.await.unwrap_or(false) {
            return Ok(());
        }
        Err(self.refused(Reason::NotAdmitted, "the attestation of this device was not accepted"))
    }

    /// The server's realm.
    #[must_use]
    pub fn realm(&self) -> [u8; 32] {
        self.shared.realm.0
    }

    /// Whether nothing is decided any more: it was told so, its store has failed, or its thread ended by a bug.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.shared.is_down()
    }

    /// Whether the store has failed.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.core().failed.as_ref().map(ToString::to_string)
    }

    /// Before the server stops: waiting requests are answered now, and none wait from now on.
    pub fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        let mut core = self.shared.core();
        // Where it is down already there is nobody left to answer.
        if self.shared.is_down() {
            return;
        }
        core.coordinator.close();
        if let Err(error) = core.flush() {
            core.failed = Some(error);
            self.shared.down.store(true, Ordering::Release);
        }
    }

    /// Nothing more is decided.
    pub fn stop(&self) {
        self.shared.down.store(true, Ordering::Release);
        let _ = self.inbox.send(Job::Wake);
        self.shared.changed.notify_all();
    }

    /// What operators may see.
    pub(crate) fn observed(&self) -> &Observed {
        &self.observed
    }

    /// A driver for the fleet of a task.
    #[must_use]
    pub fn driver(&self) -> HubDriver {
        HubDriver { hub: self.clone() }
    }

    /// The server's clock, as devices are told it.
    fn time_s(&self) -> u64 {
        self.shared.clock.now_ms() / 1000
    }

    fn refused(&self, reason: Reason, words: &str) -> Box<Answer> {
        Box::new(Answer::refused(reason, words, self.time_s(), 0))
    }

    /// Puts a question and waits for the answer.
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, Box<Answer>> {
        let (reply, answer) = oneshot::channel();
        let gone = || self.refused(Reason::Internal, "the server is stopping; try again later");
        self.inbox.send(job(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }

    /// The sender and content of a message, if it is admissible.
    fn open(&self, body: Bytes, from: Option<IpAddr>) -> Result<Said, Box<Answer>> {
        let (device, request) = Signed::open(&body, &self.shared.realm).map_err(|error| match error {
            MessageError::Version { .. } => {
                Box::new(Answer::new(Says::Unsupported(Unsupported { oldest: VERSION, newest: VERSION })))
            }
            MessageError::Signature => {
                self.refused(Reason::Signature, "the signature is not valid for this device and server")
            }
            MessageError::Malformed(_) => self.refused(Reason::Malformed, "not a valid request"),
        })?;
        if self.time_s().abs_diff(request.time_s) > CLOCKS_APART_S {
            return Err(self.refused(Reason::Clock, "the clocks of device and server differ too much"));
        }
        let wants = request.wants.ok_or_else(|| self.refused(Reason::Malformed, "the request is empty"))?;
        let spoken = Spoken { time_s: request.time_s, number: request.number };
        Ok(Said { device, spoken, from, wants, _body: body })
    }

    /// What is to be said to a chunk, and whether its report is whole with it.
    async fn take_chunk(&self, ticket: Ticket, offset: u64, chunk: &mut Chunk) -> Result<(Answer, bool), Box<Answer>> {
        if chunk.said().is_some_and(|bytes| bytes > CHUNK) {
            return Err(self.refused(Reason::TooLong, "the chunk is too long"));
        }
        if !self.uploads().is_under_way(&ticket) {
            let expected = self.ask(|reply| Job::Begins { ticket, reply }).await??;
            self.has_room(ticket, expected).await?;
        }
        let opened = self.uploads().open(&ticket, offset, chunk.said(), self.now_ms());
        let open = opened.map_err(|not_taken| match not_taken {
            NotTaken::Answer(answer) => answer,
            NotTaken::Wrong(wrong, number) => self.breaks_bounds(ticket, number, wrong),
        })?;
        let mut reading = Reading { hub: self, ticket, open: Some(open) };
        reading.read(chunk).await?;
        let Some(open) = reading.open.take() else { return Err(no_room()) };
        if !open.is_whole() {
            return Ok((self.uploads().give_back(&ticket, open, self.now_ms()), false));
        }
        // Its room goes where the report goes, also when the device hangs up.
        let number = open.number();
        let room = Room { uploads: Arc::clone(&self.uploads), clock: self.shared.clock, ticket, number };
        let report = open.finish().ok_or_else(|| self.breaks_bounds(ticket, number, Wrong::Bounds))?;
        Ok((self.ask(|reply| Job::Report { ticket, report, room, reply }).await?, true))
    }

    /// What came is no report: its device has dropped out, and is asked for nothing more before it can have room again.
    fn breaks_bounds(&self, ticket: Ticket, number: u64, wrong: Wrong) -> Box<Answer> {
        let now = self.now_ms();
        _ = self.inbox.send(Job::BrokeBounds { ticket });
        self.uploads().done(&ticket, number, now);
        wrong.answer(now)
    }

    /// Waits until there is room for a report. None of it is read until then.
    async fn has_room(&self, ticket: Ticket, expected: Expected) -> Result<(), Box<Answer>> {
        let Some(mut room) = self.uploads().begin(ticket, expected, self.now_ms()) else { return Ok(()) };
        let until = Instant::now() + ROOM_WAIT;
        while Instant::now() < until && !self.shared.closing.load(Ordering::Acquire) {
            match timeout(ROOM_LOOK, &mut room).await {
                Ok(Ok(number)) => return self.is_still_wanted(ticket, number).await,
                // It comes on another connection too, which has its place.
                Ok(Err(_)) => return Err(no_room()),
                Err(_) => self.uploads().make_room(self.now_ms()),
            }
        }
        Err(no_room())
    }

    /// Whether a report that has waited for its room is wanted now: the attempt may be over meanwhile.
    async fn is_still_wanted(&self, ticket: Ticket, number: u64) -> Result<(), Box<Answer>> {
        let asked = self.ask(|reply| Job::Begins { ticket, reply }).await.and_then(|expected| expected);
        asked.map(drop).inspect_err(|_| self.uploads().done(&ticket, number, self.now_ms()))
    }

    fn now_ms(&self) -> u64 {
        self.shared.clock.now_ms()
    }

    fn uploads(&self) -> MutexGuard<'_, Uploads> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The room of a report that is whole, until it was added or refused. It travels with the report: while that lies in the inbox, its memory is taken.
struct Room {
    uploads: Arc<Mutex<Uploads>>,
    clock: Steady,
    ticket: Ticket,
    number: u64,
}

impl Room {
    fn uploads(&self) -> MutexGuard<'_, Uploads> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.uploads().done(&self.ticket, self.number, self.clock.now_ms());
    }
}

/// A report while a chunk of it comes. However that ends, also by the device hanging up, it is given back as it was.
struct Reading<'a> {
    hub: &'a Hub,
    ticket: Ticket,
    open: Option<Open>,
}

impl Reading<'_> {
    /// Takes a chunk as it comes.
    async fn read(&mut self, chunk: &mut Chunk) -> Result<(), Box<Answer>> {
        let mut looked = self.hub.now_ms();
        loop {
            let piece = chunk.next().await;
            let now = self.hub.now_ms();
            let Some(open) = self.open.as_mut() else { return Err(no_room()) };
            let taken = match piece {
                Piece::Bytes(bytes) => {
                    self.hub.observed.report_bytes(bytes.len() as u64);
                    open.take(&bytes)
                }
                Piece::Nothing => Ok(()),
                Piece::End if open.has_chunk() => return Ok(()),
                Piece::End => Err(Wrong::Length),
                Piece::Broken => return Err(no_room()),
            };
            if let Err(wrong) = taken {
                let number = open.number();
                self.open = None;
                return Err(self.hub.breaks_bounds(self.ticket, number, wrong));
            }
            if now >= looked + CHUNK_LOOK_MS {
                looked = now;
                if !self.hub.uploads().goes_on(&self.ticket, open, now) {
                    return Err(no_room());
                }
            }
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            _ = self.hub.uploads().give_back(&self.ticket, open, self.hub.now_ms());
        }
    }
}

impl Service for Hub {
    fn hello(&self) -> Hello {
        Hello { oldest: VERSION, newest: VERSION, realm: self.shared.realm.0.to_vec(), time_s: self.time_s() }
    }

    async fn say(&self, bytes: Bytes, from: Option<IpAddr>) -> Answer {
        let opened = self.open(bytes, from).map(Arc::new);
        let asked = opened.as_ref().map_or(Asked::Unreadable, |said| match said.wants {
            Wants::Enrol(_) => Asked::Enrol,
            Wants::CheckIn(_) => Asked::CheckIn,
            Wants::Next(_) => Asked::Next,
            Wants::Secure(_) => Asked::Secure,
        });
        self.observed.asks(asked, self.now_ms());
        let answer = match opened {
            Ok(said) => match self.attested(&said).await {
                Ok(()) => self.ask(|reply| Job::Say { said, reply }).await.unwrap_or_else(|refused| *refused),
                Err(refused) => *refused,
            },
            Err(refused) => *refused,
        };
        self.observed.answers(asked, &answer);
        answer
    }

    fn is_well(&self) -> bool {
        !self.is_down()
    }

    async fn not_ready(&self) -> Vec<String> {
        if self.is_down() || self.shared.closing.load(Ordering::Acquire) {
            return vec!["server: it is stopping, or cannot continue; its log says why".to_owned()];
        }
        self.ready.not_ready(self.now_ms()).await
    }

    async fn blob(&self, digest: [u8; 32]) -> Option<Packed> {
        self.blobs.get(digest).await
    }

    async fn chunk(&self, ticket: Ticket, offset: u64, chunk: &mut Chunk) -> Answer {
        let taken = self.take_chunk(ticket, offset, chunk).await;
        let (answer, is_whole) = taken.unwrap_or_else(|refused| (*refused, false));
        self.observed.reported(&answer, is_whole, self.now_ms());
        answer
    }

    fn sends(&self, blob_bytes: u64) {
        self.observed.blob(blob_bytes);
    }
}

/// However the coordinator's thread ends, also by a bug: nobody waits for it any more.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.down.store(true, Ordering::Release);
        self.0.core().waiting.clear();
        self.0.changed.notify_all();
    }
}

/// The coordinator's thread.
fn conduct(shared: &Shared, jobs: &Receiver<Job>) {
    // Before the lock below, so that it is free when this ends.
    let _ends = Ends(shared);
    let mut turns = 0u64;
    while !shared.is_down() {
        let wait = {
            let now = shared.clock.now_ms();
            let core = shared.core();
            core.coordinator.wakes_at(now).saturating_sub(now).clamp(1, 250)
        };
        let first = match jobs.recv_timeout(Duration::from_millis(wait)) {
            Ok(job) => Some(job),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        turns += 1;
        let mut core = shared.core();
        if shared.is_down() {
            break;
        }
        let batch = first.into_iter().chain(std::iter::from_fn(|| jobs.try_recv().ok())).take(BATCH);
        let done = core.decide(batch.collect(), turns.is_multiple_of(LOOK_AFTER));
        if let Err(error) = done {
            core.failed = Some(error);
            shared.down.store(true, Ordering::Release);
        }
        let has_news = core.coordinator.has_any_closed() || core.failed.is_some();
        drop(core);
        // Waiters for an attempt to close are not woken for each of its reports.
        if has_news {
            shared.changed.notify_all();
        }
    }
}

impl Core {
    fn decide(&mut self, jobs: Vec<Job>, look: bool) -> Result<(), CoordinatorError> {
        let now = self.clock.now_ms();
        for job in jobs {
            match job {
                Job::Wake => {}
                Job::Admits { said, reply } => {
                    let Wants::Enrol(enrol) = &said.wants else { continue };
                    _ = reply.send(self.coordinator.would_enrol(said.from, &said.device, enrol, now)?);
                }
                Job::NotAttested { from } => self.coordinator.was_not_attested(from, now),
                Job::Begins { ticket, reply } => _ = reply.send(self.coordinator.begins(&ticket, now)),
                Job::Say { said, reply } => {
                    let request = self.waits(reply);
                    self.said(request, &said, now)?;
                }
                Job::BrokeBounds { ticket } => self.coordinator.broke_bounds(&ticket),
                Job::Report { ticket, report, room, reply } => {
                    let request = self.waits(reply);
                    self.coordinator.report(request, &ticket, &report, now)?;
                    let spare = match report {
                        Report::Plain(encoded) => Some(encoded.wiped()),
                        Report::Masked(_) => None,
                    };
                    room.uploads().added(&ticket, room.number, spare, now);
                }
            }
        }
        if look {
            let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
            uploads.forget_unwanted(|ticket| self.coordinator.is_wanted(ticket, now), now);
            uploads.make_room(now);
            drop(uploads);
            let gone: Vec<RequestId> =
                self.waiting.iter().filter(|(_, reply)| reply.is_closed()).map(|(request, _)| *request).collect();
            for request in gone {
                self.coordinator.gave_up(request);
                self.waiting.remove(&request);
            }
        }
        self.coordinator.tick(now)?;
        self.flush()?;
        let memory = || self.uploads.lock().unwrap_or_else(PoisonError::into_inner).memory();
        self.observed.looks(&self.coordinator, memory, now);
        Ok(())
    }

    /// A device wants something. What was heard before gets no place in a round, and takes nobody's place who waits. To enrol twice is to
    /// enrol once.
    fn said(&mut self, request: RequestId, said: &Said, now: u64) -> Result<(), CoordinatorError> {
        let Said { device, spoken, from, wants, _body } = said;
        // Only of those who are enrolled anything is remembered: others are told so, and can be any number.
        let knows = !matches!(wants, Wants::Enrol(_)) && self.store.is_enrolled(device)?;
        let is_new = match wants {
            _ if !knows => true,
            Wants::CheckIn(_) => self.heard.is_new(device, *spoken, now / 1000),
            _ => self.heard.is_newest(device, *spoken),
        };
        if !is_new {
            self.coordinator.said_before(request, *device, wants, now);
            return Ok(());
        }
        self.coordinator.said_from(*from, request, *device, wants, now)
    }

    fn waits(&mut self, reply: oneshot::Sender<Answer>) -> RequestId {
        self.next += 1;
        self.waiting.insert(self.next, reply);
        self.next
    }

    fn flush(&mut self) -> Result<(), CoordinatorError> {
        for (request, answer) in self.coordinator.flush()? {
            if let Some(reply) = self.waiting.remove(&request) {
                let _ = reply.send(answer);
            }
        }
        self.observed.takes(&mut self.coordinator, self.clock.now_ms());
        Ok(())
    }
}

/// Connects the fleet of a task with the coordinator.
pub struct HubDriver {
    hub: Hub,
}

impl Driver for HubDriver {
    fn with<R: Send>(
        &mut self,
        act: impl FnOnce(&mut Coordinator, u64) -> Result<R, CoordinatorError> + Send,
    ) -> Result<R, FleetError> {
        let mut core = self.hub.shared.core();
        if self.hub.shared.is_down() {
            return Err(FleetError::Stopped);
        }
        let now = self.hub.shared.clock.now_ms();
        let done = act(&mut core.coordinator, now).and_then(|done| core.flush().map(|()| done));
        Ok(done?)
    }

    fn wait(&mut self, task: &TaskDigest, stop: &Stop) -> Result<(), FleetError> {
        if stop.is_asked() || self.hub.shared.is_down() {
            return Err(FleetError::Stopped);
        }
        let core = self.hub.shared.core();
        // Whether it has closed is asked under the lock under which it closes: it cannot happen unseen in between.
        let open = |core: &mut Core| !core.coordinator.has_closed(task) && !self.hub.shared.is_down();
        let _ = self.hub.shared.changed.wait_timeout_while(core, Duration::from_millis(100), open);
        Ok(())
    }

    fn coins(&mut self) -> Box<dyn Entropy + Send> {
        Box::new(OsEntropy)
    }
}

#[cfg(test)]
mod tests {
    use device::protocol::message::{CheckIn, Enrol, Request};
    use ed25519_dalek::SigningKey;
    use federated::protocol::{admission::Anybody, pace::Pace, store::MemoryStore};
    use prost::Message;

    use super::*;

    #[tokio::test]
    async fn whoever_sets_the_clock_of_the_machine_changes_nothing() {
        for (hours, words) in [(-1i64, "set forward since it was started"), (1, "set back")] {
            let began_ms = now_ms().saturating_add_signed(hours * 3_600_000);
            let store = Arc::new(MemoryStore::new([7; 32]));
            let coordinator = Coordinator::new(store.clone(), Box::new(Anybody), Pace::default(), 1).unwrap();
            let clock = Steady { began_ms, began: Instant::now() };
            let (hub, _thread) = Hub::start_by(clock, coordinator, store, 1 << 20, Arc::default()).unwrap();
            let time_s = hub.hello().time_s;
            assert!(time_s.abs_diff(began_ms / 1000) < 60, "{words}: {time_s}");
            for wants in
                [Wants::Enrol(Enrol::default()), Wants::CheckIn(CheckIn { patience_ms: 1, resting: Vec::new() })]
            {
                let request = Request { time_s, number: 1, wants: Some(wants) };
                let signed = request.sign(&SigningKey::from_bytes(&[1; 32]), &Realm([7; 32]));
                let answer = hub.say(signed.encode_to_vec().into(), None).await;
                assert!(matches!(answer.says, Some(Says::Enrolled(_) | Says::Later(_))), "{words}: {answer:?}");
            }
            hub.stop();
        }
    }
}
