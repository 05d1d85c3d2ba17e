//! The fleet of simulations: draws the cohort, lets some devices drop out, and trains the others on an engine.
//!
//! | module        | what it is                                                                        |
//! |---------------|-----------------------------------------------------------------------------------|
//! | `roster`      | who is asked                                                                      |
//! | `chance`      | what that and everything else is drawn from                                       |
//! | `groups`      | a cohort in groups, each with a secure sum of its own                             |

mod chance;
mod groups;
mod roster;

use std::time::Instant;

use device::guard::ModelDigest;
use ledger::FailureReason;
use privacy::{
    encoding::EncodingError,
    rng::{Purpose, Randomness, SimulationKey},
    stages::Residues,
};
use sha2::{Digest, Sha256};

use self::{
    chance::{Chance, OfAttempt},
    groups::Groups,
    roster::Roster,
};
use super::{At, Attempted, Exact, Fleet, FleetError, Observed, Outcome, RoundTask};
use crate::{
    engine::{
        Engine, EngineError, Users,
        secure::{SecureTask, Secured},
        users_key,
        vanishing::Vanishing,
    },
    plan::{EVALUATION, Plan, Secure},
    population::Population,
    randomness::position,
    secrets::Secrets,
};

/// A simulated fleet.
pub(super) struct Simulated<'a> {
    plan: &'a Plan,
    population: &'a dyn Population,
    engine: Box<dyn Engine + 'a>,
    chance: Chance,
    /// Who is asked for rounds, and for evaluations.
    rosters: [Roster<'a>; 2],
    /// Who takes part in the attempt that was prepared.
    prepared: Option<Prepared>,
    /// The digest of the settings, to which secure aggregation is bound.
    digest: [u8; 32],
}

impl<'a> Simulated<'a> {
    fn new(plan: &'a Plan, population: &'a dyn Population, engine: Box<dyn Engine + 'a>, chance: Chance) -> Self {
        let digest = Sha256::digest(&plan.settings).into();
        let rosters = [Roster::of_rounds(plan), Roster::of_evaluations(plan)];
        Self { plan, population, engine, chance, rosters, prepared: None, digest }
    }
}

/// The simulated fleet of a run.
pub(super) fn of<'a>(
    plan: &'a Plan,
    population: &'a dyn Population,
    engine: Box<dyn Engine + 'a>,
    secrets: Secrets,
) -> Simulated<'a> {
    let chance = match plan.randomness() {
        Randomness::Simulated { seed } => Chance::Simulated(SimulationKey::new(seed)),
        Randomness::SimulatedFloatingPoint { seed } => {
            Chance::Simulated(SimulationKey::with_floating_point_noise(seed))
        }
        Randomness::Secret => Chance::Secret(secrets),
    };
    Simulated::new(plan, population, engine, chance)
}

/// Who takes part in an attempt, and what it draws from.
struct Prepared {
    drawn: OfAttempt,
    cohort: Vec<u64>,
    sample_s: f64,
}

impl Fleet for Simulated<'_> {
    fn prepare(&mut self, task: &RoundTask<'_>) -> Result<(), FleetError> {
        self.prepared = None;
        if task.at.again && task.phase.secure.is_some() {
            return Ok(());
        }
        let began = Instant::now();
        let round = task.at.round;
        let drawn = match task.at.stream {
            EVALUATION => self.chance.of_evaluation()?,
            _ => self.chance.of_attempt(round, &task.phase.participation)?,
        };
        let roster = &mut self.rosters[which(task.at)];
        let cohort = roster.cohort(&self.chance, &drawn.cohort, task.phase, round, task.failures)?;
        self.prepared = Some(Prepared { drawn, cohort, sample_s: began.elapsed().as_secs_f64() });
        Ok(())
    }

    fn attempt(&mut self, task: &RoundTask<'_>) -> Result<Attempted, FleetError> {
        let Some(Prepared { drawn, cohort, sample_s }) = self.prepared.take() else {
            // Users who were asked may have sent an input, and nothing is left of the keys that would open the sum.
            let outcome = Outcome::Failed(FailureReason::Interrupted);
            return Ok(Attempted { outcome, observed: Observed::default() });
        };
        let began = Instant::now();
        let mut gathered = match (&task.phase.secure, &task.coding.residues) {
            (Some(secure), Some(residues)) => self.securely(task, secure, residues, &cohort, &drawn)?,
            _ => self.plainly(task, &cohort, &drawn)?,
        };
        if let Some(exact) = &mut gathered.observed.exact {
            (exact.sample_s, exact.train_s) = (sample_s, began.elapsed().as_secs_f64());
        }
        Ok(gathered)
    }

    fn works_elsewhere(&self) -> bool {
        self.engine.works_elsewhere()
    }

    fn settled(&mut self, at: At<'_>, failed: Option<FailureReason>) -> Result<(), FleetError> {
        self.rosters[which(at)].settled(failed.is_some());
        Ok(self.chance.settled()?)
    }
}

/// Which of the rosters is asked.
fn which(at: At<'_>) -> usize {
    usize::from(at.stream == EVALUATION)
}

/// Where an attempt stands among all that is drawn: rounds and evaluations share nothing.
fn place(at: At<'_>) -> Vec<u64> {
    let of_stream = (at.stream == EVALUATION).then_some(u64::MAX);
    of_stream.into_iter().chain(position(at.round, at.attempt)).collect()
}

impl Simulated<'_> {
    /// The sum over those who are there and do not vanish.
    fn plainly(&mut self, task: &RoundTask<'_>, cohort: &[u64], drawn: &OfAttempt) -> Result<Attempted, FleetError> {
        let position = place(task.at);
        let key = users_key(&drawn.users, &position);
        let numbers = self.there(cohort, drawn, &position);
        self.foresee(task)?;
        let users = Users { population: self.population, numbers: &numbers, key: &key };
        let summed = self.engine.sum(&task.task, &users)?;
        let exact = Exact { users: summed.exact, rests: summed.rests, busy_s: summed.busy_s, ..Exact::default() };
        let observed = Observed { exact: Some(exact), ..Observed::default() };
        Ok(Attempted { outcome: Outcome::Sum(summed.sum), observed })
    }

    /// Those of a cohort who are there and do not vanish. Who is declared and not there gives nothing, not even a clip bit (rule P9).
    fn there(&self, cohort: &[u64], drawn: &OfAttempt, position: &[u64]) -> Vec<u64> {
        let vanishing = self.vanishing(drawn, position);
        let there = |user: &u64| *user < self.population.users() && vanishing.of(*user).sends();
        cohort.iter().copied().filter(there).collect()
    }

    /// Tells an engine that wants to know whom it will train in the next round. It is a hint: nothing follows from it but what is
    /// read early.
    fn foresee(&mut self, task: &RoundTask<'_>) -> Result<(), FleetError> {
        let next = task.at.round + 1;
        let is_round = task.at.stream != EVALUATION && next < self.plan.rounds;
        if !is_round || !task.failures.is_empty() || !self.engine.foresees() {
            return Ok(());
        }
        let phase = self.plan.phase(next);
        let Some(drawn) = self.chance.foreseen(next, &phase.participation)? else { return Ok(()) };
        let cohort = self.rosters[0].cohort(&self.chance, &drawn.cohort, phase, next, task.failures)?;
        self.engine.foresee(&self.there(&cohort, &drawn, &position(next, 0)));
        Ok(())
    }

    /// The sum by secure aggregation, a group after the other.
    fn securely(
        &mut self,
        task: &RoundTask<'_>,
        secure: &Secure,
        residues: &Residues,
        cohort: &[u64],
        drawn: &OfAttempt,
    ) -> Result<Attempted, FleetError> {
        let position = place(task.at);
        let (key, vanishing) = (users_key(&drawn.users, &position), self.vanishing(drawn, &position));
        let noise = drawn.users.stream(Purpose::UserNoise, &position);
        let model = *ModelDigest::of(task.task.model).as_bytes();
        let terms = secure.terms(residues, task.at.round, self.digest, model);
        let spoilers = self.plan.devices.spoilers;
        let secure_task = SecureTask { secure, residues, terms, vanishing: &vanishing, noise: &noise, spoilers };
        let mut groups = Groups::default();
        for group in groups::split(&drawn.cohort, &position, cohort, secure.groups) {
            let numbers: Vec<u64> = group.into_iter().filter(|user| *user < self.population.users()).collect();
            let users = Users { population: self.population, numbers: &numbers, key: &key };
            match self.one_group(task, &users, &secure_task)? {
                Ok((sum, exact)) => groups.gave(sum, exact)?,
                Err(reason) => groups.failed(reason),
            }
        }
        Ok(groups.end())
    }

    /// One secure aggregation; or why there is no sum.
    fn one_group(
        &mut self,
        task: &RoundTask<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Result<(Outcome, Exact), FailureReason>, FleetError> {
        let Secured { sum, survivors, exact, busy_s } = match self.engine.sum_securely(&task.task, users, secure) {
            Ok(secured) => secured,
            Err(EngineError::Secure(error)) => match error.failure() {
                Some(reason) => return Ok(Err(reason)),
                None => return Err(EngineError::Secure(error).into()),
            },
            Err(other) => return Err(other.into()),
        };
        let sum = match secure.secure.noise {
            None => match secure.residues.sum(&sum, survivors) {
                Ok(sum) => Outcome::Sum(sum),
                // Honest users cannot add up to this: somebody's masked vector was no encoding of anything.
                Err(EncodingError::Bound { .. }) => return Ok(Err(FailureReason::NotWhole)),
                Err(other) => return Err(other.into()),
            },
            Some(_) => Outcome::Noised(secure.residues.noised_sum(&sum, survivors)?),
        };
        Ok(Ok((sum, Exact { users: exact, busy_s, ..Exact::default() })))
    }

    fn vanishing(&self, drawn: &OfAttempt, position: &[u64]) -> Vanishing {
        Vanishing::new(&drawn.vanishing, position, self.plan.devices.vanish)
    }
}
