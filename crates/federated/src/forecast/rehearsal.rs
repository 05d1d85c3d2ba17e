//! Estimates the duration of a run: the real loop and fleet, on a few synthetic users.
//!
//! Where the run itself is of a synthetic crowd, its own users are taken; where it is of a store, a crowd that is read with the
//! store's vocabulary, so that nobody's text is touched. Rounds are real but for the cohort: some users are trained again and
//! again until there is something to measure, and the rest is a matter of their number. Releases go into a ledger on disk
//! that is thrown away, and their noise follows from a seed.

use std::time::{Duration, Instant};

use corpus::synth::{Crowd, Dialect, SynthPlan};
use ledger::{Start, Unit};
use lm::tokenizer::Tokenizer;
use privacy::rng::{NoiseSource, Randomness, SimulationKey};
use serde::Serialize;

use super::{WorkError, securely};
use crate::{
    cohort::Sampler,
    config::Data,
    engine::{self, Engine, Means, Summed, Users, users_key},
    evaluate::HeldOut,
    fleet::{Attempted, Exact, Fleet, FleetError, Observed, Outcome, RoundTask, Stop},
    ledger_file::Place,
    metrics::Timing,
    plan::Plan,
    population::{EachPost, Population, SyntheticPopulation},
    randomness::RunRandomness,
    round::{Loop, Round, State},
    run::Opened,
};

/// How long users are trained to measure how long one takes.
const TRAINING: Duration = Duration::from_millis(400);
/// Rounds that are tried, at most, to measure what comes after training.
const ROUNDS: u64 = 3;
/// Tokens that are predicted to measure an evaluation, at most.
const EVALUATED: usize = 4000;
/// People of the crowd that stands for a store.
const CROWD: u64 = 2000;

/// The measurements of a rehearsal on this machine.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rehearsal {
    /// Users that were trained.
    pub users: u64,
    /// Tokens of a user.
    pub tokens_per_user: f64,
    /// Seconds of a user, all threads together at work.
    pub seconds_per_user: f64,
    /// Seconds of a round besides training: drawing, noise, ledger, server, secure aggregation.
    pub seconds_per_round: f64,
    /// Seconds of an evaluation.
    pub seconds_per_evaluation: f64,
}

/// Rehearses a plan.
pub(super) fn rehearse(plan: &Plan, opened: &Opened, means: Means) -> Result<Rehearsal, WorkError> {
    let crowd = match plan.config.data {
        Data::Synthetic(_) => opened.population(plan.ledger.unit)?,
        Data::Store(_) | Data::Devices(_) => made_up(plan, opened)?,
    };
    let plan = &thrown_away(plan);
    let engine = engine::of(&plan.local, opened.learner(), means)?;
    let mut fleet = Few::new(plan, crowd.as_ref(), engine, means.threads);
    let folder = tempfile::tempdir()?;
    let (ledger, _) = Place::new(folder.path().join("ledger.jsonl")).create(plan.ledger.clone(), 0)?;
    let state = State::new(plan, opened.first_parameters().to_vec())?;
    let mut rounds = Loop::new(plan, opened.learner(), randomness(plan.randomness()), ledger, state, means.threads);
    let mut seconds_per_round = f64::INFINITY;
    for _ in 0..ROUNDS.min(plan.rounds) {
        let Round::Done(done) = rounds.round(&mut fleet, &Stop::new(), 0)? else { break };
        let Timing { sample_s, release_s, ledger_s, optimizer_s, .. } = done.timing;
        seconds_per_round = seconds_per_round.min(sample_s + release_s + ledger_s + optimizer_s);
    }
    seconds_per_round += securely::seconds(plan, means)?;
    let Few { trained, tokens, seconds, .. } = fleet;
    let tokens_per_user = tokens as f64 / trained.max(1) as f64;
    Ok(Rehearsal {
        users: trained,
        tokens_per_user,
        seconds_per_user: seconds / trained.max(1) as f64,
        seconds_per_round,
        seconds_per_evaluation: evaluation(plan, opened, crowd.as_ref(), tokens_per_user, means)?,
    })
}

/// People who stand for those of a store: other text, the same model and vocabulary.
fn made_up<'a>(plan: &Plan, opened: &'a Opened) -> Result<Box<dyn Population + 'a>, WorkError> {
    let crowd = Crowd::new(SynthPlan::new(1, CROWD, Dialect::Informal))?;
    let users = SyntheticPopulation::new(crowd, Tokenizer::new(opened.rules()), opened.vocabulary(), opened.learner());
    Ok(if plan.ledger.unit == Unit::Example { Box::new(EachPost::new(users)?) } else { Box::new(users) })
}

/// The same plan for a ledger that nobody will read: seeded, without a budget or a past.
fn thrown_away(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    if plan.ledger.randomness == Randomness::Secret {
        plan.ledger.randomness = Randomness::Simulated { seed: 0 };
    }
    plan.ledger.start = Start::Random;
    plan.ledger.after.clear();
    plan.ledger.budget = None;
    plan
}

fn randomness(randomness: Randomness) -> RunRandomness {
    RunRandomness::simulated(match randomness {
        Randomness::SimulatedFloatingPoint { seed } => SimulationKey::with_floating_point_noise(seed),
        Randomness::Simulated { seed } => SimulationKey::new(seed),
        Randomness::Secret => SimulationKey::new(0),
    })
}

/// Seconds of an evaluation, by that of some tokens.
fn evaluation(
    plan: &Plan,
    opened: &Opened,
    crowd: &dyn Population,
    tokens_per_user: f64,
    means: Means,
) -> Result<f64, WorkError> {
    let wanted = &plan.evaluation;
    // Whole users are evaluated, also where posts are the units.
    let there = if plan.ledger.unit == Unit::Example { f64::INFINITY } else { wanted.users as f64 * tokens_per_user };
    let all = there.min(wanted.most_tokens as f64);
    let few = HeldOut::new(crowd, 0..crowd.users(), wanted.most_tokens.min(EVALUATED), opened.learner())?;
    if few.examples() == 0 {
        return Ok(0.0);
    }
    let mut measurer = engine::measure::measurer(opened.learner(), means)?;
    let watch = Instant::now();
    few.evaluate(&mut *measurer, opened.first_parameters())?;
    Ok(watch.elapsed().as_secs_f64() * all / few.examples() as f64)
}

/// A fleet that trains a few users of each cohort, to see how long they take. It is not a fleet of the contract and not built on the
/// simulated one: users who are not there are replaced by others, nobody is named, and the first round is trained again and again
/// until there is something to measure. What comes out is thrown away.
struct Few<'a> {
    plan: &'a Plan,
    population: &'a dyn Population,
    engine: Box<dyn Engine + 'a>,
    /// Users of the next try.
    at_a_time: usize,
    trained: u64,
    tokens: u64,
    seconds: f64,
}

impl<'a> Few<'a> {
    fn new(plan: &'a Plan, population: &'a dyn Population, engine: Box<dyn Engine + 'a>, at_a_time: usize) -> Self {
        Self { plan, population, engine, at_a_time, trained: 0, tokens: 0, seconds: 0.0 }
    }

    /// The first users of a cohort, as they are numbered here: who is not there is somebody else.
    fn some(&self, cohort: &[u64]) -> Vec<u64> {
        let cohort = if cohort.is_empty() { &[0] } else { cohort };
        cohort.iter().cycle().take(self.at_a_time).map(|user| user % self.population.users().max(1)).collect()
    }

    fn sum(&mut self, task: &RoundTask<'_>, cohort: &[u64]) -> Result<Summed, FleetError> {
        let key = users_key(&source(), &[task.at.round]);
        let users = Users { population: self.population, numbers: &self.some(cohort), key: &key };
        Ok(self.engine.sum(&task.task, &users)?)
    }

    /// Trains some users; the first time so many that there is something to measure.
    fn train(&mut self, task: &RoundTask<'_>, cohort: &[u64]) -> Result<Summed, FleetError> {
        let began = Instant::now();
        let mut summed = self.sum(task, cohort)?;
        if self.trained > 0 {
            return Ok(summed);
        }
        // The first users warmed it up; more and more follow, so that what the last wait for does not count.
        while self.trained == 0 || began.elapsed() < TRAINING {
            if began.elapsed() < TRAINING / 4 {
                self.at_a_time *= 2;
            }
            let watch = Instant::now();
            summed = self.sum(task, cohort)?;
            self.seconds += watch.elapsed().as_secs_f64();
            self.trained += summed.exact.len() as u64;
            self.tokens += summed.exact.iter().map(|(_, exact)| exact.tokens as u64).sum::<u64>();
        }
        Ok(summed)
    }
}

fn source() -> NoiseSource {
    SimulationKey::new(0).into()
}

impl Fleet for Few<'_> {
    /// Where sums are secure, nobody looks at this one: how long secure aggregation takes is measured apart from it.
    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError> {
        let began = Instant::now();
        let (round, phase) = (task.at.round, task.phase);
        let population = self.plan.ledger.population;
        let cohort =
            Sampler::new(phase.participation, population, phase.cohort, self.plan.rounds)?.cohort(&source(), round);
        let sample_s = began.elapsed().as_secs_f64();
        let Summed { sum, exact, busy_s, .. } = self.train(task, &cohort)?;
        let outcome = match (&phase.secure, &task.coding.residues) {
            (Some(secure), Some(residues)) if secure.noise.is_some() => {
                let zeros = vec![0; residues.len()];
                Outcome::Noised(residues.noised_sum(&zeros, u64::from(secure.least_survivors))?)
            }
            _ => Outcome::Sum(sum),
        };
        let exact = Exact { users: exact, sample_s, busy_s, ..Exact::default() };
        Ok(Attempted { outcome, observed: Observed { exact: Some(exact), ..Observed::default() } })
    }
}
