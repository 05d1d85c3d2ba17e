//! Times the random rotation for `bench/rotation/`: coordinates a second on one core, beside the textbook loop.
//!
//! `cargo run --release -p keyhush-privacy --example bench_rotation -- [--repeats N] [--out FOLDER]`; without a folder
//! it prints the table.

#![allow(clippy::print_stdout, reason = "printing is what this program does")]

use std::{env, error::Error, fs, hint::black_box, path::Path, thread, time::Instant};

use keyhush_privacy::encoding::rotation::Rotation;
use pulp::{Arch, Simd, WithSimd};
use serde_json::{Value, json};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// What is rotated: name, coordinates.
const SIZES: [(&str, usize); 4] = [("2^16", 1 << 16), ("2^21", 1 << 21), ("5 * 2^19", 5 << 19), ("2^24", 1 << 24)];

/// Each sample rotates at least this many coordinates, so that small sizes are timed too.
const COORDINATES: usize = 1 << 23;

/// An orthonormal matrix, in elevenths.
const FIVE: [[f32; 5]; 5] = [
    [3.0, 2.0, 6.0, 6.0, 6.0],
    [2.0, 6.0, -3.0, 6.0, -6.0],
    [6.0, -3.0, 6.0, -2.0, -6.0],
    [6.0, 6.0, -2.0, -6.0, 3.0],
    [6.0, -6.0, -6.0, 3.0, 2.0],
];

/// The instruction set that was found at run time.
struct Found;

impl WithSimd for Found {
    type Output = &'static str;

    fn with_simd<S: Simd>(self, _: S) -> &'static str {
        match std::any::type_name::<S>() {
            name if name.ends_with("V4") => "AVX-512",
            name if name.ends_with("V3") => "AVX2",
            name if name.ends_with("Neon") || name.ends_with("NeonFcma") => "NEON",
            name => name,
        }
    }
}

/// Seconds this thread has run; where the system does not say, seconds on the wall.
fn cpu_seconds(since: Instant) -> f64 {
    thread::yield_now(); // brings the kernel's account up to date
    let account = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = account.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |n| n * 1e-9)
}

/// The transform as it is usually written: signs, then a pass over the vector for each stage, then the odd factor.
fn textbook(values: &mut [f32], signs: &[f32], block: usize, factor: usize) {
    for (value, sign) in values.iter_mut().zip(signs) {
        *value *= sign;
    }
    for part in values.chunks_exact_mut(block) {
        let mut h = 1;
        while h < block {
            for pair in part.chunks_exact_mut(2 * h) {
                let (low, high) = pair.split_at_mut(h);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            h *= 2;
        }
    }
    if factor == 5 {
        for column in 0..block {
            let x: [f32; 5] = std::array::from_fn(|i| values[i * block + column]);
            for (row, entries) in FIVE.iter().enumerate() {
                values[row * block + column] = entries.iter().zip(x).map(|(m, x)| m / 11.0 * x).sum();
            }
        }
    }
}

/// A way to rotate: its name, the bytes of a coordinate, one rotation.
struct Way<'a> {
    name: &'static str,
    bytes: usize,
    go: Box<dyn FnMut() + 'a>,
    samples: Vec<f64>,
}

impl<'a> Way<'a> {
    fn new(name: &'static str, bytes: usize, go: impl FnMut() + 'a) -> Self {
        Self { name, bytes, go: Box::new(go), samples: Vec::new() }
    }

    /// The median of the samples.
    fn seconds(&mut self) -> f64 {
        self.samples.sort_by(f64::total_cmp);
        self.samples[self.samples.len() / 2]
    }
}

/// Vectors that every way rotates again and again; a rotation keeps their norm.
fn sample(n: usize) -> Vec<f32> {
    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
}

fn measure(name: &str, n: usize, repeats: usize) -> Fallible<Value> {
    let rotation = Rotation::new(n, [1; 32])?;
    let (factor, block) = if n.is_power_of_two() { (1, n) } else { (5, n / 5) };
    let scale = 1.0 / (block as f32).sqrt();
    let signs: Vec<f32> = sample(n).iter().map(|v| v.signum() * scale).collect();
    let (mut a, mut b, mut c) = (sample(n), sample(n), sample(n));
    let mut doubles: Vec<f64> = sample(n).iter().map(|v| f64::from(*v)).collect();
    let r = &rotation;
    let mut ways = vec![
        Way::new("forward", 4, || r.forward(black_box(&mut a))),
        Way::new("textbook", 4, || textbook(black_box(&mut b), &signs, block, factor)),
        Way::new("inverse", 4, || r.inverse(black_box(&mut c))),
        Way::new("inverse_f64", 8, || r.inverse_f64(black_box(&mut doubles))),
        Way::new("new", 4, || _ = black_box(Rotation::new(n, black_box([1; 32])))),
    ];
    let (calls, start) = (COORDINATES.div_ceil(n), Instant::now());
    for repeat in 0..=repeats {
        for way in &mut ways {
            let before = cpu_seconds(start);
            (0..calls).for_each(|_| (way.go)());
            let seconds = (cpu_seconds(start) - before) / calls as f64;
            if repeat > 0 {
                way.samples.push(seconds); // the first is to warm up
            }
        }
    }
    let rows = ways.iter_mut().map(|way| {
        let seconds = way.seconds();
        let rate = (way.bytes * n) as f64 / seconds / 1e9;
        json!({ "way": way.name, "median_cpu_s": seconds, "gb_per_s": rate, "samples_s": way.samples })
    });
    Ok(json!({ "size": name, "coordinates": n, "calls_a_sample": calls, "ways": rows.collect::<Vec<_>>() }))
}

/// One line for each size, one column for each way.
fn table(sizes: &[Value]) -> String {
    let ways = |size: &Value| size["ways"].as_array().cloned().unwrap_or_default();
    let names: Vec<String> =
        ways(&sizes[0]).iter().map(|way| way["way"].as_str().unwrap_or_default().to_owned()).collect();
    let mut text =
        format!("| d | {} | forward / textbook |\n|---|{}---|\n", names.join(" | "), "---|".repeat(names.len()));
    for size in sizes {
        let rates: Vec<f64> = ways(size).iter().map(|way| way["gb_per_s"].as_f64().unwrap_or_default()).collect();
        let cells: Vec<String> = rates.iter().map(|rate| format!("{rate:.2}")).collect();
        let name = size["size"].as_str().unwrap_or_default();
        text += &format!("| {name} | {} | {:.1} |\n", cells.join(" | "), rates[0] / rates[1]);
    }
    text
}

/// The processor's name, where Linux says it.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown processor").to_owned()
}

fn main() -> Fallible<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|at| args.get(at + 1));
    let repeats = value("--repeats").map_or(Ok(21), |n| n.parse())?;
    let sizes = SIZES.iter().map(|(name, n)| measure(name, *n, repeats)).collect::<Fallible<Vec<_>>>()?;
    let found = Arch::new().dispatch(Found);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let said = |name: &str| env::var(name).unwrap_or_else(|_| "unknown".to_owned());
    let (date, revision, rustc) = (said("BENCH_DATE"), said("BENCH_REVISION"), said("BENCH_RUSTC"));
    let load = load.split(' ').next().unwrap_or_default();
    let text = format!(
        "# The random rotation\n\n{date}, {}, one core, {found}, load {load} after.\n{rustc}.\nRevision {revision}.\n\n\
         GB of coordinates a second (4 bytes each, 8 for `inverse_f64`) by the median CPU time of {repeats} samples, all \
         ways in turn.\n\n{}",
        machine(),
        table(&sizes)
    );
    match value("--out") {
        None => print!("{text}"),
        Some(folder) => {
            fs::create_dir_all(folder)?;
            fs::write(Path::new(folder).join("table.md"), &text)?;
            let all = json!({
                "date": date, "machine": machine(), "instruction_set": found, "rustc": rustc, "revision": revision,
                "repeats": repeats, "sizes": sizes,
            });
            fs::write(Path::new(folder).join("results.json"), serde_json::to_string_pretty(&all)? + "\n")?;
        }
    }
    Ok(())
}
