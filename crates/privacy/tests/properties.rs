//! What must hold whatever the numbers are: more rounds, more sampling, less noise or a smaller delta never cost less,
//! and nothing costs less than its parts.
//!
//! Small and the same on every run; `PROPTEST_CASES=10000` runs longer.

use crate::shorthand::{correlated, delta, fixed_size, gaussian, poisson, separated};
use keyhush_privacy::{AccountantKind, Adjacency, NoiseMatrix, PrivacyEvent, Rho, Segment};
use proptest::{prelude::*, test_runner::RngSeed};

use AccountantKind::{Best, Moments, Pld, Rdp, Zcdp};

/// Cases of each property where an answer takes microseconds, and where it takes milliseconds.
const MANY: u32 = 64;
const FEW: u32 = 12;

fn config(cases: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(cases);
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(2018), failure_persistence: None, ..ProptestConfig::default() }
}

/// What an accountant's own search or lattice may lose: relative and absolute.
fn slack(accountant: AccountantKind) -> (f64, f64) {
    match accountant {
        Pld | Best => (1e-4, 1e-6),
        Moments => (1e-12, 0.0),
        Rdp | Zcdp => (1e-7, 1e-9),
    }
}

fn cost(accountant: AccountantKind, event: &PrivacyEvent, at: f64) -> Result<f64, TestCaseError> {
    let judged = accountant.judge(event, delta(at)).map_err(|e| TestCaseError::fail(format!("{accountant}: {e}")))?;
    let (epsilon, lower) = (judged.epsilon.get(), judged.epsilon_lower.map_or(0.0, |e| e.get()));
    prop_assert!(lower <= epsilon, "{}: lower bound {} above {}", accountant, lower, epsilon);
    Ok(epsilon)
}

fn never_more(accountant: AccountantKind, less: f64, more: f64, what: &str) -> Result<(), TestCaseError> {
    let (relative, absolute) = slack(accountant);
    prop_assert!(less <= more * (1.0 + relative) + absolute, "{}: {}: {} above {}", accountant, what, less, more);
    Ok(())
}

/// A Poisson-sampled run with a delta, none of them absurd.
#[derive(Debug, Clone, Copy)]
struct Run {
    q: f64,
    z: f64,
    rounds: u64,
    delta: f64,
}

impl Run {
    fn event(self) -> PrivacyEvent {
        poisson(self.q, self.z, self.rounds)
    }

    fn cost(self, accountant: AccountantKind) -> Result<f64, TestCaseError> {
        cost(accountant, &self.event(), self.delta)
    }
}

fn runs() -> impl Strategy<Value = Run> {
    (-6.0..0.0f64, 0.5..8.0f64, 0.0..5.0f64, -12.0..-3.0f64).prop_map(|(ln_q, z, ln_rounds, ln_delta)| Run {
        q: 10f64.powf(ln_q),
        z,
        rounds: 10f64.powf(ln_rounds) as u64,
        delta: 10f64.powf(ln_delta),
    })
}

/// Runs whose epsilon is not in the hundreds, where privacy losses are not followed.
fn sane_runs() -> impl Strategy<Value = Run> {
    runs().prop_filter("epsilon in the hundreds", |run| run.cost(Rdp).is_ok_and(|epsilon| epsilon < 20.0))
}

/// A little or a lot more: a factor above 1.
fn factors() -> impl Strategy<Value = f64> {
    (-4.0..0.5f64).prop_map(|t| 1.0 + 10f64.powf(t))
}

fn monotone_in_everything(accountant: AccountantKind, run: Run, factor: f64) -> Result<(), TestCaseError> {
    let here = run.cost(accountant)?;
    let more_rounds = Run { rounds: (run.rounds as f64 * factor).ceil() as u64, ..run };
    never_more(accountant, here, more_rounds.cost(accountant)?, "more rounds")?;
    let more_sampling = Run { q: (run.q * factor).min(1.0), ..run };
    never_more(accountant, here, more_sampling.cost(accountant)?, "a larger rate")?;
    let less_noise = Run { z: run.z / factor, ..run };
    never_more(accountant, here, less_noise.cost(accountant)?, "less noise")?;
    let smaller_delta = Run { delta: run.delta / factor, ..run };
    never_more(accountant, here, smaller_delta.cost(accountant)?, "a smaller delta")
}

fn no_less_than_its_parts(accountant: AccountantKind, a: &PrivacyEvent, b: &PrivacyEvent, at: f64) -> TestCaseResult {
    let both = PrivacyEvent::Compose { events: vec![a.clone(), b.clone()] };
    let whole = cost(accountant, &both, at)?;
    never_more(accountant, cost(accountant, a, at)?, whole, "the first part")?;
    never_more(accountant, cost(accountant, b, at)?, whole, "the second part")?;
    // And no more than both at half the delta each.
    let apart = cost(accountant, a, at / 2.0)? + cost(accountant, b, at / 2.0)?;
    never_more(accountant, whole, apart, "the whole, against its parts at half the delta")
}

type TestCaseResult = Result<(), TestCaseError>;

proptest! {
    #![proptest_config(config(MANY))]

    #[test]
    fn renyi_and_moments_are_monotone(run in runs(), factor in factors()) {
        monotone_in_everything(Rdp, run, factor)?;
        monotone_in_everything(Moments, run, factor)?;
    }

    #[test]
    fn renyi_is_never_above_moments(run in runs()) {
        never_more(Moments, run.cost(Rdp)?, run.cost(Moments)? * (1.0 + 1e-11), "Renyi")?;
    }

    #[test]
    fn renyi_composes(a in runs(), b in runs(), z in 1.0..20.0f64) {
        no_less_than_its_parts(Rdp, &a.event(), &b.event(), a.delta)?;
        no_less_than_its_parts(Rdp, &a.event(), &gaussian(z), a.delta)?;
    }

    #[test]
    fn fixed_size_is_monotone(
        ln_population in 2.0..7.0f64, share in -4.0..0.0f64, z in 0.3..6.0f64, rounds in 1..5000u64, factor in factors(),
    ) {
        let population = 10f64.powf(ln_population) as u64;
        let cohort = ((population as f64 * 10f64.powf(share)) as u64).max(1).min(population / 2);
        let of = |cohort: u64, z, rounds, at| cost(Rdp, &fixed_size(population, cohort, z, rounds), at);
        let here = of(cohort, z, rounds, 1e-7)?;
        let larger = ((cohort as f64 * factor).ceil() as u64).min(population - 1);
        // Everybody in the cohort is another formula. An order beyond the exactly evaluated ones may be best on one side only: a little more slack.
        let grows = |more: f64, what: &str| never_more(Rdp, here, more * (1.0 + 1e-4), what);
        grows(of(larger, z, rounds, 1e-7)?, "a larger cohort")?;
        grows(of(cohort, z / factor, rounds, 1e-7)?, "less noise")?;
        grows(of(cohort, z, (rounds as f64 * factor).ceil() as u64, 1e-7)?, "more rounds")?;
        grows(of(cohort, z, rounds, 1e-7 / factor)?, "a smaller delta")?;
    }

    #[test]
    fn gaussians_and_bare_rhos_are_monotone_and_compose(
        z in 0.2..50.0f64, rho in 1e-6..2.0f64, times in 1..1000u64, factor in factors(), ln_delta in -12.0..-2.0f64,
    ) {
        let at = 10f64.powf(ln_delta);
        let bare = |rho: f64| PrivacyEvent::Zcdp { adjacency: Adjacency::AddOrRemove, rho: Rho::new(rho).unwrap() };
        let more = (times as f64 * factor).ceil() as u64;
        for accountant in [Zcdp, Rdp, Best] {
            let here = cost(accountant, &gaussian(z).times(times), at)?;
            never_more(accountant, here, cost(accountant, &gaussian(z).times(more), at)?, "more releases")?;
            never_more(accountant, here, cost(accountant, &gaussian(z / factor).times(times), at)?, "less noise")?;
            never_more(accountant, here, cost(accountant, &gaussian(z).times(times), at / factor)?, "a smaller delta")?;
            let of_rho = cost(accountant, &bare(rho), at)?;
            never_more(accountant, of_rho, cost(accountant, &bare(rho * factor), at)?, "a larger rho")?;
            let exact = cost(Zcdp, &gaussian(1.0 / (2.0 * rho).sqrt()), at)?;
            never_more(Zcdp, exact, of_rho, "a Gaussian of the same rho")?;
            let bun_steinke = rho + 2.0 * (rho * -at.ln()).sqrt();
            never_more(accountant, of_rho, bun_steinke, "against Bun and Steinke's bound")?;
        }
        no_less_than_its_parts(Zcdp, &gaussian(z), &gaussian(2.0 * z), at)?;
        no_less_than_its_parts(Zcdp, &gaussian(z), &bare(rho), at)?;
    }

    #[test]
    fn correlated_noise_is_monotone_in_its_limits(
        rounds in 1..400u64, distance in 1..120u64, count in 1..9u64, cut in 1..400u64, kind in 0..3usize,
        decay in 0.0..0.999f64, scale in 0.0..1.0f64,
    ) {
        let matrix = [
            NoiseMatrix::Tree,
            NoiseMatrix::Banded { coefficients: (0..40).map(|i| decay.powi(i)).collect() },
            NoiseMatrix::Blt { buffer_decay: vec![decay, 0.5 * decay], output_scale: vec![0.5 * scale, 0.4 * scale] },
        ][kind].clone();
        let of = |segments: &[Segment], distance, count| {
            let event = correlated(matrix.clone(), segments, separated(distance, count), 3.0);
            cost(Zcdp, &event, 1e-8)
        };
        let one = [Segment::of(rounds)];
        let here = of(&one, distance, count)?;
        never_more(Zcdp, here, of(&[Segment::of(rounds + cut)], distance, count)?, "more rounds")?;
        never_more(Zcdp, here, of(&one, distance, count + 1)?, "more participations")?;
        never_more(Zcdp, here, of(&one, distance.div_ceil(2), count)?, "closer participations")?;
        // The nodes of a tree that is cut lie elsewhere, and may well hold more.
        if cut < rounds && matrix != NoiseMatrix::Tree {
            let two = [Segment::of(cut), Segment::of(rounds - cut)];
            never_more(Zcdp, of(&two, distance, count)?, here, "a restart")?;
        }
        if matrix == NoiseMatrix::Tree {
            never_more(Zcdp, here, of(&[Segment::completed(rounds)], distance, count)?, "completion")?;
        }
    }

    #[test]
    fn a_group_costs_no_less_than_one(z in 0.5..50.0f64, group in 2..9u32, rounds in 1..200u64) {
        let tree = correlated(NoiseMatrix::Tree, &[Segment::of(rounds)], separated(20, 3), z);
        for accountant in [Zcdp, Rdp, Best] {
            for event in [gaussian(z), tree.clone()] {
                let of = |k| accountant.judge_group(&event, delta(1e-7), k).map(|j| j.epsilon.get());
                let (smaller, larger) = (of(group - 1).unwrap(), of(group).unwrap());
                never_more(accountant, smaller, larger, "a larger group")?;
            }
        }
    }
}

proptest! {
    #![proptest_config(config(FEW))]

    #[test]
    fn pld_is_monotone(run in sane_runs(), factor in factors()) {
        monotone_in_everything(Pld, run, factor)?;
    }

    #[test]
    fn pld_is_never_above_renyi(run in sane_runs()) {
        never_more(Pld, run.cost(Pld)?, run.cost(Rdp)?, "pld")?;
        never_more(Best, run.cost(Best)?, run.cost(Rdp)?, "best")?;
    }

    #[test]
    fn pld_composes(a in sane_runs(), b in sane_runs(), z in 1.0..20.0f64) {
        no_less_than_its_parts(Pld, &a.event(), &b.event(), a.delta)?;
        no_less_than_its_parts(Pld, &a.event(), &gaussian(z), a.delta)?;
    }

    #[test]
    fn pld_of_a_gaussian_is_its_exact_curve(z in 0.3..30.0f64, times in 1..100u64, ln_delta in -12.0..-2.0f64) {
        let (event, at) = (gaussian(z).times(times), 10f64.powf(ln_delta));
        let (lattice, exact) = (cost(Pld, &event, at)?, cost(Zcdp, &event, at)?);
        never_more(Zcdp, exact, lattice, "the exact curve")?;
        never_more(Pld, lattice, exact, "the lattice")?;
    }

    #[test]
    fn pld_a_group_costs_no_less_than_one(run in sane_runs(), group in 2..5u32) {
        let of = |k| Pld.judge_group(&run.event(), delta(run.delta), k).map(|j| j.epsilon.get());
        let (one, smaller, larger) = (of(1).unwrap(), of(group - 1).unwrap(), of(group).unwrap());
        never_more(Pld, smaller, larger, "a larger group")?;
        never_more(Pld, one, larger, "one")?;
    }
}
