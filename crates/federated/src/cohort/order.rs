//! A random permutation of many users, computed position by position and never stored.
//!
//! A Feistel network over the next even number of bits, walked until the result is below the length (Black and Rogaway
//! 2002). It decides in which order simulated devices arrive, nothing that privacy rests on.

use privacy::rng::{NoiseSource, Purpose};

const ROUNDS: usize = 6;

/// A permutation of the numbers below a length.
#[derive(Debug, Clone)]
pub(super) struct Order {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Order {
    /// The order with this name.
    pub(super) fn new(source: &NoiseSource, name: &[u64], len: u64) -> Self {
        let position: Vec<u64> = [u64::MAX].into_iter().chain(name.iter().copied()).collect();
        let mut words = source.stream(Purpose::Cohort, &position).chunk(0);
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Self { len, half_bits: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| words.next_word()) }
    }

    /// The user at a position.
    pub(super) fn at(&self, place: u64) -> u64 {
        let mut at = self.once(place);
        while at >= self.len {
            at = self.once(at);
        }
        at
    }

    fn once(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mixed(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

/// A mix of 64 bits (Stafford's variant 13 of the finaliser of MurmurHash3).
const fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use privacy::rng::SimulationKey;

    use super::*;

    #[test]
    fn an_order_has_everybody_once() {
        let source = NoiseSource::from(SimulationKey::new(1));
        for len in [1, 2, 3, 7, 64, 65, 1000, 4097] {
            let order = Order::new(&source, &[5], len);
            let mut all: Vec<u64> = (0..len).map(|place| order.at(place)).collect();
            assert!(
                len < 50 || all.windows(2).filter(|w| w[0] < w[1]).count() < len as usize * 2 / 3,
                "it is shuffled"
            );
            all.sort_unstable();
            assert!(all.into_iter().eq(0..len));
        }
    }
}
