//! How long a single answer takes: `cargo bench -p keyhush-privacy`.

#![allow(missing_docs, reason = "criterion's macros make the items")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use keyhush_privacy::{
    AccountantKind, Adjacency, Delta, MinSeparation, NoiseMatrix, NoiseMultiplier, Participation, PrivacyEvent,
    SamplingRate, Segment, UnitError,
};

/// Sampling rate, noise, rounds, delta: Table 2 of McMahan et al. 2018, a larger rate, a tiny one.
const RUNS: [(&str, f64, f64, u64, f64); 3] = [
    ("mcmahan", 5000.0 / 763_430.0, 1.0, 5000, 1e-9),
    ("large rate", 0.1, 2.0, 1000, 1e-5),
    ("tiny rate", 1e-5, 1.0, 1_000_000, 2.5e-7),
];

fn poisson(q: f64, z: f64, rounds: u64) -> Result<PrivacyEvent, UnitError> {
    Ok(PrivacyEvent::poisson(SamplingRate::new(q)?, NoiseMultiplier::new(z)?).times(rounds))
}

/// One tree under participation limits.
fn tree(rounds: u64, rounds_between: u64, max_participations: u64) -> Result<PrivacyEvent, UnitError> {
    Ok(PrivacyEvent::CorrelatedGaussian {
        adjacency: Adjacency::ZeroOut,
        matrix: NoiseMatrix::Tree,
        segments: vec![Segment::of(rounds)],
        participation: Participation::MinSeparation {
            separation: MinSeparation::rounds_between(rounds_between)?,
            max_participations,
        },
        noise: NoiseMultiplier::new(7.0)?.into(),
    })
}

fn judge(c: &mut Criterion, name: &str, accountant: AccountantKind, event: &PrivacyEvent, delta: Delta) {
    c.bench_function(&format!("{accountant}/{name}"), |b| b.iter(|| accountant.judge(black_box(event), delta)));
}

fn accountants(c: &mut Criterion) {
    for (name, q, z, rounds, delta) in RUNS {
        let event = poisson(q, z, rounds).expect("legal numbers");
        let delta = Delta::new(delta).expect("a legal delta");
        for accountant in [AccountantKind::Moments, AccountantKind::Rdp, AccountantKind::Pld, AccountantKind::Best] {
            judge(c, name, accountant, &event, delta);
        }
    }
    // The en-IN run of Xu et al. 2023, and limits that hardly limit.
    let delta = Delta::new(1e-10).expect("a legal delta");
    for (name, rounds, rounds_between, count) in [("tree", 1290, 170, 6), ("crowded tree", 2000, 0, 8)] {
        let event = tree(rounds, rounds_between, count).expect("legal numbers");
        judge(c, name, AccountantKind::Zcdp, &event, delta);
    }
}

criterion_group!(benches, accountants);
criterion_main!(benches);
