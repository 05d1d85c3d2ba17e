//! The privacy cost of a run at a round, and what that number means (rules P14 and P23).

use ledger::Budget;
use privacy::{Epsilon, PrivacyEvent, rng::Randomness};

use super::{
    Run, RunError,
    opened::{Opened, is_simulated},
};
use crate::{
    config::ConfigError,
    home::{Home, Records},
    plan::Plan,
    price::{Meaning, Price},
};

impl<H: Home + Records> Run<'_, H> {
    /// Whether any of its noise can be repeated: its own, or that of what it imports.
    pub(super) fn is_simulation(&self) -> bool {
        Prices { plan: self.plan, opened: self.opened }.is_simulation()
    }

    /// The epsilon of the rounds so far, with its meaning.
    ///
    /// # Errors
    /// When the plan's accountant cannot judge them.
    pub fn price(&self) -> Result<Price, RunError> {
        Prices { plan: self.plan, opened: self.opened }.price(self.state().round)
    }
}

/// What a run costs follows from its plan and from what it starts from: any thread may ask.
#[derive(Clone, Copy)]
pub(super) struct Prices<'a> {
    pub(super) plan: &'a Plan,
    pub(super) opened: &'a Opened,
}

impl Prices<'_> {
    fn is_simulation(self) -> bool {
        self.plan.randomness() != Randomness::Secret || self.opened.imports().any(is_simulated)
    }

    /// What the rounds so far cost, and what they would cost the cohort that this one stands for.
    pub(super) fn at(self, round: u64) -> Result<(Price, Option<Epsilon>), RunError> {
        let projected = if round > 0 { self.plan.projected_epsilon(round)? } else { None };
        Ok((self.price(round)?, projected))
    }

    /// What the releases before a round cost, the model that the run started from and earlier tasks included; with a filter its budget, which is
    /// what holds at any round. It is asked of the plan, so that a run that was resumed says the same; at the end the
    /// statement asks the ledger.
    fn price(self, round: u64) -> Result<Price, RunError> {
        let ledger = &self.plan.ledger;
        let (event, meaning) = match ledger.budget {
            Some(Budget::ZcdpFilter { max_rho, .. }) => {
                (PrivacyEvent::Zcdp { adjacency: ledger.adjacency, rho: max_rho }, Meaning::Guaranteed)
            }
            _ => {
                let before = self.opened.imports().map(|import| import.event.clone());
                let events = before.chain([self.plan.event(round)?]).collect();
                (PrivacyEvent::Compose { events }, Meaning::SoFar)
            }
        };
        let judged = ledger
            .accountant
            .judge_group(&event, ledger.delta, ledger.group)
            .map_err(|e| ConfigError::new("privacy.accountant", e))?;
        let meaning = if self.is_simulation() { Meaning::IfSecret } else { meaning };
        Ok(Price { meaning, epsilon: judged.epsilon, rho: judged.rho })
    }
}
