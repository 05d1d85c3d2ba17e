//! What a ledger admits, what it refuses, what it adds up to.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

extern crate keyhush_ledger as ledger;

mod ledger_story;

use std::borrow::Cow;

use ledger::{
    Attached, Attempt, Body, Budget, Charge, DataSource, Digest, Ended, Entry, FailureReason, Frequency, ImportKind,
    KeyDestroyed, Ledger, LedgerError, LedgerStore, MemoryStore, NoiseDestroyed, Plan, PseudonymKey, PublicData,
    Publication, SigningKey, Start, statement::Statement,
};
use ledger_story::{
    attempt, content, delta, gaussian, key, limits, model_plan, model_step, plan, publish, publish_with, tree,
};
use privacy::{
    Adjacency, ClipNorm, Epsilon, NoiseMatrix, NoiseMultiplier, PrivacyEvent, Segment,
    encoding::{Encoding, NoisePlan, VectorPlan},
    mechanism::{Correlation, Mechanism, MechanismPlan},
    rng::{Randomness, SimulationKey},
    stages::Sum,
};

fn ledger(plan: Plan) -> Ledger<MemoryStore> {
    Ledger::create(MemoryStore::new(), plan, key(), 0).unwrap()
}

#[test]
fn p17_the_first_entry_is_the_whole_plan() {
    let store = {
        let mut store = MemoryStore::new();
        let mut other = Ledger::create(MemoryStore::new(), plan(), key(), 7).unwrap();
        let _ = model_step(&mut other, 0).unwrap();
        for entry in other_entries(&other) {
            store.append(&store.head().unwrap(), &entry, Default::default()).unwrap();
        }
        store
    };
    let opened = Ledger::open(store, None, &[]).unwrap();
    assert_eq!(opened.plan(), &plan());
    assert_eq!(opened.key(), key().verifying_key());
    assert_eq!(opened.head().length, 2);
}

/// The entries of a ledger, by way of a statement of every line.
fn other_entries(ledger: &Ledger<MemoryStore>) -> Vec<Entry> {
    ledger.entries().unwrap().map(|entry| Entry::parse(entry.unwrap().line().as_bytes()).unwrap()).collect()
}

#[test]
fn a_plan_that_says_nothing_is_refused() {
    type Spoil = fn(&mut Plan);
    let evil: [(&str, Spoil); 10] = [
        ("software", |p| p.software.clear()),
        ("data", |p| p.data = DataSource::Users { what: " ".into() }),
        ("participation_kept_by", |p| p.participation_kept_by.clear()),
        ("population", |p| p.population = 0),
        ("delta", |p| p.population = 100_000_000),
        ("group", |p| p.group = 0),
        ("phases", |p| p.phases.clear()),
        ("phases", |p| p.phases[1].stream = "model".into()),
        ("public_data", |p| p.start = Start::Public(PublicData { what: "a web crawl".into(), why: " ".into() })),
        ("max_epsilon", |p| p.budget = Some(Budget::Fixed { max_epsilon: Epsilon::INFINITE })),
    ];
    for (field, spoil) in evil {
        let mut plan = plan();
        spoil(&mut plan);
        match Ledger::create(MemoryStore::new(), plan, key(), 0) {
            Err(LedgerError::Plan { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    let mixed = Plan { adjacency: Adjacency::AddOrRemove, ..plan() };
    assert!(matches!(
        Ledger::create(MemoryStore::new(), mixed, key(), 0),
        Err(LedgerError::Adjacency { plan: Adjacency::AddOrRemove, got: Adjacency::ZeroOut })
    ));
}

#[test]
fn unknown_fields_and_bodies_are_refused_by_name() {
    let mut ledger = ledger(plan());
    let _ = model_step(&mut ledger, 0).unwrap();
    let line = ledger.entries().unwrap().nth(1).unwrap().unwrap().line();
    for (from, to, named) in [
        ("\"step\":0", "\"step\":0,\"colour\":1", "colour"),
        ("{\"release\":", "{\"rebate\":", "rebate"),
        ("\"kind\":\"tree\"", "\"kind\":\"bush\"", "bush"),
        ("\"time\":", "\"times\":", "times"),
    ] {
        assert!(line.contains(from), "{line}");
        let error = Entry::parse(line.replacen(from, to, 1).as_bytes()).unwrap_err();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn p12_an_entry_tells_what_was_declared_and_never_who_or_how_many_came() {
    let pseudonyms = PseudonymKey::from_bytes(&[3; 32]);
    let record = pseudonyms.record("model", 0, 0, [b"ada".as_slice(), b"bob"]).unwrap();
    let mut ledger = ledger(plan());
    let _ = publish_with(&mut ledger, "model", 0, &tree(&[1]), Some(&record)).unwrap();
    let entry = ledger.entries().unwrap().nth(1).unwrap().unwrap();
    let Body::Release(release) = entry.body() else { panic!("{entry:?}") };
    assert_eq!(release.participations.declared, 100);
    assert_eq!(release.participations.digest, Some(record.digest()));
    assert_eq!(release.digest, Digest::of_released(&content("model", 0)));
    let users = [b"eve".as_slice(), b"bob", b"ada"];
    assert_eq!(pseudonyms.recognise(&record, users), Ok(Some(vec![1, 2])));
    assert_eq!(pseudonyms.recognise(&record, [b"ada".as_slice()]), Ok(None), "bob is none of them");
    assert_eq!(PseudonymKey::from_bytes(&[4; 32]).recognise(&record, users), Ok(None), "nobody else recognises them");
    assert!(!entry.line().contains("bob") && !entry.line().contains("pseudonym"), "{}", entry.line());
}

#[test]
fn p12_the_digest_of_who_took_part_hides_even_nobody() {
    let digest = |key: u8| PseudonymKey::from_bytes(&[key; 32]).record("model", 0, 0, []).unwrap().digest();
    assert_ne!(digest(1), digest(2));
    let key = PseudonymKey::from_bytes(&[1; 32]);
    assert_ne!(key.record("model", 1, 0, []).unwrap().digest(), digest(1));
    assert_eq!(format!("{key:?}"), "PseudonymKey(secret)");
}

#[test]
fn p13_a_released_step_is_never_computed_again() {
    let mut ledger = ledger(plan());
    let first = model_step(&mut ledger, 0).unwrap();
    let again = model_step(&mut ledger, 0).unwrap();
    assert!(again.repeated && again.entry == first.entry && ledger.head() == first.head);
    let event = tree(&[1]);
    let other = Publication { event: &event, randomness: Randomness::Secret, step: 0, bytes: Cow::Borrowed(b"other") };
    match ledger.publish(&other, attempt("model")) {
        Err(LedgerError::AlreadyReleased { step: 0, entry: 1, recorded, offered, .. }) => {
            assert_eq!(recorded, Digest::of_released(&content("model", 0)));
            assert_eq!(offered, Digest::of_released(b"other"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(ledger.released("model", 0).unwrap().unwrap(), content("model", 0));
    assert_eq!(ledger.released("model", 1).unwrap(), None);
    assert_eq!(ledger.released_in("model", 0), Some(1));
}

#[test]
fn p13_what_a_mechanism_releases_is_recorded_and_restored() {
    let noise = NoisePlan::of_update(NoiseMultiplier::new(7.0).unwrap());
    let clip = ClipNorm::new(1.0).unwrap();
    let encoding = Encoding::new(VectorPlan::of_update(20, 14), clip, Some(&noise), Adjacency::ZeroOut).unwrap();
    let planned = MechanismPlan {
        stream: 0,
        adjacency: Adjacency::ZeroOut,
        participation: limits(),
        correlation: Correlation::Matrix(NoiseMatrix::Tree),
        segments: vec![Segment::of(3), Segment::completed(3)],
        distributed: None,
    };
    let (mut keys, randomness) = (SimulationKey::new(5), Randomness::Simulated { seed: 5 });
    let mut mechanism = Mechanism::init(planned, encoding.layout(), randomness).unwrap();
    let mut ledger = ledger(Plan { randomness, ..plan() });
    let mut last = None;
    for step in 0..6 {
        let released = mechanism.release(Sum::zero(&encoding), &mut keys).unwrap();
        let published = released.clone();
        let recorded = ledger.record(released, attempt("model")).unwrap();
        assert_eq!((ledger.released_in("model", step), ledger.head().length), (Some(step + 1), step + 2));
        assert_eq!(*recorded, published);
        let restored = ledger.restore("model", step).unwrap().unwrap();
        assert_eq!(*restored, published);
        last = Some(published);
    }
    assert_eq!(ledger.restore("model", 6).unwrap(), None);
    assert_eq!(ledger.run_event(), PrivacyEvent::Compose { events: vec![last.unwrap().event().clone()] });
}

#[test]
fn p13_a_release_is_restored_only_from_what_was_recorded() {
    let clip = ClipNorm::new(1.0).unwrap();
    let encoding = Encoding::new(VectorPlan::of_update(3, 14), clip, None, Adjacency::ZeroOut).unwrap();
    let released = Sum::zero(&encoding).release_without_privacy(0, "a test", Randomness::Secret);
    let bytes = released.to_bytes();
    let mut ledger = ledger(plan());
    let recorded = ledger.record(released, attempt("model")).unwrap();
    // The same entries, with another vector beside them.
    let restored = |vector: &[u8]| {
        let mut store = MemoryStore::new();
        for entry in other_entries(&ledger) {
            let released = (Some(entry.index()) == ledger.released_in("model", 0)).then_some(vector);
            store.append(&store.head().unwrap(), &entry, Attached { released, ..Attached::default() }).unwrap();
        }
        Ledger::open(store, None, &[]).unwrap().restore("model", 0)
    };
    assert_eq!(*restored(&bytes).unwrap().unwrap(), *recorded);
    for at in 0..bytes.len() {
        let mut evil = bytes.clone();
        evil[at] ^= 1;
        assert!(matches!(restored(&evil), Err(LedgerError::VectorDamaged { entry: 1, .. })), "byte {at}");
    }
}

/// Bytes of a release that were published by hand, with any event, came back as one that a mechanism had made.
#[test]
fn p13_a_release_cannot_be_published_by_hand() {
    let clip = ClipNorm::new(1.0).unwrap();
    let encoding = Encoding::new(VectorPlan::of_update(3, 14), clip, None, Adjacency::ZeroOut).unwrap();
    let made = || Sum::zero(&encoding).release_without_privacy(0, "a test", Randomness::Secret);
    let (event, mut hand, randomness) = (tree(&[1]), ledger(plan()), Randomness::Secret);
    let forged = Publication { event: &event, randomness, step: 0, bytes: Cow::Owned(made().to_bytes()) };
    assert!(matches!(hand.publish(&forged, attempt("model")), Err(LedgerError::IsRelease)));
    assert_eq!(hand.restore("model", 0).unwrap(), None);
    // Somebody who has the signing key can still write any entry; a vector of another event than its entry's is not restored.
    let mut honest = ledger(plan());
    let _ = honest.publish(&Publication { bytes: Cow::Borrowed(b"no release"), ..forged }, attempt("model")).unwrap();
    assert!(honest.restore("model", 0).is_err(), "what is no release is not restored");
}

#[test]
fn p13_noise_from_elsewhere_than_planned_is_refused() {
    let simulated = Randomness::Simulated { seed: 5 };
    let event = tree(&[1]);
    let mut secret = ledger(plan());
    let publication = Publication { event: &event, randomness: simulated, step: 0, bytes: Cow::Borrowed(b"x") };
    assert!(matches!(secret.publish(&publication, attempt("model")), Err(LedgerError::Randomness { .. })));
    let mut simulation = ledger(Plan { randomness: simulated, ..plan() });
    assert!(simulation.publish(&publication, attempt("model")).is_ok());
}

#[test]
fn what_the_plan_does_not_know_is_refused() {
    let mut ledger = ledger(plan());
    assert!(matches!(publish(&mut ledger, "words", 0, &gaussian(9.0)), Err(LedgerError::UnknownStream { .. })));
    assert!(matches!(publish(&mut ledger, "clip", 64, &gaussian(50.0)), Err(LedgerError::BeyondPlan { .. })));
    let other = PrivacyEvent::gaussian(Adjacency::AddOrRemove, NoiseMultiplier::new(9.0).unwrap());
    assert!(matches!(publish(&mut ledger, "clip", 0, &other), Err(LedgerError::Adjacency { .. })));
    let PrivacyEvent::CorrelatedGaussian { adjacency, matrix, segments, noise, .. } = tree(&[1]) else { panic!() };
    let participation = privacy::Participation::Once;
    let once = PrivacyEvent::CorrelatedGaussian { adjacency, matrix, segments, participation, noise };
    assert!(matches!(publish(&mut ledger, "model", 0, &once), Err(LedgerError::Participation { .. })));
    let _ = publish(&mut ledger, "clip", 5, &gaussian(50.0)).unwrap();
    assert!(matches!(publish(&mut ledger, "clip", 4, &gaussian(50.0)), Err(LedgerError::StepBackwards { .. })));
    assert_eq!(ledger.head().length, 2);
}

#[test]
fn events_of_correlated_noise_stand_for_the_run_and_others_add_up() {
    let mut ledger = ledger(plan());
    for step in 0..4 {
        let _ = model_step(&mut ledger, step).unwrap();
        let _ = publish(&mut ledger, "clip", step, &gaussian(50.0)).unwrap();
    }
    let _ = publish(&mut ledger, "clip", 4, &gaussian(40.0)).unwrap();
    let expected = vec![gaussian(50.0).times(4), gaussian(40.0), tree(&[4])];
    assert_eq!(ledger.run_event(), PrivacyEvent::Compose { events: expected.clone() });
    let expected = PrivacyEvent::Compose { events: expected };
    let plan = plan();
    assert_eq!(ledger.epsilon(delta()).unwrap(), plan.accountant.judge(&expected, delta()).unwrap());
    assert!(matches!(publish(&mut ledger, "model", 4, &tree(&[4])), Err(LedgerError::DoesNotExtend { .. })));
    assert!(matches!(publish(&mut ledger, "model", 4, &tree(&[3, 2])), Err(LedgerError::DoesNotExtend { .. })));
    assert!(publish(&mut ledger, "model", 4, &tree(&[4, 1])).is_ok());
    assert_eq!(Charge::of(&tree(&[1])), Charge::Cumulative);
    assert_eq!(Charge::of(&PrivacyEvent::Compose { events: vec![gaussian(1.0), tree(&[1])] }), Charge::Cumulative);
}

#[test]
fn p14_the_run_stops_before_the_release_that_would_exceed_the_budget() {
    let four = delta_of(&gaussian(10.0).times(4));
    let budget = Some(Budget::Fixed { max_epsilon: four });
    let mut ledger = ledger(Plan { budget, ..plan() });
    for step in 0..4 {
        ledger.check("clip", step, &gaussian(10.0)).unwrap();
        let _ = publish(&mut ledger, "clip", step, &gaussian(10.0)).unwrap();
    }
    assert!(matches!(ledger.check("clip", 4, &gaussian(10.0)), Err(LedgerError::BudgetExceeded { .. })));
    match publish(&mut ledger, "clip", 4, &gaussian(10.0)) {
        Err(LedgerError::BudgetExceeded { max_epsilon, would_be }) => assert!(max_epsilon == four && would_be > four),
        other => panic!("{other:?}"),
    }
    let none = PrivacyEvent::NonPrivate { what: "a training loss".into() };
    assert!(matches!(publish(&mut ledger, "loss", 0, &none), Err(LedgerError::BudgetExceeded { .. })));
    assert_eq!(ledger.head().length, 5);
}

fn delta_of(event: &PrivacyEvent) -> Epsilon {
    plan().accountant.judge(event, delta()).unwrap().epsilon
}

#[test]
fn p14_a_filter_spends_rho_and_guarantees_its_budget() {
    let max_epsilon = Epsilon::new(1.0).unwrap();
    let budget = Budget::zcdp_filter(max_epsilon, delta(), 1).unwrap();
    let Budget::ZcdpFilter { max_rho, .. } = budget else { panic!() };
    let mut ledger = ledger(Plan { budget: Some(budget), ..plan() });
    let each = 0.5 / (10.0 * 10.0);
    let fit = (max_rho.get() / each).floor() as u64;
    assert!((2..60).contains(&fit), "{fit}");
    for step in 0..fit {
        let _ = publish(&mut ledger, "clip", step, &gaussian(10.0)).unwrap();
    }
    assert!(matches!(publish(&mut ledger, "clip", fit, &gaussian(10.0)), Err(LedgerError::BudgetExceeded { .. })));
    let guaranteed = delta_of(&ledger.guaranteed_event());
    assert!(guaranteed <= max_epsilon && guaranteed.get() > 0.999, "{guaranteed}");
    // The exact curve of what was spent is smaller, and is not the guarantee.
    assert!(ledger.epsilon(delta()).unwrap().epsilon < guaranteed);
}

#[test]
fn p14_a_filter_needs_a_rho() {
    let rate = privacy::SamplingRate::new(0.01).unwrap();
    let event = PrivacyEvent::poisson(rate, NoiseMultiplier::new(1.0).unwrap());
    let budget = Some(Budget::zcdp_filter(Epsilon::new(1.0).unwrap(), delta(), 1).unwrap());
    let mut plan = Plan { budget, adjacency: Adjacency::AddOrRemove, ..plan() };
    plan.phases.truncate(1);
    plan.phases[0].event = event.times(64);
    let error = Ledger::create(MemoryStore::new(), plan, key(), 0).unwrap_err();
    assert!(matches!(error, LedgerError::Plan { field: "budget", .. }), "{error}");
}

#[test]
fn p15_a_run_from_another_model_imports_its_ledger_first() {
    let mut before = ledger(model_plan(1));
    let _ = model_step(&mut before, 0).unwrap();
    let start = Start::Ledger { head: before.head() };
    let mut after = ledger(Plan { start, ..plan() });
    assert!(matches!(model_step(&mut after, 0), Err(LedgerError::Plan { field: "start", .. })));
    let import = before.as_import(ImportKind::StartingModel, "the English model", true);
    let _ = after.record_import(import.clone(), 1).unwrap();
    assert!(after.record_import(import, 1).is_err(), "the same ledger twice");
    let _ = model_step(&mut after, 0).unwrap();
    let both = PrivacyEvent::Compose { events: vec![tree(&[1]), tree(&[1])] };
    assert_eq!(after.epsilon(delta()).unwrap().epsilon, delta_of(&both));
    assert_eq!(after.releases(), before.releases());
}

#[test]
fn p15_a_sweep_is_counted_and_never_refused() {
    let max_epsilon = delta_of(&tree(&[1]));
    let budget = Some(Budget::Fixed { max_epsilon });
    let mut chosen = ledger(Plan { budget, ..model_plan(1) });
    let _ = model_step(&mut chosen, 0).unwrap();
    let mut sibling = Ledger::create(MemoryStore::new(), model_plan(1), SigningKey::from_seed(&[1; 32]), 0).unwrap();
    let _ = model_step(&mut sibling, 0).unwrap();
    let _ = chosen.record_import(sibling.as_import(ImportKind::SweepRun, "the same at z = 7", true), 2).unwrap();
    assert_eq!(delta_of(&chosen.guaranteed_event()), max_epsilon);
    assert!(delta_of(&chosen.guaranteed_sweep_event().unwrap()) > max_epsilon);
}

#[test]
fn p17_rewound_and_forked_ledgers_are_told_apart() {
    let mut ledger = ledger(plan());
    let store = |ledger: &Ledger<MemoryStore>, entries: usize| {
        let mut store = MemoryStore::new();
        for entry in other_entries(ledger).iter().take(entries) {
            store.append(&store.head().unwrap(), entry, Default::default()).unwrap();
        }
        store
    };
    let _ = model_step(&mut ledger, 0).unwrap();
    let seen = model_step(&mut ledger, 1).unwrap().head;
    let _ = model_step(&mut ledger, 2).unwrap();
    assert!(Ledger::open(store(&ledger, 4), None, &[seen]).is_ok());
    assert!(matches!(
        Ledger::open(store(&ledger, 2), None, &[seen]),
        Err(LedgerError::Rewound { have: 2, shown }) if shown == seen
    ));
    // Cut and gone on differently: a valid chain, and not the one that was seen.
    let mut fork = Ledger::open(store(&ledger, 2), Some(key()), &[]).unwrap();
    for step in 1..4 {
        let _ = publish(&mut fork, "clip", step, &gaussian(50.0)).unwrap();
    }
    assert!(matches!(Ledger::open(store(&fork, 5), None, &[seen]), Err(LedgerError::Forked { .. })));
    let found = Ledger::open(store(&fork, 5), None, &[]).unwrap().verify(&[], None).unwrap();
    assert!(found.not_shown.iter().any(|words| words.contains("missing entries at the end")), "{found:?}");
    assert!(found.not_shown.iter().any(|words| words.contains("holder of the signing key")), "{found:?}");
    let pinned = SigningKey::from_seed(&[1; 32]).verifying_key();
    assert!(matches!(fork.verify(&[], Some(&pinned)), Err(LedgerError::WrongKey { .. })));
    assert!(matches!(
        Ledger::open(store(&fork, 5), Some(SigningKey::from_seed(&[1; 32])), &[]),
        Err(LedgerError::WrongKey { .. })
    ));
}

#[test]
fn p17_an_entry_signed_by_another_key_is_refused() {
    let mut one = ledger(plan());
    let mut other = Ledger::create(MemoryStore::new(), plan(), SigningKey::from_seed(&[9; 32]), 0).unwrap();
    let (_, _) = (model_step(&mut one, 0).unwrap(), model_step(&mut other, 0).unwrap());
    let (ours, theirs) = (other_entries(&one), other_entries(&other));
    let mut store = MemoryStore::new();
    store.append(&store.head().unwrap(), &ours[0], Default::default()).unwrap();
    let error = store.append(&ours[0].head(), &theirs[1], Default::default()).unwrap_err();
    assert!(matches!(error, LedgerError::Damaged { entry: 1, .. }), "{error}");
    // Even with the right predecessor: their signature over our chain.
    let line = ours[1].line();
    let signature = line.rfind("\"signature\"").unwrap();
    let forged = [&line[..signature], &theirs[1].line()[theirs[1].line().rfind("\"signature\"").unwrap()..]].concat();
    let forged = Entry::parse(forged.as_bytes()).unwrap();
    let error = store.append(&ours[0].head(), &forged, Default::default()).unwrap_err();
    assert!(error.to_string().contains("signature"), "{error}");
}

#[test]
fn p17_closing_ends_a_ledger() {
    let mut ledger = ledger(plan());
    let _ = model_step(&mut ledger, 0).unwrap();
    let _ = ledger.close(Ended::PlanDone, KeyDestroyed::assertion(), NoiseDestroyed::assertion(), 9).unwrap();
    assert!(ledger.closing().unwrap().pseudonym_key_destroyed);
    assert!(matches!(model_step(&mut ledger, 1), Err(LedgerError::Closed { entry: 2 })));
    assert!(matches!(
        ledger.close(Ended::PlanDone, KeyDestroyed::assertion(), NoiseDestroyed::assertion(), 9),
        Err(LedgerError::Closed { entry: 2 })
    ));
    // What was released may still be asked for, and recorded again without effect.
    assert!(model_step(&mut ledger, 0).unwrap().repeated);
}

#[test]
fn p17_the_side_file_shows_how_often_and_how_close_users_came() {
    let pseudonyms = PseudonymKey::generate().unwrap();
    let mut ledger = ledger(plan());
    let cohorts: [&[&[u8]]; 6] = [&[b"ada", b"bob"], &[b"cyd"], &[], &[b"dan"], &[b"bob", b"ada"], &[b"cyd"]];
    for (step, users) in cohorts.iter().enumerate() {
        let step = step as u64;
        let record = pseudonyms.record("model", step, 0, users.iter().copied()).unwrap();
        let _ = publish_with(&mut ledger, "model", step, &tree(&[step + 1]), Some(&record)).unwrap();
    }
    // A failed attempt is on record, and counts apart from participations in releases.
    let record = pseudonyms.record("model", 6, 0, [b"ada".as_slice()]).unwrap();
    let failed = Attempt { participations: Some(&record), ..attempt("model") };
    let _ = ledger.record_failed(6, FailureReason::BelowGoal, failed).unwrap();
    let found = ledger.verify(&[], None).unwrap();
    assert_eq!((found.participations_matching, found.participations_unnamed), (Some(7), Some(0)));
    let observed = found.observed["model"];
    let frequency = |found: Frequency| (found.max_participations, found.min_separation.unwrap().as_rounds_between());
    assert_eq!((frequency(observed.released), frequency(observed.with_failed)), ((2, 3), (3, 1)));
    assert_eq!(ledger.failed_attempts(), 1);
    assert!(matches!(limits(), privacy::Participation::MinSeparation { .. }));
}

#[test]
fn participations_belong_to_their_attempt_and_name_nobody_twice() {
    let pseudonyms = PseudonymKey::from_bytes(&[3; 32]);
    assert!(matches!(
        pseudonyms.record("model", 0, 0, [b"ada".as_slice(), b"ada"]),
        Err(LedgerError::TwiceInOneAttempt { .. })
    ));
    let record = pseudonyms.record("model", 1, 0, [b"ada".as_slice()]).unwrap();
    let mut ledger = ledger(plan());
    let error = publish_with(&mut ledger, "model", 0, &tree(&[1]), Some(&record)).unwrap_err();
    assert!(matches!(error, LedgerError::OtherAttempt { .. }), "{error}");
}

/// More budget is a new task that counts the ledger of the first: before it does nothing is released, and its cost is in everything.
#[test]
fn p15_nothing_is_released_before_an_earlier_task_is_counted() {
    let plan = model_plan(4);
    let stream = plan.phases[0].stream.clone();
    let earlier = ledger(plan.clone());
    let import = earlier.as_import(ImportKind::EarlierTask, "the task words", true);
    let next = Plan { after: vec![import.head], ..plan };
    let mut book = ledger(next.clone());
    let refused = book.begin_attempt(&stream, 0, 10).unwrap_err();
    assert!(refused.to_string().contains("must be imported first"), "{refused}");
    let alone = earlier.guaranteed().unwrap().epsilon;
    let _receipt = book.record_import(import.clone(), 3).unwrap();
    let both = book.guaranteed().unwrap().epsilon;
    assert!(both > alone, "{both} after {alone}");
    book.begin_attempt(&stream, 0, 10).unwrap();
    assert!(book.record_import(import.clone(), 4).is_err(), "it is counted once");
    // A budget that the earlier task has used up is refused before the first round.
    let less = Epsilon::new(alone.get() / 2.0).unwrap();
    let mut poor = ledger(Plan { budget: Some(Budget::Fixed { max_epsilon: less }), ..next });
    assert!(matches!(poor.record_import(import, 5), Err(LedgerError::BudgetExceeded { .. })));
}

/// Backups are made at any moment, and a ledger can be cut by hand: what its plan counts and it does not have counts as released without
/// privacy.
#[test]
fn p15_a_ledger_cut_before_its_imports_guarantees_nothing() {
    let plan = model_plan(4);
    let mut start = Ledger::create(MemoryStore::new(), plan.clone(), SigningKey::from_seed(&[1; 32]), 0).unwrap();
    let _receipt = model_step(&mut start, 0).unwrap();
    let earlier = ledger(plan.clone());
    let imports = [
        start.as_import(ImportKind::StartingModel, "the English model", true),
        earlier.as_import(ImportKind::EarlierTask, "the task words", true),
    ];
    let next = Plan { start: Start::Ledger { head: start.head() }, after: vec![earlier.head()], ..plan };
    let max_epsilon = Epsilon::new(50.0).unwrap();
    let fixed = Budget::Fixed { max_epsilon };
    let filter = Budget::zcdp_filter(max_epsilon, delta(), 1).unwrap();
    for budget in [None, Some(fixed), Some(filter)] {
        let mut book = ledger(Plan { budget, ..next.clone() });
        for (number, import) in imports.iter().enumerate() {
            assert_eq!(book.missing_imports().len(), 2 - number);
            let stated = Statement::of(&book).unwrap();
            assert!(!stated.guarantee.holds && !stated.guarantee.epsilon.is_finite(), "{budget:?}");
            assert!(stated.to_markdown().contains("which the plan names and no entry imports"), "{budget:?}");
            assert!(!book.verify(&[], None).unwrap().holds, "{budget:?}");
            assert!(!book.epsilon(delta()).unwrap().epsilon.is_finite(), "{budget:?}");
            let counted = book.as_import(ImportKind::EarlierTask, "what is left of it", true);
            assert!(!delta_of(&counted.event).is_finite(), "{budget:?}");
            let _receipt = book.record_import(import.clone(), 1).unwrap();
        }
        assert!(book.missing_imports().is_empty());
        assert!(Statement::of(&book).unwrap().guarantee.holds, "{budget:?}");
        let _receipt = model_step(&mut book, 0).unwrap();
    }
}
