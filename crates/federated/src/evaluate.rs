//! Measures how well a model predicts: during training on held-out users, by the run's engine; and in `keyhush eval` on any test set, on
//! all cores.
//!
//! Sequences are put into batches by their lengths alone, and counts add up exactly: the numbers do not depend on the
//! threads. Accuracy on held-out users does not protect those users (rule P12).

use corpus::store::StoreError;
use device::learner::{Learner, Post, examples::Examples, language::for_each_post};
use lm::{
    language_model::LanguageModel,
    metrics::{Counts, HeadWords, Measure, MetricsError, Sequence, batches},
    tokenizer::Tokenizer,
    vocabulary::Vocabulary,
};

use crate::{
    engine::{
        EngineError,
        measure::{Measurer, count_pieces},
    },
    population::Population,
};

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
    count_pieces(batches.len(), threads, |number| {
        let batch = &batches[number];
        let some: Vec<Sequence<'_>> = batch.iter().map(|i| sequences[*i]).collect();
        let counted = measure.count(model, &some);
        done(batch.len() as u64);
        counted
    })
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

    /// Evaluates a model on them.
    ///
    /// # Errors
    /// When the parameters are not those of the model, the examples are not for it, or the measurer broke down.
    pub fn evaluate(&self, measurer: &mut dyn Measurer, model: &[f32]) -> Result<Counts, EngineError> {
        measurer.count(model, &self.0)
    }

    /// What a language model predicts of them that no learner trains, such as n-grams.
    ///
    /// # Errors
    /// When it does not know one of their ids.
    pub fn predicted_by(&self, model: &dyn LanguageModel, threads: usize) -> Result<Counts, MetricsError> {
        let mut posts = Vec::new();
        self.0.iter().for_each(|user| for_each_post(user, |post| posts.push(post.to_vec())));
        let sequences: Vec<Sequence<'_>> = posts.iter().map(|ids| Sequence { ids, letters: &[] }).collect();
        let measure = Measure::new(HeadWords::in_order(model.vocabulary()));
        count(model, &measure, &sequences, threads, |_| {})
    }
}

#[cfg(test)]
mod tests {
    use corpus::synth::{Crowd, Dialect, SynthPlan, vocabulary};
    use device::learner::{LearnerError, language::LanguageLearner};
    use lm::{
        kernels::KernelPath,
        metrics::Metrics,
        model::{config::ModelConfig, fast::Network, initial::initial_parameters},
        tokenizer::Tokenizer,
    };

    use super::*;
    use crate::{engine::measure::OnThreads, population::SyntheticPopulation};

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
        let on = |threads| {
            let mut threads = OnThreads::new(&learner, KernelPath::best(), threads);
            held_out.evaluate(&mut threads, &parameters).unwrap()
        };
        let one = on(1);
        assert_eq!(one, on(2));
        assert_eq!(one, on(3));
        assert_eq!(one, on(0), "there is always one");
        let network = Network::new(&config, parameters.clone(), KernelPath::best()).unwrap();
        assert_eq!(one, held_out.predicted_by(&network, 2).unwrap(), "the same model, without its learner");
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
        let mut threads = OnThreads::new(&learner, KernelPath::best(), 2);
        let counts = nobody.evaluate(&mut threads, &parameters).unwrap();
        assert_eq!(counts, Counts::default());
        // A model with another vocabulary is told from one that predicts badly.
        let small = config.with_vocabulary(100);
        let fewer = initial_parameters(&small, 3).unwrap();
        let small = LanguageLearner::new(&small, 4, 5).unwrap();
        let mut threads = OnThreads::new(&small, KernelPath::best(), 2);
        let refused = all.evaluate(&mut threads, &fewer);
        assert!(matches!(refused, Err(EngineError::Learner(LearnerError::Examples(MetricsError::Id { .. })))));
        let refused = all.evaluate(&mut threads, &parameters);
        assert!(matches!(refused, Err(EngineError::Learner(LearnerError::Network(_)))));
    }
}
