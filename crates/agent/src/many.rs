//! Simulates thousands of devices in one process that behave like people's phones: they sleep through most of the day, lose their network,
//! are slow, crash and restart, and have wrong clocks.
//!
//! Each is a [`Participant`] of its own, with a guard and a diary in memory that outlive its crashes. What is large is there once for all: models and
//! tasks ([`crate::content`]), the memory for training ([`crate::training`]). Inputs are in memory only of those who are training or
//! sending, and of those there is a most. What a device keeps for later rounds it has for itself: 4 bytes for each parameter, 8 with momentum.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use device::{
    guard::{Guard, Limits, Store, StoreError},
    protocol::{
        diary::Diary,
        participant::{Do, Event, Note, Participant, Settings},
        policy::Policy,
    },
    unsent,
};
use ed25519_dalek::SigningKey;
use secagg::entropy::OsEntropy;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::sleep,
};

use crate::{
    AgentError,
    content::Content,
    eligibility::Always,
    http::Server,
    one::{self, Clocks, Surroundings, act},
    parts::Parts,
    text::{Keep, TextSource, today},
    training::Trainers,
    unsent::UnsentFile,
};

/// The longest that a device sleeps before it looks at its clock again, and whether it has something that is too old.
const LOOK: Duration = Duration::from_secs(60);

/// How devices behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// All are always available, and never fail.
    Steady,
    /// They behave like people's phones.
    Realistic,
}

/// Many devices.
#[derive(Clone)]
pub struct Plan {
    /// Number of devices.
    pub count: u64,
    /// Realistic, or always available.
    pub behaviour: Behaviour,
    /// What their keys and their fates follow from.
    pub seed: u64,
    /// The length of their day, in seconds: waves come and go once in it.
    pub day_s: f64,
    /// Over how many seconds the first check-ins are spread.
    pub spread_s: f64,
    /// Inputs in memory at most.
    pub inputs: usize,
    /// The enrolment token.
    pub token: Vec<u8>,
    /// What their maker says of them.
    pub attestation: Vec<u8>,
    /// The devices' policy.
    pub policy: Policy,
    /// How much each of them gives.
    pub limits: Limits,
    /// How long they let the server think, in milliseconds.
    pub patience_ms: u32,
    /// Whether inputs are kept until they are thanked for; where all share one, that costs nothing.
    pub keep_until_thanked: bool,
    /// What each of them learns from.
    pub text: Arc<dyn Fn(u64) -> Arc<dyn TextSource> + Send + Sync>,
}

/// Totals over all devices.
#[derive(Debug, Default)]
pub struct Tally {
    enrolled: AtomicU64,
    assigned: AtomicU64,
    gave: AtomicU64,
    thanked: AtomicU64,
    refused: AtomicU64,
    refused_by_server: AtomicU64,
    over: AtomicU64,
    broken: AtomicU64,
    crashed: AtomicU64,
    dropped: AtomicU64,
    /// Lines of the list that could not be written.
    unwritten: AtomicU64,
    parts: Option<Parts>,
}

/// The same as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Devices that the server knows.
    pub enrolled: u64,
    /// Parts that began.
    pub assigned: u64,
    /// Inputs that began to leave.
    pub gave: u64,
    /// Inputs that count.
    pub thanked: u64,
    /// Refusals of devices.
    pub refused: u64,
    /// Refusals of the server.
    pub refused_by_server: u64,
    /// Parts whose time was over.
    pub over: u64,
    /// Connections that broke, and answers that were none.
    pub broken: u64,
    /// Devices that crashed and started again.
    pub crashed: u64,
    /// Devices that left during a participation.
    pub dropped: u64,
    /// Lines of the list of parts that could not be written.
    pub unwritten: u64,
}

/// The summary that `keyhush device --synthetic --json` prints at the end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// What happened to the devices.
    #[serde(flatten)]
    pub counted: Counted,
    /// Bytes to the server, as TCP carries them.
    pub bytes_up: u64,
    /// Bytes from the server.
    pub bytes_down: u64,
    /// Seconds in which at least one device trained.
    pub trained_s: f64,
}

impl Tally {
    /// A tally that also keeps a list of who gave what.
    #[must_use]
    pub fn with_parts(parts: Parts) -> Self {
        Self { parts: Some(parts), ..Self::default() }
    }

    /// The list of who gave what, where one is kept.
    #[must_use]
    pub const fn parts(&self) -> Option<&Parts> {
        self.parts.as_ref()
    }

    fn hear(&self, device: u64, note: &Note, trained_s: impl FnOnce() -> f64) {
        if let Some(parts) = &self.parts
            && parts.hear(device, note, trained_s()).is_err()
        {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        let counter = match note {
            Note::Enrolled => &self.enrolled,
            Note::Assigned { .. } => &self.assigned,
            Note::Gave { .. } => &self.gave,
            Note::Thanked { .. } => &self.thanked,
            Note::Refused(_) => &self.refused,
            Note::RefusedByServer { .. } | Note::Unsupported { .. } => &self.refused_by_server,
            Note::TimeOver { .. } => &self.over,
            Note::Broken | Note::Strange(_) => &self.broken,
            Note::Left { .. } => &self.dropped,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The totals so far.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            enrolled: of(&self.enrolled),
            assigned: of(&self.assigned),
            gave: of(&self.gave),
            thanked: of(&self.thanked),
            refused: of(&self.refused),
            refused_by_server: of(&self.refused_by_server),
            over: of(&self.over),
            broken: of(&self.broken),
            crashed: of(&self.crashed),
            dropped: of(&self.dropped),
            unwritten: of(&self.unwritten),
        }
    }
}

/// Runs them until they are told to stop. `tally` can be read meanwhile.
///
/// # Errors
/// When a device cannot be made.
pub async fn run(
    plan: Plan,
    server: Arc<Server>,
    trainers: Arc<Trainers>,
    tally: Arc<Tally>,
    stop: watch::Receiver<bool>,
) -> Result<(), AgentError> {
    let content = Arc::new(Content::new(server.clone(), plan.policy.bounds));
    let room = Arc::new(Semaphore::new(plan.inputs.max(1)));
    let unsent = unsent::Keep { days: Keep::default().days, bytes: plan.policy.bounds.unsent_bytes };
    let plan = Arc::new(plan);
    let mut running = JoinSet::new();
    for number in 0..plan.count {
        let around = Surroundings {
            server: server.clone(),
            trainers: trainers.clone(),
            content: Some(content.clone()),
            text: (plan.text)(number),
            unsent: UnsentFile::open(Nowhere, unsent, today())?,
            eligibility: Arc::new(Always),
            patience: Duration::from_millis(plan.patience_ms.into()),
        };
        let one = One::new(plan.clone(), number, around, tally.clone(), room.clone())?;
        running.spawn(one.live(stop.clone()));
    }
    while running.join_next().await.is_some() {}
    Ok(())
}

/// A store in memory that outlives the device that uses it, as a disk does.
#[derive(Debug, Clone, Default)]
pub struct Disk(Arc<Mutex<Option<Vec<u8>>>>);

impl Store for Disk {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes.to_vec());
        Ok(())
    }
}

/// The key of one of the devices that follow from a seed.
#[must_use]
pub fn key(seed: u64, number: u64) -> SigningKey {
    let parts = [b"keyhush made-up device", &seed.to_le_bytes()[..], &number.to_le_bytes()];
    SigningKey::from_bytes(&Sha256::digest(parts.concat()).into())
}

/// A store of what devices have not sent: they have it in memory, once, and there it outlives their crashes.
#[derive(Debug)]
struct Nowhere;

impl Store for Nowhere {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    fn save(&mut self, _bytes: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The store of one device.
struct One {
    plan: Arc<Plan>,
    number: u64,
    around: Surroundings,
    tally: Arc<Tally>,
    room: Arc<Semaphore>,
    settings: Settings,
    disks: [Disk; 2],
    device: Participant<Disk>,
    nature: Nature,
    clocks: Clocks,
    /// When it last let go of what is too old.
    looked: Option<Instant>,
}

impl One {
    fn new(
        plan: Arc<Plan>,
        number: u64,
        around: Surroundings,
        tally: Arc<Tally>,
        room: Arc<Semaphore>,
    ) -> Result<Self, AgentError> {
        let key = key(plan.seed, number);
        let mut settings = Settings::new(key, plan.token.clone(), plan.policy.clone(), plan.limits);
        settings.attestation.clone_from(&plan.attestation);
        settings.patience_ms = plan.patience_ms;
        settings.keep_until_thanked = plan.keep_until_thanked;
        let disks = [Disk::default(), Disk::default()];
        drop(Guard::begin(disks[0].clone())?);
        let device = started(&settings, &disks)?;
        let nature = Nature::of(plan.behaviour, plan.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let clocks = Clocks::now_on().off_by(nature.clock_off_by_s);
        Ok(Self { plan, number, around, tally, room, settings, disks, device, nature, clocks, looked: None })
    }

    async fn live(mut self, mut stop: watch::Receiver<bool>) {
        let life = async {
            let first = self.nature.chance.uniform() * self.plan.spread_s;
            sleep(Duration::from_secs_f64(first.clamp(0.0, 1e6))).await;
            let mut held = None;
            loop {
                self.moment(&mut held).await;
            }
        };
        // Who was told to stop says nothing more: a check-in whose answer nobody hears would use up a place.
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => {}
            () = life => {}
        }
    }

    /// One thing, and what may happen meanwhile.
    async fn moment(&mut self, held: &mut Option<OwnedSemaphorePermit>) {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.around.let_go_of_old();
        }
        let up_ms = self.clocks.now().up_ms;
        let asleep_ms = self.nature.asleep_ms(up_ms, self.plan.day_s);
        if asleep_ms > 0 {
            self.device.leave(self.clocks.now());
            self.told();
            *held = None;
            return sleep(Duration::from_millis(asleep_ms).min(LOOK)).await;
        }
        let next = one::next(&mut self.device, &self.around, self.clocks, |note| {
            self.tally.hear(self.number, note, || self.around.trainers.busy_s());
        });
        if let Do::Sleep { until_ms } = next {
            self.told();
            if !self.device.holds_input() {
                *held = None;
            }
            let left = until_ms.saturating_sub(self.clocks.now().up_ms);
            return sleep(Duration::from_millis(left).min(LOOK)).await;
        }
        // An input takes memory from here on.
        if matches!(next, Do::Train(_)) && held.is_none() {
            *held = self.room.clone().acquire_owned().await.ok();
            // That may have taken long: perhaps it is not asked to train any more.
            return;
        }
        match self.nature.fate(self.device.is_busy()) {
            Fate::Leaves => self.device.leave(self.clocks.now()),
            Fate::Loses => self.device.got(Event::Unreached, self.clocks.now()),
            Fate::Crashes => {
                self.tally.crashed.fetch_add(1, Ordering::Relaxed);
                // What was on its disks is all that it has.
                if let Ok(device) = started(&self.settings, &self.disks) {
                    self.device = device;
                }
            }
            Fate::Acts => {
                if let Do::Send { chunk, .. } = &next {
                    sleep(self.nature.on_the_way(chunk.len())).await;
                }
                act(&mut self.device, next, &self.around, self.clocks).await;
            }
        }
        self.told();
        // It may wait long to be thanked: others can train meanwhile.
        if !self.device.holds_input() {
            *held = None;
        }
    }

    fn told(&mut self) {
        for note in self.device.notes() {
            self.tally.hear(self.number, &note, || self.around.trainers.busy_s());
        }
    }
}

fn started(settings: &Settings, [guard, diary]: &[Disk; 2]) -> Result<Participant<Disk>, AgentError> {
    let (guard, diary) = (Guard::open(guard.clone())?, Diary::open(diary.clone())?);
    Ok(Participant::new(settings.clone(), guard, diary, Box::new(OsEntropy)))
}

/// What becomes of a device before it does the next thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The device carries out the step.
    Acts,
    /// Its owner takes it up.
    Leaves,
    /// The network is away.
    Loses,
    /// The simulated device crashes before the step.
    Crashes,
}

/// What a device is like, drawn once; and what happens to it, drawn as it goes.
#[derive(Debug)]
struct Nature {
    realistic: bool,
    /// When its day begins, and how much of it the device is free: as shares of a day.
    phase: f64,
    free: f64,
    bytes_per_s: f64,
    clock_off_by_s: i64,
    chance: Chance,
}

impl Nature {
    fn of(behaviour: Behaviour, seed: u64) -> Self {
        let mut chance = Chance(seed);
        let realistic = behaviour == Behaviour::Realistic;
        // Most people of a place sleep at the same time, so free times lie close together.
        let phase = 0.25 * (chance.uniform() + chance.uniform() + chance.uniform() - 1.5);
        let free = 0.15 + 0.35 * chance.uniform();
        // From a fast network to a bad one: 10^5 to 10^7.5 bytes per second.
        let bytes_per_s = 10f64.powf(5.0 + 2.5 * chance.uniform());
        let lies = chance.uniform() < 0.1;
        let off = ((chance.uniform() - 0.5) * 20.0 * 365.0 * 86_400.0) as i64;
        let clock_off_by_s = if realistic && lies { off } else { 0 };
        Self { realistic, phase, free, bytes_per_s, clock_off_by_s, chance }
    }

    /// How long it is in use or has no power yet; 0 where it is free.
    fn asleep_ms(&self, up_ms: u64, day_s: f64) -> u64 {
        if !self.realistic || day_s <= 0.0 {
            return 0;
        }
        let at = (up_ms as f64 / 1000.0 / day_s + self.phase).rem_euclid(1.0);
        if at < self.free { 0 } else { ((1.0 - at) * day_s * 1000.0) as u64 + 1 }
    }

    fn fate(&mut self, is_busy: bool) -> Fate {
        if !self.realistic {
            return Fate::Acts;
        }
        match self.chance.uniform() {
            drawn if drawn < 0.01 => Fate::Crashes,
            drawn if drawn < 0.03 => Fate::Loses,
            drawn if drawn < 0.05 && is_busy => Fate::Leaves,
            _ => Fate::Acts,
        }
    }

    fn on_the_way(&self, bytes: usize) -> Duration {
        if self.realistic { Duration::from_secs_f64(bytes as f64 / self.bytes_per_s) } else { Duration::ZERO }
    }
}

/// Numbers that follow from a seed (SplitMix64): fates repeat, and hide nothing.
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
