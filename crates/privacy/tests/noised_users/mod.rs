//! Users who add noise themselves, for tests: what they encode, how much noise each adds, and the sum of those who survive.
//! Shared by the tests of the mechanism and by those of the ledger.

#![allow(dead_code, reason = "not every test uses all of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use privacy::{
    Adjacency, ClipNorm, NoiseMultiplier, Participation, Segment,
    encoding::{Counts, DistributedNoise, Encoding, NoisePlan, Survivors, VectorPlan},
    mechanism::{Correlation, MechanismPlan},
    rng::{NoiseSource, Purpose, RandomWords, Randomness, SimulationKey},
    stages::{Encoded, NoisedSum, Residues},
};

pub(crate) const SURVIVORS: Survivors = Survivors { least: 8, corrupted: 3 };

pub(crate) fn z(multiplier: f64) -> NoiseMultiplier {
    NoiseMultiplier::new(multiplier).unwrap()
}

pub(crate) fn words(user: u64) -> RandomWords {
    NoiseSource::from(SimulationKey::new(9)).stream(Purpose::Noise, &[user]).chunk(0)
}

pub(crate) fn encoding_of(plan: VectorPlan) -> Encoding {
    Encoding::new(plan, ClipNorm::new(1.0).unwrap(), None, Adjacency::ZeroOut).unwrap()
}

/// An update, a clip bit, a weight and counts.
pub(crate) fn full() -> (Encoding, NoisePlan) {
    let counts = Some(Counts { len: 2, cap: 9 });
    let plan = VectorPlan { clip_bit: true, weight: true, counts, ..VectorPlan::of_update(50, 12) };
    let beside = Some(z(30.0));
    let noise = NoisePlan { multiplier: z(1.5), clip_count_stddev: Some(10.0), weight: beside, counts: beside };
    (encoding_of(plan), noise)
}

pub(crate) fn noise_of(encoding: &Encoding, noise: &NoisePlan) -> DistributedNoise {
    DistributedNoise::new(encoding, noise, Adjacency::ZeroOut, SURVIVORS).unwrap()
}

pub(crate) fn integers(encoding: &Encoding, values: &[i32]) -> Encoded {
    Encoded::of(values.to_vec(), encoding).unwrap()
}

/// The noised sum of users who all send the same.
pub(crate) fn noised_sum(residues: &Residues, encoding: &Encoding, values: &[i32], users: u64) -> NoisedSum {
    let mask = u32::MAX >> (32 - residues.bits());
    let mut sum = vec![0u32; residues.len()];
    for user in 0..users {
        let one = residues.noised(integers(encoding, values), &mut words(user)).unwrap();
        assert!(one.iter().all(|r| *r <= residues.largest()));
        sum.iter_mut().zip(one.iter()).for_each(|(sum, r)| *sum = sum.wrapping_add(*r) & mask);
    }
    residues.noised_sum(&sum, users).unwrap()
}

pub(crate) fn plan(noise: &DistributedNoise, participation: Participation, rounds: u64) -> MechanismPlan {
    MechanismPlan {
        stream: 0,
        adjacency: Adjacency::ZeroOut,
        participation,
        correlation: Correlation::Independent,
        segments: vec![Segment::of(rounds)],
        distributed: Some(noise.clone()),
    }
}

pub(crate) const RANDOMNESS: Randomness = Randomness::Simulated { seed: 1 };
