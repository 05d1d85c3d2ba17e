//! CPU seconds of one release at d = 2.4 million, noise included, as JSON lines. `bench/noise` keeps its runs.

use std::{sync::Arc, time::Instant};

use keyhush_privacy::{
    Adjacency, ClipNorm, MinSeparation, NoiseMatrix, NoiseMultiplier, Participation, Segment,
    encoding::{Encoding, NoisePlan, VectorPlan},
    mechanism::{Correlation, Mechanism, MechanismPlan},
    rng::{NoiseKey, NoiseSource, SimulationKey},
    stages::Sum,
};

const DIMENSION: usize = 2_400_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let noise = NoisePlan { clip_count_stddev: Some(325.0), ..NoisePlan::of_update(NoiseMultiplier::new(7.0)?) };
    let vector = VectorPlan { clip_bit: true, ..VectorPlan::of_update(DIMENSION, 17) };
    let encoding = Encoding::new(vector, ClipNorm::new(1.0)?, Some(&noise), Adjacency::ZeroOut)?;
    let sigma = encoding.layout().segments()[0].sigma;
    let blt = NoiseMatrix::Blt {
        buffer_decay: vec![0.9990234375, 0.96875, 0.75, 0.25],
        output_scale: vec![0.0625, 0.125, 0.125, 0.0625],
    };
    let banded = NoiseMatrix::Banded { coefficients: (0..32).map(|i| f64::from((1 << 24) / (i + 1)) / f64::from(1 << 24)).collect() };
    let kinds = [
        ("gaussian", Correlation::Independent, 8, false),
        ("gaussian, simulated floating point", Correlation::Independent, 8, true),
        ("tree", Correlation::Matrix(NoiseMatrix::Tree), 32, false),
        ("blt, 4 buffers", Correlation::Matrix(blt), 8, false),
        ("banded, 32 bands", Correlation::Matrix(banded), 40, false),
    ];
    for (name, correlation, rounds, floating_point) in kinds {
        let source: NoiseSource =
            if floating_point { SimulationKey::with_floating_point_noise(1).into() } else { NoiseKey::generate()?.into() };
        let separation = MinSeparation::rounds_between(100)?;
        let plan = MechanismPlan {
            stream: 0,
            adjacency: Adjacency::ZeroOut,
            participation: Participation::MinSeparation { separation, max_participations: 4 },
            correlation,
            segments: vec![Segment::of(rounds)],
        };
        let memory = plan.memory(encoding.layout());
        let mut mechanism = Mechanism::init(plan, encoding.layout(), Arc::new(source))?;
        let mut seconds = 0.0;
        for _ in 0..rounds {
            let sum = Sum::zero(&encoding);
            let start = Instant::now();
            let released = mechanism.release(sum)?;
            seconds += start.elapsed().as_secs_f64();
            assert_eq!(released.values().len(), DIMENSION + 1);
        }
        println!(
            "{{\"mechanism\": \"{name}\", \"dimension\": {DIMENSION}, \"sigma\": {sigma}, \"memory_bytes\": {memory}, \"seconds_per_release\": {:.4}}}",
            seconds / rounds as f64
        );
    }
    Ok(())
}
