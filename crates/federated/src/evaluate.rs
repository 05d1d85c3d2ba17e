//! How well a model predicts, on all cores: after some rounds of training on users that were held out, and in
//! `keyhush eval` on any test set.
//!
//! Sequences are put into batches by their lengths alone, and counts add up exactly: the numbers do not depend on the
//! threads. Accuracy on held-out users does not protect those users (rule P12).

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use corpus::store::StoreError;
use device::learner::{Learner, LearnerError, Post, examples::Examples};
use lm::{
    kernels::KernelPath,
    language_model::LanguageModel,
    metrics::{Counts, Measure, MetricsError, Sequence, batches},
    tokenizer::Tokenizer,
    vocabulary::Vocabulary,
};

use crate::population::Population;

/// Sequences that a thread takes at a time.
const ROWS: usize = 64;

/// Counts over sequences, with so many threads; `done` is told how many sequences were read since it was last told.
///
/// # Errors
/// When a sequence is not what [`Sequence`] says.
pub fn count(
    model: &dyn LanguageModel,
    measure: &Measure<'_>,
    sequences: &[Sequence<'_>],
    threads: usize,
    done: impl Fn(u64) + Sync,
) -> Result<Counts, MetricsError> {
    let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.ids.len()).collect();
    let batches = batches(&lengths, ROWS);
    on_threads(batches.len(), threads, |number| {
        let batch = &batches[number];
        let some: Vec<Sequence<'_>> = batch.iter().map(|i| sequences[*i]).collect();
        let counted = measure.count(model, &some);
        done(batch.len() as u64);
        counted
    })
}

/// Counts over so many pieces, on so many threads.
fn on_threads<E: Send>(
    pieces: usize,
    threads: usize,
    count: impl Fn(usize) -> Result<Counts, E> + Sync,
) -> Result<Counts, E> {
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Ok(Counts::default()));
    let work = || {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                break;
            }
            let counted = count(piece);
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            match (total.as_mut(), counted) {
                (Ok(sum), Ok(counts)) => sum.merge(&counts),
                (Ok(_), Err(error)) => *total = Err(error),
                (Err(_), _) => {}
            }
        }
    };
    std::thread::scope(|scope| (0..threads.clamp(1, pieces.max(1))).for_each(|_| drop(scope.spawn(work))));
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The examples of held-out users, in memory, to be predicted again and again.
#[derive(Debug)]
pub struct HeldOut(Vec<Examples>);

impl HeldOut {
    /// Reads users, one after the other, until there are so many examples; those of the last are cut.
    ///
    /// # Errors
    /// When a user cannot be read.
    pub fn new(
        population: &dyn Population,
        users: impl IntoIterator<Item = u64>,
        most_examples: usize,
        learner: &dyn Learner,
    ) -> Result<Self, StoreError> {
        let (mut held_out, mut left) = (Vec::new(), most_examples);
        for user in users {
            if left == 0 {
                break;
            }
            let mut examples = Examples::new(learner.schema());
            population.read(user, &mut examples)?;
            examples.truncate(left);
            left -= examples.len();
            held_out.push(examples);
        }
        Ok(Self(held_out))
    }

    /// Public text, a post after the other, until there are so many examples.
    #[must_use]
    pub fn of_posts<'a>(
        posts: impl IntoIterator<Item = &'a str>,
        tokenizer: Tokenizer,
        vocabulary: &Vocabulary,
        most_examples: usize,
        learner: &dyn Learner,
    ) -> Self {
        let (mut held_out, mut left, mut ids) = (Vec::new(), most_examples, Vec::new());
        for post in posts {
            if left == 0 {
                break;
            }
            ids.clear();
            vocabulary.encode(tokenizer, post, &mut ids);
            let mut examples = Examples::new(learner.schema());
            learner.read(Post { ids: &ids, labels: &[] }, &mut examples);
            examples.truncate(left);
            left -= examples.len();
            held_out.push(examples);
        }
        Self(held_out)
    }

    /// How many examples there are.
    #[must_use]
    pub fn examples(&self) -> usize {
        self.0.iter().map(Examples::len).sum()
    }

    /// What a model predicts of them.
    ///
    /// # Errors
    /// When the parameters are not those of the model, this machine does not have the path, or the examples are not for it.
    pub fn evaluate(
        &self,
        learner: &dyn Learner,
        model: &[f32],
        path: KernelPath,
        threads: usize,
    ) -> Result<Counts, LearnerError> {
        let predictor = learner.predictor(model, &self.0, path)?;
        on_threads(predictor.pieces(), threads, |piece| predictor.count(piece))
    }
}

#[cfg(test)]
mod tests {
    use corpus::synth::{Crowd, Dialect, SynthPlan, vocabulary};
    use device::learner::language::LanguageLearner;
    use lm::{
        metrics::Metrics,
        model::{config::ModelConfig, initial::initial_parameters},
        tokenizer::Tokenizer,
    };

    use super::*;
    use crate::population::SyntheticPopulation;

    fn learner(vocabulary: usize) -> (ModelConfig, LanguageLearner) {
        let config = ModelConfig::preset("tiny").unwrap().with_vocabulary(vocabulary);
        let learner = LanguageLearner::new(&config, 4, 5).unwrap();
        (config, learner)
    }

    #[test]
    fn the_numbers_do_not_depend_on_the_threads() {
        let words = vocabulary(500).unwrap();
        let (config, learner) = learner(words.len());
        let crowd = Crowd::new(SynthPlan::new(2, 1000, Dialect::Informal)).unwrap();
        let population = SyntheticPopulation::new(crowd, Tokenizer::words(), &words, &learner);
        let held_out = HeldOut::new(&population, 900..1000, 5000, &learner).unwrap();
        assert_eq!(held_out.examples(), 5000);
        let parameters = initial_parameters(&config, 3).unwrap();
        let on = |threads| held_out.evaluate(&learner, &parameters, KernelPath::best(), threads).unwrap();
        let one = on(1);
        assert_eq!(one, on(2));
        assert_eq!(one, on(3));
        assert_eq!(one, on(0), "there is always one");
        let metrics = Metrics::from(&one);
        assert_eq!((metrics.tokens, metrics.impossible), (5000, 0));
        // Nothing was learned: all entries are about as likely.
        let perplexity = metrics.perplexity.unwrap();
        assert!((perplexity / words.len() as f64 - 1.0).abs() < 0.1, "{perplexity}");
    }

    #[test]
    fn few_users_and_nobody_can_be_evaluated_on() {
        let words = vocabulary(500).unwrap();
        let (config, learner) = learner(words.len());
        let crowd = Crowd::new(SynthPlan::new(2, 3, Dialect::Informal)).unwrap();
        let population = SyntheticPopulation::new(crowd, Tokenizer::words(), &words, &learner);
        let all = HeldOut::new(&population, 0..3, usize::MAX, &learner).unwrap();
        let mut examples = Examples::new(learner.schema());
        let mut tokens = 0;
        for user in 0..3 {
            population.read(user, &mut examples).unwrap();
            tokens += examples.len();
        }
        assert_eq!(all.examples(), tokens);
        let parameters = initial_parameters(&config, 3).unwrap();
        let nobody = HeldOut::new(&population, [], 100, &learner).unwrap();
        let counts = nobody.evaluate(&learner, &parameters, KernelPath::best(), 2).unwrap();
        assert_eq!(counts, Counts::default());
        // A model with another vocabulary is told from one that predicts badly.
        let small = config.with_vocabulary(100);
        let fewer = initial_parameters(&small, 3).unwrap();
        let small = LanguageLearner::new(&small, 4, 5).unwrap();
        let refused = all.evaluate(&small, &fewer, KernelPath::best(), 2);
        assert!(matches!(refused, Err(LearnerError::Examples(MetricsError::Id { .. }))));
        assert!(matches!(all.evaluate(&small, &parameters, KernelPath::best(), 2), Err(LearnerError::Network(_))));
    }
}
