//! The one-run audit against sums whose epsilon is known: it must not accuse a correct one, and must catch bugs that are planted here
//! and nowhere else.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use keyhush_privacy::{
    AccountantKind, Delta, NoiseMultiplier, PrivacyEvent, SamplingRate,
    audit::{
        gaussian_sum::{BLOCK, GaussianSum},
        one_run::{OneRun, Scored, canaries_needed},
        one_shot::OneShot,
        trade_off::{TradeOff, mu_of},
    },
};

const CONFIDENCE: f64 = 0.999;

fn delta() -> Delta {
    Delta::new(1e-5).unwrap()
}

fn audited(scored: &[Scored]) -> OneRun {
    OneRun::of(scored, delta(), CONFIDENCE).unwrap()
}

/// How many of some repetitions show more than the true epsilon.
fn accused(repetitions: u64, canaries: u64, epsilon: f64) -> usize {
    accused_at(CONFIDENCE, repetitions, canaries, epsilon)
}

fn accused_at(confidence: f64, repetitions: u64, canaries: u64, epsilon: f64) -> usize {
    let accused = |seed: &u64| {
        let bench = GaussianSum::new(canaries, epsilon, delta(), 1000 + seed).unwrap();
        let shown = OneRun::of(&bench.scores().unwrap(), delta(), confidence).unwrap();
        let curve = TradeOff::Gaussian(mu_of(epsilon, delta()).unwrap());
        let most = shown.epsilon_lower_any.max(shown.epsilon_lower_gaussian);
        most > bench.epsilon().get() || shown.refutes(&curve).unwrap()
    };
    (0..repetitions).filter(accused).count()
}

/// Few canaries guess by luck most often; 200 repetitions, of which at most one may be wrong.
#[test]
fn a_correct_sum_is_not_accused_in_200_repetitions() {
    for (canaries, epsilon) in [(100, 0.1), (300, 1.0)] {
        let wrong = accused(200, canaries, epsilon);
        assert!(wrong <= 1, "{wrong} of 200 exceed the true epsilon {epsilon} with {canaries} canaries");
    }
}

/// At 99.9 % an audit that is wrong ten times too often passes 200 repetitions. At 60 % it errs as often as it may, or less, and not never.
#[test]
fn it_errs_no_more_often_than_it_says_where_it_may_err_often() {
    for (canaries, epsilon) in [(100, 0.1), (100, 1.0), (300, 0.5)] {
        let wrong = accused_at(0.6, 300, canaries, epsilon);
        assert!(
            (3..=120).contains(&wrong),
            "{wrong} of 300 exceed the true epsilon {epsilon} with {canaries} canaries"
        );
    }
}

#[test]
#[ignore = "long: 200 repetitions with 10,000 canaries"]
fn a_correct_sum_of_10_000_canaries_is_not_accused_in_200_repetitions() {
    for epsilon in [1.0, 2.0] {
        let wrong = accused(200, 10_000, epsilon);
        assert!(wrong <= 1, "{wrong} of 200 exceed the true epsilon {epsilon}");
    }
}

/// The bound is not empty: it grows with epsilon, and the estimate comes close.
#[test]
fn the_bound_and_the_estimate_follow_the_true_epsilon() {
    let mut last = 0.0;
    for epsilon in [1.0, 4.0, 16.0] {
        let bench = GaussianSum::new(10_000, epsilon, delta(), 5).unwrap();
        let scored = bench.scores().unwrap();
        let (shown, estimate) = (audited(&scored), OneShot::of(&scored, delta()).unwrap().epsilon_estimate);
        let lower = shown.epsilon_lower_gaussian;
        assert!(lower > last && lower > 0.2 * epsilon && lower <= epsilon, "{lower} of {epsilon}");
        assert!((estimate - epsilon).abs() < 0.3 + 0.25 * epsilon, "{estimate} of {epsilon}");
        last = lower;
    }
    // Whatever the mechanism is, and with a delta that 10,000 canaries do not use up.
    let (tiny, bench) = (Delta::new(1e-9).unwrap(), GaussianSum::new(10_000, 16.0, delta(), 5).unwrap());
    let any = OneRun::of(&bench.scores().unwrap(), tiny, CONFIDENCE).unwrap();
    assert!(any.epsilon_lower_any > 1.0 && any.epsilon_lower_any <= 16.0, "{any:?}");
}

/// A sum with a bug: whoever takes part is added as often as the bug says.
fn buggy(bench: &GaussianSum, times: impl Fn(u64) -> u32) -> Vec<Scored> {
    let coins = bench.coins();
    let mut releases = bench.releases().unwrap();
    let mut scored = Vec::new();
    for block in 0..bench.blocks() {
        let mut sum = bench.nobody();
        for canary in bench.block(block).filter(|canary| coins[*canary as usize]) {
            let sent = bench.sent(canary).unwrap();
            (0..times(canary)).for_each(|_| sum.add(&sent).unwrap());
        }
        let values = releases.next(sum).unwrap();
        scored.extend(
            bench
                .block(block)
                .map(|canary| Scored { score: values[(canary % BLOCK) as usize], present: coins[canary as usize] }),
        );
    }
    scored
}

const FORMAL: f64 = 2.0;

/// Whether an audit shows more than the epsilon that the run says of itself.
fn catches(scored: &[Scored], formal: f64) -> bool {
    let shown = audited(scored);
    let says = TradeOff::Gaussian(mu_of(formal, delta()).unwrap());
    shown.epsilon_lower_gaussian > formal && shown.refutes(&says).unwrap()
}

/// The same sums without a bug are not caught, so that the tests below show something.
#[test]
fn without_a_bug_nothing_is_caught() {
    for seed in 0..5 {
        let bench = GaussianSum::new(10_000, FORMAL, delta(), seed).unwrap();
        assert!(!catches(&buggy(&bench, |_| 1), FORMAL));
    }
}

#[test]
fn noise_at_half_scale_is_caught() {
    let noise = 1.0 / mu_of(FORMAL, delta()).unwrap();
    let half = NoiseMultiplier::new(0.5 * noise).unwrap();
    let bench = GaussianSum::with_noise(50_000, half, delta(), 1).unwrap();
    assert!(catches(&bench.scores().unwrap(), FORMAL));
}

/// Half of the canaries say a weight of 100.
#[test]
fn weights_that_are_not_capped_are_caught() {
    let bench = GaussianSum::new(10_000, FORMAL, delta(), 2).unwrap();
    assert!(catches(&buggy(&bench, |canary| if canary % 2 == 0 { 100 } else { 1 }), FORMAL));
}

/// One canary in a hundred is not clipped; its update is a hundred times too large.
#[test]
fn a_clip_that_is_skipped_for_one_canary_in_a_hundred_is_caught() {
    let bench = GaussianSum::new(20_000, FORMAL, delta(), 3).unwrap();
    assert!(catches(&buggy(&bench, |canary| if canary % 100 == 0 { 100 } else { 1 }), FORMAL));
    // With epsilon 1 half as many are enough.
    let bench = GaussianSum::new(10_000, 1.0, delta(), 3).unwrap();
    assert!(catches(&buggy(&bench, |canary| if canary % 100 == 0 { 100 } else { 1 }), 1.0));
}

/// 30 rounds, each of which says that it samples one user in ten. In truth everybody takes part in all of them: the scores of 30
/// rounds add up to those of one with sqrt(30) times the signal.
#[test]
fn sampling_that_is_reported_but_not_done_is_caught() {
    let (rounds, z) = (30u32, 1.6);
    let round = PrivacyEvent::poisson(SamplingRate::new(0.1).unwrap(), NoiseMultiplier::new(z).unwrap());
    let says = round.times(rounds.into());
    let formal = AccountantKind::Best.judge(&says, delta()).unwrap().epsilon.get();
    assert!(formal <= 2.0, "{formal}");
    let guarantee = TradeOff::of_event(&says, AccountantKind::Best, 1).unwrap();
    let in_all = |sampled: bool| {
        let mut totals = vec![Scored { score: 0.0, present: false }; 10_000];
        for seed in 0..u64::from(rounds) {
            let bench = GaussianSum::with_noise(10_000, NoiseMultiplier::new(z).unwrap(), delta(), seed).unwrap();
            // The coins of the first round decide who takes part; in later ones they serve as the lot.
            let lot = bench.coins();
            let (mut releases, mut at) = (bench.releases().unwrap(), 0);
            for block in 0..bench.blocks() {
                let mut sum = bench.nobody();
                for canary in bench.block(block) {
                    let total = &mut totals[canary as usize];
                    total.present |= seed == 0 && lot[canary as usize];
                    // One in ten, by a lot that has nothing to do with the coins.
                    let drawn = !sampled || (canary * 7 + seed * 3 + canary / 10) % 10 == 0;
                    if total.present && drawn {
                        sum.add(&bench.sent(canary).unwrap()).unwrap();
                    }
                }
                for value in releases.next(sum).unwrap().into_iter().take(bench.block(block).count()) {
                    totals[at].score += value;
                    at += 1;
                }
            }
        }
        totals
    };
    let (done, not_done) = (audited(&in_all(true)), audited(&in_all(false)));
    assert!(!done.refutes(&guarantee).unwrap(), "sampling that was done");
    assert!(not_done.refutes(&guarantee).unwrap(), "sampling that was not done");
    // If only the noise could differ from what the run says of itself: a bound that is not empty, and a false run is above its formal epsilon.
    let lower = |shown: &OneRun| {
        let scaled = |scale: f64| says.with_noise_times(scale).unwrap();
        let scale = shown.refuted_noise(|s| TradeOff::of_event(&scaled(s), AccountantKind::Best, 1).ok()).unwrap();
        AccountantKind::Best.judge(&scaled(scale.unwrap()), delta()).unwrap().epsilon.get()
    };
    let (done, not_done) = (lower(&done), lower(&not_done));
    assert!(done > 0.1 && done <= formal && not_done > formal, "{done}, {not_done} of {formal}");
}

#[test]
fn how_many_canaries_a_slack_needs_is_said_and_holds() {
    let needed = canaries_needed(4.0, delta(), CONFIDENCE, &[0.7]).unwrap()[0].unwrap();
    assert!((200..=20_000).contains(&needed), "{needed}");
    let bench = GaussianSum::new(needed, 4.0, delta(), 11).unwrap();
    let lower = audited(&bench.scores().unwrap()).epsilon_lower_gaussian;
    assert!(lower >= 0.3 * 4.0 * 0.9, "{lower} with {needed} canaries");
}
