//! Statistics of a store: users, tokens and their distribution, the vocabulary's coverage, labels and features.

use lm::vocabulary::UNK;
use serde::Serialize;

use super::{Meta, Part, Split, Store, StoreError};

/// Statistics of a store.
#[derive(Debug, Clone, Serialize)]
pub struct Stats<'a> {
    /// Users.
    pub users: u64,
    /// Number of posts.
    pub posts: u64,
    /// Number of tokens.
    pub tokens: u64,
    /// Bits of an id.
    pub id_bits: u32,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// What tells it from another.
    pub fingerprint: String,
    /// Entries that occur, UNK not counted.
    pub entries_used: usize,
    /// Tokens that are not in the vocabulary.
    pub unknown: u64,
    /// The share of tokens that are.
    pub coverage: f64,
    /// How much a user has typed.
    pub tokens_per_user: Quantiles,
    /// The same in bins that double.
    pub histogram: Vec<Bin>,
    /// The most frequent entries.
    pub top: Vec<Top<'a>>,
    /// The users of each part, where there is a split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Parts>,
    /// The labels of posts, where they have any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelStats<'a>>,
    /// The features of users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<FeatureStats<'a>>,
    /// What the store says of itself.
    pub meta: &'a Meta,
}

/// The frequency of labels.
#[derive(Debug, Clone, Serialize)]
pub struct LabelStats<'a> {
    /// Labels that have a name.
    pub names: usize,
    /// Labels of all posts together.
    pub total: u64,
    /// Posts that have none.
    pub posts_without: u64,
    /// The most frequent ones.
    pub top: Vec<Top<'a>>,
}

/// The range of a feature.
#[derive(Debug, Clone, Serialize)]
pub struct FeatureStats<'a> {
    /// Its name.
    pub name: &'a str,
    /// The smallest that a user has.
    pub least: f32,
    /// The largest.
    pub most: f32,
    /// The mean.
    pub mean: f64,
}

/// Tokens of users.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Quantiles {
    /// Of the one with the fewest.
    pub least: u64,
    /// A quarter have at most so many.
    pub quarter: u64,
    /// Half of them.
    pub median: u64,
    /// Three quarters.
    pub three_quarters: u64,
    /// The largest value.
    pub most: u64,
    /// The mean.
    pub mean: f64,
}

/// Users with at least `from` and less than `to` tokens.
#[derive(Debug, Clone, Serialize)]
pub struct Bin {
    /// Lower bound of the bin.
    pub from: u64,
    /// Upper bound of the bin, excluded.
    pub to: u64,
    /// Number of users in the bin.
    pub users: u64,
}

/// An entry of the vocabulary or the name of a label, and how often it occurs.
#[derive(Debug, Clone, Serialize)]
pub struct Top<'a> {
    /// The entry or the name.
    pub entry: &'a str,
    /// Number of occurrences.
    pub count: u64,
}

/// Users of each part of a split.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Parts {
    /// Users of the training part.
    pub train: u64,
    /// Users of the validation part.
    pub validation: u64,
    /// Users of the test part.
    pub test: u64,
}

impl<'a> Stats<'a> {
    /// Counts everything, with the users of each part of a split and so many of the most frequent entries.
    ///
    /// # Errors
    /// When the store is damaged.
    pub fn of(store: &'a Store, split: Option<Split>, top: usize) -> Result<Self, StoreError> {
        let mut counts = vec![0_u64; store.vocabulary().len()];
        let mut lengths = Vec::new();
        let mut parts = split.map(|_| Parts::default());
        for index in 0..store.users() {
            let user = store.user(index)?;
            lengths.push(user.tokens().len() as u64);
            user.tokens().iter().for_each(|id| counts[id as usize] += 1);
            if let (Some(split), Some(parts)) = (&split, &mut parts) {
                match split.part(user.tag()) {
                    Part::Train => parts.train += 1,
                    Part::Validation => parts.validation += 1,
                    Part::Test => parts.test += 1,
                }
            }
        }
        lengths.sort_unstable();
        let unknown = counts[UNK as usize];
        let mut ranked: Vec<(u32, u64)> = (0..).zip(counts.iter().copied()).filter(|(_, count)| *count > 0).collect();
        ranked.sort_by_key(|(id, count)| (std::cmp::Reverse(*count), *id));
        let shown = ranked
            .iter()
            .take(top)
            .map(|(id, count)| Top { entry: store.vocabulary().word(*id).unwrap_or_default(), count: *count });
        Ok(Self {
            users: store.users(),
            posts: store.posts(),
            tokens: store.tokens(),
            id_bits: store.id_bits(),
            vocabulary: store.vocabulary().len(),
            fingerprint: store.fingerprint(),
            entries_used: ranked.iter().filter(|(id, _)| *id != UNK).count(),
            unknown,
            coverage: 1.0 - unknown as f64 / store.tokens().max(1) as f64,
            tokens_per_user: Quantiles::of(&lengths),
            histogram: histogram(&lengths),
            top: shown.collect(),
            split: parts,
            labels: (!store.labels().is_empty()).then(|| LabelStats::of(store, top)).transpose()?,
            features: FeatureStats::all(store)?,
            meta: store.meta(),
        })
    }
}

impl<'a> LabelStats<'a> {
    fn of(store: &'a Store, top: usize) -> Result<Self, StoreError> {
        let mut counts = vec![0_u64; store.labels().len()];
        let mut posts_without = 0;
        for index in 0..store.users() {
            for post in store.user(index)?.posts() {
                post.labels().iter().for_each(|id| counts[id as usize] += 1);
                posts_without += u64::from(post.labels().iter().next().is_none());
            }
        }
        let mut ranked: Vec<Top<'_>> =
            store.labels().names().iter().zip(&counts).map(|(entry, count)| Top { entry, count: *count }).collect();
        ranked.sort_by_key(|top| std::cmp::Reverse(top.count));
        ranked.truncate(top);
        Ok(Self { names: counts.len(), total: counts.iter().sum(), posts_without, top: ranked })
    }
}

impl<'a> FeatureStats<'a> {
    fn all(store: &'a Store) -> Result<Vec<Self>, StoreError> {
        let start = |name: &'a String| Self { name, least: f32::INFINITY, most: f32::NEG_INFINITY, mean: 0.0 };
        let mut all: Vec<Self> = store.feature_names().iter().map(start).collect();
        if all.is_empty() {
            return Ok(all);
        }
        for index in 0..store.users() {
            for (feature, number) in all.iter_mut().zip(store.user(index)?.features().iter()) {
                feature.least = feature.least.min(number);
                feature.most = feature.most.max(number);
                feature.mean += f64::from(number) / store.users() as f64;
            }
        }
        Ok(all)
    }
}

impl Quantiles {
    fn of(sorted: &[u64]) -> Self {
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let at = |quarter: usize| sorted[(sorted.len() - 1) * quarter / 4];
        let mean = sorted.iter().sum::<u64>() as f64 / sorted.len() as f64;
        Self { least: *first, quarter: at(1), median: at(2), three_quarters: at(3), most: *last, mean }
    }
}

/// Bins that double.
fn histogram(sorted: &[u64]) -> Vec<Bin> {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let (low, high) = (first.max(&1).ilog2(), last.max(&1).ilog2());
    let bin = |power: u32| {
        let (from, to) = (1_u64 << power, 1_u64 << (power + 1));
        let from = if power == 0 { 0 } else { from };
        let users = sorted.partition_point(|n| *n < to) - sorted.partition_point(|n| *n < from);
        Bin { from, to, users: users as u64 }
    };
    (low..=high).map(bin).collect()
}
