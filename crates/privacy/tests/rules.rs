//! The privacy rules P1 to P8, as far as they concern accounting; each test names its rule.

use crate::shorthand::{
    self, ACCOUNTANTS, assert_close, correlated, delta, epsilon, fixed_size, gaussian, noise, poisson, vectors,
};
use keyhush_privacy::{
    AccountError, AccountantKind, Adjacency, MinSeparation, Noise, NoiseMatrix, Participation, PrivacyEvent, Rho,
    SamplingRate, Segment,
    event::{DiscreteGaussian, EventError},
    participation::ParticipationError,
    sensitivity::of_matrix,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct ExplicitPair {
    population: u64,
    cohort: u64,
    sigma_over_clip: f64,
    rounds: u64,
    delta: f64,
    lower: f64,
    upper: f64,
    dp_accounting_with_sigma_over_clip: f64,
}

/// Under replace-one the sum moves by 2C, so the multiplier is sigma / 2C. With sigma / C the bound is none.
#[test]
fn p1_fixed_size_takes_sigma_over_twice_the_clip() {
    let pair: ExplicitPair = vectors("analytic/fixed_size_pair.json");
    let with = |z: f64| {
        let run = fixed_size(pair.population, pair.cohort, z, pair.rounds);
        epsilon(AccountantKind::Rdp, &run, pair.delta)
    };
    // The theorem's formula says 8.16, as dp_accounting does; that it is never more than without sampling says less.
    assert_eq!(format!("{:.2}", pair.dp_accounting_with_sigma_over_clip), "8.16");
    let unhalved = with(pair.sigma_over_clip);
    assert!(unhalved <= pair.dp_accounting_with_sigma_over_clip * (1.0 + 1e-6));
    assert!(unhalved < pair.lower, "the explicit pair has more than the wrong multiplier says");
    let run = fixed_size(pair.population, pair.cohort, pair.sigma_over_clip / 2.0, pair.rounds);
    for accountant in [AccountantKind::Rdp, AccountantKind::Best] {
        let halved = epsilon(accountant, &run, pair.delta);
        assert!(halved >= pair.upper, "{accountant} says {halved}, and the pair has {}", pair.upper);
    }
}

/// With next to no noise the divergence of a release came out as 0, since the samples it is computed from ended before the loss began, or
/// were not numbers: epsilon was 0, in statements of runs too. A user who is sampled shows by a shift of 1/z standard deviations, so epsilon is about
/// 1/(2 z^2) at least.
#[test]
fn p1_next_to_no_noise_is_not_taken_for_much() {
    for accountant in [AccountantKind::Best, AccountantKind::Rdp, AccountantKind::Pld] {
        for z in [0.1, 0.03, 0.01, 1e-3, 3e-4, 1e-4, 1e-5, 1e-7, 1e-9, 1e-12] {
            for (group, rounds) in [(1, 1), (1, 2), (1, 10), (1, 5000), (2, 1), (2, 10), (10, 3), (64, 2)] {
                let run = poisson(0.01, z, rounds);
                match accountant.judge_group(&run, delta(1e-9), group) {
                    Ok(judged) => {
                        let epsilon = judged.epsilon.get();
                        assert!(
                            epsilon > 0.25 / (z * z),
                            "{accountant}, z {z}, group {group}, {rounds} rounds: {epsilon}"
                        );
                    }
                    // Only the best of them must have an answer: single accountants may refuse.
                    Err(error) => {
                        assert!(accountant != AccountantKind::Best, "z {z}, group {group}, {rounds} rounds: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn p1_pld_refuses_fixed_size() {
    for run in [fixed_size(1000, 950, 5.0, 20), fixed_size(1000, 1000, 5.0, 1), fixed_size(2, 1, 1.0, 1)] {
        let refused = AccountantKind::Pld.judge(&run, delta(1e-6)).unwrap_err();
        assert!(matches!(refused, AccountError::Unsupported { accountant: AccountantKind::Pld, .. }), "{refused}");
        assert!(refused.to_string().contains("fixed-size"), "{refused}");
        // The best accountant takes Renyi's answer, or that of everybody taking part where amplification is weak.
        let best = AccountantKind::Best.judge(&run, delta(1e-6)).unwrap();
        assert_ne!(best.accountant, AccountantKind::Pld);
        assert!(best.epsilon.get() <= epsilon(AccountantKind::Rdp, &run, 1e-6));
    }
}

#[test]
fn p1_sampling_is_refused_under_an_adjacency_it_is_not_analysed_for() {
    let sampled =
        |adjacency, participation| PrivacyEvent::SampledGaussian { adjacency, participation, noise: noise(1.0).into() };
    let fixed = Participation::FixedSize { population: 1000, cohort: 10 };
    let poisson = Participation::Poisson { rate: SamplingRate::new(0.01).unwrap() };
    for (event, legal) in [
        (sampled(Adjacency::AddOrRemove, fixed), false),
        (sampled(Adjacency::ZeroOut, fixed), false),
        (sampled(Adjacency::ReplaceOne, fixed), true),
        (sampled(Adjacency::AddOrRemove, poisson), true),
        (sampled(Adjacency::ZeroOut, poisson), true),
        (sampled(Adjacency::ReplaceOne, poisson), false),
    ] {
        for accountant in ACCOUNTANTS {
            let refused = matches!(
                accountant.judge(&event, delta(1e-6)),
                Err(AccountError::Event(EventError::Adjacency { adjacency, .. })) if Some(adjacency) == adjacency_of(&event)
            );
            assert_eq!(refused, !legal, "{accountant} {event:?}");
        }
    }
}

fn adjacency_of(event: &PrivacyEvent) -> Option<Adjacency> {
    match event {
        PrivacyEvent::SampledGaussian { adjacency, .. } => Some(*adjacency),
        _ => None,
    }
}

#[test]
fn p2_adjacencies_do_not_mix() {
    let under = |adjacency| PrivacyEvent::gaussian(adjacency, noise(2.0));
    let all = [Adjacency::AddOrRemove, Adjacency::ZeroOut, Adjacency::ReplaceOne];
    for first in all {
        for second in all {
            let events = vec![under(first).times(3), PrivacyEvent::Compose { events: vec![under(second)] }];
            for accountant in ACCOUNTANTS {
                let judged = accountant.judge(&PrivacyEvent::Compose { events: events.clone() }, delta(1e-6));
                if first == second {
                    assert_eq!(judged.unwrap().adjacency, Some(first), "{accountant}");
                } else {
                    let message = judged.unwrap_err().to_string();
                    assert!(message.contains(first.name()) && message.contains(second.name()), "{message}");
                }
            }
        }
    }
}

/// Even an event that happened zero times keeps its adjacency, and mixing is refused before anything is judged.
#[test]
fn p2_mixing_is_refused_beside_a_non_private_event_and_at_zero_times() {
    let zero_times = PrivacyEvent::gaussian(Adjacency::ReplaceOne, noise(2.0)).times(0);
    let leak = PrivacyEvent::NonPrivate { what: "a true norm".into() };
    let mixed = PrivacyEvent::Compose { events: vec![leak, gaussian(1.0), zero_times] };
    assert!(matches!(
        AccountantKind::Best.judge(&mixed, delta(1e-6)),
        Err(AccountError::Event(EventError::MixedAdjacencies { .. }))
    ));
}

#[test]
fn p2_a_group_of_k_is_k_times_the_sensitivity() {
    let tree = |z| correlated(NoiseMatrix::Tree, &[Segment::of(930)], shorthand::separated(213, 4), z);
    for accountant in [AccountantKind::Zcdp, AccountantKind::Rdp, AccountantKind::Pld, AccountantKind::Best] {
        for k in [1u32, 2, 5, 64] {
            let kf = f64::from(k);
            let group = |event: &PrivacyEvent| {
                accountant.judge_group(event, delta(1e-8), k).unwrap_or_else(|e| panic!("{accountant}: {e}"))
            };
            for (event, scaled) in [
                (gaussian(40.0).times(3), gaussian(40.0 / kf).times(3)),
                (tree(300.0), tree(300.0 / kf)),
                (PrivacyEvent::Compose { events: vec![tree(300.0), gaussian(50.0)] }, {
                    PrivacyEvent::Compose { events: vec![tree(300.0 / kf), gaussian(50.0 / kf)] }
                }),
            ] {
                let (got, want) = (group(&event), accountant.judge(&scaled, delta(1e-8)).unwrap());
                assert_close(got.epsilon.get(), want.epsilon.get(), 1e-9, &format!("{accountant} {k}"));
                assert_close(got.rho.unwrap().get(), want.rho.unwrap().get(), 1e-12, &format!("{accountant} {k}"));
            }
        }
    }
    let rho = Rho::new(0.1).unwrap();
    let bare = PrivacyEvent::Zcdp { adjacency: Adjacency::AddOrRemove, rho };
    let got = AccountantKind::Zcdp.judge_group(&bare, delta(1e-8), 3).unwrap();
    assert_close(got.rho.unwrap().get(), 0.9, 1e-12, "a bare rho grows with the square");
}

#[test]
fn p2_a_group_of_nobody_or_under_fixed_size_sampling_is_refused() {
    for accountant in ACCOUNTANTS {
        assert!(matches!(accountant.judge_group(&gaussian(1.0), delta(1e-6), 0), Err(AccountError::Group { got: 0 })));
        assert!(accountant.judge_group(&fixed_size(1000, 10, 1.0, 5), delta(1e-6), 2).is_err(), "{accountant}");
    }
}

#[test]
fn p3_a_discrete_gaussian_is_the_gaussian_of_less_variance_in_every_accountant() {
    let (sigma, sensitivity) = (96.0, 24.0);
    let discrete = Noise::DiscreteGaussian(DiscreteGaussian::new(sigma, sensitivity).unwrap());
    let z = (sigma * sigma - 9.0_f64).sqrt() / sensitivity;
    assert_close(discrete.multiplier().get(), z, 1e-15, "multiplier");
    let same = Noise::Gaussian(noise(discrete.multiplier().get()));

    let rate = SamplingRate::new(0.02).unwrap();
    let events = |noise: Noise| {
        [
            PrivacyEvent::gaussian(Adjacency::AddOrRemove, noise.clone()).times(10),
            PrivacyEvent::poisson(rate, noise.clone()).times(500),
            PrivacyEvent::CorrelatedGaussian {
                adjacency: Adjacency::ZeroOut,
                matrix: NoiseMatrix::Tree,
                segments: vec![Segment::of(100)],
                participation: shorthand::separated(20, 3),
                noise,
            },
        ]
    };
    for accountant in ACCOUNTANTS {
        for (a, b) in events(discrete.clone()).iter().zip(&events(same.clone())) {
            match (accountant.judge(a, delta(1e-7)), accountant.judge(b, delta(1e-7))) {
                (Ok(a), Ok(b)) => assert_eq!(a.epsilon, b.epsilon, "{accountant}"),
                (Err(a), Err(b)) => assert_eq!(a, b),
                (a, b) => panic!("{accountant}: {a:?} {b:?}"),
            }
        }
    }
    for accountant in [AccountantKind::Moments, AccountantKind::Rdp, AccountantKind::Pld, AccountantKind::Best] {
        assert!(
            accountant.judge(&events(discrete.clone())[1], delta(1e-7)).is_ok(),
            "{accountant} under Poisson sampling"
        );
    }
}

/// The reduction gives variance away, so what it says is an upper bound only.
#[test]
fn p3_no_lower_bound_is_claimed_for_a_discrete_gaussian() {
    let discrete = Noise::DiscreteGaussian(DiscreteGaussian::new(32.0, 32.0).unwrap());
    let event = PrivacyEvent::gaussian(Adjacency::AddOrRemove, discrete);
    // The Gaussian of the full variance: what the release costs but for rounding.
    let true_cost = epsilon(AccountantKind::Zcdp, &gaussian(1.0), 1e-6);
    for accountant in [AccountantKind::Zcdp, AccountantKind::Pld, AccountantKind::Best] {
        let judged = accountant.judge(&event, delta(1e-6)).unwrap();
        let lower = judged.epsilon_lower.map_or(0.0, |e| e.get());
        assert!(lower <= true_cost, "{accountant}: claims that nothing below {lower} holds, but {true_cost} does");
    }
}

#[test]
fn p3_sigma_below_32_is_refused_also_in_json() {
    assert!(DiscreteGaussian::new(31.0, 1.0).is_err());
    assert!(DiscreteGaussian::new(31.999, 1.0).is_err());
    assert!(DiscreteGaussian::new(32.0, 1.0).is_ok());
    let json = |sigma: &str, sensitivity: &str| {
        format!(
            r#"{{"kind":"gaussian","adjacency":"add-or-remove","noise":{{"discrete_gaussian":{{"sigma":{sigma},"sensitivity":{sensitivity}}}}}}}"#
        )
    };
    assert!(serde_json::from_str::<PrivacyEvent>(&json("32", "8")).is_ok());
    for (sigma, sensitivity) in [("31", "8"), ("-40", "8"), ("0", "8"), ("40", "0"), ("40", "-1"), ("1e999", "1")] {
        let refused = serde_json::from_str::<PrivacyEvent>(&json(sigma, sensitivity));
        assert!(refused.is_err(), "{sigma} {sensitivity}: {refused:?}");
    }
}

#[test]
fn p3_skellam_is_not_amplified_by_sampling_and_not_known_to_pld() {
    let skellam = PrivacyEvent::Skellam {
        adjacency: Adjacency::AddOrRemove,
        variance: 100.0,
        l1_sensitivity: 30.0,
        l2_sensitivity: 10.0,
    };
    let refused = AccountantKind::Pld.judge(&skellam, delta(1e-6)).unwrap_err().to_string();
    assert!(refused.contains("skellam") && refused.contains("pld"), "{refused}");
    // Never below the Gaussian of the same variance.
    assert!(
        epsilon(AccountantKind::Best, &skellam, 1e-6) > epsilon(AccountantKind::Rdp, &gaussian(1.0), 1e-6),
        "Skellam noise is no better than Gaussian"
    );
}

#[test]
fn p5_negative_coefficients_are_refused() {
    for matrix in [
        NoiseMatrix::Banded { coefficients: vec![1.0, -0.5] },
        NoiseMatrix::Banded { coefficients: vec![0.0, 1.0] },
        NoiseMatrix::Banded { coefficients: vec![] },
        NoiseMatrix::Banded { coefficients: vec![1.0, f64::NAN] },
        NoiseMatrix::Blt { buffer_decay: vec![0.9], output_scale: vec![-0.1] },
        NoiseMatrix::Blt { buffer_decay: vec![1.0], output_scale: vec![0.1] },
        NoiseMatrix::Blt { buffer_decay: vec![-0.5], output_scale: vec![0.1] },
        NoiseMatrix::Blt { buffer_decay: vec![0.9, 0.8], output_scale: vec![0.1] },
    ] {
        let run = correlated(matrix.clone(), &[Segment::of(10)], shorthand::separated(3, 2), 1.0);
        let refused = AccountantKind::Best.judge(&run, delta(1e-6)).unwrap_err();
        assert!(matches!(refused, AccountError::Event(EventError::Matrix { .. })), "{matrix:?}: {refused}");
        // Asking for the sensitivity alone is no way around.
        let alone = of_matrix(&matrix, &[Segment::of(10)], &shorthand::separated(3, 2));
        assert!(alone.is_err(), "{matrix:?}: {alone:?}");
    }
}

/// The function stands on its own: what contradicts itself is an error there too, not a panic.
#[test]
fn p5_p7_the_sensitivity_of_nonsense_is_an_error() {
    let limits = shorthand::separated(3, 2);
    let never = shorthand::separated(3, 0);
    let sampled = Participation::Poisson { rate: SamplingRate::new(0.5).unwrap() };
    for matrix in [
        NoiseMatrix::Tree,
        NoiseMatrix::Banded { coefficients: vec![1.0, 0.5] },
        NoiseMatrix::Blt { buffer_decay: vec![0.9], output_scale: vec![0.3] },
    ] {
        for (segments, participation) in [
            (vec![], limits),
            (vec![Segment::of(0)], limits),
            (vec![Segment::of(u64::MAX), Segment::of(2)], limits),
            (vec![Segment { rounds: 8, completed_to: Some(4) }], limits),
            (vec![Segment::of(8)], never),
            (vec![Segment::of(8)], sampled),
        ] {
            let got = of_matrix(&matrix, &segments, &participation);
            assert!(got.is_err(), "{} {segments:?} {participation:?}: {got:?}", matrix.name());
        }
    }
}

#[test]
fn p5_a_blt_says_c_and_not_its_inverse() {
    // c = 1, 0.3, 0.27, 0.243, ...
    let blt = NoiseMatrix::Blt { buffer_decay: vec![0.9], output_scale: vec![0.3] };
    let column: Vec<f64> = (0..50).map(|i| if i == 0 { 1.0 } else { 0.3 * 0.9_f64.powi(i - 1) }).collect();
    let banded = NoiseMatrix::Banded { coefficients: column };
    for limits in [shorthand::separated(1, 50), shorthand::separated(7, 4), Participation::Once] {
        let of = |m: &NoiseMatrix| of_matrix(m, &[Segment::of(50)], &limits).unwrap();
        assert_close(of(&blt).squared, of(&banded).squared, 1e-12, "blt and banded");
    }
}

/// en-IN of Xu et al. is the row that tells the two meanings apart.
#[test]
fn p6_rounds_between_and_distance_are_one_apart() {
    let sensitivity = |separation: MinSeparation| {
        let limits = Participation::MinSeparation { separation, max_participations: 6 };
        of_matrix(&NoiseMatrix::Tree, &[Segment::of(1290)], &limits).unwrap().squared
    };
    assert_eq!(sensitivity(MinSeparation::rounds_between(170).unwrap()), 112.0);
    assert_eq!(sensitivity(MinSeparation::distance(171).unwrap()), 112.0);
    assert_eq!(sensitivity(MinSeparation::distance(170).unwrap()), 116.0);
    assert_eq!(sensitivity(MinSeparation::rounds_between(169).unwrap()), 116.0);
}

#[test]
fn p6_a_run_must_be_feasible_for_its_population() {
    let limits =
        Participation::MinSeparation { separation: MinSeparation::rounds_between(212).unwrap(), max_participations: 4 };
    // population >= m (MinS + 1), and population * MaxP >= m * rounds.
    let needed_by_separation = 6500 * 213;
    assert_eq!(limits.check_feasible(needed_by_separation, 6500, 800), Ok(()));
    assert!(matches!(
        limits.check_feasible(needed_by_separation - 1, 6500, 800),
        Err(ParticipationError::SeparationInfeasible { needed, .. }) if needed == u128::from(needed_by_separation)
    ));
    let needed_by_count = 6500 * 930 / 4;
    assert_eq!(limits.check_feasible(needed_by_count, 6500, 930), Ok(()));
    assert!(matches!(
        limits.check_feasible(needed_by_count - 1, 6500, 930),
        Err(ParticipationError::ParticipationsInfeasible { .. })
    ));
    assert!(Participation::Once.check_feasible(999, 10, 100).is_err());
    assert_eq!(Participation::Once.check_feasible(1000, 10, 100), Ok(()));
    assert!(matches!(limits.check_feasible(5, 6, 1), Err(ParticipationError::Cohort { .. })));
    // Nothing overflows.
    let huge = Participation::MinSeparation {
        separation: MinSeparation::rounds_between(u64::MAX - 1).unwrap(),
        max_participations: u64::MAX,
    };
    assert!(huge.check_feasible(u64::MAX, u64::MAX, u64::MAX).is_err());
}

#[test]
fn p7_completion_counts_the_nodes_it_completes() {
    let limits =
        Participation::MinSeparation { separation: MinSeparation::rounds_between(212).unwrap(), max_participations: 4 };
    let sensitivity = |segment| of_matrix(&NoiseMatrix::Tree, &[segment], &limits).unwrap();
    assert_eq!(sensitivity(Segment::of(930)).squared, 47.0);
    // Padded to 1024: rounds 0, 213, 512 and 725 share the root (16), the halves (2 * 4), two nodes of 256 rounds
    // (2 * 4) and no node of the eight levels below (8 * 4).
    let completed = sensitivity(Segment::completed(930));
    assert!(completed.attained);
    assert_eq!(completed.squared, 64.0);
    // The padding is part of the event, and only a tree has any.
    let banded = correlated(NoiseMatrix::Banded { coefficients: vec![1.0] }, &[Segment::completed(930)], limits, 1.0);
    assert!(AccountantKind::Zcdp.judge(&banded, delta(1e-6)).is_err());
}

#[test]
fn p7_participations_are_limited_across_segments() {
    let limits = |distance, count| shorthand::separated(distance, count);
    for matrix in [
        NoiseMatrix::Tree,
        NoiseMatrix::Banded { coefficients: vec![1.0, 0.5, 0.25] },
        NoiseMatrix::Blt { buffer_decay: vec![0.9], output_scale: vec![0.3] },
    ] {
        let of = |segments: &[u64], limits| {
            let segments: Vec<Segment> = segments.iter().map(|r| Segment::of(*r)).collect();
            of_matrix(&matrix, &segments, &limits).unwrap().squared
        };
        // One participation can only be in one of four segments.
        assert_eq!(of(&[64, 64, 64, 64], limits(1, 1)), of(&[64], limits(1, 1)), "{}", matrix.name());
        // Two, one segment apart, do not share a node or a row.
        assert_close(
            of(&[64, 64], limits(64, 2)),
            2.0 * of(&[64], limits(1, 1)),
            1e-12,
            &format!("{} in two segments", matrix.name()),
        );
        // A restart never makes it more than one long segment would be.
        for (distance, count) in [(1, 5), (10, 5), (30, 9)] {
            assert!(of(&[64, 64], limits(distance, count)) <= of(&[128], limits(distance, count)) * (1.0 + 1e-12));
        }
    }
}

#[test]
fn p8_correlated_noise_is_one_gaussian_and_a_bare_rho_is_not() {
    let tree = correlated(NoiseMatrix::Tree, &[Segment::of(930)], shorthand::separated(213, 4), 7.0);
    let rho: f64 = 47.0 / 98.0;
    let as_gaussian = gaussian(1.0 / (2.0 * rho).sqrt());
    let bare = PrivacyEvent::Zcdp { adjacency: Adjacency::AddOrRemove, rho: Rho::new(rho).unwrap() };
    let of = |accountant, event: &PrivacyEvent| epsilon(accountant, event, 1e-10);
    assert_close(of(AccountantKind::Zcdp, &tree), of(AccountantKind::Zcdp, &as_gaussian), 1e-12, "one Gaussian");
    assert_eq!(format!("{:.4}", of(AccountantKind::Best, &tree)), "6.4000");
    assert!(of(AccountantKind::Zcdp, &bare) > of(AccountantKind::Zcdp, &tree) * 1.02, "the general bound is looser");
    assert!(of(AccountantKind::Zcdp, &bare) < rho + 2.0 * (rho * 10.0 * 10.0_f64.ln()).sqrt());
    // PLD composes it with sampled rounds; nothing is rounded on the way.
    let both = PrivacyEvent::Compose { events: vec![tree.clone(), poisson(0.01, 1.0, 100)] };
    let composed = of(AccountantKind::Pld, &both);
    assert!(composed > of(AccountantKind::Zcdp, &tree) && composed < of(AccountantKind::Rdp, &both));
}
