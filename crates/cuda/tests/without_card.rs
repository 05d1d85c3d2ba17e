//! What can be tested without a card: that every kernel compiles, and that the rounding kernel, run thread by thread on
//! the host, gives the integers of `privacy` to the bit.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]
#![allow(clippy::print_stdout, reason = "what is skipped and what was found is said")]

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use cuda::CUDA;
use federated::{
    config::{Document, FIRST_RUN},
    engine::{Means, drawn},
    plan::Plan,
    run::Opened,
};
use lm::kernels::KernelPath;
use privacy::{
    Adjacency, ClipNorm,
    encoding::{Encoding, Rounding, VectorPlan, XU_ALPHA},
    rng::{NoiseSource, Purpose, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping, Contribution, Update},
};

/// `cargo xtask test` brings NVRTC where there is none. There are eight sources and ten presets, of which each source fits some, and
/// switches in them, of which each preset has some on.
fn compiles_for(architecture: &str, every_preset: bool) {
    match cuda::compile_all(architecture, every_preset) {
        None => println!("skipped: there is no NVRTC here (the package nvidia-cuda-nvrtc has it)"),
        Some(compiled) => {
            let kernels = compiled.unwrap_or_else(|problem| panic!("{architecture}: {problem}"));
            println!("{kernels} sources for {architecture}");
            assert!(kernels >= if every_preset { 42 } else { 18 }, "{kernels}");
        }
    }
}

/// What a card cannot do is said before a run begins, and needs no card to be said.
#[test]
fn what_a_card_cannot_do_is_refused_before_the_run() {
    let refused = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(|s| (*s).to_owned()).collect();
        let config = Document::new(FIRST_RUN, &set).unwrap().config().unwrap();
        let opened = Opened::new(&config).unwrap();
        let plan = Plan::new(config, &opened.setting()).unwrap();
        let means = Means { engine: CUDA, ..Means::threads(KernelPath::best(), 1) };
        means.for_plan(&plan).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(refused(&[]), Ok(()));
    let securely = refused(&["aggregation=secagg"]).unwrap_err();
    assert!(securely.contains("cuda") && securely.contains("secagg") && securely.contains("--engine threads"));
    let rotated = refused(&["privacy.rotation=true"]).unwrap_err();
    assert!(rotated.contains("privacy.rotation") && rotated.contains("--engine threads"), "{rotated}");
    assert_eq!(refused(&["upload.kind=dense"]), Ok(()));
    for parts in [["upload.kind=mask", "upload.share=0.1"], ["upload.kind=sparse", "upload.share=0.1"]] {
        let parts = refused(&parts).unwrap_err();
        assert!(parts.contains("upload.kind") && parts.contains("--engine threads"), "{parts}");
    }
    assert_eq!(refused(&["schedule=[{ from = 9, local_epochs = 2 }]"]), Ok(()));
    let tuned = refused(&["finetune.kind=without-forgetting", "finetune.lambda=0.5"]).unwrap_err();
    let parts = ["[finetune] kind = \"without-forgetting\"", "--engine threads"];
    assert!(parts.iter().all(|part| tuned.contains(part)), "{tuned}");
    assert_eq!(refused(&["finetune.kind=rehearsal", "finetune.lambda=0.5"]), Ok(()));
    assert_eq!(refused(&["finetune.kind=retraining"]), Ok(()));
}

#[test]
fn every_kernel_compiles_for_ampere() {
    compiles_for("sm_80", false);
}

#[test]
fn every_kernel_compiles_for_hopper() {
    compiles_for("sm_90", false);
}

#[test]
#[ignore = "long: every kernel for every preset, a minute for each kind of card"]
fn every_kernel_compiles_for_every_preset() {
    ["sm_80", "sm_90"].iter().for_each(|architecture| compiles_for(architecture, true));
}

const USERS: usize = 8;
/// Somebody whose every coordinate is rounded up to the nearest, which takes a vector of the clip norm beyond the bound.
const ROUNDED_UP: usize = 4;
/// Somebody without text; what lies at their place is of nobody.
const ABSENT: usize = 5;
/// Somebody with one infinite coordinate, and somebody with one that is not a number.
const INFINITE: usize = 6;
const NOT_A_NUMBER: usize = 7;
/// Vectors that end within a block of the stream, and, where integers are written several at a time, with one.
const PARAMETERS: [usize; 2] = [2003, 2008];
const LENGTH: usize = 2112;
const GRID_BITS: u32 = 18;

/// A round of eight users as the kernels have it.
struct Round {
    place: Vec<u32>,
    start: Vec<f32>,
    weights: Vec<f32>,
    /// The lengths of the parts that have a bound each: all of an update, or its layers.
    lens: Vec<usize>,
    /// What each of them is brought within.
    bound: f64,
    encoding: Encoding,
    clipping: Clipping,
    weight: f64,
}

impl Round {
    fn new(lens: &[usize], rounding: Rounding, clip: f64, weight: f64) -> Self {
        let parameters = lens.iter().sum();
        let mut words = NoiseSource::from(SimulationKey::new(7)).stream(Purpose::Rounding, &[]).chunk(9);
        let mut uniform = || (words.next_word() >> 40) as f32 / (1 << 24) as f32 - 0.5;
        // Numbers lie backwards on the card here, with padding before them.
        let place: Vec<u32> = (0..parameters as u32).map(|i| LENGTH as u32 - 1 - i).collect();
        let start: Vec<f32> = (0..LENGTH).map(|_| uniform()).collect();
        let mut weights: Vec<f32> = (0..USERS * LENGTH)
            .map(|i| start[i % LENGTH] + uniform() * [1e-6, 0.01, 0.1, 1.0, 30.0, 0.01, 0.01, 0.01][i / LENGTH])
            .collect();
        let grid_norm = f64::from(1 << GRID_BITS);
        let low = (grid_norm / (parameters as f64).sqrt()).floor() - 0.4;
        let more = (grid_norm.powi(2) - parameters as f64 * low.powi(2)) / (2.0 * low + 1.0);
        for (i, at) in place.iter().enumerate() {
            let (at, steps) = (*at as usize, if i + 1 < more as usize { low + 1.0 } else { low });
            weights[ROUNDED_UP * LENGTH + at] = start[at] + (steps * clip / grid_norm) as f32;
        }
        weights[INFINITE * LENGTH + place[5] as usize] = f32::INFINITY;
        weights[NOT_A_NUMBER * LENGTH + place[9] as usize] = f32::NAN;
        let rule = match lens {
            [_] => ClipRule::Flat(ClipNorm::new(clip).unwrap()),
            _ => ClipRule::even_layers(ClipNorm::new(clip).unwrap(), lens).unwrap(),
        };
        let bound = match &rule {
            ClipRule::Flat(bound) => bound.get(),
            ClipRule::PerLayer(layers) => layers[0].bound.get(),
        };
        let plan = VectorPlan { rounding, ..VectorPlan::of_update(parameters, GRID_BITS) };
        let encoding = Encoding::new(plan, rule.bound(), None, Adjacency::ZeroOut).unwrap();
        let clipping = Clipping::new(rule, ClipBit::None).unwrap();
        Self { place, start, weights, lens: lens.to_vec(), bound, encoding, clipping, weight }
    }

    fn difference(&self, user: usize) -> Vec<f32> {
        let at = |i: &u32| self.weights[user * LENGTH + *i as usize] - self.start[*i as usize];
        self.place.iter().map(at).collect()
    }

    /// Of each part of a user's update, the squared norm and the factor that brings it within the bound, as `privacy::stages` and the
    /// kernel `factors` have them.
    fn factors(&self, user: usize) -> Vec<(f64, f64)> {
        let difference = self.difference(user);
        let mut rest = &difference[..];
        let of_part = |len: &usize| {
            let part = rest.split_off(..*len).unwrap();
            let squared: f64 = part.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
            let least = squared * (1.0 + (*len as f64 + 4.0) * f64::EPSILON);
            let within = least <= self.bound * self.bound * (1.0 - f64::EPSILON);
            (squared, if within { 1.0 } else { self.bound / least.sqrt() * (1.0 - 2.0f64.powi(-22)) })
        };
        self.lens.iter().map(of_part).collect()
    }
}

fn bytes<T: Copy, const N: usize>(values: &[T], to: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|v| to(*v)).collect()
}

/// Compiles the kernels for the host.
fn program(folder: &Path, parameters: usize) -> std::path::PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(format!("one_by_one_{parameters}"));
    let defines = [("USERS", USERS), ("PARAMETERS", parameters), ("LENGTH", LENGTH)];
    let built = Command::new("c++")
        .args(["-std=c++17", "-O1", "-ffp-contract=off", "-w"])
        .args(defines.map(|(name, value)| format!("-D{name}={value}")))
        .arg("-I")
        .arg(here.join("src/kernels"))
        .arg(here.join("tests/one_by_one/main.cpp"))
        .arg("-o")
        .arg(&program)
        .output();
    let built = built.unwrap_or_else(|error| panic!("a C++ compiler runs the kernel on the host; c++: {error}"));
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

#[test]
fn the_rounding_kernel_gives_the_integers_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    for parameters in PARAMETERS {
        let program = program(folder.path(), parameters);
        // The second layer ends within a block of the stream, and is one coordinate long.
        for lens in [vec![parameters], vec![701, 1, parameters - 702]] {
            gives_the_integers_of_the_host(&program, &lens);
        }
    }
}

fn gives_the_integers_of_the_host(program: &Path, lens: &[usize]) {
    let parameters: usize = lens.iter().sum();
    let stochastic = Rounding::ConditionalStochastic { alpha: XU_ALPHA };
    for (rounding, clip, weight) in [(Rounding::Nearest, 0.3, 1.0), (stochastic, 0.3, 1.0), (stochastic, 100.0, 0.37)] {
        let round = Round::new(lens, rounding, clip, weight);
        let rule = round.encoding.grid_rule().unwrap();
        let key = NoiseSource::from(SimulationKey::new(3)).stream(Purpose::Rounding, &[4]);
        let (squared, factors): (Vec<f64>, Vec<f64>) = (0..USERS).flat_map(|user| round.factors(user)).unzip();
        let drawings: Vec<u64> =
            (0..USERS as u64).flat_map(|user| [user + 10, round.encoding.grid_scale(round.weight).to_bits()]).collect();
        assert_eq!(rule.truncates, rounding == Rounding::Nearest);
        let attempts = if rule.stochastic { 12 } else { 2 };
        let [stochastic, limit, largest] =
            [u32::from(rule.stochastic), rule.limit.to_bits(), rule.largest].map(u64::from);
        let limits = [stochastic, limit, rule.norm_squared, largest, attempts];
        let input = [
            bytes(&round.place, u32::to_le_bytes),
            bytes(&round.start, f32::to_le_bytes),
            bytes(&round.weights, f32::to_le_bytes),
            (lens.len() as u64).to_le_bytes().to_vec(),
            bytes(
                &lens
                    .iter()
                    .scan(0, |end, len| {
                        *end += *len as u32;
                        Some(*end)
                    })
                    .collect::<Vec<_>>(),
                u32::to_le_bytes,
            ),
            bytes(&factors, f64::to_le_bytes),
            bytes(&squared, f64::to_le_bytes),
            bytes(&drawings, u64::to_le_bytes),
            key.secret_bytes().to_vec(),
            bytes(&limits, u64::to_le_bytes),
            (0..USERS).map(|user| u8::from(user != ABSENT)).collect(),
        ]
        .concat();
        let mut run = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        run.stdin.take().unwrap().write_all(&input).unwrap();
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success());
        let (accepted, rest) = output.stdout.split_at(4 * USERS);
        let (low, rest) = rest.split_at(8 * USERS);
        let (high, rest) = rest.split_at(8 * USERS);
        let (sum, integers) = rest.split_at(8 * parameters);
        let accepted: Vec<bool> = accepted.as_chunks::<4>().0.iter().map(|v| i32::from_le_bytes(*v) == 1).collect();
        assert!(accepted.iter().filter(|accepted| **accepted).count() >= USERS - 5, "{rounding:?}: {accepted:?}");
        let mut added = vec![7i64; parameters];
        for (user, accepted) in accepted.into_iter().enumerate() {
            let mut words = drawn(&key, user as u64 + 10).rounding;
            let said = Contribution { weight: round.weight, ..Contribution::default() };
            let clipped = Update::new(round.difference(user)).clip(&round.clipping, said).unwrap();
            let want = clipped.encode(&round.encoding, &mut words).unwrap();
            let got = &integers.as_chunks::<4>().0[user * parameters..(user + 1) * parameters];
            let got: Vec<i32> = got.iter().map(|v| i32::from_le_bytes(*v)).collect();
            let part = |bytes: &[u8]| u64::from_le_bytes(bytes.as_chunks::<8>().0[user]);
            let norm: u128 = got.iter().map(|v| u128::from(v.unsigned_abs()).pow(2)).sum();
            assert_eq!((u128::from(part(high)) << 32) + u128::from(part(low)), norm);
            if user == ROUNDED_UP && rounding == Rounding::Nearest && lens.len() == 1 {
                let grid = |v: &f32| (f64::from(*v) * round.encoding.grid_scale(round.weight)) as f32;
                let nearest: Vec<f32> = round.difference(user).iter().map(grid).map(f32::round_ties_even).collect();
                let norm: f64 = nearest.iter().map(|v| f64::from(*v).powi(2)).sum();
                assert!(norm > rule.norm_squared as f64 && accepted, "not to the nearest, and not by the host");
            }
            // What is drawn at random may be beyond the bound each time: the card leaves it to the host.
            let keeps = norm <= u128::from(rule.norm_squared) && got.iter().all(|v| v.unsigned_abs() <= rule.largest);
            // Who has nothing, or is not finite, contributes nothing, whatever lies there.
            let counts = user < ABSENT;
            assert_eq!(accepted, keeps && counts, "{rounding:?}: user {user}");
            assert!(!counts || (want.values() == got) == keeps, "{rounding:?}: the integers of user {user}");
            let integers = got.into_iter().map(|integer| if accepted { i64::from(integer) } else { 0 });
            added.iter_mut().zip(integers).for_each(|(sum, integer)| *sum += integer);
        }
        let sum: Vec<i64> = sum.as_chunks::<8>().0.iter().map(|v| i64::from_le_bytes(*v)).collect();
        assert!(sum == added, "{rounding:?}: others are in the sum than those who are accepted");
    }
}
