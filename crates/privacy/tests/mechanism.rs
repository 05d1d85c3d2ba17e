//! Mechanisms as a run sees them: the events of their releases, restarts, and what they refuse.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use crate::shorthand;
use keyhush_privacy::{
    AccountantKind, Adjacency, ClipNorm, Delta, Noise, NoiseMatrix, NoiseMultiplier, Participation, PrivacyEvent,
    SamplingRate, Segment,
    encoding::{Encoding, NoisePlan, VectorPlan},
    event::EventError,
    factorization::{Factorization, Objective, Setting, optimise_banded, optimise_blt},
    mechanism::{Correlation, Mechanism, MechanismError, MechanismPlan},
    rng::{NoiseKey, Randomness, SimulationKey},
    sensitivity,
    stages::{Released, Sum},
    step_keys::{MemoryShelf, SecretSteps, StepKeys},
    workers::{Alone, Workers},
};

const RANDOMNESS: Randomness = Randomness::Simulated { seed: 1 };

fn keys() -> SimulationKey {
    SimulationKey::new(1)
}

fn encoding(z: f64) -> Encoding {
    let plan = VectorPlan { clip_bit: true, ..VectorPlan::of_update(20, 14) };
    let noise = NoisePlan { clip_count_stddev: Some(50.0), ..NoisePlan::of_update(NoiseMultiplier::new(z).unwrap()) };
    Encoding::new(plan, ClipNorm::new(1.0).unwrap(), Some(&noise), Adjacency::ZeroOut).unwrap()
}

fn plan(matrix: NoiseMatrix, segments: Vec<Segment>) -> MechanismPlan {
    MechanismPlan {
        stream: 0,
        adjacency: Adjacency::ZeroOut,
        participation: shorthand::separated(3, 4),
        correlation: Correlation::Matrix(matrix),
        segments,
        distributed: None,
    }
}

fn blt() -> NoiseMatrix {
    NoiseMatrix::Blt { buffer_decay: vec![0.9375, 0.5], output_scale: vec![0.25, 0.25] }
}

fn segments_of(event: &PrivacyEvent) -> Vec<Segment> {
    match event {
        PrivacyEvent::CorrelatedGaussian { segments, .. } => segments.clone(),
        other => panic!("not correlated: {other:?}"),
    }
}

/// Noise that was drawn before there was a sum is the noise of its step, and of no other; with secret noise there is none.
#[test]
fn p21_noise_is_drawn_early_in_simulations_only_and_changes_nothing() {
    let encoding = encoding(5.0);
    let independent = MechanismPlan {
        correlation: Correlation::Independent,
        participation: Participation::Poisson { rate: SamplingRate::new(0.1).unwrap() },
        ..plan(NoiseMatrix::Tree, vec![Segment::of(4)])
    };
    let mechanism = |randomness| Mechanism::init(independent.clone(), encoding.layout(), randomness).unwrap();
    let release = |mechanism: &mut Mechanism| {
        let released = mechanism.release(Sum::zero(&encoding), &mut keys()).unwrap();
        released.values().to_vec()
    };
    let mut plain = mechanism(RANDOMNESS);
    let want: Vec<Vec<i64>> = (0..4).map(|_| release(&mut plain)).collect();
    let mut early = mechanism(RANDOMNESS);
    let mut first = early.foreseen(&keys());
    for (step, want) in want.iter().enumerate() {
        // What was foreseen for the first step is not the noise of the third.
        let foreseen = if step == 2 { first.take() } else { early.foreseen(&keys()) };
        early.draw_early(foreseen.unwrap(), &Alone).unwrap();
        assert_eq!(&release(&mut early), want, "step {step}");
    }
    assert!(early.foreseen(&keys()).is_none(), "nothing follows");
    assert!(mechanism(RANDOMNESS).foreseen(&SimulationKey::new(2)).is_none(), "another seed");
    let secret = SecretSteps::new(NoiseKey::generate().unwrap(), MemoryShelf::default());
    assert!(mechanism(Randomness::Secret).foreseen(&secret).is_none());
    let tree = Mechanism::init(plan(NoiseMatrix::Tree, vec![Segment::of(4)]), encoding.layout(), RANDOMNESS).unwrap();
    assert!(tree.foreseen(&keys()).is_none(), "correlated noise is drawn when it is needed");
}

/// The event of a release stands for the run up to it: segments grow, and the last round of a completed tree carries the
/// padded size.
#[test]
fn p7_the_event_carries_segments_and_completion() {
    let encoding = encoding(5.0);
    let planned = vec![Segment::of(3), Segment::completed(5), Segment::of(2)];
    let mut mechanism =
        Mechanism::init(plan(NoiseMatrix::Tree, planned.clone()), encoding.layout(), RANDOMNESS).unwrap();
    let mut events = Vec::new();
    for step in 0..10 {
        assert_eq!(mechanism.step(), step);
        assert_eq!(mechanism.at_restart(), [0, 3, 8].contains(&step));
        let released = mechanism.release(Sum::zero(&encoding), &mut keys()).unwrap();
        assert_eq!((released.step(), released.randomness()), (step, Randomness::Simulated { seed: 1 }));
        events.push(released.event().clone());
    }
    assert_eq!(segments_of(&events[1]), [Segment::of(2)]);
    assert_eq!(segments_of(&events[4]), [Segment::of(3), Segment::of(2)]);
    assert_eq!(segments_of(&events[6]), [Segment::of(3), Segment::of(4)]);
    assert_eq!(segments_of(&events[7]), [Segment::of(3), Segment { rounds: 5, completed_to: Some(8) }]);
    assert_eq!(segments_of(&events[9]), planned);
    let delta = Delta::new(1e-6).unwrap();
    let costs: Vec<f64> = events.iter().map(|e| AccountantKind::Zcdp.judge(e, delta).unwrap().epsilon.get()).collect();
    assert!(costs.windows(2).all(|w| w[0] <= w[1]), "{costs:?}");
}

#[test]
fn p7_within_a_segment_the_clip_does_not_move() {
    let here = encoding(5.0);
    let moved = here.with_clip(ClipNorm::new(0.5).unwrap());
    for matrix in [NoiseMatrix::Tree, NoiseMatrix::Banded { coefficients: vec![1.0, 0.5] }, blt()] {
        let planned = vec![Segment::of(2), Segment::of(2)];
        let mut mechanism = Mechanism::init(plan(matrix, planned), here.layout(), RANDOMNESS).unwrap();
        let _ = mechanism.release(Sum::zero(&here), &mut keys()).unwrap();
        assert_eq!(mechanism.release(Sum::zero(&moved), &mut keys()).unwrap_err(), MechanismError::EncodingMoved);
        let _ = mechanism.release(Sum::zero(&here), &mut keys()).unwrap();
        let _ = mechanism.release(Sum::zero(&moved), &mut keys()).unwrap();
        let (plan, position) = (mechanism.plan().clone(), mechanism.position());
        let mut mechanism = Mechanism::at(plan, here.layout(), RANDOMNESS, position).unwrap();
        assert_eq!(mechanism.release(Sum::zero(&here), &mut keys()).unwrap_err(), MechanismError::EncodingMoved);
    }
}

/// Rule P13: a run that crashed after the ledger had a release and before its checkpoint goes on behind that release, with the
/// noise that an unbroken run would have had.
#[test]
fn p13_a_recorded_step_is_passed_and_not_released_again() {
    let encoding = encoding(5.0);
    let segments = vec![Segment::of(3), Segment::of(4)];
    let independent = MechanismPlan { correlation: Correlation::Independent, ..plan(blt(), segments.clone()) };
    let correlated = [NoiseMatrix::Tree, NoiseMatrix::Banded { coefficients: vec![1.0, 0.5, 0.25] }, blt()];
    for plan in correlated.map(|matrix| plan(matrix, segments.clone())).into_iter().chain([independent]) {
        let start = || Mechanism::init(plan.clone(), encoding.layout(), RANDOMNESS).unwrap();
        let mut unbroken = start();
        let releases: Vec<Released> =
            (0..7).map(|_| unbroken.release(Sum::zero(&encoding), &mut keys()).unwrap()).collect();
        for crashed_at in 0..7 {
            let mut resumed = start();
            for known in &releases[..crashed_at] {
                assert!(resumed.pass(&releases[6]).is_err(), "another step is refused");
                resumed.pass(known).unwrap();
            }
            let next = resumed.release(Sum::zero(&encoding), &mut keys()).unwrap();
            assert_eq!(next.to_bytes(), releases[crashed_at].to_bytes());
        }
    }
}

/// What a run was calibrated for is what its event has: at least the multiplier asked for, and hardly more.
#[test]
fn the_event_has_the_multiplier_that_was_asked_for() {
    for z in [0.5, 1.0, 7.0] {
        let encoding = encoding(z);
        let correlated = plan(blt(), vec![Segment::of(500)]);
        let independent = MechanismPlan {
            participation: Participation::Poisson { rate: SamplingRate::new(0.01).unwrap() },
            correlation: Correlation::Independent,
            ..plan(NoiseMatrix::Tree, vec![Segment::of(10)])
        };
        for plan in [correlated, independent] {
            let mut mechanism = Mechanism::init(plan, encoding.layout(), RANDOMNESS).unwrap();
            let released = mechanism.release(Sum::zero(&encoding), &mut keys()).unwrap();
            let (PrivacyEvent::CorrelatedGaussian { noise, .. } | PrivacyEvent::SampledGaussian { noise, .. }) =
                released.event()
            else {
                panic!("{:?}", released.event())
            };
            assert!(matches!(noise, Noise::JointDiscreteGaussian(joint) if joint.segments().len() == 2));
            let got = noise.multiplier().get();
            // BLT's arithmetic may cost a little: 10^-8 of the sensitivity and less.
            assert!(got >= z * (1.0 - 1e-8) && got < z * 1.001, "{got}, asked for {z}");
        }
    }
}

/// Independent noise with limited participation is a matrix with one band: sqrt(k) times the sensitivity.
#[test]
fn independent_noise_for_users_who_come_on_their_own() {
    let encoding = encoding(5.0);
    let independent =
        MechanismPlan { correlation: Correlation::Independent, ..plan(NoiseMatrix::Tree, vec![Segment::of(100)]) };
    let mut mechanism = Mechanism::init(independent, encoding.layout(), RANDOMNESS).unwrap();
    let mut last = None;
    (0..100).for_each(|_| last = Some(mechanism.release(Sum::zero(&encoding), &mut keys()).unwrap().event().clone()));
    let PrivacyEvent::CorrelatedGaussian { matrix, segments, participation, .. } = last.unwrap() else { panic!() };
    let squared = sensitivity::of_matrix(&matrix, &segments, &participation).unwrap().squared;
    assert!((squared - 4.0).abs() < 1e-9, "{squared}");
}

#[test]
fn what_cannot_be_accounted_for_does_not_start() {
    let encoding = encoding(5.0);
    let tree = plan(NoiseMatrix::Tree, vec![Segment::of(8)]);
    let refused = |plan: MechanismPlan| Mechanism::init(plan, encoding.layout(), RANDOMNESS).unwrap_err();
    let poisson = Participation::Poisson { rate: SamplingRate::new(0.1).unwrap() };
    let sampled_tree = MechanismPlan { participation: poisson, ..tree.clone() };
    assert!(matches!(refused(sampled_tree), MechanismError::Event(EventError::ParticipationKind { .. })));
    let replaced = MechanismPlan { adjacency: Adjacency::ReplaceOne, ..tree.clone() };
    assert!(matches!(refused(replaced), MechanismError::Event(EventError::Adjacency { .. })));
    let nothing = MechanismPlan { segments: Vec::new(), ..tree.clone() };
    assert!(matches!(refused(nothing), MechanismError::Event(EventError::Matrix { .. })));
    let odd = plan(NoiseMatrix::Tree, vec![Segment { rounds: 5, completed_to: Some(6) }]);
    assert_eq!(refused(odd), MechanismError::Completion { size: 6 });
    let banded = |coefficients| plan(NoiseMatrix::Banded { coefficients }, vec![Segment::of(8)]);
    assert_eq!(refused(banded(vec![1.0, 1.0 / 3.0])), MechanismError::OffLattice { bits: 24 });
    assert_eq!(refused(banded(vec![0.5, 0.25])), MechanismError::FirstCoefficient);
    let loud = NoiseMatrix::Blt { buffer_decay: vec![0.5, 0.5], output_scale: vec![0.75, 0.75] };
    assert!(matches!(refused(plan(loud, vec![Segment::of(8)])), MechanismError::Coefficients { .. }));
    // A vector whose noise was never set.
    let silent =
        Encoding::new(VectorPlan::of_update(20, 14), ClipNorm::new(1.0).unwrap(), None, Adjacency::ZeroOut).unwrap();
    let refused = Mechanism::init(tree.clone(), silent.layout(), RANDOMNESS).unwrap_err();
    assert!(matches!(refused, MechanismError::Sigma(_)), "{refused}");
    // A sum of another layout.
    let mut mechanism = Mechanism::init(tree, encoding.layout(), RANDOMNESS).unwrap();
    assert_eq!(mechanism.release(Sum::zero(&silent), &mut keys()).unwrap_err(), MechanismError::Layout);
}

/// The same seed and step give the same noise, another seed another; a secret key never gives the same twice.
#[test]
fn p13_noise_is_the_seeds_or_nobodys() {
    let encoding = encoding(5.0);
    let first = |keys: &mut dyn StepKeys| {
        let plan = plan(NoiseMatrix::Tree, vec![Segment::of(8)]);
        let mut mechanism = Mechanism::init(plan, encoding.layout(), keys.randomness()).unwrap();
        mechanism.release(Sum::zero(&encoding), keys).unwrap()
    };
    assert_eq!(first(&mut SimulationKey::new(1)), first(&mut SimulationKey::new(1)));
    assert_ne!(first(&mut SimulationKey::new(1)).values(), first(&mut SimulationKey::new(2)).values());
    let float = first(&mut SimulationKey::with_floating_point_noise(1));
    assert_eq!(float.randomness(), Randomness::SimulatedFloatingPoint { seed: 1 });
    let key = NoiseKey::generate().unwrap();
    let again = NoiseKey::from_secret_bytes(key.secret_bytes());
    let [one, two] = [key, again].map(|key| first(&mut SecretSteps::new(key, MemoryShelf::default())));
    assert_eq!(one.randomness(), Randomness::Secret);
    assert_ne!(one.values(), two.values());
}

/// The coefficients that `factorization` finds are taken as they are, and the noise of the sums is as small as it says.
#[test]
fn computed_coefficients_make_the_noise_they_promise() {
    let rounds = 64;
    let participation = shorthand::separated(15, 4);
    let setting = Setting::new(rounds, participation).unwrap();
    let found =
        [optimise_blt(&setting, 3, Objective::Max).unwrap(), optimise_banded(&setting, 16, Objective::Mean).unwrap()];
    for Factorization { matrix, errors } in found {
        let vector = VectorPlan::of_update(20_000, 14);
        let noise = NoisePlan::of_update(NoiseMultiplier::new(5.0).unwrap());
        let clip = ClipNorm::new(1.0).unwrap();
        let encoding = Encoding::new(vector, clip, Some(&noise), Adjacency::ZeroOut).unwrap();
        let planned = MechanismPlan { participation, ..plan(matrix.clone(), vec![Segment::of(rounds)]) };
        let mut mechanism = Mechanism::init(planned, encoding.layout(), RANDOMNESS).unwrap();
        let mut prefix = vec![0i64; 20_000];
        let mut squares = 0.0;
        for _ in 0..rounds {
            let released = mechanism.release(Sum::zero(&encoding), &mut keys()).unwrap();
            prefix.iter_mut().zip(released.values()).for_each(|(p, v)| *p += v);
            squares = prefix.iter().map(|p| (*p as f64) * (*p as f64)).sum::<f64>() / 20_000.0;
        }
        // The last sum has the largest error; it is stated for noise of one sensitivity.
        let sigma = encoding.layout().segments()[0].sigma as f64;
        let want = errors.max_squared / errors.squared_sensitivity * sigma * sigma;
        // A chi-square of 20,000 degrees of freedom is within 5 % of its mean but for 6e-7 of the time.
        assert!((squares / want - 1.0).abs() < 0.05, "{}: {squares}, expected {want}", matrix.name());
    }
}

/// So many threads, each with every so manyth piece, from the last to the first; none of the pieces from a number on.
struct Threads {
    threads: usize,
    until: usize,
}

impl Workers for Threads {
    fn each(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for thread in 0..self.threads {
                let own = (0..pieces.min(self.until)).rev().filter(move |piece| piece % self.threads == thread);
                scope.spawn(move || own.for_each(work));
            }
        });
    }
}

/// Five chunks and a bit, and a clip bit behind them.
fn long() -> Encoding {
    let plan = VectorPlan { clip_bit: true, ..VectorPlan::of_update(5 * 4096 + 77, 14) };
    let noise = NoisePlan { clip_count_stddev: Some(50.0), ..NoisePlan::of_update(NoiseMultiplier::new(5.0).unwrap()) };
    Encoding::new(plan, ClipNorm::new(1.0).unwrap(), Some(&noise), Adjacency::ZeroOut).unwrap()
}

fn every_kind() -> Vec<MechanismPlan> {
    let segments = vec![Segment::of(3), Segment::completed(3)];
    let independent = MechanismPlan { correlation: Correlation::Independent, ..plan(blt(), vec![Segment::of(6)]) };
    let tree = plan(NoiseMatrix::Tree, segments);
    let others = [NoiseMatrix::Banded { coefficients: vec![1.0, 0.5, 0.25] }, blt()];
    let others = others.map(|matrix| plan(matrix, vec![Segment::of(3), Segment::of(3)]));
    [independent, tree].into_iter().chain(others).collect()
}

/// A release has the same bits whoever draws which part of its noise; so has one after a restart, which draws the past again.
#[test]
#[cfg_attr(target_family = "wasm", ignore = "there are no threads")]
fn p13_noise_does_not_depend_on_who_draws_it() {
    let encoding = long();
    for plan in every_kind() {
        let start = || Mechanism::init(plan.clone(), encoding.layout(), RANDOMNESS).unwrap();
        let mut alone = start();
        let releases: Vec<Released> =
            (0..6).map(|_| alone.release(Sum::zero(&encoding), &mut keys()).unwrap()).collect();
        for threads in [1, 2, 5, 16] {
            let workers = Threads { threads, until: usize::MAX };
            let (mut together, mut resumed) = (start(), start());
            for (step, want) in releases.iter().enumerate() {
                let got = together.release_by(Sum::zero(&encoding), &mut keys(), &workers).unwrap();
                assert!(got == *want, "{:?}: step {step} by {threads} threads", plan.correlation);
                assert!(got.to_bytes_by(&workers).unwrap() == want.to_bytes(), "and as bytes");
                if step == 4 {
                    let again = resumed.release_by(Sum::zero(&encoding), &mut keys(), &workers).unwrap();
                    assert!(again == *want, "{:?}: after a restart", plan.correlation);
                } else if step < 4 {
                    resumed.pass(want).unwrap();
                }
            }
        }
    }
}

/// Workers that leave a chunk out would leave it without noise: nothing is released, then or later.
#[test]
#[cfg_attr(target_family = "wasm", ignore = "there are no threads")]
fn p13_a_chunk_without_noise_is_not_released() {
    let encoding = long();
    for plan in every_kind() {
        let mut mechanism = Mechanism::init(plan, encoding.layout(), RANDOMNESS).unwrap();
        let careless = Threads { threads: 2, until: 5 };
        let refused = mechanism.release_by(Sum::zero(&encoding), &mut keys(), &careless).unwrap_err();
        assert!(matches!(refused, MechanismError::Undone(_)), "{refused:?}");
    }
    let mut broken = Mechanism::init(every_kind().remove(0), encoding.layout(), RANDOMNESS).unwrap();
    // The digest of the sum has as many pieces as fit five chunks: it is the noise that is left out here.
    let careless = Threads { threads: 1, until: 6 };
    let refused = broken.release_by(Sum::zero(&encoding), &mut keys(), &careless).unwrap_err();
    assert!(matches!(refused, MechanismError::Undone(_)), "{refused:?}");
    assert_eq!(broken.release(Sum::zero(&encoding), &mut keys()).unwrap_err(), MechanismError::Broken);
}
