//! What is said of the participations that were observed, beside the guarantee, and of devices in several tasks.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use std::borrow::Cow;

use crate::ledger_story::{self, attempt, delta, key, model_plan, model_step, plan, publish_with, tree};
use ledger::{
    Attempt, Budget, Ended, FailureReason, ImportKind, KeyDestroyed, Ledger, LedgerError, LedgerStore, MemoryStore,
    NoObservedEpsilon, NoiseDestroyed, Plan, PseudonymKey, Publication, SigningKey, Unit,
    statement::{Statement, rounded_up},
    together, together_if_secret,
};
use privacy::{Adjacency, Delta, Epsilon, MinSeparation, Participation, PrivacyEvent, rng::Randomness};

type Cohorts<'a> = &'a [&'a [&'a [u8]]];

fn pseudonyms() -> PseudonymKey {
    PseudonymKey::from_bytes(&[3; 32])
}

/// Releases a step of the model with these users.
fn release(ledger: &mut Ledger<MemoryStore>, step: u64, users: &[&[u8]]) -> Result<(), LedgerError> {
    let record = pseudonyms().record("model", step, 1, users.iter().copied()).unwrap();
    let randomness = ledger.plan().randomness;
    let bytes = Cow::Owned(ledger_story::content("model", step));
    let event = tree(&[step + 1]);
    let publication = Publication { event: &event, randomness, step, bytes };
    let attempt = Attempt { number: 1, participations: Some(&record), ..attempt("model") };
    ledger.publish(&publication, attempt).map(drop)
}

fn run(plan: Plan, cohorts: Cohorts<'_>) -> Ledger<MemoryStore> {
    let mut ledger = Ledger::create(MemoryStore::new(), plan, key(), 0).unwrap();
    for (step, users) in cohorts.iter().enumerate() {
        release(&mut ledger, step as u64, users).unwrap();
    }
    ledger
}

fn closed(mut ledger: Ledger<MemoryStore>) -> Ledger<MemoryStore> {
    let _ = ledger.close(Ended::PlanDone, KeyDestroyed::assertion(), NoiseDestroyed::assertion(), 9).unwrap();
    ledger
}

/// The tree of a run with other participations.
fn tree_with(rounds: u64, participation: Participation) -> PrivacyEvent {
    let PrivacyEvent::CorrelatedGaussian { adjacency, matrix, segments, noise, .. } = tree(&[rounds]) else {
        panic!("a tree is correlated noise")
    };
    PrivacyEvent::CorrelatedGaussian { adjacency, matrix, segments, participation, noise }
}

fn judged(event: &PrivacyEvent) -> Epsilon {
    plan().accountant.judge(event, delta()).unwrap().epsilon
}

const ONCE: Cohorts<'static> = &[&[b"ada"], &[b"bob"], &[b"cyd"], &[b"dan"], &[b"eve"], &[b"fay"]];

/// Rule P18: the guarantee counts the limits that were enforced; what was observed stands beside it, and is called what it is.
#[test]
fn p18_both_epsilons_are_stated_and_the_enforced_one_is_the_guarantee() {
    let ledger = closed(run(model_plan(6), ONCE));
    let (enforced, once) = (judged(&tree(&[6])), judged(&tree_with(6, Participation::Once)));
    assert!(once < enforced, "{once} {enforced}");
    let statement = Statement::of(&ledger).unwrap();
    let observed = statement.observed.clone().unwrap();
    assert_eq!((statement.guarantee.epsilon, observed.epsilon, observed.no_epsilon), (enforced, Some(once), None));
    assert_eq!(observed.streams["model"].released.max_participations, 1);
    let found = ledger.verify(&[], None).unwrap();
    assert_eq!(found.judgement.unwrap().epsilon, enforced);
    assert_eq!(found.observed_judgement.unwrap().epsilon, once);
    let page = statement.to_markdown();
    let headline = page.lines().nth(2).unwrap();
    assert!(headline.contains(&rounded_up(enforced.get())), "{page}");
    let (_, section) = page.split_once("## Observed participation").unwrap();
    let section = section.split("\n## ").next().unwrap();
    assert!(section.contains(&format!("epsilon = {}", rounded_up(once.get()))), "{section}");
    assert!(section.contains("not the guarantee") && section.contains("what they typed"), "{section}");
    assert_eq!(page.matches(&rounded_up(once.get())).count(), 1, "it stands nowhere else: {page}");
}

/// Rule P24: who was asked for an attempt that failed took part, as far as anybody can know.
#[test]
fn p24_failed_attempts_count_as_observed_up_to_the_limits() {
    let separation = |between| MinSeparation::rounds_between(between).unwrap();
    // ada was in the release of step 0 and in a failed attempt at step 4 or, closer than the limits allow, at step 2.
    for (failed_at, closest) in [(4, 3), (2, 3)] {
        let mut ledger = Ledger::create(MemoryStore::new(), model_plan(6), key(), 0).unwrap();
        for (step, users) in ONCE.iter().enumerate() {
            let step = step as u64;
            if step == failed_at {
                let record = pseudonyms().record("model", step, 0, [b"ada".as_slice()]).unwrap();
                let failed = Attempt { participations: Some(&record), ..attempt("model") };
                let _ = ledger.record_failed(step, FailureReason::BelowGoal, failed).unwrap();
            }
            release(&mut ledger, step, users).unwrap();
        }
        let found = ledger.verify(&[], None).unwrap();
        let observed = found.observed["model"];
        assert_eq!((observed.released.max_participations, observed.with_failed.max_participations), (1, 2));
        assert_eq!(observed.with_failed.min_separation, Some(separation(failed_at - 1)));
        let counted = Participation::MinSeparation { separation: separation(closest), max_participations: 2 };
        assert_eq!(found.observed_judgement.unwrap().epsilon, judged(&tree_with(6, counted)), "{failed_at}");
        assert!(found.observed_judgement.unwrap().epsilon <= found.judgement.unwrap().epsilon);
    }
}

/// Rules P14 and P18: the release that would exceed the budget by the limits is refused, however little was observed.
#[test]
fn p18_budgets_use_the_limits_that_were_enforced() {
    let max_epsilon = judged(&tree(&[5]));
    assert!(judged(&tree_with(6, Participation::Once)) < max_epsilon && max_epsilon < judged(&tree(&[6])));
    let plan = Plan { budget: Some(Budget::Fixed { max_epsilon }), ..model_plan(6) };
    let mut ledger = run(plan, &ONCE[..5]);
    let refused = release(&mut ledger, 5, ONCE[5]);
    assert!(matches!(refused, Err(LedgerError::BudgetExceeded { .. })), "{refused:?}");
}

/// Rule P23: no epsilon of what was observed where it is not what was released that holds.
#[test]
fn p23_no_epsilon_is_computed_from_observations_where_something_else_holds() {
    let why = |ledger: &Ledger<MemoryStore>| {
        let found = ledger.verify(&[], None).unwrap();
        assert_eq!(found.observed_judgement.map(|judged| judged.epsilon), None);
        found.no_observed_judgement
    };
    let open = run(model_plan(8), ONCE);
    assert_eq!(why(&open), Some(NoObservedEpsilon::PlanHolds));
    assert_eq!(Statement::of(&open).unwrap().observed, None, "while it goes on nothing is said");
    let by_hand = closed(open);
    assert_eq!(why(&by_hand), Some(NoObservedEpsilon::PlanHolds));
    let statement = Statement::of(&by_hand).unwrap();
    assert!(statement.to_markdown().contains("No epsilon is computed from these: the guarantee covers the whole plan"));
    let observed = statement.observed.unwrap();
    assert_eq!((observed.epsilon, observed.no_epsilon), (None, Some(NoObservedEpsilon::PlanHolds)));
    let filter = Budget::zcdp_filter(Epsilon::new(20.0).unwrap(), delta(), 1).unwrap();
    let filtered = run(Plan { budget: Some(filter), ..model_plan(6) }, ONCE);
    assert_eq!(why(&filtered), Some(NoObservedEpsilon::BudgetHolds));
    let simulated = run(Plan { randomness: Randomness::Simulated { seed: 7 }, ..model_plan(6) }, ONCE);
    assert_eq!(why(&simulated), Some(NoObservedEpsilon::Simulated));
    let mut silent = run(model_plan(6), &ONCE[..5]);
    let _ = model_step(&mut silent, 5).unwrap();
    assert_eq!(why(&silent), Some(NoObservedEpsilon::NotAllRecorded));
}

/// Rules P12 and P26: where who took part is protected, exact figures of it are in no statement.
#[test]
fn p26_figures_of_who_took_part_stand_only_where_that_is_not_protected() {
    let PrivacyEvent::CorrelatedGaussian { matrix, segments, participation, noise, .. } = tree(&[1]) else { panic!() };
    let adjacency = Adjacency::AddOrRemove;
    let event = PrivacyEvent::CorrelatedGaussian { adjacency, matrix, segments, participation, noise };
    let mut plan = Plan { adjacency, ..model_plan(1) };
    plan.phases[0].event = event.clone();
    let mut ledger = Ledger::create(MemoryStore::new(), plan, key(), 0).unwrap();
    let record = pseudonyms().record("model", 0, 0, [b"ada".as_slice()]).unwrap();
    let _ = publish_with(&mut ledger, "model", 0, &event, Some(&record)).unwrap();
    assert_eq!(Statement::of(&closed(ledger)).unwrap().observed, None);
}

/// Rule P18: limits that were not kept are no limits.
#[test]
fn p18_a_side_table_that_breaks_the_limits_is_refused() {
    let too_close: Cohorts<'_> = &[&[b"ada"], &[b"bob"], &[b"cyd"], &[b"ada"]];
    let ledger = run(model_plan(4), too_close);
    let error = ledger.verify(&[], None).unwrap_err();
    assert!(matches!(error, LedgerError::LimitsBroken { times: 2, between: Some(2), .. }), "{error}");
    assert!(error.to_string().contains("with only 2 other releases between"), "{error}");
    assert!(matches!(Statement::of(&closed(ledger)), Err(LedgerError::LimitsBroken { .. })));
    let users: &[&[u8]] = &[b"ada"];
    let nobody: &[&[u8]] = &[];
    let too_often: Vec<&[&[u8]]> = (0..21).map(|step| if step % 4 == 0 { users } else { nobody }).collect();
    let error = run(model_plan(21), &too_often).verify(&[], None).unwrap_err();
    assert!(matches!(error, LedgerError::LimitsBroken { times: 6, between: Some(3), .. }), "{error}");
    run(model_plan(20), &too_often[..20]).verify(&[], None).unwrap();
}

/// Rule P11: delta is below one over the declared population, so no more than that may have been asked.
#[test]
fn p11_a_side_table_with_more_users_than_were_declared_is_refused() {
    let three: Cohorts<'_> = &[&[b"ada"], &[b"bob"], &[b"cyd"]];
    let of = |population| run(Plan { population, ..model_plan(3) }, three);
    of(3).verify(&[], None).unwrap();
    let error = of(2).verify(&[], None).unwrap_err();
    assert!(matches!(error, LedgerError::MoreThanDeclared { declared: 2, different: 3, .. }), "{error}");
    assert!(matches!(Statement::of(&closed(of(2))), Err(LedgerError::MoreThanDeclared { .. })));
}

fn task(seed: u8, rounds: u64, delta: Delta) -> Ledger<MemoryStore> {
    let plan = Plan { unit: Unit::Device, delta, ..model_plan(rounds) };
    let mut ledger = Ledger::create(MemoryStore::new(), plan, SigningKey::from_seed(&[seed; 32]), 0).unwrap();
    for step in 0..rounds {
        let _ = model_step(&mut ledger, step).unwrap();
    }
    ledger
}

/// A device in several tasks pays for all of them: more than for any, less than the sum.
#[test]
fn tasks_of_one_device_compose() {
    let strict = Delta::new(1e-8).unwrap();
    let tasks = [task(1, 6, delta()), task(2, 9, strict)];
    let both = together(&tasks, None).unwrap();
    assert_eq!((both.ledgers, both.delta), (2, strict), "the smallest delta");
    let alone = |task: &Ledger<MemoryStore>| task.epsilon(strict).unwrap().epsilon.get();
    let (first, second) = (alone(&tasks[0]), alone(&tasks[1]));
    let epsilon = both.judgement.epsilon.get();
    assert!(epsilon > first.max(second) && epsilon < first + second, "{epsilon} of {first} and {second}");
    let composed = PrivacyEvent::Compose { events: vec![tree(&[6]), tree(&[9])] };
    let at = together(&tasks, Some(delta())).unwrap();
    assert_eq!(at.judgement.epsilon, judged(&composed));
    // What was planned counts, as in each statement alone.
    let mut open = Ledger::create(MemoryStore::new(), model_plan(6), SigningKey::from_seed(&[3; 32]), 0).unwrap();
    let _ = model_step(&mut open, 0).unwrap();
    assert_eq!(together(&[open], None).unwrap().judgement.epsilon, judged(&tree(&[6])));
}

#[test]
fn ledgers_that_do_not_protect_the_same_are_not_composed() {
    let first = || task(1, 6, delta());
    let of = |plan: Plan| Ledger::create(MemoryStore::new(), plan, SigningKey::from_seed(&[2; 32]), 0).unwrap();
    let device = || Plan { unit: Unit::Device, ..model_plan(6) };
    let refused = |other: Ledger<MemoryStore>| together(&[first(), other], None).unwrap_err().to_string();
    assert!(refused(of(model_plan(6))).contains("each device, another each user"));
    assert!(refused(of(Plan { group: 2, ..device() })).contains("group"));
    let simulated = || of(Plan { randomness: Randomness::Simulated { seed: 1 }, ..device() });
    assert!(refused(simulated()).contains("simulated"));
    let secret = || of(device());
    let (would, does) = (together_if_secret(&[first(), simulated()], None), together(&[first(), secret()], None));
    assert_eq!(would.unwrap().judgement, does.unwrap().judgement, "what it would cost is what secret noise costs");
    let mut other = device();
    (other.adjacency, other.phases[0].event) = (
        Adjacency::AddOrRemove,
        PrivacyEvent::gaussian(Adjacency::AddOrRemove, privacy::NoiseMultiplier::new(1.0).unwrap()),
    );
    assert!(refused(of(other)).contains("add-or-remove"));
    assert!(together::<MemoryStore>(&[], None).is_err());
    // The same ledger is one, however far it got.
    let one = first();
    let entries: Vec<_> = one.entries().unwrap().map(Result::unwrap).collect();
    let mut copy = MemoryStore::new();
    for entry in &entries[..2] {
        copy.append(&copy.head().unwrap(), entry, Default::default()).unwrap();
    }
    let copy = Ledger::open(copy, None, &[]).unwrap();
    assert!(together(&[one, copy], None).unwrap_err().to_string().contains("twice"));
}

#[test]
fn a_statement_of_devices_says_what_holds_in_several_tasks() {
    let page = Statement::of(&task(1, 2, delta())).unwrap().to_markdown();
    let (_, section) = page.split_once("## Devices in several tasks").unwrap();
    for words in ["accounts for this task alone", "add up", "keyhush privacy compose", "its own limit"] {
        assert!(section.contains(words), "{words}: {section}");
    }
    let statement = Statement::of(&run(model_plan(6), ONCE)).unwrap();
    assert!(statement.several_tasks.is_empty() && !statement.to_markdown().contains("several tasks"));
}

/// Rule P15: what was observed is of this run; earlier tasks over the same devices are counted beside it, as they were imported.
#[test]
fn p15_earlier_tasks_are_counted_in_the_observed_epsilon() {
    let earlier = Ledger::create(MemoryStore::new(), model_plan(2), SigningKey::from_seed(&[1; 32]), 0).unwrap();
    let import = earlier.as_import(ImportKind::EarlierTask, "the task words", true);
    let plan = Plan { after: vec![import.head], ..model_plan(6) };
    let mut ledger = Ledger::create(MemoryStore::new(), plan, key(), 0).unwrap();
    let _receipt = ledger.record_import(import.clone(), 1).unwrap();
    for (step, users) in ONCE.iter().enumerate() {
        release(&mut ledger, step as u64, users).unwrap();
    }
    let once = tree_with(6, Participation::Once);
    let observed = closed(ledger).verify(&[], None).unwrap().observed_judgement.unwrap().epsilon;
    let both = judged(&PrivacyEvent::Compose { events: vec![import.event, once.clone()] });
    assert_eq!(observed, both);
    assert!(observed > judged(&once), "{observed}");
}
