//! A real device of the schedules: the machine of `device::protocol`, with its key, its guard and its diary, over the world's network.
//! Its clock may be years off; it forgets everything in a crash but what its disks have. Only training is not done: what comes of it is a
//! one in the device's own place.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use device::{
    guard::{Guard, Limits, Now, Store, StoreError, Timer, Window},
    protocol::{
        blob::{Download, Wanted},
        diary::Diary,
        message::{Answer, CLOCKS_APART_S, DeviceKey, Hello, Realm, Reason, Request, Signed, VERSION},
        participant::{Do, Event as Came, Note, Participant, Settings, What},
        policy::Policy,
        task::{Bounds, Model, Task, Work},
        terms::Purpose,
    },
};
use ed25519_dalek::SigningKey;
use keyhush_federated::protocol::coordinator::{Coordinator, CoordinatorError, Expected, Report};
use privacy::stages::Encoded;
use prost::Message;

use super::{Chance, Device, Said, World, evaluations::Of, one_hot};

/// Which server the world has.
const REALM: Realm = Realm([9; 32]);
/// How long a device lets the server think, and how long it waits for an answer beyond that, in milliseconds.
const PATIENCE_MS: u32 = 10_000;
const BEYOND_MS: u64 = 60_000;

/// A disk: it outlives the device's crashes.
#[derive(Clone, Default)]
pub(super) struct Disk(Rc<RefCell<Option<Vec<u8>>>>);

impl Store for Disk {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.borrow().clone())
    }

    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        *self.0.borrow_mut() = Some(bytes.to_vec());
        Ok(())
    }
}

/// What a device has read: there once for all of them.
#[derive(Clone)]
pub(super) enum Read {
    Task(Arc<Task>),
    Model(Arc<Model>),
}

/// What it waits for.
enum Waits {
    Nothing,
    Answer,
    Training(Box<Work>),
}

/// A real device.
pub(super) struct Real {
    settings: Settings,
    /// Guard and diary.
    disks: [Disk; 2],
    machine: Participant<Disk>,
    waits: Waits,
    /// How far its clock is from the true time, in seconds.
    off_by_s: i64,
}

impl Real {
    /// One of the world's devices as a real one.
    pub(super) fn device(number: u64, device: Device, chance: &mut Chance) -> Device {
        let seed = [&number.to_be_bytes()[..], &[7; 24]].concat();
        let key = SigningKey::from_bytes(&seed.try_into().unwrap());
        let limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };
        let name = DeviceKey(key.verifying_key().to_bytes());
        let mut settings = Settings::new(key, Vec::new(), Policy::for_made_up_people(), limits);
        settings.patience_ms = PATIENCE_MS;
        let disks = [Disk::default(), Disk::default()];
        drop(Guard::begin(disks[0].clone()).unwrap());
        let machine = started(&settings, &disks, chance);
        let off_by_s = if chance.is(0.1) { chance.below(1 << 29) as i64 - (1 << 28) } else { 0 };
        let real = Self { settings, disks, machine, waits: Waits::Nothing, off_by_s };
        Device { key: name, real: Some(Box::new(real)), ..device }
    }

    /// Whether it trains.
    pub(super) const fn is_training(&self) -> bool {
        matches!(self.waits, Waits::Training(_))
    }

    fn now(&self, now: u64) -> Now {
        // Beginning in 2026: a clock that is years behind is still after 1970.
        Now { up_ms: now, clock_s: (1_790_000_000 + now / 1000).saturating_add_signed(self.off_by_s) }
    }
}

fn started(settings: &Settings, [guard, diary]: &[Disk; 2], chance: &mut Chance) -> Participant<Disk> {
    let (guard, diary) = (Guard::open(guard.clone()).unwrap(), Diary::open(diary.clone()).unwrap());
    Participant::new(settings.clone(), guard, diary, Box::new(chance.fork()))
}

/// The report that a chunk is: these are so short that one is all of it.
pub(super) fn report(expected: &Expected, offset: u64, bytes: &[u8]) -> Report {
    assert_eq!((offset, bytes.len()), (0, expected.bytes), "a report of another length");
    match &expected.encoding {
        Some(encoding) => Report::Plain(Encoded::check(bytes, encoding).unwrap()),
        None => Report::Masked(bytes.to_vec()),
    }
}

impl World {
    fn real(&mut self, device: usize) -> (&mut Real, Now) {
        let real = self.devices[device].real.as_deref_mut().unwrap();
        let now = real.now(self.now);
        (real, now)
    }

    /// Something came, or did not.
    fn got(&mut self, device: usize, came: Came<'_>) {
        let (real, now) = self.real(device);
        real.waits = Waits::Nothing;
        real.machine.got(came, now);
        self.goes_on_with(device);
    }

    /// It was woken: its training is done, its patience is over, or it has slept enough.
    pub(super) fn real_acts(&mut self, device: usize) {
        if self.chance.is(self.faults.device_crashes) {
            return self.crashes(device);
        }
        let (real, _) = self.real(device);
        match std::mem::replace(&mut real.waits, Waits::Nothing) {
            Waits::Nothing => self.goes_on_with(device),
            Waits::Answer => {
                // An answer that comes later comes on a connection that is closed.
                self.devices[device].asked += 1;
                self.got(device, Came::Broken);
            }
            Waits::Training(work) => {
                let input = Arc::new(one_hot(device, &work.step.encoding));
                self.got(device, Came::Trained(Ok(input)));
            }
        }
    }

    pub(super) fn real_hears(&mut self, device: usize, answer: &Answer) {
        self.got(device, Came::Answer(&answer.encode_to_vec()));
    }

    pub(super) fn is_greeted(&mut self, device: usize, time_s: u64) {
        let hello = Hello { oldest: VERSION, newest: VERSION, realm: REALM.0.to_vec(), time_s };
        self.got(device, Came::Answer(&hello.encode_to_vec()));
    }

    /// Nobody is there. A device that is none waits for its answer all the same.
    pub(super) fn reaches_nobody(&mut self, device: usize) {
        if self.devices[device].real.is_some() {
            self.got(device, Came::Unreached);
        }
    }

    /// What it worked on is gone; what is on its disks is there.
    fn crashes(&mut self, device: usize) {
        let mut chance = self.chance.fork();
        let boots = 1_000 + chance.below(10_000);
        let (real, _) = self.real(device);
        real.machine = started(&real.settings, &real.disks, &mut chance);
        real.waits = Waits::Nothing;
        // Nobody hears the answer that it waited for.
        self.devices[device].asked += 1;
        self.wake(device, boots);
    }

    /// Does what the machine wants until it has to wait for something.
    fn goes_on_with(&mut self, device: usize) {
        loop {
            let (real, now) = self.real(device);
            let next = real.machine.next(now);
            let notes = real.machine.notes();
            notes.iter().for_each(|note| self.notes(device, note));
            let (said, beyond_ms) = match next {
                Do::Sleep { until_ms } => return self.wake(device, until_ms.saturating_sub(self.now).max(1)),
                Do::Fetch { what, wanted, .. } => {
                    self.fetches(device, what, wanted);
                    continue;
                }
                Do::Train(work) => {
                    if !self.chance.is(self.faults.vanish) {
                        self.real(device).0.waits = Waits::Training(work);
                        let trains = 500 + self.chance.below(9_000);
                        return self.wake(device, trains);
                    }
                    // Its owner takes it up.
                    let (real, now) = self.real(device);
                    real.machine.leave(now);
                    continue;
                }
                Do::Hello => (Said::Hello, BEYOND_MS),
                Do::Say(bytes) => (Said::Signed(bytes.into()), u64::from(PATIENCE_MS) + BEYOND_MS),
                Do::Send { ticket, offset, chunk } => (Said::Chunk(ticket, offset, chunk.into()), BEYOND_MS),
            };
            self.real(device).0.waits = Waits::Answer;
            // A connection that breaks is noticed sooner than one on which nothing comes.
            let waits = if self.chance.is(0.5) { 5_000 + u64::from(PATIENCE_MS) } else { beyond_ms };
            return self.says(device, said, waits);
        }
    }

    /// What happened to it is what must be so: an input leaves once for a step (rule P24).
    fn notes(&mut self, device: usize, note: &Note) {
        let of = |step: u64, purpose: Purpose| Of { evaluation: purpose == Purpose::Evaluation, step };
        match note {
            Note::Gave { step, purpose } => {
                self.story.gave += 1;
                if !self.devices[device].given.insert(of(*step, *purpose)) {
                    self.wrong(format!("device {device} gave two inputs for {purpose:?} {step}"));
                }
            }
            Note::Thanked { step, purpose, .. } => {
                self.story.thanked += 1;
                let attempt = self.devices[device].assignment.as_ref().unwrap().attempt;
                self.devices[device].thanked.insert((of(*step, *purpose), attempt));
            }
            // What these servers ask for is within what these devices allow.
            Note::Strange(what) => self.wrong(format!("device {device} finds its server strange: {what}")),
            _ => {}
        }
    }

    fn fetches(&mut self, device: usize, what: What, wanted: Wanted) {
        if !self.read.contains_key(&wanted.digest)
            && let Some(packed) = self.store.blob(&wanted.digest)
        {
            let mut download = Download::new(wanted);
            download.take(&packed).unwrap();
            let bytes = download.finish().unwrap();
            let read = match what {
                What::Task => Read::Task(Arc::new(Task::read(&bytes, &Bounds::default()).unwrap())),
                What::Model => Read::Model(Arc::new(Model::read(&bytes).unwrap())),
            };
            self.read.insert(wanted.digest, read);
        }
        let came = match self.read.get(&wanted.digest).cloned() {
            Some(Read::Task(task)) => Came::Task(task),
            Some(Read::Model(model)) => Came::Model(model),
            None => Came::Broken,
        };
        let (real, now) = self.real(device);
        real.machine.got(came, now);
    }

    /// A server is told what a device signed: as its routes do, before the coordinator hears of it.
    pub(super) fn tells_signed(
        &mut self,
        server: &mut Coordinator,
        request: u64,
        bytes: &[u8],
    ) -> Result<(), CoordinatorError> {
        let (device, said) = opened(request, bytes);
        let time_s = self.now / 1000;
        if time_s.abs_diff(said.time_s) > CLOCKS_APART_S {
            let refused = Answer::refused(Reason::Clock, "the clocks of device and server differ too much", time_s, 0);
            self.deliver(vec![(request, refused)]);
            return Ok(());
        }
        let wants = said.wants.unwrap();
        if let Some((_, ticket)) = self.requests.get_mut(&request) {
            *ticket = Said::Wants(wants.clone()).ticket();
        }
        server.said(request, device, &wants, self.now)
    }
}

/// Who says what. Signatures have tests of their own, and checking them took half of the time of all schedules: of 16 messages one is checked.
fn opened(request: u64, bytes: &[u8]) -> (DeviceKey, Request) {
    if request.is_multiple_of(16) {
        return Signed::open(bytes, &REALM).unwrap();
    }
    let signed = Signed::decode(bytes).unwrap();
    (DeviceKey(signed.device.try_into().unwrap()), Request::decode(&signed.body[..]).unwrap())
}
