//! Replays a finished run on threads of this process: the recorded users in the recorded rounds and evaluations, and the noise of its seed.
//! The result must be the run's model, byte for byte, and the metrics that devices measured.
//!
//! Only simulations can be played again: noise that is secret is drawn once (rule P21). Attempts that failed are left out: nothing of them
//! is in the model. Where devices keep what they do not send, the result is the run's only if nobody else sent a report: one that was not
//! added up has changed what its device keeps, and who that was is not in the ledger.

use std::collections::BTreeMap;

use device::local::Algorithm;
use ledger::{Ledger, MemoryStore, SigningKey};
use privacy::{
    encoding::Rounding,
    rng::{NoiseSource, Purpose, Randomness, SimulationKey},
};
use thiserror::Error;

use crate::{
    engine::{self, Engine, EngineError, Means, Users},
    fleet::{Attempted, Exact, Fleet, FleetError, Observed, Outcome, RoundTask, Stop},
    metrics::ByDevices,
    plan::{EVALUATION, Plan},
    population::Population,
    randomness::RunRandomness,
    round::{Loop, Round, RoundError, State, evaluation::Evaluated},
    run::Opened,
};

/// Why a run cannot be played again.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// Its noise is secret.
    #[error("the noise of the run is secret and is drawn only once")]
    Secret,
    /// Users rounded at random.
    #[error("updates are rounded at random by the devices")]
    RandomRounding,
    /// Users drew which batch they train on.
    #[error("users train on a random part of their text")]
    RandomBatch,
    /// The record has too few rounds, or too many.
    #[error("the record has {got} rounds, but the plan has {expected}")]
    Rounds {
        /// Recorded.
        got: usize,
        /// Planned.
        expected: u64,
    },
    /// The engine cannot be created.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A round failed.
    #[error(transparent)]
    Round(Box<RoundError>),
    /// A round that was released in the run fails.
    #[error("round {round} fails")]
    Nothing {
        /// The round.
        round: u64,
    },
}

impl From<RoundError> for ReplayError {
    fn from(error: RoundError) -> Self {
        Self::Round(Box::new(error))
    }
}

/// Whether runs of a plan can be played again.
///
/// # Errors
/// When they cannot, with the reason.
pub fn check(plan: &Plan) -> Result<SimulationKey, ReplayError> {
    if plan.phases().iter().any(|phase| phase.vectors().rounding != Rounding::Nearest) {
        return Err(ReplayError::RandomRounding);
    }
    if plan.local.algorithm == Algorithm::FedSgdBatch {
        return Err(ReplayError::RandomBatch);
    }
    match plan.randomness() {
        Randomness::Secret => Err(ReplayError::Secret),
        Randomness::Simulated { seed } => Ok(SimulationKey::new(seed)),
        Randomness::SimulatedFloatingPoint { seed } => Ok(SimulationKey::with_floating_point_noise(seed)),
    }
}

/// The cohorts of a run, by user numbers in the population.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cohorts {
    /// The users of each round.
    pub rounds: Vec<Vec<u64>>,
    /// In the evaluation by devices after so many rounds, where there was one.
    pub evaluations: BTreeMap<u64, Vec<u64>>,
}

/// The result of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// The parameters that it ends with.
    pub model: Vec<f32>,
    /// What devices measured, after how many rounds.
    pub by_devices: BTreeMap<u64, ByDevices>,
}

/// Replays a run with these cohorts.
///
/// # Errors
/// When the run cannot be played again.
pub fn replay(
    plan: &Plan,
    opened: &Opened,
    people: &dyn Population,
    cohorts: &Cohorts,
    means: Means,
) -> Result<Played, ReplayError> {
    let key = check(plan)?;
    let mut simulated = plan.clone();
    simulated.upload = plan.upload.of_simulated_users();
    let plan = &simulated;
    if cohorts.rounds.len() as u64 != plan.rounds {
        return Err(ReplayError::Rounds { got: cohorts.rounds.len(), expected: plan.rounds });
    }
    let engine = engine::of(&plan.local, opened.learner(), means)?;
    let mut fleet = Recorded { engine, people, rounds: &cohorts.rounds, measure: &[] };
    // Nobody sees this ledger, so anybody may sign it.
    let ledger = Ledger::create(MemoryStore::new(), plan.ledger.clone(), SigningKey::from_seed(&[0; 32]), 0);
    let ledger = ledger.map_err(RoundError::from)?;
    let state = State::new(plan, opened.first_parameters().to_vec())?;
    let mut rounds = Loop::new(plan, opened.learner(), RunRandomness::simulated(key), ledger, state, means.threads);
    let mut by_devices = BTreeMap::new();
    while rounds.state().round < plan.rounds {
        let round = rounds.state().round;
        if !matches!(rounds.round(&mut fleet, &Stop::new(), 0)?, Round::Done(_)) {
            return Err(ReplayError::Nothing { round });
        }
        // One that was left out in the run is left out here.
        if let (Some(evaluations), Some(users)) = (&plan.device_evaluations, cohorts.evaluations.get(&(round + 1))) {
            fleet.measure = users;
            let Evaluated::Done(step) = rounds.evaluate(&mut fleet, &Stop::new(), 0)? else {
                return Err(ReplayError::Nothing { round });
            };
            let recorded = rounds.evaluation(step)?.ok_or(ReplayError::Nothing { round })?;
            let measured = ByDevices::of(opened.learner(), evaluations, &recorded);
            by_devices.insert(round + 1, measured.ok_or(ReplayError::Nothing { round })?);
        }
    }
    Ok(Played { model: rounds.state().model.clone(), by_devices })
}

/// The recorded users take part. It is not a fleet of the contract: it draws nobody, names nobody and tries nothing twice, since all of
/// that was decided in the run that it repeats; that it comes to the same model is tested where runs of real devices are (`whole_run` of the server).
struct Recorded<'a> {
    engine: Box<dyn Engine + 'a>,
    people: &'a dyn Population,
    rounds: &'a [Vec<u64>],
    /// Who measures, in the evaluation that is asked for next.
    measure: &'a [u64],
}

impl Fleet for Recorded<'_> {
    fn asks_devices(&self, _task: &RoundTask<'_>) -> bool {
        false
    }

    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError> {
        let numbers = match task.at.stream {
            EVALUATION => self.measure,
            _ => self.rounds.get(task.at.round as usize).map_or(&[][..], Vec::as_slice),
        };
        // Nothing is drawn from it: that was checked.
        let key = NoiseSource::from(SimulationKey::new(0)).stream(Purpose::Rounding, &[]);
        let summed = self.engine.sum(&task.task, &Users { population: self.people, numbers, key: &key })?;
        let exact = Exact { rests: summed.rests, ..Exact::default() };
        let observed = Observed { exact: Some(exact), ..Observed::default() };
        Ok(Attempted { outcome: Outcome::Sum(summed.sum), observed })
    }
}
