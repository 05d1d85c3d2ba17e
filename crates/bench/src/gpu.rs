//! Measures rounds on a GPU: time against the card's measured peaks, and how far updates differ from those of the CPU threads.
//!
//! Users have the tokens of [`crate::local_training`]. A round is what an engine does of it: text in, integer sum out. The shares
//! of the peaks are of what the work cannot do without: every weight read and written once a local step, and three products of every
//! matrix for each token. Evaluations are of as many tokens as runs measure on, in posts of twenty words.

use std::{num::NonZeroUsize, time::Instant};

use corpus::store::StoreError;
use cuda::{CUDA, CardEngine, CardMeasurer, Peaks, peaks};
use device::{
    learner::{
        Learner,
        examples::{Examples, Value},
        language::LanguageLearner,
    },
    local::{Algorithm, LocalPlan, LocalTrainer},
    round::Task,
    upload::Upload,
};
use federated::{
    engine::{
        Engine, EngineOptions, Means, Precision, Users,
        measure::{Measurer, OnThreads},
        users_key,
    },
    population::Population,
};
use lm::{
    kernels::KernelPath,
    metrics::{Counts, Targets},
    model::config::ModelConfig,
    vocabulary::UNK,
};
use privacy::{
    Adjacency, ClipNorm,
    encoding::{Encoding, VectorPlan},
    rng::{NoiseSource, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping},
};
use serde::Serialize;

use crate::{
    BenchError, at_least_one,
    local_training::{operations_per_token, user_tokens},
};

/// Tokens of an evaluation, and words of a post in it.
const EVALUATED: usize = 50_000;
const WORDS: usize = 20;
/// Evaluations on the card; the median is given.
const EVALUATIONS: usize = 5;

/// The parameters of the GPU benchmark.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// The model: a preset.
    pub model: String,
    /// Entries of the vocabulary, instead of the preset's.
    pub vocabulary: Option<usize>,
    /// Users of a round.
    pub users: usize,
    /// Rounds; the median is given.
    pub rounds: usize,
    /// What products are computed in.
    pub precision: Precision,
    /// Threads that prepare text.
    pub threads: usize,
    /// Tokens of a user.
    pub tokens: usize,
    /// Sequences in a batch.
    pub batch: usize,
    /// Tokens of a sequence in a batch.
    pub unroll: usize,
    /// Learning rate.
    pub learning_rate: f32,
    /// Users whose updates are compared with the threads'.
    pub compared: usize,
}

/// The measured results.
#[derive(Debug, Clone, Serialize)]
pub struct GpuTook {
    /// The card.
    pub card: String,
    /// The model.
    pub model: String,
    /// What products are computed in.
    pub precision: &'static str,
    /// Users of a round.
    pub users: usize,
    /// Users that the card holds at a time.
    pub chunk: usize,
    /// Steps of SGD of a user.
    pub steps_per_user: usize,
    /// From text to sum, the median of rounds that follow each other: the text of the next is read while the card trains.
    pub ms_per_round: f64,
    /// Of which the card is at work.
    pub ms_per_round_on_the_card: f64,
    /// The same for a hundred users.
    pub ms_per_100_users: f64,
    /// Users of a round whom the card leaves to the host to encode.
    pub users_left_to_host: u64,
    /// Of what the card copies at its best.
    pub share_of_copy_peak: f64,
    /// Of what it multiplies at its best, with such operands.
    pub share_of_multiply_peak: f64,
    /// What it copies at its best, in terabytes per second, read and written.
    pub copy_peak_tb_per_s: f64,
    /// What it multiplies at its best with such operands, in teraflops per second.
    pub multiply_peak_tflops: f64,
    /// Users whose update was compared with that of the threads engine.
    pub compared_users: usize,
    /// The largest relative difference of their updates against the threads engine; none where none was compared.
    pub largest_relative_difference: Option<f64>,
    /// What an evaluation takes.
    #[serde(flatten)]
    pub evaluation: EvaluationTook,
}

/// The time of an evaluation on the GPU and on this machine's threads.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct EvaluationTook {
    /// Tokens that are predicted.
    pub evaluated_tokens: u64,
    /// On the card, from people's examples to counts, the median.
    pub ms_per_evaluation: f64,
    /// Milliseconds per evaluation on CPU threads, measured once.
    pub ms_per_evaluation_on_threads: f64,
    /// How far apart the mean losses are.
    pub evaluation_loss_difference: f64,
}

/// Users with tokens by Zipf's law, made once.
struct Typists(Vec<Vec<u32>>);

impl Population for Typists {
    fn users(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        examples.clear();
        let users = self.users();
        let tokens = self.0.get(user as usize).ok_or(StoreError::NoUser { index: user, users })?;
        tokens.windows(2).for_each(|pair| examples.push(&[Value::Id(pair[0]), Value::Id(pair[1])]));
        Ok(())
    }
}

impl Gpu {
    /// Trains the rounds.
    ///
    /// # Errors
    /// When it cannot be meant, or there is no card.
    pub fn run(&self, kernels: KernelPath) -> Result<GpuTook, BenchError> {
        at_least_one([("users", self.users), ("rounds", self.rounds), ("batch", self.batch), ("unroll", self.unroll)])?;
        let mut config = ModelConfig::preset(&self.model).map_err(|e| BenchError::wrong("model", e))?;
        config.vocabulary = self.vocabulary.unwrap_or(config.vocabulary);
        let learner = LanguageLearner::new(&config, self.batch, self.unroll).map_err(BenchError::refused)?;
        let mut model = learner.initial(1).map_err(BenchError::failed)?;
        learner.after_step(&mut model);
        let clip = ClipNorm::new(1.0).map_err(BenchError::failed)?;
        let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::None).map_err(BenchError::failed)?;
        let plan = VectorPlan::of_update(model.len(), 20);
        let encoding = Encoding::new(plan, clip, None, Adjacency::AddOrRemove).map_err(BenchError::failed)?;
        let task = Task {
            model: &model,
            clipping: &clipping,
            encoding: &encoding,
            full_weight_tokens: None,
            learning_rate: self.learning_rate,
            epochs: None,
            upload: Upload::Whole,
            evaluation: None,
        };
        let options =
            EngineOptions { precision: self.precision, chunk: NonZeroUsize::new(self.users), check_encodings: false };
        let peaks = peaks().map_err(BenchError::failed)?;
        let means = Means { engine: CUDA, options, ..Means::threads(kernels, self.threads) };
        let mut engine = CardEngine::new(&self.local(), &learner, means).map_err(BenchError::failed)?;
        let of_user = |user: usize| user_tokens(config.vocabulary as u32, user as u32, self.tokens + 1);
        let typists = Typists((0..self.users).map(of_user).collect());
        let numbers: Vec<u64> = (0..self.users as u64).collect();
        let key = users_key(&NoiseSource::from(SimulationKey::new(1)), &[]);
        let users = Users { population: &typists, numbers: &numbers, key: &key };
        let compared = self.compare(&mut engine, &learner, &task, &users, kernels)?;
        let evaluation = self.evaluate(&config, &learner, &model, kernels)?;
        let mut times = Vec::new();
        for _ in 0..self.rounds + 1 {
            let began = Instant::now();
            engine.foresee(users.numbers);
            engine.sum(&task, &users).map_err(BenchError::failed)?;
            times.push((began.elapsed().as_secs_f64(), engine.card_seconds()));
        }
        // The first records the graph.
        times.remove(0);
        let card = engine.card_name().map_err(BenchError::failed)?;
        let took = self.took(&config, model.len(), card, engine.chunk(), peaks, times, compared, evaluation);
        Ok(GpuTook { users_left_to_host: engine.left_to_host(), ..took })
    }

    fn local(&self) -> LocalPlan {
        LocalPlan {
            algorithm: Algorithm::FedAvg { epochs: 1 },
            batch: self.batch,
            unroll: self.unroll,
            most_tokens: None,
            greedy: false,
            update_penalty: 0.0,
            finetune: None,
        }
    }

    /// Measures a model on the card and on threads.
    fn evaluate(
        &self,
        config: &ModelConfig,
        learner: &LanguageLearner,
        model: &[f32],
        kernels: KernelPath,
    ) -> Result<EvaluationTook, BenchError> {
        let people = readers(config.vocabulary as u32, learner);
        let mut card = CardMeasurer::new(learner).map_err(BenchError::failed)?;
        let mut threads = OnThreads::new(learner, kernels, self.threads);
        let timed = |measurer: &mut dyn Measurer| -> Result<(f64, Counts), BenchError> {
            let began = Instant::now();
            let counts = measurer.count(model, &people).map_err(BenchError::failed)?;
            Ok((began.elapsed().as_secs_f64() * 1e3, counts))
        };
        let (on_threads, want) = timed(&mut threads)?;
        // The first records the graph.
        let (_, got) = timed(&mut card)?;
        let mut times = (0..EVALUATIONS).map(|_| Ok(timed(&mut card)?.0)).collect::<Result<Vec<f64>, BenchError>>()?;
        times.sort_unstable_by(f64::total_cmp);
        let loss = |counts: &Counts| counts.perplexity(Targets::ALL).unwrap_or(f64::NAN).ln();
        Ok(EvaluationTook {
            evaluated_tokens: want.targets(Targets::ALL),
            ms_per_evaluation: times[times.len() / 2],
            ms_per_evaluation_on_threads: on_threads,
            evaluation_loss_difference: (loss(&got) - loss(&want)).abs(),
        })
    }

    /// How many of the first users' updates were compared, and their largest relative difference.
    fn compare(
        &self,
        engine: &mut CardEngine<'_>,
        learner: &dyn Learner,
        task: &Task<'_>,
        users: &Users<'_>,
        kernels: KernelPath,
    ) -> Result<(usize, Option<f64>), BenchError> {
        let numbers = &users.numbers[..self.compared.min(users.numbers.len())];
        let found = engine.differences(task, &Users { numbers, ..*users }).map_err(BenchError::failed)?;
        let mut trainer = LocalTrainer::new(learner, self.local(), kernels).map_err(BenchError::failed)?;
        let mut examples = Examples::new(learner.schema());
        let mut worst = None;
        for (user, got) in found {
            users.population.read(user, &mut examples).map_err(BenchError::failed)?;
            let rule = task.clipping.rule();
            let want = trainer.train(task.model, &examples, rule, task.learning_rate, 0).map_err(BenchError::failed)?;
            let off = relative_difference(&want.difference, &got);
            worst = Some(worse(worst, off));
        }
        Ok((numbers.len(), worst))
    }

    #[allow(clippy::too_many_arguments, reason = "the one place where all that was measured comes together")]
    fn took(
        &self,
        config: &ModelConfig,
        parameters: usize,
        card: String,
        chunk: usize,
        peaks: Peaks,
        mut times: Vec<(f64, f64)>,
        (compared_users, largest_relative_difference): (usize, Option<f64>),
        evaluation: EvaluationTook,
    ) -> GpuTook {
        times.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (round_s, card_s) = times[times.len() / 2];
        let steps = (self.tokens.div_ceil(self.batch)).div_ceil(self.unroll);
        let bytes = 8.0 * (parameters * steps * self.users) as f64;
        let operations = operations_per_token(config) * (self.tokens * self.users) as f64;
        let multiply = match self.precision {
            Precision::F32 => peaks.f32_flops,
            Precision::Tf32 => peaks.tf32_flops,
            Precision::F16 => peaks.f16_flops,
        };
        GpuTook {
            card,
            model: self.model.clone(),
            precision: self.precision.name(),
            users: self.users,
            chunk,
            steps_per_user: steps,
            ms_per_round: round_s * 1e3,
            ms_per_round_on_the_card: card_s * 1e3,
            ms_per_100_users: round_s * 1e5 / self.users as f64,
            users_left_to_host: 0,
            share_of_copy_peak: bytes / card_s / peaks.copy_bytes_per_s,
            share_of_multiply_peak: operations / card_s / multiply,
            copy_peak_tb_per_s: peaks.copy_bytes_per_s * 1e-12,
            multiply_peak_tflops: multiply * 1e-12,
            compared_users,
            largest_relative_difference,
            evaluation,
        }
    }
}

/// People to measure on, with ten posts each.
fn readers(vocabulary: u32, learner: &LanguageLearner) -> Vec<Examples> {
    let posts = EVALUATED.div_ceil(WORDS + 1);
    let read = |person: usize| {
        let mut examples = Examples::new(learner.schema());
        let words: Vec<u32> = user_tokens(vocabulary, person as u32, 10 * WORDS);
        let words: Vec<u32> = words.into_iter().map(|word| word.max(UNK)).collect();
        words.chunks(WORDS).for_each(|post| LanguageLearner::push(post, &mut examples));
        examples
    };
    (0..posts.div_ceil(10)).map(read).collect()
}

/// The norm of the difference of two updates over that of the first.
fn relative_difference(want: &[f32], got: &[f32]) -> f64 {
    let square = |v: f64| v * v;
    let norm: f64 = want.iter().map(|v| square(f64::from(*v))).sum();
    let off: f64 = want.iter().zip(got).map(|(w, g)| square(f64::from(*w) - f64::from(*g))).sum();
    if norm == 0.0 { off.sqrt() } else { (off / norm).sqrt() }
}

/// The larger of two differences; one that is not a number is larger than all, and stays.
fn worse(worst: Option<f64>, off: f64) -> f64 {
    match worst {
        Some(worst) if worst.is_nan() || worst >= off => worst,
        _ => off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts rely on these names.
    #[test]
    fn what_is_printed_as_json_has_the_names_that_scripts_rely_on() {
        let evaluation = EvaluationTook {
            evaluated_tokens: 1,
            ms_per_evaluation: 2.0,
            ms_per_evaluation_on_threads: 3.0,
            evaluation_loss_difference: 0.0,
        };
        let took = GpuTook {
            card: "a card".to_owned(),
            model: "tiny".to_owned(),
            precision: "f32",
            users: 200,
            chunk: 100,
            steps_per_user: 20,
            ms_per_round: 20.0,
            ms_per_round_on_the_card: 18.0,
            ms_per_100_users: 10.0,
            users_left_to_host: 1,
            share_of_copy_peak: 0.5,
            share_of_multiply_peak: 0.25,
            copy_peak_tb_per_s: 4.0,
            multiply_peak_tflops: 400.0,
            compared_users: 4,
            largest_relative_difference: Some(1e-5),
            evaluation,
        };
        let json = serde_json::to_value(&took).unwrap();
        let names = [
            ("ms_per_round", 20.0),
            ("ms_per_round_on_the_card", 18.0),
            ("ms_per_100_users", 10.0),
            ("users_left_to_host", 1.0),
            ("share_of_copy_peak", 0.5),
            ("share_of_multiply_peak", 0.25),
            ("copy_peak_tb_per_s", 4.0),
            ("multiply_peak_tflops", 400.0),
            ("compared_users", 4.0),
            ("largest_relative_difference", 1e-5),
            ("ms_per_evaluation", 2.0),
        ];
        for (name, value) in names {
            assert_eq!(json[name].as_f64(), Some(value), "{name}");
        }
        assert_eq!((json["model"].as_str(), json["precision"].as_str()), (Some("tiny"), Some("f32")));
    }

    /// An engine whose updates are no numbers agreed with the threads to the bit.
    #[test]
    fn updates_that_are_no_numbers_do_not_agree() {
        let off = |got: &[f32]| relative_difference(&[3.0, 4.0], got);
        assert_eq!([off(&[3.0, 4.0]), off(&[3.0, 9.0])], [0.0, 1.0]);
        let worst = |all: &[f64]| all.iter().fold(None, |worst, off| Some(worse(worst, *off))).unwrap();
        assert_eq!(worst(&[0.1, 0.5, 0.2]), 0.5);
        assert!(worst(&[0.1, off(&[f32::NAN, 4.0]), 0.2]).is_nan());
        assert_eq!(relative_difference(&[0.0], &[2.0]), 2.0);
    }
}
