//! What a statement says, and what it must never leave out.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

mod ledger_story;

use keyhush_privacy::{
    Epsilon, PrivacyEvent,
    ledger::{
        Budget, Ended, ImportKind, KeyDestroyed, Ledger, MemoryStore, NoiseDestroyed, Plan, PublicData, SigningKey,
        Start, Unit,
    },
    rng::Randomness,
    statement::{Basis, Statement, rounded_up},
};
use ledger_story::{delta, gaussian, key, model_step, plan, publish, tree};

fn ledger(plan: Plan) -> Ledger<MemoryStore> {
    Ledger::create(MemoryStore::new(), plan, key(), 0).unwrap()
}

fn judged(event: &PrivacyEvent) -> Epsilon {
    plan().accountant.judge(event, delta()).unwrap().epsilon
}

#[test]
fn a_statement_has_every_section_that_the_guide_asks_for() {
    let mut ledger = ledger(plan());
    for step in 0..3 {
        let _ = model_step(&mut ledger, step).unwrap();
        let _ = publish(&mut ledger, "clip", step, &gaussian(50.0)).unwrap();
    }
    let statement = Statement::of(&ledger).unwrap();
    let page = statement.to_markdown();
    let sections = [
        "Setting",
        "Data accesses covered",
        "Final output",
        "Unit of privacy",
        "Adjacency",
        "Accounting",
        "Formal statement",
        "Not covered",
    ];
    let at: Vec<_> =
        sections.iter().map(|s| page.find(&format!("\n## {s}\n")).unwrap_or_else(|| panic!("{s}"))).collect();
    assert!(at.is_sorted(), "{at:?}");
    let epsilon = judged(&ledger.event());
    assert_eq!(statement.guarantee.epsilon, epsilon);
    assert!(statement.guarantee.holds && statement.guarantee.basis == Basis::Spent);
    assert!(page.contains(&format!("epsilon = {} and delta = 1e-6", rounded_up(epsilon.get()))), "{page}");
    for words in ["3 of 64 planned steps", "zero-out", "the server", "10000", &ledger.head().to_string()] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
    let json: serde_json::Value = serde_json::to_value(&statement).unwrap();
    assert_eq!(json["guarantee"]["epsilon"], epsilon.get());
    assert_eq!(json["ledger"]["head"], ledger.head().to_string());
}

#[test]
fn p12_evaluation_users_are_said_to_be_unprotected() {
    let page = Statement::of(&ledger(plan())).unwrap().to_markdown();
    assert!(page.contains("held-out evaluation set are not protected"), "{page}");
}

#[test]
fn p12_what_was_released_without_privacy_is_named_and_costs_infinity() {
    let mut ledger = ledger(plan());
    let _ = model_step(&mut ledger, 0).unwrap();
    let what = "the training loss of 100 users";
    let _ = publish(&mut ledger, "loss", 0, &PrivacyEvent::NonPrivate { what: what.into() }).unwrap();
    let statement = Statement::of(&ledger).unwrap();
    assert_eq!(statement.guarantee.epsilon, Epsilon::INFINITE);
    assert!(!statement.guarantee.holds);
    assert_eq!(statement.data_accesses.non_private, [what]);
    let page = statement.to_markdown();
    assert!(page.contains("**No guarantee:** epsilon is infinite") && page.contains(what), "{page}");
    assert_eq!(serde_json::to_value(&statement).unwrap()["guarantee"]["epsilon"], "infinity");
}

#[test]
fn p13_a_simulation_has_no_guarantee() {
    for randomness in [Randomness::Simulated { seed: 5 }, Randomness::SimulatedFloatingPoint { seed: 5 }] {
        let mut ledger = ledger(Plan { randomness, ..plan() });
        let _ = model_step(&mut ledger, 0).unwrap();
        let statement = Statement::of(&ledger).unwrap();
        assert!(!statement.guarantee.holds && statement.guarantee.epsilon == Epsilon::INFINITE);
        assert_eq!(statement.guarantee.epsilon_if_secret, Some(judged(&tree(&[1]))));
        let page = statement.to_markdown();
        assert!(page.contains("No guarantee: simulated") && page.contains("recomputed by whoever knows"), "{page}");
        assert!(!page.contains("differentially private** for"), "{page}");
    }
}

#[test]
fn p14_a_filter_states_its_budget_and_not_what_was_spent() {
    let max_epsilon = Epsilon::new(2.0).unwrap();
    let budget = Budget::zcdp_filter(max_epsilon, delta(), 1).unwrap();
    let mut filtered = ledger(Plan { budget: Some(budget), ..plan() });
    let _ = publish(&mut filtered, "clip", 0, &gaussian(50.0)).unwrap();
    let statement = Statement::of(&filtered).unwrap();
    assert_eq!(statement.guarantee.basis, Basis::Budget);
    assert!((1.999..=2.0).contains(&statement.guarantee.epsilon.get()), "{}", statement.guarantee.epsilon);
    let spent = rounded_up(filtered.epsilon(delta()).unwrap().epsilon.get());
    let page = statement.to_markdown();
    assert!(!page.contains(&spent) && page.contains("however little of it was spent"), "{spent}:\n{page}");

    let mut fixed = ledger(Plan { budget: Some(Budget::Fixed { max_epsilon }), ..plan() });
    let _ = publish(&mut fixed, "clip", 0, &gaussian(50.0)).unwrap();
    let page = Statement::of(&fixed).unwrap().to_markdown();
    assert!(page.contains(&spent) && page.contains("The plan's limit is epsilon = 2"), "{spent}:\n{page}");
    assert!(page.contains("not even when to stop"), "{page}");
}

#[test]
fn p15_imports_are_composed_and_a_sweep_is_stated_twice() {
    let mut before = ledger(plan());
    let _ = model_step(&mut before, 0).unwrap();
    let mut run = ledger(Plan { start: Start::Ledger { head: before.head() }, ..plan() });
    let _ = run.record_import(before.as_import(ImportKind::StartingModel, "the English model", false), 1).unwrap();
    let _ = model_step(&mut run, 0).unwrap();
    let two = judged(&PrivacyEvent::Compose { events: vec![tree(&[1]); 2] });
    assert_eq!(Statement::of(&run).unwrap().guarantee.epsilon, two);

    let mut sibling = Ledger::create(MemoryStore::new(), plan(), SigningKey::from_seed(&[1; 32]), 0).unwrap();
    let _ = model_step(&mut sibling, 0).unwrap();
    let _ = run.record_import(sibling.as_import(ImportKind::SweepRun, "a sibling", true), 2).unwrap();
    let statement = Statement::of(&run).unwrap();
    let three = judged(&PrivacyEvent::Compose { events: vec![tree(&[1]); 3] });
    assert_eq!((statement.guarantee.epsilon, statement.guarantee.sweep_epsilon), (two, Some(three)));
    let page = statement.to_markdown();
    for words in ["the English model", "(not verified)", "one of 2", "which was not verified, is true"] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
}

#[test]
fn p15_public_data_stands_there_with_its_why() {
    let start = Start::Public(PublicData { what: "a web model".into(), why: "its text was published".into() });
    let page = Statement::of(&ledger(Plan { start, unit: Unit::Device, ..plan() })).unwrap().to_markdown();
    assert!(page.contains("a web model") && page.contains("its text was published"), "{page}");
    assert!(page.contains("several devices"), "{page}");
}

#[test]
fn p17_a_statement_carries_the_head_and_says_whether_more_may_come() {
    let mut ledger = ledger(plan());
    assert!(Statement::of(&ledger).unwrap().to_markdown().contains("The ledger is open"));
    let head = ledger.close(Ended::PlanDone, KeyDestroyed::assertion(), NoiseDestroyed::assertion(), 1).unwrap().head;
    let statement = Statement::of(&ledger).unwrap();
    assert_eq!(statement.ledger.head, head);
    assert!(statement.to_markdown().contains("The ledger is closed, and the key"));
}
