//! Samples a second and core of the noise samplers, as JSON lines; `bench/noise` compares them with their peer.

use std::time::Instant;

use keyhush_privacy::{
    noise::DiscreteGaussianSampler,
    rng::{NoiseKey, NoiseSource, Purpose},
};

fn main() {
    let source = NoiseSource::from(NoiseKey::generate().expect("the operating system gives randomness"));
    let mut out = vec![0i64; 1 << 12];
    for bits in [5u32, 10, 15, 20, 30, 40, 55] {
        let sampler = DiscreteGaussianSampler::new(1 << bits).expect("in range");
        let stream = source.stream(Purpose::Noise, &[u64::from(bits)]);
        let mut best = f64::INFINITY;
        for repeat in 0..7u64 {
            let start = Instant::now();
            for chunk in 0..256 {
                sampler.fill(&mut stream.chunk(repeat << 32 | chunk), &mut out);
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("{{\"sampler\": \"discrete_gaussian\", \"log2_sigma\": {bits}, \"samples_per_second\": {:.4e}}}", 256.0 * 4096.0 / best);
    }
}
