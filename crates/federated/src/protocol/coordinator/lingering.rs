//! Devices that were still at work when their attempt was over, and what those who watch hear of attempts.
//!
//! Over-selection counts the devices that were asked together once the fate of all is known (`over_selection`); operators see how the parts of devices
//! went ([`crate::protocol::seen`]). Both wait for the same devices, and for no longer.

use std::collections::{BTreeMap, VecDeque};

use device::{guard::TaskDigest, protocol::message::Ticket};

use super::{AttemptAt, Coordinator, Desk, Running};
use crate::protocol::{
    desk::Fates,
    seen::{Seen, Shape, Shapes, Signs, TaskNow},
};

/// What nobody asks for is forgotten: so many things at most are kept for those who watch.
const MOST_SEEN: usize = 256;

/// Devices that were asked together in an attempt that is over.
#[derive(Debug)]
pub(super) struct Lingering {
    at: AttemptAt,
    fates: Fates,
    /// What those have said whose fate is open.
    signs: BTreeMap<Ticket, Signs>,
    /// Who has not come until then, in milliseconds, has dropped out.
    until: u64,
}

impl Running {
    /// An attempt is over: what is known of its devices. Those who may still report are waited for.
    pub(super) fn linger(&mut self, desk: &Desk, released: bool, now: u64) -> Vec<Seen> {
        let (at, until, fates) = (desk.opening.at, desk.fates_known_at(now), desk.fates());
        let open = fates.iter().flat_map(|fates| &fates.open).copied().collect();
        let (shapes, mut all_signs) = desk.shapes(&open);
        self.lingering.extend(fates.map(|fates| {
            let mine = |ticket: &Ticket| Some((*ticket, all_signs.remove(ticket)?));
            let signs = fates.open.iter().filter_map(mine).collect();
            Lingering { at, fates, signs, until }
        }));
        let settled = Seen::Settled { at, released, progress: desk.far(), shapes };
        std::iter::once(settled).chain(self.count_lingering(now)).collect()
    }

    /// Counts the devices of attempts that are over, once the fate of all is known: a device that has not come until then has dropped out.
    fn count_lingering(&mut self, now: u64) -> Vec<Seen> {
        let (over, mut ended) = (&mut self.over, Vec::new());
        self.lingering.retain(|Lingering { at, fates, signs, until }| {
            let is_known = fates.open.is_empty() || now > *until;
            if is_known {
                over.saw(fates.reported, fates.dropped + fates.open.len() as u64);
                let mut shapes = Shapes::default();
                signs.values().for_each(|signs| shapes.count(signs.shape()));
                ended.extend((shapes.total() > 0).then_some(Seen::Ended { at: *at, shapes }));
            }
            !is_known
        });
        ended
    }
}

impl Coordinator {
    /// Time passes for those who are waited for after their attempt.
    pub(super) fn count_all_lingering(&mut self, now: u64) {
        let ended: Vec<_> = self.tasks.values_mut().flat_map(|running| running.count_lingering(now)).collect();
        ended.into_iter().for_each(|seen| self.saw(seen));
    }

    /// Whether it is of a device that was still at work when its attempt was over: it has not dropped out.
    pub(super) fn came_after_all(&mut self, ticket: &Ticket) -> bool {
        let mut lingering = self.tasks.values_mut().flat_map(|running| &mut running.lingering);
        let Some(came) = lingering.find(|lingering| lingering.fates.open.contains(ticket)) else { return false };
        came.fates.open.remove(ticket);
        came.fates.reported += 1;
        came.signs.remove(ticket);
        let (at, mut shapes) = (came.at, Shapes::default());
        shapes.count(Shape::Rejected);
        self.saw(Seen::Ended { at, shapes });
        true
    }

    pub(super) fn saw(&mut self, seen: Seen) {
        if self.seen.len() == MOST_SEEN {
            self.seen.pop_front();
        }
        self.seen.push_back(seen);
    }

    /// What happened to attempts since this was asked last, for those who watch. Only the latest is kept where nobody asks.
    #[must_use]
    pub fn take_seen(&mut self) -> VecDeque<Seen> {
        std::mem::take(&mut self.seen)
    }

    /// How each task stands now, for those who watch.
    pub fn now(&self) -> impl Iterator<Item = (TaskDigest, TaskNow)> {
        self.tasks.iter().map(|(task, running)| {
            let open = running.desk.as_ref().map(|desk| (desk.opening.at, desk.far()));
            (*task, TaskNow { waiting: running.waiting, open })
        })
    }

    /// How many devices are enrolled, and how many wait in the lobby.
    #[must_use]
    pub fn devices_now(&self) -> (u64, u64) {
        (self.enrolled, self.lobby.len() as u64)
    }
}
