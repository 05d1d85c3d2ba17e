//! A device that is told something: in each state that it can be in, it goes on or leaves, and nothing leaves it twice.

use keyhush_device::protocol::{
    message::{Assignment, Says},
    participant::{Do, Event, Note},
    policy::Policy,
};

use super::participating::{Host, Offered};

/// Whether what a device was told meant something to it.
fn hears(host: &mut Host, bytes: &[u8]) -> bool {
    let before = host.guard.bytes.borrow().clone();
    host.got(Event::Answer(bytes));
    // Whatever it was told, it wants something some time, and gives nothing for a word alone.
    let next = host.wake();
    assert_eq!(*host.guard.bytes.borrow(), before, "an answer alone let an input go");
    let strange = |note: &Note| matches!(note, Note::Strange(_));
    !host.device.notes().iter().any(strange) && !matches!(next, Do::Hello)
}

/// A device that has checked in.
pub(super) fn hears_idle(bytes: &[u8]) -> bool {
    let mut host = Host::new(Policy::default(), 1);
    host.idle().device.notes();
    hears(&mut host, bytes)
}

/// A device that has sent its report, and asks how it stands.
pub(super) fn hears_busy(bytes: &[u8]) -> bool {
    let offered = Offered::new(1);
    let mut host = Host::new(Policy::default(), 1);
    let work = host.idle().assigned(&offered, 7);
    host.train(&work);
    let (_, chunk) = host.sent();
    host.received(chunk.len() as u64);
    host.said();
    host.device.notes();
    hears(&mut host, bytes)
}

/// The terms of a step, as a server sends them: what is taken is trained by.
pub(super) fn step_terms(bytes: &[u8]) -> bool {
    let offered = Offered::new(1);
    let mut host = Host::new(Policy::default(), 1);
    host.idle();
    let assignment = Assignment { terms: bytes.to_vec(), ..offered.assignment(7) };
    host.answer(Says::Assignment(assignment));
    let next = host.fetched(&offered, 7);
    if let Do::Train(work) = &next {
        let encoded = host.train(work);
        assert!(privacy::stages::Encoded::check(&encoded.to_bytes(), &work.step.encoding).is_ok());
    }
    matches!(next, Do::Train(_))
}
