//! Dropout masks, drawn from a seed.
//!
//! Zaremba et al. 2014 draw what enters each layer and what leaves the last afresh at every token; Gal and Ghahramani 2016
//! draw once for a whole sequence. What stays is scaled by `1 / (1 - rate)`, so that nothing needs to be scaled later.
//!
//! The masks of a step depend on the seed and the number of the step alone: they are the keystream of ChaCha20 (RFC 8439,
//! counter from 0) under a key of the seed (8 bytes, little endian) and `keyhush dropout v1`, with the number of the step
//! as nonce (8 bytes, then zeros). Each factor takes 4 bytes, whose upper 24 bits are compared with the rate; each place
//! begins at a multiple of 4096 bytes.

use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher},
};

use super::config::{Dropout, DropoutKind, ModelConfig};

/// Factors of what enters each layer and of what leaves the last: 0 where a unit is left out, `1 / (1 - rate)` elsewhere.
/// `[layer][step][row][unit]`, the output after the layers.
pub type Masks = Vec<Vec<f32>>;

/// Bytes of the keystream that are drawn at a time.
const DRAWN: usize = 4096;
/// Bytes of a block of ChaCha20.
const BLOCK: usize = 64;

/// Where the mask of one place lies in the keystream of a step: for code that draws it elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskPlace {
    /// The counter of the block that it begins with.
    pub first_block: usize,
    /// Units of a token.
    pub width: usize,
    /// Factors that are drawn, one after the other; what comes after them repeats them.
    pub drawn: usize,
}

/// Converts a word of the keystream to a dropout factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FactorRule {
    /// A unit stays where the upper 24 bits are at least this.
    pub least: u32,
    /// What is multiplied with what stays.
    pub scale: f32,
}

impl FactorRule {
    fn of(rate: f32) -> Self {
        Self { least: (f64::from(rate) * f64::from(1 << 24)) as u32, scale: 1.0 / (1.0 - rate) }
    }

    fn factor(self, word: u32) -> f32 {
        if word >> 8 < self.least { 0.0 } else { self.scale }
    }
}

/// Draws the masks of one step after the other.
#[derive(Debug, Clone)]
pub struct MaskDrawer {
    dropout: Dropout,
    /// Units of what enters each layer and of what leaves the last.
    widths: Vec<usize>,
    key: [u8; 32],
    /// The step whose masks come next.
    step: u64,
}

impl MaskDrawer {
    /// The masks of a run; none if the model has no dropout.
    #[must_use]
    pub fn new(config: &ModelConfig, seed: u64) -> Option<Self> {
        let dropout = config.dropout.filter(|d| d.rate > 0.0)?;
        let widths = (0..config.layers).map(|l| config.layer_input(l)).chain([config.shown()]).collect();
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..26].copy_from_slice(b"keyhush dropout v1");
        Some(Self { dropout, widths, key, step: 0 })
    }

    /// Goes to a step, counted from 0: a run that continues where another stopped draws what that one would have drawn.
    pub const fn go_to(&mut self, step: u64) {
        self.step = step;
    }

    /// The key of the streams; the number of a step is the nonce.
    #[must_use]
    pub const fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// How words become factors.
    #[must_use]
    pub fn rule(&self) -> FactorRule {
        FactorRule::of(self.dropout.rate)
    }

    /// The positions in the stream of a step's masks, for this many rows and tokens each.
    #[must_use]
    pub fn places(&self, rows: usize, steps: usize) -> Vec<MaskPlace> {
        let mut first_block = 0;
        let mut place = |width: &usize| {
            let drawn = match self.dropout.kind {
                DropoutKind::PerStep => rows * width * steps,
                DropoutKind::Variational => rows * width,
            };
            let first = first_block;
            first_block += (4 * drawn).div_ceil(DRAWN) * (DRAWN / BLOCK);
            MaskPlace { first_block: first, width: *width, drawn }
        };
        self.widths.iter().map(&mut place).collect()
    }

    /// Draws the masks of the next step, of so many rows and tokens each.
    pub fn draw(&mut self, rows: usize, steps: usize, masks: &mut Masks) {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.step.to_le_bytes());
        self.step += 1;
        let mut cipher = ChaCha20::new(&self.key.into(), &nonce.into());
        masks.resize_with(self.widths.len(), Vec::new);
        for (mask, place) in masks.iter_mut().zip(self.places(rows, steps)) {
            let all = rows * place.width * steps;
            mask.resize(all, 0.0);
            fill(&mut cipher, self.rule(), &mut mask[..place.drawn]);
            (place.drawn..all).step_by(place.drawn.max(1)).for_each(|at| mask.copy_within(..place.drawn, at));
        }
    }
}

fn fill(cipher: &mut ChaCha20, rule: FactorRule, mask: &mut [f32]) {
    let mut bytes = [0; DRAWN];
    for block in mask.chunks_mut(bytes.len() / 4) {
        cipher.write_keystream(&mut bytes);
        for (m, word) in block.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *m = rule.factor(u32::from_le_bytes(*word));
        }
    }
}

#[cfg(test)]
mod tests {
    use chacha20::cipher::StreamCipherSeek;

    use super::*;

    /// A mask drawn separately, from the key, the step and its place, is the same.
    #[test]
    fn a_mask_can_be_drawn_by_its_place_alone() {
        for kind in [DropoutKind::PerStep, DropoutKind::Variational] {
            let dropout = Some(Dropout { rate: 0.3, kind });
            let config = ModelConfig { dropout, layers: 2, ..ModelConfig::preset("tiny").unwrap() };
            let (rows, steps, step) = (7, 11, 5_u64);
            let mut drawer = MaskDrawer::new(&config, 9).unwrap();
            let mut masks = Masks::new();
            drawer.go_to(step);
            drawer.draw(rows, steps, &mut masks);
            let mut nonce = [0; 12];
            nonce[..8].copy_from_slice(&step.to_le_bytes());
            let places = drawer.places(rows, steps);
            assert!(places.iter().skip(1).all(|place| place.first_block > 0 && place.first_block % 64 == 0));
            for (mask, place) in masks.iter().zip(places) {
                let mut cipher = ChaCha20::new(&(*drawer.key()).into(), &nonce.into());
                cipher.seek((BLOCK * place.first_block) as u64);
                let mut words = vec![0; 4 * place.drawn];
                cipher.write_keystream(&mut words);
                let drawn: Vec<f32> =
                    words.as_chunks::<4>().0.iter().map(|w| drawer.rule().factor(u32::from_le_bytes(*w))).collect();
                let want: Vec<f32> = drawn.iter().copied().cycle().take(mask.len()).collect();
                assert_eq!(*mask, want);
                assert_eq!(mask.len(), rows * steps * place.width);
            }
        }
    }

    #[test]
    fn masks_leave_out_as_many_as_said_and_share_what_they_should() {
        for (kind, shared) in [(DropoutKind::PerStep, false), (DropoutKind::Variational, true)] {
            let config =
                ModelConfig { dropout: Some(Dropout { rate: 0.3, kind }), ..ModelConfig::preset("tiny").unwrap() };
            let mut masks = Masks::new();
            let mut drawer = MaskDrawer::new(&config, 5).unwrap();
            drawer.draw(20, 30, &mut masks);
            assert_eq!(masks.iter().map(Vec::len).collect::<Vec<_>>(), [20 * 30 * 16, 20 * 30 * 48]);
            let kept = masks[1].iter().filter(|m| **m > 0.0).count() as f64 / masks[1].len() as f64;
            assert!((kept - 0.7).abs() < 0.05, "{kept}");
            assert!(masks[1].iter().all(|m| *m == 0.0 || (*m - 1.0 / 0.7).abs() < 1e-6));
            let (first, second) = masks[1].split_at(20 * 48);
            assert_eq!(first == &second[..20 * 48], shared);
            let before = masks.clone();
            drawer.draw(20, 30, &mut masks);
            assert_ne!(before, masks, "a fresh draw for every batch");
            drawer.go_to(0);
            drawer.draw(20, 30, &mut masks);
            assert_eq!(before, masks, "the same draw for the same step");
        }
        assert!(MaskDrawer::new(&ModelConfig::preset("tiny").unwrap(), 5).is_none());
    }
}
