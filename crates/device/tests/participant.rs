//! A device against a scripted server, without IO: the way of a part, every answer, hostile words, crashes.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use crate::participating::{self, Host, NO_LIMITS, Offered, REALM, later, packed, refused, wait};
use keyhush_device::{
    guard::{Limits, Window},
    protocol::{
        message::{Answer, Assignment, CHUNK, Realm, Reason, Says, Unsupported, Wants},
        participant::{Do, Event, Note, What},
        policy::Policy,
        terms::{Purpose, TaskTerms},
    },
    upload::UploadTerms,
};
use privacy::stages::Encoded;
use prost::Message;

/// A server takes a check-in once: what is said anew must be known from what was said before.
#[test]
fn no_two_requests_are_alike_also_within_a_second() {
    let mut host = Host::new(Policy::default(), 1);
    host.idle();
    let mut last = host.said().0;
    for _ in 0..3 {
        host.answer(later(0));
        let next = host.said().0;
        assert!((next.time_s, next.number) > (last.time_s, last.number), "{next:?} after {last:?}");
        last = next;
    }
}

#[test]
fn a_part_from_the_first_word_to_the_thanks() {
    let offered = Offered::new(3);
    let mut host = Host::new(Policy::default(), 1);
    host.idle();
    let began = host.now.up_ms;
    host.answer(later(30));
    assert!(matches!(host.said().1, Wants::CheckIn(_)));
    assert_eq!(host.now.up_ms, began + 30_000);

    let began = host.now.up_ms;
    let work = host.assigned(&offered, 7);
    host.now.up_ms += 1234;
    let encoded = host.train(&work);
    assert!(host.device.holds_input());
    // It leaves at a tick after the assignment, whenever training was done.
    let (offset, chunk) = host.sent();
    assert_eq!((offset, host.now.up_ms), (0, began + 5000));
    assert_eq!(chunk, encoded.to_bytes());
    assert!(Encoded::check(&chunk, &offered.step.encoding).is_ok());
    host.received(chunk.len() as u64);
    let (_, wants) = host.said();
    assert!(matches!(wants, Wants::Next(next) if next.ticket == [9; 32]));
    host.answer(wait(700));
    assert!(matches!(host.said().1, Wants::Next(_)));
    host.thank(9);
    assert!(!host.device.is_busy() && !host.device.holds_input());
    assert!(matches!(host.said().1, Wants::CheckIn(_)));
    let notes = host.device.notes();
    let purpose = Purpose::Training;
    let thanked = Note::Thanked { step: 7, eligible_from: 9, purpose };
    assert_eq!(notes, [Note::Enrolled, Note::Assigned { step: 7 }, Note::Gave { step: 7, purpose }, thanked]);
    let page = host.device.page(host.now);
    assert!(page.contains("tags of posts") && page.contains("step 7") && page.contains("it counts"), "{page}");

    // The next part fetches the model only. Step 8 is too soon, by the server's own words.
    host.answer(Says::Assignment(offered.assignment(8)));
    host.fetched(&offered, 8);
    assert!(host.refusals()[0].contains("until step 9"));
    let work = host.assigned(&offered, 9);
    assert_eq!(work.asked.step, 9);
}

#[test]
fn p24_the_guard_is_durable_before_the_first_byte_leaves() {
    let offered = Offered::new(3);
    let mut host = Host::new(Policy::default(), 1);
    let work = host.idle().assigned(&offered, 0);
    host.train(&work);
    assert_eq!(host.device.guard().inputs(), 0, "training costs nothing");
    host.sent();
    let log = host.log.borrow().clone();
    assert_eq!(log, ["diary saved", "diary saved", "guard saved", "sent 0"]);
}

#[test]
fn p24_what_cannot_be_made_durable_does_not_leave() {
    for fails in ["guard", "diary"] {
        let offered = Offered::new(3);
        let mut host = Host::new(Policy::default(), 1);
        let work = host.idle().assigned(&offered, 0);
        host.train(&work);
        let store = if fails == "guard" { &host.guard } else { &host.diary };
        *store.fails.borrow_mut() = true;
        assert!(matches!(host.wake(), Do::Say(_)), "{fails}");
        assert!(!host.device.holds_input());
        assert!(!host.log.borrow().iter().any(|line| line.starts_with("sent")));
        assert_eq!(host.refusals().len(), 1, "{fails}");
    }
}

#[test]
fn p24_after_a_crash_nothing_leaves_for_the_same_step_or_model() {
    let offered = Offered::new(3);
    for crash_after_sending in [false, true] {
        let mut host = Host::new(Policy::default(), 1);
        let work = host.idle().assigned(&offered, 4);
        host.train(&work);
        if crash_after_sending {
            host.sent();
        } else {
            // The permit is there, and the program ends before anything is sent.
            assert!(matches!(host.wake(), Do::Send { .. }));
        }
        let mut host = host.restarted();
        host.idle();
        for (step, model) in [(4, 4), (3, 3), (6, 4)] {
            let mut again = offered.assignment(step);
            again.model = offered.assignment(model).model;
            host.answer(Says::Assignment(again));
            assert!(matches!(host.fetched(&offered, model), Do::Say(_)));
            assert_eq!(host.refusals().len(), 1, "step {step} with the model of {model}");
        }
        assert_eq!(host.device.guard().inputs(), 1);
        // A part that is over before anything could leave has cost nothing.
        let work = host.assigned(&offered, 6);
        let mut host = host.restarted();
        host.idle();
        assert_eq!(host.assigned(&offered, 6).asked, work.asked);
    }
}

#[test]
fn a_report_goes_on_where_the_server_says() {
    let offered = Offered::new(8000);
    let mut host = Host::new(Policy::default(), 1);
    let work = host.idle().assigned(&offered, 0);
    let bytes = host.train(&work).to_bytes();
    assert_eq!(bytes.len(), 1_414_000);
    assert_eq!(host.sent(), (0, bytes[..CHUNK].to_vec()));
    // The connection breaks: the same again, and the server has some of it.
    host.got(Event::Broken);
    assert_eq!(host.sent().0, 0);
    host.received(1001);
    assert_eq!(host.sent(), (1001, bytes[1001..1001 + CHUNK].to_vec()));
    host.answer(wait(50));
    assert_eq!(host.sent().0, 1001);
    host.received(1001 + CHUNK as u64);
    let (offset, chunk) = host.sent();
    assert_eq!(chunk, bytes[1001 + CHUNK..]);
    host.answer(refused(Reason::Unexpected, 0));
    assert!(matches!(host.said().1, Wants::Next(_)));
    host.received(offset);
    assert_eq!(host.sent().0, offset);
    host.received(bytes.len() as u64);
    // The server has lost it, and the time is not over: the very same bytes once more.
    assert!(matches!(host.said().1, Wants::Next(_)));
    host.received(0);
    assert_eq!(host.sent(), (0, bytes[..CHUNK].to_vec()));
    assert_eq!(host.device.guard().inputs(), 1);
    host.received(bytes.len() as u64 + 1);
    assert!(host.refusals()[0].contains("more of the report"));
    assert!(!host.device.holds_input());
}

#[test]
fn an_input_is_kept_no_longer_than_its_time() {
    let offered = Offered::new(3);
    let mut host = Host::new(Policy::default(), 1);
    let work = host.idle().assigned(&offered, 0);
    let began = host.now.up_ms;
    let bytes = host.train(&work).to_bytes();
    host.sent();
    host.received(bytes.len() as u64);
    assert!(host.device.holds_input());
    host.now.up_ms = began + 60_000;
    assert!(matches!(host.said().1, Wants::Next(_)), "it may be thanked yet");
    assert!(!host.device.holds_input());
    host.received(0);
    assert!(matches!(host.said().1, Wants::Next(_)), "there is nothing to send any more");
    host.now.up_ms += 20 * 60_000;
    assert!(matches!(host.said().1, Wants::CheckIn(_)));
    assert!(host.device.notes().contains(&Note::TimeOver { step: 0 }));

    // One that is not ready in time does not leave, and costs nothing.
    let work = host.assigned(&offered, 2);
    host.now.up_ms += 61_000;
    host.train(&work);
    assert!(matches!(host.said().1, Wants::CheckIn(_)));
    let work = host.assigned(&offered, 2);
    host.now.up_ms += 58_000;
    host.train(&work);
    assert!(matches!(host.said().1, Wants::CheckIn(_)), "the next tick comes too late");
    assert_eq!(host.device.guard().inputs(), 1);
    // The host needs the device for something else.
    let work = host.assigned(&offered, 2);
    host.device.leave(host.now);
    host.train(&work);
    assert!(matches!(host.said().1, Wants::CheckIn(_)));
}

#[test]
fn a_download_goes_on_where_it_broke() {
    let offered = Offered::new(40);
    let mut host = Host::new(Policy::default(), 1);
    host.idle().answer(Says::Assignment(offered.assignment(0)));
    let task = packed(&offered.task());
    let mut at = 0;
    while at < task.len() {
        let Do::Fetch { offset, .. } = host.wake() else { panic!("it does not fetch") };
        assert_eq!(offset, at as u64);
        let end = (at + 300).min(task.len());
        host.got(Event::Piece(&task[at..end]));
        host.got(if end % 2 == 0 { Event::Broken } else { Event::Whole });
        at = end;
    }
    if matches!(host.wake(), Do::Fetch { offset: 1.., .. }) {
        host.got(Event::Whole);
    }
    assert!(matches!(host.fetched(&offered, 0), Do::Train(_)));
}

#[test]
fn clocks_are_set_by_the_server() {
    let mut host = Host::new(Policy::default(), 1);
    host.idle();
    // The device's own clock says something else altogether.
    assert!(host.said().0.time_s - 2_000_000_000 < 60);
    host.answer(refused(Reason::Clock, 2_000_500_000));
    let before = host.now;
    assert_eq!(host.said().0.time_s, 2_000_500_000);
    assert_eq!(host.now, before, "at once");
    host.now.up_ms += 60_000;
    host.now.clock_s = 5;
    assert_eq!(host.said().0.time_s, 2_000_500_060);
    for _ in 0..4 {
        host.answer(refused(Reason::Clock, 7));
    }
    let before = host.now.up_ms;
    host.said();
    assert!(host.now.up_ms > before, "a server that is never content is given time");
}

#[test]
fn refusals_of_the_server_are_heard() {
    let offered = Offered::new(3);
    let mut host = Host::new(Policy::default(), 1);
    host.idle();
    host.answer(refused(Reason::Stranger, 0));
    assert!(matches!(host.said().1, Wants::Enrol(_)));
    host.answer(refused(Reason::NotAdmitted, 0));
    let before = host.now.up_ms;
    assert!(matches!(host.said().1, Wants::Enrol(_)));
    assert!(host.now.up_ms > before + 3_600_000);
    host.answer(refused(Reason::Signature, 0));
    host.idle();
    host.answer(Says::Unsupported(Unsupported { oldest: 4, newest: 5 }));
    host.idle();
    let over = [Reason::Closed, Reason::Late, Reason::OutOfBounds, Reason::TooLong, Reason::Malformed];
    for (step, reason) in (0..).step_by(2).zip(over) {
        let work = host.assigned(&offered, step);
        host.train(&work);
        host.sent();
        host.answer(refused(reason, 0));
        assert!(!host.device.is_busy() && !host.device.holds_input(), "{reason:?}");
        assert!(matches!(host.said().1, Wants::CheckIn(_)));
        let said = Note::RefusedByServer { reason, words: "why  not".to_owned() };
        assert!(host.device.notes().contains(&said), "its words cannot ring a terminal's bell");
    }
    // A server in trouble: the part goes on.
    let mut host = Host::new(Policy::default(), 2);
    let work = host.idle().assigned(&offered, 0);
    host.train(&work);
    for reason in [Reason::Internal, Reason::TooMuch, Reason::Clock] {
        host.sent();
        host.answer(refused(reason, 2_000_000_000));
        assert!(host.device.holds_input(), "{reason:?}");
    }
    host.sent();
    host.thank(0);
    assert_eq!(host.device.guard().inputs(), 1);
}

#[test]
fn the_network_may_be_away_for_long() {
    let mut host = Host::new(Policy::default(), 1);
    let mut longest = 0;
    for _ in 0..40 {
        assert!(matches!(host.wake(), Do::Hello));
        let before = host.now.up_ms;
        host.got(Event::Broken);
        host.wake();
        longest = longest.max(host.now.up_ms - before);
    }
    assert!((300_000..=600_000).contains(&longest), "{longest}");
    host.idle();
    let before = host.now.up_ms;
    host.got(Event::Broken);
    host.wake();
    assert!(host.now.up_ms - before <= 1000, "what was long ago is forgotten");
}

#[test]
fn while_a_server_is_away_a_device_comes_no_more_often_than_it_was_told() {
    let mut host = Host::new(Policy::default(), 1);
    host.idle();
    let mut waits_after = |told_s: u64, event: fn() -> Event<'static>| -> Vec<u64> {
        host.wake();
        host.answer(later(told_s));
        let wait = |host: &mut Host| {
            host.wake();
            let before = host.now.up_ms;
            host.got(event());
            host.wake();
            host.now.up_ms - before
        };
        (0..5).map(|_| wait(&mut host)).collect()
    };
    let paced = waits_after(1000, || Event::Unreached);
    assert!(paced.iter().all(|ms| (500_000..=1_500_000).contains(ms)), "{paced:?}");
    assert!(paced.iter().max() != paced.iter().min(), "each is drawn anew: {paced:?}");
    // What answers without sense is no server either.
    let paced = waits_after(1000, || Event::Answer(b"<html>502 Bad Gateway</html>"));
    assert!(paced.iter().all(|ms| *ms >= 500_000), "{paced:?}");
    // Who is told to come back at once, or was with the server when it went away, is needed soon: waits double.
    for quick in [waits_after(1, || Event::Unreached), waits_after(1000, || Event::Broken)] {
        assert!(quick.iter().zip(0..).all(|(ms, n)| *ms <= (1000 << n).max(1500)), "{quick:?}");
    }
}

/// What is written before an input leaves takes longer the more text there is: the remaining text is written anew. The input used to leave right after.
#[test]
fn p26_how_long_it_takes_to_keep_what_was_used_does_not_show() {
    let offered = Offered::new(3);
    for (host_takes, leaves) in [(0, 5_000), (1, 5_000), (3_700, 5_000), (3_900, 10_000), (8_000, 10_000)] {
        let mut host = Host::new(Policy::default(), 1);
        let work = host.idle().assigned(&offered, 0);
        let began = host.now.up_ms;
        host.now.up_ms += 1_234;
        host.train(&work);
        assert!(matches!(host.next(), Do::Sleep { .. }));
        assert!(host.device.notes().contains(&Note::Gave { step: 0, purpose: Purpose::Training }));
        assert_eq!((host.device.guard().inputs(), host.device.holds_input()), (1, true));
        assert_eq!(host.log.borrow().last().unwrap(), "guard saved");
        host.now.up_ms += host_takes;
        host.sent();
        assert_eq!(host.now.up_ms - began, leaves, "the host took {host_takes} ms");
    }
    // What the host cannot keep does not leave.
    let mut host = Host::new(Policy::default(), 1);
    let work = host.idle().assigned(&offered, 0);
    host.train(&work);
    assert!(matches!(host.next(), Do::Sleep { .. }));
    host.got(Event::Withheld("the disk is full".to_owned()));
    assert!(!host.device.is_busy() && host.device.guard().inputs() == 1);
}

#[test]
fn an_input_that_its_host_keeps_back_does_not_leave_and_counts() {
    let offered = Offered::new(3);
    let mut host = Host::new(Policy::default(), 1);
    let work = host.idle().assigned(&offered, 0);
    host.train(&work);
    assert!(matches!(host.wake(), Do::Send { offset: 0, .. }));
    host.got(Event::Withheld("the disk is full".to_owned()));
    assert!(!host.device.is_busy() && !host.device.holds_input());
    assert_eq!(host.refusals(), ["the report was not sent: the disk is full"]);
    assert_eq!(host.device.guard().inputs(), 1);
}

#[test]
fn p24_the_device_has_limits_of_its_own_and_keeps_those_of_the_plan() {
    let offered = Offered::new(3);
    let give = |host: &mut Host, step: u64| {
        host.answer(Says::Assignment(offered.assignment(step)));
        let Do::Train(work) = host.fetched(&offered, step) else { return host.refusals().concat() };
        host.train(&work);
        host.sent();
        host.thank(0);
        host.said();
        String::new()
    };
    let mut host = Host::new(Policy::default(), 1);
    host.idle();
    assert_eq!(give(&mut host, 0), "");
    assert!(give(&mut host, 1).contains("2 apart"), "MinS of the plan");
    for step in [2, 4, 6, 8] {
        assert_eq!(give(&mut host, step), "");
    }
    assert!(give(&mut host, 10).contains("its plan allows 5"));

    let mut host = Host::new(Policy::default(), 2);
    host.settings.limits = Limits { most_inputs: 1, window: Window::Ever, ..NO_LIMITS };
    let mut host = host.restarted();
    host.idle();
    assert_eq!(give(&mut host, 0), "");
    assert!(give(&mut host, 2).contains("this device allows 1"));
    assert!(host.device.page(host.now).contains("1 in total"));
}

const LARGEST: UploadTerms = UploadTerms::Largest { momentum: 0.9, local_clip: None };

fn mask(coordinates: u64, keep_rest: bool) -> UploadTerms {
    UploadTerms::Mask { coordinates, seed: 1, keep_rest }
}

/// A way to spoil an assignment, and what the device says of it.
type Evil = (&'static str, fn(&mut Offered), fn(&mut keyhush_device::protocol::message::Assignment));

#[test]
fn hostile_assignments_are_refused_with_a_word_and_cost_nothing() {
    fn same(_: &mut Offered) {}
    fn kept(_: &mut keyhush_device::protocol::message::Assignment) {}
    let evil: Vec<Evil> = vec![
        ("32 bytes", same, |a| a.ticket = vec![1; 31]),
        ("no task", same, |a| a.task = None),
        ("no model", same, |a| a.model = None),
        ("expected 32", same, |a| a.model.as_mut().unwrap().digest.push(0)),
        ("this device accepts", same, |a| a.model.as_mut().unwrap().bytes = u64::MAX - 3),
        ("this device accepts", same, |a| a.task.as_mut().unwrap().bytes = 1 << 40),
        ("four bytes", same, |a| a.model.as_mut().unwrap().bytes = 7),
        ("beyond the 1000", same, |a| a.step = 1000),
        ("beyond the 1000", same, |a| a.step = u64::MAX),
        ("cannot be read", same, |a| a.terms = b"{}".to_vec()),
        ("cannot be read", same, |a| a.terms = vec![0xff; 100]),
        ("asks for counts", same, |a| {
            let terms = String::from_utf8(std::mem::take(&mut a.terms)).unwrap();
            a.terms = terms.replacen("\"dimension\"", "\"counts\":1,\"dimension\"", 1).into_bytes();
        }),
        ("offer of secure aggregation", same, |a| a.offer = vec![1, 2, 3]),
        ("digest mismatch", same, |a| a.task.as_mut().unwrap().digest[0] ^= 1),
        ("another server", |o| o.terms.realm = "00".repeat(32), kept),
        ("disagree", |o| o.terms.secure = true, kept),
        ("report goal", |o| o.terms.goal = 3, kept),
        ("for 404 numbers, but the task has 303", |o| o.step = participating::step_terms(404), kept),
        ("finite and above 0", |o| o.step.learning_rate = 0.0, kept),
        ("clipped to", |o| o.step.encoding = o.step.encoding.with_clip(privacy::ClipNorm::new(3.0).unwrap()), kept),
        ("vocabulary", |o| o.terms.vocabulary.push_str("w1\n"), kept),
        ("number of words", |o| o.terms.vocabulary.push_str(&"\n".repeat(1 << 19)), kept),
        (
            "epochs",
            |o| {
                o.terms.local.algorithm = keyhush_device::local::Algorithm::FedAvg { epochs: 1 << 20 };
            },
            kept,
        ),
        ("full_weight_tokens", |o| o.terms.full_weight_tokens = Some(0.0), kept),
        ("asks for few coordinates", |o| o.step.encoding = o.step.encoding.clone().with_few(9).unwrap(), kept),
        ("number of coordinates to send is missing", |o| o.terms.upload = Some(LARGEST), kept),
        ("for 303 numbers, but the task has 30", |o| o.terms.upload = Some(mask(30, false)), kept),
        ("a mask of at least one coordinate", |o| o.terms.upload = Some(mask(303, false)), kept),
        ("a mask of at least one coordinate", |o| o.terms.upload = Some(mask(0, true)), kept),
        ("in a secure sum", |o| (o.terms.secure, o.terms.upload) = (true, Some(LARGEST)), kept),
        ("in a secure sum", |o| (o.terms.secure, o.terms.upload) = (true, Some(mask(30, true))), kept),
        ("greedy", |o| (o.terms.local.greedy, o.terms.upload) = (true, Some(LARGEST)), kept),
        (
            "left out in an evaluation",
            |o| {
                o.terms.evaluation = Some(keyhush_device::evaluation::EvaluationPlan { most_examples: 50 });
                o.terms.upload = Some(mask(30, false));
            },
            kept,
        ),
        ("momentum", |o| o.terms.upload = Some(UploadTerms::Largest { momentum: 1.0, local_clip: None }), kept),
        ("local clip", |o| o.terms.upload = Some(UploadTerms::Largest { momentum: 0.0, local_clip: Some(0.0) }), kept),
    ];
    for (words, of_task, of_assignment) in evil {
        let mut offered = Offered::new(3);
        of_task(&mut offered);
        let mut assignment = offered.assignment(1);
        of_assignment(&mut assignment);
        let mut host = Host::new(Policy::default(), 1);
        host.idle().answer(Says::Assignment(assignment));
        for _ in 0..3 {
            if let Do::Fetch { what, .. } = host.next() {
                let task = what == keyhush_device::protocol::participant::What::Task;
                let bytes = if task { offered.task() } else { offered.model(1) };
                host.got(Event::Piece(&packed(&bytes)));
                host.got(Event::Whole);
            }
        }
        let said = host.refusals().concat();
        assert!(said.contains(words), "{words}: {said:?}");
        assert!(!host.device.is_busy());
        assert_eq!(host.device.guard().inputs(), 0, "{words}");
        assert_eq!(host.device.diary().refused().len(), 1, "{words}");
        assert!(matches!(host.said().1, Wants::CheckIn(_)), "to the server it is one that comes later");
    }
}

/// A plan of 1000 rounds with two from one input to the next has none for a device after its 999th, however few it gave.
#[test]
fn who_could_not_come_again_before_the_end_keeps_nothing_for_later() {
    let offered = Offered::new(3);
    for (step, is_last) in [(1, false), (997, false), (998, true), (999, true)] {
        let mut host = Host::new(Policy::default(), 1);
        assert_eq!(host.idle().assigned(&offered, step).is_last, is_last, "step {step}");
    }
}

#[test]
fn a_clip_that_is_no_number_is_no_step() {
    let offered = Offered::new(3);
    for (from, to) in [("0.5", "NaN"), ("0.5", "null"), ("0.5", "-1"), ("0.5", "1e999"), ("303", "1e12")] {
        let mut assignment = offered.assignment(1);
        let terms = String::from_utf8(assignment.terms).unwrap();
        assert!(terms.contains(from));
        assignment.terms = terms.replace(from, to).into_bytes();
        let mut host = Host::new(Policy::default(), 1);
        host.idle().answer(Says::Assignment(assignment));
        assert!(matches!(host.fetched(&offered, 1), Do::Say(_)));
        assert_eq!(host.refusals().len(), 1, "{to}");
    }
}

/// The longest that a server keeps a device away: a day, drawn anew from half to one and a half times that while nobody is there.
const MOST_AWAY_MS: u64 = 36 * 60 * 60 * 1000;

/// All answers that there are, at every point of a part: nothing breaks, nothing leaves that has not left, and nobody is silenced.
#[test]
fn every_answer_at_every_point() {
    let offered = Offered::new(3);
    let terms = |t: &TaskTerms| t.name.clone();
    assert_eq!(terms(&offered.terms), "tags of posts");
    let reasons = (0..12).map(|r| refused(Reason::try_from(r).unwrap(), 5));
    let answers = [
        Says::Enrolled(keyhush_device::protocol::message::Enrolled { after_s: u64::MAX }),
        later(u64::MAX),
        Says::Assignment(offered.assignment(3)),
        Says::Received(keyhush_device::protocol::message::Received { offset: u64::MAX }),
        Says::Received(keyhush_device::protocol::message::Received { offset: 0 }),
        wait(0),
        wait(u32::MAX),
        Says::Thanks(keyhush_device::protocol::message::Thanks { eligible_from_step: u64::MAX, after_s: u64::MAX }),
        Says::Secure(keyhush_device::protocol::message::SecureMessage { ticket: vec![9; 32], message: vec![1; 99] }),
        Says::Unsupported(Unsupported { oldest: 0, newest: u32::MAX }),
    ];
    let answers: Vec<Vec<u8>> = answers
        .into_iter()
        .chain(reasons)
        .map(|says| Answer::new(says).encode_to_vec())
        .chain([Vec::new(), vec![0xff; 40], vec![0; (1 << 20) + 1]])
        .collect();
    // How far a part comes before the answer: met, enrolled, idle, task, model, train, hold, send, ask.
    for point in 0..9 {
        for (which, answer) in answers.iter().enumerate() {
            let mut host = Host::new(Policy::default(), 1);
            let mut bytes = 0;
            if point >= 1 {
                host.wake();
                let hello = host.hello();
                host.got(Event::Answer(&hello));
            }
            if point >= 2 {
                host.answer(Says::Enrolled(keyhush_device::protocol::message::Enrolled { after_s: 0 }));
            }
            if point >= 3 {
                host.answer(Says::Assignment(offered.assignment(1)));
            }
            if point >= 4 {
                host.got(Event::Piece(&packed(&offered.task())));
                host.got(Event::Whole);
            }
            if point >= 5 {
                let Do::Train(work) = host.fetched(&offered, 1) else { panic!("{point}") };
                if point >= 6 {
                    bytes = host.train(&work).to_bytes().len();
                }
            }
            if point >= 7 {
                host.sent();
            }
            if point >= 8 {
                host.received(bytes as u64);
            }
            let had = host.device.guard().inputs();
            assert_eq!(had, usize::from(point >= 7));
            host.got(Event::Answer(answer));
            for event in 0..6 {
                // Whatever comes of it, it goes on; what it sends by itself is what it already gave.
                let before = host.now.up_ms;
                let next = host.wake();
                let away_ms = host.now.up_ms - before;
                assert!(away_ms <= MOST_AWAY_MS, "{point} {which}: it is away for {away_ms} ms");
                let sends = matches!(next, Do::Send { .. });
                assert!(!sends || host.device.guard().inputs() == 1, "{point} {which}");
                host.got(if event % 2 == 0 { Event::Broken } else { Event::Answer(answer) });
            }
            assert!(host.device.guard().inputs() <= 1, "{point} {which}");
        }
    }
}

/// A server can send a byte of a model now and then, for ever: the device ends its part when its time is over, in the midst of that too.
#[test]
fn a_download_that_drips_ends_with_the_time_for_the_part() {
    let offered = Offered::new(3);
    let mut host = Host::new(Policy::default(), 1);
    host.idle().answer(Says::Assignment(offered.assignment(0)));
    let Do::Fetch { what: What::Task, .. } = host.wake() else { panic!("it fetches nothing") };
    let task = packed(&offered.task());
    let ends_s = offered.assignment(0).within_ms / 1000;
    for (byte, second) in task.iter().zip(0..) {
        assert!(host.device.is_busy(), "after {second} s there is time left");
        host.got(Event::Piece(&[*byte]));
        host.now.up_ms += 1000;
        if !host.device.is_busy() {
            assert!((ends_s..ends_s + 2).contains(&second), "{second} s");
            assert!(host.device.notes().contains(&Note::TimeOver { step: 0 }));
            return;
        }
    }
    panic!("it waits for a task of {} bytes", task.len());
}

/// A device that was told which server to speak to says nothing to another, not even who it is.
#[test]
fn a_device_that_knows_its_realm_speaks_to_no_other() {
    for (realm, speaks) in [(REALM, true), (Realm([1; 32]), false)] {
        let mut host = Host::new(Policy::default(), 1);
        host.settings.realm = Some(realm);
        let mut host = host.restarted();
        assert!(matches!(host.wake(), Do::Hello));
        let hello = host.hello();
        host.got(Event::Answer(&hello));
        let next = host.next();
        assert_eq!(matches!(next, Do::Say(_)), speaks, "{realm:?}: {next:?}");
        if !speaks {
            let strange = Note::Strange("it comes from a different server");
            assert!(host.device.notes().contains(&strange));
        }
    }
}

/// A server cannot ask for ticks so short that they show how long training took, nor for more of a device's time than its policy gives.
#[test]
fn p26_ticks_are_no_shorter_and_parts_no_longer_than_the_policy_says() {
    let offered = Offered::new(3);
    let begin = |policy: Policy| {
        let mut host = Host::new(policy, 1);
        let (tick_ms, within_ms) = (1, u64::MAX);
        host.idle().answer(Says::Assignment(Assignment { tick_ms, within_ms, ..offered.assignment(0) }));
        let began = host.now.up_ms;
        let Do::Train(work) = host.fetched(&offered, 0) else { panic!("it does not train") };
        (host, began, work)
    };
    for took in [10, 990] {
        let (mut host, began, work) = begin(Policy::default());
        host.now.up_ms += took;
        host.train(&work);
        host.sent();
        assert_eq!(host.now.up_ms - began, 1000, "training took {took} ms");
    }
    let (mut host, _, work) = begin(Policy { most_seconds: 60, ..Policy::default() });
    host.now.up_ms += 61_000;
    host.train(&work);
    assert!(matches!(host.said().1, Wants::CheckIn(_)) && host.device.guard().inputs() == 0, "a minute is over");
}
