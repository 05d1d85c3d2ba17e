//! The coordinator: answers the devices of all tasks of a server, without IO.
//!
//! The driver gives it requests, reports and the time, and calls [`Coordinator::flush`]: what was decided is made durable in one
//! transaction, and only then are there answers to send. A driver that gathers many requests before it flushes has one transaction
//! for all of them. When the store fails, the coordinator is of no more use: another one begins from what is durable.
//!
//! A device that checks in waits in the lobby, as long as its patience goes and as there may be need of it; otherwise it is told when
//! to come back ([`Pace`]). An attempt that is open ([`Desk`]) takes devices from there.

mod arriving;
mod lingering;
mod lobby;
mod part;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use device::{
    guard::TaskDigest,
    protocol::message::{Answer, DeviceKey, Later, Next, Reason, Says, SecureMessage, Thanks, Ticket, Wait, Wants},
};
use ledger::FailureReason;
use privacy::stages::Encoded;
use thiserror::Error;

use self::{
    lingering::Lingering,
    part::{PartStands, standing_of},
};
use super::{
    admission::{Admission, EnrolmentLimits, Enrolments, PlaceKey, hour_of},
    desk::{Aggregation, Closed, Desk, DeskError, Opening, Place, Progress},
    left_out::{LeaveOut, left_out},
    limits::ParticipationLimits,
    order::Order,
    over_selection::OverSelection,
    pace::Pace,
    secure::Hears,
    seen::Seen,
    store::{AttemptAt, EnrolledInHour, OpenAttempt, Standing, Store, StoreError, Write},
};

/// Identifies a waiting request; assigned by the driver.
pub type RequestId = u64;

/// No answer is waited for longer than this, in milliseconds.
const MOST_PATIENCE_MS: u64 = 30_000;
/// A device that has nothing to wait for asks again after this, in milliseconds.
const ASK_AGAIN_MS: u32 = 1_000;
/// A device that is not let into the lobby stays away for so many seconds at least, whatever the pace.
const NOT_NEEDED_S: u64 = 1;
const LATE: &str = "the attempt needs no more reports, or its time is over";
const CLOSED: &str = "the attempt no longer exists";
const MS_OF_DAY: u64 = 24 * 60 * 60 * 1000;

/// Why a coordinator cannot continue.
#[derive(Debug, Error)]
pub enum CoordinatorError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A desk failed.
    #[error(transparent)]
    Desk(#[from] DeskError),
    /// A task that is not there.
    #[error("no such task here")]
    NoTask,
}

/// A plain or masked report.
#[derive(Debug)]
pub enum Report {
    /// Integers whose bounds were checked.
    Plain(Encoded),
    /// A masked input of secure aggregation.
    Masked(Vec<u8>),
}

impl Report {
    /// Its bytes, as they were sent.
    fn bytes(&self) -> u64 {
        match self {
            Self::Plain(encoded) => encoded.bytes() as u64,
            Self::Masked(bytes) => bytes.len() as u64,
        }
    }
}

/// Whom a task asks, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking {
    /// How often a device takes part.
    pub limits: ParticipationLimits,
    /// How many reports a sum is of.
    pub goal: u64,
    /// The task does not begin before so many devices are enrolled: with fewer, all of them would have to wait at some round, and nobody
    /// would be left to ask.
    pub begin_with: u64,
    /// The population that was declared: no more different devices are ever given the task, for delta is below one over their number
    /// (rule P11).
    pub population: u64,
}

/// Requirements for a report that is about to arrive.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The device's key.
    pub device: DeviceKey,
    /// Its bytes.
    pub bytes: usize,
    /// How it is encoded; none where it is masked.
    pub encoding: Option<privacy::encoding::Encoding>,
}

/// A task that is running.
#[derive(Debug)]
struct Running {
    asking: Asking,
    /// How many different devices were ever given it.
    asked: u64,
    /// Whether nobody is needed but while an attempt is open, as for evaluations; and nobody is waited for without end then.
    only_while_open: bool,
    /// What its operator wants of it.
    order: Order,
    /// It cannot go on in this life of the server.
    broken: bool,
    /// How many devices in the lobby wait for it.
    waiting: u64,
    /// Who spoiled so many attempts, or was in the company, that it is not asked any more.
    leave_out: Option<LeaveOut>,
    left_out: BTreeSet<DeviceKey>,
    over: OverSelection,
    desk: Option<Desk>,
    /// Who was given an attempt in an earlier life of the server, until that attempt is open again or settled: they are told to wait, for
    /// their tickets cannot be known yet.
    returning: BTreeSet<DeviceKey>,
    /// The round that is open or comes next, once the first devices were given the task.
    round: Option<u64>,
    /// How long a round takes from when devices are given it, in seconds; none before the first is over.
    round_s: Option<f64>,
    /// Devices of attempts that are over, of whom some were still at work then: all of them are counted together once it is known what
    /// became of those.
    lingering: Vec<Lingering>,
    /// The devices of the last settled attempt: those that took part, each with the round from which it is eligible again. A device
    /// that was not told that its report counts can still ask.
    settled: BTreeMap<Ticket, Option<u64>>,
}

impl Running {
    /// How many devices that were never given it may still be.
    const fn newcomers(&self) -> u64 {
        self.asking.population.saturating_sub(self.asked)
    }

    /// Whether devices may be needed for it at some time.
    fn is_alive(&self) -> bool {
        !self.broken && self.order != Order::Stop && (!self.only_while_open || self.is_open())
    }

    /// Whether it calls no devices now, and will again: in a pause, or broken until the server is restarted.
    fn rests(&self) -> bool {
        match self.order {
            Order::Run => self.broken,
            Order::Pause => self.broken || self.is_alive(),
            Order::Stop => false,
        }
    }

    /// Whether devices are given it. In a pause an attempt that some of them have goes on to its end.
    fn takes_devices(&self) -> bool {
        match self.order {
            _ if self.broken => false,
            Order::Run => !self.only_while_open || self.is_open(),
            Order::Pause => self.desk.as_ref().is_some_and(|desk| !desk.is_over() && desk.assigned().next().is_some()),
            Order::Stop => false,
        }
    }

    /// Whether devices are wanted now: not while a round is open that has all it asked for.
    fn gathers(&self) -> bool {
        let has_all = |desk: &Desk| !desk.is_over() && desk.wanted(&self.over) == 0;
        self.takes_devices() && !self.desk.as_ref().is_some_and(has_all)
    }

    /// Whether an attempt wants devices.
    fn is_open(&self) -> bool {
        self.desk.as_ref().is_some_and(|desk| !desk.is_over())
    }
}

/// A device that could take part, and waits.
#[derive(Debug, Clone)]
struct Waiting {
    device: DeviceKey,
    until: u64,
    /// Where it stands in the tasks that it may be given: that does not change while it waits.
    standings: BTreeMap<TaskDigest, Standing>,
    /// The tasks that it rests from.
    rests: BTreeSet<TaskDigest>,
}

/// Answers the devices of all tasks.
pub struct Coordinator {
    store: Arc<dyn Store>,
    admission: Box<dyn Admission>,
    pace: Pace,
    tasks: BTreeMap<TaskDigest, Running>,
    /// Check-ins that wait, in the order in which they came.
    lobby: BTreeMap<RequestId, Waiting>,
    /// Which check-in of a device waits.
    in_lobby: BTreeMap<DeviceKey, RequestId>,
    /// Devices at work that wait for what comes next, with the tickets of their parts: a device can be in attempts of two tasks, where it was
    /// thanked in one before that is over.
    waiters: BTreeMap<(DeviceKey, Ticket), (RequestId, u64)>,
    /// How many enrolled of late.
    enrolments: Enrolments,
    /// Who enrols in the batch that is not durable yet.
    enrolling: BTreeSet<DeviceKey>,
    enrolled: u64,
    /// The server is about to stop: nobody waits here any more.
    closing: bool,
    batch: Vec<Write>,
    answers: Vec<(RequestId, Answer)>,
    /// What those who watch have not been told yet.
    seen: VecDeque<Seen>,
    /// From which the spread of check-ins is drawn; nothing secret hangs on it.
    draw: u64,
}

impl Coordinator {
    /// A coordinator over a store. `seed` is where the spread of check-ins begins.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn new(
        store: Arc<dyn Store>,
        admission: Box<dyn Admission>,
        pace: Pace,
        seed: u64,
    ) -> Result<Self, CoordinatorError> {
        let enrolled = store.enrolled()?;
        Ok(Self {
            store,
            admission,
            pace,
            tasks: BTreeMap::new(),
            lobby: BTreeMap::new(),
            in_lobby: BTreeMap::new(),
            waiters: BTreeMap::new(),
            enrolments: Enrolments::new(EnrolmentLimits::default(), None, 0, &EnrolledInHour::default()),
            enrolling: BTreeSet::new(),
            enrolled,
            closing: false,
            batch: Vec::new(),
            answers: Vec::new(),
            seen: VecDeque::new(),
            draw: seed,
        })
    }

    /// A task runs here from now on. `round` is where it stands, if it has begun: keys that come later wait.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn add_task(&mut self, task: TaskDigest, asking: Asking, round: Option<u64>) -> Result<(), CoordinatorError> {
        let (over, round_s) = (OverSelection::default(), None);
        let asked = self.store.asked(&task)?;
        self.tasks.insert(
            task,
            Running {
                asking,
                asked,
                only_while_open: false,
                order: Order::Run,
                broken: false,
                waiting: 0,
                leave_out: None,
                left_out: BTreeSet::new(),
                over,
                desk: None,
                returning: BTreeSet::new(),
                round,
                round_s,
                lingering: Vec::new(),
                settled: BTreeMap::new(),
            },
        );
        Ok(())
    }

    /// An attempt of a task was open when the server ended, and is opened again next: until then the devices assigned to it wait.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be read.
    pub fn opens_again(&mut self, task: &TaskDigest) -> Result<(), CoordinatorError> {
        let kept = self.store.open_attempt(task)?;
        let running = self.tasks.get_mut(task).ok_or(CoordinatorError::NoTask)?;
        running.returning = kept.map(|kept| kept.assigned.into_iter().collect()).unwrap_or_default();
        Ok(())
    }

    /// Of a task, such as that of evaluations, devices are needed while an attempt is open and not between two of them. An attempt that
    /// finds nobody is given up, so that waiting devices can do something else.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn only_while_open(&mut self, task: &TaskDigest) -> Result<(), CoordinatorError> {
        self.tasks.get_mut(task).ok_or(CoordinatorError::NoTask)?.only_while_open = true;
        Ok(())
    }

    /// How many devices may enrol, from now on. Who enrolled in this hour before a restart counts. Addresses are kept as digests under
    /// the key.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn limit_enrolments(
        &mut self,
        limits: EnrolmentLimits,
        places: PlaceKey,
        now: u64,
    ) -> Result<(), CoordinatorError> {
        let before = self.store.enrolled_in(hour_of(now))?;
        self.enrolments = Enrolments::new(limits, Some(places), hour_of(now), &before);
        Ok(())
    }

    /// Devices that were in too many attempts of a task that were spoiled are not asked for it any more.
    ///
    /// # Errors
    /// When there is no such task, or the store cannot be read.
    pub fn leave_out(&mut self, task: &TaskDigest, leave_out: LeaveOut) -> Result<(), CoordinatorError> {
        let running = self.tasks.get_mut(task).ok_or(CoordinatorError::NoTask)?;
        running.left_out = left_out(&self.store.spoiled(task, leave_out.after)?, &leave_out);
        running.leave_out = Some(leave_out);
        Ok(())
    }

    /// Sets the operator's order for a task. Devices that wait for nothing else are told when to come back.
    ///
    /// # Errors
    /// When there is no such task, or an attempt cannot continue.
    pub fn order(&mut self, task: &TaskDigest, order: Order, now: u64) -> Result<(), CoordinatorError> {
        let running = self.tasks.get_mut(task).ok_or(CoordinatorError::NoTask)?;
        if running.only_while_open
            && running.order != order
            && let Some(desk) = &mut running.desk
        {
            desk.waits_from(now);
        }
        running.order = order;
        if order == Order::Stop
            && let Some(desk) = &mut running.desk
        {
            desk.fail(FailureReason::Cancelled);
        }
        self.send_idle_away();
        self.advance(now)
    }

    /// Makes all decisions since the last call durable, and returns the answers that may now be sent.
    ///
    /// # Errors
    /// When it is not known to be durable: nothing may be said, and the coordinator is of no more use.
    pub fn flush(&mut self) -> Result<Vec<(RequestId, Answer)>, CoordinatorError> {
        if !self.batch.is_empty() {
            self.store.commit(&self.batch)?;
            self.batch.clear();
        }
        self.enrolled += self.enrolling.len() as u64;
        self.enrolling.clear();
        Ok(std::mem::take(&mut self.answers))
    }

    /// A device wants something. The signature was checked, and the clock.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn said(
        &mut self,
        request: RequestId,
        device: DeviceKey,
        wants: &Wants,
        now: u64,
    ) -> Result<(), CoordinatorError> {
        self.said_from(None, request, device, wants, now)
    }

    /// The same, where it is known from which address: of one, not any number of devices enrol.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn said_from(
        &mut self,
        from: Option<IpAddr>,
        request: RequestId,
        device: DeviceKey,
        wants: &Wants,
        now: u64,
    ) -> Result<(), CoordinatorError> {
        match wants {
            Wants::Enrol(enrol) => self.enrol(from, request, device, enrol, now),
            Wants::CheckIn(check_in) => self.check_in(request, device, check_in, now),
            Wants::Next(Next { ticket, patience_ms }) => {
                let until = now + u64::from(*patience_ms).min(MOST_PATIENCE_MS);
                self.next(request, device, ticket, until, now);
                Ok(())
            }
            Wants::Secure(SecureMessage { ticket, message }) => {
                self.secure_message(request, device, ticket, message, now);
                self.advance(now)
            }
        }
    }

    fn enrol(
        &mut self,
        from: Option<IpAddr>,
        request: RequestId,
        device: DeviceKey,
        enrol: &device::protocol::message::Enrol,
        now: u64,
    ) -> Result<(), CoordinatorError> {
        if !self.store.is_enrolled(&device)? && !self.enrolling.contains(&device) {
            if let Err(why) = self.admission.admits(&device, enrol) {
                self.refuse(request, Reason::NotAdmitted, why, now);
                return Ok(());
            }
            let counted = match self.enrolments.take(from, now) {
                Ok(counted) => counted,
                Err(full) => {
                    let answer = self.is_full(full, now);
                    self.answers.push((request, answer));
                    return Ok(());
                }
            };
            self.batch.extend([Write::Enrol { device, day: now / MS_OF_DAY }, counted]);
            self.enrolling.insert(device);
        }
        let after_s = self.comes_back_after();
        self.answer(request, Says::Enrolled(device::protocol::message::Enrolled { after_s }));
        Ok(())
    }

    /// The attempt that a ticket is of, and whose it is.
    fn by_ticket(&mut self, ticket: &[u8]) -> Option<(DeviceKey, &mut Running)> {
        let ticket = Ticket(ticket.try_into().ok()?);
        self.tasks.values_mut().find_map(|running| {
            let device = running.desk.as_ref()?.device(&ticket)?;
            Some((device, running))
        })
    }

    /// A device asks how its part stands.
    fn next(&mut self, request: RequestId, device: DeviceKey, ticket: &[u8], until: u64, now: u64) {
        let returns = self.returns(&device);
        let says = match self.by_ticket(ticket) {
            Some((of, running)) if of == device => standing_of(running, &device),
            _ if returns => PartStands::Now(Says::Wait(Wait { after_ms: ASK_AGAIN_MS })),
            _ => self.stood(ticket),
        };
        match (says, ticket.try_into()) {
            (PartStands::Later, Ok(ticket)) if !self.closing => {
                if let Some((before, _)) = self.waiters.insert((device, Ticket(ticket)), (request, until)) {
                    self.answer(before, Says::Wait(Wait { after_ms: ASK_AGAIN_MS }));
                }
            }
            (says, _) => self.speak(request, says, now),
        }
    }

    /// Whether a device was given an attempt before the server was started that is not open again yet.
    fn returns(&self, device: &DeviceKey) -> bool {
        self.tasks.values().any(|running| running.returning.contains(device))
    }

    /// How the part of an attempt that is settled ended.
    fn stood(&self, ticket: &[u8]) -> PartStands {
        let Ok(ticket) = ticket.try_into().map(Ticket) else { return PartStands::Closed };
        match self.tasks.values().find_map(|running| running.settled.get(&ticket)) {
            Some(Some(from)) => PartStands::Thanks(*from),
            Some(None) => PartStands::Late,
            None => PartStands::Closed,
        }
    }

    /// Says how a part stands.
    fn speak(&mut self, request: RequestId, stands: PartStands, now: u64) {
        match stands {
            PartStands::Now(says) => self.answer(request, says),
            PartStands::Thanks(from) => self.thank(request, from),
            PartStands::Later => self.answer(request, Says::Wait(Wait { after_ms: ASK_AGAIN_MS })),
            PartStands::Late => self.refuse(request, Reason::Late, LATE, now),
            PartStands::Closed => self.refuse(request, Reason::Closed, CLOSED, now),
        }
    }

    fn thank(&mut self, request: RequestId, eligible_from_step: u64) {
        let after_s = self.comes_back_after();
        self.answer(request, Says::Thanks(Thanks { eligible_from_step, after_s }));
    }

    fn secure_message(&mut self, request: RequestId, device: DeviceKey, ticket: &[u8], message: &[u8], now: u64) {
        match self.received(device, ticket, message) {
            Some((reason, words)) => self.refuse(request, reason, words, now),
            None => self.next(request, device, ticket, now + MOST_PATIENCE_MS, now),
        }
    }

    /// Takes a message of secure aggregation; gives why not.
    fn received(&mut self, device: DeviceKey, ticket: &[u8], message: &[u8]) -> Option<(Reason, String)> {
        match self.by_ticket(ticket) {
            Some((of, running)) if of == device => {
                match running.desk.as_mut().and_then(|desk| desk.secure_message(&device, message)) {
                    Some(taken) => taken.err().map(|why| (Reason::Unexpected, why.to_string())),
                    None => Some((Reason::Closed, "the attempt is over".to_owned())),
                }
            }
            _ => Some((Reason::Closed, CLOSED.to_owned())),
        }
    }

    /// A device that waited for an answer has left.
    pub fn gave_up(&mut self, request: RequestId) {
        self.leaves(request);
        self.waiters.retain(|_, (waits, _)| *waits != request);
    }

    /// Time passes.
    ///
    /// # Errors
    /// When an attempt cannot continue.
    pub fn tick(&mut self, now: u64) -> Result<(), CoordinatorError> {
        // Not with every report: there may be thousands of them.
        self.count_all_lingering(now);
        self.advance(now)?;
        self.select(now)?;
        let impatient: Vec<RequestId> =
            self.lobby.iter().filter(|(_, waiting)| now >= waiting.until).map(|(request, _)| *request).collect();
        for request in impatient {
            self.gave_up(request);
            self.later(request);
        }
        let waited: Vec<((DeviceKey, Ticket), RequestId)> =
            self.waiters.iter().filter(|(_, (_, until))| now >= *until).map(|(part, (r, _))| (*part, *r)).collect();
        for (part, request) in waited {
            self.waiters.remove(&part);
            self.answer(request, Says::Wait(Wait { after_ms: 0 }));
        }
        Ok(())
    }

    /// What follows from what has arrived: merges, phases of secure aggregation, thanks.
    fn advance(&mut self, now: u64) -> Result<(), CoordinatorError> {
        for running in self.tasks.values_mut() {
            let Some(desk) = &mut running.desk else { continue };
            if running.only_while_open && running.order == Order::Run {
                desk.give_up_waiting(now);
            }
            desk.tick(now);
            self.batch.extend(desk.merge(now)?);
        }
        self.tell_waiters(now);
        Ok(())
    }

    /// Answers all waiting devices that can be told something.
    fn tell_waiters(&mut self, now: u64) {
        let mut told = Vec::new();
        for (part @ (device, ticket), (request, _)) in &self.waiters {
            let is_of = |running: &&Running| running.desk.as_ref().is_some_and(|desk| desk.device(ticket).is_some());
            let of = self.tasks.values().find(is_of);
            let says = of.map_or(PartStands::Closed, |running| standing_of(running, device));
            if !matches!(says, PartStands::Later) {
                told.push((*part, *request, says));
            }
        }
        for (part, request, says) in told {
            self.waiters.remove(&part);
            self.speak(request, says, now);
        }
    }

    /// When [`Self::tick`] is to be called at the latest.
    #[must_use]
    pub fn wakes_at(&self, now: u64) -> u64 {
        let desks = self.tasks.values().filter_map(|running| running.desk.as_ref()).map(|desk| desk.wakes_at(now));
        let lobby = self.lobby.values().map(|waiting| waiting.until);
        let waiters = self.waiters.values().map(|(_, until)| *until);
        desks.chain(lobby).chain(waiters).min().unwrap_or(now + 1_000).max(now)
    }

    /// Opens an attempt. Where a crash interrupted it, it continues from what was kept; what was kept of another one, whose end is in the
    /// ledger, goes.
    ///
    /// # Errors
    /// When what was kept does not open, or the store fails.
    pub fn open(&mut self, opening: Opening, now: u64) -> Result<(), CoordinatorError> {
        let at = opening.at;
        let kept = self.store.open_attempt(&at.task)?;
        if let Some(other) = kept.as_ref().filter(|kept| kept.at != at) {
            self.batch.push(Write::Settle { at: other.at, absent: Vec::new() });
        }
        let kept = kept.filter(|kept| kept.at == at);
        self.batch.push(Write::Open(at));
        let mut desk = Desk::open(opening, kept, now)?;
        let running = self.tasks.get_mut(&at.task).ok_or(CoordinatorError::NoTask)?;
        if running.order == Order::Stop {
            desk.fail(FailureReason::Cancelled);
        }
        if let Some(leave_out) = &running.leave_out {
            running.left_out = left_out(&self.store.spoiled(&at.task, leave_out.after)?, leave_out);
        }
        // A task begins when it is first assigned: devices that enrol before that need not wait.
        if at.round > 0 || desk.assigned().next().is_some() {
            running.round = Some(at.round);
        }
        let (goal, secure) = (desk.opening.goal, matches!(desk.opening.aggregation, Aggregation::Secure(_)));
        running.desk = Some(desk);
        running.returning.clear();
        self.saw(Seen::Opened { at, goal, secure });
        let running = self.tasks.get_mut(&at.task).ok_or(CoordinatorError::NoTask)?;
        if running.only_while_open {
            self.invite(&at.task)?;
        }
        self.select(now)
    }

    /// Keeps bytes that devices ask for by their digest.
    pub fn keep_blob(&mut self, digest: [u8; 32], packed: Vec<u8>) {
        self.batch.push(Write::KeepBlob { digest, packed });
    }

    /// Keeps the model that devices of a task are given from now on; the one before it goes.
    pub fn keep_model(&mut self, task: TaskDigest, digest: [u8; 32], packed: Vec<u8>) {
        self.batch.push(Write::KeepModel { task, digest, packed });
    }

    /// An attempt failed because of one of its devices: that counts for all of them. Call this before it is settled.
    pub fn spoiled(&mut self, at: &AttemptAt) {
        self.batch.push(Write::Spoiled(*at));
    }

    /// A task is over and its ledger closed: nobody is asked for it, and what is known of devices in it goes.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn forget(&mut self, task: &TaskDigest, now: u64) -> Result<(), CoordinatorError> {
        self.order(task, Order::Stop, now)?;
        if let Some(running) = self.tasks.get_mut(task) {
            running.desk = None;
            running.returning.clear();
            running.left_out.clear();
        }
        self.batch.push(Write::Forget { task: *task });
        Ok(())
    }

    /// A task cannot go on in this life of the server: devices that were given an attempt of it wait for nothing, and nobody is called for it. What
    /// is kept of the attempt stays, for the next life.
    pub fn broke(&mut self, task: &TaskDigest, now: u64) {
        if let Some(running) = self.tasks.get_mut(task) {
            running.broken = true;
            running.desk = None;
            running.returning.clear();
        }
        self.send_idle_away();
        self.tell_waiters(now);
    }

    /// The stored state of a task's unsettled attempt.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn kept(&self, task: &TaskDigest) -> Result<Option<OpenAttempt>, CoordinatorError> {
        Ok(self.store.open_attempt(task)?)
    }

    /// Whether it is known what became of the attempt of a task that is open, and nobody has taken it yet.
    #[must_use]
    pub fn has_closed(&self, task: &TaskDigest) -> bool {
        self.tasks.get(task).and_then(|running| running.desk.as_ref()).is_some_and(Desk::has_closed)
    }

    /// The same as [`Self::has_closed`], for any task.
    #[must_use]
    pub fn has_any_closed(&self) -> bool {
        self.tasks.values().filter_map(|running| running.desk.as_ref()).any(Desk::has_closed)
    }

    /// The outcome of a task's open attempt, once. Call this after a flush.
    pub fn take_closed(&mut self, task: &TaskDigest) -> Option<Closed> {
        self.tasks.get_mut(task)?.desk.as_mut()?.take_closed()
    }

    /// Settles an attempt whose outcome is in the ledger: these devices took part in the release; none if it failed.
    ///
    /// # Errors
    /// When there is no such attempt.
    pub fn settle(
        &mut self,
        at: &AttemptAt,
        took_part: &BTreeSet<DeviceKey>,
        now: u64,
    ) -> Result<(), CoordinatorError> {
        let running = self.tasks.get_mut(&at.task).ok_or(CoordinatorError::NoTask)?;
        running.returning.clear();
        let Some(desk) = running.desk.take_if(|desk| desk.opening.at == *at) else {
            // It was interrupted: nothing is known of who sent what, so everybody who was given the task took part.
            if self.store.open_attempt(&at.task)?.is_some_and(|kept| kept.at == *at) {
                self.batch.push(Write::Settle { at: *at, absent: Vec::new() });
            }
            return Ok(());
        };
        self.batch.push(Write::Settle { at: *at, absent: desk.absent() });
        running.over.fade(desk.places());
        let settled = running.linger(&desk, !took_part.is_empty(), now);
        let took_s = desk.took(now) as f64 / 1000.0;
        running.round_s = Some(running.round_s.map_or(took_s, |before| 0.5 * before + 0.5 * took_s));
        running.round = Some(if took_part.is_empty() { at.round } else { at.round + 1 });
        let from = running.asking.limits.after(at.round);
        let ended = |(device, ticket): (&DeviceKey, Ticket)| (ticket, took_part.contains(device).then_some(from));
        running.settled = desk.tickets().map(ended).collect();
        settled.into_iter().for_each(|seen| self.saw(seen));
        for (device, ticket) in desk.tickets() {
            let Some((request, _)) = self.waiters.remove(&(*device, ticket)) else { continue };
            let stands = if took_part.contains(device) { PartStands::Thanks(from) } else { PartStands::Late };
            self.speak(request, stands, now);
        }
        Ok(())
    }

    /// A device says something that was heard before: somebody plays it again, or it comes late. It gets no place in a round, and takes
    /// nobody's place who waits for an answer.
    pub fn said_before(&mut self, request: RequestId, device: DeviceKey, wants: &Wants, now: u64) {
        match wants {
            Wants::CheckIn(_) | Wants::Enrol(_) => self.later(request),
            Wants::Next(_) => self.answer(request, Says::Wait(Wait { after_ms: ASK_AGAIN_MS })),
            // What it says is taken, if it is still wanted: where two of a device's requests have passed each other, nothing is lost.
            Wants::Secure(SecureMessage { ticket, message }) => match self.received(device, ticket, message) {
                Some((reason, words)) => self.refuse(request, reason, words, now),
                None => self.answer(request, Says::Wait(Wait { after_ms: ASK_AGAIN_MS })),
            },
        }
    }

    fn answer(&mut self, request: RequestId, says: Says) {
        self.answers.push((request, Answer::new(says)));
    }

    fn refuse(&mut self, request: RequestId, reason: Reason, words: impl Into<String>, now: u64) {
        let after_s = self.comes_back_after();
        self.answers.push((request, Answer::refused(reason, words, now / 1000, after_s)));
    }

    fn later(&mut self, request: RequestId) {
        let after_s = self.comes_back_after();
        self.answer(request, Says::Later(Later { after_s }));
    }
}
