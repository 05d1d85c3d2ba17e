//! CPU seconds of one release at d = 2.4 million, noise included, as JSON lines; `bench/noise/` keeps its runs.

#![allow(clippy::print_stdout, reason = "printing is what this program does")]

use std::{fs, thread, time::Instant};

use keyhush_privacy::{
    Adjacency, ClipNorm, MinSeparation, NoiseMatrix, NoiseMultiplier, Participation, Segment,
    encoding::{Encoding, NoisePlan, VectorPlan},
    mechanism::{Correlation, Mechanism, MechanismPlan},
    rng::{NoiseKey, SimulationKey},
    stages::Sum,
    step_keys::{MemoryShelf, SecretSteps, StepAt, StepKeys},
};

const DIMENSION: usize = 2_400_000;

/// Seconds this thread has run; where the system does not say, seconds on the wall.
fn cpu_seconds(since: Instant) -> f64 {
    thread::yield_now(); // brings the kernel's account up to date
    let account = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = account.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |n| n * 1e-9)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let noise = NoisePlan { clip_count_stddev: Some(325.0), ..NoisePlan::of_update(NoiseMultiplier::new(7.0)?) };
    let vector = VectorPlan { clip_bit: true, ..VectorPlan::of_update(DIMENSION, 17) };
    let encoding = Encoding::new(vector, ClipNorm::new(1.0)?, Some(&noise), Adjacency::ZeroOut)?;
    let sigma = encoding.layout().segments()[0].sigma;
    let blt = NoiseMatrix::Blt {
        buffer_decay: vec![0.9990234375, 0.96875, 0.75, 0.25],
        output_scale: vec![0.0625, 0.125, 0.125, 0.0625],
    };
    let banded = |bands| {
        let coefficient = |i| f64::from((1 << 24) / (i + 1)) / f64::from(1 << 24);
        NoiseMatrix::Banded { coefficients: (0..bands).map(coefficient).collect() }
    };
    let kinds = [
        ("gaussian", Correlation::Independent, 8, false),
        ("gaussian, simulated floating point", Correlation::Independent, 8, true),
        ("tree", Correlation::Matrix(NoiseMatrix::Tree), 32, false),
        ("blt, 4 buffers", Correlation::Matrix(blt), 8, false),
        ("banded, 8 bands", Correlation::Matrix(banded(8)), 16, false),
        ("banded, 32 bands", Correlation::Matrix(banded(32)), 40, false),
    ];
    for (name, correlation, rounds, floating_point) in kinds {
        let mut keys: Box<dyn StepKeys> = if floating_point {
            Box::new(SimulationKey::with_floating_point_noise(1))
        } else {
            Box::new(SecretSteps::new(NoiseKey::generate()?, MemoryShelf::default()))
        };
        let separation = MinSeparation::rounds_between(100)?;
        let plan = MechanismPlan {
            stream: 0,
            adjacency: Adjacency::ZeroOut,
            participation: Participation::MinSeparation { separation, max_participations: 4 },
            correlation,
            segments: vec![Segment::of(rounds)],
            distributed: None,
        };
        let memory = plan.memory(encoding.layout());
        let mut mechanism = Mechanism::init(plan, encoding.layout(), keys.randomness())?;
        let (begun, mut seconds) = (Instant::now(), 0.0);
        for step in 0..rounds {
            let sum = Sum::zero(&encoding);
            let before = cpu_seconds(begun);
            let released = mechanism.release(sum, &mut *keys)?;
            keys.recorded(StepAt { stream: 0, segment: 0, step }, mechanism.needs_noise_again())?;
            seconds += cpu_seconds(begun) - before;
            assert_eq!(released.values().len(), DIMENSION + 1);
        }
        let line = serde_json::json!({
            "mechanism": name, "dimension": DIMENSION, "sigma": sigma, "memory_bytes": memory, "rounds": rounds,
            "seconds_per_release": seconds / rounds as f64,
        });
        println!("{line}");
    }
    Ok(())
}
