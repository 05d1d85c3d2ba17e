//! Samplers of the noise that releases carry.
//!
//! [`DiscreteGaussianSampler`] and [`SkellamSampler`] are exact: every comparison that decides a draw is between
//! integers, and a draw that machine words cannot decide is decided by arithmetic of growing precision.
//! [`SimulatedGaussian`] is a rounded floating-point normal: fast, good enough for experiments, refused for releases.

pub mod discrete_gaussian;
mod exponential;
mod poisson_ratio;
pub mod simulated;
pub mod skellam;
mod staircase;

pub use discrete_gaussian::DiscreteGaussianSampler;
pub use simulated::SimulatedGaussian;
pub use skellam::SkellamSampler;
