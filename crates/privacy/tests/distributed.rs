//! Noise that the users add themselves: how much there is, what it costs, and where it is refused (rules P3 and P19).

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use crate::noised_users::{RANDOMNESS, SURVIVORS, encoding_of, full, integers, noise_of, noised_sum, plan, words, z};
use crate::shorthand::{self, assert_close, delta, separated};
use keyhush_privacy::{
    AccountantKind, Adjacency, ClipNorm, Epsilon, NoiseMatrix, Participation, PrivacyEvent, SamplingRate, Segment,
    calibrate::Target,
    encoding::{DistributedNoise, Encoding, EncodingError, NoisePlan, Survivors, VectorPlan},
    event::EventError,
    mechanism::{Correlation, Mechanism, MechanismError, MechanismPlan},
    noise::SkellamSampler,
    rng::{Randomness, SimulationKey},
    sensitivity::of_matrix,
    stages::{NoisedSum, Quotient, Released, Residues, Sum},
};

fn epsilon(accountant: AccountantKind, event: &PrivacyEvent) -> f64 {
    shorthand::epsilon(accountant, event, 1e-6)
}

/// What a sum holds is what was sent and what was drawn, to the last step, also where it is negative and where single
/// residues wrapped; and it has the variance of as many users as there were.
#[test]
fn p19_a_noised_sum_is_what_was_sent_and_what_was_drawn() {
    let (encoding, noise) = full();
    let noise = noise_of(&encoding, &noise);
    let residues = Residues::with_noise(&encoding, 12, &noise).unwrap();
    let most = encoding.layout().segments()[0].largest as i32;
    for end in [-most, 0, most] {
        for users in [8, 12] {
            let mut values = vec![0; encoding.layout().len()];
            (values[0], values[50], values[51]) = (end, end.signum() * (1 << 15), 1 << 15);
            let mut want: Vec<i64> = values.iter().map(|v| i64::from(*v) * users as i64).collect();
            for user in 0..users {
                let mut random = words(user);
                let lens = encoding.layout().segments().iter().map(|s| s.len);
                let draws = lens.zip(noise.local_variances()).flat_map(|(len, variance)| {
                    let sampler = SkellamSampler::new(*variance).unwrap();
                    (0..len).map(|_| sampler.draw(&mut random)).collect::<Vec<_>>()
                });
                want.iter_mut().zip(draws).for_each(|(want, draw)| *want += draw);
            }
            let sum = noised_sum(&residues, &encoding, &values, users);
            assert_eq!(format!("{sum:?}"), "NoisedSum(54 integers)");
            let mut mechanism =
                Mechanism::init(plan(&noise, Participation::Once, 5), encoding.layout(), RANDOMNESS).unwrap();
            let released = mechanism.release_noised(sum).unwrap();
            assert_eq!(released.values(), want);
            assert!(end == 0 || released.values()[0].signum() == i64::from(end.signum()), "a sum on its side of zero");
        }
    }
}

/// The noised sums of groups add up: nobody's input is lost, and no group's noise.
#[test]
fn p19_noised_sums_of_groups_add_up() {
    let encoding = encoding_of(VectorPlan::of_update(50, 12));
    let noise = noise_of(&encoding, &NoisePlan::of_update(z(2.0)));
    let residues = Residues::with_noise(&encoding, 12, &noise).unwrap();
    let group = |first: i32, users: u64| {
        let mut values = vec![0; encoding.layout().len()];
        values[0] = first;
        noised_sum(&residues, &encoding, &values, users)
    };
    let released = |sum: NoisedSum| {
        let once = plan(&noise, Participation::Once, 5);
        Mechanism::init(once, encoding.layout(), RANDOMNESS).unwrap().release_noised(sum).unwrap().values().to_vec()
    };
    let [one, other] = [released(group(3, 8)), released(group(-5, 12))];
    let mut both = group(3, 8);
    both.merge(group(-5, 12)).unwrap();
    let added: Vec<i64> = one.iter().zip(&other).map(|(one, other)| one + other).collect();
    assert!(one != other && released(both) == added);
}

#[test]
fn p19_the_noise_is_that_of_the_survivors() {
    let encoding = encoding_of(VectorPlan::of_update(20_000, 12));
    let noise = noise_of(&encoding, &NoisePlan::of_update(z(2.0)));
    let residues = Residues::with_noise(&encoding, 12, &noise).unwrap();
    let sensitivity = encoding.layout().segments()[0].sensitivity(Adjacency::ZeroOut);
    for users in [8, 12] {
        let sum = noised_sum(&residues, &encoding, &vec![0; 20_000], users);
        let mut mechanism =
            Mechanism::init(plan(&noise, Participation::Once, 5), encoding.layout(), RANDOMNESS).unwrap();
        let released = mechanism.release_noised(sum).unwrap();
        let squares = released.values().iter().map(|v| (*v as f64).powi(2)).sum::<f64>() / 20_000.0;
        let want = users as f64 * noise.local_variances()[0] as f64;
        // A chi-square of 20,000 degrees of freedom is within 5 % of its mean but for 6e-7 of the time.
        assert!((squares / want - 1.0).abs() < 0.05, "{users} users: {squares}, expected {want}");
        // Five of them are honest, and those alone have what was asked for.
        let honest = 5.0 * noise.local_variances()[0] as f64;
        assert!((1.0..1.0 + 1e-4).contains(&(honest / (2.0 * sensitivity).powi(2))), "{honest}");
    }
}

/// Per segment and jointly there is what the plan asks of central noise.
#[test]
fn p9_the_honest_have_the_multiplier_that_was_asked_for() {
    let (encoding, asked) = full();
    let noise = noise_of(&encoding, &asked);
    let of_segment: Vec<f64> = (encoding.layout().segments().iter().zip(noise.local_variances()))
        .map(|(s, v)| (5.0 * *v as f64).sqrt() / s.sensitivity(Adjacency::ZeroOut))
        .collect();
    // sigma_b = 10 is a multiplier of 20; counts of at most 9 get the least noise there is, which is more.
    for (got, want) in of_segment[1..3].iter().zip([20.0, 30.0]) {
        assert!((want..want * 1.001).contains(got), "{got}, expected {want}");
    }
    assert!(of_segment[3] >= 30.0 * (1.0 - 1e-12), "{of_segment:?}");
    let joint = of_segment.iter().map(|z| z.powi(-2)).sum::<f64>().powf(-0.5);
    assert!((1.5..1.5 * 1.001).contains(&joint), "{joint}");
    let PrivacyEvent::Compose { events } = noise.event() else { panic!("{:?}", noise.event()) };
    assert_eq!(events.len(), 4);
    assert!(noise.event().flatten().is_ok());
}

/// Integers have small L1 norms: the event says no more than the least bound of the three, and never less than it is.
#[test]
fn p3_the_l1_sensitivity_is_a_bound_and_the_best_of_three() {
    let l1 = |dimension, grid_bits| {
        let noise = NoisePlan::of_update(z(50.0));
        match noise_of(&encoding_of(VectorPlan::of_update(dimension, grid_bits)), &noise).event() {
            PrivacyEvent::DistributedSkellam { l1_sensitivity, l2_sensitivity, .. } => (l1_sensitivity, l2_sensitivity),
            other => panic!("{other:?}"),
        }
    };
    let (one, l2) = l1(1, 10);
    assert_eq!(one, l2, "one coordinate");
    let (few, l2) = l1(100, 10);
    assert_close(few, 10.0 * l2, 1e-12, "sqrt(d) times the L2 norm");
    let (many, l2) = l1(1 << 20, 2);
    assert_close(many, l2 * l2, 1e-12, "the squared L2 norm");
}

/// Never cheaper than the Gaussian of the same multiplier, and hardly dearer when the grid is fine.
#[test]
fn p3_it_costs_what_gaussian_noise_costs_and_a_little_more() {
    for multiplier in [0.7, 1.0, 5.0] {
        for (grid_bits, allowed) in [(12, 0.02), (20, 2e-6)] {
            let encoding = encoding_of(VectorPlan::of_update(1000, grid_bits));
            let release = noise_of(&encoding, &NoisePlan::of_update(z(multiplier))).event();
            let PrivacyEvent::DistributedSkellam { local_variance, honest_survivors, l2_sensitivity, .. } = release
            else {
                panic!("{release:?}")
            };
            let variance = local_variance * honest_survivors as f64 / l2_sensitivity.powi(2);
            assert!((1.0..1.001).contains(&(variance.sqrt() / multiplier)), "{variance} for {multiplier}");
            let gaussian = PrivacyEvent::gaussian(Adjacency::ZeroOut, z(variance.sqrt()));
            for times in [1, 10] {
                let run = release.clone().times(times);
                let (got, tight) = (
                    epsilon(AccountantKind::Best, &run),
                    epsilon(AccountantKind::Best, &gaussian.clone().times(times)),
                );
                assert!(got >= tight, "{got} below {tight}");
                // The Gaussian of the same variance, by Renyi at the same integer orders.
                let renyi = |order: f64| {
                    let conversion = (-1.0 / order).ln_1p() - (1e-6 * order).ln() / (order - 1.0);
                    times as f64 * order / (2.0 * variance) + conversion
                };
                let integer = (2..4000).map(|order| renyi(f64::from(order))).fold(f64::INFINITY, f64::min);
                let over = got / integer - 1.0;
                assert!((-1e-12..allowed).contains(&over), "z {multiplier}, 2^{grid_bits}, {times}: {over}");
            }
        }
    }
}

#[test]
fn p3_noise_is_calibrated_as_any_other() {
    let encoding = encoding_of(VectorPlan::of_update(1000, 16));
    let run = |multiplier| {
        let noise = noise_of(&encoding, &NoisePlan::of_update(multiplier));
        plan(&noise, separated(10, 4), 100).event(100, encoding.layout()).unwrap()
    };
    let limit = Epsilon::new(2.0).unwrap();
    let target = Target { epsilon: limit, delta: delta(1e-6), accountant: AccountantKind::Best, group: 1 };
    let found = target.noise_multiplier(run).unwrap();
    let spent = epsilon(AccountantKind::Best, &run(found.value));
    assert!(spent <= 2.0 && spent > 1.999, "{spent} at {}", found.value);
}

/// As often as a user can take part, which is the squared sensitivity of independent central noise.
#[test]
fn p6_rounds_count_as_often_as_a_user_can_take_part() {
    let one_band = NoiseMatrix::Banded { coefficients: vec![1.0] };
    let limits = [separated(1, 1), separated(1, 50), separated(3, 4), separated(7, 100), Participation::Once];
    for participation in limits {
        for rounds in 1..40 {
            let central = of_matrix(&one_band, &[Segment::of(rounds)], &participation).unwrap().squared;
            assert_eq!(participation.most_participations(rounds) as f64, central.round(), "{participation:?} {rounds}");
        }
        assert_eq!(participation.most_participations(0), 0);
    }
}

#[test]
fn p3_limited_rounds_take_limits_and_plain_rounds() {
    let round = PrivacyEvent::gaussian(Adjacency::ZeroOut, z(3.0));
    let limited = |participation, event: &PrivacyEvent| PrivacyEvent::LimitedRounds {
        rounds: 10,
        participation,
        event: Box::new(event.clone()),
    };
    let run = limited(separated(3, 3), &round);
    assert_eq!(epsilon(AccountantKind::Best, &run), epsilon(AccountantKind::Best, &round.clone().times(3)));
    let poisson = Participation::Poisson { rate: SamplingRate::new(0.1).unwrap() };
    for (participation, event) in [(poisson, &round), (separated(1, 1), &run), (separated(3, 0), &round)] {
        assert!(AccountantKind::Best.judge(&limited(participation, event), delta(1e-6)).is_err(), "{participation:?}");
    }
    let leak = PrivacyEvent::NonPrivate { what: "a true sum".into() };
    assert!(epsilon(AccountantKind::Best, &limited(Participation::Once, &leak)).is_infinite());
}

/// Rule P13: a run goes on behind what was recorded, and from what was saved.
#[test]
fn p13_steps_are_passed_and_taken_up_again() {
    let (encoding, asked) = full();
    let noise = noise_of(&encoding, &asked);
    let residues = Residues::with_noise(&encoding, 12, &noise).unwrap();
    let planned = MechanismPlan { segments: vec![Segment::of(2), Segment::of(3)], ..plan(&noise, separated(2, 3), 5) };
    let start = || Mechanism::init(planned.clone(), encoding.layout(), RANDOMNESS).unwrap();
    let release =
        |mechanism: &mut Mechanism| mechanism.release_noised(noised_sum(&residues, &encoding, &[0; 54], 9)).unwrap();
    let mut unbroken = start();
    let releases: Vec<Released> = (0..5).map(|_| release(&mut unbroken)).collect();
    let rounds = |released: &Released| match released.event() {
        PrivacyEvent::LimitedRounds { rounds, .. } => *rounds,
        other => panic!("{other:?}"),
    };
    assert_eq!(releases.iter().map(rounds).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    for crashed_at in 0..5 {
        let mut resumed = start();
        for known in &releases[..crashed_at] {
            assert!(resumed.pass(&releases[4]).is_err(), "another step is refused");
            resumed.pass(known).unwrap();
            let position = resumed.position();
            resumed = Mechanism::at(planned.clone(), encoding.layout(), RANDOMNESS, position).unwrap();
        }
        assert_eq!(resumed.step(), crashed_at as u64);
        assert_eq!(release(&mut resumed).to_bytes(), releases[crashed_at].to_bytes());
    }
}

/// The clip may move from round to round: noise, event and residues are the same.
#[test]
fn p9_the_clip_may_move() {
    let (encoding, asked) = full();
    let noise = noise_of(&encoding, &asked);
    let mut mechanism = Mechanism::init(plan(&noise, separated(1, 9), 9), encoding.layout(), RANDOMNESS).unwrap();
    for clip in [1.0, 0.3, 2.0] {
        let moved = encoding.with_clip(ClipNorm::new(clip).unwrap());
        let residues = Residues::with_noise(&moved, 12, &noise).unwrap();
        assert_eq!(residues.bits(), Residues::with_noise(&encoding, 12, &noise).unwrap().bits());
        let released = mechanism.release_noised(noised_sum(&residues, &moved, &[0; 54], 9)).unwrap();
        assert_eq!(released.update(&moved).unwrap().len(), 50);
    }
}

#[test]
fn p19_a_sum_of_too_few_is_refused() {
    let (encoding, asked) = full();
    let noise = noise_of(&encoding, &asked);
    let residues = Residues::with_noise(&encoding, 12, &noise).unwrap();
    assert_eq!((residues.least_inputs(), residues.most_inputs()), (8, 12));
    for got in [0, 7, 13] {
        let refused = residues.noised_sum(&[0; 54], got).unwrap_err();
        assert_eq!(refused, EncodingError::Survivors { got, least: 8, most: 12 });
    }
    assert!(residues.noised_sum(&[0; 54], 8).is_ok());
    let few = Residues::with_noise(&encoding, 7, &noise).unwrap_err();
    assert!(matches!(few, EncodingError::Survivors { .. }), "{few}");
}

#[test]
fn p19_sums_with_noise_and_without_do_not_mix() {
    let (encoding, asked) = full();
    let noise = noise_of(&encoding, &asked);
    let residues = Residues::with_noise(&encoding, 12, &noise).unwrap();
    let zeros = || integers(&encoding, &[0; 54]);
    assert!(matches!(residues.of(&zeros()).unwrap_err(), EncodingError::Noised(_)));
    assert!(matches!(residues.sum(&[0; 54], 9).unwrap_err(), EncodingError::Noised(_)));
    let other = encoding.with_clip(ClipNorm::new(7.0).unwrap());
    let elsewhere = Residues::with_noise(&other, 12, &noise).unwrap();
    assert_eq!(elsewhere.noised(zeros(), &mut words(0)).unwrap_err(), EncodingError::Mixed);
    let shorter = encoding_of(VectorPlan::of_update(50, 12));
    assert_eq!(Residues::with_noise(&shorter, 12, &noise).unwrap_err(), EncodingError::Mixed);
    // A mechanism whose users add the noise adds none itself, and the other way round.
    let mut by_users = Mechanism::init(plan(&noise, Participation::Once, 5), encoding.layout(), RANDOMNESS).unwrap();
    assert_eq!(
        by_users.release(Sum::zero(&encoding), &mut SimulationKey::new(1)).unwrap_err(),
        MechanismError::NotNoised
    );
    let louder = noise_of(&encoding, &NoisePlan { multiplier: z(2.0), ..asked });
    let others = Residues::with_noise(&encoding, 12, &louder).unwrap();
    let sum = || noised_sum(&others, &encoding, &[0; 54], 9);
    assert_eq!(by_users.release_noised(sum()).unwrap_err(), MechanismError::OtherNoise);
    let clip = ClipNorm::new(1.0).unwrap();
    let central = NoisePlan::of_update(z(1.0));
    let central = Encoding::new(VectorPlan::of_update(50, 12), clip, Some(&central), Adjacency::ZeroOut).unwrap();
    let by_server = MechanismPlan { distributed: None, ..plan(&noise, Participation::Once, 5) };
    let mut by_server = Mechanism::init(by_server, central.layout(), RANDOMNESS).unwrap();
    assert_eq!(by_server.release_noised(sum()).unwrap_err(), MechanismError::OtherNoise);
    assert_eq!(by_users.step(), 0, "nothing was released");
}

#[test]
fn p10_p19_what_users_cannot_add_is_refused_with_the_reason() {
    let (encoding, asked) = full();
    let refused = |encoding: &Encoding, noise: &NoisePlan, adjacency, survivors| {
        DistributedNoise::new(encoding, noise, adjacency, survivors).unwrap_err().to_string()
    };
    for (adjacency, reason) in
        [(Adjacency::AddOrRemove, "lacks the removed user's noise"), (Adjacency::ReplaceOne, "does not amplify")]
    {
        let words = refused(&encoding, &asked, adjacency, SURVIVORS);
        assert!(words.contains(reason) && words.contains("use zero-out"), "{words}");
    }
    for survivors in [Survivors { least: 3, corrupted: 3 }, Survivors { least: 2, corrupted: 9 }] {
        let words = refused(&encoding, &asked, Adjacency::ZeroOut, survivors);
        assert!(words.contains("no honest noise"), "{words}");
    }
    let clip = ClipNorm::new(1.0).unwrap();
    let update = NoisePlan::of_update(z(1.0));
    let noisy = Encoding::new(VectorPlan::of_update(5, 12), clip, Some(&update), Adjacency::ZeroOut).unwrap();
    assert!(refused(&noisy, &update, Adjacency::ZeroOut, SURVIVORS).contains("must have none"));
    let weighted = encoding_of(VectorPlan { weight: true, ..VectorPlan::of_update(5, 12) });
    let quotient = Quotient::new(&weighted, 3.0, None, Adjacency::ZeroOut).unwrap();
    assert!(refused(quotient.encoding(), &update, Adjacency::ZeroOut, SURVIVORS).contains("clipped denominator"));
    assert!(refused(&encoding, &update, Adjacency::ZeroOut, SURVIVORS).contains("its noise must be given"));
    let deafening =
        DistributedNoise::new(&weighted, &NoisePlan { weight: Some(z(1e7)), ..update }, Adjacency::ZeroOut, SURVIVORS);
    assert!(matches!(deafening.unwrap_err(), EncodingError::TooMuchNoise { .. }));

    let noise = noise_of(&encoding, &asked);
    let good = plan(&noise, Participation::Once, 8);
    let refused = |plan: MechanismPlan| Mechanism::init(plan, encoding.layout(), RANDOMNESS).unwrap_err();
    for matrix in [NoiseMatrix::Tree, NoiseMatrix::Banded { coefficients: vec![1.0, 0.5] }] {
        let correlated = refused(MechanismPlan { correlation: Correlation::Matrix(matrix), ..good.clone() });
        assert_eq!(correlated, MechanismError::DistributedCorrelated);
        assert!(correlated.to_string().contains("the users who added it are gone"), "{correlated}");
    }
    for participation in [
        Participation::Poisson { rate: SamplingRate::new(0.1).unwrap() },
        Participation::FixedSize { population: 100, cohort: 10 },
    ] {
        let sampled = refused(MechanismPlan { participation, ..good.clone() });
        assert_eq!(sampled, MechanismError::DistributedSampled);
        assert!(sampled.to_string().contains("without amplification"), "{sampled}");
    }
    let add_or_remove = refused(MechanismPlan { adjacency: Adjacency::AddOrRemove, ..good.clone() });
    assert!(matches!(add_or_remove, MechanismError::Event(EventError::Adjacency { needs: "zero-out", .. })));
    let mistaken = Mechanism::init(good.clone(), weighted.layout(), RANDOMNESS).unwrap_err();
    assert_eq!(mistaken, MechanismError::OtherNoise);
    let fast = Randomness::SimulatedFloatingPoint { seed: 1 };
    let fast = Mechanism::init(good.clone(), encoding.layout(), fast).unwrap_err();
    assert_eq!(fast, MechanismError::DistributedFloatingPoint);
    assert!(Mechanism::init(good.clone(), encoding.layout(), Randomness::Secret).is_ok());
    assert_eq!(good.memory(encoding.layout()), 0);
}

/// A device makes the noise of what it was sent: damaged, it is refused.
#[test]
fn noise_arrives_as_it_left_or_not_at_all() {
    let (encoding, asked) = full();
    let noise = noise_of(&encoding, &asked);
    let sent = serde_json::to_value(&noise).unwrap();
    assert_eq!(serde_json::from_value::<DistributedNoise>(sent.clone()).unwrap(), noise);
    for (field, value) in [
        ("local_variances", serde_json::json!([2048, 2048, 2048])),
        ("local_variances", serde_json::json!([0, 2048, 2048, 2048])),
        ("local_variances", serde_json::json!([2049, 2048, 2048, 2048])),
        ("survivors", serde_json::json!({"least": 3, "corrupted": 3})),
        ("layout", serde_json::json!({"segments": []})),
        ("colour", serde_json::json!(1)),
    ] {
        let mut changed = sent.clone();
        changed[field] = value;
        assert!(serde_json::from_value::<DistributedNoise>(changed.clone()).is_err(), "{changed}");
    }
}

/// Sums have room for the noise, where there is much of it by more bits, and never above 32.
#[test]
fn p19_the_modulus_has_room_for_the_noise() {
    let rotated = |dimension, grid_bits| VectorPlan {
        rotation_seed: Some([1; 32]),
        ..VectorPlan::of_update(dimension, grid_bits)
    };
    let encoding = encoding_of(rotated(100_000, 10));
    let survivors = Survivors { least: 900, corrupted: 300 };
    let bits = |multiplier| {
        let noise = NoisePlan::of_update(z(multiplier));
        let noise = DistributedNoise::new(&encoding, &noise, Adjacency::ZeroOut, survivors).unwrap();
        Residues::with_noise(&encoding, 1000, &noise).unwrap().bits()
    };
    let without = Residues::new(&encoding, 1000).unwrap().bits();
    assert_eq!([without, bits(1.0), bits(10.0), bits(100.0)], [18, 18, 19, 22]);
    let fine = encoding_of(VectorPlan::of_update(10, 24));
    let noise = DistributedNoise::new(&fine, &NoisePlan::of_update(z(1.0)), Adjacency::ZeroOut, survivors).unwrap();
    assert!(matches!(Residues::with_noise(&fine, 1000, &noise).unwrap_err(), EncodingError::Modulus { .. }));
}
