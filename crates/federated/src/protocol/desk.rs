//! One open attempt at a round of a task: which devices were assigned, whose reports arrived, and how many are still wanted.
//!
//! ```text
//! select -> devices work -> reports arrive -> merged (sealed, durable) -> the goal is reached: closed
//! ```
//!
//! Devices are given the task as they are needed: at first as many as will do at the measured drop-out, later more where some have run
//! out of time, or have been silent for several times as long as others took (`at_work`). Exactly the goal's reports are added; later
//! ones are refused as late. A report counts once, however often it is sent.
//!
//! What is added up lies in memory, and is merged into the store, sealed, with the list of whose it is, when at least
//! [`LEAST_MERGED`] reports are new and [`MERGE_EVERY_MS`] or [`MERGE_AFTER`] of them have passed: fewer new reports would make two
//! sums that differ by few people. A device is thanked when its report is in a sum that survives a crash, or released.

mod at_work;

use std::collections::{BTreeMap, BTreeSet};

use device::protocol::message::{Blob, DeviceKey, Ticket};
use ledger::FailureReason;
use privacy::{
    encoding::{Encoding, EncodingError},
    rng::NoRandomness,
    stages::{Encoded, Sum},
};
use secagg::server::Refusal;
use sha2::{Digest, Sha256};

use self::at_work::AtWork;
use super::{
    limits::ParticipationLimits,
    over_selection::OverSelection,
    secure::SecureDesk,
    seen::{Progress as Far, Shapes, Signs},
    store::{AttemptAt, OpenAttempt, Write},
    ticket::RoundKey,
    windows::Windows,
};

#[cfg(test)]
mod restored_tests;

/// Reports that are new in a merge at least.
pub const LEAST_MERGED: usize = 16;
/// Reports after which a merge does not wait.
pub const MERGE_AFTER: usize = 64;
/// Milliseconds after which a merge does not wait for more.
pub const MERGE_EVERY_MS: u64 = 2_000;
/// An attempt is given up when so many reporting windows have passed since its first assignment.
const WINDOWS: u64 = 3;

/// The parameters of an attempt.
#[derive(Debug)]
pub struct Opening {
    /// The attempt.
    pub at: AttemptAt,
    /// The step of its stream, which devices know it by.
    pub step: u64,
    /// How many reports the sum is of.
    pub goal: u64,
    /// The limits on participation.
    pub limits: ParticipationLimits,
    /// The time limits.
    pub windows: Windows,
    /// What devices are told of the task.
    pub task: Blob,
    /// The model.
    pub model: Blob,
    /// What holds in this step.
    pub terms: Vec<u8>,
    /// Its secret.
    pub key: RoundKey,
    /// How reports are added up.
    pub aggregation: Aggregation,
}

/// How reports are aggregated.
#[derive(Debug)]
pub enum Aggregation {
    /// As they are, by a server that sees each.
    Plain(Encoding),
    /// By secure aggregation.
    Secure(Box<SecureDesk>),
}

/// The outcome of an attempt, before it is settled.
#[derive(Debug)]
pub enum Closed {
    /// The sum of the goal's reports.
    Sum(Sum, Vec<DeviceKey>),
    /// Secure aggregation has all that it needs to take the masks off, which takes a while.
    Masked(Box<super::secure::Unmasking>),
    /// It failed; these devices were assigned the task.
    Failed(FailureReason, Vec<DeviceKey>),
}

/// The progress of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The device has until this time to report.
    Working {
        /// When its time is over.
        until: u64,
    },
    /// Its report is in the sum.
    Arrived,
    /// Its report is in a sum that survives a crash.
    Merged,
    /// It came when the attempt needed no more.
    Late,
    /// Its time is over, or what it sent was none of it.
    Expired,
}

/// A device that was given the task.
#[derive(Debug)]
pub struct Place {
    /// The device's ticket.
    pub ticket: Ticket,
    /// The device's progress.
    pub progress: Progress,
    /// By when it was to report.
    until: u64,
    /// Whether anything of its input can have arrived: then it took part, whatever became of it.
    pub touched: bool,
    /// Whether it was given the task before a restart, and nothing is known of it since: it may not have heard of that.
    pub restored: bool,
    /// What it has said, for those who watch.
    pub(super) signs: Signs,
}

impl Place {
    /// Whether a device that knows of nothing is told again what it was given. One that has sent something refuses (rule P24).
    #[must_use]
    pub const fn may_not_know(&self) -> bool {
        !self.touched || self.restored
    }

    /// Something of its input has arrived.
    const fn touch(&mut self) {
        (self.touched, self.restored) = (true, false);
    }
}

/// What became of devices, as over-selection counts it: did they report in the time that others took?
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fates {
    /// Devices that reported, whether or not the report was still needed.
    pub reported: u64,
    /// Devices that did not report.
    pub dropped: u64,
    /// Devices that may still report.
    pub open: BTreeSet<Ticket>,
}

/// One attempt, while it is open.
#[derive(Debug)]
pub struct Desk {
    /// The parameters of the attempt.
    pub opening: Opening,
    places: BTreeMap<DeviceKey, Place>,
    tickets: BTreeMap<Ticket, DeviceKey>,
    /// Who is at work. Each report changes it by one, and nobody goes through thousands of places to count them.
    at_work: AtWork,
    sum: Option<Sum>,
    /// Reports in the sum.
    reports: u64,
    /// Whose reports are in the sum and not in a sum that survives a crash.
    fresh: Vec<DeviceKey>,
    merged_at: u64,
    opened_at: u64,
    /// When devices were given the task, first and last.
    assigned_at: Option<(u64, u64)>,
    dropped: u64,
    /// Masked inputs that were taken.
    inputs: u64,
    closed: Option<Closed>,
    over: bool,
}

/// Why a desk cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    /// The sum that was kept does not open, or a report does not fit.
    #[error(transparent)]
    Sum(#[from] EncodingError),
    /// The operating system has no randomness to give.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// Secure aggregation cannot begin.
    #[error("secure aggregation: {0}")]
    Secure(#[from] secagg::server::RoundFailure),
}

/// The outcome of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is in the sum.
    Added,
    /// The report is already in the sum.
    Known,
    /// It came too late, or the attempt needs no more.
    Late,
}

impl Desk {
    /// Opens an attempt; where a crash interrupted it, it continues from what was kept.
    ///
    /// # Errors
    /// When the sum that was kept does not open, or is not of those who are said to be in it.
    pub fn open(opening: Opening, kept: Option<OpenAttempt>, now: u64) -> Result<Self, DeskError> {
        let kept = kept.unwrap_or_else(|| none(opening.at));
        let sum = match &opening.aggregation {
            Aggregation::Plain(encoding) => Some(kept_sum(&kept, &opening.key, encoding)?),
            Aggregation::Secure(_) => None,
        };
        let OpenAttempt { assigned, merged, .. } = kept;
        let merged: BTreeSet<DeviceKey> = merged.into_iter().collect();
        let reports = merged.len() as u64;
        let mut desk = Self {
            reports,
            assigned_at: (!assigned.is_empty()).then_some((now, now)),
            places: BTreeMap::new(),
            tickets: BTreeMap::new(),
            at_work: AtWork::new(&opening.windows, opening.goal.saturating_sub(reports)),
            fresh: Vec::new(),
            merged_at: now,
            opened_at: now,
            dropped: 0,
            inputs: 0,
            closed: None,
            over: false,
            opening,
            sum,
        };
        for device in assigned {
            // What arrived before the crash and was not merged is not known: everybody counts.
            desk.place(device, merged.contains(&device), true, now);
        }
        desk.places.values_mut().for_each(|place| place.restored = true);
        desk.close_if_full();
        Ok(desk)
    }

    fn place(&mut self, device: DeviceKey, is_merged: bool, touched: bool, now: u64) {
        let ticket = self.opening.key.ticket(&self.opening.at, &self.model(), &device);
        let until = now + self.opening.windows.report_ms;
        self.tickets.insert(ticket, device);
        if !is_merged {
            self.at_work.begins(device, until);
        }
        let progress = if is_merged { Progress::Merged } else { Progress::Working { until } };
        let signs = Signs { completed: is_merged, ..Signs::default() };
        self.places.insert(device, Place { ticket, progress, until, touched, restored: false, signs });
    }

    /// The digest of the model.
    fn model(&self) -> [u8; 32] {
        self.opening.model.digest.as_slice().try_into().unwrap_or_default()
    }

    /// The device that the ticket belongs to.
    #[must_use]
    pub fn device(&self, ticket: &Ticket) -> Option<DeviceKey> {
        self.tickets.get(ticket).copied()
    }

    /// How far a device is, if it was given the task.
    #[must_use]
    pub fn of(&self, device: &DeviceKey) -> Option<&Place> {
        self.places.get(device)
    }

    /// Everybody who was given the task, in the order of their keys.
    pub fn assigned(&self) -> impl Iterator<Item = &DeviceKey> {
        self.places.keys()
    }

    /// The number of assigned devices.
    #[must_use]
    pub fn places(&self) -> u64 {
        self.places.len() as u64
    }

    /// Whether nothing more is wanted of devices.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Whether it is known what became of it, and nobody has taken it yet.
    #[must_use]
    pub const fn has_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// The outcome of the attempt, once.
    pub fn take_closed(&mut self) -> Option<Closed> {
        self.closed.take()
    }

    /// How many more devices are wanted. Devices that have been silent for long are not counted on; but they have not dropped out for certain, and
    /// never are more at work than the worst drop-out that is planned for needs: else a crowd that reports at once, and makes the others look silent, has
    /// everybody asked.
    #[must_use]
    pub fn wanted(&self, over: &OverSelection) -> u64 {
        if self.over {
            return 0;
        }
        match &self.opening.aggregation {
            Aggregation::Plain(_) => {
                let lacks = self.with_own(over).select(self.opening.goal - self.reports);
                let at_work = self.reports + self.at_work.counted_on() + self.at_work.silent();
                let room = OverSelection::most(self.opening.goal).saturating_sub(at_work);
                lacks.saturating_sub(self.at_work.counted_on()).min(room)
            }
            Aggregation::Secure(_) if self.assigned_at.is_some() => 0,
            Aggregation::Secure(secure) => {
                over.select(self.opening.goal).max(secure.least_clients()).min(secure.most_clients())
            }
        }
    }

    /// What was measured before, and here, once the fate of half of its devices is known: where more of them are lost than ever before, as many
    /// will be of those who are asked in their place.
    fn with_own(&self, over: &OverSelection) -> OverSelection {
        let mut over = *over;
        let lost = self.dropped + self.at_work.silent();
        if self.at_work.is_known() && lost > 0 && 2 * (self.reports + lost) >= self.places() {
            over.saw(self.reports, lost);
        }
        over
    }

    /// Whether devices were waited for long enough.
    #[must_use]
    pub fn has_waited(&self, now: u64) -> bool {
        now >= self.assigned_at.map_or(self.opened_at, |(_, last)| last) + self.opening.windows.select_ms
    }

    /// The bytes of a report of a device; none where none is expected of it now.
    #[must_use]
    pub fn report_bytes(&self, device: &DeviceKey) -> Option<usize> {
        match &self.opening.aggregation {
            Aggregation::Plain(encoding) => Some(encoding.packing().bytes()),
            Aggregation::Secure(secure) => secure.input_bytes(device),
        }
    }

    /// Everybody who was given the task, with their tickets.
    pub fn tickets(&self) -> impl Iterator<Item = (&DeviceKey, Ticket)> {
        self.places.iter().map(|(device, place)| (device, place.ticket))
    }

    /// How many of so many candidates are to be given the task now, where so many more are wanted.
    #[must_use]
    pub fn selects(&self, candidates: u64, wanted: u64, now: u64) -> u64 {
        let waited = candidates >= wanted || self.has_waited(now);
        let least = match &self.opening.aggregation {
            Aggregation::Plain(_) => self.opening.goal,
            Aggregation::Secure(secure) => secure.least_clients(),
        };
        let enough = self.reports + self.at_work.counted_on() + candidates >= least;
        // Fewer than the goal are asked for nothing.
        if waited && (enough || self.assigned_at.is_some()) { candidates.min(wanted) } else { 0 }
    }

    /// Devices are given the task: what is to be kept of that before any of them hears of it.
    ///
    /// # Errors
    /// When secure aggregation cannot begin.
    pub fn assign(&mut self, devices: &[DeviceKey], now: u64) -> Result<Write, DeskError> {
        for device in devices {
            self.place(*device, false, false, now);
        }
        self.assigned_at = Some((self.assigned_at.map_or(now, |(first, _)| first), now));
        if let Aggregation::Secure(secure) = &mut self.opening.aggregation {
            secure.begin(devices, &self.opening.windows, now)?;
        }
        Ok(Write::Assign { at: self.opening.at, devices: devices.to_vec() })
    }

    /// A part of a device's report is about to arrive. Returns whether it is wanted.
    pub fn begins(&mut self, device: &DeviceKey, now: u64) -> bool {
        let over = self.over;
        let Some(place) = self.places.get_mut(device) else { return false };
        // It has left its device, whether or not it is taken here.
        place.touch();
        place.signs.began = true;
        if over {
            self.comes_late(device, now);
        }
        let wants = self.wants(device, now);
        if !wants {
            self.refused(device);
        }
        wants
    }

    /// Whether a report of a device would be taken.
    #[must_use]
    pub fn wants(&self, device: &DeviceKey, now: u64) -> bool {
        let is_in_time = |place: &Place| matches!(place.progress, Progress::Working { until } if now <= until);
        !self.over && self.places.get(device).is_some_and(is_in_time)
    }

    /// The attempt is over, and a device that was at work has come in its own time: it has not dropped out.
    fn comes_late(&mut self, device: &DeviceKey, now: u64) {
        if let Some(place) = self.places.get_mut(device)
            && let Progress::Working { until } = place.progress
            && now <= until
        {
            place.progress = Progress::Late;
            self.at_work.ends(*device, until);
        }
    }

    /// Its report is not taken any more.
    pub(super) fn refused(&mut self, device: &DeviceKey) {
        if let Some(place) = self.places.get_mut(device) {
            place.signs.rejected = true;
        }
    }

    /// A device sent a malformed report, or one that breaks its bounds.
    pub fn broke_bounds(&mut self, device: &DeviceKey) {
        if let Some(place) = self.places.get_mut(device) {
            place.signs.wrong = true;
        }
        self.drop_out(device);
    }

    /// Nothing more is accepted from a device, and it counts as timed out.
    fn drop_out(&mut self, device: &DeviceKey) {
        if let Some(place) = self.places.get_mut(device)
            && let Progress::Working { until } = place.progress
        {
            place.progress = Progress::Expired;
            self.at_work.ends(*device, until);
            self.dropped += 1;
        }
    }

    /// A whole report, whose bounds were checked.
    ///
    /// # Errors
    /// When it is of another encoding.
    pub fn report(&mut self, device: &DeviceKey, report: &Encoded, now: u64) -> Result<Taken, DeskError> {
        let over = self.over;
        let Some(place) = self.places.get_mut(device) else { return Ok(Taken::Late) };
        place.touch();
        let until = match place.progress {
            Progress::Arrived | Progress::Merged => return Ok(Taken::Known),
            Progress::Working { until } if !over && now <= until => until,
            Progress::Working { .. } | Progress::Late | Progress::Expired => {
                place.signs.rejected = true;
                if over {
                    self.comes_late(device, now);
                }
                return Ok(Taken::Late);
            }
        };
        let Some(sum) = &mut self.sum else { return Ok(Taken::Late) };
        sum.add(report)?;
        (place.progress, place.signs.completed) = (Progress::Arrived, true);
        self.at_work.reports(*device, until, now);
        self.reports += 1;
        self.fresh.push(*device);
        self.close_if_full();
        Ok(Taken::Added)
    }

    fn close_if_full(&mut self) {
        if self.reports >= self.opening.goal
            && let Some(sum) = self.sum.take()
        {
            let devices = self.in_sum();
            // A device that is in it twice, or not on the list, would move the model farther than is accounted for.
            if !sum.is_of(devices.len() as u64) {
                return self.fail(FailureReason::Interrupted);
            }
            self.over = true;
            self.closed = Some(Closed::Sum(sum, devices));
        }
    }

    /// Whose reports are in the sum, in the order of their keys.
    fn in_sum(&self) -> Vec<DeviceKey> {
        let is_in = |place: &Place| matches!(place.progress, Progress::Arrived | Progress::Merged);
        self.places.iter().filter(|(_, place)| is_in(place)).map(|(device, _)| *device).collect()
    }

    /// The attempt fails.
    pub fn fail(&mut self, reason: FailureReason) {
        if !self.over {
            (self.over, self.sum) = (true, None);
            self.closed = Some(Closed::Failed(reason, self.places.keys().copied().collect()));
        }
    }

    /// Time passes: devices that are too late time out, those that are silent for too long are not counted on, and an attempt without
    /// progress is given up.
    pub fn tick(&mut self, now: u64) {
        if self.over {
            return;
        }
        if matches!(self.opening.aggregation, Aggregation::Secure(_)) {
            return self.tick_secure(now);
        }
        while let Some(device) = self.at_work.expires(now) {
            self.drop_out(&device);
        }
        self.at_work.passes(now);
        let given_up = |(first, _)| now > first + WINDOWS * self.opening.windows.report_ms;
        if self.assigned_at.is_some_and(given_up) {
            self.fail(FailureReason::BelowGoal);
        }
    }

    /// Whether or not anybody came until now, devices are waited for from now on.
    pub const fn waits_from(&mut self, now: u64) {
        if self.assigned_at.is_none() {
            self.opened_at = now;
        }
    }

    /// An attempt without any device is given up after the same time as a failed one.
    pub fn give_up_waiting(&mut self, now: u64) {
        if self.assigned_at.is_none() && now > self.opened_at + WINDOWS * self.opening.windows.report_ms {
            self.fail(FailureReason::BelowGoal);
        }
    }

    fn tick_secure(&mut self, now: u64) {
        let Aggregation::Secure(secure) = &mut self.opening.aggregation else { return };
        match secure.tick(now) {
            None => {}
            Some(Ok(unmasking)) => {
                self.over = true;
                self.closed = Some(Closed::Masked(Box::new(unmasking)));
            }
            Some(Err(reason)) => self.fail(reason),
        }
    }

    /// A message of secure aggregation, whichever way it came. None where there is none that is not over.
    pub fn secure_message(&mut self, device: &DeviceKey, message: &[u8]) -> Option<Result<(), Refusal>> {
        let Aggregation::Secure(secure) = &mut self.opening.aggregation else { return None };
        if self.over {
            return None;
        }
        // From here on it can be an input, and then its device took part.
        let (asks, awaits) = (secure.asks_for_inputs(), secure.awaits_inputs());
        let Some(place) = self.places.get_mut(device) else { return Some(secure.receive(device, message)) };
        if asks {
            place.touch();
        }
        let taken = secure.receive(device, message);
        if taken.is_ok() {
            self.inputs += u64::from(awaits && !place.signs.completed);
            place.signs.spoke = true;
            place.signs.completed |= awaits;
        }
        Some(taken)
    }

    /// The write that stores the sum now, with the devices whose reports are new in it.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub fn merge(&mut self, now: u64) -> Result<Option<Write>, DeskError> {
        let new = self.fresh.len();
        let waited = now >= self.merged_at + MERGE_EVERY_MS || new >= MERGE_AFTER;
        let Some(sum) = self.sum.as_ref().filter(|_| new >= LEAST_MERGED && waited) else { return Ok(None) };
        let at = self.opening.at;
        let sealed = sum.seal(&self.opening.key.seal(&at), &bound_to(&at, &self.in_sum()))?;
        let reports = std::mem::take(&mut self.fresh);
        for device in &reports {
            if let Some(place) = self.places.get_mut(device) {
                place.progress = Progress::Merged;
            }
        }
        self.merged_at = now;
        Ok(Some(Write::Merge { at, sealed, reports }))
    }

    /// When something happens by itself, at the latest.
    #[must_use]
    pub fn wakes_at(&self, now: u64) -> u64 {
        let soon = now + 1_000;
        if self.fresh.len() >= LEAST_MERGED { (self.merged_at + MERGE_EVERY_MS).min(soon) } else { soon }
    }

    /// What became of its devices: first of those who have been given as long as any of them is waited for, then of those who were asked
    /// later. In secure aggregation everything is known of all.
    #[must_use]
    pub fn fates(&self) -> [Fates; 2] {
        if let Aggregation::Secure(secure) = &self.opening.aggregation {
            let (reported, dropped) = secure.seen();
            return [Fates { reported, dropped, ..Fates::default() }, Fates::default()];
        }
        let mut fates = [Fates::default(), Fates::default()];
        for place in self.places.values() {
            let is_silent = self.at_work.is_silent(place.until);
            let of = &mut fates[usize::from(!is_silent)];
            match place.progress {
                Progress::Arrived | Progress::Merged => of.reported += 1,
                // Another one was asked in its place: over-selection is there so that this is not needed.
                Progress::Working { .. } | Progress::Late if is_silent => of.dropped += 1,
                Progress::Late => of.reported += 1,
                Progress::Expired => of.dropped += 1,
                Progress::Working { .. } => _ = of.open.insert(place.ticket),
            }
        }
        fates
    }

    /// How far it is, for those who watch.
    #[must_use]
    pub fn far(&self) -> Far {
        let (reported, dropped) = match &self.opening.aggregation {
            Aggregation::Plain(_) => (self.reports, self.dropped),
            Aggregation::Secure(secure) => (self.inputs, secure.seen().1),
        };
        Far { asked: self.places(), reported, dropped, since_ms: self.assigned_at.map(|(first, _)| first) }
    }

    /// How the parts of its devices went, but for these, and what these have said so far.
    pub(super) fn shapes(&self, but: &BTreeSet<Ticket>) -> (Shapes, BTreeMap<Ticket, Signs>) {
        let (mut shapes, mut signs) = (Shapes::default(), BTreeMap::new());
        for place in self.places.values() {
            if but.contains(&place.ticket) {
                signs.insert(place.ticket, place.signs);
            } else {
                shapes.count(place.signs.shape());
            }
        }
        (shapes, signs)
    }

    /// Until when devices that are still at work may report, before they count as dropped out.
    #[must_use]
    pub fn fates_known_at(&self, now: u64) -> u64 {
        now + self.at_work.patience_after(self.took(now))
    }

    /// It is settled: who was given the task and sent nothing at all.
    #[must_use]
    pub fn absent(&self) -> Vec<DeviceKey> {
        self.places.iter().filter(|(_, place)| !place.touched).map(|(device, _)| *device).collect()
    }

    /// How long it takes, in milliseconds, from when devices were given it. How long it waited for them does not count: where that made
    /// rounds longer, fewer would be called for the next one, and rounds would wait longer still.
    #[must_use]
    pub fn took(&self, now: u64) -> u64 {
        now.saturating_sub(self.assigned_at.map_or(self.opened_at, |(first, _)| first))
    }
}

/// Whether the sum that was kept of an attempt opens with its key, and is of those who are said to be in it.
#[must_use]
pub fn opens(kept: &OpenAttempt, key: &RoundKey, encoding: &Encoding) -> bool {
    kept_sum(kept, key, encoding).is_ok()
}

/// The sum that was kept, or that of nobody. Where it is of others than the list says, somebody would be asked again whose report it has.
fn kept_sum(kept: &OpenAttempt, key: &RoundKey, encoding: &Encoding) -> Result<Sum, EncodingError> {
    let OpenAttempt { at, assigned, merged, sealed } = kept;
    let (assigned, merged): (BTreeSet<DeviceKey>, BTreeSet<DeviceKey>) =
        (assigned.iter().copied().collect(), merged.iter().copied().collect());
    let sum = match sealed {
        None => Sum::zero(encoding),
        Some(sealed) => Sum::unseal(sealed, &key.seal(at), &bound_to(at, &merged), encoding)?,
    };
    if merged.is_subset(&assigned) && sum.is_of(merged.len() as u64) { Ok(sum) } else { Err(EncodingError::Sealed) }
}

fn none(at: AttemptAt) -> OpenAttempt {
    OpenAttempt { at, assigned: Vec::new(), merged: Vec::new(), sealed: None }
}

/// What a seal is bound to: the attempt, and whose reports are in the sum, in the order of their keys.
#[must_use]
pub fn bound_to<'a>(at: &AttemptAt, merged: impl IntoIterator<Item = &'a DeviceKey>) -> Vec<u8> {
    let mut list = Sha256::new_with_prefix(b"keyhush reports of a sum v1\0");
    merged.into_iter().for_each(|device| list.update(device.0));
    [&at.task.0[..], &at.round.to_le_bytes(), &at.attempt.to_le_bytes(), &list.finalize()[..]].concat()
}

#[cfg(test)]
mod tests {
    use device::guard::TaskDigest;
    use privacy::{Adjacency, ClipNorm, Participation, encoding::VectorPlan};
    use zeroize::Zeroizing;

    use super::*;

    /// A desk at which so many reports have arrived, at the very moment at which it was opened.
    fn with_reports(reports: u8) -> Desk {
        let clip = ClipNorm::new(1.0).unwrap();
        let encoding = Encoding::new(VectorPlan::of_update(1, 12), clip, None, Adjacency::ZeroOut).unwrap();
        let opening = Opening {
            at: AttemptAt { task: TaskDigest([1; 32]), round: 0, attempt: 0 },
            step: 0,
            goal: 200,
            limits: ParticipationLimits::try_from(&Participation::Once).unwrap(),
            windows: Windows { select_ms: 1, report_ms: 60_000, answer_ms: 1, tick_ms: 1 },
            task: Blob { digest: vec![1; 32], bytes: 1 },
            model: Blob { digest: vec![2; 32], bytes: 4 },
            terms: Vec::new(),
            key: RoundKey::new(Zeroizing::new([3; 32])),
            aggregation: Aggregation::Plain(encoding.clone()),
        };
        let mut desk = Desk::open(opening, None, 1_000).unwrap();
        let devices: Vec<DeviceKey> = (0..reports).map(|byte| DeviceKey([byte; 32])).collect();
        desk.assign(&devices, 1_000).unwrap();
        for device in &devices {
            let report = Encoded::of(vec![1], &encoding).unwrap();
            assert_eq!(desk.report(device, &report, 1_000).unwrap(), Taken::Added);
        }
        desk
    }

    /// Whose reports a merge holds so many milliseconds after the desk was opened; nobody's where there is none.
    fn merged(desk: &mut Desk, after_ms: u64) -> usize {
        match desk.merge(1_000 + after_ms).unwrap() {
            Some(Write::Merge { reports, .. }) => reports.len(),
            None => 0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn p20_a_sum_is_merged_when_16_reports_are_new_and_2_seconds_or_64_reports_have_passed() {
        for (reports, after_ms, expected) in [
            (15, 10_000, 0),
            (16, 1_900, 0),
            (16, 1_999, 0),
            (16, 2_000, 16),
            (63, 1_999, 0),
            (63, 2_000, 63),
            (64, 0, 64),
            (80, 0, 80),
        ] {
            let mut desk = with_reports(reports);
            assert_eq!(merged(&mut desk, after_ms), expected, "{reports} reports after {after_ms} ms");
            let again = if expected == 0 { usize::from(reports) * usize::from(reports >= 16) } else { 0 };
            assert_eq!(merged(&mut desk, after_ms + 2_000), again, "{reports} reports: what was merged is not new");
        }
    }

    #[test]
    fn a_desk_wakes_for_a_merge_that_is_due() {
        assert_eq!(with_reports(16).wakes_at(2_500), 3_000);
        assert_eq!(with_reports(15).wakes_at(2_500), 3_500);
    }
}
