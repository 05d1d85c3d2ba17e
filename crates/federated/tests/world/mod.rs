//! A world of devices, messages and crashes around a real coordinator. Time is a number, chance a seed.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

mod chance;
mod checks;
mod evaluations;
mod faults;
mod forgetful;
mod real;
mod secure;
mod stand_in;
mod story;

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    fmt,
    rc::Rc,
    sync::{Arc, OnceLock},
};

use chance::Chance;
use checks::{check, check_same, check_spoiled};
use device::{
    guard::TaskDigest,
    protocol::message::{Answer, Assignment, DeviceKey, Next, Reason, Says, Ticket, Wants},
};
use evaluations::{Applied, Of};
pub(crate) use faults::{Faults, Flaw, Sums};
use forgetful::{ForgetfulLedger, ForgetfulStore, ForgetfulVault, Fuse};
use keyhush_federated::{
    config::{Config, Document},
    fleet::{
        Fleet, FleetError, Stop, WithEvaluations,
        network::{Driver, Network, NetworkTask, Reads, destroy_key_of_settled},
    },
    plan::{EVALUATION, Plan},
    protocol::{
        admission::Anybody,
        coordinator::{Coordinator, CoordinatorError, Report},
        pace::Pace,
        store::AttemptAt,
    },
    randomness::RunRandomness,
    round::{Loop, Replayed, Round, RoundError, State, evaluation::Due},
    run::Opened,
    secrets::{SecretName, Secrets, Vault},
};
use ledger::{Ledger, PseudonymKey, SigningKey};
use privacy::{encoding::Encoding, rng::SimulationKey, stages::Encoded};
use real::{Read, Real};
use secagg::entropy::Entropy;
use secure::SecurePart;
use stand_in::Doing;
pub(crate) use story::{AskedFor, Story};

/// What went wrong.
#[derive(Debug)]
pub(crate) struct Violation(pub(crate) String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a device says.
#[derive(Debug, Clone)]
enum Said {
    Wants(Wants),
    /// A report; its bytes where it is masked.
    Report(Ticket, Option<Rc<[u8]>>),
    /// What a real device says, in its bytes: who the server is, a signed request, a chunk of a report.
    Hello,
    Signed(Rc<[u8]>),
    Chunk(Ticket, u64, Rc<[u8]>),
}

impl Said {
    /// The ticket of a report, or of a question about one.
    fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Report(ticket, _) | Self::Chunk(ticket, ..) => Some(*ticket),
            Self::Wants(Wants::Next(Next { ticket, .. })) => ticket.as_slice().try_into().ok().map(Ticket),
            _ => None,
        }
    }
}

/// A request of a device: an answer belongs to one, as in HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asks {
    device: usize,
    number: u64,
}

#[derive(Debug)]
enum Event {
    Wake {
        device: usize,
        token: u64,
    },
    Arrives {
        from: Asks,
        said: Said,
    },
    Answered {
        to: Asks,
        answer: Answer,
    },
    /// The server says who it is and what time it has.
    Greeted {
        to: Asks,
        time_s: u64,
    },
    /// Nobody is there.
    Unreached {
        to: Asks,
    },
    Tick,
}

struct Device {
    key: DeviceKey,
    /// The machine of `device`, where this is a real one.
    real: Option<Box<Real>>,
    /// What it was given last.
    assignment: Option<Assignment>,
    doing: Doing,
    token: u64,
    /// How many requests it made; it waits for the answer to the last.
    asked: u64,
    /// Steps for which its input was let go; survives its crashes (rule P24).
    given: BTreeSet<Of>,
    /// The attempt of each step that it was asked to join.
    asked_to_join: BTreeMap<Of, u32>,
    thanked: BTreeSet<(Of, u32)>,
    secure: Option<SecurePart>,
}

type Queue = BinaryHeap<Reverse<(u64, u64, usize)>>;

struct World {
    faults: Faults,
    chance: Chance,
    now: u64,
    queue: Queue,
    events: Vec<Option<Event>>,
    devices: Vec<Device>,
    coordinator: Option<Coordinator>,
    /// A server that was taken over from and does not know it, until when it goes on.
    stale: Option<(Coordinator, u64)>,
    flaw: Option<Flaw>,
    /// Reports that arrived, by their tickets.
    arrived: BTreeSet<[u8; 32]>,
    /// Secure attempts that a crash interrupted.
    interrupted: BTreeSet<AttemptAt>,
    /// Attempts whose end was in the ledger when a crash kept them from being settled.
    ended: BTreeSet<AttemptAt>,
    violation: Option<Violation>,
    encoding: Option<Encoding>,
    /// Who waits for an answer, and with which ticket it asked.
    requests: BTreeMap<u64, (Asks, Option<Ticket>)>,
    next_request: u64,
    /// Tasks and models that real devices have read: once for all of them.
    read: BTreeMap<[u8; 32], Read>,
    store: Arc<ForgetfulStore>,
    fuse: Arc<Fuse>,
    dies_at: u64,
    story: Story,
    /// When devices heard that they are asked for a step.
    assigned_at: BTreeMap<u64, Vec<u64>>,
}

impl World {
    fn at(&mut self, time: u64, event: Event) {
        self.events.push(Some(event));
        let number = self.events.len() - 1;
        self.queue.push(Reverse((time.max(self.now), number as u64, number)));
    }

    fn wake(&mut self, device: usize, after: u64) {
        self.devices[device].token += 1;
        let token = self.devices[device].token;
        self.at(self.now + after, Event::Wake { device, token });
    }

    /// A message on its way: lost, doubled, late, each as it may be.
    fn sends(&mut self, make: impl Fn() -> Event) {
        let copies =
            if self.chance.is(self.faults.lose) { 0 } else { 1 + u64::from(self.chance.is(self.faults.double)) };
        for _ in 0..copies {
            let slow = self.chance.is(self.faults.delay);
            let delay = 10 + self.chance.below(if slow { 20_000 } else { 300 });
            self.at(self.now + delay, make());
        }
    }

    fn says(&mut self, device: usize, said: Said, timeout: u64) {
        self.devices[device].asked += 1;
        let from = Asks { device, number: self.devices[device].asked };
        self.sends(|| Event::Arrives { from, said: said.clone() });
        self.wake(device, timeout);
    }

    fn step(&mut self) -> Result<(), Violation> {
        let Some(Reverse((time, _, number))) = self.queue.pop() else {
            return Err(Violation("nothing happens any more".into()));
        };
        self.story.events += 1;
        if self.story.events > 100_000 * self.faults.rounds {
            return Err(Violation(format!("it does not come to an end: {}", self.stands())));
        }
        self.now = self.now.max(time);
        if self.now >= self.dies_at {
            self.fuse.blow();
        }
        match self.events[number].take() {
            None => {}
            Some(Event::Wake { device, token }) if self.devices[device].token == token => self.acts(device),
            Some(Event::Wake { .. }) => {}
            Some(Event::Arrives { from, said }) => self.arrives(from, &said),
            Some(Event::Answered { to, answer }) if self.devices[to.device].asked == to.number => {
                // It does not wait for the same answer again.
                self.devices[to.device].asked += 1;
                self.hears(to.device, &answer);
            }
            Some(Event::Greeted { to, time_s }) if self.devices[to.device].asked == to.number => {
                self.devices[to.device].asked += 1;
                self.is_greeted(to.device, time_s);
            }
            Some(Event::Unreached { to }) if self.devices[to.device].asked == to.number => {
                self.devices[to.device].asked += 1;
                self.reaches_nobody(to.device);
            }
            Some(Event::Answered { .. } | Event::Greeted { .. } | Event::Unreached { .. }) => {}
            Some(Event::Tick) => self.ticks(),
        }
        self.violation.take().map_or(Ok(()), Err)
    }

    fn acts(&mut self, device: usize) {
        if self.devices[device].real.is_some() { self.real_acts(device) } else { self.stand_in_acts(device) }
    }

    fn hears(&mut self, device: usize, answer: &Answer) {
        if let Some(Says::Assignment(assignment)) = &answer.says {
            self.is_asked_to_join(device, assignment);
        }
        if self.devices[device].real.is_some() {
            self.real_hears(device, answer);
        } else {
            self.stand_in_hears(device, answer);
        }
    }

    /// A device is given an attempt: of each step it is one, whatever happens.
    fn is_asked_to_join(&mut self, device: usize, assignment: &Assignment) {
        let (attempt, step) = (assignment.attempt, Of::assignment(assignment));
        if !step.evaluation {
            self.assigned_at.entry(step.step).or_default().push(self.now);
            self.encoding = Some(evaluations::encoding_of(assignment));
        }
        let before = *self.devices[device].asked_to_join.entry(step).or_insert(attempt);
        if before != attempt {
            self.wrong(format!("device {device} was asked to join attempts {before} and {attempt} of {step:?}"));
        }
        self.devices[device].assignment = Some(assignment.clone());
    }

    /// What everybody does, for whoever looks for the reason.
    fn stands(&self) -> String {
        let count = |is: fn(&Doing) -> bool| self.devices.iter().filter(|device| is(&device.doing)).count();
        format!(
            "{} strangers, {} idle, {} speak, {} at work, {} report, {} ask; {:?} gave, of {:?} asked, after {} crashes; {:?}",
            count(|doing| matches!(doing, Doing::Strange)),
            count(|doing| matches!(doing, Doing::Idle)),
            count(|doing| matches!(doing, Doing::Speaking(_))),
            count(|doing| matches!(doing, Doing::Working(_))),
            count(|doing| matches!(doing, Doing::Reporting(_))),
            count(|doing| matches!(doing, Doing::Asking(_))),
            self.devices.iter().flat_map(|device| &device.given).fold(BTreeMap::new(), |mut steps, step| {
                *steps.entry(step).or_insert(0) += 1;
                steps
            }),
            self.devices.iter().flat_map(|device| &device.asked_to_join).fold(
                BTreeMap::new(),
                |mut steps, (step, attempt)| {
                    *steps.entry(step).or_insert_with(BTreeMap::new).entry(attempt).or_insert(0) += 1;
                    steps
                }
            ),
            self.story.crashes,
            self.faults,
        )
    }

    fn wrong(&mut self, why: String) {
        self.violation.get_or_insert(Violation(why));
    }

    fn arrives(&mut self, from: Asks, said: &Said) {
        let is_stale = self.stale.is_some() && self.chance.is(0.3);
        if is_stale {
            self.story.said_to_stale += 1;
            if let Some((mut stale, until)) = self.stale.take()
                && self.tells(&mut stale, from, said).is_ok()
                && let Ok(answers) = stale.flush()
            {
                self.deliver(answers);
                self.stale = Some((stale, until));
            }
        } else if let Some(mut coordinator) = self.coordinator.take() {
            if self.fuse.is_blown() {
                self.at(self.now + 10, Event::Unreached { to: from });
            } else {
                let done = self.tells(&mut coordinator, from, said);
                self.goes_on(done);
            }
            self.coordinator = Some(coordinator);
            self.flush();
        }
    }

    /// A server is told what a device said.
    fn tells(&mut self, server: &mut Coordinator, from: Asks, said: &Said) -> Result<(), CoordinatorError> {
        self.next_request += 1;
        let (request, now) = (self.next_request, self.now);
        self.requests.insert(request, (from, said.ticket()));
        match said {
            Said::Hello => {
                self.requests.remove(&request);
                self.sends(|| Event::Greeted { to: from, time_s: now / 1000 });
                Ok(())
            }
            Said::Signed(bytes) => self.tells_signed(server, request, bytes),
            Said::Chunk(ticket, offset, bytes) => match server.begins(ticket, now) {
                Ok(expected) => {
                    let report = real::report(&expected, *offset, bytes);
                    self.arrived.insert(ticket.0);
                    server.report(request, ticket, &report, now)
                }
                Err(answer) => self.is_not_taken(server, request, ticket, *answer),
            },
            Said::Wants(wants) => server.said(request, self.devices[from.device].key, wants, now),
            Said::Report(ticket, masked) => match server.begins(ticket, now) {
                Ok(expected) => {
                    let report = match masked {
                        Some(bytes) => Report::Masked(bytes.to_vec()),
                        None => Report::Plain(one_hot(from.device, expected.encoding.as_ref().unwrap())),
                    };
                    self.arrived.insert(ticket.0);
                    server.report(request, ticket, &report, now)
                }
                Err(answer) => self.is_not_taken(server, request, ticket, *answer),
            },
        }
    }

    /// A report is not wanted, or not now.
    fn is_not_taken(
        &mut self,
        server: &mut Coordinator,
        request: u64,
        ticket: &Ticket,
        answer: Answer,
    ) -> Result<(), CoordinatorError> {
        // The server that lives is not in its place while it is told something; one that was taken over from knows no better.
        if self.coordinator.is_none() {
            self.closes_what_is_open(request, &answer);
        }
        let (from, _) = self.requests[&request];
        self.counts_again(server, request, from, ticket)?;
        self.deliver(vec![(request, answer)]);
        Ok(())
    }

    /// What a server does that does not know a report when it comes again: it takes it for that of somebody who is still at work.
    fn counts_again(
        &mut self,
        server: &mut Coordinator,
        request: u64,
        from: Asks,
        ticket: &Ticket,
    ) -> Result<(), CoordinatorError> {
        if self.flaw != Some(Flaw::CountsAgain) || !self.arrived.contains(&ticket.0) {
            return Ok(());
        }
        let ticket = |assignment: &Assignment| Ticket(assignment.ticket.as_slice().try_into().unwrap());
        let at_work = self.devices.iter().find_map(|device| match (&device.real, &device.doing) {
            (Some(real), _) => device.assignment.as_ref().filter(|_| real.is_training()).map(ticket),
            (None, Doing::Working(assignment)) => Some(ticket(assignment)),
            _ => None,
        });
        let Some(other) = at_work else { return Ok(()) };
        let Ok(expected) = server.begins(&other, self.now) else { return Ok(()) };
        let report = Report::Plain(one_hot(from.device, expected.encoding.as_ref().unwrap()));
        server.report(request, &other, &report, self.now)
    }

    /// What a server cannot do is wrong, unless it was killed.
    fn goes_on(&mut self, done: Result<(), CoordinatorError>) {
        if let Err(error) = done.as_ref().map_err(ToString::to_string)
            && !self.fuse.is_blown()
        {
            self.wrong(format!("the server cannot go on: {error}"));
        }
    }

    fn deliver(&mut self, answers: Vec<(u64, Answer)>) {
        for (request, answer) in answers {
            if let Some((to, _)) = self.requests.remove(&request) {
                self.sends(|| Event::Answered { to, answer: answer.clone() });
            }
        }
    }

    fn ticks(&mut self) {
        let now = self.now;
        self.at(now + 250, Event::Tick);
        if let Some(coordinator) = self.coordinator.as_mut().filter(|_| !self.fuse.is_blown()) {
            let done = coordinator.tick(now);
            self.goes_on(done);
            self.flush();
        }
        if let Some((mut stale, until)) = self.stale.take().filter(|(_, until)| now < *until)
            && stale.tick(now).is_ok()
            && let Ok(answers) = stale.flush()
        {
            self.deliver(answers);
            self.stale = Some((stale, until));
        }
    }

    /// What was decided becomes durable, and the answers leave.
    fn flush(&mut self) {
        let Some(coordinator) = self.coordinator.as_mut().filter(|_| !self.fuse.is_blown()) else { return };
        match coordinator.flush() {
            Ok(answers) => {
                answers.iter().for_each(|(request, answer)| self.closes_what_is_open(*request, answer));
                self.deliver(answers);
            }
            Err(error) => self.goes_on(Err(error)),
        }
    }

    /// Whoever asks with a ticket of the attempt that is open is never told that there is no such attempt: also not by a server that
    /// has just been started again.
    fn closes_what_is_open(&mut self, request: u64, answer: &Answer) {
        let is_closed =
            |says: &Says| matches!(says, Says::Refused(refused) if refused.reason == i32::from(Reason::Closed));
        let Some((Asks { device, .. }, Some(ticket))) = self.requests.get(&request).copied() else { return };
        if self.faults.sums == Sums::Secure || !answer.says.as_ref().is_some_and(is_closed) {
            return;
        }
        let Device { key, assignment: Some(assignment), .. } = &self.devices[device] else { return };
        let task = TaskDigest(assignment.task.as_ref().unwrap().digest.clone().try_into().unwrap());
        let Some(kept) = self.store.kept(&task).filter(|kept| kept.assigned.contains(key)) else { return };
        let is_of = (kept.at.round, kept.at.attempt) == (assignment.step, assignment.attempt);
        // Where its end is in the ledger it is over, and only not settled yet.
        let is_of = is_of && !self.ended.contains(&kept.at);
        if is_of && assignment.ticket == ticket.0 {
            self.wrong(format!("device {device} was told that {:?} is closed, which is open", kept.at));
        }
    }
}

/// A one in the device's own place; in an evaluation, which has few places, in the first.
fn one_hot(place: usize, encoding: &Encoding) -> Encoded {
    let place = if encoding.layout().len() == evaluations::COUNTED { 0 } else { place };
    let mut values = vec![0; encoding.layout().len()];
    values[place] = 1 << 20;
    Encoded::of(values, encoding).unwrap()
}

/// How the fleet reaches the coordinator of a world.
struct InWorld(Rc<RefCell<World>>);

impl Driver for InWorld {
    fn with<R: Send>(
        &mut self,
        act: impl FnOnce(&mut Coordinator, u64) -> Result<R, CoordinatorError> + Send,
    ) -> Result<R, FleetError> {
        let mut world = self.0.borrow_mut();
        let now = world.now;
        let done = act(world.coordinator.as_mut().unwrap(), now)?;
        world.flush();
        if let Some(violation) = world.violation.take() {
            return Err(FleetError::Driver(violation.0.into()));
        }
        if world.fuse.is_blown() { Err(FleetError::Stopped) } else { Ok(done) }
    }

    fn wait(&mut self, _task: &TaskDigest, _stop: &Stop) -> Result<(), FleetError> {
        let mut world = self.0.borrow_mut();
        world.step().map_err(|violation| FleetError::Driver(violation.0.into()))?;
        if world.fuse.is_blown() { Err(FleetError::Stopped) } else { Ok(()) }
    }

    fn coins(&mut self) -> Box<dyn Entropy + Send> {
        Box::new(self.0.borrow_mut().chance.fork())
    }
}

/// The time at which a schedule begins.
const BEGINS: u64 = 1_000_000;
/// The bytes of the key of pseudonyms.
const PSEUDONYMS: [u8; 32] = [5; 32];

/// What a schedule is played with.
struct Setting {
    plan: Plan,
    opened: &'static Opened,
}

impl Setting {
    fn new(faults: &Faults) -> Self {
        static OPENED: OnceLock<Opened> = OnceLock::new();
        let config: Config = Document::new(&faults.settings(), &[]).unwrap().config().unwrap();
        let opened = OPENED.get_or_init(|| Opened::new(&config).unwrap());
        let plan = Plan::new(config, &opened.setting()).unwrap();
        Self { plan, opened }
    }
}

impl Story {
    /// Plays a schedule to its end, and looks at what came of it.
    pub(crate) fn play(seed: u64, faults: Faults, flaw: Option<Flaw>) -> Result<Self, Violation> {
        let setting = Setting::new(&faults);
        let fuse = Arc::new(Fuse::default());
        let store = Arc::new(ForgetfulStore::new(Arc::clone(&fuse), flaw, faults.list_emptied));
        let ledger = ForgetfulLedger::new(Arc::clone(&fuse), flaw);
        let vault = Arc::new(ForgetfulVault::new(Arc::clone(&fuse)));
        let signing = || SigningKey::from_seed(&[1; 32]);
        Ledger::create(ledger.clone(), setting.plan.ledger.clone(), signing(), 0).unwrap();
        let mut chance = Chance(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let device = |number: u64| Device {
            key: DeviceKey([&number.to_be_bytes()[..], &[7; 24]].concat().try_into().unwrap()),
            real: None,
            assignment: None,
            doing: Doing::Strange,
            token: 0,
            asked: 0,
            given: BTreeSet::new(),
            asked_to_join: BTreeMap::new(),
            secure: None,
            thanked: BTreeSet::new(),
        };
        let devices = (0..faults.devices)
            .map(|number| match chance.is(faults.real) {
                true => Real::device(number, device(number), &mut chance),
                false => device(number),
            })
            .collect();
        let world = World {
            chance,
            now: BEGINS,
            queue: Queue::new(),
            events: Vec::new(),
            devices,
            coordinator: None,
            stale: None,
            flaw,
            arrived: BTreeSet::new(),
            interrupted: BTreeSet::new(),
            ended: BTreeSet::new(),
            violation: None,
            encoding: None,
            requests: BTreeMap::new(),
            next_request: 0,
            read: BTreeMap::new(),
            store: Arc::clone(&store),
            fuse: Arc::clone(&fuse),
            dies_at: u64::MAX,
            story: Self::default(),
            assigned_at: BTreeMap::new(),
            faults: faults.clone(),
        };
        let world = Rc::new(RefCell::new(world));
        {
            let mut world = world.borrow_mut();
            for device in 0..world.devices.len() {
                let after = world.chance.below(3_000);
                world.wake(device, after);
            }
            world.at(BEGINS, Event::Tick);
        }
        let mut applied = Applied::default();
        loop {
            world.borrow_mut().lives();
            let done = life(&world, &setting, &store, &ledger, &vault, signing(), &mut applied)?;
            if done {
                break;
            }
            fuse.mend();
            store.restart();
            ledger.restart();
            let mut world = world.borrow_mut();
            world.story.crashes += 1;
            world.ends();
            world.requests.clear();
            world.now += 1_000 + world.faults.down_ms;
        }
        fuse.mend();
        let mut world = Rc::try_unwrap(world).ok().unwrap().into_inner();
        world.story.took_ms = world.now - BEGINS;
        world.story.asked = world.assigned_at.values().map(|heard_at| AskedFor::of(heard_at)).collect();
        world.story.released = applied.rounds.len() as u64;
        world.story.evaluated = applied.evaluations.len() as u64;
        world.story.interrupted = world.interrupted.len() as u64;
        check(&world, &setting, &ledger, signing(), &applied.rounds)?;
        check_spoiled(&world, &ledger, signing(), &store)?;
        applied.check(&world, &setting.plan, &ledger, signing())?;
        Ok(world.story)
    }
}

impl World {
    /// The server is gone; or nobody hears of it for so long that another one takes over, and then it goes on.
    fn ends(&mut self) {
        let gone = self.coordinator.take();
        let (sleeps, until) = (self.chance.is(self.faults.sleeps), self.now + 1_000 + self.faults.down_ms + 60_000);
        self.stale = gone.filter(|_| sleeps).map(|coordinator| (coordinator, until));
    }

    /// How long the server lives: so many durable steps, or so much time.
    fn lives(&mut self) {
        self.dies_at = u64::MAX;
        if self.story.crashes >= self.faults.crashes {
            return self.fuse.light(u64::MAX);
        }
        // While devices enrol there is a durable step for each of them.
        let enrols = if self.story.crashes == 0 { self.faults.devices } else { 0 };
        let steps = 1 + self.chance.below(self.faults.life + enrols);
        if self.chance.is(0.5) {
            self.fuse.light(steps);
        } else {
            self.fuse.light(u64::MAX);
            self.dies_at = self.now + self.chance.below(60_000);
        }
    }
}

/// Without an attempt that is open there is no key of sums: with it, whoever finds what the database once held opens them.
fn check_key(store: &ForgetfulStore, vault: &ForgetfulVault, tasks: &[TaskDigest]) -> Result<(), Violation> {
    if vault.exists(SecretName::RoundKey).unwrap() && tasks.iter().all(|task| store.kept(task).is_none()) {
        return Err(Violation("no attempt is open, and the key of its sums is still there".into()));
    }
    Ok(())
}

/// One life of the server. Says whether the run is done.
fn life(
    world: &Rc<RefCell<World>>,
    setting: &Setting,
    store: &Arc<ForgetfulStore>,
    ledger: &ForgetfulLedger,
    vault: &Arc<ForgetfulVault>,
    signing: SigningKey,
    applied: &mut Applied,
) -> Result<bool, Violation> {
    let Setting { plan, opened } = setting;
    let reads = Reads { learner: opened.learner(), vocabulary: opened.vocabulary(), rules: opened.rules() };
    let task = NetworkTask::new("test", &[9; 32], plan, reads).unwrap();
    let evaluations = NetworkTask::of_evaluations("test", &[9; 32], plan, reads).unwrap();
    let ledger = match Ledger::open(ledger.clone(), Some(signing), &[]) {
        Ok(ledger) => ledger,
        Err(_) => return Ok(false),
    };
    let state = State::new(plan, opened.first_parameters().to_vec()).unwrap();
    let randomness = RunRandomness::simulated(SimulationKey::new(0));
    let mut rounds = Loop::new(plan, opened.learner(), randomness, ledger, state, 1);
    loop {
        let round = rounds.state().round;
        match rounds.replay() {
            Ok(Replayed::Round) => check_same(&rounds, plan, round, &mut applied.rounds)?,
            Ok(Replayed::Nothing) => break,
            Err(_) => return Ok(false),
        }
    }
    {
        let mut world = world.borrow_mut();
        let pace = Pace { least_s: 1.0, ..Pace::default() };
        let seed = world.chance.next();
        let kept = store.kept(&task.digest).filter(|kept| !kept.assigned.is_empty());
        world.story.resumed_with_reports += u64::from(kept.as_ref().is_some_and(|kept| !kept.merged.is_empty()));
        let stream = &plan.phase(0).stream;
        let is_recorded = |at: &AttemptAt, stream: &str| {
            let (ledger, AttemptAt { round, attempt, .. }) = (rounds.ledger(), *at);
            ledger.released_in(stream, round).is_some()
                || ledger.failures(stream, round).iter().any(|failure| failure.attempt == attempt)
        };
        // An attempt that devices have, and whose end is not in the ledger, is opened again.
        let mut opens_again = |task: &TaskDigest, stream: &str| {
            let at = store.kept(task).filter(|kept| !kept.assigned.is_empty()).map(|kept| kept.at)?;
            if is_recorded(&at, stream) {
                world.ended.insert(at);
                return None;
            }
            Some(at)
        };
        let again = opens_again(&task.digest, stream);
        let evaluation_again = evaluations.as_ref().and_then(|task| opens_again(&task.digest, EVALUATION));
        if world.faults.sums == Sums::Secure {
            world.interrupted.extend(again);
        }
        let Ok(mut coordinator) = Coordinator::new(Arc::new(store.take()), Box::new(Anybody), pace, seed) else {
            return Ok(false);
        };
        let round = rounds.state().round;
        let begun = (round > 0).then_some(round);
        coordinator.add_task(task.digest, task.asking, begun).map_err(|error| Violation(error.to_string()))?;
        if again.is_some() {
            coordinator.opens_again(&task.digest).unwrap();
        }
        if let Some(NetworkTask { digest, asking, .. }) = &evaluations {
            let begun = rounds.ledger().last_step(EVALUATION).map(|last| last + 1);
            coordinator.add_task(*digest, *asking, begun).map_err(|error| Violation(error.to_string()))?;
            coordinator.only_while_open(digest).unwrap();
            if evaluation_again.is_some() {
                coordinator.opens_again(digest).unwrap();
            }
        }
        world.coordinator = Some(coordinator);
        let real = world.devices.iter().filter(|device| device.real.is_some()).count() as u64;
        world.story.real += real;
        // A server listens before its tasks are ready.
        let ready = world.now + if world.story.crashes > 0 { world.chance.below(2_000) } else { 0 };
        while world.now < ready {
            world.step()?;
            if world.fuse.is_blown() {
                return Ok(false);
            }
        }
    }
    let secrets = Secrets::new(vault.clone());
    let digests: Vec<TaskDigest> = std::iter::once(&task).chain(&evaluations).map(|task| task.digest).collect();
    if let Err(error) = destroy_key_of_settled(&mut InWorld(Rc::clone(world)), &digests, &secrets) {
        let blown = world.borrow().fuse.is_blown();
        return if blown { Ok(false) } else { Err(Violation(error.to_string())) };
    }
    check_key(store, vault, &digests)?;
    let network = |task: NetworkTask| {
        let pseudonyms = PseudonymKey::from_bytes(&PSEUDONYMS);
        Network::new(InWorld(Rc::clone(world)), task, plan.windows, secrets.clone(), pseudonyms, 1)
    };
    let mut fleet: Box<dyn Fleet> = match evaluations {
        None => Box::new(network(task)),
        Some(evaluations) => Box::new(WithEvaluations { rounds: network(task), evaluations: network(evaluations) }),
    };
    let stop = Stop::new();
    loop {
        if let Due::Step(step) = rounds.evaluation_due() {
            if evaluations::attempted(&mut rounds, step, &mut *fleet, world, applied)? {
                continue;
            }
            return Ok(false);
        }
        if rounds.state().round == plan.rounds {
            return Ok(true);
        }
        let round = rounds.state().round;
        let done = rounds.round(&mut *fleet, &stop, 0);
        if done.is_ok() && vault.exists(SecretName::RoundKey).unwrap() {
            return Err(Violation(format!("round {round} is settled, and the key of its sums is still there")));
        }
        match done {
            Ok(Round::Done(_)) => check_same(&rounds, plan, round, &mut applied.rounds)?,
            Ok(Round::Failed(_)) => world.borrow_mut().story.failed += 1,
            Ok(Round::OutOfBudget(_)) => return Err(Violation("out of budget".into())),
            // So many came to nothing by chance that the run ends, as it should.
            Err(RoundError::TooManyFailed { .. }) if world.borrow().faults.sums == Sums::Secure => {
                world.borrow_mut().story.gave_up = true;
                return Ok(true);
            }
            Err(error) => {
                let blown = world.borrow().fuse.is_blown();
                return if blown { Ok(false) } else { Err(Violation(error.to_string())) };
            }
        }
    }
}
