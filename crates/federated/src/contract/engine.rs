//! The tests that every engine must pass.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use corpus::{
    store::StoreError,
    synth::{Crowd, Dialect, SynthPlan},
};
use device::{
    finetune::{FineTune, GeneralText},
    learner::{Learner, examples::Examples},
    local::{Algorithm, LocalPlan},
    round::{Exact, Part, Task, Worker},
    upload::Upload,
};
use lm::{kernels::KernelPath, tokenizer::Tokenizer, vocabulary::Vocabulary};
use privacy::{
    Adjacency, ClipNorm,
    encoding::{Encoding, Rounding, VectorPlan, XU_ALPHA},
    rng::{NoiseSource, Randomness, SimulationKey, StreamKey},
    stages::{ClipBit, ClipRule, Clipping, Sum},
};

use crate::{
    config::Document,
    engine::{Engine, Users, drawn, users_key},
    learners::{self, LEARNERS, Made},
    population::{Population, SyntheticPopulation},
};

/// Somebody of everywhere in the crowd, in no order.
pub(super) const COHORT: [u64; 9] = [5, 17, 400_000, 999_999, 12, 13, 14, 600_001, 77];
const CROWD: u64 = 1_000_000;
const BATCH: usize = 2;
const UNROLL: usize = 5;
/// What every learner is made from; each says in [`LEARNERS`] what is another for it. The rest is there because settings are whole.
const SETTINGS: &str = r#"rounds = 1
noise_seed = 1
[data]
kind = "synthetic"
posts_per_user = 6
[model]
preset = "tiny"
vocabulary = 200
hidden = 20
embedding = 16
[local]
batch = 2
unroll = 5
learning_rate = 0.5
[participation]
kind = "poisson"
population = 2000
cohort = 12
[clip]
kind = "flat"
norm = 0.5
[privacy]
mechanism = "gaussian"
noise_multiplier = 0.5
delta = 1e-5
[server]
optimizer = "sgd"
learning_rate = 0.5
[evaluation]
every = 1
users = 6
most_tokens = 300
"#;

/// A small model, and a crowd that types.
pub struct Trial {
    vocabulary: Vocabulary,
    learner: Box<dyn Learner>,
    rotates: bool,
}

/// What the sums of an engine are compared with.
#[derive(Debug, Clone, Copy)]
pub enum Reference {
    /// The same bits as those of the workers of this process, with these kernels.
    SameBits(KernelPath),
    /// An arithmetic of its own. What each user comes to is asked of the engine, one user after the other, and sums over several must
    /// be made of exactly that. It must be near what a worker with these kernels comes to: the distance between the two vectors is at most
    /// the share `tolerance` of their norm, and so is that between losses and norms.
    Own {
        /// Kernels of the reference computation.
        kernels: KernelPath,
        /// Such as 0.01: vectors are rounded to a grid, at random, by either.
        tolerance: f64,
    },
}

impl Reference {
    const fn kernels(self) -> KernelPath {
        match self {
            Self::SameBits(kernels) | Self::Own { kernels, .. } => kernels,
        }
    }
}

impl Trial {
    /// One of every learner that there is.
    #[must_use]
    pub fn all() -> Vec<Self> {
        LEARNERS.iter().map(|kind| Self::of(kind.name)).collect()
    }

    /// The one of a learner, the same in every process.
    #[must_use]
    pub fn of(learner: &str) -> Self {
        let kind = learners::kind(learner).expect("it is registered");
        let set: Vec<String> = kind.small.iter().map(|set| (*set).to_owned()).collect();
        let config = Document::new(SETTINGS, &set).unwrap().config().unwrap();
        let Made { learner, vocabulary, .. } = learners::of(&config, None).unwrap();
        Self { vocabulary, learner, rotates: true }
    }

    /// The same with vectors that are not rotated, for engines that refuse those that are.
    #[must_use]
    pub fn without_rotation(self) -> Self {
        Self { rotates: false, ..self }
    }

    /// How users train: an engine passes the suite with each.
    #[must_use]
    pub const fn plans() -> [LocalPlan; 4] {
        let (batch, unroll, most_tokens) = (BATCH, UNROLL, Some(100));
        [
            LocalPlan {
                algorithm: Algorithm::FedSgdBatch,
                batch,
                unroll,
                most_tokens,
                greedy: false,
                update_penalty: 0.0,
                finetune: None,
            },
            LocalPlan {
                algorithm: Algorithm::FedAvg { epochs: 2 },
                batch,
                unroll,
                most_tokens,
                greedy: false,
                update_penalty: 0.0,
                finetune: None,
            },
            LocalPlan {
                algorithm: Algorithm::FedAvg { epochs: 1 },
                batch,
                unroll,
                most_tokens: None,
                greedy: true,
                update_penalty: 0.0,
                finetune: None,
            },
            LocalPlan {
                algorithm: Algorithm::FedAvg { epochs: 1 },
                batch,
                unroll,
                most_tokens,
                greedy: false,
                update_penalty: 0.1,
                finetune: None,
            },
        ]
    }

    /// How users fine-tune without forgetting: an engine passes the suite with each, or refuses them; a learner may refuse them too.
    #[must_use]
    pub fn finetuning() -> [LocalPlan; 2] {
        let general = GeneralText::new((0..20u32).map(|n| (0..8).map(|i| 4 + (n * 7 + i * 3) % 50).collect()));
        let soft = FineTune::SoftLabels { lambda: 0.5 };
        [FineTune::Rehearsal { lambda: 0.25, general }, soft].map(|how| {
            let [_, plain, ..] = Self::plans();
            LocalPlan { finetune: Some(how), ..plain }
        })
    }

    /// The learner.
    #[must_use]
    pub fn learner(&self) -> &dyn Learner {
        self.learner.as_ref()
    }

    /// The users of the trial.
    #[must_use]
    pub fn population(&self) -> TrialPopulation<'_> {
        let crowd = Crowd::new(SynthPlan::new(3, CROWD, Dialect::Informal)).unwrap();
        TrialPopulation(SyntheticPopulation::new(crowd, Tokenizer::words(), &self.vocabulary, self.learner()))
    }

    /// The parameters of a round, which are others in each.
    pub(super) fn model(&self, round: u64) -> Vec<f32> {
        let mut model = self.learner.initial(1 + round).unwrap();
        // A learner that begins with nothing, whatever the seed, has learned something since.
        if model.iter().all(|value| *value == 0.0) {
            model.iter_mut().zip(round..).for_each(|(value, number)| *value = 0.01 * (number % 7) as f32 - 0.03);
        }
        model
    }

    fn plan(&self) -> VectorPlan {
        VectorPlan {
            rounding: Rounding::ConditionalStochastic { alpha: XU_ALPHA },
            rotation_seed: self.rotates.then_some([4; 32]),
            clip_bit: true,
            weight: true,
            ..VectorPlan::of_update(self.learner.layout().len(), 16)
        }
    }
}

/// A population in which users beyond its end cannot be read.
pub struct TrialPopulation<'a>(SyntheticPopulation<'a>);

impl Population for TrialPopulation<'_> {
    fn users(&self) -> u64 {
        CROWD
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        if user < CROWD { self.0.read(user, examples) } else { Err(StoreError::NoUser { index: user, users: CROWD }) }
    }
}

/// What users came to, so that it can be compared.
type Came = (Vec<i64>, Vec<(u64, Exact)>);

/// One round of a trial.
struct Round<'a> {
    population: &'a dyn Population,
    task: Task<'a>,
    key: StreamKey,
    /// What each user of the cohort comes to, trained one after the other.
    parts: BTreeMap<u64, (Vec<i64>, Exact)>,
}

/// The suite for an engine that trains the users of a [`Trial`] with its learner and one of its plans. An engine passes it with every
/// learner and every plan that it can train.
///
/// ```ignore
/// contract::engine(&trial, &mut engine, &plan, Reference::SameBits(kernels));
/// let trial = trial.without_rotation();
/// contract::engine(&trial, &mut engine, &plan, Reference::Own { kernels, tolerance: 0.01 });
/// ```
pub fn engine(trial: &Trial, engine: &mut dyn Engine, plan: &LocalPlan, reference: Reference) {
    let population = trial.population();
    for number in 0..2 {
        let model = trial.model(number);
        let clip = ClipNorm::new(0.2 + 0.1 * number as f64).unwrap();
        let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::NormAtMost(clip)).unwrap();
        let encoding = Encoding::new(trial.plan(), clip, None, Adjacency::AddOrRemove).unwrap();
        let task = Task {
            model: &model,
            clipping: &clipping,
            encoding: &encoding,
            full_weight_tokens: Some(80.0),
            learning_rate: 0.3 - 0.1 * number as f32,
            epochs: None,
            upload: Upload::Whole,
            evaluation: None,
        };
        let key = users_key(&NoiseSource::from(SimulationKey::new(5)), &[number]);
        let mut round = Round { population: &population, task, key, parts: BTreeMap::new() };
        round.train_one_after_the_other(trial.learner(), plan, reference.kernels());
        if let Reference::Own { tolerance, .. } = reference {
            round.ask_for_one_after_the_other(engine, tolerance);
        }
        round.sums_are_those_of_one_user_after_the_other(engine);
        round.a_failure_gives_nothing_and_is_over(engine);
        round.each_part_comes_once(engine);
    }
}

impl Round<'_> {
    fn users<'u>(&'u self, numbers: &'u [u64]) -> Users<'u> {
        Users { population: self.population, numbers, key: &self.key }
    }

    /// The slow obvious way.
    fn train_one_after_the_other(&mut self, learner: &dyn Learner, plan: &LocalPlan, kernels: KernelPath) {
        let mut worker = Worker::new(learner, plan.clone(), kernels).unwrap();
        for user in COHORT {
            let mut examples = Examples::new(learner.schema());
            self.population.read(user, &mut examples).unwrap();
            examples.truncate(plan.most_tokens.unwrap_or(usize::MAX));
            let part = worker.part(self.task, &examples, drawn(&self.key, user)).unwrap();
            let mut sum = Sum::zero(self.task.encoding);
            sum.add(&part.encoded).unwrap();
            self.parts.insert(user, (values(sum), part.exact));
        }
    }

    /// The same by the engine itself, where it has an arithmetic of its own.
    fn ask_for_one_after_the_other(&mut self, engine: &mut dyn Engine, tolerance: f64) {
        for user in COHORT {
            let (values, exact) = self.summed(engine, &[user]);
            let [(named, exact)] = exact[..] else { panic!("user {user}: {} users in the sum of one", exact.len()) };
            assert_eq!(named, user, "somebody else is in the sum");
            let (wanted, exactly) = &self.parts[&user];
            assert_eq!((values.len(), exact.tokens), (wanted.len(), exactly.tokens), "user {user}");
            let far = apart(&values, wanted);
            assert!(far <= tolerance, "user {user}: {far} of the norm away from what the worker comes to");
            for (what, got, want) in [("loss", exact.loss, exactly.loss), ("norm", exact.norm, exactly.norm)] {
                assert!((got - want).abs() <= tolerance * want.abs(), "user {user}: {what} {got}, and not {want}");
            }
            self.parts.insert(user, (values, exact));
        }
    }

    /// What these of the cohort come to together.
    fn one_after_the_other(&self, numbers: &[u64]) -> Came {
        let (mut sum, mut all) = (values(Sum::zero(self.task.encoding)), Vec::new());
        for user in numbers {
            let (part, exact) = &self.parts[user];
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            all.push((*user, *exact));
        }
        all.sort_unstable_by_key(|(user, _)| *user);
        (sum, all)
    }

    fn summed(&self, engine: &mut dyn Engine, numbers: &[u64]) -> Came {
        let summed = engine.sum(&self.task, &self.users(numbers)).expect("an engine adds up users who are there");
        assert!(summed.busy_s >= 0.0 && summed.busy_s.is_finite());
        (values(summed.sum), summed.exact)
    }

    /// In whatever order users are named, however many, and again: the same bits.
    fn sums_are_those_of_one_user_after_the_other(&self, engine: &mut dyn Engine) {
        let (mut sorted, mut reversed) = (COHORT, COHORT);
        sorted.sort_unstable();
        reversed.reverse();
        for numbers in [&COHORT[..], &sorted, &reversed, &COHORT[..4], &COHORT[..1], &[]] {
            let want = self.one_after_the_other(numbers);
            assert_eq!(want.0.iter().any(|v| *v != 0), !numbers.is_empty(), "nobody learned anything");
            assert!(self.summed(engine, numbers) == want, "{numbers:?}: not the sum of one user after the other");
        }
        for numbers in [&COHORT[..4], &COHORT[..4]] {
            assert!(
                self.summed(engine, numbers) == self.one_after_the_other(numbers),
                "{numbers:?}: another sum the second time"
            );
        }
    }

    /// Somebody who is not there fails the sum, is named, and is not remembered.
    fn a_failure_gives_nothing_and_is_over(&self, engine: &mut dyn Engine) {
        let nobody = self.population.users();
        let failed = engine.sum(&self.task, &self.users(&[COHORT[0], nobody, COHORT[1]]));
        let said = failed.map(|_| ()).expect_err("a sum without somebody is not the sum").to_string();
        assert!(said.contains(&format!("user {nobody}")), "it is not said who failed: {said}");
        let want = self.one_after_the_other(&COHORT[..3]);
        assert!(self.summed(engine, &COHORT[..3]) == want, "a failure is in the next sum");
    }

    /// Where an engine gives parts one by one, each user's comes once, they add up to the sum, and the caller can stop.
    fn each_part_comes_once(&self, engine: &mut dyn Engine) {
        let Some(each) = engine.each() else { return };
        assert!(each.threads() > 0);
        let taken = Mutex::new((Sum::zero(self.task.encoding), Vec::new()));
        let take = |user: u64, part: Part| {
            let mut taken = taken.lock().unwrap();
            taken.0.add(&part.encoded).unwrap();
            taken.1.push((user, part.exact));
            ControlFlow::Continue(())
        };
        each.each(&self.task, &self.users(&COHORT), &take).expect("all of them are there");
        let (sum, mut all) = taken.into_inner().unwrap();
        all.sort_unstable_by_key(|(user, _)| *user);
        assert!((values(sum), all) == self.one_after_the_other(&COHORT), "parts do not add up to the sum");
        let seen = AtomicUsize::new(0);
        let end = |_, _| {
            seen.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Break(())
        };
        // Whether that is an error is the engine's; that it ends is not.
        drop(each.each(&self.task, &self.users(&COHORT), &end));
        let threads = each.threads();
        assert!(seen.into_inner() <= threads, "parts are trained that nobody wants any more");
    }
}

fn values(sum: Sum) -> Vec<i64> {
    sum.release_without_privacy(0, "a contract", Randomness::Simulated { seed: 5 }).values().to_vec()
}

/// How far two vectors are from each other, as a share of the norm of the second; 0 where both are nothing.
fn apart(one: &[i64], other: &[i64]) -> f64 {
    let squared = |value: i64| value as f64 * value as f64;
    let difference: f64 = one.iter().zip(other).map(|(a, b)| squared(a - b)).sum();
    let whole: f64 = other.iter().map(|b| squared(*b)).sum();
    if difference == 0.0 { 0.0 } else { libm::sqrt(difference / whole) }
}
