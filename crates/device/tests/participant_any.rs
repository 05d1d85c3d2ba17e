//! Any sequence of events, hostile ones, crashes and any bytes: nothing panics, one input leaves for a step and a model, and nothing leaves
//! that the guard has not on record.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::sync::Arc;

use crate::participating::{self, Host, Offered, REALM, later, packed, refused, wait};
use keyhush_device::protocol::{
    message::{Answer, Enrolled, Received, Says, SecureMessage, Signed, Thanks},
    participant::{Do, Event, Note, What},
    policy::Policy,
    task::{Bounds, Model, Task},
    terms::{StepTerms, TaskTerms},
};
use privacy::stages::Encoded;
use proptest::prelude::*;
use prost::Message;

/// Something that happens.
#[derive(Debug, Clone)]
enum Happens {
    /// What was asked for is done.
    Done,
    /// The server says one of its words.
    Says(u8, u64),
    /// Any bytes instead of an answer.
    Bytes(Vec<u8>),
    /// Any bytes instead of a blob.
    Garbage(Vec<u8>),
    Broken,
    Passes(u32),
    Crash,
    Leave,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        8 => Just(Happens::Done),
        6 => (0..14u8, any::<u64>()).prop_map(|(which, number)| Happens::Says(which, number)),
        1 => proptest::collection::vec(any::<u8>(), 0..60).prop_map(Happens::Bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..60).prop_map(Happens::Garbage),
        1 => Just(Happens::Broken),
        1 => (0..200_000u32).prop_map(Happens::Passes),
        1 => Just(Happens::Crash),
        1 => Just(Happens::Leave),
    ]
}

fn said(offered: &Offered, which: u8, number: u64) -> Says {
    let mut assignment = offered.assignment(number % 8);
    assignment.model = offered.assignment(number / 8 % 4).model;
    match which {
        0..5 => Says::Assignment(assignment),
        5 => Says::Enrolled(Enrolled { after_s: number }),
        6 => later(number % 100),
        7 => Says::Received(Received { offset: number % 410 }),
        8 => Says::Received(Received { offset: 404 }),
        9 => wait(number as u32 % 5000),
        10 => Says::Thanks(Thanks { eligible_from_step: number % 9, after_s: number }),
        11 => Says::Secure(SecureMessage { ticket: vec![9; 32], message: number.to_le_bytes().to_vec() }),
        _ => {
            refused((number as i32 % 12).try_into().unwrap_or(keyhush_device::protocol::message::Reason::Late), number)
        }
    }
}

/// What a host does.
fn done(host: &mut Host, offered: &Offered) -> bool {
    match host.wake() {
        Do::Hello => {
            let hello = host.hello();
            host.got(Event::Answer(&hello));
        }
        Do::Fetch { what, wanted, offset } => {
            let bytes = match what {
                What::Task => offered.task(),
                What::Model => {
                    (0..4).map(|m| offered.model(m)).find(|m| participating::blob(m).digest == wanted.digest).unwrap()
                }
            };
            let packed = packed(&bytes);
            host.got(Event::Piece(&packed[(offset as usize).min(packed.len())..]));
            host.got(Event::Whole);
        }
        Do::Train(work) => {
            let zeros = vec![0; work.step.encoding.packing().bytes()];
            host.got(Event::Trained(Ok(Arc::new(Encoded::check(&zeros, &work.step.encoding).unwrap()))));
        }
        Do::Send { offset, chunk, .. } => {
            host.received(offset + chunk.len() as u64);
            return true;
        }
        Do::Say(bytes) => drop(Signed::open(&bytes, &REALM)),
        Do::Sleep { .. } => unreachable!(),
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn p24_whatever_happens_one_input_leaves_for_a_step(events in proptest::collection::vec(happens(), 1..60)) {
        let offered = Offered::new(1);
        let mut host = Host::new(Policy::default(), 1);
        let mut gave = Vec::new();
        for event in events {
            let mut sent = false;
            match event {
                Happens::Done => sent = done(&mut host, &offered),
                Happens::Says(which, number) => {
                    host.wake();
                    host.answer(said(&offered, which, number));
                }
                Happens::Bytes(bytes) => host.got(Event::Answer(&bytes)),
                Happens::Garbage(bytes) => {
                    host.got(Event::Piece(&bytes));
                    host.got(Event::Whole);
                }
                Happens::Broken => host.got(Event::Broken),
                Happens::Passes(ms) => host.now.up_ms += u64::from(ms),
                Happens::Crash => {
                    gave.extend(host.device.notes());
                    host = host.restarted();
                }
                Happens::Leave => host.device.leave(host.now),
            }
            host.next();
            gave.extend(host.device.notes());
            let steps: Vec<u64> = gave.iter().filter_map(|n| if let Note::Gave { step, .. } = n { Some(*step) } else { None }).collect();
            prop_assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
            prop_assert_eq!(steps.len(), host.device.guard().inputs());
            prop_assert_eq!(steps.len(), host.device.diary().given().len());
            prop_assert!(!sent || !steps.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        _ = Signed::open(&bytes, &REALM);
        _ = Answer::decode(&bytes[..]);
        _ = Task::read(&bytes, &Bounds::default());
        _ = Model::read(&bytes);
        _ = serde_json::from_slice::<StepTerms>(&bytes);
    }

    /// Terms in which one number is any other.
    #[test]
    fn any_terms_are_read_or_refused(at in any::<prop::sample::Index>(), number in any::<u64>(), float in any::<f64>()) {
        let offered = Offered::new(2);
        for text in [offered.task(), serde_json::to_vec(&offered.step).unwrap()] {
            let text = String::from_utf8(text).unwrap();
            // Numbers after a colon: not words of the vocabulary.
            let starts: Vec<usize> = text.match_indices(':').map(|(i, _)| i + 1).filter(|i| text.as_bytes()[*i].is_ascii_digit()).collect();
            let start = starts[at.index(starts.len())];
            let end = start + text[start..].find(|c: char| !(c.is_ascii_digit() || ".eE-+".contains(c))).unwrap();
            for other in [number.to_string(), float.to_string(), (number % 5).to_string()] {
                let changed = [&text[..start], &other, &text[end..]].concat();
                if let Ok(task) = Task::read(changed.as_bytes(), &Bounds::default()) {
                    prop_assert!(task.learner().layout().len() < 1 << 26);
                    let _: &TaskTerms = task.terms();
                }
                let mut assignment = offered.assignment(1);
                assignment.terms = changed.clone().into_bytes();
                let mut host = Host::new(Policy::default(), 1);
                host.idle().answer(Says::Assignment(assignment));
                host.fetched(&offered, 1);
                prop_assert_eq!(host.device.guard().inputs(), 0);
            }
        }
    }
}
