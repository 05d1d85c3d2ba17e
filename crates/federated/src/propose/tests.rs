//! Tests of proposals: the papers' numbers, and properties that all proposals must have.

use super::*;

fn epsilon(value: f64) -> Epsilon {
    Epsilon::new(value).unwrap()
}

fn refused(ask: &Ask) -> (&'static str, String) {
    match propose(ask) {
        Err(ProposeError::Refused { field, problem }) => (field, problem),
        other => panic!("{ask:?}: {other:?}"),
    }
}

/// Xu et al. 2023, Table 2: rounds, MinS, MaxP and population (in Table 1 and the caption) with the printed epsilon need their
/// noise multiplier 7 at their report goal of 6500.
#[test]
fn the_models_of_xu_et_al_come_out() {
    for (rounds, min_s, max_p, population, printed) in [
        (1170, 206, 5, 3_240_000, 9.01),
        (1300, 290, 4, 2_790_000, 7.31),
        (1360, 188, 5, 3_320_000, 9.01),
        (870, 327, 3, 6_630_000, 5.13),
        (430, 54, 7, 830_000, 9.56),
    ] {
        let ask = Ask {
            delta: Delta::new(1e-10).unwrap(),
            cohort: Some(SERVED),
            min_separation: Some(min_s),
            max_participations: Some(max_p),
            mechanism: Some(MechanismKind::TREE),
            ..Ask::new(epsilon(printed), population, rounds).unwrap()
        };
        let chosen = propose(&ask).unwrap().chosen;
        assert!((chosen.noise_multiplier / 7.0 - 1.0).abs() < 0.01, "{chosen:?}");
        assert_eq!((chosen.min_separation, chosen.max_participations), (Some(min_s), Some(max_p)));
        // 7 of 6500 is 0.54 of 500.
        assert!((chosen.times_bearable() - 1.0).abs() < 0.02, "{chosen:?}");
        assert!((chosen.epsilon_if_bearable.get() / printed - 1.0).abs() < 0.02, "{chosen:?}");
    }
}

/// "The MinS of es-ES is upper bounded by 4.21M/6500 ~ 647"; "for small population of around 10^6, MinS has to be smaller than
/// 153 rounds" (Xu et al. 2023, section 2.2).
#[test]
fn min_s_is_what_the_population_allows() {
    for (population, bound) in [(4_210_000, 647), (1_000_000, 153)] {
        let ask = Ask {
            cohort: Some(SERVED),
            mechanism: Some(MechanismKind::TREE),
            ..Ask::new(epsilon(20.0), population, 2000).unwrap()
        };
        let chosen = propose(&ask).unwrap().chosen;
        // Rounds strictly between, so one less.
        assert_eq!(chosen.min_separation, Some(bound - 1));
        assert_eq!(chosen.max_participations, Some(2000u64.div_ceil(bound)));
    }
}

/// Andrew et al. 2021, Table 1, SO-NWP: 13958 of 10^6 users for (5, n^-1.1), by an older accountant and for replaced users,
/// both of which ask for more.
#[test]
fn the_cohort_of_andrew_et_al_comes_out() {
    let ask = Ask {
        largest_cohort: 100_000,
        mechanism: Some(MechanismKind::Gaussian),
        ..Ask::new(epsilon(5.0), 1_000_000, 1500).unwrap()
    };
    let Proposal { chosen, warnings, .. } = propose(&ask).unwrap();
    assert!((0.4..1.0).contains(&(chosen.cohort as f64 / 13958.0)), "{chosen:?}");
    assert!(chosen.is_bearable() && chosen.times_bearable() > 0.95, "{chosen:?}");
    assert!(warnings.iter().any(|w| w.contains("sampled at random")), "{warnings:?}");
}

#[test]
fn a_larger_population_needs_no_more_noise() {
    for mechanism in MechanismKind::noises() {
        let mut before = f64::INFINITY;
        for population in [100_000, 200_000, 1_000_000, 10_000_000] {
            let ask = Ask { delta: Delta::new(1e-9).unwrap(), ..Ask::new(epsilon(4.0), population, 400).unwrap() };
            let needed = Family::new(&ask, mechanism).unwrap().at(1000).unwrap();
            assert!(needed.model_noise <= before, "{mechanism:?}, {population}: {needed:?}");
            before = needed.model_noise;
        }
        assert!(before.is_finite());
    }
}

#[test]
fn the_smallest_report_goal_that_will_do_is_proposed() {
    let ask = Ask::new(epsilon(8.0), 10_000_000, 1000).unwrap();
    let Proposal { chosen, best, reason, trade_off, timer_hours, .. } = propose(&ask).unwrap();
    assert_eq!(chosen.mechanism, MechanismKind::named("blt").unwrap(), "{reason}");
    assert!(chosen.is_bearable() && chosen.cohort < SERVED, "{chosen:?}");
    let less = Family::new(&ask, MechanismKind::named("blt").unwrap()).unwrap().at(chosen.cohort * 9 / 10).unwrap();
    assert!(!less.is_bearable(), "{less:?}");
    let tree = best.iter().find(|one| one.mechanism == MechanismKind::TREE).unwrap();
    assert!(tree.cohort > chosen.cohort && reason.contains("the tree would need"), "{reason}");
    // Figure 4 of Xu et al.: at the same z / m a larger report goal is cheaper.
    let trees: Vec<_> = trade_off.iter().filter(|one| one.mechanism == MechanismKind::TREE).collect();
    assert!(trees.len() >= 6 && trees.last().unwrap().cohort == SERVED);
    assert!(trees.windows(2).all(|pair| pair[1].rho_if_bearable < pair[0].rho_if_bearable));
    assert_eq!((chosen.max_participations, timer_hours), (Some(1), None), "nobody comes back");
}

#[test]
fn a_timer_is_in_days_where_it_is_one() {
    let timer = |rounds_per_day| {
        let cohort = Some(SERVED);
        let ask = Ask { cohort, rounds_per_day, ..Ask::new(epsilon(9.0), 3_240_000, 930).unwrap() };
        propose(&ask).unwrap().timer_hours.unwrap()
    };
    // MinS is 497.
    assert_eq!([86.0, 1000.0].map(timer), [120.0, 11.9]);
}

/// Limits on participation jump with the report goal, and with them the noise: what is proposed is the smallest all the same.
#[test]
fn a_population_that_is_used_up_is_no_trap() {
    let mechanism = Some(MechanismKind::TREE);
    let ask = Ask { mechanism, noise_ratio: Some(0.01), ..Ask::new(epsilon(10.0), 10_000, 200).unwrap() };
    let Proposal { chosen, trade_off, .. } = propose(&ask).unwrap();
    assert!(!trade_off.last().unwrap().is_bearable(), "all of them are too many: {trade_off:?}");
    assert!(trade_off.iter().filter(|one| one.is_bearable()).all(|one| one.cohort >= chosen.cohort));
    assert!(chosen.is_bearable(), "{chosen:?}");
}

#[test]
fn where_the_system_is_too_small_there_is_more_noise_and_a_warning() {
    let ask = Ask { largest_cohort: 2000, ..Ask::new(epsilon(4.0), 2_000_000, 1500).unwrap() };
    let Proposal { chosen, warnings, .. } = propose(&ask).unwrap();
    assert_eq!(chosen.cohort, 2000);
    assert!(!chosen.is_bearable());
    assert!(warnings[0].contains("at most") && warnings[0].contains("rounds"), "{warnings:?}");
}

#[test]
fn what_cannot_be_had_is_refused_with_what_can() {
    let ask = Ask::new(epsilon(5.0), 100_000, 1000).unwrap();
    let (field, why) = refused(&Ask { cohort: Some(500), max_participations: Some(3), ..ask.clone() });
    assert!(field == "rounds" && why.contains("at most 600 rounds") && why.contains("report goal of 300"), "{why}");
    let (field, why) = refused(&Ask { cohort: Some(500), min_separation: Some(300), ..ask.clone() });
    assert!(field == "min_separation" && why.contains("at most 199"), "{why}");
    assert_eq!(refused(&Ask { cohort: Some(200_000), ..ask.clone() }).0, "cohort");
    assert_eq!(refused(&Ask { max_participations: Some(1), rounds: 200_000, ..ask.clone() }).0, "rounds");
    let (field, why) = refused(&Ask::new(epsilon(0.3), 1_000_000, 2000).unwrap());
    assert!(field == "epsilon" && why.contains("possible instead: an epsilon of"), "{why}");
    for (wrong, field) in [
        (Ask { epsilon: Epsilon::INFINITE, ..ask.clone() }, "epsilon"),
        (Ask { delta: Delta::new(1e-4).unwrap(), ..ask.clone() }, "delta"),
        (Ask { rounds: 0, ..ask.clone() }, "rounds"),
        (Ask { cohort: Some(0), ..ask.clone() }, "cohort"),
        (Ask { noise_ratio: Some(0.1), ..ask.clone() }, "noise_ratio"),
        (Ask { mechanism: Some(MechanismKind::None), ..ask.clone() }, "mechanism"),
        (Ask { mechanism: Some(MechanismKind::Gaussian), min_separation: Some(3), ..ask.clone() }, "mechanism"),
        (Ask { rounds_per_day: f64::NAN, ..ask.clone() }, "rounds_per_day"),
    ] {
        assert_eq!(refused(&wrong).0, field);
    }
    assert!(Ask::new(epsilon(1.0), 1, 1).is_err());
}

#[test]
fn report_goals_have_two_digits() {
    assert_eq!([0, 1, 99, 100, 101, 189, 190, 191].map(two_digits), [1, 1, 99, 100, 110, 990, 1000, 1100]);
    assert_eq!([1, 99, 100, 101, 6500].map(|n| two_digits(place(n))), [1, 99, 100, 110, 6500]);
    assert_eq!(three_digits(1e6f64.powf(-1.1)), 2.51e-7);
}
