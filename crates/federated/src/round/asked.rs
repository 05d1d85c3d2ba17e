//! Who was asked for this model already, where users are sampled (rule P24).
//!
//! A step that was passed over leaves the model as it is. A device gives one input for a model, ever: its guard refuses a second
//! one, whatever step it is said to be for. So whoever was asked for a step that was passed over is not there until something is
//! released, and a simulation has to leave them out, or it would learn from inputs that no device gives.
//!
//! **The accounting holds.** Who is not there follows from which steps failed and from who was drawn for them. That a step failed is
//! in the ledger for everybody to see, and no epsilon is for it; who was drawn is chance. Even to somebody who is told both, the next
//! step is the sampling that is accounted for, of the same users, some of whom have nothing to give: each of the others is drawn
//! with the probability that was said, and two neighbouring populations are neighbours still, or the same. Nobody is drawn instead,
//! so nobody is drawn more often.
//!
//! It is computed from the failures of the ledger and from the seed, so a restart changes nothing. With secret noise the seeds of
//! cohorts are erased with their steps (rule P21), and who was drawn cannot be known again: there it is not modelled. What is released
//! then is what the accountant counts, the sampling without anybody left out; it is the devices' guards that keep rule P24.

use std::collections::BTreeSet;

use ledger::LedgerStore;
use privacy::rng::NoiseSource;

use super::{Loop, RoundError, attempts::failures};
use crate::cohort::Sampler;

impl<S: LedgerStore> Loop<'_, S> {
    /// Draws who takes part in a sampled round: those who were not asked for this model yet.
    pub(super) fn sampled(&self, source: &NoiseSource) -> Result<Vec<u64>, RoundError> {
        let mut cohort = self.sampler(self.state.round)?.cohort(source, self.state.round);
        let asked = self.asked_for_this_model()?;
        cohort.retain(|user| !asked.contains(user));
        Ok(cohort)
    }

    /// Whoever was drawn for the steps that were passed over since the last release.
    fn asked_for_this_model(&self) -> Result<BTreeSet<u64>, RoundError> {
        let mut asked = BTreeSet::new();
        let Some(source) = self.randomness.of_past_cohorts() else { return Ok(asked) };
        let failed = |round: &u64| !failures(self.plan, &self.ledger, *round).is_empty();
        for round in (0..self.state.round).rev().take_while(failed) {
            asked.extend(self.sampler(round)?.cohort(&source, round));
        }
        Ok(asked)
    }

    /// Draws the users of a round.
    pub(super) fn sampler(&self, round: u64) -> Result<Sampler, RoundError> {
        let (phase, config) = (self.plan.phase(round), &self.plan.config);
        Ok(Sampler::new(phase.participation, config.participation.population, phase.cohort, config.rounds)?)
    }
}
