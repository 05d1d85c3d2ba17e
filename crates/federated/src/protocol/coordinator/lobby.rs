//! The lobby: available devices wait here, are assigned to attempts, or are told when to come back.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use device::{
    guard::TaskDigest,
    protocol::message::{Answer, CheckIn, DeviceKey, Enrol, Later, Reason, Says, Wait},
};

use super::{
    ASK_AGAIN_MS, Coordinator, CoordinatorError, MOST_PATIENCE_MS, NOT_NEEDED_S, Place, Progress, RequestId, Running,
    Standing, Waiting, part::assignment,
};
use crate::protocol::{admission::Full, pace::Calls};

/// While a task rests, devices come back after about so long, in seconds, if the server can bear so many.
const RESTS_S: f64 = 20.0;

impl Coordinator {
    pub(super) fn check_in(
        &mut self,
        request: RequestId,
        device: DeviceKey,
        check_in: &CheckIn,
        now: u64,
    ) -> Result<(), CoordinatorError> {
        // One whose enrolment is not durable yet is a stranger too: where it has to wait is written together with it (rule P18).
        if !self.store.is_enrolled(&device)? {
            self.refuse(request, Reason::Stranger, "the device is not enrolled here; enrol it", now);
            return Ok(());
        }
        if self.closing {
            self.later(request);
            return Ok(());
        }
        // What it was given and did not hear of, because the answer was lost, is said again.
        if let Some(says) = self.again(&device, now) {
            self.answer(request, says);
            return Ok(());
        }
        // Or soon, where that attempt is not open again yet.
        if self.returns(&device) {
            self.answer(request, Says::Later(Later { after_s: NOT_NEEDED_S }));
            return Ok(());
        }
        if let Some(before) = self.in_lobby.get(&device).copied() {
            self.leaves(before);
            self.later(before);
        }
        let rests: BTreeSet<TaskDigest> =
            self.tasks.keys().filter(|task| check_in.resting.iter().any(|rests| *rests == task.0)).copied().collect();
        let standings = self.may_be_needed(&device, &rests)?;
        if standings.is_empty() {
            // At once it would hear the same.
            let after_s = self.comes_back_after().max(NOT_NEEDED_S);
            self.answer(request, Says::Later(Later { after_s }));
            return Ok(());
        }
        let until = now + u64::from(check_in.patience_ms).min(MOST_PATIENCE_MS);
        for task in standings.keys() {
            if let Some(running) = self.tasks.get_mut(task) {
                running.waiting += 1;
            }
        }
        self.lobby.insert(request, Waiting { device, until, standings, rests });
        self.in_lobby.insert(device, request);
        self.select(now)
    }

    /// Whether a device is not enrolled, and its token lets it in: then it is worth asking others about it. Where there is no room for it in this
    /// hour it hears so, and nobody is asked.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn would_enrol(
        &mut self,
        from: Option<IpAddr>,
        device: &DeviceKey,
        enrol: &Enrol,
        now: u64,
    ) -> Result<Result<bool, Box<Answer>>, CoordinatorError> {
        if self.store.is_enrolled(device)? || self.admission.admits(device, enrol).is_err() {
            return Ok(Ok(false));
        }
        let room = self.enrolments.has_room(from, now);
        Ok(room.map(|_| true).map_err(|full| Box::new(self.is_full(full, now))))
    }

    /// Others were asked about a device that would enrol, and do not vouch for it. That counts for its address.
    pub fn was_not_attested(&mut self, from: Option<IpAddr>, now: u64) {
        self.enrolments.was_not_attested(from, now);
    }

    pub(super) fn is_full(&mut self, full: Full, now: u64) -> Answer {
        let after_s = full.after_s + self.comes_back_after();
        Answer::refused(Reason::TooMuch, full.words, now / 1000, after_s)
    }

    /// Before the server stops: waiting devices are told when to come back. From now on no device waits or is assigned anything, but reports
    /// are still accepted.
    pub fn close(&mut self) {
        self.closing = true;
        let lobby: Vec<RequestId> = self.lobby.keys().copied().collect();
        for request in lobby {
            self.leaves(request);
            self.later(request);
        }
        for (request, _) in std::mem::take(&mut self.waiters).into_values() {
            self.answer(request, Says::Wait(Wait { after_ms: ASK_AGAIN_MS }));
        }
    }

    /// Devices that wait in the lobby for tasks that take no devices now are told when to come back.
    pub(super) fn send_idle_away(&mut self) {
        let takes = |task: &TaskDigest| self.tasks.get(task).is_some_and(Running::takes_devices);
        let waits_for_nothing = |waiting: &Waiting| !waiting.standings.keys().any(takes);
        let idle: Vec<RequestId> =
            self.lobby.iter().filter(|(_, waiting)| waits_for_nothing(waiting)).map(|(request, _)| *request).collect();
        for request in idle {
            self.gave_up(request);
            self.later(request);
        }
    }

    /// All devices leave the lobby.
    pub(super) fn leaves(&mut self, request: RequestId) {
        let Some(waiting) = self.lobby.remove(&request) else { return };
        self.in_lobby.remove(&waiting.device);
        for task in waiting.standings.keys() {
            if let Some(running) = self.tasks.get_mut(task) {
                running.waiting = running.waiting.saturating_sub(1);
            }
        }
    }

    /// The assignment that a device has and works on, unless something of its report has arrived.
    fn again(&self, device: &DeviceKey, now: u64) -> Option<Says> {
        let desks = self.tasks.values().filter_map(|running| running.desk.as_ref());
        let desk = desks.into_iter().find(|desk| desk.of(device).is_some_and(Place::may_not_know))?;
        let place = desk.of(device).filter(|_| !desk.is_over())?;
        matches!(place.progress, Progress::Working { until } if now < until)
            .then(|| assignment(desk, place.ticket, place.progress, now))
            .flatten()
    }

    /// In which tasks a device could be given the attempt that is open, or that comes next, where there are not enough others; and where
    /// it stands in them. Those that it rests from it would refuse.
    fn may_be_needed(
        &self,
        device: &DeviceKey,
        rests: &BTreeSet<TaskDigest>,
    ) -> Result<BTreeMap<TaskDigest, Standing>, CoordinatorError> {
        let mut standings = BTreeMap::new();
        let takes = |(task, running): &(&TaskDigest, &Running)| running.takes_devices() && !rests.contains(task);
        for (task, running) in self.tasks.iter().filter(takes) {
            let wanted = match &running.desk {
                Some(desk) if !desk.is_over() => desk.wanted(&running.over),
                _ => running.over.select(running.asking.goal),
            };
            let next = match &running.desk {
                Some(desk) if desk.is_over() => desk.opening.at.round + 1,
                Some(desk) => desk.opening.at.round,
                None => running.round.unwrap_or(0),
            };
            // More than are wanted wait, so that one who leaves does not hold up the others.
            if running.waiting >= wanted * 2 + 2 || running.left_out.contains(device) {
                continue;
            }
            let standing = self.store.standing(task, device)?;
            // With as many as were declared nobody new is asked (rule P11).
            let is_known = standing.joined.is_some() || running.newcomers() > 0;
            if is_known && running.asking.limits.allow(&standing, next) {
                standings.insert(*task, standing);
            }
        }
        Ok(standings)
    }

    /// Devices that wait in the lobby for another task, and are eligible for the attempt that was just opened, wait for that too.
    pub(super) fn invite(&mut self, task: &TaskDigest) -> Result<(), CoordinatorError> {
        let Some(running) = self.tasks.get_mut(task).filter(|running| running.takes_devices()) else { return Ok(()) };
        let Some(round) = running.desk.as_ref().map(|desk| desk.opening.at.round) else { return Ok(()) };
        for waiting in self.lobby.values_mut() {
            let is_out = running.left_out.contains(&waiting.device) || waiting.rests.contains(task);
            if waiting.standings.contains_key(task) || is_out {
                continue;
            }
            let standing = self.store.standing(task, &waiting.device)?;
            let is_known = standing.joined.is_some() || running.newcomers() > 0;
            if is_known && running.asking.limits.allow(&standing, round) {
                waiting.standings.insert(*task, standing);
                running.waiting += 1;
            }
        }
        Ok(())
    }

    /// Devices of the lobby are given attempts that want them.
    pub(super) fn select(&mut self, now: u64) -> Result<(), CoordinatorError> {
        if self.closing {
            return Ok(());
        }
        let tasks: Vec<TaskDigest> = self.tasks.keys().copied().collect();
        for task in tasks {
            self.select_for(&task, now)?;
        }
        Ok(())
    }

    fn select_for(&mut self, task: &TaskDigest, now: u64) -> Result<(), CoordinatorError> {
        let Some(running) = self.tasks.get_mut(task).filter(|running| running.takes_devices()) else { return Ok(()) };
        let mut newcomers = running.newcomers();
        let Some(desk) = running.desk.as_mut().filter(|desk| !desk.is_over()) else { return Ok(()) };
        let enrolled = self.enrolled + self.enrolling.len() as u64;
        // Nobody is waited for who cannot come.
        let come = enrolled.min(running.asking.population);
        let wanted = desk.wanted(&running.over).min(come.saturating_sub(desk.places()));
        if wanted == 0 || (running.round.is_none() && enrolled < running.asking.begin_with) {
            return Ok(());
        }
        if running.waiting < wanted && !desk.has_waited(now) {
            return Ok(());
        }
        let round = desk.opening.at.round;
        let may = |waiting: &Waiting| {
            let standing = waiting.standings.get(task).filter(|_| !running.left_out.contains(&waiting.device));
            let allowed = standing.is_some_and(|standing| running.asking.limits.allow(standing, round));
            desk.of(&waiting.device).is_none() && allowed
        };
        let is_new = |waiting: &Waiting| waiting.standings.get(task).is_none_or(|standing| standing.joined.is_none());
        let mut has_room = |waiting: &Waiting| {
            let takes = u64::from(is_new(waiting));
            let fits = takes <= newcomers;
            newcomers -= if fits { takes } else { 0 };
            fits
        };
        let candidates = self.lobby.iter().filter(|(_, waiting)| may(waiting) && has_room(waiting));
        let mut chosen: Vec<(RequestId, DeviceKey, bool)> = candidates
            .map(|(request, waiting)| (*request, waiting.device, is_new(waiting)))
            .take(wanted as usize)
            .collect();
        chosen.truncate(desk.selects(chosen.len() as u64, wanted, now) as usize);
        if chosen.is_empty() {
            return Ok(());
        }
        let devices: Vec<DeviceKey> = chosen.iter().map(|(_, device, _)| *device).collect();
        self.batch.push(desk.assign(&devices, now)?);
        running.asked += chosen.iter().filter(|(_, _, is_new)| *is_new).count() as u64;
        running.round = Some(desk.opening.at.round);
        for (request, device, _) in &chosen {
            let place = desk.of(device).ok_or(CoordinatorError::NoTask)?;
            if let Some(says) = assignment(desk, place.ticket, place.progress, now) {
                self.answers.push((*request, Answer::new(says)));
            }
        }
        chosen.iter().for_each(|(request, _, _)| self.leaves(*request));
        Ok(())
    }

    /// When a device is to come back: drawn individually. Where more are wanted than wait, as soon as all of them together may.
    pub(super) fn comes_back_after(&mut self) -> u64 {
        let wanted = |running: &Running| running.over.select(running.asking.goal);
        let alive = || self.tasks.values().filter(|task| task.is_alive());
        let short = alive().any(|running| running.takes_devices() && running.waiting < wanted(running));
        let rests = self.tasks.values().any(Running::rests);
        // Before it is known how long rounds take, as many come as the server can take.
        let rate =
            |task: &Running| task.round_s.map_or(f64::INFINITY, |round_s| wanted(task) as f64 / round_s.max(1.0));
        let rate: f64 = alive().map(rate).sum();
        // While a round is open that wants nobody more, nobody is to be near.
        let together = alive().filter(|running| running.gathers()).map(wanted).max().unwrap_or(0);
        // Of a task that rests devices are not far away: it may continue, one that is broken as soon as the server was restarted.
        let per_second = match (short, rests) {
            (true, _) => f64::INFINITY,
            (false, true) => rate.max(self.enrolled as f64 / RESTS_S / self.pace.surplus),
            (false, false) => rate,
        };
        // SplitMix64: even, and good enough to spread devices.
        self.draw = self.draw.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.draw;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        let enrolled = self.enrolled + self.enrolling.len() as u64;
        self.pace.after_s(Calls { enrolled, per_second, together }, drawn)
    }
}
