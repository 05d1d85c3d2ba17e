//! Samples of exact noise a second: Keyhush beside opendp, in turn, on one core.
//!
//! Started by `run.sh`, explained in `README.md`. Both draw from the same law, the discrete Gaussian of Canonne, Kamath and
//! Steinke 2020 (arXiv:2004.00010); what is timed is the CPU time of this thread.

use std::{env, error::Error, fs, hint::black_box, path::Path, thread, time::Instant};

use dashu::rational::RBig;
use keyhush_privacy::{
    noise::{DiscreteGaussianSampler, SimulatedGaussian, SkellamSampler},
    rng::{NoiseKey, NoiseSource, Purpose, StreamKey},
};
use opendp::traits::samplers::sample_discrete_gaussian;
use serde_json::{Value, json};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// The parameters that both sides draw with, as powers of 2.
const SIGMAS: [u32; 4] = [5, 10, 20, 30];
/// Draws of a sample of the peer's, and of ours.
const PEER_DRAWS: usize = 20_000;
const OUR_DRAWS: usize = 1 << 20;
/// Coordinates that a stream of ours is opened for, as the mechanisms do.
const CHUNK: usize = 1 << 12;

/// Seconds this thread has run; where the system does not say, seconds on the wall.
fn cpu_seconds(since: Instant) -> f64 {
    thread::yield_now(); // brings the kernel's account up to date
    let account = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = account.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |n| n * 1e-9)
}

fn seconds_of(mut work: impl FnMut() -> Fallible<()>) -> Fallible<f64> {
    let since = Instant::now();
    let before = cpu_seconds(since);
    work()?;
    Ok(cpu_seconds(since) - before)
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn standard_deviation(draws: &[i64]) -> f64 {
    (draws.iter().map(|y| *y as f64 * *y as f64).sum::<f64>() / draws.len() as f64).sqrt()
}

/// Fills a slice from a chunk of a stream.
type Fill<'a> = Box<dyn Fn(&StreamKey, u64, &mut [i64]) + 'a>;

/// One sampler of ours, timed over chunks of streams of its own.
struct Ours<'a> {
    fill: Fill<'a>,
    stream: StreamKey,
    next_chunk: u64,
}

impl<'a> Ours<'a> {
    fn new(stream: StreamKey, fill: impl Fn(&StreamKey, u64, &mut [i64]) + 'a) -> Self {
        Self { fill: Box::new(fill), stream, next_chunk: 0 }
    }

    fn sample(&mut self, out: &mut [i64]) -> Fallible<f64> {
        seconds_of(|| {
            for part in out.chunks_mut(CHUNK) {
                (self.fill)(&self.stream, self.next_chunk, part);
                self.next_chunk += 1;
            }
            black_box(&out);
            Ok(())
        })
    }
}

fn peer_sample(sigma: u64, out: &mut [i64]) -> Fallible<f64> {
    let scale = RBig::from(sigma);
    seconds_of(|| {
        for y in out.iter_mut() {
            let draw = sample_discrete_gaussian(scale.clone()).map_err(|e| format!("opendp: {e:?}"))?;
            *y = i64::try_from(draw)?;
        }
        Ok(())
    })
}

/// Both sides at one parameter: the first repeat is thrown away.
fn compare(source: &NoiseSource, bits: u32, repeats: usize) -> Fallible<Value> {
    let sampler = DiscreteGaussianSampler::new(1 << bits)?;
    let stream = source.stream(Purpose::Noise, &[0, u64::from(bits)]);
    let mut ours = Ours::new(stream, |key, chunk, out| sampler.fill(&mut key.chunk(chunk), out));
    let (mut theirs_out, mut ours_out) = (vec![0; PEER_DRAWS], vec![0; OUR_DRAWS]);
    let (mut theirs, mut our) = (Vec::new(), Vec::new());
    for repeat in 0..=repeats {
        let rates = (
            PEER_DRAWS as f64 / peer_sample(sampler.sigma(), &mut theirs_out)?,
            OUR_DRAWS as f64 / ours.sample(&mut ours_out)?,
        );
        if repeat > 0 {
            theirs.push(rates.0);
            our.push(rates.1);
        }
    }
    let sigma = sampler.sigma() as f64;
    Ok(json!({
        "log2_sigma": bits,
        "opendp_per_s": median(&theirs),
        "keyhush_per_s": median(&our),
        "ratio": median(&our) / median(&theirs),
        "opendp_stddev_over_sigma": standard_deviation(&theirs_out) / sigma,
        "keyhush_stddev_over_sigma": standard_deviation(&ours_out) / sigma,
        "opendp_samples": theirs,
        "keyhush_samples": our,
    }))
}

/// What the peer has no counterpart for.
fn alone(name: &str, parameter: &str, mut ours: Ours<'_>, repeats: usize) -> Fallible<Value> {
    let mut out = vec![0; OUR_DRAWS];
    ours.sample(&mut out)?;
    let rates = (0..repeats).map(|_| Ok(OUR_DRAWS as f64 / ours.sample(&mut out)?)).collect::<Fallible<Vec<f64>>>()?;
    Ok(json!({"sampler": name, "parameter": parameter, "per_s": median(&rates), "samples": rates}))
}

fn all_alone(source: &NoiseSource, repeats: usize) -> Fallible<Vec<Value>> {
    let mut rows = Vec::new();
    for bits in [10u32, 20, 36, 60] {
        let sampler = SkellamSampler::new(1 << bits)?;
        let stream = source.stream(Purpose::Noise, &[1, u64::from(bits)]);
        let ours = Ours::new(stream, |key, chunk, out| sampler.fill(&mut key.chunk(chunk), out));
        rows.push(alone("Skellam", &format!("variance 2^{bits}"), ours, repeats)?);
    }
    for bits in [40u32, 55] {
        let sampler = DiscreteGaussianSampler::new(1 << bits)?;
        let stream = source.stream(Purpose::Noise, &[2, u64::from(bits)]);
        let ours = Ours::new(stream, |key, chunk, out| sampler.fill(&mut key.chunk(chunk), out));
        rows.push(alone("discrete Gaussian", &format!("sigma 2^{bits}"), ours, repeats)?);
    }
    let sampler = SimulatedGaussian::new(1 << 20);
    let stream = source.stream(Purpose::Noise, &[3]);
    let ours = Ours::new(stream, |key, chunk, out| sampler.fill(&mut key.chunk(chunk), out));
    rows.push(alone("simulated, floating point", "sigma 2^20", ours, repeats)?);
    Ok(rows)
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg").ok().and_then(|l| l.split(' ').next().map(str::to_owned)).unwrap_or_default()
}

fn machine(load_before: &str) -> Value {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(": ").nth(1));
    let said = |name: &str| env::var(name).unwrap_or_else(|_| "unknown".into());
    json!({
        "date": said("BENCH_DATE"), "revision": said("BENCH_REVISION"), "rustc": said("BENCH_RUSTC"),
        "cpu": model.unwrap_or("unknown"), "cores": info.lines().filter(|l| l.starts_with("processor")).count(),
        "load_before": load_before, "load_after": load(), "opendp": "0.16.0, without openssl",
    })
}

fn table(results: &Value) -> String {
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    let number = |v: &Value| v.as_f64().unwrap_or(f64::NAN);
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let m = &results["machine"];
    let mut lines = vec![
        "# Noise: samples a second, seconds a release".to_owned(),
        String::new(),
        format!(
            "{}, {}, {} cores, pinned to one, load {} before and {} after.",
            text(&m["date"]),
            text(&m["cpu"]),
            m["cores"],
            text(&m["load_before"]),
            text(&m["load_after"])
        ),
        format!("opendp {}; {}.", text(&m["opendp"]), text(&m["rustc"])),
        format!("Revision {}.", text(&m["revision"])),
        String::new(),
        format!(
            "Exact discrete Gaussian samples a second by CPU time, the median of {} samples, both sides in turn.",
            m["repeats"]
        ),
        String::new(),
        "| sigma | opendp | keyhush | ratio | stddev / sigma: opendp | keyhush |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(list(&results["discrete_gaussian"]).iter().map(|r| {
        format!(
            "| 2^{} | {:.3e} | {:.3e} | {:.0} | {:.3} | {:.3} |",
            r["log2_sigma"],
            number(&r["opendp_per_s"]),
            number(&r["keyhush_per_s"]),
            number(&r["ratio"]),
            number(&r["opendp_stddev_over_sigma"]),
            number(&r["keyhush_stddev_over_sigma"])
        )
    }));
    lines.extend(["", "| keyhush alone | | samples a second |", "|---|---|---|"].map(str::to_owned));
    lines.extend(
        list(&results["alone"])
            .iter()
            .map(|r| format!("| {} | {} | {:.3e} |", text(&r["sampler"]), text(&r["parameter"]), number(&r["per_s"]))),
    );
    let head =
        ["", "| one release, noise included | coordinates | sigma | memory | CPU seconds |", "|---|---|---|---|---|"];
    lines.extend(head.map(str::to_owned));
    lines.extend(list(&results["mechanisms"]).iter().map(|r| {
        format!(
            "| {} | {} | {} | {:.0} MB | {:.3} |",
            text(&r["mechanism"]),
            r["dimension"],
            r["sigma"],
            number(&r["memory_bytes"]) / 1e6,
            number(&r["seconds_per_release"])
        )
    }));
    lines.join("\n") + "\n"
}

fn main() -> Fallible<()> {
    let (mut repeats, mut out, mut mechanisms) = (11usize, None, Vec::new());
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        match arg.as_str() {
            "--repeats" => repeats = value.parse()?,
            "--out" => out = Some(value),
            "--mechanisms" => {
                let lines = fs::read_to_string(value)?;
                mechanisms = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
            }
            _ => return Err(format!("unknown argument {arg}: --repeats N, --out FOLDER, --mechanisms FILE").into()),
        }
    }
    let load_before = load();
    let source = NoiseSource::from(NoiseKey::generate()?);
    let compared = SIGMAS.iter().map(|bits| compare(&source, *bits, repeats)).collect::<Fallible<Vec<Value>>>()?;
    let alone = all_alone(&source, repeats)?;
    let mut machine = machine(&load_before);
    machine["repeats"] = repeats.into();
    let results = json!({"discrete_gaussian": compared, "alone": alone, "mechanisms": mechanisms, "machine": machine});
    print!("{}", table(&results));
    if let Some(folder) = out {
        let folder = Path::new(&folder);
        fs::create_dir_all(folder)?;
        fs::write(folder.join("results.json"), serde_json::to_string_pretty(&results)? + "\n")?;
        fs::write(folder.join("table.md"), table(&results))?;
    }
    Ok(())
}
