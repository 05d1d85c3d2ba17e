//! Kneser-Ney against its definition, written out slowly over plain maps.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};

use keyhush_lm::{
    language_model::LanguageModel,
    ngram::{KneserNey, NgramError},
};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

const BOS: u32 = 0;
const EOS: u32 = 1;

/// Text with frequent and rare words, and words that like each other.
fn text(vocabulary: u32, sequences: u32, seed: u64) -> Vec<Vec<u32>> {
    let mut x = seed;
    let mut next = move || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as u32
    };
    let mut sentence = || {
        let mut ids = vec![BOS];
        for _ in 0..next() % 12 {
            let last = ids[ids.len() - 1];
            let word = if next() % 3 == 0 {
                (last * 7 + next() % 3) % (vocabulary - 2)
            } else {
                next() % (1 + next() % (vocabulary - 2))
            };
            ids.push(2 + word);
        }
        ids.push(EOS);
        ids
    };
    (0..sequences).map(|_| sentence()).collect()
}

/// The definition, with maps over whole n-grams.
struct Slow {
    order: usize,
    vocabulary: usize,
    counts: BTreeMap<Vec<u32>, f64>,
    discounts: Vec<[f64; 3]>,
}

impl Slow {
    fn new(order: usize, vocabulary: usize, text: &[Vec<u32>]) -> Self {
        let mut raw: BTreeMap<Vec<u32>, f64> = BTreeMap::new();
        let mut before: BTreeMap<Vec<u32>, BTreeSet<u32>> = BTreeMap::new();
        for sentence in text {
            for n in 1..=order {
                for gram in sentence.windows(n) {
                    *raw.entry(gram.to_vec()).or_default() += 1.0;
                    before.entry(gram[1..].to_vec()).or_default().insert(gram[0]);
                }
            }
        }
        let adjusted = |(gram, count): (&Vec<u32>, &f64)| {
            let raw = gram.len() == order || gram[0] == BOS;
            (gram.clone(), if raw { *count } else { before[gram].len() as f64 })
        };
        let counts: BTreeMap<Vec<u32>, f64> = raw.iter().map(adjusted).filter(|(g, _)| *g != [BOS]).collect();
        let t = |n: usize, k: f64| counts.iter().filter(|(g, c)| g.len() == n && **c == k).count() as f64;
        let discounts = |n: usize| {
            let y = t(n, 1.0) / (t(n, 1.0) + 2.0 * t(n, 2.0));
            let d = [1.0, 2.0, 3.0].map(|k| k - (k + 1.0) * y * t(n, k + 1.0) / t(n, k));
            let fine = d.iter().zip([1.0, 2.0, 3.0]).all(|(d, k)| *d > 0.0 && *d < k);
            if fine { d } else { [0.5, 1.0, 1.5] }
        };
        let discounts = (1..=order).map(discounts).collect();
        Self { order, vocabulary, counts, discounts }
    }

    fn discount(&self, n: usize, count: f64) -> f64 {
        if count == 0.0 { 0.0 } else { self.discounts[n - 1][count.min(3.0) as usize - 1] }
    }

    fn count(&self, context: &[u32], word: u32) -> f64 {
        self.counts.get(&[context, &[word]].concat()).copied().unwrap_or(0.0)
    }

    fn probability(&self, context: &[u32], word: u32) -> f64 {
        let context = &context[context.len().saturating_sub(self.order - 1)..];
        let n = context.len() + 1;
        let shorter =
            || if n == 1 { 1.0 / (self.vocabulary as f64 - 1.0) } else { self.probability(&context[1..], word) };
        let all: Vec<f64> = (1..self.vocabulary as u32).map(|w| self.count(context, w)).collect();
        let total: f64 = all.iter().sum();
        if total == 0.0 {
            return shorter();
        }
        let gamma = all.iter().map(|c| self.discount(n, *c)).sum::<f64>() / total;
        let count = self.count(context, word);
        (count - self.discount(n, count)) / total + gamma * shorter()
    }
}

fn check(order: usize, vocabulary: usize, train: &[Vec<u32>], contexts: &[Vec<u32>]) {
    let model = KneserNey::train(order, vocabulary, train.iter().map(Vec::as_slice)).unwrap();
    let slow = Slow::new(order, vocabulary, train);
    for n in 1..=order {
        let want = slow.counts.keys().filter(|g| g.len() == n).count() + usize::from(n == 1);
        assert_eq!(model.ngrams(n), want, "{n}-grams of order {order}");
        for (got, want) in model.discounts(n).unwrap().iter().zip(slow.discounts[n - 1]) {
            assert!((got - want).abs() < 1e-12, "{got} {want}");
        }
    }
    let sequences: Vec<&[u32]> = contexts.iter().map(Vec::as_slice).collect();
    model.read(&sequences, &mut |s, t, log_probabilities| {
        let context = &contexts[s][..=t];
        assert_eq!(log_probabilities[BOS as usize], f32::NEG_INFINITY);
        let sum: f64 = log_probabilities.iter().map(|l| f64::from(*l).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "the probabilities after {context:?} sum to {sum}");
        for word in 1..vocabulary as u32 {
            let (got, want) = (f64::from(log_probabilities[word as usize]), slow.probability(context, word).ln());
            assert!(
                (got - want).abs() < 2e-6 * (1.0 + want.abs()),
                "order {order}, {word} after {context:?}: {got} {want}"
            );
        }
    });
}

#[test]
fn probabilities_equal_the_definition_and_sum_to_one() {
    let train = text(30, 400, 1);
    let mut contexts = text(30, 12, 2);
    contexts.push(vec![BOS, 29, 29, 29, 28, 3]); // hardly seen
    for order in 2..=5 {
        check(order, 30, &train, &contexts);
    }
    let model = KneserNey::train(3, 30, train.iter().map(Vec::as_slice)).unwrap();
    assert_ne!(model.discounts(3), Some([0.5, 1.0, 1.5]), "this text is to have estimated discounts");
}

/// "a b" and "a a", worked out by hand. Too few n-grams to estimate discounts: 1/2, 1 and 3/2.
///
/// Words before: two before a (BOS, a) and before the end (b, a), one before b; five in all. The discounts take
/// (1 + 1 + 1/2) / 5 = 1/2, which UNK and the three others share: 1/8 each.
#[test]
fn two_sentences_by_hand() {
    let (unk, a, b) = (2, 3, 4);
    let text: [&[u32]; 2] = [&[BOS, a, b, EOS], &[BOS, a, a, EOS]];
    let model = KneserNey::train(2, 5, text).unwrap();
    assert_eq!((model.discounts(1), model.discounts(2)), (Some([0.5, 1.0, 1.5]), Some([0.5, 1.0, 1.5])));
    let p_a = (2.0 - 1.0) / 5.0 + 0.125;
    let (p_end, p_b, p_unk) = (p_a, (1.0 - 0.5) / 5.0 + 0.125, 0.125);
    assert_eq!(p_a + p_end + p_b + p_unk, 1.0);
    let expect = |context: &[u32], want: [(u32, f64); 4]| {
        let got = model.after(context).unwrap();
        for (word, want) in want {
            assert!((f64::from(got[word as usize]).exp() - want).abs() < 1e-7, "{word} after {context:?}");
        }
    };
    // b, a and the end each came once after a: half of each is taken and shared by how many words come before.
    let once = (1.0 - 0.5) / 3.0;
    let after_a = [(a, once + 0.5 * p_a), (b, once + 0.5 * p_b), (EOS, once + 0.5 * p_end), (unk, 0.5 * p_unk)];
    expect(&[BOS, a], after_a);
    expect(&[BOS, b, a], after_a);
    // Only a came after the beginning, twice: 1 of 2 is taken.
    expect(&[BOS], [(a, 0.5 + 0.5 * p_a), (b, 0.5 * p_b), (EOS, 0.5 * p_end), (unk, 0.5 * p_unk)]);
    // Nothing came after an unknown word.
    expect(&[BOS, unk], [(a, p_a), (b, p_b), (EOS, p_end), (unk, p_unk)]);
}

#[test]
fn tiny_texts_fall_back_to_fixed_discounts() {
    for train in [vec![vec![BOS, EOS]], vec![vec![BOS, 3, 3, 3, EOS], vec![BOS, 4]]] {
        for order in 2..=5 {
            check(order, 6, &train, &[vec![BOS, 3, 3, 5, 1, 4]]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gives_the_definition(seed in any::<u64>(), vocabulary in 4u32..12, sequences in 1u32..40, order in 2usize..=5) {
        let train = text(vocabulary, sequences, seed);
        check(order, vocabulary as usize, &train, &text(vocabulary, 3, seed ^ 1));
    }
}

#[test]
fn bytes_bring_the_same_model_back() {
    let train = text(40, 300, 5);
    for order in 2..=5 {
        let model = KneserNey::train(order, 40, train.iter().map(Vec::as_slice)).unwrap();
        let bytes = model.to_bytes();
        let again = KneserNey::from_bytes(&bytes).unwrap();
        assert_eq!(again.to_bytes(), bytes);
        let context = [BOS, 7, 9, 11, 4];
        assert_eq!(again.after(&context), model.after(&context));
        assert_eq!(again.after(&[]), None);
    }
}

#[test]
fn damaged_bytes_are_refused_and_nothing_panics() {
    let train = text(12, 20, 6);
    let bytes = KneserNey::train(3, 12, train.iter().map(Vec::as_slice)).unwrap().to_bytes();
    let refused = |bytes: &[u8]| KneserNey::from_bytes(bytes).unwrap_err();
    assert_eq!(refused(b"something else"), NgramError::NotNgrams);
    for len in 0..bytes.len() {
        let error = refused(&bytes[..len]);
        assert!(matches!(error, NgramError::NotNgrams | NgramError::Length { .. }), "{len}: {error}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(refused(&longer), NgramError::Length { .. }));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x15;
        refused(&damaged);
        // whoever changes a file on purpose also computes the checksum again
        let content = damaged.len() - 32;
        let digest = Sha256::digest(&damaged[..content]);
        damaged[content..].copy_from_slice(&digest);
        if let Ok(model) = KneserNey::from_bytes(&damaged) {
            model.after(&[BOS, 3, 4, 5]).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let train = |order, vocabulary, ids: &[u32]| KneserNey::train(order, vocabulary, [ids]).unwrap_err().to_string();
    assert_eq!(train(1, 5, &[BOS, EOS]), "the order must be from 2 to 5, got 1");
    assert_eq!(train(6, 5, &[BOS, EOS]), "the order must be from 2 to 5, got 6");
    assert_eq!(train(3, 5, &[BOS]), "the text is empty");
    for ids in [&[BOS, 5][..], &[3, EOS], &[BOS, 3, BOS, EOS]] {
        assert_eq!(train(3, 5, ids), "sequence 0: must begin with BOS, contain no other BOS, and have ids below 5");
    }
}
