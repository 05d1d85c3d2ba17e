//! What a statement says, and what it must never leave out.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]

use crate::ledger_story::{delta, gaussian, key, model_plan, model_step, plan, publish, tree};
use ledger::{
    Aggregation, Budget, DataSource, Ended, Import, ImportKind, KeyDestroyed, Ledger, MemoryStore, NoiseDestroyed,
    Plan, PublicData, SigningKey, Start, Unit,
    statement::{Basis, Statement, rounded_up},
};
use privacy::{Epsilon, PrivacyEvent, rng::Randomness};

fn ledger(plan: Plan) -> Ledger<MemoryStore> {
    Ledger::create(MemoryStore::new(), plan, key(), 0).unwrap()
}

/// A ledger of the model alone, with so many of the planned steps released.
fn after(plan: Plan, steps: u64) -> Ledger<MemoryStore> {
    let mut ledger = ledger(plan);
    for step in 0..steps {
        let _ = model_step(&mut ledger, step).unwrap();
    }
    ledger
}

fn close(ledger: &mut Ledger<MemoryStore>, because: Ended) {
    let _ = ledger.close(because, KeyDestroyed::assertion(), NoiseDestroyed::assertion(), 9).unwrap();
}

fn judged(event: &PrivacyEvent) -> Epsilon {
    plan().accountant.judge(event, delta()).unwrap().epsilon
}

#[test]
fn a_statement_has_every_section_that_the_guide_asks_for() {
    let ledger = after(model_plan(3), 3);
    let statement = Statement::of(&ledger).unwrap();
    let page = statement.to_markdown();
    let sections = [
        "Setting",
        "Data",
        "Data accesses covered",
        "Final output",
        "How the model was chosen",
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
    for words in ["3 of 3 planned steps", "zero-out", "the server", "10000", &ledger.head().to_string()] {
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
        let ledger = after(Plan { randomness, ..model_plan(1) }, 1);
        let statement = Statement::of(&ledger).unwrap();
        assert!(!statement.guarantee.holds && statement.guarantee.epsilon == Epsilon::INFINITE);
        assert_eq!(statement.guarantee.epsilon_if_secret, Some(judged(&tree(&[1]))));
        let page = statement.to_markdown();
        assert!(page.contains("No guarantee: simulated") && page.contains("recomputed by anyone who knows"), "{page}");
        assert!(!page.contains("differentially private** for"), "{page}");
        assert_eq!((statement.guarantee.rho, statement.guarantee.planned_epsilon), (None, None));
        let found = serde_json::to_value(ledger.verify(&[], None).unwrap()).unwrap();
        assert!(found.get("judgement").is_none() && found["judgement_if_secret"]["epsilon"].is_number(), "{found}");
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
    assert!(!page.contains(&spent) && page.contains("even if less was spent"), "{spent}:\n{page}");

    let mut fixed = after(Plan { budget: Some(Budget::Fixed { max_epsilon }), ..model_plan(2) }, 1);
    close(&mut fixed, Ended::BudgetSpent);
    let page = Statement::of(&fixed).unwrap().to_markdown();
    let spent = rounded_up(judged(&tree(&[1])).get());
    assert!(page.contains(&spent) && page.contains("The plan's limit is epsilon = 2"), "{spent}:\n{page}");
    assert!(page.contains("the plan was fixed in advance"), "{page}");
}

#[test]
fn p15_what_a_run_started_from_is_composed() {
    let before = after(model_plan(1), 1);
    let mut run = ledger(Plan { start: Start::Ledger { head: before.head() }, ..model_plan(1) });
    let _ = run.record_import(before.as_import(ImportKind::StartingModel, "the English model", false), 1).unwrap();
    let _ = model_step(&mut run, 0).unwrap();
    let statement = Statement::of(&run).unwrap();
    assert_eq!(statement.guarantee.epsilon, judged(&PrivacyEvent::Compose { events: vec![tree(&[1]); 2] }));
    let page = statement.to_markdown();
    for words in ["the English model", "(not verified)", "which was not verified, is true"] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
}

/// As many other runs of a sweep as are wanted, each done.
fn siblings(count: u8, plan: &Plan) -> Vec<Import> {
    let sibling = |seed: u8| {
        let mut sibling =
            Ledger::create(MemoryStore::new(), plan.clone(), SigningKey::from_seed(&[seed; 32]), 0).unwrap();
        for step in 0..plan.phases[0].rounds {
            let _ = model_step(&mut sibling, step).unwrap();
        }
        sibling.as_import(ImportKind::SweepRun, format!("sibling {seed}"), true)
    };
    (0..count).map(sibling).collect()
}

/// A model that was the best of four runs was stated with the epsilon of one of them: 4.85 where the choice cost 9.34.
#[test]
fn p22_who_picks_among_runs_states_the_cost_of_all() {
    let plan = model_plan(1);
    let mut run = after(plan.clone(), 1);
    for import in siblings(3, &plan) {
        let _ = run.record_import(import, 2).unwrap();
    }
    let (one, four) = (judged(&tree(&[1])), judged(&PrivacyEvent::Compose { events: vec![tree(&[1]); 4] }));
    assert!(four.get() > 1.5 * one.get());
    let statement = Statement::of(&run).unwrap();
    assert_eq!((statement.guarantee.epsilon, statement.guarantee.sweep_runs), (four, 3));
    assert_eq!(statement.guarantee.epsilon_of_this_run_alone, Some(one));
    let rho = plan.accountant.judge(&statement.accounting.event, delta()).unwrap().rho;
    assert_eq!(statement.guarantee.rho, rho);
    let page = statement.to_markdown();
    let (all, alone) = (rounded_up(four.get()), rounded_up(one.get()));
    for words in [
        &format!("**({all}, 1e-6)-differentially private** for each user, all 4 runs of its sweep counted."),
        &format!("epsilon = {all} and delta = 1e-6"),
        &format!("This run alone, had it not been chosen among them, would have epsilon = {alone}"),
        "chosen among 4",
    ] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
    assert_eq!(page.matches(&alone).count(), 1, "once, and not as the guarantee: {page}");

    // Also where nothing is guaranteed, what would be is that of all.
    let plan = Plan { randomness: Randomness::Simulated { seed: 5 }, ..plan };
    let mut run = after(plan.clone(), 1);
    for import in siblings(3, &plan) {
        let _ = run.record_import(import, 2).unwrap();
    }
    let guarantee = Statement::of(&run).unwrap().guarantee;
    assert_eq!((guarantee.epsilon_if_secret, guarantee.epsilon_of_this_run_alone), (Some(four), None));
}

/// Whoever stops when they like what they see has chosen by released values: a run of 64 steps that was stopped after 2 was
/// stated with the epsilon of 2.
#[test]
fn p23_a_run_that_was_ended_by_hand_states_its_whole_plan() {
    let whole = judged(&tree(&[64]));
    let open = after(model_plan(64), 2);
    let by = |because| {
        let mut ledger = after(model_plan(64), 2);
        close(&mut ledger, because);
        ledger
    };
    for (ledger, words) in [
        (open, "The run has not finished"),
        (by(Ended::ByHand), "ended by hand"),
        (by(Ended::TargetReached), "reached its target accuracy"),
        // What the plan does not say cannot have ended it.
        (by(Ended::BudgetSpent), "whole plan"),
        (by(Ended::PlanDone), "whole plan"),
    ] {
        let statement = Statement::of(&ledger).unwrap();
        assert_eq!((statement.guarantee.epsilon, statement.guarantee.basis), (whole, Basis::Plan), "{words}");
        assert_eq!(ledger.verify(&[], None).unwrap().judgement.unwrap().epsilon, whole);
        let page = statement.to_markdown();
        assert!(page.contains(words) && page.contains("for the whole plan, even if less"), "{words}:\n{page}");
        assert!(!page.contains(&rounded_up(judged(&tree(&[2])).get())), "what was spent is not guaranteed: {page}");
    }
    let mut done = after(model_plan(2), 2);
    assert_eq!(Statement::of(&done).unwrap().guarantee.basis, Basis::Spent, "nothing more can come");
    close(&mut done, Ended::PlanDone);
    let statement = Statement::of(&done).unwrap();
    assert_eq!((statement.guarantee.epsilon, statement.guarantee.basis), (judged(&tree(&[2])), Basis::Spent));
    assert!(statement.to_markdown().contains("The model is the last of the run, as planned."));
}

/// A fixed limit ends a run where its plan says, whatever was released, so what was spent holds; and it holds for whoever
/// stops before.
#[test]
fn p23_a_fixed_limit_bounds_a_plan_that_would_exceed_it() {
    let max_epsilon = judged(&tree(&[3]));
    assert!(judged(&tree(&[64])) > max_epsilon);
    let plan = Plan { budget: Some(Budget::Fixed { max_epsilon }), ..model_plan(64) };
    let mut ledger = after(plan.clone(), 1);
    assert_eq!(Statement::of(&ledger).unwrap().guarantee.epsilon, max_epsilon);
    close(&mut ledger, Ended::BudgetSpent);
    let guarantee = Statement::of(&ledger).unwrap().guarantee;
    assert_eq!((guarantee.epsilon, guarantee.basis), (judged(&tree(&[1])), Basis::Spent));
    let mut by_hand = after(plan, 1);
    close(&mut by_hand, Ended::ByHand);
    assert_eq!(Statement::of(&by_hand).unwrap().guarantee.epsilon, max_epsilon);
}

/// Releases with less noise than planned cost more than the plan says.
#[test]
fn p23_less_noise_than_planned_is_not_covered_by_the_plan() {
    let mut ledger = ledger(plan());
    let loud = gaussian(0.2);
    let _ = publish(&mut ledger, "clip", 0, &loud).unwrap();
    assert!(judged(&loud) > judged(&plan().event()));
    assert_eq!(Statement::of(&ledger).unwrap().guarantee.epsilon, judged(&loud));
}

#[test]
fn p23_a_made_up_crowd_has_nobody_to_protect() {
    let data = DataSource::MadeUp { what: "a crowd of sentences".into() };
    let page = Statement::of(&after(Plan { data, ..model_plan(1) }, 1)).unwrap().to_markdown();
    let headline = page.lines().nth(2).unwrap();
    assert!(headline.contains("in synthetic data") && headline.contains("nobody real is protected"), "{page}");
    assert!(page.contains("Synthetic: a crowd of sentences."), "{page}");
    let page = Statement::of(&after(model_plan(1), 1)).unwrap().to_markdown();
    assert!(page.contains("Text of people: the keyboards") && !page.contains("nobody real"), "{page}");
}

#[test]
fn p23_who_is_trusted_with_what_is_said() {
    let of = |plan: Plan| Statement::of(&ledger(plan)).unwrap().to_markdown();
    let limited = of(plan());
    assert!(limited.contains("the limits on who takes part and how often, and the declared number of participants, were enforced by the server"), "{limited}");
    assert!(limited.contains("devices follow the protocol") && limited.contains("checks its norm"), "{limited}");
    assert!(limited.contains("it spends privacy again") && !limited.contains("amplification"), "{limited}");
    assert!(limited.contains("behaves like keyhush 0.1.0"), "{limited}");
    let rate = privacy::SamplingRate::new(0.01).unwrap();
    let mut sampled = Plan { adjacency: privacy::Adjacency::AddOrRemove, ..model_plan(4) };
    sampled.phases[0].participation = privacy::Participation::Poisson { rate };
    sampled.phases[0].event = PrivacyEvent::poisson(rate, privacy::NoiseMultiplier::new(1.0).unwrap()).times(4);
    let aggregation = Aggregation::Secure { protocol: "masks".into(), sees_updates: None, sees_sum: None };
    let sampled = of(Plan { aggregation, ..sampled });
    for words in [
        "the users of each round were sampled as stated, by the server; nobody else checks it",
        "Amplification by sampling does not hold",
        "with its own noise",
    ] {
        assert!(sampled.contains(words), "{words}:\n{sampled}");
    }
}

/// A simulation of secure aggregation said both that nobody sees single updates and that the simulator sees everything.
#[test]
fn who_sees_single_updates_under_secure_aggregation_is_said_once() {
    let page = |sees_updates: Option<&str>, sees_sum: Option<&str>| {
        let [sees_updates, sees_sum] = [sees_updates, sees_sum].map(|who| who.map(str::to_owned));
        let aggregation = Aggregation::Secure { protocol: "masks".into(), sees_updates, sees_sum };
        Statement::of(&ledger(Plan { aggregation, ..plan() })).unwrap().to_markdown()
    };
    for sum in [Some("the server"), None] {
        let simulated = page(Some("the simulator"), sum);
        assert!(simulated.contains("the protocol shows single updates to nobody, but the simulator sees them all"));
        assert!(simulated.contains("in this simulation everything is visible to the simulator"), "{simulated}");
        for wrong in ["seen by nobody", "nobody sees single updates", "the sum of a round is visible to"] {
            assert!(!simulated.contains(wrong), "{wrong}: {simulated}");
        }
    }
    let real = page(None, Some("the server"));
    assert!(real.contains("Nobody sees single updates; the sum before noise is seen by the server"), "{real}");
    assert!(real.contains("the sum of a round is visible to the server") && !real.contains("simulat"), "{real}");
    let distributed = page(None, None);
    assert!(distributed.contains("nobody sees single updates, or a sum without noise"), "{distributed}");
}

#[test]
fn p21_data_that_changed_in_the_midst_of_a_run_is_said() {
    let mut ledger = after(model_plan(2), 1);
    let _ = ledger.record_data_changed("a user asked to be erased", 3).unwrap();
    let statement = Statement::of(&ledger).unwrap();
    assert_eq!(statement.data_accesses.data_changes[0].why, "a user asked to be erased");
    assert!(statement.to_markdown().contains("changed during the run, and the run was resumed: a user asked"));
    assert_eq!(ledger.verify(&[], None).unwrap().data_changes.len(), 1);
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
    let mut ledger = after(model_plan(1), 1);
    assert!(Statement::of(&ledger).unwrap().to_markdown().contains("The ledger is open"));
    assert_eq!(ledger.verify(&[], None).unwrap().closing, None);
    close(&mut ledger, Ended::PlanDone);
    let statement = Statement::of(&ledger).unwrap();
    assert_eq!(statement.ledger.head, ledger.head());
    let page = statement.to_markdown();
    for words in [
        "The ledger is closed: the plan was completed. Nothing can be added.",
        "The noise key, and everything that could draw the noise again, was destroyed.",
        "The pseudonym key was destroyed.",
        "a backup or snapshot of the secrets undoes this",
    ] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
    let closing = ledger.verify(&[], None).unwrap().closing.unwrap();
    assert!(closing.because == Ended::PlanDone && closing.noise_destroyed);
}
