//! Staircases with integer heights above a falling curve: the proposals of the exact samplers.
//!
//! A curve `G c(y)`, with c(0) = 1 and c falling over y = 0, 1, 2, ..., is covered by steps of width `w = 2^b`. The heights
//! are integers that add up to 2^63, so a step is chosen, exactly, by an alias table over integers (Walker 1977) from 63
//! random bits; the 64th says on which side of 0 the draw is to lie. What lies beyond the table, from
//! [`TABLE_REACH`] standard deviations on, is one more entry with wider steps, each half as likely as the one before.
//!
//! The table is computed with floats once, but only *that* its heights cover the curve matters (they are 2^-40 above it,
//! more than the floats may be off; the samplers' tests check each against exact bounds), since who keeps or refuses a
//! proposal divides by the integer height itself.

use crate::rng::RandomWords;

/// Columns of the alias table.
pub(super) const COLUMNS: usize = 1 << 10;
/// What each column holds: `COLUMNS << CAPACITY_BITS` is the sum of all heights, 2^63.
pub(super) const CAPACITY_BITS: u32 = 53;
/// The table covers so many standard deviations.
pub(super) const TABLE_REACH: f64 = 9.5;
/// Steps beyond the table are so many bits wider: at least sigma / 4, so that the curve falls by more than half.
pub(super) const TAIL_WIDENING: u32 = 4;
/// Draws are below this in absolute value.
const LARGEST_DRAW: u64 = 1 << 62;

/// Steps, their heights, and the table to choose one from.
#[derive(Debug, Clone)]
pub(super) struct Staircase {
    /// b: the steps of the table are 2^b wide.
    pub(super) width_bits: u32,
    /// G: the height of the curve at 0.
    pub(super) scale: u64,
    /// Heights of the steps; the last one is the tail's.
    pub(super) heights: Vec<u64>,
    pub(super) columns: Box<[Column; COLUMNS]>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Column {
    pub(super) threshold: u64,
    pub(super) alias: u16,
}

/// A proposal beyond the table.
pub(super) struct TailProposal {
    /// y.
    pub(super) distance: u64,
    /// It is kept with probability `G c(y) * 2^raised / height` of the tail.
    pub(super) raised: u32,
    /// The first 32 bits of the uniform that decides.
    pub(super) decider: u32,
}

impl Staircase {
    /// Covers a curve; `curve(i)` is c at the start of step i, off by less than 2^-40 of it, and `curve(steps)` that at the
    /// start of the tail. There are fewer steps than columns.
    pub(super) fn over(width_bits: u32, steps: usize, curve: impl Fn(usize) -> f64) -> Self {
        let starts: Vec<f64> = (0..steps).map(&curve).collect();
        // The tail's first step is chosen half the time that the tail is, and is wider.
        let tail = curve(steps) * f64::from(2u32 << TAIL_WIDENING);
        let total = starts.iter().sum::<f64>() + tail;
        let all = 1u64 << 63;
        let scale = ((all as f64 / total) * (1.0 - 2.0f64.powi(-38))) as u64 - 2 * steps as u64;
        let cover = |c: f64| (scale as f64 * c * (1.0 + 2.0f64.powi(-40))) as u64 + 2;
        let mut heights: Vec<u64> = starts.iter().chain([&tail]).map(|c| cover(*c)).collect();
        let spare = all - heights.iter().sum::<u64>();
        heights[0] += spare;
        let columns = alias_table(&heights);
        Self { width_bits, scale, heights, columns }
    }

    /// Steps of the table; the entry after them is the tail.
    pub(super) const fn steps(&self) -> usize {
        self.heights.len() - 1
    }

    /// The tail's height.
    pub(super) fn tail_height(&self) -> u64 {
        self.heights[self.steps()]
    }

    /// A step, chosen with probability `height / 2^63`, and a fair coin.
    #[inline]
    pub(super) fn choose(&self, words: &mut RandomWords) -> (usize, bool) {
        let word = words.next_word();
        let first = (word >> CAPACITY_BITS) as usize % COLUMNS;
        let column = &self.columns[first];
        let own = word & ((1 << CAPACITY_BITS) - 1) < column.threshold;
        (if own { first } else { column.alias as usize }, word >> 63 == 1)
    }

    /// A uniform place within a step of the table, and the first 32 bits of the uniform that decides.
    #[inline]
    pub(super) fn place(&self, words: &mut RandomWords) -> (u64, u32) {
        let word = words.next_word();
        // The leading bits are the place, the last 32 decide; they never overlap.
        let place = (word >> 1) >> (63 - self.width_bits);
        let decider = if self.width_bits <= 32 { word as u32 } else { words.next_word() as u32 };
        (place, decider)
    }

    /// A place beyond the table: steps `2^TAIL_WIDENING` times as wide, each half as likely as the one before. None if it
    /// lies beyond what machine words hold.
    #[cold]
    pub(super) fn tail(&self, words: &mut RandomWords) -> Option<TailProposal> {
        let mut step = 0u64;
        let mut coin = words.next_word();
        while coin == 0 {
            step += 64;
            coin = words.next_word();
        }
        step += u64::from(coin.trailing_zeros());
        let bits = self.width_bits + TAIL_WIDENING;
        let place = words.next_word() >> (64 - bits);
        let base = (self.steps() as u64) << self.width_bits;
        let distance = step.checked_mul(1 << bits)?.checked_add(base + place).filter(|y| *y < LARGEST_DRAW)?;
        // The chance to get here is height * 2^-(step + 1), spread over 2^TAIL_WIDENING widths.
        let raised = u32::try_from(step).ok()?.checked_add(TAIL_WIDENING + 1)?;
        let decider = (words.next_word() >> 32) as u32;
        Some(TailProposal { distance, raised, decider })
    }
}

/// Walker's table over integers: every column holds 2^53 of its own entry and of one other.
fn alias_table(heights: &[u64]) -> Box<[Column; COLUMNS]> {
    let capacity = 1u64 << CAPACITY_BITS;
    let mut left = vec![0u64; COLUMNS];
    left[..heights.len()].copy_from_slice(heights);
    let mut columns = Box::new([Column::default(); COLUMNS]);
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..COLUMNS).partition(|i| left[*i] < capacity);
    while let Some(short) = small.pop() {
        // While a column is short, another has more than its share, for the sum is the capacity of all.
        let Some(&long) = large.last() else { break };
        columns[short] = Column { threshold: left[short], alias: long as u16 };
        left[long] -= capacity - left[short];
        if left[long] < capacity {
            large.pop();
            small.push(long);
        }
    }
    for full in large {
        columns[full] = Column { threshold: capacity, alias: full as u16 };
    }
    columns
}

#[cfg(test)]
impl Staircase {
    /// Whether the table chooses every step with exactly its height.
    pub(super) fn is_exact(&self) -> bool {
        let mut chosen = vec![0u64; COLUMNS];
        for (i, column) in self.columns.iter().enumerate() {
            chosen[i] += column.threshold;
            chosen[column.alias as usize] += (1 << CAPACITY_BITS) - column.threshold;
        }
        let (used, unused) = chosen.split_at(self.heights.len());
        used == self.heights
            && unused.iter().all(|c| *c == 0)
            && self.heights.iter().map(|h| u128::from(*h)).sum::<u128>() == 1 << 63
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{NoiseSource, Purpose, SimulationKey};

    #[test]
    fn steps_of_any_curve_are_chosen_with_exactly_their_heights() {
        for (steps, fall) in [(1, 0.5), (10, 0.9), (600, 0.95), (1000, 0.999), (1023, 1.0)] {
            let stairs = Staircase::over(3, steps, |i| libm::pow(fall, i as f64));
            assert!(stairs.is_exact(), "{steps} steps, falling by {fall}");
        }
    }

    #[test]
    fn chosen_steps_and_places_are_as_frequent_as_they_should_be() {
        let stairs = Staircase::over(2, 3, |i| libm::pow(0.25, i as f64));
        let mut words = NoiseSource::from(SimulationKey::new(2)).stream(Purpose::Noise, &[]).chunk(0);
        let trials = 100_000;
        let (mut steps, mut places, mut heads) = ([0.0; 4], [0.0; 4], 0.0);
        for _ in 0..trials {
            let (step, coin) = stairs.choose(&mut words);
            steps[step] += 1.0;
            heads += f64::from(u8::from(coin));
            places[stairs.place(&mut words).0 as usize] += 1.0;
        }
        let near = |count: f64, p: f64| {
            let deviation = (count - trials as f64 * p) / libm::sqrt(trials as f64 * p * (1.0 - p));
            assert!(deviation.abs() < 4.5, "{deviation} standard deviations (alpha 7e-6)");
        };
        for (count, height) in steps.iter().zip(&stairs.heights) {
            near(*count, *height as f64 / 2.0f64.powi(63));
        }
        places.iter().for_each(|count| near(*count, 0.25));
        near(heads, 0.5);
    }

    #[test]
    fn tail_steps_halve_and_lie_beyond_the_table() {
        let stairs = Staircase::over(2, 3, |i| libm::pow(0.25, i as f64));
        let mut words = NoiseSource::from(SimulationKey::new(3)).stream(Purpose::Noise, &[]).chunk(0);
        let proposals: Vec<_> = (0..20_000).filter_map(|_| stairs.tail(&mut words)).collect();
        for p in &proposals {
            let step = (p.distance - 12) >> (2 + TAIL_WIDENING);
            assert_eq!(u64::from(p.raised), step + u64::from(TAIL_WIDENING) + 1);
        }
        let first = proposals.iter().filter(|p| p.raised == TAIL_WIDENING + 1).count();
        assert!(first.abs_diff(10_000) < 320, "{first} of 20,000 (4.5 standard deviations, alpha 7e-6)");
    }
}
