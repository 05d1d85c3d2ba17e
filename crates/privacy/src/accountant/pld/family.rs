//! The loss of one release as a function of its output, in either direction.

use crate::accountant::{
    gaussian::{normal_pdf, normal_sf},
    sampled::SampledGaussian,
};

/// Beyond this an exponential is not a number that can be computed with.
pub(super) const MAX_EXPONENT: f64 = 700.0;

/// The most samples of a loss.
const MAX_NODES: f64 = 20_000.0;

/// Which of the neighbouring datasets holds the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The output's law is with the user, the alternative without: the loss grows with the output.
    Remove,
    /// The output's law is without the user, the alternative with: the loss falls with the output.
    Add,
}

/// The privacy loss `ln P/Q` of one release.
#[derive(Debug, Clone)]
pub(super) struct LossFamily {
    pub(super) law: SampledGaussian,
    pub(super) direction: Direction,
}

/// A sample of the loss for planning: the loss, the probability near it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) loss: f64,
    pub(super) mass: f64,
}

impl LossFamily {
    /// How many Gaussians the mixture has.
    pub(super) fn components(&self) -> usize {
        self.law.largest_shift() as usize + 1
    }

    /// The weight of the mixture's component `j`.
    pub(super) fn weight(&self, j: usize) -> f64 {
        self.law.weight(j)
    }

    /// The signed tails of each component at the output with this loss: beyond the output as seen from the component's
    /// mean, negative when the output lies below it.
    pub(super) fn push_tails(&self, loss: f64, tails: &mut Vec<f64>) {
        let x = match self.direction {
            Direction::Remove => self.law.x_of_loss(loss),
            Direction::Add => self.law.x_of_loss(-loss),
        };
        for j in 0..self.components() {
            let distance = (x - j as f64) / self.law.z;
            let tail = normal_sf(distance.abs());
            tails.push(if distance < 0.0 { -tail } else { tail });
        }
    }

    /// The output beyond which a run of `times` releases adds at most `probability` to delta: where the delta of a
    /// single release falls below its share. Only the side of large losses counts.
    fn far_output(&self, times: f64, probability: f64) -> f64 {
        let components = self.components();
        let farthest = (0..components)
            .filter(|j| self.weight(*j) > 0.0)
            .map(|j| {
                let ln = libm::log(self.weight(j) * components as f64 * times / (2.0 * probability));
                j as f64 + self.law.z * libm::sqrt(2.0 * ln.max(0.5))
            })
            .fold(0.0, f64::max);
        let (mut lo, mut hi) = (self.law.largest_shift().min(0.5 * farthest), farthest);
        for _ in 0..20 {
            let mid = 0.5 * (lo + hi);
            if times * self.curve(self.law.loss(mid)) > probability { lo = mid } else { hi = mid }
        }
        hi
    }

    /// The largest loss that needs a lattice point when `times` releases may leave out `probability`.
    pub(super) fn largest_loss(&self, times: f64, probability: f64) -> f64 {
        match self.direction {
            Direction::Remove => self.law.loss(self.far_output(times, probability)),
            Direction::Add => self.supremum(),
        }
    }

    /// The loss that is never exceeded.
    pub(super) fn supremum(&self) -> f64 {
        match self.direction {
            Direction::Remove => f64::INFINITY,
            Direction::Add => -libm::log(self.law.weight(0)),
        }
    }

    /// The loss that is never fallen short of.
    pub(super) fn infimum(&self) -> f64 {
        match self.direction {
            Direction::Remove => libm::log(self.law.weight(0)),
            Direction::Add => f64::NEG_INFINITY,
        }
    }

    /// Losses with their probabilities, ascending in the loss, by the trapezoidal rule.
    pub(super) fn nodes(&self, times: f64, probability: f64) -> Vec<Node> {
        let z = self.law.z;
        let step = z / 5.0;
        let (from, to) = match self.direction {
            Direction::Remove => {
                let lowest = if self.law.weight(0) > 0.0 { 0.0 } else { 1.0 };
                (lowest - 10.0 * z, self.far_output(times, probability))
            }
            Direction::Add => (-10.0 * z, 10.0 * z),
        };
        let count = libm::ceil((to - from) / step).min(MAX_NODES) as usize;
        let mut nodes: Vec<Node> = (0..=count)
            .map(|i| {
                let x = from + i as f64 * step;
                let density = |j: usize| normal_pdf((x - j as f64) / z) / z;
                match self.direction {
                    Direction::Remove => Node {
                        loss: self.law.loss(x),
                        mass: step * (0..self.components()).map(|j| self.weight(j) * density(j)).sum::<f64>(),
                    },
                    Direction::Add => Node { loss: -self.law.loss(x), mass: step * density(0) },
                }
            })
            .collect();
        if self.direction == Direction::Add {
            nodes.reverse();
        }
        nodes
    }

    /// The mean loss, which is the Kullback-Leibler divergence; infinite where it cannot be computed, as with next to no noise: then the
    /// samples end before they come to where the loss is.
    pub(super) fn mean_loss(&self) -> f64 {
        // The trapezoidal rule is exact to many digits; nothing of note lies beyond ten standard deviations.
        let nodes = self.nodes(1.0, 1e-30);
        let mean: f64 = nodes.iter().map(|n| n.mass * n.loss).sum();
        if nodes.len() as f64 > MAX_NODES || mean.is_nan() { f64::INFINITY } else { mean.max(0.0) }
    }

    /// The privacy curve of a single release, `P(loss > eps) - e^eps Q(loss > eps)`, in closed form. Where e^eps is not
    /// a number it leaves out what is subtracted.
    pub(super) fn curve(&self, epsilon: f64) -> f64 {
        let alpha = if epsilon < MAX_EXPONENT { libm::exp(epsilon) } else { 0.0 };
        match self.direction {
            Direction::Remove => {
                let x = self.law.x_of_loss(epsilon);
                self.law.upper_tail_with(x) - alpha * normal_sf(x / self.law.z)
            }
            Direction::Add => {
                let x = self.law.x_of_loss(-epsilon);
                normal_sf(-x / self.law.z) - alpha * self.law.lower_tail_with(x)
            }
        }
    }
}
