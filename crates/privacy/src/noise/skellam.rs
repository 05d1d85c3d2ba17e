//! Skellam noise.
pub struct SkellamSampler;
