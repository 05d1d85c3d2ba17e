//! Counts of one pass over a test set, and the metrics as their ratios.

use serde::{Deserialize, Serialize};

/// The lists in which the truth is looked for: top 1, 3 and 5 (McMahan et al. 2018, appendix B: "AccuracyTop1 ... and
/// related metrics (Top3, Top5 ...)").
pub const TOPS: [usize; 3] = [1, 3, 5];

/// The sizes of the head (the most frequent words) in the columns of McMahan et al. 2018, Table 3.
pub const HEADS: [usize; 3] = [10, 50, 100];

/// A sum of losses in nats that does not depend on the order of its terms: a whole number of 2^-64 nats. A loss above 2^20
/// nats, an infinite one and one that is no number are not added but counted: they make the sum infinite.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nats {
    units: i128,
    impossible: u64,
}

impl Nats {
    const UNIT: f64 = 1.0 / (1u128 << 64) as f64;
    const MOST: f64 = (1u64 << 20) as f64;

    /// Adds the loss of a target with this log-probability.
    pub fn add(&mut self, log_probability: f32) {
        let loss = -f64::from(log_probability);
        if loss.abs() <= Self::MOST {
            self.units += (loss / Self::UNIT) as i128; // below 2^84: 2^43 of them fit
        } else {
            self.impossible += 1;
        }
    }

    /// A sum that is known from elsewhere, such as a noised one. What is no number, or not finite, is an infinite sum.
    #[must_use]
    pub fn of(sum: f64) -> Self {
        // Far below what overflows, and far above any sum of losses.
        if sum.abs() <= 1e15 {
            Self { units: (sum / Self::UNIT) as i128, impossible: 0 }
        } else {
            Self { units: 0, impossible: 1 }
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        self.units += other.units;
        self.impossible += other.impossible;
    }

    /// Losses that make the sum infinite.
    #[must_use]
    pub const fn impossible(&self) -> u64 {
        self.impossible
    }

    /// The sum.
    #[must_use]
    pub fn get(&self) -> f64 {
        if self.impossible > 0 { f64::INFINITY } else { self.units as f64 * Self::UNIT }
    }
}

/// Counts over targets of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The number of targets.
    pub targets: u64,
    /// At how many the truth was in each list of [`TOPS`].
    pub hits: [u64; TOPS.len()],
    /// The sum of their losses.
    pub loss: Nats,
}

impl Tally {
    /// Counts one target: its rank among all predictions (0 is the first) and its log-probability.
    pub fn add(&mut self, rank: Option<usize>, log_probability: f32) {
        self.targets += 1;
        for (hits, top) in self.hits.iter_mut().zip(TOPS) {
            *hits += u64::from(rank.is_some_and(|rank| rank < top));
        }
        self.loss.add(log_probability);
    }

    fn merge(&mut self, other: &Self) {
        self.targets += other.targets;
        self.hits.iter_mut().zip(other.hits).for_each(|(a, b)| *a += b);
        self.loss.merge(&other.loss);
    }
}

/// Letters of a text, and those that were typed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Characters of all words; spaces are not counted.
    pub total: u64,
    /// Keys that were pressed for them.
    pub typed: u64,
}

/// Which targets take part in a metric. Known words always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Targets {
    /// The end of a sequence.
    pub eos: bool,
    /// Words that are not in the vocabulary.
    pub unk: bool,
}

impl Targets {
    /// Every target.
    pub const ALL: Self = Self { eos: true, unk: true };
    /// Words, known or not.
    pub const WITHOUT_EOS: Self = Self { eos: false, unk: true };
    /// What the vocabulary can express: known words and the end.
    pub const WITHOUT_UNK: Self = Self { eos: true, unk: false };
    /// Known words.
    pub const KNOWN_WORDS: Self = Self { eos: false, unk: false };
}

/// All that is counted over a test set, or over a part of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Targets that are words of the vocabulary.
    pub words: Tally,
    /// Targets that are the end of a sequence.
    pub ends: Tally,
    /// Targets that are no word of the vocabulary. Their hits are those of a model that predicts UNK; no accuracy counts
    /// them.
    pub unknown: Tally,
    /// Letters, where they were given.
    pub keys: Keys,
    /// For each head of [`HEADS`]: at how many targets 0, 1, ..., 10 of the first ten predicted words belong to it.
    pub heads: [[u64; 11]; HEADS.len()],
}

impl Counts {
    /// Adds the counts of another part. Exact, so order does not matter.
    pub fn merge(&mut self, other: &Self) {
        self.words.merge(&other.words);
        self.ends.merge(&other.ends);
        self.unknown.merge(&other.unknown);
        self.keys.total += other.keys.total;
        self.keys.typed += other.keys.typed;
        let theirs = other.heads.iter().flatten();
        self.heads.iter_mut().flatten().zip(theirs).for_each(|(a, b)| *a += b);
    }

    /// How many targets of these kinds there were.
    #[must_use]
    pub fn targets(&self, over: Targets) -> u64 {
        self.tallies(over).map(|t| t.targets).sum()
    }

    fn tallies(&self, over: Targets) -> impl Iterator<Item = &Tally> {
        let chosen = [Some(&self.words), over.eos.then_some(&self.ends), over.unk.then_some(&self.unknown)];
        chosen.into_iter().flatten()
    }

    /// AccuracyTop1, Top3 and Top5: the share of targets that are among the first 1, 3 or 5 predictions.
    ///
    /// McMahan et al. 2018, appendix B: "AccuracyTop1, the probability that the word to which the model assigns highest
    /// probability is correct ... We always count it as a mistake if the true next word is not in the dictionary, even if
    /// the model predicts UNK, in order to allow fair comparisons of models using different dictionaries." So UNK as the
    /// truth is a target and always wrong; UNK and EOS as predictions take their places in the list. With
    /// [`Targets::ALL`] the end of a sequence is a target like a word, with [`Targets::WITHOUT_EOS`] it is not asked for.
    ///
    /// `None` without targets.
    #[must_use]
    pub fn accuracy(&self, over: Targets) -> Option<[f64; TOPS.len()]> {
        let targets = self.targets(over);
        let known = Targets { unk: false, ..over };
        let hits = |top: usize| self.tallies(known).map(|t| t.hits[top]).sum::<u64>();
        (targets > 0).then(|| std::array::from_fn(|top| hits(top) as f64 / targets as f64))
    }

    /// The share of known words that are the first prediction: top-1 in vocabulary. Unknown words and the end of a sequence
    /// are no targets here, so models with different vocabularies cannot be compared by it.
    #[must_use]
    pub fn accuracy_in_vocabulary(&self) -> Option<f64> {
        self.accuracy(Targets::KNOWN_WORDS).map(|[top1, ..]| top1)
    }

    /// Perplexity: the exponential of the mean loss.
    ///
    /// With [`Targets::ALL`] an unknown word costs the loss of predicting UNK. With [`Targets::WITHOUT_UNK`] it is no
    /// target: Popov et al. 2018, section 2.4: "In the presence of OOV words perplexity is ill-defined, so all OOV words
    /// must be removed from the test set." They stay in the context as UNK. Infinite when a target was held impossible;
    /// `None` without targets.
    #[must_use]
    pub fn perplexity(&self, over: Targets) -> Option<f64> {
        let mut loss = Nats::default();
        self.tallies(over).for_each(|t| loss.merge(&t.loss));
        let targets = self.targets(over);
        (targets > 0).then(|| libm::exp(loss.get() / targets as f64))
    }

    /// Keystroke saving rate, from 0 to 1: `(total - typed) / total`.
    ///
    /// Popov et al. 2018, equation (5): "N_total is the total number of non-space characters in the typed text and N_typed
    /// is the number of characters user still had to type until the correct suggestion was presented. In our experiments
    /// we used top-3 suggestion lists." The list is shown before the first letter of a word and after each; accepting
    /// costs no key; unknown words are typed in full. `None` where no letters were counted.
    #[must_use]
    pub fn keystroke_saving(&self) -> Option<f64> {
        let Keys { total, typed } = self.keys;
        (total > 0).then(|| (total as f64 - typed as f64) / total as f64)
    }

    /// The histograms of McMahan et al. 2018, Table 3, as shares: for each head of [`HEADS`] the share of targets at which
    /// 0, 1, ..., 10 of the first ten predictions belong to the head.
    ///
    /// Section 3: "At each s_t we intersect the top 10 predictions with the most frequent 10, 50, 100 words in the
    /// dictionary. So for example, an intersection of size two in the top 50 means two of the model's top 10 predictions
    /// are in the 50 most common words in the dictionary." Predictions are words here: BOS, EOS and UNK are skipped.
    #[must_use]
    pub fn headedness(&self) -> Option<[[f64; 11]; HEADS.len()]> {
        let targets = self.targets(Targets::ALL);
        (targets > 0).then(|| self.heads.map(|head| head.map(|n| n as f64 / targets as f64)))
    }
}

/// Popov's average perplexity over test sets: `exp((n1 ln P1 + n2 ln P2) / (n1 + n2))`, weighted by tokens.
///
/// Popov et al. 2018 do not say how "Av. PPL" of Tables 1 and 2 is averaged. With the sizes of section 2.5, 170,000 tokens
/// of Wikipedia and 200,000 of Twitter, this reproduces all 13 rows to the printed digit; no other weighting that we tried
/// does. It is the perplexity of both sets taken as one. `None` without tokens, or with a perplexity that is not positive.
#[must_use]
pub fn average_perplexity(sets: &[(u64, f64)]) -> Option<f64> {
    let tokens: u64 = sets.iter().try_fold(0u64, |sum, (tokens, _)| sum.checked_add(*tokens))?;
    if tokens == 0 || sets.iter().any(|(_, perplexity)| perplexity.is_nan() || *perplexity <= 0.0) {
        return None;
    }
    let counted = sets.iter().filter(|(n, _)| *n > 0);
    let loss: f64 = counted.map(|(n, perplexity)| *n as f64 * libm::log(*perplexity)).sum();
    Some(libm::exp(loss / tokens as f64))
}
