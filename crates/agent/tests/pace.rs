//! Thousands of devices, up to a hundred thousand, and the pace that a server sets: check-ins are spread, and come back as they were when the
//! server was away for ten minutes. Devices and coordinator are the real machines; between them are a clock and a queue.
//!
//! The task waits for its next round all the time: devices that come wait in the lobby for as long as their patience goes, and are told when
//! to come back. What rounds do to that is not in it.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]
#![allow(clippy::print_stdout, reason = "the numbers are kept in bench/runs")]

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use device::{
    guard::{Day, Guard, Limits, MemoryStore, TaskDigest, Timer, Window},
    protocol::{
        diary::Diary,
        message::{Hello, Realm, Request, Signed, VERSION},
        participant::{Do, Event, Now, Participant, Settings},
        policy::Policy,
    },
};
use ed25519_dalek::SigningKey;
use federated::protocol::{
    admission::Anybody,
    coordinator::{Asking, Coordinator},
    limits::ParticipationLimits,
    pace::Pace,
    store::{MemoryStore as Enrolments, Store, Write},
};
use privacy::{Participation, units::MinSeparation};
use prost::Message;
use secagg::entropy::{Entropy, NoRandomness};

const REALM: Realm = Realm([3; 32]);
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
/// The server is away from here on.
const OUTAGE: u64 = 90 * MINUTE;
const BACK: u64 = 100 * MINUTE;
const END: u64 = 150 * MINUTE;

/// SplitMix64, for what is only spread by it.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Entropy for Chance {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
        for bytes in buffer.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        Ok(())
    }
}

/// A device that the server knows.
fn device(number: u64) -> Participant<MemoryStore> {
    let mut secret = [1; 32];
    secret[..8].copy_from_slice(&number.to_le_bytes());
    let limits = Limits { most_inputs: 1, window: Window::Ever, separation: None, timer: Timer::NONE };
    let settings = Settings::new(SigningKey::from_bytes(&secret), Vec::new(), Policy::for_made_up_people(), limits);
    let guard = Guard::begin(MemoryStore::default()).unwrap();
    let mut diary = Diary::open(MemoryStore::default()).unwrap();
    diary.enrolled(&REALM, Day::at(0)).unwrap();
    Participant::new(settings, guard, diary, Box::new(Chance(number)))
}

fn now(up_ms: u64) -> Now {
    Now { up_ms, clock_s: up_ms / SECOND }
}

/// Everybody, the server, and what happens next.
struct World {
    devices: Vec<Participant<MemoryStore>>,
    store: Arc<Enrolments>,
    /// None while the server is away.
    server: Option<Coordinator>,
    pace: Pace,
    goal: u64,
    /// Who waits at the server.
    waits: Vec<bool>,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    /// Check-ins of each second that the server heard.
    heard: Vec<u64>,
    chance: Chance,
}

impl World {
    /// So many devices.
    fn new(count: u64, goal: u64, pace: Pace) -> Self {
        let mut devices: Vec<_> = (0..count).map(device).collect();
        let store = Arc::new(Enrolments::new(REALM.0));
        let enrol = |device: &mut Participant<_>| Write::Enrol { device: device.key(), day: 0 };
        store.commit(&devices.iter_mut().map(enrol).collect::<Vec<_>>()).unwrap();
        let mut chance = Chance(7);
        // They have come over time.
        let queue = (0..devices.len()).map(|number| Reverse((chance.next() % (500 * SECOND), number))).collect();
        let waits = vec![false; devices.len()];
        let heard = vec![0; (END / SECOND) as usize];
        let mut world = Self { devices, store, server: None, pace, goal, waits, queue, heard, chance };
        world.start();
        world
    }

    /// The server starts, and knows what is in its store and nothing else.
    fn start(&mut self) {
        let mut server =
            Coordinator::new(self.store.clone(), Box::new(Anybody), self.pace, self.chance.next()).unwrap();
        let separation = MinSeparation::rounds_between(1).unwrap();
        let limits = Participation::MinSeparation { separation, max_participations: 100 };
        let limits = ParticipationLimits::try_from(&limits).unwrap();
        let asking = Asking { limits, goal: self.goal, begin_with: 0, population: u64::MAX };
        server.add_task(TaskDigest([5; 32]), asking, None).unwrap();
        self.server = Some(server);
    }

    /// The server goes, and whoever waits there notices.
    fn stop(&mut self, time: u64) {
        self.server = None;
        for number in 0..self.devices.len() {
            if std::mem::take(&mut self.waits[number]) {
                self.devices[number].got(Event::Broken, now(time));
                self.queue.push(Reverse((time, number)));
            }
        }
    }

    /// One device goes on until it waits for something.
    fn go_on(&mut self, number: usize, time: u64) {
        loop {
            match self.devices[number].next(now(time)) {
                Do::Sleep { until_ms } => return self.queue.push(Reverse((until_ms.max(time + 1), number))),
                _ if self.server.is_none() => self.devices[number].got(Event::Unreached, now(time)),
                Do::Hello => {
                    let (realm, time_s) = (REALM.0.to_vec(), time / SECOND);
                    let hello = Hello { oldest: VERSION, newest: VERSION, realm, time_s }.encode_to_vec();
                    self.devices[number].got(Event::Answer(&hello), now(time));
                }
                Do::Say(bytes) => return self.say(number, &bytes, time),
                other => panic!("{other:?}"),
            }
        }
    }

    fn say(&mut self, number: usize, bytes: &[u8], time: u64) {
        self.heard[(time / SECOND) as usize] += 1;
        let request = Request::decode(&*Signed::decode(bytes).unwrap().body).unwrap();
        let key = self.devices[number].key();
        self.waits[number] = true;
        let server = self.server.as_mut().unwrap();
        server.said(number as u64, key, &request.wants.unwrap(), time).unwrap();
        self.answers(time);
    }

    fn answers(&mut self, time: u64) {
        let Some(server) = &mut self.server else { return };
        for (request, answer) in server.flush().unwrap() {
            let number = request as usize;
            self.waits[number] = false;
            self.devices[number].got(Event::Answer(&answer.encode_to_vec()), now(time));
            self.queue.push(Reverse((time, number)));
        }
    }

    fn run(&mut self, from: u64, to: u64) {
        for second in from / SECOND..to / SECOND {
            let time = second * SECOND;
            if let Some(server) = &mut self.server {
                server.tick(time).unwrap();
            }
            self.answers(time);
            while self.queue.peek().is_some_and(|Reverse((at, _))| *at < time + SECOND) {
                let Some(Reverse((at, number))) = self.queue.pop() else { return };
                self.go_on(number, at.max(time));
            }
        }
    }
}

/// Devices of which a round wants so many. By the rate alone each would come about every eight minutes, however many there are; where a round
/// wants very many, they come more often. They are counted in pieces of so many seconds: shorter than the time after which a device comes again, for
/// else a burst is lost in what comes before and after it; and long enough that chance alone makes none.
fn are_spread(count: u64, goal: u64, piece_s: u64) {
    let pace = Pace { most_per_second: count as f64 / 500.0, ..Pace::default() };
    let mut world = World::new(count, goal, pace);
    world.run(0, OUTAGE);
    world.stop(OUTAGE);
    world.run(OUTAGE, BACK);
    world.start();
    world.run(BACK, END);
    let heard: Vec<u64> = world.heard.chunks(piece_s as usize).map(|seconds| seconds.iter().sum()).collect();
    let pieces = |from: u64, to: u64| &heard[(from / SECOND / piece_s) as usize..(to / SECOND / piece_s) as usize];
    let (calm, after) = (pieces(OUTAGE / 2, OUTAGE), pieces(BACK, END));
    let mean = calm.iter().sum::<u64>() as f64 / calm.len() as f64;
    let (peak, burst) = (*calm.iter().max().unwrap() as f64, *after.iter().max().unwrap() as f64);
    println!(
        "{count} devices, goal {goal}: {mean:.0} check-ins in {piece_s} s, peak {peak} ({:.2}), peak after the outage {burst} ({:.2}); \
         then, in pieces: {:?}",
        peak / mean,
        burst / mean,
        &after[..after.len().min(12)]
    );
    assert_eq!(pieces(OUTAGE, BACK).iter().sum::<u64>(), 0);
    assert!(mean > count as f64 * piece_s as f64 / 3600.0, "they come: {mean}");
    assert!(peak <= 1.5 * mean, "peak {peak}, mean {mean}");
    assert!(burst <= 2.0 * mean, "burst {burst}, mean {mean}: {after:?}");
}

#[test]
fn check_ins_are_spread_and_an_outage_does_not_bring_them_together() {
    // All are wanted all the time; one in a hundred is.
    are_spread(200, 200, 60);
    are_spread(1_000, 10, 60);
}

#[test]
#[ignore = "long: a hundred thousand devices"]
fn check_ins_of_a_hundred_thousand_devices_are_spread_and_an_outage_does_not_bring_them_together() {
    are_spread(100_000, 100_000, 10);
    are_spread(100_000, 1_000, 10);
}

#[test]
fn a_small_fleet_is_back_within_seconds() {
    let mut world = World::new(40, 10, Pace::default());
    world.run(0, OUTAGE);
    world.stop(OUTAGE);
    world.run(OUTAGE, OUTAGE + 3 * SECOND);
    world.start();
    world.run(OUTAGE + 3 * SECOND, OUTAGE + 10 * SECOND);
    let there = world.waits.iter().filter(|waits| **waits).count();
    assert!(there >= 13, "a round wants 13, and {there} are there");
}
