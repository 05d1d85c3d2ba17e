//! Devices that put something into the padding of their vectors, so that no masks cancel: a run gets past them, without anybody
//! being able to tell who they are. And groups, in which they spoil less.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::workshop::{
    ARRIVAL, config, fleet, ledger, means, nothing_of, plan, rest, securely, some, step, threads, whole, with,
};
use device::round::Task;
use keyhush_federated::{
    config::ConfigError,
    engine::{
        Around, Engine, EngineError, Summed, Users,
        secure::{SecureError, SecureTask, Secured},
    },
    fleet::Stop,
    home::{RunFolder, STATEMENT_FILE},
    plan::Plan,
    run::{Opened, Run, Step},
};
use ledger::FailureReason;
use privacy::PrivacyEvent;
use secagg::server::RoundFailure;

const SECURE: [&str; 3] = ["aggregation=secagg", "participation.cohort=40", "secagg.corrupted=0.1"];

/// Real devices, and a book of who was asked, with the step.
struct Asked<'a> {
    inner: Box<dyn Engine + 'a>,
    asked: Vec<(u64, Vec<u64>)>,
}

impl<'a> Around for Asked<'a> {
    type Inner = dyn Engine + 'a;

    fn inner(&self) -> &(dyn Engine + 'a) {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut (dyn Engine + 'a) {
        &mut *self.inner
    }

    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        self.inner.sum(task, users)
    }

    fn sum_securely(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        self.asked.push((secure.terms.round, users.numbers.to_vec()));
        self.inner.sum_securely(task, users, secure)
    }
}

/// A whole run of real devices; who was asked, and its steps.
fn played(folder: &Path, set: &[&str]) -> (Vec<(u64, Vec<u64>)>, Vec<Step>) {
    let (plan, opened) = plan(set);
    let population = opened.population(plan.ledger.unit).unwrap();
    let mut engine = Asked { inner: threads(&plan, &opened), asked: Vec::new() };
    let mut run = Run::begin(RunFolder::at(folder), &plan, &opened, means()).unwrap();
    let mut steps = Vec::new();
    let mut fleet = fleet(&plan, population.as_ref(), &mut engine, folder);
    loop {
        let step = run.step(&mut fleet, &Stop::new()).unwrap();
        steps.push(step);
        if steps.last().unwrap().over.is_some() {
            break;
        }
    }
    run.finish().unwrap();
    drop(fleet);
    (engine.asked, steps)
}

fn model(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("model/model.safetensors")).unwrap()
}

/// One user of 120 spoils whatever it takes part in. Every attempt with it fails, the run gets past it each time, and after
/// three of them it is not asked any more, nor are some of those who were in its company.
#[test]
fn a_run_gets_past_a_device_that_spoils_its_rounds() {
    let limits =
        ["participation.kind=arrival", "participation.min_separation=0", "participation.max_participations=40"];
    let many = ["participation.population=120", "rounds=18", "secagg.spoilers=1", "evaluation.every=18"];
    let set = with(&[&limits, &SECURE, &many]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let (asked, steps) = played(&path, &set);
    let with_spoiler: Vec<usize> = (0..asked.len()).filter(|n| asked[*n].1.contains(&0)).collect();
    let failed: Vec<usize> = (0..steps.len()).filter(|n| steps[*n].failed.is_some()).collect();
    assert_eq!(with_spoiler, failed, "it spoils every attempt that it is in, and nothing else fails");
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert!(steps.iter().flat_map(|step| step.failed).all(|failed| failed.reason == FailureReason::NotWhole));
    let ledger = ledger(&path);
    assert_eq!((ledger.releases()["model"], ledger.failed_attempts()), (18, 3));
    // Who was in three attempts that failed is not asked again, whoever it is: fewer than the tenth that may be left out.
    let mut in_failed: BTreeMap<u64, usize> = BTreeMap::new();
    failed.iter().flat_map(|n| &asked[*n].1).for_each(|user| *in_failed.entry(*user).or_default() += 1);
    let left_out: Vec<u64> = in_failed.iter().filter(|(_, times)| **times >= 3).map(|(user, _)| *user).collect();
    assert!(left_out.len() <= 12, "{left_out:?}");
    assert!(left_out.contains(&0));
    let after = &asked[failed[2] + 1..];
    assert!(after.len() > 6 && after.iter().all(|(_, users)| users.iter().all(|user| !left_out.contains(user))));
}

/// Devices whose attempts fail as it is said, by how many there were and who is in them; and a book of who was asked, with the step.
fn failing<'a>(asked: &'a mut Vec<(u64, Vec<u64>)>, fails: impl Fn(usize, &[u64]) -> bool + 'a) -> impl Engine + 'a {
    securely(move |_, users, secure| {
        let fails = fails(asked.len(), users.numbers);
        asked.push((secure.terms.round, users.numbers.to_vec()));
        if fails {
            return Err(SecureError::Failed(RoundFailure::NotCancelled).into());
        }
        Ok(nothing_of(secure, users.numbers.len() as u64))
    })
}

/// Where two failures are enough, more honest users than may be left out were in the company of the spoiler. It is left out all
/// the same, whatever its number, and so it is after a restart.
#[test]
fn a_spoiler_is_left_out_whatever_its_number() {
    let limits =
        ["participation.kind=arrival", "participation.min_separation=0", "participation.max_participations=200"];
    let many = ["participation.population=120", "rounds=60", "evaluation.every=60", "secagg.leave_out_after=2"];
    let set = with(&[&limits, &SECURE, &many]);
    for spoiler in [0, 119] {
        let folder = tempfile::tempdir().unwrap();
        let spoiled = |_: usize, users: &[u64]| users.contains(&spoiler);
        let (mut straight, mut restarted) = (Vec::new(), Vec::new());
        whole(&folder.path().join("straight"), &set, &mut failing(&mut straight, spoiled));
        let path = folder.path().join("restarted");
        (0..4).for_each(|_| some(&path, &set, 8, &mut failing(&mut restarted, spoiled)));
        rest(&path, &set, &mut failing(&mut restarted, spoiled));
        assert_eq!(straight, restarted);
        let spoiled = straight.iter().filter(|(_, users)| users.contains(&spoiler)).count();
        assert!((2..=6).contains(&spoiled), "user {spoiler} spoiled {spoiled} attempts");
        let late: BTreeSet<u64> = straight.iter().rev().take(10).flat_map(|(_, users)| users).copied().collect();
        assert!(!late.contains(&spoiler) && late.len() >= 120 - 12, "{} are still asked", late.len());
    }
}

/// A sampled plan cannot leave anybody out: each round in which the spoiler is drawn comes to nothing, and the run goes on. (It is
/// not asked for the next, whose model is the same.)
#[test]
fn a_sampled_run_loses_the_rounds_that_are_spoiled_and_no_other() {
    let set = with(&[&SECURE, &["participation.population=1000", "rounds=8", "secagg.spoilers=30"]]);
    let folder = tempfile::tempdir().unwrap();
    let (asked, steps) = played(&folder.path().join("run"), &set);
    assert_eq!((asked.len(), steps.len()), (8, 8));
    for ((_, users), step) in asked.iter().zip(&steps) {
        assert_eq!(users.iter().any(|user| *user < 30), step.failed.is_some_and(|failed| failed.passed_over));
    }
    assert!(steps.iter().any(|s| s.failed.is_some()) && steps.iter().any(|s| s.done.is_some()));
}

/// Groups of one round add up to the same: the model is that of one group, byte for byte.
#[test]
fn p19_groups_give_the_model_of_one_group() {
    let kinds: [&[&str]; 3] = [&["participation.vanish=0.01"], &ARRIVAL, &["privacy.mechanism=tree"]];
    for (number, kind) in kinds.iter().enumerate() {
        let arrival: &[&str] = if number == 2 { &ARRIVAL } else { &[] };
        let set = with(&[&SECURE, &["rounds=2", "participation.cohort=80", "secagg.dropout=0.3"], arrival, kind]);
        let folder = tempfile::tempdir().unwrap();
        let [one, four] = ["one", "four"].map(|name| folder.path().join(name));
        let (asked, _) = played(&one, &set);
        let (groups, _) = played(&four, &with(&[&set, &["secagg.groups=4"]]));
        assert_eq!((asked.len(), groups.len()), (2, 8));
        let all = |round: u64| {
            let mut users: Vec<u64> =
                groups.iter().filter(|(r, _)| *r == round).flat_map(|(_, users)| users.clone()).collect();
            users.sort_unstable();
            users
        };
        asked.iter().for_each(|(round, users)| assert_eq!(*users, all(*round)));
        assert!(model(&one) == model(&four), "{kind:?}");
    }
}

/// A spoiler spoils the sum of its group alone: the round is done without that group.
#[test]
fn a_spoiler_spoils_its_group_alone() {
    let groups = ["participation.cohort=80", "secagg.groups=4", "secagg.dropout=0.2"];
    let set = with(&[&SECURE, &["participation.population=160", "rounds=6", "secagg.spoilers=1"], &groups]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let (asked, steps) = played(&path, &set);
    assert!(steps.iter().all(|step| step.failed.is_none()));
    let mut spoiled = 0;
    for (round, step) in steps.iter().enumerate() {
        let mine: Vec<&Vec<u64>> = asked.iter().filter(|(r, _)| *r == round as u64).map(|(_, users)| users).collect();
        assert!(mine.len() == 4 && mine.iter().all(|group| group.len() == 20));
        let with_it = mine.iter().filter(|group| group.contains(&0)).count();
        let done = step.done.as_ref().unwrap();
        assert_eq!(done.failed_groups.len(), with_it.min(1), "why, and not how many");
        assert_eq!(done.diagnostics.as_ref().unwrap().users, 80 - 20 * with_it as u64);
        spoiled += with_it;
    }
    assert!(spoiled > 0, "it was drawn at least once, or nothing was tested");
    assert_eq!(ledger(&path).releases()["model"], 6);
}

const FOUR: [&str; 3] = ["participation.cohort=80", "secagg.groups=4", "secagg.dropout=0.2"];

/// A round is done with half of its groups, and has failed with fewer, though one of them gave its sum.
#[test]
fn half_of_the_groups_are_enough_and_fewer_are_not() {
    let set = with(&[&SECURE, &FOUR, &["rounds=3"]]);
    let folder = tempfile::tempdir().unwrap();
    let (plan, opened) = plan(&set);
    let mut asked = Vec::new();
    let mut engine = failing(&mut asked, |number, _| [1, 2, 4, 5, 7].contains(&number));
    let path = folder.path().join("run");
    let mut run = Run::begin(RunFolder::at(&path), &plan, &opened, means()).unwrap();
    let mut next = || step(&mut run, &plan, &opened, &path, &mut engine).unwrap();
    assert_eq!(next().done.unwrap().failed_groups, [FailureReason::NotWhole].into());
    assert_eq!(next().failed.unwrap().reason, FailureReason::NotWhole);
    assert!(next().done.unwrap().failed_groups.is_empty());
}

/// Nobody can find out over rounds and attempts who is in a group with whom: it is drawn anew each time.
#[test]
fn p19_groups_are_drawn_anew_in_every_attempt() {
    let set = with(&[&ARRIVAL, &SECURE, &FOUR]);
    let folder = tempfile::tempdir().unwrap();
    let mut asked = Vec::new();
    whole(&folder.path().join("run"), &set, &mut failing(&mut asked, |number, _| (4..12).contains(&number)));
    let attempts: Vec<&[(u64, Vec<u64>)]> = asked.chunks(4).collect();
    assert_eq!(attempts.len(), 6 + 2, "round 1 was attempted three times");
    // Which group each place of the cohort is in, whoever is at it.
    let groups_by_place = |groups: &[(u64, Vec<u64>)]| {
        let of_group =
            |(number, (_, users)): (usize, &(u64, Vec<u64>))| users.iter().map(move |u| (*u, number)).collect();
        let mut all: Vec<(u64, usize)> = groups.iter().enumerate().flat_map::<Vec<_>, _>(of_group).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, group)| group).collect::<Vec<usize>>()
    };
    let drawn: BTreeSet<Vec<usize>> = attempts.iter().map(|groups| groups_by_place(groups)).collect();
    assert_eq!(drawn.len(), attempts.len());
}

/// With spoilers in most groups there is no sum, and the attempt has failed.
#[test]
fn an_attempt_fails_with_more_than_half_of_its_groups() {
    let groups = ["participation.cohort=80", "secagg.groups=4", "secagg.dropout=0.2", "secagg.spoilers=40"];
    let set = with(&[&SECURE, &["participation.population=80", "rounds=2"], &groups]);
    let folder = tempfile::tempdir().unwrap();
    let (_, steps) = played(&folder.path().join("run"), &set);
    assert!(steps.iter().all(|step| step.failed.is_some()));
}

fn refused(set: &[&str]) -> ConfigError {
    let config = config(set);
    let opened = Opened::new(&config).unwrap();
    Plan::new(config, &opened.setting()).unwrap_err()
}

/// Every floor holds for each group by itself.
#[test]
fn p19_groups_below_a_floor_are_refused() {
    for (more, key) in [
        (vec!["secagg.groups=0"], "secagg.groups"),
        (vec!["secagg.groups=5"], "secagg.groups"),
        // Enough of the round, and not of a group.
        (vec!["secagg.groups=2", "secagg.least_survivors=30"], "secagg.least_survivors"),
        (
            vec!["secagg.groups=2", "secagg.adversary=semi-malicious", "secagg.corrupted=0.4", "secagg.dropout=0.3"],
            "secagg",
        ),
        (vec!["secagg.groups=2", "participation.vanish=0.02"], "participation.vanish"),
        (vec!["secagg.leave_out_after=0"], "secagg.leave_out_after"),
    ] {
        let error = refused(&with(&[&SECURE, &more]));
        assert_eq!(error.key, key, "{more:?}: {error}");
    }
    plan(&with(&[&SECURE, &["secagg.least_survivors=30"]]));
    plan(&with(&[&SECURE, &["participation.vanish=0.02", "secagg.dropout=0.2"]]));
}

/// Each group carries the full noise, whose honest survivors are a group's; the statement says who sees which sums.
#[test]
fn p3_each_group_has_the_full_noise_in_it() {
    let distributed = ["secagg.noise=distributed", "rounds=2", "evaluation.every=2", "secagg.dropout=0.2"];
    let set = with(&[&ARRIVAL, &SECURE, &distributed]);
    let in_groups = with(&[&set, &["secagg.groups=2"]]);
    let survivors = |set: &[&str]| {
        let (plan, _) = plan(set);
        let secure = plan.phases()[0].secure.clone().unwrap();
        let event: PrivacyEvent = plan.event(2).unwrap();
        let said = serde_json::to_value(event).unwrap().to_string();
        let honest = said.split("\"honest_survivors\":").nth(1).unwrap();
        let honest: u32 = honest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
        (secure.most_clients, secure.least_survivors, honest)
    };
    // Of 40 devices 8 may vanish and 4 may be corrupted; of 20 half as many vanish, and all four can be in one group.
    assert_eq!((survivors(&set), survivors(&in_groups)), ((40, 32, 28), (20, 16, 12)));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let (asked, steps) = played(&path, &in_groups);
    assert_eq!((asked.len(), steps.len()), (4, 2));
    let statement = fs::read_to_string(path.join(STATEMENT_FILE)).unwrap();
    let said = "the server sees the sum of each group, not only of all, each with the full noise in it";
    assert!(statement.contains(said), "{statement}");

    let central = folder.path().join("central");
    let (plan, opened) = plan(&with(&[&in_groups, &["secagg.noise=central"]]));
    whole(&central, &with(&[&in_groups, &["secagg.noise=central"]]), threads(&plan, &opened).as_mut());
    let statement = fs::read_to_string(central.join(STATEMENT_FILE)).unwrap();
    assert!(statement.contains("sees the sum of each of its 2 groups, not only of all"), "{statement}");
}
