//! The ledger's public interface: open, record, query.

use std::{borrow::Cow, collections::BTreeMap};

use crate::{
    account::{Account, Failure},
    budget,
    chain::Chain,
    digest::Digest,
    entry::{
        BegunAttempt, Body, Charge, Closing, Content, DataChanged, Ended, Entry, FailedAttempt, FailureReason, Import,
        ImportKind, MAX_LINE, Opening, ParticipationNote, Release,
    },
    error::LedgerError,
    head::Head,
    keys::{SigningKey, VerifyingKey},
    participants::{KeyDestroyed, NoiseDestroyed, ParticipationRecord},
    plan::{Budget, Plan},
    recorded::{Receipt, Recorded},
    store::{Attached, Keeping, LedgerStore},
    written::Written,
};
use privacy::{
    accountant::{AccountError, Judgement},
    event::PrivacyEvent,
    rng::Randomness,
    stages::{Published, Released},
    units::Delta,
    workers::Alone,
};

/// A ledger over a store. With a signing key it can be written, without one only read.
#[derive(Debug)]
pub struct Ledger<S> {
    pub(crate) store: S,
    pub(crate) chain: Chain,
    pub(crate) account: Account,
    key: Option<SigningKey>,
}

/// The attempt of which something comes, or nothing.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The stream of the plan to which it belongs.
    pub stream: &'a str,
    /// Which attempt at this step it is, from 0.
    pub number: u32,
    /// How many users the plan asks for; never how many came.
    pub declared: u64,
    /// The participants.
    pub participations: Option<&'a ParticipationRecord>,
    /// Seconds since 1970 by the caller's clock.
    pub time: u64,
}

/// Anything that is about to be published and that no mechanism released: something that users' data went into, such as a
/// vocabulary, with the event that pays for it.
#[derive(Debug, Clone)]
pub struct Publication<'a> {
    /// The event that pays for it.
    pub event: &'a PrivacyEvent,
    /// Where its noise came from.
    pub randomness: Randomness,
    /// Which step of its stream it is.
    pub step: u64,
    /// What is published, and nothing from before the noise.
    pub bytes: Cow<'a, [u8]>,
}

impl<S: LedgerStore> Ledger<S> {
    /// Begins a ledger with its plan, under an identity that the operating system draws.
    ///
    /// # Errors
    /// When the plan contradicts itself, or the store is not empty or fails.
    #[cfg(feature = "os-entropy")]
    pub fn create(store: S, plan: Plan, key: SigningKey, time: u64) -> Result<Self, LedgerError> {
        Self::create_approved(store, plan, None, key, time)
    }

    /// The same with the approval of the plan by a privacy officer, where there is one.
    ///
    /// # Errors
    /// As [`Self::create`]; and when the approval is not of this plan.
    #[cfg(feature = "os-entropy")]
    pub fn create_approved(
        mut store: S,
        plan: Plan,
        approval: Option<crate::approval::Approval>,
        key: SigningKey,
        time: u64,
    ) -> Result<Self, LedgerError> {
        plan.check()?;
        let id = Digest::of("keyhush ledger id v1", &*crate::keys::random_seed()?);
        let opening = Opening { format: crate::entry::FORMAT, id, key: key.verifying_key(), plan, approval };
        let account = Account::open(opening.clone())?;
        let content = Content { index: 0, previous: Digest::ZERO, time, body: Body::Opening(Box::new(opening)) };
        let entry = signed(content, &key)?;
        store.append(&Head::EMPTY, &entry, Attached::default())?;
        let mut chain = Chain::default();
        chain.accept(&entry)?;
        Ok(Self { store, chain, account, key: Some(key) })
    }

    /// Opens a ledger: to write with its key, to read without. Every entry is checked, and every head that is shown must
    /// lie on the chain.
    ///
    /// # Errors
    /// Damage, a rewound or forked chain, a key that is not the ledger's, or a store that fails.
    pub fn open(store: S, key: Option<SigningKey>, witnesses: &[Head]) -> Result<Self, LedgerError> {
        let (chain, account) = replay(&store)?;
        witnesses.iter().try_for_each(|head| chain.check_head(head))?;
        let expected = account.opening().key;
        match key.as_ref().map(SigningKey::verifying_key) {
            Some(got) if got != expected => Err(LedgerError::WrongKey { expected, got }),
            _ => Ok(Self { store, chain, account, key }),
        }
    }

    /// Records a release: what may be used is what this returns. The same step with the same content again is not recorded
    /// twice.
    ///
    /// # Errors
    /// When the release contradicts the plan or what was released before, costs more than the plan allows, or could not
    /// be made durable. In every case it is gone.
    pub fn record(&mut self, released: Released, attempt: Attempt<'_>) -> Result<Recorded, LedgerError> {
        self.record_written(Written::new(released, &Alone)?, attempt)
    }

    /// Makes the vector of a release durable where nobody sees it, before the release is recorded. What is then not recorded is
    /// replaced by the next one, or destroyed when the ledger is opened.
    ///
    /// # Errors
    /// When it is not known to be durable.
    pub fn keep(&mut self, written: &Written) -> Result<(), LedgerError> {
        if self.key.is_none() {
            return Err(LedgerError::ReadOnly);
        }
        written.keep(self.store.keep_vector(self.chain.head().length, &written.bytes)?);
        Ok(())
    }

    /// As [`Self::record`], of a release that was written as bytes.
    ///
    /// # Errors
    /// As [`Self::record`].
    pub fn record_written(&mut self, written: Written, attempt: Attempt<'_>) -> Result<Recorded, LedgerError> {
        let (digest, kept) = (written.digest(), written.kept());
        let Written { released, bytes, .. } = written;
        let publication = Publication {
            event: released.event(),
            randomness: released.randomness(),
            step: released.step(),
            bytes: Cow::Owned(bytes),
        };
        let _receipt = self.record_publication(&publication, digest, kept, attempt)?;
        Ok(Recorded::new(released.into_published()))
    }

    /// As [`Self::record`], for anything else that is published; it may be used when this returns, and not before. Nothing shows
    /// that its event is true: the word to audit. What reads as a release is refused: it would be [`Self::restore`]d as one that a
    /// mechanism made.
    ///
    /// # Errors
    /// As [`Self::record`]. In every case it must not be used.
    pub fn publish(&mut self, publication: &Publication<'_>, attempt: Attempt<'_>) -> Result<Receipt, LedgerError> {
        if Published::parse(&publication.bytes).is_ok() {
            return Err(LedgerError::IsRelease);
        }
        self.record_publication(publication, Digest::of_released(&publication.bytes), None, attempt)
    }

    fn record_publication(
        &mut self,
        publication: &Publication<'_>,
        digest: Digest,
        kept: Option<Keeping>,
        attempt: Attempt<'_>,
    ) -> Result<Receipt, LedgerError> {
        self.check_randomness(publication)?;
        let step = publication.step;
        if let Some(known) = self.account.step(attempt.stream, step)
            && known.digest == digest
        {
            return Ok(Receipt { entry: known.entry, head: self.head(), repeated: true });
        }
        let body = Body::Release(Release {
            stream: attempt.stream.to_owned(),
            step,
            attempt: attempt.number,
            event: publication.event.clone(),
            charge: Charge::of(publication.event),
            digest,
            participations: attempt.note(step)?,
        });
        self.admit(&body)?;
        let attached = Attached { released: Some(&publication.bytes), kept, participations: attempt.participations };
        self.append(body, attempt.time, attached)
    }

    /// Asks, before a round, whether its release would be admitted: that it belongs to the plan, continues from what was
    /// released and fits the budget (rule P14).
    ///
    /// # Errors
    /// Why it would not be.
    pub fn check(&self, stream: &str, step: u64, event: &PrivacyEvent) -> Result<(), LedgerError> {
        self.admit(&Body::Release(Release {
            stream: stream.to_owned(),
            step,
            attempt: self.next_attempt(stream, step),
            event: event.clone(),
            charge: Charge::of(event),
            digest: Digest::ZERO,
            participations: ParticipationNote { declared: 0, digest: None },
        }))
    }

    /// Records that users took part in an attempt of which nothing was released.
    ///
    /// # Errors
    /// When the step was released already, or the entry could not be made durable.
    pub fn record_failed(
        &mut self,
        step: u64,
        reason: FailureReason,
        attempt: Attempt<'_>,
    ) -> Result<Receipt, LedgerError> {
        let body = Body::FailedAttempt(FailedAttempt {
            stream: attempt.stream.to_owned(),
            step,
            attempt: attempt.number,
            reason,
            participations: attempt.note(step)?,
        });
        self.admit(&body)?;
        self.append(body, attempt.time, Attached { participations: attempt.participations, ..Attached::default() })
    }

    /// Notes, durably, that users are asked for the next attempt at a step, and says which one it is. It must return before
    /// the first of them is.
    ///
    /// # Errors
    /// When nothing could come of it (the ledger is closed, the step is not of the plan, was released or was sampled and failed),
    /// or when it is not known to be durable; then nobody may be asked.
    pub fn begin_attempt(&mut self, stream: &str, step: u64, declared: u64) -> Result<u32, LedgerError> {
        if self.key.is_none() {
            return Err(LedgerError::ReadOnly);
        }
        let attempt = self.next_attempt(stream, step);
        self.account.admit_attempt(stream, step)?;
        self.store.begin_attempt(&BegunAttempt { stream: stream.to_owned(), step, attempt, declared })?;
        Ok(attempt)
    }

    /// The attempt that was begun last, if nothing is recorded of it: the program ended in the middle of it.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn interrupted(&self) -> Result<Option<BegunAttempt>, LedgerError> {
        Ok(self.store.begun_attempt()?.filter(|begun| {
            let released = self.account.step(&begun.stream, begun.step).is_some();
            !released && begun.attempt >= self.next_attempt(&begun.stream, begun.step)
        }))
    }

    /// Records the attempt during which the program ended, if there is one and it will not be asked for again: those who were asked
    /// may have sent an input (rule P24).
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn record_interrupted(&mut self, time: u64) -> Result<Option<BegunAttempt>, LedgerError> {
        let Some(begun) = self.interrupted()? else { return Ok(None) };
        let BegunAttempt { stream, step, attempt: number, declared } = &begun;
        let attempt = Attempt { stream, number: *number, declared: *declared, participations: None, time };
        let _receipt = self.record_failed(*step, FailureReason::Interrupted, attempt)?;
        Ok(Some(begun))
    }

    /// The attempts at a step that failed, in order.
    #[must_use]
    pub fn failures(&self, stream: &str, step: u64) -> &[Failure] {
        self.account.failures(stream, step)
    }

    /// The steps of a stream that have failed attempts, in order, with what failed.
    pub fn failed_steps(&self, stream: &str) -> impl Iterator<Item = (u64, &[Failure])> + '_ {
        self.account.failed_steps(stream)
    }

    /// Which attempt at a step the next one is, from 0.
    fn next_attempt(&self, stream: &str, step: u64) -> u32 {
        self.failures(stream, step).last().map_or(0, |last| last.attempt + 1)
    }

    /// Records that another ledger's cost belongs to this one's (rule P15).
    ///
    /// # Errors
    /// When it protects something else, was imported before, costs more than the plan allows, or could not be made
    /// durable. Another run of the same sweep is never refused for its cost: it has happened.
    pub fn record_import(&mut self, import: Import, time: u64) -> Result<Receipt, LedgerError> {
        let body = Body::Import(import);
        self.admit(&body)?;
        self.append(body, time, Attached::default())
    }

    /// Records that the users' data is no longer what the run began with, and why.
    ///
    /// # Errors
    /// When no reason is given, or the entry could not be made durable.
    pub fn record_data_changed(&mut self, why: impl Into<String>, time: u64) -> Result<Receipt, LedgerError> {
        let body = Body::DataChanged(DataChanged { why: why.into() });
        self.admit(&body)?;
        self.append(body, time, Attached::default())
    }

    /// Closes the ledger: nothing can be recorded after this. The pseudonym key, the noise key and all noise state must be
    /// gone before.
    ///
    /// # Errors
    /// When it is closed already, or the entry could not be made durable.
    pub fn close(
        &mut self,
        because: Ended,
        _pseudonyms: KeyDestroyed,
        _noise: NoiseDestroyed,
        time: u64,
    ) -> Result<Receipt, LedgerError> {
        let body = Body::Closing(Closing { because, noise_destroyed: true, pseudonym_key_destroyed: true });
        self.admit(&body)?;
        self.store.forget_attempt()?;
        self.append(body, time, Attached::default())
    }

    /// The vector that was released at a step, if it was and is still stored: what is used after a crash.
    ///
    /// # Errors
    /// When it cannot be read, or is not what was released.
    pub fn released(&self, stream: &str, step: u64) -> Result<Option<Vec<u8>>, LedgerError> {
        let Some(known) = self.account.step(stream, step) else { return Ok(None) };
        let Some(bytes) = self.store.released(known.entry)? else { return Ok(None) };
        let found = Digest::of_released(&bytes);
        if found == known.digest {
            Ok(Some(bytes))
        } else {
            Err(LedgerError::VectorDamaged { entry: known.entry, expected: known.digest, found })
        }
    }

    /// The same as what the optimizer takes: how a run continues after a crash, without a second release (rule P13).
    ///
    /// # Errors
    /// When it cannot be read, or is not what was released.
    pub fn restore(&self, stream: &str, step: u64) -> Result<Option<Recorded>, LedgerError> {
        let Some(known) = self.account.step(stream, step) else { return Ok(None) };
        let Some(bytes) = self.released(stream, step)? else { return Ok(None) };
        let published = Published::parse(&bytes)?;
        let event = self.release_of(known.entry)?.map(|release| release.event);
        let said = event.as_ref() == Some(published.event());
        if !said || published.step() != step || published.randomness() != self.plan().randomness {
            let found = Digest::of_released(&bytes);
            return Err(LedgerError::VectorDamaged { entry: known.entry, expected: known.digest, found });
        }
        Ok(Some(Recorded::new(published)))
    }

    /// What an entry says of its release; none if it has none.
    fn release_of(&self, entry: u64) -> Result<Option<Release>, LedgerError> {
        let entry = self.store.read(entry)?.next().transpose()?;
        Ok(entry.and_then(|entry| match entry.body() {
            Body::Release(release) => Some(release.clone()),
            _ => None,
        }))
    }

    /// Whether a step was released, and in which entry.
    #[must_use]
    pub fn released_in(&self, stream: &str, step: u64) -> Option<u64> {
        self.account.step(stream, step).map(|known| known.entry)
    }

    /// Lets go of stored vectors below an entry, once a checkpoint holds what came of them.
    ///
    /// # Errors
    /// When they cannot be removed.
    pub fn discard_released(&mut self, below: u64) -> Result<(), LedgerError> {
        self.store.discard_released(below)
    }

    /// All that was released, imports and other runs of a sweep included, as one event: equal releases counted,
    /// correlated noise once a stream.
    #[must_use]
    pub fn event(&self) -> PrivacyEvent {
        let sweep = self.account.imported(ImportKind::SweepRun);
        PrivacyEvent::Compose { events: sweep.chain([self.run_event()]).collect() }
    }

    /// The event of this run and its starting model, without the other runs of a sweep.
    #[must_use]
    pub fn run_event(&self) -> PrivacyEvent {
        self.account.run_event()
    }

    /// The cost of everything at a delta, by the plan's accountant.
    ///
    /// # Errors
    /// When that accountant cannot judge it.
    pub fn epsilon(&self, delta: Delta) -> Result<Judgement, AccountError> {
        self.judge(&self.event(), delta)
    }

    pub(crate) fn judge(&self, event: &PrivacyEvent, delta: Delta) -> Result<Judgement, AccountError> {
        self.plan().accountant.judge_group(event, delta, self.plan().group)
    }

    /// The plan of the first entry.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        self.account.plan()
    }

    /// The first entry.
    #[must_use]
    pub const fn opening(&self) -> &Opening {
        self.account.opening()
    }

    /// The key that signs it.
    #[must_use]
    pub const fn key(&self) -> VerifyingKey {
        self.account.opening().key
    }

    /// The head: to be kept in every checkpoint, model and statement.
    #[must_use]
    pub fn head(&self) -> Head {
        self.chain.head()
    }

    /// Refuses a head that was kept elsewhere and does not lie on this chain: the ledger was rewound or forked.
    ///
    /// # Errors
    /// Which of the two.
    pub fn check_head(&self, head: &Head) -> Result<(), LedgerError> {
        self.chain.check_head(head)
    }

    /// Every entry, in order, as the store has it.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn entries(&self) -> Result<impl Iterator<Item = Result<Entry, LedgerError>> + '_, LedgerError> {
        self.store.read(0)
    }

    /// The imports, in order.
    #[must_use]
    pub fn imports(&self) -> &[Import] {
        self.account.imports()
    }

    /// The ledgers that the plan names and no entry imports (rule P15): the run has not begun, or the ledger was cut short. Nothing can be
    /// released then, and what is missing counts as released without privacy.
    #[must_use]
    pub fn missing_imports(&self) -> Vec<Head> {
        self.account.missing().collect()
    }

    /// How many steps each stream has released.
    #[must_use]
    pub fn releases(&self) -> BTreeMap<String, u64> {
        self.account.releases()
    }

    /// How many attempts ended without a release.
    #[must_use]
    pub fn failed_attempts(&self) -> u64 {
        self.account.failed_attempts()
    }

    /// The last step of a stream that was released: steps before it may have failed.
    #[must_use]
    pub fn last_step(&self, stream: &str) -> Option<u64> {
        self.account.last_step(stream)
    }

    /// Whether it was closed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closing().is_some()
    }

    /// How it was closed; none if it is open.
    #[must_use]
    pub const fn closing(&self) -> Option<&Closing> {
        self.account.closing()
    }

    /// Why the users' data changed during the run, each time.
    #[must_use]
    pub fn data_changes(&self) -> &[DataChanged] {
        self.account.data_changes()
    }

    /// Warnings from opening the store, such as a torn record that was dropped.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        self.store.warnings()
    }

    /// What import another ledger needs to have this one counted (rule P15). `verified` says whether it was opened
    /// against a head that was kept elsewhere.
    #[must_use]
    pub fn as_import(&self, kind: ImportKind, what: impl Into<String>, verified: bool) -> Import {
        Import {
            kind,
            what: what.into(),
            head: self.head(),
            key: self.key(),
            verified,
            unit: self.plan().unit,
            adjacency: self.plan().adjacency,
            randomness: self.randomness(),
            event: self.guaranteed_sweep_event().unwrap_or_else(|| self.guaranteed_event()),
        }
    }

    /// The origin of the noise of this run and its imports: simulated if any of it was.
    #[must_use]
    pub fn randomness(&self) -> Randomness {
        let all = std::iter::once(self.plan().randomness).chain(self.imports().iter().map(|i| i.randomness));
        all.into_iter().find(|r| *r != Randomness::Secret).unwrap_or(Randomness::Secret)
    }

    fn check_randomness(&self, publication: &Publication<'_>) -> Result<(), LedgerError> {
        let (plan, got) = (self.plan().randomness, publication.randomness);
        if plan == got { Ok(()) } else { Err(LedgerError::Randomness { plan, got }) }
    }

    /// The rules of what may follow, and the budget.
    fn admit(&self, body: &Body) -> Result<(), LedgerError> {
        self.account.admit(body)?;
        let counts = match body {
            Body::Release(_) => true,
            Body::Import(import) => import.kind != ImportKind::SweepRun,
            _ => false,
        };
        if counts && self.plan().budget.is_some() {
            budget::check(self.plan(), &self.account.event_after(body))?;
        }
        Ok(())
    }

    fn append(&mut self, body: Body, time: u64, attached: Attached<'_>) -> Result<Receipt, LedgerError> {
        let key = self.key.as_ref().ok_or(LedgerError::ReadOnly)?;
        let after = self.chain.head();
        let entry = signed(Content { index: after.length, previous: after.hash, time, body }, key)?;
        self.store.append(&after, &entry, attached)?;
        self.chain.accept(&entry)?;
        self.account.add(entry.index(), entry.body());
        Ok(Receipt { entry: entry.index(), head: self.chain.head(), repeated: false })
    }

    /// Refuses a plan that this privacy officer did not approve. That an approval is of the plan was checked when the ledger was opened.
    ///
    /// # Errors
    /// When nobody approved it, or somebody else did.
    pub fn check_approved_by(&self, officer: &VerifyingKey) -> Result<(), LedgerError> {
        let problem = match &self.opening().approval {
            Some(approval) if approval.officer == *officer => return Ok(()),
            Some(approval) => format!("the plan was approved by {}, not by {officer}", approval.officer),
            None => format!("nobody approved the plan, and {officer} was to"),
        };
        Err(LedgerError::Approval { problem })
    }

    /// The plan's limit.
    #[must_use]
    pub const fn budget(&self) -> Option<Budget> {
        self.account.plan().budget
    }
}

impl Attempt<'_> {
    fn note(&self, step: u64) -> Result<ParticipationNote, LedgerError> {
        if let Some(record) = self.participations {
            record.check_is_of(self.stream, step, self.number)?;
        }
        Ok(ParticipationNote { declared: self.declared, digest: self.participations.map(ParticipationRecord::digest) })
    }
}

/// Signs an entry that a reader will accept.
fn signed(content: Content, key: &SigningKey) -> Result<Entry, LedgerError> {
    let entry = Entry::sign(content, key);
    let bytes = entry.line().len();
    if bytes > MAX_LINE { Err(LedgerError::TooLong { bytes, limit: MAX_LINE }) } else { Ok(entry) }
}

/// Reads every entry, checks that it follows and that it may, and adds it up.
fn replay<S: LedgerStore>(store: &S) -> Result<(Chain, Account), LedgerError> {
    // Before the entries: a ledger that somebody writes meanwhile only grows, and must not look as if it had been cut short.
    let durable = store.head()?;
    let mut chain = Chain::default();
    let mut account: Option<Account> = None;
    for entry in store.read(0)? {
        let entry = entry?;
        chain.accept(&entry)?;
        match (&mut account, entry.body()) {
            (None, Body::Opening(opening)) => account = Some(Account::open((**opening).clone())?),
            (Some(account), body) => {
                account.admit(body).map_err(|e| LedgerError::damaged(entry.index(), e))?;
                account.add(entry.index(), body);
            }
            (None, _) => return Err(LedgerError::damaged(0, "a ledger begins with its plan")),
        }
    }
    let account = account.ok_or(LedgerError::Empty)?;
    chain.check_head(&durable)?;
    Ok((chain, account))
}

#[cfg(test)]
mod tests {
    use privacy::{
        encoding::{Encoding, VectorPlan},
        event::Adjacency,
        stages::Sum,
        units::ClipNorm,
    };

    use super::*;
    use crate::{contract::plan, store::MemoryStore};

    /// An entry says what was paid; a vector of which another event is true is not the one that it pays for.
    #[test]
    fn p13_a_vector_of_another_event_than_its_entry_is_not_restored() {
        let encoding =
            Encoding::new(VectorPlan::of_update(3, 14), ClipNorm::new(1.0).unwrap(), None, Adjacency::AddOrRemove)
                .unwrap();
        let exact = Sum::zero(&encoding).release_without_privacy(0, "the sum as it is", Randomness::Secret);
        let plan = plan();
        let PrivacyEvent::Repeat { event, .. } = plan.phases[0].event.clone() else { panic!("one event, many times") };
        let stream = plan.phases[0].stream.clone();
        let key = SigningKey::generate().unwrap();
        let mut ledger = Ledger::create(MemoryStore::new(), plan, key, 1).unwrap();
        let forged =
            Publication { event: &event, randomness: Randomness::Secret, step: 0, bytes: exact.to_bytes().into() };
        let attempt = Attempt { stream: &stream, number: 0, declared: 10, participations: None, time: 1 };
        let _receipt = ledger.record_publication(&forged, Digest::of_released(&forged.bytes), None, attempt).unwrap();
        assert!(matches!(ledger.restore(&stream, 0), Err(LedgerError::VectorDamaged { entry: 1, .. })));
    }
}
