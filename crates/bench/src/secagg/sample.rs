//! Removes only a sample of a round's masks from one vector, for rounds that are too large to run completely.

use secagg::{
    entropy::{Entropy, OsEntropy},
    masks::{self, BLOCK, MaskKey, Shape, Sign},
    server::{Job, Parallel},
};

use super::{
    Case, VanishAt,
    answer::{About, SampleTook},
    workers::Workers,
};
use crate::{BenchError, clock::peak_mb};

/// Takes so many masks off.
pub(super) fn run(case: &Case, streams: u32) -> Result<SampleTook, BenchError> {
    let all = expected_streams(case);
    if !(1..=all).contains(&u64::from(streams)) {
        let problem = format!("must be from 1 to {all}, the masks of such a round, got {streams}");
        return Err(BenchError::wrong("streams_sample", problem));
    }
    let shape = Shape::new(case.terms.dimension as usize, case.terms.bits).map_err(BenchError::failed)?;
    let mut keys = Vec::with_capacity(streams as usize);
    for number in 0..streams {
        let mut key = [0; 32];
        OsEntropy.fill(&mut key).map_err(BenchError::failed)?;
        keys.push((MaskKey::new(key), if number % 2 == 0 { Sign::Plus } else { Sign::Minus }));
    }
    let mut lanes = vec![0; shape.padded()];
    let cpu_s = take_off(&mut lanes, shape.bits(), &keys, case.threads)?;
    let elements = shape.padded() as f64 * f64::from(streams);
    Ok(SampleTook {
        about: About::new(case),
        streams: all,
        streams_measured: streams,
        measured_cpu_s: cpu_s,
        ns_per_mask_element: cpu_s * 1e9 / elements,
        extrapolated_cpu_s: cpu_s * all as f64 / f64::from(streams),
        peak_mb: peak_mb(),
    })
}

/// Masks that the server of such a round removes: the survivors' own, and what the vanished share with survivors, who
/// are as many among their neighbours as among all others on average.
fn expected_streams(case: &Case) -> u64 {
    let (clients, degree) = (u64::from(case.parameters.clients()), u64::from(case.parameters.degree()));
    let dropped = u64::from(case.dropped);
    let survivors = clients - dropped;
    match case.vanish_at {
        VanishAt::Shares => survivors,
        VanishAt::Input => survivors + (dropped * degree * survivors).div_ceil(clients - 1),
        VanishAt::Unmask => clients,
    }
}

/// As the server does it: slice by slice of the vector. Gives CPU seconds.
fn take_off(lanes: &mut [u32], bits: u32, keys: &[(MaskKey, Sign)], threads: usize) -> Result<f64, BenchError> {
    let workers = Workers::new(threads);
    let blocks = (lanes.len() / BLOCK).div_ceil(workers.width());
    let job = |(number, lanes)| -> Job<'_> {
        Box::new(move || masks::apply(lanes, (number * blocks) as u64, bits, keys).expect("slices are whole blocks"))
    };
    workers.run(lanes.chunks_mut(blocks * BLOCK).enumerate().map(job).collect());
    workers.batches().pop().ok_or_else(|| BenchError::failed("the masks were not taken off"))
}
