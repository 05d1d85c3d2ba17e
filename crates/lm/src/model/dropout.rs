//! Which units are left out of a step, drawn from a seed.
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

use super::{
    config::{Dropout, DropoutKind, ModelConfig},
    reference::Masks,
};

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

    /// Goes to a step, counted from 0: a run that goes on where another stopped draws what that one would have drawn.
    pub const fn go_to(&mut self, step: u64) {
        self.step = step;
    }

    /// Draws the masks of the next step, of so many rows and tokens each.
    pub fn draw(&mut self, rows: usize, steps: usize, masks: &mut Masks) {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.step.to_le_bytes());
        self.step += 1;
        let mut cipher = ChaCha20::new(&self.key.into(), &nonce.into());
        masks.resize_with(self.widths.len(), Vec::new);
        for (mask, width) in masks.iter_mut().zip(&self.widths) {
            let one_step = rows * width;
            mask.resize(one_step * steps, 0.0);
            match self.dropout.kind {
                DropoutKind::PerStep => fill(&mut cipher, self.dropout.rate, mask),
                DropoutKind::Variational => {
                    fill(&mut cipher, self.dropout.rate, &mut mask[..one_step]);
                    (1..steps).for_each(|step| mask.copy_within(..one_step, step * one_step));
                }
            }
        }
    }
}

fn fill(cipher: &mut ChaCha20, rate: f32, mask: &mut [f32]) {
    let scale = 1.0 / (1.0 - rate);
    let least = (f64::from(rate) * f64::from(1 << 24)) as u32;
    let mut bytes = [0; 4096];
    for block in mask.chunks_mut(bytes.len() / 4) {
        cipher.write_keystream(&mut bytes);
        for (m, word) in block.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *m = if u32::from_le_bytes(*word) >> 8 < least { 0.0 } else { scale };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
