//! The server optimizer, which applies a released average: SGD, momentum as in the papers, Adam, Adagrad and Yogi.
//!
//! The average is a step in the direction that the users went, so it is added, not subtracted. Momentum is
//! `v <- mu v + Delta; theta <- theta + eta v`, as in Andrew et al. 2021 and Xu et al. 2023; the adaptive ones are those of
//! Reddi et al. 2021 (`Adaptive Federated Optimization`, Algorithm 2), without bias correction.
//!
//! A step takes a [`Recorded`] and nothing else: what has not been paid for, durably, cannot move the model.
//!
//! ```compile_fail,E0308
//! use keyhush_federated::optimizer::{Average, Optimizer};
//! use privacy::{encoding::Encoding, stages::Released, workers::Alone};
//! fn unpaid(optimizer: &mut Optimizer, model: &mut [f32], released: &Released, encoding: &Encoding) {
//!     let average = Average { recorded: released, encoding, denominator: 1.0, mask: None };
//!     optimizer.step(model, &average, 1.0, &Alone).unwrap();
//! }
//! ```

use ledger::Recorded;
use privacy::{
    encoding::{Encoding, EncodingError},
    workers::{self, Undone, Workers},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Parameters that one worker moves at a time.
const PIECE: usize = 1 << 14;

/// The server optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum OptimizerKind {
    /// The average itself.
    Sgd,
    /// SGD with momentum.
    Momentum {
        /// mu.
        momentum: f32,
    },
    /// First and second moments.
    Adam {
        /// The decay of the first moment.
        beta1: f32,
        /// The decay of the second moment.
        beta2: f32,
        /// Added to the root of the second.
        tau: f32,
    },
    /// The sum of squares.
    Adagrad {
        /// tau: added to the root of the second moment.
        tau: f32,
    },
    /// Like Adam, with a second moment that grows and shrinks by as much as the square.
    Yogi {
        /// The decay of the first moment.
        beta1: f32,
        /// The decay of the second moment.
        beta2: f32,
        /// Added to the root of the second.
        tau: f32,
    },
}

/// An invalid optimizer or release.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum OptimizerError {
    /// A number out of range.
    #[error("{field} must be {range}, got {got}")]
    Number {
        /// The field's name.
        field: &'static str,
        /// The allowed range.
        range: &'static str,
        /// The refused value.
        got: f64,
    },
    /// The release is not of this encoding.
    #[error(transparent)]
    Encoding(#[from] EncodingError),
    /// Workers that left something out: the model is worthless.
    #[error(transparent)]
    Undone(#[from] Undone),
    /// The release has another number of coordinates than the model.
    #[error("the release has {got} parameters, but the model has {expected}")]
    Length {
        /// The length of the model.
        expected: usize,
        /// The length of the release.
        got: usize,
    },
}

impl OptimizerKind {
    /// Refuses numbers without meaning.
    ///
    /// # Errors
    /// The first of them.
    pub fn check(&self) -> Result<(), OptimizerError> {
        let share = |field, got: f32| {
            let fine = (0.0..1.0).contains(&got);
            let refused = OptimizerError::Number { field, range: "at least 0 and below 1", got: f64::from(got) };
            if fine { Ok(()) } else { Err(refused) }
        };
        let positive = |field, got: f32| {
            let refused = OptimizerError::Number { field, range: "finite and above 0", got: f64::from(got) };
            if got.is_finite() && got > 0.0 { Ok(()) } else { Err(refused) }
        };
        match *self {
            Self::Sgd => Ok(()),
            Self::Momentum { momentum } => share("momentum", momentum),
            Self::Adagrad { tau } => positive("tau", tau),
            Self::Adam { beta1, beta2, tau } | Self::Yogi { beta1, beta2, tau } => {
                share("beta1", beta1)?;
                share("beta2", beta2)?;
                positive("tau", tau)
            }
        }
    }
}

/// The average of a round, from what was recorded of it.
#[derive(Debug, Clone, Copy)]
pub struct Average<'a> {
    /// The release.
    pub recorded: &'a Recorded,
    /// The encoding of the average.
    pub encoding: &'a Encoding,
    /// What its sum is divided by.
    pub denominator: f64,
    /// The parameters that its coordinates are of, where it is not all of them: the others have an average of zero.
    pub mask: Option<&'a [u32]>,
}

/// Coordinates at their places among all; zero elsewhere.
fn spread(sum: &[f32], mask: &[u32], parameters: usize) -> Result<Vec<f32>, OptimizerError> {
    if sum.len() != mask.len() || mask.iter().any(|at| *at as usize >= parameters) {
        return Err(OptimizerError::Length { expected: mask.len(), got: sum.len() });
    }
    let mut all = vec![0.0; parameters];
    mask.iter().zip(sum).for_each(|(at, value)| all[*at as usize] = *value);
    Ok(all)
}

/// An optimizer and what it remembers: a function of releases alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    kind: OptimizerKind,
    /// v of momentum, m of the adaptive ones; empty where there is none.
    first: Vec<f32>,
    /// v of the adaptive ones.
    second: Vec<f32>,
}

impl Optimizer {
    /// An optimizer before its first step.
    ///
    /// # Errors
    /// When its numbers have no meaning.
    pub fn new(kind: OptimizerKind, parameters: usize) -> Result<Self, OptimizerError> {
        kind.check()?;
        let (first, second) = match kind {
            OptimizerKind::Sgd => (0, 0),
            OptimizerKind::Momentum { .. } => (parameters, 0),
            OptimizerKind::Adagrad { .. } => (0, parameters),
            OptimizerKind::Adam { .. } | OptimizerKind::Yogi { .. } => (parameters, parameters),
        };
        let start = match kind {
            // Reddi et al. begin with tau^2.
            OptimizerKind::Adam { tau, .. } | OptimizerKind::Adagrad { tau } | OptimizerKind::Yogi { tau, .. } => {
                tau * tau
            }
            _ => 0.0,
        };
        Ok(Self { kind, first: vec![0.0; first], second: vec![start; second] })
    }

    /// Its state, for a checkpoint.
    #[must_use]
    pub fn memory(&self) -> [&[f32]; 2] {
        [&self.first, &self.second]
    }

    /// Takes what a checkpoint remembered; nothing happens if it is not that of this optimizer.
    #[must_use]
    pub fn remember(mut self, [first, second]: [Vec<f32>; 2]) -> Option<Self> {
        if first.len() != self.first.len() || second.len() != self.second.len() {
            return None;
        }
        (self.first, self.second) = (first, second);
        Some(self)
    }

    /// Moves the model by a release that is recorded: its sum over the declared denominator is the average. Who moves which
    /// parameters changes nothing.
    ///
    /// # Errors
    /// When release, encoding and model do not fit together; the model stays as it is.
    pub fn step(
        &mut self,
        model: &mut [f32],
        average: &Average<'_>,
        learning_rate: f32,
        workers: &dyn Workers,
    ) -> Result<(), OptimizerError> {
        let sum = average.recorded.update_by(average.encoding, workers)?;
        let sum = match average.mask {
            Some(mask) => spread(&sum, mask, model.len())?,
            None => sum,
        };
        if sum.len() != model.len() {
            return Err(OptimizerError::Length { expected: model.len(), got: sum.len() });
        }
        self.apply(model, &sum, 1.0 / average.denominator, learning_rate, workers)
    }

    fn apply(
        &mut self,
        model: &mut [f32],
        sum: &[f32],
        factor: f64,
        rate: f32,
        workers: &dyn Workers,
    ) -> Result<(), OptimizerError> {
        let Self { kind, first, second } = self;
        let memory = pieces(first).zip(pieces(second));
        let parts = model.chunks_mut(PIECE).zip(sum.chunks(PIECE)).zip(memory);
        workers::each(workers, parts, |_, ((model, sum), (first, second))| {
            let average = sum.iter().map(|s| (f64::from(*s) * factor) as f32);
            kind.apply(model.iter_mut().zip(average), first, second, rate);
            Ok(())
        })
    }
}

/// What an optimizer remembers of each piece of the model; nothing of each where it remembers nothing.
fn pieces(memory: &mut [f32]) -> impl Iterator<Item = &mut [f32]> {
    memory.chunks_mut(PIECE).chain(std::iter::repeat_with(|| &mut [][..]))
}

impl OptimizerKind {
    /// Moves parameters, each with the average of its coordinate.
    fn apply<'a>(
        self,
        moved: impl Iterator<Item = (&'a mut f32, f32)>,
        first: &mut [f32],
        second: &mut [f32],
        rate: f32,
    ) {
        match self {
            Self::Sgd => moved.for_each(|(w, d)| *w += rate * d),
            Self::Momentum { momentum } => moved.zip(first).for_each(|((w, d), v)| {
                *v = momentum * *v + d;
                *w += rate * *v;
            }),
            Self::Adagrad { tau } => moved.zip(second).for_each(|((w, d), v)| {
                *v += d * d;
                *w += rate * d / (libm::sqrtf(*v) + tau);
            }),
            Self::Adam { beta1, beta2, tau } => moved.zip(first).zip(second).for_each(|(((w, d), m), v)| {
                *m = beta1 * *m + (1.0 - beta1) * d;
                *v = beta2 * *v + (1.0 - beta2) * d * d;
                *w += rate * *m / (libm::sqrtf(*v) + tau);
            }),
            Self::Yogi { beta1, beta2, tau } => moved.zip(first).zip(second).for_each(|(((w, d), m), v)| {
                let square = d * d;
                *m = beta1 * *m + (1.0 - beta1) * d;
                *v -= (1.0 - beta2)
                    * square
                    * if *v > square {
                        1.0
                    } else if *v < square {
                        -1.0
                    } else {
                        0.0
                    };
                *w += rate * *m / (libm::sqrtf(*v) + tau);
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use privacy::workers::Alone;

    use super::*;

    /// Two steps along (1, -2) and (1, 0), computed by hand.
    fn two_steps(kind: OptimizerKind) -> Vec<f32> {
        let mut optimizer = Optimizer::new(kind, 2).unwrap();
        let mut model = vec![0.0, 0.0];
        optimizer.apply(&mut model, &[1.0, -2.0], 1.0, 0.1, &Alone).unwrap();
        let [first, second] = optimizer.memory();
        let mut again = Optimizer::new(kind, 2).unwrap().remember([first.to_vec(), second.to_vec()]).unwrap();
        assert_eq!(again, optimizer);
        again.apply(&mut model, &[2.0, 0.0], 0.5, 0.1, &Alone).unwrap();
        model
    }

    fn close(got: &[f32], want: [f64; 2]) {
        assert!(got.iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() < 1e-6), "{got:?} instead of {want:?}");
    }

    #[test]
    fn steps_are_those_of_the_papers() {
        close(&two_steps(OptimizerKind::Sgd), [0.2, -0.2]);
        // v: 1, 1.9; and -2, -1.8.
        close(&two_steps(OptimizerKind::Momentum { momentum: 0.9 }), [0.1 + 0.19, -0.2 - 0.18]);
        let tau = 0.5f64;
        let root = |v: f64| v.sqrt() + tau;
        let adagrad = [0.1 / root(1.25) + 0.1 / root(2.25), -0.2 / root(4.25)];
        close(&two_steps(OptimizerKind::Adagrad { tau: 0.5 }), adagrad);
        let (b1, b2) = (0.9f64, 0.8f64);
        // m: 0.1, 0.19 and -0.2, -0.18; v: 0.4, 0.52 and 1, 0.8.
        let adam = [
            0.1 * (0.1 / root(b2 * 0.25 + 0.2) + 0.19 / root(b2 * (b2 * 0.25 + 0.2) + 0.2)),
            0.1 * (-0.2 / root(b2 * 0.25 + 0.8) + (b1 * -0.2) / root(b2 * (b2 * 0.25 + 0.8))),
        ];
        close(&two_steps(OptimizerKind::Adam { beta1: 0.9, beta2: 0.8, tau: 0.5 }), adam);
        // v: 0.25 + 0.2 = 0.45, then + 0.2; and 0.25 + 0.8, then unchanged.
        let yogi = [0.1 * (0.1 / root(0.45) + 0.19 / root(0.65)), 0.1 * (-0.2 / root(1.05) + (b1 * -0.2) / root(1.05))];
        close(&two_steps(OptimizerKind::Yogi { beta1: 0.9, beta2: 0.8, tau: 0.5 }), yogi);
    }

    /// A model of several pieces moves as one of one piece: every kind, all of its memory.
    #[test]
    fn pieces_of_a_model_move_as_all_of_it() {
        let len = 2 * PIECE + 77;
        let sum: Vec<f32> = (0..len).map(|i| (i % 13) as f32 - 6.0).collect();
        for kind in [
            OptimizerKind::Sgd,
            OptimizerKind::Momentum { momentum: 0.9 },
            OptimizerKind::Adagrad { tau: 0.5 },
            OptimizerKind::Adam { beta1: 0.9, beta2: 0.8, tau: 0.5 },
            OptimizerKind::Yogi { beta1: 0.9, beta2: 0.8, tau: 0.5 },
        ] {
            let (mut whole, mut model) = (Optimizer::new(kind, len).unwrap(), vec![0.0; len]);
            for _ in 0..2 {
                whole.apply(&mut model, &sum, 0.25, 0.1, &Alone).unwrap();
            }
            // The coordinates of one residue are alike.
            let (mut small, mut few) = (Optimizer::new(kind, 13).unwrap(), vec![0.0; 13]);
            for _ in 0..2 {
                small.apply(&mut few, &sum[..13], 0.25, 0.1, &Alone).unwrap();
            }
            assert!(model.iter().enumerate().all(|(i, w)| *w == few[i % 13]), "{kind:?}");
            for (all, few) in whole.memory().into_iter().zip(small.memory()) {
                assert!(all.iter().enumerate().all(|(i, m)| *m == few[i % 13]), "{kind:?}");
            }
        }
    }

    #[test]
    fn numbers_without_meaning_are_refused() {
        for kind in [
            OptimizerKind::Momentum { momentum: 1.0 },
            OptimizerKind::Momentum { momentum: f32::NAN },
            OptimizerKind::Adagrad { tau: 0.0 },
            OptimizerKind::Adam { beta1: 0.9, beta2: -0.1, tau: 1e-3 },
            OptimizerKind::Yogi { beta1: 0.9, beta2: 0.99, tau: f32::INFINITY },
        ] {
            assert!(Optimizer::new(kind, 2).is_err(), "{kind:?}");
        }
        assert!(Optimizer::new(OptimizerKind::Sgd, 2).unwrap().remember([vec![1.0], Vec::new()]).is_none());
    }
}
