//! Summarizes the entries: the plan, each stream's steps, and the composed event.
//!
//! [`Account::admit`] holds the rules of what may follow; it is asked before an entry is written and again, for every
//! entry, when a ledger is opened, so that a ledger that opens keeps them all.

use std::collections::BTreeMap;

use crate::{
    digest::Digest,
    entry::{Body, Charge, Closing, DataChanged, FailedAttempt, FailureReason, Import, ImportKind, Opening, Release},
    error::LedgerError,
    extends::extends,
    head::Head,
    plan::{Phase, Plan, Start, spoken},
};
use privacy::{assumptions::participation_words, event::PrivacyEvent};

/// All that a ledger says, added up.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    opening: Opening,
    streams: BTreeMap<String, Stream>,
    imports: Vec<Import>,
    /// The attempts of each stream's steps that failed.
    failed: BTreeMap<String, BTreeMap<u64, Vec<Failure>>>,
    /// The digests of the side records that entries name, with the entry and whether it released something.
    participations: Vec<(u64, Digest, bool)>,
    data_changes: Vec<DataChanged>,
    closed_by: Option<(u64, Closing)>,
}

/// What was released in one stream.
#[derive(Debug, Clone)]
struct Stream {
    steps: BTreeMap<u64, Step>,
    /// Events that add up, each with how often.
    additional: Vec<(PrivacyEvent, u64)>,
    /// The event that stands for all steps up to the last.
    cumulative: Option<PrivacyEvent>,
    /// Whether every release names a record of who took part.
    all_recorded: bool,
}

/// An attempt that failed, at a step that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The entry that has it.
    pub entry: u64,
    /// The number of the attempt, from 0.
    pub attempt: u32,
    /// The reason.
    pub reason: FailureReason,
}

/// One released step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// The entry that released it.
    pub(crate) entry: u64,
    /// The digest of what was released.
    pub(crate) digest: Digest,
}

impl Account {
    /// The account of a ledger that holds its first entry only.
    pub(crate) fn open(opening: Opening) -> Result<Self, LedgerError> {
        opening.plan.check()?;
        if let Some(approval) = &opening.approval {
            approval.check(&opening.plan)?;
        }
        Ok(Self {
            opening,
            streams: BTreeMap::new(),
            imports: Vec::new(),
            failed: BTreeMap::new(),
            participations: Vec::new(),
            data_changes: Vec::new(),
            closed_by: None,
        })
    }

    pub(crate) const fn opening(&self) -> &Opening {
        &self.opening
    }

    pub(crate) const fn plan(&self) -> &Plan {
        &self.opening.plan
    }

    pub(crate) fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// How many attempts failed.
    pub(crate) fn failed_attempts(&self) -> u64 {
        self.failed.values().flat_map(BTreeMap::values).map(|failures| failures.len() as u64).sum()
    }

    /// The attempts at a step that failed, in order.
    pub(crate) fn failures(&self, stream: &str, step: u64) -> &[Failure] {
        self.failed.get(stream).and_then(|steps| steps.get(&step)).map_or(&[], Vec::as_slice)
    }

    /// The steps of a stream that have failed attempts, in order.
    pub(crate) fn failed_steps(&self, stream: &str) -> impl Iterator<Item = (u64, &[Failure])> + '_ {
        self.failed.get(stream).into_iter().flatten().map(|(step, failures)| (*step, failures.as_slice()))
    }

    /// The last step of a stream that was released.
    pub(crate) fn last_step(&self, stream: &str) -> Option<u64> {
        self.streams.get(stream)?.steps.last_key_value().map(|(step, _)| *step)
    }

    pub(crate) const fn closing(&self) -> Option<&Closing> {
        match &self.closed_by {
            Some((_, closing)) => Some(closing),
            None => None,
        }
    }

    pub(crate) fn data_changes(&self) -> &[DataChanged] {
        &self.data_changes
    }

    /// The side records that entries name: (entry, digest, whether it released something).
    pub(crate) fn participations(&self) -> &[(u64, Digest, bool)] {
        &self.participations
    }

    pub(crate) fn step(&self, stream: &str, step: u64) -> Option<Step> {
        self.streams.get(stream)?.steps.get(&step).copied()
    }

    /// Every released step: its entry and digest.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        self.streams.values().flat_map(|stream| stream.steps.values().copied())
    }

    /// The streams with their number of released steps.
    pub(crate) fn releases(&self) -> BTreeMap<String, u64> {
        self.streams.iter().map(|(name, stream)| (name.clone(), stream.steps.len() as u64)).collect()
    }

    /// Whether all planned steps were released.
    pub(crate) fn is_done(&self) -> bool {
        let released = |stream: &str| self.streams.get(stream).map_or(0, |s| s.steps.len() as u64);
        self.plan().phases.iter().all(|phase| released(&phase.stream) >= phase.rounds)
    }

    /// Refuses what may not follow.
    pub(crate) fn admit(&self, body: &Body) -> Result<(), LedgerError> {
        if let Some((entry, _)) = self.closed_by {
            return Err(LedgerError::Closed { entry });
        }
        match body {
            Body::Opening(_) => Err(LedgerError::plan("phases", "a ledger has one plan")),
            Body::Release(release) => self.admit_release(release),
            Body::FailedAttempt(failed) => self.admit_failed(failed),
            Body::Import(import) => self.admit_import(import),
            Body::DataChanged(changed) => spoken("data_changed", &changed.why),
            Body::Closing(_) => Ok(()),
        }
    }

    /// Refuses to have users asked for a step that cannot be released any more.
    pub(crate) fn admit_attempt(&self, stream: &str, step: u64) -> Result<(), LedgerError> {
        if let Some((entry, _)) = self.closed_by {
            return Err(LedgerError::Closed { entry });
        }
        self.check_started()?;
        self.check_step_planned(stream, step)?;
        match self.last_step(stream) {
            Some(last) if step <= last => {
                return Err(LedgerError::StepBackwards { stream: stream.to_owned(), step, last });
            }
            _ => {}
        }
        if self.is_sampled(stream) && !self.failures(stream, step).is_empty() {
            return Err(LedgerError::SampledOnce { stream: stream.to_owned(), step });
        }
        Ok(())
    }

    fn admit_release(&self, release: &Release) -> Result<(), LedgerError> {
        let (stream, step) = (&release.stream, release.step);
        spoken("stream", stream)?;
        self.check_started()?;
        if !matches!(release.event, PrivacyEvent::NonPrivate { .. }) {
            self.check_planned(stream, step, &release.event)?;
        }
        if release.charge != Charge::of(&release.event) {
            return Err(LedgerError::DoesNotExtend {
                stream: stream.clone(),
                step,
                problem: format!("{} is not {:?}", release.event.name(), release.charge),
            });
        }
        self.check_not_failed(release)?;
        let Some(known) = self.streams.get(stream) else { return Ok(()) };
        if let Some(recorded) = known.steps.get(&step) {
            return Err(LedgerError::AlreadyReleased {
                stream: stream.clone(),
                step,
                entry: recorded.entry,
                recorded: recorded.digest,
                offered: release.digest,
            });
        }
        if let Some((&last, _)) = known.steps.last_key_value()
            && step < last
        {
            return Err(LedgerError::StepBackwards { stream: stream.clone(), step, last });
        }
        match (&known.cumulative, release.charge) {
            (Some(before), Charge::Cumulative) => extends(before, &release.event)
                .map_err(|problem| LedgerError::DoesNotExtend { stream: stream.clone(), step, problem }),
            _ => Ok(()),
        }
    }

    /// What failed gave nothing; and who is sampled for a step is asked once, whatever came of it (rules P21 and P24).
    fn check_not_failed(&self, release: &Release) -> Result<(), LedgerError> {
        let (stream, step, attempt) = (release.stream.clone(), release.step, release.attempt);
        let failures = self.failures(&stream, step);
        if failures.iter().any(|failure| failure.attempt == attempt) {
            return Err(LedgerError::AttemptFailed { stream, step, attempt });
        }
        if !failures.is_empty() && self.is_sampled(&stream) {
            return Err(LedgerError::SampledOnce { stream, step });
        }
        Ok(())
    }

    /// Whether the plan samples who takes part in a stream.
    fn is_sampled(&self, stream: &str) -> bool {
        self.plan().phase(stream).is_some_and(|phase| phase.participation.is_sampled())
    }

    /// A run that starts from another ledger's model, or comes after another task over the same devices, imports that ledger before it
    /// releases anything (rule P15).
    fn check_started(&self) -> Result<(), LedgerError> {
        if let Some(head) = self.earlier_missing().next() {
            return Err(LedgerError::plan(
                "after",
                format!("the ledger of the earlier task, {head}, must be imported first"),
            ));
        }
        match self.start_missing() {
            None => Ok(()),
            Some(head) => Err(LedgerError::plan(
                "start",
                format!("the ledger of the starting model, {head}, must be imported first"),
            )),
        }
    }

    /// The ledgers that the plan names and that are not imported: they were not yet when this was written, or what followed was cut off.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Head> + '_ {
        self.start_missing().into_iter().chain(self.earlier_missing())
    }

    fn start_missing(&self) -> Option<Head> {
        let Start::Ledger { head } = self.plan().start else { return None };
        let imported = self.imports.iter().any(|i| i.kind == ImportKind::StartingModel && i.head == head);
        (!imported).then_some(head)
    }

    fn earlier_missing(&self) -> impl Iterator<Item = Head> + '_ {
        let is_imported =
            move |head: Head| self.imports.iter().any(|i| i.kind != ImportKind::SweepRun && i.head == head);
        self.plan().after.iter().copied().filter(move |head| !is_imported(*head))
    }

    /// The stream, the number of steps, the adjacency and the participation are those of the plan.
    fn check_planned(&self, stream: &str, step: u64, event: &PrivacyEvent) -> Result<(), LedgerError> {
        let phase = self.check_step_planned(stream, step)?;
        self.check_adjacency(event.flatten()?.adjacency)?;
        match event.participations().into_iter().find(|p| *p != phase.participation) {
            None => Ok(()),
            Some(other) => Err(LedgerError::Participation {
                stream: stream.to_owned(),
                plan: participation_words(&phase.participation),
                got: participation_words(&other),
            }),
        }
    }

    /// The phase of the plan that has this step.
    fn check_step_planned(&self, stream: &str, step: u64) -> Result<&Phase, LedgerError> {
        let Some(phase) = self.plan().phase(stream) else {
            let names: Vec<String> = self.plan().phases.iter().map(|p| format!("{:?}", p.stream)).collect();
            return Err(LedgerError::UnknownStream { stream: stream.to_owned(), known: names.join(", ") });
        };
        if step >= phase.rounds {
            return Err(LedgerError::BeyondPlan { stream: stream.to_owned(), step, rounds: phase.rounds });
        }
        Ok(phase)
    }

    fn check_adjacency(&self, got: Option<privacy::event::Adjacency>) -> Result<(), LedgerError> {
        let plan = self.plan().adjacency;
        match got {
            Some(got) if got != plan => Err(LedgerError::Adjacency { plan, got }),
            _ => Ok(()),
        }
    }

    fn admit_failed(&self, failed: &FailedAttempt) -> Result<(), LedgerError> {
        spoken("stream", &failed.stream)?;
        let (stream, step, attempt) = (failed.stream.clone(), failed.step, failed.attempt);
        if self.step(&stream, step).is_some() {
            return Err(LedgerError::StepBackwards { stream, step, last: step });
        }
        match self.failures(&stream, step).last() {
            Some(last) if last.attempt >= attempt => Err(LedgerError::AttemptFailed { stream, step, attempt }),
            Some(_) if self.is_sampled(&stream) => Err(LedgerError::SampledOnce { stream, step }),
            _ => Ok(()),
        }
    }

    fn admit_import(&self, import: &Import) -> Result<(), LedgerError> {
        spoken("import", &import.what)?;
        if import.unit != self.plan().unit {
            return Err(LedgerError::plan(
                "unit",
                format!("is {}, and the imported ledger protects each {}", self.plan().unit.name(), import.unit.name()),
            ));
        }
        self.check_adjacency(Some(import.adjacency))?;
        self.check_adjacency(import.event.flatten()?.adjacency)?;
        if self.imports.iter().any(|known| known.key == import.key && known.head == import.head) {
            return Err(LedgerError::plan("start", format!("the ledger {} was imported before", import.head)));
        }
        Ok(())
    }

    /// Adds an entry that was admitted.
    pub(crate) fn add(&mut self, entry: u64, body: &Body) {
        match body {
            Body::Opening(_) => {}
            Body::Release(release) => {
                self.note(entry, release.participations.digest, true);
                let stream = self.streams.entry(release.stream.clone()).or_default();
                stream.steps.insert(release.step, Step { entry, digest: release.digest });
                stream.all_recorded &= release.participations.digest.is_some();
                stream.charge(release);
            }
            Body::FailedAttempt(failed) => {
                self.note(entry, failed.participations.digest, false);
                let failure = Failure { entry, attempt: failed.attempt, reason: failed.reason };
                let steps = self.failed.entry(failed.stream.clone()).or_default();
                steps.entry(failed.step).or_default().push(failure);
            }
            Body::Import(import) => self.imports.push(import.clone()),
            Body::DataChanged(changed) => self.data_changes.push(changed.clone()),
            Body::Closing(closing) => self.closed_by = Some((entry, *closing)),
        }
    }

    fn note(&mut self, entry: u64, digest: Option<Digest>, released: bool) {
        self.participations.extend(digest.map(|digest| (entry, digest, released)));
    }

    /// All that this run released, the model from which it started, and earlier tasks over the same devices.
    pub(crate) fn run_event(&self) -> PrivacyEvent {
        let events = self.before().chain(self.missing_events()).chain(self.own_events());
        PrivacyEvent::Compose { events: events.collect() }
    }

    /// What the plan says was released before, and nobody can say what it cost: it counts as released without privacy (rule P15).
    pub(crate) fn missing_events(&self) -> impl Iterator<Item = PrivacyEvent> + '_ {
        self.missing().map(|head| PrivacyEvent::NonPrivate {
            what: format!("what the ledger {head} counts, which the plan names and no entry imports"),
        })
    }

    /// The same with all that this run would release by its plan, and what was released without privacy, which no plan foresees.
    pub(crate) fn planned_event(&self) -> PrivacyEvent {
        let bare = |event: &PrivacyEvent| matches!(event, PrivacyEvent::NonPrivate { .. });
        let without_privacy = self.streams.values().flat_map(|s| s.additional.iter().map(|(event, _)| event.clone()));
        let before = self.before().chain(self.missing_events());
        let events = before.chain([self.plan().event()]).chain(without_privacy.filter(bare)).collect();
        PrivacyEvent::Compose { events }
    }

    /// What was released before this run, and counts for it.
    fn before(&self) -> impl Iterator<Item = PrivacyEvent> + '_ {
        self.imported(ImportKind::StartingModel).chain(self.imported(ImportKind::EarlierTask))
    }

    /// The events of the imports of one kind.
    pub(crate) fn imported(&self, kind: ImportKind) -> impl Iterator<Item = PrivacyEvent> + '_ {
        self.imports.iter().filter(move |import| import.kind == kind).map(|import| import.event.clone())
    }

    /// What the budget is for, if this body is added: what is there. Before everything that the plan names is, nothing can be released.
    pub(crate) fn event_after(&self, body: &Body) -> PrivacyEvent {
        let mut after = self.clone();
        after.add(u64::MAX, body);
        after.budgeted_event()
    }

    /// What the budget is for.
    pub(crate) fn budgeted_event(&self) -> PrivacyEvent {
        PrivacyEvent::Compose { events: self.before().chain(self.own_events()).collect() }
    }

    /// What was released in each stream.
    pub(crate) fn events_by_stream(&self) -> impl Iterator<Item = (&str, Vec<PrivacyEvent>)> + '_ {
        self.streams.iter().map(|(name, stream)| (name.as_str(), stream.events()))
    }

    /// Whether every release of a stream names a record of who took part.
    pub(crate) fn is_all_recorded(&self, stream: &str) -> bool {
        self.streams.get(stream).is_none_or(|stream| stream.all_recorded)
    }

    fn own_events(&self) -> Vec<PrivacyEvent> {
        self.streams.values().flat_map(Stream::events).collect()
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self { steps: BTreeMap::new(), additional: Vec::new(), cumulative: None, all_recorded: true }
    }
}

impl Stream {
    fn charge(&mut self, release: &Release) {
        if release.charge == Charge::Cumulative {
            self.cumulative = Some(release.event.clone());
            return;
        }
        match self.additional.iter_mut().find(|(known, _)| *known == release.event) {
            Some((_, times)) => *times += 1,
            None => self.additional.push((release.event.clone(), 1)),
        }
    }

    fn events(&self) -> Vec<PrivacyEvent> {
        let grouped = self.additional.iter().map(|(event, times)| match times {
            1 => event.clone(),
            _ => event.clone().times(*times),
        });
        grouped.chain(self.cumulative.clone()).collect()
    }
}
