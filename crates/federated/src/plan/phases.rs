//! Phases: rounds that share participation and noise, accounted for together.
//!
//! A run with one z and one cohort has one phase. Under independent noise every change of them begins another, with a stream
//! of its own in the ledger; correlated noise cannot change either (rule P7).

use std::collections::BTreeMap;

use ledger;
use privacy::{
    Adjacency, ClipNorm, MinSeparation, NoiseMultiplier, Participation, PrivacyEvent, Segment,
    encoding::{Encoding, NoisePlan, Rounding, VectorLayout, VectorPlan, XU_ALPHA},
    factorization::{Objective, Setting as Factorizes},
    mechanism::{Correlation, MechanismPlan},
    rng::{NoiseSource, Purpose, SimulationKey},
    stages::{ClipBit, Clipping, Quotient, Residues},
};
use secagg::message::Traffic;

use super::{
    Draft, divides_by_weight, noise_multiplier, sampled,
    secure::{Secure, is_distributed},
    upload::UploadPlan,
};
use crate::config::{Config, ConfigError, CorrelatedNoise, EstimatorKind, Mechanism, ParticipationKind, RoundingKind};

/// The stream of a run with one phase.
const STREAM: &str = "model";
/// What a grid has by default: noise of a few thousandths of the clip is still hundreds of grid steps.
pub(crate) const GRID_BITS: u32 = 20;

/// Releases that are accounted for as one.
#[derive(Debug, Clone)]
pub struct Phase {
    /// Its name in the ledger.
    pub stream: String,
    /// Its first round.
    pub first: u64,
    /// Its rounds.
    pub rounds: u64,
    /// How users take part.
    pub participation: Participation,
    /// Users of a round.
    pub cohort: u64,
    /// z, where there is noise: of the release as it is made.
    pub noise: Option<NoiseMultiplier>,
    /// z of the large cohort that this one stands for (rule P16).
    pub projected_noise: Option<NoiseMultiplier>,
    /// The mechanism, where there is noise.
    pub mechanism: Option<MechanismPlan>,
    /// How its sums are made securely, where they are.
    pub secure: Option<Secure>,
    /// The encoding of the users' vectors, for the clip of the phase's first round.
    pub(super) encoding: Encoding,
    /// The noise of what is released.
    pub(super) noise_plan: Option<NoisePlan>,
    /// q W_min of the clipped denominator.
    pub(super) least_weight: Option<f64>,
    pub(super) adjacency: Adjacency,
}

/// The encoding of a round, and the denominator if it is part of the release.
#[derive(Debug, Clone)]
pub struct Coding {
    /// The encoding of users' vectors.
    pub encoding: Encoding,
    /// The clipped denominator (rule P10).
    pub quotient: Option<Quotient>,
    /// How they become residues, where they are added up securely.
    pub residues: Option<Residues>,
}

impl Coding {
    /// The encoding of what is released.
    #[must_use]
    pub fn released(&self) -> &Encoding {
        self.quotient.as_ref().map_or(&self.encoding, Quotient::encoding)
    }
}

/// What distinguishes a phase from the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) rounds: u64,
    pub(super) cohort: u64,
    pub(super) noise_multiplier: Option<f64>,
    pub(super) clip: ClipNorm,
    /// Whether it is the only one.
    pub(super) alone: bool,
}

impl Phase {
    /// Whether sums are divided by the weights in them (rule P10).
    #[must_use]
    pub const fn divides_by_weight(&self) -> bool {
        self.least_weight.is_some()
    }

    /// The plan of the users' vectors.
    #[must_use]
    pub const fn vectors(&self) -> &VectorPlan {
        self.encoding.plan()
    }

    pub(super) fn new(draft: &Draft<'_>, number: usize, span: Span) -> Result<Self, ConfigError> {
        let Draft { config, parameters, adjacency } = *draft;
        let participation = participation(config, span.cohort)?;
        let (population, rounds) = (config.participation.population, config.rounds);
        participation
            .check_feasible(population, span.cohort, rounds)
            .map_err(|e| ConfigError::new(infeasible_key(&e), e))?;
        let projected_noise =
            span.noise_multiplier.map(|z| noise_multiplier("privacy.noise_multiplier", z)).transpose()?;
        let noise = projected_noise.map(|z| scaled(config, span.cohort, z)).transpose()?;
        let noise_plan = noise.map(|multiplier| noise_plan(config, span.cohort, multiplier));
        let least_weight = least_weight(config, span.cohort);
        let clipped = least_weight.is_some();
        let distributed = is_distributed(config);
        let of_sum = noise_plan.as_ref().filter(|_| !clipped && !distributed);
        let rule = config.clip.kind().rule(span.clip, parameters).map_err(|e| ConfigError::new("clip", e))?;
        let bit = if config.clip.is_adaptive() { ClipBit::NormAtMost(span.clip) } else { ClipBit::None };
        Clipping::new(rule.clone(), bit).map_err(|e| ConfigError::new("clip.kind", e))?;
        let dimension = UploadPlan::new(config, parameters.len()).coordinates();
        let encoding = Encoding::new(vector(config, dimension), rule.bound(), of_sum, adjacency)
            .map_err(|e| ConfigError::new("privacy", e))?;
        let secure = match (Secure::new(config, span.cohort)?, &noise_plan) {
            (Some(secure), Some(noise)) if distributed => Some(secure.with_noise(&encoding, noise, adjacency)?),
            (secure, _) => secure,
        };
        let stream = if span.alone {
            STREAM.to_owned()
        } else {
            format!("{STREAM}, rounds {} to {}", span.first, span.first + span.rounds - 1)
        };
        let mut phase = Self {
            stream,
            first: span.first,
            rounds: span.rounds,
            participation,
            cohort: span.cohort,
            noise,
            projected_noise: config.stands_for.as_ref().and(projected_noise),
            mechanism: None,
            secure,
            encoding,
            noise_plan,
            least_weight,
            adjacency,
        };
        // What cannot be carried out is refused now.
        phase.coding(phase.encoding.clip())?;
        if noise.is_some() {
            phase.mechanism = Some(phase.mechanism_plan(config, number)?);
        }
        Ok(phase)
    }

    fn mechanism_plan(&self, config: &Config, number: usize) -> Result<MechanismPlan, ConfigError> {
        let plan = MechanismPlan {
            stream: number as u64,
            adjacency: self.adjacency,
            participation: self.participation,
            correlation: correlation(config, self.participation)?,
            segments: segments(config, self.rounds),
            distributed: self.secure.as_ref().and_then(|s| s.noise.clone()),
        };
        plan.check(&self.released_layout()?).map_err(|e| ConfigError::new("privacy", e))?;
        Ok(plan)
    }

    /// The encoding of rounds with a clip norm: the bound of the whole update if layers have their own.
    ///
    /// # Errors
    /// Never for a plan that was made.
    pub fn coding(&self, clip: ClipNorm) -> Result<Coding, ConfigError> {
        let encoding = if clip == self.encoding.clip() { self.encoding.clone() } else { self.encoding.with_clip(clip) };
        let quotient = match self.least_weight {
            None => None,
            Some(least) => Some(
                Quotient::new(&encoding, least, self.noise_plan.as_ref(), self.adjacency)
                    .map_err(|e| ConfigError::new("estimator", e))?,
            ),
        };
        let residues = self.secure.as_ref().map(|secure| secure.residues(&encoding)).transpose()?;
        Ok(Coding { encoding, quotient, residues })
    }

    /// The event of its first rounds.
    ///
    /// # Errors
    /// Never for a plan that was made.
    pub fn event(&self, rounds: u64) -> Result<PrivacyEvent, ConfigError> {
        let Some(mechanism) = &self.mechanism else { return Ok(PrivacyEvent::NonPrivate { what: no_noise() }) };
        mechanism.event(rounds, &self.released_layout()?).map_err(|e| ConfigError::new("privacy", e))
    }

    /// Bytes that the mechanism keeps.
    #[must_use]
    pub fn mechanism_memory(&self) -> u64 {
        self.mechanism.as_ref().zip(self.released_layout().ok()).map_or(0, |(m, layout)| m.memory(&layout))
    }

    /// The encoding of all rounds with the clip norm of the first.
    ///
    /// # Errors
    /// Never for a plan that was made.
    pub fn first_coding(&self) -> Result<Coding, ConfigError> {
        self.coding(self.encoding.clip())
    }

    /// The layout of releases, segment by segment; it does not depend on the clip norm.
    ///
    /// # Errors
    /// Never for a plan that was made.
    pub fn released_layout(&self) -> Result<VectorLayout, ConfigError> {
        Ok(self.first_coding()?.released().layout().clone())
    }

    /// The traffic of a device besides the model, in a secure round of the planned size.
    ///
    /// # Errors
    /// Never for a plan that was made.
    pub fn secure_traffic(&self) -> Result<Option<Traffic>, ConfigError> {
        let Some(secure) = &self.secure else { return Ok(None) };
        secure.traffic(&secure.residues(&self.encoding)?, secure.of_group(self.cohort)).map(Some)
    }

    /// Coordinates of what a user sends.
    #[must_use]
    pub fn coordinates(&self) -> usize {
        self.encoding.layout().len()
    }

    /// Bytes of what a user sends, where sums are plain.
    #[must_use]
    pub fn report_bytes(&self) -> usize {
        self.encoding.packing().bytes()
    }

    /// Bits of an integer of the update in what a user sends.
    #[must_use]
    pub fn update_bits(&self) -> usize {
        self.encoding.packing().update_bits()
    }

    /// As the ledger's first entry has it.
    pub(super) fn of_ledger(&self, config: &Config) -> Result<ledger::Phase, ConfigError> {
        let mut parameters = BTreeMap::new();
        let mut say = |key: &str, value: String| _ = parameters.insert(key.to_owned(), value);
        if let Some(z) = self.noise {
            say("noise_multiplier", z.to_string());
        }
        say("cohort", self.cohort.to_string());
        say("grid_bits", config.privacy.grid_bits.unwrap_or(GRID_BITS).to_string());
        let clip = self.encoding.clip();
        say("clip_norm", config.clip.kind().in_ledger(clip));
        say("estimator", config.estimator.kind.name().to_owned());
        if let Some(words) = UploadPlan::new(config, self.encoding.dimension()).words() {
            say("upload", words);
        }
        Ok(ledger::Phase {
            stream: self.stream.clone(),
            mechanism: words(config).to_owned(),
            parameters,
            participation: self.participation,
            rounds: self.rounds,
            event: self.event(self.rounds)?,
        })
    }
}

impl Phase {
    /// Whether its guarantee comes from limits on how often each user takes part.
    #[must_use]
    pub const fn counts_participations(&self) -> bool {
        matches!(self.participation, Participation::MinSeparation { .. } | Participation::Once)
    }
}

/// The mechanism of a run without noise, in words.
pub(crate) fn no_noise() -> String {
    "the updates of every round, summed without noise".to_owned()
}

/// The stream in the ledger of what was released before the run, without privacy.
pub const BEFORE: &str = "before";

/// Its phase.
pub(super) fn released_before(what: &str) -> ledger::Phase {
    ledger::Phase {
        stream: BEFORE.to_owned(),
        mechanism: "released before the run, without noise".to_owned(),
        parameters: BTreeMap::new(),
        participation: Participation::Once,
        rounds: 1,
        event: PrivacyEvent::NonPrivate { what: what.to_owned() },
    }
}

fn words(config: &Config) -> &'static str {
    match &config.privacy.mechanism {
        Mechanism::None { .. } => "no noise",
        Mechanism::Gaussian(_) if is_distributed(config) => {
            "independent Skellam noise in every round, added by the devices"
        }
        Mechanism::Gaussian(_) => "independent Gaussian noise in every round",
        Mechanism::Correlated(correlated) => correlated.design().title,
    }
}

fn participation(config: &Config, cohort: u64) -> Result<Participation, ConfigError> {
    let from = &config.participation;
    match from.kind {
        ParticipationKind::Poisson | ParticipationKind::FixedSize => {
            sampled(from.kind, from.population, cohort, "participation")
        }
        ParticipationKind::Once => Ok(Participation::Once),
        ParticipationKind::Arrival { min_separation, max_participations } => {
            let separation = MinSeparation::rounds_between(min_separation)
                .map_err(|e| ConfigError::new("participation.min_separation", e.problem()))?;
            Ok(Participation::MinSeparation { separation, max_participations })
        }
    }
}

fn infeasible_key(error: &privacy::participation::ParticipationError) -> &'static str {
    use privacy::participation::ParticipationError as E;
    match error {
        E::Cohort { .. } => "participation.cohort",
        E::NoParticipations | E::ParticipationsInfeasible { .. } => "participation.max_participations",
        E::SeparationInfeasible { .. } => "participation.min_separation",
    }
}

/// The multiplier of a small cohort whose average has the noise that a large one's would have (rule P16).
fn scaled(config: &Config, cohort: u64, z: NoiseMultiplier) -> Result<NoiseMultiplier, ConfigError> {
    let Some(large) = &config.stands_for else { return Ok(z) };
    noise_multiplier("stands_for.cohort", z.get() * cohort as f64 / large.cohort as f64)
}

fn noise_plan(config: &Config, cohort: u64, multiplier: NoiseMultiplier) -> NoisePlan {
    let following = config.clip.following();
    let clip_count_stddev = following.map(|adaptive| adaptive.count_stddev.unwrap_or(cohort as f64 / 20.0));
    NoisePlan { clip_count_stddev, ..NoisePlan::of_update(multiplier) }
}

/// q W_min, of the clipped denominator.
fn least_weight(config: &Config, cohort: u64) -> Option<f64> {
    let EstimatorKind::Clipped { least_total_weight } = config.estimator.kind else { return None };
    let population = config.participation.population as f64;
    Some(least_total_weight.unwrap_or(population) * cohort as f64 / population)
}

fn vector(config: &Config, dimension: usize) -> VectorPlan {
    // Public: the signs of the rotation follow from the seed of the first parameters.
    let seed = || NoiseSource::from(SimulationKey::new(config.seed)).stream(Purpose::Rotation, &[]).public_seed();
    VectorPlan {
        rounding: match config.privacy.rounding {
            RoundingKind::Nearest => Rounding::Nearest,
            RoundingKind::Conditional => Rounding::ConditionalStochastic { alpha: XU_ALPHA },
        },
        rotation_seed: config.privacy.rotation.then(seed),
        clip_bit: config.clip.is_adaptive(),
        weight: divides_by_weight(config.estimator.kind),
        ..VectorPlan::of_update(dimension, config.privacy.grid_bits.unwrap_or(GRID_BITS))
    }
}

/// The rounds between restarts.
fn segments(config: &Config, rounds: u64) -> Vec<Segment> {
    let ends = config.privacy.restarts().iter().copied().chain([rounds]);
    let completes = config.privacy.correlated().is_some_and(CorrelatedNoise::completes_trees);
    let one = |rounds| if completes { Segment::completed(rounds) } else { Segment::of(rounds) };
    let mut first = 0;
    ends.map(|end| one(end - std::mem::replace(&mut first, end))).collect()
}

fn correlation(config: &Config, participation: Participation) -> Result<Correlation, ConfigError> {
    let Some(noise) = config.privacy.correlated() else { return Ok(Correlation::Independent) };
    let design = noise.design();
    if let Some(matrix) = &design.fixed {
        return Ok(Correlation::Matrix(matrix.clone()));
    }
    let wrong = |key: &str, e: &dyn std::fmt::Display| ConfigError::new(format!("privacy.{key}"), e);
    let longest = segments(config, config.rounds).iter().map(|s| s.rounds).max().unwrap_or(1);
    let setting = Factorizes::new(longest, participation).map_err(|e| wrong("mechanism", &e))?;
    let key = design.size.map_or("mechanism", |size| size.of.name());
    let size = noise.size().unwrap_or(0);
    let matrix = design.matrix(&setting, size, Objective::Mean).map_err(|e| wrong(key, &e))?.matrix;
    Ok(Correlation::Matrix(matrix))
}
