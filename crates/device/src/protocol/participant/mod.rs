//! A device as a state machine without IO: it says what to do next, and is told the outcome.
//!
//! ```text
//! Unmet --Hello--> Stranger --Enrolled--> Idle --Assignment--> Part
//!                                           ^                    |  task, model, policy, guard
//!                                           |  plain:   train, permit, wait for the tick, upload, ask
//!                                           |  secure:  keys, shares, delivery, then the same, then unmask
//!                                           +---- Thanks, Refused, time over, or a reason of its own
//! ```
//!
//! [`Participant::next`] says what to do; it can be asked again and says the same until [`Participant::got`] tells it what came. The
//! host has the network, the clock, the text and the processors:
//!
//! | it says          | the host does                                             | and tells                                    |
//! |------------------|-----------------------------------------------------------|----------------------------------------------|
//! | [`Do::Hello`]    | `GET /v1/hello`                                           | [`Event::Answer`]                            |
//! | [`Do::Say`]      | `POST /v1/say`                                            | [`Event::Answer`]                            |
//! | [`Do::Fetch`]    | `GET /v1/blob/DIGEST`, from an offset on                  | [`Event::Piece`] ..., [`Event::Whole`]; or [`Event::Task`], [`Event::Model`] that it has |
//! | [`Do::Train`]    | [`Work::train`](super::task::Work::train) with the text; [`Work::measure`](super::task::Work::measure) in an evaluation | [`Event::Trained`] |
//! | [`Do::Send`]     | `PUT /v1/report/TICKET/OFFSET`                            | [`Event::Answer`]                            |
//! | [`Do::Sleep`]    | nothing until then                                        |                                              |
//!
//! Anything that goes wrong on the way is [`Event::Broken`]; where nobody is there at all, [`Event::Unreached`]. What is durable is in the
//! guard and the diary alone: after a crash a device is idle, and a part that it had is over. An input leaves after [`Guard::allow`] has returned and never before (rule P24); a
//! device that refuses says so in its diary and to nobody else. [`Note::Gave`] is there before the first byte leaves: a host that has something to
//! keep before that, such as which text was used, keeps it then and asks for [`Participant::next`] again, or says [`Event::Withheld`]. The input leaves at
//! the first tick after that, so that nobody sees how long it took (rule P26).
//! Text that a model was only measured on is not used up: it is still to be learned from.

mod assigned;
mod input;
mod pace;
mod part;

use std::{fmt, sync::Arc};

use ed25519_dalek::SigningKey;
use privacy::stages::Encoded;
use prost::Message;
use secagg::{
    directory::{Admission, Everybody},
    entropy::Entropy,
};

pub use self::assigned::NotTaken;
use self::{
    assigned::Assigned,
    pace::{Backoff, ServerClock, around, jittered},
    part::Part,
};
use super::{
    blob::Wanted,
    diary::{Diary, plain},
    message::{
        Answer, CheckIn, DeviceKey, Enrol, Hello, MOST_BYTES, Realm, Reason, Refused, Request, Says, Ticket, VERSION,
        Wants,
    },
    policy::Policy,
    task::{Model, Task, Work},
    terms::Purpose,
};
pub use crate::guard::Now;
use crate::guard::{Guard, Limits, Store, TaskDigest};

/// The longest that a device stays away because a server said so.
const MOST_AWAY_S: u64 = 24 * 60 * 60;
/// The longest wait between two tries to reach a server.
const MOST_BACKOFF_MS: u64 = 10 * 60 * 1000;
/// How long a device stays away after it refused a task, which will not be another one soon.
const AWAY_FROM_TASK_MS: u64 = 6 * 60 * 60 * 1000;
/// How long it stays away after it refused a step.
const AWAY_FROM_STEP_MS: u64 = 15 * 60 * 1000;
/// How long it stays away from a server that does not want it, or speaks another language.
const AWAY_FROM_SERVER_MS: u64 = 12 * 60 * 60 * 1000;
/// Times that a clock is set by a server before that counts as a failure.
const CLOCK_TRIES: u32 = 3;
/// Tasks that are named when a device checks in and rests from some.
const MOST_RESTING: usize = 256;
/// Notes that are kept for a host that does not read them.
const MOST_NOTES: usize = 64;

/// A device's identity and policy.
#[derive(Clone)]
pub struct Settings {
    /// Its key.
    pub key: SigningKey,
    /// The enrolment token.
    pub token: Vec<u8>,
    /// What its maker says of it.
    pub attestation: Vec<u8>,
    /// The one server that it speaks to; whichever answers by default.
    pub realm: Option<Realm>,
    /// The device's policy.
    pub policy: Policy,
    /// How much it gives, over all tasks.
    pub limits: Limits,
    /// How long it lets a server think, in milliseconds.
    pub patience_ms: u32,
    /// Whether it keeps its input until it is thanked, so that a server that lost it in a crash can ask for it again. Where many devices
    /// share a machine's memory, it goes when all of it has arrived.
    pub keep_until_thanked: bool,
    /// Whom it believes to be devices, in secure aggregation.
    pub admission: Arc<dyn Admission + Send + Sync>,
}

impl Settings {
    /// A device with this key, which believes the server on who the others are.
    #[must_use]
    pub fn new(key: SigningKey, token: Vec<u8>, policy: Policy, limits: Limits) -> Self {
        Self {
            key,
            token,
            attestation: Vec::new(),
            realm: None,
            policy,
            limits,
            patience_ms: 20_000,
            keep_until_thanked: true,
            admission: Arc::new(Everybody),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("policy", &self.policy).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The kind of blob to download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A task.
    Task,
    /// A model.
    Model,
}

/// An action for the host.
#[derive(Debug)]
pub enum Do {
    /// Ask the server who it is.
    Hello,
    /// Say something: the bytes of a signed request.
    Say(Vec<u8>),
    /// Get bytes that never change.
    Fetch {
        /// The kind of blob.
        what: What,
        /// The object to fetch.
        wanted: Wanted,
        /// From where on, in packed bytes.
        offset: u64,
    },
    /// Train.
    Train(Box<Work>),
    /// Send a chunk of a report.
    Send {
        /// The ticket of the assignment.
        ticket: Ticket,
        /// The offset of its first byte.
        offset: u64,
        /// The bytes of the chunk.
        chunk: Vec<u8>,
    },
    /// Sleep until the given time.
    Sleep {
        /// On the clock that never goes back.
        until_ms: u64,
    },
}

/// The outcome of an action.
#[derive(Debug)]
pub enum Event<'a> {
    /// The bytes of an answer.
    Answer(&'a [u8]),
    /// The next packed bytes of what was fetched.
    Piece(&'a [u8]),
    /// The blob is complete.
    Whole,
    /// A task that the host has, read within the bounds of this device.
    Task(Arc<Task>),
    /// A model that the host has.
    Model(Arc<Model>),
    /// What training came to, or why it failed.
    Trained(Result<Arc<Encoded>, String>),
    /// The answer broke off, or did not come.
    Broken,
    /// The server cannot be reached: nothing was said to anybody.
    Unreached,
    /// The host does not let the input leave, and why. Before the first byte, or not at all.
    Withheld(String),
}

/// An event for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The server knows the device.
    Enrolled,
    /// It was given a task.
    Assigned {
        /// The step.
        step: u64,
    },
    /// Its input is about to leave, at the next tick, and counts.
    Gave {
        /// The step.
        step: u64,
        /// Training or evaluation.
        purpose: Purpose,
    },
    /// Its report counts.
    Thanked {
        /// The step.
        step: u64,
        /// It is not needed before this one.
        eligible_from: u64,
        /// Training or evaluation.
        purpose: Purpose,
    },
    /// The device refused.
    Refused(String),
    /// The server refused.
    RefusedByServer {
        /// Why, as a number.
        reason: Reason,
        /// Why, in words.
        words: String,
    },
    /// The time for a part was over.
    TimeOver {
        /// The step.
        step: u64,
    },
    /// The host took it away.
    Left {
        /// The step.
        step: u64,
    },
    /// The request got no answer.
    Broken,
    /// An answer that is none to what was said.
    Strange(&'static str),
    /// The server speaks other versions.
    Unsupported {
        /// The oldest.
        oldest: u32,
        /// The newest.
        newest: u32,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enrolled => f.write_str("enrolled"),
            Self::Assigned { step } => write!(f, "asked to take part in step {step}"),
            Self::Gave { step, purpose } => write!(f, "sending a report for {} {step}", word(*purpose)),
            Self::Thanked { step, eligible_from, purpose } => {
                let word = word(*purpose);
                write!(
                    f,
                    "the report for {word} {step} was counted; this device is not needed before {word} {eligible_from}"
                )
            }
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::RefusedByServer { words, .. } => write!(f, "the server refused: {words}"),
            Self::TimeOver { step } => write!(f, "the time for step {step} is over"),
            Self::Left { step } => write!(f, "left step {step}: the device is no longer available"),
            Self::Broken => f.write_str("no answer from the server; retrying later"),
            Self::Strange(what) => write!(f, "unexpected answer from the server: {what}"),
            Self::Unsupported { .. } => {
                f.write_str("the server uses another version of the protocol; update this program")
            }
        }
    }
}

/// What steps of a task are called.
const fn word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Training => "step",
        Purpose::Evaluation => "evaluation",
    }
}

/// A device.
pub struct Participant<S> {
    settings: Settings,
    guard: Guard<S>,
    diary: Diary<S>,
    entropy: Box<dyn Entropy + Send>,
    realm: Realm,
    clock: Option<ServerClock>,
    clock_tries: u32,
    /// How many requests it has made.
    said: u64,
    backoff: Backoff,
    /// How long the server told it to stay away last; 0 where it was told nothing, or was with the server when that was lost.
    told_ms: u64,
    /// Nothing is done before.
    until_ms: u64,
    state: State,
    /// The task of the last assignment: the next one will likely be of it.
    task: Option<Arc<Task>>,
    notes: Vec<Note>,
}

/// What it is waiting for.
#[derive(Debug)]
enum State {
    /// It does not know who the server is.
    Unmet,
    /// The server does not know it.
    Stranger,
    /// No participation is in progress.
    Idle,
    /// A participation is in progress.
    Part(Box<Part>),
}

impl<S: Store> Participant<S> {
    /// A device that has not said anything yet.
    pub fn new(settings: Settings, guard: Guard<S>, diary: Diary<S>, entropy: Box<dyn Entropy + Send>) -> Self {
        Self {
            settings,
            guard,
            diary,
            entropy,
            realm: Realm([0; 32]),
            clock: None,
            clock_tries: 0,
            said: 0,
            backoff: Backoff::default(),
            told_ms: 0,
            until_ms: 0,
            state: State::Unmet,
            task: None,
            notes: Vec::new(),
        }
    }

    /// The next action.
    pub fn next(&mut self, now: Now) -> Do {
        self.guard.see(now);
        self.end_if_over(now);
        if now.up_ms < self.until_ms {
            return Do::Sleep { until_ms: self.wake_ms() };
        }
        match &self.state {
            State::Unmet => Do::Hello,
            State::Stranger => {
                let Settings { token, attestation, .. } = &self.settings;
                let enrol = Enrol { token: token.clone(), attestation: attestation.clone() };
                self.say(Wants::Enrol(enrol), now)
            }
            State::Idle => match self.guard.rests_ms(&self.settings.limits, now) {
                0 => self.check_in(now),
                rests_ms => Do::Sleep { until_ms: now.up_ms.saturating_add(rests_ms) },
            },
            State::Part(_) => self.next_of_part(now),
        }
    }

    /// Comes to the server. Tasks of it that the device rests from are named: it would have to refuse them. Those of other servers are not this one's
    /// business.
    fn check_in(&mut self, now: Now) -> Do {
        let of_this_server = |task: &TaskDigest| self.diary.gave(&self.realm, task);
        let rests = self.guard.rests(now).map(|(task, _)| task).filter(of_this_server);
        let resting = rests.take(MOST_RESTING).map(|task| task.0.to_vec()).collect();
        self.say(Wants::CheckIn(CheckIn { patience_ms: self.settings.patience_ms, resting }), now)
    }

    /// Takes what came. What fits nothing that it waits for changes nothing.
    pub fn got(&mut self, event: Event<'_>, now: Now) {
        if matches!(event, Event::Piece(_)) {
            // A download can be so slow that it outlasts the time for the part.
            self.end_if_over(now);
        }
        match (event, &self.state) {
            (Event::Broken, _) => self.broken(now),
            (Event::Unreached, _) => self.unreached(now),
            (Event::Answer(bytes), _) if bytes.len() > MOST_BYTES => self.strange("the answer is too long", now),
            (Event::Answer(bytes), State::Unmet) => self.met(bytes, now),
            (Event::Answer(bytes), _) => match Answer::decode(bytes).map(|answer| answer.says) {
                Ok(Some(says)) => self.answered(says, now),
                _ => self.strange("the answer is empty", now),
            },
            (other, State::Part(_)) => self.got_in_part(other, now),
            _ => {}
        }
    }

    /// The host needs the device for something else: a part that it has is over. What has left has left.
    pub fn leave(&mut self, now: Now) {
        if let State::Part(part) = &self.state {
            let step = part.step();
            self.note(Note::Left { step });
            self.rest(AWAY_FROM_STEP_MS, now);
        }
    }

    /// Whether it is participating. If not, a host that has no use for the network now need not ask it.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(self.state, State::Part(_))
    }

    /// Whether it holds an input: the one thing that takes memory.
    #[must_use]
    pub fn holds_input(&self) -> bool {
        matches!(&self.state, State::Part(part) if part.holds_input())
    }

    /// The device's key.
    #[must_use]
    pub fn key(&self) -> DeviceKey {
        DeviceKey(self.settings.key.verifying_key().to_bytes())
    }

    /// The guard, which records sent inputs.
    #[must_use]
    pub const fn guard(&self) -> &Guard<S> {
        &self.guard
    }

    /// The diary for the device's owner.
    #[must_use]
    pub const fn diary(&self) -> &Diary<S> {
        &self.diary
    }

    /// The diary as a page.
    #[must_use]
    pub fn page(&self, now: Now) -> String {
        let rests: Vec<_> = self.guard.rests(now).collect();
        self.diary.page(self.guard.inputs(), &rests, &self.settings.limits)
    }

    /// The task that it read last: a host can give it to other devices ([`Event::Task`]).
    #[must_use]
    pub const fn task(&self) -> Option<&Arc<Task>> {
        self.task.as_ref()
    }

    /// The model of its part, if it has one: a host can give it to other devices ([`Event::Model`]).
    #[must_use]
    pub fn model(&self) -> Option<&Arc<Model>> {
        let State::Part(part) = &self.state else { return None };
        part.model()
    }

    /// The events since the last call.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn note(&mut self, note: Note) {
        if self.notes.len() >= MOST_NOTES {
            self.notes.remove(0);
        }
        self.notes.push(note);
    }

    /// A number to spread devices by. Where there is no randomness they are not spread, and nothing else depends on it.
    fn chance(&mut self) -> u64 {
        let mut bytes = [0; 8];
        _ = self.entropy.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A part ends during a wait too.
    const fn wake_ms(&self) -> u64 {
        match &self.state {
            State::Part(part) => {
                let over = part.over_ms();
                if over < self.until_ms { over } else { self.until_ms }
            }
            _ => self.until_ms,
        }
    }

    fn say(&mut self, wants: Wants, now: Now) -> Do {
        let time_s = self.clock.map_or(now.clock_s, |clock| clock.time_s(now));
        self.said += 1;
        let request = Request { time_s, number: self.said, wants: Some(wants) };
        Do::Say(request.sign(&self.settings.key, &self.realm).encode_to_vec())
    }

    fn wait(&mut self, wait_ms: u64, now: Now) {
        self.until_ms = now.up_ms.saturating_add(wait_ms);
    }

    /// What the server says of how long to stay away.
    fn away(&mut self, after_s: u64, now: Now) {
        self.told_ms = after_s.min(MOST_AWAY_S) * 1000;
        self.wait(self.told_ms, now);
    }

    /// Goes back to having nothing to do; what it held is gone.
    fn rest(&mut self, rest_ms: u64, now: Now) {
        self.state = State::Idle;
        let chance = self.chance();
        self.wait(jittered(rest_ms, chance), now);
    }

    /// It was with the server, and lost it. There are no more of those than the server had a use for, so they come back soon.
    fn broken(&mut self, now: Now) {
        self.told_ms = 0;
        self.unreached(now);
    }

    /// Nobody is there, for all devices alike: none comes more often than it was told, so that they do not come back together.
    fn unreached(&mut self, now: Now) {
        self.note(Note::Broken);
        // Within a part there is a time to keep.
        let after_ms = if self.is_busy() { 0 } else { around(self.told_ms, self.chance()) };
        self.back_off(after_ms, now);
    }

    /// What answers is not the server, or out of its mind: for all devices alike.
    fn strange(&mut self, what: &'static str, now: Now) {
        self.unreached(now);
        self.notes.pop();
        self.note(Note::Strange(what));
    }

    fn met(&mut self, bytes: &[u8], now: Now) {
        let hello = match Hello::decode(bytes) {
            Ok(hello) => hello,
            Err(_) => return self.strange("the greeting is empty", now),
        };
        let Hello { oldest, newest, realm, time_s } = hello;
        if !(oldest..=newest).contains(&VERSION) {
            return self.unsupported(oldest, newest, now);
        }
        let Ok(realm) = <[u8; 32]>::try_from(realm) else {
            return self.strange("the realm does not have 32 bytes", now);
        };
        let realm = Realm(realm);
        if self.settings.realm.is_some_and(|wanted| wanted != realm) {
            return self.strange("it comes from a different server", now);
        }
        self.backoff.reset();
        (self.realm, self.clock) = (realm, Some(ServerClock::set(time_s, now)));
        self.state = if self.diary.knows(&realm) { State::Idle } else { State::Stranger };
    }

    fn unsupported(&mut self, oldest: u32, newest: u32, now: Now) {
        self.note(Note::Unsupported { oldest, newest });
        self.rest(AWAY_FROM_SERVER_MS, now);
        self.state = State::Unmet;
    }

    fn answered(&mut self, says: Says, now: Now) {
        // A server that answers is there, whatever it says.
        if !matches!(says, Says::Refused(_)) {
            (self.backoff, self.clock_tries) = (Backoff::default(), 0);
        }
        match (says, &self.state) {
            (Says::Unsupported(said), _) => self.unsupported(said.oldest, said.newest, now),
            (Says::Refused(refused), _) => self.refused_by_server(refused, now),
            (says, State::Part(_)) => self.answered_in_part(says, now),
            (Says::Later(later), _) => self.away(later.after_s, now),
            (Says::Wait(wait), _) => self.wait(u64::from(wait.after_ms).clamp(1, MOST_AWAY_S * 1000), now),
            (Says::Enrolled(enrolled), State::Stranger) => {
                // If this is not durable the device enrols again, which changes nothing.
                _ = self.diary.enrolled(&self.realm, now.day());
                self.note(Note::Enrolled);
                self.state = State::Idle;
                self.away(enrolled.after_s, now);
            }
            (Says::Assignment(said), State::Idle) => match Assigned::read(said, &self.settings.policy, now) {
                Ok(assigned) => self.begin(assigned, now),
                Err(why) => self.refuse(&why, now),
            },
            _ => self.strange("it answers a different request", now),
        }
    }

    /// The device does not take part, or no longer: in its diary it says why.
    fn refuse(&mut self, why: &NotTaken, now: Now) {
        let words = why.to_string();
        // Nothing depends on whether this is durable.
        _ = self.diary.refuses(&self.realm, &words, now.day());
        self.note(Note::Refused(words));
        self.rest(if why.is_of_this_step() { AWAY_FROM_STEP_MS } else { AWAY_FROM_TASK_MS }, now);
    }

    fn refused_by_server(&mut self, refused: Refused, now: Now) {
        let Refused { reason, words, time_s, after_s } = refused;
        let reason = Reason::try_from(reason).unwrap_or(Reason::Malformed);
        self.note(Note::RefusedByServer { reason, words: plain(&words) });
        let after_ms = after_s.min(MOST_AWAY_S) * 1000;
        match reason {
            Reason::Clock => {
                self.clock = Some(ServerClock::set(time_s, now));
                self.clock_tries += 1;
                if self.clock_tries > CLOCK_TRIES {
                    self.back_off(after_ms, now);
                }
            }
            Reason::Stranger => {
                // If this is not durable the server will say it again.
                _ = self.diary.forgotten(&self.realm);
                self.back_off(after_ms, now);
                self.state = State::Stranger;
            }
            // Another server, perhaps, under the same address.
            Reason::Signature => {
                self.back_off(after_ms, now);
                self.state = State::Unmet;
            }
            Reason::NotAdmitted => {
                self.rest(AWAY_FROM_SERVER_MS.max(after_ms), now);
                self.state = State::Stranger;
            }
            // The server is in trouble, not the device: what it has begun it can still end.
            Reason::Internal | Reason::TooMuch => self.back_off(after_ms, now),
            Reason::Unexpected if self.is_busy() => self.ask_how_it_stands(after_ms, now),
            _ => {
                self.back_off(after_ms, now);
                if self.is_busy() {
                    self.state = State::Idle;
                }
            }
        }
    }

    /// Waits for so long, and at least as long as after a failure.
    fn back_off(&mut self, after_ms: u64, now: Now) {
        let most_ms = if self.is_busy() { part::MOST_BACKOFF_MS } else { MOST_BACKOFF_MS };
        let chance = self.chance();
        let wait_ms = self.backoff.wait_ms(most_ms, chance).max(after_ms);
        self.wait(wait_ms, now);
    }
}

impl<S> fmt::Debug for Participant<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant").field("state", &self.state).finish_non_exhaustive()
    }
}
