//! A client that sends a vector which encodes nothing: the sum is out of bounds, no digit of it is said, and the attempt failed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::workshop::{ARRIVAL, ledger, means, plan, step, with};
use device::round::Task;
use keyhush_federated::{
    engine::{
        Engine, EngineError, Summed, Users,
        secure::{SecureTask, Secured},
    },
    home::RunFolder,
    run::Run,
};
use ledger::FailureReason;

const SECURE: [&str; 3] = ["aggregation=secagg", "participation.cohort=40", "evaluation.every=2"];

/// Gives sums whose first residue a closure says, as one client's vector makes it.
struct Summing<F>(F);

impl<F: FnMut(&SecureTask<'_>) -> u32> Engine for Summing<F> {
    fn sum(&mut self, _: &Task<'_>, _: &Users<'_>) -> Result<Summed, EngineError> {
        Err(EngineError::NotSecure)
    }

    fn sum_securely(&mut self, _: &Task<'_>, _: &Users<'_>, secure: &SecureTask<'_>) -> Result<Secured, EngineError> {
        let mut sum = vec![0; secure.residues.len()];
        sum[0] = (self.0)(secure);
        let survivors = u64::from(secure.secure.least_survivors);
        Ok(Secured { sum: sum.into(), survivors, exact: Vec::new(), busy_s: 0.0 })
    }
}

/// The largest residue: more than honest users add up to.
fn beyond(secure: &SecureTask<'_>) -> u32 {
    u32::MAX >> (32 - secure.residues.bits())
}

/// Five attempts of one step end the run, as with any other spoiler; no number of the sum is in what is said, also where the
/// noise is secret.
#[test]
fn p12_a_sum_out_of_bounds_is_a_failed_attempt_and_no_digit_of_it_is_said() {
    for noise in ["noise_seed=3", "noise_seed="] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let (plan, opened) = plan(&with(&[&ARRIVAL, &SECURE, &[noise]]));
        let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
        let (mut engine, mut said) = (Summing(beyond), String::new());
        let end = loop {
            match step(&mut run, &plan, &opened, &path, &mut engine) {
                Ok(step) => assert!(step.over.is_none(), "nothing is learned from such sums"),
                Err(error) => break error,
            }
        };
        said += &end.to_string();
        assert!(said.contains("failed"), "{said}");
        let numbers: Vec<&str> = said.split(|c: char| !c.is_ascii_digit()).filter(|n| n.len() > 4).collect();
        assert!(numbers.is_empty(), "{numbers:?} in {said}");
        drop(run);
        let reasons: Vec<FailureReason> = ledger(&path).failures("model", 0).iter().map(|f| f.reason).collect();
        assert_eq!(reasons, [FailureReason::NotWhole; 5]);
    }
}

#[test]
fn a_wrong_vector_spoils_its_group_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let (plan, opened) = plan(&with(&[&ARRIVAL, &SECURE, &["secagg.groups=4", "secagg.corrupted=0.05"]]));
    let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
    let mut calls = 0;
    let mut engine = Summing(|secure: &SecureTask<'_>| {
        calls += 1;
        if calls % 4 == 2 { beyond(secure) } else { 0 }
    });
    assert!(step(&mut run, &plan, &opened, &path, &mut engine).unwrap().over.is_none());
    drop(run);
    assert!(ledger(&path).failures("model", 0).is_empty(), "three of four groups gave their sums");
}
