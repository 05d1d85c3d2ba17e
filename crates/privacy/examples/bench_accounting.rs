//! Times accountants on the cases of `bench/accounting/`, one JSON object a line.
//!
//! `cargo run --release -p keyhush-privacy --example bench_accounting -- [--repeats N] CASE...`; without cases it lists
//! them. Every call starts from nothing: no accountant keeps anything between calls.

#![allow(clippy::print_stdout, reason = "printing is what this program does")]

use std::{error::Error, hint::black_box, process::ExitCode, time::Instant};

use keyhush_privacy::{
    AccountantKind, Adjacency, Delta, Epsilon, MinSeparation, NoiseMatrix, NoiseMultiplier, Participation,
    PrivacyEvent, SamplingRate, Segment, calibrate::Target,
};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// A Poisson-sampled run.
struct Run {
    name: &'static str,
    q: f64,
    z: f64,
    rounds: u64,
    delta: f64,
    /// For calibration; 0 where there is none.
    target: f64,
}

const RUNS: [Run; 6] = [
    Run { name: "A", q: 5000.0 / 763_430.0, z: 1.0, rounds: 5000, delta: 1e-9, target: 4.0 },
    Run { name: "B", q: 0.001, z: 1.0, rounds: 10_000, delta: 2.511_886_431_509_582_3e-7, target: 0.0 },
    Run { name: "C", q: 0.01, z: 0.8, rounds: 1000, delta: 1e-6, target: 2.0 },
    Run { name: "D", q: 0.1, z: 2.0, rounds: 1000, delta: 1e-5, target: 8.0 },
    Run { name: "E", q: 0.001, z: 1.0, rounds: 1_000_000, delta: 2.511_886_431_509_582_3e-7, target: 0.0 },
    Run { name: "F", q: 1e-5, z: 1.0, rounds: 1_000_000, delta: 2.511_886_431_509_582_3e-7, target: 0.0 },
];

/// Andrew et al. 2021: population, cohort, noise, rounds.
const FIXED_SIZE: [(&str, u64, u64, f64, u64); 2] =
    [("fig2", 1_000_000, 100, 10.0, 200), ("cifar", 1_000_000, 2231, 0.6693, 4000)];
const FIXED_SIZE_DELTA: f64 = 2.511_886_431_509_577e-7;

/// Xu et al. 2023: rounds, rounds between two participations, participations; noise 7.
const TREES: [(&str, u64, u64, u64); 3] =
    [("pt-PT_530_54_8", 530, 54, 8), ("ru-RU_870_327_3", 870, 327, 3), ("de-DE_930_212_4", 930, 212, 4)];

/// What is timed: a function without arguments that returns the answer.
struct Case {
    name: String,
    call: Box<dyn Fn() -> Fallible<f64>>,
}

impl Case {
    fn new(name: String, call: impl Fn() -> Fallible<f64> + 'static) -> Self {
        Self { name, call: Box::new(call) }
    }
}

fn poisson(q: f64, z: f64, rounds: u64) -> Fallible<PrivacyEvent> {
    Ok(PrivacyEvent::poisson(SamplingRate::new(q)?, NoiseMultiplier::new(z)?).times(rounds))
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for accountant in [AccountantKind::Rdp, AccountantKind::Pld] {
        for run in &RUNS {
            cases.push(Case::new(format!("{accountant}_{}", run.name), move || {
                Ok(accountant.judge(&poisson(run.q, run.z, run.rounds)?, Delta::new(run.delta)?)?.epsilon.get())
            }));
        }
        for run in RUNS.iter().filter(|r| r.target > 0.0) {
            cases.push(Case::new(format!("calibrate_{accountant}_{}", run.name), move || {
                let (epsilon, delta) = (Epsilon::new(run.target)?, Delta::new(run.delta)?);
                let rate = SamplingRate::new(run.q)?;
                let event = |z| PrivacyEvent::poisson(rate, z).times(run.rounds);
                Ok(Target { epsilon, delta, accountant, group: 1 }.noise_multiplier(event)?.value.get())
            }));
        }
    }
    for (name, population, cohort, z, rounds) in FIXED_SIZE {
        cases.push(Case::new(format!("fixed-size_{name}"), move || {
            let event = PrivacyEvent::SampledGaussian {
                adjacency: Adjacency::ReplaceOne,
                participation: Participation::FixedSize { population, cohort },
                noise: NoiseMultiplier::new(z)?.into(),
            };
            Ok(AccountantKind::Rdp.judge(&event.times(rounds), Delta::new(FIXED_SIZE_DELTA)?)?.epsilon.get())
        }));
    }
    for (name, rounds, between, max_participations) in TREES {
        cases.push(Case::new(format!("tree_{name}"), move || {
            let event = PrivacyEvent::CorrelatedGaussian {
                adjacency: Adjacency::ZeroOut,
                matrix: NoiseMatrix::Tree,
                segments: vec![Segment::of(rounds)],
                participation: Participation::MinSeparation {
                    separation: MinSeparation::rounds_between(between)?,
                    max_participations,
                },
                noise: NoiseMultiplier::new(7.0)?.into(),
            };
            let judgement = AccountantKind::Zcdp.judge(&event, Delta::new(1e-10)?)?;
            Ok(judgement.rho.ok_or("a tree has a rho")?.get())
        }));
    }
    cases.push(Case::new("gaussian".into(), || {
        let event = PrivacyEvent::gaussian(Adjacency::AddOrRemove, NoiseMultiplier::new(1.0)?);
        Ok(AccountantKind::Zcdp.judge(&event, Delta::new(1e-10)?)?.epsilon.get())
    }));
    cases
}

/// Seconds of CPU that this process has used, where the system says.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(stat.split_whitespace().next()?.parse::<f64>().ok()? * 1e-9)
}

fn measure(case: &Case, repeats: usize) -> Fallible<()> {
    let value = (case.call)()?;
    let cpu_before = cpu_seconds();
    let mut seconds = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        let start = Instant::now();
        black_box((case.call)()?);
        seconds.push(start.elapsed().as_secs_f64());
    }
    // The system counts in ticks of some milliseconds: below a hundred of those the figure says nothing.
    let cpu = cpu_before.zip(cpu_seconds()).map(|(before, after)| after - before).filter(|spent| *spent > 0.4);
    seconds.sort_by(f64::total_cmp);
    let line = serde_json::json!({
        "case": case.name,
        "repeats": repeats,
        "wall_min_s": seconds[0],
        "wall_median_s": seconds[repeats / 2],
        "cpu_mean_s": cpu.map(|spent| spent / repeats as f64),
        "value": value,
    });
    println!("{line}");
    Ok(())
}

fn main() -> Fallible<ExitCode> {
    let mut repeats = 20;
    let mut wanted = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--repeats" {
            repeats = args.next().ok_or("--repeats needs a number")?.parse::<usize>()?.max(1);
        } else {
            wanted.push(arg);
        }
    }
    let cases = cases();
    if wanted.is_empty() {
        cases.iter().for_each(|case| println!("{}", case.name));
    }
    for name in wanted {
        let case = cases.iter().find(|case| case.name == name).ok_or_else(|| format!("there is no case {name}"))?;
        measure(case, repeats)?;
    }
    Ok(ExitCode::SUCCESS)
}
