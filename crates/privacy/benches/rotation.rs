//! How long one rotation takes: `cargo bench -p keyhush-privacy --bench rotation`.

#![allow(missing_docs, reason = "criterion's macros make the items")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use keyhush_privacy::encoding::rotation::{Rotation, clamp_linf};

const SIZES: [(&str, usize); 4] = [("2^16", 1 << 16), ("2^21", 1 << 21), ("5 x 2^19", 5 << 19), ("2^24", 1 << 24)];

fn rotations(c: &mut Criterion) {
    for (name, n) in SIZES {
        let mut group = c.benchmark_group(format!("rotation/{name}"));
        group.throughput(Throughput::Bytes(4 * n as u64)).sample_size(20);
        let rotation = Rotation::new(n, [1; 32]).expect("these sizes are legal");
        let mut values: Vec<f32> = (0..n).map(|i| (i % 1009) as f32 / 1009.0 - 0.5).collect();
        group.bench_function("forward", |b| b.iter(|| rotation.forward(black_box(&mut values))));
        group.bench_function("inverse", |b| b.iter(|| rotation.inverse(black_box(&mut values))));
        group.bench_function("clamp", |b| b.iter(|| clamp_linf(black_box(&mut values), 1)));
        group.finish();
    }
}

criterion_group!(benches, rotations);
criterion_main!(benches);
