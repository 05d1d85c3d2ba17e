//! Real `mpirun`: the same bits for any number of ranks and threads, and no job that hangs.
//!
//! The ranks are this test binary run again. What they came to is printed as one digest: of every sum, of what was learned
//! from it, and of what every user's training looked like.
#![allow(clippy::unwrap_used, reason = "the helpers of these tests unwrap as the tests do")]
#![allow(clippy::print_stdout, reason = "the ranks print what they came to")]

use std::{
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use corpus::store::StoreError;
use device::{learner::examples::Examples, round::Task, upload::Upload};
use federated::{
    contract::{self, Reference, Trial, TrialPopulation},
    engine::{Engine, EngineError, Summed, Users, threads::Threads, users_key},
    learners::LEARNERS,
    population::Population,
};
use keyhush_cluster::{Facts, MpiEngine, Ranks};
use lm::kernels::KernelPath;
use privacy::{
    Adjacency, ClipNorm,
    encoding::{Encoding, Rounding, VectorPlan, XU_ALPHA},
    rng::{NoiseSource, Randomness, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping},
};
use sha2::{Digest, Sha256};

const STORY: &str = "KEYHUSH_TEST_STORY";
const THREADS: &str = "KEYHUSH_TEST_THREADS";
const ROUNDS: u64 = 3;
const COHORT: [u64; 9] = [5, 17, 400_000, 999_999, 12, 13, 14, 600_001, 77];
/// The second of the cohort, so rank 1's.
const UNREADABLE: u64 = COHORT[1];
/// A job that is not over by then hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test by itself: what `mpirun` runs.
#[test]
fn rank() -> Result<(), String> {
    let Ok(story) = std::env::var(STORY) else { return Ok(()) };
    let ranks = Ranks::join().unwrap().unwrap();
    // It is said while the others still wait: `mpirun` ends everybody as soon as one has left with an error.
    tell(&story, &ranks).inspect_err(|problem| println!("{problem}"))
}

fn tell(story: &str, ranks: &Ranks) -> Result<(), String> {
    let threads = std::env::var(THREADS).unwrap().parse().unwrap();
    let other = ranks.rank() == 1;
    if story == "rank 0 stops before it begins" && ranks.leads() {
        return Err("nothing to train".into());
    }
    if story == "a rank stops before it begins" && other {
        return Err("no such file".into());
    }
    if story == "a rank cannot begin" && other {
        ranks.refuse("no such file");
        return Ok(());
    }
    let of_contract = story.strip_prefix("the contract of engines ").map(|which| which.split_once(' ').unwrap());
    let trial = Trial::of(of_contract.map_or("language", |(learner, _)| learner));
    let fault = match (story, other) {
        ("one user cannot be read", true) => Some(Fault::Always),
        ("one user cannot be read at first", true) => Some(Fault::Once(AtomicBool::new(true))),
        ("a thread of a rank panics", true) => Some(Fault::Panic),
        _ => None,
    };
    let population = Faulty { crowd: trial.population(), fault };
    let kernels = if story == "kernels differ" && other { KernelPath::Scalar } else { KernelPath::best() };
    let description: &[u8] = if story == "settings differ" && other { b"others" } else { b"ours" };
    let facts = Facts { arithmetic: kernels.name(), description };
    let local = &Trial::plans()[of_contract.map_or(0, |(_, plan)| plan.parse().unwrap())];
    let mut own = Threads::new(trial.learner(), local, kernels, threads).unwrap();
    if ranks.leads() {
        let mut engine = MpiEngine::new(ranks, Box::new(own), &facts).map_err(|e| e.to_string())?;
        if of_contract.is_some() {
            contract::engine(&trial, &mut engine, local, Reference::SameBits(kernels));
            println!("digest kept");
            return Ok(());
        }
        if story == "one user cannot be read at first" {
            Rounds(&trial).train(&mut engine, &population).unwrap_err();
        }
        println!("digest {}", Rounds(&trial).train(&mut engine, &population).map_err(|e| e.to_string())?);
    } else if story == "a rank panics" {
        ranks.serve(&mut Panics, &population, &facts);
    } else {
        ranks.serve(&mut own, &population, &facts);
    }
    Ok(())
}

/// An engine with a bug of its own.
struct Panics;

impl Engine for Panics {
    fn sum(&mut self, _: &Task<'_>, _: &Users<'_>) -> Result<Summed, EngineError> {
        panic!("a bug on another rank");
    }
}

/// A small run without noise, whose rounds depend on each other.
struct Rounds<'a>(&'a Trial);

impl Rounds<'_> {
    fn train(&self, engine: &mut dyn Engine, population: &dyn Population) -> Result<String, EngineError> {
        let mut model = self.0.learner().initial(1).unwrap();
        let source = NoiseSource::from(SimulationKey::new(5));
        let plan = VectorPlan {
            rounding: Rounding::ConditionalStochastic { alpha: XU_ALPHA },
            rotation_seed: Some([4; 32]),
            clip_bit: true,
            weight: true,
            ..VectorPlan::of_update(model.len(), 16)
        };
        let mut digest = Sha256::new();
        for round in 0..ROUNDS {
            let clip = ClipNorm::new(0.2 + 0.1 * round as f64).unwrap();
            let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::NormAtMost(clip)).unwrap();
            let encoding = Encoding::new(plan.clone(), clip, None, Adjacency::AddOrRemove).unwrap();
            let task = Task {
                model: &model,
                clipping: &clipping,
                encoding: &encoding,
                full_weight_tokens: Some(80.0),
                learning_rate: 0.3,
                epochs: None,
                upload: Upload::Whole,
                evaluation: None,
            };
            let key = users_key(&source, &[round]);
            let summed = engine.sum(&task, &Users { population, numbers: &COHORT, key: &key })?;
            assert!(summed.busy_s > 0.0);
            assert_eq!(summed.exact.len(), COHORT.len());
            for (user, exact) in &summed.exact {
                digest.update(format!("{user} {} {:?} {:?}", exact.tokens, exact.loss, exact.norm));
            }
            let sum = summed.sum.release_without_privacy(round, "a test", Randomness::Simulated { seed: 5 });
            sum.values().iter().for_each(|v| digest.update(v.to_le_bytes()));
            let update = sum.update(&encoding).unwrap();
            model.iter_mut().zip(update).for_each(|(m, u)| *m += u / COHORT.len() as f32);
        }
        model.iter().for_each(|m| digest.update(m.to_le_bytes()));
        Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// What is wrong with one user's text.
enum Fault {
    Always,
    Once(AtomicBool),
    Panic,
}

struct Faulty<'a> {
    crowd: TrialPopulation<'a>,
    fault: Option<Fault>,
}

impl Population for Faulty<'_> {
    fn users(&self) -> u64 {
        self.crowd.users()
    }

    fn read(&self, user: u64, examples: &mut Examples) -> Result<(), StoreError> {
        let fails = match &self.fault {
            _ if user != UNREADABLE => false,
            None => false,
            Some(Fault::Always) => true,
            Some(Fault::Once(first)) => first.swap(false, Ordering::Relaxed),
            Some(Fault::Panic) => panic!("a bug on a thread"),
        };
        if fails { Err(StoreError::NoUser { index: user, users: 3 }) } else { self.crowd.read(user, examples) }
    }
}

/// What `mpirun` came to, which must be within the time that anybody waits.
fn mpirun(ranks: usize, threads: usize, story: &str) -> Output {
    let mut command = Command::new("mpirun");
    // The user of a container is often root, which `mpirun` takes for a mistake.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()]);
    command.arg(std::env::current_exe().unwrap()).args(["rank", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(STORY, story).env(THREADS, threads.to_string());
    let mut job = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while job.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            job.kill().unwrap();
            panic!("{story}: the job hangs: {:?}", job.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    job.wait_with_output().unwrap()
}

fn digest(ranks: usize, threads: usize, story: &str) -> String {
    let out = mpirun(ranks, threads, story);
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    let mut digests = text.lines().filter_map(|line| line.split_once("digest ")).map(|(_, digest)| digest.to_owned());
    let digest = digests.next().unwrap();
    assert_eq!(digests.next(), None, "one rank alone runs the loop");
    digest
}

fn digest_of_threads() -> String {
    let trial = Trial::of("language");
    let mut engine = Threads::new(trial.learner(), &Trial::plans()[0], KernelPath::best(), 2).unwrap();
    Rounds(&trial).train(&mut engine, &trial.population()).unwrap()
}

/// Runs a story that cannot end well and gives back what was said.
fn fails(ranks: usize, story: &str) -> String {
    let out = mpirun(ranks, 1, story);
    assert!(!out.status.success(), "{story}: {out:?}");
    String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
}

#[test]
fn ranks_keep_the_contract_of_engines() {
    for learner in LEARNERS.iter().map(|kind| kind.name) {
        for (plan, (ranks, threads)) in [(1, 2), (2, 1), (3, 2), (2, 2)].into_iter().enumerate() {
            let story = format!("the contract of engines {learner} {plan}");
            assert_eq!(digest(ranks, threads, &story), "kept", "{story}: {ranks} ranks of {threads} threads");
        }
    }
}

#[test]
fn any_number_of_ranks_and_threads_gives_the_same_bits_as_threads_alone() {
    let alone = digest_of_threads();
    for (ranks, threads) in [(1, 1), (2, 2), (3, 1), (12, 1)] {
        assert_eq!(digest(ranks, threads, "all goes well"), alone, "{ranks} ranks of {threads} threads");
    }
}

#[test]
fn a_user_who_cannot_be_read_ends_the_job_with_rank_user_and_reason() {
    let said = fails(3, "one user cannot be read");
    assert!(said.contains("rank 1: user 17: no user 17: the store has 3"), "{said}");
    assert!(!said.contains("digest"), "{said}");
}

#[test]
fn a_round_that_failed_on_one_rank_can_be_tried_again() {
    assert_eq!(digest(2, 1, "one user cannot be read at first"), digest_of_threads());
}

#[test]
fn ranks_that_are_not_alike_are_refused_with_what_differs() {
    if KernelPath::best() != KernelPath::Scalar {
        let said = fails(2, "kernels differ");
        let names = format!("rank 1: computes with scalar, but rank 0 with {}", KernelPath::best().name());
        assert!(said.contains(&names), "{said}");
    }
    let said = fails(3, "settings differ");
    assert!(said.contains("rank 1: has different settings or data than rank 0"), "{said}");
}

#[test]
fn a_rank_that_does_not_get_to_training_is_not_waited_for() {
    let said = fails(3, "a rank cannot begin");
    assert!(said.contains("rank 1: no such file"), "{said}");
    let said = fails(3, "a rank stops before it begins");
    assert!(said.contains("rank 1: exited before the run ended"), "{said}");
    let said = fails(3, "rank 0 stops before it begins");
    assert!(said.contains("nothing to train"), "{said}");
}

#[test]
fn a_panic_on_one_rank_ends_the_job() {
    for (story, message) in [
        ("a rank panics", "a bug on another rank"),
        ("a thread of a rank panics", "rank 1: a training thread died; nothing was released"),
    ] {
        let said = fails(2, story);
        assert!(said.contains(message) && !said.contains("digest"), "{said}");
    }
}

#[test]
fn a_process_that_was_started_alone_joins_nobody() {
    assert!(Ranks::join().unwrap().is_none());
}
