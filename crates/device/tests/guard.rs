//! One input for a step, ever: each reason to refuse, damage, and any sequence of requests, failures and restarts.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    rc::Rc,
};

use keyhush_device::{
    contract,
    guard::{
        Asked, Damage, Day, Guard, GuardError, Limits, MemoryStore, ModelDigest, Now, Refused, Store, StoreError,
        TaskDigest, Timer, Window,
    },
};
use privacy::units::MinSeparation;
use proptest::prelude::*;

const NO_LIMITS: Limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };

fn asked(task: u8, step: u64, model: u8) -> Asked {
    Asked { task: TaskDigest([task; 32]), step, model: ModelDigest::of(&[f32::from(model)]) }
}

fn begun() -> Guard<Failing> {
    begun_in(&Failing::default())
}

fn begun_in(store: &Failing) -> Guard<Failing> {
    Guard::begin(store.clone()).unwrap()
}

fn days(most_inputs: u32, days: u32) -> Limits {
    Limits { most_inputs, window: Window::Days(NonZeroU32::new(days).unwrap()), separation: None, timer: Timer::NONE }
}

/// The day with this number.
fn day(number: u32) -> Now {
    Now { up_ms: 0, clock_s: u64::from(number) * 86_400 }
}

fn allowed<S: Store>(guard: &mut Guard<S>, asked: Asked, limits: &Limits, on: u32) -> Result<(), Refused> {
    let checked = guard.check(&asked, limits, day(on));
    let told = guard.allow(asked, limits, day(on)).map(|permit| assert_eq!(*permit.let_go(()).asked(), asked));
    assert!(checked == told || matches!(told, Err(Refused::NotSaved(_))), "{checked:?}, and then {told:?}");
    told
}

#[test]
fn p24_a_step_is_given_once_and_steps_only_go_forward() {
    let mut guard = begun();
    allowed(&mut guard, asked(1, 5, 1), &NO_LIMITS, 0).unwrap();
    for step in [5, 4, 0] {
        let refused = allowed(&mut guard, asked(1, step, 2), &NO_LIMITS, 0);
        assert_eq!(refused, Err(Refused::Step { step, last: 5 }));
    }
    allowed(&mut guard, asked(1, 6, 2), &NO_LIMITS, 0).unwrap();
    allowed(&mut guard, asked(2, 5, 3), &NO_LIMITS, 0).unwrap();
    allowed(&mut guard, asked(1, u64::MAX, 4), &NO_LIMITS, 0).unwrap();
    assert_eq!(guard.inputs(), 4);
}

#[test]
fn p24_a_model_is_given_for_once_whatever_it_is_called() {
    let mut guard = begun();
    allowed(&mut guard, asked(1, 0, 9), &NO_LIMITS, 0).unwrap();
    // A failed step that is called the next one, and a task that begins with the same model.
    for again in [asked(1, 1, 9), asked(2, 0, 9), asked(3, 7, 9)] {
        assert_eq!(allowed(&mut guard, again, &NO_LIMITS, 400), Err(Refused::Model));
    }
    allowed(&mut guard, asked(2, 0, 8), &NO_LIMITS, 0).unwrap();
}

#[test]
fn the_digest_of_a_model_is_of_its_bits() {
    let of = ModelDigest::of;
    assert_eq!(of(&[1.0; 3000]), of(&[1.0; 3000]));
    let others =
        [of(&[1.0, 2.0]), of(&[2.0, 1.0]), of(&[1.0]), of(&[]), of(&[0.0]), of(&[-0.0]), of(&[1.0 + f32::EPSILON])];
    assert_eq!(BTreeSet::from(others).len(), others.len());
    // SHA-256 of the four bytes of 1.0: what an offer of secure aggregation says of the model.
    let known: String = of(&[1.0]).as_bytes().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(known, "e00e5eb9444182f352323374ef4e08ebcb784725fdd4fd612d7730540b3e0c8c");
}

#[test]
fn p24_inputs_count_over_all_tasks_whatever_became_of_them() {
    let mut guard = begun();
    let limits = Limits { most_inputs: 3, ..NO_LIMITS };
    for task in 1..4 {
        // Nobody tells the guard what became of the attempt: there is no way to.
        allowed(&mut guard, asked(task, 0, task), &limits, 0).unwrap();
    }
    for day in [0, 1, 1000, u32::MAX] {
        let refused = allowed(&mut guard, asked(4, 0, 4), &limits, day);
        assert_eq!(refused, Err(Refused::TooMany { have: 3, most: 3 }));
    }
    assert_eq!(allowed(&mut begun(), asked(1, 0, 1), &days(0, 1), 0), Err(Refused::TooMany { have: 0, most: 0 }));
}

#[test]
fn p24_a_window_ends_after_its_days_and_not_before() {
    let mut guard = begun();
    let limits = days(2, 7);
    allowed(&mut guard, asked(1, 0, 0), &limits, 100).unwrap();
    allowed(&mut guard, asked(2, 0, 1), &limits, 103).unwrap();
    for day in 103..107 {
        assert_eq!(allowed(&mut guard, asked(3, 0, 2), &limits, day), Err(Refused::TooMany { have: 2, most: 2 }));
    }
    allowed(&mut guard, asked(3, 0, 2), &limits, 107).unwrap();
    assert!(allowed(&mut guard, asked(3, 1, 3), &limits, 109).is_err());
    // A device that becomes stricter counts what left before.
    assert_eq!(allowed(&mut guard, asked(3, 1, 3), &days(3, 8), 107), Err(Refused::TooMany { have: 3, most: 3 }));
    // The last days that can be written overflow nothing.
    allowed(&mut guard, asked(3, 1, 3), &days(1, u32::MAX), u32::MAX).unwrap_err();
    allowed(&mut guard, asked(3, 1, 3), &days(1, 1), u32::MAX).unwrap();
}

#[test]
fn p24_time_that_runs_backwards_frees_nothing() {
    let limits = days(1, 7);
    let mut guard = begun();
    allowed(&mut guard, asked(1, 0, 0), &limits, 100).unwrap();
    for day in (0..107).rev() {
        assert_eq!(allowed(&mut guard, asked(2, 0, 1), &limits, day), Err(Refused::TooMany { have: 1, most: 1 }));
    }
    // What leaves while the clock is back counts from the last day on record.
    allowed(&mut guard, asked(2, 0, 1), &days(2, 7), 10).unwrap();
    let refused = allowed(&mut guard, asked(3, 0, 2), &days(2, 7), 106);
    assert_eq!(refused, Err(Refused::TooMany { have: 2, most: 2 }));
    allowed(&mut guard, asked(3, 0, 2), &limits, 107).unwrap();
}

#[test]
fn p6_steps_of_a_task_are_kept_apart_where_the_device_asks_for_it() {
    let apart = |s| Limits { separation: Some(MinSeparation::rounds_between(s).unwrap()), ..NO_LIMITS };
    let mut guard = begun();
    allowed(&mut guard, asked(1, 10, 0), &apart(3), 0).unwrap();
    for step in 11..14 {
        let refused = allowed(&mut guard, asked(1, step, 1), &apart(3), 0);
        assert_eq!(refused, Err(Refused::TooSoon { step, last: 10, distance: 4 }));
    }
    allowed(&mut guard, asked(2, 11, 1), &apart(3), 0).unwrap();
    allowed(&mut guard, asked(1, 14, 2), &apart(3), 0).unwrap();
    allowed(&mut guard, asked(1, 15, 3), &apart(0), 0).unwrap();
    assert!(allowed(&mut guard, asked(1, u64::MAX, 4), &apart(u64::MAX - 1), 0).is_err());
}

/// A store that can be told that its next save fails: the new bytes are kept or lost. Clones are the same store.
#[derive(Debug, Clone, Default)]
struct Failing {
    bytes: Rc<RefCell<Option<Vec<u8>>>>,
    next: Rc<Cell<Option<bool>>>,
}

impl Failing {
    fn bytes(&self) -> Vec<u8> {
        self.bytes.borrow().clone().unwrap()
    }
}

impl Store for Failing {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.bytes.borrow().clone())
    }

    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let fault = self.next.take();
        if fault != Some(false) {
            self.bytes.replace(Some(bytes.to_vec()));
        }
        let failed = StoreError::Failed { doing: "save", place: "nowhere".into(), problem: "no power".into() };
        fault.map_or(Ok(()), |_| Err(failed))
    }
}

#[test]
fn a_store_in_memory_keeps_the_contract() {
    let store = Failing::default();
    contract::store(&|| store.clone());
}

#[test]
fn p24_what_is_not_durable_does_not_leave() {
    for kept in [false, true] {
        let store = Failing::default();
        let mut guard = Guard::begin(store.clone()).unwrap();
        store.next.set(Some(kept));
        let refused = guard.allow(asked(1, 0, 0), &NO_LIMITS, day(0)).unwrap_err();
        assert!(matches!(refused, Refused::NotSaved(_)), "{refused}");
        for next in [asked(1, 0, 0), asked(1, 1, 1), asked(2, 0, 2)] {
            assert_eq!(allowed(&mut guard, next, &NO_LIMITS, 0), Err(Refused::Unsure));
        }
        // What may have been saved counts; what was not may leave, for the first time.
        let mut guard = Guard::open(store).unwrap();
        assert_eq!(allowed(&mut guard, asked(1, 0, 0), &NO_LIMITS, 0).is_err(), kept);
        allowed(&mut guard, asked(1, 1, 1), &NO_LIMITS, 0).unwrap();
    }
}

#[test]
fn p24_the_input_is_on_record_before_there_is_a_permit() {
    let store = Failing::default();
    let mut guard = begun_in(&store);
    let permit = guard.allow(asked(1, 0, 0), &NO_LIMITS, day(0)).unwrap();
    // The device dies here, with the permit in its hand.
    drop(guard);
    let mut after = Guard::open(store).unwrap();
    assert_eq!(allowed(&mut after, asked(1, 0, 1), &NO_LIMITS, 0), Err(Refused::Step { step: 0, last: 0 }));
    assert_eq!(allowed(&mut after, asked(2, 0, 0), &NO_LIMITS, 0), Err(Refused::Model));
    assert_eq!(*permit.let_go(7).input(), 7);
}

#[test]
fn p24_what_is_refused_leaves_no_trace() {
    let limits = Limits { most_inputs: 1, ..NO_LIMITS };
    let store = Failing::default();
    allowed(&mut begun_in(&store), asked(1, 0, 0), &limits, 5).unwrap();
    let before = store.bytes();
    let mut guard = Guard::open(store.clone()).unwrap();
    for made_up in 2..200 {
        allowed(&mut guard, asked(made_up, u64::from(made_up), made_up), &limits, 900).unwrap_err();
    }
    assert_eq!(store.bytes(), before);
}

fn saved() -> Vec<u8> {
    let store = Failing::default();
    let mut guard = begun_in(&store);
    (0..3).for_each(|n| allowed(&mut guard, asked(n, 0, n), &NO_LIMITS, 20_000).unwrap());
    store.bytes()
}

fn opened(bytes: impl Into<Option<Vec<u8>>>) -> Result<Guard<MemoryStore>, GuardError> {
    Guard::open(MemoryStore { bytes: bytes.into() })
}

#[test]
fn p24_a_torn_guard_of_any_length_is_no_guard() {
    let whole = saved();
    assert_eq!(opened(whole.clone()).unwrap().inputs(), 3);
    for length in 0..whole.len() {
        let error = opened(whole[..length].to_vec()).unwrap_err();
        assert!(matches!(error, GuardError::Damaged(Damage::Name | Damage::Length { .. })), "{length}: {error}");
        assert!(error.to_string().contains("enrol it again"), "{error}");
    }
    for more in [1, 76, 4096] {
        let long = [whole.clone(), vec![0; more]].concat();
        assert!(matches!(opened(long), Err(GuardError::Damaged(Damage::Length { .. }))));
        // A disk that allocated the blocks and lost what was in them.
        let zeros = opened(vec![0; whole.len() + more]).unwrap_err();
        assert_eq!(zeros, GuardError::Damaged(Damage::Name));
    }
}

#[test]
fn p24_a_guard_with_any_bit_flipped_is_no_guard() {
    let whole = saved();
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = opened(flipped).unwrap_err();
        assert!(matches!(error, GuardError::Damaged(_) | GuardError::Version { .. }), "bit {bit}: {error}");
    }
}

#[test]
fn another_format_is_refused_by_its_number() {
    let mut newer = saved();
    newer[13] = 3;
    assert_eq!(opened(newer).unwrap_err(), GuardError::Version { got: 3, ours: 2 });
}

#[test]
fn p24_a_guard_is_begun_once_and_its_loss_is_no_new_guard() {
    assert_eq!(opened(None).unwrap_err(), GuardError::Missing);
    for there in [saved(), Vec::new(), b"keyhush".to_vec()] {
        assert_eq!(Guard::begin(MemoryStore { bytes: Some(there) }).unwrap_err(), GuardError::Exists);
    }
}

#[test]
fn p24_the_guard_knows_days_and_no_times() {
    let at = |seconds| {
        let store = Failing::default();
        drop(begun_in(&store).allow(asked(1, 2, 3), &NO_LIMITS, Now { up_ms: 0, clock_s: seconds }).unwrap());
        store.bytes()
    };
    let midnight = 20_000 * 86_400;
    assert_eq!(at(midnight), at(midnight + 86_399));
    assert_ne!(at(midnight), at(midnight + 86_400));
    assert_eq!(at(midnight).len(), 13 + 4 + 4 + (32 + 8 + 32 + 4) + 32);
    assert_eq!(Day::at(u64::MAX), day(u32::MAX).day());
}

/// What happens to a device.
#[derive(Debug, Clone)]
enum Event {
    Asked { task: u8, step: u64, model: u8, day: u32 },
    NextSaveFails { kept: bool },
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (0..4u8, 0..6u64, 0..12u8, 0..40u32)
            .prop_map(|(task, step, model, day)| Event::Asked { task, step, model, day }),
        1 => any::<bool>().prop_map(|kept| Event::NextSaveFails { kept }),
        2 => Just(Event::Restart),
    ]
}

/// The same rules, written another way: what a device that never fails decides.
#[derive(Debug, Default)]
struct Told {
    last: BTreeMap<u8, u64>,
    models: BTreeSet<u8>,
    days: Vec<u32>,
}

impl Told {
    fn takes(&mut self, task: u8, step: u64, model: u8, day: u32, most: u32, window: u32) -> bool {
        let day = self.days.last().map_or(day, |last| day.max(*last));
        let recent = self.days.iter().filter(|d| day - **d < window).count();
        let new = self.last.get(&task).is_none_or(|last| step > *last) && !self.models.contains(&model);
        let takes = new && recent < most as usize;
        if takes {
            self.last.insert(task, step);
            self.models.insert(model);
            self.days.push(day);
        }
        takes
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn p24_whatever_happens_no_two_inputs_leave_for_one_step_or_model(
        events in prop::collection::vec(event(), 1..80), most in 0..8u32, window in 1..20u32,
    ) {
        let limits = days(most, window);
        let store = Failing::default();
        let mut guard = Guard::begin(store.clone()).unwrap();
        let (mut steps, mut models, mut when, mut latest) = (BTreeSet::new(), BTreeSet::new(), Vec::<u32>::new(), 0);
        for event in events {
            match event {
                Event::NextSaveFails { kept } => store.next.set(Some(kept)),
                Event::Restart => guard = Guard::open(store.clone()).unwrap(),
                Event::Asked { task, step, model, day } => {
                    let before = store.bytes.borrow().clone();
                    let told = allowed(&mut guard, asked(task, step, model), &limits, day);
                    // Days go forward with what goes on record, also where nobody was told.
                    if *store.bytes.borrow() != before {
                        latest = latest.max(day);
                    }
                    if told.is_ok() {
                        prop_assert!(steps.insert((task, step)), "two inputs for step {} of task {}", step, task);
                        prop_assert!(models.insert(model), "two inputs for model {}", model);
                        when.push(latest);
                    }
                }
            }
        }
        for first in &when {
            let within = when.iter().filter(|d| (*first..first + window).contains(*d)).count();
            prop_assert!(within <= most as usize, "{} inputs in {} days: {:?}", within, window, when);
        }
    }

    #[test]
    fn p24_nothing_is_refused_without_a_reason(
        events in prop::collection::vec(event(), 1..80), most in 0..8u32, window in 1..20u32,
    ) {
        let limits = days(most, window);
        let (store, mut told) = (Failing::default(), Told::default());
        let mut guard = begun_in(&store);
        for event in events {
            match event {
                Event::NextSaveFails { .. } => {}
                Event::Restart => guard = Guard::open(store.clone()).unwrap(),
                Event::Asked { task, step, model, day } => {
                    let takes = allowed(&mut guard, asked(task, step, model), &limits, day).is_ok();
                    prop_assert_eq!(takes, told.takes(task, step, model, day, most, window));
                }
            }
        }
    }
}
