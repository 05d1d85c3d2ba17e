//! A privacy officer's approval of a plan: a signature that the first entry of a ledger carries.
//!
//! The signing key of a ledger is the server's, so its entries show nothing against the server. The officer's key is kept elsewhere. What it signs
//! is the plan as the first entry has it, down to the program that writes it, with the name of the task and the server's realm: an approval
//! is valid for one plan of one task on one server, which has one ledger under that name. A plan says in words what counts as public; beside it
//! the officer signs digests of what the task reads of that.

use serde::{Deserialize, Serialize};

use crate::{
    digest::{Digest, hex, unhex},
    error::LedgerError,
    keys::{SigningKey, VerifyingKey},
    plan::Plan,
};

const LABEL: &str = "keyhush officer approval v1";

/// Something that a task reads and the officer vouches for: the model that it starts from, its vocabulary, public text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vouched {
    /// Its role in the task, in words: "the vocabulary", for example.
    pub what: String,
    /// SHA-256 of what was read.
    pub digest: Digest,
}

/// The approval of a plan by a privacy officer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// The name of the task.
    pub task: String,
    /// The server that the task is for.
    pub realm: Digest,
    /// What the task reads. Approvals of earlier versions have none of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vouched: Vec<Vouched>,
    /// The officer's key.
    pub officer: VerifyingKey,
    /// The signature, in hexadecimal digits.
    pub signature: String,
}

/// What is signed. A field that is added to a plan must not be written where it has its default, or older approvals become invalid.
#[derive(Serialize)]
struct Signed<'a> {
    task: &'a str,
    realm: Digest,
    plan: &'a Plan,
    #[serde(skip_serializing_if = "<[Vouched]>::is_empty")]
    vouched: &'a [Vouched],
}

/// The digest that is signed.
fn digest(plan: &Plan, vouched: &[Vouched], task: &str, realm: Digest) -> Digest {
    let signed = Signed { task, realm, plan, vouched };
    let bytes = serde_json::to_vec(&signed).expect("plans have string keys and finite numbers");
    Digest::of(LABEL, &bytes)
}

impl Approval {
    /// Approves the plan of a task on the server of a realm, and what the task reads.
    ///
    /// # Errors
    /// When the plan contradicts itself.
    pub fn sign(
        plan: &Plan,
        vouched: Vec<Vouched>,
        task: &str,
        realm: &[u8; 32],
        officer: &SigningKey,
    ) -> Result<Self, LedgerError> {
        plan.check()?;
        let realm = Digest::from_bytes(*realm);
        let signature = hex(&officer.sign(&digest(plan, &vouched, task, realm)));
        Ok(Self { task: task.to_owned(), realm, vouched, officer: officer.verifying_key(), signature })
    }

    /// Refuses a task that reads something else than was approved.
    ///
    /// # Errors
    /// The first thing that differs.
    pub fn check_reads(&self, reads: &[Vouched]) -> Result<(), LedgerError> {
        for read in reads {
            match self.vouched.iter().find(|vouched| vouched.what == read.what) {
                Some(vouched) if vouched.digest == read.digest => {}
                Some(vouched) => {
                    return Err(refused(format!(
                        "{} is another than was approved: its SHA-256 is {}, and that of the approval {}",
                        read.what, read.digest, vouched.digest
                    )));
                }
                None => {
                    return Err(refused(format!(
                        "it does not cover {} (SHA-256 {}), which the task reads",
                        read.what, read.digest
                    )));
                }
            }
        }
        match self.vouched.iter().find(|vouched| reads.iter().all(|read| read.what != vouched.what)) {
            None => Ok(()),
            Some(vouched) => Err(refused(format!("it covers {}, which the task does not read", vouched.what))),
        }
    }

    /// Refuses an approval that the officer did not give to this plan.
    ///
    /// # Errors
    /// When the signature is not valid.
    pub fn check(&self, plan: &Plan) -> Result<(), LedgerError> {
        let signature = unhex(&self.signature).map_err(|e| refused(format!("its signature is damaged: {e}")))?;
        if self.officer.verifies(&digest(plan, &self.vouched, &self.task, self.realm), &signature) {
            return Ok(());
        }
        let Self { task, officer, .. } = self;
        Err(refused(format!(
            "{officer} did not sign this plan for the task {task:?}: the plan or the approval was changed, or the plan was approved with another version of the program"
        )))
    }

    /// Refuses an approval of another task, or for another server, too.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_is_of(&self, plan: &Plan, task: &str, realm: &[u8; 32]) -> Result<(), LedgerError> {
        if self.task != task {
            return Err(refused(format!("it is for the task {:?}, not {task:?}", self.task)));
        }
        if self.realm.as_bytes() != realm {
            return Err(refused(format!("it is for the server {}, and this one is {}", self.realm, hex(realm))));
        }
        self.check(plan)
    }
}

fn refused(problem: String) -> LedgerError {
    LedgerError::Approval { problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Ledger, MemoryStore, contract::plan, entry::Entry, store::LedgerStore};

    const REALM: [u8; 32] = [5; 32];

    fn officer() -> SigningKey {
        SigningKey::from_seed(&[9; 32])
    }

    /// The bytes that are signed never change: approvals are kept for years.
    #[test]
    fn golden_an_approval_of_a_known_plan() {
        let approval = Approval::sign(&plan(), Vec::new(), "words", &REALM, &officer()).unwrap();
        assert_eq!(
            digest(&plan(), &[], "words", Digest::from_bytes(REALM)).to_string(),
            "37ddc3e5ec4e71fe3152ff48185ee7191928d6697e62c645a76c7fbbc174c431"
        );
        assert_eq!(
            approval.signature,
            "c5f097b49bf35555deef74ddc0bf45b10d211e495bf3f31e2d1aa4959b89f61397a89c0d393e4bcf9f9f88685f06c634966b685502edbf99d9a7c50494048a00"
        );
    }

    #[test]
    fn p17_an_approval_is_of_one_plan_one_task_one_server_and_one_key() {
        let approval = Approval::sign(&plan(), Vec::new(), "words", &REALM, &officer()).unwrap();
        approval.check_is_of(&plan(), "words", &REALM).unwrap();
        let other = |change: fn(&mut Plan)| {
            let mut plan = plan();
            change(&mut plan);
            plan
        };
        for changed in [
            other(|plan| plan.software.push('1')),
            other(|plan| plan.population += 1),
            other(|plan| plan.phases[0].rounds += 1),
            other(|plan| plan.participation_kept_by.push('.')),
        ] {
            assert!(matches!(approval.check_is_of(&changed, "words", &REALM), Err(LedgerError::Approval { .. })));
        }
        assert!(approval.check_is_of(&plan(), "other", &REALM).is_err());
        assert!(approval.check_is_of(&plan(), "words", &[6; 32]).is_err());
        let another = SigningKey::from_seed(&[8; 32]).verifying_key();
        for forged in [
            Approval { officer: another, ..approval.clone() },
            Approval { task: "other".into(), ..approval.clone() },
            Approval { realm: Digest::ZERO, ..approval.clone() },
            Approval { signature: "00".repeat(64), ..approval.clone() },
            Approval { signature: "0".into(), ..approval.clone() },
        ] {
            assert!(forged.check(&plan()).is_err(), "{forged:?}");
        }
        assert!(forged_realm_is_refused(&approval));
    }

    fn forged_realm_is_refused(approval: &Approval) -> bool {
        Approval { realm: Digest::from_bytes([6; 32]), ..approval.clone() }
            .check_is_of(&plan(), "words", &[6; 32])
            .is_err()
    }

    /// What counts as public is named by its digest: another model or vocabulary under the same name is not what was approved.
    #[test]
    fn p17_an_approval_is_of_what_the_task_reads() {
        let of = |what: &str, bytes: &[u8]| Vouched { what: what.into(), digest: Digest::of_released(bytes) };
        let reads = vec![of("the model to start from", b"a"), of("the vocabulary", b"b")];
        let approval = Approval::sign(&plan(), reads.clone(), "words", &REALM, &officer()).unwrap();
        approval.check_is_of(&plan(), "words", &REALM).unwrap();
        approval.check_reads(&reads).unwrap();
        let others = [
            vec![of("the model to start from", b"c"), reads[1].clone()],
            vec![reads[1].clone()],
            [reads.clone(), vec![of("public text", b"d")]].concat(),
        ];
        for other in others {
            assert!(matches!(approval.check_reads(&other), Err(LedgerError::Approval { .. })), "{other:?}");
            let forged = Approval { vouched: other, ..approval.clone() };
            assert!(forged.check(&plan()).is_err(), "{forged:?}");
        }
        let text = serde_json::to_string(&approval).unwrap();
        assert_eq!(serde_json::from_str::<Approval>(&text).unwrap(), approval);
        let without = Approval::sign(&plan(), Vec::new(), "words", &REALM, &officer()).unwrap();
        assert!(!serde_json::to_string(&without).unwrap().contains("vouched"), "as it always was");
        assert!(without.check_reads(&reads).is_err());
    }

    /// The server, which has the ledger's key, cannot write a ledger of another plan under an officer's name.
    #[test]
    fn p17_a_ledger_opens_only_with_the_plan_that_was_approved() {
        let key = SigningKey::from_seed(&[1; 32]);
        let approval = Approval::sign(&plan(), Vec::new(), "words", &REALM, &officer()).unwrap();
        let ledger =
            Ledger::create_approved(MemoryStore::new(), plan(), Some(approval.clone()), key.clone(), 1).unwrap();
        assert_eq!(ledger.opening().approval.as_ref(), Some(&approval));
        let verified = ledger.verify(&[], None).unwrap();
        assert_eq!(verified.approval, Some(approval.clone()));
        assert!(ledger.check_approved_by(&officer().verifying_key()).is_ok());
        assert!(ledger.check_approved_by(&key.verifying_key()).is_err());
        let longer = Plan { population: 2000, ..plan() };
        let refused = Ledger::create_approved(MemoryStore::new(), longer, Some(approval), key.clone(), 1);
        assert!(matches!(refused, Err(LedgerError::Approval { .. })));
        let unsigned = Ledger::create(MemoryStore::new(), plan(), key, 1).unwrap();
        assert!(matches!(unsigned.check_approved_by(&officer().verifying_key()), Err(LedgerError::Approval { .. })));
        let line = unsigned.store.read(0).unwrap().next().unwrap().unwrap().line();
        assert!(!line.contains("approval"), "ledgers without one are as they always were: {line}");
    }

    #[test]
    fn p17_a_first_entry_with_a_changed_plan_is_refused_by_every_reader() {
        let key = SigningKey::from_seed(&[1; 32]);
        let approval = Approval::sign(&plan(), Vec::new(), "words", &REALM, &officer()).unwrap();
        let ledger = Ledger::create_approved(MemoryStore::new(), plan(), Some(approval), key.clone(), 1).unwrap();
        let entry = ledger.store.read(0).unwrap().next().unwrap().unwrap();
        let Body::Opening(opening) = entry.body() else { panic!("the first entry") };
        let mut forged = opening.clone();
        forged.plan.population = 2000;
        // Signed again by who has the ledger's key.
        let content = crate::entry::Content { index: 0, previous: Digest::ZERO, time: 1, body: Body::Opening(forged) };
        let entry = Entry::sign(content, &key);
        let mut store = MemoryStore::new();
        store.append(&crate::Head::EMPTY, &entry, crate::Attached::default()).unwrap();
        assert!(matches!(Ledger::open(store, None, &[]), Err(LedgerError::Approval { .. })));
    }
}
