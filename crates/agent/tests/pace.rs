//! Thousands of devices, up to a hundred thousand, and the pace that a server sets: check-ins are spread.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{cmp::Reverse, collections::BinaryHeap};

use device::{
    guard::{Guard, Limits, MemoryStore, Window},
    protocol::{
        diary::Diary,
        message::{Answer, Enrolled, Hello, Later, Realm, Says, VERSION},
        participant::{Do, Event, Now, Participant, Settings},
        policy::Policy,
    },
};
use ed25519_dalek::SigningKey;
use federated::protocol::pace::Pace;
use prost::Message;
use secagg::entropy::{Entropy, NoRandomness};

const REALM: Realm = Realm([3; 32]);
const MINUTE_MS: u64 = 60_000;

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

/// A device that the server knows, with nothing else around it. All have one key: nobody looks at it here.
fn device(number: u64) -> Participant<MemoryStore> {
    let key = SigningKey::from_bytes(&[1; 32]);
    let limits = Limits { most_inputs: 1, window: Window::Ever, separation: None };
    let settings = Settings::new(key, Vec::new(), Policy::for_made_up_people(), limits);
    let guard = Guard::begin(MemoryStore::default()).unwrap();
    Participant::new(settings, guard, Diary::open(MemoryStore::default()).unwrap(), Box::new(Chance(number)))
}

fn now(up_ms: u64) -> Now {
    Now { up_ms, clock_s: up_ms / 1000 }
}

/// Check-ins of each minute.
fn check_ins(count: u64, minutes: u64) -> Vec<u64> {
    // A server that takes so many that each device comes about every eight minutes, however many there are.
    let pace = Pace { most_per_second: count as f64 / 500.0, ..Pace::default() };
    let mut chance = Chance(7);
    let mut counts = vec![0; minutes as usize];
    let mut devices: Vec<Participant<MemoryStore>> = (0..count).map(device).collect();
    let mean_ms = pace.mean_s(count, f64::INFINITY) * 1000.0;
    // They were enrolled over time.
    let mut queue: BinaryHeap<Reverse<(u64, usize)>> =
        (0..devices.len()).map(|number| Reverse((chance.next() % mean_ms as u64, number))).collect();
    while let Some(Reverse((time, number))) = queue.pop() {
        let minute = time / MINUTE_MS;
        if minute >= minutes {
            continue;
        }
        let device = &mut devices[number];
        let mut counted = false;
        let sleeps_until = loop {
            let answer = match device.next(now(time)) {
                Do::Sleep { until_ms } if until_ms > time => break until_ms,
                Do::Sleep { .. } => break time + 1,
                Do::Hello => {
                    let hello =
                        Hello { oldest: VERSION, newest: VERSION, realm: REALM.0.to_vec(), time_s: time / 1000 };
                    hello.encode_to_vec()
                }
                Do::Say(_) => {
                    counted = true;
                    let after_s =
                        pace.after_s(count, f64::INFINITY, (chance.next() >> 11) as f64 / (1u64 << 53) as f64);
                    let enrolled = Says::Enrolled(Enrolled { after_s });
                    let says = if device.diary().knows(&REALM) { Says::Later(Later { after_s }) } else { enrolled };
                    Answer::new(says).encode_to_vec()
                }
                other => panic!("{other:?}"),
            };
            device.got(Event::Answer(&answer), now(time));
        };
        counts[minute as usize] += u64::from(counted);
        queue.push(Reverse((sleeps_until, number)));
    }
    counts
}

fn are_spread(count: u64) {
    let counts = check_ins(count, 50);
    let calm = &counts[20..50];
    let mean = calm.iter().sum::<u64>() as f64 / calm.len() as f64;
    let peak = *calm.iter().max().unwrap() as f64;
    assert!(mean > count as f64 / 20.0 && peak <= 1.5 * mean, "peak {peak}, mean {mean}");
}

#[test]
fn check_ins_are_spread() {
    are_spread(10_000);
}

#[test]
#[ignore = "long: a hundred thousand devices"]
fn check_ins_of_a_hundred_thousand_devices_are_spread() {
    are_spread(100_000);
}
