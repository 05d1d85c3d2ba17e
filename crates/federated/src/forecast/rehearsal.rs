//! How long a run would take: the real loop with the real fleet, on a few users of a made-up crowd.
//!
//! Where the run itself is of a made-up crowd, its own users are taken; where it is of a store, a crowd that is read with the
//! store's vocabulary, so that nobody's text is touched. Rounds are real but for the cohort: some users are trained again and
//! again until there is something to measure, and the rest is a matter of their number. Releases go into a ledger on disk
//! that is thrown away, and their noise follows from a seed.

use std::time::{Duration, Instant};

use corpus::synth::{Crowd, Dialect, SynthPlan};
use lm::tokenizer::Tokenizer;
use privacy::{
    ledger::{Start, Unit, file::Place},
    rng::{Randomness, SimulationKey},
};
use serde::Serialize;

use super::{WorkError, securely};
use crate::{
    config::DataKind,
    evaluate::Evaluator,
    fleet::{
        Collected, Fleet, FleetError, RoundTask,
        secure::{SecureTask, Secured},
        threads::ThreadFleet,
    },
    metrics::Timing,
    plan::Plan,
    population::{Examples, Population, SyntheticPopulation},
    randomness::RunRandomness,
    round::{Loop, Round, State},
    run::{Means, Opened},
};

/// How long users are trained to measure how long one takes.
const TRAINING: Duration = Duration::from_millis(1500);
/// Rounds that are tried, at most, to measure what comes after training.
const ROUNDS: u64 = 3;
/// Tokens that are predicted to measure an evaluation, at most.
const EVALUATED: usize = 4000;
/// People of the crowd that stands for a store.
const CROWD: u64 = 2000;

/// What was measured here and now.
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
    let crowd = match plan.config.data.kind {
        DataKind::Synthetic => opened.population(plan.config.unit)?,
        DataKind::Store => made_up(plan, opened)?,
    };
    let plan = &thrown_away(plan);
    let mut fleet = Few::new(ThreadFleet::new(crowd.as_ref(), &plan.model, &plan.local, means.kernels, means.threads)?);
    fleet.users_there = crowd.users();
    fleet.at_a_time = means.threads;
    let folder = tempfile::tempdir()?;
    let (ledger, _) = Place::new(folder.path().join("ledger.jsonl")).create(plan.ledger.clone(), 0)?;
    let state = State::new(plan, opened.first_parameters().to_vec())?;
    let mut rounds = Loop::new(plan, randomness(plan.randomness()), ledger, state, means.threads);
    let mut seconds_per_round = f64::INFINITY;
    for _ in 0..ROUNDS.min(plan.config.rounds) {
        let Round::Done(done) = rounds.round(&mut fleet, 0)? else { break };
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
    let users = SyntheticPopulation::new(crowd, Tokenizer::new(opened.rules()), opened.vocabulary());
    Ok(if plan.config.unit == Unit::Example { Box::new(Examples::new(users)?) } else { Box::new(users) })
}

/// The same plan for a ledger that nobody will read: seeded, without a budget or a past.
fn thrown_away(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    if plan.ledger.randomness == Randomness::Secret {
        plan.ledger.randomness = Randomness::Simulated { seed: 0 };
    }
    plan.ledger.start = Start::Random;
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
    let wanted = &plan.config.evaluation;
    // Whole users are evaluated, also where posts are the units.
    let there = if plan.config.unit == Unit::Example { f64::INFINITY } else { wanted.users as f64 * tokens_per_user };
    let all = there.min(wanted.most_tokens as f64);
    let few = Evaluator::new(crowd, 0..crowd.users(), wanted.most_tokens.min(EVALUATED), plan.model.vocabulary)?;
    if few.tokens() == 0 {
        return Ok(0.0);
    }
    let watch = Instant::now();
    few.evaluate(&plan.model, opened.first_parameters(), means.kernels, means.threads)?;
    Ok(watch.elapsed().as_secs_f64() * all / few.tokens() as f64)
}

/// A fleet that trains a few users of each cohort.
struct Few<'a> {
    fleet: ThreadFleet<'a>,
    /// Who is not there is somebody else.
    users_there: u64,
    /// Users of the next try.
    at_a_time: usize,
    trained: u64,
    tokens: u64,
    seconds: f64,
}

impl<'a> Few<'a> {
    const fn new(fleet: ThreadFleet<'a>) -> Self {
        Self { fleet, users_there: 1, at_a_time: 1, trained: 0, tokens: 0, seconds: 0.0 }
    }

    /// The first users of a cohort, as they are numbered here.
    fn some(&self, cohort: &[u64], count: usize) -> Vec<u64> {
        let cohort = if cohort.is_empty() { &[0] } else { cohort };
        cohort.iter().cycle().take(count).map(|user| user % self.users_there.max(1)).collect()
    }
}

impl Fleet for Few<'_> {
    fn round(&mut self, task: &RoundTask<'_>) -> Result<Collected, FleetError> {
        let first = self.some(task.cohort, self.at_a_time);
        let began = Instant::now();
        let mut collected = self.fleet.round(&RoundTask { cohort: &first, ..*task })?;
        if self.trained > 0 {
            return Ok(collected);
        }
        // The first users warmed it up; more and more follow, so that what the last wait for does not count.
        while self.trained == 0 || began.elapsed() < TRAINING {
            if began.elapsed() < TRAINING / 4 {
                self.at_a_time *= 2;
            }
            let users = self.some(task.cohort, self.at_a_time);
            collected = self.fleet.round(&RoundTask { cohort: &users, ..*task })?;
            self.trained += collected.exact.len() as u64;
            self.tokens += collected.exact.iter().map(|(_, exact)| exact.tokens as u64).sum::<u64>();
            self.seconds += collected.wall_s;
        }
        Ok(collected)
    }

    /// The same users, whose sum nobody looks at; how long secure aggregation takes is measured apart from it.
    fn secure_round(&mut self, task: &RoundTask<'_>, secure: &SecureTask<'_>) -> Result<Secured, FleetError> {
        let Collected { exact, busy_s, wall_s, .. } = self.round(task)?;
        let survivors = u64::from(secure.secure.least_survivors);
        let sum = vec![0; secure.residues.len()].into();
        Ok(Secured { sum, survivors, exact, busy_s, wall_s })
    }
}
