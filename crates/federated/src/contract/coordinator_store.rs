//! The tests that every coordinator store must pass: writes survive a restart, violations of invariants are refused, and a batch with a
//! refused write is not stored at all.
//!
//! What is left after a crash during a batch is the matter of each store's own tests.

use device::{guard::TaskDigest, protocol::message::DeviceKey};

use crate::protocol::store::{
    AttemptAt, EnrolledInHour, MemoryStore, OpenAttempt, Place, Standing, Store, StoreError, Write,
};

const TASK: TaskDigest = TaskDigest([1; 32]);
const OTHER_TASK: TaskDigest = TaskDigest([2; 32]);

/// Makes a store in which there is nothing.
type Make<'a> = &'a dyn Fn() -> Box<dyn Store>;
/// Closes a store and reopens the same one, as a restart does.
type Again<'a> = &'a dyn Fn(Box<dyn Store>) -> Box<dyn Store>;

/// The suite. `make` makes a store in which there is nothing, `again` closes one and reopens it, as a restart does.
pub fn coordinator_store(make: Make<'_>, again: Again<'_>) {
    nothing_is_there(make, again);
    an_attempt_from_its_beginning_to_its_end(make(), again);
    what_breaks_an_invariant_is_refused(make());
    a_batch_is_there_whole_or_not_at_all(make(), again);
    blobs(make(), again);
    models(make(), again);
    spoiled_attempts(make(), again);
    enrolments_of_an_hour(make(), again);
    a_task_that_is_over_is_forgotten(make(), again);
    many_at_once(make(), again);
    as_the_plain_one(make(), again);
}

/// The key of a device.
fn device(number: u64) -> DeviceKey {
    let mut key = [7; 32];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..16].copy_from_slice(&number.to_be_bytes());
    DeviceKey(key)
}

fn devices(numbers: impl IntoIterator<Item = u64>) -> Vec<DeviceKey> {
    numbers.into_iter().map(device).collect()
}

fn sorted(mut devices: Vec<DeviceKey>) -> Vec<DeviceKey> {
    devices.sort_unstable();
    devices
}

const fn at(round: u64, attempt: u32) -> AttemptAt {
    AttemptAt { task: TASK, round, attempt }
}

fn enrol(number: u64) -> Write {
    Write::Enrol { device: device(number), day: 20_000 }
}

fn assign(at: AttemptAt, numbers: &[u64]) -> Write {
    Write::Assign { at, devices: devices(numbers.iter().copied()) }
}

fn merge(at: AttemptAt, sealed: &[u8], numbers: &[u64]) -> Write {
    Write::Merge { at, sealed: sealed.to_vec(), reports: devices(numbers.iter().copied()) }
}

fn settle(at: AttemptAt, absent: &[u64]) -> Write {
    Write::Settle { at, absent: devices(absent.iter().copied()) }
}

fn keep(store: &dyn Store, batch: &[Write]) {
    store.commit(batch).expect("nothing is wrong with it");
}

fn refused(store: &dyn Store, batch: &[Write], why: &str) {
    let answer = store.commit(batch);
    assert!(matches!(answer, Err(StoreError::Refused(_))), "{why}: {answer:?}");
}

fn standing(store: &dyn Store, number: u64) -> Standing {
    store.standing(&TASK, &device(number)).expect("it can be read")
}

/// All that can be asked of a store, about these tasks, devices and blobs.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    enrolled: u64,
    in_hours: Vec<EnrolledInHour>,
    asked: Vec<u64>,
    known: Vec<bool>,
    standings: Vec<Standing>,
    open: Vec<Option<OpenAttempt>>,
    blobs: Vec<Option<Vec<u8>>>,
}

fn seen(store: &dyn Store, most: u64) -> Seen {
    let tasks = [TASK, OTHER_TASK];
    let all = || (0..most).map(device);
    let standings = tasks.iter().flat_map(|task| all().map(move |device| store.standing(task, &device).unwrap()));
    Seen {
        enrolled: store.enrolled().unwrap(),
        in_hours: (0..3).map(|hour| store.enrolled_in(hour).unwrap()).collect(),
        asked: tasks.iter().map(|task| store.asked(task).unwrap()).collect(),
        known: all().map(|device| store.is_enrolled(&device).unwrap()).collect(),
        standings: standings.collect(),
        open: tasks.iter().map(|task| store.open_attempt(task).unwrap()).collect(),
        blobs: (0..4).map(|n| store.blob(&[n; 32]).unwrap()).collect(),
    }
}

fn nothing_is_there(make: Make<'_>, again: Again<'_>) {
    let mut store = make();
    let realm = store.realm().unwrap();
    for _ in 0..2 {
        let nothing = seen(&*store, 3);
        assert_eq!((nothing.enrolled, nothing.known), (0, vec![false; 3]));
        assert_eq!((nothing.in_hours, nothing.asked), (vec![EnrolledInHour::default(); 3], vec![0; 2]));
        assert_eq!(nothing.standings, [Standing::default(); 6]);
        assert_eq!((nothing.open, nothing.blobs), (vec![None; 2], vec![None; 4]));
        store.commit(&[]).expect("nothing can be kept");
        store = again(store);
        assert_eq!(store.realm().unwrap(), realm, "a realm is drawn once");
    }
}

fn an_attempt_from_its_beginning_to_its_end(mut store: Box<dyn Store>, again: Again<'_>) {
    keep(&*store, &[enrol(0), enrol(1), enrol(5)]);
    // In tasks that have begun, whether or not an attempt of them is open, later keys wait (rule P18).
    let elsewhere = AttemptAt { task: OTHER_TASK, round: 9, attempt: 0 };
    keep(&*store, &[Write::Open(at(3, 0)), assign(at(3, 0), &[5]), settle(at(3, 0), &[5])]);
    keep(&*store, &[Write::Open(elsewhere), assign(elsewhere, &[5]), settle(elsewhere, &[])]);
    store = again(store);
    keep(&*store, &[Write::Enrol { device: device(2), day: 20_001 }]);
    keep(&*store, &[Write::Enrol { device: device(1), day: 20_002 }]);
    store = again(store);
    assert_eq!(store.enrolled().unwrap(), 4, "again changes nothing");
    assert_eq!(standing(&*store, 1), Standing::default(), "again changes nothing");
    assert_eq!(standing(&*store, 2).since, Some(3));
    assert_eq!(store.standing(&OTHER_TASK, &device(2)).unwrap().since, Some(9));

    keep(&*store, &[Write::Open(at(4, 0)), assign(at(4, 0), &[2, 0])]);
    keep(&*store, &[Write::Open(at(4, 0)), assign(at(4, 0), &[1])]);
    store = again(store);
    let open = |assigned, merged, sealed| Some(OpenAttempt { at: at(4, 0), assigned, merged, sealed });
    let everybody = sorted(devices(0..3));
    assert_eq!(store.open_attempt(&TASK).unwrap(), open(everybody.clone(), vec![], None));
    assert_eq!(standing(&*store, 2), Standing { since: Some(3), joined: Some((4, 0)), participations: 1, spoiled: 0 });

    for (sealed, report, merged) in [(b"one".as_slice(), 2, vec![2]), (b"two, and longer", 0, vec![0, 2])] {
        keep(&*store, &[merge(at(4, 0), sealed, &[report])]);
        store = again(store);
        let merged = sorted(devices(merged));
        assert_eq!(store.open_attempt(&TASK).unwrap(), open(everybody.clone(), merged, Some(sealed.to_vec())));
    }
    // Who sent nothing did not take part, said once or twice; the place in the round is used up.
    keep(&*store, &[settle(at(4, 0), &[1, 1])]);
    store = again(store);
    assert_eq!(store.open_attempt(&TASK).unwrap(), None);
    for (number, participations) in [(0, 1), (1, 0), (2, 1)] {
        let now = standing(&*store, number);
        assert_eq!((now.joined, now.participations), (Some((4, 0)), participations), "device {number}");
    }
    keep(&*store, &[Write::Open(at(4, 1))]);
    refused(&*store, &[assign(at(4, 1), &[1])], "a second attempt of a step, after an absence");
    keep(&*store, &[settle(at(4, 1), &[]), Write::Open(at(5, 0)), assign(at(5, 0), &[0, 1])]);
    store = again(store);
    assert_eq!(standing(&*store, 0), Standing { since: None, joined: Some((5, 0)), participations: 2, spoiled: 0 });
    assert_eq!(store.open_attempt(&TASK).unwrap().unwrap().sealed, None, "the sum of another attempt");
}

fn what_breaks_an_invariant_is_refused(store: Box<dyn Store>) {
    let store = &*store;
    keep(store, &[enrol(0), enrol(1), enrol(2), enrol(3)]);
    refused(store, &[assign(at(1, 0), &[0])], "nothing is open");
    refused(store, &[merge(at(1, 0), b"x", &[])], "nothing is open");
    refused(store, &[settle(at(1, 0), &[])], "nothing is open");
    keep(store, &[Write::Open(at(1, 0)), assign(at(1, 0), &[0, 1])]);
    let before = seen(store, 6);
    let other = |task| AttemptAt { task, ..at(1, 0) };
    for (batch, why) in [
        (vec![assign(at(1, 0), &[0])], "a device is given a step twice"),
        (vec![assign(at(1, 0), &[2, 2])], "a device is given a step twice, at once"),
        (vec![assign(at(1, 0), &[9])], "somebody who is not enrolled"),
        (vec![assign(at(1, 1), &[2])], "an attempt that is not open"),
        (vec![assign(at(1, 1), &[])], "an attempt that is not open, and nobody"),
        (vec![assign(at(2, 0), &[2])], "a round that is not open"),
        (vec![assign(other(OTHER_TASK), &[2])], "a task in which nothing is open"),
        (vec![Write::Open(at(1, 1))], "another attempt while one is open"),
        (vec![Write::Open(at(2, 0))], "another round while one is open"),
        (vec![merge(at(1, 0), b"x", &[2])], "a report of somebody who was not given the task"),
        (vec![merge(at(1, 0), b"x", &[9])], "a report of somebody who is not enrolled"),
        (vec![merge(at(1, 0), b"x", &[0, 0])], "a report twice, at once"),
        (vec![merge(at(1, 0), b"x", &[0]), merge(at(1, 0), b"y", &[0])], "a report twice, in one batch"),
        (vec![merge(at(1, 1), b"x", &[0])], "a report for another attempt"),
        (vec![settle(at(1, 1), &[])], "another attempt is settled"),
        (vec![settle(at(1, 0), &[2])], "somebody is absent who was not given the task"),
        (vec![merge(at(1, 0), b"x", &[0]), settle(at(1, 0), &[0])], "somebody is absent whose report is in the sum"),
        (vec![settle(at(1, 0), &[]), merge(at(1, 0), b"x", &[0])], "a report for an attempt that is settled"),
        (vec![settle(at(1, 0), &[]), Write::Open(at(0, 0)), assign(at(0, 0), &[0])], "a round before the last"),
    ] {
        refused(store, &batch, why);
        assert_eq!(seen(store, 6), before, "{why}: refused, and something was kept");
    }
    keep(store, &[merge(at(1, 0), b"x", &[0])]);
    refused(store, &[merge(at(1, 0), b"y", &[0])], "a report that is in the sum already");
    refused(store, &[merge(at(1, 0), b"y", &[1, 0])], "a report that is in the sum already, after one that is not");
    assert_eq!(store.open_attempt(&TASK).unwrap().unwrap().sealed.as_deref(), Some(&b"x"[..]));
    refused(store, &[settle(at(1, 0), &[0])], "somebody is absent whose report is in the sum");
    // Another task knows nothing of it.
    keep(store, &[Write::Open(other(OTHER_TASK)), assign(other(OTHER_TASK), &[0])]);
    assert_eq!(standing(store, 0).participations, 1);
}

/// The last write is refused, and every other of the batch with it.
fn a_batch_is_there_whole_or_not_at_all(mut store: Box<dyn Store>, again: Again<'_>) {
    keep(&*store, &[enrol(0), enrol(1), Write::Open(at(0, 0)), assign(at(0, 0), &[0])]);
    keep(&*store, &[Write::KeepBlob { digest: [1; 32], packed: b"kept".to_vec() }]);
    let before = seen(&*store, 6);
    let batch = [
        enrol(2),
        Write::KeepBlob { digest: [0; 32], packed: b"another".to_vec() },
        Write::KeepModel { task: TASK, digest: [1; 32], packed: b"a model".to_vec() },
        Write::Spoiled(at(0, 0)),
        Write::Forget { task: OTHER_TASK },
        assign(at(0, 0), &[1]),
        merge(at(0, 0), b"sealed", &[0, 1]),
        settle(at(0, 0), &[]),
        Write::Open(at(1, 0)),
        assign(at(1, 0), &[0, 1, 2, 9]),
    ];
    refused(&*store, &batch, "the last write is wrong");
    assert_eq!(seen(&*store, 6), before);
    store = again(store);
    assert_eq!(seen(&*store, 6), before, "after a restart");
    keep(&*store, &batch[..7]);
    assert_eq!(store.enrolled().unwrap(), 3, "without it all of it is kept");
}

fn blobs(mut store: Box<dyn Store>, again: Again<'_>) {
    let large: Vec<u8> = (0..20_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let blob = |store: &dyn Store, n: u8| store.blob(&[n; 32]).unwrap();
    for (n, packed) in [(0, large), (1, Vec::new()), (2, b"small".to_vec())] {
        keep(&*store, &[Write::KeepBlob { digest: [n; 32], packed: packed.clone() }]);
        store = again(store);
        assert!(blob(&*store, n) == Some(packed), "blob {n}");
    }
    keep(&*store, &[Write::KeepBlob { digest: [2; 32], packed: b"small".to_vec() }]);
    store = again(store);
    assert_eq!((blob(&*store, 2), blob(&*store, 3)), (Some(b"small".to_vec()), None));
}

/// Of each task one model is kept, across restarts; one that two tasks give stays as long as either does.
fn models(mut store: Box<dyn Store>, again: Again<'_>) {
    let model = |task, n: u8| Write::KeepModel { task, digest: [n; 32], packed: vec![n] };
    for (write, there) in [
        (model(TASK, 0), [true, false, false]),
        (model(OTHER_TASK, 0), [true, false, false]),
        (model(TASK, 1), [true, true, false]),
        (model(TASK, 1), [true, true, false]),
        (model(OTHER_TASK, 2), [false, true, true]),
    ] {
        keep(&*store, std::slice::from_ref(&write));
        store = again(store);
        assert_eq!([0, 1, 2].map(|n: u8| store.blob(&[n; 32]).unwrap().is_some()), there, "{write:?}");
    }
}

fn spoiled_attempts(mut store: Box<dyn Store>, again: Again<'_>) {
    keep(&*store, &[enrol(0), enrol(1), enrol(2)]);
    refused(&*store, &[Write::Spoiled(at(0, 0))], "nothing is open");
    for (round, who) in [(0, [0, 1]), (1, [0, 2])] {
        keep(&*store, &[Write::Open(at(round, 0)), assign(at(round, 0), &who)]);
        keep(&*store, &[Write::Spoiled(at(round, 0)), settle(at(round, 0), &[])]);
    }
    store = again(store);
    let of = |least| {
        let found = store.spoiled(&TASK, least).unwrap();
        found.into_iter().collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(of(2), [(device(0), 2)].into());
    assert_eq!(of(1), [(device(0), 2), (device(1), 1), (device(2), 1)].into());
    assert_eq!((standing(&*store, 0).spoiled, standing(&*store, 1).spoiled), (2, 1));
    assert_eq!(store.spoiled(&OTHER_TASK, 1).unwrap(), []);
}

/// Those of the last hour are counted, in all and by place; those before are forgotten.
fn enrolments_of_an_hour(mut store: Box<dyn Store>, again: Again<'_>) {
    let count = |hour, place: Option<u8>| Write::CountEnrolment { hour, place: place.map(|place| Place([place; 16])) };
    keep(&*store, &[count(7, Some(2)), count(7, Some(1)), count(7, None)]);
    keep(&*store, &[count(7, Some(2))]);
    store = again(store);
    let of = |all, by: &[(u8, u64)]| EnrolledInHour {
        all,
        by_place: by.iter().map(|(place, count)| (Place([*place; 16]), *count)).collect(),
    };
    assert_eq!(store.enrolled_in(7).unwrap(), of(4, &[(1, 1), (2, 2)]));
    assert_eq!(store.enrolled_in(8).unwrap(), of(0, &[]));
    keep(&*store, &[count(8, Some(2))]);
    store = again(store);
    assert_eq!((store.enrolled_in(7).unwrap(), store.enrolled_in(8).unwrap()), (of(0, &[]), of(1, &[(2, 1)])));
}

fn a_task_that_is_over_is_forgotten(mut store: Box<dyn Store>, again: Again<'_>) {
    let elsewhere = AttemptAt { task: OTHER_TASK, ..at(0, 0) };
    keep(&*store, &[Write::Forget { task: TASK }]);
    keep(&*store, &[enrol(0), enrol(1), Write::KeepBlob { digest: TASK.0, packed: b"terms".to_vec() }]);
    keep(&*store, &[Write::KeepModel { task: TASK, digest: [9; 32], packed: b"model".to_vec() }]);
    for at in [at(0, 0), elsewhere] {
        keep(&*store, &[Write::Open(at), assign(at, &[0, 1]), merge(at, b"sealed", &[0])]);
    }
    keep(&*store, &[Write::Forget { task: TASK }]);
    store = again(store);
    assert_eq!((standing(&*store, 0), store.open_attempt(&TASK).unwrap()), (Standing::default(), None));
    assert_eq!((store.blob(&TASK.0).unwrap(), store.blob(&[9; 32]).unwrap()), (None, None));
    assert_eq!(store.enrolled().unwrap(), 2, "devices stay, for other tasks");
    assert_eq!((store.asked(&TASK).unwrap(), store.asked(&OTHER_TASK).unwrap()), (0, 2));
    assert_eq!(store.standing(&OTHER_TASK, &device(0)).unwrap().participations, 1, "of which all is known");
    assert_eq!(store.open_attempt(&OTHER_TASK).unwrap().unwrap().merged, [device(0)]);
    keep(&*store, &[enrol(2)]);
    assert_eq!(standing(&*store, 2), Standing::default(), "nobody waits in a task that is over");
    assert_eq!(store.standing(&OTHER_TASK, &device(2)).unwrap().since, Some(0));
}

/// A fleet as large as those that come.
fn many_at_once(mut store: Box<dyn Store>, again: Again<'_>) {
    const MANY: u64 = 10_000;
    keep(&*store, &(0..MANY).map(enrol).collect::<Vec<_>>());
    let all: Vec<u64> = (0..MANY).collect();
    keep(&*store, &[Write::Open(at(0, 0)), assign(at(0, 0), &all)]);
    keep(&*store, &[merge(at(0, 0), &[9; 100_000], &all[..MANY as usize / 2])]);
    store = again(store);
    assert_eq!(store.enrolled().unwrap(), MANY);
    let open = store.open_attempt(&TASK).unwrap().unwrap();
    assert_eq!((open.assigned.len(), open.merged.len()), (MANY as usize, MANY as usize / 2));
    assert!(open.assigned.is_sorted() && open.merged.is_sorted(), "in the order of their keys");
    keep(&*store, &[settle(at(0, 0), &all[MANY as usize / 2..])]);
    assert_eq!(store.asked(&TASK).unwrap(), MANY, "who sent nothing was asked too");
    let took_part = |number: &&u64| standing(&*store, **number).participations == 1;
    assert_eq!(all.iter().step_by(7).filter(took_part).count(), all[..MANY as usize / 2].iter().step_by(7).count());
}

/// Batches of anything: what the plain store answers is what this one answers, and what it then has.
fn as_the_plain_one(mut store: Box<dyn Store>, again: Again<'_>) {
    let plain = MemoryStore::new([0; 32]);
    let mut chance = Chance(15);
    let (mut kept, mut refused) = (0, 0);
    for number in 0..600 {
        let mut batch: Vec<Write> = (0..1 + chance.below(3)).map(|_| any_write(&mut chance, number / 30)).collect();
        if number % 30 == 0 {
            // The next round: what is open is settled.
            let open = [TASK, OTHER_TASK].iter().filter_map(|task| plain.open_attempt(task).unwrap());
            batch = open.map(|open| settle(open.at, &[])).collect();
        }
        let (want, got) = (plain.commit(&batch).is_ok(), store.commit(&batch));
        assert!(
            want == got.is_ok() && !matches!(got, Err(StoreError::Failed(_))),
            "batch {number}: {batch:?}: {got:?}"
        );
        *(if want { &mut kept } else { &mut refused }) += 1;
        if number % 60 == 0 {
            store = again(store);
        }
        assert_eq!(seen(&*store, 6), seen(&plain, 6), "after batch {number}: {batch:?}");
    }
    assert!(kept > 100 && refused > 100, "{kept} kept, {refused} refused: too few of one kind");
}

fn any_write(chance: &mut Chance, round: u64) -> Write {
    let task = if chance.below(4) == 0 { OTHER_TASK } else { TASK };
    let at = AttemptAt { task, round: round + u64::from(chance.below(8) == 0), attempt: 0 };
    let some: Vec<u64> = (0..chance.below(3)).map(|_| chance.below(6)).collect();
    let digest = [chance.below(4) as u8; 32];
    match chance.below(10) {
        0 => Write::Enrol { device: device(chance.below(6)), day: 1 },
        1 if chance.below(2) == 0 => {
            let place = Some(Place([chance.below(3) as u8; 16])).filter(|_| chance.below(3) > 0);
            Write::CountEnrolment { hour: round / 7, place }
        }
        1 => enrol(chance.below(6)),
        2 | 3 => Write::Open(at),
        4 | 5 => assign(at, &[&some[..], &[chance.below(6)]].concat()),
        6 | 7 => merge(at, &chance.below(1 << 40).to_be_bytes(), &some),
        8 => settle(at, &some),
        _ if chance.below(4) == 0 => Write::Spoiled(at),
        _ if chance.below(2) == 0 => Write::KeepModel { task, digest, packed: vec![7; 9] },
        _ if chance.below(20) == 0 => Write::Forget { task },
        _ => Write::KeepBlob { digest, packed: vec![chance.below(256) as u8; 9] },
    }
}

/// Numbers that repeat.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
