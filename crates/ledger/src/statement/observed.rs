//! The statement's section on observed participation, next to the guarantee (rule P18).
//!
//! The figures are exact and have no noise. They may stand in a statement because adjacency `zero-out` does not protect who came (rule
//! P26), and only with it: under any other they are left out. While a run is in progress nothing is stated: the observation is not complete.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Ledger, LedgerError, LedgerStore, NoObservedEpsilon, Observed};
use privacy::{event::Adjacency, units::Epsilon};

/// How often and how close together users took part, and what that would cost. Not the guarantee.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ObservedParticipation {
    /// Of each stream with limits.
    pub streams: BTreeMap<String, Observed>,
    /// Epsilon at the plan's delta, counted with what was observed, failed attempts too, instead of the limits that were enforced.
    pub epsilon: Option<Epsilon>,
    /// Why no epsilon was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_epsilon: Option<NoObservedEpsilon>,
    /// What it is conditional on, and what it is not.
    pub caveats: Vec<String>,
}

impl ObservedParticipation {
    pub(super) fn of<S: LedgerStore>(ledger: &Ledger<S>) -> Result<Option<Self>, LedgerError> {
        if ledger.closing().is_none() {
            return Ok(None);
        }
        let Some(table) = ledger.side_table()? else { return Ok(None) };
        if ledger.plan().adjacency != Adjacency::ZeroOut {
            return Ok(None);
        }
        let Some(judged) = ledger.observed_judgement(&table)? else { return Ok(None) };
        let streams = table.into_observed();
        if streams.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            streams,
            epsilon: judged.ok().map(|judgement| judgement.epsilon),
            no_epsilon: judged.err(),
            caveats: caveats(ledger.plan().unit.name()),
        }))
    }
}

fn caveats(unit: &str) -> Vec<String> {
    vec![
        "This is not the guarantee. It holds only if who took part, and when, did not depend on what they typed. It was not enforced, and budgets do not use it.".into(),
        format!(
            "These figures are exact counts, without noise, of the participants' pseudonyms. Adjacency zero-out does not protect who took part, so they are outside the guarantee; they reveal the {unit} that took part most often and the one that came back soonest."
        ),
    ]
}
