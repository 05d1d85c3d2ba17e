//! Observed participation from the side table, and the epsilon it would give (rule P18).
//!
//! The guarantee counts the limits on participation that were enforced, and so do budgets. Beside it stands what comes out if
//! the participations that were observed are counted instead, as Xu et al. 2023 do in their tables. That is a smaller number and a
//! weaker one: it holds where who took part, and when, had nothing to do with what they typed, and it is known only afterwards.
//! It is given only where what was released is what is guaranteed: of the rest of a plan nobody has observed anything, and of a filter the
//! budget holds (rule P23). Failed attempts count as participations too (rule P24), up to the limits, which releases keep.
//!
//! A side table in which limits were broken is an error: then no epsilon that counts on them is true. So is one with more users in it than the
//! plan declares: no epsilon of limits depends on how many there are, but delta is to be below one over their number (rule P11).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    book::Ledger,
    entry::ImportKind,
    error::LedgerError,
    guarantee::Basis,
    participants::{Frequency, Observed, Observer},
    plan::Phase,
    store::LedgerStore,
};
use privacy::{
    accountant::Judgement,
    assumptions::participation_words,
    event::{Adjacency, PrivacyEvent},
    participation::Participation,
    rng::Randomness,
};

/// Why no epsilon is computed from the observed participations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoObservedEpsilon {
    /// The noise was simulated: no epsilon holds.
    Simulated,
    /// Something was released without privacy.
    NonPrivate,
    /// The whole plan is what holds, and more was planned than was released.
    PlanHolds,
    /// The budget of a filter is what holds.
    BudgetHolds,
    /// Not every release says who took part.
    NotAllRecorded,
}

impl NoObservedEpsilon {
    /// Describes it in plain words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Simulated => "the noise was simulated, so no epsilon holds",
            Self::NonPrivate => "something was released without privacy",
            Self::PlanHolds => "the guarantee covers the whole plan, and unreleased rounds cannot be observed",
            Self::BudgetHolds => "the guarantee is the budget, regardless of participation",
            Self::NotAllRecorded => "not every release has a record of who took part",
        }
    }
}

/// The records of who took part, all as their entries say.
#[derive(Default)]
pub(crate) struct SideTable {
    /// The number of records that match.
    pub(crate) matching: u64,
    /// Records that no entry names: attempts that were interrupted before they were recorded.
    pub(crate) unnamed: u64,
    /// Of each stream with limits.
    observed: BTreeMap<String, Observed>,
    /// Whether each release of those streams has a record.
    complete: bool,
}

impl SideTable {
    pub(crate) fn into_observed(self) -> BTreeMap<String, Observed> {
        self.observed
    }
}

impl<S: LedgerStore> Ledger<S> {
    /// Finds, in order, the record that each entry names. Records in between belong to attempts that were interrupted. None where
    /// the side table is not at hand.
    pub(crate) fn side_table(&self) -> Result<Option<SideTable>, LedgerError> {
        let Some(mut records) = self.store.participations()? else { return Ok(None) };
        let mut table = SideTable::default();
        let mut observer = Observer::default();
        for (entry, digest, released) in self.account.participations() {
            let damaged = |problem: String| LedgerError::ParticipationsDamaged { entry: *entry, problem };
            loop {
                let record = records.next().ok_or_else(|| damaged("no record has the entry's digest".into()))??;
                if record.digest() != *digest {
                    table.unnamed += 1;
                    continue;
                }
                table.matching += 1;
                observer.add(&record, *released).map_err(damaged)?;
                break;
            }
        }
        for record in records {
            record?;
            table.unnamed += 1;
        }
        observer.different().try_for_each(|(stream, different)| self.check_population(stream, different))?;
        table.observed = observer.finish();
        // What a sampler drew is not told.
        table.observed.retain(|stream, _| self.plan().phase(stream).is_some_and(is_limited));
        table.observed.iter().try_for_each(|(stream, observed)| self.check_limits(stream, &observed.released))?;
        let mut limited = self.plan().phases.iter().filter(|phase| is_limited(phase));
        table.complete = limited.all(|phase| self.account.is_all_recorded(&phase.stream));
        Ok(Some(table))
    }

    /// How often and how close together users took part so far, of each stream with limits: exact, and outside the guarantee. None where no
    /// side table is at hand, or the adjacency protects who took part (rule P26).
    ///
    /// # Errors
    /// When the side table is damaged, or shows that limits were broken.
    pub fn observed_so_far(&self) -> Result<Option<BTreeMap<String, Observed>>, LedgerError> {
        if self.plan().adjacency != Adjacency::ZeroOut {
            return Ok(None);
        }
        Ok(self.side_table()?.map(SideTable::into_observed))
    }

    /// Refuses more users than the plan declares: delta is below one over that number (rule P11).
    fn check_population(&self, stream: &str, different: u64) -> Result<(), LedgerError> {
        let (stream, declared) = (stream.to_owned(), self.plan().population);
        let limited = self.plan().phase(&stream).is_some_and(is_limited);
        if !limited || different <= declared {
            return Ok(());
        }
        Err(LedgerError::MoreThanDeclared { stream, declared, different })
    }

    /// Refuses participations beyond the limits of the plan.
    fn check_limits(&self, stream: &str, observed: &Frequency) -> Result<(), LedgerError> {
        let Some(phase) = self.plan().phase(stream) else { return Ok(()) };
        let closest = observed.min_separation;
        let kept = match phase.participation {
            Participation::MinSeparation { separation, max_participations } => {
                observed.max_participations <= max_participations && closest.is_none_or(|closest| closest >= separation)
            }
            Participation::Once => observed.max_participations <= 1,
            Participation::Poisson { .. } | Participation::FixedSize { .. } => true,
        };
        if kept {
            return Ok(());
        }
        Err(LedgerError::LimitsBroken {
            stream: stream.to_owned(),
            plan: participation_words(&phase.participation),
            times: observed.max_participations,
            between: closest.map(|closest| closest.as_rounds_between()),
        })
    }

    /// What everything costs if the observed participations are counted instead of the limits; or why that is not computed. None
    /// where nothing has limits.
    pub(crate) fn observed_judgement(
        &self,
        table: &SideTable,
    ) -> Result<Option<Result<Judgement, NoObservedEpsilon>>, LedgerError> {
        if !self.plan().phases.iter().any(is_limited) {
            return Ok(None);
        }
        if self.randomness() != Randomness::Secret {
            return Ok(Some(Err(NoObservedEpsilon::Simulated)));
        }
        match self.basis() {
            Basis::Plan => return Ok(Some(Err(NoObservedEpsilon::PlanHolds))),
            Basis::Budget => return Ok(Some(Err(NoObservedEpsilon::BudgetHolds))),
            Basis::Spent => {}
        }
        if !table.complete {
            return Ok(Some(Err(NoObservedEpsilon::NotAllRecorded)));
        }
        let judgement = self.judge(&self.observed_event(table), self.plan().delta)?;
        Ok(Some(if judgement.epsilon.is_finite() { Ok(judgement) } else { Err(NoObservedEpsilon::NonPrivate) }))
    }

    /// All that counts, with the observed participations in the place of the limits of this run. What was imported stays as it is.
    fn observed_event(&self, table: &SideTable) -> PrivacyEvent {
        let imported = [ImportKind::StartingModel, ImportKind::EarlierTask, ImportKind::SweepRun].into_iter();
        let mut events: Vec<PrivacyEvent> = imported.flat_map(|kind| self.account.imported(kind)).collect();
        for (stream, released) in self.account.events_by_stream() {
            let limits = self.plan().phase(stream).map(|phase| phase.participation);
            let observed = table.observed.get(stream).zip(limits);
            events.extend(released.into_iter().map(|event| match observed {
                Some((observed, limits)) => counted_with(event, as_participation(&observed.with_failed, limits)),
                None => event,
            }));
        }
        PrivacyEvent::Compose { events }
    }
}

/// Whether the guarantee of a stream comes from limits on participation.
const fn is_limited(phase: &Phase) -> bool {
    !phase.participation.is_sampled()
}

/// What was observed as limits: no looser than those that were enforced.
fn as_participation(observed: &Frequency, limits: Participation) -> Participation {
    match (observed.min_separation, limits) {
        (Some(closest), Participation::MinSeparation { separation, max_participations }) => {
            Participation::MinSeparation {
                separation: closest.max(separation),
                max_participations: observed.max_participations.min(max_participations),
            }
        }
        _ => Participation::Once,
    }
}

/// The event with another participation wherever it has limits.
fn counted_with(event: PrivacyEvent, with: Participation) -> PrivacyEvent {
    match event {
        PrivacyEvent::CorrelatedGaussian { adjacency, matrix, segments, noise, .. } => {
            PrivacyEvent::CorrelatedGaussian { adjacency, matrix, segments, participation: with, noise }
        }
        PrivacyEvent::LimitedRounds { rounds, event, .. } => {
            PrivacyEvent::LimitedRounds { rounds, participation: with, event }
        }
        PrivacyEvent::Repeat { times, event } => {
            PrivacyEvent::Repeat { times, event: Box::new(counted_with(*event, with)) }
        }
        PrivacyEvent::Compose { events } => {
            PrivacyEvent::Compose { events: events.into_iter().map(|event| counted_with(event, with)).collect() }
        }
        other => other,
    }
}
