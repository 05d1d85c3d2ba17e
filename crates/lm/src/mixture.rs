//! Interpolates two models: `p(w) = (1 - weight) p_first(w) + weight p_second(w)`.
//!
//! So the user's own n-gram, counted on the device as the user types, is used beside the general model (Popov et al. 2018, section 1).

use crate::language_model::LanguageModel;

/// Two models of one vocabulary.
pub struct Mixture<'a> {
    first: &'a dyn LanguageModel,
    second: &'a dyn LanguageModel,
    weight: f64,
}

impl<'a> Mixture<'a> {
    /// The second model with a weight, the first with the rest.
    ///
    /// # Panics
    /// When the weight is not from 0 to 1, or the vocabularies have different sizes.
    #[must_use]
    pub fn new(first: &'a dyn LanguageModel, second: &'a dyn LanguageModel, weight: f64) -> Self {
        assert!((0.0..=1.0).contains(&weight), "a weight is from 0 to 1");
        assert_eq!(first.vocabulary(), second.vocabulary(), "the models have different vocabularies");
        Self { first, second, weight }
    }
}

impl LanguageModel for Mixture<'_> {
    fn vocabulary(&self) -> usize {
        self.first.vocabulary()
    }

    fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
        // One sequence at a time: what the second says of it is kept.
        let mut lines: Vec<f32> = Vec::new();
        let mut mixed = vec![0.0; self.vocabulary()];
        for (number, sequence) in sequences.iter().enumerate() {
            lines.clear();
            self.second.read(&[sequence], &mut |_, _, line| lines.extend_from_slice(line));
            self.first.read(&[sequence], &mut |_, position, line| {
                let second = &lines[position * mixed.len()..(position + 1) * mixed.len()];
                for ((to, first), second) in mixed.iter_mut().zip(line).zip(second) {
                    let [first, second] = [*first, *second].map(|log| libm::exp(f64::from(log)));
                    *to = libm::log((1.0 - self.weight) * first + self.weight * second) as f32;
                }
                visit(number, position, &mixed);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ngram::KneserNey, vocabulary::BOS};

    fn model(words: &[u32]) -> KneserNey {
        let sequence: Vec<u32> = [BOS].into_iter().chain(words.iter().copied()).chain([1]).collect();
        KneserNey::train(2, 9, [&sequence[..]]).unwrap()
    }

    #[test]
    fn probabilities_are_mixed_and_add_up_to_one() {
        let (first, second) = (model(&[4, 5, 4, 6]), model(&[7, 8, 7, 7]));
        let sequences: [&[u32]; 2] = [&[BOS, 4, 7], &[BOS, 8]];
        let of = |model: &dyn LanguageModel| {
            let mut all = vec![Vec::new(); 2];
            model.read(&sequences, &mut |sequence, _, line| all[sequence].extend_from_slice(line));
            all.concat()
        };
        let (one, two) = (of(&first), of(&second));
        for weight in [0.0, 0.25, 1.0] {
            let mixed = of(&Mixture::new(&first, &second, weight));
            for ((got, one), two) in mixed.iter().zip(&one).zip(&two) {
                let want = (1.0 - weight) * f64::from(*one).exp() + weight * f64::from(*two).exp();
                assert!((f64::from(*got).exp() - want).abs() < 1e-6);
            }
            for line in mixed.chunks_exact(9) {
                let sum: f64 = line.iter().map(|log| f64::from(*log).exp()).sum();
                assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            }
        }
    }
}
