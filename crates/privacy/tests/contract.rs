//! What every accountant promises, whatever it computes with, and how events are written.

use crate::shorthand::{ACCOUNTANTS, correlated, delta, fixed_size, gaussian, noise, poisson, separated};
use keyhush_privacy::{
    AccountError, AccountantKind, Adjacency, Epsilon, Noise, NoiseMatrix, Participation, PrivacyEvent, Rho, Segment,
    event::{DiscreteGaussian, EventError},
};

fn skellam() -> PrivacyEvent {
    PrivacyEvent::Skellam {
        adjacency: Adjacency::AddOrRemove,
        variance: 400.0,
        l1_sensitivity: 40.0,
        l2_sensitivity: 20.0,
    }
}

fn distributed_skellam() -> PrivacyEvent {
    PrivacyEvent::DistributedSkellam {
        adjacency: Adjacency::ZeroOut,
        local_variance: 40.0,
        honest_survivors: 10,
        l1_sensitivity: 40.0,
        l2_sensitivity: 20.0,
    }
}

fn bare_rho() -> PrivacyEvent {
    PrivacyEvent::Zcdp { adjacency: Adjacency::AddOrRemove, rho: Rho::new(0.25).expect("a legal rho") }
}

fn leak() -> PrivacyEvent {
    PrivacyEvent::NonPrivate { what: "the true norms".into() }
}

/// At least one of every kind.
fn one_of_each() -> Vec<PrivacyEvent> {
    let discrete = DiscreteGaussian::new(64.0, 16.0).expect("legal noise");
    let blt = NoiseMatrix::Blt { buffer_decay: vec![0.9, 0.5], output_scale: vec![0.2, 0.1] };
    let completed = [Segment::completed(30), Segment::of(10)];
    vec![
        leak(),
        gaussian(1.5),
        PrivacyEvent::gaussian(Adjacency::ZeroOut, Noise::DiscreteGaussian(discrete)),
        poisson(0.01, 1.0, 10),
        fixed_size(1000, 10, 1.0, 10),
        correlated(NoiseMatrix::Tree, &completed, separated(5, 3), 2.0),
        correlated(NoiseMatrix::Banded { coefficients: vec![1.0, 0.5] }, &[Segment::of(8)], separated(2, 2), 2.0),
        correlated(blt, &[Segment::of(8), Segment::of(9)], Participation::Once, 2.0),
        skellam(),
        distributed_skellam(),
        PrivacyEvent::LimitedRounds { rounds: 9, participation: separated(2, 3), event: Box::new(skellam()) },
        bare_rho(),
        gaussian(3.0).times(7),
        PrivacyEvent::Compose { events: vec![gaussian(3.0), poisson(0.5, 2.0, 3)] },
    ]
}

/// The event alone and inside others.
fn nested(event: &PrivacyEvent) -> Vec<PrivacyEvent> {
    let compose = |events: Vec<PrivacyEvent>| PrivacyEvent::Compose { events };
    vec![
        event.clone(),
        event.clone().times(3),
        compose(vec![event.clone()]),
        compose(vec![compose(vec![event.clone().times(2)]).times(2)]).times(5),
    ]
}

#[test]
fn no_events_cost_nothing() {
    let nothing = PrivacyEvent::Compose { events: vec![] };
    for event in [nothing.clone(), nothing.clone().times(9), gaussian(0.1).times(0), leak().times(0)] {
        for accountant in ACCOUNTANTS {
            let judged = accountant.judge(&event, delta(1e-9)).unwrap_or_else(|e| panic!("{accountant}: {e}"));
            assert_eq!(judged.epsilon, Epsilon::ZERO, "{accountant} {event:?}");
        }
    }
}

#[test]
fn a_non_private_event_costs_infinity_wherever_it_stands() {
    for accountant in ACCOUNTANTS {
        for event in nested(&leak()) {
            let beside = PrivacyEvent::Compose { events: vec![gaussian(5.0), event.clone(), gaussian(4.0)] };
            for event in [event, beside] {
                let judged = accountant.judge(&event, delta(1e-9)).unwrap_or_else(|e| panic!("{accountant}: {e}"));
                assert_eq!(judged.epsilon, Epsilon::INFINITE, "{accountant} {event:?}");
            }
        }
    }
}

#[test]
fn what_is_not_private_has_no_rho_and_no_finite_lower_bound() {
    for accountant in ACCOUNTANTS {
        for event in [leak(), PrivacyEvent::Compose { events: vec![gaussian(5.0), leak()] }] {
            let judged = accountant.judge(&event, delta(1e-9)).unwrap();
            assert_eq!(judged.rho, None, "{accountant} {event:?}");
            assert!(judged.epsilon_lower.is_none_or(|lower| !lower.is_finite()), "{accountant} {event:?}");
        }
    }
}

#[test]
fn an_unsupported_event_is_refused_by_name_wherever_it_stands() {
    use AccountantKind::{Moments, Pld, Zcdp};
    let fixed = || fixed_size(1000, 10, 1.0, 1);
    for (accountant, event, name) in [
        (Moments, fixed(), "fixed-size"),
        (Moments, skellam(), "skellam"),
        (Moments, distributed_skellam(), "distributed skellam"),
        (Moments, bare_rho(), "zcdp"),
        (Pld, fixed(), "fixed-size"),
        (Pld, skellam(), "skellam"),
        (Pld, distributed_skellam(), "distributed skellam"),
        (Pld, bare_rho(), "zcdp"),
        (Zcdp, poisson(0.1, 1.0, 1), "poisson"),
        (Zcdp, fixed(), "fixed-size"),
    ] {
        for event in nested(&event) {
            let refused = accountant.judge(&event, delta(1e-9)).unwrap_err();
            assert!(matches!(refused, AccountError::Unsupported { .. }), "{accountant} {event:?}: {refused}");
            let message = refused.to_string();
            assert!(message.contains(accountant.name()) && message.contains(name), "{accountant} {name}: {message}");
        }
    }
}

#[test]
fn whatever_is_not_refused_has_a_finite_cost_that_says_who_found_it() {
    for event in one_of_each().iter().skip(1) {
        for accountant in ACCOUNTANTS {
            match accountant.judge(event, delta(1e-6)) {
                Ok(judged) => {
                    assert!(judged.epsilon.is_finite() && judged.epsilon > Epsilon::ZERO, "{accountant} {event:?}");
                    assert!(judged.epsilon_lower.is_none_or(|lower| lower <= judged.epsilon), "{accountant} {event:?}");
                    assert!(judged.adjacency.is_some(), "{accountant} {event:?}");
                    assert_ne!(judged.accountant, AccountantKind::Best, "{event:?}");
                    assert!(accountant == AccountantKind::Best || judged.accountant == accountant);
                }
                Err(refused) => {
                    assert!(matches!(refused, AccountError::Unsupported { .. }), "{accountant} {event:?}: {refused}");
                    assert!(!matches!(accountant, AccountantKind::Rdp | AccountantKind::Best), "{event:?}: {refused}");
                }
            }
        }
    }
}

#[test]
fn best_is_never_above_another() {
    for event in one_of_each() {
        let best = AccountantKind::Best.judge(&event, delta(1e-6)).unwrap().epsilon;
        for accountant in ACCOUNTANTS {
            if let Ok(judged) = accountant.judge(&event, delta(1e-6)) {
                assert!(best.get() <= judged.epsilon.get() * (1.0 + 1e-9), "{accountant} {event:?}: {best} {judged:?}");
            }
        }
    }
}

#[test]
fn repeating_is_composing() {
    for event in one_of_each() {
        let (repeated, listed) =
            (event.clone().times(3), PrivacyEvent::Compose { events: vec![event.clone(), event.clone(), event] });
        for accountant in ACCOUNTANTS {
            assert_eq!(
                accountant.judge(&repeated, delta(1e-6)).map(|j| j.epsilon),
                accountant.judge(&listed, delta(1e-6)).map(|j| j.epsilon),
                "{accountant}"
            );
        }
    }
}

#[test]
fn what_contradicts_itself_is_refused_by_every_accountant() {
    let sampled = |participation| PrivacyEvent::SampledGaussian {
        adjacency: Adjacency::AddOrRemove,
        participation,
        noise: noise(1.0).into(),
    };
    let tree = |segments: &[Segment], participation| correlated(NoiseMatrix::Tree, segments, participation, 1.0);
    let poisson_rate = Participation::Poisson { rate: 0.5.try_into().unwrap() };
    let too_many = gaussian(1.0).times(u64::MAX).times(2);
    let bad_skellam = |variance, l1_sensitivity, l2_sensitivity| PrivacyEvent::Skellam {
        adjacency: Adjacency::AddOrRemove,
        variance,
        l1_sensitivity,
        l2_sensitivity,
    };
    for event in [
        sampled(Participation::Once),
        sampled(separated(5, 5)),
        fixed_size(10, 11, 1.0, 1),
        fixed_size(10, 0, 1.0, 1),
        tree(&[], Participation::Once),
        tree(&[Segment::of(0)], Participation::Once),
        tree(&[Segment::of(4)], separated(5, 0)),
        tree(&[Segment::of(4)], poisson_rate),
        tree(&[Segment { rounds: 4, completed_to: Some(3) }], Participation::Once),
        tree(&[Segment::of(u64::MAX), Segment::of(1)], Participation::Once),
        bad_skellam(0.0, 1.0, 1.0),
        bad_skellam(f64::NAN, 1.0, 1.0),
        bad_skellam(1.0, -1.0, 1.0),
        bad_skellam(1.0, 1.0, f64::INFINITY),
        bad_skellam(1.0, 1.0, 2.0),
        too_many,
    ] {
        for accountant in ACCOUNTANTS {
            let refused = accountant.judge(&event, delta(1e-6));
            assert!(matches!(refused, Err(AccountError::Event(_))), "{accountant} {event:?}: {refused:?}");
        }
    }
    assert_eq!(gaussian(1.0).times(u64::MAX).times(2).flatten().unwrap_err(), EventError::TooMany);
}

#[test]
fn extreme_but_legal_events_get_an_answer() {
    for event in [
        gaussian(1e300),
        gaussian(1e-300),
        gaussian(1e-3).times(u64::MAX),
        gaussian(1e6).times(u64::MAX),
        poisson(1e-300, 1.0, 1),
        poisson(1e-12, 0.5, u64::MAX),
        poisson(1.0, 1.0, 10),
        poisson(1.0 - f64::EPSILON, 1.0, 10),
        poisson(0.5, 1e6, 1000),
        poisson(0.5, 0.05, 10),
        fixed_size(u64::MAX, 1, 1.0, u64::MAX),
        fixed_size(1, 1, 1.0, 1),
        fixed_size(1000, 10, 1e-6, 5),
        fixed_size(1000, 10, 1e6, 5),
    ] {
        for at in [1e-300, 1e-9, 0.5, 1.0 - 1e-16] {
            for accountant in ACCOUNTANTS {
                match accountant.judge(&event, delta(at)) {
                    Ok(judged) => assert!(judged.epsilon.get() >= 0.0, "{accountant} {event:?}"),
                    Err(refused) => assert!(
                        matches!(refused, AccountError::Unsupported { .. } | AccountError::NoLattice { .. })
                            && !matches!(accountant, AccountantKind::Rdp | AccountantKind::Best),
                        "{accountant} {event:?}: {refused}"
                    ),
                }
            }
        }
    }
}

#[test]
fn extreme_but_legal_runs_of_correlated_noise_get_an_answer() {
    let blt = NoiseMatrix::Blt { buffer_decay: vec![0.9], output_scale: vec![0.5] };
    let banded = NoiseMatrix::Banded { coefficients: vec![1.0, 0.5] };
    let (few, many, all) = (Participation::Once, separated(3, 100), separated(1, u64::MAX));
    for (matrix, segments, limits) in [
        (NoiseMatrix::Tree, vec![Segment::of(u64::MAX)], few),
        (NoiseMatrix::Tree, vec![Segment::of(1 << 50)], all),
        (NoiseMatrix::Tree, vec![Segment::of(3); 300], all),
        (NoiseMatrix::Tree, vec![Segment::of(5); 3000], many),
        (banded.clone(), vec![Segment::of(u64::MAX)], few),
        (banded.clone(), vec![Segment::of(1 << 40)], all),
        (banded, vec![Segment::of(5); 3000], many),
        (blt.clone(), vec![Segment::of(1 << 20)], all),
        (blt, vec![Segment::of(5); 3000], many),
    ] {
        let what = format!("{} {:?}... {limits:?}", matrix.name(), segments[0]);
        let judged = AccountantKind::Best.judge(&correlated(matrix, &segments, limits, 1e3), delta(1e-9));
        let judged = judged.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(judged.epsilon > Epsilon::ZERO, "{what}");
    }
}

#[test]
fn every_event_survives_being_written_and_read() {
    for event in one_of_each() {
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<PrivacyEvent>(&json).unwrap(), event, "{json}");
    }
}

/// Ledgers hold these words: they may not change.
#[test]
fn events_are_written_as_they_always_were() {
    for (event, json) in [
        (leak(), r#"{"kind":"non_private","what":"the true norms"}"#),
        (gaussian(1.5), r#"{"kind":"gaussian","adjacency":"add-or-remove","noise":{"gaussian":1.5}}"#),
        (
            poisson(0.25, 2.0, 10),
            r#"{"kind":"repeat","times":10,"event":{"kind":"sampled_gaussian","adjacency":"add-or-remove","participation":{"kind":"poisson","rate":0.25},"noise":{"gaussian":2.0}}}"#,
        ),
        (
            fixed_size(1000, 10, 1.0, 1),
            r#"{"kind":"repeat","times":1,"event":{"kind":"sampled_gaussian","adjacency":"replace-one","participation":{"kind":"fixed_size","population":1000,"cohort":10},"noise":{"gaussian":1.0}}}"#,
        ),
        (
            correlated(NoiseMatrix::Tree, &[Segment::completed(30)], separated(5, 3), 2.0),
            r#"{"kind":"correlated_gaussian","adjacency":"add-or-remove","matrix":{"kind":"tree"},"segments":[{"rounds":30,"completed_to":32}],"participation":{"kind":"min_separation","separation":{"rounds_between":4},"max_participations":3},"noise":{"gaussian":2.0}}"#,
        ),
        (bare_rho(), r#"{"kind":"zcdp","adjacency":"add-or-remove","rho":0.25}"#),
    ] {
        assert_eq!(serde_json::to_string(&event).unwrap(), json);
        assert_eq!(serde_json::from_str::<PrivacyEvent>(json).unwrap(), event);
    }
}

#[test]
fn an_unknown_event_or_field_is_refused_by_name() {
    for (json, named) in [
        (r#"{"kind":"laplace","adjacency":"add-or-remove","scale":1.0}"#, "laplace"),
        (r#"{"kind":"compose","events":[{"kind":"zcdp","adjacency":"add-or-remove","rho":1},{"kind":"sgd"}]}"#, "sgd"),
        (r#"{"kind":"zcdp","adjacency":"add-or-remove","rho":1,"sigma":2}"#, "sigma"),
        (r#"{"kind":"gaussian","adjacency":"add-one","noise":{"gaussian":1}}"#, "add-one"),
        (r#"{"kind":"gaussian","adjacency":"add-or-remove","noise":{"laplace":1}}"#, "laplace"),
        (r#"{"kind":"gaussian","noise":{"gaussian":1}}"#, "adjacency"),
        (
            r#"{"kind":"correlated_gaussian","adjacency":"zero-out","matrix":{"kind":"hadamard"},"segments":[{"rounds":3}],"participation":{"kind":"once"},"noise":{"gaussian":1}}"#,
            "hadamard",
        ),
        (
            r#"{"kind":"sampled_gaussian","adjacency":"zero-out","participation":{"kind":"shuffled"},"noise":{"gaussian":1}}"#,
            "shuffled",
        ),
    ] {
        let refused = serde_json::from_str::<PrivacyEvent>(json).unwrap_err().to_string();
        assert!(refused.contains(named), "{json}: {refused}");
    }
}

#[test]
fn an_illegal_number_inside_an_event_is_refused() {
    for json in [
        r#"{"kind":"gaussian","adjacency":"add-or-remove","noise":{"gaussian":0}}"#,
        r#"{"kind":"gaussian","adjacency":"add-or-remove","noise":{"gaussian":-1}}"#,
        r#"{"kind":"zcdp","adjacency":"add-or-remove","rho":-0.1}"#,
        r#"{"kind":"sampled_gaussian","adjacency":"zero-out","participation":{"kind":"poisson","rate":1.5},"noise":{"gaussian":1}}"#,
        r#"{"kind":"sampled_gaussian","adjacency":"zero-out","participation":{"kind":"poisson","rate":0},"noise":{"gaussian":1}}"#,
        r#"{"kind":"correlated_gaussian","adjacency":"zero-out","matrix":{"kind":"tree"},"segments":[{"rounds":3}],"participation":{"kind":"min_separation","separation":3,"max_participations":2},"noise":{"gaussian":1}}"#,
        r#"{"kind":"correlated_gaussian","adjacency":"zero-out","matrix":{"kind":"tree"},"segments":[{"rounds":-3}],"participation":{"kind":"once"},"noise":{"gaussian":1}}"#,
        r#"{"kind":"repeat","times":-1,"event":{"kind":"zcdp","adjacency":"zero-out","rho":1}}"#,
        r#"{"kind":"repeat","times":1.5,"event":{"kind":"zcdp","adjacency":"zero-out","rho":1}}"#,
    ] {
        assert!(serde_json::from_str::<PrivacyEvent>(json).is_err(), "{json}");
    }
}
