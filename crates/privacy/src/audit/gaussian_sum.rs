//! A noised sum with known epsilon, to test the audit itself.
//!
//! Every canary is a user with a direction of its own. Those that take part are clipped, encoded, added up and released with discrete
//! Gaussian noise by the same code as the updates of a run ([`crate::stages`], [`crate::mechanism`]), so the sum has an exact formal
//! epsilon, and the score of a canary is the released value in its direction. Every second canary exaggerates: its update and its weight
//! are a hundred times what is allowed. With a correct clip and a correct cap on weights nothing comes of that.
//!
//! Directions are coordinates. Canaries are put into blocks, each with a release of its own; a canary is in one of them, so the run costs
//! as much as one release.

use super::{AuditError, bench, one_run::Scored, trade_off::mu_of};
use crate::{
    AccountantKind, Adjacency, ClipNorm, Delta, Epsilon, NoiseMultiplier, Participation, Segment,
    encoding::{Encoding, NoisePlan, VectorPlan},
    mechanism::{Correlation, Mechanism, MechanismPlan},
    rng::{NoiseSource, Purpose, RandomWords, Randomness, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping, Contribution, Encoded, Sum, Update},
};

/// Canaries of a block.
pub const BLOCK: u64 = 50;
/// By how much every second canary exaggerates.
pub const EXAGGERATION: f32 = 100.0;
/// The grid of updates.
const GRID_BITS: u32 = 20;
/// The most canaries.
const MOST_CANARIES: u64 = 10_000_000;

/// A sum with canaries.
#[derive(Debug)]
pub struct GaussianSum {
    canaries: u64,
    seed: u64,
    encoding: Encoding,
    clipping: Clipping,
    plan: MechanismPlan,
    epsilon: Epsilon,
}

impl GaussianSum {
    /// A sum with so many canaries and enough noise for this epsilon.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn new(canaries: u64, epsilon: f64, delta: Delta, seed: u64) -> Result<Self, AuditError> {
        if !(super::one_run::FEWEST_CANARIES as u64..=MOST_CANARIES).contains(&canaries) {
            let range = "from 20 to 10,000,000";
            return Err(AuditError::OutOfRange { what: "canaries", range, got: canaries as f64 });
        }
        let noise = NoiseMultiplier::new(1.0 / mu_of(epsilon, delta)?).map_err(bench)?;
        Self::with_noise(canaries, noise, delta, seed)
    }

    /// A sum with so much noise.
    ///
    /// # Errors
    /// When the noise cannot be drawn.
    pub fn with_noise(canaries: u64, noise: NoiseMultiplier, delta: Delta, seed: u64) -> Result<Self, AuditError> {
        let clip = ClipNorm::new(1.0).map_err(bench)?;
        let adjacency = Adjacency::ZeroOut;
        let vector = VectorPlan::of_update(BLOCK as usize, GRID_BITS);
        let encoding = Encoding::new(vector, clip, Some(&NoisePlan::of_update(noise)), adjacency).map_err(bench)?;
        let plan = MechanismPlan {
            stream: 0,
            adjacency,
            participation: Participation::Once,
            correlation: Correlation::Independent,
            segments: vec![Segment::of(canaries.div_ceil(BLOCK))],
            distributed: None,
        };
        let event = plan.event(u64::MAX, encoding.layout()).map_err(bench)?;
        let epsilon = AccountantKind::Best.judge(&event, delta).map_err(bench)?.epsilon;
        let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::None).map_err(bench)?;
        Ok(Self { canaries, seed, encoding, clipping, plan, epsilon })
    }

    /// The epsilon by the accountant.
    #[must_use]
    pub const fn epsilon(&self) -> Epsilon {
        self.epsilon
    }

    /// How many canaries there are.
    #[must_use]
    pub const fn canaries(&self) -> u64 {
        self.canaries
    }

    /// How many blocks there are.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.canaries.div_ceil(BLOCK)
    }

    /// The canaries of a block.
    #[must_use]
    pub fn block(&self, block: u64) -> std::ops::Range<u64> {
        block * BLOCK..((block + 1) * BLOCK).min(self.canaries)
    }

    /// A sum of nobody.
    #[must_use]
    pub fn nobody(&self) -> Sum {
        Sum::zero(&self.encoding)
    }

    /// The coins of all canaries: who takes part.
    #[must_use]
    pub fn coins(&self) -> Vec<bool> {
        let mut words = self.words(Purpose::Cohort, 0);
        (0..self.canaries).map(|_| words.next_word() & 1 == 1).collect()
    }

    /// The encoded update that a canary sends.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn sent(&self, canary: u64) -> Result<Encoded, AuditError> {
        let size = if canary.is_multiple_of(2) { EXAGGERATION } else { 1.0 };
        let mut update = vec![0.0; BLOCK as usize];
        update[(canary % BLOCK) as usize] = size;
        let said = Contribution { weight: f64::from(size), ..Contribution::default() };
        let clipped = Update::new(update).clip(&self.clipping, said).map_err(bench)?;
        clipped.encode(&self.encoding, &mut self.words(Purpose::Rounding, canary)).map_err(bench)
    }

    /// Releases one block after the other.
    ///
    /// # Errors
    /// When the noise cannot be drawn.
    pub fn releases(&self) -> Result<Releases<'_>, AuditError> {
        let randomness = Randomness::Simulated { seed: self.seed };
        let mechanism = Mechanism::init(self.plan.clone(), self.encoding.layout(), randomness).map_err(bench)?;
        Ok(Releases { of: self, mechanism })
    }

    /// The scores of all canaries after the sum was released.
    ///
    /// # Errors
    /// When something cannot be encoded or released.
    pub fn scores(&self) -> Result<Vec<Scored>, AuditError> {
        let coins = self.coins();
        let mut releases = self.releases()?;
        let mut scored = Vec::with_capacity(coins.len());
        for block in 0..self.blocks() {
            let mut sum = self.nobody();
            for canary in self.block(block).filter(|canary| coins[*canary as usize]) {
                sum.add(&self.sent(canary)?).map_err(bench)?;
            }
            let values = releases.next(sum)?;
            scored.extend(
                self.block(block)
                    .map(|canary| Scored { score: values[(canary % BLOCK) as usize], present: coins[canary as usize] }),
            );
        }
        Ok(scored)
    }

    fn words(&self, purpose: Purpose, position: u64) -> RandomWords {
        // Another seed than that of the noise would change nothing: purposes share no stream.
        NoiseSource::from(SimulationKey::new(self.seed)).stream(purpose, &[position]).chunk(0)
    }
}

/// Releases blocks in order.
#[derive(Debug)]
pub struct Releases<'a> {
    of: &'a GaussianSum,
    mechanism: Mechanism,
}

impl Releases<'_> {
    /// The next block with its noise, in units of the clip norm.
    ///
    /// # Errors
    /// When it cannot be released.
    pub fn next(&mut self, sum: Sum) -> Result<Vec<f64>, AuditError> {
        let mut keys = SimulationKey::new(self.of.seed);
        let released = self.mechanism.release(sum, &mut keys).map_err(bench)?;
        let step = 1.0 / f64::from(1u32 << GRID_BITS);
        Ok(released.values().iter().take(BLOCK as usize).map(|v| *v as f64 * step).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formal_epsilon_is_what_was_asked_for() {
        let delta = Delta::new(1e-5).unwrap();
        for epsilon in [0.5, 2.0, 8.0] {
            let formal = GaussianSum::new(200, epsilon, delta, 1).unwrap().epsilon().get();
            assert!((formal / epsilon - 1.0).abs() < 1e-3, "{formal} {epsilon}");
        }
        for (canaries, epsilon) in [(19, 1.0), (100, 0.0), (100, f64::NAN), (MOST_CANARIES + 1, 1.0)] {
            assert!(GaussianSum::new(canaries, epsilon, delta, 1).is_err(), "{canaries} {epsilon}");
        }
    }

    /// Scores have the mean and the deviation that the noise says, also for canaries that exaggerate.
    #[test]
    fn scores_are_presence_with_the_planned_noise() {
        let bench =
            GaussianSum::with_noise(4025, NoiseMultiplier::new(2.0).unwrap(), Delta::new(1e-5).unwrap(), 3).unwrap();
        let scored = bench.scores().unwrap();
        assert_eq!((scored.len(), scored.clone()), (4025, bench.scores().unwrap()));
        for exaggerates in [0, 1] {
            let some = scored.iter().skip(exaggerates).step_by(2);
            let noise: Vec<f64> = some.map(|s| s.score - f64::from(u8::from(s.present))).collect();
            let mean = noise.iter().sum::<f64>() / noise.len() as f64;
            let deviation = libm::sqrt(noise.iter().map(|n| n * n).sum::<f64>() / noise.len() as f64);
            assert!(mean.abs() < 0.15 && (deviation - 2.0).abs() < 0.12, "{mean} {deviation}");
        }
        let present = scored.iter().filter(|s| s.present).count();
        assert!((1850..2180).contains(&present), "{present}");
    }
}
