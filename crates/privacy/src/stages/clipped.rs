//! Clipping: flat, by layer, and the projection that greedy clipping calls after each local step (McMahan et al. 2018,
//! section 3; Andrew et al. 2021, Algorithm 1).
//!
//! After clipping the norm is at most the bound in exact arithmetic, not up to rounding: squares of `f32` are exact in
//! `f64`, their sum is bounded with its rounding error, and a vector that is not surely within the bound is scaled until it
//! is. An update with a coordinate that is not finite becomes zero in every coordinate, clip bit and weight included: the
//! comparison `norm > bound` would let a NaN pass.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Encoded;
use crate::{
    encoding::{Encoding, EncodingError, layout::HALF_BIT, norm_squared_of},
    rng::RandomWords,
    units::ClipNorm,
};

/// A raw update: what local training changed. `Debug` shows its length and nothing else.
pub struct Update(Vec<f32>);

/// The bound on one layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerClip {
    /// Coordinates of the layer.
    pub len: usize,
    /// S_j: the bound on its norm.
    pub bound: ClipNorm,
}

/// The clipping rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClipRule {
    /// The norm of the whole update.
    Flat(ClipNorm),
    /// The norm of each layer.
    PerLayer(Vec<LayerClip>),
}

impl ClipRule {
    /// Layers that share a bound evenly: `S / sqrt(m)` each.
    ///
    /// # Errors
    /// When there are no layers.
    pub fn even_layers(bound: ClipNorm, lens: &[usize]) -> Result<Self, ClipRuleError> {
        if lens.is_empty() {
            return Err(ClipRuleError::NoLayers);
        }
        // Rounded down, so that all together are at most the bound.
        let each = bound.get() / libm::sqrt(lens.len() as f64) * (1.0 - (lens.len() as f64 + 16.0) * f64::EPSILON);
        let each = ClipNorm::new(each).map_err(|_| ClipRuleError::NoLayers)?;
        Ok(Self::PerLayer(lens.iter().map(|len| LayerClip { len: *len, bound: each }).collect()))
    }

    /// The bound on the norm of the whole update: `sqrt(sum S_j^2)`, rounded up.
    #[must_use]
    pub fn bound(&self) -> ClipNorm {
        match self {
            Self::Flat(bound) => *bound,
            Self::PerLayer(layers) => {
                let squared: f64 = layers.iter().map(|l| l.bound.get() * l.bound.get()).sum();
                let rounding = 1.0 + (layers.len() as f64 + 4.0) * f64::EPSILON;
                ClipNorm::new(libm::sqrt(squared) * rounding).unwrap_or(layers[0].bound)
            }
        }
    }
}

/// What decides the clip bit (rule P9).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClipBit {
    /// There is no clip bit.
    None,
    /// Whether the norm is at most the tracked clip, which under DP-FTRL is not the active one.
    NormAtMost(ClipNorm),
    /// Greedy clipping: whether no local step was projected.
    NeverProjected,
}

/// A rule of clipping that has no meaning.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClipRuleError {
    /// Layers were asked for, none given.
    #[error("clipping by layer needs at least one layer with a bound above 0")]
    NoLayers,
    /// An adaptive clip follows the norm of the whole update; layers have norms of their own (rule P9).
    #[error("adaptive clipping adapts a single norm; it cannot be combined with clipping by layer")]
    AdaptiveLayers,
    /// The layers are not those of the update.
    #[error("the layers have {expected} coordinates, but the update has {got}")]
    Length {
        /// What the layers add up to.
        expected: usize,
        /// The length of the update.
        got: usize,
    },
}

/// A checked rule of clipping and of the clip bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedClipping")]
pub struct Clipping {
    rule: ClipRule,
    bit: ClipBit,
}

/// A rule as it arrives.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncheckedClipping {
    rule: ClipRule,
    bit: ClipBit,
}

impl TryFrom<UncheckedClipping> for Clipping {
    type Error = ClipRuleError;

    fn try_from(said: UncheckedClipping) -> Result<Self, ClipRuleError> {
        Self::new(said.rule, said.bit)
    }
}

impl Clipping {
    /// A rule and what decides the bit.
    ///
    /// # Errors
    /// When there are no layers, or layers together with a clip bit.
    pub fn new(rule: ClipRule, bit: ClipBit) -> Result<Self, ClipRuleError> {
        match &rule {
            ClipRule::PerLayer(layers) if layers.is_empty() => Err(ClipRuleError::NoLayers),
            ClipRule::PerLayer(_) if bit != ClipBit::None => Err(ClipRuleError::AdaptiveLayers),
            _ => Ok(Self { rule, bit }),
        }
    }

    /// The rule.
    #[must_use]
    pub const fn rule(&self) -> &ClipRule {
        &self.rule
    }

    /// On which side of the tracked clip a finite update is, in grid steps of the clip bit; 0 where there is none.
    #[must_use]
    pub fn side(&self, norm_squared: f64, projected: bool) -> i32 {
        let under = match self.bit {
            ClipBit::None => return 0,
            ClipBit::NormAtMost(tracked) => norm_squared <= tracked.get() * tracked.get(),
            ClipBit::NeverProjected => !projected,
        };
        if under { HALF_BIT as i32 } else { -(HALF_BIT as i32) }
    }
}

/// What a user sends besides the update.
#[derive(Debug, Clone, PartialEq)]
pub struct Contribution {
    /// w_k, cut to [0, 1]: the update is multiplied by it after clipping (rule P10). Not a number counts as 0.
    pub weight: f64,
    /// Whether greedy clipping projected a local step.
    pub projected: bool,
    /// Counts, cut to their cap.
    pub counts: Vec<u32>,
}

impl Default for Contribution {
    fn default() -> Self {
        Self { weight: 1.0, projected: false, counts: Vec::new() }
    }
}

impl Update {
    /// An update: what local training changed.
    #[must_use]
    pub const fn new(delta: Vec<f32>) -> Self {
        Self(delta)
    }

    /// Bounds the update.
    ///
    /// # Errors
    /// When the layers of the rule are not those of the update.
    pub fn clip(mut self, clipping: &Clipping, said: Contribution) -> Result<Clipped, ClipRuleError> {
        let bound = clipping.rule.bound();
        let Some(norm_squared) = norm_squared(&self.0) else {
            check_layers(&self.0, &clipping.rule)?;
            self.0.fill(0.0);
            let norm = f64::NAN;
            return Ok(Clipped { values: self.0, bound, norm, side: 0, weight: 0.0, counts: Vec::new() });
        };
        let side = clipping.side(norm_squared, said.projected);
        match clipping.rule {
            // The first pass of the projection was just done.
            ClipRule::Flat(bound) => _ = project_from(&mut self.0, bound, Some(norm_squared)),
            ClipRule::PerLayer(_) => _ = project(&mut self.0, &clipping.rule)?,
        }
        let norm = libm::sqrt(norm_squared);
        let weight = if said.weight >= 0.0 { said.weight.min(1.0) } else { 0.0 };
        Ok(Clipped { values: self.0, bound, norm, side, weight, counts: said.counts })
    }
}

impl std::fmt::Debug for Update {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Update({} coordinates)", self.0.len())
    }
}

fn check_layers(values: &[f32], rule: &ClipRule) -> Result<(), ClipRuleError> {
    match rule {
        ClipRule::Flat(_) => Ok(()),
        ClipRule::PerLayer(layers) => {
            let expected: usize = layers.iter().map(|l| l.len).sum();
            if expected == values.len() { Ok(()) } else { Err(ClipRuleError::Length { expected, got: values.len() }) }
        }
    }
}

/// Brings a difference to the start within the rule; whether anything had to be moved. Greedy clipping calls this after
/// each local step (McMahan et al. 2017, appendix on flat clipping). What is not finite becomes zero.
///
/// # Errors
/// When the layers of the rule are not those of the vector.
pub fn project(values: &mut [f32], rule: &ClipRule) -> Result<bool, ClipRuleError> {
    check_layers(values, rule)?;
    match rule {
        ClipRule::Flat(bound) => Ok(project_one(values, *bound)),
        ClipRule::PerLayer(layers) => {
            let (mut rest, mut moved) = (values, false);
            for layer in layers {
                let (this, after) = rest.split_at_mut(layer.len);
                moved |= project_one(this, layer.bound);
                rest = after;
            }
            Ok(moved)
        }
    }
}

fn project_one(values: &mut [f32], bound: ClipNorm) -> bool {
    let first = norm_squared(values);
    project_from(values, bound, first)
}

/// The same, where the squared norm is known.
fn project_from(values: &mut [f32], bound: ClipNorm, first: Option<f64>) -> bool {
    let bound = bound.get();
    // At most the exact square.
    let bound_squared = bound * bound * (1.0 - f64::EPSILON);
    let mut moved = false;
    let mut known = first;
    // A pass brings the norm to within 2^-21 below the bound; denormal numbers may need another.
    for _ in 0..8 {
        let Some(least) = known.map(|sum| at_least(sum, values.len())) else { break };
        if least <= bound_squared {
            return moved;
        }
        moved = true;
        // Rounding to f32 adds at most 2^-24 of a coordinate.
        let factor = bound / libm::sqrt(least) * (1.0 - 2.0f64.powi(-22));
        values.iter_mut().for_each(|v| *v = (f64::from(*v) * factor) as f32);
        known = norm_squared(values);
    }
    values.fill(0.0);
    true
}

/// The squared norm up to rounding; none if a coordinate is not finite.
fn norm_squared(values: &[f32]) -> Option<f64> {
    const LANES: usize = 16;
    let mut sums = [0.0f64; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for (sum, v) in sums.iter_mut().zip(block) {
            *sum += f64::from(*v) * f64::from(*v);
        }
    }
    let rest: f64 = rest.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    let sum = sums.iter().sum::<f64>() + rest;
    // The square of a finite f32 is below 2^256: only what is not finite makes the sum so.
    sum.is_finite().then_some(sum)
}

/// At least the exact sum of so many squares: squares of `f32` are exact, each addition is off by half an epsilon.
fn at_least(sum: f64, len: usize) -> f64 {
    sum * (1.0 + (len as f64 + 4.0) * f64::EPSILON)
}

/// An update within its bound, with the clip bit, the weight and the counts. `Debug` shows its length and bound only.
pub struct Clipped {
    values: Vec<f32>,
    bound: ClipNorm,
    norm: f64,
    side: i32,
    weight: f64,
    counts: Vec<u32>,
}

impl Clipped {
    /// The contribution of a user without text: zero in every coordinate, clip bit and weight included. Under zero-out
    /// that is the neighbour, so it must not say that it is under the clip (rule P9).
    #[must_use]
    pub fn nothing(clipping: &Clipping, dimension: usize) -> Self {
        let (values, bound) = (vec![0.0; dimension], clipping.rule.bound());
        Self { values, bound, norm: 0.0, side: 0, weight: 0.0, counts: Vec::new() }
    }

    /// The norm before it was clipped, exactly; not a number where a coordinate was not finite. Not private: for the
    /// diagnostics of simulations.
    #[must_use]
    pub const fn norm_before(&self) -> f64 {
        self.norm
    }

    /// Rounds to integers whose norm is checked exactly. Rounding draws from the user's own stream.
    ///
    /// # Errors
    /// When the update has another length, or was clipped to another norm, than the encoding says.
    pub fn encode(self, encoding: &Encoding, words: &mut RandomWords) -> Result<Encoded, EncodingError> {
        if self.values.len() != encoding.dimension() {
            return Err(EncodingError::Length { expected: encoding.dimension(), got: self.values.len() });
        }
        if self.bound.get() > encoding.clip().get() {
            return Err(EncodingError::Clip { expected: encoding.clip().get(), got: self.bound.get() });
        }
        let mut integers = encoding.encode_update(&self.values, self.weight, words);
        let norm_squared = norm_squared_of(&integers);
        integers.extend(encoding.beside(self.side, self.weight, &self.counts, norm_squared));
        Encoded::of(integers, encoding)
    }

    /// The bounded values, for a test of the bound; nothing else needs them.
    #[doc(hidden)]
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}

impl std::fmt::Debug for Clipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clipped({} coordinates to norm {})", self.values.len(), self.bound)
    }
}
