//! The Renyi accountant against exact divergences and against dp_accounting.

use crate::shorthand::{assert_close, delta, epsilon, fixed_size, gaussian, poisson, rows};
use keyhush_privacy::{AccountantKind, Adjacency, PrivacyEvent, Rho};
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    sampling_rate: f64,
    noise_multiplier: f64,
    rounds: u64,
    delta: f64,
    tight: f64,
    rdp_continuous: f64,
    rdp_orders: f64,
    order: f64,
}

#[test]
fn equals_the_reference_at_the_best_order_of_all() {
    let cells: Vec<Reference> = rows("tight-reference/poisson.json");
    assert_eq!(cells.len(), 75);
    for c in &cells {
        let what = format!("q {} z {} rounds {}", c.sampling_rate, c.noise_multiplier, c.rounds);
        let run = poisson(c.sampling_rate, c.noise_multiplier, c.rounds);
        let got = AccountantKind::Rdp.judge(&run, delta(c.delta)).unwrap();
        // Neither search stops exactly at the minimum.
        assert_close(got.epsilon.get(), c.rdp_continuous, 1e-7, &what);
        assert_close(got.order.unwrap(), c.order, 1e-3, &what);
        assert!(got.epsilon.get() <= c.rdp_orders * (1.0 + 1e-12), "{what}");
        assert!(got.epsilon.get() >= c.tight, "{what}");
    }
}

#[derive(Deserialize)]
struct Optimum {
    sampling_rate: f64,
    noise_multiplier: f64,
    rounds: u64,
    delta: f64,
    order: f64,
    epsilon: f64,
}

/// The best orders here are fractional, from 1.4 to 27: the divergence there is exact, or epsilon would differ.
#[test]
fn equals_mpmath_at_fractional_orders() {
    for c in rows::<Optimum>("mpmath-1.4.1/renyi_epsilon.json") {
        let what = format!("q {} z {} rounds {}", c.sampling_rate, c.noise_multiplier, c.rounds);
        let run = poisson(c.sampling_rate, c.noise_multiplier, c.rounds);
        let got = AccountantKind::Rdp.judge(&run, delta(c.delta)).unwrap();
        assert_close(got.epsilon.get(), c.epsilon, 1e-8, &what);
        assert_close(got.order.unwrap(), c.order, 1e-4, &what);
        assert!(got.epsilon.get() >= c.epsilon * (1.0 - 1e-14), "below the true minimum: {what}");
    }
}

#[derive(Deserialize)]
struct DpAccounting {
    sampling_rate: f64,
    noise_multiplier: f64,
    rounds: u64,
    delta: f64,
    rdp: f64,
}

#[test]
fn is_never_above_dp_accounting() {
    for c in rows::<DpAccounting>("dp_accounting-0.6.0/poisson.json") {
        let got = epsilon(AccountantKind::Rdp, &poisson(c.sampling_rate, c.noise_multiplier, c.rounds), c.delta);
        assert!(got <= c.rdp * (1.0 + 1e-12), "q {} rounds {}: {got} {}", c.sampling_rate, c.rounds, c.rdp);
    }
}

/// Large noise must not cost the amplification: scaled so that all of these are about the same run.
#[test]
fn large_noise_keeps_its_amplification() {
    let near = epsilon(AccountantKind::Rdp, &poisson(0.01, 100.0, 1_000_000), 1e-6);
    for (z, rounds) in [(1e3, 100_000_000), (1e4, 10_000_000_000), (1e5, 1_000_000_000_000)] {
        let run = poisson(0.01, z, rounds);
        let got = epsilon(AccountantKind::Rdp, &run, 1e-6);
        assert_close(got, near, 1e-3, &format!("noise {z}"));
        assert!(got <= epsilon(AccountantKind::Moments, &run, 1e-6), "above moments at noise {z}");
    }
}

#[derive(Deserialize)]
struct FixedSize {
    task: String,
    population: u64,
    cohort: u64,
    noise_multiplier: f64,
    rounds: u64,
    delta: f64,
    epsilon: f64,
}

#[test]
fn fixed_size_equals_dp_accounting_where_its_order_is_an_integer() {
    for c in rows::<FixedSize>("dp_accounting-0.6.0/fixed_size.json") {
        let run = fixed_size(c.population, c.cohort, c.noise_multiplier, c.rounds);
        let got = AccountantKind::Rdp.judge(&run, delta(c.delta)).unwrap();
        // Between two integers the bound is a chord, so the best order is an integer here too.
        assert_close(got.epsilon.get(), c.epsilon, 1e-6, &c.task);
        assert!(got.epsilon.get() >= c.epsilon * (1.0 - 1e-9), "{}", c.task);
    }
}

#[derive(Deserialize)]
struct Concentrated {
    rho: f64,
    delta: f64,
    epsilon_gaussian: f64,
    epsilon_bun_steinke: f64,
    epsilon_rdp: f64,
}

/// Rule P8: a Gaussian has its exact curve; a bare rho only the general bound.
#[test]
fn p8_a_gaussian_has_its_exact_curve_and_a_bare_rho_the_general_bound() {
    for c in rows::<Concentrated>("analytic/zcdp_to_eps.json") {
        let what = format!("rho {}", c.rho);
        let event = gaussian(1.0 / (2.0 * c.rho).sqrt());
        let exact = AccountantKind::Zcdp.judge(&event, delta(c.delta)).unwrap();
        assert_close(exact.epsilon.get(), c.epsilon_gaussian, 1e-9, &what);
        assert_close(exact.rho.unwrap().get(), c.rho, 1e-12, &what);
        assert_eq!(AccountantKind::Best.judge(&event, delta(c.delta)).unwrap().epsilon, exact.epsilon);

        let bare = PrivacyEvent::Zcdp { adjacency: Adjacency::AddOrRemove, rho: Rho::new(c.rho).unwrap() };
        for accountant in [AccountantKind::Zcdp, AccountantKind::Rdp, AccountantKind::Best] {
            let general = epsilon(accountant, &bare, c.delta);
            assert!(general >= exact.epsilon.get() && general <= c.epsilon_bun_steinke, "{accountant} {what}");
            assert!(general <= c.epsilon_rdp * (1.0 + 1e-12), "{accountant} {what}: {general} {}", c.epsilon_rdp);
        }
    }
}

/// Rule P3: Skellam noise goes by its own bound, at integer orders.
#[test]
fn p3_skellam_takes_the_best_integer_order() {
    for (variance, l1, l2, times) in [
        (1e4, 50.0, 10.0, 1),
        (1e4, 50.0, 10.0, 1000),
        (400.0, 4.0, 2.0, 7),
        (100.0, 12.0, 6.0, 40),
        (9.0, 3.0, 3.0, 200),
        (1e8, 1e3, 1e2, 20),
    ] {
        let event = PrivacyEvent::Skellam {
            adjacency: Adjacency::AddOrRemove,
            variance,
            l1_sensitivity: l1,
            l2_sensitivity: l2,
        };
        let at = |order: f64| {
            let gaussian = order * l2 * l2 / (2.0 * variance);
            let second = ((2.0 * order - 1.0) * l2 * l2 + 6.0 * l1) / (4.0 * variance * variance);
            let rdp = times as f64 * (gaussian + second.min(3.0 * l1 / (2.0 * variance)));
            rdp + (-1.0 / order).ln_1p() - (1e-6 * order).ln() / (order - 1.0)
        };
        let best = (2..4096).map(|order| at(f64::from(order))).fold(f64::INFINITY, f64::min).max(0.0);
        for accountant in [AccountantKind::Rdp, AccountantKind::Zcdp, AccountantKind::Best] {
            let got = epsilon(accountant, &event.clone().times(times), 1e-6);
            assert_close(got, best, 1e-9, &format!("{accountant}: variance {variance} times {times}"));
        }
        // Noise that each of ten participants brings a tenth of is the same noise.
        let distributed = PrivacyEvent::DistributedSkellam {
            adjacency: Adjacency::AddOrRemove,
            local_variance: variance / 10.0,
            honest_survivors: 10,
            l1_sensitivity: l1,
            l2_sensitivity: l2,
        };
        let got = epsilon(AccountantKind::Rdp, &distributed.times(times), 1e-6);
        assert_close(got, best, 1e-9, "distributed");
    }
}

#[test]
fn unlike_rounds_compose_order_by_order() {
    // The same run told in one piece and in pieces.
    let whole = poisson(0.01, 1.1, 1000);
    let pieces = PrivacyEvent::Compose {
        events: vec![poisson(0.01, 1.1, 300), poisson(0.01, 1.1, 200).times(2), poisson(0.01, 1.1, 300)],
    };
    assert_eq!(epsilon(AccountantKind::Rdp, &whole, 1e-6), epsilon(AccountantKind::Rdp, &pieces, 1e-6));

    // Unlike ones cost at least the dearest alone and at most the sum at split deltas.
    let (a, b) = (poisson(0.01, 1.0, 500), gaussian(8.0));
    let both = epsilon(AccountantKind::Rdp, &PrivacyEvent::Compose { events: vec![a.clone(), b.clone()] }, 1e-6);
    let alone = |e: &PrivacyEvent, at: f64| epsilon(AccountantKind::Rdp, e, at);
    assert!(both > alone(&a, 1e-6).max(alone(&b, 1e-6)));
    assert!(both < alone(&a, 5e-7) + alone(&b, 5e-7));
}
