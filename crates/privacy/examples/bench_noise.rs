//! A quick look at the samples a second and core of the noise samplers, as JSON lines; `bench/noise/` compares them with
//! their peer and keeps its runs.

#![allow(clippy::print_stdout, reason = "printing is what this program does")]

use std::{fs, thread, time::Instant};

use keyhush_privacy::{
    noise::{DiscreteGaussianSampler, SimulatedGaussian, SkellamSampler},
    rng::{NoiseKey, NoiseSource, Purpose, RandomWords},
};

/// Draws from one stream, and streams in a repeat.
const CHUNK: usize = 1 << 12;
const CHUNKS: u64 = 256;

/// Seconds this thread has run; where the system does not say, seconds on the wall.
fn cpu_seconds(since: Instant) -> f64 {
    thread::yield_now(); // brings the kernel's account up to date
    let account = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = account.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |n| n * 1e-9)
}

/// The best of seven repeats.
fn time(source: &NoiseSource, sampler: &str, parameter: String, fill: impl Fn(&mut RandomWords, &mut [i64])) {
    let mut out = vec![0i64; CHUNK];
    let stream = source.stream(Purpose::Noise, &[]);
    let (begun, mut best) = (Instant::now(), f64::INFINITY);
    for repeat in 0..7u64 {
        let before = cpu_seconds(begun);
        (0..CHUNKS).for_each(|chunk| fill(&mut stream.chunk(repeat << 32 | chunk), &mut out));
        best = best.min(cpu_seconds(begun) - before);
    }
    let per_second = (CHUNKS as f64 * CHUNK as f64 / best).round();
    println!("{}", serde_json::json!({"sampler": sampler, "parameter": parameter, "samples_per_second": per_second}));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = NoiseSource::from(NoiseKey::generate()?);
    for bits in [5u32, 10, 15, 20, 30, 40, 55] {
        let sampler = DiscreteGaussianSampler::new(1 << bits)?;
        time(&source, "discrete_gaussian", format!("sigma 2^{bits}"), |words, out| sampler.fill(words, out));
    }
    for bits in [10u32, 20, 36, 60] {
        let sampler = SkellamSampler::new(1 << bits)?;
        time(&source, "skellam", format!("variance 2^{bits}"), |words, out| sampler.fill(words, out));
    }
    let sampler = SimulatedGaussian::new(1 << 20);
    time(&source, "simulated_gaussian", "sigma 2^20".into(), |words, out| sampler.fill(words, out));
    Ok(())
}
