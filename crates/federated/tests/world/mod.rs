//! A world of devices, messages and crashes around a real coordinator. Time is a number, chance a seed.

mod faults;
mod forgetful;

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    fmt,
    rc::Rc,
    sync::{Arc, OnceLock},
};

use device::{
    guard::TaskDigest,
    protocol::{
        message::{Answer, Assignment, CheckIn, DeviceKey, Enrol, Next, Reason, Says, Ticket, Wants},
        terms::StepTerms,
    },
};
pub(crate) use faults::{Faults, Flaw};
use forgetful::{ForgetfulLedger, ForgetfulStore, ForgetfulVault, Fuse};
use keyhush_federated::{
    config::{Config, Document},
    fleet::{
        FleetError, Stop,
        network::{Driver, Network, NetworkTask, Reads},
    },
    plan::Plan,
    protocol::{
        admission::Anybody,
        coordinator::{Coordinator, CoordinatorError, Report},
        pace::Pace,
        store::Store,
    },
    randomness::RunRandomness,
    round::{Loop, Replayed, Round, State},
    run::Opened,
    secrets::Secrets,
};
use ledger::{Ledger, PseudonymKey, SigningKey};
use privacy::{
    encoding::Encoding,
    rng::SimulationKey,
    stages::{Encoded, Published},
};
use secagg::entropy::{Entropy, OsEntropy};

/// What went wrong.
#[derive(Debug)]
pub(crate) struct Violation(pub(crate) String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What happened in a schedule.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Story {
    pub(crate) crashes: u64,
    pub(crate) released: u64,
    pub(crate) failed: u64,
    /// Crashes after which a sum with reports in it went on.
    pub(crate) resumed_with_reports: u64,
    /// Of each round: whether devices were asked more than once.
    pub(crate) topped_up: Vec<bool>,
    events: u64,
    now: u64,
}

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub(crate) fn is(&mut self, share: f64) -> bool {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 <= share && share > 0.0
    }
}

/// What a device says.
#[derive(Debug, Clone)]
enum Said {
    Wants(Wants),
    Report(Ticket),
}

/// A request of a device: an answer belongs to one, as in HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asks {
    device: usize,
    number: u64,
}

#[derive(Debug)]
enum Event {
    Wake { device: usize, token: u64 },
    Arrives { from: Asks, said: Said },
    Answered { to: Asks, answer: Answer },
    Tick,
}

#[derive(Debug, Clone)]
enum Doing {
    Strange,
    Idle,
    Working(Box<Assignment>),
    Reporting(Box<Assignment>),
    Asking(Box<Assignment>),
}

struct Device {
    key: DeviceKey,
    doing: Doing,
    token: u64,
    /// How many requests it made; it waits for the answer to the last.
    asked: u64,
    /// Steps for which its input was let go; survives its crashes (rule P24).
    given: BTreeSet<u64>,
    thanked: BTreeSet<(u64, u32)>,
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
    encoding: Option<Encoding>,
    requests: BTreeMap<u64, Asks>,
    next_request: u64,
    fuse: Arc<Fuse>,
    story: Story,
    assigned_at: BTreeMap<u64, BTreeSet<u64>>,
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
        if self.story.events > 400_000 {
            return Err(Violation(format!("it does not come to an end: {}", self.stands())));
        }
        self.now = self.now.max(time);
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
            Some(Event::Answered { .. }) => {}
            Some(Event::Tick) => self.ticks(),
        }
        Ok(())
    }

    /// What everybody does, for whoever looks for the reason.
    fn stands(&self) -> String {
        let count = |is: fn(&Doing) -> bool| self.devices.iter().filter(|device| is(&device.doing)).count();
        format!(
            "{} strangers, {} idle, {} at work, {} report, {} ask; {:?} after {} crashes; {:?}",
            count(|doing| matches!(doing, Doing::Strange)),
            count(|doing| matches!(doing, Doing::Idle)),
            count(|doing| matches!(doing, Doing::Working(_))),
            count(|doing| matches!(doing, Doing::Reporting(_))),
            count(|doing| matches!(doing, Doing::Asking(_))),
            self.devices.iter().flat_map(|device| &device.given).fold(BTreeMap::new(), |mut steps, step| {
                *steps.entry(step).or_insert(0) += 1;
                steps
            }),
            self.story.crashes,
            self.faults,
        )
    }

    fn acts(&mut self, device: usize) {
        if self.chance.is(self.faults.device_crashes) {
            // What it worked on is gone; what it gave is on record.
            self.devices[device].doing = Doing::Idle;
        }
        match self.devices[device].doing.clone() {
            Doing::Strange => self.says(device, Said::Wants(Wants::Enrol(Enrol::default())), 20_000),
            Doing::Idle => self.says(device, Said::Wants(Wants::CheckIn(CheckIn { patience_ms: 10_000 })), 30_000),
            Doing::Working(assignment) => {
                self.devices[device].given.insert(assignment.step);
                self.devices[device].doing = Doing::Reporting(assignment);
                self.acts(device);
            }
            Doing::Reporting(assignment) => {
                let ticket = Ticket(assignment.ticket.as_slice().try_into().unwrap());
                self.says(device, Said::Report(ticket), 5_000);
            }
            Doing::Asking(assignment) => {
                let next = Next { ticket: assignment.ticket.clone(), patience_ms: 5_000 };
                self.says(device, Said::Wants(Wants::Next(next)), 12_000);
            }
        }
    }

    fn hears(&mut self, device: usize, answer: &Answer) {
        let doing = self.devices[device].doing.clone();
        match (answer.says.as_ref().unwrap(), doing) {
            (Says::Enrolled(_), Doing::Strange) => {
                self.devices[device].doing = Doing::Idle;
                let after = self.chance.below(2_000);
                self.wake(device, after);
            }
            (Says::Later(later), Doing::Idle) => self.wake(device, later.after_s.min(60) * 1000 + 500),
            (Says::Assignment(assignment), Doing::Idle) => self.is_assigned(device, assignment),
            (Says::Received(received), Doing::Reporting(assignment) | Doing::Asking(assignment)) => {
                let all = received.offset > 0;
                self.devices[device].doing = if all { Doing::Asking(assignment) } else { Doing::Reporting(assignment) };
                self.wake(device, 10);
            }
            (Says::Wait(wait), Doing::Reporting(assignment) | Doing::Asking(assignment)) => {
                self.devices[device].doing = Doing::Asking(assignment);
                self.wake(device, u64::from(wait.after_ms).max(10));
            }
            (Says::Thanks(_), Doing::Reporting(assignment) | Doing::Asking(assignment)) => {
                self.devices[device].thanked.insert((assignment.step, assignment.attempt));
                self.devices[device].doing = Doing::Idle;
                self.wake(device, 1_000);
            }
            (Says::Refused(refused), doing) => {
                let strange = refused.reason == i32::from(Reason::Stranger);
                let idle = !matches!(doing, Doing::Working(_) | Doing::Strange);
                if strange {
                    self.devices[device].doing = Doing::Strange;
                } else if idle {
                    self.devices[device].doing = Doing::Idle;
                }
                if strange || idle {
                    self.wake(device, 3_000);
                }
            }
            // An answer to something that it no longer waits for.
            _ => {}
        }
    }

    fn is_assigned(&mut self, device: usize, assignment: &Assignment) {
        self.assigned_at.entry(assignment.step).or_default().insert(self.now / 1_000);
        if self.devices[device].given.contains(&assignment.step) {
            // Its guard refuses: to the server it is a device that does not come.
            return self.wake(device, 60_000);
        }
        if self.chance.is(self.faults.vanish) {
            return self.wake(device, assignment.within_ms + 30_000);
        }
        let encoding = serde_json::from_slice::<StepTerms>(&assignment.terms).unwrap().encoding;
        self.encoding = Some(encoding);
        self.devices[device].doing = Doing::Working(Box::new(assignment.clone()));
        let trains = 500 + self.chance.below(9_000);
        self.wake(device, trains);
    }

    fn arrives(&mut self, from: Asks, said: &Said) {
        let now = self.now;
        self.next_request += 1;
        let request = self.next_request;
        let report = match said {
            Said::Report(_) => self.encoding.as_ref().map(|encoding| one_hot(from.device, encoding)),
            Said::Wants(_) => None,
        };
        let key = self.devices[from.device].key;
        let Some(coordinator) = self.coordinator.as_mut().filter(|_| !self.fuse.is_blown()) else { return };
        self.requests.insert(request, from);
        let done = match (said, report) {
            (Said::Wants(wants), _) => coordinator.said(request, key, wants, now),
            (Said::Report(ticket), Some(report)) => match coordinator.begins(ticket, now) {
                Ok(_) => coordinator.report(request, ticket, &Report::Plain(report), now),
                Err(answer) => {
                    let answer = *answer;
                    self.sends(|| Event::Answered { to: from, answer: answer.clone() });
                    return self.flush();
                }
            },
            (Said::Report(_), None) => Ok(()),
        };
        if done.is_ok() {
            self.flush();
        }
    }

    fn ticks(&mut self) {
        let now = self.now;
        self.at(now + 250, Event::Tick);
        if let Some(coordinator) = self.coordinator.as_mut().filter(|_| !self.fuse.is_blown())
            && coordinator.tick(now).is_ok()
        {
            self.flush();
        }
    }

    /// What was decided becomes durable, and the answers leave.
    fn flush(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return };
        for (request, answer) in coordinator.flush().unwrap_or_default() {
            if let Some(to) = self.requests.remove(&request) {
                self.sends(|| Event::Answered { to, answer: answer.clone() });
            }
        }
    }
}

fn one_hot(place: usize, encoding: &Encoding) -> Encoded {
    let mut bytes = vec![0; encoding.layout().len() * 4];
    bytes[place * 4..place * 4 + 4].copy_from_slice(&(1i32 << 20).to_le_bytes());
    Encoded::check(&bytes, encoding).unwrap()
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
        if world.fuse.is_blown() { Err(FleetError::Stopped) } else { Ok(done) }
    }

    fn wait(&mut self, _task: &TaskDigest, _stop: &Stop) -> Result<(), FleetError> {
        let mut world = self.0.borrow_mut();
        world.step().map_err(|violation| FleetError::Task(violation.0))?;
        if world.fuse.is_blown() { Err(FleetError::Stopped) } else { Ok(()) }
    }

    fn coins(&mut self) -> Box<dyn Entropy + Send> {
        Box::new(OsEntropy)
    }
}

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
        let store = Arc::new(ForgetfulStore::new(Arc::clone(&fuse), flaw));
        let ledger = ForgetfulLedger::new(Arc::clone(&fuse));
        let vault = Arc::new(ForgetfulVault::new(Arc::clone(&fuse)));
        let signing = || SigningKey::from_seed(&[1; 32]);
        Ledger::create(ledger.clone(), setting.plan.ledger.clone(), signing(), 0).unwrap();
        let device = |number: u64| Device {
            key: DeviceKey([&number.to_be_bytes()[..], &[7; 24]].concat().try_into().unwrap()),
            doing: Doing::Strange,
            token: 0,
            asked: 0,
            given: BTreeSet::new(),
            thanked: BTreeSet::new(),
        };
        let world = World {
            chance: Chance(seed.wrapping_mul(0x2545_f491_4f6c_dd1d)),
            now: 1_000_000,
            queue: Queue::new(),
            events: Vec::new(),
            devices: (0..faults.devices).map(device).collect(),
            coordinator: None,
            encoding: None,
            requests: BTreeMap::new(),
            next_request: 0,
            fuse: Arc::clone(&fuse),
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
            world.at(1_000_000, Event::Tick);
        }
        let mut applied: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        loop {
            let lives = { world.borrow_mut().lives() };
            fuse.light(lives);
            let done = life(&world, &setting, &store, &ledger, &vault, signing(), &mut applied)?;
            if done {
                break;
            }
            fuse.mend();
            store.restart();
            let mut world = world.borrow_mut();
            world.story.crashes += 1;
            world.coordinator = None;
            world.requests.clear();
            world.now += 1_000 + world.faults.down_ms;
        }
        fuse.mend();
        let mut world = Rc::try_unwrap(world).ok().unwrap().into_inner();
        world.story.now = world.now;
        world.story.topped_up = world.assigned_at.values().map(|times| times.len() > 12).collect();
        world.story.released = applied.len() as u64;
        check(&world, &setting, &ledger, signing(), &applied)?;
        Ok(world.story)
    }
}

impl World {
    /// How many durable steps the server lives for.
    fn lives(&mut self) -> u64 {
        // While devices enrol there is a durable step for each of them.
        let enrols = if self.story.crashes == 0 { self.faults.devices } else { 0 };
        let life = 1 + self.chance.below(self.faults.life + enrols);
        if self.story.crashes >= self.faults.crashes { u64::MAX } else { life }
    }
}

/// One life of the server. Says whether the run is done.
fn life(
    world: &Rc<RefCell<World>>,
    setting: &Setting,
    store: &Arc<ForgetfulStore>,
    ledger: &ForgetfulLedger,
    vault: &Arc<ForgetfulVault>,
    signing: SigningKey,
    applied: &mut BTreeMap<u64, Vec<u8>>,
) -> Result<bool, Violation> {
    let Setting { plan, opened } = setting;
    let reads = Reads { learner: opened.learner(), vocabulary: opened.vocabulary(), rules: opened.rules() };
    let task = NetworkTask::new("test", &[9; 32], plan, reads).unwrap();
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
            Ok(Replayed::Round) => check_same(&rounds, plan, round, applied)?,
            Ok(Replayed::Nothing) => break,
            Err(_) => return Ok(false),
        }
    }
    {
        let mut world = world.borrow_mut();
        let pace = Pace { least_s: 1.0, ..Pace::default() };
        let seed = world.chance.next();
        let kept = store.open_attempt(&task.digest).unwrap();
        world.story.resumed_with_reports += u64::from(kept.is_some_and(|kept| !kept.merged.is_empty()));
        let Ok(mut coordinator) = Coordinator::new(store.clone(), Box::new(Anybody), pace, seed) else {
            return Ok(false);
        };
        let round = rounds.state().round;
        let begun = (round > 0).then_some(round);
        coordinator.add_task(task.digest, task.limits, task.goal, task.begin_with, begun);
        world.coordinator = Some(coordinator);
    }
    let secrets = Secrets::new(vault.clone());
    let pseudonyms = PseudonymKey::from_bytes(&[5; 32]);
    let mut fleet = Network::new(InWorld(Rc::clone(world)), task, plan.windows, secrets, pseudonyms, 1);
    let stop = Stop::new();
    while rounds.state().round < plan.rounds {
        let round = rounds.state().round;
        match rounds.round(&mut fleet, &stop, 0) {
            Ok(Round::Done(_)) => check_same(&rounds, plan, round, applied)?,
            Ok(Round::Failed(_)) => world.borrow_mut().story.failed += 1,
            Ok(Round::OutOfBudget(_)) => return Err(Violation("out of budget".into())),
            Err(error) => {
                let blown = world.borrow().fuse.is_blown();
                return if blown { Ok(false) } else { Err(Violation(error.to_string())) };
            }
        }
    }
    Ok(true)
}

/// What was applied once is what the ledger has, for ever.
fn check_same(
    rounds: &Loop<'_, ForgetfulLedger>,
    plan: &Plan,
    round: u64,
    applied: &mut BTreeMap<u64, Vec<u8>>,
) -> Result<(), Violation> {
    let phase = plan.phase(round);
    let Ok(Some(bytes)) = rounds.ledger().released(&phase.stream, round - phase.first) else { return Ok(()) };
    match applied.insert(round, bytes.clone()) {
        Some(before) if before != bytes => Err(Violation(format!("round {round} was released again with another sum"))),
        _ => Ok(()),
    }
}

/// Whether what came of it is what should have.
fn check(
    world: &World,
    setting: &Setting,
    ledger: &ForgetfulLedger,
    signing: SigningKey,
    applied: &BTreeMap<u64, Vec<u8>>,
) -> Result<(), Violation> {
    let plan = &setting.plan;
    let wrong = |why: String| Err(Violation(why));
    let ledger = Ledger::open(ledger.clone(), Some(signing), &[]).map_err(|e| Violation(e.to_string()))?;
    let mut took_part: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for (round, bytes) in applied {
        let phase = plan.phase(*round);
        if ledger.released_in(&phase.stream, round - phase.first).is_none() {
            return wrong(format!("round {round} was used and is not in the ledger"));
        }
        let encoding = world.encoding.as_ref().unwrap();
        let update = Published::parse(bytes).unwrap().update(encoding).unwrap();
        let one = encoding.clip().get();
        let mut ones = 0;
        for (place, value) in update.iter().enumerate() {
            let times = f64::from(*value) / one;
            match times.round() as i64 {
                0 => {}
                1 if place < world.devices.len() => {
                    ones += 1;
                    took_part.entry(place).or_default().push(*round);
                }
                times => return wrong(format!("round {round}: device {place} is in the sum {times} times")),
            }
        }
        if ones != world.faults.goal {
            return wrong(format!(
                "round {round}: the sum is of {ones} reports, and the goal is {}",
                world.faults.goal
            ));
        }
    }
    if applied.len() as u64 != plan.rounds {
        return wrong(format!("{} rounds of {}", applied.len(), plan.rounds));
    }
    for (device, rounds) in &took_part {
        let close = rounds.windows(2).any(|two| two[1] - two[0] <= world.faults.min_separation);
        if close || rounds.len() as u64 > world.faults.max_participations {
            return wrong(format!("device {device} took part in {rounds:?}"));
        }
    }
    for (number, device) in world.devices.iter().enumerate() {
        for (step, attempt) in &device.thanked {
            let failed = ledger.failures(&plan.phase(*step).stream, *step).iter().any(|f| f.attempt == *attempt);
            if !failed && !took_part.get(&number).is_some_and(|rounds| rounds.contains(step)) {
                return wrong(format!("device {number} was thanked for round {step} and is not in its sum"));
            }
        }
    }
    Ok(())
}
