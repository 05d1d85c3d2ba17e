//! Incoming reports: whether one is wanted, what is expected of it, and what happens to it.
//!
//! A device is asked for its report once. Where what comes breaks its bounds, or the attempt has what it needs, that is the end of its part: it
//! hears so when it tries again, and takes up nobody's room.

use device::protocol::message::{Answer, Reason, Received, Says, Ticket, Wait};

use super::{
    ASK_AGAIN_MS, Aggregation, CLOSED, Coordinator, CoordinatorError, Expected, LATE, Progress, Report, RequestId,
};
use crate::protocol::desk::{Desk, Taken};

impl Coordinator {
    /// A report is about to arrive: what is expected of it, or what its device is to hear instead.
    ///
    /// # Errors
    /// The answer, where nothing is to be sent.
    pub fn begins(&mut self, ticket: &Ticket, now: u64) -> Result<Expected, Box<Answer>> {
        let refused = |reason, words: &str| Box::new(Answer::refused(reason, words, now / 1000, 0));
        if self.came_after_all(ticket) {
            return Err(refused(Reason::Late, LATE));
        }
        // Whose ticket it is cannot be known before the attempt of an earlier life of the server is open again.
        let returning = self.tasks.values().any(|running| !running.returning.is_empty());
        let Some((device, running)) = self.by_ticket(&ticket.0) else {
            let wait = || Box::new(Answer::new(Says::Wait(Wait { after_ms: ASK_AGAIN_MS })));
            return Err(if returning { wait() } else { refused(Reason::Closed, CLOSED) });
        };
        let Some(desk) = running.desk.as_mut() else {
            return Err(refused(Reason::Closed, CLOSED));
        };
        if let Some(Progress::Arrived | Progress::Merged) = desk.of(&device).map(|place| place.progress) {
            let offset = desk.report_bytes(&device).unwrap_or(0) as u64;
            return Err(Box::new(Answer::new(Says::Received(Received { offset }))));
        }
        if !desk.begins(&device, now) {
            return Err(refused(Reason::Late, LATE));
        }
        let encoding = match &desk.opening.aggregation {
            Aggregation::Plain(encoding) => Some(encoding.clone()),
            Aggregation::Secure(_) => None,
        };
        let bytes = desk
            .report_bytes(&device)
            .ok_or_else(|| refused(Reason::Unexpected, "no input is expected of this device now"))?;
        Ok(Expected { device, bytes, encoding })
    }

    /// Whether a report that has begun to arrive would still be taken.
    #[must_use]
    pub fn is_wanted(&self, ticket: &Ticket, now: u64) -> bool {
        let of = |desk: &Desk| desk.device(ticket).is_some_and(|device| desk.wants(&device, now));
        self.tasks.values().filter_map(|running| running.desk.as_ref()).any(of)
    }

    /// A report is malformed or breaks its bounds: its device has dropped out, and others are asked instead.
    pub fn broke_bounds(&mut self, ticket: &Ticket) {
        if let Some((device, running)) = self.by_ticket(&ticket.0)
            && let Some(desk) = running.desk.as_mut()
        {
            desk.broke_bounds(&device);
        }
    }

    /// A whole report.
    ///
    /// # Errors
    /// When the attempt cannot continue.
    pub fn report(
        &mut self,
        request: RequestId,
        ticket: &Ticket,
        report: &Report,
        now: u64,
    ) -> Result<(), CoordinatorError> {
        if self.came_after_all(ticket) {
            self.refuse(request, Reason::Late, LATE, now);
            return Ok(());
        }
        let Some((device, running)) = self.by_ticket(&ticket.0) else {
            self.refuse(request, Reason::Closed, CLOSED, now);
            return Ok(());
        };
        let Some(desk) = running.desk.as_mut() else { return Ok(()) };
        let refused = match report {
            Report::Plain(encoded) => match desk.report(&device, encoded, now)? {
                Taken::Added | Taken::Known => None,
                Taken::Late => Some((Reason::Late, LATE.to_owned())),
            },
            Report::Masked(bytes) => match desk.secure_message(&device, bytes) {
                Some(Ok(())) => None,
                Some(Err(why)) => {
                    desk.broke_bounds(&device);
                    Some((Reason::Unexpected, why.to_string()))
                }
                None => {
                    desk.refused(&device);
                    Some((Reason::Late, "the attempt is over".to_owned()))
                }
            },
        };
        match refused {
            Some((reason, words)) => self.refuse(request, reason, words, now),
            None => self.answer(request, Says::Received(Received { offset: report.bytes() })),
        }
        self.advance(now)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use device::{
        guard::TaskDigest,
        protocol::message::{Blob, CheckIn, DeviceKey, Next, Wants},
    };
    use privacy::{
        Adjacency, ClipNorm, Participation,
        encoding::{Encoding, VectorPlan},
        stages::Encoded,
    };
    use zeroize::Zeroizing;

    use super::*;
    use crate::protocol::{
        admission::Anybody,
        coordinator::Asking,
        desk::Opening,
        limits::ParticipationLimits,
        over_selection::OverSelection,
        pace::Pace,
        seen::{Progress, Seen, Shape, Shapes},
        store::{AttemptAt, MemoryStore, Store, Write},
        ticket::RoundKey,
        windows::Windows,
    };

    const TASK: TaskDigest = TaskDigest([1; 32]);
    const AT: AttemptAt = AttemptAt { task: TASK, round: 0, attempt: 0 };

    fn encoding() -> Encoding {
        let clip = ClipNorm::new(1.0).unwrap();
        Encoding::new(VectorPlan::of_update(1, 12), clip, None, Adjacency::ZeroOut).unwrap()
    }

    const DEVICES: [DeviceKey; 3] = [DeviceKey([1; 32]), DeviceKey([2; 32]), DeviceKey([3; 32])];

    fn limits() -> ParticipationLimits {
        ParticipationLimits::try_from(&Participation::Once).unwrap()
    }

    fn opening() -> Opening {
        Opening {
            at: AT,
            step: 0,
            goal: 2,
            limits: limits(),
            windows: Windows { select_ms: 100, report_ms: 1_000, answer_ms: 1_000, tick_ms: 1 },
            task: Blob { digest: TASK.0.to_vec(), bytes: 1 },
            model: Blob { digest: vec![9; 32], bytes: 4 },
            terms: Vec::new(),
            key: RoundKey::new(Zeroizing::new([3; 32])),
            aggregation: Aggregation::Plain(encoding()),
        }
    }

    const CHECK_IN: Wants = Wants::CheckIn(CheckIn { patience_ms: 30_000, resting: Vec::new() });

    fn started(store: Arc<dyn Store>, round: Option<u64>) -> Coordinator {
        let mut coordinator = Coordinator::new(store, Box::new(Anybody), Pace::default(), 1).unwrap();
        let asking = Asking { limits: limits(), goal: 2, begin_with: 1, population: 100 };
        coordinator.add_task(TASK, asking, round).unwrap();
        coordinator
    }

    /// A coordinator that wants two reports and has given the task to three devices, who have a second: their tickets.
    fn given_to_three() -> (Coordinator, [Ticket; 3]) {
        given_to_three_within(opening().windows)
    }

    fn given_to_three_within(windows: Windows) -> (Coordinator, [Ticket; 3]) {
        let tickets = DEVICES.map(|device| opening().key.ticket(&AT, &[9; 32], &device));
        let store = Arc::new(MemoryStore::new([7; 32]));
        store.commit(&DEVICES.map(|device| Write::Enrol { device, day: 1 })).unwrap();
        let mut coordinator = started(store, None);
        coordinator.open(Opening { windows, ..opening() }, 0).unwrap();
        for (request, device) in (1..).zip(DEVICES) {
            coordinator.said(request, device, &CHECK_IN, 0).unwrap();
        }
        assert_eq!(coordinator.flush().unwrap().len(), 3, "all are given it");
        (coordinator, tickets)
    }

    fn desk(coordinator: &Coordinator) -> &Desk {
        coordinator.tasks[&TASK].desk.as_ref().unwrap()
    }

    /// The reason that a device hears for its whole report, if any.
    fn reports(coordinator: &mut Coordinator, ticket: &Ticket, now: u64) -> Option<i32> {
        let nothing = Report::Plain(Encoded::of(vec![0], &encoding()).unwrap());
        coordinator.report(9, ticket, &nothing, now).unwrap();
        let (_, answer) = coordinator.flush().unwrap().pop().unwrap();
        match answer.says {
            Some(Says::Refused(refused)) => Some(refused.reason),
            _ => None,
        }
    }

    fn begins(coordinator: &mut Coordinator, ticket: &Ticket, now: u64) -> Option<i32> {
        match coordinator.begins(ticket, now).err()?.says {
            Some(Says::Refused(refused)) => Some(refused.reason),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_breaks_its_bounds_is_asked_no_more_and_another_one_is() {
        let (mut coordinator, tickets) = given_to_three();
        let wanted = |coordinator: &Coordinator| desk(coordinator).wanted(&OverSelection::default());
        let seen = |coordinator: &Coordinator| {
            let [_, fates] = desk(coordinator).fates();
            (fates.reported, fates.dropped)
        };
        assert_eq!((begins(&mut coordinator, &tickets[0], 1), wanted(&coordinator)), (None, 0));
        coordinator.broke_bounds(&tickets[0]);
        for now in [2, 3] {
            assert_eq!(begins(&mut coordinator, &tickets[0], now), Some(Reason::Late.into()), "it is not read again");
        }
        assert!(!coordinator.is_wanted(&tickets[0], 4));
        assert_eq!((wanted(&coordinator), seen(&coordinator)), (1, (0, 1)));
        assert_eq!(reports(&mut coordinator, &tickets[0], 4), Some(Reason::Late.into()));
        // Who is in the sum stays there, whatever comes in its name.
        assert_eq!(reports(&mut coordinator, &tickets[1], 5), None);
        coordinator.broke_bounds(&tickets[1]);
        assert_eq!((wanted(&coordinator), seen(&coordinator)), (1, (1, 1)));
        assert!(desk(&coordinator).absent().iter().all(|device| device.0 == [3; 32]), "who sent something took part");
    }

    /// A server that is started again is there before its attempt is: in between nobody knows a ticket of it. Devices that came then used to be told
    /// that there is no such attempt, and its report was lost.
    #[test]
    fn who_has_a_ticket_of_before_a_restart_waits_until_its_attempt_is_open_again() {
        let says = |coordinator: &mut Coordinator| coordinator.flush().unwrap().pop().unwrap().1.says.unwrap();
        let is_wait = |says: &Says| matches!(says, Says::Wait(wait) if (1..=5_000).contains(&wait.after_ms));
        let is_closed = |says: &Says| matches!(says, Says::Refused(r) if r.reason == i32::from(Reason::Closed));
        let next = |ticket: &Ticket| Wants::Next(Next { ticket: ticket.0.to_vec(), patience_ms: 30_000 });
        let restarted = || {
            let (before, tickets) = given_to_three();
            let mut coordinator = started(before.store, Some(0));
            coordinator.opens_again(&TASK).unwrap();
            (coordinator, tickets)
        };
        let (mut coordinator, tickets) = restarted();
        assert!(is_wait(&coordinator.begins(&tickets[0], 1).unwrap_err().says.unwrap()), "its chunk comes again");
        coordinator.said(1, DEVICES[0], &next(&tickets[0]), 1).unwrap();
        assert!(is_wait(&says(&mut coordinator)), "it asks again");
        coordinator.said(2, DEVICES[1], &CHECK_IN, 1).unwrap();
        assert!(matches!(says(&mut coordinator), Says::Later(later) if later.after_s == 1), "it is there soon");
        // Who has no part in it has nothing to wait for.
        coordinator.said(3, DeviceKey([4; 32]), &next(&tickets[0]), 1).unwrap();
        assert!(is_closed(&says(&mut coordinator)));
        coordinator.open(opening(), 2).unwrap();
        coordinator.flush().unwrap();
        assert!(coordinator.begins(&tickets[0], 3).is_ok());
        coordinator.said(4, DEVICES[1], &CHECK_IN, 3).unwrap();
        assert!(matches!(says(&mut coordinator), Says::Assignment(_)), "it is told what it was not");
        // An attempt that is never opened again is waited for by nobody: its end is in the ledger, or its task cannot continue.
        type Ends = fn(&mut Coordinator);
        let settles: Ends = |coordinator| coordinator.settle(&AT, &BTreeSet::new(), 2).unwrap();
        let forgets: Ends = |coordinator| coordinator.forget(&TASK, 2).unwrap();
        let breaks: Ends = |coordinator| coordinator.broke(&TASK, 2);
        for (ends, how) in [(settles, "settled"), (forgets, "forgotten"), (breaks, "broken")] {
            let (mut coordinator, tickets) = restarted();
            ends(&mut coordinator);
            coordinator.flush().unwrap();
            assert_eq!(begins(&mut coordinator, &tickets[0], 3), Some(Reason::Closed.into()), "{how}");
            coordinator.said(1, DEVICES[0], &next(&tickets[0]), 3).unwrap();
            assert!(is_closed(&says(&mut coordinator)), "{how}");
        }
    }

    /// A task that could not go on kept whoever waited for it in the lobby, and called others.
    #[test]
    fn nobody_is_called_for_a_task_that_cannot_go_on() {
        let says = |coordinator: &mut Coordinator| {
            let all = coordinator.flush().unwrap();
            all.into_iter().map(|(request, answer)| (request, answer.says.unwrap())).collect::<Vec<_>>()
        };
        let store = Arc::new(MemoryStore::new([7; 32]));
        store.commit(&DEVICES.map(|device| Write::Enrol { device, day: 1 })).unwrap();
        let mut coordinator = started(store, None);
        coordinator.said(1, DEVICES[0], &CHECK_IN, 0).unwrap();
        assert_eq!(says(&mut coordinator), [], "it waits for the first round");
        coordinator.broke(&TASK, 1);
        assert!(matches!(says(&mut coordinator)[..], [(1, Says::Later(_))]), "nobody waits");
        coordinator.said(2, DEVICES[1], &CHECK_IN, 2).unwrap();
        let [(2, Says::Later(ref later))] = says(&mut coordinator)[..] else { panic!("nobody is let in") };
        // While a task lacks devices, three of them come back within seconds. They are not sent away for long either: the next life of the
        // server, which may begin at once, would have none.
        assert!((5..=120).contains(&later.after_s), "{later:?}");
        // Whoever has a part in it is told that there is none, and the part stays where the next life of the server finds it.
        let (mut coordinator, tickets) = given_to_three();
        assert_eq!(reports(&mut coordinator, &tickets[0], 1), None);
        coordinator
            .said(3, DEVICES[0], &Wants::Next(Next { ticket: tickets[0].0.to_vec(), patience_ms: 9 }), 1)
            .unwrap();
        assert_eq!(says(&mut coordinator), []);
        coordinator.broke(&TASK, 2);
        let told = says(&mut coordinator);
        assert!(matches!(&told[..], [(3, Says::Refused(r))] if r.reason == i32::from(Reason::Closed)), "{told:?}");
        assert!(coordinator.kept(&TASK).unwrap().is_some_and(|kept| kept.assigned.len() == 3));
    }

    /// Who comes late has come: where it counted as dropped out, too many would be asked for ever.
    #[test]
    fn who_reports_late_has_not_dropped_out() {
        type Late = fn(&mut Coordinator, &Ticket, u64) -> Option<i32>;
        let both: [Late; 2] = [begins, reports];
        for (comes, settled_first) in both.into_iter().flat_map(|comes| [(comes, false), (comes, true)]) {
            let (mut coordinator, tickets) = given_to_three();
            assert!(tickets[..2].iter().all(|ticket| reports(&mut coordinator, ticket, 1).is_none()));
            assert!(coordinator.take_closed(&TASK).is_some() && !coordinator.is_wanted(&tickets[2], 2));
            let settle = |coordinator: &mut Coordinator| coordinator.settle(&AT, &BTreeSet::new(), 3).unwrap();
            if settled_first {
                settle(&mut coordinator);
            }
            assert_eq!(comes(&mut coordinator, &tickets[2], 4), Some(Reason::Late.into()));
            if !settled_first {
                settle(&mut coordinator);
            }
            assert_eq!(measured_at(&mut coordinator, 5_000), saw(3, 0), "settled first: {settled_first}");
        }
        // Who never comes has dropped out.
        let (mut coordinator, tickets) = given_to_three();
        tickets[..2].iter().for_each(|ticket| _ = reports(&mut coordinator, ticket, 1));
        coordinator.settle(&AT, &BTreeSet::new(), 3).unwrap();
        assert_eq!(measured_at(&mut coordinator, 5_000), saw(2, 1));
    }

    /// How the parts of an attempt went, as those who watch hear it: the counts of shapes, attempt and devices that were waited for together.
    fn how_parts_went(coordinator: &mut Coordinator) -> Vec<(&'static str, u64)> {
        let mut all = Shapes::default();
        for seen in coordinator.take_seen() {
            match seen {
                Seen::Settled { shapes, at, .. } | Seen::Ended { shapes, at } => {
                    assert_eq!(at, AT);
                    all += shapes;
                }
                Seen::Opened { .. } => {}
            }
        }
        Shape::ALL.into_iter().map(|shape| (shape.signs(), all.of(shape))).filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn p26_operators_see_how_parts_went_and_every_device_once() {
        let done = |coordinator: &mut Coordinator| coordinator.settle(&AT, &BTreeSet::from(DEVICES), 3).unwrap();
        // One breaks its bounds, two are in the sum.
        let (mut coordinator, tickets) = given_to_three();
        assert!(coordinator.begins(&tickets[0], 1).is_ok());
        coordinator.broke_bounds(&tickets[0]);
        assert!(tickets[1..].iter().all(|ticket| reports(&mut coordinator, ticket, 2).is_none()));
        done(&mut coordinator);
        let seen: Vec<Seen> = coordinator.take_seen().into();
        let [
            Seen::Opened { at: AT, goal: 2, secure: false },
            Seen::Settled { at: AT, released: true, progress, shapes },
        ] = seen[..]
        else {
            panic!("{seen:?}")
        };
        assert_eq!(progress, Progress { asked: 3, reported: 2, dropped: 1, since_ms: Some(0) });
        assert_eq!([Shape::Completed, Shape::Wrong].map(|shape| shapes.of(shape)), [2, 1]);
        // Two are in the sum, and what becomes of the third is known later.
        type Does = fn(&mut Coordinator, &Ticket);
        let comes: Does = |coordinator, ticket| _ = begins(coordinator, ticket, 4);
        for (does, before, then) in [(comes, false, "-v[]+#"), (|_, _| {}, true, "-v[]+!"), (|_, _| {}, false, "-!")] {
            let (mut coordinator, tickets) = given_to_three();
            if before {
                assert!(coordinator.begins(&tickets[2], 1).is_ok());
            }
            tickets[..2].iter().for_each(|ticket| _ = reports(&mut coordinator, ticket, 1));
            done(&mut coordinator);
            assert_eq!(how_parts_went(&mut coordinator), [("-v[]+^", 2)], "{then}: it may still come");
            does(&mut coordinator, &tickets[2]);
            coordinator.tick(5_000).unwrap();
            assert_eq!(how_parts_went(&mut coordinator), [(then, 1)]);
            coordinator.tick(50_000).unwrap();
            assert_eq!(how_parts_went(&mut coordinator), [], "{then}: nobody is counted twice");
        }
        // One that comes after its time was refused, and has not vanished.
        let (mut coordinator, tickets) = given_to_three();
        coordinator.tick(1_001).unwrap();
        assert_eq!(begins(&mut coordinator, &tickets[0], 1_002), Some(Reason::Late.into()));
        coordinator.settle(&AT, &BTreeSet::new(), 1_003).unwrap();
        assert_eq!(how_parts_went(&mut coordinator), [("-v[]+#", 1), ("-!", 2)]);
    }

    #[test]
    fn what_nobody_asks_for_is_not_kept_for_ever() {
        let (mut coordinator, _) = given_to_three();
        (0..10_000).for_each(|_| coordinator.saw(Seen::Ended { at: AT, shapes: Shapes::default() }));
        assert_eq!(coordinator.take_seen().len(), 256);
    }

    /// What was measured, at some time.
    fn measured_at(coordinator: &mut Coordinator, now: u64) -> OverSelection {
        coordinator.tick(now).unwrap();
        coordinator.tasks[&TASK].over
    }

    fn saw(reported: u64, dropped: u64) -> OverSelection {
        let mut seen = OverSelection::default();
        seen.saw(reported, dropped);
        seen
    }

    /// The quick were counted when their attempt was over, and those who had dropped out ten minutes later: nobody seemed to drop out, the next round asked
    /// for exactly its goal, and waited.
    #[test]
    fn the_quick_are_counted_together_with_those_who_never_come() {
        let windows = Windows { report_ms: 600_000, ..opening().windows };
        let settled = |now: u64| {
            let (mut coordinator, tickets) = given_to_three_within(windows);
            tickets[..2].iter().for_each(|ticket| _ = reports(&mut coordinator, ticket, now));
            coordinator.settle(&AT, &BTreeSet::new(), now).unwrap();
            (coordinator, tickets)
        };
        // Twice as long as the attempt took, and at least two seconds, a device that is still at work may come.
        for (took, known_at) in [(10_000, 30_000), (10, 2_010)] {
            let (mut coordinator, _) = settled(took);
            assert_eq!(measured_at(&mut coordinator, known_at), saw(0, 0));
            assert_eq!(measured_at(&mut coordinator, known_at + 1), saw(2, 1));
        }
        let (mut coordinator, tickets) = settled(10_000);
        assert_eq!(reports(&mut coordinator, &tickets[2], 29_000), Some(Reason::Late.into()));
        assert_eq!(measured_at(&mut coordinator, 29_001), saw(3, 0), "it was slow; nobody is waited for any more");
        let (mut coordinator, tickets) = settled(10_000);
        assert_eq!(measured_at(&mut coordinator, 30_001), saw(2, 1));
        assert_eq!(reports(&mut coordinator, &tickets[2], 30_002), Some(Reason::Closed.into()));
        assert_eq!(measured_at(&mut coordinator, 30_003), saw(2, 1), "a round that needed it would have waited for it");
    }

    /// The tickets of those who are given the task in a flush, by their requests.
    fn given(coordinator: &mut Coordinator) -> Vec<(u64, Ticket)> {
        let ticket = |answer: Answer| match answer.says {
            Some(Says::Assignment(assignment)) => Some(Ticket(assignment.ticket.try_into().unwrap())),
            _ => None,
        };
        let answers = coordinator.flush().unwrap().into_iter();
        answers.filter_map(|(request, answer)| Some((request, ticket(answer)?))).collect()
    }

    /// An attempt at a goal that has ten minutes for its reports, and so many devices that wait for it, of which the numbers are their requests.
    fn opened_to(devices: u8, goal: u64, seen: OverSelection) -> Coordinator {
        let store = Arc::new(MemoryStore::new([7; 32]));
        let keys: Vec<DeviceKey> = (1..=devices).map(|byte| DeviceKey([byte; 32])).collect();
        let enrol = |device: &DeviceKey| Write::Enrol { device: *device, day: 1 };
        store.commit(&keys.iter().map(enrol).collect::<Vec<_>>()).unwrap();
        let mut coordinator = Coordinator::new(store, Box::new(Anybody), Pace::default(), 1).unwrap();
        let asking = Asking { limits: limits(), goal, begin_with: 1, population: 1_000 };
        coordinator.add_task(TASK, asking, None).unwrap();
        coordinator.tasks.get_mut(&TASK).unwrap().over = seen;
        let windows = Windows { report_ms: 600_000, ..opening().windows };
        coordinator.open(Opening { goal, windows, ..opening() }, 0).unwrap();
        come_again(&mut coordinator, devices, 0);
        coordinator
    }

    /// All of so many devices check in, and wait in the lobby if they may be needed.
    fn come_again(coordinator: &mut Coordinator, devices: u8, now: u64) {
        for byte in 1..=devices {
            coordinator.said(byte.into(), DeviceKey([byte; 32]), &CHECK_IN, now).unwrap();
        }
    }

    /// A round that asked for exactly its goal waited ten minutes for those of its own who had dropped out.
    #[test]
    fn where_somebody_is_silent_for_long_another_one_is_asked_and_both_reports_are_taken() {
        let seen = saw(1_000_000, 0);
        let mut coordinator = opened_to(7, 4, seen);
        let first = given(&mut coordinator);
        assert_eq!(first.len(), 5, "nobody has dropped out until now: hardly more than the goal are asked");
        first[..2].iter().for_each(|(_, ticket)| assert_eq!(reports(&mut coordinator, ticket, 1_000), None));
        coordinator.tick(3_000).unwrap();
        assert_eq!(given(&mut coordinator), []);
        coordinator.tick(3_001).unwrap();
        let second = given(&mut coordinator);
        assert_eq!(second.iter().map(|(request, _)| *request).collect::<Vec<_>>(), [6, 7], "in place of three");
        assert_eq!(reports(&mut coordinator, &first[2].1, 3_500), None, "it was slow, and is in the sum");
        assert_eq!(reports(&mut coordinator, &second[0].1, 4_000), None);
        assert!(coordinator.has_closed(&TASK), "ten minutes early");
        // Who was silent when others were asked in its place has dropped out, whatever it does now.
        assert_eq!(reports(&mut coordinator, &first[3].1, 4_001), Some(Reason::Late.into()));
        coordinator.settle(&AT, &BTreeSet::new(), 4_002).unwrap();
        let mut measured = seen;
        measured.fade(7);
        measured.saw(3, 2);
        assert_eq!(coordinator.tasks[&TASK].over, measured);
        // What becomes of who was asked later is not known yet.
        assert_eq!(measured_at(&mut coordinator, 12_000), measured);
        assert_eq!(reports(&mut coordinator, &second[1].1, 12_001), Some(Reason::Late.into()));
        measured.saw(2, 0);
        assert_eq!(measured_at(&mut coordinator, 12_002), measured);
    }

    /// A crowd that reports at once makes all others look silent, every few seconds once more: everybody was asked, whose participation was used up.
    #[test]
    fn a_crowd_that_reports_at_once_does_not_have_everybody_asked() {
        let mut coordinator = opened_to(250, 10, saw(0, 0));
        let first = given(&mut coordinator);
        assert_eq!(first.len(), 13);
        first[..5].iter().for_each(|(_, ticket)| assert_eq!(reports(&mut coordinator, ticket, 1), None));
        let mut asked: BTreeSet<u64> = first.iter().map(|(request, _)| *request).collect();
        for now in (1_000..400_000).step_by(1_000) {
            coordinator.tick(now).unwrap();
            come_again(&mut coordinator, 250, now);
            asked.extend(given(&mut coordinator).into_iter().map(|(request, _)| request));
        }
        let asked = asked.len() as u64;
        assert!((14..=OverSelection::most(10)).contains(&asked), "{asked} devices were asked");
        // The honest ones take five minutes, and are in the sum.
        first[5..10].iter().for_each(|(_, ticket)| assert_eq!(reports(&mut coordinator, ticket, 400_000), None));
        assert!(coordinator.has_closed(&TASK));
    }

    /// A round whose devices drop out more often than those before asks for others in the light of that, and not again and again for as many
    /// as it lacks.
    #[test]
    fn a_round_learns_from_its_own_devices_how_many_to_ask_in_their_place() {
        for (known, expected) in [(100_000, 20..=24), (100, 35..=60)] {
            let mut coordinator = opened_to(250, 40, saw(known, 0));
            let first = given(&mut coordinator);
            assert!((41..=46).contains(&first.len()));
            first[..20].iter().for_each(|(_, ticket)| assert_eq!(reports(&mut coordinator, ticket, 1_000), None));
            coordinator.tick(3_001).unwrap();
            come_again(&mut coordinator, 250, 3_001);
            given(&mut coordinator);
            let asked = desk(&coordinator).places() - first.len() as u64;
            assert!(expected.contains(&asked), "{asked} in place of half, where {known} were known");
        }
    }
}
