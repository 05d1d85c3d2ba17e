//! The fleet of real devices without a network: each is a `Participant` with a key, a guard and text of its own, which trains and is told
//! what to do by a real coordinator. Time is a number. Nothing is lost and nobody vanishes; what faults do is tested in `world`.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    rc::Rc,
    sync::Arc,
};

use device::{
    guard::{Guard, Limits, MemoryStore, TaskDigest, Timer, Window},
    protocol::{
        diary::Diary,
        message::{Answer, Hello, Realm, Received, Says, Signed, Ticket, VERSION},
        participant::{Do, Event, Note, Now, Participant, Settings},
        policy::Policy,
        task::{Text, Work, fresh},
    },
    round::Worker,
    unsent::{Keep, Unsent},
    upload::Rest,
};
use ed25519_dalek::SigningKey;
use keyhush_federated::{
    config::Document,
    contract::Lives,
    fleet::{
        FleetError, Stop,
        network::{Driver, Network, NetworkTask, Reads},
    },
    plan::Plan,
    protocol::{
        admission::Anybody,
        coordinator::{Coordinator, CoordinatorError, Report},
        pace::Pace,
        store::{MemoryStore as Kept, Store},
    },
    run::Opened,
    secrets::Secrets,
};
use ledger::PseudonymKey;
use lm::kernels::KernelPath;
use privacy::stages::Encoded;
use prost::Message as _;
use secagg::entropy::Entropy;

use crate::{
    chance::Chance,
    memory_home::MemoryVault,
    small_runs::{self, TASK},
};

/// How many devices there are.
const DEVICES: u64 = 120;
const REALM: Realm = Realm([3; 32]);
/// The coordinator looks at its clock so often, in milliseconds.
const TICK_MS: u64 = 100;
/// More happens in no attempt.
const MOST_EVENTS: u64 = 100_000;

/// A task that waits for all devices before it begins; each may come again three rounds later.
const CHANGES: [&str; 10] = [
    "participation.population=120",
    "participation.cohort=20",
    "participation.min_separation=2",
    "privacy.mechanism=none",
    "privacy.noise_multiplier=",
    "privacy.delta=",
    "devices.select_seconds=5",
    "devices.report_seconds=60",
    "devices.tick_seconds=1",
    "devices.begin_with=120",
];

/// The plan of the task.
pub(crate) fn plan(set: &[&str]) -> (Plan, Opened) {
    let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
    let config = Document::new(&small_runs::with(TASK, &CHANGES), &set).unwrap().config().unwrap();
    let opened = Opened::new(&config).unwrap();
    let plan = Plan::new(config, &opened.setting()).unwrap();
    (plan, opened)
}

/// An input that was let go.
#[derive(Clone)]
pub(crate) struct Gave {
    pub(crate) device: usize,
    pub(crate) step: u64,
    /// The randomness it was made with, and what it was made of.
    pub(crate) chance: Chance,
    pub(crate) text: Text,
    pub(crate) values: Vec<i32>,
    /// What is kept since.
    pub(crate) rest: Option<Rest>,
    /// Whether it is in the sum.
    pub(crate) counts: bool,
}

/// The inputs that were let go, in this order.
pub(crate) type Given = Rc<RefCell<Vec<Gave>>>;

/// The lives of a server, with devices that nobody has heard of yet.
pub(crate) fn lives<'a>(plan: &'a Plan, opened: &'a Opened) -> Lives<'a> {
    lives_that_give(plan, opened, &Given::default())
}

/// The same, and what they give is written down.
pub(crate) fn lives_that_give<'a>(plan: &'a Plan, opened: &'a Opened, given: &Given) -> Lives<'a> {
    let reads = Reads { learner: opened.learner(), vocabulary: opened.vocabulary(), rules: opened.rules() };
    let task = NetworkTask::new("tags", &REALM.0, plan, reads).unwrap();
    let here = Rc::new(RefCell::new(Here::new(opened, given)));
    let secrets = Secrets::new(Arc::new(MemoryVault::default()));
    Box::new(move || {
        here.borrow_mut().starts(&task);
        let pseudonyms = PseudonymKey::from_bytes(&[5; 32]);
        let driver = InProcess(Rc::clone(&here));
        Box::new(Network::new(driver, task.clone(), plan.windows, secrets.clone(), pseudonyms, 1))
    })
}

/// Everybody in one place.
struct Here {
    now: u64,
    /// When the coordinator looks at its clock next.
    ticks_at: u64,
    devices: Vec<Device>,
    store: Arc<Kept>,
    coordinator: Option<Coordinator>,
    /// When each device goes on that waits for nobody.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    /// Who waits for an answer.
    waits: BTreeSet<usize>,
    /// Whose whole report has come, and is not answered yet.
    reported: BTreeSet<usize>,
    /// What has come of reports that are not whole.
    arrived: BTreeMap<[u8; 32], Vec<u8>>,
    events: u64,
    chance: Chance,
    given: Given,
}

struct Device {
    participant: Participant<MemoryStore>,
    text: Text,
    worker: Option<Worker>,
    unsent: Unsent<MemoryStore>,
    chance: Chance,
    /// What it trained last.
    trained: Option<Gave>,
}

impl Here {
    fn new(opened: &Opened, given: &Given) -> Self {
        let devices: Vec<Device> = (0..DEVICES).map(|number| Device::new(number, opened)).collect();
        let mut chance = Chance::new(1);
        let queue = (0..devices.len()).map(|number| Reverse((1_000_000 + chance.below(2_000), number))).collect();
        Self {
            now: 1_000_000,
            ticks_at: 1_000_000,
            devices,
            store: Arc::new(Kept::new(REALM.0)),
            coordinator: None,
            queue,
            waits: BTreeSet::new(),
            reported: BTreeSet::new(),
            arrived: BTreeMap::new(),
            events: 0,
            chance,
            given: Rc::clone(given),
        }
    }

    /// A server begins, from what the one before it left. Whoever waited there notices that it is gone.
    fn starts(&mut self, task: &NetworkTask) {
        self.arrived.clear();
        for number in std::mem::take(&mut self.waits) {
            self.tells(number, Event::Broken);
        }
        let seed = self.chance.next();
        let mut coordinator = Coordinator::new(self.store.clone(), Box::new(Anybody), Pace::default(), seed).unwrap();
        coordinator.add_task(task.digest, task.asking, None).unwrap();
        (self.coordinator, self.events) = (Some(coordinator), 0);
    }

    /// Something happens: a device goes on, or the clock of the coordinator.
    fn goes_on(&mut self) -> Result<(), CoordinatorError> {
        self.events += 1;
        if self.events >= MOST_EVENTS {
            let (now, waits) = (self.now, self.waits.len());
            let notes: Vec<_> = self.devices.iter_mut().map(|device| device.participant.notes()).collect();
            panic!("it does not come to an end: at {now} ms {waits} devices wait; {notes:?}");
        }
        match self.queue.peek().copied() {
            Some(Reverse((at, number))) if at < self.ticks_at => {
                self.queue.pop();
                self.now = self.now.max(at);
                self.acts(number)?;
            }
            // However much devices have to say, the clock goes on.
            _ => {
                self.now = self.now.max(self.ticks_at);
                self.ticks_at = self.now + TICK_MS;
                self.coordinator.as_mut().unwrap().tick(self.now)?;
            }
        }
        self.answers()
    }

    fn tells(&mut self, number: usize, event: Event<'_>) {
        self.devices[number].participant.got(event, clock(self.now));
        self.queue.push(Reverse((self.now, number)));
    }

    fn answers(&mut self) -> Result<(), CoordinatorError> {
        for (request, answer) in self.coordinator.as_mut().unwrap().flush()? {
            let number = request as usize;
            assert!(self.waits.remove(&number), "an answer to nothing");
            if self.reported.remove(&number) && matches!(answer.says, Some(Says::Received(_))) {
                let mut given = self.given.borrow_mut();
                given.iter_mut().rfind(|gave| gave.device == number).unwrap().counts = true;
            }
            self.tells(number, Event::Answer(&answer.encode_to_vec()));
        }
        Ok(())
    }

    /// A device does what it wants to do next.
    fn acts(&mut self, number: usize) -> Result<(), CoordinatorError> {
        let now = self.now;
        let next = self.devices[number].participant.next(clock(now));
        let notes = self.devices[number].participant.notes();
        notes.iter().for_each(|note| self.hears(number, note));
        let coordinator = self.coordinator.as_mut().unwrap();
        match next {
            Do::Sleep { until_ms } => self.queue.push(Reverse((until_ms.max(now + 1), number))),
            Do::Hello => {
                let hello = Hello { oldest: VERSION, newest: VERSION, realm: REALM.0.to_vec(), time_s: now / 1000 };
                self.tells(number, Event::Answer(&hello.encode_to_vec()));
            }
            Do::Say(bytes) => {
                let (key, request) = Signed::open(&bytes, &REALM).unwrap();
                self.waits.insert(number);
                coordinator.said(number as u64, key, &request.wants.unwrap(), now)?;
            }
            Do::Fetch { wanted, offset, .. } => {
                // What an attempt of before had may be gone.
                let Some(packed) = self.store.blob(&wanted.digest).unwrap() else {
                    self.tells(number, Event::Broken);
                    return Ok(());
                };
                self.devices[number].participant.got(Event::Piece(&packed[offset as usize..]), clock(now));
                self.tells(number, Event::Whole);
            }
            Do::Train(work) => {
                let trained = self.devices[number].train(number, &work);
                self.tells(number, Event::Trained(Ok(Arc::new(trained))));
            }
            Do::Send { ticket, offset, chunk } => self.arrives(number, ticket, offset, &chunk)?,
        }
        Ok(())
    }

    fn hears(&mut self, number: usize, note: &Note) {
        let device = &mut self.devices[number];
        if let Note::Gave { step, .. } = note {
            device.unsent.left(*step, 1).unwrap();
            self.given.borrow_mut().extend(device.trained.take());
        }
    }

    /// A chunk of a report arrives; with the last one the report does.
    fn arrives(&mut self, number: usize, ticket: Ticket, offset: u64, chunk: &[u8]) -> Result<(), CoordinatorError> {
        let (now, coordinator) = (self.now, self.coordinator.as_mut().unwrap());
        let expected = match coordinator.begins(&ticket, now) {
            Ok(expected) => expected,
            Err(answer) => {
                self.tells(number, Event::Answer(&answer.encode_to_vec()));
                return Ok(());
            }
        };
        let arrived = self.arrived.entry(ticket.0).or_default();
        assert_eq!(arrived.len() as u64, offset, "chunks come one after the other");
        arrived.extend_from_slice(chunk);
        if arrived.len() < expected.bytes {
            let received = Answer::new(Says::Received(Received { offset: arrived.len() as u64 }));
            self.tells(number, Event::Answer(&received.encode_to_vec()));
            return Ok(());
        }
        let bytes = self.arrived.remove(&ticket.0).unwrap();
        let report = match &expected.encoding {
            Some(encoding) => Report::Plain(Encoded::check(&bytes, encoding).unwrap()),
            None => Report::Masked(bytes),
        };
        self.waits.insert(number);
        self.reported.insert(number);
        coordinator.report(number as u64, &ticket, &report, now)
    }
}

impl Device {
    fn new(number: u64, opened: &Opened) -> Self {
        let mut secret = [1; 32];
        secret[..8].copy_from_slice(&number.to_le_bytes());
        let limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };
        let settings = Settings::new(SigningKey::from_bytes(&secret), Vec::new(), Policy::for_made_up_people(), limits);
        let guard = Guard::begin(MemoryStore::default()).unwrap();
        let diary = Diary::open(MemoryStore::default()).unwrap();
        let participant = Participant::new(settings, guard, diary, Box::new(Chance::new(number)));
        // Somebody who repeats a few words.
        let words: Vec<&str> = opened.vocabulary().words().collect();
        let post = (0..6).map(|at| words[(7 * number as usize + at) % words.len()]).collect::<Vec<&str>>().join(" ");
        let text = Text::of([post]);
        let unsent = Unsent::open(MemoryStore::default(), Keep::default(), 1).unwrap();
        Self { participant, text, worker: None, unsent, chance: Chance::new(!number), trained: None }
    }

    fn train(&mut self, device: usize, work: &Work) -> Encoded {
        let worker = self.worker.get_or_insert_with(|| work.task.worker(KernelPath::Scalar).unwrap());
        let before = self.unsent.of(&work.asked.task, work.model.parameters().len()).cloned();
        let (chance, text) = (self.chance.clone(), self.text.clone());
        let (encoded, rest) = work.train(worker, &text, fresh(&mut self.chance).unwrap(), before.as_deref()).unwrap();
        self.unsent.learned(work.asked, rest.clone());
        let (step, values) = (work.asked.step, encoded.values().to_vec());
        self.trained = Some(Gave { device, step, chance, text, values, rest, counts: false });
        encoded
    }
}

const fn clock(up_ms: u64) -> Now {
    Now { up_ms, clock_s: up_ms / 1000 }
}

/// How the fleet reaches the coordinator.
struct InProcess(Rc<RefCell<Here>>);

impl Driver for InProcess {
    fn with<R: Send>(
        &mut self,
        act: impl FnOnce(&mut Coordinator, u64) -> Result<R, CoordinatorError> + Send,
    ) -> Result<R, FleetError> {
        let mut here = self.0.borrow_mut();
        let now = here.now;
        let done = act(here.coordinator.as_mut().unwrap(), now)?;
        here.answers()?;
        Ok(done)
    }

    fn wait(&mut self, _task: &TaskDigest, _stop: &Stop) -> Result<(), FleetError> {
        Ok(self.0.borrow_mut().goes_on()?)
    }

    fn coins(&mut self) -> Box<dyn Entropy + Send> {
        Box::new(self.0.borrow_mut().chance.fork())
    }
}
