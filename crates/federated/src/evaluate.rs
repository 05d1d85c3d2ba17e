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
use device::text::UserText;
use lm::{
    kernels::KernelPath,
    language_model::LanguageModel,
    metrics::{Counts, HeadWords, Measure, MetricsError, Sequence, batches},
    model::{
        config::ModelConfig,
        fast::{Network, NetworkError},
    },
};
use thiserror::Error;

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
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Ok(Counts::default()));
    let work = || {
        while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
            let some: Vec<Sequence<'_>> = batch.iter().map(|i| sequences[*i]).collect();
            let counted = measure.count(model, &some);
            done(batch.len() as u64);
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            match (total.as_mut(), counted) {
                (Ok(sum), Ok(counts)) => sum.merge(&counts),
                (Ok(_), Err(error)) => *total = Err(error),
                (Err(_), _) => {}
            }
        }
    };
    std::thread::scope(|scope| (0..threads.clamp(1, batches.len().max(1))).for_each(|_| drop(scope.spawn(work))));
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Why a model was not evaluated.
#[derive(Debug, Error)]
pub enum EvaluateError {
    /// The model cannot be built.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The text is not for this model.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}

/// The text of held-out users, in memory, to be predicted again and again.
pub struct Evaluator {
    /// Posts one after the other, each as `BOS w1 ... wn EOS`.
    ids: Vec<u32>,
    /// Where each ends.
    ends: Vec<usize>,
    measure: Measure<'static>,
}

impl Evaluator {
    /// Reads users, one after the other, until there are so many tokens to predict; the post that is read then is cut. The
    /// vocabulary's words stand in the order of their frequency.
    ///
    /// # Errors
    /// When a user cannot be read.
    pub fn new(
        population: &dyn Population,
        users: impl IntoIterator<Item = u64>,
        most_tokens: usize,
        vocabulary: usize,
    ) -> Result<Self, StoreError> {
        let (mut ids, mut ends, mut left) = (Vec::new(), Vec::new(), most_tokens);
        let mut text = UserText::new();
        for user in users {
            if left == 0 {
                break;
            }
            population.read(user, &mut text)?;
            text.truncate(left);
            left -= text.tokens();
            text.for_each_post(|post| {
                ids.extend_from_slice(post);
                ends.push(ids.len());
            });
        }
        Ok(Self { ids, ends, measure: Measure::new(HeadWords::in_order(vocabulary)) })
    }

    /// How many tokens are to be predicted.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.ids.len() - self.ends.len()
    }

    /// What a model with these parameters predicts of it.
    ///
    /// # Errors
    /// When the parameters are not those of the model, this machine does not have the path, or the text was read with a
    /// larger vocabulary than the model's.
    pub fn evaluate(
        &self,
        config: &ModelConfig,
        parameters: &[f32],
        path: KernelPath,
        threads: usize,
    ) -> Result<Counts, EvaluateError> {
        let network = Network::new(config, parameters.to_vec(), path)?;
        let starts = [0].iter().chain(&self.ends);
        let sequence = |(start, end): (&usize, &usize)| Sequence { ids: &self.ids[*start..*end], letters: &[] };
        let sequences: Vec<Sequence<'_>> = starts.zip(&self.ends).map(sequence).collect();
        Ok(count(&network, &self.measure, &sequences, threads, |_| {})?)
    }
}

impl std::fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Evaluator({} posts, {} tokens)", self.ends.len(), self.tokens())
    }
}

#[cfg(test)]
mod tests {
    use corpus::synth::{Crowd, Dialect, SynthPlan, vocabulary};
    use lm::{metrics::Metrics, model::initial::initial_parameters, tokenizer::Tokenizer};

    use super::*;
    use crate::population::SyntheticPopulation;

    #[test]
    fn the_numbers_do_not_depend_on_the_threads() {
        let words = vocabulary(500).unwrap();
        let crowd = Crowd::new(SynthPlan::new(2, 1000, Dialect::Informal)).unwrap();
        let population = SyntheticPopulation::new(crowd, Tokenizer::words(), &words);
        let evaluator = Evaluator::new(&population, 900..1000, 5000, words.len()).unwrap();
        assert_eq!(evaluator.tokens(), 5000);
        let config = ModelConfig::preset("tiny").unwrap().with_vocabulary(words.len());
        let parameters = initial_parameters(&config, 3).unwrap();
        let on = |threads| evaluator.evaluate(&config, &parameters, KernelPath::best(), threads).unwrap();
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
        let crowd = Crowd::new(SynthPlan::new(2, 3, Dialect::Informal)).unwrap();
        let population = SyntheticPopulation::new(crowd, Tokenizer::words(), &words);
        let all = Evaluator::new(&population, 0..3, usize::MAX, words.len()).unwrap();
        let mut text = UserText::new();
        let mut tokens = 0;
        for user in 0..3 {
            population.read(user, &mut text).unwrap();
            tokens += text.tokens();
        }
        assert_eq!(all.tokens(), tokens);
        let config = ModelConfig::preset("tiny").unwrap().with_vocabulary(words.len());
        let parameters = initial_parameters(&config, 3).unwrap();
        let nobody = Evaluator::new(&population, [], 100, words.len()).unwrap();
        let counts = nobody.evaluate(&config, &parameters, KernelPath::best(), 2).unwrap();
        assert_eq!(counts, Counts::default());
        // A model with another vocabulary is told from one that predicts badly.
        let small = config.with_vocabulary(100);
        let fewer = initial_parameters(&small, 3).unwrap();
        let refused = all.evaluate(&small, &fewer, KernelPath::best(), 2);
        assert!(matches!(refused, Err(EvaluateError::Metrics(MetricsError::Id { .. }))));
        assert!(matches!(all.evaluate(&small, &parameters, KernelPath::best(), 2), Err(EvaluateError::Network(_))));
    }
}
