//! Samples the cohort of a round in simulations, by the plan's [`Participation`] and from the run's key.
//!
//! Users are numbers below the population, and nothing is kept for each of them: drawing 5,000 of 10^8 costs as much as
//! drawing 5,000 of 10^4.
//!
//! - Poisson: the gaps between the users that are drawn are geometric, so the gaps are drawn.
//! - Fixed size: each set of so many users is equally likely ([`RandomWords::some_of`]).
//! - Arrival: devices come in an order of their own and come back when their timer is over (Xu et al. 2023). All users pass
//!   by once before anyone comes again; a user who came early in one pass comes about as early in the next, since passes are
//!   shuffled in blocks, which are short enough that nobody returns before the rounds of the separation are over.
//! - Once: the same, with one pass.

pub mod left_out;
mod order;
pub mod queue;

use self::{order::Order, queue::Came};
use privacy::{
    Participation,
    participation::ParticipationError,
    rng::{NoiseSource, Purpose, RandomWords},
};

/// Draws cohorts.
#[derive(Debug, Clone)]
pub struct Sampler {
    participation: Participation,
    population: u64,
    /// Users of a round, where that is not drawn.
    goal: u64,
}

impl Sampler {
    /// A sampler for a participation; `goal` is the number of users of a round where the participation does not say.
    ///
    /// # Errors
    /// When the population is too small for it.
    pub fn new(
        participation: Participation,
        population: u64,
        goal: u64,
        rounds: u64,
    ) -> Result<Self, ParticipationError> {
        participation.check_feasible(population, goal, rounds)?;
        Ok(Self { participation, population, goal })
    }

    /// The cohort of a round, in ascending order, if no attempt at any round has failed. A round of sampled users is
    /// attempted once; where devices come by themselves, [`queue::Queue`] knows who comes after that.
    #[must_use]
    pub fn cohort(&self, source: &NoiseSource, round: u64) -> Vec<u64> {
        let mut words = source.stream(Purpose::Cohort, &[round]).chunk(0);
        match self.participation {
            Participation::Poisson { rate } => poisson(&mut words, rate.get(), self.population),
            Participation::FixedSize { population, cohort } => words.some_of(cohort, population).collect(),
            Participation::MinSeparation { .. } | Participation::Once => self.arrivals(source, round),
        }
    }

    /// The users at the next `goal` places of the endless queue.
    fn arrivals(&self, source: &NoiseSource, round: u64) -> Vec<u64> {
        let mut users: Vec<u64> = self.queue(source, round * self.goal).take(self.goal as usize).collect();
        users.sort_unstable();
        users
    }

    /// The endless queue of devices, from a place on.
    fn queue<'a>(&self, source: &'a NoiseSource, first: u64) -> Arrivals<'a> {
        // Places of a block may move by its length from pass to pass; what is left must fill the rounds between.
        let distance = match self.participation {
            Participation::MinSeparation { separation, .. } => separation.as_distance(),
            _ => 0,
        };
        let between = self.goal.saturating_mul(distance).min(self.population);
        let (population, block) = (self.population, (self.population - between).max(1));
        let everyone = Order::new(source, &[], population);
        Arrivals { source, population, block, everyone, within: None, next: first }
    }

    /// Whether a user who was asked before may be asked for a step.
    fn may_come(&self, before: Option<Came>, step: u64) -> bool {
        let Some(Came { last, times }) = before else { return true };
        match self.participation {
            Participation::MinSeparation { separation, max_participations } => {
                times < max_participations && step >= last.saturating_add(separation.as_distance())
            }
            Participation::Once => false,
            Participation::Poisson { .. } | Participation::FixedSize { .. } => true,
        }
    }
}

/// Devices in the order in which they come.
struct Arrivals<'a> {
    source: &'a NoiseSource,
    population: u64,
    block: u64,
    everyone: Order,
    /// The block that was asked for last, by pass and first place, and its order.
    within: Option<((u64, u64), Order)>,
    next: u64,
}

impl Iterator for Arrivals<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (pass, place) = (self.next / self.population, self.next % self.population);
        self.next += 1;
        let start = place / self.block * self.block;
        let fresh = || Order::new(self.source, &[pass, start], self.block.min(self.population - start));
        let (_, order) = match self.within.take() {
            Some(known) if known.0 == (pass, start) => self.within.insert(known),
            _ => self.within.insert(((pass, start), fresh())),
        };
        Some(self.everyone.at(start + order.at(place - start)))
    }
}

/// The gaps' logarithms are rounded; a rate that is smaller by a part in 10^12 than the one that is accounted for is more
/// than that rounding, so that nobody is drawn with a greater probability than was said.
const ROUNDING: f64 = 1.0 - 1e-12;

fn poisson(words: &mut RandomWords, rate: f64, population: u64) -> Vec<u64> {
    if rate >= 1.0 {
        return (0..population).collect();
    }
    let log_stay = libm::log1p(-rate * ROUNDING);
    let mut drawn = Vec::new();
    let mut next = 0u64;
    loop {
        // In (0, 1]: 0 would be an endless gap.
        let uniform = ((words.next_word() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let gap = libm::floor(libm::log(uniform) / log_stay);
        if gap >= (population - next) as f64 {
            return drawn;
        }
        next += gap as u64;
        drawn.push(next);
        next += 1;
        if next == population {
            return drawn;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use privacy::{MinSeparation, SamplingRate, rng::SimulationKey};

    use super::*;

    fn source() -> NoiseSource {
        SimulationKey::new(7).into()
    }

    /// The number of users is binomial and every user is as likely as any other: both within 5 standard deviations, which an
    /// honest sampler leaves once in a million times.
    #[test]
    fn poisson_cohorts_are_poisson() {
        let (population, rate, rounds) = (1000u64, 0.03, 4000u64);
        let participation = Participation::Poisson { rate: SamplingRate::new(rate).unwrap() };
        let sampler = Sampler::new(participation, population, 30, rounds).unwrap();
        let (mut sizes, mut squares, mut times) = (0.0, 0.0, vec![0u32; population as usize]);
        for round in 0..rounds {
            let cohort = sampler.cohort(&source(), round);
            assert!(cohort.windows(2).all(|w| w[0] < w[1]) && cohort.iter().all(|u| *u < population));
            sizes += cohort.len() as f64;
            squares += (cohort.len() as f64).powi(2);
            cohort.iter().for_each(|u| times[*u as usize] += 1);
        }
        let (n, mean) = (rounds as f64, sizes / rounds as f64);
        let variance = population as f64 * rate * (1.0 - rate);
        assert!((mean - 30.0).abs() < 5.0 * (variance / n).sqrt(), "{mean}");
        let got = squares / n - mean * mean;
        assert!((got / variance - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{got} instead of {variance}");
        let chi: f64 = times.iter().map(|t| (f64::from(*t) - n * rate).powi(2) / (n * rate * (1.0 - rate))).sum();
        assert!((chi - 1000.0).abs() < 5.0 * (2000.0f64).sqrt(), "{chi}");
    }

    #[test]
    fn everybody_or_nearly_nobody_can_be_drawn() {
        let all = Participation::Poisson { rate: SamplingRate::new(1.0).unwrap() };
        assert_eq!(Sampler::new(all, 50, 50, 1).unwrap().cohort(&source(), 0).len(), 50);
        let few = Participation::Poisson { rate: SamplingRate::new(1e-12).unwrap() };
        assert!(Sampler::new(few, 50, 1, 1).unwrap().cohort(&source(), 0).is_empty());
    }

    #[test]
    fn fixed_cohorts_have_their_size_and_no_favourites() {
        let participation = Participation::FixedSize { population: 200, cohort: 20 };
        let sampler = Sampler::new(participation, 200, 20, 5000).unwrap();
        let mut times = [0u32; 200];
        for round in 0..5000 {
            let cohort = sampler.cohort(&source(), round);
            assert_eq!(cohort.len(), 20);
            cohort.iter().for_each(|u| times[*u as usize] += 1);
        }
        let chi: f64 = times.iter().map(|t| (f64::from(*t) - 500.0).powi(2) / (500.0 * 0.9)).sum();
        assert!((chi - 199.0).abs() < 5.0 * (400.0f64).sqrt(), "{chi}");
    }

    /// 5,000 of 10^8: nothing here may walk over the population.
    #[test]
    fn large_populations_are_drawn_from_at_once() {
        let population = 100_000_000;
        let rate = SamplingRate::new(5e-5).unwrap();
        let separation = MinSeparation::rounds_between(1000).unwrap();
        for participation in [
            Participation::Poisson { rate },
            Participation::FixedSize { population, cohort: 5000 },
            Participation::MinSeparation { separation, max_participations: 4 },
        ] {
            let sampler = Sampler::new(participation, population, 5000, 100).unwrap();
            let sizes: Vec<usize> = (0..100).map(|round| sampler.cohort(&source(), round).len()).collect();
            assert!(sizes.iter().all(|s| s.abs_diff(5000) < 500), "{sizes:?}");
        }
    }

    /// Rules P6 and P18: nobody comes back before the separation is over, or more often than allowed; and the order differs
    /// from pass to pass where there is room for it.
    #[test]
    fn p6_arrivals_keep_their_distance() {
        for (population, goal, between, most) in [(103u64, 10u64, 5u64, 4u64), (60, 10, 5, 3), (500, 7, 20, 2)] {
            let separation = MinSeparation::rounds_between(between).unwrap();
            let rounds = population * most / goal;
            let participation = Participation::MinSeparation { separation, max_participations: most };
            let sampler = Sampler::new(participation, population, goal, rounds).unwrap();
            let mut came: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for round in 0..rounds {
                let cohort = sampler.cohort(&source(), round);
                assert!(cohort.len() == goal as usize && cohort.windows(2).all(|w| w[0] < w[1]));
                cohort.into_iter().for_each(|user| came.entry(user).or_default().push(round));
            }
            for rounds in came.values() {
                assert!(rounds.len() as u64 <= most);
                assert!(rounds.windows(2).all(|w| w[1] - w[0] > between), "{rounds:?}");
            }
        }
        let separation = MinSeparation::rounds_between(1000).unwrap();
        let tight = Participation::MinSeparation { separation, max_participations: 9 };
        assert!(matches!(Sampler::new(tight, 500, 7, 2000), Err(ParticipationError::SeparationInfeasible { .. })));
    }

    #[test]
    fn once_is_once() {
        let sampler = Sampler::new(Participation::Once, 1000, 100, 10).unwrap();
        let mut all: Vec<u64> = (0..10).flat_map(|round| sampler.cohort(&source(), round)).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1000));
        assert!(Sampler::new(Participation::Once, 1000, 100, 11).is_err());
    }
}
