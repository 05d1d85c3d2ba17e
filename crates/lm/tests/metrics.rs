//! The metrics against their definitions, written out slowly, and against the papers' numbers.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use keyhush_lm::{
    language_model::LanguageModel,
    metrics::{Counts, HeadWords, Measure, Metrics, MetricsError, Sequence, Targets, average_perplexity, batches},
    predict::Keyboard,
};
use serde_json::Value;

const BOS: u32 = 0;
const EOS: u32 = 1;
const UNK: u32 = 2;

/// A model whose opinions look random and have ties; they depend on the last two tokens.
struct Noise {
    vocabulary: usize,
}

fn hash(parts: &[u64]) -> u64 {
    let mix = |h: u64, p: &u64| (h ^ p).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_add(*p);
    let h = parts.iter().fold(7, mix);
    h ^ (h >> 31)
}

impl Noise {
    fn after(&self, read: &[u32]) -> Vec<f32> {
        let last = u64::from(read[read.len() - 1]);
        let before = read.len().checked_sub(2).map_or(0, |i| u64::from(read[i]));
        let value = |id: usize| -((hash(&[last, before, id as u64]) % 60) as f32) / 7.0;
        (0..self.vocabulary).map(value).collect()
    }
}

impl LanguageModel for Noise {
    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
        for (s, sequence) in sequences.iter().enumerate() {
            (0..sequence.len()).for_each(|t| visit(s, t, &self.after(&sequence[..=t])));
        }
    }
}

/// Words that share beginnings, some of them beginnings of others, some with letters of several bytes.
fn words(vocabulary: usize) -> Vec<String> {
    let letters = ['a', 'b', 'é', 'k'];
    let mut all = vec!["<s>".to_owned(), "</s>".to_owned(), "<unk>".to_owned()];
    let mut length = 1;
    while all.len() < vocabulary {
        for n in 0..letters.len().pow(length) {
            all.push((0..length).map(|i| letters[n / letters.len().pow(i) % letters.len()]).collect());
        }
        length += 1;
    }
    all.truncate(vocabulary);
    all
}

fn sequences(vocabulary: usize, count: u64) -> Vec<Vec<u32>> {
    let sentence = |s: u64| {
        let len = hash(&[s, 1]) % 9;
        let word = |i| 2 + (hash(&[s, 2, i]) % (vocabulary as u64 - 2)) as u32;
        [BOS].into_iter().chain((0..len).map(word)).chain([EOS]).collect()
    };
    (0..count).map(sentence).collect()
}

fn letters(ids: &[u32], words: &[String]) -> Vec<u32> {
    let of = |id: &u32| match *id {
        BOS | EOS => 0,
        UNK => 6,
        id => words[id as usize].chars().count() as u32,
    };
    ids.iter().map(of).collect()
}

/// All predictions, the first one first.
fn sorted(log_probabilities: &[f32]) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..log_probabilities.len() as u32).collect();
    ids.sort_by(|a, b| log_probabilities[*b as usize].total_cmp(&log_probabilities[*a as usize]).then(a.cmp(b)));
    ids
}

/// The user types letter by letter and looks at three suggestions before each.
fn type_slowly(word: &str, order: &[u32], words: &[String]) -> usize {
    let letters: Vec<char> = word.chars().collect();
    for typed in 0..=letters.len() {
        let beginning: String = letters[..typed].iter().collect();
        let fits = |id: &&u32| **id > UNK && words[**id as usize].starts_with(&beginning);
        if order.iter().filter(fits).take(3).any(|id| words[*id as usize] == word) {
            return typed;
        }
    }
    letters.len()
}

#[derive(Default)]
struct Slow {
    targets: [f64; 3],
    hits: [[f64; 3]; 3],
    loss: [f64; 3],
    total: f64,
    typed: f64,
    heads: [[f64; 11]; 3],
}

fn measure_slowly(model: &Noise, all: &[Vec<u32>], words: &[String], by_frequency: &[u32]) -> Slow {
    let mut slow = Slow::default();
    for ids in all {
        for t in 1..ids.len() {
            let log_probabilities = model.after(&ids[..t]);
            let order = sorted(&log_probabilities);
            let kind = [EOS, UNK].iter().position(|k| *k == ids[t]).unwrap_or(2);
            slow.targets[kind] += 1.0;
            slow.loss[kind] -= f64::from(log_probabilities[ids[t] as usize]);
            for (hits, top) in slow.hits[kind].iter_mut().zip([1, 3, 5]) {
                *hits += f64::from(u8::from(order[..top].contains(&ids[t])));
            }
            let ten: Vec<&u32> = order.iter().filter(|id| **id > UNK).take(10).collect();
            for (head, n) in slow.heads.iter_mut().zip([10, 50, 100]) {
                let frequent = &by_frequency[..n.min(by_frequency.len())];
                head[ten.iter().filter(|id| frequent.contains(id)).count()] += 1.0;
            }
            match ids[t] {
                EOS => {}
                UNK => (slow.total, slow.typed) = (slow.total + 6.0, slow.typed + 6.0),
                id => {
                    let word = &words[id as usize];
                    slow.total += word.chars().count() as f64;
                    slow.typed += type_slowly(word, &order, words) as f64;
                }
            }
        }
    }
    slow
}

fn near(got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-12 * want.abs(), "{got} {want}");
}

#[test]
fn metrics_equal_their_definitions() {
    for vocabulary in [6, 40, 200] {
        let (model, words) = (Noise { vocabulary }, words(vocabulary));
        let all = sequences(vocabulary, 150);
        let by_frequency: Vec<u32> = (3..vocabulary as u32).rev().collect();
        let keyboard = Keyboard::new(words.iter().map(String::as_str));
        let measure = Measure::new(HeadWords::new(by_frequency.iter().copied())).with_keyboard(&keyboard);
        let letters: Vec<Vec<u32>> = all.iter().map(|ids| letters(ids, &words)).collect();
        let pairs = all.iter().zip(&letters);
        let given: Vec<Sequence<'_>> = pairs.map(|(ids, letters)| Sequence { ids, letters }).collect();
        let counts = measure.count(&model, &given).unwrap();
        let got = Metrics::from(&counts);
        let slow = measure_slowly(&model, &all, &words, &by_frequency);

        let [ends, unknown, known] = slow.targets;
        assert!(
            unknown > 0.0 && (vocabulary > 50 || slow.hits[1][2] > 0.0),
            "the test must have UNK as truth and as prediction"
        );
        for top in 0..3 {
            let [end, _, word] = slow.hits.map(|h| h[top]);
            near(got.accuracy.unwrap()[top], (end + word) / (ends + unknown + known));
            near(got.accuracy_without_eos.unwrap()[top], word / (unknown + known));
        }
        near(got.accuracy_in_vocabulary.unwrap(), slow.hits[2][0] / known);
        let total: f64 = slow.loss.iter().sum();
        near(got.perplexity.unwrap(), (total / (ends + unknown + known)).exp());
        near(got.perplexity_without_unk.unwrap(), ((total - slow.loss[1]) / (ends + known)).exp());
        near(counts.perplexity(Targets::KNOWN_WORDS).unwrap(), (slow.loss[2] / known).exp());
        near(got.keystroke_saving.unwrap(), (slow.total - slow.typed) / slow.total);
        for (got, want) in got.headedness.unwrap().iter().flatten().zip(slow.heads.iter().flatten()) {
            near(*got, *want / (ends + unknown + known));
        }
        assert_eq!(got.tokens as f64, ends + unknown + known);
        assert_eq!(got.unknown as f64, unknown);
    }
}

#[test]
fn counts_add_up_to_the_bit_in_any_order() {
    let (model, words) = (Noise { vocabulary: 90 }, words(90));
    let all = sequences(90, 200);
    let letters: Vec<Vec<u32>> = all.iter().map(|ids| letters(ids, &words)).collect();
    let keyboard = Keyboard::new(words.iter().map(String::as_str));
    let measure = Measure::new(HeadWords::in_order(90)).with_keyboard(&keyboard);
    let given: Vec<Sequence<'_>> = all.iter().zip(&letters).map(|(ids, letters)| Sequence { ids, letters }).collect();
    let whole = measure.count(&model, &given).unwrap();
    for rows in [1, 7, 64] {
        let lengths: Vec<usize> = all.iter().map(Vec::len).collect();
        let mut merged = Counts::default();
        for batch in batches(&lengths, rows).iter().rev() {
            let part: Vec<Sequence<'_>> = batch.iter().map(|i| given[*i]).collect();
            merged.merge(&measure.count(&model, &part).unwrap());
        }
        assert_eq!(merged, whole, "{rows}");
    }
    let json = serde_json::to_string(&whole).unwrap();
    assert_eq!(serde_json::from_str::<Counts>(&json).unwrap(), whole);
}

#[test]
fn batches_hold_every_sequence_once() {
    let lengths = [3, 9, 1, 9, 4];
    assert_eq!(batches(&lengths, 2), [vec![1, 3], vec![4, 0], vec![2]]);
    // A few long texts are not left to one thread.
    let long = [3000, 900, 100, 50, 1, 1];
    assert_eq!(batches(&long, 64), [vec![0], vec![1, 2], vec![3, 4, 5]]);
    let large = batches(&[500; 1000], 64);
    assert!(large.iter().all(|batch| batch.len() <= 15), "{} batches", large.len());
    assert_eq!(large.concat().len(), 1000);
    assert!(batches(&[], 8).is_empty());
    assert_eq!(batches(&lengths, 0).len(), 5);
}

/// A model that is always sure of the same thing.
struct Sure(Vec<f32>);

impl LanguageModel for Sure {
    fn vocabulary(&self) -> usize {
        self.0.len()
    }

    fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
        for (s, sequence) in sequences.iter().enumerate() {
            (0..sequence.len()).for_each(|t| visit(s, t, &self.0));
        }
    }
}

fn count(model: &Sure, ids: &[u32]) -> Result<Counts, MetricsError> {
    Measure::new(HeadWords::in_order(model.vocabulary())).count(model, &[Sequence { ids, letters: &[] }])
}

/// Every metric of one sentence, worked out by hand.
///
/// The model always says: the 1/2, EOS and cat 1/8, UNK, car, can and cab 1/16. So predictions come in the order the, EOS,
/// cat, UNK, car, can, cab (of equals the lower id first), and suggestions in the order the, cat, car, can, cab. The text is
/// "the cat car can cab dog"; dog is unknown.
#[test]
fn a_sentence_by_hand() {
    let words = ["<bos>", "<eos>", "<unk>", "the", "cat", "car", "can", "cab"];
    let bits = [f32::INFINITY, 3.0, 4.0, 1.0, 3.0, 4.0, 4.0, 4.0];
    let model = Sure(bits.iter().map(|b| -b * std::f32::consts::LN_2).collect());
    let keyboard = Keyboard::new(words);
    // cat and car are the most frequent words
    let measure = Measure::new(HeadWords::new([4, 5])).with_keyboard(&keyboard);
    let sentence = Sequence { ids: &[BOS, 3, 4, 5, 6, 7, UNK, EOS], letters: &[0, 3, 3, 3, 3, 3, 3, 0] };
    let counts = measure.count(&model, &[sentence]).unwrap();
    let got = Metrics::from(&counts);
    assert_eq!((got.tokens, got.words, got.unknown, got.impossible), (7, 6, 1, 0));
    // First: the. Among the first three: the, cat and the end. Among the first five: car too, and UNK, which never counts.
    assert_eq!(got.accuracy.unwrap(), [1.0 / 7.0, 3.0 / 7.0, 4.0 / 7.0]);
    assert_eq!(got.accuracy_without_eos.unwrap(), [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
    assert_eq!(got.accuracy_in_vocabulary, Some(1.0 / 5.0));
    // 1 + 3 + 4 + 4 + 4 + 4 + 3 bits over seven targets; without UNK 19 bits over six.
    let near = |got: f64, want: f64| assert!((got / want - 1.0).abs() < 1e-6, "{got} {want}");
    near(got.perplexity.unwrap(), (23.0 / 7.0_f64).exp2());
    near(got.perplexity_without_unk.unwrap(), (19.0 / 6.0_f64).exp2());
    // The, cat and car are suggested at once; can after "c"; cab only when typed in full; dog is typed in full: 7 of 18.
    assert_eq!((counts.keys.total, counts.keys.typed), (18, 7));
    assert_eq!(got.keystroke_saving, Some(11.0 / 18.0));
    // Two of the five predicted words are among the most frequent, at every target.
    let two = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(got.headedness, Some([two; 3]));
}

/// Ids 3 to 12 are predicted first. Of the frequent words, 8 comes first, then 9 and so on, 3 to 7 last.
#[test]
fn heads_by_hand() {
    let model = Sure((0..63).map(|id| -(id as f32)).collect());
    let measure = Measure::new(HeadWords::new((8..63).chain(3..8)));
    let counts = measure.count(&model, &[Sequence { ids: &[BOS, 3, EOS], letters: &[] }]).unwrap();
    let all_at = |n: usize| std::array::from_fn(|i| f64::from(u8::from(i == n)));
    // 8 to 12 are among the 10 and the 50 most frequent, all ten among the 100.
    assert_eq!(counts.headedness(), Some([all_at(5), all_at(5), all_at(10)]));
}

#[test]
fn predicting_unk_never_pays() {
    let model = Sure(vec![-9.0, -8.0, -0.1, -5.0]);
    let counts = count(&model, &[BOS, UNK, 3, UNK, EOS]).unwrap();
    assert_eq!(counts.accuracy(Targets::ALL).unwrap(), [0.0, 0.5, 0.5]);
    assert_eq!(counts.accuracy(Targets::WITHOUT_EOS).unwrap(), [0.0, 1.0 / 3.0, 1.0 / 3.0]);
    assert_eq!(counts.accuracy_in_vocabulary(), Some(0.0));
    assert_eq!(counts.keystroke_saving(), None);
}

#[test]
fn what_has_no_probability_makes_perplexity_infinite_and_never_hits() {
    for nothing in [f32::NEG_INFINITY, f32::NAN, -1e30] {
        let counts = count(&Sure(vec![-9.0, -0.1, -9.0, nothing]), &[BOS, 3, EOS]).unwrap();
        assert_eq!(counts.perplexity(Targets::ALL), Some(f64::INFINITY));
        assert_eq!(Metrics::from(&counts).impossible, 1);
        assert_eq!(counts.words.hits[..2], [0, 0]);
        assert!((counts.perplexity(Targets { eos: true, unk: true }).unwrap()).is_infinite());
    }
}

#[test]
fn nothing_measured_is_absent_and_bad_sequences_are_refused() {
    let model = Sure(vec![-1.0; 5]);
    for empty in [&[][..], &[BOS]] {
        let metrics = Metrics::from(&count(&model, empty).unwrap());
        assert_eq!((metrics.tokens, metrics.accuracy, metrics.perplexity, metrics.headedness), (0, None, None, None));
    }
    let refused = |ids: &[u32]| count(&model, ids).unwrap_err().to_string();
    assert_eq!(refused(&[BOS, 5]), "sequence 0, token 1: the id 5 is not below the model's vocabulary of 5");
    for ids in [&[3, 4][..], &[BOS, 3, BOS]] {
        assert_eq!(refused(ids), "sequence 0: must begin with BOS and contain no other BOS");
    }
    let short = [Sequence { ids: &[BOS, 3, EOS], letters: &[0, 1] }];
    let error = Measure::new(HeadWords::in_order(5)).count(&model, &short).unwrap_err();
    assert_eq!(error.to_string(), "sequence 0: has 2 letter counts for 3 tokens");
}

#[test]
fn average_perplexity_reproduces_every_row_of_popov_2018() {
    let text = include_str!("../testdata/papers/popov2018_average_perplexity.json");
    let data: Value = serde_json::from_str(text).unwrap();
    let tokens = |set: &str| data[set].as_u64().unwrap();
    let (wikipedia, twitter) = (tokens("wikipedia_tokens"), tokens("twitter_tokens"));
    let rows = data["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 13);
    for row in rows {
        let of = |column: &str| row[column].as_f64().unwrap();
        let got = average_perplexity(&[(wikipedia, of("wikipedia")), (twitter, of("twitter"))]).unwrap();
        assert_eq!(format!("{got:.1}"), format!("{:.1}", of("average")), "{}", row["method"]);
    }
    assert_eq!(average_perplexity(&[]), None);
    assert_eq!(average_perplexity(&[(3, f64::NAN)]), None);
    assert_eq!(average_perplexity(&[(0, 5.0), (2, 4.0)]).map(|p| format!("{p:.9}")), Some("4.000000000".into()));
}
