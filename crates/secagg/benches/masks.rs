//! What masks and packed vectors cost an element: `cargo bench -p keyhush-secagg --bench masks`.

#![allow(missing_docs, reason = "criterion's macros make the items")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use keyhush_secagg::masks::{MaskKey, Shape, Sign, add_packed, apply, pack};

/// The parameters of a production language model.
const DIMENSION: usize = 2_400_000;

/// As many masks as one pass over the vector adds.
const MASKS: usize = 64;

/// More vectors than a cache holds, as they come from a network.
const CLIENTS: usize = 32;

fn shape(bits: u32) -> Shape {
    Shape::new(DIMENSION, bits).expect("a legal shape")
}

/// Every other mask is subtracted, as on a client.
fn streams() -> Vec<(MaskKey, Sign)> {
    (0..MASKS).map(|i| (MaskKey::new([i as u8; 32]), if i % 2 == 0 { Sign::Plus } else { Sign::Minus })).collect()
}

/// Time for each mask and element.
fn expand(c: &mut Criterion) {
    let streams = streams();
    let mut group = c.benchmark_group("apply masks");
    group.sample_size(10);
    for bits in [16, 19, 20, 21, 23, 32] {
        let shape = shape(bits);
        let mut lanes = vec![0; shape.padded()];
        group.throughput(Throughput::Elements((shape.padded() * MASKS) as u64));
        group.bench_function(format!("{bits} bits"), |b| {
            b.iter(|| apply(black_box(&mut lanes), 0, bits, black_box(&streams)).expect("whole blocks"));
        });
    }
    group.finish();
}

/// Time for each client's vector.
fn ingest(c: &mut Criterion) {
    let mut group = c.benchmark_group("add a packed vector");
    for bits in [19, 21, 23, 32] {
        let shape = shape(bits);
        let mut lanes = vec![0; shape.padded()];
        let clients: Vec<_> = (0..CLIENTS).map(|i| vec![i as u8; shape.packed_len()]).collect();
        let mut next = clients.iter().cycle();
        group.throughput(Throughput::Elements(shape.padded() as u64));
        group.bench_function(format!("{bits} bits"), |b| {
            b.iter_batched(
                || next.next().expect("a cycle has no end"),
                |packed| add_packed(black_box(&mut lanes), black_box(packed), bits).expect("the right length"),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// Time for a client's own vector.
fn packing(c: &mut Criterion) {
    let mut group = c.benchmark_group("pack a vector");
    for bits in [19, 21, 23, 32] {
        let shape = shape(bits);
        let lanes: Vec<u32> = (0..shape.padded() as u32).collect();
        let mut packed = Vec::with_capacity(shape.packed_len());
        group.throughput(Throughput::Elements(shape.padded() as u64));
        group.bench_function(format!("{bits} bits"), |b| {
            b.iter(|| {
                packed.clear();
                pack(black_box(&lanes), bits, black_box(&mut packed)).expect("whole blocks");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, expand, ingest, packing);
criterion_main!(benches);
