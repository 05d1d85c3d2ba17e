//! Which simulated devices drop out during a round: the same users with every kind of aggregation.

use privacy::rng::{NoiseSource, Purpose, StreamKey};

/// When a user vanishes. A user who sent its input before is in the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vanishes {
    /// Drops out before sending keys.
    BeforeKeys,
    /// After its keys, before it shares them.
    BeforeShares,
    /// After that, before its input.
    BeforeInput,
    /// After its input, before it helps to take masks off.
    BeforeUnmask,
    /// Does not drop out.
    Never,
}

impl Vanishes {
    /// Whether its input arrives.
    #[must_use]
    pub fn sends(self) -> bool {
        self > Self::BeforeInput
    }
}

/// Decides who vanishes in a round.
pub struct Vanishing {
    share: f64,
    key: StreamKey,
}

impl Vanishing {
    /// Each user of the attempt at this position with this probability.
    #[must_use]
    pub fn new(source: &NoiseSource, position: &[u64], share: f64) -> Self {
        Self { share, key: source.stream(Purpose::Vanishing, position) }
    }

    /// When a user does: at each of the four points as likely as at another.
    #[must_use]
    pub fn of(&self, user: u64) -> Vanishes {
        if self.share <= 0.0 {
            return Vanishes::Never;
        }
        let mut words = self.key.chunk(user);
        let uniform = (words.next_word() >> 11) as f64 * 2.0f64.powi(-53);
        if uniform >= self.share {
            return Vanishes::Never;
        }
        match words.next_word() % 4 {
            0 => Vanishes::BeforeKeys,
            1 => Vanishes::BeforeShares,
            2 => Vanishes::BeforeInput,
            _ => Vanishes::BeforeUnmask,
        }
    }
}

#[cfg(test)]
mod tests {
    use privacy::rng::SimulationKey;

    use super::*;

    #[test]
    fn as_many_vanish_as_said_at_each_point_alike() {
        let vanishing = Vanishing::new(&SimulationKey::new(1).into(), &[7], 0.2);
        let mut counts = [0u32; 5];
        (0..20_000).for_each(|user| counts[vanishing.of(user) as usize] += 1);
        // 1000 of 20,000 at each point, with a standard deviation of 31.
        assert!(counts[..4].iter().all(|c| c.abs_diff(1000) < 140), "{counts:?}");
        assert!((0..100).all(|user| vanishing.of(user) == vanishing.of(user)));
    }

    #[test]
    fn nobody_vanishes_where_nobody_is_to() {
        let vanishing = Vanishing::new(&SimulationKey::new(1).into(), &[7], 0.0);
        assert!((0..1000).all(|user| vanishing.of(user) == Vanishes::Never));
    }

    #[test]
    fn another_round_is_another_draw() {
        let source = NoiseSource::from(SimulationKey::new(1));
        let [a, b] = [7, 8].map(|round| Vanishing::new(&source, &[round], 0.5));
        assert!((0..100).any(|user| a.of(user) != b.of(user)));
    }
}
