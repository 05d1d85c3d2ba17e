//! Randomness is used once: users round and add noise by streams of their own, other ones in every round, and none of them
//! is another's.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use crate::workshop::{ARRIVAL, Idle, ledger, means, plan, step, threads, whole, with};
use device::round::Task;
use keyhush_federated::{
    engine::{
        Around, Engine, EngineError, Summed, Users, drawn,
        secure::{SecureTask, Secured},
    },
    home::RunFolder,
    run::Run,
};
use privacy::rng::{NoiseSource, Purpose, SimulationKey, StreamKey};

const DISTRIBUTED: [&str; 4] =
    ["aggregation=secagg", "secagg.noise=distributed", "participation.cohort=40", "rounds=3"];

const USERS: u64 = 50;

/// The first words of a user's stream: enough to tell it from every other.
fn begins(key: &StreamKey, user: u64) -> [u64; 2] {
    let mut words = key.chunk(user);
    [words.next_word(), words.next_word()]
}

/// Passes rounds on, and writes down the streams that users were given, each with its name.
struct Overheard<'a> {
    inner: Box<dyn Engine + 'a>,
    rounds: u64,
    streams: BTreeMap<[u64; 2], String>,
    again: Vec<String>,
}

impl Overheard<'_> {
    fn note(&mut self, stream: [u64; 2], name: String) {
        if let Some(known) = self.streams.insert(stream, name.clone()) {
            self.again.push(format!("{name} is {known}"));
        }
    }

    /// Those of some users, whoever comes this time: they may all come in the next round.
    fn note_all(&mut self, users: &Users<'_>, noise: Option<&StreamKey>) {
        for user in 0..USERS {
            let place = format!("round {}, user {user}", self.rounds);
            self.note(begins(users.key, user), format!("the rounding of {place}"));
            if let Some(noise) = noise {
                self.note(begins(noise, user), format!("the noise of {place}"));
            }
        }
        self.rounds += 1;
    }
}

impl<'a> Around for Overheard<'a> {
    type Inner = dyn Engine + 'a;

    fn inner(&self) -> &(dyn Engine + 'a) {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut (dyn Engine + 'a) {
        &mut *self.inner
    }

    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        self.note_all(users, None);
        self.inner.sum(task, users)
    }

    fn sum_securely(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        self.note_all(users, Some(secure.noise));
        self.inner.sum_securely(task, users, secure)
    }
}

/// Rule P13. Noise that is drawn twice cancels in a difference; rounding that repeats is biased; and who knows how a user
/// rounded must not know what noise it added.
#[test]
fn p13_all_streams_of_users_are_pairwise_distinct() {
    for (set, streams) in [(with(&[&ARRIVAL, &DISTRIBUTED]), 2), (vec!["rounds=3"], 1)] {
        let folder = tempfile::tempdir().unwrap();
        let (plan, opened) = plan(&set);
        let inner = threads(&plan, &opened);
        let mut engine = Overheard { inner, rounds: 0, streams: BTreeMap::new(), again: Vec::new() };
        whole(&folder.path().join("run"), &set, &mut engine);
        assert!(engine.again.is_empty(), "{:?}", engine.again);
        assert_eq!(engine.streams.len() as u64, streams * 3 * USERS);
    }
}

/// Does each secure round several times, with other keys, and compares what came of it.
struct Again<'a> {
    inner: Box<dyn Engine + 'a>,
}

impl<'a> Around for Again<'a> {
    type Inner = dyn Engine + 'a;

    fn inner(&self) -> &(dyn Engine + 'a) {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut (dyn Engine + 'a) {
        &mut *self.inner
    }

    fn sum(&mut self, _: &Task<'_>, _: &Users<'_>) -> Result<Summed, EngineError> {
        Err(EngineError::NotSecure)
    }

    fn sum_securely(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        let [a, b] = [1, 2].map(|seed| NoiseSource::from(SimulationKey::new(seed)).stream(Purpose::UserNoise, &[7]));
        let mut sum = |key, noise| -> Result<Vec<u32>, EngineError> {
            let secure = SecureTask { noise, ..*secure };
            Ok(self.inner.sum_securely(task, &Users { key, ..*users }, &secure)?.sum.to_vec())
        };
        let first = sum(users.key, &a)?;
        assert_eq!(first, sum(users.key, &a)?, "it repeats");
        assert_ne!(first, sum(users.key, &b)?, "other noise, another sum");
        // Nearest rounding draws nothing, and users take all their text: nothing else is random.
        assert_eq!(first, sum(&b, &a)?, "the noise is not of the stream of the rounding");
        self.inner.sum_securely(task, users, secure)
    }
}

#[test]
fn p13_the_noise_of_devices_is_drawn_from_the_key_of_the_noise_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, opened) = plan(&with(&[&ARRIVAL, &DISTRIBUTED, &["rounds=1"]]));
    let path = folder.path().join("run");
    let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
    step(&mut run, &plan, &opened, &path, &mut Again { inner: threads(&plan, &opened) }).unwrap();
}

/// In one round, too, no two users draw the same, and which batch they take does not say how they round.
#[test]
fn p13_users_of_a_round_draw_apart() {
    let users = NoiseSource::from(SimulationKey::new(5)).stream(Purpose::Rounding, &[0]);
    let mut seen = BTreeMap::new();
    for user in 0..1000 {
        let mut one = drawn(&users, user);
        for word in [one.batch, one.rounding.next_word(), one.rounding.next_word()] {
            assert_eq!(seen.insert(word, user), None, "user {user} repeats");
        }
    }
}

/// Rule P13: what a run releases of nobody is its noise. No two rounds have the same, whichever phases they are of.
#[test]
fn p13_no_two_rounds_of_a_run_have_the_same_noise() {
    let phases = "schedule=[{ from = 2, cohort = 40 }, { from = 4, cohort = 20 }]";
    let restarts = ["privacy.mechanism=tree", "privacy.restarts=[2, 4]"];
    for set in [vec![phases], with(&[&ARRIVAL, &restarts])] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        whole(&run, &with(&[&set, &["checkpoint.every=100"]]), &mut Idle::default());
        let ledger = ledger(&run);
        let streams: Vec<(String, u64)> = ledger.releases().into_iter().collect();
        let steps = streams.iter().flat_map(|(stream, steps)| (0..*steps).map(move |step| (stream, step)));
        let mut seen = BTreeMap::new();
        for (stream, step) in steps {
            let noise = ledger.restore(stream, step).unwrap().unwrap().values().to_vec();
            if let Some(known) = seen.insert(noise, (stream, step)) {
                panic!("step {step} of {stream} has the noise of {known:?}");
            }
        }
        assert_eq!(seen.len(), 6);
    }
}

/// Writes down what users would draw, and dies.
#[derive(Default)]
struct Dying {
    drawn: Vec<[u64; 2]>,
}

impl Engine for Dying {
    fn sum(&mut self, _: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        self.drawn.push(begins(users.key, 0));
        Err(EngineError::Died)
    }
}

/// Rule P21: with secret noise every attempt at a round draws anew, in this process and in the next one; a simulation repeats.
#[test]
fn p21_users_of_a_run_with_secret_noise_draw_anew_in_every_attempt() {
    for (set, differ) in [(vec!["noise_seed="], true), (vec![], false)] {
        let folder = tempfile::tempdir().unwrap();
        let (plan, opened) = plan(&with(&[&ARRIVAL, &set]));
        let (mut engine, path) = (Dying::default(), folder.path().join("run"));
        for begin in [Run::begin, Run::resume] {
            let mut run = begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
            assert!((0..2).all(|_| step(&mut run, &plan, &opened, &path, &mut engine).is_err()));
        }
        let distinct: BTreeSet<[u64; 2]> = engine.drawn.iter().copied().collect();
        assert_eq!((engine.drawn.len(), distinct.len()), (4, if differ { 4 } else { 1 }));
    }
}

/// Rule P21: two copies of a run that release the same sum release different vectors, or they would show that it is the same.
#[test]
fn p21_two_copies_of_a_run_do_not_show_that_their_sums_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, opened) = plan(&["noise_seed=", "checkpoint.every=100"]);
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
    drop(Run::begin(RunFolder::at(&one), &plan, &opened, means()).unwrap());
    let copied = Command::new("cp").arg("-a").args([&one, &two]).status().unwrap();
    assert!(copied.success());
    let [first, second] = [one, two].map(|path| {
        let mut run = Run::resume(RunFolder::at(&path), &plan, &opened, means()).unwrap();
        step(&mut run, &plan, &opened, &path, &mut Idle::default()).unwrap();
        run.ledger().restore(&plan.phase(0).stream, 0).unwrap().unwrap().values().to_vec()
    });
    assert!(first != second, "the same sum has the same noise");
}
