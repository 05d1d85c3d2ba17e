//! Test suites that every guard store and every learner must pass; they panic where a promise is broken. Behind the feature `contract`,
//! which no program enables.
#![allow(clippy::missing_panics_doc, reason = "all of it is there to panic")]
#![allow(clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod learner;

pub use self::learner::learner;
use crate::guard::{Asked, Guard, GuardError, Limits, ModelDigest, Now, Store, TaskDigest, Timer, Window};

/// The suite for stores, for one in which there is nothing. `make` reopens the same one, as a restart does; there is one at a time.
pub fn store<S: Store>(make: &dyn Fn() -> S) {
    assert_eq!(load(&mut make()), None, "it is not empty");
    a_guard_lives_in_it(make);
    for bytes in [&b"short"[..], &[7; 100_000], b"short again", &[0, 255, 10, 13], b""] {
        let mut store = make();
        load(&mut store);
        store.save(bytes).expect("it can be written");
        assert!(load(&mut store).as_deref() == Some(bytes), "another content than was saved");
        drop(store);
        assert!(load(&mut make()).as_deref() == Some(bytes), "a restart loses what was saved");
    }
    let mut store = make();
    load(&mut store);
    for bytes in [0, 7, 300_000] {
        store.has_room(bytes).expect("there is room");
        assert!(load(&mut store).as_deref() == Some(b""), "who asks for room changes what is kept");
    }
    for bytes in [&b"one"[..], b"two", b"three and more", b"four"] {
        store.save(bytes).expect("it can be written again and again");
    }
    drop(store);
    assert!(load(&mut make()).as_deref() == Some(b"four"), "the last that was saved is kept");
}

fn load(store: &mut impl Store) -> Option<Vec<u8>> {
    store.load().expect("it can be read")
}

const NOW: Now = Now { up_ms: 0, clock_s: 0 };

/// Rule P24, over restarts.
fn a_guard_lives_in_it<S: Store>(make: &dyn Fn() -> S) {
    let limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };
    let asked = |step: u8| Asked {
        task: TaskDigest([1; 32]),
        step: u64::from(step),
        model: ModelDigest::of(&[f32::from(step)]),
    };
    assert!(matches!(Guard::open(make()), Err(GuardError::Missing)), "there is no guard yet");
    drop(Guard::begin(make()).expect("a guard can be begun"));
    for step in 0..3 {
        let mut guard = Guard::open(make()).expect("a guard can be opened again");
        assert_eq!(guard.inputs(), usize::from(step));
        drop(guard.allow(asked(step), &limits, NOW).expect("an input for a new step"));
    }
    let mut guard = Guard::open(make()).expect("a guard can be opened again");
    for step in 0..3 {
        assert!(guard.allow(asked(step), &limits, NOW).is_err(), "a second input for a step");
    }
    drop(guard);
    assert!(Guard::begin(make()).is_err(), "a second guard in the same store");
}
