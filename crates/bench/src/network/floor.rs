//! The lower bound for any server: reads the bytes of a run's reports from loopback, checks them and adds them up.
//!
//! One thread sends reports, another reads each into memory, checks every bound of its encoding (its exact norm among them) and adds it to the
//! sum. What that one needs of the CPU is the floor: no HTTP, no requests, no signatures, nothing durable, no noise.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
};

use ::device::protocol::message::CHUNK;
use privacy::{
    encoding::Encoding,
    stages::{Encoded, Sum},
};
use serde::Serialize;

use crate::{BenchError, WorkError, clock};

/// Reports that are read to know what one costs: so many, or as many as are of so many bytes.
const MEASURED: usize = 200;
const MEASURED_BYTES: usize = 1 << 30;

/// The cost of reading, checking and adding the reports of a run, next to the server's cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Floor {
    /// Bytes of a report.
    pub report_bytes: u64,
    /// Milliseconds of CPU time to read, check and add one, on one thread.
    pub report_cpu_ms: f64,
    /// Seconds for all reports that are in sums.
    pub cpu_s: f64,
    /// The server's CPU time over that.
    pub ratio: f64,
}

impl Floor {
    /// Measures it for a run in which so many reports were added, by a server that needed so much CPU time.
    pub(super) fn measure(encoding: &Encoding, reports: u64, server_cpu_s: f64) -> Result<Self, BenchError> {
        let each = cpu_s_each(encoding).map_err(BenchError::Work)?;
        let cpu_s = each * reports as f64;
        let report_bytes = encoding.packing().bytes() as u64;
        Ok(Self { report_bytes, report_cpu_ms: each * 1e3, cpu_s, ratio: server_cpu_s / cpu_s })
    }
}

fn cpu_s_each(encoding: &Encoding) -> Result<f64, WorkError> {
    let values = (0..encoding.layout().len()).map(|at| if at < encoding.dimension() { (at % 3) as i32 - 1 } else { 0 });
    let report = Encoded::of(values.collect(), encoding)?.to_bytes();
    let measured = (MEASURED_BYTES / report.len()).clamp(2, MEASURED);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let bytes = report.len();
    let sends = std::thread::spawn(move || -> io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        (0..=measured).try_for_each(|_| stream.write_all(&report))
    });
    let (mut stream, _) = listener.accept()?;
    let mut sum = Sum::zero(encoding);
    let mut began = 0.0;
    for number in 0..=measured {
        // The first one finds pages and caches cold.
        if number == 1 {
            began = clock::thread_seconds();
        }
        take(&mut stream, bytes, encoding, &mut sum)?;
    }
    let took = clock::thread_seconds() - began;
    sends.join().map_err(|_| "the thread that sends reports panicked")??;
    Ok(took / measured as f64)
}

/// One report: read in pieces as long as its chunks are, checked, added.
fn take(stream: &mut TcpStream, bytes: usize, encoding: &Encoding, sum: &mut Sum) -> Result<(), WorkError> {
    let mut report = Vec::with_capacity(bytes);
    while report.len() < bytes {
        let left = (bytes - report.len()).min(CHUNK) as u64;
        if stream.take(left).read_to_end(&mut report)? == 0 {
            return Err("the reports end too early".into());
        }
    }
    sum.add(&Encoded::check(&report, encoding)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use privacy::{Adjacency, ClipNorm, encoding::VectorPlan};

    use super::*;

    #[test]
    fn more_coordinates_cost_more() {
        let of = |dimension| {
            let plan = VectorPlan::of_update(dimension, 20);
            let encoding = Encoding::new(plan, ClipNorm::new(1.0).unwrap(), None, Adjacency::ZeroOut).unwrap();
            Floor::measure(&encoding, 10, 1.0).unwrap()
        };
        let (small, large) = (of(1_000), of(1_000_000));
        assert_eq!((small.report_bytes, large.report_bytes), (2_750, 2_750_000));
        assert!(large.report_cpu_ms > 3.0 * small.report_cpu_ms, "{small:?} {large:?}");
        assert!((large.cpu_s - large.report_cpu_ms / 100.0).abs() < 1e-9);
        assert!((large.ratio * large.cpu_s - 1.0).abs() < 1e-9, "{large:?}");
    }
}
