//! A device, a task and a server's words for tests: no network, no clock, and everything that is saved or sent is written down.
#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{cell::RefCell, io::Write, rc::Rc, sync::Arc};

use ed25519_dalek::SigningKey;
use flate2::{Compression, write::GzEncoder};
use keyhush_device::{
    guard::{Guard, Limits, Store, StoreError, Timer, Window},
    learner::told::LearnerTerms,
    local::{Algorithm, LocalPlan},
    protocol::{
        diary::Diary,
        message::{
            Answer, Assignment, Blob, Enrolled, Hello, Later, Realm, Reason, Received, Request, Says, Signed, Thanks,
            Wait, Wants,
        },
        participant::{Do, Event, Note, Now, Participant, Settings, What},
        policy::Policy,
        task::{Text, fresh},
        terms::{PrivacyTerms, StepTerms, TaskTerms},
    },
};
use lm::{kernels::KernelPath, tokenizer::Rules, vocabulary::Vocabulary};
use privacy::{
    Adjacency, ClipNorm, Participation,
    encoding::{Encoding, VectorPlan},
    stages::{ClipBit, ClipRule, Clipping, Encoded},
    units::MinSeparation,
};
use prost::Message;
use secagg::entropy::SimulatedEntropy;
use sha2::{Digest, Sha256};

pub(crate) const REALM: Realm = Realm([0x5e; 32]);
pub(crate) const NO_LIMITS: Limits =
    Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };

/// What was saved and sent, in this order.
pub(crate) type Log = Rc<RefCell<Vec<String>>>;

/// A store that outlives its device, and says when it saves. It fails where `fails` is true.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) name: &'static str,
    pub(crate) bytes: Rc<RefCell<Option<Vec<u8>>>>,
    pub(crate) fails: Rc<RefCell<bool>>,
    pub(crate) log: Log,
}

impl Kept {
    pub(crate) fn new(name: &'static str, log: &Log) -> Self {
        Self { name, bytes: Rc::default(), fails: Rc::default(), log: log.clone() }
    }
}

impl Store for Kept {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.bytes.borrow().clone())
    }

    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if *self.fails.borrow() {
            return Err(StoreError::Failed { doing: "save", place: self.name.into(), problem: "full".into() });
        }
        *self.bytes.borrow_mut() = Some(bytes.to_vec());
        self.log.borrow_mut().push(format!("{} saved", self.name));
        Ok(())
    }
}

/// The bytes of a task: a hundred words, and so many tags of posts.
pub(crate) struct Offered {
    pub(crate) terms: TaskTerms,
    pub(crate) labels: usize,
    pub(crate) step: StepTerms,
}

pub(crate) fn vocabulary() -> Vocabulary {
    Vocabulary::new((0..97).map(|n| format!("w{n}"))).unwrap()
}

pub(crate) fn step_terms(dimension: usize) -> StepTerms {
    let clip = ClipNorm::new(0.5).unwrap();
    let encoding = Encoding::new(VectorPlan::of_update(dimension, 12), clip, None, Adjacency::ZeroOut).unwrap();
    let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::None).unwrap();
    StepTerms { clipping, encoding, learning_rate: 0.5 }
}

impl Offered {
    pub(crate) fn new(labels: usize) -> Self {
        let local = LocalPlan {
            algorithm: Algorithm::FedAvg { epochs: 1 },
            batch: 4,
            unroll: 1,
            most_tokens: Some(100),
            greedy: false,
            update_penalty: 0.0,
            finetune: None,
        };
        let separation = MinSeparation::rounds_between(1).unwrap();
        let terms = TaskTerms {
            name: "tags of posts".into(),
            realm: REALM.0.iter().map(|b| format!("{b:02x}")).collect(),
            learner: LearnerTerms::Tags { labels: (0..labels).map(|n| format!("t{n}")).collect() },
            vocabulary: vocabulary().to_text(),
            rules: Rules::Words1,
            local,
            full_weight_tokens: None,
            rounds: 1000,
            goal: 200,
            participation: Participation::MinSeparation { separation, max_participations: 5 },
            privacy: PrivacyTerms {
                mechanism: "independent noise".into(),
                noise_multiplier: Some(1.0),
                epsilon: Some(2.0),
                delta: Some(1e-6),
                simulated: false,
            },
            secure: false,
            timer_s: None,
            evaluation: None,
            upload: None,
        };
        Self { terms, labels, step: step_terms(101 * labels) }
    }

    pub(crate) fn task(&self) -> Vec<u8> {
        serde_json::to_vec(&self.terms).unwrap()
    }

    /// The model of a step: another one each time.
    pub(crate) fn model(&self, step: u64) -> Vec<u8> {
        (0..101 * self.labels).flat_map(|i| ((i as u64 % 7 + step) as f32 * 1e-3).to_le_bytes()).collect()
    }

    pub(crate) fn assignment(&self, step: u64) -> Assignment {
        Assignment {
            ticket: vec![9; 32],
            task: Some(blob(&self.task())),
            model: Some(blob(&self.model(step))),
            step,
            attempt: 0,
            terms: serde_json::to_vec(&self.step).unwrap(),
            tick_ms: 5000,
            within_ms: 60_000,
            offer: Vec::new(),
        }
    }
}

pub(crate) fn blob(bytes: &[u8]) -> Blob {
    Blob { digest: Sha256::digest(bytes).to_vec(), bytes: bytes.len() as u64 }
}

pub(crate) fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn text() -> Text {
    let mut text = Text::of(["w1 w2 w3", "w4 unknown w5", "w1"]);
    text.posts[0].labels = vec!["t0".into(), "t2".into(), "nobody knows this one".into()];
    text
}

/// A device and its surroundings.
pub(crate) struct Host {
    pub(crate) device: Participant<Kept>,
    pub(crate) now: Now,
    pub(crate) log: Log,
    pub(crate) guard: Kept,
    pub(crate) diary: Kept,
    pub(crate) settings: Settings,
}

impl Host {
    pub(crate) fn new(policy: Policy, seed: u8) -> Self {
        let log = Log::default();
        let settings = Settings::new(SigningKey::from_bytes(&[seed; 32]), b"token".to_vec(), policy, NO_LIMITS);
        let (guard, diary) = (Kept::new("guard", &log), Kept::new("diary", &log));
        drop(Guard::begin(guard.clone()).unwrap());
        log.borrow_mut().clear();
        Self::open(settings, log, guard, diary, seed)
    }

    fn open(settings: Settings, log: Log, guard: Kept, diary: Kept, seed: u8) -> Self {
        let device = Participant::new(
            settings.clone(),
            Guard::open(guard.clone()).unwrap(),
            Diary::open(diary.clone()).unwrap(),
            Box::new(SimulatedEntropy::from_seed(seed.into())),
        );
        Self { device, now: Now { up_ms: 1_000, clock_s: 1_790_000_000 }, log, guard, diary, settings }
    }

    /// The device crashes and starts again, with what was durable.
    pub(crate) fn restarted(self) -> Self {
        let now = self.now;
        let again = Self::open(self.settings, self.log, self.guard, self.diary, 77);
        Self { now, ..again }
    }

    pub(crate) fn next(&mut self) -> Do {
        self.device.next(self.now)
    }

    pub(crate) fn got(&mut self, event: Event<'_>) {
        self.device.got(event, self.now);
    }

    pub(crate) fn answer(&mut self, says: Says) {
        let bytes = Answer::new(says).encode_to_vec();
        self.got(Event::Answer(&bytes));
    }

    /// The time passes until the device wants something.
    pub(crate) fn wake(&mut self) -> Do {
        for _ in 0..100 {
            match self.next() {
                Do::Sleep { until_ms } => {
                    assert!(until_ms >= self.now.up_ms, "it sleeps until a time that has passed");
                    self.now.up_ms = until_ms;
                }
                other => return other,
            }
        }
        panic!("it sleeps for ever");
    }

    /// What it says, signed by itself, for this server.
    pub(crate) fn said(&mut self) -> (Request, Wants) {
        let Do::Say(bytes) = self.wake() else { panic!("it says nothing") };
        let (device, request) = Signed::open(&bytes, &REALM).unwrap();
        assert_eq!(device, self.device.key());
        let wants = request.wants.clone().unwrap();
        (request, wants)
    }

    pub(crate) fn hello(&self) -> Vec<u8> {
        Hello { oldest: 1, newest: 3, realm: REALM.0.to_vec(), time_s: 2_000_000_000 }.encode_to_vec()
    }

    /// Until it checks in.
    pub(crate) fn idle(&mut self) -> &mut Self {
        assert!(matches!(self.wake(), Do::Hello));
        let hello = self.hello();
        self.got(Event::Answer(&hello));
        if let (_, Wants::Enrol(enrol)) = self.said() {
            assert_eq!(enrol.token, b"token");
            self.answer(Says::Enrolled(Enrolled { after_s: 3 }));
        }
        assert!(matches!(self.said().1, Wants::CheckIn(_)));
        self
    }

    /// Gives it what it fetches, and what it wants then.
    pub(crate) fn fetched(&mut self, offered: &Offered, step: u64) -> Do {
        loop {
            match self.wake() {
                Do::Fetch { what, offset, wanted } => {
                    let bytes = if what == What::Task { offered.task() } else { offered.model(step) };
                    assert_eq!(wanted.bytes, bytes.len() as u64);
                    self.got(Event::Piece(&packed(&bytes)[offset as usize..]));
                    self.got(Event::Whole);
                }
                other => return other,
            }
        }
    }

    /// Assigns a step, and waits until it trains.
    pub(crate) fn assigned(&mut self, offered: &Offered, step: u64) -> Box<keyhush_device::protocol::task::Work> {
        self.answer(Says::Assignment(offered.assignment(step)));
        match self.fetched(offered, step) {
            Do::Train(work) => work,
            other => panic!("it does {other:?} instead of training: {:?}", self.device.notes()),
        }
    }

    /// Trains, and gives what came of it.
    pub(crate) fn train(&mut self, work: &keyhush_device::protocol::task::Work) -> Arc<Encoded> {
        let mut worker = work.task.worker(KernelPath::best()).unwrap();
        let drawn = fresh(&mut SimulatedEntropy::from_seed(5)).unwrap();
        let encoded = Arc::new(work.train(&mut worker, &text(), drawn, None).unwrap().0);
        self.got(Event::Trained(Ok(encoded.clone())));
        encoded
    }

    /// The next chunk that leaves.
    pub(crate) fn sent(&mut self) -> (u64, Vec<u8>) {
        let Do::Send { ticket, offset, chunk } = self.wake() else { panic!("it sends nothing") };
        assert_eq!(ticket.0, [9; 32]);
        self.log.borrow_mut().push(format!("sent {offset}"));
        (offset, chunk)
    }

    pub(crate) fn received(&mut self, offset: u64) {
        self.answer(Says::Received(Received { offset }));
    }

    pub(crate) fn thank(&mut self, eligible_from_step: u64) {
        self.answer(Says::Thanks(Thanks { eligible_from_step, after_s: 10 }));
    }

    pub(crate) fn refusals(&mut self) -> Vec<String> {
        let words = |note| if let Note::Refused(words) = note { Some(words) } else { None };
        self.device.notes().into_iter().filter_map(words).collect()
    }
}

pub(crate) fn later(after_s: u64) -> Says {
    Says::Later(Later { after_s })
}

pub(crate) fn wait(after_ms: u32) -> Says {
    Says::Wait(Wait { after_ms })
}

pub(crate) fn refused(reason: Reason, time_s: u64) -> Says {
    let Some(says) = Answer::refused(reason, "why \u{7} not", time_s, 2).says else { unreachable!() };
    says
}
