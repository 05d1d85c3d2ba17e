//! Verification: checks everything, recomputes epsilon, and says what cannot be checked (rule P17).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    approval::Approval,
    book::Ledger,
    digest::Digest,
    entry::{Closing, DataChanged},
    error::LedgerError,
    guarantee::Basis,
    head::Head,
    keys::VerifyingKey,
    observed::{NoObservedEpsilon, SideTable},
    participants::Observed,
    store::LedgerStore,
};
use privacy::{
    accountant::Judgement,
    rng::Randomness,
    units::{Delta, Epsilon},
};

/// The result of a successful verification. Anything wrong is an error instead.
#[derive(Debug, Clone, Serialize)]
pub struct Verification {
    /// How many entries there are, each chained to the one before it and signed.
    pub entries: u64,
    /// The head of all of them.
    pub head: Head,
    /// The key that signed every entry.
    pub key: VerifyingKey,
    /// Whether the caller pinned that key.
    pub key_pinned: bool,
    /// The privacy officer's approval of the plan, whose signature is valid; none where nobody approved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The heads that were shown; all lie on the chain.
    pub heads: HeadCheck,
    /// The stored vectors that have the digest of their entry.
    pub vectors_matching: u64,
    /// The releases whose vector is not stored here.
    pub vectors_absent: u64,
    /// The records of who took part that have the digest of their entry; none where the side file is not here.
    pub participations_matching: Option<u64>,
    /// The records that no entry names: attempts that were interrupted before they were recorded.
    pub participations_unnamed: Option<u64>,
    /// How often and how close together users took part, where limits on that are the guarantee (rule P18).
    pub observed: BTreeMap<String, Observed>,
    /// What everything costs if these are counted instead of the limits that were enforced. It is not the guarantee: it holds
    /// where who took part had nothing to do with what they typed (rule P18).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_judgement: Option<Judgement>,
    /// Why there is none, where there are limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_observed_judgement: Option<NoObservedEpsilon>,
    /// The delta of the plan.
    pub delta: Delta,
    /// What everything costs, computed again: this run, its imports and the other runs of its sweep.
    /// None where any noise was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
    /// What the same would cost with secret noise, where any noise was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judgement_if_secret: Option<Judgement>,
    /// What that is: what was spent, the whole plan, or the budget of a filter.
    pub basis: Basis,
    /// How the ledger was closed: why the run ended, and which keys are gone. None while it is open.
    pub closing: Option<Closing>,
    /// Why the users' data changed during the run, each time.
    pub data_changes: Vec<DataChanged>,
    /// Where the noise came from.
    pub randomness: Randomness,
    /// Whether the cost is a guarantee: not if any noise was simulated or anything was released without privacy.
    pub holds: bool,
    /// The plan's limit.
    pub max_epsilon: Option<Epsilon>,
    /// What was noticed and is no damage.
    pub warnings: Vec<String>,
    /// What all of this does not show.
    pub not_shown: Vec<String>,
}

/// The heads that were shown.
#[derive(Debug, Clone, Serialize)]
pub struct HeadCheck {
    /// Heads given by the caller.
    pub given: Vec<Head>,
    /// How many entries were added after the longest of them; none if none was given.
    pub entries_since: Option<u64>,
}

/// What no check can show.
const KEY_HOLDER: &str = "the holder of the signing key can write any ledger that passes verification";
const APPROVED_KEY_HOLDER: &str =
    "the holder of the signing key can write any ledger of the approved plan that passes verification";
const NO_HEAD: &str = "no head was given, so missing entries at the end cannot be detected; give a head from a statement, checkpoint or model";
const NO_KEY: &str =
    "the key is the one named in the ledger itself; compare it with the key you know, or pin it with --key";

impl<S: LedgerStore> Ledger<S> {
    /// Checks heads, stored vectors and participations, and computes the cost again. Chain, signatures and the rules of
    /// what may follow were checked when the ledger was opened.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify(&self, heads: &[Head], pinned: Option<&VerifyingKey>) -> Result<Verification, LedgerError> {
        heads.iter().try_for_each(|head| self.chain.check_head(head))?;
        if let Some(expected) = pinned.filter(|pinned| **pinned != self.key()) {
            return Err(LedgerError::WrongKey { expected: self.key(), got: *expected });
        }
        let (vectors_matching, vectors_absent) = self.verify_vectors()?;
        let participations = self.side_table()?;
        let observed = match &participations {
            Some(table) => self.observed_judgement(table)?,
            None => None,
        };
        let judgement = self.guaranteed()?;
        let secret = self.randomness() == Randomness::Secret;
        let max_epsilon = self.budget().map(crate::Budget::max_epsilon);
        crate::budget::check(self.plan(), &self.account.budgeted_event())?;
        let head = self.head();
        let known = heads.iter().map(|head| head.length).max();
        Ok(Verification {
            entries: head.length,
            head,
            key: self.key(),
            key_pinned: pinned.is_some(),
            approval: self.opening().approval.clone(),
            heads: HeadCheck { given: heads.to_vec(), entries_since: known.map(|known| head.length - known) },
            vectors_matching,
            vectors_absent,
            participations_matching: participations.as_ref().map(|p| p.matching),
            participations_unnamed: participations.as_ref().map(|p| p.unnamed),
            observed: participations.map(SideTable::into_observed).unwrap_or_default(),
            observed_judgement: observed.and_then(Result::ok),
            no_observed_judgement: observed.and_then(Result::err),
            delta: self.plan().delta,
            judgement: secret.then_some(judgement),
            judgement_if_secret: (!secret).then_some(judgement),
            basis: self.basis(),
            closing: self.closing().copied(),
            data_changes: self.data_changes().to_vec(),
            randomness: self.randomness(),
            holds: secret && judgement.epsilon.is_finite(),
            max_epsilon,
            warnings: self.warnings().to_vec(),
            not_shown: not_shown(heads, pinned, self.opening().approval.is_some()),
        })
    }

    fn verify_vectors(&self) -> Result<(u64, u64), LedgerError> {
        let (mut matching, mut absent) = (0, 0);
        for step in self.account.steps() {
            match self.store.released(step.entry)? {
                None => absent += 1,
                Some(bytes) => {
                    let found = Digest::of_released(&bytes);
                    if found != step.digest {
                        return Err(LedgerError::VectorDamaged { entry: step.entry, expected: step.digest, found });
                    }
                    matching += 1;
                }
            }
        }
        Ok((matching, absent))
    }
}

fn not_shown(heads: &[Head], pinned: Option<&VerifyingKey>, approved: bool) -> Vec<String> {
    let mut words = vec![if approved { APPROVED_KEY_HOLDER } else { KEY_HOLDER }.to_owned()];
    if heads.is_empty() {
        words.push(NO_HEAD.into());
    }
    if pinned.is_none() {
        words.push(NO_KEY.into());
    }
    words
}
