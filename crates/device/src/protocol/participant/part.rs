//! One participation in a round, from the assignment to the thanks.

use std::sync::Arc;

use secagg::client::{Client, Reply};
use zeroize::Zeroizing;

use super::{
    super::{
        blob::{BlobError, Download},
        diary::Given,
        hex,
        message::{MOST_BYTES, Next, Says, SecureMessage, Thanks, Wants},
        task::{Model, Task, Work},
        terms::Purpose,
    },
    Do, Event, NotTaken, Note, Now, Participant, State, What,
    assigned::{Assigned, is_last, limits_for},
    input::Input,
};
use crate::guard::{Asked, Limits, Outgoing, Store, TaskDigest};

/// The longest wait between two tries within a part.
pub(super) const MOST_BACKOFF_MS: u64 = 15_000;
/// How long a device that has sent its input waits to be thanked, or to be asked for shares.
const PATIENCE_MS: u64 = 10 * 60 * 1000;
/// How long it waits before it asks again, where the server has said nothing of that.
const ASK_AGAIN_MS: u64 = 1000;

/// A part.
#[derive(Debug)]
pub(super) struct Part {
    assigned: Assigned,
    /// The client of secure aggregation, once it has begun.
    client: Option<Client>,
    stage: Stage,
}

/// The stage of the participation.
#[derive(Debug)]
enum Stage {
    /// The task is on its way.
    FetchTask(Download),
    /// The model is on its way.
    FetchModel(Arc<Task>, Download),
    /// The host trains.
    Train(Prepared),
    /// The input is there, and nothing is known of it yet.
    Hold { asked: Asked, secure: bool, name: String, purpose: Purpose, input: Input },
    /// What is to be durable before it leaves is, or the host sees to it; it waits for the next tick after that.
    Ready { out: Outgoing<Input>, at_ms: Option<u64> },
    /// The input leaves.
    Send { out: Outgoing<Input>, offset: u64 },
    /// The server is asked how it stands.
    Ask(Held),
    /// Something of secure aggregation is said.
    Speak(Held, Zeroizing<Vec<u8>>),
    /// Placeholder while the state is replaced.
    Gone,
}

/// What a device holds while it speaks with the server.
#[derive(Debug)]
enum Held {
    /// All that is needed to train.
    Before(Prepared),
    /// The input, in case the server lost it.
    After(Outgoing<Input>),
    /// The input is no longer needed.
    Nothing,
}

/// All that is needed to train.
#[derive(Debug)]
struct Prepared {
    task: Arc<Task>,
    model: Arc<Model>,
    asked: Asked,
    /// Numbers of the input.
    length: usize,
}

impl Part {
    pub(super) const fn step(&self) -> u64 {
        self.assigned.step
    }

    pub(super) const fn holds_input(&self) -> bool {
        matches!(self.stage, Stage::Hold { .. } | Stage::Ready { .. } | Stage::Send { .. } | Stage::Ask(Held::After(_)))
            || matches!(self.stage, Stage::Speak(Held::After(_), _))
    }

    pub(super) const fn model(&self) -> Option<&Arc<Model>> {
        match &self.stage {
            Stage::Train(prepared) | Stage::Ask(Held::Before(prepared)) | Stage::Speak(Held::Before(prepared), _) => {
                Some(&prepared.model)
            }
            _ => None,
        }
    }

    /// When something must be let go of: the input at the end of the time for reports, everything some time later.
    pub(super) const fn over_ms(&self) -> u64 {
        match self.stage {
            Stage::Ask(Held::Nothing) | Stage::Speak(Held::Nothing, _) => {
                self.assigned.until_ms.saturating_add(PATIENCE_MS)
            }
            _ => self.assigned.until_ms,
        }
    }

    fn take_stage(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Gone)
    }
}

impl<S: Store> Participant<S> {
    /// A part begins.
    pub(super) fn begin(&mut self, assigned: Assigned, now: Now) {
        self.note(Note::Assigned { step: assigned.step });
        let stage = Stage::FetchTask(Download::new(assigned.task));
        let known = self.task.take().filter(|task| task.digest().0 == assigned.task.digest);
        self.state = State::Part(Box::new(Part { assigned, client: None, stage }));
        if let Some(task) = known {
            self.got_in_part(Event::Task(task), now);
        }
    }

    /// Lets go of what has had its time.
    pub(super) fn end_if_over(&mut self, now: Now) {
        let State::Part(part) = &mut self.state else { return };
        if now.up_ms < part.over_ms() {
            return;
        }
        match part.take_stage() {
            // What was sent may count yet, and others may need this device to open their sum.
            Stage::Ask(Held::After(_)) => part.stage = Stage::Ask(Held::Nothing),
            Stage::Speak(Held::After(_), said) => part.stage = Stage::Speak(Held::Nothing, said),
            _ => {
                let step = part.step();
                self.note(Note::TimeOver { step });
                self.rest(2 * MOST_BACKOFF_MS, now);
            }
        }
    }

    /// What to do next in a part.
    pub(super) fn next_of_part(&mut self, now: Now) -> Do {
        if let Some(until_ms) = self.waits_for_tick(now) {
            return Do::Sleep { until_ms };
        }
        let State::Part(part) = &self.state else { return Do::Sleep { until_ms: self.until_ms } };
        let ticket = part.assigned.ticket;
        match &part.stage {
            Stage::FetchTask(download) => fetch(What::Task, download),
            Stage::FetchModel(_, download) => fetch(What::Model, download),
            Stage::Train(Prepared { task, model, asked, .. }) => match part.assigned.step_terms(task) {
                Ok(step) => {
                    let have = self.guard.inputs_for(&asked.task) as u64;
                    let is_last = is_last(task.terms(), have, asked.step);
                    let work = Work { task: task.clone(), model: model.clone(), step, asked: *asked, is_last };
                    Do::Train(Box::new(work))
                }
                Err(why) => {
                    self.refuse(&why, now);
                    Do::Sleep { until_ms: self.until_ms }
                }
            },
            Stage::Send { out, offset } => Do::Send { ticket, offset: *offset, chunk: out.input().chunk(*offset) },
            Stage::Ask(_) => {
                let next = Next { ticket: ticket.0.to_vec(), patience_ms: self.settings.patience_ms };
                self.say(Wants::Next(next), now)
            }
            Stage::Speak(_, message) => {
                let message = SecureMessage { ticket: ticket.0.to_vec(), message: message.to_vec() };
                self.say(Wants::Secure(message), now)
            }
            Stage::Hold { .. } | Stage::Ready { .. } | Stage::Gone => {
                Do::Sleep { until_ms: now.up_ms.saturating_add(ASK_AGAIN_MS) }
            }
        }
    }

    /// Until when an input that is there waits. What has to be durable first is written at once, and by the host when it is next asked: how long that
    /// takes, which depends on how much text there is, must not show in when the input leaves. It leaves at the tick after (rule P26).
    fn waits_for_tick(&mut self, now: Now) -> Option<u64> {
        let State::Part(part) = &mut self.state else { return None };
        let (next_tick, over_ms) = (part.assigned.next_tick(now), part.over_ms());
        match &mut part.stage {
            Stage::Hold { .. } if next_tick >= over_ms => return Some(over_ms),
            Stage::Hold { .. } => {}
            Stage::Ready { at_ms, .. } => {
                let at_ms = *at_ms.get_or_insert(next_tick);
                if now.up_ms < at_ms {
                    return Some(at_ms.min(over_ms));
                }
                if let Stage::Ready { out, .. } = part.take_stage() {
                    part.stage = Stage::Send { out, offset: 0 };
                }
                return None;
            }
            _ => return None,
        }
        match self.let_go(now) {
            Ok(()) => Some(now.up_ms),
            Err(why) => {
                self.refuse(&why, now);
                Some(self.until_ms)
            }
        }
    }

    /// The diary first, then the guard, and the input is free to leave after both are durable (rule P24).
    fn let_go(&mut self, now: Now) -> Result<(), NotTaken> {
        let State::Part(part) = &mut self.state else { return Ok(()) };
        let Stage::Hold { asked, secure, name, purpose, input } = part.take_stage() else { return Ok(()) };
        let limits = limits_of(&self.settings.limits, self.task.as_deref(), &asked);
        self.guard.check(&asked, &limits, now)?;
        self.diary.gives(Given {
            day: now.day().number(),
            task: name,
            digest: hex(&asked.task.0),
            realm: hex(&self.realm.0),
            step: asked.step,
            purpose,
            secure,
            thanked: false,
        })?;
        let permit = self.guard.allow(asked, &limits, now)?;
        part.stage = Stage::Ready { out: permit.let_go(input), at_ms: None };
        self.note(Note::Gave { step: asked.step, purpose });
        Ok(())
    }

    /// Something other than an answer came in a part.
    pub(super) fn got_in_part(&mut self, event: Event<'_>, now: Now) {
        if let Err(why) = self.take_in_part(event, now) {
            self.refuse(&why, now);
        }
    }

    fn take_in_part(&mut self, event: Event<'_>, now: Now) -> Result<(), NotTaken> {
        let State::Part(part) = &mut self.state else { return Ok(()) };
        match (part.take_stage(), event) {
            (Stage::FetchTask(mut download), Event::Piece(bytes)) => {
                download.take(bytes)?;
                part.stage = Stage::FetchTask(download);
            }
            (Stage::FetchModel(task, mut download), Event::Piece(bytes)) => {
                download.take(bytes)?;
                part.stage = Stage::FetchModel(task, download);
            }
            (Stage::FetchTask(mut download), Event::Whole) => match download.finish() {
                Ok(bytes) => {
                    let task = Task::read(&bytes, &self.settings.policy.bounds)?;
                    self.take_task(Arc::new(task))?;
                }
                Err(BlobError::Short { .. }) => {
                    part.stage = Stage::FetchTask(download);
                    self.broken(now);
                }
                Err(why) => return Err(why.into()),
            },
            (Stage::FetchModel(task, mut download), Event::Whole) => match download.finish() {
                Ok(bytes) => self.prepare(task, Arc::new(Model::read(&bytes)?), now)?,
                Err(BlobError::Short { .. }) => {
                    part.stage = Stage::FetchModel(task, download);
                    self.broken(now);
                }
                Err(why) => return Err(why.into()),
            },
            (Stage::FetchTask(download), Event::Task(task)) => {
                if task.digest().0 != part.assigned.task.digest {
                    part.stage = Stage::FetchTask(download);
                    return Ok(());
                }
                self.take_task(task)?;
            }
            (Stage::FetchModel(task, download), Event::Model(model)) => {
                if *model.digest().as_bytes() != part.assigned.model.digest {
                    part.stage = Stage::FetchModel(task, download);
                    return Ok(());
                }
                self.prepare(task, model, now)?;
            }
            (Stage::Ready { .. } | Stage::Send { offset: 0, .. }, Event::Withheld(why)) => {
                return Err(NotTaken::Withheld(why));
            }
            (Stage::Train(prepared), Event::Trained(result)) => {
                let encoded = result.map_err(NotTaken::Training)?;
                self.hold(&prepared, encoded)?;
            }
            // Late or twice: nothing to do with the current phase.
            (stage, _) => part.stage = stage,
        }
        Ok(())
    }

    /// The task is there: what it promises is held against the policy before the model is fetched.
    fn take_task(&mut self, task: Arc<Task>) -> Result<(), NotTaken> {
        let State::Part(part) = &mut self.state else { return Ok(()) };
        let terms = task.terms();
        let Assigned { step, offer, model, .. } = &part.assigned;
        self.settings.policy.check_task(terms)?;
        self.settings.policy.check_offer(terms, offer.as_ref().map(|offer| &offer.terms))?;
        if terms.realm != hex(&self.realm.0) {
            return Err(NotTaken::OtherServer);
        }
        if *step >= terms.rounds {
            return Err(NotTaken::BeyondPlan { step: *step, rounds: terms.rounds });
        }
        let (got, expected) = (model.bytes / 4, task.learner().layout().len() as u64);
        if got != expected {
            return Err(NotTaken::Dimension { got, expected });
        }
        part.stage = Stage::FetchModel(task.clone(), Download::new(*model));
        self.task = Some(task);
        Ok(())
    }

    /// Everything is there: the last checks before anything is done for this server.
    fn prepare(&mut self, task: Arc<Task>, model: Arc<Model>, now: Now) -> Result<(), NotTaken> {
        let State::Part(part) = &mut self.state else { return Ok(()) };
        let assigned = &part.assigned;
        let digest = match task.terms().purpose() {
            Purpose::Training => model.digest(),
            Purpose::Evaluation => model.digest().measured(),
        };
        let asked = Asked { task: task.digest(), step: assigned.step, model: digest };
        let step = assigned.step_terms(&task)?;
        self.settings.policy.check_step(&step)?;
        let from = self.diary.eligible_from(&asked.task);
        if asked.step < from {
            return Err(NotTaken::NotEligible { step: asked.step, from });
        }
        let (have, terms) = (self.guard.inputs_for(&asked.task) as u64, task.terms());
        let most = terms.participation.most_participations(terms.rounds);
        if have >= most {
            return Err(NotTaken::TaskIsOver { have, most });
        }
        self.guard.check(&asked, &limits_for(&self.settings.limits, terms), now)?;
        let length = step.encoding.layout().len();
        let prepared = Prepared { task, model, asked, length };
        part.stage = match assigned.offer {
            None => Stage::Train(prepared),
            Some(offer) => {
                assigned.residues(&step, &offer)?;
                let floor = self.settings.policy.secure_floor(prepared.task.terms());
                let (client, keys) = Client::begin(offer, floor, &*self.settings.admission, &mut *self.entropy)?;
                part.client = Some(client);
                Stage::Speak(Held::Before(prepared), keys.into())
            }
        };
        Ok(())
    }

    /// The input is there. Masked, if it is to be; what it was made of is gone when this returns.
    fn hold(&mut self, prepared: &Prepared, encoded: Arc<privacy::stages::Encoded>) -> Result<(), NotTaken> {
        let State::Part(part) = &mut self.state else { return Ok(()) };
        let (got, expected) = (encoded.values().len(), prepared.length);
        if got != expected {
            return Err(NotTaken::Input { got, expected });
        }
        let assigned = &part.assigned;
        let input = match (&assigned.offer, &mut part.client) {
            (Some(offer), Some(client)) => {
                let step = assigned.step_terms(&prepared.task)?;
                let residues = assigned.residues(&step, offer)?.of(&encoded)?;
                Input::Masked(client.mask(&residues)?)
            }
            _ => Input::Plain(encoded),
        };
        let (asked, secure) = (prepared.asked, assigned.offer.is_some());
        let (name, purpose) = (prepared.task.terms().name.clone(), prepared.task.terms().purpose());
        part.stage = Stage::Hold { asked, secure, name, purpose, input };
        Ok(())
    }

    /// The server says something in a part.
    pub(super) fn answered_in_part(&mut self, says: Says, now: Now) {
        if let Err(why) = self.take_answer(says, now) {
            self.refuse(&why, now);
        }
    }

    fn take_answer(&mut self, says: Says, now: Now) -> Result<(), NotTaken> {
        let State::Part(part) = &mut self.state else { return Ok(()) };
        match (part.take_stage(), says) {
            (stage @ (Stage::Send { .. } | Stage::Ask(_) | Stage::Speak(..)), Says::Thanks(thanks)) => {
                drop(stage);
                self.thanked(&thanks, now);
            }
            // The chunk is to be sent again, or the question asked again. What was said has been heard.
            (stage @ (Stage::Send { .. } | Stage::Ask(_)), Says::Wait(wait)) => {
                part.stage = stage;
                self.wait(u64::from(wait.after_ms).clamp(1, MOST_BACKOFF_MS), now);
            }
            (Stage::Speak(held, _), Says::Wait(wait)) => {
                part.stage = Stage::Ask(held);
                self.wait(u64::from(wait.after_ms).min(MOST_BACKOFF_MS), now);
            }
            (Stage::Send { out, offset }, Says::Received(received)) => {
                self.go_on(out, Some(offset), received.offset, now)?
            }
            (Stage::Ask(Held::After(out)) | Stage::Speak(Held::After(out), _), Says::Received(received)) => {
                self.go_on(out, None, received.offset, now)?;
            }
            (Stage::Ask(held) | Stage::Speak(held, _), Says::Secure(message)) => {
                self.take_secure(held, &message, now)?
            }
            (Stage::Ask(held) | Stage::Speak(held, _), Says::Received(_)) => {
                part.stage = Stage::Ask(held);
                self.wait(ASK_AGAIN_MS, now);
            }
            // There is no such part any more.
            (Stage::Send { .. } | Stage::Ask(_) | Stage::Speak(..), Says::Later(later)) => {
                self.state = State::Idle;
                self.away(later.after_s, now);
            }
            (stage, _) => {
                part.stage = stage;
                self.strange("it answers a different request", now);
            }
        }
        Ok(())
    }

    /// The server has so much of the input. Where that is no more than before, the device takes its time.
    fn go_on(&mut self, out: Outgoing<Input>, sent: Option<u64>, offset: u64, now: Now) -> Result<(), NotTaken> {
        let State::Part(part) = &mut self.state else { return Ok(()) };
        let length = out.input().len();
        if offset > length {
            return Err(NotTaken::Meaningless("it claims more of the report than was sent"));
        }
        let is_whole = offset == length;
        // A server that ends takes a secure aggregation with it: nobody asks for a masked input again once it has arrived.
        let is_kept = self.settings.keep_until_thanked && !out.input().is_masked();
        part.stage = match (is_whole, is_kept) {
            (true, true) => Stage::Ask(Held::After(out)),
            (true, false) => Stage::Ask(Held::Nothing),
            (false, _) => Stage::Send { out, offset },
        };
        match sent {
            Some(sent) if offset > sent => {}
            // It was asked how it stands, and everything has arrived: there is nothing to say yet.
            None if is_whole => self.wait(ASK_AGAIN_MS, now),
            _ => self.wait(ASK_AGAIN_MS / 10, now),
        }
        Ok(())
    }

    fn take_secure(&mut self, held: Held, message: &SecureMessage, now: Now) -> Result<(), NotTaken> {
        let State::Part(part) = &mut self.state else { return Ok(()) };
        let Some(client) = part.client.as_mut().filter(|_| message.ticket == part.assigned.ticket.0) else {
            part.stage = Stage::Ask(held);
            self.strange("a secure aggregation message for another participation", now);
            return Ok(());
        };
        let reply = client.receive(&message.message, &*self.settings.admission, &mut *self.entropy)?;
        match (reply, held) {
            (Reply::Send(answer), held) if answer.len() <= MOST_BYTES - 1024 => part.stage = Stage::Speak(held, answer),
            (Reply::Send(_), _) => {
                return Err(NotTaken::Meaningless("the round has more neighbours than fit a message"));
            }
            (Reply::Ready, Held::Before(prepared)) => part.stage = Stage::Train(prepared),
            (Reply::Ready | Reply::Ignored(_), held) => {
                part.stage = Stage::Ask(held);
                self.wait(ASK_AGAIN_MS, now);
            }
        }
        Ok(())
    }

    fn thanked(&mut self, thanks: &Thanks, now: Now) {
        let State::Part(part) = &self.state else { return };
        let (task, step) = (TaskDigest(part.assigned.task.digest), part.step());
        // The task of the part is the one that was read last.
        let purpose = self.task.as_ref().map(|task| task.terms().purpose()).unwrap_or_default();
        // If this is not durable the guard still knows.
        _ = self.diary.thanked(&task, step, thanks.eligible_from_step);
        self.note(Note::Thanked { step, eligible_from: thanks.eligible_from_step, purpose });
        self.state = State::Idle;
        self.away(thanks.after_s, now);
    }

    /// The server does not understand what was said: it is asked what it knows. Where it was asked already, the part is over.
    pub(super) fn ask_how_it_stands(&mut self, after_ms: u64, now: Now) {
        self.back_off(after_ms, now);
        let State::Part(part) = &mut self.state else { return };
        part.stage = match part.take_stage() {
            Stage::Send { out, .. } => Stage::Ask(Held::After(out)),
            Stage::Speak(held, _) => Stage::Ask(held),
            _ => return self.state = State::Idle,
        };
    }
}

fn fetch(what: What, download: &Download) -> Do {
    Do::Fetch { what, wanted: download.wanted(), offset: download.offset() }
}

/// The limits under which an input may leave: those of the task that it is for.
fn limits_of(own: &Limits, task: Option<&Task>, asked: &Asked) -> Limits {
    match task.filter(|task| task.digest() == asked.task) {
        Some(task) => limits_for(own, task.terms()),
        None => *own,
    }
}
