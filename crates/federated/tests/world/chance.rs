//! What happens by chance in a schedule: numbers that follow from its seed (SplitMix64).

#![allow(dead_code, reason = "not every test uses all of it")]

use secagg::entropy::{Entropy, NoRandomness};

/// A stream of numbers that follows from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Chance(pub(super) u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Another one, which follows from this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn is(&mut self, share: f64) -> bool {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 <= share && share > 0.0
    }
}

impl Entropy for Chance {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
        buffer.fill_with(|| self.next() as u8);
        Ok(())
    }
}
