//! Evaluation on a device: counts predictions as a short vector, bounded, rounded and checked like updates; and reads metrics from the
//! noised sum of many such vectors.
//!
//! A device predicts its own text with the model, at most so many examples of it, and counts ([`Counts`]). Each number that the
//! learner's metrics are quotients of becomes a coordinate (`Counted`), divided by what one device may count at most, so that a device
//! with all of its examples right has coordinates of about 1; a loss is divided by that of guessing. The vector is then clipped to
//! [`NORM`]: clipping makes all coordinates of somebody smaller together, so it takes weight away from a person and leaves the
//! quotients as they are. A device without text has zeros, which is what a neighbouring one has (adjacency zero-out).
//!
//! The sum of all vectors, with its noise, is read back as counts ([`Counting::counts`]), of which the learner's metrics are
//! computed as of any other counts. What is rounded to whole targets on the way is far below the noise.

use lm::{
    kernels::KernelPath,
    metrics::{Counts, Nats},
};
use serde::{Deserialize, Serialize};

use crate::learner::{Learner, LearnerError, examples::Examples};

/// The bound on the norm of a device's vector. A device that fills its examples has about this much: targets and losses make up most
/// of it.
pub const NORM: f64 = 1.5;
/// A loss counts up to so many times that of guessing.
const MOST_GUESSES: f64 = 4.0;
/// Examples of one device at most: counts of so many are exact in a coordinate.
pub const MOST_EXAMPLES: u64 = 1 << 20;

/// Limits on what a device counts in an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationPlan {
    /// Examples of a device that are predicted, from the oldest on.
    pub most_examples: u64,
}

/// One number that metrics are quotients of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// Targets that are words of the vocabulary, or labels.
    Targets,
    /// Targets that are the end of a sequence, or no word of the vocabulary.
    OtherTargets,
    /// Words, or labels, that are in a list of [`lm::metrics::TOPS`].
    Hits(usize),
    /// Ends of sequences that are in a list.
    EndHits(usize),
    /// Targets of any kind that are in a list.
    AllHits(usize),
    /// All losses together.
    Loss,
}

/// What is counted for the metrics of a learner, by their name ([`Learner::measures`]).
const SETS: [(&str, &[Counted]); 2] = [
    (
        "next words",
        &[
            Counted::Targets,
            Counted::OtherTargets,
            Counted::Hits(0),
            Counted::EndHits(0),
            Counted::AllHits(1),
            Counted::Loss,
        ],
    ),
    ("tags", &[Counted::Targets, Counted::Hits(0), Counted::Hits(1), Counted::Hits(2)]),
];

/// The number of coordinates in an evaluation of models with these measures; none if devices cannot evaluate them.
#[must_use]
pub fn coordinates(measures: &str) -> Option<usize> {
    set(measures).map(<[Counted]>::len)
}

fn set(measures: &str) -> Option<&'static [Counted]> {
    SETS.iter().find(|(name, _)| *name == measures).map(|(_, counted)| *counted)
}

/// Converts counts to a vector, and back.
#[derive(Debug, Clone, Copy)]
pub struct Counting {
    counted: &'static [Counted],
    most_examples: f64,
    /// The loss of guessing one target.
    guess: f64,
}

impl Counting {
    /// The counting for a learner's models; none if devices cannot evaluate them, or the plan is not valid.
    #[must_use]
    pub fn new(learner: &dyn Learner, plan: EvaluationPlan) -> Option<Self> {
        let counted = set(learner.measures())?;
        let outcomes = learner.outcomes().max(2) as f64;
        let legal = (1..=MOST_EXAMPLES).contains(&plan.most_examples);
        legal.then(|| Self { counted, most_examples: plan.most_examples as f64, guess: libm::log(outcomes) })
    }

    /// How many coordinates there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.counted.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.counted.is_empty()
    }

    /// What one of a coordinate stands for, in targets or nats.
    fn unit(&self, counted: Counted) -> f64 {
        match counted {
            Counted::Loss => self.most_examples * self.guess,
            _ => self.most_examples,
        }
    }

    /// The vector of a device: finite, whatever was counted.
    #[must_use]
    pub fn vector(&self, counts: &Counts) -> Vec<f32> {
        let coordinate = |counted: &Counted| {
            let share = value(*counted, counts) / self.unit(*counted);
            // An infinite loss, or none at all, is as bad as one can be.
            if share <= MOST_GUESSES { share.max(0.0) as f32 } else { MOST_GUESSES as f32 }
        };
        self.counted.iter().map(coordinate).collect()
    }

    /// The counts in a sum of vectors. Noise can make a count negative: it is then zero.
    #[must_use]
    pub fn counts(&self, sum: &[f64]) -> Counts {
        let mut counts = Counts::default();
        for (counted, coordinate) in self.counted.iter().zip(sum) {
            put(*counted, coordinate * self.unit(*counted), &mut counts);
        }
        counts
    }
}

fn value(counted: Counted, counts: &Counts) -> f64 {
    let Counts { words, ends, unknown, .. } = counts;
    match counted {
        Counted::Targets => words.targets as f64,
        Counted::OtherTargets => (ends.targets + unknown.targets) as f64,
        Counted::Hits(list) => words.hits[list] as f64,
        Counted::EndHits(list) => ends.hits[list] as f64,
        // Unknown words are never right (`Counts::accuracy`).
        Counted::AllHits(list) => (words.hits[list] + ends.hits[list]) as f64,
        Counted::Loss => words.loss.get() + ends.loss.get() + unknown.loss.get(),
    }
}

/// What was counted together comes back in one of its kinds: every metric adds them up.
fn put(counted: Counted, value: f64, counts: &mut Counts) {
    // What is no number is 0, and all of them together fit.
    let whole = libm::round(value).clamp(0.0, 1e15) as u64;
    match counted {
        Counted::Targets => counts.words.targets = whole,
        Counted::OtherTargets => counts.unknown.targets = whole,
        Counted::Hits(list) | Counted::AllHits(list) => counts.words.hits[list] = whole,
        Counted::EndHits(list) => counts.ends.hits[list] = whole,
        Counted::Loss => counts.words.loss = Nats::of(value),
    }
}

/// Predicts somebody's examples with a model, and counts.
///
/// # Errors
/// When the model or the examples are not the learner's.
pub fn count(
    learner: &dyn Learner,
    model: &[f32],
    examples: &Examples,
    kernels: KernelPath,
) -> Result<Counts, LearnerError> {
    let predictor = learner.predictor(model, std::slice::from_ref(examples), kernels)?;
    let mut counts = Counts::default();
    for piece in 0..predictor.pieces() {
        counts.merge(&predictor.count(piece)?);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use lm::{metrics::Targets, model::config::ModelConfig};

    use super::*;
    use crate::learner::{language::LanguageLearner, tags::TagLearner};

    fn language() -> LanguageLearner {
        LanguageLearner::new(&ModelConfig::preset("tiny").unwrap().with_vocabulary(100), 4, 5).unwrap()
    }

    fn counts(words: &[Option<usize>], ends: &[Option<usize>], unknown: u64) -> Counts {
        let mut counts = Counts::default();
        words.iter().for_each(|rank| counts.words.add(*rank, -2.0));
        ends.iter().for_each(|rank| counts.ends.add(*rank, -1.0));
        (0..unknown).for_each(|_| counts.unknown.add(Some(0), -3.0));
        counts
    }

    #[test]
    fn what_metrics_are_quotients_of_goes_there_and_back() {
        let counting = Counting::new(&language(), EvaluationPlan { most_examples: 20 }).unwrap();
        let one = counts(&[Some(0), Some(2), None, Some(0)], &[Some(0), None], 2);
        let two = counts(&[Some(1), Some(9)], &[Some(0)], 0);
        let mut both = one.clone();
        both.merge(&two);
        let sum: Vec<f64> =
            counting.vector(&one).iter().zip(counting.vector(&two)).map(|(a, b)| f64::from(a + b)).collect();
        let read = counting.counts(&sum);
        assert_eq!(sum.len(), coordinates("next words").unwrap());
        let all = Targets::ALL;
        assert_eq!(read.accuracy(all).unwrap()[..2], both.accuracy(all).unwrap()[..2]);
        assert_eq!(read.accuracy_in_vocabulary(), both.accuracy_in_vocabulary());
        assert_eq!(read.targets(all), both.targets(all));
        let perplexity = |counts: &Counts| counts.perplexity(all).unwrap();
        assert!((perplexity(&read) / perplexity(&both) - 1.0).abs() < 1e-5);
    }

    #[test]
    fn tags_are_counted_as_words_are() {
        let learner = TagLearner::new(8, ["a", "b", "c"].map(str::to_owned).into(), 2);
        let counting = Counting::new(&learner, EvaluationPlan { most_examples: 5 }).unwrap();
        let some = counts(&[Some(0), Some(2), Some(4), Some(9)], &[], 0);
        let sum: Vec<f64> = counting.vector(&some).iter().map(|v| f64::from(*v)).collect();
        let read = counting.counts(&sum);
        assert_eq!((read.words.targets, read.words.hits), (4, [1, 2, 3]));
    }

    #[test]
    fn a_vector_is_finite_whatever_was_counted() {
        let counting = Counting::new(&language(), EvaluationPlan { most_examples: 3 }).unwrap();
        let mut worst = Counts::default();
        (0..100).for_each(|_| worst.words.add(Some(0), f32::NEG_INFINITY));
        assert_eq!(worst.words.loss.get(), f64::INFINITY);
        let vector = counting.vector(&worst);
        assert!(vector.iter().all(|v| (0.0..=4.0).contains(v)), "{vector:?}");
        assert_eq!(counting.vector(&Counts::default()), [0.0; 6], "nothing to count is nothing");
    }

    /// Noise can turn sums around; nothing of that is a count, and nothing panics.
    #[test]
    fn noise_makes_nothing_worse_than_nothing() {
        let counting = Counting::new(&language(), EvaluationPlan { most_examples: 3 }).unwrap();
        for sum in [[-1.0; 6], [f64::NAN; 6], [f64::INFINITY; 6], [f64::NEG_INFINITY; 6], [1e300; 6]] {
            let counts = counting.counts(&sum);
            assert!(sum[0] > 0.0 || counts.targets(Targets::ALL) == 0, "{counts:?}");
        }
    }

    #[test]
    fn plans_without_meaning_and_unknown_metrics_have_no_vector() {
        for most_examples in [0, MOST_EXAMPLES + 1] {
            assert!(Counting::new(&language(), EvaluationPlan { most_examples }).is_none());
        }
        assert_eq!(coordinates("something else"), None);
    }
}
