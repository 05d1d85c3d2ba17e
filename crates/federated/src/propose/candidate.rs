//! One candidate that meets a target: a mechanism, a report goal, and the noise they need together.

use std::{cell::RefCell, collections::BTreeMap};

use privacy::{
    AccountantKind, Adjacency, Epsilon, MinSeparation, NoiseMatrix, NoiseMultiplier, Participation, PrivacyEvent,
    SamplingRate,
    calibrate::Target,
    design::SizeOf,
    factorization::{Errors, Objective, Setting, evaluate},
};
use serde::Serialize;

use super::{Ask, ProposeError};
use crate::{
    burden::{BORNE_BY_GAUSSIAN, BORNE_BY_TREE, noise_in_sums},
    config::MechanismKind,
};

/// Calibrated noise is raised by this part, more than an exact release on a grid loses to it.
const MARGIN: f64 = 1e-4;

/// A way to meet the target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The noise mechanism.
    pub mechanism: MechanismKind,
    /// m: the report goal, or with sampling the expected cohort.
    pub cohort: u64,
    /// MinS: rounds strictly between two participations; none with sampling.
    pub min_separation: Option<u64>,
    /// MaxP: the most participations of one user; none with sampling.
    pub max_participations: Option<u64>,
    /// Bands of its matrix, where they are counted.
    pub bands: Option<usize>,
    /// Buffers of its matrix, where they are counted.
    pub buffers: Option<usize>,
    /// z: what the target needs.
    pub noise_multiplier: f64,
    /// z / m.
    pub noise_ratio: f64,
    /// z / m that a model bears, by the experiments of the papers or the asker.
    pub bearable_noise_ratio: f64,
    /// The noise in the sum of all updates so far, root mean square over the rounds, in clip norms: it makes mechanisms
    /// comparable, which their z does not.
    pub model_noise: f64,
    /// What the same report goal would cost with noise that a model bears (Xu et al. 2023, Figure 4).
    pub epsilon_if_bearable: Epsilon,
    /// The zCDP parameter of that, where there is one.
    pub rho_if_bearable: Option<f64>,
}

impl Candidate {
    /// Whether a model bears the noise.
    #[must_use]
    pub fn is_bearable(&self) -> bool {
        self.noise_ratio <= self.bearable_noise_ratio
    }

    /// How large its matrix is, where somebody has to say.
    #[must_use]
    pub fn size(&self) -> Option<(SizeOf, usize)> {
        let of = self.mechanism.design()?.size?.of;
        let size = match of {
            SizeOf::Bands => self.bands,
            SizeOf::Buffers => self.buffers,
        };
        Some((of, size?))
    }

    /// How many times the noise is that a model bears.
    #[must_use]
    pub fn times_bearable(&self) -> f64 {
        self.noise_ratio / self.bearable_noise_ratio
    }
}

/// What one mechanism needs at any report goal.
pub(super) struct Family<'a> {
    ask: &'a Ask,
    pub(super) mechanism: MechanismKind,
    /// z of one release of sensitivity 1 that costs all of the target: correlated noise is one such release.
    whole: f64,
    /// Matrices that were found before, by the limits they are for: many report goals share them.
    found: RefCell<BTreeMap<(u64, u64), Found>>,
}

/// A matrix for some limits, and that of the tree.
#[derive(Clone, Copy)]
struct Found {
    errors: Errors,
    tree: Errors,
    size: Option<(SizeOf, usize)>,
}

impl<'a> Family<'a> {
    pub(super) fn new(ask: &'a Ask, mechanism: MechanismKind) -> Result<Self, ProposeError> {
        let whole = target(ask).noise_multiplier(|z| PrivacyEvent::gaussian(Adjacency::ZeroOut, z))?;
        Ok(Self { ask, mechanism, whole: whole.value.get(), found: RefCell::default() })
    }

    pub(super) const fn is_sampled(&self) -> bool {
        matches!(self.mechanism, MechanismKind::Gaussian)
    }

    /// The largest report goal that the population allows, whatever the system can serve.
    pub(super) fn most(&self) -> u64 {
        let Ask { population, rounds, min_separation, max_participations, .. } = *self.ask;
        if self.is_sampled() {
            return population;
        }
        let by_separation = min_separation.map_or(population, |s| population / s.saturating_add(1).min(rounds));
        let by_count = max_participations
            .map_or(u128::from(population), |p| u128::from(population) * u128::from(p) / u128::from(rounds));
        by_separation.min(u64::try_from(by_count).unwrap_or(population))
    }

    /// What the target needs at a report goal.
    pub(super) fn at(&self, cohort: u64) -> Result<Candidate, ProposeError> {
        if self.is_sampled() { self.sampled(cohort) } else { self.correlated(cohort) }
    }

    /// Independent noise, users drawn at random.
    fn sampled(&self, cohort: u64) -> Result<Candidate, ProposeError> {
        let Ask { population, rounds, .. } = *self.ask;
        let rate = SamplingRate::new(cohort as f64 / population as f64).map_err(ProposeError::unit("cohort"))?;
        let event = |z: NoiseMultiplier| PrivacyEvent::poisson(rate, z).times(rounds);
        let z = round_up(target(self.ask).noise_multiplier(event)?.value.get());
        let bearable = self.ask.noise_ratio.unwrap_or(BORNE_BY_GAUSSIAN.ratio());
        let at_bearable = NoiseMultiplier::new(bearable * cohort as f64).map_err(ProposeError::unit("noise_ratio"))?;
        // With next to no noise accountants give up, and the answer is no guarantee.
        let epsilon = judge(self.ask, &event(at_bearable)).unwrap_or(Epsilon::INFINITE);
        let rows = f64::midpoint(rounds as f64, 1.0).sqrt();
        Ok(Candidate {
            mechanism: self.mechanism,
            cohort,
            min_separation: None,
            max_participations: None,
            bands: None,
            buffers: None,
            noise_multiplier: z,
            noise_ratio: z / cohort as f64,
            bearable_noise_ratio: bearable,
            model_noise: z * rows / cohort as f64,
            epsilon_if_bearable: epsilon,
            rho_if_bearable: None,
        })
    }

    /// Correlated noise, users as they come (Xu et al. 2023, section 2.5): MinS as large as the population allows, MaxP what
    /// follows from it.
    fn correlated(&self, cohort: u64) -> Result<Candidate, ProposeError> {
        let Ask { population, rounds, min_separation, max_participations, .. } = *self.ask;
        let distance = min_separation.map_or(population / cohort, |s| s.saturating_add(1)).clamp(1, rounds);
        let often = rounds.div_ceil(distance).min(max_participations.unwrap_or(u64::MAX));
        let separation = MinSeparation::distance(distance).map_err(ProposeError::unit("min_separation"))?;
        let Found { errors, tree, size } = self.matrix(separation, often)?;
        let z = round_up(self.whole * errors.sensitivity());
        // What a model bears under the tree is noise in the sum of its updates; another matrix may add as much.
        let borne = BORNE_BY_TREE.ratio() * noise_in_sums(&tree) / noise_in_sums(&errors);
        let bearable = self.ask.noise_ratio.unwrap_or(borne);
        let mu = errors.sensitivity() / (bearable * cohort as f64);
        let one = NoiseMultiplier::new(mu.recip()).map_err(ProposeError::unit("noise_ratio"))?;
        Ok(Candidate {
            mechanism: self.mechanism,
            cohort,
            min_separation: Some(separation.as_rounds_between()),
            max_participations: Some(often),
            bands: size.filter(|(of, _)| *of == SizeOf::Bands).map(|(_, size)| size),
            buffers: size.filter(|(of, _)| *of == SizeOf::Buffers).map(|(_, size)| size),
            noise_multiplier: z,
            noise_ratio: z / cohort as f64,
            bearable_noise_ratio: bearable,
            model_noise: z * noise_in_sums(&errors) / cohort as f64,
            epsilon_if_bearable: judge(self.ask, &PrivacyEvent::gaussian(Adjacency::ZeroOut, one))?,
            rho_if_bearable: Some(mu * mu / 2.0),
        })
    }

    /// The matrix for some limits.
    fn matrix(&self, separation: MinSeparation, max_participations: u64) -> Result<Found, ProposeError> {
        let limits = (separation.as_distance(), max_participations);
        if let Some(found) = self.found.borrow().get(&limits) {
            return Ok(*found);
        }
        let setting = Setting::new(self.ask.rounds, Participation::MinSeparation { separation, max_participations })?;
        let tree = evaluate(&NoiseMatrix::Tree, &setting)?;
        let mut found = Found { errors: tree, tree, size: None };
        if let Some(design) = self.mechanism.design() {
            found.size = design.size.map(|size| (size.of, (size.proposed)(limits.0)));
            let size = found.size.map_or(0, |(_, size)| size);
            found.errors = design.matrix(&setting, size, Objective::Mean)?.errors;
        }
        self.found.borrow_mut().insert(limits, found);
        Ok(found)
    }
}

fn target(ask: &Ask) -> Target {
    Target { epsilon: ask.epsilon, delta: ask.delta, accountant: AccountantKind::Best, group: 1 }
}

fn judge(ask: &Ask, event: &PrivacyEvent) -> Result<Epsilon, ProposeError> {
    let judged = AccountantKind::Best.judge(event, ask.delta).map_err(privacy::calibrate::CalibrateError::from)?;
    Ok(judged.epsilon)
}

/// Four digits, never less than what is needed.
fn round_up(z: f64) -> f64 {
    let z = z * (1.0 + MARGIN);
    let digits = 3 - z.log10().floor() as i32;
    // Divided by a power of ten, decimals come out as they are written.
    let rounded = if digits >= 0 { (z * 10f64.powi(digits)).ceil() / 10f64.powi(digits) } else { z.ceil() };
    rounded.max(z)
}

/// The mechanisms of some candidates, in the order in which they were tried.
#[must_use]
pub fn mechanisms(all: &[Candidate]) -> Vec<MechanismKind> {
    let mut mechanisms: Vec<MechanismKind> = Vec::new();
    for one in all {
        if !mechanisms.contains(&one.mechanism) {
            mechanisms.push(one.mechanism);
        }
    }
    mechanisms
}
