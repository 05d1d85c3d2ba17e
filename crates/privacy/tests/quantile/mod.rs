//! A quantile followed through the real stages: clip, encode, add up, release, follow. Shared by the tests of the clip
//! and by the example that draws the figures of Andrew et al. 2021.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each user takes a part of it, and a run that cannot be set up must stop"
)]

use keyhush_privacy::{
    Adjacency, ClipNorm, NoiseMatrix, NoiseMultiplier, Participation, Segment,
    clip::{AdaptiveClip, AdaptiveClipPlan, ClipStep},
    encoding::{Encoding, NoisePlan, VectorPlan},
    mechanism::{Correlation, Mechanism, MechanismPlan},
    rng::{NoiseSource, Purpose, RandomWords, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping, Contribution, Sum, Update},
};

/// Norms that are the exponential of a normal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogNormal {
    pub(crate) mean: f64,
    pub(crate) stddev: f64,
}

impl LogNormal {
    /// The three of Figure 2: exp of N(0.0, 1.0), N(0.0, 0.1) and N(log 10, 1.0), the second number read as a standard
    /// deviation.
    pub(crate) fn of_figure_2() -> [Self; 3] {
        let of = |mean, stddev| Self { mean, stddev };
        [of(0.0, 1.0), of(0.0, 0.1), of(std::f64::consts::LN_10, 1.0)]
    }

    /// The true value at one of the five quantiles of Figure 2.
    pub(crate) fn quantile(self, quantile: f64) -> f64 {
        // The standard normal's: scipy 1.16.3, scipy.stats.norm.ppf([0.1, 0.3, 0.5, 0.7, 0.9]).
        let normal = match quantile {
            0.1 => -1.281_551_565_544_6,
            0.3 => -0.524_400_512_708_041,
            0.5 => 0.0,
            0.7 => 0.524_400_512_708_041,
            0.9 => 1.281_551_565_544_6,
            other => panic!("not a quantile of the figure: {other}"),
        };
        (self.mean + self.stddev * normal).exp()
    }

    fn draw(self, words: &mut RandomWords) -> f64 {
        let mut uniform = || (words.next_word() >> 11) as f64 * 2.0f64.powi(-53) + 2.0f64.powi(-54);
        let (u, v) = (uniform(), uniform());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        (self.mean + self.stddev * normal).exp()
    }
}

/// The five quantiles of Figure 2.
pub(crate) const QUANTILES: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];

/// The constants of Andrew et al. 2021, section 3, and of Xu et al. 2023, Algorithm 1: gamma 0.5, eta 0.2, C^0 0.1.
pub(crate) fn published(planned_users: f64) -> AdaptiveClipPlan {
    let initial = ClipNorm::new(0.1).unwrap();
    AdaptiveClipPlan { quantile: 0.5, learning_rate: 0.2, initial, step: ClipStep::Geometric, planned_users }
}

/// What is followed, and how.
pub(crate) struct Tracking {
    pub(crate) data: LogNormal,
    pub(crate) clip: AdaptiveClipPlan,
    pub(crate) correlation: Correlation,
    pub(crate) segments: Vec<Segment>,
    pub(crate) seed: u64,
}

/// The clips of a run, one entry a round.
pub(crate) struct Tracked {
    pub(crate) active: Vec<f64>,
    pub(crate) tracked: Vec<f64>,
}

impl Tracking {
    /// Figure 2 of Andrew et al. 2021: eta 0.2, C^0 0.1, m 100, sigma_b m / 20, 200 rounds of independent noise.
    pub(crate) fn figure_2(data: LogNormal, quantile: f64) -> Self {
        let clip = AdaptiveClipPlan { quantile, ..published(100.0) };
        Self { data, clip, correlation: Correlation::Independent, segments: vec![Segment::of(200)], seed: 2021 }
    }

    /// Follows the quantile; users are one-dimensional updates.
    pub(crate) fn run(&self) -> Tracked {
        let mut keys = SimulationKey::new(self.seed);
        let source = NoiseSource::from(keys);
        let mut clip = AdaptiveClip::new(self.clip).unwrap();
        let encoding = self.encoding();
        let mut mechanism = Mechanism::init(self.plan(), encoding.layout(), source.randomness()).unwrap();
        let (mut active, mut tracked) = (Vec::new(), Vec::new());
        let independent = self.correlation == Correlation::Independent;
        for round in 0..mechanism.plan().rounds() {
            if independent || mechanism.at_restart() {
                clip.activate();
            }
            active.push(clip.active().get());
            tracked.push(clip.tracked().get());
            let sum = self.sum(&encoding.with_clip(clip.active()), &clip, &source, round);
            let released = mechanism.release(sum, &mut keys).unwrap();
            clip.follow(released.fraction_under_clip(self.clip.planned_users).unwrap()).unwrap();
        }
        Tracked { active, tracked }
    }

    fn encoding(&self) -> Encoding {
        let plan = VectorPlan { clip_bit: true, ..VectorPlan::of_update(1, 12) };
        let multiplier = NoiseMultiplier::new(1.0).unwrap();
        // sigma_b = m / 20: the noised fraction is off by less than 0.1 in 95 of 100 rounds.
        let noise =
            NoisePlan { clip_count_stddev: Some(self.clip.planned_users / 20.0), ..NoisePlan::of_update(multiplier) };
        Encoding::new(plan, self.clip.initial, Some(&noise), Adjacency::ZeroOut).unwrap()
    }

    fn plan(&self) -> MechanismPlan {
        MechanismPlan {
            stream: 0,
            adjacency: Adjacency::ZeroOut,
            participation: Participation::Once,
            correlation: self.correlation.clone(),
            segments: self.segments.clone(),
            distributed: None,
        }
    }

    fn sum(&self, encoding: &Encoding, clip: &AdaptiveClip, source: &NoiseSource, round: u64) -> Sum {
        let clipping = Clipping::new(ClipRule::Flat(clip.active()), ClipBit::NormAtMost(clip.tracked())).unwrap();
        let mut norms = source.stream(Purpose::Cohort, &[round]).chunk(0);
        let mut rounding = source.stream(Purpose::Rounding, &[round]).chunk(0);
        let mut sum = Sum::zero(encoding);
        for _ in 0..self.clip.planned_users as u64 {
            let update = Update::new(vec![self.data.draw(&mut norms) as f32]);
            let clipped = update.clip(&clipping, Contribution::default()).unwrap();
            sum.add(&clipped.encode(encoding, &mut rounding).unwrap()).unwrap();
        }
        sum
    }
}

/// The four mechanisms, restarted twice where they can be.
pub(crate) fn mechanisms() -> Vec<(Correlation, Vec<Segment>)> {
    let restarted = vec![Segment::of(60), Segment::of(60), Segment::of(80)];
    let banded = NoiseMatrix::Banded { coefficients: vec![1.0, 0.5, 0.375, 0.25] };
    let blt = NoiseMatrix::Blt { buffer_decay: vec![0.9375, 0.5], output_scale: vec![0.25, 0.25] };
    vec![
        (Correlation::Independent, vec![Segment::of(200)]),
        (Correlation::Matrix(NoiseMatrix::Tree), restarted.clone()),
        (Correlation::Matrix(banded), restarted.clone()),
        (Correlation::Matrix(blt), restarted),
    ]
}

/// The loss whose minimum is a quantile, averaged over values: Andrew et al. 2021, section 2 and Figure 1.
pub(crate) fn average_loss(quantile: f64, clip: f64, values: &[f64]) -> f64 {
    let loss = |x: f64| if x <= clip { (1.0 - quantile) * (clip - x) } else { quantile * (x - clip) };
    values.iter().map(|x| loss(*x)).sum::<f64>() / values.len() as f64
}

/// The values of Figure 1.
pub(crate) const FIGURE_1_VALUES: [f64; 6] = [15.0, 25.0, 28.0, 40.0, 45.0, 48.0];
/// The quantiles of Figure 1.
pub(crate) const FIGURE_1_QUANTILES: [f64; 4] = [0.01, 0.5, 0.75, 0.99];
